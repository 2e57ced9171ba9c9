/*-------------------------------------------------------------------------
 *
 * sort.h
 *	  Sorts the lookups of bags by row.
 *
 *-------------------------------------------------------------------------
 */
#ifndef GPUVEC_SORT_H
#define GPUVEC_SORT_H

#include "kernels/embedding/pooling_kernels.h"

namespace gpuvec
{

/* The input and output of a sort */
struct pooling_sort
{
	/* fewer than 2^31 lookups; for concat, bags of one lookup */
	struct pooling_bags bags;
	uint32_t rows; /* below 2^32 - 1; also the key of missing lookups */
	/* the values that go along are positions of lookups; otherwise bags */
	bool positions;

	/* two buffers each; the results are in [pooling_sort_result()] */
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
