/*
 * rangelock: byte-range locks as another process takes them; the standard library has none.
 *
 *   rangelock try FILE START LENGTH      prints `locked` or `busy`; holds until stdin ends
 *   rangelock count FILE START TIMES     adds 1 to the decimal number at START, TIMES times, each
 *                                        under a lock that it waits for
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { DIGITS = 12 };

static int lock(int fd, int command, short type, off_t start, off_t length) {
    struct flock range = {.l_type = type, .l_whence = SEEK_SET, .l_start = start, .l_len = length};
    return fcntl(fd, command, &range);
}

static int count(int fd, off_t start, int times) {
    for (int i = 0; i < times; i++) {
        char text[DIGITS + 1] = "";
        if (lock(fd, F_SETLKW, F_WRLCK, start, DIGITS) != 0
            || pread(fd, text, DIGITS, start) != DIGITS) {
            return perror("lock and read"), 1;
        }
        snprintf(text, sizeof text, "%0*ld", DIGITS, atol(text) + 1);
        if (pwrite(fd, text, DIGITS, start) != DIGITS
            || lock(fd, F_SETLK, F_UNLCK, start, DIGITS) != 0) {
            return perror("write and unlock"), 1;
        }
    }
    return 0;
}

static int try_once(int fd, off_t start, off_t length) {
    if (lock(fd, F_SETLK, F_WRLCK, start, length) == 0) {
        puts("locked");
    } else if (errno == EAGAIN || errno == EACCES) {
        puts("busy");
    } else {
        return perror("lock"), 1;
    }
    fflush(stdout);
    while (getchar() != EOF) {
    }
    return 0;
}

int main(int argc, char **argv) {
    if (argc != 5) {
        return 2;
    }
    int fd = open(argv[2], O_RDWR);
    if (fd < 0) {
        return perror(argv[2]), 1;
    }
    off_t start = atoll(argv[3]);
    return strcmp(argv[1], "count") == 0 ? count(fd, start, atoi(argv[4]))
                                         : try_once(fd, start, atoll(argv[4]));
}
