/*-------------------------------------------------------------------------
 *
 * server_memory.c
 *	  Requests for which the engine finds no memory.
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

static const shape small = {.rows_per_page = 12,.maxlen = 24,.vocabulary = 300};
static char path[128];
static long *left;				/* shared with the engine: see failing_malloc.c */

engine
memory_engine(void)
{
	static const char *const arguments[] = {"--cpu-threads", "2", NULL};
	engine		e;
	int			fd;

	snprintf(path, sizeof(path), "%s/memory", scratch);
	fd = open(path, O_RDWR | O_CREAT | O_TRUNC, 0600);
	if (fd < 0 || ftruncate(fd, sizeof(long)) < 0 ||
		(left = mmap(NULL, sizeof(long), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0)) == MAP_FAILED)
		exit(1);
	close(fd);
	setenv("GPUVEC_FAILING_MALLOC", path, 1);
	e = engine_start("lists:1", arguments);
	unsetenv("GPUVEC_FAILING_MALLOC");
	return e;
}

void
memory_engine_stop(engine *e)
{
	engine_stop(e);
	munmap(left, sizeof(long));
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

/*
 * A frame that is larger than any before it, so that there has to be memory
 * for it
 */
static bool
ask_large(client *c, void *arg)
{
	static uint32_t nids = 2 * 1024 * 1024;
	gpuvec_search head = {.key = ((searching *) arg)->m.key,.nqueries = 0,.nids = nids};
	size_t		size = sizeof(head) + nids * sizeof(uint16_t);
	char	   *frame = calloc(1, size);
	bool		ok;

	memcpy(frame, &head, sizeof(head));
	/*
	 * ids that no query has are a violation; so none but what fails before is
	 * looked at
	 */
	ok = client_call(c, GPUVEC_MSG_SEARCH, frame, size, GPUVEC_MSG_RESULT);
	free(frame);
	return ok;
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

	model_rewrite_page(&s->m, (uint32_t) random_below(s->m.nblocks), &small);
	return model_refresh(c, &s->m);
}

static bool
load_again(client *c, void *arg)
{
	return ask_load(c, arg) && search_again(c, arg);
}

void
test_memory(void)
{
	engine		e = memory_engine();
	client		c = client_open(&e);
	searching	s = {.m = model_new(100, 40, &small)};

	for (int i = 0; i < 8; i++)
		s.queries[i] = random_query(&small);
	check(model_load(&c, &s.m), "load");
	memory_try(&e, &c, "a search", ask_search, search_again, &s, false);
	memory_try(&e, &c, "a list", ask_list, ask_list, &s, false);
	memory_try(&e, &c, "a load", ask_load, load_again, &s, true);
	memory_try(&e, &c, "a refresh", ask_refresh, load_again, &s, true);

	/* a frame for which there is no memory is read all the same */
	__atomic_store_n(left, 1, __ATOMIC_RELAXED);
	check(!ask_large(&c, &s) && client_failed_with(&c, "53200"), "no memory for a large request");
	check(search_again(&c, &s), "the session goes on");
	for (int i = 0; i < 8; i++)
		free(s.queries[i].ids);
	model_free(&s.m);
	client_close(&c);
	memory_engine_stop(&e);
}
