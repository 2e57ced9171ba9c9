/*-------------------------------------------------------------------------
 *
 * gram.c
 *	  The Gram matrix of factors that come in slices: the sum of y y'.
 *
 * Chunks of rows are added up in float32, and chunks in float64 in their
 * order.  A training does the same (training.c), so that the same factors in
 * the same order have the same matrix, to the bit.
 *
 *-------------------------------------------------------------------------
 */
#include "engine/als/gram.h"

typedef struct chunk_task
{
	const gpuvec_als_math *math;
	const float *rows;
	uint64_t	n;
	uint32_t	stride;
	float	   *chunks;
} chunk_task;

/* Task: the matrix of one chunk */
static void
make_chunk(void *arg, uint64_t chunk, int thread)
{
	const chunk_task *task = arg;
	uint64_t	from = chunk * GPUVEC_GRAM_CHUNK;
	uint64_t	left = task->n - from;
	uint64_t	n = left < GPUVEC_GRAM_CHUNK ? left : GPUVEC_GRAM_CHUNK;

	(void) thread;
	task->math->gram(task->rows + from * task->stride, (uint32_t) n, task->stride,
					 task->chunks + chunk * task->stride * task->stride);
}

void
gpuvec_gram_add(gpuvec_thread_pool *pool, const float *rows, uint64_t n, uint32_t stride,
				float *chunks, double *sum)
{
	chunk_task	task = {gpuvec_als_best_math(), rows, n, stride, chunks};
	uint64_t	nchunks = (n + GPUVEC_GRAM_CHUNK - 1) / GPUVEC_GRAM_CHUNK;

	gpuvec_thread_pool_run(pool, make_chunk, &task, nchunks);
	for (uint64_t chunk = 0; chunk < nchunks; chunk++, chunks += (size_t) stride * stride)
		for (size_t row = 0; row < stride; row++)
			for (size_t i = row * stride + row; i < (row + 1) * stride; i++)
				sum[i] += chunks[i];
}
