/*-------------------------------------------------------------------------
 *
 * stage.c
 *	  The stage: rows that wait to be sorted and built into segments.
 *
 * Segments hold rows in the order of (length, tid), but pages bring them in
 * the order of tid.  So rows are staged in classes by length.  Each length
 * below OWN_CLASSES has a class; longer lengths share classes by ranges.  A
 * class is a list of chunks.  The rows of a class of one length are in order
 * as they come.  The other classes are sorted one at a time.  So no array of
 * all rows is ever made, and chunks are freed as soon as their segments are
 * built: at its peak a load takes little more memory than the segments.
 *
 * The first FIRST_ROWS rows are kept in one array, whatever their lengths.
 * An update often has no more rows, and sorting so few rows is faster than
 * spreading them over classes.  If their ids stay valid, they are not copied.
 *
 * When much has been staged, chunks are cut from blocks of the size of a huge
 * page.  The chunks of a block belong to a few neighboring classes, so a
 * block too can be freed soon after its first row went to a segment.
 *
 * A staged row is a header of 8 bytes and its ids, padded to a multiple of 4
 * bytes.  If some are cold, their number comes between.  Values follow, and
 * the filter keys of filter columns come last.
 *
 * Rows are staged with their ids as the pages have them, where ids of 16 bits
 * count as hot.  If the mirror has numbers for ids, the rows get these before
 * segments are built (renumber.c).
 *
 *-------------------------------------------------------------------------
 */
#include <stdlib.h>
#include <string.h>

#include "engine/host_memory.h"
#include "engine/sets/stage_layout.h"

/*
 * Bytes of the first chunk of a class (FIRST_ROWS_CHUNK: of the class of the
 * first rows).  Each next chunk is 4 times as large, up to LAST_CHUNK.
 */
#define FIRST_CHUNK		((size_t) 8 * 1024)
#define FIRST_ROWS_CHUNK	((size_t) 32 * 1024)
#define LAST_CHUNK		((size_t) 512 * 1024)

/*
 * Bytes of a chunk that is cut from a block.  This starts when the stage has
 * BLOCKS_FROM bytes in all, and the group of classes has GROUP_FROM bytes in
 * chunks of their own.
 */
#define PIECE			((size_t) 64 * 1024)
#define BLOCKS_FROM		((size_t) 16 * 1024 * 1024)
#define GROUP_FROM		((size_t) 1024 * 1024)

gpuvec_stage *
gpuvec_stage_new(gpuvec_row_kind kind)
{
	gpuvec_stage *stage = calloc(1, sizeof(gpuvec_stage));

	if (stage)
		stage->kind = kind;
	return stage;
}

/* A chunk of a block is freed; the last one frees the block */
static void
leave_block(gpuvec_stage *stage, stage_block *b)
{
	if (__atomic_sub_fetch(&b->nchunks, 1, __ATOMIC_ACQ_REL) > 0)
		return;
	if (stage->open[b->group] == b)
		stage->open[b->group] = NULL;
	__atomic_sub_fetch(&stage->bytes, sizeof(*b) + GPUVEC_HUGE_PAGE, __ATOMIC_RELAXED);
	free(b->memory);
	free(b);
}

void
gpuvec_stage_free_chunks(gpuvec_stage *stage, stage_chunk *c)
{
	while (c)
	{
		stage_chunk *next = c->next;

		if (c->block)
			leave_block(stage, c->block);
		else
		{
			__atomic_sub_fetch(&stage->bytes, sizeof(*c) + c->size, __ATOMIC_RELAXED);
			free(c);
		}
		c = next;
	}
}

void
gpuvec_stage_free(gpuvec_stage *stage)
{
	if (stage == NULL)
		return;
	for (int i = 0; i <= NCLASSES; i++)
		gpuvec_stage_free_chunks(stage, stage->classes[i].first);
	free(stage->first);
	free(stage);
}

uint64_t
gpuvec_stage_rows(const gpuvec_stage *stage)
{
	return stage->nrows;
}

uint64_t
gpuvec_stage_lent(const gpuvec_stage *stage)
{
	return stage->lent;
}

size_t
gpuvec_stage_bytes(const gpuvec_stage *stage)
{
	return stage->bytes;
}

size_t
gpuvec_stage_estimate(const gpuvec_stage *stage)
{
	return stage->estimate;
}

/* The class of a length */
static int
class_of(uint32_t len)
{
	int			octave;

	if (len < OWN_CLASSES)
		return (int) len;
	octave = 31 - __builtin_clz(len);
	return OWN_CLASSES + (octave - 8) * 16 + (int) (len >> (octave - 4) & 15);
}

/* A new block for a group of classes */
static stage_block *
new_block(gpuvec_stage *stage, int group)
{
	stage_block *b = calloc(1, sizeof(*b));

	if (b == NULL)
		return NULL;
	b->group = group;
	b->memory = gpuvec_memory_new(GPUVEC_HUGE_PAGE);
	if (b->memory == NULL)
	{
		free(b);
		return NULL;
	}
	stage->bytes += sizeof(*b) + GPUVEC_HUGE_PAGE;
	stage->open[group] = b;
	return b;
}

/* Cut a chunk from the group's block, or from a new one */
static stage_chunk *
cut_chunk(gpuvec_stage *stage, int group)
{
	stage_block *b = stage->open[group];
	stage_chunk *c;

	if (b == NULL || b->used == GPUVEC_HUGE_PAGE)
		b = new_block(stage, group);
	if (b == NULL)
		return NULL;
	c = (stage_chunk *) (b->memory + b->used);
	memset(c, 0, sizeof(*c));
	c->block = b;
	c->size = PIECE - sizeof(*c);
	b->used += PIECE;
	b->nchunks++;
	return c;
}

/* Allocate a chunk with memory of its own */
static stage_chunk *
allocate_chunk(gpuvec_stage *stage, int group, size_t size)
{
	stage_chunk *c = malloc(sizeof(*c) + size);

	if (c == NULL)
		return NULL;
	memset(c, 0, sizeof(*c));
	c->size = size;
	stage->bytes += sizeof(*c) + size;
	stage->own[group] += size;
	return c;
}

/* Append a chunk with room for `bytes` to a class */
static stage_chunk *
new_chunk(gpuvec_stage *stage, row_class *class, size_t bytes, gpuvec_error *error)
{
	int			group = (int) (class - stage->classes) / GROUP;
	stage_chunk *last = class->last;
	size_t		size = last != NULL ? last->size * 4 :
		class == &stage->classes[FIRST_CLASS] ? FIRST_ROWS_CHUNK : FIRST_CHUNK;
	stage_chunk *c;

	if (size > LAST_CHUNK)
		size = LAST_CHUNK;
	if (size < bytes)
		size = bytes;
	if (last != NULL && stage->bytes >= BLOCKS_FROM && stage->own[group] >= GROUP_FROM &&
		bytes <= PIECE - sizeof(*c))
		c = cut_chunk(stage, group);
	else
		c = allocate_chunk(stage, group, size);
	if (c == NULL)
	{
		gpuvec_fail_memory(error, size);
		return NULL;
	}
	if (last)
		last->next = c;
	else
		class->first = c;
	class->last = c;
	return c;
}

/* Room for a row at the end of a class */
static inline staged_row *
new_row(gpuvec_stage *stage, row_class *class, size_t bytes, gpuvec_error *error)
{
	stage_chunk *c = class->last;
	staged_row *row;

	if (c == NULL || c->size - c->used < bytes)
		c = new_chunk(stage, class, bytes, error);
	if (c == NULL)
		return NULL;
	row = (staged_row *) (c->data + c->used);
	c->used += bytes;
	c->nrows++;
	return row;
}

/* Add a copy of a row to a class */
static bool
add_row(gpuvec_stage *stage, row_class *class, const gpuvec_source_row *from, gpuvec_error *error)
{
	size_t		bytes = staged_bytes(from->len, from->ncold, stage->kind.values) +
		gpuvec_filter_bytes(stage->kind.nfilters);
	staged_row *row = new_row(stage, class, bytes, error);

	if (row == NULL)
		return false;
	write_row(row, from, stage->kind);
	class->unsorted |= class->nrows > 0 && from->tid <= class->last_tid;
	class->last_tid = from->tid;
	class->nrows++;
	return true;
}

/* Enlarge the array of the first rows */
static bool
reserve_first(gpuvec_stage *stage, gpuvec_error *error)
{
	uint64_t	capacity = stage->first_capacity ? stage->first_capacity * 2 : FIRST_CAPACITY;
	gpuvec_source_row *first = realloc(stage->first, capacity * sizeof(*first));

	if (first == NULL)
		return gpuvec_fail_memory(error, capacity * sizeof(*first));
	stage->bytes += (capacity - stage->first_capacity) * sizeof(*first);
	stage->first = first;
	stage->first_capacity = capacity;
	return true;
}

/* Detach the array of the first rows; the caller frees it */
static gpuvec_source_row *
take_first(gpuvec_stage *stage)
{
	gpuvec_source_row *first = stage->first;

	stage->bytes -= stage->first_capacity * sizeof(*first);
	stage->first = NULL;
	stage->first_capacity = 0;
	return first;
}

/* Add one of the first rows; what it points to is copied unless `last` */
static bool
add_first(gpuvec_stage *stage, const gpuvec_source_row *from, bool last, gpuvec_error *error)
{
	row_class  *class = &stage->classes[FIRST_CLASS];
	size_t		bytes = staged_bytes(from->len, from->ncold, stage->kind.values);
	gpuvec_source_row row = *from;

	if (class->nrows == stage->first_capacity && !reserve_first(stage, error))
		return false;
	if (!last)
	{
		staged_row *copy = new_row(stage, class, bytes + gpuvec_filter_bytes(stage->kind.nfilters), error);

		if (copy == NULL)
			return false;
		copy_ids(copy + 1, from, stage->kind.values);
		row.ids = (const uint16_t *) (copy + 1);
		if (copy_filter_keys((char *) copy + bytes, from, stage->kind.nfilters) > 0)
			row.filter_keys = (char *) copy + bytes;
	}
	stage->lent += last;
	stage->first[class->nrows++] = row;
	return true;
}

/* Done when more rows come, or those of another stage */
bool
gpuvec_stage_spread(gpuvec_stage *stage, gpuvec_error *error)
{
	row_class  *class = &stage->classes[FIRST_CLASS];

	for (uint64_t i = 0; i < class->nrows; i++)
	{
		const gpuvec_source_row *row = &stage->first[i];

		if (!add_row(stage, &stage->classes[class_of(row->len)], row, error))
			return false;
	}
	free(take_first(stage));
	gpuvec_stage_free_chunks(stage, class->first);
	memset(class, 0, sizeof(*class));
	stage->lent = 0;
	stage->spread = true;
	return true;
}

bool
gpuvec_stage_add(gpuvec_stage *stage, const gpuvec_source_row *row, bool last,
				 gpuvec_error *error)
{
	if (stage->nrows == FIRST_ROWS && !stage->spread && !gpuvec_stage_spread(stage, error))
		return false;
	if (!(stage->spread ? add_row(stage, &stage->classes[class_of(row->len)], row, error) :
		  add_first(stage, row, last, error)))
		return false;
	stage->nrows++;
	stage->ncold += row->ncold;
	stage->estimate += segment_bytes(row, stage->kind);
	return true;
}

gpuvec_row_kind
gpuvec_stage_kind(const gpuvec_stage *stage)
{
	return stage->kind;
}

uint64_t
gpuvec_stage_cold(const gpuvec_stage *stage)
{
	return stage->ncold;
}
