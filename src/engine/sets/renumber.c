/*-------------------------------------------------------------------------
 *
 * renumber.c
 *	  From the ids of staged rows to numbers.
 *
 * Which ids are frequent is known when all rows of a load are staged.  So
 * rows are staged with their ids, those above 65,535 as if they were cold
 * numbers.  Then the ids are counted and numbered, and the rows move to
 * another stage with their numbers.  The memory of rows is freed as they go.
 *
 *-------------------------------------------------------------------------
 */
#include <stdlib.h>

#include "engine/sets/renumber.h"

/* What counting and renumbering pass to their visitors */
typedef struct renumbering
{
	gpuvec_id_counts *counts;
	gpuvec_id_numbers *numbers;
	gpuvec_stage *to;
	uint32_t   *ids;			/* [GPUVEC_MAX_IDS] of a row */
	uint16_t   *packed;			/* numbers of a row */
	gpuvec_renumber_charge charge;
	void	   *arg;
	size_t		counted;		/* bytes of counts when charge was called */
} renumbering;

/* The counts, the ids sorted by them and the map take about the same */
#define COUNTS_AND_MAP	3

static bool
count_row(void *arg, const gpuvec_source_row *row, gpuvec_error *error)
{
	renumbering *r = arg;

	gpuvec_unpack_numbers(row, r->ids);
	if (!gpuvec_id_counts_add(r->counts, r->ids, row->len, error))
		return false;
	if (r->charge == NULL || gpuvec_id_counts_bytes(r->counts) == r->counted)
		return true;
	r->counted = gpuvec_id_counts_bytes(r->counts);
	return r->charge(r->arg, COUNTS_AND_MAP * r->counted, error);
}

gpuvec_id_numbers *
gpuvec_renumber_map(const gpuvec_stage *stage, gpuvec_renumber_charge charge, void *arg,
					gpuvec_error *error)
{
	renumbering r = {
		.ids = malloc(GPUVEC_MAX_IDS * sizeof(uint32_t)), .charge = charge, .arg = arg
	};

	if (r.ids == NULL)
		gpuvec_fail_memory(error, GPUVEC_MAX_IDS * sizeof(uint32_t));
	else
		r.counts = gpuvec_id_counts_new(error);
	if (r.counts && gpuvec_stage_visit(stage, count_row, &r, error))
		r.numbers = gpuvec_id_numbers_counted(r.counts, error);
	gpuvec_id_counts_free(r.counts);
	free(r.ids);
	return r.numbers;
}

static bool
renumber_row(void *arg, const gpuvec_source_row *row, gpuvec_error *error)
{
	renumbering *r = arg;
	gpuvec_source_row numbered = {.tid = row->tid};

	gpuvec_unpack_numbers(row, r->ids);
	if (!gpuvec_id_numbers_add(r->numbers, r->ids, row->len, r->ids, error))
		return false;
	gpuvec_sort_numbers(r->ids, row->len);
	gpuvec_pack_numbers(r->ids, row->len, r->packed, &numbered);
	return gpuvec_stage_add(r->to, &numbered, false, error);
}

bool
gpuvec_renumber_rows(gpuvec_stage **stage, gpuvec_id_numbers *numbers, gpuvec_error *error)
{
	size_t		bytes = gpuvec_packed_bytes(GPUVEC_MAX_IDS, GPUVEC_MAX_IDS) + sizeof(uint32_t);
	renumbering r = {
		.numbers = numbers, .to = gpuvec_stage_new(),
		.ids = malloc(GPUVEC_MAX_IDS * sizeof(uint32_t)), .packed = malloc(bytes)
	};
	bool		ok;

	if (r.to == NULL || r.ids == NULL || r.packed == NULL)
		ok = gpuvec_fail_memory(error, bytes);
	else
		ok = gpuvec_stage_drain(*stage, renumber_row, &r, error);
	free(r.ids);
	free(r.packed);
	if (r.to != NULL)
	{
		gpuvec_stage_free(*stage);
		*stage = r.to;
	}
	return ok;
}
