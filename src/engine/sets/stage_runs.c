/*-------------------------------------------------------------------------
 *
 * stage_runs.c
 *	  Rows that several sessions have staged.
 *
 * Sessions that load a mirror together have a stage each, with rows of
 * different pages.  When all are done, the chunks of each class are chained:
 * the class has a run of each stage, and each run is in the order of tid.
 * Segments want the order of all, so the runs are merged as they are read
 * (stage_order.c).
 *
 *-------------------------------------------------------------------------
 */
#include "engine/sets/stage_layout.h"

/* Chain the rows of a class behind those of another */
static void
chain_class(row_class *class, row_class *other)
{
	if (other->first == NULL)
		return;
	if (class->first == NULL)
	{
		*class = *other;
		memset(other, 0, sizeof(*other));
		return;
	}
	other->first->begins_run = true;
	class->last->next = other->first;
	class->last = other->last;
	class->nrows += other->nrows;
	class->unsorted |= other->unsorted;
	class->more_runs += 1 + other->more_runs;
	memset(other, 0, sizeof(*other));
}

/* The blocks that the other stage has open are not cut any further */
static void
take_totals(gpuvec_stage *stage, gpuvec_stage *other)
{
	stage->nrows += other->nrows;
	stage->ncold += other->ncold;
	stage->bytes += other->bytes;
	stage->estimate += other->estimate;
	other->nrows = other->ncold = 0;
	other->bytes = other->estimate = 0;
	memset(other->open, 0, sizeof(other->open));
}

bool
gpuvec_stage_unite(gpuvec_stage *stage, gpuvec_stage *other, gpuvec_error *error)
{
	if ((!stage->spread && !gpuvec_stage_spread(stage, error)) ||
		(!other->spread && !gpuvec_stage_spread(other, error)))
		return false;
	for (int i = 0; i < NCLASSES; i++)
		chain_class(&stage->classes[i], &other->classes[i]);
	take_totals(stage, other);
	return true;
}
