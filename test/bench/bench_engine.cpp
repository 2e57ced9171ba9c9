/*-------------------------------------------------------------------------
 *
 * bench_engine.cpp
 *	  Times the engine's backends without PostgreSQL, and checks their
 *	  results.
 *
 * Makes the documents, builds segments as a load does, and asks for the k
 * most similar ones with batches of 1, 16 and all queries, by bitset scan, by
 * inverted lists, and by whichever the backend chooses.  Beside it stands
 * what a programmer would write first: a loop over all documents in a
 * compressed sparse row (CSR) layout, one query at a time in one thread.
 *
 * Rows of mode D, whose ids have 32 bits, go through the map from ids to
 * numbers as those of sessions do (engine_rows.h).  That the queries' ids are
 * looked up there is not in their times; all queries together take
 * query_numbers_ms.
 *
 * The rows are handed to the sort in another order than that of their tids
 * (bench_lib.h), as a table would have them.
 *
 * With --check, the whole answers of some queries are compared with the
 * loop's, and the checksums over all queries with the reference where there
 * is one.
 *
 * Output: one "name <tab> value" line for each number.  Exit status 1 if a
 * check fails, 2 on any other error.
 *
 *-------------------------------------------------------------------------
 */
#include <numeric>

#include "bench_lib.h"
#include "engine_rows.h"

using namespace bench;

static const gpuvec_scoring SCORING = {GPUVEC_BRAUN_BLANQUET, {}, 0};

struct Options
{
	gen::Config config;
	bool		cuda = false;
	uint32_t	k;
	int			simd = 0;			/* see gpuvec_backend_options */
	std::vector<gpuvec_method> methods = {GPUVEC_METHOD_BITSET, GPUVEC_METHOD_INVERTED, GPUVEC_METHOD_AUTO};
	int			device = 0;
	bool		check = false;
	uint64_t	n_loop = 0;			/* queries to time in the plain loop */
	double		seconds = 5;		/* stop repeating a measurement after this */
};

/* The documents, as the loop reads them; ids of 16 or 32 bits */
template <class Id>
struct Documents
{
	std::vector<uint64_t> start;
	std::vector<Id> ids;
};

template <class Id> using Queries = std::vector<std::vector<Id>>;

static gpuvec_method
parse_method(const std::string &name)
{
	if (name == "bitset")
		return GPUVEC_METHOD_BITSET;
	if (name == "inverted")
		return GPUVEC_METHOD_INVERTED;
	if (name != "auto")
		die("the method must be auto, bitset or inverted");
	return GPUVEC_METHOD_AUTO;
}

/* ---- the plain loop ---- */

/* The ids of a query: a flag for each id of 16 bits, or a hash table */
template <class Id> struct Lookup;

template <>
struct Lookup<uint16_t>
{
	std::vector<uint8_t> flags = std::vector<uint8_t>(GPUVEC_MAX_IDS);

	explicit Lookup(const std::vector<uint16_t> &query)
	{
		for (uint16_t id : query)
			flags[id] = 1;
	}
	bool
	has(uint16_t id) const
	{
		return flags[id];
	}
};

template <>
struct Lookup<uint32_t>
{
	static const uint32_t SLOTS = 1024;
	std::vector<uint64_t> slots = std::vector<uint64_t>(SLOTS);	/* id + 1 */

	explicit Lookup(const std::vector<uint32_t> &query)
	{
		for (uint32_t id : query)
			slots[slot(id)] = (uint64_t) id + 1;
	}
	uint32_t
	slot(uint32_t id) const
	{
		uint32_t	i = id * UINT32_C(0x9E3779B1) >> 22;

		while (slots[i] != 0 && slots[i] != (uint64_t) id + 1)
			i = (i + 1) % SLOTS;
		return i;
	}
	bool
	has(uint32_t id) const
	{
		return slots[slot(id)] != 0;
	}
};

/* The k best documents for one query, by looking at all of them */
template <class Id>
static Matches
plain_loop(const Documents<Id> &docs, const std::vector<Id> &query, uint32_t k)
{
	Lookup<Id>	in_query(query);
	uint64_t	n_docs = docs.start.size() - 1;
	Best		best(k);

	for (uint64_t p = 0; p < n_docs; p++)
	{
		uint64_t	end = docs.start[p + 1];
		uint32_t	common = 0;
		gpuvec_match match = {};

		for (uint64_t i = docs.start[p]; i < end; i++)
			common += in_query.has(docs.ids[i]);
		if (common == 0)
			continue;
		match.score = gpuvec_score_with(SCORING, {common, (uint32_t) query.size(),
										(uint32_t) (end - docs.start[p])});
		if (!best.wants(match.score))
			continue;
		match.tid = position_tid(p);
		match.common = common;
		best.add(match);
	}
	return best.take();
}

/* ---- the engine ---- */

/* Steps through n rows in an order that has nothing to do with lengths */
static uint64_t
step_through(uint64_t n)
{
	uint64_t	step = (uint64_t) (0.6180339887498949 * (double) n) | 1;

	while (std::gcd(step, n) != 1)
		step += 2;
	return step;
}

static std::vector<gpuvec_source_row>
make_rows(const Documents<uint16_t> &docs)
{
	uint64_t	n = docs.start.size() - 1;
	uint64_t	step = step_through(n);
	std::vector<gpuvec_source_row> rows(n);

	for (uint64_t i = 0, p = 0; i < n; i++, p = (p + step) % n)
	{
		rows[i].tid = position_tid(p);
		rows[i].len = (uint32_t) (docs.start[p + 1] - docs.start[p]);
		rows[i].ids = docs.ids.data() + docs.start[p];
	}
	return rows;
}

/* A backend with all documents in it, and room for answers */
struct Engine
{
	const Options &options;
	gpuvec_backend *backend = nullptr;
	gpuvec_view *view = nullptr;
	engine_rows::Column column;	/* of documents with ids of 32 bits */
	gpuvec_method method = GPUVEC_METHOD_AUTO;
	std::vector<engine_rows::Query> queries;
	std::vector<Matches> answers;
	std::vector<gpuvec_topk_query> requests;

	explicit Engine(const Options &options);
	~Engine();
	void		load(const Documents<uint16_t> &docs);
	void		load(const Documents<uint32_t> &docs);
	template <class Id>
	void		prepare(const Documents<Id> &docs, const Queries<Id> &asked);
	double		search(uint64_t first, uint64_t count);
};

Engine::Engine(const Options &options) : options(options)
{
	gpuvec_backend_options wanted = {};

	wanted.threads = options.config.threads;
	wanted.device = options.device;
	wanted.simd = options.simd;
	backend = open_backend(options.cuda, wanted);
}

Engine::~Engine()
{
	if (view)
		gpuvec_view_unref(view);
	column.release();
	backend->close(backend);
}

/* Sort, build and adopt; report how fast that was and what it takes */
void
Engine::load(const Documents<uint16_t> &docs)
{
	std::vector<gpuvec_source_row> rows = make_rows(docs);
	gpuvec_error error = {};
	double		start = now_ms();
	double		sorted;
	double		built;

	if (!gpuvec_rows_sort(rows.data(), rows.size(), &error))
		die(error);
	sorted = now_ms();
	view = build_view(backend, rows.size(), options.config.threads,
					  [&](uint64_t first, uint32_t count, gpuvec_error *failed) {
		return gpuvec_segment_build(&rows[first], count, gpuvec_row_kind{}, failed);
	});
	built = now_ms();

	report("sort_ms", sorted - start, 1);
	report("build_ms", built - sorted, 1);
	report("build_rows_per_s", (double) rows.size() * 1000 / (built - start), 0);
}

/* The same for large ids: stage, number, and build with them sorted */
void
Engine::load(const Documents<uint32_t> &docs)
{
	uint64_t	n = docs.start.size() - 1;
	uint64_t	step = step_through(n);
	gpuvec_thread_pool *pool = gpuvec_thread_pool_new(options.config.threads);
	double		start = now_ms();
	double		staged;
	double		numbered;

	if (pool == nullptr)
		die("there are no threads");
	for (uint64_t i = 0, p = 0; i < n; i++, p = (p + step) % n)
		column.add(position_tid(p), docs.ids.data() + docs.start[p],
				   (uint32_t) (docs.start[p + 1] - docs.start[p]));
	staged = now_ms();
	column.number_ids(pool);
	numbered = now_ms();
	column.build(backend, pool);
	gpuvec_thread_pool_free(pool);
	view = gpuvec_view_ref(column.view);

	report("stage_ms", staged - start, 1);
	report("number_ms", numbered - staged, 1);
	report("build_ms", now_ms() - numbered, 1);
	report("build_rows_per_s", (double) n * 1000 / (now_ms() - start), 0);
	report("map_bytes", (double) column.map_bytes(), 0);
}

/* Load the documents, get ready for the queries, and wait for lists */
template <class Id>
void
Engine::prepare(const Documents<Id> &docs, const Queries<Id> &asked)
{
	uint64_t	bytes;
	uint64_t	cold = 0;
	double		built;

	load(docs);
	built = now_ms();
	for (const std::vector<Id> &ids : asked)
		queries.push_back(column.query(ids));
	report("query_numbers_ms", now_ms() - built, 3);
	report("segments", view->nentries, 0);
	requests.resize(queries.size());
	answers.assign(queries.size(), Matches(std::min<uint64_t>(options.k, view->nrows)));

	/* a search that insists on inverted lists waits for them */
	method = GPUVEC_METHOD_INVERTED;
	search(0, 1);
	report("lists_ms", now_ms() - built, 1);
	for (uint32_t i = 0; i < view->nentries; i++)
		cold += view->entries[i].segment->ncold;
	bytes = mirror_bytes(view);
	report("cold_ids", (double) cold, 0);
	report("mirror_bytes", (double) bytes, 0);
	report("bytes_per_id_byte", (double) bytes / ((double) sizeof(Id) * (double) docs.ids.size()), 4);
}

/* Answer queries first .. first + count - 1 in one batch; milliseconds */
double
Engine::search(uint64_t first, uint64_t count)
{
	gpuvec_error error = {};
	double		start;

	for (uint64_t j = first; j < first + count; j++)
	{
		queries[j].ask(&requests[j]);
		requests[j].k = options.k;
		requests[j].matches = answers[j].data();
	}
	start = now_ms();
	if (!backend->topk(backend, view, &SCORING, method, &requests[first], (uint32_t) count, &error))
		die(error);
	return now_ms() - start;
}

/* ---- checks ---- */

/* Compare some queries, spread evenly, with the loop */
template <class Id>
static bool
check_answers(const Documents<Id> &docs, const Queries<Id> &queries, const Engine &engine)
{
	return check_some("", engine.queries.size(), engine.options.seconds, [&](uint64_t j) {
		return same_answer(j, engine.answers[j], engine.requests[j].nmatches,
						   plain_loop(docs, queries[j], engine.options.k));
	});
}

/* Median time of the loop */
template <class Id>
static double
measure_loop(const Documents<Id> &docs, const Queries<Id> &queries, const Options &options)
{
	std::vector<double> times;
	volatile size_t found = 0;	/* keeps the work from being optimized away */

	for (uint64_t j = 0; j < std::min<uint64_t>(options.n_loop, queries.size()); j++)
	{
		double		start = now_ms();

		found = found + plain_loop(docs, queries[j], options.k).size();
		times.push_back(now_ms() - start);
	}
	return median(times);
}

/*
 * Time one method, and check its answers.  The lines of the last one have the
 * names "engine_...", whatever it is.
 */
template <class Id>
static bool
measure_method(const Documents<Id> &docs, const Queries<Id> &queries, Engine &engine,
			   gpuvec_method method)
{
	static const char *const names[] = {"auto", "bitset", "inverted"};
	const Options &options = engine.options;
	size_t		n = engine.queries.size();
	std::string name = method == options.methods.back() ? "engine" : names[method];
	bool		good = true;

	engine.method = method;
	report_single(name, measure_single(options.seconds, n, [&](uint64_t j) { return engine.search(j, 1); }));
	if (n > 16)
		report(name + "_ms_16", measure(options.seconds, [&] { return engine.search(0, 16); }), 3);
	report(name + "_ms_" + std::to_string(n), measure(options.seconds, [&] { return engine.search(0, n); }), 3);
	if (options.check)
	{
		good = check_answers(docs, queries, engine) && good;
		good = check_sums(engine.answers, engine.requests, find_reference(options.config, options.k)) && good;
	}
	return good;
}

static Options
parse_options(int argc, char **argv)
{
	Options		options;
	const char *value;

	options.config = gen::parse(argc, argv);
	options.cuda = wants_cuda(argc, argv);
	options.k = parse_k(argc, argv, "100");
	if ((value = gen::opt(argc, argv, "--simd")) != nullptr)
		options.simd = atoi(value);
	if ((value = gen::opt(argc, argv, "--method")) != nullptr)
		options.methods = {parse_method(value)};
	if ((value = gen::opt(argc, argv, "--device")) != nullptr)
		options.device = atoi(value);
	if ((value = gen::opt(argc, argv, "--loop")) != nullptr)
		options.n_loop = strtoull(value, nullptr, 10);
	if ((value = gen::opt(argc, argv, "--seconds")) != nullptr)
		options.seconds = atof(value);
	options.check = has_flag(argc, argv, "--check");
	if (options.config.n_docs == 0 || options.config.n_queries == 0)
		die("there must be documents and queries");
	return options;
}

/* Make the data, and measure with it; true if all answers are right */
template <class Id>
static bool
measure_all(const Options &options)
{
	double		start = now_ms();
	gen::Config make = options.config;
	Documents<Id> docs;
	bool		good = true;

	make.threads = 0;			/* whatever --threads says of the backend */

	gen::Generator generator(make);
	Queries<Id> queries = generator.queries<Id>();

	generator.docs_csr(docs.start, docs.ids);
	report("generate_ms", now_ms() - start, 0);
	report("docs", (double) options.config.n_docs, 0);
	report("ids", (double) docs.ids.size(), 0);

	Engine		engine(options);

	engine.prepare(docs, queries);
	for (gpuvec_method method : options.methods)
		good = measure_method(docs, queries, engine, method) && good;
	if (options.n_loop > 0)
		report("loop_ms_1", measure_loop(docs, queries, options), 3);
	return good;
}

int
main(int argc, char **argv)
{
	Options		options = parse_options(argc, argv);

	if (has_flag(argc, argv, "--help"))
	{
		puts("bench_engine --backend cpu|cuda --mode A|B|C|D|F|U --n-docs N --n-queries N --seed S --k K\n"
			 "	--threads T   CPU threads, 0: all cores\n"
			 "	--method M    auto, bitset or inverted; default: each in turn\n"
			 "	--simd S      0 best, 1 portable C, 2 AVX2, 3 AVX-512\n"
			 "	--device D    number of the GPU\n"
			 "	--loop N      time the plain loop with N queries\n"
			 "	--seconds S   time for each measurement, default 5\n"
			 "	--check       compare with the plain loop and the reference checksums");
		return 0;
	}
	return (options.config.wide() ? measure_all<uint32_t>(options) :
			measure_all<uint16_t>(options)) ? 0 : 1;
}
