/*-------------------------------------------------------------------------
 *
 * search_policy.h
 *	  How a GPU is searched: the numbers that trade time for time, or for
 *	  memory.
 *	  No answer depends on them.
 *
 * They are filled in when the backend is opened.  Tests and measurements may
 * set others while no search runs.
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

#define GPUVEC_LIST_PARTS 7

	struct gpuvec_search_policy
	{
		size_t workspace;       /* bytes of scratch memory that a chunk of queries may take */
		uint32_t chunk_queries; /* queries that are worked on together, at most */

		/*
		 * room for candidates of a query and round: candidates, or
		 * candidates_per_k * k, if more
		 */
		uint32_t candidates;
		uint32_t candidates_few; /* the same for few queries: memory is no matter then */
		uint32_t candidates_per_k;
		uint32_t retry_candidates; /* the same after an overflow */
		uint32_t retry_per_k;

		/* scans */
		uint32_t entry_bits;   /* 8, 16 or 32 queries in a batch, if shared memory suffices */
		uint32_t least_planes; /* 8, or 17 for all queries */
		uint32_t growth;       /* rows of a round : rows of all before */
		uint32_t growth_few;   /* the same if there are few batches */
		uint32_t first_rows;   /* rows of the first round: first_rows, .. */
		uint32_t first_per_k;  /* .. or first_per_k * k, if more */
		uint32_t item_tiles;   /* tiles of a work item */
		uint32_t grab;         /* tiles that a warp takes at a time */

		/* making lists of segments */
		uint32_t list_rows;  /* rows from which on a segment has lists */
		uint32_t list_shift; /* 12 or 16: the blocks of all lists; 0: what suits a segment */

		/*
		 * An id in more than 1 / part of the rows is common: the first of
		 * these parts whose bitmaps fit
	 */
		uint32_t list_parts[GPUVEC_LIST_PARTS];

		/* counting by lists */
		uint32_t sample_tiled;       /* small blocks of a query's sample */
		uint32_t sample_whole;       /* the same, whole segments */
		uint32_t sample_rows;        /* rows of a sampled block, at least */
		uint32_t near_part;          /* one in near_part blocks is counted before the others, .. */
		uint32_t near_queries;       /* .. if there are more queries than this */
		uint32_t item_queries;       /* queries of a work item: in small blocks */
		uint32_t whole_item_queries; /* in whole segments */
		uint32_t direct_queries; /* up to this number, bitmaps are not staged in shared memory */
		uint32_t lone_queries;   /* up to this number, a block of rows has a thread block */

		/*
		 * numbers of queries, between these two, for which small blocks do
		 * not pay
		 */
		uint32_t scan_above;
		uint32_t scan_below;

		/* decoding of answers */
		uint32_t decode_rows;    /* from this number of rows on threads share it, .. */
		uint32_t decode_queries; /* .. each taking this number of queries at a time */
	};

	/* What the last topk did */
	struct gpuvec_search_stats
	{
		uint32_t chunks;
		uint32_t rounds;            /* retries included */
		uint32_t overflows;         /* queries that had to be repeated */
		uint32_t retries;           /* rounds of repeated queries that overflowed */
		uint32_t list_chunks;       /* chunks that were counted by lists */
		uint32_t lone_chunks;       /* whose queries were parameters of a kernel */
		uint32_t own_rounds;        /* rounds in which each query had blocks of its own */
		uint32_t plain_rounds;      /* rounds that counted bytes, .. */
		uint32_t plain_lone_rounds; /* .. for queries that were alone */
		uint32_t direct_overflows;  /* of overflows: told by the last kernel itself */
		uint32_t stopped_chunks;    /* that nobody wanted any more while they ran */
		uint32_t entry_bits;        /* of the last chunk */
		uint32_t planes;
	};

	/*
	 * Of a backend that gpuvec_cuda_open() has opened, while no search runs
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
