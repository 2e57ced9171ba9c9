/*-------------------------------------------------------------------------
 *
 * update.c
 *	  Loading and refreshing a mirror.
 *
 * Pages arrive in ascending order, in frames that are kept as they are: rows
 * stay in them until segments are built.
 *
 * A load sorts all rows by (length, tid), cuts them into segments, and publishes
 * them.  A refresh publishes a new view of the same segments: rows of pages that
 * were read again, or that are gone, lose their bit in a copy of their segment's
 * live map, and the rows that came go to a new small segment.  A row that came
 * back as it was (VACUUM, hint bits and the like change a page's LSN, but no row)
 * keeps its place.  Small segments are merged as in a log-structured tree: a new
 * one swallows its neighbour while that is at most twice as large, so each row is
 * moved O(log n) times.  When dead rows or small segments get many, all rows are
 * sorted anew.
 *
 * Everything that takes time happens outside the store's mutex.  Only the updater
 * changes a mirror's view and pages, so what it reads of them stays as it is
 * until it publishes.
 *
 *-------------------------------------------------------------------------
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/fault.h"
#include "engine/store.h"

/* uint16_t ids in a chunk of a tile */
#define CHUNK_VALUES	((size_t) GPUVEC_TILE_ROWS * GPUVEC_CHUNK_IDS)

/* All rows are sorted anew when more than 3 of 10 are dead ... */
#define REBUILD_DEAD(dead, all)	((dead) * 10 > (all) * 3)
/* ... or when there are this many segments more than needed */
#define REBUILD_SEGMENTS	48

/* Blocks looked up by binary search cost about as much as this many rows passed */
#define FIND_ROWS		64

/* Bytes of a row in a segment, over its ids, for the early memory check */
#define ROW_OVERHEAD	14

/* A page that was sent: its rows are rows[first .. first + n - 1] */
typedef struct sent_page
{
	uint32_t	block;
	uint32_t	n;
	uint64_t	first;
	uint64_t	lsn;
} sent_page;

struct gpuvec_update
{
	gpuvec_store *store;
	gpuvec_mirror *mirror;		/* with a reference */
	bool		load;

	char	  **frames;
	size_t		nframes;
	size_t		room_frames;
	gpuvec_source_row *rows;
	uint64_t	nrows;
	uint64_t	room_rows;
	sent_page  *pages;
	uint64_t	npages;
	uint64_t	room_pages;
	uint64_t	nids;
};

/* A view that is being made */
typedef struct draft
{
	gpuvec_view_entry *entries;
	uint32_t	n;
	uint32_t	room;
} draft;

/* Grow an array of `size`-byte items to hold one more than n */
static bool
reserve(void **array, uint64_t n, uint64_t *room, size_t size, gpuvec_error *error)
{
	uint64_t	more;
	void	   *bigger;

	if (n < *room)
		return true;
	more = *room ? *room * 2 : 64;
	if (more > SIZE_MAX / size)
		return gpuvec_fail_memory(error, SIZE_MAX);
	bigger = realloc(*array, more * size);
	if (bigger == NULL)
		return gpuvec_fail_memory(error, more * size);
	*array = bigger;
	*room = more;
	return true;
}

/* Forget what was sent */
static void
free_sent(gpuvec_update *update)
{
	for (size_t i = 0; i < update->nframes; i++)
		free(update->frames[i]);
	free(update->frames);
	free(update->rows);
	free(update->pages);
	update->frames = NULL;
	update->rows = NULL;
	update->pages = NULL;
	update->nframes = 0;
}

/* End an update: the mirror is free for others; an unfinished load leaves nothing */
static void
end_update(gpuvec_update *update)
{
	gpuvec_store *store = update->store;
	gpuvec_mirror *mirror = update->mirror;

	pthread_mutex_lock(&store->mutex);
	mirror->updater = NULL;
	if (mirror->view == NULL)
		gpuvec_store_unlist(store, mirror);
	pthread_mutex_unlock(&store->mutex);
	gpuvec_store_release(store, mirror);
	free_sent(update);
	free(update);
}

void
gpuvec_update_abort(gpuvec_update *update)
{
	if (update)
		end_update(update);
}

/* The place with the most free memory */
static gpuvec_place *
roomiest_place(gpuvec_store *store)
{
	gpuvec_place *best = &store->places[0];

	for (int i = 1; i < store->nplaces; i++)
	{
		gpuvec_place *place = &store->places[i];

		if ((int64_t) (place->budget - place->used) > (int64_t) (best->budget - best->used))
			best = place;
	}
	return best;
}

/* Make an empty mirror; the caller holds the mutex */
static gpuvec_mirror *
make_mirror(gpuvec_store *store, const gpuvec_mirror_key *key, const void *session)
{
	gpuvec_mirror *mirror = calloc(1, sizeof(*mirror));

	if (mirror == NULL)
		return NULL;
	mirror->refs = 1;			/* the list's */
	mirror->listed = true;
	mirror->key = *key;
	mirror->owner = key->private_id != 0 ? session : NULL;
	mirror->place = roomiest_place(store);
	mirror->next = store->mirrors;
	store->mirrors = mirror;
	return mirror;
}

/*
 * Become the updater of a mirror, which a load makes if it is absent.  NULL if
 * there is none, or (with an error) if it has an updater.  The caller holds the
 * mutex: finding and making are one step, so no key has two mirrors.
 */
static gpuvec_mirror *
claim_mirror(gpuvec_store *store, const gpuvec_mirror_key *key, const gpuvec_load *load,
			 const void *session, gpuvec_error *error)
{
	gpuvec_mirror *mirror = gpuvec_store_lookup(store, key, session);

	if (mirror == NULL)
	{
		if (load == NULL)
			return NULL;
		mirror = make_mirror(store, key, session);
		if (mirror == NULL)
		{
			gpuvec_fail_memory(error, sizeof(*mirror));
			return NULL;
		}
	}
	else if (mirror->updater != NULL)
	{
		gpuvec_fail(error, GPUVEC_OBJECT_IN_USE, NULL, NULL,
					"the mirror is being changed by another session");
		return NULL;
	}
	mirror->refs++;
	mirror->updater = session;
	mirror->loading = load != NULL;
	mirror->pages_done = 0;
	mirror->pages_total = load ? load->nblocks : mirror->nblocks;
	mirror->last_use = gpuvec_now();
	return mirror;
}

gpuvec_update *
gpuvec_update_begin(gpuvec_store *store, const gpuvec_mirror_key *key, const gpuvec_load *load,
					const void *session, gpuvec_error *error)
{
	gpuvec_update *update = calloc(1, sizeof(*update));
	gpuvec_mirror *mirror;

	memset(error, 0, sizeof(*error));
	if (update == NULL)
	{
		gpuvec_fail_memory(error, sizeof(*update));
		return NULL;
	}
	pthread_mutex_lock(&store->mutex);
	mirror = claim_mirror(store, key, load, session, error);
	pthread_mutex_unlock(&store->mutex);
	if (mirror == NULL)
	{
		free(update);
		return NULL;
	}
	update->store = store;
	update->mirror = mirror;
	update->load = load != NULL;
	return update;
}

uint64_t *
gpuvec_update_lsns(gpuvec_update *update, gpuvec_state *state, gpuvec_error *error)
{
	uint64_t   *lsns;

	gpuvec_store_state(update->store, update->mirror, state);
	lsns = malloc((state->nblocks + (size_t) 1) * sizeof(uint64_t));
	if (lsns == NULL)
	{
		gpuvec_fail_memory(error, state->nblocks * sizeof(uint64_t));
		return NULL;
	}
	for (uint32_t block = 0; block < state->nblocks; block++)
		lsns[block] = update->mirror->pages[block].lsn;
	return lsns;
}

/* Report pages that are not as the protocol wants them */
static bool
bad_pages(gpuvec_error *error, const char *what)
{
	return gpuvec_fail(error, GPUVEC_PROTOCOL_VIOLATION, what, NULL,
					   "invalid pages in a message to the gpuvec engine");
}

/* Are ids ascending and distinct? */
static bool
ids_valid(const uint16_t *ids, uint32_t len)
{
	uint32_t	bad = 0;

	for (uint32_t i = 1; i < len; i++)
		bad |= ids[i - 1] >= ids[i];
	return bad == 0;
}

/* Take one row of a page; returns its size, or 0 if it is bad */
static size_t
take_row(gpuvec_update *update, const gpuvec_page *page, const char *from, const char *end,
		 uint32_t *last_line, gpuvec_error *error)
{
	gpuvec_row	row;
	gpuvec_source_row *mine;

	if ((size_t) (end - from) < sizeof(row))
		return bad_pages(error, "A row is cut off.");
	memcpy(&row, from, sizeof(row));
	if (row.line <= *last_line || row.line > GPUVEC_MAX_LINE)
		return bad_pages(error, "Line pointers are not in order.");
	if (row.len > GPUVEC_MAX_IDS || (size_t) (end - from) < gpuvec_row_bytes(row.len))
		return bad_pages(error, "A row is cut off.");
	if (!ids_valid((const uint16_t *) (from + sizeof(row)), row.len))
		return bad_pages(error, "Ids are not in order.");
	if (!reserve((void **) &update->rows, update->nrows, &update->room_rows,
				 sizeof(gpuvec_source_row), error))
		return 0;
	mine = &update->rows[update->nrows++];
	mine->tid = gpuvec_tid(page->block, row.line);
	mine->len = row.len;
	mine->ids = (const uint16_t *) (from + sizeof(row));
	update->nids += row.len;
	*last_line = row.line;
	return gpuvec_row_bytes(row.len);
}

/* Take one page; returns its size, or 0 if it is bad */
static size_t
take_page(gpuvec_update *update, const char *from, const char *end, gpuvec_error *error)
{
	gpuvec_page page;
	sent_page  *mine;
	uint32_t	last_line = 0;
	const char *row;

	if ((size_t) (end - from) < sizeof(page))
		return bad_pages(error, "A page is cut off.");
	memcpy(&page, from, sizeof(page));
	row = from + sizeof(page);
	if ((size_t) (end - row) < page.bytes || page.bytes % 4 != 0)
		return bad_pages(error, "A page is cut off.");
	if (page.block == UINT32_MAX)
		return bad_pages(error, "A block number is out of range.");
	if (update->npages > 0 && page.block <= update->pages[update->npages - 1].block)
		return bad_pages(error, "Pages are not in order.");
	if (!reserve((void **) &update->pages, update->npages, &update->room_pages,
				 sizeof(sent_page), error))
		return 0;
	mine = &update->pages[update->npages++];
	*mine = (sent_page) {.block = page.block,.n = page.nrows,.first = update->nrows,.lsn = page.lsn};
	end = row + page.bytes;
	for (uint32_t i = 0; i < page.nrows; i++)
	{
		size_t		size = take_row(update, &page, row, end, &last_line, error);

		if (size == 0)
			return 0;
		row += size;
	}
	if (row != end)
		return bad_pages(error, "A page is longer than its rows.");
	return sizeof(page) + page.bytes;
}

/* Would what was sent so far fit at all? */
static bool
check_budget(gpuvec_update *update, gpuvec_error *error)
{
	size_t		budget = update->mirror->place->budget;
	size_t		least = update->nids * sizeof(uint16_t) + update->nrows * ROW_OVERHEAD;

	if (least <= budget)
		return true;
	gpuvec_fail(error, GPUVEC_OUT_OF_MEMORY, NULL,
				"Increase gpuvec.device_memory, or search fewer tables.",
				"the memory of the gpuvec engine is too small for the mirror");
	snprintf(error->detail, sizeof(error->detail),
			 "It needs more than %zu kB; the budget is %zu kB.", least / 1024, budget / 1024);
	return false;
}

bool
gpuvec_update_pages(gpuvec_update *update, char *frame, size_t length, gpuvec_error *error)
{
	const char *at = frame;
	const char *end = frame + length;
	uint64_t	room = update->room_frames;

	if (!reserve((void **) &update->frames, update->nframes, &room, sizeof(char *), error))
	{
		free(frame);
		return false;
	}
	update->room_frames = room;
	update->frames[update->nframes++] = frame;
	while (at < end)
	{
		size_t		size = take_page(update, at, end, error);

		if (size == 0)
			return false;
		at += size;
	}
	pthread_mutex_lock(&update->store->mutex);
	update->mirror->pages_done = (uint32_t) update->npages;
	pthread_mutex_unlock(&update->store->mutex);
	return check_budget(update, error);
}

/* Let go of a draft's entries */
static void
free_draft(draft *d)
{
	for (uint32_t i = 0; i < d->n; i++)
	{
		gpuvec_segment_unref(d->entries[i].segment);
		gpuvec_livemap_unref(d->entries[i].live);
	}
	free(d->entries);
}

/* Add an entry; takes over the references */
static bool
draft_add(draft *d, gpuvec_segment *segment, gpuvec_livemap *live, gpuvec_error *error)
{
	if (d->n == d->room)
	{
		uint32_t	room = d->room ? d->room * 2 : 16;
		gpuvec_view_entry *entries = realloc(d->entries, room * sizeof(*entries));

		if (entries == NULL)
		{
			gpuvec_segment_unref(segment);
			gpuvec_livemap_unref(live);
			return gpuvec_fail_memory(error, room * sizeof(*entries));
		}
		d->entries = entries;
		d->room = room;
	}
	d->entries[d->n++] = (gpuvec_view_entry) {segment, live};
	return true;
}

/* Live rows of an entry */
static uint32_t
live_rows(const gpuvec_view_entry *entry)
{
	return entry->live ? entry->live->nlive : entry->segment->nrows;
}

/* Building the segments of sorted rows, on all threads */
typedef struct build_task
{
	gpuvec_backend *backend;
	const gpuvec_source_row *rows;
	uint64_t	nrows;
	gpuvec_segment **segments;
	pthread_mutex_t mutex;		/* guards error and failed */
	gpuvec_error error;
	int			failed;			/* atomic */
} build_task;

/* Build and adopt one segment; by a thread of the pool */
static void
build_segment(void *arg, uint64_t part, int thread)
{
	build_task *task = arg;
	uint64_t	first = part * GPUVEC_SEGMENT_ROWS;
	uint64_t	n = task->nrows - first;
	gpuvec_segment *segment;
	gpuvec_error error;

	if (__atomic_load_n(&task->failed, __ATOMIC_RELAXED))
		return;
	segment = gpuvec_segment_build(task->rows + first,
								   n > GPUVEC_SEGMENT_ROWS ? GPUVEC_SEGMENT_ROWS : (uint32_t) n, &error);
	if (segment != NULL && task->backend->adopt_segment(task->backend, segment, &error))
	{
		task->segments[part] = segment;
		return;
	}
	gpuvec_segment_unref(segment);
	pthread_mutex_lock(&task->mutex);
	task->error = error;
	__atomic_store_n(&task->failed, 1, __ATOMIC_RELAXED);
	pthread_mutex_unlock(&task->mutex);
}

/* Sort rows and add their segments to a draft */
static bool
build_segments(gpuvec_store *store, gpuvec_backend *backend, gpuvec_source_row *rows,
			   uint64_t nrows, draft *d, gpuvec_error *error)
{
	uint64_t	nsegments = (nrows + GPUVEC_SEGMENT_ROWS - 1) / GPUVEC_SEGMENT_ROWS;
	build_task	task = {.backend = backend,.rows = rows,.nrows = nrows};
	bool		ok = true;

	if (nrows == 0)
		return true;
	if (!gpuvec_rows_sort(rows, nrows, gpuvec_pool_threads(store->pool), error))
		return false;
	task.segments = calloc(nsegments, sizeof(gpuvec_segment *));
	if (task.segments == NULL)
		return gpuvec_fail_memory(error, nsegments * sizeof(gpuvec_segment *));
	pthread_mutex_init(&task.mutex, NULL);
	gpuvec_pool_run(store->pool, build_segment, &task, nsegments);
	if (task.failed)
	{
		*error = task.error;
		ok = false;
	}
	for (uint64_t i = 0; i < nsegments; i++)
	{
		if (!ok)
			gpuvec_segment_unref(task.segments[i]);
		else
			ok = draft_add(d, task.segments[i], NULL, error);
	}
	pthread_mutex_destroy(&task.mutex);
	free(task.segments);
	return ok;
}

/* The sent page of a block, or NULL */
static const sent_page *
find_page(const gpuvec_update *update, uint32_t block)
{
	uint64_t	low = 0;
	uint64_t	high = update->npages;

	while (low < high)
	{
		uint64_t	middle = (low + high) / 2;

		if (update->pages[middle].block < block)
			low = middle + 1;
		else
			high = middle;
	}
	return low < update->npages && update->pages[low].block == block ? &update->pages[low] : NULL;
}

/* The row of a tid that was sent, or NULL */
static gpuvec_source_row *
find_row(const gpuvec_update *update, uint64_t tid)
{
	const sent_page *page = find_page(update, gpuvec_tid_block(tid));
	uint64_t	low;
	uint64_t	high;

	if (page == NULL)
		return NULL;
	low = page->first;
	high = page->first + page->n;
	while (low < high)
	{
		uint64_t	middle = (low + high) / 2;

		if (update->rows[middle].tid < tid)
			low = middle + 1;
		else
			high = middle;
	}
	return low < page->first + page->n && update->rows[low].tid == tid ? &update->rows[low] : NULL;
}

/* Refreshing one entry of a view */
typedef struct entry_refresh
{
	gpuvec_update *update;
	gpuvec_view_entry *entry;
	uint32_t	nblocks;		/* that the relation has now */
	uint16_t   *device_ids;		/* the segment's ids, read back; NULL: not yet */
	bool		compare;		/* look whether rows are as they were */
	gpuvec_error *error;
} entry_refresh;

/* Is the row the same as one that was sent? */
static bool
same_row(entry_refresh *r, uint32_t row, const gpuvec_source_row *sent)
{
	const gpuvec_segment *segment = r->entry->segment;
	const uint16_t *ids = segment->ids ? segment->ids : r->device_ids;
	uint32_t	len = segment->len[row];

	if (ids == NULL || sent->len != len)
		return false;
	ids += segment->tile_chunk[row / GPUVEC_TILE_ROWS] * CHUNK_VALUES +
		row % GPUVEC_TILE_ROWS * GPUVEC_CHUNK_IDS;
	for (uint32_t i = 0; i < len; i += GPUVEC_CHUNK_IDS)
	{
		uint32_t	n = len - i < GPUVEC_CHUNK_IDS ? len - i : GPUVEC_CHUNK_IDS;

		if (memcmp(ids, sent->ids + i, n * sizeof(uint16_t)) != 0)
			return false;
		ids += CHUNK_VALUES;
	}
	return true;
}

/* Bury a row */
static bool
kill_row(entry_refresh *r, uint32_t row)
{
	gpuvec_view_entry *entry = r->entry;

	/* the map is ours to change if we made it: nobody has adopted it yet */
	if (entry->live == NULL || entry->live->backend != NULL)
	{
		gpuvec_livemap *map = entry->live ? gpuvec_livemap_copy(entry->live, r->error) :
			gpuvec_livemap_new(entry->segment->nrows, r->error);

		if (map == NULL)
			return false;
		gpuvec_livemap_unref(entry->live);
		entry->live = map;
	}
	entry->live->bits[row / 32] &= ~(UINT32_C(1) << (row % 32));
	entry->live->nlive--;
	return true;
}

/* Read a segment's ids back from its device */
static bool
read_back(const gpuvec_segment *segment, uint16_t **ids, gpuvec_error *error)
{
	size_t		size = segment->nchunks * CHUNK_VALUES * sizeof(uint16_t);

	*ids = malloc(size > 0 ? size : 1);
	if (*ids == NULL)
		return gpuvec_fail_memory(error, size);
	if (segment->backend->read_ids(segment->backend, segment, *ids, error))
		return true;
	free(*ids);
	*ids = NULL;
	return false;
}

/* Decide about a row that the mirror holds */
static bool
refresh_row(entry_refresh *r, uint32_t row)
{
	const gpuvec_segment *segment = r->entry->segment;
	uint64_t	tid = segment->tid[row];
	uint32_t	block = gpuvec_tid_block(tid);
	gpuvec_source_row *sent;

	if (!gpuvec_entry_live(r->entry, row))
		return true;
	if (block >= r->nblocks)
		return kill_row(r, row);
	if (find_page(r->update, block) == NULL)
		return true;
	sent = find_row(r->update, tid);
	if (sent != NULL && r->compare && segment->ids == NULL && r->device_ids == NULL &&
		!read_back(segment, &r->device_ids, r->error))
		return false;
	if (sent != NULL && same_row(r, row, sent))
	{
		sent->ids = NULL;		/* it need not go anywhere */
		return true;
	}
	return kill_row(r, row);
}

/* Refresh the rows from tid `from` up to (not including) tid `to` */
static bool
refresh_range(entry_refresh *r, uint64_t from, uint64_t to)
{
	const gpuvec_segment *segment = r->entry->segment;

	for (uint32_t i = gpuvec_segment_find(segment, from); i < segment->nrows; i++)
	{
		uint32_t	row = segment->by_tid[i];

		if (segment->tid[row] >= to)
			break;
		if (!refresh_row(r, row))
			return false;
	}
	return true;
}

/* Refresh one entry */
static bool
refresh_entry(entry_refresh *r)
{
	const gpuvec_update *update = r->update;
	const gpuvec_segment *segment = r->entry->segment;
	bool		ok = true;

	if (update->npages * FIND_ROWS > segment->nrows)
		ok = refresh_range(r, 0, UINT64_MAX);
	else
	{
		for (uint64_t i = 0; ok && i < update->npages; i++)
			ok = refresh_range(r, gpuvec_tid(update->pages[i].block, 0),
							   gpuvec_tid((uint64_t) update->pages[i].block + 1, 0));
		ok = ok && refresh_range(r, gpuvec_tid(r->nblocks, 0), UINT64_MAX);
	}
	free(r->device_ids);
	return ok;
}

/* Copy the view's entries, without what the refresh replaces */
static bool
keep_entries(gpuvec_update *update, uint32_t nblocks, draft *d, gpuvec_error *error)
{
	const gpuvec_mirror *mirror = update->mirror;
	const gpuvec_view *view = mirror->view;

	for (uint32_t i = 0; i < view->nentries; i++)
	{
		entry_refresh r = {.update = update,.nblocks = nblocks,.error = error};

		if (!draft_add(d, gpuvec_segment_ref(view->entries[i].segment),
					   gpuvec_livemap_ref(view->entries[i].live), error))
			return false;
		r.entry = &d->entries[d->n - 1];

		/* reading a device's ids back pays when much of the table was read again */
		r.compare = r.entry->segment->ids != NULL || update->npages > mirror->nblocks / 8;
		if (!refresh_entry(&r))
			return false;
		if (live_rows(r.entry) == 0)
		{
			d->n--;
			gpuvec_segment_unref(d->entries[d->n].segment);
			gpuvec_livemap_unref(d->entries[d->n].live);
		}
	}
	return true;
}

/* Rows that were taken out of segments, with their ids in memory of their own */
typedef struct taken_rows
{
	gpuvec_source_row *rows;
	uint64_t	n;
	uint16_t   *ids;
} taken_rows;

/* Take the live rows out of entries [first, d->n) of a draft */
static bool
take_rows(const draft *d, uint32_t first, taken_rows *taken, gpuvec_error *error)
{
	uint64_t	nrows = 0;
	uint64_t	nids = 0;
	uint16_t   *at;

	for (uint32_t i = first; i < d->n; i++)
	{
		nrows += live_rows(&d->entries[i]);
		nids += d->entries[i].segment->nids;
	}
	taken->n = 0;
	taken->rows = malloc((nrows + 1) * sizeof(gpuvec_source_row));
	taken->ids = at = malloc((nids + 1) * sizeof(uint16_t));
	if (taken->rows == NULL || taken->ids == NULL)
		return gpuvec_fail_memory(error, nrows * sizeof(gpuvec_source_row) + nids * sizeof(uint16_t));
	for (uint32_t i = first; i < d->n; i++)
	{
		gpuvec_segment segment = *d->entries[i].segment;
		uint16_t   *read = NULL;

		if (segment.ids == NULL)
		{
			if (!read_back(d->entries[i].segment, &read, error))
				return false;
			segment.ids = read;
		}
		for (uint32_t row = 0; row < segment.nrows; row++)
		{
			if (!gpuvec_entry_live(&d->entries[i], row))
				continue;
			gpuvec_segment_row(&segment, row, at);
			taken->rows[taken->n++] = (gpuvec_source_row) {segment.tid[row], segment.len[row], at};
			at += segment.len[row];
		}
		free(read);
	}
	return true;
}

/* Replace entries [first, d->n) by new segments of the same rows */
static bool
merge_entries(gpuvec_update *update, draft *d, uint32_t first, gpuvec_error *error)
{
	taken_rows	taken = {0};
	draft		merged = {0};
	bool		ok;

	ok = take_rows(d, first, &taken, error) &&
		build_segments(update->store, update->mirror->place->backend, taken.rows, taken.n,
					   &merged, error);
	free(taken.rows);
	free(taken.ids);
	if (ok)
	{
		while (d->n > first)
		{
			d->n--;
			gpuvec_segment_unref(d->entries[d->n].segment);
			gpuvec_livemap_unref(d->entries[d->n].live);
		}
		for (uint32_t i = 0; i < merged.n && ok; i++)
		{
			ok = draft_add(d, merged.entries[i].segment, merged.entries[i].live, error);
			merged.entries[i] = (gpuvec_view_entry) {NULL, NULL};
		}
	}
	free_draft(&merged);
	return ok;
}

/* Keep the number of segments and of dead rows low */
static bool
tidy(gpuvec_update *update, draft *d, gpuvec_error *error)
{
	uint64_t	all = 0;
	uint64_t	live = 0;
	uint64_t	sum = 0;
	uint32_t	first = d->n;

	for (uint32_t i = 0; i < d->n; i++)
	{
		all += d->entries[i].segment->nrows;
		live += live_rows(&d->entries[i]);
	}
	if (REBUILD_DEAD(all - live, all) ||
		d->n > live / GPUVEC_SEGMENT_ROWS + 1 + REBUILD_SEGMENTS)
		return merge_entries(update, d, 0, error);

	/* swallow the neighbour while it is at most twice as large */
	while (first > 0)
	{
		uint32_t	n = live_rows(&d->entries[first - 1]);

		if (first < d->n && (n > 2 * sum || sum + n > GPUVEC_SEGMENT_ROWS))
			break;
		sum += n;
		first--;
	}
	if (d->n - first > 1)
		return merge_entries(update, d, first, error);
	return true;
}

/* Leave out the rows that found their place (ids == NULL) */
static void
drop_placed_rows(gpuvec_update *update)
{
	uint64_t	n = 0;

	for (uint64_t i = 0; i < update->nrows; i++)
		if (update->rows[i].ids != NULL)
			update->rows[n++] = update->rows[i];
	update->nrows = n;
}

/* Hand live maps that are new to the backend, and make the view */
static gpuvec_view *
finish_draft(gpuvec_update *update, draft *d, gpuvec_error *error)
{
	gpuvec_backend *backend = update->mirror->place->backend;
	gpuvec_view *view;

	for (uint32_t i = 0; i < d->n; i++)
	{
		gpuvec_livemap *live = d->entries[i].live;

		if (live && live->backend == NULL && !backend->adopt_livemap(backend, live, error))
			return NULL;
	}
	view = gpuvec_view_new(d->entries, d->n, error);
	if (view == NULL)
		return NULL;
	d->n = 0;					/* the references are the view's now */
	if (!backend->adopt_view(backend, view, error))
	{
		gpuvec_view_unref(view);
		return NULL;
	}
	return view;
}

/* Bytes of a view on host and device */
static void
count_bytes(const gpuvec_view *view, uint32_t nblocks, size_t *host, size_t *device)
{
	*host = sizeof(*view) + view->nentries * sizeof(gpuvec_view_entry) +
		nblocks * sizeof(gpuvec_page_state);
	*device = 0;
	for (uint32_t i = 0; i < view->nentries; i++)
	{
		*host += view->entries[i].segment->host_bytes;
		*device += view->entries[i].segment->device_bytes;
		if (view->entries[i].live)
			*host += sizeof(gpuvec_livemap) + view->entries[i].live->nwords * sizeof(uint32_t);
	}
}

/* The new page table: `refresh` is the number of this update */
static gpuvec_page_state *
make_pages(const gpuvec_update *update, uint32_t nblocks, uint64_t refresh, gpuvec_error *error)
{
	const gpuvec_mirror *mirror = update->mirror;
	gpuvec_page_state *pages = calloc((size_t) nblocks + 1, sizeof(gpuvec_page_state));
	uint32_t	old = update->load ? 0 : mirror->nblocks;

	if (pages == NULL)
	{
		gpuvec_fail_memory(error, nblocks * sizeof(gpuvec_page_state));
		return NULL;
	}
	if (old > nblocks)
		old = nblocks;
	if (old > 0)
		memcpy(pages, mirror->pages, old * sizeof(gpuvec_page_state));
	for (uint64_t i = 0; i < update->npages; i++)
		if (update->pages[i].block < nblocks)
			pages[update->pages[i].block] = (gpuvec_page_state) {update->pages[i].lsn, refresh};
	return pages;
}

/* Every page that the mirror did not know before must have been sent */
static bool
pages_complete(const gpuvec_update *update, uint32_t nblocks)
{
	uint32_t	next = update->load ? 0 : update->mirror->nblocks;

	for (uint64_t i = 0; i < update->npages; i++)
		if (update->pages[i].block == next)
			next++;
	return next >= nblocks;
}

/* Make the new view */
static gpuvec_view *
make_view(gpuvec_update *update, uint32_t nblocks, gpuvec_error *error)
{
	draft		d = {0};
	gpuvec_view *view = NULL;
	bool		ok = true;

	if (gpuvec_fault_due("oom-on-commit"))
		ok = gpuvec_fail_memory(error, 1);
	if (ok && !update->load)
	{
		ok = keep_entries(update, nblocks, &d, error);
		drop_placed_rows(update);
	}
	ok = ok && build_segments(update->store, update->mirror->place->backend, update->rows,
							  update->nrows, &d, error);
	free_sent(update);
	if (ok && !update->load && d.n > 0)
		ok = tidy(update, &d, error);
	if (ok)
		view = finish_draft(update, &d, error);
	free_draft(&d);
	return view;
}

/* Cut off rows of pages that the relation does not have any more */
static void
drop_pages_behind(gpuvec_update *update, uint32_t nblocks)
{
	while (update->npages > 0 && update->pages[update->npages - 1].block >= nblocks)
	{
		update->npages--;
		update->nrows = update->pages[update->npages].first;
	}
}

/* Make view and page table, and charge their memory to the mirror */
static bool
prepare_commit(gpuvec_update *update, const gpuvec_commit *commit, gpuvec_view **view,
			   gpuvec_page_state **pages, uint64_t *refresh, gpuvec_error *error)
{
	gpuvec_store *store = update->store;
	size_t		estimate;

	if (!pages_complete(update, commit->nblocks))
		return bad_pages(error, "Pages are missing.");
	drop_pages_behind(update, commit->nblocks);
	/* make room first: a device must have it when segments go there */
	estimate = update->nids * sizeof(uint16_t) + update->nrows * ROW_OVERHEAD;
	if (!gpuvec_store_charge(store, update->mirror, estimate, error))
		return false;

	pthread_mutex_lock(&store->mutex);
	*refresh = ++store->last_refresh;
	pthread_mutex_unlock(&store->mutex);
	*pages = make_pages(update, commit->nblocks, *refresh, error);
	*view = *pages ? make_view(update, commit->nblocks, error) : NULL;
	gpuvec_store_uncharge(store, update->mirror, estimate);
	return *view != NULL;
}

/* Swap the new view and page table in; returns the old view */
static gpuvec_view *
publish(gpuvec_update *update, const gpuvec_commit *commit, gpuvec_view *view,
		gpuvec_page_state **pages, uint64_t refresh)
{
	gpuvec_mirror *mirror = update->mirror;
	gpuvec_view *old;
	gpuvec_page_state *old_pages;

	pthread_mutex_lock(&update->store->mutex);
	old = mirror->view;
	old_pages = mirror->pages;
	mirror->view = view;
	mirror->pages = *pages;
	mirror->nblocks = commit->nblocks;
	mirror->refresh = refresh;
	if (commit->position > mirror->checked)
		mirror->checked = commit->position;
	if (update->load)
		mirror->loads++;
	else
		mirror->refreshes++;
	mirror->last_use = gpuvec_now();
	count_bytes(view, mirror->nblocks, &mirror->host_bytes, &mirror->device_bytes);
	pthread_mutex_unlock(&update->store->mutex);
	*pages = old_pages;
	return old;
}

/* Charge the difference between what the mirror takes and what it is charged for */
static bool
settle_charge(gpuvec_update *update, const gpuvec_view *view, uint32_t nblocks, gpuvec_error *error)
{
	gpuvec_mirror *mirror = update->mirror;
	size_t		host;
	size_t		device;
	size_t		bytes;

	count_bytes(view, nblocks, &host, &device);
	bytes = mirror->place->backend->on_device ? device : host;
	if (bytes > mirror->charged)
		return gpuvec_store_charge(update->store, mirror, bytes - mirror->charged, error);
	gpuvec_store_uncharge(update->store, mirror, mirror->charged - bytes);
	return true;
}

bool
gpuvec_update_commit(gpuvec_update *update, const gpuvec_commit *commit, gpuvec_state *state,
					 gpuvec_error *error)
{
	gpuvec_view *view = NULL;
	gpuvec_page_state *pages = NULL;
	uint64_t	refresh = 0;
	bool		ok;

	gpuvec_fault_crash("crash-on-commit");
	gpuvec_fault_sleep("slow-commit", NULL);
	ok = prepare_commit(update, commit, &view, &pages, &refresh, error) &&
		settle_charge(update, view, commit->nblocks, error);
	if (ok)
	{
		view = publish(update, commit, view, &pages, refresh);
		gpuvec_store_state(update->store, update->mirror, state);
	}
	gpuvec_view_unref(view);
	free(pages);
	end_update(update);
	return ok;
}
