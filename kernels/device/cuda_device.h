/*-------------------------------------------------------------------------
 *
 * cuda_device.h
 *	  A GPU that is open: what all kernels' hosts must know of it, and the
 *	  errors
 *	  of its calls.
 *
 * Whoever opens a device closes it last: streams, events and memory
 * (cuda_resources.h) hold a reference.
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
	size_t shared_limit = 0; /* bytes of shared memory that a block may have */
	size_t memory_total = 0;
	bool pooled = false;             /* it has memory pools: cudaMallocAsync works */
	std::atomic<bool> broken{false}; /* an error happened that stays */
	char name[128] = "";

	/*
	 * For what goes beside all other work.  Whether it is in order tells
	 * whether the device is.  NULL until the device is open.
	 */
	unique_stream side_stream;

	/*
	 * Open a device, once, of those that count_devices() counts, and make the
	 * calling thread use it.
	 */
	bool
	open(int device_number, gpuvec_error *error);

	/*
	 * Did a call succeed?  If not, fill *error; `what` completes "could not
	 * ...".  An error that stays (a fault in a kernel, say) has ruined the
	 * process's use of the GPU: fatal.
	 */
	bool
	check(cudaError_t rc, const char *what, gpuvec_error *error);

	/* Make the calling thread use the device */
	bool
	enter(gpuvec_error *error);

	/*
	 * Bytes that can still be had: what is free, and what the pool holds in
	 * reserve
	 */
	size_t
	free_memory();

private:
	bool
	inspect(gpuvec_error *error);
};

/* Number of GPUs of any age; 0 and *error if there is none */
extern int
count_devices(gpuvec_error *error);

/*
 * Number of those that cuda_device::open() takes; 0 and *error says why none
 */
extern int
count_usable_devices(gpuvec_error *error);

} // namespace gpuvec

#endif /* GPUVEC_CUDA_DEVICE_H */
