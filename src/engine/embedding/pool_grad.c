/*-------------------------------------------------------------------------
 *
 * pool_grad.c
 *	  Gradients of pooling, computed on the host.
 *
 * A share is what one occurrence of a key gets of the upstream gradient.  All
 * shares are sorted by key.  The shares of a key are summed by one thread, in
 * the order of the request, so the result has the same bits for any number of
 * threads.
 *
 *-------------------------------------------------------------------------
 */
#include <stdlib.h>
#include <string.h>

#include "engine/embedding/reading.h"
#include "engine/host_memory.h"

/* The sums of shares of all distinct keys */
typedef struct gradient_sums
{
	gpuvec_reading *r;
	const gpuvec_share *shares;
	uint64_t   *first;			/* [n + 1]: the first share of each key */
	uint64_t	n;				/* distinct keys */
	uint64_t	nparts;
	float	   *out;			/* [n * width] */
} gradient_sums;

/* Number of rows of the upstream gradient: as many as pooling returns */
static uint64_t
gradient_rows(const gpuvec_reading *r)
{
	uint64_t	n = 0;

	if (r->mode != GPUVEC_POOL_CONCAT)
		return r->nbags;
	if (r->missing != GPUVEC_MISSING_SKIP)
		return r->nkeys;
	for (uint64_t i = 0; i < r->nkeys; i++)
		n += r->rows[i].vector != NULL;
	return n;
}

bool
gpuvec_reading_check_gradient(gpuvec_reading *r, uint64_t rows)
{
	uint64_t	width = r->q->answer.width;

	if (r->q->head.ngradient == rows * width)
		return true;
	r->q->answer.status = GPUVEC_EMBEDDING_GRADIENT;
	r->q->answer.count = rows * width;
	return false;
}

/* Collect the shares of all bags; returns their number */
static uint64_t
collect_shares(const gpuvec_reading *r, gpuvec_share *shares)
{
	uint64_t	n = 0;
	uint64_t	row = 0;

	for (uint64_t i = 0; i < r->nbags; i++)
	{
		gpuvec_bag	bag = gpuvec_reading_get(r, i, NULL);

		n += gpuvec_bag_shares(shares + n, &bag, &row);
	}
	return n;
}

/* Task: sum the shares of the keys of a part */
static void
sum_part(void *task, uint64_t part, int thread)
{
	gradient_sums *g = task;
	uint32_t	width = g->r->q->answer.width;
	gpuvec_upstream up = {
		.gradient = g->r->q->gradient, .width = width,
		.factors = g->r->q->weights != NULL || g->r->mode == GPUVEC_POOL_MEAN
	};
	float	   *scratch = gpuvec_reading_scratch(g->r);
	uint64_t	end = g->n * (part + 1) / g->nparts;

	if (gpuvec_reading_canceled(g->r))
		end = 0;
	for (uint64_t i = g->n * part / g->nparts; scratch && i < end; i++)
		g->r->sum_shares(g->out + i * width, g->shares + g->first[i], g->first[i + 1] - g->first[i],
						 &up, scratch);
	free(scratch);
}

/* Find where each key's shares begin, and list the keys in keys[] */
static void
find_keys(gradient_sums *g, uint64_t nshares, int64_t *keys)
{
	g->n = 0;
	for (uint64_t i = 0; i < nshares; i++)
	{
		if (i > 0 && g->shares[i].key == g->shares[i - 1].key)
			continue;
		keys[g->n] = g->shares[i].key;
		g->first[g->n++] = i;
	}
	g->first[g->n] = nshares;
}

/* Answer with the distinct keys and their gradients */
static bool
answer_gradients(gpuvec_reading *r, gpuvec_thread_pool *pool, gradient_sums *g, const int64_t *keys,
				 gpuvec_error *error)
{
	gpuvec_embedding_answer *answer = &r->q->answer;
	size_t		keys_size = g->n * sizeof(int64_t);

	answer->nrows = g->n;
	if (answer->width > 0 && g->n > gpuvec_reading_limit() / (answer->width + 2))
	{
		answer->status = GPUVEC_EMBEDDING_LARGE;
		return true;
	}
	answer->count = g->n * answer->width;
	r->q->body_size = keys_size + answer->count * sizeof(float);
	r->q->body = gpuvec_memory_new(r->q->body_size);
	if (r->q->body == NULL)
		return gpuvec_fail_memory(error, r->q->body_size);
	memcpy(r->q->body, keys, keys_size);
	g->out = (float *) ((char *) r->q->body + keys_size);
	g->nparts = g->n / (PART_KEYS / 4) + 1;
	if (g->nparts == 1)
		sum_part(g, 0, 0);
	else
		gpuvec_thread_pool_run(pool, sum_part, g, g->nparts);
	return !r->failed || gpuvec_fail_memory(error, answer->width * sizeof(float));
}

bool
gpuvec_reading_gradient(gpuvec_reading *r, gpuvec_thread_pool *pool, gpuvec_error *error)
{
	gpuvec_share *shares = malloc((r->nkeys + 1) * sizeof(*shares));
	gpuvec_share *spare = malloc((r->nkeys + 1) * sizeof(*spare));
	uint64_t   *first = malloc((r->nkeys + 2) * sizeof(*first));
	int64_t    *keys = malloc((r->nkeys + 1) * sizeof(*keys));
	bool		ok = shares && spare && first && keys;

	if (!ok)
		gpuvec_fail_memory(error, r->nkeys * sizeof(*shares));
	else if (gpuvec_reading_check_gradient(r, gradient_rows(r)))
	{
		uint64_t	n = collect_shares(r, shares);
		gradient_sums g = {.r = r, .first = first, .shares = gpuvec_sort_shares(shares, spare, n)};

		find_keys(&g, n, keys);
		ok = answer_gradients(r, pool, &g, keys, error);
	}
	free(shares);
	free(spare);
	free(first);
	free(keys);
	return ok;
}

/*
 * Task: compute the gradients of the weights of a part's bags.
 * part_out[part] is the row of the upstream gradient where they begin.
 */
static void
weights_part(void *task, uint64_t part, int thread)
{
	gpuvec_reading *r = task;
	uint64_t	end = gpuvec_reading_part(r, part + 1);
	uint64_t	row = r->part_out[part];
	float	   *mean = gpuvec_reading_scratch(r);
	float	   *scratch = gpuvec_reading_scratch(r);

	for (uint64_t i = gpuvec_reading_part(r, part); mean && scratch && i < end; i++)
	{
		gpuvec_bag	bag = gpuvec_reading_get(r, i, scratch);

		gpuvec_bag_weight_gradients(r->out + gpuvec_reading_bag(r, i), &bag, r->q->gradient, mean,
									&row);
	}
	free(mean);
	free(scratch);
}

/* Set part_out[]: the row of the upstream gradient where each part begins */
static void
find_rows(gpuvec_reading *r)
{
	uint64_t	row = 0;

	for (uint64_t part = 0; part < r->nparts; part++)
	{
		uint64_t	first = gpuvec_reading_part(r, part);
		uint64_t	end = gpuvec_reading_part(r, part + 1);

		r->part_out[part] = row;
		if (r->mode != GPUVEC_POOL_CONCAT)
			row += end - first;
		else
			for (uint64_t i = gpuvec_reading_bag(r, first); i < gpuvec_reading_bag(r, end); i++)
				row += r->rows[i].vector != NULL || r->missing != GPUVEC_MISSING_SKIP;
	}
}

bool
gpuvec_reading_weight_gradients(gpuvec_reading *r, gpuvec_thread_pool *pool, gpuvec_error *error)
{
	if (!gpuvec_reading_check_gradient(r, gradient_rows(r)))
		return true;
	r->part_out = malloc((r->nparts + 1) * sizeof(uint64_t));
	r->q->body_size = r->nkeys * sizeof(float);
	r->q->body = r->out = malloc(r->q->body_size + 1);
	if (r->part_out == NULL || r->out == NULL)
		return gpuvec_fail_memory(error, r->q->body_size);
	r->q->answer.count = r->nkeys;
	find_rows(r);
	gpuvec_reading_run(r, pool, weights_part, r->nparts);
	return !r->failed || gpuvec_fail_memory(error, r->q->answer.width * sizeof(float));
}
