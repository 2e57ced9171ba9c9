/*-------------------------------------------------------------------------
 *
 * search_backend.h
 *	  The CUDA backend: what the host keeps of the GPU, of segments, live maps
 *	  and views.
 *
 * backend.cu      opening and closing
 * segments.cu     segments and live maps on the device
 * list_build.cu   their lists
 * dense_bits.cu   their bit vectors
 * views.cu        views
 * kept_masks.cu   masks of filters that are kept with a view
 * topk.cu         searches (chunk.h: what its files share)
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
#include "kernels/search/kept_masks.h"
#include "kernels/search/search_kernels.h"
#include "kernels/search/search_policy.h"
#include "kernels/search/search_tuning.h"

namespace gpuvec
{

/* What the member `device` of segments, live maps and views points to */
struct cuda_segment
{
	unique_memory memory;
	unique_memory lists_memory; /* NULL: no lists */
	unique_memory bits_memory;  /* NULL: no bit vectors */
	uint32_t maxid = 0;         /* largest id, or hot number, in the segment */
	double cold_rows = 0;       /* rows that are expected to have a row's cold number */
	struct device_segment desc = {};
};

struct cuda_livemap
{
	unique_memory bits; /* uint32_t [ntiles] */
};

/*
 * A view on the device.  Scans take the tiles in groups of 32 consecutive
 * tiles of one segment; groups[] has the segment and the first tile of each
 * group.
 */
struct cuda_view
{
	unique_memory memory;
	const struct device_segment *segments = NULL;
	const uint2 *groups = NULL; /* [ngroups]; groups of segments without lists come first */
	/*
	 * blocks of TILED_SHIFT and of WHOLE_SHIFT, in order of length: segment
	 * and block number
	 */
	const uint2 *blocks[2] = {};
	uint32_t nblocks[2] = {};
	std::unique_ptr<uint32_t[]> block_len[2]; /* length of the middle row of each block */
	uint32_t nstaged = 0;                     /* largest number of slots that a segment stages */
	/* no segment of one block has slots */
	bool plain = true;
	bool null_sets = false;               /* some rows' sets are null */
	const uint32_t *cold_segments = NULL; /* [ncold_segments]: those with cold numbers */
	uint32_t ncold_segments = 0;
	double cold_rows = 0; /* rows that are expected to have a row's cold number */
	uint32_t nsegments = 0;
	uint32_t ngroups = 0;
	uint32_t nplain = 0;      /* groups of segments without lists */
	uint64_t listed_rows = 0; /* rows of segments with lists */
	uint64_t nrows = 0;
	uint64_t dense_rows = 0; /* rows with bit vectors */
	uint64_t nids = 0;       /* ids, or hot numbers, of all rows, dead ones included */
	uint32_t ntiles = 0;
	uint32_t maxid = 0;                        /* largest id, or hot number, of all rows */
	uint32_t maxlen = 0;                       /* ids of the longest row */
	std::unique_ptr<uint32_t[]> segment_tiles; /* tiles of each segment */
	struct kept_masks kept;
	/* upper bits of row keys that tell the mirror; 0: there is one mirror */
	uint32_t partition_bits = 0;

	/*
	 * for scans by rounds; counted when the first scan needs it
	 * (count_classes)
	 */
	std::mutex mutex; /* guards the counting */
	bool classified = false;
	uint32_t largest_class = 0;                   /* tiles in the largest class */
	uint32_t tiles_before[TILE_CLASSES + 1] = {}; /* [c]: tiles in classes below c */
};

/*
 * Uploads use a few streams with pinned memory, so that several threads can
 * upload while a search runs.  A thread copies to pinned memory several times
 * slower than the GPU takes it from there.
 */
#define UPLOAD_STREAMS 8
#define UPLOAD_BYTES ((size_t) 8 << 20)
#define DOWNLOAD_BYTES ((size_t) 2 << 20)

typedef free_list<staged_stream, UPLOAD_STREAMS> upload_streams;

/*
 * Lists are made in other streams: these are fewer, for while that is done,
 * each segment takes some 100 MB on the GPU.  Little is sent for it.
 */
#define LISTS_STREAMS 4
#define LISTS_BYTES ((size_t) 1 << 20)

typedef free_list<staged_stream, LISTS_STREAMS> lists_streams;

/* Device memory that grows as searches need it */
struct grown_memory
{
	unique_memory memory;
	size_t bytes = 0;

	template <typename T>
	T *
	get() const
	{
		return (T *) memory.get();
	}
};

struct search_backend : gpuvec_backend
{
	struct cuda_device device;
	const struct search_tuning *tuning = NULL; /* of its architecture */
	struct gpuvec_search_policy policy = {};
	struct gpuvec_search_stats stats = {};
	upload_streams uploads;
	lists_streams list_makers;

	/* used by topk, of which only one call runs at a time */
	unique_stream stream;
	unique_event finished;
	struct grown_memory scratch;
	struct grown_memory filters; /* of a search, with their masks */
	struct grown_memory listed;  /* rows that pass filters */
	struct grown_memory merging; /* what merging groups needs besides */
	kept_bytes kept{0};          /* of masks that are kept with views */
	unique_pinned lists;         /* what to list, on its way to the device */
	size_t lists_bytes = 0;
	unique_pinned upload;
	size_t upload_bytes = 0;
	unique_pinned download;
	size_t download_bytes = 0;
	unique_memory stop;       /* uint32_t: nonzero makes the kernels end early */
	unique_pinned stop_value; /* uint32_t 1, to copy to `stop` */
	/* decodes large answers; NULL: the calling thread does this alone */
	gpuvec_thread_pool *pool = NULL;
};

/* ---- backend.cu ---- */

/*
 * Open a GPU for searches.  Returns NULL and fills *error if that fails.  The
 * backend has no vectors yet; its close() closes those that it was given.
 */
extern struct search_backend *
search_open(const gpuvec_backend_options *options, gpuvec_error *error);

/* ---- segments.cu ---- */

/*
 * Take an upload stream; waits until one is free.  NULL, and *error is
 * filled, if the stream cannot be used.
 */
extern upload_streams::loan
take_upload_stream(struct search_backend *b, gpuvec_error *error);

/* Data to copy to an offset of an allocation */
struct host_piece
{
	size_t offset;
	const void *data;
	size_t bytes;
};

/*
 * Allocate device memory, and copy some pieces to it.  Waits until the copies
 * are complete.  Any thread may free the memory, when no search uses it.
 */
extern bool
upload_pieces(struct search_backend *b, unique_memory &memory, size_t bytes,
			  std::initializer_list<struct host_piece> pieces, const char *what,
			  gpuvec_error *error);

extern bool
adopt_segment(gpuvec_backend *backend, gpuvec_segment *segment, gpuvec_error *error);
extern void
release_segment(gpuvec_backend *backend, gpuvec_segment *segment);
extern bool
adopt_livemaps(gpuvec_backend *backend, gpuvec_livemap *const *maps, uint32_t n,
			   gpuvec_error *error);
extern void
release_livemap(gpuvec_backend *backend, gpuvec_livemap *map);
extern bool
read_ids(gpuvec_backend *backend, const gpuvec_segment *segment, uint16_t *ids,
		 gpuvec_error *error);
extern bool
read_values(gpuvec_backend *backend, const gpuvec_segment *segment, float *values,
			gpuvec_error *error);

/* ---- list_build.cu ---- */

/*
 * Give an uploaded segment its lists, if they are worth their memory: sets
 * mine->lists_memory, mine->desc.lists and *bytes.  If there is no memory for
 * them, the segment does without.  Returns false only if the GPU failed.
 */
extern bool
lists_build(struct search_backend *b, staged_stream &stream, const gpuvec_segment *segment,
			struct cuda_segment *mine, size_t *bytes, gpuvec_error *error);

/* ---- dense_bits.cu ---- */

/*
 * Give an uploaded segment bit vectors, if counting by them should pay: sets
 * mine->bits_memory, mine->desc.bits and *bytes.  If there is no memory for
 * them, the segment does without.  Returns false only if the GPU failed.  The
 * segment's ids must still be on the host.
 */
extern bool
dense_build(struct search_backend *b, const gpuvec_segment *segment, struct cuda_segment *mine,
			size_t *bytes, gpuvec_error *error);

/* ---- dense_rounds.cu ---- */

/* True if the device multiplies bits, and the kernels were made for it */
extern bool
dense_usable(const struct search_backend *b);

/* ---- views.cu ---- */

extern bool
adopt_view(gpuvec_backend *backend, gpuvec_view *view, gpuvec_error *error);
extern void
release_view(gpuvec_backend *backend, gpuvec_view *view);

/* Count the tiles of each class of a view, if this has not been done */
extern void
count_classes(struct cuda_view *view);

/* ---- chunk_overlaps.cu ---- */

extern bool
overlaps(gpuvec_backend *backend, const gpuvec_view *view, gpuvec_overlaps *overlaps,
		 gpuvec_error *error);

/* ---- topk.cu ---- */

extern bool
topk(gpuvec_backend *backend, const gpuvec_view *view, const gpuvec_scoring *scoring,
	 gpuvec_method method, gpuvec_topk_query *queries, uint32_t nqueries, gpuvec_error *error);

} // namespace gpuvec

#endif /* GPUVEC_SEARCH_BACKEND_H */
