/* Worker 0 reads a pipe; worker 1 does what its argument says, after some words into the pipe. */
#include "covey_cell.h"
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/types.h>
#include <unistd.h>

/* Makes all words of the ring of worker 1 look new, and lead to a slot without a message. */
static void
scribble(void)
{
    char line[512];
    unsigned long begin, end;
    uint32_t *words;
    int place;
    FILE *maps = fopen("/proc/self/maps", "r");

    while (maps && fgets(line, sizeof line, maps))
        if (strstr(line, "covey-cell") && sscanf(line, "%lx-%lx", &begin, &end) == 2) {
            words = (uint32_t *) (begin + 69632 + 266240);
            for (place = 0; place < 16; place++)
                words[place] = 15u << 28 | (((words[place] >> 18) + 1) & 0x3ff) << 18 | 77;
            return;
        }
}

void
cormain(u64 worker, char **argv)
{
    char words[64], *text;
    int fd, count, number;

    if (worker == 0) {
        fd = spc_open("#p/words");
        spc_close(fd);
        fd = spc_open("#p/words", Oread);
        spc_log("ready\n");
        while ((count = spc_read(fd, words, sizeof words)) > 0)
            spc_log("%.*s", count, words);
        sp_rerror(&text, &number);
        spc_log(count == 0 ? "end\n" : "error %d\n", number);
        return;
    }
    while ((fd = spc_open("#p/words", Owrite)) < 0)
        yield();
    /* By then the reader waits. */
    usleep(300000);
    spc_write(fd, "last words\n", 11);
    if (strcmp(argv[1], "kill") == 0)
        kill(getpid(), SIGKILL);
    if (strcmp(argv[1], "scribble") == 0) {
        scribble();
        spc_write(fd, "more\n", 5);
    }
    if (strcmp(argv[1], "wait") == 0) {
        fd = spc_open("#p/never");
        spc_log("waits %d\n", (int) getpid());
        spc_read(fd, words, sizeof words);
    }
}
