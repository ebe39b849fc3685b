/* Blocks to and fro through MPI: rank 0 asks, rank 1 answers.
 *
 * First argument: `poll` waits as MPI does, in MPI_Recv, awake. `block` waits in the kernel: between two looks at
 * whether a message is complete it sleeps until one of this process's sockets has something. MPI offers no such wait; but
 * only what waits alike can be compared with TCP and PVM, and on a machine with few CPUs those who wait awake
 * keep the network itself from running. */
#define _GNU_SOURCE
#include <mpi.h>
#include <poll.h>
#include <sys/stat.h>

#include "blocks.h"

enum { SOCKETS_MAX = 256, DESCRIPTORS_MAX = 1024, SLEEP_MS = 1 };

static int peer;
static int is_blocking;
static struct pollfd sockets[SOCKETS_MAX];
static int socket_count;

static void find_sockets(void)
{
    socket_count = 0;
    for (int fd = 0; fd < DESCRIPTORS_MAX && socket_count < SOCKETS_MAX; fd++) {
        struct stat what;
        if (fstat(fd, &what) == 0 && S_ISSOCK(what.st_mode))
            sockets[socket_count++].fd = fd;
    }
}

/* Sleeps until a socket can be read, or one that was full can be written again. */
static void sleep_until_ready(void)
{
    static int sleeps;
    if (sleeps++ % 4096 == 0)
        find_sockets();
    for (int i = 0; i < socket_count; i++)
        sockets[i].events = POLLOUT;
    poll(sockets, socket_count, 0);
    for (int i = 0; i < socket_count; i++)
        sockets[i].events = sockets[i].revents & (POLLOUT | POLLHUP | POLLERR | POLLNVAL) ? POLLIN : POLLIN | POLLOUT;
    if (poll(sockets, socket_count, SLEEP_MS) == 0)
        sleeps = 0; /* Perhaps it waits for a connection that was made only now. */
}

static void finish(MPI_Request *request)
{
    int is_done = 0;
    for (;;) {
        MPI_Test(request, &is_done, MPI_STATUS_IGNORE);
        if (is_done)
            return;
        sleep_until_ready();
    }
}

static void give(const void *block, long bytes)
{
    if (!is_blocking) {
        MPI_Send(block, (int)bytes, MPI_BYTE, peer, 0, MPI_COMM_WORLD);
        return;
    }
    MPI_Request request;
    MPI_Isend(block, (int)bytes, MPI_BYTE, peer, 0, MPI_COMM_WORLD, &request);
    finish(&request);
}

static void take(void *block, long bytes)
{
    if (!is_blocking) {
        MPI_Recv(block, (int)bytes, MPI_BYTE, peer, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        return;
    }
    MPI_Request request;
    MPI_Irecv(block, (int)bytes, MPI_BYTE, peer, 0, MPI_COMM_WORLD, &request);
    finish(&request);
}

int main(int count, char **words)
{
    int rank, ranks;
    MPI_Init(&count, &words);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    if (ranks != 2 || count < 2) {
        fprintf(stderr, "blocks: %d ranks instead of 2\n", ranks);
        MPI_Abort(MPI_COMM_WORLD, 3);
    }
    peer = 1 - rank;
    is_blocking = strcmp(words[1], "block") == 0;
    if (rank == 0)
        ask(count - 2, words + 2);
    else
        answer(count - 2, words + 2);
    MPI_Finalize();
    return 0;
}
