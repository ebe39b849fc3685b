/* Every call that libcovey-preload.so stands before, with what it answers, on stdout.
 *
 *   calls DIRECTORY
 *
 * The test runs it on a local directory and on one of Covey's: both must say the same. What may differ
 * (inode numbers, devices, times that pass) is not said. */
#define _GNU_SOURCE
#include <aio.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/sendfile.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/time.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <sys/xattr.h>
#include <unistd.h>
#include <utime.h>

static char buf[1 << 17];
static FILE *out;

static void say_(int line, const char *what, long long value)
{
    int error = errno;
    if (value == -1)
        fprintf(out, "%d %s = -1 %s\n", line, what, strerrorname_np(error));
    else
        fprintf(out, "%d %s = %lld\n", line, what, value);
    fflush(out);
}
#define SAY(call) (errno = 0, say_(__LINE__, #call, (long long)(call)))
#define TEXT(text) (fprintf(out, "%d %s: %s\n", __LINE__, #text, (text) ? (text) : strerrorname_np(errno)), fflush(out))

static int fill(const char *path, const char *text)
{
    int fd = open(path, O_CREAT | O_TRUNC | O_WRONLY, 0644);
    if (fd < 0)
        return -1;
    ssize_t done = write(fd, text, strlen(text));
    return close(fd) < 0 ? -1 : (int)done;
}

static const char *content(const char *path)
{
    int fd = open(path, O_RDONLY);
    if (fd < 0)
        return NULL;
    ssize_t n = read(fd, buf, sizeof buf - 1);
    close(fd);
    buf[n > 0 ? n : 0] = 0;
    return buf;
}

static void opening(void)
{
    int fd;
    SAY(open("none", O_RDONLY));
    SAY(open("", O_RDONLY));
    SAY(open("a/b", O_CREAT | O_WRONLY, 0644));
    SAY(fd = open("f", O_CREAT | O_EXCL | O_RDWR, 0644));
    SAY(open("f", O_CREAT | O_EXCL | O_RDWR, 0644));
    SAY(open("f", O_DIRECTORY));
    SAY(open("f/x", O_RDONLY));
    SAY(open("f/", O_RDONLY));
    SAY(open(".", O_WRONLY));
    SAY(open("new/", O_CREAT | O_WRONLY, 0644));
    SAY(read(fd, buf, 10));
    SAY(write(fd, "hello world", 11));
    SAY(lseek(fd, 0, SEEK_CUR));
    SAY(lseek(fd, 0, SEEK_SET));
    SAY(read(fd, buf, 5));
    SAY(lseek(fd, -3, SEEK_END));
    SAY(lseek(fd, -30, SEEK_END));
    SAY(lseek(fd, 0, 99));
    SAY(read(fd, buf, 50));
    SAY(read(fd, buf, 50));
    SAY(pread(fd, buf, 3, 100));
    SAY(pread(fd, buf, 3, -1));
    SAY(pwrite(fd, "XY", 2, 20));
    SAY(pread(fd, buf, 50, 0));
    SAY(memcmp(buf, "hello world\0\0\0\0\0\0\0\0\0XY", 22));
    SAY(lseek(fd, 0, SEEK_CUR));
    SAY(fcntl(fd, F_GETFL) & (O_ACCMODE | O_APPEND));
    SAY(fcntl(fd, F_SETFL, O_APPEND));
    SAY(fcntl(fd, F_GETFL) & (O_ACCMODE | O_APPEND));
    SAY(write(fd, "end", 3));
    SAY(lseek(fd, 0, SEEK_CUR));
    SAY(fcntl(fd, F_SETFL, 0));
    SAY(fcntl(fd, F_GETFD));
    SAY(fcntl(fd, F_SETFD, FD_CLOEXEC));
    SAY(fcntl(fd, F_GETFD));
    SAY(isatty(fd));
    SAY(close(fd));
    SAY(close(fd));
    SAY(read(fd, buf, 1));
    SAY(fd = open("f", O_RDONLY));
    SAY(write(fd, "x", 1));
    SAY(ftruncate(fd, 3));
    SAY(close(fd));
    SAY(fd = open("f", O_WRONLY | O_APPEND));
    SAY(read(fd, buf, 1));
    SAY(pwrite(fd, "!", 1, 0));
    SAY(close(fd));
    SAY(truncate("f", 11));
    TEXT(content("f"));
    SAY(truncate("none", 1));
    SAY(truncate(".", 1));
    SAY(fd = creat("c", 0600));
    SAY(close(fd));
    SAY(fd = open("c", O_PATH));
    SAY(read(fd, buf, 1));
    SAY(close(fd));
    SAY(fd = openat(AT_FDCWD, "c", O_RDWR));
    SAY(posix_fallocate(fd, 0, 5000));
    SAY(fallocate(fd, 0, 0, 6000));
    SAY(fallocate(fd, 0, -1, 6000));
    SAY(lseek(fd, 0, SEEK_END));
    SAY(lseek(fd, 7000, SEEK_DATA));
    SAY(posix_fadvise(fd, 0, 0, POSIX_FADV_SEQUENTIAL));
    SAY(fsync(fd));
    SAY(fdatasync(fd));
    SAY(ftruncate(fd, -1));
    SAY(ftruncate(fd, 0));
    SAY(close(fd));
}

static void vectors(void)
{
    struct iovec three[3] = {{"one", 3}, {"", 0}, {"three", 5}};
    char left[4] = "", right[8] = "";
    struct iovec two[2] = {{left, 3}, {right, 5}};
    int fd;
    SAY(fd = open("v", O_CREAT | O_RDWR | O_TRUNC, 0644));
    SAY(writev(fd, three, 3));
    SAY(pwritev(fd, three, 3, 100));
    SAY(pwritev2(fd, three, 3, 200, RWF_DSYNC));
    SAY(pwritev2(fd, three, 3, -1, 0));
    SAY(lseek(fd, 0, SEEK_CUR));
    SAY(lseek(fd, 0, SEEK_SET));
    SAY(readv(fd, two, 2));
    TEXT(left);
    TEXT(right);
    memset(left, 0, sizeof left);
    SAY(preadv(fd, two, 2, 100));
    TEXT(left);
    SAY(preadv2(fd, two, 2, 204, 0));
    SAY(writev(fd, three, -1));
    SAY(preadv(fd, two, 2, 206));
    SAY(close(fd));
}

static void many_bytes(void)
{
    size_t size = 3 << 20;
    unsigned char *big = malloc(size), *back = malloc(size);
    for (size_t i = 0; i < size; i++)
        big[i] = (unsigned char)(i * 2654435761u >> 13);
    int fd = open("big", O_CREAT | O_RDWR, 0644);
    SAY(write(fd, big, size));
    SAY(pread(fd, back, size, 0));
    SAY(memcmp(big, back, size));
    SAY(pread(fd, back, 100000, 65535));
    SAY(memcmp(big + 65535, back, 100000));
    int to = open("copy", O_CREAT | O_RDWR, 0644);
    off_t from = 1000;
    SAY(copy_file_range(fd, &from, to, NULL, 500000, 0));
    SAY(from);
    SAY(lseek(to, 0, SEEK_CUR));
    from = 0;
    SAY(sendfile(to, fd, &from, 3000));
    SAY(from);
    SAY(lseek(to, 0, SEEK_END));
    SAY(pread(to, back, 503000, 0));
    SAY(memcmp(back, big + 1000, 500000) || memcmp(back + 500000, big, 3000));
    char *map = mmap(NULL, 8192, PROT_READ | PROT_WRITE, MAP_PRIVATE, fd, 4096);
    SAY(memcmp(map, big + 4096, 8192));
    map[0] = 1;
    SAY(munmap(map, 8192));
    SAY(close(fd) | close(to));
    free(big);
    free(back);
}

static void show(const char *name, const struct stat *st)
{
    fprintf(out, "%s: mode %o nlink %ld size %lld rdev %ld mtime %ld.%09ld\n", name, st->st_mode,
            S_ISDIR(st->st_mode) ? 0L : (long)st->st_nlink,
            S_ISDIR(st->st_mode) ? 0LL : (long long)st->st_size, (long)st->st_rdev,
            S_ISREG(st->st_mode) && st->st_mtime < 2000000 ? (long)st->st_mtime : 0,
            S_ISREG(st->st_mode) && st->st_mtime > 0 && st->st_mtime < 2000000 ? st->st_mtim.tv_nsec : 0);
}

static void names(void)
{
    struct stat st;
    struct statx stx;
    struct timespec times[2] = {{1000, 5}, {1234567, 123456789}};
    umask(027);
    SAY(mkdir("d", 0777));
    SAY(mkdir("d", 0777));
    SAY(mkdir("d/e/f", 0777));
    SAY(mkdir("d/e/", 0755));
    SAY(rmdir("d"));
    SAY(rmdir("d/e/."));
    SAY(rmdir("none"));
    SAY(fill("d/x", "xx"));
    SAY(rmdir("d/x"));
    SAY(unlink("d/e"));
    SAY(unlink("none"));
    SAY(unlink("d/x/"));
    SAY(link("d/x", "d/y"));
    SAY(link("d/x", "d/y"));
    SAY(link("d", "d2"));
    SAY(symlink("d/x", "s"));
    SAY(symlink("d/x", "s"));
    SAY(symlink("loop", "loop"));
    SAY(symlink("nowhere", "dangling"));
    SAY(symlink("", "empty"));
    SAY(open("loop", O_RDONLY));
    SAY(open("s", O_RDONLY | O_NOFOLLOW));
    SAY(open("dangling", O_CREAT | O_EXCL | O_WRONLY, 0644));
    TEXT(content("s"));
    SAY(fill("dangling", "through"));
    TEXT(content("nowhere"));
    memset(buf, 0, 20);
    SAY(readlink("s", buf, 2));
    TEXT(buf);
    SAY(readlink("s", buf, 100));
    SAY(readlink("d", buf, 100));
    SAY(stat("none", &st));
    SAY(stat("loop", &st));
    SAY(utimensat(AT_FDCWD, "d/x", times, 0));
    SAY(stat("s", &st)), show("s", &st);
    SAY(lstat("s", &st)), st.st_mtime = 0, show("s", &st);
    SAY(stat("d", &st)), show("d", &st);
    SAY(stat("d/x/", &st));
    SAY(fstatat(AT_FDCWD, "d/y", &st, AT_SYMLINK_NOFOLLOW)), show("d/y", &st);
    SAY(statx(AT_FDCWD, "d/x", 0, STATX_ALL, &stx));
    fprintf(out, "statx %o %llu %u\n", stx.stx_mode, (unsigned long long)stx.stx_size, stx.stx_nlink);
    SAY(chmod("d/x", 0604));
    SAY(stat("d/x", &st)), show("d/x", &st);
    SAY(fchmodat(AT_FDCWD, "d/x", 0640, 0));
    SAY(chown("d/x", -1, -1));
    SAY(chmod("none", 0600));
    SAY(access("d/x", R_OK | W_OK));
    SAY(access("d/x", X_OK));
    SAY(access("none", F_OK));
    SAY(faccessat(AT_FDCWD, "d", X_OK, AT_EACCESS));
    struct utimbuf old = {77, 88};
    SAY(utime("d/x", &old));
    SAY(stat("d/x", &st)), show("d/x", &st);
    struct timeval older[2] = {{5, 6}, {7, 8}};
    SAY(utimes("d/x", older));
    SAY(stat("d/x", &st)), show("d/x", &st);
    SAY(rename("d/x", "d/z"));
    SAY(rename("d/x", "d/z"));
    SAY(rename("d/z", "d/e"));
    SAY(rename("d/e", "d/z"));
    SAY(rename("d", "d/e/d"));
    SAY(renameat2(AT_FDCWD, "d/z", AT_FDCWD, "d/y", RENAME_NOREPLACE));
    SAY(fill("other", "other"));
    SAY(renameat2(AT_FDCWD, "d/z", AT_FDCWD, "other", RENAME_EXCHANGE));
    TEXT(content("other"));
    TEXT(content("d/z"));
    SAY(renameat2(AT_FDCWD, "d/z", AT_FDCWD, "other", 64));
    SAY(mkfifo("pipe", 0600));
    SAY(lstat("pipe", &st)), st.st_mtime = 0, show("pipe", &st);
    SAY(mknod("node", S_IFREG | 0600, 0));
    SAY(remove("node"));
    SAY(remove("pipe"));
    SAY(mkdir("gone", 0700));
    SAY(remove("gone"));
    char long_name[300];
    memset(long_name, 'n', sizeof long_name - 1);
    long_name[sizeof long_name - 1] = 0;
    SAY(open(long_name, O_CREAT | O_WRONLY, 0600));
    SAY(unlink(long_name));
    struct statvfs space;
    SAY(statvfs(".", &space));
    SAY(statvfs("none", &space));
    umask(022);
}

static void by_directory(void)
{
    struct stat st;
    int dir;
    SAY(dir = open("d", O_RDONLY | O_DIRECTORY));
    SAY(read(dir, buf, 1));
    SAY(mkdirat(dir, "sub", 0755));
    int fd;
    SAY(fd = openat(dir, "sub/file", O_CREAT | O_RDWR, 0644));
    SAY(write(fd, "12345", 5));
    SAY(fstat(fd, &st)), st.st_mtime = 0, show("file", &st);
    SAY(fchmod(fd, 0600));
    SAY(fchown(fd, -1, -1));
    struct timespec times[2] = {{1, UTIME_OMIT}, {12, 13}};
    SAY(futimens(fd, times));
    SAY(fstat(fd, &st)), show("file", &st);
    SAY(fstatat(dir, "../d/sub/./file", &st, 0)), show("file", &st);
    SAY(fstatat(dir, "", &st, AT_EMPTY_PATH)), show("d", &st);
    SAY(linkat(dir, "sub/file", dir, "sub/link", 0));
    SAY(symlinkat("sub", dir, "to-sub"));
    memset(buf, 0, 20);
    SAY(readlinkat(dir, "to-sub", buf, 100));
    TEXT(buf);
    SAY(faccessat(dir, "to-sub/link", R_OK, 0));
    SAY(renameat(dir, "sub/link", dir, "moved"));
    SAY(unlinkat(dir, "moved", AT_REMOVEDIR));
    SAY(unlinkat(dir, "moved", 0));
    SAY(unlinkat(dir, "sub", 0));
    SAY(unlinkat(dir, "sub", AT_REMOVEDIR));
    SAY(unlinkat(dir, "to-sub", 0));
    SAY(fsync(dir));
    SAY(close(fd));
    SAY(openat(fd, "x", O_RDONLY));
    char cwd[PATH_MAX], was[PATH_MAX], real[PATH_MAX];
    SAY(getcwd(was, sizeof was) != NULL);
    SAY(fchdir(dir));
    SAY(getcwd(cwd, sizeof cwd) != NULL);
    TEXT(cwd + strlen(was));
    SAY(stat("sub/file", &st));
    SAY(chdir("sub"));
    SAY(realpath("../sub/file", real) != NULL);
    TEXT(real + strlen(was));
    SAY(realpath("nothing", real) != NULL);
    SAY(chdir("file"));
    SAY(chdir("../.."));
    SAY(getcwd(cwd, sizeof cwd) != NULL);
    SAY(strcmp(cwd, was));
    SAY(getcwd(cwd, 2) != NULL);
    SAY(close(dir));
}

static int by_name(const void *left, const void *right)
{
    return strcmp(*(char *const *)left, *(char *const *)right);
}

static void listing(void)
{
    SAY(mkdir("list", 0755));
    char name[32], *names[400];
    for (int i = 0; i < 300; i++) {
        snprintf(name, sizeof name, "list/entry-%03d", i);
        close(creat(name, 0600));
    }
    DIR *dir = opendir("list");
    SAY(dir != NULL);
    SAY(dirfd(dir) >= 0);
    int count = 0, files = 0;
    long middle = 0;
    for (struct dirent *e; (errno = 0, e = readdir(dir)); count++) {
        names[count] = strdup(e->d_name);
        files += e->d_type == DT_REG;
        if (count == 150)
            middle = telldir(dir);
    }
    SAY(errno);
    SAY(count);
    SAY(files);
    char *after = strdup(names[151]);
    seekdir(dir, middle);
    SAY(strcmp(readdir(dir)->d_name, after));
    rewinddir(dir);
    SAY(readdir(dir) != NULL);
    qsort(names, count, sizeof *names, by_name);
    TEXT(names[0]);
    TEXT(names[2]);
    TEXT(names[301]);
    SAY(closedir(dir));
    SAY(opendir("none") != NULL);
    SAY(opendir("f") != NULL);
    struct dirent **list;
    SAY(count = scandir("list", &list, NULL, alphasort));
    TEXT(list[301]->d_name);
    int fd = open("list", O_RDONLY);
    dir = fdopendir(fd);
    SAY(dirfd(dir) == fd);
    SAY(closedir(dir));
    SAY(close(fd));
}

static void copies(void)
{
    int fd = open("dup", O_CREAT | O_RDWR | O_TRUNC, 0644), two, high;
    SAY(two = dup(fd));
    SAY(write(fd, "ab", 2));
    SAY(write(two, "cd", 2));
    SAY(lseek(fd, 0, SEEK_CUR));
    SAY(dup2(fd, fd) == fd);
    SAY(dup2(fd, 77));
    SAY(dup3(fd, 78, O_CLOEXEC));
    SAY(dup3(fd, fd, 0));
    SAY(fcntl(78, F_GETFD));
    SAY(high = fcntl(fd, F_DUPFD, 90));
    SAY(close(fd));
    SAY(write(77, "ef", 2));
    SAY(pread(high, buf, 10, 0));
    SAY(dup2(two, 77));
    SAY(dup(1000));
    SAY(close(77) | close(78) | close(high) | close(two));
    /* A child shares the offset; what it writes is there when it has ended. */
    fd = open("dup", O_RDWR | O_TRUNC);
    SAY(write(fd, "parent ", 7));
    pid_t child = fork();
    if (child == 0) {
        ssize_t done = write(fd, "child ", 6);
        int own = open("own", O_CREAT | O_WRONLY, 0644);
        done += write(own, "mine", 4);
        _exit(done == 10 && close(own) == 0 ? 0 : 1);
    }
    int status;
    waitpid(child, &status, 0);
    SAY(status);
    SAY(write(fd, "parent", 6));
    SAY(close(fd));
    TEXT(content("dup"));
    TEXT(content("own"));
    SAY(system("cat dup > copied && echo more >> copied && exec 3< copied && cat <&3 > third"));
    TEXT(content("third"));
    /* An open file lives on without a name. */
    fd = open("unlinked", O_CREAT | O_RDWR, 0644);
    SAY(write(fd, "still", 5));
    SAY(unlink("unlinked"));
    struct stat st;
    SAY(fstat(fd, &st)), st.st_mtime = 0, show("unlinked", &st);
    SAY(pread(fd, buf, 10, 0));
    SAY(close(fd));
}

static void attributes(void)
{
    SAY(fill("attr", "x"));
    SAY(setxattr("attr", "user.one", "value", 5, 0));
    SAY(setxattr("attr", "user.one", "other", 5, XATTR_CREATE));
    SAY(setxattr("attr", "user.two", "", 0, XATTR_REPLACE));
    SAY(getxattr("attr", "user.one", buf, 3));
    SAY(getxattr("attr", "user.one", buf, 0));
    SAY(getxattr("attr", "user.one", buf, 100));
    SAY(memcmp(buf, "value", 5));
    SAY(getxattr("attr", "user.none", buf, 100));
    int fd = open("attr", O_RDWR);
    SAY(fsetxattr(fd, "user.two", "2", 1, 0));
    SAY(fgetxattr(fd, "user.two", buf, 100));
    SAY(close(fd));
    SAY(removexattr("attr", "user.one"));
    SAY(removexattr("attr", "user.one"));
    SAY(listxattr("attr", buf, 0));
    SAY(listxattr("attr", buf, 100));
    TEXT(buf);
}

static void streams(void)
{
    char line[100];
    SAY(fopen("none", "r") != NULL);
    SAY(fopen("st", "q") != NULL);
    FILE *file = fopen("st", "w+");
    SAY(file != NULL);
    SAY(fileno(file) >= 0);
    SAY(fprintf(file, "line %d\nline %d\n", 1, 2));
    SAY(fflush(file));
    SAY(ftell(file));
    rewind(file);
    TEXT(fgets(line, sizeof line, file));
    SAY(fseek(file, -2, SEEK_END));
    SAY(fgetc(file));
    SAY(fclose(file));
    file = fopen("st", "a");
    SAY(fputs("line 3\n", file) >= 0);
    SAY(fclose(file));
    SAY(fopen("st", "wx") != NULL);
    file = fopen("st", "r");
    SAY(fread(buf, 1, sizeof buf, file));
    SAY(feof(file) != 0);
    SAY(fputc('x', file));
    SAY(ferror(file) != 0);
    SAY(fclose(file));
    int fd = open("st", O_RDWR);
    file = fdopen(fd, "r+");
    SAY(fread(buf, 1, 4, file));
    SAY(fclose(file));
    SAY(close(fd));
    /* The standard streams go where their descriptors go. */
    fflush(stdout);
    int saved = dup(1);
    fd = open("redirected", O_CREAT | O_RDWR | O_TRUNC, 0644);
    SAY(dup2(fd, 1));
    SAY(printf("printed\n"));
    SAY(puts("put"));
    SAY(fflush(stdout));
    SAY(dup2(saved, 1));
    close(saved);
    close(fd);
    TEXT(content("redirected"));
    char temporary[] = "tempXXXXXX", directory[] = "dirXXXXXX", plain[] = "plain";
    SAY(fd = mkstemp(temporary));
    SAY(strcmp(temporary, "tempXXXXXX") != 0 && access(temporary, R_OK) == 0);
    SAY(close(fd) | unlink(temporary));
    SAY(mkdtemp(directory) != NULL);
    SAY(rmdir(directory));
    SAY(mkstemp(plain));
    fd = open("input", O_CREAT | O_RDWR | O_TRUNC, 0644);
    SAY(write(fd, "in", 2));
    close(fd);
    SAY(freopen("input", "r", stdin) != NULL);
    SAY(getchar());
    SAY(getchar());
    SAY(getchar());
}

static struct flock range(int type, off_t start, off_t length)
{
    struct flock lock = {.l_type = (short)type, .l_whence = SEEK_SET, .l_start = start, .l_len = length};
    return lock;
}

static void nothing(int signal) { (void)signal; }

static void locking(void)
{
    struct flock lock;
    int fd = open("lock", O_CREAT | O_RDWR, 0644), read_only = open("lock", O_RDONLY);
    SAY((lock = range(F_WRLCK, 0, 10), fcntl(fd, F_SETLK, &lock)));
    SAY((lock = range(F_RDLCK, 100, 0), fcntl(fd, F_SETLKW, &lock)));
    SAY((lock = range(F_WRLCK, 0, 5), fcntl(read_only, F_SETLK, &lock)));
    SAY((lock = range(F_WRLCK, -5, 5), fcntl(fd, F_SETLK, &lock)));
    SAY((lock = range(99, 0, 5), fcntl(fd, F_SETLK, &lock)));
    SAY((lock = range(F_WRLCK, 0, 5), fcntl(fd, F_GETLK, &lock)));
    SAY(lock.l_type);
    int there[2], back[2];
    pipe(there), pipe(back);
    char token = 0;
    pid_t child = fork();
    if (child == 0) {
        int own = open("lock", O_RDWR);
        lock = range(F_WRLCK, 5, 1);
        SAY(fcntl(own, F_SETLK, &lock));
        lock = range(F_WRLCK, 2, 100);
        SAY(fcntl(own, F_GETLK, &lock));
        SAY(lock.l_type);
        SAY(lock.l_start);
        SAY(lock.l_len);
        SAY(lock.l_pid == getppid());
        SAY((lock = range(F_RDLCK, 200, 5), fcntl(own, F_SETLK, &lock)));
        SAY((lock = range(F_WRLCK, 200, 5), fcntl(own, F_SETLK, &lock)));
        /* A signal ends the wait. */
        struct sigaction action = {.sa_handler = nothing};
        sigaction(SIGALRM, &action, NULL);
        struct itimerval soon = {{0, 0}, {0, 100000}};
        setitimer(ITIMER_REAL, &soon, NULL);
        SAY((lock = range(F_WRLCK, 0, 1), fcntl(own, F_SETLKW, &lock)));
        SAY(flock(own, LOCK_EX | LOCK_NB));
        write(there[1], &token, 1);
        SAY((lock = range(F_WRLCK, 0, 1), fcntl(own, F_SETLKW, &lock)));
        SAY(lockf(own, F_TLOCK, 1));
        _exit(0);
    }
    read(there[0], &token, 1);
    SAY(flock(fd, LOCK_SH | LOCK_NB));
    /* The first close of the file gives all of the process's fcntl locks back. */
    int status, closed = close(read_only);
    waitpid(child, &status, 0);
    SAY(closed);
    SAY(status);
    SAY(flock(fd, LOCK_EX));
    SAY(flock(fd, LOCK_UN));
    SAY(flock(fd, 64));
    int other = open("lock", O_RDWR);
    lock = range(F_WRLCK, 0, 10);
    SAY(fcntl(fd, F_OFD_SETLK, &lock));
    SAY(fcntl(other, F_OFD_SETLK, &lock));
    SAY(fcntl(other, F_OFD_GETLK, &lock));
    SAY(lock.l_pid);
    SAY(close(fd));
    lock = range(F_WRLCK, 0, 10), lock.l_pid = 0;
    SAY(fcntl(other, F_OFD_SETLK, &lock));
    SAY(flock(other, LOCK_EX | LOCK_NB));
    SAY(close(other));
}

static void asynchronous(void)
{
    int fd = open("aio", O_CREAT | O_RDWR, 0644);
    struct aiocb blocks[8], *list[8];
    memset(blocks, 0, sizeof blocks);
    for (int i = 0; i < 8; i++) {
        memset(buf + 100 * i, 'a' + i, 100);
        blocks[i] = (struct aiocb){.aio_fildes = fd, .aio_buf = buf + 100 * i, .aio_nbytes = 100,
                                   .aio_offset = 1000 * i, .aio_lio_opcode = LIO_WRITE,
                                   .aio_sigevent = {.sigev_notify = SIGEV_NONE}};
        list[i] = &blocks[i];
    }
    SAY(lio_listio(LIO_WAIT, list, 8, NULL));
    for (int i = 0; i < 8; i++)
        SAY(aio_return(&blocks[i]));
    SAY(lseek(fd, 0, SEEK_END));
    SAY(pread(fd, buf + 1000, 100, 3000));
    SAY(memcmp(buf + 1000, buf + 300, 100));
    memset(buf, 0, 1000);
    for (int i = 0; i < 8; i++)
        SAY(aio_read(&blocks[i]));
    const struct aiocb *all[8];
    for (int i = 0; i < 8; i++)
        all[i] = &blocks[i];
    for (int i = 0; i < 8; i++)
        while (aio_error(&blocks[i]) == EINPROGRESS)
            aio_suspend(&all[i], 1, NULL);
    for (int i = 0; i < 8; i++)
        SAY(aio_return(&blocks[i]) == 100 && buf[100 * i] == 'a' + i);
    blocks[0].aio_offset = 1 << 20;
    SAY(aio_read(&blocks[0]));
    while (aio_error(&blocks[0]) == EINPROGRESS)
        usleep(1000);
    SAY(aio_return(&blocks[0]));
    SAY(close(fd));
}

static void *add_lines(void *name)
{
    int fd = open("log", O_WRONLY | O_APPEND);
    for (int i = 0; i < 50; i++)
        if (write(fd, name, 8) != 8)
            return "failed";
    close(fd);
    return NULL;
}

static void threads(void)
{
    close(creat("log", 0644));
    pthread_t ids[4];
    static char *lines[4] = {"line  A\n", "line  B\n", "line  C\n", "line  D\n"};
    for (int i = 0; i < 4; i++)
        pthread_create(&ids[i], NULL, add_lines, lines[i]);
    void *failed = NULL, *one;
    for (int i = 0; i < 4; i++)
        pthread_join(ids[i], &one), failed = failed ? failed : one;
    SAY(failed == NULL);
    content("log");
    SAY(strlen(buf));
    int counts[4] = {0}, torn = 0;
    for (char *at = buf; *at; at += 8)
        memcmp(at, "line  ", 6) ? torn++ : counts[at[6] - 'A']++;
    SAY(torn == 0 && counts[0] == 50 && counts[1] == 50 && counts[2] == 50 && counts[3] == 50);
}

int main(int argc, char **argv)
{
    /* Beside the standard streams, which move. */
    out = fdopen(fcntl(1, F_DUPFD, 50), "w");
    if (argc != 2 || chdir(argv[1]) < 0)
        return perror("calls"), 2;
    umask(022);
    opening();
    vectors();
    many_bytes();
    names();
    by_directory();
    listing();
    copies();
    attributes();
    streams();
    locking();
    asynchronous();
    threads();
    fprintf(out, "end\n");
    return fclose(out);
}
