/*-------------------------------------------------------------------------
 *
 * id_sums.c
 *	  A number for each of some ids, in a hash table.
 *
 *-------------------------------------------------------------------------
 */
#include "gpuvec.h"

#include "core/bounds.h"
#include "core/hash_secret.h"
#include "idset/id_sums.h"

#define SH_PREFIX		idsums
#define SH_ELEMENT_TYPE IdSum
#define SH_KEY_TYPE		uint32
#define SH_KEY			id
#define SH_HASH_KEY(table, key)	gpuvec_secret_id_hash(key)
#define SH_EQUAL(table, a, b)	((a) == (b))
#define SH_SCOPE		static inline
#define SH_DEFINE
#define SH_DECLARE
#include "lib/simplehash.h"

/* Ids that a new table has room for */
#define FIRST_IDS		16

IdSums *
id_sums_make(MemoryContext context)
{
	IdSums	   *sums = MemoryContextAlloc(context, sizeof(IdSums));

	gpuvec_hash_secret_draw();
	sums->table = idsums_create(context, FIRST_IDS, NULL);
	return sums;
}

void
id_sums_add(IdSums *sums, uint32 id, double number)
{
	bool		found;
	IdSum	   *entry = idsums_insert(sums->table, id, &found);

	if (!found)
	{
		entry->sum = 0;
		if (id_sums_count(sums) > GPUVEC_MAX_IDS)
			ereport(ERROR,
					(errcode(ERRCODE_PROGRAM_LIMIT_EXCEEDED),
					 errmsg("too many ids for type idvec"),
					 errdetail("A vector has at most %d ids.", GPUVEC_MAX_IDS)));
	}
	entry->sum += number;
}

uint32
id_sums_count(const IdSums *sums)
{
	return sums->table->members;
}

/* qsort comparator */
static int
compare_ids(const void *a, const void *b)
{
	uint32		x = ((const IdSum *) a)->id;
	uint32		y = ((const IdSum *) b)->id;

	return x < y ? -1 : x > y;
}

IdSum *
id_sums_list(const IdSums *sums)
{
	IdSum	   *list = palloc_array(IdSum, Max(id_sums_count(sums), 1));
	IdSum	   *entry;
	idsums_iterator iterator;
	uint32		n = 0;

	idsums_start_iterate(sums->table, &iterator);
	while ((entry = idsums_iterate(sums->table, &iterator)) != NULL)
		list[n++] = *entry;
	qsort(list, n, sizeof(IdSum), compare_ids);
	return list;
}
