/*-------------------------------------------------------------------------
 *
 * cuda_backend.cu
 *	  The CUDA backend: a GPU that searches and serves embedding tables.
 *
 * Both share the device that the searching half opens (kernels/device).
 * Embedding tables have streams and buffers of their own.
 *
 *-------------------------------------------------------------------------
 */
#include "kernels/embedding/cuda_embedding.h"
#include "kernels/search/search_backend.h"

using namespace gpuvec;

int
gpuvec_cuda_count(gpuvec_error *error)
{
	return count_usable_devices(error);
}

gpuvec_backend *
gpuvec_cuda_open(const gpuvec_backend_options *options, gpuvec_error *error)
{
	struct search_backend *b = search_open(options, error);

	if (b == NULL)
		return NULL;
	b->vectors = embedding_open(b->device, embedding_policy(), error);
	if (b->vectors == NULL)
	{
		b->close(b);
		return NULL;
	}
	return b;
}
