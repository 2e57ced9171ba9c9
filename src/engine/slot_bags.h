/*-------------------------------------------------------------------------
 *
 * slot_bags.h
 *	  Reading the bags of a request to a device.
 *
 *-------------------------------------------------------------------------
 */
#ifndef GPUVEC_SLOT_BAGS_H
#define GPUVEC_SLOT_BAGS_H

#include "engine/embedding_backend.h"

/* The bags of a request; for concat each slot is a bag */
static inline gpuvec_slot_bags
gpuvec_plain_bags(const gpuvec_slot_bags *bags)
{
	gpuvec_slot_bags plain = *bags;

	if (bags->mode == GPUVEC_POOL_CONCAT)
	{
		plain.offsets = NULL;
		plain.hotness = 1;
		plain.nbags = bags->nslots;
	}
	return plain;
}

/* The first slot of bag i; of i = nbags, the number of slots */
static inline uint64_t
gpuvec_bag_start(const gpuvec_slot_bags *bags, uint64_t i)
{
	return bags->offsets ? bags->offsets[i] : i * bags->hotness;
}

/* True if the answer is no longer wanted */
static inline bool
gpuvec_bags_canceled(const int *canceled)
{
	return canceled && __atomic_load_n(canceled, __ATOMIC_RELAXED);
}

#endif							/* GPUVEC_SLOT_BAGS_H */
