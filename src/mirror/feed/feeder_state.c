/*-------------------------------------------------------------------------
 *
 * feeder_state.c
 *	  Starts and wakes the feeder; what it tells sessions.
 *
 * The first search that uses a feed starts the feeder (feeder.c), and so does
 * the next search after it has ended.  Of several sessions one does.  Nobody
 * waits for it: searches apply rows themselves if there is no feeder.  If no
 * worker slot is free, or a feeder ended with an error or did not begin, none
 * is tried for REST_MS.  None is tried before the supervisor runs, either: if
 * only one worker slot is free, the supervisor needs it more.
 *
 * A feeder that has had nothing to do for a while sleeps on its latch.  It
 * first sets the flag `asleep`, and then looks at all feeds once more.  A
 * writer first appends to the feed, and then looks at the flag.  There is a
 * barrier between both steps on both sides.  So either the feeder sees the
 * record or the writer sees the flag.  The writer that clears the flag sets
 * the latch.
 *
 * The latch belongs to a process slot of the server, which outlives the
 * feeder.  If another process has it by then, it wakes up for nothing.
 *
 *-------------------------------------------------------------------------
 */
#include "gpuvec.h"

#include "core/clock.h"
#include "link/shared.h"
#include "mirror/feed/feed.h"
#include "mirror/feed/feeder_state.h"
#include "miscadmin.h"
#include "port/atomics.h"
#include "postmaster/bgworker.h"
#include "storage/latch.h"
#include "storage/spin.h"

/* Do not try to start another feeder for this long after a failure */
#define REST_MS			60000

/* How exactly the time of the last search is known */
#define USE_MS			10000

/* Since when records of a slot wait, as far as the feeder has seen */
typedef struct Oldest
{
	uint64		feed;
	int64		since;			/* 0: none waits */
} Oldest;

/* The feeder, in shared memory; all times are of gpuvec_clock_us() */
typedef struct FeederState
{
	slock_t		mutex;			/* protects all but asleep and used */
	int			pid;			/* 0: none runs */
	Latch	   *latch;			/* its latch; NULL: none runs */
	bool		works;			/* the engine answered its last request */
	int64		tried;			/* when a feeder was started that has not
								 * arrived, or ended with an error; or 0 */
	Oldest		oldest[FEED_SLOTS];
	int64		used;			/* about when a search last used a feed; read
								 * and written without a lock */
	pg_atomic_uint32 asleep;	/* 1: it has to be woken */
} FeederState;

/* Initialize the state */
static void
init_feeder(void *area)
{
	FeederState *feeder = area;

	SpinLockInit(&feeder->mutex);
	pg_atomic_init_u32(&feeder->asleep, 0);
}

static GpuvecSharedArea feeder_area = {.size = sizeof(FeederState), .init = init_feeder};

void
FeederInit(void)
{
	GpuvecSharedAsk(&feeder_area);
}

/* The state; NULL: there is no shared memory */
static FeederState *
feeder_state(void)
{
	return GpuvecSharedFind(GpuvecSharedState(), &feeder_area);
}

void
FeederWake(void)
{
	FeederState *feeder = feeder_state();
	Latch	   *latch;

	if (feeder == NULL)
		return;
	pg_memory_barrier();
	if (pg_atomic_read_u32(&feeder->asleep) == 0 ||
		pg_atomic_exchange_u32(&feeder->asleep, 0) == 0)
		return;
	SpinLockAcquire(&feeder->mutex);
	latch = feeder->latch;
	SpinLockRelease(&feeder->mutex);
	if (latch != NULL)
		SetLatch(latch);
}

bool
FeederRuns(void)
{
	FeederState *feeder = feeder_state();

	/* single words, read without a lock: they may be out of date */
	return feeder != NULL && feeder->pid != 0 && feeder->works;
}

/* True if a supervisor runs */
static bool
supervisor_runs(void)
{
	GpuvecShared *state = GpuvecSharedState();
	bool		runs;

	SpinLockAcquire(&state->mutex);
	runs = state->supervisor_pid != 0;
	SpinLockRelease(&state->mutex);
	return runs;
}

/*
 * True if this session may start the feeder; no other session may then
 */
static bool
claim_start(FeederState *feeder)
{
	int64		now = gpuvec_clock_us();
	bool		mine;

	SpinLockAcquire(&feeder->mutex);
	mine = feeder->pid == 0 &&
		(feeder->tried == 0 || now - feeder->tried > REST_MS * INT64CONST(1000));
	if (mine)
		feeder->tried = now;
	SpinLockRelease(&feeder->mutex);
	return mine;
}

/* Have the postmaster start the feeder */
static void
register_feeder(void)
{
	BackgroundWorker worker;

	memset(&worker, 0, sizeof(worker));
	snprintf(worker.bgw_name, BGW_MAXLEN, "gpuvec feeder");
	snprintf(worker.bgw_type, BGW_MAXLEN, "gpuvec feeder");
	snprintf(worker.bgw_library_name, BGW_MAXLEN, "gpuvec");
	snprintf(worker.bgw_function_name, BGW_MAXLEN, "gpuvec_feeder_main");
	worker.bgw_flags = BGWORKER_SHMEM_ACCESS | BGWORKER_BACKEND_DATABASE_CONNECTION;
	worker.bgw_start_time = BgWorkerStart_RecoveryFinished;
	worker.bgw_restart_time = BGW_NEVER_RESTART;
	if (!RegisterDynamicBackgroundWorker(&worker, NULL))
		ereport(DEBUG1,
				(errmsg_internal("no background worker slot is free for the gpuvec feeder")));
}

void
FeederStart(void)
{
	FeederState *feeder = feeder_state();
	int64		now = gpuvec_clock_coarse_us();

	if (feeder == NULL || !gpuvec_feeder || !IsUnderPostmaster || IsBinaryUpgrade)
		return;
	if (now - feeder->used > USE_MS * INT64CONST(1000))
		feeder->used = now;
	/* a single word, read without a lock: it may be out of date */
	if (feeder->pid == 0 && supervisor_runs() && claim_start(feeder))
		register_feeder();
}

int64
FeederLastUse(void)
{
	return feeder_state()->used;
}

/*
 * Become the feeder.  False: there is one, or there is no shared memory.
 */
bool
FeederArrive(void)
{
	FeederState *feeder = feeder_state();
	bool		mine;

	if (feeder == NULL)
		return false;
	SpinLockAcquire(&feeder->mutex);
	mine = feeder->pid == 0;
	if (mine)
	{
		feeder->pid = MyProcPid;
		feeder->latch = MyLatch;
		feeder->works = true;
		feeder->tried = 0;
	}
	SpinLockRelease(&feeder->mutex);
	return mine;
}

/* The feeder ends.  If it failed, the next one is not started at once. */
void
FeederLeave(bool failed)
{
	FeederState *feeder = feeder_state();
	int64		now = gpuvec_clock_us();

	pg_atomic_write_u32(&feeder->asleep, 0);
	SpinLockAcquire(&feeder->mutex);
	feeder->pid = 0;
	feeder->latch = NULL;
	feeder->works = false;
	feeder->tried = failed ? now : 0;
	memset(feeder->oldest, 0, sizeof(feeder->oldest));
	SpinLockRelease(&feeder->mutex);
}

/* From here on, writers wake the feeder, or (false) they do not */
void
FeederNoteAsleep(bool asleep)
{
	pg_atomic_write_u32(&feeder_state()->asleep, asleep);
	pg_memory_barrier();
}

void
FeederNoteWorks(bool works)
{
	/* only the feeder writes it */
	feeder_state()->works = works;
}

void
FeederNoteOldest(int slot, uint64 feed, int64 since)
{
	FeederState *feeder = feeder_state();

	SpinLockAcquire(&feeder->mutex);
	feeder->oldest[slot].feed = feed;
	feeder->oldest[slot].since = since;
	SpinLockRelease(&feeder->mutex);
}

bool
FeederOldest(int slot, uint64 feed, int64 *since)
{
	FeederState *feeder = feeder_state();
	Oldest		oldest;

	if (feeder == NULL)
		return false;
	SpinLockAcquire(&feeder->mutex);
	oldest = feeder->oldest[slot];
	SpinLockRelease(&feeder->mutex);
	*since = oldest.since;
	return oldest.feed == feed && oldest.since != 0;
}
