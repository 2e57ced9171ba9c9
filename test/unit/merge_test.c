/*-------------------------------------------------------------------------
 *
 * merge_test.c
 *	  Merges of arrays of ids (src/idset/idset_merge.c) against marks in an
 *	  array of all ids: random arrays of all lengths and densities, and those
 *	  whose blocks span everything.
 *
 * Usage: merge_test [SEED]
 *
 *-------------------------------------------------------------------------
 */
#include "gpuvec.h"

#include "idset/idset_merge.h"

#undef printf
#undef fprintf
#include <stdio.h>
#include <stdlib.h>

#define IDS 65536

static const int keeps[] = {MERGE_BOTH, MERGE_ONLY_A, MERGE_ONLY_A | MERGE_ONLY_B,
MERGE_ONLY_A | MERGE_BOTH | MERGE_ONLY_B};

static uint16 a[IDS];
static uint16 b[IDS];
static uint16 expected[IDS];
static uint32 wide_a[IDS];
static uint32 wide_b[IDS];
static long checked = 0;

/* Each id of [from, to) with the probability p */
static uint32
random_ids(uint16 *ids, uint32 from, uint32 to, double p)
{
	uint32		n = 0;

	for (uint32 id = from; id < to; id++)
		if (drand48() < p)
			ids[n++] = (uint16) id;
	return n;
}

/* The merge as it is defined: id by id */
static uint32
plain_merge(uint32 na, uint32 nb, int keep)
{
	static uint8 marks[IDS];
	uint32		n = 0;

	memset(marks, 0, sizeof(marks));
	for (uint32 i = 0; i < na; i++)
		marks[a[i]] = MERGE_ONLY_A;
	for (uint32 i = 0; i < nb; i++)
		marks[b[i]] = marks[b[i]] ? MERGE_BOTH : MERGE_ONLY_B;
	for (uint32 id = 0; id < IDS; id++)
		if (marks[id] & keep)
			expected[n++] = (uint16) id;
	return n;
}

static void
fail(const char *what, uint32 na, uint32 nb, int keep)
{
	fprintf(stderr, "%s: %u and %u ids, keep %d: wrong\n", what, na, nb, keep);
	exit(1);
}

/* An array of n ids, of just the size that the merge may use */
static void *
exact_capacity(uint32 n, size_t width)
{
	return malloc((n + MERGE_SLACK) * width);
}

static void
check_narrow(uint32 na, uint32 nb, int keep, uint32 n)
{
	uint16	   *out = exact_capacity(idset_merge_capacity(na, nb, keep), sizeof(uint16));

	if (idset_merge_narrow(a, na, b, nb, keep, out) != n || memcmp(out, expected, n * 2) != 0)
		fail(idset_merge_no_blocks ? "narrow, no blocks" : "narrow", na, nb, keep);
	if (keep == MERGE_BOTH && idset_merge_narrow(a, na, b, nb, keep, NULL) != n)
		fail("narrow count", na, nb, keep);
	free(out);
	checked++;
}

/* The same ids times 65537: 65535 becomes the greatest id of all */
static void
check_wide(uint32 na, uint32 nb, int keep, uint32 n)
{
	uint32	   *out = exact_capacity(idset_merge_capacity(na, nb, keep), sizeof(uint32));

	for (uint32 i = 0; i < na; i++)
		wide_a[i] = a[i] * 65537u;
	for (uint32 i = 0; i < nb; i++)
		wide_b[i] = b[i] * 65537u;
	if (idset_merge_wide(wide_a, na, wide_b, nb, keep, out) != n)
		fail("wide", na, nb, keep);
	for (uint32 i = 0; i < n; i++)
		if (out[i] != expected[i] * 65537u)
			fail("wide", na, nb, keep);
	if (keep == MERGE_BOTH && idset_merge_wide(wide_a, na, wide_b, nb, keep, NULL) != n)
		fail("wide count", na, nb, keep);
	free(out);
	checked++;
}

static void
check_all(uint32 na, uint32 nb)
{
	for (int i = 0; i < 4; i++)
	{
		uint32		n = plain_merge(na, nb, keeps[i]);

		idset_merge_no_blocks = false;
		check_narrow(na, nb, keeps[i], n);
		check_wide(na, nb, keeps[i], n);
		idset_merge_no_blocks = true;
		check_narrow(na, nb, keeps[i], n);
		check_wide(na, nb, keeps[i], n);
	}
}

/* A random density; all ids, and none, are among them */
static double
random_density(void)
{
	int			kind = (int) (drand48() * 12);

	return kind == 0 ? 0 : kind == 1 ? 1 : kind < 4 ? drand48() : drand48() / (1 << kind);
}

/* Ids at both ends of an array with a dense part of the other between */
static void
check_gaps(uint32 ends, uint32 middle)
{
	uint32		na = random_ids(a, 0, ends, 1);
	uint32		nb = random_ids(b, 20000, 20000 + middle, 1);

	na += random_ids(a + na, 30000, 30000 + ends, 1);
	check_all(na, nb);
	memcpy(wide_a, a, na * sizeof(uint16));
	memcpy(a, b, nb * sizeof(uint16));
	memcpy(b, wide_a, na * sizeof(uint16));
	check_all(nb, na);
}

int
main(int argc, char **argv)
{
	srand48(argc > 1 ? atol(argv[1]) : 17);
	for (int round = 0; round < 400; round++)
	{
		uint32		na = random_ids(a, 0, IDS, random_density());
		uint32		from = drand48() < 0.3 ? (uint32) (drand48() * IDS) : 0;

		check_all(na, random_ids(b, from, IDS, random_density()));
	}
	for (uint32 na = 0; na < 80; na++)
		for (uint32 nb = 0; nb < 80; nb += 1 + na % 3)
			check_all(random_ids(a, 0, na, 0.8), random_ids(b, na / 2, na / 2 + nb, 0.8));
	for (uint32 ends = 1; ends < 60; ends++)
		check_gaps(ends, ends * 5);
	printf("%ld passed, 0 failed\n", checked);
	return 0;
}
