/*-------------------------------------------------------------------------
 *
 * embed_simd.c
 *	  Which of the inner loops of pooling and of the nearest rows this
 *	  machine can run.
 *
 *	  Compilers before GCC 11 do not know F16C by name, so the processor is
 *	  asked.  That the system keeps the wide registers is part of the answer
 *	  for AVX2 and AVX-512.
 *
 *-------------------------------------------------------------------------
 */
#include <cpuid.h>

#include "engine/embed.h"

/* Can the processor turn half precision into single, and round a product and a sum once? */
static bool
has_f16c_fma(void)
{
	unsigned int eax,
				ebx,
				ecx,
				edx;

	return __get_cpuid(1, &eax, &ebx, &ecx, &edx) != 0 &&
		(ecx & bit_F16C) != 0 && (ecx & bit_FMA) != 0;
}

/* The best instruction set; those before it in the enumeration run as well */
gpuvec_embed_simd
gpuvec_embed_best_simd(void)
{
	if (!__builtin_cpu_supports("avx2") || !has_f16c_fma())
		return GPUVEC_EMBED_PORTABLE;
	return __builtin_cpu_supports("avx512f") ? GPUVEC_EMBED_AVX512 : GPUVEC_EMBED_AVX2;
}
