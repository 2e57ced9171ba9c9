/*-------------------------------------------------------------------------
 *
 * emulation.h
 *	  Just enough of CUDA to run the kernels on a CPU.
 *
 * Included before kernels and before bench_embedding.cu, for a plain C++
 * compiler. It finds errors of logic where there is no GPU: every thread is a
 * context of its own, collective operations wait for all lanes and complain
 * if some cannot come, and loads and stores by __ldg, __ldcs and __stcs are
 * checked for bounds and alignment.  Races between the warps of a block and
 * all about speed stay unseen.
 *
 *-------------------------------------------------------------------------
 */
#ifndef EMULATION_H
#define EMULATION_H

#include <cuda_runtime.h>
#include <cuda_fp16.h>
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <vector>

#undef __launch_bounds__
#undef __grid_constant__
#undef __global__
#undef __device__
#undef __host__
#undef __forceinline__
#undef __shared__
#define __launch_bounds__(...)
#define __grid_constant__
#define __global__
#define __device__
#define __host__
#define __forceinline__ inline
#ifdef EMULATED_SEARCH
#define __shared__				/* an extern array: see search.cpp */
#else
#define __shared__ static		/* blocks run one after another */
#endif

struct emu_index
{
	unsigned	x;
	unsigned	y;
	unsigned	z;
};

extern struct emu_index threadIdx;
extern struct emu_index blockIdx;
extern struct emu_index blockDim;
extern struct emu_index gridDim;

using std::max;
using std::min;

/* Report an error of a kernel and abort */
extern void emu_fail(const char *what);

/* Run a kernel */
extern void emu_run(dim3 blocks, unsigned threads, const std::function<void()> &kernel);

/* Wait for the other lanes of the warp; gives what each has brought along */
extern const uint64_t *emu_warp(uint64_t value);

/* Wait for the other threads of the block */
extern void emu_block(void);

/* Has the kernel that runs waited for the one before it? */
extern thread_local bool emu_waited;

/* Is this part of what cudaMalloc gave? */
extern void emu_check(const void *p, size_t n);

template <typename P>
static inline cudaError_t
cudaLaunchKernel(void (*kernel) (P), dim3 grid, dim3 block, void **args, size_t, cudaStream_t)
try
{
	P			params = *(P *) args[0];

	emu_run(grid.x, block.x, [&] { kernel(params); });
	return cudaSuccess;
}
catch (const std::bad_alloc &)
{
	return cudaErrorMemoryAllocation;
}

/* Shared memory of compute capability 9.0, and of the emulated GPU */
#define EMU_MOST_SHARED	232448
extern size_t emu_shared_limit(void);

/*
 * Run a kernel; that of a search in shared memory of this size (search.cpp)
 */
extern cudaError_t emu_run_shared(const cudaLaunchConfig_t *config, const std::function<void()> &kernel);

/*
 * May a kernel have that much of it?  Beyond 48 KiB only if
 * cudaFuncSetAttribute() has said so
 */
extern bool emu_may_share(const void *kernel, size_t bytes);

template <typename P>
static inline cudaError_t
emu_launch(const cudaLaunchConfig_t *config, void (*kernel) (P), const P &params)
try
{
	cudaError_t rc = cudaSuccess;

	if (!emu_may_share((const void *) kernel, config->dynamicSmemBytes))
		return cudaErrorInvalidValue;
	emu_waited = false;
#ifdef EMULATED_SEARCH
	rc = emu_run_shared(config, [&] { kernel(params); });
#else
	emu_run(config->gridDim, config->blockDim.x, [&] { kernel(params); });
#endif
	if (rc == cudaSuccess && config->numAttrs > 0 && !emu_waited)
		emu_fail("a kernel that may start early does not wait");
	return rc;
}
catch (const std::bad_alloc &)
{
	return cudaErrorMemoryAllocation;
}

#define cudaLaunchKernelEx	emu_launch

static inline void
__syncthreads(void)
{
	emu_block();
}

template <typename X>
static inline X
emu_exchange(unsigned mask, X value, unsigned source)
{
	uint64_t	bits = 0;
	X			result;

	if (mask != 0xFFFFFFFFu || source > 31)
		emu_fail("shuffle");
	memcpy(&bits, &value, sizeof value);
	memcpy(&result, &emu_warp(bits)[source], sizeof result);
	return result;
}

template <typename X>
static inline X
__shfl_sync(unsigned mask, X value, unsigned source, unsigned width = 32)
{
	if (source >= width)
		emu_fail("shuffle");
	return emu_exchange(mask, value, threadIdx.x % 32 / width * width + source);
}

template <typename X>
static inline X
__shfl_xor_sync(unsigned mask, X value, unsigned distance)
{
	return emu_exchange(mask, value, threadIdx.x % 32 ^ distance);
}

template <typename X>
static inline X
__shfl_up_sync(unsigned mask, X value, unsigned distance)
{
	unsigned	lane = threadIdx.x % 32;

	return emu_exchange(mask, value, lane >= distance ? lane - distance : lane);
}

static inline unsigned
__ballot_sync(unsigned mask, bool vote)
{
	unsigned	result = 0;
	const uint64_t *votes;

	if (mask != 0xFFFFFFFFu)
		emu_fail("ballot");
	votes = emu_warp(vote);
	for (int i = 0; i < 32; i++)
		result |= (unsigned) votes[i] << i;
	return result;
}

static inline unsigned
__reduce_max_sync(unsigned mask, unsigned value)
{
	unsigned	result = 0;
	const uint64_t *values;

	if (mask != 0xFFFFFFFFu)
		emu_fail("reduction");
	values = emu_warp(value);
	for (int i = 0; i < 32; i++)
		result = max(result, (unsigned) values[i]);
	return result;
}

static inline unsigned
atomicAdd(unsigned *p, unsigned value)
{
	unsigned	before = *p;

	emu_check(p, sizeof(unsigned));
	*p += value;
	return before;
}

static inline unsigned long long
atomicAdd(unsigned long long *p, unsigned long long value)
{
	unsigned long long before = *p;

	emu_check(p, sizeof(unsigned long long));
	*p += value;
	return before;
}

static inline unsigned
__reduce_or_sync(unsigned mask, unsigned value)
{
	unsigned	result = 0;
	const uint64_t *values;

	if (mask != 0xFFFFFFFFu)
		emu_fail("reduction");
	values = emu_warp(value);
	for (int i = 0; i < 32; i++)
		result |= (unsigned) values[i];
	return result;
}

static inline void
__syncwarp(void)
{
	emu_warp(0);
}

static inline unsigned
__reduce_add_sync(unsigned mask, unsigned value)
{
	unsigned	result = 0;
	const uint64_t *values;

	if (mask != 0xFFFFFFFFu)
		emu_fail("reduction");
	values = emu_warp(value);
	for (int i = 0; i < 32; i++)
		result += (unsigned) values[i];
	return result;
}

static inline unsigned
__reduce_min_sync(unsigned mask, unsigned value)
{
	return ~__reduce_max_sync(mask, ~value);
}

static inline int
__any_sync(unsigned mask, int vote)
{
	return __ballot_sync(mask, vote != 0) != 0;
}

static inline int
__all_sync(unsigned mask, int vote)
{
	return __ballot_sync(mask, vote != 0) == 0xFFFFFFFFu;
}

static inline int
__syncthreads_and(int vote)
{
	static int	all;
	int			result;

	all = 1;
	emu_block();
	if (!vote)
		all = 0;
	emu_block();
	result = all;
	emu_block();
	return result;
}

static inline unsigned
atomicOr(unsigned *p, unsigned value)
{
	unsigned	before = *p;

	emu_check(p, sizeof(unsigned));
	*p |= value;
	return before;
}

static inline unsigned
atomicCAS(unsigned *p, unsigned expected, unsigned value)
{
	unsigned	before = *p;

	emu_check(p, sizeof(unsigned));
	if (before == expected)
		*p = value;
	return before;
}

static inline unsigned long long
atomicCAS(unsigned long long *p, unsigned long long expected, unsigned long long value)
{
	unsigned long long before = *p;

	emu_check(p, sizeof(*p));
	if (before == expected)
		*p = value;
	return before;
}

static inline void
__threadfence(void)
{
}

static inline unsigned
atomicXor(unsigned *p, unsigned value)
{
	unsigned	before = *p;

	emu_check(p, sizeof(unsigned));
	*p ^= value;
	return before;
}

static inline unsigned
atomicMax(unsigned *p, unsigned value)
{
	unsigned	before = *p;

	emu_check(p, sizeof(unsigned));
	*p = before > value ? before : value;
	return before;
}

static inline unsigned
atomicMin(unsigned *p, unsigned value)
{
	unsigned	before = *p;

	emu_check(p, sizeof(unsigned));
	*p = before < value ? before : value;
	return before;
}

static inline unsigned
__dp4a(unsigned a, unsigned b, unsigned sum)
{
	for (int shift = 0; shift < 32; shift += 8)
		sum += (a >> shift & 0xFF) * (b >> shift & 0xFF);
	return sum;
}

static inline unsigned
__funnelshift_lc(unsigned low, unsigned high, unsigned n)
{
	return n >= 32 ? low : n == 0 ? high : high << n | low >> (32 - n);
}

static inline float
__double2float_rd(double d)
{
	float		f = (float) d;

	return (double) f > d ? nextafterf(f, -INFINITY) : f;
}

static inline unsigned
__umulhi(unsigned a, unsigned b)
{
	return (unsigned) ((uint64_t) a * b >> 32);
}

static inline int
__popc(unsigned x)
{
	return __builtin_popcount(x);
}

static inline int
__popcll(unsigned long long x)
{
	return __builtin_popcountll(x);
}

static inline int
__ffs(unsigned x)
{
	return x ? __builtin_ctz(x) + 1 : 0;
}

static inline int
__clz(unsigned x)
{
	return x ? __builtin_clz(x) : 32;
}

static inline float
__fmaf_rn(float a, float b, float c)
{
	return fmaf(a, b, c);
}

static inline float
__fdiv_rn(float a, float b)
{
	return a / b;
}

static inline float
__fadd_rn(float a, float b)
{
	return a + b;
}

static inline long long
__double_as_longlong(double d)
{
	long long	bits;

	memcpy(&bits, &d, sizeof bits);
	return bits;
}

static inline float
__uint_as_float(unsigned bits)
{
	float		f;

	memcpy(&f, &bits, sizeof f);
	return f;
}

static inline unsigned
__float_as_uint(float f)
{
	unsigned	bits;

	memcpy(&bits, &f, sizeof bits);
	return bits;
}

template <typename X>
static inline X
__ldg(const X *p)
{
	if ((uintptr_t) p % sizeof(X))
		emu_fail("misaligned load");
	emu_check(p, sizeof(X));
	return *p;
}

template <typename X>
static inline X
__ldcg(const X *p)
{
	return __ldg(p);
}

template <typename X>
static inline X
__ldcs(const X *p)
{
	return __ldg(p);
}

template <typename X>
static inline void
__stcs(X *p, X value)
{
	if ((uintptr_t) p % sizeof(X))
		emu_fail("misaligned store");
	emu_check(p, sizeof(X));
	*p = value;
}

/*
 * A copy by the copy engine; `global` is the address of the two that is in
 * global memory
 */
static inline void
emu_copy(void *to, const void *from, unsigned bytes, const void *global)
{
	if ((uintptr_t) to % 16 || (uintptr_t) from % 16 || bytes % 16)
		emu_fail("misaligned copy");
	emu_check(global, bytes);
	memcpy(to, from, bytes);
}

#endif							/* EMULATION_H */
