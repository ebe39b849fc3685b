/* Blocks to and fro through PVM 3.4. The one that asks starts the other on the host that is its first argument
 * (`.` for any). Tasks talk directly, by TCP, and data is sent from where it lies, as NPpvm of NetPIPE 3.7 has it. PVM waits
 * in the kernel. */
#include <pvm3.h>
#include <sys/time.h>

#include "blocks.h"

enum { TAG = 7, PATIENCE_S = 10 };

static int peer;

static void must(int code, const char *what)
{
    if (code < 0) {
        pvm_perror((char *)what);
        pvm_exit();
        exit(3);
    }
}

static void give(const void *block, long bytes)
{
    must(pvm_initsend(PvmDataInPlace), "pvm_initsend");
    must(pvm_pkbyte((char *)block, (int)bytes, 1), "pvm_pkbyte");
    must(pvm_send(peer, TAG), "pvm_send");
}

static void take(void *block, long bytes)
{
    struct timeval patience = { PATIENCE_S, 0 };
    int buffer = pvm_trecv(peer, TAG, &patience);
    must(buffer, "pvm_trecv");
    if (buffer == 0) {
        fprintf(stderr, "blocks: the other task has been silent for %d s\n", PATIENCE_S);
        pvm_exit();
        exit(4);
    }
    must(pvm_upkbyte((char *)block, (int)bytes, 1), "pvm_upkbyte");
}

int main(int count, char **words)
{
    must(pvm_mytid(), "pvm_mytid");
    pvm_setopt(PvmRoute, PvmRouteDirect);
    int parent = pvm_parent();
    if (parent > 0) {
        peer = parent;
        answer(count - 1, words + 1);
    } else if (count < 3) {
        fprintf(stderr, "blocks: too few arguments\n");
        return 3;
    } else {
        /* The program's own path is what the other is started by. */
        int is_anywhere = strcmp(words[1], ".") == 0;
        int started = pvm_spawn(words[0], words + 2, is_anywhere ? PvmTaskDefault : PvmTaskHost, words[1], 1, &peer);
        if (started != 1) {
            fprintf(stderr, "blocks: cannot start the other task on %s: code %d\n", words[1], peer);
            pvm_exit();
            return 3;
        }
        ask(count - 2, words + 2);
    }
    pvm_exit();
    return 0;
}
