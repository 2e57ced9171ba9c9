/*-------------------------------------------------------------------------
 *
 * server_joint.c
 *	  Loads by several sessions.
 *
 * Ranges of pages are dealt out to readers, the first of which has begun the
 * load.  Answers are compared with brute force.
 *
 *-------------------------------------------------------------------------
 */
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "server_joint.h"
#include "server_model.h"

#define READERS		4
#define NUMBER		UINT64_C(0x123456789abcdef)

static const char *const plain[] = {"--cpu-threads", "2", NULL};
static const shape small = {.rows_per_page = 20,.maxlen = 12,.vocabulary = 40};
static const shape mixed = {.rows_per_page = 12,.maxlen = 300,.vocabulary = 2000};
/* many rows of few lengths: most ties are broken by the order of tids */
static const shape alike = {.rows_per_page = 60,.maxlen = 3,.vocabulary = 8};

static bool
begin(client *c, model *m, uint64_t number)
{
	gpuvec_load load = {.key = m->key,.nblocks = m->nblocks,.number = number};

	for (uint32_t block = 0; block < m->nblocks; block++)
		m->pages[block].dirty = true;
	return client_call(c, GPUVEC_MSG_LOAD_BEGIN, &load, sizeof(load), GPUVEC_MSG_STATE) &&
		client_state(c).state == GPUVEC_ABSENT;
}

static bool
join(client *c, const gpuvec_mirror_key *key, uint64_t number)
{
	gpuvec_load_join request = {.key = *key,.number = number};

	return client_call(c, GPUVEC_MSG_LOAD_JOIN, &request, sizeof(request), GPUVEC_MSG_STATE) &&
		client_state(c).state == GPUVEC_LOADING;
}

static bool
leave(client *c, uint64_t npages)
{
	return client_call(c, GPUVEC_MSG_LOAD_LEAVE, NULL, 0, GPUVEC_MSG_COUNT) &&
		*(uint64_t *) c->data == npages;
}

static bool
commit(client *c, const model *m)
{
	gpuvec_commit request = {.position = 1,.nblocks = m->nblocks};

	return client_call(c, GPUVEC_MSG_COMMIT, &request, sizeof(request), GPUVEC_MSG_STATE);
}

static bool
is_absent(client *c, const model *m)
{
	return client_call(c, GPUVEC_MSG_STAT, &m->key, sizeof(m->key), GPUVEC_MSG_STATE) &&
		client_state(c).state == GPUVEC_ABSENT;
}

/* Wait until nothing is left of a load that has failed */
static void
wait_absent(client *c, const model *m)
{
	int			n = 0;

	while (!is_absent(c, m) && n++ < 5000)
		usleep(1000);
	check(n < 5000, "nothing is left of it");
}

/* Load by several readers, who get ranges of 1 .. most pages */
static void
load_dealt(const engine *e, client *c, model *m, int readers, uint32_t most)
{
	client		others[READERS];
	uint64_t	sent[READERS] = {0};
	uint32_t	next;

	check(begin(c, m, NUMBER), "begin");
	for (int i = 1; i < readers; i++)
	{
		others[i] = client_open(e);
		check(join(&others[i], &m->key, NUMBER), "join");
	}
	for (uint32_t block = 0; block < m->nblocks; block = next)
	{
		int			who = (int) random_below((uint64_t) readers);

		next = block + 1 + (uint32_t) random_below(most);
		next = next < m->nblocks ? next : m->nblocks;
		check(model_send_range(who == 0 ? c : &others[who], m, true, block, next), "send");
		sent[who] += next - block;
	}
	for (int i = 1; i < readers; i++)
	{
		check(leave(&others[i], sent[i]), "leave");
		client_close(&others[i]);
	}
	check(model_commit(c, m), "commit");
}

void
test_joint(void)
{
	static const uint32_t sizes[] = {0, 1, 2, 9, 64, 700};
	engine		e = engine_start(NULL, plain);
	client		c = client_open(&e);

	/* rows with ids of 32 bits, and filter columns, in turn */
	for (uint32_t i = 0; i < 4 * sizeof(sizes) / sizeof(sizes[0]); i++)
	{
		const shape *s = i % 2 ? &mixed : &small;
		gpuvec_mirror_info info;
		model		m;

		wide_from = i % 3 == 1 ? 30 : 0;
		model_filters = i % 4 == 2 ? 3 : 0;
		model_values = i % 5 == 3;
		m = model_new(100 + i, sizes[i / 4], s);
		for (int loads = 1; loads <= 2; loads++)
		{
			if (loads == 2)
				check(client_call(&c, GPUVEC_MSG_DROP, &(gpuvec_drop) {.database = m.key.database,.relation = m.key.relation},
								  sizeof(gpuvec_drop), GPUVEC_MSG_COUNT), "drop");
			load_dealt(&e, &c, &m, 1 + (int) random_below(READERS), 1 + (uint32_t) random_below(20));
			for (int n = 0; n < 20; n++)
				check(model_check_random(&c, &m, s), "search");
		}
		check(client_mirror_info(&c, &m.key, &info) && info.loads == 1 && info.pages_done == info.pages_total,
			  "it is listed");
		/* pages and their LSNs are those that were sent */
		for (uint32_t n = 0; n < 5 && m.nblocks > 0; n++)
			model_change_page(&m, (uint32_t) random_below(m.nblocks), s);
		check(model_refresh(&c, &m) && model_refresh(&c, &m), "refresh");
		check(model_check_random(&c, &m, s), "search");
		model_free(&m);
	}
	wide_from = model_filters = 0;
	model_values = false;
	client_close(&c);
	engine_stop(&e);
}

/* Many rows of equal score: their order is that of their tids */
void
test_joint_order(void)
{
	engine		e = engine_start(NULL, plain);
	client		c = client_open(&e);
	model		m = model_new(7, 1200, &alike);

	for (int loads = 0; loads < 3; loads++)
	{
		load_dealt(&e, &c, &m, READERS, loads == 0 ? 1 : 100);
		for (int n = 0; n < 30; n++)
			check(model_check_random(&c, &m, &alike), "search");
		check(client_call(&c, GPUVEC_MSG_DROP, &(gpuvec_drop) {0}, sizeof(gpuvec_drop), GPUVEC_MSG_COUNT), "drop");
	}
	model_free(&m);
	client_close(&c);
	engine_stop(&e);
}

/* A commit that fails, and what becomes of the load */
static void
expect_no_load(client *c, model *m, const char *what)
{
	check(!commit(c, m) && client_failed_with(c, "08P01"), what);
	client_close(c);
}

void
test_joint_violations(void)
{
	engine		e = engine_start(NULL, plain);
	model		m = model_new(7, 40, &small);
	model		other = model_new(8, 4, &small);
	client		b = client_open(&e);

	check(!join(&b, &m.key, NUMBER) && client_state(&b).state == GPUVEC_ABSENT, "there is no load");
	for (int i = 0; i < 9; i++)
	{
		client		a = client_open(&e);
		client		c = client_open(&e);

		check(begin(&a, &m, NUMBER), "begin");
		check(!join(&b, &m.key, NUMBER + 1) && client_state(&b).state == GPUVEC_ABSENT, "another number");
		check(!join(&b, &m.key, 0) && client_state(&b).state == GPUVEC_ABSENT, "no number");
		check(!join(&b, &other.key, NUMBER) && client_state(&b).state == GPUVEC_ABSENT, "another mirror");
		check(join(&c, &m.key, NUMBER), "join");
		check(model_send_range(&a, &m, true, 0, 20), "send");
		switch (i)
		{
			case 0:
				check(model_send_range(&c, &m, true, 20, 39) && leave(&c, 19), "leave");
				expect_no_load(&a, &m, "a page is missing");
				break;
			case 1:
				check(model_send_range(&c, &m, true, 19, 40) && leave(&c, 21), "leave");
				expect_no_load(&a, &m, "a page comes twice");
				break;
			case 2:
				/* as many pages as there are */
				check(model_send_range(&c, &m, true, 19, 39) && leave(&c, 20), "leave");
				expect_no_load(&a, &m, "a page comes twice, and one is missing");
				break;
			case 3:
				check(model_send_range(&c, &m, true, 20, 40), "send");
				expect_no_load(&a, &m, "a part is not handed over");
				(void) client_call(&c, GPUVEC_MSG_LOAD_LEAVE, NULL, 0, GPUVEC_MSG_COUNT);
				break;
			case 4:
				check(model_send_range(&c, &m, true, 20, 40), "send");
				client_close(&c);
				expect_no_load(&a, &m, "who had joined is gone");
				break;
			case 5:
				check(!commit(&c, &m) && client_failed_with(&c, "08P01"), "a part is not committed");
				expect_no_load(&a, &m, "pages are missing");
				break;
			case 6:
				check(!join(&c, &m.key, NUMBER) && client_failed_with(&c, "08P01"), "join twice");
				expect_no_load(&a, &m, "pages are missing");
				break;
			case 7:
				check(!client_call(&a, GPUVEC_MSG_LOAD_LEAVE, NULL, 0, GPUVEC_MSG_COUNT) &&
					  client_failed_with(&a, "08P01"), "who has begun does not leave");
				client_close(&a);
				break;
			case 8:
				check(model_send_range(&c, &m, true, 20, 30), "send");
				(void) model_send_range(&c, &m, true, 25, 40);
				check(client_read(&c) && client_failed_with(&c, "08P01"), "pages of a part ascend");
				check(!commit(&a, &m) && client_failed_with(&a, "08P01"), "and the load has failed");
				client_close(&a);
				break;
		}
		if (i != 4)
			client_close(&c);
		wait_absent(&b, &m);
		(void) client_call(&b, GPUVEC_MSG_DROP, &(gpuvec_drop) {0}, sizeof(gpuvec_drop), GPUVEC_MSG_COUNT);
	}
	check(!client_call(&b, GPUVEC_MSG_LOAD_LEAVE, NULL, 0, GPUVEC_MSG_COUNT) &&
		  client_failed_with(&b, "08P01"), "leave what was not joined");
	client_close(&b);
	b = client_open(&e);
	load_dealt(&e, &b, &m, READERS, 5);
	check(model_check_random(&b, &m, &small), "at last it is loaded");
	model_free(&m);
	model_free(&other);
	client_close(&b);
	engine_stop(&e);
}

/* Who has begun a load ends, while others have parts of it */
void
test_joint_ends(void)
{
	engine		e = engine_start(NULL, plain);
	model		m = model_new(7, 400, &small);
	client		b = client_open(&e);
	client		c = client_open(&e);
	client		late = client_open(&e);
	client		a = client_open(&e);

	check(begin(&a, &m, NUMBER) && join(&b, &m.key, NUMBER) && join(&c, &m.key, NUMBER) &&
		  join(&late, &m.key, NUMBER), "join");
	check(model_send_range(&b, &m, true, 0, 100) && leave(&b, 100), "one has left");
	check(model_send_range(&c, &m, true, 100, 200), "one is sending");
	/* the engine has taken these pages before it answers */
	(void) client_engine_info(&c);
	client_close(&a);
	wait_absent(&b, &m);
	check(client_engine_info(&b).memory_used == 0, "nothing is charged");
	check(begin(&b, &m, NUMBER + 1), "another load begins");
	check(leave(&c, 100), "what comes too late");
	(void) model_send_range(&late, &m, true, 0, 400);
	check(client_read(&late) && client_failed_with(&late, "55006"), "is not taken");
	client_close(&late);
	check(model_send_pages(&b, &m, true) && model_commit(&b, &m), "the other load");
	check(model_check_random(&b, &m, &small), "has its own pages");
	model_free(&m);
	client_close(&b);
	client_close(&c);
	engine_stop(&e);
}

/* A load that does not fit fails early, whoever sends too much */
void
test_joint_budget(void)
{
	engine		e = engine_start(NULL, (const char *const[]) {"--device-memory", "4", "--cpu-threads", "2", NULL});
	client		a = client_open(&e);
	client		b = client_open(&e);
	client		c = client_open(&e);
	model		huge = model_new(7, 12000, &small);
	model		m = model_new(8, 100, &small);

	check(begin(&a, &huge, NUMBER) && join(&b, &huge.key, NUMBER) && join(&c, &huge.key, NUMBER), "join");
	check(!model_send_range(&b, &huge, true, 0, 12000), "too much");
	check(client_read(&b) && client_failed_with(&b, "53200") && client_error_fallback(&b), "out of memory");
	(void) model_send_range(&c, &huge, true, 0, 10);
	check(client_read(&c) && client_failed_with(&c, "53200"), "all others are told");
	check(!commit(&a, &huge) && client_failed_with(&a, "53200") && client_error_fallback(&a), "why it fails");
	check(is_absent(&a, &huge) && client_engine_info(&a).memory_used == 0, "nothing is left");
	load_dealt(&e, &a, &m, READERS, 9);
	check(model_check_random(&a, &m, &small), "others can be loaded");
	check(client_engine_info(&a).memory_used <= 4 << 20, "the budget is kept");
	model_free(&huge);
	model_free(&m);
	client_close(&a);
	client_close(&b);
	client_close(&c);
	engine_stop(&e);
}

/* A thread that reads some of the ranges */
typedef struct reader
{
	client		c;
	model	   *m;
	uint32_t   *next;			/* atomic: shared by all */
	uint64_t	npages;
	bool		ok;
} reader;

static void *
read_ranges(void *arg)
{
	reader	   *r = arg;
	uint32_t	block;

	while ((block = __atomic_fetch_add(r->next, 16, __ATOMIC_RELAXED)) < r->m->nblocks)
	{
		uint32_t	end = block + 16 < r->m->nblocks ? block + 16 : r->m->nblocks;

		r->ok &= model_send_range(&r->c, r->m, true, block, end);
		r->npages += end - block;
	}
	return NULL;
}

void
test_joint_concurrency(void)
{
	engine		e = engine_start(NULL, plain);
	client		c = client_open(&e);
	model		m = model_new(7, 3000, &small);

	for (int loads = 0; loads < 5; loads++)
	{
		reader		readers[READERS];
		pthread_t	threads[READERS];
		uint32_t	next = 0;

		check(begin(&c, &m, NUMBER + (uint64_t) loads), "begin");
		for (int i = 0; i < READERS; i++)
		{
			readers[i] = (reader) {.c = client_open(&e),.m = &m,.next = &next,.ok = true};
			check(join(&readers[i].c, &m.key, NUMBER + (uint64_t) loads), "join");
		}
		for (int i = 0; i < READERS; i++)
			pthread_create(&threads[i], NULL, read_ranges, &readers[i]);
		for (int i = 0; i < READERS; i++)
		{
			pthread_join(threads[i], NULL);
			check(readers[i].ok && leave(&readers[i].c, readers[i].npages), "leave");
			client_close(&readers[i].c);
		}
		check(model_commit(&c, &m), "commit");
		check(model_check_random(&c, &m, &small), "search");
		check(client_call(&c, GPUVEC_MSG_DROP, &(gpuvec_drop) {0}, sizeof(gpuvec_drop), GPUVEC_MSG_COUNT), "drop");
	}
	model_free(&m);
	client_close(&c);
	engine_stop(&e);
}

/* Oust whoever changes the mirror; returns how many were hung up */
static uint64_t
oust(client *c, const model *m)
{
	return client_call(c, GPUVEC_MSG_OUST, &m->key, sizeof(m->key), GPUVEC_MSG_COUNT) ?
		*(uint64_t *) c->data : UINT64_MAX;
}

/* A session that was hung up sends what it has left: nothing of it counts */
static void
send_late(client *late, const model *m)
{
	model		other = *m;

	(void) model_send_range(late, &other, true, m->nblocks / 2, m->nblocks);
	check(!commit(late, m), "a late commit fails");
	client_close(late);
}

/* A load or refresh that makes no step, and the one that takes its place */
void
test_oust(void)
{
	engine		e = engine_start(NULL, plain);
	client		c = client_open(&e);
	client		stalled = client_open(&e);
	client		helpers[2] = {client_open(&e), client_open(&e)};
	model		m = model_new(100, 20, &small);

	check(oust(&c, &m) == 0, "nobody to oust");

	/* a load, of which some pages came, those of others too */
	check(begin(&stalled, &m, NUMBER), "begin");
	check(join(&helpers[0], &m.key, NUMBER) && join(&helpers[1], &m.key, NUMBER), "join");
	check(model_send_range(&stalled, &m, true, 0, 5), "send");
	check(model_send_range(&helpers[0], &m, true, 5, 9) && leave(&helpers[0], 4), "leave");
	check(model_send_range(&helpers[1], &m, true, 9, 10), "send");
	check(oust(&c, &m) == 2, "the loader and a helper are hung up");
	check(is_absent(&c, &m), "nothing is left of the load");
	check(join(&helpers[0], &m.key, NUMBER) == false, "nobody joins it any more");
	for (uint32_t block = 0; block < m.nblocks; block++)
		model_rewrite_page(&m, block, &small);
	check(begin(&c, &m, 0) && model_send_pages(&c, &m, true), "another load");
	send_late(&stalled, &m);
	client_close(&helpers[1]);
	check(model_commit(&c, &m), "commit");
	check(model_check_random(&c, &m, &small), "its pages count");

	/* a refresh */
	stalled = client_open(&e);
	check(client_call(&stalled, GPUVEC_MSG_REFRESH_BEGIN, &(gpuvec_refresh) {.key = m.key,.lsns = 1},
					  sizeof(gpuvec_refresh), GPUVEC_MSG_STATE), "refresh");
	check(model_send_range(&stalled, &m, true, 0, 5), "send");
	check(oust(&c, &m) == 1, "the refresher is hung up");
	for (uint32_t block = 0; block < m.nblocks; block += 2)
		model_rewrite_page(&m, block, &small);
	check(model_refresh(&c, &m), "another refresh");
	send_late(&stalled, &m);
	check(oust(&c, &m) == 0 && model_check_random(&c, &m, &small), "its pages count");
	client_close(&helpers[0]);
	client_close(&c);
	model_free(&m);
	engine_stop(&e);
}
