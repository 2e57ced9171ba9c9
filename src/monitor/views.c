/*-------------------------------------------------------------------------
 *
 * views.c
 *	  Views of mirrors, engine and costs, and functions to load and drop
 *	  mirrors.
 *
 * These are the functions behind the views gpuvec_mirrors, gpuvec_engine and
 * gpuvec_costs, and gpuvec_prewarm, gpuvec_prewarm_embedding, gpuvec_evict
 * and gpuvec_evict_all.
 *
 * The views never start an engine, and never fail for want of one.  If the
 * engine does not run or cannot be asked, gpuvec_mirrors is empty.
 * gpuvec_engine is empty if none runs; if one runs but cannot be asked, it
 * shows why.  gpuvec_costs shows what is in shared memory.
 *
 *-------------------------------------------------------------------------
 */
#include "gpuvec.h"

#include "access/htup_details.h"
#include "catalog/pg_authid.h"
#include "catalog/pg_class.h"
#include "catalog/pg_database.h"
#include "catalog/pg_inherits.h"
#include "core/protocol_monitor.h"
#include "fmgr.h"
#include "funcapi.h"
#include "core/clock.h"
#include "link/engine_link.h"
#include "link/shared.h"
#include "mirror/ask/conversation.h"
#include "mirror/describe/costs.h"
#include "mirror/feed/feed.h"
#include "mirror/feed/feeder_state.h"
#include "mirror/fresh/load_targets.h"
#include "miscadmin.h"
#include "servers/foreign.h"
#include "search/set_search.h"
#include "search/set_function.h"
#include "monitor/views.h"
#include "utils/acl.h"
#include "utils/builtins.h"
#include "utils/pg_lsn.h"
#include "utils/lsyscache.h"
#include "utils/snapmgr.h"
#include "utils/syscache.h"
#include "utils/timestamp.h"
#include "utils/tuplestore.h"

/* Bytes of records that are copied at a time */
#define FEED_COPY_BYTES		(256 * 1024)

PG_FUNCTION_INFO_V1(gpuvec_stat_mirrors);
PG_FUNCTION_INFO_V1(gpuvec_stat_engine);
PG_FUNCTION_INFO_V1(gpuvec_stat_costs);
PG_FUNCTION_INFO_V1(gpuvec_prewarm);
PG_FUNCTION_INFO_V1(gpuvec_prewarm_embedding);
PG_FUNCTION_INFO_V1(gpuvec_evict);
PG_FUNCTION_INFO_V1(gpuvec_evict_all);

static TimestampTz
from_unix_us(int64 us)
{
	return us - (POSTGRES_EPOCH_JDATE - UNIX_EPOCH_JDATE) * USECS_PER_DAY;
}

static bool
relation_exists(Oid relation)
{
	return SearchSysCacheExists1(RELOID, ObjectIdGetDatum(relation));
}

bool
GpuvecMaySeeMirror(Oid database, Oid relation)
{
	if (has_privs_of_role(GetUserId(), ROLE_PG_READ_ALL_STATS))
		return true;
	/* a mirror may outlive its table, which then has no owner to check */
	return database == MyDatabaseId &&
		relation_exists(relation) && GpuvecOwnsRelation(relation, GetUserId());
}

bool
GpuvecAskEngine(gpuvec_message type, gpuvec_message expected, GpuvecReply *reply,
				const char **reason)
{
	for (int attempt = 0; attempt < 2; attempt++)
	{
		if (GpuvecLinkOpen(false, reason) != GPUVEC_LINK_READY)
			return false;
		if (GpuvecLinkCall(type, NULL, 0, expected, 0, reply))
			return true;
	}
	*reason = "it closes connections";
	return false;
}

/* The slot of a mirror's feed.  Returns its number; -1: there is none. */
static int
feed_slot(const gpuvec_mirror_info *info, FeedSlotInfo *slot)
{
	for (int i = 0; info->feed != 0 && i < FeedSlotsTaken(); i++)
	{
		FeedSlotRead(i, slot);
		if (slot->feed == info->feed)
			return i;
	}
	return -1;
}

/* True if these records of a feed are all rows, which can be applied */
static bool
all_rows(uint64 feed, uint64 from, uint64 to)
{
	while (from < to)
	{
		FeedRows	rows;

		if (!FeedCopyRows(feed, from, to, FEED_COPY_BYTES, &rows))
			return false;
		pfree(rows.data);
		if (rows.to == from)
			return false;
		from = rows.to;
	}
	return true;
}

static int
compare_blocks(const void *a, const void *b)
{
	BlockNumber x = *(const BlockNumber *) a;
	BlockNumber y = *(const BlockNumber *) b;

	return x < y ? -1 : x > y;
}

/*
 * The number of pages that the next refresh has to read because records of
 * the feed cannot be applied as rows; -1: that is not known, or all pages
 * have to be checked
 */
static int64
pages_waiting(uint64 applied, const FeedSlotInfo *slot)
{
	gpuvec_freshness need = {.feed = slot->feed, .applied = slot->number};
	BlockNumber *blocks;
	uint32		n;
	int64		distinct = 0;

	if (all_rows(slot->feed, applied, slot->number))
		return 0;
	if (!FeedTake(applied, &need, &blocks, &n))
		return -1;
	qsort(blocks, n, sizeof(BlockNumber), compare_blocks);
	for (uint32 i = 0; i < n; i++)
		distinct += i == 0 || blocks[i] != blocks[i - 1];
	pfree(blocks);
	return distinct;
}

Datum
GpuvecIntervalOfUs(int64 us)
{
	Interval   *interval = palloc0_object(Interval);

	interval->time = us;
	return IntervalPGetDatum(interval);
}

/*
 * Set values[] to what waits in the feed of a mirror; null without a feed.
 * Returns their number.
 */
static int
feed_values(const gpuvec_mirror_info *info, Datum *values, bool *nulls)
{
	FeedSlotInfo slot;
	int64		since;
	int64		pages;
	int			i = feed_slot(info, &slot);

	memset(nulls, true, 3);
	if (i < 0)
		return 3;
	values[0] = Int64GetDatum(slot.number > info->applied ? (int64) (slot.number - info->applied) : 0);
	nulls[0] = false;
	pages = pages_waiting(info->applied, &slot);
	values[1] = Int64GetDatum(pages);
	nulls[1] = pages < 0;
	if (slot.number > info->applied && FeederOldest(i, slot.feed, &since))
	{
		values[2] = GpuvecIntervalOfUs(Max(gpuvec_clock_us() - since, 0));
		nulls[2] = false;
	}
	return 3;
}

/* Set values[] to how searches had to wait; returns their number */
static int
wait_values(const gpuvec_mirror_info *info, Datum *values, bool *nulls)
{
	Costs		costs;

	nulls[0] = nulls[1] = !CostsFind(&info->key, &costs);
	if (!nulls[0])
	{
		values[0] = Int64GetDatum((int64) costs.waits);
		values[1] = GpuvecIntervalOfUs((int64) costs.wait_us);
	}
	return 2;
}

/* What an entry of the mirror stands for */
static const char *
mirror_kind(const gpuvec_mirror_key *key)
{
	if (key->index != 0)
		return "index";
	return key->rooted ? "chains" : "rows";
}

int
GpuvecPutMirrorKey(const gpuvec_mirror_key *key, Datum *values, bool *nulls)
{
	values[0] = ObjectIdGetDatum(key->database);
	values[1] = ObjectIdGetDatum(key->relation);
	values[2] = Int16GetDatum((int16) key->attnum);
	nulls[3] = key->key_attnum == 0;
	values[3] = Int16GetDatum((int16) key->key_attnum);
	values[4] = ObjectIdGetDatum(key->index);
	return 5;
}

static void
put_mirror(ReturnSetInfo *rsinfo, const gpuvec_mirror_info *info)
{
	static const char *const states[] = {"absent", "loading", "ready"};
	Datum		values[28] = {0};
	bool		nulls[28] = {0};
	int			n = GpuvecPutMirrorKey(&info->key, values, nulls);

	values[n++] = CStringGetTextDatum(mirror_kind(&info->key));
	values[n++] = ObjectIdGetDatum(info->key.relfilenumber);
	values[n++] = BoolGetDatum(info->key.private_id != 0);
	values[n++] = CStringGetTextDatum(info->state <= GPUVEC_READY ? states[info->state] : "?");
	values[n++] = Int64GetDatum((int64) info->pages_done);
	values[n++] = Int64GetDatum((int64) info->pages_total);
	values[n++] = Int64GetDatum((int64) info->nrows);
	values[n++] = Int64GetDatum((int64) info->nids);
	values[n++] = Int32GetDatum((int32) info->nsegments);
	values[n++] = Int64GetDatum((int64) (info->host_bytes + info->device_bytes));
	values[n++] = Int64GetDatum((int64) info->device_bytes);
	values[n++] = Int64GetDatum((int64) info->loads);
	values[n++] = Int64GetDatum((int64) info->refreshes);
	values[n++] = Int64GetDatum((int64) info->searches);
	n += feed_values(info, values + n, nulls + n);
	values[n++] = Int64GetDatum((int64) info->rows_applied);
	values[n++] = Int64GetDatum((int64) info->page_rows);
	n += wait_values(info, values + n, nulls + n);
	values[n++] = LSNGetDatum(info->checked);
	nulls[n] = info->last_use == 0;
	values[n++] = TimestampTzGetDatum(from_unix_us(info->last_use));
	Assert(n == lengthof(values));
	tuplestore_putvalues(rsinfo->setResult, rsinfo->setDesc, values, nulls);
}

Datum
gpuvec_stat_mirrors(PG_FUNCTION_ARGS)
{
	GpuvecReply reply;
	const char *reason;

	GpuvecMaterializedSRF(fcinfo);
	if (!GpuvecAskEngine(GPUVEC_MSG_LIST, GPUVEC_MSG_MIRRORS, &reply, &reason))
		return (Datum) 0;
	for (uint32 i = 0; i < reply.length / sizeof(gpuvec_mirror_info); i++)
	{
		gpuvec_mirror_info info;

		memcpy(&info, reply.data + i * sizeof(info), sizeof(info));
		if (GpuvecMaySeeMirror(info.key.database, info.key.relation))
			put_mirror((ReturnSetInfo *) fcinfo->resultinfo, &info);
	}
	return (Datum) 0;
}

/*
 * The engine's process id, or 0.  *restarts is the number of engines started
 * after the first.
 */
static int32
engine_process(int32 *restarts)
{
	GpuvecShared *state = GpuvecSharedState();
	uint32		starts;
	int32		pid;

	*restarts = 0;
	if (state == NULL)
		return 0;
	SpinLockAcquire(&state->mutex);
	pid = state->engine_pid;
	starts = state->starts;
	SpinLockRelease(&state->mutex);
	*restarts = starts > 0 ? (int32) (starts - 1) : 0;
	return pid;
}

/* Set values[] to what the engine reports of itself; returns their number */
static int
engine_values(const gpuvec_engine_info *info, Datum *values, bool *nulls)
{
	int			n = 0;

	values[n++] = Int32GetDatum((int32) info->pid);
	values[n++] = CStringGetTextDatum(pnstrdup(info->backend, sizeof(info->backend)));
	values[n++] = CStringGetTextDatum(pnstrdup(info->device, sizeof(info->device)));
	nulls[n] = info->capability == 0;
	values[n++] = CStringGetTextDatum(psprintf("%d.%d", info->capability / 10, info->capability % 10));
	values[n++] = Int32GetDatum((int32) info->threads);
	values[n++] = Int64GetDatum((int64) info->memory_used);
	values[n++] = Int64GetDatum((int64) info->memory_budget);
	values[n++] = TimestampTzGetDatum(from_unix_us(info->started));
	values[n++] = Int32GetDatum((int32) info->connections);
	values[n++] = Int64GetDatum((int64) info->requests);
	values[n++] = Int64GetDatum((int64) info->queries);
	values[n++] = Int64GetDatum((int64) info->batches);
	values[n++] = Int64GetDatum((int64) info->evictions);
	return n;
}

/*
 * One row if an engine runs, or if that cannot be told.  If the engine cannot
 * be asked, the row only has its process id, restarts and the reason.
 */
Datum
gpuvec_stat_engine(PG_FUNCTION_ARGS)
{
	ReturnSetInfo *rsinfo = (ReturnSetInfo *) fcinfo->resultinfo;
	const char *reason = "its answer is invalid";
	GpuvecReply reply;
	gpuvec_engine_info info;
	Datum		values[15] = {0};
	bool		nulls[15] = {0};
	int32		restarts;
	int32		pid;
	int			n;

	GpuvecMaterializedSRF(fcinfo);
	n = lengthof(values) - 2;
	if (GpuvecAskEngine(GPUVEC_MSG_ENGINE, GPUVEC_MSG_ENGINE_INFO, &reply, &reason) &&
		reply.length == sizeof(info))
	{
		memcpy(&info, reply.data, sizeof(info));
		n = engine_values(&info, values, nulls);
		nulls[n + 1] = true;
	}
	pid = engine_process(&restarts);
	values[n] = Int32GetDatum(restarts);
	if (!nulls[n + 1])
	{
		if (pid == 0 && GpuvecSharedLastError() == NULL)
			return (Datum) 0;
		memset(nulls, true, n);
		values[0] = Int32GetDatum(pid);
		nulls[0] = nulls[n] = pid == 0;
		values[n + 1] = CStringGetTextDatum(reason);
	}
	Assert(n + 2 == lengthof(values));
	tuplestore_putvalues(rsinfo->setResult, rsinfo->setDesc, values, nulls);
	return (Datum) 0;
}

/* Add what the planner knows of one mirror to the result */
static void
put_costs(ReturnSetInfo *rsinfo, const CostsKey *key, const Costs *costs)
{
	Datum		values[15];
	bool		nulls[15] = {0};
	int			n = 0;

	values[n++] = ObjectIdGetDatum(key->database);
	values[n++] = ObjectIdGetDatum(key->relation);
	values[n++] = ObjectIdGetDatum(key->relfilenumber);
	values[n++] = Int16GetDatum((int16) key->attnum);
	values[n++] = ObjectIdGetDatum(key->index);
	values[n++] = BoolGetDatum(key->rooted != 0);
	values[n++] = BoolGetDatum(CostsResident(costs));
	values[n++] = BoolGetDatum(costs->gpu);
	values[n++] = Int64GetDatum((int64) costs->nblocks);
	values[n++] = Int64GetDatum((int64) costs->rows);
	values[n++] = Int64GetDatum((int64) costs->ids);
	values[n++] = Int64GetDatum((int64) costs->trips);
	values[n++] = Float8GetDatum(CostsTripOperators());
	values[n++] = Float8GetDatum(CostsRankOperators(costs));
	values[n++] = TimestampTzGetDatum(from_unix_us(gpuvec_wall_clock_at(costs->used)));
	Assert(n == lengthof(values));
	tuplestore_putvalues(rsinfo->setResult, rsinfo->setDesc, values, nulls);
}

Datum
gpuvec_stat_costs(PG_FUNCTION_ARGS)
{
	CostsKey	key;
	Costs		costs;
	bool		used;

	GpuvecMaterializedSRF(fcinfo);
	for (int i = 0; CostsSlotRead(i, &key, &costs, &used); i++)
	{
		if (used && GpuvecMaySeeMirror(key.database, key.relation))
			put_costs((ReturnSetInfo *) fcinfo->resultinfo, &key, &costs);
	}
	return (Datum) 0;
}

/* Load the mirrors of all targets; returns the number of rows */
static uint64
prewarm(MirrorTarget *targets, int ntargets)
{
	uint64		total = 0;

	LoadAbsentTargets(targets, ntargets, GetActiveSnapshot());
	for (int i = 0; i < ntargets; i++)
	{
		const char *reason = NULL;
		uint64		nrows = 0;

		if (targets[i].mode != MIRROR_SHARED)
			ereport(ERROR,
					(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
					 errmsg("relation \"%s\" cannot stay resident",
							RelationGetRelationName(targets[i].rel)),
					 errdetail("Temporary and unlogged tables, and tables that this transaction has created or altered, are read anew for each search.")));
		if (!MirrorPrewarm(&targets[i], GetActiveSnapshot(), &nrows, &reason))
			ereport(ERROR,
					(errcode(ERRCODE_SYSTEM_ERROR),
					 errmsg("the gpuvec engine is not available"),
					 errdetail("The engine cannot be used: %s.", reason)));
		total += nrows;
	}
	SearchCloseTargets(targets, ntargets);
	return total;
}

Datum
gpuvec_prewarm(PG_FUNCTION_ARGS)
{
	const char *column = NameStr(*PG_GETARG_NAME(1));
	List	   *foreign = NIL;
	SearchColumns columns = {.column = column,.idset_type = SearchIdSetType(fcinfo),.vectors = true,
	.foreign = &foreign};
	int			ntargets;
	MirrorTarget *targets = SearchTargets(PG_GETARG_OID(0), &columns, &ntargets);
	uint64		total = 0;

	if (foreign != NIL)
		total = ForeignPrewarm(foreign, column);
	ForeignCloseLeaves(foreign);
	PG_RETURN_INT64((int64) (total + prewarm(targets, ntargets)));
}

Datum
gpuvec_prewarm_embedding(PG_FUNCTION_ARGS)
{
	int			ntargets;
	MirrorTarget *targets = SearchEmbeddingTargets(PG_GETARG_OID(0), NameStr(*PG_GETARG_NAME(1)),
												   NameStr(*PG_GETARG_NAME(2)), &ntargets);

	PG_RETURN_INT64((int64) prewarm(targets, ntargets));
}

/*
 * Have the engine drop mirrors, and add their number to *total.  False if no
 * engine has any.
 */
static bool
drop_mirrors(const gpuvec_drop *drop, uint64 *total)
{
	GpuvecPiece piece = {drop, sizeof(*drop)};
	GpuvecReply reply;
	const char *reason;
	uint64		count;
	int32		restarts;

	if (GpuvecLinkOpen(false, &reason) != GPUVEC_LINK_READY)
	{
		if (engine_process(&restarts) != 0)
			ereport(ERROR,
					(errcode(ERRCODE_SYSTEM_ERROR),
					 errmsg("the gpuvec engine is not available"),
					 errdetail("The engine cannot be used: %s.", reason)));
		return false;
	}
	/* if the engine has ended meanwhile, so have all mirrors */
	if (!GpuvecLinkCall(GPUVEC_MSG_DROP, &piece, 1, GPUVEC_MSG_COUNT, sizeof(count), &reply))
		return false;
	memcpy(&count, reply.data, sizeof(count));
	*total += count;
	CostsNoteDropped(drop->database, drop->relation, drop->attnum);
	return true;
}

/*
 * Fail unless the caller may drop mirrors of a relation that does not exist
 */
static void
check_evict_missing(Oid relation, bool by_column)
{
	if (!OidIsValid(relation) || by_column)
		ereport(ERROR,
				(errcode(ERRCODE_UNDEFINED_TABLE),
				 errmsg("relation with OID %u does not exist", relation),
				 !OidIsValid(relation) ? errhint("gpuvec_evict_all() evicts all copies.") :
				 errhint("Copies of a relation that was dropped can be evicted by its number alone, without a column.")));
	if (!GpuvecOwnsDatabase(MyDatabaseId, GetUserId()))
		ereport(ERROR,
				(errcode(ERRCODE_INSUFFICIENT_PRIVILEGE),
				 errmsg("must be owner of the database to evict relation with OID %u, which does not exist",
						relation)));
}

/* The number of a column to evict */
static AttrNumber
evicted_column(Oid relation, const char *column)
{
	AttrNumber	attnum = get_attnum(relation, column);

	if (attnum <= 0)
		ereport(ERROR,
				(errcode(ERRCODE_UNDEFINED_COLUMN),
				 errmsg("column \"%s\" of relation \"%s\" does not exist",
						column, get_rel_name(relation))));
	return attnum;
}

/*
 * Drop the mirrors of one column, or of all columns (column NULL), of a
 * relation and its children
 */
Datum
gpuvec_evict(PG_FUNCTION_ARGS)
{
	Oid			relid;
	List	   *oids;
	ListCell   *cell;
	uint64		total = 0;

	if (PG_ARGISNULL(0))
		PG_RETURN_NULL();
	relid = PG_GETARG_OID(0);
	if (!relation_exists(relid))
	{
		check_evict_missing(relid, !PG_ARGISNULL(1));
		oids = list_make1_oid(relid);
	}
	else
	{
		if (!GpuvecOwnsRelation(relid, GetUserId()))
			aclcheck_error(ACLCHECK_NOT_OWNER, get_relkind_objtype(get_rel_relkind(relid)),
						   get_rel_name(relid));
		oids = find_all_inheritors(relid, AccessShareLock, NULL);
	}
	foreach(cell, oids)
	{
		gpuvec_drop drop;

		memset(&drop, 0, sizeof(drop));
		drop.database = MyDatabaseId;
		drop.relation = lfirst_oid(cell);
		if (!PG_ARGISNULL(1))
			drop.attnum = evicted_column(drop.relation, NameStr(*PG_GETARG_NAME(1)));
		if (!drop_mirrors(&drop, &total))
			break;
	}
	PG_RETURN_INT64((int64) total);
}

/* Drop all mirrors of all databases */
Datum
gpuvec_evict_all(PG_FUNCTION_ARGS)
{
	gpuvec_drop drop;
	uint64		total = 0;

	memset(&drop, 0, sizeof(drop));
	(void) drop_mirrors(&drop, &total);
	PG_RETURN_INT64((int64) total);
}
