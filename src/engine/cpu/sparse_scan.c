/*-------------------------------------------------------------------------
 *
 * sparse_scan.c
 *	  The scan by measures of sparse vectors, for one query after another.
 *
 * The terms of a tile's rows are added up as floats (sparse_scan.inc).  Most
 * rows are skipped by their sums; the others are scored.  What a sum must
 * reach depends on the row's length if rows are sets, which are sorted by
 * length, so it is computed once for each length and bound.  Of a vector it
 * depends on the sums of its values.
 *
 *-------------------------------------------------------------------------
 */
#include "engine/cpu/scan_lone.h"
#include "engine/cpu/sparse_rows.h"

/* Tiles between two looks at the canceled flag */
#define TILE_STRIDE		256

typedef struct sparse_search
{
	sparse_scratch *scratch;
	sparse_sums add_up;
	best_rows  *best;
	gpuvec_sparse_bound bound;
	uint32_t	len;			/* the length, and */
	uint64_t	key;			/* the query's bound, of which `least` is */
	float		least;
	double		score;			/* that bound as a score; NaN: none */
} sparse_search;

/* Read the bound; sets search->score */
static inline void
read_bound(sparse_search *search)
{
	uint64_t	key = __atomic_load_n(search->scratch->query->bound, __ATOMIC_RELAXED);

	if (key == search->key)
		return;
	search->key = key;
	search->score = key == UINT64_MAX ? NAN : gpuvec_key_score(key);
	search->len = UINT32_MAX;
}

/* Set search->least for a row */
static inline void
set_least(sparse_search *search, const gpuvec_segment *segment, uint32_t row)
{
	if (segment->sums == NULL && search->len == segment->len[row])
		return;
	search->len = segment->sums ? UINT32_MAX : segment->len[row];
	search->least = gpuvec_sparse_least(&search->bound, search->score, sparse_row_square(segment, row),
										sparse_row_own(search->bound.measure, segment, row));
}

/* The rows of a tile that take part, as bits */
static inline uint32_t
rows_of_tile(const gpuvec_view_entry *entry, const uint64_t *mask, uint32_t tile)
{
	uint32_t	first = tile * GPUVEC_TILE_ROWS;
	uint32_t	n = entry->segment->nrows - first;
	uint32_t	rows = n < GPUVEC_TILE_ROWS ? (UINT32_C(1) << n) - 1 : UINT32_MAX;

	if (entry->live)
		rows &= entry->live->bits[tile];
	if (mask)
		rows &= (uint32_t) (mask[first / 64] >> (first % 64));
	return rows;
}

/* Add the term of the number 0, which tiles pad rows with; returns the rows */
static uint32_t
add_first(const sparse_search *search, const gpuvec_segment *segment, uint32_t first, uint32_t rows,
		  float *sums)
{
	float		weight = search->scratch->first;
	uint32_t	hits = 0;

	for (uint32_t bits = rows; bits != 0; bits &= bits - 1)
	{
		uint32_t	r = (uint32_t) __builtin_ctz(bits);
		const uint16_t *ids = row_ids(segment, first + r);
		float		value = 1;

		if (gpuvec_hot_len(segment, first + r) == 0 || ids[0] != 0)
			continue;
		if (segment->sums)
			value = segment->values[ids - segment->ids];
		sums[r] += (float) gpuvec_sparse_term(search->bound.measure, weight, value);
		hits |= UINT32_C(1) << r;
	}
	return hits;
}

/* Score the rows of a tile that may be good enough */
static void
scan_tile(sparse_search *search, const gpuvec_view_entry *entry, uint32_t tile, uint32_t rows)
{
	const gpuvec_segment *segment = entry->segment;
	uint32_t	first = tile * GPUVEC_TILE_ROWS;
	const uint32_t *chunk = &segment->tile_chunk[tile];
	bool		jaccard = search->bound.measure == GPUVEC_SPARSE_JACCARD;
	sparse_tile at = {
		.ids = segment->ids + (size_t) chunk[0] * CHUNK_VALUES, .nchunks = chunk[1] - chunk[0],
		.values = segment->sums ? segment->values + (size_t) chunk[0] * CHUNK_VALUES : NULL,
		.minima = jaccard
	};
	sparse_cold none = {NULL, 0};
	float		sums[GPUVEC_TILE_ROWS];
	uint32_t	hits;

	hits = search->add_up(search->scratch->weights, &at, sums);
	if (search->scratch->first != 0)
		hits |= add_first(search, segment, first, rows, sums);
	read_bound(search);
	if (search->score > 0 && !(jaccard && segment->sums))
		rows &= hits;
	for (; rows != 0; rows &= rows - 1)
	{
		uint32_t	r = (uint32_t) __builtin_ctz(rows);

		read_bound(search);
		set_least(search, segment, first + r);
		if (gpuvec_sparse_wanted(sums[r], hits >> r & 1, search->least, search->score) ||
			sparse_row_refused(search->bound.measure, segment, first + r))
			sparse_offer(search->scratch, search->best, segment, first + r, none,
						 gpuvec_entry_tid(entry, first + r));
	}
}

/* Scan an entry.  False if all queries were canceled. */
static bool
scan_entry(sparse_search *search, cpu_slice *slice, const gpuvec_view_entry *entry,
		   const uint64_t *mask)
{
	for (uint32_t tile = 0; tile < entry->segment->ntiles; tile++)
	{
		uint32_t	rows = rows_of_tile(entry, mask, tile);

		if (tile % TILE_STRIDE == 0 && slice_canceled(slice))
			return false;
		if (rows != 0)
			scan_tile(search, entry, tile, rows);
	}
	return true;
}

/* Scan the entries of a slice for a query.  False: canceled. */
static bool
scan_query(cpu_slice *slice, sparse_search *search)
{
	const cpu_query *query = search->scratch->query;
	const uint64_t *mask;
	bool		ok = true;

	/* no row has an id of the query; but jaccard refuses some */
	read_bound(search);
	if (query->query->len == 0 && search->score > 0 && search->bound.measure != GPUVEC_SPARSE_JACCARD)
		return true;
	for (uint32_t e = slice->first_entry; ok && e < slice->end_entry; e++)
		if (query_searches(query, slice->order[e], &mask))
			ok = scan_entry(search, slice, &slice->view->entries[slice->order[e]], mask);
	return ok;
}

bool
sparse_scan(cpu_slice *slice, sparse_scratch *scratch, sparse_sums sums)
{
	if (scratch == NULL)
		return false;
	for (uint32_t q = 0; q < slice->nqueries && !slice->canceled; q++)
	{
		const gpuvec_topk_query *query = slice->queries[q]->query;
		sparse_search search = {
			.scratch = scratch, .add_up = sums, .best = &slice->best[q], .score = NAN,
			.key = UINT64_MAX, .len = UINT32_MAX,
			.bound = gpuvec_sparse_make_bound(gpuvec_scoring_sparse(slice->queries[q]->scoring),
											  query->len, query->square, query->own)
		};

		sparse_begin(scratch, slice->queries[q]);
		slice->canceled = !scan_query(slice, &search);
		sparse_end(scratch);
	}
	return true;
}
