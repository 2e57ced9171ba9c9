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

typedef struct gpuvec_embedding_mirror
{
	gpuvec_mirror base;
	gpuvec_embedding_table *table;
} gpuvec_embedding_mirror;

typedef struct gpuvec_embedding_update
{
	gpuvec_update base;
	uint32_t   *replaced;		/* pages, ascending */
	uint64_t	nreplaced;
} gpuvec_embedding_update;

/*
 * Open the rows of a mirror, for nkeys keys: a reference to be let go with
 * gpuvec_embedding_unref; NULL: it is not ready.  `session` sees its own
 * private mirrors.
 */
extern gpuvec_embedding_table *gpuvec_embedding_open(gpuvec_store *store,
													 const gpuvec_mirror_key *key,
													 const void *session, uint64_t nkeys,
													 gpuvec_state *state);

#endif							/* GPUVEC_EMBEDDING_MIRROR_H */
