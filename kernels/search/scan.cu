/*-------------------------------------------------------------------------
 *
 * scan.cu
 *	  Counts the ids that every row shares with a batch of queries, and emits
 *	  the rows that may be among the best.
 *
 * A batch has as many queries as an entry of the table has bits: 8, 16 or 32.
 * The table lies in shared memory; bit q of entry id says whether query q has
 * the id.  So one lookup of a row's id answers for all queries of the batch.
 * The entry is a mask that is added to bit-sliced counters
 * (bit_counters.cuh).  Entries of less than 32 bits are packed, several ids
 * to a mask; their counters are added up at the end of the tile.
 *
 * A warp scans a tile of 32 rows.  Lane r has row r, and reads its ids in
 * chunks of 8 by 16-byte loads that are contiguous over the warp.
 *
 * For the tile as a whole, lane q finds how many common ids query q needs for
 * its bound (gpuvec_need).  If no row can share as many, the query is out; if
 * all queries are out, the tile is not read.  The needs are turned into bit
 * planes, so that one bit-sliced comparison finds all pairs of rows and
 * queries that may qualify.  Only these are scored.
 *
 * There is one check on the way: at the point where fewer ids remain than
 * half of what the least demanding query needs, the same comparison tells
 * whether the tile can be left early.
 *
 * Positions beyond a row's length hold 0.  If no query of the batch has id 0,
 * they count nothing.  Otherwise the last chunks are masked by the rows'
 * lengths.
 *
 * In a mirror with numbers of ids, only hot numbers are counted (cold_rows.cu
 * says why that is enough).  So the number of chunks follows from them, and
 * no row can share more than the most hot numbers of a row of the tile.  But
 * what a query needs follows from the lengths, which count all numbers.
 *
 * Thread blocks are persistent: they take items until none is left.  An item
 * is a range of tiles and a batch.  The batches of one range follow one
 * another, so that the range's ids come from the L2 cache.  Within an item,
 * warps take tiles from a counter in shared memory.
 *
 *-------------------------------------------------------------------------
 */
#include "kernels/device/launch.h"
#include "kernels/search/bit_counters.cuh"
#include "kernels/search/emit.cuh"
#include "kernels/search/tile_walk.cuh"

namespace gpuvec
{

extern __shared__ uint4 shared_memory[];

/*
 * What the queries need in the tile of a warp, as bit planes: at its end, and
 * at the check on the way
 */
template <int PLANES>
struct __align__(16) tile_needs
{
	uint32_t end[(PLANES + 3) / 4 * 4];
	uint32_t check[(PLANES + 3) / 4 * 4];
};

/* Shared memory of a thread block; the table follows */
template <int PLANES, int THREADS>
struct __align__(16) scan_shared
{
	struct query_limits query[32]; /* of the batch */
	struct tile_needs<PLANES> needs[THREADS / 32];
	struct tile_walk walk;
	uint32_t padding[2];
};

/* A tile that a warp scans */
struct warp_tile
{
	uint32_t tile; /* number in the segment */
	uint32_t chunk;
	uint32_t nchunks;
	uint32_t whole; /* chunks that are whole in all rows */
	uint32_t minlen;
	uint32_t maxlen; /* of hot numbers only */
};

/* COUNTS: for a query that counts rows */
template <typename Entry, int PLANES, int THREADS, bool COUNTS>
struct scanner
{
	static constexpr int BATCH = 8 * sizeof(Entry);
	/* 32-bit masks that a chunk of 8 ids yields */
	static constexpr int MASKS = 2 * sizeof(Entry);

	typedef struct scan_shared<PLANES, THREADS> shared_type;

	const struct scan_params &params;
	shared_type *shared;
	Entry *table;
	struct tile_needs<PLANES> *needs; /* this warp's */
	uint32_t lane;

	/* of the batch */
	uint32_t first; /* first query */
	uint32_t alive; /* mask of queries that have not overflowed */
	bool has_zero;  /* some query has id 0 */

	/* the lengths of the last tile, and what follows from them */
	uint32_t minlen;
	uint32_t maxlen;
	uint32_t active; /* mask of queries for which such rows can qualify */
	/* chunks before the check; if the tile has fewer, there is no check */
	uint32_t check;

	__device__ __forceinline__
	scanner(const struct scan_params &p)
		: params(p), shared((shared_type *) shared_memory), table((Entry *) (shared + 1)),
		  needs(&shared->needs[threadIdx.x / 32]), lane(threadIdx.x % 32)
	{
	}

	/* Set bit q of the table for the ids of query q; called by one warp */
	__device__ __forceinline__ void
	mark_ids(uint32_t q)
	{
		const struct query_state *query = &params.queries[first + q];
		const uint16_t *ids = params.ids + query->ids;
		uint32_t n = query->nids;
		uint32_t *words = (uint32_t *) table;
		constexpr uint32_t PER_WORD = 4 / sizeof(Entry);

		for (uint32_t i = lane; i < n; i += 32)
		{
			uint32_t id = ids[i];

			if (id <= params.maxid)
				atomicOr(&words[id / PER_WORD], 1u << (q + id % PER_WORD * BATCH));
		}
	}

	/*
	 * Make the table and the lanes' state for a batch; called by the whole
	 * thread block
	 */
	__device__ __forceinline__ void
	load_batch(uint32_t batch)
	{
		uint32_t nquads = ((params.maxid + 1) * sizeof(Entry) + 15) / 16;
		uint32_t nqueries;
		bool wants = false;

		first = batch * BATCH;
		nqueries = min(params.nqueries - first, (uint32_t) BATCH);
		for (uint32_t i = threadIdx.x; i < nquads; i += THREADS)
			((uint4 *) table)[i] = make_uint4(0, 0, 0, 0);
		if (lane < nqueries)
		{
			const struct query_state *query = &params.queries[first + lane];

			wants = !query->overflow;
			if (threadIdx.x < 32)
			{
				shared->query[lane] = query->limits;
				shared->query[lane].score = bound_score(query->limits.bound.hi);
			}
		}
		alive = __ballot_sync(FULL_WARP, wants);
		minlen = ~0u;
		maxlen = 0;
		__syncthreads();
		for (uint32_t q = threadIdx.x / 32; q < nqueries; q += THREADS / 32)
			if (alive >> q & 1)
				mark_ids(q);
		__syncthreads();
		has_zero = table[0] != 0;
	}

	/* Write a number of each lane as planes; called by one warp */
	__device__ __forceinline__ void
	write_planes(uint32_t *planes, uint32_t number)
	{
#pragma unroll
		for (int p = 0; p < PLANES; p++)
		{
			uint32_t plane = __ballot_sync(FULL_WARP, number >> p & 1);

			if (lane == 0)
				planes[p] = plane;
		}
	}

	/*
	 * Find the queries for which rows of these lengths can qualify, and what
	 * these queries need
	 */
	__device__ __forceinline__ void
	set_lengths(const struct warp_tile &at)
	{
		uint32_t len = shared->query[lane].len;
		uint32_t need = gpuvec_need_with(params.scoring, len, at.minlen, shared->query[lane].score);
		uint32_t least;
		bool on = (alive >> lane & 1) && need <= min(len, at.maxlen);

		minlen = at.minlen;
		maxlen = at.maxlen;
		active = __ballot_sync(FULL_WARP, on);
		if (active == 0)
			return;
		least = __reduce_min_sync(FULL_WARP, on ? need : ~0u);
		if (!on)
			need = 0;
		__syncwarp(); /* all lanes have read the old planes */
		write_planes(needs->end, need);

		/*
		 * after `check` chunks, twice the number of remaining ids is less
		 * than `least`
		 */
		check = ~0u;
		if (least > 0)
			check = (maxlen - (least - 1) / 2 + 7) / 8;
		if (check < at.nchunks)
		{
			uint32_t remain = maxlen - check * 8;

			write_planes(needs->check, need > remain ? need - remain : 0);
		}
		__syncwarp();
	}

	/* The entry of an id; 0 for a position beyond the row's length */
	template <bool MASKED>
	__device__ __forceinline__ uint32_t
	look_up(uint32_t id, uint32_t position, uint32_t rowlen)
	{
		if (MASKED && position >= rowlen)
			return 0;
		return table[id];
	}

	/* The masks of a chunk; `position` is that of the chunk's first id */
	template <bool MASKED>
	__device__ __forceinline__ void
	chunk_masks(const uint4 &chunk, uint32_t *mask, uint32_t position, uint32_t rowlen)
	{
		const uint32_t word[4] = {chunk.x, chunk.y, chunk.z, chunk.w};

#pragma unroll
		for (int i = 0; i < 4; i++)
		{
			uint32_t a = look_up<MASKED>(word[i] & 0xFFFF, position + 2 * i, rowlen);
			uint32_t b = look_up<MASKED>(word[i] >> 16, position + 2 * i + 1, rowlen);

			if constexpr (BATCH == 32)
			{
				mask[2 * i] = a;
				mask[2 * i + 1] = b;
			}
			else if constexpr (BATCH == 16)
				mask[i] = a | b << 16;
			else if (i % 2 == 0)
				mask[i / 2] = a | b << 8;
			else
				mask[i / 2] |= a << 16 | b << 24;
		}
	}

	/* Count chunks from .. to - 1 of a row; all their ids count */
	__device__ __forceinline__ void
	count_chunks(bit_counters<PLANES> &counters, const uint4 *ids, uint32_t from, uint32_t to)
	{
		uint32_t mask[2 * MASKS];
		uint4 a;
		uint4 b;

		if (from >= to)
			return;
		ids += (size_t) from * 32;
		a = __ldcg(ids);
		if (from + 1 < to)
			b = __ldcg(ids + 32);
		for (; from + 2 <= to; from += 2)
		{
			uint4 this_a = a;
			uint4 this_b = b;

			ids += 64;
			if (from + 2 < to)
				a = __ldcg(ids);
			if (from + 3 < to)
				b = __ldcg(ids + 32);
			chunk_masks<false>(this_a, mask, 0, 0);
			chunk_masks<false>(this_b, mask + MASKS, 0, 0);
			counters.template add<2 * MASKS>(mask);
		}
		if (from < to)
		{
			chunk_masks<false>(a, mask, 0, 0);
			counters.template add<MASKS>(mask);
		}
	}

	/* The same for chunks in which the row may end */
	__device__ __forceinline__ void
	count_last_chunks(bit_counters<PLANES> &counters, const uint4 *ids, uint32_t from, uint32_t to,
					  uint32_t rowlen)
	{
#pragma unroll 1
		for (; from < to; from++)
		{
			uint32_t mask[MASKS];
			uint4 chunk = __ldcg(ids + (size_t) from * 32);

			chunk_masks<true>(chunk, mask, from * 8, rowlen);
			counters.template add<MASKS>(mask);
		}
	}

	/*
	 * Add up the counters of packed entries, so that bits 0 .. BATCH - 1 have
	 * the complete counts
	 */
	static __device__ __forceinline__ void
	fold(bit_counters<PLANES> &counters)
	{
		if constexpr (BATCH <= 16)
			counters.template fold<16>();
		if constexpr (BATCH <= 8)
			counters.template fold<8>();
	}

	/*
	 * True if some row of the tile can still reach what an active query needs
	 */
	__device__ __forceinline__ bool
	still_possible(const bit_counters<PLANES> &counters)
	{
		bit_counters<PLANES> whole = counters;

		fold(whole);
		return __any_sync(FULL_WARP, whole.at_least(needs->check) & active);
	}

	/*
	 * Emit the pairs of rows and queries that the bit-sliced comparison found
	 */
	__device__ __forceinline__ void
	emit_all(const bit_counters<PLANES> &counters, uint32_t candidates,
			 const struct device_segment *segment, uint32_t tile)
	{
		uint32_t row = tile * 32 + lane;
		uint32_t rowlen;
		uint64_t tid;
		uint32_t queries;
		const struct candidate_sink sink = {params.queries, params.candidates, params.capacity,
											params.scoring, &params.counts};

		if (row >= segment->nrows || (segment->live != NULL && !(segment->live[tile] >> lane & 1)))
			candidates = 0;
		queries = __reduce_or_sync(FULL_WARP, candidates);
		if (queries == 0)
			return;
		rowlen = segment->len[row];
		tid = key_of_row(segment, row);
#pragma unroll 1
		while (queries != 0)
		{
			uint32_t q = __ffs(queries) - 1;
			const struct query_limits *limits = &shared->query[q];
			uint32_t rows = mask_word(limits, segment, tile);

			queries &= queries - 1;
			emit_rows<COUNTS>(sink, first + q, limits, candidates >> q & rows >> lane & 1,
							  {counters.get(q), limits->len, rowlen}, tid,
							  warp_rows{segment, tile});
		}
	}

	/* Scan one tile; called by one warp */
	__device__ __forceinline__ void
	scan_tile(const struct device_segment *segment, const struct warp_tile &at)
	{
		const uint4 *ids = segment->ids + (size_t) at.chunk * 32 + lane;
		bit_counters<PLANES> counters;
		uint32_t done = 0;
		uint32_t whole = at.nchunks; /* chunks that need no mask */
		uint32_t rowlen = 0;
		uint32_t candidates;

		if (at.minlen != minlen || at.maxlen != maxlen)
			set_lengths(at);
		if (active == 0)
			return;
		if (has_zero)
		{
			whole = at.whole;
			rowlen = segment->hot_len[at.tile * 32 + lane];
		}
		counters.clear();
#pragma unroll 1
		for (;;)
		{
			uint32_t to = done < check && check < at.nchunks ? check : at.nchunks;

			count_chunks(counters, ids, done, min(to, whole));
			count_last_chunks(counters, ids, max(done, whole), to, rowlen);
			done = to;
			if (done == at.nchunks)
				break;
			if (!still_possible(counters))
				return;
		}
		fold(counters);
		candidates = counters.at_least(needs->end) & active;
		if (__any_sync(FULL_WARP, candidates))
			emit_all(counters, candidates, segment, at.tile);
	}

	/* Of n tiles of a group (n <= 32), scan those in the round's classes */
	__device__ __forceinline__ void
	scan_strip(uint32_t group, uint32_t offset, uint32_t n)
	{
		uint2 where = params.groups[group];
		const struct device_segment *segment = &params.segments[where.x];
		uint32_t tile = where.y + offset + lane;
		uint32_t hash = tile_class(where.x, tile);
		bool take = lane < n && tile < segment->ntiles && hash >= params.class_lo &&
					hash < params.class_hi && !(params.plain && segment->bits != NULL);
		uint32_t pending = __ballot_sync(FULL_WARP, take);
		uint4 mine = make_uint4(0, 0, 0, 0);

		if (take)
			mine = segment->tiles[tile];
#pragma unroll 1
		while (pending != 0)
		{
			int src = __ffs(pending) - 1;
			struct warp_tile at;

			pending &= pending - 1;
			at.tile = where.y + offset + src;
			at.chunk = __shfl_sync(FULL_WARP, mine.x, src);
			at.nchunks = __shfl_sync(FULL_WARP, mine.y, src);
			at.whole = at.nchunks >> TILE_WHOLE_SHIFT;
			at.nchunks &= (1 << TILE_WHOLE_SHIFT) - 1;
			at.minlen = __shfl_sync(FULL_WARP, mine.z, src);
			at.maxlen = __shfl_sync(FULL_WARP, mine.w, src);
			scan_tile(segment, at);
		}
	}

	/* Scan a range of groups; called by the whole thread block */
	__device__ __forceinline__ void
	scan_range(uint32_t range)
	{
		if (alive == 0)
			return;
		walk_range(params, &shared->walk, range,
				   [this](uint32_t group, uint32_t offset, uint32_t n)
				   { scan_strip(group, offset, n); });
	}

	/* Take items until none is left */
	__device__ __forceinline__ void
	run()
	{
		uint32_t batch = ~0u;
		uint32_t item;

		while (take_item(params, &shared->walk, &item))
		{
			if (item % params.nbatches != batch)
			{
				batch = item % params.nbatches;
				load_batch(batch);
			}
			scan_range(item / params.nbatches);
		}
	}
};

template <typename Entry, int PLANES, int THREADS, bool COUNTS = false>
__global__ void
__launch_bounds__(THREADS, 1) scan_kernel(const __grid_constant__ struct scan_params params)
{
	scanner<Entry, PLANES, THREADS, COUNTS> s(params);

	wait_for_previous();
	s.run();
}

/* Threads of a block: fewer with many planes, which take registers */
#define THREADS_8 1024
#define THREADS_17 512

typedef void (*scan_function)(const struct scan_params);

/*
 * The kernel for a width of entries and a number of planes; for a query that
 * counts rows entries have SCAN_COUNT_BITS
 */
static scan_function
scan_variant(uint32_t entry_bits, uint32_t planes, bool counts)
{
	if (counts)
		return planes == 8 ? scan_kernel<uint8_t, 8, THREADS_8, true>
						   : scan_kernel<uint8_t, 17, THREADS_17, true>;
	if (planes == 8)
		return entry_bits == 32   ? scan_kernel<uint32_t, 8, THREADS_8>
			   : entry_bits == 16 ? scan_kernel<uint16_t, 8, THREADS_8>
								  : scan_kernel<uint8_t, 8, THREADS_8>;
	return entry_bits == 32   ? scan_kernel<uint32_t, 17, THREADS_17>
		   : entry_bits == 16 ? scan_kernel<uint16_t, 17, THREADS_17>
							  : scan_kernel<uint8_t, 17, THREADS_17>;
}

/* Allow a kernel so much shared memory */
static cudaError_t
allow_shared(scan_function kernel, size_t bytes)
{
	return cudaFuncSetAttribute((const void *) kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
								(int) bytes);
}

/* Allow the kernels as much shared memory as the device has */
cudaError_t
scan_prepare(size_t smem_limit)
{
	cudaError_t rc = cudaSuccess;

	for (uint32_t planes = 8; planes <= 17 && rc == cudaSuccess; planes += 9)
	{
		rc = allow_shared(scan_variant(SCAN_COUNT_BITS, planes, true), smem_limit);
		for (uint32_t entry_bits = 8; entry_bits <= 32 && rc == cudaSuccess; entry_bits *= 2)
			rc = allow_shared(scan_variant(entry_bits, planes, false), smem_limit);
	}
	return rc;
}

/* Bytes of shared memory that a block needs for a table of ids 0 .. maxid */
size_t
scan_shared_bytes(uint32_t entry_bits, uint32_t planes, uint32_t maxid)
{
	size_t table = ((size_t) (maxid + 1) * (entry_bits / 8) + 15) / 16 * 16;

	return table + (planes == 8 ? sizeof(struct scan_shared<8, THREADS_8>)
								: sizeof(struct scan_shared<17, THREADS_17>));
}

uint32_t
scan_threads(uint32_t planes)
{
	return planes == 8 ? THREADS_8 : THREADS_17;
}

/* Find how many blocks run on a multiprocessor at once */
cudaError_t
scan_blocks(uint32_t entry_bits, uint32_t planes, bool counts, size_t shared_bytes, int *blocks)
{
	return cudaOccupancyMaxActiveBlocksPerMultiprocessor(
		blocks, scan_variant(entry_bits, planes, counts), scan_threads(planes), shared_bytes);
}

cudaError_t
scan_launch(const struct scan_params *params, uint32_t entry_bits, uint32_t planes, bool counts,
			size_t shared_bytes, uint32_t blocks, cudaStream_t stream)
{
	return launch_chained(scan_variant(entry_bits, planes, counts), dim3(blocks),
						  scan_threads(planes), shared_bytes, stream, *params);
}

} // namespace gpuvec
