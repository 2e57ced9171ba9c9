/*-------------------------------------------------------------------------
 *
 * server_model.c
 *	  What a mirror should hold, and what a search of it should give: pages of
 *	  random sets, and brute force.
 *
 *-------------------------------------------------------------------------
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "server_model.h"

__thread uint64_t random_state = 88172645463325252ULL;

uint64_t
random_below(uint64_t n)
{
	random_state ^= random_state << 13;
	random_state ^= random_state >> 7;
	random_state ^= random_state << 17;
	return random_state % n;
}

static int
compare_ids(const void *a, const void *b)
{
	return (int) *(const uint16_t *) a - (int) *(const uint16_t *) b;
}

/*
 * Distinct ids, ascending; half of them from a small part of the vocabulary
 */
void
random_ids(uint16_t *ids, uint32_t len, uint32_t vocabulary)
{
	uint32_t	n = 0;

	while (n < len)
	{
		while (n < len)
		{
			uint32_t	part = random_below(2) && vocabulary / 16 > len ? vocabulary / 16 : vocabulary;

			ids[n++] = (uint16_t) random_below(part);
		}
		qsort(ids, n, sizeof(*ids), compare_ids);
		n = 0;
		for (uint32_t i = 0; i < len; i++)
			if (i == 0 || ids[i] != ids[i - 1])
				ids[n++] = ids[i];
	}
}

uint32_t	wide_from = 0;

/*
 * The id that is sent for one of a model: on both sides of 2^16 and of 2^31
 */
static uint32_t
wide_id(uint32_t id)
{
	if (id < wide_from)
		return id;
	if (id < wide_from + 20)
		return 65530 + id - wide_from;
	if (id < wide_from + 80)
		return UINT32_C(0x80000000) - 50 + id - wide_from;
	return UINT32_MAX - (65535 - id);
}

uint32_t
add_ids(buffer *b, const uint16_t *ids, uint32_t len)
{
	bool		large = wide_from > 0 && len > 0 &&
		(wide_id(ids[len - 1]) > GPUVEC_MAX_ID || ids[0] % 5 == 0);

	for (uint32_t i = 0; i < len; i++)
	{
		uint32_t	id = wide_from > 0 ? wide_id(ids[i]) : ids[i];
		uint16_t	small = (uint16_t) id;

		buffer_add(b, large ? (const void *) &id : &small, large ? sizeof(id) : sizeof(small));
	}
	return large;
}

uint32_t	model_filters = 0;

/*
 * The key of a column: some have few values, one has many, and one is often
 * null.  Returns false for a null.
 */
static bool
row_key(const uint16_t *ids, uint32_t len, uint32_t column, uint64_t *key)
{
	uint64_t	hash = column + 1;

	for (uint32_t i = 0; i < len; i++)
		hash = (hash ^ ids[i]) * UINT64_C(0x9E3779B97F4A7C15) + (hash >> 31);
	hash ^= hash >> 29;
	*key = column % 3 == 0 ? hash % 8 : column % 3 == 1 ? hash : UINT64_C(1) << hash % 64;
	if (column % 2 == 1 && hash % 5 == 0)
		*key = 0;
	return column % 2 == 0 || hash % 5 != 0;
}

/* The filter keys of a row */
static void
row_filter_keys(const uint16_t *ids, uint32_t len, uint64_t *filter_keys)
{
	filter_keys[0] = len == 0;
	for (uint32_t column = 1; column <= model_filters; column++)
		if (!row_key(ids, len, column, &filter_keys[column]))
			filter_keys[0] |= UINT64_C(1) << column;
}

void
add_filter_keys(buffer *b, const uint16_t *ids, uint32_t len)
{
	uint64_t	filter_keys[GPUVEC_MAX_FILTERS + 1];

	row_filter_keys(ids, len, filter_keys);
	buffer_add(b, filter_keys, gpuvec_filter_bytes(model_filters));
}

bool		model_values = false;

/*
 * The value of a row's i-th id: few different ones, or many of all sizes, so
 * that sums depend on the order of their terms
 */
static float
row_value(const uint16_t *ids, uint32_t len, uint32_t i)
{
	uint32_t	kind = (len * 7 + ids[0] * 3 + ids[len - 1]) % 8;
	uint32_t	random = (ids[i] + 1) * UINT32_C(2654435761) ^ len;
	float		value = kind < 4 ? (float) (1 + random % 3) : ldexpf((float) (1 + random % 9999991), -18 - (int) (random >> 8) % 6 * 6);

	return kind % 4 == 3 && random % 3 == 0 ? -value : value;
}

void
add_values(buffer *b, const uint16_t *ids, uint32_t len)
{
	for (uint32_t i = 0; model_values && i < len; i++)
	{
		float		value = row_value(ids, len, i);

		buffer_add(b, &value, sizeof(value));
	}
}

static void
free_page(model_page *page)
{
	for (uint32_t i = 0; i < page->nrows; i++)
		free(page->rows[i].ids);
	free(page->rows);
	page->rows = NULL;
	page->nrows = 0;
}

/* A random row under a line */
static model_row
random_row(uint16_t line, const shape *s)
{
	model_row	row = {.line = line,.len = (uint32_t) random_below(s->maxlen + 1)};

	row.ids = malloc((row.len + 1) * sizeof(uint16_t));
	random_ids(row.ids, row.len, s->vocabulary);
	return row;
}

/* Replace the rows of an even line and the next by another, or by none */
static void
change_line(model_page *page, uint16_t line, const shape *s)
{
	model_row  *rows = calloc(page->nrows + 2, sizeof(model_row));
	bool		added = random_below(3) == 0;
	uint32_t	n = 0;

	for (uint32_t i = 0; i <= page->nrows; i++)
	{
		uint16_t	next = i < page->nrows ? page->rows[i].line : UINT16_MAX;

		if (!added && next > line)
		{
			rows[n++] = random_row(line + (uint16_t) random_below(2), s);
			added = true;
		}
		if (i == page->nrows)
			break;
		if ((next & ~1) == line)
			free(page->rows[i].ids);
		else
			rows[n++] = page->rows[i];
	}
	free(page->rows);
	page->rows = rows;
	page->nrows = n;
}

/* Change some lines of a page, as a partial page can say it; or none */
static void
change_lines(model_page *page, const shape *s)
{
	uint16_t	line = 0;

	page->nlines = 0;
	for (uint32_t n = (uint32_t) random_below(6); n > 0; n--)
	{
		line += 2 + 2 * (uint16_t) random_below(5);
		page->lines[page->nlines++] = line;
		change_line(page, line, s);
	}
	page->partial = page->dirty = true;
	page->newest = 0;
}

/* New random rows for a page, with gaps between their line pointers */
void
model_rewrite_page(model *m, uint32_t block, const shape *s)
{
	model_page *page = &m->pages[block];
	uint16_t	line = 0;

	page->partial = false;
	free_page(page);
	page->nrows = (uint32_t) random_below(s->rows_per_page + 1);
	page->rows = calloc(page->nrows + 1, sizeof(model_row));
	for (uint32_t i = 0; i < page->nrows; i++)
	{
		line += 1 + (uint16_t) random_below(3);
		page->rows[i] = random_row(line, s);
	}
	page->lsn = random_below(UINT64_MAX);
	page->dirty = true;
	page->newest = random_below(3) == 0 ? 1 + random_below(MODEL_XIDS) : 0;
}

/* Change only some lines, if the engine has the page as it is */
void
model_change_page(model *m, uint32_t block, const shape *s)
{
	model_page *page = &m->pages[block];

	if (page->refresh != 0 && !page->dirty && random_below(2) == 0)
		change_lines(page, s);
	else
		model_rewrite_page(m, block, s);
}

void
model_resize(model *m, uint32_t nblocks, const shape *s)
{
	uint32_t	old = m->nblocks;

	for (uint32_t block = nblocks; block < old; block++)
		free_page(&m->pages[block]);
	m->pages = realloc(m->pages, (nblocks + 1) * sizeof(model_page));
	m->nblocks = nblocks;
	for (uint32_t block = old; block < nblocks; block++)
	{
		memset(&m->pages[block], 0, sizeof(model_page));
		model_rewrite_page(m, block, s);
	}
}

model
model_new(uint32_t relation, uint32_t nblocks, const shape *s)
{
	model		m = {.key = {.database = 5,.tablespace = 1663,.relation = relation,
	.relfilenumber = relation,.type = 17,.attnum = 2,.nfilters = model_filters,.values = model_values}};

	model_resize(&m, nblocks, s);
	return m;
}

void
model_free(model *m)
{
	for (uint32_t block = 0; block < m->nblocks; block++)
		free_page(&m->pages[block]);
	free(m->pages);
}

uint64_t
model_nrows(const model *m)
{
	uint64_t	n = 0;

	for (uint32_t block = 0; block < m->nblocks; block++)
		n += m->pages[block].nrows;
	return n;
}

/* True if a partial page has this line, or the even one before it */
static bool
has_line(const model_page *page, uint16_t line)
{
	for (uint32_t i = 0; i < page->nlines; i++)
		if (page->lines[i] == (line & ~1))
			return true;
	return false;
}

/*
 * The newest transaction that is sent with a page.  None of a mirror that has
 * a feed, for that tells of no deletion.
 */
static uint64_t
told_newest(const model *m, const model_page *page)
{
	return page->partial || m->feed != 0 || m->key.rooted ? 0 : page->newest;
}

/* Append a page as the protocol has it */
static void
add_page(buffer *b, const model *m, uint32_t block)
{
	static const char zeros[4] = {0};
	const model_page *page = &m->pages[block];
	size_t		at = b->length;
	gpuvec_page head = {.block = block,.partial = page->partial,.newest = told_newest(m, page)};

	if (page->partial)
		head.nlines = (uint16_t) page->nlines;
	else
		head.lsn = page->lsn;
	buffer_add(b, &head, sizeof(head));
	for (uint32_t i = 0; i < page->nrows; i++)
	{
		const model_row *row = &page->rows[i];
		gpuvec_row	wire = {.line = row->line,.len = row->len};

		size_t		start = b->length;

		if (page->partial && !has_line(page, row->line))
			continue;
		head.nrows++;

		buffer_add(b, &wire, sizeof(wire));
		wire.form = add_ids(b, row->ids, row->len) ? GPUVEC_FORM_WIDE : 0;
		wire.form |= model_values ? GPUVEC_FORM_VALUES : 0;
		memcpy(b->data + start, &wire, sizeof(wire));
		buffer_add(b, zeros, (4 - b->length % 4) % 4);
		add_values(b, row->ids, row->len);
		add_filter_keys(b, row->ids, row->len);
	}
	if (page->partial)
	{
		buffer_add(b, page->lines, page->nlines * sizeof(uint16_t));
		buffer_add(b, zeros, (4 - b->length % 4) % 4);
	}
	head.bytes = (uint32_t) (b->length - at - sizeof(head));
	memcpy(b->data + at, &head, sizeof(head));
}

bool
model_send_pages(client *c, model *m, bool all)
{
	return model_send_range(c, m, all, 0, m->nblocks);
}

bool
model_send_range(client *c, model *m, bool all, uint32_t begin, uint32_t end)
{
	buffer		b = {0};
	bool		ok = true;

	for (uint32_t block = begin; block < end && ok; block++)
	{
		if (!all && !m->pages[block].dirty)
			continue;
		m->pages[block].partial &= !all;
		add_page(&b, m, block);
		if (b.length > 100000)
		{
			ok = client_send(c, GPUVEC_MSG_PAGES, b.data, b.length);
			b.length = 0;
		}
	}
	if (ok && b.length > 0)
		ok = client_send(c, GPUVEC_MSG_PAGES, b.data, b.length);
	free(b.data);
	return ok;
}

/* Note the number of the refresh that a commit made */
static void
note_commit(client *c, model *m, const gpuvec_commit *commit)
{
	gpuvec_state state = client_state(c);

	check(state.state == GPUVEC_READY, "the mirror is ready after a commit");
	check(state.nblocks == m->nblocks, "it has all pages");
	check(state.nrows == model_nrows(m), "it has all rows");
	check(state.checked >= commit->position, "it is checked up to the position");
	check(commit->feed == 0 || (state.feed == commit->feed && state.applied >= commit->applied),
		  "the feed is applied");
	check(state.refresh > m->refresh, "numbers of refreshes grow");
	m->position = commit->position;
	m->refresh = state.refresh;
	for (uint32_t block = 0; block < m->nblocks; block++)
	{
		model_page *page = &m->pages[block];

		if (page->dirty)
			page->refresh = page->partial ? UINT64_MAX : state.refresh;
		if (page->dirty && page->partial)
			page->lsn = GPUVEC_NO_LSN;
		if (page->dirty)
			page->sent_newest = told_newest(m, page);
		page->dirty = page->partial = false;
	}
}

/* Commit, and note the number of the refresh */
bool
model_commit(client *c, model *m)
{
	gpuvec_commit commit = {.position = m->position + 1,.feed = m->feed,.applied = ++m->applied,.nblocks = m->nblocks};

	if (!client_call(c, GPUVEC_MSG_COMMIT, &commit, sizeof(commit), GPUVEC_MSG_STATE))
		return false;
	note_commit(c, m, &commit);
	return true;
}

/*
 * Send a refresh without asking first: in one message, or, if `split`, every
 * page but the last in one of its own before it
 */
static bool
send_refresh(client *c, const model *m, const gpuvec_refresh_once *head, bool split)
{
	gpuvec_refresh_chunk part = {.key = head->key,.known = head->known};
	buffer		b = {0};
	buffer		last = {0};
	bool		ok = true;

	buffer_add(&last, head, sizeof(*head));
	for (uint32_t block = 0; block < m->nblocks; block++)
	{
		if (!m->pages[block].dirty)
			continue;
		if (split && last.length > sizeof(*head))
		{
			b.length = 0;
			buffer_add(&b, &part, sizeof(part));
			buffer_add(&b, last.data + sizeof(*head), last.length - sizeof(*head));
			ok = ok && client_send(c, GPUVEC_MSG_REFRESH_PAGES, b.data, b.length);
			last.length = sizeof(*head);
		}
		add_page(&last, m, block);
	}
	ok = ok && client_call(c, GPUVEC_MSG_REFRESH, last.data, last.length, GPUVEC_MSG_STATE);
	free(b.data);
	free(last.data);
	return ok;
}

/*
 * Refresh without asking first; it must not be made of a mirror that is not
 * the known one
 */
bool
model_refresh_once(client *c, model *m)
{
	bool		split = m->nrefreshes % 4 == 0;
	gpuvec_refresh_once head = {.key = m->key,.known = m->refresh + 1000,
		.commit = {.position = m->position + 1,.feed = ++m->feed,.applied = ++m->applied,.nblocks = m->nblocks}
	};
	bool		ok = send_refresh(c, m, &head, split);

	if (ok)
		check(client_state(c).refresh == m->refresh && client_state(c).feed != m->feed, "a refresh of another mirror is not made");
	head.known = m->refresh;
	ok = ok && send_refresh(c, m, &head, split);
	if (ok)
		note_commit(c, m, &head.commit);
	return ok;
}

bool
model_load(client *c, model *m)
{
	gpuvec_load load = {.key = m->key,.nblocks = m->nblocks};

	if (!client_call(c, GPUVEC_MSG_LOAD_BEGIN, &load, sizeof(load), GPUVEC_MSG_STATE))
		return false;
	check(client_state(c).state == GPUVEC_ABSENT, "a load has begun");
	for (uint32_t block = 0; block < m->nblocks; block++)
		m->pages[block].dirty = true;
	model_send_pages(c, m, true);
	return model_commit(c, m);
}

/*
 * Refresh; the engine must remember the LSN of every page that is not dirty
 */
bool
model_refresh(client *c, model *m)
{
	gpuvec_state state;

	if (m->nrefreshes++ % 2 == 1)
		return model_refresh_once(c, m);
	if (!client_call(c, GPUVEC_MSG_REFRESH_BEGIN, REFRESH(&m->key), GPUVEC_MSG_STATE))
		return false;
	state = client_state(c);
	if (!check(state.state == GPUVEC_READY, "a refresh has begun") ||
		!check(c->frame.length == sizeof(state) + state.nblocks * sizeof(uint64_t), "it names all LSNs"))
		return false;
	for (uint32_t block = 0; block < state.nblocks && block < m->nblocks; block++)
	{
		uint64_t	lsn;

		memcpy(&lsn, c->data + sizeof(state) + block * sizeof(lsn), sizeof(lsn));
		if (!m->pages[block].dirty && lsn != m->pages[block].lsn)
			check(false, "the LSN of a page is remembered");
	}
	model_send_pages(c, m, false);
	return model_commit(c, m);
}

/* An expression of ids, some of which no row has */
static void
random_match(model_query *q, gpuvec_condition *c)
{
	uint32_t	n = (uint32_t) random_below(7);

	for (uint32_t i = 0; i < n; i++)
		match_add_id(&q->match, random_below(20) == 0 ? 65000 + i : (uint32_t) random_below(random_below(300) + 1));
	match_make_tree(&q->match, 4);
	c->kind = GPUVEC_SET_MATCHES;
	c->first = q->wire.nvalues;
	c->low = q->match.nids;
	c->n = match_values(&q->match, q->values + c->first);
	q->wire.nvalues += c->n;
}

/* A condition on a column, which some rows satisfy */
static void
random_condition(model_query *q, gpuvec_condition *c)
{
	c->column = (uint32_t) random_below(model_filters + 1);
	if (c->column == 0 && q->match.n == 0 && random_below(3) > 0)
	{
		random_match(q, c);
		return;
	}
	c->kind = c->column == 0 ? GPUVEC_IS_NULL + random_below(2) : 1 + random_below(GPUVEC_IS_NOT_NULL);
	c->low = c->column % 3 == 2 ? UINT64_C(1) << random_below(64) : random_below(8);
	c->high = random_below(2) ? UINT64_MAX : c->low + random_below(4);
	if (c->kind != GPUVEC_KEY_ANY)
		return;
	c->first = q->wire.nvalues;
	c->n = (uint32_t) random_below(3);
	for (uint32_t i = 0; i < c->n; i++)
		q->values[q->wire.nvalues++] = i == 0 ? c->low : c->low + 1 + random_below(9);
}

/* A filter, sometimes */
static void
random_filter(model_query *q)
{
	if (model_filters == 0)
		return;
	q->wire.nconditions = (uint32_t) random_below(3);
	for (uint32_t i = 0; i < q->wire.nconditions; i++)
		random_condition(q, &q->conditions[i]);
	if (random_below(2))
		q->wire.flags |= GPUVEC_QUERY_DISJOINT;
}

/* Weights of a query's ids, behind them: few different ones, or many */
static void
random_weights(model_query *q)
{
	bool		few = random_below(2) == 0;

	q->weights = (float *) (q->ids + (q->wire.len + 1) / 2 * 2);
	for (uint32_t i = 0; i < q->wire.len; i++)
		q->weights[i] = (few ? 0.1f + (float) random_below(3) : (float) (1 + random_below(1 << 24)) * 0x1p-20f) *
			(random_below(4) == 0 ? -1 : 1);
}

/* True if the engine searches on a GPU, which sorts rows by score */
static bool
on_gpu(void)
{
	const char *backend = getenv("SERVER_TEST_BACKEND");

	return backend && strcmp(backend, "cuda") == 0;
}

float
model_weight(gpuvec_measure measure, const model_query *q, uint32_t i)
{
	float		weight = q->weights ? q->weights[i] : (i % 5 == 4 ? -0.7f : 0.1f + (float) (i % 7));

	return measure == GPUVEC_WIRE_SPARSE + GPUVEC_SPARSE_JACCARD ? fabsf(weight) : weight;
}

/* Append the weights of a query's ids, of a measure of sparse vectors */
static void
add_weights(buffer *b, gpuvec_measure measure, const model_query *q)
{
	for (uint32_t i = 0; i < q->wire.len && (int) measure >= GPUVEC_WIRE_SPARSE; i++)
	{
		float		weight = model_weight(measure, q, i);

		buffer_add(b, &weight, sizeof(weight));
	}
}

model_query
random_query(const shape *s)
{
	static const uint32_t ks[] = {1, 2, 10, 100, 100, 1000, 5000, GPUVEC_MAX_K, GPUVEC_ALL_ROWS, GPUVEC_ALL_ROWS};
	model_query q;

	memset(&q, 0, sizeof(q));
	q.wire.len = (uint32_t) random_below(s->maxlen + 1);
	q.ids = malloc((q.wire.len + 1) * (sizeof(uint16_t) + sizeof(float)) + sizeof(float));
	random_ids(q.ids, q.wire.len, s->vocabulary);
	random_weights(&q);
	q.wire.k = ks[random_below(sizeof(ks) / sizeof(ks[0]))];
	if (random_below(4) == 0)
	{
		q.wire.flags |= GPUVEC_QUERY_MIN_SCORE;
		q.wire.min_score = (double) random_below(100) / 200;
		if (random_below(4) == 0)
			q.wire.min_score = random_below(2) ? 0x1p-1074 : -0.5;
	}
	random_filter(&q);
	return q;
}

/* Weights of tversky; searches may differ in these alone */
static const gpuvec_search_weights some_weights[] = {{0.7, 0.3}, {0, 1}, {1.0 / 3, 1e-7}, {1e300, 2}};
static _Thread_local gpuvec_search_weights weights = {0.7, 0.3};

/* Append the values of a query's filter, with ids as they are sent */
static void
add_values_of(buffer *b, const model_query *q)
{
	uint64_t	values[sizeof(q->values) / sizeof(uint64_t)];

	memcpy(values, q->values, sizeof(values));
	for (uint32_t i = 0; wide_from > 0 && i < q->wire.nconditions; i++)
		for (uint64_t j = 0; q->conditions[i].kind == GPUVEC_SET_MATCHES && j < q->match.nids; j++)
			values[q->conditions[i].first + j] = wide_id(q->match.ids[j]);
	buffer_add(b, values, q->wire.nvalues * sizeof(uint64_t));
}

void
search_request(buffer *b, const gpuvec_mirror_key *key, uint64_t position, gpuvec_measure measure,
			   const model_query *queries, uint32_t n)
{
	gpuvec_search head = {
		.key = *key,.need.position = position,.measure = measure,
		.method = random_below(GPUVEC_N_METHODS),.nqueries = n
	};

	size_t		start = b->length;
	size_t		first;
	size_t		ids;

	buffer_add(b, &head, sizeof(head));
	if (measure == GPUVEC_TVERSKY)
		buffer_add(b, &weights, sizeof(weights));
	first = b->length;
	for (uint32_t i = 0; i < n; i++)
		buffer_add(b, &queries[i].wire, sizeof(gpuvec_query));
	ids = b->length;
	for (uint32_t i = 0; i < n; i++)
	{
		buffer_add(b, queries[i].conditions, queries[i].wire.nconditions * sizeof(gpuvec_condition));
		add_values_of(b, &queries[i]);
	}
	((gpuvec_search *) (b->data + start))->filter_bytes = b->length - ids;
	for (uint32_t i = 0; i < n; i++)
		add_weights(b, measure, &queries[i]);
	ids = b->length;
	for (uint32_t i = 0; i < n; i++)
	{
		uint32_t	large = add_ids(b, queries[i].ids, queries[i].wire.len);

		((gpuvec_query *) (b->data + first))[i].form = (large ? GPUVEC_FORM_WIDE : 0) |
			((int) measure >= GPUVEC_WIRE_SPARSE ? GPUVEC_FORM_VALUES : 0);
	}
	((gpuvec_search *) (b->data + start))->nids = (b->length - ids) / sizeof(uint16_t);
}

int
model_compare_hits(const void *a, const void *b)
{
	const gpuvec_hit *x = a;
	const gpuvec_hit *y = b;

	if (x->score != y->score)
		return x->score > y->score ? -1 : 1;
	return x->place < y->place ? -1 : x->place > y->place;	/* tids come first in it */
}

/* What a query's filter makes of a row */
typedef enum verdict
{
	FAILS,
	PASSES,						/* but takes no part: its set is null */
	TAKES_PART
} verdict;

/* True if a row passes a filter: all conditions but that on sets, and this */
static bool
passes(const model_query *q, const model_row *row, const uint64_t *filter_keys)
{
	uint32_t   *ids = malloc((row->len + (size_t) 1) * sizeof(uint32_t));
	bool		ok = true;

	for (uint32_t i = 0; i < row->len; i++)
		ids[i] = row->ids[i];
	for (uint32_t i = 0; i < q->wire.nconditions; i++)
	{
		gpuvec_filter one = {1, q->wire.nvalues, &q->conditions[i], q->values};

		ok &= q->conditions[i].kind == GPUVEC_SET_MATCHES ?
			row->len > 0 && match_holds(&q->match, 0, ids, row->len) :
			gpuvec_filter_passes(&one, filter_keys);
	}
	free(ids);
	return ok;
}

static verdict
judge(const model_query *q, const model_row *row)
{
	gpuvec_filter filter = {q->wire.nconditions, q->wire.nvalues, q->conditions, q->values};
	uint64_t	filter_keys[GPUVEC_MAX_FILTERS + 1];
	bool		wants_nulls = false;

	if (model_filters == 0)
		return TAKES_PART;
	row_filter_keys(row->ids, row->len, filter_keys);
	if (!passes(q, row, filter_keys))
		return FAILS;
	for (uint32_t i = 0; i < filter.n; i++)
		wants_nulls |= filter.conditions[i].column == 0 && filter.conditions[i].kind == GPUVEC_IS_NULL;
	return row->len > 0 || wants_nulls ? TAKES_PART : PASSES;
}

/* The score of a row by a measure of sparse vectors */
static double
weighted_score(gpuvec_measure measure, const model_query *q, const model_row *row)
{
	bool		jaccard = measure == GPUVEC_WIRE_SPARSE + GPUVEC_SPARSE_JACCARD;
	double		s = 0;
	double		a = 0;
	double		b = 0;
	double		ratio;
	bool		negative = false;

	for (uint32_t j = 0; j < row->len; j++)
	{
		double		value = model_values ? row_value(row->ids, row->len, j) : 1;

		b += jaccard ? value : value * value;
		negative |= value < 0;
	}
	/* it is not defined then, and the row comes first */
	if (jaccard && negative)
		return INFINITY;
	for (uint32_t i = 0, j = 0; i < q->wire.len; i++)
	{
		double		weight = model_weight(measure, q, i);
		double		value;

		a += jaccard ? weight : weight * weight;
		while (j < row->len && row->ids[j] < q->ids[i])
			j++;
		if (j == row->len || row->ids[j] != q->ids[i])
			continue;
		value = model_values ? row_value(row->ids, row->len, j) : 1;
		s += !jaccard ? weight * value : weight < value ? weight : value;
	}
	if (measure == (gpuvec_measure) GPUVEC_WIRE_SPARSE)
		return s;
	if (jaccard)
		return a + b - s == 0 ? 0 : s / (a + b - s);
	ratio = a * b == 0 ? 0 : s * s / (a * b);
	ratio = sqrt(ratio > 1 ? 1 : ratio);
	return s < 0 ? 0 - ratio : ratio;
}

/*
 * All rows that rank for a query, in order; known, xmin: as in gpuvec_search.
 * `passed` says on entry whether rows without a common id rank, and then how
 * many rows pass the filter.
 */
static gpuvec_hit *
brute_force(const model *m, gpuvec_measure measure, const model_query *q, uint64_t known,
			uint64_t xmin, uint64_t *n, uint64_t *passed)
{
	bool		disjoint = (*passed & GPUVEC_DISJOINT_TOO) != 0;
	gpuvec_scoring scoring = {.measure = measure,.tversky = gpuvec_make_tversky(weights.alpha, weights.beta)};
	bool		sparse = (int) measure >= GPUVEC_WIRE_SPARSE;
	gpuvec_hit *hits = malloc((model_nrows(m) + 1) * sizeof(gpuvec_hit));
	uint8_t    *wanted = calloc(GPUVEC_MAX_IDS, 1);

	*n = *passed = 0;
	for (uint32_t i = 0; i < q->wire.len; i++)
		wanted[q->ids[i]] = 1;
	for (uint32_t block = 0; block < m->nblocks; block++)
	{
		bool		proven = m->pages[block].sent_newest != 0 && m->pages[block].sent_newest < xmin;

		for (uint32_t r = 0; r < m->pages[block].nrows; r++)
		{
			const model_row *row = &m->pages[block].rows[r];
			uint64_t	tid = gpuvec_tid(block, row->line);
			verdict		found = judge(q, row);
			uint32_t	common = 0;
			gpuvec_hit	hit;

			*passed += found != FAILS;
			for (uint32_t i = 0; i < row->len; i++)
				common += wanted[row->ids[i]];
			hit.score = sparse ? weighted_score(measure, q, row) :
				gpuvec_score_with(scoring, (gpuvec_shared) {common, q->wire.len, row->len});
			hit.place = gpuvec_hit_place(tid, common, !proven &&
										 (m->pages[block].sent_newest != 0 || m->pages[block].refresh > known));
			if (proven)
				hit.place |= GPUVEC_HIT_PROVEN;
			if (found != TAKES_PART || (common == 0 && measure != GPUVEC_HAMMING && !disjoint && !sparse))
				continue;
			if ((q->wire.flags & GPUVEC_QUERY_MIN_SCORE) && !(hit.score >= q->wire.min_score) &&
				!(sparse && disjoint))
				continue;
			if ((q->wire.flags & GPUVEC_QUERY_AFTER) &&
				!(hit.score < q->wire.after_score ||
				  (hit.score == q->wire.after_score && tid > q->wire.after_tid)))
				continue;
			hits[(*n)++] = hit;
		}
	}
	free(wanted);
	qsort(hits, *n, sizeof(*hits), model_compare_hits);
	if (q->wire.nconditions == 0)
		*passed = GPUVEC_NOT_COUNTED;
	*passed |= disjoint ? GPUVEC_DISJOINT_TOO : 0;
	return hits;
}

/* qsort comparator of the tids of hits */
static int
compare_places(const void *a, const void *b)
{
	uint64_t	x = gpuvec_hit_tid(((const gpuvec_hit *) a)->place);
	uint64_t	y = gpuvec_hit_tid(((const gpuvec_hit *) b)->place);

	return x < y ? -1 : x > y;
}

static int
compare_lines(const void *a, const void *b)
{
	return *(const uint16_t *) a - *(const uint16_t *) b;
}

/* Do the pages, of so many bytes, have the tids of n hits?  Sorts both. */
static bool
pages_equal(char *pages, uint64_t bytes, gpuvec_hit *hits, uint64_t n)
{
	char	   *end = pages + bytes;
	uint64_t	at = 0;
	int64_t		before = -1;

	qsort(hits, n, sizeof(*hits), compare_places);
	while (pages < end)
	{
		gpuvec_page_rows page;
		uint16_t   *lines = (uint16_t *) (pages + sizeof(page));

		memcpy(&page, pages, sizeof(page));
		pages += gpuvec_page_rows_bytes(page.n);
		if (page.n == 0 || pages > end || page.block <= before || page.n > n - at)
			return false;
		before = page.block;
		qsort(lines, page.n, sizeof(uint16_t), compare_lines);
		for (uint32_t i = 0; i < page.n; i++, at++)
			if (gpuvec_hit_tid(hits[at].place) != gpuvec_tid(page.block, lines[i]))
				return false;
	}
	return at == n;
}

/* Ask for pages, sometimes, if all rows are asked for; true if so */
static bool
ask_for_pages(gpuvec_query *wire)
{
	if (wire->k != GPUVEC_ALL_ROWS || random_below(2))
		return false;
	wire->flags |= GPUVEC_QUERY_PAGES;
	return true;
}

/*
 * Search, and compare the answer.  may_lack: unless the engine lacks memory,
 * which is no failed check.
 */
static bool
check_search(client *c, const model *m, gpuvec_measure measure, const model_query *queries, uint32_t n, bool may_lack)
{
	buffer		b = {0};
	gpuvec_result result;
	const char *counts;
	const char *hits;
	uint64_t	known = random_below(3) ? m->refresh - (m->refresh > 0 ? random_below(2) : 0) : 0;
	uint64_t	xmin = random_below(MODEL_XIDS + 2);
	uint64_t	at = 0;
	size_t		heads = (n + 1) / 2 * 8;
	bool		filtered = false;
	bool		pages = false;
	bool		ok;

	for (uint32_t i = 0; i < n; i++)
		filtered |= queries[i].wire.nconditions > 0;
	weights = some_weights[random_below(4)];
	search_request(&b, &m->key, m->position, measure, queries, n);
	((gpuvec_search *) b.data)->known = known;
	((gpuvec_search *) b.data)->xmin = xmin;
	for (uint32_t i = 0; i < n; i++)
		pages |= ask_for_pages((gpuvec_query *) (b.data + sizeof(gpuvec_search) +
												 (measure == GPUVEC_TVERSKY ? sizeof(weights) : 0)) + i);
	ok = client_call(c, GPUVEC_MSG_SEARCH, b.data, b.length, GPUVEC_MSG_RESULT);
	free(b.data);
	if (!ok && may_lack && client_failed_with(c, "53200"))
		return false;
	if (!check(ok, "a search is answered"))
		return false;
	memcpy(&result, c->data, sizeof(result));
	if (!check(result.state.state == GPUVEC_READY && result.nqueries == n, "all queries are answered"))
		return false;
	counts = c->data + sizeof(result);
	hits = counts + heads + result.npassed * sizeof(uint64_t);
	/* of several queries the hits have scores */
	pages &= n == 1 && result.nhits > 0 && !on_gpu();
	if (!check(pages == (result.page_bytes > 0), "rows come by pages if that was asked for"))
		return false;
	if (!check(result.npassed == (filtered ? n : 0) &&
			   c->frame.length == (size_t) (hits - c->data) +
			   (pages ? result.page_bytes : result.nhits * sizeof(gpuvec_hit)),
			   "the length of the answer"))
		return false;
	for (uint32_t i = 0; i < n && ok; i++)
	{
		uint64_t	expected;
		uint64_t	answered = GPUVEC_NOT_COUNTED;
		uint64_t	passed;
		gpuvec_hit *truth;
		uint32_t	count;

		if (filtered)
			memcpy(&answered, counts + heads + i * sizeof(answered), sizeof(answered));
		passed = answered;
		truth = brute_force(m, measure, &queries[i], known, xmin, &expected, &passed);
		check(passed == answered, "the number of rows that pass");
		check(!(answered & GPUVEC_DISJOINT_TOO) || (queries[i].wire.flags & GPUVEC_QUERY_DISJOINT),
			  "rows without a common id rank only if that is wanted");

		memcpy(&count, counts + i * sizeof(count), sizeof(count));
		if (pages)
		{
			ok = check(count == expected && result.nhits == expected, "the number of rows") &&
				check(pages_equal(c->data + (hits - c->data), result.page_bytes, truth, expected),
					  "rows by pages are those of brute force");
			free(truth);
			return ok;
		}
		/* all rows may come in any order; so may not the first ones */
		if (queries[i].wire.k == GPUVEC_ALL_ROWS && count == GPUVEC_FIRST_ROWS && expected > count)
			expected = count;
		else if (queries[i].wire.k == GPUVEC_ALL_ROWS && count != GPUVEC_FIRST_ROWS)
			qsort(c->data + (hits - (const char *) c->data) + at * sizeof(gpuvec_hit), count, sizeof(gpuvec_hit),
				  model_compare_hits);
		if (expected > queries[i].wire.k)
			expected = queries[i].wire.k;
		ok = check(count == expected, "the number of hits") &&
			check(count == 0 || memcmp(hits + at * sizeof(gpuvec_hit), truth, count * sizeof(gpuvec_hit)) == 0,
				  "hits are those of brute force");
		at += count;
		free(truth);
	}
	return ok && check(at == result.nhits, "the sum of hits");
}

/* Two bits for each of so many pages, of which the lower one says something */
static uint8_t *
random_pages(uint64_t bytes)
{
	uint8_t    *bits = malloc(bytes + 1);
	uint64_t	kind = random_below(4);

	for (uint64_t i = 0; i < bytes; i++)
		bits[i] = kind == 0 ? 0xAA : kind == 1 ? 0x55 : (uint8_t) random_below(256);
	return bits;
}

/* True if rows of a page are to be counted */
static bool
is_counted(const uint8_t *bits, uint64_t bytes, uint32_t block)
{
	return block < bytes * 4 && ((bits[block / 4] >> (2 * (block % 4))) & 1) == 1;
}

/* Columns to group rows by, and others whose values are wanted; or none */
static gpuvec_grouping
random_grouping(void)
{
	gpuvec_grouping grouping = {0};

	if (model_filters == 0 || random_below(4) == 0)
		return grouping;
	grouping.nkeys = (uint8_t) random_below(4);
	grouping.nvalues = (uint8_t) (random_below(3) + (grouping.nkeys == 0));
	for (int i = 0; i < grouping.nkeys + grouping.nvalues; i++)
		grouping.columns[i] = (uint8_t) (1 + random_below(model_filters));
	return grouping;
}

/* Add a row to n groups of some words each; returns their new number */
static uint64_t
group_row(const gpuvec_grouping *grouping, const model_row *row, uint64_t *groups, uint64_t n)
{
	uint32_t	words = gpuvec_group_words(grouping);
	uint64_t	filter_keys[GPUVEC_MAX_FILTERS + 1];
	uint64_t   *mine = groups + n * words;
	uint64_t	of_keys = (UINT64_C(1) << grouping->nkeys) - 1;
	uint64_t	at = 0;

	row_filter_keys(row->ids, row->len, filter_keys);
	memset(mine, 0, words * sizeof(uint64_t));
	for (int i = 0; i < grouping->nkeys + grouping->nvalues; i++)
		mine[1] |= (filter_keys[0] >> grouping->columns[i] & 1) << i;
	for (int i = 0; i < grouping->nkeys; i++)
		mine[2 + i] = (mine[1] >> i & 1) ? 0 : filter_keys[grouping->columns[i]];
	while (at < n && ((groups[at * words + 1] ^ mine[1]) & of_keys) == 0 ?
		   memcmp(groups + at * words + 2, mine + 2, grouping->nkeys * sizeof(uint64_t)) != 0 : at < n)
		at++;
	if (at == n)
		mine[1] |= ~of_keys & ((UINT64_C(1) << (grouping->nkeys + grouping->nvalues)) - 1);
	mine = groups + at * words;
	mine[0]++;
	for (int i = grouping->nkeys; i < grouping->nkeys + grouping->nvalues; i++)
	{
		uint64_t   *range = mine + 2 + grouping->nkeys + 2 * (i - grouping->nkeys);
		uint64_t	key = filter_keys[grouping->columns[i]];
		bool		first = (mine[1] >> i & 1) != 0;

		if (filter_keys[0] >> grouping->columns[i] & 1)
			continue;
		range[0] = first || key < range[0] ? key : range[0];
		range[1] = first || key > range[1] ? key : range[1];
		mine[1] &= ~(UINT64_C(1) << i);
	}
	return at == n ? n + 1 : n;
}

static uint32_t sorted_words;	/* of the groups that are being sorted */

static int
compare_groups(const void *a, const void *b)
{
	return memcmp(a, b, sorted_words * sizeof(uint64_t));
}

void
model_sort_groups(const gpuvec_grouping *grouping, void *groups, uint64_t bytes)
{
	sorted_words = gpuvec_group_words(grouping);
	qsort(groups, bytes / (sorted_words * sizeof(uint64_t)), sorted_words * sizeof(uint64_t), compare_groups);
}

/* Check the groups of an answer: those of the rows of some pages */
static bool
check_groups(const model *m, const gpuvec_grouping *grouping, const gpuvec_hit *truth, uint64_t n,
			 const uint8_t *bits, uint64_t bytes, uint64_t *answered, uint64_t size)
{
	uint32_t	words = gpuvec_group_words(grouping);
	uint64_t   *groups;
	uint64_t	ngroups = 0;
	bool		ok;

	groups = malloc((n + 1) * words * sizeof(uint64_t));
	for (uint64_t i = 0; i < n; i++)
	{
		uint32_t	block = gpuvec_hit_block(truth[i].place);
		const model_page *page = &m->pages[block];
		uint32_t	r = 0;

		while (page->rows[r].line != gpuvec_hit_line(truth[i].place))
			r++;
		if (is_counted(bits, bytes, block))
			ngroups = group_row(grouping, &page->rows[r], groups, ngroups);
	}
	ok = check(size == ngroups * words * sizeof(uint64_t), "the number of groups");
	if (ok)
	{
		model_sort_groups(grouping, groups, size);
		model_sort_groups(grouping, answered, size);
		ok = check(ngroups == 0 || memcmp(groups, answered, size) == 0, "groups are those of brute force");
	}
	free(groups);
	return ok;
}

/*
 * The request to count the rows that a query finds on some pages, by groups
 * unless the grouping is empty; or that pairs of several queries find
 */
static void
count_request(buffer *b, const model *m, gpuvec_measure measure, const model_query *queries, uint32_t n,
			  const gpuvec_grouping *grouping, const uint8_t *bits, uint64_t bytes)
{
	buffer		search = {0};
	gpuvec_search *head;
	size_t		before;
	gpuvec_query *wire;

	search_request(&search, &m->key, m->position, measure, queries, n);
	head = (gpuvec_search *) search.data;
	wire = (gpuvec_query *) (search.data + sizeof(*head) + (measure == GPUVEC_TVERSKY ? sizeof(weights) : 0));
	for (uint32_t i = 0; i < n; i++)
	{
		wire[i].k = GPUVEC_ALL_ROWS;
		wire[i].flags = (wire[i].flags & ~(uint32_t) GPUVEC_QUERY_AFTER) | GPUVEC_QUERY_PAGES | GPUVEC_QUERY_COUNT;
	}
	head->counted_bytes = bytes;
	head->grouping = *grouping;
	before = (size_t) ((char *) (wire + n) - search.data) + head->filter_bytes;
	buffer_add(b, search.data, before);
	buffer_add(b, bits, bytes);
	buffer_add(b, search.data + before, search.length - before);
	free(search.data);
}

/* Check an answer: of all n rows those of some pages are counted */
static bool
check_counted(client *c, const model *m, const gpuvec_grouping *grouping, gpuvec_hit *truth, uint64_t n,
			  const uint8_t *bits, uint64_t bytes)
{
	gpuvec_result result;
	char	   *pages;
	bool		grouped = grouping->nkeys + grouping->nvalues > 0;
	uint64_t	rest = 0;

	memcpy(&result, c->data, sizeof(result));
	if (!check(result.state.state == GPUVEC_READY && result.nqueries == 1, "a query that counts is answered"))
		return false;
	if (result.counted == GPUVEC_NOT_COUNTED)
		return check(on_gpu() && result.nhits == 0 && result.group_bytes == 0, "what is not counted is not returned");
	pages = c->data + c->frame.length - result.page_bytes;
	if (grouped ? !check_groups(m, grouping, truth, n, bits, bytes, (uint64_t *) (pages - result.group_bytes),
								result.group_bytes) :
		!check(result.group_bytes == 0, "there are no groups"))
		return false;
	for (uint64_t i = 0; i < n; i++)
		if (!is_counted(bits, bytes, gpuvec_hit_block(truth[i].place)))
			truth[rest++] = truth[i];
	return check(result.counted == n - rest, "the number of rows that are counted") &&
		check(result.nhits == rest && (result.page_bytes > 0) == (rest > 0), "the number of the others") &&
		check(pages_equal(pages, result.page_bytes, truth, rest), "others are returned");
}

void
model_count_request(buffer *b, const model *m, gpuvec_measure measure, model_query *query)
{
	uint64_t	bytes = (m->nblocks / 4 + 1) / 8 * 8;
	uint8_t    *bits = random_pages(bytes);
	gpuvec_grouping grouping = random_grouping();

	query->wire.flags &= GPUVEC_QUERY_MIN_SCORE;
	count_request(b, m, measure, query, 1, &grouping, bits, bytes);
	free(bits);
}

bool
model_check_count(client *c, const model *m, gpuvec_measure measure, model_query *query)
{
	uint64_t	bytes = (random_below(3) ? m->nblocks / 4 + 1 : random_below(m->nblocks / 4 + 1)) / 8 * 8;
	uint8_t    *bits = random_pages(bytes);
	gpuvec_grouping grouping = random_grouping();
	buffer		b = {0};
	uint64_t	passed = 0;
	uint64_t	n;
	gpuvec_hit *truth;
	bool		ok;

	weights = some_weights[random_below(4)];
	query->wire.flags &= GPUVEC_QUERY_MIN_SCORE;
	count_request(&b, m, measure, query, 1, &grouping, bits, bytes);
	truth = brute_force(m, measure, query, 0, 0, &n, &passed);
	ok = check(client_call(c, GPUVEC_MSG_SEARCH, b.data, b.length, GPUVEC_MSG_RESULT), "a count is answered") &&
		check_counted(c, m, &grouping, truth, n, bits, bytes);
	free(b.data);
	free(truth);
	free(bits);
	return ok;
}

/* The place of a row in hits in the order of their tids; n: it is in none */
static uint64_t
find_place(const gpuvec_hit *hits, uint64_t n, const gpuvec_hit *row)
{
	const gpuvec_hit *found = n == 0 ? NULL : bsearch(row, hits, n, sizeof(*hits), compare_places);

	return found ? (uint64_t) (found - hits) : n;
}

/*
 * Check the pairs of an answer against what each query finds, in the order of
 * tids
 */
static bool
check_pairs(const uint64_t *pairs, gpuvec_hit *const *truth, const uint64_t *nhits, uint32_t n,
			const uint8_t *bits, uint64_t bytes)
{
	bool		right = true;

	for (uint32_t a = 0; a < n; a++)
		for (uint32_t b = a; b < n; b++)
		{
			uint64_t	both = 0;

			for (uint64_t i = 0; i < nhits[a]; i++)
				both += is_counted(bits, bytes, gpuvec_hit_block(truth[a][i].place)) &&
					find_place(truth[b], nhits[b], &truth[a][i]) < nhits[b];
			right &= *pairs++ == both;
		}
	return check(right, "the rows of pairs of queries");
}

/* Check an answer, given what each query finds */
static bool
check_overlaps(client *c, gpuvec_hit **truth, const uint64_t *nhits, uint32_t n, const uint8_t *bits,
			   uint64_t bytes)
{
	gpuvec_result result;
	gpuvec_hit *others = malloc((nhits[0] + nhits[1] + nhits[2] + 1) * sizeof(gpuvec_hit));
	uint64_t	nothers = 0;
	char	   *pages;
	bool		ok;

	memcpy(&result, c->data, sizeof(result));
	pages = c->data + c->frame.length - result.page_bytes;
	for (uint32_t q = 0; q < n; q++)
	{
		qsort(truth[q], nhits[q], sizeof(gpuvec_hit), compare_places);
		for (uint64_t i = 0; i < nhits[q]; i++)
		{
			bool		first = !is_counted(bits, bytes, gpuvec_hit_block(truth[q][i].place));

			for (uint32_t p = 0; p < q; p++)
				first = first && find_place(truth[p], nhits[p], &truth[q][i]) == nhits[p];
			if (first)
				others[nothers++] = truth[q][i];
		}
	}
	ok = check(result.state.state == GPUVEC_READY && result.nqueries == n && result.counted == 0,
			   "queries whose pairs are counted are answered") &&
		check(result.group_bytes == gpuvec_overlap_pairs(n) * sizeof(uint64_t), "the number of pairs") &&
		check_pairs((uint64_t *) (pages - result.group_bytes), truth, nhits, n, bits, bytes) &&
		check(result.nhits == nothers && (result.page_bytes > 0) == (nothers > 0), "the number of other rows") &&
		check(pages_equal(pages, result.page_bytes, others, nothers), "other rows are returned once");
	free(others);
	return ok;
}

bool
model_check_overlaps(client *c, const model *m, model_query *queries, uint32_t n)
{
	uint64_t	bytes = (random_below(3) ? m->nblocks / 4 + 1 : random_below(m->nblocks / 4 + 1)) / 8 * 8;
	uint8_t    *bits = random_pages(bytes);
	gpuvec_grouping none = {0};
	buffer		b = {0};
	gpuvec_hit *truth[3];
	uint64_t	nhits[3] = {0};
	uint64_t	passed = 0;
	bool		ok;

	for (uint32_t i = 0; i < n; i++)
	{
		queries[i].wire.flags = queries[i].wire.nconditions = queries[i].wire.nvalues = 0;
		truth[i] = brute_force(m, GPUVEC_INTERSECTION, &queries[i], 0, 0, &nhits[i], &passed);
	}
	count_request(&b, m, GPUVEC_INTERSECTION, queries, n, &none, bits, bytes);
	ok = check(client_call(c, GPUVEC_MSG_SEARCH, b.data, b.length, GPUVEC_MSG_RESULT), "pairs are counted") &&
		check_overlaps(c, truth, nhits, n, bits, bytes);
	free(b.data);
	free(bits);
	for (uint32_t i = 0; i < n; i++)
		free(truth[i]);
	return ok;
}

bool
model_check(client *c, const model *m, gpuvec_measure measure, const model_query *queries, uint32_t n)
{
	return check_search(c, m, measure, queries, n, false);
}

bool
model_check_scarce(client *c, const model *m, gpuvec_measure measure, const model_query *queries, uint32_t n)
{
	return check_search(c, m, measure, queries, n, true);
}

bool
model_check_random(client *c, const model *m, const shape *s)
{
	gpuvec_measure measure = (gpuvec_measure) random_below(GPUVEC_N_WIRE_MEASURES);
	uint32_t	n = 1 + (uint32_t) random_below(3);
	model_query queries[3];
	bool		ok;

	for (uint32_t i = 0; i < n; i++)
		queries[i] = random_query(s);
	ok = model_check(c, m, measure, queries, n) &&
		(random_below(2) || model_check_count(c, m, measure, &queries[0])) &&
		(n == 1 || random_below(2) || model_check_overlaps(c, m, queries, n));
	for (uint32_t i = 0; i < n; i++)
		free(queries[i].ids);
	return ok;
}
