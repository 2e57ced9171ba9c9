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
 * does not have, it is made anew, but not again and again.
 *
 * Compounds are a luxury.  They are charged to their device, each at most half
 * of what is free, and go before anything else does (store.c).  One that is
 * being made stops then; its charge goes a little later.  A compound also goes
 * when a mirror whose rows it has is dropped, or when nobody uses it.
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
#define SECOND				UINT64_C(1000000000)
#define CALM_SEARCHES		8
#define CALM_NS				SECOND

/* A compound has so many segments less than its parts, or more */
#define FEWEST_SAVED		8

/*
 * Before a compound is made again, REST times as long passes as it took, and
 * RETRY_NS nanoseconds if there was no memory: twice that after the second
 * time, and so on, but not more than MOST_DOUBLED times
 */
#define REST				20
#define RETRY_NS			(60 * SECOND)
#define MOST_DOUBLED		6

/*
 * Rows that no search has used for so long are given up; microseconds until
 * the next look for some
 */
#define IDLE_NS				(600 * SECOND)
#define IDLE_LOOK_US		(60 * 1000000)

/* A compound with rows does not give way to another list of parts earlier */
#define USED_NS				(60 * SECOND)

/* Most blocks of all parts of a compound together */
#define MOST_BLOCKS			UINT32_MAX

typedef struct compound_part
{
	gpuvec_mirror_key key;
	uint64_t	seen;			/* number of the view that was seen last, ... */
	uint64_t	since;			/* ... when that was seen first, ... */
	uint32_t	searches;		/* ... by how many searches, ... */
	bool		small;			/* ... and what it has */
	uint32_t	entries;
	uint64_t	rows;
	uint64_t	blocks;
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
	gpuvec_view *dropped;		/* rows that are to be freed, or NULL */
	gpuvec_view **sources;		/* [nparts] the views that it is to be made
								 * of, with references, or NULL; NULL: none is
								 * wanted */
	bool		making;			/* by a thread, which has the sources */
	int			stop;			/* atomic: what is being made is useless */
	bool		gone;			/* it is not in the list any more */
	uint32_t	failures;		/* to make it, since it was made last */
	uint64_t	last_use;		/* all times are nanoseconds of the clock */
	uint64_t	not_before;		/* when it may be made */
	compound_part parts[];
} compound;

struct gpuvec_compounds
{
	pthread_mutex_t mutex;		/* guards all below */
	pthread_cond_t work;		/* a compound is wanted, or dead */
	compound   *list;
	compound   *dead;			/* to be freed; not charged any more */
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
	gpuvec_view_unref(c->dropped);
	free(c);
}

/*
 * Take a compound, and what it was charged, out of the list.  A thread frees
 * it soon, as that takes some time.
 */
static leftover
take_out(gpuvec_compounds *all, compound **link)
{
	compound   *c = *link;
	leftover	charge = {.device = c->device, .charged = c->charged};

	*link = c->next;
	c->charged = 0;
	c->gone = true;
	__atomic_store_n(&c->stop, 1, __ATOMIC_RELAXED);
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

/* True if a should give way before b: it has no rows, or was used earlier */
static bool
goes_before(const compound *a, const compound *b)
{
	if ((a->view == NULL) != (b->view == NULL))
		return a->view == NULL;
	return a->last_use < b->last_use;
}

/*
 * Make room for one more in the list; false: all are in use.  *gone is what
 * the one took that has given way.
 */
static bool
make_place(gpuvec_compounds *all, uint64_t now, leftover *gone)
{
	compound  **first = NULL;
	uint32_t	n = 0;

	for (compound **link = &all->list; *link; link = &(*link)->next, n++)
		if (first == NULL || goes_before(*link, *first))
			first = link;
	if (n < MOST_COMPOUNDS)
		return true;
	if ((*first)->view != NULL && now - (*first)->last_use < USED_NS)
		return false;
	*gone = take_out(all, first);
	return true;
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

/* Find the compound of these parts, or add one; NULL: there is no room */
static compound *
find_compound(gpuvec_compounds *all, gpuvec_device *device, const gpuvec_compound_part *parts,
			  uint32_t n, uint64_t now, leftover *gone)
{
	compound   *c = all->list;

	while (c && !same_parts(c, device, parts, n))
		c = c->next;
	if (c)
		return c;
	if (!make_place(all, now, gone))
		return NULL;
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

/* Bury the rows of a part in an entry */
static bool
bury_part(gpuvec_view_entry *entry, uint32_t number, gpuvec_error *error)
{
	const gpuvec_segment *segment = entry->segment;
	uint64_t	end = gpuvec_part_tid((uint64_t) number + 1);

	for (uint32_t i = gpuvec_segment_find(segment, gpuvec_part_tid(number)); i < segment->nrows; i++)
	{
		uint32_t	row = segment->by_tid[i];

		if (segment->tid[row] >= end)
			break;
		if (gpuvec_entry_live(entry, row) && !gpuvec_entry_bury(entry, row, error))
			return false;
	}
	return true;
}

/* True if a part has another view than the one whose rows are copied */
static bool
has_changed(const compound_part *copy, const gpuvec_compound_part *part)
{
	return copy->copied != 0 && copy->copied != part->view->number;
}

/* The view without the rows of parts that have changed; NULL: no memory */
static gpuvec_view *
view_without(const compound *c, const gpuvec_compound_part *parts, gpuvec_thread_pool *pool)
{
	gpuvec_draft draft = {.backend = c->device->backend, .pool = pool};
	gpuvec_view *view = NULL;
	gpuvec_error error;
	bool		ok = gpuvec_draft_copy(&draft, c->view, &error);

	for (uint32_t i = 0; i < c->nparts; i++)
		for (uint32_t j = 0; ok && has_changed(&c->parts[i], &parts[i]) && j < draft.n; j++)
			ok = bury_part(&draft.entries[j], i, &error);
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
		changed |= has_changed(&c->parts[i], &parts[i]);
	if (!changed)
		return old;
	old.view = c->view;
	c->view = view_without(c, parts, all->pool);
	for (uint32_t i = 0; i < c->nparts; i++)
		if (has_changed(&c->parts[i], &parts[i]))
			c->parts[i].copied = 0;
	if (c->view && c->view->nrows >= c->rows / 2)
		return old;
	gpuvec_view_unref(old.view);
	return take_rows(c);
}

/*
 * True if the compound has rows of a part that is not searched, or whose view
 * is an older one: a search that has begun earlier
 */
static bool
lacks_part(const compound *c, const gpuvec_compound_part *parts)
{
	for (uint32_t i = 0; i < c->nparts; i++)
		if (c->parts[i].copied != 0 &&
			(parts[i].view == NULL || parts[i].view->number < c->parts[i].copied))
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

/* Note a view that a part had not before */
static void
note_view(compound_part *p, const gpuvec_view *view, uint64_t now)
{
	p->seen = view->number;
	p->since = now;
	p->searches = 0;
	/* larger ones fill segments of their own */
	p->small = view->nrows > 0 && view->nrows < gpuvec_full_segment() / 2;
	p->entries = view->nentries;
	p->rows = view->nrows;
	p->blocks = p->small ? blocks_of(view) : 0;
}

/* Note which views a search reads */
static void
note_views(compound *c, const gpuvec_compound_part *parts, uint64_t now)
{
	for (uint32_t i = 0; i < c->nparts; i++)
	{
		if (parts[i].view == NULL)
			continue;
		if (c->parts[i].seen != parts[i].view->number)
			note_view(&c->parts[i], parts[i].view, now);
		if (c->parts[i].searches < UINT32_MAX)
			c->parts[i].searches++;
	}
	c->last_use = now;
}

/* What a compound would have */
typedef struct compound_gain
{
	uint64_t	rows;
	uint64_t	copied;			/* rows that it has already */
	uint64_t	entries;		/* segments that it would save */
	uint64_t	blocks;
} compound_gain;

/* True if a part would be in a compound */
static bool
is_ripe(const compound_part *p, const compound_terms *when, uint64_t now)
{
	return p->small && p->searches >= when->searches && now - p->since >= when->ns;
}

/* True if a compound would have this part's view */
static bool
would_have(const compound_part *p, const gpuvec_view *view, const compound_terms *when, uint64_t now)
{
	return view != NULL && view->number == p->seen && is_ripe(p, when, now);
}

/* Is a compound of these parts worth it, and has it a quarter of new rows? */
static bool
is_worth_it(const compound *c, const compound_terms *when, const gpuvec_compound_part *parts,
			int threads, uint64_t now)
{
	compound_gain g = {0};

	for (uint32_t i = 0; i < c->nparts; i++)
	{
		const compound_part *p = &c->parts[i];

		if (!would_have(p, parts[i].view, when, now))
			continue;
		g.rows += p->rows;
		g.entries += p->entries;
		g.blocks += p->blocks;
		if (p->copied == p->seen)
			g.copied += p->rows;
	}
	return g.rows > 0 && g.blocks <= MOST_BLOCKS && g.copied <= g.rows / 4 * 3 &&
		g.entries >= when->saved + gpuvec_segments_needed(c->device->backend, g.rows, threads);
}

/* Have a compound made, if that is worth it */
static void
want(gpuvec_compounds *all, compound *c, const gpuvec_compound_part *parts, int threads, uint64_t now)
{
	compound_terms when = usual_terms();

	if (c->sources || c->making || now < c->not_before || !is_worth_it(c, &when, parts, threads, now))
		return;
	c->sources = calloc(c->nparts, sizeof(*c->sources));
	for (uint32_t i = 0; c->sources && i < c->nparts; i++)
		if (would_have(&c->parts[i], parts[i].view, &when, now))
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
	/* and live maps, for when parts change */
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

/*
 * Charge what the sources take, twice: for the rows that are staged, and for
 * their segments
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

/* True if what is being made will not be used */
static bool
is_useless(const compound_making *m)
{
	return __atomic_load_n(&m->compound->stop, __ATOMIC_RELAXED) != 0;
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
		if (is_useless(m) || !stage_part(m, i, stage, error))
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

/* Charge what is built and staged; called while segments are built */
static bool
go_on(void *arg, size_t built, size_t staged, gpuvec_error *error)
{
	compound_making *m = arg;
	size_t		bytes = built + staged;

	return !is_useless(m) &&
		(bytes <= m->charged || charge(m, bytes) || gpuvec_fail_memory(error, bytes));
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

/* ---- the thread; the caller holds the mutex, which work releases ---- */

/* What was made for a compound that is not to have it */
static leftover
unused_rows(const compound_making *m, gpuvec_view *view)
{
	leftover	unused = {view, m->compound->device, m->charged};

	return unused;
}

/* Note what a compound has */
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

/* Note when a compound may be made again */
static void
set_rest(compound *c, bool made, uint64_t began)
{
	uint64_t	now = gpuvec_clock_ns();
	uint32_t	doubled = c->failures < MOST_DOUBLED ? c->failures : MOST_DOUBLED;

	if (made)
		c->not_before = now + REST * (now - began);
	else
		c->not_before = now + (RETRY_NS << doubled);
	c->failures = made ? 0 : c->failures + 1;
}

/* Take what was made, or is to be freed; NULL is nothing */
static leftover
end_making(compound_making *m, gpuvec_view *view, uint64_t began)
{
	compound   *c = m->compound;

	c->making = false;
	if (is_useless(m))
		return unused_rows(m, view);
	set_rest(c, view != NULL, began);
	if (view == NULL)
		return unused_rows(m, NULL);
	return set_rows(m, view);
}

/* Make a compound that is wanted */
static void
make(gpuvec_store *store, compound *c)
{
	gpuvec_compounds *all = store->compounds;
	compound_making m = {.store = store, .compound = c, .sources = c->sources};
	uint64_t	began = gpuvec_clock_ns();
	uint32_t	nparts = c->nparts;
	gpuvec_view *view;
	leftover	unused;
	bool		gone;

	c->sources = NULL;
	c->making = true;
	__atomic_store_n(&c->stop, 0, __ATOMIC_RELAXED);
	pthread_mutex_unlock(&all->mutex);
	view = make_rows(&m);
	gpuvec_fault_sleep("slow-compound", NULL);
	pthread_mutex_lock(&all->mutex);
	unused = end_making(&m, view, began);
	gone = c->gone;
	pthread_mutex_unlock(&all->mutex);
	free_leftover(store, &unused);
	for (uint32_t i = 0; i < nparts; i++)
		gpuvec_view_unref(m.sources[i]);
	free(m.sources);
	if (gone)
		free_compound(c);
	pthread_mutex_lock(&all->mutex);
}

/* Free a compound that is dead, or rows that were dropped; false: no more */
static bool
free_next(gpuvec_compounds *all)
{
	compound   *dead = all->dead;
	gpuvec_view *view = NULL;

	for (compound *c = all->list; dead == NULL && view == NULL && c; c = c->next)
	{
		view = c->dropped;
		c->dropped = NULL;
	}
	if (dead)
		all->dead = dead->next;
	else if (view == NULL)
		return false;
	pthread_mutex_unlock(&all->mutex);
	if (dead)
		free_compound(dead);
	gpuvec_view_unref(view);
	pthread_mutex_lock(&all->mutex);
	return true;
}

/* Give up the rows of a compound that nobody uses; false: there is none */
static bool
give_up_idle(gpuvec_store *store)
{
	gpuvec_compounds *all = store->compounds;
	uint64_t	now = gpuvec_clock_ns();
	compound   *c = all->list;
	leftover	unused;

	while (c && (c->view == NULL || now - c->last_use < IDLE_NS))
		c = c->next;
	if (c == NULL)
		return false;
	unused = take_rows(c);
	pthread_mutex_unlock(&all->mutex);
	free_leftover(store, &unused);
	pthread_mutex_lock(&all->mutex);
	return true;
}

/* Make a compound that is wanted; false: there is none */
static bool
make_next(gpuvec_store *store)
{
	compound   *c = store->compounds->list;

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
	pthread_condattr_t monotonic;
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
	pthread_condattr_init(&monotonic);
	pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
	pthread_cond_init(&all->work, &monotonic);
	pthread_condattr_destroy(&monotonic);
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
	gpuvec_view *view = NULL;
	leftover	gone[2] = {{NULL}, {NULL}};
	uint64_t	now;
	compound   *c;

	pthread_mutex_lock(&all->mutex);
	now = gpuvec_clock_ns();
	c = find_compound(all, device, parts, n, now, &gone[0]);
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

/* True if rows of a mirror are in a compound, or are being put there */
static bool
has_rows_of(const compound *c, const gpuvec_mirror_key *key)
{
	for (uint32_t i = 0; i < c->nparts; i++)
		if (c->parts[i].key.relation == key->relation &&
			memcmp(&c->parts[i].key, key, sizeof(*key)) == 0)
			return c->parts[i].copied != 0 || c->sources || c->making;
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
		if ((*link)->device == device && has_rows_of(*link, &mirror->key))
			bytes += take_out(all, link).charged;
		else
			link = &(*link)->next;
	}
	pthread_mutex_unlock(&all->mutex);
	return bytes;
}

/* Give up the rows of a compound, as memory is short; returns their charge */
static size_t
give_way(compound *c, uint64_t now)
{
	leftover	rows;

	drop_sources(c);
	__atomic_store_n(&c->stop, 1, __ATOMIC_RELAXED);
	c->not_before = now + RETRY_NS;
	if (c->view == NULL)
		return 0;
	rows = take_rows(c);
	/* the thread has freed what was here before it has made these */
	c->dropped = rows.view;
	return rows.charged;
}

size_t
gpuvec_compounds_give_way(gpuvec_store *store, const gpuvec_device *device)
{
	gpuvec_compounds *all = store->compounds;
	uint64_t	now = gpuvec_clock_ns();
	size_t		bytes = 0;

	if (all == NULL)
		return 0;
	pthread_mutex_lock(&all->mutex);
	for (compound *c = all->list; c; c = c->next)
		if (c->device == device)
			bytes += give_way(c, now);
	if (bytes > 0)
		pthread_cond_signal(&all->work);
	pthread_mutex_unlock(&all->mutex);
	return bytes;
}
