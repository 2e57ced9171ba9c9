/*-------------------------------------------------------------------------
 *
 * bit_product.cuh
 *	  Products of bit matrices on the tensor cores of compute capability 9.0.
 *
 * A group of 128 threads multiplies 64 vectors by 128 vectors; a sum is the
 * number of bits that two vectors have in common.  Vectors lie in shared
 * memory as dense_cells.cuh says: in halves, of which each has a line of 128
 * bytes of every vector; the first line is at a multiple of 1,024 bytes.
 *
 * Lane 4 g + t of warp w gets the sums of vectors 16 w + g and 16 w + g + 8 of
 * the 64, with vectors 8 j + 2 t and 8 j + 2 t + 1 of the 128: sums[4 j] and
 * sums[4 j + 1] of the first, the next two of the second.
 *
 * The tensor cores work while the threads go on; sums must not be touched
 * before end_product().
 *
 *-------------------------------------------------------------------------
 */
#ifndef GPUVEC_BIT_PRODUCT_CUH
#define GPUVEC_BIT_PRODUCT_CUH

#include <cuda_runtime.h>
#include <stdint.h>

/*
 * These instructions are not part of any other architecture.  The compiler's
 * pass for the host has to know them, too.
 */
#if defined(__CUDA_ARCH_FEAT_SM90_ALL) || !defined(__CUDA_ARCH__)
#define BIT_PRODUCTS 1
#else
#define BIT_PRODUCTS 0
#endif

#if BIT_PRODUCTS

namespace gpuvec
{

#define PRODUCT_SUMS 64

/*
 * What an instruction is told of a matrix in shared memory: where it begins,
 * in units of 16 bytes; that groups of eight lines are 1,024 bytes apart; and
 * the order of the pieces of a line
 */
static __device__ __forceinline__ uint64_t
describe_matrix(const void *matrix)
{
	uint32_t address = (uint32_t) __cvta_generic_to_shared(matrix);

	return (address & 0x3FFFF) >> 4 | (uint64_t) 1 << 16 | (uint64_t) (1024 >> 4) << 32 |
		   (uint64_t) 1 << 62;
}

/* sums = (ADD ? sums : 0) + product of 256 bits of each vector */
template <int ADD>
static __device__ __forceinline__ void
multiply_bits(int (&s)[PRODUCT_SUMS], uint64_t a, uint64_t b)
{
	asm volatile("{\n\t.reg .pred add;\n\tsetp.ne.b32 add, %66, 0;\n\t"
				 "wgmma.mma_async.sync.aligned.m64n128k256.s32.b1.b1.and.popc "
				 "{%0, %1, %2, %3, %4, %5, %6, %7,"
				 " %8, %9, %10, %11, %12, %13, %14, %15,"
				 " %16, %17, %18, %19, %20, %21, %22, %23,"
				 " %24, %25, %26, %27, %28, %29, %30, %31,"
				 " %32, %33, %34, %35, %36, %37, %38, %39,"
				 " %40, %41, %42, %43, %44, %45, %46, %47,"
				 " %48, %49, %50, %51, %52, %53, %54, %55,"
				 " %56, %57, %58, %59, %60, %61, %62, %63}, %64, %65, add;\n\t}"
				 : "+r"(s[0]), "+r"(s[1]), "+r"(s[2]), "+r"(s[3]), "+r"(s[4]), "+r"(s[5]),
				   "+r"(s[6]), "+r"(s[7]), "+r"(s[8]), "+r"(s[9]), "+r"(s[10]), "+r"(s[11]),
				   "+r"(s[12]), "+r"(s[13]), "+r"(s[14]), "+r"(s[15]), "+r"(s[16]), "+r"(s[17]),
				   "+r"(s[18]), "+r"(s[19]), "+r"(s[20]), "+r"(s[21]), "+r"(s[22]), "+r"(s[23]),
				   "+r"(s[24]), "+r"(s[25]), "+r"(s[26]), "+r"(s[27]), "+r"(s[28]), "+r"(s[29]),
				   "+r"(s[30]), "+r"(s[31]), "+r"(s[32]), "+r"(s[33]), "+r"(s[34]), "+r"(s[35]),
				   "+r"(s[36]), "+r"(s[37]), "+r"(s[38]), "+r"(s[39]), "+r"(s[40]), "+r"(s[41]),
				   "+r"(s[42]), "+r"(s[43]), "+r"(s[44]), "+r"(s[45]), "+r"(s[46]), "+r"(s[47]),
				   "+r"(s[48]), "+r"(s[49]), "+r"(s[50]), "+r"(s[51]), "+r"(s[52]), "+r"(s[53]),
				   "+r"(s[54]), "+r"(s[55]), "+r"(s[56]), "+r"(s[57]), "+r"(s[58]), "+r"(s[59]),
				   "+r"(s[60]), "+r"(s[61]), "+r"(s[62]), "+r"(s[63])
				 : "l"(a), "l"(b), "n"(ADD)
				 : "memory");
}

/* Keep the compiler from moving uses of sums past this */
static __device__ __forceinline__ void
pin_sums(int (&sums)[PRODUCT_SUMS])
{
#pragma unroll
	for (int i = 0; i < PRODUCT_SUMS; i++)
		asm volatile("" : "+r"(sums[i]) : : "memory");
}

/*
 * Begin to multiply 64 vectors at a by 128 vectors at b; the halves are A_HALF
 * and B_HALF bytes apart
 */
template <int HALVES, int A_HALF, int B_HALF>
static __device__ __forceinline__ void
begin_product(int (&sums)[PRODUCT_SUMS], const void *a, const void *b)
{
	uint64_t first = describe_matrix(a);
	uint64_t second = describe_matrix(b);

	pin_sums(sums);
	asm volatile("wgmma.fence.sync.aligned;" : : : "memory");
	multiply_bits<0>(sums, first, second);
#pragma unroll
	for (int i = 1; i < 4 * HALVES; i++)
		multiply_bits<1>(sums, first + i / 4 * (A_HALF / 16) + i % 4 * 2,
						 second + i / 4 * (B_HALF / 16) + i % 4 * 2);
	asm volatile("wgmma.commit_group.sync.aligned;" : : : "memory");
}

/* Wait for the sums */
static __device__ __forceinline__ void
end_product(int (&sums)[PRODUCT_SUMS])
{
	asm volatile("wgmma.wait_group.sync.aligned 0;" : : : "memory");
	pin_sums(sums);
}

/*
 * Let tensor cores see what this thread has written to shared memory; others
 * may begin a product once they have synchronized with it
 */
static __device__ __forceinline__ void
product_fence(void)
{
	asm volatile("fence.proxy.async.shared::cta;" : : : "memory");
}

} // namespace gpuvec

#endif /* BIT_PRODUCTS */

#endif /* GPUVEC_BIT_PRODUCT_CUH */
