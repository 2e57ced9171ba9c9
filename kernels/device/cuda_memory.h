/*-------------------------------------------------------------------------
 *
 * cuda_memory.h
 *	  Errors and device memory, as kernels/embedding knows them (search/cuda_memory.cu).
 *
 *-------------------------------------------------------------------------
 */
#ifndef GPUVEC_CUDA_MEMORY_H
#define GPUVEC_CUDA_MEMORY_H

#include <cuda_runtime.h>

#include "engine/engine_error.h"

struct cuda_backend;

/*
 * Did a call succeed?  If not, fill *error; `what` completes "could not ...".
 * An error that stays (a fault in a kernel, say) has ruined the process's use of
 * the GPU: fatal.
 */
extern bool cuda_check(struct cuda_backend *b, cudaError_t rc, const char *what,
					   gpuvec_error *error);

/* Make the calling thread use the backend's GPU */
extern bool cuda_enter(struct cuda_backend *b, gpuvec_error *error);

/* Allocate device memory, ordered in the stream; `what` completes "for ..." */
extern bool device_alloc(struct cuda_backend *b, void **memory, size_t bytes,
						 cudaStream_t stream, const char *what, gpuvec_error *error);

/* Free device memory (or NULL) once the stream has come so far */
extern void device_free(struct cuda_backend *b, void *memory, cudaStream_t stream);

#endif							/* GPUVEC_CUDA_MEMORY_H */
