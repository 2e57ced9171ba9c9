/*-------------------------------------------------------------------------
 *
 * kept_rows.c
 *	  Rows of a feed that a mirror cannot apply yet.
 *
 * A load or refresh reads pages, up to a number N of the feed.  It may take a
 * second.  Meanwhile no rows are applied, and more come than the feed's ring
 * in shared memory holds.  When the load or refresh is done, the records
 * behind N would be gone: the mirror would need the next refresh at once, and
 * never get rid of that as long as rows come at this pace.
 *
 * So the feeder goes on sending records, and the engine keeps them.  When the
 * mirror has applied N, and nothing is missing between N and what is kept,
 * the kept records are applied.  The feeder is back at the end of the feed.
 *
 * Kept records are in no hurry and may be lost: they are records of the feed
 * that the mirror has not applied, and it does not say that it has.
 * kept_list.c has the list of each mirror.
 *
 *-------------------------------------------------------------------------
 */
#include <stdlib.h>
#include <string.h>

#include "engine/store/mirror_kind.h"

/* Bytes of records that are applied in one step */
#define STEP_BYTES		((size_t) 512 * 1024)

/* A copy of records; NULL if there is no memory */
static gpuvec_kept_message *
new_message(const gpuvec_rows *rows, const char *records, size_t bytes, gpuvec_error *error)
{
	gpuvec_kept_message *message = malloc(sizeof(*message) + bytes);

	if (message == NULL)
	{
		gpuvec_fail_memory(error, sizeof(*message) + bytes);
		return NULL;
	}
	message->next = NULL;
	message->from = rows->from;
	message->to = rows->to;
	message->bytes = bytes;
	memcpy(message->records, records, bytes);
	return message;
}

bool
gpuvec_kept_add(gpuvec_store *store, const gpuvec_rows *rows, const char *records, size_t bytes,
				const void *session, gpuvec_error *error)
{
	gpuvec_kept_message *message;
	gpuvec_mirror *mirror;

	if (rows->from == rows->to)
		return true;
	message = new_message(rows, records, bytes, error);
	if (message == NULL)
		return false;
	pthread_mutex_lock(&store->mutex);
	mirror = gpuvec_store_find(store, &rows->key, session);
	if (mirror)
		gpuvec_kept_append(store, mirror, rows->feed, message);
	else
		free(message);
	pthread_mutex_unlock(&store->mutex);
	return true;
}

/*
 * The messages from `message` on that fit into one step: the last of them,
 * and their bytes
 */
static const gpuvec_kept_message *
last_of_step(const gpuvec_kept_message *message, size_t *bytes)
{
	*bytes = message->bytes;
	while (message->next && *bytes + message->next->bytes <= STEP_BYTES)
	{
		message = message->next;
		*bytes += message->bytes;
	}
	return message;
}

/* Where the record behind number `from` begins in a message */
static const char *
record_behind(const gpuvec_kept_message *message, uint64_t from)
{
	const char *at = message->records;

	for (uint64_t number = message->from; number < from; number++)
		at += gpuvec_feed_record_bytes(((const gpuvec_feed_record *) at)->len,
									   ((const gpuvec_feed_record *) at)->nfilter_keys);
	return at;
}

/*
 * Copy the messages first .. last, but of each only the records that do not
 * come before it.  Returns their end.
 */
static char *
copy_messages(const gpuvec_kept_message *message, const gpuvec_kept_message *last, char *to)
{
	uint64_t	from = message->from;

	for (;; message = message->next)
	{
		const char *at = record_behind(message, from);
		size_t		bytes = (size_t) (message->records + message->bytes - at);

		memcpy(to, at, bytes);
		to += bytes;
		from = message->to;
		if (message == last)
			return to;
	}
}

/* Copy what a mirror applies next; the caller holds the mutex */
static char *
copy_step(const gpuvec_kept_rows *kept, gpuvec_rows *next, gpuvec_error *error)
{
	size_t		bytes;
	const gpuvec_kept_message *last = last_of_step(kept->first, &bytes);
	char	   *records = malloc(bytes + 1);

	if (records == NULL)
	{
		gpuvec_fail_memory(error, bytes);
		return NULL;
	}
	next->feed = kept->feed;
	next->from = kept->first->from;
	next->to = last->to;
	(void) copy_messages(kept->first, last, records);
	return records;
}

char *
gpuvec_kept_next(gpuvec_store *store, const gpuvec_rows *rows, const void *session,
				 gpuvec_rows *next, gpuvec_state *state, gpuvec_error *error)
{
	gpuvec_mirror *mirror;
	char	   *records = NULL;

	memset(error, 0, sizeof(*error));
	*next = *rows;
	pthread_mutex_lock(&store->mutex);
	mirror = gpuvec_store_find(store, &rows->key, session);
	if (mirror)
		gpuvec_kept_trim(store, mirror);
	gpuvec_store_get_state(mirror, state);
	if (state->state == GPUVEC_READY && state->kept > 0 && state->kept_from <= state->applied &&
		mirror->updater == NULL)
		records = copy_step(&mirror->kept, next, error);
	pthread_mutex_unlock(&store->mutex);
	return records;
}
