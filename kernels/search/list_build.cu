/*-------------------------------------------------------------------------
 *
 * list_build.cu
 *	  Makes the inverted lists and bitmaps of a segment, on the GPU.
 *
 * First the GPU counts the rows of each id.  From these counts the host
 * decides which ids are common, how large blocks are, and whether lists are
 * worth their memory.  Then each id of each row becomes a bit of a bitmap, if
 * the id is common, or else a key of 32 bits:
 *
 *		block | id | row within the block
 *
 * The sorted keys (CUB's radix sort) are the lists, one after another.
 * Binary searches find where each list starts.  Of numbers of ids, only hot
 * ones get lists and bitmaps.
 *
 *-------------------------------------------------------------------------
 */
#include <algorithm>
#include <new>
#include <stdlib.h>
#include <string.h>
#include <vector>

#include <cub/device/device_radix_sort.cuh>

#include "kernels/device/arena.h"
#include "kernels/device/launch.h"
#include "kernels/search/row_ids.cuh"
#include "kernels/search/search_backend.h"

namespace gpuvec
{

/*
 * Segments with more ids, counted over all rows, get no lists: sorting would
 * take too much memory
 */
#define MAX_IDS ((uint64_t) 1 << 26)

/*
 * Lists and bitmaps may take this many tenths of the ids' bytes; see
 * small_fit()
 */
#define MAX_TENTHS 13

/*
 * But bitmaps of all ids may take this many bytes a row if rows have one in
 * FULL_FRACTION of these ids or more.  Counting by lists of them takes several
 * times as long.
 */
#define FULL_BYTES 256
#define FULL_FRACTION 96

/*
 * Blocks are small if a row has at least this number of common ids on average
 */
#define TILED_DENSITY 2.0

/*
 * In segments with fewer rows the directory counts against the limit of
 * memory; see small_fit()
 */
#define FIXED_ROWS 32768

/*
 * A segment of one block gets lists only if a row has fewer common ids than
 * this on average
 */
#define WHOLE_DENSITY 1.0

/*
 * In a segment of one block, and where memory is scarce, ids in more than 1 /
 * WHOLE_FRACTION of the rows are common.  So a list has at most 2^16 /
 * WHOLE_FRACTION rows, and offsets within WHOLE_GROUP lists fit 16 bits
 * (start[]).
 */
#define WHOLE_FRACTION 16

/* Small blocks of the largest segment */
#define NBLOCKS (GPUVEC_SEGMENT_ROWS >> TILED_SHIFT)

#define BUILD_THREADS 256

/* A key that sorts last; it stands for a common id */
#define NO_KEY 0xFFFFFFFFu

static const char *const what = "make the lists of a segment";
static const char *const copying = "copy rows to the GPU";
static const char *const whose = "the lists of a segment";

/* The parameters of the kernels */
struct build_params
{
	const uint4 *ids;
	const uint4 *tiles;
	const uint32_t *hot_len;
	uint32_t ntiles;
	uint32_t nkeys; /* ids of all rows that are not common */
	/* [NBLOCKS * 65536]: rows of each id in each small block */
	uint32_t *rows_in;
	/* [2 * 65536]: rows of each id, then the most of them in a small block */
	uint32_t *rows_of;
	const uint32_t *tile_keys; /* [ntiles]: ids of all rows in tiles before */
	uint32_t *keys;
	uint4 *bitmaps;
	uint16_t *postings;
	uint4 *groups;
	uint32_t *base;
	uint16_t *start;
	struct device_lists lists; /* pointers as in the finished lists */
};

/*
 * The plan of a segment's lists, and the offsets of their parts in one
 * allocation
 */
struct list_plan
{
	uint32_t shift;
	uint32_t nblocks;
	uint32_t nbases;
	uint32_t nstarts;
	uint64_t nkeys;
	std::vector<uint16_t> slots; /* [maxid + 1], padded to an even number */
	uint32_t nslots;             /* without the empty one */
	/* every common id got a slot, so that all lists are short enough */
	bool possible;
	size_t groups;
	size_t base;
	size_t start;
	size_t slot;
	size_t bitmaps;
	size_t bytes;
};

/*
 * Call f(id, position) for each id of this lane's row of a tile, in ascending
 * order of positions
 */
template <typename F>
static __device__ __forceinline__ void
for_each_id(const struct build_params &p, uint32_t tile, F f)
{
	uint32_t lane = threadIdx.x % 32;

	for_each_row_id(p.ids + (size_t) p.tiles[tile].x * 32, lane, p.hot_len[tile * 32 + lane], f);
}

/* Count the rows of each id in each small block; one warp per tile */
static __global__ void
__launch_bounds__(BUILD_THREADS) count_rows_kernel(const __grid_constant__ struct build_params p)
{
	uint32_t tile = (blockIdx.x * BUILD_THREADS + threadIdx.x) / 32;
	uint32_t *rows = p.rows_in + (size_t) (tile * 32 >> TILED_SHIFT) * GPUVEC_MAX_IDS;

	if (tile < p.ntiles)
		for_each_id(p, tile, [=](uint32_t id, uint32_t) { atomicAdd(&rows[id], 1); });
}

/*
 * Add up the rows of each id, and find the most in a small block; one thread
 * per id
 */
static __global__ void
__launch_bounds__(BUILD_THREADS) sum_rows_kernel(const __grid_constant__ struct build_params p)
{
	uint32_t id = blockIdx.x * BUILD_THREADS + threadIdx.x;
	uint32_t sum = 0;
	uint32_t most = 0;

	for (uint32_t b = 0; b < NBLOCKS; b++)
	{
		uint32_t n = p.rows_in[b * GPUVEC_MAX_IDS + id];

		sum += n;
		most = max(most, n);
	}
	p.rows_of[id] = sum;
	p.rows_of[GPUVEC_MAX_IDS + id] = most;
}

/* Write the keys, and set the bits of common ids; one warp per tile */
static __global__ void
__launch_bounds__(BUILD_THREADS) write_keys_kernel(const __grid_constant__ struct build_params p)
{
	uint32_t tile = (blockIdx.x * BUILD_THREADS + threadIdx.x) / 32;
	uint32_t lane = threadIdx.x % 32;
	uint32_t shift = p.lists.shift;
	uint32_t row = tile * 32 + lane;
	uint32_t block = row >> shift;
	uint32_t row_in_block = row & ((1u << shift) - 1);
	uint32_t at;
	uint32_t n;
	uint32_t *bitmaps;

	if (tile >= p.ntiles)
		return;
	n = p.hot_len[row];
	at = n;
	for (int d = 1; d < 32; d *= 2)
	{
		uint32_t left = __shfl_up_sync(0xFFFFFFFFu, at, d);

		if (lane >= (uint32_t) d)
			at += left;
	}
	at += p.tile_keys[tile] - n;
	/* the word of this tile in the block's first bitmap */
	bitmaps = (uint32_t *) p.bitmaps + ((size_t) block * (p.lists.nslots + 1) << (shift - 5)) +
			  row_in_block / 32;
	for_each_id(p, tile,
				[&](uint32_t id, uint32_t position)
				{
					uint32_t slot = p.lists.slot[id];

					if (slot != NO_SLOT)
						atomicOr(&bitmaps[(size_t) slot << (shift - 5)], 1u << lane);
					p.keys[at + position] =
						slot != NO_SLOT
							? NO_KEY
							: (shift < 16 ? block << (shift + 16) : 0) | id << shift | row_in_block;
				});
}

/* Position of the first key >= target */
static __device__ __forceinline__ uint32_t
first_key(const struct build_params &p, uint64_t target)
{
	uint32_t lo = 0;
	uint32_t hi = p.nkeys;

	while (lo < hi)
	{
		uint32_t middle = lo + (hi - lo) / 2;

		if (p.keys[middle] < target)
			lo = middle + 1;
		else
			hi = middle;
	}
	return lo;
}

/* Write groups[]; one thread per group of ids and block (blockIdx.y) */
static __global__ void
__launch_bounds__(BUILD_THREADS) write_groups_kernel(const __grid_constant__ struct build_params p)
{
	uint32_t group = blockIdx.x * BUILD_THREADS + threadIdx.x;
	uint32_t word[TILED_GROUP / 4] = {};

	if (group >= p.lists.nbases)
		return;
	for (uint32_t i = 0; i < TILED_GROUP; i++)
	{
		uint32_t id = group * TILED_GROUP + i;

		if (id <= p.lists.maxid && p.lists.slot[id] == NO_SLOT)
			word[i / 4] |= p.rows_in[blockIdx.y * GPUVEC_MAX_IDS + id] << i % 4 * 8;
	}
	p.groups[(size_t) blockIdx.y * p.lists.nbases + group] =
		make_uint4(first_key(p, ((uint64_t) blockIdx.y << (TILED_SHIFT + 16)) +
									((uint64_t) group * TILED_GROUP << TILED_SHIFT)),
				   word[0], word[1], word[2]);
}

/* Write base[] and start[]; one thread per id */
static __global__ void
__launch_bounds__(BUILD_THREADS) write_starts_kernel(const __grid_constant__ struct build_params p)
{
	uint32_t id = blockIdx.x * BUILD_THREADS + threadIdx.x;
	uint32_t at = first_key(p, (uint64_t) id << WHOLE_SHIFT);
	uint32_t group = __shfl_sync(0xFFFFFFFFu, at, threadIdx.x / WHOLE_GROUP * WHOLE_GROUP % 32);

	if (id >= p.lists.nstarts)
		return;
	p.start[id] = (uint16_t) (at - group);
	if (id % WHOLE_GROUP == 0)
		p.base[id / WHOLE_GROUP] = group;
}

/* Write the lists */
static __global__ void
__launch_bounds__(BUILD_THREADS)
	write_postings_kernel(const __grid_constant__ struct build_params p)
{
	uint32_t i = blockIdx.x * BUILD_THREADS + threadIdx.x;

	if (i < p.nkeys)
		p.postings[i] = (uint16_t) (p.keys[i] & ((1u << p.lists.shift) - 1));
}

/*
 * Choose the common ids: those in more than nrows / fraction rows, and in
 * small blocks those whose lists would be too long.  Returns how many of them
 * a row has on average.  rows_of[GPUVEC_MAX_IDS + id] is the most rows of an
 * id in a block.
 */
static double
choose_common(struct list_plan *plan, const uint32_t *rows_of, uint32_t maxid, uint32_t nrows,
			  uint32_t fraction)
{
	std::vector<uint32_t> common;
	uint64_t sum = 0;

	for (uint32_t id = 0; id <= maxid; id++)
		if ((uint64_t) rows_of[id] * fraction > nrows ||
			(plan->shift == TILED_SHIFT && rows_of[GPUVEC_MAX_IDS + id] > MAX_LIST))
			common.push_back(id);
	std::sort(common.begin(), common.end(),
			  [&](uint32_t a, uint32_t b)
			  { return rows_of[a] != rows_of[b] ? rows_of[a] > rows_of[b] : a < b; });
	plan->slots.assign((maxid + 2) / 2 * 2, NO_SLOT);
	plan->nslots = (uint32_t) std::min(common.size(), (size_t) NO_SLOT - 1);
	for (uint32_t s = 0; s < plan->nslots; s++)
	{
		plan->slots[common[s]] = (uint16_t) (s + 1);
		sum += rows_of[common[s]];
	}
	plan->possible = plan->nslots == common.size();
	return (double) sum / nrows;
}

/*
 * Complete a plan whose common ids and blocks are chosen: sizes and offsets
 */
static void
lay_out_lists(struct list_plan *plan, const gpuvec_segment *segment, const uint32_t *rows_of,
			  uint32_t maxid)
{
	bool small = plan->shift == TILED_SHIFT;
	struct arena at = {NULL, 0};

	plan->nkeys = gpuvec_segment_hot(segment);
	for (uint32_t id = 0; id <= maxid; id++)
		if (plan->slots[id] != NO_SLOT)
			plan->nkeys -= rows_of[id];
	plan->nblocks = (segment->nrows + (1u << plan->shift) - 1) >> plan->shift;
	plan->nstarts = (maxid + 2 + 31) / 32 * 32;
	plan->nbases = small ? maxid / TILED_GROUP + 1 : plan->nstarts / WHOLE_GROUP;
	at.reserve(plan->nkeys * sizeof(uint16_t));
	plan->groups = at.reserve(small ? (size_t) plan->nblocks * plan->nbases * sizeof(uint4) : 0);
	plan->base = at.reserve(small ? 0 : plan->nbases * sizeof(uint32_t));
	plan->start = at.reserve(small ? 0 : plan->nstarts * sizeof(uint16_t));
	plan->slot = at.reserve(plan->slots.size() * sizeof(uint16_t));
	plan->bitmaps = at.used;
	plan->bytes =
		plan->bitmaps + (((size_t) plan->nblocks * (plan->nslots + 1)) << (plan->shift - 3));
}

/*
 * True if a segment may have the small blocks of a plan.  Lists and bitmaps
 * should take at most `most` bytes.
 *
 * If rows have few ids, the directory (which tells where lists and bitmaps
 * are) is larger than lists and bitmaps.  In segments of FIXED_ROWS rows or
 * more, it is not counted as long as it takes at most `most_directory` bytes.
 * Most mirrors have few such segments, and with fewer bitmaps these would
 * take as long to search as many others.
 */
static bool
small_fit(const struct list_plan *plan, const gpuvec_segment *segment, size_t most,
		  size_t most_directory)
{
	size_t directory = plan->bitmaps - plan->groups;

	return plan->possible &&
		   (plan->bytes <= most || (segment->nrows >= FIXED_ROWS && directory <= most_directory &&
									plan->bytes - directory <= most));
}

/* Bytes that lists and bitmaps should take, at most */
static size_t
most_bytes(const gpuvec_segment *segment, uint32_t maxid)
{
	uint64_t nids = gpuvec_segment_hot(segment);
	size_t most = nids * sizeof(uint16_t) * MAX_TENTHS / 10;

	/* the largest id is part of it, and one bitmap is empty */
	if (maxid < FULL_BYTES * 8 && nids * FULL_FRACTION >= (uint64_t) segment->nrows * maxid)
		most = std::max(most, (size_t) segment->nrows * (FULL_BYTES + FULL_BYTES / 16));
	return most;
}

/* Plan the lists of a segment; false if it gets none */
static bool
plan_lists(struct search_backend *b, struct list_plan *plan, const gpuvec_segment *segment,
		   const uint32_t *rows_of, uint32_t maxid)
{
	uint32_t shift = b->policy.list_shift;
	size_t most = most_bytes(segment, maxid);
	bool laid_out = false;
	double density;

	for (uint32_t fraction : b->policy.list_fractions)
	{
		plan->shift = TILED_SHIFT;
		laid_out = false;
		density = choose_common(plan, rows_of, maxid, segment->nrows, fraction);
		if (shift == WHOLE_SHIFT || (density < TILED_DENSITY && shift != TILED_SHIFT))
			break;
		lay_out_lists(plan, segment, rows_of, maxid);
		if (shift == TILED_SHIFT)
			return plan->possible;
		if (small_fit(plan, segment, most, most / 2))
			return true;
		laid_out = true;
	}

	/* scanning this segment apart would take longer than all else */
	if (laid_out && small_fit(plan, segment, most, SIZE_MAX))
		return true;
	plan->shift = WHOLE_SHIFT;
	density = choose_common(plan, rows_of, maxid, segment->nrows, WHOLE_FRACTION);
	lay_out_lists(plan, segment, rows_of, maxid);
	if (shift == WHOLE_SHIFT)
		return plan->possible;
	if (plan->possible && plan->bytes <= most && density < WHOLE_DENSITY)
		return true;
	plan->shift = TILED_SHIFT;
	choose_common(plan, rows_of, maxid, segment->nrows, WHOLE_FRACTION);
	lay_out_lists(plan, segment, rows_of, maxid);
	return small_fit(plan, segment, most, SIZE_MAX);
}

/* Device memory while building */
struct build_memory
{
	unique_memory rows_in;
	unique_memory rows_of;
	unique_memory tile_keys;
	unique_memory keys[2];
	unique_memory sort;
};

/*
 * Count the rows of each id; copies rows_of[2 * GPUVEC_MAX_IDS] to the host
 */
static bool
count_rows(struct search_backend *b, staged_stream &stream, struct build_params *p,
		   struct build_memory *memory, uint32_t *rows_of, gpuvec_error *error)
{
	size_t bytes = 2 * GPUVEC_MAX_IDS * sizeof(uint32_t);
	size_t in_bytes = NBLOCKS * GPUVEC_MAX_IDS * sizeof(uint32_t);

	if (!allocate(b->device, memory->rows_of, bytes, stream.get(), whose, error) ||
		!allocate(b->device, memory->rows_in, in_bytes, stream.get(), whose, error) ||
		!b->device.check(cudaMemsetAsync(memory->rows_in.get(), 0, in_bytes, stream.get()), what,
						 error))
		return false;
	p->rows_of = (uint32_t *) memory->rows_of.get();
	p->rows_in = (uint32_t *) memory->rows_in.get();
	return b->device.check(launch(count_rows_kernel, dim3((p->ntiles + 7) / 8), BUILD_THREADS, 0,
								  stream.get(), *p),
						   what, error) &&
		   b->device.check(launch(sum_rows_kernel, dim3(GPUVEC_MAX_IDS / BUILD_THREADS),
								  BUILD_THREADS, 0, stream.get(), *p),
						   what, error) &&
		   stream.fetch(rows_of, p->rows_of, bytes, what, error) && stream.finish(what, error);
}

/*
 * Sort p->keys[nids].  The first p->nkeys are then the keys of lists: those
 * of common ids come last.
 */
static bool
sort_keys(struct search_backend *b, staged_stream &stream, struct build_params *p,
		  struct build_memory *memory, uint32_t nids, gpuvec_error *error)
{
	cub::DoubleBuffer<uint32_t> keys((uint32_t *) memory->keys[0].get(),
									 (uint32_t *) memory->keys[1].get());
	size_t bytes = 0;

	if (!b->device.check(
			cub::DeviceRadixSort::SortKeys(NULL, bytes, keys, nids, 0, 32, stream.get()), what,
			error) ||
		!allocate(b->device, memory->sort, bytes + 1, stream.get(), whose, error) ||
		!b->device.check(cub::DeviceRadixSort::SortKeys(memory->sort.get(), bytes, keys, nids, 0,
														32, stream.get()),
						 what, error))
		return false;
	p->keys = keys.Current();
	return true;
}

/* Queue the writing of the directory: where lists start */
static bool
write_directory(struct search_backend *b, staged_stream &stream, const struct build_params *p,
				gpuvec_error *error)
{
	cudaError_t rc;

	if (p->lists.shift == TILED_SHIFT)
		rc = launch(write_groups_kernel,
					dim3((p->lists.nbases + BUILD_THREADS - 1) / BUILD_THREADS, p->lists.nblocks),
					BUILD_THREADS, 0, stream.get(), *p);
	else
		rc = launch(write_starts_kernel,
					dim3((p->lists.nstarts + BUILD_THREADS - 1) / BUILD_THREADS), BUILD_THREADS, 0,
					stream.get(), *p);
	return b->device.check(rc, what, error);
}

/*
 * Write directory and lists.  Their memory is allocated, with slots filled in
 * and bitmaps empty.
 */
static bool
fill_lists(struct search_backend *b, staged_stream &stream, struct build_params *p,
		   struct build_memory *memory, const gpuvec_segment *segment, gpuvec_error *error)
{
	std::vector<uint32_t> tile_keys(segment->ntiles + 1);
	uint32_t nids = (uint32_t) gpuvec_segment_hot(segment);
	size_t key_bytes = nids * sizeof(uint32_t);
	uint32_t sum = 0;

	for (uint32_t r = 0; r < segment->nrows; r++)
	{
		if (r % GPUVEC_TILE_ROWS == 0)
			tile_keys[r / GPUVEC_TILE_ROWS] = sum;
		sum += gpuvec_hot_len(segment, r);
	}
	if (!allocate(b->device, memory->tile_keys, tile_keys.size() * sizeof(uint32_t), stream.get(),
				  whose, error) ||
		!allocate(b->device, memory->keys[0], key_bytes, stream.get(), whose, error) ||
		!allocate(b->device, memory->keys[1], key_bytes, stream.get(), whose, error) ||
		!stream.send(memory->tile_keys.get(), tile_keys.data(), tile_keys.size() * sizeof(uint32_t),
					 copying, error))
		return false;
	p->tile_keys = (const uint32_t *) memory->tile_keys.get();
	p->keys = (uint32_t *) memory->keys[0].get();
	if (!b->device.check(launch(write_keys_kernel, dim3((p->ntiles + 7) / 8), BUILD_THREADS, 0,
								stream.get(), *p),
						 what, error) ||
		!sort_keys(b, stream, p, memory, nids, error) || !write_directory(b, stream, p, error))
		return false;
	return p->nkeys == 0 ||
		   b->device.check(launch(write_postings_kernel,
								  dim3((p->nkeys + BUILD_THREADS - 1) / BUILD_THREADS),
								  BUILD_THREADS, 0, stream.get(), *p),
						   what, error);
}

/*
 * Allocate the lists of a plan, fill in slots, clear the bitmaps, and set the
 * pointers in *p
 */
static bool
allocate_lists(struct search_backend *b, staged_stream &stream, const struct list_plan *plan,
			   struct build_params *p, unique_memory &lists, gpuvec_error *error)
{
	char *memory;

	if (!allocate(b->device, lists, plan->bytes, stream.get(), whose, error))
		return false;
	memory = (char *) lists.get();
	p->nkeys = (uint32_t) plan->nkeys;
	p->postings = (uint16_t *) memory;
	p->groups = (uint4 *) (memory + plan->groups);
	p->base = (uint32_t *) (memory + plan->base);
	p->start = (uint16_t *) (memory + plan->start);
	p->bitmaps = (uint4 *) (memory + plan->bitmaps);
	p->lists.postings = p->postings;
	p->lists.groups = p->groups;
	p->lists.base = p->base;
	p->lists.start = p->start;
	p->lists.slot = (const uint16_t *) (memory + plan->slot);
	p->lists.bitmaps = p->bitmaps;
	p->lists.shift = plan->shift;
	p->lists.nblocks = plan->nblocks;
	p->lists.nslots = plan->nslots;
	p->lists.nstaged = plan->shift == TILED_SHIFT
						   ? std::min(plan->nslots, lists_slots(b->device.shared_limit))
						   : plan->nslots;
	p->lists.nbases = plan->nbases;
	p->lists.nstarts = plan->nstarts;
	return stream.send(memory + plan->slot, plan->slots.data(),
					   plan->slots.size() * sizeof(uint16_t), copying, error) &&
		   b->device.check(
			   cudaMemsetAsync(p->bitmaps, 0, plan->bytes - plan->bitmaps, stream.get()), what,
			   error);
}

/* Make the lists of a segment, if they are worth their memory */
static bool
build(struct search_backend *b, staged_stream &stream, const gpuvec_segment *segment,
	  struct cuda_segment *mine, size_t *bytes, gpuvec_error *error)
{
	struct build_params p = {};
	struct build_memory memory;
	struct list_plan plan;
	std::vector<uint32_t> rows_of;
	unique_memory lists;
	bool ok;

	p.ids = mine->desc.ids;
	p.tiles = mine->desc.tiles;
	p.hot_len = mine->desc.hot_len;
	p.ntiles = mine->desc.ntiles;
	p.lists.maxid = mine->maxid;
	rows_of.resize(2 * GPUVEC_MAX_IDS);
	ok = count_rows(b, stream, &p, &memory, rows_of.data(), error);
	if (ok && plan_lists(b, &plan, segment, rows_of.data(), mine->maxid))
	{
		ok = allocate_lists(b, stream, &plan, &p, lists, error) &&
			 fill_lists(b, stream, &p, &memory, segment, error) &&
			 b->device.check(cudaStreamSynchronize(stream.get()), what, error);
		if (ok)
		{
			free_in_stream(lists, b->device.side_stream.get());
			mine->lists_memory = std::move(lists);
			mine->desc.lists = p.lists;
			*bytes = plan.bytes;
		}
	}
	if (!ok)
		stream.drain();
	return ok;
}

bool
lists_build(struct search_backend *b, staged_stream &stream, const gpuvec_segment *segment,
			struct cuda_segment *mine, size_t *bytes, gpuvec_error *error)
{
	uint64_t nids = gpuvec_segment_hot(segment);
	bool ok;

	*bytes = 0;
	if (segment->nrows < b->policy.list_rows || nids > MAX_IDS || nids == 0)
		return true;
	try
	{
		ok = build(b, stream, segment, mine, bytes, error);
	}
	catch (const std::bad_alloc &)
	{
		stream.drain();
		ok = gpuvec_fail_memory(error, nids * sizeof(uint32_t));
	}
	return ok || (!b->device.broken && strcmp(error->sqlstate, GPUVEC_OUT_OF_MEMORY) == 0);
}

} // namespace gpuvec
