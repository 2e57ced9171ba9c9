/*-------------------------------------------------------------------------
 *
 * server_als.c
 *	  Trainings over the socket, and neighbors of items: the order of
 *	  requests, what is refused, and memory that is lacking.  What they
 *	  compute is tested in als_test.c and neighbors_test.c.
 *
 *-------------------------------------------------------------------------
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "server_als.h"
#include "server_memory.h"
#include "server_model.h"
#include "core/protocol_als.h"

static const char *const plain[] = {"--cpu-threads", "2", NULL};

#define FACTORS 3

static gpuvec_als_begin
options(void)
{
	return (gpuvec_als_begin) {
		.role = 10,.relation = 20,.factors = FACTORS,.iterations = 2,.cg_steps = 3,.regularization = 0.01,.alpha = 1
	};
}

/* Five interactions of three users with two items; one pair comes twice */
typedef struct interactions
{
	gpuvec_als_chunk chunk;
	int64_t		users[5];
	int64_t		items[5];
	float		weights[6];		/* the last is padding */
} interactions;

static interactions
some(void)
{
	return (interactions) {
		.chunk = {.n = 5},.users = {7, -1, 7, 9, 7},.items = {2, 1, 1, 2, 2},.weights = {1, 2, -1, 1, 0.5f}
	};
}

/* Two factors */
typedef struct factors
{
	gpuvec_als_chunk chunk;
	int64_t		keys[2];
	float		elements[2 * FACTORS];
} factors;

static factors
two_items(void)
{
	return (factors) {
		.chunk = {.side = GPUVEC_ALS_ITEMS,.n = 2},.keys = {1, 2},.elements = {1, 0, 0, 0, 1, 0}
	};
}

static bool
als_call(client *c, gpuvec_message type, const void *data, size_t size)
{
	return client_call(c, type, data, size, GPUVEC_MSG_ALS_STATE) &&
		c->frame.length == sizeof(gpuvec_als_state);
}

static gpuvec_als_state
state_of(const client *c)
{
	gpuvec_als_state state;

	memcpy(&state, c->data, sizeof(state));
	return state;
}

static bool
als_begin(client *c, bool fold_in)
{
	gpuvec_als_begin begin = options();

	begin.fold_in = fold_in;
	return als_call(c, GPUVEC_MSG_ALS_BEGIN, &begin, sizeof(begin));
}

static bool
als_add(client *c)
{
	interactions in = some();

	return als_call(c, GPUVEC_MSG_ALS_ADD, &in, sizeof(in));
}

static bool
als_set(client *c)
{
	factors		f = two_items();

	return als_call(c, GPUVEC_MSG_ALS_SET, &f, sizeof(f));
}

static bool
als_simple(client *c, gpuvec_message type)
{
	return als_call(c, type, NULL, 0);
}

/* Ask for factors: keys as expected, elements finite */
static bool
als_get(client *c, gpuvec_als_side side, uint32_t first, uint32_t n, const int64_t *keys)
{
	gpuvec_als_chunk chunk = {.side = side,.first = first,.n = n};
	size_t		size = n * (sizeof(int64_t) + FACTORS * sizeof(float));
	bool		ok = client_call(c, GPUVEC_MSG_ALS_GET, &chunk, sizeof(chunk), GPUVEC_MSG_ALS_FACTORS) &&
		c->frame.length == size && memcmp(c->data, keys, n * sizeof(int64_t)) == 0;

	for (uint32_t i = 0; ok && i < n * FACTORS; i++)
	{
		float		element;

		memcpy(&element, c->data + n * sizeof(int64_t) + i * sizeof(float), sizeof(float));
		ok = isfinite(element);
	}
	return ok;
}

/* Number of trainings in the engine */
static size_t
count_trainings(client *c)
{
	if (!client_call(c, GPUVEC_MSG_ALS_LIST, NULL, 0, GPUVEC_MSG_ALS_STATES))
		return 99;
	return c->frame.length / sizeof(gpuvec_als_state);
}

static const int64_t users[] = {-1, 7, 9};
static const int64_t items[] = {1, 2};

/* Two iterations, seen by another session */
static void
check_training(client *c, client *other)
{
	double		loss;

	check(als_begin(c, false) && als_add(c) && state_of(c).added == 5, "interactions");
	check(count_trainings(other) == 1 && state_of(other).role == 10 && state_of(other).relation == 20 &&
		  state_of(other).phase == GPUVEC_ALS_READING, "it is listed");
	check(als_simple(c, GPUVEC_MSG_ALS_PREPARE) && state_of(c).users == 3 && state_of(c).items == 2 &&
		  state_of(c).entries == 4 && isnan(state_of(c).loss), "prepared");
	check(als_set(c) && als_simple(c, GPUVEC_MSG_ALS_RUN), "an iteration");
	loss = state_of(c).loss;
	check(als_simple(c, GPUVEC_MSG_ALS_RUN) && state_of(c).iteration == 2 && state_of(c).loss > 0 &&
		  state_of(c).loss <= loss, "loss falls");
	check(als_get(c, GPUVEC_ALS_USERS, 0, 3, users) && als_get(c, GPUVEC_ALS_ITEMS, 0, 2, items) &&
		  als_get(c, GPUVEC_ALS_USERS, 1, 1, users + 1) && als_get(c, GPUVEC_ALS_ITEMS, 2, 0, items), "factors");
	check(count_trainings(other) == 1 && state_of(other).phase == GPUVEC_ALS_WRITING, "it is being written");
}

/* An error stays: here, weights of a pair that are too large together */
static void
check_error(client *c)
{
	interactions in = some();

	in.weights[0] = in.weights[4] = 9e11f;
	in.items[4] = in.items[0];
	check(als_begin(c, false) && als_call(c, GPUVEC_MSG_ALS_ADD, &in, sizeof(in)) &&
		  als_call(c, GPUVEC_MSG_ALS_ADD, &in, sizeof(in)), "large weights");
	check(!als_simple(c, GPUVEC_MSG_ALS_PREPARE) && client_failed_with(c, "22003"), "are too large together");
	check(!als_add(c) && client_failed_with(c, "22003"), "the error stays");
	check(!als_simple(c, GPUVEC_MSG_ALS_RUN) && client_failed_with(c, "22003"), "for all requests");
}

void
test_als(void)
{
	engine		e = engine_start(NULL, plain);
	client		c = client_open(&e);
	client		other = client_open(&e);

	check(count_trainings(&other) == 0, "no training");
	check_training(&c, &other);
	check(als_simple(&c, GPUVEC_MSG_ALS_END) && count_trainings(&other) == 0, "the end");
	check(als_simple(&c, GPUVEC_MSG_ALS_END), "nothing to end");
	check(als_begin(&c, true) && als_set(&c) && als_add(&c) && als_simple(&c, GPUVEC_MSG_ALS_PREPARE) &&
		  als_simple(&c, GPUVEC_MSG_ALS_RUN) && als_get(&c, GPUVEC_ALS_USERS, 0, 3, users), "folding in");
	check_error(&c);
	/* a training ends the one before it, and the end of a session its own */
	check_training(&c, &other);
	client_close(&c);
	for (int i = 0; i < 200 && count_trainings(&other) != 0; i++)
		usleep(50000);
	check(count_trainings(&other) == 0, "it ends with its session");
	client_close(&other);
	engine_stop(&e);
}

/* ---- neighbors of items ---- */

static gpuvec_neighbors_begin
neighbor_options(void)
{
	return (gpuvec_neighbors_begin) {
		.role = 10,.relation = 20,.k = 5,.weighting = GPUVEC_WEIGHTING_NONE,.k1 = 100,.b = 0.8
	};
}

static bool
neighbors_begin(client *c)
{
	gpuvec_neighbors_begin begin = neighbor_options();

	return als_call(c, GPUVEC_MSG_NEIGHBORS_BEGIN, &begin, sizeof(begin));
}

/* Ask for neighbors: n rows, after which so many items are done */
static bool
neighbors_get(client *c, size_t n, uint32_t done)
{
	return client_call(c, GPUVEC_MSG_NEIGHBORS, NULL, 0, GPUVEC_MSG_NEIGHBORS_FOUND) &&
		c->frame.length == sizeof(gpuvec_als_state) + n * sizeof(gpuvec_neighbor) &&
		state_of(c).iteration == done;
}

/* Row i of the answer */
static gpuvec_neighbor
neighbor_of(const client *c, int i)
{
	gpuvec_neighbor row;

	memcpy(&row, c->data + sizeof(gpuvec_als_state) + i * sizeof(row), sizeof(row));
	return row;
}

void
test_neighbors(void)
{
	engine		e = engine_start(NULL, plain);
	client		c = client_open(&e);
	client		other = client_open(&e);

	check(neighbors_begin(&c) && als_add(&c) && als_add(&c) && count_trainings(&other) == 1, "interactions");
	check(als_simple(&c, GPUVEC_MSG_ALS_PREPARE) && state_of(&c).items == 2 && state_of(&c).users == 3 && state_of(&c).entries == 4 &&
		  state_of(&c).iteration == 0 && state_of(&c).iterations == 2 && state_of(&c).phase == GPUVEC_ALS_NEIGHBORS, "prepared");
	/* user 7 has 3 of item 2 and -2 of item 1: the product is negative */
	check(neighbors_get(&c, 0, 2) && neighbors_get(&c, 0, 2), "no neighbors, and the end");
	check(als_simple(&c, GPUVEC_MSG_ALS_END) && count_trainings(&other) == 0, "the end of it");
	{
		interactions in = some();

		in.weights[2] = 1;
		check(neighbors_begin(&c) && als_call(&c, GPUVEC_MSG_ALS_ADD, &in, sizeof(in)) && als_simple(&c, GPUVEC_MSG_ALS_PREPARE) &&
			  neighbors_get(&c, 2, 2), "neighbors");
	}
	check(neighbor_of(&c, 0).item == 1 && neighbor_of(&c, 0).neighbor == 2 && neighbor_of(&c, 0).score == 1.5 &&
		  neighbor_of(&c, 1).item == 2 && neighbor_of(&c, 1).neighbor == 1 && neighbor_of(&c, 1).score == 1.5, "their rows");
	/* a training takes the place of it, and it that of a training */
	check_training(&c, &other);
	check(neighbors_begin(&c) && als_simple(&c, GPUVEC_MSG_ALS_PREPARE) && neighbors_get(&c, 0, 0), "without any interaction");
	client_close(&c);
	for (int i = 0; i < 200 && count_trainings(&other) != 0; i++)
		usleep(50000);
	check(count_trainings(&other) == 0, "it ends with its session");
	client_close(&other);
	engine_stop(&e);
}

/* Is this the last request of the connection? */
static void
expect_violation(client *c, gpuvec_message type, const void *data, size_t size, const char *what)
{
	check(!client_call(c, type, data, size, GPUVEC_MSG_ALS_STATE) && client_failed_with(c, "08P01"), what);
	check(!client_read(c), "and the connection is closed");
	client_close(c);
}

/*
 * A request at a point: 0 no training, 1 reading, 2 prepared, 3 written, 4
 * folding in
 */
static void
expect_bad(const engine *e, int point, gpuvec_message type, const void *data, size_t size, const char *what)
{
	client		c = client_open(e);

	if (point > 0)
		check(als_begin(&c, point == 4), "begin");
	if (point > 0 && point < 4)
		check(als_add(&c), "add");
	if (point == 2 || point == 3)
		check(als_simple(&c, GPUVEC_MSG_ALS_PREPARE), "prepare");
	if (point == 3)
		check(als_get(&c, GPUVEC_ALS_USERS, 0, 3, users), "get");
	expect_violation(&c, type, data, size, what);
}

static void
bad_order(const engine *e)
{
	interactions in = some();
	factors		f = two_items();
	gpuvec_als_chunk chunk = {.n = 1};

	for (int point = 0; point < 5; point++)
	{
		if (point != 1 && point != 4)
			expect_bad(e, point, GPUVEC_MSG_ALS_ADD, &in, sizeof(in), "ADD out of place");
		if (point != 1 && point != 4)
			expect_bad(e, point, GPUVEC_MSG_ALS_PREPARE, NULL, 0, "PREPARE out of place");
		if (point != 2 && point != 4)
			expect_bad(e, point, GPUVEC_MSG_ALS_SET, &f, sizeof(f), "SET out of place");
		if (point != 2)
			expect_bad(e, point, GPUVEC_MSG_ALS_RUN, NULL, 0, "RUN out of place");
		if (point != 2 && point != 3)
			expect_bad(e, point, GPUVEC_MSG_ALS_GET, &chunk, sizeof(chunk), "GET out of place");
	}
}

#define BAD(variable, point, type, change, what) \
	do { \
		__typeof__(variable) keep = variable; \
		change; \
		expect_bad(&e, point, type, &variable, sizeof(variable), what); \
		variable = keep; \
	} while (0)

static void
bad_options(engine e)
{
	gpuvec_als_begin begin = options();

	BAD(begin, 0, GPUVEC_MSG_ALS_BEGIN, begin.factors = 0, "no factors");
	BAD(begin, 0, GPUVEC_MSG_ALS_BEGIN, begin.factors = GPUVEC_ALS_MAX_FACTORS + 1, "too many factors");
	BAD(begin, 0, GPUVEC_MSG_ALS_BEGIN, begin.cg_steps = 0, "no steps");
	BAD(begin, 0, GPUVEC_MSG_ALS_BEGIN, begin.fold_in = 2, "neither training nor folding in");
	BAD(begin, 0, GPUVEC_MSG_ALS_BEGIN, begin.regularization = -1, "negative regularization");
	BAD(begin, 0, GPUVEC_MSG_ALS_BEGIN, begin.regularization = NAN, "regularization NaN");
	BAD(begin, 0, GPUVEC_MSG_ALS_BEGIN, begin.alpha = 0, "alpha 0");
	BAD(begin, 0, GPUVEC_MSG_ALS_BEGIN, begin.alpha = INFINITY, "alpha infinite");
	expect_bad(&e, 0, GPUVEC_MSG_ALS_BEGIN, &begin, sizeof(begin) - 1, "a short BEGIN");
}

static void
bad_chunks(engine e)
{
	interactions in = some();
	factors		f = two_items();
	gpuvec_als_chunk chunk = {.n = 1};

	BAD(in, 1, GPUVEC_MSG_ALS_ADD, in.weights[2] = 0, "weight 0");
	BAD(in, 1, GPUVEC_MSG_ALS_ADD, in.weights[4] = NAN, "weight NaN");
	BAD(in, 1, GPUVEC_MSG_ALS_ADD, in.chunk.n = 6, "fewer interactions than said");
	BAD(in, 1, GPUVEC_MSG_ALS_ADD, in.chunk.n = UINT64_MAX / 2, "far fewer");
	BAD(in, 1, GPUVEC_MSG_ALS_ADD, in.chunk.n = 4, "more interactions than said");
	expect_bad(&e, 1, GPUVEC_MSG_ALS_ADD, &in, sizeof(in.chunk) - 1, "a short ADD");
	BAD(f, 2, GPUVEC_MSG_ALS_SET, f.elements[1] = INFINITY, "an infinite element");
	BAD(f, 2, GPUVEC_MSG_ALS_SET, f.chunk.side = 2, "SET of no side");
	BAD(f, 2, GPUVEC_MSG_ALS_SET, f.chunk.n = 3, "fewer factors than said");
	BAD(f, 4, GPUVEC_MSG_ALS_SET, f.chunk.side = GPUVEC_ALS_USERS, "users to fold in from");
	BAD(f, 4, GPUVEC_MSG_ALS_SET, f.keys[0] = 3, "items that are not in order");
	BAD(chunk, 2, GPUVEC_MSG_ALS_GET, chunk.side = 2, "GET of no side");
	BAD(chunk, 2, GPUVEC_MSG_ALS_GET, chunk.first = 4, "a row that there is not");
	BAD(chunk, 2, GPUVEC_MSG_ALS_GET, chunk.n = 4, "more rows than there are");
	expect_bad(&e, 2, GPUVEC_MSG_ALS_GET, &chunk, sizeof(chunk) - 1, "a short GET");
}

void
test_als_violations(void)
{
	engine		e = engine_start(NULL, plain);

	bad_order(&e);
	bad_options(e);
	bad_chunks(e);
	engine_stop(&e);
}

/* A request for neighbors, while it reads or when it is prepared */
static void
expect_bad_neighbors(const engine *e, bool prepared, gpuvec_message type, const void *data, size_t size, const char *what)
{
	client		c = client_open(e);

	check(neighbors_begin(&c) && als_add(&c) && (!prepared || als_simple(&c, GPUVEC_MSG_ALS_PREPARE)), "neighbors begin");
	expect_violation(&c, type, data, size, what);
}

static void
bad_neighbor_options(engine e)
{
	gpuvec_neighbors_begin begin = neighbor_options();

	BAD(begin, 0, GPUVEC_MSG_NEIGHBORS_BEGIN, begin.k = 0, "k 0");
	BAD(begin, 0, GPUVEC_MSG_NEIGHBORS_BEGIN, begin.k = GPUVEC_MAX_K + 1, "k too large");
	BAD(begin, 0, GPUVEC_MSG_NEIGHBORS_BEGIN, begin.weighting = GPUVEC_N_WEIGHTINGS, "an unknown weighting");
	BAD(begin, 0, GPUVEC_MSG_NEIGHBORS_BEGIN, begin.k1 = -1, "K1 negative");
	BAD(begin, 0, GPUVEC_MSG_NEIGHBORS_BEGIN, begin.k1 = INFINITY, "K1 infinite");
	BAD(begin, 0, GPUVEC_MSG_NEIGHBORS_BEGIN, begin.b = 1.5, "B above 1");
	BAD(begin, 0, GPUVEC_MSG_NEIGHBORS_BEGIN, begin.b = NAN, "B NaN");
	expect_bad(&e, 0, GPUVEC_MSG_NEIGHBORS_BEGIN, &begin, sizeof(begin) - 1, "a short NEIGHBORS_BEGIN");
}

void
test_neighbors_violations(void)
{
	engine		e = engine_start(NULL, plain);
	interactions in = some();
	factors		f = two_items();
	gpuvec_als_chunk chunk = {.n = 1};

	bad_neighbor_options(e);
	for (int point = 0; point < 5; point++)
		expect_bad(&e, point, GPUVEC_MSG_NEIGHBORS, NULL, 0, "NEIGHBORS of a training");
	expect_bad_neighbors(&e, false, GPUVEC_MSG_NEIGHBORS, NULL, 0, "NEIGHBORS out of place");
	expect_bad_neighbors(&e, true, GPUVEC_MSG_ALS_ADD, &in, sizeof(in), "ADD out of place");
	expect_bad_neighbors(&e, true, GPUVEC_MSG_ALS_PREPARE, NULL, 0, "PREPARE out of place");
	for (int prepared = 0; prepared < 2; prepared++)
	{
		expect_bad_neighbors(&e, prepared, GPUVEC_MSG_ALS_SET, &f, sizeof(f), "neighbors have no factors");
		expect_bad_neighbors(&e, prepared, GPUVEC_MSG_ALS_RUN, NULL, 0, "and no iterations");
		expect_bad_neighbors(&e, prepared, GPUVEC_MSG_ALS_GET, &chunk, sizeof(chunk), "and no factors to get");
	}
	engine_stop(&e);
}

/* Preparing ends soon after its session has gone */
void
test_als_hangup(void)
{
	engine		e = engine_start("slow-preparing:3600000", plain);
	client		other = client_open(&e);

	for (int neighbors = 0; neighbors < 2; neighbors++)
	{
		client		c = client_open(&e);

		check((neighbors ? neighbors_begin(&c) : als_begin(&c, false)) && als_add(&c) &&
			  client_send(&c, GPUVEC_MSG_ALS_PREPARE, NULL, 0), "preparing begins");
		for (int i = 0; i < 200 && !(count_trainings(&other) == 1 && state_of(&other).phase == GPUVEC_ALS_PREPARING); i++)
			usleep(50000);
		check(count_trainings(&other) == 1 && state_of(&other).phase == GPUVEC_ALS_PREPARING, "it is listed");
		client_close(&c);
		for (int i = 0; i < 200 && count_trainings(&other) != 0; i++)
			usleep(50000);
		check(count_trainings(&other) == 0, "it ends with its session");
	}
	client_close(&other);
	engine_stop(&e);
}

/* A random request: most often one that is right somewhere, in part spoiled */
static void
send_random(client *c)
{
	static const gpuvec_message simple[] = {
		GPUVEC_MSG_ALS_PREPARE, GPUVEC_MSG_ALS_RUN, GPUVEC_MSG_ALS_END, GPUVEC_MSG_ALS_LIST, GPUVEC_MSG_NEIGHBORS
	};
	union
	{
		gpuvec_als_begin begin;
		gpuvec_neighbors_begin neighbors;
		interactions in;
		factors		f;
		gpuvec_als_chunk chunk;
		char		bytes[256];
	}			u = {.bytes = {0}};
	gpuvec_message type;
	size_t		size = 0;

	switch (random_below(10))
	{
		case 0:
			u.begin = options();
			u.begin.fold_in = random_below(2);
			type = GPUVEC_MSG_ALS_BEGIN;
			size = sizeof(u.begin);
			break;
		case 1:
			u.neighbors = neighbor_options();
			type = GPUVEC_MSG_NEIGHBORS_BEGIN;
			size = sizeof(u.neighbors);
			break;
		case 2:
		case 3:
			u.in = some();
			type = GPUVEC_MSG_ALS_ADD;
			size = sizeof(u.in);
			break;
		case 4:
			u.f = two_items();
			type = GPUVEC_MSG_ALS_SET;
			size = sizeof(u.f);
			break;
		case 5:
			u.chunk = (gpuvec_als_chunk) {.side = (uint32_t) random_below(2),.n = random_below(3)};
			type = GPUVEC_MSG_ALS_GET;
			size = sizeof(u.chunk);
			break;
		default:
			type = simple[random_below(sizeof(simple) / sizeof(*simple))];
	}
	if (random_below(8) == 0 && size > 0)
		u.bytes[random_below(size)] = (char) random_below(256);
	if (random_below(30) == 0)
		size = random_below(size + 9);
	(void) client_send(c, type, u.bytes, size);
}

/* Requests of trainings in any order, some of them malformed */
void
test_als_fuzz(void)
{
	engine		e = engine_start(NULL, (const char *const[]) {"--device-memory", "64", "--cpu-threads", "2", NULL});
	client		other = client_open(&e);
	int			rounds = getenv("SERVER_TEST_FUZZ") ? atoi(getenv("SERVER_TEST_FUZZ")) : 1500;

	for (int round = 0; round < rounds && engine_alive(&e); round++)
	{
		client		c = client_open(&e);

		if (random_below(4) > 0)
			check(random_below(2) ? als_begin(&c, random_below(2)) : neighbors_begin(&c), "begin");
		for (uint64_t i = 1 + random_below(12); i > 0; i--)
			send_random(&c);
		/* every other time it reads all answers */
		if (random_below(2))
		{
			shutdown(c.fd, SHUT_WR);
			while (client_read(&c))
				;
		}
		client_close(&c);
	}
	check(engine_alive(&e), "the engine survives");
	for (int i = 0; i < 200 && count_trainings(&other) != 0; i++)
		usleep(50000);
	check(count_trainings(&other) == 0, "no training is left");
	check_training(&other, &other);
	check(als_simple(&other, GPUVEC_MSG_ALS_END) && client_engine_info(&other).memory_used == 0, "nor its memory");
	client_close(&other);
	engine_stop(&e);
}

/* Interactions that do not fit are refused, until the next training */
void
test_als_budget(void)
{
	static struct
	{
		gpuvec_als_chunk chunk;
		int64_t		keys[2][20000];
		float		weights[20000];
	}			many = {.chunk = {.n = 20000}};
	engine		e = engine_start(NULL, (const char *const[]) {"--device-memory", "4", "--cpu-threads", "2", NULL});
	client		c = client_open(&e);
	bool		taken = true;

	for (int i = 0; i < 20000; i++)
	{
		many.keys[0][i] = i;
		many.keys[1][i] = i / 100;
		many.weights[i] = 1;
	}
	check(als_begin(&c, false), "begin");
	for (int i = 0; taken && i < 1000; i++)
		taken = als_call(&c, GPUVEC_MSG_ALS_ADD, &many, sizeof(many));
	check(!taken && client_failed_with(&c, "53200"), "interactions that do not fit");
	check(strstr(client_error_text(&c, 2), "gpuvec.device_memory") != NULL, "with a hint");
	check(!als_simple(&c, GPUVEC_MSG_ALS_PREPARE) && client_failed_with(&c, "53200"), "the same error again");
	check(als_simple(&c, GPUVEC_MSG_ALS_END) && client_engine_info(&c).pid == (uint32_t) e.pid, "the session goes on");
	client_close(&c);
	engine_stop(&e);
}

/* A whole training, or folding in */
static bool
ask_training(client *c, void *arg)
{
	bool		fold_in = arg != NULL;

	return als_begin(c, fold_in) && (!fold_in || als_set(c)) && als_add(c) && als_simple(c, GPUVEC_MSG_ALS_PREPARE) &&
		als_simple(c, GPUVEC_MSG_ALS_RUN) && als_get(c, GPUVEC_ALS_USERS, 0, 3, users) && als_simple(c, GPUVEC_MSG_ALS_END);
}

/* A whole search for neighbors; the rows are those of some() */
static bool
ask_neighbors(client *c, void *arg)
{
	interactions in = some();

	(void) arg;
	in.weights[2] = 1;
	return neighbors_begin(c) && als_call(c, GPUVEC_MSG_ALS_ADD, &in, sizeof(in)) && als_simple(c, GPUVEC_MSG_ALS_PREPARE) &&
		neighbors_get(c, 2, 2) && als_simple(c, GPUVEC_MSG_ALS_END);
}

/* Each allocation of a training fails */
void
test_als_memory(void)
{
	engine		e = memory_engine();
	client		c = client_open(&e);

	memory_try(&e, &c, "a training", ask_training, ask_training, NULL, false);
	memory_try(&e, &c, "folding in", ask_training, ask_training, &e, false);
	memory_try(&e, &c, "neighbors", ask_neighbors, ask_neighbors, NULL, false);
	memory_none_lost(&c, "trainings lose no memory", ask_training, NULL, true);
	memory_none_lost(&c, "folding in loses no memory", ask_training, &e, true);
	memory_none_lost(&c, "neighbors lose no memory", ask_neighbors, NULL, true);
	client_close(&c);
	memory_engine_stop(&e);
}
