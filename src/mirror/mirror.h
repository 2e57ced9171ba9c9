/*-------------------------------------------------------------------------
 *
 * mirror.h
 *	  The engine's copy of a column of a table: is it resident, is it fresh,
 *	  and what does a search of it give under a snapshot?
 *
 *-------------------------------------------------------------------------
 */
#ifndef GPUVEC_MIRROR_H
#define GPUVEC_MIRROR_H

#include "postgres.h"

#include "common/measure.h"
#include "common/protocol.h"
#include "executor/tuptable.h"
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
 * A column of a relation with storage, or (embedding tables) two: of vectors and of
 * keys.  The relation is open and locked.
 */
typedef struct MirrorTarget
{
	Relation	rel;
	AttrNumber	attnum;
	AttrNumber	key_attnum;		/* InvalidAttrNumber: a column of sets */
	Oid			key_type;		/* int2, int4 or int8 */
	MirrorVectorType vector_type;
	MirrorMode	mode;
	gpuvec_mirror_key key;
} MirrorTarget;

/* One result, as it comes from the engine */
typedef gpuvec_hit MirrorHit;

static inline void
MirrorHitTid(const MirrorHit *hit, ItemPointer tid)
{
	ItemPointerSet(tid, gpuvec_hit_block(hit->place), gpuvec_hit_line(hit->place));
}

/* One query and its results; ids are ascending and distinct */
typedef struct MirrorQuery
{
	const uint16 *ids;
	uint32		len;
	bool		skip;			/* a NULL query: no rows */

	MirrorHit  *hits;			/* visible rows, best first */
	uint64		nhits;
	uint64		maxhits;		/* room there; 0: they lie in the engine's answer */

	bool		resumes;		/* only rows behind these */
	double		resume_score;
	uint64		resume_tid;

	/* while searching */
	bool		done;
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
	MemoryContext context;		/* hits live here */
	uint64		engine_us;		/* time spent in the engine */
} MirrorSearch;

/* mirror.c */
extern void MirrorDescribe(Relation rel, AttrNumber attnum, MirrorTarget *target);
extern void MirrorDescribeEmbedding(Relation rel, AttrNumber key_attnum, AttrNumber attnum,
									MirrorTarget *target);
extern uint64 MirrorKnownRefresh(const MirrorTarget *target);
extern void MirrorRememberRefresh(const MirrorTarget *target, uint64 refresh);
extern void MirrorReportLost(void) pg_attribute_noreturn();
extern void MirrorReportEvicted(MirrorTarget *target) pg_attribute_noreturn();
extern bool MirrorTopK(MirrorTarget *target, MirrorSearch *search, const char **reason);
extern bool MirrorPrewarm(MirrorTarget *target, Snapshot snapshot, uint64 *nrows,
						  const char **reason);

/* load.c: all return false when the connection was lost */
extern XLogRecPtr MirrorPosition(void);
extern bool MirrorState(const gpuvec_mirror_key *key, gpuvec_state *state);
extern bool MirrorLoad(MirrorTarget *target, Snapshot snapshot, gpuvec_state *state);
extern bool MirrorEnsure(MirrorTarget *target, Snapshot snapshot, XLogRecPtr position,
						 gpuvec_state *state);

/* visibility.c */
typedef struct MirrorVisibility MirrorVisibility;
extern MirrorVisibility *MirrorVisibilityBegin(MirrorTarget *target, Snapshot snapshot);
extern BlockNumber MirrorVisibilityMapPages(MirrorVisibility *visibility);
extern uint64 MirrorVisibilityNumber(const MirrorVisibility *visibility);
extern void MirrorVisibilityTakeMap(MirrorVisibility *visibility, uint64 refresh);
extern void MirrorVisibilityCopyMap(MirrorVisibility *visibility, uint64 refresh);
extern const uint8 *MirrorVisibilityMap(const MirrorVisibility *visibility, Size *bytes);
extern bool MirrorRowVisible(MirrorVisibility *visibility, ItemPointer tid);
extern bool MirrorVisible(MirrorVisibility *visibility, const gpuvec_hit *hit,
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

#endif							/* GPUVEC_MIRROR_H */
