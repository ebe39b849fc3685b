/* One libiscsi session, kept busy: volbench URL read|write|randread|randwrite BLOCK_BYTES DEPTH SECONDS [SHARE/OF]
 *
 * Says `OPERATIONS BYTES SECONDS CPU_SECONDS P50_US P99_US`. With SHARE/OF the session stays in its part of the disk.
 */
#include <errno.h>
#include <iscsi/iscsi.h>
#include <iscsi/scsi-lowlevel.h>
#include <poll.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>

enum { LATENCIES_MAX = 1 << 22 };

struct bench {
	struct iscsi_context *iscsi;
	int lun, is_write, is_random, depth;
	uint32_t block_bytes, unit_bytes;
	uint64_t first, count, next, state;
	double end;
	uint64_t done;
	int under_way;
	float *latencies;
	size_t latency_count;
};

struct slot {
	struct bench *bench;
	unsigned char *buffer;
	double begun;
};

static void die(const char *what, struct iscsi_context *iscsi)
{
	fprintf(stderr, "volbench: %s: %s\n", what, iscsi ? iscsi_get_error(iscsi) : strerror(errno));
	exit(1);
}

static double now(void)
{
	struct timespec time;
	clock_gettime(CLOCK_MONOTONIC, &time);
	return time.tv_sec + time.tv_nsec * 1e-9;
}

static uint64_t draw(struct bench *bench)
{
	bench->state ^= bench->state << 13;
	bench->state ^= bench->state >> 7;
	bench->state ^= bench->state << 17;
	return bench->state;
}

static void begin(struct slot *slot);

static void ended(struct iscsi_context *iscsi, int status, void *data, void *private)
{
	struct slot *slot = private;
	struct bench *bench = slot->bench;
	struct scsi_task *task = data;
	double time = now();

	if (status != SCSI_STATUS_GOOD)
		die("a command failed", iscsi);
	if (task->datain.size && !bench->is_write && task->datain.size != (int)bench->block_bytes)
		die("short data", NULL);
	scsi_free_scsi_task(task);
	bench->done++;
	bench->under_way--;
	if (bench->latency_count < LATENCIES_MAX)
		bench->latencies[bench->latency_count++] = (time - slot->begun) * 1e6;
	if (time < bench->end)
		begin(slot);
}

static void begin(struct slot *slot)
{
	struct bench *bench = slot->bench;
	uint64_t at = bench->is_random ? draw(bench) % bench->count : bench->next++ % bench->count;
	uint64_t lba = (bench->first + at) * (bench->block_bytes / bench->unit_bytes);
	struct scsi_task *task;

	slot->begun = now();
	if (bench->is_write) {
		task = iscsi_write16_task(bench->iscsi, bench->lun, lba, slot->buffer, bench->block_bytes,
					  bench->unit_bytes, 0, 0, 0, 0, 0, ended, slot);
	} else {
		task = iscsi_read16_task(bench->iscsi, bench->lun, lba, bench->block_bytes,
					 bench->unit_bytes, 0, 0, 0, 0, 0, ended, slot);
		if (task)
			scsi_task_add_data_in_buffer(task, bench->block_bytes, slot->buffer);
	}
	if (!task)
		die("cannot send", bench->iscsi);
	bench->under_way++;
}

static int by_size(const void *left, const void *right)
{
	float one = *(const float *)left, other = *(const float *)right;
	return (one > other) - (one < other);
}

int main(int argc, char **argv)
{
	struct bench bench = { .state = (uint64_t)time(NULL) * 2654435761u ^ (uint64_t)argv ^ 1 };
	struct iscsi_url *url;
	struct scsi_task *task;
	struct scsi_readcapacity16 *capacity;
	struct rusage before, after;
	uint64_t share = 0, of = 1;
	double begun, took;

	if (argc < 6)
		die("volbench URL read|write|randread|randwrite BLOCK_BYTES DEPTH SECONDS [SHARE/OF]", NULL);
	bench.is_random = strncmp(argv[2], "rand", 4) == 0;
	bench.is_write = strcmp(argv[2] + (bench.is_random ? 4 : 0), "write") == 0;
	bench.block_bytes = atoi(argv[3]);
	bench.depth = atoi(argv[4]);
	if (argc > 6 && sscanf(argv[6], "%lu/%lu", &share, &of) != 2)
		die("SHARE/OF", NULL);
	bench.latencies = malloc(LATENCIES_MAX * sizeof(float));
	char name[64];
	snprintf(name, sizeof(name), "iqn.2026-01.org.example:bench%lu", share);
	bench.iscsi = iscsi_create_context(name);
	url = iscsi_parse_full_url(bench.iscsi, argv[1]);
	if (!url)
		die("the URL", bench.iscsi);
	iscsi_set_targetname(bench.iscsi, url->target);
	iscsi_set_session_type(bench.iscsi, ISCSI_SESSION_NORMAL);
	iscsi_set_header_digest(bench.iscsi, ISCSI_HEADER_DIGEST_NONE);
	if (iscsi_full_connect_sync(bench.iscsi, url->portal, url->lun) != 0)
		die("login", bench.iscsi);
	bench.lun = url->lun;
	task = iscsi_readcapacity16_sync(bench.iscsi, bench.lun);
	if (!task || task->status != SCSI_STATUS_GOOD || !(capacity = scsi_datain_unmarshall(task)))
		die("capacity", bench.iscsi);
	bench.unit_bytes = capacity->block_length;
	bench.count = (capacity->returned_lba + 1) * bench.unit_bytes / bench.block_bytes / of;
	bench.first = bench.count * share;
	scsi_free_scsi_task(task);

	struct slot *slots = calloc(bench.depth, sizeof(*slots));
	begun = now();
	bench.end = begun + atof(argv[5]);
	getrusage(RUSAGE_SELF, &before);
	for (int at = 0; at < bench.depth; at++) {
		slots[at].bench = &bench;
		slots[at].buffer = malloc(bench.block_bytes);
		memset(slots[at].buffer, at + 1, bench.block_bytes);
		begin(&slots[at]);
	}
	while (bench.under_way > 0) {
		struct pollfd wait = { .fd = iscsi_get_fd(bench.iscsi),
				       .events = iscsi_which_events(bench.iscsi) };
		if (poll(&wait, 1, 5000) <= 0)
			die("no answer within 5 s", NULL);
		if (iscsi_service(bench.iscsi, wait.revents) < 0)
			die("the connection", bench.iscsi);
	}
	took = now() - begun;
	getrusage(RUSAGE_SELF, &after);
	double cpu = after.ru_utime.tv_sec - before.ru_utime.tv_sec + after.ru_stime.tv_sec -
		     before.ru_stime.tv_sec +
		     1e-6 * (after.ru_utime.tv_usec - before.ru_utime.tv_usec + after.ru_stime.tv_usec -
			     before.ru_stime.tv_usec);
	qsort(bench.latencies, bench.latency_count, sizeof(float), by_size);
	printf("%lu %lu %.3f %.3f %.0f %.0f\n", bench.done, bench.done * bench.block_bytes, took, cpu,
	       bench.latencies[bench.latency_count / 2], bench.latencies[bench.latency_count * 99 / 100]);
	iscsi_logout_sync(bench.iscsi);
	return 0;
}
