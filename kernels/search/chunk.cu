/*-------------------------------------------------------------------------
 *
 * chunk.cu
 *	  Lays out the memory of a chunk of queries, and copies the queries to the
 *	  device.
 *
 * The scratch memory of a chunk is one allocation.  The parts from `states`
 * to `ids` are copied to the device; results and states are copied back.
 *
 *-------------------------------------------------------------------------
 */
#include <algorithm>
#include <string.h>

#include "kernels/search/chunk.h"

namespace gpuvec
{

/*
 * Make memory on the device at least this large; its contents are lost.  It
 * grows by a quarter at least: what a search needs grows with each segment,
 * and each size leaves a gap in the pool that the next one does not fit into.
 */
bool
need_memory(struct search *s, struct grown_memory &memory, size_t bytes)
{
	struct search_backend *b = s->b;
	size_t capacity = std::max(bytes, memory.bytes + memory.bytes / 4);

	if (bytes <= memory.bytes)
		return true;
	memory.bytes = 0;
	if (!allocate(b->device, memory.memory, capacity, s->stream, "a search", s->error))
	{
		capacity = bytes;
		if (!allocate(b->device, memory.memory, capacity, s->stream, "a search", s->error))
			return false;
	}
	memory.bytes = capacity;
	return true;
}

/* Make a pinned buffer at least this large; its contents are lost */
bool
need_pinned(struct search *s, unique_pinned &buffer, size_t &size, size_t bytes)
{
	if (bytes <= size)
		return true;
	bytes += bytes / 2;
	buffer.reset();
	size = 0;
	if (!create_pinned(s->b->device, buffer, bytes, s->error,
					   "allocate pinned memory for a search"))
		return false;
	size = bytes;
	return true;
}

/*
 * Number of candidates to make room for, for one query: a multiple of 32, at
 * most the view's rows
 */
uint32_t
fit_capacity(const struct search *s, uint64_t wanted)
{
	uint64_t rows = (uint64_t) s->view->ntiles * 32;

	wanted = std::min(std::max(wanted, (uint64_t) 32), rows);
	return (uint32_t) ((wanted + 31) / 32 * 32);
}

/* Bytes of scratch memory for a query's entries in all segments */
size_t
query_list_bytes(const struct search *s, uint32_t len)
{
	return (query_entries(len) + 1) * sizeof(uint4) * s->view->nsegments;
}

/* Bytes of scratch memory for a query besides its entries */
size_t
query_bytes(uint32_t kmax, uint32_t capacity)
{
	return sizeof(struct query_state) + sizeof(struct row_key) * ((size_t) 3 * kmax + capacity);
}

/* Lay out the scratch memory of a chunk */
void
lay_out(const struct search *s, struct chunk *c)
{
	size_t nsegments = s->view->nsegments;
	size_t nblocks = s->view->nblocks[0] + s->view->nblocks[1];
	size_t list = sizeof(struct row_key) * c->kmax * c->n;
	struct arena at = {NULL, 0};

	c->nids = 0;
	c->nentries = 0;
	for (uint32_t i = 0; i < c->n; i++)
	{
		uint32_t len = chunk_query(c, i)->query->len;

		c->nids += len;
		c->nentries += query_entries(len);
	}
	count_cold_slots(s, c);
	c->results = at.reserve(c->kmax <= GPUVEC_FAST_K ? list : 0);
	c->states = at.reserve(sizeof(struct query_state) * c->n);
	c->counted = at.reserve(c->counts ? sizeof(uint32_t) * COUNT_PLACES * COUNT_STRIDE : 0);
	c->group_sums = at.reserve(c->counts ? sizeof(struct group_sums) : 0);
	c->counters = at.reserve(sizeof(uint32_t) * MAX_ROUNDS);
	c->ids = at.reserve(sizeof(uint16_t) * c->nids);
	c->cold = at.reserve(sizeof(uint32_t) * c->ncold);
	c->pieces = at.reserve(sizeof(uint2) * c->npieces);
	lay_out_sparse(s, c, &at);
	c->ranges = at.reserve(c->lists && !c->counts ? sizeof(uint2) * 2 * nblocks : 0);
	c->pages = at.reserve(c->counts ? chunk_query(c, 0)->query->counts.bytes : 0);
	c->segment_bins = at.reserve(has_bins(c) ? sizeof(struct segment_bins) * nsegments : 0);
	c->uploaded = at.used;
	c->entries = at.reserve(c->lists ? sizeof(uint4) * c->nentries * nsegments : 0);
	c->nentries_of = at.reserve(c->lists ? sizeof(uint4) * c->n * nsegments : 0);
	lay_out_dense(s, c, &at);
	c->top[0] = at.reserve(list);
	c->top[1] = at.reserve(list);
	c->candidates = at.reserve(c->counts ? 0 : sizeof(struct row_key) * c->capacity * c->n);
	c->tids = at.reserve(c->counts ? sizeof(uint64_t) * c->capacity : 0);
	lay_out_groups(s, c, &at);
	c->cold_keys = at.reserve(sizeof(uint64_t) * c->nslots);
	c->cold_places = at.reserve(sizeof(uint2) * c->nslots);
	c->bytes = at.used;
	c->which = 0;
	c->launches = 0;
}

/* Note how the queries of a chunk are searched, once it is laid out */
void
note_way(struct chunk *c)
{
	gpuvec_way way = c->gathered ? GPUVEC_WAY_GATHERED
					 : c->lists  ? GPUVEC_WAY_LISTS
					 : c->dense  ? GPUVEC_WAY_DENSE
								 : GPUVEC_WAY_SCAN;
	uint32_t ways = gpuvec_way_bit(way) | (c->ncold > 0 ? gpuvec_way_bit(GPUVEC_WAY_LISTS) : 0);

	for (uint32_t i = 0; i < c->n; i++)
		chunk_query(c, i)->query->ways |= ways;
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
		uint64_t block = q->after_tid >> 16;
		uint64_t line = q->after_tid & 0xFFFF;

		/* + 0.0 turns -0 into 0: no score is -0 */
		state->limits.after.hi = gpuvec_score_key(q->after_score + 0.0);
		if (block > UINT32_MAX)
			state->limits.after.lo = ~UINT64_C(0);
		else if (line > GPUVEC_MAX_LINE)
			state->limits.after.lo = block << 32 | UINT32_MAX;
		else
			state->limits.after.lo = key_from_tid(q->after_tid) | KEY_COMMON_MASK;
	}
	state->ids = ids;
	state->nids = q->len;
	state->limits.len = gpuvec_query_len(q);
	state->k = w->k;
}

/* Write the states and ids of a chunk's queries for the device */
void
fill_queries(const struct search *s, const struct chunk *c, struct query_state *states,
			 uint16_t *ids)
{
	uint32_t at = 0;
	uint32_t entries = 0;

	for (uint32_t i = 0; i < c->n; i++)
	{
		const struct work_query *w = chunk_query(c, i);

		fill_state(&states[i], w, at);
		fill_filter(w, &states[i]);
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
	size_t bytes = c->uploaded - c->states;

	if (!need_pinned(s, b->upload, b->upload_bytes, bytes))
		return false;
	memset(b->upload.get() + (c->counted - c->states), 0, c->ids - c->counted);
	fill_queries(s, c, (struct query_state *) b->upload.get(),
				 (uint16_t *) (b->upload.get() + (c->ids - c->states)));
	if (c->ncold > 0)
		fill_cold(s, c, (struct query_state *) b->upload.get(),
				  (uint32_t *) (b->upload.get() + (c->cold - c->states)),
				  (uint2 *) (b->upload.get() + (c->pieces - c->states)));
	if (s->scoring.sparse)
		fill_sparse(s, c, b->upload.get());
	if (c->counts && chunk_query(c, 0)->query->counts.bytes > 0)
		memcpy(b->upload.get() + (c->pages - c->states), chunk_query(c, 0)->query->counts.bits,
			   chunk_query(c, 0)->query->counts.bytes);
	if (has_bins(c))
		fill_groups(s, c,
					(struct segment_bins *) (b->upload.get() + (c->segment_bins - c->states)));
	if (c->lists && !c->counts)
		fill_ranges(s, c, (uint2 *) (b->upload.get() + (c->ranges - c->states)));
	return s->check(cudaMemcpyAsync(scratch_at<char>(s, c->states), b->upload.get(), bytes,
									cudaMemcpyHostToDevice, s->stream),
					"copy queries to the GPU");
}

} // namespace gpuvec
