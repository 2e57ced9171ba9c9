/*-------------------------------------------------------------------------
 *
 * bench_filters.cpp
 *	  Times searches with filters, without PostgreSQL.
 *
 *		bench_filters --mode B --n-docs 1000000 [--backend cuda] [--threads 1]
 *					  [--k 10] [--seconds 2] [--cpu-time 1]
 *
 * Each document has three filter columns: a bucket (uniform, 0 .. 99,999), a
 * tenant (10,000 of them, by Zipf's law), and the time when it was created
 * (distinct).  Conditions on these keep a share of the rows, ten rows, or
 * none.  Queries are asked one at a time, and 64 in a batch; `tenant` gives
 * each its own.  Beside the times stands how often these are the time without
 * a filter, and how many rows pass on average.
 *
 * With --cpu-time it is the process's time that counts: for one thread, on a
 * machine where others work.
 *
 * The number of rows that pass is checked against a count over all documents.
 * Exit status 1 if it is wrong.
 *
 *-------------------------------------------------------------------------
 */
#include <chrono>
#include <cinttypes>

#include "setgen.h"
#include "core/measure.h"
#include "engine/backend.h"

static const gpuvec_scoring SCORING = {GPUVEC_BRAUN_BLANQUET, {}, 0};
static const uint64_t BATCH = 64;
static const uint32_t BUCKETS = 100000;
static const uint32_t TENANTS = 10000;
static const uint32_t N_COLUMNS = 3;
static const uint32_t N_FILTER_KEYS = N_COLUMNS + 1;

/* A filter with one or two conditions */
struct Filter
{
	std::vector<gpuvec_condition> conditions;

	void
	between(uint32_t column, uint64_t low, uint64_t high)
	{
		gpuvec_condition c = {};

		c.column = column;
		c.kind = GPUVEC_KEY_BETWEEN;
		c.low = low;
		c.high = high;
		conditions.push_back(c);
	}
	gpuvec_filter
	filter(void) const
	{
		gpuvec_filter f = {};

		f.n = (uint32_t) conditions.size();
		f.conditions = conditions.data();
		return f;
	}
};

/* What is measured: a name, and the filter of each query */
struct Setting
{
	const char *name;
	std::vector<Filter> filters;
};

static bool cpu_time;

static double
now_us(void)
{
	using namespace std::chrono;

	if (cpu_time)
		return (double) clock() * 1e6 / CLOCKS_PER_SEC;
	return duration<double, std::micro>(steady_clock::now().time_since_epoch()).count();
}

static void
die(const char *what, const gpuvec_error &error)
{
	fprintf(stderr, "bench_filters: %s: %s\n", what, error.message);
	exit(2);
}

/* The filter keys of document p of n */
static void
make_filter_keys(uint64_t p, uint64_t n, uint64_t *filter_keys)
{
	gen::Stream stream(4711, 1, p);

	filter_keys[0] = 0;
	filter_keys[1] = stream.below(BUCKETS);
	filter_keys[2] = (uint64_t) pow(TENANTS, stream.below(1 << 30) / (double) (1 << 30)) - 1;
	filter_keys[3] = (p * UINT64_C(2654435761)) % n;
}

/* Documents first .. end - 1, which are in order of length, as a segment */
static gpuvec_segment *
make_segment(gpuvec_backend *backend, const gen::Generator &generator, uint64_t first,
			 uint64_t end)
{
	std::vector<uint16_t> ids((end - first) * 128);
	std::vector<uint64_t> filter_keys((end - first) * N_FILTER_KEYS);
	std::vector<gpuvec_source_row> rows(end - first);
	gen::IdSet	set;
	gpuvec_error error = {};
	gpuvec_segment *segment;

	for (uint64_t p = first; p < end; p++)
	{
		gpuvec_source_row *row = &rows[p - first];

		row->tid = gpuvec_tid(p / 256, p % 256 + 1);
		row->ids = &ids[(p - first) * 128];
		row->len = generator.doc(p, &ids[(p - first) * 128], set);
		row->filter_keys = &filter_keys[(p - first) * N_FILTER_KEYS];
		make_filter_keys(p, generator.c.n_docs, &filter_keys[(p - first) * N_FILTER_KEYS]);
	}
	segment = gpuvec_segment_build(rows.data(), (uint32_t) rows.size(), gpuvec_row_kind{N_COLUMNS, false}, &error);
	if (segment == nullptr || !backend->adopt_segment(backend, segment, &error))
		die("a segment", error);
	return segment;
}

static gpuvec_view *
make_view(gpuvec_backend *backend, const gen::Generator &generator)
{
	uint64_t	n = generator.c.n_docs;
	std::vector<gpuvec_view_entry> entries((n + GPUVEC_SEGMENT_ROWS - 1) / GPUVEC_SEGMENT_ROWS);
	gpuvec_error error = {};
	gpuvec_view *view;

	gen::parallel_chunks(entries.size(), 1, 0, [&](uint64_t from, uint64_t to, int) {
		for (uint64_t s = from; s < to; s++)
			entries[s] = {make_segment(backend, generator, s * GPUVEC_SEGMENT_ROWS,
									   std::min(n, (s + 1) * GPUVEC_SEGMENT_ROWS)), nullptr, 0};
	});
	view = gpuvec_view_new(entries.data(), (uint32_t) entries.size(), &error);
	if (view == nullptr || !backend->adopt_view(backend, view, &error))
		die("a view", error);
	return view;
}

/* The same filter for all queries */
static Setting
setting_of(const char *name, uint32_t column, uint64_t low, uint64_t high)
{
	Filter		filter;

	filter.between(column, low, high);
	return {name, std::vector<Filter>(BATCH, filter)};
}

static std::vector<Setting>
make_settings(uint64_t n)
{
	Setting		tenants = {"tenant", {}};
	Setting		two = {"two", std::vector<Filter>(BATCH)};

	for (uint64_t i = 0; i < BATCH; i++)
	{
		uint64_t	filter_keys[N_FILTER_KEYS];
		Filter		filter;

		make_filter_keys(i * 977 % n, n, filter_keys);
		filter.between(2, filter_keys[2], filter_keys[2]);
		tenants.filters.push_back(filter);
		two.filters[i].between(1, 0, BUCKETS / 2 - 1);
		two.filters[i].between(2, 0, 30);
	}
	return {
		{"none", std::vector<Filter>(BATCH)},
		setting_of("1", 1, 0, BUCKETS - 1), setting_of("0.5", 1, 0, BUCKETS / 2 - 1),
		setting_of("0.1", 1, 0, BUCKETS / 10 - 1), setting_of("0.03", 1, 0, BUCKETS * 3 / 100 - 1),
		setting_of("0.01", 1, 0, BUCKETS / 100 - 1),
		setting_of("0.003", 1, 0, BUCKETS * 3 / 1000 - 1),
		setting_of("0.001", 1, 0, BUCKETS / 1000 - 1),
		setting_of("0.0001", 1, 0, BUCKETS / 10000 - 1), setting_of("10 rows", 3, 100, 109),
		setting_of("no row", 1, BUCKETS, 2 * BUCKETS), tenants, two
	};
}

/* How many documents pass a filter, counted one by one */
static uint64_t
count_passing(const Filter &filter, uint64_t n)
{
	gpuvec_filter f = filter.filter();
	uint64_t	passing = 0;

	for (uint64_t p = 0; p < n; p++)
	{
		uint64_t	filter_keys[N_FILTER_KEYS];

		make_filter_keys(p, n, filter_keys);
		passing += gpuvec_filter_passes(&f, filter_keys);
	}
	return passing;
}

/* A backend with all documents */
struct Bench
{
	gpuvec_backend *backend;
	gpuvec_view *view;
	std::vector<std::vector<uint16_t>> sets;
	std::vector<gpuvec_match> matches;
	std::vector<gpuvec_topk_query> queries = std::vector<gpuvec_topk_query>(BATCH);
	uint32_t	k;
	double		seconds;

	double		search(const Setting &setting, uint64_t first, uint64_t n);
	double		median_time(const Setting &setting, uint64_t n);
	bool		measure(const Setting &setting, double *plain);
};

/* Time n queries in one batch, in microseconds */
double
Bench::search(const Setting &setting, uint64_t first, uint64_t n)
{
	gpuvec_error error = {};
	double		start;

	for (uint64_t i = first; i < first + n; i++)
	{
		queries[i] = {};
		queries[i].ids = sets[i].data();
		queries[i].len = (uint32_t) sets[i].size();
		queries[i].k = k;
		queries[i].matches = &matches[i * k];
		queries[i].filter = setting.filters[i].filter();
		queries[i].disjoint = true;
	}
	start = now_us();
	if (!backend->topk(backend, view, &SCORING, GPUVEC_METHOD_AUTO, &queries[first],
					   (uint32_t) n, &error))
		die("a search", error);
	return now_us() - start;
}

/* The median over batches of n queries, in turn */
double
Bench::median_time(const Setting &setting, uint64_t n)
{
	std::vector<double> times;
	double		end;

	for (uint64_t i = 0; i < 8; i++)
		search(setting, i * n % BATCH, n);
	end = now_us() + seconds * 1e6;
	for (uint64_t i = 0; times.size() < 3 || (now_us() < end && times.size() < 2000); i++)
		times.push_back(search(setting, i * n % BATCH, n));
	std::sort(times.begin(), times.end());
	return times[times.size() / 2];
}

/* Measure and print; false if a number of rows is wrong */
bool
Bench::measure(const Setting &setting, double *plain)
{
	double		one = median_time(setting, 1);
	double		all = median_time(setting, BATCH);
	uint64_t	sum = 0;
	bool		ok;

	for (const gpuvec_topk_query &query : queries)
		sum += query.passed;
	if (plain[0] == 0)
		plain[0] = one, plain[1] = all;
	ok = queries[5].filter.n == 0 ||
		queries[5].passed == count_passing(setting.filters[5], view->nrows);
	printf("%-8s %9.1f us %5.2f   %10.1f us for %d %5.2f", setting.name, one, one / plain[0], all,
		   (int) BATCH, all / plain[1]);
	if (queries[5].filter.n > 0)
		printf("   %12.1f rows pass", (double) sum / BATCH);
	printf("%s\n", ok ? "" : "   WRONG");
	fflush(stdout);
	return ok;
}

int
main(int argc, char **argv)
{
	gen::Config config = gen::parse(argc, argv);
	const char *name = gen::opt(argc, argv, "--backend");
	const char *k = gen::opt(argc, argv, "--k");
	const char *seconds = gen::opt(argc, argv, "--seconds");
	gpuvec_backend_options options = {};
	gpuvec_error error = {};
	Bench		bench = {};
	double		plain[2] = {0, 0};
	size_t		bytes = 0;
	bool		ok = true;

	cpu_time = gen::opt(argc, argv, "--cpu-time") != nullptr;
	options.threads = config.threads;
	bench.k = k ? (uint32_t) atoi(k) : 10;
	bench.seconds = seconds ? atof(seconds) : 2;
	bench.backend = name && std::string(name) == "cuda" ? gpuvec_cuda_open(&options, &error) :
		gpuvec_cpu_open(&options, &error);
	if (bench.backend == nullptr)
		die("a backend", error);

	gen::Generator generator(config);

	bench.view = make_view(bench.backend, generator);
	bench.sets = generator.queries<uint16_t>();
	bench.matches.resize(BATCH * bench.k);
	if (bench.sets.size() < BATCH)
		die("queries", error);
	for (uint32_t i = 0; i < bench.view->nentries; i++)
	{
		gpuvec_segment *segment = bench.view->entries[i].segment;

		if (bench.backend->finish_segment)
			bench.backend->finish_segment(bench.backend, segment);
		for (uint32_t c = 0; c < N_COLUMNS; c++)
			bytes += gpuvec_filter_column_bytes(&segment->filters[c], segment->nrows);
	}
	printf("mode %c, %" PRIu64 " rows, %.2f bytes for each row and column, k = %u\n", config.mode,
		   bench.view->nrows, (double) bytes / N_COLUMNS / (double) bench.view->nrows, bench.k);
	for (const Setting &setting : make_settings(bench.view->nrows))
		ok &= bench.measure(setting, plain);
	gpuvec_view_unref(bench.view);
	bench.backend->close(bench.backend);
	return ok ? 0 : 1;
}
