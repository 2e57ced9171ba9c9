/*-------------------------------------------------------------------------
 *
 * host_vectors.h
 *	  Vectors of embedding tables in host memory, behind the interface of a
 *	  device.
 *
 * It stands in for a GPU where none is: several of them are the parts of
 * part_vectors.h in tests.
 *
 *-------------------------------------------------------------------------
 */
#ifndef GPUVEC_HOST_VECTORS_H
#define GPUVEC_HOST_VECTORS_H

#include "engine/embedding_backend.h"

/* NULL, with *error, on failure; freed by its function `close` */
extern gpuvec_vectors *gpuvec_host_vectors_new(gpuvec_error *error);

#endif							/* GPUVEC_HOST_VECTORS_H */
