/* For User-Mode Linux on processors with more state than it knows (AMX): it hands the kernel the first part of
 * a process's extended registers, and the kernel wants all of them. The rest is left as it is.
 * Used as LD_PRELOAD of linux.uml. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <elf.h>
#include <string.h>
#include <sys/ptrace.h>
#include <sys/uio.h>

long ptrace(enum __ptrace_request request, ...)
{
    static long (*next)(enum __ptrace_request, ...);
    __builtin_va_list rest;
    __builtin_va_start(rest, request);
    long pid = __builtin_va_arg(rest, long);
    void *address = __builtin_va_arg(rest, void *);
    void *data = __builtin_va_arg(rest, void *);
    __builtin_va_end(rest);
    if (!next)
        next = (long (*)(enum __ptrace_request, ...))dlsym(RTLD_NEXT, "ptrace");
    if (request == PTRACE_SETREGSET && address == (void *)NT_X86_XSTATE) {
        static __thread char state[65536];
        struct iovec *given = data, whole = { state, sizeof state };
        if (next(PTRACE_GETREGSET, pid, address, &whole) == 0 && given->iov_len < whole.iov_len) {
            memcpy(state, given->iov_base, given->iov_len);
            return next(request, pid, address, &whole);
        }
    }
    return next(request, pid, address, data);
}
