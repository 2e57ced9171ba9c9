/*-------------------------------------------------------------------------
 *
 * numbers_test.c
 *	  Test of the numbers of ids, against a plain array, and of segments with
 *	  cold numbers, against the rows that they were built from.
 *
 *-------------------------------------------------------------------------
 */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/backend.h"
#include "engine/sets/draft.h"
#include "engine/sets/id_numbers.h"
#include "engine/sets/stage.h"

static long passed = 0;
static long failed = 0;
static uint64_t seed = 88172645463325252u;

/* xorshift64 (Marsaglia 2003) */
static uint32_t
random32(void)
{
	seed ^= seed << 13;
	seed ^= seed >> 7;
	seed ^= seed << 17;
	return (uint32_t) (seed >> 24);
}

static void
check(bool ok, const char *what)
{
	if (ok)
		passed++;
	else
	{
		failed++;
		printf("not ok - %s\n", what);
	}
}

/* Ids at all ends, and others; few enough that they come again */
static uint32_t
random_id(void)
{
	static const uint32_t ends[] = {
		0, 1, 65534, 65535, 65536, 65537, INT32_MAX, UINT32_C(0x80000000), UINT32_MAX - 1, UINT32_MAX
	};

	switch (random32() % 4)
	{
		case 0:
			return ends[random32() % 10];
		case 1:
			return random32() % 3000;
		case 2:
			return 65000 + random32() % 3000;
		default:
			return UINT32_MAX - random32() % (random32() % 20000 + 1);
	}
}

/* What a map should say: ids in the order of their numbers */
typedef struct plain_map
{
	uint32_t   *ids;
	uint32_t   *counts;
	uint32_t	n;
	uint32_t	first;			/* number of ids[0] */
} plain_map;

/* The place of an id, which is added if it is not there and `add` */
static uint32_t
place_of(plain_map *m, uint32_t id, bool add)
{
	for (uint32_t i = 0; i < m->n; i++)
		if (m->ids[i] == id)
			return i;
	if (!add)
		return UINT32_MAX;
	m->ids = realloc(m->ids, (m->n + 1) * sizeof(uint32_t));
	m->counts = realloc(m->counts, (m->n + 1) * sizeof(uint32_t));
	m->ids[m->n] = id;
	m->counts[m->n] = 0;
	return m->n++;
}

/* Sort by count and id */
static void
sort_map(plain_map *m)
{
	for (uint32_t i = 1; i < m->n; i++)
		for (uint32_t j = i; j > 0 && (m->counts[j - 1] < m->counts[j] ||
									   (m->counts[j - 1] == m->counts[j] && m->ids[j - 1] > m->ids[j])); j--)
		{
			uint32_t	id = m->ids[j];
			uint32_t	count = m->counts[j];

			m->ids[j] = m->ids[j - 1];
			m->counts[j] = m->counts[j - 1];
			m->ids[j - 1] = id;
			m->counts[j - 1] = count;
		}
}

/* The number that an id should have */
static uint32_t
plain_number(plain_map *m, uint32_t id, bool add)
{
	uint32_t	place;

	if (m->first > 0 && id < m->first)
		return id;
	place = place_of(m, id, add);
	return place == UINT32_MAX ? GPUVEC_NO_NUMBER : m->first + place;
}

/* Look up and add random ids, in a map and in a plain one */
static bool
same_numbers(gpuvec_id_numbers *numbers, plain_map *m)
{
	gpuvec_error error;
	bool		same = true;

	for (int round = 0; round < 300; round++)
	{
		uint32_t	ids[40];
		uint32_t	to[40];
		uint32_t	n = random32() % 40;
		bool		add = random32() % 2;

		for (uint32_t i = 0; i < n; i++)
			ids[i] = random_id();
		if (add)
			same &= gpuvec_id_numbers_add(numbers, ids, n, to, &error);
		else
			gpuvec_id_numbers_find(numbers, ids, n, to);
		for (uint32_t i = 0; i < n; i++)
			same &= to[i] == plain_number(m, ids[i], add);
	}
	return same;
}

static void
test_narrow(void)
{
	gpuvec_error error;
	gpuvec_id_numbers *numbers = gpuvec_id_numbers_narrow(&error);
	plain_map	m = {.first = 65536};

	check(same_numbers(numbers, &m), "numbers of a mirror that was narrow");
	check(gpuvec_id_numbers_bytes(numbers) > m.n * 8, "bytes of a map");
	gpuvec_id_numbers_unref(numbers);
	free(m.ids);
	free(m.counts);
}

static void
test_counted(void)
{
	gpuvec_error error;
	gpuvec_id_counts *counts = gpuvec_id_counts_new(&error);
	gpuvec_id_numbers *numbers;
	plain_map	m = {0};
	bool		ok = true;

	for (int row = 0; row < 600; row++)
	{
		uint32_t	ids[20];

		for (int i = 0; i < 20; i++)
		{
			uint32_t	place;

			ids[i] = random_id();
			place = place_of(&m, ids[i], true);
			m.counts[place]++;
		}
		ok &= gpuvec_id_counts_add(counts, ids, 20, &error);
	}
	sort_map(&m);
	numbers = gpuvec_id_numbers_counted(counts, &error);
	gpuvec_id_counts_free(counts);
	for (uint32_t i = 0; i < m.n; i++)
	{
		uint32_t	number;

		gpuvec_id_numbers_find(numbers, &m.ids[i], 1, &number);
		ok &= number == i;
	}
	check(ok, "the most frequent ids get the lowest numbers");
	check(same_numbers(gpuvec_id_numbers_ref(numbers), &m), "later ids get the next ones");
	gpuvec_id_numbers_unref(numbers);
	gpuvec_id_numbers_unref(numbers);
	free(m.ids);
	free(m.counts);
}

/* Numbers that readers have seen once must stay */
#define SHARED_IDS	200000

static void *
read_numbers(void *arg)
{
	gpuvec_id_numbers *numbers = arg;
	uint32_t   *seen = malloc(SHARED_IDS * sizeof(uint32_t));
	bool		ok = true;

	memset(seen, 0xFF, SHARED_IDS * sizeof(uint32_t));
	for (uint32_t i = 0; i < SHARED_IDS * 4; i++)
	{
		uint32_t	at = (uint32_t) (i * UINT64_C(2654435761) % SHARED_IDS);
		uint32_t	id = at * 20011 + 70000;
		uint32_t	number;

		gpuvec_id_numbers_find(numbers, &id, 1, &number);
		ok &= seen[at] == GPUVEC_NO_NUMBER || seen[at] == number;
		seen[at] = number;
	}
	free(seen);
	return ok ? arg : NULL;
}

static void
test_readers(void)
{
	gpuvec_error error;
	gpuvec_id_numbers *numbers = gpuvec_id_numbers_narrow(&error);
	pthread_t	threads[2];
	bool		ok = true;

	for (int i = 0; i < 2; i++)
		pthread_create(&threads[i], NULL, read_numbers, numbers);
	for (uint32_t i = 0; i < SHARED_IDS; i++)
	{
		uint32_t	id = i * 20011 + 70000;

		ok &= gpuvec_id_numbers_add(numbers, &id, 1, &id, &error) && id == 65536 + i;
	}
	for (int i = 0; i < 2; i++)
	{
		void	   *result;

		pthread_join(threads[i], &result);
		ok &= result != NULL;
	}
	check(ok, "readers beside a writer");
	gpuvec_id_numbers_unref(numbers);
}

static void
test_packing(void)
{
	bool		ok = true;

	for (int round = 0; round < 2000; round++)
	{
		uint32_t	numbers[100];
		uint32_t	back[100];
		uint16_t	packed[204];
		uint32_t	n = random32() % 101;
		uint32_t	hot = 0;
		gpuvec_source_row row;

		for (uint32_t i = 0; i < n; i++)
		{
			numbers[i] = random32() % 2 ? random32() % 65536 : random_id();
			hot += numbers[i] < 65536;
		}
		gpuvec_sort_numbers(numbers, n);
		for (uint32_t i = 1; i < n; i++)
			ok &= numbers[i - 1] <= numbers[i];
		gpuvec_pack_numbers(numbers, n, packed, &row);
		gpuvec_unpack_numbers(&row, back);
		ok &= row.len == n && row.ncold == n - hot && memcmp(back, numbers, n * sizeof(uint32_t)) == 0;
	}
	check(ok, "packed numbers");
}

int
main(void)
{
	test_narrow();
	test_counted();
	test_readers();
	test_packing();
	printf("%ld passed, %ld failed\n", passed, failed);
	return failed > 0;
}
