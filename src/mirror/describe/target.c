/*-------------------------------------------------------------------------
 *
 * target.c
 *	  Describes mirrors: their columns and their keys.
 *
 * The key of a mirror names the database, the file of the relation, and the
 * columns.  It also covers what else decides how rows of the file are to be
 * read: when that changes, there is another mirror.
 *
 *-------------------------------------------------------------------------
 */
#include "gpuvec.h"

#include "access/heapam.h"
#include "access/htup_details.h"
#include "access/relation.h"
#include "access/tableam.h"
#include "access/transam.h"
#include "access/tupdesc_details.h"
#include "access/xact.h"
#include "access/xlog.h"
#include "catalog/catalog.h"
#include "catalog/pg_attribute.h"
#include "catalog/pg_class.h"
#include "catalog/pg_index.h"
#include "commands/defrem.h"
#include "common/hashfn.h"
#include "entries/entries.h"
#include "mirror/describe/mirror.h"
#include "mirror/describe/row_value.h"
#include "miscadmin.h"
#include "storage/lmgr.h"
#include "utils/datum.h"
#include "utils/lsyscache.h"
#include "utils/snapmgr.h"
#include "utils/syscache.h"

/*
 * Hash of the value that a column has in rows that are older than the column.
 * It is in the catalog, so the same file can mean different rows.
 */
static uint64
missing_hash(Relation rel, AttrNumber attnum)
{
	TupleDesc	desc = RelationGetDescr(rel);
	Form_pg_attribute att = TupleDescAttr(desc, attnum - 1);
	Datum		datum;
	uint64		hash;

	if (!att->atthasmissing || desc->constr == NULL || desc->constr->missing == NULL ||
		!desc->constr->missing[attnum - 1].am_present)
		return 0;
	datum = desc->constr->missing[attnum - 1].am_value;
	if (att->attbyval)
		hash = hash_bytes_extended((const unsigned char *) &datum, sizeof(datum), 0);
	else if (att->attlen == -1)
	{
		struct varlena *value = PG_DETOAST_DATUM(datum);

		hash = hash_bytes_extended((const unsigned char *) VARDATA_ANY(value),
								   VARSIZE_ANY_EXHDR(value), 0);
	}
	else
		hash = hash_bytes_extended((const unsigned char *) DatumGetPointer(datum),
								   datumGetSize(datum, false, att->attlen), 0);
	return hash == 0 ? 1 : hash;
}

/*
 * The transaction that made this database, or last changed its row in the
 * catalog.  A new database may get the OID of a dropped one.  If it is a copy
 * of the same template, it also gets the OIDs of all that the dropped one
 * contained.
 */
static TransactionId
database_version(void)
{
	HeapTuple	tuple = SearchSysCache1(DATABASEOID, ObjectIdGetDatum(MyDatabaseId));
	TransactionId version;

	if (!HeapTupleIsValid(tuple))
		elog(ERROR, "cache lookup failed for database %u", MyDatabaseId);
	version = HeapTupleHeaderGetRawXmin(tuple->t_data);
	ReleaseSysCache(tuple);
	return version;
}

/*
 * The transaction that made this relation or its file, or last changed its
 * row in the catalog.  With wal_level = minimal the pages of a new file may
 * have neither WAL nor LSNs.  If file and relation have the OIDs of dropped
 * ones, nothing else tells the new pages from those of an old mirror.
 */
static TransactionId
relation_version(Relation rel)
{
	HeapTuple	tuple = SearchSysCache1(RELOID, ObjectIdGetDatum(RelationGetRelid(rel)));
	TransactionId version;

	if (!HeapTupleIsValid(tuple))
		elog(ERROR, "cache lookup failed for relation %u", RelationGetRelid(rel));
	version = HeapTupleHeaderGetRawXmin(tuple->t_data);
	ReleaseSysCache(tuple);
	return version;
}

/*
 * True if the current transaction has written this catalog row; releases it
 */
static bool
row_is_ours(HeapTuple tuple)
{
	bool		ours = HeapTupleIsValid(tuple) &&
		TransactionIdIsCurrentTransactionId(HeapTupleHeaderGetXmin(tuple->t_data));

	if (HeapTupleIsValid(tuple))
		ReleaseSysCache(tuple);
	return ours;
}

/*
 * True if the current transaction has changed what the column means.  One
 * without a transaction id has written nothing.
 */
static bool
definition_changed(Relation rel, AttrNumber attnum)
{
	Oid			relid = RelationGetRelid(rel);

	if (!TransactionIdIsValid(GetTopTransactionIdIfAny()))
		return false;
	return rel->rd_createSubid != InvalidSubTransactionId ||
		GpuvecRelFirstFileSubid(rel) != InvalidSubTransactionId ||
		row_is_ours(SearchSysCache1(RELOID, ObjectIdGetDatum(relid))) ||
		row_is_ours(SearchSysCache2(ATTNUM, ObjectIdGetDatum(relid),
									Int16GetDatum(attnum)));
}

/* How must this relation be searched? */
static MirrorMode
choose_mode(Relation rel, AttrNumber attnum)
{
	if (rel->rd_tableam != GetHeapamTableAmRoutine() || IsCatalogRelation(rel))
		return MIRROR_NONE;
	if (GpuvecOldSnapshotThresholdActive())
		return MIRROR_NONE;
	if (!RelationNeedsWAL(rel) || definition_changed(rel, attnum))
		return MIRROR_PRIVATE;
	return MIRROR_SHARED;
}

/*
 * Let the mirror have the filter columns of an index, by its row of pg_index.
 * What decides about their keys becomes part of the mirror's meaning.
 */
static void
add_filters(Relation rel, HeapTuple index, MirrorTarget *target)
{
	gpuvec_mirror_key *key = &target->key;

	FilterDescribe(index, &target->filters);
	key->nfilters = target->filters.n;
	if (key->nfilters > 0)
		key->meaning = hash_combine64(key->meaning, FILTER_VERSION);
	for (uint32 i = 0; i < key->nfilters; i++)
	{
		const FilterColumn *column = &target->filters.columns[i];

		key->meaning = hash_combine64(key->meaning, (uint64) column->type << 32 | column->collation);
		key->meaning = hash_combine64(key->meaning, (uint64) column->kind << 32 |
									  (uint64) column->prefix << 31 | (uint16) column->attnum);
		if (column->attnum == 0)
			continue;
		key->meaning = hash_combine64(key->meaning,
									  TupleDescAttr(RelationGetDescr(rel), column->attnum - 1)->atttypid);
		key->meaning = hash_combine64(key->meaning, missing_hash(rel, column->attnum));
		if (target->mode == MIRROR_SHARED)
			target->mode = choose_mode(rel, column->attnum);
	}
}

/* Let the rows of a mirror be of a column's type */
static void
describe_type(Oid type, MirrorTarget *target)
{
	target->key.type = type;
	target->key.values = RowTypeHasValues(type);
}

/* Describe what all kinds of mirrors have in common */
static void
describe(Relation rel, AttrNumber attnum, MirrorTarget *target)
{
	memset(target, 0, sizeof(*target));
	target->rel = rel;
	target->attnum = attnum;
	target->mode = choose_mode(rel, attnum);
	target->key.database = MyDatabaseId;
	target->key.tablespace = GpuvecRelTablespace(rel);
	target->key.relation = RelationGetRelid(rel);
	target->key.relfilenumber = GpuvecRelFile(rel);
	target->key.attnum = attnum;
	target->key.meaning = database_version();
	if (!XLogIsNeeded())
		target->key.meaning = hash_combine64(target->key.meaning, relation_version(rel));
	if (attnum == 0)
		return;
	describe_type(TupleDescAttr(RelationGetDescr(rel), attnum - 1)->atttypid, target);
	target->key.meaning = hash_combine64(target->key.meaning, missing_hash(rel, attnum));
}

/*
 * True if search functions may use this index on the column.  `tuple` is its
 * row of pg_index.  The planner asks the same before it plans an index scan.
 */
static bool
index_serves(HeapTuple tuple, AttrNumber attnum)
{
	Form_pg_index form = (Form_pg_index) GETSTRUCT(tuple);

	for (int i = 1; i < form->indnkeyatts; i++)
		if (form->indkey.values[i] == 0)
			return false;
	return form->indkey.values[0] == attnum &&
		form->indisvalid && form->indisready && form->indislive &&
		heap_attisnull(tuple, Anum_pg_index_indpred, NULL) &&
		!(form->indcheckxmin &&
		  !TransactionIdPrecedes(HeapTupleHeaderGetXmin(tuple->t_data), TransactionXmin));
}

/* The access method of a relation */
static Oid
relation_am(Oid relid)
{
	HeapTuple	tuple = SearchSysCache1(RELOID, ObjectIdGetDatum(relid));
	Oid			am = InvalidOid;

	if (HeapTupleIsValid(tuple))
	{
		am = ((Form_pg_class) GETSTRUCT(tuple))->relam;
		ReleaseSysCache(tuple);
	}
	return am;
}

/* True if it may depend on the snapshot whether an index serves */
static bool
depends_on_snapshot(HeapTuple tuple)
{
	return ((Form_pg_index) GETSTRUCT(tuple))->indcheckxmin;
}

/*
 * A gpuvec index on the column that functions may use, or InvalidOid.  One
 * without filter columns is preferred: its mirror is smaller.  Sets *passing
 * if another one, or none, may serve later.
 */
static Oid
serving_index(Relation rel, AttrNumber attnum, bool *passing)
{
	Oid			found = InvalidOid;
	int			most = INDEX_MAX_KEYS + 1;
	Oid			am;
	List	   *oids;
	ListCell   *cell;

	if (!rel->rd_rel->relhasindex)
		return InvalidOid;
	am = get_am_oid("gpuvec", true);
	if (!OidIsValid(am))
		return InvalidOid;
	oids = RelationGetIndexList(rel);
	foreach(cell, oids)
	{
		HeapTuple	tuple;

		if (most == 1 || relation_am(lfirst_oid(cell)) != am)
			continue;
		tuple = SearchSysCache1(INDEXRELID, ObjectIdGetDatum(lfirst_oid(cell)));
		if (!HeapTupleIsValid(tuple))
			continue;
		*passing |= depends_on_snapshot(tuple);
		if (((Form_pg_index) GETSTRUCT(tuple))->indnkeyatts < most && index_serves(tuple, attnum))
		{
			found = lfirst_oid(cell);
			most = ((Form_pg_index) GETSTRUCT(tuple))->indnkeyatts;
		}
		ReleaseSysCache(tuple);
	}
	list_free(oids);
	return found;
}

/*
 * The index that functions use on the column of a mirror that is described
 * without an index.  In recovery such a mirror is not rooted for it.
 */
Oid
MirrorServingIndex(const MirrorTarget *target)
{
	bool		passing = false;

	if (OidIsValid(target->serving) || target->key_attnum != InvalidAttrNumber)
		return target->serving;
	return serving_index(target->rel, target->attnum, &passing);
}

/* Such a search uses no rooted mirror of a column: see index/recovery.c */
bool
MirrorSnapshotOfRecovery(void)
{
	return RecoveryInProgress() ||
		(ActiveSnapshotSet() && GetActiveSnapshot()->takenDuringRecovery);
}

/*
 * Let the mirror be that of an index that functions may use.  If this
 * transaction has changed a filter column, functions do without the index.
 */
static void
use_serving(Relation rel, Oid index, MirrorTarget *target)
{
	HeapTuple	tuple = SearchSysCache1(INDEXRELID, ObjectIdGetDatum(index));

	if (!HeapTupleIsValid(tuple))
		elog(ERROR, "cache lookup failed for index %u", index);
	add_filters(rel, tuple, target);
	ReleaseSysCache(tuple);
	if (target->mode != MIRROR_SHARED)
	{
		describe(rel, target->attnum, target);
		return;
	}
	target->serving = index;
	target->key.rooted = true;
}

/*
 * Describe a column of an open, locked relation.  The mirror is rooted if
 * functions may use an index on the column, and has its filter columns then.
 */
void
MirrorDescribe(Relation rel, AttrNumber attnum, MirrorTarget *target)
{
	static uint64 private_ids = 0;
	Oid			serving = InvalidOid;

	describe(rel, attnum, target);
	if (target->mode == MIRROR_PRIVATE)
		target->key.private_id = ((uint64) MyProcPid << 32) | ++private_ids;
	else if (target->mode == MIRROR_SHARED && !MirrorSnapshotOfRecovery())
		serving = serving_index(rel, attnum, &target->passing);
	if (OidIsValid(serving))
		use_serving(rel, serving, target);
}

void
MirrorFollow(MirrorTarget *target)
{
	target->fed = target->mode == MIRROR_SHARED &&
		EntriesBuildId(target->index, target->build);
	for (int i = 0; i < sizeof(target->key.meaning); i++)
		target->build[i] ^= (uint8) (target->key.meaning >> 8 * i);
	target->followed = RelationGetRelid(target->index);
	target->followed_file = GpuvecRelFile(target->index);
	target->followed_tablespace = GpuvecRelTablespace(target->index);
}

/*
 * The index cannot cease to hear of insertions before this transaction ends:
 * who drops it concurrently makes it invalid first, and then waits for all
 * that have locked the table.  So it is unlocked at once.  It may get another
 * file meanwhile, from a transaction that locks it after this, and so commits
 * after the caller's snapshot was taken: what that inserts, the snapshot does
 * not see.
 */
void
MirrorFollowServing(MirrorTarget *target)
{
	if (target->mode != MIRROR_SHARED || !OidIsValid(target->serving) ||
		!ConditionalLockRelationOid(target->serving, AccessShareLock))
		return;
	target->index = try_relation_open(target->serving, NoLock);
	if (target->index == NULL)
	{
		UnlockRelationOid(target->serving, AccessShareLock);
		return;
	}
	MirrorFollow(target);
	relation_close(target->index, AccessShareLock);
	target->index = NULL;
}

/*
 * The file of the index for which a mirror is rooted.  If the target has no
 * index, it is the one that functions use, and no lock keeps it.
 * False: there is none.
 */
bool
MirrorIndexFile(const MirrorTarget *target, Oid *tablespace, Oid *file)
{
	HeapTuple	tuple;
	Form_pg_class form;

	if (target->index != NULL)
	{
		*tablespace = GpuvecRelTablespace(target->index);
		*file = GpuvecRelFile(target->index);
		return true;
	}
	if (target->fed)
	{
		*tablespace = target->followed_tablespace;
		*file = target->followed_file;
		return true;
	}
	tuple = SearchSysCache1(RELOID, ObjectIdGetDatum(target->serving));
	if (!HeapTupleIsValid(tuple))
		return false;
	form = (Form_pg_class) GETSTRUCT(tuple);
	*tablespace = OidIsValid(form->reltablespace) ? form->reltablespace : MyDatabaseTableSpace;
	*file = form->relfilenode;
	ReleaseSysCache(tuple);
	return true;
}

/* Describe the mirror of an index; index and table are open and locked */
void
MirrorDescribeIndex(Relation rel, Relation index, MirrorTarget *target)
{
	/* sets that an index makes are those of an expression, too */
	describe(rel, EntriesMakeSets(index) ? 0 : index->rd_index->indkey.values[0], target);
	target->index = index;
	target->key.rooted = true;
	add_filters(rel, index->rd_indextuple, target);
	if (target->attnum == 0)
		describe_type(TupleDescAttr(RelationGetDescr(index), 0)->atttypid, target);
	if (EntriesKept(index))
	{
		uint64		build[2] = {0};

		/* each build keeps rows of its own, whatever code computed them */
		(void) EntriesBuildId(index, (uint8 *) build);
		target->key.meaning = hash_combine64(hash_combine64(target->key.meaning, build[0]), build[1]);
		if (target->mode == MIRROR_SHARED && !RelationNeedsWAL(index))
			target->mode = MIRROR_PRIVATE;
		target->key.index = RelationGetRelid(index);
		target->key.index_file = GpuvecRelFile(index);
		target->key.index_tablespace = GpuvecRelTablespace(index);
	}
}

/*
 * The relation whose pages the mirror is read from: the table, or an index
 * that keeps its rows
 */
Relation
MirrorSource(const MirrorTarget *target)
{
	return target->key.index != 0 ? target->index : target->rel;
}

/* Describe an embedding table.  The types of both columns were checked. */
void
MirrorDescribeEmbedding(Relation rel, AttrNumber key_attnum, AttrNumber attnum,
						MirrorTarget *target)
{
	describe(rel, attnum, target);
	if (target->mode == MIRROR_SHARED)
		target->mode = choose_mode(rel, key_attnum);
	target->key_attnum = key_attnum;
	target->key.key_attnum = key_attnum;
	target->key.key_type = TupleDescAttr(RelationGetDescr(rel), key_attnum - 1)->atttypid;
	target->key.key_missing = missing_hash(rel, key_attnum);
	target->key_type = getBaseType(target->key.key_type);
	target->vector_type = MirrorVectorTypeOf(target->key.type);
	target->key.storage = target->vector_type == MIRROR_HALFVEC ? GPUVEC_FLOAT16 :
		gpuvec_vector_storage;
}
