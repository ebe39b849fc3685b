/* The last rank is killed while the others wait for it, in the way that is named. Whoever finds out says "error", and none
 * of them waits for ever: the launcher ends those that the library does not tell. */
#include "ranks.h"
#include <signal.h>
#include <unistd.h>

int main(int argc, char **argv) {
    static char bytes[1 << 20];
    int error = 0, sum;
    begin(&argc, &argv);
    const char *how = argc > 1 ? argv[1] : "";
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    for (int round = 0; round < 10; round++)
        MPI_Alltoall(bytes, 1000, MPI_CHAR, bytes + sizeof bytes / 2, 1000, MPI_CHAR, MPI_COMM_WORLD);
    if (rank == size - 1) {
        usleep(50000);
        kill(getpid(), SIGKILL);
    }
    if (!strcmp(how, "receive"))
        error = MPI_Recv(bytes, 10, MPI_CHAR, size - 1, 5, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    else if (!strcmp(how, "send"))
        while (!error) error = MPI_Send(bytes, sizeof bytes, MPI_CHAR, size - 1, 5, MPI_COMM_WORLD);
    else if (!strcmp(how, "any"))
        error = MPI_Recv(bytes, 10, MPI_CHAR, MPI_ANY_SOURCE, 5, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    else
        while (!error) error = MPI_Allreduce(&rank, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    printf("%s\n", error ? "error" : "a dead rank has answered");
    fflush(stdout);
    _exit(3);
}
