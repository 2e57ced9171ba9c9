/*-------------------------------------------------------------------------
 *
 * chunk.cu
 *	  A chunk of queries: its memory, its way to the device, the kernels, its way back.
 *
 * The scratch memory of a chunk is one piece, of which states to ids are copied to the
 * device, and results and states back.  Kernels and copies are queued in one stream, and
 * waited for once; whoever waits looks at the cancellation flags from time to time.
 *
 *-------------------------------------------------------------------------
 */
#include <algorithm>
#include <sched.h>
#include <string.h>
#include <time.h>

#include "kernels/search/chunk.h"

namespace gpuvec
{

/* Is nobody waiting for any query of the chunk? */
bool
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
bool
wait_for_device(struct search *s, const struct chunk *c)
{
	struct search_backend *b = s->b;
	uint32_t	spins = 0;
	cudaError_t rc;

	if (!b->device.check(cudaEventRecord(b->finished.get(), b->stream.get()), "search on the GPU", s->error))
		return false;
	while ((rc = cudaEventQuery(b->finished.get())) == cudaErrorNotReady)
	{
		spins++;
		if (spins < 2000)
			continue;
		if (spins % 64 == 0 && !s->stopped && chunk_canceled(c))
		{
			s->stopped = true;
			if (!b->device.check(cudaMemcpyAsync((uint32_t *) b->stop.get(), b->stop_value.get(), sizeof(uint32_t),
												 cudaMemcpyHostToDevice, b->device.side_stream.get()),
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
	return b->device.check(rc, "search on the GPU", s->error);
}

/* After a chunk that was stopped: let the next one run */
bool
clear_stop(struct search *s)
{
	struct search_backend *b = s->b;

	if (!s->stopped)
		return true;
	if (!b->device.check(cudaStreamSynchronize(b->device.side_stream.get()), "search on the GPU", s->error) ||
		!b->device.check(cudaMemsetAsync((uint32_t *) b->stop.get(), 0, sizeof(uint32_t), b->stream.get()),
						 "search on the GPU", s->error))
		return false;
	s->stopped = false;
	return true;
}

/*
 * After a failure: nothing of this search may still run when its memory is used again,
 * and the next one must not find the order to stop.  The failure is what is reported.
 */
void
quiet_device(struct search *s)
{
	gpuvec_error *error = s->error;
	gpuvec_error ignored;

	cudaStreamSynchronize(s->b->stream.get());
	s->error = &ignored;
	if (!clear_stop(s))
		s->b->device.broken = true;
	s->error = error;
}

/* Grow scratch memory on the device to at least this */
bool
need_scratch(struct search *s, size_t bytes)
{
	struct search_backend *b = s->b;

	if (bytes <= b->scratch_bytes)
		return true;
	b->scratch_bytes = 0;
	if (!allocate(b->device, b->scratch, bytes, b->stream.get(), "a search", s->error))
		return false;
	b->scratch_bytes = bytes;
	return true;
}

/* Grow a pinned buffer to at least this */
bool
need_pinned(struct search *s, unique_pinned &buffer, size_t &size, size_t bytes)
{
	if (bytes <= size)
		return true;
	bytes += bytes / 2;
	buffer.reset();
	size = 0;
	if (!create_pinned(s->b->device, buffer, bytes, s->error, "allocate pinned memory for a search"))
		return false;
	size = bytes;
	return true;
}

/* The widest entries whose table fits shared memory */
static uint32_t
choose_entry_bits(const struct search_backend *b, uint32_t planes, uint32_t maxid)
{
	uint32_t	bits = b->policy.entry_bits;

	while (bits > 8 && scan_shared_bytes(bits, planes, maxid) > b->device.shared_limit)
		bits /= 2;
	return bits;
}

/* Which kernel serves the chunk, and how many blocks of it run at once? */
bool
choose_kernel(struct search *s, struct chunk *c, uint32_t planes)
{
	struct search_backend *b = s->b;
	int			blocks = 0;

	c->planes = std::max(planes, s->policy.least_planes);
	c->entry_bits = choose_entry_bits(b, c->planes, s->view->maxid);
	c->shared_bytes = scan_shared_bytes(c->entry_bits, c->planes, s->view->maxid);
	c->batch = c->entry_bits;
	if (!b->device.check(scan_blocks(c->entry_bits, c->planes, c->shared_bytes, &blocks),
						 "prepare a search", s->error))
		return false;
	c->blocks = (uint32_t) std::max(blocks, 1) * b->device.sms;
	b->stats.entry_bits = c->entry_bits;
	b->stats.planes = c->planes;
	return true;
}

/* Room for one query's candidates: never more than the view has rows */
uint32_t
fit_capacity(const struct search *s, uint64_t wanted)
{
	uint64_t	rows = (uint64_t) s->view->ntiles * 32;

	wanted = std::min(std::max(wanted, (uint64_t) 32), rows);
	return (uint32_t) ((wanted + 31) / 32 * 32);
}

/* Scratch memory that a query of a chunk takes for lists */
size_t
query_list_bytes(const struct search *s, uint32_t len)
{
	return (query_entries(len) + 1) * sizeof(uint4) * s->view->nsegments;
}

/* Scratch memory that a query of a chunk takes */
size_t
query_bytes(uint32_t kmax, uint32_t capacity)
{
	return sizeof(struct query_state) +
		sizeof(struct row_key) * ((size_t) 3 * kmax + capacity);
}

/* Lay out the scratch memory of a chunk */
void
lay_out(struct chunk *c, size_t nsegments, size_t nblocks)
{
	size_t		list = sizeof(struct row_key) * c->kmax * c->n;
	struct arena at = {NULL, 0};

	c->nids = 0;
	c->nentries = 0;
	for (uint32_t i = 0; i < c->n; i++)
	{
		uint32_t	len = chunk_query(c, i)->query->len;

		c->nids += len;
		c->nentries += query_entries(len);
	}
	c->results = at.reserve(c->kmax <= GPUVEC_FAST_K ? list : 0);
	c->states = at.reserve(sizeof(struct query_state) * c->n);
	c->counters = at.reserve(sizeof(uint32_t) * MAX_ROUNDS);
	c->ids = at.reserve(sizeof(uint16_t) * c->nids);
	c->ranges = at.reserve(c->lists ? sizeof(uint2) * 2 * nblocks : 0);
	c->uploaded = at.used;
	c->entries = at.reserve(c->lists ? sizeof(uint4) * c->nentries * nsegments : 0);
	c->nentries_of = at.reserve(c->lists ? sizeof(uint4) * c->n * nsegments : 0);
	c->top[0] = at.reserve(list);
	c->top[1] = at.reserve(list);
	c->candidates = at.reserve(sizeof(struct row_key) * c->capacity * c->n);
	c->bytes = at.used;
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

/* Write the states and ids of a chunk's queries for the device */
void
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
bool
upload_chunk(struct search *s, struct chunk *c)
{
	struct search_backend *b = s->b;
	size_t		bytes = c->uploaded - c->states;

	if (!need_pinned(s, b->upload, b->upload_bytes, bytes))
		return false;
	memset(b->upload.get() + (c->counters - c->states), 0, c->ids - c->counters);
	fill_queries(c, (struct query_state *) b->upload.get(),
				 (uint16_t *) (b->upload.get() + (c->ids - c->states)));
	if (c->lists)
		fill_ranges(s, c, (uint2 *) (b->upload.get() + (c->ranges - c->states)));
	return b->device.check(cudaMemcpyAsync(scratch_at<char>(s, c->states), b->upload.get(), bytes,
										   cudaMemcpyHostToDevice, b->stream.get()),
						   "copy queries to the GPU", s->error);
}

/* Set every launch's item counter to zero once more */
bool
reset_counters(struct search *s, struct chunk *c)
{
	c->launches = 0;
	return s->b->device.check(cudaMemsetAsync(scratch_at<char>(s, c->counters), 0,
											  sizeof(uint32_t) * MAX_ROUNDS, s->b->stream.get()),
							  "search on the GPU", s->error);
}

/* The tiles in some classes; the view of a search is counted only if need be */
static uint32_t
class_tiles(const struct search *s, uint32_t class_lo, uint32_t class_hi)
{
	if (class_lo == 0 && class_hi == TILE_CLASSES)
		return s->view->ntiles;
	count_classes(s->view);
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
	uint32_t	tiles = class_tiles(s, p->class_lo, p->class_hi);
	double		per_group = 32.0 * std::max(tiles, 1u) / view->ntiles;
	double		groups = s->policy.item_tiles / per_group;
	double		most = (double) p->ngroups * p->nbatches / (4.0 * c->blocks);
	uint32_t	warps = scan_threads(c->planes) / 32;

	groups = std::min(std::max(std::min(groups, most), 1.0), (double) p->ngroups);
	p->range_groups = (uint32_t) groups;
	p->nitems = (p->ngroups + p->range_groups - 1) / p->range_groups * p->nbatches;

	/* with few tiles in the sample, a warp looks through more of all; but all warps get some */
	p->grab = 1;
	while (p->grab * per_group / 32.0 < s->policy.grab &&
		   p->grab * 2 * warps <= p->range_groups * 32)
		p->grab *= 2;
}

/* Queue the scan of some classes of the first groups */
bool
queue_scan(struct search *s, struct chunk *c, uint32_t ngroups, uint32_t class_lo,
		   uint32_t class_hi)
{
	struct search_backend *b = s->b;
	struct scan_params p;

	if (c->launches == MAX_ROUNDS && !reset_counters(s, c))
		return false;
	memset(&p, 0, sizeof(p));
	p.segments = s->view->segments;
	p.groups = s->view->groups;
	p.queries = scratch_at<struct query_state>(s, c->states);
	p.ids = scratch_at<uint16_t>(s, c->ids);
	p.candidates = scratch_at<struct row_key>(s, c->candidates);
	p.next_item = scratch_at<uint32_t>(s, c->counters) + c->launches++;
	p.stop = (uint32_t *) b->stop.get();
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
	return b->device.check(scan_launch(&p, c->entry_bits, c->planes, c->shared_bytes,
									   std::min(c->blocks, p.nitems), b->stream.get()),
						   "search on the GPU", s->error);
}

/* Queue the selection after a round */
bool
queue_select(struct search *s, struct chunk *c, enum select_mode mode)
{
	struct search_backend *b = s->b;
	struct select_params p;

	memset(&p, 0, sizeof(p));
	p.queries = scratch_at<struct query_state>(s, c->states);
	p.candidates = scratch_at<struct row_key>(s, c->candidates);
	p.top_in = scratch_at<struct row_key>(s, c->top[c->which]);
	p.top_out = scratch_at<struct row_key>(s, c->top[1 - c->which]);
	p.results = scratch_at<struct row_key>(s, c->results);
	if (c->direct && mode == SELECT_FINAL)
	{
		p.results = (struct row_key *) b->download.get();
		p.states = (struct query_state *) (b->download.get() + (c->states - c->results));
	}
	p.nqueries = c->n;
	p.capacity = c->capacity;
	p.kmax = c->kmax;
	p.mode = mode;
	if (mode == SELECT_ROUND)
		c->which = 1 - c->which;
	return b->device.check(select_launch(&p, b->stream.get()), "search on the GPU", s->error);
}

/* Queue the sorting of lists too long for SELECT_FINAL */
bool
queue_sort(struct search *s, struct chunk *c)
{
	struct search_backend *b = s->b;
	struct sort_params p;
	uint32_t	width = 0;

	memset(&p, 0, sizeof(p));
	p.queries = scratch_at<struct query_state>(s, c->states);
	p.nqueries = c->n;
	p.kmax = c->kmax;
	while (width < c->kmax)
	{
		p.in = scratch_at<struct row_key>(s, c->top[c->which]);
		p.out = scratch_at<struct row_key>(s, c->top[1 - c->which]);
		p.width = width;
		if (!b->device.check(sort_launch(&p, b->stream.get()), "search on the GPU", s->error))
			return false;
		c->which = 1 - c->which;
		width = width == 0 ? SORT_RUN : width * 2;
	}
	return true;
}

/* Queue the copy of a chunk's states and sorted lists to the host */
bool
queue_download(struct search *s, struct chunk *c)
{
	struct search_backend *b = s->b;
	size_t		bytes = c->counters - c->results;
	size_t		list = c->kmax <= GPUVEC_FAST_K ? 0 :
		sizeof(struct row_key) * c->kmax * c->n;

	if (c->direct)
		return true;
	if (!need_pinned(s, b->download, b->download_bytes, bytes + list) ||
		!b->device.check(cudaMemcpyAsync(b->download.get(), scratch_at<char>(s, c->results), bytes,
										 cudaMemcpyDeviceToHost, b->stream.get()),
						 "copy results from the GPU", s->error))
		return false;
	return list == 0 ||
		b->device.check(cudaMemcpyAsync(b->download.get() + bytes, scratch_at<char>(s, c->top[c->which]), list,
										cudaMemcpyDeviceToHost, b->stream.get()),
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

/* A finished chunk whose results are decoded */
struct decoding
{
	const struct chunk *chunk;
	const struct query_state *states;
	const struct row_key *lists;
	uint32_t	part_queries;
};

/* Decode the results of some of a chunk's queries */
static void
decode_part(void *task, uint64_t part, int)
{
	const struct decoding *d = (const struct decoding *) task;
	uint32_t	from = (uint32_t) part * d->part_queries;

	for (uint32_t i = from; i < std::min(from + d->part_queries, d->chunk->n); i++)
		if (!d->states[i].overflow)
			decode_matches(chunk_query(d->chunk, i)->query,
						   d->lists + (size_t) i * d->chunk->kmax, d->states[i].ntop);
}

/* Take over a finished chunk's results; note the queries that overflowed */
void
finish_chunk(struct search *s, const struct chunk *c)
{
	struct search_backend *b = s->b;
	const char *download = b->download.get();
	struct decoding d;
	uint32_t	parts = (uint32_t) divide_up(c->n, s->policy.decode_queries);

	d.part_queries = s->policy.decode_queries;
	d.chunk = c;
	d.states = (const struct query_state *) (download + (c->states - c->results));
	d.lists = (const struct row_key *)
		(c->kmax <= GPUVEC_FAST_K ? download : download + (c->counters - c->results));
	b->stats.stopped_chunks += s->stopped;
	if (s->stopped)
	{
		for (uint32_t i = 0; i < c->n; i++)
			chunk_query(c, i)->query->nmatches = 0;
		return;
	}
	for (uint32_t i = 0; i < c->n; i++)
		if (d.states[i].overflow)
		{
			struct work_query *w = chunk_query(c, i);

			w->bound = d.states[i].limits.bound;
			b->stats.direct_overflows += c->direct;
			s->overflowed[s->noverflowed++] = (uint32_t) (w - s->work);
		}
	if (b->pool && parts > 1 && (uint64_t) c->n * c->kmax >= s->policy.decode_rows)
		gpuvec_pool_run(b->pool, decode_part, &d, parts);
	else
		for (uint32_t i = 0; i < parts; i++)
			decode_part(&d, i, 0);
}

}
