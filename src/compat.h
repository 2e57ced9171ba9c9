/*-------------------------------------------------------------------------
 *
 * compat.h
 *	  Hides the differences between PostgreSQL 13 and 19.
 *
 *-------------------------------------------------------------------------
 */
#ifndef GPUVEC_COMPAT_H
#define GPUVEC_COMPAT_H

#include "postgres.h"

#if PG_VERSION_NUM < 130000
#error "gpuvec requires PostgreSQL 13 or later"
#endif

/*
 * The library is built with hidden symbols and exports only what is declared
 * PGDLLEXPORT.  Before 16, PGDLLEXPORT is empty on Linux, and
 * PG_FUNCTION_INFO_V1 declares SQL functions without it.  So both are defined
 * here.
 */
#if PG_VERSION_NUM < 160000
#include "fmgr.h"
#undef PGDLLEXPORT
#define PGDLLEXPORT __attribute__((visibility("default")))
#undef PG_FUNCTION_INFO_V1
#define PG_FUNCTION_INFO_V1(funcname) \
extern PGDLLEXPORT Datum funcname(PG_FUNCTION_ARGS); \
extern PGDLLEXPORT const Pg_finfo_record *CppConcat(pg_finfo_, funcname) (void); \
const Pg_finfo_record * \
CppConcat(pg_finfo_, funcname) (void) \
{ \
	static const Pg_finfo_record my_finfo = {1}; \
	return &my_finfo; \
} \
extern int	no_such_variable
#endif

#include "access/xlog.h"
#include "access/xlogreader.h"
#include "catalog/pg_authid.h"
#include "catalog/pg_collation.h"
#include "catalog/pg_proc.h"
#include "common/relpath.h"
#include "lib/stringinfo.h"
#include "miscadmin.h"
#include "nodes/nodes.h"
#include "storage/ipc.h"
#include "storage/latch.h"
#include "storage/lwlock.h"
#include "storage/procarray.h"
#include "storage/shmem.h"
#include "storage/smgr.h"
#include "utils/acl.h"
#include "utils/lsyscache.h"
#include "utils/memutils.h"
#include "utils/rel.h"
#include "utils/snapmgr.h"
#if PG_VERSION_NUM >= 140000
#include "utils/wait_event.h"
#else
#include "pgstat.h"
#endif
#if PG_VERSION_NUM >= 150000
#include "access/xlogrecovery.h"
#endif
#if PG_VERSION_NUM >= 160000
#include "nodes/multibitmapset.h"
#include "varatt.h"
#endif
#if PG_VERSION_NUM >= 180000
#include "commands/explain_format.h"
#include "commands/explain_state.h"
#include "storage/waiteventset.h"
#endif

/*
 * Scans of a table, and fetches of rows by their tids; need access/tableam.h
 */
#if PG_VERSION_NUM >= 190000
#define GpuvecBeginScan(rel, snapshot) table_beginscan(rel, snapshot, 0, NULL, SO_NONE)
#define GpuvecBeginScanParallel(rel, shared) table_beginscan_parallel(rel, shared, SO_NONE)
#define GpuvecBeginFetch(rel)	table_index_fetch_begin(rel, SO_NONE)
#else
#define GpuvecBeginScan(rel, snapshot) table_beginscan(rel, snapshot, 0, NULL)
#define GpuvecBeginScanParallel(rel, shared) table_beginscan_parallel(rel, shared)
#define GpuvecBeginFetch(rel)	table_index_fetch_begin(rel)
#endif

/*
 * What a handler of an access method returns for its routine, a constant:
 * before 19 a copy, which the server frees; needs access/amapi.h
 */
#if PG_VERSION_NUM >= 190000
#define GpuvecAmRoutine(routine) (routine)
#else
#define GpuvecAmRoutine(routine) memcpy(palloc(sizeof(*(routine))), routine, sizeof(*(routine)))
#endif

/* Estimated length of an array; needs utils/selfuncs.h */
#if PG_VERSION_NUM >= 170000
#define GpuvecArrayLength(root, array) estimate_array_length(root, array)
#else
#define GpuvecArrayLength(root, array) ((void) (root), (double) estimate_array_length(array))
#endif

/* An item for PageAddItem() */
#if PG_VERSION_NUM >= 190000
#define GpuvecItem(item)		(item)
#else
#define GpuvecItem(item)		((Item) (item))
#endif

/* From 19, a tuple descriptor is used only after this */
#if PG_VERSION_NUM < 190000
#define TupleDescFinalize(desc)	((void) 0)
#endif

/* A handler of signals that ignores them */
#ifndef PG_SIG_IGN
#define PG_SIG_IGN				SIG_IGN
#endif

/* A WaitEventSet that lives until FreeWaitEventSet() */
#if PG_VERSION_NUM >= 170000
#define GpuvecCreateWaitEventSet(n) CreateWaitEventSet(NULL, n)
#else
#define GpuvecCreateWaitEventSet(n) CreateWaitEventSet(TopMemoryContext, n)
#endif

/*
 * A wait event of an extension, known by its name.  The error of a server that
 * has no place for it leaves a lock held.
 */
#if PG_VERSION_NUM >= 170000
#define GpuvecNewWaitEvent(name) WaitEventExtensionNew(name)
#else
#define GpuvecNewWaitEvent(name) ((void) (name), PG_WAIT_EXTENSION)
#endif

/* Release that lock, after an error that has let interrupts in again */
static inline void
GpuvecReleaseWaitEventLock(void)
{
#if PG_VERSION_NUM >= 170000
	if (LWLockHeldByMe(WaitEventCustomLock))
	{
		/* that the lock is held holds off interrupts once more */
		HOLD_INTERRUPTS();
		LWLockRelease(WaitEventCustomLock);
	}
#endif
}

/*
 * File and tablespace of a relation; the subtransaction that first gave it a
 * new file
 */
#if PG_VERSION_NUM >= 160000
#define GpuvecRelFile(rel)		((rel)->rd_locator.relNumber)
#define GpuvecRelTablespace(rel) ((rel)->rd_locator.spcOid)
#define GpuvecRelFirstFileSubid(rel) ((rel)->rd_firstRelfilelocatorSubid)
#else
#define GpuvecRelFile(rel)		((rel)->rd_node.relNode)
#define GpuvecRelTablespace(rel) ((rel)->rd_node.spcNode)
#define GpuvecRelFirstFileSubid(rel) ((rel)->rd_firstRelfilenodeSubid)
#endif

/* The partitions of an open, locked table that the snapshot has */
#if PG_VERSION_NUM >= 140000
#define GpuvecPartitionDesc(rel) RelationGetPartitionDesc(rel, true)
#else
#define GpuvecPartitionDesc(rel) RelationGetPartitionDesc(rel)
#endif

/*
 * Append the path, with its NUL, of a file of this database, relative to the
 * data directory
 */
static inline void
GpuvecAppendPath(StringInfo out, Oid tablespace, Oid file)
{
#if PG_VERSION_NUM >= 160000
	RelFileLocator locator = {tablespace, MyDatabaseId, file};
#else
	RelFileNode locator = {tablespace, MyDatabaseId, file};
#endif
#if PG_VERSION_NUM >= 180000
	RelPathStr	path = relpathperm(locator, MAIN_FORKNUM);

	appendBinaryStringInfo(out, path.str, strlen(path.str) + 1);
#else
	char	   *path = relpathperm(locator, MAIN_FORKNUM);

	appendBinaryStringInfo(out, path, strlen(path) + 1);
	pfree(path);
#endif
}

/* Send a message through a queue, at once; needs storage/shm_mq.h */
#if PG_VERSION_NUM >= 150000
#define GpuvecShmMqSend(queue, size, data) shm_mq_send(queue, size, data, false, true)
#else
#define GpuvecShmMqSend(queue, size, data) shm_mq_send(queue, size, data, false)
#endif

/*
 * Number of pages of the visibility map if the storage manager has it cached,
 * else InvalidBlockNumber
 */
#if PG_VERSION_NUM >= 140000
#define GpuvecKnownMapPages(smgr) ((smgr)->smgr_cached_nblocks[VISIBILITYMAP_FORKNUM])
#else
#define GpuvecKnownMapPages(smgr) ((smgr)->smgr_vm_nblocks)
#endif

/*
 * The file, fork and block that a block reference of a WAL record names.
 * GpuvecBlockTag() is false if the record has no block reference of this id.
 */
#if PG_VERSION_NUM >= 160000
typedef RelFileLocator GpuvecRelFileId;
#define GpuvecRelFileEquals(file, rel) RelFileLocatorEquals(file, (rel)->rd_locator)
#else
typedef RelFileNode GpuvecRelFileId;
#define GpuvecRelFileEquals(file, rel) RelFileNodeEquals(file, (rel)->rd_node)
#endif
#if PG_VERSION_NUM >= 150000
#define GpuvecMaxBlockId(reader) XLogRecMaxBlockId(reader)
#define GpuvecBlockTag(reader, id, file, fork, block) \
	XLogRecGetBlockTagExtended(reader, id, file, fork, block, NULL)
#define GpuvecInsertTimeLine() GetWALInsertionTimeLine()
#define GpuvecFlushedTo() GetFlushRecPtr(NULL)
#else
#define GpuvecMaxBlockId(reader) ((reader)->max_block_id)
#define GpuvecBlockTag(reader, id, file, fork, block) \
	XLogRecGetBlockTag(reader, id, file, fork, block)
#define GpuvecInsertTimeLine() ThisTimeLineID
#define GpuvecFlushedTo() GetFlushRecPtr()
#endif

#if PG_VERSION_NUM < 150000
#define MarkGUCPrefixReserved(prefix) EmitWarningsOnPlaceholders(prefix)
#endif

/* A tranche of LWLocks in memory of our own; each process registers it */
#if PG_VERSION_NUM >= 190000
#define GpuvecNewTranche(name) LWLockNewTrancheId(name)
#define GpuvecRegisterTranche(tranche, name) ((void) 0)
#else
#define GpuvecNewTranche(name) LWLockNewTrancheId()
#define GpuvecRegisterTranche(tranche, name) LWLockRegisterTranche(tranche, name)
#endif

/*
 * Have `request` ask for shared memory: in shmem_request_hook, or before 15
 * at once, while the library is loaded
 */
#if PG_VERSION_NUM >= 150000
#define GpuvecHookShmemRequest(previous, request) \
	((previous) = shmem_request_hook, shmem_request_hook = (request))
#else
typedef void (*shmem_request_hook_type) (void);
#define GpuvecHookShmemRequest(previous, request) ((previous) = NULL, (request) ())
#endif

/* The relation's storage manager handle, opened if need be */
static inline SMgrRelation
GpuvecRelationSmgr(Relation rel)
{
#if PG_VERSION_NUM >= 150000
	return RelationGetSmgr(rel);
#else
	RelationOpenSmgr(rel);
	return rel->rd_smgr;
#endif
}

/* Row versions deleted before this transaction are dead to all snapshots */
#if PG_VERSION_NUM >= 140000
#define GpuvecOldestXmin(rel) GetOldestNonRemovableTransactionId(rel)
#else
#define GpuvecOldestXmin(rel) GetOldestXmin(rel, PROCARRAY_FLAGS_VACUUM)
#endif

/* Bytes that an out-of-line value takes in the TOAST table */
#if PG_VERSION_NUM >= 140000
#define GpuvecExternalSize(pointer) VARATT_EXTERNAL_GET_EXTSIZE(pointer)
#else
#define GpuvecExternalSize(pointer) ((pointer).va_extsize)
#endif

#if PG_VERSION_NUM < 140000
#define ROLE_PG_READ_ALL_STATS DEFAULT_ROLE_READ_ALL_STATS
#endif

/* A snapshot that sees every chunk in a TOAST table */
#if PG_VERSION_NUM >= 180000
#define GpuvecInitToastSnapshot(s) (*(s) = *get_toast_snapshot())
#else
#define GpuvecInitToastSnapshot(s) init_toast_snapshot(s)
#endif

/* Do application names of postgres_fdw's connections have escapes? */
#define GPUVEC_NAMES_HAVE_ESCAPES (PG_VERSION_NUM >= 150000)

/* Before 16 there are no soft errors: raise an error */
#if PG_VERSION_NUM < 160000
#define errsave(context, ...) \
	do { \
		(void) (context); \
		ereport(ERROR, __VA_ARGS__); \
	} while (0)
#endif

/*
 * What pg_trgm of the same server takes for a character of a word, and how it
 * lowers words.  The result is palloc'd, and ends with a NUL.
 */
#if PG_VERSION_NUM >= 180000
#define GpuvecIsWordChar(p)		(t_isalnum(p) != 0)
#define GpuvecLower(word, len)	str_tolower(word, len, DEFAULT_COLLATION_OID)
#else
#define GpuvecIsWordChar(p)		(t_isalpha(p) || t_isdigit(p))
#define GpuvecLower(word, len)	lowerstr_with_len(word, len)
#endif

/* True if an expression does not change while a table's index is scanned */
#if PG_VERSION_NUM >= 140000
#define GpuvecIsIndexConstant(root, node, index) is_pseudo_constant_for_index(root, node, index)
#else
#define GpuvecIsIndexConstant(root, node, index) is_pseudo_constant_for_index(node, index)
#endif

/* A restriction with this clause in place of `model`'s, of the same place */
#if PG_VERSION_NUM >= 160000
#define GpuvecRestrictionLike(root, clause, model) \
	make_restrictinfo(root, clause, (model)->is_pushed_down, (model)->has_clone, \
					  (model)->is_clone, (model)->pseudoconstant, (model)->security_level, \
					  (model)->required_relids, (model)->incompatible_relids, \
					  (model)->outer_relids)
#elif PG_VERSION_NUM >= 140000
#define GpuvecRestrictionLike(root, clause, model) \
	make_restrictinfo(root, clause, (model)->is_pushed_down, (model)->outerjoin_delayed, \
					  (model)->pseudoconstant, (model)->security_level, \
					  (model)->required_relids, (model)->outer_relids, (model)->nullable_relids)
#else
#define GpuvecRestrictionLike(root, clause, model) \
	make_restrictinfo(clause, (model)->is_pushed_down, (model)->outerjoin_delayed, \
					  (model)->pseudoconstant, (model)->security_level, \
					  (model)->required_relids, (model)->outer_relids, (model)->nullable_relids)
#endif

/*
 * Let the clauses that parameters of a path enforce not have this one (the
 * list of clauses is without it already)
 */
#if PG_VERSION_NUM >= 160000
#define GpuvecForgetSerial(info, clause) \
	((info)->ppi_serials = bms_del_member((info)->ppi_serials, (clause)->rinfo_serial))
#else
#define GpuvecForgetSerial(info, clause) ((void) 0)
#endif

/* True if a sort key is ascending; make it so */
#if PG_VERSION_NUM >= 180000
#define GpuvecIsAscending(key)	((key)->pk_cmptype == COMPARE_LT)
#define GpuvecSetAscending(key) ((key)->pk_cmptype = COMPARE_LT)
#else
#define GpuvecIsAscending(key)	((key)->pk_strategy == BTLessStrategyNumber)
#define GpuvecSetAscending(key) ((key)->pk_strategy = BTLessStrategyNumber)
#endif

/*
 * Members of an equivalence class, among them those of a base relation or a
 * partition; a copy of a class that has no others than its ec_members
 */
#if PG_VERSION_NUM >= 180000
#define GpuvecMembers(class, rel) \
	((rel)->reloptkind != RELOPT_OTHER_MEMBER_REL ? (class)->ec_members : \
	 (rel)->relid < (class)->ec_childmembers_size ? (class)->ec_childmembers[(rel)->relid] : NIL)
#define GpuvecForgetChildren(class) \
	((class)->ec_childmembers_size = 0, (class)->ec_childmembers = NULL)
#else
#define GpuvecMembers(class, rel)	((class)->ec_members)
#define GpuvecForgetChildren(class) ((void) 0)
#endif

/* Does the planner use an index's order by the first of several sort keys? */
#define GPUVEC_ORDERS_BY_FIRST	(PG_VERSION_NUM >= 170000)

/* True for a column that is in what find_nonnullable_vars() returns */
#if PG_VERSION_NUM >= 160000
#define GpuvecIsNonnullable(vars, var) \
	mbms_is_member((var)->varno, (var)->varattno - FirstLowInvalidHeapAttributeNumber, vars)
#else
#define GpuvecIsNonnullable(vars, var) list_member(vars, var)
#endif

/* True if no row breaks a NOT NULL that a column has (from 18 on one may) */
#if PG_VERSION_NUM >= 180000
#define GpuvecNotNullHolds(rel, attnum) bms_is_member(attnum, (rel)->notnullattnums)
#else
#define GpuvecNotNullHolds(rel, attnum) true
#endif

/* The path of SELECT DISTINCT, of rows that are sorted */
#if PG_VERSION_NUM >= 190000
#define T_GpuvecUniquePath T_UniquePath
#define GpuvecUniquePath UniquePath
#else
#define T_GpuvecUniquePath T_UpperUniquePath
#define GpuvecUniquePath UpperUniquePath
#endif

/* The path of a Merge Append of a partitioned table */
#if PG_VERSION_NUM >= 190000
#define GpuvecMergeAppendPath(root, rel, paths, keys) \
	create_merge_append_path(root, rel, paths, NIL, keys, NULL)
#elif PG_VERSION_NUM >= 140000
#define GpuvecMergeAppendPath(root, rel, paths, keys) \
	create_merge_append_path(root, rel, paths, keys, NULL)
#else
#define GpuvecMergeAppendPath(root, rel, paths, keys) \
	create_merge_append_path(root, rel, paths, keys, NULL, \
							 list_make1((rel)->partitioned_child_rels))
#endif

/* The path of an Append of a partitioned table */
#if PG_VERSION_NUM >= 190000
#define GpuvecAppendOf(root, rel, paths) \
	create_append_path(root, rel, (AppendPathInput) {.subpaths = (paths)}, NIL, NULL, 0, false, -1)
#elif PG_VERSION_NUM >= 140000
#define GpuvecAppendOf(root, rel, paths) \
	create_append_path(root, rel, paths, NIL, NIL, NULL, 0, false, -1)
#else
#define GpuvecAppendOf(root, rel, paths) \
	create_append_path(root, rel, paths, NIL, NIL, NULL, 0, false, \
					   list_make1((rel)->partitioned_child_rels), -1)
#endif

/* count(*) and count(expression): functions that have names from 14 on */
#if PG_VERSION_NUM < 140000
#define F_COUNT_ 2803
#define F_COUNT_ANY 2147
#endif

/* The children that pruning leaves when a scan begins */
#if PG_VERSION_NUM >= 180000
#define GpuvecFindMatchingSubPlans(prune) ExecFindMatchingSubPlans(prune, false, NULL)
#elif PG_VERSION_NUM >= 150000
#define GpuvecFindMatchingSubPlans(prune) ExecFindMatchingSubPlans(prune, false)
#else
#define GpuvecFindMatchingSubPlans(prune) ExecFindMatchingSubPlans(prune)
#endif

/*
 * From 15 on a window may end early: whether one does, by which conditions,
 * and by which functions
 */
#if PG_VERSION_NUM >= 150000
#define GpuvecEndsEarly(path)	((path)->topwindow && (path)->winclause->partitionClause == NIL)
#define GpuvecNumbersRows(function) ((function) == F_ROW_NUMBER || (function) == F_RANK_)
#if PG_VERSION_NUM >= 170000
#define GpuvecRunCondition(path) ((path)->runCondition)
#else
#define GpuvecRunCondition(path) ((path)->winclause->runCondition)
#endif
#else
#define GpuvecEndsEarly(path)	false
#define GpuvecNumbersRows(function) false
#define GpuvecRunCondition(path) NIL
#endif

/* Count as many disabled nodes for a path as for the one below */
#if PG_VERSION_NUM >= 180000
#define GpuvecSetDisabled(path, below) ((path)->disabled_nodes = (below)->disabled_nodes)
#else
#define GpuvecSetDisabled(path, below) ((void) 0)
#endif

/* Vacuum's cost-based delay */
#if PG_VERSION_NUM >= 180000
#define GpuvecVacuumDelayPoint() vacuum_delay_point(false)
#else
#define GpuvecVacuumDelayPoint() vacuum_delay_point()
#endif

#ifndef LSN_FORMAT_ARGS
#define LSN_FORMAT_ARGS(lsn) ((uint32) ((lsn) >> 32)), ((uint32) (lsn))
#endif

/* 18 has pg_noreturn in place of pg_attribute_noreturn() */
#if PG_VERSION_NUM >= 180000
#define pg_attribute_noreturn() __attribute__((noreturn))
#endif

/* Allocation by type, for servers that lack these macros */
#ifndef palloc_object
#define palloc_object(type) ((type *) palloc(sizeof(type)))
#define palloc0_object(type) ((type *) palloc0(sizeof(type)))
#endif
#ifndef palloc_array
#define palloc_array(type, count) ((type *) palloc(mul_size(sizeof(type), count)))
#define palloc0_array(type, count) ((type *) palloc0(mul_size(sizeof(type), count)))
#endif

/*
 * True if old_snapshot_threshold is set (until 16): pruning may then remove
 * row versions that old snapshots still need
 */
#if PG_VERSION_NUM >= 170000
#define GpuvecOldSnapshotThresholdActive() false
#elif PG_VERSION_NUM < 140000
#define GpuvecOldSnapshotThresholdActive() (old_snapshot_threshold >= 0)
#else
#define GpuvecOldSnapshotThresholdActive() OldSnapshotThresholdActive()
#endif

/* Raise "snapshot too old" for a page that was read by our own code */
#if PG_VERSION_NUM >= 170000
#define GpuvecTestForOldSnapshot(snapshot, rel, page) ((void) 0)
#else
#define GpuvecTestForOldSnapshot(snapshot, rel, page) TestForOldSnapshot(snapshot, rel, page)
#endif

/*
 * True if a buffer's tag (buf_internals.h) names a block of the relation's
 * main fork
 */
#if PG_VERSION_NUM >= 160000
#define GpuvecBufferTagMatches(tag, rel) \
	(BufTagMatchesRelFileLocator(tag, &(rel)->rd_locator) && BufTagGetForkNum(tag) == MAIN_FORKNUM)
#else
#define GpuvecBufferTagMatches(tag, rel) \
	(RelFileNodeEquals((tag)->rnode, (rel)->rd_node) && (tag)->forkNum == MAIN_FORKNUM)
#endif

/*
 * True if a collation is known to order texts by their bytes.  pg_locale.h
 * tells, but it wants the headers of ICU, which are not always there.
 */
#if PG_VERSION_NUM >= 180000
#define GpuvecCollationIsC(collation) ((collation) == C_COLLATION_OID)
#else
extern bool lc_collate_is_c(Oid collation);
#define GpuvecCollationIsC(collation) lc_collate_is_c(collation)
#endif

/* Virtual generated columns (from 18): computed when read, not stored */
#ifndef ATTRIBUTE_GENERATED_VIRTUAL
#define ATTRIBUTE_GENERATED_VIRTUAL 'v'
#endif

/* Options of a tuplesort that is read once, in order */
#if PG_VERSION_NUM >= 150000
#define GpuvecTuplesortNone TUPLESORT_NONE
#else
#define GpuvecTuplesortNone false
#endif

/* True if the role owns the relation or the database */
#if PG_VERSION_NUM >= 160000
#define GpuvecOwnsRelation(relid, role) object_ownercheck(RelationRelationId, relid, role)
#define GpuvecOwnsDatabase(oid, role) object_ownercheck(DatabaseRelationId, oid, role)
#else
#define GpuvecOwnsRelation(relid, role) pg_class_ownercheck(relid, role)
#define GpuvecOwnsDatabase(oid, role) pg_database_ownercheck(oid, role)
#endif

/* Raise an error unless the user may execute the function */
static inline void
GpuvecCheckExecute(Oid function)
{
	AclResult	result;

#if PG_VERSION_NUM >= 160000
	result = object_aclcheck(ProcedureRelationId, function, GetUserId(), ACL_EXECUTE);
#else
	result = pg_proc_aclcheck(function, GetUserId(), ACL_EXECUTE);
#endif
	if (result != ACLCHECK_OK)
		aclcheck_error(result, OBJECT_FUNCTION, get_func_name(function));
}

/*
 * The counters of OIDs and transaction ids in shared memory
 * (access/transam.h)
 */
#if PG_VERSION_NUM >= 170000
#define GpuvecTransam TransamVariables
#else
#define GpuvecTransam ShmemVariableCache
#endif

/*
 * The columns to group by, from 16 on without those of one value; how many
 * groups rows have
 */
#if PG_VERSION_NUM >= 160000
#define GpuvecGroupClause(root)	((root)->processed_groupClause)
#else
#define GpuvecGroupClause(root)	((root)->parse->groupClause)
#endif
#if PG_VERSION_NUM >= 140000
#define GpuvecEstimateGroups(root, columns, rows) \
	estimate_num_groups(root, columns, rows, NULL, NULL)
#else
#define GpuvecEstimateGroups(root, columns, rows) estimate_num_groups(root, columns, rows, NULL)
#endif

#endif							/* GPUVEC_COMPAT_H */
