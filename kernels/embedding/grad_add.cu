/*-------------------------------------------------------------------------
 *
 * grad_add.cu
 *	  Adds up the gradients of the samples of each row.
 *
 * grad_kernel goes through the sorted lookups.  A group of lanes has a slice
 * of them.  It compares neighbors to find where rows end, adds up the
 * gradients of the samples, and stores one vector per row, or per piece of a
 * row with many lookups.  A piece belongs to the group in whose slice it
 * begins.
 *
 *-------------------------------------------------------------------------
 */
#include <algorithm>

#include "kernels/embedding/grad.cuh"

namespace gpuvec
{

#define GRAD_MOST_THREADS 256
#define GRAD_SLICE 256 /* bytes per slice of a row */
#define GRAD_UNROLL 8  /* rows in flight per group of lanes */

/*
 * The number of sorted lookups that are one group's slice.  Groups that share
 * a warp should have equal work, so that they do not wait for each other:
 * their slices have GPUVEC_PIECE lookups.
 */
template <int LANES>
static __device__ __host__ __forceinline__ constexpr uint32_t
grad_slice(void)
{
	return LANES == 32 ? GRAD_CUT : GPUVEC_PIECE;
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
 * rows and pieces that begin in its slice of the sorted lookups.  VB is the
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
	 * the group's slice of the lookups; counts of rows and pieces before the
	 * chunk
	 */
	uint32_t begin;
	uint32_t end;
	bool done;
	bool open; /* the chunk begins within a piece that began in this slice */
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

	/* Begin the group's slice of a warp's work */
	__device__ __forceinline__ void
	start(uint32_t warp_task)
	{
		uint64_t task = (uint64_t) warp_task * (32 / LANES) + lane / LANES;

		column = slice * LANES + sub;
		base = pooling_lane_base(p.grad, column, p.vectors, VB);
		done = task * grad_slice<LANES>() >= p.lookups;
		begin = done ? 0 : (uint32_t) task * grad_slice<LANES>();
		end = min(begin + grad_slice<LANES>(), p.lookups);
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
	 * this slice
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

/* Launch grad_kernel */
template <int VB, int LANES, bool W>
static cudaError_t
launch_grad(const struct pooling_policy &policy, struct grad_params &params, cudaStream_t stream)
{
	uint64_t warp_tasks = divide_up(divide_up(params.lookups, grad_slice<LANES>()), 32 / LANES);

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
cudaError_t
grad_add(const struct pooling_policy &policy, struct grad_params *params, cudaStream_t stream)
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

} // namespace gpuvec
