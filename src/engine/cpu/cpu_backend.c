/*-------------------------------------------------------------------------
 *
 * cpu_backend.c
 *	  The backend that needs no GPU: opening it, and splitting a search over
 *	  threads.
 *
 * Queries are sorted by length and cut into batches as wide as the instruction
 * set's masks (a few queries alone are scanned one by one).  A part of the search
 * is a batch and every n-th segment, taken in the order of closeness of the
 * segment's lengths to the batch's, so that good rows are found early.  Each part
 * keeps its own best rows; all parts of a query share its bound; what they found
 * is merged and sorted at the end.
 *
 *-------------------------------------------------------------------------
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/sysinfo.h>

#include "engine/cpu/cpu_backend.h"

/* Parts for each thread, so that uneven ones even out */
#define PARTS_PER_THREAD	4

typedef struct cpu_backend
{
	gpuvec_backend base;
	gpuvec_pool *pool;
	cpu_simd	simd;
} cpu_backend;

/* A search on its way */
typedef struct cpu_search
{
	cpu_backend *backend;
	const gpuvec_view *view;
	gpuvec_measure measure;
	uint32_t	nqueries;
	cpu_query  *queries;		/* sorted by length */
	cpu_query **pointers;		/* to them */
	uint32_t	width;			/* queries of a batch */
	uint32_t	nbatches;
	uint32_t	nsplits;		/* parts of a batch */
	uint32_t   *order;			/* [nbatches * nentries] */
	cpu_part   *parts;			/* [nbatches * nsplits] */
	best_rows  *best;			/* [nsplits * nqueries] */
	int			failed;			/* atomic */
} cpu_search;

/*
 * Batches no larger than this are searched query by query: a pass over the rows
 * costs a batch as much as so many lone queries, by instruction set.
 */
static const uint32_t lone_queries[] = {0, 2, 2, 12};

static const char *const simd_names[] = {"", "portable C", "AVX2", "AVX-512"};

/* The best instruction set of this machine, or the one that is asked for */
static cpu_simd
choose_simd(int asked)
{
	cpu_simd	best = SIMD_PORTABLE;

	if (__builtin_cpu_supports("avx2"))
		best = SIMD_AVX2;
	if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
		__builtin_cpu_supports("avx512vl"))
		best = SIMD_AVX512;
	return asked >= SIMD_PORTABLE && asked < (int) best ? (cpu_simd) asked : best;
}

static void
cpu_info(gpuvec_backend *backend, gpuvec_backend_info *info)
{
	cpu_backend *cpu = (cpu_backend *) backend;
	struct sysinfo machine;

	memset(info, 0, sizeof(*info));
	snprintf(info->name, sizeof(info->name), "cpu");
	snprintf(info->device, sizeof(info->device), "%s", simd_names[cpu->simd]);
	info->threads = gpuvec_pool_threads(cpu->pool);
	if (sysinfo(&machine) == 0)
	{
		info->memory_total = (size_t) machine.totalram * machine.mem_unit;
		info->memory_free = (size_t) machine.freeram * machine.mem_unit;
	}
}

/* Nothing has to be copied: the scans read the host's memory */
static bool
cpu_adopt_segment(gpuvec_backend *backend, gpuvec_segment *segment, gpuvec_error *error)
{
	(void) error;
	segment->backend = backend;
	return true;
}

static bool
cpu_adopt_livemap(gpuvec_backend *backend, gpuvec_livemap *map, gpuvec_error *error)
{
	(void) error;
	map->backend = backend;
	return true;
}

static bool
cpu_adopt_view(gpuvec_backend *backend, gpuvec_view *view, gpuvec_error *error)
{
	(void) error;
	view->backend = backend;
	return true;
}

static void
cpu_release_segment(gpuvec_backend *backend, gpuvec_segment *segment)
{
	(void) backend;
	(void) segment;
}

static void
cpu_release_livemap(gpuvec_backend *backend, gpuvec_livemap *map)
{
	(void) backend;
	(void) map;
}

static void
cpu_release_view(gpuvec_backend *backend, gpuvec_view *view)
{
	(void) backend;
	(void) view;
}

static bool
cpu_read_ids(gpuvec_backend *backend, const gpuvec_segment *segment, uint16_t *ids,
			 gpuvec_error *error)
{
	(void) backend;
	(void) error;
	memcpy(ids, segment->ids, segment->nchunks * GPUVEC_TILE_ROWS * GPUVEC_CHUNK_IDS *
		   sizeof(uint16_t));
	return true;
}

/* Order of queries: by length */
static int
compare_queries(const void *a, const void *b)
{
	const gpuvec_topk_query *x = ((const cpu_query *) a)->query;
	const gpuvec_topk_query *y = ((const cpu_query *) b)->query;

	if (x->len != y->len)
		return x->len < y->len ? -1 : 1;
	return x < y ? -1 : x > y;
}

/* An entry of a view and how far its lengths are from the batch's */
typedef struct near_entry
{
	uint32_t	entry;
	uint32_t	distance;
} near_entry;

static int
compare_near(const void *a, const void *b)
{
	const near_entry *x = a;
	const near_entry *y = b;

	if (x->distance != y->distance)
		return x->distance < y->distance ? -1 : 1;
	return x->entry < y->entry ? -1 : x->entry > y->entry;
}

/* Distance of a length from a segment's */
static uint32_t
length_distance(const gpuvec_segment *segment, uint32_t len)
{
	if (len < segment->minlen)
		return segment->minlen - len;
	return len > segment->maxlen ? len - segment->maxlen : 0;
}

/* Set up the parts of one batch */
static void
make_parts(cpu_search *search, uint32_t batch, near_entry *near)
{
	uint32_t	nentries = search->view->nentries;
	uint32_t	first = batch * search->width;
	uint32_t	n = search->nqueries - first < search->width ?
		search->nqueries - first : search->width;
	uint32_t	middle = search->queries[first + n / 2].query->len;
	uint32_t   *order = search->order + (size_t) batch * nentries;
	uint32_t	placed = 0;

	for (uint32_t i = 0; i < nentries; i++)
		near[i] = (near_entry) {i, length_distance(search->view->entries[i].segment, middle)};
	qsort(near, nentries, sizeof(*near), compare_near);

	for (uint32_t split = 0; split < search->nsplits; split++)
	{
		cpu_part   *part = &search->parts[batch * search->nsplits + split];

		part->view = search->view;
		part->order = order;
		part->first_entry = placed;
		for (uint32_t i = split; i < nentries; i += search->nsplits)
			order[placed++] = near[i].entry;
		part->end_entry = placed;
		part->nqueries = n;
		part->queries = search->pointers + first;
		part->best = search->best + (size_t) split * search->nqueries + first;
		part->measure = search->measure;
		for (uint32_t q = 0; q < n; q++)
			part->best[q].shared = part->queries[q];
	}
}

/* Scan one part; by a thread of the pool */
static void
scan_part(void *task, uint64_t number, int thread)
{
	cpu_search *search = task;
	/* first the first parts of all batches: they have the nearest segments */
	cpu_part   *part = &search->parts[number % search->nbatches * search->nsplits +
									  number / search->nbatches];
	bool		ok;

	(void) thread;
	if (search->width == 1)
		ok = search->backend->simd == SIMD_AVX512 ? scan_lone_avx512(part) : scan_lone_portable(part);
	else
		ok = search->backend->simd == SIMD_AVX512 ? scan_batch_avx512(part) :
			search->backend->simd == SIMD_AVX2 ? scan_batch_avx2(part) : scan_batch_portable(part);
	for (uint32_t q = 0; q < part->nqueries; q++)
		ok = ok && !part->best[q].failed;
	if (!ok)
		__atomic_store_n(&search->failed, 1, __ATOMIC_RELAXED);
}

/* The order of results */
static int
compare_best(const void *a, const void *b)
{
	const best_row *x = a;
	const best_row *y = b;

	if (x->key != y->key)
		return x->key < y->key ? -1 : 1;
	return x->tid < y->tid ? -1 : x->tid > y->tid;
}

/* Merge what the parts found for one query; by a thread of the pool */
static void
merge_query(void *task, uint64_t number, int thread)
{
	cpu_search *search = task;
	gpuvec_topk_query *query = (gpuvec_topk_query *) search->queries[number].query;
	uint64_t	total = 0;
	uint64_t	n = 0;
	best_row   *rows;

	(void) thread;
	query->nmatches = 0;
	if (query->canceled && __atomic_load_n(query->canceled, __ATOMIC_RELAXED))
		return;
	for (uint32_t split = 0; split < search->nsplits; split++)
		total += search->best[(size_t) split * search->nqueries + number].n;
	if (total == 0)
		return;
	rows = malloc(total * sizeof(best_row));
	if (rows == NULL)
	{
		__atomic_store_n(&search->failed, 1, __ATOMIC_RELAXED);
		return;
	}
	for (uint32_t split = 0; split < search->nsplits; split++)
	{
		best_rows  *best = &search->best[(size_t) split * search->nqueries + number];

		if (best->n > 0)
			memcpy(rows + n, best->rows, best->n * sizeof(best_row));
		n += best->n;
	}
	qsort(rows, total, sizeof(best_row), compare_best);
	query->nmatches = total < query->k ? (uint32_t) total : query->k;
	for (uint32_t i = 0; i < query->nmatches; i++)
		query->matches[i] = (gpuvec_match) {
			.score = gpuvec_key_score(rows[i].key),.tid = rows[i].tid,.common = rows[i].common
		};
	free(rows);
}

/* Copy the queries' conditions, and sort them */
static void
make_queries(cpu_search *search, gpuvec_topk_query *queries)
{
	for (uint32_t i = 0; i < search->nqueries; i++)
	{
		cpu_query  *mine = &search->queries[i];

		mine->query = &queries[i];
		mine->measure = search->measure;
		mine->bound = queries[i].has_min_score ? gpuvec_score_key(queries[i].min_score) : UINT64_MAX;
		mine->has_after = queries[i].has_after;
		if (mine->has_after)
		{
			mine->after_key = gpuvec_score_key(queries[i].after_score);
			mine->after_tid = queries[i].after_tid;
		}
	}
	qsort(search->queries, search->nqueries, sizeof(cpu_query), compare_queries);
	for (uint32_t i = 0; i < search->nqueries; i++)
		search->pointers[i] = &search->queries[i];
}

/* Allocate a search's arrays */
static bool
allocate_search(cpu_search *search)
{
	size_t		n = search->nqueries;

	search->queries = calloc(n, sizeof(cpu_query));
	search->pointers = calloc(n, sizeof(cpu_query *));
	search->order = calloc((size_t) search->nbatches * search->view->nentries, sizeof(uint32_t));
	search->parts = calloc((size_t) search->nbatches * search->nsplits, sizeof(cpu_part));
	search->best = calloc(n * search->nsplits, sizeof(best_rows));
	return search->queries && search->pointers && search->order && search->parts && search->best;
}

/* Free a search's arrays */
static void
free_search(cpu_search *search)
{
	for (size_t i = 0; search->best && i < (size_t) search->nqueries * search->nsplits; i++)
		free(search->best[i].rows);
	free(search->queries);
	free(search->pointers);
	free(search->order);
	free(search->parts);
	free(search->best);
}

/* How many queries and segments make a part? */
static void
choose_sizes(cpu_search *search)
{
	static const uint32_t widths[] = {0, 64, 256, 512};
	uint32_t	threads = (uint32_t) gpuvec_pool_threads(search->backend->pool);

	search->width = search->nqueries <= lone_queries[search->backend->simd] ? 1 : widths[search->backend->simd];
	search->nbatches = (search->nqueries + search->width - 1) / search->width;
	search->nsplits = 1;
	if (threads > 1)
		search->nsplits = (threads * PARTS_PER_THREAD + search->nbatches - 1) / search->nbatches;
	if (search->nsplits > search->view->nentries)
		search->nsplits = search->view->nentries;
}

static bool
cpu_topk(gpuvec_backend *backend, const gpuvec_view *view, gpuvec_measure measure,
		 gpuvec_method method, gpuvec_topk_query *queries, uint32_t nqueries, gpuvec_error *error)
{
	cpu_search	search = {
		.backend = (cpu_backend *) backend,.view = view,.measure = measure,.nqueries = nqueries
	};
	near_entry *near;

	(void) method;
	for (uint32_t i = 0; i < nqueries; i++)
		queries[i].nmatches = 0;
	if (nqueries == 0 || view->nentries == 0)
		return true;
	choose_sizes(&search);
	near = malloc(view->nentries * sizeof(near_entry));
	if (near == NULL || !allocate_search(&search))
		search.failed = 1;
	else
	{
		make_queries(&search, queries);
		for (uint32_t batch = 0; batch < search.nbatches; batch++)
			make_parts(&search, batch, near);
		gpuvec_pool_run(search.backend->pool, scan_part, &search,
						(uint64_t) search.nbatches * search.nsplits);
		if (!search.failed)
			gpuvec_pool_run(search.backend->pool, merge_query, &search, nqueries);
	}
	free(near);
	free_search(&search);
	return !search.failed || gpuvec_fail_memory(error, 0);
}

static void
cpu_close(gpuvec_backend *backend)
{
	cpu_backend *cpu = (cpu_backend *) backend;

	gpuvec_pool_free(cpu->pool);
	free(cpu);
}

gpuvec_backend *
gpuvec_cpu_open(const gpuvec_backend_options *options, gpuvec_error *error)
{
	cpu_backend *cpu = calloc(1, sizeof(*cpu));

	if (cpu != NULL)
		cpu->pool = gpuvec_pool_new(options->threads);
	if (cpu == NULL || cpu->pool == NULL)
	{
		free(cpu);
		gpuvec_fail(error, GPUVEC_SYSTEM_ERROR, NULL, NULL,
					"could not start the threads of the gpuvec engine");
		return NULL;
	}
	cpu->simd = choose_simd(options->simd);
	cpu->base = (gpuvec_backend) {
		.name = "cpu",
		.info = cpu_info,
		.adopt_segment = cpu_adopt_segment,
		.adopt_livemap = cpu_adopt_livemap,
		.adopt_view = cpu_adopt_view,
		.release_segment = cpu_release_segment,
		.release_livemap = cpu_release_livemap,
		.release_view = cpu_release_view,
		.read_ids = cpu_read_ids,
		.topk = cpu_topk,
		.close = cpu_close
	};
	return &cpu->base;
}
