/*-------------------------------------------------------------------------
 *
 * cuda_device.cu
 *	  Opens a GPU, reports errors of CUDA calls, and creates and releases
 *	  streams, events and memory.
 *
 * Device memory comes from the device's memory pool, which keeps freed
 * memory.  So a small allocation does not cost 2 MB, and allocating takes
 * microseconds.  After large merges the pool is trimmed, or it would keep the
 * most that was ever in use.
 *
 *-------------------------------------------------------------------------
 */
#include <stdio.h>
#include <string.h>

#include "kernels/device/cuda_device.h"

namespace gpuvec
{

/* The oldest GPUs that the kernels support: compute capability 8.0 */
#define MIN_CAPABILITY 80

/* Bytes that trimming leaves in reserve, beside an eighth of what is used */
#define LEAST_RESERVE ((uint64_t) 64 << 20)

static const char *const memory_hint =
	"Reduce the setting \"gpuvec.device_memory\", or free GPU memory that other programs use.";

bool
cuda_device::check(cudaError_t rc, const char *what, gpuvec_error *error)
{
	if (rc == cudaSuccess)
		return true;
	cudaGetLastError();
	if (rc == cudaErrorMemoryAllocation)
	{
		gpuvec_fail(error, GPUVEC_OUT_OF_MEMORY, NULL, memory_hint, "out of device memory");
		snprintf(error->detail, sizeof(error->detail), "Could not %s.", what);
		return false;
	}
	gpuvec_fail(error, GPUVEC_SYSTEM_ERROR, NULL, NULL, "could not %s", what);
	snprintf(error->detail, sizeof(error->detail), "CUDA reports %s: %s.", cudaGetErrorName(rc),
			 cudaGetErrorString(rc));
	if (side_stream != NULL)
	{
		cudaError_t after = cudaStreamQuery(side_stream.get());

		cudaGetLastError();
		if (after != cudaSuccess && after != cudaErrorNotReady)
			broken = true;
	}
	error->fatal = broken;
	error->fallback = !broken;
	return false;
}

bool
cuda_device::enter(gpuvec_error *error)
{
	if (broken)
	{
		gpuvec_fail(error, GPUVEC_SYSTEM_ERROR, "An earlier error has left the GPU unusable.", NULL,
					"could not use the GPU");
		error->fatal = true;
		return false;
	}
	return check(cudaSetDevice(number), "use the GPU", error);
}

size_t
cuda_device::free_memory()
{
	size_t available = 0;
	size_t total = 0;
	cudaMemPool_t pool;
	uint64_t reserved = 0;
	uint64_t used = 0;

	if (cudaMemGetInfo(&available, &total) != cudaSuccess)
		available = 0;
	if (pooled && cudaDeviceGetDefaultMemPool(&pool, number) == cudaSuccess &&
		cudaMemPoolGetAttribute(pool, cudaMemPoolAttrReservedMemCurrent, &reserved) ==
			cudaSuccess &&
		cudaMemPoolGetAttribute(pool, cudaMemPoolAttrUsedMemCurrent, &used) == cudaSuccess)
		available += reserved - used;
	cudaGetLastError();
	return available;
}

void
cuda_device::trim()
{
	gpuvec_error ignored;
	cudaMemPool_t pool;
	uint64_t used = 0;

	if (!pooled || !enter(&ignored))
		return;
	if (cudaDeviceGetDefaultMemPool(&pool, number) == cudaSuccess &&
		cudaMemPoolGetAttribute(pool, cudaMemPoolAttrUsedMemCurrent, &used) == cudaSuccess)
		cudaMemPoolTrimTo(pool, used + used / 8 + LEAST_RESERVE);
	cudaGetLastError();
}

/* ---- opening ---- */

/* Compute capability * 10 of a device; 0 if CUDA does not tell */
static int
device_capability(int number)
{
	int major = 0;
	int minor = 0;

	if (cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, number) != cudaSuccess ||
		cudaDeviceGetAttribute(&minor, cudaDevAttrComputeCapabilityMinor, number) != cudaSuccess)
	{
		cudaGetLastError();
		return 0;
	}
	return major * 10 + minor;
}

int
count_devices(gpuvec_error *error)
{
	int n = 0;
	cudaError_t rc = cudaGetDeviceCount(&n);

	cudaGetLastError();
	if (rc == cudaSuccess && n > 0)
		return n;
	if (rc == cudaErrorInsufficientDriver)
	{
		gpuvec_fail(error, GPUVEC_SYSTEM_ERROR, NULL, NULL,
					"no CUDA driver found, or it is too old");
		snprintf(error->hint, sizeof(error->hint),
				 "Install an NVIDIA driver that supports CUDA %d.0 or later.",
				 CUDART_VERSION / 1000);
	}
	else
		gpuvec_fail(error, GPUVEC_SYSTEM_ERROR, NULL, NULL, "no GPU found");
	if (rc != cudaSuccess)
		snprintf(error->detail, sizeof(error->detail), "CUDA reports %s: %s.", cudaGetErrorName(rc),
				 cudaGetErrorString(rc));
	return 0;
}

int
count_usable_devices(gpuvec_error *error)
{
	int n = count_devices(error);
	int usable = 0;

	for (int i = 0; i < n; i++)
		if (device_capability(i) >= MIN_CAPABILITY)
			usable++;
	if (n > 0 && usable == 0)
		gpuvec_fail(error, GPUVEC_SYSTEM_ERROR, NULL, NULL,
					"no GPU of compute capability 8.0 or later found");
	return usable > 0 ? n : 0;
}

/*
 * Read the device's properties, and make its memory pool keep freed memory
 */
bool
cuda_device::inspect(gpuvec_error *error)
{
	static const char *const what = "read the GPU's properties";
	cudaDeviceProp prop;
	int pools = 0;
	cudaMemPool_t pool;
	uint64_t keep = UINT64_MAX;

	if (!check(cudaGetDeviceProperties(&prop, number), what, error))
		return false;
	snprintf(name, sizeof(name), "%.120s", prop.name);
	capability = prop.major * 10 + prop.minor;
	sms = prop.multiProcessorCount;
	shared_limit = prop.sharedMemPerBlockOptin;
	memory_total = prop.totalGlobalMem;
	if (capability < MIN_CAPABILITY)
		return gpuvec_fail(error, GPUVEC_SYSTEM_ERROR, NULL, NULL,
						   "GPU %d (%s) has compute capability %d.%d, but 8.0 or later is needed",
						   number, name, prop.major, prop.minor);
	if (!check(cudaDeviceGetAttribute(&pools, cudaDevAttrMemoryPoolsSupported, number), what,
			   error))
		return false;
	pooled = pools != 0;
	return !pooled || (check(cudaDeviceGetDefaultMemPool(&pool, number), what, error) &&
					   check(cudaMemPoolSetAttribute(pool, cudaMemPoolAttrReleaseThreshold, &keep),
							 what, error));
}

bool
cuda_device::open(int device_number, gpuvec_error *error)
{
	int ndevices = count_devices(error);

	if (ndevices == 0)
		return false;
	if (device_number < 0 || device_number >= ndevices)
		return gpuvec_fail(error, GPUVEC_SYSTEM_ERROR, NULL, NULL,
						   "GPU %d does not exist: the machine has %d", device_number, ndevices);
	number = device_number;
	return inspect(error) && check(cudaSetDevice(number), "prepare the GPU", error) &&
		   create_stream(*this, side_stream, error);
}

/* ---- owners ---- */

/* CUDA takes the nearest one for a priority that the device does not have */
static bool
create_with_priority(struct cuda_device &device, unique_stream &stream, int priority,
					 gpuvec_error *error)
{
	cudaStream_t created;

	if (stream != NULL)
		return true;
	if (!device.check(cudaStreamCreateWithPriority(&created, cudaStreamNonBlocking, priority),
					  "create a CUDA stream", error))
		return false;
	stream = unique_stream(created, {&device});
	return true;
}

bool
create_stream(struct cuda_device &device, unique_stream &stream, gpuvec_error *error)
{
	return create_with_priority(device, stream, -1, error);
}

bool
create_patient_stream(struct cuda_device &device, unique_stream &stream, gpuvec_error *error)
{
	return create_with_priority(device, stream, 0, error);
}

bool
create_event(struct cuda_device &device, unique_event &event, gpuvec_error *error)
{
	cudaEvent_t created;

	if (event != NULL)
		return true;
	if (!device.check(cudaEventCreateWithFlags(&created, cudaEventDisableTiming),
					  "create a CUDA event", error))
		return false;
	event = unique_event(created, {&device});
	return true;
}

bool
create_pinned(struct cuda_device &device, unique_pinned &pinned, size_t bytes, gpuvec_error *error,
			  const char *what)
{
	void *created;

	if (pinned != NULL)
		return true;
	if (!device.check(cudaHostAlloc(&created, bytes, cudaHostAllocDefault), what, error))
		return false;
	pinned = unique_pinned((char *) created, {&device});
	return true;
}

bool
allocate(struct cuda_device &device, unique_memory &memory, size_t bytes, cudaStream_t stream,
		 const char *what, gpuvec_error *error)
{
	void *allocated;
	cudaError_t rc;

	memory.reset();
	rc = device.pooled ? cudaMallocAsync(&allocated, bytes, stream) : cudaMalloc(&allocated, bytes);
	if (device.check(rc, "allocate GPU memory", error))
	{
		memory = unique_memory(allocated, {&device, stream});
		return true;
	}
	if (rc == cudaErrorMemoryAllocation)
		snprintf(error->detail, sizeof(error->detail),
				 "Could not allocate %zu bytes of GPU memory for %s.", bytes, what);
	return false;
}

/*
 * True if resources may be released; the calling thread then uses the device
 */
static bool
may_release(struct cuda_device *device)
{
	gpuvec_error ignored;

	return device->enter(&ignored);
}

void
stream_deleter::operator()(cudaStream_t stream) const
{
	if (may_release(device))
		cudaStreamDestroy(stream);
	cudaGetLastError();
}

void
event_deleter::operator()(cudaEvent_t event) const
{
	if (may_release(device))
		cudaEventDestroy(event);
	cudaGetLastError();
}

void
pinned_deleter::operator()(char *memory) const
{
	if (may_release(device))
		cudaFreeHost(memory);
	cudaGetLastError();
}

void
memory_deleter::operator()(void *memory) const
{
	if (!may_release(device))
		return;
	if (device->pooled)
		cudaFreeAsync(memory, stream);
	else
		cudaFree(memory);
	cudaGetLastError();
}

void
free_and_wait(struct cuda_device &device, unique_memory &memory)
{
	gpuvec_error ignored;
	cudaStream_t stream = memory.get_deleter().stream;

	if (memory == NULL)
		return;
	memory.reset();
	if (device.enter(&ignored))
		cudaStreamSynchronize(stream);
	cudaGetLastError();
}

} // namespace gpuvec
