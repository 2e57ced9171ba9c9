/*-------------------------------------------------------------------------
 *
 * embed_request.c
 *	  Taking requests to gather or pool vectors apart.
 *
 *-------------------------------------------------------------------------
 */
#include <string.h>

#include "engine/embed.h"

/* What is left of a frame */
typedef struct frame_rest
{
	const char *data;
	size_t		length;
} frame_rest;

/* The next n items of `size` bytes each, padded to 8 bytes; NULL: they are not there */
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

/* Do the bags follow one another, and have all keys? */
static bool
bags_valid(const gpuvec_embed_query *q)
{
	const gpuvec_embed *head = &q->head;

	if (head->op == GPUVEC_EMBED_GATHER)
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

/* Are verdicts ascending and distinct? */
static bool
verdicts_valid(const gpuvec_embed_query *q)
{
	for (uint64_t i = 1; i < q->head.nverdicts; i++)
		if (gpuvec_verdict_tid(q->verdicts[i - 1]) >= gpuvec_verdict_tid(q->verdicts[i]))
			return false;
	return true;
}

const char *
gpuvec_embed_parse(gpuvec_embed_query *q, const char *data, size_t length)
{
	gpuvec_embed *head = &q->head;
	bool		has_offsets;
	frame_rest	rest = {data + sizeof(*head), length - sizeof(*head)};

	memset(q, 0, sizeof(*q));
	if (length < sizeof(*head))
		return "EMBED is cut off.";
	memcpy(head, data, sizeof(*head));
	if (!gpuvec_key_embeds(&head->key))
		return "EMBED names no embedding table.";
	if (head->op >= GPUVEC_N_EMBED_OPS || head->mode >= GPUVEC_N_POOL_MODES ||
		head->missing >= GPUVEC_N_MISSING || head->nbags > UINT32_MAX ||
		(head->flags & ~(GPUVEC_EMBED_WEIGHTED | GPUVEC_EMBED_FOUND)) != 0)
		return "EMBED asks for what is unknown.";
	has_offsets = head->op != GPUVEC_EMBED_GATHER && head->hotness == 0;
	q->keys = take(&rest, head->nkeys, sizeof(int64_t));
	if (q->keys && has_offsets)
		q->offsets = take(&rest, head->nbags + 1, sizeof(uint64_t));
	q->verdicts = take(&rest, head->nverdicts, sizeof(uint64_t));
	if (head->flags & GPUVEC_EMBED_WEIGHTED)
		q->weights = take(&rest, head->nkeys, sizeof(float));
	q->gradient = take(&rest, head->ngradient, sizeof(float));
	q->map = take(&rest, head->map_bytes, 1);
	if (q->keys == NULL || q->verdicts == NULL || q->map == NULL || rest.length > 0 ||
		(has_offsets && q->offsets == NULL) || q->gradient == NULL ||
		((head->flags & GPUVEC_EMBED_WEIGHTED) && q->weights == NULL))
		return "EMBED has the wrong length.";
	if (!bags_valid(q))
		return "The bags of EMBED are not in order.";
	if (!verdicts_valid(q))
		return "The verdicts of EMBED are not in order.";
	return NULL;
}
