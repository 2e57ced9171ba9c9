/*-------------------------------------------------------------------------
 *
 * list_planes.cuh
 *	  Counts the rows of inverted lists in bit planes in shared memory.
 *
 * A team of warps counts the lists of a query's ids in one block of a
 * segment.  Bit r of plane p is bit p of the count of row r.  To count a row,
 * its bit in plane 0 is toggled, and as long as the bit was set, its bit in
 * the next plane.
 *
 * Several lists may be counted at once, in any order of toggles.  A plane
 * receives one carry for every two toggles of the plane below, whatever their
 * order, so the planes end as the binary digits of the counts.
 *
 * Each lane of the team has 128 consecutive rows of the block, and so 16
 * bytes of each plane.
 *
 * If no row can have more than 255 common ids, the same memory can instead
 * hold a byte for each row (BYTES).  An atomic addition counts a row there,
 * and nothing has to wait for its result.  A lane's part of "plane" p is then
 * the bytes of its rows 16 p .. 16 p + 15, so that lanes read without bank
 * conflicts.
 *
 *-------------------------------------------------------------------------
 */
#ifndef GPUVEC_LIST_PLANES_CUH
#define GPUVEC_LIST_PLANES_CUH

#include "kernels/search/emit.cuh"

namespace gpuvec
{

#define LANE_ROWS 128

/* Rows of a small block, and its planes in shared memory */
#define TILED_ROWS (1 << TILED_SHIFT)
#ifndef TILED_PLANES
#define TILED_PLANES 6
#endif

/* Shared memory of a thread block besides planes and bitmaps */
struct __align__(16) team_shared
{
	uint32_t item;
	uint32_t next_query;
	uint32_t votes; /* rows that reach a count: see sum_of_team() */
	uint32_t padding;
};

/*
 * The block in which a team counts.  It lies in shared memory, because
 * registers are scarce where rows are counted.
 */
template <int MEMBERS>
struct __align__(16) entered_block
{
	struct device_lists lists; /* of the segment */
	const struct device_segment *segment;
	uint32_t segment_number;
	uint32_t block;
	/* queries counted in an earlier round: first query, number of queries */
	uint2 counted;
	uint32_t minlen[MEMBERS]; /* of each member's rows; ~0: no rows */
	uint32_t maxlen[MEMBERS];
};

/*
 * Emit this lane's rows that are set in N masks of 32 rows.  `first` is the
 * lane's first row in the segment; count(i) gives the count of row first + i.
 * The warp stops when it has emitted `most` rows or more.
 */
template <bool COUNTS, int N, typename Count>
static __device__ __forceinline__ void
emit_words(const struct list_params &params, const struct device_segment *segment, uint32_t q,
		   uint32_t first, uint32_t (&rows)[N], uint32_t most, Count count)
{
	const struct query_limits *limits = &params.queries[q].limits;
	const struct candidate_sink sink = {params.queries, params.candidates, params.capacity,
										params.scoring, &params.counts};
	uint32_t left = 0;
	uint32_t emitted = 0;

#pragma unroll
	for (int w = 0; w < N; w++)
		left |= rows[w];
	if (!__any_sync(FULL_WARP, left != 0))
		return;
#pragma unroll
	for (int w = 0; w < N; w++)
	{
		if (first + w * 32 >= segment->nrows)
			rows[w] = 0;
		if (rows[w] != 0 && segment->live != NULL)
			rows[w] &= segment->live[first / 32 + w];
		if (rows[w] != 0)
			rows[w] &= mask_word(limits, segment, first / 32 + w);
	}
#pragma unroll 1
	while (emitted < most)
	{
		uint32_t i = 0;
		bool mine = false;
		uint32_t row;
		uint32_t len = 0;
		uint64_t tid = 0;

		/* the lane's next row */
#pragma unroll
		for (int w = 0; w < N; w++)
			if (!mine && rows[w] != 0)
			{
				mine = true;
				i = w * 32 + __ffs(rows[w]) - 1;
				rows[w] &= rows[w] - 1;
			}
		if (!__any_sync(FULL_WARP, mine))
			break;
		row = first + i;
		mine = mine && row < segment->nrows;
		if (mine)
		{
			len = segment->len[row];
			tid = key_of_row(segment, row);
		}
		emitted += emit_rows<COUNTS>(sink, q, limits, mine, {count(i), limits->len, len}, tid,
									 lane_row{segment, row});
	}
}

/*
 * Which of this lane's N * 32 rows, of which `first` is the first one, pass
 * the query's filter.  Rows beyond the segment's end are in no list.
 */
template <int N>
static __device__ __forceinline__ void
rows_passing(const struct query_limits *limits, const struct device_segment *segment,
			 uint32_t first, uint32_t (&rows)[N])
{
#pragma unroll
	for (int w = 0; w < N; w++)
		rows[w] = first + w * 32 < segment->nrows ? mask_word(limits, segment, first / 32 + w) : 0;
}

/*
 * A word whose lowest n bits are set: no bits if n is negative, all from 32
 * on
 */
static __device__ __forceinline__ uint32_t
low_bits(int n)
{
	return __funnelshift_lc(~0u, 0, max(n, 0));
}

/* A team of WARPS warps, and NPLANES planes in shared memory */
template <int WARPS, int NPLANES, bool BYTES = false>
struct list_planes
{
	/* words of a plane */
	static constexpr uint32_t WORDS = WARPS * 32 * (LANE_ROWS / 32);
	/*
	 * words of a team: its planes, and 32 words for each warp
	 * (count_short_lists)
	 */
	static constexpr uint32_t TEAM_WORDS = NPLANES * WORDS + WARPS * 32;
	/* most lists that the planes can count */
	static constexpr uint32_t MOST_LISTS = (1u << NPLANES) - 1;

	const struct list_params &params;
	/*
	 * of the team; all zero between queries.  Memory for count_short_lists()
	 * follows.
	 */
	uint32_t *planes;
	struct team_shared *team;                  /* if WARPS > 1 */
	struct entered_block<WARPS * 32> *entered; /* NULL in plain_counter */
	uint32_t lane;                             /* in the warp */
	uint32_t member;                           /* in the team: lane + 32 * warp */

	__device__ __forceinline__
	list_planes(const struct list_params &p, uint32_t *team_planes, struct team_shared *shared,
				struct entered_block<WARPS * 32> *team_block)
		: params(p), planes(team_planes), team(shared), entered(team_block), lane(threadIdx.x % 32),
		  member(WARPS == 1 ? lane : threadIdx.x)
	{
		clear_planes();
	}

	__device__ __forceinline__ void
	sync_team() const
	{
		if constexpr (WARPS == 1)
			__syncwarp();
		else
			__syncthreads();
	}

	/* This lane's part of a plane */
	__device__ __forceinline__ uint4 *
	plane(int i) const
	{
		return (uint4 *) (planes + i * WORDS) + member;
	}

	__device__ __forceinline__ void
	clear_planes()
	{
#pragma unroll
		for (int i = 0; i < NPLANES; i++)
			*plane(i) = make_uint4(0, 0, 0, 0);
	}

	/*
	 * Enter the block that params.blocks[block] names, but do not set the
	 * lengths of rows
	 */
	__device__ __forceinline__ void
	set_block(uint32_t block)
	{
		uint2 where = params.blocks[block];
		const struct device_segment *segment = &params.segments[where.x];

		sync_team();
		if (member == 0)
		{
			entered->lists = segment->lists;
			entered->segment = segment;
			entered->segment_number = where.x;
			entered->block = where.y;
			entered->counted = counted_of(block);
		}
	}

	/* Enter a block; called by the whole team */
	__device__ __forceinline__ void
	enter_block(uint32_t block)
	{
		uint2 where = params.blocks[block];
		const struct device_segment *segment = &params.segments[where.x];
		uint32_t nrows = segment->nrows;
		uint32_t first = (where.y << (WARPS == 1 ? TILED_SHIFT : WHOLE_SHIFT)) + member * LANE_ROWS;

		set_block(block);
		entered->minlen[member] = first < nrows ? segment->len[first] : ~0u;
		entered->maxlen[member] =
			first < nrows ? segment->len[min(first + LANE_ROWS, nrows) - 1] : 0;
		sync_team();
	}

	/* This lane's first row, in the segment */
	__device__ __forceinline__ uint32_t
	first_row() const
	{
		return (WARPS == 1 ? entered->block << TILED_SHIFT : 0) + member * LANE_ROWS;
	}

	/*
	 * The queries for which a block was counted in an earlier round: first
	 * query, number of queries
	 */
	__device__ __forceinline__ uint2
	counted_of(uint32_t block) const
	{
		return params.counted == NULL ? make_uint2(0, 0) : params.counted[block];
	}

	/* True if the block was counted for this query in an earlier round */
	__device__ __forceinline__ bool
	is_counted(uint32_t q, uint32_t block) const
	{
		uint2 range = counted_of(block);

		return q - range.x < range.y;
	}

	/* Count a row in bytes */
	__device__ __forceinline__ void
	bump(uint32_t row)
	{
		static_assert(BYTES);
		atomicAdd(planes + (row / 16 % 8 * WORDS + row / LANE_ROWS * 4 + row / 4 % 4),
				  1u << row % 4 * 8);
	}

	/*
	 * Count row[i] if counting[i]; called by a whole warp.  See the head of
	 * the file.  All lanes go on to the next plane together: this costs less
	 * than letting some go on alone.
	 */
	template <int N>
	__device__ __forceinline__ void
	bump_all(const uint32_t (&row)[N], bool (&counting)[N])
	{
		if constexpr (BYTES)
		{
#pragma unroll
			for (int i = 0; i < N; i++)
				if (counting[i])
					bump(row[i]);
		}
		else
		{
			uint32_t *word[N];
			uint32_t before[N];
			bool more;

#pragma unroll
			for (int i = 0; i < N; i++)
				word[i] = planes + row[i] / 32;
#pragma unroll 1
			do
			{
				more = false;
#pragma unroll
				for (int i = 0; i < N; i++)
				{
					before[i] = 0;
					if (counting[i])
						before[i] = atomicXor(word[i], 1u << row[i] % 32);
				}
#pragma unroll
				for (int i = 0; i < N; i++)
				{
					counting[i] = (before[i] >> row[i] % 32 & 1) != 0;
					more |= counting[i];
					word[i] += WORDS;
				}
			} while (__any_sync(FULL_WARP, more));
		}
	}

	/* The list of an id: first posting, number of postings */
	__device__ __forceinline__ uint2
	find_list(const struct device_lists &lists, uint32_t id) const
	{
		if constexpr (WARPS == 1)
		{
			uint4 group = __ldg(&lists.groups[entered->block * lists.nbases + id / TILED_GROUP]);
			const uint32_t word[TILED_GROUP / 4] = {group.y, group.z, group.w};
			uint32_t bits = id % TILED_GROUP * 8; /* where its length starts */
			uint32_t start = group.x;

#pragma unroll
			for (int w = 0; w < TILED_GROUP / 4; w++)
				start = __dp4a(word[w] & low_bits((int) bits - 32 * w), 0x01010101u, start);
			return make_uint2(start, (bits < 32   ? word[0]
									  : bits < 64 ? word[1]
												  : word[2]) >>
											 bits % 32 &
										 0xFF);
		}
		else
		{
			uint32_t start = __ldg(&lists.base[id / WHOLE_GROUP]) + __ldg(&lists.start[id]);
			uint32_t next =
				__ldg(&lists.base[(id + 1) / WHOLE_GROUP]) + __ldg(&lists.start[id + 1]);

			return make_uint2(start, next - start);
		}
	}

	/* Count a list, with three loads in flight */
	__device__ __forceinline__ void
	count_list(const uint16_t *list, int length)
	{
		constexpr int LOADS = 3;
		int left = length - (int) lane;

		list += lane;
#pragma unroll 1
		for (; length > 0; length -= LOADS * 32, left -= LOADS * 32, list += LOADS * 32)
		{
			uint32_t posting[LOADS];
			bool counting[LOADS];

#pragma unroll
			for (int i = 0; i < LOADS; i++)
			{
				counting[i] = left > 32 * i;
				posting[i] = counting[i] ? __ldg(list + 32 * i) : 0;
			}
			bump_all(posting, counting);
		}
	}

	/* Count a list of each lane, one after another; for long lists */
	__device__ __forceinline__ void
	count_long_lists(const uint16_t *postings, uint32_t start, uint32_t n)
	{
		uint32_t lists = __ballot_sync(FULL_WARP, n > 0);

#pragma unroll 1
		while (lists != 0)
		{
			int src = __ffs(lists) - 1;
			uint32_t from = __shfl_sync(FULL_WARP, start, src);
			uint32_t length = __shfl_sync(FULL_WARP, n, src);

			lists &= lists - 1;
			count_list(postings + from, (int) length);
		}
	}

	/*
	 * Load the postings at positions i and i + 32 of all lanes' lists, taken
	 * as one sequence of `total` postings.  A lane's list ends at position
	 * `upto` (~0: no list), and no two lists end at the same position.
	 * starts[] has for each list the posting where position 0 would be.
	 * `done` lists end before i.
	 */
	__device__ __forceinline__ void
	load_postings(const uint16_t *postings, const uint32_t *starts, uint32_t upto, uint32_t total,
				  uint32_t i, uint32_t *done, uint32_t (&posting)[2]) const
	{
		uint32_t rank[2];

#pragma unroll
		for (int half = 0; half < 2; half++)
		{
			/* which of these 32 positions begin another list */
			uint32_t ends =
				__reduce_or_sync(FULL_WARP, __funnelshift_lc(0, 1, upto - (i - lane) - 32 * half));

			rank[half] = *done + __popc(ends & ~0u >> (31 - lane));
			*done += __popc(ends);
		}
#pragma unroll
		for (int half = 0; half < 2; half++)
			posting[half] =
				i + 32 * half >= total ? 0 : __ldg(&postings[starts[rank[half]] + i + 32 * half]);
	}

	/*
	 * Count a list of each lane, all at once, 64 postings at a time; for
	 * short lists.  AHEAD: load the next postings while some are counted.
	 * starts: this warp's memory, a word for each list.
	 */
	template <bool AHEAD>
	__device__ __forceinline__ void
	count_short_lists(const uint16_t *postings, uint32_t start, uint32_t n, uint32_t *starts)
	{
		uint32_t lists = __ballot_sync(FULL_WARP, n > 0);
		uint32_t upto = n;
		uint32_t total;
		uint32_t done = 0;
		uint32_t next[2] = {0, 0};

#pragma unroll
		for (int d = 1; d < 32; d *= 2)
		{
			uint32_t left = __shfl_up_sync(FULL_WARP, upto, d);

			if (lane >= (uint32_t) d)
				upto += left;
		}
		total = __shfl_sync(FULL_WARP, upto, 31);
		if (n > 0)
			starts[__popc(lists & ((1u << lane) - 1))] = start - (upto - n);
		else
			upto = ~0u;
		__syncwarp();
		if (AHEAD)
			load_postings(postings, starts, upto, total, lane, &done, next);
#pragma unroll 1
		for (uint32_t i = lane; i - lane < total; i += 64)
		{
			uint32_t posting[2] = {next[0], next[1]};
			bool counting[2] = {i < total, i + 32 < total};

			if (!AHEAD)
				load_postings(postings, starts, upto, total, i, &done, posting);
			else if (i - lane + 64 < total)
				load_postings(postings, starts, upto, total, i + 64, &done, next);
			bump_all(posting, counting);
		}
		__syncwarp();
	}

	/*
	 * Count the lists of ids[from] .. ids[upto - 1]; the team's warps share
	 * them
	 */
	template <bool AHEAD>
	__device__ __forceinline__ void
	count_ids(const struct device_lists &lists, const uint16_t *ids, uint32_t from, uint32_t upto)
	{
#pragma unroll 1
		for (uint32_t i = from + (WARPS == 1 ? 0 : member / 32); i < upto; i += WARPS * 32)
		{
			uint32_t mine = i + lane * WARPS;
			uint2 list = make_uint2(0, 0);

			if (mine < upto)
				list = find_list(lists, __ldg(&ids[mine]));
			if constexpr (WARPS == 1 || BYTES)
				count_short_lists<AHEAD>(lists.postings, list.x, list.y,
										 planes + NPLANES * WORDS + member / 32 * 32);
			else
				count_long_lists(lists.postings, list.x, list.y);
		}
		sync_team();
	}

	/* The sum of a number of each warp over the team */
	__device__ __forceinline__ uint32_t
	sum_of_team(uint32_t n)
	{
		if constexpr (WARPS > 1)
		{
			__syncthreads();
			if (threadIdx.x == 0)
				team->votes = 0;
			__syncthreads();
			if (lane == 0)
				atomicAdd(&team->votes, n);
			__syncthreads();
			n = team->votes;
		}
		return n;
	}

	/*
	 * Find what this lane's rows, which have minlen to maxlen ids, need for a
	 * query: *need is the number of common ids, *most the number of rows that
	 * each warp may emit.  Returns false if no row of the team can have
	 * enough.
	 */
	__device__ __forceinline__ bool
	what_is_needed(const struct query_limits *limits, uint32_t minlen, uint32_t maxlen,
				   uint32_t *need, uint32_t *most)
	{
		uint32_t len = limits->len;
		bool hopeless;

		*need = gpuvec_need_with(params.scoring, len, minlen, bound_score(limits->bound.hi));
		*most = params.sample > 0 ? (2 * params.sample + WARPS - 1) / WARPS : ~0u;
		hopeless = minlen == ~0u || *need > min(len, maxlen);
		if (hopeless)
			*need = 1u << 31;
		return !(WARPS == 1 ? __all_sync(FULL_WARP, hopeless) : __syncthreads_and(hopeless));
	}
};

} // namespace gpuvec

#endif /* GPUVEC_LIST_PLANES_CUH */
