/*-------------------------------------------------------------------------
 *
 * bounds.h
 *	  Limits that the extension, the engine and the kernels share.
 *
 *-------------------------------------------------------------------------
 */
#ifndef GPUVEC_BOUNDS_H
#define GPUVEC_BOUNDS_H

/*
 * Ids are 0 .. 4294967295.  A set whose ids are at most GPUVEC_MAX_ID is
 * narrow: it has ids of 16 bits.  Each other one is wide.  A set has at most
 * GPUVEC_MAX_IDS ids.
 */
#define GPUVEC_MAX_ID			65535
#define GPUVEC_MAX_IDS			65536

/* A mirror's numbers of ids below this are hot (engine/segment.h) */
#define GPUVEC_HOT_NUMBERS		65536

/*
 * Largest k of one request; a session fetches longer answers in several
 * requests
 */
#define GPUVEC_MAX_K			100000

/*
 * Rows of the first answer to a request for all rows, if they come in order:
 * an answer of exactly as many is in order, and others may follow.  Any other
 * answer has all rows, in any order.
 */
#define GPUVEC_FIRST_ROWS		8192

/* Up to this k, the kernels sort the best rows in shared memory */
#define GPUVEC_FAST_K			1024

/* Largest number of queries in one request */
#define GPUVEC_MAX_QUERIES		1000000

/* Rows of one segment: a row's number in its segment fits 16 bits */
#define GPUVEC_SEGMENT_ROWS		65536

/*
 * A tile is a group of rows of a segment that one warp scans together.  A
 * chunk is 8 consecutive ids of a row (16 bytes).
 */
#define GPUVEC_TILE_ROWS		32
#define GPUVEC_CHUNK_IDS		8

/*
 * A tid names a row: heap block number << 16 | line.
 *
 * A line is made by the session (see mirror.h): a line pointer number << 1,
 * and one bit.  Line pointer numbers are below 2^11 for every block size that
 * PostgreSQL supports, so a line is at most GPUVEC_MAX_LINE.  The kernels
 * rely on that.
 */
#define GPUVEC_MAX_LINE			4095
#define gpuvec_tid(block, line) (((uint64_t) (block) << 16) | (uint16_t) (line))
#define gpuvec_tid_block(tid)	((uint32_t) ((tid) >> 16))
#define gpuvec_tid_line(tid)	((uint16_t) ((tid) & 0xFFFF))

#endif							/* GPUVEC_BOUNDS_H */
