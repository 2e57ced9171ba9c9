/*-------------------------------------------------------------------------
 *
 * cuda_resources.h
 *	  Owners of CUDA resources: streams, events, device memory, pinned memory.
 *
 * Each is a std::unique_ptr: it can be moved, not copied, and releases its
 * resource at its end.  On a device that an error has made unusable, nothing
 * is released.
 *
 *-------------------------------------------------------------------------
 */
#ifndef GPUVEC_CUDA_RESOURCES_H
#define GPUVEC_CUDA_RESOURCES_H

#include <cuda_runtime.h>
#include <memory>
#include <stddef.h>

#include "engine/engine_error.h"

namespace gpuvec
{

struct cuda_device;

struct stream_deleter
{
	struct cuda_device *device;

	void
	operator()(cudaStream_t stream) const;
};

struct event_deleter
{
	struct cuda_device *device;

	void
	operator()(cudaEvent_t event) const;
};

/* Frees memory in the order of the stream: after all work queued before */
struct memory_deleter
{
	struct cuda_device *device;
	cudaStream_t stream;

	void
	operator()(void *memory) const;
};

struct pinned_deleter
{
	struct cuda_device *device;

	void
	operator()(char *memory) const;
};

typedef std::unique_ptr<std::remove_pointer<cudaStream_t>::type, stream_deleter> unique_stream;
typedef std::unique_ptr<std::remove_pointer<cudaEvent_t>::type, event_deleter> unique_event;
typedef std::unique_ptr<void, memory_deleter> unique_memory;
typedef std::unique_ptr<char[], pinned_deleter> unique_pinned;

/*
 * Create the resource, unless the owner already has one.  `what` completes
 * "could not ...".
 */
extern bool
create_stream(struct cuda_device &device, unique_stream &stream, gpuvec_error *error);
/*
 * A stream for long work: blocks of kernels of all other streams start before
 * those of its kernels
 */
extern bool
create_patient_stream(struct cuda_device &device, unique_stream &stream, gpuvec_error *error);
extern bool
create_event(struct cuda_device &device, unique_event &event, gpuvec_error *error);
extern bool
create_pinned(struct cuda_device &device, unique_pinned &pinned, size_t bytes, gpuvec_error *error,
			  const char *what = "allocate pinned memory");

/*
 * Allocate device memory in the order of a stream.  It is also freed in that
 * order; see free_in_stream().  Memory that the owner already holds is freed
 * first.  `what` completes "Could not allocate ... of GPU memory for ...".
 */
extern bool
allocate(struct cuda_device &device, unique_memory &memory, size_t bytes, cudaStream_t stream,
		 const char *what, gpuvec_error *error);

/*
 * Free memory, and wait until that is done: only then can trimming give it
 * back to the system
 */
extern void
free_and_wait(struct cuda_device &device, unique_memory &memory);

/*
 * Let memory be freed in the order of another stream than the one in which it
 * was allocated
 */
static inline void
free_in_stream(unique_memory &memory, cudaStream_t stream)
{
	memory.get_deleter().stream = stream;
}

} // namespace gpuvec

#endif /* GPUVEC_CUDA_RESOURCES_H */
