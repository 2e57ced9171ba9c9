/*-------------------------------------------------------------------------
 *
 * all_rows.c
 *	  Requests about all rows of a table: does the session see each of them,
 *	  and their vectors in the order of keys.
 *
 *-------------------------------------------------------------------------
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "engine/embedding/embedding_query.h"
#include "engine/fault.h"

/*
 * If the session had to decide about more rows, it had better read them.  A
 * look at a row takes much less time than to copy its vector and add it up.
 */
#define MOST_UNDECIDED	(1 << 20)

/* ---- who sees them ---- */

/*
 * True if there are rows that the session does not see.  Of few verdicts it
 * does not matter whether their rows are still there.
 */
static bool
misses_rows(const gpuvec_resolved *resolved)
{
	if (resolved->banks == NULL)
		return resolved->nunseen > 0;
	for (uint32_t i = 0; i < resolved->nbanks; i++)
		if (resolved->banks[i].nunseen > 0)
			return true;
	return false;
}

bool
gpuvec_all_rows_seen(gpuvec_embedding_table *table, gpuvec_gram_query *q, gpuvec_error *error)
{
	gpuvec_resolved *resolved = gpuvec_resolve(table, &q->visibility, error);
	uint64_t   *tids = NULL;
	uint64_t	n = 0;
	long		most = MOST_UNDECIDED;
	bool		ok = resolved != NULL;

	(void) gpuvec_fault("most-undecided", &most);
	q->answer.status = GPUVEC_EMBEDDING_DONE;
	if (ok && misses_rows(resolved))
		q->answer.status = GPUVEC_EMBEDDING_UNFIT;
	else if (ok)
		ok = gpuvec_undecided_rows(table, &q->visibility, resolved, UINT32_MAX, (uint64_t) most, &tids,
								   &n, error);
	gpuvec_resolved_unref(resolved);
	if (n > (uint64_t) most)
		q->answer.status = GPUVEC_EMBEDDING_UNFIT;
	else if (n > 0)
	{
		q->answer.status = GPUVEC_EMBEDDING_UNDECIDED;
		q->answer.count = n;
		q->body = tids;
		q->body_size = n * sizeof(*tids);
		tids = NULL;
	}
	free(tids);
	return ok;
}

/* ---- their vectors ---- */

const gpuvec_bank *
gpuvec_only_bank(const gpuvec_embedding_table *table)
{
	const gpuvec_bank *found = NULL;

	for (uint32_t i = 0; i < table->nbanks; i++)
	{
		const gpuvec_bank *bank = table->banks[i];

		if (bank->nlive == 0 || memchr(bank->live, 1, bank->nlive) == NULL)
			continue;
		if (found || bank->kind != GPUVEC_VECTOR_GOOD)
			return NULL;
		found = bank;
	}
	return found;
}

/* qsort comparator of keys with their slots */
static int
compare_keys(const void *a, const void *b)
{
	int64_t		x = ((const gpuvec_key_slot *) a)->key;
	int64_t		y = ((const gpuvec_key_slot *) b)->key;

	return x < y ? -1 : x > y;
}

gpuvec_key_slot *
gpuvec_slots_by_key(const gpuvec_bank *bank, uint64_t *n, bool *distinct, gpuvec_error *error)
{
	gpuvec_key_slot *slots = malloc((bank->nlive + (size_t) 1) * sizeof(*slots));

	*n = 0;
	*distinct = true;
	if (slots == NULL)
	{
		gpuvec_fail_memory(error, bank->nlive * sizeof(*slots));
		return NULL;
	}
	for (uint32_t slot = 0; slot < bank->nlive; slot++)
		if (bank->live[slot])
		{
			slots[*n].key = bank->rows[slot].key;
			slots[(*n)++].slot = slot;
		}
	qsort(slots, *n, sizeof(*slots), compare_keys);
	for (uint64_t i = 1; i < *n; i++)
		*distinct &= slots[i - 1].key < slots[i].key;
	return slots;
}

/* Copy vectors, one behind the other */
static bool
copy_slots(const gpuvec_bank *bank, const gpuvec_key_slot *slots, uint64_t n, float *out,
		   gpuvec_error *error)
{
	uint32_t   *numbers = malloc((n + 1) * sizeof(*numbers));
	gpuvec_slot_bags bags = {
		.slots = numbers, .nslots = n, .hotness = 1, .nbags = n, .mode = GPUVEC_POOL_CONCAT
	};
	bool		ok;

	if (numbers == NULL)
		return gpuvec_fail_memory(error, n * sizeof(*numbers));
	for (uint64_t i = 0; i < n; i++)
		numbers[i] = slots[i].slot;
	ok = bank->backend->pool(bank->backend, bank->vectors, &bags, out, error);
	free(numbers);
	return ok;
}

/* Move vectors that lie one behind the other apart, from the last one on */
static void
spread(float *rows, uint64_t n, uint32_t width, uint32_t stride)
{
	for (uint64_t i = n; i-- > 0;)
	{
		memmove(rows + i * stride, rows + i * width, width * sizeof(float));
		memset(rows + i * stride + width, 0, (stride - width) * sizeof(float));
	}
}

bool
gpuvec_copy_vectors(const gpuvec_embedding_table *table, const gpuvec_bank *bank,
					const gpuvec_key_slot *slots, uint64_t n, uint32_t stride, float *out,
					gpuvec_error *error)
{
	if (!copy_slots(bank, slots, n, out, error))
		return false;
	spread(out, n, bank->width, stride);
	return true;
}
