/*-------------------------------------------------------------------------
 *
 * server_partitions.c
 *	  Searches of several mirrors at once.
 *
 * What each mirror answers alone is compared with brute force elsewhere.
 * Here these answers are merged, and compared with that of one request.
 *
 *-------------------------------------------------------------------------
 */
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "server_model.h"
#include "server_partitions.h"

#define PARTITIONS		6
#define QUERIES		12

static const char *const plain[] = {"--cpu-threads", "2", NULL};
static const shape few_ids = {.rows_per_page = 20,.maxlen = 6,.vocabulary = 30};
static const shape many_ids = {.rows_per_page = 20,.maxlen = 24,.vocabulary = 300};

/* Hits of a query in one mirror */
typedef struct hit_list
{
	uint32_t	n;
	gpuvec_hit *hits;			/* malloc'd */
} hit_list;

/* A search of some mirrors */
typedef struct partitions_search
{
	model	   *models;
	uint32_t	npartitions;
	uint32_t	late;			/* mirror that is late; PARTITIONS: none */
	gpuvec_measure measure;
	uint64_t	known;
	uint64_t	xmin;
	model_query *queries;
	uint32_t	n;
} partitions_search;

/* Read the answer of one mirror at *at; false if it is malformed */
static bool
read_lists(const char **at, const char *end, uint32_t n, hit_list *lists, gpuvec_result *result)
{
	const char *counts = *at + sizeof(*result);
	const gpuvec_hit *hits;

	memset(lists, 0, n * sizeof(*lists));
	if (counts > end)
		return false;
	memcpy(result, *at, sizeof(*result));
	hits = (const gpuvec_hit *) (counts + (result->nqueries + 1) / 2 * 2 * sizeof(uint32_t));
	*at = (const char *) (hits + result->nhits);
	if (result->npassed != 0 || *at > end || (result->nqueries != 0 && result->nqueries != n))
		return false;
	for (uint32_t i = 0; i < result->nqueries; i++)
	{
		memcpy(&lists[i].n, counts + i * sizeof(uint32_t), sizeof(uint32_t));
		if ((const char *) (hits + lists[i].n) > *at)
			return false;
		lists[i].hits = malloc((lists[i].n + 1) * sizeof(gpuvec_hit));
		memcpy(lists[i].hits, hits, lists[i].n * sizeof(gpuvec_hit));
		hits += lists[i].n;
	}
	return (const char *) hits == *at;
}

/* The position that a mirror has to be checked to */
static uint64_t
needed(const partitions_search *s, uint32_t partition)
{
	return s->models[partition].position + (partition == s->late ? 1000 : 0);
}

/* What a mirror answers alone */
static bool
ask_alone(client *c, const partitions_search *s, uint32_t partition, hit_list *lists)
{
	buffer		b = {0};
	gpuvec_result result;
	const char *at;
	bool		ok;

	search_request(&b, &s->models[partition].key, needed(s, partition), s->measure, s->queries, s->n);
	((gpuvec_search *) b.data)->known = s->known;
	((gpuvec_search *) b.data)->xmin = s->xmin;
	ok = check(client_call(c, GPUVEC_MSG_SEARCH, b.data, b.length, GPUVEC_MSG_RESULT), "a search");
	at = c->data;
	ok = ok && check(read_lists(&at, c->data + c->frame.length, s->n, lists, &result), "its answer");
	free(b.data);
	return ok;
}

/* Of k rows in all keep the first ones: the best of all mirrors, in order */
static void
keep_best(hit_list alone[PARTITIONS][QUERIES], uint32_t npartitions, uint32_t query, uint32_t k)
{
	uint32_t	taken[PARTITIONS] = {0};

	for (uint32_t i = 0; i < k; i++)
	{
		uint32_t	best = PARTITIONS;

		for (uint32_t p = 0; p < npartitions; p++)
			if (taken[p] < alone[p][query].n &&
				(best == PARTITIONS || alone[p][query].hits[taken[p]].score >
				 alone[best][query].hits[taken[best]].score))
				best = p;
		if (best == PARTITIONS)
			break;
		taken[best]++;
	}
	for (uint32_t p = 0; p < npartitions; p++)
		alone[p][query].n = taken[p];
}

/* The request */
static void
partitions_request(buffer *b, const partitions_search *s)
{
	gpuvec_search_partitions head = {
		.measure = s->measure,.method = random_below(GPUVEC_N_METHODS),.npartitions = s->npartitions,
		.nqueries = s->n
	};
	buffer		one = {0};
	size_t		at = sizeof(gpuvec_search);
	size_t		weights = s->measure == GPUVEC_TVERSKY ? sizeof(gpuvec_search_weights) : 0;

	search_request(&one, &s->models[0].key, 0, s->measure, s->queries, s->n);
	head.xmin = s->xmin;
	head.nids = ((gpuvec_search *) one.data)->nids;
	buffer_add(b, &head, sizeof(head));
	buffer_add(b, one.data + at, weights);
	for (uint32_t p = 0; p < s->npartitions; p++)
	{
		gpuvec_search_partition partition = {
			.key = s->models[p].key,.need.position = needed(s, p),.known = s->known
		};

		buffer_add(b, &partition, sizeof(partition));
	}
	buffer_add(b, one.data + at + weights, one.length - at - weights);
	free(one.data);
}

/* True if both have the same hits */
static bool
same_hits(const hit_list *a, const hit_list *b)
{
	return a->n == b->n && memcmp(a->hits, b->hits, a->n * sizeof(gpuvec_hit)) == 0;
}

static void
free_lists(hit_list lists[PARTITIONS][QUERIES])
{
	for (uint32_t p = 0; p < PARTITIONS; p++)
		for (uint32_t i = 0; i < QUERIES; i++)
			free(lists[p][i].hits);
}

/*
 * Deal the hits of an answer to lists; false if it is malformed, or the hits
 * of a query are not in the order (score descending, partition, tid)
 */
static bool
deal_answer(const client *c, const partitions_search *s, hit_list found[PARTITIONS][QUERIES])
{
	const char *counts = c->data + s->npartitions * sizeof(gpuvec_result);
	const gpuvec_hit *hits = (const gpuvec_hit *) (counts + (s->n + 1) / 2 * 2 * sizeof(uint32_t));
	size_t		bytes = (const char *) hits - c->data;
	size_t		n = c->frame.length < bytes ? 0 : (c->frame.length - bytes) / (sizeof(gpuvec_hit) + sizeof(uint16_t));
	const uint16_t *whose = (const uint16_t *) (hits + n);
	size_t		at = 0;

	if (c->frame.length != bytes + n * (sizeof(gpuvec_hit) + sizeof(uint16_t)))
		return false;
	for (uint32_t i = 0; i < s->n; i++)
	{
		uint32_t	count;

		memcpy(&count, counts + i * sizeof(count), sizeof(count));
		if (count > n - at)
			return false;
		for (uint32_t p = 0; p < s->npartitions; p++)
			found[p][i].hits = malloc((count + 1) * sizeof(gpuvec_hit));
		for (uint32_t j = 0; j < count; j++, at++)
		{
			const gpuvec_hit *before = j > 0 ? &hits[at - 1] : NULL;
			hit_list   *list;

			if (whose[at] >= s->npartitions ||
				(before && (before->score < hits[at].score ||
							(before->score == hits[at].score &&
							 (whose[at - 1] > whose[at] ||
							  (whose[at - 1] == whose[at] &&
							   gpuvec_hit_tid(before->place) >= gpuvec_hit_tid(hits[at].place)))))))
				return false;
			list = &found[whose[at]][i];
			list->hits[list->n++] = hits[at];
		}
	}
	return at == n;
}

/* Ask for all partitions, and compare with what each answers alone */
static void
check_partitions(client *c, const partitions_search *s)
{
	hit_list	alone[PARTITIONS][QUERIES] = {{{0}}};
	hit_list	found[PARTITIONS][QUERIES] = {{{0}}};
	buffer		b = {0};
	bool		ok = true;

	for (uint32_t p = 0; p < s->npartitions && ok; p++)
		ok = ask_alone(c, s, p, alone[p]);
	for (uint32_t i = 0; i < s->n; i++)
		keep_best(alone, s->npartitions, i, s->queries[i].wire.k);
	partitions_request(&b, s);
	ok = ok && check(client_call(c, GPUVEC_MSG_SEARCH_PARTITIONS, b.data, b.length, GPUVEC_MSG_PARTITIONS_RESULT),
					 "a search of parts") &&
		check(deal_answer(c, s, found), "its answer");
	for (uint32_t p = 0; p < s->npartitions && ok; p++)
	{
		gpuvec_result result;
		uint64_t	n = 0;

		memcpy(&result, c->data + p * sizeof(result), sizeof(result));
		ok = check(result.state.state == GPUVEC_READY &&
				   result.nqueries == (p == s->late ? 0 : s->n), "is searched if it is fresh");
		for (uint32_t i = 0; i < s->n && ok; i++)
		{
			ok = check(same_hits(&alone[p][i], &found[p][i]), "the best rows of all parts");
			n += found[p][i].n;
		}
		check(!ok || result.nhits == n, "the rows of a part");
	}
	free_lists(alone);
	free_lists(found);
	free(b.data);
}

/* Random queries, as they may be in a search of partitions */
static void
make_queries(model_query *queries, const shape *s)
{
	for (int i = 0; i < QUERIES; i++)
	{
		queries[i] = random_query(s);
		queries[i].wire.k = 1 + (uint32_t) random_below(i % 3 == 0 ? 400 : 20);
		queries[i].wire.flags &= GPUVEC_QUERY_MIN_SCORE;
		queries[i].wire.nconditions = queries[i].wire.nvalues = 0;
	}
}

void
random_partitions_request(buffer *b, const model *m, const shape *s)
{
	model		twice[2] = {*m, *m};
	model_query queries[QUERIES];
	partitions_search search = {
		.models = twice,.npartitions = 2,.late = PARTITIONS,.queries = queries,
		.measure = (gpuvec_measure) random_below(GPUVEC_N_WIRE_MEASURES),
		.n = 1 + (uint32_t) random_below(QUERIES)
	};

	make_queries(queries, s);
	partitions_request(b, &search);
	for (int i = 0; i < QUERIES; i++)
		free(queries[i].ids);
}

/* All measures; one query and several; all mirrors, and one that is behind */
static void
search_partitions(client *c, model *models, uint32_t npartitions, const shape *s)
{
	model_query queries[QUERIES];
	partitions_search search = {.models = models,.npartitions = npartitions,.queries = queries};

	make_queries(queries, s);
	for (int i = 0; i < GPUVEC_N_WIRE_MEASURES * 8; i++)
	{
		search.measure = (gpuvec_measure) (i % GPUVEC_N_WIRE_MEASURES);
		search.n = i % 2 == 0 ? QUERIES : 1;
		search.late = i % 5 == 0 ? (uint32_t) random_below(npartitions) : PARTITIONS;
		search.known = i % 3 == 0 ? 0 : models[0].refresh;
		search.xmin = random_below(MODEL_XIDS + 2);
		check_partitions(c, &search);
	}
	for (int i = 0; i < QUERIES; i++)
		free(queries[i].ids);
}

/* Invalid requests end the connection, and nothing else */
static void
bad_requests(engine *e, model *models)
{
	model_query queries[QUERIES];
	partitions_search search = {.models = models,.npartitions = 3,.late = PARTITIONS,.queries = queries,.n = 2};

	make_queries(queries, &many_ids);
	for (int i = 0; i < 8; i++)
	{
		client		d = client_open(e);
		buffer		b = {0};
		gpuvec_search_partitions *head;
		gpuvec_query *query;

		partitions_request(&b, &search);
		head = (gpuvec_search_partitions *) b.data;
		query = (gpuvec_query *) (b.data + sizeof(*head) + 3 * sizeof(gpuvec_search_partition));
		head->npartitions = i == 0 ? 0 : i == 1 ? 4 : i == 2 ? GPUVEC_MAX_PARTITIONS + 1 : 3;
		b.length -= i == 3 ? 1 : 0;
		query->flags |= i == 4 ? GPUVEC_QUERY_AFTER : 0;
		query->k = i == 5 ? GPUVEC_ALL_ROWS : query->k;
		query->nconditions = i == 6 ? 1 : 0;
		b.length = i == 7 ? 10 : b.length;
		check(!client_call(&d, GPUVEC_MSG_SEARCH_PARTITIONS, b.data, b.length, GPUVEC_MSG_PARTITIONS_RESULT) &&
			  client_failed_with(&d, "08P01"), "a search of parts that is invalid");
		client_close(&d);
		free(b.data);
	}
	for (int i = 0; i < QUERIES; i++)
		free(queries[i].ids);
}

void
test_several_mirrors(void)
{
	engine		e = engine_start(NULL, plain);
	client		c = client_open(&e);
	model		models[PARTITIONS];

	for (uint32_t i = 0; i < PARTITIONS; i++)
	{
		models[i] = model_new(100 + i, i == 2 ? 0 : 5 + 60 * (i % 3), i < 3 ? &few_ids : &many_ids);
		check(model_load(&c, &models[i]), "load");
	}
	for (uint32_t n = 1; n <= PARTITIONS; n++)
	{
		search_partitions(&c, models, n, &few_ids);
		search_partitions(&c, models, n, &many_ids);
	}
	/* rows that come later, in segments of their own, and rows that go */
	for (uint32_t i = 0; i < PARTITIONS; i++)
	{
		model_resize(&models[i], 8 + i, &few_ids);
		check(model_refresh(&c, &models[i]), "refresh");
	}
	search_partitions(&c, models, PARTITIONS, &few_ids);
	bad_requests(&e, models);

	/* mirrors that give numbers to their ids, each its own */
	wide_from = 20;
	for (uint32_t i = 0; i < PARTITIONS; i++)
	{
		model_free(&models[i]);
		models[i] = model_new(200 + i, 30, &few_ids);
		check(model_load(&c, &models[i]), "load");
	}
	search_partitions(&c, models, PARTITIONS, &few_ids);
	wide_from = 0;
	for (uint32_t i = 0; i < PARTITIONS; i++)
		model_free(&models[i]);
	client_close(&c);
	engine_stop(&e);
}

/* Bytes that mirrors are charged, each once if it is there twice in a row */
static uint64_t
mirrors_bytes(client *c, const model *models, uint32_t n)
{
	gpuvec_mirror_info info;
	uint64_t	bytes = 0;

	for (uint32_t i = 0; i < n; i++)
		if ((i == 0 || models[i].key.relation != models[i - 1].key.relation) &&
			check(client_mirror_info(c, &models[i].key, &info), "a mirror is listed"))
			bytes += getenv("SERVER_TEST_BACKEND") ? info.device_bytes : info.host_bytes;
	return bytes;
}

/* True once no more than so many bytes are used: what is being made stops */
static bool
settles(client *c, uint64_t bytes)
{
	for (int i = 0; i < 2000 && client_engine_info(c).memory_used > bytes; i++)
		usleep(5000);
	return client_engine_info(c).memory_used <= bytes;
}

/*
 * The same for what these mirrors are charged.  That still grows, as lists
 * are made in the background.
 */
static bool
settles_to(client *c, const model *models, uint32_t n)
{
	for (int i = 0; i < 2000 && client_engine_info(c).memory_used > mirrors_bytes(c, models, n); i++)
		usleep(5000);
	return client_engine_info(c).memory_used <= mirrors_bytes(c, models, n);
}

/* Search until rows of the partitions are in common segments; false: never */
static bool
wait_for_compound(client *c, model *models, uint32_t n)
{
	model_query query = random_query(&few_ids);
	partitions_search search = {.models = models,.npartitions = n,.late = PARTITIONS,.queries = &query,.n = 1};
	uint64_t	used = 0;
	bool		made = false;

	query.wire.k = 5;
	query.wire.flags = 0;
	query.wire.nconditions = query.wire.nvalues = 0;
	/* until merges are done, mirrors change */
	for (int i = 0; i < 2000 && !made; i++)
	{
		uint64_t	before = used;

		check_partitions(c, &search);
		usleep(5000);
		used = client_engine_info(c).memory_used;
		made = i > 10 && used == before && used > mirrors_bytes(c, models, n);
	}
	free(query.ids);
	return made;
}

/* Searches of all partitions but one, which is always behind, then of all */
static void
search_without(client *c, model *models, uint32_t partition)
{
	model_query queries[QUERIES];
	partitions_search search = {.models = models,.npartitions = PARTITIONS,.queries = queries,.n = QUERIES};

	make_queries(queries, &few_ids);
	for (int i = 0; i < 14; i++)
	{
		search.measure = (gpuvec_measure) random_below(GPUVEC_N_WIRE_MEASURES);
		search.late = i < 12 ? partition : PARTITIONS;
		check_partitions(c, &search);
	}
	for (int i = 0; i < QUERIES; i++)
		free(queries[i].ids);
}

/* Some pages of one partition change, or all of it goes and comes */
static void
change_partition(client *c, model *models, uint32_t partition)
{
	gpuvec_drop drop = {.database = models[partition].key.database,.relation = models[partition].key.relation};

	if (random_below(4) == 0)
	{
		check(client_call(c, GPUVEC_MSG_DROP, &drop, sizeof(drop), GPUVEC_MSG_COUNT), "drop");
		check(model_load(c, &models[partition]), "load");
		return;
	}
	for (int i = 0; i < 3 && models[partition].nblocks > 0; i++)
		model_change_page(&models[partition], (uint32_t) random_below(models[partition].nblocks), &few_ids);
	if (random_below(3) == 0)
		model_resize(&models[partition], 5 + (uint32_t) random_below(60), &few_ids);
	check(model_refresh(c, &models[partition]), "refresh");
}

/*
 * Partitions whose rows are in common segments, and that change: answers stay
 * those of the partitions.  Few ids make for ties between partitions.
 */
static void
compounds_rounds(void)
{
	engine		e = engine_start("compounds:2,lists:1", plain);
	client		c = client_open(&e);
	model		models[PARTITIONS];

	for (uint32_t i = 0; i < PARTITIONS; i++)
	{
		models[i] = model_new(100 + i, i == 2 ? 0 : 5 + 30 * (i % 3), i < 4 ? &few_ids : &many_ids);
		check(model_load(&c, &models[i]), "load");
	}
	check(client_engine_info(&c).memory_used == mirrors_bytes(&c, models, PARTITIONS), "mirrors alone");
	for (int round = 0; round < 8; round++)
	{
		check(wait_for_compound(&c, models, PARTITIONS), "a compound is made");
		search_partitions(&c, models, PARTITIONS, &few_ids);
		if (round % 3 == 0)
			search_without(&c, models, (uint32_t) random_below(PARTITIONS));
		/* one partition after another is left out */
		for (int i = 0; i < 3; i++)
		{
			change_partition(&c, models, (uint32_t) random_below(PARTITIONS));
			search_partitions(&c, models, PARTITIONS, i % 2 ? &few_ids : &many_ids);
		}
	}
	/* another compound of some of them, in another order */
	for (uint32_t i = 0; i < PARTITIONS / 2; i++)
	{
		model		other = models[i];

		models[i] = models[PARTITIONS - 1 - i];
		models[PARTITIONS - 1 - i] = other;
	}
	check(wait_for_compound(&c, models, PARTITIONS - 1), "a compound is made");
	search_partitions(&c, models, PARTITIONS - 1, &few_ids);
	/* a compound has rows of several: none is left when one mirror is */
	for (uint32_t i = 0; i + 1 < PARTITIONS; i++)
		check(client_call(&c, GPUVEC_MSG_DROP, &(gpuvec_drop) {.relation = models[i].key.relation},
						  sizeof(gpuvec_drop), GPUVEC_MSG_COUNT), "drop");
	check(settles_to(&c, models + PARTITIONS - 1, 1), "what has their rows is dropped, too");
	check(client_call(&c, GPUVEC_MSG_DROP, &(gpuvec_drop) {0}, sizeof(gpuvec_drop), GPUVEC_MSG_COUNT), "drop");
	check(settles(&c, 0), "nothing is left");
	for (uint32_t i = 0; i < PARTITIONS; i++)
		model_free(&models[i]);
	client_close(&c);
	engine_stop(&e);
}

void
test_compounds(void)
{
	compounds_rounds();
}

/* Of all rows of a compound, n have a large id */
static void
few_large_ids(uint32_t n)
{
	static const shape with_large = {.rows_per_page = 20,.maxlen = 6,.vocabulary = 31};
	engine		e = engine_start("compounds:2,lists:1", plain);
	client		c = client_open(&e);
	model		models[PARTITIONS];

	wide_from = few_ids.vocabulary;
	for (uint32_t i = 0; i < PARTITIONS; i++)
	{
		uint32_t	block = 0;
		model_row  *row;

		models[i] = model_new(100 + i, 30, &few_ids);
		while (models[i].pages[block].nrows == 0)
			block++;
		row = &models[i].pages[block].rows[0];
		if (i < n)
		{
			row->ids = realloc(row->ids, 2 * sizeof(uint16_t));
			row->ids[0] = 3;
			row->ids[1] = (uint16_t) wide_from;
			row->len = 2;
		}
		check(model_load(&c, &models[i]), "load");
	}
	check(wait_for_compound(&c, models, PARTITIONS), "a compound is made");
	for (int i = 0; i < 10; i++)
		search_partitions(&c, models, PARTITIONS, &with_large);
	for (uint32_t i = 0; i < PARTITIONS; i++)
		model_free(&models[i]);
	client_close(&c);
	engine_stop(&e);
}

/* The same with numbers of ids, which each mirror has, or some have */
void
test_compounds_wide(void)
{
	for (uint32_t n = 0; n < 3; n++)
		few_large_ids(n);
	wide_from = 20;
	compounds_rounds();
	wide_from = 100;
	compounds_rounds();
	wide_from = 0;
}

/* Compounds go before mirrors do, and are not made where there is no room */
void
test_compounds_budget(void)
{
	static const char *const tight[] = {"--device-memory", "12", "--cpu-threads", "2", NULL};
	engine		e = engine_start("compounds:2,lists:1,slow-compound:20", tight);
	client		c = client_open(&e);
	model		models[8 * PARTITIONS];
	uint64_t	used = 0;
	uint64_t	one = 0;
	uint32_t	n = 0;

	for (; n < PARTITIONS; n++)
	{
		models[n] = model_new(100 + n, 200, &many_ids);
		check(model_load(&c, &models[n]), "load");
	}
	check(wait_for_compound(&c, models, PARTITIONS), "a compound is made");
	/* until less is free than the compound takes */
	for (; n < 8 * PARTITIONS && used + 2 * one < 12 << 20; n++)
	{
		models[n] = model_new(100 + n, 60, &many_ids);
		check(model_load(&c, &models[n]), "load");
		one = mirrors_bytes(&c, models + n, 1);
		used = mirrors_bytes(&c, models, n + 1);
		check(client_engine_info(&c).memory_used <= 12 << 20, "the budget is kept");
		if (n % 5 == 0)
			search_partitions(&c, models, PARTITIONS, &many_ids);
	}
	check(n < 8 * PARTITIONS, "the memory is almost used up");
	check(client_engine_info(&c).evictions == 0, "no mirror was evicted");
	check(settles(&c, used), "there is no compound any more");
	for (uint32_t i = 0; i < n; i++)
		model_free(&models[i]);
	client_close(&c);
	engine_stop(&e);
}

/* What a client of the test below has */
typedef struct busy_client
{
	const engine *e;
	uint32_t	number;
	pthread_t	thread;
} busy_client;

/* Mirrors of its own that change, and searches of them and of some of them */
static void *
change_and_search(void *arg)
{
	busy_client *busy = arg;
	client		c = client_open(busy->e);
	model		models[PARTITIONS];

	random_state = busy->number * 0x9E3779B97F4A7C15ULL + 1;
	for (uint32_t i = 0; i < PARTITIONS; i++)
	{
		models[i] = model_new(1000 * busy->number + i, 5 + 10 * (i % 3), &few_ids);
		check(model_load(&c, &models[i]), "load");
	}
	for (int round = 0; round < 6; round++)
	{
		search_partitions(&c, models, PARTITIONS - (uint32_t) random_below(3), &few_ids);
		for (uint32_t i = 0; i < 3; i++)
			model_change_page(&models[round % PARTITIONS], i, &few_ids);
		check(model_refresh(&c, &models[round % PARTITIONS]), "refresh");
		if (round == 3)
		{
			gpuvec_drop drop = {.database = models[1].key.database,.relation = models[1].key.relation};

			check(client_call(&c, GPUVEC_MSG_DROP, &drop, sizeof(drop), GPUVEC_MSG_COUNT), "drop");
			check(model_load(&c, &models[1]), "load");
		}
	}
	for (uint32_t i = 0; i < PARTITIONS; i++)
		model_free(&models[i]);
	client_close(&c);
	return NULL;
}

/* Several clients with more lists of partitions than there are compounds */
void
test_compounds_concurrency(void)
{
	engine		e = engine_start("compounds:2,lists:1", plain);
	client		c = client_open(&e);
	busy_client busy[8];

	for (uint32_t i = 0; i < 8; i++)
	{
		busy[i] = (busy_client) {.e = &e,.number = i + 1};
		pthread_create(&busy[i].thread, NULL, change_and_search, &busy[i]);
	}
	for (uint32_t i = 0; i < 8; i++)
		pthread_join(busy[i].thread, NULL);
	check(client_call(&c, GPUVEC_MSG_DROP, &(gpuvec_drop) {0}, sizeof(gpuvec_drop), GPUVEC_MSG_COUNT), "drop");
	check(settles(&c, 0), "nothing is left");
	client_close(&c);
	engine_stop(&e);
}

/*
 * Rows with filter columns, some of which have no set, and a mirror that is
 * several partitions
 */
void
test_compounds_filters(void)
{
	engine		e = engine_start("compounds:2,lists:1", plain);
	client		c = client_open(&e);
	model		models[PARTITIONS];

	model_filters = 2;
	for (uint32_t i = 0; i < PARTITIONS; i++)
	{
		if (i % 3 == 2)
		{
			models[i] = models[i - 1];
			continue;
		}
		models[i] = model_new(100 + i, 20, &few_ids);
		check(model_load(&c, &models[i]), "load");
	}
	check(wait_for_compound(&c, models, PARTITIONS), "a compound is made");
	search_partitions(&c, models, PARTITIONS, &few_ids);
	for (uint32_t i = 0; i < PARTITIONS; i++)
		if (i % 3 != 2)
			model_free(&models[i]);
	model_filters = 0;
	client_close(&c);
	engine_stop(&e);
}

/* Partitions whose rows have values, narrow and wide */
void
test_compounds_values(void)
{
	engine		e = engine_start("compounds:2,lists:1,first-number:65500", plain);
	client		c = client_open(&e);
	model		models[PARTITIONS];
	model_query queries[QUERIES];
	partitions_search search = {.models = models,.npartitions = 3,.late = PARTITIONS,.queries = queries,.n = 2};
	buffer		b = {0};
	client		d = client_open(&e);

	model_values = true;
	for (int i = 0; i < 2; i++)
	{
		wide_from = i == 0 ? 0 : 15;
		for (uint32_t p = 0; p < PARTITIONS; p++)
		{
			models[p] = model_new(100 + 100 * (uint32_t) i + p, 20, &few_ids);
			check(model_load(&c, &models[p]), "load");
		}
		check(wait_for_compound(&c, models, PARTITIONS), "a compound is made");
		search_partitions(&c, models, PARTITIONS, &few_ids);
		if (i == 0)
			for (uint32_t p = 0; p < PARTITIONS; p++)
				model_free(&models[p]);
	}

	/* all partitions have values, or none has */
	make_queries(queries, &few_ids);
	models[1].key.values = 0;
	partitions_request(&b, &search);
	check(!client_call(&d, GPUVEC_MSG_SEARCH_PARTITIONS, b.data, b.length, GPUVEC_MSG_PARTITIONS_RESULT) &&
		  client_failed_with(&d, "08P01"), "partitions with and without values");
	free(b.data);
	for (int i = 0; i < QUERIES; i++)
		free(queries[i].ids);
	for (uint32_t p = 0; p < PARTITIONS; p++)
		model_free(&models[p]);
	wide_from = 0;
	model_values = false;
	client_close(&d);
	client_close(&c);
	engine_stop(&e);
}
