/*-------------------------------------------------------------------------
 *
 * idset_typanalyze.c
 *	  ANALYZE of a column of sets, or of vectors: common ids and a histogram
 *	  of lengths.
 *
 * PostgreSQL's own function computes the statistics of every sortable type
 * (most common sets, histogram of sets, number of distinct sets).  Two kinds
 * are added, in the slots and the format of arrays, so that pg_stats shows
 * them:
 *
 *	 MCELEM		the most common ids, as int8, ascending.  Numbers: for each id
 *				the fraction of sets that have it; then a bound of the
 *				fractions of ids that are not listed (below), the highest
 *				fraction, and 0, the fraction of null elements.
 *	 DECHIST	lengths of sets at evenly spaced ranks, and the mean length.
 *
 * Up to 10 ids are listed for each unit of the column's statistics target.
 * An id that occurs once in a sample of a larger table is not listed: for
 * each such id there are many others, as rare, that the sample missed.  If an
 * id of the sample is not listed, the bound is the lowest fraction of a
 * listed id.  Otherwise it is one set of the sample: of an id that was never
 * met we only know that it is rarer than that.
 *
 *-------------------------------------------------------------------------
 */
#include "gpuvec.h"

#include "access/detoast.h"
#include "catalog/pg_operator.h"
#include "catalog/pg_statistic.h"
#include "catalog/pg_type.h"
#include "commands/vacuum.h"
#include "idset/idset_counts.h"
#include "miscadmin.h"

PG_FUNCTION_INFO_V1(idset_typanalyze);

/* OID of the operator int8 = int8 */
#define INT8_EQUAL_OPERATOR		410

/* Ids listed for each unit of the statistics target */
#define IDS_PER_TARGET			10

#if PG_VERSION_NUM >= 170000
#define STATISTICS_TARGET(stats) ((stats)->attstattarget)
#else
#define STATISTICS_TARGET(stats) ((stats)->attr->attstattarget)
#endif

/* What std_typanalyze() set up */
typedef struct StandardAnalyze
{
	AnalyzeAttrComputeStatsFunc compute_stats;
	void	   *extra_data;
	IdsOfValue	ids_of;			/* the type's own */
} StandardAnalyze;

/* Counts of the sample */
typedef struct IdSetSample
{
	IdCounts   *counts;			/* numbers of sets that have an id */
	uint32	   *lengths;		/* [nsets] lengths of the sets */
	uint32		nsets;			/* number of sets, without nulls */
	double		nids;			/* number of ids of all sets */
	bool		whole;			/* the sample is the whole table */
} IdSetSample;

/* Count the ids and note the lengths of all sets in the sample */
static void
count_sample(IdSetSample *sample, VacAttrStats *stats, IdsOfValue ids_of, AnalyzeAttrFetchFunc fetch,
			 int nrows)
{
	sample->counts = idset_counts_make();
	sample->lengths = palloc_array(uint32, Max(nrows, 1));
	for (int row = 0; row < nrows; row++)
	{
		bool		isnull;
		Datum		value;
		struct varlena *set;
		gpuvec_id_span ids;

		vacuum_delay_point(
#if PG_VERSION_NUM >= 180000
						   true
#endif
			);
		value = fetch(stats, row, &isnull);
		if (isnull)
			continue;
		set = PG_DETOAST_DATUM(value);
		ids = ids_of(set);
		idset_counts_add(sample->counts, ids);
		sample->lengths[sample->nsets++] = ids.n;
		sample->nids += ids.n;
		if ((Pointer) set != DatumGetPointer(value))
			pfree(set);
	}
}

/* qsort comparator: most common first, ties by id */
static int
compare_counts(const void *a, const void *b)
{
	const IdCount *x = a;
	const IdCount *y = b;

	if (x->count != y->count)
		return x->count > y->count ? -1 : 1;
	return x->id < y->id ? -1 : x->id > y->id;
}

/* qsort comparator */
static int
compare_ids(const void *a, const void *b)
{
	uint32		x = ((const IdCount *) a)->id;
	uint32		y = ((const IdCount *) b)->id;

	return x < y ? -1 : x > y;
}

/* qsort comparator */
static int
compare_lengths(const void *a, const void *b)
{
	uint32		x = *(const uint32 *) a;
	uint32		y = *(const uint32 *) b;

	return x < y ? -1 : x > y;
}

/*
 * The ids to list, at most `capacity`, ascending.  *cut: others were met, too.
 */
static IdCount *
common_ids(const IdSetSample *sample, uint32 capacity, uint32 *n, bool *cut)
{
	IdCount    *ids = idset_counts_list(sample->counts, sample->whole ? 1 : 2, n, cut);

	if (*n > capacity)
	{
		qsort(ids, *n, sizeof(IdCount), compare_counts);
		*n = capacity;
		*cut = true;
		qsort(ids, *n, sizeof(IdCount), compare_ids);
	}
	return ids;
}

/* Number of a free slot of the statistics, or -1 */
static int
free_slot(const VacAttrStats *stats)
{
	for (int slot = 0; slot < STATISTIC_NUM_SLOTS; slot++)
		if (stats->stakind[slot] == 0)
			return slot;
	return -1;
}

/* Store the MCELEM slot */
static void
store_common_ids(VacAttrStats *stats, const IdSetSample *sample)
{
	int			slot = free_slot(stats);
	uint32		lowest = sample->nsets;
	uint32		highest = 0;
	uint32		n;
	bool		cut;
	IdCount    *ids = common_ids(sample, STATISTICS_TARGET(stats) * IDS_PER_TARGET, &n, &cut);
	Datum	   *values;
	float4	   *numbers;

	if (slot < 0 || n == 0)
		return;
	values = MemoryContextAlloc(stats->anl_context, n * sizeof(Datum));
	numbers = MemoryContextAlloc(stats->anl_context, (n + 3) * sizeof(float4));
	for (uint32 i = 0; i < n; i++)
	{
		values[i] = Int64GetDatum((int64) ids[i].id);
		numbers[i] = (double) ids[i].count / sample->nsets;
		lowest = Min(lowest, ids[i].count);
		highest = Max(highest, ids[i].count);
	}
	numbers[n] = (double) (cut ? lowest : 1) / sample->nsets;
	numbers[n + 1] = (double) highest / sample->nsets;
	numbers[n + 2] = 0;

	stats->stakind[slot] = STATISTIC_KIND_MCELEM;
	stats->staop[slot] = INT8_EQUAL_OPERATOR;
	stats->stavalues[slot] = values;
	stats->numvalues[slot] = n;
	stats->stanumbers[slot] = numbers;
	stats->numnumbers[slot] = n + 3;
	stats->statypid[slot] = INT8OID;
	stats->statyplen[slot] = sizeof(int64);
	stats->statypbyval[slot] = FLOAT8PASSBYVAL;
	stats->statypalign[slot] = TYPALIGN_DOUBLE;
}

/* Store the DECHIST slot; sorts the lengths */
static void
store_lengths(VacAttrStats *stats, IdSetSample *sample)
{
	int			slot = free_slot(stats);
	int			n = Max(STATISTICS_TARGET(stats), 2);
	float4	   *numbers;

	if (slot < 0)
		return;
	qsort(sample->lengths, sample->nsets, sizeof(uint32), compare_lengths);
	numbers = MemoryContextAlloc(stats->anl_context, (n + 1) * sizeof(float4));
	for (int i = 0; i < n; i++)
		numbers[i] = sample->lengths[(uint64) i * (sample->nsets - 1) / (n - 1)];
	numbers[n] = sample->nids / sample->nsets;

	stats->stakind[slot] = STATISTIC_KIND_DECHIST;
	stats->staop[slot] = INT8_EQUAL_OPERATOR;
	stats->stanumbers[slot] = numbers;
	stats->numnumbers[slot] = n + 1;
}

/* compute_stats: the standard statistics, then MCELEM and DECHIST */
static void
compute_idset_stats(VacAttrStats *stats, AnalyzeAttrFetchFunc fetch, int nrows, double totalrows)
{
	StandardAnalyze *standard = stats->extra_data;
	IdSetSample sample = {.whole = nrows >= totalrows};

	stats->extra_data = standard->extra_data;
	standard->compute_stats(stats, fetch, nrows, totalrows);
	stats->extra_data = standard;
	if (!stats->stats_valid)
		return;

	count_sample(&sample, stats, standard->ids_of, fetch, nrows);
	if (sample.nsets == 0)
		return;
	store_common_ids(stats, &sample);
	store_lengths(stats, &sample);
}

bool
idset_analyze(VacAttrStats *stats, IdsOfValue ids_of)
{
	StandardAnalyze *standard;

	if (!std_typanalyze(stats))
		return false;
	standard = palloc(sizeof(StandardAnalyze));
	standard->compute_stats = stats->compute_stats;
	standard->extra_data = stats->extra_data;
	stats->compute_stats = compute_idset_stats;
	standard->ids_of = ids_of;
	stats->extra_data = standard;
	return true;
}

/* The ids of a set */
static gpuvec_id_span
ids_of_set(const void *value)
{
	return idset_span(value);
}

/* Analyze function of the type idset */
Datum
idset_typanalyze(PG_FUNCTION_ARGS)
{
	PG_RETURN_BOOL(idset_analyze((VacAttrStats *) PG_GETARG_POINTER(0), ids_of_set));
}
