/* What execve(2) keeps: locks and open files, all of them where it fails.
 *
 *   exec DIRECTORY
 *
 * The test runs it on a local directory and on one of Covey's: both must say the same. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/wait.h>
#include <unistd.h>

static void say(const char *what, const char *value)
{
    char line[200];
    int length = snprintf(line, sizeof line, "%s: %s\n", what, value);
    write(1, line, length);
}

static int lock(int fd, int command, short type)
{
    struct flock wanted = { .l_type = type, .l_whence = SEEK_SET, .l_len = 10 };
    return fcntl(fd, command, &wanted);
}

/* Whether another process may lock the file: by fcntl, by a description, by flock. */
static void ask(const char *what, const char *path)
{
    fflush(stdout);
    pid_t child = fork();
    if (child == 0) {
        int fd = open(path, O_RDWR), answer = 0;
        if (fd < 0)
            _exit(64);
        answer |= lock(fd, F_SETLK, F_WRLCK) ? 1 : 0;
        lock(fd, F_SETLK, F_UNLCK);
        answer |= lock(fd, F_OFD_SETLK, F_WRLCK) ? 2 : 0;
        answer |= flock(fd, LOCK_EX | LOCK_NB) ? 4 : 0;
        _exit(answer);
    }
    int status = 0;
    waitpid(child, &status, 0);
    static const char *answers[] = { "free", "fcntl", "fcntl by a description", "fcntl, in both ways", "flock",
        "fcntl and flock", "a description's and flock", "all" };
    int code = WEXITSTATUS(status);
    say(what, code < 8 ? answers[code] : "not there");
}

static int make(const char *path, int flags)
{
    int fd = open(path, O_RDWR | O_CREAT | O_TRUNC | flags, 0644);
    if (fd < 0 || write(fd, "0123456789", 10) != 10)
        exit(3);
    return fd;
}

static void failed(void)
{
    int fd = make("failed", 0), gone = make("unlinked", 0);
    lock(fd, F_SETLK, F_WRLCK);
    flock(fd, LOCK_EX);
    unlink("unlinked");
    char *arguments[] = { "none", NULL };
    execv("/no/such/program", arguments);
    say("execv", strerror(errno));
    execvp("no-such-program-anywhere", arguments);
    say("execvp", strerror(errno));
    int directory = open("/", O_RDONLY);
    fexecve(directory, arguments, environ);
    say("fexecve", errno == EACCES ? "refused" : strerror(errno));
    close(directory);
    ask("after execs that failed", "failed");
    char text[11] = "";
    say("unlinked", pread(gone, text, 10, 0) == 10 ? text : "lost");
    close(gone);
    close(fd);
    ask("closed", "failed");
}

static void become(const char *self, const char *directory)
{
    int kept = make("kept", 0), description = make("description", 0), both = make("both", 0);
    int going = make("going", O_CLOEXEC), mixed = make("mixed", 0), flocked = make("flocked", O_CLOEXEC);
    int gone = make("gone", 0);
    unlink("gone");
    lock(kept, F_SETLK, F_WRLCK);
    lock(description, F_OFD_SETLK, F_WRLCK);
    flock(both, LOCK_EX);
    int copy = dup(both);
    lock(going, F_SETLK, F_WRLCK);
    lock(mixed, F_SETLK, F_WRLCK);
    fcntl(dup(mixed), F_SETFD, FD_CLOEXEC);
    flock(flocked, LOCK_EX);
    lseek(kept, 7, SEEK_SET);
    char text[60];
    snprintf(text, sizeof text, "%d %d %d %d %d", kept, description, both, copy, gone);
    char *arguments[] = { (char *)self, (char *)directory, text, NULL };
    execv(self, arguments);
    exit(4);
}

static void go_on(const char *numbers)
{
    int kept, description, both, copy, gone;
    if (sscanf(numbers, "%d %d %d %d %d", &kept, &description, &both, &copy, &gone) != 5)
        exit(5);
    ask("a process's lock", "kept");
    ask("a description's lock", "description");
    ask("flock", "both");
    ask("closed on exec", "going");
    ask("closed on exec by one of two descriptors", "mixed");
    ask("flock closed on exec", "flocked");
    char text[11] = "";
    say("offset", read(kept, text, 3) == 3 ? text : strerror(errno));
    say("unlinked", pread(gone, text, 10, 0) == 10 ? text : strerror(errno));
    /* Longer than a session lives that nobody has come back to. */
    sleep(12);
    ask("a process's lock, later", "kept");
    close(both);
    ask("flock, one of two descriptors closed", "both");
    close(copy);
    ask("flock, closed", "both");
    close(kept);
    ask("a process's lock, closed", "kept");
    close(description);
    ask("a description's lock, closed", "description");
}

int main(int count, char **arguments)
{
    if (count < 2 || chdir(arguments[1]))
        return 2;
    if (count == 3) {
        go_on(arguments[2]);
        return 0;
    }
    failed();
    become("/proc/self/exe", arguments[1]);
}
