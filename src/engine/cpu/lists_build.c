/*-------------------------------------------------------------------------
 *
 * lists_build.c
 *	  Making the inverted lists of a segment.
 *
 * This is a counting sort: one pass over the ids counts the rows of each id,
 * a second pass writes row numbers and bits.
 *
 *-------------------------------------------------------------------------
 */
#include <stdlib.h>
#include <string.h>

#include "engine/cpu/lists.h"

#define CHUNK_VALUES	(GPUVEC_TILE_ROWS * GPUVEC_CHUNK_IDS)

/* Tiles between two checks of the abandon flag */
#define ABANDON_TILES	64

/*
 * For an id in more than one row in 16, a bitmap is smaller than a list of
 * 16-bit row numbers
 */
#define SMALLER_BITMAP	16

const gpuvec_lists_policy gpuvec_lists_usual = {
	.least_rows = 8192, .least_ids = 2 * GPUVEC_MAX_IDS, .dense = 64, .share = 1.3
};

/*
 * Where the rows of an id are written.  Whether an id has a list or a bitmap
 * is unpredictable, and a mispredicted branch takes longer than writing to
 * both.  So every row is written to a list and to a bitmap.  One of these is
 * a dummy, behind all others, which nobody reads.  (65,537 bitmaps of 65,536
 * rows are half a gigabyte, so 32-bit positions suffice.)
 */
typedef struct id_target
{
	uint32_t	listed;			/* position in rows[] of the next row number */
	uint32_t	bitmap;			/* position in bitmaps[] of the id's bitmap */
} id_target;

/* State while the lists of a segment are made */
typedef struct lists_making
{
	const gpuvec_segment *segment;
	const gpuvec_lists_policy *policy;
	cpu_lists  *lists;
	const int  *abandon;
	uint32_t	most;			/* ids in more rows than this get bitmaps */
	uint32_t	nlisted;		/* entries of rows[] */
	uint32_t	no_bitmap;		/* position of the dummy bitmap */
	uint32_t	count[GPUVEC_MAX_IDS];	/* number of rows of each id */
	id_target	target[GPUVEC_MAX_IDS];
} lists_making;

/*
 * Bytes of a bitmap of nrows rows: an odd number of lines, so that the
 * bitmaps of different ids do not map to the same sets of the cache
 */
static uint32_t
bitmap_stride(uint32_t nrows)
{
	return ((nrows + LISTS_LINE_ROWS - 1) / LISTS_LINE_ROWS | 1) * LISTS_LINE_BYTES;
}

/* Number of entries of row_len */
static uint32_t
row_lens(uint32_t nrows)
{
	return (nrows + LISTS_LINE_ROWS - 1) / LISTS_LINE_ROWS * (LISTS_LINE_ROWS / LISTS_LEN_ROWS) + 1;
}

/*
 * Call each(m, row, id) for all ids, in the order of rows.  False if
 * abandoned.
 */
static inline __attribute__((always_inline))
bool
for_each_id(lists_making *m, void (*each) (lists_making *, uint32_t, uint16_t))
{
	const gpuvec_segment *segment = m->segment;

	for (uint32_t tile = 0; tile < segment->ntiles; tile++)
	{
		uint32_t	row = tile * GPUVEC_TILE_ROWS;
		uint32_t	end = row + GPUVEC_TILE_ROWS < segment->nrows ?
			row + GPUVEC_TILE_ROWS : segment->nrows;
		const uint16_t *ids = segment->ids + (size_t) segment->tile_chunk[tile] * CHUNK_VALUES;

		if (tile % ABANDON_TILES == 0 && __atomic_load_n(m->abandon, __ATOMIC_RELAXED))
			return false;
		for (; row < end; row++, ids += GPUVEC_CHUNK_IDS)
		{
			const uint16_t *chunk = ids;
			uint32_t	left = gpuvec_hot_len(segment, row);

			for (; left >= GPUVEC_CHUNK_IDS; left -= GPUVEC_CHUNK_IDS, chunk += CHUNK_VALUES)
				for (uint32_t i = 0; i < GPUVEC_CHUNK_IDS; i++)
					each(m, row, chunk[i]);
			for (uint32_t i = 0; i < left; i++)
				each(m, row, chunk[i]);
		}
	}
	return true;
}

static inline __attribute__((always_inline))
void
count_id(lists_making *m, uint32_t row, uint16_t id)
{
	(void) row;
	m->count[id]++;
}

static inline __attribute__((always_inline))
void
enter_id(lists_making *m, uint32_t row, uint16_t id)
{
	id_target  *target = &m->target[id];
	uint32_t	bitmap = target->bitmap;

	m->lists->rows[target->listed] = (uint16_t) row;
	target->listed += bitmap == m->no_bitmap;
	m->lists->bitmaps[bitmap + row / 8] |= (uint8_t) (1 << (row % 8));
}

/*
 * True if an id gets a bitmap.  The highest possible id, if it occurs, always
 * does: so a row is in at most 65535 lists, which 16-bit counters can count.
 */
static inline bool
has_bitmap(const lists_making *m, uint32_t id)
{
	return m->count[id] > m->most || (id == GPUVEC_MAX_ID && m->count[id] > 0);
}

/*
 * Compute the number of bitmaps and the size of rows[]; returns the bytes of
 * all lists and bitmaps
 */
static size_t
measure_lists(lists_making *m)
{
	cpu_lists  *lists = m->lists;

	lists->nbitmaps = 0;
	m->nlisted = 0;
	for (uint32_t id = lists->first_id; id < lists->end_id; id++)
	{
		bool		bitmap = has_bitmap(m, id);

		lists->nbitmaps += bitmap;
		/* rows[] holds the number of each bitmap in place of a list */
		m->nlisted += bitmap ? 1 : m->count[id];
	}
	return sizeof(*lists) + (size_t) (lists->end_id - lists->first_id + 1) * sizeof(uint32_t) +
		row_lens(lists->nrows) * sizeof(uint32_t) +
		(size_t) m->nlisted * sizeof(uint16_t) + ((size_t) lists->nbitmaps + 1) * lists->stride;
}

/*
 * Choose which ids get bitmaps: those in more rows than the policy says, or
 * fewer ids if that takes more than the policy's share of memory
 */
static void
choose_bitmaps(lists_making *m)
{
	size_t		share = (size_t) (m->policy->share *
								  (double) (gpuvec_segment_hot(m->segment) * sizeof(uint16_t)));

	for (uint32_t dense = m->policy->dense;; dense /= 2)
	{
		m->most = m->lists->nrows / dense;
		m->lists->bytes = measure_lists(m);
		if (m->lists->bytes <= share || dense <= SMALLER_BITMAP)
			break;
	}
}

/* Find the range of ids that occur */
static void
find_range(lists_making *m)
{
	cpu_lists  *lists = m->lists;

	lists->end_id = GPUVEC_MAX_IDS;
	while (lists->end_id > 0 && m->count[lists->end_id - 1] == 0)
		lists->end_id--;
	while (lists->first_id < lists->end_id && m->count[lists->first_id] == 0)
		lists->first_id++;
}

static bool
allocate_lists(lists_making *m)
{
	cpu_lists  *lists = m->lists;
	size_t		size = ((size_t) lists->nbitmaps + 1) * lists->stride;

	lists->start = malloc((lists->end_id - lists->first_id + 1) * sizeof(uint32_t));
	lists->row_len = malloc(row_lens(lists->nrows) * sizeof(uint32_t));
	lists->rows = malloc(((size_t) m->nlisted + 1) * sizeof(uint16_t));
	lists->bitmaps = aligned_alloc(LISTS_LINE_BYTES, size);
	if (!lists->start || !lists->row_len || !lists->rows || !lists->bitmaps)
		return false;
	memset(lists->bitmaps, 0, size);
	return true;
}

/* Assign each id its list or bitmap, and fill row_len */
static void
lay_out(lists_making *m)
{
	cpu_lists  *lists = m->lists;
	uint32_t	next = 0;
	uint32_t	nbitmaps = 0;

	m->no_bitmap = lists->nbitmaps * lists->stride;
	for (uint32_t id = lists->first_id; id < lists->end_id; id++)
	{
		uint32_t   *start = &lists->start[id - lists->first_id];
		uint32_t	n = m->count[id];

		*start = next;
		if (has_bitmap(m, id))
		{
			*start |= LISTS_BITMAP;
			m->target[id].listed = m->nlisted;
			m->target[id].bitmap = nbitmaps * lists->stride;
			lists->rows[next++] = (uint16_t) nbitmaps++;
		}
		else
		{
			m->target[id].listed = next;
			m->target[id].bitmap = m->no_bitmap;
			next += n;
			if (n > lists->longest)
				lists->longest = n;
		}
	}
	lists->start[lists->end_id - lists->first_id] = next;

	for (uint32_t i = 0; i < row_lens(lists->nrows); i++)
	{
		uint32_t	row = i * LISTS_LEN_ROWS;

		lists->row_len[i] = row < lists->nrows ? m->segment->len[row] : m->segment->maxlen;
	}
}

/* Fill in m->lists.  False if out of memory or abandoned. */
static bool
make_lists(lists_making *m)
{
	if (!for_each_id(m, count_id))
		return false;
	find_range(m);
	choose_bitmaps(m);
	if (!allocate_lists(m))
		return false;
	lay_out(m);
	return for_each_id(m, enter_id);
}

size_t
lists_budget(const gpuvec_segment *segment, const gpuvec_lists_policy *policy)
{
	/* they would not help searches by values */
	if (segment->sums || segment->nrows < policy->least_rows ||
		gpuvec_segment_hot(segment) < policy->least_ids)
		return 0;
	return (size_t) (policy->share *
					 (double) (gpuvec_segment_hot(segment) * sizeof(uint16_t))) +
		sizeof(cpu_lists) + (GPUVEC_MAX_IDS + 1 + row_lens(segment->nrows)) * sizeof(uint32_t);
}

cpu_lists *
lists_build(const gpuvec_segment *segment, const gpuvec_lists_policy *policy, const int *abandon)
{
	lists_making *m = calloc(1, sizeof(*m));
	cpu_lists  *lists = calloc(1, sizeof(*lists));
	bool		ok = m != NULL && lists != NULL;

	if (ok)
	{
		lists->nrows = segment->nrows;
		lists->stride = bitmap_stride(segment->nrows);
		m->segment = segment;
		m->policy = policy;
		m->lists = lists;
		m->abandon = abandon;
		ok = make_lists(m);
	}
	free(m);
	if (ok)
		return lists;
	lists_free(lists);
	return NULL;
}

void
lists_free(cpu_lists *lists)
{
	if (lists == NULL)
		return;
	free(lists->start);
	free(lists->rows);
	free(lists->row_len);
	free(lists->bitmaps);
	free(lists);
}
