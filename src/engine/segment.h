/*-------------------------------------------------------------------------
 *
 * segment.h
 *	  Segments: immutable groups of rows in the layout that the scans read.
 *
 * A segment holds up to GPUVEC_SEGMENT_ROWS rows, sorted by (number of ids,
 * tid).  32 consecutive rows form a tile.  A tile's ids are swizzled: ids 0-7
 * of its 32 rows, then ids 8-15 of its 32 rows, and so on up to the length of
 * its longest row.  So a warp's 16-byte loads are contiguous.  Chunk c (ids
 * 8c .. 8c+7) of row r of tile t starts at
 *
 *		ids[((tile_chunk[t] + c) * 32 + r) * 8]
 *
 * Entries beyond a row's ids hold 0, and so do all entries of the rows that
 * pad the last tile.  A scan must not count them: they are padding, but 0 is
 * also a valid id.
 *
 * Tiles have ids of 16 bits.  A mirror of larger ids gives each id a number
 * (sets/id_numbers.h), and its segments hold numbers instead of ids.
 * Numbers below GPUVEC_HOT_NUMBERS are hot: they lie in the tiles.  Those of
 * all other numbers, the cold ones, lie in the segment's cold postings:
 * pairs of a number and a row that has it, sorted by number, then row.  All
 * postings whose numbers have the same upper 16 bits are a group, and have
 * only the lower ones themselves.  A row's length counts both.  So tiles may
 * have fewer chunks than lengths tell, and fewer for a later tile than for an
 * earlier one.  A segment without cold numbers has no postings, and its rows'
 * hot lengths are their lengths.
 *
 * Rows of sparse vectors have a value for each id.  Those of hot numbers lie
 * beside the tiles' ids, in the same layout; padding has the value 0, which
 * no id has.  Those of cold numbers lie beside the postings.
 *
 * Views share segments and live maps by reference counting.  The last release
 * frees the host memory and, through the backend, the device memory.
 *
 *-------------------------------------------------------------------------
 */
#ifndef GPUVEC_SEGMENT_H
#define GPUVEC_SEGMENT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/bounds.h"
#include "engine/engine_error.h"
#include "engine/filter_column.h"

typedef struct gpuvec_backend gpuvec_backend;

#ifdef __cplusplus
extern "C"
{
#endif

/* What the rows of a mirror have besides ids; 0: nothing */
typedef struct gpuvec_row_kind
{
	uint32_t	nfilters;		/* filter columns */
	bool		values;			/* one for each id */
} gpuvec_row_kind;

/* Sums of a row's values, added up in ascending order of its ids */
typedef struct gpuvec_row_sums
{
	double		square;			/* of their squares */
	double		sum;			/* of themselves; -1: one is negative */
} gpuvec_row_sums;

/*
 * A row from which a segment is built; the caller owns ids: len - ncold hot
 * numbers, padded to 4 bytes, then ncold cold numbers, uint32_t.  Each
 * partition is ascending and distinct.  The pointer need not be aligned to 4
 * bytes.
 *
 * If rows have values, a gpuvec_row_sums follows, then a float for each number
 * in the same order; none is aligned.  Also of a row without ids.
 *
 * If the mirror has filter columns, filter_keys[] has the row's
 * (core/filter.h); not aligned, either.  A row whose set is null has no ids.
 */
typedef struct gpuvec_source_row
{
	uint64_t	tid;
	uint32_t	len;			/* of all numbers */
	uint32_t	ncold;			/* how many of them are cold */
	const uint16_t *ids;
	const void *filter_keys;	/* gpuvec_filter_keys() of uint64_t, or NULL */
} gpuvec_source_row;

/* Bytes of a row's hot numbers, padded to 4 bytes, and of all its numbers */
#define gpuvec_hot_bytes(len)	(((size_t) (len) * sizeof(uint16_t) + 3) & ~(size_t) 3)
#define gpuvec_packed_bytes(len, ncold) \
	(gpuvec_hot_bytes((len) - (ncold)) + (size_t) (ncold) * sizeof(uint32_t))

/* Bytes of the sums and values that follow a row's ids */
#define gpuvec_values_bytes(len) \
	(sizeof(gpuvec_row_sums) + (size_t) (len) * sizeof(float))

/* Where they are; not aligned */
static inline const char *
gpuvec_source_sums(const gpuvec_source_row *row)
{
	return (const char *) row->ids + gpuvec_packed_bytes(row->len, row->ncold);
}

static inline const char *
gpuvec_source_values(const gpuvec_source_row *row)
{
	return gpuvec_source_sums(row) + sizeof(gpuvec_row_sums);
}

/* Cold postings of numbers with the same upper half */
typedef struct gpuvec_cold_group
{
	uint32_t	upper;			/* number >> 16 */
	uint32_t	start;			/* its first posting */
} gpuvec_cold_group;

/* Some cold postings: from first on, before end */
typedef struct gpuvec_cold_run
{
	uint64_t	first;
	uint64_t	end;
} gpuvec_cold_run;

typedef struct gpuvec_segment
{
	int			refs;			/* changed by __atomic builtins only */
	uint32_t	nrows;
	uint32_t	ntiles;
	uint32_t	minlen;			/* ids of the shortest row */
	uint32_t	maxlen;			/* ids of the longest row */
	uint64_t	nids;			/* ids of all rows */
	uint64_t	ncold;			/* how many of them are cold */
	uint64_t	first_tid;		/* lowest tid */
	uint64_t	last_tid;		/* highest tid */
	uint64_t	nchunks;		/* chunks of all tiles; a chunk is 32 * 16
								 * bytes */
	bool		sorted;			/* one of several into which many rows were
								 * sorted at once, so its range of lengths is
								 * narrow; or the only one */
	uint32_t	partition_bits; /* of rows of several mirrors, which their
								 * tids tell: bits that the numbers of these
								 * take; 0: of one mirror */

	uint64_t   *tid;			/* [nrows] */
	uint32_t   *len;			/* [nrows], ascending */
	uint16_t   *by_tid;			/* [nrows] row numbers in ascending order of
								 * tid */
	uint32_t   *tile_chunk;		/* [ntiles + 1] first chunk of each tile */
	uint16_t   *ids;			/* [nchunks * 256]; NULL when only the device
								 * has them */
	uint32_t   *hot_len;		/* [nrows] hot numbers of each row; NULL: no
								 * row has cold ones */
	uint32_t	ngroups;		/* of cold postings */
	gpuvec_cold_group *cold_groups; /* [ngroups], ascending */
	uint16_t   *cold_low;		/* [ncold] lower halves of numbers, ascending
								 * in a group, */
	uint16_t   *cold_row;		/* [ncold] and rows, ascending for a number */

	/* of rows with values; else NULL */
	float	   *values;			/* [nchunks * 256], as ids, and NULL when they
								 * are */
	float	   *cold_value;		/* [ncold] of cold postings */
	gpuvec_row_sums *sums;		/* [nrows] */

	uint32_t	nfilters;		/* filter columns */
	uint32_t	nnull_sets;		/* rows whose sets are null */
	gpuvec_filter_column *filters;	/* [nfilters]; column c is filters[c - 1] */
	uint32_t   *null_sets;		/* bit r % 32 of word r / 32: row r's set is
								 * null; NULL: none is */

	gpuvec_backend *backend;	/* backend that adopted the segment, or NULL */
	int			child;			/* on which of the backend's devices it lies
								 * (engine/shards); 0 if there is one */
	void	   *device;			/* backend's own */
	struct shards_copies *copies;	/* on other devices (engine/shards) */
	size_t		host_bytes;		/* bytes on the host: this struct, its arrays,
								 * and what the backend allocates or has
								 * reserved for the segment (atomic) */
	size_t		device_bytes;	/* bytes allocated on the device */
} gpuvec_segment;

/* Which rows of a segment are live: a cleared bit marks a deleted row */
typedef struct gpuvec_livemap
{
	int			refs;			/* changed by __atomic builtins only */
	uint32_t	nlive;
	uint32_t	nwords;
	int			child;			/* that of the segment; set before the map is
								 * adopted */
	gpuvec_backend *backend;
	void	   *device;			/* backend's own */
	struct shards_copies *copies;	/* on other devices (engine/shards) */
	uint32_t	bits[];			/* bit r % 32 of word r / 32 is set: row r is
								 * live */
} gpuvec_livemap;

/*
 * A segment of a view, with its live rows.  A view is what a search sees: an
 * immutable list of such entries.
 */
typedef struct gpuvec_view_entry
{
	gpuvec_segment *segment;
	gpuvec_livemap *live;		/* NULL: all rows are live */
	uint64_t	partition;		/* in a view of several mirrors, which one, as
								 * gpuvec_partition_tid(); else 0 */
} gpuvec_view_entry;

/*
 * A tid has 48 bits.  In a view of several mirrors the upper ones tell the
 * mirror, so rows of equal score come in the order (mirror, tid).
 */
#define GPUVEC_PARTITION_SHIFT		48
#define gpuvec_partition_tid(partition)	((uint64_t) (partition) << GPUVEC_PARTITION_SHIFT)

typedef struct gpuvec_view
{
	int			refs;			/* changed by __atomic builtins only */
	uint32_t	nentries;
	uint64_t	number;			/* no other view of this engine has it */
	uint64_t	nrows;			/* live rows */
	uint64_t	nids;			/* ids of all rows, dead ones included */
	gpuvec_backend *backend;
	void	   *device;			/* backend's own */
	struct gpuvec_method_costs *costs;	/* of the mirror's searches, or NULL */
	bool		joined;			/* atomic: views of several mirrors that are
								 * kept may have its entries */
	bool		replaced;		/* atomic: its mirror has another view, or is
								 * gone */
	gpuvec_view_entry entries[];
} gpuvec_view;

/*
 * Build one segment of nrows rows (1 .. GPUVEC_SEGMENT_ROWS), which must be
 * sorted by (len, tid).  On failure, returns NULL and fills *error.
 */
extern gpuvec_segment *gpuvec_segment_build(const gpuvec_source_row *rows, uint32_t nrows,
											gpuvec_row_kind kind, gpuvec_error *error);

/*
 * A copy of an adopted segment, which no backend has adopted, with its ids on
 * the host.  On failure, returns NULL and fills *error.
 */
extern gpuvec_segment *gpuvec_segment_copy(const gpuvec_segment *from, gpuvec_error *error);

/* Sort rows by (len, tid), in place */
extern bool gpuvec_rows_sort(gpuvec_source_row *rows, uint64_t nrows,
							 gpuvec_error *error);

/*
 * Copy the hot numbers of one row, gpuvec_hot_len() of them.  The segment
 * must have its ids on the host.
 */
extern void gpuvec_segment_row(const gpuvec_segment *segment, uint32_t row,
							   uint16_t *ids);

/* The same of their values, of a segment that has some */
extern void gpuvec_segment_row_values(const gpuvec_segment *segment, uint32_t row, float *values);

/* Write down the filter keys of one row of a segment with filter columns */
extern void gpuvec_segment_filter_keys(const gpuvec_segment *segment, uint32_t row, uint64_t *filter_keys);

/*
 * The cold numbers of all rows, row by row, each row's ascending; malloc'd,
 * [ncold].  Row r's follow those of the rows before it.  NULL on lack of
 * memory.  *values: the same of their values, if rows have some; may be NULL.
 */
extern uint32_t *gpuvec_segment_cold_by_row(const gpuvec_segment *segment, float **values,
											gpuvec_error *error);

/* The cold postings of this number */
extern gpuvec_cold_run gpuvec_segment_find_cold(const gpuvec_segment *segment, uint32_t number);

/* First position in by_tid whose row has at least this tid; nrows if none */
extern uint32_t gpuvec_segment_find(const gpuvec_segment *segment, uint64_t tid);

extern gpuvec_segment *gpuvec_segment_ref(gpuvec_segment *segment);
extern void gpuvec_segment_unref(gpuvec_segment *segment);

/*
 * new: a map with all nrows rows live.  none: one with no row live.  copy: a
 * copy of a map.  No backend has adopted any of them.
 */
extern gpuvec_livemap *gpuvec_livemap_new(uint32_t nrows, gpuvec_error *error);
extern gpuvec_livemap *gpuvec_livemap_none(uint32_t nrows, gpuvec_error *error);
extern gpuvec_livemap *gpuvec_livemap_copy(const gpuvec_livemap *map, gpuvec_error *error);
extern gpuvec_livemap *gpuvec_livemap_ref(gpuvec_livemap *map);
extern void gpuvec_livemap_unref(gpuvec_livemap *map);

/*
 * Make a view of these entries.  Takes over the caller's references to them,
 * unless it fails.
 */
extern gpuvec_view *gpuvec_view_new(const gpuvec_view_entry *entries,
									uint32_t nentries, gpuvec_error *error);
extern gpuvec_view *gpuvec_view_ref(gpuvec_view *view);
extern void gpuvec_view_unref(gpuvec_view *view);

/*
 * Bytes on the host.  They may change while the backend works on the segment
 * in the background.
 */
static inline size_t
gpuvec_segment_host_bytes(const gpuvec_segment *segment)
{
	return __atomic_load_n(&segment->host_bytes, __ATOMIC_RELAXED);
}

/*
 * Bytes that count where the segment's ids lie: on a device or on the host
 */
static inline size_t
gpuvec_segment_charge(const gpuvec_segment *segment)
{
	return segment->ids == NULL ? segment->device_bytes : gpuvec_segment_host_bytes(segment);
}

/* Numbers in a segment's tiles */
static inline uint64_t
gpuvec_segment_hot(const gpuvec_segment *segment)
{
	return segment->nids - segment->ncold;
}

/* What the rows of a segment have besides ids */
static inline gpuvec_row_kind
gpuvec_segment_kind(const gpuvec_segment *segment)
{
	gpuvec_row_kind kind = {segment->nfilters, segment->sums != NULL};

	return kind;
}

/* The cold postings of a group */
static inline gpuvec_cold_run
gpuvec_segment_group(const gpuvec_segment *segment, uint32_t group)
{
	gpuvec_cold_run run = {
		segment->cold_groups[group].start,
		group + 1 < segment->ngroups ? segment->cold_groups[group + 1].start : segment->ncold
	};

	return run;
}

/* How many of a row's numbers are hot: those that the tiles hold */
static inline uint32_t
gpuvec_hot_len(const gpuvec_segment *segment, uint32_t row)
{
	return segment->hot_len ? segment->hot_len[row] : segment->len[row];
}

/* True if the set of a row is null */
static inline bool
gpuvec_null_set(const gpuvec_segment *segment, uint32_t row)
{
	return segment->null_sets && (segment->null_sets[row / 32] >> (row % 32) & 1);
}

/* The tid under which a row of a view ranks */
static inline uint64_t
gpuvec_entry_tid(const gpuvec_view_entry *entry, uint32_t row)
{
	return entry->partition | entry->segment->tid[row];
}

static inline bool
gpuvec_entry_live(const gpuvec_view_entry *entry, uint32_t row)
{
	return entry->live == NULL || (entry->live->bits[row / 32] >> (row % 32) & 1);
}

#ifdef __cplusplus
}
#endif

#endif							/* GPUVEC_SEGMENT_H */
