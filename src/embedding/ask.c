/*-------------------------------------------------------------------------
 *
 * ask.c
 *	  Asking the engine for vectors.
 *
 * Every vector that is read enters the answer, so what the snapshot sees has to be
 * known before the engine sums.  It may use rows of pages that are proven
 * all-visible, by the order of things that visibility.c explains: the number of the
 * mirror's last refresh is asked for, then the visibility map is read, and both go
 * with the request.  The engine answers with the other rows that have one of the
 * keys; they are looked at in the table, and the request goes out once more with
 * the verdicts.  A verdict holds for as long as the snapshot, whatever becomes of
 * the mirror: what the snapshot sees cannot leave its place, and what comes to a
 * place later the snapshot does not see.  Rows that come into the mirror meanwhile
 * just make one more round.
 *
 * The same goes for the number and the map: what they prove of a page they prove for
 * as long as the snapshot and the engine live, for a page that changes is read again
 * under a greater number.  So where many small requests follow one another, the map is
 * read once (EmbeddingSight), and the engine keeps it as well.
 *
 *-------------------------------------------------------------------------
 */
#include "gpuvec.h"

#include "embedding/embedding_table.h"
#include "link/engine_link.h"
#include "miscadmin.h"
#include "storage/predicate.h"

/*
 * As for searches: what reading a page of the visibility map costs, and asking for a
 * number, in rows that are fetched.  Without the map there is a second trip to the
 * engine, which costs as much as some pages.
 */
#define MAP_PAGE_ROWS		4
#define MAP_ASK_ROWS		256
#define MAP_TRIP_PAGES		8

/* Pages of the visibility map that are kept, at most: of relations of 32 GB */
#define MAX_KEPT_PAGES		128

/* A number and the map that was read behind it: plain memory, without locks or pins */
struct EmbeddingSight
{
	MemoryContext context;
	uint64		rows;			/* that were asked for without a map */
	gpuvec_mirror_key key;		/* of the mirror whose number it is */
	uint64		generation;		/* of the connection: engines count anew */
	uint64		known;			/* 0: there is no map */
	uint8	   *map;
	Size		map_bytes;
	uint64		serial;			/* of all maps of this process */
};

/* The map that the engine keeps for this session */
static uint64 kept_serial = 0;
static uint64 kept_generation = 0;
static uint64 last_serial = 0;

/* Requests that find the mirror gone */
#define ASK_ATTEMPTS		100

/* A request, and what it needs to be repeated */
typedef struct Asking Asking;

struct Asking
{
	EmbeddingTable *table;
	MirrorTarget *target;
	EmbeddingVerdicts *verdicts;
	MirrorVisibility *visibility;
	uint64		rows;			/* about as many will be read */
	gpuvec_freshness need;
	uint64		known;
	const uint8 *map;			/* NULL: not read */
	Size		map_bytes;
	EmbeddingSight *sight;		/* whose map it is; NULL: nobody's */

	/* sends the request and reads the answer; false: the connection was lost */
	bool		(*call) (Asking *asking, EmbeddingAnswer *answer);
	const EmbeddingBags *bags;
	gpuvec_embedding_request embed;
	const EmbeddingNearest *nearest;
};

/* A sight without a map */
EmbeddingSight *
EmbeddingSightMake(MemoryContext context)
{
	EmbeddingSight *sight = MemoryContextAllocZero(context, sizeof(EmbeddingSight));

	sight->context = context;
	return sight;
}

/* Use the map of a sight, if it is of this mirror and engine */
static bool
use_sight(Asking *asking, EmbeddingSight *sight)
{
	if (sight->known == 0 || sight->generation != GpuvecLinkGeneration() ||
		memcmp(&sight->key, &asking->target->key, sizeof(gpuvec_mirror_key)) != 0)
		return false;
	asking->known = sight->known;
	asking->map = sight->map;
	asking->map_bytes = sight->map_bytes;
	asking->sight = sight;
	return true;
}

/* Keep the map that was read */
static void
keep_sight(Asking *asking, EmbeddingSight *sight)
{
	if (asking->map_bytes == 0)
		return;
	if (sight->map)
		pfree(sight->map);
	sight->known = 0;
	sight->map = MemoryContextAlloc(sight->context, asking->map_bytes);
	memcpy(sight->map, asking->map, asking->map_bytes);
	sight->map_bytes = asking->map_bytes;
	sight->key = asking->target->key;
	sight->generation = GpuvecLinkGeneration();
	sight->serial = ++last_serial;
	sight->known = asking->known;
	(void) use_sight(asking, sight);
}

/* Read the visibility map if it will save more than it costs; false: connection lost */
static bool
take_map(Asking *asking)
{
	MirrorTarget *target = asking->target;
	EmbeddingSight *sight = asking->table->sight;
	uint64		rows = asking->rows;
	BlockNumber pages;
	gpuvec_state state;
	uint64		refresh;

	if (sight && use_sight(asking, sight))
		return true;
	pages = MirrorVisibilityMapPages(asking->visibility);
	if (pages > MAX_KEPT_PAGES)
		sight = NULL;
	if (sight)
		rows = sight->rows += rows;
	if (pages == 0 || (pages > MAP_TRIP_PAGES && rows < (uint64) pages * MAP_PAGE_ROWS))
		return true;
	refresh = MirrorKnownRefresh(target);
	if (rows >= MAP_ASK_ROWS)
	{
		if (!MirrorState(&target->key, &state))
			return false;
		if (state.state != GPUVEC_READY &&
			!MirrorEnsure(target, asking->table->snapshot,
						  &(gpuvec_freshness) {.position = MirrorPosition()}, NULL, NULL, &state))
			return false;
		refresh = state.refresh;
	}
	GPUVEC_INJECTION("embed-before-map");
	if (refresh == 0)
		return true;
	MirrorVisibilityCopyMap(asking->visibility, refresh);
	asking->known = refresh;
	asking->map = MirrorVisibilityMap(asking->visibility, &asking->map_bytes);
	if (sight)
		keep_sight(asking, sight);
	return true;
}

/* Does the engine keep the map that is in use?  If not, it is to keep it from now on. */
static uint32
map_flags(const Asking *asking)
{
	if (asking->sight == NULL)
		return 0;
	if (asking->sight->serial == kept_serial && kept_generation == GpuvecLinkGeneration())
		return GPUVEC_EMBEDDING_KEPT_MAP;
	return GPUVEC_EMBEDDING_KEEP_MAP;
}

/* Gather, pool, or compute gradients; the answer is in the current memory context */
static bool
call_embed(Asking *asking, EmbeddingAnswer *answer)
{
	static const char zeros[8] = {0};
	const EmbeddingBags *bags = asking->bags;
	gpuvec_embedding_request *head = &asking->embed;
	GpuvecPiece pieces[9];
	GpuvecReply reply;
	uint32		map = map_flags(asking);
	Size		map_bytes = map & GPUVEC_EMBEDDING_KEPT_MAP ? 0 : asking->map_bytes;
	Size		body;
	Size		found = 0;
	Size		keys = 0;
	int			n = 0;

	head->position = asking->need.position;
	head->known = asking->known;
	head->flags = (head->flags & ~(GPUVEC_EMBEDDING_KEEP_MAP | GPUVEC_EMBEDDING_KEPT_MAP)) | map;
	head->nverdicts = asking->verdicts->n;
	head->map_bytes = TYPEALIGN(8, map_bytes);
	pieces[n++] = (GpuvecPiece) {head, sizeof(*head)};
	pieces[n++] = (GpuvecPiece) {bags->keys, bags->nkeys * sizeof(int64)};
	if (head->op != GPUVEC_EMBEDDING_GATHER)
		pieces[n++] = (GpuvecPiece) {bags->offsets, (bags->nbags + 1) * sizeof(uint64)};
	pieces[n++] = (GpuvecPiece) {asking->verdicts->verdicts, head->nverdicts * sizeof(uint64)};
	if (bags->weights)
	{
		pieces[n++] = (GpuvecPiece) {bags->weights, bags->nkeys * sizeof(float)};
		pieces[n++] = (GpuvecPiece) {zeros, bags->nkeys % 2 * sizeof(float)};
	}
	if (bags->ngradient > 0)
	{
		pieces[n++] = (GpuvecPiece) {bags->gradient, bags->ngradient * sizeof(float)};
		pieces[n++] = (GpuvecPiece) {zeros, bags->ngradient % 2 * sizeof(float)};
	}
	StaticAssertStmt((BLCKSZ - MAXALIGN(SizeOfPageHeaderData)) % 8 == 0,
					 "pages of the visibility map need padding");
	pieces[n++] = (GpuvecPiece) {asking->map, map_bytes};
	if (!GpuvecLinkCall(GPUVEC_MSG_EMBEDDING, pieces, n, GPUVEC_MSG_EMBEDDING_ANSWER,
						sizeof(gpuvec_embedding_answer), &reply))
		return false;
	if (map & GPUVEC_EMBEDDING_KEEP_MAP)
	{
		kept_serial = asking->sight->serial;
		kept_generation = GpuvecLinkGeneration();
	}

	memcpy(&answer->head, reply.data, sizeof(gpuvec_embedding_answer));
	if (answer->head.status == GPUVEC_EMBEDDING_DONE && (head->flags & GPUVEC_EMBEDDING_FOUND))
		found = TYPEALIGN(8, bags->nkeys);
	if (answer->head.status == GPUVEC_EMBEDDING_DONE && head->op == GPUVEC_EMBEDDING_GRAD)
		keys = answer->head.nrows * sizeof(int64);
	body = answer->head.status == GPUVEC_EMBEDDING_DONE ? sizeof(float) :
		answer->head.status == GPUVEC_EMBEDDING_UNDECIDED ? sizeof(uint64) : 0;
	if (reply.length != sizeof(gpuvec_embedding_answer) + found + keys + answer->head.count * body)
		ereport(ERROR,
				(errcode(ERRCODE_PROTOCOL_VIOLATION),
				 errmsg("invalid message from the gpuvec engine")));
	answer->body = reply.data + sizeof(gpuvec_embedding_answer);
	answer->found = answer->body;
	answer->keys = (const int64 *) (answer->found + found);
	answer->elements = (const float *) (answer->found + found + keys);
	asking->table->engine_us += answer->head.engine_us;
	return true;
}

/* Find the nearest rows */
static bool
call_nearest(Asking *asking, EmbeddingAnswer *answer)
{
	static const char zeros[8] = {0};
	const EmbeddingNearest *nearest = asking->nearest;
	gpuvec_nearest_head head;
	GpuvecPiece pieces[6];
	GpuvecReply reply;
	uint64		nfloats = (uint64) nearest->nqueries * nearest->width;
	Size		counts = 0;
	Size		body = 0;

	memset(&head, 0, sizeof(head));
	head.key = asking->target->key;
	head.position = asking->need.position;
	head.known = asking->known;
	head.metric = nearest->metric;
	head.k = nearest->k;
	head.nqueries = nearest->nqueries;
	head.width = nearest->width;
	head.nverdicts = asking->verdicts->n;
	head.nexcluded = nearest->nexcluded;
	head.map_bytes = TYPEALIGN(8, asking->map_bytes);
	pieces[0] = (GpuvecPiece) {&head, sizeof(head)};
	pieces[1] = (GpuvecPiece) {asking->verdicts->verdicts, head.nverdicts * sizeof(uint64)};
	pieces[2] = (GpuvecPiece) {nearest->excluded, nearest->nexcluded * sizeof(int64)};
	pieces[3] = (GpuvecPiece) {nearest->queries, nfloats * sizeof(float)};
	pieces[4] = (GpuvecPiece) {zeros, nfloats % 2 * sizeof(float)};
	pieces[5] = (GpuvecPiece) {asking->map, asking->map_bytes};
	if (!GpuvecLinkCall(GPUVEC_MSG_NEAREST, pieces, lengthof(pieces), GPUVEC_MSG_EMBEDDING_ANSWER,
						sizeof(gpuvec_embedding_answer), &reply))
		return false;

	memcpy(&answer->head, reply.data, sizeof(gpuvec_embedding_answer));
	answer->body = reply.data + sizeof(gpuvec_embedding_answer);
	if (answer->head.status == GPUVEC_EMBEDDING_DONE)
	{
		counts = TYPEALIGN(8, nearest->nqueries * sizeof(uint32));
		body = sizeof(gpuvec_near);
	}
	else if (answer->head.status == GPUVEC_EMBEDDING_UNDECIDED)
		body = sizeof(uint64);
	if (reply.length != sizeof(gpuvec_embedding_answer) + counts + answer->head.count * body)
		ereport(ERROR,
				(errcode(ERRCODE_PROTOCOL_VIOLATION),
				 errmsg("invalid message from the gpuvec engine")));
	answer->counts = (const uint32 *) answer->body;
	answer->rows = (const gpuvec_near *) (answer->body + counts);
	asking->table->engine_us += answer->head.engine_us;
	return true;
}

/*
 * Look at the rows that the engine names, and merge what is seen into the verdicts.
 * Each must be a new one, so that asking again comes to an end.
 */
static void
decide(Asking *asking, const EmbeddingAnswer *answer)
{
	const uint64 *tids = (const uint64 *) answer->body;
	EmbeddingVerdicts *old = asking->verdicts;
	uint64		n = answer->head.count;
	uint64	   *merged = MemoryContextAllocHuge(CurrentMemoryContext, (old->n + n) * sizeof(uint64));
	uint64		from = 0;
	uint64		to = 0;

	GPUVEC_INJECTION("embed-before-fetch");
	for (uint64 i = 0; i < n; i++)
	{
		ItemPointerData tid;

		CHECK_FOR_INTERRUPTS();
		while (from < old->n && gpuvec_verdict_tid(old->verdicts[from]) < tids[i])
			merged[to++] = old->verdicts[from++];
		if (from < old->n && gpuvec_verdict_tid(old->verdicts[from]) == tids[i])
			ereport(ERROR,
					(errcode(ERRCODE_PROTOCOL_VIOLATION),
					 errmsg("invalid message from the gpuvec engine")));
		ItemPointerSet(&tid, gpuvec_tid_block(tids[i]), mirror_line_offset(gpuvec_tid_line(tids[i])));
		merged[to++] = gpuvec_verdict(tids[i], MirrorRowVisible(asking->visibility, &tid));
	}
	while (from < old->n)
		merged[to++] = old->verdicts[from++];
	if (old->verdicts)
		pfree(old->verdicts);
	old->verdicts = merged;
	old->n = to;
}

/* Ask until there is an answer.  False: the connection was lost. */
static bool
ask(Asking *asking, EmbeddingAnswer *answer)
{
	for (int attempt = 0; attempt < ASK_ATTEMPTS;)
	{
		gpuvec_freshness now = {.position = MirrorPosition()};
		gpuvec_state state;

		GPUVEC_INJECTION("embed-before-request");
		if (!asking->call(asking, answer))
			return false;
		if (answer->head.status == GPUVEC_EMBEDDING_STALE)
		{
			if (!MirrorEnsure(asking->target, asking->table->snapshot,
							  asking->need.position ? &asking->need : &now,
							  attempt == 0 ? &answer->head.state : NULL, NULL, &state))
				return false;
			attempt++;
			continue;
		}
		/* fresh for this snapshot from now on */
		asking->need = (gpuvec_freshness) {0};
		MirrorRemember(&asking->target->key, &answer->head.state);
		if (answer->head.status != GPUVEC_EMBEDDING_UNDECIDED || answer->head.count == 0)
			return true;
		decide(asking, answer);
		pfree(answer->body - sizeof(gpuvec_embedding_answer));
	}
	MirrorRefuseEvicted(asking->target);
	return false;
}

/* Ask once.  False: the connection was lost. */
static bool
try_ask(Asking *asking, EmbeddingAnswer *answer)
{
	bool		ok;

	asking->known = 0;
	asking->map = NULL;
	asking->map_bytes = 0;
	asking->sight = NULL;
	asking->visibility = MirrorVisibilityBegin(asking->target, asking->table->snapshot);
	PredicateLockRelation(asking->target->rel, asking->table->snapshot);
	ok = take_map(asking);
	GPUVEC_INJECTION("embed-before-position");
	asking->need = (gpuvec_freshness) {0};
	ok = ok && MirrorHowFresh(asking->target, asking->table->snapshot, false, &asking->need) &&
		ask(asking, answer);
	MirrorVisibilityEnd(asking->visibility);
	return ok;
}

/*
 * Ask.  If the engine dies meanwhile, start over, once.  Returns false, with a reason,
 * if there is no engine, or it cannot serve this.
 */
static bool
ask_patiently(Asking *asking, EmbeddingAnswer *answer, const char **reason)
{
	for (int attempt = 0; attempt < 2; attempt++)
	{
		if (GpuvecLinkOpen(true, reason) != GPUVEC_LINK_READY)
			return false;
		if (try_ask(asking, answer))
			return true;
		if (MirrorRefused(reason))
			return false;
		GpuvecLinkClose();
	}
	MirrorRefuseLost(asking->target, reason);
	return false;
}

/*
 * Gather or pool the vectors of a target that has a shared mirror.  Complaints are
 * the caller's to raise.  Returns false, with a reason, if there is no engine.
 */
bool
EmbeddingAsk(EmbeddingTable *table, int target, gpuvec_embedding_op op, uint32 flags,
			 const EmbeddingBags *bags, EmbeddingAnswer *answer, const char **reason)
{
	Asking		asking = {
		.table = table,.target = &table->targets[target],.verdicts = &table->verdicts[target],
		.rows = bags->nkeys,.call = call_embed,.bags = bags
	};

	asking.embed.key = asking.target->key;
	asking.embed.op = op;
	asking.embed.flags = flags | (bags->weights ? GPUVEC_EMBEDDING_WEIGHTED : 0);
	asking.embed.mode = bags->mode;
	asking.embed.missing = bags->missing;
	asking.embed.nkeys = bags->nkeys;
	asking.embed.nbags = bags->nbags;
	asking.embed.ngradient = bags->ngradient;
	return ask_patiently(&asking, answer, reason);
}

/* The same for the nearest rows */
bool
EmbeddingAskNearest(EmbeddingTable *table, int target, const EmbeddingNearest *nearest,
					EmbeddingAnswer *answer, const char **reason)
{
	Asking		asking = {
		.table = table,.target = &table->targets[target],.verdicts = &table->verdicts[target],
		.rows = (uint64) nearest->k * nearest->nqueries,.call = call_nearest,.nearest = nearest
	};

	return ask_patiently(&asking, answer, reason);
}
