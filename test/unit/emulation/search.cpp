/*-------------------------------------------------------------------------
 *
 * search.cpp
 *	  What the emulation of CUDA (emulation.h) has for searches: shared memory whose size
 *	  is told at the launch, and the calls that the backend makes.
 *
 * A block finds garbage in its shared memory, and must not write beyond it.  A kernel has
 * ended before the next one starts, and an event before anybody asks for it: so neither
 * the chaining of kernels nor the stopping of a search can be tested here.
 *
 *	EMULATED_GPU=86		a GPU of this compute capability, with its shared memory
 *
 *-------------------------------------------------------------------------
 */
#include "kernels/search/cuda_backend.h"
#include "kernels/embedding/cuda_vectors.h"

#define MOST_SHARED		232448	/* of compute capability 9.0 */
#define BEYOND			256		/* bytes that are checked */

/* Two names for it, and only one of them used in a kernel */
alignas(256) uint4 shared_memory[(MOST_SHARED + BEYOND) / sizeof(uint4)];
alignas(256) uint4 select_memory[(MOST_SHARED + BEYOND) / sizeof(uint4)];

static char something;			/* for handles to point at */

/* The emulated GPU's compute capability * 10 */
static int
capability(void)
{
	const char *gpu = getenv("EMULATED_GPU");

	return gpu ? atoi(gpu) : 90;
}

static size_t
most_shared(void)
{
	return capability() >= 90 ? MOST_SHARED : capability() == 80 ? 166912 : 101376;
}

/* Is there still 0 beyond what a kernel may use? */
static void
check_beyond(const uint4 *memory, size_t bytes)
{
	for (size_t i = bytes; i < bytes + BEYOND; i++)
		if (((const char *) memory)[i] != 0)
			emu_fail("write beyond shared memory");
}

cudaError_t
emu_run_shared(const cudaLaunchConfig_t *config, const std::function<void()> &kernel)
{
	size_t		bytes = config->dynamicSmemBytes;

	if (config->gridDim.x == 0 || config->gridDim.y == 0 || config->gridDim.y > 65535 ||
		config->blockDim.x > 1024 || bytes > most_shared())
		return cudaErrorInvalidConfiguration;
	emu_run(config->gridDim, config->blockDim.x, [&]
			{
				/* thread 0 is the first to run */
				if (threadIdx.x == 0)
				{
					memset(shared_memory, 0xCD, bytes);
					memset(select_memory, 0xCD, bytes);
				}
				kernel();
			});
	check_beyond(shared_memory, bytes);
	check_beyond(select_memory, bytes);
	memset(shared_memory, 0, bytes);
	memset(select_memory, 0, bytes);
	return cudaSuccess;
}

/* There are no embedding tables */
gpuvec_vectors *
cuda_vectors_new(struct cuda_backend *, gpuvec_error *)
{
	return (gpuvec_vectors *) &something;
}

void
cuda_vectors_free(gpuvec_vectors *)
{
}

extern "C" cudaError_t
cudaGetDeviceCount(int *n)
{
	*n = 1;
	return cudaSuccess;
}

extern "C" cudaError_t
cudaSetDevice(int)
{
	return cudaSuccess;
}

extern "C" cudaError_t
cudaGetDeviceProperties(cudaDeviceProp *prop, int)
{
	memset(prop, 0, sizeof(*prop));
	strcpy(prop->name, "emulation");
	prop->major = capability() / 10;
	prop->minor = capability() % 10;
	prop->multiProcessorCount = 4;
	prop->sharedMemPerBlockOptin = most_shared();
	prop->totalGlobalMem = (size_t) 8 << 30;
	return cudaSuccess;
}

extern "C" cudaError_t
cudaDeviceGetAttribute(int *value, cudaDeviceAttr attribute, int)
{
	*value = attribute == cudaDevAttrComputeCapabilityMajor ? capability() / 10 :
		attribute == cudaDevAttrComputeCapabilityMinor ? capability() % 10 : 0;
	return cudaSuccess;
}

extern "C" cudaError_t
cudaDeviceGetDefaultMemPool(cudaMemPool_t *pool, int)
{
	*pool = (cudaMemPool_t) &something;
	return cudaSuccess;
}

extern "C" cudaError_t
cudaMemPoolSetAttribute(cudaMemPool_t, cudaMemPoolAttr, void *)
{
	return cudaSuccess;
}

extern "C" cudaError_t
cudaMemPoolGetAttribute(cudaMemPool_t, cudaMemPoolAttr, void *value)
{
	*(uint64_t *) value = 0;
	return cudaSuccess;
}

extern "C" cudaError_t
cudaMemGetInfo(size_t *unused, size_t *total)
{
	*unused = *total = (size_t) 8 << 30;
	return cudaSuccess;
}

extern "C" cudaError_t
cudaMallocAsync(void **p, size_t n, cudaStream_t)
{
	return cudaMalloc(p, n);
}

extern "C" cudaError_t
cudaFreeAsync(void *p, cudaStream_t)
{
	return cudaFree(p);
}

extern "C" cudaError_t
cudaEventCreateWithFlags(cudaEvent_t *event, unsigned)
{
	*event = (cudaEvent_t) &something;
	return cudaSuccess;
}

extern "C" cudaError_t
cudaEventDestroy(cudaEvent_t)
{
	return cudaSuccess;
}

extern "C" cudaError_t
cudaEventRecord(cudaEvent_t, cudaStream_t)
{
	return cudaSuccess;
}

extern "C" cudaError_t
cudaEventQuery(cudaEvent_t)
{
	return cudaSuccess;
}

extern "C" cudaError_t
cudaEventSynchronize(cudaEvent_t)
{
	return cudaSuccess;
}

extern "C" cudaError_t
cudaStreamQuery(cudaStream_t)
{
	return cudaSuccess;
}

extern "C" const char *
cudaGetErrorName(cudaError_t)
{
	return "error";
}

extern "C" cudaError_t
cudaFuncGetAttributes(cudaFuncAttributes *attributes, const void *)
{
	memset(attributes, 0, sizeof(*attributes));
	attributes->ptxVersion = capability();
	return cudaSuccess;
}

extern "C" cudaError_t
cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(int *n, const void *, int, size_t, unsigned)
{
	*n = 1;
	return cudaSuccess;
}
