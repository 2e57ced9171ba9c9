/*-------------------------------------------------------------------------
 *
 * backend.cu
 *	  The CUDA backend: opening a GPU, and the segments, live maps and views in
 *	  its memory.
 *
 * A segment takes one allocation: for each tile its first chunk, number of
 * chunks, shortest and longest row; for each row the part of its key that comes
 * from its tid, and its length; then the swizzled ids as they are on the host.
 * Allocations come from the device's memory pool, which keeps what is freed, so
 * that small segments do not cost 2 MB each, and allocating takes microseconds.
 *
 * Uploads go through pinned buffers.  There are a few slots, each with a stream
 * and a buffer of two halves, of which one is filled while the other is copied,
 * so several threads can upload beside a running search.  Adopting waits for the
 * copy, so whatever searches see is complete; views hold references, so what is
 * released is not in use.
 *
 * Vectors of embedding tables have streams and buffers of their own (kernels/embedding).
 *
 *-------------------------------------------------------------------------
 */
#include <algorithm>
#include <new>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/search/cuda_backend.h"
#include "kernels/embedding/cuda_embedding.h"

/* The oldest GPUs that the kernels are for: compute capability 8.0 */
#define MIN_CAPABILITY		80

#define DEFAULT_WORKSPACE	((size_t) 2 << 30)

/* Threads that decode large answers, the one that searches included */
#define DECODE_THREADS		4

static const char *const memory_hint =
	"Reduce the setting \"gpuvec.device_memory\", or free GPU memory that other programs use.";

bool
cuda_check(struct cuda_backend *b, cudaError_t rc, const char *what, gpuvec_error *error)
{
	cudaError_t after;

	if (rc == cudaSuccess)
		return true;
	cudaGetLastError();
	if (rc == cudaErrorMemoryAllocation)
	{
		gpuvec_fail(error, GPUVEC_OUT_OF_MEMORY, NULL, memory_hint, "out of device memory");
		snprintf(error->detail, sizeof(error->detail), "Could not %s.", what);
		return false;
	}
	gpuvec_fail(error, GPUVEC_SYSTEM_ERROR, NULL, NULL, "could not %s", what);
	snprintf(error->detail, sizeof(error->detail), "CUDA reports %s: %s.",
			 cudaGetErrorName(rc), cudaGetErrorString(rc));
	if (b->stream != NULL)
	{
		after = cudaStreamQuery(b->stream);
		cudaGetLastError();
		if (after != cudaSuccess && after != cudaErrorNotReady)
			b->broken = true;
	}
	error->fatal = b->broken;
	error->fallback = !b->broken;
	return false;
}

bool
cuda_enter(struct cuda_backend *b, gpuvec_error *error)
{
	if (b->broken)
	{
		gpuvec_fail(error, GPUVEC_SYSTEM_ERROR, "An earlier error has left the GPU unusable.",
					NULL, "could not use the GPU");
		error->fatal = true;
		return false;
	}
	return cuda_check(b, cudaSetDevice(b->device), "use the GPU", error);
}

bool
device_alloc(struct cuda_backend *b, void **memory, size_t bytes, cudaStream_t stream,
			 const char *what, gpuvec_error *error)
{
	cudaError_t rc = b->pooled ? cudaMallocAsync(memory, bytes, stream) :
		cudaMalloc(memory, bytes);

	if (rc == cudaSuccess)
		return true;
	*memory = NULL;
	if (!cuda_check(b, rc, "allocate GPU memory", error) && rc == cudaErrorMemoryAllocation)
		snprintf(error->detail, sizeof(error->detail),
				 "Could not allocate %zu bytes of GPU memory for %s.", bytes, what);
	return false;
}

void
device_free(struct cuda_backend *b, void *memory, cudaStream_t stream)
{
	if (memory == NULL || b->broken)
		return;
	if (b->pooled)
		cudaFreeAsync(memory, stream);
	else
		cudaFree(memory);
	cudaGetLastError();
}

/* Get a slot's stream and buffer, once */
static bool
prepare_slot(struct cuda_backend *b, struct upload_slot *slot, gpuvec_error *error)
{
	if (slot->stream == NULL &&
		!cuda_check(b, cudaStreamCreateWithFlags(&slot->stream, cudaStreamNonBlocking),
					"create a CUDA stream", error))
		return false;
	for (int i = 0; i < 2; i++)
		if (slot->done[i] == NULL &&
			!cuda_check(b, cudaEventCreateWithFlags(&slot->done[i], cudaEventDisableTiming),
						"create a CUDA event", error))
			return false;
	return slot->buffer != NULL ||
		cuda_check(b, cudaHostAlloc((void **) &slot->buffer, 2 * UPLOAD_HALF,
									cudaHostAllocDefault),
				   "allocate pinned memory", error);
}

/* Give a slot back */
static void
put_slot(struct cuda_backend *b, struct upload_slot *slot)
{
	pthread_mutex_lock(&b->lock);
	slot->busy = false;
	pthread_cond_signal(&b->slot_free);
	pthread_mutex_unlock(&b->lock);
}

/* Wait for a free slot and take it.  NULL and *error if it cannot be used. */
static struct upload_slot *
take_slot(struct cuda_backend *b, gpuvec_error *error)
{
	struct upload_slot *slot = NULL;

	if (!cuda_enter(b, error))
		return NULL;
	pthread_mutex_lock(&b->lock);
	for (;;)
	{
		for (int i = 0; i < UPLOAD_SLOTS && slot == NULL; i++)
			if (!b->slots[i].busy)
				slot = &b->slots[i];
		if (slot != NULL)
			break;
		pthread_cond_wait(&b->slot_free, &b->lock);
	}
	slot->busy = true;
	pthread_mutex_unlock(&b->lock);
	if (prepare_slot(b, slot, error))
		return slot;
	put_slot(b, slot);
	return NULL;
}

/*
 * Queue the copy of a range of host memory to the device: the other half of the
 * slot's buffer is being copied meanwhile.
 */
bool
upload(struct cuda_backend *b, struct upload_slot *slot, void *target, const void *source,
	   size_t bytes, gpuvec_error *error)
{
	static const char *const what = "copy rows to the GPU";

	for (size_t at = 0, i = 0; at < bytes; at += UPLOAD_HALF, i++)
	{
		size_t		n = std::min(bytes - at, UPLOAD_HALF);
		char	   *half = slot->buffer + i % 2 * UPLOAD_HALF;

		if (!cuda_check(b, cudaEventSynchronize(slot->done[i % 2]), what, error))
			return false;
		memcpy(half, (const char *) source + at, n);
		if (!cuda_check(b, cudaMemcpyAsync((char *) target + at, half, n,
										   cudaMemcpyHostToDevice, slot->stream), what, error) ||
			!cuda_check(b, cudaEventRecord(slot->done[i % 2], slot->stream), what, error))
			return false;
	}
	return true;
}

/*
 * Allocate device memory and fill it with two pieces of host memory, the second
 * one at an offset.  Waits until all is there.
 */
static bool
place(struct cuda_backend *b, void **memory, size_t bytes, const void *first,
	  size_t first_bytes, size_t offset, const void *second, size_t second_bytes,
	  const char *what, gpuvec_error *error)
{
	struct upload_slot *slot = take_slot(b, error);
	bool		ok;

	*memory = NULL;
	if (slot == NULL)
		return false;
	ok = device_alloc(b, memory, std::max(bytes, (size_t) 16), slot->stream, what, error) &&
		upload(b, slot, *memory, first, first_bytes, error) &&
		upload(b, slot, (char *) *memory + offset, second, second_bytes, error) &&
		cuda_check(b, cudaStreamSynchronize(slot->stream), "copy rows to the GPU", error);
	if (!ok && *memory != NULL)
	{
		if (!b->broken)
			cudaStreamSynchronize(slot->stream);
		device_free(b, *memory, slot->stream);
		*memory = NULL;
	}
	put_slot(b, slot);
	return ok;
}

/* Where the parts of a segment's allocation begin */
struct segment_layout
{
	size_t		tid;
	size_t		len;
	size_t		ids;
	size_t		bytes;
};

static struct segment_layout
lay_out_segment(const gpuvec_segment *segment)
{
	struct segment_layout at;
	size_t		rows = (size_t) segment->ntiles * GPUVEC_TILE_ROWS;

	at.tid = segment->ntiles * sizeof(uint4);
	at.len = at.tid + rows * sizeof(uint64_t);
	at.ids = (at.len + rows * sizeof(uint32_t) + 255) / 256 * 256;
	at.bytes = at.ids + (size_t) segment->nchunks * GPUVEC_TILE_ROWS * sizeof(uint4);
	return at;
}

/* Write everything of a segment but its ids, as it will be on the device */
static void
fill_head(const gpuvec_segment *segment, const struct segment_layout *at, char *head)
{
	uint4	   *tiles = (uint4 *) head;
	uint64_t   *tid = (uint64_t *) (head + at->tid);
	uint32_t   *len = (uint32_t *) (head + at->len);

	memset(head, 0, at->ids);
	for (uint32_t t = 0; t < segment->ntiles; t++)
	{
		uint32_t	first = t * GPUVEC_TILE_ROWS;
		uint32_t	last = std::min(first + GPUVEC_TILE_ROWS, segment->nrows) - 1;

		tiles[t].x = segment->tile_chunk[t];
		tiles[t].y = segment->tile_chunk[t + 1] - segment->tile_chunk[t];
		tiles[t].z = segment->len[first];
		tiles[t].w = segment->len[last];
	}
	for (uint32_t r = 0; r < segment->nrows; r++)
	{
		tid[r] = key_from_tid(segment->tid[r]);
		len[r] = segment->len[r];
	}
}

/* The largest id of a segment: rows are ascending, so it is the last one of some row */
static uint32_t
largest_id(const gpuvec_segment *segment)
{
	uint32_t	largest = 0;

	for (uint32_t r = 0; r < segment->nrows; r++)
	{
		size_t		last = segment->len[r];
		size_t		chunk;

		if (last-- == 0)
			continue;
		chunk = segment->tile_chunk[r / GPUVEC_TILE_ROWS] + last / GPUVEC_CHUNK_IDS;
		largest = std::max(largest, (uint32_t)
						   segment->ids[(chunk * GPUVEC_TILE_ROWS + r % GPUVEC_TILE_ROWS) *
										GPUVEC_CHUNK_IDS + last % GPUVEC_CHUNK_IDS]);
	}
	return largest;
}

/* Free device memory that no search uses */
static void
release_memory(struct cuda_backend *b, void *memory)
{
	gpuvec_error ignored;

	if (memory != NULL && cuda_enter(b, &ignored))
		device_free(b, memory, b->side_stream);
}

/* Give an uploaded segment its lists */
static bool
make_lists(struct cuda_backend *b, const gpuvec_segment *segment, struct cuda_segment *mine,
		   size_t *bytes, gpuvec_error *error)
{
	struct upload_slot *slot = take_slot(b, error);
	bool		ok;

	if (slot == NULL)
		return false;
	ok = lists_build(b, slot, segment, mine, bytes, error);
	put_slot(b, slot);
	return ok;
}

static bool
cuda_adopt_segment(gpuvec_backend *backend, gpuvec_segment *segment, gpuvec_error *error)
{
	struct cuda_backend *b = (struct cuda_backend *) backend;
	struct segment_layout at = lay_out_segment(segment);
	size_t		ids_bytes = at.bytes - at.ids;
	struct cuda_segment *mine = (struct cuda_segment *) calloc(1, sizeof(*mine));
	char	   *head = (char *) malloc(at.ids);
	size_t		lists_bytes = 0;
	bool		ok;

	if (mine == NULL || head == NULL)
		ok = gpuvec_fail_memory(error, at.ids);
	else
	{
		fill_head(segment, &at, head);
		ok = place(b, &mine->memory, at.bytes, head, at.ids, at.ids, segment->ids, ids_bytes,
				   "a segment", error);
	}
	free(head);
	if (!ok)
	{
		free(mine);
		return false;
	}
	mine->maxid = largest_id(segment);
	mine->desc.tiles = (const uint4 *) mine->memory;
	mine->desc.tid = (const uint64_t *) ((char *) mine->memory + at.tid);
	mine->desc.len = (const uint32_t *) ((char *) mine->memory + at.len);
	mine->desc.ids = (const uint4 *) ((char *) mine->memory + at.ids);
	mine->desc.nrows = segment->nrows;
	mine->desc.ntiles = segment->ntiles;
	if (!make_lists(b, segment, mine, &lists_bytes, error))
	{
		release_memory(b, mine->memory);
		free(mine);
		return false;
	}
	segment->backend = backend;
	segment->device = mine;
	segment->device_bytes = at.bytes + lists_bytes;
	free(segment->ids);
	segment->ids = NULL;
	segment->host_bytes -= std::min(segment->host_bytes, ids_bytes);
	segment->host_bytes += sizeof(*mine);
	return true;
}

static bool
cuda_adopt_livemap(gpuvec_backend *backend, gpuvec_livemap *map, gpuvec_error *error)
{
	struct cuda_backend *b = (struct cuda_backend *) backend;
	struct cuda_livemap *mine = (struct cuda_livemap *) calloc(1, sizeof(*mine));
	size_t		bytes = map->nwords * sizeof(uint32_t);

	if (mine == NULL)
		return gpuvec_fail_memory(error, sizeof(*mine));
	if (!place(b, (void **) &mine->bits, bytes, map->bits, bytes, 0, NULL, 0,
			   "a map of live rows", error))
	{
		free(mine);
		return false;
	}
	map->backend = backend;
	map->device = mine;
	return true;
}

/* Where the parts of a view's allocation begin */
struct view_layout
{
	size_t		groups;
	size_t		blocks[2];
	size_t		bytes;
};

/* Which of a view's arrays of blocks a segment belongs to, if it has lists */
static inline uint32_t
block_kind(const struct device_lists *lists)
{
	return lists->shift == TILED_SHIFT ? 0 : 1;
}

static struct view_layout
lay_out_view(const gpuvec_view *view)
{
	struct view_layout at;
	size_t		ngroups = 0;
	size_t		nblocks[2] = {0, 0};

	for (uint32_t s = 0; s < view->nentries; s++)
	{
		const struct device_segment *desc =
			&((const struct cuda_segment *) view->entries[s].segment->device)->desc;

		ngroups += (desc->ntiles + 31) / 32;
		if (desc->lists.shift != 0)
			nblocks[block_kind(&desc->lists)] += desc->lists.nblocks;
	}
	at.groups = (view->nentries * sizeof(struct device_segment) + 15) / 16 * 16;
	at.blocks[0] = at.groups + ngroups * sizeof(uint2);
	at.blocks[1] = at.blocks[0] + nblocks[0] * sizeof(uint2);
	at.bytes = at.blocks[1] + nblocks[1] * sizeof(uint2);
	return at;
}

/* List the groups of tiles of the segments that have lists, or of those that have none */
static void
add_groups(struct cuda_view *mine, const struct device_segment *segments, uint32_t n, bool listed,
		   uint2 *groups)
{
	for (uint32_t s = 0; s < n; s++)
		if ((segments[s].lists.shift != 0) == listed)
			for (uint32_t t = 0; t < segments[s].ntiles; t += 32)
				groups[mine->ngroups++] = make_uint2(s, t);
}

/* Ids of a block's middle row */
static uint32_t
middle_len(const gpuvec_view *view, uint2 block, int kind)
{
	const gpuvec_segment *segment = view->entries[block.x].segment;
	uint32_t	first = block.y << (kind == 0 ? TILED_SHIFT : WHOLE_SHIFT);
	uint32_t	last = std::min(first + (1u << (kind == 0 ? TILED_SHIFT : WHOLE_SHIFT)),
								segment->nrows) - 1;

	return segment->len[first + (last - first) / 2];
}

/* A block and what it is sorted by, then by its place */
struct block_order
{
	uint32_t	len;
	uint2		block;

	bool operator<(const struct block_order &other) const
	{
		if (len != other.len)
			return len < other.len;
		return block.x != other.block.x ? block.x < other.block.x : block.y < other.block.y;
	}
};

/*
 * Put a view's blocks of one kind in the order of their lengths.  False: out of memory.
 */
static bool
order_blocks(const gpuvec_view *view, struct cuda_view *mine, int kind, uint2 *blocks)
{
	uint32_t	n = mine->nblocks[kind];
	struct block_order *order = (struct block_order *) malloc(n * sizeof(*order) + 1);

	if (order == NULL)
		return false;
	for (uint32_t i = 0; i < n; i++)
		order[i] = {middle_len(view, blocks[i], kind), blocks[i]};
	std::sort(order, order + n);
	for (uint32_t i = 0; i < n; i++)
	{
		blocks[i] = order[i].block;
		mine->block_len[kind][i] = order[i].len;
	}
	free(order);
	return true;
}

void
cuda_view_classes(struct cuda_view *view)
{
	pthread_mutex_lock(&view->mutex);
	if (!view->classified)
	{
		for (uint32_t s = 0; s < view->nsegments; s++)
			for (uint32_t t = 0; t < view->segment_tiles[s]; t++)
				view->tiles_before[tile_class(s, t) + 1]++;
		for (uint32_t c = 0; c < TILE_CLASSES; c++)
		{
			view->largest_class = std::max(view->largest_class, view->tiles_before[c + 1]);
			view->tiles_before[c + 1] += view->tiles_before[c];
		}
		view->classified = true;
	}
	pthread_mutex_unlock(&view->mutex);
}

/*
 * Fill in what the host keeps of a view; head is what goes to the device.  False: out of
 * memory.
 */
static bool
fill_view(const gpuvec_view *view, struct cuda_view *mine, char *head,
		  const struct view_layout *at)
{
	struct device_segment *segments = (struct device_segment *) head;
	uint2	   *groups = (uint2 *) (head + at->groups);

	mine->plain = true;
	for (uint32_t s = 0; s < view->nentries; s++)
	{
		const gpuvec_view_entry *entry = &view->entries[s];
		const struct cuda_segment *segment = (const struct cuda_segment *) entry->segment->device;
		const struct device_lists *lists = &segment->desc.lists;

		segments[s] = segment->desc;
		if (entry->live != NULL)
			segments[s].live = ((const struct cuda_livemap *) entry->live->device)->bits;
		if (lists->shift != 0)
		{
			uint32_t	kind = block_kind(lists);
			uint2	   *blocks = (uint2 *) (head + at->blocks[kind]);

			for (uint32_t i = 0; i < lists->nblocks; i++)
				blocks[mine->nblocks[kind]++] = make_uint2(s, i);
			mine->listed_rows += segment->desc.nrows;
			if (kind == 0)
				mine->nstaged = std::max(mine->nstaged, lists->nstaged);
			else if (lists->nslots > 0)
				mine->plain = false;
		}
		mine->segment_tiles[s] = segment->desc.ntiles;
		mine->ntiles += segment->desc.ntiles;
		mine->maxid = std::max(mine->maxid, segment->maxid);
		mine->maxlen = std::max(mine->maxlen, entry->segment->maxlen);
	}
	mine->nsegments = view->nentries;
	add_groups(mine, segments, view->nentries, false, groups);
	mine->nplain = mine->ngroups;
	add_groups(mine, segments, view->nentries, true, groups);
	for (int kind = 0; kind < 2; kind++)
		if (!order_blocks(view, mine, kind, (uint2 *) (head + at->blocks[kind])))
			return false;
	return true;
}

/* Free what the host keeps of a view */
static void
free_view(struct cuda_view *mine)
{
	if (mine != NULL)
	{
		pthread_mutex_destroy(&mine->mutex);
		free(mine->segment_tiles);
		free(mine->block_len[0]);
		free(mine->block_len[1]);
	}
	free(mine);
}

static bool
cuda_adopt_view(gpuvec_backend *backend, gpuvec_view *view, gpuvec_error *error)
{
	struct cuda_backend *b = (struct cuda_backend *) backend;
	struct cuda_view *mine = (struct cuda_view *) calloc(1, sizeof(*mine));
	struct view_layout at = lay_out_view(view);
	char	   *head = (char *) calloc(1, at.bytes + 1);
	bool		ok = mine != NULL && head != NULL;

	if (mine != NULL)
		pthread_mutex_init(&mine->mutex, NULL);
	if (ok)
	{
		mine->segment_tiles = (uint32_t *) calloc(view->nentries + 1, sizeof(uint32_t));
		mine->block_len[0] = (uint32_t *) malloc(at.blocks[1] - at.blocks[0] + 1);
		mine->block_len[1] = (uint32_t *) malloc(at.bytes - at.blocks[1] + 1);
		ok = mine->segment_tiles != NULL && mine->block_len[0] != NULL &&
			mine->block_len[1] != NULL;
	}
	ok = ok && fill_view(view, mine, head, &at);
	if (!ok)
		gpuvec_fail_memory(error, sizeof(*mine) + at.bytes);
	else
	{
		ok = place(b, &mine->memory, at.bytes, head, at.bytes, 0, NULL, 0, "a view", error);
	}
	free(head);
	if (!ok)
	{
		free_view(mine);
		return false;
	}
	mine->segments = (const struct device_segment *) mine->memory;
	mine->groups = (const uint2 *) ((char *) mine->memory + at.groups);
	for (int kind = 0; kind < 2; kind++)
		mine->blocks[kind] = (const uint2 *) ((char *) mine->memory + at.blocks[kind]);
	view->backend = backend;
	view->device = mine;
	return true;
}

static void
cuda_release_segment(gpuvec_backend *backend, gpuvec_segment *segment)
{
	struct cuda_segment *mine = (struct cuda_segment *) segment->device;

	if (mine == NULL)
		return;
	release_memory((struct cuda_backend *) backend, mine->memory);
	release_memory((struct cuda_backend *) backend, mine->lists_memory);
	free(mine);
	segment->device = NULL;
	segment->device_bytes = 0;
}

static void
cuda_release_livemap(gpuvec_backend *backend, gpuvec_livemap *map)
{
	struct cuda_livemap *mine = (struct cuda_livemap *) map->device;

	if (mine == NULL)
		return;
	release_memory((struct cuda_backend *) backend, mine->bits);
	free(mine);
	map->device = NULL;
}

static void
cuda_release_view(gpuvec_backend *backend, gpuvec_view *view)
{
	struct cuda_view *mine = (struct cuda_view *) view->device;

	if (mine == NULL)
		return;
	release_memory((struct cuda_backend *) backend, mine->memory);
	free_view(mine);
	view->device = NULL;
}

static bool
cuda_read_ids(gpuvec_backend *backend, const gpuvec_segment *segment, uint16_t *ids,
			  gpuvec_error *error)
{
	static const char *const what = "copy rows from the GPU";
	struct cuda_backend *b = (struct cuda_backend *) backend;
	const struct cuda_segment *mine = (const struct cuda_segment *) segment->device;
	size_t		bytes = (size_t) segment->nchunks * GPUVEC_TILE_ROWS * sizeof(uint4);
	struct upload_slot *slot = take_slot(b, error);
	bool		ok = true;

	if (slot == NULL)
		return false;
	for (size_t at = 0; at < bytes && ok; at += 2 * UPLOAD_HALF)
	{
		size_t		n = std::min(bytes - at, 2 * UPLOAD_HALF);

		ok = cuda_check(b, cudaMemcpyAsync(slot->buffer, (const char *) mine->desc.ids + at, n,
										   cudaMemcpyDeviceToHost, slot->stream), what, error) &&
			cuda_check(b, cudaStreamSynchronize(slot->stream), what, error);
		if (ok)
			memcpy((char *) ids + at, slot->buffer, n);
	}
	put_slot(b, slot);
	return ok;
}

/* Device memory that can still be had: what the device has, and what the pool holds in reserve */
static size_t
free_memory(struct cuda_backend *b)
{
	size_t		available = 0;
	size_t		total = 0;
	cudaMemPool_t pool;
	uint64_t	reserved = 0;
	uint64_t	used = 0;

	if (cudaMemGetInfo(&available, &total) != cudaSuccess)
		available = 0;
	if (b->pooled && cudaDeviceGetDefaultMemPool(&pool, b->device) == cudaSuccess &&
		cudaMemPoolGetAttribute(pool, cudaMemPoolAttrReservedMemCurrent, &reserved) == cudaSuccess &&
		cudaMemPoolGetAttribute(pool, cudaMemPoolAttrUsedMemCurrent, &used) == cudaSuccess)
		available += reserved - used;
	cudaGetLastError();
	return available;
}

static void
cuda_info(gpuvec_backend *backend, gpuvec_backend_info *info)
{
	struct cuda_backend *b = (struct cuda_backend *) backend;
	gpuvec_error ignored;

	memset(info, 0, sizeof(*info));
	snprintf(info->name, sizeof(info->name), "%s", b->base.name);
	snprintf(info->device, sizeof(info->device), "%s", b->device_name);
	info->capability = b->capability;
	info->memory_total = b->memory_total;
	if (cuda_enter(b, &ignored))
		info->memory_free = free_memory(b);
}

/* Free everything that open and use have taken; segments and views are gone already */
static void
cuda_close(gpuvec_backend *backend)
{
	struct cuda_backend *b = (struct cuda_backend *) backend;
	gpuvec_error ignored;

	gpuvec::embedding_close(b->base.vectors);
	if (b->pool)
		gpuvec_pool_free(b->pool);
	if (cuda_enter(b, &ignored))
	{
		if (b->stream)
			cudaStreamSynchronize(b->stream);
		device_free(b, b->scratch, b->stream);
		cudaFree(b->stop);
		cudaFreeHost(b->stop_value);
		cudaFreeHost(b->upload);
		cudaFreeHost(b->download);
		for (int i = 0; i < UPLOAD_SLOTS; i++)
		{
			for (int j = 0; j < 2; j++)
				if (b->slots[i].done[j])
					cudaEventDestroy(b->slots[i].done[j]);
			if (b->slots[i].stream)
				cudaStreamDestroy(b->slots[i].stream);
			cudaFreeHost(b->slots[i].buffer);
		}
		if (b->finished)
			cudaEventDestroy(b->finished);
		if (b->side_stream)
			cudaStreamDestroy(b->side_stream);
		if (b->stream)
			cudaStreamDestroy(b->stream);
		cudaGetLastError();
	}
	pthread_cond_destroy(&b->slot_free);
	pthread_mutex_destroy(&b->lock);
	free(b);
}

/* Compute capability * 10 of a device, or 0 */
static int
device_capability(int device)
{
	int			major = 0;
	int			minor = 0;

	if (cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device) != cudaSuccess ||
		cudaDeviceGetAttribute(&minor, cudaDevAttrComputeCapabilityMinor, device) != cudaSuccess)
	{
		cudaGetLastError();
		return 0;
	}
	return major * 10 + minor;
}

/* Number of GPUs of any age; 0 and *error if there is none */
static int
count_devices(gpuvec_error *error)
{
	int			n = 0;
	cudaError_t rc = cudaGetDeviceCount(&n);

	cudaGetLastError();
	if (rc == cudaSuccess && n > 0)
		return n;
	if (rc == cudaErrorInsufficientDriver)
		gpuvec_fail(error, GPUVEC_SYSTEM_ERROR, NULL,
					"Install an NVIDIA driver that supports CUDA 13.0 or later.",
					"no CUDA driver found, or it is too old");
	else
		gpuvec_fail(error, GPUVEC_SYSTEM_ERROR, NULL, NULL, "no GPU found");
	if (rc != cudaSuccess)
		snprintf(error->detail, sizeof(error->detail), "CUDA reports %s: %s.",
				 cudaGetErrorName(rc), cudaGetErrorString(rc));
	return 0;
}

int
gpuvec_cuda_count(gpuvec_error *error)
{
	int			n = count_devices(error);
	int			usable = 0;

	for (int i = 0; i < n; i++)
		if (device_capability(i) >= MIN_CAPABILITY)
			usable++;
	if (n > 0 && usable == 0)
		gpuvec_fail(error, GPUVEC_SYSTEM_ERROR, NULL, NULL,
					"no GPU of compute capability 8.0 or later found");
	return usable;
}

/* Read what the backend must know of its device */
static bool
inspect_device(struct cuda_backend *b, const gpuvec_backend_options *options,
			   gpuvec_error *error)
{
	static const char *const what = "read the GPU's properties";
	cudaDeviceProp prop;
	int			pools = 0;
	cudaMemPool_t pool;
	uint64_t	keep = UINT64_MAX;

	if (!cuda_check(b, cudaGetDeviceProperties(&prop, b->device), what, error))
		return false;
	snprintf(b->device_name, sizeof(b->device_name), "%.120s", prop.name);
	b->capability = prop.major * 10 + prop.minor;
	b->sms = prop.multiProcessorCount;
	b->smem_limit = prop.sharedMemPerBlockOptin;
	b->memory_total = prop.totalGlobalMem;
	b->workspace = options->workspace ? options->workspace :
		std::min(b->memory_total / 16, DEFAULT_WORKSPACE);
	if (b->capability < MIN_CAPABILITY)
		return gpuvec_fail(error, GPUVEC_SYSTEM_ERROR, NULL, NULL,
						   "GPU %d (%s) has compute capability %d.%d, but 8.0 or later is needed",
						   b->device, b->device_name, prop.major, prop.minor);
	if (!cuda_check(b, cudaDeviceGetAttribute(&pools, cudaDevAttrMemoryPoolsSupported, b->device),
					what, error))
		return false;
	b->pooled = pools != 0;
	return !b->pooled ||
		(cuda_check(b, cudaDeviceGetDefaultMemPool(&pool, b->device), what, error) &&
		 cuda_check(b, cudaMemPoolSetAttribute(pool, cudaMemPoolAttrReleaseThreshold, &keep),
					what, error));
}

/* Make the context, and what topk needs throughout */
static bool
prepare_device(struct cuda_backend *b, gpuvec_error *error)
{
	static const char *const what = "prepare the GPU";

	if (!cuda_check(b, cudaSetDevice(b->device), what, error) ||
		!cuda_check(b, cudaStreamCreateWithFlags(&b->stream, cudaStreamNonBlocking), what,
					error) ||
		!cuda_check(b, cudaStreamCreateWithFlags(&b->side_stream, cudaStreamNonBlocking), what,
					error) ||
		!cuda_check(b, cudaEventCreateWithFlags(&b->finished, cudaEventDisableTiming), what,
					error) ||
		!cuda_check(b, cudaMalloc((void **) &b->stop, sizeof(uint32_t)), what, error) ||
		!cuda_check(b, cudaHostAlloc((void **) &b->stop_value, sizeof(uint32_t),
									 cudaHostAllocDefault), what, error))
		return false;
	*b->stop_value = 1;
	return cuda_check(b, cudaMemsetAsync(b->stop, 0, sizeof(uint32_t), b->stream), what, error) &&
		cuda_check(b, cudaStreamSynchronize(b->stream), what, error) &&
		cuda_check(b, scan_prepare(b->smem_limit), "load the kernels", error) &&
		cuda_check(b, lists_prepare(b->smem_limit), "load the kernels", error) &&
		cuda_check(b, select_prepare(), "load the kernels", error);
}

/* The part that serves embedding tables */
static gpuvec_vectors *
open_embedding(int number, gpuvec_error *error)
{
	static struct gpuvec::cuda_device devices[64];

	if (number >= 64 || !devices[number].open(number, error))
		return NULL;
	return gpuvec::embedding_open(devices[number], gpuvec::embedding_policy(), error);
}

gpuvec_backend *
gpuvec_cuda_open(const gpuvec_backend_options *options, gpuvec_error *error)
{
	int			ndevices = count_devices(error);
	struct cuda_backend *b;

	if (ndevices == 0)
		return NULL;
	if (options->device < 0 || options->device >= ndevices)
	{
		gpuvec_fail(error, GPUVEC_SYSTEM_ERROR, NULL, NULL,
					"GPU %d does not exist: the machine has %d", options->device, ndevices);
		return NULL;
	}
	b = (struct cuda_backend *) calloc(1, sizeof(*b));
	if (b == NULL)
	{
		gpuvec_fail_memory(error, sizeof(*b));
		return NULL;
	}
	pthread_mutex_init(&b->lock, NULL);
	pthread_cond_init(&b->slot_free, NULL);
	b->device = options->device;
	b->base.name = "cuda";
	b->base.on_device = true;
	b->base.info = cuda_info;
	b->base.adopt_segment = cuda_adopt_segment;
	b->base.adopt_livemap = cuda_adopt_livemap;
	b->base.adopt_view = cuda_adopt_view;
	b->base.release_segment = cuda_release_segment;
	b->base.release_livemap = cuda_release_livemap;
	b->base.release_view = cuda_release_view;
	b->base.read_ids = cuda_read_ids;
	b->base.topk = cuda_topk;
	b->base.close = cuda_close;
	b->base.vectors = open_embedding(b->device, error);
	if (b->base.vectors == NULL || !inspect_device(b, options, error) || !prepare_device(b, error))
	{
		cuda_close(&b->base);
		return NULL;
	}
	b->pool = gpuvec_pool_new(std::min(gpuvec_cores(), DECODE_THREADS));
	return &b->base;
}

void
gpuvec_cuda_tune(gpuvec_backend *backend, const struct gpuvec_cuda_tuning *tuning)
{
	((struct cuda_backend *) backend)->tuning = *tuning;
}

struct gpuvec_cuda_stats
gpuvec_cuda_last(gpuvec_backend *backend)
{
	return ((struct cuda_backend *) backend)->stats;
}
