/*-------------------------------------------------------------------------
 *
 * engine.cpp
 *	  A GPU for an engine that is made with WITH_CUDA=emulated.
 *
 * Sets are searched on the CPU; vectors of embedding tables are served by the kernels
 * and by all that is around them, one thread at a time.  For tests only: it is slow.
 *
 *-------------------------------------------------------------------------
 */
#include "engine/backend.h"
#include "kernels/embedding/cuda_vectors.h"

/* There is nothing in it */
struct cuda_backend
{
	gpuvec_backend *cpu;
};

static struct cuda_backend device;

bool
cuda_check(struct cuda_backend *, cudaError_t rc, const char *what, gpuvec_error *error)
{
	if (rc == cudaSuccess)
		return true;
	return gpuvec_fail(error, rc == cudaErrorMemoryAllocation ? GPUVEC_OUT_OF_MEMORY : GPUVEC_SYSTEM_ERROR,
					   NULL, NULL, "could not %s", what);
}

bool
cuda_enter(struct cuda_backend *, gpuvec_error *)
{
	return true;
}

bool
device_alloc(struct cuda_backend *b, void **memory, size_t bytes, cudaStream_t, const char *,
			 gpuvec_error *error)
{
	return cuda_check(b, cudaMalloc(memory, bytes), "allocate GPU memory", error);
}

void
device_free(struct cuda_backend *, void *memory, cudaStream_t)
{
	cudaFree(memory);
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

	cpu_options.threads = options->threads;
	device.cpu = gpuvec_cpu_open(&cpu_options, error);
	if (device.cpu)
		device.cpu->vectors = cuda_vectors_new(&device, error);
	return device.cpu && device.cpu->vectors ? device.cpu : NULL;
}
