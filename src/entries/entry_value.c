/*-------------------------------------------------------------------------
 *
 * entry_value.c
 *	  What an index keeps of a value of its first column: the value, or a set
 *	  that its operator class makes of it.
 *
 * The functions that make sets are of this extension: only a superuser can
 * make operator classes.  They may call functions of the elements' type.  Who
 * writes a row has its set made, and who searches that of a query.
 *
 *-------------------------------------------------------------------------
 */
#include "gpuvec.h"

#include "access/genam.h"
#include "entries/entries.h"
#include "fmgr.h"
#include "utils/lsyscache.h"

bool
EntriesClassMakesSets(Oid family, Oid type)
{
	return OidIsValid(get_opfamily_proc(family, type, type, ENTRY_SET_PROC));
}

bool
EntriesMakeSets(Relation index)
{
	return OidIsValid(index_getprocid(index, 1, ENTRY_SET_PROC));
}

struct varlena *
EntriesValue(Relation index, Datum value)
{
	if (EntriesMakeSets(index))
		value = FunctionCall1Coll(index_getprocinfo(index, 1, ENTRY_SET_PROC),
								  index->rd_indcollation[0], value);
	return PG_DETOAST_DATUM_PACKED(value);
}

/* error_context_stack callback: whose index makes a set */
static void
name_index(void *arg)
{
	errcontext("making a set for index \"%s\"", RelationGetRelationName((Relation) arg));
}

struct varlena *
EntriesRowValue(Relation index, Datum value)
{
	ErrorContextCallback callback = {
		.previous = error_context_stack, .callback = name_index, .arg = index
	};
	struct varlena *stored;

	error_context_stack = &callback;
	stored = EntriesValue(index, value);
	error_context_stack = callback.previous;
	return stored;
}

struct varlena *
EntriesQuery(Relation index, const ScanKeyData *key, Datum value)
{
	Datum		set = FunctionCall3Coll(index_getprocinfo(index, 1, ENTRY_QUERY_PROC),
										index->rd_indcollation[0], value,
										Int16GetDatum(key->sk_strategy),
										ObjectIdGetDatum(key->sk_subtype));

	return (struct varlena *) DatumGetPointer(set);
}
