/*-------------------------------------------------------------------------
 *
 * load_parallel.c
 *	  Reading the pages of a load, by one process or several.
 *
 * The readers of a large table are this process and parallel workers
 * (load_workers.c).  Each has a connection to the engine of its own, joins
 * the load by its number, and sends some of the pages.  So nobody passes
 * pages on for others, and the engine takes the pages of each reader by a
 * thread.  (With queues to this process, as als_parallel.c has them, all
 * pages would go through one connection, and one thread of the engine would
 * take all rows: that takes longer than to read them.)
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
 * A worker that has taken no range is not missed.  If another one fails, the
 * load is given up, and made anew without workers.
 *
 * One process alone reads the entries of an index, which are read by buckets,
 * and embedding tables, whose rows the engine takes one by one.
 *
 *-------------------------------------------------------------------------
 */
#include "gpuvec.h"

#include "access/table.h"
#include "link/engine_link.h"
#include "mirror/describe/refreshing.h"
#include "mirror/fresh/load_parallel.h"
#include "mirror/fresh/load_workers.h"
#include "mirror/pages/page_reader.h"
#include "mirror/pages/page_stream.h"
#include "mirror/pages/scan_workers.h"
#include "miscadmin.h"
#include "utils/snapmgr.h"

/*
 * Readers take ranges of so many blocks: a frame or two for the engine, and
 * little to wait for at the end
 */
#define RANGE_BLOCKS	64

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

int
LoadWorkers(const MirrorTarget *target, Snapshot snapshot, BlockNumber nblocks)
{
	if (target->key.index != 0 || target->key_attnum != InvalidAttrNumber ||
		!LoadWorkersAllowed(target, snapshot))
		return 0;
	return ScanWorkers(target->rel, nblocks);
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
		RefreshingMove();
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

extern PGDLLEXPORT void gpuvec_load_pages(dsm_segment *segment, shm_toc *toc);

/* Begin here in a worker */
void
gpuvec_load_pages(dsm_segment *segment, shm_toc *toc)
{
	LoadTask   *task = LoadJobTask(toc);
	MirrorTarget target = task->target;

	if (!join_load(task))
		return;
	pg_atomic_fetch_add_u32(&task->joined, 1);
	GPUVEC_INJECTION("load-worker-joined");
	RefreshingHelp(&task->target.key);
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

/* What a job is made of */
typedef struct LoadArguments
{
	const MirrorTarget *target;
	Snapshot	snapshot;
	BlockNumber nblocks;
	uint64		number;
} LoadArguments;

/* Describe the task to workers */
static void
prepare(void *memory, void *arg)
{
	const LoadArguments *arguments = arg;
	LoadTask   *task = memory;

	task->target = *arguments->target;
	task->target.rel = task->target.index = NULL;
	task->relid = RelationGetRelid(arguments->target->rel);
	task->number = arguments->number;
	task->nblocks = arguments->nblocks;
	pg_atomic_init_u64(&task->next, 0);
	pg_atomic_init_u32(&task->joined, 0);
	pg_atomic_init_u32(&task->left, 0);
	pg_atomic_init_u32(&task->refused, 0);
}

static bool
work(void *task, void *arg)
{
	const LoadArguments *arguments = arg;

	return read_ranges(task, arguments->target, arguments->snapshot);
}

/*
 * True if all has been handed over.  If the engine has refused what a worker
 * sent, it will tell us why when we commit.
 */
static bool
is_complete(void *memory)
{
	LoadTask   *task = memory;

	return pg_atomic_read_u32(&task->joined) == pg_atomic_read_u32(&task->left) ||
		pg_atomic_read_u32(&task->refused) > 0;
}

bool
LoadParallel(const MirrorTarget *target, Snapshot snapshot, BlockNumber nblocks, uint64 number,
			 int nworkers)
{
	LoadArguments arguments = {
		.target = target, .snapshot = snapshot, .nblocks = nblocks, .number = number
	};
	LoadJob		job = {
		.function = "gpuvec_load_pages", .nworkers = nworkers, .bytes = sizeof(LoadTask),
		.prepare = prepare, .work = work, .complete = is_complete, .arg = &arguments,
		.what = RelationGetRelationName(target->rel)
	};

	return LoadWithWorkers(&job, snapshot);
}
