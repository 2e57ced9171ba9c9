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

#include "nodes/nodes.h"
#include "storage/latch.h"
#include "utils/memutils.h"
#include "utils/rel.h"
#if PG_VERSION_NUM >= 160000
#include "varatt.h"
#endif
#if PG_VERSION_NUM >= 180000
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

#if PG_VERSION_NUM < 150000
#define MarkGUCPrefixReserved(prefix) EmitWarningsOnPlaceholders(prefix)
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

/* Typed allocation */
#ifndef palloc_array
#define palloc_array(type, count) ((type *) palloc(mul_size(sizeof(type), count)))
#define palloc0_array(type, count) ((type *) palloc0(mul_size(sizeof(type), count)))
#endif

/* Pages may be pruned that old snapshots still need (until 16) */
#if PG_VERSION_NUM >= 170000
#define GpuvecOldSnapshotThresholdActive() false
#else
#define GpuvecOldSnapshotThresholdActive() OldSnapshotThresholdActive()
#endif

/* Ownership of a relation */
#if PG_VERSION_NUM >= 160000
#define GpuvecOwnsRelation(relid, role) object_ownercheck(RelationRelationId, relid, role)
#else
#define GpuvecOwnsRelation(relid, role) pg_class_ownercheck(relid, role)
#endif

/* Open a table that may be gone */
#if PG_VERSION_NUM < 140000
#define try_table_open(relid, lockmode) try_relation_open(relid, lockmode)
#endif

#endif							/* GPUVEC_COMPAT_H */
