/*-------------------------------------------------------------------------
 *
 * count_fetched.c
 *	  Rows that a node that counts has to look at, and counts of the ids of
 *	  their sets.
 *
 * A row of 50 ids would be 50 rows for the aggregate above.  So ids are
 * counted here, as far as there is room, and then returned as groups.
 *
 *-------------------------------------------------------------------------
 */
#include "gpuvec.h"

#include "core/hash_secret.h"
#include "idset/idset.h"
#include "index/count.h"
#include "miscadmin.h"

bool
CountNextToFetch(CountToFetch *fetch, long pages, GpuvecFound *some)
{
	const int64 *roots = fetch->found.roots;
	uint64		at = fetch->next;
	long		n = 0;

	for (; at < fetch->found.n; at++)
	{
		if (at == fetch->next || tid_number_block(roots[at]) != tid_number_block(roots[at - 1]))
			n++;
		if (n > pages)
			break;
	}
	*some = fetch->found;
	some->roots += fetch->next;
	some->n = at - fetch->next;
	fetch->next = at;
	return some->n > 0;
}

/* ---- ids ---- */

typedef struct IdRows
{
	uint32		id;
	char		status;			/* of the hash table */
	uint64		rows;
} IdRows;

/* users choose ids */
#define SH_PREFIX		idrows
#define SH_ELEMENT_TYPE	IdRows
#define SH_KEY_TYPE		uint32
#define SH_KEY			id
#define SH_HASH_KEY(table, key)	gpuvec_secret_id_hash(key)
#define SH_EQUAL(table, a, b)	((a) == (b))
#define SH_SCOPE		static inline
#define SH_DECLARE
#define SH_DEFINE
#include "lib/simplehash.h"

/* Ids that there is room for at first */
#define FEW_IDS			256

struct CountIds
{
	idrows_hash *table;
	idrows_iterator next;		/* which one is taken next */
	bool		taking;
};

CountIds *
CountIdsNew(MemoryContext context)
{
	CountIds   *ids = MemoryContextAllocZero(context, sizeof(CountIds));

	gpuvec_hash_secret_draw();
	ids->table = idrows_create(context, FEW_IDS, NULL);
	return ids;
}

/* The set in a row's first column, or NULL; it is freed by forget_set() */
static IdSet *
read_set(TupleTableSlot *row)
{
	bool		isnull;
	Datum		value = slot_getattr(row, 1, &isnull);

	return isnull ? NULL : DatumGetIdSetP(value);
}

static void
forget_set(TupleTableSlot *row, IdSet *set)
{
	if (set != NULL && (Pointer) set != DatumGetPointer(row->tts_values[0]))
		pfree(set);
}

bool
CountIdsAdd(CountIds *ids, TupleTableSlot *row)
{
	IdSet	   *set = read_set(row);

	for (uint32 i = 0; set != NULL && i < idset_count(set); i++)
	{
		bool		found;
		IdRows	   *entry = idrows_insert(ids->table, idset_id(set, i), &found);

		if (!found)
			entry->rows = 0;
		entry->rows++;
	}
	forget_set(row, set);
	return ids->table->members < work_mem * (Size) 1024 / (2 * sizeof(IdRows));
}

bool
CountIdsTake(CountIds *ids, uint64 *group)
{
	const IdRows *entry;

	if (!ids->taking)
		idrows_start_iterate(ids->table, &ids->next);
	entry = idrows_iterate(ids->table, &ids->next);
	ids->taking = entry != NULL;
	if (entry == NULL)
	{
		idrows_reset(ids->table);
		return false;
	}
	group[GPUVEC_GROUP_ROWS] = entry->rows;
	group[GPUVEC_GROUP_NULLS] = 0;
	group[GPUVEC_GROUP_KEYS] = entry->id;
	return true;
}

void
CountIdsCheck(TupleTableSlot *row, const gpuvec_grouping *grouping, CountCheck *check)
{
	IdSet	   *set = read_set(row);

	for (uint32 i = 0; set != NULL && i < idset_count(set); i++)
	{
		const uint64 group[] = {1, 0, idset_id(set, i)};

		CountCheckAdd(check, grouping, group);
	}
	forget_set(row, set);
}
