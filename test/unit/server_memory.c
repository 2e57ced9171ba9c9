/*-------------------------------------------------------------------------
 *
 * server_memory.c
 *	  Requests for which the engine finds no memory, and whether it frees what
 *	  it has allocated for requests.
 *
 *-------------------------------------------------------------------------
 */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "server_memory.h"
#include "server_model.h"

/* No request makes as many allocations */
#define MOST	2000

/*
 * How often a request is made to see whether it loses memory: one allocation
 * each time shows beyond what may be kept of one, for the next
 */
#define REPEATS	20
#define MOST_KEPT	8
#define ATTEMPTS	3

/*
 * Queries of a request of more than 1 MB, after which the engine keeps no
 * buffer
 */
#define LARGE	12000

static const shape small = {.rows_per_page = 12,.maxlen = 24,.vocabulary = 300};
static char path[128];
static long *left;				/* shared with the engine: see failing_malloc.c */
static const long *live;		/* the same */
static bool lost = false;		/* was any memory? */

/* An engine with a fault, whose allocations can be made to fail */
static engine
faulty_engine(const char *fault)
{
	static const char *const arguments[] = {"--cpu-threads", "2", NULL};
	engine		e;
	int			fd;

	snprintf(path, sizeof(path), "%s/memory", scratch);
	fd = open(path, O_RDWR | O_CREAT | O_TRUNC, 0600);
	if (fd < 0 || ftruncate(fd, 2 * sizeof(long)) < 0 ||
		(left = mmap(NULL, 2 * sizeof(long), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0)) == MAP_FAILED)
		exit(1);
	close(fd);
	live = left + 1;
	setenv("GPUVEC_FAILING_MALLOC", path, 1);
	e = engine_start(fault, arguments);
	unsetenv("GPUVEC_FAILING_MALLOC");
	return e;
}

engine
memory_engine(void)
{
	return faulty_engine("lists:1");
}

void
memory_engine_stop(engine *e)
{
	engine_stop(e);
	munmap(left, 2 * sizeof(long));
	unlink(path);
}

void
memory_try(const engine *e, client *c, const char *what, memory_request request,
		   memory_request again, void *arg, bool closes)
{
	long		failed = 0;

	for (long n = 1; n < MOST; n++)
	{
		bool		ok;

		__atomic_store_n(left, n, __ATOMIC_RELAXED);
		ok = request(c, arg);
		if (__atomic_exchange_n(left, 0, __ATOMIC_RELAXED) > 0)
		{
			check(ok, what);
			break;
		}
		failed++;
		if (!check(ok || client_failed_with(c, "53200"), what))
			break;
		if (!ok && closes)
		{
			client_close(c);
			*c = client_open(e);
		}
		if (!check(again(c, arg), "the session goes on"))
			break;
	}
	check(failed > 0 && failed < MOST - 1, "allocations failed, and not for ever");
	if (getenv("SERVER_TEST_VERBOSE"))
		fprintf(stderr, "%s: %ld allocations failed\n", what, failed);
}

/*
 * The number of allocations that live, once the session has answered another
 * request: it frees what it had for an answer when that was sent
 */
static long
count_live(client *c)
{
	(void) client_engine_info(c);
	return __atomic_load_n(live, __ATOMIC_RELAXED);
}

/*
 * How many more allocations live than before.  Other threads may free theirs a
 * little later, for which the last attempt waits, unless memory was lost
 * before.
 */
static long
count_more(client *c, long before, bool last)
{
	double		begin = seconds();
	long		more;

	while ((more = count_live(c) - before) > MOST_KEPT && last && !lost && seconds() - begin < patience())
		usleep(10000);
	return more;
}

/* Make a request again and again; false: it failed */
static bool
repeat(client *c, memory_request request, void *arg)
{
	bool		ok = true;

	for (int i = 0; ok && i < REPEATS; i++)
		ok = request(c, arg);
	return ok;
}

/* Make a request again and again while each of its allocations fails */
static bool
repeat_failing(client *c, memory_request request, void *arg)
{
	bool		failed = true;

	for (long n = 1; failed && n < MOST; n++)
	{
		failed = false;
		for (int i = 0; i <= MOST_KEPT; i++)
		{
			__atomic_store_n(left, n, __ATOMIC_RELAXED);
			(void) request(c, arg);
			failed |= __atomic_exchange_n(left, 0, __ATOMIC_RELAXED) == 0;
		}
	}
	return request(c, arg);
}

/*
 * Check that not many more allocations live after such requests than before.
 * What is made once, as copies of rows on other devices when one lacked
 * memory, may be made meanwhile.  So only what comes again each time is lost.
 */
static void
check_none_lost(client *c, const char *what, memory_request request, void *arg,
				bool (*requests) (client *c, memory_request request, void *arg))
{
	long		more = MOST_KEPT + 1;

	/* if there are fewer, others had not freed theirs before */
	for (int i = 0; (more > MOST_KEPT || more < 0) && i < ATTEMPTS; i++)
	{
		long		before = count_live(c);

		if (!check(requests(c, request, arg), what))
			return;
		more = count_more(c, before, i + 1 == ATTEMPTS);
		if (getenv("SERVER_TEST_VERBOSE"))
			fprintf(stderr, "%s: %ld allocations more\n", what, more);
	}
	lost = lost || more > MOST_KEPT;
	if (!check(more <= MOST_KEPT, what))
		printf("%ld allocations more live\n", more);
}

void
memory_none_lost(client *c, const char *what, memory_request request, void *arg, bool fails)
{
	/* what is kept of one request for the next */
	if (!check(repeat(c, request, arg), what))
		return;
	check_none_lost(c, what, request, arg, repeat);
	if (fails)
		check_none_lost(c, what, request, arg, repeat_failing);
}

/* Searches by several queries, so that there are a few pieces */
typedef struct searching
{
	model		m;
	model_query queries[8];
} searching;

static bool
ask_search(client *c, void *arg)
{
	searching  *s = arg;
	buffer		b = {0};
	bool		ok;

	search_request(&b, &s->m.key, 0, GPUVEC_JACCARD, s->queries, 8);
	ok = client_call(c, GPUVEC_MSG_SEARCH, b.data, b.length, GPUVEC_MSG_RESULT);
	free(b.data);
	return ok;
}

static bool
search_again(client *c, void *arg)
{
	searching  *s = arg;

	return model_check(c, &s->m, GPUVEC_JACCARD, s->queries, 8);
}

static bool
ask_list(client *c, void *arg)
{
	(void) arg;
	return client_call(c, GPUVEC_MSG_LIST, NULL, 0, GPUVEC_MSG_MIRRORS) && c->frame.length > 0;
}

/* Requests that count, by several groupings if there are filter columns */
typedef struct counting
{
	buffer		requests[4];
} counting;

static counting
make_counting(searching *s)
{
	counting	counts = {0};

	for (int i = 0; i < 4; i++)
		model_count_request(&counts.requests[i], &s->m, GPUVEC_JACCARD, &s->queries[i]);
	return counts;
}

static bool
ask_counts(client *c, void *arg)
{
	const counting *counts = arg;

	for (int i = 0; i < 4; i++)
		if (!client_call(c, GPUVEC_MSG_SEARCH, counts->requests[i].data, counts->requests[i].length, GPUVEC_MSG_RESULT))
			return false;
	return true;
}

/* Counts for which there is no memory */
static void
count_scarcely(const engine *e, client *c, searching *s)
{
	counting	counts = make_counting(s);

	memory_try(e, c, "counts", ask_counts, ask_counts, &counts, false);
	memory_none_lost(c, "counts lose no memory", ask_counts, &counts, true);
	for (int i = 0; i < 4; i++)
		free(counts.requests[i].data);
}

/* A search that is right, unless there is no memory for it */
static bool
ask_scarce(client *c, void *arg)
{
	searching  *s = arg;

	return model_check_scarce(c, &s->m, GPUVEC_JACCARD, s->queries, 8);
}

/*
 * A search that is so large that there has to be memory for each such frame
 */
static bool
ask_large(client *c, searching *s)
{
	static model_query queries[LARGE];
	buffer		b = {0};
	bool		ok;

	for (int i = 0; i < LARGE; i++)
		queries[i] = s->queries[i % 8];
	search_request(&b, &s->m.key, 0, GPUVEC_JACCARD, queries, LARGE);
	ok = client_call(c, GPUVEC_MSG_SEARCH, b.data, b.length, GPUVEC_MSG_RESULT);
	free(b.data);
	return ok;
}

/* A frame for which there is no memory is read all the same */
static void
try_large(client *c, searching *s)
{
	int			refused = 0;

	for (int i = 0; i < 10; i++)
	{
		bool		ok;

		/* it may be another thread that finds no memory */
		__atomic_store_n(left, 1, __ATOMIC_RELAXED);
		ok = ask_large(c, s);
		check(ok || client_failed_with(c, "53200"), "no memory for a large request");
		refused += !ok;
		check(search_again(c, s), "the session goes on");
	}
	check(refused > 0, "large requests were refused");
	check(ask_large(c, s), "a large request is answered");
}

static bool
ask_load(client *c, void *arg)
{
	searching  *s = arg;

	s->m.key.relation++;
	s->m.refresh = 0;
	return model_load(c, &s->m);
}

static bool
ask_refresh(client *c, void *arg)
{
	searching  *s = arg;

	model_change_page(&s->m, (uint32_t) random_below(s->m.nblocks), &small);
	return model_refresh(c, &s->m);
}

/* A refresh that replaces so many pages that a bitmap tells of them */
static bool
refresh_many(client *c, searching *s)
{
	for (uint32_t block = 0; block < 40; block++)
		model_change_page(&s->m, block, &small);
	return model_refresh(c, &s->m);
}

static bool
load_again(client *c, void *arg)
{
	return ask_load(c, arg) && search_again(c, arg);
}

/* All that a mirror may meet, from its first load to its end */
static bool
ask_life(client *c, void *arg)
{
	searching  *s = arg;
	gpuvec_drop drop = {.database = s->m.key.database,.relation = s->m.key.relation};

	s->m.refresh = 0;
	return model_load(c, &s->m) && ask_refresh(c, arg) && refresh_many(c, s) && search_again(c, arg) &&
		client_call(c, GPUVEC_MSG_DROP, &drop, sizeof(drop), GPUVEC_MSG_COUNT);
}

/* A session of its own */
static bool
ask_session(client *c, void *arg)
{
	uint32_t	sessions = client_engine_info(c).connections;
	client		other = client_open(arg);
	bool		ok = client_engine_info(&other).connections == sessions + 1;

	client_close(&other);
	for (double begin = seconds(); client_engine_info(c).connections > sessions && seconds() - begin < patience();)
		usleep(1000);
	return ok;
}

/* Ask by queries of the most ids that there may be, `mb` MB of them */
static bool
ask_megabytes(client *c, searching *s, size_t mb)
{
	static uint16_t ids[GPUVEC_MAX_IDS];
	uint32_t	n = (uint32_t) (mb * 1024 * 1024 / sizeof(ids));
	model_query *queries = calloc(n, sizeof(*queries));
	buffer		b = {0};
	bool		ok;

	for (int i = 0; i < GPUVEC_MAX_IDS; i++)
		ids[i] = (uint16_t) i;
	for (uint32_t i = 0; i < n; i++)
	{
		queries[i].ids = ids;
		queries[i].wire.len = GPUVEC_MAX_IDS;
		queries[i].wire.k = 1;
	}
	search_request(&b, &s->m.key, 0, GPUVEC_JACCARD, queries, n);
	free(queries);
	ok = client_call(c, GPUVEC_MSG_SEARCH, b.data, b.length, GPUVEC_MSG_RESULT);
	free(b.data);
	return ok;
}

/*
 * What a request takes beyond 16 MB is charged while it is served, and
 * refused if the budget of 8 MB has no room for it
 */
void
test_request_budget(void)
{
	engine		e = engine_start(NULL, (const char *const[]) {"--device-memory", "8", "--cpu-threads", "2", NULL});
	client		c = client_open(&e);
	client		other = client_open(&e);
	searching	s = {.m = model_new(100, 40, &small)};
	uint64_t	before;

	for (int i = 0; i < 8; i++)
		s.queries[i] = random_query(&small);
	check(model_load(&c, &s.m), "load");
	before = client_engine_info(&c).memory_used;
	check(ask_megabytes(&c, &s, 8), "what a session has free");
	check(ask_megabytes(&c, &s, 20), "and what there is room for");
	check(client_engine_info(&c).memory_used == before, "is charged no longer than that");
	check(!ask_megabytes(&c, &s, 40) && client_failed_with(&c, "53200") && client_error_fallback(&c),
		  "but no more");
	check(strstr(client_error_text(&c, 2), "gpuvec.device_memory") != NULL, "with a hint");
	check(client_engine_info(&c).memory_used == before, "nothing stays charged");
	check(search_again(&c, &s) && search_again(&other, &s), "the session goes on");
	for (int i = 0; i < 8; i++)
		free(s.queries[i].ids);
	model_free(&s.m);
	client_close(&other);
	client_close(&c);
	engine_stop(&e);
}

/*
 * Searches of rows that got ids above 65535 only after the load, so that
 * these have cold numbers though they are common
 */
static void
search_cold(client *c, const searching *s)
{
	searching	cold = *s;

	cold.m = model_new(102, 100, &small);
	check(model_load(c, &cold.m), "load");
	wide_from = 1;
	for (uint32_t block = 0; block < cold.m.nblocks; block++)
		model_rewrite_page(&cold.m, block, &small);
	check(model_refresh(c, &cold.m) && search_again(c, &cold), "cold numbers");
	memory_none_lost(c, "a search of cold numbers loses no memory", ask_search, &cold, true);
	wide_from = 0;
	model_free(&cold.m);
}

/*
 * Searches of rows that the first device has no memory to search, so that the
 * others do, if there are any
 */
static void
search_elsewhere(searching *s)
{
	engine		e = faulty_engine("lists:1,part-search:0");
	client		c = client_open(&e);

	s->m.refresh = 0;
	check(model_load(&c, &s->m), "load");
	memory_none_lost(&c, "a search on another device loses no memory", ask_search, s, false);
	client_close(&c);
	memory_engine_stop(&e);
}

void
test_memory(void)
{
	engine		e = memory_engine();
	client		c = client_open(&e);
	searching	s = {.m = model_new(100, 40, &small)};
	searching	wide;

	for (int i = 0; i < 8; i++)
		s.queries[i] = random_query(&small);
	check(model_load(&c, &s.m), "load");
	memory_try(&e, &c, "a search", ask_scarce, search_again, &s, false);
	memory_try(&e, &c, "a list", ask_list, ask_list, &s, false);
	memory_try(&e, &c, "a load", ask_load, load_again, &s, true);
	memory_try(&e, &c, "a refresh", ask_refresh, load_again, &s, true);
	try_large(&c, &s);
	memory_none_lost(&c, "searches lose no memory", search_again, &s, false);
	memory_none_lost(&c, "a search loses no memory", ask_search, &s, true);
	memory_none_lost(&c, "lists lose no memory", ask_list, &s, true);
	count_scarcely(&e, &c, &s);
	memory_none_lost(&c, "sessions lose no memory", ask_session, &e, false);
	memory_none_lost(&c, "mirrors lose no memory", ask_life, &s, false);
	/* so many rows that their ids are numbered by several threads */
	wide = s;
	wide.m = model_new(101, 1000, &small);
	wide_from = 30;
	memory_none_lost(&c, "mirrors of wide ids lose no memory", ask_life, &wide, false);
	wide_from = 0;
	model_free(&wide.m);
	search_cold(&c, &s);
	client_close(&c);
	memory_engine_stop(&e);
	search_elsewhere(&s);
	for (int i = 0; i < 8; i++)
		free(s.queries[i].ids);
	model_free(&s.m);
}
