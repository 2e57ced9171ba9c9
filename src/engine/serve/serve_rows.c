/*-------------------------------------------------------------------------
 *
 * serve_rows.c
 *	  Rows of a feed, which a session hands over without their pages.
 *
 * The whole message is checked before anything of it is applied, and whether
 * or not it is.
 *
 *-------------------------------------------------------------------------
 */
#include <string.h>

#include "engine/serve/session.h"
#include "engine/sets/sets_mirror.h"

/* True if a feed may have a row under this line */
static bool
line_valid(uint16_t line)
{
	return line > 0 && line <= GPUVEC_MAX_LINE && line % 2 == 0;
}

/* True if these are lines of one page, ascending */
static bool
lines_valid(const uint16_t *lines, uint32_t n)
{
	gpuvec_id_span span = {lines, n, false};	/* in the order of ids */
	bool		ok = gpuvec_sets_ids_valid(span);

	for (uint32_t i = 0; ok && i < n; i++)
		ok = line_valid(lines[i]);
	return ok;
}

/* True if these are ids of a row, ascending, and their values */
static bool
ids_valid(const gpuvec_feed_record *record, const uint16_t *values, const gpuvec_mirror_key *key)
{
	gpuvec_id_span span = gpuvec_feed_record_ids(record, values);

	return gpuvec_sets_form_valid(record->form, key) &&
		record->len == gpuvec_feed_record_len(record->form, span.n) && gpuvec_sets_ids_valid(span) &&
		(!key->values ||
		 gpuvec_sets_values_valid((const float *) ((const char *) values + gpuvec_form_ids_bytes(record->form, span.n)),
								  span.n));
}

/* True if a row's filter keys are those of a mirror with nfilters columns */
static bool
filter_keys_valid(const gpuvec_feed_record *record, uint32_t nfilters)
{
	const char *filter_keys = (const char *) (record + 1) + gpuvec_feed_values_bytes(record->len);

	return record->nfilter_keys == gpuvec_filter_keys(nfilters) &&
		gpuvec_sets_filter_keys_valid(filter_keys, nfilters, record->len);
}

/*
 * Check the record at `at`, of a mirror with this key.  Returns its bytes, or
 * 0 if it is invalid.
 */
static size_t
check_record(const char *at, const char *end, const gpuvec_mirror_key *key, gpuvec_error *error)
{
	const gpuvec_feed_record *record = (const gpuvec_feed_record *) at;
	const uint16_t *values = (const uint16_t *) (record + 1);
	bool		ok;

	if ((size_t) (end - at) < sizeof(*record) ||
		record->len > gpuvec_feed_record_len(record->form, GPUVEC_MAX_IDS) ||
		(size_t) (end - at) < gpuvec_feed_record_bytes(record->len, record->nfilter_keys))
		return gpuvec_violation(error, "A record is cut off.");
	if (record->block == UINT32_MAX)
		return gpuvec_violation(error, "A block number is out of range.");
	switch (record->kind)
	{
		case GPUVEC_FEED_ROW:
			ok = line_valid(record->line) && ids_valid(record, values, key) &&
				filter_keys_valid(record, key->nfilters);
			break;
		case GPUVEC_FEED_GONE:
			ok = record->line == 0 && record->form == 0 && record->nfilter_keys == 0 &&
				lines_valid(values, record->len);
			break;
		default:
			return gpuvec_violation(error, "The kind of a record is unknown.");
	}
	if (!ok)
		return gpuvec_violation(error, "Lines, ids, values or filter columns of a record are invalid.");
	return gpuvec_feed_record_bytes(record->len, record->nfilter_keys);
}

/* Check all records of a message, which fill [at, end) */
static bool
check_records(const gpuvec_rows *rows, const char *at, const char *end, gpuvec_error *error)
{
	uint64_t	n = 0;

	while (at < end)
	{
		size_t		size = check_record(at, end, &rows->key, error);

		if (size == 0)
			return false;
		at += size;
		n++;
	}
	return n == rows->to - rows->from ||
		gpuvec_violation(error, "ROWS have other records than they say.");
}

/* Check a message, and copy its head */
static bool
parse_rows(const gpuvec_session *s, const gpuvec_request *request, gpuvec_rows *rows,
		   gpuvec_error *error)
{
	if (s->update || s->parted)
		return gpuvec_violation(error, "ROWS are out of place.");
	if (request->length < sizeof(*rows))
		return gpuvec_violation(error, "ROWS are cut off.");
	memcpy(rows, request->data, sizeof(*rows));
	if (gpuvec_kind_of(&s->server->store, &rows->key)->take_fed == NULL || rows->feed == 0)
		return gpuvec_violation(error, "The mirror has no feed.");
	if (!gpuvec_sets_key_valid(&rows->key))
		return gpuvec_violation(error, "The mirror has too many filter columns, or an unknown form.");
	if (rows->keep > 1)
		return gpuvec_violation(error, "ROWS are to be kept or not.");
	return check_records(rows, request->data + sizeof(*rows), request->data + request->length,
						 error);
}

bool
gpuvec_serve_rows(gpuvec_session *s, const gpuvec_request *request)
{
	gpuvec_error error;
	gpuvec_rows rows;
	gpuvec_state state;
	bool		ok;

	if (!parse_rows(s, request, &rows, &error) ||
		!gpuvec_update_rows(&s->server->store, &rows, request->data + sizeof(rows),
							request->length - sizeof(rows), s, &state, &error))
		return gpuvec_answer_error(s, request, &error);
	ok = gpuvec_answer(s, request, GPUVEC_MSG_STATE, &state, sizeof(state));
	gpuvec_merger_wake(&s->server->store);
	return ok;
}
