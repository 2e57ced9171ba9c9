/*-------------------------------------------------------------------------
 *
 * feed_ring_test.c
 *	  Test of the ring of a feed.
 *
 * A record's contents follow from its number and from the number of the feed,
 * so that whatever is read can be checked by itself.  What the ring knows of
 * lost records is compared with a list of all records.  At last processes
 * append to one ring and reset it, while others read it without a lock.
 *
 *-------------------------------------------------------------------------
 */
#include "gpuvec.h"

#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "mirror/describe/mirror.h"
#include "mirror/feed/feed_ring.h"

/* the system's, not those of the server */
#undef printf
#undef qsort

/* Numbers of feeds, for records of all lengths and for short ones */
#define MIXED_ROWS		1
#define SHORT_ROWS		0

#define LOST_ROWS		10000

#define WRITERS			3
#define READERS			3
#define READS			300		/* least copies of each reader */
#define RESET_EVERY		20011	/* records of a feed */
#define RESETS			2		/* at least, while all readers read */
#define COPIES_A_STOP	64		/* see __wrap_memcpy */
#define STOP_US			50

extern void *__real_memcpy(void *to, const void *from, size_t bytes);
extern void *__wrap_memcpy(void *to, const void *from, size_t bytes);

static long passed = 0;
static long failed = 0;

#ifdef USE_ASSERT_CHECKING
#if PG_VERSION_NUM >= 160000
void
ExceptionalCondition(const char *condition, const char *file, int line)
#else
void
ExceptionalCondition(const char *condition, const char *type, const char *file, int line)
#endif
{
	printf("%s:%d: assertion failed: %s\n", file, line, condition);
	abort();
}
#endif

static void
check(bool ok, const char *what)
{
	if (ok)
		passed++;
	else
	{
		failed++;
		printf("FAILED: %s\n", what);
	}
}

/* A number that looks random (splitmix64, Steele et al. 2014) */
static uint64
scramble(uint64 x)
{
	x += UINT64CONST(0x9E3779B97F4A7C15);
	x = (x ^ x >> 30) * UINT64CONST(0xBF58476D1CE4E5B9);
	x = (x ^ x >> 27) * UINT64CONST(0x94D049BB133111EB);
	return x ^ x >> 31;
}

/* Values of a record: often few, in the feed SHORT_ROWS always */
static uint32
make_length(uint64 feed, uint64 random)
{
	if (feed == SHORT_ROWS)
		return random >> 16 & 3;
	if (random % 50 == 1)
		return FEED_MOST_BYTES / 2;
	return random >> 16 & (random % 7 == 1 ? 511 : 31);
}

/* The record with this number, and its values */
static gpuvec_feed_record
make_record(uint64 feed, uint64 number, uint16 *values)
{
	uint64		random = scramble(feed << 40 | number);
	gpuvec_feed_record record = {
		.kind = random % 5 == 0 ? GPUVEC_FEED_GONE : GPUVEC_FEED_ROW,
		.line = random % 5 == 0 ? 0 : mirror_line(random >> 8 & 0xFF, false),
		.block = random >> 20,
		.len = make_length(feed, random)
	};

	for (uint32 i = 0; i < record.len; i++)
		values[i] = scramble(random + i);
	return record;
}

/* Append one record */
static void
append_record(FeedRing *ring, const gpuvec_feed_record *record, const void *values)
{
	FeedBatch	batch;

	batch.n = batch.bytes = 0;
	(void) FeedBatchAdd(&batch, record, values);
	FeedRingAppend(ring, &batch);
}

static void
append(FeedRing *ring, uint64 feed)
{
	uint16		values[FEED_MOST_BYTES / 2];
	gpuvec_feed_record record = make_record(feed, pg_atomic_read_u64(&ring->number) + 1, values);

	append_record(ring, &record, values);
}

/* Append up to n records together; returns how many */
static uint32
append_some(FeedRing *ring, uint64 feed, uint32 n)
{
	uint16		values[FEED_MOST_BYTES / 2];
	uint64		number = pg_atomic_read_u64(&ring->number);
	FeedBatch	batch;
	gpuvec_feed_record record;

	batch.n = batch.bytes = 0;
	do
		record = make_record(feed, number + batch.n + 1, values);
	while (batch.n < n && FeedBatchAdd(&batch, &record, values));
	FeedRingAppend(ring, &batch);
	return batch.n;
}

/* Are these the records with the numbers from + 1 .. to? */
static bool
are_right(uint64 feed, uint64 from, uint64 to, const char *data, int64 bytes, uint32 rows)
{
	int64		at = 0;

	for (uint64 number = from + 1; number <= to; number++)
	{
		uint16		values[FEED_MOST_BYTES / 2];
		gpuvec_feed_record record = make_record(feed, number, values);

		if (at + (int64) gpuvec_feed_record_bytes(record.len, record.nfilter_keys) > bytes ||
			memcmp(data + at, &record, sizeof(record)) != 0 ||
			memcmp(data + at + sizeof(record), values, record.len * sizeof(uint16)) != 0)
			return false;
		rows -= record.kind == GPUVEC_FEED_ROW ? 1 : record.len;
		at += gpuvec_feed_record_bytes(record.len, record.nfilter_keys);
	}
	return at == bytes && rows == 0;
}

/* Memory that child processes share, with no pattern to rely on */
static void *
shared_memory(size_t size)
{
	void	   *memory = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);

	if (memory == MAP_FAILED)
		abort();
	memset(memory, 0xA5, size);
	return memory;
}

/* What rings have room for */
static uint32 ring_places = FEED_RING_RECORDS;
static uint32 ring_room = FEED_RING_BYTES;

/* A ring that uses so many bytes, or all that it has */
static FeedRing *
new_ring(uint32 capacity)
{
	FeedRing   *ring = shared_memory(feed_ring_bytes(ring_places, ring_room));

	FeedRingInit(ring, ring_places, ring_room);
	FeedRingReset(ring, capacity);
	return ring;
}

static void
free_ring(FeedRing *ring)
{
	munmap(ring, feed_ring_bytes(ring_places, ring_room));
}

/* Copy records while nobody appends: true if they are there and right */
static bool
copies(FeedRing *ring, uint64 feed, uint64 from, uint64 to, Size most, uint64 *copied)
{
	static char data[FEED_RING_BYTES];
	FeedRingSpan span;
	uint32		rows;
	int64		bytes;

	if (!FeedRingPlan(ring, from, to, most, &span) || !FeedRingCopy(ring, &span, data))
		return false;
	*copied = span.to;
	bytes = FeedRingPack(&span, data, &rows);
	return bytes >= 0 && (Size) bytes <= most && are_right(feed, from, span.to, data, bytes, rows);
}

/* What was appended can be copied, from the oldest record on, and no other */
static void
test_copies(uint32 capacity, uint64 feed, int records)
{
	FeedRing   *ring = new_ring(capacity);
	bool		whole = true;
	bool		too_old = false;
	bool		parts = true;
	uint64		to;

	for (int i = 1; i <= records; i++)
	{
		uint64		oldest;
		uint64		number;

		append(ring, feed);
		oldest = pg_atomic_read_u64(&ring->oldest);
		number = pg_atomic_read_u64(&ring->number);
		if (i % 17 != 0 && i > 20)
			continue;
		whole &= copies(ring, feed, oldest - 1, number, SIZE_MAX, &to) && to == number;
		whole &= copies(ring, feed, number - 1, number, SIZE_MAX, &to) && to == number;
		too_old |= oldest > 1 && copies(ring, feed, oldest - 2, number, SIZE_MAX, &to);
		too_old |= copies(ring, feed, number, number + 1, SIZE_MAX, &to);
		for (uint64 from = oldest - 1; from < number; from = to)
			if (!copies(ring, feed, from, number, 8192, &to) || to == from)
			{
				parts = false;
				break;
			}
		parts &= copies(ring, feed, oldest - 1, number, 0, &to) && to == oldest - 1;
	}
	check(whole, "all records that are there are copied");
	check(!too_old, "records that are not there are not copied");
	check(parts, "records are copied in parts");
	check(pg_atomic_read_u64(&ring->number) == (uint64) records, "records are numbered");
	check(pg_atomic_read_u64(&ring->oldest) > 1, "the ring went round");
	free_ring(ring);
}

/* Records that are appended together are those that were given */
static void
test_batches(uint32 capacity, uint64 feed)
{
	FeedRing   *ring = new_ring(capacity);
	uint64		appended = 0;
	uint32		most = 0;
	bool		whole = true;
	uint64		to;

	for (uint64 i = 0; i < 2000; i++)
	{
		uint32		n = append_some(ring, feed, scramble(i) % 80);
		uint64		oldest = pg_atomic_read_u64(&ring->oldest);

		appended += n;
		most = Max(most, n);
		whole &= pg_atomic_read_u64(&ring->number) == appended;
		whole &= copies(ring, feed, oldest - 1, appended, SIZE_MAX, &to) && to == appended;
	}
	check(whole, "records of batches are copied");
	check(most > (feed == SHORT_ROWS ? 60 : 40), "there are large batches");
	check(pg_atomic_read_u64(&ring->oldest) > 1, "the ring went round");
	free_ring(ring);
}

/* A copy that was planned before its records were given up counts as none */
static void
test_overtaken(void)
{
	FeedRing   *ring = new_ring(FEED_RING_LEAST);
	char	   *data = shared_memory(FEED_RING_BYTES);
	FeedRingSpan span;
	uint64		oldest;

	for (int i = 0; i < 1000; i++)
		append(ring, MIXED_ROWS);
	oldest = pg_atomic_read_u64(&ring->oldest);
	check(FeedRingPlan(ring, oldest - 1, 1000, SIZE_MAX, &span) && span.to == 1000 &&
		  FeedRingCopy(ring, &span, data), "a copy of all records that are there");
	while (pg_atomic_read_u64(&ring->oldest) == oldest)
		append(ring, MIXED_ROWS);
	check(!FeedRingCopy(ring, &span, data), "a copy after its first record was given up");
	munmap(data, FEED_RING_BYTES);
	free_ring(ring);
}

/* Records that are not rows are told as such */
static void
test_kinds(void)
{
	FeedRing   *ring = new_ring(FEED_RING_LEAST);
	gpuvec_feed_record page = {.kind = GPUVEC_FEED_PAGE, .block = 7};
	gpuvec_feed_record all = {.kind = GPUVEC_FEED_ALL, .block = InvalidBlockNumber};
	char		data[FEED_RING_LEAST] pg_attribute_aligned(8);
	BlockNumber *blocks = malloc(sizeof(BlockNumber) * 2 * FEED_RING_RECORDS);
	FeedRingSpan span;
	uint32		rows;

	append(ring, MIXED_ROWS);
	append_record(ring, &page, NULL);
	append(ring, MIXED_ROWS);
	check(FeedRingPlan(ring, 0, 1, SIZE_MAX, &span) && FeedRingCopy(ring, &span, data) &&
		  FeedRingPack(&span, data, &rows) > 0, "a row before a page");
	check(FeedRingPlan(ring, 0, 3, SIZE_MAX, &span) && FeedRingCopy(ring, &span, data) &&
		  FeedRingPack(&span, data, &rows) < 0, "a page is not a row");
	check(FeedRingPagesMost(ring, 1) >= 2 && FeedRingPages(ring, 1, 2, blocks) == 1 && blocks[0] == 7,
		  "the page is told");
	check(ring->marked == 2, "the last record that is no row is that of the page");
	append_record(ring, &all, NULL);
	check(ring->marked == 4, "that of all pages is none");
	check(FeedRingPagesMost(ring, 3) < 0, "all pages are not listed");
	check(FeedRingPagesMost(ring, 4) >= 0 && FeedRingPages(ring, 4, 4, blocks) == 0, "after that, none");
	for (int i = 0; i < 2000; i++)
		append(ring, MIXED_ROWS);
	check(FeedRingPagesMost(ring, 3) < 0, "all pages are not forgotten with their record");
	check(ring->marked == 4, "all others were rows");
	free(blocks);
	free_ring(ring);
}

static int
compare_blocks(const void *a, const void *b)
{
	BlockNumber x = *(const BlockNumber *) a;
	BlockNumber y = *(const BlockNumber *) b;

	return x < y ? -1 : x > y;
}

/* Does the sorted list have this page? */
static bool
has_block(const BlockNumber *blocks, uint32 n, BlockNumber block)
{
	return bsearch(&block, blocks, n, sizeof(BlockNumber), compare_blocks) != NULL;
}

/*
 * The pages of the records after `from`, which the ring tells, against a list
 * of all records.  Sets *told if it tells them, *listed to their number.
 */
static bool
pages_right(FeedRing *ring, const BlockNumber *pages, uint64 from, bool *told, uint32 *listed)
{
	uint64		number = pg_atomic_read_u64(&ring->number);
	int64		most = FeedRingPagesMost(ring, from);
	BlockNumber *blocks;
	bool		ok;

	*told = most >= 0;
	*listed = 0;
	if (most < 0)
		return true;
	blocks = malloc(most * sizeof(BlockNumber));
	*listed = FeedRingPages(ring, from, number, blocks);
	ok = *listed <= most;
	qsort(blocks, *listed, sizeof(BlockNumber), compare_blocks);
	for (uint64 i = from + 1; ok && i <= number; i++)
		ok = has_block(blocks, *listed, pages[i]);
	free(blocks);
	return ok;
}

/* Append n rows on pages below `limit`, and note their pages by number */
static void
append_rows(FeedRing *ring, BlockNumber limit, uint32 n, BlockNumber *pages)
{
	uint16		values[FEED_MOST_BYTES / 2];
	FeedBatch	batch;

	batch.n = batch.bytes = 0;
	for (uint32 i = 0; i < n; i++)
	{
		uint64		number = pg_atomic_read_u64(&ring->number) + 1 + batch.n;
		gpuvec_feed_record record = make_record(MIXED_ROWS, number, values);

		pages[number] = record.block = scramble(record.block) % limit;
		if (!FeedBatchAdd(&batch, &record, values))
			break;
	}
	FeedRingAppend(ring, &batch);
}

/*
 * Lost records leave their pages.  Pages are below `limit`; a mirror applies
 * records now and then if `applies`.
 */
static void
test_lost(BlockNumber limit, bool applies, bool tells)
{
	FeedRing   *ring = new_ring(FEED_RING_LEAST + 8);
	BlockNumber *pages = malloc((LOST_ROWS + FEED_BATCH_RECORDS) * sizeof(BlockNumber));
	bool		right = true;
	bool		current = true;
	bool		all = true;
	uint64		applied = 0;

	for (uint64 i = 0; i < LOST_ROWS;)
	{
		uint64		random = scramble(i);
		bool		told;
		uint32		listed;

		append_rows(ring, limit, random % 7 == 0 ? random / 7 % 20 + 1 : 1, pages);
		i = pg_atomic_read_u64(&ring->number);
		if (applies && random % 1000 == 0)
			FeedRingApplied(ring, applied = i - random / 1000 % 2 * (i - applied) / 2);
		if (random % 100 > 1)
			continue;
		right &= pages_right(ring, pages, applied, &told, &listed);
		current &= told;
		right &= pages_right(ring, pages, random / 1000 % (i + 1), &told, &listed);
		right &= pages_right(ring, pages, Max(pg_atomic_read_u64(&ring->oldest), 2) - 2, &told, &listed);
		right &= pages_right(ring, pages, 0, &told, &listed);
		all &= told;
	}
	check(right, "no page of a lost record is missing");
	check(current == tells, "who has applied what others have is told the pages");
	check(all == (tells && !applies), "others are told them until they are forgotten");
	check(ring->lost.count > LOST_ROWS / 2, "records were lost");
	free(pages);
	free_ring(ring);
}

/* Not many more pages are told than there are */
static void
test_lost_exactly(void)
{
	FeedRing   *ring = new_ring(FEED_RING_LEAST);
	BlockNumber pages[2001];
	bool		told;
	uint32		listed;

	for (int i = 1; i <= 2000; i++)
	{
		gpuvec_feed_record record = {.kind = GPUVEC_FEED_PAGE, .block = i % 100};

		pages[i] = record.block;
		append_record(ring, &record, NULL);
	}
	check(pages_right(ring, pages, 0, &told, &listed) && told &&
		  listed == 100 + (2000 - pg_atomic_read_u64(&ring->oldest) + 1),
		  "a lost page is told once");
	FeedRingApplied(ring, 2000);
	FeedRingApplied(ring, 1999);
	check(pg_atomic_read_u64(&ring->applied) == 2000, "a hint does not go back");
	free_ring(ring);
}

/* What the processes of the last test share */
typedef struct Arena
{
	pthread_mutex_t lock;
	pg_atomic_uint64 feed;		/* as in feed_table.h */
	pg_atomic_uint32 reading;	/* readers that are not done */
	pg_atomic_uint64 appended;	/* records */
	pg_atomic_uint64 good;		/* copies that were right */
	pg_atomic_uint64 refused;	/* copies that came too late */
	pg_atomic_uint64 wrong;		/* copies that came too late, unnoticed */
	FeedRing	ring;			/* the last one, as its size varies */
} Arena;

/* As give_slot() in feed_slot.c; the lock is held */
static void
reset_feed(Arena *arena, uint64 feed, uint32 capacity)
{
	pg_atomic_write_u64(&arena->feed, 0);
	pg_write_barrier();
	FeedRingReset(&arena->ring, capacity);
	pg_write_barrier();
	pg_atomic_write_u64(&arena->feed, feed);
}

static void
write_records(Arena *arena)
{
	while (pg_atomic_read_u32(&arena->reading) > 0)
	{
		uint64		feed;
		uint64		left;
		uint32		n;

		pthread_mutex_lock(&arena->lock);
		feed = pg_atomic_read_u64(&arena->feed);
		left = RESET_EVERY - pg_atomic_read_u64(&arena->ring.number);
		n = append_some(&arena->ring, feed, Min(left, 1 + feed % 20));
		if (n == left)
			reset_feed(arena, feed + 1, feed % 2 == 0 ? FEED_RING_LEAST : 3 * FEED_RING_LEAST + 8);
		pthread_mutex_unlock(&arena->lock);
		pg_atomic_fetch_add_u64(&arena->appended, n);
	}
}

/*
 * Linked in place of memcpy(): stop behind a copy now and then, as a busy
 * machine does.  So others meet records that are written or copied, but not
 * yet published or checked, on machines with many cores too.
 */
void *
__wrap_memcpy(void *to, const void *from, size_t bytes)
{
	static _Thread_local uint32 copies = 0;

	__real_memcpy(to, from, bytes);
	if (++copies % COPIES_A_STOP == 0)
		usleep(STOP_US);
	return to;
}

/* Wait until a planned copy comes too late, as a process that is stopped */
static void
wait_too_long(Arena *arena, uint64 feed, const FeedRingSpan *span)
{
	while (pg_atomic_read_u64(&arena->feed) == feed &&
		   pg_atomic_read_u64(&arena->ring.oldest) <= span->from + 1)
		sched_yield();
}

/*
 * Copy records without a lock, as FeedCopyRows() in feed_records.c.  False:
 * nothing was planned.
 */
static bool
read_records(Arena *arena, uint64 random, char *data)
{
	uint64		feed = pg_atomic_read_u64(&arena->feed);
	uint64		number = pg_atomic_read_u64(&arena->ring.number);
	uint64		from;
	FeedRingSpan span;
	uint32		rows;
	int64		bytes;

	pg_read_barrier();
	from = number - Min(number, random % 300);
	if (feed == 0 || !FeedRingPlan(&arena->ring, from, number, FEED_RING_BYTES, &span))
		return false;
	if (random >> 32 & 1)
		wait_too_long(arena, feed, &span);
	if (!FeedRingCopy(&arena->ring, &span, data) || pg_atomic_read_u64(&arena->feed) != feed)
	{
		pg_atomic_fetch_add_u64(&arena->refused, 1);
		return true;
	}
	bytes = FeedRingPack(&span, data, &rows);
	if (bytes >= 0 && are_right(feed, from, span.to, data, bytes, rows))
		pg_atomic_fetch_add_u64(&arena->good, 1);
	else
		pg_atomic_fetch_add_u64(&arena->wrong, 1);
	return true;
}

/* Read often, and until the ring was reset, however fast this process is */
static void
read_often(Arena *arena, uint64 random)
{
	char	   *data = malloc(FEED_RING_BYTES);

	for (int reads = 0; reads < READS || pg_atomic_read_u64(&arena->feed) <= RESETS;)
		reads += read_records(arena, random = scramble(random), data);
	free(data);
	pg_atomic_fetch_sub_u32(&arena->reading, 1);
}

static Arena *
new_arena(void)
{
	Arena	   *arena = shared_memory(sizeof(Arena) + feed_ring_bytes(ring_places, ring_room));
	pthread_mutexattr_t attributes;

	pthread_mutexattr_init(&attributes);
	pthread_mutexattr_setpshared(&attributes, PTHREAD_PROCESS_SHARED);
	pthread_mutex_init(&arena->lock, &attributes);
	pg_atomic_init_u64(&arena->feed, 0);
	pg_atomic_init_u64(&arena->good, 0);
	pg_atomic_init_u64(&arena->refused, 0);
	pg_atomic_init_u64(&arena->wrong, 0);
	pg_atomic_init_u64(&arena->appended, 0);
	pg_atomic_init_u32(&arena->reading, READERS);
	FeedRingInit(&arena->ring, ring_places, ring_room);
	reset_feed(arena, 1, FEED_RING_LEAST);
	return arena;
}

/* Run writers and readers to their end.  False: one has crashed. */
static bool
run_processes(Arena *arena)
{
	pid_t		pids[WRITERS + READERS];
	bool		ok = true;
	int			status;

	fflush(stdout);
	for (int i = 0; i < WRITERS + READERS; i++)
	{
		pids[i] = fork();
		if (pids[i] < 0)
			abort();
		if (pids[i] > 0)
			continue;
		if (i < WRITERS)
			write_records(arena);
		else
			read_often(arena, i);
		_exit(0);
	}
	while (wait(&status) > 0)
	{
		if (status != 0 && ok)
			for (int i = 0; i < WRITERS + READERS; i++)
				kill(pids[i], SIGKILL);
		ok &= status == 0;
	}
	return ok;
}

/* Processes append and reset, others read */
static void
test_together(void)
{
	Arena	   *arena = new_arena();

	if (!run_processes(arena))
	{
		check(false, "no process crashes");
		return;
	}
	check(pg_atomic_read_u64(&arena->appended) == pg_atomic_read_u64(&arena->ring.number) +
		  (pg_atomic_read_u64(&arena->feed) - 1) * RESET_EVERY, "no record is missing");
	check(pg_atomic_read_u64(&arena->feed) > RESETS, "the ring was reset");
	check(pg_atomic_read_u64(&arena->wrong) == 0, "no copy is wrong");
	check(pg_atomic_read_u64(&arena->good) > 0, "there are copies");
	check(pg_atomic_read_u64(&arena->refused) > 0, "there are copies that came too late");
	printf("%llu records, %llu copies, %llu too late\n",
		   (unsigned long long) pg_atomic_read_u64(&arena->appended), (unsigned long long) pg_atomic_read_u64(&arena->good),
		   (unsigned long long) pg_atomic_read_u64(&arena->refused));
	munmap(arena, sizeof(Arena) + feed_ring_bytes(ring_places, ring_room));
}

/* All of it with rings of one size */
static void
test_rings(uint32 places, uint32 room)
{
	ring_places = places;
	ring_room = room;
	test_copies(FEED_RING_LEAST, MIXED_ROWS, 4000);
	test_copies(FEED_RING_LEAST + 8, MIXED_ROWS, 4000);
	test_copies(FEED_RING_BYTES, MIXED_ROWS, 10000);
	test_copies(FEED_RING_BYTES, SHORT_ROWS, 10000);
	test_batches(FEED_RING_LEAST, MIXED_ROWS);
	test_batches(FEED_RING_LEAST + 8, MIXED_ROWS);
	test_batches(FEED_RING_BYTES, MIXED_ROWS);
	test_batches(FEED_RING_BYTES, SHORT_ROWS);
	test_overtaken();
	test_kinds();
	test_lost(1000, false, true);
	test_lost(FEED_LOST_BITS, true, true);
	test_lost(MaxBlockNumber, false, false);
	test_lost(4 * FEED_LOST_BITS, true, true);
	test_lost_exactly();
	test_together();
}

int
main(void)
{
	test_rings(FEED_RING_RECORDS, FEED_RING_BYTES);
	test_rings(FEED_SMALL_RECORDS, FEED_SMALL_BYTES);
	test_rings(FEED_BATCH_RECORDS + 2, FEED_RING_LEAST);
	printf("%ld passed, %ld failed\n", passed, failed);
	return failed > 0;
}
