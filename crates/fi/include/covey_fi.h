/* covey_fi.h: operations with layouts on endpoints of the provider `covey` of libfabric.
 *
 * A layout says which bytes of memory are meant, in which order, in the words of MPI's derived types. It is made and
 * encoded with libcovey (covey.h), or by anything else that writes docs/protocol/layout.md. Scattered data leaves its place
 * without being packed, and is put where the other side's layout says.
 *
 *     struct covey_fi_ops *ops;
 *     fi_open_ops(&ep->fid, COVEY_FI_OPS, 0, (void **)&ops, NULL);         // -FI_ENOSYS: another provider's endpoint
 *     ops->commit(ep, encoded, encoded_bytes, 1, &columns);
 *     ops->tsend(ep, &(struct covey_fi_local){matrix, sizeof matrix, 0, columns}, peer, TAG, context, FI_COMPLETION);
 *
 * The operations are those of fi_tsendmsg, fi_trecvmsg, fi_writemsg and fi_readmsg otherwise, with the flags FI_COMPLETION
 * and, to send, FI_DELIVERY_COMPLETE: they return 0, -FI_EAGAIN or another negative
 * number of fi_errno.h, and end in the endpoint's queues. */
#ifndef COVEY_FI_H
#define COVEY_FI_H

#include <rdma/fi_endpoint.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#ifdef __cplusplus
extern "C" {
#endif

#define COVEY_FI_OPS "covey layouts 1"

/* No layout: all bytes, in a row. */
#define COVEY_FI_BYTES 0

/* Memory of ours: all that may be touched; where in it displacement 0 of the layout lies, in bytes; the layout. */
struct covey_fi_local {
    void *base;
    uint64_t bytes;
    uint64_t origin;
    uint64_t form;
};

/* Memory of a peer: its key; where displacement 0 lies, as fi_write has it; the layout, committed here. */
struct covey_fi_remote {
    fi_addr_t peer;
    uint64_t key;
    uint64_t at;
    uint64_t form;
};

struct covey_fi_ops {
    /* Of this table, in bytes: later versions may have more at its end. */
    size_t size;
    /* Makes `count` copies of an encoded layout ready for operations of the endpoint, on either side. -FI_EINVAL: the bytes
     * are no layout, or one that cannot be sent. */
    int (*commit)(struct fid_ep *ep, const void *layout, size_t bytes, uint64_t count, uint64_t *form);
    /* Forgets a layout that no operation under way uses. */
    int (*uncommit)(struct fid_ep *ep, uint64_t form);
    ssize_t (*tsend)(struct fid_ep *ep, const struct covey_fi_local *what, fi_addr_t to, uint64_t tag, void *context,
                     uint64_t flags);
    ssize_t (*trecv)(struct fid_ep *ep, const struct covey_fi_local *into, fi_addr_t from, uint64_t tag, uint64_t ignore,
                     void *context, uint64_t flags);
    /* As many bytes as both layouts have; it is done when they are there. */
    ssize_t (*write)(struct fid_ep *ep, const struct covey_fi_local *from, const struct covey_fi_remote *to, void *context,
                     uint64_t flags);
    ssize_t (*read)(struct fid_ep *ep, const struct covey_fi_local *into, const struct covey_fi_remote *from, void *context,
                    uint64_t flags);
};

#ifdef __cplusplus
}
#endif
#endif
