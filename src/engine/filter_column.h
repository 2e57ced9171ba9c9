/*-------------------------------------------------------------------------
 *
 * filter_column.h
 *	  A filter column of a segment.
 *
 * A segment keeps the distinct keys of a filter column, ascending, and for
 * each row a code of 16 bits: the position of its key among them.  A segment
 * has no more rows than there are codes, so that is always possible.  A null
 * has the code behind the last key; where a row is null, there are fewer keys
 * than rows, and the code exists.
 *
 * So a row takes 2 bytes, and a key 8 bytes in each segment that has it: 2.3
 * to 10 bytes a row.  A condition on keys becomes one on codes, by a search
 * among the keys of the segment.  A range of keys is a range of codes, and so
 * are the nulls.  Where a segment has no such key, none of its codes are
 * read.  Codes are read 4 times as fast as keys.
 *
 *-------------------------------------------------------------------------
 */
#ifndef GPUVEC_FILTER_COLUMN_H
#define GPUVEC_FILTER_COLUMN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/filter.h"
#include "engine/engine_error.h"

#ifdef __cplusplus
extern "C"
{
#endif

/* Codes are allocated, and set to 0, up to a multiple of this many rows */
#define GPUVEC_CODE_ROWS	64

#define gpuvec_code_capacity(nrows) \
	(((size_t) (nrows) + GPUVEC_CODE_ROWS - 1) / GPUVEC_CODE_ROWS * GPUVEC_CODE_ROWS)

/* Most bytes of a row in a filter column */
#define GPUVEC_FILTER_ROW_BYTES	10

typedef struct gpuvec_filter_column
{
	uint32_t	nkeys;			/* distinct keys */
	bool		has_nulls;
	uint64_t   *keys;			/* [nkeys] ascending */
	uint16_t   *codes;			/* [gpuvec_code_capacity(nrows)] */
} gpuvec_filter_column;

/* A key and its row */
typedef struct gpuvec_row_key
{
	uint64_t	key;
	uint32_t	row;
	uint32_t	null;			/* 1: the key is 0, and means nothing */
} gpuvec_row_key;

/*
 * Make a column of the keys of nrows rows, in the order of rows.  Changes
 * pairs[], and scratch[], which has as many.
 */
extern bool gpuvec_filter_column_build(gpuvec_filter_column *column, gpuvec_row_key *pairs,
									   gpuvec_row_key *scratch, uint32_t nrows,
									   gpuvec_error *error);

/*
 * Copy a column of nrows rows.  *to is all zero; the caller frees it, even on
 * failure.
 */
extern bool gpuvec_filter_column_copy(gpuvec_filter_column *to, const gpuvec_filter_column *from,
									  uint32_t nrows, gpuvec_error *error);

extern void gpuvec_filter_column_free(gpuvec_filter_column *column);

extern size_t gpuvec_filter_column_bytes(const gpuvec_filter_column *column, uint32_t nrows);

/* The first code whose key is at least `key`; nkeys if there is none */
static inline uint32_t
gpuvec_filter_code(const gpuvec_filter_column *column, uint64_t key)
{
	return gpuvec_first_key(column->keys, column->nkeys, key);
}

#ifdef __cplusplus
}
#endif

#endif							/* GPUVEC_FILTER_COLUMN_H */
