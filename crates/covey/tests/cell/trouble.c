/* Worker 0 reads a pipe; worker 1 does what its argument says, after some words into the pipe. */
#include "covey_cell.h"
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/time.h>
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

/* Takes words out of the ring of requests of worker 0, before anybody has seen them, for a while. */
static void
erase(void)
{
    unsigned long begin, end;
    volatile uint32_t *words;
    char line[512];
    int place;
    FILE *maps = fopen("/proc/self/maps", "r");

    while (maps && fgets(line, sizeof line, maps))
        if (strstr(line, "covey-cell") && sscanf(line, "%lx-%lx", &begin, &end) == 2) {
            words = (volatile uint32_t *) (begin + 69632);
            for (place = 0;; place = (place + 1) % 16)
                words[place] &= ~(0x3ffu << 18);
        }
}

static char stacks[3][8192] __attribute__((aligned(16)));
static int board, is_over;

/* Asks the host again and again for a few bytes at odd places. */
static void
ask(void *argument)
{
    char bytes[32];
    u64 at = 1;

    while (!is_over) {
        spc_pwrite(board, bytes, 9, at);
        spc_pread(board, bytes, 31, at);
        at = at * 5 % 61 + 1;
    }
}

/* The same, and writes at random into the box. */
static void
ask_and_scribble(void *argument)
{
    unsigned long begin = 0, end;
    char line[512], bytes[32];
    FILE *maps = fopen("/proc/self/maps", "r");
    uint32_t *word;
    int turn;

    while (maps && fgets(line, sizeof line, maps))
        if (strstr(line, "covey-cell") && sscanf(line, "%lx-%lx", &begin, &end) == 2)
            break;
    srand(*(int *) argument);
    begin += 69632 + 266240;
    for (turn = 0; begin > 69632 + 266240; turn++) {
        spc_pwrite(board, bytes, 9, turn % 61);
        if (turn % 50 == 49) {
            /* Half of them look new. */
            word = (uint32_t *) begin + rand() % 32;
            *word = (rand() & 1) ? rand() : (rand() & 0xf003ffff) | ((*word + (1 << 18)) & (0x3ff << 18));
        }
        if (turn % 7 == 6)
            ((char *) begin)[4096 + rand() % 16 * 16384 + rand() % 40] = rand();
    }
}

/* Rings every bell of this process for ever, as often as bells can be rung and once more. */
static void
flood(void)
{
    static const u64 most = ~0ull - 1, once = 1;
    char name[64], what[64];
    int fd, bells[16], count = 0;
    ssize_t bytes;

    for (fd = 0; fd < 64 && count < 16; fd++) {
        snprintf(name, sizeof name, "/proc/self/fd/%d", fd);
        bytes = readlink(name, what, sizeof what - 1);
        what[bytes > 0 ? bytes : 0] = 0;
        if (strstr(what, "eventfd"))
            bells[count++] = fd;
    }
    for (fd = 0; count > 0; fd = (fd + 1) % count) {
        write(bells[fd], &most, sizeof most);
        write(bells[fd], &once, sizeof once);
    }
}

static void
be_busy(void)
{
    int cor;

    board = spc_open("#r/board");
    for (cor = 0; cor < 3; cor++)
        mkcor(ask, 0, stacks[cor], sizeof stacks[cor]);
}

/* Ends this process with SIGALRM, wherever it is then. */
static void
end_soon(int microseconds)
{
    struct itimerval soon = {{0, 0}, {0, microseconds}};

    setitimer(ITIMER_REAL, &soon, 0);
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
        if (strcmp(argv[1], "busy-read") == 0 || strcmp(argv[1], "erase") == 0)
            be_busy();
        while ((count = spc_read(fd, words, sizeof words)) > 0)
            spc_log("%.*s", count, words);
        sp_rerror(&text, &number);
        spc_log(count == 0 ? "end\n" : "error %d\n", number);
        is_over = 1;
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
        /* A host that sleeps hears of the next message only. */
        spc_open("#r/more");
    }
    if (strcmp(argv[1], "busy-kill") == 0) {
        be_busy();
        end_soon(50000 + getpid() % 1000);
        ask(0);
    }
    if (strcmp(argv[1], "busy-scribble") == 0) {
        number = atoi(argv[2]);
        board = spc_open("#r/board");
        /* What it asks for may never be heard. */
        end_soon(900000);
        ask_and_scribble(&number);
    }
    if (strcmp(argv[1], "erase") == 0) {
        end_soon(900000);
        erase();
    }
    if (strcmp(argv[1], "flood") == 0) {
        end_soon(400000);
        flood();
    }
    if (strcmp(argv[1], "busy") == 0) {
        be_busy();
        spc_log("waits %d\n", (int) getpid());
        ask(0);
    }
    if (strcmp(argv[1], "wait") == 0) {
        fd = spc_open("#p/never");
        spc_log("waits %d\n", (int) getpid());
        spc_read(fd, words, sizeof words);
    }
}
