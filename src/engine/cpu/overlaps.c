/*-------------------------------------------------------------------------
 *
 * overlaps.c
 *	  Rows that pairs of queries find.
 *
 * Some entries of the view are taken at a time, in two steps, each of which
 * all threads share:
 *
 *	1. Each entry gets a vector of bits for each query: the rows that share a
 *	   number with it.  Hot numbers are found in the tiles, of which each is
 *	   read once for all queries: a table has the queries of each number.  Cold
 *	   ones are found in the postings.  Only live rows of pages whose rows are
 *	   counted stay.  Other live rows that any query finds are noted.
 *	2. The bits that two vectors have in common are counted, for a square of
 *	   pairs at a time.
 *
 * What it costs: 10 million rows have 1.25 MB of bits for each query.  With
 * 1,000 queries each of these is read for 32 squares, and 80 billion pairs of
 * words are counted: eight at a time by AVX-512, one at a time by others.
 *
 *-------------------------------------------------------------------------
 */
#include <stdlib.h>
#include <string.h>

#include "engine/cpu/cpu_backend.h"

/* Bytes of vectors at a time, but those of one entry at least */
#define VECTOR_BYTES	((size_t) 128 * 1024 * 1024)

/* Queries on a side of a square */
#define SQUARE			32

/* Slices of the second step for each thread, if squares are few */
#define SLICES_PER_THREAD	4

/* The queries that have each hot number */
typedef struct number_queries
{
	uint32_t	first[GPUVEC_HOT_NUMBERS + 1];	/* positions in queries[] */
	uint16_t   *queries;
} number_queries;

/* What was found in one entry */
typedef struct entry_rows
{
	const gpuvec_view_entry *entry;
	uint64_t   *bits;			/* [queries][stride] */
	size_t		stride;			/* words of a query: a multiple of
								 * OVERLAP_WORDS */
	uint64_t   *tids;			/* [ntids] of other rows; or NULL */
	uint32_t	ntids;
} entry_rows;

/* A count that is running */
typedef struct overlaps_task
{
	gpuvec_overlaps *overlaps;
	bit_pairs  *count;
	number_queries *numbers;
	uint32_t	leading_pages;	/* see cpu_query */
	uint32_t	nentries;		/* at a time */
	entry_rows *rows;			/* [nentries] */
	uint64_t   *bits;			/* of all of them */
	uint32_t	nsquares;		/* on a side of all pairs */
	uint32_t	nparts;			/* of the entries, in the second step */
	int			failed;			/* atomic: out of memory */
} overlaps_task;

static bool
is_canceled(const overlaps_task *task)
{
	const int  *canceled = task->overlaps->canceled;

	return canceled != NULL && __atomic_load_n(canceled, __ATOMIC_RELAXED);
}

/* ---- the queries of each number ---- */

/* NULL: out of memory */
static number_queries *
make_numbers(const gpuvec_overlaps *overlaps)
{
	number_queries *numbers = malloc(sizeof(*numbers));

	if (numbers == NULL)
		return NULL;
	numbers->queries = malloc((gpuvec_overlaps_hot(overlaps) + (size_t) 1) * sizeof(uint16_t));
	if (numbers->queries)
		gpuvec_overlaps_numbers(overlaps, numbers->first, numbers->queries);
	return numbers;
}

static void
free_numbers(number_queries *numbers)
{
	if (numbers)
		free(numbers->queries);
	free(numbers);
}

/* ---- the first step ---- */

static inline void
set_bit(uint64_t *bits, uint32_t row)
{
	bits[row / 64] |= UINT64_C(1) << (row % 64);
}

/* Mark the rows of a tile that share hot numbers with queries */
static void
mark_tile(const number_queries *numbers, entry_rows *mine, uint32_t tile)
{
	const gpuvec_segment *segment = mine->entry->segment;
	const uint16_t *ids = segment->ids + (size_t) segment->tile_chunk[tile] *
		GPUVEC_TILE_ROWS * GPUVEC_CHUNK_IDS;
	uint32_t	first = tile * GPUVEC_TILE_ROWS;
	uint32_t	n = segment->nrows - first < GPUVEC_TILE_ROWS ? segment->nrows - first :
		GPUVEC_TILE_ROWS;

	for (uint32_t r = 0; r < n; r++)
	{
		uint32_t	len = gpuvec_hot_len(segment, first + r);

		for (uint32_t i = 0; i < len; i++)
		{
			uint16_t	id = ids[(i / GPUVEC_CHUNK_IDS * GPUVEC_TILE_ROWS + r) * GPUVEC_CHUNK_IDS +
								 i % GPUVEC_CHUNK_IDS];

			for (uint32_t at = numbers->first[id]; at < numbers->first[id + 1]; at++)
				set_bit(mine->bits + numbers->queries[at] * mine->stride, first + r);
		}
	}
}

/* Mark the rows that share cold numbers with queries */
static void
mark_cold(const overlaps_task *task, entry_rows *mine)
{
	const gpuvec_overlaps *overlaps = task->overlaps;
	const gpuvec_segment *segment = mine->entry->segment;

	for (uint32_t q = 0; segment->ncold > 0 && q < overlaps->n && !is_canceled(task); q++)
		for (uint32_t i = 0; i < overlaps->queries[q].ncold; i++)
		{
			gpuvec_cold_run run = gpuvec_segment_find_cold(segment, overlaps->queries[q].cold[i]);

			for (uint64_t at = run.first; at < run.end; at++)
				set_bit(mine->bits + q * mine->stride, segment->cold_row[at]);
		}
}

/*
 * The live rows of an entry, of pages whose rows are counted (counted) and of
 * others.  False: all rows are counted.
 */
static bool
divide_rows(const overlaps_task *task, const entry_rows *mine, uint64_t *counted, uint64_t *others)
{
	const gpuvec_segment *segment = mine->entry->segment;
	bool		all = gpuvec_tid_block(segment->last_tid) < task->leading_pages;

	if (all && mine->entry->live == NULL)
		return false;
	memset(counted, 0, mine->stride * sizeof(uint64_t));
	memset(others, 0, mine->stride * sizeof(uint64_t));
	for (uint32_t row = 0; row < segment->nrows; row++)
		if (gpuvec_entry_live(mine->entry, row))
			set_bit(all || gpuvec_page_set_has(&task->overlaps->counts,
											   gpuvec_tid_block(segment->tid[row])) ?
					counted : others, row);
	return true;
}

/* Note those of other rows that any query finds.  False: out of memory. */
static bool
note_others(const overlaps_task *task, entry_rows *mine, uint64_t *others)
{
	uint64_t	any[GPUVEC_SEGMENT_ROWS / 64] = {0};
	uint32_t	n = 0;

	for (uint32_t q = 0; q < task->overlaps->n; q++)
		for (uint32_t w = 0; w < mine->stride; w++)
			any[w] |= mine->bits[q * mine->stride + w];
	for (uint32_t w = 0; w < mine->stride; w++)
		n += (uint32_t) __builtin_popcountll(others[w] &= any[w]);
	if (n == 0)
		return true;
	mine->tids = malloc(n * sizeof(uint64_t));
	for (uint32_t w = 0; mine->tids && w < mine->stride; w++)
		for (; others[w] != 0; others[w] &= others[w] - 1)
			mine->tids[mine->ntids++] =
				mine->entry->segment->tid[w * 64 + (uint32_t) __builtin_ctzll(others[w])];
	return mine->tids != NULL;
}

/* The first step, for one entry; called by a thread of the pool */
static void
find_rows(void *arg, uint64_t number, int thread)
{
	overlaps_task *task = arg;
	entry_rows *mine = &task->rows[number];
	uint64_t	counted[GPUVEC_SEGMENT_ROWS / 64];
	uint64_t	others[GPUVEC_SEGMENT_ROWS / 64];

	(void) thread;
	memset(mine->bits, 0, task->overlaps->n * mine->stride * sizeof(uint64_t));
	for (uint32_t tile = 0; tile < mine->entry->segment->ntiles && !is_canceled(task); tile++)
		mark_tile(task->numbers, mine, tile);
	mark_cold(task, mine);
	if (!divide_rows(task, mine, counted, others))
		return;
	if (!note_others(task, mine, others))
		__atomic_store_n(&task->failed, 1, __ATOMIC_RELAXED);
	for (uint32_t q = 0; q < task->overlaps->n; q++)
		for (uint32_t w = 0; w < mine->stride; w++)
			mine->bits[q * mine->stride + w] &= counted[w];
}

/* ---- the second step ---- */

/* The square with this number: column and line, column <= line */
static void
find_square(uint64_t number, uint32_t *column, uint32_t *line)
{
	*line = 0;
	while (number > *line)
		number -= ++*line;
	*column = (uint32_t) number;
}

/* Add the counts of a square to the answer; threads may share it */
static void
add_square(gpuvec_overlaps *overlaps, uint32_t a, uint32_t na, uint32_t b, uint32_t nb,
		   const uint64_t *sums)
{
	for (uint32_t i = 0; i < na; i++)
		for (uint32_t j = 0; j < nb; j++)
			if (b + j >= a + i && sums[i * SQUARE + j] > 0)
				__atomic_fetch_add(&overlaps->pairs[gpuvec_overlap_pair(overlaps->n, a + i) +
													b + j - (a + i)],
								   sums[i * SQUARE + j], __ATOMIC_RELAXED);
}

/*
 * The second step, for a square of pairs and a part of the entries; called by
 * a thread of the pool
 */
static void
count_square(void *arg, uint64_t number, int thread)
{
	overlaps_task *task = arg;
	gpuvec_overlaps *overlaps = task->overlaps;
	uint64_t	sums[SQUARE * SQUARE] = {0};
	uint32_t	column;
	uint32_t	line;
	uint32_t	a;
	uint32_t	b;
	uint32_t	na;
	uint32_t	nb;

	(void) thread;
	find_square(number / task->nparts, &column, &line);
	a = column * SQUARE;
	b = line * SQUARE;
	na = overlaps->n - a < SQUARE ? overlaps->n - a : SQUARE;
	nb = overlaps->n - b < SQUARE ? overlaps->n - b : SQUARE;
	for (uint32_t e = (uint32_t) (number % task->nparts); e < task->nentries && !is_canceled(task);
		 e += task->nparts)
	{
		const entry_rows *rows = &task->rows[e];

		task->count(rows->bits + a * rows->stride, na, rows->bits + b * rows->stride, nb,
					rows->stride, (uint32_t) rows->stride, sums, SQUARE);
	}
	add_square(overlaps, a, na, b, nb, sums);
}

/* ---- both ---- */

/* Words of a vector of an entry */
static size_t
vector_words(const gpuvec_view_entry *entry)
{
	uint32_t	rows = OVERLAP_WORDS * 64;

	return (entry->segment->nrows + rows - 1) / rows * OVERLAP_WORDS;
}

/* Take entries from `first` on, as many as memory may be taken for */
static void
take_entries(overlaps_task *task, const gpuvec_view *view, uint32_t first)
{
	size_t		words = 0;

	task->nentries = 0;
	for (uint32_t i = first; i < view->nentries; i++)
	{
		entry_rows *mine = &task->rows[task->nentries];
		size_t		mine_words = vector_words(&view->entries[i]) * task->overlaps->n;

		if (i > first && (words + mine_words) * sizeof(uint64_t) > VECTOR_BYTES)
			return;
		mine->entry = &view->entries[i];
		mine->stride = vector_words(&view->entries[i]);
		mine->bits = task->bits + words;
		mine->tids = NULL;
		mine->ntids = 0;
		words += mine_words;
		task->nentries++;
	}
}

/* The words that any entries take which are taken together */
static size_t
most_words(const gpuvec_view *view, uint32_t n)
{
	size_t		most = 0;
	size_t		all = 0;

	for (uint32_t i = 0; i < view->nentries; i++)
	{
		size_t		words = vector_words(&view->entries[i]) * n;

		all += words;
		if (words > most)
			most = words;
	}
	if (most * sizeof(uint64_t) < VECTOR_BYTES)
		most = VECTOR_BYTES / sizeof(uint64_t);
	return all < most ? all : most;
}

/* Append the tids that were noted to the answer.  False: out of memory. */
static bool
append_tids(overlaps_task *task)
{
	gpuvec_overlaps *overlaps = task->overlaps;
	uint64_t	total = overlaps->ntids;
	uint64_t   *tids;

	for (uint32_t i = 0; i < task->nentries; i++)
		total += task->rows[i].ntids;
	if (total == overlaps->ntids)
		return true;
	tids = realloc(overlaps->tids, total * sizeof(uint64_t));
	if (tids == NULL)
		return false;
	overlaps->tids = tids;
	for (uint32_t i = 0; i < task->nentries; i++)
	{
		const entry_rows *rows = &task->rows[i];

		if (rows->ntids > 0)
			memcpy(tids + overlaps->ntids, rows->tids, rows->ntids * sizeof(uint64_t));
		overlaps->ntids += rows->ntids;
	}
	return true;
}

/* Both steps, for the entries that were taken.  False: out of memory. */
static bool
run_steps(overlaps_task *task, gpuvec_thread_pool *pool)
{
	uint32_t	squares = task->nsquares * (task->nsquares + 1) / 2;
	uint32_t	threads = (uint32_t) gpuvec_thread_pool_threads(pool);
	bool		ok;

	gpuvec_thread_pool_run(pool, find_rows, task, task->nentries);
	ok = !task->failed && append_tids(task);
	for (uint32_t i = 0; i < task->nentries; i++)
		free(task->rows[i].tids);
	task->nparts = 1;
	if (threads > 1 && squares < threads * SLICES_PER_THREAD)
		task->nparts = threads * SLICES_PER_THREAD / squares;
	if (task->nparts > task->nentries)
		task->nparts = task->nentries;
	if (ok)
		gpuvec_thread_pool_run(pool, count_square, task, (uint64_t) squares * task->nparts);
	return ok;
}

static bit_pairs *
choose_count(cpu_simd simd)
{
	if (simd == SIMD_AVX512 && gpuvec_processor_has("avx512vpopcntdq"))
		return bit_pairs_avx512;
	return simd >= SIMD_AVX2 && gpuvec_processor_has("popcnt") ? bit_pairs_avx2 :
		bit_pairs_portable;
}

bool
cpu_overlaps(gpuvec_backend *backend, const gpuvec_view *view, gpuvec_overlaps *overlaps,
			 gpuvec_error *error)
{
	cpu_backend *cpu = (cpu_backend *) backend;
	size_t		words = most_words(view, overlaps->n);
	overlaps_task task = {
		.overlaps = overlaps, .count = choose_count(cpu->simd),
		.leading_pages = best_leading_pages(&overlaps->counts),
		.nsquares = (overlaps->n + SQUARE - 1) / SQUARE, .numbers = make_numbers(overlaps),
		.rows = malloc((view->nentries + (size_t) 1) * sizeof(entry_rows)),
		.bits = aligned_alloc(64, (words + OVERLAP_WORDS) * sizeof(uint64_t))
	};
	bool		ok = task.numbers && task.numbers->queries && task.rows && task.bits;

	overlaps->tids = NULL;
	overlaps->ntids = 0;
	for (uint32_t first = 0; ok && first < view->nentries && !is_canceled(&task);
		 first += task.nentries)
	{
		take_entries(&task, view, first);
		ok = run_steps(&task, cpu->pool);
	}
	free_numbers(task.numbers);
	free(task.rows);
	free(task.bits);
	return ok || gpuvec_fail_memory(error, words * sizeof(uint64_t));
}
