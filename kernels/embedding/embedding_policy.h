/*-------------------------------------------------------------------------
 *
 * embedding_policy.h
 *	  The numbers that decide how requests of embedding tables are served.
 *
 *-------------------------------------------------------------------------
 */
#ifndef GPUVEC_EMBEDDING_POLICY_H
#define GPUVEC_EMBEDDING_POLICY_H

#include "kernels/embedding/pooling_kernels.h"

namespace gpuvec
{

/*
 * No result depends on them; tests set smaller ones.  embedding_tuning.cu has
 * those of each architecture.
 */
struct embedding_policy
{
	struct pooling_policy pooling;
	/* of a stream, for each direction; at least the bytes of a vector */
	size_t pinned_bytes;
	size_t record_bytes; /* new vectors that are sent together */

	/* limits of a chunk of a request; a single bag may have more slots */
	uint64_t chunk_slots;
	uint64_t chunk_bags;

	/*
	 * Room for candidates: of a query, beyond the best k; and bytes for all
	 * queries of a batch
	 */
	uint32_t more_candidates;
	size_t candidate_bytes;

	/* Number of float32 that pinned memory holds */
	uint64_t
	pinned_floats() const
	{
		return pinned_bytes / sizeof(float);
	}
};

/* The numbers of a device, by its compute capability * 10 */
extern struct embedding_policy
embedding_policy_of(int capability);

} // namespace gpuvec

#endif /* GPUVEC_EMBEDDING_POLICY_H */
