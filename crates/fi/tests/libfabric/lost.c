/* Another process that stops, goes on, and is killed while this one waits for it in every way; or, where that is asked for,
 * one that does not know the secret. */
#include "fabric.h"
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

enum { BYTES = 1 << 20, KEY = 9 };

static struct fid_fabric *fabric;
static struct fid_domain *domain;
static struct fid_av *av;
static struct fid_cq *cq;
static struct fid_ep *ep;
static struct fi_info *info;
static fi_addr_t other;
static char *memory;

static void open_all(int to, int from) {
    struct fi_info *wish = hints();
    struct fi_cq_attr cq_attr = {.format = FI_CQ_FORMAT_TAGGED, .wait_obj = FI_WAIT_FD};
    struct fi_av_attr av_attr = {.type = FI_AV_TABLE};
    struct fid_mr *mr;
    char name[64];
    size_t bytes = sizeof name;
    wish->caps = FI_TAGGED | FI_RMA | FI_ATOMIC | FI_DIRECTED_RECV;
    IS(fi_getinfo(FI_VERSION(1, 17), NULL, NULL, 0, wish, &info), 0);
    fi_freeinfo(wish);
    IS(fi_fabric(info->fabric_attr, &fabric, NULL), 0);
    IS(fi_domain(fabric, info, &domain, NULL), 0);
    IS(fi_av_open(domain, &av_attr, &av, NULL), 0);
    IS(fi_cq_open(domain, &cq_attr, &cq, NULL), 0);
    IS(fi_endpoint(domain, info, &ep, NULL), 0);
    IS(fi_ep_bind(ep, &av->fid, 0), 0);
    IS(fi_ep_bind(ep, &cq->fid, FI_RECV | FI_TRANSMIT), 0);
    IS(fi_enable(ep), 0);
    memory = calloc(2, BYTES);
    IS(fi_mr_reg(domain, memory, BYTES, FI_REMOTE_READ | FI_REMOTE_WRITE, 0, KEY, 0, &mr, NULL), 0);
    IS(fi_getname(&ep->fid, name, &bytes), 0);
    IS(write(to, name, sizeof name), sizeof name);
    IS(read(from, name, sizeof name), sizeof name);
    IS(fi_av_insert(av, name, 1, &other, 0, NULL), 1);
}

static void wait_for(int context) {
    struct fi_cq_tagged_entry entry;
    double until = now() + 60;
    while (fi_cq_sread(cq, &entry, 1, NULL, 1000) != 1) CHECK(now() < until);
    IS((intptr_t)entry.op_context, context);
}

static int state_of(pid_t child) {
    char name[64], line[512], state;
    snprintf(name, sizeof name, "/proc/%d/stat", child);
    FILE *file = fopen(name, "r");
    CHECK(file && fgets(line, sizeof line, file) && sscanf(line, "%*d %*s %c", &state) == 1);
    fclose(file);
    return state;
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
        nothing_reaches_it();
        CHECK(waitpid(child, &status, 0) == child && WIFEXITED(status) && !WEXITSTATUS(status));
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
