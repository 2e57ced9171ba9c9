/*-------------------------------------------------------------------------
 *
 * lists_search.h
 *	  What the files of the search by inverted lists share.
 *
 * lists_search.c		which lists and bitmaps a query reads; counting lists
 * lists_search.inc		summing, comparing and selecting, compiled for each
 *						instruction set by lists_search_*.c
 *
 *-------------------------------------------------------------------------
 */
#ifndef GPUVEC_CPU_LISTS_SEARCH_H
#define GPUVEC_CPU_LISTS_SEARCH_H

#include "engine/cpu/cpu_backend.h"
#include "engine/cpu/lists.h"
#include "engine/instruction_sets.h"

/* The list of an id */
typedef struct id_list
{
	const uint16_t *rows;
	uint32_t	n;
} id_list;

/* A row that may be among the best */
typedef struct taken_row
{
	uint32_t	row;
	uint32_t	common;
} taken_row;

/*
 * Rows are collected while their len and tid are prefetched; from LISTS_TAKE
 * rows on, they are offered
 */
#define LISTS_TAKE			32
#define LISTS_TAKE_ROOM		(LISTS_TAKE + LISTS_LINE_ROWS)

/*
 * A query in one segment: the lists that it reads, and the rows that it found
 */
typedef struct lists_task
{
	const gpuvec_view_entry *entry;
	const cpu_lists *lists_of;	/* the entry's segment */
	best_rows  *best;			/* the best rows of the query */
	const uint64_t *mask;		/* rows that take part; NULL: all live ones */
	uint32_t	nlists;
	uint32_t	nbitmaps;
	id_list    *lists;			/* [scratch->room] */
	const uint8_t **bitmaps;	/* [scratch->room] */

	uint32_t	tied_len;		/* later rows of this length are not wanted .. */
	uint32_t	tied_common;	/* .. if they have at most this many common
								 * ids */
	uint32_t	ntaken;
	taken_row	taken[LISTS_TAKE_ROOM];
} lists_task;

/* For each row of a segment, the number of lists that contain it */
typedef struct lists_counters
{
	uint8_t    *low;			/* [GPUVEC_SEGMENT_ROWS] */
	uint8_t    *high;			/* [GPUVEC_SEGMENT_ROWS] upper bytes of the
								 * counts; NULL if all are 0 */
} lists_counters;

/* Memory of one thread, reused from search to search */
typedef struct lists_scratch
{
	uint32_t	capacity;		/* ids of the longest query */
	lists_counters counters;
	uint8_t    *wide;			/* [2 * GPUVEC_SEGMENT_ROWS], or NULL */
	lists_task	tasks[2];		/* the current task and the next one */
} lists_scratch;

/*
 * Finds the best rows of a task's segment; the lists have been counted in
 * `counters`
 */
typedef void (*lists_select) (lists_task *task, const lists_counters *counters);

/* lists_search.c */
extern void lists_scratch_free(lists_scratch *scratch);
extern bool lists_search(cpu_slice *slice, lists_scratch *scratch, lists_select select);

extern void lists_offer(lists_task *task);

/* Collect a row, which lists_offer will offer */
static inline void
lists_take(lists_task *task, uint32_t row, uint32_t common)
{
	taken_row  *taken = &task->taken[task->ntaken++];

	taken->row = row;
	taken->common = common;
	__builtin_prefetch(task->entry->segment->len + row);
	__builtin_prefetch(task->entry->segment->tid + row);
}

/* lists_search_*.c */
extern void lists_select_portable(lists_task *task, const lists_counters *counters);
extern void lists_select_avx2(lists_task *task, const lists_counters *counters);
extern void lists_select_avx512(lists_task *task, const lists_counters *counters);

#endif							/* GPUVEC_CPU_LISTS_SEARCH_H */
