/*-------------------------------------------------------------------------
 *
 * method_test.c
 *	  Test of the choice of methods by their costs.  Times are made up, so
 *	  nothing here depends on the machine.
 *
 *-------------------------------------------------------------------------
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/cpu/cpu_backend.h"
#include "engine/cpu/lists_builder.h"
#include "engine/method_costs.h"
#include "unit_test.h"

#define N_CHOICES	3

static const gpuvec_method choices[N_CHOICES] = {
	GPUVEC_METHOD_AUTO, GPUVEC_METHOD_BITSET, GPUVEC_METHOD_READY_LISTS
};

static int
choice_of(gpuvec_method method)
{
	for (int i = 0; i < N_CHOICES; i++)
		if (choices[i] == method)
			return i;
	check(false, "a method is one of those that may be chosen");
	exit(1);
}

/* ---- choosing ---- */

/* A run of searches of one kind */
typedef struct trial_run
{
	gpuvec_method_costs *costs;
	gpuvec_method_record *record;
	uint32_t	nqueries;
	double		spent;
	double		least;			/* what the cheapest method would have taken */
	uint32_t	times[N_CHOICES];	/* searches by each */
} trial_run;

static void
begin_run(trial_run *r, uint32_t nqueries)
{
	gpuvec_topk_query *queries = calloc(nqueries, sizeof(*queries));

	memset(r, 0, sizeof(*r));
	r->nqueries = nqueries;
	r->costs = gpuvec_method_costs_new();
	r->record = gpuvec_method_costs_find(r->costs, GPUVEC_JACCARD, false, queries, nqueries);
	free(queries);
}

/*
 * Search n times.  ns: what each method takes for a query.  noise: a search
 * takes 1 / noise to noise times that.
 */
static void
search(trial_run *r, int n, const double *ns, double noise)
{
	double		least = ns[0];

	for (int i = 1; i < N_CHOICES; i++)
		if (ns[i] < least)
			least = ns[i];
	memset(r->times, 0, sizeof(r->times));
	r->spent = r->least = 0;
	for (int i = 0; i < n; i++)
	{
		gpuvec_method method = gpuvec_method_choose(r->record, r->nqueries);
		int			choice = choice_of(method);
		double		part = (double) (random32() % 1000) / 1000;
		double		took = ns[choice] * r->nqueries * (1 / noise + part * (noise - 1 / noise));

		gpuvec_method_note(r->record, method, r->nqueries, took);
		r->times[choice]++;
		r->spent += ns[choice] * r->nqueries;
		r->least += least * r->nqueries;
	}
}

static void
end_run(trial_run *r)
{
	gpuvec_method_costs_unref(r->costs);
}

static void
test_cheapest(void)
{
	static const double costs[][N_CHOICES] = {
		{3000, 1000, 3000}, {1000, 3000, 1000}, {5000, 9000, 1000}, {1000, 1e6, 1e6},
		{1e6, 1e6, 1000}, {1200, 1000, 1300}
	};

	for (size_t i = 0; i < sizeof(costs) / sizeof(costs[0]); i++)
		for (uint32_t nqueries = 1; nqueries < 1000; nqueries *= 10)
		{
			trial_run	r;

			begin_run(&r, nqueries);
			check(gpuvec_method_choose(r.record, nqueries) == GPUVEC_METHOD_AUTO,
				  "the first search is by the backend's choice");
			search(&r, 100000, costs[i], 1);
			search(&r, 3000, costs[i], 1);
			check(r.spent <= 1.015 * r.least, "trials cost 1 % or little more");
			for (int c = 0; c < N_CHOICES; c++)
				check(r.times[c] > 0 || costs[i][c] > 20 * r.least / (3000 * nqueries),
					  "each method is tried again");
			end_run(&r);
		}
}

static void
test_first_searches(void)
{
	static const double costs[N_CHOICES] = {5000, 1000, 50000};
	trial_run	r;

	begin_run(&r, 1);
	search(&r, 40, costs, 1);
	check(r.times[1] >= 20, "a cheaper method is found within 20 searches");
	end_run(&r);
}

/* Costs change after n searches; r tells of the last n / 10 */
static void
change(trial_run *r, int n, const double *before, const double *after, double noise)
{
	search(r, n, before, noise);
	search(r, n / 40, after, noise);
	search(r, n / 10, after, noise);
}

static void
test_change(void)
{
	static const double before[N_CHOICES] = {1000, 2000, 1000};
	static const double after[N_CHOICES] = {8000, 2000, 8000};
	static const double cheapest[N_CHOICES] = {1000, 2000, 2000};
	static const double dearest[N_CHOICES] = {8000, 2000, 2000};
	trial_run	r;

	begin_run(&r, 16);
	change(&r, 20000, before, after, 1.2);
	check(r.spent < 1.03 * r.least, "the choice follows the data");
	end_run(&r);

	/* one that has always been the cheapest becomes much slower */
	begin_run(&r, 1);
	change(&r, 1000, cheapest, dearest, 1);
	check(r.times[0] <= 10, "a method that has become slower is given up");
	end_run(&r);
}

static void
test_noise(void)
{
	static const double costs[N_CHOICES] = {1600, 1000, 1600};
	trial_run	r;

	begin_run(&r, 1);
	search(&r, 1000, costs, 3);
	search(&r, 10000, costs, 3);
	check(r.spent < 1.05 * r.least, "the choice stands noise");
	end_run(&r);
}

static void
test_outlier(void)
{
	static const double costs[N_CHOICES] = {1000, 3000, 3000};
	trial_run	r;

	begin_run(&r, 1);
	search(&r, 500, costs, 1);
	gpuvec_method_note(r.record, GPUVEC_METHOD_AUTO, 1, 1e9);
	search(&r, 100, costs, 1);
	check(r.times[0] >= 90, "one slow search does not change the choice");
	end_run(&r);
}

static void
test_slow_start(void)
{
	static const double costs[N_CHOICES] = {1000, 3000, 3000};
	trial_run	r;

	for (int c = 0; c < N_CHOICES; c++)
	{
		begin_run(&r, 1);
		gpuvec_method_note(r.record, choices[c], 1, 1e9);
		search(&r, 100, costs, 1);
		search(&r, 100, costs, 1);
		check(r.times[0] >= 90, "a slow start does not count");
		end_run(&r);
	}
}

/* ---- kinds ---- */

/* The record of n queries of `len` ids */
static gpuvec_method_record *
find(gpuvec_method_costs *costs, gpuvec_measure measure, uint32_t n, uint32_t len, uint32_t k,
	 bool bounded)
{
	gpuvec_topk_query queries[64] = {0};

	for (uint32_t i = 0; i < n; i++)
	{
		queries[i].len = len;
		queries[i].k = k;
		queries[i].has_min_score = bounded;
	}
	return gpuvec_method_costs_find(costs, measure, false, queries, n);
}

static void
test_kinds(void)
{
	gpuvec_method_costs *costs = gpuvec_method_costs_new();
	gpuvec_method_record *record = find(costs, GPUVEC_JACCARD, 16, 40, 10, false);

	for (int i = 0; i < 2; i++)
		gpuvec_method_note(record, GPUVEC_METHOD_BITSET, 16, 1000);
	check(record == find(costs, GPUVEC_JACCARD, 17, 41, 10, false), "similar searches are of a kind");
	check(record != find(costs, GPUVEC_DICE, 16, 40, 10, false), "measures differ");
	check(record != find(costs, GPUVEC_JACCARD, 32, 40, 10, false), "numbers of queries differ");
	check(record != find(costs, GPUVEC_JACCARD, 16, 60, 10, false), "lengths differ");
	check(record != find(costs, GPUVEC_JACCARD, 16, 40, 1000, false), "k differs");
	check(record != find(costs, GPUVEC_JACCARD, 16, 40, 10, true), "thresholds differ");
	check(gpuvec_method_choose(record, 16) == GPUVEC_METHOD_BITSET, "a record is kept");
	for (int i = 0; i < 10000; i++)
	{
		record = find(costs, (gpuvec_measure) (random32() % GPUVEC_N_MEASURES), 1 + random32() % 64,
					  random32() % 60000, random32() % 100000, random32() % 2);
		if (random32() % 2)
			gpuvec_method_note(record, choices[random32() % N_CHOICES], 1, random32());
	}
	record = find(costs, GPUVEC_DICE, 1, 7, 7, false);
	check(record == find(costs, GPUVEC_DICE, 1, 7, 7, false), "a new kind takes an old one's place");
	gpuvec_method_costs_unref(gpuvec_method_costs_ref(costs));
	gpuvec_method_costs_unref(costs);
}

/* ---- whole searches ---- */

/* A backend that notes what it is asked */
typedef struct noting_backend
{
	gpuvec_backend base;
	const gpuvec_topk_query *first;
	uint32_t	asked;			/* queries, each once and in order */
	uint32_t	by[N_CHOICES];	/* queries by each method */
	uint32_t	fails_at;		/* the call that fails; 0: none */
	uint32_t	calls;
} noting_backend;

static bool
noting_topk(gpuvec_backend *backend, const gpuvec_view *view, const gpuvec_scoring *scoring,
			gpuvec_method method, gpuvec_topk_query *queries, uint32_t nqueries,
			gpuvec_error *error)
{
	noting_backend *noting = (noting_backend *) backend;

	(void) view;
	(void) scoring;
	check(queries == noting->first + noting->asked, "queries are asked in order, each once");
	noting->asked += nqueries;
	noting->by[choice_of(method)] += nqueries;
	return ++noting->calls != noting->fails_at || gpuvec_fail_memory(error, 1);
}

static void
test_search(uint32_t nqueries, uint32_t fails_at, bool learns)
{
	gpuvec_topk_query *queries = calloc(nqueries, sizeof(*queries));
	noting_backend backend = {.base.topk = noting_topk,.first = queries,.fails_at = fails_at};
	gpuvec_scoring scoring = {.measure = GPUVEC_JACCARD};
	gpuvec_view view = {.costs = learns ? gpuvec_method_costs_new() : NULL};
	gpuvec_error error;
	bool		ok;

	ok = gpuvec_topk_by_cost(&backend.base, &view, &scoring, queries, nqueries, &error);
	check(ok == (fails_at == 0 || fails_at > backend.calls), "an error is passed on");
	check(!ok || backend.asked == nqueries, "all queries are asked");
	if (ok && learns && nqueries >= 4096)
		check(backend.by[0] > 0 && backend.by[1] > 0 && backend.by[2] > 0,
			  "a large batch tries all methods at once");
	else if (ok)
		check(backend.by[0] == nqueries, "a first search is by the backend's choice");
	gpuvec_method_costs_unref(view.costs);
	free(queries);
}

/* ---- costs of the CPU's lists ---- */

/* Nanoseconds to walk the list of a query's only id */
static double
cost_of_id(cpu_backend *cpu, const gpuvec_segment *segment, uint16_t id)
{
	gpuvec_topk_query query = {.ids = &id,.len = 1};

	return cpu_all_rows_cost(cpu, segment, &query);
}

/*
 * Lists cost what they have; ids outside of those of the segment have none,
 * whatever lies beyond the end of the lists
 */
static void
test_lists(void)
{
	uint32_t	start[] = {0, 5, 25, 1000000, 3000000};
	cpu_lists	lists = {.nrows = 100,.first_id = 10,.end_id = 12,.start = start};
	cpu_segment mine = {.lists = &lists};
	gpuvec_segment segment = {.nrows = 100,.device = &mine};
	cpu_backend cpu = {.simd = 0};

	check(cost_of_id(&cpu, &segment, 10) < cost_of_id(&cpu, &segment, 11), "a longer list costs more");
	check(cost_of_id(&cpu, &segment, 9) < cost_of_id(&cpu, &segment, 10), "an id below all others costs less");
	check(cost_of_id(&cpu, &segment, 12) == cost_of_id(&cpu, &segment, 9), "so does one above all others");
	check(cost_of_id(&cpu, &segment, 13) == cost_of_id(&cpu, &segment, 9), "or far above them");
}

int
main(void)
{
	test_lists();
	test_cheapest();
	test_first_searches();
	test_change();
	test_noise();
	test_outlier();
	test_slow_start();
	test_kinds();
	for (int learns = 0; learns < 2; learns++)
		for (uint32_t fails_at = 0; fails_at < 7; fails_at++)
		{
			test_search(1, fails_at, learns);
			test_search(100, fails_at, learns);
			test_search(4096, fails_at, learns);
			test_search(8191, fails_at, learns);
		}
	return report_checks();
}
