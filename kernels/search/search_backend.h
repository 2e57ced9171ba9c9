/*-------------------------------------------------------------------------
 *
 * search_backend.h
 *	  The CUDA backend: what the host keeps of it, of segments, live maps and
 *	  views.
 *
 * backend.cu	opening and closing segments.cu	segments and live maps on the
 * device; list_build.cu: their lists views.cu		views topk.cu
 * searches (chunk.h: what its files share)
 *
 *-------------------------------------------------------------------------
 */
#ifndef GPUVEC_SEARCH_BACKEND_H
#define GPUVEC_SEARCH_BACKEND_H

#include <cuda_runtime.h>
#include <initializer_list>
#include <memory>
#include <mutex>

#include "engine/backend.h"
#include "engine/thread_pool.h"
#include "kernels/device/free_list.h"
#include "kernels/device/staged_stream.h"
#include "kernels/search/search_kernels.h"
#include "kernels/search/search_policy.h"

namespace gpuvec
{

/* What the backend hangs on segments, live maps and views (their `device`) */
struct cuda_segment
{
	unique_memory memory;
	unique_memory lists_memory; /* NULL: no lists */
	uint32_t maxid = 0;         /* largest id in the segment */
	struct device_segment desc = {};
};

struct cuda_livemap
{
	unique_memory bits; /* uint32_t [ntiles] */
};

/*
 * Work is handed out in groups of 32 consecutive tiles of one segment.
 * groups[] gives each one's segment and first tile.
 */
struct cuda_view
{
	unique_memory memory;
	const struct device_segment *segments = NULL;
	const uint2 *groups = NULL;  /* those of segments without lists come first */
	const uint2 *blocks[2] = {}; /* segment and block, in the order of their lengths; of
									 * TILED_SHIFT and of WHOLE_SHIFT */
	uint32_t nblocks[2] = {};
	std::unique_ptr<uint32_t[]> block_len[2]; /* ids of the middle row of each */
	uint32_t nstaged = 0;                     /* most slots that a segment stages */
	bool plain = true;                        /* no whole segment has slots */
	uint32_t nsegments = 0;
	uint32_t ngroups = 0;
	uint32_t nplain = 0;      /* groups of segments without lists */
	uint64_t listed_rows = 0; /* rows of segments with lists */
	uint32_t ntiles = 0;
	uint32_t maxid = 0;                        /* largest id of all rows */
	uint32_t maxlen = 0;                       /* ids of the longest row */
	std::unique_ptr<uint32_t[]> segment_tiles; /* tiles of each segment */

	/*
	 * for scans by rounds, counted when the first one needs it
	 * (count_classes)
	 */
	std::mutex mutex; /* guards the counting */
	bool classified = false;
	uint32_t largest_class = 0;                   /* tiles in the largest class */
	uint32_t tiles_before[TILE_CLASSES + 1] = {}; /* tiles in classes below c */
};

/*
 * Uploads go through a few streams with pinned memory, so several threads can
 * upload beside a running search.
 */
#define UPLOAD_STREAMS 4
#define UPLOAD_BYTES ((size_t) 8 << 20)
#define DOWNLOAD_BYTES ((size_t) 2 << 20)

typedef free_list<staged_stream, UPLOAD_STREAMS> upload_streams;

struct search_backend : gpuvec_backend
{
	struct cuda_device device;
	struct gpuvec_search_policy policy = {};
	struct gpuvec_search_stats stats = {};
	upload_streams uploads;

	/* of topk, which runs once at a time */
	unique_stream stream;
	unique_event finished;
	unique_memory scratch;
	size_t scratch_bytes = 0;
	unique_pinned upload;
	size_t upload_bytes = 0;
	unique_pinned download;
	size_t download_bytes = 0;
	unique_memory stop;              /* uint32_t */
	unique_pinned stop_value;        /* uint32_t, 1 */
	gpuvec_thread_pool *pool = NULL; /* decodes large answers; NULL: the caller does it alone */
};

/* ---- backend.cu ---- */

/*
 * Open a GPU for searches.  NULL and *error if that fails.  The backend has no
 * vectors yet; its close() closes those that it was given.
 */
extern struct search_backend *
search_open(const gpuvec_backend_options *options, gpuvec_error *error);

/* ---- segments.cu ---- */

/* Wait for a stream for uploads.  NULL and *error if it cannot be used. */
extern upload_streams::loan
take_upload_stream(struct search_backend *b, gpuvec_error *error);

/* A part of what is allocated on the device */
struct host_part
{
	size_t offset;
	const void *data;
	size_t bytes;
};

/*
 * Allocate device memory and fill some parts of it.  Waits until all is
 * there; the memory may then be freed by any thread, when no search uses it.
 */
extern bool
upload_parts(struct search_backend *b, unique_memory &memory, size_t bytes,
			 std::initializer_list<struct host_part> parts, const char *what, gpuvec_error *error);

extern bool
adopt_segment(gpuvec_backend *backend, gpuvec_segment *segment, gpuvec_error *error);
extern void
release_segment(gpuvec_backend *backend, gpuvec_segment *segment);
extern bool
adopt_livemap(gpuvec_backend *backend, gpuvec_livemap *map, gpuvec_error *error);
extern void
release_livemap(gpuvec_backend *backend, gpuvec_livemap *map);
extern bool
read_ids(gpuvec_backend *backend, const gpuvec_segment *segment, uint16_t *ids,
		 gpuvec_error *error);

/* ---- list_build.cu ---- */

/*
 * Give an uploaded segment its lists, if they are worth it:
 * mine->lists_memory and mine->desc.lists, and their *bytes.  Returns false
 * only if the GPU failed; a segment for whose lists there is no memory does
 * without them.
 */
extern bool
lists_build(struct search_backend *b, staged_stream &stream, const gpuvec_segment *segment,
			struct cuda_segment *mine, size_t *bytes, gpuvec_error *error);

/* ---- views.cu ---- */

extern bool
adopt_view(gpuvec_backend *backend, gpuvec_view *view, gpuvec_error *error);
extern void
release_view(gpuvec_backend *backend, gpuvec_view *view);

/* Count the tiles of each class of a view, if that was not done yet */
extern void
count_classes(struct cuda_view *view);

/* ---- topk.cu ---- */

extern bool
topk(gpuvec_backend *backend, const gpuvec_view *view, gpuvec_measure measure, gpuvec_method method,
	 gpuvec_topk_query *queries, uint32_t nqueries, gpuvec_error *error);

} // namespace gpuvec

#endif /* GPUVEC_SEARCH_BACKEND_H */
