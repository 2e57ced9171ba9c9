/*-------------------------------------------------------------------------
 *
 * load_parallel.c
 *	  Reading the pages of a load, by one process or several.
 *
 * The readers of a large table are this process and parallel workers of PostgreSQL's, which
 * have its transaction, snapshot and user.  Each has a connection to the
 * engine of its own, joins the load by its number, and sends some of the
 * pages.  So nobody passes pages on for others, and the engine takes the
 * pages of each reader by a thread.  (With queues to this process, as
 * als_parallel.c has them, all pages would go through one connection, and one
 * thread of the engine would take all rows: each of the two takes about as
 * long as reading.)
 *
 * Why this is exact:
 *
 *	- The WAL position was read, then blocks were counted, before the first
 *	  worker is launched (load.c).  So every page is read behind the position.
 *	- Readers take ranges of blocks from a counter.  The engine publishes
 *	  nothing unless each block was sent, by whomever, and handed over.
 *	- What is dead to everyone is decided by each reader's own horizon.  This
 *	  process holds its snapshot until all have ended.
 *
 * Workers may be missing, or fail: there is none to be had, they find no
 * engine or no place in it, or somebody ends one.  A worker that has taken no
 * range is not missed.  Else the load is given up, and made anew without
 * workers.  Errors that a worker raises reach this process only at a point
 * where they end a (sub)transaction.  So all this is a subtransaction, and
 * errors that tell of workers and not of the table are dropped with it.
 *
 * There are no workers where they could not see what this process sees, or
 * where PostgreSQL has none: in a parallel query, under SERIALIZABLE, for
 * temporary tables and for tables that this transaction has made or altered
 * (these have private mirrors, if any); nor for entries of an index, which
 * are read by buckets, or embedding tables, whose rows the engine takes one
 * by one.
 *
 *-------------------------------------------------------------------------
 */
#include "gpuvec.h"

#include "access/parallel.h"
#include "access/table.h"
#include "access/xact.h"
#include "link/engine_link.h"
#include "mirror/load_parallel.h"
#include "mirror/page_reader.h"
#include "mirror/page_stream.h"
#include "mirror/scan_workers.h"
#include "miscadmin.h"
#include "utils/resowner.h"
#include "utils/snapmgr.h"

/*
 * Readers take ranges of so many blocks: a frame or two for the engine, and
 * little to wait for at the end
 */
#define RANGE_BLOCKS	64

/* Key of what workers find in shared memory */
#define KEY_TASK		UINT64CONST(1)

typedef struct LoadTask
{
	MirrorTarget target;		/* without its relations */
	Oid			relid;
	uint64		number;			/* of the load */
	BlockNumber nblocks;
	pg_atomic_uint64 next;		/* the first block that nobody has taken */
	pg_atomic_uint32 joined;	/* workers that may have taken ranges, ... */
	pg_atomic_uint32 left;		/* ... and those that have handed them over */
	pg_atomic_uint32 refused;	/* the engine has refused pages of a worker */
} LoadTask;

/* The last load with workers has failed, and none was published since */
static bool has_failed = false;

int
LoadWorkers(const MirrorTarget *target, Snapshot snapshot, BlockNumber nblocks)
{
	if (has_failed || target->mode != MIRROR_SHARED || target->key.index != 0 ||
		target->key_attnum != InvalidAttrNumber ||
		target->rel->rd_rel->relpersistence == RELPERSISTENCE_TEMP ||
		IsInParallelMode() || IsolationIsSerializable() || !IsUnderPostmaster ||
		!IsMVCCSnapshot(snapshot))
		return 0;
	return ScanWorkers(target->rel, nblocks);
}

void
LoadForgetFailure(void)
{
	has_failed = false;
}

/* ---- readers ---- */

/* Take the next range of blocks; false: none is left */
static bool
take_range(LoadTask *task, BlockNumber *begin, BlockNumber *end)
{
	uint64		next = pg_atomic_fetch_add_u64(&task->next, RANGE_BLOCKS);

	if (next >= task->nblocks)
		return false;
	*begin = (BlockNumber) next;
	*end = (BlockNumber) Min(next + RANGE_BLOCKS, task->nblocks);
	return true;
}

/* Read and send a range */
static bool
read_range(PageReader *reader, PageStream *stream, BlockNumber begin, BlockNumber end)
{
	for (BlockNumber block = begin; block < end; block++)
	{
		CHECK_FOR_INTERRUPTS();
		PageReaderRead(reader, block, &stream->out);
		if (!PageStreamSend(stream, false))
			return false;
		if (block == 0)
			GPUVEC_INJECTION("load-after-first-page");
	}
	return true;
}

/* Read and send ranges until none is left */
static bool
read_ranges(LoadTask *task, const MirrorTarget *target, Snapshot snapshot)
{
	PageReader *reader = PageReaderBegin(target, snapshot);
	PageStream	stream;
	BlockNumber begin;
	BlockNumber end;
	bool		ok = true;

	PageStreamBegin(&stream, NULL);
	while (ok && take_range(task, &begin, &end))
	{
		ok = read_range(reader, &stream, begin, end);
		if (IsParallelWorker())
			GPUVEC_INJECTION("load-worker-after-range");
	}
	ok = ok && PageStreamSend(&stream, true);
	PageReaderEnd(reader);
	pfree(stream.out.data);
	return ok;
}

/* ---- workers ---- */

/* Connect, and join the load; false: the others will do without us */
static bool
join_load(LoadTask *task)
{
	gpuvec_load_join join = {.key = task->target.key, .number = task->number};
	GpuvecPiece piece = {&join, sizeof(join)};
	GpuvecReply reply;
	gpuvec_state state;
	const char *reason;

	if (pg_atomic_read_u64(&task->next) >= task->nblocks ||
		GpuvecLinkOpen(false, &reason) != GPUVEC_LINK_READY ||
		!GpuvecLinkCall(GPUVEC_MSG_LOAD_JOIN, &piece, 1, GPUVEC_MSG_STATE, sizeof(state), &reply))
		return false;
	memcpy(&state, reply.data, sizeof(state));
	if (state.state != GPUVEC_LOADING)
		return false;
	GpuvecLinkExpectMore();
	return true;
}

/* Hand over what was sent */
static bool
leave_load(void)
{
	GpuvecReply reply;

	return GpuvecLinkCall(GPUVEC_MSG_LOAD_LEAVE, NULL, 0, GPUVEC_MSG_COUNT, sizeof(uint64), &reply);
}

extern PGDLLEXPORT void gpuvec_load_pages(dsm_segment *segment, shm_toc * toc);

/* Begin here in a worker */
void
gpuvec_load_pages(dsm_segment *segment, shm_toc * toc)
{
	LoadTask   *task = shm_toc_lookup(toc, KEY_TASK, false);
	MirrorTarget target = task->target;

	if (!join_load(task))
		return;
	pg_atomic_fetch_add_u32(&task->joined, 1);
	GPUVEC_INJECTION("load-worker-joined");
	target.rel = table_open(task->relid, AccessShareLock);
	if (read_ranges(task, &target, GetActiveSnapshot()) && leave_load())
		pg_atomic_fetch_add_u32(&task->left, 1);
	else if (GpuvecLinkRefusal() != NULL)
		pg_atomic_fetch_add_u32(&task->refused, 1);
	table_close(target.rel, AccessShareLock);
}

/* ---- the process that loads ---- */

bool
LoadAlone(const MirrorTarget *target, Snapshot snapshot, BlockNumber nblocks)
{
	LoadTask	task = {.nblocks = nblocks};

	pg_atomic_init_u64(&task.next, 0);
	return read_ranges(&task, target, snapshot);
}

/* Describe the task in shared memory */
static LoadTask *
put_task(ParallelContext * context, const MirrorTarget *target, BlockNumber nblocks, uint64 number)
{
	LoadTask   *task = shm_toc_allocate(context->toc, sizeof(LoadTask));

	memset(task, 0, sizeof(*task));
	task->target = *target;
	task->target.rel = task->target.index = NULL;
	task->relid = RelationGetRelid(target->rel);
	task->number = number;
	task->nblocks = nblocks;
	pg_atomic_init_u64(&task->next, 0);
	pg_atomic_init_u32(&task->joined, 0);
	pg_atomic_init_u32(&task->left, 0);
	pg_atomic_init_u32(&task->refused, 0);
	shm_toc_insert(context->toc, KEY_TASK, task);
	return task;
}

/*
 * True if all has been handed over.  If the engine has refused what a worker
 * sent, it will tell us why when we commit.
 */
static bool
is_complete(LoadTask *task)
{
	return pg_atomic_read_u32(&task->joined) == pg_atomic_read_u32(&task->left) ||
		pg_atomic_read_u32(&task->refused) > 0;
}

/* Launch workers, read, and wait for them; without any, read all */
static bool
read_together(const MirrorTarget *target, Snapshot snapshot, BlockNumber nblocks, uint64 number,
			  int nworkers)
{
	ParallelContext *context;
	LoadTask   *task;
	bool		ok;

	EnterParallelMode();
	PushActiveSnapshot(snapshot);
	context = CreateParallelContext("gpuvec", "gpuvec_load_pages", nworkers);
	shm_toc_estimate_chunk(&context->estimator, sizeof(LoadTask));
	shm_toc_estimate_keys(&context->estimator, 1);
	InitializeParallelDSM(context);
	task = put_task(context, target, nblocks, number);
	/* no shared memory: the context has no workers */
	if (context->nworkers > 0)
		LaunchParallelWorkers(context);
	elog(DEBUG1, "gpuvec: %d parallel workers load \"%s\"", context->nworkers_launched,
		 RelationGetRelationName(target->rel));
	GPUVEC_INJECTION("load-workers-launched");
	ok = read_ranges(task, target, snapshot);
	if (ok)
	{
		WaitForParallelWorkersToFinish(context);
		ok = is_complete(task);
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

bool
LoadParallel(const MirrorTarget *target, Snapshot snapshot, BlockNumber nblocks, uint64 number,
			 int nworkers)
{
	MemoryContext context = CurrentMemoryContext;
	ResourceOwner owner = CurrentResourceOwner;
	volatile bool ok = false;

	BeginInternalSubTransaction(NULL);
	MemoryContextSwitchTo(context);
	PG_TRY();
	{
		ok = read_together(target, snapshot, nblocks, number, nworkers);
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
	has_failed = !ok;
	return ok;
}
