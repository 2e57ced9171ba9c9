/*-------------------------------------------------------------------------
 *
 * cuda_memory.cu
 *	  The functions of kernels/device/cuda_memory.h, for kernels/embedding.
 *
 *-------------------------------------------------------------------------
 */
#include "kernels/device/cuda_memory.h"
#include "kernels/search/search_backend.h"

bool
cuda_check(struct cuda_backend *b, cudaError_t rc, const char *what, gpuvec_error *error)
{
	return b->device->check(rc, what, error);
}

bool
cuda_enter(struct cuda_backend *b, gpuvec_error *error)
{
	return b->device->enter(error);
}

bool
device_alloc(struct cuda_backend *b, void **memory, size_t bytes, cudaStream_t stream,
			 const char *what, gpuvec_error *error)
{
	gpuvec::unique_memory owner;

	*memory = NULL;
	if (!gpuvec::allocate(*b->device, owner, bytes, stream, what, error))
		return false;
	*memory = owner.release();
	return true;
}

void
device_free(struct cuda_backend *b, void *memory, cudaStream_t stream)
{
	gpuvec::unique_memory owner(memory, {b->device, stream});
}
