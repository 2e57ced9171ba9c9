/*-------------------------------------------------------------------------
 *
 * staged_stream.cu
 *	  Copies between host and device through pinned memory.
 *
 *-------------------------------------------------------------------------
 */
#include <algorithm>
#include <string.h>

#include "kernels/device/staged_stream.h"

namespace gpuvec
{

bool
staged_stream::open(struct cuda_device &d, size_t to_device, size_t to_host, gpuvec_error *error)
{
	device = &d;
	half_bytes = to_device / 2;
	down_bytes = to_host;
	return create_stream(d, stream, error) && create_event(d, done[0], error) &&
		   create_event(d, done[1], error) && create_pinned(d, up, 2 * half_bytes, error) &&
		   create_pinned(d, down, down_bytes, error);
}

/*
 * The current half is full: change to the other one, once its copies are
 * complete
 */
bool
staged_stream::change_half(const char *what, gpuvec_error *error)
{
	if (!device->check(cudaEventRecord(done[half].get(), stream.get()), what, error))
		return false;
	half = 1 - half;
	used = 0;
	return device->check(cudaEventSynchronize(done[half].get()), what, error);
}

bool
staged_stream::send(void *to, const void *from, size_t bytes, const char *what, gpuvec_error *error)
{
	for (size_t at = 0; at < bytes;)
	{
		size_t n = std::min(bytes - at, half_bytes - used);
		char *pinned = up.get() + half * half_bytes + used;

		if (n == 0)
		{
			if (!change_half(what, error))
				return false;
			continue;
		}
		memcpy(pinned, (const char *) from + at, n);
		if (!device->check(
				cudaMemcpyAsync((char *) to + at, pinned, n, cudaMemcpyHostToDevice, stream.get()),
				what, error))
			return false;
		used += n;
		at += n;
	}
	return true;
}

bool
staged_stream::fetch(void *to, const void *from, size_t bytes, const char *what,
					 gpuvec_error *error)
{
	if (bytes > 0 && !device->check(cudaMemcpyAsync(down.get(), from, bytes, cudaMemcpyDeviceToHost,
													stream.get()),
									what, error))
		return false;
	target = to;
	target_bytes = bytes;
	return true;
}

bool
staged_stream::finish(const char *what, gpuvec_error *error)
{
	size_t bytes = target_bytes;

	/* after a failure nobody may write there any more */
	target_bytes = 0;
	if (!device->check(cudaStreamSynchronize(stream.get()), what, error))
		return false;
	if (bytes > 0)
		memcpy(target, down.get(), bytes);
	used = 0;
	return true;
}

void
staged_stream::drain()
{
	gpuvec_error ignored;

	if (device->enter(&ignored))
		cudaStreamSynchronize(stream.get());
	cudaGetLastError();
	target_bytes = 0;
	used = 0;
}

} // namespace gpuvec
