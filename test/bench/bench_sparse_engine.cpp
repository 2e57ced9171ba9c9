/*-------------------------------------------------------------------------
 *
 * bench_sparse_engine.cpp
 *	  Times the engine's searches of sparse vectors without PostgreSQL, and
 *	  checks their results.
 *
 * Rows and queries are those of mode S of sparsegen.h with seed 12345.  The
 * rows are built to segments as by a load, which has them in the order of
 * their tids.  A filter column has (row * 7919) % 10000.  Queries ask for the
 * k best rows as an index scan does: of all rows ("engine_..."), and with
 * filters that 10 %, 1 % and 0.01 % of the rows pass ("filter_0.1_..." and so
 * on); one at a time, some of them in a batch, and all in one.
 *
 * With --check, some answers of each are compared with those of a loop over
 * all rows that adds up in float8 in ascending order of ids, scores to the
 * last bit.  So are the checksums over all queries with the reference where
 * there is one.
 *
 * Output: one "name <tab> value" line for each number.  Exit status 1 if a
 * check fails, 2 on any other error.
 *
 *-------------------------------------------------------------------------
 */
#include <map>
#include <memory>

#include "bench_lib.h"
#include "core/sparse.h"
#include "sparsegen.h"

extern "C"
{
#include "engine/sets/id_numbers.h"
}

using namespace bench;

/* Ids, all of which are below this */
static const uint32_t VOCABULARY = 30522;

/* Rows have no more ids */
static const uint32_t MOST_IDS = 320;

/* Queries of a batch that is measured, besides all */
static const uint64_t batches[] = {2, 4, 8, 16, 64, 256};

/* Values are so many parts of 1 */
static const float PARTS = 1024;

/* The filter column: its values are below this, and it is column 1 */
static const uint64_t FILTER_VALUES = 10000;
static const uint32_t N_FILTERS = 1;
static const uint32_t N_FILTER_KEYS = N_FILTERS + 1;

struct Options
{
	bool		cuda;
	gpuvec_backend_options backend = {};
	/* each: GPUs that rows are spread over, "0,1" */
	std::vector<std::string> devices;
	uint64_t	n_rows = 200000;
	uint64_t	n_queries = 2000;
	double		zq = 0.6;
	uint32_t	nids = VOCABULARY;
	uint32_t	k;
	gpuvec_sparse_measure measure = GPUVEC_SPARSE_INNER_PRODUCT;
	bool		check;
	double		seconds = 5;	/* stop repeating a measurement after this */
};

/* A row, as the loop reads it */
struct Row
{
	uint32_t	n;
	const uint16_t *ids;		/* ascending */
	const uint16_t *parts;		/* values in PARTS */
};

/*
 * Take ids modulo nids, in ascending order.  Of pairs that get one id, the
 * first is kept.
 */
static void
fold_ids(sparsegen::Row *row, uint32_t nids)
{
	std::map<uint32_t, float> folded;
	size_t		n = 0;

	if (nids == VOCABULARY)
		return;
	for (size_t i = 0; i < row->ids.size(); i++)
		folded.insert({row->ids[i] % nids, row->values[i]});
	for (const auto &pair : folded)
	{
		row->ids[n] = pair.first;
		row->values[n++] = pair.second;
	}
	row->ids.resize(n);
	row->values.resize(n);
}

/* All rows, in blocks that threads make and read side by side */
class Rows
{
public:
	static const uint64_t BLOCK = 16384;
	const uint64_t n;

	Rows(const sparsegen::Generator &generator, uint64_t n, uint32_t nids)
		: n(n), blocks((n + BLOCK - 1) / BLOCK)
	{
		gen::parallel_chunks(n, BLOCK, 0, [&](uint64_t begin, uint64_t end, int) {
			blocks[begin / BLOCK].make(generator, nids, begin, end);
		});
	}
	Row
	operator[](uint64_t i) const
	{
		const Block &block = blocks[i / BLOCK];
		uint32_t	start = block.start[i % BLOCK];

		return {block.start[i % BLOCK + 1] - start, &block.ids[start], &block.parts[start]};
	}
	uint64_t
	pairs(void) const
	{
		uint64_t	sum = 0;

		for (const Block &block : blocks)
			sum += block.ids.size();
		return sum;
	}

private:
	struct Block
	{
		std::vector<uint32_t> start = {0};
		std::vector<uint16_t> ids;
		std::vector<uint16_t> parts;

		void		make(const sparsegen::Generator &generator, uint32_t nids, uint64_t begin, uint64_t end);
	};
	std::vector<Block> blocks;
};

void
Rows::Block::make(const sparsegen::Generator &generator, uint32_t nids, uint64_t begin, uint64_t end)
{
	const size_t usual = 117;	/* ids of a row, and some more */

	start.reserve(end - begin + 1);
	ids.reserve((end - begin) * usual);
	parts.reserve((end - begin) * usual);
	for (uint64_t i = begin; i < end; i++)
	{
		sparsegen::Row row = generator.row(i);

		fold_ids(&row, nids);
		ids.insert(ids.end(), row.ids.begin(), row.ids.end());
		for (float value : row.values)
			parts.push_back((uint16_t) (value * PARTS));
		start.push_back((uint32_t) ids.size());
	}
}

/* ---- filters ---- */

/* The key of an integer: in the order of integers, as sessions make it */
static uint64_t
integer_key(uint64_t value)
{
	return value ^ UINT64_C(1) << 63;
}

static uint64_t
filter_value(uint64_t row)
{
	return row * 7919 % FILTER_VALUES;
}

/* What is measured: rows whose filter column is from low to high */
struct Setting
{
	const char *name;
	bool		filtered;
	uint64_t	low;
	uint64_t	high;

	bool
	passes(uint64_t row) const
	{
		return !filtered || (filter_value(row) >= low && filter_value(row) <= high);
	}
};

static const Setting settings[] = {
	{"engine", false, 0, 0},
	{"filter_0.1", true, 0, 999},
	{"filter_0.01", true, 0, 99},
	{"filter_0.0001", true, 7, 7},
};

/* ---- queries ---- */

struct Query
{
	std::vector<uint16_t> ids;
	std::vector<float> weights;
	double		square = 0;
	double		own;

	Query(const sparsegen::Row &row, gpuvec_sparse_measure measure)
		: ids(row.ids.begin(), row.ids.end()), weights(row.values)
	{
		gpuvec_sparse vector = {{ids.data(), (uint32_t) ids.size(), false}, weights.data(), false};

		for (float weight : weights)
			square += (double) weight * weight;
		own = gpuvec_sparse_own(measure, &vector);
	}
};

/* Index scans want no row at the distance of those without a common id */
static double
least_score(gpuvec_sparse_measure measure)
{
	return nextafter(measure == GPUVEC_SPARSE_INNER_PRODUCT ? 0 : DBL_EPSILON / 4, INFINITY);
}

/* ---- the plain loop ---- */

struct Expected
{
	Matches		matches;
	uint64_t	passed = 0;		/* rows that pass the filter */
};

/* A query's weight for each id; 0: it does not have it */
static std::vector<float>
spread_weights(const Query &query)
{
	std::vector<float> weights(VOCABULARY);

	for (size_t i = 0; i < query.ids.size(); i++)
		weights[query.ids[i]] = query.weights[i];
	return weights;
}

static gpuvec_match
score_row(const Row &row, gpuvec_sparse_measure measure, const std::vector<float> &weights, double own)
{
	gpuvec_sparse_shared shared = {0, own, 0};
	gpuvec_match match = {};

	for (uint32_t i = 0; i < row.n; i++)
	{
		float		value = row.parts[i] / PARTS;
		float		weight = weights[row.ids[i]];

		shared.b += gpuvec_sparse_term(measure, value, value);
		if (weight == 0)
			continue;
		shared.common += gpuvec_sparse_term(measure, weight, value);
		match.common++;
	}
	match.score = gpuvec_sparse_score(measure, shared);
	return match;
}

/*
 * The k best rows that pass, by looking at all of them.  disjoint: those of
 * any score.
 */
static Expected
plain_loop(const Rows &rows, const Query &query, const Options &options, const Setting &setting, bool disjoint)
{
	std::vector<float> weights = spread_weights(query);
	double		least = disjoint ? -INFINITY : least_score(options.measure);
	std::vector<Expected> blocks((rows.n + Rows::BLOCK - 1) / Rows::BLOCK);
	Expected	all;

	gen::parallel_chunks(rows.n, Rows::BLOCK, 0, [&](uint64_t begin, uint64_t end, int) {
		Expected   &block = blocks[begin / Rows::BLOCK];
		Best		best(options.k);

		for (uint64_t i = begin; i < end; i++)
		{
			gpuvec_match match;

			if (!setting.passes(i))
				continue;
			block.passed++;
			match = score_row(rows[i], options.measure, weights, query.own);
			match.tid = position_tid(i);
			if (match.score >= least && best.wants(match.score))
				best.add(match);
		}
		block.matches = best.take();
	});
	for (const Expected &block : blocks)
	{
		all.matches.insert(all.matches.end(), block.matches.begin(), block.matches.end());
		all.passed += block.passed;
	}
	std::sort(all.matches.begin(), all.matches.end(), match_before);
	all.matches.resize(std::min<size_t>(options.k, all.matches.size()));
	return all;
}

/* ---- the engine ---- */

/* All rows by (len, tid), without what they have */
static std::vector<gpuvec_source_row>
sorted_rows(const Rows &rows)
{
	std::vector<gpuvec_source_row> sorted(rows.n);
	gpuvec_error error = {};

	for (uint64_t i = 0; i < rows.n; i++)
	{
		sorted[i].tid = position_tid(i);
		sorted[i].len = rows[i].n;
	}
	if (!gpuvec_rows_sort(sorted.data(), sorted.size(), &error))
		die(error);
	return sorted;
}

/* Write a row's ids, sums and values; returns its end */
static char *
pack_row(const Row &row, char *to, gpuvec_source_row *source)
{
	uint32_t	numbers[MOST_IDS];
	float		values[MOST_IDS];
	gpuvec_row_sums sums = {0, 0};

	for (uint32_t i = 0; i < row.n; i++)
	{
		numbers[i] = row.ids[i];
		values[i] = row.parts[i] / PARTS;
		sums.square += (double) values[i] * values[i];
		sums.sum += values[i];
	}
	gpuvec_pack_numbers(numbers, row.n, (uint16_t *) to, source);
	gpuvec_pack_values(source, (uint16_t *) to, (const char *) &sums, (const char *) values, nullptr);
	return to + gpuvec_packed_bytes(row.n, 0) + gpuvec_values_bytes(row.n);
}

/* Give sorted rows what they have, and make a segment of them */
static gpuvec_segment *
build_segment(const Rows &rows, gpuvec_source_row *sorted, uint32_t n, gpuvec_error *error)
{
	std::vector<uint64_t> filter_keys(n * N_FILTER_KEYS);
	std::unique_ptr<char[]> packed;
	size_t		bytes = 0;
	char	   *to;

	for (uint32_t r = 0; r < n; r++)
		bytes += gpuvec_packed_bytes(sorted[r].len, 0) + gpuvec_values_bytes(sorted[r].len);
	packed.reset(new char[bytes]);
	to = packed.get();
	for (uint32_t r = 0; r < n; r++)
	{
		uint64_t	i = tid_position(sorted[r].tid);

		to = pack_row(rows[i], to, &sorted[r]);
		filter_keys[r * N_FILTER_KEYS + 1] = integer_key(filter_value(i));
		sorted[r].filter_keys = &filter_keys[r * N_FILTER_KEYS];
	}
	return gpuvec_segment_build(sorted, n, gpuvec_row_kind{N_FILTERS, true}, error);
}

/* A backend with all rows in it, closed at the end, and room for answers */
struct Engine
{
	const Options &options;
	const Rows &rows;
	const std::vector<Query> &queries;
	const Setting *setting = &settings[0];
	gpuvec_scoring scoring;
	gpuvec_condition condition = {};
	gpuvec_backend *backend;
	gpuvec_view *view = nullptr;
	std::vector<Matches> answers;
	std::vector<gpuvec_topk_query> requests;

	Engine(const Options &options, gpuvec_backend *backend, const Rows &rows, const std::vector<Query> &queries);
	~Engine();
	void		load(void);
	void		use(const Setting &wanted);
	void		ask(uint64_t j);
	double		search(uint64_t first, uint64_t count);
	bool		check(const char *what, uint64_t n) const;
};

Engine::Engine(const Options &options, gpuvec_backend *backend, const Rows &rows, const std::vector<Query> &queries)
	: options(options), rows(rows), queries(queries), scoring(gpuvec_sparse_scoring(options.measure)), backend(backend),
	  answers(queries.size(), Matches(std::min<uint64_t>(options.k, rows.n))), requests(queries.size())
{
	load();
}

Engine::~Engine()
{
	gpuvec_view_unref(view);
	backend->close(backend);
}

/* Sort, build and adopt; report how fast that was and what it takes */
void
Engine::load(void)
{
	double		start = now_ms();
	std::vector<gpuvec_source_row> sorted = sorted_rows(rows);
	double		built = now_ms();

	report("sort_ms", built - start, 1);
	view = build_view(backend, rows.n, options.backend.threads,
					  [&](uint64_t first, uint32_t count, gpuvec_error *failed) {
		return build_segment(rows, &sorted[first], count, failed);
	});
	report("build_ms", now_ms() - built, 1);
	report("build_rows_per_s", (double) rows.n * 1000 / (now_ms() - start), 0);
	report("segments", view->nentries, 0);
	report("mirror_bytes", (double) mirror_bytes(view), 0);
	report("bytes_per_pair", (double) mirror_bytes(view) / (double) rows.pairs(), 4);
}

/* Searches have this filter from now on */
void
Engine::use(const Setting &wanted)
{
	setting = &wanted;
	condition.column = 1;
	condition.kind = GPUVEC_KEY_BETWEEN;
	condition.low = integer_key(wanted.low);
	condition.high = integer_key(wanted.high);
}

/* Make the request for query j */
void
Engine::ask(uint64_t j)
{
	const Query &query = queries[j];
	gpuvec_topk_query &request = requests[j];

	request = {};
	request.ids = query.ids.data();
	request.len = (uint32_t) query.ids.size();
	request.weights = query.weights.data();
	request.square = query.square;
	request.own = query.own;
	request.k = options.k;
	request.has_min_score = true;
	request.min_score = least_score(options.measure);
	request.filter.n = setting->filtered;
	request.filter.conditions = &condition;
	request.disjoint = setting->filtered;
	request.matches = answers[j].data();
}

/* Answer queries first .. first + count - 1 in one batch; milliseconds */
double
Engine::search(uint64_t first, uint64_t count)
{
	gpuvec_error error = {};
	double		start;

	for (uint64_t j = first; j < first + count; j++)
		ask(j);
	start = now_ms();
	if (!backend->topk(backend, view, &scoring, GPUVEC_METHOD_AUTO, &requests[first], (uint32_t) count, &error))
		die(error);
	return now_ms() - start;
}

/* Compare some of the first n queries with the loop */
bool
Engine::check(const char *what, uint64_t n) const
{
	return check_some(std::string(setting->name) + "_" + what + "_", n, options.seconds, [&](uint64_t j) {
		const gpuvec_topk_query &request = requests[j];
		Expected	expected = plain_loop(rows, queries[j], options, *setting, request.ranked_disjoint);

		if (setting->filtered && request.passed != expected.passed)
		{
			fprintf(stderr, "bench_sparse_engine: query %" PRIu64 ": %" PRIu64 " rows pass, expected %" PRIu64 "\n",
					j, request.passed, expected.passed);
			return false;
		}
		return same_answer(j, answers[j], request.nmatches, expected.matches);
	});
}

/* Time searches with a filter or without one, and check their answers */
static bool
measure_setting(Engine &engine, const Setting &setting)
{
	const Options &options = engine.options;
	std::string name = setting.name;
	uint64_t	n = engine.queries.size();
	bool		good = true;

	engine.use(setting);
	report_single(name, measure_single(options.seconds, n, [&](uint64_t j) { return engine.search(j, 1); }));
	if (options.check)
		good = engine.check("single", std::min(n, SINGLE)) && good;
	for (uint64_t batch : batches)
		if (batch < n)
			report(name + "_ms_" + std::to_string(batch), measure(options.seconds, [&] { return engine.search(0, batch); }), 3);
	report(name + "_ms_" + std::to_string(n), measure(options.seconds, [&] { return engine.search(0, n); }), 3);
	if (options.check)
		good = engine.check("batch", n) && good;
	return good;
}

/* The checksums of all queries' answers */
static bool
check_reference(const Engine &engine)
{
	const Options &options = engine.options;

	return check_sums(engine.answers, engine.requests,
					  options.measure != GPUVEC_SPARSE_INNER_PRODUCT || options.nids != VOCABULARY ? nullptr :
					  find_sparse_reference(options.n_rows, options.n_queries, options.k, options.zq));
}

static gpuvec_sparse_measure
parse_measure(const char *name)
{
	static const char *const names[] = GPUVEC_SPARSE_MEASURE_NAMES;

	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
		if (!strcmp(name, names[i]))
			return (gpuvec_sparse_measure) i;
	die("the measure must be inner_product, cosine or jaccard");
}

static Options
parse_options(int argc, char **argv)
{
	Options		options;
	const char *value;

	options.cuda = wants_cuda(argc, argv);
	options.k = parse_k(argc, argv, "10");
	options.check = has_flag(argc, argv, "--check");
	if ((value = gen::opt(argc, argv, "--rows")) != nullptr)
		options.n_rows = strtoull(value, nullptr, 10);
	if ((value = gen::opt(argc, argv, "--queries")) != nullptr)
		options.n_queries = strtoull(value, nullptr, 10);
	if ((value = gen::opt(argc, argv, "--zq")) != nullptr)
		options.zq = atof(value);
	if ((value = gen::opt(argc, argv, "--measure")) != nullptr)
		options.measure = parse_measure(value);
	if ((value = gen::opt(argc, argv, "--threads")) != nullptr)
		options.backend.threads = atoi(value);
	if ((value = gen::opt(argc, argv, "--device")) != nullptr)
		options.backend.device = atoi(value);
	if ((value = gen::opt(argc, argv, "--ids")) != nullptr)
		options.nids = strtoul(value, nullptr, 10);
	if ((value = gen::opt(argc, argv, "--devices")) != nullptr)
	{
		std::stringstream lists(value);

		for (std::string list; std::getline(lists, list, ';');)
			options.devices.push_back(list);
	}
	if ((value = gen::opt(argc, argv, "--simd")) != nullptr)
		options.backend.simd = atoi(value);
	if ((value = gen::opt(argc, argv, "--seconds")) != nullptr)
		options.seconds = atof(value);
	if (options.n_rows == 0 || options.n_queries == 0)
		die("there must be rows and queries");
	if (options.nids == 0 || options.nids > VOCABULARY)
		die("--ids is out of range");
	if (!options.devices.empty() && !options.cuda)
		die("--devices needs --backend cuda");
	return options;
}

/* Load the rows into a backend, and measure; true if all answers are right */
static bool
measure_backend(const Options &options, gpuvec_backend *backend, const Rows &rows, const std::vector<Query> &queries)
{
	Engine		engine(options, backend, rows, queries);
	bool		good = true;

	for (const Setting &setting : settings)
	{
		good = measure_setting(engine, setting) && good;
		if (options.check && !setting.filtered)
			good = check_reference(engine) && good;
	}
	return good;
}

/* Make the data, and measure with it; true if all answers are right */
static bool
measure_all(const Options &options)
{
	double		start = now_ms();
	sparsegen::Generator generator('S', 12345, options.zq);
	Rows		rows(generator, options.n_rows, options.nids);
	std::vector<Query> queries;
	bool		good = true;

	for (uint64_t j = 0; j < options.n_queries; j++)
	{
		sparsegen::Row query = generator.query(j);

		fold_ids(&query, options.nids);
		queries.emplace_back(query, options.measure);
	}
	report("generate_ms", now_ms() - start, 0);
	report("rows", (double) rows.n, 0);
	report("pairs", (double) rows.pairs(), 0);
	if (options.devices.empty())
		return measure_backend(options, open_backend(options.cuda, options.backend), rows, queries);
	for (const std::string &list : options.devices)
	{
		std::vector<gpuvec_backend *> devices;

		good = measure_backend(options, open_devices(list, devices), rows, queries) && good;
	}
	return good;
}

int
main(int argc, char **argv)
{
	if (has_flag(argc, argv, "--help"))
	{
		puts("bench_sparse_engine --backend cpu|cuda --rows N --queries N --k K\n"
			 "	--measure M   inner_product, cosine or jaccard\n"
			 "	--zq Z        skew of the queries' ids, default 0.6\n"
			 "	--threads T   CPU threads, 0: all cores\n"
			 "	--simd S      0 best, 1 portable C, 2 AVX2, 3 AVX-512\n"
			 "	--device D    number of the GPU\n"
			 "	--devices L   GPUs that rows are spread over, 0,1; several lists: 0;0,1\n"
			 "	--ids N       take ids modulo N\n"
			 "	--seconds S   time for each measurement, default 5\n"
			 "	--check       compare with a plain loop and the reference checksums");
		return 0;
	}
	return measure_all(parse_options(argc, argv)) ? 0 : 1;
}
