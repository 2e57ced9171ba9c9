/*-------------------------------------------------------------------------
 *
 * merge_choose.h
 *	  Which segments of a view are merged.
 *
 *-------------------------------------------------------------------------
 */
#ifndef GPUVEC_MERGE_CHOOSE_H
#define GPUVEC_MERGE_CHOOSE_H

#include "engine/sets/draft.h"

/* The two mergers, each with a thread of its own */
typedef enum gpuvec_merge_level
{
	GPUVEC_MERGE_SMALL,
	GPUVEC_MERGE_LARGE,
	GPUVEC_MERGE_LEVELS
} gpuvec_merge_level;

/* What a choice depends on */
typedef struct gpuvec_merge_state
{
	const gpuvec_view *view;
	uint64_t	sorted_rows;	/* rows when all rows were last sorted into
								 * segments */
	int			threads;		/* that share a search by segments, on the CPU */
	uint32_t	most;			/* segments of a merge */
	const gpuvec_draft *busy;	/* what the other merger is merging, or NULL */
} gpuvec_merge_state;

/* A choice: the entries to merge */
typedef struct gpuvec_merge_choice
{
	uint32_t   *entries;		/* [n] numbers of entries of the view */
	uint32_t	n;				/* 0: nothing is due */
	bool		all;			/* all rows are sorted anew */
	bool		fewer;			/* there are too many segments: as few as the
								 * rows fit into are to replace the chosen
								 * ones */
} gpuvec_merge_choice;

/*
 * Choose for a merger.  choice->entries has room for all entries of the view.
 */
extern void gpuvec_merge_choose(gpuvec_merge_level level, const gpuvec_merge_state *state,
								gpuvec_merge_choice *choice);

/*
 * True if a merger should look at the view.  Quicker than choosing, and may
 * be true when nothing is to be merged.
 */
extern bool gpuvec_merge_due(gpuvec_merge_level level, const gpuvec_merge_state *state);

/*
 * True if the mergers do not keep pace: updates should let them work first
 */
extern bool gpuvec_merge_behind(const gpuvec_merge_state *state);

/* True if the draft has an entry of this segment */
extern bool gpuvec_draft_has(const gpuvec_draft *draft, const gpuvec_segment *segment);

#endif							/* GPUVEC_MERGE_CHOOSE_H */
