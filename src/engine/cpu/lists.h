/*-------------------------------------------------------------------------
 *
 * lists.h
 *	  Inverted lists of a segment, for the CPU backend.
 *
 * For each id, a segment has a list or a bitmap.  A list holds the numbers of
 * the rows that have the id, as 16-bit integers.  Ids in more than one row of
 * a few dozen have a bitmap of the segment's rows.  A list of n rows costs a
 * search n increments of byte counters.  A bitmap costs a full adder for
 * every 512 rows (AVX-512).  So the bitmap would be the cheaper form from one
 * row in about 300 on.  But each bitmap takes 8 kB, and a lone query waits
 * for it to be read from memory.  Lists and bitmaps together take at most
 * `share` times the bytes of the ids where that is possible.
 *
 *-------------------------------------------------------------------------
 */
#ifndef GPUVEC_CPU_LISTS_H
#define GPUVEC_CPU_LISTS_H

#include "engine/segment.h"

/*
 * Rows of one line of a bitmap: the block of rows of the widest search
 * (AVX-512)
 */
#define LISTS_LINE_ROWS		512
#define LISTS_LINE_BYTES	(LISTS_LINE_ROWS / 8)

/*
 * Rows from one entry of row_len to the next: the block of rows of the
 * narrowest search (portable C)
 */
#define LISTS_LEN_ROWS		64

/*
 * Flag in start[]: the id has a bitmap.  Where its list would be, rows[]
 * holds the number of its bitmap.
 */
#define LISTS_BITMAP		UINT32_C(0x80000000)

typedef struct cpu_lists
{
	uint32_t	nrows;
	uint32_t	first_id;		/* ids of the segment are first_id .. */
	uint32_t	end_id;			/* .. end_id - 1 */
	uint32_t	nbitmaps;
	uint32_t	longest;		/* row numbers of the longest list */
	uint32_t	stride;			/* bytes from one bitmap to the next */
	uint32_t   *start;			/* [end_id - first_id + 1] positions in rows[] */
	uint16_t   *rows;			/* row numbers of the lists, one list after
								 * another */
	uint8_t    *bitmaps;		/* 64-byte aligned; bit r % 8 of byte r / 8:
								 * row r */
	uint32_t   *row_len;		/* length of every LISTS_LEN_ROWS-th row; from
								 * the end of the segment to the end of the
								 * last line, and in one more entry, maxlen */
	size_t		bytes;			/* bytes of this struct and its arrays */
} cpu_lists;

/* When lists are made, and how */
typedef struct gpuvec_lists_policy
{
	uint32_t	least_rows;		/* segments with fewer rows get no lists */
	uint64_t	least_ids;		/* segments with fewer ids get no lists:
								 * start[] could be larger than their ids */
	uint32_t	dense;			/* ids in more than 1/dense of the rows get
								 * bitmaps */
	double		share;			/* most bytes, as a multiple of the bytes of
								 * the ids */
} gpuvec_lists_policy;

/* The default policy */
extern const gpuvec_lists_policy gpuvec_lists_usual;

/* Bytes to reserve for the lists of this segment; 0 if it gets none */
extern size_t lists_budget(const gpuvec_segment *segment, const gpuvec_lists_policy *policy);

/*
 * Make the lists of a segment.  NULL if out of memory, or if *abandon becomes
 * nonzero (read atomically).
 */
extern cpu_lists *lists_build(const gpuvec_segment *segment, const gpuvec_lists_policy *policy,
							  const int *abandon);
extern void lists_free(cpu_lists *lists);

#endif							/* GPUVEC_CPU_LISTS_H */
