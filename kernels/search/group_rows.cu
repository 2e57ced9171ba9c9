/*-------------------------------------------------------------------------
 *
 * group_rows.cu
 *	  Counts the rows of a query that counts in bins (engine/groups.h).
 *
 * The kernels that count rows have marked them: bit r of word t is row r of
 * tile t.  A thread block goes through a slice of a segment, a thread through
 * 8 rows at a time, whose codes in a column are one load of 16 bytes.
 *
 * If the bins of a segment fit into shared memory, a block counts there, and
 * then adds what it has to the bins of the segment.  Most rows may be in a few
 * bins: so as many copies of them as there is room for are shared by the lanes
 * of a warp.  With 32 copies no lane waits for another: word w of copy c is in
 * bank c.  If bins do not fit, they are more than rows of a slice, or nearly
 * so, and rows are counted in global memory.
 *
 * What it costs: 8.5 million rows have 1 MB of marks and 17 MB of codes in a
 * column.  A row is an atomic addition in shared memory, and for each column
 * of values a load of two words, which few rows change.
 *
 *-------------------------------------------------------------------------
 */
#include "kernels/device/launch.h"
#include "kernels/search/group_kernels.h"

namespace gpuvec
{

extern __shared__ uint4 shared_memory[];

#define GROUP_THREADS 256
#define BYTE_ROWS 8 /* rows of a thread at a time */
#define SLICE_ROWS (4 * GROUP_THREADS * BYTE_ROWS)
#define GROUP_SLICES (GPUVEC_SEGMENT_ROWS / SLICE_ROWS)

static_assert(GPUVEC_SEGMENT_ROWS % SLICE_ROWS == 0, "slices cover a segment");

/* What words of bins are: rows, then least and greatest codes by turns */
static __device__ __forceinline__ bool
is_least(uint32_t part)
{
	return part % 2 == 1;
}

/* A word of a bin without rows */
static __device__ __forceinline__ uint32_t
empty_word(uint32_t part)
{
	return is_least(part) ? ~0u : 0;
}

/* Clear marks and bins; GROUP_SLICES thread blocks for each segment */
static __global__ void
__launch_bounds__(GROUP_THREADS) clear_bins(const __grid_constant__ struct group_params params)
{
	uint32_t number = blockIdx.x / GROUP_SLICES;
	uint32_t first = blockIdx.x % GROUP_SLICES * GROUP_THREADS + threadIdx.x;
	const struct device_segment *segment = &params.segments[number];
	struct segment_bins mine = params.segment_bins[number];
	uint32_t *marks = params.marks + segment->first_tile;
	uint32_t *bins = params.bins + mine.first;

	for (uint32_t i = first; i < segment->ntiles; i += GROUP_SLICES * GROUP_THREADS)
		marks[i] = 0;
	for (uint32_t i = first; i < mine.words; i += GROUP_SLICES * GROUP_THREADS)
		bins[i] = empty_word(i / mine.n);
}

/* Where a thread counts: word w of all bins is words[w * stride] */
struct thread_bins
{
	uint32_t *words;
	uint32_t n;
	uint32_t stride;
};

/* The codes of 8 rows in a column */
static __device__ __forceinline__ void
read_codes(const struct device_segment *segment, const struct device_filter *filter, uint32_t row,
		   uint32_t (&code)[BYTE_ROWS])
{
	uint4 codes =
		*(const uint4 *) ((const char *) segment->filters + filter->codes + row * sizeof(uint16_t));
	const uint32_t pair[4] = {codes.x, codes.y, codes.z, codes.w};

#pragma unroll
	for (int i = 0; i < BYTE_ROWS; i++)
		code[i] = i % 2 ? pair[i / 2] >> 16 : pair[i / 2] & 0xFFFF;
}

/* Find the bins of 8 rows */
static __device__ __forceinline__ void
find_bins(const struct group_params &params, const struct device_segment *segment, uint32_t row,
		  uint32_t (&bin)[BYTE_ROWS])
{
#pragma unroll
	for (int i = 0; i < BYTE_ROWS; i++)
		bin[i] = 0;
#pragma unroll 1
	for (uint32_t c = 0; c < params.grouping.nkeys; c++)
	{
		const struct device_filter *filter = &segment->filters[params.grouping.columns[c] - 1];
		uint32_t ncodes = filter->nkeys + filter->has_nulls;
		uint32_t code[BYTE_ROWS];

		read_codes(segment, filter, row, code);
#pragma unroll
		for (int i = 0; i < BYTE_ROWS; i++)
			bin[i] = bin[i] * ncodes + code[i];
	}
}

/* Count those of 8 rows that are marked */
static __device__ __forceinline__ void
count_marked(const struct group_params &params, const struct device_segment *segment, uint32_t row,
			 uint32_t marked, const struct thread_bins &bins)
{
	uint32_t *low = bins.words + bins.n * bins.stride;
	uint32_t bin[BYTE_ROWS];

	find_bins(params, segment, row, bin);
#pragma unroll
	for (int i = 0; i < BYTE_ROWS; i++)
		if (marked >> i & 1)
			atomicAdd(&bins.words[bin[i] * bins.stride], 1);
#pragma unroll 1
	for (uint32_t v = 0; v < params.grouping.nvalues; v++)
	{
		uint32_t column = params.grouping.columns[params.grouping.nkeys + v];
		const struct device_filter *filter = &segment->filters[column - 1];
		uint32_t *high = low + bins.n * bins.stride;
		uint32_t code[BYTE_ROWS];

		read_codes(segment, filter, row, code);
#pragma unroll
		for (int i = 0; i < BYTE_ROWS; i++)
			if ((marked >> i & 1) && code[i] < filter->nkeys)
			{
				uint32_t at = bin[i] * bins.stride;

				if (code[i] < *(volatile uint32_t *) &low[at])
					atomicMin(&low[at], code[i]);
				if (code[i] > *(volatile uint32_t *) &high[at])
					atomicMax(&high[at], code[i]);
			}
		low = high + bins.n * bins.stride;
	}
}

/* Count the marked rows of a slice; called by the thread block */
static __device__ __forceinline__ void
count_slice(const struct group_params &params, const struct device_segment *segment, uint32_t first,
			const struct thread_bins &bins)
{
	const uint8_t *marks = (const uint8_t *) (params.marks + segment->first_tile);
	uint32_t end = min(first + SLICE_ROWS, segment->ntiles * 32);

	for (uint32_t row = first + threadIdx.x * BYTE_ROWS; row < end;
		 row += GROUP_THREADS * BYTE_ROWS)
	{
		uint32_t marked = marks[row / BYTE_ROWS];

		if (marked != 0)
			count_marked(params, segment, row, marked, bins);
	}
}

/* Add a word of shared bins, all copies of it, to that of the segment */
static __device__ __forceinline__ void
add_word(const uint32_t *word, uint32_t copies, uint32_t part, uint32_t *to)
{
	uint32_t all = empty_word(part);

	/* each lane begins elsewhere, in another bank */
	for (uint32_t i = 0; i < copies; i++)
	{
		uint32_t one = word[(i + threadIdx.x) % copies];

		all = part == 0 ? all + one : is_least(part) ? min(all, one) : max(all, one);
	}
	if (all == empty_word(part))
		return;
	if (part == 0)
		atomicAdd(to, all);
	else if (is_least(part))
		atomicMin(to, all);
	else
		atomicMax(to, all);
}

/* Count the marked rows of a slice of a segment; a thread block for each */
static __global__ void
__launch_bounds__(GROUP_THREADS) count_bins(const __grid_constant__ struct group_params params)
{
	uint32_t number = blockIdx.x / GROUP_SLICES;
	uint32_t first = blockIdx.x % GROUP_SLICES * SLICE_ROWS;
	const struct device_segment *segment = &params.segments[number];
	struct segment_bins mine = params.segment_bins[number];
	uint32_t copies = bin_copies(mine.words);
	uint32_t *bins = params.bins + mine.first;
	uint32_t *shared = (uint32_t *) shared_memory;

	if (first >= segment->ntiles * 32)
		return;
	if (copies == 0)
	{
		count_slice(params, segment, first, {bins, mine.n, 1});
		return;
	}
	for (uint32_t i = threadIdx.x; i < mine.words * copies; i += GROUP_THREADS)
		shared[i] = empty_word(i / copies / mine.n);
	__syncthreads();
	count_slice(params, segment, first, {shared + threadIdx.x % copies, mine.n, copies});
	__syncthreads();
	for (uint32_t i = threadIdx.x; i < mine.words; i += GROUP_THREADS)
		add_word(&shared[i * copies], copies, i / mine.n, &bins[i]);
}

cudaError_t
group_clear_launch(const struct group_params *params, cudaStream_t stream)
{
	return launch(clear_bins, (uint64_t) params->nsegments * GROUP_SLICES, GROUP_THREADS, 0, stream,
				  *params);
}

cudaError_t
group_rows_launch(const struct group_params *params, size_t shared_bytes, cudaStream_t stream)
{
	return launch(count_bins, (uint64_t) params->nsegments * GROUP_SLICES, GROUP_THREADS,
				  shared_bytes, stream, *params);
}

} // namespace gpuvec
