/*-------------------------------------------------------------------------
 *
 * device_segment.h
 *	  The layout of segments in device memory.
 *
 *-------------------------------------------------------------------------
 */
#ifndef GPUVEC_DEVICE_SEGMENT_H
#define GPUVEC_DEVICE_SEGMENT_H

#include <cuda_runtime.h>
#include <stdint.h>

#include "core/measure.h"
#include "engine/segment.h"

namespace gpuvec
{

/*
 * Blocked inverted lists of a segment.  A block is 2^shift consecutive rows.
 *
 * A common id has a slot, and in each block a bitmap of the rows that have
 * the id.  Any other id has in each block an inverted list: the ascending row
 * numbers within the block, called postings.  The lists of a block follow one
 * another.
 *
 * Small blocks have 2^TILED_SHIFT rows.  groups[block * nbases + g] describes
 * the lists of ids 12 g .. 12 g + 11, so that one load of 16 bytes finds a
 * list: x is the position in postings at which the lists start, and the bytes
 * of y, z and w are their lengths.  So an id with more than 255 rows in some
 * block is common.
 *
 * A whole segment is one block of up to 2^WHOLE_SHIFT rows.  There the lists
 * of ids 16 g .. 16 g + 15 start at base[g], and the list of id i starts
 * start[i] postings after this.  So an id with more than 2^12 rows is common.
 */
struct device_lists
{
	const uint16_t *postings;
	const uint4 *groups;   /* [nblocks * nbases]; small blocks only */
	const uint32_t *base;  /* [nbases]; whole segments only */
	const uint16_t *start; /* [nstarts]; whole segments only */
	/*
	 * [maxid + 1]: 1 for the most common id, .. nslots; NO_SLOT if not common
	 */
	const uint16_t *slot;
	/*
	 * [nblocks][nslots + 1][2^shift / 128]; the bitmaps of slot 0 are empty
	 */
	const uint4 *bitmaps;
	uint32_t shift; /* TILED_SHIFT or WHOLE_SHIFT; 0: no lists */
	uint32_t nblocks;
	uint32_t nslots;
	/* the bitmaps of slots up to this one are read from shared memory */
	uint32_t nstaged;
	uint32_t nbases;
	uint32_t nstarts;
	uint32_t maxid; /* the largest id of all rows */
};

#define NO_SLOT 0xFFFFu
#define TILED_GROUP 12 /* lists that one element of groups[] describes */
#define WHOLE_GROUP 16 /* lists that share a base */
#define MAX_LIST 255   /* postings of a list in a small block */

/*
 * If many ids are common, blocks are small, so that the bitmaps of a block
 * fit into shared memory.  Otherwise the segment is one block.
 */
#define TILED_SHIFT 12
#define WHOLE_SHIFT 16

/*
 * Cold postings of a segment (engine/segment.h), in order of number, then
 * row.  A group has the postings of all numbers with the same upper half.
 */
struct device_cold
{
	/*
	 * [ngroups + 1], ascending: the upper half of a group's numbers, and its
	 * first posting; the last element has the number of all postings
	 */
	const uint2 *groups;
	const uint16_t *low; /* lower halves of the postings' numbers */
	const uint16_t *row; /* the postings' rows */
	const float *value;  /* and values; NULL: they are 1 */
	uint32_t ngroups;    /* 0: there are no cold numbers */
};

/*
 * A filter column of a segment (engine/filter_column.h).  keys and codes are
 * offsets in bytes from device_segment.filters.  There are codes for all rows
 * of all tiles.
 */
struct device_filter
{
	uint32_t nkeys;
	uint32_t has_nulls;
	uint64_t keys;
	uint64_t codes;
};

#define TILE_WHOLE_SHIFT 16

/* A segment has fewer cold postings than this */
#define MOST_COLD ((uint64_t) 1 << 31)

/* A segment on the device: pointers into one allocation, and its live map */
struct device_segment
{
	/* chunk c of row r of a tile: ids[(tile.x + c) * 32 + r] */
	const uint4 *ids;
	/*
	 * [ntiles]: first chunk; number of chunks, and above TILE_WHOLE_SHIFT how
	 * many of them are whole in all rows; length of the shortest row; most
	 * hot numbers of a row
	 */
	const uint4 *tiles;
	const uint32_t *len; /* [ntiles * 32]; 0 beyond nrows */
	/*
	 * the same, of hot numbers only: what a tile holds of a row; is len
	 * itself if there are no cold numbers
	 */
	const uint32_t *hot_len;
	const uint64_t *tid;  /* [ntiles * 32]: key_from_tid() */
	uint64_t partition;   /* partition_key() of all rows, or 0 */
	const uint32_t *live; /* [ntiles] bits of live rows; NULL: all are */
	uint32_t nrows;
	uint32_t ntiles;
	uint32_t first_tile; /* in the view: tiles of the segments before it */
	uint32_t nfilters;
	const struct device_filter *filters; /* [nfilters] */
	const uint32_t *null_sets;           /* [ntiles] bits of null sets; NULL: there are none */
	struct device_lists lists;
	struct device_cold cold;
	/* bit vectors of rows (dense_cells.cuh); NULL: none */
	const uint4 *bits;
	/* of rows with values; else NULL */
	const float *values; /* one for each id, in the layout of ids */
	const double2 *sums; /* [nrows] as gpuvec_row_sums: square, sum */
};

/* The keys of a filter column */
static __forceinline__ GPUVEC_HD const uint64_t *
column_keys(const struct device_segment *segment, uint32_t column)
{
	return (const uint64_t *) ((const char *) segment->filters + segment->filters[column - 1].keys);
}

/*
 * A hash distributes the tiles among classes, so that a range of classes is a
 * pseudo-random sample of a view.
 */
#define TILE_CLASS_BITS 14
#define TILE_CLASSES (1 << TILE_CLASS_BITS)
#define SEGMENT_TILES (GPUVEC_SEGMENT_ROWS / GPUVEC_TILE_ROWS)

static __forceinline__ GPUVEC_HD uint32_t
tile_class(uint32_t segment, uint32_t tile)
{
	return ((segment * SEGMENT_TILES + tile) * 0x9E3779B1u) >> (32 - TILE_CLASS_BITS);
}

} // namespace gpuvec

#endif /* GPUVEC_DEVICE_SEGMENT_H */
