/*-------------------------------------------------------------------------
 *
 * protocol_mirrors.h
 *	  Messages about mirrors: what they are copies of, loads and refreshes,
 *	  rows of feeds.
 *
 * core/protocol.h has the rules of all messages.
 *
 *-------------------------------------------------------------------------
 */
#ifndef GPUVEC_PROTOCOL_MIRRORS_H
#define GPUVEC_PROTOCOL_MIRRORS_H

#include <stdint.h>

#include "core/bounds.h"
#include "core/filter.h"
#include "core/ids.h"
#include "core/pooling.h"
#include "core/protocol.h"

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
	uint16_t	nfilters;		/* number of filter columns */
	uint16_t	values;			/* 1: rows have a value for each id */
} gpuvec_mirror_key;

typedef enum gpuvec_mirror_state
{
	GPUVEC_ABSENT,				/* not in memory, and nobody loads it */
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
 * others uint16_t.  If the mirror has values, each row has a float for each
 * id, finite and not 0.  If it has filter columns, the row's filter keys
 * (gpuvec_filter_keys()) come last, aligned to 4 bytes only.
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
	uint64_t	newest;			/* up to GPUVEC_MAX_XID; 0: partial page, or
								 * not told */
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
	uint16_t	form;			/* GPUVEC_FORM_... */
	uint32_t	len;			/* number of ids that follow */
} gpuvec_row;

/* The form of ids */
#define GPUVEC_FORM_WIDE		1	/* they are uint32_t */
#define GPUVEC_FORM_VALUES		2	/* they have values */

/*
 * Bytes of the ids of a row in some form, and of their values, which follow:
 * a float for each, finite and not 0
 */
static inline uint32_t
gpuvec_form_ids_bytes(uint32_t form, uint32_t len)
{
	return form & GPUVEC_FORM_WIDE ? len * 4 : (len * 2 + 3) & ~UINT32_C(3);
}

static inline uint32_t
gpuvec_form_bytes(uint32_t form, uint32_t len)
{
	return gpuvec_form_ids_bytes(form, len) + (form & GPUVEC_FORM_VALUES ? len * 4 : 0);
}

/* Bytes of a row, without its filter keys */
#define gpuvec_row_bytes(form, len)		(sizeof(gpuvec_row) + gpuvec_form_bytes(form, len))

/* The ids of a row, which lie at `ids` */
static inline gpuvec_id_span
gpuvec_row_ids(const gpuvec_row *row, const void *ids)
{
	gpuvec_id_span span = {ids, row->len, (row->form & GPUVEC_FORM_WIDE) != 0};

	return span;
}

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
typedef struct gpuvec_refresh_chunk
{
	gpuvec_mirror_key key;
	uint64_t	known;
} gpuvec_refresh_chunk;

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
	GPUVEC_FEED_ROW = 1,		/* a row: its ids, and their values if it has
								 * any, as in a gpuvec_row.  It replaces what
								 * the mirror has under its line. */
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
	uint32_t	len;			/* number of uint16_t that follow; of a ROW
								 * what its ids and values take */
	uint16_t	form;			/* of a ROW: GPUVEC_FORM_...; else 0 */
	uint16_t	nfilter_keys;	/* of a ROW: filter keys of filter columns
								 * that follow the values and their padding */
} gpuvec_feed_record;

#define gpuvec_feed_values_bytes(len)	(((uint64_t) (len) * 2 + 7) & ~UINT64_C(7))
#define gpuvec_feed_record_bytes(len, nfilter_keys) \
	(sizeof(gpuvec_feed_record) + gpuvec_feed_values_bytes(len) + (uint64_t) (nfilter_keys) * 8)

/*
 * The ids of a ROW, whose values lie at `values`.  An id takes 1 uint16_t, 2
 * if wide, and 2 more if it has a value; then narrow ids are padded.
 */
static inline gpuvec_id_span
gpuvec_feed_record_ids(const gpuvec_feed_record *record, const void *values)
{
	bool		wide = (record->form & GPUVEC_FORM_WIDE) != 0;
	uint32_t	each = (wide ? 2 : 1) + (record->form & GPUVEC_FORM_VALUES ? 2 : 0);
	gpuvec_id_span span = {values, record->len / each, wide};

	return span;
}

/* The len of a ROW of n ids */
static inline uint32_t
gpuvec_feed_record_len(uint32_t form, uint32_t n)
{
	return form & (GPUVEC_FORM_WIDE | GPUVEC_FORM_VALUES) ? gpuvec_form_bytes(form, n) / 2 : n;
}

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

#endif							/* GPUVEC_PROTOCOL_MIRRORS_H */
