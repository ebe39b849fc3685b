/* Another process that stops, goes on, and is killed while this one waits for it in every way; or, where that is asked for,
 * one that does not know the secret. */
#include "pair.h"
#include <signal.h>
#include <sys/wait.h>

enum { BYTES = 1 << 20 };

static void open_all(int to, int from) {
    struct fi_info *wish = hints();
    struct fi_cq_attr cq_attr = {.format = FI_CQ_FORMAT_TAGGED, .wait_obj = FI_WAIT_FD};
    wish->caps = FI_TAGGED | FI_RMA | FI_ATOMIC | FI_DIRECTED_RECV;
    open_pair(to, from, wish, cq_attr, 2 * BYTES, BYTES);
}

static void wait_for(int context) {
    struct fi_cq_tagged_entry entry;
    double until = now() + 60;
    while (fi_cq_sread(cq, &entry, 1, NULL, 1000) != 1) CHECK(now() < until);
    IS((intptr_t)entry.op_context, context);
}

/* Everything that names the other fails, whether its end is reported or not. */
static void nothing_reaches_it(void) {
    IS(fi_trecv(ep, memory, 8, NULL, other, 2, 0, (void *)1), 0);
    ssize_t sent = fi_tsend(ep, memory, 8, NULL, other, 1, (void *)1);
    CHECK(sent == 0 || sent == -FI_ECONNRESET);
    ssize_t injected = fi_tinject(ep, memory, 8, other, 1);
    CHECK(injected == 0 || injected == -FI_ECONNRESET);
    double until = now() + 60;
    for (int left = 1 + !sent + !injected; left > 0;) {
        struct fi_cq_tagged_entry entry;
        struct fi_cq_err_entry error = {0};
        ssize_t got = fi_cq_sread(cq, &entry, 1, NULL, 100);
        CHECK(now() < until);
        if (got == -FI_EAGAIN) continue;
        IS(got, -FI_EAVAIL);
        IS(fi_cq_readerr(cq, &error, 0), 1);
        IS(error.err, FI_ECONNRESET);
        left--;
    }
}

int main(int count, char **arguments) {
    int down[2], up[2], are_strangers = count > 1 && !strcmp(arguments[1], "strangers");
    CHECK(!pipe(down) && !pipe(up));
    pid_t child = fork();
    if (!child) {
        if (are_strangers) setenv("COVEY_JOB_SECRET", "another one", 1);
        open_all(up[1], down[0]);
        if (are_strangers) {
            nothing_reaches_it();
            _exit(0);
        }
        IS(fi_trecv(ep, memory, 8, NULL, other, 1, 0, (void *)1), 0);
        wait_for(1);
        IS(fi_tsend(ep, memory, 8, NULL, other, 2, (void *)2), 0);
        wait_for(2);
        /* A process that this one leaves behind has its descriptors too. */
        if (getenv("LEAVES_A_CHILD") && !fork()) {
            for (int at = 0; at < 1000 && getppid() != 1; at++) usleep(100000);
            usleep(3000000);
            _exit(0);
        }
        for (;;) fi_cq_sread(cq, memory + BYTES, 1, NULL, 1000);
    }
    open_all(down[1], up[0]);
    if (are_strangers) {
        int status;
        pid_t ended;
        struct fi_cq_tagged_entry entry;
        nothing_reaches_it();
        /* The other one may only begin now: who is turned away has to be told so. */
        while (!(ended = waitpid(child, &status, WNOHANG))) fi_cq_sread(cq, &entry, 1, NULL, 10);
        CHECK(ended == child && WIFEXITED(status) && !WEXITSTATUS(status));
        puts("right");
        return 0;
    }
    IS(fi_trecv(ep, memory, 8, NULL, other, 2, 0, (void *)2), 0);
    IS(fi_tsend(ep, memory, 8, NULL, other, 1, (void *)1), 0);
    for (int left = 2; left > 0; left--) {
        struct fi_cq_tagged_entry entry;
        double until = now() + 60;
        while (fi_cq_sread(cq, &entry, 1, NULL, 1000) != 1) CHECK(now() < until);
    }
    /* It stops: what is sent meanwhile waits, and so does this process's own work for nobody. */
    CHECK(!kill(child, SIGSTOP));
    while (state_of(child) != 'T') usleep(1000);
    int begun = 0;
    double until = now() + 60;
    for (; begun < 3000; begun++) {
        ssize_t result = fi_tsend(ep, memory, 2000, NULL, other, 77, (void *)77);
        if (result == -FI_EAGAIN) break;
        IS(result, 0);
        CHECK(now() < until);
    }
    CHECK(begun > 10);
    CHECK(!kill(child, SIGCONT));
    /* It is killed: everything that names it ends, well or not, and nothing is left. */
    uint64_t one = 1;
    IS(fi_trecv(ep, memory, 8, NULL, other, 3, 0, (void *)3), 0);
    ssize_t sent = fi_tsend(ep, memory, BYTES, NULL, other, 4, (void *)4);
    CHECK(sent == 0 || sent == -FI_EAGAIN);
    ssize_t read = fi_read(ep, memory + BYTES, 100000, NULL, other, 0, KEY, (void *)5);
    CHECK(read == 0 || read == -FI_EAGAIN);
    ssize_t added = fi_atomic(ep, &one, 1, NULL, other, 0, KEY, FI_UINT64, FI_SUM, (void *)6);
    CHECK(added == 0 || added == -FI_EAGAIN);
    IS(fi_trecv(ep, memory, 8, NULL, FI_ADDR_UNSPEC, 5, 0, (void *)8), 0);
    CHECK(!kill(child, SIGKILL));
    int left = begun + 1 + !sent + !read + !added, failed = 0;
    until = now() + 60;
    while (left > 0) {
        struct fi_cq_tagged_entry entry;
        struct fi_cq_err_entry error = {0};
        ssize_t got = fi_cq_sread(cq, &entry, 1, NULL, 1000);
        CHECK(now() < until);
        if (got == -FI_EAVAIL) {
            IS(fi_cq_readerr(cq, &error, 0), 1);
            CHECK(error.err == FI_ECONNRESET || error.err == FI_EFAULT);
            failed += error.op_context == (void *)3;
        }
        left -= got == 1 || got == -FI_EAVAIL;
    }
    IS(failed, 1);
    IS(waitpid(child, NULL, 0), child);
    /* From now on it is known to be dead; a receive from anybody goes on. */
    until = now() + 60;
    ssize_t result;
    while ((result = fi_tsend(ep, memory, 8, NULL, other, 1, (void *)1)) == -FI_EAGAIN) CHECK(now() < until);
    IS(result, -FI_ECONNRESET);
    IS(fi_write(ep, memory, 8, NULL, other, 0, KEY, (void *)1), -FI_ECONNRESET);
    IS(fi_cancel(&ep->fid, (void *)8), 0);
    puts("right");
    return 0;
}
