/*-------------------------------------------------------------------------
 *
 * engine.cpp
 *	  A GPU for an engine that is made with WITH_CUDA=emulated.
 *
 * Sets are searched on the CPU; vectors of embedding tables are served by the
 * kernels and by all that is around them, one thread at a time, and so are
 * trainings.  For tests only: it is slow.
 *
 * What C++ allocates is allocated by malloc(), so that a test can let it fail
 * (failing_malloc.c): an exception must not reach code in C.
 *
 *-------------------------------------------------------------------------
 */
#include <new>
#include <stdlib.h>

#include "engine/backend.h"
#include "kernels/als/cuda_als.h"
#include "kernels/embedding/cuda_embedding.h"

static struct gpuvec::cuda_device device;

void *
operator new(size_t n)
{
	void	   *memory = malloc(n > 0 ? n : 1);

	if (memory == NULL)
		throw std::bad_alloc();
	return memory;
}

void *
operator new(size_t n, const std::nothrow_t &) noexcept
{
	return malloc(n > 0 ? n : 1);
}

void
operator delete(void *memory) noexcept
{
	free(memory);
}

void
operator delete(void *memory, size_t) noexcept
{
	free(memory);
}

/* Small numbers, so that tests find more */
static struct gpuvec::embedding_policy
small_policy(void)
{
	struct gpuvec::embedding_policy policy = gpuvec::embedding_policy_of(90);

	policy.pinned_bytes = (size_t) 256 << 10;
	policy.record_bytes = (size_t) 16 << 10;
	policy.chunk_slots = 500;
	policy.chunk_bags = 50;
	policy.more_candidates = 50;
	policy.candidate_bytes = (size_t) 8 << 10;
	return policy;
}

int
gpuvec_cuda_count(gpuvec_error *)
{
	return 1;
}

gpuvec_backend *
gpuvec_cuda_open(const gpuvec_backend_options *options, gpuvec_error *error)
{
	gpuvec_backend_options cpu_options = {};

	gpuvec_backend *backend;

	cpu_options.threads = options->threads;
	backend = gpuvec_cpu_open(&cpu_options, error);
	if (backend == NULL || !device.open(0, error))
		return NULL;
	backend->vectors = gpuvec::embedding_open(device, small_policy(), error);
	backend->trainer = gpuvec::training_open(device, gpuvec::training_policy(), error);
	return backend->vectors && backend->trainer ? backend : NULL;
}
