/*-------------------------------------------------------------------------
 *
 * compat.h
 *	  Differences between PostgreSQL 13 and 18, in one place.
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
 * The library is built with hidden symbols, and exports what is declared
 * PGDLLEXPORT; before 16 that means nothing on Linux, and the functions of
 * SQL are not declared so.
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
#include "catalog/pg_proc.h"
#include "common/relpath.h"
#include "lib/stringinfo.h"
#include "miscadmin.h"
#include "nodes/nodes.h"
#include "storage/ipc.h"
#include "storage/latch.h"
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
#include "varatt.h"
#endif
#if PG_VERSION_NUM >= 180000
#include "commands/explain_format.h"
#include "commands/explain_state.h"
#include "storage/waiteventset.h"
#endif

/* A set of events that lives until it is freed */
#if PG_VERSION_NUM >= 170000
#define GpuvecCreateWaitEventSet(n) CreateWaitEventSet(NULL, n)
#else
#define GpuvecCreateWaitEventSet(n) CreateWaitEventSet(TopMemoryContext, n)
#endif

/* File of a relation, and the subtransaction that first gave it another */
#if PG_VERSION_NUM >= 160000
#define GpuvecRelFile(rel)		((rel)->rd_locator.relNumber)
#define GpuvecRelTablespace(rel) ((rel)->rd_locator.spcOid)
#define GpuvecRelFirstFileSubid(rel) ((rel)->rd_firstRelfilelocatorSubid)
#else
#define GpuvecRelFile(rel)		((rel)->rd_node.relNode)
#define GpuvecRelTablespace(rel) ((rel)->rd_node.spcNode)
#define GpuvecRelFirstFileSubid(rel) ((rel)->rd_firstRelfilenodeSubid)
#endif

/*
 * Append the path of a file of this database, relative to the data directory,
 * and a NUL
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

/*
 * Pages of the visibility map, if the storage manager happens to know;
 * InvalidBlockNumber: it does not
 */
#if PG_VERSION_NUM >= 140000
#define GpuvecKnownMapPages(smgr) ((smgr)->smgr_cached_nblocks[VISIBILITYMAP_FORKNUM])
#else
#define GpuvecKnownMapPages(smgr) ((smgr)->smgr_vm_nblocks)
#endif

/*
 * What a block reference of a WAL record names; false if there is none of
 * this number
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

/*
 * Shared memory is asked for in a hook; before 15, while the library is
 * loaded
 */
#if PG_VERSION_NUM >= 150000
#define GpuvecHookShmemRequest(previous, request) \
	((previous) = shmem_request_hook, shmem_request_hook = (request))
#else
typedef void (*shmem_request_hook_type) (void);
#define GpuvecHookShmemRequest(previous, request) ((previous) = NULL, (request) ())
#endif

/* The storage of a relation, opened */
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

/* Rows deleted before this transaction are dead to everybody */
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

/* The snapshot that sees every chunk of every value */
#if PG_VERSION_NUM >= 180000
#define GpuvecInitToastSnapshot(s) (*(s) = *get_toast_snapshot())
#else
#define GpuvecInitToastSnapshot(s) init_toast_snapshot(s)
#endif

/* Errors of input functions that a caller may take as "no such value" */
#if PG_VERSION_NUM < 160000
#define errsave(context, ...) \
	do { \
		(void) (context); \
		ereport(ERROR, __VA_ARGS__); \
	} while (0)
#endif

/* Where a vacuum may rest */
#if PG_VERSION_NUM >= 180000
#define GpuvecVacuumDelayPoint() vacuum_delay_point(false)
#else
#define GpuvecVacuumDelayPoint() vacuum_delay_point()
#endif

#ifndef LSN_FORMAT_ARGS
#define LSN_FORMAT_ARGS(lsn) ((uint32) ((lsn) >> 32)), ((uint32) (lsn))
#endif

/* A function that does not return */
#if PG_VERSION_NUM >= 180000
#define pg_attribute_noreturn() __attribute__((noreturn))
#endif

/* Typed allocation */
#ifndef palloc_object
#define palloc_object(type) ((type *) palloc(sizeof(type)))
#define palloc0_object(type) ((type *) palloc0(sizeof(type)))
#endif
#ifndef palloc_array
#define palloc_array(type, count) ((type *) palloc(mul_size(sizeof(type), count)))
#define palloc0_array(type, count) ((type *) palloc0(mul_size(sizeof(type), count)))
#endif

/* Pages may be pruned that old snapshots still need (until 16) */
#if PG_VERSION_NUM >= 170000
#define GpuvecOldSnapshotThresholdActive() false
#elif PG_VERSION_NUM < 140000
#define GpuvecOldSnapshotThresholdActive() (old_snapshot_threshold >= 0)
#else
#define GpuvecOldSnapshotThresholdActive() OldSnapshotThresholdActive()
#endif

/* The same for pages that are read without the server's own functions */
#if PG_VERSION_NUM >= 170000
#define GpuvecTestForOldSnapshot(snapshot, rel, page) ((void) 0)
#else
#define GpuvecTestForOldSnapshot(snapshot, rel, page) TestForOldSnapshot(snapshot, rel, page)
#endif

/*
 * Is it a block of the relation's main fork that a buffer's tag names?
 * (buf_internals.h)
 */
#if PG_VERSION_NUM >= 160000
#define GpuvecBufferTagMatches(tag, rel) \
	(BufTagMatchesRelFileLocator(tag, &(rel)->rd_locator) && BufTagGetForkNum(tag) == MAIN_FORKNUM)
#else
#define GpuvecBufferTagMatches(tag, rel) \
	(RelFileNodeEquals((tag)->rnode, (rel)->rd_node) && (tag)->forkNum == MAIN_FORKNUM)
#endif

/*
 * Columns that have no place in rows but are computed where a query reads
 * them (from 18)
 */
#ifndef ATTRIBUTE_GENERATED_VIRTUAL
#define ATTRIBUTE_GENERATED_VIRTUAL 'v'
#endif

/* A sort that is read once, in order */
#if PG_VERSION_NUM >= 150000
#define GpuvecTuplesortNone TUPLESORT_NONE
#else
#define GpuvecTuplesortNone false
#endif

/* Ownership of a relation, and of a database */
#if PG_VERSION_NUM >= 160000
#define GpuvecOwnsRelation(relid, role) object_ownercheck(RelationRelationId, relid, role)
#define GpuvecOwnsDatabase(oid, role) object_ownercheck(DatabaseRelationId, oid, role)
#else
#define GpuvecOwnsRelation(relid, role) pg_class_ownercheck(relid, role)
#define GpuvecOwnsDatabase(oid, role) pg_database_ownercheck(oid, role)
#endif

/* Error unless the user may execute a function */
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
 * The counters of OIDs and transactions, in shared memory (access/transam.h)
 */
#if PG_VERSION_NUM >= 170000
#define GpuvecTransam TransamVariables
#else
#define GpuvecTransam ShmemVariableCache
#endif

#endif							/* GPUVEC_COMPAT_H */
