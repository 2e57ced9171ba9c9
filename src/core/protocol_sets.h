/*-------------------------------------------------------------------------
 *
 * protocol_sets.h
 *	  Messages of searches for sets, of one mirror or of several.
 *
 * core/protocol.h has the rules of all messages.
 *
 *-------------------------------------------------------------------------
 */
#ifndef GPUVEC_PROTOCOL_SETS_H
#define GPUVEC_PROTOCOL_SETS_H

#include <assert.h>
#include <stdint.h>

#include "core/bounds.h"
#include "core/filter.h"
#include "core/grouping.h"
#include "core/measure.h"
#include "core/method.h"
#include "core/overlaps.h"
#include "core/protocol_mirrors.h"
#include "core/sparse.h"

/*
 * Measures have these numbers on the wire.  A new one moves that of tversky,
 * so it needs another GPUVEC_PROTOCOL_VERSION.  Measures of sparse vectors
 * follow: GPUVEC_WIRE_SPARSE + gpuvec_sparse_measure.
 */
static_assert(GPUVEC_BRAUN_BLANQUET == 0 && GPUVEC_KULCZYNSKI == 8 && GPUVEC_TVERSKY == 9,
			  "measures have other numbers: raise GPUVEC_PROTOCOL_VERSION");
static_assert(GPUVEC_SPARSE_INNER_PRODUCT == 0 && GPUVEC_SPARSE_JACCARD == 2,
			  "measures have other numbers: raise GPUVEC_PROTOCOL_VERSION");

#define GPUVEC_WIRE_SPARSE		(GPUVEC_TVERSKY + 1)
#define GPUVEC_N_WIRE_MEASURES	(GPUVEC_WIRE_SPARSE + GPUVEC_SPARSE_JACCARD + 1)

/* The number of a scoring's measure on the wire */
static inline uint32_t
gpuvec_wire_measure(gpuvec_scoring scoring)
{
	return scoring.sparse ? GPUVEC_WIRE_SPARSE + (uint32_t) gpuvec_scoring_sparse(scoring) :
		(uint32_t) scoring.measure;
}

/*
 * A search.  Followed by gpuvec_search_weights if the measure is tversky,
 * then gpuvec_query[nqueries], then the filters of all queries, one after
 * another: each query's conditions, then the values of these.  Then the bits
 * of pages for GPUVEC_QUERY_COUNT.  Then float values[]: the values of all
 * queries that have some, one for each id, finite and not 0.  Then uint16_t
 * ids[nids]: the ids of all queries, one query after another, ascending and
 * distinct in each.  The ids of a wide query are uint32_t, two of ids[] for
 * each, and not aligned.
 *
 * By a measure of sparse vectors, each query has values, and those for jaccard
 * are positive.  Rows of sets have the value 1 for each of their ids.  By
 * other measures, no query has values.
 */
typedef struct gpuvec_search
{
	gpuvec_mirror_key key;
	gpuvec_freshness need;		/* search only if the mirror is as fresh as
								 * this */
	uint64_t	known;			/* number of a refresh: see gpuvec_hit */
	uint64_t	xmin;			/* the snapshot's: see gpuvec_hit */
	uint32_t	measure;		/* gpuvec_wire_measure() */
	uint32_t	method;			/* gpuvec_method */
	uint32_t	nqueries;
	uint32_t	patience_us;	/* wait up to this long for the mirror to
								 * become as fresh as needed, if it is READY;
								 * at most a second */
	uint64_t	nids;
	uint64_t	filter_bytes;	/* of the filters of all queries */
	uint64_t	counted_bytes;	/* of the bits of pages; 0 without COUNT */
	gpuvec_grouping grouping;	/* of the rows that are counted; all 0: they
								 * are not grouped */
} gpuvec_search;

/* Weights as gpuvec_tversky_valid() wants them */
typedef struct gpuvec_search_weights
{
	double		alpha;
	double		beta;
} gpuvec_search_weights;

#define GPUVEC_QUERY_MIN_SCORE	1	/* min_score is set */
#define GPUVEC_QUERY_AFTER		2	/* only rows that come after (after_score,
									 * after_tid) */
#define GPUVEC_QUERY_DISJOINT	4	/* with a filter: rows that share no id
									 * rank as well, if few rows pass; by a
									 * measure of sparse vectors those of any
									 * score */

#define GPUVEC_QUERY_PAGES		8	/* with ALL_ROWS: the rows without their
									 * scores, by pages, if the engine can */

#define GPUVEC_QUERY_COUNT		16	/* with PAGES, in a request with one query,
									 * or of all of several: rows of some
									 * pages are counted, not returned */

/* In place of k, without AFTER: all rows; see GPUVEC_FIRST_ROWS */
#define GPUVEC_ALL_ROWS			UINT32_MAX

typedef struct gpuvec_query
{
	uint32_t	len;			/* number of ids */
	uint32_t	k;				/* 1 .. GPUVEC_MAX_K, or GPUVEC_ALL_ROWS */
	uint32_t	flags;
	uint32_t	form;			/* GPUVEC_FORM_... */
	double		min_score;
	double		after_score;
	uint64_t	after_tid;
	uint32_t	nconditions;	/* at most GPUVEC_MAX_CONDITIONS */
	uint32_t	nvalues;		/* at most GPUVEC_MAX_FILTER_VALUES */
} gpuvec_query;

/*
 * Answer to a search, with the state as it was when the search ran.  If the
 * mirror is not READY, or not as fresh as asked, nothing was searched, and
 * nqueries is 0.  Otherwise followed by uint32_t nhits[nqueries], padded to 8
 * bytes, then uint64_t passed[nqueries] if a query has a filter, then all
 * hits, query by query, best first (unless all rows were asked for).
 *
 * With GPUVEC_QUERY_PAGES, of a request with one query, all rows may come by
 * pages instead of hits.  page_bytes is not 0 then.  Pages are ascending; each
 * is a gpuvec_page_rows and uint16_t lines[n], in any order, padded to 4
 * bytes.
 *
 * With GPUVEC_QUERY_COUNT, the request has two bits for each page, that of
 * page b in byte b / 4 from bit b % 4 * 2 on, the lower one of which is set if
 * the page's rows are to be counted.  `counted` is the number of rows that are
 * not returned for this reason.  An engine that cannot count searches nothing:
 * `counted` is GPUVEC_NOT_COUNTED.  With a grouping, the groups of the rows
 * that are counted (core/grouping.h) come behind the hits, or before the
 * pages, in any order.
 *
 * With GPUVEC_QUERY_COUNT, a request of several queries, at most
 * GPUVEC_MOST_OVERLAPS, asks how many rows each pair of them finds.  They have
 * the measure intersection, no least score and no filters.  In place of groups
 * come the numbers of rows of those pages, uint64_t, as core/overlaps.h says.
 * The rows of all other pages that any query finds come by pages, once, as
 * those of the first query.  `counted` is 0, or GPUVEC_NOT_COUNTED.
 *
 * `passed` counts the live rows that pass the query's filter; if it has none,
 * it is GPUVEC_NOT_COUNTED.  With GPUVEC_QUERY_DISJOINT it has the bit
 * GPUVEC_DISJOINT_TOO if such rows have taken part.  One without a common id
 * has the score of no common id.  (A session does not ask for them where
 * gpuvec_ranks_disjoint() holds: they always take part.)
 *
 * By a measure of sparse vectors, a row ranks whatever it shares with the
 * query, if it has the least score; one without a common id has the score 0.
 * With GPUVEC_DISJOINT_TOO there is no least score.
 */
typedef struct gpuvec_result
{
	gpuvec_state state;
	uint32_t	nqueries;
	uint32_t	engine_us;		/* time in the engine, microseconds */
	uint64_t	nhits;
	uint64_t	npassed;		/* length of passed[]: nqueries or 0 */
	uint64_t	page_bytes;		/* of rows by pages; 0: hits */
	uint64_t	counted;		/* rows that are counted, not returned */
	uint64_t	group_bytes;	/* of at most gpuvec_most_groups() groups, or
								 * of pairs of queries */
	uint32_t	ways[GPUVEC_N_WAYS];	/* queries, by gpuvec_way */
} gpuvec_result;

#define GPUVEC_DISJOINT_TOO		(UINT64_C(1) << 63)

typedef struct gpuvec_page_rows
{
	uint32_t	block;
	uint32_t	n;				/* rows of the page; not 0 */
} gpuvec_page_rows;

/* Bytes of a page with n rows */
#define gpuvec_page_rows_bytes(n) \
	(sizeof(gpuvec_page_rows) + gpuvec_lines_bytes(n))

/*
 * A search of several mirrors, those of a table's partitions.
 * Followed by gpuvec_search_weights if the measure is tversky, then
 * gpuvec_search_partition[npartitions], then gpuvec_query[nqueries], then
 * float values[] and uint16_t ids[nids], as in a gpuvec_search.  Queries have
 * no filters, no AFTER, and a number of rows.
 *
 * A query's k rows are the first ones of all partitions that were searched, in
 * the order (score descending, partition, tid).
 *
 * The answer has a gpuvec_result for each partition, in the order of the
 * request: nqueries is 0 for one that was not searched, nhits are the rows of
 * all queries that it has.  engine_us and ways are those of the whole request
 * in the first one, and 0 in the others.  Behind these come
 * uint32_t counts[nqueries], filled up to 8 bytes, gpuvec_hit hits[], query by
 * query, and uint16_t whose[]: the partition of each hit.
 */
typedef struct gpuvec_search_partitions
{
	uint32_t	measure;		/* gpuvec_wire_measure() */
	uint32_t	method;			/* gpuvec_method */
	uint32_t	npartitions;	/* 1 .. GPUVEC_MAX_PARTITIONS */
	uint32_t	nqueries;
	uint64_t	xmin;			/* as in gpuvec_search */
	uint64_t	nids;
} gpuvec_search_partitions;

typedef struct gpuvec_search_partition
{
	gpuvec_mirror_key key;
	gpuvec_freshness need;		/* as in gpuvec_search */
	uint64_t	known;			/* as in gpuvec_search */
} gpuvec_search_partition;

#define GPUVEC_MAX_PARTITIONS		4096

/*
 * A row of an answer.  `place` packs four things: the row's tid, whether the
 * search's `xmin` proves that the snapshot sees it (gpuvec_page.newest),
 * whether its page was last read by a refresh with a larger number than the
 * search's `known` or has `newest` (then the visibility map proves no more
 * than that), and the row's number of common ids.
 */
typedef struct gpuvec_hit
{
	double		score;
	uint64_t	place;
} gpuvec_hit;

#define GPUVEC_HIT_COMMON_BITS	18	/* at most 65536 */
#define GPUVEC_HIT_NEWER		(UINT64_C(1) << GPUVEC_HIT_COMMON_BITS)
#define GPUVEC_HIT_PROVEN	(GPUVEC_HIT_NEWER << 1)

#define gpuvec_hit_place(tid, common, newer) \
	((uint64_t) gpuvec_tid_block(tid) << 32 | \
	 (uint64_t) gpuvec_tid_line(tid) << (GPUVEC_HIT_COMMON_BITS + 2) | \
	 ((newer) ? GPUVEC_HIT_NEWER : 0) | (common))
#define gpuvec_hit_block(place)		((uint32_t) ((place) >> 32))
#define gpuvec_hit_line(place) \
	((uint16_t) ((place) >> (GPUVEC_HIT_COMMON_BITS + 2) & GPUVEC_MAX_LINE))
#define gpuvec_hit_tid(place)		gpuvec_tid(gpuvec_hit_block(place), gpuvec_hit_line(place))
#define gpuvec_hit_common(place)	((uint32_t) ((place) & (GPUVEC_HIT_NEWER - 1)))
#define gpuvec_hit_newer(place)		(((place) & GPUVEC_HIT_NEWER) != 0)
#define gpuvec_hit_proven(place)	(((place) & GPUVEC_HIT_PROVEN) != 0)

#endif							/* GPUVEC_PROTOCOL_SETS_H */
