/*
 * CellFS: what the program of a worker calls.
 *
 * A program is a shared object, built with a plain compiler, and started by the host:
 *
 *     cc -O2 -shared -fPIC -o prog.so prog.c
 *     covey cell run -s 8 prog.so ARGS
 *
 * Each worker calls the program's `cormain` in its first coroutine. All functions here switch coroutines where they
 * wait, and nothing else does, so that no locks are needed. A function that fails returns -1, or a null pointer, and
 * sp_rerror says why.
 *
 * Paths: #r/NAME a region of memory, #U/PATH a file of the host, #R/PATH the same without a trace on the disk, #p/NAME
 * a pipe, #l/log the log; any other path is one of the node's namespace: /fs/..., /xcpu/..., /n/NODE/...
 */
#ifndef COVEY_CELL_H
#define COVEY_CELL_H

#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#ifdef __cplusplus
extern "C" {
#endif

#ifndef COVEY_CELL_NO_SHORT_NAMES
typedef uint8_t u8;
typedef uint16_t u16;
typedef uint32_t u32;
typedef uint64_t u64;
typedef int64_t s64;
#endif

/* Modes of spc_open and spc_create, as Plan 9 numbers them. */
enum { Oread = 0, Owrite = 1, Ordwr = 2, Otrunc = 0x10, Oany = 0x100 };

/* The program's own entry: void cormain(void), or with a worker's number, its arguments and its environment:
 * void cormain(u64 spuid, char **argv, char **env). It is not declared here, so that either may be written. */

/* Opens a file; a descriptor. With one argument: for reading and writing, made where it is not there, or else for
 * reading only. */
int spc_open(const char *path, int mode);
/* Makes a file, or empties one, and opens it. */
int spc_create(const char *path, unsigned perm, int mode);
int spc_close(int fd);
int spc_remove(const char *path);
/* How much was read or written; 0 at the end of the file. */
int spc_read(int fd, void *data, unsigned count);
int spc_write(int fd, const void *data, unsigned count);
int spc_pread(int fd, void *data, unsigned count, uint64_t offset);
int spc_pwrite(int fd, const void *data, unsigned count, uint64_t offset);
/* Moves a descriptor: from the beginning (0), from where it is (1), from the end (2). Where it is then. */
int64_t spc_seek(int fd, int64_t offset, int type);
/* Writes text to the log. */
int spc_vlog(const char *format, va_list arguments);
static inline int spc_log(const char *format, ...) __attribute__((format(printf, 1, 2), unused));

/* Makes a coroutine, which runs when its turn comes: its number. The stack is the coroutine's until it ends. */
int mkcor(void (*function)(void *), void *argument, void *stack, size_t bytes);
/* Lets the other coroutines run. */
int covey_cell_yield(void);
static inline void yield(void) __attribute__((unused));
/* Ends the coroutine. */
void terminate(void) __attribute__((noreturn));
/* The coroutine's number. */
int corid(void);
/* 0 while the coroutine is within its stack. */
int checkstack(void);

/* Sets the coroutine's last error; a null text clears it. */
void sp_werror(const char *text, int number);
/* The coroutine's last error in words, until the next call, and its number: see errno(3). */
void sp_rerror(char **text, int *number);
/* Whether there was an error since the last sp_werror(0, 0). */
int sp_haserror(void);

/* Memory of the local store. */
void *spc_malloc(size_t bytes);
void *spc_calloc(size_t count, size_t bytes);
void *spc_realloc(void *memory, size_t bytes);
void spc_free(void *memory);

static inline void yield(void)
{
    covey_cell_yield();
}

static inline int spc_log(const char *format, ...)
{
    va_list arguments;
    int count;

    va_start(arguments, format);
    count = spc_vlog(format, arguments);
    va_end(arguments);
    return count;
}

#ifdef __cplusplus
}
#else
/* spc_open(path): see above. */
#define COVEY_CELL_OPEN(path, mode, ...) spc_open(path, mode)
#define spc_open(...) COVEY_CELL_OPEN(__VA_ARGS__, Oany, Oany)

/* What a program allocates is counted. */
#ifndef COVEY_CELL_PLAIN_MALLOC
#define malloc(bytes) spc_malloc(bytes)
#define calloc(count, bytes) spc_calloc(count, bytes)
#define realloc(memory, bytes) spc_realloc(memory, bytes)
#define free(memory) spc_free(memory)
#endif
#endif

#endif
