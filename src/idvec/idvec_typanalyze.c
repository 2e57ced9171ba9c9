/*-------------------------------------------------------------------------
 *
 * idvec_typanalyze.c
 *	  ANALYZE of a column of sparse vectors: the statistics that a column of
 *	  their sets of ids would have.
 *
 *-------------------------------------------------------------------------
 */
#include "gpuvec.h"

#include "commands/vacuum.h"
#include "idset/idset_counts.h"
#include "idvec/idvec.h"

PG_FUNCTION_INFO_V1(idvec_typanalyze);

/* The ids of a vector */
static gpuvec_id_span
ids_of_vector(const void *value)
{
	return idvec_sparse(value).ids;
}

/* Analyze function of the type idvec */
Datum
idvec_typanalyze(PG_FUNCTION_ARGS)
{
	PG_RETURN_BOOL(idset_analyze((VacAttrStats *) PG_GETARG_POINTER(0), ids_of_vector));
}
