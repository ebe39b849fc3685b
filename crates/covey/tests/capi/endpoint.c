/* Two processes with an endpoint each, in every way that covey.h has; ends with "right" on stdout.
 * usage: endpoint DIRECTORY [tcp] [adopt]
 * Over shared memory or TCP; with adopt the two are connected before there are endpoints. */
#include "covey.h"
#include <arpa/inet.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

enum { N = 100, SEVERAL = 300, KEYS = 1, PLAIN, COLUMNS, EARLY, LONG, HEADED, MANY, DONE };

static int failed, is_tcp, adopts;
static const char *who;

#define CHECK(condition)                                                                              \
    do {                                                                                              \
        if (!(condition)) {                                                                           \
            printf("%s:%d: %s: %s: %s\n", __FILE__, __LINE__, who, #condition, covey_last_error());   \
            failed = 1;                                                                               \
        }                                                                                             \
    } while (0)
#define WORKS(call) CHECK((call) == COVEY_OK)

static covey_endpoint *endpoint;
/* In the child: that of its parent, which it must not touch, and does not lose. */
covey_endpoint *parents;

/* The end of the one operation under way. */
static struct covey_completion end(uint64_t context)
{
    struct covey_completion one = {0};
    size_t found = 0;
    WORKS(covey_endpoint_wait(endpoint, &one, 1, &found, 20000));
    CHECK(found == 1 && one.context == context);
    return one;
}

static struct covey_match from(uint32_t peer, uint64_t tag)
{
    struct covey_match match = {tag, 0, peer};
    return match;
}

static struct covey_completion received(uint32_t peer, uint64_t tag, struct covey_local into)
{
    WORKS(covey_endpoint_receive(endpoint, from(peer, tag), into, tag, NULL));
    return end(tag);
}

static void sent(uint32_t peer, uint64_t tag, struct covey_local what)
{
    WORKS(covey_endpoint_send(endpoint, peer, tag, what, 77, NULL));
    CHECK(end(77).result == COVEY_OK);
}

static uint64_t columns(void)
{
    covey_layout *element = NULL, *column = NULL, *all = NULL;
    uint64_t form = 0;
    WORKS(covey_layout_element(COVEY_F32, &element));
    WORKS(covey_layout_vector(N, 1, N, element, &column));
    WORKS(covey_layout_hvector(N, 1, sizeof(float), column, &all));
    WORKS(covey_endpoint_commit(endpoint, all, 1, &form));
    covey_layout_free(element), covey_layout_free(column), covey_layout_free(all);
    return form;
}

static int is_transposed(const float *matrix)
{
    for (int i = 0; i < N * N; i++)
        if (matrix[i] != (float)(i % N * N + i / N))
            return 0;
    return 1;
}

/* What the other process shares: a matrix, and a counter. */
struct keys {
    uint64_t matrix, counter, private;
};

/* Many short messages in one call, of which the last goes to nobody. */
static void several(uint32_t peer)
{
    static uint64_t numbers[SEVERAL];
    struct covey_message messages[SEVERAL + 1];
    size_t begun = 77;
    for (uint64_t i = 0; i <= SEVERAL; i++) {
        struct covey_local what = covey_local(i < SEVERAL ? &numbers[i] : NULL, i < SEVERAL ? sizeof numbers[i] : 0);
        struct covey_message message = {what, MANY, i, i < SEVERAL ? peer : peer + 7};
        messages[i] = message;
        if (i < SEVERAL)
            numbers[i] = i * i;
    }
    CHECK(covey_endpoint_send_all(endpoint, messages, SEVERAL + 1, &begun) == COVEY_ERR_NO_PEER && begun == SEVERAL);
    for (uint64_t i = 0; i < SEVERAL; i++)
        CHECK(end(i).result == COVEY_OK);
    CHECK(covey_endpoint_send_all(endpoint, NULL, 1, &begun) == COVEY_ERR_ARGUMENT);
    CHECK(covey_endpoint_send_all(endpoint, messages, 1, NULL) == COVEY_ERR_ARGUMENT);
    WORKS(covey_endpoint_send_all(endpoint, NULL, 0, &begun));
    CHECK(begun == 0);
}

static void other(const char *name, int socket)
{
    uint32_t peer = COVEY_NO_PEER;
    void *memory = NULL;
    who = "other";
    parents = endpoint;
    WORKS(covey_endpoint_new(NULL, &endpoint));
    if (adopts)
        WORKS(covey_endpoint_adopt(endpoint, socket, &peer));
    else
        WORKS(covey_endpoint_connect(endpoint, name, &peer));
    WORKS(covey_endpoint_alloc(endpoint, sizeof(float) * N * N, &memory));
    float *matrix = memory, *got = calloc(N * N, sizeof *got);
    static uint64_t counter = 5, secret = 1;
    struct keys keys = {0};
    for (int i = 0; i < N * N; i++)
        matrix[i] = (float)i;
    WORKS(covey_endpoint_register(endpoint, matrix, sizeof(float) * N * N, COVEY_READ | COVEY_WRITE, &keys.matrix));
    WORKS(covey_endpoint_register(endpoint, &counter, sizeof counter, COVEY_ATOMIC, &keys.counter));
    WORKS(covey_endpoint_register(endpoint, &secret, sizeof secret, COVEY_READ, &keys.private));
    WORKS(covey_endpoint_revoke(endpoint, keys.private));
    sent(peer, KEYS, covey_local(&keys, sizeof keys));

    /* Sent by columns: known to the sender only. */
    struct covey_local scattered = covey_local(matrix, sizeof(float) * N * N);
    scattered.form = columns();
    sent(peer, COLUMNS, scattered);
    sent(peer, EARLY, covey_local("early", 5));
    sent(peer, LONG, covey_local("too long", 8));
    WORKS(covey_endpoint_send_headed(endpoint, peer, HEADED, "HEAD7", 5, covey_local("payload", 7), 8, NULL));
    CHECK(end(8).result == COVEY_OK);
    several(peer);
    CHECK(received(peer, DONE, covey_local(got, 0)).result == COVEY_OK);
    CHECK(counter == 9);
    CHECK(matrix[0] == -1);
    WORKS(covey_endpoint_uncommit(endpoint, scattered.form));
    WORKS(covey_endpoint_release(endpoint, memory));
    CHECK(covey_endpoint_release(endpoint, got) == COVEY_ERR_NO_SUCH);
    free(got);
    covey_endpoint_free(endpoint);
}

static void messages(uint32_t peer, struct keys *keys)
{
    float *matrix = calloc(N * N, sizeof *matrix);
    struct covey_probe probe;
    struct covey_completion one;
    char text[16] = {0}, head[5], body[16];
    uint64_t operation = 0;
    CHECK(received(COVEY_NO_PEER, KEYS, covey_local(keys, sizeof *keys)).bytes == sizeof *keys);
    one = received(peer, COLUMNS, covey_local(matrix, sizeof(float) * N * N));
    CHECK(one.result == COVEY_OK && one.bytes == sizeof(float) * N * N && one.peer == peer && one.tag == COLUMNS);
    CHECK(is_transposed(matrix));
    do
        WORKS(covey_endpoint_probe(endpoint, from(COVEY_NO_PEER, EARLY), &probe));
    while (probe.peer == COVEY_NO_PEER);
    CHECK(probe.peer == peer && probe.tag == EARLY && probe.bytes == 5);
    CHECK(received(peer, EARLY, covey_local(text, sizeof text)).bytes == 5 && memcmp(text, "early", 5) == 0);
    one = received(peer, LONG, covey_local(text, 3));
    CHECK(one.result == COVEY_ERR_TRUNCATED && one.bytes == 8 && memcmp(text, "too", 3) == 0);

    struct covey_rule rule = {from(peer, HEADED), "\xff\xff\xff\xff\0", "HEAD\0", 5, head, covey_local(body, sizeof body)};
    WORKS(covey_endpoint_place(endpoint, &rule, 9, NULL));
    CHECK(end(9).result == COVEY_OK && memcmp(head, "HEAD7", 5) == 0 && memcmp(body, "payload", 7) == 0);

    for (uint64_t i = 0; i < SEVERAL; i++) {
        uint64_t number = 0;
        one = received(peer, MANY, covey_local(&number, sizeof number));
        CHECK(one.result == COVEY_OK && one.bytes == sizeof number && number == i * i);
    }

    WORKS(covey_endpoint_receive(endpoint, from(peer, 12345), covey_local(text, 1), 10, &operation));
    WORKS(covey_endpoint_cancel(endpoint, operation));
    CHECK(end(10).result == COVEY_ERR_CANCELLED);
    CHECK(covey_endpoint_cancel(endpoint, operation) == COVEY_ERR_NO_SUCH);
    free(matrix);
}

static struct covey_remote at(uint32_t peer, uint64_t key, uint64_t form)
{
    struct covey_remote remote = {key, 0, form, peer};
    return remote;
}

static void one_sided(uint32_t peer, const struct keys *keys)
{
    float *matrix = calloc(N * N, sizeof *matrix), first = -1;
    uint64_t form = columns(), add = 3, before = 0, expected = 8, replacement = 9;
    covey_layout *number = NULL;
    uint64_t as_number = 0;
    WORKS(covey_layout_element(COVEY_U64, &number));
    WORKS(covey_endpoint_commit(endpoint, number, 1, &as_number));
    covey_layout_free(number);

    /* The peer has never heard of the type. */
    WORKS(covey_endpoint_get(endpoint, covey_local(matrix, sizeof(float) * N * N), at(peer, keys->matrix, form), 1, NULL));
    CHECK(end(1).result == COVEY_OK);
    CHECK(is_transposed(matrix));
    WORKS(covey_endpoint_fetch(endpoint, COVEY_SUM, covey_local(&add, 8), covey_local(&before, 8),
                               at(peer, keys->counter, as_number), 2, NULL));
    CHECK(end(2).result == COVEY_OK && before == 5);
    WORKS(covey_endpoint_compare_swap(endpoint, covey_local(&expected, 8), covey_local(&replacement, 8),
                                      covey_local(&before, 8), at(peer, keys->counter, as_number), 3, NULL));
    CHECK(end(3).result == COVEY_OK && before == 8);
    add = 0;
    WORKS(covey_endpoint_accumulate(endpoint, COVEY_SUM, covey_local(&add, 8), at(peer, keys->counter, as_number), 4, NULL));
    CHECK(end(4).result == COVEY_OK);
    WORKS(covey_endpoint_put(endpoint, covey_local(&first, sizeof first), at(peer, keys->matrix, 0), 5, NULL));
    CHECK(end(5).result == COVEY_OK);

    /* Refused, each alone. */
    struct covey_remote far = at(peer, keys->matrix, 0), wrong = at(peer, keys->matrix + 12345, 0);
    far.at = sizeof(float) * N * N;
    int result = covey_endpoint_get(endpoint, covey_local(&before, 8), at(peer, keys->private, 0), 6, NULL);
    CHECK((result ? result : end(6).result) == COVEY_ERR_REVOKED);
    result = covey_endpoint_get(endpoint, covey_local(&before, 8), at(peer, keys->counter, 0), 6, NULL);
    CHECK((result ? result : end(6).result) == COVEY_ERR_DENIED);
    result = covey_endpoint_get(endpoint, covey_local(&before, 8), far, 6, NULL);
    CHECK((result ? result : end(6).result) == COVEY_ERR_OUT_OF_RANGE);
    result = covey_endpoint_get(endpoint, covey_local(&before, 8), wrong, 6, NULL);
    CHECK((result ? result : end(6).result) == COVEY_ERR_WRONG_KEY);
    CHECK(covey_endpoint_send(endpoint, peer + 7, 1, covey_local(&before, 8), 6, NULL) == COVEY_ERR_NO_PEER);
    struct covey_local formless = covey_local(&before, 8);
    formless.form = 4000;
    CHECK(covey_endpoint_send(endpoint, peer, 1, formless, 6, NULL) == COVEY_ERR_NO_SUCH);
    free(matrix);
}

/* A call that has nowhere to tell what it did has done nothing, and one with senseless numbers neither. */
static void mistakes(uint32_t peer)
{
    struct covey_completion one = {0};
    char text[4] = {0};
    uint64_t key = 0;
    struct covey_config large = {.near_table_bytes = UINT64_MAX};
    covey_endpoint *none = NULL;
    CHECK(covey_endpoint_new(&large, &none) == COVEY_ERR_ARGUMENT && none == NULL);
    CHECK(strstr(covey_last_error(), "near_table_bytes is 18446744073709551615: ") != NULL);
    CHECK(covey_endpoint_accept(endpoint, NULL) == COVEY_ERR_ARGUMENT);
    CHECK(covey_endpoint_register(endpoint, text, sizeof text, COVEY_READ, NULL) == COVEY_ERR_ARGUMENT);
    CHECK(covey_endpoint_register(endpoint, text, sizeof text, 0, &key) == COVEY_ERR_ARGUMENT);
    CHECK(covey_endpoint_register(endpoint, text, sizeof text, 8, &key) == COVEY_ERR_ARGUMENT);
    CHECK(strstr(covey_last_error(), "8: COVEY_READ 1") != NULL);
    CHECK(covey_endpoint_register(endpoint, text, UINT64_MAX, COVEY_READ, &key) == COVEY_ERR_ARGUMENT);
    CHECK(covey_endpoint_register(endpoint, NULL, 1, COVEY_READ, &key) == COVEY_ERR_ARGUMENT && key == 0);
    CHECK(covey_endpoint_alloc(endpoint, 100, NULL) == COVEY_ERR_ARGUMENT);

    WORKS(covey_endpoint_receive(endpoint, from(peer, 4711), covey_local(text, 4), 12, &key));
    WORKS(covey_endpoint_cancel(endpoint, key));
    CHECK(covey_endpoint_poll(endpoint, &one, 1, NULL) == COVEY_ERR_ARGUMENT);
    CHECK(covey_endpoint_wait(endpoint, &one, 1, NULL, 1) == COVEY_ERR_ARGUMENT);
    CHECK(end(12).result == COVEY_ERR_CANCELLED);
}

static void its_end(uint32_t peer)
{
    struct covey_completion one;
    struct covey_stats stats;
    size_t found = 1;
    char text[4];
    WORKS(covey_endpoint_receive(endpoint, from(peer, 4711), covey_local(text, 4), 11, NULL));
    sent(peer, DONE, covey_local(NULL, 0));
    CHECK(end(11).result == COVEY_ERR_PEER_DEAD);
    WORKS(covey_endpoint_wait(endpoint, &one, 1, &found, 1));
    CHECK(found == 0);
    WORKS(covey_endpoint_poll(endpoint, &one, 1, &found));
    CHECK(found == 0);
    CHECK(covey_endpoint_wait(endpoint, &one, 0, &found, 1) == COVEY_ERR_ARGUMENT);
    WORKS(covey_endpoint_stats(endpoint, &stats));
    CHECK(is_tcp ? stats.direct == 0 : stats.direct > 0);
    CHECK(is_tcp || stats.bytes_copied >= 2 * sizeof(float) * N * N);
}

/* Two ends of one connection. */
static void connected(int ends[2])
{
    struct sockaddr_in address = {0};
    socklen_t bytes = sizeof address;
    if (!is_tcp) {
        CHECK(socketpair(AF_UNIX, SOCK_STREAM, 0, ends) == 0);
        return;
    }
    int listener = socket(AF_INET, SOCK_STREAM, 0);
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    CHECK(bind(listener, (struct sockaddr *)&address, bytes) == 0 && listen(listener, 1) == 0);
    CHECK(getsockname(listener, (struct sockaddr *)&address, &bytes) == 0);
    ends[0] = socket(AF_INET, SOCK_STREAM, 0);
    CHECK(connect(ends[0], (struct sockaddr *)&address, bytes) == 0);
    ends[1] = accept(listener, NULL, NULL);
    close(listener);
}

/* Lets others come; the name by which they do. */
static void listening(const char *directory, char *name, size_t room)
{
    uint32_t peer = 0;
    size_t needed = 0;
    snprintf(name, room, "%s/meet", directory);
    if (is_tcp) {
        CHECK(covey_endpoint_listen(endpoint, "0.0.0.0:0") == COVEY_ERR_IO);
        CHECK(covey_endpoint_address(endpoint, name, room, &needed) == COVEY_ERR_NO_SUCH);
        WORKS(covey_endpoint_listen(endpoint, "127.0.0.1:0"));
        CHECK(covey_endpoint_address(endpoint, name, 3, &needed) == COVEY_ERR_ROOM && needed > 11);
        WORKS(covey_endpoint_address(endpoint, name, room, &needed));
        CHECK(strlen(name) + 1 == needed && strncmp(name, "127.0.0.1:", 10) == 0);
    } else {
        CHECK(covey_endpoint_listen(endpoint, "/no/such/directory/meet") == COVEY_ERR_IO);
        CHECK(strstr(covey_last_error(), "cannot listen at /no/such/directory/meet: ") != NULL);
        CHECK(covey_endpoint_connect(endpoint, "/no/such/meet", &peer) == COVEY_ERR_IO);
        CHECK(strstr(covey_last_error(), "cannot connect to /no/such/meet: ") != NULL);
        WORKS(covey_endpoint_listen(endpoint, name));
        CHECK(covey_endpoint_address(endpoint, name, room, &needed) == COVEY_ERR_NO_SUCH);
    }
    WORKS(covey_endpoint_accept(endpoint, &peer));
    CHECK(peer == COVEY_NO_PEER);
}

int main(int argc, char **argv)
{
    char name[256] = "";
    uint32_t peer = COVEY_NO_PEER;
    struct keys keys = {0};
    struct covey_config config = {0, 0, 0, 64 << 20, 4};
    int status = 1, ends[2] = {-1, -1};
    for (int i = 2; i < argc; i++) {
        is_tcp |= strcmp(argv[i], "tcp") == 0;
        adopts |= strcmp(argv[i], "adopt") == 0;
    }
    who = "one";
    WORKS(covey_endpoint_new(&config, &endpoint));
    CHECK(covey_endpoint_adopt(endpoint, -1, &peer) == COVEY_ERR_ARGUMENT);
    CHECK(covey_endpoint_adopt(endpoint, 1000, &peer) == COVEY_ERR_ARGUMENT);
    if (adopts)
        connected(ends);
    else
        listening(argc > 1 ? argv[1] : ".", name, sizeof name);
    pid_t child = fork();
    if (child == 0) {
        close(ends[1]);
        other(name, ends[0]);
        fflush(stdout);
        _exit(failed);
    }
    close(ends[0]);
    if (adopts)
        WORKS(covey_endpoint_adopt(endpoint, ends[1], &peer));
    while (peer == COVEY_NO_PEER)
        WORKS(covey_endpoint_accept(endpoint, &peer));
    messages(peer, &keys);
    one_sided(peer, &keys);
    mistakes(peer);
    its_end(peer);
    covey_endpoint_free(endpoint);
    CHECK(waitpid(child, &status, 0) == child && status == 0);
    puts(failed ? "wrong" : "right");
    return failed;
}
