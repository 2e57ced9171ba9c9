/*-------------------------------------------------------------------------
 *
 * grad.cu
 *	  The gradient of pooling with respect to the table.
 *
 * A sample is a bag; its gradient is the gradient of the bag's vector.  The
 * gradient of a row is the sum of the gradients of all samples that looked
 * the row up.  So lookups are sorted by row, stably (sort.cu).  Then the
 * lookups of a row form a bag whose "rows" are samples' gradients, and these
 * bags are pooled.  This takes no atomic operations, and the order of
 * additions is always the same.
 *
 * grad_kernel goes through the sorted lookups.  A group of lanes has a part
 * of them.  It compares neighbors to find where rows end, adds up the
 * gradients of the samples, and stores one vector per row, or per piece of a
 * row with many lookups.  A piece belongs to the group in whose part it
 * begins.
 *
 * To know where vectors go, heads_kernel counts rows and pieces before: a
 * warp looks at POOLING_TILE positions.  If the row of its first position
 * began earlier, the warp searches for its beginning, with 32 probes a step.
 *
 * Missing lookups get the number of rows as their row.  So they come last,
 * and are left out.
 *
 * With weights, or for the mean, each lookup carries its position through the
 * sort instead of its sample.  The sample and the coefficient are fetched
 * afterwards.
 *
 *-------------------------------------------------------------------------
 */
#include <algorithm>

#include "kernels/embedding/pool.cuh"
#include "kernels/embedding/sort.h"

namespace gpuvec
{

#define SAMPLES_THREADS 256
#define SAMPLES_LOOKUPS 1024 /* lookups per block */
#define HEADS_THREADS 128
#define GRAD_MOST_THREADS 256
#define GRAD_SLICE 256 /* bytes per slice of a row */
#define GRAD_UNROLL 8  /* rows in flight per group of lanes */

/*
 * The number of sorted lookups that are one group's part.  In a long row, a
 * piece begins only in every other part of GRAD_CUT lookups.  Groups that
 * share a warp should have equal work, so that they do not wait for each
 * other: their parts have GPUVEC_PIECE lookups.
 */
#define GRAD_CUT 128

template <int LANES>
static __device__ __host__ __forceinline__ constexpr uint32_t
grad_part(void)
{
	return LANES == 32 ? GRAD_CUT : GPUVEC_PIECE;
}

/*
 * What comes before a part of GRAD_CUT sorted lookups: counts since the
 * beginning of the tile
 */
struct grad_cut
{
	uint32_t bags;
	uint32_t partials;
	uint32_t longs;
	uint32_t start; /* position where the row of its first lookup begins */
};

/* The parameters of the kernels that look at bags */
struct bag_params
{
	struct pooling_bags bags; /* for concat, bags of one lookup */
	uint32_t rows;
	uint32_t *samples; /* out: [lookups] */
	float *divisors;   /* out: [bags] */
};

/* The parameters of coefficients_kernel */
struct coefficient_params
{
	uint32_t lookups;
	const uint32_t *positions; /* sorted by row */
	const uint32_t *samples;   /* by position */
	const float *weights;      /* by position, or NULL */
	const float *divisors;     /* by sample, or NULL */
	uint32_t *sorted_samples;  /* out */
	float *coefficients;       /* out */
};

/* The parameters of heads_kernel */
struct heads_params
{
	const uint32_t *keys; /* sorted rows */
	uint32_t lookups;
	uint32_t rows;
	struct pooling_counts *tiles; /* out */
	struct grad_cut *cuts;        /* out */
};

/* The parameters of grad_kernel */
struct grad_params
{
	/* sorted lookups */
	const uint32_t *keys;
	const uint32_t *samples;
	const float *coefficients; /* or NULL */
	uint32_t lookups;
	uint32_t rows;

	/* gradients of samples */
	const char *grad;
	uint32_t stride_bytes;
	uint32_t width;

	/* how the work is distributed */
	const struct pooling_counts *before; /* by tile */
	const struct grad_cut *cuts;
	uint32_t warp_tasks; /* warps per slice */
	uint32_t slices;
	uint32_t vectors;
	bool slice_major;

	/* the result */
	bool full;
	bool vector_out;     /* aligned for vector stores */
	bool vector_partial; /* the same for sums of pieces */
	float *out;
	uint64_t out_stride;
	uint32_t *out_rows; /* or NULL */
	float *partial;
	uint64_t partial_stride;
	struct pooling_long *longs;
};

/* Find the sample of each lookup */
static __global__ void
__launch_bounds__(SAMPLES_THREADS) samples_kernel(const __grid_constant__ struct bag_params p)
{
	__shared__ uint32_t first_bag;
	__shared__ uint32_t last_bag;
	const int64_t *offsets = p.bags.offsets;
	uint32_t most = (uint32_t) p.bags.bags - 1;
	uint32_t hotness = (uint32_t) p.bags.hotness;
	uint32_t begin = blockIdx.x * SAMPLES_LOOKUPS;
	uint32_t end = min(begin + SAMPLES_LOOKUPS, (uint32_t) p.bags.lookups);

	pooling_begin();
	if (offsets)
	{
		if (threadIdx.x == 0)
			first_bag = pooling_find_bag(offsets, 0, most, begin);
		if (threadIdx.x == 32)
			last_bag = pooling_find_bag(offsets, 0, most, end - 1);
		__syncthreads();
	}
	for (uint32_t i = begin + threadIdx.x; i < end; i += SAMPLES_THREADS)
		p.samples[i] = offsets        ? pooling_find_bag(offsets, first_bag, last_bag, i)
					   : hotness == 1 ? i
									  : i / hotness;
}

/* Find the lookups of a bag: begin .. end - 1 */
static __device__ __forceinline__ void
bag_lookups(const struct pooling_bags &bags, uint32_t bag, uint32_t &begin, uint32_t &end)
{
	begin = bags.offsets ? (uint32_t) bags.offsets[bag] : bag * (uint32_t) bags.hotness;
	end = bags.offsets ? (uint32_t) bags.offsets[bag + 1] : begin + (uint32_t) bags.hotness;
}

/* What a lookup adds to the divisor of a mean */
static __device__ __forceinline__ float
divisor_part(const struct bag_params &p, uint32_t position)
{
	if (p.bags.skip_missing &&
		pooling_lookup(p.bags.indices, p.bags.index_bits, p.rows, position) == POOLING_MISSING)
		return 0.0f;
	return p.bags.weights ? p.bags.weights[position] : 1.0f;
}

/* The sum over a warp; as a tree, so that the order is fixed */
static __device__ __forceinline__ double
warp_sum(double value)
{
	for (int d = 16; d > 0; d /= 2)
		value += __shfl_xor_sync(FULL_WARP, value, d);
	return value;
}

/*
 * The divisors of the means of all bags; one warp per bag.  Lane i adds up
 * lookups i, i + 32, ..., so the last bits may differ from the divisor of the
 * forward pass.
 */
static __global__ void
divisors_kernel(const __grid_constant__ struct bag_params p)
{
	uint32_t bag = (uint32_t) (((uint64_t) blockIdx.x * blockDim.x + threadIdx.x) / 32);
	bool count = p.bags.weights || p.bags.skip_missing; /* otherwise it is the number of lookups */
	uint32_t begin;
	uint32_t end;
	double sum = 0.0;

	pooling_begin();
	if (bag >= p.bags.bags)
		return;
	bag_lookups(p.bags, bag, begin, end);
	for (uint32_t i = begin + threadIdx.x % 32; i < end && count; i += 32)
		sum += divisor_part(p, i);
	sum = count ? warp_sum(sum) : end - begin;
	if (threadIdx.x % 32 == 0)
		p.divisors[bag] = (float) sum;
}

/* Find the samples and coefficients of sorted lookups */
static __global__ void
coefficients_kernel(const __grid_constant__ struct coefficient_params p)
{
	uint32_t i = blockIdx.x * blockDim.x + threadIdx.x;

	pooling_begin();
	if (i >= p.lookups)
		return;

	uint32_t position = p.positions[i];
	uint32_t sample = p.samples[position];
	float coefficient = p.weights ? p.weights[position] : 1.0f;

	if (p.divisors)
	{
		float divisor = p.divisors[sample];

		coefficient = divisor == 0.0f ? 0.0f : __fdiv_rn(coefficient, divisor);
	}
	p.sorted_samples[i] = sample;
	p.coefficients[i] = coefficient;
}

/*
 * The first position of the keys that equal keys[i].  Keys are sorted, and
 * keys[i - 1] == keys[i].  Called by a whole warp.
 */
static __device__ uint32_t
find_start(const uint32_t *keys, uint32_t i)
{
	uint32_t lane = threadIdx.x % 32;
	uint32_t key = keys[i];
	bool equal = lane < i && keys[i - 1 - lane] == key;
	uint32_t unequal = __ballot_sync(FULL_WARP, !equal);
	uint32_t low = 0;
	uint32_t high;

	if (unequal)
		return i - (__ffs(unequal) - 1);

	/* the first equal key is at low .. high */
	high = i - 32;
	while (low < high)
	{
		uint32_t step = (high - low + 31) / 32;
		uint64_t probe = low + (uint64_t) lane * step;
		bool less = probe < high && keys[probe] < key;
		uint32_t nless = __popc(__ballot_sync(FULL_WARP, less));
		uint32_t base = low;

		if (nless > 0)
			low = base + (nless - 1) * step + 1;
		high = (uint32_t) min((uint64_t) high, base + (uint64_t) nless * step);
	}
	return low;
}

/*
 * Count rows and pieces: in each tile, and in each tile before each part.  A
 * lane looks at keys 32 * i + lane, which are all loaded at once.
 */
static __global__ void
__launch_bounds__(HEADS_THREADS) heads_kernel(const __grid_constant__ struct heads_params p)
{
	constexpr uint32_t keys = POOLING_TILE / 32;
	constexpr uint32_t piece_keys = GPUVEC_PIECE / 32;
	uint32_t lane = threadIdx.x % 32;
	uint32_t tile = (uint32_t) (((uint64_t) blockIdx.x * blockDim.x + threadIdx.x) / 32);
	uint32_t begin = tile * POOLING_TILE;
	uint32_t up_to_lane = FULL_WARP >> (31 - lane);
	uint32_t start = begin;
	uint32_t key[keys];
	uint32_t before_tile = p.rows;
	uint32_t last;
	struct pooling_counts counts = {0, 0, 0, 0};

	pooling_begin();
	if ((uint64_t) tile * POOLING_TILE >= p.lookups)
		return;
#pragma unroll
	for (uint32_t c = 0; c < keys; c++)
	{
		uint32_t i = begin + c * 32 + lane;

		key[c] = i < p.lookups ? p.keys[i] : p.rows;
	}
	if (begin > 0)
		before_tile = p.keys[begin - 1];
	if (begin > 0 && before_tile == p.keys[begin])
		start = find_start(p.keys, begin);
	last = __shfl_sync(FULL_WARP, key[keys - 1], 31);

#pragma unroll
	for (uint32_t c = 0; c < keys; c++)
	{
		uint32_t first = begin + c * 32;
		uint32_t i = first + lane;
		uint32_t before = __shfl_up_sync(FULL_WARP, key[c], 1);
		uint32_t before_first =
			c > 0 ? __shfl_sync(FULL_WARP, key[c > 0 ? c - 1 : 0], 31) : before_tile;
		bool present = key[c] < p.rows;
		bool head = present && (i == 0 || (lane > 0 ? before : before_first) != key[c]);
		uint32_t heads = __ballot_sync(FULL_WARP, head);
		uint32_t heads_before = heads & up_to_lane;
		uint32_t my_start = heads_before ? first + 31 - __clz(heads_before) : start;
		bool piece = present && (i - my_start) % GPUVEC_PIECE == 0;
		bool is_long = false;

		/* true if the row goes on after its first piece */
		if (c + piece_keys < keys)
			is_long = head && key[c + piece_keys < keys ? c + piece_keys : 0] == key[c];
		else if (head && key[c] == last && i + GPUVEC_PIECE < p.lookups)
			is_long = p.keys[i + GPUVEC_PIECE] == key[c];

		uint32_t pieces = __ballot_sync(FULL_WARP, piece);
		uint32_t longs = __ballot_sync(FULL_WARP, is_long);
		uint32_t partials = __ballot_sync(FULL_WARP, piece && (!head || is_long));

		if (c % (GRAD_CUT / 32) == 0 && lane == 0)
			p.cuts[first / GRAD_CUT] = {counts.bags, counts.partials, counts.longs, my_start};
		counts.bags += __popc(heads);
		counts.pieces += __popc(pieces);
		counts.partials += __popc(partials);
		counts.longs += __popc(longs);
		if (heads)
			start = first + 31 - __clz(heads);
	}
	if (lane == 0)
		p.tiles[tile] = counts;
}

/*
 * What a lane's lookup of a chunk is in its row and piece.  Masks have a bit
 * for each lane of the group.
 */
struct grad_marks
{
	bool present;
	bool head;             /* its row begins with it */
	bool ends;             /* its row or piece ends with it */
	bool goes_on;          /* the next lookup is of the same row */
	uint32_t number;       /* position in its row, from 0 on */
	uint32_t heads;        /* mask of lookups that begin a row */
	uint32_t heads_before; /* the same, up to this lane */
};

/*
 * A group of lanes at work.  It adds up the gradients of the samples, for the
 * rows and pieces that begin in its part of the sorted lookups.  VB is the
 * bytes of a vector, LANES the number of lanes that share a row.  W: there
 * are coefficients.
 *
 * It takes a chunk of LANES lookups at a time, one lookup per lane, while the
 * next chunk is being fetched.
 */
template <int VB, int LANES, bool W>
struct grad_group
{
	static constexpr int E = VB / (int) sizeof(float);
	static constexpr uint32_t MASK = FULL_WARP >> (32 - LANES);

	const struct grad_params &p;
	uint32_t lane;       /* in the warp */
	uint32_t sub;        /* in the group */
	uint32_t group_lane; /* the group's first lane in the warp */

	/* what is added up */
	uint32_t slice;
	uint32_t column; /* this lane's column, in vectors */
	const char *base;
	float acc[E];

	/*
	 * the group's part of the lookups; counts of rows and pieces before the
	 * chunk
	 */
	uint32_t begin;
	uint32_t end;
	bool done;
	bool open; /* the chunk begins within a piece that began in this part */
	struct grad_cut counts;

	/* the chunk */
	struct pooling_chunk chunk;
	uint32_t key;
	uint32_t key_before; /* key of the lookup before the chunk */
	/* destination of the sum that ends with this lane's lookup */
	uint32_t dest;

	/* the next chunk */
	uint32_t next_key;
	uint32_t next_row;
	float next_weight;

	__device__ __forceinline__
	grad_group(const struct grad_params &params)
		: p(params), lane(threadIdx.x % 32), sub(lane % LANES), group_lane(lane - sub)
	{
	}

	/* True if the row has this lane's column */
	__device__ __forceinline__ bool
	active() const
	{
		return column < p.vectors;
	}

	/* A mask of the lanes of the group for which something holds */
	__device__ __forceinline__ uint32_t
	ballot(bool holds) const
	{
		return __ballot_sync(FULL_WARP, holds) >> group_lane & MASK;
	}

	/* The bits of a mask up to this lane */
	__device__ __forceinline__ uint32_t
	up_to_here(uint32_t mask) const
	{
		return mask & FULL_WARP >> (31 - sub);
	}

	__device__ __forceinline__ void
	clear()
	{
#pragma unroll
		for (int e = 0; e < E; e++)
			acc[e] = 0.0f;
	}

	/* Begin the group's part of a warp's work */
	__device__ __forceinline__ void
	start(uint32_t warp_task)
	{
		uint64_t task = (uint64_t) warp_task * (32 / LANES) + lane / LANES;

		column = slice * LANES + sub;
		base = pooling_lane_base(p.grad, column, p.vectors, VB);
		done = task * grad_part<LANES>() >= p.lookups;
		begin = done ? 0 : (uint32_t) task * grad_part<LANES>();
		end = min(begin + grad_part<LANES>(), p.lookups);
		counts = {0, 0, 0, 0};
		open = false;
		dest = 0;
		clear();
		chunk.group_lane = group_lane;
		if (!done)
		{
			const struct pooling_counts *tile = &p.before[begin / POOLING_TILE];

			counts = p.cuts[begin / GRAD_CUT];
			counts.bags += tile->bags;
			counts.partials += tile->partials;
			counts.longs += tile->longs;
		}
		key_before = begin > 0 ? p.keys[begin - 1] : p.rows;
		fetch(begin + sub);
	}

	/* Fetch lookup i: this lane's lookup of the next chunk */
	__device__ __forceinline__ void
	fetch(uint32_t i)
	{
		next_key = p.rows;
		next_row = 0;
		next_weight = 0.0f;
		if (!done && i < p.lookups)
		{
			next_key = __ldcs(p.keys + i);
			next_row = __ldcs(p.samples + i);
			if (W)
				next_weight = __ldcs(p.coefficients + i);
		}
	}

	/*
	 * Take the chunk that begins with lookup `first`, and compare neighbors
	 * to find where rows end
	 */
	__device__ __forceinline__ struct grad_marks
	take(uint32_t first)
	{
		uint32_t last_key = key_before;
		struct grad_marks m;

		key = next_key;
		chunk.row = next_row;
		chunk.weight = next_weight;
		fetch(first + sub + LANES);

		uint32_t left = __shfl_up_sync(FULL_WARP, key, 1);
		uint32_t right = __shfl_sync(FULL_WARP, key, min(lane + 1, 31u));
		uint32_t next_first = __shfl_sync(FULL_WARP, next_key, group_lane);

		key_before = __shfl_sync(FULL_WARP, key, group_lane + LANES - 1);
		if (sub == 0)
			left = last_key;
		if (sub == LANES - 1)
			right = next_first;

		m.present = key < p.rows;
		m.head = m.present && left != key;
		m.goes_on = right == key;
		m.heads = ballot(m.head);
		m.heads_before = up_to_here(m.heads);
		m.number =
			first + sub - (m.heads_before ? first + 31 - __clz(m.heads_before) : counts.start);
		m.ends = m.present && (!m.goes_on || m.number % GPUVEC_PIECE == GPUVEC_PIECE - 1);
		return m;
	}

	/*
	 * True if this lane's lookup belongs to a row or piece that begins in
	 * this part
	 */
	__device__ __forceinline__ bool
	is_taken(const struct grad_marks &m, uint32_t first) const
	{
		uint32_t begins = ballot(m.present && first + sub < end && m.number % GPUVEC_PIECE == 0);
		uint32_t ends = ballot(m.ends);
		uint32_t taken = open ? MASK : begins ? 0u - (begins & (0u - begins)) : 0;

		if (first >= end && ends)
			taken &= (ends & (0u - ends)) * 2 - 1;
		return m.present && !done && (taken >> sub & 1);
	}

	/*
	 * Find where sums go; store the rows, and note the long rows, that begin
	 * in the chunk
	 */
	__device__ __forceinline__ void
	direct(const struct grad_marks &m, uint32_t first)
	{
		bool taken = is_taken(m, first);
		bool partial = m.ends && taken && (m.number >= GPUVEC_PIECE || m.goes_on);
		bool first_partial = partial && m.number < GPUVEC_PIECE;
		uint32_t partials = ballot(partial);
		uint32_t longs = ballot(first_partial);
		uint32_t row = counts.bags + __popc(m.heads_before) - 1;
		uint32_t slot = counts.partials + __popc(up_to_here(partials)) - 1;

		chunk.present = __ballot_sync(FULL_WARP, taken);
		chunk.ends = __ballot_sync(FULL_WARP, m.ends && taken);
		if (slice == 0 && m.head && taken && first + sub < end && p.out_rows)
			p.out_rows[row] = key;
		if (p.full)
			row = key;
		dest = partial ? slot | POOLING_PARTIAL : row;
		if (slice == 0 && first_partial)
			p.longs[counts.longs + __popc(up_to_here(longs)) - 1] = {slot, row};
		counts.partials += __popc(partials);
		counts.longs += __popc(longs);
	}

	/*
	 * If a row or piece ends with lookup `at` of the chunk, store its vector
	 */
	__device__ __forceinline__ void
	store(uint32_t at)
	{
		uint32_t to = __shfl_sync(FULL_WARP, dest, group_lane + at);

		if (!(chunk.ends >> (group_lane + at) & 1))
			return;
		if (active())
		{
			if (to & POOLING_PARTIAL)
				pooling_store<E>(p.partial + (to & ~POOLING_PARTIAL) * p.partial_stride, column * E,
								 p.width, p.vector_partial, acc);
			else
				pooling_store<E>(p.out + to * p.out_stride, column * E, p.width, p.vector_out, acc);
		}
		clear();
	}

	/*
	 * Add the gradients of the chunk's samples; at_end() is called where rows
	 * and pieces end
	 */
	template <typename End>
	__device__ __forceinline__ void
	add(const End &at_end)
	{
#pragma unroll 1
		for (uint32_t j = 0; j < LANES; j += GRAD_UNROLL)
			pooling_add_batch<float, VB, LANES, GRAD_UNROLL, W>(base, p.stride_bytes, chunk, j, acc,
																at_end);
	}

	/* Finish the chunk that began with lookup `first` */
	__device__ __forceinline__ void
	advance(const struct grad_marks &m, uint32_t first)
	{
		counts.bags += __popc(m.heads);
		if (m.heads)
			counts.start = first + 31 - __clz(m.heads);
		open = (chunk.present & ~chunk.ends) >> (group_lane + LANES - 1) & 1;
		done = done || (first + LANES >= end && !open);
	}
};

/* Add up the gradients of the samples of each row */
template <int VB, int LANES, bool W>
static __global__ void
__launch_bounds__(GRAD_MOST_THREADS) grad_kernel(const __grid_constant__ struct grad_params p)
{
	struct grad_group<VB, LANES, W> group(p);
	uint32_t warp_task;

	pooling_begin();
	if (!pooling_find_work(p.warp_tasks, p.slices, p.slice_major, warp_task, group.slice))
		return;
	group.start(warp_task);
	for (uint32_t first = group.begin; __ballot_sync(FULL_WARP, !group.done); first += LANES)
	{
		struct grad_marks marks = group.take(first);

		group.direct(marks, first);
		/* in the middle of long rows, or else the usual case */
		if (group.chunk.present == FULL_WARP && group.chunk.ends == 0)
			group.add([](uint32_t) {});
		else
			group.add([&](uint32_t at) { group.store(at); });
		group.advance(marks, first);
	}
}

/* The memory of pooling_grad */
struct grad_area
{
	uint32_t *keys[2];
	uint32_t *values[2];
	void *sort;
	uint32_t *samples; /* with coefficients only */
	float *divisors;
	struct grad_cut *cuts;
	struct pooling_pieces pieces;
};

/* True if there are coefficients */
static bool
has_coefficients(const struct pooling_bags *bags, gpuvec_pool_mode mode)
{
	return bags->weights != NULL || mode == GPUVEC_POOL_MEAN;
}

/* Lay out the memory; an area without a base only counts bytes */
static void
lay_out_grad(struct arena *area, const struct pooling_grad *grad, const struct pooling_bags *bags,
			 gpuvec_pool_mode mode, struct grad_area *g)
{
	uint64_t n = bags->lookups;
	uint64_t most_partials = n / (GPUVEC_PIECE / 2) + 1;
	uint64_t ntiles = divide_up(n, POOLING_TILE);

	for (int i = 0; i < 2; i++)
	{
		g->keys[i] = area->take<uint32_t>(n);
		g->values[i] = area->take<uint32_t>(n);
	}
	g->sort = area->take<char>(pooling_sort_workspace((uint32_t) grad->rows, (uint32_t) n));
	g->samples = NULL;
	g->divisors = NULL;
	if (has_coefficients(bags, mode))
	{
		g->samples = area->take<uint32_t>(n);
		g->divisors = area->take<float>(bags->bags);
	}
	g->pieces.tiles = area->take<struct pooling_counts>(ntiles);
	g->pieces.before = area->take<struct pooling_counts>(ntiles);
	g->pieces.total = area->take<struct pooling_counts>(1);
	g->cuts = area->take<struct grad_cut>(ntiles * (POOLING_TILE / GRAD_CUT));
	g->pieces.longs = area->take<struct pooling_long>(n / GPUVEC_PIECE + 2);
	g->pieces.partial_stride = pooling_partial_stride(grad->width);
	g->pieces.partial = area->take<float>(most_partials * g->pieces.partial_stride);
	g->pieces.partial_divisor = NULL;
}

/* True if the arguments are within the limits */
static bool
valid_bags(const struct pooling_bags *bags, gpuvec_pool_mode mode, uint64_t rows)
{
	return rows < UINT32_MAX && (bags->index_bits == 32 || bags->index_bits == 64) &&
		   bags->bags < POOLING_PARTIAL && bags->lookups < POOLING_PARTIAL &&
		   (mode == GPUVEC_POOL_CONCAT
				? bags->weights == NULL
				: bags->offsets != NULL || bags->lookups == bags->bags * bags->hotness);
}

static bool
valid_grad(const struct pooling_grad *grad, const struct pooling_bags *bags, gpuvec_pool_mode mode)
{
	return valid_bags(bags, mode, grad->rows) && grad->width > 0 &&
		   grad->grad_stride >= grad->width && grad->grad_stride <= UINT32_MAX / sizeof(float) &&
		   grad->out_stride >= grad->width && (!grad->full || grad->rows < POOLING_PARTIAL);
}

/* The bags as the kernels take them: for concat, bags of one lookup each */
static struct pooling_bags
plain_bags(const struct pooling_bags *bags, gpuvec_pool_mode mode)
{
	struct pooling_bags plain = *bags;

	if (mode == GPUVEC_POOL_CONCAT)
	{
		plain.offsets = NULL;
		plain.hotness = 1;
	}
	return plain;
}

/* Bytes of memory that pooling_grad needs */
cudaError_t
pooling_grad_workspace(const struct pooling_grad *grad, const struct pooling_bags *bags,
					   gpuvec_pool_mode mode, size_t *bytes)
{
	struct arena area = {NULL, 0};
	struct grad_area g;

	*bytes = 0;
	if (!valid_grad(grad, bags, mode))
		return cudaErrorInvalidValue;
	lay_out_grad(&area, grad, bags, mode, &g);
	*bytes = area.used;
	return cudaSuccess;
}

/*
 * Sort the lookups by row.  The rows end up in *rows, the samples in
 * *samples, and the coefficients, if any, in *coefficients.
 */
static cudaError_t
sort_lookups(const struct pooling_policy &policy, const struct pooling_grad *grad,
			 const struct pooling_bags *bags, gpuvec_pool_mode mode, const struct grad_area *g,
			 const uint32_t **rows, const uint32_t **samples, const float **coefficients,
			 cudaStream_t stream)
{
	struct bag_params params = {};
	struct pooling_sort sort = {};
	struct coefficient_params coefficient = {};
	int result = pooling_sort_result((uint32_t) grad->rows);
	cudaError_t error;

	params.bags = plain_bags(bags, mode);
	params.rows = (uint32_t) grad->rows;
	sort.bags = params.bags;
	sort.rows = params.rows;
	sort.positions = has_coefficients(bags, mode);
	for (int i = 0; i < 2; i++)
	{
		sort.keys[i] = g->keys[i];
		sort.values[i] = g->values[i];
	}
	error = pooling_sort(policy, &sort, g->sort, stream);
	*rows = g->keys[result];
	*samples = g->values[result];
	*coefficients = NULL;
	if (error != cudaSuccess || !has_coefficients(bags, mode))
		return error;

	params.samples = g->samples;
	params.divisors = g->divisors;
	error = pooling_launch(policy, samples_kernel, divide_up(bags->lookups, SAMPLES_LOOKUPS),
						   SAMPLES_THREADS, params, stream);
	if (error == cudaSuccess && mode == GPUVEC_POOL_MEAN)
		error =
			pooling_launch(policy, divisors_kernel, divide_up(bags->bags, 4), 128, params, stream);
	if (error != cudaSuccess)
		return error;

	coefficient.lookups = (uint32_t) bags->lookups;
	coefficient.positions = g->values[result];
	coefficient.samples = g->samples;
	coefficient.weights = bags->weights;
	coefficient.divisors = mode == GPUVEC_POOL_MEAN ? g->divisors : NULL;
	coefficient.sorted_samples = g->values[!result];
	coefficient.coefficients = (float *) g->keys[!result];
	*samples = coefficient.sorted_samples;
	*coefficients = coefficient.coefficients;
	return pooling_launch(policy, coefficients_kernel, divide_up(bags->lookups, 256), 256,
						  coefficient, stream);
}

/* Launch grad_kernel */
template <int VB, int LANES, bool W>
static cudaError_t
launch_grad(const struct pooling_policy &policy, struct grad_params &params, cudaStream_t stream)
{
	uint64_t warp_tasks = divide_up(divide_up(params.lookups, grad_part<LANES>()), 32 / LANES);

	if (warp_tasks * params.slices > UINT32_MAX)
		return cudaErrorInvalidValue;
	params.warp_tasks = (uint32_t) warp_tasks;
	return pooling_launch_cached(policy, grad_kernel<VB, LANES, W>, warp_tasks * params.slices,
								 policy.threads, params, stream);
}

/* The same for vectors of VB bytes */
template <int VB>
static cudaError_t
grad_vectors(const struct pooling_policy &policy, struct grad_params &params, uint32_t lanes_log2,
			 cudaStream_t stream)
{
	bool weighted = params.coefficients != NULL;

	switch (lanes_log2)
	{
		case 3:
			return weighted ? launch_grad<VB, 8, true>(policy, params, stream)
							: launch_grad<VB, 8, false>(policy, params, stream);
		case 4:
			return weighted ? launch_grad<VB, 16, true>(policy, params, stream)
							: launch_grad<VB, 16, false>(policy, params, stream);
		default:
			return weighted ? launch_grad<VB, 32, true>(policy, params, stream)
							: launch_grad<VB, 32, false>(policy, params, stream);
	}
}

/*
 * Choose how the gradients are read, and launch grad_kernel.
 *
 * Long rows are cut into slices of GRAD_SLICE bytes, and all work for a slice
 * comes before the next slice.  A sample's gradient is read about once for
 * each of its lookups.  One slice of all gradients may fit into the L2 cache
 * where whole gradients do not.
 *
 * Vectors of 8 bytes let the whole warp work on one row.  With two rows at a
 * time, each would wait where the other one ends.
 */
static cudaError_t
add_gradients(const struct pooling_policy &policy, struct grad_params *params, cudaStream_t stream)
{
	uint64_t row_bytes = (uint64_t) params->width * sizeof(float);
	uint32_t most_bytes = std::clamp(row_bytes > GRAD_SLICE ? GRAD_SLICE / 32u : 16u,
									 policy.least_vector_bytes, policy.most_vector_bytes);
	uint32_t elements;
	struct pooling_shape shape;

	shape = pooling_choose_shape(policy, params->grad, params->stride_bytes, row_bytes,
								 sizeof(float), most_bytes);
	elements = shape.vector_bytes / (uint32_t) sizeof(float);

	params->vectors = shape.vectors;
	params->slices = shape.slices;
	params->slice_major = policy.grad_slice_major;
	params->vector_out =
		pooling_vector_out(params->out, params->out_stride, params->width, elements, sizeof(float));
	params->vector_partial = params->width % elements == 0;

	switch (shape.vector_bytes)
	{
		case 16:
			return grad_vectors<16>(policy, *params, shape.lanes_log2, stream);
		case 8:
			return grad_vectors<8>(policy, *params, shape.lanes_log2, stream);
		default:
			return grad_vectors<4>(policy, *params, shape.lanes_log2, stream);
	}
}

/* The gradient of the table */
cudaError_t
pooling_grad(const struct pooling_policy &policy, const struct pooling_grad *grad,
			 const struct pooling_bags *bags, gpuvec_pool_mode mode, void *work, size_t work_bytes,
			 cudaStream_t stream)
{
	struct arena area = {(char *) work, 0};
	struct grad_area g;
	struct heads_params heads = {};
	struct grad_params add = {};
	uint64_t ntiles = divide_up(bags->lookups, POOLING_TILE);
	const uint32_t *rows;
	const uint32_t *samples;
	const float *coefficients;
	cudaError_t error;

	if (!valid_grad(grad, bags, mode))
		return cudaErrorInvalidValue;
	if (bags->lookups == 0)
		return grad->out_count ? cudaMemsetAsync(grad->out_count, 0, sizeof(uint32_t), stream)
							   : cudaSuccess;
	lay_out_grad(&area, grad, bags, mode, &g);
	if (work_bytes < area.used)
		return cudaErrorInvalidValue;

	error = sort_lookups(policy, grad, bags, mode, &g, &rows, &samples, &coefficients, stream);
	if (error != cudaSuccess || policy.grad_stages < 2)
		return error;

	heads.keys = rows;
	heads.lookups = (uint32_t) bags->lookups;
	heads.rows = (uint32_t) grad->rows;
	heads.tiles = g.pieces.tiles;
	heads.cuts = g.cuts;
	error = pooling_launch(policy, heads_kernel, divide_up(ntiles, HEADS_THREADS / 32),
						   HEADS_THREADS, heads, stream);
	if (error == cudaSuccess)
		error = pooling_scan(policy, &g.pieces, ntiles, grad->out_count, stream);
	if (error != cudaSuccess || policy.grad_stages < 3)
		return error;

	add.keys = rows;
	add.samples = samples;
	add.coefficients = coefficients;
	add.lookups = (uint32_t) bags->lookups;
	add.rows = (uint32_t) grad->rows;
	add.grad = (const char *) grad->grad;
	add.stride_bytes = (uint32_t) (grad->grad_stride * sizeof(float));
	add.width = grad->width;
	add.before = g.pieces.before;
	add.cuts = g.cuts;
	add.full = grad->full != 0;
	add.out = grad->out;
	add.out_stride = grad->out_stride;
	add.out_rows = grad->out_rows;
	add.partial = g.pieces.partial;
	add.partial_stride = g.pieces.partial_stride;
	add.longs = g.pieces.longs;
	error = add_gradients(policy, &add, stream);
	if (error == cudaSuccess)
		error =
			pooling_combine(policy, &g.pieces, false, grad->out, GPUVEC_FLOAT32, grad->out_stride,
							grad->width, bags->lookups / GPUVEC_PIECE, stream);
	return error;
}

} // namespace gpuvec
