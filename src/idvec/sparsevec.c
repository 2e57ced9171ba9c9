/*-------------------------------------------------------------------------
 *
 * sparsevec.c
 *	  Casts between idvec and the type sparsevec of the extension vector
 *	  (pgvector 0.7 and later).
 *
 * Neither extension needs the other one, so the casts belong to none of them:
 * gpuvec_sparsevec_casts() makes them where both are, whichever was there
 * first.  They are objects of whoever calls it, who must be a superuser, for
 * their functions are written in C.  A dump has them as it has any object of
 * a user.
 *
 * The type is known by its name and its extension, so nobody else's type is
 * read as if it were a sparsevec.
 *
 *-------------------------------------------------------------------------
 */
#include "gpuvec.h"

#include "access/htup_details.h"
#include "catalog/dependency.h"
#include "catalog/pg_type.h"
#include "commands/extension.h"
#include "executor/spi.h"
#include "idvec/idvec.h"
#include "utils/builtins.h"
#include "utils/catcache.h"
#include "utils/syscache.h"

PG_FUNCTION_INFO_V1(gpuvec_sparsevec_casts);
PG_FUNCTION_INFO_V1(sparsevec_to_idvec);
PG_FUNCTION_INFO_V1(idvec_to_sparsevec);

/*
 * A sparsevec.  Its indexes are kept from 0 on, and written from 1 on, and
 * the values follow them.
 */
typedef struct SparseVec
{
	int32		vl_len_;		/* varlena header (do not touch directly!) */
	int32		dimensions;
	int32		n;
	int32		unused;
	int32		indexes[FLEXIBLE_ARRAY_MEMBER];
} SparseVec;

#define SPARSEVEC_SIZE(n) \
	(offsetof(SparseVec, indexes) + (Size) (n) * (sizeof(int32) + sizeof(float4)))

/* The most dimensions and values that pgvector takes */
#define SPARSEVEC_MAX_DIMENSIONS	1000000000
#define SPARSEVEC_MAX_VALUES		16000

/* ---- the casts ---- */

/* Cast of sparsevec to idvec: index i, from 1, is id i */
Datum
sparsevec_to_idvec(PG_FUNCTION_ARGS)
{
	SparseVec  *sparse = (SparseVec *) PG_DETOAST_DATUM(PG_GETARG_DATUM(0));
	Size		bytes = VARSIZE(sparse);
	const float4 *values;
	IdValue    *pairs;

	/* nothing is read behind the end of a value of another layout */
	if (bytes < SPARSEVEC_SIZE(0) || sparse->n < 0 || bytes != SPARSEVEC_SIZE(sparse->n))
		ereport(ERROR,
				(errcode(ERRCODE_DATA_CORRUPTED),
				 errmsg("cannot read a sparsevec of %zu bytes", bytes)));
	values = (const float4 *) (sparse->indexes + sparse->n);
	pairs = palloc_array(IdValue, Max(sparse->n, 1));
	for (int i = 0; i < sparse->n; i++)
	{
		if (sparse->indexes[i] < 0 || sparse->indexes[i] >= sparse->dimensions)
			ereport(ERROR,
					(errcode(ERRCODE_DATA_CORRUPTED),
					 errmsg("cannot read a sparsevec with index %d of %d",
							sparse->indexes[i], sparse->dimensions)));
		pairs[i].id = (uint32) sparse->indexes[i] + 1;
		pairs[i].value = idvec_check_value(values[i]);
	}
	PG_RETURN_IDVEC_P(idvec_from_pairs_safe(pairs, sparse->n, NULL));
}

/*
 * The number of dimensions of a vector as sparsevec: `typmod` if it says one,
 * else the greatest id
 */
static int32
dimensions_of(const gpuvec_sparse *vector, int32 typmod)
{
	uint32		n = vector->ids.n;

	if (typmod > 0)
		return Min(typmod, SPARSEVEC_MAX_DIMENSIONS);
	if (n == 0)
		return 1;
	return (int32) Min(Max(gpuvec_sparse_id(vector, n - 1), 1), SPARSEVEC_MAX_DIMENSIONS);
}

/* Cast of idvec to sparsevec(n) */
Datum
idvec_to_sparsevec(PG_FUNCTION_ARGS)
{
	gpuvec_sparse vector = idvec_sparse(PG_GETARG_IDVEC_P(0));
	uint32		n = vector.ids.n;
	int32		dimensions = dimensions_of(&vector, PG_GETARG_INT32(1));
	SparseVec  *sparse = palloc0(SPARSEVEC_SIZE(n));
	float4	   *values = (float4 *) (sparse->indexes + n);

	if (n > SPARSEVEC_MAX_VALUES)
		ereport(ERROR,
				(errcode(ERRCODE_PROGRAM_LIMIT_EXCEEDED),
				 errmsg("too many ids for type sparsevec"),
				 errdetail("It has at most %d, not %u.", SPARSEVEC_MAX_VALUES, n)));
	SET_VARSIZE(sparse, SPARSEVEC_SIZE(n));
	sparse->dimensions = dimensions;
	sparse->n = (int32) n;
	for (uint32 i = 0; i < n; i++)
	{
		uint32		id = gpuvec_sparse_id(&vector, i);

		if (id == 0 || id > (uint32) dimensions)
			ereport(ERROR,
					(errcode(ERRCODE_NUMERIC_VALUE_OUT_OF_RANGE),
					 errmsg("id %u is out of range for type sparsevec(%d)", id, dimensions),
					 errdetail("Its indexes are 1 to %d.", dimensions)));
		sparse->indexes[i] = (int32) id - 1;
		values[i] = gpuvec_sparse_value(&vector, i);
	}
	PG_RETURN_POINTER(sparse);
}

/* ---- making them ---- */

/* The type sparsevec of the extension vector; an error if there is none */
static Oid
find_sparsevec(void)
{
	Oid			extension = get_extension_oid("vector", true);
	CatCList   *types = SearchSysCacheList1(TYPENAMENSP, CStringGetDatum("sparsevec"));
	Oid			found = InvalidOid;

	for (int i = 0; i < types->n_members; i++)
	{
		Form_pg_type type = (Form_pg_type) GETSTRUCT(&types->members[i]->tuple);

		if (OidIsValid(extension) && type->typtype == TYPTYPE_BASE &&
			getExtensionOfObject(TypeRelationId, type->oid) == extension)
			found = type->oid;
	}
	ReleaseSysCacheList(types);
	if (!OidIsValid(found))
		ereport(ERROR,
				(errcode(ERRCODE_UNDEFINED_OBJECT),
				 errmsg("there is no type sparsevec of the extension vector"),
				 errhint("Create the extension vector, of version 0.7 or later.")));
	return found;
}

/* The library of a function of ours, as its CREATE FUNCTION named it */
static char *
library_of(Oid function)
{
	HeapTuple	tuple = SearchSysCache1(PROCOID, ObjectIdGetDatum(function));
	bool		isnull;
	Datum		library;
	char	   *result;

	if (!HeapTupleIsValid(tuple))
		elog(ERROR, "cache lookup failed for function %u", function);
	library = SysCacheGetAttr(PROCOID, tuple, Anum_pg_proc_probin, &isnull);
	if (isnull)
		elog(ERROR, "null probin for C function %u", function);
	result = TextDatumGetCString(library);
	ReleaseSysCache(tuple);
	return result;
}

/* Run a statement that makes something */
static void
run_command(const char *command)
{
	if (SPI_execute(command, false, 0) != SPI_OK_UTILITY)
		elog(ERROR, "SPI_execute failed: %s", command);
}

/*
 * Make a cast and its function, unless the cast is there.  A function that
 * is there without it is an error, for whoever owns it could change it.
 */
static void
make_cast(const char *function, const char *arguments, Oid source, Oid target, const char *library,
		  const char *symbol, const char *comment)
{
	const char *from = format_type_extended(source, -1, FORMAT_TYPE_FORCE_QUALIFY);
	const char *to = format_type_extended(target, -1, FORMAT_TYPE_FORCE_QUALIFY);

	if (SearchSysCacheExists2(CASTSOURCETARGET, ObjectIdGetDatum(source), ObjectIdGetDatum(target)))
		return;
	run_command(psprintf("CREATE FUNCTION %s(%s) RETURNS %s AS %s, %s "
						 "LANGUAGE c IMMUTABLE STRICT PARALLEL SAFE COST 10",
						 function, arguments, to, quote_literal_cstr(library), quote_literal_cstr(symbol)));
	run_command(psprintf("CREATE CAST (%s AS %s) WITH FUNCTION %s(%s) AS ASSIGNMENT",
						 from, to, function, arguments));
	run_command(psprintf("COMMENT ON CAST (%s AS %s) IS %s", from, to, quote_literal_cstr(comment)));
}

/* gpuvec_sparsevec_casts() */
Datum
gpuvec_sparsevec_casts(PG_FUNCTION_ARGS)
{
	Oid			self = fcinfo->flinfo->fn_oid;
	Oid			schema = get_func_namespace(self);
	Oid			sparsevec = find_sparsevec();
	Oid			idvec = GetSysCacheOid2(TYPENAMENSP, Anum_pg_type_oid, CStringGetDatum("idvec"),
										ObjectIdGetDatum(schema));
	const char *library = library_of(self);
	const char *vector_name;
	const char *sparse_name;

	if (!OidIsValid(idvec))
		elog(ERROR, "there is no type idvec beside the function");
	vector_name = format_type_extended(idvec, -1, FORMAT_TYPE_FORCE_QUALIFY);
	sparse_name = format_type_extended(sparsevec, -1, FORMAT_TYPE_FORCE_QUALIFY);
	SPI_connect();
	make_cast(quote_qualified_identifier(get_namespace_name(schema), "idvec"), sparse_name,
			  sparsevec, idvec, library, "sparsevec_to_idvec", "index i is id i");
	make_cast(quote_qualified_identifier(get_namespace_name(schema), "idvec_to_sparsevec"),
			  psprintf("%s, pg_catalog.int4, pg_catalog.bool", vector_name),
			  idvec, sparsevec, library, "idvec_to_sparsevec",
			  "id i is index i; without a number of dimensions it has as many as the greatest id");
	SPI_finish();
	PG_RETURN_VOID();
}
