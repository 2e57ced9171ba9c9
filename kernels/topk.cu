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
 * A query that is alone, or nearly so, spends most of its time waiting for one thing after
 * the other.  So it reaches the device as a parameter of the first kernel, the last kernel
 * writes the results to the host, and in between each kernel starts while the one before
 * ends (launch_chained).
 *
 * By inverted lists (lists.cu) there are three rounds: a sample of some blocks gives a
 * query its first bound, an eighth of the blocks a better one, the others follow.
 * The first two choose blocks whose rows have the length at which the best rows for
 * the query are expected.  Segments without lists, which are small, are scanned in
 * the last round.
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
#define MIN_CANDIDATES		16384
#define MIN_CANDIDATES_FEW	262144	/* if there are at most FEW_QUERIES: memory is no matter then */
#define FEW_QUERIES			64
#define CANDIDATES_PER_K	8
#define GROWTH				8
#define GROWTH_FEW			16	/* if there are few batches */
#define FIRST_ROWS			4096
#define ITEM_TILES			2048
#define GRAB				4
#define SAMPLE_TILED		24	/* blocks of a query's sample */
#define SAMPLE_WHOLE		6
#define NEAR				16	/* one in so many blocks is counted before the others */
#define FEW					48	/* queries */
#define MANY				400 /* queries */
#define ITEM_QUERIES		64
#define WHOLE_ITEM_QUERIES	8
#define UNSAMPLED_ROWS		8192	/* of a view: all may become candidates */
#define SAMPLE_ROWS			16	/* of a block, at least */
#define SAMPLE_PER_K		4	/* rows of the sample, at least */

/* Limits of a chunk */
#define CHUNK_QUERIES		32768
#define CHUNK_IDS			((uint64_t) 1 << 26)

/* Queries that are run again together */
#define RETRY_QUERIES		32
#define RETRY_CANDIDATES	(1 << 18)

/* The rounds of counting by lists */
enum list_round
{
	ROUND_SAMPLE,				/* a few rows of a few blocks give a bound */
	ROUND_NEAR,					/* a part of the blocks gives a better one */
	ROUND_REST					/* the other blocks */
};

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
	struct cuda_view *view;
	gpuvec_measure measure;
	gpuvec_method method;
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
	bool		lists;			/* count by lists */
	bool		lone;			/* so few queries that they are kernel parameters */
	bool		direct;			/* the last kernel writes results and states to the host */
	bool		again;			/* its queries overflowed before, and have good bounds */
	uint32_t	planes;
	uint32_t	list_planes;
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
	size_t		ranges;			/* which queries blocks are samples for */
	size_t		uploaded;		/* end of what is copied in */
	size_t		entries;		/* of the queries in each segment's lists */
	size_t		nentries_of;
	size_t		top[2];
	size_t		candidates;
	size_t		bytes;
	uint64_t	nids;
	uint64_t	nentries;		/* in eights */

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
	if (!cuda_check(b, cudaStreamSynchronize(b->side_stream), "search on the GPU", s->error) ||
		!cuda_check(b, cudaMemsetAsync(b->stop, 0, sizeof(uint32_t), b->stream),
					"search on the GPU", s->error))
		return false;
	s->stopped = false;
	return true;
}

/*
 * After a failure: nothing of this search may still run when its memory is used again,
 * and the next one must not find the order to stop.  The failure is what is reported.
 */
static void
quiet_device(struct search *s)
{
	gpuvec_error *error = s->error;
	gpuvec_error ignored;

	cudaStreamSynchronize(s->b->stream);
	s->error = &ignored;
	if (!clear_stop(s))
		s->b->broken = true;
	s->error = error;
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

/* Eights of entries that a query has in a segment: slots are filled up to eights */
static inline uint32_t
query_entries(uint32_t len)
{
	return (len + 21) / 8;
}

/* Scratch memory that a query of a chunk takes for lists */
static size_t
query_list_bytes(const struct search *s, uint32_t len)
{
	return (query_entries(len) + 1) * sizeof(uint4) * s->view->nsegments;
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
lay_out(struct chunk *c, size_t nsegments, size_t nblocks)
{
	size_t		list = sizeof(struct row_key) * c->kmax * c->n;
	size_t		at = 0;

	c->nids = 0;
	c->nentries = 0;
	for (uint32_t i = 0; i < c->n; i++)
	{
		uint32_t	len = chunk_query(c, i)->query->len;

		c->nids += len;
		c->nentries += query_entries(len);
	}
	c->results = at;
	if (c->kmax <= GPUVEC_FAST_K)
		at += align_up(list);
	c->states = at;
	at += align_up(sizeof(struct query_state) * c->n);
	c->counters = at;
	at += align_up(sizeof(uint32_t) * MAX_ROUNDS);
	c->ids = at;
	at += align_up(sizeof(uint16_t) * c->nids);
	c->ranges = at;
	if (c->lists)
		at += align_up(sizeof(uint2) * 2 * nblocks);
	c->uploaded = at;
	c->entries = at;
	if (c->lists)
		at += align_up(sizeof(uint4) * c->nentries * nsegments);
	c->nentries_of = at;
	if (c->lists)
		at += align_up(sizeof(uint4) * c->n * nsegments);
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
	state->limits.bound = w->bound;
	if (q->has_after)
	{
		uint64_t	block = q->after_tid >> 16;
		uint64_t	line = q->after_tid & 0xFFFF;

		/* + 0.0 makes a 0 of -0, which no score is */
		state->limits.after.hi = gpuvec_score_key(q->after_score + 0.0);
		if (block > UINT32_MAX)
			state->limits.after.lo = ~UINT64_C(0);
		else if (line > GPUVEC_MAX_LINE)
			state->limits.after.lo = block << 32 | UINT32_MAX;
		else
			state->limits.after.lo = key_from_tid(q->after_tid) | KEY_COMMON_MASK;
	}
	state->ids = ids;
	state->limits.len = q->len;
	state->k = w->k;
}

/* How many blocks of a kind does a query count in a round? */
static uint32_t
round_blocks(const struct search *s, const struct chunk *c, enum list_round round, int kind)
{
	const struct gpuvec_cuda_tuning *t = &s->b->tuning;
	uint32_t	nblocks = s->view->nblocks[kind];
	uint32_t	wanted;

	if (round == ROUND_REST)
		return nblocks;
	if (c->again || (uint64_t) s->view->ntiles * 32 <= std::min(c->capacity, (uint32_t) UNSAMPLED_ROWS))
		return 0;
	if (round == ROUND_SAMPLE)
	{
		wanted = t->sample ? t->sample : kind == 0 ? SAMPLE_TILED : SAMPLE_WHOLE;
		return wanted == ~0u ? 0 : std::min(wanted, (nblocks + 7) / 8);
	}
	return c->n <= FEW ? 0 : nblocks / (t->near ? t->near : NEAR);
}

/* Does any query count any block in a round? */
static bool
has_round(const struct search *s, const struct chunk *c, enum list_round round)
{
	return round_blocks(s, c, round, 0) + round_blocks(s, c, round, 1) > 0;
}

/* The number of ids that the best rows for a query have */
static uint32_t
best_length(const struct search *s, const gpuvec_topk_query *query)
{
	switch (s->measure)
	{
		case GPUVEC_INTERSECTION:
		case GPUVEC_CONTAINMENT:
			return UINT32_MAX;
		case GPUVEC_OVERLAP:
			return 0;
		default:
			return query->len;
	}
}

/* The first of the n blocks of a kind around a length */
static uint32_t
first_block(const struct search *s, int kind, uint32_t n, uint32_t best)
{
	uint32_t	nblocks = s->view->nblocks[kind];
	const uint32_t *len = s->view->block_len[kind];
	uint32_t	from = (uint32_t) (std::lower_bound(len, len + nblocks, best) - len);
	uint32_t	upto = (uint32_t) (std::upper_bound(len, len + nblocks, best) - len);
	uint32_t	middle = from + (upto - from) / 2;

	return std::min(middle > n / 2 ? middle - n / 2 : 0, nblocks - n);
}

/*
 * Choose n blocks for each query: those around its best length, which come one after
 * another.  ranges[] says for each block which queries it is for: also one after
 * another, as the queries are in order of length.
 */
static void
choose_blocks(const struct search *s, const struct chunk *c, int kind, uint32_t n, uint2 *ranges)
{
	memset(ranges, 0, sizeof(uint2) * s->view->nblocks[kind]);
	for (uint32_t q = 0, next; q < c->n; q = next)
	{
		uint32_t	best = best_length(s, chunk_query(c, q)->query);
		uint32_t	from = first_block(s, kind, n, best);

		for (next = q + 1; next < c->n; next++)
			if (best_length(s, chunk_query(c, next)->query) != best)
				break;
		for (uint32_t i = from; i < from + n; i++)
		{
			if (ranges[i].y == 0)
				ranges[i].x = q;
			ranges[i].y = next - ranges[i].x;
		}
	}
}

/* Where the ranges of a round and kind begin among all of them */
static uint32_t
ranges_at(const struct search *s, enum list_round round, int kind)
{
	return (round == ROUND_SAMPLE ? 0 : s->view->nblocks[0] + s->view->nblocks[1]) +
		(kind == 0 ? 0 : s->view->nblocks[0]);
}

/* Choose the blocks of the first two rounds */
static void
fill_ranges(const struct search *s, const struct chunk *c, uint2 *ranges)
{
	for (int kind = 0; kind < 2; kind++)
	{
		choose_blocks(s, c, kind, round_blocks(s, c, ROUND_SAMPLE, kind),
					  ranges + ranges_at(s, ROUND_SAMPLE, kind));
		choose_blocks(s, c, kind, round_blocks(s, c, ROUND_NEAR, kind),
					  ranges + ranges_at(s, ROUND_NEAR, kind));
	}
}

/* Write the states and ids of a chunk's queries for the device */
static void
fill_queries(const struct chunk *c, struct query_state *states, uint16_t *ids)
{
	uint32_t	at = 0;
	uint32_t	entries = 0;

	for (uint32_t i = 0; i < c->n; i++)
	{
		const struct work_query *w = chunk_query(c, i);

		fill_state(&states[i], w, at);
		states[i].entries = entries;
		entries += query_entries(w->query->len);
		if (w->query->len > 0)
			memcpy(ids + at, w->query->ids, sizeof(uint16_t) * w->query->len);
		at += w->query->len;
	}
}

/* Copy the chunk's queries to the device */
static bool
upload_chunk(struct search *s, struct chunk *c)
{
	struct cuda_backend *b = s->b;
	size_t		bytes = c->uploaded - c->states;

	if (!need_pinned(s, &b->upload, &b->upload_bytes, bytes))
		return false;
	memset(b->upload + (c->counters - c->states), 0, c->ids - c->counters);
	fill_queries(c, (struct query_state *) b->upload,
				 (uint16_t *) (b->upload + (c->ids - c->states)));
	if (c->lists)
		fill_ranges(s, c, (uint2 *) (b->upload + (c->ranges - c->states)));
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

/* The tiles in some classes; the view of a search is counted only if need be */
static uint32_t
class_tiles(const struct search *s, uint32_t class_lo, uint32_t class_hi)
{
	if (class_lo == 0 && class_hi == TILE_CLASSES)
		return s->view->ntiles;
	cuda_view_classes(s->view);
	return s->view->tiles_before[class_hi] - s->view->tiles_before[class_lo];
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
	uint32_t	tiles = class_tiles(s, p->class_lo, p->class_hi);
	double		per_group = 32.0 * std::max(tiles, 1u) / view->ntiles;
	double		groups = (t->item_tiles ? t->item_tiles : ITEM_TILES) / per_group;
	double		most = (double) p->ngroups * p->nbatches / (4.0 * c->blocks);
	uint32_t	warps = scan_threads(c->planes) / 32;
	uint32_t	grab = t->grab ? t->grab : GRAB;

	groups = std::min(std::max(std::min(groups, most), 1.0), (double) p->ngroups);
	p->range_groups = (uint32_t) groups;
	p->nitems = (p->ngroups + p->range_groups - 1) / p->range_groups * p->nbatches;

	/* with few tiles in the sample, more places at a time; but all warps get some */
	p->grab = 1;
	while (p->grab * per_group / 32.0 < grab && p->grab * 2 * warps <= p->range_groups * 32)
		p->grab *= 2;
}

/* Queue the scan of some classes of the first groups */
static bool
queue_scan(struct search *s, struct chunk *c, uint32_t ngroups, uint32_t class_lo,
		   uint32_t class_hi)
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
	p.ngroups = ngroups;
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

/* Cut the counting of blocks into items, and queue it */
static bool
queue_blocks(struct search *s, struct chunk *c, struct list_params *p, int kind)
{
	struct cuda_backend *b = s->b;
	uint32_t	few = b->tuning.few ? b->tuning.few : FEW;
	uint32_t	item_queries = b->tuning.item_queries ? b->tuning.item_queries :
		kind == 0 ? ITEM_QUERIES : WHOLE_ITEM_QUERIES;
	bool		plain = s->view->plain && c->list_planes <= 8;
	uint32_t	slices;
	cudaError_t rc;

	if (p->nblocks == 0)
		return true;
	if (c->launches == MAX_ROUNDS && !reset_counters(s, c))
		return false;
	p->next_item = (uint32_t *) (b->scratch + c->counters) + c->launches++;
	slices = p->own_blocks > 0 ? 1 : (c->n + item_queries - 1) / item_queries;
	if (kind == 0)
		/* the fewer slices, the less often bitmaps are staged */
		slices = std::min(slices, 16 * (uint32_t) b->sms / p->nblocks + 1);
	p->item_queries = (c->n + slices - 1) / slices;
	p->nslices = (c->n + p->item_queries - 1) / p->item_queries;
	b->stats.own_rounds += p->own_blocks > 0;
	if (kind == 1)
	{
		b->stats.plain_rounds += plain;
		b->stats.plain_lone_rounds += plain && c->n <= LONE_QUERIES;
		rc = lists_count_whole(p, c->list_planes, plain, b->sms, b->stream);
	}
	else if (c->n <= (b->tuning.lone ? b->tuning.lone : LONE_QUERIES))
		rc = lists_count_lone(p, c->list_planes, b->stream);
	else if (c->n <= few)
		rc = lists_count_direct(p, c->list_planes, b->stream);
	else
		rc = lists_count_tiled(p, c->list_planes, b->smem_limit, s->view->nstaged, b->sms,
							   b->stream);
	b->stats.rounds++;
	return cuda_check(b, rc, "search on the GPU", s->error);
}

/* What all launches of a chunk's counting by lists have in common */
static void
fill_list_params(const struct search *s, const struct chunk *c, struct list_params *p)
{
	struct cuda_backend *b = s->b;

	memset(p, 0, sizeof(*p));
	p->segments = s->view->segments;
	p->queries = (struct query_state *) (b->scratch + c->states);
	p->ids = (const uint16_t *) (b->scratch + c->ids);
	p->entries = (uint16_t *) (b->scratch + c->entries);
	p->nentries_of = (uint4 *) (b->scratch + c->nentries_of);
	p->candidates = (struct row_key *) (b->scratch + c->candidates);
	p->stop = b->stop;
	p->nsegments = s->view->nsegments;
	p->nentries = (uint32_t) c->nentries;
	p->nqueries = c->n;
	p->capacity = c->capacity;
	p->measure = s->measure;
}

/*
 * For queries that are alone: choose the blocks of a round as fill_ranges() does for
 * many, but tell them to the kernel.
 */
static void
choose_own_blocks(const struct search *s, const struct chunk *c, struct list_params *p, int kind,
				  uint32_t n)
{
	for (uint32_t q = 0; q < c->n; q++)
		p->own_first[q] = first_block(s, kind, n, best_length(s, chunk_query(c, q)->query));
	p->own_blocks = n;
	p->nblocks = n * c->n;
}

/* Queue the counting of a round */
static bool
queue_lists(struct search *s, struct chunk *c, struct list_params *p, enum list_round round)
{
	const uint2 *ranges = (const uint2 *) (s->b->scratch + c->ranges);
	uint32_t	sum = round_blocks(s, c, round, 0) + round_blocks(s, c, round, 1);
	bool		near = has_round(s, c, ROUND_NEAR);

	p->sample = 0;
	if (round == ROUND_SAMPLE)
	{
		p->sample = std::max(s->b->tuning.sample_rows ? s->b->tuning.sample_rows :
							 (uint32_t) SAMPLE_ROWS, (SAMPLE_PER_K * c->kmax + sum - 1) / sum);
		p->sample = std::max(std::min(p->sample, c->capacity / (2 * sum)), 1u);
	}
	for (int kind = 0; kind < 2; kind++)
	{
		p->blocks = s->view->blocks[kind];
		p->nblocks = s->view->nblocks[kind];
		p->own_blocks = 0;
		p->ranges = NULL;
		if (round != ROUND_REST && c->lone)
			choose_own_blocks(s, c, p, kind, round_blocks(s, c, round, kind));
		else if (round != ROUND_REST)
			p->ranges = ranges + ranges_at(s, round, kind);
		p->counted = round == ROUND_REST && near ? ranges + ranges_at(s, ROUND_NEAR, kind) : NULL;
		if (round_blocks(s, c, round, kind) > 0 && !queue_blocks(s, c, p, kind))
			return false;
	}
	return true;
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
	if (c->direct && mode == SELECT_FINAL)
	{
		p.results = (struct row_key *) b->download;
		p.states = (struct query_state *) (b->download + (c->states - c->results));
	}
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

	if (c->direct)
		return true;
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

	s->b->stats.stopped_chunks += s->stopped;
	for (uint32_t i = 0; i < c->n; i++)
	{
		struct work_query *w = chunk_query(c, i);

		if (s->stopped)
			w->query->nmatches = 0;
		else if (states[i].overflow)
		{
			w->bound = states[i].limits.bound;
			s->b->stats.direct_overflows += c->direct;
			s->overflowed[s->noverflowed++] = (uint32_t) (w - s->work);
		}
		else
			decode_matches(w->query, lists + (size_t) i * c->kmax, states[i].ntop);
	}
}

/* The largest class_hi for which classes below it have at most this many tiles */
static uint32_t
classes_within(struct cuda_view *view, uint64_t tiles)
{
	uint32_t	lo = 0;
	uint32_t	hi = TILE_CLASSES;

	if (tiles >= view->ntiles)
		return hi;
	cuda_view_classes(view);
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

/* Queue all rounds of a chunk that is scanned */
static bool
queue_scan_rounds(struct search *s, struct chunk *c)
{
	uint32_t	ends[MAX_ROUNDS];
	uint32_t	nrounds = plan_rounds(s, c, ends);
	bool		fast = c->kmax <= GPUVEC_FAST_K;

	for (uint32_t i = 0; i < nrounds; i++)
		if (!queue_scan(s, c, s->view->ngroups, i > 0 ? ends[i - 1] : 0, ends[i]) ||
			!queue_select(s, c, fast && i + 1 == nrounds ? SELECT_FINAL : SELECT_ROUND))
			return false;
	return true;
}

/* Queue the classification of ids for queries that come as parameters */
static bool
queue_lone(struct search *s, const struct chunk *c, const struct list_params *p)
{
	struct cuda_backend *b = s->b;
	struct lone_params lone;

	lone.lists = *p;
	lone.counters = (uint32_t *) (b->scratch + c->counters);
	lone.stored_ids = (uint16_t *) (b->scratch + c->ids);
	lone.ncounters = MAX_ROUNDS;
	lone.nids = (uint32_t) c->nids;
	fill_queries(c, lone.queries, lone.ids);
	return cuda_check(b, lists_classify_lone(&lone, b->stream), "search on the GPU", s->error);
}

/* Queue the rounds of a chunk that is counted by lists */
static bool
queue_list_rounds(struct search *s, struct chunk *c)
{
	struct list_params p;

	s->b->stats.list_chunks++;
	fill_list_params(s, c, &p);
	if (!(c->lone ? queue_lone(s, c, &p) :
		  cuda_check(s->b, lists_classify(&p, s->b->stream), "search on the GPU", s->error)))
		return false;
	if (has_round(s, c, ROUND_SAMPLE) &&
		(!queue_lists(s, c, &p, ROUND_SAMPLE) || !queue_select(s, c, SELECT_TIGHTEN)))
		return false;
	if (has_round(s, c, ROUND_NEAR) &&
		(!queue_lists(s, c, &p, ROUND_NEAR) || !queue_select(s, c, SELECT_ROUND)))
		return false;
	return queue_lists(s, c, &p, ROUND_REST) &&
		(s->view->nplain == 0 || queue_scan(s, c, s->view->nplain, 0, TILE_CLASSES)) &&
		queue_select(s, c, c->kmax <= GPUVEC_FAST_K ? SELECT_FINAL : SELECT_ROUND);
}

/* Run a chunk: everything is queued, then waited for once */
static bool
run_chunk(struct search *s, struct chunk *c)
{
	bool		fast = c->kmax <= GPUVEC_FAST_K;

	s->b->stats.chunks++;
	lay_out(c, s->view->nsegments, s->view->nblocks[0] + s->view->nblocks[1]);
	c->lone = c->lists && c->nids <= LONE_IDS &&
		c->n <= std::min(s->b->tuning.lone ? s->b->tuning.lone : LONE_QUERIES, (uint32_t) LONE_QUERIES);
	c->direct = fast && c->n <= LONE_QUERIES;
	s->b->stats.lone_chunks += c->lone;
	if (!need_scratch(s, c->bytes) ||
		(c->direct && !need_pinned(s, &s->b->download, &s->b->download_bytes, c->counters - c->results)) ||
		!(c->lone || upload_chunk(s, c)) ||
		!(c->lists ? queue_list_rounds(s, c) : queue_scan_rounds(s, c)))
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

	lay_out(c, s->view->nsegments, s->view->nblocks[0] + s->view->nblocks[1]);
	if (!need_scratch(s, c->bytes) || !upload_chunk(s, c))
		return false;
	while (lo < TILE_CLASSES && !s->stopped)
	{
		uint32_t	hi = (uint32_t) std::min((uint64_t) lo + std::max(span, 1u),
											 (uint64_t) TILE_CLASSES);
		bool		overflowed;

		if (!queue_scan(s, c, s->view->ngroups, lo, hi) || !round_overflowed(s, c, &overflowed))
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

/*
 * Does counting by lists pay?  A lookup in a list or bitmap serves one query, one
 * of the scan up to 32, but it touches only ids that both have; so lists lose only
 * where many segments have none, and where counts need many planes.  And in small
 * blocks, for a batch that is too large for a warp for each query and block, and too
 * small to pay for the staging of bitmaps (FEW, MANY): next_chunk sees to that.
 */
static bool
lists_pay(const struct search *s, const struct work_query *w)
{
	uint64_t	rows = (uint64_t) s->view->ntiles * 32;

	if (s->method == GPUVEC_METHOD_BITSET || s->view->listed_rows == 0)
		return false;
	if (s->method == GPUVEC_METHOD_INVERTED)
		return true;
	return !(w->kind & 1) && s->view->listed_rows * 2 >= rows;
}

/* The planes that counters need: as many bits as the largest count */
static uint32_t
planes_for(const struct search *s, uint32_t len)
{
	uint32_t	most = std::min(len, s->view->maxlen);

	return most <= 127 ? 7 : most <= 255 ? 8 : 17;
}

/*
 * Run again by lists the queries that overflowed: with the bounds that they have now
 * and more room, few overflow once more.
 */
static bool
run_overflowed_by_lists(struct search *s)
{
	uint32_t	n = s->noverflowed;
	uint32_t	next;

	s->b->stats.overflows += n;
	s->noverflowed = 0;
	std::sort(s->overflowed, s->overflowed + n);
	for (uint32_t from = 0; from < n; from = next)
	{
		const struct work_query *first = &s->work[s->overflowed[from]];
		uint32_t	positions[RETRY_QUERIES];
		struct chunk c;

		memset(&c, 0, sizeof(c));
		if (!choose_kernel(s, &c, first->kind & 1 ? 17 : 8))
			return false;
		for (next = from; next < n && c.n < RETRY_QUERIES; next++)
		{
			const struct work_query *w = &s->work[s->overflowed[next]];

			if (w->kind != first->kind)
				break;
			positions[c.n++] = s->overflowed[next];
			c.kmax = std::max(c.kmax, w->k);
			c.list_planes = std::max(c.list_planes, planes_for(s, w->query->len));
		}
		c.work = s->work;
		c.positions = positions;
		c.lists = true;
		c.again = true;
		c.capacity = s->b->tuning.retry_candidates ? s->b->tuning.retry_candidates :
			std::max((uint32_t) RETRY_CANDIDATES, CANDIDATES_PER_K * c.kmax);
		c.capacity = fit_capacity(s, std::min((uint64_t) c.capacity, s->b->workspace / c.n /
											  sizeof(struct row_key)));
		if (!chunk_canceled(&c) && !run_chunk(s, &c))
			return false;
	}
	return true;
}

/* Run again the queries that overflowed, so that they cannot overflow */
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
		cuda_view_classes(s->view);
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
	uint64_t	list_bytes = 0;
	uint32_t	n = 0;

	memset(c, 0, sizeof(*c));
	c->work = s->work + from;
	if (!choose_kernel(s, c, s->work[from].kind & 1 ? 17 : 8))
		return false;
	c->lists = lists_pay(s, &s->work[from]);
	for (uint32_t i = from; i < s->nwork && n < most; i++, n++)
	{
		const struct work_query *w = &s->work[i];
		uint32_t	kmax = std::max(c->kmax, w->k);
		uint64_t	least = s->nwork <= FEW_QUERIES ? MIN_CANDIDATES_FEW : MIN_CANDIDATES;
		uint32_t	capacity = fit_capacity(s, t->candidates ? t->candidates :
											std::max(least, (uint64_t) CANDIDATES_PER_K * kmax));

		nids += w->query->len;
		if (c->lists)
			list_bytes += query_list_bytes(s, w->query->len);
		if (n > 0 && (w->kind != s->work[from].kind || nids > CHUNK_IDS ||
					  query_bytes(kmax, capacity) * (n + 1) + nids * 2 + list_bytes >
					  b->workspace))
			break;
		c->list_planes = std::max(c->list_planes, planes_for(s, w->query->len));
		c->kmax = kmax;
		c->capacity = capacity;
	}
	if (c->lists && s->method == GPUVEC_METHOD_AUTO && !t->few && s->view->nblocks[0] > 0 &&
		n > FEW && n < MANY)
		c->lists = false;

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
	if (s->noverflowed > 0 && lists_pay(s, &s->work[s->overflowed[0]]) &&
		!run_overflowed_by_lists(s))
		return false;
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
	s.view = (struct cuda_view *) view->device;
	s.measure = measure;
	s.method = method;
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
		if (!ok && !b->broken)
			quiet_device(&s);
	}
	free(s.work);
	free(s.overflowed);
	return ok;
}
