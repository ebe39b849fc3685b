/* Writes and reads scattered pieces as lists, and checks every byte: lists FILE. */
#define _GNU_SOURCE
#include <aio.h>
#include <dlfcn.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "covey-preload.h"

enum { COUNT = 1000, STRIDE = 4099, LENGTH = 1000 };

static char byte_at(int seed, int piece, int at) { return (char)(seed + piece * 7 + at * 13); }

static char memory[COUNT * LENGTH];

static void fill(int seed)
{
    for (int i = 0; i < COUNT; i++)
        for (int j = 0; j < LENGTH; j++)
            memory[i * LENGTH + j] = byte_at(seed, i, j);
}

static void check(int seed, const char *what)
{
    for (int i = 0; i < COUNT; i++)
        for (int j = 0; j < LENGTH; j++)
            if (memory[i * LENGTH + j] != byte_at(seed, i, j)) {
                printf("%s: piece %d byte %d is wrong\n", what, i, j);
                exit(1);
            }
}

#define MUST(call) ((call) ? (void)0 : (perror(#call), exit(1)))

int main(int argc, char **argv)
{
    ssize_t (*readx)(int, const struct iovec *, size_t, const struct covey_xtvec *, size_t) =
        dlsym(RTLD_DEFAULT, "covey_readx");
    ssize_t (*writex)(int, const struct iovec *, size_t, const struct covey_xtvec *, size_t) =
        dlsym(RTLD_DEFAULT, "covey_writex");
    MUST(argc == 2 && readx && writex);
    int fd = open(argv[1], O_CREAT | O_TRUNC | O_RDWR, 0644);
    MUST(fd >= 0);
    struct covey_xtvec places[COUNT];
    struct iovec all = {memory, sizeof memory};
    for (int i = 0; i < COUNT; i++)
        places[i] = (struct covey_xtvec){(uint64_t)i * STRIDE, LENGTH};
    fill(1);
    MUST(writex(fd, &all, 1, places, COUNT) == sizeof memory);
    memset(memory, 0, sizeof memory);
    MUST(readx(fd, &all, 1, places, COUNT) == sizeof memory);
    check(1, "readx");
    /* The same bytes as one plain read sees them. */
    char *whole = malloc(COUNT * STRIDE);
    MUST(pread(fd, whole, COUNT * STRIDE, 0) == (COUNT - 1) * STRIDE + LENGTH);
    for (int i = 0; i < COUNT; i++)
        MUST(memcmp(whole + i * STRIDE, memory + i * LENGTH, LENGTH) == 0);
    for (int i = 0; i < COUNT - 1; i++)
        for (int j = LENGTH; j < STRIDE; j++)
            MUST(whole[i * STRIDE + j] == 0);
    static struct aiocb blocks[COUNT], *list[COUNT];
    for (int i = 0; i < COUNT; i++) {
        blocks[i] = (struct aiocb){.aio_fildes = fd, .aio_buf = memory + i * LENGTH, .aio_nbytes = LENGTH,
                                   .aio_offset = (off_t)i * STRIDE, .aio_lio_opcode = LIO_WRITE,
                                   .aio_sigevent = {.sigev_notify = SIGEV_NONE}};
        list[i] = &blocks[i];
    }
    fill(2);
    MUST(lio_listio(LIO_WAIT, list, COUNT, NULL) == 0);
    for (int i = 0; i < COUNT; i++)
        MUST(aio_return(&blocks[i]) == LENGTH);
    memset(memory, 0, sizeof memory);
    for (int i = 0; i < COUNT; i++) {
        blocks[i].aio_lio_opcode = LIO_READ;
        MUST(aio_read(&blocks[i]) == 0);
    }
    for (int i = 0; i < COUNT; i++) {
        MUST(aio_error(&blocks[i]) == 0);
        MUST(aio_return(&blocks[i]) == LENGTH);
    }
    check(2, "aio_read");
    MUST(close(fd) == 0);
    puts("right");
    return 0;
}
