/*-------------------------------------------------------------------------
 *
 * staged_stream.h
 *	  A stream with pinned memory, through which data goes from host to device
 *	  and back.
 *
 * It serves one thread at a time.
 *
 * To the device: send() copies the data into one half of a pinned buffer
 * while the device copies from the other half.  The caller may reuse its
 * memory when send() returns.
 *
 * To the host: the data is in the caller's memory after finish().
 *
 *-------------------------------------------------------------------------
 */
#ifndef GPUVEC_STAGED_STREAM_H
#define GPUVEC_STAGED_STREAM_H

#include "kernels/device/cuda_device.h"

namespace gpuvec
{

class staged_stream
{
	struct cuda_device *device = NULL;
	unique_stream stream;
	unique_pinned up;     /* 2 halves of half_bytes each */
	unique_event done[2]; /* recorded after the last copy from each half */
	size_t half_bytes = 0;
	int half = 0;    /* the half that send() fills */
	size_t used = 0; /* bytes of this half */
	unique_pinned down;
	size_t down_bytes = 0;
	void *target = NULL; /* where finish() copies `down` to */
	size_t target_bytes = 0;

	bool
	change_half(const char *what, gpuvec_error *error);

public:
	/*
	 * Create the stream and its pinned memory of to_device and to_host bytes,
	 * if this has not been done
	 */
	bool
	open(struct cuda_device &d, size_t to_device, size_t to_host, gpuvec_error *error);

	cudaStream_t
	get() const
	{
		return stream.get();
	}

	/* The most bytes that fetch() copies */
	size_t
	fetch_limit() const
	{
		return down_bytes;
	}

	/* In all of these functions `what` completes "could not ..." */

	/* Queue the copy of host memory to the device */
	bool
	send(void *to, const void *from, size_t bytes, const char *what, gpuvec_error *error);

	/*
	 * Queue the copy of device memory to the host.  Only one fetch() may be
	 * pending: call finish() before the next one.
	 */
	bool
	fetch(void *to, const void *from, size_t bytes, const char *what, gpuvec_error *error);

	/*
	 * Wait for all queued work, and put what was fetched into the caller's
	 * memory
	 */
	bool
	finish(const char *what, gpuvec_error *error);

	/* Wait for all queued work after a failure; fetched data is dropped */
	void
	drain();
};

} // namespace gpuvec

#endif /* GPUVEC_STAGED_STREAM_H */
