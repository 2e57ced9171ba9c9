/*-------------------------------------------------------------------------
 *
 * cuda_backend.h
 *	  What the parts of the CUDA backend share: the layout of device memory,
 *	  the parameters of the kernels.
 *
 * backend.cu	opening, uploading, freeing
 * topk.cu		the host's side of a search (chunk.h: what its files share)
 * scan.cu		the scan that counts common ids and emits candidates
 * list_build.cu	inverted lists and bitmaps of a segment
 * lists_classify.cu	what a query's ids have in a segment: lists or bitmaps
 * lists.cu		counting by them; lists_plain.cu: where no id is common;
 *			lists_lone.cu: a query that is alone
 * list_planes.cuh	the part that lists have in it
 * list_items.cuh	handing out the work
 * emit.cuh		scoring what was counted
 * select.cu	the selection of the best candidates, and sorting
 * vectors.h	embedding tables
 *
 *-------------------------------------------------------------------------
 */
#ifndef GPUVEC_CUDA_BACKEND_H
#define GPUVEC_CUDA_BACKEND_H

#include <pthread.h>
#include <cuda_runtime.h>

#include "kernels/device/cuda_memory.h"
#include "kernels/search/cuda_tuning.h"
#include "engine/backend.h"
#include "engine/thread_pool.h"

/*
 * The key of a row in the answer to a query: ascending order of (hi, lo) is the
 * order of results.  hi is gpuvec_score_key(score), lo is block number << 32 |
 * line pointer number << 21 | number of common ids (at most 65536).
 */
struct __align__(16) row_key
{
	uint64_t	hi;
	uint64_t	lo;
};

#define KEY_COMMON_BITS		20
#define KEY_COMMON_MASK		((UINT64_C(1) << KEY_COMMON_BITS) - 1)

/* The part of row_key.lo that the row itself determines */
static inline uint64_t
key_from_tid(uint64_t tid)
{
	return (uint64_t) gpuvec_tid_block(tid) << 32 |
		(uint64_t) gpuvec_tid_line(tid) << KEY_COMMON_BITS;
}

static __forceinline__ GPUVEC_HD bool
key_less(uint64_t a_hi, uint64_t a_lo, uint64_t b_hi, uint64_t b_lo)
{
	return a_hi < b_hi || (a_hi == b_hi && a_lo < b_lo);
}

/*
 * Blocked inverted lists of a segment.  A block is 2^shift consecutive rows.  An
 * id is common if it has a slot: then each block has a bitmap of its rows that
 * have the id.  Other ids have in each block an ascending list of row numbers
 * within the block.  The lists of a block follow one another.
 *
 * In blocks of 2^TILED_SHIFT rows, groups[block * nbases + g] tells all of ids 12 g ..
 * 12 g + 11, so that one load of 16 bytes finds a list: x is where in the postings their
 * lists start, and the bytes of y, z and w are the lengths of these lists (an id with
 * more than 255 rows in some block is common).  In a segment that is one block, the lists
 * of ids 16 g .. 16 g + 15 start at base[g], and that of id i start[i] after this (an id
 * with more than 2^12 rows is common).
 */
struct device_lists
{
	const uint16_t *postings;
	const uint4 *groups;		/* [nblocks * nbases], in small blocks */
	const uint32_t *base;		/* [nbases], in whole segments */
	const uint16_t *start;		/* [nstarts], in whole segments */
	const uint16_t *slot;		/* [maxid + 1]: 1 .. nslots, the most common id first, or
								 * NO_SLOT */
	const uint4 *bitmaps;		/* [nblocks][nslots + 1][2^shift / 128]; slot 0 is empty */
	uint32_t	shift;			/* TILED_SHIFT or WHOLE_SHIFT; 0: no lists */
	uint32_t	nblocks;
	uint32_t	nslots;
	uint32_t	nstaged;		/* slots up to this are read from shared memory */
	uint32_t	nbases;
	uint32_t	nstarts;
	uint32_t	maxid;			/* larger ids are in no row */
};

#define NO_SLOT			0xFFFFu
#define TILED_GROUP		12		/* lists that share one of groups[] */
#define WHOLE_GROUP		16		/* lists that share a base */
#define MAX_LIST		255		/* postings of a list in a small block */

/*
 * With many common ids a block is 4,096 rows, so that the bitmaps of a block fit
 * shared memory; otherwise the segment is one block.
 */
#define TILED_SHIFT		12
#define WHOLE_SHIFT		16

/* A segment on the device: pointers into one allocation, and the live map */
struct device_segment
{
	const uint4 *ids;			/* chunk c of row r: ids[(tile.x + c) * 32 + r] */
	const uint4 *tiles;			/* first chunk, number of chunks, shortest and
								 * longest row */
	const uint32_t *len;		/* [ntiles * 32], 0 beyond nrows */
	const uint64_t *tid;		/* [ntiles * 32], key_from_tid() */
	const uint32_t *live;		/* [ntiles], or NULL: all rows are live */
	uint32_t	nrows;
	uint32_t	ntiles;
	struct device_lists lists;
};

/*
 * Tiles are dealt into classes by a hash, so that a range of classes is a
 * pseudo-random sample of a view.
 */
#define TILE_CLASS_BITS		14
#define TILE_CLASSES		(1 << TILE_CLASS_BITS)
#define SEGMENT_TILES		(GPUVEC_SEGMENT_ROWS / GPUVEC_TILE_ROWS)

static __forceinline__ GPUVEC_HD uint32_t
tile_class(uint32_t segment, uint32_t tile)
{
	return ((segment * SEGMENT_TILES + tile) * 0x9E3779B1u) >> (32 - TILE_CLASS_BITS);
}

/* What the backend hangs on segments, live maps and views (their `device`) */
struct cuda_segment
{
	void	   *memory;
	void	   *lists_memory;	/* NULL: no lists */
	uint32_t	maxid;			/* largest id in the segment */
	struct device_segment desc;
};

struct cuda_livemap
{
	uint32_t   *bits;
};

/*
 * Work is handed out in groups of 32 consecutive tiles of one segment.  groups[]
 * gives each one's segment and first tile.
 */
struct cuda_view
{
	void	   *memory;
	const struct device_segment *segments;
	const uint2 *groups;		/* those of segments without lists come first */
	const uint2 *blocks[2];		/* segment and block, in the order of their lengths; of
								 * TILED_SHIFT and of WHOLE_SHIFT */
	uint32_t	nblocks[2];
	uint32_t   *block_len[2];	/* ids of the middle row of each (host memory) */
	uint32_t	nstaged;		/* most slots that a segment stages */
	bool		plain;			/* no whole segment has slots */
	uint32_t	nsegments;
	uint32_t	ngroups;
	uint32_t	nplain;			/* groups of segments without lists */
	uint64_t	listed_rows;	/* rows of segments with lists */
	uint32_t	ntiles;
	uint32_t	maxid;			/* largest id of all rows */
	uint32_t	maxlen;			/* ids of the longest row */
	uint32_t   *segment_tiles;	/* tiles of each segment (host memory) */

	/* for scans by rounds, counted when the first one needs it (cuda_view_classes) */
	pthread_mutex_t mutex;		/* guards the counting */
	bool		classified;
	uint32_t	largest_class;	/* tiles in the largest class */
	uint32_t	tiles_before[TILE_CLASSES + 1]; /* tiles in classes below c */
};

/* Count the tiles of each class of a view, if that was not done yet (backend.cu) */
extern void cuda_view_classes(struct cuda_view *view);

/* What a row must fulfil to rank for a query */
struct __align__(16) query_limits
{
	struct row_key bound;		/* key <= bound */
	struct row_key after;		/* and key > after */
	uint32_t	len;			/* ids of the query */
	float		score;			/* kernels keep bound_score(bound.hi) here */
	uint32_t	padding[2];
};

/* bound.hi as a score, rounded down */
static __forceinline__ __device__ float
bound_score(uint64_t bound_hi)
{
	return bound_hi == ~UINT64_C(0) ? -INFINITY : __double2float_rd(gpuvec_key_score(bound_hi));
}

/* A query of a chunk, as the kernels see it */
struct __align__(16) query_state
{
	struct query_limits limits;
	uint32_t	ids;			/* first of its ids */
	uint32_t	entries;		/* first of its entries in each segment (lists.cu), in eights */
	uint32_t	k;
	uint32_t	count;			/* candidates of this round, those that found no
								 * room included */
	uint32_t	ntop;			/* rows in its list of the best */
	uint32_t	overflow;		/* candidates were lost: its list is void, its
								 * bound is not */
	uint32_t	padding[2];
};

struct scan_params
{
	const struct device_segment *segments;
	const uint2 *groups;
	struct query_state *queries;
	const uint16_t *ids;		/* of the queries */
	struct row_key *candidates; /* [nqueries * capacity] */
	uint32_t   *next_item;		/* zero before the launch */
	const uint32_t *stop;		/* nonzero: the answer is not wanted any more */
	uint32_t	ngroups;
	uint32_t	nqueries;
	uint32_t	capacity;
	uint32_t	class_lo;		/* the tiles to scan: classes class_lo .. */
	uint32_t	class_hi;		/* .. class_hi - 1 */
	uint32_t	maxid;
	uint32_t	nbatches;
	uint32_t	nitems;			/* nbatches * number of ranges */
	uint32_t	range_groups;	/* groups of an item */
	uint32_t	grab;			/* tiles that a warp takes at a time: a power of 2 */
	gpuvec_measure measure;
};

/* Queries that are alone, or nearly so: at most so many, with so many ids together */
#define LONE_QUERIES	4
#define LONE_IDS		768

/* Counting by lists; see lists.cu */
struct list_params
{
	const struct device_segment *segments;
	const uint2 *blocks;		/* those to count: segment and block */
	struct query_state *queries;
	const uint16_t *ids;		/* of the queries */
	uint16_t   *entries;		/* [nsegments * nentries] */
	uint4	   *nentries_of;	/* [nsegments * nqueries]: slots that are staged, other slots,
								 * ids with lists; and where the entries are, in eights */
	struct row_key *candidates; /* [nqueries * capacity] */
	uint32_t   *next_item;		/* zero before the launch */
	const uint32_t *stop;		/* nonzero: the answer is not wanted any more */
	uint32_t	nsegments;
	uint32_t	nentries;		/* of a segment, in eights */
	uint32_t	nblocks;
	uint32_t	nqueries;
	uint32_t	capacity;
	const uint2 *ranges;		/* NULL, or for each block the queries to count: the first
								 * one, and how many */
	const uint2 *counted;		/* NULL, or for each block those that are counted already */
	uint32_t	own_blocks;		/* not 0: each query counts so many blocks of its own, .. */
	uint32_t	own_first[LONE_QUERIES];	/* .. from this one on, and nblocks are all of them */
	uint32_t	sample;			/* not 0: of each block, only about this many of the rows
								 * with the highest counts */
	uint32_t	item_queries;	/* queries of a work item */
	uint32_t	nslices;		/* work items of a block */
	gpuvec_measure measure;
};

/*
 * Queries that reach the device as a parameter of the kernel that classifies their ids,
 * which stores them where the kernels after it look: no copy has to be waited for.
 */
struct lone_params
{
	struct list_params lists;
	uint32_t   *counters;		/* to be set to 0 */
	uint16_t   *stored_ids;
	uint32_t	ncounters;
	uint32_t	nids;
	struct query_state queries[LONE_QUERIES];
	uint16_t	ids[LONE_IDS];
};

enum select_mode
{
	SELECT_ROUND,				/* list = the k best of list and candidates */
	SELECT_FINAL,				/* the same, sorted into results (k <=
								 * GPUVEC_FAST_K) */
	SELECT_TIGHTEN				/* drop the candidates, but tighten the bound */
};

struct select_params
{
	struct query_state *queries;
	const struct row_key *candidates;
	const struct row_key *top_in;	/* [nqueries * kmax] */
	struct row_key *top_out;
	struct row_key *results;
	struct query_state *states; /* where the final states go as well, or NULL */
	uint32_t	nqueries;
	uint32_t	capacity;
	uint32_t	kmax;
	enum select_mode mode;
};

struct sort_params
{
	const struct query_state *queries;
	const struct row_key *in;	/* [nqueries * kmax] */
	struct row_key *out;
	uint32_t	nqueries;
	uint32_t	kmax;
	uint32_t	width;			/* length of the runs to merge; 0: make runs of
								 * SORT_RUN */
};

#define SORT_RUN	1024

/* Uploads go through one of a few slots: a stream and a pinned buffer */
#define UPLOAD_SLOTS	4
#define UPLOAD_HALF		((size_t) 4 << 20)

struct upload_slot
{
	bool		busy;
	cudaStream_t stream;
	cudaEvent_t done[2];		/* of the copies out of the buffer's halves */
	char	   *buffer;			/* 2 * UPLOAD_HALF */
};

struct cuda_backend
{
	gpuvec_backend base;
	int			device;
	int			capability;		/* * 10 */
	int			sms;
	size_t		smem_limit;		/* shared memory that a block may have */
	size_t		memory_total;
	size_t		workspace;		/* limit of scratch memory */
	bool		pooled;			/* cudaMallocAsync works */
	bool		broken;			/* a sticky error happened */
	char		device_name[128];
	struct gpuvec_cuda_tuning tuning;
	struct gpuvec_cuda_stats stats;

	pthread_mutex_t lock;		/* guards slots[].busy */
	pthread_cond_t slot_free;
	struct upload_slot slots[UPLOAD_SLOTS];

	/* of topk, which runs once at a time */
	cudaStream_t stream;
	cudaStream_t side_stream;	/* for the stop flag */
	cudaEvent_t finished;
	char	   *scratch;		/* on the device */
	size_t		scratch_bytes;
	char	   *upload;			/* pinned */
	size_t		upload_bytes;
	char	   *download;		/* pinned */
	size_t		download_bytes;
	gpuvec_thread_pool *pool;	/* decodes large answers; NULL: the caller does it alone */
	uint32_t   *stop;			/* on the device */
	uint32_t   *stop_value;		/* pinned, holds 1 */
};

/* backend.cu */
extern bool upload(struct cuda_backend *b, struct upload_slot *slot, void *target,
				   const void *source, size_t bytes, gpuvec_error *error);

/* list_build.cu */
extern bool lists_build(struct cuda_backend *b, struct upload_slot *slot,
						const gpuvec_segment *segment, struct cuda_segment *mine,
						size_t *bytes, gpuvec_error *error);

/* topk.cu */
extern bool cuda_topk(gpuvec_backend *backend, const gpuvec_view *view,
					  gpuvec_measure measure, gpuvec_method method,
					  gpuvec_topk_query *queries, uint32_t nqueries, gpuvec_error *error);

extern "C" {

/* scan.cu: entry_bits is 8, 16 or 32, planes 8 or 17 */
extern cudaError_t scan_prepare(size_t smem_limit);
extern size_t scan_shared_bytes(uint32_t entry_bits, uint32_t planes, uint32_t maxid);
extern uint32_t scan_threads(uint32_t planes);
extern cudaError_t scan_blocks(uint32_t entry_bits, uint32_t planes, size_t shared_bytes,
							   int *blocks);
extern cudaError_t scan_launch(const struct scan_params *params, uint32_t entry_bits,
							   uint32_t planes, size_t shared_bytes, uint32_t blocks,
							   cudaStream_t stream);

/* lists.cu: planes is 7, 8 or 17 */
extern cudaError_t lists_prepare(size_t smem_limit);
extern cudaError_t lists_classify(const struct list_params *params, cudaStream_t stream);
extern cudaError_t lists_classify_lone(const struct lone_params *params, cudaStream_t stream);
extern uint32_t lists_slots(size_t smem_limit);
extern cudaError_t lists_count_tiled(const struct list_params *params, uint32_t planes,
									 size_t smem_limit, uint32_t nslots, uint32_t sms,
									 cudaStream_t stream);
extern cudaError_t lists_count_lone(const struct list_params *params, uint32_t planes,
									cudaStream_t stream);
extern cudaError_t lists_count_direct(const struct list_params *params, uint32_t planes,
									  cudaStream_t stream);
extern cudaError_t lists_count_whole(const struct list_params *params, uint32_t planes,
									 uint32_t sms, cudaStream_t stream);
extern cudaError_t lists_plain_prepare(void);
extern cudaError_t lists_count_plain(const struct list_params *params, uint32_t sms,
									 cudaStream_t stream);

/* select.cu */
extern cudaError_t select_prepare(void);
extern cudaError_t select_launch(const struct select_params *params, cudaStream_t stream);
extern cudaError_t sort_launch(const struct sort_params *params, cudaStream_t stream);

}

/* Launch a kernel that takes one struct */
template <typename Params>
static inline cudaError_t
launch_kernel(void (*kernel) (Params), dim3 grid, uint32_t threads, size_t shared_bytes,
			  cudaStream_t stream, const Params &params)
{
	cudaLaunchConfig_t config = {};

	config.gridDim = grid;
	config.blockDim = dim3(threads);
	config.dynamicSmemBytes = shared_bytes;
	config.stream = stream;
	return cudaLaunchKernelEx(&config, kernel, params);
}

/*
 * Were the kernels compiled so that they wait for the one before them?  Not if code for
 * compute capability 9.0 is missing and older code was translated for a newer GPU.
 */
extern bool kernels_wait;

/*
 * The same for a kernel of a search, which may start when all blocks of the one before
 * have let it (let_next_start) or have ended, and which waits (wait_for_previous) before
 * it looks at what others wrote.  That it must not read with __ldg(), which may be moved.
 */
template <typename Params>
static inline cudaError_t
launch_chained(void (*kernel) (Params), dim3 grid, uint32_t threads, size_t shared_bytes,
			   cudaStream_t stream, const Params &params)
{
	cudaLaunchConfig_t config = {};
	cudaLaunchAttribute attribute = {};

	attribute.id = cudaLaunchAttributeProgrammaticStreamSerialization;
	attribute.val.programmaticStreamSerializationAllowed = 1;
	config.gridDim = grid;
	config.blockDim = dim3(threads);
	config.dynamicSmemBytes = shared_bytes;
	config.stream = stream;
	config.attrs = &attribute;
	config.numAttrs = kernels_wait ? 1 : 0;
	return cudaLaunchKernelEx(&config, kernel, params);
}

static __device__ __forceinline__ void
wait_for_previous(void)
{
#ifdef EMULATION
	emu_waited = true;
#elif __CUDA_ARCH__ >= 900
	cudaGridDependencySynchronize();
#endif
}

static __device__ __forceinline__ void
let_next_start(void)
{
#if __CUDA_ARCH__ >= 900
	cudaTriggerProgrammaticLaunchCompletion();
#endif
}

#endif							/* GPUVEC_CUDA_BACKEND_H */
