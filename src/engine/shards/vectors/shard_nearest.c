/*-------------------------------------------------------------------------
 *
 * shard_nearest.c
 *	  The nearest vectors, with vectors on several devices.
 *
 * With copies, any child can answer any query.  If the bank is spread, each
 * child finds the k best of its slots for all queries.  The k best of these
 * are the answer.
 *
 *-------------------------------------------------------------------------
 */
#include <stdlib.h>
#include <string.h>

#include "core/nearest.h"
#include "engine/shards/vectors/shard_bank.h"

/* Queries that one task merges */
#define QUERIES_AT_ONCE	16

/* Bits of a score that are looked at in one go through all scores */
#define DIGIT_BITS		8

/* Rows by which room for rows of one score grows */
#define TIED_ROWS		4096

/* A search, and those of the children */
typedef struct near_search
{
	shard_bank *bank;
	gpuvec_slot_search *search;
	gpuvec_slot_search mine[GPUVEC_MAX_CHILDREN];	/* k = 0: there is none */
	int			failed;			/* atomic: no memory to merge */
} near_search;

/* ---- copies ---- */

/* Let a child answer the queries from `first` on */
static bool
answer_queries(const near_search *s, uint32_t i, uint32_t first, uint32_t end, gpuvec_error *error)
{
	gpuvec_vectors *child = s->bank->shards->children[i].vectors;
	gpuvec_slot_search mine = *s->search;

	if (first >= end)
		return true;
	mine.queries += (size_t) first * s->bank->width;
	mine.squares += first;
	mine.nqueries = end - first;
	mine.slots += (size_t) first * mine.k;
	mine.scores += (size_t) first * mine.k;
	mine.counts += first;
	mine.wanted = NULL;
	mine.names = (gpuvec_slot_names)
	{
		s->bank->keys, s->bank->tids, 1
	};
	return child->nearest(child, s->bank->children[i].bank, &mine, error);
}

/* Let a child answer its share of the queries */
static bool
answer_share(void *arg, uint32_t i, gpuvec_error *error)
{
	const near_search *s = arg;
	uint64_t	n = s->search->nqueries;
	uint32_t	nchildren = s->bank->shards->n;

	return answer_queries(s, i, (uint32_t) (n * i / nchildren),
						  (uint32_t) (n * (i + 1) / nchildren), error);
}

/* Search copies */
static bool
search_copies(near_search *s, gpuvec_error *error)
{
	shard_vectors *shards = s->bank->shards;
	uint32_t	i;
	bool		ok;

	if (shards->n > 1 && s->search->nqueries >= shards->policy.split_queries)
		return gpuvec_shard_ask(shards, answer_share, s, true, error);
	i = gpuvec_shard_take(shards);
	ok = answer_queries(s, i, 0, s->search->nqueries, error);
	return gpuvec_shard_give(shards, i, ok, error);
}

/* ---- a spread bank ---- */

/*
 * Let the children's flags of live slots be those of this search.  All
 * searches at a time have the same version.
 */
static bool
spread_live(near_search *s, gpuvec_error *error)
{
	shard_bank *bank = s->bank;
	const shard_vectors *shards = bank->shards;
	bool		ok = true;

	pthread_mutex_lock(&bank->mutex);
	for (uint32_t i = 0; ok && bank->live_version != s->search->version && i < shards->n; i++)
	{
		uint32_t	n = shard_slots(shards, i, s->search->nlive);
		uint8_t    *live = realloc(bank->children[i].live, n + (size_t) 1);

		ok = live || gpuvec_fail_memory(error, n);
		bank->children[i].live = live ? live : bank->children[i].live;
		for (uint32_t j = 0; ok && j < n; j++)
			live[j] = s->search->live[j * shards->n + i];
	}
	bank->live_version = ok ? s->search->version : 0;
	pthread_mutex_unlock(&bank->mutex);
	return ok;
}

/* Let a child find the best of its slots */
static bool
search_child(void *arg, uint32_t i, gpuvec_error *error)
{
	near_search *s = arg;
	gpuvec_vectors *child = s->bank->shards->children[i].vectors;
	gpuvec_slot_search *mine = &s->mine[i];
	uint64_t	capacity;

	*mine = *s->search;
	mine->live = s->bank->children[i].live;
	mine->wanted = NULL;
	/* slot j of the child is number j * n + i of all */
	mine->names = (gpuvec_slot_names)
	{
		s->bank->keys + i, s->bank->tids + i, s->bank->shards->n
	};
	mine->nlive = shard_slots(s->bank->shards, i, s->search->nlive);
	mine->k = mine->nlive < mine->k ? mine->nlive : mine->k;
	capacity = (uint64_t) mine->k * mine->nqueries;
	mine->slots = malloc(capacity * sizeof(uint32_t) + 1);
	mine->scores = malloc(capacity * sizeof(double) + 1);
	mine->counts = calloc(mine->nqueries + (size_t) 1, sizeof(uint32_t));
	if (!mine->slots || !mine->scores || !mine->counts)
		return gpuvec_fail_memory(error, capacity * sizeof(double));
	return mine->k == 0 || child->nearest(child, s->bank->children[i].bank, mine, error);
}

/* A row whose score is that of the k-th best */
typedef struct tied_row
{
	int64_t		key;
	uint64_t	tid;
	uint32_t	slot;
} tied_row;

/* qsort comparator: better rows first */
static int
compare_tied(const void *a, const void *b)
{
	const tied_row *x = a;
	const tied_row *y = b;

	if (x->key != y->key)
		return x->key < y->key ? -1 : 1;
	return x->tid < y->tid ? -1 : x->tid > y->tid;
}

/* A number that is smaller for better scores, and the same for equal ones */
static inline uint64_t
rank_of(double score)
{
	uint64_t	bits;

	score += 0.0;				/* -0 becomes 0 */
	memcpy(&bits, &score, sizeof(bits));
	return bits >> 63 ? bits : ~bits & ~(UINT64_C(1) << 63);
}

/* The scores that child i has found for a query */
static const double *
found_scores(const near_search *s, uint32_t i, uint32_t query, uint32_t *n)
{
	*n = s->mine[i].counts[query];
	return s->mine[i].scores + (uint64_t) query * s->mine[i].k;
}

/*
 * The rank of the k-th best score of all children, who have found at least k.
 * It is found digit by digit, so that no order of the scores makes it slow.
 */
static uint64_t
find_last_rank(const near_search *s, uint32_t query, uint64_t k)
{
	uint64_t	prefix = 0;
	uint64_t	better = 0;		/* scores */

	for (int shift = 64 - DIGIT_BITS; shift >= 0; shift -= DIGIT_BITS)
	{
		uint64_t	counts[1 << DIGIT_BITS] = {0};
		uint64_t	digit = 0;

		for (uint32_t i = 0; i < s->bank->shards->n; i++)
		{
			uint32_t	n;
			const double *scores = found_scores(s, i, query, &n);

			for (uint32_t j = 0; j < n; j++)
			{
				uint64_t	rank = rank_of(scores[j]);

				if (shift + DIGIT_BITS == 64 || rank >> (shift + DIGIT_BITS) == prefix)
					counts[rank >> shift & ((1 << DIGIT_BITS) - 1)]++;
			}
		}
		while (better + counts[digit] < k)
			better += counts[digit++];
		prefix = prefix << DIGIT_BITS | digit;
	}
	return prefix;
}

/* The answer to a query, while it is merged */
typedef struct merged_query
{
	uint32_t   *slots;			/* [n] */
	double	   *scores;
	uint64_t	n;
	tied_row   *tied;			/* [ntied] rows with the last score */
	uint64_t	ntied;
	double		last_score;
} merged_query;

/* Note a row that has the last score.  False: out of memory. */
static bool
add_tied(merged_query *answer, const shard_bank *bank, uint32_t slot, double score)
{
	if (answer->ntied % TIED_ROWS == 0)
	{
		tied_row   *more = realloc(answer->tied, (answer->ntied + TIED_ROWS) * sizeof(*more));

		if (more == NULL)
			return false;
		answer->tied = more;
	}
	answer->tied[answer->ntied++] = (tied_row)
	{
		bank->keys[slot], bank->tids[slot], slot
	};
	answer->last_score = score;
	return true;
}

/* Take the rows before the last rank, and note those that have it */
static bool
take_better(const near_search *s, uint32_t query, uint64_t last, merged_query *answer)
{
	uint32_t	nchildren = s->bank->shards->n;

	for (uint32_t i = 0; i < nchildren; i++)
	{
		uint32_t	n;
		const double *scores = found_scores(s, i, query, &n);
		const uint32_t *slots = s->mine[i].slots + (uint64_t) query * s->mine[i].k;

		for (uint32_t j = 0; j < n; j++)
		{
			uint64_t	rank = rank_of(scores[j]);

			if (rank < last)
			{
				answer->slots[answer->n] = slots[j] * nchildren + i;
				answer->scores[answer->n++] = scores[j];
			}
			else if (rank == last &&
					 !add_tied(answer, s->bank, slots[j] * nchildren + i, scores[j]))
				return false;
		}
	}
	return true;
}

/*
 * Merge the answers to a query.  Keys and tids decide only between rows of one
 * score, and are looked at only there, since they lie anywhere in memory.
 * False: out of memory.
 */
static bool
merge_query(const near_search *s, uint32_t query)
{
	const gpuvec_slot_search *search = s->search;
	uint64_t	at = (uint64_t) query * search->k;
	merged_query answer = {.slots = search->slots + at, .scores = search->scores + at};
	uint64_t	found = 0;
	uint64_t	k = search->k;
	bool		ok;

	for (uint32_t i = 0; i < s->bank->shards->n; i++)
		found += s->mine[i].counts[query];
	k = k < found ? k : found;
	search->counts[query] = (uint32_t) k;
	if (k == 0)
		return true;
	ok = take_better(s, query, find_last_rank(s, query, k), &answer);
	if (ok && answer.n + answer.ntied > k)
		qsort(answer.tied, answer.ntied, sizeof(*answer.tied), compare_tied);
	for (uint64_t j = 0; ok && answer.n < k; j++)
	{
		answer.slots[answer.n] = answer.tied[j].slot;
		answer.scores[answer.n++] = answer.last_score;
	}
	free(answer.tied);
	return ok;
}

/* Task: merge the answers to some queries */
static void
merge_shard(void *task, uint64_t shard, int thread)
{
	near_search *s = task;
	uint64_t	first = shard * QUERIES_AT_ONCE;

	(void) thread;
	for (uint64_t i = first; i < first + QUERIES_AT_ONCE && i < s->search->nqueries; i++)
		if (!merge_query(s, (uint32_t) i))
			__atomic_store_n(&s->failed, true, __ATOMIC_RELAXED);
}

/* Merge the answers to all queries */
static bool
merge_queries(near_search *s, gpuvec_error *error)
{
	uint64_t	nshards = (s->search->nqueries + (uint64_t) QUERIES_AT_ONCE - 1) / QUERIES_AT_ONCE;

	if (gpuvec_bags_canceled(s->search->canceled))
		return true;
	if (nshards == 1)
		merge_shard(s, 0, 0);
	else
		gpuvec_thread_pool_run(s->bank->shards->summing, merge_shard, s, nshards);
	return !s->failed || gpuvec_fail_memory(error, (size_t) s->search->k * sizeof(tied_row));
}

/* Search a spread bank */
static bool
search_spread(near_search *s, gpuvec_error *error)
{
	shard_vectors *shards = s->bank->shards;
	bool		ok = spread_live(s, error) && gpuvec_shard_ask(shards, search_child, s, true, error) &&
		merge_queries(s, error);

	for (uint32_t i = 0; i < shards->n; i++)
	{
		free(s->mine[i].slots);
		free(s->mine[i].scores);
		free(s->mine[i].counts);
	}
	return ok;
}

bool
gpuvec_shard_nearest(gpuvec_vectors *vectors, gpuvec_device_bank *device_bank,
					 gpuvec_slot_search *search, gpuvec_error *error)
{
	near_search s = {.bank = shard_bank_of(device_bank), .search = search};

	(void) vectors;
	return s.bank->copies ? search_copies(&s, error) : search_spread(&s, error);
}
