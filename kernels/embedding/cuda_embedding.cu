/*-------------------------------------------------------------------------
 *
 * cuda_embedding.cu
 *	  The backend of embedding tables on a GPU: opening, closing, and the
 *	  workers that serve requests.
 *
 *-------------------------------------------------------------------------
 */
#include <algorithm>
#include <new>

#include "kernels/embedding/cuda_embedding.h"

namespace gpuvec
{

/* What failed, in messages about waiting or copying */
static const char *const waiting = "pool vectors on the GPU";

bool
embedding_worker::finish(bool ok, gpuvec_error *error)
{
	ok = ok && streams[0].finish(waiting, error) && streams[1].finish(waiting, error);
	if (!ok)
		for (staged_stream &stream : streams)
			stream.drain();
	return ok;
}

worker_loan
cuda_embedding::take_worker(gpuvec_error *error)
{
	worker_loan worker;

	if (!device.enter(error))
		return worker;
	worker = workers.take();
	for (staged_stream &stream : worker->streams)
		if (!stream.open(device, policy.pinned_bytes, policy.pinned_bytes, error))
			return worker_loan();
	return worker;
}

bool
cuda_embedding::allocate(unique_memory &memory, staged_stream &stream, size_t bytes,
						 const char *what, gpuvec_error *error)
{
	return gpuvec::allocate(device, memory, std::max(bytes, (size_t) 256), stream.get(), what,
							error);
}

bool
cuda_embedding::finish(staged_stream &stream, gpuvec_error *error)
{
	return stream.finish(waiting, error);
}

bool
cuda_embedding::send(staged_stream &stream, void *to, const void *from, size_t bytes,
					 gpuvec_error *error)
{
	return stream.send(to, from, bytes, "copy data to the GPU", error);
}

bool
cuda_embedding::fetch(staged_stream &stream, void *to, const void *from, size_t bytes,
					  gpuvec_error *error)
{
	return stream.fetch(to, from, bytes, "copy data from the GPU", error);
}

/* Free everything; no bank is left */
static void
embedding_close(gpuvec_vectors *vectors)
{
	delete static_cast<struct cuda_embedding *>(vectors);
}

gpuvec_vectors *
embedding_open(struct cuda_device &device, const struct embedding_policy &policy,
			   gpuvec_error *error)
{
	struct cuda_embedding *e = new (std::nothrow) cuda_embedding(device, policy);

	if (e == NULL)
	{
		gpuvec_fail_memory(error, sizeof(*e));
		return NULL;
	}
	e->close = embedding_close;
	e->make = bank_make;
	e->release = bank_release;
	e->reserve = bank_reserve;
	e->bytes = bank_bytes;
	e->put = bank_put;
	e->flush = bank_flush;
	e->forget = bank_forget;
	e->key_limit = keys_limit;
	e->clear_keys = keys_clear;
	e->map_keys = keys_map;
	e->find_keys = keys_find;
	e->pool = pool_request;
	e->gradient = gradient_request;
	e->weight_gradients = weights_request;
	e->nearest = nearest_request;
	e->can_share = banks_can_share;
	e->reserve_shared = banks_reserve_shared;
	e->pool_shared = shared_request;
	return e;
}

} // namespace gpuvec
