/*-------------------------------------------------------------------------
 *
 * backend.h
 *	  The interface between the engine and what does its work: the CPU
 *	  (src/engine/cpu/) or a GPU (kernels/).
 *
 * All functions may be called from any thread; a backend locks what it must.
 * topk calls on one backend come one at a time (the scheduler sees to it),
 * other calls may run beside it.
 *
 *-------------------------------------------------------------------------
 */
#ifndef GPUVEC_BACKEND_H
#define GPUVEC_BACKEND_H

#include "core/measure.h"
#include "core/method.h"
#include "engine/engine_error.h"
#include "engine/segment.h"
#include "engine/embedding_backend.h"

#ifdef __cplusplus
extern "C"
{
#endif

/*
 * One result row; (score descending, tid ascending) is the order of results
 */
typedef struct gpuvec_match
{
	double		score;
	uint64_t	tid;
	uint32_t	common;
	uint32_t	padding;
} gpuvec_match;

/*
 * One query of a batch.  The rows that rank are those with a common id (all
 * for hamming), score >= min_score if has_min_score, and, if has_after,
 * strictly behind (after_score, after_tid) in the order of results.  The
 * answer is the first k of them.  A query may be empty; only hamming gives
 * rows for it.
 */
typedef struct gpuvec_topk_query
{
	const uint16_t *ids;		/* ascending, distinct; caller's */
	uint32_t	len;			/* 0 .. GPUVEC_MAX_IDS */
	uint32_t	k;				/* 1 .. GPUVEC_MAX_K */
	bool		has_min_score;
	bool		has_after;
	double		min_score;		/* not NaN */
	double		after_score;
	uint64_t	after_tid;
	const int  *canceled;		/* may be NULL; read atomically, nonzero: the
								 * answer is not wanted any more, nmatches may
								 * be 0 */

	/* the answer */
	gpuvec_match *matches;		/* caller's, room for min(k, rows of the view) */
	uint32_t	nmatches;
} gpuvec_topk_query;

typedef struct gpuvec_backend_info
{
	char		name[16];		/* "cpu" or "cuda" */
	char		device[128];	/* name of the GPU, or instruction set in use */
	int			capability;		/* compute capability * 10, or 0 */
	int			threads;		/* CPU threads in use */
	size_t		memory_total;	/* of the device, or of the machine */
	size_t		memory_free;
} gpuvec_backend_info;

typedef struct gpuvec_backend_options
{
	int			threads;		/* CPU threads, 0: all cores */
	int			device;			/* number of the GPU */
	int			simd;			/* CPU: 0 best available, 1 portable C, 2
								 * AVX2, 3 AVX-512 (tests force one) */
	size_t		workspace;		/* bytes of scratch memory for topk, 0:
								 * default */
} gpuvec_backend_options;

struct gpuvec_backend
{
	const char *name;
	bool		on_device;		/* segments' ids leave the host when adopted */
	gpuvec_vectors *vectors;	/* holds those of embedding tables; NULL: they
								 * stay on the host */

	void		(*info) (gpuvec_backend *backend, gpuvec_backend_info *info);

	/*
	 * Take a new segment, live map or view into use: copy to the device what
	 * the device needs.  A segment's ids may be freed on the host
	 * (segment->ids = NULL).  Called once for each, before any view with it
	 * is searched.  On failure nothing is allocated and the object is as
	 * before.
	 */
	bool		(*adopt_segment) (gpuvec_backend *backend, gpuvec_segment *segment,
								  gpuvec_error *error);
	bool		(*adopt_livemap) (gpuvec_backend *backend, gpuvec_livemap *map,
								  gpuvec_error *error);
	bool		(*adopt_view) (gpuvec_backend *backend, gpuvec_view *view,
							   gpuvec_error *error);

	/*
	 * The last reference is gone: free what the device holds (object->device)
	 */
	void		(*release_segment) (gpuvec_backend *backend, gpuvec_segment *segment);
	void		(*release_livemap) (gpuvec_backend *backend, gpuvec_livemap *map);
	void		(*release_view) (gpuvec_backend *backend, gpuvec_view *view);

	/*
	 * Read a segment's swizzled ids back (nchunks * 256 of them) into a
	 * caller's buffer, to rebuild it.
	 */
	bool		(*read_ids) (gpuvec_backend *backend, const gpuvec_segment *segment,
							 uint16_t *ids, gpuvec_error *error);

	/* The k best live rows of the view for each query, exactly */
	bool		(*topk) (gpuvec_backend *backend, const gpuvec_view *view,
						 gpuvec_measure measure, gpuvec_method method,
						 gpuvec_topk_query *queries, uint32_t nqueries, gpuvec_error *error);

	void		(*close) (gpuvec_backend *backend);
};

/* Open a backend.  NULL and *error if it cannot be had. */
extern gpuvec_backend *gpuvec_cpu_open(const gpuvec_backend_options *options,
									   gpuvec_error *error);

/*
 * kernels/: device number options->device.  Without CUDA support compiled in,
 * or without a driver or GPU, NULL and an *error that says which.
 */
extern gpuvec_backend *gpuvec_cuda_open(const gpuvec_backend_options *options,
										gpuvec_error *error);

/* Number of GPUs that gpuvec_cuda_open can use; 0 and *error says why none */
extern int	gpuvec_cuda_count(gpuvec_error *error);

#ifdef __cplusplus
}
#endif

#endif							/* GPUVEC_BACKEND_H */
