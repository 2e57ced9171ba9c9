/*-------------------------------------------------------------------------
 *
 * load_targets.c
 *	  Loading the mirrors of several small relations at the same time.
 *
 * A large relation is read by several processes (load_parallel.c).  Small
 * ones, as the partitions of a table may be, are not worth launching workers
 * for each.  So they are dealt out: each process loads the mirror of one
 * relation after another, by itself, as a search that needs it would.  What
 * makes that exact is said in load.c and refresh.c.
 *
 * Nothing depends on it.  Whatever mirror a worker has not loaded is loaded
 * by the search that needs it.
 *
 *-------------------------------------------------------------------------
 */
#include "gpuvec.h"

#include "access/genam.h"
#include "access/table.h"
#include "link/engine_link.h"
#include "mirror/describe/usage.h"
#include "mirror/fresh/load_parallel.h"
#include "mirror/fresh/load_targets.h"
#include "mirror/fresh/load_workers.h"
#include "mirror/fresh/refresh.h"
#include "mirror/pages/scan_workers.h"
#include "storage/bufmgr.h"
#include "utils/snapmgr.h"

/* A target as workers find it */
typedef struct SharedTarget
{
	MirrorTarget target;		/* without its relations */
	Oid			relid;
	Oid			index;			/* or InvalidOid */
} SharedTarget;

typedef struct TargetsTask
{
	uint32		n;
	pg_atomic_uint32 next;		/* the first that nobody has taken */
	pg_atomic_uint32 loads;		/* that workers have made */
	SharedTarget targets[FLEXIBLE_ARRAY_MEMBER];
} TargetsTask;

/* Targets in this process */
typedef struct TargetList
{
	MirrorTarget **targets;
	int			n;
	Snapshot	snapshot;
} TargetList;

/* Load a mirror; false: the engine is gone, or refuses */
static bool
load_target(MirrorTarget *target, Snapshot snapshot)
{
	gpuvec_freshness need = {.position = MirrorPosition()};
	gpuvec_state state;

	return MirrorEnsure(target, snapshot, &need, NULL, &state);
}

/* The next target; false: none is left */
static bool
take_target(TargetsTask *task, uint32 *number)
{
	*number = pg_atomic_fetch_add_u32(&task->next, 1);
	return *number < task->n;
}

/* Load a target that this process has not opened */
static bool
load_shared(const SharedTarget *shared)
{
	MirrorTarget target = shared->target;
	bool		ok;

	target.rel = table_open(shared->relid, AccessShareLock);
	if (OidIsValid(shared->index))
		target.index = index_open(shared->index, AccessShareLock);
	ok = load_target(&target, GetActiveSnapshot());
	if (target.index)
		index_close(target.index, AccessShareLock);
	table_close(target.rel, AccessShareLock);
	return ok;
}

extern PGDLLEXPORT void gpuvec_load_targets(dsm_segment *segment, shm_toc *toc);

/* Begin here in a worker */
void
gpuvec_load_targets(dsm_segment *segment, shm_toc *toc)
{
	TargetsTask *task = LoadJobTask(toc);
	const char *reason;
	uint32		number;

	if (GpuvecLinkOpen(false, &reason) != GPUVEC_LINK_READY)
		return;
	while (take_target(task, &number) && load_shared(&task->targets[number]))
		GPUVEC_INJECTION("load-worker-after-target");
	pg_atomic_fetch_add_u32(&task->loads, (uint32) MirrorUsed.loads);
}

static void
prepare(void *memory, void *arg)
{
	const TargetList *list = arg;
	TargetsTask *task = memory;

	task->n = list->n;
	pg_atomic_init_u32(&task->next, 0);
	pg_atomic_init_u32(&task->loads, 0);
	for (int i = 0; i < list->n; i++)
	{
		SharedTarget *shared = &task->targets[i];

		shared->target = *list->targets[i];
		shared->relid = RelationGetRelid(shared->target.rel);
		shared->index = shared->target.index ? RelationGetRelid(shared->target.index) : InvalidOid;
		shared->target.rel = shared->target.index = NULL;
	}
}

/* This process loads some of the targets, too */
static bool
work(void *memory, void *arg)
{
	const TargetList *list = arg;
	uint32		number;

	while (take_target(memory, &number) && load_target(list->targets[number], list->snapshot))
		 /* the next */ ;
	return true;
}

/* Whatever has been loaded is complete; count it as ours */
static bool
is_complete(void *memory)
{
	TargetsTask *task = memory;

	MirrorUsed.loads += pg_atomic_read_u32(&task->loads);
	return true;
}

/*
 * Keep those targets that are loaded by one process each, and that workers
 * may load; returns how many workers to launch
 */
static int
choose_targets(MirrorTarget *const *targets, int ntargets, TargetList *list)
{
	BlockNumber pages = 0;
	int			nworkers;

	list->n = 0;
	for (int i = 0; i < ntargets; i++)
	{
		BlockNumber nblocks;

		if (!LoadWorkersAllowed(targets[i], list->snapshot))
			continue;
		nblocks = RelationGetNumberOfBlocks(targets[i]->rel);
		if (LoadWorkers(targets[i], list->snapshot, nblocks) > 0)
			continue;
		list->targets[list->n++] = targets[i];
		pages += Min(nblocks, MaxBlockNumber - pages);
	}
	if (list->n < 2)
		return 0;
	nworkers = ScanWorkers(list->targets[0]->rel, pages);
	return Min(nworkers, list->n - 1);
}

void
LoadTargets(MirrorTarget *const *targets, int ntargets, Snapshot snapshot)
{
	TargetList	list = {.snapshot = snapshot};
	LoadJob		job = {
		.function = "gpuvec_load_targets", .prepare = prepare, .work = work,
		.complete = is_complete, .arg = &list, .what = "several relations"
	};

	if (ntargets < 2)
		return;
	list.targets = palloc_array(MirrorTarget *, ntargets);
	job.nworkers = choose_targets(targets, ntargets, &list);
	job.bytes = offsetof(TargetsTask, targets) + list.n * sizeof(SharedTarget);
	if (job.nworkers > 0)
		(void) LoadWithWorkers(&job, snapshot);
	pfree(list.targets);
}

/* True if the mirror is absent; *lost: the engine does not answer */
static bool
is_absent(const MirrorTarget *target, bool *lost)
{
	gpuvec_state state;

	if (target->mode != MIRROR_SHARED)
		return false;
	*lost = !MirrorState(&target->key, &state);
	return !*lost && state.state == GPUVEC_ABSENT;
}

void
LoadAbsentTargets(MirrorTarget *targets, int ntargets, Snapshot snapshot)
{
	MirrorTarget **absent;
	const char *reason;
	bool		lost = false;
	int			n = 0;

	if (ntargets < 2 || GpuvecLinkOpen(true, &reason) != GPUVEC_LINK_READY)
		return;
	absent = palloc_array(MirrorTarget *, ntargets);
	for (int i = 0; i < ntargets && !lost; i++)
		if (is_absent(&targets[i], &lost))
			absent[n++] = &targets[i];
	if (!lost)
		LoadTargets(absent, n, snapshot);
	pfree(absent);
}
