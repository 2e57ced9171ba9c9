/*-------------------------------------------------------------------------
 *
 * sparse_batch.c
 *	  The scan by measures of sparse vectors, for a batch of queries.
 *
 * A scan for each query would look up each number of each row, and nearly all
 * for nothing.  So each number has a list of terms: the queries that have it,
 * and their weights.  A row's numbers are walked through once, and each term
 * is added to the sum of its query.
 *
 * Then all sums of the row are compared with the lines of their queries
 * (core/sparse_bound.h), and made ready for the next row.  The few rows that
 * reach a line are noted as candidates.  They are offered query by query, as
 * the tables of a scratch are those of one.  Until queries have bounds, all
 * rows are candidates.  So there is room for a few candidates of each query,
 * and when it is full, they are offered.
 *
 * Most lists are empty, and most others short.  A branch for each would be
 * mispredicted.  So lists that are not empty are found first, without one.
 * Then the first terms of each are copied, as many as a list may have that is
 * short, and the next list's go behind those that it has.
 *
 * A row has no id of the query if its sum is -0.  Sums begin with -0, and are
 * that again only if all terms are: no two floats add up to -0 otherwise.
 * Such terms are negative products, too small for a float.  The row's score
 * is negative then.  That is less than the 0 of a row without an id, so it may
 * be left out where these are.
 *
 *-------------------------------------------------------------------------
 */
#include <stdlib.h>
#include <string.h>

#include "engine/cpu/scan_lone.h"
#include "engine/cpu/sparse_rows.h"

/* Sums are compared in vectors of so many; divides SPARSE_BATCH_MOST */
#define STEP			16

/*
 * Nanoseconds for each number of a row: looked up once for the batch; for
 * each of its first terms, which are copied, and each other; and looked up for
 * each query (test/bench, AMD EPYC of Zen 5, portable C)
 */
#define NUMBER_NS		1.3
#define FIRST_TERM_NS	2.0
#define FIRST_TERMS		3
#define TERM_NS			0.5
#define LONE_NUMBER_NS	0.65

/* Candidates for each query */
#define ROOM			32

/* Entries of lists[]: the first term, and in the lower bits their number */
#define COUNT_BITS		10
#define COUNT_MASK		((UINT32_C(1) << COUNT_BITS) - 1)

#define NO_CANDIDATE	UINT32_MAX

/* Lists whose terms are added at a time, and the terms that are copied */
#define PIECE			128
#define SHORT			8

/* The bits of -0 */
#define NO_HIT			UINT32_C(0x80000000)

/* A list of a row's number, and the row's value */
typedef struct found_list
{
	uint32_t	list;
	float		value;
} found_list;

/* A row that may be good enough for a query */
typedef struct sparse_candidate
{
	uint32_t	row;
	uint32_t	next;			/* of the same query; NO_CANDIDATE: none */
	float		sum;
} sparse_candidate;

typedef struct batch_query
{
	sparse_search search;
	bool		searches;		/* the current entry */
	const uint64_t *mask;		/* rows of it that take part; NULL: all live
								 * ones */
	uint32_t	candidates;		/* the last one */
} batch_query;

typedef struct sparse_batch
{
	cpu_slice  *slice;
	sparse_scratch *scratch;
	uint16_t   *term_queries;	/* of each number, the queries that have it */
	float	   *weights;		/* and what it weighs there */
	uint32_t	n;				/* queries */
	uint32_t	width;			/* the same as a multiple of STEP */
	gpuvec_sparse_measure measure;
	batch_query queries[SPARSE_BATCH_MOST];

	/* of each query, and of those that fill the last step */
	float		sums[SPARSE_BATCH_MOST];
	float		base[SPARSE_BATCH_MOST];	/* its line */
	float		slope[SPARSE_BATCH_MOST];
	uint32_t	all[SPARSE_BATCH_MOST]; /* 1: rows without an id of the query
										 * may be good enough, too */
	uint32_t	reached[SPARSE_BATCH_MOST]; /* 1: a row may be */

	const gpuvec_view_entry *entry;
	uint64_t   *mask;			/* rows of the entry that any query takes;
								 * NULL: all live ones */
	uint64_t	masks[GPUVEC_SEGMENT_ROWS / 64];
	uint32_t	ncandidates;
	sparse_candidate candidates[SPARSE_BATCH_MOST * ROOM];
} sparse_batch;

/* ---- lines ---- */

/* Make the line of a query; one that no sum reaches if it does not search */
static void
set_line(sparse_batch *batch, uint32_t q)
{
	const batch_query *query = &batch->queries[q];
	gpuvec_sparse_line line = {INFINITY, 0};

	if (query->searches)
		line = gpuvec_sparse_make_line(&query->search.bound, query->search.score);
	batch->base[q] = line.base;
	batch->slope[q] = line.slope;
	batch->all[q] = query->searches && !(query->search.score > 0);
}

/*
 * Find out which queries a row may be good enough for, by its sums; true if
 * there are any.  The sums begin anew.
 */
static bool
compare_sums(sparse_batch *batch, float place)
{
	uint32_t	any = 0;

	for (uint32_t q = 0; q < batch->width; q++)
	{
		gpuvec_sparse_line line = {batch->base[q], batch->slope[q]};
		float		sum = batch->sums[q];
		uint32_t	bits;

		memcpy(&bits, &sum, sizeof(bits));
		batch->reached[q] = (uint32_t) gpuvec_sparse_reaches(sum, line, place) &
			((uint32_t) (bits != NO_HIT) | batch->all[q]);
		any |= batch->reached[q];
	}
	return any != 0;
}

/* ---- candidates ---- */

/* Offer the candidates of a query */
static void
offer_query(sparse_batch *batch, batch_query *query)
{
	sparse_search *search = &query->search;
	const gpuvec_view_entry *entry = batch->entry;
	sparse_cold none = {NULL, 0};
	bool		begun = false;

	for (uint32_t i = query->candidates; i != NO_CANDIDATE; i = batch->candidates[i].next)
	{
		const sparse_candidate *candidate = &batch->candidates[i];
		uint32_t	bits;

		memcpy(&bits, &candidate->sum, sizeof(bits));
		if (!sparse_wants(search, entry->segment, candidate->row, candidate->sum, bits != NO_HIT))
			continue;
		if (!begun)
			sparse_begin(batch->scratch, search->best->query);
		begun = true;
		sparse_offer(batch->scratch, search->best, entry, candidate->row, none);
	}
	if (begun)
		sparse_end(batch->scratch);
	query->candidates = NO_CANDIDATE;
}

/* Offer all candidates, and follow the bounds */
static void
offer_candidates(sparse_batch *batch)
{
	for (uint32_t q = 0; q < batch->n; q++)
	{
		batch_query *query = &batch->queries[q];
		uint64_t	key = query->search.key;

		if (query->candidates != NO_CANDIDATE)
			offer_query(batch, query);
		sparse_read_bound(&query->search);
		if (query->search.key != key)
			set_line(batch, q);
	}
	batch->ncandidates = 0;
}

/* Note that a row may be good enough for a query */
static void
add_candidate(sparse_batch *batch, uint32_t q, uint32_t row)
{
	batch_query *query = &batch->queries[q];

	if (!query->searches || !mask_has(query->mask, row))
		return;
	batch->candidates[batch->ncandidates] = (sparse_candidate) {row, query->candidates, batch->sums[q]};
	query->candidates = batch->ncandidates++;
}

/* ---- rows ---- */

static inline __attribute__((always_inline)) float
make_term(float weight, float value, bool minima)
{
	return minima ? (weight < value ? weight : value) : weight * value;
}

/*
 * Find the lists of n numbers of a row, where any query has the number;
 * returns the end of what was found
 */
static inline __attribute__((always_inline)) found_list *
find_lists(const uint32_t *lists, const uint16_t *ids, const float *values, uint32_t n, found_list *found,
		   bool has_values)
{
	for (uint32_t i = 0; i < n; i++)
	{
		found->list = lists[ids[i]];
		found->value = has_values ? values[i] : 1;
		found += found->list != 0;
	}
	return found;
}

/* Copy the first terms of a list, no matter how many it has */
static inline __attribute__((always_inline)) void
copy_list(uint16_t *restrict queries, float *restrict terms, const uint16_t *query,
		  const float *restrict weight, float value, bool minima)
{
	memcpy(queries, query, SHORT * sizeof(*query));
	for (int i = 0; i < SHORT; i++)
		terms[i] = make_term(weight[i], value, minima);
}

/* Add up the terms of some lists */
static inline __attribute__((always_inline)) void
add_lists(sparse_batch *batch, const found_list *found, const found_list *end, bool minima)
{
	float	   *sums = batch->sums;
	uint16_t	queries[PIECE * SHORT + SHORT];
	float		terms[PIECE * SHORT + SHORT];
	uint32_t	nterms = 0;

	for (; found < end; found++)
	{
		uint32_t	count = found->list & COUNT_MASK;
		const uint16_t *query = batch->term_queries + (found->list >> COUNT_BITS);
		const float *weight = batch->weights + (found->list >> COUNT_BITS);
		float		value = found->value;

		if (count > SHORT)
		{
			for (uint32_t j = 0; j < count; j++)
				sums[query[j]] += make_term(weight[j], value, minima);
			continue;
		}
		copy_list(queries + nterms, terms + nterms, query, weight, value, minima);
		nterms += count;
	}
	for (uint32_t i = 0; i < nterms; i++)
		sums[queries[i]] += terms[i];
}

/* Add up the terms of a row */
static inline __attribute__((always_inline)) void
add_terms(sparse_batch *batch, const gpuvec_segment *segment, uint32_t row, bool minima, bool has_values)
{
	const uint32_t *lists = batch->scratch->lists;
	uint32_t	len = gpuvec_hot_len(segment, row);
	const uint16_t *ids = row_ids(segment, row);
	const float *values = has_values ? segment->values + (ids - segment->ids) : NULL;
	found_list	found[PIECE];
	found_list *end = found;

	for (uint32_t i = 0; i < len; i += GPUVEC_CHUNK_IDS)
	{
		if (len - i >= GPUVEC_CHUNK_IDS)
			end = find_lists(lists, ids, values, GPUVEC_CHUNK_IDS, end, has_values);
		else
			end = find_lists(lists, ids, values, len - i, end, has_values);
		ids += CHUNK_VALUES;
		if (has_values)
			values += CHUNK_VALUES;
		if (end > found + PIECE - GPUVEC_CHUNK_IDS || len - i <= GPUVEC_CHUNK_IDS)
		{
			add_lists(batch, found, end, minima);
			end = found;
		}
	}
}

/* Compare a row's sums with the lines, and begin anew */
static void
end_row(sparse_batch *batch, const gpuvec_segment *segment, uint32_t row)
{
	float		place = gpuvec_sparse_place(batch->measure, sparse_row_square(segment, row),
											sparse_row_own(batch->measure, segment, row));
	bool		refused = sparse_row_refused(batch->measure, segment, row);

	if (compare_sums(batch, place) || refused)
		for (uint32_t q = 0; q < batch->n; q++)
			if (batch->reached[q] || refused)
				add_candidate(batch, q, row);
	for (uint32_t q = 0; q < batch->width; q++)
		batch->sums[q] = -0.0f;
}

/* Scan some rows of a tile */
static inline __attribute__((always_inline)) void
scan_tile(sparse_batch *batch, uint32_t tile, uint32_t rows, bool minima, bool has_values)
{
	const gpuvec_segment *segment = batch->entry->segment;

	for (; rows != 0; rows &= rows - 1)
	{
		uint32_t	row = tile * GPUVEC_TILE_ROWS + (uint32_t) __builtin_ctz(rows);

		add_terms(batch, segment, row, minima, has_values);
		end_row(batch, segment, row);
		/* a row has one candidate of each query */
		if (batch->ncandidates + batch->n > batch->n * ROOM)
			offer_candidates(batch);
	}
}

/* ---- entries ---- */

/* Find out which queries search an entry, and its rows; true if any does */
static bool
begin_entry(sparse_batch *batch, uint32_t number)
{
	const gpuvec_view_entry *entry = &batch->slice->view->entries[number];
	uint32_t	nwords = (entry->segment->nrows + 63) / 64;
	bool		any = false;
	bool		all = false;

	batch->entry = entry;
	memset(batch->masks, 0, nwords * sizeof(uint64_t));
	for (uint32_t q = 0; q < batch->n; q++)
	{
		batch_query *query = &batch->queries[q];

		query->searches = query_searches(query->search.best->query, number, &query->mask);
		sparse_read_bound(&query->search);
		set_line(batch, q);
		any |= query->searches;
		all |= query->searches && query->mask == NULL;
		for (uint32_t w = 0; query->searches && !all && w < nwords; w++)
			batch->masks[w] |= query->mask[w];
	}
	batch->mask = all ? NULL : batch->masks;
	return any;
}

/* Scan a slice's part of an entry.  False if all queries were canceled. */
static bool
scan_entry(sparse_batch *batch)
{
	const gpuvec_segment *segment = batch->entry->segment;
	uint32_t	end = sparse_first_tile(batch->slice, segment, batch->slice->part + 1);
	bool		minima = batch->measure == GPUVEC_SPARSE_JACCARD;

	for (uint32_t tile = sparse_first_tile(batch->slice, segment, batch->slice->part); tile < end; tile++)
	{
		uint32_t	rows = sparse_tile_rows(batch->entry, batch->mask, tile);

		if (tile % SPARSE_TILE_STRIDE == 0)
		{
			if (slice_canceled(batch->slice))
				return false;
			offer_candidates(batch);
		}
		if (minima && segment->sums)
			scan_tile(batch, tile, rows, true, true);
		else if (minima)
			scan_tile(batch, tile, rows, true, false);
		else if (segment->sums)
			scan_tile(batch, tile, rows, false, true);
		else
			scan_tile(batch, tile, rows, false, false);
	}
	offer_candidates(batch);
	return true;
}

/* ---- the batch ---- */

/* Begin with no sums; those that fill the last step have lines of no query */
static void
begin_queries(sparse_batch *batch, cpu_slice *slice, sparse_scratch *scratch, const uint32_t *queries,
			  uint32_t n)
{
	batch->slice = slice;
	batch->scratch = scratch;
	batch->n = n;
	batch->width = (n + STEP - 1) / STEP * STEP;
	batch->measure = gpuvec_scoring_sparse(slice->queries[queries[0]]->scoring);
	batch->ncandidates = 0;
	for (uint32_t q = 0; q < n; q++)
	{
		batch->queries[q].search = sparse_make_search(scratch, NULL, &slice->best[queries[q]]);
		batch->queries[q].candidates = NO_CANDIDATE;
	}
	for (uint32_t q = 0; q < batch->width; q++)
	{
		batch->sums[q] = -0.0f;
		batch->base[q] = INFINITY;
		batch->slope[q] = 0;
		batch->all[q] = 0;
	}
}

/* Make the lists of terms.  False: out of memory. */
static bool
make_lists(sparse_batch *batch)
{
	uint32_t   *lists = batch->scratch->lists;
	uint32_t	n = 0;

	for (uint32_t q = 0; q < batch->n; q++)
	{
		const gpuvec_topk_query *query = batch->queries[q].search.best->query->query;

		for (uint32_t i = 0; i < query->len; i++)
			lists[query->ids[i]]++;
		n += query->len;
	}
	batch->term_queries = calloc(n + SHORT, sizeof(uint16_t));
	batch->weights = calloc(n + SHORT, sizeof(float));
	if (batch->term_queries == NULL || batch->weights == NULL)
		return false;
	/* counts become places: of those without one yet, the upper bits are 0 */
	n = 0;
	for (uint32_t number = 0; number < GPUVEC_HOT_NUMBERS; number++)
	{
		uint32_t	count = lists[number];

		lists[number] = count > 0 ? n << COUNT_BITS : 0;
		n += count;
	}
	for (uint32_t q = 0; q < batch->n; q++)
	{
		const gpuvec_topk_query *query = batch->queries[q].search.best->query->query;

		for (uint32_t i = 0; i < query->len; i++)
		{
			uint32_t	list = lists[query->ids[i]]++;
			uint32_t	at = (list >> COUNT_BITS) + (list & COUNT_MASK);

			batch->term_queries[at] = (uint16_t) q;
			batch->weights[at] = query->weights[sparse_place(query, i)];
		}
	}
	return true;
}

static void
empty_lists(sparse_batch *batch)
{
	for (uint32_t q = 0; q < batch->n; q++)
	{
		const gpuvec_topk_query *query = batch->queries[q].search.best->query->query;

		for (uint32_t i = 0; i < query->len; i++)
			batch->scratch->lists[query->ids[i]] = 0;
	}
}

/*
 * True if the batch costs less than a scan for each query, as far as the rows
 * of a tile tell: not if few queries have nearly all numbers
 */
static bool
costs_less(const sparse_batch *batch)
{
	const cpu_slice *slice = batch->slice;
	const gpuvec_segment *segment = slice->view->entries[slice->order[slice->first_entry]].segment;
	uint32_t	row = segment->ntiles / 2 * GPUVEC_TILE_ROWS;
	uint32_t	end = row + GPUVEC_TILE_ROWS < segment->nrows ? row + GPUVEC_TILE_ROWS : segment->nrows;
	double		numbers = 0;
	double		terms = 0;
	double		first;

	for (; row < end; row++)
	{
		uint32_t	len = gpuvec_hot_len(segment, row);
		const uint16_t *ids = row_ids(segment, row);

		numbers += len;
		for (uint32_t i = 0; i < len; i++)
			terms += batch->scratch->lists[ids[i / GPUVEC_CHUNK_IDS * CHUNK_VALUES + i % GPUVEC_CHUNK_IDS]] & COUNT_MASK;
	}
	first = terms < numbers * FIRST_TERMS ? terms : numbers * FIRST_TERMS;
	return numbers * NUMBER_NS + first * FIRST_TERM_NS + (terms - first) * TERM_NS <=
		numbers * LONE_NUMBER_NS * batch->n;
}

bool
sparse_scan_batch(cpu_slice *slice, sparse_scratch *scratch, const uint32_t *queries, uint32_t n,
				  bool *scanned)
{
	sparse_batch *batch = malloc(sizeof(sparse_batch));
	bool		ok;

	if (batch == NULL)
		return false;
	begin_queries(batch, slice, scratch, queries, n);
	ok = make_lists(batch);
	*scanned = ok && costs_less(batch);
	for (uint32_t e = slice->first_entry; *scanned && !slice->canceled && e < slice->end_entry; e++)
		if (begin_entry(batch, slice->order[e]))
			slice->canceled = !scan_entry(batch);
	empty_lists(batch);
	free(batch->term_queries);
	free(batch->weights);
	free(batch);
	return ok;
}
