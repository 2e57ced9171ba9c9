/*-------------------------------------------------------------------------
 *
 * launch.cu
 *	  Finds out whether kernels wait for the kernel before them.
 *
 *-------------------------------------------------------------------------
 */
#include <atomic>

#include "kernels/device/launch.h"

namespace gpuvec
{

/* Devices for which the answer is cached; others never chain */
#define MAX_DEVICES 64

enum waiting
{
	NOT_ASKED,
	WAITS,
	DOES_NOT_WAIT
};

/* Its attributes are those of all kernels, which are compiled alike */
static __global__ void
probe_kernel(void)
{
}

bool
kernels_wait(void)
{
	static std::atomic<enum waiting> known[MAX_DEVICES];
	cudaFuncAttributes attributes;
	int device;

	if (cudaGetDevice(&device) != cudaSuccess || device >= MAX_DEVICES)
		return false;
	if (known[device] == NOT_ASKED)
	{
		if (cudaFuncGetAttributes(&attributes, (const void *) probe_kernel) != cudaSuccess)
			return false;
		known[device] = attributes.ptxVersion >= 90 ? WAITS : DOES_NOT_WAIT;
	}
	return known[device] == WAITS;
}

} // namespace gpuvec
