/*-------------------------------------------------------------------------
 *
 * compound.c
 *	  Rows of small mirrors that are searched together, once more, in
 *	  segments of full size.
 *
 * Each partition of a table has a mirror of its own.  A search of all of them
 * reads the segments of all, and in each it has to find the lists of the
 * query's ids.  Many small segments take twice the time of a few full ones.
 * So for small mirrors that are searched together again and again, a thread
 * makes a compound: a copy of their rows in segments of full size.
 *
 * What makes it right:
 *
 *	- A view never changes, and each has a number of its own.  A compound
 *	  knows the number of the view that it has the rows of.  It takes the
 *	  place of a part's segments only where that view would be searched.
 *	- A row has the tid under which it ranks in a search of parts, and rows of
 *	  equal length are in the order of these.
 *
 * A part that gets another view is left out of the compound: its rows are
 * buried, and its own segments are searched.  Once parts have kept their
 * views for a while, and there are many rows of such parts that the compound
 * does not have, it is made anew.
 *
 * Compounds are a luxury.  They are charged to their device, but only if that
 * fits at once, and go before anything else does (store.c).  One also goes
 * when a mirror of it is dropped.
 *
 * Rows are staged with tids of 48 bits.  There the pages of all parts follow
 * each other, as if they were of one table, which keeps the order.
 *
 * The store's mutex may be held when the mutex of the compounds is taken, but
 * not the other way round.
 *
 *-------------------------------------------------------------------------
 */
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

#include "engine/clock.h"
#include "engine/fault.h"
#include "engine/log.h"
#include "engine/sets/compound.h"
#include "engine/sets/draft.h"

/* Niceness of the thread that makes compounds */
#define COMPOUND_NICE		5

/* At most so many compounds, and lists of parts that may become one */
#define MOST_COMPOUNDS		16

/*
 * A part's view is expected to stay if CALM_SEARCHES searches have seen it, in
 * CALM_NS nanoseconds or more
 */
#define CALM_SEARCHES		8
#define CALM_NS				UINT64_C(1000000000)

/* A compound has so many segments less than its parts, or more */
#define FEWEST_SAVED		8

/* Nanoseconds before the next attempt, if there was no memory */
#define RETRY_NS			UINT64_C(60000000000)

/* Blocks of all parts of a compound together */
#define MOST_BLOCKS			(UINT64_C(1) << 32)

typedef struct compound_part
{
	gpuvec_mirror_key key;
	uint64_t	seen;			/* number of the view that was seen last */
	uint64_t	since;			/* when that was seen first */
	uint32_t	searches;		/* that have seen it since then */
	uint64_t	copied;			/* number of the view whose rows are in the
								 * compound; 0: no row of the part is */
} compound_part;

typedef struct compound
{
	struct compound *next;
	gpuvec_device *device;
	uint32_t	nparts;
	gpuvec_view *view;			/* its rows; NULL: none */
	size_t		charged;		/* for them, by the device */
	uint64_t	rows;			/* when it was made */
	gpuvec_view **sources;		/* [nparts] the views that it is to be made
								 * of, with references, or NULL; NULL: none is
								 * wanted */
	bool		making;			/* by a thread, which has the sources */
	bool		gone;			/* it is not in the list any more */
	uint64_t	last_use;		/* all times are nanoseconds of the clock */
	uint64_t	not_before;		/* when it may be made */
	compound_part parts[];
} compound;

struct gpuvec_compounds
{
	pthread_mutex_t mutex;		/* guards all below */
	pthread_cond_t work;		/* a compound is wanted, or dead */
	compound   *list;
	compound   *dead;			/* to be freed; charged for nothing */
	gpuvec_thread_pool *pool;	/* of one thread, which makes compounds */
};

/* A view that is not needed any more, and what it was charged */
typedef struct leftover
{
	gpuvec_view *view;			/* or NULL */
	gpuvec_device *device;
	size_t		charged;
} leftover;

/* ---- the list; the caller holds the mutex ---- */

static void
drop_sources(compound *c)
{
	for (uint32_t i = 0; c->sources && i < c->nparts; i++)
		gpuvec_view_unref(c->sources[i]);
	free(c->sources);
	c->sources = NULL;
}

static void
free_compound(compound *c)
{
	drop_sources(c);
	gpuvec_view_unref(c->view);
	free(c);
}

/*
 * Take a compound, and what it was charged, out of the list.  A thread frees
 * it later, as that takes some time.
 */
static leftover
take_out(gpuvec_compounds *all, compound **link)
{
	compound   *c = *link;
	leftover	charge = {.device = c->device, .charged = c->charged};

	*link = c->next;
	c->charged = 0;
	c->gone = true;
	if (!c->making)
	{
		c->next = all->dead;
		all->dead = c;
	}
	pthread_cond_signal(&all->work);
	return charge;
}

static bool
same_parts(const compound *c, const gpuvec_device *device, const gpuvec_compound_part *parts,
		   uint32_t n)
{
	if (c->device != device || c->nparts != n)
		return false;
	for (uint32_t i = 0; i < n; i++)
		if (memcmp(&c->parts[i].key, parts[i].key, sizeof(gpuvec_mirror_key)) != 0)
			return false;
	return true;
}

/* Make room for one more; returns what the least recently used one took */
static leftover
make_place(gpuvec_compounds *all)
{
	leftover	gone = {NULL};
	compound  **oldest = NULL;
	uint32_t	n = 0;

	for (compound **link = &all->list; *link; link = &(*link)->next, n++)
		if (oldest == NULL || (*link)->last_use < (*oldest)->last_use)
			oldest = link;
	if (n >= MOST_COMPOUNDS)
		gone = take_out(all, oldest);
	return gone;
}

static compound *
new_compound(gpuvec_device *device, const gpuvec_compound_part *parts, uint32_t n)
{
	compound   *c = calloc(1, sizeof(*c) + n * sizeof(compound_part));

	if (c == NULL)
		return NULL;
	c->device = device;
	c->nparts = n;
	for (uint32_t i = 0; i < n; i++)
		c->parts[i].key = *parts[i].key;
	return c;
}

/* Find the compound of these parts, or add one; NULL: out of memory */
static compound *
find_compound(gpuvec_compounds *all, gpuvec_device *device, const gpuvec_compound_part *parts,
			  uint32_t n, leftover *gone)
{
	compound   *c = all->list;

	while (c && !same_parts(c, device, parts, n))
		c = c->next;
	if (c)
		return c;
	*gone = make_place(all);
	c = new_compound(device, parts, n);
	if (c)
	{
		c->next = all->list;
		all->list = c;
	}
	return c;
}

/* Give up a compound's rows */
static leftover
take_rows(compound *c)
{
	leftover	gone = {c->view, c->device, c->charged};

	c->view = NULL;
	c->charged = 0;
	for (uint32_t i = 0; i < c->nparts; i++)
		c->parts[i].copied = 0;
	return gone;
}

static void
free_leftover(gpuvec_store *store, const leftover *gone)
{
	if (gone->charged > 0)
		gpuvec_store_repay(store, gone->device, gone->charged);
	gpuvec_view_unref(gone->view);
}

/* ---- parts that change ---- */

/* Bury the rows of an entry that are of parts without a copy */
static bool
bury_entry(const compound *c, gpuvec_view_entry *entry, gpuvec_error *error)
{
	const gpuvec_segment *segment = entry->segment;

	for (uint32_t row = 0; row < segment->nrows; row++)
		if (c->parts[segment->tid[row] >> GPUVEC_PART_SHIFT].copied == 0 &&
			gpuvec_entry_live(entry, row) && !gpuvec_entry_bury(entry, row, error))
			return false;
	return true;
}

/* The view without the rows of parts that have no copy; NULL: no memory */
static gpuvec_view *
view_without(const compound *c, gpuvec_thread_pool *pool)
{
	gpuvec_draft draft = {.backend = c->device->backend, .pool = pool};
	gpuvec_view *view = NULL;
	gpuvec_error error;
	bool		ok = gpuvec_draft_copy(&draft, c->view, &error);

	for (uint32_t i = 0; ok && i < draft.n; i++)
		ok = bury_entry(c, &draft.entries[i], &error);
	if (ok)
	{
		gpuvec_draft_drop_dead(&draft);
		view = gpuvec_draft_finish(&draft, &error);
	}
	gpuvec_draft_free(&draft);
	return view;
}

/*
 * Leave out parts that have other views now.  Returns what is not needed any
 * more: the old view, or all rows, if most are gone or there is no memory.
 */
static leftover
leave_out(gpuvec_compounds *all, compound *c, const gpuvec_compound_part *parts)
{
	leftover	old = {.view = NULL};
	bool		changed = false;

	for (uint32_t i = 0; i < c->nparts; i++)
	{
		if (c->parts[i].copied == 0 || c->parts[i].copied == parts[i].view->number)
			continue;
		c->parts[i].copied = 0;
		changed = true;
	}
	if (!changed)
		return old;
	old.view = c->view;
	c->view = view_without(c, all->pool);
	if (c->view && c->view->nrows >= c->rows / 2)
		return old;
	gpuvec_view_unref(old.view);
	return take_rows(c);
}

/* True if a part that the compound has is not searched */
static bool
lacks_part(const compound *c, const gpuvec_compound_part *parts)
{
	for (uint32_t i = 0; i < c->nparts; i++)
		if (c->parts[i].copied != 0 && parts[i].view == NULL)
			return true;
	return false;
}

/* Take the rows that a search may have */
static gpuvec_view *
use(gpuvec_compounds *all, compound *c, const gpuvec_compound_part *parts, bool *covered,
	leftover *gone)
{
	if (c->view == NULL || lacks_part(c, parts))
		return NULL;
	*gone = leave_out(all, c, parts);
	if (c->view == NULL)
		return NULL;
	for (uint32_t i = 0; i < c->nparts; i++)
		covered[i] = c->parts[i].copied != 0;
	return gpuvec_view_ref(c->view);
}

/* ---- which parts are worth it ---- */

/* What a compound takes to be made */
typedef struct compound_terms
{
	uint32_t	searches;		/* that have seen a view, ... */
	uint64_t	ns;				/* ... and for how long */
	uint64_t	saved;			/* segments */
} compound_terms;

static compound_terms
usual_terms(void)
{
	compound_terms usual = {CALM_SEARCHES, CALM_NS, FEWEST_SAVED};
	long		searches;

	if (!gpuvec_fault("compounds", &searches))
		return usual;
	usual.searches = (uint32_t) searches;
	usual.ns = 0;
	usual.saved = 1;
	return usual;
}

/* Note which views a search reads */
static void
note_views(compound *c, const gpuvec_compound_part *parts, uint64_t now)
{
	for (uint32_t i = 0; i < c->nparts; i++)
	{
		compound_part *p = &c->parts[i];

		if (parts[i].view == NULL)
			continue;
		if (p->seen != parts[i].view->number)
		{
			p->seen = parts[i].view->number;
			p->since = now;
			p->searches = 0;
		}
		if (p->searches < UINT32_MAX)
			p->searches++;
	}
	c->last_use = now;
}

/* True if a view has segments that are not even half full */
static bool
is_small(const gpuvec_view *view)
{
	return view->nrows > 0 &&
		view->nrows < (uint64_t) view->nentries * (gpuvec_full_segment() / 2);
}

/* The blocks of a view: one more than its last one */
static uint64_t
blocks_of(const gpuvec_view *view)
{
	uint64_t	last = 0;

	for (uint32_t i = 0; i < view->nentries; i++)
		if (view->entries[i].segment->last_tid > last)
			last = view->entries[i].segment->last_tid;
	return (uint64_t) gpuvec_tid_block(last) + 1;
}

/* What a compound would have */
typedef struct compound_gain
{
	uint64_t	rows;
	uint64_t	copied;			/* rows that it has already */
	uint64_t	entries;		/* segments that it would save */
	uint64_t	blocks;
} compound_gain;

/* Add a part to what a compound would have; false: it would not be there */
static bool
add_gain(compound_gain *g, const compound_terms *when, const compound_part *p, const gpuvec_view *view, uint64_t now)
{
	if (view == NULL || p->searches < when->searches || now - p->since < when->ns || !is_small(view))
		return false;
	g->rows += view->nrows;
	g->entries += view->nentries;
	g->blocks += blocks_of(view);
	if (p->copied == view->number)
		g->copied += view->nrows;
	return true;
}

/* Is a compound of these parts worth it, and has it a quarter of new rows? */
static bool
is_worth_it(const compound *c, const compound_terms *when, const gpuvec_compound_part *parts,
			int threads, uint64_t now)
{
	compound_gain g = {0};

	for (uint32_t i = 0; i < c->nparts; i++)
		(void) add_gain(&g, when, &c->parts[i], parts[i].view, now);
	return g.rows > 0 && g.blocks <= MOST_BLOCKS && g.copied <= g.rows / 4 * 3 &&
		g.entries >= when->saved + gpuvec_segments_needed(c->device->backend, g.rows, threads);
}

/* Have a compound made, if that is worth it */
static void
want(gpuvec_compounds *all, compound *c, const gpuvec_compound_part *parts, int threads, uint64_t now)
{
	compound_terms when = usual_terms();
	compound_gain g = {0};

	if (c->sources || c->making || now < c->not_before || !is_worth_it(c, &when, parts, threads, now))
		return;
	c->sources = calloc(c->nparts, sizeof(*c->sources));
	for (uint32_t i = 0; c->sources && i < c->nparts; i++)
		if (add_gain(&g, &when, &c->parts[i], parts[i].view, now))
			c->sources[i] = gpuvec_view_ref(parts[i].view);
	pthread_cond_signal(&all->work);
}

/* ---- making a compound, without the mutex ---- */

typedef struct compound_making
{
	gpuvec_store *store;
	compound   *compound;
	gpuvec_view **sources;		/* [compound->nparts] */
	uint64_t   *first_block;	/* [compound->nparts + 1] of each part, where
								 * the pages of all follow each other */
	size_t		charged;
} compound_making;

/* Bytes that the segments of a view are charged */
static size_t
view_bytes(const gpuvec_view *view)
{
	size_t		bytes = 0;

	for (uint32_t i = 0; i < view->nentries; i++)
		bytes += gpuvec_segment_charge(view->entries[i].segment);
	/* live maps, once parts change */
	return bytes + view->nrows / 8;
}

/* Set the charge, if that fits at once */
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

/*
 * Charge what the segments are expected to take, as much as their sources, and
 * the rows that are staged for them
 */
static bool
charge_sources(compound_making *m)
{
	size_t		bytes = 0;

	for (uint32_t i = 0; i < m->compound->nparts; i++)
		if (m->sources[i])
			bytes += 2 * view_bytes(m->sources[i]);
	return charge(m, bytes);
}

/* Stage the rows of a part */
static bool
stage_part(compound_making *m, uint32_t number, gpuvec_stage *stage, gpuvec_error *error)
{
	gpuvec_draft draft = {.backend = m->compound->device->backend};
	bool		ok = gpuvec_draft_copy(&draft, m->sources[number], error) &&
		gpuvec_draft_unbuild(&draft, 0, gpuvec_tid(m->first_block[number], 0), stage, error);

	gpuvec_draft_free(&draft);
	return ok;
}

static bool
stage_rows(compound_making *m, gpuvec_stage *stage, gpuvec_error *error)
{
	uint64_t	block = 0;

	for (uint32_t i = 0; i < m->compound->nparts; i++)
	{
		m->first_block[i] = block;
		if (m->sources[i] == NULL)
			continue;
		if (!stage_part(m, i, stage, error))
			return false;
		block += blocks_of(m->sources[i]);
	}
	m->first_block[m->compound->nparts] = block;
	return true;
}

/* The part that has this block */
static uint32_t
part_of(const compound_making *m, uint64_t block)
{
	uint32_t	low = 0;
	uint32_t	high = m->compound->nparts;

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

/* The tid under which a staged row ranks in a search of parts */
static uint64_t
ranked_tid(const compound_making *m, uint64_t tid)
{
	uint32_t	number = part_of(m, gpuvec_tid_block(tid));

	return gpuvec_part_tid(number) | (tid - gpuvec_tid(m->first_block[number], 0));
}

/* Give the rows of a new segment these tids, which keep their order */
static void
name_rows(void *arg, gpuvec_segment *segment)
{
	for (uint32_t row = 0; row < segment->nrows; row++)
		segment->tid[row] = ranked_tid(arg, segment->tid[row]);
	segment->first_tid = ranked_tid(arg, segment->first_tid);
	segment->last_tid = ranked_tid(arg, segment->last_tid);
}

/* All has been charged */
static bool
go_on(void *arg, size_t built, size_t staged, gpuvec_error *error)
{
	return true;
}

/* Build the segments of all parts; NULL on failure */
static gpuvec_view *
build(compound_making *m, gpuvec_stage *stage, gpuvec_error *error)
{
	gpuvec_backend *backend = m->compound->device->backend;
	gpuvec_thread_pool *pool = m->store->compounds->pool;
	gpuvec_draft draft = {.backend = backend, .pool = pool};
	gpuvec_view *view = NULL;

	if (stage_rows(m, stage, error))
	{
		gpuvec_stage_target target = {
			.pool = pool, .backend = backend, .nblocks = UINT32_MAX,
			.nrows = gpuvec_stage_rows(stage),
			.shares = gpuvec_thread_pool_threads(m->store->pool), .sorted = true,
			.name_rows = name_rows, .progress = go_on, .arg = m
		};

		if (target.nrows > 0 && gpuvec_draft_build(&draft, stage, &target, error))
		{
			for (uint32_t i = 0; backend->finish_segment && i < draft.n; i++)
				backend->finish_segment(backend, draft.entries[i].segment);
			view = gpuvec_draft_finish(&draft, error);
		}
	}
	gpuvec_draft_free(&draft);
	return view;
}

/* Make the rows of a compound; NULL: there is no memory, and no charge */
static gpuvec_view *
make_rows(compound_making *m)
{
	gpuvec_stage *stage = gpuvec_stage_new(0);
	gpuvec_view *view = NULL;
	gpuvec_error error;

	m->first_block = calloc(m->compound->nparts + (size_t) 1, sizeof(uint64_t));
	if (stage && m->first_block && charge_sources(m))
		view = build(m, stage, &error);
	if (view == NULL || !charge(m, view_bytes(view)))
	{
		gpuvec_view_unref(view);
		view = NULL;
		(void) charge(m, 0);
	}
	gpuvec_stage_free(stage);
	free(m->first_block);
	return view;
}

/* ---- the thread ---- */

/* What was made for a compound that is gone */
static leftover
unused_rows(const compound_making *m, gpuvec_view *view)
{
	leftover	unused = {view, m->compound->device, m->charged};

	return unused;
}

/* Note what a compound has; the caller holds the mutex */
static leftover
set_rows(const compound_making *m, gpuvec_view *view)
{
	compound   *c = m->compound;
	leftover	old = take_rows(c);

	c->view = view;
	c->charged = m->charged;
	c->rows = view->nrows;
	for (uint32_t i = 0; i < c->nparts; i++)
		if (m->sources[i])
			c->parts[i].copied = m->sources[i]->number;
	gpuvec_log("DEBUG", "compound of %u mirrors: %llu rows in %u segments, %zu kB", c->nparts,
			   (unsigned long long) view->nrows, view->nentries, c->charged / 1024);
	return old;
}

/*
 * Make a compound that is wanted.  The caller holds the mutex, which is
 * released meanwhile.
 */
static void
make(gpuvec_store *store, compound *c)
{
	gpuvec_compounds *all = store->compounds;
	compound_making m = {.store = store, .compound = c, .sources = c->sources};
	gpuvec_view *view;
	leftover	gone = {NULL};
	uint32_t	nparts = c->nparts;
	bool		dead;

	c->sources = NULL;
	c->making = true;
	pthread_mutex_unlock(&all->mutex);
	view = make_rows(&m);
	pthread_mutex_lock(&all->mutex);
	c->making = false;
	dead = c->gone;
	if (view == NULL)
		c->not_before = gpuvec_clock_ns() + RETRY_NS;
	else if (dead)
		gone = unused_rows(&m, view);
	else
		gone = set_rows(&m, view);
	pthread_mutex_unlock(&all->mutex);
	free_leftover(store, &gone);
	for (uint32_t i = 0; i < nparts; i++)
		gpuvec_view_unref(m.sources[i]);
	free(m.sources);
	if (dead)
		free_compound(c);
	pthread_mutex_lock(&all->mutex);
}

/* A compound that is wanted, or NULL */
static compound *
next_wanted(const gpuvec_compounds *all)
{
	compound   *c = all->list;

	while (c && c->sources == NULL)
		c = c->next;
	return c;
}

/* Do all that is to be done; the caller holds the mutex */
static void
work(gpuvec_store *store)
{
	gpuvec_compounds *all = store->compounds;
	compound   *c;

	while ((c = all->dead) != NULL)
	{
		all->dead = c->next;
		pthread_mutex_unlock(&all->mutex);
		free_compound(c);
		pthread_mutex_lock(&all->mutex);
	}
	while ((c = next_wanted(all)) != NULL)
		make(store, c);
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
		if (all->dead == NULL && next_wanted(all) == NULL)
			pthread_cond_wait(&all->work, &all->mutex);
		work(store);
	}
	return NULL;
}

bool
gpuvec_compounds_start(gpuvec_store *store)
{
	gpuvec_compounds *all = calloc(1, sizeof(*all));
	pthread_t	thread;
	sigset_t	signals;
	sigset_t	old;
	int			rc;

	if (all == NULL || (all->pool = gpuvec_thread_pool_new(1)) == NULL)
	{
		free(all);
		return false;
	}
	pthread_mutex_init(&all->mutex, NULL);
	pthread_cond_init(&all->work, NULL);
	store->compounds = all;
	sigfillset(&signals);
	pthread_sigmask(SIG_SETMASK, &signals, &old);
	rc = pthread_create(&thread, NULL, compounds_thread, store);
	pthread_sigmask(SIG_SETMASK, &old, NULL);
	return rc == 0 && pthread_detach(thread) == 0;
}

/* ---- for searches and the store ---- */

gpuvec_view *
gpuvec_compound_find(gpuvec_store *store, gpuvec_device *device, const gpuvec_compound_part *parts,
					 uint32_t n, bool *covered)
{
	gpuvec_compounds *all = store->compounds;
	int			threads = gpuvec_thread_pool_threads(store->pool);
	uint64_t	now = gpuvec_clock_ns();
	gpuvec_view *view = NULL;
	leftover	gone[2] = {{NULL}, {NULL}};
	compound   *c;

	pthread_mutex_lock(&all->mutex);
	c = find_compound(all, device, parts, n, &gone[0]);
	if (c)
	{
		note_views(c, parts, now);
		want(all, c, parts, threads, now);
		view = use(all, c, parts, covered, &gone[1]);
	}
	pthread_mutex_unlock(&all->mutex);
	free_leftover(store, &gone[0]);
	free_leftover(store, &gone[1]);
	return view;
}

/* True if a mirror is one of the parts */
static bool
has_part(const compound *c, const gpuvec_mirror_key *key)
{
	for (uint32_t i = 0; i < c->nparts; i++)
		if (memcmp(&c->parts[i].key, key, sizeof(*key)) == 0)
			return true;
	return false;
}

size_t
gpuvec_compounds_drop(gpuvec_store *store, const gpuvec_device *device, const gpuvec_mirror *mirror)
{
	gpuvec_compounds *all = store->compounds;
	size_t		bytes = 0;
	compound  **link;

	if (all == NULL)
		return 0;
	pthread_mutex_lock(&all->mutex);
	for (link = &all->list; *link;)
	{
		if ((*link)->device == device &&
			(mirror ? has_part(*link, &mirror->key) : (*link)->charged > 0))
			bytes += take_out(all, link).charged;
		else
			link = &(*link)->next;
	}
	pthread_mutex_unlock(&all->mutex);
	return bytes;
}
