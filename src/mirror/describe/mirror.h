/*-------------------------------------------------------------------------
 *
 * mirror.h
 *	  Mirrors: the engine's copies of table columns, and searches of them.
 *
 * There are two kinds of mirrors.  A plain mirror has an entry for each row
 * version, under the version's own tid.  A rooted mirror, of an indexed
 * column, has an entry for each HOT chain, under the tid of its root line
 * pointer, as an index has.  All versions of a chain have the same set.  (For
 * snapshots taken in recovery they may not; these do not use rooted mirrors,
 * see index/recovery.c.)
 *
 * The mirror of an index with an expression or a predicate is rooted as well.
 * It is read from the pages of the index, not of the table.
 *
 *-------------------------------------------------------------------------
 */
#ifndef GPUVEC_MIRROR_H
#define GPUVEC_MIRROR_H

#include "postgres.h"

#include "core/measure.h"
#include "core/protocol_sets.h"
#include "datatype/timestamp.h"
#include "executor/tuptable.h"
#include "idvec/idvec.h"
#include "mirror/describe/filter_key.h"
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

/* How an embedding table stores its vectors */
typedef enum MirrorVectorType
{
	MIRROR_NO_VECTOR,			/* the column has another type */
	MIRROR_FLOAT4_ARRAY,
	MIRROR_FLOAT8_ARRAY,
	MIRROR_VECTOR,				/* pgvector's */
	MIRROR_HALFVEC
} MirrorVectorType;

/*
 * A column of a relation that has storage; of an embedding table two columns,
 * of vectors and of keys.  The relation is open and locked, and so is the
 * index if there is one.
 */
typedef struct MirrorTarget
{
	Relation	rel;
	Relation	index;			/* the index that the mirror is described by,
								 * or NULL */
	Oid			serving;		/* index on the column that functions may use,
								 * if described without an index */
	bool		passing;		/* an index may be used later, though nothing
								 * changes by then */
	Oid			followed;		/* if fed: the index that is the feed, ... */
	Oid			followed_file;	/* ... its relfilenumber, ... */
	Oid			followed_tablespace;	/* ... and tablespace */
	AttrNumber	attnum;			/* 0: an expression of the index */
	AttrNumber	key_attnum;		/* InvalidAttrNumber: a column of sets */
	Oid			key_type;		/* int2, int4 or int8 */
	MirrorVectorType vector_type;
	FilterColumns filters;		/* those of the index */
	MirrorMode	mode;
	bool		fed;			/* the index is the mirror's feed (feed.h) */
	uint8		build[16];		/* if fed: identifies the build of the index */
	gpuvec_mirror_key key;
} MirrorTarget;

/*
 * The engine's `line` of a row: the offset number of a line pointer, and in
 * the lowest bit whether that is the row version's own line pointer.  If not,
 * it is the root line pointer of the row's HOT chain.
 */
#define mirror_line(offset, itself) ((uint16) ((offset) << 1 | ((itself) ? 1 : 0)))
#define mirror_line_offset(line)	((OffsetNumber) ((line) >> 1))
#define mirror_line_itself(line)	(((line) & 1) != 0)

/*
 * Where to resume behind a hit: behind its line pointer, no matter whether
 * that stands for a row version or for a HOT chain by then.  (An update that
 * made it stand for its chain may be rolled back.)
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
	/* the upper bits of a place are the tid */
	return a->place < b->place ? -1 : a->place > b->place;
}

/*
 * A set of rows of a table: tids as gpuvec_tid(block, offset), ascending and
 * distinct
 */
typedef struct MirrorTidSet
{
	uint64	   *tids;
	uint64		n;
} MirrorTidSet;

/* Rows by pages, as in a gpuvec_result; they lie in the engine's answer */
typedef struct MirrorPages
{
	const char *data;			/* NULL: none */
	Size		bytes;
	uint64		nrows;
} MirrorPages;

/* One query and its results */
typedef struct MirrorQuery
{
	const struct varlena *value;	/* a set, or a vector if the scoring is
									 * sparse; NULL: a NULL query */
	gpuvec_sparse vector;		/* its ids and values; point into it */
	bool		skip;			/* return no rows: a NULL query, or no score
								 * can be above */

	bool		has_above;		/* only rows whose score is greater than this */
	double		above;

	MirrorHit  *hits;			/* visible rows, best first */
	uint64		nhits;
	uint64		maxhits;		/* allocated length of hits[]; 0: it lies in
								 * the engine's answer */
	MirrorPages pages;			/* rows without scores, in place of hits, if
								 * the search wants roots in any order */
	uint64		counted;		/* rows that the engine has counted */
	const uint64 *groups;		/* of these rows, by the search's grouping; or
								 * those of all pairs of queries */
	uint64		ngroups;

	bool		resumes;		/* only rows behind (resume_score, resume_tid) */
	double		resume_score;
	uint64		resume_tid;

	const gpuvec_filter *filter;	/* only rows that pass; NULL: all rows */
	bool		disjoint;		/* with a filter: rows without a common id are
								 * welcome, by weights those of any score;
								 * never if they rank anyway */
	uint64		passed;			/* at least as many rows pass as the engine's
								 * last answer said; see gpuvec_result */
	bool		has_disjoint;	/* that answer ranks such rows, ... */
	bool		lost_disjoint;	/* ... or one before did, and this one does
								 * not */

	/* state while searching */
	bool		done;
	bool		abandoned;		/* max_looked was reached: hits[] is not
								 * complete */
	uint64		looked;			/* rows from the engine that were looked at */
	bool		has_after;		/* ask for rows behind (after_score,
								 * after_tid) */
	double		after_score;
	uint64		after_tid;
} MirrorQuery;

/* Pages whose rows are counted (ask/visible_pages.h) */
typedef struct MirrorVisiblePages MirrorVisiblePages;

/* What all queries of a call have in common */
typedef struct MirrorSearch
{
	gpuvec_scoring scoring;
	uint64		k;				/* UINT64_MAX: all */
	bool		has_min_score;
	double		min_score;
	double		floor;			/* by a measure of vectors, without min_score:
								 * only rows whose score is greater */
	MirrorQuery *queries;
	uint32		nqueries;
	Snapshot	snapshot;
	bool		roots;			/* return the entries of a rooted mirror,
								 * visible or not */
	bool		unordered;		/* k is UINT64_MAX, and rows may come in any
								 * order */
	const MirrorTidSet *among;	/* only these rows; NULL: all rows */
	double		share;			/* with among: its estimated fraction of the
								 * table's rows */
	uint64		max_looked;		/* with among: abandon a query after this many
								 * rows */
	MirrorVisiblePages *counts; /* with unordered roots of one query: rows of
								 * these pages are counted, not returned, if
								 * the engine can; else NULL */
	const gpuvec_grouping *grouping;	/* of the rows that are counted; NULL:
										 * they are not grouped */
	bool		overlaps;		/* with counts, of several queries: the rows
								 * of each pair are counted, and all others
								 * returned as those of the first */
	MemoryContext context;		/* hits live here */
	uint64		engine_us;		/* time spent in the engine, all requests
								 * together */
} MirrorSearch;

/* True if a query returns rows whose sets are null, by its filter */
static inline bool
MirrorWantsNulls(const gpuvec_filter *filter)
{
	for (uint32 i = 0; filter != NULL && i < filter->n; i++)
		if (filter->conditions[i].column == 0 && filter->conditions[i].kind == GPUVEC_IS_NULL)
			return true;
	return false;
}

/* Let a query ask for rows like a set, which must stay valid */
static inline void
MirrorSetQuery(MirrorQuery *query, const IdSet *set)
{
	query->value = (const struct varlena *) set;
	query->vector.ids = idset_span(set);
}

/* Let a query ask for rows like a vector, which must stay valid */
static inline void
MirrorSetVectorQuery(MirrorQuery *query, const IdVec *vector)
{
	query->value = (const struct varlena *) vector;
	query->vector = idvec_sparse(vector);
}

/*
 * Rank a row with so many common ids under this tid (gpuvec_tid).  Returns
 * false if it does not qualify.  By a measure of sets one without a common id
 * may not rank, and by one of vectors one whose score is not above the floor,
 * unless min_score says otherwise.
 */
static inline bool
MirrorRank(const MirrorSearch *search, const MirrorQuery *query, uint64 tid,
		   const gpuvec_sparse *row, uint32 common, bool newer, MirrorHit *hit)
{
	if (common == 0 && !search->scoring.sparse && !query->disjoint &&
		!gpuvec_ranks_disjoint(search->scoring.measure))
		return false;
	hit->score = idvec_score(&search->scoring, &query->vector, row, common);
	hit->place = gpuvec_hit_place(tid, common, newer);
	if (search->scoring.sparse && !search->has_min_score && !query->disjoint &&
		hit->score <= search->floor)
		return false;
	return !(search->has_min_score && hit->score < search->min_score) &&
		!(query->has_above && hit->score <= query->above);
}

/*
 * target.c.  MirrorFollow: let the mirror follow target->index as its feed.
 * In a copied database the index has the build id of the original.  Its feed
 * must be another one, so the key's meaning enters target->build.
 * MirrorFollowServing: the same with the index that functions may use, unless
 * somebody has locked it.
 */
extern Relation MirrorSource(const MirrorTarget *target);
extern void MirrorDescribe(Relation rel, AttrNumber attnum, MirrorTarget *target);
extern void MirrorDescribeIndex(Relation rel, Relation index, MirrorTarget *target);
extern void MirrorFollow(MirrorTarget *target);
extern void MirrorFollowServing(MirrorTarget *target);
extern Oid	MirrorServingIndex(const MirrorTarget *target);
extern bool MirrorIndexFile(const MirrorTarget *target, Oid *tablespace, Oid *file);
extern void MirrorDescribeEmbedding(Relation rel, AttrNumber key_attnum, AttrNumber attnum,
									MirrorTarget *target);

/* True if the search that begins has a snapshot that was taken in recovery */
extern bool MirrorSnapshotOfRecovery(void);

/*
 * described.c.  MirrorDescribeAgain: describe a column of sets of a locked
 * relation, and follow its index, as before.  False: that is not known, or
 * does not hold any more.  The caller has accepted invalidations since it has
 * taken the snapshot.  MirrorDescribedKeep: keep a description that was begun
 * at the time that MirrorDescribedBegin() has returned.  Of the column its
 * name is kept, and the type that its type was found to be.
 */
extern bool MirrorDescribeAgain(Relation rel, const char *column, Oid idset_type,
								MirrorTarget *target);
extern uint64 MirrorDescribedBegin(void);
extern void MirrorDescribedKeep(uint64 begun, const char *column, Oid idset_type,
								const MirrorTarget *target);

/*
 * search_mirror.c.  Find the k best rows of the target for all queries.
 * False, with a reason: there is no engine, or it cannot serve the search.
 */
extern bool MirrorTopK(MirrorTarget *target, MirrorSearch *search, const char **reason);

/*
 * count_rows.c.  Count the rows that the query of a search for unordered roots
 * finds, and the snapshot sees.  False: as above; without a reason, that is
 * not known in this way.
 *
 * If the search has a grouping, or counts overlaps, other rows than those that
 * were seen are not fetched.  What is returned of them is palloc'd.
 */
typedef struct MirrorCount
{
	uint64		seen;			/* rows of pages all of whose rows everybody
								 * sees */
	uint64		fetched;		/* others */

	/* with a grouping, or overlaps */
	uint64	   *groups;			/* of the rows that were seen; or how many
								 * each pair of queries finds */
	uint64		ngroups;		/* or pairs */
	uint64	   *roots;			/* [nroots] tids of other rows, which the
								 * snapshot may not see */
	uint64		nroots;
} MirrorCount;

extern bool MirrorCountRows(MirrorTarget *target, MirrorSearch *search, MirrorCount *count,
							const char **reason);

/*
 * Count the rows that the mirror has, and the engine finds, whether the
 * snapshot sees them or not.  The search has a grouping.  False: they cannot
 * be counted.
 */
extern bool MirrorEstimateRows(MirrorTarget *target, MirrorSearch *search, MirrorCount *count,
							   const char **reason);

/*
 * answer_pages.c.  The rows of pages as gpuvec_tid(block, line), in the order
 * of the pages; tids[] has room for all.
 */
extern void MirrorPagesTids(const MirrorPages *pages, uint64 *tids);

/* Forget what queries have found so far */
extern void MirrorSearchReset(MirrorSearch *search);

/* search_request.c */
extern double MirrorRowsToLookAt(const MirrorSearch *search, uint64 n);

/* refusal.c: when the engine cannot serve a request, or keep a mirror */
extern bool MirrorMayTry(const MirrorTarget *target, int64 *claim);
extern void MirrorNoteRefusal(const MirrorTarget *target, int64 began);
extern void MirrorRefuseBusy(const MirrorTarget *target);
extern void MirrorRefuseStalled(const MirrorTarget *target);
extern void MirrorRefuseEvicted(const MirrorTarget *target);
extern void MirrorRefuseLost(const MirrorTarget *target, const char **reason);
extern bool MirrorRefused(const char **reason);

/* full_xid.c */
extern uint64 MirrorFullXid(TransactionId xid);
extern uint64 MirrorSnapshotXmin(Snapshot snapshot);

/* visibility.c */
typedef struct MirrorVisibility MirrorVisibility;
typedef void (*MirrorVisitor) (void *arg, const gpuvec_sparse *row);
extern MirrorVisibility *MirrorVisibilityBegin(MirrorTarget *target, Snapshot snapshot);
extern BlockNumber MirrorVisibilityMapPages(MirrorVisibility *visibility);
extern uint64 MirrorVisibilityNumber(const MirrorVisibility *visibility);
extern void MirrorVisibilityTakeMap(MirrorVisibility *visibility, uint64 refresh);
extern uint8 *MirrorReadMap(Relation rel, Size *bytes);
extern uint64 MirrorCountVisible(MirrorVisibility *visibility, const uint64 *roots, uint64 n);
extern const uint8 *MirrorVisibilityMap(const MirrorVisibility *visibility, Size *bytes);
extern void MirrorVisibilityFetchAll(MirrorVisibility *visibility);
extern bool MirrorVisibilityKnowsRoot(const MirrorVisibility *visibility, const gpuvec_hit *hit);
extern void MirrorVerifyRow(MirrorVisibility *visibility, uint64 tid, const MirrorQuery *query,
							const MirrorSearch *search);
extern bool MirrorPageHasMember(MirrorVisibility *visibility, BlockNumber block,
								OffsetNumber before);
extern void MirrorVisitVisible(MirrorVisibility *visibility, const uint64 *roots, uint64 n,
							   MirrorVisitor visit, void *arg);
extern void MirrorRowsVisible(MirrorVisibility *visibility, const uint64 *tids, uint64 n,
							  bool *visible);
extern bool MirrorVisible(MirrorVisibility *visibility, gpuvec_hit *hit,
						  const MirrorQuery *query, const MirrorSearch *search);
extern void MirrorVisibilityEnd(MirrorVisibility *visibility);

/* Let go of the page that was fetched last: others come before the next */
extern void MirrorVisibilityRest(MirrorVisibility *visibility);

/* vector.c: the vectors and keys of embedding tables */
typedef struct MirrorVector
{
	gpuvec_vector_kind kind;
	uint32		width;			/* number of elements; 0 unless the vector is
								 * good */
	const float *elements;		/* point into the value, or are palloc'd */
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
