/*-------------------------------------------------------------------------
 *
 * mirror.h
 *	  The engine's copy of a column of a table: is it resident, is it fresh,
 *	  and what does a search of it give under a snapshot?
 *
 * There are two kinds of mirrors.  A plain one has an entry for each row
 * version, under the version's own tid.  A rooted one, of an indexed column,
 * has an entry for each HOT chain, under the tid of its root, as an index
 * has: all versions of a chain have the same set, but not for snapshots taken
 * in recovery, which do not use it (index/recovery.c).  That of an index with
 * an expression or a predicate is rooted as well, and is read from the
 * index's pages, not the table's.
 *
 *-------------------------------------------------------------------------
 */
#ifndef GPUVEC_MIRROR_H
#define GPUVEC_MIRROR_H

#include "postgres.h"

#include "core/measure.h"
#include "core/protocol.h"
#include "datatype/timestamp.h"
#include "executor/tuptable.h"
#include "utils/array.h"
#include "utils/rel.h"
#include "utils/snapshot.h"

/* How a relation is searched */
typedef enum MirrorMode
{
	MIRROR_SHARED,				/* a mirror that all sessions share */
	MIRROR_PRIVATE,				/* loaded for this call, dropped after it */
	MIRROR_NONE					/* scanned in this session, without the engine */
} MirrorMode;

/* How the vectors of an embedding table are stored there */
typedef enum MirrorVectorType
{
	MIRROR_NO_VECTOR,			/* the column has another type */
	MIRROR_FLOAT4_ARRAY,
	MIRROR_FLOAT8_ARRAY,
	MIRROR_VECTOR,				/* pgvector's */
	MIRROR_HALFVEC
} MirrorVectorType;

/*
 * A column of a relation with storage, or (embedding tables) two: of vectors
 * and of keys.  The relation is open and locked.  A rooted mirror has an
 * index, which is open as long.
 */
typedef struct MirrorTarget
{
	Relation	rel;
	Relation	index;			/* NULL: a plain mirror */
	AttrNumber	attnum;			/* 0: an expression of the index */
	AttrNumber	key_attnum;		/* InvalidAttrNumber: a column of sets */
	Oid			key_type;		/* int2, int4 or int8 */
	MirrorVectorType vector_type;
	MirrorMode	mode;
	bool		fed;			/* the index is its feed (feed.h), and has
								 * this build id */
	uint8		build[16];
	gpuvec_mirror_key key;
} MirrorTarget;

/*
 * What the engine takes for a line is a line pointer, and whether it is that
 * of the row version itself; if not, it is that of the root of its HOT chain.
 */
#define mirror_line(offset, itself) ((uint16) ((offset) << 1 | ((itself) ? 1 : 0)))
#define mirror_line_offset(line)	((OffsetNumber) ((line) >> 1))
#define mirror_line_itself(line)	(((line) & 1) != 0)

/*
 * Where to go on behind a hit: behind its line pointer, whatever that stands
 * for by then (an update that made it stand for its chain may be rolled
 * back).
 */
#define mirror_behind(place)		(gpuvec_hit_tid(place) | mirror_line(0, true))

/* One result, as it comes from the engine */
typedef gpuvec_hit MirrorHit;

static inline void
MirrorHitTid(const MirrorHit *hit, ItemPointer tid)
{
	ItemPointerSet(tid, gpuvec_hit_block(hit->place),
				   mirror_line_offset(gpuvec_hit_line(hit->place)));
}

/* The order of results: score descending, tid ascending */
static inline int
MirrorCompareHits(const MirrorHit *a, const MirrorHit *b)
{
	if (a->score != b->score)
		return a->score > b->score ? -1 : 1;
	/* the tid comes first in it */
	return a->place < b->place ? -1 : a->place > b->place;
}

/* Rows of a table: ascending and distinct, as gpuvec_tid(block, offset) */
typedef struct MirrorTidSet
{
	uint64	   *tids;
	uint64		n;
} MirrorTidSet;

/* One query and its results; ids are ascending and distinct */
typedef struct MirrorQuery
{
	const uint16 *ids;
	uint32		len;
	bool		skip;			/* a NULL query, or nothing can be above: no
								 * rows */

	bool		has_above;		/* only rows whose score is greater than this */
	double		above;

	MirrorHit  *hits;			/* visible rows, best first */
	uint64		nhits;
	uint64		maxhits;		/* room there; 0: they lie in the engine's
								 * answer */

	bool		resumes;		/* only rows behind these */
	double		resume_score;
	uint64		resume_tid;

	/* while searching */
	bool		done;
	bool		abandoned;		/* because max_looked was reached; hits are
								 * not all */
	uint64		looked;			/* rows of the engine that were looked at */
	bool		has_after;
	double		after_score;
	uint64		after_tid;
} MirrorQuery;

/* What all queries of a call have in common */
typedef struct MirrorSearch
{
	gpuvec_measure measure;
	uint64		k;				/* UINT64_MAX: all */
	bool		has_min_score;
	double		min_score;
	MirrorQuery *queries;
	uint32		nqueries;
	Snapshot	snapshot;
	bool		roots;			/* give the entries of a rooted mirror,
								 * visible or not */
	const MirrorTidSet *among;	/* only these rows; NULL: all */
	double		share;			/* then, of the table's rows that these are,
								 * about */
	uint64		max_looked;		/* and when to abandon a query */
	MemoryContext context;		/* hits live here */
	uint64		engine_us;		/* time spent in the engine */
} MirrorSearch;

/*
 * Rank a row of `len` ids, `common` of them a query's, under this tid
 * (gpuvec_tid).  False: it does not qualify.
 */
static inline bool
MirrorRank(const MirrorSearch *search, const MirrorQuery *query, uint64 tid, uint32 common,
		   uint32 len, bool newer, MirrorHit *hit)
{
	if (common == 0 && !gpuvec_ranks_disjoint(search->measure))
		return false;
	hit->score = gpuvec_score(search->measure, common, query->len, len);
	if ((search->has_min_score && hit->score < search->min_score) ||
		(query->has_above && hit->score <= query->above))
		return false;
	hit->place = gpuvec_hit_place(tid, common, newer);
	return true;
}

/* target.c */
extern Relation MirrorSource(const MirrorTarget *target);
extern void MirrorDescribe(Relation rel, AttrNumber attnum, MirrorTarget *target);
extern void MirrorDescribeIndex(Relation rel, Relation index, MirrorTarget *target);
extern bool MirrorIndexFile(const MirrorTarget *target, Oid *tablespace, Oid *file);
extern void MirrorDescribeEmbedding(Relation rel, AttrNumber key_attnum, AttrNumber attnum,
									MirrorTarget *target);

/* search_mirror.c */
extern bool MirrorTopK(MirrorTarget *target, MirrorSearch *search, const char **reason);

/* search_request.c */
extern double MirrorRowsToLookAt(const MirrorSearch *search, uint64 n);

/* refusal.c: when the engine cannot serve a request, or keep a mirror */
extern bool MirrorMayTry(const MirrorTarget *target, TimestampTz *claim);
extern void MirrorNoteRefusal(const MirrorTarget *target, TimestampTz began);
extern void MirrorRefuseBusy(const MirrorTarget *target);
extern void MirrorRefuseEvicted(const MirrorTarget *target);
extern void MirrorRefuseLost(const MirrorTarget *target, const char **reason);
extern bool MirrorRefused(const char **reason);

/* visibility.c */
typedef struct MirrorVisibility MirrorVisibility;
extern MirrorVisibility *MirrorVisibilityBegin(MirrorTarget *target, Snapshot snapshot);
extern BlockNumber MirrorVisibilityMapPages(MirrorVisibility *visibility);
extern uint64 MirrorVisibilityNumber(const MirrorVisibility *visibility);
extern void MirrorVisibilityTakeMap(MirrorVisibility *visibility, uint64 refresh);
extern const uint8 *MirrorVisibilityMap(const MirrorVisibility *visibility, Size *bytes);
extern bool MirrorPageHasMember(MirrorVisibility *visibility, BlockNumber block,
								OffsetNumber before);
extern bool MirrorRowVisible(MirrorVisibility *visibility, ItemPointer tid);
extern bool MirrorVisible(MirrorVisibility *visibility, gpuvec_hit *hit,
						  const MirrorQuery *query, gpuvec_measure measure);
extern void MirrorVisibilityEnd(MirrorVisibility *visibility);

/* vector.c: the vectors and keys of embedding tables */
typedef struct MirrorVector
{
	gpuvec_vector_kind kind;
	uint32		width;			/* 0 unless it is good */
	const float *elements;		/* in the value itself, or palloc'd */
} MirrorVector;

extern MirrorVectorType MirrorVectorTypeOf(Oid type);
extern bool MirrorKeyType(Oid type);
extern int64 MirrorKey(Datum value, Oid type);
extern void MirrorReadVector(struct varlena *value, const MirrorTarget *target,
							 MirrorVector *vector);
extern void MirrorDecodeVector(struct varlena *value, MirrorVectorType type, MirrorVector *vector);

/* tid_set.c */
extern MirrorTidSet *MirrorTidSetMake(ArrayType *array);
extern bool MirrorTidSetHas(const MirrorTidSet *set, BlockNumber block, OffsetNumber line);
extern bool MirrorTidSetHasBlock(const MirrorTidSet *set, BlockNumber block);

#endif							/* GPUVEC_MIRROR_H */
