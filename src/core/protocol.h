/*-------------------------------------------------------------------------
 *
 * protocol.h
 *	  What sessions and the engine say to each other over the UNIX socket.
 *
 * Both ends run on one machine, so numbers travel in native byte order and
 * structs as they lie in memory; every struct below has explicit padding and
 * a size that is a multiple of 8.  A frame is a gpuvec_frame header followed
 * by `length` bytes.  The header and GPUVEC_MSG_HELLO / GPUVEC_MSG_ERROR
 * never change their layout, so ends of different versions can say so.
 *
 * The engine serves the requests of a connection one after another, and sends
 * one reply to each, in their order; a session may send several before it
 * reads replies.  GPUVEC_MSG_PAGES and GPUVEC_MSG_REFRESH_PAGES have no
 * reply: what went wrong with pages is the (one) GPUVEC_MSG_ERROR that
 * answers the next COMMIT or REFRESH, or comes earlier, and the session must
 * close the connection.  Closing a connection cancels what it asked for,
 * drops an unfinished load or refresh, and drops the session's private
 * mirrors.
 *
 * The engine may close a connection on which nothing is unfinished: a request
 * that crosses that has not been begun, and its sender opens another
 * connection.
 *
 *-------------------------------------------------------------------------
 */
#ifndef GPUVEC_PROTOCOL_H
#define GPUVEC_PROTOCOL_H

#include <stdint.h>

#include "core/pooling.h"
#include "core/bounds.h"
#include "core/nearest.h"

#define GPUVEC_PROTOCOL_MAGIC	UINT32_C(0x47505643)	/* "GPVC" */
#define GPUVEC_PROTOCOL_VERSION 11

/* No frame is longer; senders split pages long before */
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
	GPUVEC_MSG_REFRESH_PAGES,	/* gpuvec_refresh_part, gpuvec_page ... (no
								 * reply) */

	/* engine -> session */
	GPUVEC_MSG_WELCOME = 64,	/* gpuvec_welcome */
	GPUVEC_MSG_ERROR,			/* gpuvec_error_head, then message, detail,
								 * hint */
	GPUVEC_MSG_STATE,			/* gpuvec_state [+ page LSNs] */
	GPUVEC_MSG_RESULT,			/* gpuvec_result ... */
	GPUVEC_MSG_COUNT,			/* uint64 */
	GPUVEC_MSG_MIRRORS,			/* gpuvec_mirror_info[] */
	GPUVEC_MSG_ENGINE_INFO,		/* gpuvec_engine_info */
	GPUVEC_MSG_EMBEDDING_ANSWER /* gpuvec_embedding_answer ... */
} gpuvec_message;

typedef struct gpuvec_frame
{
	uint32_t	length;			/* bytes that follow this header */
	uint16_t	type;			/* gpuvec_message */
	uint16_t	flags;			/* zero */
	uint64_t	request;		/* chosen by the session, returned in the
								 * reply */
} gpuvec_frame;

/* First frame of a connection */
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
} gpuvec_welcome;

/*
 * The engine's error, which becomes an ereport(ERROR) unless the session can
 * do without the engine.  Followed by three NUL-terminated strings: message,
 * detail, hint (the last two may be empty).
 */
typedef struct gpuvec_error_head
{
	char		sqlstate[6];	/* five characters and a NUL */
	uint8_t		retry;			/* the engine is shutting down: reconnect */
	uint8_t		fallback;		/* the engine cannot serve this: scan without
								 * it */
} gpuvec_error_head;

/*
 * What a mirror is a mirror of.  Compared as bytes, so callers zero it first.
 * `meaning` is a hash of what the catalog says of the file and its rows.
 * `rooted`: rows stand for HOT chains, not for row versions.  `index` is the
 * index whose expression or predicate says what the rows are, or 0.  A mirror
 * of an embedding table (key_attnum != 0) has a column of keys as well.
 * `private_id` is 0 for a mirror that all sessions share; otherwise it
 * belongs to the session that made it.
 */
typedef struct gpuvec_mirror_key
{
	uint32_t	database;
	uint32_t	tablespace;
	uint32_t	relation;
	uint32_t	relfilenumber;
	uint32_t	type;			/* oid of the column's type */
	int32_t		attnum;
	uint64_t	meaning;
	uint32_t	rooted;
	uint32_t	index;
	uint64_t	private_id;
	uint32_t	key_type;		/* oid of the key column's type */
	int32_t		key_attnum;		/* 0: a mirror of sets */
	uint64_t	key_missing;
	uint32_t	storage;		/* gpuvec_storage of vectors */
	uint32_t	index_file;		/* with an index: its relfilenumber ... */
	uint32_t	index_tablespace;	/* ... and where that file is */
	uint32_t	padding;
} gpuvec_mirror_key;

typedef enum gpuvec_mirror_state
{
	GPUVEC_ABSENT,				/* not resident, nobody loads it */
	GPUVEC_LOADING,				/* some session is loading it (or refreshing:
								 * REFRESH_BEGIN) */
	GPUVEC_READY
} gpuvec_mirror_state;

/*
 * State of a mirror.  Every complete load or refresh of a mirror gets the
 * next `refresh` number, starting at 1; each page remembers the number of the
 * one that last read it.  `checked` is the WAL position up to which the
 * mirror is known to hold every change.  Numbers continue across evict and
 * reload for as long as the engine lives, so that a number never comes back.
 *
 * `feed` names an index whose insertions are numbered, and `applied` is the
 * number up to which the mirror has them; 0: none.  Both mean nothing to the
 * engine.
 */
typedef struct gpuvec_state
{
	uint32_t	state;			/* gpuvec_mirror_state */
	uint32_t	nblocks;		/* pages that the mirror covers */
	uint64_t	refresh;
	uint64_t	checked;
	uint64_t	nrows;
	uint64_t	nids;			/* of sets, those of dead rows included */
	uint64_t	feed;
	uint64_t	applied;
} gpuvec_state;

/*
 * Begin to load; it has not begun if another session's load or refresh is
 * unfinished.  Followed by the paths of the files that the mirror is made of,
 * each with a NUL at its end: that of the rows, then those of indexes.  When
 * one is gone, so is the mirror (sweep.c).
 */
typedef struct gpuvec_load
{
	gpuvec_mirror_key key;
	uint32_t	nblocks;		/* pages expected, for the progress view */
	uint32_t	file_bytes;		/* of the paths in all; 0: there are none */
} gpuvec_load;

#define GPUVEC_MAX_FILE_BYTES	4096

/*
 * Begin a refresh: by the LSNs of all pages, which are the answer then; or of
 * pages that the session knows to be stale in what the refresh of number
 * `known` made.  If another one has made the mirror, it has not begun.
 */
typedef struct gpuvec_refresh
{
	gpuvec_mirror_key key;
	uint32_t	lsns;			/* 1: answer with the LSNs of all pages */
	uint32_t	padding;
	uint64_t	known;			/* unless lsns */
} gpuvec_refresh;

/*
 * One heap page with all its rows; several may follow one another in a frame.
 * A page replaces whatever the mirror holds of that page.  Rows follow as
 * gpuvec_row headers, each followed by its ids, padded to 4 bytes; `bytes`
 * counts all of them.  ids are ascending and distinct.
 */
typedef struct gpuvec_page
{
	uint32_t	block;
	uint32_t	nrows;
	uint64_t	lsn;
	uint32_t	bytes;
	uint32_t	padding;
} gpuvec_page;

typedef struct gpuvec_row
{
	uint16_t	line;			/* 1 .. GPUVEC_MAX_LINE, ascending within a
								 * page */
	uint16_t	padding;
	uint32_t	len;			/* number of ids that follow */
} gpuvec_row;

#define gpuvec_row_bytes(len) \
	(sizeof(gpuvec_row) + (((uint32_t) (len) * 2 + 3) & ~UINT32_C(3)))

/*
 * A row of an embedding table: in place of gpuvec_row, followed by its
 * elements in the mirror's storage, padded to 4 bytes (none unless it is
 * good).
 */
typedef struct gpuvec_vector_row
{
	uint16_t	line;			/* line pointer number, 1 .. GPUVEC_MAX_LINE */
	uint16_t	kind;			/* gpuvec_vector_kind */
	uint32_t	width;			/* number of elements that follow */
	int64_t		key;
} gpuvec_vector_row;

#define gpuvec_vector_row_bytes(width, storage) \
	(sizeof(gpuvec_vector_row) + \
	 (((uint64_t) (width) * gpuvec_element_bytes(storage) + 3) & ~UINT64_C(3)))

/*
 * Publish the pages sent since LOAD_BEGIN or REFRESH_BEGIN in one step.
 * Pages at or beyond nblocks leave the mirror; `checked` becomes at least
 * position.  If `feed` is not 0, it becomes the mirror's, with what was
 * applied of it.
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
 * First pages of a refresh, whose message follows, with the same key and
 * number: so the engine can begin while the session goes on reading.
 */
typedef struct gpuvec_refresh_part
{
	gpuvec_mirror_key key;
	uint64_t	known;
} gpuvec_refresh_part;

/*
 * A whole refresh in one message, with its pages, unless REFRESH_PAGES came
 * before: then with the last of them.  It is made only if the mirror still is
 * what the session knows: the refresh of this number made it.  The answer's
 * state tells whether it was made.
 */
typedef struct gpuvec_refresh_once
{
	gpuvec_mirror_key key;
	uint64_t	known;
	gpuvec_commit commit;
} gpuvec_refresh_once;

/*
 * Drop the shared mirrors of a relation (0: of the whole database; and that
 * 0: all), or the one private mirror of this session that private_id names.
 */
typedef struct gpuvec_drop
{
	uint32_t	database;
	uint32_t	relation;
	int32_t		attnum;			/* 0: all columns */
	uint32_t	padding;
	uint64_t	private_id;		/* 0: the shared ones */
} gpuvec_drop;

/* How fresh a mirror has to be: either condition is enough */
typedef struct gpuvec_freshness
{
	uint64_t	position;		/* checked >= position */
	uint64_t	feed;			/* unless 0: this is the feed, ... */
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
 * A search.  Followed by nqueries gpuvec_query structs, then all queries' ids
 * one after another (uint16_t, nids in all, ascending and distinct in each).
 */
typedef struct gpuvec_search
{
	gpuvec_mirror_key key;
	gpuvec_freshness need;		/* answer only if the mirror is as fresh as
								 * this */
	uint64_t	known;			/* number of a refresh: see gpuvec_hit */
	uint32_t	measure;		/* gpuvec_measure */
	uint32_t	method;			/* gpuvec_method */
	uint32_t	nqueries;
	uint32_t	padding;
	uint64_t	nids;
} gpuvec_search;

#define GPUVEC_QUERY_MIN_SCORE	1	/* min_score is set */
#define GPUVEC_QUERY_AFTER		2	/* only rows behind (after_score,
									 * after_tid) */

typedef struct gpuvec_query
{
	uint32_t	len;			/* number of ids */
	uint32_t	k;				/* 1 .. GPUVEC_MAX_K */
	uint32_t	flags;
	uint32_t	padding;
	double		min_score;
	double		after_score;
	uint64_t	after_tid;
} gpuvec_query;

/*
 * Answer to a search: state as it was when the search ran.  If it is not
 * READY, or not as fresh as asked, nothing was searched and nqueries is 0.
 * Otherwise uint32_t nhits[nqueries], padded to 8 bytes, then all hits, query
 * by query, best first.
 */
typedef struct gpuvec_result
{
	gpuvec_state state;
	uint32_t	nqueries;
	uint32_t	engine_us;		/* time in the engine, microseconds */
	uint64_t	nhits;
} gpuvec_result;

/*
 * A row of an answer.  `place` packs the row's heap position, its number of
 * common ids, and whether its page was last read by a refresh with a larger
 * number than the search's `known`.
 */
typedef struct gpuvec_hit
{
	double		score;
	uint64_t	place;
} gpuvec_hit;

#define GPUVEC_HIT_COMMON_BITS	19	/* at most 65536 */
#define GPUVEC_HIT_NEWER		(UINT64_C(1) << GPUVEC_HIT_COMMON_BITS)

#define gpuvec_hit_place(tid, common, newer) \
	((uint64_t) gpuvec_tid_block(tid) << 32 | \
	 (uint64_t) gpuvec_tid_line(tid) << (GPUVEC_HIT_COMMON_BITS + 1) | \
	 ((newer) ? GPUVEC_HIT_NEWER : 0) | (common))
#define gpuvec_hit_block(place)		((uint32_t) ((place) >> 32))
#define gpuvec_hit_line(place) \
	((uint16_t) ((place) >> (GPUVEC_HIT_COMMON_BITS + 1) & GPUVEC_MAX_LINE))
#define gpuvec_hit_tid(place)		gpuvec_tid(gpuvec_hit_block(place), gpuvec_hit_line(place))
#define gpuvec_hit_common(place)	((uint32_t) ((place) & (GPUVEC_HIT_NEWER - 1)))
#define gpuvec_hit_newer(place)		(((place) & GPUVEC_HIT_NEWER) != 0)

/*
 * Gather or pool vectors.  Followed by, in this order,
 *
 *		int64_t keys[nkeys]
 *		uint64_t offsets[nbags + 1]		all but GATHER, if hotness is 0: where
 *		bags begin
 *		uint64_t verdicts[nverdicts]	gpuvec_verdict, ascending and distinct
 *		float weights[nkeys]			with WEIGHTED, padded to 8 bytes
 *		float gradient[ngradient]		of what pooling gives, padded to 8
 *		bytes
 *		uint8_t map[map_bytes]			two bits for each heap page, the lower
 *		one
 *										set if the page was all-visible
 *
 * Which of the rows that have a key does the session's snapshot see?  Those
 * of a page whose bit is set, and that was last read by a refresh numbered
 * `known` or before.  Of all others the session must decide.  The engine
 * answers UNDECIDED with those for which there is no verdict, and the session
 * sends its request once more, with more verdicts; a verdict once given holds
 * for as long as its snapshot.
 */
typedef enum gpuvec_embedding_op
{
	GPUVEC_EMBEDDING_GATHER,	/* the vectors of keys */
	GPUVEC_EMBEDDING_POOL,		/* of bags of keys */
	GPUVEC_EMBEDDING_GRAD,		/* the gradients of the keys' vectors */
	GPUVEC_EMBEDDING_GRAD_WEIGHTS	/* the gradients of the weights */
} gpuvec_embedding_op;

#define GPUVEC_N_EMBEDDING_OPS		4

#define GPUVEC_EMBEDDING_WEIGHTED	1	/* each key has a weight */
#define GPUVEC_EMBEDDING_FOUND		2	/* tell of each key whether it was
										 * found */
#define GPUVEC_EMBEDDING_KEEP_MAP	4	/* keep the map for later requests of
										 * the session */
#define GPUVEC_EMBEDDING_KEPT_MAP	8	/* use the map that was kept last;
										 * map_bytes is 0 */
#define GPUVEC_EMBEDDING_FLAGS		15

typedef struct gpuvec_embedding_request
{
	gpuvec_mirror_key key;
	uint64_t	position;		/* answer only if checked >= position */
	uint64_t	known;			/* number of a refresh; 0: the map says
								 * nothing */
	uint32_t	op;				/* gpuvec_embedding_op */
	uint32_t	flags;
	uint32_t	mode;			/* gpuvec_pool_mode */
	uint32_t	missing;		/* gpuvec_missing */
	uint64_t	nkeys;
	uint64_t	nbags;			/* all but GATHER */
	uint64_t	hotness;		/* keys of every bag; 0: there are offsets */
	uint64_t	nverdicts;
	uint64_t	ngradient;		/* floats of the gradient; 0 for GATHER and
								 * POOL */
	uint64_t	map_bytes;		/* a multiple of 8 */
} gpuvec_embedding_request;

#define gpuvec_verdict(tid, visible)	((uint64_t) (tid) << 1 | (visible))
#define gpuvec_verdict_tid(verdict)		((verdict) >> 1)

typedef enum gpuvec_embedding_status
{
	GPUVEC_EMBEDDING_STALE,		/* not READY, or checked < position */
	GPUVEC_EMBEDDING_UNDECIDED, /* uint64_t tids[count], ascending */
	GPUVEC_EMBEDDING_DONE,
	GPUVEC_EMBEDDING_MISSING,	/* GPUVEC_MISSING_ERROR: there is no row with
								 * `key` */
	GPUVEC_EMBEDDING_DUPLICATE, /* several rows have `key` */
	GPUVEC_EMBEDDING_BAD,		/* the vector of `key` cannot be used: `kind` */
	GPUVEC_EMBEDDING_WIDTHS,	/* vectors of `key` and `other_key` differ in
								 * width */
	GPUVEC_EMBEDDING_GRADIENT,	/* the gradient must have `count` elements */
	GPUVEC_EMBEDDING_LARGE		/* the answer would be too large: ask for less */
} gpuvec_embedding_status;

/*
 * Answer: state as it was when the request was served.  Complaints are about
 * the first key, in the order of the request, that gives reason to complain.
 * DONE is followed by
 *
 *		uint8_t found[nkeys]		with FOUND, padded to 8 bytes
 *		float elements[count]		GATHER: the vectors of the keys that were
 *		found;
 *									POOL: of the bags; GRAD_WEIGHTS: one for
 *									each
 *									key; none if no key was found
 *
 * and for GRAD by
 *
 *		int64_t keys[nrows]				those that were found, each once,
 *		ascending
 *		float elements[count]			their gradients
 */
typedef struct gpuvec_embedding_answer
{
	gpuvec_state state;
	uint32_t	status;			/* gpuvec_embedding_status */
	uint32_t	width;			/* 0 if no key was found; WIDTHS: of `key` */
	uint32_t	other_width;
	uint32_t	kind;			/* gpuvec_vector_kind */
	int64_t		key;
	int64_t		other_key;
	uint64_t	nfound;			/* keys that were found */
	uint64_t	nrows;			/* GRAD: gradients */
	uint64_t	count;
	uint32_t	engine_us;		/* time in the engine, microseconds */
	uint32_t	padding;
} gpuvec_embedding_answer;

/*
 * Rows of an embedding table whose vectors are nearest to queries.  Followed
 * by
 *
 *		uint64_t verdicts[nverdicts]	as for EMBEDDING
 *		int64_t excluded[nexcluded]		keys that are not wanted, ascending
 *		float queries[nqueries * width]	padded to 8 bytes
 *		uint8_t map[map_bytes]			as for EMBEDDING
 *
 * Only vectors as wide as the queries rank.  The answer is an
 * EMBEDDING_ANSWER as well: UNDECIDED names rows near the queries; DONE is
 * followed by
 *
 *		uint32_t nrows[nqueries]		padded to 8 bytes
 *		gpuvec_near rows[count]			query by query, best first
 */
typedef struct gpuvec_nearest_head
{
	gpuvec_mirror_key key;
	uint64_t	position;		/* answer only if checked >= position */
	uint64_t	known;			/* number of a refresh; 0: the map says
								 * nothing */
	uint32_t	metric;			/* gpuvec_metric */
	uint32_t	k;				/* 1 .. GPUVEC_MAX_K */
	uint32_t	nqueries;
	uint32_t	width;
	uint64_t	nverdicts;
	uint64_t	nexcluded;
	uint64_t	map_bytes;		/* a multiple of 8 */
} gpuvec_nearest_head;

/* Rows that all queries of a request may have */
#define GPUVEC_MAX_NEAR			1000000

typedef struct gpuvec_mirror_info
{
	gpuvec_mirror_key key;
	uint32_t	state;			/* gpuvec_mirror_state */
	uint32_t	nsegments;
	uint32_t	pages_done;		/* while loading: pages received ... */
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

#endif							/* GPUVEC_PROTOCOL_H */
