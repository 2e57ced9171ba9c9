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
 * makes a compound: a copy of their rows in segments of full size.  If a
 * partition has numbers for its ids, the compound has numbers of its own.
 *
 * What makes it right:
 *
 *	- A view never changes, and each has a number of its own.  A compound
 *	  knows the number of the view that it has the rows of.  It takes the
 *	  place of a partition's segments only where that view would be searched.
 *	- A row has the tid under which it ranks in a search of partitions, and
 *	  rows of equal length are in the order of these.
 *
 * A partition that gets another view is left out of the compound: its rows are
 * buried, and its own segments are searched.  Once partitions have kept their
 * views for a while, and there are many rows of such partitions that the
 * compound does not have, it is made anew, but not again and again.
 *
 * Compounds are a luxury.  They are charged to their device, each at most half
 * of what is free, and go before anything else does (store.c).  One that is
 * being made stops then; its charge goes a little later.  A compound also goes
 * when a mirror whose rows it has is dropped, or when nobody uses it.
 *
 * The store's mutex may be held when the mutex of the compounds is taken, but
 * not the other way round.
 *
 *-------------------------------------------------------------------------
 */
#include <stdlib.h>
#include <string.h>

#include "engine/sets/compound_list.h"
#include "engine/sets/sets_mirror.h"

/* Most compounds, and most lists of partitions that may become one */
#define MOST_COMPOUNDS		16

/*
 * A partition's view is expected to stay if CALM_SEARCHES searches have seen
 * it, in CALM_NS nanoseconds or more
 */
#define CALM_SEARCHES		8
#define CALM_NS				GPUVEC_SECOND

/* Fewest segments that a compound saves */
#define FEWEST_SAVED		2

/* A compound with rows does not give way to another list earlier */
#define USED_NS				(60 * GPUVEC_SECOND)

/* Most blocks of all partitions of a compound together */
#define MOST_BLOCKS			UINT32_MAX

static const gpuvec_compound_rows no_rows = {NULL, NULL};

static gpuvec_compound_rows
ref_rows(gpuvec_view *view, gpuvec_id_numbers *numbers)
{
	gpuvec_compound_rows rows = no_rows;

	if (view == NULL)
		return rows;
	rows.view = gpuvec_view_ref(view);
	rows.numbers = gpuvec_id_numbers_ref(numbers);
	return rows;
}

void
gpuvec_compound_rows_unref(const gpuvec_compound_rows *rows)
{
	gpuvec_view_unref(rows->view);
	gpuvec_id_numbers_unref(rows->numbers);
}

/* ---- the list; the caller holds the mutex ---- */

static void
drop_sources(gpuvec_compound *c)
{
	for (uint32_t i = 0; c->sources && i < c->npartitions; i++)
	{
		gpuvec_compound_rows_unref(&c->sources[i]);
		c->partitions[i].coming = false;
	}
	free(c->sources);
	c->sources = NULL;
}

void
gpuvec_compound_free(gpuvec_compound *c)
{
	drop_sources(c);
	gpuvec_compound_rows_unref(&c->rows);
	gpuvec_compound_rows_unref(&c->dropped);
	gpuvec_view_unref(c->joint.view);
	gpuvec_view_unref(c->joint.old);
	free(c);
}

/*
 * Take a compound, and what it was charged, out of the list.  A thread frees
 * it soon, as that takes some time.
 */
static gpuvec_leftover
take_out(gpuvec_compounds *all, gpuvec_compound **link)
{
	gpuvec_compound *c = *link;
	gpuvec_leftover charge = {.device = c->device, .charged = c->charged};

	pthread_mutex_lock(&all->joint_mutex);
	*link = c->next;
	pthread_mutex_unlock(&all->joint_mutex);
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

/* True if a compound has rows, or will have some soon */
static bool
is_made(const gpuvec_compound *c)
{
	return c->rows.view != NULL || c->making;
}

/* True if a should give way before b: it has no rows, or was used earlier */
static bool
goes_before(const gpuvec_compound *a, const gpuvec_compound *b)
{
	if (is_made(a) != is_made(b))
		return is_made(b);
	return a->last_use < b->last_use;
}

/*
 * Make room for one more in the list; false: all are in use.  *gone is what
 * the one took that has given way.
 */
static bool
make_place(gpuvec_compounds *all, uint64_t now, gpuvec_leftover *gone)
{
	gpuvec_compound **first = NULL;
	uint32_t	n = 0;

	for (gpuvec_compound **link = &all->list; *link; link = &(*link)->next, n++)
		if (first == NULL || goes_before(*link, *first))
			first = link;
	if (n < MOST_COMPOUNDS)
		return true;
	if (is_made(*first) && now - (*first)->last_use < USED_NS)
		return false;
	*gone = take_out(all, first);
	return true;
}

static gpuvec_compound *
new_compound(gpuvec_device *device, const gpuvec_compound_partition *partitions, uint32_t n)
{
	gpuvec_compound *c = calloc(1, sizeof(*c) + n * sizeof(gpuvec_partition_copy));

	if (c == NULL)
		return NULL;
	c->device = device;
	c->npartitions = n;
	for (uint32_t i = 0; i < n; i++)
		c->partitions[i].key = *partitions[i].key;
	return c;
}

/* Find the compound of these partitions, or add one; NULL: there is no room */
static gpuvec_compound *
find_compound(gpuvec_compounds *all, gpuvec_device *device, const gpuvec_compound_partition *partitions,
			  uint32_t n, uint64_t now, gpuvec_leftover *gone)
{
	gpuvec_compound *c = gpuvec_compound_listed(all, device, partitions, n);

	if (c)
		return c;
	if (!make_place(all, now, gone))
		return NULL;
	c = new_compound(device, partitions, n);
	if (c)
	{
		pthread_mutex_lock(&all->joint_mutex);
		c->next = all->list;
		all->list = c;
		pthread_mutex_unlock(&all->joint_mutex);
	}
	return c;
}

gpuvec_leftover
gpuvec_compound_take_rows(gpuvec_compounds *all, gpuvec_compound *c)
{
	gpuvec_leftover gone = {c->rows, gpuvec_joint_take(all, c), c->device, c->charged};

	c->rows = no_rows;
	c->charged = 0;
	for (uint32_t i = 0; i < c->npartitions; i++)
		c->partitions[i].copied = 0;
	return gone;
}

void
gpuvec_compound_free_leftover(gpuvec_store *store, const gpuvec_leftover *gone)
{
	if (gone->charged > 0)
		gpuvec_store_repay(store, gone->device, gone->charged);
	gpuvec_view_unref(gone->joint);
	gpuvec_compound_rows_unref(&gone->rows);
}

/* ---- partitions that change ---- */

/* Bury the rows of a partition in an entry */
static bool
bury_partition(gpuvec_view_entry *entry, uint32_t number, gpuvec_error *error)
{
	const gpuvec_segment *segment = entry->segment;
	uint64_t	end = gpuvec_partition_tid((uint64_t) number + 1);

	for (uint32_t i = gpuvec_segment_find(segment, gpuvec_partition_tid(number)); i < segment->nrows; i++)
	{
		uint32_t	row = segment->by_tid[i];

		if (segment->tid[row] >= end)
			break;
		if (gpuvec_entry_live(entry, row) && !gpuvec_entry_bury(entry, row, error))
			return false;
	}
	return true;
}

/*
 * True if a partition has another view than the one whose rows are copied, or
 * is not searched any more: its mirror is always behind, and searched by
 * itself
 */
static bool
has_changed(const gpuvec_partition_copy *copy, const gpuvec_compound_partition *partition)
{
	if (partition->view == NULL)
		return copy->copied != 0 && copy->missed >= CALM_SEARCHES;
	return copy->copied != 0 && copy->copied != partition->view->number;
}

/* The view without rows of partitions that have changed; NULL: no memory */
static gpuvec_view *
view_without(const gpuvec_compound *c, const gpuvec_compound_partition *partitions, gpuvec_thread_pool *pool)
{
	gpuvec_draft draft = {.backend = c->device->backend, .pool = pool};
	gpuvec_view *view = NULL;
	gpuvec_error error;
	bool		ok = gpuvec_draft_copy(&draft, c->rows.view, &error);

	for (uint32_t i = 0; i < c->npartitions; i++)
		for (uint32_t j = 0; ok && has_changed(&c->partitions[i], &partitions[i]) && j < draft.n; j++)
			ok = bury_partition(&draft.entries[j], i, &error);
	if (ok)
	{
		gpuvec_draft_drop_dead(&draft);
		view = gpuvec_draft_finish(&draft, &error);
	}
	gpuvec_draft_free(&draft);
	return view;
}

/*
 * Leave out partitions that have other views now.  Returns what is not needed
 * any more: the old view, or all rows, if most are gone or there is no memory.
 */
static gpuvec_leftover
leave_out(gpuvec_compounds *all, gpuvec_compound *c, const gpuvec_compound_partition *partitions)
{
	gpuvec_leftover old = {.charged = 0};
	gpuvec_leftover all_rows;
	bool		changed = false;

	for (uint32_t i = 0; i < c->npartitions; i++)
		changed |= has_changed(&c->partitions[i], &partitions[i]);
	if (!changed)
		return old;
	old.rows.view = c->rows.view;
	old.joint = gpuvec_joint_take(all, c);
	c->rows.view = view_without(c, partitions, all->pool);
	for (uint32_t i = 0; i < c->npartitions; i++)
		if (has_changed(&c->partitions[i], &partitions[i]))
			c->partitions[i].copied = 0;
	if (c->rows.view && c->rows.view->nrows >= c->nrows / 2)
		return old;
	all_rows = gpuvec_compound_take_rows(all, c);
	/* what is left shares the segments of the old view */
	gpuvec_view_unref(all_rows.rows.view);
	all_rows.rows.view = old.rows.view;
	all_rows.joint = old.joint;
	return all_rows;
}

/*
 * True if the compound has rows of a partition that is not searched now, or
 * whose view is an older one: a search that has begun earlier
 */
static bool
lacks_partition(const gpuvec_compound *c, const gpuvec_compound_partition *partitions)
{
	for (uint32_t i = 0; i < c->npartitions; i++)
	{
		const gpuvec_partition_copy *copy = &c->partitions[i];

		if (copy->copied == 0)
			continue;
		if (partitions[i].view ? partitions[i].view->number < copy->copied : !has_changed(copy, &partitions[i]))
			return true;
	}
	return false;
}

/* Take the rows that a search may have */
static gpuvec_compound_rows
use(gpuvec_compounds *all, gpuvec_compound *c, const gpuvec_compound_partition *partitions, bool *covered,
	gpuvec_leftover *gone)
{
	if (c->rows.view == NULL || lacks_partition(c, partitions))
		return no_rows;
	*gone = leave_out(all, c, partitions);
	for (uint32_t i = 0; c->rows.view && i < c->npartitions; i++)
		covered[i] = c->partitions[i].copied != 0;
	return ref_rows(c->rows.view, c->rows.numbers);
}

/* ---- which partitions are worth it ---- */

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

/* Note a view that a partition had not before */
static void
note_view(gpuvec_partition_copy *p, const gpuvec_view *view, uint64_t now)
{
	p->seen = view->number;
	p->since = now;
	p->searches = 0;
	/* larger ones fill segments of their own */
	p->small = view->nrows > 0 && view->nrows < gpuvec_full_segment() / 2;
	p->entries = view->nentries;
	p->rows = view->nrows;
	p->blocks = p->small ? gpuvec_compound_blocks(view) : 0;
}

/* Note which views a search reads */
static void
note_views(gpuvec_compound *c, const gpuvec_compound_partition *partitions, uint64_t now)
{
	for (uint32_t i = 0; i < c->npartitions; i++)
	{
		if (partitions[i].view == NULL)
		{
			if (c->partitions[i].missed < UINT32_MAX)
				c->partitions[i].missed++;
			continue;
		}
		c->partitions[i].missed = 0;
		if (c->partitions[i].seen != partitions[i].view->number)
			note_view(&c->partitions[i], partitions[i].view, now);
		if (c->partitions[i].searches < UINT32_MAX)
			c->partitions[i].searches++;
	}
	c->last_use = now;
}

/* What a compound would have */
typedef struct compound_gain
{
	uint64_t	rows;
	uint64_t	copied;			/* rows that it has already */
	uint64_t	entries;		/* segments that it would save */
	uint64_t	blocks;			/* of all partitions */
	uint64_t	most_blocks;	/* of one partition */
} compound_gain;

/* True if a partition would be in a compound */
static bool
is_ripe(const gpuvec_partition_copy *p, const compound_terms *when, uint64_t now)
{
	return p->small && p->searches >= when->searches && now - p->since >= when->ns;
}

/* True if a compound would have this partition's view */
static bool
would_have(const gpuvec_partition_copy *p, const gpuvec_view *view, const compound_terms *when, uint64_t now)
{
	return view != NULL && view->number == p->seen && is_ripe(p, when, now);
}

/* Is a compound of these worth it, and has it a quarter of new rows? */
static bool
is_worth_it(const gpuvec_compound *c, const compound_terms *when, const gpuvec_compound_partition *partitions,
			int threads, uint64_t now)
{
	compound_gain g = {0};

	for (uint32_t i = 0; i < c->npartitions; i++)
	{
		const gpuvec_partition_copy *p = &c->partitions[i];

		if (!would_have(p, partitions[i].view, when, now))
			continue;
		g.rows += p->rows;
		g.entries += p->entries;
		g.blocks += p->blocks;
		if (p->blocks > g.most_blocks)
			g.most_blocks = p->blocks;
		if (p->copied == p->seen)
			g.copied += p->rows;
	}
	return g.rows > 0 && g.blocks <= MOST_BLOCKS &&
		g.most_blocks <= UINT64_C(1) << (32 - gpuvec_compound_bits(c)) && g.copied <= g.rows / 4 * 3 &&
		g.entries >= when->saved + gpuvec_segments_needed(c->device->backend, g.rows, threads);
}

/* Have a compound made, if that is worth it */
static void
want(gpuvec_compounds *all, gpuvec_compound *c, const gpuvec_compound_partition *partitions, int threads, uint64_t now)
{
	compound_terms when = usual_terms();

	if (c->sources || c->making || now < c->not_before || !is_worth_it(c, &when, partitions, threads, now))
		return;
	c->sources = calloc(c->npartitions, sizeof(*c->sources));
	for (uint32_t i = 0; c->sources && i < c->npartitions; i++)
	{
		if (!would_have(&c->partitions[i], partitions[i].view, &when, now))
			continue;
		c->sources[i] = ref_rows(partitions[i].view, partitions[i].numbers);
		c->partitions[i].coming = true;
	}
	pthread_cond_signal(&all->work);
}

/* ---- for searches and the store ---- */

gpuvec_compound_rows
gpuvec_compound_find(gpuvec_store *store, gpuvec_device *device, const gpuvec_compound_partition *partitions,
					 uint32_t n, bool *covered, gpuvec_view **joint)
{
	gpuvec_compounds *all = store->compounds;
	int			threads = gpuvec_thread_pool_threads(store->pool);
	gpuvec_compound_rows rows = no_rows;
	gpuvec_leftover gone[2] = {{.charged = 0}, {.charged = 0}};
	uint64_t	now;
	gpuvec_compound *c;

	*joint = NULL;
	pthread_mutex_lock(&all->mutex);
	now = gpuvec_clock_ns();
	c = find_compound(all, device, partitions, n, now, &gone[0]);
	if (c)
	{
		note_views(c, partitions, now);
		want(all, c, partitions, threads, now);
		rows = use(all, c, partitions, covered, &gone[1]);
		*joint = gpuvec_joint_get(all, c, partitions, covered, rows.view);
	}
	pthread_mutex_unlock(&all->mutex);
	gpuvec_compound_free_leftover(store, &gone[0]);
	gpuvec_compound_free_leftover(store, &gone[1]);
	return rows;
}

/* True if rows of a mirror are in a compound, or are being put there */
static bool
has_rows_of(const gpuvec_compound *c, const gpuvec_mirror_key *key)
{
	for (uint32_t i = 0; i < c->npartitions; i++)
		if (c->partitions[i].key.relation == key->relation &&
			memcmp(&c->partitions[i].key, key, sizeof(*key)) == 0)
			return c->partitions[i].copied != 0 || c->partitions[i].coming;
	return false;
}

size_t
gpuvec_compounds_drop(gpuvec_store *store, const gpuvec_device *device, const gpuvec_mirror *mirror)
{
	gpuvec_compounds *all = store->compounds;
	gpuvec_view *view = ((const gpuvec_sets_mirror *) mirror)->view;
	size_t		bytes = 0;
	gpuvec_compound **link;

	if (view)
		gpuvec_joints_forget(store, view);
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
give_way(gpuvec_compounds *all, gpuvec_compound *c, uint64_t now)
{
	gpuvec_leftover rows;

	drop_sources(c);
	__atomic_store_n(&c->stop, 1, __ATOMIC_RELAXED);
	if (c->not_before < now + GPUVEC_COMPOUND_RETRY)
		c->not_before = now + GPUVEC_COMPOUND_RETRY;
	if (c->rows.view == NULL)
		return 0;
	rows = gpuvec_compound_take_rows(all, c);
	/* the thread has freed what was here before it has made these */
	c->dropped = rows.rows;
	gpuvec_joint_leave(all, c, rows.joint);
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
	for (gpuvec_compound *c = all->list; c; c = c->next)
		if (c->device == device)
			bytes += give_way(all, c, now);
	if (bytes > 0)
		pthread_cond_signal(&all->work);
	pthread_mutex_unlock(&all->mutex);
	return bytes;
}
