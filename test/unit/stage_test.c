/*-------------------------------------------------------------------------
 *
 * stage_test.c
 *	  Test of staging rows and building segments from them, and of
 *	  fingerprints.
 *
 * A row's length and ids follow from its tid, so that whatever comes out can
 * be checked by itself; sums tell that nothing is missing.
 *
 *-------------------------------------------------------------------------
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/store/fingerprint.h"
#include "engine/sets/id_numbers.h"
#include "engine/sets/stage.h"

static long passed = 0;
static long failed = 0;

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
static uint64_t
scramble(uint64_t x)
{
	x += UINT64_C(0x9E3779B97F4A7C15);
	x = (x ^ x >> 30) * UINT64_C(0xBF58476D1CE4E5B9);
	x = (x ^ x >> 27) * UINT64_C(0x94D049BB133111EB);
	return x ^ x >> 31;
}

/* Ids of a row: mostly few, some many, very few more than a chunk takes */
static uint32_t
length_of(uint64_t tid)
{
	uint64_t	random = scramble(tid);
	uint64_t	kind = random % 10000;

	random >>= 32;
	return (uint32_t) (kind == 0 ? 30000 + random % 35537 : kind < 100 ? random % 1000 : random % 120);
}

/* The i-th id of a row with so many */
static uint16_t
id_of(uint64_t tid, uint32_t len, uint32_t i)
{
	uint32_t	step = len > 0 ? GPUVEC_MAX_IDS / len : 1;

	return (uint16_t) (scramble(~tid) % step + i * step);
}

/* Block of the n-th row: ascending, or not */
static uint32_t
block_of(uint64_t n, bool ordered)
{
	/* many digits, and all of them */
	return ordered ? (uint32_t) (n / 20 * 4099) : (uint32_t) (scramble(n / 20) % UINT32_MAX);
}

/* What is staged, or found */
typedef struct sums
{
	uint64_t	rows;
	uint64_t	ids;
	uint64_t	tids;
} sums;

/* Bytes that are in use while segments are built */
typedef struct usage
{
	size_t		most;
	size_t		built;			/* of segments, when it was told last */
} usage;

static bool
progress(void *arg, size_t built, size_t staged, gpuvec_error *error)
{
	usage	   *u = arg;

	(void) error;
	if (built + staged > u->most)
		u->most = built + staged;
	u->built = built;
	return true;
}

/* Does a row have its ids, and 0 up to the end of its tile's chunks? */
static bool
row_right(const gpuvec_segment *segment, uint32_t row, uint32_t last)
{
	uint32_t	tile = row / GPUVEC_TILE_ROWS;
	uint32_t	places = (segment->tile_chunk[tile + 1] - segment->tile_chunk[tile]) * GPUVEC_CHUNK_IDS;
	bool		exists = row < last;
	uint32_t	len = exists ? segment->len[row] : 0;
	bool		right = !exists || len == length_of(segment->tid[row]);

	for (uint32_t i = 0; i < places; i++)
	{
		size_t		at = (((size_t) segment->tile_chunk[tile] + i / GPUVEC_CHUNK_IDS) * GPUVEC_TILE_ROWS +
						  row % GPUVEC_TILE_ROWS) * GPUVEC_CHUNK_IDS + i % GPUVEC_CHUNK_IDS;

		right &= segment->ids[at] == (i < len ? id_of(segment->tid[row], len, i) : 0);
	}
	return right && len <= places;
}

/* Search for tids that some rows have, or nearly */
static void
check_find(const gpuvec_segment *segment)
{
	bool		found = true;

	for (int i = 0; i < 50; i++)
	{
		uint32_t	row = i < 2 ? segment->by_tid[i * (segment->nrows - 1)] :
			(uint32_t) scramble(segment->first_tid + (uint64_t) i) % segment->nrows;
		uint64_t	tid = segment->tid[row] + (uint64_t) (i % 3) - 1;
		uint32_t	before = 0;

		for (uint32_t j = 0; j < segment->nrows; j++)
			before += segment->tid[j] < tid;
		found &= gpuvec_segment_find(segment, tid) == before;
	}
	check(found, "positions of tids");
}

/* Check a segment, but of a wide one not the ids, and add it up */
static void
check_segment(const gpuvec_segment *segment, bool wide, sums *found)
{
	bool		rows = true;
	bool		sorted = true;
	bool		by_tid = true;

	for (uint32_t row = 0; !wide && row < segment->ntiles * GPUVEC_TILE_ROWS; row++)
		rows &= row_right(segment, row, segment->nrows);
	for (uint32_t row = 0; row < segment->nrows; row++)
	{
		sorted &= row == 0 || segment->len[row - 1] < segment->len[row] ||
			(segment->len[row - 1] == segment->len[row] && segment->tid[row - 1] < segment->tid[row]);
		by_tid &= row == 0 ||
			segment->tid[segment->by_tid[row - 1]] < segment->tid[segment->by_tid[row]];
		found->rows++;
		found->ids += segment->len[row];
		found->tids += scramble(segment->tid[row]);
	}
	check(rows, "ids of rows and what pads them");
	check(sorted, "the order of rows");
	check(by_tid, "the order by tid");
	check_find(segment);
}

/* Every other one of so many first rows lasts */
#define LASTING_ROWS	10000

static uint16_t *lasting[LASTING_ROWS];

/* Free the stage, and what lasted until then */
static void
free_stage(gpuvec_stage *stage)
{
	gpuvec_stage_free(stage);
	for (int i = 0; i < LASTING_ROWS; i++)
	{
		free(lasting[i]);
		lasting[i] = NULL;
	}
}

/* Stage rows, of which those at or beyond nblocks are left out */
static void
stage_rows(gpuvec_stage *stage, uint64_t n, bool ordered, uint32_t nblocks, sums *staged)
{
	uint16_t   *ids = malloc(GPUVEC_MAX_IDS * sizeof(uint16_t));
	gpuvec_error error;
	bool		ok = true;

	for (uint64_t i = 0; i < n; i++)
	{
		uint64_t	tid = gpuvec_tid(block_of(i, ordered), i % 20 + 1);
		uint32_t	len = length_of(tid);

		bool		last = i < LASTING_ROWS && i % 2 == 0;
		uint16_t   *mine = ids;

		if (last)
			mine = lasting[i] = malloc((len + 1) * sizeof(uint16_t));
		for (uint32_t j = 0; j < len; j++)
			mine[j] = id_of(tid, len, j);
		gpuvec_source_row row = {.tid = tid,.len = len,.ids = mine};

		ok &= gpuvec_stage_add(stage, &row, last, &error);
		if (gpuvec_tid_block(tid) >= nblocks)
			continue;
		staged->rows++;
		staged->ids += len;
		staged->tids += scramble(tid);
	}
	free(ids);
	check(ok && gpuvec_stage_rows(stage) == n, "all rows are staged");
}

/* Readers of a load, who stage ranges of so many rows in turn */
#define READERS		3
#define RANGE_ROWS	50

/*
 * Stage what one of several readers has read.  wide: some ids of most rows
 * are cold.  Rows at or beyond nblocks are left out.
 */
static gpuvec_stage *
stage_share(uint64_t n, uint64_t reader, bool wide, uint32_t nblocks, sums *staged)
{
	gpuvec_stage *stage = gpuvec_stage_new((gpuvec_row_kind) {0});
	uint16_t   *ids = malloc((2 * GPUVEC_MAX_IDS + 2) * sizeof(uint16_t));
	uint32_t   *numbers = malloc(GPUVEC_MAX_IDS * sizeof(uint32_t));
	gpuvec_error error;
	bool		ok = true;

	for (uint64_t i = 0; i < n; i++)
	{
		uint64_t	tid = gpuvec_tid(i / 20, i % 20 + 1);
		uint32_t	len = length_of(tid);
		gpuvec_source_row row = {.tid = tid,.len = len,.ids = ids};

		if (i / RANGE_ROWS % READERS != reader)
			continue;
		for (uint32_t j = 0; j < len; j++)
			ids[j] = id_of(tid, len, j);
		if (wide)
		{
			for (uint32_t j = 0; j < len; j++)
				numbers[j] = ids[j] + (j >= scramble(tid + 1) % 200 ? UINT32_C(1) << 20 : 0);
			gpuvec_pack_numbers(numbers, len, ids, &row);
		}
		ok &= gpuvec_stage_add(stage, &row, false, &error);
		if (gpuvec_tid_block(tid) >= nblocks)
			continue;
		staged->rows++;
		staged->ids += len;
		staged->tids += scramble(tid);
	}
	free(ids);
	free(numbers);
	check(ok, "rows of a reader are staged");
	return stage;
}

/* Is a segment behind another one, which may be NULL? */
static bool
follows(const gpuvec_segment *segment, const gpuvec_segment *before)
{
	uint32_t	last = before ? before->nrows - 1 : 0;

	return before == NULL || before->len[last] < segment->len[0] ||
		(before->len[last] == segment->len[0] && before->tid[last] < segment->tid[0]);
}

/*
 * Rows that several readers have staged are in the order of one reader's, in
 * one segment or many
 */
static void
test_unite(gpuvec_backend *backend, gpuvec_thread_pool *pool, uint64_t n, int shares, bool wide,
		   uint32_t nblocks)
{
	sums		staged = {0};
	sums		found = {0};
	usage		used = {0};
	gpuvec_stage *stage = stage_share(n, 0, wide, nblocks, &staged);
	gpuvec_segment **segments;
	uint32_t	nsegments;
	gpuvec_error error;
	gpuvec_stage_target target = {
		.pool = pool,.backend = backend,.nblocks = nblocks,.shares = shares,.progress = progress,.arg = &used
	};
	bool		ordered = true;

	for (uint64_t reader = 1; reader < READERS; reader++)
	{
		gpuvec_stage *other = stage_share(n, reader, wide, nblocks, &staged);

		check(gpuvec_stage_unite(stage, other, &error), "stages are united");
		check(gpuvec_stage_rows(other) == 0 && gpuvec_stage_bytes(other) == 0, "nothing stays behind");
		gpuvec_stage_free(other);
	}
	check(gpuvec_stage_rows(stage) == n, "all rows are staged");
	target.nrows = staged.rows;
	if (!gpuvec_stage_build(stage, &target, &segments, &nsegments, &error))
	{
		check(false, error.message);
		return;
	}
	check(nsegments == gpuvec_segments_needed(backend, staged.rows, shares), "the number of segments");
	for (uint32_t i = 0; i < nsegments; i++)
	{
		ordered &= follows(segments[i], i > 0 ? segments[i - 1] : NULL);
		check_segment(segments[i], wide, &found);
	}
	check(ordered, "the order of segments");
	for (uint32_t i = 0; i < nsegments; i++)
		gpuvec_segment_unref(segments[i]);
	free(segments);
	check(memcmp(&found, &staged, sizeof(found)) == 0, "rows of all readers are found");
	check(gpuvec_stage_bytes(stage) < 4 * 1024 * 1024, "hardly anything stays staged");
	gpuvec_stage_free(stage);
}

/* Stage rows and build segments of them */
static void
test_build(gpuvec_backend *backend, gpuvec_thread_pool *pool, uint64_t n, bool ordered, uint32_t nblocks)
{
	gpuvec_stage *stage = gpuvec_stage_new((gpuvec_row_kind) {0});
	sums		staged = {0};
	sums		found = {0};
	usage		used = {0};
	size_t		size = 0;
	size_t		charge = 0;
	gpuvec_segment **segments;
	uint32_t	nsegments;
	gpuvec_error error;
	gpuvec_stage_target target = {
		.pool = pool,.backend = backend,.nblocks = nblocks,.shares = gpuvec_thread_pool_threads(pool),.progress = progress,.arg = &used
	};

	stage_rows(stage, n, ordered, nblocks, &staged);
	target.nrows = staged.rows;
	/*
	 * lengths vary so much here that chunks which are hardly used weigh most
	 */
	check(gpuvec_stage_bytes(stage) < gpuvec_stage_estimate(stage) * 3 / 2 + 16 * 1024 * 1024,
		  "staged rows take not much more than segments");
	check(gpuvec_stage_lent(stage) == (n <= 4096 ? (n + 1) / 2 : 0), "rows that are not copied, if there are few");
	if (staged.rows == 0)
	{
		free_stage(stage);
		return;
	}
	if (!gpuvec_stage_build(stage, &target, &segments, &nsegments, &error))
	{
		check(false, error.message);
		return;
	}
	for (uint32_t i = 0; i < nsegments; i++)
	{
		check_segment(segments[i], false, &found);
		size += segments[i]->host_bytes;
		charge += gpuvec_segment_charge(segments[i]);
		gpuvec_segment_unref(segments[i]);
	}
	free(segments);
	check(memcmp(&found, &staged, sizeof(found)) == 0, "all rows are found");
	check(used.most < size * 3 / 2 + 8 * 1024 * 1024, "memory while segments are built");
	check(used.built == charge, "at last it is that of the segments");
	if (nblocks == UINT32_MAX)
		check(gpuvec_stage_bytes(stage) < 4 * 1024 * 1024, "hardly anything stays staged");
	free_stage(stage);
}

/* A byte that changes, moves or is cut off must show */
static void
test_fingerprints(void)
{
	unsigned char data[300];
	bool		same = true;
	bool		differ = true;

	for (size_t i = 0; i < sizeof(data); i++)
		data[i] = (unsigned char) scramble(i);
	for (size_t n = 0; n < sizeof(data); n++)
	{
		gpuvec_fingerprint whole = gpuvec_fingerprint_of(data, n);

		same &= gpuvec_fingerprint_equal(whole, gpuvec_fingerprint_of(data, n));
		differ &= !gpuvec_fingerprint_equal(whole, gpuvec_fingerprint_of(data, n + 1));
		for (size_t i = 0; i < n; i++)
		{
			data[i] ^= 1;
			differ &= !gpuvec_fingerprint_equal(whole, gpuvec_fingerprint_of(data, n));
			data[i] ^= 1;
		}
	}
	check(same, "fingerprints of the same bytes");
	check(differ, "fingerprints of other bytes");
}

/* adopt_segment of the backend */
static bool (*adopt_segment) (gpuvec_backend *backend, gpuvec_segment *segment, gpuvec_error *error);

/*
 * The same with what is done in the background: from then on the segment's
 * bytes stay what they are
 */
static bool
adopt_finished(gpuvec_backend *backend, gpuvec_segment *segment, gpuvec_error *error)
{
	if (!adopt_segment(backend, segment, error))
		return false;
	backend->finish_segment(backend, segment);
	return true;
}

int
main(void)
{
	gpuvec_backend_options options = {.threads = 2};
	gpuvec_error error;
	gpuvec_backend *backend = gpuvec_cpu_open(&options, &error);
	gpuvec_thread_pool *pool = gpuvec_thread_pool_new(2);
	static const uint64_t sizes[] = {1, 31, 100, 4096, 4097, 20000, 250000};

	adopt_segment = backend->adopt_segment;
	backend->adopt_segment = adopt_finished;
	test_fingerprints();
	for (int i = 0; i < 7; i++)
		for (int ordered = 0; ordered < 2; ordered++)
		{
			test_build(backend, pool, sizes[i], ordered != 0, UINT32_MAX);
			test_build(backend, pool, sizes[i], ordered != 0, (uint32_t) (sizes[i] / 40 * 4099 + 1));
		}
	for (int i = 0; i < 7; i++)
		for (int wide = 0; wide < 2; wide++)
		{
			test_unite(backend, pool, sizes[i], 1, wide != 0, UINT32_MAX);
			test_unite(backend, pool, sizes[i], 30, wide != 0, UINT32_MAX);
			test_unite(backend, pool, sizes[i], 30, wide != 0, (uint32_t) (sizes[i] / 33 + 1));
		}
	gpuvec_thread_pool_free(pool);
	backend->close(backend);
	printf("%ld passed, %ld failed\n", passed, failed);
	return failed > 0;
}
