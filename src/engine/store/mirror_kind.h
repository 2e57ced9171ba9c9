/*-------------------------------------------------------------------------
 *
 * mirror_kind.h
 *	  Kinds of mirrors: what a mirror may hold, as a table of functions.
 *
 * The store knows mirrors, pages, refresh numbers and memory.  It does not
 * know rows: these belong to the kind.  There are two kinds,
 *
 *		gpuvec_sets_kind		sets of ids, in segments (engine/sets)
 *		gpuvec_embedding_kind	vectors, found by keys (engine/embedding)
 *
 * A kind extends the structs of mirrors and updates: its own structs begin
 * with a gpuvec_mirror and a gpuvec_update.  The store calls only the
 * functions below.  Each kind has its own functions for reading, since
 * readers of different kinds hold different things: gpuvec_sets_open,
 * gpuvec_embedding_open.
 *
 * How to extend this:
 *
 *	- Another kind: a folder beside engine/sets, a table that main.c hands to
 *	  gpuvec_store_open(), gpuvec_kind_of.
 *	- Rows of a feed, which come without their pages: take_fed of the kind,
 *	  and prepare, which buries what was under their line pointers
 *	  (update_rows.c).
 *	- More columns of a row: take_row of the kind, and its layout.
 *	- Rows on several devices: the device's backend divides them
 *	  (engine/shards), and places tells where they are.
 *
 *-------------------------------------------------------------------------
 */
#ifndef GPUVEC_MIRROR_KIND_H
#define GPUVEC_MIRROR_KIND_H

#include "engine/store/mirror_update.h"

/* A page that a session sent in a load or refresh */
typedef struct gpuvec_sent_page
{
	uint32_t	block;
	uint32_t	nrows;			/* rows taken; 0 if the rows are unchanged */
	bool		same;
	bool		partial;		/* only some of its lines were sent */
	uint64_t	newest;			/* as the session said when it read it */
	gpuvec_page_state state;
} gpuvec_sent_page;

/*
 * What a feed says last of a line pointer.  The mirror's rows with `tid`, and
 * with the next tid, are of this line pointer.
 */
typedef struct gpuvec_fed_row
{
	uint64_t	tid;			/* with an even line */
	const gpuvec_feed_record *record;	/* a ROW, or a GONE */
} gpuvec_fed_row;

/*
 * A load, a refresh or rows of a feed under way; each kind extends this
 * struct.  Used by one thread at a time.
 */
struct gpuvec_update
{
	gpuvec_store *store;
	gpuvec_mirror *mirror;		/* with a reference */
	bool		load;
	bool		committing;		/* has claimed the mirror, to publish rows */
	gpuvec_sent_page *pages;	/* in ascending order of block; with fed, the
								 * pages of its rows, and all new ones */
	uint64_t	npages;
	uint64_t	pages_capacity;
	uint64_t   *lines;			/* lines of partial pages, as tids, ascending */
	uint64_t	nlines;
	uint64_t	lines_capacity;
	gpuvec_fed_row *fed;		/* rows of a feed, in ascending order of tid,
								 * distinct; NULL: a load or refresh */
	uint64_t	nfed;
	uint64_t	fed_rows;		/* how many of them are ROWs */

	/* made by a commit; publishing leaves the replaced numbers here */
	gpuvec_page_numbers *numbers;
	const char *hopeless;		/* why the mirror must be dropped instead of
								 * updated, or NULL */

	/* for the log: nanoseconds of the clock (clock.h) */
	uint64_t	began;
	uint64_t	numbering;		/* how long ids were numbered */

	/* a load by several sessions (joint_load.c) */
	struct gpuvec_joint_load *joint;	/* or NULL */
	bool		is_slice;		/* what a session sends that has joined */
	size_t		charged;		/* bytes that count for it in joint->bytes */
	struct gpuvec_update *next; /* in the list of slices: of those that were
								 * handed over, or of those that were not */
	const void *session;		/* that sends a slice */
};

/*
 * Functions that can fail return false and fill *error.  No function is
 * called with the store's mutex held unless its comment says so.  Functions
 * with an update are called only by the mirror's updater.
 */
struct gpuvec_mirror_kind
{
	size_t		mirror_bytes;	/* size of the kind's struct of a mirror */
	size_t		update_bytes;	/* size of its struct of an update */
	size_t		row_header;		/* least bytes of a row in a page; a row
								 * begins with its line pointer, a uint16_t */
	bool		takes_lines;	/* takes partial pages */
	bool		keeps_room;		/* memory that an update allocated stays with
								 * the mirror, even if the update fails */

	/*
	 * make: fill in a new mirror, which is zero except for what the store has
	 * set; the caller holds the mutex.  drop: free what the mirror holds, at
	 * its end.
	 */
	bool		(*make) (gpuvec_mirror *mirror, gpuvec_error *error);
	void		(*drop) (gpuvec_mirror *mirror);

	/*
	 * What the kind has of several mirrors together.  unlisted: drop what has
	 * rows of this mirror, which leaves the store's list.  give_way: give up
	 * all that a device has of it, for other uses of the memory.  Both return
	 * the bytes that were charged, and are called with the mutex held.  NULL:
	 * there is no such thing.
	 */
	size_t		(*unlisted) (gpuvec_store *store, const gpuvec_device *device,
							 const gpuvec_mirror *mirror);
	size_t		(*give_way) (gpuvec_store *store, const gpuvec_device *device);

	/*
	 * True if the rows are in the device's memory, which is then charged;
	 * else the host's memory is charged
	 */
	bool		(*on_device) (const gpuvec_mirror *mirror);

	/*
	 * Bytes that the rows take or, with a prepared update (may be NULL), will
	 * take.  The caller holds the mutex or is the updater.
	 */
	void		(*bytes) (const gpuvec_mirror *mirror, const gpuvec_update *update,
						  size_t *host, size_t *device);

	/*
	 * Count what each device of a backend holds of the rows, in
	 * places[GPUVEC_MAX_DEVICES], which is all zero.  The caller holds the
	 * mutex.  NULL: the first device holds all of them.
	 */
	void		(*places) (const gpuvec_mirror *mirror, gpuvec_place_info *places);

	/*
	 * copy_bytes: what copies of the rows on several devices take, of the
	 * mirror or of a prepared update, beside `bytes`.  take_copies: the rows
	 * have no copies from now on; adds them to a list of what is to be freed.
	 * The caller holds the mutex or is the updater.  Both are NULL if the
	 * kind has no copies.
	 */
	size_t		(*copy_bytes) (const gpuvec_mirror *mirror, const gpuvec_update *update);
	gpuvec_copies *(*take_copies) (gpuvec_mirror *mirror, gpuvec_update *update,
								   gpuvec_copies *more);

	/*
	 * begin: start an update; the kind's part of it is all zero.  end: free
	 * the kind's part, whether the update was published or not.
	 */
	bool		(*begin) (gpuvec_update *update, gpuvec_error *error);
	void		(*end) (gpuvec_update *update);

	/*
	 * Take the row at `from`, and return its bytes, or 0 on failure.  Its
	 * first row_header bytes are there, but the rest may be cut off: the
	 * page's rows end at `end`.  If `lasts`, the row stays valid until the
	 * update ends, or until its message is offered to own_message.
	 */
	size_t		(*take_row) (gpuvec_update *update, uint64_t tid, const char *from,
							 const char *end, bool lasts, gpuvec_error *error);

	/*
	 * See gpuvec_update_own.  NULL: take_row copies rows whatever `lasts` is.
	 */
	bool		(*own_message) (gpuvec_update *update, char **message, size_t size,
								gpuvec_error *error);

	/*
	 * Take a ROW of a feed, which stays valid until the update ends.  NULL:
	 * this kind has no feeds.
	 */
	bool		(*take_fed) (gpuvec_update *update, const gpuvec_fed_row *row,
							 gpuvec_error *error);

	/*
	 * Rows taken so far, and the bytes to charge for them: of the device or
	 * of the host
	 */
	uint64_t	(*rows_taken) (const gpuvec_update *update);
	size_t		(*bytes_taken) (const gpuvec_update *update);

	/*
	 * Move the rows of a slice of the load to the load, before it is
	 * prepared. NULL: one session alone loads a mirror.
	 */
	bool		(*unite) (gpuvec_update *update, gpuvec_update *slice, gpuvec_error *error);

	/*
	 * Do all work that takes time or may fail: publishing cannot fail.  Pages
	 * at or beyond nblocks are left out.  Rows of a feed replace what is
	 * under their line pointers, other rows what is on their pages.  May set
	 * update->hopeless instead.
	 */
	bool		(*prepare) (gpuvec_update *update, uint32_t nblocks, gpuvec_error *error);

	/*
	 * Publish in three steps.  exchange: keep readers out and exchange the
	 * rows.  publish, with the mutex held: set what the store shows of the
	 * rows (gpuvec_mirror.nrows and so on).  published: let readers in, with
	 * the mirror's new state.  exchange and published may be NULL.
	 */
	void		(*exchange) (gpuvec_update *update, uint32_t nblocks);
	void		(*publish) (gpuvec_update *update);
	void		(*published) (gpuvec_update *update, const gpuvec_state *state);
};

/* True if this is the key of a mirror of an embedding table */
static inline bool
gpuvec_is_embedding_key(const gpuvec_mirror_key *key)
{
	return key->key_attnum != 0;
}

static inline const gpuvec_mirror_kind *
gpuvec_kind_of(const gpuvec_store *store, const gpuvec_mirror_key *key)
{
	return gpuvec_is_embedding_key(key) ? store->kinds.vectors : store->kinds.sets;
}

/*
 * sent_pages.c.  bad_pages: for take_row, report rows that violate the
 * protocol; returns false.  add_page: add an entry for a page, zeroed; NULL on
 * lack of memory.  drop_rows: free what an update holds, but not the update.
 */
extern bool gpuvec_update_bad_pages(gpuvec_error *error, const char *what);
extern gpuvec_sent_page *gpuvec_update_add_page(gpuvec_update *update, gpuvec_error *error);
extern void gpuvec_update_drop_rows(gpuvec_update *update);

/* Bytes of the pages and lines that an update has noted */
static inline size_t
gpuvec_update_noted_bytes(const gpuvec_update *update)
{
	return update->npages * GPUVEC_PAGE_BYTES + update->nlines * sizeof(uint64_t);
}

/* The state of a page that was not read as a whole */
extern const gpuvec_page_state gpuvec_page_not_read;

/*
 * For prepare: the pages of the update that replace pages of the mirror, in a
 * malloc'd array of *n, ascending.  NULL on lack of memory.
 */
extern uint32_t *gpuvec_update_replaced(const gpuvec_update *update, uint64_t *n,
										gpuvec_error *error);

/*
 * For own_message: charge bytes_taken at once, so that a load that cannot fit
 * fails early
 */
extern bool gpuvec_update_charge(gpuvec_update *update, gpuvec_error *error);

#endif							/* GPUVEC_MIRROR_KIND_H */
