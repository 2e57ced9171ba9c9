/*-------------------------------------------------------------------------
 *
 * launch.cu
 *	  Do kernels wait for the one before them?
 *
 *-------------------------------------------------------------------------
 */
#include <atomic>

#include "kernels/device/launch.h"

namespace gpuvec
{

/* Devices whose answer is kept */
#define MAX_DEVICES 64

enum waiting
{
	NOT_ASKED,
	WAITS,
	DOES_NOT_WAIT
};

/* All kernels are compiled like this one */
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
