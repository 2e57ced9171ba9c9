/*-------------------------------------------------------------------------
 *
 * autoprewarm_load.c
 *	  The background worker that loads the listed mirrors of one database.
 *
 * The worker gives way to all others.  It passes over a table that is locked,
 * as by ALTER TABLE, and over one that a session loads without getting on.
 * Each mirror has a transaction of its own.  SIGTERM, which the leader sends
 * if the database is to be dropped or copied, ends the worker between two
 * pages.  Resident mirrors are left as they are, so a worker that is started
 * again goes on where the last one ended.
 *
 *-------------------------------------------------------------------------
 */
#include "gpuvec.h"

#include <signal.h>

#include "access/htup_details.h"
#include "access/relation.h"
#include "access/xact.h"
#include "catalog/dependency.h"
#include "catalog/pg_class.h"
#include "catalog/pg_type.h"
#include "commands/dbcommands.h"
#include "commands/defrem.h"
#include "commands/extension.h"
#include "mirror/ask/conversation.h"
#include "mirror/fresh/refresh.h"
#include "mirror/prewarm/autoprewarm.h"
#include "mirror/prewarm/prewarm_list.h"
#include "pgstat.h"
#include "postmaster/bgworker.h"
#include "storage/lmgr.h"
#include "tcop/tcopprot.h"
#include "utils/guc.h"
#include "utils/syscache.h"

/* What the worker has done */
typedef struct Progress
{
	const PrewarmEntry *entry;	/* the mirror to load */
	int			loaded;			/* number of mirrors loaded */
	bool		no_engine;		/* the engine is not available: stop */
} Progress;

bool
AutoprewarmTry(void (*work) (void *arg), void *arg, const char *what)
{
	MemoryContext context = CurrentMemoryContext;
	volatile bool ok = true;

	PG_TRY();
	{
		work(arg);
	}
	PG_CATCH();
	{
		ErrorData  *error;

		MemoryContextSwitchTo(context);
		error = CopyErrorData();
		FlushErrorState();
		AbortOutOfAnyTransaction();
		GpuvecLinkClose();
		MemoryContextSwitchTo(context);
		ereport(LOG,
				(errcode(error->sqlerrcode),
				 errmsg("%s: %s", what, error->message),
				 error->detail ? errdetail_internal("%s", error->detail) : 0));
		FreeErrorData(error);
		ok = false;
	}
	PG_END_TRY();
	return ok;
}

/* True if the type is the extension's idset or idvec, or a domain over it */
static bool
is_mirrored_type(Oid type)
{
	Oid			base = getBaseType(type);
	Oid			extension = get_extension_oid("gpuvec", true);
	HeapTuple	tuple;
	bool		result = false;

	if (!OidIsValid(extension) || getExtensionOfObject(TypeRelationId, base) != extension)
		return false;
	tuple = SearchSysCache1(TYPEOID, ObjectIdGetDatum(base));
	if (HeapTupleIsValid(tuple))
	{
		const char *name = NameStr(((Form_pg_type) GETSTRUCT(tuple))->typname);

		result = strcmp(name, "idset") == 0 || strcmp(name, "idvec") == 0;
		ReleaseSysCache(tuple);
	}
	return result;
}

/* True if the relation (still) has this column, of sets or vectors */
static bool
is_set_column(Relation rel, int32 attnum)
{
	TupleDesc	desc = RelationGetDescr(rel);
	Form_pg_attribute att;

	if (attnum < 1 || attnum > desc->natts)
		return false;
	att = TupleDescAttr(desc, attnum - 1);
	return !att->attisdropped && is_mirrored_type(att->atttypid);
}

/* The type of a column; InvalidOid if there is no such column (any more) */
static Oid
column_type(Relation rel, int32 attnum)
{
	TupleDesc	desc = RelationGetDescr(rel);

	if (attnum < 1 || attnum > desc->natts || TupleDescAttr(desc, attnum - 1)->attisdropped)
		return InvalidOid;
	return TupleDescAttr(desc, attnum - 1)->atttypid;
}

/* True if this is a gpuvec index on the relation that may be scanned */
static bool
is_index_of(Relation index, Relation rel)
{
	return index->rd_rel->relkind == RELKIND_INDEX &&
		index->rd_rel->relam == get_am_oid("gpuvec", true) &&
		index->rd_index->indrelid == RelationGetRelid(rel) &&
		index->rd_index->indisvalid && index->rd_index->indisready &&
		index->rd_index->indislive && is_set_column(index, 1);
}

/* True if the mirror is resident */
static bool
is_ready(const MirrorTarget *target)
{
	const char *reason;
	gpuvec_state state;

	return GpuvecLinkOpen(true, &reason) == GPUVEC_LINK_READY &&
		MirrorState(&target->key, &state) && state.state == GPUVEC_READY;
}

/* Load a shared mirror, unless it is resident */
static void
load_target(MirrorTarget *target, Progress *progress)
{
	const char *reason = NULL;
	uint64		nrows;

	if (target->mode != MIRROR_SHARED || is_ready(target))
		return;
	PushActiveSnapshot(GetTransactionSnapshot());
	if (MirrorPrewarm(target, GetActiveSnapshot(), &nrows, &reason))
		progress->loaded++;
	else
	{
		ereport(LOG,
				(errmsg("gpuvec autoprewarm ends: the engine is not available"),
				 errdetail("The engine cannot be used: %s.", reason)));
		progress->no_engine = true;
	}
	PopActiveSnapshot();
}

/*
 * True if the relation has rows of its own, and is no materialized view
 * without data.  Its OID may belong to another kind of relation by now.
 */
static bool
has_rows(Relation rel)
{
	return (rel->rd_rel->relkind == RELKIND_RELATION || rel->rd_rel->relkind == RELKIND_MATVIEW) &&
		RelationIsScannable(rel);
}

/* Open a relation; NULL if it is gone or locked */
static Relation
open_unless_locked(Oid relid)
{
	if (ConditionalLockRelationOid(relid, AccessShareLock))
		return try_relation_open(relid, NoLock);
	ereport(LOG,
			(errmsg("gpuvec autoprewarm passes over relation %u of database \"%s\", which is locked",
					relid, get_database_name(MyDatabaseId))));
	return NULL;
}

/* Load the mirror of an index */
static void
load_index(Relation rel, Progress *progress)
{
	Relation	index = open_unless_locked(progress->entry->index);
	MirrorTarget target;

	if (index == NULL)
		return;
	if (is_index_of(index, rel))
	{
		MirrorDescribeIndex(rel, index, &target);
		load_target(&target, progress);
	}
	relation_close(index, NoLock);
}

/* Load an embedding table, if its columns still hold keys and vectors */
static void
load_embedding(Relation rel, Progress *progress)
{
	const PrewarmEntry *entry = progress->entry;
	Oid			key_type = column_type(rel, entry->key_attnum);
	Oid			type = column_type(rel, entry->attnum);
	MirrorTarget target;

	if (!OidIsValid(key_type) || !OidIsValid(type) || !MirrorKeyType(key_type) ||
		MirrorVectorTypeOf(type) == MIRROR_NO_VECTOR || entry->storage >= GPUVEC_N_STORAGES)
		return;
	MirrorDescribeEmbedding(rel, entry->key_attnum, entry->attnum, &target);
	target.key.storage = entry->storage;
	load_target(&target, progress);
}

/* Load one mirror of the list, if its relation and column still exist */
static void
load_entry(void *arg)
{
	Progress   *progress = arg;
	const PrewarmEntry *entry = progress->entry;
	MirrorTarget target;
	Relation	rel;

	StartTransactionCommand();
	rel = open_unless_locked(entry->relation);
	if (rel != NULL)
	{
		if (has_rows(rel) && OidIsValid(entry->index))
			load_index(rel, progress);
		else if (has_rows(rel) && entry->key_attnum != 0)
			load_embedding(rel, progress);
		else if (has_rows(rel) && is_set_column(rel, entry->attnum))
		{
			MirrorDescribe(rel, entry->attnum, &target);
			load_target(&target, progress);
		}
		relation_close(rel, NoLock);
	}
	CommitTransactionCommand();
}

/*
 * Connect to the database as a superuser, like autovacuum.  No code from the
 * database is run: pages are read as bytes.
 */
static void
begin_worker(Oid database)
{
	pqsignal(SIGTERM, die);
	BackgroundWorkerUnblockSignals();
	BackgroundWorkerInitializeConnectionByOid(database, InvalidOid, 0);
	pgstat_report_appname("gpuvec autoprewarm worker");
	MirrorGivesWay = true;

	/*
	 * the database's owner may have set a search path, and we are superuser
	 */
	SetConfigOption("search_path", "", PGC_SUSET, PGC_S_OVERRIDE);
	SetConfigOption("default_transaction_isolation", "read committed", PGC_SUSET,
					PGC_S_OVERRIDE);
	SetConfigOption("default_transaction_deferrable", "off", PGC_SUSET, PGC_S_OVERRIDE);
}

/*
 * Main function of the worker.  The leader passes the database in `arg`, and
 * in bgw_extra how many entries of the list to load.
 */
void
gpuvec_autoprewarm_load(Datum arg)
{
	MemoryContext context;
	PrewarmList list;
	Progress	progress = {0};
	int			limit;

	memcpy(&limit, MyBgworkerEntry->bgw_extra, sizeof(limit));
	begin_worker(DatumGetObjectId(arg));
	context = AllocSetContextCreate(TopMemoryContext, "gpuvec autoprewarm",
									ALLOCSET_DEFAULT_SIZES);
	MemoryContextSwitchTo(context);
	(void) PrewarmReadList(&list);
	pgstat_report_activity(STATE_RUNNING, "loading mirrors");
	for (int i = 0; i < Min(limit, list.n) && !progress.no_engine; i++)
	{
		CHECK_FOR_INTERRUPTS();
		progress.entry = &list.entries[i];
		if (progress.entry->database == MyDatabaseId)
			(void) AutoprewarmTry(load_entry, &progress,
								  psprintf("gpuvec autoprewarm could not load relation %u",
										   progress.entry->relation));
		MemoryContextSwitchTo(context);
	}
	if (progress.loaded > 0)
		ereport(LOG,
				(errmsg_plural("gpuvec autoprewarm loaded %d mirror of database %u",
							   "gpuvec autoprewarm loaded %d mirrors of database %u",
							   progress.loaded, progress.loaded, MyDatabaseId)));
	proc_exit(0);
}
