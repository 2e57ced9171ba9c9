/*-------------------------------------------------------------------------
 *
 * pool_simd.c
 *	  Choose the inner loops of pooling and nearest rows for this machine.
 *
 * Compilers before GCC 11 do not know F16C by name, so cpuid is asked for it.
 * The compiler's answers about AVX2 and AVX-512 include that the operating
 * system saves the wide registers.
 *
 *-------------------------------------------------------------------------
 */
#ifdef __x86_64__
#include <cpuid.h>
#endif

#include "engine/embedding/pool_simd.h"

/*
 * True if the processor has F16C (conversion of half to single precision) and
 * FMA (product and sum rounded once)
 */
static bool
has_f16c_fma(void)
{
#ifdef __x86_64__
	unsigned int eax,
				ebx,
				ecx,
				edx;

	return __get_cpuid(1, &eax, &ebx, &ecx, &edx) != 0 &&
		(ecx & bit_F16C) != 0 && (ecx & bit_FMA) != 0;
#else
	return false;
#endif
}

static gpuvec_embedding_simd
find_best_simd(void)
{
	if (!gpuvec_processor_has("avx2") || !has_f16c_fma())
		return GPUVEC_EMBEDDING_PORTABLE;
	return gpuvec_processor_has("avx512f") ? GPUVEC_EMBEDDING_AVX512 : GPUVEC_EMBEDDING_AVX2;
}

/*
 * The best instruction set; those before it in the enumeration run as well.
 * The processor is asked only once: in a virtual machine that takes tens of
 * microseconds, as long as a small request.
 */
gpuvec_embedding_simd
gpuvec_embedding_best_simd(void)
{
	static int	best = -1;
	int			found = __atomic_load_n(&best, __ATOMIC_RELAXED);

	if (found < 0)
	{
		found = (int) find_best_simd();
		__atomic_store_n(&best, found, __ATOMIC_RELAXED);
	}
	return (gpuvec_embedding_simd) found;
}

/* The choice of the best of three variants of a function */
#define BEST(function) \
	(gpuvec_embedding_best_simd() == GPUVEC_EMBEDDING_AVX512 ? function##_avx512 : \
	 gpuvec_embedding_best_simd() == GPUVEC_EMBEDDING_AVX2 ? function##_avx2 : function##_portable)

gpuvec_pool_bag_function *
gpuvec_best_pool_bag(void)
{
	return BEST(gpuvec_pool_bag);
}

gpuvec_sum_shares_function *
gpuvec_best_sum_shares(void)
{
	return BEST(gpuvec_sum_shares);
}

gpuvec_near_scores_function *
gpuvec_best_near_scores(void)
{
	return BEST(gpuvec_near_scores);
}
