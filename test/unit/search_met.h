/*-------------------------------------------------------------------------
 *
 * search_met.h
 *	  What the searches of a test of the CUDA backend have done in all: a
 *	  random test that never comes to a mode proves nothing about it.
 *
 *-------------------------------------------------------------------------
 */
#ifndef GPUVEC_SEARCH_MET_H
#define GPUVEC_SEARCH_MET_H

#include <string.h>

#include "kernels/search/search_policy.h"

/* Add what the last search did to what all have done */
static inline void
add_search(struct gpuvec_search_stats *met, gpuvec_backend *backend)
{
	struct gpuvec_search_stats last = gpuvec_search_last(backend);
	uint32_t	sums[sizeof(last) / sizeof(uint32_t)];
	uint32_t	more[sizeof(last) / sizeof(uint32_t)];

	memcpy(sums, met, sizeof(sums));
	memcpy(more, &last, sizeof(more));
	for (size_t i = 0; i < sizeof(sums) / sizeof(sums[0]); i++)
		sums[i] += more[i];
	memcpy(met, sums, sizeof(sums));
}

#endif							/* GPUVEC_SEARCH_MET_H */
