/*-------------------------------------------------------------------------
 *
 * embedding_sort.h
 *	  Sort the lookups of bags by row.
 *
 *-------------------------------------------------------------------------
 */
#ifndef GPUVEC_EMBEDDING_SORT_H
#define GPUVEC_EMBEDDING_SORT_H

#include <stddef.h>
#include <stdint.h>
#include <cuda_runtime.h>

/* What is to be sorted, and where it goes */
struct pooling_sort
{
	const void *indices;
	uint32_t	index_bits;
	uint32_t	rows;			/* also the key of missing lookups; below 2^32 - 1 */
	uint32_t	lookups;		/* below 2^31 */

	/* what goes along: positions, or else bags */
	bool		positions;
	uint32_t	hotness;
	uint32_t	bags;
	const int64_t *offsets;		/* NULL: bags of hotness lookups */

	/* two buffers; the results end up in [pooling_sort_result()] */
	uint32_t   *keys[2];
	uint32_t   *values[2];
};

extern size_t pooling_sort_workspace(uint32_t rows, uint32_t lookups);
extern int	pooling_sort_result(uint32_t rows);
extern cudaError_t pooling_sort(const struct pooling_sort *sort, void *work, cudaStream_t stream);

#endif							/* GPUVEC_EMBEDDING_SORT_H */
