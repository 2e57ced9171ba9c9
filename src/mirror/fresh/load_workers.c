/*-------------------------------------------------------------------------
 *
 * load_workers.c
 *	  Parallel workers that help to load mirrors.
 *
 * They are PostgreSQL's, with the transaction, snapshot and user of this
 * process.  There are none where they could not see what this process sees,
 * or where PostgreSQL has none: in a parallel query, under SERIALIZABLE, for
 * temporary tables and for tables that this transaction has made or altered
 * (these have private mirrors, if any).
 *
 * Workers may be missing, or fail: there is none to be had, they find no
 * engine or no place in it, or somebody ends one.  Then the load is made
 * without them.  Errors of a worker reach this process only at a point where
 * they end a (sub)transaction.  So the job is a subtransaction, and errors
 * that tell of workers and not of the table are dropped with it.
 *
 *-------------------------------------------------------------------------
 */
#include "gpuvec.h"

#include "access/xact.h"
#include "link/engine_link.h"
#include "link/quiet.h"
#include "mirror/fresh/load_workers.h"
#include "miscadmin.h"
#include "utils/resowner.h"
#include "utils/snapmgr.h"

/* Key of what workers find in shared memory */
#define KEY_TASK		UINT64CONST(1)

/* The last job has failed, and no load was published since */
static bool has_failed = false;

bool
LoadWorkersAllowed(const MirrorTarget *target, Snapshot snapshot)
{
	return !has_failed && target->mode == MIRROR_SHARED &&
		target->rel->rd_rel->relpersistence != RELPERSISTENCE_TEMP &&
		!IsInParallelMode() && !IsolationIsSerializable() && IsUnderPostmaster &&
		IsMVCCSnapshot(snapshot);
}

void
LoadForgetFailure(void)
{
	has_failed = false;
}

void *
LoadJobTask(shm_toc *toc)
{
	return shm_toc_lookup(toc, KEY_TASK, false);
}

/* Launch workers, work, and wait for them; without any, do all the work */
static bool
run_job(const LoadJob *job, Snapshot snapshot)
{
	ParallelContext *context;
	void	   *task;
	bool		ok;

	EnterParallelMode();
	PushActiveSnapshot(snapshot);
	context = CreateParallelContext("gpuvec", job->function, job->nworkers);
	shm_toc_estimate_chunk(&context->estimator, job->bytes);
	shm_toc_estimate_keys(&context->estimator, 1);
	InitializeParallelDSM(context);
	task = shm_toc_allocate(context->toc, job->bytes);
	memset(task, 0, job->bytes);
	job->prepare(task, job->arg);
	shm_toc_insert(context->toc, KEY_TASK, task);
	/* no shared memory: the context has no workers */
	if (context->nworkers > 0)
		LaunchParallelWorkers(context);
	elog(DEBUG1, "gpuvec: %d parallel workers load %s", context->nworkers_launched, job->what);
	GPUVEC_INJECTION("load-workers-launched");
	ok = job->work(task, job->arg);
	if (ok)
	{
		WaitForParallelWorkersToFinish(context);
		ok = job->complete(task);
	}
	/* ends workers that still read */
	DestroyParallelContext(context);
	PopActiveSnapshot();
	ExitParallelMode();
	return ok;
}

/*
 * True if an error tells of workers only: one was ended or did not start, or
 * what they need is lacking.  All others would come without them, too.
 */
static bool
is_of_workers(int sqlerrcode)
{
	return sqlerrcode == ERRCODE_ADMIN_SHUTDOWN ||
		sqlerrcode == ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE ||
		ERRCODE_TO_CATEGORY(sqlerrcode) == ERRCODE_INSUFFICIENT_RESOURCES;
}

/* Undo what an error has cut off; raises the error if it is not of workers */
static void
undo(MemoryContext context, ResourceOwner owner)
{
	ErrorData  *error;

	MemoryContextSwitchTo(context);
	error = CopyErrorData();
	FlushErrorState();
	RollbackAndReleaseCurrentSubTransaction();
	MemoryContextSwitchTo(context);
	CurrentResourceOwner = owner;
	if (!is_of_workers(error->sqlerrcode))
		ReThrowError(error);
	ereport(DEBUG1,
			(errmsg_internal("gpuvec: parallel workers failed to load: %s", error->message)));
	FreeErrorData(error);
	GpuvecLinkClose();
}

/* What run_in_subtransaction() is called with */
typedef struct Running
{
	const LoadJob *job;
	Snapshot	snapshot;
} Running;

static bool
run_in_subtransaction(void *arg)
{
	const Running *running = arg;
	MemoryContext context = CurrentMemoryContext;
	ResourceOwner owner = CurrentResourceOwner;
	volatile bool ok = false;

	BeginInternalSubTransaction(NULL);
	MemoryContextSwitchTo(context);
	PG_TRY();
	{
		ok = run_job(running->job, running->snapshot);
		ReleaseCurrentSubTransaction();
		MemoryContextSwitchTo(context);
		CurrentResourceOwner = owner;
	}
	PG_CATCH();
	{
		undo(context, owner);
		ok = false;
	}
	PG_END_TRY();
	return ok;
}

/*
 * Workers hold locks of mirrors, or this process does.  They wait for this
 * process if it does not take their messages.
 */
bool
LoadWithWorkers(const LoadJob *job, Snapshot snapshot)
{
	Running		running = {job, snapshot};
	bool		ok;

	ok = GpuvecQuietly(run_in_subtransaction, NULL, &running);
	has_failed = !ok;
	return ok;
}
