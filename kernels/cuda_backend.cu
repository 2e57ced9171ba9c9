/*-------------------------------------------------------------------------
 *
 * cuda_backend.cu
 *	  The CUDA backend: a GPU that searches, serves embedding tables, trains,
 *	  and finds neighbors of items.
 *
 * All share the device that the searching part opens (kernels/device).
 * Embedding tables, trainings and neighbors have streams and memory of their
 * own.
 *
 *-------------------------------------------------------------------------
 */
#include "kernels/als/cuda_als.h"
#include "kernels/embedding/cuda_embedding.h"
#include "kernels/neighbors/cuda_neighbors.h"
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
	b->vectors = embedding_open(b->device, embedding_policy_of(b->device.capability), error);
	if (b->vectors)
		b->trainer = training_open(b->device, training_policy(), error);
	if (b->trainer)
		b->finder = neighbors_open(b->device, neighbors_policy(), error);
	if (b->finder == NULL)
	{
		b->close(b);
		return NULL;
	}
	return b;
}
