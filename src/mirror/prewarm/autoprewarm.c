/*-------------------------------------------------------------------------
 *
 * autoprewarm.c
 *	  The background worker (the leader) that has mirrors loaded after a
 *	  restart.
 *
 * While an engine runs, the leader asks it every few seconds which mirrors
 * are resident, and keeps the list in a file in the data directory.  When
 * there is a new engine (the server was started, the engine's settings were
 * changed, or the engine has crashed), the leader first has the listed
 * mirrors loaded: the most recently used first, as many as fit the engine's
 * memory.  Only then does the list follow the resident mirrors again.  So a
 * server that is stopped meanwhile forgets nothing.
 *
 * The list of an engine is taken only if the number of engines started is the
 * same before and after.  Otherwise it might be the empty list of the next
 * engine.
 *
 * Loading needs a connection to the database (autoprewarm_load.c), which
 * would hold up a session that drops or copies the database.  Such a session
 * takes a lock on the database that conflicts with the lock of new
 * connections, then waits five seconds for other sessions to leave.  So the
 * leader tries the lock of a new connection every WATCH_MS.  If it is not
 * available, the leader ends its worker, and starts another one later.  There
 * is one worker at a time.
 *
 * An engine that crashes while it loads is not made to load again, and rounds
 * of loading are at least a minute apart.  So a mirror that kills the engine
 * does so once.
 *
 *-------------------------------------------------------------------------
 */
#include "gpuvec.h"

#include <signal.h>

#include "access/heapam.h"
#include "access/htup_details.h"
#include "access/table.h"
#include "access/tableam.h"
#include "access/xact.h"
#include "catalog/pg_database.h"
#include "core/clock.h"
#include "core/protocol_monitor.h"
#include "link/engine_link.h"
#include "link/shared.h"
#include "mirror/fresh/refresh.h"
#include "mirror/prewarm/autoprewarm.h"
#include "mirror/prewarm/prewarm_list.h"
#include "pgstat.h"
#include "postmaster/bgworker.h"
#include "postmaster/interrupt.h"
#include "storage/lmgr.h"
#include "storage/lock.h"
#include "utils/guc.h"

/* How often the leader looks while it waits for an engine, and later */
#define WAIT_MS				1000
#define LIST_MS				5000

/* How often it looks whether the database is to be dropped or copied */
#define WATCH_MS			200

/*
 * Least time between two rounds of loading, and between two attempts in one
 * round
 */
#define ROUND_MS			60000
#define RETRY_MS			5000

/*
 * Least time between two writes of a list that differs in sizes or order only
 */
#define ORDER_MS			300000

/* Outcome of loading the mirrors of a database */
typedef enum Outcome
{
	OUTCOME_DONE,
	OUTCOME_LATER,				/* it is about to be dropped or copied */
	OUTCOME_FAILED				/* no worker is available */
} Outcome;

typedef struct Leader
{
	uint32		served;			/* number of the last engine that was served;
								 * 0: none */
	int64		next_round;		/* when a round may begin */
	int64		next_order;		/* when a changed order may be written */
	PrewarmList written;		/* what the file holds */
	bool		complained;		/* it was logged that no worker is available */
} Leader;

static Leader me;

/*
 * Number of engines started since the server's start.  *running: does the
 * last one run?
 */
static uint32
engine_number(bool *running)
{
	GpuvecShared *state = GpuvecSharedState();
	uint32		number;

	*running = false;
	if (state == NULL)
		return 0;
	SpinLockAcquire(&state->mutex);
	number = state->starts;
	*running = state->engine_pid != 0;
	SpinLockRelease(&state->mutex);
	return number;
}

/* The same as MirrorNap(); settings may change meanwhile */
static void
nap(long ms)
{
	MirrorNap(ms, GPUVEC_WAIT_AUTOPREWARM);
	if (ConfigReloadPending)
	{
		ConfigReloadPending = false;
		ProcessConfigFile(PGC_SIGHUP);
	}
}

/* Send a request without contents to the engine.  False: no answer. */
static bool
ask_engine(gpuvec_message type, gpuvec_message expected, Size minimum, GpuvecReply *reply)
{
	const char *reason;
	bool		ok;

	ok = GpuvecLinkOpen(false, &reason) == GPUVEC_LINK_READY &&
		GpuvecLinkCall(type, NULL, 0, expected, minimum, reply);
	/* the engine counts open sessions, and the leader seldom needs one */
	GpuvecLinkClose();
	return ok;
}

/* A resident mirror */
typedef struct Resident
{
	PrewarmEntry entry;
	int64		last_use;		/* 0: not used since it was loaded */
	int			rank;			/* if not used: position in the written list */
} Resident;

/* Compare by identity: all members but the size */
static int
compare_entries(const PrewarmEntry *a, const PrewarmEntry *b)
{
	if (a->database != b->database)
		return a->database < b->database ? -1 : 1;
	if (a->relation != b->relation)
		return a->relation < b->relation ? -1 : 1;
	if (a->attnum != b->attnum)
		return a->attnum < b->attnum ? -1 : 1;
	if (a->index != b->index)
		return a->index < b->index ? -1 : 1;
	if (a->key_attnum != b->key_attnum)
		return a->key_attnum < b->key_attnum ? -1 : 1;
	return a->storage < b->storage ? -1 : a->storage > b->storage;
}

/* qsort comparator: by identity, then the most recently used first */
static int
compare_identity(const void *a, const void *b)
{
	const Resident *x = a;
	const Resident *y = b;
	int			c = compare_entries(&x->entry, &y->entry);

	return c != 0 ? c : x->last_use > y->last_use ? -1 : x->last_use < y->last_use;
}

/*
 * qsort comparator: the most recently used first; mirrors that were not used
 * follow in the order of the written list
 */
static int
compare_use(const void *a, const void *b)
{
	const Resident *x = a;
	const Resident *y = b;

	if (x->last_use != y->last_use)
		return x->last_use > y->last_use ? -1 : 1;
	if (x->rank != y->rank)
		return x->rank < y->rank ? -1 : 1;
	return compare_entries(&x->entry, &y->entry);
}

/* Position of a mirror in the written list; its length if it is not there */
static int
find_rank(const PrewarmEntry *entry)
{
	for (int i = 0; i < me.written.n; i++)
		if (compare_entries(entry, &me.written.entries[i]) == 0)
			return i;
	return me.written.n;
}

/*
 * Take the mirrors that are worth loading again from the engine's answer;
 * returns their number
 */
static int
take_residents(const GpuvecReply *reply, Resident *residents)
{
	int			n = 0;

	for (Size at = 0; at + sizeof(gpuvec_mirror_info) <= reply->length;
		 at += sizeof(gpuvec_mirror_info))
	{
		Resident   *resident = &residents[n];
		gpuvec_mirror_info info;

		memcpy(&info, reply->data + at, sizeof(info));
		if (info.state != GPUVEC_READY || info.key.private_id != 0)
			continue;
		resident->entry.database = info.key.database;
		resident->entry.relation = info.key.relation;
		resident->entry.attnum = info.key.attnum;
		resident->entry.index = info.key.index;
		resident->entry.key_attnum = info.key.key_attnum;
		resident->entry.storage = info.key.storage;
		resident->entry.bytes = info.device_bytes > 0 ? info.device_bytes : info.host_bytes;
		resident->last_use = info.searches > 0 ? info.last_use : 0;
		resident->rank = resident->last_use > 0 ? 0 : find_rank(&resident->entry);
		n++;
	}
	return n;
}

/*
 * Make the list of resident mirrors, each once: a table that was rewritten or
 * got an index may have two
 */
static void
make_list(const GpuvecReply *reply, PrewarmList *list)
{
	Size		capacity = reply->length / sizeof(gpuvec_mirror_info) + 1;
	Resident   *residents = palloc_array(Resident, capacity);
	int			n = take_residents(reply, residents);
	int			kept = 0;

	qsort(residents, n, sizeof(Resident), compare_identity);
	for (int i = 0; i < n; i++)
		if (kept == 0 || compare_entries(&residents[kept - 1].entry, &residents[i].entry) != 0)
			residents[kept++] = residents[i];
	qsort(residents, kept, sizeof(Resident), compare_use);

	list->entries = palloc0_array(PrewarmEntry, capacity);
	list->n = kept;
	for (int i = 0; i < kept; i++)
		list->entries[i] = residents[i].entry;
	pfree(residents);
}

static int
compare_entries_qsort(const void *a, const void *b)
{
	return compare_entries(a, b);
}

/* A copy of the entries, sorted by identity */
static PrewarmEntry *
sorted_entries(const PrewarmList *list)
{
	PrewarmEntry *copy = palloc_array(PrewarmEntry, list->n + 1);

	if (list->n > 0)
		memcpy(copy, list->entries, list->n * sizeof(PrewarmEntry));
	qsort(copy, list->n, sizeof(PrewarmEntry), compare_entries_qsort);
	return copy;
}

/* True if two lists name the same mirrors, in any order */
static bool
same_mirrors(const PrewarmList *a, const PrewarmList *b)
{
	PrewarmEntry *x;
	PrewarmEntry *y;
	bool		same = true;

	if (a->n != b->n)
		return false;
	x = sorted_entries(a);
	y = sorted_entries(b);
	for (int i = 0; i < a->n && same; i++)
		same = compare_entries(&x[i], &y[i]) == 0;
	pfree(x);
	pfree(y);
	return same;
}

/* True if two lists are equal, including order and sizes */
static bool
same_lists(const PrewarmList *a, const PrewarmList *b)
{
	for (int i = 0; i < Min(a->n, b->n); i++)
		if (compare_entries(&a->entries[i], &b->entries[i]) != 0 ||
			a->entries[i].bytes != b->entries[i].bytes)
			return false;
	return a->n == b->n;
}

/* Remember the list that the file holds */
static void
remember_list(const PrewarmList *list)
{
	if (me.written.entries != NULL)
		pfree(me.written.entries);
	me.written.entries = MemoryContextAllocZero(TopMemoryContext,
												mul_size(sizeof(PrewarmEntry), list->n + 1));
	if (list->n > 0)
		memcpy(me.written.entries, list->entries, list->n * sizeof(PrewarmEntry));
	me.written.n = list->n;
}

/* Write the list of resident mirrors, if it has changed */
static void
keep_list(void *arg)
{
	int64		now = gpuvec_clock_us();
	GpuvecReply reply;
	PrewarmList list;
	bool		running;

	if (!ask_engine(GPUVEC_MSG_LIST, GPUVEC_MSG_MIRRORS, 0, &reply))
		return;
	if (engine_number(&running) != me.served)
		return;
	make_list(&reply, &list);
	if (same_mirrors(&list, &me.written) &&
		(now < me.next_order || same_lists(&list, &me.written)))
		return;
	me.next_order = now + ORDER_MS * INT64CONST(1000);
	if (PrewarmWriteList(&list))
		remember_list(&list);
}

/*
 * True if the database exists and accepts connections.  A process without a
 * database can read shared catalogs, by scanning them.
 */
static bool
database_connectable(Oid database)
{
	Relation	rel = table_open(DatabaseRelationId, AccessShareLock);
	TableScanDesc scan = table_beginscan_catalog(rel, 0, NULL);
	HeapTuple	tuple;
	bool		found = false;

	while (!found && (tuple = heap_getnext(scan, ForwardScanDirection)) != NULL)
	{
		Form_pg_database form = (Form_pg_database) GETSTRUCT(tuple);

		/* a limit of -2: DROP DATABASE was interrupted */
		found = form->oid == database && form->datallowconn && form->datconnlimit != -2;
	}
	table_endscan(scan);
	table_close(rel, AccessShareLock);
	return found;
}

/*
 * True if a session can connect without waiting for a session that drops or
 * copies the database
 */
static bool
database_free(Oid database)
{
	LOCKTAG		tag;

	SET_LOCKTAG_OBJECT(tag, InvalidOid, DatabaseRelationId, database, 0);
	if (LockAcquire(&tag, RowExclusiveLock, false, true) == LOCKACQUIRE_NOT_AVAIL)
		return false;
	LockRelease(&tag, RowExclusiveLock, false);
	return true;
}

/* Does a database exist, and can a session connect to it at once? */
static void
check_database(Oid database, bool *exists, bool *is_free)
{
	MemoryContext context = CurrentMemoryContext;

	StartTransactionCommand();
	*is_free = database_free(database);
	/* if it is not free, its row may be about to be deleted */
	*exists = !*is_free || database_connectable(database);
	CommitTransactionCommand();
	MemoryContextSwitchTo(context);
}

/*
 * Start the worker that loads a database's mirrors, of the first `limit`
 * entries of the list
 */
static bool
start_worker(Oid database, int limit, BackgroundWorkerHandle **handle)
{
	BackgroundWorker worker;

	memset(&worker, 0, sizeof(worker));
	snprintf(worker.bgw_name, BGW_MAXLEN, "gpuvec autoprewarm worker");
	snprintf(worker.bgw_type, BGW_MAXLEN, "gpuvec autoprewarm worker");
	snprintf(worker.bgw_library_name, BGW_MAXLEN, "gpuvec");
	snprintf(worker.bgw_function_name, BGW_MAXLEN, "gpuvec_autoprewarm_load");
	worker.bgw_flags = BGWORKER_SHMEM_ACCESS | BGWORKER_BACKEND_DATABASE_CONNECTION;
	worker.bgw_start_time = BgWorkerStart_ConsistentState;
	worker.bgw_restart_time = BGW_NEVER_RESTART;
	worker.bgw_main_arg = ObjectIdGetDatum(database);
	memcpy(worker.bgw_extra, &limit, sizeof(limit));
	worker.bgw_notify_pid = MyProcPid;
	return RegisterDynamicBackgroundWorker(&worker, handle);
}

/*
 * Wait for the end of a worker.  False: it was ended before it was done,
 * since the database is to be dropped or copied, or the server stops.
 */
static bool
watch_worker(Oid database, BackgroundWorkerHandle *handle)
{
	bool		finished = true;
	pid_t		pid;

	while (!ShutdownRequestPending && GetBackgroundWorkerPid(handle, &pid) != BGWH_STOPPED)
	{
		bool		exists;
		bool		is_free;

		check_database(database, &exists, &is_free);
		if (!is_free)
		{
			finished = false;
			TerminateBackgroundWorker(handle);
		}
		nap(WATCH_MS);
	}
	if (ShutdownRequestPending)
		TerminateBackgroundWorker(handle);
	return finished && !ShutdownRequestPending;
}

/* Load the mirrors of one database, of the first `limit` entries */
static Outcome
load_database(Oid database, int limit)
{
	BackgroundWorkerHandle *handle;
	bool		exists;
	bool		is_free;
	bool		finished;

	check_database(database, &exists, &is_free);
	if (!exists)
		return OUTCOME_DONE;
	if (!is_free)
		return OUTCOME_LATER;
	if (!start_worker(database, limit, &handle))
	{
		if (!me.complained)
			ereport(LOG,
					(errcode(ERRCODE_INSUFFICIENT_RESOURCES),
					 errmsg("gpuvec autoprewarm waits for a free background worker"),
					 errhint("You may need to increase max_worker_processes.")));
		me.complained = true;
		return OUTCOME_FAILED;
	}
	me.complained = false;
	finished = watch_worker(database, handle);
	pfree(handle);
	return finished ? OUTCOME_DONE : OUTCOME_LATER;
}

/*
 * Number of entries from the first on that fit the engine's memory together
 */
static int
entries_that_fit(const PrewarmList *list, uint64 budget)
{
	uint64		bytes = 0;

	for (int i = 0; i < list->n; i++)
	{
		bytes += list->entries[i].bytes;
		if (bytes > budget)
		{
			ereport(LOG,
					(errmsg("gpuvec autoprewarm loads %d of %d mirrors, which fill the engine's memory",
							i, list->n)));
			return i;
		}
	}
	return list->n;
}

/* The databases of the first `limit` entries, each once */
static List *
listed_databases(const PrewarmList *list, int limit)
{
	List	   *databases = NIL;

	for (int i = 0; i < limit; i++)
		databases = list_append_unique_oid(databases, list->entries[i].database);
	return databases;
}

/*
 * Load the mirrors of all databases, one database after the other.  False:
 * the rest has to wait for the next round.
 */
static bool
load_databases(List *databases, int limit)
{
	while (databases != NIL)
	{
		List	   *later = NIL;
		ListCell   *cell;

		foreach(cell, databases)
		{
			Outcome		outcome = load_database(lfirst_oid(cell), limit);

			if (outcome == OUTCOME_FAILED || ShutdownRequestPending)
				return false;
			if (outcome == OUTCOME_LATER)
				later = lappend_oid(later, lfirst_oid(cell));
		}
		list_free(databases);
		databases = later;
		if (databases != NIL)
			nap(RETRY_MS);
	}
	return true;
}

/* Have the listed mirrors loaded into a new engine */
static void
serve_engine(void *arg)
{
	gpuvec_engine_info info;
	GpuvecReply reply;
	PrewarmList list;
	bool		running;
	bool		done = true;
	uint32		number;
	int			limit;

	/* the engine may not be ready yet */
	if (!ask_engine(GPUVEC_MSG_ENGINE, GPUVEC_MSG_ENGINE_INFO, sizeof(info), &reply))
		return;
	memcpy(&info, reply.data, sizeof(info));
	/* the worker reads the file: make sure that it holds this list */
	if (!PrewarmReadList(&list) && !PrewarmWriteList(&list))
		list.n = 0;
	remember_list(&list);
	limit = entries_that_fit(&list, info.memory_budget);
	if (limit > 0)
	{
		done = load_databases(listed_databases(&list, limit), limit);
		me.next_round = gpuvec_clock_us() + ROUND_MS * INT64CONST(1000);
	}
	if (!done)
		return;

	/*
	 * If the engine has died meanwhile, neither it nor its successor is
	 * served again.
	 */
	number = engine_number(&running);
	me.served = running ? number : number + 1;
}

/* Do what is to be done; returns the milliseconds until the next look */
static long
work(void)
{
	bool		running;
	uint32		number = engine_number(&running);
	bool		waits = false;

	if (running && number != me.served)
	{
		if (gpuvec_clock_us() >= me.next_round)
			(void) AutoprewarmTry(serve_engine, NULL, "gpuvec autoprewarm could not load mirrors");
		waits = number != me.served;
	}
	else if (running)
		(void) AutoprewarmTry(keep_list, NULL, "gpuvec autoprewarm could not list mirrors");
	return waits || !running ? WAIT_MS : LIST_MS;
}

/* Main function of the leader */
void
gpuvec_autoprewarm_main(Datum arg)
{
	MemoryContext context;

	pqsignal(SIGTERM, SignalHandlerForShutdownRequest);
	pqsignal(SIGHUP, SignalHandlerForConfigReload);
	BackgroundWorkerUnblockSignals();
	BackgroundWorkerInitializeConnection(NULL, NULL, 0);
	pgstat_report_appname("gpuvec autoprewarm leader");

	context = AllocSetContextCreate(TopMemoryContext, "gpuvec autoprewarm",
									ALLOCSET_DEFAULT_SIZES);
	while (!ShutdownRequestPending)
	{
		MemoryContextSwitchTo(context);
		MemoryContextReset(context);
		nap(work());
	}
	proc_exit(0);
}

/* Register the leader, so that it starts with the server */
void
AutoprewarmRegister(void)
{
	BackgroundWorker worker;

	memset(&worker, 0, sizeof(worker));
	snprintf(worker.bgw_name, BGW_MAXLEN, "gpuvec autoprewarm leader");
	snprintf(worker.bgw_type, BGW_MAXLEN, "gpuvec autoprewarm leader");
	snprintf(worker.bgw_library_name, BGW_MAXLEN, "gpuvec");
	snprintf(worker.bgw_function_name, BGW_MAXLEN, "gpuvec_autoprewarm_main");
	worker.bgw_flags = BGWORKER_SHMEM_ACCESS | BGWORKER_BACKEND_DATABASE_CONNECTION;
	worker.bgw_start_time = BgWorkerStart_ConsistentState;
	worker.bgw_restart_time = 60;
	RegisterBackgroundWorker(&worker);
}
