/*-------------------------------------------------------------------------
 *
 * embedding_tuning.cu
 *	  The tables of the numbers that decide how embedding tables are served.
 *
 * What each number means is said in pooling_kernels.h and embedding_policy.h.
 * Beside it here are the lines of test/bench/RESULTS.md that chose it, by
 * section:
 *
 *	 kernels	"Kernels alone; 21 November 2026"
 *	 service	"The backend's service; 21 November 2026"
 *	 tried		"Tried and dropped", embedding kernels
 *
 * "as in" a section: its figures were measured with the number, but no line
 * has another one beside it.  Whoever changes such a number measures both.
 *
 *-------------------------------------------------------------------------
 */
#include "kernels/device/architecture.h"
#include "kernels/embedding/embedding_policy.h"

namespace gpuvec
{

/* Measured on an H200 */
static constexpr struct pooling_policy
hopper_pooling(void)
{
	struct pooling_policy p = {};

	/* tried: blocks of one warp, Zipf */
	p.threads = 64;
	/* as in kernels; tried: rows a block */
	p.gather_threads = 128;
	p.least_range = 1;        /* as in kernels */
	p.most_range = 16;        /* as in kernels, 1 key a bag */
	p.least_vector_bytes = 1; /* as in kernels */
	/* as in kernels; tried: half as many lanes */
	p.most_vector_bytes = 16;
	p.slice_bytes = 512;   /* as in kernels, width 256 */
	p.slice_major = false; /* as in kernels, width 256 */
	/* tried: gradients by whole rows */
	p.grad_slice_major = true;
	/* tried: no call waits for the one before */
	p.chained = true;
	/* tried: single keys by registers, 128 bytes */
	p.bulk_min_row = 128;
	/* tried: single keys by registers, 1,024 bytes */
	p.bulk_max_row = 2048;
	p.bulk_max_result = (uint64_t) 128 << 20; /* tried: above 128 MB */
	/* all; others are for the benchmark */
	p.grad_stages = 3;
	return p;
}

/* Measured on an H200 */
static constexpr struct embedding_policy
hopper_service(void)
{
	struct embedding_policy p = {};

	p.pooling = hopper_pooling();
	p.pinned_bytes = (size_t) 8 << 20;      /* as in service */
	p.record_bytes = (size_t) 4 << 20;      /* as in service */
	p.chunk_slots = (uint64_t) 1 << 20;     /* as in service, 16 keys a bag */
	p.chunk_bags = (uint64_t) 1 << 19;      /* as in service */
	p.more_candidates = 65536;              /* as in service, 10 nearest */
	p.candidate_bytes = (size_t) 128 << 20; /* as in service, 100 queries */
	return p;
}

/* A row of the table */
struct embedding_tuning
{
	int capability; /* compute capability * 10 */
	struct embedding_policy policy;
};

static constexpr struct embedding_tuning tunings[] = {
	{80, hopper_service()},  /* not measured: as 9.0 */
	{86, hopper_service()},  /* not measured: as 9.0 */
	{89, hopper_service()},  /* not measured: as 9.0 */
	{90, hopper_service()},  /* measured on an H200 */
	{100, hopper_service()}, /* not measured: as 9.0 */
};

struct embedding_policy
embedding_policy_of(int capability)
{
	return row_of_capability(tunings, capability).policy;
}

} // namespace gpuvec
