/*-------------------------------------------------------------------------
 *
 * overlaps.c
 *	  A call of gpuvec_overlaps: how many rows match two sets both.
 *
 * The engine counts rows of pages all of whose rows everybody sees, as it does
 * for count(*) (mirror/ask/count_rows.c).  It returns the other rows that
 * match any set; these are fetched, and counted here.  If it cannot, all rows
 * of the table are.  Partitions are counted one after another.
 *
 * Null sets, and empty ones, match nothing, and are left out.
 *
 *-------------------------------------------------------------------------
 */
#include "gpuvec.h"

#include "access/tableam.h"
#include "fmgr.h"
#include "idset/idset.h"
#include "link/engine_link.h"
#include "mirror/describe/row_value.h"
#include "miscadmin.h"
#include "search/set_function.h"
#include "search/set_search.h"
#include "utils/lsyscache.h"
#include "utils/memutils.h"

enum
{
	ARG_RELATION,
	ARG_COLUMN,
	ARG_SETS
};

PG_FUNCTION_INFO_V1(gpuvec_overlaps);

/* Ids of all sets, in bytes, for which the engine is asked */
#define REQUEST_BYTES	((Size) 64 * 1024 * 1024)

typedef struct OverlapsCall
{
	int			nsets;
	int		   *number;			/* [nsets] which of the sets that count it is;
								 * -1: it does not */
	gpuvec_id_span *sets;		/* [n] those that count */
	uint32		n;
	Snapshot	snapshot;
	const uint64 *pairs;		/* the answer, of these sets */

	int			a;				/* the next row */
	int			b;
} OverlapsCall;

/* Read the sets */
static void
parse_sets(FunctionCallInfo fcinfo, OverlapsCall *call)
{
	Datum	   *values;
	bool	   *nulls;

	if (PG_ARGISNULL(ARG_SETS))
		return;
	call->nsets = SearchArrayArgument(fcinfo, ARG_SETS, "sets", &values, &nulls);
	if (call->nsets > GPUVEC_MOST_OVERLAPS)
		ereport(ERROR,
				(errcode(ERRCODE_PROGRAM_LIMIT_EXCEEDED),
				 errmsg("cannot count the overlaps of more than %d sets at once", GPUVEC_MOST_OVERLAPS),
				 errdetail("The array has %d.", call->nsets)));
	call->number = palloc_array(int, Max(call->nsets, 1));
	call->sets = palloc_array(gpuvec_id_span, Max(call->nsets, 1));
	for (int i = 0; i < call->nsets; i++)
	{
		call->number[i] = -1;
		if (nulls[i])
			continue;
		call->sets[call->n] = idset_span(DatumGetIdSetP(values[i]));
		if (call->sets[call->n].n > 0)
			call->number[i] = call->n++;
	}
}

/* Count a row; arg is an OverlapCounts */
static void
count_row(const gpuvec_sparse *row, ItemPointer tid, void *arg)
{
	OverlapCountsAdd(arg, row);
}

/* True if the engine takes so many sets */
static bool
fits_request(const OverlapsCall *call)
{
	Size		bytes = 0;

	for (uint32 i = 0; i < call->n; i++)
		bytes += gpuvec_id_span_bytes(call->sets[i]);
	return bytes <= REQUEST_BYTES;
}

/* Make the search for the rows of all sets */
static void
make_search(const OverlapsCall *call, MirrorSearch *search)
{
	memset(search, 0, sizeof(*search));
	search->scoring.measure = GPUVEC_INTERSECTION;
	search->k = UINT64_MAX;
	search->unordered = search->roots = search->overlaps = true;
	search->queries = palloc0_array(MirrorQuery, call->n);
	search->nqueries = call->n;
	search->snapshot = call->snapshot;
	for (uint32 i = 0; i < call->n; i++)
		search->queries[i].vector.ids = call->sets[i];
}

/* Count the rows of a table by the engine.  False: it cannot. */
static bool
count_by_engine(const OverlapsCall *call, MirrorTarget *target, OverlapCounts *counts)
{
	const char *reason = NULL;
	MirrorSearch search;
	MirrorCount count;
	MirrorVisibility *visibility;
	uint64	   *pairs = OverlapCountsPairs(counts);

	if (call->snapshot->takenDuringRecovery || !fits_request(call))
		return false;
	make_search(call, &search);
	if (!MirrorCountRows(target, &search, &count, &reason))
	{
		if (reason != NULL)
			GpuvecLinkWarn(reason);
		return false;
	}
	for (uint64 i = 0; i < gpuvec_overlap_pairs(call->n); i++)
	{
		GPUVEC_STEP(i);
		pairs[i] += count.groups[i];
	}
	visibility = MirrorVisibilityBegin(target, call->snapshot);
	MirrorVisitVisible(visibility, count.roots, count.nroots, OverlapCountsAdd, counts);
	MirrorVisibilityEnd(visibility);
	return true;
}

/* Raise an error if a scan of all tables finds other numbers */
static void
verify_counts(const OverlapsCall *call, const MirrorTarget *targets, int ntargets,
			  OverlapCounts *counts)
{
	OverlapCounts *scanned = OverlapCountsMake(call->sets, call->n);

	for (int i = 0; i < ntargets; i++)
		LocalScan(&targets[i], call->snapshot, count_row, scanned);
	if (memcmp(OverlapCountsPairs(counts), OverlapCountsPairs(scanned),
			   gpuvec_overlap_pairs(call->n) * sizeof(uint64)) != 0)
		ereport(ERROR,
				(errcode(ERRCODE_DATA_CORRUPTED),
				 errmsg("the gpuvec engine has counted other rows than a scan of relation \"%s\"",
						RelationGetRelationName(targets[0].rel)),
				 errhint("Please report this as a bug; gpuvec_evict discards the engine's copy.")));
}

/* Count the rows of all tables */
static void
count_tables(OverlapsCall *call, MirrorTarget *targets, int ntargets)
{
	OverlapCounts *counts = OverlapCountsMake(call->sets, call->n);

	for (int i = 0; i < ntargets; i++)
	{
		MemoryContext context = AllocSetContextCreate(CurrentMemoryContext, "gpuvec relation",
													  ALLOCSET_DEFAULT_SIZES);
		MemoryContext old = MemoryContextSwitchTo(context);

		if (!count_by_engine(call, &targets[i], counts))
			LocalScan(&targets[i], call->snapshot, count_row, counts);
		MemoryContextSwitchTo(old);
		MemoryContextDelete(context);
	}
	if (gpuvec_verify && ntargets > 0)
		verify_counts(call, targets, ntargets, counts);
	call->pairs = OverlapCountsPairs(counts);
}

static void
overlaps_rewind(void *state)
{
	OverlapsCall *call = state;

	call->a = call->b = 0;
}

static void *
overlaps_begin(FunctionCallInfo fcinfo, int form, Snapshot snapshot)
{
	OverlapsCall *call = palloc0_object(OverlapsCall);
	SearchColumns columns = {0};
	MirrorTarget *targets;
	int			ntargets;

	SearchRequireArgument(fcinfo, ARG_RELATION, "relation");
	SearchRequireArgument(fcinfo, ARG_COLUMN, "column");
	parse_sets(fcinfo, call);
	call->snapshot = snapshot;
	columns.column = NameStr(*PG_GETARG_NAME(ARG_COLUMN));
	columns.idset_type = get_element_type(SearchArgumentType(fcinfo, ARG_SETS));
	targets = SearchTargets(PG_GETARG_OID(ARG_RELATION), &columns, &ntargets);
	if (call->n > 0)
		count_tables(call, targets, ntargets);
	SearchCloseTargets(targets, ntargets);
	return call;
}

/* The rows of a pair of sets */
static uint64
rows_of(const OverlapsCall *call, int a, int b)
{
	int			first = call->number[a];
	int			second = call->number[b];

	if (first < 0 || second < 0)
		return 0;
	return call->pairs[gpuvec_overlap_pair(call->n, first) + second - first];
}

static bool
overlaps_next(void *state, Datum *values, bool *nulls)
{
	OverlapsCall *call = state;

	if (call->a == call->nsets)
		return false;
	values[0] = Int32GetDatum(call->a + 1);
	values[1] = Int32GetDatum(call->b + 1);
	values[2] = Int64GetDatum((int64) rows_of(call, call->a, call->b));
	if (++call->b == call->nsets)
		call->b = ++call->a;
	return true;
}

const SetFunction OverlapFunctions[] = {
	{.function = gpuvec_overlaps, .begin = overlaps_begin, .next = overlaps_next,
	.rewind = overlaps_rewind},
	{0}
};

Datum
gpuvec_overlaps(PG_FUNCTION_ARGS)
{
	return SetFunctionRows(fcinfo, gpuvec_overlaps);
}
