/* What libcovey-preload.so offers beyond POSIX. Programs find it with dlsym(RTLD_DEFAULT, NAME), so
 * that they run without it, too.
 *
 *     ssize_t (*writex)(int, const struct iovec *, size_t, const struct covey_xtvec *, size_t) =
 *         dlsym(RTLD_DEFAULT, "covey_writex");
 */
#ifndef COVEY_PRELOAD_H
#define COVEY_PRELOAD_H

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>
#include <sys/uio.h>

#ifdef __cplusplus
extern "C" {
#endif

/* A place in a file, in bytes. */
struct covey_xtvec {
    uint64_t offset;
    uint64_t length;
};

/* Reads places of a file into pieces of memory, in order: the form of readx and writex that the HPC
 * extensions of POSIX proposed. The lists need not have as many entries, but as many bytes (else
 * EINVAL). On Covey's files each server gets one request; on others there is one pread or pwrite for
 * each piece. Answers the bytes read, fewer only where a place lies beyond the end of the file; -1 and
 * errno when it failed. Overlapping places are read twice. */
ssize_t covey_readx(int fd, const struct iovec *iov, size_t iov_count,
                    const struct covey_xtvec *xtv, size_t xtv_count);

/* Writes pieces of memory to places of a file. All bytes, or -1 and errno: then any of them may have
 * been written. Which bytes stay where places overlap is not said. O_APPEND does not count. */
ssize_t covey_writex(int fd, const struct iovec *iov, size_t iov_count,
                     const struct covey_xtvec *xtv, size_t xtv_count);

/* Reads `bytes` bytes through a view of a file: a layout (docs/protocol/layout.md has the encoding) that is
 * repeated from byte `origin` of the file on, an extent apart. `from` counts the view's bytes. Each server gets
 * the layout, and one request. Answers the bytes read, fewer only at the end of the file; -1 and errno when it
 * failed: EBADF for a file that is not Covey's. */
ssize_t covey_read_view(int fd, const void *layout, size_t layout_bytes, uint64_t origin, uint64_t from,
                        void *memory, size_t bytes);

/* Writes as covey_read_view reads. All bytes, or -1 and errno: then any of them may have been written. */
ssize_t covey_write_view(int fd, const void *layout, size_t layout_bytes, uint64_t origin, uint64_t from,
                         const void *memory, size_t bytes);

/* 1 for a layout of `size` bytes and this extent that names its bytes in file order and none twice, not
 * even where it is repeated; else 0. */
int covey_is_view(const void *layout, size_t layout_bytes, uint64_t size, uint64_t extent);

/* Whether a descriptor is an open file of Covey's. */
int covey_is_ours(int fd);

#ifdef __cplusplus
}
#endif
#endif
