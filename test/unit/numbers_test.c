/*-------------------------------------------------------------------------
 *
 * numbers_test.c
 *	  Test of the numbers of ids, against a plain array and by any number of
 *	  threads, and of segments with cold numbers, against the rows that they
 *	  were built from.
 *
 *-------------------------------------------------------------------------
 */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/backend.h"
#include "engine/sets/draft.h"
#include "engine/sets/id_counts.h"
#include "engine/sets/renumber.h"
#include "unit_test.h"

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
	gpuvec_thread_pool *pool = gpuvec_thread_pool_new(2);
	gpuvec_id_counts *counts = gpuvec_id_counts_new(3, &error);
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
		ok &= gpuvec_id_counts_add(counts, row % 3, ids, 20, &error);
	}
	ok &= gpuvec_id_counts_finish(counts, pool, &error);
	sort_map(&m);
	numbers = gpuvec_id_counts_rank(counts, pool, &error);
	gpuvec_id_counts_free(counts);
	gpuvec_thread_pool_free(pool);
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

static int
compare_uint32(const void *a, const void *b)
{
	uint32_t	x = *(const uint32_t *) a;
	uint32_t	y = *(const uint32_t *) b;

	return x < y ? -1 : x > y;
}

/* Every way to sort, with numbers of one to four bytes */
static void
test_sorting(void)
{
	static const uint32_t lengths[] = {0, 1, 31, 32, 33, 100, 4095, 4096, 4097, 9000};
	static uint32_t numbers[9000];
	static uint32_t sorted[9000];
	static uint32_t drawn[9000];
	static uint16_t places[9000];
	static uint64_t room[2 * 9000];

	for (size_t i = 0; i < sizeof(lengths) / sizeof(lengths[0]); i++)
	{
		for (int bits = 1; bits <= 32; bits++)
		{
			uint32_t	n = lengths[i];

			for (uint32_t j = 0; j < n; j++)
				sorted[j] = numbers[j] = drawn[j] = random32() >> (32 - bits);
			qsort(sorted, n, sizeof(uint32_t), compare_uint32);
			gpuvec_sort_numbers(numbers, n);
			check(memcmp(sorted, numbers, n * sizeof(uint32_t)) == 0, "sorted numbers");
			memcpy(numbers, drawn, n * sizeof(uint32_t));
			gpuvec_sort_numbers_places(numbers, places, n, room);
			check(memcmp(sorted, numbers, n * sizeof(uint32_t)) == 0, "sorted numbers, with places");
			for (uint32_t j = 0; j < n; j++)
				numbers[j] ^= drawn[places[j]];
			for (uint32_t j = 0; j < n; j++)
				check(numbers[j] == 0, "the place of a number");
		}
	}
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

/* A number that looks random (splitmix64, Steele et al. 2014) */
static uint64_t
scramble(uint64_t x)
{
	x += UINT64_C(0x9E3779B97F4A7C15);
	x = (x ^ x >> 30) * UINT64_C(0xBF58476D1CE4E5B9);
	x = (x ^ x >> 27) * UINT64_C(0x94D049BB133111EB);
	return x ^ x >> 31;
}

#define LONGEST		300

/*
 * The ids of a row, which follow from its tid: ascending, distinct, narrow or
 * wide.  Returns their number.  If `narrow`, all are.
 */
static uint32_t
row_ids(uint64_t tid, bool narrow, uint32_t *ids)
{
	uint32_t	most = scramble(tid) % 50 == 0 ? LONGEST : 40;
	uint32_t	len = (uint32_t) (scramble(tid + 1) % (most + 1));
	uint32_t	n = 0;

	for (uint32_t i = 0; i < len; i++)
	{
		uint64_t	random = scramble(tid * 1000 + i);
		uint32_t	small = (uint32_t) (random >> 32) % 500;

		ids[i] = narrow ? (uint32_t) (random >> 16) % 65536 :
			random % 5 == 0 ? UINT32_MAX - small : random % 5 == 1 ? 65535 + small % 3 :
			random % 5 == 2 ? (uint32_t) (random >> 30) : small;
	}
	gpuvec_sort_numbers(ids, len);
	for (uint32_t i = 0; i < len; i++)
		if (i == 0 || ids[i] != ids[i - 1])
			ids[n++] = ids[i];
	return n;
}

static uint64_t
tid_of(uint32_t i)
{
	return gpuvec_tid(i / 20 * 7, i % 20 + 1);
}

/* Rows of which some are deleted later */
static bool
is_dead(uint64_t tid)
{
	return scramble(~tid) % 4 == 0;
}

/* The value of a row's id, of either sign */
static float
value_of(uint64_t tid, uint32_t id)
{
	uint64_t	random = scramble(tid ^ (uint64_t) id << 17);

	return (float) (1 + random % 1000000) * (random >> 63 ? -0.1f : 0.1f);
}

/* Sums of values, as such: whoever has numbers cannot compute them anew */
static gpuvec_row_sums
sums_of(uint64_t tid)
{
	return (gpuvec_row_sums) {(double) tid * 3 + 1, (double) tid * 5 - 1};
}

static gpuvec_stage *
stage_rows(uint32_t n, bool narrow, bool values)
{
	gpuvec_stage *stage = gpuvec_stage_new((gpuvec_row_kind) {.values = values});
	uint16_t   *packed = malloc(GPUVEC_MOST_PACKED);
	uint32_t	ids[LONGEST];
	float		of_ids[LONGEST];
	gpuvec_error error;
	bool		ok = true;

	for (uint32_t i = 0; i < n; i++)
	{
		gpuvec_source_row row = {.tid = tid_of(i)};
		gpuvec_row_sums sums = sums_of(row.tid);

		gpuvec_pack_numbers(ids, row_ids(row.tid, narrow, ids), packed, &row);
		for (uint32_t j = 0; j < row.len; j++)
			of_ids[j] = value_of(row.tid, ids[j]);
		if (values)
			gpuvec_pack_values(&row, packed, (const char *) &sums, (const char *) of_ids, NULL);
		ok &= gpuvec_stage_add(stage, &row, false, &error);
	}
	free(packed);
	check(ok && gpuvec_stage_rows(stage) == n, "rows are staged");
	return stage;
}

static bool
no_progress(void *arg, size_t built, size_t staged, gpuvec_error *error)
{
	(void) arg;
	(void) built;
	(void) staged;
	(void) error;
	return true;
}

/* Does a row of a segment have the numbers of its ids? */
static bool
row_right(const gpuvec_segment *segment, uint32_t row, const uint32_t *cold,
		  gpuvec_id_numbers *numbers, bool narrow)
{
	uint32_t	hot = gpuvec_hot_len(segment, row);
	uint32_t	tile = row / GPUVEC_TILE_ROWS;
	uint16_t	found[LONGEST];
	uint32_t	want[LONGEST];
	uint32_t	n = row_ids(segment->tid[row], narrow, want);
	bool		right = n == segment->len[row] && hot <= n;

	if (numbers)
		gpuvec_id_numbers_find(numbers, want, n, want);
	gpuvec_sort_numbers(want, n);
	if (!right || hot > (segment->tile_chunk[tile + 1] - segment->tile_chunk[tile]) * GPUVEC_CHUNK_IDS)
		return false;
	gpuvec_segment_row(segment, row, found);
	for (uint32_t i = 0; i < hot; i++)
		right &= found[i] == want[i];
	for (uint32_t i = hot; i < n; i++)
		right &= cold[i - hot] == want[i] && want[i] >= GPUVEC_HOT_NUMBERS;
	return right;
}

/* A number of a row, and the value of its id */
typedef struct number_value
{
	uint32_t	number;
	float		value;
} number_value;

/* Do a row's values belong to its numbers, in tiles and postings? */
static bool
values_right(const gpuvec_segment *segment, uint32_t row, const float *cold, gpuvec_id_numbers *numbers,
			 bool narrow)
{
	uint64_t	tid = segment->tid[row];
	uint32_t	hot = gpuvec_hot_len(segment, row);
	gpuvec_row_sums sums = sums_of(tid);
	uint32_t	ids[LONGEST];
	number_value want[LONGEST];
	float		found[LONGEST];
	uint32_t	n = row_ids(tid, narrow, ids);
	bool		right = memcmp(&segment->sums[row], &sums, sizeof(sums)) == 0;

	for (uint32_t i = 0; i < n; i++)
		want[i] = (number_value) {ids[i], value_of(tid, ids[i])};
	for (uint32_t i = 0; numbers && i < n; i++)
		gpuvec_id_numbers_find(numbers, &want[i].number, 1, &want[i].number);
	/* the number comes first */
	qsort(want, n, sizeof(number_value), compare_uint32);
	gpuvec_segment_row_values(segment, row, found);
	for (uint32_t i = 0; i < n; i++)
		right &= (i < hot ? found[i] : cold[i - hot]) == want[i].value;
	return right;
}

/* Is there a 0 where a row's tile has no id of it? */
static bool
padding_right(const gpuvec_segment *segment, uint32_t row)
{
	uint32_t	tile = row / GPUVEC_TILE_ROWS;
	uint32_t	hot = row < segment->nrows ? gpuvec_hot_len(segment, row) : 0;
	uint32_t	places = (segment->tile_chunk[tile + 1] - segment->tile_chunk[tile]) * GPUVEC_CHUNK_IDS;
	bool		right = true;

	for (uint32_t i = hot; i < places; i++)
		right &= segment->values[(((size_t) segment->tile_chunk[tile] + i / GPUVEC_CHUNK_IDS) * GPUVEC_TILE_ROWS +
								  row % GPUVEC_TILE_ROWS) * GPUVEC_CHUNK_IDS + i % GPUVEC_CHUNK_IDS] == 0;
	return right;
}

/* Of the segments that were checked */
static uint32_t most_groups;

/* Are a group's postings in order, and found by their numbers? */
static bool
group_right(const gpuvec_segment *segment, uint32_t group)
{
	gpuvec_cold_run run = gpuvec_segment_group(segment, group);
	uint32_t	upper = segment->cold_groups[group].upper;
	bool		right = run.first < run.end && (group == 0 || segment->cold_groups[group - 1].upper < upper);

	for (uint64_t i = run.first; i < run.end; i++)
	{
		gpuvec_cold_run found = gpuvec_segment_find_cold(segment, upper << 16 | segment->cold_low[i]);
		bool		same = i > run.first && segment->cold_low[i - 1] == segment->cold_low[i];

		right &= i == run.first || same || segment->cold_low[i - 1] < segment->cold_low[i];
		right &= same ? segment->cold_row[i - 1] < segment->cold_row[i] : found.first == i;
		right &= found.first <= i && i < found.end && found.end <= run.end &&
			segment->cold_low[found.end - 1] == segment->cold_low[i] &&
			(found.end == run.end || segment->cold_low[found.end] != segment->cold_low[i]);
	}
	return right;
}

/* Check a segment's rows and its cold postings; returns its rows */
static uint32_t
check_segment(const gpuvec_segment *segment, gpuvec_id_numbers *numbers, bool narrow)
{
	gpuvec_error error;
	float	   *values = NULL;
	uint32_t   *cold = gpuvec_segment_cold_by_row(segment, &values, &error);
	uint64_t	n = 0;
	bool		rows = (values != NULL) == (segment->sums != NULL);
	bool		postings = true;

	for (uint32_t row = 0; row < segment->nrows; row++)
	{
		rows &= row_right(segment, row, cold + n, numbers, narrow);
		if (values)
			rows &= values_right(segment, row, values + n, numbers, narrow);
		n += segment->len[row] - gpuvec_hot_len(segment, row);
	}
	for (uint32_t row = 0; values && row < segment->ntiles * GPUVEC_TILE_ROWS; row++)
		rows &= padding_right(segment, row);
	free(values);
	check(rows && n == segment->ncold, "rows of a segment");
	most_groups = segment->ngroups > most_groups ? segment->ngroups : most_groups;
	for (uint32_t group = 0; group < segment->ngroups; group++)
		postings &= group_right(segment, group);
	check(postings && gpuvec_segment_find_cold(segment, UINT32_MAX).first ==
		  gpuvec_segment_find_cold(segment, UINT32_MAX).end, "cold postings");
	check((segment->ncold == 0) == (segment->hot_len == NULL) &&
		  (segment->ncold == 0) == (segment->cold_row == NULL), "only rows with cold numbers pay for them");
	free(cold);
	return segment->nrows;
}

/*
 * Build segments of a stage into a draft, and check them; returns their rows
 */
static uint32_t
build(gpuvec_draft *draft, gpuvec_stage *stage, gpuvec_id_numbers *numbers, bool narrow)
{
	gpuvec_stage_target target = {
		.pool = draft->pool,.backend = draft->backend,.nblocks = UINT32_MAX,
		.nrows = gpuvec_stage_rows(stage),.shares = 2,.progress = no_progress
	};
	gpuvec_error error;
	uint32_t	rows = 0;

	check(gpuvec_draft_build(draft, stage, &target, &error), "segments are built");
	for (uint32_t i = 0; i < draft->n; i++)
	{
		gpuvec_segment *segment = draft->entries[i].segment;
		gpuvec_segment *copy = gpuvec_segment_copy(segment, &error);

		check(copy && check_segment(copy, numbers, narrow) == segment->nrows &&
			  copy->host_bytes >= segment->nids * (segment->sums ? 6 : 2), "a copy of a segment");
		gpuvec_segment_unref(copy);
		rows += check_segment(segment, numbers, narrow);
	}
	return rows;
}

/* Delete some rows of a draft; returns how many */
static uint32_t
delete_rows(gpuvec_draft *draft)
{
	uint32_t	dead = 0;
	gpuvec_error error;

	for (uint32_t i = 0; i < draft->n; i++)
		for (uint32_t row = 0; row < draft->entries[i].segment->nrows; row++)
			if (is_dead(draft->entries[i].segment->tid[row]))
			{
				gpuvec_entry_bury(&draft->entries[i], row, &error);
				dead++;
			}
	return dead;
}

/*
 * Rows of a draft get their ids back, and other numbers for these, as those of
 * several partitions do
 */
static void
test_named(gpuvec_draft *draft, const gpuvec_id_numbers *numbers, bool narrow, bool values, uint32_t n)
{
	gpuvec_stage *stage = gpuvec_stage_new((gpuvec_row_kind) {.values = values});
	gpuvec_error error;
	uint32_t   *ids = numbers ? gpuvec_id_numbers_ids((gpuvec_id_numbers *) numbers, &error) : NULL;
	gpuvec_row_names names = {.ids = ids};
	gpuvec_id_numbers *others = NULL;

	check(gpuvec_draft_unbuild(draft, 0, &names, stage, &error) && gpuvec_stage_rows(stage) == n,
		  "rows with their ids are staged");
	if (!narrow)
	{
		others = gpuvec_renumber_map(stage, draft->pool, NULL, NULL, &error);
		check(gpuvec_renumber_rows(&stage, others, true, draft->pool, &error), "rows get other numbers");
	}
	check(build(draft, stage, others, narrow) == n, "all rows with other numbers are there");
	free(ids);
	gpuvec_stage_free(stage);
	gpuvec_id_numbers_unref(others);
}

/*
 * Stage rows, number them by a map of `kind`, build segments, delete some
 * rows, and merge what is left
 */
static void
test_rows(gpuvec_backend *backend, gpuvec_thread_pool *pool, uint32_t n, int kind, bool values)
{
	bool		narrow = kind == 2;
	gpuvec_draft draft = {.backend = backend,.pool = pool};
	gpuvec_stage *stage = stage_rows(n, narrow, values);
	gpuvec_stage *merged = gpuvec_stage_new((gpuvec_row_kind) {.values = values});
	gpuvec_id_numbers *numbers = NULL;
	gpuvec_error error;
	uint32_t	dead;

	if (kind == 0)
		numbers = gpuvec_renumber_map(stage, pool, NULL, NULL, &error);
	else if (kind == 1)
		numbers = gpuvec_id_numbers_narrow(&error);
	check(narrow ? gpuvec_stage_cold(stage) == 0 :
		  gpuvec_renumber_rows(&stage, numbers, kind == 0, pool, &error), "rows are numbered");
	check(gpuvec_stage_rows(stage) == n, "rows stay");
	check(build(&draft, stage, numbers, narrow) == n, "all rows are there");
	dead = delete_rows(&draft);
	check(gpuvec_draft_unbuild(&draft, 0, NULL, merged, &error) && gpuvec_stage_rows(merged) == n - dead,
		  "rows that are left are staged");
	if (n > dead)
	{
		check(build(&draft, merged, numbers, narrow) == n - dead, "all that are left are there");
		test_named(&draft, numbers, narrow, values, n - dead);
	}
	gpuvec_draft_free(&draft);
	gpuvec_stage_free(stage);
	gpuvec_stage_free(merged);
	gpuvec_id_numbers_unref(numbers);
}

static void
test_segments(void)
{
	static const uint32_t sizes[] = {1, 31, 33, 1000, 4097, 30000};
	gpuvec_backend_options options = {.threads = 2};
	gpuvec_error error;
	gpuvec_backend *backend = gpuvec_cpu_open(&options, &error);
	gpuvec_thread_pool *pool = gpuvec_thread_pool_new(2);

	for (int i = 0; i < 6; i++)
		for (int kind = 0; kind < 6; kind++)
			test_rows(backend, pool, sizes[i], kind % 3, kind >= 3);
	gpuvec_thread_pool_free(pool);
	backend->close(backend);
}

/* ---- as many threads as one likes ---- */

/* Columns whose ids are numbered */
enum
{
	FEW_ROWS,					/* not spread over classes */
	MANY_ROWS,
	LONG_ROWS,					/* of classes that share lengths, too */
	LARGE_NUMBERS,				/* small ids become cold: rows grow */
	ALL_DIFFERENT,				/* each id is in one row */
	COLUMNS
};

static const uint32_t column_rows[COLUMNS] = {4000, 30000, 5000, 40000, 30000};

/*
 * The ids of row i of a column, ascending and distinct.  LARGE_NUMBERS: six
 * of seven rows have 100,000 large ids in turn, the others small ids, each of
 * which is in one row.
 */
static uint32_t
column_ids(int column, uint32_t i, uint32_t *ids)
{
	uint64_t	tid = tid_of(i);
	uint32_t	n = 10;

	if (column == LONG_ROWS)
		n = scramble(tid) % 40 == 0 ? 20000 : 300 + scramble(tid) % 200;
	else if (column == LARGE_NUMBERS && i % 7 == 0)
		n = 9;
	else if (column < LARGE_NUMBERS)
		return row_ids(tid, false, ids);
	for (uint32_t j = 0; j < n; j++)
	{
		uint32_t	at = i * n + j;

		if (column == LONG_ROWS)
			ids[j] = j * 70 + (uint32_t) scramble(tid + j) % 70;
		else if (column == ALL_DIFFERENT)
			ids[j] = UINT32_MAX - 300000 + at;
		else if (n == 9)
			ids[j] = i / 7 * n + j;
		else
			ids[j] = 1000000 + (i - i / 7 - 1) * n % 100000 + j;
	}
	return n;
}

static gpuvec_stage *
stage_column(int column)
{
	gpuvec_stage *stage = gpuvec_stage_new((gpuvec_row_kind) {0});
	uint32_t   *ids = malloc(GPUVEC_MAX_IDS * sizeof(uint32_t));
	uint16_t   *packed = malloc((GPUVEC_MAX_IDS + 1) * sizeof(uint32_t));
	gpuvec_error error;
	bool		ok = true;

	for (uint32_t i = 0; i < column_rows[column]; i++)
	{
		gpuvec_source_row row = {.tid = tid_of(i)};

		gpuvec_pack_numbers(ids, column_ids(column, i, ids), packed, &row);
		ok &= gpuvec_stage_add(stage, &row, false, &error);
	}
	check(ok, "a column is staged");
	free(ids);
	free(packed);
	return stage;
}

/* The rows of a stage in their order: tid, length, cold ids, ids */
typedef struct row_list
{
	uint64_t   *words;
	uint64_t	n;
	uint64_t	capacity;
	uint64_t	cold;			/* of all rows */
} row_list;

static void
list_word(row_list *list, uint64_t word)
{
	if (list->n == list->capacity)
	{
		list->capacity = list->capacity * 2 + 1024;
		list->words = realloc(list->words, list->capacity * sizeof(uint64_t));
	}
	list->words[list->n++] = word;
}

static bool
list_row(void *arg, const gpuvec_source_row *row, gpuvec_error *error)
{
	row_list   *list = arg;
	uint32_t   *ids = malloc((row->len + 1) * sizeof(uint32_t));

	(void) error;
	gpuvec_unpack_numbers(row, ids);
	list_word(list, row->tid);
	list_word(list, row->len);
	list_word(list, row->ncold);
	for (uint32_t i = 0; i < row->len; i++)
		list_word(list, ids[i]);
	list->cold += row->ncold;
	free(ids);
	return true;
}

static row_list
list_rows(const gpuvec_stage *stage)
{
	row_list	list = {0};
	gpuvec_error error;

	check(gpuvec_stage_visit(stage, list_row, &list, &error), "rows are visited");
	check(list.cold == gpuvec_stage_cold(stage), "a stage knows how many ids are cold");
	return list;
}

static int
compare_uint64(const void *a, const void *b)
{
	uint64_t	x = *(const uint64_t *) a;
	uint64_t	y = *(const uint64_t *) b;

	return x < y ? -1 : x > y;
}

/* The ids of a list of rows, in the order of the numbers that they get */
static uint32_t *
ranked_ids(const row_list *list, uint64_t *n)
{
	uint64_t   *keys = malloc(list->n * sizeof(uint64_t));
	uint64_t	all = 0;
	uint32_t   *ids;

	for (uint64_t i = 0; i < list->n; i += 3 + list->words[i + 1])
		for (uint64_t j = 0; j < list->words[i + 1]; j++)
			keys[all++] = list->words[i + 3 + j];
	qsort(keys, all, sizeof(uint64_t), compare_uint64);
	*n = 0;
	for (uint64_t i = 0, end; i < all; i = end)
	{
		for (end = i; end < all && keys[end] == keys[i];)
			end++;
		keys[(*n)++] = (UINT32_MAX - (end - i)) << 32 | keys[i];
	}
	qsort(keys, *n, sizeof(uint64_t), compare_uint64);
	ids = malloc((*n + 1) * sizeof(uint32_t));
	for (uint64_t i = 0; i < *n; i++)
		ids[i] = (uint32_t) keys[i];
	free(keys);
	return ids;
}

/* Are the numbers of all ids, and those alone, their places in ids[]? */
static bool
numbers_are(gpuvec_id_numbers *numbers, const uint32_t *ids, uint64_t n)
{
	uint32_t   *found = malloc((n + 1) * sizeof(uint32_t));
	bool		right = gpuvec_id_numbers_count(numbers) == n;

	gpuvec_id_numbers_find(numbers, ids, (uint32_t) n, found);
	for (uint64_t i = 0; i < n; i++)
		right &= found[i] == i;
	free(found);
	return right;
}

/* Are rows `numbered` those of `staged`, in their order, with numbers? */
static bool
rows_are_numbered(const row_list *staged, const row_list *numbered, gpuvec_id_numbers *numbers)
{
	uint32_t   *want = malloc(GPUVEC_MAX_IDS * sizeof(uint32_t));
	bool		right = staged->n == numbered->n;

	for (uint64_t i = 0; right && i < staged->n; i += 3 + staged->words[i + 1])
	{
		uint32_t	len = (uint32_t) staged->words[i + 1];
		uint32_t	cold = 0;

		for (uint32_t j = 0; j < len; j++)
			want[j] = (uint32_t) staged->words[i + 3 + j];
		gpuvec_id_numbers_find(numbers, want, len, want);
		qsort(want, len, sizeof(uint32_t), compare_uint32);
		right &= numbered->words[i] == staged->words[i] && numbered->words[i + 1] == len;
		for (uint32_t j = 0; right && j < len; j++)
		{
			cold += want[j] >= GPUVEC_HOT_NUMBERS;
			right = numbered->words[i + 3 + j] == want[j];
		}
		right &= numbered->words[i + 2] == cold;
	}
	free(want);
	return right;
}

/* The bytes that rows would be thought to take, if they were staged anew */
static size_t
estimate_of(const row_list *list)
{
	gpuvec_stage *stage = gpuvec_stage_new((gpuvec_row_kind) {0});
	uint32_t   *ids = malloc(GPUVEC_MAX_IDS * sizeof(uint32_t));
	uint16_t   *packed = malloc((GPUVEC_MAX_IDS + 1) * sizeof(uint32_t));
	size_t		estimate;
	gpuvec_error error;

	for (uint64_t i = 0; i < list->n; i += 3 + list->words[i + 1])
	{
		gpuvec_source_row row = {.tid = list->words[i]};

		for (uint32_t j = 0; j < list->words[i + 1]; j++)
			ids[j] = (uint32_t) list->words[i + 3 + j];
		gpuvec_pack_numbers(ids, (uint32_t) list->words[i + 1], packed, &row);
		gpuvec_stage_add(stage, &row, false, &error);
	}
	estimate = gpuvec_stage_estimate(stage);
	gpuvec_stage_free(stage);
	free(ids);
	free(packed);
	return estimate;
}

static size_t most_charged;

static bool
charge(void *arg, size_t bytes, gpuvec_error *error)
{
	(void) error;
	most_charged = bytes > most_charged ? bytes : most_charged;
	return bytes <= *(size_t *) arg;
}

/* Number a column by a pool of so many threads */
static void
test_loaded_column(int column, int threads)
{
	gpuvec_thread_pool *pool = gpuvec_thread_pool_new(threads);
	gpuvec_stage *stage = stage_column(column);
	row_list	staged = list_rows(stage);
	row_list	numbered;
	size_t		bytes = gpuvec_stage_bytes(stage);
	size_t		limit = SIZE_MAX;
	uint64_t	n;
	uint32_t   *ids = ranked_ids(&staged, &n);
	gpuvec_error error;
	gpuvec_id_numbers *numbers = gpuvec_renumber_map(stage, pool, charge, &limit, &error);

	check(numbers_are(numbers, ids, n), "the most frequent ids get the lowest numbers, by any threads");
	check(gpuvec_renumber_rows(&stage, numbers, true, pool, &error), "a column is numbered");
	numbered = list_rows(stage);
	check(rows_are_numbered(&staged, &numbered, numbers), "rows are where they were, with numbers");
	check(gpuvec_stage_estimate(stage) == estimate_of(&numbered), "a stage knows how large segments will be");
	if (column == LARGE_NUMBERS)
		check(numbered.cold > staged.cold / 4 && gpuvec_stage_bytes(stage) > bytes, "rows that grow find room");
	else if (column == ALL_DIFFERENT)
		check(gpuvec_stage_bytes(stage) == bytes, "rows that shrink need none");
	free(ids);
	free(staged.words);
	free(numbered.words);
	gpuvec_id_numbers_unref(numbers);
	gpuvec_stage_free(stage);
	gpuvec_thread_pool_free(pool);
}

/* An update of many rows, with new and known ids, by one thread and many */
static void
test_updated_column(int column)
{
	row_list	lists[2];

	for (int i = 0; i < 2; i++)
	{
		gpuvec_thread_pool *pool = gpuvec_thread_pool_new(i == 0 ? 1 : 5);
		gpuvec_stage *stage = stage_column(column);
		row_list	staged = list_rows(stage);
		gpuvec_error error;
		gpuvec_id_numbers *numbers = gpuvec_id_numbers_narrow(&error);
		uint32_t	known[] = {2000000000, UINT32_MAX, 70000};

		gpuvec_id_numbers_add(numbers, known, 3, known, &error);
		check(gpuvec_renumber_rows(&stage, numbers, false, pool, &error), "an update is numbered");
		lists[i] = list_rows(stage);
		check(rows_are_numbered(&staged, &lists[i], numbers), "rows of an update are where they were");
		check(known[0] == 65536 && known[2] == 65538, "an update changes no number");
		free(staged.words);
		gpuvec_id_numbers_unref(numbers);
		gpuvec_stage_free(stage);
		gpuvec_thread_pool_free(pool);
	}
	check(lists[0].n == lists[1].n &&
		  memcmp(lists[0].words, lists[1].words, lists[0].n * sizeof(uint64_t)) == 0,
		  "new ids get the same numbers by any threads");
	free(lists[0].words);
	free(lists[1].words);
}

/* Numbering stops when it may not take more */
static void
test_charged(void)
{
	gpuvec_thread_pool *pool = gpuvec_thread_pool_new(2);
	gpuvec_stage *stage = stage_column(ALL_DIFFERENT);
	size_t		limit = 100000;
	gpuvec_error error;

	most_charged = 0;
	check(gpuvec_renumber_map(stage, pool, charge, &limit, &error) == NULL && most_charged > limit,
		  "numbering that takes too much stops");
	gpuvec_stage_free(stage);
	gpuvec_thread_pool_free(pool);
}

static void
test_threads(void)
{
	static const int threads[] = {1, 2, 3, 8};

	for (int column = 0; column < COLUMNS; column++)
	{
		for (int i = 0; i < 4; i++)
			test_loaded_column(column, threads[i]);
		test_updated_column(column);
	}
	test_charged();
}

int
main(void)
{
	test_segments();
	test_narrow();
	test_counted();
	test_threads();
	test_readers();
	test_sorting();
	test_packing();
	check(most_groups > 1, "cold numbers with several upper halves");
	return report_checks();
}
