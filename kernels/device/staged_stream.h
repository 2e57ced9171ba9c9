/*-------------------------------------------------------------------------
 *
 * staged_stream.h
 *	  A stream, and the pinned memory through which host memory goes to the
 *	  device and
 *	  comes back on it.
 *
 * For one thread at a time.  What goes to the device is copied into one half
 * of a pinned buffer while the device copies from the other half, so that the
 * caller's memory is free at once.  What comes back is in the caller's memory
 * after finish().
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
	unique_event done[2]; /* of the copies out of each */
	size_t half_bytes = 0;
	int half = 0;    /* the one that is filled */
	size_t used = 0; /* of it */
	unique_pinned down;
	size_t down_bytes = 0;
	void *target = NULL; /* where the contents of `down` go */
	size_t target_bytes = 0;

	bool
	change_half(const char *what, gpuvec_error *error);

public:
	/* Get what it takes, once: bytes of pinned memory for each direction */
	bool
	open(struct cuda_device &d, size_t to_device, size_t to_host, gpuvec_error *error);

	cudaStream_t
	get() const
	{
		return stream.get();
	}

	/* The most that fetch() takes */
	size_t
	fetch_limit() const
	{
		return down_bytes;
	}

	/* In all of these `what` completes "could not ..." */

	/* Queue the copy of host memory to the device */
	bool
	send(void *to, const void *from, size_t bytes, const char *what, gpuvec_error *error);

	/*
	 * Queue the copy of device memory to the host; one at a time, up to the
	 * next finish()
	 */
	bool
	fetch(void *to, const void *from, size_t bytes, const char *what, gpuvec_error *error);

	/*
	 * Wait for all that was queued, and copy what has come back to where it
	 * belongs
	 */
	bool
	finish(const char *what, gpuvec_error *error);

	/* Wait for all that was queued, whatever becomes of it */
	void
	drain();
};

} // namespace gpuvec

#endif /* GPUVEC_STAGED_STREAM_H */
