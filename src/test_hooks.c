/*-------------------------------------------------------------------------
 *
 * test_hooks.c
 *	  Settings and functions for tests only.
 *
 *-------------------------------------------------------------------------
 */
#include "gpuvec.h"

#ifdef GPUVEC_TEST_HOOKS

#include <limits.h>

#include "access/heapam.h"
#include "access/tableam.h"
#include "access/transam.h"
#include "access/xact.h"
#include "catalog/pg_am_d.h"
#include "executor/spi.h"
#include "fmgr.h"
#include "miscadmin.h"
#include "storage/lock.h"
#include "storage/lwlock.h"
#include "utils/guc.h"
#include "utils/snapmgr.h"

int			gpuvec_freshness_choice = GPUVEC_FRESHNESS_AUTO;
int			gpuvec_shared_memory_choice = GPUVEC_SHARED_MEMORY_AUTO;
int			gpuvec_engine_patience = GPUVEC_ENGINE_PATIENCE_MS;
int			gpuvec_greeting_patience = GPUVEC_GREETING_PATIENCE_MS;
int			gpuvec_device_retry = GPUVEC_DEVICE_RETRY_MS;
bool		gpuvec_feeder = true;
int			gpuvec_feed_ring_bytes = 0;
int			gpuvec_feed_idle = GPUVEC_FEED_IDLE_MS;
int			gpuvec_refresh_patience = GPUVEC_REFRESH_PATIENCE_MS;
int			gpuvec_load_patience = GPUVEC_LOAD_PATIENCE_MS;
int			gpuvec_read_ahead_bytes = GPUVEC_READ_AHEAD_BYTES;
int			gpuvec_cpu_parts = 0;

static char *injection_point = NULL;
static char *at_commit = NULL;
static int	looks_left = 0;		/* 0: looks are not counted */

static const struct config_enum_entry freshness_options[] = {
	{"auto", GPUVEC_FRESHNESS_AUTO, false},
	{"wal", GPUVEC_FRESHNESS_WAL, false},
	{"sweep", GPUVEC_FRESHNESS_SWEEP, false},
	{NULL, 0, false}
};

static const struct config_enum_entry shared_memory_options[] = {
	{"auto", GPUVEC_SHARED_MEMORY_AUTO, false},
	{"full", GPUVEC_SHARED_MEMORY_FULL, false},
	{"unattached", GPUVEC_SHARED_MEMORY_UNATTACHED, false},
	{"old", GPUVEC_SHARED_MEMORY_OLD, false},
	{NULL, 0, false}
};

/* How long who waits for whom */
static void
define_times(void)
{
	DefineCustomIntVariable("gpuvec.engine_patience",
							"How long the engine may give no sign of life.",
							NULL,
							&gpuvec_engine_patience, GPUVEC_ENGINE_PATIENCE_MS, 1, INT_MAX,
							PGC_SIGHUP, GUC_UNIT_MS | GUC_NOT_IN_SAMPLE, NULL, NULL, NULL);

	DefineCustomIntVariable("gpuvec.greeting_patience",
							"How long a session waits for the greeting of an engine that is ready.",
							NULL,
							&gpuvec_greeting_patience, GPUVEC_GREETING_PATIENCE_MS, 1, INT_MAX,
							PGC_SUSET, GUC_UNIT_MS | GUC_NOT_IN_SAMPLE, NULL, NULL, NULL);

	DefineCustomIntVariable("gpuvec.device_retry",
							"When a device that failed is first tried again.",
							NULL,
							&gpuvec_device_retry, GPUVEC_DEVICE_RETRY_MS, 1, INT_MAX,
							PGC_SIGHUP, GUC_UNIT_MS | GUC_NOT_IN_SAMPLE, NULL, NULL, NULL);

	DefineCustomIntVariable("gpuvec.feed_idle",
							"How long a feed is not read before this session may give its slot to another index.",
							NULL,
							&gpuvec_feed_idle, GPUVEC_FEED_IDLE_MS, 0, INT_MAX,
							PGC_SUSET, GUC_UNIT_MS | GUC_NOT_IN_SAMPLE, NULL, NULL, NULL);

	DefineCustomIntVariable("gpuvec.refresh_patience",
							"How long a session waits for another one's refresh before it waits for the lock.",
							NULL,
							&gpuvec_refresh_patience, GPUVEC_REFRESH_PATIENCE_MS, 1, INT_MAX,
							PGC_SUSET, GUC_UNIT_MS | GUC_NOT_IN_SAMPLE, NULL, NULL, NULL);

	DefineCustomIntVariable("gpuvec.load_patience",
							"How long a load or refresh may make no step before another session takes it over.",
							NULL,
							&gpuvec_load_patience, GPUVEC_LOAD_PATIENCE_MS, 1, INT_MAX,
							PGC_SUSET, GUC_UNIT_MS | GUC_NOT_IN_SAMPLE, NULL, NULL, NULL);
}

/*
 * Run the statement of a test when a transaction is about to commit, as other
 * extensions may.  The first callback that is registered is called last.
 */
static void
run_at_commit(XactEvent event, void *arg)
{
	if (event != XACT_EVENT_PRE_COMMIT || at_commit[0] == '\0')
		return;
	PushActiveSnapshot(GetTransactionSnapshot());
	SPI_connect();
	SPI_execute(at_commit, false, 0);
	SPI_finish();
	PopActiveSnapshot();
}

void
GpuvecDefineTestSettings(void)
{
	define_times();
	RegisterXactCallback(run_at_commit, NULL);

	DefineCustomEnumVariable("gpuvec.freshness",
							 "How changes of tables are found out.",
							 NULL,
							 &gpuvec_freshness_choice, GPUVEC_FRESHNESS_AUTO, freshness_options,
							 PGC_SUSET, GUC_NOT_IN_SAMPLE, NULL, NULL, NULL);

	DefineCustomEnumVariable("gpuvec.shared_memory",
							 "What is wrong with the shared memory.",
							 NULL,
							 &gpuvec_shared_memory_choice, GPUVEC_SHARED_MEMORY_AUTO, shared_memory_options,
							 PGC_SUSET, GUC_NOT_IN_SAMPLE, NULL, NULL, NULL);

	DefineCustomStringVariable("gpuvec.injection_point",
							   "Name of the injection point at which this session waits for an advisory lock.",
							   NULL,
							   &injection_point, "",
							   PGC_SUSET, GUC_NOT_IN_SAMPLE, NULL, NULL, NULL);

	DefineCustomStringVariable("gpuvec.at_commit",
							   "A statement that transactions of this session run at last.",
							   NULL,
							   &at_commit, "",
							   PGC_SUSET, GUC_NOT_IN_SAMPLE, NULL, NULL, NULL);

	DefineCustomBoolVariable("gpuvec.feeder",
							 "Searches of this session start the feeder.",
							 NULL,
							 &gpuvec_feeder, true,
							 PGC_SUSET, GUC_NOT_IN_SAMPLE, NULL, NULL, NULL);

	DefineCustomIntVariable("gpuvec.feed_ring_bytes",
							"Bytes of the rings of feeds that this session begins.",
							NULL,
							&gpuvec_feed_ring_bytes, 0, 0, 1024 * 1024,
							PGC_SUSET, GUC_NOT_IN_SAMPLE, NULL, NULL, NULL);

	DefineCustomIntVariable("gpuvec.read_ahead_bytes",
							"Bytes of WAL from which on a refresh reads them ahead.",
							NULL,
							&gpuvec_read_ahead_bytes, GPUVEC_READ_AHEAD_BYTES, 1, INT_MAX,
							PGC_SUSET, GUC_NOT_IN_SAMPLE, NULL, NULL, NULL);

	DefineCustomIntVariable("gpuvec.cpu_parts",
							"Number of devices that the engine on the CPU pretends to be.",
							NULL,
							&gpuvec_cpu_parts, 0, 0, 64,
							PGC_SIGHUP, GUC_NOT_IN_SAMPLE, NULL, NULL, NULL);

	DefineCustomIntVariable("gpuvec.looks_left",
							"Looks of long loops until one cancels the statement.",
							"Each look takes one off; 0 means that none cancels it.",
							&looks_left, 0, 0, INT_MAX,
							PGC_SUSET, GUC_NOT_IN_SAMPLE, NULL, NULL, NULL);
}

/*
 * Cancel the statement if this is the look at which a test wants that, and
 * the server would do so
 */
void
GpuvecTestLook(void)
{
	if (looks_left == 0 || InterruptHoldoffCount != 0 || CritSectionCount != 0 ||
		--looks_left != 0)
		return;
	ereport(ERROR,
			(errcode(ERRCODE_QUERY_CANCELED),
			 errmsg("canceling statement at a look of a long loop")));
}

/*
 * The number that a list of names has for this one: 0, or what follows it
 * behind a slash; -1: the list, with spaces between names, does not have it
 */
static int
number_of_name(const char *list, const char *name)
{
	size_t		length;

	for (; *list != '\0'; list += strspn(list, " "))
	{
		length = strcspn(list, " /");
		if (strlen(name) == length && memcmp(list, name, length) == 0)
			return list[length] == '/' ? atoi(list + length + 1) : 0;
		list += strcspn(list, " ");
	}
	return -1;
}

/*
 * Wait for the test's advisory lock if gpuvec.injection_point has this name
 */
void
GpuvecInjection(const char *name)
{
	int			number = injection_point == NULL ? -1 : number_of_name(injection_point, name);
	LOCKTAG		tag;

	if (number < 0)
		return;
	SET_LOCKTAG_ADVISORY(tag, MyDatabaseId, GPUVEC_INJECTION_LOCK, number, 2);
	(void) LockAcquire(&tag, ShareLock, false, false);
	LockRelease(&tag, ShareLock, false);
}

PG_FUNCTION_INFO_V1(gpuvec_test_next_oid);

/* Make this OID the next to be assigned, as if OIDs had wrapped around */
Datum
gpuvec_test_next_oid(PG_FUNCTION_ARGS)
{
	LWLockAcquire(OidGenLock, LW_EXCLUSIVE);
	GpuvecTransam->nextOid = PG_GETARG_OID(0);
	GpuvecTransam->oidCount = 0;
	LWLockRelease(OidGenLock);
	PG_RETURN_VOID();
}

/* Fetch a row as heap does, and say so */
static bool
fetch_row_version(Relation rel, ItemPointer tid, Snapshot snapshot, TupleTableSlot *slot)
{
	ereport(NOTICE,
			(errmsg("row (%u,%u) is fetched by its access method",
					ItemPointerGetBlockNumber(tid), ItemPointerGetOffsetNumber(tid))));
	return GetHeapamTableAmRoutine()->tuple_fetch_row_version(rel, tid, snapshot, slot);
}

/* heap builds indexes of its own tables only, and a TOAST table has one */
static Oid
toast_method(Relation rel)
{
	return HEAP_TABLE_AM_OID;
}

PG_FUNCTION_INFO_V1(gpuvec_test_table_method);

/* A table access method that is not heap, though it does what heap does */
Datum
gpuvec_test_table_method(PG_FUNCTION_ARGS)
{
	static TableAmRoutine routine;

	routine = *GetHeapamTableAmRoutine();
	routine.tuple_fetch_row_version = fetch_row_version;
	routine.relation_toast_am = toast_method;
	PG_RETURN_POINTER(&routine);
}

#endif
