/* A handler that uses a file while its thread is in the middle of calls on it.
 *
 *   handlers DIRECTORY
 *
 * The test runs it on a local directory and on one of Covey's: both must say the same. */
#define _GNU_SOURCE
#include <aio.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

static int log_fd;
static struct aiocb request;
static volatile sig_atomic_t written, failed, period;

/* The next signal comes this long after the handler of the last: what it met goes on, however slow the machine. */
static void every(int microseconds)
{
    struct itimerval timer = { { 0, 0 }, { 0, microseconds } };
    period = microseconds;
    setitimer(ITIMER_REAL, &timer, NULL);
}

static void note(int signal)
{
    int before = errno;
    struct stat is;
    (void)signal;
    int asked = aio_error(&request);
    if (asked != 0 && asked != EINPROGRESS)
        failed = EBADMSG;
    if (write(log_fd, "x", 1) == 1 && fstat(log_fd, &is) == 0 && stat("log", &is) == 0)
        written++;
    else
        failed = errno;
    if (period)
        every(period);
    errno = before;
}

int main(int count, char **arguments)
{
    static char block[4096], other[64];
    struct stat is;
    /* The C library's own aio_error holds a lock meanwhile, and so may not be met by a handler. */
    int ours = getenv("LD_PRELOAD") != NULL;
    if (count < 2 || chdir(arguments[1]))
        return 2;
    log_fd = open("log", O_CREAT | O_TRUNC | O_RDWR | O_APPEND, 0644);
    int fd = open("data", O_CREAT | O_TRUNC | O_RDWR, 0644), wrong = 0;
    struct sigaction action = { .sa_handler = note, .sa_flags = SA_RESTART };
    sigaction(SIGALRM, &action, NULL);
    request.aio_fildes = fd;
    request.aio_buf = other;
    request.aio_nbytes = sizeof other;
    wrong |= aio_read(&request) != 0;
    every(3000);
    /* On until it has come often, in whatever call it met. */
    for (int turn = 0; (written < 100 && !failed) || turn < 100; turn++) {
        wrong |= pwrite(fd, block, sizeof block, turn % 50 * sizeof block) != sizeof block;
        wrong |= pread(fd, block, sizeof block, turn % 50 * sizeof block) != sizeof block;
        wrong |= write(log_fd, "y", 1) != 1;
        /* Calls that ask for little, and so are met in the middle of that. */
        for (int again = 0; again < 100; again++)
            wrong |= (ours && aio_error(&request) == EINVAL) || stat("data", &is) != 0;
    }
    every(0);
    printf("handler: %s\n", failed ? strerror(failed) : "served");
    printf("calls: %s\n", wrong ? "failed" : "right");

    /* While it waits for a lock a handler runs at once, and is served. */
    int ready[2];
    struct flock lock = { .l_type = F_WRLCK, .l_whence = SEEK_SET };
    if (pipe(ready))
        return 3;
    pid_t holder = fork();
    if (holder == 0) {
        fcntl(open("data", O_RDWR), F_SETLK, &lock);
        write(ready[1], "r", 1);
        pause();
        _exit(0);
    }
    char byte;
    read(ready[0], &byte, 1);
    int before = written;
    action.sa_flags = 0;
    sigaction(SIGALRM, &action, NULL);
    every(100000);
    int got = fcntl(fd, F_SETLKW, &lock);
    printf("lock: %s\n", got == 0 ? "had" : strerror(errno));
    every(0);
    printf("handler during the wait: %s\n", failed ? strerror(failed) : written > before ? "served" : "late");
    kill(holder, SIGKILL);
    waitpid(holder, NULL, 0);

    /* A signal without a handler ends the process, in whatever call. */
    signal(SIGALRM, SIG_DFL);
    fflush(stdout);
    pid_t child = fork();
    if (child == 0) {
        alarm(1);
        for (;;)
            pread(fd, block, sizeof block, 0);
    }
    int status;
    waitpid(child, &status, 0);
    printf("default: %s\n", WIFSIGNALED(status) && WTERMSIG(status) == SIGALRM ? "ended" : "went on");
    return 0;
}
