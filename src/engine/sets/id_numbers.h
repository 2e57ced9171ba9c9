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

/* How many rows have each id; used by one thread */
typedef struct gpuvec_id_counts gpuvec_id_counts;

/* The map from ids to numbers; any thread may use it */
typedef struct gpuvec_id_numbers gpuvec_id_numbers;

/* What an id without a number has in place of one */
#define GPUVEC_NO_NUMBER	UINT32_MAX

extern gpuvec_id_counts *gpuvec_id_counts_new(gpuvec_error *error);
extern void gpuvec_id_counts_free(gpuvec_id_counts *counts);

/* Count the ids of one row.  False on lack of memory. */
extern bool gpuvec_id_counts_add(gpuvec_id_counts *counts, const uint32_t *ids, uint32_t n,
								 gpuvec_error *error);

/* Bytes allocated for counts, and for a map */
extern size_t gpuvec_id_counts_bytes(const gpuvec_id_counts *counts);
extern size_t gpuvec_id_numbers_bytes(gpuvec_id_numbers *numbers);

/* How many ids the map has, without those that are their own numbers */
extern uint64_t gpuvec_id_numbers_count(gpuvec_id_numbers *numbers);

/*
 * Make a map.  counted: the ids that were counted get the numbers from 0 on,
 * the most frequent first, of equal ones the lowest first.  narrow: each id
 * of 16 bits is its own number, and all others have none yet.
 */
extern gpuvec_id_numbers *gpuvec_id_numbers_counted(const gpuvec_id_counts *counts,
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

/* Sort numbers, in place */
extern void gpuvec_sort_numbers(uint32_t *numbers, uint32_t n);

/*
 * Write n ascending numbers as gpuvec_source_row has them, and set the row's
 * len, ncold and ids.  `to` has room for gpuvec_packed_bytes(n, n) + 4 bytes.
 */
extern void gpuvec_pack_numbers(const uint32_t *numbers, uint32_t n, uint16_t *to,
								gpuvec_source_row *row);

/* The numbers of a row, all of them; the reverse of packing */
extern void gpuvec_unpack_numbers(const gpuvec_source_row *row, uint32_t *numbers);

#endif							/* GPUVEC_ID_NUMBERS_H */
