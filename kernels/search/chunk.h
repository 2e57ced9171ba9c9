/*-------------------------------------------------------------------------
 *
 * chunk.h
 *	  What the files of the host's side of a search share.
 *
 * topk.cu		which queries are searched together, what is run in which
 * order list_rounds.cu	the rounds of a chunk that is counted by lists
 * chunk.cu		a chunk's memory, its way to the device chunk_kernels.cu
 * the kernels that scan, select and sort chunk_answers.cu	waiting for a
 * chunk, its way back
 *
 *-------------------------------------------------------------------------
 */
#ifndef GPUVEC_CHUNK_H
#define GPUVEC_CHUNK_H

#include "kernels/device/arena.h"
#include "kernels/search/search_backend.h"

namespace gpuvec
{

#define MAX_ROUNDS 64

/* A query on its way, in the order of work */
struct work_query
{
	gpuvec_topk_query *query;
	uint32_t k;     /* at most the rows of the view */
	uint32_t kind;  /* queries of one kind share a chunk */
	uint64_t order; /* in which queries are worked off: kind, length, largest id */
	struct row_key bound;
};

/* One topk call */
struct search
{
	struct search_backend *b;
	const struct gpuvec_search_policy &policy;
	cudaStream_t stream;
	struct cuda_view *view = NULL;
	gpuvec_measure measure = GPUVEC_JACCARD;
	gpuvec_method method = GPUVEC_METHOD_AUTO;
	struct work_query *work = NULL;
	uint32_t nwork = 0;
	uint32_t *overflowed = NULL; /* positions in work */
	uint32_t noverflowed = 0;
	bool stopped = false; /* nobody wants this chunk any more */
	gpuvec_error *error = NULL;

	/*
	 * Did a call succeed?  If not, fill *error; `what` completes "could not
	 * ..."
	 */
	bool
	check(cudaError_t rc, const char *what = "search on the GPU") const
	{
		return b->device.check(rc, what, error);
	}
};

/* What is at an offset of the scratch memory on the device */
template <typename T>
static inline T *
scratch_at(const struct search *s, size_t offset)
{
	return (T *) ((char *) s->b->scratch.get() + offset);
}

/*
 * A chunk: some queries of the same kind, and where its scratch memory lies
 */
struct chunk
{
	struct work_query *work;
	const uint32_t *positions; /* which of work, or NULL: the first n */
	uint32_t n;
	uint32_t kmax;
	bool lists;  /* count by lists */
	bool lone;   /* so few queries that they are kernel parameters */
	bool direct; /* the last kernel writes results and states to the host */
	bool again;  /* its queries overflowed before, and have good bounds */
	uint32_t planes;
	uint32_t list_planes;
	uint32_t entry_bits;
	uint32_t batch; /* queries of a batch */
	uint32_t capacity;
	size_t shared_bytes;
	uint32_t blocks; /* that run at once */

	/* offsets; results .. states is copied back, states .. ids copied in */
	size_t results;
	size_t states;
	size_t counters;
	size_t ids;
	size_t ranges;   /* which queries blocks are samples for */
	size_t uploaded; /* end of what is copied in */
	size_t entries;  /* of the queries in each segment's lists */
	size_t nentries_of;
	size_t top[2];
	size_t candidates;
	size_t bytes;
	uint64_t nids;
	uint64_t nentries; /* in eights */

	uint32_t which;    /* top[which] holds the lists */
	uint32_t launches; /* counters used */
};

static inline struct work_query *
chunk_query(const struct chunk *c, uint32_t i)
{
	return &c->work[c->positions ? c->positions[i] : i];
}

static inline bool
is_canceled(const gpuvec_topk_query *query)
{
	return query->canceled != NULL && __atomic_load_n(query->canceled, __ATOMIC_RELAXED);
}

/*
 * Eights of entries that a query has in a segment: slots are filled up to
 * eights
 */
static inline uint32_t
query_entries(uint32_t len)
{
	return (len + 14) / 8;
}

/* chunk.cu */
extern bool
need_scratch(struct search *s, size_t bytes);
extern bool
need_pinned(struct search *s, unique_pinned &buffer, size_t &size, size_t bytes);
extern uint32_t
fit_capacity(const struct search *s, uint64_t wanted);
extern size_t
query_list_bytes(const struct search *s, uint32_t len);
extern size_t
query_bytes(uint32_t kmax, uint32_t capacity);
extern void
lay_out(struct chunk *c, size_t nsegments, size_t nblocks);
extern void
fill_queries(const struct chunk *c, struct query_state *states, uint16_t *ids);
extern bool
upload_chunk(struct search *s, struct chunk *c);

/* chunk_kernels.cu */
extern bool
choose_kernel(struct search *s, struct chunk *c, uint32_t planes);
extern bool
reset_counters(struct search *s, struct chunk *c);
extern bool
queue_scan(struct search *s, struct chunk *c, uint32_t ngroups, uint32_t class_lo,
		   uint32_t class_hi);
extern bool
queue_select(struct search *s, struct chunk *c, enum select_mode mode);
extern bool
queue_sort(struct search *s, struct chunk *c);

/* chunk_answers.cu */
extern bool
chunk_canceled(const struct chunk *c);
extern bool
wait_for_device(struct search *s, const struct chunk *c);
extern bool
clear_stop(struct search *s);
extern void
quiet_device(struct search *s);
extern bool
queue_download(struct search *s, struct chunk *c);
extern void
finish_chunk(struct search *s, const struct chunk *c);

/* list_rounds.cu */
extern void
fill_ranges(const struct search *s, const struct chunk *c, uint2 *ranges);
extern bool
queue_list_rounds(struct search *s, struct chunk *c);

} // namespace gpuvec

#endif /* GPUVEC_CHUNK_H */
