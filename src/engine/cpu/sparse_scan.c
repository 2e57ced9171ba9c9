/*-------------------------------------------------------------------------
 *
 * sparse_scan.c
 *	  The scan by measures of sparse vectors, for one query after another.
 *	  Several queries are a batch, if that costs less (sparse_batch.c).
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

/* Most hot ids of the queries of a batch: a bound for memory */
#define MOST_TERMS		(1 << 20)

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
	sparse_read_bound(search);
	if (search->score > 0 && !(jaccard && segment->sums))
		rows &= hits;
	for (; rows != 0; rows &= rows - 1)
	{
		uint32_t	r = (uint32_t) __builtin_ctz(rows);

		if (sparse_wants(search, segment, first + r, sums[r], hits >> r & 1))
			sparse_offer(search->scratch, search->best, entry, first + r, none);
	}
}

/* Scan a slice's part of an entry.  False if all queries were canceled. */
static bool
scan_entry(sparse_search *search, cpu_slice *slice, const gpuvec_view_entry *entry,
		   const uint64_t *mask)
{
	uint32_t	end = sparse_first_tile(slice, entry->segment, slice->part + 1);

	for (uint32_t tile = sparse_first_tile(slice, entry->segment, slice->part); tile < end; tile++)
	{
		uint32_t	rows = sparse_tile_rows(entry, mask, tile);

		if (tile % SPARSE_TILE_STRIDE == 0 && slice_canceled(slice))
			return false;
		if (rows != 0)
			scan_tile(search, entry, tile, rows);
	}
	return true;
}

/* Scan the entries of a slice for one query */
static void
scan_query(cpu_slice *slice, sparse_search *search)
{
	const cpu_query *query = search->best->query;
	const uint64_t *mask;

	sparse_begin(search->scratch, query);
	for (uint32_t e = slice->first_entry; !slice->canceled && e < slice->end_entry; e++)
		if (query_searches(query, slice->order[e], &mask))
			slice->canceled = !scan_entry(search, slice, &slice->view->entries[slice->order[e]], mask);
	sparse_end(search->scratch);
}

/* Scan for n queries of a slice.  False: out of memory. */
static bool
scan_queries(cpu_slice *slice, sparse_scratch *scratch, sparse_sums sums, const uint32_t *queries,
			 uint32_t n)
{
	bool		scanned = false;

	if (n >= SPARSE_BATCH_LEAST && !sparse_scan_batch(slice, scratch, queries, n, &scanned))
		return false;
	for (uint32_t i = 0; i < n && !scanned && !slice->canceled; i++)
	{
		sparse_search search = sparse_make_search(scratch, sums, &slice->best[queries[i]]);

		scan_query(slice, &search);
	}
	return true;
}

/* True if a slice has to be scanned for a query */
static bool
needs_scan(const cpu_slice *slice, const cpu_query *query)
{
	uint64_t	key = __atomic_load_n(query->bound, __ATOMIC_RELAXED);
	const uint64_t *mask;

	/* no row has an id of the query; but jaccard refuses some */
	if (query->query->len == 0 && key != UINT64_MAX && gpuvec_key_score(key) > 0 &&
		gpuvec_scoring_sparse(query->scoring) != GPUVEC_SPARSE_JACCARD)
		return false;
	for (uint32_t e = slice->first_entry; e < slice->end_entry; e++)
		if (query_searches(query, slice->order[e], &mask))
			return true;
	return false;
}

bool
sparse_scan(cpu_slice *slice, sparse_scratch *scratch, sparse_sums sums)
{
	uint32_t	queries[SPARSE_BATCH_MOST];
	uint32_t	n = 0;
	uint32_t	terms = 0;
	bool		ok = true;

	if (scratch == NULL)
		return false;
	for (uint32_t q = 0; ok && q < slice->nqueries; q++)
	{
		uint32_t	len = slice->queries[q]->query->len;

		if (!needs_scan(slice, slice->queries[q]))
			continue;
		if (terms + len > MOST_TERMS)
		{
			ok = scan_queries(slice, scratch, sums, queries, n);
			n = terms = 0;
		}
		queries[n++] = q;
		terms += len;
	}
	return ok && scan_queries(slice, scratch, sums, queries, n);
}
