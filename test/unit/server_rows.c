/*-------------------------------------------------------------------------
 *
 * server_rows.c
 *	  Rows that a feed hands over without their pages.
 *
 * A table is a model whose rows come and go; each change adds a record to its
 * feed.  What the mirror should hold is another model.  It follows by
 * records, as the engine should, or by copies of the table's pages, as in a
 * refresh.  Copies are newer than the records that were applied, so that what
 * is applied next may be outdated on some pages.  Once all records are
 * applied, both models have the same rows.
 *
 *-------------------------------------------------------------------------
 */
#include <poll.h>
#include <pthread.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "server_memory.h"
#include "server_model.h"
#include "server_rows.h"

static const char *const plain[] = {"--cpu-threads", "2", NULL};

static const shape small = {.rows_per_page = 12,.maxlen = 24,.vocabulary = 300};
static const shape none = {.rows_per_page = 0,.maxlen = 1,.vocabulary = 10};

#define FEED	77
#define LINES	20				/* line pointers of a page that are used */

/* A table with its feed, and its mirror */
typedef struct fed_table
{
	model		table;
	model		mirror;
	buffer		records;
	size_t	   *starts;			/* [number + 1] where records begin */
	uint64_t	number;			/* of the last record */
	uint64_t	applied;		/* by the mirror */
	uint64_t	rows;			/* that the engine should have counted, as
								 * those of feeds */
	uint64_t	updates;
} fed_table;

/*
 * Remove what a page has under a line pointer: a row with this line, or with
 * the next one, or even both
 */
static void
remove_row(model_page *page, uint16_t line)
{
	uint32_t	n = 0;

	for (uint32_t i = 0; i < page->nrows; i++)
	{
		if (page->rows[i].line / 2 == line / 2)
			free(page->rows[i].ids);
		else
			page->rows[n++] = page->rows[i];
	}
	page->nrows = n;
}

/* Add a row at its place among those of a page; ids are copied */
static void
add_row(model_page *page, uint16_t line, const uint16_t *ids, uint32_t len)
{
	model_row	row = {.line = line,.len = len,.ids = malloc((len + 1) * sizeof(uint16_t))};
	uint32_t	at;

	memcpy(row.ids, ids, len * sizeof(uint16_t));
	page->rows = realloc(page->rows, (page->nrows + 1) * sizeof(model_row));
	for (at = page->nrows; at > 0 && page->rows[at - 1].line > line; at--)
		page->rows[at] = page->rows[at - 1];
	page->rows[at] = row;
	page->nrows++;
}

/* Put a row in the place of those under its line pointer */
static void
put_row(model_page *page, uint16_t line, const uint16_t *ids, uint32_t len)
{
	remove_row(page, line);
	add_row(page, line, ids, len);
}

/* Make the mirror's page a copy of the table's, to be sent */
static void
copy_page(fed_table *t, uint32_t block)
{
	const model_page *from = &t->table.pages[block];
	model_page *to = &t->mirror.pages[block];

	while (to->nrows > 0)
		remove_row(to, to->rows[0].line);
	for (uint32_t i = 0; i < from->nrows; i++)
		add_row(to, from->rows[i].line, from->rows[i].ids, from->rows[i].len);
	to->lsn = random_below(UINT64_MAX);
	to->dirty = true;
}

/* Let a model have this many pages, where new ones are empty */
static void
set_pages(model *m, uint32_t nblocks)
{
	uint32_t	old = m->nblocks;

	model_resize(m, nblocks, &none);
	for (uint32_t block = old; block < nblocks; block++)
		m->pages[block].dirty = false;
}

/* Add a record to the feed; values are copied */
static void
add_record(fed_table *t, gpuvec_feed_record record, const uint16_t *values)
{
	static const char zeros[8] = {0};

	buffer_add(&t->records, &record, sizeof(record));
	buffer_add(&t->records, values, record.len * sizeof(uint16_t));
	buffer_add(&t->records, zeros, gpuvec_feed_record_bytes(record.len, record.nfilter_keys) - sizeof(record) -
			   record.len * sizeof(uint16_t));
	t->number++;
	t->starts = realloc(t->starts, (t->number + 1) * sizeof(size_t));
	t->starts[t->number] = t->records.length;
}

/* A row comes to the table, perhaps in the place of another one */
static void
insert_row(fed_table *t, uint32_t block, uint16_t line)
{
	gpuvec_feed_record record = {.kind = GPUVEC_FEED_ROW,.block = block,.line = line};
	uint16_t	ids[64];

	record.len = (uint32_t) random_below(small.maxlen + 1);
	random_ids(ids, record.len, small.vocabulary);
	if (block >= t->table.nblocks)
		set_pages(&t->table, block + 1);
	/* who reads the page may find that the row stands for itself */
	put_row(&t->table.pages[block], line + (uint16_t) random_below(2), ids, record.len);
	add_record(t, record, ids);
}

/* Some rows of a page go: those of every n-th line pointer */
static void
remove_rows(fed_table *t, uint32_t block, uint32_t n)
{
	gpuvec_feed_record record = {.kind = GPUVEC_FEED_GONE,.block = block};
	model_page *page = &t->table.pages[block];
	uint16_t	lines[GPUVEC_MAX_LINE];

	for (uint16_t line = 2; line <= GPUVEC_MAX_LINE; line += 2)
	{
		if (random_below(n) != 0 || line > 2 * LINES * 4)
			continue;
		lines[record.len++] = line;
		remove_row(page, line);
	}
	add_record(t, record, lines);
}

/* The table loses its last pages, as VACUUM takes them */
static void
truncate_table(fed_table *t)
{
	uint32_t	nblocks = (uint32_t) random_below(t->table.nblocks + 1);

	for (uint32_t block = nblocks; block < t->table.nblocks; block++)
		remove_rows(t, block, 1);
	set_pages(&t->table, nblocks);
}

/* Something happens to the table */
static void
change_table(fed_table *t)
{
	uint32_t	nblocks = t->table.nblocks;
	uint16_t	line = 2 + 2 * (uint16_t) random_below(LINES);

	if (random_below(200) == 0)
		truncate_table(t);
	else if (nblocks == 0 || random_below(20) == 0)
		insert_row(t, nblocks + (uint32_t) random_below(3), line);
	else if (random_below(4) == 0)
		remove_rows(t, (uint32_t) random_below(nblocks), 1 + (uint32_t) random_below(6));
	else
		insert_row(t, (uint32_t) random_below(nblocks), line);
}

/* What a record does to the mirror's pages */
static void
apply_record(fed_table *t, uint64_t number)
{
	gpuvec_feed_record record;
	uint16_t	values[GPUVEC_MAX_LINE];
	model_page *page;

	memcpy(&record, t->records.data + t->starts[number - 1], sizeof(record));
	memcpy(values, t->records.data + t->starts[number - 1] + sizeof(record),
		   record.len * sizeof(uint16_t));
	if (record.block >= t->mirror.nblocks)
	{
		uint32_t	old = t->mirror.nblocks;

		set_pages(&t->mirror, record.block + 1);
		for (uint32_t block = old; block <= record.block; block++)
		{
			t->mirror.pages[block].lsn = GPUVEC_NO_LSN;
			t->mirror.pages[block].refresh = UINT64_MAX;	/* to be set */
		}
	}
	page = &t->mirror.pages[record.block];
	page->lsn = GPUVEC_NO_LSN;
	if (record.kind == GPUVEC_FEED_ROW)
		put_row(page, record.line, values, record.len);
	else
		for (uint32_t i = 0; i < record.len; i++)
			remove_row(page, values[i]);
}

/* How many rows records (applied, to] bring: of a line pointer the last */
static uint64_t
rows_brought(const fed_table *t, uint64_t to)
{
	uint64_t	n = 0;

	for (uint64_t i = t->applied; i < to; i++)
	{
		gpuvec_feed_record a;
		bool		last = true;

		memcpy(&a, t->records.data + t->starts[i], sizeof(a));
		for (uint64_t j = i + 1; j < to && last; j++)
		{
			const char *at = t->records.data + t->starts[j];
			gpuvec_feed_record b;

			memcpy(&b, at, sizeof(b));
			if (b.block != a.block)
				continue;
			last = b.line != a.line;
			for (uint32_t k = 0; b.kind == GPUVEC_FEED_GONE && k < b.len && last; k++)
				last = ((const uint16_t *) (at + sizeof(b)))[k] != a.line;
		}
		n += a.kind == GPUVEC_FEED_ROW && last;
	}
	return n;
}

/* Append a record as it is sent: that of a row with the ids that are */
static void
send_record(buffer *b, const char *from, size_t bytes)
{
	static const char zeros[8] = {0};
	const uint16_t *ids = (const uint16_t *) (from + sizeof(gpuvec_feed_record));
	gpuvec_feed_record record;
	size_t		start = b->length;
	uint32_t	len;

	memcpy(&record, from, sizeof(record));
	if (record.kind != GPUVEC_FEED_ROW)
	{
		buffer_add(b, from, bytes);
		return;
	}
	buffer_add(b, &record, sizeof(record));
	record.form = add_ids(b, ids, record.len) ? GPUVEC_FORM_WIDE : 0;
	record.form |= model_values ? GPUVEC_FORM_VALUES : 0;
	len = gpuvec_feed_record_len(record.form, record.len);
	buffer_add(b, zeros, (4 - b->length % 4) % 4);
	add_values(b, ids, record.len);
	buffer_add(b, zeros, start + gpuvec_feed_record_bytes(len, 0) - b->length);
	add_filter_keys(b, ids, record.len);
	record.len = len;
	record.nfilter_keys = gpuvec_filter_keys(model_filters);
	memcpy(b->data + start, &record, sizeof(record));
}

/* A message with the records (from, to] */
static void
rows_message(const fed_table *t, uint64_t from, uint64_t to, buffer *b)
{
	gpuvec_rows head = {.key = t->mirror.key,.feed = FEED,.from = from,.to = to};

	b->length = 0;
	buffer_add(b, &head, sizeof(head));
	for (uint64_t i = from; i < to; i++)
		send_record(b, t->records.data + t->starts[i], t->starts[i + 1] - t->starts[i]);
}

/* Send records; true if the engine answers with a state */
static bool
send_rows(client *c, const fed_table *t, uint64_t from, uint64_t to)
{
	buffer		b = {0};
	bool		ok;

	rows_message(t, from, to, &b);
	ok = client_call(c, GPUVEC_MSG_ROWS, b.data, b.length, GPUVEC_MSG_STATE);
	free(b.data);
	return ok;
}

/* The same, as often as it takes until the merger lets rows in */
static bool
send_rows_again(client *c, const fed_table *t, uint64_t from, uint64_t to)
{
	while (send_rows(c, t, from, to))
	{
		if (client_state(c).state != GPUVEC_LOADING)
			return true;
		usleep(1000);
	}
	return false;
}

/* The mirror has applied the records up to this one: so does its model */
static void
follow(fed_table *t, uint64_t to, const gpuvec_state *state)
{
	t->rows += rows_brought(t, to);
	t->updates++;
	for (uint64_t number = t->applied + 1; number <= to; number++)
		apply_record(t, number);
	t->applied = to;
	for (uint32_t block = 0; block < t->mirror.nblocks; block++)
		if (t->mirror.pages[block].refresh == UINT64_MAX)
			t->mirror.pages[block].refresh = state->refresh;
}

/* Apply records, and compare the mirror's state with the model's */
static bool
apply_rows(client *c, fed_table *t, uint64_t from, uint64_t to)
{
	gpuvec_state state;

	if (!check(send_rows_again(c, t, from, to), "rows are applied"))
		return false;
	state = client_state(c);
	follow(t, to, &state);
	check(state.refresh > t->mirror.refresh, "rows are a refresh of their own");
	t->mirror.refresh = state.refresh;
	return check(state.state == GPUVEC_READY && state.feed == FEED && state.applied == to &&
				 state.checked == t->mirror.position, "they are as far as they say, and the position stays") &&
		check(state.nblocks == t->mirror.nblocks, "pages come with their rows") &&
		check(state.nrows == model_nrows(&t->mirror), "all rows are there");
}

/* Messages that may say nothing new: the mirror stays as it is */
static bool
apply_nothing(client *c, const fed_table *t, uint64_t from, uint64_t to)
{
	gpuvec_state state;

	if (!check(send_rows_again(c, t, from, to), "rows are answered"))
		return false;
	state = client_state(c);
	return check(state.state == GPUVEC_READY && state.refresh == t->mirror.refresh &&
				 state.applied == t->applied && state.nrows == model_nrows(&t->mirror) &&
				 state.nblocks == t->mirror.nblocks, "nothing happens");
}

/* Check the LSNs that the engine answers when a refresh begins */
static void
check_lsns(const client *c, const model *m)
{
	gpuvec_state state = client_state(c);
	uint64_t	lsn;

	check(state.nblocks == m->nblocks &&
		  c->frame.length == sizeof(state) + state.nblocks * sizeof(lsn), "all LSNs are there");
	for (uint32_t block = 0; block < state.nblocks && block < m->nblocks; block++)
	{
		memcpy(&lsn, c->data + sizeof(state) + block * sizeof(lsn), sizeof(lsn));
		if (lsn != m->pages[block].lsn)
			check(false, "pages have the LSN that they were read with, or none after rows");
	}
}

/* Commit the pages that were sent, which are the table's from here on */
static bool
commit_pages(client *c, fed_table *t, uint64_t applied)
{
	model	   *m = &t->mirror;
	gpuvec_commit commit = {.position = m->position + 1,.feed = applied ? FEED : 0,.applied = applied,
		.nblocks = m->nblocks
	};
	gpuvec_state state;

	if (!check(client_call(c, GPUVEC_MSG_COMMIT, &commit, sizeof(commit), GPUVEC_MSG_STATE), "commit"))
		return false;
	state = client_state(c);
	m->position = commit.position;
	m->refresh = state.refresh;
	if (applied > t->applied)
		t->applied = applied;
	for (uint32_t block = 0; block < m->nblocks; block++)
	{
		if (m->pages[block].dirty)
			m->pages[block].refresh = state.refresh;
		m->pages[block].dirty = false;
	}
	return check(state.nrows == model_nrows(m) && state.nblocks == m->nblocks &&
				 state.applied == t->applied, "the mirror is as its pages");
}

/* Load the mirror */
static bool
load_table(client *c, fed_table *t)
{
	gpuvec_load load = {.key = t->mirror.key,.nblocks = t->table.nblocks};

	if (!check(client_call(c, GPUVEC_MSG_LOAD_BEGIN, &load, sizeof(load), GPUVEC_MSG_STATE), "load"))
		return false;
	set_pages(&t->mirror, t->table.nblocks);
	for (uint32_t block = 0; block < t->table.nblocks; block++)
		copy_page(t, block);
	model_send_pages(c, &t->mirror, true);
	return commit_pages(c, t, t->number);
}

/* Mark the pages of the table that records tell of which are not applied */
static void
mark_changed(const fed_table *t, bool *wanted)
{
	for (uint64_t i = t->applied; i < t->number; i++)
	{
		gpuvec_feed_record record;

		memcpy(&record, t->records.data + t->starts[i], sizeof(record));
		if (record.block < t->table.nblocks)
			wanted[record.block] = true;
	}
}

/*
 * Refresh the mirror by pages: those that have changed, so that all records
 * are applied, or any
 */
static bool
refresh_table(client *c, fed_table *t, bool complete)
{
	uint32_t	nblocks = t->table.nblocks;
	bool	   *wanted = calloc(nblocks + 1, sizeof(bool));

	if (complete)
		mark_changed(t, wanted);
	for (uint64_t i = random_below(4); i > 0 && nblocks > 0; i--)
		wanted[random_below(nblocks)] = true;
	for (uint32_t block = t->mirror.nblocks; block < nblocks; block++)
		wanted[block] = true;
	check(client_call(c, GPUVEC_MSG_REFRESH_BEGIN, REFRESH(&t->mirror.key), GPUVEC_MSG_STATE) &&
		  client_state(c).state == GPUVEC_READY, "a refresh begins");
	check_lsns(c, &t->mirror);
	set_pages(&t->mirror, nblocks);
	for (uint32_t block = 0; block < nblocks; block++)
		if (wanted[block])
			copy_page(t, block);
	free(wanted);
	model_send_pages(c, &t->mirror, false);
	return commit_pages(c, t, complete ? t->number : t->applied);
}

/* With all records applied, the mirror's rows are the table's */
static void
check_table(const fed_table *t)
{
	bool		same = model_nrows(&t->table) == model_nrows(&t->mirror);

	for (uint32_t block = 0; same && block < t->table.nblocks && block < t->mirror.nblocks; block++)
	{
		const model_page *a = &t->table.pages[block];
		const model_page *b = &t->mirror.pages[block];

		same = a->nrows == b->nrows;
		for (uint32_t i = 0; same && i < a->nrows; i++)
			same = a->rows[i].line / 2 == b->rows[i].line / 2 && a->rows[i].len == b->rows[i].len &&
				memcmp(a->rows[i].ids, b->rows[i].ids, a->rows[i].len * sizeof(uint16_t)) == 0;
	}
	check(same, "once all is applied, the mirror has the rows of the table");
}

/* A table before anything happens to it; there is no line pointer 0 */
static model
first_table(uint32_t relation, uint32_t nblocks)
{
	model		m = model_new(relation, nblocks, &small);

	for (uint32_t block = 0; block < nblocks; block++)
		remove_row(&m.pages[block], 0);
	return m;
}

/*
 * A table whose feed has begun: a load of one without records says that it
 * knows of no feed.  Truncating a table of no pages makes no record.
 */
static fed_table
fed_table_new(uint32_t relation, uint32_t nblocks)
{
	fed_table	t = {.table = first_table(relation, nblocks),.mirror = model_new(relation, 0, &none)};

	/* the mirror of an index; no page of it is sent as all-visible */
	t.mirror.key.rooted = t.table.key.rooted = 1;
	t.starts = calloc(1, sizeof(size_t));
	while (t.number == 0)
		change_table(&t);
	return t;
}

static void
fed_table_free(fed_table *t)
{
	model_free(&t->table);
	model_free(&t->mirror);
	free(t->records.data);
	free(t->starts);
}

/* The mirror follows its table by one step */
static bool
follow_table(client *c, fed_table *t)
{
	uint64_t	waiting = t->number - t->applied;
	uint64_t	overlap = random_below(3) ? 0 : random_below(t->applied < 20 ? t->applied + 1 : 20);

	switch (random_below(12))
	{
		case 0:
			return refresh_table(c, t, true);
		case 1:
			return refresh_table(c, t, false);
		case 2:
			return apply_nothing(c, t, t->applied - overlap, t->applied);
		case 3:
			return random_below(20) != 0 || load_table(c, t);
		default:
			return waiting == 0 ||
				apply_rows(c, t, t->applied - overlap,
						   t->applied + 1 + (random_below(3) ? random_below(waiting) : waiting - 1));
	}
}

/* What the engine has counted */
static void
check_counts(client *c, const fed_table *t)
{
	gpuvec_mirror_info info;

	check(client_mirror_info(c, &t->mirror.key, &info), "the mirror is listed");
	check(info.feed == FEED && info.applied == t->applied, "with its feed");
	check(info.row_updates == t->updates && info.rows_applied == t->rows, "and the rows that came by it");
	check(info.pages_done == t->mirror.nblocks && info.pages_total == t->mirror.nblocks, "and all pages");
}

static void
rows_rounds(const char *fault, uint32_t nblocks, int rounds, uint32_t most)
{
	engine		e = engine_start(fault, plain);
	client		c = client_open(&e);
	fed_table	t = fed_table_new(100, nblocks);
	bool		ok = load_table(&c, &t);

	for (int round = 0; round < rounds && ok; round++)
	{
		for (uint64_t i = random_below(random_below(10) ? 4 : most); i > 0; i--)
			change_table(&t);
		ok = follow_table(&c, &t) && model_check_random(&c, &t.mirror, &small);
		if (t.applied == t.number)
			check_table(&t);
	}
	check_counts(&c, &t);
	fed_table_free(&t);
	client_close(&c);
	engine_stop(&e);
}

/* Random histories of a table, whose mirror follows by rows and by pages */
void
test_rows(void)
{
	rows_rounds("lists:1", 0, 400, 40);
	rows_rounds("lists:1", 40, 800, 60);
	rows_rounds("slow-merge:15", 300, 500, 400);
}

/* The same with large ids, of which many, or all, have cold numbers */
void
test_rows_wide(void)
{
	wide_from = 120;
	rows_rounds("lists:1", 0, 400, 40);
	rows_rounds("lists:1,first-number:65500", 40, 800, 60);
	rows_rounds("slow-merge:15,first-number:65400", 300, 400, 400);
	wide_from = 5;
	test_rows_concurrency();
	wide_from = 0;
}

/* Rows with values, narrow and wide, some with filter columns */
void
test_rows_values(void)
{
	model_values = true;
	rows_rounds("lists:1", 0, 400, 40);
	wide_from = 120;
	rows_rounds("lists:1,first-number:65500", 40, 800, 60);
	model_filters = 2;
	rows_rounds("slow-merge:15,first-number:65400", 300, 400, 400);
	test_rows_concurrency();
	wide_from = model_filters = 0;
	model_values = false;
}

/* Rows with filter columns, narrow and wide */
void
test_rows_filters(void)
{
	model_filters = 3;
	rows_rounds("lists:1", 0, 400, 40);
	wide_from = 120;
	rows_rounds("slow-merge:15,first-number:65400", 300, 400, 400);
	test_rows_concurrency();
	wide_from = 0;
	model_filters = 0;
}

/*
 * A page whose rows are again what they were when it was read, after rows
 * came to it that are not on it any more
 */
void
test_rows_pages(void)
{
	engine		e = engine_start("lists:1", plain);
	client		c = client_open(&e);
	uint64_t	state = random_state;
	fed_table	t = fed_table_new(100, 10);
	gpuvec_mirror_info before;
	gpuvec_mirror_info after;

	check(load_table(&c, &t), "load");
	for (uint32_t block = 0; block < 10; block++)
		insert_row(&t, block, 2 + 2 * (uint16_t) random_below(LINES));
	check(apply_rows(&c, &t, t.applied, t.number), "rows come");
	check(model_check_random(&c, &t.mirror, &small), "and are found");

	/* the pages as they were, made by the same random numbers */
	client_mirror_info(&c, &t.mirror.key, &before);
	model_free(&t.table);
	random_state = state;
	t.table = first_table(100, 10);
	for (uint32_t block = 0; block < 10; block++)
		copy_page(&t, block);
	check(client_call(&c, GPUVEC_MSG_REFRESH_BEGIN, REFRESH(&t.mirror.key), GPUVEC_MSG_STATE), "a refresh");
	model_send_pages(&c, &t.mirror, false);
	check(commit_pages(&c, &t, t.number), "of the pages as they were when they were loaded");
	check(model_check_random(&c, &t.mirror, &small), "brings back what they had");
	client_mirror_info(&c, &t.mirror.key, &after);
	check(after.page_rows - before.page_rows == model_nrows(&t.table) && after.refreshes == before.refreshes + 1,
		  "and all their rows came");
	check_counts(&c, &t);

	/* a refresh that does not know of the feed ends it */
	t.applied = 0;
	model_rewrite_page(&t.mirror, 3, &small);
	check(client_call(&c, GPUVEC_MSG_REFRESH_BEGIN, REFRESH(&t.mirror.key), GPUVEC_MSG_STATE), "a refresh");
	model_send_pages(&c, &t.mirror, false);
	check(commit_pages(&c, &t, 0) && client_state(&c).feed == 0, "without a number of the feed");
	insert_row(&t, 3, 4);
	check(send_rows(&c, &t, 0, t.number) && client_state(&c).feed == 0 &&
		  client_state(&c).nrows == model_nrows(&t.mirror), "takes no rows afterwards");
	check(model_check_random(&c, &t.mirror, &small), "which might be older");
	fed_table_free(&t);
	client_close(&c);
	engine_stop(&e);
}

/* Records that are late, early, twice, of another feed, far away, or none */
void
test_rows_messages(void)
{
	engine		e = engine_start(NULL, plain);
	client		c = client_open(&e);
	fed_table	t = fed_table_new(100, 10);
	gpuvec_rows head = {.key = t.mirror.key,.feed = FEED};
	buffer		b = {0};
	uint64_t	loaded;

	check(client_call(&c, GPUVEC_MSG_ROWS, &head, sizeof(head), GPUVEC_MSG_STATE) &&
		  client_state(&c).state == GPUVEC_ABSENT, "rows of no mirror");
	for (int i = 0; i < 10; i++)
		change_table(&t);
	check(load_table(&c, &t), "load");
	loaded = t.applied;
	for (int i = 0; i < 40; i++)
		change_table(&t);
	check(apply_nothing(&c, &t, loaded + 1, loaded + 10), "rows behind others that are missing");
	check(apply_rows(&c, &t, loaded - 3, loaded + 10), "rows of which some are applied");
	check(apply_nothing(&c, &t, loaded, loaded + 10), "the same again");
	check(apply_nothing(&c, &t, loaded - 3, loaded + 4), "some of them again");
	check(apply_nothing(&c, &t, t.applied, t.applied), "none");
	check(model_check_random(&c, &t.mirror, &small), "a search");

	rows_message(&t, t.applied, t.number, &b);
	((gpuvec_rows *) b.data)->feed++;
	check(client_call(&c, GPUVEC_MSG_ROWS, b.data, b.length, GPUVEC_MSG_STATE) &&
		  client_state(&c).refresh == t.mirror.refresh && client_state(&c).feed == FEED, "rows of another feed");
	check(apply_rows(&c, &t, t.applied, t.number), "rows of this one");

	/* a record that is far behind the last page */
	insert_row(&t, t.table.nblocks, 2);
	rows_message(&t, t.applied, t.number, &b);
	((gpuvec_feed_record *) (b.data + sizeof(gpuvec_rows)))->block = UINT32_MAX - 1;
	check(client_call(&c, GPUVEC_MSG_ROWS, b.data, b.length, GPUVEC_MSG_STATE) &&
		  client_state(&c).refresh == t.mirror.refresh && client_state(&c).nblocks == t.mirror.nblocks,
		  "a page far behind the others");
	check(apply_rows(&c, &t, t.applied, t.number), "the next page");

	/* a line pointer that gets rows and loses them, within one message */
	insert_row(&t, 3, 8);
	insert_row(&t, 3, 8);
	remove_rows(&t, 3, 1);
	insert_row(&t, 3, 8);
	insert_row(&t, 3, 10);
	remove_rows(&t, 3, 1);
	insert_row(&t, 3, 10);
	check(apply_rows(&c, &t, t.applied, t.number), "the last record counts");
	check(t.mirror.pages[3].nrows == 1, "and is the only one");
	check_table(&t);
	check(model_check_random(&c, &t.mirror, &small), "a search");
	check_counts(&c, &t);
	free(b.data);
	fed_table_free(&t);
	client_close(&c);
	engine_stop(&e);
}

/* A message with two records, to be spoilt */
typedef struct two_records
{
	gpuvec_rows head;
	gpuvec_feed_record row;
	uint16_t	ids[4];
	gpuvec_feed_record gone;
	uint16_t	lines[4];
} two_records;

static void
expect_bad_rows(const engine *e, const two_records *r, size_t size, const char *what)
{
	client		c = client_open(e);

	check(!client_call(&c, GPUVEC_MSG_ROWS, r, size, GPUVEC_MSG_STATE) && client_failed_with(&c, "08P01"), what);
	check(!client_read(&c), "and the connection is closed");
	client_close(&c);
}

/* Rows while the session itself loads */
static void
expect_out_of_place(const engine *e, const two_records *r)
{
	client		c = client_open(e);
	gpuvec_load load = {.key = {.database = 9,.relation = 1}};

	check(client_call(&c, GPUVEC_MSG_LOAD_BEGIN, &load, sizeof(load), GPUVEC_MSG_STATE), "a load");
	check(!client_call(&c, GPUVEC_MSG_ROWS, r, sizeof(*r), GPUVEC_MSG_STATE) && client_failed_with(&c, "08P01"),
		  "rows in the middle of a load");
	client_close(&c);
}

/* A record of a row with values that break a rule */
static void
bad_values(const engine *e, const gpuvec_mirror_key *key)
{
	struct
	{
		gpuvec_rows head;
		gpuvec_feed_record row;
		uint16_t	ids[4];		/* one pads */
		float		values[3];
		float		padding;
	}			r;

#define BAD_VALUE(change, what) \
	do { \
		client c = client_open(e); \
		memset(&r, 0, sizeof(r)); \
		r.head = (gpuvec_rows) {.key = *key,.feed = FEED,.to = 1}; \
		r.head.key.values = 1; \
		r.row = (gpuvec_feed_record) {.kind = GPUVEC_FEED_ROW,.line = 2,.form = GPUVEC_FORM_VALUES,.len = 10}; \
		for (int i = 0; i < 3; i++) \
			r.ids[i] = (uint16_t) (i + 1), r.values[i] = (float) i - 0.5f; \
		change; \
		check(!client_call(&c, GPUVEC_MSG_ROWS, &r, sizeof(r), GPUVEC_MSG_STATE) && \
			  client_failed_with(&c, "08P01"), what); \
		client_close(&c); \
	} while (0)
	BAD_VALUE(r.values[0] = NAN, "a fed value that is no number");
	BAD_VALUE(r.values[1] = INFINITY, "an infinite fed value");
	BAD_VALUE(r.values[2] = 0, "a fed value of 0");
	BAD_VALUE(r.row.len = 9, "a part of a value");
	BAD_VALUE(r.row.len = 11, "more than values");
	BAD_VALUE(r.row.len = 12, "padding as a value");
	BAD_VALUE(r.row.form |= GPUVEC_FORM_WIDE, "other bytes than wide ids with values take");
	BAD_VALUE((r.row.form = 0, r.row.len = 3), "no values");
}

void
test_rows_violations(void)
{
	engine		e = engine_start(NULL, plain);
	client		c = client_open(&e);
	fed_table	t = fed_table_new(100, 10);
	two_records good = {
		.head = {.key = t.mirror.key,.feed = FEED,.from = 1,.to = 3},
		.row = {.kind = GPUVEC_FEED_ROW,.line = 2,.block = 1,.len = 4},.ids = {1, 2, 3, 65535},
		.gone = {.kind = GPUVEC_FEED_GONE,.block = 2,.len = 3},.lines = {2, 4, 4094}
	};
	two_records r;

	check(load_table(&c, &t), "load");
#define BAD(change, what) \
	do { r = good; change; expect_bad_rows(&e, &r, sizeof(r), what); } while (0)
	expect_bad_rows(&e, &good, sizeof(gpuvec_rows) - 1, "a head that is cut off");
	expect_bad_rows(&e, &good, sizeof(gpuvec_rows) + 8, "a record that is cut off");
	expect_bad_rows(&e, &good, sizeof(good) - 8, "values that are cut off");
	expect_bad_rows(&e, &good, sizeof(good) - 1, "padding that is cut off");
	BAD(r.head.key.key_attnum = 1, "rows of an embedding table");
	BAD(r.head.feed = 0, "no feed");
	BAD(r.head.keep = 2, "kept more than once");
	BAD(r.head.to = 2, "more records than said");
	BAD(r.head.to = 4, "fewer records than said");
	BAD((r.head.from = 3, r.head.to = 1), "records backwards");
	BAD(r.row.kind = 0, "no kind");
	BAD(r.row.kind = GPUVEC_FEED_PAGE, "a page");
	BAD(r.row.kind = GPUVEC_FEED_ALL, "all pages");
	BAD(r.row.kind = GPUVEC_FEED_PAD, "padding");
	BAD(r.row.block = UINT32_MAX, "a block that cannot be");
	BAD(r.row.line = 0, "line 0");
	BAD(r.row.line = 3, "an odd line");
	BAD(r.row.line = 4096, "a line that cannot be");
	BAD(r.row.len = GPUVEC_MAX_IDS + 1, "more ids than can be");
	BAD(r.row.len = UINT32_MAX, "far more ids than can be");
	BAD(r.row.len = 12, "ids of the next record");
	BAD(r.ids[1] = 1, "ids twice");
	BAD(r.ids[1] = 9, "ids not in order");
	BAD((r.row.form = GPUVEC_FORM_WIDE, r.ids[3] = 1), "wide ids not in order");
	BAD((r.row.form = GPUVEC_FORM_WIDE, r.row.len = 3), "half of a wide id");
	BAD(r.row.form = 4, "neither narrow nor wide");
	BAD(r.row.form = GPUVEC_FORM_VALUES, "values of a mirror without");
	BAD(r.head.key.values = 1, "no values of a mirror with some");
	BAD(r.head.key.values = 2, "an unknown kind of rows");
	bad_values(&e, &good.head.key);
	BAD(r.gone.form = GPUVEC_FORM_WIDE, "wide lines");
	BAD(r.gone.block = UINT32_MAX, "a block that cannot be");
	BAD(r.gone.line = 2, "a line of its own");
	BAD(r.gone.len = 5, "more lines than there are");
	BAD(r.lines[0] = 0, "line 0");
	BAD(r.lines[0] = 3, "an odd line");
	BAD(r.lines[1] = 2, "lines twice");
	BAD(r.lines[1] = 4096, "lines not in order");
	BAD(r.lines[2] = 4096, "a line that cannot be");
	expect_out_of_place(&e, &good);
	check(client_call(&c, GPUVEC_MSG_ROWS, &good, sizeof(good), GPUVEC_MSG_STATE) &&
		  client_state(&c).applied == 3, "the same rows, not spoilt");
	fed_table_free(&t);
	client_close(&c);
	engine_stop(&e);
}

/*
 * Send two new rows, which take half a second, and give the engine time to
 * begin
 */
static void
apply_slowly(client *c, fed_table *t)
{
	buffer		b = {0};

	insert_row(t, 3, 4);
	insert_row(t, 3, 6);
	rows_message(t, t->applied, t->number, &b);
	check(client_send(c, GPUVEC_MSG_ROWS, b.data, b.length), "rows are sent");
	free(b.data);
	usleep(50000);
}

/*
 * Read the answer to rows.  True if they were applied; false if something
 * else was faster, and is in their way.
 */
static bool
were_applied(client *c, fed_table *t)
{
	gpuvec_state state = {0};

	if (client_read(c) && c->frame.type == GPUVEC_MSG_STATE)
		state = client_state(c);
	if (state.state == GPUVEC_LOADING)
		return false;
	check(state.state == GPUVEC_READY && state.applied == t->number, "rows are applied");
	follow(t, t->number, &state);
	return true;
}

/*
 * Send the second of two rows, which cannot be applied before the first,
 * while another session's rows are applied.  False if that had not begun.
 */
static bool
wait_for_rows(client *c, client *other, fed_table *t)
{
	gpuvec_state state;
	bool		waited;

	apply_slowly(c, t);
	check(send_rows(other, t, t->number - 1, t->number), "rows are answered");
	state = client_state(other);
	check(state.state == GPUVEC_READY, "rows are not in the way of rows");
	waited = state.state != GPUVEC_READY || state.applied == t->number;
	check(were_applied(c, t), "those before them neither");
	return waited;
}

/*
 * Load or refresh while rows are applied.  False if that had not begun.
 */
static bool
wait_with_pages(client *c, fed_table *t, client *d, bool with_load)
{
	gpuvec_load load = {.key = t->mirror.key};

	apply_slowly(c, t);
	if (with_load)
		check(client_call(d, GPUVEC_MSG_LOAD_BEGIN, &load, sizeof(load), GPUVEC_MSG_STATE) &&
			  client_state(d).state == GPUVEC_ABSENT, "a load begins");
	else
		check(client_call(d, GPUVEC_MSG_REFRESH_BEGIN, REFRESH(&t->mirror.key), GPUVEC_MSG_STATE) &&
			  client_state(d).state == GPUVEC_READY, "a refresh begins");
	if (!were_applied(c, t))
		return false;
	check(with_load || client_state(d).applied == t->number, "it has waited for rows");
	return true;
}

/*
 * Rows do not wait for a load or refresh.  Loads, refreshes and other rows
 * wait for rows.
 */
void
test_rows_busy(void)
{
	engine		e = engine_start("slow-rows:500", plain);
	client		c = client_open(&e);
	client		d = client_open(&e);
	client		other = client_open(&e);
	fed_table	t = fed_table_new(100, 10);
	gpuvec_state state;

	check(load_table(&c, &t), "load");
	change_table(&t);
	check(client_call(&d, GPUVEC_MSG_REFRESH_BEGIN, REFRESH(&t.mirror.key), GPUVEC_MSG_STATE), "a refresh");
	check(send_rows(&c, &t, t.applied, t.number) && client_state(&c).state == GPUVEC_LOADING,
		  "a refresh in the way of rows");
	check(send_rows(&c, &t, t.applied - 1, t.applied) && client_state(&c).state == GPUVEC_READY,
		  "but not of rows that are applied");
	client_close(&d);
	check(send_rows_again(&c, &t, t.applied, t.number), "its end lets them in");
	state = client_state(&c);
	check(state.applied == t.number, "and they are applied");
	follow(&t, t.number, &state);

	while (!wait_for_rows(&c, &other, &t))
		 /* again */ ;
	for (int with_load = 0; with_load < 2;)
	{
		d = client_open(&e);
		with_load += wait_with_pages(&c, &t, &d, with_load);
		client_close(&d);
	}
	fed_table_free(&t);
	client_close(&c);
	client_close(&other);
	engine_stop(&e);
}

/* Send records to be kept, or applied at once; the state is the answer's */
static gpuvec_state
keep_rows(client *c, const fed_table *t, uint64_t from, uint64_t to)
{
	buffer		b = {0};
	gpuvec_state state = {0};

	rows_message(t, from, to, &b);
	((gpuvec_rows *) b.data)->keep = 1;
	if (check(client_call(c, GPUVEC_MSG_ROWS, b.data, b.length, GPUVEC_MSG_STATE), "rows are kept"))
		state = client_state(c);
	free(b.data);
	return state;
}

/* Begin a refresh, and send the pages as they are by now */
static void
begin_refresh(client *c, fed_table *t)
{
	bool	   *wanted = calloc(t->table.nblocks + 1, sizeof(bool));

	mark_changed(t, wanted);
	check(client_call(c, GPUVEC_MSG_REFRESH_BEGIN, REFRESH(&t->mirror.key), GPUVEC_MSG_STATE) &&
		  client_state(c).state == GPUVEC_READY, "a refresh begins");
	for (uint32_t block = t->mirror.nblocks; block < t->table.nblocks; block++)
		wanted[block] = true;
	set_pages(&t->mirror, t->table.nblocks);
	for (uint32_t block = 0; block < t->table.nblocks; block++)
		if (wanted[block])
			copy_page(t, block);
	free(wanted);
	model_send_pages(c, &t->mirror, false);
}

/*
 * Change the table and send records to be kept, a few at a time, while a
 * refresh is under way.  Some are sent twice.  Returns the first that was not
 * sent before these.
 */
static uint64_t
keep_some(client *c, fed_table *t, uint64_t from, bool all)
{
	uint64_t	first = from;
	uint64_t	kept = from;

	for (uint64_t i = 1 + random_below(5); i > 0; i--)
	{
		uint64_t	again = random_below(3);
		gpuvec_state state;

		for (uint64_t n = random_below(12); n > 0; n--)
			change_table(t);
		from = kept - first < again ? first : kept - again;
		state = keep_rows(c, t, from, t->number);
		if (t->number > kept)
			kept = t->number;
		check(state.state == GPUVEC_READY && state.applied == t->applied, "nothing is applied");
		if (all)
			check(kept == first || (state.kept_from == first && state.kept == kept), "all are kept");
		else
			check(state.kept == 0 || (state.kept_from >= first && state.kept == kept), "the last are kept");
		if (!all)
			first = state.kept != 0 ? state.kept_from : kept;
	}
	return first;
}

/* The rows that were kept are applied, if none is missing before them */
static void
apply_kept(client *c, fed_table *t, uint64_t first)
{
	gpuvec_state state = keep_rows(c, t, t->number, t->number);

	if (first <= t->applied)
	{
		check(state.applied == t->number && state.kept == 0, "what was kept is applied");
		follow(t, t->number, &state);
		t->mirror.refresh = state.refresh;
		check(state.nrows == model_nrows(&t->mirror), "all rows are there");
	}
	else
	{
		check(state.applied == t->applied && (state.kept == t->number || first == t->number),
			  "rows are missing before those kept");
		refresh_table(c, t, true);
	}
	check_table(t);
}

static void
rows_kept(const char *fault, int rounds)
{
	engine		e = engine_start(fault, plain);
	client		c = client_open(&e);
	client		d = client_open(&e);
	fed_table	t = fed_table_new(100, 10);

	check(load_table(&c, &t), "load");
	for (int round = 0; round < rounds; round++)
	{
		uint64_t	from = t.number;
		uint64_t	number;
		uint64_t	first;

		for (uint64_t i = random_below(20); i > 0; i--)
			change_table(&t);
		begin_refresh(&d, &t);
		number = t.number;
		/* what is missing is sometimes what the refresh brings, and not always */
		if (random_below(2) == 0 && number > from)
			from = number - random_below(number - from + 1);
		if (random_below(4) == 0)
		{
			change_table(&t);
			from = t.number - random_below(2);
		}
		first = keep_some(&c, &t, from, fault == NULL);
		commit_pages(&d, &t, number);
		check(model_check_random(&c, &t.mirror, &small), "a search of what the refresh brought");
		apply_kept(&c, &t, first);
		check(model_check_random(&c, &t.mirror, &small), "a search");
	}
	fed_table_free(&t);
	client_close(&c);
	client_close(&d);
	engine_stop(&e);
}

/* What becomes of kept rows without a refresh that needs them */
static void
rows_kept_in_vain(void)
{
	engine		e = engine_start(NULL, plain);
	client		c = client_open(&e);
	client		d = client_open(&e);
	fed_table	t = fed_table_new(100, 10);
	gpuvec_state state;

	insert_row(&t, 1, 2);
	state = keep_rows(&c, &t, 0, 1);
	check(state.state == GPUVEC_ABSENT && state.kept == 0, "nothing is kept for no mirror");
	check(load_table(&c, &t), "load");
	change_table(&t);
	state = keep_rows(&c, &t, t.applied, t.number);
	check(state.applied == t.number && state.kept == 0, "what can be applied is");
	follow(&t, t.number, &state);
	begin_refresh(&d, &t);
	change_table(&t);
	change_table(&t);
	state = keep_rows(&c, &t, t.number - 1, t.number);
	check(state.kept_from == t.number - 1, "one is kept");
	change_table(&t);
	change_table(&t);
	state = keep_rows(&c, &t, t.number - 1, t.number);
	check(state.kept_from == t.number - 1 && state.kept == t.number, "not those before a gap");
	t.applied = 0;
	commit_pages(&d, &t, 0);
	state = keep_rows(&c, &t, t.number, t.number);
	check(state.feed == 0 && state.kept == 0, "a refresh that ends the feed ends keeping");
	fed_table_free(&t);
	client_close(&c);
	client_close(&d);
	engine_stop(&e);
}

/* Keep n new rows of a table, one by one */
static gpuvec_state
keep_new(client *c, fed_table *t, int n)
{
	gpuvec_state state = {0};

	while (n-- > 0)
	{
		insert_row(t, 3, 4);
		state = keep_rows(c, t, t->number - 1, t->number);
	}
	return state;
}

/* Rows that a slower session sends once more take nothing from those kept */
static void
rows_kept_late(void)
{
	engine		e = engine_start(NULL, plain);
	client		c = client_open(&e);
	client		d = client_open(&e);
	fed_table	t = fed_table_new(100, 10);
	gpuvec_state state;
	uint64_t	first;

	check(load_table(&c, &t), "load");
	begin_refresh(&d, &t);
	first = t.number;
	(void) keep_new(&c, &t, 5);
	state = keep_rows(&c, &t, first, first + 3);
	check(state.kept_from == first && state.kept == first + 5, "the later rows are still kept");
	commit_pages(&d, &t, first);
	apply_kept(&c, &t, first);
	check(model_check_random(&c, &t.mirror, &small), "a search");
	fed_table_free(&t);
	client_close(&c);
	client_close(&d);
	engine_stop(&e);
}

/* Rows that are kept for one mirror do not keep out those for another */
static void
rows_kept_for_two(void)
{
	engine		e = engine_start("kept-bytes:400", plain);
	client		c = client_open(&e);
	client		d[2] = {client_open(&e), client_open(&e)};
	fed_table	t[2] = {fed_table_new(100, 10), fed_table_new(101, 10)};

	for (int i = 0; i < 2; i++)
	{
		gpuvec_state state;

		check(load_table(&c, &t[i]), "load");
		begin_refresh(&d[i], &t[i]);
		state = keep_new(&c, &t[i], 50);
		check(state.kept == t[i].number && state.kept > state.kept_from + 1, "some are kept for each");
	}
	for (int i = 0; i < 2; i++)
	{
		client_close(&d[i]);
		fed_table_free(&t[i]);
	}
	client_close(&c);
	engine_stop(&e);
}

/* A mirror is dropped: with all others, those of its database, or alone */
static void
let_go(client *c, fed_table *t, int how)
{
	gpuvec_mirror_key key = t->mirror.key;
	gpuvec_drop drop = {.database = how == 0 ? 0 : key.database,.relation = how <= 1 ? 0 : key.relation,.attnum = how <= 1 ? 0 : key.attnum};

	check(client_call(c, GPUVEC_MSG_DROP, &drop, sizeof(drop), GPUVEC_MSG_COUNT) && *(uint64_t *) c->data == 1, "one is dropped");
}

/* What was kept for mirrors that have gone is not in the way of others */
static void
rows_kept_dropped(void)
{
	engine		e = engine_start("kept-bytes:400", plain);
	client		c = client_open(&e);

	for (int i = 0; i < 9; i++)
	{
		client		d = client_open(&e);
		fed_table	t = fed_table_new(100 + i, 10);
		gpuvec_state state;

		check(load_table(&c, &t), "load");
		begin_refresh(&d, &t);
		state = keep_new(&c, &t, 50);
		check(state.kept == t.number && state.kept > state.kept_from + 1, "some are kept, whatever was for others before");
		let_go(&c, &t, i % 3);
		client_close(&d);
		fed_table_free(&t);
	}
	client_close(&c);
	engine_stop(&e);
}

/* Rows that come while pages are read */
void
test_rows_kept(void)
{
	rows_kept(NULL, 300);
	rows_kept("kept-bytes:400", 300);
	rows_kept_in_vain();
	rows_kept_late();
	rows_kept_for_two();
	rows_kept_dropped();
}

/* A table of which rows come while the engine finds no memory */
static bool
ask_rows(client *c, void *arg)
{
	fed_table  *t = arg;
	gpuvec_state state;

	if (t->applied == t->number)
		for (int i = 0; i < 30; i++)
			change_table(t);
	if (!send_rows_again(c, t, t->applied, t->number))
		return false;
	state = client_state(c);
	if (state.state == GPUVEC_ABSENT)
		return true;
	if (state.applied != t->number)
		return false;
	follow(t, t->number, &state);
	t->mirror.refresh = state.refresh;
	return true;
}

/*
 * Load a mirror again that the engine gave up, as it had no memory to rebuild
 * it
 */
static bool
bring_back(client *c, fed_table *t)
{
	if (!client_call(c, GPUVEC_MSG_STAT, &t->mirror.key, sizeof(t->mirror.key), GPUVEC_MSG_STATE))
		return false;
	if (client_state(c).state != GPUVEC_ABSENT)
		return true;
	t->updates = t->rows = 0;
	t->mirror.refresh = 0;
	return load_table(c, t);
}

static bool
rows_again(client *c, void *arg)
{
	fed_table  *t = arg;

	return bring_back(c, t) && model_check_random(c, &t->mirror, &small) && ask_rows(c, t) &&
		bring_back(c, t) && model_check_random(c, &t->mirror, &small);
}

/* Rows that may be kept, and are applied once nothing is in the way */
static bool
ask_kept(client *c, fed_table *t)
{
	gpuvec_state state;

	insert_row(t, 3, 4);
	state = keep_rows(c, t, t->applied, t->number);
	for (double begin = seconds(); state.applied != t->number && seconds() - begin < patience();)
	{
		usleep(1000);
		state = keep_rows(c, t, t->number, t->number);
	}
	if (!check(state.applied == t->number, "what was kept is applied"))
		return false;
	follow(t, t->number, &state);
	t->mirror.refresh = state.refresh;
	return true;
}

/* All that a mirror with a feed may meet, from its load to its end */
static bool
ask_life(client *c, void *arg)
{
	fed_table  *t = arg;
	gpuvec_drop drop = {.database = t->mirror.key.database,.relation = t->mirror.key.relation};

	return rows_again(c, arg) && ask_rows(c, arg) && ask_rows(c, arg) && ask_kept(c, t) &&
		client_call(c, GPUVEC_MSG_DROP, &drop, sizeof(drop), GPUVEC_MSG_COUNT);
}

void
test_rows_memory(void)
{
	engine		e = memory_engine();
	client		c = client_open(&e);
	fed_table	t = fed_table_new(100, 40);

	check(load_table(&c, &t), "load");
	memory_try(&e, &c, "rows", ask_rows, rows_again, &t, false);
	check(bring_back(&c, &t), "the mirror is there");
	check_counts(&c, &t);
	memory_none_lost(&c, "mirrors with feeds lose no memory", ask_life, &t, false);
	fed_table_free(&t);
	client_close(&c);
	memory_engine_stop(&e);
}

/*
 * Rows that keep coming, one by one, do not keep segments from being merged,
 * nor do merges lose any
 */
void
test_rows_merges(void)
{
	engine		e = engine_start("slow-merge:1", plain);
	client		c = client_open(&e);
	fed_table	t = fed_table_new(100, 200);
	gpuvec_mirror_info info;
	uint32_t	most = 0;
	bool		ok = load_table(&c, &t);

	for (int round = 0; round < 3000 && ok; round++)
	{
		change_table(&t);
		ok = t.number == t.applied || apply_rows(&c, &t, t.applied, t.number);
		if (round % 50 == 0 && client_mirror_info(&c, &t.mirror.key, &info) && info.nsegments > most)
			most = info.nsegments;
		if (round % 100 == 0)
			ok = ok && model_check_random(&c, &t.mirror, &small);
	}
	check(most < 110, "there are never very many segments");
	check(model_check_random(&c, &t.mirror, &small), "a search");
	check_table(&t);
	check_counts(&c, &t);
	fed_table_free(&t);
	client_close(&c);
	engine_stop(&e);
}

#define VERSION_ROWS	20		/* on each page */
#define VERSION_PAGES	40

/* A thread that searches while rows come */
typedef struct searcher
{
	pthread_t	thread;
	const engine *e;
	gpuvec_mirror_key key;
	int		   *stop;
	uint64_t	searches;
	bool		consistent;
} searcher;

/* Have all hits as many ids in common with the query, and are all there? */
static bool
one_version(const client *c)
{
	gpuvec_result result;
	gpuvec_hit	first;
	gpuvec_hit	hit;
	bool		same = true;

	memcpy(&result, c->data, sizeof(result));
	if (result.nqueries != 1 || result.nhits != VERSION_ROWS * VERSION_PAGES)
		return false;
	memcpy(&first, c->data + sizeof(result) + 8, sizeof(first));
	for (uint32_t i = 1; i < result.nhits && same; i++)
	{
		memcpy(&hit, c->data + sizeof(result) + 8 + i * sizeof(hit), sizeof(hit));
		same = gpuvec_hit_common(hit.place) == gpuvec_hit_common(first.place);
	}
	return same;
}

static void *
search_versions(void *arg)
{
	searcher   *s = arg;
	client		c = client_open(s->e);
	uint16_t	ids[16];
	model_query q = {.ids = ids,.wire = {.len = 16,.k = VERSION_ROWS * VERSION_PAGES + 10}};
	buffer		b = {0};

	for (uint16_t i = 0; i < 16; i++)
		ids[i] = i;
	search_request(&b, &s->key, 0, GPUVEC_INTERSECTION, &q, 1);
	for (s->consistent = true; s->consistent && !__atomic_load_n(s->stop, __ATOMIC_RELAXED); s->searches++)
		s->consistent = client_call(&c, GPUVEC_MSG_SEARCH, b.data, b.length, GPUVEC_MSG_RESULT) &&
			one_version(&c);
	free(b.data);
	client_close(&c);
	return NULL;
}

/* All rows of the table get the ids of a version: 0 .. version % 8 */
static void
set_version(fed_table *t, uint16_t version)
{
	static const uint16_t ids[8] = {0, 1, 2, 3, 4, 5, 6, 7};
	gpuvec_feed_record record = {.kind = GPUVEC_FEED_ROW,.len = version % 8 + 1};

	for (record.block = 0; record.block < VERSION_PAGES; record.block++)
	{
		for (uint16_t i = 1; i <= VERSION_ROWS; i++)
		{
			record.line = 2 * i;
			put_row(&t->table.pages[record.block], record.line, ids, record.len);
			add_record(t, record, ids);
		}
	}
}

/* Rows come in one step, beside searches, and between refreshes */
void
test_rows_concurrency(void)
{
	engine		e = engine_start("lists:1", plain);
	client		c = client_open(&e);
	fed_table	t = {.table = model_new(100, VERSION_PAGES, &none),.mirror = model_new(100, 0, &none)};
	searcher	searchers[4];
	int			stop = 0;
	bool		ok;

	t.starts = calloc(1, sizeof(size_t));
	set_version(&t, 0);
	ok = load_table(&c, &t);
	for (int i = 0; i < 4; i++)
	{
		searchers[i] = (searcher) {.e = &e,.key = t.mirror.key,.stop = &stop};
		pthread_create(&searchers[i].thread, NULL, search_versions, &searchers[i]);
	}
	for (uint16_t version = 1; version < 200 && ok; version++)
	{
		set_version(&t, version);
		if (version % 4 == 0)
			ok = refresh_table(&c, &t, true);
		else
			ok = apply_rows(&c, &t, t.applied, t.number);
	}
	__atomic_store_n(&stop, 1, __ATOMIC_RELAXED);
	for (int i = 0; i < 4; i++)
	{
		pthread_join(searchers[i].thread, NULL);
		check(searchers[i].consistent, "every search sees one version");
		check(searchers[i].searches > 0, "nobody starves");
	}
	fed_table_free(&t);
	client_close(&c);
	engine_stop(&e);
}

/* A search that needs records to be applied, and has patience */
static void
patient_search(buffer *b, const gpuvec_mirror_key *key, uint64_t applied, uint32_t patience_us)
{
	gpuvec_search *head;
	model_query q = random_query(&small);

	b->length = 0;
	search_request(b, key, UINT64_MAX, GPUVEC_JACCARD, &q, 1);
	head = (gpuvec_search *) b->data;
	head->need.feed = FEED;
	head->need.applied = applied;
	head->patience_us = patience_us;
	free(q.ids);
}

/* Does an answer wait to be read, within a moment? */
static bool
answered(const client *c)
{
	struct pollfd p = {.fd = c->fd,.events = POLLIN};

	return poll(&p, 1, 100) > 0;
}

/* Is the last answer that of a search of a mirror that has applied this? */
static bool
searched(const client *c, uint64_t applied)
{
	gpuvec_result result;

	memcpy(&result, c->data, sizeof(result));
	return c->frame.type == GPUVEC_MSG_RESULT && result.nqueries == 1 && result.state.applied >= applied;
}

/* Is it that of a search that was not made? */
static bool
not_searched(const client *c, gpuvec_mirror_state state)
{
	gpuvec_result result;

	memcpy(&result, c->data, sizeof(result));
	return c->frame.type == GPUVEC_MSG_RESULT && result.nqueries == 0 && result.state.state == (uint32_t) state;
}

/* Wait until the engine has no more than this many connections */
static bool
wait_connections(client *c, uint32_t n)
{
	for (int i = 0; i < 4000; i++)
	{
		if (client_engine_info(c).connections <= n)
			return true;
		usleep(5000);
	}
	return false;
}

/*
 * A search with patience waits for rows, pages, or the end of its mirror, and
 * no longer than its session.  An engine with a fault lets it wait for longer
 * than this test would.
 */
void
test_patience(void)
{
	engine		e = engine_start("patience:120000", plain);
	client		c = client_open(&e);
	client		d = client_open(&e);
	fed_table	t = fed_table_new(100, 10);
	gpuvec_drop drop = {.database = t.mirror.key.database};
	buffer		b = {0};
	uint32_t	sessions;

	patient_search(&b, &t.mirror.key, 1, UINT32_MAX);
	check(client_call(&d, GPUVEC_MSG_SEARCH, b.data, b.length, GPUVEC_MSG_RESULT) && not_searched(&d, GPUVEC_ABSENT),
		  "a mirror that is absent is not waited for");
	check(load_table(&c, &t), "load");
	insert_row(&t, 3, 4);
	patient_search(&b, &t.mirror.key, t.applied, UINT32_MAX);
	check(client_call(&d, GPUVEC_MSG_SEARCH, b.data, b.length, GPUVEC_MSG_RESULT) && searched(&d, t.applied),
		  "one that is fresh need not be");
	patient_search(&b, &t.mirror.key, t.number, 0);
	check(client_call(&d, GPUVEC_MSG_SEARCH, b.data, b.length, GPUVEC_MSG_RESULT) && not_searched(&d, GPUVEC_READY),
		  "nobody waits without patience");
	patient_search(&b, &t.mirror.key, t.number, 1000);
	check(client_call(&d, GPUVEC_MSG_SEARCH, b.data, b.length, GPUVEC_MSG_RESULT) && not_searched(&d, GPUVEC_READY),
		  "patience comes to an end");

	/* rows */
	patient_search(&b, &t.mirror.key, t.number, UINT32_MAX);
	check(client_send(&d, GPUVEC_MSG_SEARCH, b.data, b.length) && !answered(&d), "a search waits");
	check(apply_rows(&c, &t, t.applied, t.number), "rows come");
	check(client_read(&d) && searched(&d, t.number), "and it goes on");

	/* pages, the second time */
	insert_row(&t, 3, 4);
	patient_search(&b, &t.mirror.key, t.number, UINT32_MAX);
	check(client_send(&d, GPUVEC_MSG_SEARCH, b.data, b.length) && !answered(&d), "a search waits");
	check(refresh_table(&c, &t, false), "pages that do not tell of all records");
	check(!answered(&d), "it goes on waiting");
	check(refresh_table(&c, &t, true), "pages that do");
	check(client_read(&d) && searched(&d, t.number), "and it goes on");

	/* the mirror is dropped */
	patient_search(&b, &t.mirror.key, t.number + 1, UINT32_MAX);
	check(client_send(&d, GPUVEC_MSG_SEARCH, b.data, b.length) && !answered(&d), "a search waits");
	check(client_call(&c, GPUVEC_MSG_DROP, &drop, sizeof(drop), GPUVEC_MSG_COUNT), "drop");
	check(client_read(&d) && not_searched(&d, GPUVEC_ABSENT), "and it does no longer");

	/* its session goes; the engine ends */
	check(load_table(&c, &t), "load");
	sessions = client_engine_info(&c).connections;
	check(client_send(&d, GPUVEC_MSG_SEARCH, b.data, b.length) && !answered(&d), "a search waits");
	client_close(&d);
	check(wait_connections(&c, sessions - 1), "a closed connection ends it");
	check(client_send(&c, GPUVEC_MSG_SEARCH, b.data, b.length) && !answered(&c), "a search waits");
	engine_stop(&e);
	check(client_read(&c) && client_error_retry(&c), "a waiting session may try again");
	client_close(&c);
	free(b.data);
	fed_table_free(&t);
}
