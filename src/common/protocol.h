/*-------------------------------------------------------------------------
 *
 * protocol.h
 *	  What sessions and the engine say to each other over the UNIX socket.
 *
 * Both ends run on one machine, so numbers travel in native byte order and
 * structs as they lie in memory; every struct below has explicit padding and a
 * size that is a multiple of 8.  A frame is a gpuvec_frame header followed by
 * `length` bytes.  The header and GPUVEC_MSG_HELLO / GPUVEC_MSG_ERROR never
 * change their layout, so ends of different versions can say so.
 *
 * A session sends one request at a time and reads one reply, except for
 * GPUVEC_MSG_PAGES, which has no reply: the engine reports what went wrong with
 * pages as the (one) GPUVEC_MSG_ERROR that answers the next COMMIT, or earlier,
 * after which the session must close the connection.  Closing a connection
 * cancels what it asked for, drops an unfinished load or refresh, and drops the
 * session's private mirrors.
 *
 *-------------------------------------------------------------------------
 */
#ifndef GPUVEC_PROTOCOL_H
#define GPUVEC_PROTOCOL_H

#include <stdint.h>

#include "limits.h"

#define GPUVEC_PROTOCOL_MAGIC	UINT32_C(0x47505643)	/* "GPVC" */
#define GPUVEC_PROTOCOL_VERSION 6

/* No frame is longer; senders split pages long before */
#define GPUVEC_MAX_FRAME		(UINT32_C(1) << 30)

typedef enum gpuvec_message
{
	/* session -> engine */
	GPUVEC_MSG_HELLO = 1,		/* gpuvec_hello -> WELCOME */
	GPUVEC_MSG_STAT,			/* gpuvec_mirror_key -> STATE */
	GPUVEC_MSG_SEARCH,			/* gpuvec_search ... -> RESULT */
	GPUVEC_MSG_LOAD_BEGIN,		/* gpuvec_load -> STATE */
	GPUVEC_MSG_REFRESH_BEGIN,	/* gpuvec_refresh -> STATE + uint64 page LSNs, or LOADING: busy */
	GPUVEC_MSG_PAGES,			/* gpuvec_page ... (no reply) */
	GPUVEC_MSG_COMMIT,			/* gpuvec_commit -> STATE */
	GPUVEC_MSG_DROP,			/* gpuvec_drop -> COUNT */
	GPUVEC_MSG_LIST,			/* nothing -> MIRRORS */
	GPUVEC_MSG_ENGINE,			/* nothing -> ENGINE_INFO */
	GPUVEC_MSG_REFRESH,			/* gpuvec_refresh_known (no reply) */

	/* engine -> session */
	GPUVEC_MSG_WELCOME = 64,	/* gpuvec_welcome */
	GPUVEC_MSG_ERROR,			/* gpuvec_error_head, then message, detail, hint */
	GPUVEC_MSG_STATE,			/* gpuvec_state [+ page LSNs] */
	GPUVEC_MSG_RESULT,			/* gpuvec_result ... */
	GPUVEC_MSG_COUNT,			/* uint64 */
	GPUVEC_MSG_MIRRORS,			/* gpuvec_mirror_info[] */
	GPUVEC_MSG_ENGINE_INFO		/* gpuvec_engine_info */
} gpuvec_message;

typedef struct gpuvec_frame
{
	uint32_t	length;			/* bytes that follow this header */
	uint16_t	type;			/* gpuvec_message */
	uint16_t	flags;			/* zero */
	uint64_t	request;		/* chosen by the session, returned in the reply */
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
 * The engine's error, which becomes an ereport(ERROR).  Followed by three
 * NUL-terminated strings: message, detail, hint (the last two may be empty).
 */
typedef struct gpuvec_error_head
{
	char		sqlstate[6];	/* five characters and a NUL */
	uint8_t		retry;			/* the engine is shutting down: reconnect */
	uint8_t		fallback;		/* no engine can serve this: scan without it */
} gpuvec_error_head;

/*
 * What a mirror is a mirror of.  Compared as bytes, so callers zero it first.
 * `missing` is a hash of the column's missing-value default (0: none).  `rooted`: rows
 * stand for HOT chains, not for row versions.  `index` is the index whose expression or
 * predicate says what the rows are, or 0.
 * `private_id` is 0 for a mirror that all sessions share; otherwise it belongs
 * to the session that made it.
 */
typedef struct gpuvec_mirror_key
{
	uint32_t	database;
	uint32_t	tablespace;
	uint32_t	relation;
	uint32_t	relfilenumber;
	uint32_t	type;			/* oid of the column's type */
	int32_t		attnum;
	uint64_t	missing;
	uint32_t	rooted;
	uint32_t	index;
	uint64_t	private_id;
} gpuvec_mirror_key;

typedef enum gpuvec_mirror_state
{
	GPUVEC_ABSENT,				/* not resident, nobody loads it */
	GPUVEC_LOADING,				/* some session is loading it (or refreshing: REFRESH_BEGIN) */
	GPUVEC_READY
} gpuvec_mirror_state;

/*
 * State of a mirror.  Every complete load or refresh of a mirror gets the next
 * `refresh` number, starting at 1; each page remembers the number of the one
 * that last read it.  `checked` is the WAL position up to which the mirror is
 * known to hold every change.  Numbers continue across evict and reload for
 * as long as the engine lives, so that a number never comes back.
 *
 * `feed` names an index whose insertions are numbered, and `applied` is the number up
 * to which the mirror has them; 0: none.  Both mean nothing to the engine.
 */
typedef struct gpuvec_state
{
	uint32_t	state;			/* gpuvec_mirror_state */
	uint32_t	nblocks;		/* pages that the mirror covers */
	uint64_t	refresh;
	uint64_t	checked;
	uint64_t	nrows;
	uint64_t	feed;
	uint64_t	applied;
} gpuvec_state;

/* Begin to load.  Fails (SQLSTATE 55006) if another session is loading it. */
typedef struct gpuvec_load
{
	gpuvec_mirror_key key;
	uint32_t	nblocks;		/* pages expected, for the progress view */
	uint32_t	padding;
} gpuvec_load;

/* Begin a refresh */
typedef struct gpuvec_refresh
{
	gpuvec_mirror_key key;
	uint32_t	lsns;			/* 1: answer with the LSNs of all pages */
	uint32_t	padding;
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
	uint16_t	line;			/* 1 .. GPUVEC_MAX_LINE, ascending within a page */
	uint16_t	padding;
	uint32_t	len;			/* number of ids that follow */
} gpuvec_row;

#define gpuvec_row_bytes(len) \
	(sizeof(gpuvec_row) + (((uint32_t) (len) * 2 + 3) & ~UINT32_C(3)))

/*
 * Publish the pages sent since LOAD_BEGIN, REFRESH_BEGIN or REFRESH in one step.  Pages
 * at or beyond nblocks leave the mirror; `checked` becomes at least position.  If
 * `feed` is not 0, it becomes the mirror's, with what was applied of it.
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
 * Begin a refresh of a mirror that the session knows: the refresh of this number made it.
 * Pages and COMMIT follow without waiting for a reply, so that the engine works on pages
 * while others are read.  If the mirror is not what the session knows, or busy, the refresh is
 * not made, and the answer to COMMIT is the state that was found.
 */
typedef struct gpuvec_refresh_known
{
	gpuvec_mirror_key key;
	uint64_t	known;
} gpuvec_refresh_known;

/*
 * Drop the shared mirrors of a relation (0: of the whole database), or the one
 * private mirror of this session that private_id names.
 */
typedef struct gpuvec_drop
{
	uint32_t	database;
	uint32_t	relation;
	int32_t		attnum;			/* 0: all columns */
	uint32_t	padding;
	uint64_t	private_id;		/* 0: the shared ones */
} gpuvec_drop;

/* How fresh a mirror has to be: either will do */
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
	gpuvec_freshness need;			/* answer only if the mirror is so fresh */
	uint64_t	known;			/* number of a refresh: see gpuvec_hit */
	uint32_t	measure;		/* gpuvec_measure */
	uint32_t	method;			/* gpuvec_method */
	uint32_t	nqueries;
	uint32_t	padding;
	uint64_t	nids;
} gpuvec_search;

#define GPUVEC_QUERY_MIN_SCORE	1	/* min_score is set */
#define GPUVEC_QUERY_AFTER		2	/* only rows behind (after_score, after_tid) */

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
 * Answer to a search: state as it was when the search ran.  If it is not READY
 * or not as fresh as asked, nothing was searched and nqueries is 0.  Otherwise
 * uint32_t nhits[nqueries], padded to 8 bytes, then all hits, query by query,
 * best first.
 */
typedef struct gpuvec_result
{
	gpuvec_state state;
	uint32_t	nqueries;
	uint32_t	engine_us;		/* time in the engine, microseconds */
	uint64_t	nhits;
} gpuvec_result;

/*
 * A row of an answer.  `place` packs the row's heap position, its number of common
 * ids, and whether its page was last read by a refresh with a larger number than the
 * search's `known`.
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
