/*-------------------------------------------------------------------------
 *
 * choose_test.c
 *	  Test of when mergers should look at a mirror, and when they are behind.
 *
 *-------------------------------------------------------------------------
 */
#include <stdlib.h>

#include "engine/backend.h"
#include "engine/sets/merge_choose.h"
#include "engine/sets/stage.h"
#include "unit_test.h"

#define MOST_ENTRIES	200

static gpuvec_backend device = {.on_device = true};
static gpuvec_segment segments[MOST_ENTRIES];
static gpuvec_view *view;

/* Begin a view anew */
static void
clear_view(void)
{
	view->nentries = 0;
	view->nrows = 0;
	view->backend = &device;
}

/* Add n entries of so many rows, all live */
static void
add_entries(uint32_t n, uint32_t nrows, bool sorted)
{
	while (n-- > 0)
	{
		segments[view->nentries] = (gpuvec_segment) {.nrows = nrows, .sorted = sorted};
		view->entries[view->nentries] = (gpuvec_view_entry) {.segment = &segments[view->nentries]};
		view->nentries++;
		view->nrows += nrows;
	}
}

/* Should large segments be merged, if all rows were sorted lately? */
static bool
due(void)
{
	gpuvec_merge_state state = {.view = view, .sorted_rows = view->nrows, .threads = 1, .most = MOST_ENTRIES};

	return gpuvec_merge_due(GPUVEC_MERGE_LARGE, &state);
}

static bool
behind(void)
{
	gpuvec_merge_state state = {.view = view, .threads = 1};

	return gpuvec_merge_behind(&state);
}

/*
 * Unsorted rows are sorted when they fill an eighth of the mirror: at least 4
 * and at most 16 full segments
 */
static void
test_due(void)
{
	static const uint32_t cases[][2] = {{0, 4}, {20, 4}, {57, 8}, {80, 11}, {160, 16}};
	uint32_t	full = gpuvec_full_segment();

	for (int i = 0; i < 5; i++)
	{
		clear_view();
		add_entries(cases[i][0], full, true);
		add_entries(cases[i][1] - 1, full, false);
		check(!due(), "too few unsorted rows");
		add_entries(1, full, false);
		check(due(), "enough unsorted rows");
	}
}

/* More than 4 of 10 rows are dead, or there are 48 segments too many */
static void
test_behind(void)
{
	uint32_t	full = gpuvec_full_segment();

	clear_view();
	add_entries(1, full, true);
	view->nrows = full / 10 * 7;
	check(!behind(), "few dead rows");
	view->nrows = full / 10 * 5;
	check(behind(), "many dead rows");
	clear_view();
	add_entries(49, full / 49, false);
	check(!behind(), "few segments");
	add_entries(2, 1, false);
	check(behind(), "many segments");
}

int
main(void)
{
	view = calloc(1, sizeof(*view) + MOST_ENTRIES * sizeof(view->entries[0]));
	test_due();
	test_behind();
	free(view);
	return report_checks();
}
