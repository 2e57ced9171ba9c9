/*-------------------------------------------------------------------------
 *
 * search_tuning.h
 *	  The numbers that decide how a GPU is searched, by its architecture.
 *
 *-------------------------------------------------------------------------
 */
#ifndef GPUVEC_SEARCH_TUNING_H
#define GPUVEC_SEARCH_TUNING_H

#include "kernels/search/search_policy.h"

namespace gpuvec
{

/* A row of the table of search_tuning.cu */
struct search_tuning
{
	int capability; /* compute capability * 10 */

	/*
	 * The tensor cores multiply bits as bit_product.cuh has it.  The
	 * instruction is of one capability alone, not of later ones.
	 */
	bool multiplies_bits;

	/*
	 * Of the device's memory: its fraction for the scratch memory of a search,
	 * the most bytes of that, and the fraction of these for masks that are
	 * kept
	 */
	uint32_t workspace_fraction;
	size_t most_workspace;
	uint32_t kept_fraction;

	/* all but workspace and kept_bytes, which depend on the memory */
	struct gpuvec_search_policy policy;
};

/* The row of a device; it stays */
extern const struct search_tuning &
search_tuning_of(int capability);

} // namespace gpuvec

#endif /* GPUVEC_SEARCH_TUNING_H */
