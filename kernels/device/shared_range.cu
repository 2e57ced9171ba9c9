/*-------------------------------------------------------------------------
 *
 * shared_range.cu
 *	  A range of addresses with memory of several devices.
 *
 * The functions are the driver's.  The runtime library, which is linked
 * statically, finds them, so that no program needs the driver to start.
 *
 *-------------------------------------------------------------------------
 */
#include <algorithm>
#include <cuda.h>
#include <vector>

#include "kernels/device/arena.h"
#include "kernels/device/shared_range.h"

namespace gpuvec
{

/* The driver's functions */
struct driver_functions
{
	decltype(&cuMemGetAllocationGranularity) granularity;
	decltype(&cuMemAddressReserve) reserve;
	decltype(&cuMemAddressFree) free;
	decltype(&cuMemCreate) create;
	decltype(&cuMemRelease) release;
	decltype(&cuMemMap) map;
	decltype(&cuMemUnmap) unmap;
	decltype(&cuMemSetAccess) set_access;
};

/* Find a function of the driver; false if there is none */
template <typename F>
static bool
find_function(const char *name, F *function)
{
	cudaDriverEntryPointQueryResult status;
	void *found = NULL;
#if CUDART_VERSION >= 12050
	cudaError_t rc =
		cudaGetDriverEntryPointByVersion(name, &found, 12000, cudaEnableDefault, &status);
#else
	cudaError_t rc = cudaGetDriverEntryPoint(name, &found, cudaEnableDefault, &status);
#endif

	if (rc != cudaSuccess || status != cudaDriverEntryPointSuccess)
	{
		cudaGetLastError();
		found = NULL;
	}
	*function = reinterpret_cast<F>(found);
	return found != NULL;
}

/* Find all functions; NULL if one is missing */
static const struct driver_functions *
find_functions(struct driver_functions *f)
{
	return find_function("cuMemGetAllocationGranularity", &f->granularity) &&
				   find_function("cuMemAddressReserve", &f->reserve) &&
				   find_function("cuMemAddressFree", &f->free) &&
				   find_function("cuMemCreate", &f->create) &&
				   find_function("cuMemRelease", &f->release) &&
				   find_function("cuMemMap", &f->map) && find_function("cuMemUnmap", &f->unmap) &&
				   find_function("cuMemSetAccess", &f->set_access)
			   ? f
			   : NULL;
}

static const struct driver_functions *
driver(void)
{
	static struct driver_functions functions;
	static const struct driver_functions *found = find_functions(&functions);

	return found;
}

/* What memory of a device is like */
static CUmemAllocationProp
memory_of(const struct cuda_device &device)
{
	CUmemAllocationProp prop = {};

	prop.type = CU_MEM_ALLOCATION_TYPE_PINNED;
	prop.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
	prop.location.id = device.number;
	return prop;
}

/* True if a function of the driver succeeded; if not, fills *error */
static bool
check_driver(struct cuda_device &device, CUresult rc, const char *what, gpuvec_error *error)
{
	if (rc == CUDA_SUCCESS)
		return true;
	return device.check(
		rc == CUDA_ERROR_OUT_OF_MEMORY ? cudaErrorMemoryAllocation : cudaErrorUnknown, what, error);
}

shared_range::~shared_range()
{
	if (base == NULL)
		return;
	for (uint32_t i = 0; i < nmapped; i++)
		driver()->unmap((CUdeviceptr) shard(i), bytes);
	driver()->free((CUdeviceptr) base, nshards * distance);
}

/* Let shard i have memory of a device */
bool
shared_range::map_part(struct cuda_device &device, uint32_t i, gpuvec_error *error)
{
	CUmemAllocationProp prop = memory_of(device);
	CUmemGenericAllocationHandle memory;
	CUresult rc;

	if (!device.enter(error) || !check_driver(device, driver()->create(&memory, bytes, &prop, 0),
											  "allocate GPU memory that GPUs share", error))
		return false;
	rc = driver()->map((CUdeviceptr) shard(i), bytes, 0, memory, 0);
	/* what is mapped stays */
	driver()->release(memory);
	if (!check_driver(device, rc, "map GPU memory that GPUs share", error))
		return false;
	nmapped++;
	return true;
}

bool
shared_range::open(struct cuda_device *const *devices, uint32_t n, size_t shard_distance,
				   size_t shard_bytes, gpuvec_error *error)
{
	static const char *const what = "share GPU memory";
	std::vector<CUmemAccessDesc> access;
	std::vector<int> numbers;
	CUdeviceptr reserved;

	if (!devices[0]->enter(error) ||
		!check_driver(*devices[0],
					  driver()->reserve(&reserved, n * shard_distance, SHARED_PAGE, 0, 0), what,
					  error))
		return false;
	base = (char *) reserved;
	nshards = n;
	distance = shard_distance;
	bytes = divide_up(std::max(shard_bytes, (size_t) 1), SHARED_PAGE) * SHARED_PAGE;
	for (uint32_t i = 0; i < n; i++)
	{
		CUmemAccessDesc desc = {};

		if (!map_part(*devices[i], i, error))
			return false;
		/* a device may be there several times */
		if (std::find(numbers.begin(), numbers.end(), devices[i]->number) != numbers.end())
			continue;
		numbers.push_back(devices[i]->number);
		desc.location = memory_of(*devices[i]).location;
		desc.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
		access.push_back(desc);
	}
	for (uint32_t i = 0; i < n; i++)
		if (!check_driver(
				*devices[i],
				driver()->set_access((CUdeviceptr) shard(i), bytes, access.data(), access.size()),
				what, error))
			return false;
	return true;
}

/* True if a device can read the memory of another */
static bool
has_access(const struct cuda_device &device, const struct cuda_device &other)
{
	int can = 0;

	if (device.number == other.number)
		return true;
	if (cudaDeviceCanAccessPeer(&can, device.number, other.number) != cudaSuccess)
		can = 0;
	cudaGetLastError();
	return can != 0;
}

bool
can_share_range(struct cuda_device *const *devices, uint32_t n)
{
	gpuvec_error ignored;

	if (driver() == NULL)
		return false;
	for (uint32_t i = 0; i < n; i++)
	{
		CUmemAllocationProp prop = memory_of(*devices[i]);
		size_t unit = 0;

		if (driver()->granularity(&unit, &prop, CU_MEM_ALLOC_GRANULARITY_MINIMUM) != CUDA_SUCCESS ||
			unit == 0 || SHARED_PAGE % unit != 0)
			return false;
		for (uint32_t j = 0; j < n; j++)
			if (!has_access(*devices[i], *devices[j]))
				return false;
	}

	/* see whether a small one can be made */
	shared_range range;

	return range.open(devices, n, SHARED_PAGE, SHARED_PAGE, &ignored);
}

} // namespace gpuvec
