/*-------------------------------------------------------------------------
 *
 * idvec.h
 *	  The type idvec: a sparse vector of ids 0 to 4294967295.
 *
 * A varlena whose payload is a header of four bytes, then ids and values.
 * The header is the number of ids, and two flags:
 *
 *	 IDVEC_WIDE		ids have four bytes each, else two
 *	 IDVEC_SMALL	values have one byte each and are 1 to 255, else they are
 *					float4
 *
 * Values of one byte follow the ids, others come before them, so everything
 * is aligned where the payload is.  Ids are ascending and distinct, at most
 * 65,536.  Values are finite and not 0.
 *
 * A vector has no flag WIDE if all its ids are below 65536, and has the flag
 * SMALL if its values allow it, so equal vectors have equal bytes.  The empty
 * vector has the flag SMALL.
 *
 *-------------------------------------------------------------------------
 */
#ifndef GPUVEC_IDVEC_H
#define GPUVEC_IDVEC_H

#include "gpuvec.h"

#include "core/sparse.h"
#include "idset/id_sums.h"
#include "idset/idset.h"

typedef struct IdVec
{
	int32		vl_len_;		/* varlena header (do not touch directly!) */
	uint32		head;			/* number of ids, and flags */
	char		data[FLEXIBLE_ARRAY_MEMBER];
} IdVec;

#define IDVEC_WIDE			((uint32) 1 << 31)
#define IDVEC_SMALL			((uint32) 1 << 30)

/* The greatest value of one byte */
#define IDVEC_MAX_SMALL		255

#define DatumGetIdVecP(d)		((IdVec *) PG_DETOAST_DATUM(d))
#define PG_GETARG_IDVEC_P(n)	DatumGetIdVecP(PG_GETARG_DATUM(n))
#define PG_RETURN_IDVEC_P(v)	PG_RETURN_POINTER(v)

/* Number of ids that a header tells */
#define idvec_head_count(head)	((head) & ~(IDVEC_WIDE | IDVEC_SMALL))

static inline uint32
idvec_count(const IdVec *vector)
{
	return idvec_head_count(vector->head);
}

/* Ids and values, which lie in the vector */
static inline gpuvec_sparse
idvec_sparse(const IdVec *vector)
{
	gpuvec_sparse sparse = {{vector->data, idvec_count(vector), (vector->head & IDVEC_WIDE) != 0},
	vector->data, (vector->head & IDVEC_SMALL) != 0};

	if (sparse.small)
		sparse.values = vector->data + gpuvec_id_span_bytes(sparse.ids);
	else
		sparse.ids.ids = vector->data + sparse.ids.n * sizeof(float4);
	return sparse;
}

/* The ids of a set with the values 1; they lie in the set */
static inline gpuvec_sparse
idvec_sparse_of_set(const IdSet *set)
{
	gpuvec_sparse sparse = {idset_span(set), NULL, false};

	return sparse;
}

/* Ids with values, to make vectors of */
typedef struct IdValue
{
	uint32		id;
	float4		value;
} IdValue;

/*
 * A vector of n pairs that are ascending by id, without those whose value is
 * 0.  Values must be finite.  More than 65,536 that are not 0 are an error.
 */
extern IdVec *idvec_from_sorted(const IdValue *pairs, uint32 n);

/* The same; NULL after a soft error, which goes to `escontext` */
extern IdVec *idvec_from_sorted_safe(const IdValue *pairs, uint32 n, Node *escontext);

/*
 * The same of pairs in any order; sorts them.  An id that is there twice is
 * error 22P02.
 */
extern IdVec *idvec_from_pairs_safe(IdValue *pairs, uint32 n, Node *escontext);

/* Report that a vector has too many ids; returns false after a soft error */
extern bool idvec_too_many(Node *escontext);

/* The vector of ids with their sums, rounded to float4 */
extern IdVec *idvec_from_sums(const IdSums *sums);

/* The number as an id; an error if it is out of range */
extern uint32 idvec_check_id(int64 number);

/* A value; an error if a number is none when rounded to float4 */
extern float4 idvec_check_value(double number);

/* What two vectors share by a measure */
extern gpuvec_sparse_shared idvec_shared(gpuvec_sparse_measure measure, const gpuvec_sparse *a,
										 const gpuvec_sparse *b);

/* True if no value is negative */
extern bool idvec_not_negative(const gpuvec_sparse *vector);

/* True if a measure does not take a vector: jaccard, and it has negatives */
extern bool idvec_refuses(const gpuvec_scoring *scoring, const gpuvec_sparse *vector);

/* The error of Jaccard's measure for negative values, and if there are any */
extern void idvec_report_negative(void);
extern void idvec_check_not_negative(const gpuvec_sparse *vector);

/* Find the measure of a name; false: there is none.  The same; an error. */
extern bool idvec_find_measure(const char *name, gpuvec_sparse_measure *measure);
extern gpuvec_sparse_measure idvec_measure_by_name(const char *name);

/*
 * The score of a row with a query, which have `common` ids in common: by a
 * measure of vectors, or of their ids alone.  Infinity: the measure refuses
 * one of them.  As in the engine, such a row comes first.
 */
extern double idvec_score(const gpuvec_scoring *scoring, const gpuvec_sparse *query,
						  const gpuvec_sparse *row, uint32 common);

/* True if a type is idvec, by the catalog */
extern bool idvec_is_type(Oid type);

extern Datum idvec_out(PG_FUNCTION_ARGS);

/* idvec_cast.c */
extern Datum idset_to_idvec(PG_FUNCTION_ARGS);

/* idvec_measure.c: scores and distances */
extern Datum idvec_inner_product(PG_FUNCTION_ARGS);
extern Datum idvec_cosine_similarity(PG_FUNCTION_ARGS);
extern Datum idvec_jaccard_similarity(PG_FUNCTION_ARGS);
extern Datum idset_inner_product(PG_FUNCTION_ARGS);
extern Datum idvec_negative_inner_product(PG_FUNCTION_ARGS);
extern Datum idvec_cosine_distance(PG_FUNCTION_ARGS);
extern Datum idvec_jaccard_distance(PG_FUNCTION_ARGS);
extern Datum idset_negative_inner_product(PG_FUNCTION_ARGS);
extern Datum negative_inner_product_idset(PG_FUNCTION_ARGS);

#endif							/* GPUVEC_IDVEC_H */
