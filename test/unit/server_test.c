/*-------------------------------------------------------------------------
 *
 * server_test.c
 *	  Drives the real engine over its socket.
 *
 *		server_test PROGRAM [test ...]
 *
 * PROGRAM is an engine with fault hooks.  What is loaded is mirrored by a
 * model (server_model.c) that answers every search by brute force.
 *
 *-------------------------------------------------------------------------
 */
#include <dirent.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include "server_als.h"
#include "server_embed.h"
#include "server_memory.h"
#include "server_model.h"
#include "server_joint.h"
#include "server_partitions.h"
#include "server_rows.h"

static const char *const plain[] = {"--cpu-threads", "2", NULL};

static const shape small = {.rows_per_page = 12,.maxlen = 24,.vocabulary = 300};
static const shape wide = {.rows_per_page = 40,.maxlen = 60,.vocabulary = 65536};
static const shape tiny_sets = {.rows_per_page = 120,.maxlen = 4,.vocabulary = 500};

/* Run the program with arguments; its wait status, and what it printed */
static int
run_program(const char *const *arguments, char *output, size_t size)
{
	const char *argv[20] = {engine_program};
	int			pipes[2];
	int			status;
	size_t		length = 0;
	ssize_t		n;
	pid_t		pid;

	for (int i = 0; arguments[i]; i++)
		argv[i + 1] = arguments[i];
	if (pipe(pipes) < 0)
		exit(1);
	pid = fork();
	if (pid == 0)
	{
		dup2(pipes[1], 1);
		dup2(pipes[1], 2);
		close_files_from(3);
		execv(engine_program, (char *const *) argv);
		_exit(127);
	}
	close(pipes[1]);
	while (length < size - 1 && (n = read(pipes[0], output + length, size - 1 - length)) > 0)
		length += (size_t) n;
	output[length] = '\0';
	close(pipes[0]);
	waitpid(pid, &status, 0);
	return status;
}

/* The command line */
static void
test_options(void)
{
	static const char *const bad[][6] = {
		{NULL},
		{"--socket", "/tmp/x", "--backend", "gpu", NULL},
		{"--socket", "/tmp/x", "--devices", "0,x", NULL},
		{"--socket", "/tmp/x", "--devices", "", NULL},
		{"--socket", "/tmp/x", "--incarnation", "12", NULL},
		{"--socket", "/tmp/x", "--max-sessions", "0", NULL},
		{"--socket", "/tmp/x", "--device-memory", "-1", NULL},
		{"--socket", "/tmp/x", "--cpu-threads", "1x", NULL},
		{"--socket", "/tmp/x", "--listen-fd", "3", NULL},
		{"--socket", "/tmp/x", "--nonsense", NULL},
		{"--socket", "/tmp/x", "operand", NULL},
	};
	char		output[4096];
	int			status;

	status = run_program((const char *const[]) {"--version", NULL}, output, sizeof(output));
	check(status == 0 && strncmp(output, "gpuvec-engine ", 14) == 0, "--version");
	status = run_program((const char *const[]) {"--help", NULL}, output, sizeof(output));
	check(status == 0 && strstr(output, "--device-memory") != NULL, "--help");
	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
	{
		status = run_program(bad[i], output, sizeof(output));
		check(WIFEXITED(status) && WEXITSTATUS(status) == 2, "bad options end with 2");
		check(output[0] != '\0', "and with a message");
	}
	if (access("/dev/nvidia0", F_OK) != 0)
	{
		char		path[128];

		snprintf(path, sizeof(path), "%s/none", scratch);
		status = run_program((const char *const[]) {"--socket", path, "--backend", "cuda", NULL},
							 output, sizeof(output));
		check(WIFEXITED(status) && WEXITSTATUS(status) == 3, "no GPU ends with 3");
		check(strncmp(output, "ERROR: ", 7) == 0, "and says why");
		check(access(path, F_OK) != 0, "and leaves no socket");
	}
}

/* All measures, k, min_score, paging, batches */
static void
test_search(void)
{
	engine		e = engine_start("lists:1", plain);
	client		c = client_open(&e);
	model		m = model_new(100, 300, &small);
	model		big = model_new(101, 40, &wide);
	model_query queries[40];

	check(client_call(&c, GPUVEC_MSG_STAT, &m.key, sizeof(m.key), GPUVEC_MSG_STATE) &&
		  client_state(&c).state == GPUVEC_ABSENT, "a mirror is absent at first");
	check(model_load(&c, &m), "load");
	check(model_load(&c, &big), "load");
	check(client_call(&c, GPUVEC_MSG_STAT, &m.key, sizeof(m.key), GPUVEC_MSG_STATE) &&
		  client_state(&c).state == GPUVEC_READY, "a mirror is ready after it was loaded");
	for (int i = 0; i < 40; i++)
		queries[i] = random_query(&small);
	for (int measure = 0; measure < GPUVEC_N_WIRE_MEASURES; measure++)
	{
		check(model_check(&c, &m, (gpuvec_measure) measure, queries, 40), "a batch");
		for (int i = 0; i < 8; i++)
			check(model_check(&c, &big, (gpuvec_measure) measure, queries + i, 1), "one query");
	}

	/* page by page */
	queries[0].wire.k = 7;
	queries[0].wire.flags = 0;
	for (int measure = 0; measure < GPUVEC_N_WIRE_MEASURES; measure++)
	{
		queries[0].wire.flags = 0;
		for (int page = 0; page < 5; page++)
		{
			gpuvec_result result;
			gpuvec_hit	last;

			check(model_check(&c, &m, (gpuvec_measure) measure, queries, 1), "a page of hits");
			memcpy(&result, c.data, sizeof(result));
			if (result.nhits == 0)
				break;
			memcpy(&last, c.data + c.frame.length - sizeof(last), sizeof(last));
			queries[0].wire.flags = GPUVEC_QUERY_AFTER;
			queries[0].wire.after_score = last.score;
			queries[0].wire.after_tid = gpuvec_hit_tid(last.place);
		}
	}
	for (int i = 0; i < 40; i++)
		free(queries[i].ids);
	model_free(&m);
	model_free(&big);
	client_close(&c);
	engine_stop(&e);
}

/*
 * All rows with an id: as many as may be followed by others, one less and one
 * more, with scores and without
 */
static void
test_all_rows(void)
{
	static const uint16_t ids[] = {7, 501, 502};
	engine		e = engine_start("lists:1", plain);
	client		c = client_open(&e);

	for (uint64_t rows = GPUVEC_FIRST_ROWS - 1; rows <= GPUVEC_FIRST_ROWS + 1; rows++)
	{
		model		m = model_new((uint32_t) rows, 400, &tiny_sets);
		model_query q = random_query(&tiny_sets);
		uint64_t	n = 0;

		for (uint32_t block = 0; block < m.nblocks; block++)
			for (uint32_t i = 0; i < m.pages[block].nrows; i++, n++)
			{
				model_row  *row = &m.pages[block].rows[i];

				row->len = n < rows ? 1 + (uint32_t) random_below(3) : 1;
				row->ids = realloc(row->ids, sizeof(ids));
				memcpy(row->ids, n < rows ? ids : ids + 1, row->len * sizeof(uint16_t));
			}
		check(n > rows && model_load(&c, &m), "load");
		free(q.ids);
		q = (model_query) {.wire.len = 1, .wire.k = GPUVEC_ALL_ROWS,.ids = malloc(sizeof(ids))};
		memcpy(q.ids, ids, sizeof(ids));
		for (int measure = 0; measure < GPUVEC_N_WIRE_MEASURES; measure++)
			for (int i = 0; i < 3; i++)
				check(model_check(&c, &m, (gpuvec_measure) measure, &q, 1), "all rows with an id");
		free(q.ids);
		model_free(&m);
	}
	client_close(&c);
	engine_stop(&e);
}

/* Few rows of a large table, which come by pages: from few to some hundred */
static void
test_few_rows(void)
{
	const shape rare = {.rows_per_page = 1,.maxlen = 4,.vocabulary = 500};
	engine		e = engine_start("lists:1", plain);
	client		c = client_open(&e);
	model		m = model_new(1, 70000, &rare);
	model_query q = random_query(&rare);

	free(q.ids);
	q = (model_query) {.wire.len = 1, .wire.k = GPUVEC_ALL_ROWS,.ids = malloc(sizeof(uint16_t))};
	for (uint16_t id = 500; id < 505; id++)
		for (uint32_t block = id; block < m.nblocks; block += 100u << (id - 500) * 2)
			for (uint32_t i = 0; i < m.pages[block].nrows; i++)
			{
				model_row  *row = &m.pages[block].rows[i];

				row->ids = realloc(row->ids, (row->len + 1) * sizeof(uint16_t));
				row->ids[row->len++] = id;
			}
	check(model_load(&c, &m), "load");
	for (q.ids[0] = 500; q.ids[0] < 505; q.ids[0]++)
		for (int i = 0; i < 6; i++)
			check(model_check(&c, &m, GPUVEC_INTERSECTION, &q, 1), "rows with a rare id");
	free(q.ids);
	model_free(&m);
	client_close(&c);
	engine_stop(&e);
}

/* Mirrors of relations with alike OIDs are found and dropped one by one */
static void
test_alike(void)
{
	engine		e = engine_start(NULL, plain);
	client		c = client_open(&e);
	model		m[4];

	for (uint32_t i = 0; i < 4; i++)
	{
		m[i] = model_new(16400 + i / 2 * 1024, 10 + i, &tiny_sets);
		m[i].key.attnum = (int32_t) (1 + i);
		check(model_load(&c, &m[i]), "load");
	}
	for (uint32_t gone = 0; gone < 4; gone++)
	{
		gpuvec_drop drop = {.database = m[gone].key.database,.relation = m[gone].key.relation,.attnum = m[gone].key.attnum};

		check(client_call(&c, GPUVEC_MSG_DROP, &drop, sizeof(drop), GPUVEC_MSG_COUNT) &&
			  *(uint64_t *) c.data == 1, "drop one");
		for (uint32_t i = 0; i < 4; i++)
		{
			if (i != gone)
				check(model_check_random(&c, &m[i], &tiny_sets), "the others are there");
			else
				check(client_call(&c, GPUVEC_MSG_STAT, &m[i].key, sizeof(m[i].key), GPUVEC_MSG_STATE) &&
					  client_state(&c).state == GPUVEC_ABSENT, "that one is not");
		}
		m[gone].position = 0;
		check(model_load(&c, &m[gone]) && model_check_random(&c, &m[gone], &tiny_sets), "load it again");
	}
	for (uint32_t i = 0; i < 4; i++)
		model_free(&m[i]);
	client_close(&c);
	engine_stop(&e);
}

/* Append a frame */
static void
add_frame(buffer *b, gpuvec_message type, uint64_t request, const buffer *body)
{
	gpuvec_frame frame = {.length = (uint32_t) body->length,.type = (uint16_t) type,.request = request};

	buffer_add(b, &frame, sizeof(frame));
	buffer_add(b, body->data, body->length);
}

/* Send bytes in pieces of at most `most`, from a process of its own */
static pid_t
send_pieces(client *c, const buffer *b, size_t most)
{
	pid_t		pid = fork();

	if (pid != 0)
		return pid;
	for (size_t at = 0, n; at < b->length; at += n)
	{
		n = 1 + (size_t) random_below(most);
		n = n < b->length - at ? n : b->length - at;
		if (!client_send_raw(c, b->data + at, n))
			_exit(1);
	}
	_exit(0);
}

/* Requests are answered in turn, in whatever pieces they come */
static void
test_pieces(void)
{
	static const size_t most[] = {1, 20, 5000, 100000, SIZE_MAX};
	engine		e = engine_start(NULL, plain);
	client		c = client_open(&e);
	model		m = model_new(1, 20, &tiny_sets);
	buffer		none = {0};
	buffer		search = {0};
	buffer		all = {0};
	buffer		right = {0};
	model_query q[400];
	uint64_t	n = 0;

	for (int i = 0; i < 400; i++)
	{
		q[i] = random_query(&tiny_sets);
		q[i].wire.k = 5;
		q[i].wire.flags = 0;
	}
	check(model_load(&c, &m), "load");
	for (uint32_t queries = 1; queries < 400; queries += queries < 100 ? 7 : 100)
	{
		search.length = 0;
		search_request(&search, &m.key, 0, GPUVEC_JACCARD, q, queries);
		for (uint32_t i = 0; i < 8; i++)
			add_frame(&all, GPUVEC_MSG_STAT, 1000 + n++, &(buffer) {(char *) &m.key, sizeof(m.key), 0});
		add_frame(&all, GPUVEC_MSG_LIST, 1000 + n++, &none);
		add_frame(&all, GPUVEC_MSG_SEARCH, 1000 + n++, &search);
		check(client_call(&c, GPUVEC_MSG_SEARCH, search.data, search.length, GPUVEC_MSG_RESULT), "search");
		buffer_add(&right, c.data + c.frame.length - sizeof(gpuvec_hit), sizeof(gpuvec_hit));
	}
	for (size_t i = 0; i < sizeof(most) / sizeof(most[0]); i++)
	{
		pid_t		sender = send_pieces(&c, &all, most[i]);
		bool		ok = sender > 0;
		size_t		at = 0;
		int			status = -1;

		for (uint64_t j = 0; ok && j < n; j++)
		{
			ok = client_read(&c) && c.frame.request == 1000 + j &&
				c.frame.type == (j % 10 == 9 ? GPUVEC_MSG_RESULT : j % 10 == 8 ? GPUVEC_MSG_MIRRORS : GPUVEC_MSG_STATE);
			if (!ok || j % 10 != 9)
				continue;
			ok = memcmp(c.data + c.frame.length - sizeof(gpuvec_hit), right.data + at, sizeof(gpuvec_hit)) == 0;
			at += sizeof(gpuvec_hit);
		}
		check(ok, "answers in turn");
		check(waitpid(sender, &status, 0) == sender && status == 0, "all was sent");
	}
	for (int i = 0; i < 400; i++)
		free(q[i].ids);
	free(search.data);
	free(all.data);
	free(right.data);
	model_free(&m);
	client_close(&c);
	engine_stop(&e);
}

/* Empty tables, empty pages, empty sets, the longest set, positions */
static void
test_edges(void)
{
	engine		e = engine_start(NULL, plain);
	client		c = client_open(&e);
	static const shape none = {.rows_per_page = 0,.maxlen = 1,.vocabulary = 10};
	model		empty = model_new(100, 0, &small);
	model		hollow = model_new(101, 5, &none);
	model		long_set = model_new(102, 3, &small);
	model_query q = random_query(&small);
	buffer		b = {0};
	gpuvec_result result;
	model_row  *row;

	q.wire.k = 10;
	q.wire.flags = 0;
	check(model_load(&c, &empty), "load no pages");
	check(model_load(&c, &hollow), "load empty pages");
	for (int measure = 0; measure < GPUVEC_N_WIRE_MEASURES; measure++)
	{
		check(model_check(&c, &empty, (gpuvec_measure) measure, &q, 1), "search nothing");
		check(model_check(&c, &hollow, (gpuvec_measure) measure, &q, 1), "search nothing");
	}
	model_resize(&empty, 4, &small);
	check(model_refresh(&c, &empty), "an empty mirror grows");
	check(model_check_random(&c, &empty, &small), "and is searched");
	model_resize(&empty, 0, &small);
	check(model_refresh(&c, &empty), "and is emptied");
	check(model_check_random(&c, &empty, &small), "and is searched");

	/* a row and a query with every id */
	model_resize(&long_set, 4, &small);
	if (long_set.pages[3].nrows == 0)
	{
		long_set.pages[3].nrows = 1;
		long_set.pages[3].rows[0].line = 7;
		long_set.pages[3].rows[0].ids = NULL;
	}
	row = &long_set.pages[3].rows[0];
	row->len = GPUVEC_MAX_IDS;
	row->ids = realloc(row->ids, GPUVEC_MAX_IDS * sizeof(uint16_t));
	for (uint32_t i = 0; i < GPUVEC_MAX_IDS; i++)
		row->ids[i] = (uint16_t) i;
	check(model_load(&c, &long_set), "load the longest set");
	free(q.ids);
	q.ids = malloc(GPUVEC_MAX_IDS * sizeof(uint16_t));
	memcpy(q.ids, row->ids, GPUVEC_MAX_IDS * sizeof(uint16_t));
	q.weights = NULL;
	q.wire.len = GPUVEC_MAX_IDS;
	for (int measure = 0; measure < GPUVEC_N_WIRE_MEASURES; measure++)
		check(model_check(&c, &long_set, (gpuvec_measure) measure, &q, 1), "search for it");

	/* a mirror that is behind is not searched */
	q.wire.len = 0;
	search_request(&b, &long_set.key, long_set.position + 1, GPUVEC_JACCARD, &q, 1);
	check(client_call(&c, GPUVEC_MSG_SEARCH, b.data, b.length, GPUVEC_MSG_RESULT), "search");
	memcpy(&result, c.data, sizeof(result));
	check(result.state.state == GPUVEC_READY && result.nqueries == 0 && result.nhits == 0 &&
		  result.state.checked == long_set.position, "a mirror that is behind");
	b.length = 0;
	empty.key.relation = 999;
	search_request(&b, &empty.key, 0, GPUVEC_JACCARD, &q, 1);
	check(client_call(&c, GPUVEC_MSG_SEARCH, b.data, b.length, GPUVEC_MSG_RESULT), "search");
	memcpy(&result, c.data, sizeof(result));
	check(result.state.state == GPUVEC_ABSENT && result.nqueries == 0, "a mirror that is absent");

	/* checked never goes back */
	long_set.position = 5;
	check(model_refresh(&c, &long_set), "refresh");
	long_set.position = 2;
	check(model_refresh(&c, &long_set) && client_state(&c).checked == 6, "checked does not go back");
	free(b.data);
	free(q.ids);
	model_free(&empty);
	model_free(&hollow);
	model_free(&long_set);
	client_close(&c);
	engine_stop(&e);
}

/* Random rewrites, drops, growth; unfinished refreshes; evict and reload */
static void
refresh_rounds(engine *e, const shape *s, uint32_t relation, uint32_t nblocks, int rounds)
{
	client		c = client_open(e);
	model		m = model_new(relation, nblocks, s);
	gpuvec_mirror_info info;

	check(model_load(&c, &m), "load");
	for (int round = 0; round < rounds; round++)
	{
		uint32_t	changes = m.nblocks == 0 ? 0 :
			random_below(8) == 0 ? (uint32_t) random_below(m.nblocks) : (uint32_t) random_below(4);

		if (random_below(6) == 0)
			model_resize(&m, (uint32_t) random_below(nblocks * 2), s);
		for (uint32_t i = 0; i < changes && m.nblocks > 0; i++)
			model_change_page(&m, (uint32_t) random_below(m.nblocks), s);
		if (random_below(10) == 0)
		{
			/*
			 * A refresh that is cut off leaves nothing, once its session has
			 * ended.  Those of rounds before may not have, either.
			 */
			client		other = client_open(e);

			check(client_call(&other, GPUVEC_MSG_REFRESH_BEGIN, REFRESH(&m.key), GPUVEC_MSG_STATE),
				  "a refresh begins");
			model_send_pages(&other, &m, true);
			client_close(&other);
			for (int i = 0; i < 1000 && client_engine_info(&c).connections > 1; i++)
				usleep(5000);
		}
		if (random_below(25) == 0)
		{
			gpuvec_drop drop = {.database = m.key.database,.relation = m.key.relation};

			check(client_call(&c, GPUVEC_MSG_DROP, &drop, sizeof(drop), GPUVEC_MSG_COUNT), "drop");
			check(*(uint64_t *) c.data == 1, "one mirror");
			check(model_load(&c, &m), "load again");
		}
		else if (!check(model_refresh(&c, &m), "refresh"))
			break;
		if (!check(model_check_random(&c, &m, s), "search after a refresh"))
			break;
	}
	check(client_mirror_info(&c, &m.key, &info), "the mirror is listed");
	check(info.state == GPUVEC_READY && info.nrows == model_nrows(&m) && info.pages_total == m.nblocks &&
		  info.checked >= m.position, "as it is");
	check(info.nsegments < 80, "small segments are merged");
	check(info.host_bytes + info.device_bytes > 0, "it takes memory");
	model_free(&m);
	client_close(&c);
}

/*
 * A page is again what it was when it was last read as a whole, after lines
 * of it were read: what they brought goes
 */
static void
page_as_before(void)
{
	engine		e = engine_start(NULL, plain);
	client		c = client_open(&e);
	model		m = model_new(100, 20, &small);
	model_page *page = &m.pages[2];
	model_row	row = {.line = 4000,.len = 1,.ids = calloc(1, sizeof(uint16_t))};

	check(model_load(&c, &m), "load");
	page->rows = realloc(page->rows, (page->nrows + 1) * sizeof(row));
	page->rows[page->nrows++] = row;
	page->lines[0] = row.line;
	page->nlines = 1;
	page->partial = page->dirty = true;
	check(model_refresh(&c, &m), "a line");
	page->nrows--;
	page->dirty = true;
	page->lsn = 12345;
	check(model_refresh(&c, &m), "the page as it was");
	check(model_check_random(&c, &m, &small), "search");
	free(row.ids);
	model_free(&m);
	client_close(&c);
	engine_stop(&e);
}

static void
test_refresh(void)
{
	engine		e = engine_start("lists:1", plain);

	page_as_before();
	refresh_rounds(&e, &small, 100, 30, 400);
	refresh_rounds(&e, &wide, 101, 60, 100);
	refresh_rounds(&e, &tiny_sets, 102, 1500, 60);
	engine_stop(&e);
}

/*
 * A mirror that is dropped while a refresh of it begins.  The session is told
 * that it is absent, and loads it.
 */
static void
test_refresh_dropped(void)
{
	engine		e = engine_start("slow-begin:4000", plain);
	client		c = client_open(&e);
	client		d = client_open(&e);
	model		m = model_new(100, 30, &small);
	gpuvec_refresh refresh = {.key = m.key,.lsns = 1};

	check(model_load(&c, &m), "load");
	check(client_send(&c, GPUVEC_MSG_REFRESH_BEGIN, &refresh, sizeof(refresh)), "a refresh");
	usleep(200000);
	check(client_call(&d, GPUVEC_MSG_DROP, &(gpuvec_drop) {0}, sizeof(gpuvec_drop), GPUVEC_MSG_COUNT), "drop");
	check(client_read(&c) && c.frame.type == GPUVEC_MSG_STATE && client_state(&c).state == GPUVEC_ABSENT, "the mirror is absent");
	check(model_load(&c, &m) && model_check_random(&c, &m, &small), "the mirror is loaded again");
	model_free(&m);
	client_close(&d);
	client_close(&c);
	engine_stop(&e);
}

/* Small ids only; rows with larger ones come later */
static const shape narrow = {.rows_per_page = 12,.maxlen = 24,.vocabulary = 120};

/*
 * A mirror whose rows are narrow gets wide ones, page by page, is loaded
 * again, and becomes narrow
 */
static void
turn_wide(const engine *e, uint32_t relation)
{
	client		c = client_open(e);
	model		m = model_new(relation, 30, &narrow);

	check(model_load(&c, &m), "load");
	for (int round = 0; round < 120; round++)
	{
		const shape *s = round < 60 ? &small : &narrow;

		check(model_check_random(&c, &m, &small), "a search of narrow and wide rows");
		for (uint32_t i = 0; i < 2; i++)
			model_change_page(&m, (uint32_t) random_below(m.nblocks), s);
		if (!check(round == 40 || round == 100 ? model_load(&c, &m) : model_refresh(&c, &m), "refresh"))
			break;
	}
	model_free(&m);
	client_close(&c);
}

/* The numbers of ids are charged, and so are cold ones */
static void
wide_memory(const char *faults)
{
	/* lists would count, too: there are none */
	engine		e = engine_start(faults, plain);
	client		c = client_open(&e);
	model		m = model_new(103, 3000, &wide);
	gpuvec_mirror_info info;
	gpuvec_mirror_info narrow_info;

	wide_from = 0;
	check(model_load(&c, &m) && client_mirror_info(&c, &m.key, &narrow_info), "load");
	wide_from = 120;
	check(model_load(&c, &m) && client_mirror_info(&c, &m.key, &info), "load with large ids");
	check(info.nids == narrow_info.nids && info.nrows == narrow_info.nrows, "as many of them");
	check(info.host_bytes > narrow_info.host_bytes + 65536 * 8, "their numbers take memory");
	check(model_check_random(&c, &m, &wide), "a search");
	usleep(100000);
	check(client_mirror_info(&c, &m.key, &info) && client_engine_info(&c).memory_used >= info.host_bytes,
		  "which is charged");
	model_free(&m);
	client_close(&c);
	engine_stop(&e);
}

/* Ids above 65,535: of hot numbers, of cold ones, and of both */
static void
test_wide(void)
{
	static const char *const faults[] = {
		"lists:1", "lists:1,first-number:65400", "lists:1,first-number:65530", "first-number:65536"
	};
	static const char *const without_lists[] = {
		"lists:1000000", "lists:1000000,first-number:65400", "lists:1000000,first-number:65530",
		"lists:1000000,first-number:65536"
	};

	for (int i = 0; i < 4; i++)
	{
		engine		e = engine_start(faults[i], plain);

		wide_from = 120;
		turn_wide(&e, 104);
		refresh_rounds(&e, &small, 100, 30, 150);
		refresh_rounds(&e, &wide, 101, 60, 40);
		refresh_rounds(&e, &tiny_sets, 102, 500, 30);
		engine_stop(&e);
		wide_memory(without_lists[i]);
	}
	wide_from = 0;
}

/* Wait until a mirror has not many segments; how many it has in the end */
static uint32_t
wait_for_merges(client *c, model *m, uint32_t enough)
{
	gpuvec_mirror_info info = {0};

	for (double begin = seconds(); seconds() - begin < patience();)
	{
		if (!check(client_mirror_info(c, &m->key, &info), "the mirror is listed") || info.nsegments <= enough)
			break;
		usleep(10000);
	}
	return info.nsegments;
}

/* Is the engine charged for this mirror only?  Merges that end repay theirs */
static bool
only_charged(client *c, const gpuvec_mirror_key *key)
{
	gpuvec_mirror_info info;
	double		begin = seconds();
	bool		only;

	do
	{
		usleep(10000);
		client_mirror_info(c, key, &info);
		only = client_engine_info(c).memory_used == (info.device_bytes > 0 ? info.device_bytes : info.host_bytes);
	}
	while (!only && seconds() - begin < patience());
	return only;
}

/*
 * Segments are merged while refreshes go on, bury rows in them, and drop
 * mirrors
 */
static void
test_merges(void)
{
	engine		e = engine_start("slow-merge:15", plain);
	client		c = client_open(&e);
	model		m = model_new(100, 60, &small);
	gpuvec_mirror_info info;
	uint32_t	segments = 0;
	int			merges = 0;

	check(model_load(&c, &m), "load");
	for (int round = 0; round < 250; round++)
	{
		gpuvec_drop drop = {.database = m.key.database,.relation = m.key.relation};

		if (random_below(3) == 0)
			model_resize(&m, m.nblocks + (uint32_t) random_below(6) - (m.nblocks > 40 ? 3 : 0), &small);
		for (uint64_t i = random_below(6); i > 0; i--)
			model_change_page(&m, (uint32_t) random_below(m.nblocks), &small);
		if (random_below(60) == 0)
		{
			check(client_call(&c, GPUVEC_MSG_DROP, &drop, sizeof(drop), GPUVEC_MSG_COUNT), "drop");
			check(model_load(&c, &m), "load again");
		}
		else if (!check(model_refresh(&c, &m), "refresh"))
			break;
		if (!check(model_check_random(&c, &m, &small), "search"))
			break;
		client_mirror_info(&c, &m.key, &info);
		merges += info.nsegments < segments;
		segments = info.nsegments;
		usleep((useconds_t) random_below(3) * 4000);
	}
	check(merges > 3, "segments were merged meanwhile");
	check(wait_for_merges(&c, &m, 12) <= 12, "few segments are left");
	check(model_check_random(&c, &m, &small), "search");
	check(only_charged(&c, &m.key), "merges have given back what they were charged");
	model_free(&m);
	client_close(&c);
	engine_stop(&e);
}

/* Ids of all rows */
static uint64_t
model_nids(const model *m)
{
	uint64_t	n = 0;

	for (uint32_t block = 0; block < m->nblocks; block++)
		for (uint32_t i = 0; i < m->pages[block].nrows; i++)
			n += m->pages[block].rows[i].len;
	return n;
}

/* Rows of a full segment in the tests of mergers */
#define FULL	64

/*
 * Wait until a mirror has few segments beyond those needed, and few ids of
 * dead rows
 */
static bool
wait_for_order(client *c, model *m)
{
	gpuvec_mirror_info info = {0};

	for (double begin = seconds(); seconds() - begin < patience();)
	{
		if (!check(client_mirror_info(c, &m->key, &info), "the mirror is listed"))
			return false;
		if (info.nsegments <= info.nrows / FULL + 24 && info.nids * 7 <= model_nids(m) * 10)
			return true;
		usleep(10000);
	}
	printf("%u segments of %lu rows, %lu ids of %lu\n", info.nsegments, (unsigned long) info.nrows,
		   (unsigned long) info.nids, (unsigned long) model_nids(m));
	return false;
}

/* Wait until no more is charged than the mirror takes */
static bool
wait_for_charge(client *c, model *m)
{
	gpuvec_mirror_info info = {0};

	for (double begin = seconds(); seconds() - begin < patience();)
	{
		client_mirror_info(c, &m->key, &info);
		if (client_engine_info(c).memory_used == (info.device_bytes > 0 ? info.device_bytes : info.host_bytes))
			return true;
		usleep(10000);
	}
	printf("%lu bytes are charged, %lu taken\n", (unsigned long) client_engine_info(c).memory_used,
		   (unsigned long) info.host_bytes);
	return false;
}

/*
 * What a refresh under way is charged stays charged while segments are
 * merged, and is given back when its session goes
 */
static void
charged_meanwhile(void)
{
	engine		e = engine_start("slow-merge:300", plain);
	client		c = client_open(&e);
	client		d = client_open(&e);
	model		m = model_new(100, 60, &wide);
	gpuvec_mirror_info info;
	uint64_t	used;

	check(model_load(&c, &m), "load");
	for (uint32_t block = 0; block < 14; block++)
	{
		model_rewrite_page(&m, block, &wide);
		check(model_refresh(&c, &m), "refresh");
	}
	check(client_mirror_info(&c, &m.key, &info) && info.nsegments > 4, "small segments");
	check(client_call(&d, GPUVEC_MSG_REFRESH_BEGIN, REFRESH(&m.key), GPUVEC_MSG_STATE), "a refresh");
	for (uint32_t block = 0; block < m.nblocks; block++)
		model_rewrite_page(&m, block, &wide);
	check(model_send_pages(&d, &m, true), "pages");
	check(wait_for_merges(&c, &m, info.nsegments - 1) < info.nsegments, "segments are merged");
	usleep(50000);
	client_mirror_info(&c, &m.key, &info);
	used = client_engine_info(&c).memory_used;
	check(used > info.host_bytes + info.host_bytes / 2, "the refresh is charged");
	client_close(&d);
	check(wait_for_charge(&c, &m), "and gives it back");
	model_free(&m);
	client_close(&c);
	engine_stop(&e);
}

/*
 * Both mergers at work, with segments of few rows: merges of large segments
 * take long, so that small ones end meanwhile, rows die in the sources, and
 * sources vanish; and merges publish while updates do
 */
static void
merger_rounds(const char *fault, int rounds, useconds_t pause, const shape *s)
{
	engine		e = engine_start(fault, plain);
	client		c = client_open(&e);
	model		m = model_new(100, 120, s);
	gpuvec_mirror_info info;

	check(model_load(&c, &m), "load");
	for (int round = 0; round < rounds; round++)
	{
		uint32_t	at = (uint32_t) random_below(m.nblocks);

		if (random_below(20) == 0)
			model_resize(&m, 60 + (uint32_t) random_below(120), s);
		for (uint64_t i = random_below(8); i > 0; i--)
			model_change_page(&m, (uint32_t) random_below(m.nblocks), s);
		/* now and then all rows of a segment die */
		for (uint32_t i = 0; i < 40 && random_below(30) > 0 && round % 10 == 0; i++)
			model_rewrite_page(&m, (at + i) % m.nblocks, s);
		if (!check(model_refresh(&c, &m), "refresh") ||
			!check(model_check_random(&c, &m, s), "search"))
			break;
		usleep((useconds_t) random_below(2 * pause + 1));
	}
	check(wait_for_order(&c, &m), "few segments and few dead rows are left");
	check(model_check_random(&c, &m, s), "search");
	client_mirror_info(&c, &m.key, &info);
	check(info.nrows == model_nrows(&m), "all rows are there");
	check(wait_for_charge(&c, &m), "merges have given back what they were charged");
	model_free(&m);
	client_close(&c);
	engine_stop(&e);
}

/* Small segments are merged while a merge of large ones does not end */
static void
small_beside_large(void)
{
	engine		e = engine_start("full-segment:64,slow-sort:100000000", plain);
	client		c = client_open(&e);
	model		m = model_new(100, 150, &small);
	gpuvec_mirror_info info;

	check(model_load(&c, &m), "load");
	for (uint32_t block = 0; block < 90; block++)
		model_rewrite_page(&m, block, &small);
	check(model_refresh(&c, &m), "refresh");
	usleep(100000);
	client_mirror_info(&c, &m.key, &info);
	for (uint32_t i = 0; i < 40; i++)
	{
		model_rewrite_page(&m, i, &small);
		check(model_refresh(&c, &m), "refresh");
		check(model_check_random(&c, &m, &small), "search");
	}
	check(wait_for_merges(&c, &m, info.nsegments + 20) <= info.nsegments + 20,
		  "small segments do not wait for large ones");
	check(model_check_random(&c, &m, &small), "search");
	model_free(&m);
	client_close(&c);
	engine_stop(&e);
}

/*
 * When most rows have gone, sorted segments are merged until they are few
 * enough, though threads could share a search by more of them
 */
static void
too_many_sorted(void)
{
	static const shape none = {.rows_per_page = 0,.maxlen = 1,.vocabulary = 10};
	engine		e = engine_start("full-segment:20000", (const char *const[]) {"--cpu-threads", "4", NULL});
	client		c = client_open(&e);
	model		m = model_new(100, 5800, &tiny_sets);
	gpuvec_mirror_info info;
	uint32_t	enough;

	check(model_load(&c, &m), "load");
	for (uint32_t block = 0; block < m.nblocks; block++)
		if (block % 100 < 56)
			model_rewrite_page(&m, block, &none);
	check(model_refresh(&c, &m), "refresh");
	client_mirror_info(&c, &m.key, &info);
	enough = (uint32_t) (info.nrows / 20000 + 1) * 9 / 8 + 6;
	check(info.nsegments > enough, "there are too many segments");
	check(wait_for_merges(&c, &m, enough) <= enough, "they become fewer");
	check(model_check_random(&c, &m, &tiny_sets), "search");
	model_free(&m);
	client_close(&c);
	engine_stop(&e);
}

static void
test_mergers(void)
{
	/* of few lengths, so that rows of the least and the greatest die */
	static const shape one_id = {.rows_per_page = 12,.maxlen = 1,.vocabulary = 100};

	merger_rounds("full-segment:64", 300, 2000, &small);
	merger_rounds("full-segment:64,slow-sort:40", 200, 10000, &small);
	merger_rounds("full-segment:64,slow-merge:20", 200, 5000, &small);
	merger_rounds("full-segment:64,slow-publish:10", 150, 2000, &small);
	merger_rounds("full-segment:64,slow-sort:100", 100, 10000, &one_id);
	small_beside_large();
	too_many_sorted();
	charged_meanwhile();
}

/* Pages that come back with other LSNs but the same rows move nothing */
static void
test_same_rows(void)
{
	engine		e = engine_start("lists:1", plain);
	client		c = client_open(&e);
	model		m = model_new(100, 200, &small);
	gpuvec_mirror_info before;
	gpuvec_mirror_info after;

	check(model_load(&c, &m), "load");
	client_mirror_info(&c, &m.key, &before);
	for (int round = 0; round < 20; round++)
	{
		for (uint32_t block = 0; block < m.nblocks; block++)
		{
			if (random_below(round + 1) != 0)
				continue;
			m.pages[block].lsn++;
			m.pages[block].dirty = true;
		}
		check(model_refresh(&c, &m), "refresh");
		check(model_check_random(&c, &m, &small), "search");
	}
	client_mirror_info(&c, &m.key, &after);
	check(after.nsegments == before.nsegments && after.nids == before.nids, "nothing moved");
	check(after.refreshes == 20 && after.loads == 1, "refreshes are counted");

	/* one id of one row */
	for (uint32_t block = 0; block < m.nblocks; block++)
	{
		model_page *page = &m.pages[block];

		for (uint32_t i = 0; i < page->nrows; i++)
		{
			uint16_t   *last = &page->rows[i].ids[page->rows[i].len - 1];

			if (page->rows[i].len > 0 && *last < 65535 && !page->dirty)
			{
				(*last)++;
				page->lsn++;
				page->dirty = true;
			}
		}
	}
	check(model_refresh(&c, &m), "refresh");
	for (int i = 0; i < 10; i++)
		check(model_check_random(&c, &m, &small), "a changed id is seen");
	model_free(&m);
	client_close(&c);
	engine_stop(&e);
}

/*
 * Mirrors that do not fit evict the least recently used; too large ones fail
 * early
 */
static void
test_budget(void)
{
	engine		e = engine_start(NULL, (const char *const[]) {"--device-memory", "4", "--cpu-threads", "2", NULL});
	client		c = client_open(&e);
	model		m[3];
	model		huge = model_new(200, 8000, &wide);
	gpuvec_mirror_info info;
	gpuvec_engine_info engine_info;

	for (int i = 0; i < 3; i++)
	{
		m[i] = model_new(100 + (uint32_t) i, 1500, &small);
		check(model_load(&c, &m[i]), "load");
		usleep(2000);
		if (i == 1)
			check(model_check_random(&c, &m[0], &small), "use the first");
	}
	engine_info = client_engine_info(&c);
	check(engine_info.memory_budget == 4 << 20, "the budget");
	check(engine_info.memory_used <= engine_info.memory_budget && engine_info.memory_used > 0, "is kept");
	check(!client_mirror_info(&c, &m[0].key, &info) || !client_mirror_info(&c, &m[1].key, &info) ||
		  engine_info.evictions == 0, "evicted mirrors are gone");

	/* load until something has to go; the first is used all the time */
	for (uint32_t i = 0; i < 12; i++)
	{
		model		more = model_new(300 + i, 1500, &small);

		check(model_check_random(&c, &m[0], &small), "the mirror in use stays");
		check(model_load(&c, &more), "load");
		check(model_check_random(&c, &more, &small), "search");
		engine_info = client_engine_info(&c);
		check(engine_info.memory_used <= engine_info.memory_budget, "the budget is kept");
		model_free(&more);
		usleep(1000);
	}
	check(engine_info.evictions > 0, "mirrors were evicted");
	check(client_mirror_info(&c, &m[0].key, &info), "the mirror in use was not");
	check(!client_mirror_info(&c, &m[1].key, &info), "the oldest was");

	/* much too large: fails while pages are sent */
	{
		gpuvec_load load = {.key = huge.key,.nblocks = huge.nblocks};
		client		d = client_open(&e);

		check(client_call(&d, GPUVEC_MSG_LOAD_BEGIN, &load, sizeof(load), GPUVEC_MSG_STATE), "begin");
		check(!model_send_pages(&d, &huge, true), "a load that cannot fit fails early");
		check(client_read(&d) && client_failed_with(&d, "53200"), "out of memory");
		check(strstr(client_error_text(&d, 2), "gpuvec.device_memory") != NULL, "with a hint");
		check(client_error_text(&d, 1)[0] != '\0', "and a detail");
		check(!client_error_retry(&d), "and no retry");
		check(client_error_fallback(&d), "sessions can do without it");
		client_close(&d);
	}
	check(client_call(&c, GPUVEC_MSG_STAT, &huge.key, sizeof(huge.key), GPUVEC_MSG_STATE), "STAT");
	usleep(50000);
	check(client_call(&c, GPUVEC_MSG_STAT, &huge.key, sizeof(huge.key), GPUVEC_MSG_STATE) &&
		  client_state(&c).state == GPUVEC_ABSENT, "nothing is left of it");
	check(model_load(&c, &m[1]), "others can be loaded");
	check(model_check_random(&c, &m[1], &small), "and searched");
	engine_info = client_engine_info(&c);
	check(engine_info.memory_used <= engine_info.memory_budget, "the budget is kept");
	for (int i = 0; i < 3; i++)
		model_free(&m[i]);
	model_free(&huge);
	client_close(&c);
	engine_stop(&e);
}

/* Growth by refreshes stays within the budget, or fails with an error */
static void
test_budget_refresh(void)
{
	engine		e = engine_start(NULL, (const char *const[]) {"--device-memory", "2", "--cpu-threads", "2", NULL});
	client		c = client_open(&e);
	model		m = model_new(100, 50, &small);
	bool		failed = false;

	check(model_load(&c, &m), "load");
	for (uint32_t n = 100; n < 20000 && !failed; n += 100)
	{
		model_resize(&m, n, &small);
		if (!client_call(&c, GPUVEC_MSG_REFRESH_BEGIN, REFRESH(&m.key), GPUVEC_MSG_STATE))
		{
			check(false, "a refresh begins");
			break;
		}
		model_send_pages(&c, &m, false);
		failed = !model_commit(&c, &m);
		check(!failed || client_failed_with(&c, "53200"), "out of memory");
		if (!failed)
			check(client_engine_info(&c).memory_used <= 2 << 20, "the budget is kept");
	}
	check(failed, "a mirror cannot outgrow the budget");
	client_close(&c);
	check(engine_alive(&e), "the engine lives");
	model_free(&m);
	engine_stop(&e);
}

/* Threads that search while others refresh */
typedef struct searcher
{
	pthread_t	thread;
	engine	   *e;
	gpuvec_mirror_key key;
	uint32_t	nrows;
	int		   *stop;
	uint64_t	searches;
	bool		consistent;
} searcher;

/*
 * All rows of a version have as many ids in common with the query: version %
 * 8 + 1
 */
static void *
search_versions(void *arg)
{
	searcher   *s = arg;
	client		c = client_open(s->e);
	uint16_t	ids[16];
	model_query q = {.ids = ids,.wire = {.len = 16,.k = s->nrows + 10}};
	buffer		b = {0};

	for (uint16_t i = 0; i < 16; i++)
		ids[i] = i;
	search_request(&b, &s->key, 0, s->key.values ? (gpuvec_measure) (GPUVEC_WIRE_SPARSE + GPUVEC_SPARSE_COSINE) : GPUVEC_INTERSECTION, &q, 1);
	s->consistent = true;
	while (!__atomic_load_n(s->stop, __ATOMIC_RELAXED))
	{
		gpuvec_result result;
		gpuvec_hit	first;
		gpuvec_hit	hit;

		if (!check(client_call(&c, GPUVEC_MSG_SEARCH, b.data, b.length, GPUVEC_MSG_RESULT), "search"))
			break;
		memcpy(&result, c.data, sizeof(result));
		if (result.nqueries != 1 || result.nhits != s->nrows)
		{
			s->consistent = false;
			break;
		}
		memcpy(&first, c.data + sizeof(result) + 8, sizeof(first));
		for (uint32_t i = 0; i < s->nrows; i++)
		{
			memcpy(&hit, c.data + sizeof(result) + 8 + i * sizeof(hit), sizeof(hit));
			/*
			 * every page is newer than what a session knows that knows
			 * nothing, or proven
			 */
			if (gpuvec_hit_common(hit.place) != gpuvec_hit_common(first.place) ||
				!(gpuvec_hit_newer(hit.place) || gpuvec_hit_proven(hit.place)))
				s->consistent = false;
		}
		s->searches++;
	}
	free(b.data);
	client_close(&c);
	return NULL;
}

/* Make all rows those of a version */
static void
set_version(model *m, uint32_t version)
{
	for (uint32_t block = 0; block < m->nblocks; block++)
	{
		model_page *page = &m->pages[block];

		page->nrows = 50;
		page->rows = realloc(page->rows, 50 * sizeof(model_row));
		for (uint32_t i = 0; i < 50; i++)
		{
			model_row  *row = &page->rows[i];

			if (version == 0)
				row->ids = malloc(16 * sizeof(uint16_t));
			row->line = (uint16_t) (i + 1);
			row->len = version % 8 + 1;
			for (uint16_t id = 0; id < row->len; id++)
				row->ids[id] = id;
		}
		page->lsn++;
		page->dirty = true;
	}
}

static void
test_concurrency(void)
{
	engine		e = engine_start("lists:1", plain);
	client		c = client_open(&e);
	static const shape none = {.rows_per_page = 0,.maxlen = 1,.vocabulary = 10};
	model		m[2];
	searcher	searchers[16];
	int			stop = 0;
	uint64_t	searches = 0;
	gpuvec_engine_info info;
	double		begin = seconds();
	uint32_t	version;

	for (int i = 0; i < 2; i++)
	{
		m[i] = model_new(100 + (uint32_t) i, 100, &none);
		set_version(&m[i], 0);
		check(model_load(&c, &m[i]), "load");
	}
	for (int i = 0; i < 16; i++)
	{
		searchers[i] = (searcher) {.e = &e,.key = m[i % 2].key,.nrows = 5000,.stop = &stop};
		pthread_create(&searchers[i].thread, NULL, search_versions, &searchers[i]);
	}
	for (version = 1; seconds() - begin < 4; version++)
	{
		set_version(&m[version % 2], (version + 1) / 2);
		if (!check(model_refresh(&c, &m[version % 2]), "refresh under load"))
			break;
	}
	__atomic_store_n(&stop, 1, __ATOMIC_RELAXED);
	for (int i = 0; i < 16; i++)
	{
		pthread_join(searchers[i].thread, NULL);
		check(searchers[i].consistent, "every search sees one version");
		check(searchers[i].searches > 0, "nobody starves");
		searches += searchers[i].searches;
	}
	info = client_engine_info(&c);
	check(info.requests == searches, "requests are counted");
	check(info.queries == searches, "queries are counted");
	check(info.batches < info.requests && info.batches > 0, "searches were batched");
	check(version > 3, "refreshes went on meanwhile");
	printf("concurrency: %lu searches, %lu batches, %u refreshes\n",
		   (unsigned long) info.requests, (unsigned long) info.batches, version);
	for (int i = 0; i < 2; i++)
		model_free(&m[i]);
	client_close(&c);
	engine_stop(&e);
}

#define TOGETHER	8			/* requests, held until all have come */

/* A search, one of those that are sent together */
typedef struct together_request
{
	client		c;
	uint32_t	n;
	model_query queries[3];
	buffer		request;
} together_request;

/* A random request; those of a round have their measure and method in common */
static void
make_together(together_request *r, const model *m, const shape *s, gpuvec_measure measure, uint32_t method)
{
	r->n = 1 + (uint32_t) random_below(3);
	for (uint32_t i = 0; i < r->n; i++)
	{
		gpuvec_query *wire = &r->queries[i].wire;

		r->queries[i] = random_query(s);
		if (wire->k == GPUVEC_ALL_ROWS)
			wire->flags |= random_below(2) ? GPUVEC_QUERY_PAGES : 0;
		else if (random_below(3) == 0)
		{
			wire->flags |= GPUVEC_QUERY_AFTER;
			wire->after_score = (double) random_below(5) / 4;
			wire->after_tid = gpuvec_tid((uint32_t) random_below(m->nblocks), 4);
		}
	}
	r->request.length = 0;
	if (r->n == 1 && random_below(2))
		model_count_request(&r->request, m, measure, r->queries);
	else
		search_request(&r->request, &m->key, 0, measure, r->queries, r->n);
	((gpuvec_search *) r->request.data)->method = method;
}

static int
compare_lines(const void *a, const void *b)
{
	return *(const uint16_t *) a - *(const uint16_t *) b;
}

/*
 * Sort what an answer may have in any order, and forget how long it took, and
 * ways that depend on what searches took before
 */
static void
tidy_answer(const client *c, const together_request *r)
{
	gpuvec_result *result = (gpuvec_result *) c->data;
	const uint32_t *counts = (const uint32_t *) (result + 1);
	char	   *at = (char *) (counts + (result->nqueries + 1) / 2 * 2) + result->npassed * sizeof(uint64_t);

	result->engine_us = 0;
	if (((gpuvec_search *) r->request.data)->method == GPUVEC_METHOD_AUTO)
		memset(result->ways, 0, sizeof(result->ways));
	if (result->group_bytes > 0)
		model_sort_groups(&((gpuvec_search *) r->request.data)->grouping, at, result->group_bytes);
	at += result->group_bytes;
	for (uint64_t left = result->page_bytes; left > 0;)
	{
		gpuvec_page_rows *page = (gpuvec_page_rows *) at;

		qsort(page + 1, page->n, sizeof(uint16_t), compare_lines);
		at += gpuvec_page_rows_bytes(page->n);
		left -= gpuvec_page_rows_bytes(page->n);
	}
	for (uint32_t i = 0; i < result->nqueries && result->page_bytes == 0; i++)
	{
		if (r->queries[i].wire.k == GPUVEC_ALL_ROWS && counts[i] != GPUVEC_FIRST_ROWS)
			qsort(at, counts[i], sizeof(gpuvec_hit), model_compare_hits);
		at += counts[i] * sizeof(gpuvec_hit);
	}
}

/*
 * Send requests at the same time, and compare answers with those of an engine
 * that is asked one by one
 */
static bool
check_together(together_request *requests, client *alone)
{
	bool		ok = true;

	for (int i = 0; i < TOGETHER; i++)
		ok = ok && client_send(&requests[i].c, GPUVEC_MSG_SEARCH, requests[i].request.data, requests[i].request.length);
	for (int i = 0; i < TOGETHER && ok; i++)
	{
		together_request *r = &requests[i];

		ok = check(client_read(&r->c) && r->c.frame.type == GPUVEC_MSG_RESULT, "an answer") &&
			check(client_call(alone, GPUVEC_MSG_SEARCH, r->request.data, r->request.length, GPUVEC_MSG_RESULT), "one alone");
		if (!ok)
			break;
		tidy_answer(&r->c, r);
		tidy_answer(alone, r);
		check(alone->frame.length == r->c.frame.length && memcmp(alone->data, r->c.data, alone->frame.length) == 0,
			  "a request has the same answer in a batch as alone");
	}
	return ok;
}

/* Searches of one mirror, all in batches with those of other sessions */
static void
together_rounds(const char *fault, const shape *s, uint32_t nblocks)
{
	char		faults[100];
	engine		one;
	engine		held;
	client		alone;
	together_request requests[TOGETHER];
	model		m = model_new(100, nblocks, s);
	gpuvec_engine_info info;

	snprintf(faults, sizeof(faults), "%s,together:%d", fault, TOGETHER);
	one = engine_start(fault, plain);
	held = engine_start(faults, plain);
	alone = client_open(&one);
	memset(requests, 0, sizeof(requests));
	for (int i = 0; i < TOGETHER; i++)
		requests[i].c = client_open(&held);
	check(model_load(&alone, &m), "load");
	m.position = m.refresh = m.applied = 0;
	check(model_load(&requests[0].c, &m), "load");
	for (uint32_t round = 0; round < 3 * GPUVEC_N_WIRE_MEASURES; round++)
	{
		for (int i = 0; i < TOGETHER; i++)
		{
			/* by two measures at once, in some rounds */
			uint32_t	measure = round / 3 + (round % 3 == 2 ? (uint32_t) i % 2 : 0);

			make_together(&requests[i], &m, s, (gpuvec_measure) (measure % GPUVEC_N_WIRE_MEASURES), round % GPUVEC_N_METHODS);
		}
		if (!check_together(requests, &alone))
			break;
		for (int i = 0; i < TOGETHER; i++)
			for (uint32_t j = 0; j < requests[i].n; j++)
				free(requests[i].queries[j].ids);
	}
	info = client_engine_info(&requests[0].c);
	/* several devices that have all rows share what waits */
	check(info.batches * (several_devices() ? 1 : 2) < info.requests, "requests were batched");
	for (int i = 0; i < TOGETHER; i++)
	{
		client_close(&requests[i].c);
		free(requests[i].request.data);
	}
	client_close(&alone);
	model_free(&m);
	engine_stop(&one);
	engine_stop(&held);
}

static void
test_together(void)
{
	together_rounds("lists:1", &small, 60);
	together_rounds("lists:1000000", &small, 60);
	model_filters = 3;
	together_rounds("lists:1", &small, 60);
	together_rounds("lists:1000000", &tiny_sets, 100);
	wide_from = 120;
	together_rounds("lists:1,first-number:65400", &wide, 30);
	model_filters = wide_from = 0;
}

/* One of two sessions loads, the other is told so */
static void *
race_to_load(void *arg)
{
	searcher   *s = arg;
	client		c = client_open(s->e);
	gpuvec_load load = {.key = s->key,.nblocks = 0};

	for (int i = 0; i < 300; i++)
	{
		gpuvec_commit commit = {0};

		load.key.relation = 1000 + (uint32_t) i;
		check(client_call(&c, GPUVEC_MSG_LOAD_BEGIN, &load, sizeof(load), GPUVEC_MSG_STATE), "load");
		if (client_state(&c).state != GPUVEC_LOADING)
			check(client_call(&c, GPUVEC_MSG_COMMIT, &commit, sizeof(commit), GPUVEC_MSG_STATE), "commit");
		while (__atomic_load_n(s->stop, __ATOMIC_ACQUIRE) / 2 < i)
			;
		__atomic_add_fetch(s->stop, 1, __ATOMIC_RELEASE);
		while (__atomic_load_n(s->stop, __ATOMIC_ACQUIRE) / 2 <= i)
			;
	}
	client_close(&c);
	return NULL;
}

static void
test_one_loader(void)
{
	engine		e = engine_start("lists:1", plain);
	client		a = client_open(&e);
	client		b = client_open(&e);
	model		m = model_new(100, 20, &small);
	gpuvec_load load = {.key = m.key,.nblocks = m.nblocks};
	gpuvec_mirror_info info;
	searcher	racers[2];
	int			turn = 0;

	check(client_call(&a, GPUVEC_MSG_LOAD_BEGIN, &load, sizeof(load), GPUVEC_MSG_STATE), "load");
	model_send_pages(&a, &m, true);
	check(client_call(&b, GPUVEC_MSG_LOAD_BEGIN, &load, sizeof(load), GPUVEC_MSG_STATE) &&
		  client_state(&b).state == GPUVEC_LOADING, "a load in the way of a load");
	check(client_call(&b, GPUVEC_MSG_REFRESH_BEGIN, REFRESH(&m.key), GPUVEC_MSG_STATE) &&
		  client_state(&b).state == GPUVEC_LOADING, "a load in the way of a refresh");
	for (int i = 0; i < 100; i++)
	{
		check(client_mirror_info(&b, &m.key, &info), "a load is listed");
		if (info.pages_done == 20)
			break;
		usleep(10000);
	}
	check(info.state == GPUVEC_LOADING && info.pages_done == 20 && info.pages_total == 20, "with its progress");
	check(client_call(&b, GPUVEC_MSG_STAT, &m.key, sizeof(m.key), GPUVEC_MSG_STATE) &&
		  client_state(&b).state == GPUVEC_LOADING, "it is loading");
	check(model_commit(&a, &m), "commit");

	check(client_call(&a, GPUVEC_MSG_REFRESH_BEGIN, REFRESH(&m.key), GPUVEC_MSG_STATE), "refresh");
	check(client_call(&b, GPUVEC_MSG_REFRESH_BEGIN, REFRESH(&m.key), GPUVEC_MSG_STATE) &&
		  client_state(&b).state == GPUVEC_LOADING, "a refresh in the way of a refresh");
	check(model_check_random(&b, &m, &small), "searches go on meanwhile");
	check(model_commit(&a, &m), "a refresh without pages");

	/* a refresh of known pages begins only if nobody else has refreshed */
	{
		gpuvec_refresh refresh = {.key = m.key};

		check(client_call(&b, GPUVEC_MSG_STAT, &m.key, sizeof(m.key), GPUVEC_MSG_STATE), "state");
		refresh.known = client_state(&b).refresh;
		check(client_call(&b, GPUVEC_MSG_REFRESH_BEGIN, &refresh, sizeof(refresh), GPUVEC_MSG_STATE), "refresh");
		model_rewrite_page(&m, 3, &small);
		model_send_pages(&b, &m, false);
		check(model_commit(&b, &m) && client_state(&b).refresh > refresh.known, "commit");
		check(client_call(&a, GPUVEC_MSG_REFRESH_BEGIN, &refresh, sizeof(refresh), GPUVEC_MSG_STATE) &&
			  client_state(&a).state == GPUVEC_READY && client_state(&a).refresh > refresh.known,
			  "a refresh of pages that were stale before another one");
		check(client_call(&b, GPUVEC_MSG_REFRESH_BEGIN, REFRESH(&m.key), GPUVEC_MSG_STATE) &&
			  client_state(&b).state == GPUVEC_READY, "has not begun");
		check(model_commit(&b, &m), "a refresh without pages");
		check(model_check_random(&a, &m, &small), "and the session goes on");
	}

	/* a load replaces a mirror that is ready, which is searched meanwhile */
	check(client_call(&a, GPUVEC_MSG_LOAD_BEGIN, &load, sizeof(load), GPUVEC_MSG_STATE), "load again");
	check(model_check_random(&b, &m, &small), "searches go on meanwhile");
	for (uint32_t block = 0; block < m.nblocks; block += 2)
		model_rewrite_page(&m, block, &small);
	for (uint32_t block = 0; block < m.nblocks; block++)
		m.pages[block].dirty = true;
	model_send_pages(&a, &m, true);
	check(model_commit(&a, &m), "commit");
	check(model_check_random(&b, &m, &small), "the new load is searched");

	/* a drop in the middle */
	check(client_call(&a, GPUVEC_MSG_REFRESH_BEGIN, REFRESH(&m.key), GPUVEC_MSG_STATE), "refresh");
	{
		gpuvec_drop drop = {.database = m.key.database};
		gpuvec_commit commit = {.position = 100,.nblocks = m.nblocks};

		check(client_call(&b, GPUVEC_MSG_DROP, &drop, sizeof(drop), GPUVEC_MSG_COUNT) &&
			  *(uint64_t *) b.data == 1, "drop the database");
		check(client_call(&a, GPUVEC_MSG_COMMIT, &commit, sizeof(commit), GPUVEC_MSG_STATE) &&
			  client_state(&a).state == GPUVEC_ABSENT, "a refresh of a dropped mirror leaves none");
		check(client_call(&a, GPUVEC_MSG_REFRESH_BEGIN, REFRESH(&m.key), GPUVEC_MSG_STATE) &&
			  client_state(&a).state == GPUVEC_ABSENT, "and there is none to refresh");
		check(client_engine_info(&a).memory_used == 0, "and its memory is free");
	}

	for (int i = 0; i < 2; i++)
	{
		racers[i] = (searcher) {.e = &e,.key = m.key,.stop = &turn};
		pthread_create(&racers[i].thread, NULL, race_to_load, &racers[i]);
	}
	for (int i = 0; i < 2; i++)
		pthread_join(racers[i].thread, NULL);
	check(client_call(&a, GPUVEC_MSG_LIST, NULL, 0, GPUVEC_MSG_MIRRORS) &&
		  a.frame.length == 300 * sizeof(gpuvec_mirror_info), "no mirror twice");
	model_free(&m);
	client_close(&a);
	client_close(&b);
	engine_stop(&e);
}

/* Wait until the engine has this many connections */
static bool
wait_connections(client *c, uint32_t n)
{
	double		begin = seconds();

	while (seconds() - begin < patience())
	{
		if (client_engine_info(c).connections == n)
			return true;
		usleep(2000);
	}
	return false;
}

/* A closed connection ends its search */
static void
test_cancel(void)
{
	engine		e = engine_start("slow-search:20000", plain);
	client		c = client_open(&e);
	client		d = client_open(&e);
	model		m = model_new(100, 20, &small);
	model_query q = random_query(&small);
	model_query *many;
	buffer		b = {0};
	double		begin;

	check(model_load(&c, &m), "load");
	search_request(&b, &m.key, 0, GPUVEC_JACCARD, &q, 1);
	check(client_send(&d, GPUVEC_MSG_SEARCH, b.data, b.length), "search");
	usleep(100000);
	check(client_engine_info(&c).connections == 2, "it is slow");
	client_close(&d);
	begin = seconds();
	check(wait_connections(&c, 1), "a closed connection cancels");
	printf("cancel by close: %.1f ms\n", (seconds() - begin) * 1e3);
	check(seconds() - begin < 1, "soon");
	client_close(&c);
	engine_stop(&e);

	/* the same for a search that really works */
	e = engine_start(NULL, plain);
	c = client_open(&e);
	d = client_open(&e);
	model_free(&m);
	m = model_new(100, 400, &wide);
	check(model_load(&c, &m), "load");
	b.length = 0;
	free(q.ids);
	q = random_query(&wide);
	q.wire.k = 5;
	many = malloc(200000 * sizeof(*many));
	for (int i = 0; i < 200000; i++)
		many[i] = q;
	search_request(&b, &m.key, 0, GPUVEC_JACCARD, many, 200000);
	check(client_send(&d, GPUVEC_MSG_SEARCH, b.data, b.length), "search");
	usleep(300000);
	check(client_engine_info(&c).connections == 2, "it takes long");
	client_close(&d);
	begin = seconds();
	check(wait_connections(&c, 1), "a closed connection cancels");
	printf("cancel of a busy search: %.1f ms\n", (seconds() - begin) * 1e3);
	check(model_check_random(&c, &m, &wide), "others are searched");
	free(many);
	free(q.ids);
	free(b.data);
	model_free(&m);
	client_close(&c);
	engine_stop(&e);
}

/* Mirrors of one session */
static void
test_private(void)
{
	engine		e = engine_start(NULL, plain);
	client		a = client_open(&e);
	client		b = client_open(&e);
	model		m[2];
	gpuvec_mirror_info info;
	gpuvec_drop drop = {.database = 5,.relation = 100};

	for (uint64_t i = 0; i < 2; i++)
	{
		m[i] = model_new(100, 20, &small);
		m[i].key.private_id = i + 1;
		check(model_load(&a, &m[i]), "load");
		check(model_check_random(&a, &m[i], &small), "search");
	}
	check(client_call(&b, GPUVEC_MSG_STAT, &m[0].key, sizeof(m[0].key), GPUVEC_MSG_STATE) &&
		  client_state(&b).state == GPUVEC_ABSENT, "others do not see it");
	check(client_mirror_info(&b, &m[0].key, &info), "but it is listed");
	check(client_call(&b, GPUVEC_MSG_DROP, &drop, sizeof(drop), GPUVEC_MSG_COUNT) &&
		  *(uint64_t *) b.data == 0, "dropping the shared ones leaves it");
	drop.private_id = 1;
	check(client_call(&b, GPUVEC_MSG_DROP, &drop, sizeof(drop), GPUVEC_MSG_COUNT) &&
		  *(uint64_t *) b.data == 0, "others cannot drop it");
	check(client_call(&a, GPUVEC_MSG_DROP, &drop, sizeof(drop), GPUVEC_MSG_COUNT) &&
		  *(uint64_t *) a.data == 1, "its session can");
	check(!client_mirror_info(&b, &m[0].key, &info), "one is gone");
	check(model_check_random(&a, &m[1], &small), "the other is there");
	client_close(&a);
	check(wait_connections(&b, 1), "the session ends");
	check(!client_mirror_info(&b, &m[1].key, &info), "and its mirrors with it");
	check(client_engine_info(&b).memory_used == 0, "and their memory");
	model_free(&m[0]);
	model_free(&m[1]);
	client_close(&b);
	engine_stop(&e);
}

/* Limits and greetings */
static void
test_connections(void)
{
	engine		e = engine_start(NULL, (const char *const[]) {
		"--max-sessions", "3", "--incarnation", "00000000000000000000000000000007", NULL
	});
	client		c[4];
	gpuvec_frame junk = {.length = 0,.type = GPUVEC_MSG_LIST};
	gpuvec_hello hello = {.magic = 7,.version = GPUVEC_PROTOCOL_VERSION};
	bool		again = false;

	usleep(100000);				/* until the connection that waited for it has ended */
	for (int i = 0; i < 3; i++)
		check(client_connect(&c[i], &e) && client_hello(&c[i], GPUVEC_PROTOCOL_VERSION, 7), "welcome");
	check(c[0].frame.length == sizeof(gpuvec_welcome) &&
		  ((gpuvec_welcome *) c[0].data)->pid == (uint32_t) e.pid &&
		  strcmp(((gpuvec_welcome *) c[0].data)->backend, "cpu") == 0, "the welcome");
	check(client_connect(&c[3], &e) && !client_hello(&c[3], GPUVEC_PROTOCOL_VERSION, 7) &&
		  client_failed_with(&c[3], "53300") &&
		  strstr(client_error_text(&c[3], 2), "gpuvec.max_sessions") != NULL, "the limit of connections");
	check(!client_read(&c[3]), "it is closed");
	client_close(&c[3]);
	check(client_call(&c[2], GPUVEC_MSG_LIST, NULL, 0, GPUVEC_MSG_MIRRORS), "the others stay");
	client_close(&c[0]);
	for (int i = 0; i < 200 && !again; i++)
	{
		usleep(5000);
		check(client_connect(&c[0], &e), "connect");
		again = client_hello(&c[0], GPUVEC_PROTOCOL_VERSION, 7);
		if (!again)
			client_close(&c[0]);
	}
	check(again, "there is room after one has gone");
	client_close(&c[0]);
	client_close(&c[1]);
	usleep(100000);

	check(client_connect(&c[0], &e) && !client_hello(&c[0], GPUVEC_PROTOCOL_VERSION + 1, 7) &&
		  client_failed_with(&c[0], "08P01") && !client_error_retry(&c[0]) &&
		  strstr(client_error_text(&c[0], 0), "the gpuvec engine is older than the library") != NULL &&
		  client_error_text(&c[0], 2)[0], "a newer session");
	check(!client_read(&c[0]), "it is closed");
	client_close(&c[0]);
	check(client_connect(&c[0], &e) && !client_hello(&c[0], GPUVEC_PROTOCOL_VERSION, 8) &&
		  c[0].frame.type == GPUVEC_MSG_ERROR && client_error_retry(&c[0]), "another incarnation");
	client_close(&c[0]);
	check(client_connect(&c[0], &e) && client_send_raw(&c[0], &junk, sizeof(junk)), "no HELLO");
	check(!client_read(&c[0]) || c[0].frame.type == GPUVEC_MSG_ERROR, "no answer without HELLO");
	client_close(&c[0]);
	check(client_connect(&c[0], &e) && client_send(&c[0], GPUVEC_MSG_HELLO, &hello, sizeof(hello)) &&
		  !client_read(&c[0]), "another magic");
	client_close(&c[0]);
	client_close(&c[2]);
	engine_stop(&e);

	e = engine_start("protocol-version:99", plain);
	check(client_connect(&c[0], &e) && !client_hello(&c[0], GPUVEC_PROTOCOL_VERSION, 0) &&
		  client_failed_with(&c[0], "08P01") && strstr(client_error_text(&c[0], 0), "newer than the library: it speaks protocol version 99"),
		  "a newer engine");
	client_close(&c[0]);
	engine_stop(&e);
}

/* Is this frame answered by 08P01 and the end of the connection? */
static void
expect_violation(const engine *e, gpuvec_message type, const void *data, size_t size, const char *what)
{
	client		c = client_open(e);

	check(!client_call(&c, type, data, size, GPUVEC_MSG_STATE) && client_failed_with(&c, "08P01") && !client_error_fallback(&c), what);
	check(!client_read(&c), "and the connection is closed");
	client_close(&c);
}

/* Pages that break a rule */
static void
expect_bad_pages(const engine *e, const void *data, size_t size, const char *what)
{
	client		c = client_open(e);
	gpuvec_load load = {.key = {.database = 9,.relation = 1,.values = model_values}};
	gpuvec_commit commit = {.nblocks = 1};

	check(client_call(&c, GPUVEC_MSG_LOAD_BEGIN, &load, sizeof(load), GPUVEC_MSG_STATE), "begin");
	(void) client_send(&c, GPUVEC_MSG_PAGES, data, size);
	/* pages that are taken have no answer */
	(void) client_send(&c, GPUVEC_MSG_COMMIT, &commit, sizeof(commit));
	check(client_read(&c) && client_failed_with(&c, "08P01") && !client_error_fallback(&c), what);
	check(!client_read(&c), "and the connection is closed");
	client_close(&c);
}

/* A page with one row, to be spoilt */
typedef struct one_row
{
	gpuvec_page page;
	gpuvec_row	row;
	uint16_t	ids[4];
} one_row;

static one_row
good_page(void)
{
	return (one_row) {{.block = 0,.nrows = 1,.bytes = 16}, {.line = 1,.len = 4}, {1, 2, 3, 4}};
}

/* Rows whose values break a rule */
static void
test_bad_values(const engine *e)
{
	struct
	{
		gpuvec_page page;
		gpuvec_row	row;
		uint16_t	ids[4];		/* one pads */
		float		values[3];
	}			p;

	model_values = true;
#define BAD_VALUE(change, what) \
	do { \
		p.page = (gpuvec_page) {.nrows = 1,.bytes = 28}; \
		p.row = (gpuvec_row) {.line = 1,.form = GPUVEC_FORM_VALUES,.len = 3}; \
		for (int i = 0; i < 3; i++) \
			p.ids[i] = (uint16_t) (i + 1), p.values[i] = (float) i - 0.5f; \
		change; \
		expect_bad_pages(e, &p, sizeof(p.page) + 28, what); \
	} while (0)
	BAD_VALUE(p.values[0] = NAN, "a value that is no number");
	BAD_VALUE(p.values[1] = INFINITY, "an infinite value");
	BAD_VALUE(p.values[2] = -INFINITY, "a negative infinite value");
	BAD_VALUE(p.values[2] = 0, "a value of 0");
	BAD_VALUE(p.values[0] = -0.0f, "a value of -0");
	BAD_VALUE(p.row.form = 0, "no values");
	BAD_VALUE(p.row.form |= GPUVEC_FORM_WIDE, "values of wide ids that are cut off");
	BAD_VALUE(p.row.len = 4, "a value less than ids");
	BAD_VALUE(p.row.len = 2, "a value more than ids");
	BAD_VALUE(p.ids[1] = 1, "ids twice");
	BAD_VALUE((p.page.bytes = 8, p.row.form = 0, p.row.len = 0), "a row without ids, and no form");
	model_values = false;
}

/*
 * What may not follow the first pages of a refresh, and pages of it that
 * break a rule
 */
static void
test_parts(const engine *e, const model *m)
{
	struct
	{
		gpuvec_refresh_chunk part;
		one_row		page;
	}			pages = {{.key = m->key,.known = m->refresh}, good_page()};
	gpuvec_load load = {.key = {.database = 9,.relation = 1}};
	gpuvec_refresh refresh = {.key = m->key,.known = m->refresh};
	gpuvec_commit commit = {.nblocks = m->nblocks};
	const struct
	{
		gpuvec_message type;
		const void *data;
		size_t		size;
	}			others[] = {
		{GPUVEC_MSG_LOAD_BEGIN, &load, sizeof(load)},
		{GPUVEC_MSG_REFRESH_BEGIN, &refresh, sizeof(refresh)},
		{GPUVEC_MSG_PAGES, &pages.page, sizeof(pages.page)},
		{GPUVEC_MSG_COMMIT, &commit, sizeof(commit)},
		{GPUVEC_MSG_REFRESH_PAGES, &pages, sizeof(pages)}	/* the same page again */
	};

	for (size_t i = 0; i < sizeof(others) / sizeof(others[0]); i++)
	{
		/* of a mirror that is as it says, and of one that is not */
		for (int made = 0; made < (others[i].type == GPUVEC_MSG_REFRESH_PAGES ? 1 : 2); made++)
		{
			client		c = client_open(e);

			pages.part.known = m->refresh + (uint64_t) made;
			(void) client_send(&c, GPUVEC_MSG_REFRESH_PAGES, &pages, sizeof(pages));
			check(!client_call(&c, others[i].type, others[i].data, others[i].size, GPUVEC_MSG_STATE) &&
				  client_failed_with(&c, "08P01"), "a message between pages of a refresh");
			check(!client_read(&c), "and the connection is closed");
			client_close(&c);
		}
	}
}

/* Partial pages that break a rule */
static void
test_bad_lines(const engine *e, const model *m)
{
	struct
	{
		gpuvec_refresh_chunk part;
		one_row		page;
		uint16_t	lines[2];
	}			good = {{.key = m->key,.known = m->refresh}, good_page(), {2, 6}};
	const struct
	{
		uint32_t	block;
		uint16_t	line;
		uint16_t	lines[2];
		uint32_t	bytes;
		const char *what;
	}			bad[] = {
		{m->nblocks, 3, {2, 6}, 20, "a partial page behind the mirror's end"},
		{0, 4, {2, 6}, 20, "a row of none of the lines"},
		{0, 8, {2, 6}, 20, "a row behind the lines"},
		{0, 3, {3, 6}, 20, "an odd line"},
		{0, 3, {2, 2}, 20, "a line twice"},
		{0, 3, {6, 2}, 20, "lines not in order"},
		{0, 3, {0, 2}, 20, "line 0"},
		{0, 3, {2, GPUVEC_MAX_LINE + 1}, 20, "a line that cannot be"},
		{0, 3, {2, 6}, 0, "lines that are cut off"},
	};

	good.page.page.partial = 1;
	good.page.page.nlines = 2;
	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
	{
		client		c = client_open(e);

		good.page.page.block = bad[i].block;
		good.page.page.bytes = bad[i].bytes;
		good.page.row.line = bad[i].line;
		memcpy(good.lines, bad[i].lines, sizeof(good.lines));
		(void) client_send(&c, GPUVEC_MSG_REFRESH_PAGES, &good, sizeof(good));
		check(client_read(&c) && client_failed_with(&c, "08P01") && !client_error_fallback(&c), bad[i].what);
		check(!client_read(&c), "and the connection is closed");
		client_close(&c);
	}
}

/*
 * A search and a refresh behind it are sent at once: the search is of the
 * mirror as it was
 */
static void
test_search_ahead(client *c, model *m)
{
	gpuvec_search search = {.key = m->key};
	gpuvec_refresh_once head = {.key = m->key,.known = m->refresh + 1,
		.commit = {.position = m->position + 1,.nblocks = m->nblocks}
	};
	struct
	{
		gpuvec_refresh_once head;
		one_row		page;
	}			bad = {head, good_page()};

	check(client_call(c, GPUVEC_MSG_REFRESH, &head, sizeof(head), GPUVEC_MSG_STATE) &&
		  client_state(c).refresh == m->refresh, "a refresh of what another one made is not made");
	head.known = m->refresh;
	check(client_send(c, GPUVEC_MSG_SEARCH, &search, sizeof(search)) &&
		  client_send(c, GPUVEC_MSG_REFRESH, &head, sizeof(head)) &&
		  client_read(c) && c->frame.type == GPUVEC_MSG_RESULT && client_state(c).refresh == m->refresh,
		  "a search ahead of a refresh");
	check(client_read(c) && c->frame.type == GPUVEC_MSG_STATE && client_state(c).refresh > m->refresh &&
		  client_state(c).checked == head.commit.position, "and the refresh");
	m->refresh = client_state(c).refresh;
	m->position = head.commit.position;
	bad.head.known = m->refresh;
	bad.page.row.len = 7;
	check(client_send(c, GPUVEC_MSG_SEARCH, &search, sizeof(search)) &&
		  !client_call(c, GPUVEC_MSG_REFRESH, &bad, sizeof(bad), GPUVEC_MSG_STATE) &&
		  c->frame.type == GPUVEC_MSG_RESULT && client_read(c) && client_failed_with(c, "08P01"),
		  "a refresh behind a search that fails says so");
}

static void test_concurrency(void);

/* Lack of memory anywhere, with large ids */
static void
test_wide_memory(void)
{
	wide_from = 120;
	test_memory();
	test_rows_memory();
	wide_from = 0;
}

/* Searches while a mirror gets large ids, and merges */
static void
test_wide_concurrency(void)
{
	wide_from = 5;
	test_concurrency();
	wide_from = 120;
	test_merges();
	wide_from = 0;
}

static void test_fuzz(void);

/* Mirrors with filter columns, loaded, refreshed and merged */
static void
test_filters(void)
{
	static const char *const faults[] = {"lists:1", "lists:1,first-number:65400", "full-segment:20000"};

	for (int i = 0; i < 3; i++)
	{
		engine		e = engine_start(faults[i], plain);

		model_filters = i == 1 ? GPUVEC_MAX_FILTERS : 4;
		wide_from = i == 1 ? 120 : 0;
		refresh_rounds(&e, &small, 100, 30, 150);
		refresh_rounds(&e, &wide, 101, 60, 40);
		refresh_rounds(&e, &tiny_sets, 102, 500, 30);
		engine_stop(&e);
	}
	test_merges();
	model_filters = wide_from = 0;
}

/* Mirrors of sparse vectors, loaded, refreshed and merged */
static void
test_values(void)
{
	static const char *const faults[] = {"lists:1", "lists:1,first-number:65400", "full-segment:20000"};

	model_values = true;
	for (int i = 0; i < 3; i++)
	{
		engine		e = engine_start(faults[i], plain);

		wide_from = i == 1 ? 120 : 0;
		model_filters = i == 2 ? 3 : 0;
		if (i == 1)
			turn_wide(&e, 104);
		refresh_rounds(&e, &small, 100, 30, 150);
		refresh_rounds(&e, &wide, 101, 60, 40);
		refresh_rounds(&e, &tiny_sets, 102, 500, 30);
		engine_stop(&e);
	}
	model_filters = 0;
	test_merges();
	wide_from = 0;
	model_values = false;
}

/* Messages with keys and forms of other rows than a mirror has */
static void
bad_values_keys(const engine *e, const gpuvec_mirror_key *key)
{
	gpuvec_load load = {.key = *key,.nblocks = 1};
	gpuvec_search search = {.key = *key};
	gpuvec_rows rows = {.key = *key,.feed = 1};

	load.key.values = search.key.values = rows.key.values = 2;
	expect_violation(e, GPUVEC_MSG_LOAD_BEGIN, &load, sizeof(load), "a load of an unknown kind of rows");
	expect_violation(e, GPUVEC_MSG_SEARCH, &search, sizeof(search), "a search of them");
	expect_violation(e, GPUVEC_MSG_ROWS, &rows, sizeof(rows), "no rows of them");
	load.key.values = 1;
	load.key.key_attnum = 1;
	expect_violation(e, GPUVEC_MSG_LOAD_BEGIN, &load, sizeof(load), "an embedding table with values");
}

/* Rows in a form that a mirror does not have; it stays as it was */
static void
refresh_in_other_form(const engine *e, model *m)
{
	client		c = client_open(e);

	model_rewrite_page(m, 3, &small);
	while (m->pages[3].nrows == 0)
		model_rewrite_page(m, 3, &small);
	model_values = !m->key.values;
	check(!model_refresh(&c, m) && client_failed_with(&c, "08P01"), "a refresh with rows of the other form");
	/* once the connection is closed, nobody refreshes the mirror any more */
	check(!client_read(&c), "and the connection is closed");
	model_values = m->key.values;
	client_close(&c);
}

/*
 * Two mirrors whose keys differ only in whether rows have values: each has
 * its own rows
 */
static void
values_keys(const engine *e)
{
	client		c = client_open(e);
	model		m[2];
	gpuvec_drop drop = {.database = 5,.relation = 100};

	for (int i = 0; i < 2; i++)
	{
		model_values = i == 1;
		m[i] = model_new(100, 40, &small);
		check(model_load(&c, &m[i]), "load");
	}
	bad_values_keys(e, &m[1].key);
	for (int round = 0; round < 20; round++)
	{
		model	   *one = &m[round % 2];

		model_values = round % 2;
		for (int i = 0; i < 3; i++)
			model_change_page(one, (uint32_t) random_below(one->nblocks), &small);
		if (round % 5 == 0)
			refresh_in_other_form(e, one);
		check(model_refresh(&c, one), "refresh");
		for (int i = 0; i < 2; i++)
		{
			model_values = i == 1;
			check(model_check_random(&c, &m[i], &small), "each has its own rows");
		}
	}
	check(client_call(&c, GPUVEC_MSG_DROP, &drop, sizeof(drop), GPUVEC_MSG_COUNT) && *(uint64_t *) c.data == 2,
		  "both are dropped with their table");
	for (int i = 0; i < 2; i++)
		model_free(&m[i]);
	model_values = false;
	client_close(&c);
}

static void
test_values_keys(void)
{
	engine		e = engine_start("lists:1,first-number:65400", plain);

	values_keys(&e);
	wide_from = 120;
	values_keys(&e);
	wide_from = 0;
	engine_stop(&e);
}

/* Searches while mirrors with values get other rows */
static void
test_values_concurrency(void)
{
	model_values = true;
	test_concurrency();
	wide_from = 5;
	test_concurrency();
	wide_from = 0;
	model_values = false;
}

/* Lack of memory anywhere, with values */
static void
test_values_memory(void)
{
	model_values = true;
	test_memory();
	test_rows_memory();
	wide_from = 120;
	test_memory();
	wide_from = 0;
	model_values = false;
}

/* Messages with values, with random bytes changed */
static void
test_values_fuzz(void)
{
	model_values = true;
	test_fuzz();
	model_values = false;
}

/* Lack of memory anywhere, with filter columns */
static void
test_filters_memory(void)
{
	model_filters = 3;
	test_memory();
	test_rows_memory();
	model_filters = 0;
}

/* Filters that make no sense */
static void
bad_filters(const engine *e, const model *m)
{
	uint16_t	ids[3] = {1, 2, 3};
	model_query q = {
		.ids = ids,.wire = {.len = 3,.k = 10,.nconditions = 2,.nvalues = 3},
		.conditions = {{.column = 1,.kind = GPUVEC_KEY_BETWEEN,.high = 5},
		{.column = 2,.kind = GPUVEC_KEY_ANY,.n = 3}},.values = {2, 5, 9}
	};
	buffer		b = {0};

#define BAD_FILTER(change, what) \
	do { \
		gpuvec_search *head; gpuvec_query *query; gpuvec_condition *c; uint64_t *values; \
		b.length = 0; \
		search_request(&b, &m->key, 0, GPUVEC_JACCARD, &q, 1); \
		head = (gpuvec_search *) b.data; query = (gpuvec_query *) (head + 1); \
		c = (gpuvec_condition *) (query + 1); values = (uint64_t *) (c + 2); \
		(void) values; (void) c; \
		change; \
		expect_violation(e, GPUVEC_MSG_SEARCH, b.data, b.length, what); \
	} while (0)
	BAD_FILTER(c[0].column = m->key.nfilters + 1, "a condition on no column");
	BAD_FILTER(c[0].column = UINT32_MAX, "a condition on a column far away");
	BAD_FILTER(c[0].column = 0, "a range of sets");
	BAD_FILTER(c[0].kind = 0, "a condition of no kind");
	BAD_FILTER(c[0].kind = GPUVEC_LAST_CONDITION + 1, "a condition of an unknown kind");
	BAD_FILTER(c[0].n = 1, "a range with values");
	BAD_FILTER(c[1].n = 4, "more values than there are");
	BAD_FILTER(c[1].first = 1, "values behind the last");
	BAD_FILTER((c[1].first = UINT32_MAX, c[1].n = 2), "values that overflow");
	BAD_FILTER(values[1] = 2, "values not in order");
	BAD_FILTER(values[2] = 3, "values that descend");
	BAD_FILTER(query->nconditions = 1, "fewer conditions than said");
	BAD_FILTER(query->nconditions = 3, "more conditions than said");
	BAD_FILTER(query->nconditions = UINT32_MAX, "far too many conditions");
	BAD_FILTER(query->nvalues = 2, "fewer values than said");
	BAD_FILTER(query->nvalues = UINT32_MAX, "far too many values");
	BAD_FILTER(head->filter_bytes -= 8, "filters that are cut off");
	BAD_FILTER(head->filter_bytes = UINT64_MAX - 7, "filters that overflow");
	BAD_FILTER(head->key.nfilters = GPUVEC_MAX_FILTERS + 1, "too many filter columns");
	free(b.data);
}

/* Expressions of ids that make no sense; match_test.c has more of them */
static void
bad_matches(const engine *e, const model *m)
{
	uint16_t	ids[3] = {1, 2, 3};
	model_query q = {
		.ids = ids,.wire = {.len = 3,.k = 10,.nconditions = 2,.nvalues = 5},
		.conditions = {{.column = 1,.kind = GPUVEC_KEY_BETWEEN,.high = 5},
		{.column = 0,.kind = GPUVEC_SET_MATCHES,.n = 5,.low = 2}},
		.values = {2, 70000, 0, 1, GPUVEC_SET_OR}
	};
	buffer		b = {0};

	BAD_FILTER(c[1].column = 1, "an expression of another column's ids");
	BAD_FILTER(c[1].low = 3, "an expression with a step as an id");
	BAD_FILTER(c[1].low = UINT64_MAX, "an expression with far too many ids");
	BAD_FILTER(c[1].n = 4, "an expression that is cut off");
	BAD_FILTER(c[1].n = 6, "an expression of more values than there are");
	BAD_FILTER(c[1].n = 0, "an expression without steps");
	BAD_FILTER(c[1].first = UINT32_MAX, "an expression far away");
	BAD_FILTER((c[1].first = 2, c[1].n = 3, c[1].low = 0), "an expression with no ids but steps of ids");
	BAD_FILTER(values[1] = 2, "an expression with an id twice");
	BAD_FILTER(values[1] = UINT64_C(1) << 32, "an expression with too large an id");
	BAD_FILTER(values[2] = 2, "an expression with an id that is not there");
	BAD_FILTER(values[2] = GPUVEC_SET_AND, "an expression that takes what is not there");
	BAD_FILTER(values[4] = GPUVEC_SET_ONLY + 1, "an expression with an unknown step");
	BAD_FILTER(values[4] = 0, "an expression that leaves too much");
	BAD_FILTER(c[0] = c[1], "two expressions");
	free(b.data);
}

/* Pages to count that make no sense */
static void
bad_counts(const engine *e, const model *m)
{
	uint16_t	ids[3] = {1, 2, 3};
	model_query q = {
		.ids = ids,.wire = {.len = 3,.k = GPUVEC_ALL_ROWS,.flags = GPUVEC_QUERY_PAGES | GPUVEC_QUERY_COUNT}
	};
	uint64_t	pages[2] = {0};
	buffer		b = {0};

#define BAD_COUNT(change, what) \
	do { \
		gpuvec_search *head; gpuvec_query *query; \
		b.length = 0; \
		search_request(&b, &m->key, 0, GPUVEC_JACCARD, &q, 1); \
		buffer_add(&b, pages, sizeof(pages)); \
		head = (gpuvec_search *) b.data; query = (gpuvec_query *) (head + 1); \
		memmove((char *) (query + 1) + sizeof(pages), query + 1, sizeof(ids)); \
		memcpy(query + 1, pages, sizeof(pages)); \
		head->counted_bytes = sizeof(pages); \
		change; \
		expect_violation(e, GPUVEC_MSG_SEARCH, b.data, b.length, what); \
	} while (0)
	BAD_COUNT(query->flags = GPUVEC_QUERY_PAGES, "pages of a query that does not count");
	BAD_COUNT(query->flags = GPUVEC_QUERY_COUNT, "a count with hits");
	BAD_COUNT(query->k = 10, "a count of the best rows");
	BAD_COUNT(query->flags |= GPUVEC_QUERY_AFTER, "a count that goes on");
	BAD_COUNT(query->flags |= GPUVEC_QUERY_COUNT << 1, "an unknown flag");
	BAD_COUNT(head->counted_bytes -= 8, "fewer pages than there are");
	BAD_COUNT(head->counted_bytes += 8, "more pages than there are");
	BAD_COUNT((head->counted_bytes += 1, b.length += 1), "a part of a word of pages");
	BAD_COUNT(head->counted_bytes = UINT64_MAX - 7, "pages that overflow");
	BAD_COUNT((head->grouping.nkeys = 1, head->grouping.columns[0] = 0), "groups by no column");
	BAD_COUNT((head->grouping.nkeys = 1, head->grouping.columns[0] = (uint8_t) (m->key.nfilters + 1)), "groups by a column that is not there");
	BAD_COUNT((head->grouping.nvalues = 1, head->grouping.columns[0] = 255), "values of a column far away");
	BAD_COUNT((head->grouping.nkeys = 255, head->grouping.nvalues = 255), "groups by too many columns");
	BAD_COUNT((head->grouping.nkeys = 1, head->grouping.columns[0] = 1, query->flags = 0, query->k = 10), "groups of a query that does not count");

	/* of pairs of queries */
#define BAD_PAIRS(change, what) \
	do { \
		gpuvec_search *head; gpuvec_query *query; model_query both[2] = {q, q}; \
		b.length = 0; \
		search_request(&b, &m->key, 0, GPUVEC_INTERSECTION, both, 2); \
		head = (gpuvec_search *) b.data; query = (gpuvec_query *) (head + 1); \
		(void) head; \
		(void) query; \
		change; \
		expect_violation(e, GPUVEC_MSG_SEARCH, b.data, b.length, what); \
	} while (0)
	BAD_PAIRS(query[1].flags = GPUVEC_QUERY_PAGES, "pairs with a query that does not count");
	BAD_PAIRS(query[1].flags |= GPUVEC_QUERY_MIN_SCORE, "pairs with a least score");
	BAD_PAIRS(head->measure = GPUVEC_JACCARD, "pairs by another measure");
	BAD_PAIRS(head->counted_bytes = 8, "pairs with pages that are not there");
	BAD_PAIRS((head->grouping.nvalues = 1, head->grouping.columns[0] = 1), "groups of pairs");
	BAD_PAIRS(query[0].k = query[1].k = 10, "pairs of the best rows");
	free(b.data);
}

/* Weights that make no sense, of one mirror and of several */
static void
bad_weights(const engine *e, const model *m)
{
	uint16_t	ids[3] = {1, 2, 3};
	float		weights[3] = {1, -2, 0.5f};
	model_query q = {.ids = ids,.weights = weights,.wire = {.len = 3,.k = 10}};
	buffer		b = {0};

#define WRONG_WEIGHTS(change, what) \
	do { \
		gpuvec_search *head; gpuvec_query *query; float *w; gpuvec_search_partitions parts; \
		gpuvec_search_partition part = {.key = m->key}; buffer several = {0}; \
		b.length = 0; \
		search_request(&b, &m->key, 0, (gpuvec_measure) GPUVEC_WIRE_SPARSE, &q, 1); \
		head = (gpuvec_search *) b.data; query = (gpuvec_query *) (head + 1); w = (float *) (query + 1); \
		(void) w; \
		change; \
		expect_violation(e, GPUVEC_MSG_SEARCH, b.data, b.length, what); \
		parts = (gpuvec_search_partitions) {.measure = head->measure, .npartitions = 1, .nqueries = 1, \
			.nids = head->nids}; \
		buffer_add(&several, &parts, sizeof(parts)); \
		buffer_add(&several, &part, sizeof(part)); \
		buffer_add(&several, query, b.length - sizeof(*head)); \
		expect_violation(e, GPUVEC_MSG_SEARCH_PARTITIONS, several.data, several.length, what); \
		free(several.data); \
	} while (0)
	WRONG_WEIGHTS(w[0] = NAN, "a weight that is no number");
	WRONG_WEIGHTS(w[1] = INFINITY, "an infinite weight");
	WRONG_WEIGHTS(w[1] = -INFINITY, "a negative infinite weight");
	WRONG_WEIGHTS(w[2] = 0, "a weight of 0");
	WRONG_WEIGHTS(w[2] = -0.0f, "a weight of -0");
	WRONG_WEIGHTS(head->measure = GPUVEC_WIRE_SPARSE + GPUVEC_SPARSE_JACCARD, "a negative weight for jaccard");
	WRONG_WEIGHTS(head->measure = GPUVEC_N_WIRE_MEASURES, "an unknown measure");
	WRONG_WEIGHTS(head->measure = GPUVEC_INTERSECTION, "weights by a measure of sets");
	WRONG_WEIGHTS((query->form = 0, b.length -= 12), "no weights");
	WRONG_WEIGHTS(query->form = 0, "weights that were not told");
	WRONG_WEIGHTS(query->form |= 4, "a form that is unknown");
	WRONG_WEIGHTS(query->form |= GPUVEC_FORM_WIDE, "wide ids that are missing");
	WRONG_WEIGHTS(query->len = 2, "a weight more than ids");
	WRONG_WEIGHTS(query->len = 4, "a weight less than ids");
	WRONG_WEIGHTS(query->len = UINT32_MAX, "far too many weights");
	WRONG_WEIGHTS(b.length -= 4, "weights that are cut off");
	WRONG_WEIGHTS(b.length -= 18, "neither weights nor ids");
	WRONG_WEIGHTS(b.length = sizeof(*head) + 8, "a query that is cut off");
	/* weights that are not aligned, for which sanitizers look */
	b.length = 0;
	search_request(&b, &m->key, 0, (gpuvec_measure) GPUVEC_WIRE_SPARSE, &q, 1);
	buffer_add(&b, ids, 2);
	((gpuvec_search *) b.data)->filter_bytes = 2;
	memmove(b.data + b.length - 18, b.data + b.length - 20, 18);
	expect_violation(e, GPUVEC_MSG_SEARCH, b.data, b.length, "a part of a filter");
	free(b.data);
}

static void
test_weights_violations(void)
{
	engine		e = engine_start(NULL, plain);
	client		c = client_open(&e);
	model		m = model_new(100, 20, &small);

	check(model_load(&c, &m), "load");
	bad_weights(&e, &m);
	for (int i = 0; i < 20; i++)
		check(model_check_random(&c, &m, &small), "the engine is as before");
	model_free(&m);
	client_close(&c);
	engine_stop(&e);
}

/* Send one page with a row of no ids and these filter keys in a load */
static void
bad_filter_keys(const engine *e, const model *m, const uint64_t *filter_keys, size_t bytes, uint32_t len,
		  const char *what)
{
	struct
	{
		gpuvec_page page;
		gpuvec_row	row;
		uint16_t	ids[2];
		uint64_t	filter_keys[GPUVEC_MAX_FILTERS + 1];
	}			frame = {.page = {.nrows = 1},.row = {.line = 1,.len = len},.ids = {4, 7}};
	gpuvec_load load = {.key = m->key,.nblocks = 1};
	char	   *row = (char *) &frame.row;
	size_t		before = sizeof(gpuvec_row) + len * sizeof(uint16_t);
	client		c = client_open(e);

	load.key.relation = 999;
	memcpy(row + before, filter_keys, bytes);
	frame.page.bytes = (uint32_t) (before + bytes);
	check(client_call(&c, GPUVEC_MSG_LOAD_BEGIN, &load, sizeof(load), GPUVEC_MSG_STATE), "begin");
	check(client_send(&c, GPUVEC_MSG_PAGES, &frame, sizeof(gpuvec_page) + before + bytes) &&
		  client_read(&c) && client_failed_with(&c, "08P01"), what);
	client_close(&c);
}

/* Send one record of a row with these filter keys */
static void
bad_record(const engine *e, const model *m, gpuvec_feed_record record, const uint64_t *filter_keys,
		   const char *what)
{
	gpuvec_rows head = {.key = m->key,.feed = 7,.from = 0,.to = 1};
	buffer		b = {0};
	uint16_t	ids[4] = {1, 2, 3, 0};

	record.line = record.kind == GPUVEC_FEED_ROW ? 2 : 0;
	buffer_add(&b, &head, sizeof(head));
	buffer_add(&b, &record, sizeof(record));
	if (record.len > 0)
		buffer_add(&b, ids, sizeof(ids));
	buffer_add(&b, filter_keys, record.nfilter_keys * sizeof(uint64_t));
	expect_violation(e, GPUVEC_MSG_ROWS, b.data, b.length, what);
	free(b.data);
}

/* Messages with filters and filter columns, with random bytes changed */
static void
test_filters_fuzz(void)
{
	model_filters = 3;
	test_fuzz();
	model_filters = 0;
}

static void
test_filters_violations(void)
{
	static const uint64_t good[4] = {0, 1, 2, 3};
	static const uint64_t unknown[4] = {16, 1, 2, 3};
	static const uint64_t null_key[4] = {2, 1, 2, 3};
	static const uint64_t null_set[4] = {1, 1, 2, 3};
	engine		e = engine_start(NULL, plain);
	client		c = client_open(&e);
	gpuvec_load load;
	model		m;

	model_filters = 3;
	m = model_new(100, 20, &small);
	check(model_load(&c, &m), "load");
	bad_filters(&e, &m);
	bad_matches(&e, &m);
	bad_counts(&e, &m);
	bad_filter_keys(&e, &m, good, 24, 0, "words that are cut off");
	bad_filter_keys(&e, &m, good, 0, 2, "no words");
	bad_filter_keys(&e, &m, unknown, 32, 0, "a null in no column");
	bad_filter_keys(&e, &m, null_key, 32, 2, "a null with a key");
	bad_filter_keys(&e, &m, null_set, 32, 2, "a null set with ids");
	bad_record(&e, &m, (gpuvec_feed_record) {.kind = GPUVEC_FEED_ROW,.len = 3}, good, "a row without words");
	bad_record(&e, &m, (gpuvec_feed_record) {.kind = GPUVEC_FEED_ROW,.len = 3,.nfilter_keys = 3}, good, "too few words");
	bad_record(&e, &m, (gpuvec_feed_record) {.kind = GPUVEC_FEED_ROW,.len = 3,.nfilter_keys = 4}, null_key, "a null with a key, fed");
	bad_record(&e, &m, (gpuvec_feed_record) {.kind = GPUVEC_FEED_ROW,.len = 3,.nfilter_keys = 4}, null_set, "a null set with ids, fed");
	bad_record(&e, &m, (gpuvec_feed_record) {.kind = GPUVEC_FEED_GONE,.nfilter_keys = 4}, good, "words of no row");
	load = (gpuvec_load) {.key = m.key,.nblocks = 1};
	load.key.nfilters = GPUVEC_MAX_FILTERS + 1;
	expect_violation(&e, GPUVEC_MSG_LOAD_BEGIN, &load, sizeof(load), "too many filter columns");
	for (int i = 0; i < 20; i++)
		check(model_check_random(&c, &m, &small), "the engine is as before");
	model_free(&m);
	client_close(&c);
	engine_stop(&e);
	model_filters = 0;
}

static void
test_violations(void)
{
	engine		e = engine_start(NULL, plain);
	gpuvec_commit commit = {.nblocks = 1};
	one_row		p[2];
	model		m = model_new(100, 20, &small);
	client		c = client_open(&e);
	client		d = client_open(&e);
	model_query q = random_query(&small);
	buffer		b = {0};
	gpuvec_frame frame = {.length = UINT32_MAX,.type = GPUVEC_MSG_SEARCH};

	check(model_load(&c, &m), "load");
	expect_violation(&e, GPUVEC_MSG_COMMIT, &commit, sizeof(commit), "COMMIT without BEGIN");
	expect_violation(&e, GPUVEC_MSG_PAGES, &commit, sizeof(commit), "PAGES without BEGIN");
	expect_violation(&e, (gpuvec_message) 33, NULL, 0, "an unknown type");
	expect_violation(&e, (gpuvec_message) 0, NULL, 0, "no type");
	expect_violation(&e, GPUVEC_MSG_WELCOME, NULL, 0, "an answer as a request");
	expect_violation(&e, GPUVEC_MSG_HELLO, NULL, 0, "a second HELLO");
	expect_violation(&e, GPUVEC_MSG_STAT, &commit, sizeof(commit), "a short STAT");
	expect_violation(&e, GPUVEC_MSG_DROP, &commit, sizeof(commit), "a short DROP");
	expect_violation(&e, GPUVEC_MSG_LOAD_BEGIN, &commit, sizeof(commit), "a short LOAD_BEGIN");
	expect_violation(&e, GPUVEC_MSG_REFRESH_BEGIN, NULL, 0, "a short REFRESH_BEGIN");
	expect_violation(&e, GPUVEC_MSG_REFRESH_PAGES, &commit, sizeof(commit), "short REFRESH_PAGES");
	expect_violation(&e, GPUVEC_MSG_REFRESH, &commit, sizeof(commit), "a short REFRESH");
	test_parts(&e, &m);
	test_bad_lines(&e, &m);
	test_bad_values(&e);
	test_search_ahead(&d, &m);
	client_close(&d);

#define BAD_PAGE(change, what) \
	do { p[0] = good_page(); change; expect_bad_pages(&e, &p[0], sizeof(p[0]), what); } while (0)
	BAD_PAGE(p[0].page.bytes = 1000, "a page beyond the frame");
	BAD_PAGE(p[0].page.bytes = UINT32_MAX, "a page far beyond the frame");
	BAD_PAGE(p[0].page.bytes = 14, "a page of odd length");
	BAD_PAGE(p[0].page.bytes = 12, "a page that is too short");
	BAD_PAGE(p[0].page.nrows = 2, "fewer rows than said");
	BAD_PAGE(p[0].page.nrows = 0, "more rows than said");
	BAD_PAGE(p[0].page.nrows = UINT32_MAX, "far too many rows");
	BAD_PAGE(p[0].page.block = UINT32_MAX, "a block that cannot be");
	BAD_PAGE(p[0].row.line = 0, "line pointer 0");
	BAD_PAGE(p[0].row.line = GPUVEC_MAX_LINE + 1, "a line pointer that cannot be");
	BAD_PAGE(p[0].row.len = 7, "more ids than there are");
	BAD_PAGE(p[0].row.len = GPUVEC_MAX_IDS + 1, "more ids than can be");
	BAD_PAGE(p[0].row.len = UINT32_MAX, "far more ids than can be");
	BAD_PAGE(p[0].ids[1] = 1, "ids twice");
	BAD_PAGE(p[0].ids[1] = 9, "ids not in order");
	BAD_PAGE(p[0].row.form = GPUVEC_FORM_WIDE, "wide ids that are cut off");
	BAD_PAGE(p[0].row.form = 4, "neither narrow nor wide");
	BAD_PAGE(p[0].row.form = GPUVEC_FORM_VALUES, "values of a mirror without");
	BAD_PAGE((p[0].row.form = GPUVEC_FORM_WIDE, p[0].row.len = 2, p[0].ids[1] = 9, p[0].ids[3] = 8), "wide ids not in order");
	BAD_PAGE((p[0].row.form = GPUVEC_FORM_WIDE, p[0].row.len = UINT32_MAX / 4 + 1), "far more wide ids than can be");
	BAD_PAGE(p[0].page.partial = 1, "a partial page of a load");
	BAD_PAGE(p[0].page.partial = 2, "a page neither whole nor partial");
	BAD_PAGE(p[0].page.nlines = 1, "lines of a whole page");
	BAD_PAGE(p[0].page.newest = GPUVEC_MAX_XID + 1, "a transaction out of range");
	BAD_PAGE((p[0].page.partial = 1, p[0].page.newest = 1), "the newest transaction of a partial page");
	p[0] = p[1] = good_page();
	expect_bad_pages(&e, p, sizeof(p), "a page twice");
	expect_bad_pages(&e, p, sizeof(p) - 1, "a page that is cut off");
	expect_bad_pages(&e, p, sizeof(gpuvec_page) - 1, "a page header that is cut off");
	{
		struct
		{
			gpuvec_page page;
			struct
			{
				gpuvec_row	row;
				uint16_t	ids[2];
			}			rows[2];
		}			twice = {{.nrows = 2,.bytes = 24}, {{{.line = 3,.len = 2}, {1, 2}}, {{.line = 3,.len = 2}, {1, 3}}}};

		expect_bad_pages(&e, &twice, sizeof(twice), "a line pointer twice");
	}

	/* a commit of pages that were not sent */
	{
		client		d = client_open(&e);
		gpuvec_load load = {.key = {.database = 9,.relation = 1}};

		commit.nblocks = UINT32_MAX;
		check(client_call(&d, GPUVEC_MSG_LOAD_BEGIN, &load, sizeof(load), GPUVEC_MSG_STATE), "begin");
		check(!client_call(&d, GPUVEC_MSG_COMMIT, &commit, sizeof(commit), GPUVEC_MSG_STATE) &&
			  d.frame.type == GPUVEC_MSG_ERROR, "a commit of pages that were not sent");
		client_close(&d);
		d = client_open(&e);
		check(client_call(&d, GPUVEC_MSG_LOAD_BEGIN, &load, sizeof(load), GPUVEC_MSG_STATE), "begin");
		check(!client_call(&d, GPUVEC_MSG_LOAD_BEGIN, &load, sizeof(load), GPUVEC_MSG_STATE) &&
			  client_failed_with(&d, "08P01"), "begin twice");
		client_close(&d);
	}

	q.wire.len = 4;
	q.ids = realloc(q.ids, 4 * sizeof(uint16_t));
	for (uint16_t i = 0; i < 4; i++)
		q.ids[i] = i;
#define BAD_SEARCH(change, what) \
	do { \
		gpuvec_search *head; gpuvec_query *query; \
		b.length = 0; \
		search_request(&b, &m.key, 0, GPUVEC_JACCARD, &q, 1); \
		head = (gpuvec_search *) b.data; query = (gpuvec_query *) (head + 1); \
		(void) head; (void) query; \
		change; \
		expect_violation(&e, GPUVEC_MSG_SEARCH, b.data, b.length, what); \
	} while (0)
#define BAD_WEIGHTS(alpha, beta) \
	do { \
		gpuvec_search_weights bad = {alpha, beta}; \
		b.length = 0; \
		search_request(&b, &m.key, 0, GPUVEC_TVERSKY, &q, 1); \
		memcpy(b.data + sizeof(gpuvec_search), &bad, sizeof(bad)); \
		expect_violation(&e, GPUVEC_MSG_SEARCH, b.data, b.length, "bad weights"); \
	} while (0)
	BAD_SEARCH(b.length = 10, "a search that is cut off");
	BAD_SEARCH(b.length -= 2, "ids that are cut off");
	BAD_SEARCH(head->measure = GPUVEC_N_WIRE_MEASURES, "an unknown measure");
	BAD_SEARCH((head->measure = GPUVEC_TVERSKY, b.length = sizeof(*head)), "weights that are cut off");
	BAD_WEIGHTS(0, 0);
	BAD_WEIGHTS(-1, 1);
	BAD_WEIGHTS(1, NAN);
	BAD_WEIGHTS(INFINITY, 1);
	BAD_SEARCH(head->nqueries = 2, "fewer queries than said");
	BAD_SEARCH(head->nqueries = 0, "more queries than said");
	BAD_SEARCH(head->nqueries = UINT32_MAX, "far too many queries");
	BAD_SEARCH(head->nids = 5, "fewer ids than said");
	BAD_SEARCH(head->nids = UINT64_MAX, "far too many ids");
	BAD_SEARCH(head->nids = UINT64_MAX / 2 + 5, "ids that overflow");
	BAD_SEARCH(query->len = 3, "a query shorter than its ids");
	BAD_SEARCH(query->len = 5, "a query longer than its ids");
	BAD_SEARCH(query->len = UINT32_MAX, "a query far longer than its ids");
	BAD_SEARCH(query->k = 0, "k is 0");
	BAD_SEARCH(query->k = GPUVEC_MAX_K + 1, "k is too large");
	BAD_SEARCH((query->flags = GPUVEC_QUERY_MIN_SCORE, query->min_score = NAN), "min_score is not a number");
	BAD_SEARCH((query->flags = GPUVEC_QUERY_AFTER, query->after_score = NAN), "after_score is not a number");
	BAD_SEARCH(query->flags = 64, "unknown flags");
	BAD_SEARCH(head->key.values = 2, "a mirror of an unknown kind");
	BAD_SEARCH(query->form = 8, "neither narrow nor wide");
	BAD_SEARCH(query->form = GPUVEC_FORM_WIDE, "wide ids that are cut off");
	BAD_SEARCH((query->form = GPUVEC_FORM_WIDE, query->len = 2, ((uint16_t *) (query + 1))[3] = 0), "wide ids not in order");
	BAD_SEARCH(((uint16_t *) (query + 1))[2] = 1, "ids not in order");

	/* a frame longer than any */
	{
		client		d = client_open(&e);

		check(client_send_raw(&d, &frame, sizeof(frame)), "send");
		check(client_read(&d) && client_failed_with(&d, "08P01") && !client_read(&d), "a frame longer than any");
		client_close(&d);
	}

	/* an answer longer than any frame: an error of that request */
	{
		model_query *many = malloc(200000 * sizeof(*many));
		model		rows = model_new(101, 400, &small);

		check(model_load(&c, &rows), "load");
		q.wire.k = GPUVEC_MAX_K;
		for (int i = 0; i < 200000; i++)
			many[i] = q;
		b.length = 0;
		search_request(&b, &rows.key, 0, GPUVEC_HAMMING, many, 200000);
		check(!client_call(&c, GPUVEC_MSG_SEARCH, b.data, b.length, GPUVEC_MSG_RESULT) &&
			  client_failed_with(&c, "54000"), "an answer that is too long");
		free(many);
		model_free(&rows);
	}
	check(model_check_random(&c, &m, &small), "the engine is as before");
	free(b.data);
	free(q.ids);
	model_free(&m);
	client_close(&c);
	engine_stop(&e);
}

/* Rows of a feed, in the order of the message */
typedef struct fed_rows
{
	gpuvec_rows head;
	gpuvec_feed_record row;
	uint16_t	ids[4];
	gpuvec_feed_record gone;
	uint16_t	lines[4];
	gpuvec_feed_record last;
} fed_rows;

/* A valid conversation, frame by frame, to be spoilt at random */
static void
script(buffer *frames, size_t *starts, int *n)
{
	model		m = model_new(100, 6, &small);
	gpuvec_load load = {.key = m.key,.nblocks = m.nblocks};
	gpuvec_commit commit = {.position = 1,.feed = 9,.applied = 3,.nblocks = m.nblocks};
	gpuvec_drop drop = {.database = 77,.relation = 100};
	fed_rows	rows = {.head = {.feed = 9,.from = 2,.to = 5},
		.row = {.kind = GPUVEC_FEED_ROW,.line = 2,.block = 1,.len = 4},.ids = {1, 2, 3, 4},
		.gone = {.kind = GPUVEC_FEED_GONE,.block = 2,.len = 4},.lines = {2, 4, 6, 8},
		.last = {.kind = GPUVEC_FEED_ROW,.line = 2,.block = 7}
	};
	model_query queries[2] = {random_query(&small), random_query(&small)};
	buffer		b = {0};
	buffer		parts = {0};
	buffer		bare = {0};
	int			pair[2];
	client		to_self = {0};
	char		text[65536];
	ssize_t		length;

	load.key.database = 77;
	m.key.database = 77;
	rows.head.key = m.key;
	if (socketpair(AF_UNIX, SOCK_STREAM, 0, pair) < 0)
		exit(1);
	to_self.fd = pair[0];
	search_request(&b, &m.key, 0, GPUVEC_COSINE, queries, 2);
	random_partitions_request(&parts, &m, &small);
	queries[0].wire.k = GPUVEC_ALL_ROWS;
	queries[0].wire.flags = (queries[0].wire.flags & GPUVEC_QUERY_MIN_SCORE) | GPUVEC_QUERY_PAGES;
	search_request(&bare, &m.key, 0, GPUVEC_COSINE, queries, 1);

#define FRAME(call) \
	do { starts[(*n)++] = frames->length; call; \
		length = recv(pair[1], text, sizeof(text), MSG_DONTWAIT); \
		while (length > 0) { buffer_add(frames, text, (size_t) length); \
			length = recv(pair[1], text, sizeof(text), MSG_DONTWAIT); } } while (0)
	*n = 0;
	FRAME(client_send(&to_self, GPUVEC_MSG_LOAD_BEGIN, &load, sizeof(load)));
	FRAME(model_send_pages(&to_self, &m, true));
	FRAME(client_send(&to_self, GPUVEC_MSG_COMMIT, &commit, sizeof(commit)));
	FRAME(client_send(&to_self, GPUVEC_MSG_SEARCH, b.data, b.length));
	FRAME(client_send(&to_self, GPUVEC_MSG_STAT, &m.key, sizeof(m.key)));
	FRAME(client_send(&to_self, GPUVEC_MSG_LIST, NULL, 0));
	FRAME(client_send(&to_self, GPUVEC_MSG_SEARCH_PARTITIONS, parts.data, parts.length));
	FRAME(client_send(&to_self, GPUVEC_MSG_SEARCH, bare.data, bare.length));
	FRAME(client_send(&to_self, GPUVEC_MSG_ROWS, &rows, sizeof(rows)));
	FRAME(client_send(&to_self, GPUVEC_MSG_REFRESH_BEGIN, REFRESH(&m.key)));
	model_change_page(&m, 2, &small);
	FRAME(model_send_pages(&to_self, &m, true));
	FRAME(client_send(&to_self, GPUVEC_MSG_COMMIT, &commit, sizeof(commit)));
	FRAME(client_send(&to_self, GPUVEC_MSG_SEARCH, b.data, b.length));
	FRAME(client_send(&to_self, GPUVEC_MSG_SEARCH_PARTITIONS, parts.data, parts.length));
	FRAME(client_send(&to_self, GPUVEC_MSG_DEVICES, NULL, 0));
	FRAME(client_send(&to_self, GPUVEC_MSG_PLACES, NULL, 0));
	FRAME(client_send(&to_self, GPUVEC_MSG_DROP, &drop, sizeof(drop)));
	FRAME(client_send(&to_self, GPUVEC_MSG_ENGINE, NULL, 0));
	starts[*n] = frames->length;
	close(pair[0]);
	close(pair[1]);
	free(queries[0].ids);
	free(queries[1].ids);
	free(b.data);
	free(parts.data);
	free(bare.data);
	model_free(&m);
}

/*
 * Spoil a frame: flip a bit, set a field to something special, or cut the
 * frame
 */
static void
spoil(char *frame, size_t *length)
{
	static const uint32_t special[] = {0, 1, 2, 0x7FFFFFFF, 0x80000000, 0xFFFFFFFF, 0xFFFF, 0x10000, 0x40000000};
	size_t		at = random_below(*length);

	switch (random_below(4))
	{
		case 0:
			frame[at] ^= (char) (1 << random_below(8));
			break;
		case 1:
			if (at + 4 <= *length)
				memcpy(frame + at / 4 * 4, &special[random_below(9)], 4);
			break;
		case 2:
			frame[at] = (char) random_below(256);
			break;
		case 3:
			/* fewer bytes, and a header that says so */
			if (*length > sizeof(gpuvec_frame))
			{
				uint32_t	bytes = (uint32_t) random_below(*length - sizeof(gpuvec_frame) + 1);

				memcpy(frame, &bytes, sizeof(bytes));
				*length = sizeof(gpuvec_frame) + bytes;
			}
			break;
	}
}

/* True if a spoiled frame is a valid request to drop this mirror */
static bool
drops(const char *frame, size_t length, const gpuvec_mirror_key *key)
{
	gpuvec_frame head;
	gpuvec_drop drop;

	if (length != sizeof(head) + sizeof(drop))
		return false;
	memcpy(&head, frame, sizeof(head));
	memcpy(&drop, frame + sizeof(head), sizeof(drop));
	return head.type == GPUVEC_MSG_DROP && drop.private_id == 0 &&
		(drop.database == 0 || drop.database == key->database);
}

static void
test_fuzz(void)
{
	/* as much as the longest messages take, lest the mirror goes for them */
	engine		e = engine_start(NULL, (const char *const[]) {"--device-memory", "16384", "--cpu-threads", "2", NULL});
	client		c = client_open(&e);
	model		m = model_new(100, 40, &small);
	int			rounds = getenv("SERVER_TEST_FUZZ") ? atoi(getenv("SERVER_TEST_FUZZ")) : 3000;
	char		sink[65536];

	check(model_load(&c, &m), "load");
	for (int round = 0; round < rounds && engine_alive(&e); round++)
	{
		buffer		frames = {0};
		size_t		starts[20];
		int			n;
		int			victim;
		client		d = client_open(&e);

		script(&frames, starts, &n);
		victim = (int) random_below((uint64_t) n);
		for (int i = 0; i < n; i++)
		{
			size_t		length = starts[i + 1] - starts[i];
			char	   *frame = malloc(length);

			memcpy(frame, frames.data + starts[i], length);
			if (i == victim)
				for (uint64_t k = 0; k < 1 + random_below(3); k++)
					spoil(frame, &length);
			if (!drops(frame, length, &m.key) && !client_send_raw(&d, frame, length))
				n = i;
			free(frame);
			while (recv(d.fd, sink, sizeof(sink), MSG_DONTWAIT) > 0)
				;
		}
		if (random_below(2))
		{
			/* let it read all before we go */
			shutdown(d.fd, SHUT_WR);
			while (recv(d.fd, sink, sizeof(sink), 0) > 0)
				;
		}
		client_close(&d);
		free(frames.data);
		if (round % 100 == 0 && !check(model_check_random(&c, &m, &small), "the engine is as before"))
			break;
	}
	check(engine_alive(&e), "the engine survives");
	check(model_check_random(&c, &m, &small), "and answers");
	check(wait_connections(&c, 1), "and has no connection left");
	model_free(&m);
	client_close(&c);
	engine_stop(&e);
}

/* Is a connection closed, within some seconds? */
static bool
closed(client *c)
{
	char		byte;

	return recv(c->fd, &byte, 1, 0) == 0;
}

/* An engine whose clients look like processes of another user, or group */
static engine
start_among(const char *who)
{
	engine		e;

	setenv("GPUVEC_PEERS", who, 1);
	e = engine_start(NULL, plain);
	unsetenv("GPUVEC_PEERS");
	return e;
}

/* Only processes of the engine's own user are served, whatever their group */
static void
test_strangers(void)
{
	engine		e = start_among("user");
	client		c;

	check(client_connect(&c, &e) && !client_hello(&c, GPUVEC_PROTOCOL_VERSION, 0), "a process of another user is not served");
	client_close(&c);
	engine_stop(&e);
	e = start_among("group");
	check(client_connect(&c, &e) && client_hello(&c, GPUVEC_PROTOCOL_VERSION, 0), "one of another group is");
	client_close(&c);
	engine_stop(&e);
}

/*
 * An engine that is full closes the connection that has been idle longest, if
 * it may
 */
static void
test_seats(void)
{
	engine		e = engine_start("least-idle:0", (const char *const[]) {"--max-sessions", "3", NULL});
	client		c[4];
	client		newcomer;
	model		m = model_new(100, 10, &small);
	gpuvec_load load = {.key = {.database = 9,.relation = 1}};
	gpuvec_refresh_chunk part = {.key = m.key};

	for (int i = 0; i < 3; i++)
	{
		c[i] = client_open(&e);
		usleep(20000);			/* the clock of idleness is coarse */
	}
	check(client_call(&c[0], GPUVEC_MSG_LIST, NULL, 0, GPUVEC_MSG_MIRRORS), "the first does something");
	usleep(20000);
	c[3] = client_open(&e);
	check(closed(&c[1]), "the second goes");
	check(client_call(&c[0], GPUVEC_MSG_LIST, NULL, 0, GPUVEC_MSG_MIRRORS) &&
		  client_call(&c[2], GPUVEC_MSG_LIST, NULL, 0, GPUVEC_MSG_MIRRORS), "the others stay");
	client_close(&c[1]);

	/* a load, pages of a refresh, and a private mirror would be lost */
	check(client_call(&c[0], GPUVEC_MSG_LOAD_BEGIN, &load, sizeof(load), GPUVEC_MSG_STATE), "a load");
	check(client_send(&c[2], GPUVEC_MSG_REFRESH_PAGES, &part, sizeof(part)), "pages of a refresh");
	m.key.private_id = 7;
	check(model_load(&c[3], &m), "a private mirror");
	usleep(100000);
	check(client_connect(&newcomer, &e) && !client_hello(&newcomer, GPUVEC_PROTOCOL_VERSION, 0) &&
		  client_failed_with(&newcomer, "53300"), "none can go");
	client_close(&newcomer);
	check(model_check_random(&c[3], &m, &small), "and none has");
	client_close(&c[0]);
	client_close(&c[2]);
	client_close(&c[3]);
	engine_stop(&e);
	model_free(&m);

	e = engine_start(NULL, (const char *const[]) {"--max-sessions", "1", NULL});
	c[0] = client_open(&e);
	check(client_connect(&newcomer, &e) && !client_hello(&newcomer, GPUVEC_PROTOCOL_VERSION, 0) &&
		  client_failed_with(&newcomer, "53300"), "who was idle for a moment stays");
	client_close(&newcomer);
	client_close(&c[0]);
	engine_stop(&e);
}

/*
 * Whoever keeps its seat may take its time to read answers, of which there
 * are more than its socket takes
 */
static void
test_slow_reader(void)
{
	engine		e = engine_start("unread:0", plain);
	client		c = client_open(&e);
	model		m = model_new(100, 400, &small);
	model_query queries[8];
	buffer		b = {0};
	uint64_t	bytes = 0;

	m.key.private_id = 7;
	check(model_load(&c, &m), "a private mirror");
	for (int i = 0; i < 8; i++)
	{
		queries[i] = random_query(&small);
		queries[i].wire.k = 1000;
	}
	search_request(&b, &m.key, 0, GPUVEC_JACCARD, queries, 8);
	for (int i = 0; i < 40; i++)
		check(client_send(&c, GPUVEC_MSG_SEARCH, b.data, b.length), "a search");
	usleep(200000);
	for (int i = 0; i < 40 && check(client_read(&c) && c.frame.type == GPUVEC_MSG_RESULT, "its answer"); i++)
		bytes += c.frame.length;
	check(bytes > 1000000, "answers are long");
	for (int i = 0; i < 8; i++)
		free(queries[i].ids);
	free(b.data);
	model_free(&m);
	client_close(&c);
	engine_stop(&e);
}

/* Let a process have no more descriptors than it has now */
static void
allow_no_more_files(const engine *e)
{
	struct rlimit limit;
	char		path[64];
	DIR		   *folder;
	struct dirent *entry;
	rlim_t		most = 0;

	snprintf(path, sizeof(path), "/proc/%d/fd", (int) e->pid);
	folder = opendir(path);
	while (folder && (entry = readdir(folder)) != NULL)
		if ((rlim_t) atoi(entry->d_name) > most)
			most = (rlim_t) atoi(entry->d_name);
	if (folder)
		closedir(folder);
	if (prlimit(e->pid, RLIMIT_NOFILE, NULL, &limit) < 0)
		exit(1);
	limit.rlim_cur = most + 1;
	if (prlimit(e->pid, RLIMIT_NOFILE, &limit, NULL) < 0)
		exit(1);
}

/*
 * An engine without descriptors or threads for newcomers tells them to do
 * without
 */
static void
test_shortage(void)
{
	engine		e = engine_start(NULL, plain);
	client		c = client_open(&e);
	client		newcomer;

	usleep(100000);				/* until the connection that waited for it has ended */
	allow_no_more_files(&e);
	for (int i = 0; i < 3; i++)
	{
		/* one may have found the descriptor of who waited */
		if (client_connect(&newcomer, &e) && client_hello(&newcomer, GPUVEC_PROTOCOL_VERSION, 0))
			continue;
		check(client_failed_with(&newcomer, "53000"), "no descriptor for a newcomer");
		client_close(&newcomer);
	}
	check(client_connect(&newcomer, &e) && client_read(&newcomer) && client_failed_with(&newcomer, "53000"),
		  "who is turned away need not speak first");
	client_close(&newcomer);
	check(client_call(&c, GPUVEC_MSG_LIST, NULL, 0, GPUVEC_MSG_MIRRORS), "the others stay");
	client_close(&c);
	engine_stop(&e);

	e = engine_start("least-idle:0", plain);
	c = client_open(&e);
	usleep(100000);
	allow_no_more_files(&e);
	for (int i = 0; i < 3; i++)
	{
		newcomer = client_open(&e);
		usleep(20000);
	}
	check(closed(&c), "who is idle gives his descriptor");
	client_close(&c);
	client_close(&newcomer);
	engine_stop(&e);

	e = engine_start("no-threads", plain);
	check(client_connect(&c, &e) && client_read(&c) && client_failed_with(&c, "53000"), "no thread for a newcomer");
	client_close(&c);
	engine_stop(&e);
}

/* Signs of life that come within a time */
static int
signs_within(const engine *e, double time)
{
	double		end = seconds() + time;
	char		byte;
	int			n = 0;

	while (seconds() < end)
	{
		if (recv(e->liveness_fd, &byte, 1, MSG_DONTWAIT) == 1)
			n++;
		else
			usleep(10000);
	}
	return n;
}

/* The engine gives signs of life while it has nothing to do, or gets on */
static void
test_pulse(void)
{
	engine		e = engine_start("slow-search:3000", plain);
	client		c = client_open(&e);
	model		m = model_new(100, 10, &small);
	model_query q = random_query(&small);
	buffer		b = {0};

	check(signs_within(&e, 2.5) >= 1, "signs of an idle engine");
	check(model_load(&c, &m), "load");
	search_request(&b, &m.key, 0, GPUVEC_JACCARD, &q, 1);
	client_send(&c, GPUVEC_MSG_SEARCH, b.data, b.length);
	check(signs_within(&e, 2.5) >= 1, "signs of one that works");
	check(client_read(&c), "an answer");
	client_close(&c);
	engine_stop(&e);

	e = engine_start("stuck-search:100", plain);
	c = client_open(&e);
	m.refresh = 0;
	check(model_load(&c, &m), "load");
	client_send(&c, GPUVEC_MSG_SEARCH, b.data, b.length);
	(void) signs_within(&e, 2.5);
	check(signs_within(&e, 2.5) == 0, "none of one that is stuck");
	kill(e.pid, SIGKILL);
	engine_wait(&e, 5000);
	unlink(e.socket);
	client_close(&c);
	free(b.data);
	free(q.ids);
	model_free(&m);
}

/* How engines end */
static void
test_ends(void)
{
	engine		e = engine_start(NULL, plain);
	client		c = client_open(&e);
	model		m = model_new(100, 50, &small);
	char		path[108];
	int			status;
	double		begin;
	buffer		b = {0};
	model_query q = random_query(&small);

	/* signals that a process group gets */
	check(model_load(&c, &m), "load");
	kill(e.pid, SIGINT);
	kill(e.pid, SIGHUP);
	kill(e.pid, SIGPIPE);
	usleep(50000);
	check(engine_alive(&e) && model_check_random(&c, &m, &small), "SIGINT, SIGHUP and SIGPIPE are ignored");

	/* the supervisor is gone */
	close(e.liveness_fd);
	e.liveness_fd = open("/dev/null", O_RDONLY);
	begin = seconds();
	status = engine_wait(&e, 10000);
	check(status == 0 && seconds() - begin < 2, "the engine ends when its supervisor does");
	check(!client_read(&c), "and connections with it");
	client_close(&c);

	/* SIGTERM while sessions wait and load */
	e = engine_start("slow-search:20000", plain);
	c = client_open(&e);
	m.refresh = 0;
	check(model_load(&c, &m), "load");
	search_request(&b, &m.key, 0, GPUVEC_JACCARD, &q, 1);
	client_send(&c, GPUVEC_MSG_SEARCH, b.data, b.length);
	{
		client		d = client_open(&e);
		gpuvec_load load = {.key = {.database = 1}};

		client_call(&d, GPUVEC_MSG_LOAD_BEGIN, &load, sizeof(load), GPUVEC_MSG_STATE);
		model_send_pages(&d, &m, true);
		strcpy(path, e.socket);
		begin = seconds();
		engine_stop(&e);
		check(seconds() - begin < 2, "SIGTERM is quick");
		check(access(path, F_OK) != 0, "and leaves no socket");
		check(!client_read(&c) || client_error_retry(&c), "a waiting session may try again");
		check(!client_read(&d), "connections end");
		client_close(&d);
	}
	client_close(&c);

	/* SIGKILL, and another engine on the same socket */
	e = engine_start(NULL, plain);
	c = client_open(&e);
	m.refresh = 0;
	check(model_load(&c, &m), "load");
	kill(e.pid, SIGKILL);
	status = engine_wait(&e, 5000);
	check(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL, "SIGKILL");
	check(!client_call(&c, GPUVEC_MSG_LIST, NULL, 0, GPUVEC_MSG_MIRRORS), "the connection is lost");
	client_close(&c);
	unlink(e.socket);
	free(b.data);
	free(q.ids);
	model_free(&m);
}

/* Faults that tests of the extension rely on */
static void
test_faults(void)
{
	engine		e = engine_start("oom-on-commit:1", plain);
	client		c = client_open(&e);
	model		m = model_new(100, 50, &small);
	model_query q = random_query(&small);
	buffer		b = {0};
	int			status;
	char		output[4096];

	check(!model_load(&c, &m) && client_failed_with(&c, "53200"), "no memory at a commit");
	check(client_call(&c, GPUVEC_MSG_STAT, &m.key, sizeof(m.key), GPUVEC_MSG_STATE) &&
		  client_state(&c).state == GPUVEC_ABSENT, "leaves no mirror");
	check(client_engine_info(&c).memory_used == 0, "nor memory");
	check(model_load(&c, &m), "the next one finds some");
	check(model_check_random(&c, &m, &small), "and is searched");
	client_close(&c);
	engine_stop(&e);

	e = engine_start("crash-on-commit:2", plain);
	c = client_open(&e);
	m.refresh = 0;
	check(model_load(&c, &m), "the first commit");
	check(!model_refresh(&c, &m) && c.frame.type == 0, "a crash at the second");
	status = engine_wait(&e, 5000);
	check(status != 0, "is a crash");
	unlink(e.socket);
	client_close(&c);

	e = engine_start("crash-on-search", plain);
	c = client_open(&e);
	m.refresh = 0;
	check(model_load(&c, &m), "load");
	search_request(&b, &m.key, 0, GPUVEC_JACCARD, &q, 1);
	check(!client_call(&c, GPUVEC_MSG_SEARCH, b.data, b.length, GPUVEC_MSG_RESULT) && c.frame.type == 0,
		  "a crash at a search");
	status = engine_wait(&e, 5000);
	check(status != 0, "is a crash");
	unlink(e.socket);
	client_close(&c);

	setenv("GPUVEC_ENGINE_FAULT", "crash-at-start", 1);
	status = run_program((const char *const[]) {"--socket", "/tmp/none", NULL}, output, sizeof(output));
	check(status != 0 && access("/tmp/none", F_OK) != 0, "a crash at the start");
	unsetenv("GPUVEC_ENGINE_FAULT");
	free(b.data);
	free(q.ids);
	model_free(&m);
}

/* A log that nobody reads holds nothing up */
static void
test_log(void)
{
	engine		e = engine_start(NULL, (const char *const[]) {"--device-memory", "1", "--cpu-threads", "1", NULL});
	client		c = client_open(&e);
	static const shape row = {.rows_per_page = 100,.maxlen = 40,.vocabulary = 1000};
	model		m = model_new(100, 100, &row);
	char		text[65536];
	ssize_t		n;
	bool		noted = false;

	for (uint32_t i = 0; i < 1500; i++)
	{
		m.key.relation = 100 + i;
		m.refresh = 0;
		if (!check(model_load(&c, &m), "load with a log that is not read"))
			break;
	}
	check(client_engine_info(&c).evictions > 1000, "much was logged");
	while ((n = read(e.log_fd, text, sizeof(text))) > 0)
		;
	m.key.relation = 1;
	m.refresh = 0;
	check(model_load(&c, &m), "load");
	while ((n = read(e.log_fd, text, sizeof(text) - 1)) > 0)
	{
		text[n] = '\0';
		noted |= strstr(text, "were dropped") != NULL;
	}
	check(noted, "lines that were dropped are counted");
	model_free(&m);
	client_close(&c);
	engine_stop(&e);
}

/*
 * Begin to load with paths of files; the load goes on if the engine accepts
 * them
 */
static bool
load_with_files(client *c, model *m, const char *files, size_t bytes)
{
	gpuvec_load load = {.key = m->key,.nblocks = m->nblocks,.file_bytes = (uint32_t) bytes};
	buffer		b = {0};
	bool		ok;

	buffer_add(&b, &load, sizeof(load));
	buffer_add(&b, files, bytes);
	ok = client_call(c, GPUVEC_MSG_LOAD_BEGIN, b.data, b.length, GPUVEC_MSG_STATE);
	free(b.data);
	return ok && model_send_pages(c, m, true) && model_commit(c, m);
}

/* Make a file of this size in the scratch directory, and add its path */
static void
make_file(char *path, const char *name, size_t size)
{
	int			fd;

	snprintf(path, 100, "%s/%s", scratch, name);
	fd = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0600);
	check(fd >= 0 && ftruncate(fd, (off_t) size) == 0 && close(fd) == 0, "a file");
}

/* Wait until a mirror is (not) there */
static bool
wait_listed(client *c, const model *m, bool listed)
{
	gpuvec_mirror_info info;

	for (int i = 0; i < 2000; i++)
	{
		if (client_mirror_info(c, &m->key, &info) == listed)
			return true;
		usleep(10000);
	}
	return false;
}

/* Mirrors whose files are gone are dropped, no others */
static void
test_sweep(void)
{
	engine		e = engine_start(NULL, plain);
	client		c = client_open(&e);
	model		m[6];
	char		paths[6][100];

	for (int i = 0; i < 6; i++)
	{
		char		name[16];

		m[i] = model_new(300 + (uint32_t) i, i == 3 ? 0 : 5, &small);
		snprintf(name, sizeof(name), "rows%d", i);
		make_file(paths[i], name, i == 3 ? 0 : 8192);
		check(load_with_files(&c, &m[i], paths[i], strlen(paths[i]) + 1), "load");
	}
	/* one that has no such file to begin with is not looked after */
	unlink(paths[5]);
	check(wait_listed(&c, &m[5], false), "a file that is removed");
	check(load_with_files(&c, &m[5], paths[5], strlen(paths[5]) + 1), "load without it");
	unlink(paths[0]);
	check(truncate(paths[1], 0) == 0, "a file is cut");
	check(wait_listed(&c, &m[0], false), "a file that is removed");
	check(wait_listed(&c, &m[1], false), "a file that is empty");
	/* by then all have been looked at once more */
	for (int i = 2; i < 6; i++)
		check(wait_listed(&c, &m[i], true), "others stay, an empty one of no pages, too");
	check(model_check_random(&c, &m[2], &small), "and are searched");
	check(client_call(&c, GPUVEC_MSG_DROP, &(gpuvec_drop) {0}, sizeof(gpuvec_drop), GPUVEC_MSG_COUNT) &&
		  *(uint64_t *) c.data == 4, "all are dropped");
	check(client_engine_info(&c).memory_used == 0, "and their memory is free");
	/* paths that are none */
	for (int wrong = 0; wrong < 2; wrong++)
	{
		static char long_path[GPUVEC_MAX_FILE_BYTES + 1];
		client		d = client_open(&e);

		memset(long_path, 'x', GPUVEC_MAX_FILE_BYTES);
		check(!load_with_files(&d, &m[2], wrong ? long_path : "abc", wrong ? sizeof(long_path) : 3) &&
			  client_failed_with(&d, "08P01"), wrong ? "paths that are too long" : "a path without its end");
		client_close(&d);
	}
	for (int i = 0; i < 6; i++)
	{
		unlink(paths[i]);
		model_free(&m[i]);
	}
	client_close(&c);
	engine_stop(&e);
}

static const struct
{
	const char *name;
	void		(*run) (void);
}			tests[] = {
	{"strangers", test_strangers},
	{"options", test_options},
	{"search", test_search},
	{"all_rows", test_all_rows},
	{"few_rows", test_few_rows},
	{"alike", test_alike},
	{"pieces", test_pieces},
	{"edges", test_edges},
	{"several_mirrors", test_several_mirrors},
	{"compounds", test_compounds},
	{"compounds_wide", test_compounds_wide},
	{"compounds_budget", test_compounds_budget},
	{"compounds_concurrency", test_compounds_concurrency},
	{"compounds_filters", test_compounds_filters},
	{"compounds_values", test_compounds_values},
	{"joint", test_joint},
	{"joint_order", test_joint_order},
	{"joint_violations", test_joint_violations},
	{"joint_ends", test_joint_ends},
	{"joint_budget", test_joint_budget},
	{"oust", test_oust},
	{"joint_concurrency", test_joint_concurrency},
	{"refresh", test_refresh},
	{"refresh_dropped", test_refresh_dropped},
	{"wide", test_wide},
	{"wide_concurrency", test_wide_concurrency},
	{"merges", test_merges},
	{"mergers", test_mergers},
	{"same_rows", test_same_rows},
	{"budget", test_budget},
	{"budget_refresh", test_budget_refresh},
	{"concurrency", test_concurrency},
	{"together", test_together},
	{"one_loader", test_one_loader},
	{"cancel", test_cancel},
	{"private", test_private},
	{"sweep", test_sweep},
	{"connections", test_connections},
	{"violations", test_violations},
	{"fuzz", test_fuzz},
	{"rows", test_rows},
	{"rows_pages", test_rows_pages},
	{"rows_messages", test_rows_messages},
	{"rows_violations", test_rows_violations},
	{"rows_busy", test_rows_busy},
	{"rows_kept", test_rows_kept},
	{"rows_memory", test_rows_memory},
	{"rows_merges", test_rows_merges},
	{"rows_concurrency", test_rows_concurrency},
	{"rows_wide", test_rows_wide},
	{"values", test_values},
	{"values_keys", test_values_keys},
	{"values_concurrency", test_values_concurrency},
	{"rows_values", test_rows_values},
	{"values_memory", test_values_memory},
	{"values_fuzz", test_values_fuzz},
	{"filters", test_filters},
	{"rows_filters", test_rows_filters},
	{"filters_memory", test_filters_memory},
	{"filters_violations", test_filters_violations},
	{"filters_fuzz", test_filters_fuzz},
	{"weights_violations", test_weights_violations},
	{"patience", test_patience},
	{"embed", test_embed},
	{"embed_gram", test_embed_gram},
	{"embed_gram_charged", test_embed_gram_charged},
	{"embed_room", test_embed_room},
	{"embed_limit", test_embed_limit},
	{"embed_failed", test_embed_failed},
	{"embed_scarce", test_embed_scarce},
	{"embed_concurrency", test_embed_concurrency},
	{"embed_violations", test_embed_violations},
	{"embed_verdicts", test_embed_verdicts},
	{"embed_near", test_embed_near},
	{"embed_fuzz", test_embed_fuzz},
	{"als", test_als},
	{"als_violations", test_als_violations},
	{"als_hangup", test_als_hangup},
	{"als_fuzz", test_als_fuzz},
	{"neighbors", test_neighbors},
	{"neighbors_violations", test_neighbors_violations},
	{"als_budget", test_als_budget},
	{"memory", test_memory},
	{"request_budget", test_request_budget},
	{"wide_memory", test_wide_memory},
	{"embed_memory", test_embed_memory},
	{"als_memory", test_als_memory},
	{"seats", test_seats},
	{"slow_reader", test_slow_reader},
	{"shortage", test_shortage},
	{"pulse", test_pulse},
	{"ends", test_ends},
	{"faults", test_faults},
	{"log", test_log},
};

/* Is this test asked for? */
static bool
wanted(const char *name, int argc, char **argv)
{
	for (int i = 2; i < argc; i++)
		if (strcmp(argv[i], name) == 0)
			return true;
	return argc <= 2;
}

int
main(int argc, char **argv)
{
	if (argc < 2)
	{
		fprintf(stderr, "usage: server_test PROGRAM [test ...]\n");
		return 2;
	}
	engine_program = argv[1];
	signal(SIGPIPE, SIG_IGN);
	if (getenv("SERVER_TEST_SEED"))
		random_state ^= strtoull(getenv("SERVER_TEST_SEED"), NULL, 10) * 0x9E3779B97F4A7C15ULL;
	strcpy(scratch, "/tmp/gpuvec-server-test.XXXXXX");
	if (mkdtemp(scratch) == NULL)
		return 1;
	for (size_t i = 0; i < sizeof(tests) / sizeof(tests[0]); i++)
	{
		double		begin = seconds();
		int			failed = checks_failed;

		if (!wanted(tests[i].name, argc, argv))
			continue;
		tests[i].run();
		printf("%-16s %s  %.1f s\n", tests[i].name, checks_failed == failed ? "ok" : "FAILED",
			   seconds() - begin);
		fflush(stdout);
	}
	check(rmdir(scratch) == 0, "nothing is left behind");
	printf("%d passed, %d failed\n", checks_passed, checks_failed);
	return checks_failed > 0;
}
