/*-------------------------------------------------------------------------
 *
 * lists_search.h
 *	  What the parts of the search by inverted lists share.
 *
 * lists_query.c		which lists and bitmaps a query reads; counting lists
 * lists_search.inc		summing, comparing and selecting, compiled for each
 *						instruction set by lists_search_*.c
 *
 *-------------------------------------------------------------------------
 */
#ifndef GPUVEC_CPU_LISTS_SEARCH_H
#define GPUVEC_CPU_LISTS_SEARCH_H

#include "engine/cpu/cpu_backend.h"
#include "engine/cpu/lists.h"

/* The list of an id */
typedef struct id_list
{
	const uint16_t *rows;
	uint32_t	n;
} id_list;

/* What a query reads of a segment */
typedef struct lists_task
{
	const gpuvec_view_entry *entry;
	best_rows  *best;			/* of the query */
	uint32_t	nlists;
	uint32_t	nbitmaps;
	id_list    *lists;			/* [scratch->room] */
	const uint8_t **bitmaps;	/* [scratch->room] */
} lists_task;

/* A thread's own memory */
typedef struct lists_scratch
{
	uint32_t	room;			/* ids of the longest query */
	uint8_t    *low;			/* [GPUVEC_SEGMENT_ROWS] counters of the lists' hits */
	uint8_t    *high;			/* [GPUVEC_SEGMENT_ROWS] their upper bytes, or NULL */
	lists_task	tasks[2];		/* at hand, and next */
} lists_scratch;

/* Scores the rows of a task's segment; low and high (or NULL) hold the lists' hits */
typedef void (*lists_select) (const lists_task *task, const uint8_t *low, const uint8_t *high);

/* lists_search.c */
extern bool lists_scratch_fit(lists_scratch *scratch, uint32_t room, bool wide);
extern void lists_scratch_free(lists_scratch *scratch);
extern bool lists_search(cpu_part *part, lists_scratch *scratch, lists_select select);

extern void lists_select_portable(const lists_task *task, const uint8_t *low, const uint8_t *high);
extern void lists_select_avx2(const lists_task *task, const uint8_t *low, const uint8_t *high);
extern void lists_select_avx512(const lists_task *task, const uint8_t *low, const uint8_t *high);

#endif							/* GPUVEC_CPU_LISTS_SEARCH_H */
