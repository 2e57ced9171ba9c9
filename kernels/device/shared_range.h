/*-------------------------------------------------------------------------
 *
 * shared_range.h
 *	  A range of addresses with memory of several devices, which all of them
 *	  read and write.
 *
 * The range has a shard for each device, at equal distances.  Only the
 * beginning of a shard has memory, that of its device.
 *
 * It takes the virtual memory management of the driver (compute capability
 * 7.0 and later, not on every system), and peer access between the devices.
 *
 *-------------------------------------------------------------------------
 */
#ifndef GPUVEC_SHARED_RANGE_H
#define GPUVEC_SHARED_RANGE_H

#include <stdint.h>

#include "kernels/device/cuda_device.h"

namespace gpuvec
{

/* Memory is mapped in units of this many bytes */
static constexpr size_t SHARED_PAGE = (size_t) 2 << 20;

class shared_range
{
public:
	shared_range() = default;
	shared_range(const shared_range &) = delete;
	shared_range &
	operator=(const shared_range &) = delete;
	~shared_range();

	/*
	 * Reserve a range for n devices, with memory for the first `bytes` of
	 * each shard.  distance is a multiple of SHARED_PAGE.
	 */
	bool
	open(struct cuda_device *const *devices, uint32_t n, size_t distance, size_t bytes,
		 gpuvec_error *error);

	/* The beginning of shard i */
	char *
	shard(uint32_t i) const
	{
		return base + i * distance;
	}

private:
	bool
	map_part(struct cuda_device &device, uint32_t i, gpuvec_error *error);

	char *base = NULL;
	size_t bytes = 0; /* of the memory of each shard */
	size_t distance = 0;
	uint32_t nshards = 0;
	uint32_t nmapped = 0; /* shards that have memory */
};

/* True if these devices can have such a range */
extern bool
can_share_range(struct cuda_device *const *devices, uint32_t n);

} // namespace gpuvec

#endif /* GPUVEC_SHARED_RANGE_H */
