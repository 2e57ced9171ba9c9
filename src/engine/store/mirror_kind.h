/*-------------------------------------------------------------------------
 *
 * mirror_kind.h
 *	  What a mirror may hold, as a table of functions.
 *
 * The store knows mirrors, pages, numbers of refreshes and memory.  It does
 * not know rows: these are a kind's.  There are two,
 *
 *		gpuvec_sets_kind		sets of ids, in segments (engine/sets)
 *		gpuvec_embedding_kind	vectors, found by keys (engine/embedding)
 *
 * A kind extends the structs of mirrors and updates: its own begin with a
 * gpuvec_mirror and a gpuvec_update.  The functions below are all that the
 * store asks of it.  Reading is left to each kind, since what its readers
 * hold on to differs: gpuvec_sets_open, gpuvec_embedding_open.
 *
 * To add something:
 *
 *	- Another kind: a folder beside engine/sets, a table, gpuvec_kind_of.
 *	- Rows that come without their pages: a function beside take_row that
 *	  replaces single rows, and a caller beside gpuvec_update_pages.
 *	- More columns of a row, wider ids: take_row of the kind, and its layout.
 *	- Rows on several devices: gpuvec_mirror.device becomes a list, which
 *	  bytes fills for each, and the kind's readers merge answers.
 *
 *-------------------------------------------------------------------------
 */
#ifndef GPUVEC_MIRROR_KIND_H
#define GPUVEC_MIRROR_KIND_H

#include "engine/store/mirror_update.h"

/* A page that was sent */
typedef struct gpuvec_sent_page
{
	uint32_t	block;
	uint32_t	nrows;			/* staged; 0 if it came back as it was */
	bool		same;
	gpuvec_page_state state;
} gpuvec_sent_page;

/*
 * A load or refresh under way; kinds extend it.  Used by one thread at a
 * time.
 */
struct gpuvec_update
{
	gpuvec_store *store;
	gpuvec_mirror *mirror;		/* with a reference */
	bool		load;
	gpuvec_sent_page *pages;	/* in ascending order of block */
	uint64_t	npages;
	uint64_t	room_pages;
	size_t		charged;		/* of mirror->charged, for what is under way */

	/* made by a commit, for publishing */
	gpuvec_page_numbers *numbers;
	const char *hopeless;		/* why the mirror has to be dropped instead,
								 * or NULL */
};

/*
 * Functions that can fail return false and fill *error.  None holds the
 * store's mutex unless it says so.  Those with an update are called by the
 * mirror's updater alone.
 */
struct gpuvec_mirror_kind
{
	size_t		mirror_bytes;	/* of the kind's struct of a mirror */
	size_t		update_bytes;	/* and of an update */
	size_t		row_header;		/* bytes that each row of a page has at least;
								 * they begin with its line pointer, a
								 * uint16_t */
	bool		keeps_room;		/* what an update got stays the mirror's, even
								 * if it fails */

	/*
	 * A new mirror, all zero but for what the store has filled in; the caller
	 * holds the mutex.  drop frees what it holds in the end.
	 */
	bool		(*make) (gpuvec_mirror *mirror, gpuvec_error *error);
	void		(*drop) (gpuvec_mirror *mirror);

	/*
	 * Do the rows lie on the mirror's device, whose memory is then charged?
	 */
	bool		(*on_device) (const gpuvec_mirror *mirror);

	/*
	 * Bytes that the rows take, or, with an update that is prepared, those
	 * that they will take.  The caller holds the mutex or is the updater.
	 */
	void		(*bytes) (const gpuvec_mirror *mirror, const gpuvec_update *update,
						  size_t *host, size_t *device);

	/*
	 * Begin an update, whose own part is all zero; end frees it, whatever has
	 * become of it
	 */
	bool		(*begin) (gpuvec_update *update, gpuvec_error *error);
	void		(*end) (gpuvec_update *update);

	/*
	 * Take a row, which is in [from, end) and has a header; `lasts`: it stays
	 * there until the update ends, or its message is given to own_message.
	 * Returns its bytes, or 0 on failure.
	 */
	size_t		(*take_row) (gpuvec_update *update, uint64_t tid, const char *from,
							 const char *end, bool lasts, gpuvec_error *error);

	/* See gpuvec_update_own; NULL: rows are copied whatever `lasts` says */
	bool		(*own_message) (gpuvec_update *update, char **message, size_t size,
								gpuvec_error *error);

	/*
	 * Rows that were taken, and bytes to be charged for them, on the device
	 * or the host
	 */
	uint64_t	(*rows_taken) (const gpuvec_update *update);
	size_t		(*bytes_taken) (const gpuvec_update *update);

	/*
	 * Do all that takes time or may fail: afterwards publishing cannot. Pages
	 * at or beyond nblocks are left out.  May set update->hopeless instead.
	 */
	bool		(*prepare) (gpuvec_update *update, uint32_t nblocks, gpuvec_error *error);

	/*
	 * Publish, in three steps: keep readers out and exchange the rows; with
	 * the mutex, change what the store shows of them (gpuvec_mirror.nrows and
	 * so on); let readers in, with the mirror's new state.  The first and the
	 * last may be NULL.
	 */
	void		(*exchange) (gpuvec_update *update, uint32_t nblocks);
	void		(*publish) (gpuvec_update *update);
	void		(*published) (gpuvec_update *update, const gpuvec_state *state);
};

extern const gpuvec_mirror_kind gpuvec_sets_kind;
extern const gpuvec_mirror_kind gpuvec_embedding_kind;

/* Is this the key of a mirror of an embedding table? */
static inline bool
gpuvec_is_embedding_key(const gpuvec_mirror_key *key)
{
	return key->key_attnum != 0;
}

static inline const gpuvec_mirror_kind *
gpuvec_kind_of(const gpuvec_mirror_key *key)
{
	return gpuvec_is_embedding_key(key) ? &gpuvec_embedding_kind : &gpuvec_sets_kind;
}

/*
 * For take_row: report rows that are not as the protocol wants them; returns
 * false
 */
extern bool gpuvec_update_bad_pages(gpuvec_error *error, const char *what);

/*
 * For prepare: the pages that replace some that the mirror has, ascending and
 * malloc'd.  NULL on lack of memory.
 */
extern uint32_t *gpuvec_update_replaced(const gpuvec_update *update, uint64_t *n,
										gpuvec_error *error);

/*
 * For own_message: charge bytes_taken; a load that cannot fit is to fail now,
 * not at its end
 */
extern bool gpuvec_update_charge(gpuvec_update *update, gpuvec_error *error);

#endif							/* GPUVEC_MIRROR_KIND_H */
