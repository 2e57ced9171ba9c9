/*-------------------------------------------------------------------------
 *
 * embedding_mirror.c
 *	  Mirrors of embedding tables: the callbacks of their gpuvec_mirror_kind,
 *	  and opening a mirror's table for readers.
 *
 * Readers of a table do not take the store's mutex; they hold the table's
 * lock.  That lock also guards the table's own copy of the mirror's state and
 * page numbers.
 *
 *-------------------------------------------------------------------------
 */
#include <stdlib.h>
#include <string.h>

#include "engine/embedding/embedding_mirror.h"

static gpuvec_embedding_table *
table_of(const gpuvec_mirror *mirror)
{
	return ((const gpuvec_embedding_mirror *) mirror)->table;
}

static bool
embedding_make(gpuvec_mirror *mirror, gpuvec_error *error)
{
	gpuvec_embedding_mirror *embedding = (gpuvec_embedding_mirror *) mirror;

	embedding->table = gpuvec_embedding_new((gpuvec_storage) mirror->key.storage,
											mirror->device->backend->vectors, error);
	return embedding->table != NULL;
}

static void
embedding_drop(gpuvec_mirror *mirror)
{
	gpuvec_embedding_unref(table_of(mirror));
}

static bool
embedding_on_device(const gpuvec_mirror *mirror)
{
	return !table_of(mirror)->vectors->on_host;
}

/*
 * Bytes of the table.  Room for an update's rows is part of the table
 * already.
 */
static void
embedding_bytes(const gpuvec_mirror *mirror, const gpuvec_update *update, size_t *host,
				size_t *device)
{
	(void) update;
	gpuvec_embedding_bytes(table_of(mirror), host, device);
}

/*
 * The table is about to grow on its device; evict other mirrors to make room.
 * While arrays are copied, the old and the new ones exist.  If there is no
 * room for both, make room for the final size.
 */
static bool
make_room(void *arg, size_t bytes, size_t more, gpuvec_error *error)
{
	gpuvec_update *update = arg;

	return gpuvec_store_charge(update->store, update->mirror, &update->mirror->updating,
							   update->mirror->updating + bytes, true, error) ||
		gpuvec_store_charge(update->store, update->mirror, &update->mirror->updating,
							update->mirror->updating + more, true, error);
}

static bool
embedding_begin(gpuvec_update *update, gpuvec_error *error)
{
	gpuvec_embedding_table *table = table_of(update->mirror);

	(void) error;
	table->make_room = make_room;
	table->make_room_arg = update;
	return true;
}

static void
embedding_end(gpuvec_update *update)
{
	gpuvec_embedding_update *embedding = (gpuvec_embedding_update *) update;

	free(embedding->replaced);
	gpuvec_embedding_discard(table_of(update->mirror));
}

static size_t
embedding_take_row(gpuvec_update *update, uint64_t tid, const char *from, const char *end,
				   bool lasts, gpuvec_error *error)
{
	gpuvec_embedding_table *table = table_of(update->mirror);
	gpuvec_vector_row row;

	(void) lasts;
	memcpy(&row, from, sizeof(row));
	if (row.kind >= GPUVEC_N_VECTOR_KINDS || row.width > GPUVEC_MAX_WIDTH ||
		(row.kind != GPUVEC_VECTOR_GOOD && row.width > 0) ||
		(size_t) (end - from) < gpuvec_vector_row_bytes(row.width, table->storage))
		return gpuvec_update_bad_pages(error, "A row is cut off.");
	if (!gpuvec_embedding_stage(table, tid, &row, from + sizeof(row), error))
		return 0;
	return gpuvec_vector_row_bytes(row.width, table->storage);
}

static uint64_t
embedding_rows_taken(const gpuvec_update *update)
{
	return table_of(update->mirror)->nstaged;
}

static size_t
embedding_bytes_taken(const gpuvec_update *update)
{
	const gpuvec_embedding_table *table = table_of(update->mirror);

	return table->staged_bytes + (table->vectors->on_host ? update->npages * GPUVEC_PAGE_BYTES : 0);
}

static bool
embedding_prepare(gpuvec_update *update, uint32_t nblocks, gpuvec_error *error)
{
	gpuvec_embedding_update *embedding = (gpuvec_embedding_update *) update;
	gpuvec_embedding_table *table = table_of(update->mirror);

	if (!update->load && gpuvec_embedding_sparse(table))
		update->hopeless = "most of its room is unused";
	embedding->replaced = gpuvec_update_replaced(update, &embedding->nreplaced, error);
	return embedding->replaced && gpuvec_embedding_prepare(table, nblocks, error);
}

/* Exchange the rows.  Readers wait until embedding_published(). */
static void
embedding_exchange(gpuvec_update *update, uint32_t nblocks)
{
	gpuvec_embedding_update *embedding = (gpuvec_embedding_update *) update;
	gpuvec_embedding_table *table = table_of(update->mirror);

	pthread_rwlock_wrlock(&table->lock);
	gpuvec_embedding_publish(table, embedding->replaced, embedding->nreplaced, nblocks);
}

static void
embedding_publish(gpuvec_update *update)
{
	update->mirror->nrows = table_of(update->mirror)->nrows;
}

/*
 * Let readers see the rows, with the state and page numbers that belong to
 * them
 */
static void
embedding_published(gpuvec_update *update, const gpuvec_state *state)
{
	gpuvec_embedding_table *table = table_of(update->mirror);
	gpuvec_page_numbers *old = table->numbers;

	table->state = *state;
	table->numbers = gpuvec_page_numbers_ref(update->mirror->numbers);
	pthread_rwlock_unlock(&table->lock);
	gpuvec_page_numbers_unref(old);
}

const gpuvec_mirror_kind gpuvec_embedding_kind = {
	.mirror_bytes = sizeof(gpuvec_embedding_mirror),
	.update_bytes = sizeof(gpuvec_embedding_update),
	.row_header = sizeof(gpuvec_vector_row),
	.keeps_room = true,
	.make = embedding_make,
	.drop = embedding_drop,
	.on_device = embedding_on_device,
	.bytes = embedding_bytes,
	.begin = embedding_begin,
	.end = embedding_end,
	.take_row = embedding_take_row,
	.rows_taken = embedding_rows_taken,
	.bytes_taken = embedding_bytes_taken,
	.prepare = embedding_prepare,
	.exchange = embedding_exchange,
	.publish = embedding_publish,
	.published = embedding_published
};

gpuvec_embedding_table *
gpuvec_embedding_open(gpuvec_store *store, const gpuvec_mirror_key *key, const void *session,
					  uint64_t nkeys, gpuvec_state *state)
{
	gpuvec_embedding_table *table = NULL;
	gpuvec_mirror *mirror;

	pthread_mutex_lock(&store->mutex);
	mirror = gpuvec_store_find(store, key, session);
	gpuvec_store_get_state(mirror, state);
	if (state->state == GPUVEC_READY && mirror->kind == &gpuvec_embedding_kind)
	{
		table = gpuvec_embedding_ref(table_of(mirror));
		gpuvec_store_use(mirror, nkeys);
	}
	pthread_mutex_unlock(&store->mutex);
	return table;
}
