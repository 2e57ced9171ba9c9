/*-------------------------------------------------------------------------
 *
 * stage_layout.h
 *	  How a stage keeps its rows, for the files that read and write them:
 *	  stage.c, which says why, and stage_slices.c.
 *
 *-------------------------------------------------------------------------
 */
#ifndef GPUVEC_STAGE_LAYOUT_H
#define GPUVEC_STAGE_LAYOUT_H

#include <string.h>

#include "engine/sets/stage.h"

/*
 * Each length below OWN_CLASSES has a class; from there on, each octave of
 * lengths is divided into 16 classes
 */
#define OWN_CLASSES		256
#define NCLASSES		(OWN_CLASSES + 8 * 16 + 1)

/*
 * The class of the first rows, used up to FIRST_ROWS rows; FIRST_CAPACITY is
 * the initial size of their array
 */
#define FIRST_CLASS		NCLASSES
#define FIRST_ROWS		4096
#define FIRST_CAPACITY		1024

/* GROUP classes share blocks, from which chunks are cut */
#define GROUP			8
#define NGROUPS			(NCLASSES / GROUP + 1)

/* Bytes of a row in a segment, besides its chunks of ids */
#define ROW_BYTES		14

/* Bytes of a cold number, and of a row that has some, besides these */
#define COLD_BYTES		4
#define COLD_ROW_BYTES	4

/* Header of a staged row; its ids and values follow */
typedef struct staged_row
{
	uint32_t	block;
	uint32_t	line_len;		/* line << 17 | number of ids, and STAGED_COLD */
} staged_row;

/* The row has cold ids; lines are below 2^12 */
#define STAGED_COLD	(UINT32_C(1) << 31)

#define LEN_BITS	17
#define LEN_MASK	((UINT32_C(1) << LEN_BITS) - 1)

/* A block of GPUVEC_HUGE_PAGE bytes, from which chunks are cut */
typedef struct stage_block
{
	char	   *memory;
	int			group;
	size_t		used;			/* bytes that were cut */
	size_t		nchunks;		/* atomic: chunks that are in use */
} stage_block;

typedef struct stage_chunk
{
	struct stage_chunk *next;
	stage_block *block;			/* block that contains the chunk; NULL:
								 * allocated on its own */
	size_t		size;			/* bytes of data */
	size_t		used;
	uint64_t	nrows;			/* atomic while segments are built: those that
								 * are needed */
	uint64_t	begins_run;		/* not 0: rows of another stage begin, as the
								 * class has several runs, each in order */
	char		data[];
} stage_chunk;

/* Rows of one length, or of a range of lengths */
typedef struct row_class
{
	stage_chunk *first;
	stage_chunk *last;
	uint64_t	nrows;
	uint64_t	last_tid;
	bool		unsorted;		/* rows of a run did not come in the order of
								 * tid */
	uint32_t	more_runs;		/* runs behind the first one (stage_runs.c) */
} row_class;

struct gpuvec_stage
{
	gpuvec_row_kind kind;
	uint64_t	nrows;
	uint64_t	ncold;			/* cold ids of all rows */
	size_t		bytes;			/* atomic while segments are built */
	size_t		estimate;
	uint64_t	lent;			/* first rows whose ids were not copied */
	bool		spread;			/* the first rows were moved to the other
								 * classes */
	gpuvec_source_row *first;	/* [first_capacity] the first rows; copies of
								 * their ids are in FIRST_CLASS */
	uint64_t	first_capacity;
	row_class	classes[NCLASSES + 1];
	stage_block *open[NGROUPS]; /* block from which the group's next chunk is
								 * cut */
	size_t		own[NGROUPS];	/* bytes of the group's chunks with memory of
								 * their own */
};

/*
 * Free a list of chunks.  Threads may do so beside one another once no chunk
 * is added any more, and stage->open is empty.
 */
extern void gpuvec_stage_free_chunks(gpuvec_stage *stage, stage_chunk *c);

/* Move the first rows to the classes of their lengths */
extern bool gpuvec_stage_spread(gpuvec_stage *stage, gpuvec_error *error);

/* Bytes of a staged row, without its filter keys */
static inline size_t
staged_bytes(uint32_t len, uint32_t ncold, bool values)
{
	return sizeof(staged_row) + (ncold > 0 ? sizeof(ncold) : 0) + gpuvec_packed_bytes(len, ncold) +
		(values ? gpuvec_values_bytes(len) : 0);
}

/* Copy a row's filter keys; returns their bytes */
static inline size_t
copy_filter_keys(void *to, const gpuvec_source_row *from, uint32_t nfilters)
{
	if (nfilters > 0)
		memcpy(to, from->filter_keys, gpuvec_filter_bytes(nfilters));
	return gpuvec_filter_bytes(nfilters);
}

/*
 * Copy a row's ids and values.  The ids of a narrow row without values need
 * not be padded, so no padding is read.
 */
static inline void
copy_ids(void *to, const gpuvec_source_row *from, bool values)
{
	if (values)
		memcpy(to, from->ids, gpuvec_packed_bytes(from->len, from->ncold) + gpuvec_values_bytes(from->len));
	else if (from->ncold > 0)
		memcpy(to, from->ids, gpuvec_packed_bytes(from->len, from->ncold));
	else if (from->len > 0)
		memcpy(to, from->ids, from->len * sizeof(uint16_t));
}

/* Write a row down; returns its bytes, staged_bytes() */
static inline size_t
write_row(staged_row *row, const gpuvec_source_row *from, gpuvec_row_kind kind)
{
	size_t		bytes = staged_bytes(from->len, from->ncold, kind.values);

	row->block = gpuvec_tid_block(from->tid);
	row->line_len = (uint32_t) gpuvec_tid_line(from->tid) << LEN_BITS | from->len;
	if (from->ncold > 0)
	{
		row->line_len |= STAGED_COLD;
		*(uint32_t *) (row + 1) = from->ncold;
		copy_ids((uint32_t *) (row + 1) + 1, from, kind.values);
	}
	else
		copy_ids(row + 1, from, kind.values);
	return bytes + copy_filter_keys((char *) row + bytes, from, kind.nfilters);
}

/* Read a staged row; returns its bytes */
static inline size_t
read_row(const char *from, gpuvec_source_row *row, gpuvec_row_kind kind)
{
	const staged_row *staged = (const staged_row *) from;
	size_t		bytes;

	row->len = staged->line_len & LEN_MASK;
	row->ncold = 0;
	row->tid = gpuvec_tid(staged->block, (staged->line_len & ~STAGED_COLD) >> LEN_BITS);
	row->ids = (const uint16_t *) (staged + 1);
	if (staged->line_len & STAGED_COLD)
	{
		row->ncold = *(const uint32_t *) (staged + 1);
		row->ids += sizeof(row->ncold) / sizeof(uint16_t);
	}
	bytes = staged_bytes(row->len, row->ncold, kind.values);
	row->filter_keys = kind.nfilters > 0 ? from + bytes : NULL;
	return bytes + gpuvec_filter_bytes(kind.nfilters);
}

/* Bytes that a row takes in a segment; of filter columns the most */
static inline size_t
segment_bytes(const gpuvec_source_row *row, gpuvec_row_kind kind)
{
	uint32_t	hot = row->len - row->ncold;
	uint32_t	places = (hot + GPUVEC_CHUNK_IDS - 1) / GPUVEC_CHUNK_IDS * GPUVEC_CHUNK_IDS;
	size_t		bytes = ROW_BYTES + kind.nfilters * GPUVEC_FILTER_ROW_BYTES + places * sizeof(uint16_t);

	if (row->ncold > 0)
		bytes += COLD_ROW_BYTES + (size_t) row->ncold * COLD_BYTES;
	if (kind.values)
		bytes += gpuvec_values_bytes(places + row->ncold);
	return bytes;
}

#endif							/* GPUVEC_STAGE_LAYOUT_H */
