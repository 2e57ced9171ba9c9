/*-------------------------------------------------------------------------
 *
 * bench_facets.cpp
 *	  How long it takes to count matches by the values of four columns,
 *	  without PostgreSQL.
 *
 * Rows are documents of a shop: each has one of two ids, the first one with a
 * probability of 61 percent, and three tags of 1,000.  Their columns are a
 * category (100, drawn from the density x^-0.75), a type (20), a month (120)
 * and a bucket of sizes (10).  The query is the first id.  The engine counts
 * the rows of each value of each column: by four requests, one after the
 * other, as a statement with four facets asks, and by one request for each.
 *
 * The groups are compared with a count over all rows.
 *
 *	bench_facets --backend cpu|cuda	which backend; default cpu
 *		--rows N		1000000
 *		--repeats N		15; the median is printed
 *		--expression	find the id by an expression of a filter
 *		--threads T, --device D	see bench_engine
 *		--seed S
 *
 * Output: one "name <tab> value" line for each number.  Exit status 1 if a
 * group is wrong, 2 on any other error.
 *
 *-------------------------------------------------------------------------
 */
#include "bench_lib.h"
#include "engine/groups.h"

using bench::die;
using bench::now_ms;
using bench::report;

static const uint32_t N_COLUMNS = 4;
static const uint32_t VALUES[N_COLUMNS] = {100, 20, 120, 10};
static const uint32_t N_IDS = 4;
static const uint32_t N_TAGS = 1000;
static const uint32_t PERCENT = 61;
static const uint16_t QUERY[] = {0};

/* Stream of setgen.h */
enum { TAG_ROW = 301 };

struct Row
{
	uint16_t	ids[N_IDS];		/* ascending, distinct */
	uint64_t	filter_keys[N_COLUMNS + 1];
};

static void
draw_row(uint64_t seed, uint64_t i, Row *row)
{
	gen::Stream random(seed, TAG_ROW, i);
	double		u = (double) (random.next() >> 11) * 0x1p-53;
	double		x = std::pow(1 + u * (std::pow(VALUES[0] + 1.0, 0.25) - 1), 4);

	row->filter_keys[0] = 0;
	row->filter_keys[1] = std::min<uint64_t>((uint64_t) x, VALUES[0]) - 1;
	for (uint32_t c = 1; c < N_COLUMNS; c++)
		row->filter_keys[c + 1] = random.below(VALUES[c]);
	row->ids[0] = random.below(100) < PERCENT ? 0 : 1;
	/* one tag of each third */
	for (uint32_t j = 1; j < N_IDS; j++)
		row->ids[j] = (uint16_t) (2 + (j - 1) * (N_TAGS / 3) + random.below(N_TAGS / 3));
}

/* The documents, what is right of them, and what is asked */
struct Trial
{
	uint64_t	rows;
	uint64_t	seed;
	int			repeats;
	bool		expression;
	std::vector<std::vector<std::atomic<uint64_t>>> expected;
	std::vector<uint8_t> pages;
	gpuvec_view *view = nullptr;
	bool		wrong = false;

	Trial(uint64_t rows, uint64_t seed, int repeats, bool expression)
		: rows(rows), seed(seed), repeats(repeats), expression(expression), pages(rows / bench::PAGE_DOCS / 4 + 8, 0x55)
	{
		for (uint32_t values : VALUES)
			expected.emplace_back(values);
	}
	void		load(gpuvec_backend *backend, int threads);
	double		ask(gpuvec_backend *backend, uint32_t column, bool check);
	void		check(uint32_t column, const gpuvec_groups *groups);
	void		measure(gpuvec_backend *backend);
};

void
Trial::load(gpuvec_backend *backend, int threads)
{
	view = bench::build_view(backend, rows, threads,
		[&](uint64_t first, uint32_t n, gpuvec_error *error) {
			std::vector<Row> drawn(n);
			std::vector<gpuvec_source_row> source(n);

			for (uint32_t i = 0; i < n; i++)
			{
				draw_row(seed, first + i, &drawn[i]);
				source[i] = {bench::position_tid(first + i), N_IDS, 0, drawn[i].ids, drawn[i].filter_keys};
				for (uint32_t c = 0; drawn[i].ids[0] == QUERY[0] && c < N_COLUMNS; c++)
					expected[c][drawn[i].filter_keys[c + 1]].fetch_add(1, std::memory_order_relaxed);
			}
			return gpuvec_segment_build(source.data(), n, gpuvec_row_kind{N_COLUMNS, false}, error);
		});
	for (uint32_t i = 0; backend->finish_segment && i < view->nentries; i++)
		backend->finish_segment(backend, view->entries[i].segment);
}

void
Trial::check(uint32_t column, const gpuvec_groups *groups)
{
	uint32_t	right = 0;

	for (uint32_t i = 0; groups != nullptr && i < groups->n; i++)
	{
		const uint64_t *group = groups->words + (size_t) i * gpuvec_group_words(&groups->grouping);
		uint64_t	key = group[GPUVEC_GROUP_KEYS];

		right += key < VALUES[column] && group[GPUVEC_GROUP_ROWS] == expected[column][key] &&
			group[GPUVEC_GROUP_ROWS] > 0;
	}
	for (const std::atomic<uint64_t> &n : expected[column])
		right -= n > 0;
	wrong |= right != 0;
}

/* Count the matches by a column; returns milliseconds */
double
Trial::ask(gpuvec_backend *backend, uint32_t column, bool check_it)
{
	/* the set has the first id of the list */
	static const uint64_t values[] = {QUERY[0], 0};
	gpuvec_condition match = {};
	gpuvec_scoring scoring = {};
	gpuvec_grouping grouping = {};
	gpuvec_topk_query query = {};
	gpuvec_error error = {};
	double		start;
	double		ms;

	grouping.nkeys = 1;
	grouping.columns[0] = (uint8_t) (column + 1);
	scoring.measure = expression ? GPUVEC_HAMMING : GPUVEC_INTERSECTION;
	match.kind = GPUVEC_SET_MATCHES;
	match.n = 2;
	match.low = 1;
	if (expression)
		query.filter = {1, 2, &match, values};
	query.ids = QUERY;
	query.len = !expression;
	query.k = 1;
	query.unordered = query.bare = true;
	query.has_min_score = !expression;
	query.min_score = 1;
	query.counts.bits = pages.data();
	query.counts.bytes = pages.size();
	query.grouping = &grouping;
	start = now_ms();
	if (!backend->topk(backend, view, &scoring, GPUVEC_METHOD_AUTO, &query, 1, &error))
		die(error);
	ms = now_ms() - start;
	if (check_it)
		check(column, query.groups);
	wrong |= query.nmatches > 0;
	gpuvec_free_unordered(&query);
	return ms;
}

void
Trial::measure(gpuvec_backend *backend)
{
	static const char *const names[N_COLUMNS] = {"category", "type", "month", "size"};
	std::vector<double> all;
	std::vector<double> each[N_COLUMNS];

	for (int i = -2; i < repeats; i++)
	{
		double		sum = 0;

		for (uint32_t c = 0; c < N_COLUMNS; c++)
		{
			double		ms = ask(backend, c, i == -2);

			sum += ms;
			if (i >= 0)
				each[c].push_back(ms);
		}
		if (i >= 0)
			all.push_back(sum);
	}
	for (uint32_t c = 0; c < N_COLUMNS; c++)
		report(std::string(names[c]) + "_ms", bench::median(each[c]), 3);
	report("four_facets_ms", bench::median(all), 3);
}

int
main(int argc, char **argv)
{
	bool		cuda = bench::wants_cuda(argc, argv);
	gpuvec_backend_options wanted = {};
	gpuvec_backend *backend;
	double		rows = bench::number_option(argc, argv, "--rows", 1000000);
	double		repeats = bench::number_option(argc, argv, "--repeats", 15);
	uint64_t	matches = 0;

	wanted.threads = (int) bench::number_option(argc, argv, "--threads", 0);
	wanted.device = (int) bench::number_option(argc, argv, "--device", 0);
	if (!(rows >= 1 && rows <= UINT32_MAX && repeats >= 1 && repeats <= 10000))
		die("--rows or --repeats is out of range");
	backend = bench::open_backend(cuda, wanted);

	Trial		trial((uint64_t) rows, (uint64_t) bench::number_option(argc, argv, "--seed", 12345), (int) repeats,
					  bench::has_flag(argc, argv, "--expression"));

	trial.load(backend, 0);
	for (const std::atomic<uint64_t> &n : trial.expected[0])
		matches += n;
	report("rows", rows, 0);
	report("matches", (double) matches, 0);
	trial.measure(backend);
	if (trial.wrong)
		fprintf(stderr, "bench_facets: a group is wrong\n");
	gpuvec_view_unref(trial.view);
	backend->close(backend);
	return trial.wrong;
}
