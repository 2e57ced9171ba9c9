/*-------------------------------------------------------------------------
 *
 * described.c
 *	  What this session knows of how columns are described.
 *
 * To describe a column takes some twenty look-ups in the catalogs, and a lock
 * of its index.  A search of many partitions would do that for each of them,
 * each time.  So the last description of each relation is kept, until
 * something of the relation or of its index changes: the server tells of
 * that by invalidations, before it lets go of the locks of who has changed it.
 * The caller has locked the relation and taken its snapshot, and accepts
 * invalidations then.  So whatever was done to the relation, or was done to
 * the index by a transaction before that of a row that the snapshot sees, is
 * known.  One transaction may give the index another file and insert the row,
 * too, and be seen before its invalidations are: such insertions are counted
 * (FeedMoves()).
 *
 * Kept is what all transactions see alike: descriptions of shared mirrors,
 * outside recovery.  A transaction that changes the definition of the column
 * hears of its own changes, too, also when they are rolled back.  Rights are
 * not kept: the caller checks them each time.
 *
 * The index is neither locked nor opened then: see MirrorFollowServing().
 *
 *-------------------------------------------------------------------------
 */
#include "gpuvec.h"

#include "mirror/describe/mirror.h"
#include "mirror/feed/feed.h"
#include "utils/builtins.h"
#include "utils/hsearch.h"
#include "utils/inval.h"
#include "utils/memutils.h"
#include "utils/syscache.h"

/* Most relations and indexes to know */
#define MOST_DESCRIBED	8192

/* A relation, or an index that one of them follows */
typedef struct Described
{
	Oid			relid;
	Oid			table;			/* of an index: whose target follows it; else
								 * InvalidOid */
	NameData	column;
	Oid			idset_type;		/* the type of sets; the column was checked to
								 * be of it, or of vectors */
	MirrorTarget *target;		/* NULL: not known */
	uint64		moves;			/* FeedMoves() before it was described */
} Described;

static HTAB *described = NULL;
static MemoryContext context;	/* of targets */
static uint64 changes = 0;		/* invalidations so far */
static uint64 moves_begun;		/* FeedMoves() at MirrorDescribedBegin() */

/* Forget everything */
static void
forget_all(void)
{
	described = NULL;
	if (context != NULL)
		MemoryContextReset(context);
}

/* Forget a relation */
static void
forget(Oid relid)
{
	Described  *entry = hash_search(described, &relid, HASH_FIND, NULL);

	if (entry == NULL || entry->target == NULL)
		return;
	pfree(entry->target);
	entry->target = NULL;
}

/* Relcache callback; InvalidOid: any relation */
static void
relation_changed(Datum arg, Oid relid)
{
	Described  *entry;

	changes++;
	if (described == NULL)
		return;
	if (!OidIsValid(relid))
	{
		forget_all();
		return;
	}
	entry = hash_search(described, &relid, HASH_FIND, NULL);
	if (entry == NULL)
		return;
	if (OidIsValid(entry->table))
		forget(entry->table);
	forget(relid);
}

/* Syscache callback: a database, or an access method, has changed */
static void
catalog_changed(Datum arg, int cache, uint32 hash)
{
	changes++;
	forget_all();
}

/* Make the table, and register for invalidations */
static void
make_table(void)
{
	HASHCTL		control = {.keysize = sizeof(Oid), .entrysize = sizeof(Described)};
	static int	registered = 0;

	if (context == NULL)
		context = AllocSetContextCreate(CacheMemoryContext, "gpuvec descriptions",
										ALLOCSET_DEFAULT_SIZES);
	control.hcxt = context;
	described = hash_create("gpuvec descriptions", 256, &control,
							HASH_ELEM | HASH_BLOBS | HASH_CONTEXT);
	if (registered++ == 0)
	{
		CacheRegisterRelcacheCallback(relation_changed, (Datum) 0);
		CacheRegisterSyscacheCallback(DATABASEOID, catalog_changed, (Datum) 0);
		CacheRegisterSyscacheCallback(AMOID, catalog_changed, (Datum) 0);
	}
}

/* The entry of a relation; makes one that knows nothing if there is none */
static Described *
find_or_make(Oid relid)
{
	bool		found;
	Described  *entry = hash_search(described, &relid, HASH_ENTER, &found);

	if (!found)
	{
		entry->table = InvalidOid;
		entry->target = NULL;
	}
	return entry;
}

uint64
MirrorDescribedBegin(void)
{
	if (described != NULL && hash_get_num_entries(described) >= MOST_DESCRIBED)
		forget_all();
	if (described == NULL)
		make_table();
	moves_begun = FeedMoves();
	return changes;
}

/*
 * What a kept description does not cover: it is one of a snapshot that is not
 * of recovery, and of a relation that this transaction has not made or
 * rewritten
 */
static bool
may_keep(Relation rel)
{
	return rel->rd_createSubid == InvalidSubTransactionId &&
		GpuvecRelFirstFileSubid(rel) == InvalidSubTransactionId &&
		!GpuvecOldSnapshotThresholdActive() && !MirrorSnapshotOfRecovery();
}

void
MirrorDescribedKeep(uint64 begun, const char *column, Oid idset_type, const MirrorTarget *target)
{
	Described  *entry;

	if (changes != begun || target->mode != MIRROR_SHARED || target->passing ||
		(OidIsValid(target->serving) && !target->fed) || !may_keep(target->rel))
		return;
	if (OidIsValid(target->serving))
		find_or_make(target->serving)->table = RelationGetRelid(target->rel);
	entry = find_or_make(RelationGetRelid(target->rel));
	if (entry->target == NULL)
		entry->target = MemoryContextAlloc(context, sizeof(MirrorTarget));
	*entry->target = *target;
	entry->target->rel = NULL;
	namestrcpy(&entry->column, column);
	entry->idset_type = idset_type;
	entry->moves = moves_begun;
}

bool
MirrorDescribeAgain(Relation rel, const char *column, Oid idset_type, MirrorTarget *target)
{
	Oid			relid = RelationGetRelid(rel);
	const Described *entry = described ? hash_search(described, &relid, HASH_FIND, NULL) : NULL;

	if (entry == NULL || entry->target == NULL || entry->idset_type != idset_type ||
		strcmp(NameStr(entry->column), column) != 0 || !may_keep(rel) ||
		entry->target->key.relfilenumber != GpuvecRelFile(rel) ||
		entry->target->key.tablespace != GpuvecRelTablespace(rel) ||
		(entry->target->fed && entry->moves != FeedMoves()))
		return false;
	*target = *entry->target;
	target->rel = rel;
	return true;
}
