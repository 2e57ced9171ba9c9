/*-------------------------------------------------------------------------
 *
 * draft.c
 *	  A draft, that is, a view under construction: the entries of an older
 *	  view, without the rows that an update replaces.
 *
 * Rows of a few blocks are found by binary search in each segment's by_tid.
 * For many blocks, a pass over all tids with a bitmap of blocks is cheaper.
 * Rows of line pointers are found in the same way as those of a few blocks.
 * All threads work on the segments.  Live maps are copied before they are
 * changed, so searches of an older view do not see the changes.
 *
 *-------------------------------------------------------------------------
 */
#include <stdlib.h>
#include <string.h>

#include "engine/sets/draft.h"
#include "engine/sets/first_error.h"
#include "engine/sets/id_numbers.h"

/* uint16_t ids in a chunk of a tile */
#define CHUNK_VALUES	((size_t) GPUVEC_TILE_ROWS * GPUVEC_CHUNK_IDS)

/*
 * A binary search for a block costs about as much as a pass over FIND_ROWS
 * rows
 */
#define FIND_ROWS		64

/* Searches for line pointers from which waking the pool pays */
#define POOL_SEARCHES	8192

/* Drop an entry's references */
static void
free_entry(gpuvec_view_entry *entry)
{
	gpuvec_segment_unref(entry->segment);
	gpuvec_livemap_unref(entry->live);
}

void
gpuvec_draft_free(gpuvec_draft *draft)
{
	for (uint32_t i = 0; i < draft->n; i++)
		free_entry(&draft->entries[i]);
	free(draft->entries);
	draft->entries = NULL;
	draft->n = draft->capacity = 0;
}

/* Add an entry; takes over the references, on failure too */
static bool
add_entry(gpuvec_draft *draft, gpuvec_segment *segment, gpuvec_livemap *live, gpuvec_error *error)
{
	gpuvec_view_entry entry = {.segment = segment, .live = live};

	if (draft->n == draft->capacity)
	{
		uint32_t	capacity = draft->capacity ? draft->capacity * 2 : 16;
		gpuvec_view_entry *entries = realloc(draft->entries, capacity * sizeof(*entries));

		if (entries == NULL)
		{
			free_entry(&entry);
			return gpuvec_fail_memory(error, capacity * sizeof(*entries));
		}
		draft->entries = entries;
		draft->capacity = capacity;
	}
	draft->entries[draft->n++] = entry;
	return true;
}

bool
gpuvec_draft_add_entry(gpuvec_draft *draft, const gpuvec_view_entry *entry, gpuvec_error *error)
{
	return add_entry(draft, gpuvec_segment_ref(entry->segment), gpuvec_livemap_ref(entry->live),
					 error);
}

bool
gpuvec_draft_copy(gpuvec_draft *draft, const gpuvec_view *view, gpuvec_error *error)
{
	for (uint32_t i = 0; i < view->nentries; i++)
		if (!gpuvec_draft_add_entry(draft, &view->entries[i], error))
			return false;
	return true;
}

uint32_t
gpuvec_entry_rows(const gpuvec_view_entry *entry)
{
	return entry->live ? entry->live->nlive : entry->segment->nrows;
}

/* A task on all entries of a draft, for the threads of the pool */
typedef struct entries_task
{
	gpuvec_draft *draft;
	const uint32_t *blocks;		/* [n] blocks whose rows to bury, ascending */
	uint64_t	n;
	uint32_t	nblocks;
	uint32_t	limit;			/* number of blocks of the mirror before the
								 * refresh */
	const uint8_t *bitmap;		/* bitmap of these blocks; NULL: search for
								 * each block */
	const uint64_t *tids;		/* [n] of line pointers whose rows to bury,
								 * ascending */
	int			buried;			/* atomic: some row was buried */
	gpuvec_first_error first;
} entries_task;

/* Run a task on all entries, by the pool if `parallel` */
static bool
run_task(entries_task *task, gpuvec_slice slice, bool parallel, gpuvec_error *error)
{
	if (parallel && task->draft->n > 1)
		gpuvec_thread_pool_run(task->draft->pool, slice, task, task->draft->n);
	else
		for (uint32_t i = 0; i < task->draft->n; i++)
			slice(task, i, 0);
	return gpuvec_first_error_result(&task->first, error);
}

bool
gpuvec_entry_bury(gpuvec_view_entry *entry, uint32_t row, gpuvec_error *error)
{
	if (entry->live == NULL || entry->live->backend != NULL)
	{
		gpuvec_livemap *map = entry->live ? gpuvec_livemap_copy(entry->live, error) :
			gpuvec_livemap_new(entry->segment->nrows, error);

		if (map == NULL)
			return false;
		gpuvec_livemap_unref(entry->live);
		entry->live = map;
	}
	entry->live->bits[row / 32] &= ~(UINT32_C(1) << (row % 32));
	entry->live->nlive--;
	return true;
}

/* Bury the live rows of an entry with from <= tid < to */
static bool
bury_range(entries_task *task, gpuvec_view_entry *entry, uint64_t from, uint64_t to,
		   gpuvec_error *error)
{
	const gpuvec_segment *segment = entry->segment;

	/*
	 * most segments hold other pages of the table, and searching them means
	 * cache misses
	 */
	if (segment->last_tid < from || segment->first_tid >= to)
		return true;
	for (uint32_t i = gpuvec_segment_find(segment, from); i < segment->nrows; i++)
	{
		uint32_t	row = segment->by_tid[i];

		if (segment->tid[row] >= to)
			break;
		if (!gpuvec_entry_live(entry, row))
			continue;
		if (!gpuvec_entry_bury(entry, row, error))
			return false;
		__atomic_store_n(&task->buried, 1, __ATOMIC_RELAXED);
	}
	return true;
}

/* Bury rows of one entry with a pass over all its rows */
static bool
bury_by_bitmap(entries_task *task, gpuvec_view_entry *entry, gpuvec_error *error)
{
	const gpuvec_segment *segment = entry->segment;
	bool		buried = false;

	for (uint32_t row = 0; row < segment->nrows; row++)
	{
		uint32_t	block = gpuvec_tid_block(segment->tid[row]);

		/*
		 * rows of blocks at or beyond limit are dead already, from before the
		 * relation shrank; keep them unless beyond nblocks
		 */
		if (block < task->nblocks &&
			(block >= task->limit || !(task->bitmap[block / 8] >> (block % 8) & 1)))
			continue;
		if (!gpuvec_entry_live(entry, row))
			continue;
		if (!gpuvec_entry_bury(entry, row, error))
			return false;
		buried = true;
	}
	if (buried)
		__atomic_store_n(&task->buried, 1, __ATOMIC_RELAXED);
	return true;
}

/* Bury rows of one entry; called by a thread of the pool */
static void
bury_slice(void *arg, uint64_t slice, int thread)
{
	entries_task *task = arg;
	gpuvec_view_entry *entry = &task->draft->entries[slice];
	gpuvec_error error;
	bool		ok = true;

	(void) thread;
	if (task->bitmap && task->n * FIND_ROWS > entry->segment->nrows)
		ok = bury_by_bitmap(task, entry, &error);
	else
	{
		for (uint64_t i = 0; ok && i < task->n && task->blocks[i] < task->nblocks; i++)
			ok = bury_range(task, entry, gpuvec_tid(task->blocks[i], 0),
							gpuvec_tid((uint64_t) task->blocks[i] + 1, 0), &error);
		ok = ok && bury_range(task, entry, gpuvec_tid(task->nblocks, 0), UINT64_MAX, &error);
	}
	if (!ok)
		gpuvec_first_error_keep(&task->first, &error);
}

/*
 * Bury rows of one entry by line pointers; called by a thread of the pool
 */
static void
bury_lines_slice(void *arg, uint64_t slice, int thread)
{
	entries_task *task = arg;
	gpuvec_view_entry *entry = &task->draft->entries[slice];
	gpuvec_error error;
	bool		ok = true;

	(void) thread;
	for (uint64_t i = 0; ok && i < task->n && task->tids[i] <= entry->segment->last_tid; i++)
		ok = bury_range(task, entry, task->tids[i], task->tids[i] + 2, &error);
	if (!ok)
		gpuvec_first_error_keep(&task->first, &error);
}

void
gpuvec_draft_drop_dead(gpuvec_draft *draft)
{
	uint32_t	n = 0;

	for (uint32_t i = 0; i < draft->n; i++)
	{
		if (gpuvec_entry_rows(&draft->entries[i]) == 0)
			free_entry(&draft->entries[i]);
		else
			draft->entries[n++] = draft->entries[i];
	}
	draft->n = n;
}

bool
gpuvec_draft_bury(gpuvec_draft *draft, const uint32_t *blocks, uint64_t n, uint32_t nblocks,
				  uint32_t limit, bool *buried, gpuvec_error *error)
{
	entries_task task = {.draft = draft, .blocks = blocks, .n = n, .nblocks = nblocks, .limit = limit};
	uint32_t	top = limit < nblocks ? limit : nblocks;
	uint8_t    *bitmap = NULL;
	bool		ok;

	if (n > 16)
	{
		/* if out of memory, fall back to binary search */
		bitmap = calloc(1, (size_t) top / 8 + 1);
		for (uint64_t i = 0; bitmap && i < n && blocks[i] < top; i++)
			bitmap[blocks[i] / 8] |= (uint8_t) (1 << (blocks[i] % 8));
	}
	task.bitmap = bitmap;
	ok = run_task(&task, bury_slice, n > 16, error);
	free(bitmap);
	*buried = task.buried;
	gpuvec_draft_drop_dead(draft);
	return ok;
}

bool
gpuvec_draft_bury_lines(gpuvec_draft *draft, const uint64_t *tids, uint64_t n, bool *buried,
						gpuvec_error *error)
{
	entries_task task = {.draft = draft, .tids = tids, .n = n};
	bool		ok = run_task(&task, bury_lines_slice, n * draft->n > POOL_SEARCHES, error);

	*buried = task.buried;
	gpuvec_draft_drop_dead(draft);
	return ok;
}

gpuvec_draft_size
gpuvec_draft_measure(const gpuvec_draft *draft, uint32_t first)
{
	gpuvec_draft_size size = {0};

	for (uint32_t i = first; i < draft->n; i++)
	{
		size.rows += draft->entries[i].segment->nrows;
		size.live += gpuvec_entry_rows(&draft->entries[i]);
		size.bytes += gpuvec_segment_charge(draft->entries[i].segment);
	}
	return size;
}

/*
 * Read a segment's ids back from its device, and its values if it has some.
 * `to` owns them, also if that fails.
 */
static bool
read_back(const gpuvec_segment *segment, gpuvec_segment *to, gpuvec_error *error)
{
	gpuvec_backend *backend = segment->backend;
	size_t		n = segment->nchunks * CHUNK_VALUES;

	to->ids = malloc(n * sizeof(uint16_t) + 1);
	if (to->ids == NULL)
		return gpuvec_fail_memory(error, n * sizeof(uint16_t));
	if (!backend->read_ids(backend, segment, to->ids, error))
		return false;
	if (segment->sums == NULL)
		return true;
	to->values = malloc(n * sizeof(float) + 1);
	if (to->values == NULL)
		return gpuvec_fail_memory(error, n * sizeof(float));
	return backend->read_values(backend, segment, to->values, error);
}

/* The cold numbers of a segment's rows, as gpuvec_segment_cold_by_row */
typedef struct cold_numbers
{
	uint32_t   *numbers;		/* NULL: there are none */
	float	   *values;			/* NULL: rows have none */
	uint64_t   *start;			/* [nrows] where each row's begin */
} cold_numbers;

static void
free_cold(cold_numbers *cold)
{
	free(cold->numbers);
	free(cold->values);
	free(cold->start);
}

/* Read a segment's cold numbers back */
static bool
read_cold(const gpuvec_segment *segment, cold_numbers *cold, gpuvec_error *error)
{
	uint64_t	n = 0;

	if (segment->ncold == 0)
		return true;
	cold->numbers = gpuvec_segment_cold_by_row(segment, &cold->values, error);
	if (cold->numbers == NULL)
		return false;
	cold->start = malloc(segment->nrows * sizeof(uint64_t));
	if (cold->start == NULL)
		return gpuvec_fail_memory(error, segment->nrows * sizeof(uint64_t));
	for (uint32_t row = 0; row < segment->nrows; row++)
	{
		cold->start[row] = n;
		n += segment->len[row] - gpuvec_hot_len(segment, row);
	}
	return true;
}

/* Memory for one row */
typedef struct row_memory
{
	uint16_t	packed[GPUVEC_MOST_PACKED / sizeof(uint16_t)];
	uint32_t	numbers[GPUVEC_MAX_IDS];

	/* for rows with values */
	float		values[GPUVEC_MAX_IDS];
	uint16_t	places[GPUVEC_MAX_IDS];
	uint64_t	room[2 * GPUVEC_MAX_IDS];
} row_memory;

/*
 * Give a row the ids that its numbers stand for.  memory->places gets the
 * place that each id's number had.
 */
static void
name_ids(gpuvec_source_row *row, const uint32_t *ids, bool values, row_memory *memory)
{
	gpuvec_unpack_numbers(row, memory->numbers);
	for (uint32_t i = 0; i < row->len; i++)
		memory->numbers[i] = ids[memory->numbers[i]];
	if (values)
		gpuvec_sort_numbers_places(memory->numbers, memory->places, row->len, memory->room);
	else
		gpuvec_sort_numbers(memory->numbers, row->len);
	gpuvec_pack_numbers(memory->numbers, row->len, memory->packed, row);
}

/* Write a row's sums and values behind its ids */
static void
name_values(const gpuvec_source_row *row, const gpuvec_segment *segment, uint32_t number,
			const cold_numbers *cold, bool named, row_memory *memory)
{
	uint32_t	hot = gpuvec_hot_len(segment, number);

	gpuvec_segment_row_values(segment, number, memory->values);
	if (row->len > hot)
		memcpy(memory->values + hot, cold->values + cold->start[number],
			   (row->len - hot) * sizeof(float));
	gpuvec_pack_values(row, memory->packed, (const char *) &segment->sums[number],
					   (const char *) memory->values, named ? memory->places : NULL);
}

/* Stage a row of a segment whose ids are on the host */
static bool
stage_row(const gpuvec_segment *segment, uint32_t row, const cold_numbers *cold,
		  const gpuvec_row_names *names, gpuvec_stage *stage, row_memory *memory,
		  gpuvec_error *error)
{
	bool		named = names && names->ids;
	uint32_t	hot = gpuvec_hot_len(segment, row);
	uint64_t	filter_keys[GPUVEC_MAX_FILTERS + 1];
	gpuvec_source_row staged = {
		.tid = segment->tid[row] + (names ? names->more : 0), .len = segment->len[row],
		.ncold = segment->len[row] - hot, .ids = memory->packed
	};

	gpuvec_segment_row(segment, row, memory->packed);
	if (staged.ncold > 0)
	{
		memory->packed[hot] = 0;	/* pads the hot ones */
		memcpy((char *) memory->packed + gpuvec_hot_bytes(hot), cold->numbers + cold->start[row],
			   staged.ncold * sizeof(uint32_t));
	}
	if (named)
		name_ids(&staged, names->ids, segment->sums != NULL, memory);
	if (segment->sums)
		name_values(&staged, segment, row, cold, named, memory);
	if (segment->nfilters > 0)
	{
		gpuvec_segment_filter_keys(segment, row, filter_keys);
		staged.filter_keys = filter_keys;
	}
	return gpuvec_stage_add(stage, &staged, false, error);
}

/* Stage the live rows of an entry, in the order of tid */
static bool
stage_entry(const gpuvec_view_entry *entry, const gpuvec_row_names *names, gpuvec_stage *stage,
			row_memory *memory, gpuvec_error *error)
{
	const gpuvec_segment *segment = entry->segment;
	gpuvec_segment readable = {
		.nrows = segment->nrows, .tile_chunk = segment->tile_chunk, .tid = segment->tid,
		.len = segment->len, .ids = segment->ids, .hot_len = segment->hot_len,
		.values = segment->values, .sums = segment->sums,
		.nfilters = segment->nfilters, .filters = segment->filters, .null_sets = segment->null_sets
	};
	bool		on_device = segment->ids == NULL;
	cold_numbers cold = {NULL, NULL, NULL};
	bool		with_null = gpuvec_stage_kind(stage).nfilters > 0;
	bool		ok = true;

	if (on_device)
		ok = read_back(segment, &readable, error);
	ok = ok && read_cold(segment, &cold, error);
	for (uint32_t i = 0; ok && i < segment->nrows; i++)
	{
		uint32_t	row = segment->by_tid[i];

		if (gpuvec_entry_live(entry, row) && (with_null || !gpuvec_null_set(segment, row)))
			ok = stage_row(&readable, row, &cold, names, stage, memory, error);
	}
	free_cold(&cold);
	if (on_device)
	{
		free(readable.ids);
		free(readable.values);
	}
	return ok;
}

bool
gpuvec_draft_unbuild(gpuvec_draft *draft, uint32_t first, const gpuvec_row_names *names,
					 gpuvec_stage *stage, gpuvec_error *error)
{
	row_memory *memory = malloc(sizeof(*memory));
	bool		ok = memory != NULL || gpuvec_fail_memory(error, sizeof(*memory));

	for (uint32_t i = first; ok && i < draft->n; i++)
		ok = stage_entry(&draft->entries[i], names, stage, memory, error);
	free(memory);
	while (ok && draft->n > first)
		free_entry(&draft->entries[--draft->n]);
	return ok;
}

bool
gpuvec_draft_build(gpuvec_draft *draft, gpuvec_stage *stage, const gpuvec_stage_target *target,
				   gpuvec_error *error)
{
	gpuvec_segment **segments;
	uint32_t	n;
	bool		ok = true;

	if (!gpuvec_stage_build(stage, target, &segments, &n, error))
		return false;
	for (uint32_t i = 0; i < n; i++)
	{
		if (ok)
			ok = add_entry(draft, segments[i], NULL, error);
		else
			gpuvec_segment_unref(segments[i]);
	}
	free(segments);
	return ok;
}

/*
 * Let the backend adopt the live maps that are new, on the devices that have
 * their segments
 */
static bool
adopt_new_maps(gpuvec_draft *draft, gpuvec_error *error)
{
	size_t		bytes = draft->n * sizeof(gpuvec_livemap *);
	gpuvec_livemap **maps = malloc(bytes + 1);
	uint32_t	n = 0;
	bool		ok;

	if (maps == NULL)
		return gpuvec_fail_memory(error, bytes);
	for (uint32_t i = 0; i < draft->n; i++)
	{
		gpuvec_livemap *live = draft->entries[i].live;

		if (live == NULL || live->backend != NULL)
			continue;
		live->child = draft->entries[i].segment->child;
		maps[n++] = live;
	}
	ok = draft->backend->adopt_livemaps(draft->backend, maps, n, error);
	free(maps);
	return ok;
}

gpuvec_view *
gpuvec_draft_finish(gpuvec_draft *draft, gpuvec_error *error)
{
	gpuvec_view *view;

	if (!adopt_new_maps(draft, error))
		return NULL;
	view = gpuvec_view_new(draft->entries, draft->n, error);
	if (view == NULL)
		return NULL;
	draft->n = 0;				/* the view has taken over the references */
	if (draft->backend->adopt_view(draft->backend, view, error))
		return view;
	gpuvec_view_unref(view);
	return NULL;
}
