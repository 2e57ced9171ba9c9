/*-------------------------------------------------------------------------
 *
 * bit_product.cuh
 *	  The products of kernels/device/bit_product.cuh, emulated.
 *
 * A product is made when it is waited for, as late as tensor cores may read
 * shared memory.  Until then the sums are garbage.
 *
 *-------------------------------------------------------------------------
 */
#ifndef GPUVEC_BIT_PRODUCT_CUH
#define GPUVEC_BIT_PRODUCT_CUH

#define BIT_PRODUCTS 1

namespace gpuvec
{

#define PRODUCT_SUMS 64

/* A product that has begun; kept where its sums will be */
struct emulated_product
{
	const char *a;
	const char *b;
	int			halves;
	int			a_half;
	int			b_half;
};

template <int HALVES, int A_HALF, int B_HALF>
static inline void
begin_product(int (&sums)[PRODUCT_SUMS], const void *a, const void *b)
{
	struct emulated_product product = {(const char *) a, (const char *) b, HALVES, A_HALF, B_HALF};

	if ((uintptr_t) a % 1024 != 0 || (uintptr_t) b % 1024 != 0)
		emu_fail("misaligned matrix");
	memset(sums, 0x7F, sizeof sums);
	memcpy(sums, &product, sizeof product);
}

/* Bits that line i of a has in common with line j of b; both have 1,024 */
static inline int
common_bits(const char *a, unsigned i, const char *b, unsigned j)
{
	int			sum = 0;

	for (unsigned piece = 0; piece < 8; piece++)
	{
		uint64_t	x[2];
		uint64_t	y[2];

		memcpy(x, a + i * 128 + (piece ^ i % 8) * 16, 16);
		memcpy(y, b + j * 128 + (piece ^ j % 8) * 16, 16);
		sum += __builtin_popcountll(x[0] & y[0]) + __builtin_popcountll(x[1] & y[1]);
	}
	return sum;
}

static inline void
end_product(int (&sums)[PRODUCT_SUMS])
{
	struct emulated_product product;
	unsigned	lane = threadIdx.x % 32;
	unsigned	first = threadIdx.x / 32 % 4 * 16 + lane / 4;

	memcpy(&product, sums, sizeof product);
	for (unsigned n = 0; n < PRODUCT_SUMS; n++)
	{
		sums[n] = 0;
		for (int h = 0; h < product.halves; h++)
			sums[n] += common_bits(product.a + h * product.a_half, first + n / 2 % 2 * 8,
								   product.b + h * product.b_half, n / 4 * 8 + lane % 4 * 2 + n % 2);
	}
}

static inline void
product_fence(void)
{
}

}

#endif							/* GPUVEC_BIT_PRODUCT_CUH */
