/*-------------------------------------------------------------------------
 *
 * feed_ring.c
 *	  The ring of a feed: its last records, in shared memory.
 *
 * Records are numbered 1, 2, 3 ... without gaps.  They lie one behind another
 * at positions that only grow; position p is byte p % capacity of data[].  No
 * record lies across the end of data[]: what is left there is filled by
 * GPUVEC_FEED_PAD, of which only the kind is written, as there may be as few
 * as 8 bytes.  ends[] has the position behind each record, and so the one of
 * the next.  blocks[] has the page of each record, as whoever gives a record
 * up would wait for the memory where it lies.
 *
 * Writers have the ring's lock.  A writer appends a run of records, those
 * that lie one behind another:
 *
 *	 1. it gives up the oldest records until there is room: `oldest` goes up;
 *	 2. write barrier;
 *	 3. writes the records, their ends and pages;
 *	 4. write barrier;
 *	 5. publishes the records: `number` goes up.
 *
 * A reader takes no lock, and may be stopped anywhere for as long as it takes
 * the ring to go round several times.  It
 *
 *	 1. reads `number`; read barrier: records up to it are all written;
 *	 2. reads ends[] and copies bytes, which may be anything by then.  Nothing
 *		but the span's size depends on them, and that is checked;
 *	 3. read barrier;
 *	 4. reads `oldest`.  If a byte that it has copied was written for a later
 *		record, then `oldest` had gone beyond the records that lay there
 *		before, and by the barriers the reader sees that.
 *
 * ends[] of the record before the first one is read as well, so one record
 * less is kept than ends[] has places.
 *
 * Lost records.  A record that is given up before it was applied leaves its
 * page in a bitmap, `lost`.  If a page is beyond the bitmap's end, the bitmap
 * is folded, so that each bit stands for twice as many pages.  `applied` is
 * the highest number that some mirror is known to have applied.  It decides
 * only what is remembered: a record up to it leaves nothing, and once it has
 * reached all that was lost, the next record that is lost clears the bitmap.
 * Either way `lost.from` goes up, and a mirror that has not applied
 * `lost.from` has to look at all pages.  So nothing depends on the truth of
 * `applied`.
 *
 *-------------------------------------------------------------------------
 */
#include "gpuvec.h"

#include "mirror/feed/feed_ring.h"


/* Largest record: a row, or the line pointers of a page */
#define MOST_RECORD		gpuvec_feed_record_bytes(FEED_MOST_BYTES / 2, GPUVEC_MAX_FILTERS + 1)

/* FeedRingPages() lists no more pages than this that only the bitmap knows */
#define MOST_PAGES		(2 * FEED_LOST_BITS)

#define LOST_WORD_BITS	64

StaticAssertDecl(FEED_RING_LEAST >= 2 * MOST_RECORD, "a record and what it wastes must fit any ring");
StaticAssertDecl(FEED_RING_BYTES >= FEED_RING_LEAST && FEED_RING_BYTES % 8 == 0,
				 "records are multiples of 8 bytes");

static uint64 *
ends_of(const FeedRing *ring)
{
	return (uint64 *) ring->memory;
}

static BlockNumber *
blocks_of(const FeedRing *ring)
{
	return (BlockNumber *) (ends_of(ring) + ring->places);
}

static char *
data_of(const FeedRing *ring)
{
	return (char *) (blocks_of(ring) + ring->places);
}

void
FeedRingInit(FeedRing *ring, uint32 places, uint32 room)
{
	Assert(places % 2 == 0 && places > FEED_BATCH_RECORDS && room % 8 == 0 && room >= FEED_RING_LEAST);
	ring->places = places;
	ring->room = room;
	pg_atomic_init_u64(&ring->number, 0);
	pg_atomic_init_u64(&ring->oldest, 1);
	pg_atomic_init_u64(&ring->applied, 0);
	FeedRingReset(ring, FEED_RING_LEAST);
}

void
FeedRingReset(FeedRing *ring, uint32 capacity)
{
	Assert(capacity % 8 == 0 && capacity >= FEED_RING_LEAST);
	pg_atomic_write_u64(&ring->number, 0);
	pg_atomic_write_u64(&ring->oldest, 1);
	pg_atomic_write_u64(&ring->applied, 0);
	ring->swept = ring->marked = 0;
	ring->capacity = Min(capacity, ring->room);
	memset(&ring->lost, 0, sizeof(ring->lost));
	ends_of(ring)[0] = 0;
}

/*
 * The position behind a record.  It is read once, as a reader without the
 * lock gets another one when it reads again.
 */
static uint64
end_of(const FeedRing *ring, uint64 number)
{
	return *(const volatile uint64 *) &ends_of(ring)[number % ring->places];
}

/* The record at a position, or the filler there */
static gpuvec_feed_record *
at_position(FeedRing *ring, uint64 position)
{
	return (gpuvec_feed_record *) (data_of(ring) + position % ring->capacity);
}

static bool
has_bit(const FeedLost *lost, uint32 n)
{
	return (lost->bits[n / LOST_WORD_BITS] >> n % LOST_WORD_BITS & 1) != 0;
}

static void
set_bit(FeedLost *lost, uint32 n)
{
	lost->bits[n / LOST_WORD_BITS] |= UINT64CONST(1) << n % LOST_WORD_BITS;
}

/* Let each bit stand for twice as many pages */
static void
fold(FeedLost *lost)
{
	FeedLost	folded = {.from = lost->from, .count = lost->count, .shift = lost->shift + 1};

	for (uint32 i = 0; i < FEED_LOST_BITS; i++)
		if (has_bit(lost, i))
			set_bit(&folded, i / 2);
	*lost = folded;
}

/* Empty the bitmap: only mirrors that have applied `from` are served */
static void
clear_lost(FeedLost *lost, uint64 from)
{
	memset(lost->bits, 0, sizeof(lost->bits));
	lost->shift = 0;
	lost->from = from;
}

/* Remember a page of a record that is given up */
static void
note_lost(FeedLost *lost, BlockNumber block)
{
	while (block >> lost->shift >= FEED_LOST_BITS)
		fold(lost);
	set_bit(lost, block >> lost->shift);
}

/* Remember the pages of the records with the numbers from .. to - 1 */
static void
note_all_lost(FeedRing *ring, uint64 from, uint64 to)
{
	BlockNumber noted = InvalidBlockNumber;

	for (uint64 number = from; number < to; number++)
	{
		BlockNumber block = blocks_of(ring)[number % ring->places];

		ring->lost.count++;
		/* rows of one page often come together; of all pages `swept` tells */
		if (block == noted || block == InvalidBlockNumber)
			continue;
		note_lost(&ring->lost, block);
		noted = block;
	}
}

/*
 * Give up the records with the numbers oldest .. to - 1, at least one.  The
 * bitmap has those in (lost.from, oldest).
 */
static void
give_up(FeedRing *ring, uint64 oldest, uint64 to)
{
	FeedLost   *lost = &ring->lost;
	uint64		applied = pg_atomic_read_u64(&ring->applied);

	if (lost->from < oldest - 1 && applied >= oldest - 1)
		clear_lost(lost, oldest - 1);
	if (applied >= oldest)
		lost->from = Min(applied, to - 1);
	note_all_lost(ring, Max(oldest, applied + 1), to);
}

/* Give up records until those up to this number fit, which end at `end` */
static void
make_room(FeedRing *ring, uint64 number, uint64 end)
{
	uint64		oldest = pg_atomic_read_u64(&ring->oldest);
	uint64		to = oldest;

	while (end - end_of(ring, to - 1) > ring->capacity || number - to + 1 >= ring->places)
		to++;
	if (to == oldest)
		return;
	give_up(ring, oldest, to);
	pg_atomic_write_u64(&ring->oldest, to);
}

bool
FeedBatchAddRow(FeedBatch *batch, const gpuvec_feed_record *record, const void *values,
				const void *filter_keys)
{
	uint32		bytes = gpuvec_feed_record_bytes(record->len, record->nfilter_keys);
	char	   *to = batch->data + batch->bytes;
	Size		used = sizeof(*record) + record->len * sizeof(uint16);

	Assert(bytes <= MOST_RECORD);
	if (batch->n == FEED_BATCH_RECORDS || bytes > sizeof(batch->data) - batch->bytes)
		return false;
	memcpy(to, record, sizeof(*record));
	if (record->len > 0)
		memcpy(to + sizeof(*record), values, used - sizeof(*record));
	memset(to + used, 0, bytes - used);
	if (record->nfilter_keys > 0)
		memcpy(to + bytes - record->nfilter_keys * sizeof(uint64), filter_keys, record->nfilter_keys * sizeof(uint64));
	batch->n++;
	batch->bytes += bytes;
	return true;
}

bool
FeedBatchAdd(FeedBatch *batch, const gpuvec_feed_record *record, const void *values)
{
	Assert(record->nfilter_keys == 0);
	return FeedBatchAddRow(batch, record, values, NULL);
}

/* How many of n records take at most `most` bytes?  Sets *bytes to these. */
static uint32
count_run(const char *records, uint32 n, uint32 most, uint32 *bytes)
{
	uint32		i;

	*bytes = 0;
	for (i = 0; i < n; i++)
	{
		const gpuvec_feed_record *record = (const gpuvec_feed_record *) (records + *bytes);
		uint32		next = *bytes + gpuvec_feed_record_bytes(record->len, record->nfilter_keys);

		if (next > most)
			break;
		*bytes = next;
	}
	return i;
}

/* Write down ends and pages of n records behind this number and position */
static void
note_run(FeedRing *ring, uint64 number, uint64 end, const char *records, uint32 n)
{
	while (n-- > 0)
	{
		const gpuvec_feed_record *record = (const gpuvec_feed_record *) records;
		uint32		bytes = gpuvec_feed_record_bytes(record->len, record->nfilter_keys);

		number++;
		records += bytes;
		end += bytes;
		ends_of(ring)[number % ring->places] = end;
		blocks_of(ring)[number % ring->places] =
			record->kind == GPUVEC_FEED_ALL ? InvalidBlockNumber : record->block;
		if (record->kind == GPUVEC_FEED_ALL)
			ring->swept = number;
		if (record->kind == GPUVEC_FEED_ALL || record->kind == GPUVEC_FEED_PAGE)
			ring->marked = number;
	}
}

/*
 * Append those of n records that lie one behind another, at least one.
 * Returns their number and *bytes.  They take no more than half of the ring,
 * and what is left before the end of data[] takes less than a record.
 */
static uint32
append_run(FeedRing *ring, const char *records, uint32 n, uint32 *bytes)
{
	uint64		number = pg_atomic_read_u64(&ring->number);
	uint64		begin = end_of(ring, number);
	uint32		left = ring->capacity - begin % ring->capacity;
	uint32		filler = 0;

	if (left < gpuvec_feed_record_bytes(((const gpuvec_feed_record *) records)->len,
										((const gpuvec_feed_record *) records)->nfilter_keys))
	{
		filler = left;
		left = ring->capacity;
	}
	n = count_run(records, n, Min(left, ring->capacity / 2), bytes);
	make_room(ring, number + n, begin + filler + *bytes);
	pg_write_barrier();
	if (filler > 0)
		at_position(ring, begin)->kind = GPUVEC_FEED_PAD;
	memcpy(at_position(ring, begin + filler), records, *bytes);
	note_run(ring, number, begin + filler, records, n);
	pg_write_barrier();
	pg_atomic_write_u64(&ring->number, number + n);
	return n;
}

void
FeedRingAppend(FeedRing *ring, const FeedBatch *batch)
{
	uint32		at = 0;
	uint32		bytes;

	for (uint32 n = 0; n < batch->n; at += bytes)
		n += append_run(ring, batch->data + at, batch->n - n, &bytes);
}

void
FeedRingApplied(FeedRing *ring, uint64 number)
{
	uint64		known = pg_atomic_read_u64(&ring->applied);

	while (known < number && !pg_atomic_compare_exchange_u64(&ring->applied, &known, number))
		 /* again */ ;
}

/*
 * The last of the records with the numbers from + 1 .. to that ends at most
 * `most` bytes behind `begin`; `from` if none does
 */
static uint64
last_within(const FeedRing *ring, uint64 from, uint64 to, uint64 begin, Size most)
{
	while (from < to)
	{
		uint64		middle = to - (to - from) / 2;

		if (end_of(ring, middle) - begin <= most)
			from = middle;
		else
			to = middle - 1;
	}
	return from;
}

bool
FeedRingPlan(FeedRing *ring, uint64 from, uint64 to, Size most, FeedRingSpan *span)
{
	uint64		number = pg_atomic_read_u64(&ring->number);
	uint64		bytes;

	pg_read_barrier();
	if (from > to || to > number || from + 1 < pg_atomic_read_u64(&ring->oldest))
		return false;
	span->from = from;
	span->capacity = *(volatile uint32 *) &ring->capacity;
	span->begin = end_of(ring, from);
	span->to = last_within(ring, from, to, span->begin, Min(most, span->capacity));
	bytes = end_of(ring, span->to) - span->begin;
	span->bytes = (uint32) bytes;
	/* ends[] may be those of later records by then */
	return bytes <= Min(most, span->capacity);
}

bool
FeedRingCopy(FeedRing *ring, const FeedRingSpan *span, char *to)
{
	uint32		at = span->begin % span->capacity;
	uint32		first = Min(span->bytes, span->capacity - at);

	memcpy(to, data_of(ring) + at, first);
	memcpy(to + first, data_of(ring), span->bytes - first);
	pg_read_barrier();
	return pg_atomic_read_u64(&ring->oldest) <= span->from + 1;
}

int64
FeedRingPack(const FeedRingSpan *span, char *data, uint32 *rows)
{
	uint32		in = 0;
	uint32		out = 0;

	*rows = 0;
	for (uint64 number = span->from + 1; number <= span->to; number++)
	{
		const gpuvec_feed_record *record = (gpuvec_feed_record *) (data + in);
		uint32		bytes;

		if (record->kind == GPUVEC_FEED_PAD)
		{
			in += span->capacity - (span->begin + in) % span->capacity;
			record = (gpuvec_feed_record *) (data + in);
		}
		if (record->kind != GPUVEC_FEED_ROW && record->kind != GPUVEC_FEED_GONE)
			return -1;
		*rows += record->kind == GPUVEC_FEED_ROW ? 1 : record->len;
		bytes = gpuvec_feed_record_bytes(record->len, record->nfilter_keys);
		memmove(data + out, record, bytes);
		in += bytes;
		out += bytes;
	}
	return out;
}

/* The number of pages that the bitmap stands for */
static uint64
lost_pages(const FeedLost *lost)
{
	uint64		n = 0;

	/* as many rounds as bits: each clears the lowest */
	for (uint32 i = 0; i < lengthof(lost->bits); i++)
		for (uint64 word = lost->bits[i]; word != 0; word &= word - 1)
			n++;
	return n << lost->shift;
}

int64
FeedRingPagesMost(FeedRing *ring, uint64 from)
{
	uint64		oldest = pg_atomic_read_u64(&ring->oldest);
	uint64		lost = from + 1 < oldest ? lost_pages(&ring->lost) : 0;

	if (ring->swept > from || ring->lost.from > from || lost > MOST_PAGES)
		return -1;
	return lost + ring->places;
}

/* List the pages that the bitmap stands for */
static uint32
list_lost(const FeedLost *lost, BlockNumber *blocks)
{
	uint32		n = 0;

	for (uint32 i = 0; i < FEED_LOST_BITS; i++)
		for (uint32 page = 0; has_bit(lost, i) && page < UINT32_C(1) << lost->shift; page++)
			blocks[n++] = (i << lost->shift) + page;
	return n;
}

uint32
FeedRingPages(FeedRing *ring, uint64 from, uint64 to, BlockNumber *blocks)
{
	uint64		oldest = pg_atomic_read_u64(&ring->oldest);
	uint32		n = 0;

	if (from + 1 < oldest)
	{
		n = list_lost(&ring->lost, blocks);
		from = oldest - 1;
	}
	while (from < to)
		blocks[n++] = blocks_of(ring)[++from % ring->places];
	return n;
}
