/*-------------------------------------------------------------------------
 *
 * views.c
 *	  What is resident, how the engine does, and what the planner knows: the functions
 *	  behind the views gpuvec_mirrors, gpuvec_engine and gpuvec_costs, gpuvec_prewarm,
 *	  gpuvec_evict.
 *
 * The views never start an engine; without one they are empty, but for gpuvec_costs,
 * which shows what is in shared memory.
 *
 *-------------------------------------------------------------------------
 */
#include "gpuvec.h"

#include "access/htup_details.h"
#include "catalog/pg_authid.h"
#include "catalog/pg_class.h"
#include "catalog/pg_inherits.h"
#include "fmgr.h"
#include "funcapi.h"
#include "link/link.h"
#include "link/supervisor.h"
#include "mirror/facts.h"
#include "miscadmin.h"
#include "search/search.h"
#include "search/set_function.h"
#include "utils/acl.h"
#include "utils/builtins.h"
#include "utils/pg_lsn.h"
#include "utils/lsyscache.h"
#include "utils/snapmgr.h"
#include "utils/syscache.h"
#include "utils/timestamp.h"
#include "utils/tuplestore.h"

PG_FUNCTION_INFO_V1(gpuvec_stat_mirrors);
PG_FUNCTION_INFO_V1(gpuvec_stat_engine);
PG_FUNCTION_INFO_V1(gpuvec_stat_costs);
PG_FUNCTION_INFO_V1(gpuvec_prewarm);
PG_FUNCTION_INFO_V1(gpuvec_prewarm_embedding);
PG_FUNCTION_INFO_V1(gpuvec_evict);

/* Microseconds since the UNIX epoch as a timestamp */
static TimestampTz
from_unix_us(int64 us)
{
	return us - (POSTGRES_EPOCH_JDATE - UNIX_EPOCH_JDATE) * USECS_PER_DAY;
}

/* May the caller know of mirrors of this relation? */
static bool
may_see(Oid database, Oid relation)
{
	if (has_privs_of_role(GetUserId(), ROLE_PG_READ_ALL_STATS))
		return true;
	/* a mirror may outlive its table, which then has no owner to ask for */
	return database == MyDatabaseId &&
		SearchSysCacheExists1(RELOID, ObjectIdGetDatum(relation)) &&
		GpuvecOwnsRelation(relation, GetUserId());
}

/* Ask the engine, if it runs.  False: it does not. */
static bool
ask_engine(gpuvec_message type, gpuvec_message expected, GpuvecReply *reply)
{
	const char *reason;

	for (int attempt = 0; attempt < 2; attempt++)
	{
		if (GpuvecLinkOpen(false, &reason) != GPUVEC_LINK_READY)
			return false;
		if (GpuvecLinkCall(type, NULL, 0, expected, 0, reply))
			return true;
	}
	return false;
}

/* Add one mirror to the result */
static void
put_mirror(ReturnSetInfo *rsinfo, const gpuvec_mirror_info *info)
{
	static const char *const states[] = {"absent", "loading", "ready"};
	Datum		values[19];
	bool		nulls[19] = {0};
	int			n = 0;

	values[n++] = ObjectIdGetDatum(info->key.database);
	values[n++] = ObjectIdGetDatum(info->key.relation);
	values[n++] = Int16GetDatum((int16) info->key.attnum);
	nulls[n] = info->key.key_attnum == 0;
	values[n++] = Int16GetDatum((int16) info->key.key_attnum);
	values[n++] = ObjectIdGetDatum(info->key.index);
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

	GpuvecMaterializedSRF(fcinfo);
	if (!ask_engine(GPUVEC_MSG_LIST, GPUVEC_MSG_MIRRORS, &reply))
		return (Datum) 0;
	for (uint32 i = 0; i < reply.length / sizeof(gpuvec_mirror_info); i++)
	{
		gpuvec_mirror_info info;

		memcpy(&info, reply.data + i * sizeof(info), sizeof(info));
		if (may_see(info.key.database, info.key.relation))
			put_mirror((ReturnSetInfo *) fcinfo->resultinfo, &info);
	}
	return (Datum) 0;
}

/* Engines that were started after the first one */
static int32
restarts(void)
{
	GpuvecShared *state = GpuvecSharedState();
	uint32		starts;

	SpinLockAcquire(&state->mutex);
	starts = state->starts;
	SpinLockRelease(&state->mutex);
	return starts > 0 ? (int32) (starts - 1) : 0;
}

Datum
gpuvec_stat_engine(PG_FUNCTION_ARGS)
{
	ReturnSetInfo *rsinfo = (ReturnSetInfo *) fcinfo->resultinfo;
	GpuvecReply reply;
	gpuvec_engine_info info;
	Datum		values[14];
	bool		nulls[14] = {0};
	int			n = 0;

	GpuvecMaterializedSRF(fcinfo);
	if (!ask_engine(GPUVEC_MSG_ENGINE, GPUVEC_MSG_ENGINE_INFO, &reply) ||
		reply.length != sizeof(info))
		return (Datum) 0;
	memcpy(&info, reply.data, sizeof(info));
	info.backend[sizeof(info.backend) - 1] = '\0';
	info.device[sizeof(info.device) - 1] = '\0';

	values[n++] = Int32GetDatum((int32) info.pid);
	values[n++] = CStringGetTextDatum(info.backend);
	values[n++] = CStringGetTextDatum(info.device);
	nulls[n] = info.capability == 0;
	values[n++] = CStringGetTextDatum(psprintf("%d.%d", info.capability / 10, info.capability % 10));
	values[n++] = Int32GetDatum((int32) info.threads);
	values[n++] = Int64GetDatum((int64) info.memory_used);
	values[n++] = Int64GetDatum((int64) info.memory_budget);
	values[n++] = TimestampTzGetDatum(from_unix_us(info.started));
	values[n++] = Int32GetDatum((int32) info.connections);
	values[n++] = Int64GetDatum((int64) info.requests);
	values[n++] = Int64GetDatum((int64) info.queries);
	values[n++] = Int64GetDatum((int64) info.batches);
	values[n++] = Int64GetDatum((int64) info.evictions);
	values[n++] = Int32GetDatum(restarts());
	Assert(n == lengthof(values));
	tuplestore_putvalues(rsinfo->setResult, rsinfo->setDesc, values, nulls);
	return (Datum) 0;
}

/* Add what the planner knows of one mirror to the result */
static void
put_facts(ReturnSetInfo *rsinfo, const FactsKey *key, const Facts *facts)
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
	values[n++] = BoolGetDatum(FactsResident(facts));
	values[n++] = BoolGetDatum(facts->gpu);
	values[n++] = Int64GetDatum((int64) facts->nblocks);
	values[n++] = Int64GetDatum((int64) facts->rows);
	values[n++] = Int64GetDatum((int64) facts->ids);
	values[n++] = Int64GetDatum((int64) facts->trips);
	values[n++] = Float8GetDatum(FactsTripOperators());
	values[n++] = Float8GetDatum(FactsRankOperators(facts));
	values[n++] = TimestampTzGetDatum(facts->used);
	Assert(n == lengthof(values));
	tuplestore_putvalues(rsinfo->setResult, rsinfo->setDesc, values, nulls);
}

Datum
gpuvec_stat_costs(PG_FUNCTION_ARGS)
{
	FactsKey	key;
	Facts		facts;
	bool		used;

	GpuvecMaterializedSRF(fcinfo);
	for (int i = 0; FactsSlotRead(i, &key, &facts, &used); i++)
	{
		if (used && may_see(key.database, key.relation))
			put_facts((ReturnSetInfo *) fcinfo->resultinfo, &key, &facts);
	}
	return (Datum) 0;
}

/* Load mirrors of all leaves into the engine; gives the number of rows */
static Datum
prewarm(MirrorTarget *targets, int ntargets)
{
	uint64		total = 0;

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
	PG_RETURN_INT64((int64) total);
}

/* Load a column of sets */
Datum
gpuvec_prewarm(PG_FUNCTION_ARGS)
{
	int			ntargets;
	MirrorTarget *targets = SearchTargets(PG_GETARG_OID(0), NameStr(*PG_GETARG_NAME(1)),
										  SearchIdSetType(fcinfo), false, &ntargets);

	return prewarm(targets, ntargets);
}

/* Load the columns of an embedding table */
Datum
gpuvec_prewarm_embedding(PG_FUNCTION_ARGS)
{
	int			ntargets;
	MirrorTarget *targets = SearchEmbeddingTargets(PG_GETARG_OID(0), NameStr(*PG_GETARG_NAME(1)),
												   NameStr(*PG_GETARG_NAME(2)), &ntargets);

	return prewarm(targets, ntargets);
}

/* Drop one column's mirror, or (column NULL) all mirrors of a relation */
Datum
gpuvec_evict(PG_FUNCTION_ARGS)
{
	Oid			relid;
	List	   *oids;
	ListCell   *cell;
	uint64		total = 0;
	const char *reason;

	if (PG_ARGISNULL(0))
		PG_RETURN_NULL();
	relid = PG_GETARG_OID(0);
	if (!GpuvecOwnsRelation(relid, GetUserId()))
		aclcheck_error(ACLCHECK_NOT_OWNER, get_relkind_objtype(get_rel_relkind(relid)),
					   get_rel_name(relid));
	oids = find_all_inheritors(relid, AccessShareLock, NULL);
	if (GpuvecLinkOpen(false, &reason) != GPUVEC_LINK_READY)
		PG_RETURN_INT64(0);
	foreach(cell, oids)
	{
		gpuvec_drop drop;
		GpuvecPiece piece = {&drop, sizeof(drop)};
		GpuvecReply reply;
		uint64		count;

		memset(&drop, 0, sizeof(drop));
		drop.database = MyDatabaseId;
		drop.relation = lfirst_oid(cell);
		if (!PG_ARGISNULL(1))
		{
			const char *column = NameStr(*PG_GETARG_NAME(1));
			AttrNumber	attnum = get_attnum(drop.relation, column);

			if (attnum <= 0)
				ereport(ERROR,
						(errcode(ERRCODE_UNDEFINED_COLUMN),
						 errmsg("column \"%s\" of relation \"%s\" does not exist",
								column, get_rel_name(drop.relation))));
			drop.attnum = attnum;
		}
		if (!GpuvecLinkCall(GPUVEC_MSG_DROP, &piece, 1, GPUVEC_MSG_COUNT,
							sizeof(count), &reply))
			break;				/* the engine is gone, and all mirrors with it */
		memcpy(&count, reply.data, sizeof(count));
		total += count;
		FactsNoteDropped(drop.relation, drop.attnum);
	}
	PG_RETURN_INT64((int64) total);
}
