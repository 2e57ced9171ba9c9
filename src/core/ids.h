/*-------------------------------------------------------------------------
 *
 * ids.h
 *	  Ids of a set, wherever they lie: what functions take that read them.
 *
 *-------------------------------------------------------------------------
 */
#ifndef GPUVEC_IDS_H
#define GPUVEC_IDS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Ids, ascending and distinct */
typedef struct gpuvec_id_span
{
	const void *ids;			/* [n] uint32_t if wide, else uint16_t; NULL:
								 * there is no set */
	uint32_t	n;
	bool		wide;
} gpuvec_id_span;

/* Bytes of the ids */
static inline size_t
gpuvec_id_span_bytes(gpuvec_id_span span)
{
	return span.n * (span.wide ? sizeof(uint32_t) : sizeof(uint16_t));
}

#endif							/* GPUVEC_IDS_H */
