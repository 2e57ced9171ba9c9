/*-------------------------------------------------------------------------
 *
 * launch.h
 *	  Launching kernels, each of which takes one structure.
 *
 * A kernel that is chained may start when all blocks of the one before in the
 * stream have let it (let_next_start) or have ended ("programmatic dependent
 * launch" of compute capability 9.0).  It waits (wait_for_previous) before it
 * looks at what others wrote, which it must not read with __ldg() as long as
 * that may be moved.  Some warp of each has to wait: kernels rely on it that
 * one ends after those before it.
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
 * Were the kernels compiled so that they wait for the one before them, for
 * the device that the thread uses?  Not if code for compute capability 9.0 is
 * missing and older code was translated for a newer GPU.
 */
extern bool
kernels_wait(void);

/*
 * Launch a kernel after all that is before it in the stream; or chained, if
 * it waits
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
 * The same, with a number of blocks that may be too large, or 0: then nothing
 * is done
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

/* Grid: dim3, or uint64_t */
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
