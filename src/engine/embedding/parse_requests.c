/*-------------------------------------------------------------------------
 *
 * parse_requests.c
 *	  Parse requests about embedding tables.
 *
 *-------------------------------------------------------------------------
 */
#include <string.h>

#include "engine/embedding/embedding_query.h"
#include "engine/store/mirror_kind.h"

/* The rest of a frame that is not parsed yet */
typedef struct frame_rest
{
	const char *data;
	size_t		length;
} frame_rest;

/*
 * The next n items of `size` bytes each, padded to 8 bytes; NULL if the frame
 * is too short
 */
static const void *
take(frame_rest *rest, uint64_t n, size_t size)
{
	const void *items = rest->data;
	size_t		bytes;

	if (n > rest->length / size)
		return NULL;
	bytes = (n * size + 7) & ~(size_t) 7;
	if (bytes > rest->length)
		return NULL;
	rest->data += bytes;
	rest->length -= bytes;
	return items;
}

/* True if the bags' offsets are ascending and cover all keys */
static bool
bags_valid(const gpuvec_embedding_query *q)
{
	const gpuvec_embedding_request *head = &q->head;

	if (head->op == GPUVEC_EMBEDDING_GATHER)
		return true;
	if (head->hotness > 0)
		return head->nkeys / head->hotness == head->nbags && head->nkeys % head->hotness == 0;
	if (q->offsets[0] != 0 || q->offsets[head->nbags] != head->nkeys)
		return false;
	for (uint64_t i = 0; i < head->nbags; i++)
		if (q->offsets[i] > q->offsets[i + 1])
			return false;
	return true;
}

/* True if the verdicts' tids are strictly ascending */
static bool
verdicts_valid(const gpuvec_visibility *visibility)
{
	for (uint64_t i = 1; i < visibility->nverdicts; i++)
		if (gpuvec_verdict_tid(visibility->verdicts[i - 1]) >= gpuvec_verdict_tid(visibility->verdicts[i]))
			return false;
	return true;
}

const char *
gpuvec_embedding_parse(gpuvec_embedding_query *q, const char *data, size_t length)
{
	gpuvec_embedding_request *head = &q->head;
	bool		has_offsets;
	frame_rest	rest = {data + sizeof(*head), length - sizeof(*head)};

	memset(q, 0, sizeof(*q));
	if (length < sizeof(*head))
		return "EMBED is cut off.";
	memcpy(head, data, sizeof(*head));
	if (!gpuvec_is_embedding_key(&head->key))
		return "EMBED names no embedding table.";
	if (head->op >= GPUVEC_N_EMBEDDING_OPS || head->mode >= GPUVEC_N_POOL_MODES ||
		head->missing >= GPUVEC_N_MISSING || head->nbags > UINT32_MAX ||
		(head->flags & ~(uint32_t) GPUVEC_EMBEDDING_FLAGS) != 0 ||
		((head->flags & GPUVEC_EMBEDDING_KEPT_MAP) &&
		 (head->map_bytes > 0 || (head->flags & GPUVEC_EMBEDDING_KEEP_MAP))))
		return "EMBED asks for what is unknown.";
	has_offsets = head->op != GPUVEC_EMBEDDING_GATHER && head->hotness == 0;
	q->keys = take(&rest, head->nkeys, sizeof(int64_t));
	if (q->keys && has_offsets)
		q->offsets = take(&rest, head->nbags + 1, sizeof(uint64_t));
	q->visibility.known = head->known;
	q->visibility.xmin = head->xmin;
	q->visibility.nverdicts = head->nverdicts;
	q->visibility.map_bytes = head->map_bytes;
	q->visibility.verdicts = take(&rest, head->nverdicts, sizeof(uint64_t));
	if (head->flags & GPUVEC_EMBEDDING_WEIGHTED)
		q->weights = take(&rest, head->nkeys, sizeof(float));
	q->gradient = take(&rest, head->ngradient, sizeof(float));
	q->visibility.map = take(&rest, head->map_bytes, 1);
	if (q->keys == NULL || q->visibility.verdicts == NULL || q->visibility.map == NULL || rest.length > 0 ||
		(has_offsets && q->offsets == NULL) || q->gradient == NULL ||
		((head->flags & GPUVEC_EMBEDDING_WEIGHTED) && q->weights == NULL))
		return "EMBED has the wrong length.";
	if (!bags_valid(q))
		return "The bags of EMBED are not in order.";
	if (!verdicts_valid(&q->visibility))
		return "The verdicts of EMBED are not in order.";
	return NULL;
}

/* True if keys are ascending */
static bool
keys_ascend(const int64_t *keys, uint64_t n)
{
	for (uint64_t i = 1; i < n; i++)
		if (keys[i - 1] > keys[i])
			return false;
	return true;
}

/* True if the queries' own lists of keys are in order */
static bool
lists_valid(const gpuvec_nearest_query *q)
{
	uint32_t	n = q->head.nqueries;

	if (q->offsets == NULL)
		return true;
	if (q->offsets[0] != 0 || q->offsets[n] != q->head.nlisted)
		return false;
	for (uint32_t i = 0; i < n; i++)
		if (q->offsets[i] > q->offsets[i + 1])
			return false;
	for (uint32_t i = 0; i < n; i++)
		if (!keys_ascend(q->listed + q->offsets[i], q->offsets[i + 1] - q->offsets[i]))
			return false;
	return true;
}

const char *
gpuvec_nearest_parse(gpuvec_nearest_query *q, const char *data, size_t length)
{
	gpuvec_nearest_head *head = &q->head;
	frame_rest	rest = {data + sizeof(*head), length - sizeof(*head)};

	memset(q, 0, sizeof(*q));
	if (length < sizeof(*head))
		return "NEAREST is cut off.";
	memcpy(head, data, sizeof(*head));
	if (!gpuvec_is_embedding_key(&head->key))
		return "NEAREST names no embedding table.";
	if (head->metric >= GPUVEC_N_METRICS || head->k < 1 || head->k > GPUVEC_MAX_K ||
		head->width > GPUVEC_MAX_WIDTH || head->nqueries > GPUVEC_MAX_QUERIES ||
		(uint64_t) head->k * head->nqueries > GPUVEC_MAX_NEAR)
		return "NEAREST asks for what is unknown, or for too much.";
	q->visibility.known = head->known;
	q->visibility.xmin = head->xmin;
	q->visibility.nverdicts = head->nverdicts;
	q->visibility.map_bytes = head->map_bytes;
	q->visibility.verdicts = take(&rest, head->nverdicts, sizeof(uint64_t));
	q->excluded = take(&rest, head->nexcluded, sizeof(int64_t));
	if (head->nlisted > 0)
		q->offsets = take(&rest, head->nqueries + UINT64_C(1), sizeof(uint64_t));
	q->listed = take(&rest, head->nlisted, sizeof(int64_t));
	q->queries = take(&rest, (uint64_t) head->nqueries * head->width, sizeof(float));
	q->visibility.map = take(&rest, head->map_bytes, 1);
	if (q->visibility.verdicts == NULL || q->excluded == NULL || q->listed == NULL ||
		(head->nlisted > 0 && q->offsets == NULL) || q->queries == NULL ||
		q->visibility.map == NULL || rest.length > 0)
		return "NEAREST has the wrong length.";
	if (!verdicts_valid(&q->visibility) || !keys_ascend(q->excluded, head->nexcluded) ||
		!lists_valid(q))
		return "The verdicts or keys of NEAREST are not in order.";
	return NULL;
}

const char *
gpuvec_gram_parse(gpuvec_gram_query *q, const char *data, size_t length)
{
	frame_rest	rest = {data + sizeof(q->head), length - sizeof(q->head)};

	memset(q, 0, sizeof(*q));
	if (length < sizeof(q->head))
		return "GRAM is cut off.";
	memcpy(&q->head, data, sizeof(q->head));
	if (!gpuvec_is_embedding_key(&q->head.key))
		return "GRAM names no embedding table.";
	q->visibility.known = q->head.known;
	q->visibility.xmin = q->head.xmin;
	q->visibility.nverdicts = q->head.nverdicts;
	q->visibility.map_bytes = q->head.map_bytes;
	q->visibility.verdicts = take(&rest, q->head.nverdicts, sizeof(uint64_t));
	q->visibility.map = take(&rest, q->head.map_bytes, 1);
	if (q->visibility.verdicts == NULL || q->visibility.map == NULL || rest.length > 0)
		return "GRAM has the wrong length.";
	return verdicts_valid(&q->visibility) ? NULL : "The verdicts of GRAM are not in order.";
}
