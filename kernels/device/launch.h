/*-------------------------------------------------------------------------
 *
 * launch.h
 *	  Launches kernels, each of which takes one struct as its parameter.
 *
 * A kernel that is launched chained ("programmatic dependent launch" of
 * compute capability 9.0) may start before the previous kernel of the stream
 * ends: as soon as each block of that kernel has called let_next_start() or
 * has ended.
 *
 * A chained kernel must call wait_for_previous() before it reads what earlier
 * kernels wrote.  It must not read this with __ldg() where the compiler could
 * move the load before the wait.  At least one warp of every chained kernel
 * has to wait: other kernels rely on a kernel ending after all those before
 * it.
 *
 *-------------------------------------------------------------------------
 */
#ifndef GPUVEC_LAUNCH_H
#define GPUVEC_LAUNCH_H

#include <cuda_runtime.h>
#include <stdint.h>

namespace gpuvec
{

/*
 * True if, on the device that the thread uses, chained kernels wait.  They do
 * not if the library lacks code for compute capability 9.0, so that the
 * driver has translated older code for a newer GPU.
 */
extern bool
kernels_wait(void);

/*
 * Launch a kernel in a stream; chained only if kernels wait on this device
 */
template <typename Params>
static inline cudaError_t
launch_any(void (*kernel)(Params), dim3 grid, uint32_t threads, size_t shared_bytes, bool chained,
		   cudaStream_t stream, const Params &params)
{
	cudaLaunchConfig_t config = {};
	cudaLaunchAttribute attribute = {};

	attribute.id = cudaLaunchAttributeProgrammaticStreamSerialization;
	attribute.val.programmaticStreamSerializationAllowed = 1;
	config.gridDim = grid;
	config.blockDim = dim3(threads);
	config.dynamicSmemBytes = shared_bytes;
	config.stream = stream;
	config.attrs = &attribute;
	config.numAttrs = chained && kernels_wait() ? 1 : 0;
	return cudaLaunchKernelEx(&config, kernel, params);
}

/*
 * The same with a number of blocks: does nothing if it is 0, and fails if it
 * is too large
 */
template <typename Params>
static inline cudaError_t
launch_any(void (*kernel)(Params), uint64_t blocks, uint32_t threads, size_t shared_bytes,
		   bool chained, cudaStream_t stream, const Params &params)
{
	if (blocks > INT32_MAX)
		return cudaErrorInvalidValue;
	if (blocks == 0)
		return cudaSuccess;
	return launch_any(kernel, dim3((unsigned) blocks), threads, shared_bytes, chained, stream,
					  params);
}

/* Grid is dim3 or uint64_t */
template <typename Params, typename Grid>
static inline cudaError_t
launch(void (*kernel)(Params), Grid grid, uint32_t threads, size_t shared_bytes,
	   cudaStream_t stream, const Params &params)
{
	return launch_any(kernel, grid, threads, shared_bytes, false, stream, params);
}

template <typename Params, typename Grid>
static inline cudaError_t
launch_chained(void (*kernel)(Params), Grid grid, uint32_t threads, size_t shared_bytes,
			   cudaStream_t stream, const Params &params)
{
	return launch_any(kernel, grid, threads, shared_bytes, true, stream, params);
}

} // namespace gpuvec

#endif /* GPUVEC_LAUNCH_H */
