/*-------------------------------------------------------------------------
 *
 * build.c
 *	  Building an index: a metapage.
 *
 * The table is scanned all the same, by the server's own function: it finds broken
 * HOT chains, whose rows older snapshots must not look for in the index.  That is what
 * takes time, so pg_stat_progress_create_index shows its blocks and rows.
 *
 *-------------------------------------------------------------------------
 */
#include "gpuvec.h"

#include "access/generic_xlog.h"
#include "access/tableam.h"
#include "catalog/index.h"
#include "commands/progress.h"
#include "index/index.h"
#include "nodes/execnodes.h"
#include "pgstat.h"
#include "storage/bufmgr.h"
#include "storage/bufpage.h"

#define META_BLOCK		0
#define META_MAGIC		0x47505649	/* "GPVI" */
#define META_VERSION	1

/* Phases of a build, after the server's PROGRESS_CREATEIDX_SUBPHASE_INITIALIZE */
#define PHASE_SCAN		2
#define PHASE_META		3

/* What the metapage holds: every build has an id of its own */
typedef struct MetaPage
{
	uint32		magic;
	uint32		version;
	uint8		build[16];
} MetaPage;

/* The metapage's contents */
#define meta_of(page) ((MetaPage *) PageGetContents(page))

/*
 * The build id of an index, which is read once and then remembered with the relation.
 * Returns false if the index has no metapage of ours.
 */
bool
GpuvecBuildId(Relation index, uint8 *build)
{
	if (index->rd_amcache == NULL)
	{
		Buffer		buffer = ReadBuffer(index, META_BLOCK);
		MetaPage	meta;

		LockBuffer(buffer, BUFFER_LOCK_SHARE);
		meta = *meta_of(BufferGetPage(buffer));
		UnlockReleaseBuffer(buffer);
		if (meta.magic != META_MAGIC || meta.version != META_VERSION)
			return false;
		index->rd_amcache = MemoryContextAlloc(index->rd_indexcxt, sizeof(meta.build));
		memcpy(index->rd_amcache, meta.build, sizeof(meta.build));
	}
	memcpy(build, index->rd_amcache, sizeof(((MetaPage *) 0)->build));
	return true;
}

/* Write the metapage of a fork that has none */
static void
write_metapage(Relation index, ForkNumber fork)
{
	Buffer		buffer = ReadBufferExtended(index, fork, P_NEW, RBM_NORMAL, NULL);
	GenericXLogState *state;
	Page		page;
	MetaPage   *meta;

	Assert(BufferGetBlockNumber(buffer) == META_BLOCK);
	LockBuffer(buffer, BUFFER_LOCK_EXCLUSIVE);
	state = GenericXLogStart(index);
	page = GenericXLogRegisterBuffer(state, buffer, GENERIC_XLOG_FULL_IMAGE);
	PageInit(page, BLCKSZ, 0);
	meta = meta_of(page);
	meta->magic = META_MAGIC;
	meta->version = META_VERSION;
	if (!pg_strong_random(meta->build, sizeof(meta->build)))
		ereport(ERROR,
				(errcode(ERRCODE_INTERNAL_ERROR),
				 errmsg("could not generate random values")));
	((PageHeader) page)->pd_lower = ((char *) meta + sizeof(MetaPage)) - (char *) page;
	GenericXLogFinish(state);
	UnlockReleaseBuffer(buffer);
}

/* A row of the table that is built for */
static void
count_row(Relation index, ItemPointer tid, Datum *values, bool *isnull, bool alive, void *state)
{
	double	   *rows = state;

	pgstat_progress_update_param(PROGRESS_CREATEIDX_TUPLES_DONE, (int64) ++*rows);
	GPUVEC_INJECTION("build-row");
}

/* What pg_stat_progress_create_index says of a phase */
char *
gpuvec_buildphasename(int64 phase)
{
	switch (phase)
	{
		case PROGRESS_CREATEIDX_SUBPHASE_INITIALIZE:
			return "initializing";
		case PHASE_SCAN:
			return "scanning table";
		case PHASE_META:
			return "writing metapage";
		default:
			return NULL;
	}
}

/* Refuse what scans cannot serve */
static void
check_definition(Relation index, const IndexInfo *info)
{
	if (info->ii_ExclusionOps != NULL)
		ereport(ERROR,
				(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
				 errmsg("access method \"%s\" does not support exclusion constraints", "gpuvec")));
}

IndexBuildResult *
gpuvec_build(Relation heap, Relation index, IndexInfo *info)
{
	IndexBuildResult *result = palloc_object(IndexBuildResult);
	double		rows = 0;

	if (RelationGetNumberOfBlocks(index) != 0)
		elog(ERROR, "index \"%s\" already contains data", RelationGetRelationName(index));
	check_definition(index, info);
	pgstat_progress_update_param(PROGRESS_CREATEIDX_SUBPHASE, PHASE_SCAN);
	/* an estimate; -1 or 0 if there is none */
	pgstat_progress_update_param(PROGRESS_CREATEIDX_TUPLES_TOTAL,
								 (int64) Max(heap->rd_rel->reltuples, 0));
	result->heap_tuples = table_index_build_scan(heap, index, info, true, true, count_row, &rows,
												 NULL);
	result->index_tuples = rows;
	pgstat_progress_update_param(PROGRESS_CREATEIDX_SUBPHASE, PHASE_META);
	GPUVEC_INJECTION("build-meta");
	write_metapage(index, MAIN_FORKNUM);
	return result;
}

void
gpuvec_buildempty(Relation index)
{
	write_metapage(index, INIT_FORKNUM);
}
