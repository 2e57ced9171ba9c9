/*-------------------------------------------------------------------------
 *
 * update.c
 *	  Loading and refreshing a mirror.
 *
 * Pages arrive in ascending order.  A load stages all rows, sorts them by
 * (length, tid), cuts them into segments, and publishes them.
 *
 * A refresh publishes a new view of the same segments: rows of pages that were
 * read again, or that are gone, lose their bit in a copy of their segment's live
 * map, and the rows that came go to a new small segment.  A page whose rows came
 * back as they were (VACUUM, hint bits and deletions change a page's LSN, but no
 * row) moves nothing; its fingerprint tells.  Small segments are merged, and dead
 * rows left behind, in the background (merge.c).  Only when that does not keep pace
 * an update does it itself: when there are very many segments it merges as many of the
 * last ones as it may, and when most rows are dead it sorts all anew.
 *
 * Everything that takes time happens outside the store's mutex.  Only the updater
 * changes a mirror's pages, and from the beginning of the commit on its view, so what
 * it reads of them stays as it is until it publishes, and publishing cannot fail.
 *
 *-------------------------------------------------------------------------
 */
#include <malloc.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/draft.h"
#include "engine/embedding/embedding_mirror.h"
#include "engine/fault.h"
#include "engine/log.h"
#include "engine/store.h"

/* All rows are sorted anew when more than 6 of 10 are dead; without room for that the mirror is dropped */
#define TOO_MANY_DEAD(dead, all)	((dead) * 10 > (all) * 6)
/* So many of the last rows are merged when there are this many segments more than needed */
#define MANY_SEGMENTS		64
#define MERGE_ROWS			16384

/* Free memory goes back to the system after updates with more rows than this */
#define TRIM_ROWS			100000

/* A page that was sent */
typedef struct sent_page
{
	uint32_t	block;
	uint32_t	nrows;			/* staged; 0 if it came back as it was */
	bool		same;
	gpuvec_page_state state;
} sent_page;

struct gpuvec_update
{
	gpuvec_store *store;
	gpuvec_mirror *mirror;		/* with a reference */
	bool		load;
	gpuvec_stage *stage;
	gpuvec_embedding_table *embed;	/* the mirror's, if it is of an embedding table */
	sent_page  *pages;			/* in ascending order of block */
	uint64_t	npages;
	uint64_t	room_pages;
	size_t		charged;		/* of mirror->charged, for what is under way */
	void	  **messages;		/* that staged rows lie in */
	uint64_t	nmessages;
	size_t		message_bytes;	/* of them in all */
	uint64_t	lent;			/* staged rows that lie in them */

	/* made by a commit, for publishing */
	gpuvec_view *view;
	gpuvec_page_numbers *numbers;
	uint64_t	sorted_rows;
	uint64_t	added_rows;
	bool		hopeless;		/* drop the mirror instead */
	uint32_t   *replaced;		/* pages of an embedding table */
	uint64_t	nreplaced;
};

/* Rows that are staged */
static uint64_t
staged_rows(const gpuvec_update *update)
{
	return update->embed ? update->embed->nstaged : gpuvec_stage_rows(update->stage);
}

/* Free the messages that the update owns */
static void
free_messages(gpuvec_update *update)
{
	for (uint64_t i = 0; i < update->nmessages; i++)
		free(update->messages[i]);
	update->nmessages = 0;
	update->message_bytes = 0;
}

/* End an update: the mirror is free for others; an unfinished load leaves nothing */
static void
end_update(gpuvec_update *update)
{
	gpuvec_store *store = update->store;
	gpuvec_mirror *mirror = update->mirror;
	gpuvec_error error;
	bool		trim = staged_rows(update) > TRIM_ROWS;

	/* nobody finds the memory charged after the next one may begin */
	if (update->embed == NULL || mirror->numbers == NULL)
		(void) gpuvec_store_charge(store, mirror, &update->charged, 0, false, &error);
	gpuvec_view_unref(update->view);
	gpuvec_page_numbers_unref(update->numbers);
	gpuvec_stage_free(update->stage);
	free_messages(update);
	free(update->messages);
	free(update->pages);
	free(update->replaced);
	if (update->embed)
		gpuvec_embedding_discard(update->embed);

	pthread_mutex_lock(&store->mutex);
	/* an embedding table keeps the room that it got, whatever became of the update */
	if (update->embed && mirror->numbers)
		gpuvec_store_settle(mirror);
	mirror->updater = NULL;
	mirror->committing = false;
	if (mirror->numbers == NULL)
		gpuvec_store_unlist(store, mirror);
	pthread_mutex_unlock(&store->mutex);
	gpuvec_store_release(store, mirror);
	free(update);
	if (trim)
		malloc_trim(0);
}

void
gpuvec_update_abort(gpuvec_update *update)
{
	if (update)
		end_update(update);
}

/*
 * Become the updater of a mirror, which a load makes if it is absent.  NULL if
 * there is none, or (with an error) if it has an updater.  The caller holds the
 * mutex.
 */
static gpuvec_mirror *
claim_mirror(gpuvec_store *store, const gpuvec_mirror_key *key, const gpuvec_load *load,
			 const void *session, gpuvec_error *error)
{
	gpuvec_mirror *mirror = gpuvec_store_find(store, key, session);

	if (mirror == NULL)
	{
		if (load == NULL)
			return NULL;
		mirror = gpuvec_store_add(store, key, session);
		if (mirror == NULL)
		{
			gpuvec_fail_memory(error, sizeof(*mirror));
			return NULL;
		}
	}
	else if (mirror->updater != NULL)
	{
		gpuvec_fail(error, GPUVEC_OBJECT_IN_USE, NULL, NULL,
					"the mirror is being loaded or refreshed by another session");
		return NULL;
	}
	if (gpuvec_is_embedding_key(key) && mirror->embed == NULL)
	{
		mirror->embed = gpuvec_embedding_new((gpuvec_storage) key->storage,
										 mirror->place->backend->vectors, error);
		if (mirror->embed == NULL)
		{
			gpuvec_store_unlist(store, mirror);
			free(mirror);
			return NULL;
		}
	}
	mirror->refs++;
	mirror->updater = session;
	mirror->pages_done = 0;
	mirror->pages_total = load ? load->nblocks : mirror->nblocks;
	mirror->last_use = gpuvec_now();
	return mirror;
}

/*
 * An embedding table is about to grow on its device.  Others are evicted for both
 * copies, or, if that does not help, for what it will have in the end.
 */
static bool
make_room(void *arg, size_t bytes, size_t more, gpuvec_error *error)
{
	gpuvec_update *update = arg;

	return gpuvec_store_charge(update->store, update->mirror, &update->charged,
							   update->charged + bytes, true, error) ||
		gpuvec_store_charge(update->store, update->mirror, &update->charged,
							update->charged + more, true, error);
}

gpuvec_update *
gpuvec_update_begin(gpuvec_store *store, const gpuvec_mirror_key *key, const gpuvec_load *load,
					const void *session, gpuvec_error *error)
{
	gpuvec_update *update = calloc(1, sizeof(*update));
	gpuvec_stage *stage = gpuvec_stage_new();

	memset(error, 0, sizeof(*error));
	if (update == NULL || stage == NULL)
	{
		gpuvec_fail_memory(error, sizeof(*update));
		free(update);
		gpuvec_stage_free(stage);
		return NULL;
	}
	update->store = store;
	update->load = load != NULL;
	update->stage = stage;
	pthread_mutex_lock(&store->mutex);
	update->mirror = claim_mirror(store, key, load, session, error);
	pthread_mutex_unlock(&store->mutex);
	if (update->mirror == NULL)
	{
		free(update);
		gpuvec_stage_free(stage);
		return NULL;
	}
	update->embed = update->mirror->embed;
	if (update->embed)
	{
		update->embed->make_room = make_room;
		update->embed->make_room_arg = update;
	}
	return update;
}

void
gpuvec_update_files(gpuvec_update *update, const char *files, size_t bytes)
{
	gpuvec_sweep_watch(update->store, update->mirror, files, bytes);
}

uint64_t *
gpuvec_update_lsns(gpuvec_update *update, gpuvec_error *error)
{
	gpuvec_mirror *mirror = update->mirror;
	uint64_t   *lsns = malloc((mirror->nblocks + (size_t) 1) * sizeof(uint64_t));

	if (lsns == NULL)
	{
		gpuvec_fail_memory(error, mirror->nblocks * sizeof(uint64_t));
		return NULL;
	}
	for (uint32_t block = 0; block < mirror->nblocks; block++)
		lsns[block] = mirror->pages[block].lsn;
	return lsns;
}

void
gpuvec_update_state(gpuvec_update *update, gpuvec_state *state)
{
	pthread_mutex_lock(&update->store->mutex);
	gpuvec_store_get_state(update->mirror, state);
	pthread_mutex_unlock(&update->store->mutex);
}

/* Report pages that are not as the protocol wants them */
static bool
bad_pages(gpuvec_error *error, const char *what)
{
	return gpuvec_fail(error, GPUVEC_PROTOCOL_VIOLATION, what, NULL,
					   "invalid pages in a message to the gpuvec engine");
}

/* Ids that are compared at a time */
typedef uint16_t id_vector __attribute__((vector_size(16)));

#define VECTOR_IDS	(sizeof(id_vector) / sizeof(uint16_t))

/* Are ids ascending and distinct? */
static bool
ids_valid(const uint16_t *ids, uint32_t len)
{
	id_vector	bad = {0};
	uint64_t	half[2];
	uint32_t	wrong = 0;
	uint32_t	i = 1;

	for (; i + VECTOR_IDS <= len; i += VECTOR_IDS)
	{
		id_vector	before;
		id_vector	after;

		memcpy(&before, ids + i - 1, sizeof(before));
		memcpy(&after, ids + i, sizeof(after));
		bad |= (id_vector) (before >= after);
	}
	for (; i < len; i++)
		wrong |= ids[i - 1] >= ids[i];
	memcpy(half, &bad, sizeof(half));
	return (half[0] | half[1] | wrong) == 0;
}

/* Stage one row of a page, which may last; returns its size, or 0 if it is bad */
static size_t
take_row(gpuvec_update *update, uint32_t block, const char *from, const char *end, bool last,
		 uint32_t *last_line, gpuvec_error *error)
{
	gpuvec_row	row;
	const uint16_t *ids = (const uint16_t *) (from + sizeof(row));

	if ((size_t) (end - from) < sizeof(row))
		return bad_pages(error, "A row is cut off.");
	memcpy(&row, from, sizeof(row));
	if (row.line <= *last_line || row.line > GPUVEC_MAX_LINE)
		return bad_pages(error, "Line pointers are not in order.");
	if (row.len > GPUVEC_MAX_IDS || (size_t) (end - from) < gpuvec_row_bytes(row.len))
		return bad_pages(error, "A row is cut off.");
	if (!ids_valid(ids, row.len))
		return bad_pages(error, "Ids are not in order.");
	if (!gpuvec_stage_add(update->stage, gpuvec_tid(block, row.line), ids, row.len, last, error))
		return 0;
	*last_line = row.line;
	return gpuvec_row_bytes(row.len);
}

/* Stage one row of a page of an embedding table; returns its size, or 0 if it is bad */
static size_t
take_vector(gpuvec_update *update, uint32_t block, const char *from, const char *end,
			uint32_t *last_line, gpuvec_error *error)
{
	gpuvec_vector_row row;

	if ((size_t) (end - from) < sizeof(row))
		return bad_pages(error, "A row is cut off.");
	memcpy(&row, from, sizeof(row));
	if (row.line <= *last_line || row.line > GPUVEC_MAX_LINE)
		return bad_pages(error, "Line pointers are not in order.");
	if (row.kind >= GPUVEC_N_VECTOR_KINDS || row.width > GPUVEC_MAX_WIDTH ||
		(row.kind != GPUVEC_VECTOR_GOOD && row.width > 0) ||
		(size_t) (end - from) < gpuvec_vector_row_bytes(row.width, update->embed->storage))
		return bad_pages(error, "A row is cut off.");
	if (!gpuvec_embedding_stage(update->embed, gpuvec_tid(block, row.line), &row, from + sizeof(row),
							error))
		return 0;
	*last_line = row.line;
	return gpuvec_vector_row_bytes(row.width, update->embed->storage);
}

/* Stage the rows of a page, which fill [row, end) and may last */
static bool
take_rows(gpuvec_update *update, const gpuvec_page *page, const char *row, const char *end,
		  bool last, gpuvec_error *error)
{
	uint32_t	last_line = 0;

	for (uint32_t i = 0; i < page->nrows; i++)
	{
		size_t		size = update->embed ?
			take_vector(update, page->block, row, end, &last_line, error) :
			take_row(update, page->block, row, end, last, &last_line, error);

		if (size == 0)
			return false;
		row += size;
	}
	return row == end || bad_pages(error, "A page is longer than its rows.");
}

/* Note that a page was sent */
static sent_page *
new_page(gpuvec_update *update, gpuvec_error *error)
{
	if (update->npages == update->room_pages)
	{
		uint64_t	room = update->room_pages ? update->room_pages * 2 : 256;
		sent_page  *pages = realloc(update->pages, room * sizeof(*pages));

		if (pages == NULL)
		{
			gpuvec_fail_memory(error, room * sizeof(*pages));
			return NULL;
		}
		update->pages = pages;
		update->room_pages = room;
	}
	return &update->pages[update->npages++];
}

/* Take one page; returns its size, or 0 if it is bad */
static size_t
take_page(gpuvec_update *update, const char *from, const char *end, bool last,
		  gpuvec_error *error)
{
	const gpuvec_mirror *mirror = update->mirror;
	const char *rows = from + sizeof(gpuvec_page);
	gpuvec_page page;
	sent_page  *mine;

	if ((size_t) (end - from) < sizeof(page))
		return bad_pages(error, "A page is cut off.");
	memcpy(&page, from, sizeof(page));
	if ((size_t) (end - rows) < page.bytes || page.bytes % 4 != 0)
		return bad_pages(error, "A page is cut off.");
	if (page.block == UINT32_MAX)
		return bad_pages(error, "A block number is out of range.");
	if (update->npages > 0 && page.block <= update->pages[update->npages - 1].block)
		return bad_pages(error, "Pages are not in order.");
	mine = new_page(update, error);
	if (mine == NULL)
		return 0;
	*mine = (sent_page) {.block = page.block,.state.lsn = page.lsn,
		.state.rows = gpuvec_fingerprint_of(rows, page.bytes)};
	if (!update->load && page.block < mirror->nblocks &&
		gpuvec_fingerprint_equal(mine->state.rows, mirror->pages[page.block].rows))
		mine->same = true;
	else
	{
		mine->nrows = page.nrows;
		if (!take_rows(update, &page, rows, rows + page.bytes, last, error))
			return 0;
	}
	return sizeof(page) + page.bytes;
}

/*
 * What the update will take: its rows as segments, or as they are staged, which
 * stands for the former on a device.
 */
static size_t
bytes_needed(const gpuvec_update *update)
{
	size_t		staged = gpuvec_stage_bytes(update->stage) + update->message_bytes;
	size_t		estimate = gpuvec_stage_estimate(update->stage);

	if (update->embed)
		return update->embed->staged_bytes +
			(update->embed->vectors ? 0 : update->npages * GPUVEC_PAGE_BYTES);
	if (update->mirror->place->backend->on_device)
		return estimate;
	return (staged > estimate ? staged : estimate) + update->npages * GPUVEC_PAGE_BYTES;
}

/* Charge for what is under way: a load that cannot fit is to fail now rather than at its end */
static bool
charge_needed(gpuvec_update *update, gpuvec_error *error)
{
	return gpuvec_store_charge(update->store, update->mirror, &update->charged,
							   bytes_needed(update), true, error);
}

/*
 * Rows of pages that came back as they were are not staged, and when there are many they
 * are all copied.
 */
bool
gpuvec_update_own(gpuvec_update *update, char **message, size_t size, gpuvec_error *error)
{
	uint64_t	lent = gpuvec_stage_lent(update->stage);
	size_t		room = (update->nmessages + 1) * sizeof(void *);
	void	  **messages;

	if (lent == 0)
		free_messages(update);
	if (lent <= update->lent)
	{
		update->lent = lent;
		return true;
	}
	messages = realloc(update->messages, room);
	if (messages == NULL)
		return gpuvec_fail_memory(error, room);
	update->messages = messages;
	update->messages[update->nmessages++] = *message;
	update->message_bytes += size;
	update->lent = lent;
	*message = NULL;
	return charge_needed(update, error);
}

bool
gpuvec_update_pages(gpuvec_update *update, const char *frame, size_t length, bool last,
					gpuvec_error *error)
{
	const char *at = frame;
	const char *end = frame + length;

	while (at < end)
	{
		size_t		size = take_page(update, at, end, last, error);

		if (size == 0)
			return false;
		at += size;
	}
	pthread_mutex_lock(&update->store->mutex);
	update->mirror->pages_done = (uint32_t) update->npages;
	pthread_mutex_unlock(&update->store->mutex);
	return charge_needed(update, error);
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

/* Keep the charge at what is built and still staged; called while segments are built */
static bool
charge_progress(void *arg, size_t built, size_t staged, gpuvec_error *error)
{
	gpuvec_update *update = arg;
	bool		on_device = update->mirror->place->backend->on_device;
	size_t		bytes = (on_device ? 0 : staged + update->message_bytes +
										   update->npages * GPUVEC_PAGE_BYTES) + built;

	/* on a device what is not built yet will follow */
	if (on_device && bytes < update->charged)
		return true;
	return gpuvec_store_charge(update->store, update->mirror, &update->charged, bytes, true, error);
}

/* Build segments of the staged rows, and add them to the draft */
static bool
build_staged(gpuvec_update *update, uint32_t nblocks, uint64_t nrows, gpuvec_draft *draft,
			 gpuvec_error *error)
{
	gpuvec_stage_target target = {
		.pool = draft->pool,.backend = draft->backend,.nblocks = nblocks,.nrows = nrows,
		.shares = gpuvec_pool_threads(draft->pool),
		.progress = charge_progress,.arg = update
	};
	gpuvec_segment **segments;
	uint32_t	n;
	bool		ok = true;

	if (nrows == 0)
		return true;
	if (!gpuvec_stage_build(update->stage, &target, &segments, &n, error))
		return false;
	for (uint32_t i = 0; i < n; i++)
	{
		if (ok)
			ok = gpuvec_draft_add(draft, segments[i], NULL, error);
		else
			gpuvec_segment_unref(segments[i]);
	}
	free(segments);
	return ok;
}

/* The pages that replace some that the mirror has; malloc'd */
static uint32_t *
list_replaced(const gpuvec_update *update, uint64_t *n, gpuvec_error *error)
{
	uint32_t   *blocks = malloc((update->npages + 1) * sizeof(uint32_t));

	*n = 0;
	if (blocks == NULL)
	{
		gpuvec_fail_memory(error, update->npages * sizeof(uint32_t));
		return NULL;
	}
	for (uint64_t i = 0; i < update->npages; i++)
		if (!update->pages[i].same && update->pages[i].block < update->mirror->nblocks)
			blocks[(*n)++] = update->pages[i].block;
	return blocks;
}

/* Bury what the pages replace, and what lies behind the relation's end */
static bool
bury_replaced(gpuvec_update *update, uint32_t nblocks, gpuvec_draft *draft, bool *buried,
			  gpuvec_error *error)
{
	uint32_t	limit = update->mirror->nblocks;
	uint64_t	n;
	uint32_t   *blocks = list_replaced(update, &n, error);
	bool		ok;

	if (blocks == NULL)
		return false;
	*buried = false;
	ok = (n == 0 && nblocks >= limit) ||
		gpuvec_draft_bury(draft, blocks, n, nblocks, limit, buried, error);
	free(blocks);
	return ok;
}

/*
 * From which entry on shall rows be sorted anew, together with `fresh` new ones?
 * draft->n: from none; 0: all.  There is a limit to what a search waits for; if the last
 * segments are larger, they are left to the merger.
 */
static uint32_t
choose_merge(const gpuvec_draft *draft, uint64_t fresh)
{
	gpuvec_draft_size all = gpuvec_draft_measure(draft, 0);
	uint32_t	first = draft->n;
	uint64_t	sum = fresh;

	if (TOO_MANY_DEAD(all.rows - all.live, all.rows + fresh))
		return 0;
	if (draft->n <= (all.live + fresh) / GPUVEC_SEGMENT_ROWS + MANY_SEGMENTS)
		return draft->n;
	while (first > 0)
	{
		uint64_t	neighbour = gpuvec_entry_rows(&draft->entries[first - 1]);

		if (sum + neighbour > MERGE_ROWS)
			break;
		sum += neighbour;
		first--;
	}
	return first;
}

/*
 * Take entries apart that are to be sorted anew.  Sorting all rows needs room
 * beside the old segments, which searches still use; if there is none it has to
 * wait, unless the mirror is mostly dead.
 */
static bool
unbuild(gpuvec_update *update, gpuvec_draft *draft, uint32_t first, gpuvec_error *error)
{
	gpuvec_draft_size size = gpuvec_draft_measure(draft, first);
	bool		urgent = first == 0 && TOO_MANY_DEAD(size.rows - size.live, size.rows);

	if (first == draft->n)
		return true;
	if (!gpuvec_store_charge(update->store, update->mirror, &update->charged,
							 update->charged + size.bytes, urgent, error))
	{
		update->hopeless = urgent;
		return true;
	}
	if (first == 0)
	{
		update->sorted_rows = size.live + gpuvec_stage_rows(update->stage);
		update->added_rows = 0;
	}
	return gpuvec_draft_unbuild(draft, first, update->stage, error);
}

/* Make the new view of a refresh */
static bool
refresh_view(gpuvec_update *update, uint32_t nblocks, uint64_t fresh, gpuvec_draft *draft,
			 gpuvec_error *error)
{
	uint64_t	behind = gpuvec_stage_rows(update->stage) - fresh;
	bool		buried;

	update->sorted_rows = update->mirror->sorted_rows;
	update->added_rows = update->mirror->added_rows + fresh;
	if (!gpuvec_draft_copy(draft, update->mirror->view, error) ||
		!bury_replaced(update, nblocks, draft, &buried, error))
		return false;
	if (!buried && fresh == 0)
	{
		/* no row has changed */
		update->view = gpuvec_view_ref(update->mirror->view);
		return true;
	}
	if (!unbuild(update, draft, choose_merge(draft, fresh), error))
		return false;
	if (update->hopeless)
		return true;
	if (!build_staged(update, nblocks, gpuvec_stage_rows(update->stage) - behind, draft, error))
		return false;
	update->view = gpuvec_draft_finish(draft, error);
	return update->view != NULL;
}

/* Make the new view of a load */
static bool
load_view(gpuvec_update *update, uint32_t nblocks, uint64_t fresh, gpuvec_draft *draft,
		  gpuvec_error *error)
{
	update->sorted_rows = fresh;
	update->added_rows = 0;
	if (!build_staged(update, nblocks, fresh, draft, error))
		return false;
	update->view = gpuvec_draft_finish(draft, error);
	return update->view != NULL;
}

/* Make the new view, of the pages below nblocks */
static bool
make_view(gpuvec_update *update, uint32_t nblocks, gpuvec_error *error)
{
	gpuvec_draft draft = {.backend = update->mirror->place->backend,.pool = update->store->pool};
	uint64_t	fresh = gpuvec_stage_rows(update->stage);
	bool		ok;

	if (gpuvec_fault_due("oom-on-commit"))
		return gpuvec_fail_memory(error, 1);
	if (update->embed)
	{
		uint64_t	n;

		update->hopeless = !update->load && gpuvec_embedding_sparse(update->embed);
		update->replaced = list_replaced(update, &n, error);
		update->nreplaced = n;
		return update->replaced && gpuvec_embedding_prepare(update->embed, nblocks, error);
	}
	for (uint64_t i = update->npages; i > 0 && update->pages[i - 1].block >= nblocks; i--)
		fresh -= update->pages[i - 1].nrows;
	ok = update->load ? load_view(update, nblocks, fresh, &draft, error) :
		refresh_view(update, nblocks, fresh, &draft, error);
	gpuvec_draft_free(&draft);
	return ok;
}

/*
 * Make the new table of page numbers, whose new entries publish() fills in, and
 * make room for what is remembered of new pages.
 */
static bool
make_numbers(gpuvec_update *update, uint32_t nblocks, gpuvec_error *error)
{
	gpuvec_mirror *mirror = update->mirror;
	uint32_t	most = mirror->nblocks > nblocks ? mirror->nblocks : nblocks;
	gpuvec_page_state *pages;

	update->numbers = gpuvec_page_numbers_new(mirror->numbers, nblocks);
	if (update->numbers == NULL)
		return gpuvec_fail_memory(error, nblocks * sizeof(uint64_t));
	for (uint64_t i = 0; i < update->npages && update->pages[i].block < nblocks; i++)
		if (!gpuvec_page_numbers_own(update->numbers, update->pages[i].block))
			return gpuvec_fail_memory(error, nblocks * sizeof(uint64_t));
	pages = realloc(mirror->pages, ((size_t) most + 1) * sizeof(*pages));
	if (pages == NULL)
		return gpuvec_fail_memory(error, most * sizeof(*pages));
	mirror->pages = pages;
	return true;
}

/* Charge what the mirror will take instead of what it and the update take now */
static bool
charge_view(gpuvec_update *update, uint32_t nblocks, gpuvec_error *error)
{
	gpuvec_mirror *mirror = update->mirror;
	size_t		bytes = gpuvec_store_bytes(mirror, update->view, nblocks);
	size_t		charged;

	pthread_mutex_lock(&update->store->mutex);
	bytes += mirror->merging;
	charged = mirror->charged;
	pthread_mutex_unlock(&update->store->mutex);
	return gpuvec_store_charge(update->store, mirror, &charged, bytes > charged ? bytes : charged,
							   true, error);
}

/* The rows of an embedding table have been exchanged: let readers see them */
static void
publish_embed(gpuvec_update *update, const gpuvec_state *state)
{
	gpuvec_embedding_table *table = update->embed;
	gpuvec_page_numbers *old = table->numbers;

	table->state = *state;
	table->numbers = gpuvec_page_numbers_ref(update->numbers);
	pthread_rwlock_unlock(&table->lock);
	gpuvec_page_numbers_unref(old);
}

/* Publish view, pages and numbers in one step; what they replace is left to the update */
static void
publish(gpuvec_update *update, const gpuvec_commit *commit, gpuvec_state *state)
{
	gpuvec_mirror *mirror = update->mirror;
	gpuvec_view *old_view = mirror->view;
	gpuvec_page_numbers *old_numbers = mirror->numbers;

	if (update->embed)
	{
		/* readers wait until publish_embed() */
		pthread_rwlock_wrlock(&update->embed->lock);
		gpuvec_embedding_publish(update->embed, update->replaced, update->nreplaced, commit->nblocks);
	}
	pthread_mutex_lock(&update->store->mutex);
	mirror->refresh = ++update->store->last_refresh;
	for (uint64_t i = 0; i < update->npages && update->pages[i].block < commit->nblocks; i++)
	{
		mirror->pages[update->pages[i].block] = update->pages[i].state;
		gpuvec_page_numbers_set(update->numbers, update->pages[i].block, mirror->refresh);
	}
	mirror->view = update->view;
	mirror->numbers = update->numbers;
	mirror->nblocks = commit->nblocks;
	if (commit->position > mirror->checked)
		mirror->checked = commit->position;
	if (commit->feed != 0 && (mirror->feed != commit->feed || mirror->applied < commit->applied))
	{
		mirror->feed = commit->feed;
		mirror->applied = commit->applied;
	}
	mirror->sorted_rows = update->sorted_rows;
	mirror->added_rows = update->added_rows;
	if (update->load)
		mirror->loads++;
	else
		mirror->refreshes++;
	mirror->last_use = gpuvec_now();
	mirror->nrows = update->embed ? update->embed->nrows : 0;
	gpuvec_store_settle(mirror);
	update->charged = 0;
	mirror->committing = false;
	if (mirror->view)
		gpuvec_merger_look(update->store, mirror);
	gpuvec_store_get_state(mirror, state);
	pthread_mutex_unlock(&update->store->mutex);
	if (update->embed)
		publish_embed(update, state);
	update->view = old_view;
	update->numbers = old_numbers;
}

/* Drop a mirror that is mostly dead and cannot be mended: it will be loaded anew */
static void
give_up(gpuvec_update *update, gpuvec_state *state)
{
	gpuvec_log("LOG", "dropping the mirror of relation %u of database %u, as %s",
			   update->mirror->key.relation, update->mirror->key.database,
			   update->embed ? "most of its room is unused" : "there is no memory to rebuild it");
	pthread_mutex_lock(&update->store->mutex);
	gpuvec_store_unlist(update->store, update->mirror);
	update->charged = 0;
	gpuvec_store_get_state(update->mirror, state);
	pthread_mutex_unlock(&update->store->mutex);
}

/* From now on the merger leaves the view as it is */
static void
begin_commit(gpuvec_update *update)
{
	pthread_mutex_lock(&update->store->mutex);
	update->mirror->committing = true;
	pthread_mutex_unlock(&update->store->mutex);
}

bool
gpuvec_update_commit(gpuvec_update *update, const gpuvec_commit *commit, gpuvec_state *state,
					 gpuvec_error *error)
{
	bool		ok;

	gpuvec_fault_crash("crash-on-commit");
	gpuvec_fault_sleep("slow-commit", NULL);
	ok = pages_complete(update, commit->nblocks) || bad_pages(error, "Pages are missing.");
	if (ok)
		begin_commit(update);
	ok = ok && make_view(update, commit->nblocks, error);
	if (ok && update->hopeless)
		give_up(update, state);
	else if (ok)
	{
		ok = make_numbers(update, commit->nblocks, error) &&
			charge_view(update, commit->nblocks, error);
		if (ok)
			publish(update, commit, state);
	}
	end_update(update);
	return ok;
}
