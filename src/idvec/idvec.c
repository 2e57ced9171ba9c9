/*-------------------------------------------------------------------------
 *
 * idvec.c
 *	  Makes sparse vectors, and computes what two of them share.
 *
 *-------------------------------------------------------------------------
 */
#include "gpuvec.h"

#include <math.h>

#include "idvec/idvec.h"

/* ---- making vectors ---- */

/* What the values of pairs need */
typedef struct Form
{
	uint32		n;				/* pairs whose value is not 0 */
	bool		wide;
	bool		small;
} Form;

static Form
form_of(const IdValue *pairs, uint32 n)
{
	Form		form = {0, false, true};

	for (uint32 i = 0; i < n; i++)
	{
		float4		value = pairs[i].value;

		GPUVEC_STEP(i);
		if (value == 0)
			continue;
		form.n++;
		form.wide = pairs[i].id > IDSET_MAX_NARROW_ID;	/* the last one tells */
		form.small &= value >= 1 && value <= IDVEC_MAX_SMALL && value == (uint8) value;
	}
	return form;
}

/* A new vector of a form; the caller fills in ids and values */
static IdVec *
make_vector(Form form)
{
	Size		size = offsetof(IdVec, data) +
		form.n * ((form.wide ? sizeof(uint32) : sizeof(uint16)) +
				  (form.small ? sizeof(uint8) : sizeof(float4)));
	IdVec	   *vector = palloc(size);

	SET_VARSIZE(vector, size);
	vector->head = form.n | (form.wide ? IDVEC_WIDE : 0) | (form.small ? IDVEC_SMALL : 0);
	return vector;
}

bool
idvec_too_many(Node *escontext)
{
	errsave(escontext,
			(errcode(ERRCODE_PROGRAM_LIMIT_EXCEEDED),
			 errmsg("too many ids for type idvec"),
			 errdetail("A vector has at most %d ids.", GPUVEC_MAX_IDS)));
	return false;
}

IdVec *
idvec_from_sorted_safe(const IdValue *pairs, uint32 n, Node *escontext)
{
	Form		form = form_of(pairs, n);
	IdVec	   *vector;
	gpuvec_sparse sparse;
	uint32		count = 0;

	if (form.n > GPUVEC_MAX_IDS && !idvec_too_many(escontext))
		return NULL;
	vector = make_vector(form);
	sparse = idvec_sparse(vector);
	for (uint32 i = 0; i < n; i++)
	{
		if (pairs[i].value == 0)
			continue;
		if (form.wide)
			((uint32 *) sparse.ids.ids)[count] = pairs[i].id;
		else
			((uint16 *) sparse.ids.ids)[count] = (uint16) pairs[i].id;
		if (form.small)
			((uint8 *) sparse.values)[count] = (uint8) pairs[i].value;
		else
			((float4 *) sparse.values)[count] = pairs[i].value;
		count++;
	}
	return vector;
}

IdVec *
idvec_from_sorted(const IdValue *pairs, uint32 n)
{
	return idvec_from_sorted_safe(pairs, n, NULL);
}

/* qsort comparator.  There may be very many pairs, so it looks. */
static int
compare_pairs(const void *a, const void *b)
{
	uint32		x = ((const IdValue *) a)->id;
	uint32		y = ((const IdValue *) b)->id;

	GPUVEC_LOOK();
	return x < y ? -1 : x > y;
}

IdVec *
idvec_from_pairs_safe(IdValue *pairs, uint32 n, Node *escontext)
{
	bool		sorted = true;

	for (uint32 i = 1; i < n; i++)
	{
		GPUVEC_STEP(i);
		sorted &= pairs[i - 1].id < pairs[i].id;
	}
	if (!sorted)
		qsort(pairs, n, sizeof(IdValue), compare_pairs);
	for (uint32 i = 1; !sorted && i < n; i++)
	{
		GPUVEC_STEP(i);
		if (pairs[i - 1].id == pairs[i].id)
		{
			errsave(escontext,
					(errcode(ERRCODE_INVALID_TEXT_REPRESENTATION),
					 errmsg("id %u is there more than once", pairs[i].id),
					 errdetail("A vector has one value for an id."),
					 errhint("The aggregate idvec_agg(id, value) adds values up.")));
			return NULL;
		}
	}
	return idvec_from_sorted_safe(pairs, n, escontext);
}

uint32
idvec_check_id(int64 number)
{
	if (number < 0 || number > (int64) IDSET_MAX_ID)
		ereport(ERROR,
				(errcode(ERRCODE_NUMERIC_VALUE_OUT_OF_RANGE),
				 errmsg("id " INT64_FORMAT " is out of range for type %s", number, "idvec"),
				 errdetail("The least is 0, the greatest " UINT64_FORMAT ".", IDSET_MAX_ID)));
	return (uint32) number;
}

float4
idvec_check_value(double number)
{
	float4		value = (float4) number;

	if (isnan(number) || isinf(value))
		ereport(ERROR,
				(errcode(ERRCODE_NUMERIC_VALUE_OUT_OF_RANGE),
				 errmsg("value %g is out of range for type idvec", number),
				 errdetail("Values are finite numbers of type real.")));
	if (value == 0 && number != 0)
		ereport(ERROR,
				(errcode(ERRCODE_NUMERIC_VALUE_OUT_OF_RANGE),
				 errmsg("value %g is out of range for type idvec", number),
				 errdetail("It is too near to 0 for type real.")));
	return value;
}

IdVec *
idvec_from_sums(const IdSums *sums)
{
	uint32		n = id_sums_count(sums);
	IdSum	   *list = id_sums_list(sums);
	IdValue    *pairs = palloc_array(IdValue, Max(n, 1));
	IdVec	   *vector;

	for (uint32 i = 0; i < n; i++)
	{
		pairs[i].id = list[i].id;
		pairs[i].value = idvec_check_value(list[i].sum);
	}
	vector = idvec_from_sorted(pairs, n);
	pfree(pairs);
	pfree(list);
	return vector;
}

/* ---- what vectors share ---- */

/*
 * The sum over the ids that both have, in ascending order.  Where the form of
 * a vector is a constant, nothing is asked when the program runs.
 */
static pg_attribute_always_inline double
common_sum(gpuvec_sparse_measure measure, const gpuvec_sparse *a, const gpuvec_sparse *b)
{
	double		sum = 0;
	uint32		i = 0;
	uint32		j = 0;

	while (i < a->ids.n && j < b->ids.n)
	{
		uint32		x = gpuvec_sparse_id(a, i);
		uint32		y = gpuvec_sparse_id(b, j);

		if (x == y)
			sum += gpuvec_sparse_term(measure, gpuvec_sparse_value(a, i), gpuvec_sparse_value(b, j));
		i += x <= y;
		j += y <= x;
	}
	return sum;
}

/* The same for two vectors of one form */
static pg_attribute_always_inline double
common_sum_of(gpuvec_sparse_measure measure, const gpuvec_sparse *a, const gpuvec_sparse *b, bool wide,
			  bool small)
{
	gpuvec_sparse x = {{a->ids.ids, a->ids.n, wide}, a->values, small};
	gpuvec_sparse y = {{b->ids.ids, b->ids.n, wide}, b->values, small};

	return common_sum(measure, &x, &y);
}

static double
sum_of_common(gpuvec_sparse_measure measure, const gpuvec_sparse *a, const gpuvec_sparse *b)
{
	if (a->values == NULL || b->values == NULL || a->ids.wide != b->ids.wide || a->small != b->small)
		return common_sum(measure, a, b);
	if (a->small)
		return a->ids.wide ? common_sum_of(measure, a, b, true, true) :
			common_sum_of(measure, a, b, false, true);
	return a->ids.wide ? common_sum_of(measure, a, b, true, false) :
		common_sum_of(measure, a, b, false, false);
}

gpuvec_sparse_shared
idvec_shared(gpuvec_sparse_measure measure, const gpuvec_sparse *a, const gpuvec_sparse *b)
{
	gpuvec_sparse_shared shared = {sum_of_common(measure, a, b), gpuvec_sparse_own(measure, a),
	gpuvec_sparse_own(measure, b)};

	return shared;
}

bool
idvec_refuses(const gpuvec_scoring *scoring, const gpuvec_sparse *vector)
{
	return scoring->sparse && gpuvec_scoring_sparse(*scoring) == GPUVEC_SPARSE_JACCARD &&
		!idvec_not_negative(vector);
}

double
idvec_score(const gpuvec_scoring *scoring, const gpuvec_sparse *query, const gpuvec_sparse *row,
			uint32 common)
{
	if (scoring->sparse)
	{
		gpuvec_sparse_measure measure = gpuvec_scoring_sparse(*scoring);

		if (idvec_refuses(scoring, query) || idvec_refuses(scoring, row))
			return INFINITY;
		/* then the sum is 0, whatever else there is */
		return common == 0 ? 0 : gpuvec_sparse_score(measure, idvec_shared(measure, query, row));
	}
	return gpuvec_score_with(*scoring, (gpuvec_shared) {common, query->ids.n, row->ids.n});
}

bool
idvec_not_negative(const gpuvec_sparse *vector)
{
	if (vector->values == NULL || vector->small)
		return true;
	for (uint32 i = 0; i < vector->ids.n; i++)
		if (gpuvec_sparse_value(vector, i) < 0)
			return false;
	return true;
}
