/*-------------------------------------------------------------------------
 *
 * bench_lib.h
 *	  What benchmarks of the engine alone share: options, output, documents'
 *	  tids, building a view, medians, and comparing answers.
 *
 * Document p gets a tid that grows with p, so that ties go to the smaller p,
 * as the reference checksums want it.
 *
 *-------------------------------------------------------------------------
 */
#ifndef GPUVEC_BENCH_LIB_H
#define GPUVEC_BENCH_LIB_H

#include <algorithm>
#include <chrono>
#include <cinttypes>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <sstream>
#include <string>
#include <vector>

#include <errno.h>

#include "setgen.h"
#include "checksum.h"
#include "core/bounds.h"
#include "engine/backend.h"

extern "C"
{
#include "engine/shards/shards.h"
}

namespace bench
{

/* Documents that share a made-up heap page */
static const uint64_t PAGE_DOCS = 256;

/* Queries that are asked one at a time */
static const uint64_t SINGLE = 64;

typedef std::vector<gpuvec_match> Matches;

inline double
now_ms(void)
{
	using namespace std::chrono;

	return duration<double, std::milli>(steady_clock::now().time_since_epoch()).count();
}

inline void
report(const std::string &name, double value, int decimals)
{
	printf("%s\t%.*f\n", name.c_str(), decimals, value);
	fflush(stdout);
}

/* The number that an option has, or another one */
inline double
number_option(int argc, char **argv, const char *name, double otherwise)
{
	const char *value = gen::opt(argc, argv, name);

	return value ? atof(value) : otherwise;
}

[[noreturn]] inline void
die(const char *what)
{
	fprintf(stderr, "%s: %s\n", program_invocation_short_name, what);
	exit(2);
}

[[noreturn]] inline void
die(const gpuvec_error &error)
{
	fprintf(stderr, "%s: %s\n", program_invocation_short_name, error.message);
	if (error.detail[0])
		fprintf(stderr, "DETAIL:  %s\n", error.detail);
	if (error.hint[0])
		fprintf(stderr, "HINT:  %s\n", error.hint);
	exit(2);
}

inline double
median(std::vector<double> values)
{
	std::sort(values.begin(), values.end());
	return values.size() % 2 ? values[values.size() / 2] :
		(values[values.size() / 2 - 1] + values[values.size() / 2]) / 2;
}

inline uint64_t
position_tid(uint64_t position)
{
	return gpuvec_tid(position / PAGE_DOCS, position % PAGE_DOCS + 1);
}

inline uint64_t
tid_position(uint64_t tid)
{
	return gpuvec_tid_block(tid) * PAGE_DOCS + gpuvec_tid_line(tid) - 1;
}

/* ---- options ---- */

inline bool
has_flag(int argc, char **argv, const char *name)
{
	return std::any_of(argv + 1, argv + argc, [&](const char *arg) { return !strcmp(arg, name); });
}

/* --backend: true if it is cuda */
inline bool
wants_cuda(int argc, char **argv)
{
	const char *value = gen::opt(argc, argv, "--backend");

	if (value != nullptr && strcmp(value, "cuda") != 0 && strcmp(value, "cpu") != 0)
		die("--backend must be cpu or cuda");
	return value != nullptr && !strcmp(value, "cuda");
}

/* --k */
inline uint32_t
parse_k(int argc, char **argv, const char *standard)
{
	const char *value = gen::opt(argc, argv, "--k");
	uint32_t	k = (uint32_t) strtoul(value ? value : standard, nullptr, 10);

	if (k < 1 || k > GPUVEC_MAX_K)
		die("--k is out of range");
	return k;
}

/* ---- the engine ---- */

/* Open a backend, and print what it is */
inline gpuvec_backend *
open_backend(bool cuda, const gpuvec_backend_options &wanted)
{
	gpuvec_backend_info info = {};
	gpuvec_error error = {};
	gpuvec_backend *backend = cuda ? gpuvec_cuda_open(&wanted, &error) : gpuvec_cpu_open(&wanted, &error);

	if (backend == nullptr)
		die(error);
	backend->info(backend, &info);
	printf("backend\t%s\ndevice\t%s\nthreads\t%d\n", info.name, info.device, info.threads);
	return backend;
}

/*
 * Open the GPUs of a list, "0,1", as one backend, over which rows are spread;
 * print what it is.  devices gets the GPUs.
 */
inline gpuvec_backend *
open_devices(const std::string &list, std::vector<gpuvec_backend *> &devices)
{
	std::vector<size_t> budgets;
	std::stringstream numbers(list);
	gpuvec_error error = {};
	gpuvec_backend *backend;

	for (std::string number; std::getline(numbers, number, ',');)
	{
		gpuvec_backend_options options = {};

		options.device = atoi(number.c_str());
		devices.push_back(open_backend(true, options));
		budgets.push_back(1);
	}
	if (devices.size() == 1)
		return devices[0];
	backend = gpuvec_shards_open(devices.data(), budgets.data(), (int) devices.size(), false, &error);
	if (backend == nullptr)
		die(error);
	printf("devices\t%zu\n", devices.size());
	return backend;
}

/*
 * Build the segments of n sorted rows and hand them to the backend, several
 * at a time.  build(first, count, error) makes that of some rows.
 */
template <class Build>
gpuvec_view *
build_view(gpuvec_backend *backend, uint64_t nrows, int threads, Build build)
{
	uint64_t	n = (nrows + GPUVEC_SEGMENT_ROWS - 1) / GPUVEC_SEGMENT_ROWS;
	std::vector<gpuvec_view_entry> entries(n);
	gpuvec_error error = {};
	gpuvec_view *view;

	gen::parallel_chunks(n, 1, threads, [&](uint64_t begin, uint64_t, int) {
		uint64_t	first = begin * GPUVEC_SEGMENT_ROWS;
		uint64_t	count = std::min<uint64_t>(GPUVEC_SEGMENT_ROWS, nrows - first);
		gpuvec_error failed = {};

		entries[begin] = {};
		entries[begin].segment = build(first, (uint32_t) count, &failed);
		if (entries[begin].segment == nullptr ||
			!backend->adopt_segment(backend, entries[begin].segment, &failed))
			die(failed);
	});
	view = gpuvec_view_new(entries.data(), (uint32_t) n, &error);
	if (view == nullptr || !backend->adopt_view(backend, view, &error))
		die(error);
	return view;
}

/* Bytes of all segments, on the host and on the device */
inline uint64_t
mirror_bytes(const gpuvec_view *view)
{
	uint64_t	bytes = 0;

	for (uint32_t i = 0; i < view->nentries; i++)
		bytes += view->entries[i].segment->host_bytes + view->entries[i].segment->device_bytes;
	return bytes;
}

/*
 * Median time of a search, which returns milliseconds.  The first two runs
 * only warm up, unless there is no time for more.
 */
template <class Search>
double
measure(double seconds, Search search)
{
	const size_t warm = 2;
	std::vector<double> times;
	double		end = now_ms() + seconds * 1000;

	while (times.size() < 400 && (times.empty() || now_ms() < end))
		times.push_back(search());
	if (times.size() > warm)
		times.erase(times.begin(), times.begin() + warm);
	return median(times);
}

/*
 * Median time of each of the first queries of n, asked one at a time by
 * search(number).  They are asked in turn, so that none finds its own traces
 * in the caches; bench.sh does the same through SQL.
 */
template <class Search>
std::vector<double>
measure_single(double seconds, size_t n, Search search)
{
	std::vector<double> medians;
	std::vector<std::vector<double>> times;
	double		end;

	n = std::min<size_t>(SINGLE, n);
	times.resize(n);
	for (size_t j = 0; j < std::min<size_t>(10, n); j++)
		search(j);
	end = now_ms() + seconds * 1000;
	for (size_t round = 0; round == 0 || (round < 20 && now_ms() < end); round++)
		for (size_t j = 0; j < n; j++)
			times[j].push_back(search(j));
	for (const std::vector<double> &one : times)
		medians.push_back(median(one));
	return medians;
}

/* Print the median of these times, and each of them */
inline void
report_single(const std::string &name, const std::vector<double> &single)
{
	report(name + "_ms_1", median(single), 3);
	printf("%s_ms_each\t", name.c_str());
	for (double ms : single)
		printf("%.3f ", ms);
	printf("\n");
}

/* ---- checks ---- */

inline bool
match_before(const gpuvec_match &a, const gpuvec_match &b)
{
	return a.score != b.score ? a.score > b.score : a.tid < b.tid;
}

/* The k best of rows that come in ascending order of tids */
class Best
{
public:
	explicit Best(uint32_t k) : k(k) {}

	bool
	wants(double score) const
	{
		return heap.size() < k || score > heap[0].score;
	}
	void
	add(const gpuvec_match &match)
	{
		if (heap.size() == k)
		{
			std::pop_heap(heap.begin(), heap.end(), match_before);
			heap.pop_back();
		}
		heap.push_back(match);
		std::push_heap(heap.begin(), heap.end(), match_before);
	}
	/* All of them, best first; none are left */
	Matches
	take(void)
	{
		std::sort_heap(heap.begin(), heap.end(), match_before);
		return std::move(heap);
	}

private:
	uint32_t	k;
	Matches		heap;			/* its worst match in front */
};

/* Is the answer to query j, of n rows, what is expected, to the last bit? */
inline bool
same_answer(uint64_t j, const Matches &answer, uint32_t n, const Matches &expected)
{
	if (n != expected.size())
	{
		fprintf(stderr, "%s: query %" PRIu64 ": %u results, expected %zu\n",
				program_invocation_short_name, j, n, expected.size());
		return false;
	}
	for (uint32_t i = 0; i < n; i++)
	{
		const gpuvec_match &a = answer[i];
		const gpuvec_match &b = expected[i];

		if (memcmp(&a.score, &b.score, sizeof(a.score)) == 0 && a.tid == b.tid && a.common == b.common)
			continue;
		fprintf(stderr, "%s: query %" PRIu64 ", rank %u: document %" PRIu64
				" score %.17g common %u, expected %" PRIu64 " %.17g %u\n",
				program_invocation_short_name, j, i + 1, tid_position(a.tid), a.score, a.common,
				tid_position(b.tid), b.score, b.common);
		return false;
	}
	return true;
}

/* Check some of n queries, spread evenly, for so many seconds */
template <class Check>
bool
check_some(const std::string &prefix, uint64_t n, double seconds, Check check)
{
	uint64_t	checked = 0;
	uint64_t	wrong = 0;
	double		end = now_ms() + seconds * 1000;

	for (uint64_t step = std::max<uint64_t>(1, n / 64), j = 0;
		 j < n && (checked < 4 || now_ms() < end); j += step, checked++)
		wrong += !check(j);
	report(prefix + "checked_queries", (double) checked, 0);
	report(prefix + "wrong_queries", (double) wrong, 0);
	return wrong == 0;
}

/*
 * Print the checksums of all answers; false if there is a reference and they
 * differ from it
 */
template <class R>
bool
check_sums(const std::vector<Matches> &answers, const std::vector<gpuvec_topk_query> &requests,
		   const R *reference)
{
	Checksum	sum;
	bool		same;

	for (size_t j = 0; j < answers.size(); j++)
		for (uint32_t i = 0; i < requests[j].nmatches; i++)
			sum.add(tid_position(answers[j][i].tid), answers[j][i].score);
	printf("checksum\t%" PRIu64 " %.9f %016" PRIx64 "\n",
		   sum.index_sum, sum.score_sum, sum.index_fnv);
	same = reference == nullptr || matches_reference(sum, *reference);
	printf("reference\t%s\n", reference == nullptr ? "none" : same ? "equal" : "DIFFERENT");
	return same;
}

}	/* namespace bench */

#endif							/* GPUVEC_BENCH_LIB_H */
