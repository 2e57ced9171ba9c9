/*-------------------------------------------------------------------------
 *
 * shards_copies.c
 *	  Copies of small tables on all devices.
 *
 * A table that has copies is searched by the device that has least to do, so
 * that many sessions use all devices.  A table gets copies if one takes no
 * more than shards_backend.copy_bytes, or if its owner wants that.
 *
 * A copy is a view of all rows on one device.  It is made of an adopted view,
 * before anybody can search that: so whoever finds a view finds rows as new as
 * it is on every device.  Segments and live maps keep their copies, so that of
 * a view that differs little from the one before only few are made.
 *
 * Copies give way to all else: a device takes them only as long as it has
 * room, and the store takes them away before it evicts or refuses anything.
 * Without them, a view is searched by its shards.
 *
 *-------------------------------------------------------------------------
 */
#include <stdlib.h>

#include "engine/shards/shards.h"

/* What shards_copies.kind is */
typedef enum copy_kind
{
	COPY_SEGMENT,
	COPY_LIVEMAP,
	COPY_VIEW
} copy_kind;

static void
free_copy(int kind, void *copy)
{
	if (kind == COPY_SEGMENT)
		gpuvec_segment_unref(copy);
	else if (kind == COPY_LIVEMAP)
		gpuvec_livemap_unref(copy);
	else
		gpuvec_view_unref(copy);
}

void
shards_free_copies(struct shards_copies *copies)
{
	while (copies)
	{
		struct shards_copies *next = copies->next;

		for (int i = 0; i < copies->n; i++)
			free_copy(copies->kind, copies->of[i]);
		free(copies);
		copies = next;
	}
}

/* ---- copies of segments, live maps and views ---- */

/* The copy on a device; the caller holds the mutex */
static inline void *
get(const struct shards_copies *copies, int child)
{
	return copies ? copies->of[child] : NULL;
}

/*
 * Keep a copy, which *slot takes over.  If another thread was faster, or there
 * is no memory, it is freed, and *slot stays as it is.
 */
static void
keep(shards_backend *shards, struct shards_copies **slot, copy_kind kind, int child, void *copy)
{
	struct shards_copies *fresh = calloc(1, sizeof(*fresh) + (size_t) shards->n * sizeof(void *));

	pthread_mutex_lock(&shards->mutex);
	if (*slot == NULL && fresh)
	{
		fresh->kind = kind;
		fresh->n = shards->n;
		*slot = fresh;
		fresh = NULL;
	}
	if (*slot && (*slot)->of[child] == NULL)
	{
		(*slot)->of[child] = copy;
		copy = NULL;
	}
	pthread_mutex_unlock(&shards->mutex);
	free(fresh);
	free_copy(kind, copy);
}

/* A segment on this device, with a reference: itself, or its copy; or NULL */
static gpuvec_segment *
find_segment(shards_backend *shards, gpuvec_segment *segment, int child)
{
	gpuvec_segment *found;

	pthread_mutex_lock(&shards->mutex);
	found = segment->child == child ? segment : get(segment->copies, child);
	if (found)
		gpuvec_segment_ref(found);
	pthread_mutex_unlock(&shards->mutex);
	return found;
}

static gpuvec_livemap *
find_livemap(shards_backend *shards, gpuvec_livemap *map, int child)
{
	gpuvec_livemap *found;

	pthread_mutex_lock(&shards->mutex);
	found = gpuvec_livemap_ref(map->child == child ? map : get(map->copies, child));
	pthread_mutex_unlock(&shards->mutex);
	return found;
}

/* The same; what is missing is made.  NULL: the device has no memory. */
static gpuvec_segment *
copy_segment(shards_backend *shards, gpuvec_segment *segment, int child)
{
	gpuvec_segment *copy = find_segment(shards, segment, child);
	gpuvec_error error;

	if (copy)
		return copy;
	copy = gpuvec_segment_copy(segment, &error);
	if (copy == NULL)
		return NULL;
	if (!shards_adopt_copy(shards, child, copy, &error))
	{
		gpuvec_segment_unref(copy);
		return NULL;
	}
	keep(shards, &segment->copies, COPY_SEGMENT, child, gpuvec_segment_ref(copy));
	return copy;
}

static gpuvec_livemap *
copy_livemap(shards_backend *shards, gpuvec_livemap *map, int child)
{
	gpuvec_backend *backend = shards->children[child].backend;
	gpuvec_livemap *copy = find_livemap(shards, map, child);
	gpuvec_error error;

	if (copy)
		return copy;
	copy = gpuvec_livemap_copy(map, &error);
	if (copy == NULL)
		return NULL;
	copy->child = child;
	if (!backend->adopt_livemaps(backend, &copy, 1, &error))
	{
		gpuvec_livemap_unref(copy);
		return NULL;
	}
	copy->backend = &shards->base;
	keep(shards, &map->copies, COPY_LIVEMAP, child, gpuvec_livemap_ref(copy));
	return copy;
}

bool
shards_copy_entry(shards_backend *shards, const gpuvec_view_entry *from, int child,
				  gpuvec_view_entry *to)
{
	to->partition = from->partition;
	to->live = NULL;
	to->segment = copy_segment(shards, from->segment, child);
	if (to->segment && from->live)
		to->live = copy_livemap(shards, from->live, child);
	if (to->segment && (to->live || from->live == NULL))
		return true;
	gpuvec_segment_unref(to->segment);
	return false;
}

/* A view of the same rows on this device; NULL: it has no memory for it */
static gpuvec_view *
copy_to(shards_backend *shards, const gpuvec_view *view, int child)
{
	gpuvec_backend *backend = shards->children[child].backend;
	gpuvec_view_entry *entries = calloc(view->nentries + 1, sizeof(*entries));
	gpuvec_view *copy = NULL;
	uint32_t	n = 0;
	gpuvec_error error;

	while (entries && n < view->nentries &&
		   shards_copy_entry(shards, &view->entries[n], child, &entries[n]))
		n++;
	if (entries && n == view->nentries)
		copy = gpuvec_view_new(entries, n, &error);
	while (copy == NULL && n-- > 0)
	{
		gpuvec_segment_unref(entries[n].segment);
		gpuvec_livemap_unref(entries[n].live);
	}
	free(entries);
	if (copy == NULL || backend->adopt_view(backend, copy, &error))
		return copy;
	gpuvec_view_unref(copy);
	return NULL;
}

/* ---- copies of a view on all devices ---- */

/* A view that gets copies */
typedef struct copy_task
{
	shards_backend *shards;
	const gpuvec_view *view;
	gpuvec_view *made[GPUVEC_MAX_DEVICES];
} copy_task;

/* Copy a view to a device; called by a thread of the pool */
static void
copy_shard(void *arg, uint64_t child, int thread)
{
	copy_task  *task = arg;

	(void) thread;
	task->made[child] = shards_copy_on(task->shards, task->view, (int) child);
	if (task->made[child] == NULL)
		task->made[child] = copy_to(task->shards, task->view, (int) child);
}

bool
shards_has_copies(gpuvec_backend *backend, const gpuvec_view *view)
{
	shards_backend *shards = (shards_backend *) backend;
	bool		has;

	pthread_mutex_lock(&shards->mutex);
	has = ((const shards_view *) view->device)->copies != NULL;
	pthread_mutex_unlock(&shards->mutex);
	return has;
}

/* Free what an object keeps for a device */
static void
forget(shards_backend *shards, struct shards_copies *const *slot, int child)
{
	void	   *copy;
	int			kind = 0;

	pthread_mutex_lock(&shards->mutex);
	copy = get(*slot, child);
	if (copy)
	{
		kind = (*slot)->kind;
		(*slot)->of[child] = NULL;
	}
	pthread_mutex_unlock(&shards->mutex);
	if (copy)
		free_copy(kind, copy);
}

/* Free what was copied to a device that has no memory for all of it */
static void
forget_child(shards_backend *shards, const gpuvec_view *view, int child)
{
	for (uint32_t i = 0; i < view->nentries; i++)
	{
		forget(shards, &view->entries[i].segment->copies, child);
		if (view->entries[i].live)
			forget(shards, &view->entries[i].live->copies, child);
	}
}

void
shards_copy(gpuvec_backend *backend, gpuvec_view *view)
{
	shards_backend *shards = (shards_backend *) backend;
	shards_view *divided = view->device;
	copy_task	task = {.shards = shards, .view = view};
	int			n = 0;

	gpuvec_thread_pool_run(shards->copy_pool, copy_shard, &task, (uint64_t) shards->ndevices);
	for (int i = 0; i < shards->ndevices; i++)
		n += task.made[i] != NULL;
	for (int i = 0; i < shards->ndevices; i++)
	{
		if (n > 1 && task.made[i])
			keep(shards, &divided->copies, COPY_VIEW, i, task.made[i]);
		else
		{
			gpuvec_view_unref(task.made[i]);
			forget_child(shards, view, i);
		}
	}
}

gpuvec_view *
shards_copy_on(shards_backend *shards, const gpuvec_view *view, int child)
{
	const shards_view *divided = view->device;
	gpuvec_view *found;

	pthread_mutex_lock(&shards->mutex);
	found = get(divided->copies, child);
	if (found == NULL && divided->n == 1 && divided->shard[0].child == child)
		found = divided->shard[0].view;
	if (found)
		gpuvec_view_ref(found);
	pthread_mutex_unlock(&shards->mutex);
	return found;
}

uint64_t
shards_replicas(gpuvec_backend *backend, const gpuvec_view *view, uint32_t nqueries)
{
	shards_backend *shards = (shards_backend *) backend;
	const shards_view *divided = view->device;
	uint64_t	replicas = 0;

	pthread_mutex_lock(&shards->mutex);
	if (divided->n == 1)
		replicas |= UINT64_C(1) << divided->shard[0].child;
	for (int i = 0; i < shards->ndevices; i++)
		if (get(divided->copies, i))
			replicas |= UINT64_C(1) << i;
	pthread_mutex_unlock(&shards->mutex);
	/* bits beyond the lowest one: there are several */
	return nqueries >= 2 * SPLIT_QUERIES && (replicas & (replicas - 1)) != 0 ? 0 : replicas;
}

/* ---- memory ---- */

static size_t
map_bytes(const gpuvec_livemap *map)
{
	return sizeof(*map) + map->nwords * sizeof(uint32_t);
}

/*
 * Bytes of an entry's copy on a device: in the view's copy there, or else what
 * the entry keeps for later ones
 */
static size_t
entry_bytes(const gpuvec_view *view, uint32_t number, const gpuvec_view *copy, int child)
{
	const gpuvec_view_entry *entry = &view->entries[number];
	const gpuvec_segment *segment = copy ? copy->entries[number].segment :
		get(entry->segment->copies, child);
	const gpuvec_livemap *map = copy ? copy->entries[number].live :
		entry->live ? get(entry->live->copies, child) : NULL;
	size_t		bytes = 0;

	if (segment && segment != entry->segment)
		bytes += gpuvec_segment_charge(segment);
	if (map && map != entry->live)
		bytes += map_bytes(map);
	return bytes;
}

size_t
shards_copies_bytes(gpuvec_backend *backend, const gpuvec_view *view, size_t *each)
{
	shards_backend *shards = (shards_backend *) backend;
	size_t		sum = 0;

	pthread_mutex_lock(&shards->mutex);
	for (int child = 0; child < shards->n; child++)
	{
		const gpuvec_view *copy = get(((const shards_view *) view->device)->copies, child);
		size_t		bytes = 0;

		for (uint32_t i = 0; i < view->nentries; i++)
			bytes += entry_bytes(view, i, copy, child);
		sum += bytes;
		if (each)
			each[child] += bytes;
	}
	pthread_mutex_unlock(&shards->mutex);
	return sum;
}

bool
shards_wanted(gpuvec_backend *backend, const gpuvec_view *view, gpuvec_placement placement,
			  size_t *bytes)
{
	shards_backend *shards = (shards_backend *) backend;
	size_t		once = 0;
	size_t		there = shards_copies_bytes(backend, view, NULL);

	*bytes = 0;
	if (placement == GPUVEC_PLACE_SPREAD || view->nentries == 0)
		return false;
	for (uint32_t i = 0; i < view->nentries; i++)
	{
		const gpuvec_view_entry *entry = &view->entries[i];

		/* the devices have no room for the table itself */
		if (entry->segment->child >= shards->ndevices)
			return false;
		once += gpuvec_segment_charge(entry->segment) + (entry->live ? map_bytes(entry->live) : 0);
	}
	if (placement == GPUVEC_PLACE_AUTO && once > shards->copy_bytes)
		return false;
	once *= (size_t) shards->ndevices - 1;
	*bytes = once > there ? once - there : 0;
	return true;
}

/* Put the copies of one object on a list; the caller holds the mutex */
static struct shards_copies *
move(struct shards_copies **slot, struct shards_copies *list)
{
	struct shards_copies *copies = *slot;

	if (copies == NULL)
		return list;
	*slot = NULL;
	copies->next = list;
	return copies;
}

struct shards_copies *
shards_take_copies(gpuvec_backend *backend, gpuvec_view *view, struct shards_copies *more)
{
	shards_backend *shards = (shards_backend *) backend;

	pthread_mutex_lock(&shards->mutex);
	more = move(&((shards_view *) view->device)->copies, more);
	for (uint32_t i = 0; i < view->nentries; i++)
	{
		more = move(&view->entries[i].segment->copies, more);
		if (view->entries[i].live)
			more = move(&view->entries[i].live->copies, more);
	}
	pthread_mutex_unlock(&shards->mutex);
	return more;
}
