/*-------------------------------------------------------------------------
 *
 * read_rows.c
 *	  Requests about the vectors of keys: which rows they are.
 *
 * First each key is resolved to the one row that the session's snapshot sees,
 * or to none.  For many keys, a device helps (key_map.c).  If the session has
 * to decide about rows, the answer is their tids.  Then the slots of all
 * vectors are noted, of one bank, and the rest is done with bags of slots
 * (pool_slots.c).  Both steps run on slices of the request in parallel.
 *
 *-------------------------------------------------------------------------
 */
#include <stdlib.h>
#include <string.h>

#include "engine/embedding/reading.h"
#include "engine/fault.h"
#include "engine/host_memory.h"
#include "engine/radix_sort.h"

/*
 * Number of keys that are resolved together, so that their cache misses
 * overlap
 */
#define GROUP_KEYS	32

/*
 * Rows that the session has to decide about at a time, in any order and with
 * repetitions; it is asked until there are no more
 */
#define MAX_UNDECIDED	(1 << 20)

/* Such rows that a thread collects before it adds them to the others */
#define UNDECIDED_AT_ONCE	512

/*
 * From this many verdicts on, they are resolved for all rows at once, if
 * there are not many more rows than keys
 */
#define MANY_VERDICTS	64
#define ROWS_OF_KEY		16

/* Keys of several rows whose row is remembered */
#define RESOLVED_KEYS	64

/* Note a complaint about a key, unless there is one about an earlier key */
static void
complain(gpuvec_reading *r, uint64_t number, gpuvec_vector_ref row,
		 gpuvec_embedding_status complaint)
{
	pthread_mutex_lock(&r->mutex);
	if (number < r->wrong)
	{
		r->wrong = number;
		r->wrong_row = row;
		r->complaint = complaint;
	}
	pthread_mutex_unlock(&r->mutex);
}

/* True if the session is asked now about the rows it has to decide about */
static inline bool
undecided_enough(const gpuvec_reading *r)
{
	return __atomic_load_n(&r->nundecided, __ATOMIC_RELAXED) >= r->most_undecided;
}

/* What a thread keeps while it resolves the keys of a slice */
typedef struct resolving
{
	/* rows that the session has to decide about */
	uint64_t	tids[UNDECIDED_AT_ONCE];
	uint32_t	n;

	/* keys of several rows that were resolved last, by their first rows */
	struct
	{
		gpuvec_vector_ref first;	/* GPUVEC_NO_VECTOR: none */
		gpuvec_vector_ref found;
	}			keys[RESOLVED_KEYS];
	uint64_t	nfound;			/* keys that have a row */
} resolving;

static void
begin_resolving(resolving *now)
{
	now->n = 0;
	now->nfound = 0;
	for (int i = 0; i < RESOLVED_KEYS; i++)
		now->keys[i].first = GPUVEC_NO_VECTOR;
}

/* Add the undecided rows to those of the request */
static void
flush_undecided(gpuvec_reading *r, resolving *now)
{
	pthread_mutex_lock(&r->mutex);
	if (r->nundecided + now->n > r->undecided_capacity)
	{
		uint64_t	capacity = (r->nundecided + now->n) * 2;
		uint64_t   *larger = realloc(r->undecided, capacity * sizeof(*larger));

		r->undecided = larger ? larger : r->undecided;
		r->undecided_capacity = larger ? capacity : r->undecided_capacity;
		r->failed |= larger == NULL;
	}
	if (r->nundecided + now->n <= r->undecided_capacity)
	{
		memcpy(r->undecided + r->nundecided, now->tids, now->n * sizeof(uint64_t));
		__atomic_store_n(&r->nundecided, r->nundecided + now->n, __ATOMIC_RELAXED);
	}
	pthread_mutex_unlock(&r->mutex);
	now->n = 0;
}

/* Note that the session has to decide about a row */
static inline void
add_undecided(gpuvec_reading *r, resolving *now, uint64_t tid)
{
	now->tids[now->n++] = tid;
	if (now->n == UNDECIDED_AT_ONCE)
		flush_undecided(r, now);
}

/* Add what a thread has found to the request */
static void
end_resolving(gpuvec_reading *r, resolving *now)
{
	if (now->n > 0)
		flush_undecided(r, now);
	__atomic_add_fetch(&r->nfound, now->nfound, __ATOMIC_RELAXED);
}

/* Complain about a key that was not found, if that is an error */
static inline void
note_missing(gpuvec_reading *r, uint64_t number)
{
	if (r->missing == GPUVEC_MISSING_ERROR)
		complain(r, number, GPUVEC_NO_VECTOR, GPUVEC_EMBEDDING_MISSING);
}

/*
 * Resolve a key, given its first row: returns the row that the snapshot sees,
 * or GPUVEC_NO_VECTOR.  Notes undecided rows and complaints.
 */
static gpuvec_vector_ref
resolve_key(gpuvec_reading *r, resolving *now, uint64_t number, gpuvec_vector_ref ref)
{
	const gpuvec_embedding_table *table = r->table;
	gpuvec_vector_ref found = GPUVEC_NO_VECTOR;

	while (ref != GPUVEC_NO_VECTOR && !undecided_enough(r))
	{
		const gpuvec_vector_info *row = gpuvec_vector_at(table, ref);
		gpuvec_seen seen = r->resolved ? gpuvec_resolved_sees(r->resolved, &r->q->visibility, ref, row->tid) :
			gpuvec_embedding_sees(table, &r->q->visibility, row->tid);

		if (seen == GPUVEC_UNDECIDED)
			add_undecided(r, now, row->tid);
		else if (seen == GPUVEC_SEEN && found != GPUVEC_NO_VECTOR)
		{
			complain(r, number, ref, GPUVEC_EMBEDDING_DUPLICATE);
			return found;
		}
		else if (seen == GPUVEC_SEEN)
			found = ref;
		ref = row->next;
	}
	if (found == GPUVEC_NO_VECTOR)
		note_missing(r, number);
	else if (table->banks[gpuvec_ref_bank(found)]->kind != GPUVEC_VECTOR_GOOD)
		complain(r, number, found, GPUVEC_EMBEDDING_BAD);
	return found;
}

/*
 * The same as resolve_key().  A key may have very many rows, old versions,
 * and be asked for very often, so it is looked up whether it was resolved
 * before.  What there is to complain about was said of that earlier number.
 */
static gpuvec_vector_ref
resolve_once(gpuvec_reading *r, resolving *now, uint64_t number, gpuvec_vector_ref first)
{
	uint64_t	at = first % RESOLVED_KEYS;

	if (first == GPUVEC_NO_VECTOR || gpuvec_vector_at(r->table, first)->next == GPUVEC_NO_VECTOR)
		return resolve_key(r, now, number, first);
	if (now->keys[at].first != first)
	{
		now->keys[at].found = resolve_key(r, now, number, first);
		now->keys[at].first = first;
		gpuvec_progress_made();
	}
	return now->keys[at].found;
}

/* True if a slice need not be resolved any further */
static inline bool
is_over(const gpuvec_reading *r)
{
	return gpuvec_reading_canceled(r) || undecided_enough(r);
}

/* Prefetch the hash table's entries of a group of keys */
static void
prefetch_entries(const gpuvec_reading *r, uint64_t first, uint64_t end)
{
	const gpuvec_embedding_table *table = r->table;

	for (uint64_t i = first; i < end; i++)
		__builtin_prefetch(&table->entries[gpuvec_secret_hash(r->q->keys[i]) & table->mask]);
}

/* Find the first row of each key of a group, and prefetch it */
static void
find_first_rows(gpuvec_reading *r, uint64_t first, uint64_t end)
{
	const gpuvec_embedding_table *table = r->table;

	for (uint64_t i = first; i < end; i++)
	{
		gpuvec_vector_ref ref = table->entries[gpuvec_key_index(table, r->q->keys[i])].first;

		r->rows[i] = ref;
		if (ref != GPUVEC_NO_VECTOR)
			__builtin_prefetch(gpuvec_vector_at(table, ref));
	}
}

/* Prefetch what is known of the pages of a group's rows */
static void
prefetch_pages(const gpuvec_reading *r, uint64_t first, uint64_t end)
{
	const gpuvec_page_numbers *numbers = r->table->numbers;
	const gpuvec_visibility *visibility = &r->q->visibility;

	for (uint64_t i = first; i < end; i++)
	{
		uint32_t	block;

		if (r->rows[i] == GPUVEC_NO_VECTOR)
			continue;
		block = gpuvec_tid_block(gpuvec_vector_at(r->table, r->rows[i])->tid);
		if (block >= visibility->map_bytes * 4 || block >= numbers->nblocks)
			continue;
		__builtin_prefetch(&visibility->map[block / 4]);
		__builtin_prefetch(gpuvec_page_numbers_at(numbers, block));
	}
}

static inline uint64_t
min_number(uint64_t a, uint64_t b)
{
	return a < b ? a : b;
}

/* The keys of a slice: from *first to before *end */
static void
slice_keys(const gpuvec_reading *r, uint64_t slice, uint64_t *first, uint64_t *end)
{
	*first = slice * SLICE_KEYS;
	*end = min_number(*first + SLICE_KEYS, r->nkeys);
}

/* Task: resolve the keys of a slice */
static void
resolve_slice(void *task, uint64_t slice, int thread)
{
	gpuvec_reading *r = task;
	uint64_t	first;
	uint64_t	next;
	uint64_t	end;
	resolving	now;

	slice_keys(r, slice, &first, &end);
	begin_resolving(&now);
	prefetch_entries(r, first, min_number(first + GROUP_KEYS, end));
	for (; first < end && !is_over(r); first = next)
	{
		next = min_number(first + GROUP_KEYS, end);
		prefetch_entries(r, next, min_number(next + GROUP_KEYS, end));
		find_first_rows(r, first, next);
		prefetch_pages(r, first, next);
		for (uint64_t i = first; i < next; i++)
		{
			r->rows[i] = resolve_once(r, &now, i, r->rows[i]);
			now.nfound += r->rows[i] != GPUVEC_NO_VECTOR;
		}
	}
	end_resolving(r, &now);
}

/*
 * Task: resolve the keys of a slice that a device has looked up, including
 * those that it left to the host
 */
static void
resolve_found_slice(void *task, uint64_t slice, int thread)
{
	gpuvec_reading *r = task;
	const gpuvec_embedding_table *table = r->table;
	uint64_t	first;
	uint64_t	end;
	resolving	now;

	slice_keys(r, slice, &first, &end);
	begin_resolving(&now);
	for (uint64_t i = first; i < end && !(i % GROUP_KEYS == 0 && is_over(r)); i++)
	{
		gpuvec_vector_ref ref = GPUVEC_NO_VECTOR;

		if (r->slots[i] == GPUVEC_ASK_SLOT)
			ref = resolve_once(r, &now, i, table->entries[gpuvec_key_index(table, r->q->keys[i])].first);
		else if (r->slots[i] == GPUVEC_NO_SLOT)
			note_missing(r, i);
		else
			ref = gpuvec_vector_ref_of(table->map->bank, r->slots[i]);
		r->rows[i] = ref;
		now.nfound += ref != GPUVEC_NO_VECTOR;
	}
	end_resolving(r, &now);
}

/* Task: note the slots of a slice's rows, which must be of one bank */
static void
locate_slice(void *task, uint64_t slice, int thread)
{
	gpuvec_reading *r = task;
	uint64_t	first;
	uint64_t	end;

	slice_keys(r, slice, &first, &end);
	for (uint64_t i = first; i < end; i++)
	{
		gpuvec_vector_ref ref = r->rows[i];

		if (r->q->found)
			r->q->found[i] = ref != GPUVEC_NO_VECTOR;
		if (ref != GPUVEC_NO_VECTOR && gpuvec_ref_bank(ref) != r->main_bank)
		{
			complain(r, i, ref, GPUVEC_EMBEDDING_WIDTHS);
			return;
		}
		r->slots[i] = ref == GPUVEC_NO_VECTOR ? GPUVEC_NO_SLOT : gpuvec_ref_slot(ref);
	}
}

bool
gpuvec_distinct_tids(uint64_t *tids, uint64_t *n, gpuvec_error *error)
{
	uint64_t   *scratch = malloc((*n + 1) * sizeof(uint64_t));
	const uint64_t *sorted;
	uint64_t	kept = 0;

	if (scratch == NULL)
		return gpuvec_fail_memory(error, *n * sizeof(uint64_t));
	sorted = gpuvec_radix_sort(tids, scratch, *n, 0);
	for (uint64_t i = 0; i < *n; i++)
		if (i == 0 || sorted[i] != tids[kept - 1])
			tids[kept++] = sorted[i];
	*n = kept;
	free(scratch);
	return true;
}

/* Answer with the rows that the session has to decide about */
static bool
answer_undecided(gpuvec_reading *r, gpuvec_error *error)
{
	gpuvec_embedding_answer *answer = &r->q->answer;

	if (!gpuvec_distinct_tids(r->undecided, &r->nundecided, error))
		return false;
	answer->status = GPUVEC_EMBEDDING_UNDECIDED;
	answer->count = r->nundecided;
	r->q->body = r->undecided;
	r->q->body_size = r->nundecided * sizeof(uint64_t);
	r->undecided = NULL;
	return true;
}

/* Answer with a complaint */
static void
answer_complaint(gpuvec_reading *r)
{
	gpuvec_embedding_answer *answer = &r->q->answer;

	answer->status = r->complaint;
	answer->key = r->q->keys[r->wrong];
	if (r->complaint == GPUVEC_EMBEDDING_BAD)
		answer->kind = r->table->banks[gpuvec_ref_bank(r->wrong_row)]->kind;
	if (r->complaint == GPUVEC_EMBEDDING_WIDTHS)
	{
		answer->width = r->table->banks[gpuvec_ref_bank(r->wrong_row)]->width;
		answer->other_key = r->q->keys[r->main_key];
		answer->other_width = r->table->banks[r->main_bank]->width;
	}
}

/*
 * Resolve all keys.  *done: there is nothing more to read, because rows are
 * undecided, no key was found, or the request was canceled.
 */
static bool
resolve(gpuvec_reading *r, gpuvec_thread_pool *pool, uint64_t nslices, bool *done,
		gpuvec_error *error)
{
	if (!gpuvec_reading_find(r, pool, error))
		return false;
	gpuvec_reading_run(r, pool, r->slots ? resolve_found_slice : resolve_slice, nslices);
	if (r->failed)
		return gpuvec_fail_memory(error, r->undecided_capacity * 2 * sizeof(uint64_t));
	*done = true;
	if (r->nundecided > 0)
		return answer_undecided(r, error);
	if (r->nfound > 0 && !gpuvec_reading_canceled(r))
	{
		while (r->rows[r->main_key] == GPUVEC_NO_VECTOR)
			r->main_key++;
		r->main_bank = gpuvec_ref_bank(r->rows[r->main_key]);
		*done = false;
	}
	return true;
}

/* Note the slots of all keys */
static bool
locate(gpuvec_reading *r, gpuvec_thread_pool *pool, uint64_t nslices, gpuvec_error *error)
{
	r->q->answer.width = r->table->banks[r->main_bank]->width;
	if (r->slots == NULL)
	{
		r->slots = gpuvec_memory_new((r->nkeys + 1) * sizeof(uint32_t));
		if (r->slots == NULL)
			return gpuvec_fail_memory(error, r->nkeys * sizeof(uint32_t));
	}
	gpuvec_reading_run(r, pool, locate_slice, nslices);
	return true;
}

/* Resolve the session's visibility if it pays, or if a device needs that */
static bool
resolve_visibility(gpuvec_reading *r, gpuvec_embedding_table *table, gpuvec_error *error)
{
	bool		pays = r->q->visibility.nverdicts >= MANY_VERDICTS &&
		r->nkeys >= table->nrows / ROWS_OF_KEY;

	if (!pays && !gpuvec_reading_asks_device(r))
		return true;
	r->resolved = gpuvec_resolve(table, &r->q->visibility, error);
	return r->resolved != NULL;
}

/* Serve a request.  The caller holds the table's lock. */
static bool
serve(gpuvec_reading *r, gpuvec_embedding_table *table, gpuvec_thread_pool *pool,
	  gpuvec_error *error)
{
	gpuvec_embedding_answer *answer = &r->q->answer;
	uint64_t	nslices = (r->nkeys + SLICE_KEYS - 1) / SLICE_KEYS;
	bool		done = true;

	answer->status = GPUVEC_EMBEDDING_DONE;
	if (!resolve_visibility(r, table, error) || !resolve(r, pool, nslices, &done, error))
		return false;
	answer->nfound = r->nfound;
	if (r->nundecided == 0 && !done && !locate(r, pool, nslices, error))
		return false;
	if (r->nundecided == 0 && r->wrong != UINT64_MAX && !gpuvec_reading_canceled(r))
	{
		answer_complaint(r);
		return true;
	}
	return done || gpuvec_reading_slots(r, pool, error);
}

static bool
begin_reading(gpuvec_reading *r, const gpuvec_embedding_table *table, gpuvec_embedding_query *q,
			  gpuvec_error *error)
{
	bool		gather = q->head.op == GPUVEC_EMBEDDING_GATHER;
	long		most = MAX_UNDECIDED;

	(void) gpuvec_fault("most-undecided", &most);
	memset(r, 0, sizeof(*r));
	r->most_undecided = (uint64_t) most;
	r->table = table;
	r->q = q;
	r->nkeys = q->head.nkeys;
	r->wrong = UINT64_MAX;
	r->nbags = gather ? q->head.nkeys : q->head.nbags;
	r->hotness = gather ? 1 : q->head.hotness;
	r->mode = gather ? GPUVEC_POOL_CONCAT : (gpuvec_pool_mode) q->head.mode;
	r->missing = (gpuvec_missing) q->head.missing;
	/* gathered keys that were not found have no vector in the answer */
	if (gather && r->missing == GPUVEC_MISSING_ZERO)
		r->missing = GPUVEC_MISSING_SKIP;
	pthread_mutex_init(&r->mutex, NULL);
	r->rows = gpuvec_memory_new((r->nkeys + 1) * sizeof(*r->rows));
	if (q->head.flags & GPUVEC_EMBEDDING_FOUND)
		q->found = calloc((r->nkeys + 7) / 8 + 1, 8);
	return (r->rows && (q->found || !(q->head.flags & GPUVEC_EMBEDDING_FOUND))) ||
		gpuvec_fail_memory(error, r->nkeys * sizeof(*r->rows));
}

bool
gpuvec_embedding_run(gpuvec_embedding_table *table, gpuvec_thread_pool *pool,
					 gpuvec_embedding_query *q,
					 gpuvec_error *error)
{
	gpuvec_reading r;
	bool		ok = begin_reading(&r, table, q, error);

	pthread_rwlock_rdlock(&table->lock);
	q->answer.state = table->state;
	if (table->state.state != GPUVEC_READY || table->state.checked < q->head.position)
		q->answer.status = GPUVEC_EMBEDDING_STALE;
	else
		ok = ok && serve(&r, table, pool, error);
	pthread_rwlock_unlock(&table->lock);
	pthread_mutex_destroy(&r.mutex);
	gpuvec_resolved_unref(r.resolved);
	free(r.rows);
	free(r.slots);
	free(r.undecided);
	return ok;
}
