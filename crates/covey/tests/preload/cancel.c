// A thread that is cancelled while libc waits for it runs its cleanup and ends alone.

#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <unistd.h>

static int ends[2];

static void clean(void *name) { printf("%s: cleaned up\n", (const char *)name); }

static void *reads(void *name) {
    char byte;
    pthread_cleanup_push(clean, name);
    read(ends[0], &byte, 1);
    pthread_cleanup_pop(0);
    return NULL;
}

static void *locks(void *name) {
    struct flock lock = {.l_type = F_WRLCK};
    pthread_cleanup_push(clean, name);
    // Cancelled before it comes here.
    pthread_cancel(pthread_self());
    fcntl(ends[0], F_SETLKW, &lock);
    pthread_cleanup_pop(0);
    return NULL;
}

static void *closes(void *name) {
    pthread_cleanup_push(clean, name);
    pthread_cancel(pthread_self());
    close(-1);
    pthread_cleanup_pop(0);
    return NULL;
}

static void cancelled(void *(*work)(void *), const char *name) {
    pthread_t thread;
    void *result;
    pthread_create(&thread, NULL, work, (void *)name);
    usleep(100000);
    pthread_cancel(thread);
    pthread_join(thread, &result);
    printf("%s: %s\n", name, result == PTHREAD_CANCELED ? "cancelled" : "went on");
}

int main(void) {
    pipe(ends);
    cancelled(reads, "read");
    cancelled(locks, "fcntl");
    cancelled(closes, "close");
    printf("end\n");
    return 0;
}
