/*-------------------------------------------------------------------------
 *
 * search.cpp
 *	  What the emulation of CUDA (emulation.h) has for searches: shared memory
 *	  whose size
 *	  is told at the launch.
 *
 * A block finds garbage in its shared memory, and must not write beyond it.
 * A kernel has ended before the next one starts, and an event before anybody
 * asks for it: so neither the chaining of kernels nor the stopping of a
 * search can be tested here.
 *
 *-------------------------------------------------------------------------
 */
#include <mutex>

#include "kernels/search/search_backend.h"

#define BEYOND			256		/* bytes that are checked */

namespace gpuvec
{

/* Two names for it, and only one of them used in a kernel */
alignas(256) uint4 shared_memory[(EMU_MOST_SHARED + BEYOND) / sizeof(uint4)];
alignas(256) uint4 select_memory[(EMU_MOST_SHARED + BEYOND) / sizeof(uint4)];

}

using gpuvec::shared_memory;
using gpuvec::select_memory;

/* Is there still 0 beyond what a kernel may use? */
static void
check_beyond(const uint4 *memory, size_t bytes)
{
	for (size_t i = bytes; i < bytes + BEYOND; i++)
		if (((const char *) memory)[i] != 0)
			emu_fail("write beyond shared memory");
}

cudaError_t
emu_run_shared(const cudaLaunchConfig_t *config, const std::function<void()> &kernel)
{
	/* other backends run kernels, too; the memory is that of one at a time */
	static std::mutex one;
	std::lock_guard<std::mutex> guard(one);
	size_t		bytes = config->dynamicSmemBytes;

	if (config->gridDim.x == 0 || config->gridDim.y == 0 || config->gridDim.y > 65535 ||
		config->blockDim.x > 1024 || bytes > emu_shared_limit())
		return cudaErrorInvalidConfiguration;
	emu_run(config->gridDim, config->blockDim.x, [&]
			{
				/* thread 0 is the first to run */
				if (threadIdx.x == 0)
				{
					memset(shared_memory, 0xCD, bytes);
					memset(select_memory, 0xCD, bytes);
				}
				kernel();
			});
	check_beyond(shared_memory, bytes);
	check_beyond(select_memory, bytes);
	memset(shared_memory, 0, bytes);
	memset(select_memory, 0, bytes);
	return cudaSuccess;
}

/* There are no embedding tables */
gpuvec_backend *
gpuvec_cuda_open(const gpuvec_backend_options *options, gpuvec_error *error)
{
	return gpuvec::search_open(options, error);
}

int
gpuvec_cuda_count(gpuvec_error *error)
{
	return gpuvec::count_usable_devices(error);
}
