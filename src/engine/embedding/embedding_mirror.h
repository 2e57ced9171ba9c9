/*-------------------------------------------------------------------------
 *
 * embedding_mirror.h
 *	  Mirrors of embedding tables.
 *
 *-------------------------------------------------------------------------
 */
#ifndef GPUVEC_EMBEDDING_MIRROR_H
#define GPUVEC_EMBEDDING_MIRROR_H

#include "engine/embedding/embedding_rows.h"
#include "engine/store/mirror_kind.h"

/* The functions of these mirrors, for the store */
extern const gpuvec_mirror_kind gpuvec_embedding_kind;

typedef struct gpuvec_embedding_mirror
{
	gpuvec_mirror base;
	gpuvec_embedding_table *table;
} gpuvec_embedding_mirror;

typedef struct gpuvec_embedding_update
{
	gpuvec_update base;
	uint32_t   *replaced;		/* [nreplaced]: replaced pages, ascending */
	uint64_t	nreplaced;
} gpuvec_embedding_update;

/*
 * Open the table of a mirror, to look up nkeys keys.  Returns a reference, to
 * be released with gpuvec_embedding_unref(), or NULL if the mirror is not
 * ready.  Besides shared mirrors, `session` sees only its own private ones.
 * Sets *state.
 */
extern gpuvec_embedding_table *gpuvec_embedding_open(gpuvec_store *store,
													 const gpuvec_mirror_key *key,
													 const void *session, uint64_t nkeys,
													 gpuvec_state *state);

#endif							/* GPUVEC_EMBEDDING_MIRROR_H */
