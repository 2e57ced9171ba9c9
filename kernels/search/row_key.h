/*-------------------------------------------------------------------------
 *
 * row_key.h
 *	  The keys of candidates, whose order is the order of results.
 *
 *-------------------------------------------------------------------------
 */
#ifndef GPUVEC_ROW_KEY_H
#define GPUVEC_ROW_KEY_H

#include <cuda_runtime.h>
#include <stdint.h>

#include "core/measure.h"
#include "engine/segment.h"

namespace gpuvec
{

/*
 * The key of a row in the answer to a query.  Ascending order of (hi, lo) is
 * the order of results.  hi is gpuvec_score_key(score).  lo is block number
 * << 32 | line pointer number << KEY_COMMON_BITS | number of common ids (at
 * most 65536).
 *
 * In a view of several mirrors the upper bits of the block number tell the
 * mirror: as many as the largest number of a mirror takes.  No block number of
 * such a view needs these bits (views.cu).
 */
struct __align__(16) row_key
{
	uint64_t hi;
	uint64_t lo;
};

#define KEY_COMMON_BITS 20
#define KEY_COMMON_MASK ((UINT64_C(1) << KEY_COMMON_BITS) - 1)

/* The part of row_key.lo that the row itself determines */
static inline uint64_t
key_from_tid(uint64_t tid)
{
	return (uint64_t) gpuvec_tid_block(tid) << 32 | (uint64_t) gpuvec_tid_line(tid)
														<< KEY_COMMON_BITS;
}

/*
 * The bits of row_key.lo that tell the mirror, whose number takes so many
 * bits; 0: there is one
 */
static inline uint64_t
partition_key(uint64_t number, uint32_t bits)
{
	return bits == 0 ? 0 : number << (64 - bits);
}

/*
 * The tid of a row, from row_key.lo, `bits` of which tell the mirror; what
 * key_from_tid() and partition_key() have put there
 */
static __forceinline__ GPUVEC_HD uint64_t
tid_of_key(uint64_t lo, uint32_t bits)
{
	uint64_t partition = bits == 0 ? 0 : lo >> (64 - bits);

	return gpuvec_tid((uint32_t) (lo << bits >> bits >> 32),
					  lo >> KEY_COMMON_BITS & GPUVEC_MAX_LINE) |
		   gpuvec_partition_tid(partition);
}

static __forceinline__ GPUVEC_HD bool
key_less(uint64_t a_hi, uint64_t a_lo, uint64_t b_hi, uint64_t b_lo)
{
	return a_hi < b_hi || (a_hi == b_hi && a_lo < b_lo);
}

} // namespace gpuvec

#endif /* GPUVEC_ROW_KEY_H */
