/*-------------------------------------------------------------------------
 *
 * ask.c
 *	  Requests to the engine about embedding tables.
 *
 * Every vector that is read enters a sum.  So it must be known which rows the
 * snapshot sees before the engine sums.  The engine may use rows of pages
 * that the snapshot is proven to see: by its xmin (mirror/ask/visibility.c),
 * or by the visibility map and the number that was known before the map was
 * read (mirror/ask/conversation.c).  All three go with the request.  If other
 * rows have one of the keys, the engine answers with their tids.  The session
 * looks at these rows in the table, and sends the request again with its
 * verdicts.
 *
 * A verdict holds for as long as the snapshot, whatever becomes of the
 * mirror: a row version that the snapshot sees cannot leave its tid, and it
 * does not see a version that comes to a tid later.  If rows come into the
 * mirror meanwhile, there is just one more round.
 *
 * For a series of small requests, the map is read only once (MirrorKeptMap),
 * and the engine keeps it as well.
 *
 *-------------------------------------------------------------------------
 */
#include "gpuvec.h"

#include "embedding/embedding_table.h"
#include "mirror/describe/usage.h"
#include "storage/bufpage.h"

/*
 * Without the map there is a second request, which costs as much as reading
 * this many pages of the map
 */
#define MAP_TRIP_PAGES		8

/*
 * The map that the engine keeps for this session: its serial number (0: not
 * known), and the connection that it belongs to
 */
static uint64 engine_map = 0;
static uint64 engine_generation = 0;

/* A question to the engine, and the heads of its requests */
typedef struct Question
{
	EmbeddingTable *table;
	int			target;
	const EmbeddingBags *bags;	/* to gather, pool, or compute gradients; else
								 * NULL */
	gpuvec_embedding_request embedding;
	const EmbeddingNearest *nearest;	/* to find the nearest rows; else NULL */
	const GpuvecReply *ahead;	/* an answer that has come before; NULL: none */
	gpuvec_nearest_head head;
	gpuvec_gram_head gram;		/* if there are neither bags nor nearest */
} Question;

/* A question about all rows is worth reading the map */
#define ALL_ROWS		1e6

static const char zeros[8] = {0};

/* Add a piece to a request */
static void
add_piece(MirrorRequest *request, const void *data, Size size)
{
	Assert(request->npieces < MIRROR_REQUEST_PIECES);
	request->pieces[request->npieces].data = data;
	request->pieces[request->npieces++].size = size;
}

/* Add an array of floats, padded to 8 bytes */
static void
add_floats(MirrorRequest *request, const float *floats, uint64 n)
{
	add_piece(request, floats, n * sizeof(float));
	add_piece(request, zeros, n % 2 * sizeof(float));
}

/*
 * Flags that tell the engine to keep the map, or to use the map that it keeps
 */
static uint32
map_flags(const MirrorConversation *conversation)
{
	if (!conversation->map_kept)
		return 0;
	if (conversation->kept->serial == engine_map && engine_generation == GpuvecLinkGeneration())
		return GPUVEC_EMBEDDING_KEPT_MAP;
	return GPUVEC_EMBEDDING_KEEP_MAP;
}

/* Make the request to gather, pool, or compute gradients */
static void
make_embedding(Question *question, const MirrorConversation *conversation, MirrorRequest *request)
{
	const EmbeddingBags *bags = question->bags;
	const EmbeddingVerdicts *verdicts = &question->table->verdicts[question->target];
	gpuvec_embedding_request *head = &question->embedding;
	uint32		map = map_flags(conversation);
	Size		map_bytes = map & GPUVEC_EMBEDDING_KEPT_MAP ? 0 : conversation->map_bytes;

	/* what the engine keeps is known again when it has answered */
	if (map & GPUVEC_EMBEDDING_KEEP_MAP)
		engine_map = 0;
	head->known = conversation->known;
	head->xmin = MirrorSnapshotXmin(conversation->snapshot);
	head->flags = (head->flags & ~(GPUVEC_EMBEDDING_KEEP_MAP | GPUVEC_EMBEDDING_KEPT_MAP)) | map;
	head->nverdicts = verdicts->n;
	head->map_bytes = TYPEALIGN(8, map_bytes);
	request->type = GPUVEC_MSG_EMBEDDING;
	request->position = &head->position;
	add_piece(request, head, sizeof(*head));
	add_piece(request, bags->keys, bags->nkeys * sizeof(int64));
	if (head->op != GPUVEC_EMBEDDING_GATHER)
		add_piece(request, bags->offsets, (bags->nbags + 1) * sizeof(uint64));
	add_piece(request, verdicts->verdicts, verdicts->n * sizeof(uint64));
	if (bags->weights)
		add_floats(request, bags->weights, bags->nkeys);
	if (bags->ngradient > 0)
		add_floats(request, bags->gradient, bags->ngradient);
	StaticAssertStmt((BLCKSZ - MAXALIGN(SizeOfPageHeaderData)) % 8 == 0,
					 "pages of the visibility map need padding");
	add_piece(request, conversation->map, map_bytes);
}

/* Add the lists of keys that single queries leave out */
static void
add_lists(MirrorRequest *request, const EmbeddingNearest *nearest)
{
	uint32		n = nearest->nqueries;
	uint64	   *offsets = MemoryContextAllocHuge(request->context, (n + (Size) 1) * sizeof(uint64));

	for (uint32 i = 0; i <= n; i++)
		offsets[i] = nearest->offsets[i] - nearest->offsets[0];
	add_piece(request, offsets, (n + (Size) 1) * sizeof(uint64));
	add_piece(request, nearest->listed + nearest->offsets[0], offsets[n] * sizeof(int64));
}

/* Make the request for the nearest rows */
static void
make_nearest(Question *question, const MirrorConversation *conversation, MirrorRequest *request)
{
	const EmbeddingNearest *nearest = question->nearest;
	const EmbeddingVerdicts *verdicts = &question->table->verdicts[question->target];
	gpuvec_nearest_head *head = &question->head;

	memset(head, 0, sizeof(*head));
	head->key = conversation->target->key;
	head->known = conversation->known;
	head->xmin = MirrorSnapshotXmin(conversation->snapshot);
	head->metric = nearest->metric;
	head->k = nearest->k;
	head->nqueries = nearest->nqueries;
	head->width = nearest->width;
	head->nverdicts = verdicts->n;
	head->nexcluded = nearest->nexcluded;
	if (nearest->offsets)
		head->nlisted = nearest->offsets[nearest->nqueries] - nearest->offsets[0];
	head->map_bytes = TYPEALIGN(8, conversation->map_bytes);
	request->type = GPUVEC_MSG_NEAREST;
	request->position = &head->position;
	add_piece(request, head, sizeof(*head));
	add_piece(request, verdicts->verdicts, verdicts->n * sizeof(uint64));
	add_piece(request, nearest->excluded, nearest->nexcluded * sizeof(int64));
	if (head->nlisted > 0)
		add_lists(request, nearest);
	add_floats(request, nearest->queries, (uint64) nearest->nqueries * nearest->width);
	add_piece(request, conversation->map, conversation->map_bytes);
}

/* Make the request for the Gram matrix */
static void
make_gram(Question *question, const MirrorConversation *conversation, MirrorRequest *request)
{
	const EmbeddingVerdicts *verdicts = &question->table->verdicts[question->target];
	gpuvec_gram_head *head = &question->gram;

	memset(head, 0, sizeof(*head));
	head->key = conversation->target->key;
	head->known = conversation->known;
	head->xmin = MirrorSnapshotXmin(conversation->snapshot);
	head->nverdicts = verdicts->n;
	head->map_bytes = TYPEALIGN(8, conversation->map_bytes);
	request->type = GPUVEC_MSG_GRAM;
	request->position = &head->position;
	add_piece(request, head, sizeof(*head));
	add_piece(request, verdicts->verdicts, verdicts->n * sizeof(uint64));
	add_piece(request, conversation->map, conversation->map_bytes);
}

/* Make the request of a question.  It is never sent along with a refresh. */
static void
make_request(Question *question, const MirrorConversation *conversation, MirrorRequest *request)
{
	memset(request, 0, sizeof(*request));
	request->answer_type = GPUVEC_MSG_EMBEDDING_ANSWER;
	request->answer_head = sizeof(gpuvec_embedding_answer);
	request->answer_state = offsetof(gpuvec_embedding_answer, state);
	request->context = CurrentMemoryContext;
	if (question->bags)
		make_embedding(question, conversation, request);
	else if (question->nearest == NULL)
		make_gram(question, conversation, request);
	else
		make_nearest(question, conversation, request);
}

/*
 * Locate the parts of an answer's body.  *front is the number of bytes before
 * the elements, rows or tids; *size is the size of each of these.
 */
static void
read_front(const Question *question, EmbeddingAnswer *answer, Size *front, Size *size)
{
	Size		found = 0;
	Size		keys = 0;

	*front = 0;
	*size = answer->head.status == GPUVEC_EMBEDDING_UNDECIDED ? sizeof(uint64) : 0;
	if (answer->head.status != GPUVEC_EMBEDDING_DONE)
		return;
	if (question->bags == NULL && question->nearest == NULL)
	{
		*size = sizeof(double);
		answer->gram = (const double *) answer->body;
		return;
	}
	if (question->bags == NULL)
	{
		*front = TYPEALIGN(8, question->nearest->nqueries * sizeof(uint32));
		*size = sizeof(gpuvec_near);
		answer->counts = (const uint32 *) answer->body;
		answer->rows = (const gpuvec_near *) (answer->body + *front);
		return;
	}
	if (question->embedding.flags & GPUVEC_EMBEDDING_FOUND)
		found = TYPEALIGN(8, question->bags->nkeys);
	if (question->embedding.op == GPUVEC_EMBEDDING_GRAD)
		keys = answer->head.nrows * sizeof(int64);
	*front = found + keys;
	*size = sizeof(float);
	answer->found = answer->body;
	answer->keys = (const int64 *) (answer->body + found);
	answer->elements = (const float *) (answer->body + found + keys);
}

/* Read an answer; fail if it is not well-formed */
static void
read_answer(const Question *question, const GpuvecReply *reply, EmbeddingAnswer *answer)
{
	Size		front;
	Size		size;

	memset(answer, 0, sizeof(*answer));
	memcpy(&answer->head, reply->data, sizeof(gpuvec_embedding_answer));
	answer->body = reply->data + sizeof(gpuvec_embedding_answer);
	read_front(question, answer, &front, &size);
	if (reply->length != sizeof(gpuvec_embedding_answer) + front + answer->head.count * size)
		ereport(ERROR,
				(errcode(ERRCODE_PROTOCOL_VIOLATION),
				 errmsg("invalid message from the gpuvec engine")));
	question->table->engine_us += answer->head.engine_us;
	MirrorUsed.requests++;
	MirrorUsed.engine_us += answer->head.engine_us;
}

/*
 * Fail unless the engine names rows in the order of their tids, and none that
 * there is a verdict about already: so the requests come to an end
 */
static void
check_tids(const uint64 *tids, uint64 n, const EmbeddingVerdicts *old)
{
	uint64		from = 0;

	for (uint64 i = 0; i < n; i++)
	{
		while (from < old->n && gpuvec_verdict_tid(old->verdicts[from]) < tids[i])
			from++;
		if ((from < old->n && gpuvec_verdict_tid(old->verdicts[from]) == tids[i]) ||
			(i > 0 && tids[i] <= tids[i - 1]))
			ereport(ERROR,
					(errcode(ERRCODE_PROTOCOL_VIOLATION),
					 errmsg("invalid message from the gpuvec engine")));
	}
}

/*
 * Look at the rows that the engine names, and merge the verdicts into the old
 * ones
 */
static void
decide(const MirrorConversation *conversation, const EmbeddingAnswer *answer, EmbeddingVerdicts *old)
{
	const uint64 *tids = (const uint64 *) answer->body;
	uint64		n = answer->head.count;
	uint64	   *merged = MemoryContextAllocHuge(CurrentMemoryContext, (old->n + n) * sizeof(uint64));
	bool	   *visible = MemoryContextAllocHuge(CurrentMemoryContext, n * sizeof(bool));
	uint64		from = 0;
	uint64		to = 0;

	GPUVEC_INJECTION("ask-before-fetch");
	check_tids(tids, n, old);
	MirrorRowsVisible(conversation->visibility, tids, n, visible);
	for (uint64 i = 0; i < n; i++)
	{
		while (from < old->n && gpuvec_verdict_tid(old->verdicts[from]) < tids[i])
			merged[to++] = old->verdicts[from++];
		merged[to++] = gpuvec_verdict(tids[i], visible[i]);
	}
	while (from < old->n)
		merged[to++] = old->verdicts[from++];
	pfree(visible);
	if (old->verdicts)
		pfree(old->verdicts);
	old->verdicts = merged;
	old->n = to;
}

/* Ask until all rows are decided.  False if the connection was lost. */
static bool
ask(MirrorConversation *conversation, Question *question, EmbeddingAnswer *answer)
{
	for (;;)
	{
		MirrorRequest request;
		GpuvecReply reply;

		if (question->ahead)
			reply = *question->ahead;
		else
		{
			make_request(question, conversation, &request);
			if (!MirrorAsk(conversation, &request, &reply))
				return false;
		}
		question->ahead = NULL;
		if (question->bags && question->embedding.flags & GPUVEC_EMBEDDING_KEEP_MAP)
		{
			engine_map = conversation->kept->serial;
			engine_generation = GpuvecLinkGeneration();
		}
		read_answer(question, &reply, answer);
		if (answer->head.status != GPUVEC_EMBEDDING_UNDECIDED || answer->head.count == 0)
			return true;
		decide(conversation, answer, &question->table->verdicts[question->target]);
		pfree(reply.data);
	}
}

/* A conversation about a question, `rows` rows of which depend on the map */
static MirrorConversation
describe_conversation(const Question *question, uint64 rows)
{
	EmbeddingTable *table = question->table;
	MirrorConversation conversation = {
		.target = &table->targets[question->target],
		.snapshot = table->snapshot,
		.use_map = true,
		.rows = rows,
		.small_map = MAP_TRIP_PAGES,
		.kept = table->kept_map
	};

	return conversation;
}

/*
 * Ask.  If the engine dies meanwhile, start over once.  False, with *reason,
 * if there is no engine or it cannot serve the request.
 */
static bool
converse(Question *question, uint64 rows, EmbeddingAnswer *answer, const char **reason)
{
	MirrorConversation conversation = describe_conversation(question, rows);

	while (MirrorConversationBegin(&conversation, reason))
		if (MirrorConversationEnd(&conversation, ask(&conversation, question, answer), reason))
			return true;
	return false;
}

/*
 * Gather, pool or compute gradients of a target that has a shared mirror.
 * The caller has to check the answer's status.  False, with *reason, if there
 * is no engine or it cannot serve the request.
 */
bool
EmbeddingAsk(EmbeddingTable *table, int target, gpuvec_embedding_op op, uint32 flags,
			 const EmbeddingBags *bags, EmbeddingAnswer *answer, const char **reason)
{
	Question	question = {.table = table, .target = target, .bags = bags};
	gpuvec_embedding_request *head = &question.embedding;

	head->key = table->targets[target].key;
	head->op = op;
	head->flags = flags | (bags->weights ? GPUVEC_EMBEDDING_WEIGHTED : 0);
	head->mode = bags->mode;
	head->missing = bags->missing;
	head->nkeys = bags->nkeys;
	head->nbags = bags->nbags;
	head->ngradient = bags->ngradient;
	return converse(&question, bags->nkeys, answer, reason);
}

/* How many rows of an answer depend on the map */
static uint64
nearest_rows(const EmbeddingNearest *nearest)
{
	return (uint64) nearest->k * nearest->nqueries;
}

/*
 * Find the nearest rows of a target that has a shared mirror; as
 * EmbeddingAsk()
 */
bool
EmbeddingAskNearest(EmbeddingTable *table, int target, const EmbeddingNearest *nearest,
					const GpuvecReply *reply, EmbeddingAnswer *answer, const char **reason)
{
	Question	question = {.table = table, .target = target, .nearest = nearest, .ahead = reply};

	if (reply)
	{
		read_answer(&question, reply, answer);
		if (answer->head.status == GPUVEC_EMBEDDING_DONE)
			return true;
	}
	return converse(&question, nearest_rows(nearest), answer, reason);
}

uint64
EmbeddingSendNearest(EmbeddingTable *table, int target, const EmbeddingNearest *nearest,
					 GpuvecTakeAnswer take, gpuvec_freshness *need)
{
	Question	question = {.table = table, .target = target, .nearest = nearest};
	MirrorConversation conversation = describe_conversation(&question, nearest_rows(nearest));
	uint64		number = 0;
	const char *reason;

	if (!MirrorConversationBegin(&conversation, &reason))
		return 0;
	if (!conversation.is_behind)
	{
		MirrorRequest request;

		make_request(&question, &conversation, &request);
		*need = conversation.need;
		*request.position = need->position;
		number = GpuvecLinkBegin(request.type, request.pieces, request.npieces);
		if (number != 0)
			GpuvecLinkLeave(number, request.answer_type, request.answer_head, take);
	}
	(void) MirrorConversationEnd(&conversation, true, &reason);
	return number;
}

/*
 * Ask for the Gram matrix of a target that has a shared mirror; as
 * EmbeddingAsk()
 */
bool
EmbeddingAskGram(EmbeddingTable *table, int target, EmbeddingAnswer *answer, const char **reason)
{
	Question	question = {.table = table, .target = target};

	return converse(&question, ALL_ROWS, answer, reason);
}
