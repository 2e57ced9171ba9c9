/*-------------------------------------------------------------------------
 *
 * chunk_overlaps.cu
 *	  Counting the rows of pairs of queries: the host's side.
 *
 * The vectors of bits of all queries (overlaps.cu) may take more than there is
 * memory for.  So as many segments are taken at a time as half of the
 * workspace has room for, and one at least.  Counts are added up on the
 * device; the tids of listed rows are copied back after each step.
 *
 *-------------------------------------------------------------------------
 */
#include <algorithm>
#include <stdlib.h>
#include <string.h>

#include "kernels/search/chunk.h"

namespace gpuvec
{

/* A count that is running */
struct overlaps_run
{
	gpuvec_overlaps *overlaps;
	struct chunk chunk; /* of one query, which is canceled if all is */
	struct work_query work;
	gpuvec_topk_query query;
	uint32_t ncold;      /* cold numbers of all queries */
	uint32_t most_tiles; /* of the segments that are taken at a time */

	/* offsets into the scratch memory */
	size_t pairs;
	size_t first; /* from here to `bits` is copied to the device */
	size_t queries;
	size_t cold;
	size_t pages;
	size_t bits;
	size_t nlisted; /* behind the vectors: cleared with them */
	size_t tids;
	size_t bytes;
};

/* Words of a vector of so many tiles */
static uint32_t
vector_words(uint32_t tiles)
{
	return (uint32_t) divide_up(tiles, OVERLAP_WORDS) * OVERLAP_WORDS;
}

static size_t
vectors_bytes(const gpuvec_overlaps *overlaps, uint32_t tiles)
{
	return (overlaps->n + (size_t) 1) * vector_words(tiles) * sizeof(uint32_t);
}

/* The end of the segments from `first` on that are taken at a time */
static uint32_t
take_segments(const struct search *s, const gpuvec_overlaps *overlaps, uint32_t first,
			  uint32_t *tiles)
{
	uint32_t end = first;

	*tiles = 0;
	while (end < s->view->nsegments)
	{
		uint32_t more = *tiles + s->view->segment_tiles[end];

		if (end > first &&
			vectors_bytes(overlaps, more) + more * 32 * sizeof(uint64_t) > s->policy.workspace / 2)
			break;
		*tiles = more;
		end++;
	}
	return end;
}

/* Lay out the scratch memory */
static void
lay_out_run(const struct search *s, struct overlaps_run *run)
{
	const gpuvec_overlaps *overlaps = run->overlaps;
	struct arena at = {NULL, 0};
	uint32_t tiles;

	for (uint32_t q = 0; q < overlaps->n; q++)
		run->ncold += searched_cold(s, &overlaps->queries[q]);
	for (uint32_t i = 0; i < s->view->nsegments;)
	{
		i = take_segments(s, overlaps, i, &tiles);
		run->most_tiles = std::max(run->most_tiles, tiles);
	}
	run->pairs = at.reserve(sizeof(uint64_t) * gpuvec_overlap_pairs(overlaps->n));
	run->first = at.reserve(sizeof(uint32_t) * (GPUVEC_HOT_NUMBERS + 1));
	run->queries = at.reserve(sizeof(uint16_t) * gpuvec_overlaps_hot(overlaps));
	run->cold = at.reserve(sizeof(uint2) * run->ncold);
	run->pages = at.reserve(overlaps->counts.bytes);
	run->bits = at.reserve(vectors_bytes(overlaps, run->most_tiles));
	run->nlisted = at.reserve(sizeof(uint32_t));
	run->tids = at.reserve(sizeof(uint64_t) * 32 * run->most_tiles);
	run->bytes = at.used;
}

/* Copy the queries to the device, and clear the counts */
static bool
upload_run(struct search *s, const struct overlaps_run *run)
{
	struct search_backend *b = s->b;
	const gpuvec_overlaps *overlaps = run->overlaps;
	size_t bytes = run->bits - run->first;
	uint2 *cold;

	if (!need_pinned(s, b->upload, b->upload_bytes, bytes))
		return false;
	gpuvec_overlaps_numbers(overlaps, (uint32_t *) b->upload.get(),
							(uint16_t *) (b->upload.get() + (run->queries - run->first)));
	cold = (uint2 *) (b->upload.get() + (run->cold - run->first));
	for (uint32_t q = 0; q < overlaps->n; q++)
		for (uint32_t i = 0; i < searched_cold(s, &overlaps->queries[q]); i++)
			*cold++ = make_uint2(q, overlaps->queries[q].cold[i]);
	if (overlaps->counts.bytes > 0)
		memcpy(b->upload.get() + (run->pages - run->first), overlaps->counts.bits,
			   overlaps->counts.bytes);
	return s->check(cudaMemcpyAsync(scratch_at<char>(s, run->first), b->upload.get(), bytes,
									cudaMemcpyHostToDevice, s->stream),
					"copy queries to the GPU") &&
		   s->check(cudaMemsetAsync(scratch_at<char>(s, run->pairs), 0, run->first - run->pairs,
									s->stream));
}

/* Queue the kernels for the segments lo .. hi - 1, which have so many tiles */
static bool
queue_segments(struct search *s, const struct overlaps_run *run, uint32_t lo, uint32_t hi,
			   uint32_t first_tile, uint32_t tiles)
{
	struct overlap_params p;

	memset(&p, 0, sizeof(p));
	p.segments = s->view->segments;
	p.groups = s->view->groups;
	p.ngroups = s->view->ngroups;
	p.segment_lo = lo;
	p.segment_hi = hi;
	p.first_tile = first_tile;
	p.n = run->overlaps->n;
	p.stride = vector_words(tiles);
	p.ncold = run->ncold;
	p.first = scratch_at<uint32_t>(s, run->first);
	p.queries = scratch_at<uint16_t>(s, run->queries);
	p.cold = scratch_at<uint2>(s, run->cold);
	p.bits = scratch_at<uint32_t>(s, run->bits);
	p.pairs = scratch_at<unsigned long long>(s, run->pairs);
	p.nlisted = scratch_at<uint32_t>(s, run->nlisted);
	p.stop = (const uint32_t *) s->b->stop.get();
	p.counts.pages = scratch_at<uint8_t>(s, run->pages);
	p.counts.page_bytes = run->overlaps->counts.bytes;
	p.counts.tids = scratch_at<uint64_t>(s, run->tids);
	p.counts.partition_bits = s->view->partition_bits;
	return s->check(cudaMemsetAsync(p.bits, 0, vectors_bytes(run->overlaps, tiles), s->stream)) &&
		   s->check(cudaMemsetAsync(p.nlisted, 0, sizeof(uint32_t), s->stream)) &&
		   s->check(overlaps_launch(&p, s->stream));
}

/* Take the tids of the rows that were listed */
static bool
take_listed(struct search *s, struct overlaps_run *run)
{
	gpuvec_overlaps *overlaps = run->overlaps;
	uint32_t n = 0;
	uint64_t *tids;

	if (!copy_back(s, &run->chunk, &n, run->nlisted, sizeof(n)))
		return false;
	if (n == 0 || s->stopped)
		return true;
	tids = (uint64_t *) realloc(overlaps->tids, (overlaps->ntids + n) * sizeof(uint64_t));
	if (tids == NULL)
		return gpuvec_fail_memory(s->error, n * sizeof(uint64_t));
	overlaps->tids = tids;
	if (!copy_back(s, &run->chunk, tids + overlaps->ntids, run->tids, n * sizeof(uint64_t)))
		return false;
	overlaps->ntids += n;
	return true;
}

/* Add the counts to the answer */
static bool
take_pairs(struct search *s, struct overlaps_run *run)
{
	uint64_t n = gpuvec_overlap_pairs(run->overlaps->n);
	uint64_t *pairs = (uint64_t *) malloc(n * sizeof(uint64_t));
	bool ok;

	if (pairs == NULL)
		return gpuvec_fail_memory(s->error, n * sizeof(uint64_t));
	ok = copy_back(s, &run->chunk, pairs, run->pairs, n * sizeof(uint64_t));
	for (uint64_t i = 0; ok && !s->stopped && i < n; i++)
		run->overlaps->pairs[i] += pairs[i];
	free(pairs);
	return ok;
}

/* Count in all segments */
static bool
run_overlaps(struct search *s, struct overlaps_run *run)
{
	uint32_t first_tile = 0;
	uint32_t tiles;
	uint32_t end;

	lay_out_run(s, run);
	if (!need_memory(s, s->b->scratch, run->bytes) || !upload_run(s, run))
		return false;
	for (uint32_t i = 0; i < s->view->nsegments && !s->stopped; i = end)
	{
		end = take_segments(s, run->overlaps, i, &tiles);
		if (!queue_segments(s, run, i, end, first_tile, tiles) || !take_listed(s, run))
			return false;
		s->b->stats.overlap_steps++;
		first_tile += tiles;
	}
	return (s->stopped || take_pairs(s, run)) && clear_stop(s);
}

/* The backend's overlaps */
bool
overlaps(gpuvec_backend *backend, const gpuvec_view *view, gpuvec_overlaps *overlaps,
		 gpuvec_error *error)
{
	struct search_backend *b = static_cast<struct search_backend *>(backend);
	struct search s = {b, b->policy, b->stream.get()};
	struct overlaps_run run;
	bool ok;

	memset(&run, 0, sizeof(run));
	run.overlaps = overlaps;
	run.query.canceled = overlaps->canceled;
	run.work.query = &run.query;
	run.chunk.work = &run.work;
	run.chunk.n = 1;
	s.given = view;
	s.view = (struct cuda_view *) view->device;
	s.error = error;
	memset(&b->stats, 0, sizeof(b->stats));
	overlaps->tids = NULL;
	overlaps->ntids = 0;
	if (is_canceled(&run.query))
		return true;
	if (!b->device.enter(error))
		return false;
	ok = run_overlaps(&s, &run);
	if (!ok && !b->device.broken)
		quiet_device(&s);
	return ok;
}

} // namespace gpuvec
