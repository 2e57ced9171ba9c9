/*-------------------------------------------------------------------------
 *
 * radix_sort.c
 *	  Sort 64-bit keys by their upper bits.
 *
 * The sort goes by digits from the lowest to the highest.  Digits that are
 * equal in all keys are skipped.
 *
 *-------------------------------------------------------------------------
 */
#include "engine/radix_sort.h"

#define DIGIT_BITS		8

/* Sort by one digit */
static void
sort_by_digit(const uint64_t *keys, uint64_t *out, uint64_t n, int shift)
{
	uint32_t	start[1 << DIGIT_BITS] = {0};
	uint32_t	sum = 0;

	for (uint64_t i = 0; i < n; i++)
		start[(uint8_t) (keys[i] >> shift)]++;
	for (int i = 0; i < 1 << DIGIT_BITS; i++)
	{
		uint32_t	count = start[i];

		start[i] = sum;
		sum += count;
	}
	for (uint64_t i = 0; i < n; i++)
		out[start[(uint8_t) (keys[i] >> shift)]++] = keys[i];
}

uint64_t *
gpuvec_radix_sort(uint64_t *keys, uint64_t *scratch, uint64_t n, int first_bit)
{
	uint64_t	differ = 0;

	for (uint64_t i = 1; i < n; i++)
		differ |= keys[i] ^ keys[0];
	for (int shift = first_bit; shift < 64; shift += DIGIT_BITS)
	{
		uint64_t   *swap = keys;

		if ((uint8_t) (differ >> shift) == 0)
			continue;
		sort_by_digit(keys, scratch, n, shift);
		keys = scratch;
		scratch = swap;
	}
	return keys;
}
