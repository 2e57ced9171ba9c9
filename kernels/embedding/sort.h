/*-------------------------------------------------------------------------
 *
 * sort.h
 *	  Sort the lookups of bags by row.
 *
 *-------------------------------------------------------------------------
 */
#ifndef GPUVEC_SORT_H
#define GPUVEC_SORT_H

#include "kernels/embedding/pooling_kernels.h"

namespace gpuvec
{

/* What is to be sorted, and where it goes */
struct pooling_sort
{
	struct pooling_bags bags; /* lookups below 2^31; for concat as bags of one lookup */
	uint32_t rows;            /* also the key of missing lookups; below 2^32 - 1 */
	bool positions;           /* what goes along: positions, or else bags */

	/* two buffers; the results end up in [pooling_sort_result()] */
	uint32_t *keys[2];
	uint32_t *values[2];
};

extern size_t
pooling_sort_workspace(uint32_t rows, uint32_t lookups);
extern int
pooling_sort_result(uint32_t rows);
extern cudaError_t
pooling_sort(const struct pooling_policy &policy, const struct pooling_sort *sort, void *work,
			 cudaStream_t stream);

} // namespace gpuvec

#endif /* GPUVEC_SORT_H */
