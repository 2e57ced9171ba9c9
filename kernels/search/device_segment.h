/*-------------------------------------------------------------------------
 *
 * device_segment.h
 *	  Segments as they are in device memory.
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
 * An id is common if it has a slot: then each block has a bitmap of its rows
 * that have the id.  Other ids have in each block an ascending list of row
 * numbers within the block.  The lists of a block follow one another.
 *
 * In blocks of 2^TILED_SHIFT rows, groups[block * nbases + g] tells all of
 * ids 12 g .. 12 g + 11, so that one load of 16 bytes finds a list: x is
 * where in the postings their lists start, and the bytes of y, z and w are
 * the lengths of these lists (an id with more than 255 rows in some block is
 * common).  In a segment that is one block, the lists of ids 16 g .. 16 g +
 * 15 start at base[g], and that of id i start[i] after this (an id with more
 * than 2^12 rows is common).
 */
struct device_lists
{
	const uint16_t *postings;
	const uint4 *groups;   /* [nblocks * nbases], in small blocks */
	const uint32_t *base;  /* [nbases], in whole segments */
	const uint16_t *start; /* [nstarts], in whole segments */
	const uint16_t *slot;  /* [maxid + 1]: 1 .. nslots, the most common id first, or
								 * NO_SLOT */
	const uint4 *bitmaps;  /* [nblocks][nslots + 1][2^shift / 128]; slot 0 is empty */
	uint32_t shift;        /* TILED_SHIFT or WHOLE_SHIFT; 0: no lists */
	uint32_t nblocks;
	uint32_t nslots;
	uint32_t nstaged; /* slots up to this are read from shared memory */
	uint32_t nbases;
	uint32_t nstarts;
	uint32_t maxid; /* larger ids are in no row */
};

#define NO_SLOT 0xFFFFu
#define TILED_GROUP 12 /* lists that share one of groups[] */
#define WHOLE_GROUP 16 /* lists that share a base */
#define MAX_LIST 255   /* postings of a list in a small block */

/*
 * With many common ids a block is 4,096 rows, so that the bitmaps of a block
 * fit shared memory; otherwise the segment is one block.
 */
#define TILED_SHIFT 12
#define WHOLE_SHIFT 16

/* A segment on the device: pointers into one allocation, and the live map */
struct device_segment
{
	const uint4 *ids;     /* chunk c of row r: ids[(tile.x + c) * 32 + r] */
	const uint4 *tiles;   /* first chunk, number of chunks, shortest and
								 * longest row */
	const uint32_t *len;  /* [ntiles * 32], 0 beyond nrows */
	const uint64_t *tid;  /* [ntiles * 32], key_from_tid() */
	const uint32_t *live; /* [ntiles], or NULL: all rows are live */
	uint32_t nrows;
	uint32_t ntiles;
	struct device_lists lists;
};

/*
 * Tiles are dealt into classes by a hash, so that a range of classes is a
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
