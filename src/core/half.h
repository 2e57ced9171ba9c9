/*-------------------------------------------------------------------------
 *
 * half.h
 *	  Converts float16 (IEEE 754 binary16) to float32 and back.
 *
 *-------------------------------------------------------------------------
 */
#ifndef GPUVEC_HALF_H
#define GPUVEC_HALF_H

#include <stdint.h>
#include <string.h>

#ifdef __F16C__
#include <immintrin.h>
#endif

/* Exact */
static inline float
gpuvec_half_to_float(uint16_t half)
{
	uint32_t	sign = (uint32_t) (half & 0x8000) << 16;
	uint32_t	exponent = (half >> 10) & 0x1F;
	uint32_t	fraction = half & 0x3FF;
	uint32_t	bits;
	float		result;

	if (exponent == 0)
	{
		/* zero or subnormal: a multiple of 2^-24 */
		result = (float) fraction / 16777216.0f;
		return sign ? -result : result;
	}
	if (exponent == 0x1F)
		bits = sign | 0x7F800000 | fraction << 13;
	else
		bits = sign | (exponent + 112) << 23 | fraction << 13;
	memcpy(&result, &bits, sizeof(result));
	return result;
}

/* Rounds to nearest, ties to even */
static inline uint16_t
gpuvec_float_to_half(float value)
{
	uint32_t	bits;
	uint16_t	sign;
	uint32_t	shift;
	uint32_t	half;
	uint32_t	rest;
	uint32_t	fraction;

	memcpy(&bits, &value, sizeof(bits));
	sign = (uint16_t) (bits >> 16 & 0x8000);
	bits &= 0x7FFFFFFF;
	if (bits > 0x7F800000)
		return sign | 0x7E00;	/* NaN */
	if (bits >= 0x477FF000)
		return sign | 0x7C00;	/* rounds to 65536 or more: infinity */
	if (bits < 0x33000000)
		return sign;			/* below half of the smallest subnormal */
	if (bits >= 0x38800000)
	{
		/* normal: drop 13 bits, and change the exponent's bias by 112 */
		half = (bits >> 13) - (112 << 10);
		rest = bits & 0x1FFF;
		shift = 13;
	}
	else
	{
		fraction = (bits & 0x7FFFFF) | 0x800000;
		shift = 126 - (bits >> 23);
		half = fraction >> shift;
		rest = fraction & ((UINT32_C(1) << shift) - 1);
	}
	if (rest > UINT32_C(1) << (shift - 1) || (rest == UINT32_C(1) << (shift - 1) && (half & 1)))
		half++;
	return (uint16_t) (sign | half);
}

/* Convert n float16 */
static inline void
gpuvec_halves_to_floats(float *to, const uint16_t *from, uint32_t n)
{
	uint32_t	i = 0;

#ifdef __F16C__
	for (; i + 8 <= n; i += 8)
		_mm256_storeu_ps(to + i, _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *) (from + i))));
#endif
	for (; i < n; i++)
		to[i] = gpuvec_half_to_float(from[i]);
}

#endif							/* GPUVEC_HALF_H */
