/*-------------------------------------------------------------------------
 *
 * method_costs.c
 *	  What the methods of searching have cost, and the choice that follows.
 *
 * Which method is fastest depends on the data, on the queries, on how many
 * are asked together, and on the machine.  How well bounds prune cannot be
 * told from the lengths of lists.  So the choice is by time: each search by
 * GPUVEC_METHOD_AUTO is measured, and the cheapest method is taken for the
 * next one of its kind.
 *
 * Searches are of one kind if they agree in measure, in whether they have a
 * least score, in whether some query has a filter, in whether one of several
 * devices searches alone, in the size of k, in the number of queries (by
 * powers of two) and in the mean length of these (by powers of the square root
 * of two).  A mirror has records for SETS * WAYS kinds; of a set, the one that
 * was not used for longest gives way to a new one.
 *
 * The methods are the backend's own choice, which is the first guess; the
 * scan; and the lists that are there.  A record has for each the mean time of
 * a query, in which later searches weigh more.  A method other than the
 * cheapest is tried from time to time, as the data may change.  What its
 * trials have cost more than the cheapest method would have is limited to a
 * share of what that one would have taken for all searches.  The share is
 * larger for a method that was tried less often.  This is the epsilon-greedy
 * strategy for a bandit (Sutton and Barto, Reinforcement Learning, 2.2), with
 * a limit in time instead of a chance.
 *
 * The first search of a kind is not counted: it may have waited for memory,
 * or for lists.
 *
 * A large batch of a kind that is new is not searched by one guess.  A slice
 * of it is searched by each method, and the rest by the cheapest.
 *
 * A query for all rows, in any order, takes as long as it finds rows.  Times
 * of such queries say little of the methods, so the backend chooses.
 *
 * Answers do not depend on the method.
 *
 *-------------------------------------------------------------------------
 */
#include <math.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "core/clock.h"
#include "engine/method_costs.h"

/* Records of a mirror, in sets of WAYS */
#define SETS			16
#define WAYS			4

/* What may be chosen */
static const gpuvec_method methods[] = {
	GPUVEC_METHOD_AUTO, GPUVEC_METHOD_BITSET, GPUVEC_METHOD_READY_LISTS
};

#define N_CHOICES		((int) (sizeof(methods) / sizeof(methods[0])))

/*
 * The share of the time of all searches that trials of a method may have
 * cost, by how often it was tried.  One that was never tried is expected to
 * cost UNKNOWN times as much as the cheapest.
 */
static const double trial_share[] = {0.125, 0.05, 0.05, 0.005};

#define UNKNOWN			2.0

/* Searches between two trials of a method that was tried often enough */
#define TRIAL_GAP		16

/* The weight of a new time in the mean, and how far it may exceed the mean */
#define WEIGHT			0.125
#define OUTLIER			4.0

/* Searches after which what was spent counts half */
#define HALF_LIFE		1024

/* Fewest queries of a new kind of batch that is searched in slices */
#define SLICED_QUERIES	1024
#define SLICES			16

typedef struct method_cost
{
	double		ns;				/* mean time of a query */
	double		extra;			/* ns of searches, beyond what the cheapest
								 * method would have taken */
	uint32_t	tries;
	uint64_t	last;			/* the search that was the last one by it */
} method_cost;

struct gpuvec_method_record
{
	uint64_t	kind;			/* 0: not in use */
	uint64_t	used;			/* the mirror's search that used it last */
	uint64_t	searches;
	double		spent;			/* ns that the cheapest would have taken */
	method_cost costs[N_CHOICES];
};

struct gpuvec_method_costs
{
	int			refs;			/* changed by __atomic builtins only */
	pthread_mutex_t mutex;		/* guards all below; replicas search at the
								 * same time */
	uint64_t	clock;			/* searches of the mirror */
	gpuvec_method_record records[SETS][WAYS];
};

gpuvec_method_costs *
gpuvec_method_costs_new(void)
{
	gpuvec_method_costs *costs = calloc(1, sizeof(*costs));

	if (costs)
	{
		costs->refs = 1;
		pthread_mutex_init(&costs->mutex, NULL);
	}
	return costs;
}

gpuvec_method_costs *
gpuvec_method_costs_ref(gpuvec_method_costs *costs)
{
	if (costs)
		__atomic_add_fetch(&costs->refs, 1, __ATOMIC_RELAXED);
	return costs;
}

void
gpuvec_method_costs_unref(gpuvec_method_costs *costs)
{
	if (costs == NULL || __atomic_sub_fetch(&costs->refs, 1, __ATOMIC_ACQ_REL) > 0)
		return;
	pthread_mutex_destroy(&costs->mutex);
	free(costs);
}

size_t
gpuvec_method_costs_bytes(void)
{
	return sizeof(gpuvec_method_costs);
}

/* The logarithm to base 2 of a number, in steps of 1 / steps */
static uint64_t
log_steps(double x, int steps)
{
	return x <= 1 ? 0 : (uint64_t) (log2(x) * steps + 1e-9);
}

/* What searches of one kind have in common, as a number that is not 0 */
static uint64_t
kind_of(gpuvec_measure measure, bool on_replica, const gpuvec_topk_query *queries,
		uint32_t nqueries)
{
	double		ids = 0;
	uint32_t	k = 0;
	uint64_t	filtered = 0;

	for (uint32_t i = 0; i < nqueries; i++)
	{
		ids += gpuvec_query_len(&queries[i]);
		if (queries[i].k > k)
			k = queries[i].k;
		filtered |= queries[i].filter.n > 0;
	}
	return 1 | (uint64_t) queries[0].has_min_score << 1 | filtered << 2 |
		(uint64_t) on_replica << 3 | (uint64_t) measure << 8 |
		log_steps(nqueries, 1) << 16 | log_steps(ids / nqueries, 2) << 24 |
		log_steps(k, 1) / 2 << 32;
}

gpuvec_method_record *
gpuvec_method_costs_find(gpuvec_method_costs *costs, gpuvec_measure measure, bool on_replica,
						 const gpuvec_topk_query *queries, uint32_t nqueries)
{
	uint64_t	kind = kind_of(measure, on_replica, queries, nqueries);
	gpuvec_method_record *set = costs->records[(kind * 0x9E3779B97F4A7C15) >> 60];
	gpuvec_method_record *record = set;

	for (int i = 0; i < WAYS && record->kind != kind; i++)
		if (set[i].kind == kind || set[i].used < record->used)
			record = &set[i];
	if (record->kind != kind)
	{
		memset(record, 0, sizeof(*record));
		record->kind = kind;
	}
	record->used = ++costs->clock;
	return record;
}

/* The choice that has cost least; the first one if none was tried */
static int
cheapest(const gpuvec_method_record *record)
{
	int			best = 0;

	for (int i = 1; i < N_CHOICES; i++)
		if (record->costs[i].tries > 0 &&
			(record->costs[best].tries == 0 || record->costs[i].ns < record->costs[best].ns))
			best = i;
	return best;
}

/* True if it is time to try choice i, though `best` has cost less */
static bool
worth_a_trial(const gpuvec_method_record *record, int i, int best, uint32_t nqueries)
{
	const method_cost *cost = &record->costs[i];
	double		least = record->costs[best].ns;
	double		ns = cost->tries == 0 ? UNKNOWN * least : cost->ns;
	uint32_t	last_share = sizeof(trial_share) / sizeof(trial_share[0]) - 1;
	uint32_t	step = cost->tries < last_share ? cost->tries : last_share;

	if (step == last_share && record->searches - cost->last < TRIAL_GAP)
		return false;
	return cost->extra + (ns - least) * nqueries <= trial_share[step] * record->spent;
}

gpuvec_method
gpuvec_method_choose(const gpuvec_method_record *record, uint32_t nqueries)
{
	int			best = cheapest(record);

	for (int i = 0; i < N_CHOICES && record->costs[best].tries > 0; i++)
		if (i != best && worth_a_trial(record, i, best, nqueries))
			return methods[i];
	return methods[best];
}

/* Older searches count less */
static void
forget(gpuvec_method_record *record)
{
	record->spent /= 2;
	for (int i = 0; i < N_CHOICES; i++)
		record->costs[i].extra /= 2;
}

void
gpuvec_method_note(gpuvec_method_record *record, gpuvec_method method, uint32_t nqueries,
				   double ns)
{
	const method_cost *best = &record->costs[cheapest(record)];
	method_cost *cost = record->costs;
	double		mine = ns / nqueries;

	if (record->searches++ == 0)
		return;
	while (methods[cost - record->costs] != method)
		cost++;
	if (cost->tries > 0 && mine > OUTLIER * cost->ns)
		mine = OUTLIER * cost->ns;
	if (record->searches % HALF_LIFE == 0)
		forget(record);
	record->spent += fmin(mine, best->ns) * nqueries;
	if (cost != best && mine > best->ns)
		cost->extra += (mine - best->ns) * nqueries;
	cost->tries++;
	cost->ns += (mine - cost->ns) * fmax(WEIGHT, 1.0 / cost->tries);
	cost->last = record->searches;
}

/* A search that is measured */
typedef struct measured_search
{
	gpuvec_backend *backend;
	const gpuvec_view *view;
	const gpuvec_scoring *scoring;
	gpuvec_method_record *record;
	uint64_t	kind;			/* that the record had */
	gpuvec_error *error;
} measured_search;

/* Note what a search took, unless another kind has got its record meanwhile */
static void
note(const measured_search *s, gpuvec_method method, uint32_t nqueries, double ns)
{
	pthread_mutex_lock(&s->view->costs->mutex);
	if (s->record->kind == s->kind)
		gpuvec_method_note(s->record, method, nqueries, ns);
	pthread_mutex_unlock(&s->view->costs->mutex);
}

static bool
search(const measured_search *s, gpuvec_method method, gpuvec_topk_query *queries,
	   uint32_t nqueries)
{
	uint64_t	start = gpuvec_clock_ns();

	if (!s->backend->topk(s->backend, s->view, s->scoring, method, queries, nqueries, s->error))
		return false;
	note(s, method, nqueries, (double) (gpuvec_clock_ns() - start));
	return true;
}

/* The method that has cost least so far */
static gpuvec_method
cheapest_now(const measured_search *s)
{
	gpuvec_method method;

	pthread_mutex_lock(&s->view->costs->mutex);
	method = methods[cheapest(s->record)];
	pthread_mutex_unlock(&s->view->costs->mutex);
	return method;
}

/*
 * Search a slice of a large batch by each method, and the rest by the
 * cheapest, after a slice that does not count
 */
static bool
search_in_slices(const measured_search *s, gpuvec_topk_query *queries, uint32_t nqueries)
{
	uint32_t	slice = nqueries / SLICES;
	uint32_t	done = slice;

	if (!search(s, methods[0], queries, slice))
		return false;
	for (int i = 0; i < N_CHOICES; i++, done += slice)
		if (!search(s, methods[i], queries + done, slice))
			return false;
	return search(s, cheapest_now(s), queries + done, nqueries - done);
}

bool
gpuvec_topk_by_cost(gpuvec_backend *backend, const gpuvec_view *view, const gpuvec_scoring *scoring,
					gpuvec_topk_query *queries, uint32_t nqueries, gpuvec_error *error)
{
	measured_search s = {
		.backend = backend, .view = view, .scoring = scoring, .error = error
	};
	gpuvec_method method;
	bool		is_new;

	if (view->costs == NULL || nqueries == 0 || (nqueries == 1 && queries[0].unordered))
		return backend->topk(backend, view, scoring, GPUVEC_METHOD_AUTO, queries, nqueries, error);
	pthread_mutex_lock(&view->costs->mutex);
	s.record = gpuvec_method_costs_find(view->costs, scoring->measure, backend->is_replica, queries,
										nqueries);
	s.kind = s.record->kind;
	is_new = s.record->searches == 0;
	method = gpuvec_method_choose(s.record, nqueries);
	pthread_mutex_unlock(&view->costs->mutex);
	if (is_new && nqueries >= SLICED_QUERIES)
		return search_in_slices(&s, queries, nqueries);
	return search(&s, method, queries, nqueries);
}
