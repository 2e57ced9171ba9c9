/*-------------------------------------------------------------------------
 *
 * keys.cu
 *	  Hash tables from the keys of embedding tables to their slots.
 *
 * Open addressing with linear probing.  Whether an entry is in use is told by its slot, so
 * that all keys are legal.  There are 8 entries for 5 slots of the bank, of which at most 3 of
 * 4 are ever in use, so that searches end soon.  A key that is gone keeps its entry until the
 * table is cleared: it may come again, and keys behind it are still found.
 *
 * Keys are entered by a thread each.  Since all that are entered at a time are different, a
 * thread need not wait for an entry that another is just filling: it is not its own.
 *
 * What the host has to decide about is not decided here: keys with several rows, and rows of
 * pages of which it is not known that all of their rows are visible.
 *
 *-------------------------------------------------------------------------
 */
#include <algorithm>

#include "kernels/embedding/cuda_vectors.h"

#define THREADS			256
#define SPARE_ENTRIES	64

/* Slots of entries that have none; GPUVEC_ASK_SLOT is another one */
#define EMPTY			GPUVEC_NO_SLOT
#define GONE			(UINT32_MAX - 2)
#define FILLING			(UINT32_MAX - 3)

/* Keys that are sent at a time */
#define CHUNK_KEYS		(VECTORS_PINNED / sizeof(gpuvec_key_row))

struct enter_params
{
	struct key_entry *entries;
	uint64_t	nentries;
	const gpuvec_key_row *places;
	uint64_t	n;
};

struct find_params
{
	const struct key_entry *entries;
	uint64_t	nentries;
	const int64_t *keys;
	uint64_t	n;
	const uint32_t *proven;
	uint32_t	nblocks;
	uint32_t   *slots;
};

/* The finalizer of SplitMix64 (Steele, Lea, Flood, OOPSLA 2014) */
static __device__ __forceinline__ uint64_t
hash_key(int64_t key)
{
	uint64_t	z = (uint64_t) key + UINT64_C(0x9E3779B97F4A7C15);

	z = (z ^ z >> 30) * UINT64_C(0xBF58476D1CE4E5B9);
	z = (z ^ z >> 27) * UINT64_C(0x94D049BB133111EB);
	return z ^ z >> 31;
}

/* The entry where the search for a key begins */
static __device__ __forceinline__ uint64_t
first_entry(int64_t key, uint64_t nentries)
{
	return (uint64_t) ((unsigned __int128) hash_key(key) * nentries >> 64);
}

/* Enter keys */
static __global__ void __launch_bounds__(THREADS)
enter_kernel(const __grid_constant__ struct enter_params p)
{
	uint64_t	i = (uint64_t) blockIdx.x * THREADS + threadIdx.x;
	gpuvec_key_row place;

	if (i >= p.n)
		return;
	place = p.places[i];
	for (uint64_t at = first_entry(place.key, p.nentries);; at = at + 1 < p.nentries ? at + 1 : 0)
	{
		volatile struct key_entry *entry = p.entries + at;
		uint32_t	slot = entry->slot;

		if (slot == EMPTY)
		{
			if (place.slot == GPUVEC_NO_SLOT)
				return;
			slot = atomicCAS(&p.entries[at].slot, EMPTY, FILLING);
			if (slot == EMPTY)
			{
				entry->key = place.key;
				entry->block = place.block;
				__threadfence();
				entry->slot = place.slot;
				return;
			}
		}
		if (slot == FILLING)
			continue;
		__threadfence();
		if (entry->key == place.key)
		{
			entry->block = place.block;
			entry->slot = place.slot == GPUVEC_NO_SLOT ? GONE : place.slot;
			return;
		}
	}
}

/* Find the slots of keys */
static __global__ void __launch_bounds__(THREADS)
find_kernel(const __grid_constant__ struct find_params p)
{
	uint64_t	i = (uint64_t) blockIdx.x * THREADS + threadIdx.x;
	uint32_t	result = GPUVEC_NO_SLOT;
	int64_t		key;

	if (i >= p.n)
		return;
	key = p.keys[i];
	for (uint64_t at = first_entry(key, p.nentries);; at = at + 1 < p.nentries ? at + 1 : 0)
	{
		uint4		raw = __ldg((const uint4 *) (p.entries + at));
		uint32_t	slot = raw.z;
		uint32_t	block = raw.w;

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

/* How many entries a bank with room for so many slots has */
uint64_t
key_entries(uint32_t room)
{
	return (uint64_t) room / 5 * 8 + SPARE_ENTRIES;
}

uint64_t
cuda_key_limit(const gpuvec_device_bank *bank)
{
	return key_entries(bank->room) / 4 * 3;
}

bool
cuda_clear_keys(gpuvec_vectors *vectors, gpuvec_device_bank *bank, gpuvec_error *error)
{
	struct cuda_vectors *v = (struct cuda_vectors *) vectors;
	struct vector_worker *worker = take_worker(v, error);
	bool		ok;

	if (worker == NULL)
		return false;
	/* EMPTY has all bits set */
	ok = cuda_check(v->b, cudaMemsetAsync(bank->entries, 0xFF, key_entries(bank->room) * sizeof(struct key_entry),
										  worker->halves[0].stream), "clear keys on the GPU", error);
	return end_work(v, worker, ok, error);
}

/* Queue the entering of at most CHUNK_KEYS keys */
static bool
map_some(struct cuda_vectors *v, struct vector_half *half, const gpuvec_device_bank *bank,
		 const gpuvec_key_row *places, uint64_t n, gpuvec_error *error)
{
	struct enter_params params = {};
	void	   *memory;
	bool		ok;

	if (!half_alloc(v, half, &memory, n * sizeof(*places), "keys", error))
		return false;
	params.entries = bank->entries;
	params.nentries = key_entries(bank->room);
	params.places = (const gpuvec_key_row *) memory;
	params.n = n;
	ok = send_up(v, half, memory, places, n * sizeof(*places), error) &&
		cuda_check(v->b, pooling_launch(enter_kernel, pooling_divide_up(n, THREADS), THREADS, params, half->stream),
				   "enter keys on the GPU", error);
	device_free(v->b, memory, half->stream);
	return ok;
}

bool
cuda_map_keys(gpuvec_vectors *vectors, gpuvec_device_bank *bank, const gpuvec_key_row *places,
			  uint64_t n, gpuvec_error *error)
{
	struct cuda_vectors *v = (struct cuda_vectors *) vectors;
	struct vector_worker *worker = take_worker(v, error);
	bool		ok = worker != NULL;

	for (uint64_t at = 0; ok && at < n; at += CHUNK_KEYS)
		ok = map_some(v, &worker->halves[0], bank, places + at, std::min(n - at, (uint64_t) CHUNK_KEYS), error);
	return worker != NULL && end_work(v, worker, ok, error);
}

/* Queue the search for the keys from `first` on; finish() puts their slots where they belong */
static bool
find_some(struct cuda_vectors *v, struct vector_half *half, const gpuvec_device_bank *bank,
		  const gpuvec_key_search *search, uint64_t first, uint64_t n, gpuvec_error *error)
{
	size_t		proven_bytes = (search->nblocks + (size_t) 31) / 32 * sizeof(uint32_t);
	struct find_params params = {};
	struct pooling_area area = {NULL, 0};
	void	   *memory;
	bool		ok;

	area.take<int64_t>(n);
	area.take<uint32_t>(n);
	area.take<char>(proven_bytes);
	if (!half_alloc(v, half, &memory, area.used, "keys", error))
		return false;
	area = {(char *) memory, 0};
	params.keys = area.take<int64_t>(n);
	params.slots = area.take<uint32_t>(n);
	params.proven = (const uint32_t *) area.take<char>(proven_bytes);
	params.nblocks = search->nblocks;
	params.entries = bank->entries;
	params.nentries = key_entries(bank->room);
	params.n = n;
	ok = send_up(v, half, (void *) params.keys, search->keys + first, n * sizeof(int64_t), error) &&
		send_up(v, half, (void *) params.proven, search->proven, proven_bytes, error) &&
		cuda_check(v->b, pooling_launch(find_kernel, pooling_divide_up(n, THREADS), THREADS, params, half->stream),
				   "find keys on the GPU", error) &&
		fetch(v, half, search->slots + first, params.slots, n * sizeof(uint32_t), error);
	device_free(v->b, memory, half->stream);
	return ok;
}

bool
cuda_find_keys(gpuvec_vectors *vectors, gpuvec_device_bank *bank, const gpuvec_key_search *search,
			   gpuvec_error *error)
{
	struct cuda_vectors *v = (struct cuda_vectors *) vectors;
	struct vector_worker *worker = take_worker(v, error);
	bool		ok = worker != NULL;

	for (uint64_t at = 0, i = 0; ok && at < search->nkeys && !is_canceled(search->canceled); at += CHUNK_KEYS, i++)
	{
		struct vector_half *half = &worker->halves[i % 2];

		ok = finish(v, half, error) &&
			find_some(v, half, bank, search, at, std::min(search->nkeys - at, (uint64_t) CHUNK_KEYS), error);
	}
	return worker != NULL && end_work(v, worker, ok, error);
}
