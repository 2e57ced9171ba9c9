/*-------------------------------------------------------------------------
 *
 * server_embed.c
 *	  Embedding tables in the engine: random loads and refreshes, and random
 *	  requests whose answers are compared with brute force.
 *
 * A snapshot is simulated by a function of (tid, key, content): it sees some
 * versions of rows and not others.  Pages of which it sees all rows may be
 * told to be all-visible, about the others the engine has to ask.
 *
 *-------------------------------------------------------------------------
 */
#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "core/pooling_grad.h"
#include "core/protocol_vectors.h"

#include "server_embed.h"
#include "server_memory.h"

#define MAX_ROWS	20

/* xmin of most requests */
#define XMIN		500

typedef struct vector_row
{
	gpuvec_vector_row head;
	bool		visible;
	bool		hidden;			/* it will be visible again */
	float	   *elements;		/* as they are after storing */
} vector_row;

typedef struct vector_page
{
	uint64_t	lsn;
	uint64_t	refresh;
	bool		dirty;
	bool		unsure;			/* see check_two_snapshots */
	uint64_t	newest;			/* transaction of its rows, or 0 */
	uint32_t	nrows;
	vector_row	rows[MAX_ROWS];
} vector_page;

typedef struct vector_model
{
	gpuvec_mirror_key key;
	uint32_t	width;
	uint32_t	nblocks;
	int64_t		nkeys;			/* keys are below this, mostly */
	bool		odd;			/* bad vectors, other widths, and keys twice */
	bool		twice;			/* keys twice */
	bool		scarce;			/* few rows are seen */
	vector_page *pages;
	uint64_t	position;
	uint64_t	refresh;
} vector_model;

/* A random key; some are special */
static int64_t
random_key(const vector_model *m)
{
	static const int64_t special[] = {0, -1, INT64_MAX, INT64_MIN, INT64_C(1) << 32};

	return random_below(50) == 0 ? special[random_below(5)] : (int64_t) random_below((uint64_t) m->nkeys);
}

/* Has another row that is seen this key? */
static bool
key_taken(const vector_model *m, int64_t key)
{
	for (uint32_t block = 0; block < m->nblocks; block++)
		for (uint32_t i = 0; i < m->pages[block].nrows; i++)
			if (m->pages[block].rows[i].visible && m->pages[block].rows[i].head.key == key)
				return true;
	return false;
}

static void
free_page(vector_page *page)
{
	for (uint32_t i = 0; i < page->nrows; i++)
		free(page->rows[i].elements);
	page->nrows = 0;
}

/* Does this xmin prove the page? */
static bool
is_proven(const vector_page *page, uint64_t xmin)
{
	return page->newest != 0 && page->newest < xmin;
}

static void
rewrite_page(vector_model *m, uint32_t block)
{
	vector_page *page = &m->pages[block];
	uint32_t	nrows = (uint32_t) random_below(MAX_ROWS + 1);
	bool		all_visible = random_below(2);
	bool		proven = random_below(3) == 0;
	uint16_t	line = 0;

	free_page(page);
	page->lsn = random_below(UINT64_MAX);
	page->dirty = true;
	for (uint32_t i = 0; i < nrows; i++)
	{
		vector_row *row = &page->rows[i];

		line += 1 + (uint16_t) random_below(2);
		memset(row, 0, sizeof(*row));
		row->head = (gpuvec_vector_row) {.line = line,.width = m->width,.key = random_key(m)};
		if (m->odd && random_below(40) == 0)
			row->head.width = m->width + 1;
		if (m->odd && random_below(40) == 0)
		{
			row->head.kind = GPUVEC_VECTOR_NULLS;
			row->head.width = 0;
		}
		row->visible = (m->scarce ? random_below(12) == 0 : all_visible || random_below(3) > 0) &&
			((m->odd && random_below(20) == 0) || (m->twice && random_below(8) == 0) || !key_taken(m, row->head.key));
		row->elements = malloc((row->head.width + 1) * sizeof(float));
		for (uint32_t j = 0; j < row->head.width; j++)
			row->elements[j] = (float) ((int) random_below(2001) - 1000) / 16;
		page->nrows = i + 1;
		proven = proven && row->visible;
	}
	page->newest = proven ? 1 + random_below(XMIN - 1) : random_below(2) ? 0 : XMIN + random_below(10);
}

static void
resize(vector_model *m, uint32_t nblocks)
{
	for (uint32_t block = nblocks; block < m->nblocks; block++)
		free_page(&m->pages[block]);
	m->pages = realloc(m->pages, (nblocks + 1) * sizeof(vector_page));
	for (uint32_t block = m->nblocks; block < nblocks; block++)
	{
		memset(&m->pages[block], 0, sizeof(vector_page));
		m->nblocks = block + 1;
		rewrite_page(m, block);
	}
	m->nblocks = nblocks;
}

static vector_model
model_of_vectors(uint32_t relation, uint32_t nblocks, uint32_t width, int64_t nkeys, bool odd,
				 gpuvec_storage storage)
{
	vector_model m = {.key = {.database = 5,.relation = relation,.type = 1021,.attnum = 2,
	.key_type = 20,.key_attnum = 1,.storage = storage},.width = width,.nkeys = nkeys,.odd = odd};

	resize(&m, nblocks);
	return m;
}

static void
free_model(vector_model *m)
{
	for (uint32_t block = 0; block < m->nblocks; block++)
		free_page(&m->pages[block]);
	free(m->pages);
}

/* Send pages: all, or those that are dirty.  Values are exact in float16. */
static bool
send_pages(client *c, vector_model *m, bool all)
{
	buffer		b = {0};
	bool		ok = true;

	for (uint32_t block = 0; ok && block < m->nblocks; block++)
	{
		vector_page *page = &m->pages[block];
		gpuvec_page head = {.block = block,.nrows = page->nrows,.lsn = page->lsn,.newest = page->newest};
		size_t		at = b.length;

		if (!all && !page->dirty)
			continue;
		buffer_add(&b, &head, sizeof(head));
		for (uint32_t i = 0; i < page->nrows; i++)
		{
			vector_row *row = &page->rows[i];
			size_t		begin = b.length;

			buffer_add(&b, &row->head, sizeof(row->head));
			for (uint32_t j = 0; j < row->head.width; j++)
			{
				uint16_t	half = gpuvec_float_to_half(row->elements[j]);

				if (m->key.storage == GPUVEC_FLOAT16)
					buffer_add(&b, &half, sizeof(half));
				else
					buffer_add(&b, &row->elements[j], sizeof(float));
			}
			buffer_add(&b, "\0\0\0", gpuvec_vector_row_bytes(row->head.width, m->key.storage) -
					   (b.length - begin));
		}
		head.bytes = (uint32_t) (b.length - at - sizeof(head));
		memcpy(b.data + at, &head, sizeof(head));
		page->dirty = false;
		page->refresh = UINT64_MAX;
		if (b.length > 100000)
		{
			ok = client_send(c, GPUVEC_MSG_PAGES, b.data, b.length);
			b.length = 0;
		}
	}
	ok = ok && (b.length == 0 || client_send(c, GPUVEC_MSG_PAGES, b.data, b.length));
	free(b.data);
	return ok;
}

static bool
commit(client *c, vector_model *m)
{
	gpuvec_commit commit = {.position = ++m->position,.nblocks = m->nblocks};

	if (!client_call(c, GPUVEC_MSG_COMMIT, &commit, sizeof(commit), GPUVEC_MSG_STATE))
		return false;
	m->refresh = client_state(c).refresh;
	for (uint32_t block = 0; block < m->nblocks; block++)
		if (m->pages[block].refresh == UINT64_MAX)
			m->pages[block].refresh = m->refresh;
	return client_state(c).state == GPUVEC_READY;
}

static bool
load(client *c, vector_model *m)
{
	gpuvec_load load = {.key = m->key,.nblocks = m->nblocks};

	return client_call(c, GPUVEC_MSG_LOAD_BEGIN, &load, sizeof(load), GPUVEC_MSG_STATE) &&
		send_pages(c, m, true) && commit(c, m);
}

static bool
refresh(client *c, vector_model *m)
{
	return client_call(c, GPUVEC_MSG_REFRESH_BEGIN, REFRESH(&m->key), GPUVEC_MSG_STATE) &&
		send_pages(c, m, false) && commit(c, m);
}

/* A request and what it needs */
typedef struct request
{
	gpuvec_embedding_request head;
	int64_t    *keys;
	uint64_t   *offsets;
	float	   *weights;
	float	   *gradient;		/* NULL: none */
	uint64_t   *verdicts;
	uint8_t    *map;
} request;

static void
free_request(request *r)
{
	free(r->keys);
	free(r->offsets);
	free(r->weights);
	free(r->gradient);
	free(r->verdicts);
	free(r->map);
}

/*
 * The map that a session may have read: pages of which all rows are seen, if
 * they were read before the number that it knows.  Others must not be taken
 * for proven.
 */
static void
make_map(request *r, const vector_model *m)
{
	bool		lie = random_below(2);

	r->head.xmin = XMIN;
	r->head.map_bytes = (m->nblocks / 4 + 8) / 8 * 8;
	r->map = calloc(r->head.map_bytes + 1, 1);
	r->head.known = random_below(3) == 0 ? m->refresh : random_below(m->refresh + 1);
	for (uint32_t block = 0; block < m->nblocks; block++)
	{
		bool		all = true;

		for (uint32_t i = 0; i < m->pages[block].nrows; i++)
			all = all && m->pages[block].rows[i].visible;
		/* a bit of a page that was read again since says nothing */
		if (all || (lie && m->pages[block].refresh > r->head.known))
			r->map[block / 4] |= (uint8_t) ((1 + random_below(2) * 2) << (block % 4 * 2));
	}
}

static request
random_request(const vector_model *m)
{
	request		r = {0};
	uint64_t	n = random_below(4) == 0 ? random_below(20000) : random_below(50);
	uint64_t	at = 0;

	r.head.key = m->key;
	r.head.op = random_below(3) == 0 ? GPUVEC_EMBEDDING_GATHER : GPUVEC_EMBEDDING_POOL;
	r.head.mode = (uint32_t) random_below(GPUVEC_N_POOL_MODES);
	r.head.missing = random_below(5) == 0 ? GPUVEC_MISSING_ERROR : (uint32_t) random_below(2);
	r.head.flags = GPUVEC_EMBEDDING_FOUND | (random_below(2) ? GPUVEC_EMBEDDING_WEIGHTED : 0);
	r.head.nkeys = n;
	r.keys = malloc((n + 1) * sizeof(int64_t));
	r.weights = malloc((n + 2) * sizeof(float));
	r.offsets = malloc((n + 100) * sizeof(uint64_t));
	for (uint64_t i = 0; i < n; i++)
	{
		/* odd ones are rare, or nearly every request would be about them */
		r.keys[i] = random_key(m);
		r.weights[i] = (float) ((int) random_below(9) - 4) / 4;
	}
	r.weights[n] = 0;
	if (r.head.op == GPUVEC_EMBEDDING_GATHER)
		r.head.flags &= ~(uint32_t) GPUVEC_EMBEDDING_WEIGHTED;
	else if (random_below(3) == 0 && n > 0)
	{
		r.head.hotness = 1 + random_below(3);
		r.head.nkeys = n = n / r.head.hotness * r.head.hotness;
		r.head.nbags = n / r.head.hotness;
	}
	else
	{
		r.offsets[0] = 0;
		while (at < n || random_below(3) == 0)
		{
			at += random_below(12);
			r.offsets[++r.head.nbags] = at = at < n ? at : n;
			if (r.head.nbags == n + 90)
				break;
		}
		r.offsets[r.head.nbags] = n;
	}
	make_map(&r, m);
	return r;
}

/*
 * Send it with more flags, and unless they say that the engine has it, the
 * map
 */
static bool
send_request_flagged(client *c, const request *r, uint32_t flags)
{
	static const char zeros[8] = {0};
	buffer		b = {0};
	gpuvec_embedding_request head = r->head;
	bool		ok;

	head.flags |= flags;
	if (flags & GPUVEC_EMBEDDING_KEPT_MAP)
		head.map_bytes = 0;
	buffer_add(&b, &head, sizeof(head));
	buffer_add(&b, r->keys, r->head.nkeys * sizeof(int64_t));
	if (r->head.op != GPUVEC_EMBEDDING_GATHER && r->head.hotness == 0)
		buffer_add(&b, r->offsets, (r->head.nbags + 1) * sizeof(uint64_t));
	buffer_add(&b, r->verdicts, r->head.nverdicts * sizeof(uint64_t));
	if (r->head.flags & GPUVEC_EMBEDDING_WEIGHTED)
	{
		buffer_add(&b, r->weights, r->head.nkeys * sizeof(float));
		buffer_add(&b, zeros, r->head.nkeys % 2 * sizeof(float));
	}
	buffer_add(&b, r->gradient, r->head.ngradient * sizeof(float));
	buffer_add(&b, zeros, r->head.ngradient % 2 * sizeof(float));
	buffer_add(&b, r->map, head.map_bytes);
	ok = client_call(c, GPUVEC_MSG_EMBEDDING, b.data, b.length, GPUVEC_MSG_EMBEDDING_ANSWER);
	free(b.data);
	return ok;
}

/*
 * Send it; true if there is an answer.  Some are sent again with the map that
 * the engine kept.
 */
static bool
send_request(client *c, const request *r)
{
	if (random_below(4) > 0)
		return send_request_flagged(c, r, 0);
	return send_request_flagged(c, r, GPUVEC_EMBEDDING_KEEP_MAP) &&
		send_request_flagged(c, r, GPUVEC_EMBEDDING_KEPT_MAP);
}

static int
compare_numbers(const void *a, const void *b)
{
	uint64_t	x = *(const uint64_t *) a;
	uint64_t	y = *(const uint64_t *) b;

	return x < y ? -1 : x > y;
}

/* The same of keys */
static int
compare_keys(const void *a, const void *b)
{
	int64_t		x = *(const int64_t *) a;
	int64_t		y = *(const int64_t *) b;

	return x < y ? -1 : x > y;
}

/* Give verdicts about the rows that the engine names */
static bool
decide(const client *c, request *r, const vector_model *m, uint64_t count)
{
	const uint64_t *tids = (const uint64_t *) (c->data + sizeof(gpuvec_embedding_answer));

	r->verdicts = realloc(r->verdicts, (r->head.nverdicts + count + 1) * sizeof(uint64_t));
	for (uint64_t i = 0; i < count; i++)
	{
		uint32_t	block = gpuvec_tid_block(tids[i]);
		const vector_row *row = NULL;

		if ((i > 0 && tids[i] <= tids[i - 1]) || block >= m->nblocks)
			return false;
		for (uint32_t j = 0; j < m->pages[block].nrows; j++)
			if (m->pages[block].rows[j].head.line == gpuvec_tid_line(tids[i]))
				row = &m->pages[block].rows[j];
		if (row == NULL)
			return false;
		r->verdicts[r->head.nverdicts++] = gpuvec_verdict(tids[i], row->visible);
	}
	qsort(r->verdicts, r->head.nverdicts, sizeof(uint64_t), compare_numbers);
	return true;
}

/* The visible rows of a key: one of them, and how many */
static const vector_row *
find_row(const vector_model *m, int64_t key, int *n)
{
	const vector_row *found = NULL;

	*n = 0;
	for (uint32_t block = 0; block < m->nblocks; block++)
		for (uint32_t i = 0; i < m->pages[block].nrows; i++)
		{
			const vector_row *row = &m->pages[block].rows[i];

			if (row->visible && row->head.key == key)
			{
				found = row;
				(*n)++;
			}
		}
	return found;
}

/*
 * What the answer must be: found rows, or a complaint and the number of its
 * key
 */
static gpuvec_embedding_status
expected_status(const vector_model *m, const request *r, const vector_row **rows, uint64_t *number)
{
	const vector_row *first = NULL;

	for (uint64_t i = 0; i < r->head.nkeys; i++)
	{
		int			n;

		*number = i;
		rows[i] = find_row(m, r->keys[i], &n);
		if (n > 1)
			return GPUVEC_EMBEDDING_DUPLICATE;
		if (n == 0 && r->head.missing == GPUVEC_MISSING_ERROR)
			return GPUVEC_EMBEDDING_MISSING;
		if (n == 0)
			continue;
		if (rows[i]->head.kind != GPUVEC_VECTOR_GOOD)
			return GPUVEC_EMBEDDING_BAD;
		first = first ? first : rows[i];
		if (rows[i]->head.width != first->head.width)
			return GPUVEC_EMBEDDING_WIDTHS;
	}
	return GPUVEC_EMBEDDING_DONE;
}

/*
 * The elements of bag after bag; sums of these numbers are exact, so their
 * order is free
 */
static uint64_t
expected_elements(const request *r, const vector_row **rows, uint32_t width, float *out)
{
	bool		gather = r->head.op == GPUVEC_EMBEDDING_GATHER;
	uint64_t	nbags = gather ? 1 : r->head.nbags;
	bool		skip = r->head.missing == GPUVEC_MISSING_SKIP || gather;
	float	   *to = out;

	for (uint64_t bag = 0; bag < nbags; bag++)
	{
		uint64_t	start = gather ? 0 : r->head.hotness ? bag * r->head.hotness : r->offsets[bag];
		uint64_t	end = gather ? r->head.nkeys : r->head.hotness ? start + r->head.hotness :
			r->offsets[bag + 1];
		double		divisor = 0;
		bool		concat = gather || r->head.mode == GPUVEC_POOL_CONCAT;

		if (!concat)
			memset(to, 0, width * sizeof(float));
		for (uint64_t i = start; i < end; i++)
		{
			float		weight = r->head.flags & GPUVEC_EMBEDDING_WEIGHTED ? r->weights[i] : 1;

			if (rows[i] == NULL && skip)
				continue;
			divisor += weight;
			for (uint32_t j = 0; j < width; j++)
			{
				float		x = rows[i] ? weight * rows[i]->elements[j] + 0.0f : 0;

				to[j] = concat ? x : to[j] + x;
			}
			to += concat ? width : 0;
		}
		if (!concat && r->head.mode == GPUVEC_POOL_MEAN)
			for (uint32_t j = 0; j < width; j++)
				to[j] = divisor == 0 ? 0 : to[j] / (float) divisor;
		to += concat ? 0 : width;
	}
	return (uint64_t) (to - out);
}

/* Compare an answer with brute force */
static bool
answer_right(const client *c, const vector_model *m, const request *r)
{
	const vector_row **rows = calloc(r->head.nkeys + 1, sizeof(*rows));
	gpuvec_embedding_answer head;
	uint64_t	number = 0;
	gpuvec_embedding_status status = expected_status(m, r, rows, &number);
	const char *found = c->data + sizeof(head);
	size_t		found_size = (r->head.nkeys + 7) / 8 * 8;
	uint32_t	width = m->width;
	uint64_t	nfound = 0;
	bool		ok = true;

	memcpy(&head, c->data, sizeof(head));
	if (status != GPUVEC_EMBEDDING_DONE)
	{
		ok = head.status == status && head.key == r->keys[number];
		free(rows);
		return ok;
	}
	for (uint64_t i = 0; i < r->head.nkeys; i++)
	{
		if (rows[i] && nfound++ == 0)
			width = rows[i]->head.width;
		/* without any, nothing is told */
		ok = ok && (found[i] == (rows[i] != NULL));
	}
	ok = ok && head.status == GPUVEC_EMBEDDING_DONE && head.nfound == nfound;
	if (nfound == 0)
		ok = ok && head.count == 0;
	else
	{
		float	   *expected = malloc((r->head.nkeys + r->head.nbags + 1) * (width + 1) * sizeof(float));
		uint64_t	n = expected_elements(r, rows, width, expected);

		ok = ok && head.width == width && head.count == n &&
			c->frame.length == sizeof(head) + found_size + n * sizeof(float) &&
			memcmp(found + found_size, expected, n * sizeof(float)) == 0;
		free(expected);
	}
	free(rows);
	return ok;
}

/* How often the engine may ask for verdicts before it answers */
static int	verdict_rounds = 1;

/* Send a request until there is an answer, and see whether that is right */
static bool
check_request(client *c, const vector_model *m, request *r,
			  bool (*right) (const client *c, const vector_model *m, const request *r))
{
	for (int round = 0; round < verdict_rounds + 2; round++)
	{
		gpuvec_embedding_answer head;

		if (!send_request(c, r))
			return false;
		memcpy(&head, c->data, sizeof(head));
		if (head.status != GPUVEC_EMBEDDING_UNDECIDED)
			return right(c, m, r);
		/* then nothing is left to ask, since nothing has changed */
		if (round >= verdict_rounds || !decide(c, r, m, head.count))
			return false;
	}
	return false;
}

/* A random request to gather or pool */
static bool
check_random(client *c, const vector_model *m)
{
	request		r = random_request(m);
	bool		ok = check_request(c, m, &r, answer_right);

	free_request(&r);
	return ok;
}

/* Let some rows of unsure pages not be seen, or let them be seen again */
static void
hide_rows(vector_model *m, bool hide)
{
	for (uint32_t block = 0; block < m->nblocks; block++)
		for (uint32_t i = 0; i < m->pages[block].nrows; i++)
		{
			vector_row *row = &m->pages[block].rows[i];

			if (m->pages[block].unsure && row->head.key % 3 == 0 && (hide ? row->visible : row->hidden))
			{
				row->hidden = hide;
				row->visible = !hide;
			}
		}
}

/* A request of a session that knows all there is to know, and is right */
static request
knowing_request(const vector_model *m)
{
	request		r = random_request(m);

	r.head.known = m->refresh;
	memset(r.map, 0, r.head.map_bytes);
	for (uint32_t block = 0; block < m->nblocks; block++)
	{
		bool		all = true;

		for (uint32_t i = 0; i < m->pages[block].nrows; i++)
			all = all && m->pages[block].rows[i].visible;
		r.map[block / 4] |= (uint8_t) (all << (block % 4 * 2));
	}
	return r;
}

/* The same request again, of a session that has to decide anew */
static bool
check_again(client *c, const vector_model *m, request *r)
{
	free(r->verdicts);
	r->verdicts = NULL;
	r->head.nverdicts = 0;
	return check_request(c, m, r, answer_right);
}

/*
 * The request comes from a session with an older snapshot, to which fewer
 * pages are proven; nothing else differs
 */
static void
lower_xmin(vector_model *m, request *r)
{
	r->head.xmin = random_below(XMIN);
	for (uint32_t block = 0; block < m->nblocks; block++)
		m->pages[block].unsure = is_proven(&m->pages[block], XMIN) &&
			!is_proven(&m->pages[block], r->head.xmin);
}

/*
 * The same request from two sessions: the second has an older snapshot, knows
 * less, or its map says less, and it does not see some rows of the pages that
 * it is less sure of
 */
static bool
check_two_snapshots(client *c, vector_model *m)
{
	request		r = knowing_request(m);
	uint64_t	known = random_below(m->refresh + 1);
	bool		knows_less = random_below(2);
	bool		ok = check_request(c, m, &r, answer_right);

	if (random_below(3) == 0)
		lower_xmin(m, &r);
	else
	{
		for (uint32_t block = 0; block < m->nblocks; block++)
		{
			m->pages[block].unsure = !is_proven(&m->pages[block], XMIN) &&
				(knows_less ? m->pages[block].refresh > known : random_below(2));
			if (!knows_less && m->pages[block].unsure)
				r.map[block / 4] &= (uint8_t) ~(3 << (block % 4 * 2));
		}
		if (knows_less)
			r.head.known = known;
	}
	hide_rows(m, true);
	ok = ok && check_again(c, m, &r);
	hide_rows(m, false);
	free_request(&r);
	return ok;
}

/* A bag of a request, whose rows are there */
static gpuvec_bag
bag_of(const request *r, const float **vectors, uint32_t width, uint64_t bag, float *scratch)
{
	uint64_t	start = r->head.hotness ? bag * r->head.hotness : r->offsets[bag];
	uint64_t	end = r->head.hotness ? start + r->head.hotness : r->offsets[bag + 1];

	return (gpuvec_bag) {
		.keys = r->keys + start,.vectors = (const void *const *) vectors + start,
		.weights = r->head.flags & GPUVEC_EMBEDDING_WEIGHTED ? r->weights + start : NULL,
		.n = end - start,.width = width,.storage = GPUVEC_FLOAT32,
		.mode = (gpuvec_pool_mode) r->head.mode,.missing = (gpuvec_missing) r->head.missing,
		.scratch = scratch
	};
}

/*
 * The gradients of vectors that the answer must have, behind the head;
 * returns their size
 */
static size_t
expected_gradient(const request *r, const float **vectors, uint32_t width, char *out, uint64_t *nrows)
{
	gpuvec_share *shares = calloc(2 * (r->head.nkeys + 1), sizeof(*shares));
	gpuvec_share *sorted;
	gpuvec_upstream up = {
		.gradient = r->gradient,.width = width,
		.factors = (r->head.flags & GPUVEC_EMBEDDING_WEIGHTED) != 0 || r->head.mode == GPUVEC_POOL_MEAN
	};
	float	   *scratch = calloc(4 * ((size_t) width + 1), sizeof(float));
	float	   *elements;
	uint64_t	row = 0;
	uint64_t	n = 0;

	for (uint64_t bag = 0; bag < r->head.nbags; bag++)
	{
		gpuvec_bag	one = bag_of(r, vectors, width, bag, NULL);

		n += gpuvec_bag_shares(shares + n, &one, &row);
	}
	sorted = gpuvec_sort_shares(shares, shares + r->head.nkeys + 1, n);
	*nrows = 0;
	for (uint64_t i = 0; i < n; i++)
		if (i == 0 || sorted[i].key != sorted[i - 1].key)
			((int64_t *) out)[(*nrows)++] = sorted[i].key;
	elements = (float *) ((int64_t *) out + *nrows);
	for (uint64_t i = 0, first = 0; i < n; i++)
		if (i + 1 == n || sorted[i].key != sorted[i + 1].key)
		{
			gpuvec_sum_shares(elements, sorted + first, i + 1 - first, &up, scratch);
			elements += width;
			first = i + 1;
		}
	free(shares);
	free(scratch);
	return (size_t) ((char *) elements - out);
}

/* The gradients of weights */
static size_t
expected_weights(const request *r, const float **vectors, uint32_t width, char *out)
{
	float	   *scratch = calloc(5 * ((size_t) width + 1), sizeof(float));
	float	   *to = (float *) out;
	uint64_t	row = 0;

	for (uint64_t bag = 0; bag < r->head.nbags; bag++)
	{
		gpuvec_bag	one = bag_of(r, vectors, width, bag, scratch + width);

		gpuvec_bag_weight_gradients(to, &one, r->gradient, scratch, &row);
		to += one.n;
	}
	free(scratch);
	return (size_t) ((char *) to - out);
}

/*
 * The vectors of the keys of a request, if its answer is no complaint: width
 * and number found
 */
static gpuvec_embedding_status
find_vectors(const vector_model *m, const request *r, const float **vectors, uint64_t *number,
			 uint32_t *width, uint64_t *nfound)
{
	const vector_row **rows = calloc(r->head.nkeys + 1, sizeof(*rows));
	gpuvec_embedding_status status = expected_status(m, r, rows, number);

	*nfound = 0;
	*width = m->width;
	for (uint64_t i = 0; status == GPUVEC_EMBEDDING_DONE && i < r->head.nkeys; i++)
	{
		vectors[i] = rows[i] ? rows[i]->elements : NULL;
		if (rows[i] && (*nfound)++ == 0)
			*width = rows[i]->head.width;
	}
	free(rows);
	return status;
}

/* Is this the gradient that the common definition gives? */
static bool
gradient_right(const client *c, const vector_model *m, const request *r)
{
	const float **vectors = calloc(r->head.nkeys + 1, sizeof(*vectors));
	gpuvec_embedding_answer head;
	uint64_t	number;
	uint32_t	width;
	uint64_t	nfound;
	gpuvec_embedding_status status = find_vectors(m, r, vectors, &number, &width, &nfound);
	bool		ok;

	memcpy(&head, c->data, sizeof(head));
	if (status != GPUVEC_EMBEDDING_DONE)
		ok = head.status == status && head.key == r->keys[number];
	else if (nfound == 0)
		ok = head.status == GPUVEC_EMBEDDING_DONE && head.count == 0 && head.nrows == 0;
	else
	{
		char	   *expected = calloc((r->head.nkeys + 1) * ((size_t) width + 3), sizeof(float));
		uint64_t	nrows = 0;
		size_t		size = r->head.op == GPUVEC_EMBEDDING_GRAD ?
			expected_gradient(r, vectors, width, expected, &nrows) :
			expected_weights(r, vectors, width, expected);

		ok = head.status == GPUVEC_EMBEDDING_DONE && head.nrows == nrows &&
			c->frame.length == sizeof(head) + size &&
			memcmp(c->data + sizeof(head), expected, size) == 0;
		free(expected);
	}
	free(vectors);
	return ok;
}

/* A random request for gradients, whose answer is looked at by `right` */
static bool
check_gradient_with(client *c, const vector_model *m,
					bool (*right) (const client *c, const vector_model *m, const request *r))
{
	request		r = random_request(m);
	const float **vectors;
	uint64_t	number;
	uint32_t	width;
	uint64_t	nfound;
	uint64_t	rows;
	bool		ok;

	while (r.head.op == GPUVEC_EMBEDDING_GATHER)
	{
		free_request(&r);
		r = random_request(m);
	}
	r.head.op = random_below(2) ? GPUVEC_EMBEDDING_GRAD : GPUVEC_EMBEDDING_GRAD_WEIGHTS;
	r.head.flags &= ~(uint32_t) GPUVEC_EMBEDDING_FOUND;
	vectors = calloc(r.head.nkeys + 1, sizeof(*vectors));
	(void) find_vectors(m, &r, vectors, &number, &width, &nfound);
	rows = r.head.mode != GPUVEC_POOL_CONCAT ? r.head.nbags :
		r.head.missing == GPUVEC_MISSING_SKIP ? nfound : r.head.nkeys;
	r.head.ngradient = rows * width;
	r.gradient = malloc(r.head.ngradient * sizeof(float) + 1);
	for (uint64_t i = 0; i < r.head.ngradient; i++)
		r.gradient[i] = ((float) random_below(2001) - 1000) / 97;
	ok = check_request(c, m, &r, right);
	free(vectors);
	free_request(&r);
	return ok;
}

/* A random request for gradients */
static bool
check_gradient(client *c, const vector_model *m)
{
	return check_gradient_with(c, m, gradient_right);
}

/* Floats that an answer may have in these tests, and how many were refused */
#define LIMIT		500
static uint64_t large;
static uint64_t not_large;

/* Is this the gradient, or are there too many keys for an answer? */
static bool
gradient_or_large(const client *c, const vector_model *m, const request *r)
{
	const float **vectors = calloc(r->head.nkeys + 1, sizeof(*vectors));
	char	   *gradient = calloc((r->head.nkeys + 1) * ((size_t) m->width + 3), sizeof(float));
	gpuvec_embedding_answer head;
	uint64_t	number;
	uint32_t	width;
	uint64_t	nfound;
	uint64_t	nrows = 0;
	bool		too_many;

	memcpy(&head, c->data, sizeof(head));
	if (r->head.op == GPUVEC_EMBEDDING_GRAD &&
		find_vectors(m, r, vectors, &number, &width, &nfound) == GPUVEC_EMBEDDING_DONE)
		expected_gradient(r, vectors, width, gradient, &nrows);
	too_many = nrows > LIMIT / (m->width + 2);
	large += too_many;
	not_large += !too_many;
	free(vectors);
	free(gradient);
	return too_many ? head.status == GPUVEC_EMBEDDING_LARGE : gradient_right(c, m, r);
}

/* Keys that a random search does not want, ascending */
#define MAX_EXCLUDED	40
#define MAX_NEAR_QUERIES	70

/* Keys that a search leaves out: for all queries, and for each of them */
typedef struct near_exclusions
{
	int64_t		all[MAX_EXCLUDED];
	uint64_t	offsets[MAX_NEAR_QUERIES + 1];
	int64_t		listed[MAX_NEAR_QUERIES * MAX_EXCLUDED];
} near_exclusions;

/* Is this key left out for a query? */
static bool
is_left_out(const gpuvec_nearest_head *head, const near_exclusions *out, uint32_t query, int64_t key)
{
	for (uint64_t j = 0; j < head->nexcluded; j++)
		if (out->all[j] == key)
			return true;
	for (uint64_t j = out->offsets[query]; j < out->offsets[query + 1]; j++)
		if (out->listed[j] == key)
			return true;
	return false;
}

/* The nearest rows of a query, by brute force; `got` must be these */
static bool
nearest_right(const vector_model *m, const float *queries, uint32_t number,
			  const gpuvec_nearest_head *head, const near_exclusions *out, const gpuvec_near *got,
			  uint32_t count)
{
	const float *query = queries + (size_t) number * m->width;
	uint64_t	most = (uint64_t) m->nblocks * MAX_ROWS;
	gpuvec_near_heap heap = {.rows = malloc((most + 1) * sizeof(gpuvec_near)),.k = most + 1};
	bool		ok;

	for (uint32_t block = 0; block < m->nblocks; block++)
		for (uint32_t i = 0; i < m->pages[block].nrows; i++)
		{
			const vector_row *row = &m->pages[block].rows[i];
			gpuvec_near near = {.key = row->head.key,.tid = gpuvec_tid(block, row->head.line)};

			if (!row->visible || row->head.width != m->width || row->head.kind != GPUVEC_VECTOR_GOOD ||
				is_left_out(head, out, number, row->head.key))
				continue;
			near.score = gpuvec_near_score((gpuvec_metric) head->metric, query,
										   gpuvec_product(query, query, m->width), row->elements,
										   m->width);
			gpuvec_near_offer(&heap, &near);
		}
	gpuvec_near_sort(&heap);
	if (heap.n > head->k)
		heap.n = head->k;
	ok = count == heap.n && memcmp(got, heap.rows, heap.n * sizeof(gpuvec_near)) == 0;
	free(heap.rows);
	return ok;
}

/* Are the answers of all queries right? */
static bool
all_nearest_right(const client *c, const vector_model *m, const float *queries,
				  const gpuvec_nearest_head *head, const near_exclusions *out)
{
	const uint32_t *counts = (const uint32_t *) (c->data + sizeof(gpuvec_embedding_answer));
	const gpuvec_near *got = (const gpuvec_near *) (counts + (head->nqueries + 1) / 2 * 2);

	for (uint32_t i = 0; i < head->nqueries; i++)
	{
		if (!nearest_right(m, queries, i, head, out, got, counts[i]))
			return false;
		got += counts[i];
	}
	return true;
}

/* Choose random keys to leave out; lists of single queries half of the time */
static void
choose_exclusions(const vector_model *m, gpuvec_nearest_head *head, near_exclusions *out)
{
	bool		lists = random_below(2) != 0;

	memset(out, 0, sizeof(*out));
	for (uint64_t i = 0; i < head->nexcluded; i++)
		out->all[i] = random_key(m);
	qsort(out->all, head->nexcluded, sizeof(int64_t), compare_keys);
	for (uint32_t i = 0; i < head->nqueries; i++)
	{
		uint64_t	n = lists && random_below(3) ? random_below(MAX_EXCLUDED + 1) : 0;

		for (uint64_t j = 0; j < n; j++)
			out->listed[head->nlisted + j] = random_key(m);
		qsort(out->listed + head->nlisted, n, sizeof(int64_t), compare_keys);
		head->nlisted += n;
		out->offsets[i + 1] = head->nlisted;
	}
}

/*
 * A random search for the nearest rows, until there is an answer; of a session
 * that knows what this request knows
 */
static bool
check_nearest_of(client *c, const vector_model *m, request *r)
{
	gpuvec_nearest_head head = {.key = m->key,.metric = (uint32_t) random_below(GPUVEC_N_METRICS),
		.k = 1 + (uint32_t) random_below(30),.nqueries = random_below(4) ? 1 : 1 + (uint32_t) random_below(random_below(4) ? 12 : MAX_NEAR_QUERIES),
		.width = m->width,.nexcluded = random_below(MAX_EXCLUDED + 1)
	};
	uint64_t	nfloats = (uint64_t) head.nqueries * m->width;
	near_exclusions out;
	float	   *queries = calloc(nfloats + 1, sizeof(float));
	bool		ok = false;

	choose_exclusions(m, &head, &out);
	for (uint64_t i = 0; i < nfloats; i++)
		queries[i] = (float) random_below(7) - 3;
	head.known = r->head.known;
	head.xmin = r->head.xmin;
	head.map_bytes = r->head.map_bytes;
	for (int round = 0; round < 2000; round++)
	{
		buffer		b = {0};
		gpuvec_embedding_answer answer;

		head.nverdicts = r->head.nverdicts;
		buffer_add(&b, &head, sizeof(head));
		buffer_add(&b, r->verdicts, r->head.nverdicts * sizeof(uint64_t));
		buffer_add(&b, out.all, head.nexcluded * sizeof(int64_t));
		if (head.nlisted > 0)
			buffer_add(&b, out.offsets, (head.nqueries + 1) * sizeof(uint64_t));
		buffer_add(&b, out.listed, head.nlisted * sizeof(int64_t));
		buffer_add(&b, queries, (nfloats + 1) / 2 * 2 * sizeof(float));
		buffer_add(&b, r->map, r->head.map_bytes);
		ok = client_call(c, GPUVEC_MSG_NEAREST, b.data, b.length, GPUVEC_MSG_EMBEDDING_ANSWER);
		free(b.data);
		if (!ok)
			break;
		memcpy(&answer, c->data, sizeof(answer));
		if (answer.status != GPUVEC_EMBEDDING_UNDECIDED)
		{
			ok = answer.status == GPUVEC_EMBEDDING_DONE &&
				all_nearest_right(c, m, queries, &head, &out);
			break;
		}
		ok = false;
		if (!decide(c, r, m, answer.count))
			break;
	}
	free(queries);
	return ok;
}

static bool
check_nearest(client *c, const vector_model *m)
{
	request		r = {0};
	bool		ok;

	make_map(&r, m);
	ok = check_nearest_of(c, m, &r);
	free_request(&r);
	return ok;
}

/* As check_two_snapshots(), but the second session knows less */
static bool
check_near_snapshots(client *c, vector_model *m)
{
	request		r = knowing_request(m);
	bool		ok = check_nearest_of(c, m, &r);

	r.head.nverdicts = 0;
	if (random_below(2))
		lower_xmin(m, &r);
	else
	{
		r.head.known = random_below(m->refresh + 1);
		for (uint32_t block = 0; block < m->nblocks; block++)
			m->pages[block].unsure = !is_proven(&m->pages[block], XMIN) && m->pages[block].refresh > r.head.known;
	}
	hide_rows(m, true);
	ok = ok && check_nearest_of(c, m, &r);
	hide_rows(m, false);
	free_request(&r);
	return ok;
}

/*
 * Are there rows, each with another key, all of them seen, with vectors that
 * can be factors?
 */
static bool
has_gram(const vector_model *m)
{
	uint64_t	nrows = 0;
	uint64_t   *keys;
	bool		ok = true;

	for (uint32_t block = 0; block < m->nblocks; block++)
		nrows += m->pages[block].nrows;
	keys = malloc((nrows + 1) * sizeof(*keys));
	nrows = 0;
	for (uint32_t block = 0; block < m->nblocks; block++)
		for (uint32_t i = 0; i < m->pages[block].nrows; i++)
		{
			const vector_row *row = &m->pages[block].rows[i];

			ok = ok && row->visible && row->head.width == m->width;
			keys[nrows++] = (uint64_t) row->head.key;
		}
	qsort(keys, nrows, sizeof(*keys), compare_numbers);
	for (uint64_t i = 1; i < nrows; i++)
		ok = ok && keys[i] != keys[i - 1];
	free(keys);
	return ok && nrows > 0;
}

/* As test_embed_gram() tells the engine */
#define MOST_UNDECIDED	1000

/* About how many rows does the map of a request say nothing? */
static uint64_t
rows_to_decide(const vector_model *m, const request *r)
{
	uint64_t	nrows = 0;

	for (uint32_t block = 0; block < m->nblocks; block++)
		if (!is_proven(&m->pages[block], r->head.xmin) &&
			(m->pages[block].newest != 0 || m->pages[block].refresh > r->head.known ||
			 (r->map[block / 4] >> (block % 4 * 2) & 1) == 0))
			nrows += m->pages[block].nrows;
	return nrows;
}

/* Is this the sum of y y' over all rows, from the diagonal on? */
static bool
gram_right(const vector_model *m, const double *got)
{
	bool		ok = true;

	for (uint32_t i = 0; i < m->width; i++)
		for (uint32_t j = i; j < m->width; j++)
		{
			double		sum = 0;
			double		size = 0;

			for (uint32_t block = 0; block < m->nblocks; block++)
				for (uint32_t k = 0; k < m->pages[block].nrows; k++)
				{
					const float *y = m->pages[block].rows[k].elements;

					sum += (double) y[i] * y[j];
					size += fabs((double) y[i] * y[j]);
				}
			ok = ok && fabs(got[(size_t) i * m->width + j] - sum) <= 1e-4 * size;
		}
	return ok;
}

/*
 * A request for the Gram matrix, until there is an answer.  A session that
 * would have to decide about more than MOST_UNDECIDED rows gets no matrix.
 */
static bool
check_gram(client *c, const vector_model *m)
{
	request		r = {0};
	bool		expected;
	gpuvec_gram_head head = {.key = m->key};
	gpuvec_embedding_answer answer = {.status = GPUVEC_EMBEDDING_UNDECIDED};
	bool		ok = true;

	make_map(&r, m);
	expected = has_gram(m) && rows_to_decide(m, &r) <= MOST_UNDECIDED;
	head.known = r.head.known;
	head.xmin = r.head.xmin;
	head.map_bytes = r.head.map_bytes;
	for (int round = 0; ok && round < 2 && answer.status == GPUVEC_EMBEDDING_UNDECIDED; round++)
	{
		buffer		b = {0};

		head.nverdicts = r.head.nverdicts;
		buffer_add(&b, &head, sizeof(head));
		buffer_add(&b, r.verdicts, r.head.nverdicts * sizeof(uint64_t));
		buffer_add(&b, r.map, r.head.map_bytes);
		ok = client_call(c, GPUVEC_MSG_GRAM, b.data, b.length, GPUVEC_MSG_EMBEDDING_ANSWER);
		free(b.data);
		if (ok)
			memcpy(&answer, c->data, sizeof(answer));
		if (ok && answer.status == GPUVEC_EMBEDDING_UNDECIDED)
			ok = decide(c, &r, m, answer.count);
	}
	free_request(&r);
	if (ok && answer.status == GPUVEC_EMBEDDING_UNFIT)
		return !expected;
	return ok && answer.status == GPUVEC_EMBEDDING_DONE && expected && answer.width == m->width &&
		answer.count == (uint64_t) m->width * m->width &&
		gram_right(m, (const double *) (c->data + sizeof(answer)));
}

/* Change some pages, or the number of pages */
static void
change(vector_model *m)
{
	if (random_below(4) == 0)
		resize(m, (uint32_t) random_below(2 * m->nblocks + 2));
	for (uint64_t n = random_below(6); n > 0 && m->nblocks > 0; n--)
		rewrite_page(m, (uint32_t) random_below(m->nblocks));
}

/*
 * The engine asks for few verdicts at a time, and keys have many rows of which
 * one is seen
 */
void
test_embed_verdicts(void)
{
	engine		e = engine_start("most-undecided:5", (const char *const[]) {"--cpu-threads", "2", NULL});
	client		c = client_open(&e);

	verdict_rounds = 5000;
	for (int i = 0; i < 12; i++)
	{
		vector_model m = model_of_vectors(1000 + (uint32_t) i, 1 + (uint32_t) random_below(30), 3,
										  1 + (int64_t) random_below(i % 2 ? 20 : 1000), false, GPUVEC_FLOAT32);

		check(load(&c, &m), "load");
		for (int round = 0; round < 12; round++)
		{
			for (int j = 0; j < 8; j++)
				check(check_random(&c, &m), "a random request");
			check(check_gradient(&c, &m), "a random gradient");
			change(&m);
			check(refresh(&c, &m), "refresh");
		}
		free_model(&m);
	}
	verdict_rounds = 1;
	client_close(&c);
	engine_stop(&e);
}

/*
 * Make all rows seen, or all but one.  Rows that were not sent yet get keys
 * that no other row has.
 */
static void
see_rows(vector_model *m, bool all)
{
	static uint64_t next = 0;

	for (uint32_t block = 0; block < m->nblocks; block++)
		for (uint32_t i = 0; i < m->pages[block].nrows; i++)
		{
			vector_row *row = &m->pages[block].rows[i];

			/* nothing hides a row of a page that was all-visible */
			row->visible = all || is_proven(&m->pages[block], XMIN);
			all |= !row->visible;
			if (m->pages[block].dirty)
				row->head.key = (int64_t) (++next * UINT64_C(0x9E3779B97F4A7C15));
		}
}

/* Every page is proven to sessions with XMIN, and sent again */
static void
settle(vector_model *m)
{
	for (uint32_t block = 0; block < m->nblocks; block++)
	{
		m->pages[block].newest = 1 + random_below(XMIN - 1);
		m->pages[block].dirty = true;
	}
	see_rows(m, true);
}

/* A search asks about few rows at a time, and about all that are left, or not */
static void
nearest_rounds(const char *fault)
{
	engine		e = engine_start(fault, (const char *const[]) {"--cpu-threads", "2", NULL});
	client		c = client_open(&e);

	for (int i = 0; i < 12; i++)
	{
		vector_model m = model_of_vectors(1000 + (uint32_t) i, 1 + (uint32_t) random_below(60), 3,
										  1 + (int64_t) random_below(2000), i % 3 == 2,
										  i % 2 ? GPUVEC_FLOAT16 : GPUVEC_FLOAT32);

		m.scarce = i % 4 == 0;
		for (uint32_t block = 0; m.scarce && block < m.nblocks; block++)
			rewrite_page(&m, block);
		check(load(&c, &m), "load");
		for (int round = 0; round < 6; round++)
		{
			for (int j = 0; j < 10; j++)
				check(check_nearest(&c, &m), "a random search");
			for (int j = 0; j < 4; j++)
				check(check_near_snapshots(&c, &m), "searches of two sessions");
			check(check_random(&c, &m), "a random request");
			change(&m);
			check(refresh(&c, &m), "refresh");
		}
		/* now the first of both sessions has nothing to decide */
		settle(&m);
		check(refresh(&c, &m), "refresh");
		for (int j = 0; j < 8; j++)
			check(check_near_snapshots(&c, &m), "searches of two sessions, one of which sees all");
		free_model(&m);
	}
	client_close(&c);
	engine_stop(&e);
}

/* Searches beside rows that the session has to decide about */
void
test_embed_near(void)
{
	nearest_rounds(NULL);
	nearest_rounds("near-asked:0");
	nearest_rounds("near-asked:30");
	nearest_rounds("near-asked:0,near-spare:1");
}

void
test_embed(void)
{
	static const char *const plain[] = {"--cpu-threads", "2", NULL};
	/* emulated kernels take long */
	int			rounds = getenv("SERVER_TEST_EMULATED") ? 4 : 12;
	engine		e = engine_start(NULL, plain);
	client		c = client_open(&e);

	for (int i = 0; i < 24; i++)
	{
		static const uint32_t widths[] = {1, 3, 4, 31, 33, 128};
		/*
		 * each width with each way to store vectors, and each with odd rows
		 * too
		 */
		vector_model m = model_of_vectors(1000 + (uint32_t) i, 1 + (uint32_t) random_below(60), widths[i % 6],
										  1 + (int64_t) random_below(2000), i % 6 % 3 == i / 6,
										  i / 6 % 2 ? GPUVEC_FLOAT16 : GPUVEC_FLOAT32);
		request		r;

		m.twice = i % 4 == 1;
		for (uint32_t block = 0; m.twice && block < m.nblocks; block++)
			rewrite_page(&m, block);
		check(load(&c, &m), "load");
		for (int round = 0; round < rounds; round++)
		{
			for (int j = 0; j < 8; j++)
				check(check_random(&c, &m), "a random request");
			for (int j = 0; j < 2; j++)
				check(check_two_snapshots(&c, &m), "requests of two sessions");
			for (int j = 0; j < 3; j++)
				check(check_gradient(&c, &m), "a random gradient");
			for (int j = 0; j < 4; j++)
				check(check_nearest(&c, &m), "a random search");
			r = knowing_request(&m);
			check(check_request(&c, &m, &r, answer_right), "a request before a refresh");
			change(&m);
			check(refresh(&c, &m), "refresh");
			/* what it knows is of the time before */
			check(check_again(&c, &m, &r), "the same request after it");
			free_request(&r);
		}
		free_model(&m);
	}
	client_close(&c);
	engine_stop(&e);
}

/* The Gram matrix of tables that change; sessions see all rows, or not */
void
test_embed_gram(void)
{
	static const uint32_t widths[] = {1, 16, 33, 64};
	engine		e = engine_start("most-undecided:1000", (const char *const[]) {"--cpu-threads", "2", NULL});
	client		c = client_open(&e);

	for (int i = 0; i < 8; i++)
	{
		/* the last table has other widths */
		vector_model m = model_of_vectors(6000 + (uint32_t) i, i < 3 ? 200 : 1 + (uint32_t) random_below(30),
										  widths[i % 4], 1000, i == 7,
										  i % 2 ? GPUVEC_FLOAT16 : GPUVEC_FLOAT32);

		see_rows(&m, true);
		check(load(&c, &m), "load");
		for (int round = 0; round < 8; round++)
		{
			check(check_gram(&c, &m), "a Gram matrix");
			see_rows(&m, false);
			check(check_gram(&c, &m), "a row is not seen");
			change(&m);
			see_rows(&m, true);
			check(refresh(&c, &m), "refresh");
			check(check_gram(&c, &m), "a Gram matrix after a refresh");
		}
		if (m.nblocks > 0 && m.pages[0].nrows > 1)
		{
			m.pages[0].rows[1].head.key = m.pages[0].rows[0].head.key;
			m.pages[0].dirty = true;
			m.pages[0].lsn++;
			check(refresh(&c, &m), "refresh");
			check(check_gram(&c, &m), "a key comes twice");
		}
		free_model(&m);
	}
	client_close(&c);
	engine_stop(&e);
}

/* Four sessions that see all rows ask for a Gram matrix at once */
static void
ask_together(const engine *e, const vector_model *m)
{
	client		c[4];
	uint8_t		map[2048];
	gpuvec_gram_head head = {.key = m->key, .known = UINT64_MAX - 1, .map_bytes = sizeof(map)};
	buffer		b = {0};

	memset(map, 255, sizeof(map));
	buffer_add(&b, &head, sizeof(head));
	buffer_add(&b, map, sizeof(map));
	for (int i = 0; i < 4; i++)
		c[i] = client_open(e);
	for (int i = 0; i < 4; i++)
		check(client_send(&c[i], GPUVEC_MSG_GRAM, b.data, b.length), "four ask");
	for (int i = 0; i < 4; i++)
	{
		check(client_read(&c[i]) && c[i].frame.type == GPUVEC_MSG_EMBEDDING_ANSWER &&
			  c[i].frame.length > 512 * 512 * sizeof(double), "each has the matrix");
		client_close(&c[i]);
	}
	free(b.data);
}

/*
 * A Gram matrix that is kept is charged, until rows are published; one that
 * does not fit is made, but not kept
 */
void
test_embed_gram_charged(void)
{
	static const char *const plain[] = {"--cpu-threads", "2", NULL};
	/* 512 * 512 float64 are 2 MB */
	static const char *const tight[] = {"--device-memory", "2", "--cpu-threads", "2", NULL};

	for (int fits = 0; fits < 2; fits++)
	{
		engine		e = engine_start(NULL, fits ? plain : tight);
		client		c = client_open(&e);
		vector_model m = model_of_vectors(7000, 20, 512, 100, false, GPUVEC_FLOAT32);
		uint64_t	before;

		see_rows(&m, true);
		check(load(&c, &m), "load");
		before = client_engine_info(&c).memory_used;
		ask_together(&e, &m);
		for (int round = 0; round < 2; round++)
		{
			check(check_gram(&c, &m), "a Gram matrix");
			check((client_engine_info(&c).memory_used >= before + 512 * 512 * sizeof(double)) == (fits == 1),
				  fits ? "it is charged" : "it is not kept");
			check(client_engine_info(&c).memory_used < before + 2 * 512 * 512 * sizeof(double), "once");
		}
		rewrite_page(&m, 0);
		see_rows(&m, true);
		check(refresh(&c, &m), "refresh");
		check(client_engine_info(&c).memory_used < before + 512 * 512 * sizeof(double),
			  "the charge ends with the rows");
		free_model(&m);
		client_close(&c);
		engine_stop(&e);
	}
}

/*
 * A random request whose answer takes at most 14 MB, as one of more than 16 MB
 * is charged to the budget
 */
static bool
check_small(client *c, const vector_model *m)
{
	request		r = random_request(m);
	bool		ok;

	while (r.head.nkeys * m->width * sizeof(float) > 14000000)
	{
		free_request(&r);
		r = random_request(m);
	}
	ok = check_request(c, m, &r, answer_right);
	free_request(&r);
	return ok;
}

/*
 * Tables that do not fit together, on a device that has hardly more memory
 * than the budget: one makes room for another before that grows.  Every other
 * one has `small` pages.
 */
static void
tables_make_room(const char *memory, uint32_t small)
{
	engine		e;
	client		c;

	setenv("EMULATED_MEMORY", memory, 1);
	e = engine_start(NULL, (const char *const[]) {"--device-memory", "4", "--cpu-threads", "2", NULL});
	unsetenv("EMULATED_MEMORY");
	c = client_open(&e);
	for (int i = 0; i < 6; i++)
	{
		/* 257 to 512 rows of 4.8 kB, of 38 pages */
		vector_model m = model_of_vectors(5000 + (uint32_t) i, i % 2 == 0 ? small : 38, 1200, 1000, false, GPUVEC_FLOAT32);

		if (!check(load(&c, &m), "load"))
			fprintf(stderr, "%s\n", c.data);
		check(check_small(&c, &m), "a random request");
		free_model(&m);
	}
	check(engine_alive(&e), "the engine is alive");
	client_close(&c);
	engine_stop(&e);
}

void
test_embed_room(void)
{
	tables_make_room("5500000", 38);
	/* a small one would fit beside the large one, but not while that grows */
	tables_make_room("4600000", 19);
}

/*
 * The room that a table got for an update that failed stays charged: as much
 * as after the next one, which adds nothing
 */
void
test_embed_failed(void)
{
	engine		e = engine_start(NULL, (const char *const[]) {"--cpu-threads", "2", NULL});
	client		c = client_open(&e);
	vector_model m = model_of_vectors(1, 10, 40, 400, false, GPUVEC_FLOAT32);
	uint64_t	before;
	uint64_t	failed;
	uint32_t	nblocks = m.nblocks;

	check(load(&c, &m), "load");
	before = client_engine_info(&c).memory_used;
	resize(&m, 200);
	check(client_call(&c, GPUVEC_MSG_REFRESH_BEGIN, REFRESH(&m.key), GPUVEC_MSG_STATE) &&
		  send_pages(&c, &m, false), "pages");
	m.nblocks++;
	check(!commit(&c, &m) && c.frame.type == GPUVEC_MSG_ERROR, "a page is missing");
	m.nblocks--;
	client_close(&c);
	c = client_open(&e);
	failed = client_engine_info(&c).memory_used;
	check(failed > before, "what the table has got is charged");
	resize(&m, nblocks);
	check(check_random(&c, &m), "the table is as it was");
	check(refresh(&c, &m), "refresh");
	check(client_engine_info(&c).memory_used <= failed, "and nothing more");
	check(client_engine_info(&c).memory_used > before, "the room has stayed");
	check(check_random(&c, &m), "the table is as it was");
	free_model(&m);

	/* a load that fails leaves nothing */
	failed = client_engine_info(&c).memory_used;
	m = model_of_vectors(2, 50, 40, 400, false, GPUVEC_FLOAT32);
	m.nblocks++;
	check(client_call(&c, GPUVEC_MSG_LOAD_BEGIN, &(gpuvec_load) {.key = m.key,.nblocks = m.nblocks},
					  sizeof(gpuvec_load), GPUVEC_MSG_STATE), "load");
	m.nblocks--;
	check(send_pages(&c, &m, true), "pages");
	m.nblocks++;
	check(!commit(&c, &m) && c.frame.type == GPUVEC_MSG_ERROR, "a page is missing");
	m.nblocks--;
	client_close(&c);
	c = client_open(&e);
	check(client_engine_info(&c).memory_used == failed, "nothing is charged");
	free_model(&m);
	client_close(&c);
	engine_stop(&e);
}

/*
 * Requests for which the device may have no memory: each is answered rightly
 * or by that error, and what failed has left nothing behind.
 */
void
test_embed_scarce(void)
{
	static const char *const limits[] = {"60000", "120000", "250000", "600000", "2000000"};
	static bool (*const requests[]) (client *c, const vector_model *m) = {
		check_random, check_gradient, check_nearest
	};
	uint64_t	failed = 0;

	for (int i = 0; i < 5; i++)
	{
		vector_model m = model_of_vectors(6000 + (uint32_t) i, 6, 128, 200, false, GPUVEC_FLOAT32);
		engine		e;
		client		c;

		setenv("EMULATED_MEMORY", limits[i], 1);
		e = engine_start(NULL, (const char *const[]) {"--cpu-threads", "2", NULL});
		unsetenv("EMULATED_MEMORY");
		c = client_open(&e);
		if (!load(&c, &m))
			failed++;
		else
			for (int j = 0; j < 60; j++)
			{
				bool		right = requests[j % 3](&c, &m);

				failed += c.frame.type == GPUVEC_MSG_ERROR;
				if (!check(right || (c.frame.type == GPUVEC_MSG_ERROR && memcmp(c.data, "53200", 5) == 0),
						   "right, or out of memory"))
					break;
			}
		check(engine_alive(&e), "the engine is alive");
		free_model(&m);
		client_close(&c);
		engine_stop(&e);
	}
	check(failed > 0 || getenv("SERVER_TEST_EMULATED") == NULL, "some failed");
}

/* An answer keeps within its limit, with what it tells beside vectors */
void
test_embed_limit(void)
{
	const uint64_t limit = LIMIT;
	engine		e = engine_start("embed-limit:500", (const char *const[]) {"--cpu-threads", "2", NULL});
	client		c = client_open(&e);
	vector_model m = model_of_vectors(1, 20, 4, 40, false, GPUVEC_FLOAT32);
	uint64_t	answered = 0;
	uint64_t	refused = 0;

	check(load(&c, &m), "load");
	for (uint64_t n = 90; n < 140; n++)
	{
		request		r = {.head = {.key = m.key,.op = GPUVEC_EMBEDDING_GATHER,.missing = GPUVEC_MISSING_SKIP,
			.flags = GPUVEC_EMBEDDING_FOUND,.nkeys = n}};
		gpuvec_embedding_answer head;

		r.keys = malloc(n * sizeof(int64_t));
		for (uint64_t i = 0; i < n; i++)
			r.keys[i] = random_key(&m);
		r.map = calloc(8, 1);
		r.head.map_bytes = 8;
		if (!check(send_request(&c, &r), "an answer"))
			break;
		memcpy(&head, c.data, sizeof(head));
		if (head.status == GPUVEC_EMBEDDING_UNDECIDED && decide(&c, &r, &m, head.count))
		{
			if (!check(send_request(&c, &r), "an answer"))
				break;
			memcpy(&head, c.data, sizeof(head));
		}
		answered += head.status == GPUVEC_EMBEDDING_DONE;
		refused += head.status == GPUVEC_EMBEDDING_LARGE;
		check(head.status != GPUVEC_EMBEDDING_DONE || c.frame.length <= sizeof(head) + limit * sizeof(float),
			  "no more than the limit");
		free_request(&r);
	}
	check(answered > 0 && refused > 0 && answered + refused == 50, "both happen");
	free_model(&m);
	m = model_of_vectors(2, 60, 40, 400, false, GPUVEC_FLOAT32);
	check(load(&c, &m), "load");
	large = not_large = 0;
	for (int i = 0; i < 200; i++)
		check(check_gradient_with(&c, &m, gradient_or_large), "a gradient, or too many keys");
	check(large > 10 && not_large > 10, "both happen");
	free_model(&m);
	client_close(&c);
	engine_stop(&e);
}

/* One refresh after another, each with another number in all vectors */
typedef struct changer
{
	engine	   *e;
	vector_model m;
	int			stop;			/* atomic */
} changer;

/* All rows with keys 1, 2, ..., and this number in all elements */
static void
fill_pages(vector_model *m, float number)
{
	int64_t		key = 0;

	for (uint32_t block = 0; block < m->nblocks; block++)
	{
		vector_page *page = &m->pages[block];

		free_page(page);
		page->dirty = true;
		page->lsn++;
		for (uint16_t i = 0; i < MAX_ROWS; i++)
		{
			vector_row *row = &page->rows[i];

			*row = (vector_row) {.head = {.line = (uint16_t) (i + 1),.width = m->width,.key = ++key},.visible = true};
			row->elements = malloc(m->width * sizeof(float));
			for (uint32_t j = 0; j < m->width; j++)
				row->elements[j] = number;
			page->nrows = i + 1;
		}
	}
}

static void *
keep_changing(void *arg)
{
	changer    *w = arg;
	client		c = client_open(w->e);

	for (int i = 1; i <= 150; i++)
	{
		fill_pages(&w->m, (float) i);
		check(refresh(&c, &w->m), "refresh beside readers");
	}
	__atomic_store_n(&w->stop, 1, __ATOMIC_RELAXED);
	client_close(&c);
	return NULL;
}

static void *
keep_reading(void *arg)
{
	changer    *w = arg;
	client		c = client_open(w->e);
	request		r = {.head = {.key = w->m.key,.op = GPUVEC_EMBEDDING_GATHER,.missing = GPUVEC_MISSING_ERROR}};
	bool		ok = true;
	float		last = 0;
	int			rounds = 0;

	random_state ^= (uint64_t) (uintptr_t) &c;
	r.head.nkeys = (uint64_t) w->m.nblocks * MAX_ROWS;
	r.head.known = UINT64_MAX;
	r.head.map_bytes = (w->m.nblocks / 4 + 8) / 8 * 8;
	r.map = malloc(r.head.map_bytes);
	memset(r.map, 0xFF, r.head.map_bytes);
	r.keys = malloc(r.head.nkeys * sizeof(int64_t));
	for (uint64_t i = 0; i < r.head.nkeys; i++)
		r.keys[i] = 1 + (int64_t) i;
	while (ok && (rounds++ < 20 || !__atomic_load_n(&w->stop, __ATOMIC_RELAXED)))
	{
		gpuvec_embedding_answer head;
		const float *elements = (const float *) (c.data + sizeof(head));

		ok = send_request(&c, &r);
		memcpy(&head, c.data, sizeof(head));
		elements = (const float *) (c.data + sizeof(head));
		ok = ok && head.status == GPUVEC_EMBEDDING_DONE && head.count == r.head.nkeys * w->m.width;
		for (uint64_t i = 0; ok && i < head.count; i++)
			ok = elements[i] == elements[0];
		/* and never an older state than before */
		ok = ok && elements[0] >= last;
		last = ok ? elements[0] : last;
	}
	check(ok, "each answer is of one state");
	free_request(&r);
	client_close(&c);
	return NULL;
}

void
test_embed_concurrency(void)
{
	static const char *const plain[] = {"--cpu-threads", "2", NULL};
	engine		e = engine_start(NULL, plain);
	changer		w = {.e = &e,.m = model_of_vectors(1, 0, 7, 1, false, GPUVEC_FLOAT32)};
	client		c = client_open(&e);
	pthread_t	threads[4];

	w.m.pages = calloc(300, sizeof(vector_page));
	w.m.nblocks = 300;
	fill_pages(&w.m, 0);
	check(load(&c, &w.m), "load");
	for (int i = 0; i < 4; i++)
		pthread_create(&threads[i], NULL, i == 0 ? keep_changing : keep_reading, &w);
	for (int i = 0; i < 4; i++)
		pthread_join(threads[i], NULL);
	free_model(&w.m);
	client_close(&c);
	engine_stop(&e);
}

/* Frames that make no sense end the connection, and nothing else */
static void
expect_violation(const engine *e, gpuvec_message type, const buffer *b, const char *what)
{
	client		c = client_open(e);

	check(!client_call(&c, type, b->data, b->length, GPUVEC_MSG_EMBEDDING_ANSWER) &&
		  client_failed_with(&c, "08P01") && !client_read(&c), what);
	client_close(&c);
}

void
test_embed_violations(void)
{
	engine		e = engine_start(NULL, (const char *const[]) {"--cpu-threads", "2", NULL});
	client		c = client_open(&e);
	vector_model m = model_of_vectors(1, 10, 3, 100, false, GPUVEC_FLOAT32);
	int64_t		keys[4] = {1, 2, 3, 4};
	uint64_t	offsets[3] = {0, 1, 4};
	uint64_t	verdicts[2] = {2, 4};
	uint8_t		map[8] = {0};

	check(load(&c, &m), "load");
#define BAD_EMBED(change, what) \
	do { \
		buffer		b = {0}; \
		gpuvec_embedding_request head = {.key = m.key,.op = GPUVEC_EMBEDDING_POOL,.nkeys = 4,.nbags = 2,.nverdicts = 2,.map_bytes = 8}; \
		gpuvec_embedding_request *h; \
		buffer_add(&b, &head, sizeof(head)); \
		buffer_add(&b, keys, sizeof(keys)); \
		buffer_add(&b, offsets, sizeof(offsets)); \
		buffer_add(&b, verdicts, sizeof(verdicts)); \
		buffer_add(&b, map, sizeof(map)); \
		h = (gpuvec_embedding_request *) b.data; \
		change; \
		(void) h; \
		expect_violation(&e, GPUVEC_MSG_EMBEDDING, &b, what); \
		free(b.data); \
	} while (0)
	BAD_EMBED(b.length = 20, "a request that is cut off");
	BAD_EMBED(b.length -= 8, "a map that is cut off");
	BAD_EMBED(h->key.key_attnum = 0, "sets have no vectors");
	BAD_EMBED(h->op = GPUVEC_N_EMBEDDING_OPS, "an unknown operation");
	BAD_EMBED(h->mode = GPUVEC_N_POOL_MODES, "an unknown mode");
	BAD_EMBED(h->missing = GPUVEC_N_MISSING, "an unknown treatment");
	BAD_EMBED(h->flags = 64, "unknown flags");
	BAD_EMBED(h->flags = GPUVEC_EMBEDDING_KEPT_MAP, "a map beside the one that was kept");
	BAD_EMBED((h->flags = GPUVEC_EMBEDDING_KEPT_MAP, h->map_bytes = 0, b.length -= 8), "no map was kept");
	BAD_EMBED((h->flags = GPUVEC_EMBEDDING_KEPT_MAP | GPUVEC_EMBEDDING_KEEP_MAP, h->map_bytes = 0, b.length -= 8),
			  "a map to keep that is kept");
	BAD_EMBED(h->nkeys = 5, "fewer keys than said");
	BAD_EMBED(h->nkeys = UINT64_MAX / 8 + 2, "keys that overflow");
	BAD_EMBED(h->nbags = 1, "fewer bags than offsets");
	BAD_EMBED(h->nbags = UINT64_MAX, "bags that overflow");
	BAD_EMBED((h->nkeys = 3, h->nverdicts = 3), "offsets beyond the keys");
	BAD_EMBED(((uint64_t *) (h + 1))[5] = 9, "offsets not in order");
	BAD_EMBED(((uint64_t *) (h + 1))[4] = 1, "the first offset is not 0");
	BAD_EMBED(((uint64_t *) (h + 1))[7] = 5, "verdicts not in order");
	BAD_EMBED(h->nverdicts = UINT64_MAX, "verdicts that overflow");
	BAD_EMBED(h->map_bytes = 9, "a map longer than the request");
	BAD_EMBED((h->hotness = 3), "keys that are no multiple of hotness");
	BAD_EMBED(h->ngradient = UINT64_MAX / 2, "a gradient that overflows");
	BAD_EMBED(h->flags = GPUVEC_EMBEDDING_WEIGHTED, "weights that are not there");

#define BAD_NEAREST(change, what) \
	do { \
		buffer		b = {0}; \
		gpuvec_nearest_head head = {.key = m.key,.k = 3,.nqueries = 1,.width = 2,.nexcluded = 4,.map_bytes = 8}; \
		gpuvec_nearest_head *h; \
		buffer_add(&b, &head, sizeof(head)); \
		buffer_add(&b, keys, sizeof(keys)); \
		buffer_add(&b, map, sizeof(map)); \
		buffer_add(&b, map, sizeof(map)); \
		h = (gpuvec_nearest_head *) b.data; \
		change; \
		(void) h; \
		expect_violation(&e, GPUVEC_MSG_NEAREST, &b, what); \
		free(b.data); \
	} while (0)
	BAD_NEAREST(b.length = 20, "a search that is cut off");
	BAD_NEAREST(b.length -= 8, "a map that is cut off");
	BAD_NEAREST(h->metric = GPUVEC_N_METRICS, "an unknown metric");
	BAD_NEAREST(h->k = 0, "k is 0");
	BAD_NEAREST(h->k = GPUVEC_MAX_K + 1, "k is too large");
	BAD_NEAREST(h->nqueries = UINT32_MAX, "far too many queries");
	BAD_NEAREST(h->width = UINT32_MAX, "far too wide");
	BAD_NEAREST(h->nexcluded = UINT64_MAX, "excluded keys that overflow");
	BAD_NEAREST(((int64_t *) (h + 1))[0] = 7, "excluded keys not in order");
	BAD_NEAREST((h->nverdicts = h->nexcluded = 2, ((uint64_t *) (h + 1))[0] = 4, ((uint64_t *) (h + 1))[1] = 2),
				"verdicts not in order");

	/* the same, with two of the keys as the list of the query: offsets first */
#define BAD_LIST(first, last, key, what) \
	BAD_NEAREST((h->nexcluded = 0, h->nlisted = 2, ((uint64_t *) (h + 1))[0] = (first), \
				 ((uint64_t *) (h + 1))[1] = (last), ((int64_t *) (h + 1))[2] = (key), \
				 ((int64_t *) (h + 1))[3] = 5), what)
	BAD_LIST(1, 2, 3, "lists that do not begin at 0");
	BAD_LIST(0, 3, 3, "lists that end behind the keys");
	BAD_LIST(0, 1, 3, "lists that end before the keys");
	BAD_LIST(0, 2, 6, "a list not in order");
	BAD_NEAREST(h->nlisted = UINT64_MAX, "listed keys that overflow");

#define BAD_GRAM(change, what) \
	do { \
		buffer		b = {0}; \
		gpuvec_gram_head head = {.key = m.key,.nverdicts = 4,.map_bytes = 8}; \
		gpuvec_gram_head *h; \
		buffer_add(&b, &head, sizeof(head)); \
		buffer_add(&b, (uint64_t[]) {2, 4, 6, 8}, 4 * sizeof(uint64_t)); \
		buffer_add(&b, map, sizeof(map)); \
		h = (gpuvec_gram_head *) b.data; \
		change; \
		(void) h; \
		expect_violation(&e, GPUVEC_MSG_GRAM, &b, what); \
		free(b.data); \
	} while (0)
	BAD_GRAM(b.length = 20, "a head that is cut off");
	BAD_GRAM(b.length -= 8, "a map that is cut off");
	BAD_GRAM(h->key.key_attnum = 0, "no embedding table");
	BAD_GRAM(h->nverdicts = UINT64_MAX, "verdicts that overflow");
	BAD_GRAM(h->map_bytes = UINT64_MAX, "a map that overflows");
	BAD_GRAM(((uint64_t *) (h + 1))[1] = 2, "verdicts not in order");

	/* pages */
	{
		struct
		{
			gpuvec_page page;
			gpuvec_vector_row row;
			float		elements[2];
		}			good = {{.nrows = 1,.bytes = sizeof(gpuvec_vector_row) + 8}, {.line = 1,.width = 2}, {1, 2}};

#define BAD_VECTOR(change, what) \
	do { \
		client		d = client_open(&e); \
		gpuvec_load load = {.key = m.key}; \
		typeof(good) p = good; \
		load.key.relation = 2; \
		change; \
		check(client_call(&d, GPUVEC_MSG_LOAD_BEGIN, &load, sizeof(load), GPUVEC_MSG_STATE), "begin"); \
		(void) client_send(&d, GPUVEC_MSG_PAGES, &p, sizeof(p.page) + p.page.bytes); \
		check(client_read(&d) && client_failed_with(&d, "08P01") && !client_read(&d), what); \
		client_close(&d); \
	} while (0)
		BAD_VECTOR(p.row.width = 3, "a vector wider than its row");
		BAD_VECTOR(p.row.width = 1, "a row wider than its vector");
		BAD_VECTOR(p.row.width = UINT32_MAX, "a vector far too wide");
		BAD_VECTOR(p.row.kind = GPUVEC_VECTOR_NULLS, "a bad vector with elements");
		BAD_VECTOR((p.row.kind = GPUVEC_VECTOR_NULLS, p.row.width = 1, p.page.bytes = sizeof(gpuvec_vector_row) + 4),
				   "a bad vector with one element");
		BAD_VECTOR(p.row.kind = GPUVEC_N_VECTOR_KINDS, "a vector of an unknown kind");
		BAD_VECTOR(p.row.line = 0, "line pointer 0");
		BAD_VECTOR(p.page.nrows = 2, "fewer rows than said");
	}
	for (int i = 0; i < 10; i++)
		check(check_random(&c, &m), "the engine is as before");
	free_model(&m);
	client_close(&c);
	engine_stop(&e);
}

/* Requests with a random change: whatever the answer, the engine lives */
void
test_embed_fuzz(void)
{
	engine		e = engine_start(NULL, (const char *const[]) {"--device-memory", "64", "--cpu-threads", "2", NULL});
	client		c = client_open(&e);
	vector_model m = model_of_vectors(1, 40, 5, 300, false, GPUVEC_FLOAT32);
	int			rounds = getenv("SERVER_TEST_FUZZ") ? atoi(getenv("SERVER_TEST_FUZZ")) : 2000;

	check(load(&c, &m), "load");
	for (int round = 0; round < rounds && engine_alive(&e); round++)
	{
		client		d = client_open(&e);
		request		r = random_request(&m);
		char	   *head = (char *) &r.head;
		uint64_t	nkeys = r.head.nkeys;
		uint64_t	nbags = r.head.nbags;

		/* what is behind the head stays, and is read by its true counts */
		head[random_below(sizeof(r.head))] ^= (char) (1 << random_below(8));
		if (r.head.nkeys > nkeys || r.head.nbags > nbags || r.head.nverdicts > 0 || r.head.ngradient > 0 ||
			r.head.map_bytes > 100)
		{
			(void) client_send(&d, GPUVEC_MSG_EMBEDDING, &r.head, sizeof(r.head));
			(void) client_read(&d);
		}
		else
			(void) send_request(&d, &r);
		client_close(&d);
		free_request(&r);
		if (round % 100 == 0 && !check(check_random(&c, &m), "the engine is as before"))
			break;
	}
	check(engine_alive(&e), "the engine survives");
	check(check_random(&c, &m) && check_nearest(&c, &m), "and answers");
	free_model(&m);
	client_close(&c);
	engine_stop(&e);
}

/* What test_embed_memory asks for */
typedef struct asking
{
	vector_model m;
	request		r;
} asking;

static bool
ask_same(client *c, void *arg)
{
	asking	   *a = arg;

	return check_again(c, &a->m, &a->r);
}

static bool
ask_nearest(client *c, void *arg)
{
	return check_nearest(c, &((asking *) arg)->m);
}

static bool
ask_load(client *c, void *arg)
{
	asking	   *a = arg;

	a->m.key.relation++;
	return load(c, &a->m);
}

static bool
ask_any(client *c, void *arg)
{
	return check_random(c, &((asking *) arg)->m);
}

static bool
ask_gram(client *c, void *arg)
{
	return check_gram(c, &((asking *) arg)->m);
}

/* All that a mirror may meet, from its load to its end */
static bool
ask_life(client *c, void *arg)
{
	vector_model *m = &((asking *) arg)->m;
	gpuvec_drop drop = {.database = m->key.database,.relation = m->key.relation};
	bool		ok = load(c, m) && check_random(c, m) && check_gram(c, m);

	rewrite_page(m, (uint32_t) random_below(m->nblocks));
	return ok && refresh(c, m) && check_random(c, m) && check_nearest(c, m) &&
		client_call(c, GPUVEC_MSG_DROP, &drop, sizeof(drop), GPUVEC_MSG_COUNT);
}

/* Requests of embedding tables lose no memory, even if they find none */
static void
embed_none_lost(client *c, asking *a)
{
	memory_none_lost(c, "requests lose no memory", ask_any, a, false);
	for (int rounds = 0; rounds < 12;)
	{
		a->r = knowing_request(&a->m);
		if (a->r.head.nkeys < 1000)
		{
			memory_none_lost(c, "a request loses no memory", ask_same, a, true);
			rounds++;
		}
		free_request(&a->r);
	}
	memory_none_lost(c, "nearest rows lose no memory", ask_nearest, a, true);
	memory_none_lost(c, "Gram matrices lose no memory", ask_gram, a, true);
	memory_none_lost(c, "mirrors of vectors lose no memory", ask_life, a, false);
}

/* No memory for requests of embedding tables: see server_memory.c */
void
test_embed_memory(void)
{
	engine		e = memory_engine();
	client		c = client_open(&e);
	asking		a = {.m = model_of_vectors(1000, 20, 16, 400, false, GPUVEC_FLOAT32)};

	check(load(&c, &a.m), "load");
	for (int round = 0; round < 10; round++)
	{
		a.r = knowing_request(&a.m);
		memory_try(&e, &c, "a request", ask_same, ask_same, &a, false);
		free_request(&a.r);
	}
	memory_try(&e, &c, "the nearest rows", ask_nearest, ask_nearest, &a, false);
	memory_try(&e, &c, "a load of vectors", ask_load, ask_load, &a, true);
	embed_none_lost(&c, &a);
	free_model(&a.m);
	client_close(&c);
	memory_engine_stop(&e);
}
