/*-------------------------------------------------------------------------
 *
 * bench_overlaps.cpp
 *	  How long it takes to count the rows that pairs of sets match, without
 *	  PostgreSQL.
 *
 * Rows are users with 15 to 30 of --traits traits each, drawn from the density
 * x^-0.75.  Audiences are sets of 1 to 8 traits, drawn uniformly; a user is in
 * one by any of them.  The engine counts the users of all pairs of audiences.
 *
 * Beside it, the same pairs by bitmaps of users that are there already, on one
 * core: by Roaring bitmaps (roaring_bitmap_and_cardinality; if built with
 * them), and by plain ones, word by word.  The engine's pairs are compared
 * with the latter: all of them, or --check where that would take long.
 *
 *	bench_overlaps --backend cpu|cuda	which backend; default cpu
 *		--rows N		1000000
 *		--audiences N	1000
 *		--traits N		3000
 *		--repeats N		7; the median is printed
 *		--check N		pairs that are compared, 0: all; default 0
 *		--threads T, --device D	see bench_engine
 *		--seed S
 *
 * Output: one "name <tab> value" line for each number.  Exit status 1 if a
 * pair differs, 2 on any other error.
 *
 *-------------------------------------------------------------------------
 */
#include "core/overlaps.h"
#include "setgen.h"
#include "engine_rows.h"

#ifdef HAVE_ROARING
#include <roaring/roaring.h>
#endif

using bench::die;
using bench::now_ms;
using bench::report;

/* Rows that share a made-up heap page */
static const uint64_t PAGE_ROWS = 256;

/* Streams of setgen.h */
enum { TAG_USER = 201, TAG_AUDIENCE = 202, TAG_CHECK = 203 };

struct Options
{
	bool		cuda = false;
	gpuvec_backend_options backend = {};
	uint64_t	rows = 1000000;
	uint32_t	audiences = 1000;
	uint32_t	traits = 3000;
	int			repeats = 7;
	uint64_t	check = 0;
	uint64_t	seed = 12345;
};

typedef std::vector<uint32_t> Set;

/* Bits of users, one vector for each audience */
struct Bitmaps
{
	size_t		words;
	std::vector<uint64_t> bits;

	Bitmaps(uint64_t rows, uint32_t n) : words((rows + 63) / 64), bits(words * n)
	{
	}
	uint64_t *of(uint32_t audience)
	{
		return &bits[words * audience];
	}
	uint64_t common(uint32_t a, uint32_t b)
	{
		const uint64_t *x = of(a);
		const uint64_t *y = of(b);
		uint64_t	n = 0;

		for (size_t i = 0; i < words; i++)
			n += (uint64_t) __builtin_popcountll(x[i] & y[i]);
		return n;
	}
};

static Set
distinct(Set set)
{
	std::sort(set.begin(), set.end());
	set.erase(std::unique(set.begin(), set.end()), set.end());
	return set;
}

static Set
draw_user(const Options &options, uint64_t i)
{
	gen::Stream random(options.seed, TAG_USER, i);
	uint32_t	n = 15 + random.below(16);
	double		end = std::pow((double) options.traits + 1, 0.25);
	Set			set;

	while (n-- > 0)
	{
		double		u = (double) (random.next() >> 11) * 0x1p-53;
		double		x = std::pow(1 + u * (end - 1), 4);
		uint64_t	rank = std::min<uint64_t>((uint64_t) x, options.traits);

		set.push_back((uint32_t) (rank * 2654435761u % options.traits));
	}
	return distinct(set);
}

static Set
draw_audience(const Options &options, uint64_t i)
{
	gen::Stream random(options.seed, TAG_AUDIENCE, i);
	uint32_t	n = 1 + random.below(8);
	Set			set;

	while (n-- > 0)
		set.push_back(random.below(options.traits));
	return distinct(set);
}

/* What is counted, by the engine and by bitmaps */
struct Trial
{
	const Options &options;
	std::vector<Set> audiences;
	engine_rows::Column column;
	Bitmaps		bitmaps;
	std::vector<uint64_t> pairs;

	Trial(const Options &options)
		: options(options), bitmaps(options.rows, options.audiences),
		  pairs(gpuvec_overlap_pairs(options.audiences))
	{
	}
	void		load(gpuvec_backend *backend, gpuvec_thread_pool *pool);
	double		count(gpuvec_backend *backend);
	double		count_plain(uint64_t *different);
	double		count_roaring();
};

void
Trial::load(gpuvec_backend *backend, gpuvec_thread_pool *pool)
{
	std::vector<Set> of(options.traits);

	for (uint32_t a = 0; a < options.audiences; a++)
	{
		audiences.push_back(draw_audience(options, a));
		for (uint32_t trait : audiences.back())
			of[trait].push_back(a);
	}
	for (uint64_t i = 0; i < options.rows; i++)
	{
		Set			user = draw_user(options, i);

		column.add(gpuvec_tid(i / PAGE_ROWS, i % PAGE_ROWS + 1), user.data(), (uint32_t) user.size());
		for (uint32_t trait : user)
			for (uint32_t a : of[trait])
				bitmaps.of(a)[i / 64] |= UINT64_C(1) << i % 64;
	}
	column.number_ids(pool);
	column.build(backend, pool);
	for (uint32_t i = 0; backend->finish_segment && i < column.view->nentries; i++)
		backend->finish_segment(backend, column.view->entries[i].segment);
}

/* All pairs by the engine: the median of some times, in milliseconds */
double
Trial::count(gpuvec_backend *backend)
{
	std::vector<engine_rows::Query> queries;
	std::vector<gpuvec_topk_query> requests(options.audiences);
	std::vector<uint8_t> pages(options.rows / PAGE_ROWS / 4 + 8, 0x55);
	std::vector<double> times;
	int			canceled = 0;

	for (const Set &audience : audiences)
		queries.push_back(column.query(audience));
	for (uint32_t a = 0; a < options.audiences; a++)
		queries[a].ask(&requests[a]);
	for (int i = 0; i < options.repeats; i++)
	{
		gpuvec_overlaps overlaps = {};
		gpuvec_error error = {};
		double		start = now_ms();

		std::fill(pairs.begin(), pairs.end(), 0);
		overlaps.queries = requests.data();
		overlaps.n = options.audiences;
		overlaps.counts.bits = pages.data();
		overlaps.counts.bytes = pages.size();
		overlaps.canceled = &canceled;
		overlaps.pairs = pairs.data();
		if (!backend->overlaps(backend, column.view, &overlaps, &error))
			die(error);
		times.push_back(now_ms() - start);
		if (overlaps.ntids > 0)
			die("a row was not counted");
	}
	return bench::median(times);
}

/* All pairs by plain bitmaps, or some; in how many these differ */
double
Trial::count_plain(uint64_t *different)
{
	gen::Stream random(options.seed, TAG_CHECK, 0);
	double		start = now_ms();

	*different = 0;
	for (uint64_t i = 0; i < options.check; i++)
	{
		uint32_t	a = random.below(options.audiences);
		uint32_t	b = a + random.below(options.audiences - a);

		*different += pairs[gpuvec_overlap_pair(options.audiences, a) + b - a] != bitmaps.common(a, b);
	}
	for (uint32_t a = 0; options.check == 0 && a < options.audiences; a++)
		for (uint32_t b = a; b < options.audiences; b++)
			*different += pairs[gpuvec_overlap_pair(options.audiences, a) + b - a] != bitmaps.common(a, b);
	return now_ms() - start;
}

#ifdef HAVE_ROARING
double
Trial::count_roaring()
{
	std::vector<roaring_bitmap_t *> roaring;
	uint64_t	different = 0;
	double		start;
	double		ms;

	for (uint32_t a = 0; a < options.audiences; a++)
	{
		roaring.push_back(roaring_bitmap_create());
		for (uint64_t i = 0; i < options.rows; i++)
			if (bitmaps.of(a)[i / 64] >> i % 64 & 1)
				roaring_bitmap_add(roaring.back(), (uint32_t) i);
		roaring_bitmap_run_optimize(roaring.back());
	}
	start = now_ms();
	for (uint32_t a = 0; a < options.audiences; a++)
		for (uint32_t b = a; b < options.audiences; b++)
			different += pairs[gpuvec_overlap_pair(options.audiences, a) + b - a] !=
				roaring_bitmap_and_cardinality(roaring[a], roaring[b]);
	ms = now_ms() - start;
	for (roaring_bitmap_t *bitmap : roaring)
		roaring_bitmap_free(bitmap);
	if (different > 0)
		die("Roaring bitmaps differ");
	return ms;
}
#endif

static Options
parse_options(int argc, char **argv)
{
	Options		options;
	const char *backend = gen::opt(argc, argv, "--backend");

	options.cuda = backend && !strcmp(backend, "cuda");
	if (backend && !options.cuda && strcmp(backend, "cpu") != 0)
		die("--backend must be cpu or cuda");
	options.backend.threads = (int) bench::number_option(argc, argv, "--threads", 0);
	options.backend.device = (int) bench::number_option(argc, argv, "--device", 0);
	options.rows = (uint64_t) bench::number_option(argc, argv, "--rows", (double) options.rows);
	options.audiences = (uint32_t) bench::number_option(argc, argv, "--audiences", options.audiences);
	options.traits = (uint32_t) bench::number_option(argc, argv, "--traits", options.traits);
	options.repeats = (int) bench::number_option(argc, argv, "--repeats", options.repeats);
	options.check = (uint64_t) bench::number_option(argc, argv, "--check", (double) options.check);
	options.seed = (uint64_t) bench::number_option(argc, argv, "--seed", (double) options.seed);
	if (options.rows < 1 || options.rows > UINT32_MAX || options.audiences < 1 ||
		options.audiences > GPUVEC_MOST_OVERLAPS || options.traits < 2 ||
		options.traits > GPUVEC_MAX_ID || options.repeats < 1)
		die("--rows, --audiences, --traits or --repeats is out of range");
	return options;
}

int
main(int argc, char **argv)
{
	Options		options = parse_options(argc, argv);
	Trial		trial(options);
	gpuvec_error error = {};
	gpuvec_backend *backend = options.cuda ?
		gpuvec_cuda_open(&options.backend, &error) : gpuvec_cpu_open(&options.backend, &error);
	gpuvec_thread_pool *pool = gpuvec_thread_pool_new(options.backend.threads);
	uint64_t	different;
	double		ms;
	double		users = 0;

	if (backend == nullptr)
		die(error);
	if (pool == nullptr)
		die("there are no threads");
	trial.load(backend, pool);
	ms = trial.count(backend);
	for (uint32_t a = 0; a < options.audiences; a++)
		users += (double) trial.pairs[gpuvec_overlap_pair(options.audiences, a)] / options.audiences;
	report("rows", (double) options.rows, 0);
	report("audiences", options.audiences, 0);
	report("users_of_an_audience", users, 0);
	report("engine_ms", ms, 1);
	ms = trial.count_plain(&different);
	report(options.check > 0 ? "plain_bitmaps_ms_of_checked" : "plain_bitmaps_ms", ms, 1);
#ifdef HAVE_ROARING
	if (options.check == 0)
		report("roaring_ms", trial.count_roaring(), 1);
#endif
	report("different", (double) different, 0);
	trial.column.release();
	gpuvec_thread_pool_free(pool);
	backend->close(backend);
	return different > 0;
}
