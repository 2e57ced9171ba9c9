/*-------------------------------------------------------------------------
 *
 * lists_build.c
 *	  Making the inverted lists of a segment.
 *
 * A counting sort: one pass over the ids counts the rows of each, a second one
 * writes row numbers and bits.
 *
 *-------------------------------------------------------------------------
 */
#include <stdlib.h>
#include <string.h>

#include "engine/cpu/lists.h"

#define CHUNK_VALUES	(GPUVEC_TILE_ROWS * GPUVEC_CHUNK_IDS)

/* Tiles between two looks at the abandon flag */
#define ABANDON_TILES	64

lists_tuning gpuvec_lists_tuning = {.least_rows = 16384,.dense = 64,.share = 1.3};

/* A build on its way */
typedef struct lists_builder
{
	const gpuvec_segment *segment;
	cpu_lists  *lists;
	const int  *abandon;
	uint32_t	count[GPUVEC_MAX_IDS];	/* rows of each id, then places in rows[] */
	uint32_t	bitmap[GPUVEC_MAX_IDS]; /* 1 + number of an id's bitmap, or 0 */
} lists_builder;

/* Bytes of a bitmap of so many rows; an odd number of lines, so that the bitmaps of
 * several ids do not fall on the same sets of the cache */
static uint32_t
bitmap_stride(uint32_t nrows)
{
	return ((nrows + LISTS_LINE_ROWS - 1) / LISTS_LINE_ROWS | 1) * LISTS_LINE_BYTES;
}

/* Entries of row_len */
static uint32_t
row_lens(uint32_t nrows)
{
	return (nrows + LISTS_LINE_ROWS - 1) / LISTS_LINE_ROWS * (LISTS_LINE_ROWS / LISTS_LEN_ROWS) + 1;
}

static inline bool
abandoned(const lists_builder *builder)
{
	return __atomic_load_n(builder->abandon, __ATOMIC_RELAXED) != 0;
}

/* Call each(builder, row, id) for all ids, by ascending rows.  False: abandoned. */
static inline __attribute__((always_inline)) bool
for_each_id(lists_builder *builder, void (*each) (lists_builder *, uint32_t, uint16_t))
{
	const gpuvec_segment *segment = builder->segment;

	for (uint32_t tile = 0; tile < segment->ntiles; tile++)
	{
		uint32_t	row = tile * GPUVEC_TILE_ROWS;
		uint32_t	end = row + GPUVEC_TILE_ROWS < segment->nrows ?
			row + GPUVEC_TILE_ROWS : segment->nrows;
		const uint16_t *ids = segment->ids + (size_t) segment->tile_chunk[tile] * CHUNK_VALUES;

		if (tile % ABANDON_TILES == 0 && abandoned(builder))
			return false;
		for (; row < end; row++, ids += GPUVEC_CHUNK_IDS)
		{
			const uint16_t *chunk = ids;
			uint32_t	left = segment->len[row];

			for (; left >= GPUVEC_CHUNK_IDS; left -= GPUVEC_CHUNK_IDS, chunk += CHUNK_VALUES)
				for (uint32_t i = 0; i < GPUVEC_CHUNK_IDS; i++)
					each(builder, row, chunk[i]);
			for (uint32_t i = 0; i < left; i++)
				each(builder, row, chunk[i]);
		}
	}
	return true;
}

static inline void
count_id(lists_builder *builder, uint32_t row, uint16_t id)
{
	(void) row;
	builder->count[id]++;
}

static inline void
place_id(lists_builder *builder, uint32_t row, uint16_t id)
{
	cpu_lists  *lists = builder->lists;
	uint32_t	bitmap = builder->bitmap[id];

	if (bitmap == 0)
		lists->rows[builder->count[id]++] = (uint16_t) row;
	else
		lists->bitmaps[(size_t) (bitmap - 1) * lists->stride + row / 8] |= (uint8_t) (1 << (row % 8));
}

/* What would the lists take if ids in more than `most` rows had bitmaps? */
static size_t
lists_size(const lists_builder *builder, uint32_t most, uint32_t *nbitmaps, uint32_t *nlisted)
{
	const cpu_lists *lists = builder->lists;

	*nbitmaps = 0;
	*nlisted = 0;
	for (uint32_t id = lists->first_id; id < lists->end_id; id++)
	{
		if (builder->count[id] > most)
			(*nbitmaps)++;
		else
			*nlisted += builder->count[id];
	}
	*nlisted += *nbitmaps;		/* the numbers of the bitmaps stand among the lists */
	return sizeof(*lists) + (size_t) (lists->end_id - lists->first_id + 1) * sizeof(uint32_t) +
		row_lens(lists->nrows) * sizeof(uint32_t) + (size_t) *nlisted * sizeof(uint16_t) +
		(size_t) *nbitmaps * lists->stride;
}

/*
 * Which ids get bitmaps?  Those in more rows than the tuning says, or fewer if
 * memory lacks: a bitmap is smaller than a list from one row in 16 on.
 */
static uint32_t
choose_most(const lists_builder *builder, uint32_t *nbitmaps, uint32_t *nlisted)
{
	uint32_t	dense = gpuvec_lists_tuning.dense;
	size_t		budget = lists_budget(builder->segment);

	for (;; dense /= 2)
	{
		uint32_t	most = builder->lists->nrows / dense;
		size_t		bytes = lists_size(builder, most, nbitmaps, nlisted);

		if (bytes <= budget || dense <= 16)
		{
			builder->lists->bytes = bytes;
			return most;
		}
	}
}

/* Allocate the arrays, fill start[], and leave in count[] where lists begin */
static bool
lay_out(lists_builder *builder)
{
	cpu_lists  *lists = builder->lists;
	uint32_t	nlisted;
	uint32_t	nbitmaps;
	uint32_t	most;
	uint32_t	place = 0;
	size_t		size;

	while (lists->first_id < GPUVEC_MAX_ID && builder->count[lists->first_id] == 0)
		lists->first_id++;
	lists->end_id = GPUVEC_MAX_IDS;
	while (lists->end_id > lists->first_id && builder->count[lists->end_id - 1] == 0)
		lists->end_id--;
	most = choose_most(builder, &nbitmaps, &nlisted);
	size = (size_t) nbitmaps * lists->stride;
	lists->start = malloc((lists->end_id - lists->first_id + 1) * sizeof(uint32_t));
	lists->rows = malloc(((size_t) nlisted + 1) * sizeof(uint16_t));
	lists->bitmaps = aligned_alloc(LISTS_LINE_BYTES, size > 0 ? size : LISTS_LINE_BYTES);
	lists->row_len = malloc(row_lens(lists->nrows) * sizeof(uint32_t));
	if (lists->row_len == NULL || lists->start == NULL || lists->rows == NULL || lists->bitmaps == NULL)
		return false;
	memset(lists->bitmaps, 0, size);
	for (uint32_t i = 0; i < row_lens(lists->nrows); i++)
	{
		uint32_t	row = i * LISTS_LEN_ROWS;

		lists->row_len[i] = row < lists->nrows ? builder->segment->len[row] : builder->segment->maxlen;
	}

	for (uint32_t id = lists->first_id; id < lists->end_id; id++)
	{
		uint32_t	n = builder->count[id];

		lists->start[id - lists->first_id] = place;
		builder->count[id] = place;
		if (n > most)
		{
			lists->start[id - lists->first_id] |= LISTS_BITMAP;
			lists->rows[place++] = (uint16_t) lists->nbitmaps++;
			builder->bitmap[id] = lists->nbitmaps;
		}
		else
			place += n;
	}
	lists->start[lists->end_id - lists->first_id] = place;
	return true;
}

size_t
lists_budget(const gpuvec_segment *segment)
{
	if (segment->nrows < gpuvec_lists_tuning.least_rows)
		return 0;
	return (size_t) (gpuvec_lists_tuning.share * (double) (segment->nids * sizeof(uint16_t)));
}

cpu_lists *
lists_build(const gpuvec_segment *segment, const int *abandon)
{
	lists_builder *builder = calloc(1, sizeof(*builder));
	cpu_lists  *lists = calloc(1, sizeof(*lists));
	bool		ok = builder != NULL && lists != NULL;

	if (ok)
	{
		lists->nrows = segment->nrows;
		lists->stride = bitmap_stride(segment->nrows);
		*builder = (lists_builder) {.segment = segment,.lists = lists,.abandon = abandon};
		ok = for_each_id(builder, count_id) && lay_out(builder) && for_each_id(builder, place_id);
	}
	free(builder);
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
