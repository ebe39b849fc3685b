/* Loaded before an MPI whose processes wait awake and have no setting to give their CPU away: where there are more
 * processes than CPUs, who looks for messages and finds none lets the others run. MPICH over UCX looks by epoll_wait
 * without waiting. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <sched.h>
#include <sys/epoll.h>

int epoll_wait(int fd, struct epoll_event *events, int count, int timeout_ms)
{
    static int (*next)(int, struct epoll_event *, int, int);
    if (!next)
        next = (int (*)(int, struct epoll_event *, int, int))dlsym(RTLD_NEXT, "epoll_wait");
    int found = next(fd, events, count, timeout_ms);
    if (found == 0 && timeout_ms == 0)
        sched_yield();
    return found;
}
