/*-------------------------------------------------------------------------
 *
 * search_tuning.cu
 *	  The table of the numbers that decide how a GPU is searched.
 *
 * What each number means is said in search_policy.h.  Beside it here are the
 * lines of test/bench/RESULTS.md that chose it, by section:
 *
 *	 backend	"The CUDA backend alone; 21 November 2026"
 *	 bounds		"What bounds the kernels; 21 November 2026"
 *	 large		"Modes D, F and U, the CUDA backend alone; 23 November 2026"
 *	 bits		"Bit vectors on tensor cores; 23 November 2026"
 *	 filters	"NVIDIA H200: filters; 23 November 2026"
 *	 kernels	"Kernels alone; 21 November 2026", of embedding tables
 *	 vectors	"NVIDIA H200: sparse vectors; 29 November 2026"
 *	 tried		"Tried and dropped", search on the GPU
 *
 * "as in" a section: its figures were measured with the number, but no line
 * has another one beside it.  Whoever changes such a number measures both.
 *
 *-------------------------------------------------------------------------
 */
#include "kernels/device/architecture.h"
#include "kernels/search/search_kernels.h"
#include "kernels/search/search_tuning.h"

namespace gpuvec
{

/* Scans, and what all methods have in common; measured on an H200 */
static constexpr void
set_scans(struct gpuvec_search_policy &p)
{
	p.chunk_queries = 32768; /* as in backend */
	/* as in bounds: 9 of 2,000 queries find no room */
	p.candidates = 16384;
	p.candidates_few = 262144; /* as in backend, 1 query */
	p.candidates_per_k = 8;    /* as in backend */
	/* as in bounds: these 9 are counted once more */
	p.retry_candidates = 262144;
	p.retry_per_k = 8;   /* as in bounds */
	p.entry_bits = 32;   /* bounds: with 16, mode A takes 43 ms */
	p.least_planes = 8;  /* as in bounds: adders of 8 masks */
	p.growth = 8;        /* as in backend, bitset scan, 2000 queries */
	p.growth_few = 16;   /* as in backend, bitset scan, 1 query */
	p.first_rows = 4096; /* as in backend, bitset scan */
	p.first_per_k = 16;  /* as in backend, k = 100 */
	p.item_tiles = 2048; /* as in backend, bitset scan */
	p.grab = 4;          /* as in backend, bitset scan */
	/* vectors: 64 queries 38 ms together, 53 one by one; 16: 25 and 14 */
	p.together_queries = 64;
	p.together_percent = 50; /* as in vectors */
	p.together_numbers = 50; /* as in vectors, small vocabularies */
	p.decode_rows = 16384;   /* tried: one thread decodes the answer */
	p.decode_queries = 32;   /* as in the line of decode_rows */
}

/* Inverted lists; measured on an H200 */
static constexpr void
set_lists(struct gpuvec_search_policy &p)
{
	constexpr uint32_t fractions[GPUVEC_LIST_FRACTIONS] = {96, 88, 80, 64, 48, 32, 16};

	p.list_rows = 16384; /* as in backend */
	/* tried: with more common ids than those of 1/96, counting is no faster */
	for (int i = 0; i < GPUVEC_LIST_FRACTIONS; i++)
		p.list_fractions[i] = fractions[i];
	/* as in bounds: the sample of a lone query */
	p.sample_tiled = 24;
	/* as in bounds: that of mode A takes 1.3 ms */
	p.sample_whole = 6;
	/* as in backend, growth; tried: no sample */
	p.sample_rows = 16;
	/* as in bounds: the near blocks take 0.9 ms */
	p.near_fraction = 16;
	p.near_queries = 48;      /* as in backend, 48 queries */
	p.item_queries = 64;      /* as in backend, 2,000 queries */
	p.whole_item_queries = 8; /* as in backend, A, 2,000 queries */
	p.direct_queries = 48;    /* as in backend, 48 queries */
	/* tried: a lone query by a batch's kernels */
	p.lone_queries = LONE_QUERIES;
	/* backend: lists at 48 queries beside the bitset scan at 48 to 512 */
	p.scan_above = 48;
	p.scan_below = 400;
}

/* Cold numbers and filters; measured on an H200 */
static constexpr void
set_cold_rows(struct gpuvec_search_policy &p)
{
	p.cold_slots = 1024;        /* as in large, D */
	p.cold_slots_most = 262144; /* as in large, D */
	p.cold_spread = 3;          /* as in large, D */
	/* filters, 64 queries: 1,029 us with 85,000 rows, 337 with 25,500 */
	p.gather_rows = 32768;
}

/* Groups by the ids of sets; not measured */
static constexpr void
set_id_groups(struct gpuvec_search_policy &p)
{
	p.id_counters = GPUVEC_HOT_NUMBERS;
	p.id_blocks = UINT32_MAX;
}

/* Bit vectors; measured on an H200 */
static constexpr void
set_bit_vectors(struct gpuvec_search_policy &p)
{
	p.dense_ids = 2048;        /* as in bits, F: fingerprints of 2,048 bits */
	p.dense_rows = 4096;       /* as in bits */
	p.dense_fraction = 256;    /* as in bits, U: 8 to 128 of 2,048 bits */
	p.dense_first_rows = 8192; /* bits, F: in brackets */
	p.dense_growth = 8;        /* as in bits */
	p.dense_unit = 32;         /* bits, U: in brackets */
	p.dense_queries = 48;      /* as in bits: vectors from 128 queries on */
	p.dense_products = 6000;   /* bits: 5.5 ms for 2,000 queries of U */
	p.dense_bytes = 4000;      /* kernels: a copy reaches 3.98 TB/s */
	p.scan_lookups = 1760;     /* bits: 20.7 ms for 2,000 queries of U */
}

static constexpr struct gpuvec_search_policy
hopper_policy(void)
{
	struct gpuvec_search_policy p = {};

	set_scans(p);
	set_lists(p);
	set_cold_rows(p);
	set_id_groups(p);
	set_bit_vectors(p);
	return p;
}

/* As in all sections, of devices of 141 GB */
#define HOPPER_MEMORY 16, (size_t) 2 << 30, 16

static constexpr struct search_tuning tunings[] = {
	{80, false, HOPPER_MEMORY, hopper_policy()},  /* not measured: as 9.0 */
	{86, false, HOPPER_MEMORY, hopper_policy()},  /* not measured: as 9.0 */
	{89, false, HOPPER_MEMORY, hopper_policy()},  /* not measured: as 9.0 */
	{90, true, HOPPER_MEMORY, hopper_policy()},   /* measured on an H200 */
	{100, false, HOPPER_MEMORY, hopper_policy()}, /* not measured: as 9.0 */
};

const struct search_tuning &
search_tuning_of(int capability)
{
	return row_of_capability(tunings, capability);
}

} // namespace gpuvec
