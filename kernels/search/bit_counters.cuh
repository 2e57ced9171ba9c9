/*-------------------------------------------------------------------------
 *
 * bit_counters.cuh
 *	  Bit-sliced (vertical) counters: 32 counters in a few registers.
 *
 * Bit q of plane p is bit p of counter q.  Adding a mask adds its bits to all
 * 32 counters at once.
 *
 * Carry-save adders (Harley and Seal) combine several masks first.  A full
 * adder takes two masks and a plane, and gives the new plane and one mask of
 * the next weight, in two three-input logic operations.  So the higher planes
 * see only every eighth or sixteenth mask.
 *
 *-------------------------------------------------------------------------
 */
#ifndef GPUVEC_BIT_COUNTERS_CUH
#define GPUVEC_BIT_COUNTERS_CUH

#include <stdint.h>

namespace gpuvec
{

template <int PLANES>
struct bit_counters
{
	uint32_t plane[PLANES];

	__device__ __forceinline__ void
	clear()
	{
#pragma unroll
		for (int p = 0; p < PLANES; p++)
			plane[p] = 0;
	}

	/*
	 * plane += a + b; returns the carry, a mask of twice the plane's weight
	 */
	static __device__ __forceinline__ uint32_t
	full_add(uint32_t &plane, uint32_t a, uint32_t b)
	{
		uint32_t sum = plane ^ a ^ b;
		uint32_t carry = (plane & a) | (b & (plane | a));

		plane = sum;
		return carry;
	}

	/*
	 * Reduce N masks (a power of 2) into the low planes; returns a mask of
	 * weight N
	 */
	template <int N>
	__device__ __forceinline__ uint32_t
	reduce(const uint32_t *mask)
	{
		if constexpr (N == 2)
			return full_add(plane[0], mask[0], mask[1]);
		else
		{
			constexpr int P = N == 4 ? 1 : N == 8 ? 2 : 3;
			uint32_t a = reduce<N / 2>(mask);
			uint32_t b = reduce<N / 2>(mask + N / 2);

			return full_add(plane[P], a, b);
		}
	}

	/* Count N masks */
	template <int N>
	__device__ __forceinline__ void
	add(const uint32_t *mask)
	{
		constexpr int FROM = N == 2 ? 1 : N == 4 ? 2 : N == 8 ? 3 : 4;
		uint32_t carry = reduce<N>(mask);

		ripple<FROM>(carry);
	}

	/* Add a mask of weight 2^FROM; all counts must fit into TOP planes */
	template <int FROM, int TOP = PLANES>
	__device__ __forceinline__ void
	ripple(uint32_t carry)
	{
		/* with many planes, carries seldom reach this far */
		if (TOP > 8 && carry == 0)
			return;
#pragma unroll
		for (int p = FROM; p < TOP; p++)
		{
			uint32_t next = plane[p] & carry;

			plane[p] ^= carry;
			carry = next;
		}
	}

	/*
	 * Add counter q + SHIFT to counter q; the upper SHIFT counters become
	 * invalid
	 */
	template <int SHIFT>
	__device__ __forceinline__ void
	fold()
	{
		uint32_t carry = 0;

#pragma unroll
		for (int p = 0; p < PLANES; p++)
		{
			uint32_t a = plane[p];
			uint32_t b = plane[p] >> SHIFT;

			plane[p] = a ^ b ^ carry;
			carry = (a & b) | (carry & (a | b));
		}
	}

	/*
	 * Mask of the counters that are >= their number; number[] has one number
	 * for each counter, as planes
	 */
	__device__ __forceinline__ uint32_t
	at_least(const uint32_t *number) const
	{
		uint32_t result = ~0u;

#pragma unroll
		for (int p = 0; p < PLANES; p++)
			result = (plane[p] & ~number[p]) | (result & (plane[p] | ~number[p]));
		return result;
	}

	/* Mask of the counters that are >= one number, which is below 2^PLANES */
	__device__ __forceinline__ uint32_t
	at_least_number(uint32_t number) const
	{
		uint32_t result = ~0u;

#pragma unroll
		for (int p = 0; p < PLANES; p++)
		{
			uint32_t bit = 0u - (number >> p & 1);

			result = (plane[p] & (result | ~bit)) | (result & ~bit);
		}
		return result;
	}

	/* The value of counter q */
	__device__ __forceinline__ uint32_t
	get(uint32_t q) const
	{
		uint32_t result = 0;

#pragma unroll
		for (int p = 0; p < PLANES; p++)
			result |= (plane[p] >> q & 1) << p;
		return result;
	}
};

} // namespace gpuvec

#endif /* GPUVEC_BIT_COUNTERS_CUH */
