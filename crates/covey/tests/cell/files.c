/* Files of the host: seen by all workers and not by the disk, many one after another, and those without a size. */
#include "covey_cell.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static char block[4096] __attribute__((aligned(16)));
static char path[256];

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

/* What one worker changes the other sees, whether it goes by a copy or by message. */
static void
private(u64 worker, const char *name)
{
    int mine = must("pipe", spc_open(worker == 0 ? "#p/zero" : "#p/one"));
    int other = must("pipe", spc_open(worker == 0 ? "#p/one" : "#p/zero")), file, count;

    snprintf(path, sizeof path, "#R%s", name);
    file = must(path, spc_open(path, Ordwr));
    if (worker == 0) {
        count = must(path, spc_pread(file, block, 5, 3));
        spc_log("0 found %.*s\n", count, block);
        memcpy(block, "0123456789abcdef", 16);
        must(path, spc_pwrite(file, block, 16, 16));
        must(path, spc_pwrite(file, "odd", 3, 41));
        must("pipe", spc_write(other, "go", 2));
        must("pipe", spc_read(mine, block, 2));
        count = must(path, spc_pread(file, block, 64, 4096));
        spc_log("0 sees %.*s\n", count, block);
        return;
    }
    must("pipe", spc_read(mine, block, 2));
    must(path, spc_pread(file, block, 16, 16));
    must(path, spc_pread(file, block + 16, 3, 41));
    spc_log("1 sees %.19s\n", block);
    /* Behind the end: the file grows. */
    must(path, spc_pwrite(file, "grown", 5, 4096));
    must("pipe", spc_write(other, "go", 2));
}

/* Lines of this process's map with these words. */
static int
mapped(const char *words)
{
    char line[512];
    FILE *maps = fopen("/proc/self/maps", "r");
    int count = 0;

    while (maps && fgets(line, sizeof line, maps))
        count += strstr(line, words) != 0;
    fclose(maps);
    return count;
}

/* Files of a directory, one after another: each is mapped while it is open. */
static void
many(const char *directory, int files)
{
    int number, file, most = 0;

    for (number = 0; number < files; number++) {
        snprintf(path, sizeof path, "#U%s/file%d", directory, number);
        file = must(path, spc_open(path, Ordwr));
        must(path, spc_pread(file, block, 16, 0));
        snprintf(block + 100, 32, "file%d ", number);
        if (strncmp(block, block + 100, strlen(block + 100)) != 0)
            spc_log("file%d has %.16s\n", number, block);
        if (mapped(path + 2) != 1)
            spc_log("file%d is not mapped\n", number);
        must(path, spc_close(file));
        if (mapped(directory) > most)
            most = mapped(directory);
    }
    spc_log("%s\n", most <= 2 ? "all seen" : "too many are kept");
}

static void
whole(const char *name)
{
    int file, count, all = 0;

    snprintf(path, sizeof path, "#U%s", name);
    file = must(path, spc_open(path, Oread));
    must(path, spc_read(file, block, 5));
    spc_log("begins with %.5s\n", block);
    spc_seek(file, 0, 0);
    while ((count = must(path, spc_read(file, block, sizeof block))) > 0)
        all += count;
    spc_log("%s\n", all > 200 ? "long" : "short");
}

/* A file that has room for more than its disk. */
static void
fill(const char *name)
{
    int file, at, number;
    char *text;

    snprintf(path, sizeof path, "#U%s", name);
    file = must(path, spc_open(path, Ordwr));
    memset(block, 'x', sizeof block);
    for (at = 0; at < 8 << 20; at += sizeof block)
        if (spc_pwrite(file, block, sizeof block, at) != sizeof block)
            break;
    sp_rerror(&text, &number);
    spc_log("%s\n", at == 8 << 20 ? "it fits" : mapped(name) ? "mapped" : "by messages");
    spc_log("error %d\n", number);
    memset(block, 0, sizeof block);
    spc_log("kept %d\n", spc_pread(file, block, sizeof block, 0) == sizeof block && block[4095] == 'x');
    spc_log("behind it %d\n", must(path, spc_pread(file, block, 16, at)) == 16 && block[0] == 0);
}

void
cormain(u64 worker, char **argv)
{
    if (strcmp(argv[1], "fill") == 0)
        fill(argv[2]);
    if (strcmp(argv[1], "private") == 0)
        private(worker, argv[2]);
    if (strcmp(argv[1], "many") == 0)
        many(argv[2], atoi(argv[3]));
    if (strcmp(argv[1], "whole") == 0)
        whole(argv[2]);
}
