/* What the programs of these tests share. */
#include <rdma/fabric.h>
#include <rdma/fi_atomic.h>
#include <rdma/fi_cm.h>
#include <rdma/fi_domain.h>
#include <rdma/fi_endpoint.h>
#include <rdma/fi_eq.h>
#include <rdma/fi_errno.h>
#include <rdma/fi_rma.h>
#include <rdma/fi_tagged.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define CHECK(is_so)                                                                                                   \
    do {                                                                                                               \
        if (!(is_so)) {                                                                                                \
            fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, #is_so);                                                \
            exit(1);                                                                                                   \
        }                                                                                                              \
    } while (0)

#define IS(call, value)                                                                                                \
    do {                                                                                                               \
        long long is = (long long)(call), wanted = (long long)(value);                                                 \
        if (is != wanted) {                                                                                            \
            fprintf(stderr, "%s:%d: %s is %lld, not %lld\n", __FILE__, __LINE__, #call, is, wanted);                   \
            exit(1);                                                                                                   \
        }                                                                                                              \
    } while (0)

static inline struct fi_info *hints(void) {
    struct fi_info *info = fi_allocinfo();
    CHECK(info);
    info->fabric_attr->prov_name = strdup("covey");
    info->mode = FI_CONTEXT | FI_CONTEXT2;
    return info;
}

static inline double now(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return time.tv_sec + time.tv_nsec / 1e9;
}
