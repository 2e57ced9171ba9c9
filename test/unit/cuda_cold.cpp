/*-------------------------------------------------------------------------
 *
 * cuda_cold.cpp
 *	  Test of the CUDA backend with cold numbers: every match of every query is
 *	  compared, to the bit and in order, with what the CPU backend finds, and
 *	  in all but the largest tables with a plain count over all rows.
 *
 *		cuda_cold [emulated|quick|full] [seed] [name of a test]
 *
 * quick (the default) takes seconds; full adds large tables; emulated is for
 * search.mk, which has no GPU.  With a name, only the tests run whose names
 * begin with it.  A failure shows the table, the settings and the first match
 * that differs.
 *
 *-------------------------------------------------------------------------
 */
#include <algorithm>
#include <atomic>
#include <cmath>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <string>
#include <thread>
#include <unistd.h>
#include <vector>

extern "C"
{
#include "engine/cpu/cpu_backend.h"
}
#include "test/unit/cuda_test.h"

typedef std::vector<uint32_t> numbers;	/* ascending, distinct */

struct row
{
	uint64_t	tid;
	numbers		set;
	bool		live;
};

struct table
{
	std::string name;
	std::vector<row> rows;
	std::vector<uint32_t> cuts;	/* segments end before these rows, besides the last */
	bool		counted = true; /* small enough for a plain count */
};

/* A query and what it asks for */
struct question
{
	numbers		set;
	uint32_t	unknown = 0;	/* ids without a number */
	uint32_t	k = 10;
	bool		has_min_score = false;
	bool		has_after = false;
	double		min_score = 0;
	double		after_score = 0;
	uint64_t	after_tid = 0;
};

typedef std::vector<gpuvec_match> answer;

static gpuvec_backend *gpu;
static gpuvec_backend *cpu;
static gpuvec_search_policy defaults;
static bool full;
static bool emulated;
static gpuvec_search_stats total;	/* of all searches */
/* Chunks counted by bit vectors, in searches with cold numbers */
static uint32_t dense_beside_cold;

static gpuvec_tversky weights;

static void
report(bool ok, const std::string &about)
{
	if (ok)
		npassed++;
	else if (nfailed++ < 40)
		printf("FAILED: %s\n", about.c_str());
}

/* ---------------------------------------------------------------- data */

/* How numbers are drawn */
enum draw
{
	FEW_COLD, AT_THE_EDGE, ONLY_COLD, ONLY_HOT, SKEWED, ENDS, FEW_HOT, N_DRAWS
};

static const char *const draw_names[] = {
	"few cold", "at the edge", "only cold", "only hot", "skewed", "ends", "few hot"
};

static uint32_t
draw_number(int draw)
{
	static const uint32_t ends[] = {
		0, 1, 65534, 65535, 65536, 65537, 131071, 131072, INT32_MAX, UINT32_C(0x80000000),
		UINT32_MAX - 65536, UINT32_MAX - 1, UINT32_MAX
	};

	switch (draw)
	{
		case FEW_COLD:
			return random_below(20) == 0 ? 65536 + random_below(100) : random_below(200);
		case AT_THE_EDGE:
			return 65536 - 12 + random_below(24);
		case ONLY_COLD:
			return 65536 + random_below(random_below(300) + 1);
		case ONLY_HOT:
			return random_below(random_below(65536) + 1);
		case SKEWED:
			/* about as Zipf has it: small numbers are common */
			return (uint32_t) std::exp(random_below(1000000) / 1e6 * std::log(500000)) - 1;
		case FEW_HOT:
			/* for bit vectors */
			return random_below(10) == 0 ? 65536 + random_below(1000) : random_below(2048);
		default:
			return random_below(2) ? ends[random_below(13)] : random_below(2) ? random_below(50) :
				65536 + random_below(50);
	}
}

static void
make_set(numbers &set)
{
	std::sort(set.begin(), set.end());
	set.erase(std::unique(set.begin(), set.end()), set.end());
}

static numbers
draw_set(uint32_t most, int draw)
{
	numbers		set(random_below(most + 1));

	for (uint32_t &number : set)
		number = draw_number(draw);
	make_set(set);
	return set;
}

/* A range of numbers */
static numbers
all_from(uint32_t first, uint32_t n)
{
	numbers		set(n);

	for (uint32_t i = 0; i < n; i++)
		set[i] = first + i;
	return set;
}

/* A copy of a set with some numbers replaced */
static numbers
perturbed(const numbers &set, int draw)
{
	numbers		other;

	for (uint32_t number : set)
		if (random_below(4) > 0)
			other.push_back(number);
	other.push_back(draw_number(draw));
	make_set(other);
	return other;
}

/* Tids grow with the row's number, not densely */
static uint64_t
row_tid(uint64_t i)
{
	return gpuvec_tid(i / 100 * 3, i % 100 * 2 + 1);
}

/* Random rows; of some there are copies and near copies */
static table
random_table(const std::string &name, uint32_t nrows, uint32_t longest, int draw)
{
	table		t;
	uint32_t	dead = random_below(3) * 4;

	t.name = name;
	for (uint32_t i = 0; i < nrows; i++)
	{
		row			r = {row_tid(i), draw_set(longest, draw), true};

		if (i > 0 && random_below(4) == 0)
			r.set = t.rows[random_below(i)].set;
		else if (i > 0 && random_below(6) == 0)
			r.set = perturbed(t.rows[random_below(i)].set, draw);
		r.live = dead == 0 || random_below(dead) > 0;
		t.rows.push_back(r);
	}
	return t;
}

/* Cut a table into n segments, which need not be of the same size */
static void
cut(table &t, uint32_t n)
{
	t.cuts.clear();
	for (uint32_t i = 1; i < n; i++)
		t.cuts.push_back(1 + random_below((uint32_t) t.rows.size()));
	std::sort(t.cuts.begin(), t.cuts.end());
	t.cuts.erase(std::unique(t.cuts.begin(), t.cuts.end()), t.cuts.end());
	while (!t.cuts.empty() && t.cuts.back() >= t.rows.size())
		t.cuts.pop_back();
}

/* A row as segments take it: hot numbers of 16 bits, then cold ones */
static std::vector<uint32_t>
pack(const row &r, gpuvec_source_row *source)
{
	size_t		hot = std::lower_bound(r.set.begin(), r.set.end(), 65536u) - r.set.begin();
	std::vector<uint32_t> packed((hot + 1) / 2 + r.set.size() - hot + 1);

	for (size_t i = 0; i < hot; i++)
		((uint16_t *) packed.data())[i] = (uint16_t) r.set[i];
	std::copy(r.set.begin() + hot, r.set.end(), packed.begin() + (hot + 1) / 2);
	source->tid = r.tid;
	source->len = (uint32_t) r.set.size();
	source->ncold = (uint32_t) (r.set.size() - hot);
	source->ids = (const uint16_t *) packed.data();
	return packed;
}

/* Make a map of a segment's live rows; NULL if all are live */
static gpuvec_livemap *
make_map(gpuvec_backend *b, const std::vector<gpuvec_source_row> &source, const row *rows,
		 const std::vector<uint32_t> &place)
{
	gpuvec_livemap *live = NULL;
	gpuvec_error error;

	for (uint32_t i = 0; i < source.size(); i++)
	{
		if (rows[place[i]].live)
			continue;
		if (live == NULL)
			live = gpuvec_livemap_new((uint32_t) source.size(), &error);
		if (live == NULL)
			die("livemap", &error);
		live->bits[i / 32] &= ~(1u << i % 32);
		live->nlive--;
	}
	if (live && !b->adopt_livemaps(b, &live, 1, &error))
		die("adopt_livemaps", &error);
	return live;
}

/* Build one segment */
static gpuvec_view_entry
build_entry(gpuvec_backend *b, const row *rows, uint32_t n)
{
	std::vector<std::vector<uint32_t>> packed(n);
	std::vector<gpuvec_source_row> source(n);
	std::vector<uint32_t> place(n);
	gpuvec_view_entry entry = {NULL, NULL, 0};
	gpuvec_error error;

	for (uint32_t i = 0; i < n; i++)
		packed[i] = pack(rows[i], &source[i]);
	if (!gpuvec_rows_sort(source.data(), n, &error))
		die("sort", &error);
	for (uint32_t i = 0; i < n; i++)
		for (uint32_t j = 0; j < n && n < 100; j++)
			if (source[i].ids == (const uint16_t *) packed[j].data())
				place[i] = j;
	if (n >= 100)
	{
		std::vector<std::pair<const void *, uint32_t>> where(n);

		for (uint32_t i = 0; i < n; i++)
			where[i] = {packed[i].data(), i};
		std::sort(where.begin(), where.end());
		for (uint32_t i = 0; i < n; i++)
			place[i] = std::lower_bound(where.begin(), where.end(),
										std::make_pair((const void *) source[i].ids, 0u))->second;
	}
	entry.segment = gpuvec_segment_build(source.data(), n, gpuvec_row_kind{}, &error);
	if (entry.segment == NULL)
		die("build", &error);
	if (!b->adopt_segment(b, entry.segment, &error))
		die("adopt_segment", &error);
	entry.live = make_map(b, source, rows, place);
	return entry;
}

/*
 * Segments get no lists, or lists in blocks of a random size; those with few
 * hot numbers get bit vectors, or not
 */
static void
vary_segments(void)
{
	static const uint32_t shifts[] = {0, 12, 16};
	gpuvec_search_policy policy = defaults;

	policy.list_rows = random_below(4) == 0 ? UINT32_MAX : 1;
	policy.list_shift = shifts[random_below(3)];
	if (random_below(2) == 0)
		for (uint32_t &part : policy.list_fractions)
			part = 1 + random_below(200);
	policy.dense_rows = 1;
	policy.dense_fraction = UINT32_MAX;
	policy.dense_ids = random_below(5) == 0 ? 0 : 65536;
	gpuvec_search_policy_set(gpu, &policy);
}

/* Build a table's view for a backend */
static gpuvec_view *
build_view(gpuvec_backend *b, const table &t, bool vary)
{
	std::vector<gpuvec_view_entry> entries;
	gpuvec_error error;
	gpuvec_view *view;
	uint32_t	from = 0;

	for (size_t i = 0; i <= t.cuts.size(); i++)
	{
		uint32_t	to = i < t.cuts.size() ? t.cuts[i] : (uint32_t) t.rows.size();

		if (vary)
			vary_segments();
		for (; from < to; from = std::min(to, from + GPUVEC_SEGMENT_ROWS))
			entries.push_back(build_entry(b, &t.rows[from],
										  std::min(to - from, (uint32_t) GPUVEC_SEGMENT_ROWS)));
		from = to;
	}
	if (vary)
		gpuvec_search_policy_set(gpu, &defaults);
	view = gpuvec_view_new(entries.data(), (uint32_t) entries.size(), &error);
	if (view == NULL)
		die("view", &error);
	if (!b->adopt_view(b, view, &error))
		die("adopt_view", &error);
	return view;
}

/* The views of a table on both backends */
struct both_views
{
	gpuvec_view *on_gpu;
	gpuvec_view *on_cpu;

	both_views(const table &t)
		: on_gpu(build_view(gpu, t, true)), on_cpu(build_view(cpu, t, false))
	{
	}
	~both_views()
	{
		gpuvec_view_unref(on_gpu);
		gpuvec_view_unref(on_cpu);
	}
	both_views(const both_views &) = delete;
};

/* ------------------------------------------------------------- questions */

/* Questions that fit a table: copies, perturbed copies, others */
static std::vector<question>
make_questions(const table &t, uint32_t n, int draw, uint32_t longest)
{
	std::vector<question> questions(n);

	for (question &q : questions)
	{
		const numbers &some = t.rows[random_below((uint32_t) t.rows.size())].set;

		switch (random_below(6))
		{
			case 0:
				q.set = some;
				break;
			case 1:
			case 2:
				q.set = perturbed(some, draw);
				break;
			case 3:
				/* only the cold numbers of a row */
				q.set.assign(std::lower_bound(some.begin(), some.end(), 65536u), some.end());
				break;
			default:
				q.set = draw_set(longest, draw);
				break;
		}
		q.unknown = random_below(3) == 0 ? random_below(6) : 0;
		q.k = random_below(5) == 0 ? 1500 : 1 + random_below(12);
	}
	return questions;
}

static uint32_t
count_common(const numbers &a, const numbers &b)
{
	uint32_t	n = 0;

	for (size_t i = 0, j = 0; i < a.size() && j < b.size();)
	{
		if (a[i] == b[j])
			n++, i++, j++;
		else if (a[i] < b[j])
			i++;
		else
			j++;
	}
	return n;
}

/* The score of a row for a question */
static double
score_of(gpuvec_measure measure, const question &q, const row &r)
{
	return gpuvec_score_with({measure, weights}, {count_common(q.set, r.set),
												  (uint32_t) q.set.size() + q.unknown,
												  (uint32_t) r.set.size()});
}

/* The answer to one question, straight from the definition */
static answer
plain_answer(const table &t, gpuvec_measure measure, const question &q)
{
	gpuvec_match after = {q.after_score, q.after_tid, 0, 0};
	answer		matches;
	size_t		k;

	for (const row &r : t.rows)
	{
		gpuvec_match m = {0, r.tid, r.live ? count_common(q.set, r.set) : 0, 0};

		if (!r.live || (m.common == 0 && measure != GPUVEC_HAMMING))
			continue;
		m.score = score_of(measure, q, r);
		if ((q.has_min_score && m.score < q.min_score) ||
			(q.has_after && !ranks_before(after, m)))
			continue;
		matches.push_back(m);
	}
	k = std::min(matches.size(), (size_t) q.k);
	std::partial_sort(matches.begin(), matches.begin() + k, matches.end(), ranks_before);
	matches.resize(k);
	return matches;
}

/* Let some questions ask for a part of their answers */
static void
ask_for_parts(const table &t, gpuvec_measure measure, std::vector<question> &questions)
{
	for (question &q : questions)
	{
		const row  &r = t.rows[random_below((uint32_t) t.rows.size())];
		double		score = score_of(measure, q, r);

		q.has_min_score = random_below(4) == 0;
		q.has_after = random_below(3) == 0;
		q.min_score = score == 0 ? -0.0 : score;
		if (random_below(2))
			q.min_score = measure == GPUVEC_INTERSECTION ? 2 : measure == GPUVEC_HAMMING ?
				-(double) random_below(40) : random_below(100) / 100.0;
		q.after_score = score == 0 ? -0.0 : score;
		q.after_tid = random_below(3) ? r.tid : row_tid(random_below((uint32_t) t.rows.size()));
	}
}

/* ---------------------------------------------------------------- runs */

static gpuvec_topk_query
make_query(const question &q, std::vector<uint16_t> &hot, answer &scratch, uint64_t nrows)
{
	size_t		n = std::lower_bound(q.set.begin(), q.set.end(), 65536u) - q.set.begin();
	gpuvec_topk_query query = {};

	hot.assign(q.set.begin(), q.set.begin() + n);
	scratch.resize(std::min((uint64_t) q.k, nrows) + 1);
	query.ids = hot.data();
	query.len = (uint32_t) n;
	query.cold = q.set.data() + n;
	query.ncold = (uint32_t) (q.set.size() - n);
	query.others = query.ncold + q.unknown;
	query.k = q.k;
	query.has_min_score = q.has_min_score;
	query.has_after = q.has_after;
	query.min_score = q.min_score;
	query.after_score = q.after_score;
	query.after_tid = q.after_tid;
	query.matches = scratch.data();
	query.nmatches = 12345;
	return query;
}

/* Answers that have rows, and what they are examples of */
static struct
{
	uint32_t	behind_a_row;	/* queries begin behind one */
	uint32_t	beyond_matches; /* fewer match than were asked for */
	uint32_t	several_segments;
	uint32_t	dead_rows;
}			examples;

/* Count what an answer is an example of */
static void
count_answer(const gpuvec_view *view, const question &q, size_t nmatches)
{
	if (nmatches == 0)
		return;
	examples.behind_a_row += q.has_after;
	examples.beyond_matches += nmatches < q.k;
	examples.several_segments += view->nentries > 1;
	examples.dead_rows += view->entries[0].live != NULL;
}

/* Ask all questions at once; the answers */
static std::vector<answer>
ask(gpuvec_backend *b, const gpuvec_view *view, gpuvec_measure measure, gpuvec_method method,
	const std::vector<question> &questions, const int *canceled = NULL)
{
	std::vector<answer> answers(questions.size());
	std::vector<std::vector<uint16_t>> hot(questions.size());
	std::vector<gpuvec_topk_query> queries(questions.size());
	const gpuvec_scoring scoring = {measure, weights, 0};
	gpuvec_error error;

	for (size_t i = 0; i < questions.size(); i++)
	{
		queries[i] = make_query(questions[i], hot[i], answers[i], view->nrows);
		queries[i].canceled = canceled;
	}
	if (!b->topk(b, view, &scoring, method, queries.data(), (uint32_t) queries.size(), &error))
		die("topk", &error);
	for (size_t i = 0; i < questions.size(); i++)
	{
		answers[i].resize(std::min((size_t) queries[i].nmatches, answers[i].size()));
		if (b == gpu)
			count_answer(view, questions[i], answers[i].size());
	}
	if (b == gpu)
	{
		add_search(&total, b);
		if (gpuvec_search_last(b).cold_rounds > 0)
			dense_beside_cold += gpuvec_search_last(b).dense_chunks;
	}
	return answers;
}

/* Is the answer what it should be?  If not, say everything about it. */
static void
check_answer(const table &t, gpuvec_measure measure, const char *method, const std::string &about,
			 const std::vector<question> &questions, size_t i, const answer &is,
			 const answer &should)
{
	const question &q = questions[i];
	std::string wrong = difference(is, should);
	char		text[300];

	snprintf(text, sizeof(text), "%s, query %zu of %zu (%zu numbers, %u unknown, k %u%s%s): ",
			 method, i + 1, questions.size(), q.set.size(), q.unknown, q.k,
			 q.has_min_score ? ", min_score" : "", q.has_after ? ", after" : "");
	report(wrong.empty(), t.name + ", " + (measure == GPUVEC_TVERSKY ? "tversky" : measure_names[measure]) + ", " + about + ", " + text + wrong);
}

/* Settings of everything that may not change an answer */
struct settings
{
	gpuvec_search_policy policy = defaults;
	std::string about = "defaults";
};

#define SET(s, field, value) \
	((s).policy.field = (value), (s).about += std::string(" " #field " ") + std::to_string((s).policy.field))

/* Room for this number of candidates, whatever the k */
static void
set_capacity(settings &s, uint32_t candidates, uint32_t retry)
{
	SET(s, candidates, candidates);
	SET(s, retry_candidates, retry);
	s.policy.candidates_few = candidates;
	s.policy.candidates_per_k = s.policy.retry_per_k = 0;
}

static settings
random_settings(const table &t)
{
	static const uint32_t scratches[] = {32, 64, 256, 2000};
	static const uint32_t bits[] = {8, 16, 32};
	settings	s;

	s.about = "settings";
	/* with less room there are too many rounds */
	if (random_below(3) > 0)
		set_capacity(s, scratches[random_below(4)],
				 std::max(scratches[random_below(4)], (uint32_t) t.rows.size() / 16));
	if (random_below(2))
		SET(s, cold_slots, 1 + random_below(200));
	if (random_below(2))
		SET(s, cold_slots_most, 1 + random_below(200));
	if (random_below(2))
		SET(s, cold_spread, random_below(4));
	if (random_below(2))
		SET(s, entry_bits, bits[random_below(3)]);
	if (random_below(2))
		SET(s, first_rows, 32u << random_below(8));
	if (random_below(2))
		SET(s, growth, 2 + random_below(30));
	if (random_below(2))
		SET(s, chunk_queries, 1 + random_below(40));
	if (random_below(2))
		SET(s, near_fraction, 1 + random_below(20));
	if (random_below(2))
		SET(s, near_queries, random_below(20));
	if (random_below(2))
		SET(s, sample_tiled, random_below(4));
	if (random_below(2))
		SET(s, sample_whole, random_below(4));
	if (random_below(2))
		SET(s, direct_queries, 1 + random_below(40));
	if (random_below(2))
		SET(s, lone_queries, 1 + random_below(20));
	if (random_below(2))
		SET(s, scan_below, 0);
	return s;
}

/*
 * Ask all questions in all ways, and compare.  The CPU's answers are compared
 * as well: if both differ from the plain count in the same way, the test is
 * wrong.
 */
static void
compare(const table &t, const both_views &views, gpuvec_measure measure,
		const std::vector<question> &questions, const settings &s)
{
	std::vector<answer> should = ask(cpu, views.on_cpu, measure, GPUVEC_METHOD_AUTO, questions);

	for (size_t i = 0; t.counted && i < questions.size(); i++)
	{
		answer		plain = plain_answer(t, measure, questions[i]);

		check_answer(t, measure, "the CPU", "", questions, i, should[i], plain);
		should[i] = plain;
	}
	gpuvec_search_policy_set(gpu, &s.policy);
	for (int method = 0; method < GPUVEC_N_METHODS; method++)
	{
		std::vector<answer> is = ask(gpu, views.on_gpu, measure, (gpuvec_method) method, questions);

		for (size_t i = 0; i < questions.size(); i++)
			check_answer(t, measure, method_names[method], s.about, questions, i, is[i], should[i]);
	}
	gpuvec_search_policy_set(gpu, &defaults);
}

/* Some questions at once, alone, and for parts of answers */
static void
compare_all(const table &t, const both_views &views, gpuvec_measure measure,
			std::vector<question> questions, int nsettings)
{
	compare(t, views, measure, questions, settings());
	compare(t, views, measure, {questions[0]}, settings());
	for (int i = 0; i < nsettings; i++)
	{
		ask_for_parts(t, measure, questions);
		compare(t, views, measure, questions, random_settings(t));
		compare(t, views, measure, {questions[i % questions.size()]}, random_settings(t));
	}
}

/* --------------------------------------------------------------- tests */

/* Many small tables of all kinds */
static void
test_small(void)
{
	int			ntables = full ? 600 : emulated ? N_DRAWS * (GPUVEC_TVERSKY + 1) : 200;

	for (int i = 0; i < ntables; i++)
	{
		int			draw = i % N_DRAWS;
		uint32_t	longest = random_below(8) == 0 ? 600 : 1 + random_below(40);
		uint32_t	nrows = 1 + random_below(i % 9 == 0 ? 1500 : 150);
		table		t = random_table(std::string("small ") + std::to_string(i) + " (" +
									 draw_names[draw] + ")", nrows, longest, draw);

		cut(t, 1 + random_below(4));
		both_views	views(t);

		compare_all(t, views, (gpuvec_measure) (i / N_DRAWS % (GPUVEC_TVERSKY + 1)),
					make_questions(t, 24, draw, longest), emulated ? 1 : 2);
	}
}

/* Segments with and without cold numbers, also of cold ones only, in one view */
static void
test_mixed(void)
{
	for (int i = 0; i <= GPUVEC_TVERSKY; i++)
	{
		table		t;

		t.name = "mixed segments";
		for (int draw : {ONLY_HOT, ONLY_COLD, FEW_COLD, ENDS, FEW_HOT, ONLY_HOT})
		{
			table		part = random_table("", 60 + random_below(100), 20, draw);

			if (!t.rows.empty())
				t.cuts.push_back((uint32_t) t.rows.size());
			for (row &r : part.rows)
			{
				r.tid = row_tid(t.rows.size());
				t.rows.push_back(r);
			}
		}
		both_views	views(t);

		for (int draw : {ONLY_HOT, ONLY_COLD, ENDS})
			compare_all(t, views, (gpuvec_measure) i, make_questions(t, 20, draw, 20), 1);
	}
}

/* Queries with cold numbers where no row has any, or without numbers at all */
static void
test_unknown(void)
{
	for (int i = 0; i <= GPUVEC_TVERSKY; i++)
		for (int draw : {ONLY_HOT, FEW_COLD, ONLY_COLD})
		{
			table		t = random_table("unknown ids", 300, 20, draw);
			std::vector<question> questions = make_questions(t, 8, draw, 20);

			for (size_t q = 0; q < questions.size(); q++)
			{
				if (q % 2)
					questions[q].set.clear();
				for (uint32_t n = 0; q % 4 > 1 && n < 40; n++)
					questions[q].set.push_back(4000000 + n * 70000);
				questions[q].unknown = (uint32_t) q;
			}
			both_views	views(t);

			compare_all(t, views, (gpuvec_measure) i, questions, 2);
		}
}

/*
 * A cold number that most rows have, as one that came after the load may.
 * Tables are too small at first, and rounds have to be, too.
 */
static void
test_everywhere(void)
{
	uint32_t	nrows = full ? 70000 : emulated ? 2500 : 12000;
	table		t = random_table("everywhere", nrows, 12, SKEWED);
	std::vector<question> questions;
	settings	narrow;

	for (row &r : t.rows)
		if (random_below(8) > 0)
		{
			r.set.push_back(600000);
			if (random_below(2))
				r.set.push_back(600001);
		}
	cut(t, 3);
	questions = make_questions(t, 6, SKEWED, 12);
	for (question &q : questions)
	{
		q.set.push_back(600000);
		q.set.push_back(600001);
		make_set(q.set);
	}
	questions[1].set = {600000};
	questions[2].k = nrows;
	narrow.about = "narrow";
	set_capacity(narrow, 32, emulated ? 256 : 1024);
	SET(narrow, cold_slots_most, 64);
	both_views	views(t);

	for (int m = 0; m <= GPUVEC_TVERSKY; m++)
	{
		compare_all(t, views, (gpuvec_measure) m, questions, 2);
		compare(t, views, (gpuvec_measure) m, questions, narrow);
		ask_for_parts(t, (gpuvec_measure) m, questions);
		compare(t, views, (gpuvec_measure) m, questions, narrow);
		for (question &q : questions)
			q.has_min_score = q.has_after = false;
	}
}

/* Pages through a whole answer */
static void
test_pages(void)
{
	static const int draws[] = {FEW_COLD, AT_THE_EDGE, SKEWED, ENDS, FEW_HOT};

	for (int draw : draws)
		for (int m = 0; m <= GPUVEC_TVERSKY; m++)
		{
			table		t = random_table("pages", emulated ? 150 : 900, 12, draw);
			question	q = make_questions(t, 1, draw, 12)[0];
			question	whole = q;
			answer		pages;
			bool		more = true;

			cut(t, 3);
			both_views	views(t);

			whole.k = 100000;
			q.k = 1 + random_below(emulated ? 40 : 60);
			for (int i = 0; more; i++)
			{
				settings	s = random_settings(t);
				answer		page;

				gpuvec_search_policy_set(gpu, &s.policy);
				page = ask(gpu, views.on_gpu, (gpuvec_measure) m, (gpuvec_method) (i % GPUVEC_N_METHODS),
						   {q})[0];
				pages.insert(pages.end(), page.begin(), page.end());
				more = page.size() == q.k && pages.size() <= t.rows.size();
				q.has_after = true;
				if (more)
				{
					q.after_score = page.back().score;
					q.after_tid = page.back().tid;
				}
			}
			gpuvec_search_policy_set(gpu, &defaults);
			check_answer(t, (gpuvec_measure) m, "all methods", "page by page", {whole}, 0, pages,
						 plain_answer(t, (gpuvec_measure) m, whole));
		}
}

/* All rows equal, at the ends of what a tid can be */
static void
test_ties(void)
{
	for (const numbers &set : {numbers{0, 65535, 65536, 70000}, numbers{65536}, numbers{3, UINT32_MAX}})
	{
		table		t;
		std::vector<question> questions(3);

		t.name = "ties";
		for (uint32_t i = 0; i < (emulated ? 500 : 3000); i++)
			t.rows.push_back({i % 2 ? gpuvec_tid(UINT32_MAX - i / 2, GPUVEC_MAX_LINE) :
							  gpuvec_tid(i, 1), set, true});
		cut(t, 3);
		questions[0].set = set;
		questions[1].set = {set.back()};
		questions[2].set = {set.front(), 80000};
		questions[0].k = 100;
		questions[1].k = 200;
		questions[2].k = 5000;
		both_views	views(t);

		for (int m = 0; m <= GPUVEC_TVERSKY; m += emulated ? 7 : 1)
			compare_all(t, views, (gpuvec_measure) m, questions, 1);
	}
}

/*
 * A row that was replaced is dead in an old segment, and has another set
 * under the same tid in a new one
 */
static void
test_replaced(void)
{
	for (int m = 0; m <= GPUVEC_TVERSKY; m++)
		for (int draw : {FEW_COLD, ONLY_COLD, ENDS, FEW_HOT})
		{
			table		t = random_table("replaced rows", 400, 10, draw);
			std::vector<question> questions;

			t.cuts = {400};
			for (uint32_t i = 0; i < 400; i++)
			{
				row			r = t.rows[i];

				if (i % 3 == 0)
					continue;
				t.rows[i].live = false;
				r.set = perturbed(r.set, draw);
				t.rows.push_back(r);
			}
			questions = make_questions(t, 24, draw, 10);
			for (size_t i = 0; i < questions.size(); i += 2)
				questions[i].set = t.rows[random_below(400)].set;
			both_views	views(t);

			compare_all(t, views, (gpuvec_measure) m, questions, 1);
		}
}

/* Rows and queries of up to 65,536 numbers, of both kinds */
static void
test_long(void)
{
	uint32_t	most = emulated ? 3000 : 65536;
	table		t = random_table("long rows", 60, 600, SKEWED);
	std::vector<question> questions = make_questions(t, 6, SKEWED, 600);

	t.rows[3].set = all_from(65536, most);
	t.rows[4].set = all_from(0, most);
	t.rows[5].set = all_from(65536 - most / 2, most);
	t.rows[6].set = all_from(UINT32_MAX - 1000, 1001);
	for (uint32_t i = 7; i < 50; i++)
	{
		/* as many common numbers as fill a byte, nearly or beyond it */
		t.rows[i].set = all_from(65536 - (i % 3 == 0 ? 0 : i % 3 == 1 ? 128 : 300), 230 + i);
		t.rows[i].live = true;
	}
	for (uint32_t i = 0; i < 4; i++)
		questions[i].set = t.rows[3 + i].set;
	questions[4].set = t.rows[40].set;
	both_views	views(t);

	for (int m = 0; m <= GPUVEC_TVERSKY; m++)
		compare_all(t, views, (gpuvec_measure) m, questions, 2);
}

/* Rows enough for several rounds, and for lists in small blocks */
static void
test_rounds(void)
{
	uint32_t	nrows = full ? 150000 : emulated ? 5000 : 20000;
	table		t = random_table("rounds", nrows, 40, SKEWED);

	t.counted = !full;
	std::sort(t.rows.begin(), t.rows.end(), [] (const row &a, const row &b)
			  {
				  return a.set.size() < b.set.size();
			  });
	cut(t, full ? 6 : 3);
	both_views	views(t);

	for (int m = 0; m < (emulated ? 3 : GPUVEC_TVERSKY + 1); m++)
		for (uint32_t n : {3u, 60u, full ? 500u : 90u})
			compare_all(t, views, (gpuvec_measure) m, make_questions(t, n, SKEWED, 40), 2);
}

/*
 * Numbers as of 10,000,000 ids that follow Zipf's law, in full segments: what
 * the guess of a table's size is made for
 */
static void
test_zipf(void)
{
	uint32_t	nrows = full ? 400000 : emulated ? 3000 : 70000;
	table		t;
	std::vector<question> questions(full ? 2000 : emulated ? 70 : 300);
	settings	s;
	double		most = std::log(1e7);

	t.name = "Zipf";
	t.counted = false;
	t.rows.resize(nrows);
	for (uint32_t i = 0; i < nrows; i++)
	{
		row		   &r = t.rows[i];

		r.tid = row_tid(i);
		r.live = random_below(50) > 0;
		r.set.resize(8 + random_below(113));
		for (uint32_t &number : r.set)
			number = (uint32_t) std::exp(random_below(1u << 31) / 2147483648.0 * most) - 1;
		make_set(r.set);
	}
	for (question &q : questions)
	{
		q.set = perturbed(t.rows[random_below(nrows)].set, SKEWED);
		q.k = 100;
	}
	both_views	views(t);
	uint32_t	fulls = total.cold_full;

	for (gpuvec_measure measure : {GPUVEC_BRAUN_BLANQUET, GPUVEC_COSINE})
	{
		compare(t, views, measure, questions, s);
		compare(t, views, measure, {questions[0]}, s);
	}
	report(total.cold_full == fulls, "Zipf: tables are too small");
}

/* Searches that nobody waits for any more, and what comes after them */
static void
test_stopped(void)
{
	table		t = random_table("stopped", full ? 60000 : 4000, 40, SKEWED);
	both_views	views(t);
	std::vector<question> few = make_questions(t, 4, SKEWED, 40);
	std::vector<question> many = make_questions(t, full ? 5000 : 200, SKEWED, 40);

	for (int i = 0; i < (emulated ? 3 : 12); i++)
	{
		int			canceled = i == 0;
		std::thread impatient([&] ()
			{
				usleep((useconds_t) (i * 500));
				__atomic_store_n(&canceled, 1, __ATOMIC_RELAXED);
			});

		ask(gpu, views.on_gpu, GPUVEC_JACCARD, (gpuvec_method) (i % GPUVEC_N_METHODS), many,
			&canceled);
		impatient.join();
		compare(t, views, GPUVEC_JACCARD, few, settings());
	}
}

/* Searches while other threads upload and free segments */
static void
test_threads(void)
{
	table		t = random_table("beside uploads", emulated ? 800 : 20000, 30, SKEWED);
	table		other = random_table("uploaded meanwhile", 3000, 30, SKEWED);
	std::vector<std::thread> threads;
	std::atomic<bool> stop(false);

	t.counted = emulated;
	both_views	views(t);
	std::vector<question> questions = make_questions(t, 40, SKEWED, 30);

	for (int i = 0; i < (emulated ? 1 : 5); i++)
		threads.emplace_back([&] ()
			{
				while (!stop)
					gpuvec_view_unref(build_view(gpu, other, false));
			});
	for (int i = 0; i < (emulated ? 3 : 20); i++)
		compare(t, views, (gpuvec_measure) (i % (GPUVEC_TVERSKY + 1)), questions, settings());
	stop = true;
	for (std::thread &thread : threads)
		thread.join();
}

static const struct
{
	const char *name;
	void		(*run) (void);
}			tests[] = {
	{"small", test_small},
	{"mixed", test_mixed},
	{"unknown", test_unknown},
	{"ties", test_ties},
	{"replaced", test_replaced},
	{"pages", test_pages},
	{"everywhere", test_everywhere},
	{"long", test_long},
	{"rounds", test_rounds},
	{"zipf", test_zipf},
	{"stopped", test_stopped},
	{"threads", test_threads},
};

static void
open_backends(void)
{
	gpuvec_backend_options options = {};
	gpuvec_lists_policy policy = gpuvec_lists_usual;
	gpuvec_backend_info info;
	gpuvec_error error;

	gpu = gpuvec_cuda_open(&options, &error);
	if (gpu == NULL)
		die("open", &error);
	cpu = gpuvec_cpu_open_with(&options, &policy, &error);
	if (cpu == NULL)
		die("open the CPU", &error);
	defaults = gpuvec_search_policy_get(gpu);
	gpu->info(gpu, &info);
	printf("%s, %s, compute capability %d.%d\n", info.name, info.device, info.capability / 10,
		   info.capability % 10);
}

int
main(int argc, char **argv)
{
	const char *only = argc > 3 ? argv[3] : "";
	uint64_t	seed = argc > 2 ? strtoull(argv[2], NULL, 10) : 1;

	full = argc > 1 && strcmp(argv[1], "full") == 0;
	emulated = argc > 1 && strcmp(argv[1], "emulated") == 0;
	open_backends();
	for (const auto &test : tests)
	{
		if (strncmp(test.name, only, strlen(only)) != 0)
			continue;
		/* the same data, whether a test runs alone or not */
		random_state = seed * 1000 + (&test - tests);
		weights = gpuvec_make_tversky(0.7, 0.3);
		test.run();
		printf("%s: %d passed, %d failed so far\n", test.name, (int) npassed, (int) nfailed);
		fflush(stdout);
	}

	/* the settings must have driven searches the ways that they are for */
	if (only[0] == '\0')
	{
		report(total.cold_rounds > 0, "no round began with cold numbers");
		report(total.cold_full > 0, "no table was too small");
		report(total.overflows > 0, "no query overflowed");
		report(total.retries > 0, "no repeated round overflowed");
		report(total.list_chunks > 0, "nothing was counted by lists");
		report(total.lone_chunks > 0, "no query was a parameter");
		report(total.own_rounds > 0, "no query had a sample of its own");
		report(total.direct_overflows > 0, "no lone query overflowed");
		report(examples.behind_a_row > 50, "no query began behind a row");
		report(examples.beyond_matches > 50, "no query asked for more rows than match");
		report(examples.several_segments > 50, "no view had several segments");
		report(examples.dead_rows > 50, "no view had dead rows");
		report(dense_beside_cold > 0, "no queries with cold numbers were counted by bit vectors");
		report(total.plain_rounds > 0, "nothing was counted in bytes");
	}
	printf("%u rounds began with cold numbers, %u tables were too small, %u queries overflowed, "
		   "%u repeated rounds overflowed, %u searches were stopped\n",
		   total.cold_rounds, total.cold_full, total.overflows, total.retries,
		   total.stopped_chunks);
	gpu->close(gpu);
	cpu->close(cpu);
	printf("%d passed, %d failed\n", (int) npassed, (int) nfailed);
	return nfailed > 0;
}
