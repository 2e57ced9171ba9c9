/*-------------------------------------------------------------------------
 *
 * checksum.h
 *	  Checksums of search results, and the reference values to compare with.
 *
 * A document is named by its position in setgen.h's order, and ties in score
 * go to the smaller position.  index_sum adds all positions, score_sum all
 * scores, and index_fnv is FNV-1a over the positions as 32-bit words, query
 * by query, best first.  The reference values were made elsewhere, with
 * another program; those of sets are for 8,500,000 documents, seed 12345 and
 * k = 100.
 *
 *-------------------------------------------------------------------------
 */
#ifndef GPUVEC_BENCH_CHECKSUM_H
#define GPUVEC_BENCH_CHECKSUM_H

#include <cinttypes>
#include <cmath>
#include <cstdint>
#include <cstdio>

struct Checksum
{
	uint64_t	index_sum = 0;
	double		score_sum = 0;
	uint64_t	index_fnv = UINT64_C(1469598103934665603);
	uint64_t	count = 0;

	/* Add the next result */
	void
	add(uint64_t position, double score)
	{
		index_sum += position;
		score_sum += score;
		index_fnv = (index_fnv ^ (uint32_t) position) * UINT64_C(1099511628211);
		count++;
	}
};

struct Reference
{
	char		mode;
	uint64_t	n_queries;
	uint64_t	index_sum;
	double		score_sum;
	uint64_t	index_fnv;
};

static const Reference references[] = {
	{'A', 2000, UINT64_C(685514910045), 10662.893739736, UINT64_C(0x2f219f1b974c0a18)},
	{'B', 2000, UINT64_C(812411049559), 55225.880760818, UINT64_C(0x792a4b3df8eb9746)},
	{'C', 2000, UINT64_C(802147643660), 55476.889871980, UINT64_C(0x9e16990b4f51ea55)},
	{'A', 3, UINT64_C(854685589), 17.229769369, UINT64_C(0x4555b3d93ceaa37c)},
	{'B', 3, UINT64_C(1224219435), 80.995266547, UINT64_C(0xabf7fc00b6d21c16)},
	{'C', 3, UINT64_C(391132778), 77.551313963, UINT64_C(0x7514df5c8cded821)},
};

/* The reference for a run, or NULL if there is none */
static inline const Reference *
find_reference(const gen::Config &config, uint64_t k)
{
	if (config.n_docs != 8500000 || config.seed != 12345 || k != 100 ||
		config.vocab != 0 || config.zipf_s >= 0)
		return nullptr;
	for (const Reference &reference : references)
		if (reference.mode == config.mode && reference.n_queries == config.n_queries)
			return &reference;
	return nullptr;
}

/* Those of mode S of sparsegen.h with seed 12345, by inner product */
struct SparseReference
{
	uint64_t	n_rows;
	uint64_t	n_queries;
	uint64_t	k;
	double		zq;
	uint64_t	index_sum;
	double		score_sum;
	uint64_t	index_fnv;
};

static const SparseReference sparse_references[] = {
	{200000, 200, 10, 0.6, UINT64_C(200738252), 13494.888215065, UINT64_C(0x81faf34ed66ee2d1)},
	{200000, 200, 1000, 0.8, UINT64_C(19986710312), 849043.260223389, UINT64_C(0x396dacc184cb54b5)},
};

static inline const SparseReference *
find_sparse_reference(uint64_t n_rows, uint64_t n_queries, uint64_t k, double zq)
{
	for (const SparseReference &r : sparse_references)
		if (r.n_rows == n_rows && r.n_queries == n_queries && r.k == k && r.zq == zq)
			return &r;
	return nullptr;
}

/* Sums of float8 depend on the order of addition in their last digits */
static inline bool
same_sum(double a, double b)
{
	return std::fabs(a - b) <= 1e-10 * (std::fabs(a) + std::fabs(b));
}

template <class R>
static inline bool
matches_reference(const Checksum &sum, const R &reference)
{
	return sum.index_sum == reference.index_sum &&
		sum.index_fnv == reference.index_fnv &&
		same_sum(sum.score_sum, reference.score_sum);
}

#endif							/* GPUVEC_BENCH_CHECKSUM_H */
