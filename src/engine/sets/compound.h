/*-------------------------------------------------------------------------
 *
 * compound.h
 *	  Rows of small mirrors that are searched together, once more, in
 *	  segments of full size.
 *
 *-------------------------------------------------------------------------
 */
#ifndef GPUVEC_COMPOUND_H
#define GPUVEC_COMPOUND_H

#include "engine/sets/id_numbers.h"
#include "engine/store/store.h"

/* A partition of a search: a mirror, and what of it is to be searched */
typedef struct gpuvec_compound_partition
{
	const gpuvec_mirror_key *key;
	gpuvec_view *view;			/* NULL: the partition is not searched */
	gpuvec_id_numbers *numbers; /* of its ids, or NULL */
} gpuvec_compound_partition;

/* Rows, and the numbers of their ids */
typedef struct gpuvec_compound_rows
{
	gpuvec_view *view;			/* NULL: there are none */
	gpuvec_id_numbers *numbers; /* NULL: ids are their own numbers */
} gpuvec_compound_rows;

/*
 * unlisted and give_way of the kind of sets.  drop: the compounds of a device
 * that have rows of this mirror.  give_way: those that have any rows give
 * them up.
 */
extern size_t gpuvec_compounds_drop(gpuvec_store *store, const gpuvec_device *device,
									const gpuvec_mirror *mirror);
extern size_t gpuvec_compounds_give_way(gpuvec_store *store, const gpuvec_device *device);

/* Start the thread that makes compounds */
extern bool gpuvec_compounds_start(gpuvec_store *store);

/*
 * Note a search of n partitions, which lie on this device.  If there is a
 * compound of them, its rows: the live rows of the views of the partitions
 * that it sets in covered[n], and no others, with the partitions' numbers in
 * their tids.  *joint is a view of these and of the partitions that are not
 * covered, if one was kept, or NULL.  The caller drops the references.
 */
extern gpuvec_compound_rows gpuvec_compound_find(gpuvec_store *store, gpuvec_device *device,
												 const gpuvec_compound_partition *partitions, uint32_t n,
												 bool *covered, gpuvec_view **joint);

/*
 * compound_joint.c.  keep: keep such a view, with a reference of its own, for
 * later searches.  forget: drop those that have entries of this view, which
 * its mirror replaces, or which goes with its mirror.
 */
extern void gpuvec_joint_keep(gpuvec_store *store, const gpuvec_device *device,
							  const gpuvec_compound_partition *partitions, uint32_t n, const bool *covered,
							  const gpuvec_view *rows, gpuvec_view *joint);
extern void gpuvec_joints_forget(gpuvec_store *store, gpuvec_view *view);
extern void gpuvec_compound_rows_unref(const gpuvec_compound_rows *rows);

#endif							/* GPUVEC_COMPOUND_H */
