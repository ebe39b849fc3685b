/* Open, read, write, seek, close: for a file of the file system, and what another node and its workers have. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "covey_cell.h"

static char block[256] __attribute__((aligned(16)));
static char path[128];

static int
must(const char *what, int result)
{
    char *text;
    int number;

    if (result < 0) {
        sp_rerror(&text, &number);
        spc_log("%s: %s (%d)\n", what, text, number);
        terminate();
    }
    return result;
}

static int
opened(const char *node, const char *name, int mode)
{
    snprintf(path, sizeof path, "%s%s", node, name);
    return must(path, spc_open(path, mode));
}

static void
put(const char *node, const char *name, const char *words)
{
    int fd = opened(node, name, Owrite);

    must(path, spc_write(fd, words, strlen(words)));
    must(path, spc_close(fd));
}

static void
show(const char *node, const char *name)
{
    int fd = opened(node, name, Oread), count = must(path, spc_read(fd, block, sizeof block));

    spc_log("%s: %.*s", name, count, block);
    must(path, spc_close(fd));
}

void
cormain(u64 worker, char **argv)
{
    const char *node = argv[1];
    char session[64];
    int fd, count;

    fd = must("/fs/abroad", spc_open("/fs/abroad", Oany));
    must("/fs/abroad", spc_write(fd, "in the file system\n", 19));
    must("/fs/abroad", (int) spc_seek(fd, 7, 0));
    count = must("/fs/abroad", spc_read(fd, block, sizeof block));
    spc_log("/fs/abroad: %.*s", count, block);
    must("/fs/abroad", spc_close(fd));

    show(node, "/cell/r/board");
    fd = opened(node, "/cell/r/board", Ordwr);
    must(path, (int) spc_seek(fd, 11, 0));
    must(path, spc_write(fd, "awake!!", 7));
    must(path, spc_close(fd));

    put(node, "/cell/p/orders", "march\n");
    show(node, "/cell/p/answers");
    put(node, "/cell/p/orders", "rest\n");

    fd = opened(node, "/xcpu/clone", Oread);
    count = must(path, spc_read(fd, block, sizeof block));
    block[count] = 0;
    snprintf(session, sizeof session, "/xcpu/%d/", (int) strtol(block, 0, 10));
    snprintf(block, sizeof block, "%sargv", session);
    put(node, block, "sh -c 'read word; echo a job with $word; exit 3'\n");
    snprintf(block, sizeof block, "%sctl", session);
    put(node, block, "exec /bin/sh\n");
    snprintf(block, sizeof block, "%sstdin", session);
    put(node, block, "input\n");
    snprintf(session + strlen(session), 16, "stdout");
    show(node, session);
    memcpy(strrchr(session, '/'), "/wait", 6);
    show(node, session);
    must("/xcpu/clone", spc_close(fd));
    spc_log("done\n");
}
