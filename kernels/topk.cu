/*-------------------------------------------------------------------------
 *
 * topk.cu
 *	  The host's side of a search.
 *
 * Queries are sorted by (kind, length, largest id), so that the queries of a
 * batch have similar bounds, and cut into chunks whose scratch memory fits the
 * limit.  For a chunk, the rounds are planned ahead from the number of tiles in
 * each class and queued without waiting:
 *
 *		scan a sample of the tiles, keep candidates within the bound
 *		select the k best of (list so far, candidates); the k-th is the new bound
 *
 * each round several times larger than all before, so that a round gives about
 * growth * k candidates, far fewer than there is room for.  The first round has
 * no bound and is as large as the room allows.
 *
 * Order and ties can defeat the sampling.  Then a query loses candidates, which
 * its counter tells; what it kept still gives a valid bound.  Such queries are
 * run again, starting with that bound, in few and large rounds with the host
 * watching: a round that overflows is dropped and repeated with the bound that
 * it gave and half the tiles.  A round of no more rows than there is room for
 * cannot overflow, so this ends.
 *
 *-------------------------------------------------------------------------
 */
#include <algorithm>
#include <math.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "cuda_backend.h"

#define MAX_ROUNDS			64

/* Defaults of gpuvec_cuda_tuning */
#define MIN_CANDIDATES		8192
#define CANDIDATES_PER_K	8
#define GROWTH				8
#define GROWTH_FEW			16	/* if there are few batches */
#define FIRST_ROWS			4096
#define ITEM_TILES			2048
#define GRAB				4

/* Limits of a chunk */
#define CHUNK_QUERIES		32768
#define CHUNK_IDS			((uint64_t) 1 << 26)

/* Queries that are run again together */
#define RETRY_QUERIES		32
#define RETRY_CANDIDATES	(1 << 18)

/* A query on its way, in the order of work */
struct work_query
{
	gpuvec_topk_query *query;
	uint32_t	k;				/* at most the rows of the view */
	uint32_t	kind;			/* queries of one kind share a chunk */
	uint32_t	maxid;
	struct row_key bound;
};

/* One topk call */
struct search
{
	struct cuda_backend *b;
	const struct cuda_view *view;
	gpuvec_measure measure;
	struct work_query *work;
	uint32_t	nwork;
	uint32_t   *overflowed;		/* positions in work */
	uint32_t	noverflowed;
	bool		stopped;		/* nobody wants this chunk any more */
	gpuvec_error *error;
};

/* A chunk: some queries of the same kind, and where its scratch memory lies */
struct chunk
{
	struct work_query *work;
	const uint32_t *positions;	/* which of work, or NULL: the first n */
	uint32_t	n;
	uint32_t	kmax;
	uint32_t	planes;
	uint32_t	entry_bits;
	uint32_t	batch;			/* queries of a batch */
	uint32_t	capacity;
	size_t		shared_bytes;
	uint32_t	blocks;			/* that run at once */

	/* offsets; results .. states is copied back, states .. ids copied in */
	size_t		results;
	size_t		states;
	size_t		counters;
	size_t		ids;
	size_t		top[2];
	size_t		candidates;
	size_t		bytes;
	uint64_t	nids;

	uint32_t	which;			/* top[which] holds the lists */
	uint32_t	launches;		/* counters used */
};

static inline struct work_query *
chunk_query(const struct chunk *c, uint32_t i)
{
	return &c->work[c->positions ? c->positions[i] : i];
}

static inline size_t
align_up(size_t n)
{
	return (n + 255) / 256 * 256;
}

static inline bool
is_canceled(const gpuvec_topk_query *query)
{
	return query->canceled != NULL && __atomic_load_n(query->canceled, __ATOMIC_RELAXED);
}

/* Is nobody waiting for any query of the chunk? */
static bool
chunk_canceled(const struct chunk *c)
{
	for (uint32_t i = 0; i < c->n; i++)
		if (!is_canceled(chunk_query(c, i)->query))
			return false;
	return true;
}

/*
 * Wait for what was queued.  Looks at the cancellation flags from time to time,
 * and makes the kernels end early if nobody waits any more.
 */
static bool
wait_for_device(struct search *s, const struct chunk *c)
{
	struct cuda_backend *b = s->b;
	uint32_t	spins = 0;
	cudaError_t rc;

	if (!cuda_check(b, cudaEventRecord(b->finished, b->stream), "search on the GPU", s->error))
		return false;
	while ((rc = cudaEventQuery(b->finished)) == cudaErrorNotReady)
	{
		spins++;
		if (spins < 2000)
			continue;
		if (spins % 64 == 0 && !s->stopped && chunk_canceled(c))
		{
			s->stopped = true;
			if (!cuda_check(b, cudaMemcpyAsync(b->stop, b->stop_value, sizeof(uint32_t),
											   cudaMemcpyHostToDevice, b->side_stream),
							"search on the GPU", s->error))
				return false;
		}
		if (spins < 4000)
			sched_yield();
		else
		{
			struct timespec pause = {0, 20000};

			nanosleep(&pause, NULL);
		}
	}
	return cuda_check(b, rc, "search on the GPU", s->error);
}

/* After a chunk that was stopped: let the next one run */
static bool
clear_stop(struct search *s)
{
	struct cuda_backend *b = s->b;

	if (!s->stopped)
		return true;
	s->stopped = false;
	return cuda_check(b, cudaStreamSynchronize(b->side_stream), "search on the GPU", s->error) &&
		cuda_check(b, cudaMemsetAsync(b->stop, 0, sizeof(uint32_t), b->stream), "search on the GPU",
				   s->error);
}

/* Grow scratch memory on the device to at least this */
static bool
need_scratch(struct search *s, size_t bytes)
{
	struct cuda_backend *b = s->b;

	if (bytes <= b->scratch_bytes)
		return true;
	device_free(b, b->scratch, b->stream);
	b->scratch = NULL;
	b->scratch_bytes = 0;
	if (!device_alloc(b, (void **) &b->scratch, bytes, b->stream, "a search", s->error))
		return false;
	b->scratch_bytes = bytes;
	return true;
}

/* Grow a pinned buffer to at least this */
static bool
need_pinned(struct search *s, char **buffer, size_t *size, size_t bytes)
{
	if (bytes <= *size)
		return true;
	bytes += bytes / 2;
	if (*buffer)
		cudaFreeHost(*buffer);
	*buffer = NULL;
	*size = 0;
	if (!cuda_check(s->b, cudaHostAlloc((void **) buffer, bytes, cudaHostAllocDefault),
					"allocate pinned memory for a search", s->error))
		return false;
	*size = bytes;
	return true;
}

/* The widest entries whose table fits shared memory */
static uint32_t
choose_entry_bits(const struct cuda_backend *b, uint32_t planes, uint32_t maxid)
{
	uint32_t	bits = b->tuning.entry_bits ? b->tuning.entry_bits : 32;

	while (bits > 8 && scan_shared_bytes(bits, planes, maxid) > b->smem_limit)
		bits /= 2;
	return bits;
}

/* Which kernel serves the chunk, and how many blocks of it run at once? */
static bool
choose_kernel(struct search *s, struct chunk *c, uint32_t planes)
{
	struct cuda_backend *b = s->b;
	int			blocks = 0;

	c->planes = b->tuning.planes ? b->tuning.planes : planes;
	c->entry_bits = choose_entry_bits(b, c->planes, s->view->maxid);
	c->shared_bytes = scan_shared_bytes(c->entry_bits, c->planes, s->view->maxid);
	c->batch = c->entry_bits;
	if (!cuda_check(b, scan_blocks(c->entry_bits, c->planes, c->shared_bytes, &blocks),
					"prepare a search", s->error))
		return false;
	c->blocks = (uint32_t) std::max(blocks, 1) * b->sms;
	b->stats.entry_bits = c->entry_bits;
	b->stats.planes = c->planes;
	return true;
}

/* Room for one query's candidates: never more than the view has rows */
static uint32_t
fit_capacity(const struct search *s, uint64_t wanted)
{
	uint64_t	rows = (uint64_t) s->view->ntiles * 32;

	wanted = std::min(std::max(wanted, (uint64_t) 32), rows);
	return (uint32_t) ((wanted + 31) / 32 * 32);
}

/* Scratch memory that a query of a chunk takes */
static size_t
query_bytes(uint32_t kmax, uint32_t capacity)
{
	return sizeof(struct query_state) +
		sizeof(struct row_key) * ((size_t) 3 * kmax + capacity);
}

/* Lay out the scratch memory of a chunk */
static void
lay_out(struct chunk *c)
{
	size_t		list = sizeof(struct row_key) * c->kmax * c->n;
	size_t		at = 0;

	c->nids = 0;
	for (uint32_t i = 0; i < c->n; i++)
		c->nids += chunk_query(c, i)->query->len;
	c->results = at;
	if (c->kmax <= GPUVEC_FAST_K)
		at += align_up(list);
	c->states = at;
	at += align_up(sizeof(struct query_state) * c->n);
	c->counters = at;
	at += align_up(sizeof(uint32_t) * MAX_ROUNDS);
	c->ids = at;
	at += align_up(sizeof(uint16_t) * c->nids);
	c->top[0] = at;
	at += align_up(list);
	c->top[1] = at;
	at += align_up(list);
	c->candidates = at;
	at += align_up(sizeof(struct row_key) * c->capacity * c->n);
	c->bytes = at;
	c->which = 0;
	c->launches = 0;
}

/* Write one query's state for the device */
static void
fill_state(struct query_state *state, const struct work_query *w, uint32_t ids)
{
	const gpuvec_topk_query *q = w->query;

	memset(state, 0, sizeof(*state));
	state->bound = w->bound;
	if (q->has_after)
	{
		uint64_t	block = q->after_tid >> 16;
		uint64_t	line = q->after_tid & 0xFFFF;

		/* + 0.0 makes a 0 of -0, which no score is */
		state->after.hi = gpuvec_score_key(q->after_score + 0.0);
		if (block > UINT32_MAX)
			state->after.lo = ~UINT64_C(0);
		else if (line > GPUVEC_MAX_LINE)
			state->after.lo = block << 32 | UINT32_MAX;
		else
			state->after.lo = key_from_tid(q->after_tid) | KEY_COMMON_MASK;
	}
	state->ids = ids;
	state->len = q->len;
	state->k = w->k;
}

/* Copy the chunk's queries to the device */
static bool
upload_chunk(struct search *s, struct chunk *c)
{
	struct cuda_backend *b = s->b;
	size_t		bytes = c->top[0] - c->states;
	struct query_state *states;
	uint16_t   *ids;
	uint64_t	at = 0;

	if (!need_scratch(s, c->bytes) ||
		!need_pinned(s, &b->upload, &b->upload_bytes, bytes))
		return false;
	states = (struct query_state *) b->upload;
	ids = (uint16_t *) (b->upload + (c->ids - c->states));
	memset(b->upload + (c->counters - c->states), 0, c->ids - c->counters);
	for (uint32_t i = 0; i < c->n; i++)
	{
		const struct work_query *w = chunk_query(c, i);

		fill_state(&states[i], w, (uint32_t) at);
		if (w->query->len > 0)
			memcpy(ids + at, w->query->ids, sizeof(uint16_t) * w->query->len);
		at += w->query->len;
	}
	return cuda_check(b, cudaMemcpyAsync(b->scratch + c->states, b->upload, bytes,
										 cudaMemcpyHostToDevice, b->stream),
					  "copy queries to the GPU", s->error);
}

/* Set every launch's item counter to zero once more */
static bool
reset_counters(struct search *s, struct chunk *c)
{
	c->launches = 0;
	return cuda_check(s->b, cudaMemsetAsync(s->b->scratch + c->counters, 0,
											sizeof(uint32_t) * MAX_ROUNDS, s->b->stream),
					  "search on the GPU", s->error);
}

/*
 * Cut a scan into items.  An item takes long enough for the making of its table
 * to be small beside it, yet there are enough items for all blocks.
 */
static void
cut_items(const struct search *s, const struct chunk *c, struct scan_params *p)
{
	const struct cuda_view *view = s->view;
	const struct gpuvec_cuda_tuning *t = &s->b->tuning;
	uint32_t	tiles = view->tiles_before[p->class_hi] - view->tiles_before[p->class_lo];
	double		per_group = 32.0 * std::max(tiles, 1u) / view->ntiles;
	double		groups = (t->item_tiles ? t->item_tiles : ITEM_TILES) / per_group;
	double		most = (double) view->ngroups * p->nbatches / (4.0 * c->blocks);
	uint32_t	warps = scan_threads(c->planes) / 32;
	uint32_t	grab = t->grab ? t->grab : GRAB;

	groups = std::min(std::max(std::min(groups, most), 1.0), (double) view->ngroups);
	p->range_groups = (uint32_t) groups;
	p->nitems = (view->ngroups + p->range_groups - 1) / p->range_groups * p->nbatches;

	/* with few tiles in the sample, more places at a time; but all warps get some */
	p->grab = 1;
	while (p->grab * per_group / 32.0 < grab && p->grab * 2 * warps <= p->range_groups * 32)
		p->grab *= 2;
}

/* Queue the scan of some classes */
static bool
queue_scan(struct search *s, struct chunk *c, uint32_t class_lo, uint32_t class_hi)
{
	struct cuda_backend *b = s->b;
	struct scan_params p;

	if (c->launches == MAX_ROUNDS && !reset_counters(s, c))
		return false;
	memset(&p, 0, sizeof(p));
	p.segments = s->view->segments;
	p.groups = s->view->groups;
	p.queries = (struct query_state *) (b->scratch + c->states);
	p.ids = (const uint16_t *) (b->scratch + c->ids);
	p.candidates = (struct row_key *) (b->scratch + c->candidates);
	p.next_item = (uint32_t *) (b->scratch + c->counters) + c->launches++;
	p.stop = b->stop;
	p.ngroups = s->view->ngroups;
	p.nqueries = c->n;
	p.capacity = c->capacity;
	p.class_lo = class_lo;
	p.class_hi = class_hi;
	p.maxid = s->view->maxid;
	p.nbatches = (c->n + c->batch - 1) / c->batch;
	p.measure = s->measure;
	cut_items(s, c, &p);
	b->stats.rounds++;
	return cuda_check(b, scan_launch(&p, c->entry_bits, c->planes, c->shared_bytes,
									 std::min(c->blocks, p.nitems), b->stream),
					  "search on the GPU", s->error);
}

/* Queue the selection after a round */
static bool
queue_select(struct search *s, struct chunk *c, enum select_mode mode)
{
	struct cuda_backend *b = s->b;
	struct select_params p;

	memset(&p, 0, sizeof(p));
	p.queries = (struct query_state *) (b->scratch + c->states);
	p.candidates = (const struct row_key *) (b->scratch + c->candidates);
	p.top_in = (const struct row_key *) (b->scratch + c->top[c->which]);
	p.top_out = (struct row_key *) (b->scratch + c->top[1 - c->which]);
	p.results = (struct row_key *) (b->scratch + c->results);
	p.nqueries = c->n;
	p.capacity = c->capacity;
	p.kmax = c->kmax;
	p.mode = mode;
	if (mode == SELECT_ROUND)
		c->which = 1 - c->which;
	return cuda_check(b, select_launch(&p, b->stream), "search on the GPU", s->error);
}

/* Queue the sorting of lists too long for SELECT_FINAL */
static bool
queue_sort(struct search *s, struct chunk *c)
{
	struct cuda_backend *b = s->b;
	struct sort_params p;
	uint32_t	width = 0;

	memset(&p, 0, sizeof(p));
	p.queries = (const struct query_state *) (b->scratch + c->states);
	p.nqueries = c->n;
	p.kmax = c->kmax;
	while (width < c->kmax)
	{
		p.in = (const struct row_key *) (b->scratch + c->top[c->which]);
		p.out = (struct row_key *) (b->scratch + c->top[1 - c->which]);
		p.width = width;
		if (!cuda_check(b, sort_launch(&p, b->stream), "search on the GPU", s->error))
			return false;
		c->which = 1 - c->which;
		width = width == 0 ? SORT_RUN : width * 2;
	}
	return true;
}

/* Queue the copy of a chunk's states and sorted lists to the host */
static bool
queue_download(struct search *s, struct chunk *c)
{
	struct cuda_backend *b = s->b;
	size_t		bytes = c->counters - c->results;
	size_t		list = c->kmax <= GPUVEC_FAST_K ? 0 :
		sizeof(struct row_key) * c->kmax * c->n;

	if (!need_pinned(s, &b->download, &b->download_bytes, bytes + list) ||
		!cuda_check(b, cudaMemcpyAsync(b->download, b->scratch + c->results, bytes,
									   cudaMemcpyDeviceToHost, b->stream),
					"copy results from the GPU", s->error))
		return false;
	return list == 0 ||
		cuda_check(b, cudaMemcpyAsync(b->download + bytes, b->scratch + c->top[c->which], list,
									  cudaMemcpyDeviceToHost, b->stream),
				   "copy results from the GPU", s->error);
}

/* Turn one query's list into matches */
static void
decode_matches(gpuvec_topk_query *query, const struct row_key *list, uint32_t n)
{
	for (uint32_t i = 0; i < n; i++)
	{
		gpuvec_match *m = &query->matches[i];
		uint64_t	lo = list[i].lo;

		m->score = gpuvec_key_score(list[i].hi);
		m->tid = gpuvec_tid((uint32_t) (lo >> 32), lo >> KEY_COMMON_BITS & GPUVEC_MAX_LINE);
		m->common = (uint32_t) (lo & KEY_COMMON_MASK);
		m->padding = 0;
	}
	query->nmatches = n;
}

/* Take over a finished chunk's results; note the queries that overflowed */
static void
finish_chunk(struct search *s, const struct chunk *c)
{
	const char *download = s->b->download;
	size_t		states_at = c->states - c->results;
	const struct query_state *states = (const struct query_state *) (download + states_at);
	const struct row_key *lists = (const struct row_key *)
		(c->kmax <= GPUVEC_FAST_K ? download : download + (c->counters - c->results));

	for (uint32_t i = 0; i < c->n; i++)
	{
		struct work_query *w = chunk_query(c, i);

		if (s->stopped)
			w->query->nmatches = 0;
		else if (states[i].overflow)
		{
			w->bound = states[i].bound;
			s->overflowed[s->noverflowed++] = (uint32_t) (w - s->work);
		}
		else
			decode_matches(w->query, lists + (size_t) i * c->kmax, states[i].ntop);
	}
}

/* The largest class_hi for which classes below it have at most this many tiles */
static uint32_t
classes_within(const struct cuda_view *view, uint64_t tiles)
{
	uint32_t	lo = 0;
	uint32_t	hi = TILE_CLASSES;

	while (lo < hi)
	{
		uint32_t	middle = (lo + hi + 1) / 2;

		if (view->tiles_before[middle] <= tiles)
			lo = middle;
		else
			hi = middle - 1;
	}
	return lo;
}

/* Plan the rounds of a chunk: ends[] of their classes; returns how many */
static uint32_t
plan_rounds(const struct search *s, const struct chunk *c, uint32_t *ends)
{
	const struct gpuvec_cuda_tuning *t = &s->b->tuning;
	double		tiles = s->view->ntiles;
	double		first = t->first_rows ? t->first_rows : std::max(FIRST_ROWS, (int) (16 * c->kmax));
	double		growth = t->growth ? t->growth : c->n > 4 * c->batch ? GROWTH : GROWTH_FEW;
	uint32_t	nrounds;
	uint32_t	n = 0;

	if (tiles * 32 <= c->capacity)
	{
		ends[0] = TILE_CLASSES;
		return 1;
	}
	first = std::max(std::min(first, (double) c->capacity) / 32, 1.0);
	growth = std::max(std::min(growth, c->capacity / (2.0 * c->kmax)), 2.0);
	nrounds = (uint32_t) ceil(log(tiles / first) / log(growth) - 1e-9);
	nrounds = std::min(std::max(nrounds, 1u), (uint32_t) MAX_ROUNDS - 2);
	growth = pow(tiles / first, 1.0 / nrounds);
	for (uint32_t i = 0; i < nrounds; i++)
	{
		uint32_t	end = classes_within(s->view, (uint64_t) (first * pow(growth, i)));

		if (end > (n > 0 ? ends[n - 1] : 0))
			ends[n++] = end;
	}
	if (n == 0 || ends[n - 1] < TILE_CLASSES)
		ends[n++] = TILE_CLASSES;
	return n;
}

/* Run a chunk: everything is queued, then waited for once */
static bool
run_chunk(struct search *s, struct chunk *c)
{
	uint32_t	ends[MAX_ROUNDS];
	uint32_t	nrounds;
	bool		fast = c->kmax <= GPUVEC_FAST_K;

	s->b->stats.chunks++;
	lay_out(c);
	nrounds = plan_rounds(s, c, ends);
	if (!upload_chunk(s, c))
		return false;
	for (uint32_t i = 0; i < nrounds; i++)
		if (!queue_scan(s, c, i > 0 ? ends[i - 1] : 0, ends[i]) ||
			!queue_select(s, c, fast && i + 1 == nrounds ? SELECT_FINAL : SELECT_ROUND))
			return false;
	if (!fast && !queue_sort(s, c))
		return false;
	if (!queue_download(s, c) || !wait_for_device(s, c))
		return false;
	finish_chunk(s, c);
	return clear_stop(s);
}

/* Did a query of the chunk lose candidates in the round that was queued? */
static bool
round_overflowed(struct search *s, struct chunk *c, bool *overflowed)
{
	struct cuda_backend *b = s->b;
	size_t		bytes = sizeof(struct query_state) * c->n;
	const struct query_state *states;

	if (!need_pinned(s, &b->download, &b->download_bytes, bytes) ||
		!cuda_check(b, cudaMemcpyAsync(b->download, b->scratch + c->states, bytes,
									   cudaMemcpyDeviceToHost, b->stream),
					"copy results from the GPU", s->error) ||
		!wait_for_device(s, c))
		return false;
	states = (const struct query_state *) b->download;
	*overflowed = false;
	for (uint32_t i = 0; i < c->n; i++)
		if (states[i].count > c->capacity)
			*overflowed = true;
	return true;
}

/* Run a chunk of queries that overflowed before, so that it cannot fail to fit */
static bool
run_watched(struct search *s, struct chunk *c)
{
	uint32_t	lo = 0;
	uint32_t	span = classes_within(s->view, c->capacity / 32);
	bool		fast = c->kmax <= GPUVEC_FAST_K;

	lay_out(c);
	if (!upload_chunk(s, c))
		return false;
	while (lo < TILE_CLASSES && !s->stopped)
	{
		uint32_t	hi = (uint32_t) std::min((uint64_t) lo + std::max(span, 1u),
											 (uint64_t) TILE_CLASSES);
		bool		overflowed;

		if (!queue_scan(s, c, lo, hi) || !round_overflowed(s, c, &overflowed))
			return false;
		if (overflowed)
		{
			s->b->stats.retries++;
			if (!queue_select(s, c, SELECT_TIGHTEN))
				return false;
			span = (hi - lo) / 2;
			continue;
		}
		if (!queue_select(s, c, fast && hi == TILE_CLASSES ? SELECT_FINAL : SELECT_ROUND))
			return false;
		span = std::min(span * 2, (uint32_t) TILE_CLASSES);
		lo = hi;
	}
	/* a query that was stopped half way has no answer; finish_chunk sees to it */
	if (!fast && !queue_sort(s, c))
		return false;
	if (!queue_download(s, c) || !wait_for_device(s, c))
		return false;
	finish_chunk(s, c);
	return clear_stop(s);
}

/* Run again the queries that overflowed */
static bool
run_overflowed(struct search *s)
{
	struct cuda_backend *b = s->b;
	uint32_t	n = s->noverflowed;

	b->stats.overflows += n;
	for (uint32_t from = 0; from < n; from += RETRY_QUERIES)
	{
		struct chunk c;
		uint64_t	capacity;
		uint32_t	planes = 8;

		memset(&c, 0, sizeof(c));
		c.work = s->work;
		c.positions = s->overflowed + from;
		c.n = std::min(n - from, (uint32_t) RETRY_QUERIES);
		for (uint32_t i = 0; i < c.n; i++)
		{
			const struct work_query *w = chunk_query(&c, i);

			c.kmax = std::max(c.kmax, w->k);
			if (std::min(w->query->len, s->view->maxlen) > 255)
				planes = 17;
		}
		if (chunk_canceled(&c))
			continue;
		if (!choose_kernel(s, &c, planes))
			return false;
		capacity = b->workspace / c.n / sizeof(struct row_key);
		capacity = std::min(capacity, std::max((uint64_t) RETRY_CANDIDATES,
											   (uint64_t) CANDIDATES_PER_K * c.kmax));
		if (b->tuning.retry_candidates)
			capacity = b->tuning.retry_candidates;
		capacity = std::max(capacity, (uint64_t) s->view->largest_class * 32);
		c.capacity = fit_capacity(s, capacity);
		if (!run_watched(s, &c))
			return false;
	}
	return true;
}

/* The chunk that starts at s->work[from]; c->n == 0 if nothing is left to do there */
static bool
next_chunk(struct search *s, uint32_t from, struct chunk *c)
{
	struct cuda_backend *b = s->b;
	const struct gpuvec_cuda_tuning *t = &b->tuning;
	uint32_t	most = t->chunk_queries ? t->chunk_queries : CHUNK_QUERIES;
	uint64_t	nids = 0;
	uint32_t	n = 0;

	memset(c, 0, sizeof(*c));
	c->work = s->work + from;
	if (!choose_kernel(s, c, s->work[from].kind & 1 ? 17 : 8))
		return false;
	for (uint32_t i = from; i < s->nwork && n < most; i++, n++)
	{
		const struct work_query *w = &s->work[i];
		uint32_t	kmax = std::max(c->kmax, w->k);
		uint32_t	capacity = fit_capacity(s, t->candidates ? t->candidates :
											std::max((uint64_t) MIN_CANDIDATES,
													 (uint64_t) CANDIDATES_PER_K * kmax));

		nids += w->query->len;
		if (n > 0 && (w->kind != s->work[from].kind || nids > CHUNK_IDS ||
					  query_bytes(kmax, capacity) * (n + 1) + nids * 2 > b->workspace))
			break;
		c->kmax = kmax;
		c->capacity = capacity;
	}

	/* whole batches, unless these are the last ones */
	if (n > c->batch && from + n < s->nwork && s->work[from + n].kind == s->work[from].kind)
		n -= n % c->batch;
	c->n = n;
	return true;
}

/* Take the queries that can have matches, in the order of work */
static void
collect_work(struct search *s, const gpuvec_view *view, gpuvec_topk_query *queries,
			 uint32_t nqueries)
{
	for (uint32_t i = 0; i < nqueries; i++)
	{
		gpuvec_topk_query *q = &queries[i];
		struct work_query *w = &s->work[s->nwork];

		q->nmatches = 0;
		if (view->nrows == 0 || q->k == 0 || is_canceled(q) ||
			(q->len == 0 && !gpuvec_ranks_disjoint(s->measure)))
			continue;
		w->query = q;
		w->k = (uint32_t) std::min((uint64_t) q->k, view->nrows);
		w->maxid = q->len > 0 ? q->ids[q->len - 1] : 0;
		/* kind: bit 0: many planes, from bit 1: magnitude of k beyond the fast path */
		w->kind = std::min(q->len, s->view->maxlen) > 255;
		for (uint32_t k = w->k; k > GPUVEC_FAST_K; k /= 4)
			w->kind += 2;
		w->bound.hi = q->has_min_score ? gpuvec_score_key(q->min_score + 0.0) : ~UINT64_C(0);
		w->bound.lo = ~UINT64_C(0);
		s->nwork++;
	}
	std::sort(s->work, s->work + s->nwork,
			  [] (const struct work_query &a, const struct work_query &b)
			  {
				  if (a.kind != b.kind)
					  return a.kind < b.kind;
				  if (a.query->len != b.query->len)
					  return a.query->len < b.query->len;
				  return a.maxid < b.maxid;
			  });
}

/* Run all chunks, then what overflowed */
static bool
run_search(struct search *s)
{
	uint32_t	from = 0;

	while (from < s->nwork)
	{
		struct chunk c;

		if (!next_chunk(s, from, &c))
			return false;
		from += c.n;
		if (chunk_canceled(&c))
			continue;
		if (!run_chunk(s, &c))
			return false;
	}
	return run_overflowed(s);
}

/* The backend's topk */
bool
cuda_topk(gpuvec_backend *backend, const gpuvec_view *view, gpuvec_measure measure,
		  gpuvec_method method, gpuvec_topk_query *queries, uint32_t nqueries, gpuvec_error *error)
{
	struct cuda_backend *b = (struct cuda_backend *) backend;
	struct search s;
	bool		ok;

	memset(&s, 0, sizeof(s));
	s.b = b;
	s.view = (const struct cuda_view *) view->device;
	s.measure = measure;
	s.error = error;
	memset(&b->stats, 0, sizeof(b->stats));
	if (nqueries == 0)
		return true;
	if (!cuda_enter(b, error))
		return false;
	s.work = (struct work_query *) malloc(sizeof(struct work_query) * nqueries);
	s.overflowed = (uint32_t *) malloc(sizeof(uint32_t) * nqueries);
	if (s.work == NULL || s.overflowed == NULL)
		ok = gpuvec_fail_memory(error, sizeof(struct work_query) * nqueries);
	else
	{
		collect_work(&s, view, queries, nqueries);
		ok = run_search(&s);
		/* nothing of this call may still run when its memory is used again */
		if (!ok && !b->broken)
			cudaStreamSynchronize(b->stream);
	}
	free(s.work);
	free(s.overflowed);
	return ok;
}
