/*-------------------------------------------------------------------------
 *
 * cuda_bench.cpp
 *	  Times searches of the CUDA backend on synthetic data
 *	  (test/bench/setgen.h),
 *	  and compares checksums with known results.
 *
 *		cuda_bench --mode A --n-docs 8500000 [--batches 2000,16,1] [--k 100]
 *				   [--repeat 5] [--sweep "growth=16;method=1,grab=8"] [--build
 *				   list_shift=16] [--devices 0,1] [--counts 1,2,8]
 *
 * Generates and uploads once, then times every setting of --sweep (the names
 * are fields of gpuvec_search_policy, and method), beginning with the
 * defaults.  The settings of --build hold while segments are made.  With
 * --devices, rows are spread over these GPUs, and the numbers of rounds and
 * overflows are those of the first one.  Rows of mode D get numbers for their
 * ids (engine_rows.h); it takes a backend that searches cold numbers.
 *
 * With --counts, the rows are counted that share at least so many ids with the
 * first query, then those that share one with its first, middle or last id,
 * and then all rows, as a filter that all pass asks for.  The rows of all
 * pages are counted, then those of every other page, then of none: the tids of
 * the others are listed.  Then those of all pages are grouped by their ids.
 *
 *-------------------------------------------------------------------------
 */
#include <algorithm>
#include <atomic>
#include <chrono>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <string>
#include <thread>
#include <vector>

#include "../bench/bench_lib.h"
#include "../bench/engine_rows.h"
#include "kernels/search/search_policy.h"

using bench::now_ms;
using bench::position_tid;
using bench::tid_position;

static gpuvec_backend *backend;
static std::vector<gpuvec_backend *> gpus;	/* that it is made of */
static gpuvec_search_policy defaults;	/* of the backend */
static gpuvec_method method;

static const gpuvec_scoring SCORING = {GPUVEC_BRAUN_BLANQUET, {}, 0};

static void
die(const char *what, const gpuvec_error *error)
{
	fprintf(stderr, "%s: %s %s (%s) (%s)\n", what, error->sqlstate, error->message,
			error->detail, error->hint);
	exit(1);
}

/* Generate and upload one segment; documents come in order of length */
static gpuvec_segment *
make_segment(const gen::Generator &generator, uint64_t from, uint64_t to)
{
	std::vector<uint16_t> ids((to - from) * 128);
	std::vector<gpuvec_source_row> rows(to - from);
	gen::IdSet	set;
	gpuvec_error error;
	gpuvec_segment *segment;

	for (uint64_t p = from; p < to; p++)
	{
		gpuvec_source_row *row = &rows[p - from];
		uint16_t   *at = &ids[(p - from) * 128];

		row->tid = position_tid(p);
		row->len = generator.doc(p, at, set);
		row->ids = at;
	}
	segment = gpuvec_segment_build(rows.data(), rows.size(), gpuvec_row_kind{}, &error);
	if (segment == NULL)
		die("gpuvec_segment_build", &error);
	if (!backend->adopt_segment(backend, segment, &error))
		die("adopt_segment", &error);
	return segment;
}

/* All documents of mode D, with numbers for their ids */
static gpuvec_view *
make_wide_view(const gen::Generator &generator, engine_rows::Column &column)
{
	gpuvec_thread_pool *pool = gpuvec_thread_pool_new(generator.c.threads);
	uint64_t	n = generator.c.n_docs;
	std::vector<uint32_t> ids(GPUVEC_SEGMENT_ROWS * 256);
	std::vector<uint32_t> len(GPUVEC_SEGMENT_ROWS);
	double		start = now_ms();

	for (uint64_t begin = 0; begin < n; begin += GPUVEC_SEGMENT_ROWS)
	{
		uint64_t	rows = std::min(n - begin, (uint64_t) GPUVEC_SEGMENT_ROWS);

		gen::parallel_chunks(rows, 1024, generator.c.threads, [&] (uint64_t from, uint64_t to, int)
			{
				gen::WideSet set;

				for (uint64_t i = from; i < to; i++)
					len[i] = generator.doc(begin + i, &ids[i * 256], set);
			});
		for (uint64_t i = 0; i < rows; i++)
			column.add(position_tid(begin + i), &ids[i * 256], len[i]);
	}
	printf("made and staged in %.0f ms\n", now_ms() - start);
	start = now_ms();
	column.number_ids(pool);
	printf("numbered in %.0f ms\n", now_ms() - start);
	column.build(backend, pool);
	gpuvec_thread_pool_free(pool);
	return gpuvec_view_ref(column.view);
}

/* The queries, with numbers for their ids */
template <class Id>
static std::vector<engine_rows::Query>
make_queries(const gen::Generator &generator, const engine_rows::Column &column)
{
	std::vector<engine_rows::Query> queries;

	for (const std::vector<Id> &ids : generator.queries<Id>())
		queries.push_back(column.query(ids));
	return queries;
}

/* All documents, made by all cores */
static gpuvec_view *
make_view(const gen::Generator &generator)
{
	uint64_t	n = generator.c.n_docs;
	uint64_t	nsegments = (n + GPUVEC_SEGMENT_ROWS - 1) / GPUVEC_SEGMENT_ROWS;
	std::vector<gpuvec_view_entry> entries(nsegments);
	gpuvec_error error;
	gpuvec_view *view;

	gen::parallel_chunks(nsegments, 1, generator.c.threads, [&] (uint64_t from, uint64_t to, int)
		{
			for (uint64_t s = from; s < to; s++)
			{
				entries[s].segment = make_segment(generator, s * GPUVEC_SEGMENT_ROWS,
												  std::min(n, (s + 1) * GPUVEC_SEGMENT_ROWS));
				entries[s].live = NULL;
			}
		});
	view = gpuvec_view_new(entries.data(), nsegments, &error);
	if (view == NULL)
		die("gpuvec_view_new", &error);
	if (!backend->adopt_view(backend, view, &error))
		die("adopt_view", &error);
	return view;
}

/* GPU memory that the segments take */
static size_t
device_bytes(const gpuvec_view *view)
{
	size_t		bytes = 0;

	for (uint32_t s = 0; s < view->nentries; s++)
		bytes += view->entries[s].segment->device_bytes;
	return bytes;
}

/* Time the first n queries, and print checksums of their results */
static bool
measure(const gen::Config &config, const gpuvec_view *view,
		const std::vector<engine_rows::Query> &sets, uint64_t n, uint32_t k, int repeat)
{
	std::vector<gpuvec_match> matches(n * k);
	std::vector<gpuvec_topk_query> queries(n);
	std::vector<double> times;
	Checksum	sum;
	gen::Config same = config;
	const Reference *reference;
	gpuvec_search_stats stats;
	bool		ok;

	for (int i = 0; i <= repeat; i++)
	{
		gpuvec_error error;
		double		start;

		for (uint64_t q = 0; q < n; q++)
		{
			sets[q].ask(&queries[q]);
			queries[q].k = k;
			queries[q].matches = &matches[q * k];
		}
		start = now_ms();
		if (!backend->topk(backend, view, &SCORING, method, queries.data(), n, &error))
			die("topk", &error);
		if (i > 0)
			times.push_back(now_ms() - start);
	}
	for (uint64_t q = 0; q < n; q++)
		for (uint32_t i = 0; i < queries[q].nmatches; i++)
			sum.add(tid_position(queries[q].matches[i].tid), queries[q].matches[i].score);
	std::sort(times.begin(), times.end());
	stats = gpuvec_search_last(gpus[0]);
	printf("  %6" PRIu64 " queries: median %9.3f ms (%.3f to %.3f), %u rounds, %u overflows, %u bits, %u planes\n",
		   n, times[times.size() / 2], times.front(), times.back(), stats.rounds,
		   stats.overflows, stats.entry_bits, stats.planes);
	printf("          index_sum %" PRIu64 " score_sum %.9f index_fnv %016" PRIx64,
		   sum.index_sum, sum.score_sum, sum.index_fnv);
	same.n_queries = n;
	reference = find_reference(same, k);
	ok = reference == nullptr || matches_reference(sum, *reference);
	printf(" %s\n", reference == nullptr ? "(no reference)" : ok ? "ok" : "WRONG");
	fflush(stdout);
	return ok;
}

/*
 * Pages whose rows are counted: all, every other one, or none; and are they
 * grouped by their ids?
 */
static const struct
{
	const char *name;
	uint8_t		bits;			/* of four pages */
	bool		by_ids;
}			page_kinds[] = {{"all", 0x55, false}, {"half", 0x11, false}, {"none", 0, false}, {"ids", 0x55, true}};

/* What a query that counts rows asks for */
struct CountedQuery
{
	std::string name;
	engine_rows::Query set;
	gpuvec_measure measure;
	uint32_t	least;			/* common ids; 0: any number */
};

/* Queries as --counts asks for them */
static std::vector<CountedQuery>
counted_queries(const engine_rows::Query &set, const std::vector<std::string> &least)
{
	std::vector<CountedQuery> queries;

	for (const std::string &text : least)
		queries.push_back({text + " ids at least", set, GPUVEC_INTERSECTION, (uint32_t) atoi(text.c_str())});
	for (size_t i = 0; i < 3 && set.hot.size() > 2; i++)
	{
		engine_rows::Query one;

		one.hot = {set.hot[i * (set.hot.size() - 1) / 2]};
		queries.push_back({"id " + std::to_string(one.hot[0]), one, GPUVEC_INTERSECTION, 1});
	}
	queries.push_back({"all rows", engine_rows::Query(), GPUVEC_HAMMING, 0});
	return queries;
}

/*
 * Time a query that counts rows of some pages.  Returns how many rows it has
 * counted and listed.
 */
static uint64_t
time_count(const gpuvec_view *view, const CountedQuery &counted, const char *name,
		   const std::vector<uint8_t> &pages, bool by_ids, int repeat)
{
	static const gpuvec_grouping grouping = {1, 0, {GPUVEC_GROUPED_IDS}, 0, 0};
	gpuvec_scoring scoring = {counted.measure, {}, 0};
	gpuvec_topk_query query;
	std::vector<double> times;
	uint64_t	rows = 0;

	for (int i = 0; i <= repeat; i++)
	{
		gpuvec_error error;
		double		start;

		counted.set.ask(&query);
		query.k = UINT32_MAX;
		query.unordered = query.bare = true;
		query.has_min_score = counted.least > 0;
		query.min_score = counted.least;
		query.counts = {pages.data(), pages.size()};
		query.grouping = by_ids ? &grouping : NULL;
		start = now_ms();
		if (!backend->topk(backend, view, &scoring, method, &query, 1, &error))
			die("topk", &error);
		if (i > 0)
			times.push_back(now_ms() - start);
		rows = query.counted == GPUVEC_NOT_COUNTED ? UINT64_MAX : query.counted + query.nmatches;
		if (i < repeat)
			gpuvec_free_unordered(&query);
	}
	std::sort(times.begin(), times.end());
	printf("  %-16s pages %-4s: median %7.3f ms (%.3f to %.3f), %" PRIu64 " rows counted, %u listed, %u groups%s\n",
		   counted.name.c_str(), name, times[times.size() / 2], times.front(), times.back(),
		   rows == UINT64_MAX ? 0 : query.counted, query.nmatches,
		   query.groups ? query.groups->n : 0, rows == UINT64_MAX ? " (NOT COUNTED)" : "");
	fflush(stdout);
	gpuvec_free_unordered(&query);
	return rows;
}

/* Time counts of one query; false: the kinds of pages have different sums */
static bool
measure_counts(const gpuvec_view *view, const engine_rows::Query &set,
			   const std::vector<std::string> &least, int repeat)
{
	bool		ok = true;

	for (const CountedQuery &query : counted_queries(set, least))
	{
		uint64_t	rows[4];

		for (int kind = 0; kind < 4; kind++)
		{
			uint32_t	blocks = gpuvec_tid_block(position_tid(view->nrows)) + 1;
			std::vector<uint8_t> pages((blocks + 31) / 32 * 8, page_kinds[kind].bits);

			rows[kind] = time_count(view, query, page_kinds[kind].name, pages, page_kinds[kind].by_ids, repeat);
		}
		if (rows[0] != rows[1] || rows[0] != rows[2] || rows[0] != rows[3] ||
			(query.least == 0 && rows[0] != view->nrows))
		{
			printf("  WRONG\n");
			ok = false;
		}
	}
	return ok;
}

/* "growth=8,grab=4" */
static gpuvec_search_policy
parse_policy(const std::string &text)
{
	static const struct
	{
		const char *name;
		uint32_t	gpuvec_search_policy::*field;
	}			fields[] = {
		{"chunk_queries", &gpuvec_search_policy::chunk_queries},
		{"candidates", &gpuvec_search_policy::candidates},
		{"candidates_few", &gpuvec_search_policy::candidates_few},
		{"candidates_per_k", &gpuvec_search_policy::candidates_per_k},
		{"retry_candidates", &gpuvec_search_policy::retry_candidates},
		{"retry_per_k", &gpuvec_search_policy::retry_per_k},
		{"entry_bits", &gpuvec_search_policy::entry_bits},
		{"least_planes", &gpuvec_search_policy::least_planes},
		{"growth", &gpuvec_search_policy::growth},
		{"growth_few", &gpuvec_search_policy::growth_few},
		{"first_rows", &gpuvec_search_policy::first_rows},
		{"first_per_k", &gpuvec_search_policy::first_per_k},
		{"item_tiles", &gpuvec_search_policy::item_tiles},
		{"grab", &gpuvec_search_policy::grab},
		{"list_rows", &gpuvec_search_policy::list_rows},
		{"list_shift", &gpuvec_search_policy::list_shift},
		{"sample_tiled", &gpuvec_search_policy::sample_tiled},
		{"sample_whole", &gpuvec_search_policy::sample_whole},
		{"sample_rows", &gpuvec_search_policy::sample_rows},
		{"near_part", &gpuvec_search_policy::near_fraction},
		{"near_queries", &gpuvec_search_policy::near_queries},
		{"item_queries", &gpuvec_search_policy::item_queries},
		{"whole_item_queries", &gpuvec_search_policy::whole_item_queries},
		{"direct_queries", &gpuvec_search_policy::direct_queries},
		{"lone_queries", &gpuvec_search_policy::lone_queries},
		{"scan_above", &gpuvec_search_policy::scan_above},
		{"scan_below", &gpuvec_search_policy::scan_below},
		{"dense_ids", &gpuvec_search_policy::dense_ids},
		{"dense_rows", &gpuvec_search_policy::dense_rows},
		{"dense_part", &gpuvec_search_policy::dense_fraction},
		{"dense_first_rows", &gpuvec_search_policy::dense_first_rows},
		{"dense_growth", &gpuvec_search_policy::dense_growth},
		{"dense_unit", &gpuvec_search_policy::dense_unit},
		{"dense_queries", &gpuvec_search_policy::dense_queries},
		{"dense_products", &gpuvec_search_policy::dense_products},
		{"dense_bytes", &gpuvec_search_policy::dense_bytes},
		{"scan_lookups", &gpuvec_search_policy::scan_lookups},
		{"id_counters", &gpuvec_search_policy::id_counters},
		{"id_blocks", &gpuvec_search_policy::id_blocks},
		{"decode_rows", &gpuvec_search_policy::decode_rows},
		{"decode_queries", &gpuvec_search_policy::decode_queries},
	};
	gpuvec_search_policy policy = defaults;

	method = GPUVEC_METHOD_AUTO;
	for (size_t at = 0; at < text.size();)
	{
		size_t		end = std::min(text.find(',', at), text.size());
		size_t		equals = text.find('=', at);
		bool		known = false;

		for (const auto &f : fields)
			if (equals < end && text.compare(at, equals - at, f.name) == 0)
			{
				policy.*f.field = atoi(text.c_str() + equals + 1);
				known = true;
			}
		if (equals < end && text.compare(at, equals - at, "list_parts") == 0)
		{
			for (uint32_t &part : policy.list_fractions)
				part = atoi(text.c_str() + equals + 1);
			known = true;
		}
		if (equals < end && text.compare(at, equals - at, "method") == 0)
		{
			method = (gpuvec_method) atoi(text.c_str() + equals + 1);
			known = true;
		}
		if (!known)
		{
			fprintf(stderr, "unknown setting: %s\n", text.substr(at, end - at).c_str());
			exit(1);
		}
		at = end + 1;
	}
	return policy;
}

/* Cut a string at a separator */
static std::vector<std::string>
split(const std::string &text, char separator)
{
	std::vector<std::string> parts;
	size_t		at = 0;
	size_t		end;

	while ((end = text.find(separator, at)) != std::string::npos)
	{
		parts.push_back(text.substr(at, end - at));
		at = end + 1;
	}
	parts.push_back(text.substr(at));
	return parts;
}

static void
set_policy(const gpuvec_search_policy &policy)
{
	for (gpuvec_backend *gpu : gpus)
		gpuvec_search_policy_set(gpu, &policy);
}

int
main(int argc, char **argv)
{
	const char *devices = gen::opt(argc, argv, "--devices");
	gen::Config config = gen::parse(argc, argv);
	const char *batches = gen::opt(argc, argv, "--batches");
	const char *sweep = gen::opt(argc, argv, "--sweep");
	const char *counts = gen::opt(argc, argv, "--counts");
	uint32_t	k = gen::opt(argc, argv, "--k") ? atoi(gen::opt(argc, argv, "--k")) : 100;
	int			repeat = gen::opt(argc, argv, "--repeat") ? atoi(gen::opt(argc, argv, "--repeat")) : 5;
	std::vector<std::string> settings = {""};
	gpuvec_backend_info info;
	gpuvec_view *view;
	double		start;
	bool		ok = true;

	if (sweep)
		for (const std::string &s : split(sweep, ';'))
			settings.push_back(s);
	start = now_ms();
	backend = bench::open_devices(devices ? devices : "0", gpus);
	defaults = gpuvec_search_policy_get(gpus[0]);
	backend->info(backend, &info);
	printf("%s, opened in %.0f ms\n", info.device, now_ms() - start);

	if (gen::opt(argc, argv, "--build"))
	{
		set_policy(parse_policy(gen::opt(argc, argv, "--build")));
	}
	start = now_ms();
	gen::Generator generator(config);

	engine_rows::Column column;

	view = config.wide() ? make_wide_view(generator, column) : make_view(generator);
	printf("mode %c: %" PRIu64 " rows, %" PRIu64 " ids, made and uploaded in %.0f ms, %.2f times the bytes of the ids\n",
		   config.mode, view->nrows, view->nids, now_ms() - start, device_bytes(view) / (2.0 * view->nids));
	fflush(stdout);

	std::vector<engine_rows::Query> sets = config.wide() ?
		make_queries<uint32_t>(generator, column) : make_queries<uint16_t>(generator, column);

	for (const std::string &setting : settings)
	{
		set_policy(parse_policy(setting));
		printf(" %s\n", setting.empty() ? "defaults" : setting.c_str());
		for (const std::string &batch : split(batches ? batches : "2000,16,3,1", ','))
			ok &= measure(config, view, sets,
						  std::min((uint64_t) sets.size(), (uint64_t) atoll(batch.c_str())), k,
						  repeat);
		if (counts)
			ok &= measure_counts(view, sets[0], split(counts, ','), repeat);
	}
	gpuvec_view_unref(view);
	column.release();
	backend->close(backend);
	return ok ? 0 : 1;
}
