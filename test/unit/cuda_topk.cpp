/*-------------------------------------------------------------------------
 *
 * cuda_topk.cpp
 *	  Test of the CUDA backend: every match of every query is compared, to the
 *	  bit and in order, with a plain count over all rows.
 *
 *		cuda_topk [tiny|emulated|quick|full] [seed]
 *
 * quick (the default) takes seconds, also under compute-sanitizer's memcheck;
 * full adds large views, large k and searches beside uploads; tiny is for
 * compute-sanitizer's racecheck, which is a thousand times slower; emulated
 * is for search.mk, which has no GPU.
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
#include <time.h>
#include <unistd.h>
#include <vector>

#include "test/unit/cuda_test.h"

typedef std::vector<uint16_t> idset;

struct row
{
	uint64_t	tid;
	idset		ids;
	bool		live;
};

struct dataset
{
	std::string name;
	std::vector<row> rows;		/* their tids tell the partition */
	uint32_t	vocab;
	gpuvec_view *view;
	std::vector<uint32_t> partitions;	/* ascending numbers of mirrors */
	uint32_t	shared_bits = 0;	/* rows of several share segments: bits of
									 * these numbers */
};

/* A query and what it asks for */
struct question
{
	idset		ids;
	uint32_t	k;
	bool		has_min_score = false;
	bool		has_after = false;
	double		min_score = 0;
	double		after_score = 0;
	uint64_t	after_tid = 0;
};

/* A row's tid in its mirror */
static uint64_t
own_tid(const row &r)
{
	return r.tid & (gpuvec_partition_tid(1) - 1);
}

static gpuvec_backend *backend;
static bool full;
static bool tiny;
static bool emulated;
static gpuvec_search_stats total;	/* of all searches */

/*
 * Weights of tversky, and the power of ten that makes integers of them; 0:
 * none does
 */
static const struct
{
	double		alpha;
	double		beta;
	double		scale;
}			some_weights[] = {
	{0.7, 0.3, 10}, {0, 1, 1}, {2.25, 0, 100}, {1.0 / 3, 1e-7, 0}, {1e300, 2, 0}, {1e-300, 1e-12, 0}
};

static size_t which_weights;	/* that are in use */

static double
seconds_since_start(void)
{
	static struct timespec start;
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	if (start.tv_sec == 0)
		start = now;
	return (now.tv_sec - start.tv_sec) + (now.tv_nsec - start.tv_nsec) * 1e-9;
}

static void
report(bool ok, const char *format, const std::string &about)
{
	if (ok)
		npassed++;
	else if (nfailed++ < 40)
		printf(format, about.c_str());
}

/* ---------------------------------------------------------------- data */

/* n distinct ids below vocab; skewed: small ranks are common */
static idset
random_set(uint32_t n, uint32_t vocab, bool skewed)
{
	std::vector<bool> has(vocab);
	idset		ids;

	n = std::min(n, vocab);
	if (n > vocab / 2)
	{
		/* dense: choose by a run through all ids */
		for (uint32_t id = 0; id < vocab; id++)
			if (random_below(vocab - id) < n - ids.size())
				ids.push_back(id);
		return ids;
	}
	while (ids.size() < n)
	{
		uint32_t	id = random_below(vocab);

		if (skewed)
			id = (uint32_t) ((uint64_t) id * random_below(vocab) / vocab *
							 random_below(vocab) / vocab);
		/* skewed towards 0 and 65535 alike */
		if (skewed && random_below(2))
			id = vocab - 1 - id;
		if (!has[id])
		{
			has[id] = true;
			ids.push_back(id);
		}
	}
	std::sort(ids.begin(), ids.end());
	return ids;
}

/* A copy of a set with some ids replaced */
static idset
perturbed(const idset &set, uint32_t vocab)
{
	idset		ids;

	for (uint16_t id : set)
		if (random_below(4) > 0)
			ids.push_back(id);
	ids.push_back(random_below(vocab));
	std::sort(ids.begin(), ids.end());
	ids.erase(std::unique(ids.begin(), ids.end()), ids.end());
	return ids;
}

/* Rows of random lengths; tids grow with the row number, not densely */
static dataset
random_dataset(const char *name, uint32_t nrows, uint32_t vocab, uint32_t minlen,
			   uint32_t maxlen, bool skewed)
{
	dataset		d;
	uint64_t	block = 0;
	uint32_t	line = 1;

	d.name = name;
	d.vocab = vocab;
	d.view = NULL;
	for (uint32_t i = 0; i < nrows; i++)
	{
		row			r;

		line += 1 + random_below(3);
		if (line > 290)
		{
			line = 1;
			block += 1 + random_below(2);
		}
		r.tid = gpuvec_tid(block, line);
		r.ids = random_set(minlen + random_below(maxlen - minlen + 1), vocab, skewed);
		r.live = true;
		d.rows.push_back(r);
	}
	return d;
}

/* Give rows tids at the ends of what a tid can be */
static void
extreme_tids(dataset &d)
{
	for (size_t i = 0; i < d.rows.size(); i++)
		d.rows[i].tid = i % 2 ? gpuvec_tid(UINT32_MAX - i / 2, GPUVEC_MAX_LINE) : gpuvec_tid(i, 1);
}

/*
 * Build one segment of some rows, check that reading it back gives the same
 * ids
 */
static gpuvec_view_entry
build_entry(const std::vector<const row *> &rows, uint32_t shared_bits = 0)
{
	gpuvec_error error;
	std::vector<gpuvec_source_row> source;
	gpuvec_view_entry entry = {};
	uint32_t	ndead = 0;

	for (const row *r : rows)
	{
		gpuvec_source_row s = {shared_bits ? r->tid : own_tid(*r), (uint32_t) r->ids.size(), 0, r->ids.data()};

		source.push_back(s);
		ndead += !r->live;
	}
	if (!gpuvec_rows_sort(source.data(), source.size(), &error))
		die("sort", &error);
	entry.segment = gpuvec_segment_build(source.data(), source.size(), gpuvec_row_kind{}, &error);
	entry.live = NULL;
	entry.partition = shared_bits ? 0 : rows[0]->tid - own_tid(*rows[0]);
	entry.segment->partition_bits = shared_bits;
	if (entry.segment == NULL)
		die("build", &error);

	idset		before(entry.segment->ids, entry.segment->ids + entry.segment->nchunks * 256);
	idset		after(before.size() + 1, 0xABCD);

	if (!backend->adopt_segment(backend, entry.segment, &error))
		die("adopt_segment", &error);
	if (!backend->read_ids(backend, entry.segment, after.data(), &error))
		die("read_ids", &error);
	report(after.back() == 0xABCD && std::equal(before.begin(), before.end(), after.begin()),
		   "read_ids differs%s\n", "");
	if (ndead > 0)
	{
		std::vector<uint64_t> dead;

		for (const row *r : rows)
			if (!r->live)
				dead.push_back(shared_bits ? r->tid : own_tid(*r));
		std::sort(dead.begin(), dead.end());
		entry.live = gpuvec_livemap_new(source.size(), &error);
		if (entry.live == NULL)
			die("livemap", &error);
		for (uint32_t i = 0; i < source.size(); i++)
			if (std::binary_search(dead.begin(), dead.end(), source[i].tid))
				entry.live->bits[i / 32] &= ~(1u << i % 32);
		entry.live->nlive -= ndead;
		if (!backend->adopt_livemaps(backend, &entry.live, 1, &error))
			die("adopt_livemaps", &error);
	}
	return entry;
}

static gpuvec_search_policy defaults;	/* of the backend */

static void
set_policy(const gpuvec_search_policy &policy)
{
	gpuvec_search_policy_set(backend, &policy);
}

/* Room for this number of candidates, whatever the k */
static void
set_candidates(gpuvec_search_policy &policy, uint32_t candidates)
{
	policy.candidates = policy.candidates_few = candidates;
	policy.candidates_per_k = 0;
}

static void
set_retry(gpuvec_search_policy &policy, uint32_t candidates)
{
	policy.retry_candidates = candidates;
	policy.retry_per_k = 0;
}

/* Blocks of a query's sample, of either kind */
static void
set_sample(gpuvec_search_policy &policy, uint32_t blocks)
{
	policy.sample_tiled = policy.sample_whole = blocks;
}

/*
 * Up to this number of queries, bitmaps are not staged; small blocks always
 * pay
 */
static void
set_direct(gpuvec_search_policy &policy, uint32_t queries)
{
	policy.direct_queries = queries;
	policy.scan_below = 0;
}

/*
 * Segments get no lists, or lists in blocks of a random size; else as the
 * policy says
 */
static bool mixed_lists = true;

/* Segments with few ids get bit vectors, or none does */
static void
vary_vectors(gpuvec_search_policy &policy)
{
	policy.dense_rows = 1;
	policy.dense_fraction = UINT32_MAX;
	policy.dense_ids = random_below(5) == 0 ? 0 : random_below(5) == 0 ? 1000 : 65536;
}

static void
vary_lists(void)
{
	static const uint32_t shifts[] = {0, 12, 16};
	gpuvec_search_policy policy = defaults;

	policy.list_rows = random_below(5) == 0 ? UINT32_MAX : 1;
	policy.list_shift = shifts[random_below(3)];
	if (random_below(2) == 0)
	{
		uint32_t	part = 1 + random_below(200);

		for (uint32_t &p : policy.list_fractions)
			p = part;
	}
	vary_vectors(policy);
	set_policy(policy);
}

/*
 * Build the view of a dataset: segments of up to `rows` rows each, cut out of
 * the rows of each partition, sorted by length or as they come.
 */
static void
build_view(dataset &d, uint32_t rows, bool sorted)
{
	std::vector<const row *> order;
	std::vector<gpuvec_view_entry> entries;
	gpuvec_error error;

	for (const row &r : d.rows)
		order.push_back(&r);
	if (sorted)
		std::stable_sort(order.begin(), order.end(), [] (const row *a, const row *b)
						 {
							 return a->ids.size() < b->ids.size();
						 });
	if (d.shared_bits == 0)
		std::stable_sort(order.begin(), order.end(), [] (const row *a, const row *b)
						 {
							 return a->tid - own_tid(*a) < b->tid - own_tid(*b);
						 });
	for (size_t from = 0, next; from < order.size(); from = next)
	{
		uint64_t	partition = order[from]->tid - own_tid(*order[from]);

		if (mixed_lists)
			vary_lists();
		for (next = from + 1; next < order.size() && next < from + rows; next++)
			if (d.shared_bits == 0 && order[next]->tid - own_tid(*order[next]) != partition)
				break;
		entries.push_back(build_entry(std::vector<const row *>(order.begin() + from, order.begin() + next),
									  d.shared_bits));
	}
	if (mixed_lists)
		set_policy(defaults);
	d.view = gpuvec_view_new(entries.data(), entries.size(), &error);
	if (d.view == NULL)
		die("view", &error);
	if (!backend->adopt_view(backend, d.view, &error))
		die("adopt_view", &error);
}

static void
kill_some(dataset &d, uint32_t one_in)
{
	for (row &r : d.rows)
		if (random_below(one_in) == 0)
			r.live = false;
}

/*
 * Questions that fit a dataset: copies, perturbed copies, random sets, odd
 * ones
 */
static std::vector<question>
make_questions(const dataset &d, uint32_t n, uint32_t k)
{
	std::vector<question> questions(n);

	for (uint32_t i = 0; i < n; i++)
	{
		question   &q = questions[i];
		const idset &some = d.rows[random_below(d.rows.size())].ids;

		q.k = k;
		switch (random_below(8))
		{
			case 0:
				q.ids = some;
				break;
			case 1:
			case 2:
			case 3:
				q.ids = perturbed(some, d.vocab);
				break;
			case 4:
				if (i % 3 == 0)
					break;		/* empty */
				q.ids = {0};
				break;
			case 5:
				q.ids = {0, 65535};
				break;
			default:
				q.ids = random_set(1 + random_below((uint32_t) some.size() + 20), d.vocab, i % 2);
				break;
		}
	}
	return questions;
}

/* ----------------------------------------------------------- reference */

/* Call work(i) for i = 0 .. n - 1, on all cores */
template <typename Work>
static void
in_parallel(size_t n, Work work)
{
	std::vector<std::thread> threads;
	std::atomic<size_t> next(0);
	unsigned	nthreads = std::max(1u, std::thread::hardware_concurrency());
	auto		run = [&] ()
	{
		size_t		i;

		while ((i = next++) < n)
			work(i);
	};

	for (unsigned t = 1; t < nthreads && t < n; t++)
		threads.emplace_back(run);
	run();
	for (std::thread &t : threads)
		t.join();
}

/* common[i * rows + r] of question i and row r, by a lookup for every id */
static std::vector<uint32_t>
count_common(const dataset &d, const std::vector<question> &questions)
{
	std::vector<uint32_t> common(questions.size() * d.rows.size());

	in_parallel(questions.size(), [&] (size_t i)
		{
			std::vector<uint8_t> has(65536);

			for (uint16_t id : questions[i].ids)
				has[id] = 1;
			for (size_t r = 0; r < d.rows.size(); r++)
			{
				uint32_t	n = 0;

				for (uint16_t id : d.rows[r].ids)
					n += has[id];
				common[i * d.rows.size() + r] = n;
			}
		});
	return common;
}

/* tversky, written once more */
static double
tversky(double i, double a, double b)
{
	const auto &w = some_weights[which_weights];
	double		alpha = w.scale > 0 ? std::rint(w.alpha * w.scale) : w.alpha;
	double		beta = w.scale > 0 ? std::rint(w.beta * w.scale) : w.beta;
	double		others = alpha * (a - i) + beta * (b - i);

	return i == 0 ? 0 : w.scale > 0 ? w.scale * i / (w.scale * i + others) : 1 / (1 + others / i);
}

/* The measures, written once more */
static double
formula(gpuvec_measure measure, double i, double a, double b)
{
	switch (measure)
	{
		case GPUVEC_BRAUN_BLANQUET:
			return a + b == 0 ? 0 : i / std::max(a, b);
		case GPUVEC_JACCARD:
			return a + b == 0 ? 0 : i / (a + b - i);
		case GPUVEC_COSINE:
			return i == 0 ? 0 : std::sqrt(i * i / (a * b));
		case GPUVEC_DICE:
			return a + b == 0 ? 0 : 2 * i / (a + b);
		case GPUVEC_OVERLAP:
			return i == 0 ? 0 : i / std::min(a, b);
		case GPUVEC_CONTAINMENT:
			return i == 0 ? 0 : i / a;
		case GPUVEC_INTERSECTION:
			return i;
		case GPUVEC_HAMMING:
			return 0 - (a + b - 2 * i);
		case GPUVEC_KULCZYNSKI:
			return i == 0 ? 0 : i * (a + b) / (2 * a * b);
		case GPUVEC_TVERSKY:
			return tversky(i, a, b);
	}
	return NAN;
}

/* The answer to one question, straight from the definition */
static std::vector<gpuvec_match>
reference(const dataset &d, gpuvec_measure measure, const question &q, const uint32_t *common)
{
	std::vector<gpuvec_match> matches;
	size_t		k;

	for (size_t r = 0; r < d.rows.size(); r++)
	{
		gpuvec_match m;
		gpuvec_match after = {q.after_score, q.after_tid, 0, 0};

		if (!d.rows[r].live || (common[r] == 0 && measure != GPUVEC_HAMMING))
			continue;
		m.score = formula(measure, common[r], q.ids.size(), d.rows[r].ids.size());
		m.tid = d.rows[r].tid;
		m.common = common[r];
		m.padding = 0;
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

/* ---------------------------------------------------------------- runs */

/* Answers that have rows, and what they are examples of */
static struct
{
	uint32_t	behind_a_row;	/* queries begin behind one */
	uint32_t	beyond_matches; /* fewer match than were asked for */
	uint32_t	several_segments;
	uint32_t	dead_rows;
	uint32_t	several_mirrors;
	uint32_t	tversky[sizeof(some_weights) / sizeof(some_weights[0])];
}			examples;

static void
count_answer(const dataset &d, gpuvec_measure measure, const question &q, size_t nmatches)
{
	if (nmatches == 0)
		return;
	examples.behind_a_row += q.has_after;
	examples.beyond_matches += nmatches < q.k;
	examples.several_segments += d.view->nentries > 1;
	examples.dead_rows += d.view->entries[0].live != NULL;
	examples.several_mirrors += d.partitions.size() > 1;
	examples.tversky[which_weights] += measure == GPUVEC_TVERSKY;
}

/* A measure, with the weights in use */
static gpuvec_scoring
scoring_of(gpuvec_measure measure)
{
	return {measure, gpuvec_make_tversky(some_weights[which_weights].alpha,
										 some_weights[which_weights].beta)};
}

static const gpuvec_scoring by_jaccard = {GPUVEC_JACCARD, {}};
static const gpuvec_scoring by_hamming = {GPUVEC_HAMMING, {}};

/* A question as the backend takes it */
static gpuvec_topk_query
make_query(const question &q, gpuvec_match *matches)
{
	gpuvec_topk_query query = {};

	query.ids = q.ids.data();
	query.len = q.ids.size();
	query.k = q.k;
	query.has_min_score = q.has_min_score;
	query.has_after = q.has_after;
	query.min_score = q.min_score;
	query.after_score = q.after_score;
	query.after_tid = q.after_tid;
	query.canceled = NULL;
	query.matches = matches;
	query.nmatches = 12345;
	return query;
}

/* Ask all questions at once; the answers */
static std::vector<std::vector<gpuvec_match>>
ask(const dataset &d, gpuvec_measure measure, gpuvec_method method,
	const std::vector<question> &questions)
{
	std::vector<std::vector<gpuvec_match>> answers(questions.size());
	std::vector<gpuvec_topk_query> queries(questions.size());
	const gpuvec_scoring scoring = scoring_of(measure);
	gpuvec_error error;

	for (size_t i = 0; i < questions.size(); i++)
	{
		answers[i].resize(std::min((uint64_t) questions[i].k, d.view->nrows));
		queries[i] = make_query(questions[i], answers[i].data());
	}
	if (!backend->topk(backend, d.view, &scoring, method, queries.data(), queries.size(), &error))
		die("topk", &error);
	for (size_t i = 0; i < questions.size(); i++)
	{
		if (queries[i].nmatches > answers[i].size())
			report(false, "too many matches: %s\n", d.name);
		else
			answers[i].resize(queries[i].nmatches);
		count_answer(d, measure, questions[i], answers[i].size());
	}
	add_search(&total, backend);
	return answers;
}

/* Rows that were counted, and rows whose tids came beside counts */
static uint64_t counted_rows;
static uint64_t listed_rows;

/*
 * Count the rows of random pages that match a question, and compare the count,
 * and the tids of the others, with the reference.  Draws no random number of
 * others.
 */
static void
compare_count(const dataset &d, gpuvec_measure measure, question q, const uint32_t *common,
			  gpuvec_method method)
{
	const uint64_t state = random_state;
	const gpuvec_scoring scoring = scoring_of(measure);
	std::vector<uint8_t> pages(random_below(2) ? random_below(40) : 4096);
	std::vector<uint64_t> should;
	uint64_t	counted = 0;
	gpuvec_topk_query query;
	gpuvec_error error;
	bool		right;

	for (uint8_t &byte : pages)
		byte = (uint8_t) random64();
	random_state = state;
	q.k = UINT32_MAX;
	q.has_after = false;
	query = make_query(q, NULL);
	query.unordered = query.bare = true;
	query.counts = {pages.data(), pages.size()};
	if (!backend->topk(backend, d.view, &scoring, method, &query, 1, &error))
		die("topk", &error);
	add_search(&total, backend);
	for (const gpuvec_match &m : reference(d, measure, q, common))
	{
		if (gpuvec_page_set_has(&query.counts, gpuvec_tid_block(m.tid)))
			counted++;
		else
			should.push_back(m.tid);
	}
	std::sort(should.begin(), should.end());
	std::sort(query.tids, query.tids + query.nmatches);
	right = query.counted == counted && query.nmatches == should.size() &&
		std::equal(should.begin(), should.end(), query.tids);
	free(query.tids);
	counted_rows += counted;
	listed_rows += should.size();
	report(right, "FAILED: rows are counted: %s\n", d.name);
}

/*
 * Ask, and compare every answer with the reference; before, in one of a few
 * cases, count the rows of the first one
 */
static void
compare(const dataset &d, gpuvec_measure measure, const std::vector<question> &questions,
		const std::vector<uint32_t> &common, const char *about,
		gpuvec_method method = GPUVEC_METHOD_AUTO)
{
	static uint32_t compared;
	std::vector<std::vector<gpuvec_match>> answers;
	std::vector<std::string> wrong(questions.size());

	if (compared++ % 3 == 0 && !questions.empty())
		compare_count(d, measure, questions[0], common.data(), method);
	answers = ask(d, measure, method, questions);

	in_parallel(questions.size(), [&] (size_t i)
		{
			wrong[i] = difference(answers[i], reference(d, measure, questions[i],
														&common[i * d.rows.size()]));
		});
	for (size_t i = 0; i < questions.size(); i++)
	{
		char		text[600];

		snprintf(text, sizeof(text), "%s, %s, %s, %s, query %zu of %zu (%zu ids, k %u%s%s): %s",
				 d.name.c_str(), measure == GPUVEC_TVERSKY ? "tversky" : measure_names[measure], method_names[method], about, i + 1, questions.size(),
				 questions[i].ids.size(), questions[i].k,
				 questions[i].has_min_score ? ", min_score" : "",
				 questions[i].has_after ? ", after" : "",
				 wrong[i].c_str());
		report(wrong[i].empty(), "FAILED: %s\n", text);
	}
}

/* Let some questions ask for a part of the answer that the reference knows */
static void
ask_for_parts(const dataset &d, gpuvec_measure measure, std::vector<question> &questions,
			  const std::vector<uint32_t> &common)
{
	std::vector<std::vector<gpuvec_match>> known(questions.size());

	for (question &q : questions)
		q.has_min_score = q.has_after = false;
	in_parallel(questions.size(), [&] (size_t i)
		{
			known[i] = reference(d, measure, questions[i], &common[i * d.rows.size()]);
		});
	for (size_t i = 0; i < questions.size(); i++)
	{
		question   &q = questions[i];
		const std::vector<gpuvec_match> &all = known[i];
		uint32_t	what = random_below(4);

		/* searches of several mirrors go on after no row */
		if (!d.partitions.empty())
			what &= 1;
		if (all.empty() || what == 0)
			continue;
		if (what & 1)
		{
			q.has_min_score = true;
			q.min_score = all[random_below(all.size())].score;
			if (q.min_score == 0)
				q.min_score = -0.0;
		}
		if (what & 2)
		{
			gpuvec_match m = all[random_below(all.size())];

			q.has_after = true;
			q.after_score = m.score == 0 ? -0.0 : m.score;
			q.after_tid = m.tid + (random_below(3) == 0 ? random_below(3) - 1 : 0);
			if (random_below(10) == 0)
				q.after_tid = random_below(2) ? UINT64_MAX : 0;
		}
	}
}

/* A policy and what is random in it */
struct random_policy
{
	gpuvec_search_policy policy;
	std::string settings;
};

/* Sometimes a random value */
static void
vary(random_policy &r, const char *name, bool changed, uint32_t value,
	 void (*set) (gpuvec_search_policy &policy, uint32_t value))
{
	if (changed)
	{
		set(r.policy, value);
		r.settings += std::string(" ") + name + " " + std::to_string(value);
	}
}

#define VARY(r, field, changed, value) \
	vary(r, #field, changed, value, \
		 [] (gpuvec_search_policy &policy, uint32_t v) { policy.field = v; })

/* Random settings of everything that may not change an answer */
static random_policy
random_settings(bool few_planes)
{
	random_policy r = {defaults, "policy"};
	static const uint32_t candidates[] = {0, 0, 32, 64, 256, 2000};
	static const uint32_t bits[] = {0, 8, 16, 32};
	static const uint32_t samples[] = {1, 2, 10, 0};
	uint32_t	scratch = candidates[random_below(6)];
	uint32_t	retry = candidates[random_below(6)];
	uint32_t	entry_bits = bits[random_below(4)];

	vary(r, "candidates", scratch > 0, scratch, set_candidates);
	vary(r, "retry_candidates", retry > 0, retry, set_retry);
	VARY(r, entry_bits, entry_bits > 0, entry_bits);
	VARY(r, least_planes, few_planes && random_below(3) == 0, 17);
	VARY(r, growth, random_below(2) == 0, 2 + random_below(30));
	VARY(r, growth_few, random_below(2) == 0, 2 + random_below(30));
	VARY(r, first_rows, random_below(2) == 0, 32 << random_below(8));
	VARY(r, first_per_k, random_below(2) == 0, random_below(16));
	VARY(r, item_tiles, random_below(2) == 0, 1 + random_below(200));
	VARY(r, grab, random_below(2) == 0, 1 << random_below(7));
	VARY(r, chunk_queries, random_below(2) == 0, 1 + random_below(40));
	vary(r, "sample", random_below(5) > 0, samples[random_below(4)], set_sample);
	VARY(r, near_fraction, random_below(2) == 0, 1 + random_below(20));
	VARY(r, item_queries, random_below(2) == 0, 1 + random_below(40));
	VARY(r, whole_item_queries, random_below(2) == 0, 1 + random_below(40));
	vary(r, "direct_queries", random_below(2) == 0, 1 + random_below(40), set_direct);
	VARY(r, dense_first_rows, random_below(2) == 0, 32 << random_below(6));
	VARY(r, dense_growth, random_below(2) == 0, 2 + random_below(20));
	VARY(r, dense_unit, random_below(2) == 0, 1 + random_below(40));
	VARY(r, dense_queries, random_below(2) == 0, random_below(10));
	VARY(r, dense_products, random_below(2) == 0, random_below(2) ? 1 : 1000000);
	VARY(r, lone_queries, random_below(2) == 0, 1 + random_below(20));
	return r;
}

/* One dataset through all measures, several batch sizes, k and policies */
static void
test_dataset(dataset &d, const std::vector<uint32_t> &batches, const std::vector<uint32_t> &ks,
			 int npolicies)
{
	uint32_t	longest = 0;

	for (const row &r : d.rows)
		longest = std::max(longest, (uint32_t) r.ids.size());
	for (uint32_t batch : batches)
	{
		std::vector<question> questions = make_questions(d, batch, 1);
		std::vector<uint32_t> common = count_common(d, questions);

		for (int m = 0; m <= (tiny ? 0 : GPUVEC_TVERSKY); m++)
			for (uint32_t k : ks)
			{
				which_weights = random_below(sizeof(some_weights) / sizeof(some_weights[0]));
				for (question &q : questions)
				{
					q.k = k;
					q.has_min_score = q.has_after = false;
				}
				set_policy(defaults);
				for (int method = 0; method < GPUVEC_N_METHODS; method++)
					compare(d, (gpuvec_measure) m, questions, common, "defaults",
							(gpuvec_method) method);
				for (int i = 0; i < npolicies; i++)
				{
					random_policy r = random_settings(longest <= 255);

					for (question &q : questions)
						q.k = random_below(2) ? k : 1 + random_below(2 * k);
					if (i > 0)
						ask_for_parts(d, (gpuvec_measure) m, questions, common);
					set_policy(r.policy);
					compare(d, (gpuvec_measure) m, questions, common, r.settings.c_str(),
							(gpuvec_method) random_below(GPUVEC_N_METHODS));
				}
			}
	}
	set_policy(defaults);
	printf("%s: %zu rows, longest %u: %d failed so far, %.1f s\n", d.name.c_str(), d.rows.size(),
		   longest, (int) nfailed, seconds_since_start());
	fflush(stdout);
}

static void
free_dataset(dataset &d)
{
	gpuvec_view_unref(d.view);
	d.view = NULL;
}

/* A few small views, through every kernel */
static void
test_tiny(void)
{
	static const uint32_t sizes[] = {40, 5000};

	for (uint32_t n : sizes)
		for (int i = 0; i < 3; i++)
		{
			dataset		d = random_dataset("tiny", n, i == 0 ? 12 : 3000, 0, 30, true);

			build_view(d, i == 1 ? 2000 : 65536, true);
			test_dataset(d, {i == 2 ? 1u : 30u}, {10}, 1);
			free_dataset(d);
		}
}

/* True if the GPU is of the one kind that counts by bit vectors */
static bool
multiplies_bits(void)
{
	gpuvec_backend_info info;

	backend->info(backend, &info);
	return info.capability == 90;
}

/* Build a view whose rows have bit vectors, if they have few enough ids */
static void
build_with_vectors(dataset &d, uint32_t segment_rows, uint32_t part, bool sorted = true)
{
	gpuvec_search_policy policy = defaults;

	policy.dense_rows = 1;
	policy.dense_fraction = part;
	policy.dense_ids = 65536;
	set_policy(policy);
	mixed_lists = false;
	build_view(d, segment_rows, sorted);
	mixed_lists = true;
	set_policy(defaults);
}

/*
 * A dataset whose rows have bit vectors, by all methods; some rows are empty,
 * or have all ids, and some may be dead
 */
static void
test_vectors_of(dataset &d, bool some_dead, uint32_t segment_rows, uint32_t batch, uint32_t k)
{
	for (size_t i = 0; i < d.rows.size(); i += 97)
		d.rows[i].ids = random_set(i % 2 ? d.vocab : 0, d.vocab, false);
	if (some_dead)
		kill_some(d, 10);
	build_with_vectors(d, segment_rows, UINT32_MAX);
	test_dataset(d, {batch}, {k}, 3);
	free_dataset(d);
}

/*
 * Few queries, counted by bit vectors of rows that fill so many tiles: about
 * as many as shared memory has stages for, and several times as many
 */
static void
test_vectors_tiles(uint32_t vocab)
{
	static const uint32_t tiles[] = {1, 4, 5, 6, 10, 20, 21, 22, 31, 32, 33, 64, 65, 96};

	for (uint32_t n : tiles)
	{
		dataset		d = random_dataset("bit vectors, tiles", n * 32 - n % 2, vocab, 1, 30, false);
		std::vector<question> questions = make_questions(d, 8 + n % 3 * 60, 5);

		build_with_vectors(d, 65536, UINT32_MAX);
		compare(d, GPUVEC_JACCARD, questions, count_common(d, questions), "tiles",
				GPUVEC_METHOD_DENSE);
		report((gpuvec_search_last(backend).dense_chunks > 0) == multiplies_bits(),
			   "rows were not counted by bit vectors, or by a GPU that cannot: %s\n", d.name);
		free_dataset(d);
	}
}

/*
 * Bounds that are just met: few counts and many ties, small rounds, several
 * segments, some with rows that are shorter than their number, and queries of
 * more than one batch, by all measures.  Without
 * bounds all rows are live, and every row is asked for: the empty places
 * behind the last row are none.
 */
static void
test_vectors_bounds(bool bounds)
{
	dataset		d = random_dataset("bit vectors, bounds", 330, 30, 0, 12, false);
	gpuvec_search_policy policy = defaults;

	if (bounds)
	{
		kill_some(d, 20);
		policy.dense_first_rows = 32;
		policy.first_per_k = 0;
		policy.dense_growth = 2;
		policy.candidates = policy.candidates_few = 64;
		policy.dense_unit = 1;
	}
	build_with_vectors(d, bounds ? 40 : 130, UINT32_MAX, !bounds);
	set_policy(policy);
	for (int m = 0; m <= GPUVEC_TVERSKY; m++)
	{
		std::vector<question> questions =
			make_questions(d, bounds && m % 4 == 0 ? 540 : 50, bounds ? 4 : 400);

		compare(d, (gpuvec_measure) m, questions, count_common(d, questions), "bounds",
				GPUVEC_METHOD_DENSE);
	}
	set_policy(defaults);
	free_dataset(d);
}

/*
 * More batches of queries than an emulated GPU has multiprocessors, of which
 * each counts the panels of several; and a last segment without vectors, which
 * is scanned
 */
static void
test_vectors_batches(void)
{
	dataset		d = random_dataset("bit vectors, batches", 300, 30, 0, 12, false);
	gpuvec_search_policy policy = defaults;
	std::vector<question> questions = make_questions(d, 1200, 3);

	policy.dense_rows = 100;
	policy.dense_fraction = UINT32_MAX;
	set_policy(policy);
	mixed_lists = false;
	build_view(d, 130, false);
	mixed_lists = true;
	policy.dense_first_rows = 32;
	policy.first_per_k = 0;
	policy.candidates = 64;
	set_policy(policy);
	compare(d, GPUVEC_JACCARD, questions, count_common(d, questions), "batches",
			GPUVEC_METHOD_DENSE);
	report((gpuvec_search_last(backend).dense_chunks > 0) == multiplies_bits(),
		   "rows were not counted by bit vectors: %s\n", d.name);
	set_policy(defaults);
	free_dataset(d);
}

/*
 * More finds than there is room for: all rows are equal, so that all reach the
 * bound of each query, and the best ones come last
 */
static void
test_vectors_full(void)
{
	dataset		d = random_dataset("bit vectors, no room", 2600, 50, 7, 7, false);
	gpuvec_search_policy policy = defaults;

	for (row &r : d.rows)
		r.ids = d.rows[0].ids;
	for (size_t i = 0; i < d.rows.size() / 2; i++)
		std::swap(d.rows[i].tid, d.rows[d.rows.size() - 1 - i].tid);
	build_with_vectors(d, 65536, UINT32_MAX);
	policy.dense_first_rows = 32;
	policy.first_per_k = 0;
	policy.candidates = policy.candidates_few = 32;
	set_policy(policy);
	for (uint32_t n : {1, 16})
	{
		std::vector<question> questions = make_questions(d, n, 3);

		for (question &q : questions)
			q.ids = d.rows[0].ids;
		compare(d, GPUVEC_JACCARD, questions, count_common(d, questions), "no room",
				GPUVEC_METHOD_DENSE);
		report(gpuvec_search_last(backend).overflows == n || !multiplies_bits(),
			   "queries had room for all finds: %s\n", d.name);
	}
	set_policy(defaults);
	free_dataset(d);
}

/*
 * Rows that have many ids of a small vocabulary get bit vectors, and many
 * queries use them, but a single one does not; and only where the GPU
 * multiplies bits
 */
static void
test_vectors_chosen(void)
{
	static const struct
	{
		uint32_t	vocab;
		uint32_t	len;
		bool		chosen;
	}			cases[] = {{512, 30, true}, {512, 4, false}, {2048, 60, true}, {2060, 60, false}};

	for (const auto &c : cases)
	{
		dataset		d = random_dataset("bit vectors chosen", 300, c.vocab, c.len, c.len, false);
		gpuvec_search_policy policy = defaults;
		std::vector<question> questions = make_questions(d, 200, 10);
		std::vector<question> one = {questions[0]};

		policy.dense_queries = 4;
		build_with_vectors(d, 65536, 64);
		set_policy(policy);
		compare(d, GPUVEC_JACCARD, questions, count_common(d, questions), "for five or more");
		report((gpuvec_search_last(backend).dense_chunks > 0) ==
			   (c.chosen && multiplies_bits()),
			   "the method is not the one that suits: %s\n", d.name);
		compare(d, GPUVEC_JACCARD, one, count_common(d, one), "for five or more");
		report(gpuvec_search_last(backend).dense_chunks == 0,
			   "one query was counted by bit vectors: %s\n", d.name);
		set_policy(defaults);
		free_dataset(d);
	}
}

/*
 * Bit vectors: ids about the ends of a chunk, queries about the ends of what a
 * warp and a thread block hold, ties
 */
static void
test_vectors(void)
{
	static const uint32_t vocabularies[] = {511, 512, 513, 1025, 1536, 1537, 2047, 2048, 2049};
	static const uint32_t batches[] = {17, 63, 64, 65, 33, 66, 130, 40, 20};
	dataset		d;

	for (size_t i = 0; i < std::size(vocabularies); i++)
	{
		d = random_dataset("bit vectors", 300, vocabularies[i], 0, 90, i % 3 == 2);
		test_vectors_of(d, i % 2, i % 4 ? 250 : 65536, batches[i], 20);
	}
	d = random_dataset("bit vectors, all ids", 200, 700, 300, 700, false);
	test_vectors_of(d, false, 65536, 16, 150);
	d = random_dataset("bit vectors, ties", emulated ? 500 : 3000, 16, 0, 16, false);
	test_vectors_of(d, true, 700, emulated ? 5 : 300, 400);
	d = random_dataset("bit vectors, two batches", 40, 600, 5, 50, true);
	test_vectors_of(d, true, 65536, 530, 10);
	test_vectors_tiles(500);
	if (emulated)
		return;
	d = random_dataset("bit vectors, many queries", 90000, 2048, 8, 128, false);
	test_vectors_of(d, true, 65536, 1500, 100);
	d = random_dataset("bit vectors, large k", 9000, 2048, 20, 60, true);
	test_vectors_of(d, false, 65536, 40, 5000);
}

/* The small cases: all measures, odd sizes and odd ids */
static void
test_small(void)
{
	static const uint32_t sizes[] = {1, 8, 31, 32, 33, 64, 1000};

	for (uint32_t n : sizes)
	{
		dataset		d = random_dataset("small", n, 200, 0, 30, true);

		build_view(d, 65536, true);
		test_dataset(d, {1, 17}, {1, 10, 2000}, 1);
		free_dataset(d);
	}

	dataset		one = random_dataset("vocabulary of one", 300, 1, 0, 1, false);

	build_view(one, 65536, true);
	test_dataset(one, {3}, {1, 7, 1000}, 2);
	free_dataset(one);

	dataset		ends = random_dataset("ids 0 and 65535", 500, 2, 0, 2, false);

	for (row &r : ends.rows)
		for (uint16_t &id : r.ids)
			id = id ? 65535 : 0;
	extreme_tids(ends);
	build_view(ends, 100, false);
	test_dataset(ends, {4}, {1, 100}, 2);
	free_dataset(ends);

	dataset		ties = random_dataset("vocabulary of 16", 3000, 16, 0, 16, false);

	kill_some(ties, 4);
	build_view(ties, 700, false);
	test_dataset(ties, {33}, {10, 100, 1500}, 3);
	free_dataset(ties);

	dataset		equal = random_dataset("all rows equal", 5000, 50, 7, 7, false);

	for (row &r : equal.rows)
		r.ids = equal.rows[0].ids;
	extreme_tids(equal);
	build_view(equal, 65536, true);
	test_dataset(equal, {5}, {1, 100}, 3);
	free_dataset(equal);

	dataset		dead = random_dataset("all rows dead but one", 100, 50, 1, 9, false);

	for (row &r : dead.rows)
		r.live = false;
	dead.rows[50].live = true;
	build_view(dead, 65536, true);
	test_dataset(dead, {5}, {1, 100}, 1);
	free_dataset(dead);

	dataset		none = random_dataset("only empty rows", 100, 50, 0, 0, false);

	build_view(none, 65536, true);
	test_dataset(none, {5}, {1, 30}, 1);
	free_dataset(none);
}

/* Rows and queries of up to 65536 ids */
static void
test_long(void)
{
	dataset		d = random_dataset("long rows", full ? 300 : 60, 65536, 0, 600, true);

	for (size_t i = 0; i < d.rows.size(); i += 9)
		d.rows[i].ids = random_set(1 + random_below(65536), 65536, false);
	for (int i = 0; i < 3; i++)
		d.rows[random_below(d.rows.size())].ids = random_set(65536, 65536, false);
	for (row &r : d.rows)
		if (r.ids.size() == 255)
			r.ids.pop_back();
	d.rows[1].ids = random_set(255, 65536, false);
	d.rows[2].ids = random_set(256, 65536, false);
	build_view(d, 65536, true);
	test_dataset(d, {full ? 40u : 9u}, {1, 100}, 2);
	free_dataset(d);

	/* short rows, long queries: few planes are enough */
	dataset		shorts = random_dataset("short rows, long queries", 400, 65536, 1, 250, false);
	std::vector<question> questions = make_questions(shorts, 10, 10);
	std::vector<uint32_t> common;

	for (question &q : questions)
		q.ids = random_set(200 + random_below(40000), 65536, false);
	questions[0].ids = random_set(65536, 65536, false);
	build_view(shorts, 65536, false);
	common = count_common(shorts, questions);
	for (int m = 0; m <= GPUVEC_TVERSKY; m++)
		for (int method = 0; method <= GPUVEC_METHOD_READY_LISTS; method++)
			compare(shorts, (gpuvec_measure) m, questions, common, "defaults",
					(gpuvec_method) method);
	free_dataset(shorts);
}

/* Several segments, rows enough for several rounds */
static void
test_rounds(void)
{
	uint32_t	n = full ? 65537 : 12000;
	dataset		d = random_dataset("rounds", n, 3000, 0, 40, true);

	kill_some(d, 20);
	build_view(d, full ? 65536 : 3000, true);
	if (full)
	{
		test_dataset(d, {1, 16, 17, 33}, {1, 10, 1000, 1025, 5000}, 2);
		test_dataset(d, {300}, {1, 100, 1100}, 2);
	}
	else
		test_dataset(d, {20}, {10, 1100}, 1);
	free_dataset(d);

	/*
	 * scores rise with the tid, and tiles are alike inside: hard on sampling
	 */
	dataset		rising = random_dataset("rising", full ? 60000 : 8000, 1000, 10, 10, false);

	for (size_t i = 0; i < rising.rows.size(); i++)
		for (uint16_t j = 0; j < 10; j++)
			rising.rows[i].ids[j] = j + (j < i * 10 / rising.rows.size() ? 0 : 500);
	build_view(rising, 65536, true);
	test_dataset(rising, {6}, {10, 100}, 3);
	free_dataset(rising);
}

/* Sizes around a full segment; k up to and beyond the rows */
static void
test_large(void)
{
	static const uint32_t sizes[] = {65535, 65536};

	for (uint32_t n : sizes)
	{
		dataset		d = random_dataset("full segment", n, 20000, 0, 30, true);

		build_view(d, 65536, true);
		test_dataset(d, {33}, {100}, 1);
		free_dataset(d);
	}

	dataset		many = random_dataset("many segments", 300000, 50001, 4, 100, true);

	kill_some(many, 50);
	build_view(many, 20000, true);
	test_dataset(many, {40}, {100, 1000}, 1);
	test_dataset(many, {2}, {20000, 100000}, 1);
	free_dataset(many);

	dataset		wide = random_dataset("all lengths in every segment", 100000, 65536, 0, 128, true);

	build_view(wide, 1000, false);
	test_dataset(wide, {65}, {100}, 2);
	free_dataset(wide);
}

/*
 * Every id is in many rows, so that there are too few slots: the rarest ids
 * must not be lost
 */
static void
test_all_common(void)
{
	dataset		d = random_dataset("all ids are common", 16384, 65536, 3460, 3460, false);
	std::vector<uint32_t> nrows(65536);
	std::vector<uint16_t> order(65536);
	std::vector<question> questions(2);

	/* more in the last block of rows, and no more than lists can have */
	for (size_t i = 12288; i < d.rows.size(); i++)
		d.rows[i].ids = random_set(6000, 65536, false);
	for (const row &r : d.rows)
		for (uint16_t id : r.ids)
			nrows[id]++;
	for (uint32_t id = 0; id < 65536; id++)
		order[id] = (uint16_t) id;
	std::sort(order.begin(), order.end(), [&] (uint16_t a, uint16_t b) { return nrows[a] < nrows[b]; });
	for (question &q : questions)
	{
		q.ids.assign(order.begin(), order.begin() + 2);
		std::sort(q.ids.begin(), q.ids.end());
		q.k = 5000;
	}
	questions[1].ids = d.rows[12288].ids;
	mixed_lists = false;
	build_view(d, 65536, true);
	mixed_lists = true;
	for (int method = 0; method <= GPUVEC_METHOD_READY_LISTS; method++)
		compare(d, GPUVEC_INTERSECTION, questions, count_common(d, questions), "defaults",
				(gpuvec_method) method);
	free_dataset(d);
}

/* Queries that nobody waits for, and empty views and requests */
static void
test_odd_requests(void)
{
	dataset		d = random_dataset("odd requests", 2000, 100, 1, 20, false);
	std::vector<question> questions;
	std::vector<uint32_t> common;
	std::vector<gpuvec_match> scratch(8 * 10);
	gpuvec_topk_query queries[8];
	gpuvec_error error;
	gpuvec_view *empty;
	int			canceled = 1;

	build_view(d, 65536, true);
	questions = make_questions(d, 8, 10);
	for (question &q : questions)
		q.ids = random_set(12, 100, false);
	common = count_common(d, questions);
	for (int all = 0; all < 2; all++)
	{
		for (int i = 0; i < 8; i++)
		{
			memset(&queries[i], 0, sizeof(queries[i]));
			queries[i].ids = questions[i].ids.data();
			queries[i].len = questions[i].ids.size();
			queries[i].k = 10;
			queries[i].canceled = all || i % 3 == 0 ? &canceled : NULL;
			queries[i].matches = &scratch[i * 10];
		}
		if (!backend->topk(backend, d.view, &by_jaccard, GPUVEC_METHOD_AUTO, queries, 8, &error))
			die("topk", &error);
		for (int i = 0; i < 8; i++)
			if (queries[i].canceled == NULL)
				report(difference(std::vector<gpuvec_match>(queries[i].matches,
															queries[i].matches + queries[i].nmatches),
								  reference(d, GPUVEC_JACCARD, questions[i],
											&common[i * d.rows.size()])).empty(),
					   "beside canceled queries: %s\n", d.name);
	}
	if (!backend->topk(backend, d.view, &by_jaccard, GPUVEC_METHOD_AUTO, queries, 0, &error))
		die("topk without queries", &error);

	/* all rows in any order: canceled; with scores; and their tids */
	for (int i = 0; i < 3; i++)
	{
		queries[i] = make_query(questions[i], NULL);
		queries[i].unordered = true;
		queries[i].bare = i != 1;
		queries[i].counted = 5;
		queries[i].canceled = i == 0 ? &canceled : NULL;
	}
	if (!backend->topk(backend, d.view, &by_hamming, GPUVEC_METHOD_AUTO, queries, 3, &error))
		die("topk of counts", &error);
	report(queries[0].nmatches == 0 && queries[0].counted == 0 && queries[0].tids == NULL,
		   "a canceled count has rows%s\n", "");
	report(queries[1].nmatches == 0 && queries[1].counted == GPUVEC_NOT_COUNTED,
		   "rows in any order have scores%s\n", "");
	report(queries[2].nmatches == d.view->nrows && queries[2].counted == 0,
		   "without pages, not all rows are listed%s\n", "");
	free_dataset(d);

	empty = gpuvec_view_new(NULL, 0, &error);
	if (empty == NULL)
		die("empty view", &error);
	if (!backend->adopt_view(backend, empty, &error))
		die("adopt_view of an empty view", &error);
	queries[0].nmatches = 7;
	queries[0].canceled = NULL;
	if (!backend->topk(backend, empty, &by_hamming, GPUVEC_METHOD_AUTO, queries, 1, &error))
		die("topk of an empty view", &error);
	report(queries[0].nmatches == 0, "an empty view has matches%s\n", "");
	if (!backend->topk(backend, empty, &by_hamming, GPUVEC_METHOD_AUTO, queries + 2, 1, &error))
		die("a count of an empty view", &error);
	report(queries[2].nmatches == 0 && queries[2].counted == 0 && queries[2].tids == NULL,
		   "an empty view has rows%s\n", "");
	gpuvec_view_unref(empty);
}

/*
 * Build the view of a dataset; all its segments have lists in blocks of
 * 2^shift rows
 */
static void
build_with_lists(dataset &d, uint32_t rows, uint32_t shift)
{
	gpuvec_search_policy policy = defaults;

	policy.list_rows = 1;
	policy.list_shift = shift;
	set_policy(policy);
	mixed_lists = false;
	build_view(d, rows, true);
	mixed_lists = true;
	set_policy(defaults);
}

/*
 * Searches that nobody waits for any more while they run, and what comes
 * after them
 */
static void
test_stopped(const dataset &d)
{
	std::vector<question> many = make_questions(d, full ? 20000 : 2000, 100);
	std::vector<question> few = make_questions(d, 2, 10);
	std::vector<uint32_t> common = count_common(d, few);
	std::vector<gpuvec_match> scratch(many.size() * 100);
	std::vector<gpuvec_topk_query> queries(many.size());
	double		longest = 0;	/* what the first one takes, which is not stopped */

	for (int i = 0; i <= 20; i++)
	{
		gpuvec_error error;
		int			canceled = 0;
		double		start = seconds_since_start();
		useconds_t	delay = (useconds_t) (longest * 1e6 * i / 20);

		for (size_t j = 0; j < many.size(); j++)
		{
			queries[j] = make_query(many[j], &scratch[j * 100]);
			queries[j].canceled = &canceled;
		}

		std::thread impatient([&] ()
			{
				usleep(delay);
				__atomic_store_n(&canceled, i > 0, __ATOMIC_RELAXED);
			});

		if (!backend->topk(backend, d.view, &by_jaccard, GPUVEC_METHOD_BITSET, queries.data(),
						   queries.size(), &error))
			die("topk", &error);
		if (i == 0)
			longest = seconds_since_start() - start;
		add_search(&total, backend);
		impatient.join();
		compare(d, GPUVEC_JACCARD, few, common, "after a search that was canceled");
	}
}

/*
 * Queries that are alone, or nearly so, with samples and without room for
 * candidates; and many without room
 */
static void
test_lone(void)
{
	static const uint32_t shifts[] = {12, 16, 0};
	static const char *const names[] = {"alone, small blocks", "alone, whole segments", "alone, mixed"};
	uint32_t	n = full ? 60000 : emulated ? 9000 : 12000;

	for (int i = 0; i < 3; i++)
	{
		dataset		d = random_dataset(names[i], n, 3000, 1, 60, false);
		/* more than are run again at once */
		std::vector<question> questions = make_questions(d, 60, 10);
		std::vector<uint32_t> common = count_common(d, questions);
		gpuvec_search_policy policy = defaults;

		kill_some(d, 20);
		if (shifts[i])
			build_with_lists(d, n / 20, shifts[i]);
		else
			build_view(d, n / 20, true);
		if (emulated)
			test_dataset(d, {1, 4, 50}, {10}, 1);
		else
			test_dataset(d, {1, 2, 3, 4, 5}, {10, 1100}, 2);
		set_candidates(policy, 32);
		set_retry(policy, 64);
		set_sample(policy, 0);
		set_policy(policy);
		compare(d, GPUVEC_JACCARD, questions, common, "no room", GPUVEC_METHOD_INVERTED);
		report(gpuvec_search_last(backend).overflows > 40, "few queries were run again: %s\n", d.name);
		questions.resize(4);
		compare(d, GPUVEC_JACCARD, questions, common, "no room", GPUVEC_METHOD_INVERTED);
		set_policy(defaults);
		if (!emulated)
			test_stopped(d);
		free_dataset(d);
	}
}

/* Give the rows of a dataset to n partitions, whose numbers have gaps */
static void
deal_rows(dataset &d, uint32_t n, uint32_t gap)
{
	for (uint32_t p = 0; p < n; p++)
		d.partitions.push_back(p == 0 ? random_below(gap) : d.partitions[p - 1] + 1 + random_below(gap));
	/* some are large, and some small */
	for (row &r : d.rows)
		r.tid |= gpuvec_partition_tid(d.partitions[random_below(1 + random_below(n))]);
}

/* Views of several mirrors: rows rank by (score, partition, tid) */
static void
test_partitions(void)
{
	static const uint32_t many[][2] = {{1, 1}, {2, 1}, {3, 2}, {9, 3}, {64, 1}, {200, 20}};

	for (const auto &p : many)
		for (uint32_t vocab : {40u, 3000u})
		{
			dataset		d = random_dataset(("partitions: " + std::to_string(p[0])).c_str(),
										   emulated || tiny ? 3000 : 40000, vocab, vocab == 40 ? 0 : 1,
										   vocab == 40 ? 8 : 40, vocab == 3000);

			kill_some(d, 30);
			deal_rows(d, p[0], p[1]);
			/* more bits than the numbers take, too */
			if (vocab == 40 && random_below(2) == 0)
				for (d.shared_bits = random_below(2); d.partitions.back() >> d.shared_bits != 0;)
					d.shared_bits++;
			if (random_below(2) == 0)
				build_with_lists(d, 65536, random_below(2) ? 12 : 16);
			else
				build_view(d, p[0] < 5 ? 500 : 65536, true);
			if (emulated || tiny)
				test_dataset(d, {p[0] == 64 ? 16u : 5u}, {6}, 2);
			else
				test_dataset(d, {1, p[0], 150}, {6, 300}, 4);
			free_dataset(d);
		}
}

/* A view of two mirrors, one of which has a row in this block */
static bool
adopts_block(uint32_t block, uint32_t number)
{
	row			rows[2] = {{gpuvec_tid(block, GPUVEC_MAX_LINE), {1, 2}, true},
						   {gpuvec_partition_tid(number) | gpuvec_tid(0, 1), {1, 2}, true}};
	gpuvec_view_entry entries[] = {build_entry({&rows[0]}), build_entry({&rows[1]})};
	gpuvec_error error;
	gpuvec_view *view = gpuvec_view_new(entries, 2, &error);
	question	q = {{1, 2}, 5};
	gpuvec_match matches[2];
	gpuvec_topk_query query = make_query(q, matches);
	bool		adopted;

	if (view == NULL)
		die("view", &error);
	adopted = backend->adopt_view(backend, view, &error);
	if (adopted && !backend->topk(backend, view, &by_jaccard, GPUVEC_METHOD_AUTO, &query, 1, &error))
		die("topk", &error);
	if (adopted)
		report(query.nmatches == 2 && matches[number == 0].tid == rows[0].tid &&
			   matches[number != 0].tid == rows[1].tid, "tids of two partitions%s\n", "");
	gpuvec_view_unref(view);
	return adopted;
}

/* The largest block numbers beside numbers of partitions */
static void
test_partition_limits(void)
{
	for (uint32_t bits = 1; bits <= 12; bits++)
	{
		uint32_t	last = (1u << bits) - 1;

		report(adopts_block(UINT32_MAX >> bits, last), "a block that fits is refused%s\n", "");
		report(!adopts_block((UINT32_MAX >> bits) + 1, last), "a block that does not fit is taken%s\n", "");
	}
	report(adopts_block(UINT32_MAX, 0), "one partition has all blocks%s\n", "");
}

/*
 * The counts that fill a byte, and one more; queries of more ids than the
 * threads of a block
 */
static void
test_bytes(uint32_t most, uint32_t shift)
{
	dataset		d = random_dataset(most == 255 ? "counts of 255" : "counts of 256", 600, 60000, 1,
								   most, false);
	std::vector<question> all(4);
	gpuvec_search_policy policy = defaults;

	all[0].ids = random_set(most, 60000, false);
	for (uint32_t i = 0; i < 20; i++)
		d.rows[i * 30].ids.assign(all[0].ids.begin() + i / 2, all[0].ids.end());
	all[1].ids = random_set(700 - most, 60000, false);
	all[1].ids.insert(all[1].ids.end(), all[0].ids.begin(), all[0].ids.end());
	std::sort(all[1].ids.begin(), all[1].ids.end());
	all[1].ids.erase(std::unique(all[1].ids.begin(), all[1].ids.end()), all[1].ids.end());
	all[3].ids = {all[0].ids.back()};	/* and all[2] is empty */
	build_with_lists(d, 65536, shift);
	for (uint32_t n = 1; n <= 5; n++)
		for (uint32_t first = 0; first < (emulated ? 2 : 4); first++)
		{
			std::vector<question> questions;
			std::vector<uint32_t> common;

			for (uint32_t i = 0; i < n; i++)
				questions.push_back(all[(first + i) % 4]);
			common = count_common(d, questions);
			for (uint32_t candidates : {0, 64})
				for (uint32_t k : {10, 700})
					for (int m = 0; m <= GPUVEC_TVERSKY; m++)
					{
						for (question &q : questions)
							q.k = k;
						policy = defaults;
						if (candidates > 0)
							set_candidates(policy, candidates);
						set_policy(policy);
						compare(d, (gpuvec_measure) m, questions, common,
								candidates ? "room for 64" : "defaults", GPUVEC_METHOD_INVERTED);
					}
		}
	set_policy(defaults);
	free_dataset(d);
}

/*
 * Counts about those that need one plane more, of ids with bitmaps, ids with
 * lists, and both. Queries of at most `longest` ids
 */
static void
test_planes(uint32_t longest, uint32_t shift)
{
	dataset		d = random_dataset("counts that need one plane more", 700, 200, 1, 60, false);
	std::vector<question> questions;
	std::vector<uint32_t> common;
	gpuvec_search_policy policy = defaults;
	size_t		at = 0;

	for (uint32_t len : {62, 63, 64, 65, 71, 126, 127, 128, 129, 140, 200})
		for (uint32_t frequent : {0u, len / 2, len})
		{
			question	q = {};

			if (len > longest || frequent > 180)
				continue;
			q.ids = random_set(frequent, 200, false);
			for (uint16_t id : random_set(len - frequent, 50000, false))
				q.ids.push_back((uint16_t) (id + 1000));
			q.k = 20;
			for (uint32_t missing = 0; missing < 4; missing++)
			{
				idset	   &ids = d.rows[at++ * 5].ids;

				ids = q.ids;
				for (uint32_t i = 0; i < missing; i++)
					ids.erase(ids.begin() + random_below(ids.size()));
			}
			questions.push_back(q);
		}
	common = count_common(d, questions);
	build_with_lists(d, 65536, shift);
	for (uint32_t few : {1, 100})
		for (int m = 0; m <= GPUVEC_TVERSKY; m++)
		{
			set_direct(policy, few);
			policy.lone_queries = 1;
			set_policy(policy);
			compare(d, (gpuvec_measure) m, questions, common, few == 1 ? "many" : "few",
					GPUVEC_METHOD_INVERTED);
		}
	set_policy(defaults);
	free_dataset(d);
}

/* Searches while other threads upload and free segments */
static void
test_threads(void)
{
	dataset		d = random_dataset("beside uploads", 40000, 5000, 1, 40, true);
	dataset		other = random_dataset("uploaded meanwhile", 5000, 5000, 1, 40, true);
	std::vector<question> questions;
	std::vector<uint32_t> common;
	std::vector<std::thread> threads;
	std::atomic<bool> stop(false);

	mixed_lists = false;
	gpuvec_search_policy policy = defaults;

	policy.list_rows = 1;
	set_policy(policy);
	build_view(d, 10000, true);
	questions = make_questions(d, 50, 100);
	common = count_common(d, questions);
	for (int t = 0; t < 6; t++)
		threads.emplace_back([&] ()
			{
				dataset		mine = other;

				while (!stop)
				{
					build_view(mine, 1000, true);
					free_dataset(mine);
				}
			});
	for (int i = 0; i < 30; i++)
		compare(d, (gpuvec_measure) (i % GPUVEC_N_MEASURES), questions, common, "beside uploads",
				(gpuvec_method) (i % GPUVEC_N_METHODS));
	stop = true;
	for (std::thread &t : threads)
		t.join();
	free_dataset(d);
}

/* Of the emulation: shall the next copy to the host fail? */
extern bool emu_fail_fetch __attribute__((weak));

/*
 * Ids that could not be read are not written later, when nobody holds them
 * any more
 */
static void
test_failed_read(void)
{
	dataset		d = random_dataset("failed read", 100, 3000, 1, 30, false);
	std::vector<const row *> rows;
	gpuvec_view_entry entry = {};
	gpuvec_error error;

	for (const row &r : d.rows)
		rows.push_back(&r);
	entry = build_entry(rows);

	idset		ids(entry.segment->nchunks * 256, 0xABCD);

	emu_fail_fetch = true;
	report(!backend->read_ids(backend, entry.segment, ids.data(), &error),
		   "read_ids did not fail%s\n", "");
	gpuvec_segment_unref(build_entry(rows).segment);
	report(std::count(ids.begin(), ids.end(), 0xABCD) == (ptrdiff_t) ids.size(),
		   "ids were written after read_ids had failed%s\n", "");
	gpuvec_segment_unref(entry.segment);
}

int
main(int argc, char **argv)
{
	gpuvec_backend_options options;
	gpuvec_backend_info info;
	gpuvec_error error;

	full = argc > 1 && strcmp(argv[1], "full") == 0;
	tiny = argc > 1 && strcmp(argv[1], "tiny") == 0;
	emulated = argc > 1 && strcmp(argv[1], "emulated") == 0;
	random_state = argc > 2 ? strtoull(argv[2], NULL, 10) : 1;
	seconds_since_start();
	memset(&options, 0, sizeof(options));
	printf("GPUs: %d\n", gpuvec_cuda_count(&error));
	backend = gpuvec_cuda_open(&options, &error);
	if (backend == NULL)
		die("open", &error);
	defaults = gpuvec_search_policy_get(backend);
	if (emulated || tiny)
	{
		/* there are not many rows to share */
		defaults.decode_rows = 32;
		defaults.decode_queries = 3;
		set_policy(defaults);
	}
	backend->info(backend, &info);
	printf("%s, %s, compute capability %d.%d, %zu of %zu MiB free\n", info.name, info.device,
		   info.capability / 10, info.capability % 10, info.memory_free >> 20,
		   info.memory_total >> 20);

	test_vectors_chosen();
	test_vectors_tiles(2048);
	test_vectors_bounds(true);
	test_vectors_bounds(false);
	test_vectors_batches();
	test_vectors_full();
	if (tiny)
		test_tiny();
	else
	{
		if (emulated)
			test_tiny();
		else
		{
			test_small();
			test_long();
			test_rounds();
		}
		test_odd_requests();
		test_vectors();
		test_partitions();
		test_partition_limits();
		test_lone();
		for (uint32_t most : {255, 256})
			for (uint32_t shift : {12, 16})
				test_bytes(most, shift);
		for (uint32_t longest : {127, 200})
			for (uint32_t shift : {12, 16})
				test_planes(longest, shift);
	}
	if (full)
	{
		test_large();
		test_all_common();
		test_threads();
	}
	if (&emu_fail_fetch != NULL)
		test_failed_read();

	/*
	 * the hooks must have driven the searches through the paths that they are
	 * for
	 */
	report((total.dense_chunks > 0) == multiplies_bits(), "nothing was counted by bit vectors%s\n", "");
	report(total.list_chunks > 0, "nothing was counted by lists%s\n", "");
	report(total.counts > (tiny ? 0 : 20) && (tiny || total.list_counts > 5), "no query counted rows%s\n", "");
	report(total.refused_counts == 0, "a query that counts was refused%s\n", "");
	report(counted_rows > 100 && listed_rows > 100, "no rows were counted, or none listed%s\n", "");
	if (!tiny)
	{
		report(total.overflows > 0, "no query overflowed%s\n", "");
		report(emulated || total.retries > 0, "no repeated round overflowed%s\n", "");
		report(total.lone_chunks > 0, "no query was a parameter%s\n", "");
		report(total.own_rounds > 0, "no query had a sample of its own%s\n", "");
		report(total.plain_lone_rounds > 0, "no lone query was counted in bytes%s\n", "");
		report(total.plain_rounds > total.plain_lone_rounds, "nothing else was counted in bytes%s\n", "");
		report(total.direct_overflows > 0, "no lone query overflowed%s\n", "");
		report(examples.behind_a_row > 50, "no query began behind a row%s\n", "");
		report(examples.beyond_matches > 50, "no query asked for more rows than match%s\n", "");
		report(examples.several_segments > 50, "no view had several segments%s\n", "");
		report(examples.dead_rows > 50, "no view had dead rows%s\n", "");
		report(examples.several_mirrors > 50, "no view had several mirrors%s\n", "");
		for (uint32_t n : examples.tversky)
			report(n > 0, "some weights of tversky were not tried%s\n", "");
	}
	printf("%u queries overflowed and were repeated, %u repeated rounds overflowed, %u searches were stopped\n",
		   total.overflows, total.retries, total.stopped_chunks);
	backend->close(backend);
	printf("%d passed, %d failed\n", (int) npassed, (int) nfailed);
	return nfailed > 0;
}
