/*-------------------------------------------------------------------------
 *
 * keys.cu
 *	  Hash tables from the keys of embedding tables to their slots.
 *
 * The tables use open addressing with linear probing.  An entry's slot says
 * whether the entry is in use, so that every key is legal.  A table has 8
 * entries for every 5 slots of the bank, and at most 3 of 4 entries are ever
 * in use, so that searches end soon.  A deleted key keeps its entry until the
 * table is cleared: the key may come back, and keys behind it must still be
 * found.
 *
 * One thread enters one key.  All keys that are entered by one kernel are
 * different.  So a thread does not wait for an entry that another thread is
 * filling: that entry is not for its key.
 *
 * The host decides about keys with several rows, and about rows on pages that
 * are not known to be all-visible.  For these a search returns
 * GPUVEC_ASK_SLOT.
 *
 *-------------------------------------------------------------------------
 */
#include <algorithm>

#include "kernels/embedding/cuda_embedding.h"

namespace gpuvec
{

#define THREADS 256
#define SPARE_ENTRIES 64

/* Special values of an entry's slot, besides GPUVEC_ASK_SLOT */
#define EMPTY GPUVEC_NO_SLOT
#define GONE (UINT32_MAX - 2)
#define FILLING (UINT32_MAX - 3)

struct enter_params
{
	struct key_entry *entries;
	uint64_t nentries;
	const gpuvec_key_row *rows;
	uint64_t n;
};

struct find_params
{
	const struct key_entry *entries;
	uint64_t nentries;
	const int64_t *keys;
	uint64_t n;
	const uint32_t *proven;
	uint32_t nblocks;
	uint32_t *slots;
};

/* The finalizer of SplitMix64 (Steele, Lea, Flood, OOPSLA 2014) */
static __device__ __forceinline__ uint64_t
hash_key(int64_t key)
{
	uint64_t z = (uint64_t) key + UINT64_C(0x9E3779B97F4A7C15);

	z = (z ^ z >> 30) * UINT64_C(0xBF58476D1CE4E5B9);
	z = (z ^ z >> 27) * UINT64_C(0x94D049BB133111EB);
	return z ^ z >> 31;
}

/* The entry at which the search for a key begins */
static __device__ __forceinline__ uint64_t
first_entry(int64_t key, uint64_t nentries)
{
	return (uint64_t) ((unsigned __int128) hash_key(key) * nentries >> 64);
}

/* Enter keys */
static __global__ void
__launch_bounds__(THREADS) enter_kernel(const __grid_constant__ struct enter_params p)
{
	uint64_t i = (uint64_t) blockIdx.x * THREADS + threadIdx.x;
	gpuvec_key_row row;

	if (i >= p.n)
		return;
	row = p.rows[i];
	for (uint64_t at = first_entry(row.key, p.nentries);; at = at + 1 < p.nentries ? at + 1 : 0)
	{
		volatile struct key_entry *entry = p.entries + at;
		uint32_t slot = entry->slot;

		if (slot == EMPTY)
		{
			if (row.slot == GPUVEC_NO_SLOT)
				return;
			slot = atomicCAS(&p.entries[at].slot, EMPTY, FILLING);
			if (slot == EMPTY)
			{
				entry->key = row.key;
				entry->block = row.block;
				__threadfence();
				entry->slot = row.slot;
				return;
			}
		}
		if (slot == FILLING)
			continue;
		__threadfence();
		if (entry->key == row.key)
		{
			entry->block = row.block;
			entry->slot = row.slot == GPUVEC_NO_SLOT ? GONE : row.slot;
			return;
		}
	}
}

/* Find the slots of keys */
static __global__ void
__launch_bounds__(THREADS) find_kernel(const __grid_constant__ struct find_params p)
{
	uint64_t i = (uint64_t) blockIdx.x * THREADS + threadIdx.x;
	uint32_t result = GPUVEC_NO_SLOT;
	int64_t key;

	if (i >= p.n)
		return;
	key = p.keys[i];
	for (uint64_t at = first_entry(key, p.nentries);; at = at + 1 < p.nentries ? at + 1 : 0)
	{
		uint4 raw = __ldg((const uint4 *) (p.entries + at));
		uint32_t slot = raw.z;
		uint32_t block = raw.w;

		if (slot == EMPTY)
			break;
		if (((uint64_t) raw.y << 32 | raw.x) != (uint64_t) key)
			continue;
		if (slot == GONE)
			break;
		result = slot;
		if (slot != GPUVEC_ASK_SLOT &&
			!(block < p.nblocks && p.proven[block / 32] >> block % 32 & 1))
			result = GPUVEC_ASK_SLOT;
		break;
	}
	p.slots[i] = result;
}

/* Number of entries of a bank with room for a number of slots */
uint64_t
key_entries(uint32_t capacity)
{
	return (uint64_t) capacity / 5 * 8 + SPARE_ENTRIES;
}

uint64_t
keys_limit(const gpuvec_device_bank *bank)
{
	return key_entries(bank->capacity) / 4 * 3;
}

/* Number of keys that are sent at a time */
static uint64_t
chunk_keys(const struct embedding_policy &policy)
{
	return policy.pinned_bytes / sizeof(gpuvec_key_row);
}

bool
keys_clear(gpuvec_vectors *vectors, gpuvec_device_bank *bank, gpuvec_error *error)
{
	struct cuda_embedding &e = embedding_of(vectors);
	worker_loan worker = e.take_worker(error);
	size_t bytes = key_entries(bank->capacity) * sizeof(struct key_entry);

	/* EMPTY has all bits set */
	return worker && worker->finish(e.device.check(cudaMemsetAsync(bank->arrays.entries, 0xFF,
																   bytes, worker->streams[0].get()),
												   "clear keys on the GPU", error),
									error);
}

/* Queue the entering of n keys, at most chunk_keys() */
static bool
map_chunk(struct cuda_embedding &e, staged_stream &stream, const gpuvec_device_bank *bank,
		  const gpuvec_key_row *rows, uint64_t n, gpuvec_error *error)
{
	struct enter_params params = {};
	unique_memory memory;

	if (!e.allocate(memory, stream, n * sizeof(*rows), "keys", error))
		return false;
	params.entries = bank->arrays.entries;
	params.nentries = key_entries(bank->capacity);
	params.rows = (const gpuvec_key_row *) memory.get();
	params.n = n;
	return e.send(stream, memory.get(), rows, n * sizeof(*rows), error) &&
		   e.device.check(
			   launch(enter_kernel, divide_up(n, THREADS), THREADS, 0, stream.get(), params),
			   "enter keys on the GPU", error);
}

bool
keys_map(gpuvec_vectors *vectors, gpuvec_device_bank *bank, const gpuvec_key_row *rows, uint64_t n,
		 gpuvec_error *error)
{
	struct cuda_embedding &e = embedding_of(vectors);
	worker_loan worker = e.take_worker(error);
	uint64_t most = chunk_keys(e.policy);
	bool ok = true;

	if (!worker)
		return false;
	for (uint64_t at = 0; ok && at < n; at += most)
		ok = map_chunk(e, worker->streams[0], bank, rows + at, std::min(n - at, most), error);
	return worker->finish(ok, error);
}

/*
 * Cut memory into the arrays of a search; nwords: words of the bitmap of
 * proven pages
 */
static void
take_search(struct arena *arena, uint64_t n, uint64_t nwords, struct find_params *params)
{
	params->keys = arena->take<int64_t>(n);
	params->slots = arena->take<uint32_t>(n);
	params->proven = arena->take<uint32_t>(nwords);
}

/*
 * Queue the search for n keys from `first` on.  Their slots are in the
 * caller's array after finish().
 */
static bool
find_chunk(struct cuda_embedding &e, staged_stream &stream, const gpuvec_device_bank *bank,
		   const gpuvec_key_search *search, uint64_t first, uint64_t n, gpuvec_error *error)
{
	uint64_t nwords = divide_up(search->nblocks, 32);
	struct find_params params = {};
	struct arena arena = {NULL, 0};
	unique_memory memory;

	take_search(&arena, n, nwords, &params);
	if (!e.allocate(memory, stream, arena.used, "keys", error))
		return false;
	arena = {(char *) memory.get(), 0};
	take_search(&arena, n, nwords, &params);
	params.nblocks = search->nblocks;
	params.entries = bank->arrays.entries;
	params.nentries = key_entries(bank->capacity);
	params.n = n;
	return e.send(stream, (void *) params.keys, search->keys + first, n * sizeof(int64_t), error) &&
		   e.send(stream, (void *) params.proven, search->proven, nwords * sizeof(uint32_t),
				  error) &&
		   e.device.check(
			   launch(find_kernel, divide_up(n, THREADS), THREADS, 0, stream.get(), params),
			   "find keys on the GPU", error) &&
		   e.fetch(stream, search->slots + first, params.slots, n * sizeof(uint32_t), error);
}

bool
keys_find(gpuvec_vectors *vectors, gpuvec_device_bank *bank, const gpuvec_key_search *search,
		  gpuvec_error *error)
{
	struct cuda_embedding &e = embedding_of(vectors);
	uint64_t most = chunk_keys(e.policy);
	worker_loan worker = e.take_worker(error);
	bool ok = true;

	if (!worker)
		return false;
	for (uint64_t at = 0, i = 0; ok && at < search->nkeys && !is_canceled(search->canceled);
		 at += most, i++)
	{
		staged_stream &stream = worker->streams[i % 2];

		ok = e.finish(stream, error) &&
			 find_chunk(e, stream, bank, search, at, std::min(search->nkeys - at, most), error);
	}
	return worker->finish(ok, error);
}

} // namespace gpuvec
