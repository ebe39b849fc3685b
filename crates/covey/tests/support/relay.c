/*
 * relay SOCKET: passes bytes between a socket and its own stdin and stdout. Whoever listens there sees this process,
 * and may end it, not the one that speaks.
 */
#include <poll.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

/* What one end has said goes to the other; 0 when there is no more. */
static int pass(int from, int to) {
    char bytes[65536];
    ssize_t count = read(from, bytes, sizeof bytes);
    for (ssize_t at = 0; at < count;) {
        ssize_t written = write(to, bytes + at, count - at);
        if (written <= 0) {
            return 0;
        }
        at += written;
    }
    return count > 0;
}

int main(int argc, char **argv) {
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    int end = socket(AF_UNIX, SOCK_STREAM, 0);
    struct pollfd ends[2] = {{.fd = 0, .events = POLLIN}, {.fd = end, .events = POLLIN}};
    if (argc != 2) {
        return 2;
    }
    strncpy(address.sun_path, argv[1], sizeof address.sun_path - 1);
    if (connect(end, (struct sockaddr *)&address, sizeof address) != 0) {
        return 1;
    }
    while (poll(ends, 2, -1) > 0) {
        if ((ends[0].revents && !pass(0, end)) || (ends[1].revents && !pass(end, 1))) {
            return 0;
        }
    }
    return 1;
}
