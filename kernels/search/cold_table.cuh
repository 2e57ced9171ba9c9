/*-------------------------------------------------------------------------
 *
 * cold_table.cuh
 *	  Finding cold postings, and the table of a query's rows (cold_rows.cu).
 *
 * A table is a hash table with linear probing.  A row's key there is the part
 * of row_key.lo that comes from its tid: no two live rows have the same.
 *
 *-------------------------------------------------------------------------
 */
#ifndef GPUVEC_COLD_TABLE_CUH
#define GPUVEC_COLD_TABLE_CUH

#include "kernels/search/search_kernels.h"

namespace gpuvec
{

/* The first of postings from .. upto - 1 with at least this lower half */
static __forceinline__ GPUVEC_HD uint32_t
first_low(const struct device_cold &cold, uint32_t from, uint32_t upto, uint32_t low)
{
	while (from < upto)
	{
		uint32_t middle = from + (upto - from) / 2;

		if (cold.low[middle] < low)
			from = middle + 1;
		else
			upto = middle;
	}
	return from;
}

/* The postings of a number: the first one, and how many there are */
static __forceinline__ GPUVEC_HD uint2
find_postings(const struct device_cold &cold, uint32_t number)
{
	uint32_t lo = 0;
	uint32_t hi = cold.ngroups;
	uint32_t low = number & 0xFFFF;
	uint32_t from;
	uint32_t upto;
	uint32_t step = 1;

	while (lo < hi)
	{
		uint32_t middle = lo + (hi - lo) / 2;

		if (cold.groups[middle].x < number >> 16)
			lo = middle + 1;
		else
			hi = middle;
	}
	if (lo == cold.ngroups || cold.groups[lo].x != number >> 16)
		return make_uint2(0, 0);
	upto = cold.groups[lo + 1].y;
	from = first_low(cold, cold.groups[lo].y, upto, low);

	/* most numbers have few postings: look near the first one for the end */
	while (step <= upto - from && cold.low[from + step - 1] == low)
		step *= 2;
	if (step <= upto - from)
		upto = from + step;
	return make_uint2(from, first_low(cold, from + step / 2, upto, low + 1) - from);
}

/* A row's own slot in a table of nslots */
static __forceinline__ GPUVEC_HD uint32_t
cold_slot(uint64_t key, uint32_t nslots)
{
	uint64_t hash = (key >> KEY_COMMON_BITS) * UINT64_C(0x9E3779B97F4A7C15);

	hash = (hash ^ hash >> 32) * UINT64_C(0xD6E8FEB86659FD93);
	return (uint32_t) ((hash >> 32) * nslots >> 32);
}

static __forceinline__ GPUVEC_HD uint32_t
next_cold_slot(uint32_t slot, uint32_t nslots)
{
	return slot + 1 == nslots ? 0 : slot + 1;
}

/*
 * Count one more number that a row shares with the query whose table it is.
 * Returns false if there is no room.
 */
static __device__ __forceinline__ bool
count_cold(const struct cold_tables &tables, const struct query_state *query, uint64_t key,
		   uint32_t segment, uint32_t row)
{
	unsigned long long *keys = tables.keys + query->table;
	uint2 *places = tables.places + query->table;
	uint32_t nslots = query->nslots;
	uint32_t slot = cold_slot(key, nslots);

	for (uint32_t i = 0; i < tables.probes; i++)
	{
		unsigned long long found = atomicCAS(&keys[slot], COLD_FREE, (unsigned long long) key);

		if (found == COLD_FREE)
		{
			places[slot].x = segment;
			atomicAdd(&places[slot].y, row << 16);
			return true;
		}
		if (found == key)
		{
			atomicAdd(&places[slot].y, 1);
			return true;
		}
		slot = next_cold_slot(slot, nslots);
	}
	return false;
}

/*
 * True if a candidate is a row of the query's table, but was counted by its
 * hot numbers only.  All of them are fewer than what the table has, which
 * counts a cold one at least.
 */
static __device__ __forceinline__ bool
counted_too_low(const struct cold_tables &tables, const struct query_state *query,
				const struct row_key &candidate)
{
	uint64_t key = candidate.lo & ~KEY_COMMON_MASK;
	uint32_t common = (uint32_t) (candidate.lo & KEY_COMMON_MASK);
	uint32_t slot = cold_slot(key, query->nslots);

	for (uint32_t i = 0; i < tables.probes; i++)
	{
		unsigned long long found = tables.keys[query->table + slot];

		if (found == COLD_FREE)
			return false;
		if (found == key)
			return common != (tables.places[query->table + slot].y & 0xFFFF) + 1;
		slot = next_cold_slot(slot, query->nslots);
	}
	return false;
}

} // namespace gpuvec

#endif /* GPUVEC_COLD_TABLE_CUH */
