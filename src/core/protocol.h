/*-------------------------------------------------------------------------
 *
 * protocol.h
 *	  The protocol between sessions and the engine, over a UNIX socket.
 *
 * Both ends run on one machine, so numbers and structs travel as they lie in
 * memory.  Every struct below has explicit padding and a size that is a
 * multiple of 8.  A frame is a gpuvec_frame header followed by `length`
 * bytes.  The header, GPUVEC_MSG_HELLO and GPUVEC_MSG_ERROR never change
 * their layout, so ends of different versions can tell each other.
 *
 * The engine serves the requests of a connection one after another and sends
 * one reply to each, in order.  A session may send several requests before it
 * reads the replies.  GPUVEC_MSG_PAGES and GPUVEC_MSG_REFRESH_PAGES have no
 * reply.  If something is wrong with pages, the engine sends one
 * GPUVEC_MSG_ERROR: at the next COMMIT or REFRESH, or earlier.  The session
 * must then close the connection.
 *
 * Closing a connection cancels its requests, drops an unfinished load or
 * refresh, and drops the session's private mirrors.
 *
 * The engine may close a connection that has no request under way and no
 * unfinished load or refresh.  A request that was sent at that moment has not
 * begun; the session sends it again over another connection.
 *
 *-------------------------------------------------------------------------
 */
#ifndef GPUVEC_PROTOCOL_H
#define GPUVEC_PROTOCOL_H

#include <stdint.h>

#include "core/als.h"
#include "core/pooling.h"
#include "core/bounds.h"
#include "core/filter.h"
#include "core/method.h"
#include "core/nearest.h"
#include "core/placement.h"
#include "core/weighting.h"

#define GPUVEC_PROTOCOL_MAGIC	UINT32_C(0x47505643)	/* "GPVC" */
#define GPUVEC_PROTOCOL_VERSION 23

/* Largest length of a frame; senders split pages into much shorter frames */
#define GPUVEC_MAX_FRAME		(UINT32_C(1) << 30)

typedef enum gpuvec_message
{
	/* session -> engine */
	GPUVEC_MSG_HELLO = 1,		/* gpuvec_hello -> WELCOME */
	GPUVEC_MSG_STAT,			/* gpuvec_mirror_key -> STATE */
	GPUVEC_MSG_SEARCH,			/* gpuvec_search ... -> RESULT */
	GPUVEC_MSG_LOAD_BEGIN,		/* gpuvec_load -> STATE; LOADING: busy */
	GPUVEC_MSG_REFRESH_BEGIN,	/* gpuvec_refresh -> STATE + uint64 page LSNs,
								 * or LOADING: busy */
	GPUVEC_MSG_PAGES,			/* gpuvec_page ... (no reply) */
	GPUVEC_MSG_COMMIT,			/* gpuvec_commit -> STATE */
	GPUVEC_MSG_DROP,			/* gpuvec_drop -> COUNT */
	GPUVEC_MSG_LIST,			/* nothing -> MIRRORS */
	GPUVEC_MSG_ENGINE,			/* nothing -> ENGINE_INFO */
	GPUVEC_MSG_REFRESH,			/* gpuvec_refresh_once, gpuvec_page ... ->
								 * STATE */
	GPUVEC_MSG_EMBEDDING,		/* gpuvec_embedding_request ... ->
								 * EMBEDDING_ANSWER */
	GPUVEC_MSG_NEAREST,			/* gpuvec_nearest_head ... -> EMBEDDING_ANSWER */
	GPUVEC_MSG_GRAM,			/* gpuvec_gram_head ... -> EMBEDDING_ANSWER */
	GPUVEC_MSG_REFRESH_PAGES,	/* gpuvec_refresh_part, gpuvec_page ... (no
								 * reply) */
	GPUVEC_MSG_ROWS,			/* gpuvec_rows, gpuvec_feed_record ... ->
								 * STATE */
	GPUVEC_MSG_ALS_BEGIN,		/* gpuvec_als_begin -> ALS_STATE */
	GPUVEC_MSG_ALS_ADD,			/* gpuvec_als_part ... -> ALS_STATE */
	GPUVEC_MSG_ALS_PREPARE,		/* nothing -> ALS_STATE */
	GPUVEC_MSG_ALS_SET,			/* gpuvec_als_part ... -> ALS_STATE */
	GPUVEC_MSG_ALS_RUN,			/* nothing -> ALS_STATE */
	GPUVEC_MSG_ALS_GET,			/* gpuvec_als_part -> ALS_FACTORS */
	GPUVEC_MSG_ALS_END,			/* nothing -> ALS_STATE */
	GPUVEC_MSG_ALS_LIST,		/* nothing -> ALS_STATES */
	GPUVEC_MSG_NEIGHBORS_BEGIN, /* gpuvec_neighbors_begin -> ALS_STATE */
	GPUVEC_MSG_NEIGHBORS,		/* nothing -> NEIGHBORS_FOUND */
	GPUVEC_MSG_SEARCH_PARTS,	/* gpuvec_search_parts ... -> PARTS_RESULT */
	GPUVEC_MSG_DEVICES,			/* nothing -> DEVICES_INFO */
	GPUVEC_MSG_PLACES,			/* nothing -> PLACES_INFO */
	GPUVEC_MSG_LOAD_JOIN,		/* gpuvec_load_join -> STATE; LOADING: PAGES
								 * may follow */
	GPUVEC_MSG_LOAD_LEAVE,		/* nothing -> COUNT of pages */
	GPUVEC_MSG_OUST,			/* gpuvec_mirror_key -> COUNT: connections that
								 * were closed, as their load or refresh of the
								 * mirror makes no step */

	/* engine -> session */
	GPUVEC_MSG_WELCOME = 64,	/* gpuvec_welcome */
	GPUVEC_MSG_ERROR,			/* gpuvec_error_head, then message, detail,
								 * hint */
	GPUVEC_MSG_STATE,			/* gpuvec_state [+ page LSNs] */
	GPUVEC_MSG_RESULT,			/* gpuvec_result ... */
	GPUVEC_MSG_COUNT,			/* uint64 */
	GPUVEC_MSG_MIRRORS,			/* gpuvec_mirror_info[] */
	GPUVEC_MSG_ENGINE_INFO,		/* gpuvec_engine_info */
	GPUVEC_MSG_EMBEDDING_ANSWER,	/* gpuvec_embedding_answer ... */
	GPUVEC_MSG_ALS_STATE,		/* gpuvec_als_state */
	GPUVEC_MSG_ALS_FACTORS,		/* int64_t keys[n], float elements[n *
								 * factors] */
	GPUVEC_MSG_ALS_STATES,		/* gpuvec_als_state[] */
	GPUVEC_MSG_NEIGHBORS_FOUND, /* gpuvec_als_state, gpuvec_neighbor[] */
	GPUVEC_MSG_PARTS_RESULT,	/* gpuvec_result ... for each part */
	GPUVEC_MSG_DEVICES_INFO,	/* gpuvec_device_info[] */
	GPUVEC_MSG_PLACES_INFO		/* gpuvec_place_info[] */
} gpuvec_message;

typedef struct gpuvec_frame
{
	uint32_t	length;			/* bytes that follow this header */
	uint16_t	type;			/* gpuvec_message */
	uint16_t	flags;			/* 0 */
	uint64_t	request;		/* chosen by the session, returned in the
								 * reply */
} gpuvec_frame;

/* The first frame of a connection */
typedef struct gpuvec_hello
{
	uint32_t	magic;
	uint32_t	version;
	uint8_t		incarnation[16];	/* of the server's shared memory */
	uint32_t	pid;
	uint32_t	database;
} gpuvec_hello;

typedef struct gpuvec_welcome
{
	uint32_t	version;
	uint32_t	pid;			/* of the engine */
	char		backend[16];	/* "cpu" or "cuda" */
	uint64_t	number;			/* random number of this process; 0: none */
} gpuvec_welcome;

/*
 * An error of the engine.  Followed by three NUL-terminated strings: message,
 * detail, hint; the last two may be empty.  The session raises it, unless
 * `fallback` is set.
 */
typedef struct gpuvec_error_head
{
	char		sqlstate[6];	/* five characters and a NUL */
	uint8_t		retry;			/* the engine is shutting down: reconnect */
	uint8_t		fallback;		/* the engine cannot serve this: scan without
								 * it */
} gpuvec_error_head;

/*
 * What a mirror copies: a column of one file of a table.  Keys are compared
 * as bytes, so callers zero them first.
 *
 * `meaning` is a hash of what the catalog says about the file and its rows.
 * `rooted` means that one row of the mirror stands for a HOT chain, not for a
 * row version.  `index` is the OID of the index whose expression or predicate
 * defines the rows, or 0.  A mirror of an embedding table (key_attnum != 0)
 * also has a column of keys; `key_missing` is a hash of that column's missing
 * value in the catalog.  `private_id` is 0 for a mirror that all sessions
 * share; otherwise the mirror belongs to the session that made it.
 *
 * A mirror of sets may have filter columns (core/filter.h): those of `index`,
 * or of an index on the column.  Which they are, and how their keys are made,
 * is part of `meaning`.
 */
typedef struct gpuvec_mirror_key
{
	uint32_t	database;
	uint32_t	tablespace;
	uint32_t	relation;
	uint32_t	relfilenumber;
	uint32_t	type;			/* OID of the column's type */
	int32_t		attnum;
	uint64_t	meaning;
	uint32_t	rooted;
	uint32_t	index;
	uint64_t	private_id;
	uint32_t	key_type;		/* OID of the key column's type */
	int32_t		key_attnum;		/* 0: a mirror of sets */
	uint64_t	key_missing;
	uint32_t	storage;		/* gpuvec_storage of vectors */
	uint32_t	index_file;		/* of `index`: its relfilenumber ... */
	uint32_t	index_tablespace;	/* ... and tablespace */
	uint32_t	nfilters;		/* number of filter columns */
} gpuvec_mirror_key;

typedef enum gpuvec_mirror_state
{
	GPUVEC_ABSENT,				/* not in memory, and no session is loading it */
	GPUVEC_LOADING,				/* a session is loading it (or refreshing:
								 * REFRESH_BEGIN) */
	GPUVEC_READY
} gpuvec_mirror_state;

/*
 * The state of a mirror.  Each complete load or refresh gets the next number,
 * `refresh`, starting at 1.  Each page keeps the number of the load or
 * refresh that last read it.  Numbers go on across eviction and reload while
 * the engine lives, so no number comes back.  `checked` is the WAL position
 * up to which the mirror is known to hold every change.
 *
 * `feed` names an index whose insertions are numbered; 0: none.  `applied` is
 * the number up to which the mirror has these insertions.  The engine only
 * stores and compares both.
 *
 * The engine keeps records of the feed that the mirror has not applied
 * (gpuvec_rows): those with the numbers kept_from + 1 .. kept.  kept is 0 if
 * there are none.
 */
typedef struct gpuvec_state
{
	uint32_t	state;			/* gpuvec_mirror_state */
	uint32_t	nblocks;		/* heap pages that the mirror covers */
	uint64_t	refresh;
	uint64_t	checked;
	uint64_t	nrows;
	uint64_t	nids;			/* ids of all sets, including those of dead
								 * rows */
	uint64_t	feed;
	uint64_t	applied;
	uint64_t	kept_from;
	uint64_t	kept;
} gpuvec_state;

/*
 * Begin a load.  The load does not begin if the load or refresh of another
 * session is unfinished.  Followed by the paths of the files that the mirror
 * is made from, each with a NUL: the heap's file, then those of indexes.  The
 * engine drops the mirror when one of the files is gone (sweep.c).
 */
typedef struct gpuvec_load
{
	gpuvec_mirror_key key;
	uint32_t	nblocks;		/* heap pages to come, for the progress view */
	uint32_t	file_bytes;		/* bytes of all paths; 0: no paths */
	uint32_t	placement;		/* gpuvec_placement */
	uint32_t	padding;
	uint64_t	number;			/* random; who knows it may join the load.  0:
								 * nobody may */
} gpuvec_load;

/*
 * Join the load of another session, to send some of its pages.  They count
 * once LOAD_LEAVE was answered.  The session that has begun the load commits
 * it, after all others have left: then each page was sent by one of them.
 */
typedef struct gpuvec_load_join
{
	gpuvec_mirror_key key;
	uint64_t	number;			/* of the load */
} gpuvec_load_join;

#define GPUVEC_MAX_FILE_BYTES	4096

/*
 * Begin a refresh.  With `lsns`, the engine answers with the LSNs of all
 * pages, and the session finds the stale pages by them.  Otherwise the
 * session knows which pages of refresh number `known` are stale; the refresh
 * does not begin if `known` did not make the current mirror.
 */
typedef struct gpuvec_refresh
{
	gpuvec_mirror_key key;
	uint32_t	lsns;			/* 1: answer with the LSNs of all pages */
	uint32_t	placement;		/* gpuvec_placement */
	uint64_t	known;			/* number of a refresh; unused with lsns */
} gpuvec_refresh;

/*
 * One heap page with all its rows.  It replaces whatever the mirror holds of
 * the page.  A frame has one or more pages.  The rows follow: each is a
 * gpuvec_row and its ids, ascending and distinct, padded to 4 bytes.  `bytes`
 * is the size of all rows.  The ids of a wide row are uint32_t, those of
 * others uint16_t.  If the mirror has filter columns, the row's words follow
 * its ids (gpuvec_filter_words()), aligned to 4 bytes only.
 *
 * If `newest` is not 0, all rows of the page were inserted by transactions
 * that have committed, and nobody has deleted any.  `newest` is the largest of
 * these transactions' numbers (FullTransactionId).  So a snapshot sees all
 * rows of the page if `newest` precedes its xmin, for as long as nothing on
 * the page changes.  That counts until the page, or some of its lines, come
 * again.
 *
 * Or some lines of a page that the mirror has: `partial` is 1, and `nlines`
 * lines follow the rows, as uint16_t, ascending, padded to 4 bytes, and
 * counted in `bytes`.  The lines are even.  The rows replace what the mirror
 * holds under these lines and the odd ones behind them.  All else of the page
 * stays as it is, but is no longer what a refresh has read: `lsn` is 0.
 */
typedef struct gpuvec_page
{
	uint32_t	block;
	uint32_t	nrows;
	uint64_t	lsn;
	uint32_t	bytes;
	uint16_t	partial;
	uint16_t	nlines;
	uint64_t	newest;			/* up to GPUVEC_MAX_XID; 0 for a partial page */
} gpuvec_page;

/* Largest number of a transaction */
#define GPUVEC_MAX_XID		(UINT64_MAX >> 2)

/* Bytes of the lines of a partial page */
#define gpuvec_lines_bytes(nlines) \
	(((uint32_t) (nlines) * 2 + 3) & ~UINT32_C(3))

typedef struct gpuvec_row
{
	uint16_t	line;			/* 1 .. GPUVEC_MAX_LINE, ascending within a
								 * page */
	uint16_t	wide;			/* 1: the ids are uint32_t */
	uint32_t	len;			/* number of ids that follow */
} gpuvec_row;

/* Bytes of a row, and of a wide row, without the words of filter columns */
#define gpuvec_row_bytes(len) \
	(sizeof(gpuvec_row) + (((uint32_t) (len) * 2 + 3) & ~UINT32_C(3)))
#define gpuvec_wide_row_bytes(len) \
	(sizeof(gpuvec_row) + (uint32_t) (len) * 4)

/*
 * A row of an embedding table, in place of gpuvec_row.  Followed by the
 * elements in the mirror's storage, padded to 4 bytes.  Only a row of kind
 * GPUVEC_VECTOR_GOOD has elements.
 */
typedef struct gpuvec_vector_row
{
	uint16_t	line;			/* 1 ..  GPUVEC_MAX_LINE, see bounds.h */
	uint16_t	kind;			/* gpuvec_vector_kind */
	uint32_t	width;			/* number of elements that follow */
	int64_t		key;
} gpuvec_vector_row;

#define gpuvec_vector_row_bytes(width, storage) \
	(sizeof(gpuvec_vector_row) + \
	 (((uint64_t) (width) * gpuvec_element_bytes(storage) + 3) & ~UINT64_C(3)))

/*
 * Publish the pages sent since LOAD_BEGIN or REFRESH_BEGIN, all at once.
 * Pages at or beyond `nblocks` leave the mirror.  `checked` becomes at least
 * `position`.  If `feed` is not 0, the mirror's `feed` and `applied` are
 * replaced, unless it has applied more of this feed.  `applied` was read
 * behind `position`.  If `feed` is 0, and `checked` grows, the mirror has no
 * feed any more.
 */
typedef struct gpuvec_commit
{
	uint64_t	position;
	uint64_t	feed;
	uint64_t	applied;
	uint32_t	nblocks;
	uint32_t	padding;
} gpuvec_commit;

/*
 * The first pages of a refresh, sent ahead so that the engine can begin while
 * the session still reads.  REFRESH follows with the same key and number.
 */
typedef struct gpuvec_refresh_part
{
	gpuvec_mirror_key key;
	uint64_t	known;
} gpuvec_refresh_part;

/*
 * A whole refresh in one message, with its pages, or with the last of them if
 * REFRESH_PAGES came before.  The engine makes it only if refresh number
 * `known` made the current mirror.  The state in the answer tells whether it
 * was made.
 */
typedef struct gpuvec_refresh_once
{
	gpuvec_mirror_key key;
	uint64_t	known;
	gpuvec_commit commit;
} gpuvec_refresh_once;

/*
 * Rows that a feed handed over, without their pages.  Followed by the records
 * of the feed with the numbers from + 1 .. to, in this order.
 *
 * The engine applies them if the mirror has this feed, and has applied at
 * least `from`; records that it has applied already are skipped.  While rows
 * of another session are applied, it waits.  If it has applied less, or
 * another session loads or refreshes the mirror (LOADING, as for
 * REFRESH_BEGIN), or it has no such mirror, nothing happens.  Nor does it if
 * the mirror would get many more pages than rows (GPUVEC_MAX_NEW_PAGES): then
 * pages have to be read.  The state in the answer tells.
 *
 * With `keep`, they are kept first.  Then all that are kept are applied if
 * the mirror has this feed, has applied at least the first one's
 * predecessor, and no session loads or refreshes it.  So records can be sent
 * while a load or refresh reads pages, without waiting for it.  There may be
 * none (from is to).  Kept records may get lost.  In the answer state is not
 * LOADING for a refresh.
 *
 * `checked` stays, and so do the numbers of pages that the mirror has.  Pages
 * of records get an LSN that no page has (GPUVEC_NO_LSN).
 */
#define GPUVEC_MAX_NEW_PAGES	131072
#define GPUVEC_NO_LSN			UINT64_MAX

typedef struct gpuvec_rows
{
	gpuvec_mirror_key key;
	uint64_t	feed;
	uint64_t	from;
	uint64_t	to;
	uint32_t	keep;			/* 1: keep those that cannot be applied */
	uint32_t	padding;
} gpuvec_rows;

/*
 * A record of a feed.  Lines are even.  A record concerns the rows of a line
 * and of the line behind it: both stand for the same line pointer (see
 * mirror_line() in mirror/describe/mirror.h).  The values that follow are
 * padded to 8 bytes.
 */
typedef enum gpuvec_feed_kind
{
	GPUVEC_FEED_ROW = 1,		/* a row; the values are its ids.  It replaces
								 * what the mirror has under its line. */
	GPUVEC_FEED_GONE,			/* rows are gone; the values are their lines,
								 * ascending */

	/* in shared memory only; never sent */
	GPUVEC_FEED_PAGE,			/* the page has to be read */
	GPUVEC_FEED_ALL,			/* all pages have to be checked */
	GPUVEC_FEED_PAD				/* nothing; not numbered */
} gpuvec_feed_kind;

typedef struct gpuvec_feed_record
{
	uint16_t	kind;			/* gpuvec_feed_kind */
	uint16_t	line;			/* of a ROW; else 0 */
	uint32_t	block;
	uint32_t	len;			/* number of uint16_t values that follow; of a
								 * wide row two for each id */
	uint16_t	wide;			/* 1: a ROW whose ids are uint32_t */
	uint16_t	nwords;			/* of a ROW: words of filter columns that
								 * follow the values and their padding */
} gpuvec_feed_record;

#define gpuvec_feed_values_bytes(len)	(((uint64_t) (len) * 2 + 7) & ~UINT64_C(7))
#define gpuvec_feed_record_bytes(len, nwords) \
	(sizeof(gpuvec_feed_record) + gpuvec_feed_values_bytes(len) + (uint64_t) (nwords) * 8)

/*
 * Drop shared mirrors, or the private mirror `private_id` of this session.
 * relation 0: all relations of the database; database 0: all databases.
 */
typedef struct gpuvec_drop
{
	uint32_t	database;
	uint32_t	relation;
	int32_t		attnum;			/* 0: all columns */
	uint32_t	padding;
	uint64_t	private_id;		/* 0: shared mirrors */
} gpuvec_drop;

/* How fresh a mirror must be: either condition is enough */
typedef struct gpuvec_freshness
{
	uint64_t	position;		/* checked >= position */
	uint64_t	feed;			/* not 0, and the mirror's feed, ... */
	uint64_t	applied;		/* ... and applied >= applied */
} gpuvec_freshness;

static inline int
gpuvec_fresh(const gpuvec_state *state, const gpuvec_freshness *need)
{
	return state->state == GPUVEC_READY &&
		(state->checked >= need->position ||
		 (need->feed != 0 && state->feed == need->feed && state->applied >= need->applied));
}

/*
 * A search.  Followed by gpuvec_search_weights if the measure is tversky,
 * then gpuvec_query[nqueries], then the filters of all queries, one after
 * another: each query's conditions, then the values of these.  Then uint16_t
 * ids[nids]: the ids of all queries, one query after another, ascending and
 * distinct in each.  The ids of a wide query are uint32_t, two of ids[] for
 * each, and not aligned.
 */
typedef struct gpuvec_search
{
	gpuvec_mirror_key key;
	gpuvec_freshness need;		/* search only if the mirror is as fresh as
								 * this */
	uint64_t	known;			/* number of a refresh: see gpuvec_hit */
	uint64_t	xmin;			/* the snapshot's: see gpuvec_hit */
	uint32_t	measure;		/* gpuvec_measure */
	uint32_t	method;			/* gpuvec_method */
	uint32_t	nqueries;
	uint32_t	patience_us;	/* wait up to this long for the mirror to
								 * become as fresh as needed, if it is READY;
								 * at most a second */
	uint64_t	nids;
	uint64_t	filter_bytes;	/* of the filters of all queries */
} gpuvec_search;

/* Weights as gpuvec_weights_valid() wants them */
typedef struct gpuvec_search_weights
{
	double		alpha;
	double		beta;
} gpuvec_search_weights;

#define GPUVEC_QUERY_MIN_SCORE	1	/* min_score is set */
#define GPUVEC_QUERY_AFTER		2	/* only rows that come after (after_score,
									 * after_tid) */
#define GPUVEC_QUERY_DISJOINT	4	/* with a filter: rows that share no id
									 * rank as well, if few rows pass */

#define GPUVEC_QUERY_PAGES		8	/* with ALL_ROWS: the rows without their
									 * scores, by pages, if the engine can */

/* In place of k, without AFTER: all rows; see GPUVEC_FIRST_ROWS */
#define GPUVEC_ALL_ROWS			UINT32_MAX

typedef struct gpuvec_query
{
	uint32_t	len;			/* number of ids */
	uint32_t	k;				/* 1 .. GPUVEC_MAX_K, or GPUVEC_ALL_ROWS */
	uint32_t	flags;
	uint32_t	wide;			/* 1: the ids are uint32_t */
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
 * `passed` counts the live rows that pass the query's filter; if it has none,
 * it is GPUVEC_NOT_COUNTED.  With GPUVEC_QUERY_DISJOINT it has the bit
 * GPUVEC_DISJOINT_TOO if rows without a common id have taken part: their
 * score is that of no common id.  (A session does not ask for them where
 * gpuvec_ranks_disjoint() holds: they always take part.)
 */
typedef struct gpuvec_result
{
	gpuvec_state state;
	uint32_t	nqueries;
	uint32_t	engine_us;		/* time in the engine, microseconds */
	uint64_t	nhits;
	uint64_t	npassed;		/* length of passed[]: nqueries or 0 */
	uint64_t	page_bytes;		/* of rows by pages; 0: hits */
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
 * A search of several mirrors, the parts, as those of a table's partitions.
 * Followed by gpuvec_search_weights if the measure is tversky, then
 * gpuvec_search_part[nparts], then gpuvec_query[nqueries], then uint16_t
 * ids[nids], as in a gpuvec_search.  Queries have no filters, no AFTER, and a
 * number of rows.
 *
 * The answer has for each part, in the order of the request, what RESULT has:
 * a gpuvec_result, and what follows it.  engine_us and ways are those of the
 * whole request in the first one, and 0 in the others.
 *
 * With `together` a query's k rows are the first ones of all parts that were
 * searched, in the order (score descending, part, tid): all parts together
 * have at most k rows.  Otherwise each part has its own k first rows.
 */
typedef struct gpuvec_search_parts
{
	uint32_t	measure;		/* gpuvec_measure */
	uint32_t	method;			/* gpuvec_method */
	uint32_t	nparts;			/* 1 .. GPUVEC_MAX_PARTS */
	uint32_t	nqueries;
	uint32_t	together;		/* 1: rank the rows of all parts together */
	uint32_t	padding;
	uint64_t	xmin;			/* as in gpuvec_search */
	uint64_t	nids;
} gpuvec_search_parts;

typedef struct gpuvec_search_part
{
	gpuvec_mirror_key key;
	gpuvec_freshness need;		/* as in gpuvec_search */
	uint64_t	known;			/* as in gpuvec_search */
} gpuvec_search_part;

#define GPUVEC_MAX_PARTS		4096

/*
 * A row of an answer.  `place` packs four things: the row's tid, whether the
 * search's `xmin` proves that the snapshot sees it (gpuvec_page.newest),
 * whether its page was last read by a refresh with a larger number than the
 * search's `known`, and the row's number of common ids.
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

/*
 * Gather or pool vectors.  Followed, in this order, by
 *
 *		int64_t keys[nkeys]
 *		uint64_t offsets[nbags + 1]		where bags begin; not for GATHER,
 *										and only if hotness is 0
 *		uint64_t verdicts[nverdicts]	gpuvec_verdict, ascending and distinct
 *		float weights[nkeys]			with WEIGHTED, padded to 8 bytes
 *		float gradient[ngradient]		with respect to the pooled result,
 *										padded to 8 bytes
 *		uint8_t map[map_bytes]			visibility map: two bits for each heap
 *										page, the lower one set if the page is
 *										all-visible
 *
 * Which rows does the session's snapshot see?  It sees all rows of a page
 * whose bit in `map` is set, if the page was last read by refresh `known` or
 * an earlier one, and those of a page whose `newest` precedes `xmin`
 * (gpuvec_page).  About any other row the session must decide.  The engine
 * answers UNDECIDED with the rows that need a verdict and have none, and the
 * session sends its request again with more verdicts.  A verdict holds for as
 * long as its snapshot.
 */
typedef enum gpuvec_embedding_op
{
	GPUVEC_EMBEDDING_GATHER,	/* the vectors of keys */
	GPUVEC_EMBEDDING_POOL,		/* the pooled bags of keys */
	GPUVEC_EMBEDDING_GRAD,		/* the gradients of the keys' vectors */
	GPUVEC_EMBEDDING_GRAD_WEIGHTS	/* the gradients of the weights */
} gpuvec_embedding_op;

#define GPUVEC_N_EMBEDDING_OPS		4

#define GPUVEC_EMBEDDING_WEIGHTED	1	/* each key has a weight */
#define GPUVEC_EMBEDDING_FOUND		2	/* answer for each key whether it was
										 * found */
#define GPUVEC_EMBEDDING_KEEP_MAP	4	/* keep this map for later requests of
										 * the session */
#define GPUVEC_EMBEDDING_KEPT_MAP	8	/* use the map kept last; map_bytes is
										 * 0 */
#define GPUVEC_EMBEDDING_FLAGS		15

typedef struct gpuvec_embedding_request
{
	gpuvec_mirror_key key;
	uint64_t	position;		/* answer only if checked >= position */
	uint64_t	known;			/* number of a refresh; 0: ignore the map */
	uint64_t	xmin;			/* the snapshot's; 0: proves nothing */
	uint32_t	op;				/* gpuvec_embedding_op */
	uint32_t	flags;
	uint32_t	mode;			/* gpuvec_pool_mode */
	uint32_t	missing;		/* gpuvec_missing */
	uint64_t	nkeys;
	uint64_t	nbags;			/* 0 for GATHER */
	uint64_t	hotness;		/* keys of each bag; 0: there are offsets */
	uint64_t	nverdicts;
	uint64_t	ngradient;		/* number of floats; 0 for GATHER and POOL */
	uint64_t	map_bytes;		/* a multiple of 8 */
} gpuvec_embedding_request;

#define gpuvec_verdict(tid, visible)	((uint64_t) (tid) << 1 | (visible))
#define gpuvec_verdict_tid(verdict)		((verdict) >> 1)

typedef enum gpuvec_embedding_status
{
	GPUVEC_EMBEDDING_STALE,		/* the mirror is not READY, or checked <
								 * position */
	GPUVEC_EMBEDDING_UNDECIDED, /* followed by uint64_t tids[count], ascending */
	GPUVEC_EMBEDDING_DONE,
	GPUVEC_EMBEDDING_MISSING,	/* with GPUVEC_MISSING_ERROR: no row has `key` */
	GPUVEC_EMBEDDING_DUPLICATE, /* several rows have `key` */
	GPUVEC_EMBEDDING_BAD,		/* the vector of `key` cannot be used: `kind` */
	GPUVEC_EMBEDDING_WIDTHS,	/* vectors of `key` and `other_key` differ in
								 * width */
	GPUVEC_EMBEDDING_GRADIENT,	/* the gradient must have `count` elements */
	GPUVEC_EMBEDDING_LARGE,		/* the answer would be too large */
	GPUVEC_EMBEDDING_UNFIT		/* for GRAM only */
} gpuvec_embedding_status;

/*
 * Answer, with the state as it was when the request was served.  An error
 * status is about the first key, in the order of the request, that has an
 * error.  DONE is followed by
 *
 *		uint8_t found[nkeys]		with FOUND, padded to 8 bytes
 *		float elements[count]		GATHER: the vectors of the keys that were
 *									found; POOL: of the bags; GRAD_WEIGHTS:
 *									one for each key; none if no key was found
 *
 * For GRAD, the elements are replaced by
 *
 *		int64_t keys[nrows]			keys that were found, ascending, distinct
 *		float elements[count]		their gradients
 */
typedef struct gpuvec_embedding_answer
{
	gpuvec_state state;
	uint32_t	status;			/* gpuvec_embedding_status */
	uint32_t	width;			/* of vectors, 0 if no key was found; WIDTHS:
								 * of the vector of `key` */
	uint32_t	other_width;
	uint32_t	kind;			/* gpuvec_vector_kind */
	int64_t		key;
	int64_t		other_key;
	uint64_t	nfound;			/* keys that were found */
	uint64_t	nrows;			/* GRAD: number of gradients */
	uint64_t	count;
	uint32_t	engine_us;		/* time in the engine, microseconds */
	uint32_t	padding;
} gpuvec_embedding_answer;

/*
 * Find the rows of an embedding table whose vectors are nearest to queries.
 * Followed, in this order, by
 *
 *		uint64_t verdicts[nverdicts]	as for EMBEDDING
 *		int64_t excluded[nexcluded]		keys to leave out, ascending
 *		uint64_t offsets[nqueries + 1]	only if nlisted is not 0: where the
 *										queries' own lists begin
 *		int64_t listed[nlisted]			these lists: keys to leave out, too,
 *										ascending in each
 *		float queries[nqueries * width]	padded to 8 bytes
 *		uint8_t map[map_bytes]			as for EMBEDDING
 *
 * Vectors of another width than the queries are left out.  The answer is an
 * EMBEDDING_ANSWER as well.  UNDECIDED is followed by rows near the queries.
 * DONE is followed by
 *
 *		uint32_t nrows[nqueries]		padded to 8 bytes
 *		gpuvec_near rows[count]			query by query, best first
 */
typedef struct gpuvec_nearest_head
{
	gpuvec_mirror_key key;
	uint64_t	position;		/* answer only if checked >= position */
	uint64_t	known;			/* number of a refresh; 0: ignore the map */
	uint64_t	xmin;			/* the snapshot's; 0: proves nothing */
	uint32_t	metric;			/* gpuvec_metric */
	uint32_t	k;				/* 1 .. GPUVEC_MAX_K */
	uint32_t	nqueries;
	uint32_t	width;
	uint64_t	nverdicts;
	uint64_t	nexcluded;
	uint64_t	nlisted;
	uint64_t	map_bytes;		/* a multiple of 8 */
} gpuvec_nearest_head;

/* Largest nqueries * k of one request */
#define GPUVEC_MAX_NEAR			1000000

/*
 * The Gram matrix of an embedding table whose vectors are factors: the sum of
 * y y' over all rows, as gpuvec_training_fold_in() makes it, in the order of
 * keys.  Followed, in this order, by
 *
 *		uint64_t verdicts[nverdicts]	as for EMBEDDING
 *		uint8_t map[map_bytes]			as for EMBEDDING
 *
 * The answer is an EMBEDDING_ANSWER as well.  DONE is followed by
 *
 *		double gram[width * width]		its elements from the diagonal on
 *
 * UNFIT: the session has to compute it otherwise.  It does not see all rows
 * of the mirror, or would have to decide about very many, or they are not
 * factors: there are none, keys come twice, or vectors differ in width or
 * have elements that are not finite.
 */
typedef struct gpuvec_gram_head
{
	gpuvec_mirror_key key;
	uint64_t	position;		/* answer only if checked >= position */
	uint64_t	known;			/* number of a refresh; 0: ignore the map */
	uint64_t	xmin;			/* the snapshot's; 0: proves nothing */
	uint64_t	nverdicts;
	uint64_t	map_bytes;		/* a multiple of 8 */
} gpuvec_gram_head;

/*
 * Training of factors by alternating least squares (core/als.h).  It belongs
 * to a session, which has one at most: another BEGIN ends the former.  The
 * order of requests is BEGIN, ADD ..., PREPARE, SET ..., RUN for each
 * iteration, GET ..., END.
 *
 * With `fold_in`, factors of users are computed from those of all items: the
 * order is BEGIN, SET ... with the items in the order of their keys, ADD ...,
 * PREPARE, one RUN, GET ... of users, END.  Interactions with other items are
 * left out.
 *
 * Once a request has failed, all others but BEGIN get the same error.
 */
typedef struct gpuvec_als_begin
{
	uint32_t	role;			/* OID of the role that trains, ... */
	uint32_t	relation;		/* ... and of what it trains on, for ALS_LIST */
	uint32_t	factors;		/* 1 .. GPUVEC_ALS_MAX_FACTORS */
	uint32_t	iterations;		/* for ALS_LIST */
	uint32_t	cg_steps;		/* 1 .. GPUVEC_ALS_MAX_STEPS */
	uint32_t	fold_in;		/* 0 or 1 */
	double		regularization; /* finite, at least 0 */
	double		alpha;			/* finite, at least GPUVEC_ALS_MIN_ALPHA */
	int64_t		seed;
} gpuvec_als_begin;

/*
 * Part of the interactions or factors.  Followed, for ADD, by
 *
 *		int64_t users[n]
 *		int64_t items[n]
 *		float weights[n]			finite and not zero; padded to 8 bytes
 *
 * and for SET by
 *
 *		int64_t keys[n]
 *		float elements[n * factors]	padded to 8 bytes
 *
 * GET asks for n rows of a side from `first` on, in the order of their keys.
 */
typedef struct gpuvec_als_part
{
	uint32_t	side;			/* gpuvec_als_side; 0 for ADD */
	uint32_t	first;			/* 0 for ADD and SET */
	uint64_t	n;
} gpuvec_als_part;

typedef enum gpuvec_als_phase
{
	GPUVEC_ALS_READING,
	GPUVEC_ALS_PREPARING,
	GPUVEC_ALS_TRAINING,
	GPUVEC_ALS_WRITING,
	GPUVEC_ALS_NEIGHBORS
} gpuvec_als_phase;

typedef struct gpuvec_als_state
{
	uint32_t	pid;			/* of the session */
	uint32_t	database;
	uint32_t	role;
	uint32_t	relation;
	uint32_t	phase;			/* gpuvec_als_phase */
	uint32_t	iteration;		/* iterations, or items, done ... */
	uint32_t	iterations;		/* ... of this many */
	uint32_t	fold_in;
	uint64_t	added;			/* interactions that were added */
	uint64_t	users;			/* from PREPARE on */
	uint64_t	items;
	uint64_t	entries;		/* pairs of users and items */
	double		loss;			/* after the last iteration; NaN: none yet */
	double		seconds;		/* that the last request took in the engine */
} gpuvec_als_state;

/*
 * The nearest items of each item (core/weighting.h).  It takes the place of a
 * training: the order of requests is NEIGHBORS_BEGIN, ADD ..., PREPARE,
 * NEIGHBORS until as many items are done as there are, END.  Each answer to
 * NEIGHBORS has all neighbors of the next items, in the order of their keys.
 */
typedef struct gpuvec_neighbors_begin
{
	uint32_t	role;			/* OID of the role that asks, ... */
	uint32_t	relation;		/* ... and of what it reads, for ALS_LIST */
	uint32_t	k;				/* 1 .. GPUVEC_MAX_K */
	uint32_t	weighting;		/* gpuvec_weighting */
	double		k1;				/* 0 .. GPUVEC_MAX_BM25_K1 */
	double		b;				/* 0 .. 1 */
} gpuvec_neighbors_begin;

typedef struct gpuvec_neighbor
{
	int64_t		item;			/* keys of both */
	int64_t		neighbor;
	double		score;			/* more than zero */
} gpuvec_neighbor;

typedef struct gpuvec_mirror_info
{
	gpuvec_mirror_key key;
	uint32_t	state;			/* gpuvec_mirror_state */
	uint32_t	nsegments;
	uint32_t	pages_done;		/* while loading: heap pages received ... */
	uint32_t	pages_total;	/* ... of this many */
	uint64_t	nrows;
	uint64_t	nids;
	uint64_t	host_bytes;
	uint64_t	device_bytes;
	uint64_t	loads;
	uint64_t	refreshes;
	uint64_t	searches;		/* queries answered */
	uint64_t	checked;
	int64_t		last_use;		/* microseconds since the UNIX epoch */
	uint64_t	feed;
	uint64_t	applied;
	uint64_t	row_updates;	/* times that rows of a feed were applied ... */
	uint64_t	rows_applied;	/* ... and how many rows they brought */
	uint64_t	page_rows;		/* rows that refreshes brought, by pages */
} gpuvec_mirror_info;

typedef struct gpuvec_engine_info
{
	uint32_t	pid;
	uint32_t	connections;
	char		backend[16];
	char		device[128];	/* name of the GPU, or of the instruction set */
	int32_t		capability;		/* compute capability * 10, 0 on the CPU */
	uint32_t	threads;
	uint64_t	memory_used;
	uint64_t	memory_budget;
	int64_t		started;		/* microseconds since the UNIX epoch */
	uint64_t	requests;		/* searches received */
	uint64_t	batches;		/* launches that served them */
	uint64_t	queries;		/* single queries in them */
	uint64_t	evictions;
} gpuvec_engine_info;

/* A device of the engine, or one that it was told to use and cannot */
typedef struct gpuvec_device_info
{
	int32_t		number;			/* gpuvec_place_info.device; -1: cannot be
								 * used */
	int32_t		gpu;			/* number of the GPU; -1: the CPU */
	char		backend[16];
	char		name[128];		/* of the GPU, or of the instruction set */
	char		trouble[256];	/* why it cannot be used, or empty */
	int32_t		capability;		/* compute capability * 10, 0 on the CPU */
	uint32_t	segments;
	uint64_t	rows;			/* of mirrors of sets */
	uint64_t	memory_total;	/* bytes, of the GPU or of the machine */
	uint64_t	memory_free;
	uint64_t	memory_used;	/* by mirrors */
	uint64_t	memory_budget;
	uint64_t	searches;		/* of batches of queries */
	uint64_t	queries;
	uint64_t	errors;			/* searches that failed */
	uint64_t	refused;		/* segments that it had no memory for */
	uint64_t	busy_us;		/* time of searches */
} gpuvec_device_info;

/* What a device holds of a mirror */
typedef struct gpuvec_place_info
{
	gpuvec_mirror_key key;
	int32_t		device;
	uint32_t	segments;
	uint64_t	rows;
	uint64_t	bytes;
} gpuvec_place_info;

#endif							/* GPUVEC_PROTOCOL_H */
