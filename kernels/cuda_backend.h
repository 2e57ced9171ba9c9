/*-------------------------------------------------------------------------
 *
 * cuda_backend.h
 *	  What the parts of the CUDA backend share: the layout of device memory,
 *	  the parameters of the kernels.
 *
 * backend.cu	opening, uploading, freeing
 * topk.cu		the host's side of a search: batches, rounds, results
 * scan.cu		the scan that counts common ids and emits candidates
 * select.cu	the selection of the best candidates, and sorting
 *
 *-------------------------------------------------------------------------
 */
#ifndef GPUVEC_CUDA_BACKEND_H
#define GPUVEC_CUDA_BACKEND_H

#include <pthread.h>
#include <cuda_runtime.h>

#include "cuda_tuning.h"
#include "engine/backend.h"

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

#define KEY_COMMON_BITS		21
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
	const uint2 *groups;
	uint32_t	ngroups;
	uint32_t	ntiles;
	uint32_t	maxid;			/* largest id of all rows */
	uint32_t	maxlen;			/* ids of the longest row */
	uint32_t	largest_class;	/* tiles in the largest class */
	uint32_t	tiles_before[TILE_CLASSES + 1]; /* tiles in classes below c */
};

/* A query of a chunk, as the kernels see it */
struct __align__(16) query_state
{
	struct row_key bound;		/* a row must have key <= bound */
	struct row_key after;		/* and key > after */
	uint32_t	ids;			/* first of its ids */
	uint32_t	len;
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
	uint32_t   *stop;			/* on the device */
	uint32_t   *stop_value;		/* pinned, holds 1 */
};

/* backend.cu */
extern bool cuda_check(struct cuda_backend *b, cudaError_t rc, const char *what,
					   gpuvec_error *error);
extern bool cuda_enter(struct cuda_backend *b, gpuvec_error *error);
extern bool device_alloc(struct cuda_backend *b, void **memory, size_t bytes,
						 cudaStream_t stream, const char *what, gpuvec_error *error);
extern void device_free(struct cuda_backend *b, void *memory, cudaStream_t stream);

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

/* select.cu */
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

#endif							/* GPUVEC_CUDA_BACKEND_H */
