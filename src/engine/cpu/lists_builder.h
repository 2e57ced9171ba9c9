/*-------------------------------------------------------------------------
 *
 * lists_builder.h
 *	  Building inverted lists in the background.
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
	CPU_SEGMENT_DONE			/* built, or given up for lack of memory */
} cpu_segment_state;

/* The CPU backend's state of a segment that gets lists: segment->device */
typedef struct cpu_segment
{
	gpuvec_segment *segment;
	cpu_lists  *lists;			/* atomic; NULL until they are made */

	/* used by the builder only */
	cpu_segment_state state;
	int			abandon;		/* atomic */
	size_t		reserved;		/* bytes of segment->host_bytes reserved for
								 * the lists until they are made */
	struct cpu_segment *prev;
	struct cpu_segment *next;
} cpu_segment;

extern lists_builder *lists_builder_new(int pool_threads, const gpuvec_lists_policy *policy);
extern void lists_builder_free(lists_builder *builder);

/*
 * Queue a segment for building, and add its reserved bytes to host_bytes.
 * NULL if out of memory.
 */
extern cpu_segment *lists_builder_add(lists_builder *builder, gpuvec_segment *segment);

/* Make a segment's lists now, or wait until they are made */
extern void lists_builder_require(lists_builder *builder, cpu_segment *mine);

/* Cancel the building if it is not done, and free the lists */
extern void lists_builder_remove(lists_builder *builder, cpu_segment *mine);

/* The lists of a segment, or NULL if there are none (yet) */
static inline const cpu_lists *
segment_lists(const gpuvec_segment *segment)
{
	const cpu_segment *mine = segment->device;

	return mine ? __atomic_load_n(&mine->lists, __ATOMIC_ACQUIRE) : NULL;
}

#endif							/* GPUVEC_CPU_LISTS_BUILDER_H */
