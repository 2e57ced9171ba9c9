/*-------------------------------------------------------------------------
 *
 * search_policy.h
 *	  The numbers that decide how a GPU is searched.
 *
 * They trade one cost in time for another, or time for memory.  No answer
 * depends on them.  They are filled in when the backend is opened, by the
 * device's architecture (search_tuning.cu) and its memory.  Tests and
 * benchmarks may set others while no search runs.
 *
 *-------------------------------------------------------------------------
 */
#ifndef GPUVEC_SEARCH_POLICY_H
#define GPUVEC_SEARCH_POLICY_H

#include <stddef.h>
#include <stdint.h>

#include "engine/backend.h"

#ifdef __cplusplus
extern "C"
{
#endif

#define GPUVEC_LIST_FRACTIONS 7

	struct gpuvec_search_policy
	{
		/* bytes of scratch memory for a chunk of queries, at most */
		size_t workspace;
		uint32_t chunk_queries; /* queries per chunk, at most */

		/*
		 * Room for candidates of a query in a round: candidates, or
		 * candidates_per_k * k, if this is more
		 */
		uint32_t candidates;
		/* the same for few queries: they take little memory */
		uint32_t candidates_few;
		uint32_t candidates_per_k;
		uint32_t retry_candidates; /* the same after an overflow */
		uint32_t retry_per_k;

		/* scans */
		/*
		 * queries per batch: 8, 16 or 32; fewer if shared memory does not
		 * suffice
		 */
		uint32_t entry_bits;
		uint32_t least_planes; /* 8, or 17 for all queries */
		uint32_t growth;       /* rows of a round / rows of all rounds before */
		uint32_t growth_few;   /* the same for few batches */
		uint32_t first_rows;   /* rows of the first round: first_rows .. */
		uint32_t first_per_k;  /* .. or first_per_k * k, if this is more */
		uint32_t item_tiles;   /* tiles per item */
		uint32_t grab;         /* tiles that a warp takes at a time */
		/*
		 * from this number of queries on, measures of sparse vectors scan
		 * them together, in rounds with tiles for so many of 100 warps;
		 * from twice as many on if on average a query has more than one of
		 * so many hot numbers
		 */
		uint32_t together_queries;
		uint32_t together_percent;
		uint32_t together_numbers;

		/* building the lists of segments */
		uint32_t list_rows; /* rows that a segment with lists has, at least */
		/*
		 * log2 of the rows of a block, 12 or 16; 0: what suits the segment
		 */
		uint32_t list_shift;

		/*
		 * An id in more than 1 / fraction of the rows is common.  Of these
		 * fractions the first whose bitmaps fit into memory is taken.
		 */
		uint32_t list_fractions[GPUVEC_LIST_FRACTIONS];

		/* counting by lists */
		uint32_t sample_tiled; /* small blocks per query's sample */
		uint32_t sample_whole; /* the same for whole segments */
		uint32_t sample_rows;  /* rows per sampled block, at least */
		/*
		 * one in near_fraction blocks is counted before the others, if there
		 * are more than near_queries queries
		 */
		uint32_t near_fraction;
		uint32_t near_queries;
		uint32_t item_queries;       /* queries per item, in small blocks */
		uint32_t whole_item_queries; /* the same in whole segments */
		/*
		 * up to this number of queries, bitmaps are not staged in shared
		 * memory
		 */
		uint32_t direct_queries;
		/*
		 * up to this number of queries, a thread block counts one query in a
		 * block
		 */
		uint32_t lone_queries;

		/*
		 * Between these two numbers of queries, counting by lists in small
		 * blocks is slower than a scan
		 */
		uint32_t scan_above;
		uint32_t scan_below;

		/* rows that share cold numbers with a query (cold_rows.cu) */
		/*
		 * slots of a query's table: cold_spread times the rows that are
		 * expected, but at least cold_slots, and at most cold_slots_most
		 */
		uint32_t cold_slots;
		uint32_t cold_slots_most;
		uint32_t cold_spread;

		/* counting rows by the ids of their sets (group_ids.cu) */
		/* numbers that are counted in shared memory, at most */
		uint32_t id_counters;
		uint32_t id_blocks; /* thread blocks, at most */

		/* rows that pass a filter are counted one by one up to this number */
		uint32_t gather_rows;
		/* bytes of masks of filters that are kept for later, at most */
		size_t kept_bytes;

		/* bit vectors of segments (dense_bits.cu) */
		/*
		 * segments with this id or a larger one have none, nor have those
		 * with ids above 2,047; 0: no segment has
		 */
		uint32_t dense_ids;
		uint32_t dense_rows; /* rows that a segment with vectors has, at least */
		/* rows have at least one in dense_fraction of all ids on average */
		uint32_t dense_fraction;

		/* counting by bit vectors (dense.cu) */
		uint32_t dense_first_rows; /* as first_rows and growth */
		uint32_t dense_growth;
		uint32_t dense_unit; /* panels of 128 rows that a block takes at a time */
		/*
		 * up to this number of queries, vectors are used only where the method
		 * is forced
		 */
		uint32_t dense_queries;

		/*
		 * What is known of a GPU to choose between bit vectors and scans: only
		 * ratios count
		 */
		uint32_t dense_products; /* products of bits: 10^12 / s */
		uint32_t dense_bytes;    /* reading vectors: 10^9 bytes / s */
		/* ids of rows looked up for a batch of queries: 10^9 / s */
		uint32_t scan_lookups;

		/* decoding of answers */
		/*
		 * from this number of rows on, several threads decode, taking
		 * decode_queries queries at a time
		 */
		uint32_t decode_rows;
		uint32_t decode_queries;
	};

	/* What the last call of topk did */
	struct gpuvec_search_stats
	{
		uint32_t chunks;
		uint32_t rounds;            /* including retries */
		uint32_t overflows;         /* queries that were run again */
		uint32_t retries;           /* rounds that overflowed again, of these queries */
		uint32_t list_chunks;       /* chunks counted by lists */
		uint32_t dense_chunks;      /* chunks counted by bit vectors */
		uint32_t together_rounds;   /* rounds that scanned queries together */
		uint32_t masked_rounds;     /* of these, with one mask for all */
		uint32_t lone_chunks;       /* chunks whose queries were kernel parameters */
		uint32_t own_rounds;        /* rounds in which each query had blocks of its own */
		uint32_t plain_rounds;      /* rounds that counted in bytes */
		uint32_t plain_lone_rounds; /* of these, with few queries (LONE_QUERIES) */
		/*
		 * of overflows: those in chunks whose last kernel wrote to the host
		 */
		uint32_t direct_overflows;
		uint32_t cold_rounds;    /* rounds that began with rows by cold numbers */
		uint32_t cold_full;      /* queries, in rounds, whose tables were too small */
		uint32_t filters;        /* different ones */
		uint32_t kept_filters;   /* of these, whose masks were kept */
		uint32_t gathered;       /* queries whose rows were counted one by one */
		uint32_t counts;         /* queries that counted rows, .. */
		uint32_t every_counts;   /* .. all that take part, .. */
		uint32_t list_counts;    /* .. kernels that did this by lists, .. */
		uint32_t cold_counts;    /* .. of them queries with cold numbers, .. */
		uint32_t grouped_counts; /* .. those that put rows into groups, .. */
		uint32_t wide_groups;    /* .. in bins beyond shared memory, .. */
		uint32_t merged_groups;  /* .. or whose bins the device merged, .. */
		uint32_t row_groups;     /* .. or whose rows the host put there, .. */
		uint32_t id_groups;      /* .. or by the ids of sets, .. */
		uint32_t global_ids;     /* .. some of them beyond shared memory, .. */
		uint32_t refused_counts; /* .. and those that were not answered */
		uint32_t overlap_steps;  /* in which pairs of queries were counted */
		uint32_t stopped_chunks; /* chunks that were canceled while they ran */
		uint32_t entry_bits;     /* of the last chunk */
		uint32_t planes;
	};

	/*
	 * For a backend that gpuvec_cuda_open() has opened, while no search runs
	 * on it
	 */
	extern struct gpuvec_search_policy
	gpuvec_search_policy_get(gpuvec_backend *backend);
	extern void
	gpuvec_search_policy_set(gpuvec_backend *backend, const struct gpuvec_search_policy *policy);
	extern struct gpuvec_search_stats
	gpuvec_search_last(gpuvec_backend *backend);

#ifdef __cplusplus
}
#endif

#endif /* GPUVEC_SEARCH_POLICY_H */
