/*-------------------------------------------------------------------------
 *
 * compound_list.h
 *	  What compound.c and compound_joint.c, for searches, and compound_make.c,
 *	  a thread, share.
 *
 *-------------------------------------------------------------------------
 */
#ifndef GPUVEC_COMPOUND_LIST_H
#define GPUVEC_COMPOUND_LIST_H

#include <pthread.h>

#include "core/clock.h"
#include "engine/fault.h"
#include "engine/sets/compound.h"
#include "engine/sets/draft.h"

/* Nanoseconds */
#define GPUVEC_SECOND			UINT64_C(1000000000)

/* Time before the next attempt to make a compound, if there was no memory */
#define GPUVEC_COMPOUND_RETRY	(60 * GPUVEC_SECOND)

/* What is known of a partition, and which rows of it a compound has */
typedef struct gpuvec_partition_copy
{
	gpuvec_mirror_key key;
	uint64_t	seen;			/* number of the view that was seen last, ... */
	uint64_t	since;			/* ... when that was seen first, ... */
	uint32_t	searches;		/* ... by how many searches, ... */
	bool		small;			/* ... and what it has */
	uint32_t	entries;
	uint64_t	rows;
	uint64_t	blocks;
	uint32_t	missed;			/* searches in a row without the partition */
	uint64_t	copied;			/* number of the view whose rows are in the
								 * compound; 0: no row of the partition is */
	bool		coming;			/* rows of it are being copied, or will be */
	uint64_t	joined;			/* number of the view that the joint view was
								 * made of; 0: it has no rows of it */
} gpuvec_partition_copy;

/* A joint view that is kept (compound_joint.c) */
typedef struct gpuvec_joint
{
	gpuvec_view *view;			/* with a reference; or NULL, as it always is
								 * while there is an old one */
	gpuvec_view *old;			/* one that is to be freed, or NULL */
	uint64_t	rows;			/* number of the view of the compound's rows
								 * that it has; 0: none of them */
} gpuvec_joint;

typedef struct gpuvec_compound
{
	struct gpuvec_compound *next;
	gpuvec_device *device;
	uint32_t	npartitions;
	gpuvec_compound_rows rows;
	size_t		charged;		/* for them, by the device */
	uint64_t	nrows;			/* when they were made */
	gpuvec_compound_rows dropped;	/* rows that are to be freed */
	gpuvec_joint joint;
	gpuvec_compound_rows *sources;	/* [npartitions] what it is to be made of,
									 * with references; NULL: none is wanted */
	bool		making;			/* by a thread, which has the sources */
	int			stop;			/* atomic: what is being made is useless */
	bool		gone;			/* it is not in the list any more */
	uint32_t	failures;		/* to make it, since it was made last */
	uint64_t	last_use;		/* all times are nanoseconds of the clock */
	uint64_t	not_before;		/* when it may be made */
	gpuvec_partition_copy partitions[];
} gpuvec_compound;

/*
 * Who publishes a view takes joint_mutex alone, for it holds the store's mutex
 * and must not wait for what takes some time.  It comes after the other.
 */
struct gpuvec_compounds
{
	pthread_mutex_t mutex;		/* guards all below but the pool, and ... */
	pthread_mutex_t joint_mutex;	/* ... so does this, if they have to do
									 * with joint views, and all changes of
									 * the list */
	pthread_cond_t work;		/* a compound is wanted, or dead */
	gpuvec_compound *list;
	gpuvec_compound *dead;		/* to be freed; not charged any more */
	gpuvec_thread_pool *pool;	/* of one thread, which makes compounds */
};

/* Rows that are not needed any more, and what they were charged */
typedef struct gpuvec_leftover
{
	gpuvec_compound_rows rows;
	gpuvec_view *joint;
	gpuvec_device *device;
	size_t		charged;
} gpuvec_leftover;

/* Free a compound that is not in the list; takes some time */
extern void gpuvec_compound_free(gpuvec_compound *c);

/* Give up a compound's rows; the caller holds the mutex */
extern gpuvec_leftover gpuvec_compound_take_rows(gpuvec_compounds *all, gpuvec_compound *c);

/*
 * compound_joint.c; the caller holds the mutex.  listed: the compound of these
 * partitions, or NULL.  get: a joint view, with a reference, if that has just
 * these rows, which may be NULL, and partitions.  take: it is not kept any
 * more; take_old: nor has it to be freed.  The caller drops the reference of
 * these, but not while it holds the mutex.  leave: the thread is to do so.
 */
extern gpuvec_compound *gpuvec_compound_listed(gpuvec_compounds *all, const gpuvec_device *device,
											   const gpuvec_compound_partition *partitions, uint32_t n);
extern gpuvec_view *gpuvec_joint_get(gpuvec_compounds *all, const gpuvec_compound *c,
									 const gpuvec_compound_partition *partitions, const bool *covered,
									 const gpuvec_view *rows);
extern gpuvec_view *gpuvec_joint_take(gpuvec_compounds *all, gpuvec_compound *c);
extern gpuvec_view *gpuvec_joint_take_old(gpuvec_compounds *all, gpuvec_compound *c);
extern void gpuvec_joint_leave(gpuvec_compounds *all, gpuvec_compound *c, gpuvec_view *joint);

/* Free what is not needed, and its charge; the caller holds no mutex */
extern void gpuvec_compound_free_leftover(gpuvec_store *store, const gpuvec_leftover *gone);

/* True if what is being made of a compound will not be used */
static inline bool
gpuvec_compound_useless(const gpuvec_compound *c)
{
	return __atomic_load_n(&c->stop, __ATOMIC_RELAXED) != 0;
}

/* Bits that the numbers of a compound's partitions take */
static inline uint32_t
gpuvec_compound_bits(const gpuvec_compound *c)
{
	uint32_t	bits = 0;

	while (UINT32_C(1) << bits < c->npartitions)
		bits++;
	return bits;
}

/* The blocks of a view: one more than its last one */
static inline uint64_t
gpuvec_compound_blocks(const gpuvec_view *view)
{
	uint64_t	last = 0;

	for (uint32_t i = 0; i < view->nentries; i++)
		if (view->entries[i].segment->last_tid > last)
			last = view->entries[i].segment->last_tid;
	return (uint64_t) gpuvec_tid_block(last) + 1;
}

#endif							/* GPUVEC_COMPOUND_LIST_H */
