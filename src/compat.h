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

/* File of a relation */
#if PG_VERSION_NUM >= 160000
#define GpuvecRelFile(rel)		((rel)->rd_locator.relNumber)
#define GpuvecRelTablespace(rel) ((rel)->rd_locator.spcOid)
#else
#define GpuvecRelFile(rel)		((rel)->rd_node.relNode)
#define GpuvecRelTablespace(rel) ((rel)->rd_node.spcNode)
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

#endif							/* GPUVEC_COMPAT_H */
