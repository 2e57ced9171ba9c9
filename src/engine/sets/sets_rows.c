/*-------------------------------------------------------------------------
 *
 * sets_rows.c
 *	  Taking the rows of a load or refresh of sets, or of a feed.
 *
 * The rows are staged.  A row whose message stays valid need not be copied:
 * the stage refers to it (the row is lent), and the update owns the message.
 * Rows of a feed are applied while their message is served, so nobody has to
 * own it.  Wide rows and those with values are staged in another form than
 * messages have, so they are copied.
 *
 *-------------------------------------------------------------------------
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "engine/sets/sets_mirror.h"

/* A vector of ids that are compared in one step */
typedef uint16_t id_vector __attribute__((vector_size(16)));

#define VECTOR_IDS	(sizeof(id_vector) / sizeof(uint16_t))

static bool
narrow_valid(const uint16_t *ids, uint32_t len)
{
	id_vector	bad = {0};
	uint64_t	half[2];
	uint32_t	wrong = 0;
	uint32_t	i = 1;

	for (; i + VECTOR_IDS <= len; i += VECTOR_IDS)
	{
		id_vector	before;
		id_vector	after;

		memcpy(&before, ids + i - 1, sizeof(before));
		memcpy(&after, ids + i, sizeof(after));
		bad |= (id_vector) (before >= after);
	}
	for (; i < len; i++)
		wrong |= ids[i - 1] >= ids[i];
	memcpy(half, &bad, sizeof(half));
	return (half[0] | half[1] | wrong) == 0;
}

static bool
wide_valid(const void *ids, uint32_t len)
{
	uint32_t	before = 0;
	bool		ok = true;

	for (uint32_t i = 0; i < len; i++)
	{
		uint32_t	id;

		memcpy(&id, (const char *) ids + i * sizeof(id), sizeof(id));
		ok &= i == 0 || before < id;
		before = id;
	}
	return ok;
}

bool
gpuvec_sets_ids_valid(gpuvec_id_span span)
{
	return span.wide ? wide_valid(span.ids, span.n) : narrow_valid(span.ids, span.n);
}

bool
gpuvec_sets_filter_keys_valid(const void *filter_keys, uint32_t nfilters, uint32_t len)
{
	uint64_t	nulls;

	if (nfilters == 0)
		return true;
	memcpy(&nulls, filter_keys, sizeof(nulls));
	if (nulls >> nfilters > 1 || ((nulls & 1) != 0 && len > 0))
		return false;
	for (uint32_t column = 1; column <= nfilters; column++)
	{
		uint64_t	key;

		memcpy(&key, (const char *) filter_keys + column * sizeof(key), sizeof(key));
		if ((nulls >> column & 1) != 0 && key != 0)
			return false;
	}
	return true;
}

bool
gpuvec_sets_values_valid(const float *values, uint32_t n)
{
	bool		ok = true;

	for (uint32_t i = 0; i < n; i++)
		ok &= isfinite(values[i]) && values[i] != 0;
	return ok;
}

/* The sums of a row's values */
static gpuvec_row_sums
add_up(gpuvec_id_span span, const float *values)
{
	gpuvec_sparse vector = {span, values, false};
	bool		negative = false;

	for (uint32_t i = 0; i < span.n; i++)
		negative |= values[i] < 0;
	return (gpuvec_row_sums)
	{
		.square = gpuvec_sparse_own(GPUVEC_SPARSE_COSINE, &vector),
		.sum = negative ? -1 : gpuvec_sparse_own(GPUVEC_SPARSE_JACCARD, &vector)
	};
}

/* Write ids down as a gpuvec_source_row has them */
static void
pack_ids(gpuvec_id_span span, uint16_t *to, gpuvec_source_row *row)
{
	if (span.wide)
	{
		gpuvec_pack_numbers(span.ids, span.n, to, row);
		return;
	}
	to[span.n] = 0;
	if (span.n > 0)
		memcpy(to, span.ids, span.n * sizeof(uint16_t));
	row->len = span.n;
	row->ids = to;
}

/*
 * Stage a row that is wide or has values: in the form of rows with cold
 * numbers (renumber.c), with its sums
 */
static bool
stage_packed(gpuvec_sets_update *sets, uint64_t tid, gpuvec_id_span span, const float *values,
			 const void *filter_keys, gpuvec_error *error)
{
	gpuvec_source_row staged = {.tid = tid, .filter_keys = filter_keys};

	if (sets->packed == NULL)
		sets->packed = malloc(GPUVEC_MOST_PACKED);
	if (sets->packed == NULL)
		return gpuvec_fail_memory(error, GPUVEC_MOST_PACKED);
	pack_ids(span, sets->packed, &staged);
	if (values)
	{
		gpuvec_row_sums sums = add_up(span, values);

		gpuvec_pack_values(&staged, sets->packed, (const char *) &sums, (const char *) values, NULL);
	}
	return gpuvec_stage_add(sets->stage, &staged, false, error);
}

/* A row's values, behind its ids; NULL: rows have none */
static const float *
values_behind(gpuvec_id_span span, uint32_t form)
{
	return form & GPUVEC_FORM_VALUES ?
		(const float *) ((const char *) span.ids + gpuvec_form_ids_bytes(form, span.n)) : NULL;
}

/* A page's row's filter keys, behind the bytes of its ids; NULL: none */
static const void *
filter_keys_behind(const char *from, size_t bytes, uint32_t nfilters)
{
	return nfilters > 0 ? from + bytes : NULL;
}

/* Stage a row; lasts: its ids and filter keys stay where they are */
static bool
stage_row(gpuvec_update *update, uint64_t tid, gpuvec_id_span span, const float *values,
		  const void *filter_keys, bool lasts, gpuvec_error *error)
{
	gpuvec_sets_update *sets = (gpuvec_sets_update *) update;
	gpuvec_source_row staged = {.tid = tid, .len = span.n, .ids = span.ids, .filter_keys = filter_keys};

	return span.wide || values ? stage_packed(sets, tid, span, values, filter_keys, error) :
		gpuvec_stage_add(sets->stage, &staged, lasts, error);
}

bool
gpuvec_sets_form_valid(uint32_t form, const gpuvec_mirror_key *key)
{
	return (form & ~(uint32_t) (GPUVEC_FORM_WIDE | GPUVEC_FORM_VALUES)) == 0 &&
		((form & GPUVEC_FORM_VALUES) != 0) == (key->values != 0);
}

size_t
gpuvec_sets_take_row(gpuvec_update *update, uint64_t tid, const char *from, const char *end,
					 bool lasts, gpuvec_error *error)
{
	uint32_t	nfilters = update->mirror->key.nfilters;
	gpuvec_id_span span;
	const float *values;
	const void *filter_keys;
	gpuvec_row	row;
	size_t		bytes;

	memcpy(&row, from, sizeof(row));
	if (!gpuvec_sets_form_valid(row.form, &update->mirror->key))
		return gpuvec_update_bad_pages(error, "A row has an unknown form.");
	bytes = gpuvec_row_bytes(row.form, row.len);
	if (row.len > GPUVEC_MAX_IDS ||
		(size_t) (end - from) < bytes + gpuvec_filter_bytes(nfilters))
		return gpuvec_update_bad_pages(error, "A row is cut off.");
	span = gpuvec_row_ids(&row, from + sizeof(row));
	if (!gpuvec_sets_ids_valid(span))
		return gpuvec_update_bad_pages(error, "Ids are not in order.");
	values = values_behind(span, row.form);
	if (values && !gpuvec_sets_values_valid(values, span.n))
		return gpuvec_update_bad_pages(error, "The values of a row are invalid.");
	filter_keys = filter_keys_behind(from, bytes, nfilters);
	if (!gpuvec_sets_filter_keys_valid(filter_keys, nfilters, row.len))
		return gpuvec_update_bad_pages(error, "The filter columns of a row are invalid.");
	if (!stage_row(update, tid, span, values, filter_keys, lasts, error))
		return 0;
	return bytes + gpuvec_filter_bytes(nfilters);
}

bool
gpuvec_sets_take_fed(gpuvec_update *update, const gpuvec_fed_row *row, gpuvec_error *error)
{
	const gpuvec_feed_record *record = row->record;
	const void *filter_keys = filter_keys_behind((const char *) (record + 1),
												 gpuvec_feed_values_bytes(record->len),
												 update->mirror->key.nfilters);

	gpuvec_id_span span = gpuvec_feed_record_ids(record, record + 1);

	return stage_row(update, row->tid, span, values_behind(span, record->form), filter_keys, true, error);
}

void
gpuvec_sets_free_messages(gpuvec_sets_update *sets)
{
	for (uint64_t i = 0; i < sets->nmessages; i++)
		free(sets->messages[i]);
	sets->nmessages = 0;
	sets->message_bytes = 0;
}

size_t
gpuvec_sets_new_numbers_bytes(const gpuvec_sets_update *sets)
{
	const gpuvec_sets_mirror *mirror = (const gpuvec_sets_mirror *) sets->base.mirror;

	return sets->id_numbers && sets->id_numbers != mirror->id_numbers ?
		gpuvec_id_numbers_bytes(sets->id_numbers) : 0;
}

/*
 * On a device, charge what the rows will take as segments.  On the CPU,
 * charge the larger of that and what they take while staged, plus the pages
 * and lines.
 */
size_t
gpuvec_sets_bytes_taken(const gpuvec_update *update)
{
	const gpuvec_sets_update *sets = (const gpuvec_sets_update *) update;
	size_t		staged = gpuvec_stage_bytes(sets->stage) + sets->message_bytes;
	size_t		numbers = gpuvec_sets_new_numbers_bytes(sets);
	size_t		estimate = gpuvec_stage_estimate(sets->stage);

	if (update->mirror->device->backend->on_device)
		return estimate;
	return (staged > estimate ? staged : estimate) + numbers + gpuvec_update_noted_bytes(update);
}

bool
gpuvec_sets_unite(gpuvec_update *update, gpuvec_update *slice, gpuvec_error *error)
{
	return gpuvec_stage_unite(((gpuvec_sets_update *) update)->stage,
							  ((gpuvec_sets_update *) slice)->stage, error);
}

/*
 * Keeps the message only if staged rows are lent from it: unchanged pages
 * stage no rows, and when many rows are staged all are copied.  Once no rows
 * are lent, the messages are freed.
 */
bool
gpuvec_sets_own_message(gpuvec_update *update, char **message, size_t size, gpuvec_error *error)
{
	gpuvec_sets_update *sets = (gpuvec_sets_update *) update;
	uint64_t	lent = gpuvec_stage_lent(sets->stage);
	size_t		capacity = (sets->nmessages + 1) * sizeof(void *);
	void	  **messages;

	if (lent == 0)
		gpuvec_sets_free_messages(sets);
	if (lent <= sets->lent)
	{
		sets->lent = lent;
		return true;
	}
	messages = realloc(sets->messages, capacity);
	if (messages == NULL)
		return gpuvec_fail_memory(error, capacity);
	sets->messages = messages;
	sets->messages[sets->nmessages++] = *message;
	sets->message_bytes += size;
	sets->lent = lent;
	*message = NULL;
	return gpuvec_update_charge(update, error);
}
