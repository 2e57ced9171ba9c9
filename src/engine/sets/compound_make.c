/*-------------------------------------------------------------------------
 *
 * compound_make.c
 *	  Making compounds, and freeing them: the work of a thread of its own.
 *
 * The rows of all partitions are staged and built into segments, as those of a
 * load are.  The stage has tids of 48 bits.  There the pages of all partitions
 * follow each other, as if they were of one table, which keeps the order.
 *
 *-------------------------------------------------------------------------
 */
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

#include "engine/log.h"
#include "engine/sets/compound_list.h"
#include "engine/sets/renumber.h"

/* Niceness of the thread */
#define COMPOUND_NICE		5

/*
 * Before a compound is made again, REST times as long passes as it took.  If
 * there was no memory, it is GPUVEC_COMPOUND_RETRY, twice that the next time,
 * and so on, but doubled at most MOST_DOUBLED times.
 */
#define REST				20
#define MOST_DOUBLED		6

/*
 * Rows that no search has used for so long are given up; microseconds until
 * the next look for some
 */
#define IDLE_NS				(600 * GPUVEC_SECOND)
#define IDLE_LOOK_US		(60 * 1000000)

/* ---- rows, without the mutex ---- */

typedef struct compound_making
{
	gpuvec_store *store;
	gpuvec_compound *compound;
	gpuvec_compound_rows *sources;	/* [compound->npartitions]; none once they
									 * are staged */
	uint64_t   *copied;			/* [compound->npartitions] numbers of their
								 * views; 0: none */
	uint64_t   *first_block;	/* [compound->npartitions + 1] of each
								 * partition, where the pages of all follow
								 * each other */
	gpuvec_stage *stage;
	gpuvec_compound_rows made;
	size_t		charged;
} compound_making;

/* Bytes that the segments of a view are charged */
static size_t
view_bytes(const gpuvec_view *view)
{
	size_t		bytes = 0;

	for (uint32_t i = 0; i < view->nentries; i++)
		bytes += gpuvec_segment_charge(view->entries[i].segment);
	/* and live maps, for when partitions change */
	return bytes + view->nrows / 8;
}

/* Set the charge, if there is enough free memory */
static bool
charge(compound_making *m, size_t bytes)
{
	gpuvec_device *device = m->compound->device;

	if (bytes > m->charged)
	{
		if (!gpuvec_store_borrow_spare(m->store, device, bytes - m->charged))
			return false;
	}
	else
		gpuvec_store_repay(m->store, device, m->charged - bytes);
	m->charged = bytes;
	return true;
}

/* Bytes of rows and the numbers of their ids */
static size_t
rows_bytes(const gpuvec_compound_rows *rows)
{
	return view_bytes(rows->view) + (rows->numbers ? gpuvec_id_numbers_bytes(rows->numbers) : 0);
}

/*
 * Charge what the sources take, twice: for the rows that are staged, and for
 * their segments
 */
static bool
charge_sources(compound_making *m)
{
	size_t		bytes = 0;

	for (uint32_t i = 0; i < m->compound->npartitions; i++)
		if (m->sources[i].view)
			bytes += 2 * rows_bytes(&m->sources[i]);
	return charge(m, bytes);
}

/* Charge more if that is not enough; fails if the work is in vain, too */
static bool
charge_work(compound_making *m, size_t bytes, gpuvec_error *error)
{
	return !gpuvec_compound_useless(m->compound) &&
		(bytes <= m->charged || charge(m, bytes) || gpuvec_fail_memory(error, bytes));
}

/* Stage the rows of a partition */
static bool
stage_partition(compound_making *m, uint32_t number, gpuvec_error *error)
{
	const gpuvec_compound_rows *source = &m->sources[number];
	gpuvec_draft draft = {.backend = m->compound->device->backend};
	uint32_t   *ids = source->numbers ? gpuvec_id_numbers_ids(source->numbers, error) : NULL;
	gpuvec_row_names names = {.more = gpuvec_tid(m->first_block[number], 0), .ids = ids};
	bool		ok = (ids || source->numbers == NULL) &&
		gpuvec_draft_copy(&draft, source->view, error) &&
		gpuvec_draft_unbuild(&draft, 0, &names, m->stage, error);

	gpuvec_draft_free(&draft);
	free(ids);
	return ok;
}

static bool
stage_rows(compound_making *m, gpuvec_error *error)
{
	uint64_t	block = 0;

	for (uint32_t i = 0; i < m->compound->npartitions; i++)
	{
		m->first_block[i] = block;
		if (m->sources[i].view == NULL)
			continue;
		if (gpuvec_compound_useless(m->compound) || !stage_partition(m, i, error))
			return false;
		block += gpuvec_compound_blocks(m->sources[i].view);
		m->copied[i] = m->sources[i].view->number;
		/* the mirror may have other rows by now */
		gpuvec_compound_rows_unref(&m->sources[i]);
		memset(&m->sources[i], 0, sizeof(m->sources[i]));
	}
	m->first_block[m->compound->npartitions] = block;
	return true;
}

/* The partition that has this block */
static uint32_t
partition_of(const compound_making *m, uint64_t block)
{
	uint32_t	low = 0;
	uint32_t	high = m->compound->npartitions;

	while (high - low > 1)
	{
		uint32_t	middle = low + (high - low) / 2;

		if (m->first_block[middle] <= block)
			low = middle;
		else
			high = middle;
	}
	return low;
}

/* The tid under which a staged row ranks in a search of partitions */
static uint64_t
ranked_tid(const compound_making *m, uint64_t tid)
{
	uint32_t	number = partition_of(m, gpuvec_tid_block(tid));

	return gpuvec_partition_tid(number) | (tid - gpuvec_tid(m->first_block[number], 0));
}

/* Give the rows of a new segment these tids, which keep their order */
static void
name_rows(void *arg, gpuvec_segment *segment)
{
	const compound_making *m = arg;

	segment->partition_bits = gpuvec_compound_bits(m->compound);
	for (uint32_t row = 0; row < segment->nrows; row++)
		segment->tid[row] = ranked_tid(arg, segment->tid[row]);
	segment->first_tid = ranked_tid(arg, segment->first_tid);
	segment->last_tid = ranked_tid(arg, segment->last_tid);
}

/* Charge what is built and staged; called while segments are built */
static bool
go_on(void *arg, size_t built, size_t staged, gpuvec_error *error)
{
	compound_making *m = arg;

	if (m->made.numbers)
		built += gpuvec_id_numbers_bytes(m->made.numbers);
	return charge_work(m, built + staged, error);
}

/* Charge what counting ids takes beside the staged rows */
static bool
charge_numbering(void *arg, size_t bytes, gpuvec_error *error)
{
	compound_making *m = arg;

	return charge_work(m, gpuvec_stage_bytes(m->stage) + bytes, error);
}

/* Number the ids of the staged rows, if some are above 65,535 */
static bool
number_rows(compound_making *m, gpuvec_error *error)
{
	gpuvec_thread_pool *pool = m->store->compounds->pool;

	if (gpuvec_stage_cold(m->stage) == 0)
		return true;
	m->made.numbers = gpuvec_renumber_map(m->stage, pool, charge_numbering, m, error);
	return m->made.numbers != NULL && !gpuvec_compound_useless(m->compound) &&
		gpuvec_renumber_rows(&m->stage, m->made.numbers, true, pool, error);
}

/* Build the segments of the staged rows */
static bool
build(compound_making *m, gpuvec_error *error)
{
	gpuvec_backend *backend = m->compound->device->backend;
	gpuvec_thread_pool *pool = m->store->compounds->pool;
	gpuvec_draft draft = {.backend = backend, .pool = pool};
	gpuvec_stage_target target = {
		.pool = pool, .backend = backend, .nblocks = UINT32_MAX,
		.nrows = gpuvec_stage_rows(m->stage),
		.shares = gpuvec_thread_pool_threads(m->store->pool), .sorted = true,
		.name_rows = name_rows, .progress = go_on, .arg = m
	};

	if (target.nrows > 0 && gpuvec_draft_build(&draft, m->stage, &target, error))
	{
		for (uint32_t i = 0; backend->finish_segment && i < draft.n; i++)
			if (!gpuvec_compound_useless(m->compound))
				backend->finish_segment(backend, draft.entries[i].segment);
		m->made.view = gpuvec_draft_finish(&draft, error);
	}
	gpuvec_draft_free(&draft);
	return m->made.view != NULL;
}

/* Make the rows of a compound, m->made; none, if there is no memory */
static void
make_rows(compound_making *m)
{
	gpuvec_error error;

	m->stage = gpuvec_stage_new((gpuvec_row_kind) {.values = m->compound->partitions[0].key.values != 0});
	m->first_block = calloc(m->compound->npartitions + (size_t) 1, sizeof(uint64_t));
	m->copied = calloc(m->compound->npartitions, sizeof(uint64_t));
	if (m->stage == NULL || m->first_block == NULL || m->copied == NULL || !charge_sources(m) ||
		!stage_rows(m, &error) || !number_rows(m, &error) || !build(m, &error) ||
		!charge(m, rows_bytes(&m->made)))
	{
		gpuvec_compound_rows_unref(&m->made);
		memset(&m->made, 0, sizeof(m->made));
		(void) charge(m, 0);
	}
	gpuvec_stage_free(m->stage);
	free(m->first_block);
}

/* ---- the thread; the caller holds the mutex, which work releases ---- */

/* Note what a compound has */
static gpuvec_leftover
set_rows(const compound_making *m)
{
	gpuvec_compound *c = m->compound;
	gpuvec_leftover old = gpuvec_compound_take_rows(m->store->compounds, c);

	c->rows = m->made;
	c->charged = m->charged;
	c->nrows = m->made.view->nrows;
	for (uint32_t i = 0; i < c->npartitions; i++)
		c->partitions[i].copied = m->copied[i];
	gpuvec_log("DEBUG", "compound of %u mirrors: %llu rows in %u segments, %zu kB", c->npartitions,
			   (unsigned long long) c->nrows, m->made.view->nentries, c->charged / 1024);
	return old;
}

/* Note when a compound may be made again */
static void
set_rest(gpuvec_compound *c, bool made, uint64_t began)
{
	uint64_t	now = gpuvec_clock_ns();
	uint32_t	doubled = c->failures < MOST_DOUBLED ? c->failures : MOST_DOUBLED;

	if (made)
		c->not_before = now + REST * (now - began);
	else
		c->not_before = now + (GPUVEC_COMPOUND_RETRY << doubled);
	c->failures = made ? 0 : c->failures + 1;
}

/* Take what was made, if anything; returns what is not needed */
static gpuvec_leftover
end_making(compound_making *m, uint64_t began)
{
	gpuvec_compound *c = m->compound;
	gpuvec_leftover unused = {m->made, NULL, c->device, m->charged};

	c->making = false;
	for (uint32_t i = 0; i < c->npartitions; i++)
		c->partitions[i].coming = false;
	if (gpuvec_compound_useless(c))
		return unused;
	set_rest(c, m->made.view != NULL, began);
	return m->made.view ? set_rows(m) : unused;
}

/* Make a compound that is wanted */
static void
make(gpuvec_store *store, gpuvec_compound *c)
{
	gpuvec_compounds *all = store->compounds;
	compound_making m = {.store = store, .compound = c, .sources = c->sources};
	uint64_t	began = gpuvec_clock_ns();
	uint32_t	npartitions = c->npartitions;
	gpuvec_leftover unused;
	bool		gone;

	c->sources = NULL;
	c->making = true;
	__atomic_store_n(&c->stop, 0, __ATOMIC_RELAXED);
	pthread_mutex_unlock(&all->mutex);
	make_rows(&m);
	gpuvec_fault_sleep("slow-compound", NULL);
	pthread_mutex_lock(&all->mutex);
	unused = end_making(&m, began);
	gone = c->gone;
	pthread_mutex_unlock(&all->mutex);
	gpuvec_compound_free_leftover(store, &unused);
	for (uint32_t i = 0; i < npartitions; i++)
		gpuvec_compound_rows_unref(&m.sources[i]);
	free(m.sources);
	free(m.copied);
	if (gone)
		gpuvec_compound_free(c);
	pthread_mutex_lock(&all->mutex);
}

/* Free a compound that is dead, or rows that were dropped; false: no more */
static bool
free_next(gpuvec_compounds *all)
{
	gpuvec_compound *dead = all->dead;
	gpuvec_compound_rows rows = {NULL, NULL};
	gpuvec_view *joint = NULL;

	for (gpuvec_compound *c = all->list; dead == NULL && rows.view == NULL && joint == NULL && c; c = c->next)
	{
		rows = c->dropped;
		joint = gpuvec_joint_take_old(all, c);
		memset(&c->dropped, 0, sizeof(c->dropped));
	}
	if (dead)
		all->dead = dead->next;
	else if (rows.view == NULL && joint == NULL)
		return false;
	pthread_mutex_unlock(&all->mutex);
	if (dead)
		gpuvec_compound_free(dead);
	gpuvec_compound_rows_unref(&rows);
	gpuvec_view_unref(joint);
	pthread_mutex_lock(&all->mutex);
	return true;
}

/* Give up the rows of a compound that nobody uses; false: there is none */
static bool
give_up_idle(gpuvec_store *store)
{
	gpuvec_compounds *all = store->compounds;
	uint64_t	now = gpuvec_clock_ns();
	gpuvec_compound *c = all->list;
	gpuvec_leftover unused;

	while (c && (c->rows.view == NULL || now - c->last_use < IDLE_NS))
		c = c->next;
	if (c == NULL)
		return false;
	unused = gpuvec_compound_take_rows(all, c);
	pthread_mutex_unlock(&all->mutex);
	gpuvec_compound_free_leftover(store, &unused);
	pthread_mutex_lock(&all->mutex);
	return true;
}

/* Make a compound that is wanted; false: there is none */
static bool
make_next(gpuvec_store *store)
{
	gpuvec_compound *c = store->compounds->list;

	while (c && c->sources == NULL)
		c = c->next;
	if (c == NULL)
		return false;
	make(store, c);
	return true;
}

static void *
compounds_thread(void *arg)
{
	gpuvec_store *store = arg;
	gpuvec_compounds *all = store->compounds;

	/* on Linux, niceness is per thread; a failure is harmless */
	(void) setpriority(PRIO_PROCESS, 0, COMPOUND_NICE);
	pthread_mutex_lock(&all->mutex);
	for (;;)
	{
		struct timespec later = gpuvec_deadline(IDLE_LOOK_US);

		/* what is to be freed comes before what takes more memory */
		if (!free_next(all) && !give_up_idle(store) && !make_next(store))
			(void) pthread_cond_timedwait(&all->work, &all->mutex, &later);
	}
	return NULL;
}

bool
gpuvec_compounds_start(gpuvec_store *store)
{
	gpuvec_compounds *all = calloc(1, sizeof(*all));

	if (all == NULL || (all->pool = gpuvec_thread_pool_new(1)) == NULL)
	{
		free(all);
		return false;
	}
	gpuvec_waiting_init(&all->mutex, &all->work);
	pthread_mutex_init(&all->joint_mutex, NULL);
	store->compounds = all;
	return gpuvec_thread_start(compounds_thread, store);
}
