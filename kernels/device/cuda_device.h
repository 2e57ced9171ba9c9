/*-------------------------------------------------------------------------
 *
 * cuda_device.h
 *	  An open GPU: its properties, and the reporting of errors of CUDA calls.
 *
 * The owners of streams, events and memory (cuda_resources.h) point to their
 * device, so the device must be closed after all of them.
 *
 *-------------------------------------------------------------------------
 */
#ifndef GPUVEC_CUDA_DEVICE_H
#define GPUVEC_CUDA_DEVICE_H

#include <atomic>
#include <cuda_runtime.h>
#include <stdint.h>

#include "engine/engine_error.h"
#include "kernels/device/cuda_resources.h"

namespace gpuvec
{

struct cuda_device
{
	int number = 0;
	int capability = 0; /* compute capability * 10 */
	int sms = 0;
	size_t shared_limit = 0; /* bytes of shared memory per block, at most */
	size_t memory_total = 0;
	bool pooled = false;             /* memory pools exist: cudaMallocAsync works */
	std::atomic<bool> broken{false}; /* an error has made the GPU unusable */
	char name[128] = "";

	/*
	 * A stream for work beside all other streams.  check() queries it to find
	 * out whether the device is still usable.  NULL until the device is open.
	 */
	unique_stream side_stream;

	/*
	 * Open device 0 .. count_devices() - 1, and make the calling thread use
	 * it.  Called once for each cuda_device.
	 */
	bool
	open(int device_number, gpuvec_error *error);

	/*
	 * True if a CUDA call succeeded.  If not, fills *error; `what` completes
	 * "could not ...".  Some errors, such as a fault in a kernel, end the
	 * process's use of the GPU: then `broken` and error->fatal are set.
	 */
	bool
	check(cudaError_t rc, const char *what, gpuvec_error *error);

	/*
	 * Make the calling thread use the device; fails if the device is broken
	 */
	bool
	enter(gpuvec_error *error);

	/*
	 * Bytes that can still be allocated: free memory, and memory that the
	 * pool holds in reserve
	 */
	size_t
	free_memory();

	/*
	 * Let the pool return to the system what it holds in reserve, but for a
	 * little
	 */
	void
	trim();

private:
	bool
	inspect(gpuvec_error *error);
};

/*
 * Number of GPUs of any compute capability.  If there is none, 0, and *error
 * is filled.
 */
extern int
count_devices(gpuvec_error *error);

/*
 * Number of GPUs.  If the kernels support none of them, 0, and *error says
 * why.
 */
extern int
count_usable_devices(gpuvec_error *error);

} // namespace gpuvec

#endif /* GPUVEC_CUDA_DEVICE_H */
