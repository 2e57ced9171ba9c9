/*-------------------------------------------------------------------------
 *
 * kept_list.c
 *	  The list of a mirror's kept rows: messages of a feed that it cannot apply
 *	  yet.
 *
 * kept_rows.c says what they are kept for.  If there are too many, the oldest
 * of the mirror that has most are dropped, as a later refresh needs only later
 * ones.
 *
 *-------------------------------------------------------------------------
 */
#include <stdlib.h>

#include "engine/fault.h"
#include "engine/store/store.h"

/* Drop the first message */
static void
drop_first(gpuvec_store *store, gpuvec_kept_rows *kept)
{
	gpuvec_kept_message *message = kept->first;

	kept->first = message->next;
	kept->bytes -= message->bytes;
	store->kept_bytes -= message->bytes;
	free(message);
}

void
gpuvec_kept_drop(gpuvec_store *store, gpuvec_mirror *mirror)
{
	while (mirror->kept.first)
		drop_first(store, &mirror->kept);
}

void
gpuvec_kept_trim(gpuvec_store *store, gpuvec_mirror *mirror)
{
	gpuvec_kept_rows *kept = &mirror->kept;

	/* a mirror that is being loaded will have its feed when that is done */
	if (mirror->numbers && kept->feed != mirror->feed)
		gpuvec_kept_drop(store, mirror);
	while (mirror->numbers && kept->first && kept->first->to <= mirror->applied)
		drop_first(store, kept);
}

void
gpuvec_kept_state(const gpuvec_mirror *mirror, gpuvec_state *state)
{
	const gpuvec_kept_rows *kept = &mirror->kept;

	state->kept_from = kept->first ? kept->first->from : 0;
	state->kept = kept->first ? kept->last->to : 0;
}

/* Most bytes that are kept */
static size_t
most_bytes(void)
{
	long		bytes = GPUVEC_KEPT_BYTES;

	(void) gpuvec_fault("kept-bytes", &bytes);
	return (size_t) bytes;
}

/*
 * What is kept for the mirror that has most.  So what nobody asks for any
 * more is not in the way of others.  There is some.
 */
static gpuvec_kept_rows *
most_kept(gpuvec_store *store)
{
	gpuvec_kept_rows *most = &store->mirrors->kept;

	for (gpuvec_mirror *mirror = store->mirrors; mirror; mirror = mirror->next)
		if (mirror->kept.bytes > most->bytes)
			most = &mirror->kept;
	return most;
}

void
gpuvec_kept_append(gpuvec_store *store, gpuvec_mirror *mirror, uint64_t feed,
				   gpuvec_kept_message *message)
{
	gpuvec_kept_rows *kept = &mirror->kept;

	if (kept->feed != feed || (kept->first && message->from > kept->last->to))
		gpuvec_kept_drop(store, mirror);
	if (kept->first && message->to <= kept->last->to)
	{
		free(message);
		return;
	}
	kept->feed = feed;
	if (kept->first)
		kept->last->next = message;
	else
		kept->first = message;
	kept->last = message;
	kept->bytes += message->bytes;
	store->kept_bytes += message->bytes;
	while (store->kept_bytes > most_bytes())
		drop_first(store, most_kept(store));
}
