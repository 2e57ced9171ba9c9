/*-------------------------------------------------------------------------
 *
 * match_test.c
 *	  Test of conditions on sets (core/set_match.h): which are valid, and which
 *	  sets match.
 *
 *-------------------------------------------------------------------------
 */
#include "unit_test.h"
#include "test_match.h"

#define MOST_VALUES	(GPUVEC_MOST_MATCH_IDS + GPUVEC_MOST_MATCH_STEPS + 1)

/* How many ids are listed, and steps follow: values of a condition */
typedef struct match_spec
{
	uint64_t	values[MOST_VALUES];
	uint64_t	nids;
	uint64_t	n;
} match_spec;

static void
add(match_spec *spec, uint64_t value, uint64_t times)
{
	while (times-- > 0)
		spec->values[spec->n++] = value;
}

/* n ids: 0 .. n - 1 */
static match_spec
ids(uint64_t n)
{
	match_spec	spec = {.nids = n};

	for (uint64_t i = 0; i < n; i++)
		add(&spec, i, 1);
	return spec;
}

static bool
valid(const match_spec *spec)
{
	return gpuvec_match_valid(spec->values, spec->n, spec->nids);
}

/* ids[0], then a step */
static bool
valid_with(uint64_t step)
{
	match_spec	spec = ids(2);

	add(&spec, 0, 1);
	add(&spec, step, 1);
	return valid(&spec);
}

/* a chain of n operands, all of which are on the stack at once */
static bool
valid_depth(uint64_t n)
{
	match_spec	spec = ids(3);

	add(&spec, 1, n);
	add(&spec, GPUVEC_SET_OR, n - 1);
	return valid(&spec);
}

/* n steps */
static bool
valid_steps(uint64_t n)
{
	match_spec	spec = ids(1);

	add(&spec, 0, 1);
	add(&spec, GPUVEC_SET_NOT, n - 1);
	return valid(&spec);
}

static void
test_limits(void)
{
	match_spec	spec;

	check(valid_depth(1) && valid_depth(GPUVEC_MOST_MATCH_DEPTH) &&
		  !valid_depth(GPUVEC_MOST_MATCH_DEPTH + 1), "so many values are on the stack");
	check(valid_steps(GPUVEC_MOST_MATCH_STEPS) && !valid_steps(GPUVEC_MOST_MATCH_STEPS + 1),
		  "so many steps");
	for (uint64_t n = 1; n <= GPUVEC_MOST_MATCH_IDS + 1; n++)
	{
		spec = ids(n);
		add(&spec, 0, 1);
		check(valid(&spec) == (n <= GPUVEC_MOST_MATCH_IDS), "so many ids");
		spec.values[n] = n - 1;
		check(valid(&spec) == (n <= GPUVEC_MOST_MATCH_IDS), "the last of them");
		spec.values[n] = n;
		check(!valid(&spec), "one behind the last");
	}
}

static void
test_invalid(void)
{
	match_spec	spec = ids(2);

	check(!valid(&spec), "no steps");
	add(&spec, 1, 1);
	check(valid(&spec), "one step");
	spec.nids = 4;
	check(!valid(&spec), "more ids than values");
	spec.nids = UINT64_MAX;
	check(!valid(&spec), "far more ids than values");
	check(!valid_with(0), "two values are left");
	check(!valid_with(GPUVEC_SET_ONLY), "two values are left, one of no ids");
	check(!valid_with(GPUVEC_SET_AND) && !valid_with(GPUVEC_SET_OR), "an operator of one value");
	check(valid_with(GPUVEC_SET_NOT), "an operator that takes one");
	check(!valid_with(GPUVEC_SET_ONLY + 1) && !valid_with(UINT64_MAX) && !valid_with(2), "unknown steps");
	spec = ids(0);
	add(&spec, GPUVEC_SET_ONLY, 1);
	check(valid(&spec), "no ids");
	spec = ids(1);
	add(&spec, GPUVEC_SET_NOT, 1);
	add(&spec, 0, 1);
	check(!valid(&spec), "an operator before its value");
	spec = ids(2);
	add(&spec, 0, 1);
	spec.values[1] = 0;
	check(!valid(&spec), "an id twice");
	spec.values[0] = 7;
	spec.values[1] = 5;
	check(!valid(&spec), "ids that descend");
	spec.values[1] = UINT32_MAX;
	check(valid(&spec), "the largest id");
	spec.values[1]++;
	check(!valid(&spec), "a larger one");
}

/* A word of the ids that a set has; *more: it has others */
static uint64_t
word_of(const test_match *m, const uint32_t *set, uint32_t len, bool *more)
{
	uint64_t	has = 0;

	*more = false;
	for (uint32_t i = 0; i < len; i++)
	{
		uint32_t	j = 0;

		while (j < m->nids && m->ids[j] != set[i])
			j++;
		*more |= j == m->nids;
		if (j < m->nids)
			has |= UINT64_C(1) << j;
	}
	return has;
}

/* Random expressions, and sets */
static void
test_random(void)
{
	uint64_t	matched = 0;
	uint64_t	others = 0;

	for (int round = 0; round < 3000; round++)
	{
		static const uint32_t sizes[] = {0, 1, 2, 3, 6, GPUVEC_MOST_MATCH_IDS};
		test_match	m = {.nids = 0};
		uint32_t	size = sizes[random_below(6)];
		uint32_t	range = 1 + (uint32_t) random_below(2 * size + 3);
		match_spec	spec = {.nids = 0};
		gpuvec_condition condition = {.kind = GPUVEC_SET_MATCHES};
		gpuvec_filter filter = {1, MOST_VALUES, &condition, spec.values};
		bool		right = true;

		for (uint32_t i = 0; i < size; i++)
			match_add_id(&m, (uint32_t) random_below(range));
		match_make_tree(&m, 6);
		spec.nids = m.nids;
		spec.n = match_values(&m, spec.values);
		check(valid(&spec), "an expression is valid");
		condition.n = (uint32_t) spec.n;
		condition.low = spec.nids;
		for (int i = 0; i < 20; i++)
		{
			uint32_t	set[40];
			uint32_t	len = (uint32_t) random_below(random_below(40) + 1);
			bool		more;
			uint64_t	has;
			bool		holds;

			for (uint32_t j = 0; j < len; j++)
				set[j] = (uint32_t) random_below(range);
			has = word_of(&m, set, len, &more);
			holds = match_holds(&m, 0, set, len);
			right &= gpuvec_set_matches(spec.values + spec.nids, (uint32_t) (spec.n - spec.nids),
										has, more) == holds;
			right &= gpuvec_ids_match(&filter, (gpuvec_id_span) {set, len, true}) == holds;
			matched += holds;
			others += !holds;
		}
		check(right, "a set matches an expression, or not");
	}
	check(matched > 10000 && others > 10000, "sets match, or not");
}

int
main(void)
{
	test_limits();
	test_invalid();
	test_random();
	return report_checks();
}
