/*-------------------------------------------------------------------------
 *
 * elsewhere.c
 *	  Refuse tables whose rows another extension keeps elsewhere.
 *
 * Some extensions replace the plan nodes that read a table, while the table
 * itself looks ordinary.  A table that Citus distributes is an empty shell,
 * or has the rows of the day when it was distributed.  Rows that TimescaleDB
 * has compressed are in another table.  SQL queries see all rows.  Functions
 * that read the table directly would silently miss rows, so they refuse such
 * tables.  A reference table of Citus has one shard with all rows on each
 * node: functions that return no tids read the one that is here.
 *
 * The catalogs of these extensions list their tables.  The catalog of Citus
 * is in pg_catalog, where only superusers create tables.  The schema of
 * TimescaleDB's catalogs could have been created by anybody, so a catalog
 * counts only as a member of the extension.  The catalogs are read with a
 * catalog snapshot, after the table is locked.  Without these extensions, a
 * server pays for two look-ups of names in the system caches.
 *
 *-------------------------------------------------------------------------
 */
#include "gpuvec.h"

#include "access/genam.h"
#include "access/htup_details.h"
#include "access/table.h"
#include "catalog/dependency.h"
#include "catalog/namespace.h"
#include "catalog/pg_class.h"
#include "catalog/pg_index.h"
#include "catalog/pg_namespace.h"
#include "catalog/pg_type.h"
#include "commands/extension.h"
#include "search/set_search.h"
#include "utils/builtins.h"
#include "utils/fmgroids.h"
#include "utils/lsyscache.h"
#include "utils/rel.h"
#include "utils/syscache.h"

/* A condition of a look-up: column = value */
typedef struct LookUp
{
	const char *column;
	Oid			type;			/* REGCLASSOID or NAMEOID */
	Datum		value;
} LookUp;

/* At most this many conditions */
#define MAX_LOOKUPS		2

/* The oid of a plain table, or InvalidOid */
static Oid
find_table(const char *name, Oid schema)
{
	Oid			relid = get_relname_relid(name, schema);

	return OidIsValid(relid) && get_rel_relkind(relid) == RELKIND_RELATION ? relid : InvalidOid;
}

/*
 * The oid of a catalog of TimescaleDB that is a member of the extension, or
 * InvalidOid
 */
static Oid
find_timescale_table(const char *name)
{
	Oid			schema = get_namespace_oid("_timescaledb_catalog", true);
	Oid			relid = OidIsValid(schema) ? find_table(name, schema) : InvalidOid;
	Oid			extension;

	if (!OidIsValid(relid))
		return InvalidOid;
	extension = get_extension_oid("timescaledb", true);
	if (!OidIsValid(extension) ||
		getExtensionOfObject(RelationRelationId, relid) != extension)
		return InvalidOid;
	return relid;
}

void
SearchFindCatalogs(SearchCatalogs *catalogs)
{
	catalogs->citus = find_table("pg_dist_partition", PG_CATALOG_NAMESPACE);
	catalogs->chunks = find_timescale_table("chunk");
	catalogs->compression = InvalidOid;
	if (OidIsValid(catalogs->chunks))
		catalogs->compression = find_timescale_table("compression_settings");
}

/*
 * A complete unique index (so a B-tree) whose first columns are those of the
 * keys, or InvalidOid
 */
static Oid
find_index(Relation catalog, const ScanKeyData *keys, int nkeys)
{
	List	   *indexes = RelationGetIndexList(catalog);
	Oid			result = InvalidOid;
	ListCell   *cell;

	foreach(cell, indexes)
	{
		HeapTuple	tuple = SearchSysCache1(INDEXRELID, ObjectIdGetDatum(lfirst_oid(cell)));
		Form_pg_index form;
		bool		fits;

		if (!HeapTupleIsValid(tuple))
			continue;
		form = (Form_pg_index) GETSTRUCT(tuple);
		fits = form->indisunique && form->indisvalid && form->indnkeyatts >= nkeys &&
			heap_attisnull(tuple, Anum_pg_index_indpred, NULL);
		for (int i = 0; i < nkeys && fits; i++)
			fits = form->indkey.values[i] == keys[i].sk_attno;
		ReleaseSysCache(tuple);
		if (fits)
			result = lfirst_oid(cell);
	}
	list_free(indexes);
	return result;
}

/*
 * Call take() with the value of a column in each row that meets all
 * conditions, until take() returns false.  If a column does not exist or has
 * another type, the catalog is of an unknown version: then no row is found.
 */
static void
look_up(Oid relid, const LookUp *lookups, int nlookups, const char *column, Oid type,
		bool (*take) (Datum value, bool isnull, void *arg), void *arg)
{
	Relation	catalog = table_open(relid, AccessShareLock);
	AttrNumber	wanted = get_attnum(relid, column);
	bool		known = wanted > 0 && get_atttype(relid, wanted) == type;
	ScanKeyData keys[MAX_LOOKUPS];

	for (int i = 0; i < nlookups; i++)
	{
		AttrNumber	attnum = get_attnum(relid, lookups[i].column);

		known = known && attnum > 0 && get_atttype(relid, attnum) == lookups[i].type;
		if (known)
			ScanKeyInit(&keys[i], attnum, BTEqualStrategyNumber,
						lookups[i].type == NAMEOID ? F_NAMEEQ : F_OIDEQ, lookups[i].value);
	}
	if (known)
	{
		Oid			index = find_index(catalog, keys, nlookups);
		SysScanDesc scan = systable_beginscan(catalog, index, OidIsValid(index), NULL,
											  nlookups, keys);
		bool		more = true;
		HeapTuple	tuple;

		while (more && HeapTupleIsValid(tuple = systable_getnext(scan)))
		{
			bool		isnull;
			Datum		value = heap_getattr(tuple, wanted, RelationGetDescr(catalog), &isnull);

			more = take(value, isnull, arg);
		}
		systable_endscan(scan);
	}
	table_close(catalog, AccessShareLock);
}

/* take(): note whether some row has a non-null value */
static bool
note_present(Datum value, bool isnull, void *arg)
{
	*(bool *) arg |= !isnull;
	return isnull;
}

/* take(): note the number of the only shard; a second shard sets it to 0 */
static bool
note_shard(Datum value, bool isnull, void *arg)
{
	int64	   *shard = arg;

	if (isnull || *shard != 0)
	{
		*shard = 0;
		return false;
	}
	*shard = DatumGetInt64(value);
	return true;
}

/* The table's shard; InvalidOid if it has several, or if it is elsewhere */
static Oid
find_shard(Relation rel)
{
	Oid			shards = find_table("pg_dist_shard", PG_CATALOG_NAMESPACE);
	LookUp		lookup = {"logicalrelid", REGCLASSOID, ObjectIdGetDatum(RelationGetRelid(rel))};
	int64		shard = 0;
	char	   *name;

	if (!OidIsValid(shards))
		return InvalidOid;
	look_up(shards, &lookup, 1, "shardid", INT8OID, note_shard, &shard);
	name = psprintf("%s_" INT64_FORMAT, RelationGetRelationName(rel), shard);
	if (shard == 0 || strlen(name) >= NAMEDATALEN)
		return InvalidOid;
	return find_table(name, RelationGetNamespace(rel));
}

/* The qualified name of the table's shard; NULL if there is no such shard */
static char *
name_of_shard(Relation rel)
{
	Oid			shard = find_shard(rel);

	return !OidIsValid(shard) ? NULL :
		quote_qualified_identifier(get_namespace_name(RelationGetNamespace(rel)), get_rel_name(shard));
}

/* take(): note whether the table is one of Citus' reference tables */
static bool
note_reference(Datum value, bool isnull, void *arg)
{
	*(bool *) arg = !isnull && DatumGetChar(value) == 't';
	return false;
}

/*
 * The shard of a reference table of Citus, which has all rows, if it is on
 * this node.  InvalidOid for any other table.
 */
Oid
SearchLocalShard(Relation rel, const SearchCatalogs *catalogs)
{
	LookUp		lookup = {"logicalrelid", REGCLASSOID, ObjectIdGetDatum(RelationGetRelid(rel))};
	bool		reference = false;

	if (!OidIsValid(catalogs->citus))
		return InvalidOid;
	look_up(catalogs->citus, &lookup, 1, "repmodel", CHAROID, note_reference, &reference);
	return reference ? find_shard(rel) : InvalidOid;
}

/* Refuse a table that Citus distributes */
static void
check_citus(Relation rel, const SearchCatalogs *catalogs, bool sets)
{
	LookUp		lookup = {"logicalrelid", REGCLASSOID, ObjectIdGetDatum(RelationGetRelid(rel))};
	bool		found = false;
	char	   *shard;

	look_up(catalogs->citus, &lookup, 1, "logicalrelid", REGCLASSOID, note_present, &found);
	if (!found)
		return;
	shard = name_of_shard(rel);
	ereport(ERROR,
			(errcode(ERRCODE_WRONG_OBJECT_TYPE),
			 errmsg("cannot search relation \"%s\"", RelationGetRelationName(rel)),
			 shard ? errdetail("It is a table of Citus, and its rows are in a shard.") :
			 errdetail("It is distributed by Citus, and its rows are in its shards."),
			 shard ? errhint("Name the shard instead: %s, on each node that has it.", shard) :
			 sets ? errhint("ORDER BY with a distance operator and LIMIT searches all shards; run_command_on_shards calls a function on each.") :
			 errhint("run_command_on_shards calls a function on each shard.")));
}

/* Refuse a chunk of TimescaleDB that has compressed rows */
static void
check_timescale(Relation rel, const SearchCatalogs *catalogs, bool sets)
{
	NameData	schema;
	LookUp		by_name[] = {
		{"schema_name", NAMEOID, NameGetDatum(&schema)},
		{"table_name", NAMEOID, NameGetDatum(&rel->rd_rel->relname)}
	};
	LookUp		by_oid = {"relid", REGCLASSOID, ObjectIdGetDatum(RelationGetRelid(rel))};
	char	   *schema_name = get_namespace_name(RelationGetNamespace(rel));
	bool		found = false;

	if (schema_name == NULL)
		return;
	namestrcpy(&schema, schema_name);
	look_up(catalogs->chunks, by_name, lengthof(by_name), "compressed_chunk_id", INT4OID,
			note_present, &found);
	if (!found && OidIsValid(catalogs->compression))
		look_up(catalogs->compression, &by_oid, 1, "compress_relid", REGCLASSOID,
				note_present, &found);
	if (!found)
		return;
	ereport(ERROR,
			(errcode(ERRCODE_WRONG_OBJECT_TYPE),
			 errmsg("cannot search relation \"%s\"", RelationGetRelationName(rel)),
			 errdetail("It is a chunk that TimescaleDB has compressed, and its rows are elsewhere."),
			 sets ? errhint("ORDER BY with a distance operator and LIMIT searches all rows; decompress_chunk brings them back.") :
			 errhint("decompress_chunk brings them back.")));
}

void
SearchCheckElsewhere(Relation rel, const SearchCatalogs *catalogs, bool sets)
{
	if (OidIsValid(catalogs->citus))
		check_citus(rel, catalogs, sets);
	if (OidIsValid(catalogs->chunks))
		check_timescale(rel, catalogs, sets);
}
