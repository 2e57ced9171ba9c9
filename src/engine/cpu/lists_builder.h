/*-------------------------------------------------------------------------
 *
 * lists_builder.h
 *	  Inverted lists are made in the background.
 *
 *-------------------------------------------------------------------------
 */
#ifndef GPUVEC_CPU_LISTS_BUILDER_H
#define GPUVEC_CPU_LISTS_BUILDER_H

#include "engine/cpu/lists.h"

typedef struct lists_builder lists_builder;

typedef enum cpu_segment_state
{
	CPU_SEGMENT_WAITING,		/* in the queue */
	CPU_SEGMENT_BUILDING,
	CPU_SEGMENT_DONE			/* or given up for lack of memory */
} cpu_segment_state;

/* What the CPU backend keeps of a segment that gets lists: segment->device */
typedef struct cpu_segment
{
	gpuvec_segment *segment;
	cpu_lists  *lists;			/* atomic; NULL until they are made */

	/* the builder's own */
	cpu_segment_state state;
	int			abandon;		/* atomic */
	size_t		reserved;		/* bytes counted for lists that are not made */
	struct cpu_segment *prev;
	struct cpu_segment *next;
} cpu_segment;

extern lists_builder *lists_builder_new(int pool_threads, const gpuvec_lists_policy *policy);
extern void lists_builder_free(lists_builder *builder);

/*
 * Have lists made for a segment, and count their memory.  NULL: out of
 * memory.
 */
extern cpu_segment *lists_builder_add(lists_builder *builder, gpuvec_segment *segment);

/* Make a segment's lists now, or wait until they are made */
extern void lists_builder_require(lists_builder *builder, cpu_segment *mine);

/* Forget a segment and its lists */
extern void lists_builder_remove(lists_builder *builder, cpu_segment *mine);

/* The lists of a segment, or NULL if there are none (yet) */
static inline const cpu_lists *
segment_lists(const gpuvec_segment *segment)
{
	const cpu_segment *mine = segment->device;

	return mine ? __atomic_load_n(&mine->lists, __ATOMIC_ACQUIRE) : NULL;
}

#endif							/* GPUVEC_CPU_LISTS_BUILDER_H */
