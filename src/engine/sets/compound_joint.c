/*-------------------------------------------------------------------------
 *
 * compound_joint.c
 *	  Views of several mirrors that are kept with a compound.
 *
 * A search of partitions reads a joint view: the segments of the compound, if
 * there is one, and those of all partitions that it does not cover.  It copies
 * no rows.  But a GPU has to be told of the segments, and searches run as one
 * batch only if they read the same view.  So it is kept for the next search of
 * the same partitions, with the numbers of the views that it was made of.
 *
 * A joint view keeps the segments that it has from being freed, which nobody
 * is charged for then.  So it goes as soon as the view of one of its mirrors
 * is replaced, or its compound changes.
 *
 * A view may be replaced while a search makes a joint one of it.  The search
 * marks the view as joined, then looks whether it was replaced.  Who replaces
 * it marks it as replaced, then looks whether it was joined.  So at least one
 * of them sees what the other did.
 *
 *-------------------------------------------------------------------------
 */
#include <string.h>

#include "engine/sets/compound_list.h"

static bool
same_partitions(const gpuvec_compound *c, const gpuvec_device *device, const gpuvec_compound_partition *partitions,
				uint32_t n)
{
	if (c->device != device || c->npartitions != n)
		return false;
	for (uint32_t i = 0; i < n; i++)
		if (memcmp(&c->partitions[i].key, partitions[i].key, sizeof(gpuvec_mirror_key)) != 0)
			return false;
	return true;
}

gpuvec_compound *
gpuvec_compound_listed(gpuvec_compounds *all, const gpuvec_device *device, const gpuvec_compound_partition *partitions,
					   uint32_t n)
{
	gpuvec_compound *c = all->list;

	while (c && !same_partitions(c, device, partitions, n))
		c = c->next;
	return c;
}

/* The number of the view that a partition adds to a joint view, or 0 */
static uint64_t
joined_number(const gpuvec_compound_partition *partition, bool covered)
{
	return partition->view && !covered ? partition->view->number : 0;
}

/* True if a joint view has just these rows and partitions */
static bool
joint_fits(const gpuvec_compound *c, const gpuvec_compound_partition *partitions, const bool *covered,
		   const gpuvec_view *rows)
{
	const gpuvec_joint *joint = &c->joint;

	if (joint->view == NULL || joint->rows != (rows ? rows->number : 0))
		return false;
	for (uint32_t i = 0; i < c->npartitions; i++)
		if (c->partitions[i].joined != joined_number(&partitions[i], covered[i]))
			return false;
	return true;
}

gpuvec_view *
gpuvec_joint_get(gpuvec_compounds *all, const gpuvec_compound *c, const gpuvec_compound_partition *partitions,
				 const bool *covered, const gpuvec_view *rows)
{
	gpuvec_view *view = NULL;

	pthread_mutex_lock(&all->joint_mutex);
	if (joint_fits(c, partitions, covered, rows))
		view = gpuvec_view_ref(c->joint.view);
	pthread_mutex_unlock(&all->joint_mutex);
	return view;
}

/* Take what *slot has; NULL is left there */
static gpuvec_view *
take(gpuvec_compounds *all, gpuvec_view **slot)
{
	gpuvec_view *view;

	pthread_mutex_lock(&all->joint_mutex);
	view = *slot;
	*slot = NULL;
	pthread_mutex_unlock(&all->joint_mutex);
	return view;
}

gpuvec_view *
gpuvec_joint_take(gpuvec_compounds *all, gpuvec_compound *c)
{
	return take(all, &c->joint.view);
}

gpuvec_view *
gpuvec_joint_take_old(gpuvec_compounds *all, gpuvec_compound *c)
{
	return take(all, &c->joint.old);
}

void
gpuvec_joint_leave(gpuvec_compounds *all, gpuvec_compound *c, gpuvec_view *joint)
{
	if (joint == NULL)
		return;
	pthread_mutex_lock(&all->joint_mutex);
	c->joint.old = joint;
	pthread_mutex_unlock(&all->joint_mutex);
}

/* Mark the views of a joint one; false: some were replaced meanwhile */
static bool
mark_joined(const gpuvec_compound_partition *partitions, const bool *covered, uint32_t n)
{
	for (uint32_t i = 0; i < n; i++)
	{
		gpuvec_view *view = partitions[i].view;

		if (view == NULL || covered[i])
			continue;
		__atomic_store_n(&view->joined, true, __ATOMIC_SEQ_CST);
		if (__atomic_load_n(&view->replaced, __ATOMIC_SEQ_CST))
			return false;
	}
	return true;
}

/* Put a joint view in the place of another; *old are those that were there */
static void
replace(gpuvec_compound *c, const gpuvec_compound_partition *partitions, const bool *covered,
		const gpuvec_view *rows, gpuvec_view *joint, gpuvec_joint *old)
{
	*old = c->joint;
	c->joint.view = gpuvec_view_ref(joint);
	c->joint.old = NULL;
	c->joint.rows = rows ? rows->number : 0;
	for (uint32_t i = 0; i < c->npartitions; i++)
		c->partitions[i].joined = joined_number(&partitions[i], covered[i]);
}

void
gpuvec_joint_keep(gpuvec_store *store, const gpuvec_device *device, const gpuvec_compound_partition *partitions,
				  uint32_t n, const bool *covered, const gpuvec_view *rows, gpuvec_view *joint)
{
	gpuvec_compounds *all = store->compounds;
	gpuvec_joint old = {NULL, NULL, 0};
	gpuvec_compound *c;

	pthread_mutex_lock(&all->mutex);
	pthread_mutex_lock(&all->joint_mutex);
	c = gpuvec_compound_listed(all, device, partitions, n);
	if (c && (rows == NULL || rows == c->rows.view) && mark_joined(partitions, covered, n))
		replace(c, partitions, covered, rows, joint, &old);
	pthread_mutex_unlock(&all->joint_mutex);
	pthread_mutex_unlock(&all->mutex);
	gpuvec_view_unref(old.view);
	gpuvec_view_unref(old.old);
}

/* True if a joint view has the entries of this view */
static bool
has_view(const gpuvec_compound *c, const gpuvec_view *view)
{
	for (uint32_t i = 0; c->joint.view && i < c->npartitions; i++)
		if (c->partitions[i].joined == view->number)
			return true;
	return false;
}

void
gpuvec_joints_forget(gpuvec_store *store, gpuvec_view *view)
{
	gpuvec_compounds *all = store->compounds;

	__atomic_store_n(&view->replaced, true, __ATOMIC_SEQ_CST);
	if (all == NULL || !__atomic_load_n(&view->joined, __ATOMIC_SEQ_CST))
		return;
	pthread_mutex_lock(&all->joint_mutex);
	for (gpuvec_compound *c = all->list; c; c = c->next)
		if (has_view(c, view))
		{
			c->joint.old = c->joint.view;
			c->joint.view = NULL;
		}
	pthread_mutex_unlock(&all->joint_mutex);
	/* if the thread does not hear that, the next search frees them */
	pthread_cond_signal(&all->work);
}
