/*-------------------------------------------------------------------------
 *
 * neighbors.cpp
 *	  What the emulation of CUDA (emulation.h) has for finding neighbors of
 *	  items: shared memory whose size is told at the launch.
 *
 * A block finds garbage in its shared memory, and must not write beyond it.
 *
 *-------------------------------------------------------------------------
 */
#include "engine/backend.h"

#define BEYOND			256		/* bytes that are checked */

namespace gpuvec
{

alignas(256) double product_sums[(EMU_MOST_SHARED + BEYOND) / sizeof(double)];

}

cudaError_t
emu_run_shared(const cudaLaunchConfig_t *config, const std::function<void()> &kernel)
{
	char	   *memory = (char *) gpuvec::product_sums;
	size_t		bytes = config->dynamicSmemBytes;

	if (config->gridDim.x == 0 || config->gridDim.y == 0 || config->gridDim.y > 65535 ||
		config->blockDim.x > 1024 || bytes > emu_shared_limit())
		return cudaErrorInvalidConfiguration;
	memset(memory + bytes, 0, BEYOND);
	emu_run(config->gridDim, config->blockDim.x, [&]
			{
				/* thread 0 is the first to run */
				if (threadIdx.x == 0)
					memset(memory, 0xCD, bytes);
				kernel();
			});
	for (size_t i = bytes; i < bytes + BEYOND; i++)
		if (memory[i] != 0)
			emu_fail("write beyond shared memory");
	return cudaSuccess;
}

/* There is no engine that opens a GPU */
gpuvec_backend *
gpuvec_cuda_open(const gpuvec_backend_options *, gpuvec_error *)
{
	return NULL;
}

int
gpuvec_cuda_count(gpuvec_error *)
{
	return 0;
}
