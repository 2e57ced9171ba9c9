/*-------------------------------------------------------------------------
 *
 * views.cu
 *	  Views in the memory of the GPU.
 *
 * A view is one allocation: the descriptions of its segments, then the groups
 * of tiles and the blocks into which the segments are cut, and the numbers of
 * the segments that have cold numbers.
 *
 *-------------------------------------------------------------------------
 */
#include <algorithm>
#include <new>
#include <stdlib.h>
#include <string.h>

#include "kernels/search/search_backend.h"

namespace gpuvec
{

/* Where the pieces of a view's allocation begin */
struct view_layout
{
	size_t groups;
	size_t blocks[2];
	size_t cold_segments;
	size_t bytes;
};

/* Index of a view's array of blocks to which a segment with lists belongs */
static inline uint32_t
block_kind(const struct device_lists *lists)
{
	return lists->shift == TILED_SHIFT ? 0 : 1;
}

static struct view_layout
lay_out_view(const gpuvec_view *view)
{
	struct view_layout at;
	size_t ngroups = 0;
	size_t nblocks[2] = {0, 0};
	size_t ncold = 0;

	for (uint32_t s = 0; s < view->nentries; s++)
	{
		const struct device_segment *desc =
			&((const struct cuda_segment *) view->entries[s].segment->device)->desc;

		ngroups += (desc->ntiles + 31) / 32;
		if (desc->lists.shift != 0)
			nblocks[block_kind(&desc->lists)] += desc->lists.nblocks;
		ncold += desc->cold.ngroups > 0;
	}
	at.groups = (view->nentries * sizeof(struct device_segment) + 15) / 16 * 16;
	at.blocks[0] = at.groups + ngroups * sizeof(uint2);
	at.blocks[1] = at.blocks[0] + nblocks[0] * sizeof(uint2);
	at.cold_segments = at.blocks[1] + nblocks[1] * sizeof(uint2);
	at.bytes = at.cold_segments + ncold * sizeof(uint32_t);
	return at;
}

/* Add the groups of tiles of the segments with lists, or of those without */
static void
add_groups(struct cuda_view *mine, const struct device_segment *segments, uint32_t n, bool listed,
		   uint2 *groups)
{
	for (uint32_t s = 0; s < n; s++)
		if ((segments[s].lists.shift != 0) == listed)
			for (uint32_t t = 0; t < segments[s].ntiles; t += 32)
				groups[mine->ngroups++] = make_uint2(s, t);
}

/* The length of a block's middle row */
static uint32_t
middle_len(const gpuvec_view *view, uint2 block, int kind)
{
	const gpuvec_segment *segment = view->entries[block.x].segment;
	uint32_t first = block.y << (kind == 0 ? TILED_SHIFT : WHOLE_SHIFT);
	uint32_t last =
		std::min(first + (1u << (kind == 0 ? TILED_SHIFT : WHOLE_SHIFT)), segment->nrows) - 1;

	return segment->len[first + (last - first) / 2];
}

/* A block with its sort key: its length, then its number */
struct block_order
{
	uint32_t len;
	uint2 block;

	bool
	operator<(const struct block_order &other) const
	{
		if (len != other.len)
			return len < other.len;
		return block.x != other.block.x ? block.x < other.block.x : block.y < other.block.y;
	}
};

/*
 * Put a view's blocks of one kind in order of length; false if out of memory
 */
static bool
order_blocks(const gpuvec_view *view, struct cuda_view *mine, int kind, uint2 *blocks)
{
	uint32_t n = mine->nblocks[kind];
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
count_classes(struct cuda_view *view)
{
	std::lock_guard<std::mutex> guard(view->mutex);

	if (view->classified)
		return;
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

/* ---- views of several mirrors ---- */

/* The number of an entry's mirror */
static inline uint32_t
partition_of(const gpuvec_view_entry *entry)
{
	return (uint32_t) (entry->partition >> GPUVEC_PARTITION_SHIFT);
}

/*
 * Find out how many bits of row keys tell the mirror.  If rows of several
 * share segments, these know.  Fails if a block number needs some of the bits.
 */
static bool
find_partition_bits(const gpuvec_view *view, uint32_t *bits, gpuvec_error *error)
{
	uint32_t n = 0;      /* one more than the largest number of a mirror */
	uint32_t blocks = 0; /* the largest block number */

	*bits = 0;
	for (uint32_t s = 0; s < view->nentries; s++)
	{
		const gpuvec_segment *segment = view->entries[s].segment;

		n = std::max(n, partition_of(&view->entries[s]) + 1);
		*bits = std::max(*bits, segment->partition_bits);
		if (segment->partition_bits == 0)
			blocks = std::max(blocks, (uint32_t) gpuvec_tid_block(segment->last_tid));
	}
	while (n > 1u << *bits)
		(*bits)++;
	if (*bits > 0 && blocks >> (32 - *bits) != 0)
		return gpuvec_fail(error, GPUVEC_LIMIT_EXCEEDED, NULL, NULL,
						   "partitions are too large to be searched as one view");
	return true;
}

/* ---- filling in ---- */

/* Add a segment with lists to the host's part of a view, and to its blocks */
static void
add_lists(struct cuda_view *mine, uint32_t s, const struct device_segment *segment, char *head,
		  const struct view_layout *at)
{
	const struct device_lists *lists = &segment->lists;
	uint32_t kind = block_kind(lists);
	uint2 *blocks = (uint2 *) (head + at->blocks[kind]);

	for (uint32_t i = 0; i < lists->nblocks; i++)
		blocks[mine->nblocks[kind]++] = make_uint2(s, i);
	mine->listed_rows += segment->nrows;
	if (kind == 0)
		mine->nstaged = std::max(mine->nstaged, lists->nstaged);
	else if (lists->nslots > 0)
		mine->plain = false;
}

/*
 * Fill in what the host keeps of a view, and in head what goes to the device.
 * Returns false if out of memory.
 */
static bool
fill_view(const gpuvec_view *view, struct cuda_view *mine, char *head, const struct view_layout *at)
{
	struct device_segment *segments = (struct device_segment *) head;
	uint2 *groups = (uint2 *) (head + at->groups);
	uint32_t *cold_segments = (uint32_t *) (head + at->cold_segments);

	for (uint32_t s = 0; s < view->nentries; s++)
	{
		const gpuvec_view_entry *entry = &view->entries[s];
		const struct cuda_segment *segment = (const struct cuda_segment *) entry->segment->device;

		segments[s] = segment->desc;
		segments[s].partition = partition_key(partition_of(entry), mine->partition_bits);
		if (entry->live != NULL)
			segments[s].live =
				(const uint32_t *) ((const struct cuda_livemap *) entry->live->device)->bits.get();
		segments[s].first_tile = mine->ntiles;
		mine->null_sets |= segment->desc.null_sets != NULL;
		if (segment->desc.lists.shift != 0)
			add_lists(mine, s, &segment->desc, head, at);
		if (segment->desc.cold.ngroups > 0)
			cold_segments[mine->ncold_segments++] = s;
		mine->cold_rows += segment->cold_rows;
		mine->dense_rows += segment->desc.bits ? segment->desc.nrows : 0;
		mine->nrows += segment->desc.nrows;
		mine->nids += gpuvec_segment_hot(entry->segment);
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

/* Allocate what the host keeps of a view; NULL if out of memory */
static struct cuda_view *
new_view(const gpuvec_view *view, const struct view_layout *at)
{
	std::unique_ptr<struct cuda_view> mine(new (std::nothrow) cuda_view);

	if (mine == NULL)
		return NULL;
	mine->segment_tiles.reset(new (std::nothrow) uint32_t[view->nentries]);
	for (int kind = 0; kind < 2; kind++)
	{
		size_t bytes = (kind == 0 ? at->blocks[1] : at->cold_segments) - at->blocks[kind];

		mine->block_len[kind].reset(new (std::nothrow) uint32_t[bytes / sizeof(uint2)]);
	}
	return mine->segment_tiles && mine->block_len[0] && mine->block_len[1] ? mine.release() : NULL;
}

bool
adopt_view(gpuvec_backend *backend, gpuvec_view *view, gpuvec_error *error)
{
	struct search_backend *b = static_cast<struct search_backend *>(backend);
	struct view_layout at = lay_out_view(view);
	std::unique_ptr<struct cuda_view> mine(new_view(view, &at));
	std::unique_ptr<char[]> head(new (std::nothrow) char[at.bytes]());
	char *memory;

	if (mine && !find_partition_bits(view, &mine->partition_bits, error))
		return false;
	if (mine == NULL || head == NULL || !fill_view(view, mine.get(), head.get(), &at))
		return gpuvec_fail_memory(error, sizeof(*mine) + at.bytes);
	if (!upload_pieces(b, mine->memory, at.bytes, {{0, head.get(), at.bytes}}, "a view", error))
		return false;
	memory = (char *) mine->memory.get();
	mine->segments = (const struct device_segment *) memory;
	mine->groups = (const uint2 *) (memory + at.groups);
	for (int kind = 0; kind < 2; kind++)
		mine->blocks[kind] = (const uint2 *) (memory + at.blocks[kind]);
	mine->cold_segments = (const uint32_t *) (memory + at.cold_segments);
	view->backend = backend;
	view->device = mine.release();
	return true;
}

void
release_view(gpuvec_backend *, gpuvec_view *view)
{
	delete (struct cuda_view *) view->device;
	view->device = NULL;
}

} // namespace gpuvec
