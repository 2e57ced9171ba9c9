/*-------------------------------------------------------------------------
 *
 * bench_choice.cpp
 *	  How good the engine's choice between bitset scan and inverted lists is,
 *	  over columns of many kinds.
 *
 * Makes one column after another: vocabularies of 300 to 100,000,000 ids,
 * ids drawn uniformly up to Zipf with exponent 1.5, rows of up to 1 to 5,000
 * ids.  For each it times single queries, and a batch of queries, by bitset
 * scan, by inverted lists and as the engine chooses (method_costs.c), in
 * turn, and prints a line of a table with the time of the choice divided by
 * that of the better method.  All three must give the same answers.  The
 * engine has learned before from LEARN_SEARCHES searches of each way.
 *
 * A column's rows have between half the length and the length that its line
 * names, uniformly.  The rank of an id is the floor of a draw from the
 * density x^-s over 1 .. vocabulary + 1.  Vocabularies of up to 65,536 ids
 * are 0 .. n - 1, in an order that has nothing to do with ranks.  Larger ones
 * lie anywhere in 32 bits, and the engine numbers them (engine_rows.h).  A
 * row gives up after eight draws for each of its ids, for distinct ids may be
 * rare; so rows of a steep column are shorter, and "ids" says how long they
 * are.  Half of the queries are drawn as rows are; the others are copies of
 * rows with a third of their ids drawn anew.
 *
 *	bench_choice --backend cpu|cuda	  which backend; default cpu
 *		--rows N		rows of a column, 200000, at most ...
 *		--max-ids N		... so many that they have N ids, 20000000
 *		--vocab, --zipf, --length	lists of values, "300,3000"; each has a
 *						default list
 *		--single N		queries that are asked alone, 32
 *		--batch N		queries of a batch, 256
 *		--k K			100
 *		--seconds S		for each column, 1
 *		--threads T, --simd S, --device D	see bench_engine
 *		--seed S
 *
 * Exit status 1 if answers differ, 2 on any other error.
 *
 *-------------------------------------------------------------------------
 */
#include <chrono>
#include <cinttypes>
#include <string>

#include "setgen.h"
#include "engine_rows.h"

extern "C"
{
#include "engine/method_costs.h"
#include "engine/scheduler.h"
}

using bench::die;
using bench::median;
using bench::now_ms;

static const gpuvec_scoring SCORING = {GPUVEC_BRAUN_BLANQUET, {}, 0};

/* Rows that share a made-up heap page */
static const uint64_t PAGE_ROWS = 256;

/* Streams of setgen.h: lengths and ids of rows, queries */
enum { TAG_ROW = 101, TAG_QUERY = 102 };

static const gpuvec_method methods[] = {
	GPUVEC_METHOD_BITSET, GPUVEC_METHOD_INVERTED, GPUVEC_METHOD_AUTO
};

#define N_METHODS 3

static const int LEARN_SEARCHES = 64;

/* A choice that is so much slower than the better method is counted */
static const double TOO_SLOW[] = {1.2, 1.1};
static const char *const ways[] = {"alone", "in batches"};

struct Options
{
	bool		cuda = false;
	gpuvec_backend_options backend = {};
	uint64_t	rows = 200000;
	uint64_t	max_ids = 20000000;
	uint32_t	single = 32;
	uint32_t	batch = 256;
	uint32_t	k = 100;
	double		seconds = 1;
	uint64_t	seed = 12345;
	std::vector<double> vocabularies = {300, 3000, 30000, 1e6, 1e8};
	std::vector<double> exponents = {0, 0.5, 1, 1.5};
	std::vector<double> lengths = {1, 8, 50, 500, 5000};
};

typedef std::vector<uint32_t> Set;

/* ---- making a column ---- */

/* The sets of a column; the same for the same arguments and seed */
struct Maker
{
	uint64_t	seed;
	uint64_t	vocabulary;
	double		exponent;
	uint32_t	length;

	uint32_t	draw(gen::Stream &random) const;
	void		fill(gen::Stream &random, size_t n, Set &set) const;
	Set			row(uint64_t i, uint64_t tag = TAG_ROW) const;
	Set			query(uint64_t i, uint64_t nrows) const;
};

uint32_t
Maker::draw(gen::Stream &random) const
{
	double		u = (double) (random.next() >> 11) * 0x1p-53;
	double		end = (double) vocabulary + 1;
	double		x = exponent == 1 ? std::pow(end, u) :
		std::pow(1 + u * (std::pow(end, 1 - exponent) - 1), 1 / (1 - exponent));
	uint64_t	rank = std::min(std::max((uint64_t) x, (uint64_t) 1), vocabulary);

	if (vocabulary > GPUVEC_MAX_IDS)
		return gen::scatter((uint32_t) rank);
	/* a prime that divides none of the small vocabularies */
	return (uint32_t) (rank * 2654435761u % vocabulary);
}

/* Draw until the set has n ids, or for long enough */
void
Maker::fill(gen::Stream &random, size_t n, Set &set) const
{
	for (size_t draws = 8 * n; set.size() < n && draws > 0;)
	{
		size_t		more = std::min(draws, n - set.size());

		for (size_t i = 0; i < more; i++)
			set.push_back(draw(random));
		draws -= more;
		std::sort(set.begin(), set.end());
		set.erase(std::unique(set.begin(), set.end()), set.end());
	}
}

Set
Maker::row(uint64_t i, uint64_t tag) const
{
	gen::Stream random(seed, tag, i);
	uint32_t	least = (length + 1) / 2;
	Set			set;

	fill(random, least + random.below(length - least + 1), set);
	return set;
}

Set
Maker::query(uint64_t i, uint64_t nrows) const
{
	gen::Stream random(seed, TAG_QUERY, i);
	Set			set;
	size_t		n;

	if (i % 2 == 0)
		return row(i, TAG_QUERY);
	set = row(random.below((uint32_t) nrows));
	n = set.size();
	for (size_t gone = n / 3; gone > 0; gone--)
	{
		std::swap(set[random.below((uint32_t) set.size())], set.back());
		set.pop_back();
	}
	fill(random, n, set);
	return set;
}

/* ---- measuring it ---- */

struct Answer
{
	std::vector<gpuvec_match> matches;
	uint32_t	n = 0;
};

/* A column in a backend, its queries, and how long they took */
struct Trial
{
	const Options &options;
	gpuvec_backend *backend;
	gpuvec_scheduler *scheduler;
	engine_rows::Column column;
	std::vector<engine_rows::Query> queries;
	std::vector<Answer> answers;
	std::vector<double> single[N_METHODS];	/* milliseconds a query, by round */
	std::vector<double> batch[N_METHODS];
	bool		same = true;

	Trial(const Options &options, gpuvec_backend *backend)
		: options(options), backend(backend), scheduler(gpuvec_scheduler_new(backend))
	{
	}
	~Trial()
	{
		gpuvec_scheduler_free(scheduler);
	}
	void		load(const Maker &maker, uint64_t nrows, gpuvec_thread_pool *pool);
	double		search(uint32_t first, uint32_t n, int method);
	void		compare(uint32_t first, const std::vector<gpuvec_topk_query> &requests, int method);
	double		alone(int method);
	void		run(void);
};

/* Make the rows and queries; wait until the backend is ready */
void
Trial::load(const Maker &maker, uint64_t nrows, gpuvec_thread_pool *pool)
{
	for (uint64_t i = 0; i < nrows; i++)
	{
		Set			set = maker.row(i);

		column.add(gpuvec_tid(i / PAGE_ROWS, i % PAGE_ROWS + 1), set.data(), (uint32_t) set.size());
	}
	column.number_ids(pool);
	column.build(backend, pool);
	column.view->costs = gpuvec_method_costs_new();
	for (uint32_t i = 0; i < std::max(options.single, options.batch); i++)
		queries.push_back(column.query(maker.query(i, nrows)));
	answers.resize(queries.size());
	for (uint32_t i = 0; backend->finish_segment && i < column.view->nentries; i++)
		backend->finish_segment(backend, column.view->entries[i].segment);
}

/* The first method's answers are kept, those of others compared with them */
void
Trial::compare(uint32_t first, const std::vector<gpuvec_topk_query> &requests, int method)
{
	for (size_t i = 0; i < requests.size(); i++)
	{
		const gpuvec_topk_query &q = requests[i];
		Answer	   &answer = answers[first + i];

		if (method == 0)
		{
			answer.matches.assign(q.matches, q.matches + q.nmatches);
			answer.n = q.nmatches;
		}
		same &= answer.n == q.nmatches;
		for (uint32_t j = 0; same && j < answer.n; j++)
			same &= answer.matches[j].tid == q.matches[j].tid &&
				answer.matches[j].score == q.matches[j].score &&
				answer.matches[j].common == q.matches[j].common;
	}
}

/* Ask some of the queries together; milliseconds */
double
Trial::search(uint32_t first, uint32_t n, int method)
{
	uint32_t	k = (uint32_t) std::min<uint64_t>(options.k, column.view->nrows);
	std::vector<gpuvec_match> matches((size_t) n * k);
	std::vector<gpuvec_topk_query> requests(n);
	gpuvec_error error = {};
	double		start;
	double		ms;

	for (uint32_t i = 0; i < n; i++)
	{
		queries[first + i].ask(&requests[i]);
		requests[i].k = k;
		requests[i].matches = &matches[(size_t) i * k];
	}
	start = now_ms();
	if (!gpuvec_scheduler_topk(scheduler, column.view, &SCORING, methods[method], requests.data(), n,
							   &error))
		die(error);
	ms = now_ms() - start;
	compare(first, requests, method);
	return ms;
}

/* The mean of single queries */
double
Trial::alone(int method)
{
	double		sum = 0;

	for (uint32_t i = 0; i < options.single; i++)
		sum += search(i, 1, method);
	return sum / options.single;
}

/* All methods in turn, after the engine has learned */
void
Trial::run(void)
{
	double		end;

	(void) search(0, options.batch, 0);
	for (int i = 0; i < LEARN_SEARCHES; i++)
	{
		(void) search(i % options.single, 1, N_METHODS - 1);
		(void) search(0, options.batch, N_METHODS - 1);
	}
	end = now_ms() + options.seconds * 1000;
	for (int round = 0; round < 4 || now_ms() < end; round++)
		for (int m = 0; m < N_METHODS; m++)
		{
			single[m].push_back(alone(m));
			batch[m].push_back(search(0, options.batch, m) / options.batch);
		}
}

/* ---- the table ---- */

/* How the choice did in all columns */
struct Summary
{
	double		limit = 0;
	double		worst = 0;
	int			slow = 0;
	int			n = 0;
};

/* Cells of one way of asking */
static void
print_times(const std::vector<double> *times, Summary &summary)
{
	double		better = std::min(median(times[0]), median(times[1]));
	double		ratio = median(times[2]) / better;

	for (int m = 0; m < N_METHODS; m++)
		printf(" %.4f |", median(times[m]));
	printf(" %.2f |", ratio);
	summary.worst = std::max(summary.worst, ratio);
	summary.slow += ratio > summary.limit;
	summary.n++;
}

/* One column; false if its answers differ */
static bool
try_column(const Options &options, gpuvec_backend *backend, gpuvec_thread_pool *pool,
		   const Maker &maker, Summary *summaries)
{
	uint64_t	nrows = std::min<uint64_t>(options.rows, options.max_ids / maker.length);
	Trial		trial(options, backend);
	uint64_t	cold = 0;

	nrows = std::max<uint64_t>(nrows, 1);
	trial.load(maker, nrows, pool);
	trial.run();
	for (uint32_t i = 0; i < trial.column.view->nentries; i++)
		cold += trial.column.view->entries[i].segment->ncold;
	printf("| %" PRIu64 " | %g | %u | %" PRIu64 " | %.1f | %.2f |", maker.vocabulary, maker.exponent,
		   maker.length, nrows, (double) trial.column.view->nids / (double) nrows,
		   (double) cold / (double) std::max<uint64_t>(trial.column.view->nids, 1));
	print_times(trial.single, summaries[0]);
	print_times(trial.batch, summaries[1]);
	printf("%s\n", trial.same ? "" : " DIFFERENT ANSWERS |");
	fflush(stdout);
	return trial.same;
}

/* All columns; rows that want more ids than there are, are left out */
static bool
try_all(const Options &options, gpuvec_backend *backend, gpuvec_thread_pool *pool,
		Summary *summaries)
{
	bool		same = true;

	for (double vocabulary : options.vocabularies)
		for (double exponent : options.exponents)
			for (double length : options.lengths)
			{
				Maker		maker = {options.seed, (uint64_t) vocabulary, exponent, (uint32_t) length};

				if (length * 2 > vocabulary)
					continue;
				same = try_column(options, backend, pool, maker, summaries) && same;
			}
	return same;
}

/* ---- options ---- */

/* Numbers with commas between them, if the option is there */
static void
parse_list(int argc, char **argv, const char *name, std::vector<double> *list)
{
	const char *at = gen::opt(argc, argv, name);
	char	   *end;

	if (at == nullptr)
		return;
	for (list->clear();; at = end + 1)
	{
		list->push_back(strtod(at, &end));
		if (end == at || (*end != ',' && *end != '\0'))
			die("a list is not understood");
		if (*end == '\0')
			return;
	}
}

static Options
parse_options(int argc, char **argv)
{
	Options		options;
	const char *backend = gen::opt(argc, argv, "--backend");

	options.cuda = backend && !strcmp(backend, "cuda");
	if (backend && !options.cuda && strcmp(backend, "cpu") != 0)
		die("--backend must be cpu or cuda");
	options.backend.threads = (int) bench::number_option(argc, argv, "--threads", 0);
	options.backend.simd = (int) bench::number_option(argc, argv, "--simd", 0);
	options.backend.device = (int) bench::number_option(argc, argv, "--device", 0);
	options.rows = (uint64_t) bench::number_option(argc, argv, "--rows", (double) options.rows);
	options.max_ids = (uint64_t) bench::number_option(argc, argv, "--max-ids", (double) options.max_ids);
	options.single = (uint32_t) bench::number_option(argc, argv, "--single", options.single);
	options.batch = (uint32_t) bench::number_option(argc, argv, "--batch", options.batch);
	options.k = (uint32_t) bench::number_option(argc, argv, "--k", options.k);
	options.seconds = bench::number_option(argc, argv, "--seconds", options.seconds);
	options.seed = (uint64_t) bench::number_option(argc, argv, "--seed", (double) options.seed);
	parse_list(argc, argv, "--vocab", &options.vocabularies);
	parse_list(argc, argv, "--zipf", &options.exponents);
	parse_list(argc, argv, "--length", &options.lengths);
	for (double length : options.lengths)
		if (!(length >= 1 && length <= GPUVEC_MAX_IDS / 2))
			die("--length must be 1 .. 32768");
	for (double vocabulary : options.vocabularies)
		if (!(vocabulary >= 2 && vocabulary <= 1e9))
			die("--vocab must be 2 .. 1000000000");
	if (options.rows < 1 || options.single < 1 || options.batch < 1 || options.k < 1 ||
		options.k > GPUVEC_MAX_K)
		die("--rows, --single, --batch or --k is out of range");
	return options;
}

int
main(int argc, char **argv)
{
	Options		options = parse_options(argc, argv);
	Summary		summaries[2];
	gpuvec_backend_info info = {};
	gpuvec_error error = {};
	gpuvec_backend *backend = options.cuda ?
		gpuvec_cuda_open(&options.backend, &error) : gpuvec_cpu_open(&options.backend, &error);
	gpuvec_thread_pool *pool = gpuvec_thread_pool_new(options.backend.threads);
	bool		same;

	if (backend == nullptr)
		die(error);
	if (pool == nullptr)
		die("there are no threads");
	backend->info(backend, &info);
	printf("%s (%s), %d threads; milliseconds a query, alone and in batches of %u, k = %u\n\n",
		   info.name, info.device, info.threads, options.batch, options.k);
	puts("| vocabulary | Zipf | length | rows | ids | cold | alone: bitset | inverted | auto | "
		 "auto / better | batch: bitset | inverted | auto | auto / better |\n"
		 "|---|---|---|---|---|---|---|---|---|---|---|---|---|---|");
	for (int i = 0; i < 2; i++)
		summaries[i].limit = TOO_SLOW[i];
	same = try_all(options, backend, pool, summaries);
	for (int i = 0; i < 2; i++)
		printf("%s%s: auto / better is %.2f at most, above %.1f in %d of %d columns\n",
			   i == 0 ? "\n" : "", ways[i], summaries[i].worst, TOO_SLOW[i], summaries[i].slow,
			   summaries[i].n);
	gpuvec_thread_pool_free(pool);
	backend->close(backend);
	return same ? 0 : 1;
}
