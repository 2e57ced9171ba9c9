/*-------------------------------------------------------------------------
 *
 * pooling_types.h
 *	  Types and constants of pooling that the extension, the engine and the
 *	  kernels share, for C, C++ and CUDA.
 *
 * Some are values on the wire (protocol.h).  On others it depends that
 * results are the same bits everywhere.  Both kinds are asserted below.
 *
 *-------------------------------------------------------------------------
 */
#ifndef GPUVEC_POOLING_TYPES_H
#define GPUVEC_POOLING_TYPES_H

#include <assert.h>
#include <stdint.h>

/* How a bag is pooled; see pooling.h */
typedef enum gpuvec_pool_mode
{
	GPUVEC_POOL_SUM,
	GPUVEC_POOL_MEAN,
	GPUVEC_POOL_CONCAT
} gpuvec_pool_mode;

#define GPUVEC_N_POOL_MODES		3
#define GPUVEC_POOL_MODE_NAMES	{"sum", "mean", "concat"}

/* How a key counts that was not found; see pooling.h */
typedef enum gpuvec_missing
{
	GPUVEC_MISSING_ZERO,
	GPUVEC_MISSING_SKIP,
	GPUVEC_MISSING_ERROR
} gpuvec_missing;

#define GPUVEC_N_MISSING		3
#define GPUVEC_MISSING_NAMES	{"zero", "skip", "error"}

/* How vectors are compared; see nearest.h */
typedef enum gpuvec_metric
{
	GPUVEC_METRIC_COSINE,
	GPUVEC_METRIC_IP,
	GPUVEC_METRIC_L2
} gpuvec_metric;

#define GPUVEC_N_METRICS		3
#define GPUVEC_METRIC_NAMES		{"cosine", "ip", "l2"}

/* How vectors are stored.  All computing is on float32 or float64. */
typedef enum gpuvec_storage
{
	GPUVEC_FLOAT32,
	GPUVEC_FLOAT16
} gpuvec_storage;

#define GPUVEC_N_STORAGES		2

#define gpuvec_element_bytes(storage) \
	((storage) == GPUVEC_FLOAT16 ? sizeof(uint16_t) : sizeof(float))

/* Largest number of elements of a vector */
#define GPUVEC_MAX_WIDTH		65536

/* Why a row's vector cannot be used */
typedef enum gpuvec_vector_kind
{
	GPUVEC_VECTOR_GOOD,
	GPUVEC_VECTOR_NULLS,		/* it has null elements */
	GPUVEC_VECTOR_DIMENSIONS,	/* it has several dimensions */
	GPUVEC_VECTOR_LONG,			/* it has more than GPUVEC_MAX_WIDTH elements */
	GPUVEC_VECTOR_DAMAGED		/* it is too short for the number of elements
								 * in its header */
} gpuvec_vector_kind;

#define GPUVEC_N_VECTOR_KINDS	5

/*
 * The order of sums: GPUVEC_PIECE and GPUVEC_FAN of bags (pooling.h),
 * GPUVEC_DIVISOR_LANES of the divisors of gradients (pooling_grad.h),
 * GPUVEC_LANES of scalar products (product.h).  Other numbers give other
 * bits, and the kernels are written for these.
 */
#define GPUVEC_PIECE			256
#define GPUVEC_FAN				32
#define GPUVEC_DIVISOR_LANES	32
#define GPUVEC_LANES			16

/* These values are sent over the wire */
static_assert(GPUVEC_POOL_SUM == 0 && GPUVEC_POOL_MEAN == 1 && GPUVEC_POOL_CONCAT == 2,
			  "the wire has other numbers of modes");
static_assert(GPUVEC_MISSING_ZERO == 0 && GPUVEC_MISSING_SKIP == 1 && GPUVEC_MISSING_ERROR == 2,
			  "the wire has other numbers of ways to treat missing keys");
static_assert(GPUVEC_METRIC_COSINE == 0 && GPUVEC_METRIC_IP == 1 && GPUVEC_METRIC_L2 == 2,
			  "the wire has other numbers of metrics");
static_assert(GPUVEC_FLOAT32 == 0 && GPUVEC_FLOAT16 == 1, "the wire has other numbers of storages");
static_assert(GPUVEC_VECTOR_GOOD == 0 && GPUVEC_VECTOR_DAMAGED == GPUVEC_N_VECTOR_KINDS - 1,
			  "the wire has other numbers of kinds of vectors");
static_assert(sizeof(float) == 4 && sizeof(double) == 8, "elements have other sizes");

/* Other numbers change results */
static_assert(GPUVEC_PIECE == 256 && GPUVEC_FAN == 32 && GPUVEC_DIVISOR_LANES == 32 &&
			  GPUVEC_LANES == 16, "sums are taken in another order");

#endif							/* GPUVEC_POOLING_TYPES_H */
