/*-------------------------------------------------------------------------
 *
 * key_numbers.h
 *	  Numbers for keys, in the order in which the keys come.
 *
 *-------------------------------------------------------------------------
 */
#ifndef GPUVEC_KEY_NUMBERS_H
#define GPUVEC_KEY_NUMBERS_H

#include "engine/als/als_memory.h"

#define GPUVEC_NO_NUMBER	UINT32_MAX

typedef struct gpuvec_key_numbers
{
	gpuvec_als_memory *memory;
	int64_t    *keys;			/* [n]: the key of each number */
	uint32_t	n;
	uint32_t	capacity;		/* elements of keys */
	uint32_t   *slots;			/* [nslots]: numbers; GPUVEC_NO_NUMBER: free */
	uint64_t	nslots;			/* a power of two, or 0 */
} gpuvec_key_numbers;

/* The number of a key, or GPUVEC_NO_NUMBER */
extern uint32_t gpuvec_key_number(const gpuvec_key_numbers *numbers, int64_t key);

/*
 * The same, but an unknown key gets the next number.  GPUVEC_NO_NUMBER, with
 * *error, if there is no room for it.
 */
extern uint32_t gpuvec_key_number_add(gpuvec_key_numbers *numbers, int64_t key,
									  gpuvec_error *error);

extern void gpuvec_key_numbers_free(gpuvec_key_numbers *numbers);

#endif							/* GPUVEC_KEY_NUMBERS_H */
