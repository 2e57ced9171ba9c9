/*-------------------------------------------------------------------------
 *
 * instruction_sets.h
 *	  Variants of inner loops for the instruction sets of x86-64.
 *
 * For x86-64, loops are compiled for AVX2 and for AVX-512 as well, and the
 * processor is asked at run time.  For other processors there are only the
 * portable ones, and no processor has the other sets: names of variants stand
 * for the portable ones there, so that tables of them need no conditions.
 *
 *-------------------------------------------------------------------------
 */
#ifndef GPUVEC_INSTRUCTION_SETS_H
#define GPUVEC_INSTRUCTION_SETS_H

#ifdef __x86_64__
/* True if this processor has the instructions of this name, a literal */
#define gpuvec_processor_has(name) __builtin_cpu_supports(name)
#else
#define gpuvec_processor_has(name) 0

#define bit_pairs_avx2 bit_pairs_portable
#define bit_pairs_avx512 bit_pairs_portable
#define gpuvec_als_math_avx2 gpuvec_als_math_portable
#define gpuvec_als_math_avx512 gpuvec_als_math_portable
#define gpuvec_exact_prepare_avx2 gpuvec_exact_prepare_portable
#define gpuvec_exact_prepare_avx512 gpuvec_exact_prepare_portable
#define gpuvec_near_scores_avx2 gpuvec_near_scores_portable
#define gpuvec_near_scores_avx512 gpuvec_near_scores_portable
#define gpuvec_pool_bag_avx2 gpuvec_pool_bag_portable
#define gpuvec_pool_bag_avx512 gpuvec_pool_bag_portable
#define gpuvec_sum_shares_avx2 gpuvec_sum_shares_portable
#define gpuvec_sum_shares_avx512 gpuvec_sum_shares_portable
#define lists_select_avx2 lists_select_portable
#define lists_select_avx512 lists_select_portable
#define mask_by_ranges_avx2 mask_by_ranges_portable
#define mask_by_ranges_avx512 mask_by_ranges_portable
#define mask_count_avx2 mask_count_portable
#define mask_count_avx512 mask_count_portable
#define scan_batch_avx2 scan_batch_portable
#define scan_batch_avx512 scan_batch_portable
#define scan_lone_avx512 scan_lone_portable
#define sparse_sums_avx2 sparse_sums_portable
#define sparse_sums_avx512 sparse_sums_portable
#endif

#endif							/* GPUVEC_INSTRUCTION_SETS_H */
