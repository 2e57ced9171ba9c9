/*-------------------------------------------------------------------------
 *
 * counts_test.c
 *	  Counts of the ids of a sample (src/idset/idset_counts.c) against an
 *	  array with a counter for each id: sets of all lengths, more ids than are
 *	  collected at a time, and more different ones than are kept.
 *
 * Each allocation is watched: what was written beyond it shows when it is
 * freed, or at the end.
 *
 * Usage: counts_test [SEED]
 *
 *-------------------------------------------------------------------------
 */
#include "gpuvec.h"

#include "idset/idset_counts.h"
#include "utils/memutils.h"

#undef printf
#undef fprintf
#undef qsort
#include <stdio.h>
#include <stdlib.h>

/* Ids are below IDS, or so much larger that they are below that again */
#define IDS			(3 << 20)
#define MOST_IDS	GPUVEC_MAX_IDS

/* What follows each allocation */
#define GUARD		64
#define GUARD_BYTE	0x5A

MemoryContext CurrentMemoryContext = NULL;

static uint32 expected[IDS];
static long checked = 0;

static void
fail(const char *what, uint32 id)
{
	fprintf(stderr, "%s: wrong at id %u\n", what, id);
	exit(1);
}

/* ---- what the counts need of the server ---- */

static void *
allocate(Size size, bool zero)
{
	char	   *memory = zero ? calloc(1, sizeof(Size) * 2 + size + GUARD) : malloc(sizeof(Size) * 2 + size + GUARD);

	if (memory == NULL)
		exit(1);
	memcpy(memory, &size, sizeof(size));
	memory += sizeof(Size) * 2;
	memset(memory + size, GUARD_BYTE, GUARD);
	return memory;
}

static void
check_guard(const char *memory)
{
	Size		size;

	memcpy(&size, memory - sizeof(Size) * 2, sizeof(size));
	for (int i = 0; i < GUARD; i++)
		if (memory[size + i] != GUARD_BYTE)
			fail("written beyond an allocation", i);
}

void *
palloc(Size size)
{
	return allocate(size, false);
}

void *
palloc0(Size size)
{
	return allocate(size, true);
}

/* what the macros call in some versions */
extern void *palloc_mul(Size size, Size n);
extern void *palloc0_mul(Size size, Size n);

void *
palloc_mul(Size size, Size n)
{
	return allocate(size * n, false);
}

void *
palloc0_mul(Size size, Size n)
{
	return allocate(size * n, true);
}

void *
MemoryContextAlloc(MemoryContext context, Size size)
{
	return allocate(size, false);
}

void *
MemoryContextAllocHuge(MemoryContext context, Size size)
{
	return allocate(size, false);
}

void
pfree(void *memory)
{
	check_guard(memory);
	free((char *) memory - sizeof(Size) * 2);
}

static int
compare_ids(const void *a, const void *b)
{
	uint32		x = *(const uint32 *) a;
	uint32		y = *(const uint32 *) b;

	return x < y ? -1 : x > y;
}

void
idset_sort(uint32 *ids, uint32 n)
{
	qsort(ids, n, sizeof(uint32), compare_ids);
}

/* ---- the test ---- */

/* Ids of the upper half are sent as the greatest that there are */
static uint32
sent_id(uint32 id)
{
	return id < IDS / 2 ? id : PG_UINT32_MAX - (IDS - 1 - id);
}

/* Count a set of n of the ids, which are ascending */
static void
add_set(IdCounts *counts, const uint32 *ids, uint32 n)
{
	static char capacity[VARHDRSZ + MOST_IDS * sizeof(uint32) + 1] __attribute__((aligned(8)));
	IdSet	   *set = (IdSet *) capacity;
	bool		wide = n > 0 && ids[n - 1] > IDSET_MAX_NARROW_ID;

	SET_VARSIZE(set, VARHDRSZ + (wide ? n * sizeof(uint32) + 1 : n * sizeof(uint16)));
	for (uint32 i = 0; i < n; i++)
	{
		expected[ids[i]]++;
		if (wide)
			((uint32 *) set->ids)[i] = sent_id(ids[i]);
		else
			set->ids[i] = (uint16) ids[i];
	}
	idset_counts_add(counts, idset_span(set));
}

/* Add a set of about n ids of [from, to) */
static void
add_random(IdCounts *counts, uint32 n, uint32 from, uint32 to)
{
	static uint32 ids[MOST_IDS];
	double		step = (double) (to - from) / Max(n, 1);
	uint32		have = 0;

	for (double at = from + drand48() * step; at < to && have < MOST_IDS; at += 1 + drand48() * 2 * Max(step - 1, 0))
		ids[have++] = (uint32) at;
	add_set(counts, ids, have);
}

/* Compare with what was expected; if ids were given up, counts may be low */
static void
compare(IdCounts *counts, uint32 least, bool low)
{
	uint32		n;
	bool		cut;
	bool		some = low;
	IdCount    *list = idset_counts_list(counts, least, &n, &cut);
	uint32		i = 0;

	for (uint32 id = 0; id < IDS; id++)
	{
		bool		listed = i < n && list[i].id == sent_id(id);
		uint32		count = listed ? list[i++].count : 0;

		some |= expected[id] > 0 && expected[id] < least;
		if (low ? count > expected[id] || (id <= IDSET_MAX_NARROW_ID && count != expected[id] && count > 0) :
			count != (expected[id] >= least ? expected[id] : 0))
			fail("count", id);
	}
	if (i != n)
		fail("list", list[i].id);
	if (cut != some)
		fail("cut", least);
	pfree(list);
	checked++;
}

static IdCounts *
begin(void)
{
	memset(expected, 0, sizeof(expected));
	return idset_counts_make();
}

static void
end(IdCounts *counts)
{
	check_guard((char *) counts->narrow);
	if (counts->fresh)
		check_guard((char *) counts->fresh);
	if (counts->wide)
		pfree(counts->wide);
	if (counts->fresh)
		pfree(counts->fresh);
	pfree(counts->narrow);
	pfree(counts);
}

/* Sets of all lengths; as many ids as are collected at a time, and more */
static void
check_lengths(uint32 length, uint32 nsets)
{
	IdCounts   *counts = begin();

	compare(counts, 1, false);
	for (uint32 i = 0; i < nsets; i++)
	{
		uint32		n = drand48() < 0.5 ? length : (uint32) (drand48() * length);

		switch (i % 4)
		{
			case 0:
				add_random(counts, Min(n, 60000), 0, 65536);
				break;
			case 1:
				add_random(counts, n, 60000, 300000);
				break;
			case 2:
				add_random(counts, n, 0, 300000);
				break;
			default:
				add_random(counts, n, IDS - 100000, IDS);
		}
	}
	compare(counts, 1, false);
	add_random(counts, length, 0, IDS);
	compare(counts, 1 + (uint32) (drand48() * 3), false);
	end(counts);
}

/*
 * More different ids than are kept.  Ids that come in each set are counted
 * from first to last, and the others are not told to be more than they are.
 */
static void
check_many(void)
{
	IdCounts   *counts = begin();
	static uint32 ids[MOST_IDS];
	uint32		n;
	bool		cut;
	IdCount    *list;
	uint32		frequent = 0;

	for (uint32 i = 0; i < 200; i++)
	{
		for (uint32 j = 0; j < MOST_IDS / 4; j++)
			ids[j] = j < 1000 ? 65000 + j : 70000 + (uint32) (((uint64) i * 15384 + j - 1000) % (IDS - 90000));
		qsort(ids, MOST_IDS / 4, sizeof(uint32), compare_ids);
		add_set(counts, ids, MOST_IDS / 4);
	}
	compare(counts, 1, true);
	list = idset_counts_list(counts, 200, &n, &cut);
	for (uint32 i = 0; i < n; i++)
		frequent += list[i].id >= 65000 && list[i].id < 66000;
	if (n != 1000 || frequent != 1000 || !cut)
		fail("frequent ids", n);
	pfree(list);
	end(counts);
}

int
main(int argc, char **argv)
{
	srand48(argc > 1 ? atol(argv[1]) : 17);
	check_lengths(5, 100);
	check_lengths(1000, 1500);
	/* four of these sets are what is collected */
	check_lengths(MOST_IDS, 40);
	check_lengths(50000, 40);
	check_many();
	printf("%ld passed, 0 failed\n", checked);
	return 0;
}
