/*-------------------------------------------------------------------------
 *
 * pool_simd.h
 *	  Inner loops of pooling and nearest rows, compiled for several
 *	  instruction sets.
 *
 *-------------------------------------------------------------------------
 */
#ifndef GPUVEC_POOL_SIMD_H
#define GPUVEC_POOL_SIMD_H

#include "core/nearest.h"
#include "core/pooling_grad.h"
#include "engine/instruction_sets.h"

/* Instruction sets, best last; each is that of one file pool_*.c */
typedef enum gpuvec_embedding_simd
{
	GPUVEC_EMBEDDING_PORTABLE,
	GPUVEC_EMBEDDING_AVX2,
	GPUVEC_EMBEDDING_AVX512
} gpuvec_embedding_simd;

/* The best instruction set of this machine */
extern gpuvec_embedding_simd gpuvec_embedding_best_simd(void);

/*
 * gpuvec_pool_bag, gpuvec_sum_shares and gpuvec_near_scores, compiled for
 * each instruction set
 */
typedef uint64_t gpuvec_pool_bag_function (float *out, const gpuvec_bag *bag);
typedef void gpuvec_sum_shares_function (float *out, const gpuvec_share *shares, uint64_t n,
										 const gpuvec_upstream *up, float *scratch);
extern gpuvec_sum_shares_function gpuvec_sum_shares_portable;
extern gpuvec_sum_shares_function gpuvec_sum_shares_avx2;
extern gpuvec_sum_shares_function gpuvec_sum_shares_avx512;
extern gpuvec_pool_bag_function gpuvec_pool_bag_portable;
extern gpuvec_pool_bag_function gpuvec_pool_bag_avx2;
extern gpuvec_pool_bag_function gpuvec_pool_bag_avx512;

typedef void gpuvec_near_scores_function (double *scores, gpuvec_metric metric, const float *q,
										  double qq, const void *vectors, uint64_t n,
										  uint32_t width, gpuvec_storage storage,
										  float *scratch);
extern gpuvec_near_scores_function gpuvec_near_scores_portable;
extern gpuvec_near_scores_function gpuvec_near_scores_avx2;
extern gpuvec_near_scores_function gpuvec_near_scores_avx512;

/* The variants for this machine's best instruction set */
extern gpuvec_pool_bag_function *gpuvec_best_pool_bag(void);
extern gpuvec_sum_shares_function *gpuvec_best_sum_shares(void);
extern gpuvec_near_scores_function *gpuvec_best_near_scores(void);

#endif							/* GPUVEC_POOL_SIMD_H */
