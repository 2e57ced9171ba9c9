/*-------------------------------------------------------------------------
 *
 * als_parallel.c
 *	  Interactions of a table, read by parallel workers.
 *
 * The workers are those of PostgreSQL, with the transaction, the snapshot and
 * the role of the session.  They share a scan of the table, convert rows, and
 * send chunks of interactions through queues.  The session passes the chunks
 * on to the engine.  So the session's connection is the only one that takes
 * chunk, and the workers need not know the engine.
 *
 * This is for plans that scan the table, or find a large part of its rows by
 * an index.  The plan was made and started before, so rights have been
 * checked, and it leaves out no rows but those of other users (there is no
 * view, no policy, no child table).
 *
 * As many workers take part as would in a parallel scan of the table: what
 * max_parallel_workers_per_gather and the table's parallel_workers allow.
 * Without any, the session reads the table itself.
 *
 *-------------------------------------------------------------------------
 */
#include "gpuvec.h"

#include <math.h>

#include "access/parallel.h"
#include "access/relscan.h"
#include "access/table.h"
#include "access/tableam.h"
#include "access/xact.h"
#include "catalog/pg_class.h"
#include "core/key_hash.h"
#include "executor/executor.h"
#include "link/wait_events.h"
#include "mirror/pages/scan_workers.h"
#include "miscadmin.h"
#include "optimizer/cost.h"
#include "parser/parsetree.h"
#include "pgstat.h"
#include "recommend/als_interactions.h"
#include "storage/bufmgr.h"
#include "storage/proc.h"
#include "storage/shm_mq.h"
#include "utils/array.h"
#include "utils/lsyscache.h"
#include "utils/memutils.h"
#include "utils/rel.h"
#include "utils/rls.h"
#include "utils/snapmgr.h"

/*
 * Bytes of a worker's queue: two chunks, so that it need not wait.  Their ring
 * has room for just these, each behind its length.  So none of them is cut
 * at its end, and we read them where they are.
 */
#define QUEUE_BYTES		(shm_mq_minimum_size - MAXIMUM_ALIGNOF + \
						 2 * (MAXALIGN(sizeof(Size)) + MAXALIGN(sizeof(AlsInteractionChunk))))

/* Rows of a scan that take as long as a row found by an index */
#define INDEX_ROW_COST	3.0

/* Rows after which memory for the conversion of values is freed */
#define ROWS_PER_RESET	1024

/* Keys of what workers find in shared memory */
#define KEY_TASK		UINT64CONST(1)
#define KEY_SCAN		UINT64CONST(2)
#define KEY_USERS		UINT64CONST(3)
#define KEY_QUEUES		UINT64CONST(4)

/* What a worker has to do */
typedef struct ReadTask
{
	Oid			relid;
	AttrNumber	attnums[3];		/* of user, item, weight; the last may be 0 */
	Oid			types[3];
	double		alpha;
	uint64		nusers;			/* slots of the users' hash table, a power of
								 * two; 0: all users */
	pg_atomic_uint64 rows;		/* that had keys and a weight */
} ReadTask;

/* A slot of the users' hash table, with open addressing */
typedef struct UserSlot
{
	int64		key;
	bool		used;
} UserSlot;

/* True if the table's scan would have all its rows, whoever reads it */
static bool
all_rows_are_seen(Relation rel)
{
	TupleDesc	desc = RelationGetDescr(rel);

	if (rel->rd_rel->relkind != RELKIND_RELATION || rel->rd_rel->relhassubclass ||
		rel->rd_rel->relpersistence == RELPERSISTENCE_TEMP ||
		check_enable_rls(RelationGetRelid(rel), InvalidOid, true) == RLS_ENABLED)
		return false;
	/* columns that are computed when they are read */
	for (int i = 0; i < desc->natts; i++)
		if (TupleDescAttr(desc, i)->attgenerated == 'v')
			return false;
	return rel->rd_tableam->parallelscan_estimate != NULL;
}

/* How many workers a scan of a table should have */
static int
choose_workers(Relation rel)
{
	return ScanWorkers(rel, RelationGetNumberOfBlocks(rel));
}

/*
 * True if workers that scan all of the table are likely to be sooner than a
 * plan that scans it, or finds `times` as many of its rows by an index as
 * this one
 */
static bool
workers_pay(Relation rel, const Plan *plan, double times)
{
	double		rows = Max(rel->rd_rel->reltuples, 1);

	return IsA(plan, SeqScan) ||
		plan->plan_rows * times * INDEX_ROW_COST * (choose_workers(rel) + 1) >= rows;
}

bool
AlsOnlyScans(Portal portal, Oid relid, double times)
{
	PlannedStmt *stmt = list_length(portal->stmts) == 1 ? linitial_node(PlannedStmt, portal->stmts) : NULL;
	Plan	   *plan;
	Relation	rel;
	bool		fits;

	if (stmt == NULL || stmt->commandType != CMD_SELECT || stmt->subplans != NIL ||
		IsInParallelMode() || max_parallel_workers_per_gather == 0)
		return false;
	plan = stmt->planTree;
	if (!IsA(plan, SeqScan) && !IsA(plan, IndexScan) && !IsA(plan, IndexOnlyScan) &&
		!IsA(plan, BitmapHeapScan))
		return false;
	if (rt_fetch(((Scan *) plan)->scanrelid, stmt->rtable)->relid != relid)
		return false;
	rel = table_open(relid, AccessShareLock);
	fits = all_rows_are_seen(rel) && workers_pay(rel, plan, times);
	table_close(rel, AccessShareLock);
	return fits;
}

/* ---- users ---- */

/* Slots of a hash table of n keys */
static uint64
user_slots(int n)
{
	uint64		slots = 16;

	while (slots < 2 * (uint64) n)
		slots *= 2;
	return slots;
}

/* The slot of a key, or the one where it belongs */
static UserSlot *
find_user(UserSlot *slots, uint64 nslots, int64 key)
{
	uint64		i = gpuvec_hash_key(key) & (nslots - 1);

	while (slots[i].used && slots[i].key != key)
		i = (i + 1) & (nslots - 1);
	return &slots[i];
}

/* Fill the hash table with the elements of an int8[]; nulls are left out */
static void
fill_users(UserSlot *slots, uint64 nslots, ArrayType *array)
{
	int			n = ArrayGetNItems(ARR_NDIM(array), ARR_DIMS(array));
	uint8	   *bitmap = ARR_NULLBITMAP(array);
	const int64 *keys = (const int64 *) ARR_DATA_PTR(array);

	memset(slots, 0, nslots * sizeof(UserSlot));
	for (int i = 0; i < n; i++)
	{
		UserSlot   *slot;

		CHECK_FOR_INTERRUPTS();
		if (bitmap && (bitmap[i / 8] & (1 << i % 8)) == 0)
			continue;
		slot = find_user(slots, nslots, *keys);
		slot->key = *keys++;
		slot->used = true;
	}
}

/* ---- workers ---- */

/* A worker, and the chunk that it fills */
typedef struct ReadWorker
{
	ReadTask   *task;
	UserSlot   *users;
	shm_mq_handle *queue;
	AlsInteractionChunk *chunk;
	uint64		rows;			/* that had keys and a weight */
} ReadWorker;

/* Send a chunk; false if the session does not listen any more */
static bool
send_chunk(ReadWorker *worker)
{
	shm_mq_result result = SHM_MQ_SUCCESS;

	if (worker->chunk->n > 0)
		result = GpuvecShmMqSend(worker->queue, sizeof(AlsInteractionChunk), worker->chunk);
	worker->chunk->n = 0;
	return result == SHM_MQ_SUCCESS;
}

/* Take a row; false if the session does not listen any more */
static bool
take_row(ReadWorker *worker, TupleTableSlot *slot)
{
	const ReadTask *task = worker->task;
	Datum		values[3];
	int64		user;

	for (int i = 0; i < 3 && task->attnums[i] != 0; i++)
	{
		bool		isnull;

		values[i] = slot_getattr(slot, task->attnums[i], &isnull);
		if (isnull)
			return true;
	}
	user = MirrorKey(values[0], task->types[0]);
	if (worker->users && !find_user(worker->users, task->nusers, user)->used)
		return true;
	worker->rows++;
	return !AlsTakeInteraction(worker->chunk, task->types, task->alpha, user, values[1],
							   task->attnums[2] != 0 ? &values[2] : NULL) ||
		send_chunk(worker);
}

/* Scan a share of the table */
static void
scan_table(ReadWorker *worker, Relation rel, ParallelTableScanDesc shared)
{
	TableScanDesc scan = GpuvecBeginScanParallel(rel, shared);
	TupleTableSlot *slot = table_slot_create(rel, NULL);
	MemoryContext context = AllocSetContextCreate(CurrentMemoryContext, "gpuvec interaction",
												  ALLOCSET_SMALL_SIZES);
	MemoryContext old = MemoryContextSwitchTo(context);
	uint32		since_reset = 0;

	while (table_scan_getnextslot(scan, ForwardScanDirection, slot) && take_row(worker, slot))
	{
		CHECK_FOR_INTERRUPTS();
		/* numbers may have been converted */
		if (++since_reset % ROWS_PER_RESET == 0)
			MemoryContextReset(context);
	}
	MemoryContextSwitchTo(old);
	MemoryContextDelete(context);
	(void) send_chunk(worker);
	pg_atomic_fetch_add_u64(&worker->task->rows, worker->rows);
	ExecDropSingleTupleTableSlot(slot);
	table_endscan(scan);
}

extern PGDLLEXPORT void gpuvec_read_interactions(dsm_segment *segment, shm_toc *toc);

/* Begin here in a worker */
void
gpuvec_read_interactions(dsm_segment *segment, shm_toc *toc)
{
	ReadWorker	worker = {.task = shm_toc_lookup(toc, KEY_TASK, false)};
	char	   *queues = shm_toc_lookup(toc, KEY_QUEUES, false);
	shm_mq	   *queue = (shm_mq *) (queues + ParallelWorkerNumber * QUEUE_BYTES);
	Relation	rel;

	if (worker.task->nusers > 0)
		worker.users = shm_toc_lookup(toc, KEY_USERS, false);
	shm_mq_set_sender(queue, MyProc);
	worker.queue = shm_mq_attach(queue, segment, NULL);
	worker.chunk = palloc(sizeof(AlsInteractionChunk));
	worker.chunk->n = 0;
	rel = table_open(worker.task->relid, AccessShareLock);
	scan_table(&worker, rel, shm_toc_lookup(toc, KEY_SCAN, false));
	table_close(rel, AccessShareLock);
	shm_mq_detach(worker.queue);
}

/* ---- the session ---- */

/* Take the chunks that have come to a queue; false: there will be no more */
static bool
take_chunks(AlsTakeChunk *take, void *arg, shm_mq_handle *queue, bool *some)
{
	for (;;)
	{
		const AlsInteractionChunk *chunk;
		Size		size;
		void	   *data;
		shm_mq_result result = shm_mq_receive(queue, &size, &data, true);

		if (result != SHM_MQ_SUCCESS)
			return result == SHM_MQ_WOULD_BLOCK;
		chunk = data;
		take(arg, chunk->n, chunk->users, chunk->items, chunk->weights);
		*some = true;
	}
}

/* Pass on the chunks of all workers, until the last one has ended */
static void
pass_chunks_on(AlsTakeChunk *take, void *arg, shm_mq_handle **queues, int n)
{
	while (n > 0)
	{
		bool		some = false;

		CHECK_FOR_INTERRUPTS();
		for (int i = 0; i < n;)
		{
			if (take_chunks(take, arg, queues[i], &some))
				i++;
			else
				queues[i] = queues[--n];
		}
		if (n > 0 && !some)
		{
			(void) WaitLatch(MyLatch, WL_LATCH_SET | WL_EXIT_ON_PM_DEATH, -1, GpuvecWaitEvent(GPUVEC_WAIT_WORKERS));
			ResetLatch(MyLatch);
		}
	}
}

/* Describe the task in shared memory */
static void
put_task(ParallelContext *context, Relation rel, const AlsInteractions *interactions,
		 double alpha, uint64 nusers)
{
	ReadTask   *task = shm_toc_allocate(context->toc, sizeof(ReadTask));

	memset(task, 0, sizeof(*task));
	task->relid = RelationGetRelid(rel);
	memcpy(task->attnums, interactions->attnums, sizeof(task->attnums));
	memcpy(task->types, interactions->types, sizeof(task->types));
	task->alpha = alpha;
	task->nusers = nusers;
	pg_atomic_init_u64(&task->rows, 0);
	shm_toc_insert(context->toc, KEY_TASK, task);
}

/* Make the parallel context, with all that workers find in shared memory */
static ParallelContext *
make_context(Relation rel, int nworkers, const AlsInteractions *interactions, ArrayType *users,
			 double alpha)
{
	ParallelContext *context = CreateParallelContext("gpuvec", "gpuvec_read_interactions", nworkers);
	uint64		nusers = users ? user_slots(ArrayGetNItems(ARR_NDIM(users), ARR_DIMS(users))) : 0;
	Size		scan_size = table_parallelscan_estimate(rel, GetActiveSnapshot());
	ParallelTableScanDesc scan;
	char	   *queues;

	shm_toc_estimate_chunk(&context->estimator, sizeof(ReadTask));
	shm_toc_estimate_chunk(&context->estimator, scan_size);
	shm_toc_estimate_chunk(&context->estimator, nusers * sizeof(UserSlot));
	shm_toc_estimate_chunk(&context->estimator, nworkers * QUEUE_BYTES);
	shm_toc_estimate_keys(&context->estimator, 4);
	InitializeParallelDSM(context);
	put_task(context, rel, interactions, alpha, nusers);
	scan = shm_toc_allocate(context->toc, scan_size);
	table_parallelscan_initialize(rel, scan, GetActiveSnapshot());
	shm_toc_insert(context->toc, KEY_SCAN, scan);
	if (users)
	{
		UserSlot   *slots = shm_toc_allocate(context->toc, nusers * sizeof(UserSlot));

		fill_users(slots, nusers, users);
		shm_toc_insert(context->toc, KEY_USERS, slots);
	}
	queues = shm_toc_allocate(context->toc, nworkers * QUEUE_BYTES);
	for (int i = 0; i < nworkers; i++)
		shm_mq_set_receiver(shm_mq_create(queues + i * QUEUE_BYTES, QUEUE_BYTES), MyProc);
	shm_toc_insert(context->toc, KEY_QUEUES, queues);
	return context;
}

/* Attach to the queues of the workers that were launched */
static shm_mq_handle **
attach_queues(ParallelContext *context)
{
	shm_mq_handle **queues = palloc_array(shm_mq_handle *, context->nworkers_launched);
	char	   *at = shm_toc_lookup(context->toc, KEY_QUEUES, false);

	for (int i = 0; i < context->nworkers_launched; i++)
		queues[i] = shm_mq_attach((shm_mq *) (at + i * QUEUE_BYTES), context->seg,
								  context->worker[i].bgwhandle);
	return queues;
}

/* Read the table by workers; false if there are none */
static bool
read_table(ParallelContext *context, Relation rel, AlsTakeChunk *take, void *arg, uint64 *rows)
{
	int			launched = 0;

	/* no shared memory: the context has no workers */
	if (context->nworkers > 0)
		LaunchParallelWorkers(context);
	launched = context->nworkers_launched;
	if (launched > 0)
	{
		ReadTask   *task = shm_toc_lookup(context->toc, KEY_TASK, false);

		elog(DEBUG1, "gpuvec_als: %d parallel workers read \"%s\"", launched,
			 RelationGetRelationName(rel));
		pass_chunks_on(take, arg, attach_queues(context), launched);
		WaitForParallelWorkersToFinish(context);
		*rows += pg_atomic_read_u64(&task->rows);
	}
	DestroyParallelContext(context);
	return launched > 0;
}

bool
AlsReadParallel(const AlsInteractions *interactions, Datum keys, double alpha, AlsTakeChunk *take,
				void *arg, uint64 *rows)
{
	ArrayType  *users = DatumGetPointer(keys) ? DatumGetArrayTypeP(keys) : NULL;
	Relation	rel = table_open(interactions->relid, AccessShareLock);
	int			nworkers = choose_workers(rel);
	bool		done = false;

	if (nworkers > 0)
	{
		EnterParallelMode();
		done = read_table(make_context(rel, nworkers, interactions, users, alpha), rel, take, arg,
						  rows);
		ExitParallelMode();
	}
	/* the lock stays, as that of a statement does */
	table_close(rel, NoLock);
	return done;
}
