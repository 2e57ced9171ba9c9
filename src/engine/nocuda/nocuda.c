/*-------------------------------------------------------------------------
 *
 * nocuda.c
 *	  Stands in for kernels/ in a build without CUDA.
 *
 *-------------------------------------------------------------------------
 */
#include "engine/backend.h"

int
gpuvec_cuda_count(gpuvec_error *error)
{
	gpuvec_fail(error, GPUVEC_SYSTEM_ERROR, NULL,
				"Build with WITH_CUDA=yes on a machine that has nvcc.",
				"this build of gpuvec has no CUDA support");
	return 0;
}

gpuvec_backend *
gpuvec_cuda_open(const gpuvec_backend_options *options, gpuvec_error *error)
{
	gpuvec_cuda_count(error);
	return NULL;
}
