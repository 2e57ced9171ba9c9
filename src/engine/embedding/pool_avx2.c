/*-------------------------------------------------------------------------
 *
 * pool_avx2.c
 *	  Inner loops for processors with AVX2, F16C and FMA.
 *
 *-------------------------------------------------------------------------
 */
#include "engine/embedding/pool_simd.h"

uint64_t
gpuvec_pool_bag_avx2(float *out, const gpuvec_bag *bag)
{
	return gpuvec_pool_bag(out, bag);
}

void
gpuvec_sum_shares_avx2(float *out, const gpuvec_share *shares, uint64_t n,
					   const gpuvec_upstream *up, float *scratch)
{
	gpuvec_sum_shares(out, shares, n, up, scratch);
}

void
gpuvec_near_scores_avx2(double *scores, gpuvec_metric metric, const float *q, double qq,
						const void *vectors, uint64_t n, uint32_t width, gpuvec_storage storage,
						float *scratch)
{
	gpuvec_near_scores(scores, metric, q, qq, vectors, n, width, storage, scratch);
}
