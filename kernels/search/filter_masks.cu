/*-------------------------------------------------------------------------
 *
 * filter_masks.cu
 *	  Finds the rows that pass filters.
 *
 * A filter has a mask of all rows of the view: bit r of word t is row r of
 * tile t.  Masks are made before a search, so searches only test bits.
 *
 * A thread block evaluates a filter in a slice of a segment.  First its warps
 * turn conditions on keys into ranges of codes (engine/filter_column.h).
 * Each looks for a key among those of the segment, with 32 probes at a time:
 * 4 steps for 65,536 keys.  A column has the intersection of its conditions'
 * ranges.  If one is empty, no row passes, and no code is read.  Else each
 * thread tests 8 rows at a time, whose codes are one load of 16 bytes, and
 * writes a byte of the mask.  Other conditions, on bits or lists of keys, are
 * tested with the keys of the rows that have passed so far.
 *
 * An expression of ids comes last (core/set_match.h).  A warp takes the 8
 * tiles of its rows one after another, with a row for each lane: a bitmap
 * tells which of its hot numbers the expression has.  The postings of a cold
 * number in the segment are rows, among which each row is looked for; most
 * cold numbers have none there.
 *
 * What it costs: 8.5 million rows have 17 MB of codes in a column, 1 MB of
 * bits of live rows, and 1 MB of a mask.  That is 5 us at 4 TB/s, and 2 us
 * more for the searches among keys, which wait for memory 4 times.  64
 * different filters read the same codes, most of them from the L2 cache: 1.1
 * GB, or 0.2 ms.  An expression of ids reads the tiles: 400 MB of 20 ids a
 * row, so 0.1 ms.
 *
 *-------------------------------------------------------------------------
 */
#include "core/set_match.h"
#include "kernels/device/instructions.cuh"
#include "kernels/device/launch.h"
#include "kernels/search/cold_table.cuh"
#include "kernels/search/hot_bitmap.cuh"
#include "kernels/search/row_ids.cuh"

namespace gpuvec
{

extern __shared__ uint4 shared_memory[];

#define MASK_THREADS 256
#define MASK_WARPS (MASK_THREADS / 32)
#define BYTE_ROWS 8 /* rows of a thread at a time */

/* Rows of a slice */
#define SLICE_ROWS (4 * MASK_THREADS * BYTE_ROWS)

/* Shared memory of a thread block: the codes that may pass, by column */
struct mask_shared
{
	uint32_t low[GPUVEC_MAX_FILTERS + 1]; /* of column 0: not used */
	uint32_t end[GPUVEC_MAX_FILTERS + 1];
	uint32_t npassed;
	uint32_t nrows;
};

/* The same, if some filter has an expression of ids: numbers of this one */
struct match_shared
{
	struct mask_shared mask;
	alignas(16) uint32_t hot[HOT_WORDS]; /* bits of hot numbers */
	uint32_t numbers[GPUVEC_MOST_MATCH_IDS];
	uint2 postings[GPUVEC_MOST_MATCH_IDS]; /* of cold ones */
};

/* How many keys are less than `key`; called by a whole warp */
static __device__ __forceinline__ uint32_t
keys_below(const uint64_t *keys, uint32_t n, uint64_t key)
{
	uint32_t lane = threadIdx.x % 32;
	uint32_t low = 0;
	uint32_t high = n;

	/* the answer is low .. high; lanes probe at equal distances */
	while (low < high)
	{
		uint32_t step = (high - low + 31) / 32;
		uint32_t at = low + (lane + 1) * step - 1;
		uint32_t less = __popc(__ballot_sync(FULL_WARP, at < high && keys[at] < key));

		high = min(high, low + (less + 1) * step - 1);
		low = min(high, low + less * step);
	}
	return low;
}

/*
 * The first code that may satisfy a condition, or the one behind the last;
 * called by a whole warp.  If none may, the end is not behind the first one.
 */
static __device__ __forceinline__ uint32_t
end_of_codes(const struct device_segment *segment, const gpuvec_condition *c,
			 const uint64_t *values, bool last)
{
	const struct device_filter *filter = &segment->filters[c->column - 1];
	uint64_t key = last ? c->high : c->low;

	if (c->kind == GPUVEC_IS_NULL)
		return filter->nkeys + (last ? filter->has_nulls : 0);
	if (c->kind == GPUVEC_KEY_ANY && c->n == 0)
		return 0;
	if (c->kind == GPUVEC_KEY_ANY)
		key = values[last ? c->first + c->n - 1 : c->first];
	else if (c->kind != GPUVEC_KEY_BETWEEN)
		return last ? filter->nkeys : 0;
	if (last && key == ~UINT64_C(0))
		return filter->nkeys;
	return keys_below(column_keys(segment, c->column), filter->nkeys, key + last);
}

/* True if a range does not tell all about a condition */
static __device__ __forceinline__ bool
needs_keys(const gpuvec_condition *c)
{
	return (c->kind == GPUVEC_KEY_ANY && c->n > 1) || c->kind == GPUVEC_KEY_SHARES_BITS ||
		   c->kind == GPUVEC_KEY_HAS_BITS || c->kind == GPUVEC_KEY_WITHIN_BITS;
}

/* A filter that a thread block evaluates in a segment */
struct mask_task
{
	const struct device_segment *segment;
	const struct filter_spec *filter;
	const gpuvec_condition *conditions;
	const uint64_t *values;
	struct mask_shared *shared;

	/* Find the codes of all columns; called by the thread block */
	__device__ __forceinline__ void
	find_codes()
	{
		uint32_t column = threadIdx.x + 1;

		if (column <= segment->nfilters)
		{
			const struct device_filter *f = &segment->filters[column - 1];

			shared->low[column] = 0;
			shared->end[column] = f->nkeys + f->has_nulls;
		}
		if (threadIdx.x == 0)
			shared->npassed = shared->nrows = 0;
		__syncthreads();
		/* a warp for each end of a condition's range: they wait for memory */
		for (uint32_t i = threadIdx.x / 32; i < 2 * filter->nconditions; i += MASK_WARPS)
		{
			const gpuvec_condition *c = &conditions[i / 2];
			bool last = i % 2;
			uint32_t code;

			if (c->column == 0)
				continue;
			code = end_of_codes(segment, c, values, last);
			if (threadIdx.x % 32 > 0)
				continue;
			if (last)
				atomicMin(&shared->end[c->column], code);
			else
				atomicMax(&shared->low[c->column], code);
		}
		__syncthreads();
	}

	/* True if some column allows no code */
	__device__ __forceinline__ bool
	is_empty() const
	{
		for (uint32_t column = 1; column <= segment->nfilters; column++)
			if (shared->low[column] >= shared->end[column])
				return true;
		return false;
	}

	/* The live rows of the 8 rows from `row` on */
	__device__ __forceinline__ uint32_t
	live_rows(uint32_t row) const
	{
		uint32_t rows = row < segment->nrows ? 0xFF : 0;

		if (row < segment->nrows && segment->nrows - row < BYTE_ROWS)
			rows = (1u << (segment->nrows - row)) - 1;
		if (rows != 0 && segment->live != NULL)
			rows &= ((const uint8_t *) segment->live)[row / BYTE_ROWS];
		return rows;
	}

	/* Which of these rows have null sets */
	__device__ __forceinline__ uint32_t
	null_sets(uint32_t row) const
	{
		return segment->null_sets ? ((const uint8_t *) segment->null_sets)[row / BYTE_ROWS] : 0;
	}

	/* Of some rows, those whose codes in a column are in its range */
	__device__ __forceinline__ uint32_t
	within_range(uint32_t row, uint32_t rows, uint32_t column) const
	{
		const struct device_filter *f = &segment->filters[column - 1];
		uint32_t low = shared->low[column];
		uint32_t span = shared->end[column] - low;
		uint32_t within = 0;
		uint4 codes;

		if (rows == 0 || (low == 0 && span == f->nkeys + f->has_nulls))
			return rows;
		codes =
			*(const uint4 *) ((const char *) segment->filters + f->codes + row * sizeof(uint16_t));
		within |= (codes.x & 0xFFFF) - low < span ? 1 : 0;
		within |= (codes.x >> 16) - low < span ? 2 : 0;
		within |= (codes.y & 0xFFFF) - low < span ? 4 : 0;
		within |= (codes.y >> 16) - low < span ? 8 : 0;
		within |= (codes.z & 0xFFFF) - low < span ? 16 : 0;
		within |= (codes.z >> 16) - low < span ? 32 : 0;
		within |= (codes.w & 0xFFFF) - low < span ? 64 : 0;
		within |= (codes.w >> 16) - low < span ? 128 : 0;
		return rows & within;
	}

	/* Of some rows, those whose keys satisfy a condition; none is null */
	__device__ __forceinline__ uint32_t
	with_keys(uint32_t row, uint32_t rows, const gpuvec_condition *c) const
	{
		const struct device_filter *f = &segment->filters[c->column - 1];
		const uint64_t *keys = column_keys(segment, c->column);
		const uint16_t *codes =
			(const uint16_t *) ((const char *) segment->filters + f->codes) + row;
		uint32_t passing = 0;

		for (; rows != 0; rows &= rows - 1)
		{
			uint32_t i = __ffs(rows) - 1;

			if (gpuvec_key_passes(c, values, keys[codes[i]]))
				passing |= 1u << i;
		}
		return passing;
	}

	/* Of the 8 rows from `row` on, those that pass */
	__device__ __forceinline__ uint32_t
	passing_rows(uint32_t row) const
	{
		uint32_t rows = live_rows(row);

		for (uint32_t column = 1; column <= segment->nfilters; column++)
			rows = within_range(row, rows, column);
		for (uint32_t i = 0; rows != 0 && i < filter->nconditions; i++)
		{
			const gpuvec_condition *c = &conditions[i];

			if (c->column == 0)
				rows &= c->kind == GPUVEC_IS_NULL ? null_sets(row) : ~null_sets(row);
			else if (needs_keys(c))
				rows = with_keys(row, rows, c);
		}
		return rows;
	}
};

/* An expression of ids that a thread block evaluates in a segment */
struct match_task
{
	const struct device_segment *segment;
	const gpuvec_condition *match; /* NULL: there is none */
	const uint64_t *values;        /* of the filter */
	struct match_shared *shared;

	/* Find the numbers; called by the thread block */
	__device__ __forceinline__ void
	find_numbers()
	{
		const uint64_t *ids = values + match->first;
		uint32_t i = threadIdx.x;

		for (uint32_t word = i; word < HOT_WORDS; word += MASK_THREADS)
			shared->hot[word] = 0;
		__syncthreads();
		if (i < match->low)
		{
			uint32_t number = (uint32_t) ids[i];

			shared->numbers[i] = number;
			shared->postings[i] = make_uint2(0, 0);
			if (number < GPUVEC_HOT_NUMBERS)
				atomicOr(&shared->hot[number / 32], 1u << number % 32);
			else if (segment->cold.ngroups > 0)
				shared->postings[i] = find_postings(segment->cold, number);
		}
		__syncthreads();
	}

	/* True if a row is one of some postings, which ascend */
	__device__ __forceinline__ bool
	has_posting(uint2 postings, uint32_t row) const
	{
		uint32_t from = postings.x;
		uint32_t upto = from + postings.y;

		while (from < upto)
		{
			uint32_t middle = from + (upto - from) / 2;

			if (segment->cold.row[middle] < row)
				from = middle + 1;
			else
				upto = middle;
		}
		return from < postings.x + postings.y && segment->cold.row[from] == row;
	}

	/* The numbers that a row has, as bits */
	__device__ __forceinline__ uint64_t
	numbers_of(uint32_t row) const
	{
		const uint4 *chunks = segment->ids + (size_t) segment->tiles[row / 32].x * 32;
		uint32_t n = (uint32_t) match->low;
		uint64_t has = 0;

		for_each_row_id(chunks, row % 32, segment->hot_len[row],
						[&](uint32_t number, uint32_t)
						{
							uint32_t i = 0;

							if ((shared->hot[number / 32] >> number % 32 & 1) == 0)
								return;
							while (shared->numbers[i] != number)
								i++;
							has |= UINT64_C(1) << i;
						});
		for (uint32_t i = 0; segment->cold.ngroups > 0 && i < n; i++)
			if (shared->postings[i].y > 0 && has_posting(shared->postings[i], row))
				has |= UINT64_C(1) << i;
		return has;
	}

	/* True if a row's set matches */
	__device__ __forceinline__ bool
	matches(uint32_t row) const
	{
		uint64_t has = numbers_of(row);

		return gpuvec_set_matches(values + match->first + match->low,
								  match->n - (uint32_t) match->low, has,
								  (uint32_t) __popcll(has) < segment->len[row]);
	}

	/*
	 * Of this lane's 8 rows that have passed, those that match; called by a
	 * whole warp, whose lanes have 256 rows from `first` on
	 */
	__device__ __forceinline__ uint32_t
	matching_rows(uint32_t first, uint32_t rows) const
	{
		uint32_t lane = threadIdx.x % 32;
		uint32_t matching = 0;

#pragma unroll 1
		for (uint32_t tile = 0; tile < BYTE_ROWS; tile++)
		{
			uint32_t byte = __shfl_sync(FULL_WARP, rows, tile * 4 + lane / BYTE_ROWS);
			bool passed = byte >> lane % BYTE_ROWS & 1;
			uint32_t word = __ballot_sync(FULL_WARP, passed && matches(first + tile * 32 + lane));

			if (lane / 4 == tile)
				matching = word >> lane % 4 * BYTE_ROWS & 0xFF;
		}
		return matching;
	}
};

/* Add up the counts of the thread block */
static __device__ __forceinline__ void
add_counts(struct mask_shared *shared, uint32_t npassed, uint32_t nrows, uint2 *counts)
{
	npassed = __reduce_add_sync(FULL_WARP, npassed);
	nrows = __reduce_add_sync(FULL_WARP, nrows);
	if (threadIdx.x % 32 == 0 && npassed > 0)
	{
		atomicAdd(&shared->npassed, npassed);
		atomicAdd(&shared->nrows, nrows);
	}
	__syncthreads();
	if (threadIdx.x == 0 && shared->npassed > 0)
	{
		atomicAdd(&counts->x, shared->npassed);
		atomicAdd(&counts->y, shared->nrows);
	}
}

/*
 * A thread block for each slice of a segment and filter.  MATCHES: some filter
 * has an expression of ids.
 */
template <bool MATCHES>
static __global__ void
__launch_bounds__(MASK_THREADS) make_masks(const __grid_constant__ struct mask_params params)
{
	uint32_t slice = blockIdx.x % params.nslices;
	uint32_t number = blockIdx.x / params.nslices % params.nsegments;
	uint32_t f = blockIdx.x / params.nslices / params.nsegments;
	const struct filter_spec *filter = &params.filters[f];
	const struct device_segment *segment = &params.segments[number];
	struct mask_task task = {segment, filter, params.conditions + filter->condition,
							 params.values + filter->value, (struct mask_shared *) shared_memory};
	struct match_task match = {segment, NULL, task.values, (struct match_shared *) shared_memory};
	uint8_t *mask = (uint8_t *) (params.masks + (size_t) f * params.ntiles + segment->first_tile);
	uint32_t first = slice * SLICE_ROWS;
	uint32_t end = min(first + SLICE_ROWS, segment->ntiles * 32);
	uint32_t lane = threadIdx.x % 32;
	uint32_t npassed = 0;
	uint32_t nrows = 0;
	bool empty;

	if (first >= segment->ntiles * 32)
		return;
	task.find_codes();
	empty = task.is_empty();
	if (MATCHES && filter->match != NO_MATCH)
	{
		match.match = &task.conditions[filter->match];
		match.find_numbers();
	}
	/* whole warps go on */
	for (uint32_t base = first + (threadIdx.x - lane) * BYTE_ROWS; base < end;
		 base += MASK_THREADS * BYTE_ROWS)
	{
		uint32_t row = base + lane * BYTE_ROWS;
		uint32_t rows = empty || row >= end ? 0 : task.passing_rows(row);

		if (MATCHES && match.match != NULL)
			rows = match.matching_rows(base, rows);
		if (row >= end)
			continue;
		npassed += __popc(rows);
		if (!filter->wants_null_sets)
			rows &= ~task.null_sets(row);
		nrows += __popc(rows);
		mask[row / BYTE_ROWS] = (uint8_t) rows;
	}
	__syncwarp();
	add_counts(task.shared, npassed, nrows, &params.counts[f]);
}

uint32_t
mask_slices(void)
{
	return (GPUVEC_SEGMENT_ROWS + SLICE_ROWS - 1) / SLICE_ROWS;
}

cudaError_t
masks_launch(const struct mask_params *params, cudaStream_t stream)
{
	uint64_t blocks = (uint64_t) params->nfilters * params->nsegments * params->nslices;

	return params->matches ? launch(make_masks<true>, blocks, MASK_THREADS,
									sizeof(struct match_shared), stream, *params)
						   : launch(make_masks<false>, blocks, MASK_THREADS,
									sizeof(struct mask_shared), stream, *params);
}

} // namespace gpuvec
