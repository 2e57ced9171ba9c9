/*-------------------------------------------------------------------------
 *
 * resolved.c
 *	  Which rows of a table does a session see?  Decided once for all rows.
 *
 * A session tells what proves that it sees whole pages, and what it has
 * decided about single rows, in the order of their tids.  One pass over the
 * pages makes a bitmap of proven pages of that.  On the others, which come in
 * the same order as the verdicts, each row gets its verdict.  After that no
 * row needs more than a look at its slot, however many queries find it.  If
 * there are few verdicts for the rows of these pages, this would take longer
 * than to search the verdicts whenever such a row is found.
 *
 * Requests often come with the same visibility: the searches of a statement,
 * or of all sessions while nothing changes.  So the last one that was resolved
 * is kept with the table, as long as that is not changed.  Nothing is
 * published meanwhile, because requests hold the table's lock.
 *
 *-------------------------------------------------------------------------
 */
#include <stdlib.h>
#include <string.h>

#include "engine/embedding/embedding_query.h"

/* What was made from more verdicts is not kept: they would take 32 MB */
#define MOST_KEPT		((uint64_t) 4 * 1024 * 1024)

/* Rows for each verdict; if there are more, verdicts are few */
#define FEW_VERDICTS	16

/* Rows of a list of undecided ones, at first */
#define FIRST_CAPACITY		1024

static void
free_resolved(gpuvec_resolved *resolved)
{
	for (uint32_t i = 0; resolved->banks && i < resolved->nbanks; i++)
		free(resolved->banks[i].slots);
	free(resolved->banks);
	free(resolved->pages);
	free(resolved->map);
	free(resolved->verdicts);
	free(resolved);
}

void
gpuvec_resolved_unref(gpuvec_resolved *resolved)
{
	if (resolved && __atomic_sub_fetch(&resolved->refs, 1, __ATOMIC_ACQ_REL) == 0)
		free_resolved(resolved);
}

/* True if two arrays, which may be NULL if they are empty, have equal bytes */
static bool
equal_bytes(const void *a, const void *b, size_t bytes)
{
	return bytes == 0 || memcmp(a, b, bytes) == 0;
}

/*
 * The xmin, or a smaller one that proves as much: so it is not another one
 * with each transaction that ends
 */
static uint64_t
effective_xmin(const gpuvec_embedding_table *table, const gpuvec_visibility *visibility)
{
	return visibility->xmin <= table->numbers->newest ? visibility->xmin : table->numbers->newest + 1;
}

/* True if it was made from this visibility, and the table is what it was */
static bool
is_current(const gpuvec_embedding_table *table, const gpuvec_visibility *visibility,
		   const gpuvec_resolved *resolved)
{
	return resolved && resolved->version == table->version &&
		resolved->numbers == table->numbers &&
		resolved->xmin == effective_xmin(table, visibility) && resolved->known == visibility->known &&
		resolved->map_bytes == visibility->map_bytes && resolved->nverdicts == visibility->nverdicts &&
		equal_bytes(resolved->map, visibility->map, visibility->map_bytes) &&
		equal_bytes(resolved->verdicts, visibility->verdicts, visibility->nverdicts * sizeof(uint64_t));
}

/* A copy of an array; NULL on lack of memory */
static void *
copy_of(const void *from, size_t bytes)
{
	void	   *copy = malloc(bytes + 1);

	if (copy && bytes > 0)
		memcpy(copy, from, bytes);
	return copy;
}

/* Make the arrays of slots: nothing is decided yet */
static bool
make_slots(const gpuvec_embedding_table *table, gpuvec_resolved *resolved)
{
	resolved->banks = calloc(table->nbanks + (size_t) 1, sizeof(*resolved->banks));
	resolved->nbanks = table->nbanks;
	if (resolved->banks == NULL)
		return false;
	for (uint32_t i = 0; i < table->nbanks; i++)
	{
		const gpuvec_bank *bank = table->banks[i];

		resolved->banks[i].slots = copy_of(bank->live, bank->nlive);
		if (resolved->banks[i].slots == NULL)
			return false;
	}
	return true;
}

/* Allocate it, with what it is made from */
static gpuvec_resolved *
make_resolved(const gpuvec_embedding_table *table, const gpuvec_visibility *visibility)
{
	gpuvec_resolved *resolved = calloc(1, sizeof(*resolved));

	if (resolved == NULL)
		return NULL;
	resolved->refs = 1;
	resolved->version = table->version;
	resolved->numbers = table->numbers;
	resolved->xmin = effective_xmin(table, visibility);
	resolved->known = visibility->known;
	resolved->map_bytes = visibility->map_bytes;
	resolved->nverdicts = visibility->nverdicts;
	resolved->nblocks = table->nblocks;
	resolved->pages = calloc(table->nblocks / 32 + (size_t) 1, sizeof(uint32_t));
	resolved->keep = visibility->nverdicts <= MOST_KEPT;
	if (resolved->keep)
	{
		resolved->map = copy_of(visibility->map, visibility->map_bytes);
		resolved->verdicts = copy_of(visibility->verdicts, visibility->nverdicts * sizeof(uint64_t));
	}
	if (resolved->pages == NULL ||
		(resolved->keep && !(resolved->map && resolved->verdicts)))
	{
		free_resolved(resolved);
		return NULL;
	}
	return resolved;
}

/* The verdict about a row, of n ascending ones; NULL: there is none */
static const uint64_t *
find_verdict(const uint64_t *verdicts, uint64_t n, uint64_t tid)
{
	uint64_t	low = 0;
	uint64_t	high = n;

	while (low < high)
	{
		uint64_t	middle = (low + high) / 2;

		if (gpuvec_verdict_tid(verdicts[middle]) < tid)
			low = middle + 1;
		else
			high = middle;
	}
	return low < n && gpuvec_verdict_tid(verdicts[low]) == tid ? &verdicts[low] : NULL;
}

/*
 * True if the transactions that inserted the page's rows precede the
 * snapshot's xmin; or if the visibility map shows the page as all-visible, and
 * it was last read by a refresh that was known before the map was read (rule
 * A1)
 */
static bool
page_proven(const gpuvec_embedding_table *table, const gpuvec_visibility *visibility, uint32_t block)
{
	const gpuvec_page_numbers *numbers = table->numbers;

	return gpuvec_page_numbers_sees(numbers, block, visibility->xmin) ||
		(block < visibility->map_bytes * 4 && (visibility->map[block / 4] >> (block % 4 * 2) & 1) &&
		 block < numbers->nblocks && gpuvec_page_numbers_get(numbers, block) <= visibility->known);
}

gpuvec_seen
gpuvec_verdict_of(const gpuvec_visibility *visibility, uint64_t tid)
{
	const uint64_t *verdict = find_verdict(visibility->verdicts, visibility->nverdicts, tid);

	if (verdict == NULL)
		return GPUVEC_UNDECIDED;
	return *verdict & 1 ? GPUVEC_SEEN : GPUVEC_UNSEEN;
}

gpuvec_seen
gpuvec_embedding_sees(const gpuvec_embedding_table *table, const gpuvec_visibility *visibility, uint64_t tid)
{
	return page_proven(table, visibility, gpuvec_tid_block(tid)) ? GPUVEC_SEEN :
		gpuvec_verdict_of(visibility, tid);
}

/* Note a page all of whose rows are seen */
static void
note_page(gpuvec_resolved *resolved, uint32_t block)
{
	resolved->pages[block / 32] |= UINT32_C(1) << block % 32;
}

/* Note the pages that are proven, and count the others */
static void
note_pages(const gpuvec_embedding_table *table, const gpuvec_visibility *visibility,
		   gpuvec_resolved *resolved)
{
	for (uint32_t block = 0; block < table->nblocks; block++)
		if (page_proven(table, visibility, block))
			note_page(resolved, block);
		else
			resolved->nunproven += table->blocks[block] != GPUVEC_NO_VECTOR;
	for (uint64_t i = 0; i < visibility->nverdicts; i++)
		resolved->nunseen += (visibility->verdicts[i] & 1) == 0;
}

/*
 * Give the rows of a page that is not proven their verdicts.  If they are all
 * seen, it is as good as proven.
 */
static void
decide_page(const gpuvec_embedding_table *table, gpuvec_resolved *resolved, uint32_t block,
			const uint64_t *verdicts, uint64_t n)
{
	gpuvec_vector_ref ref = table->blocks[block];
	bool		all_seen = true;

	while (ref != GPUVEC_NO_VECTOR)
	{
		const gpuvec_vector_info *row = gpuvec_vector_at(table, ref);
		gpuvec_resolved_bank *bank = &resolved->banks[gpuvec_ref_bank(ref)];
		const uint64_t *verdict = find_verdict(verdicts, n, row->tid);
		bool		seen = verdict && (*verdict & 1);

		if (verdict)
			bank->slots[gpuvec_ref_slot(ref)] = seen ? GPUVEC_SLOT_SEEN : GPUVEC_SLOT_NONE;
		bank->nundecided += verdict == NULL;
		bank->nunseen += verdict && !seen;
		all_seen &= seen;
		ref = row->next_in_block;
	}
	if (all_seen)
	{
		note_page(resolved, block);
		resolved->nunproven--;
	}
}

/* Give the rows of all pages that are not proven their verdicts */
static void
decide_pages(const gpuvec_embedding_table *table, const gpuvec_visibility *visibility,
			 gpuvec_resolved *resolved)
{
	uint64_t	at = 0;

	for (uint32_t block = 0; block < table->nblocks; block++)
	{
		uint64_t	first = at;

		while (at < visibility->nverdicts &&
			   gpuvec_tid_block(gpuvec_verdict_tid(visibility->verdicts[at])) == block)
			at++;
		if (table->blocks[block] != GPUVEC_NO_VECTOR && !gpuvec_resolved_page(resolved, block))
			decide_page(table, resolved, block, visibility->verdicts + first, at - first);
	}
}

/* True if there are few verdicts for the rows of pages that are not proven */
static bool
few_verdicts(const gpuvec_embedding_table *table, const gpuvec_resolved *resolved)
{
	uint64_t	rows_of_page = table->nblocks > 0 ? table->nrows / table->nblocks + 1 : 0;

	return resolved->nverdicts < resolved->nunproven * rows_of_page / FEW_VERDICTS;
}

/* Resolve a visibility; NULL on lack of memory */
static gpuvec_resolved *
resolve(const gpuvec_embedding_table *table, const gpuvec_visibility *visibility)
{
	gpuvec_resolved *resolved = make_resolved(table, visibility);

	if (resolved == NULL)
		return NULL;
	note_pages(table, visibility, resolved);
	if (visibility->nverdicts == 0 || resolved->nunproven == 0 || few_verdicts(table, resolved))
		return resolved;
	if (!make_slots(table, resolved))
	{
		free_resolved(resolved);
		return NULL;
	}
	decide_pages(table, visibility, resolved);
	return resolved;
}

gpuvec_resolved *
gpuvec_resolve(gpuvec_embedding_table *table, const gpuvec_visibility *visibility, gpuvec_error *error)
{
	gpuvec_resolved *resolved;

	pthread_mutex_lock(&table->resolved_mutex);
	resolved = table->resolved;
	if (!is_current(table, visibility, resolved))
	{
		resolved = resolve(table, visibility);
		if (resolved && resolved->keep)
		{
			gpuvec_resolved_unref(table->resolved);
			table->resolved = resolved;
		}
	}
	if (resolved && resolved->keep)
		__atomic_add_fetch(&resolved->refs, 1, __ATOMIC_RELAXED);
	pthread_mutex_unlock(&table->resolved_mutex);
	if (resolved == NULL)
		gpuvec_fail_memory(error, table->nrows + visibility->nverdicts * sizeof(uint64_t));
	return resolved;
}

/* A list of tids */
typedef struct tid_list
{
	uint64_t   *tids;
	uint64_t	n;
	uint64_t	capacity;
} tid_list;

/* Add a tid behind those from `first` on that are smaller */
static bool
add_tid(tid_list *list, uint64_t first, uint64_t tid)
{
	uint64_t	at;

	if (list->n == list->capacity)
	{
		uint64_t	capacity = list->capacity ? list->capacity * 2 : FIRST_CAPACITY;
		uint64_t   *larger = realloc(list->tids, capacity * sizeof(*larger));

		if (larger == NULL)
			return false;
		list->tids = larger;
		list->capacity = capacity;
	}
	for (at = list->n++; at > first && list->tids[at - 1] > tid; at--)
		list->tids[at] = list->tids[at - 1];
	list->tids[at] = tid;
	return true;
}

/* Add the undecided rows of a page, of one bank or (UINT32_MAX) of all */
static bool
add_page(const gpuvec_embedding_table *table, const gpuvec_visibility *visibility,
		 const gpuvec_resolved *resolved, uint32_t block, uint32_t only, tid_list *list)
{
	gpuvec_vector_ref ref = table->blocks[block];
	uint64_t	first = list->n;

	while (ref != GPUVEC_NO_VECTOR)
	{
		const gpuvec_vector_info *row = gpuvec_vector_at(table, ref);

		if ((only == UINT32_MAX || gpuvec_ref_bank(ref) == only) &&
			gpuvec_resolved_sees(resolved, visibility, ref, row->tid) == GPUVEC_UNDECIDED &&
			!add_tid(list, first, row->tid))
			return false;
		ref = row->next_in_block;
	}
	return true;
}

bool
gpuvec_undecided_rows(const gpuvec_embedding_table *table, const gpuvec_visibility *visibility,
					  const gpuvec_resolved *resolved, uint32_t only, uint64_t most,
					  uint64_t **tids, uint64_t *n, gpuvec_error *error)
{
	tid_list	list = {0};
	bool		ok = true;

	for (uint32_t block = 0; ok && block < table->nblocks && resolved->nunproven > 0 &&
		 list.n <= most; block++)
		if (!gpuvec_resolved_page(resolved, block))
			ok = add_page(table, visibility, resolved, block, only, &list);
	*tids = list.tids;
	*n = list.n;
	if (ok && (list.n > 0 || list.tids == NULL))
		return true;
	free(list.tids);
	*tids = NULL;
	return ok || gpuvec_fail_memory(error, list.capacity * 2 * sizeof(uint64_t));
}
