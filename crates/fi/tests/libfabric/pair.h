/* What programs with a second process share: an endpoint that knows the other one, and memory that the other one may reach. */
#include "fabric.h"
#include <sys/types.h>
#include <unistd.h>

enum { KEY = 9 };

static struct fid_fabric *fabric;
static struct fid_domain *domain;
static struct fid_av *av;
static struct fid_cq *cq;
static struct fid_ep *ep;
static struct fid_mr *mr;
static struct fi_info *info;
static fi_addr_t other;
static char *memory;

/* Registers the first bytes of the memory. */
static int registers(size_t bytes) {
    return fi_mr_reg(domain, memory, bytes, FI_REMOTE_READ | FI_REMOTE_WRITE, 0, KEY, 0, &mr, NULL);
}

/* Opens what is wished for, with so much memory of which the first bytes are registered, and tells the other one its name. */
static void open_pair(int to, int from, struct fi_info *wish, struct fi_cq_attr cq_attr, size_t room, size_t bytes) {
    struct fi_av_attr av_attr = {.type = FI_AV_TABLE};
    char name[64];
    size_t name_bytes = sizeof name;
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
    memory = calloc(1, room);
    IS(registers(bytes), 0);
    IS(fi_getname(&ep->fid, name, &name_bytes), 0);
    IS(write(to, name, sizeof name), sizeof name);
    IS(read(from, name, sizeof name), sizeof name);
    IS(fi_av_insert(av, name, 1, &other, 0, NULL), 1);
}

/* As the kernel calls it: T is stopped. */
static int state_of(pid_t child) {
    char name[64], line[512], state;
    snprintf(name, sizeof name, "/proc/%d/stat", child);
    FILE *file = fopen(name, "r");
    CHECK(file && fgets(line, sizeof line, file) && sscanf(line, "%*d %*s %c", &state) == 1);
    fclose(file);
    return state;
}
