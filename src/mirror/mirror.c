/*-------------------------------------------------------------------------
 *
 * mirror.c
 *	  Searching a column of a table through its mirror.
 *
 * The engine returns candidates in order; those that the snapshot does not see
 * are dropped, and the engine is asked for what follows the last candidate
 * until there are k visible ones.  A mirror that was fresh once for a snapshot
 * holds every row the snapshot can see for as long as the snapshot lives, later
 * refreshes and reloads included, so only the first request names a position.
 *
 *-------------------------------------------------------------------------
 */
#include "gpuvec.h"

#include "access/heapam.h"
#include "access/htup_details.h"
#include "access/tableam.h"
#include "access/transam.h"
#include "access/tupdesc_details.h"
#include "access/xact.h"
#include "catalog/catalog.h"
#include "catalog/pg_attribute.h"
#include "catalog/pg_class.h"
#include "common/hashfn.h"
#include "link/link.h"
#include "mirror/mirror.h"
#include "miscadmin.h"
#include "storage/predicate.h"
#include "utils/datum.h"
#include "utils/lsyscache.h"
#include "utils/snapmgr.h"
#include "utils/syscache.h"

/*
 * Reading a page of the visibility map costs about as much as fetching this many
 * rows, and asking for the number of the last refresh as this many.
 */
#define MAP_PAGE_ROWS		4
#define MAP_ASK_ROWS		256

/* Hits that one answer of the engine may have */
#define ANSWER_HITS			(4 * 1024 * 1024)

/* First page of an answer without k, and how it grows */
#define FIRST_ALL_ROWS		8192
#define ALL_ROWS_GROWTH		4

/* Searches that find the mirror gone again before we give up */
#define SEARCH_ATTEMPTS		20

/*
 * Hash of the value that rows lacking the column have: it is in the catalog, so
 * the same file can mean different rows.
 */
static uint64
missing_hash(Relation rel, AttrNumber attnum)
{
	TupleDesc	desc = RelationGetDescr(rel);
	Form_pg_attribute att = TupleDescAttr(desc, attnum - 1);
	struct varlena *value;
	Datum		missing;
	uint64		hash;

	if (!att->atthasmissing || desc->constr == NULL || desc->constr->missing == NULL ||
		!desc->constr->missing[attnum - 1].am_present)
		return 0;
	missing = desc->constr->missing[attnum - 1].am_value;
	if (att->attbyval)
		hash = hash_bytes_extended((const unsigned char *) &missing, sizeof(missing), 0);
	else
	{
		value = PG_DETOAST_DATUM(missing);
		hash = hash_bytes_extended((const unsigned char *) VARDATA_ANY(value),
								   VARSIZE_ANY_EXHDR(value), 0);
	}
	return hash == 0 ? 1 : hash;
}

/* Was this catalog row written by the current transaction? */
static bool
row_is_ours(HeapTuple tuple)
{
	bool		ours = HeapTupleIsValid(tuple) &&
		TransactionIdIsCurrentTransactionId(HeapTupleHeaderGetXmin(tuple->t_data));

	if (HeapTupleIsValid(tuple))
		ReleaseSysCache(tuple);
	return ours;
}

/* Has this very transaction changed what the column means? */
static bool
definition_changed(Relation rel, AttrNumber attnum)
{
	Oid			relid = RelationGetRelid(rel);

	return rel->rd_createSubid != InvalidSubTransactionId ||
		GpuvecRelFirstFileSubid(rel) != InvalidSubTransactionId ||
		row_is_ours(SearchSysCache1(RELOID, ObjectIdGetDatum(relid))) ||
		row_is_ours(SearchSysCache2(ATTNUM, ObjectIdGetDatum(relid),
									Int16GetDatum(attnum)));
}

/* How must this relation be searched? */
static MirrorMode
choose_mode(Relation rel, AttrNumber attnum)
{
	if (rel->rd_tableam != GetHeapamTableAmRoutine() || IsCatalogRelation(rel))
		return MIRROR_NONE;
	if (GpuvecOldSnapshotThresholdActive())
		return MIRROR_NONE;
	if (!RelationNeedsWAL(rel) || definition_changed(rel, attnum))
		return MIRROR_PRIVATE;
	return MIRROR_SHARED;
}

/* Describe a column of an open, locked relation */
void
MirrorDescribe(Relation rel, AttrNumber attnum, MirrorTarget *target)
{
	static uint64 private_ids = 0;

	memset(target, 0, sizeof(*target));
	target->rel = rel;
	target->attnum = attnum;
	target->mode = choose_mode(rel, attnum);
	target->key.database = MyDatabaseId;
	target->key.tablespace = GpuvecRelTablespace(rel);
	target->key.relation = RelationGetRelid(rel);
	target->key.relfilenumber = GpuvecRelFile(rel);
	target->key.type = TupleDescAttr(RelationGetDescr(rel), attnum - 1)->atttypid;
	target->key.attnum = attnum;
	target->key.missing = missing_hash(rel, attnum);
	if (target->mode == MIRROR_PRIVATE)
		target->key.private_id = ((uint64) MyProcPid << 32) | ++private_ids;
}

/* Describe an embedding table: columns of keys and vectors, whose types were checked */
void
MirrorDescribeEmbedding(Relation rel, AttrNumber key_attnum, AttrNumber attnum,
						MirrorTarget *target)
{
	MirrorDescribe(rel, attnum, target);
	if (target->mode == MIRROR_SHARED)
		target->mode = choose_mode(rel, key_attnum);
	target->key_attnum = key_attnum;
	target->key.key_attnum = key_attnum;
	target->key.key_type = TupleDescAttr(RelationGetDescr(rel), key_attnum - 1)->atttypid;
	target->key.key_missing = missing_hash(rel, key_attnum);
	target->key_type = getBaseType(target->key.key_type);
	target->vector_type = MirrorVectorTypeOf(target->key.type);
	target->key.storage = target->vector_type == MIRROR_HALFVEC ? GPUVEC_FLOAT16 :
		gpuvec_vector_storage;
}

/* Make room for n more hits of a query */
static void
reserve_hits(MirrorSearch *search, MirrorQuery *query, uint64 n)
{
	uint64		room = Min(query->nhits + n, search->k);

	if (room <= query->maxhits)
		return;
	if (query->maxhits == 0)
	{
		MirrorHit  *mine = MemoryContextAllocHuge(search->context, room * sizeof(MirrorHit));

		if (query->nhits > 0)
			memcpy(mine, query->hits, query->nhits * sizeof(MirrorHit));
		query->hits = mine;
	}
	else
	{
		room = Max(room, query->maxhits * 2);
		query->hits = repalloc_huge(query->hits, room * sizeof(MirrorHit));
	}
	query->maxhits = room;
}

/*
 * How many rows to ask for, for one query.  A little more than what is missing,
 * so that a few invisible rows cost no second trip.
 */
static uint32
rows_to_ask(const MirrorSearch *search, const MirrorQuery *query, uint32 page)
{
	uint64		missing;

	if (search->k == UINT64_MAX)
		return page;
	missing = search->k - query->nhits;
	if (missing <= GPUVEC_FAST_K)
		return Min(missing + missing / 16 + 2, Max(GPUVEC_FAST_K, missing));
	return Min(missing, GPUVEC_MAX_K);
}

/* The request for those of the queries that need more rows */
typedef struct Request
{
	gpuvec_search head;
	gpuvec_query *queries;
	uint16	   *ids;
	MirrorQuery **whose;
	uint32		n;
	uint64		nids;
} Request;

/* Fill a request from queries [first, last) */
static void
make_request(Request *request, MirrorTarget *target, MirrorSearch *search,
			 const MirrorVisibility *visibility, uint32 first, uint32 last, uint32 page)
{
	uint64		nids = 0;

	for (uint32 i = first; i < last; i++)
		nids += search->queries[i].len;
	request->n = 0;
	request->nids = 0;
	request->queries = palloc0_array(gpuvec_query, last - first);
	request->whose = palloc_array(MirrorQuery *, last - first);
	request->ids = MemoryContextAllocHuge(CurrentMemoryContext, (nids + 1) * sizeof(uint16));

	for (uint32 i = first; i < last; i++)
	{
		MirrorQuery *query = &search->queries[i];
		gpuvec_query *wire = &request->queries[request->n];

		if (query->done)
			continue;
		wire->len = query->len;
		wire->k = rows_to_ask(search, query, page);
		if (search->has_min_score)
		{
			wire->flags |= GPUVEC_QUERY_MIN_SCORE;
			wire->min_score = search->min_score;
		}
		if (query->has_after)
		{
			wire->flags |= GPUVEC_QUERY_AFTER;
			wire->after_score = query->after_score;
			wire->after_tid = query->after_tid;
		}
		if (query->len > 0)
			memcpy(request->ids + request->nids, query->ids, query->len * sizeof(uint16));
		request->nids += query->len;
		request->whose[request->n++] = query;
	}
	memset(&request->head, 0, sizeof(request->head));
	request->head.key = target->key;
	request->head.known = MirrorVisibilityNumber(visibility);
	request->head.measure = search->measure;
	request->head.method = gpuvec_method_choice;
	request->head.nqueries = request->n;
	request->head.nids = request->nids;
}

/* An answer of the engine */
typedef struct Answer
{
	GpuvecReply reply;
	gpuvec_result head;
	const char *nhits;			/* uint32 per query */
	char	   *hits;			/* gpuvec_hit, in all */
} Answer;

/* Ask once; the answer goes to this memory context */
static bool
ask(Request *request, XLogRecPtr position, MemoryContext context, Answer *answer)
{
	MemoryContext old;
	GpuvecPiece pieces[3];
	Size		counts;
	bool		ok;

	request->head.position = position;
	pieces[0] = (GpuvecPiece) {&request->head, sizeof(request->head)};
	pieces[1] = (GpuvecPiece) {request->queries, request->n * sizeof(gpuvec_query)};
	pieces[2] = (GpuvecPiece) {request->ids, request->nids * sizeof(uint16)};
	old = MemoryContextSwitchTo(context);
	ok = GpuvecLinkCall(GPUVEC_MSG_SEARCH, pieces, 3, GPUVEC_MSG_RESULT,
						sizeof(gpuvec_result), &answer->reply);
	MemoryContextSwitchTo(old);
	if (!ok)
		return false;
	memcpy(&answer->head, answer->reply.data, sizeof(gpuvec_result));
	counts = MAXALIGN64((uint64) answer->head.nqueries * sizeof(uint32));
	answer->nhits = answer->reply.data + sizeof(gpuvec_result);
	answer->hits = answer->reply.data + sizeof(gpuvec_result) + counts;
	if (answer->reply.length != sizeof(gpuvec_result) + counts +
		answer->head.nhits * sizeof(gpuvec_hit))
		ereport(ERROR,
				(errcode(ERRCODE_PROTOCOL_VIOLATION),
				 errmsg("invalid message from the gpuvec engine")));
	return true;
}

/*
 * Take the visible rows of one query's answer.  Its first ones stay where they are
 * in the answer, which then has to be kept.
 */
static void
take_hits(MirrorSearch *search, MirrorQuery *query, MirrorVisibility *visibility,
		  MirrorHit *hits, uint32 n, uint32 asked)
{
	if (query->nhits == 0)
	{
		query->hits = hits;
		query->maxhits = 0;
	}
	else
		reserve_hits(search, query, n);
	for (uint32 i = 0; i < n && query->nhits < search->k; i++)
	{
		MirrorHit	hit = hits[i];

		if (MirrorVisible(visibility, &hit, query, search->measure))
			query->hits[query->nhits++] = hit;
		if (i == n - 1)
		{
			query->after_score = hit.score;
			query->after_tid = gpuvec_hit_tid(hit.place);
		}
		CHECK_FOR_INTERRUPTS();
	}
	query->done = n < asked || query->nhits == search->k;
	query->has_after = !query->done;
}

/*
 * Take an answer.  True if some query needs more; *keep: if hits lie in the answer.
 */
static bool
take_answer(MirrorSearch *search, Request *request, Answer *answer,
			MirrorVisibility *visibility, bool *keep)
{
	MirrorHit  *hits = (MirrorHit *) answer->hits;
	uint64		left = answer->head.nhits;
	bool		more = false;

	if (answer->head.nqueries != request->n)
		ereport(ERROR,
				(errcode(ERRCODE_PROTOCOL_VIOLATION),
				 errmsg("invalid message from the gpuvec engine")));
	search->engine_us += answer->head.engine_us;
	for (uint32 i = 0; i < request->n; i++)
	{
		uint32		n;

		memcpy(&n, answer->nhits + i * sizeof(uint32), sizeof(n));
		if (n > left)
			ereport(ERROR,
					(errcode(ERRCODE_PROTOCOL_VIOLATION),
					 errmsg("invalid message from the gpuvec engine")));
		left -= n;
		take_hits(search, request->whose[i], visibility, hits, n, request->queries[i].k);
		*keep |= request->whose[i]->hits == hits && n > 0;
		hits += n;
		more |= !request->whose[i]->done;
	}
	return more;
}

/*
 * The last refresh number that this session was told of, and of which mirror.
 * Any number known before the map is read will do for visibility.c; an old one
 * just proves less.  Numbers of another engine (connection) prove nothing.
 */
static struct
{
	gpuvec_mirror_key key;
	uint64		generation;
	uint64		refresh;
}			last_told;

/* Remember what an answer told */
void
MirrorRememberRefresh(const MirrorTarget *target, uint64 refresh)
{
	last_told.key = target->key;
	last_told.generation = GpuvecLinkGeneration();
	last_told.refresh = refresh;
}

/* A refresh number that is known for this mirror, or 0 */
uint64
MirrorKnownRefresh(const MirrorTarget *target)
{
	if (last_told.generation != GpuvecLinkGeneration() ||
		memcmp(&last_told.key, &target->key, sizeof(target->key)) != 0)
		return 0;
	return last_told.refresh;
}

/* Report that the mirror does not stay for as long as one request takes */
void
MirrorReportEvicted(MirrorTarget *target)
{
	ereport(ERROR,
			(errcode(ERRCODE_INSUFFICIENT_RESOURCES),
			 errmsg("the mirror of relation \"%s\" is evicted before it can be searched",
					RelationGetRelationName(target->rel)),
			 errhint("Increase gpuvec.device_memory.")));
}

/*
 * One request, after which the mirror is known to be fresh.  False: the
 * connection was lost.
 */
static bool
ask_fresh(MirrorTarget *target, MirrorSearch *search, Request *request,
		  XLogRecPtr position, Answer *answer)
{
	for (int attempt = 0; attempt < SEARCH_ATTEMPTS; attempt++)
	{
		gpuvec_state *state = &answer->head.state;

		if (!ask(request, position, search->context, answer))
			return false;
		if (state->state == GPUVEC_READY && state->checked >= position)
		{
			MirrorRememberRefresh(target, state->refresh);
			return true;
		}
		pfree(answer->reply.data);
		if (target->mode == MIRROR_PRIVATE)
		{
			if (!MirrorLoad(target, search->snapshot, state))
				return false;
		}
		else if (!MirrorEnsure(target, search->snapshot,
							   position ? position : MirrorPosition(), state))
			return false;
	}
	MirrorReportEvicted(target);
	return false;
}

/* Search queries [first, last).  False: the connection was lost. */
static bool
search_group(MirrorTarget *target, MirrorSearch *search, MirrorVisibility *visibility,
			 XLogRecPtr position, uint32 first, uint32 last)
{
	uint32		page = FIRST_ALL_ROWS;
	bool		more = true;

	while (more)
	{
		Request		request;
		Answer		answer;
		bool		keep = false;

		make_request(&request, target, search, visibility, first, last, page);
		if (request.n == 0)
			break;
		GPUVEC_INJECTION("search-before-request");
		if (!ask_fresh(target, search, &request, position, &answer))
			return false;
		GPUVEC_INJECTION("search-before-fetch");
		more = take_answer(search, &request, &answer, visibility, &keep);
		if (!keep)
			pfree(answer.reply.data);
		pfree(request.queries);
		pfree(request.whose);
		pfree(request.ids);
		position = 0;			/* fresh for this snapshot from now on */
		page = Min(page * ALL_ROWS_GROWTH, GPUVEC_MAX_K);
	}
	return true;
}

/* Read the visibility map if it will save more than it costs */
static bool
take_map(MirrorTarget *target, MirrorSearch *search, MirrorVisibility *visibility)
{
	double		rows = (double) Min(search->k, FIRST_ALL_ROWS) * search->nqueries;
	BlockNumber pages;
	gpuvec_state state;

	if (target->mode != MIRROR_SHARED)
		return true;
	pages = MirrorVisibilityMapPages(visibility);
	if (pages == 0 || rows < (double) pages * MAP_PAGE_ROWS)
		return true;
	if (rows < MAP_ASK_ROWS)
	{
		uint64		refresh = MirrorKnownRefresh(target);

		GPUVEC_INJECTION("search-before-map");
		if (refresh != 0)
			MirrorVisibilityTakeMap(visibility, refresh);
		return true;
	}
	if (!MirrorState(&target->key, &state))
		return false;
	if (state.state != GPUVEC_READY &&
		!MirrorEnsure(target, search->snapshot, MirrorPosition(), &state))
		return false;
	GPUVEC_INJECTION("search-before-map");
	MirrorVisibilityTakeMap(visibility, state.refresh);
	return true;
}

/* Drop a private mirror */
static void
drop_private(MirrorTarget *target)
{
	gpuvec_drop drop;
	GpuvecPiece piece = {&drop, sizeof(drop)};
	GpuvecReply reply;

	memset(&drop, 0, sizeof(drop));
	drop.database = target->key.database;
	drop.relation = target->key.relation;
	drop.attnum = target->key.attnum;
	drop.private_id = target->key.private_id;
	if (GpuvecLinkCall(GPUVEC_MSG_DROP, &piece, 1, GPUVEC_MSG_COUNT, sizeof(uint64), &reply))
		pfree(reply.data);
}

/* Search once.  False: the connection was lost. */
static bool
try_topk(MirrorTarget *target, MirrorSearch *search)
{
	MirrorVisibility *visibility = MirrorVisibilityBegin(target, search->snapshot);
	uint64		ask = search->k == UINT64_MAX ? FIRST_ALL_ROWS : Min(search->k, GPUVEC_MAX_K);
	uint32		group = Max(ANSWER_HITS / ask, 1);
	XLogRecPtr	position = 0;
	bool		ok;

	PredicateLockRelation(target->rel, search->snapshot);
	ok = take_map(target, search, visibility);
	GPUVEC_INJECTION("search-before-position");
	if (ok && target->mode == MIRROR_SHARED)
		position = MirrorPosition();
	for (uint32 first = 0; ok && first < search->nqueries; first += group)
		ok = search_group(target, search, visibility, position, first,
						  Min(first + group, search->nqueries));
	if (ok && target->mode == MIRROR_PRIVATE)
		drop_private(target);
	MirrorVisibilityEnd(visibility);
	return ok;
}

/* Forget what queries have found so far */
static void
reset_queries(MirrorSearch *search)
{
	for (uint32 i = 0; i < search->nqueries; i++)
	{
		MirrorQuery *query = &search->queries[i];

		query->nhits = query->maxhits = 0;
		query->hits = NULL;
		query->done = query->skip;
		query->has_after = query->resumes;
		query->after_score = query->resume_score;
		query->after_tid = query->resume_tid;
	}
}

/* Report that the engine died twice */
void
MirrorReportLost(void)
{
	ereport(ERROR,
			(errcode(ERRCODE_CONNECTION_FAILURE),
			 errmsg("lost the connection to the gpuvec engine"),
			 errdetail("It was lost twice while it worked on this request."),
			 errhint("See the server log for what the engine said.")));
}

/*
 * The k best rows of the target for all queries.  If the engine dies meanwhile,
 * the mirror is loaded into the next one and searched again, once.  Returns
 * false, with a reason, if there is no engine.
 */
bool
MirrorTopK(MirrorTarget *target, MirrorSearch *search, const char **reason)
{
	for (int attempt = 0; attempt < 2; attempt++)
	{
		if (GpuvecLinkOpen(true, reason) != GPUVEC_LINK_READY)
			return false;
		reset_queries(search);
		if (try_topk(target, search))
			return true;
		GpuvecLinkClose();
	}
	MirrorReportLost();
	return false;
}

/* Load or refresh a mirror.  Returns false, with a reason, without an engine. */
bool
MirrorPrewarm(MirrorTarget *target, Snapshot snapshot, uint64 *nrows, const char **reason)
{
	for (int attempt = 0; attempt < 2; attempt++)
	{
		gpuvec_state state;

		if (GpuvecLinkOpen(true, reason) != GPUVEC_LINK_READY)
			return false;
		if (MirrorEnsure(target, snapshot, MirrorPosition(), &state))
		{
			*nrows = state.nrows;
			return true;
		}
		GpuvecLinkClose();
	}
	MirrorReportLost();
	return false;
}
