/*-------------------------------------------------------------------------
 *
 * lists.h
 *	  Inverted lists of a segment, for the CPU backend.
 *
 * For each id a segment has either a list, the numbers of the rows that have
 * the id as 16-bit integers, or, if that is more than one row in a few dozen,
 * a bitmap of the segment's rows.  A list of n rows costs a search n
 * increments of byte counters, a bitmap costs it a full adder for every 512
 * rows (AVX-512), so the cheaper form would be the bitmap from one row in
 * about 300 on; but it takes 8 kB, whatever it says, and reading it from
 * memory is what a lone query waits for.  Lists and bitmaps together take at
 * most `share` times the bytes of the ids where that is possible.
 *
 *-------------------------------------------------------------------------
 */
#ifndef GPUVEC_CPU_LISTS_H
#define GPUVEC_CPU_LISTS_H

#include "engine/segment.h"

/*
 * Rows of one line of a bitmap: the block that the widest search takes at
 * once
 */
#define LISTS_LINE_ROWS		512
#define LISTS_LINE_BYTES	(LISTS_LINE_ROWS / 8)

/*
 * Rows from one entry of row_len to the next: the block of the narrowest
 * search
 */
#define LISTS_LEN_ROWS		64

/*
 * Flag in start[]: the id has a bitmap; its number stands where its list
 * would
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
	uint32_t   *start;			/* [end_id - first_id + 1] into rows[] */
	uint16_t   *rows;			/* of the lists, one after another */
	uint8_t    *bitmaps;		/* 64-byte aligned; bit r % 8 of byte r / 8:
								 * row r */
	uint32_t   *row_len;		/* lengths of rows 0, 64, 128 .., then maxlen
								 * up to the end of the last line and once
								 * more */
	size_t		bytes;			/* of all this */
} cpu_lists;

/* When lists are made, and how */
typedef struct gpuvec_lists_policy
{
	uint32_t	least_rows;		/* smaller segments get none, */
	uint64_t	least_ids;		/* nor those whose ids take less than start[]
								 * may */
	uint32_t	dense;			/* ids in more than 1/dense of the rows get
								 * bitmaps */
	double		share;			/* most bytes, in those of the ids */
} gpuvec_lists_policy;

/* The policy unless a test has another one */
extern const gpuvec_lists_policy gpuvec_lists_usual;

/* Bytes to be set aside for the lists of this segment; 0: it gets none */
extern size_t lists_budget(const gpuvec_segment *segment, const gpuvec_lists_policy *policy);

/*
 * Make the lists of a segment.  NULL when out of memory, or when *abandon
 * becomes nonzero (read atomically).
 */
extern cpu_lists *lists_build(const gpuvec_segment *segment, const gpuvec_lists_policy *policy,
							  const int *abandon);
extern void lists_free(cpu_lists *lists);

#endif							/* GPUVEC_CPU_LISTS_H */
