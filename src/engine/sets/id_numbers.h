/*-------------------------------------------------------------------------
 *
 * id_numbers.h
 *	  The numbers that a mirror of large ids gives to ids.
 *
 *-------------------------------------------------------------------------
 */
#ifndef GPUVEC_ID_NUMBERS_H
#define GPUVEC_ID_NUMBERS_H

#include "engine/segment.h"
#include "engine/sets/id_table.h"

/* The map from ids to numbers; any thread may use it */
typedef struct gpuvec_id_numbers gpuvec_id_numbers;

/* What an id without a number has in place of one */
#define GPUVEC_NO_NUMBER	UINT32_MAX

/* Bytes allocated */
extern size_t gpuvec_id_numbers_bytes(gpuvec_id_numbers *numbers);

/* How many ids the map has, without those that are their own numbers */
extern uint64_t gpuvec_id_numbers_count(gpuvec_id_numbers *numbers);

/* What the table of a map has for an id with this number */
static inline uint32_t
gpuvec_id_value(uint64_t number)
{
	return (uint32_t) number + 1;
}

/*
 * Make a map.  of_table: it takes over a table of numbers, which is empty
 * then; `next` is the number of the next new id.  narrow: each id of 16 bits
 * is its own number, and all others have none yet.
 */
extern gpuvec_id_numbers *gpuvec_id_numbers_of_table(gpuvec_id_table *table, uint32_t next,
													 gpuvec_error *error);
extern gpuvec_id_numbers *gpuvec_id_numbers_narrow(gpuvec_error *error);
extern gpuvec_id_numbers *gpuvec_id_numbers_ref(gpuvec_id_numbers *numbers);
extern void gpuvec_id_numbers_unref(gpuvec_id_numbers *numbers);

/*
 * Look up n ids.  find: those without a number get GPUVEC_NO_NUMBER.  add:
 * they get the next numbers, in the order of ids[].  to may be ids.  If
 * adding fails, some of the ids may have got numbers.
 */
extern void gpuvec_id_numbers_find(gpuvec_id_numbers *numbers, const uint32_t *ids, uint32_t n,
								   uint32_t *to);
extern bool gpuvec_id_numbers_add(gpuvec_id_numbers *numbers, const uint32_t *ids, uint32_t n,
								  uint32_t *to, gpuvec_error *error);

/*
 * While a map is held, no id gets a number.  held: as find, for any thread
 * while somebody holds the map.
 */
extern void gpuvec_id_numbers_hold(gpuvec_id_numbers *numbers);
extern void gpuvec_id_numbers_let_go(gpuvec_id_numbers *numbers);
extern void gpuvec_id_numbers_held(const gpuvec_id_numbers *numbers, const uint32_t *ids,
								   uint32_t n, uint32_t *to);

/*
 * The ids of all numbers that are in use, by number: malloc'd, or NULL on lack
 * of memory
 */
extern uint32_t *gpuvec_id_numbers_ids(gpuvec_id_numbers *numbers, gpuvec_error *error);

/*
 * Replace n numbers by their ids: values[0], values[step], ...  They are
 * numbers of rows of a view that was published.  On lack of memory, fills
 * *error and returns false.
 */
extern bool gpuvec_id_numbers_reverse(gpuvec_id_numbers *numbers, uint64_t *values, uint32_t n,
									  uint32_t step, gpuvec_error *error);

/* Fail since there are no more numbers; returns false */
extern bool gpuvec_fail_numbers(gpuvec_error *error);

/* Sort numbers, in place */
extern void gpuvec_sort_numbers(uint32_t *numbers, uint32_t n);

/*
 * The same, and note the place that each had before; at most GPUVEC_MAX_IDS
 * numbers.  room: [2 * n].
 */
extern void gpuvec_sort_numbers_places(uint32_t *numbers, uint16_t *places, uint32_t n,
									   uint64_t *room);

/*
 * Write n ascending numbers as gpuvec_source_row has them, and set the row's
 * len, ncold and ids.  `to` has room for gpuvec_packed_bytes(n, n) + 4 bytes.
 */
extern void gpuvec_pack_numbers(const uint32_t *numbers, uint32_t n, uint16_t *to,
								gpuvec_source_row *row);

/*
 * Write a packed row's sums and values behind its numbers.  The i-th of these
 * gets values[places[i]], or values[i] if places is NULL.  sums and values
 * need not be aligned, and do not lie in `to`.
 */
extern void gpuvec_pack_values(const gpuvec_source_row *row, uint16_t *to, const char *sums,
							   const char *values, const uint16_t *places);

/* Bytes of memory for any packed row with values */
#define GPUVEC_MOST_PACKED \
	(gpuvec_packed_bytes(GPUVEC_MAX_IDS, GPUVEC_MAX_IDS) + sizeof(uint32_t) + \
	 gpuvec_values_bytes(GPUVEC_MAX_IDS))

/* The numbers of a row, all of them; the reverse of packing */
extern void gpuvec_unpack_numbers(const gpuvec_source_row *row, uint32_t *numbers);

#endif							/* GPUVEC_ID_NUMBERS_H */
