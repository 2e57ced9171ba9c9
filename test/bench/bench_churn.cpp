/*-------------------------------------------------------------------------
 *
 * bench_churn.cpp
 *	  What becomes of a mirror under a flood of small updates, without
 *	  PostgreSQL.
 *
 * Loads the documents as pages of --page-rows rows into the engine's store.
 * Then one thread replaces the rows of random pages, in refreshes of 1 to
 * --most-pages pages, as fast as it can or --rate times a second, and another
 * thread searches.  Each sample has the number of segments, the share of dead
 * rows, and the mirror's bytes divided by those after the load.
 *
 * At the end the mirror is compared with what it should hold: its number of
 * rows, and with --check the whole answers of some queries with a loop over
 * all rows.  Then the churn stops, and a second later the figures "rest_..."
 * are taken.
 *
 * Output: one "name <tab> value" line for each number.  Exit status 1 if a
 * check fails, 2 on any other error.
 *
 *-------------------------------------------------------------------------
 */
#include <chrono>
#include <malloc.h>
#include <numeric>
#include <unistd.h>

#include "setgen.h"
#include "bench_lib.h"
#include "core/measure.h"

/* headers of C only */
#define restrict __restrict
extern "C"
{
#include "engine/embedding/embedding_mirror.h"
#include "engine/host_memory.h"
#include "engine/sets/sets_mirror.h"
#include "engine/store/mirror_update.h"
}

static const gpuvec_scoring SCORING = {GPUVEC_BRAUN_BLANQUET, {}, 0};

struct Options
{
	gen::Config config;
	const char *backend = "cpu";
	double		seconds = 30;
	double		rate = 0;			/* refreshes a second; 0: as fast as possible */
	uint64_t	page_rows = 30;
	uint64_t	most_pages = 40;	/* of a refresh */
	uint32_t	k = 100;
	bool		check = false;
};

using bench::die;
using bench::now_ms;
using bench::report;

/* The table: row i has the ids of a document */
struct Table
{
	std::vector<uint64_t> start;	/* of documents */
	std::vector<uint16_t> ids;
	std::vector<uint32_t> doc;		/* [rows] the document of each row */
	uint64_t	page_rows;

	uint64_t
	pages() const
	{
		return (doc.size() + page_rows - 1) / page_rows;
	}
};

static double
percentile(std::vector<double> values, double part)
{
	if (values.empty())
		return 0;
	std::sort(values.begin(), values.end());
	return values[(size_t) (part * (double) (values.size() - 1))];
}

/* Processor time of this thread: it hardly depends on who else is at work */
static double
cpu_ms(void)
{
	struct timespec t;

	clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
	return (double) t.tv_sec * 1000 + (double) t.tv_nsec / 1000000;
}

/* Processor time of all threads */
static double
all_cpu_ms(void)
{
	struct timespec t;

	clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
	return (double) t.tv_sec * 1000 + (double) t.tv_nsec / 1000000;
}

/* Milliseconds of searches or updates: elapsed, and of the thread */
struct Times
{
	std::vector<double> ms;
	std::vector<double> cpu;
};

/* Resident memory of this process, in bytes */
static double
resident(void)
{
	FILE	   *f = fopen("/proc/self/statm", "r");
	unsigned long pages = 0;

	if (f == nullptr || fscanf(f, "%*u %lu", &pages) != 1)
		die("could not read /proc/self/statm");
	fclose(f);
	return (double) pages * (double) sysconf(_SC_PAGESIZE);
}

/* Append a page as the protocol has it */
static void
add_page(std::vector<char> &to, const Table &table, uint64_t block)
{
	uint64_t	first = block * table.page_rows;
	uint64_t	last = std::min<uint64_t>(first + table.page_rows, table.doc.size());
	size_t		at = to.size();
	gpuvec_page head = {};

	to.resize(at + sizeof(head));
	for (uint64_t i = first; i < last; i++)
	{
		const uint16_t *ids = &table.ids[table.start[table.doc[i]]];
		gpuvec_row	row = {};
		size_t		end = to.size();

		row.line = (uint16_t) (i - first + 1);
		row.len = (uint32_t) (table.start[table.doc[i] + 1] - table.start[table.doc[i]]);
		to.resize(end + gpuvec_row_bytes(row.form, row.len));
		memcpy(&to[end], &row, sizeof(row));
		memcpy(&to[end + sizeof(row)], ids, row.len * sizeof(uint16_t));
	}
	head.block = (uint32_t) block;
	head.nrows = (uint32_t) (last - first);
	head.bytes = (uint32_t) (to.size() - at - sizeof(head));
	memcpy(&to[at], &head, sizeof(head));
}

/* A store with one mirror */
struct Mirror
{
	gpuvec_store store;
	gpuvec_mirror_key key = {};
	gpuvec_state state = {};

	explicit Mirror(const Options &options);
	void		update(const Table &table, const std::vector<uint32_t> *blocks);
	gpuvec_sets_reader open();
	gpuvec_mirror_info info();
};

Mirror::Mirror(const Options &options)
{
	static const gpuvec_mirror_kinds kinds = {&gpuvec_sets_kind, &gpuvec_embedding_kind};
	gpuvec_engine_options wanted = {};

	snprintf(wanted.backend, sizeof(wanted.backend), "%s", options.backend);
	wanted.ndevices = 1;
	wanted.cpu_threads = options.config.threads;
	key.database = key.relation = key.relfilenumber = 1;
	if (!gpuvec_store_open(&store, &wanted, &kinds) || !gpuvec_merger_start(&store))
		die("could not open the store");
}

/* Load all pages, or refresh some of them, ascending */
void
Mirror::update(const Table &table, const std::vector<uint32_t> *blocks)
{
	gpuvec_error error = {};
	gpuvec_load load = {};
	gpuvec_commit commit = {};
	std::vector<char> message;
	uint64_t	n = blocks ? blocks->size() : table.pages();
	gpuvec_update *update;

	load.key = key;
	load.nblocks = commit.nblocks = (uint32_t) table.pages();
	update = gpuvec_update_begin(&store, &key, blocks ? nullptr : &load, this, &error);
	if (update == nullptr)
		die(error.message);
	for (uint64_t i = 0; i < n; i++)
	{
		add_page(message, table, blocks ? (*blocks)[i] : i);
		if (i + 1 < n && message.size() < 1000000)
			continue;
		if (!gpuvec_update_pages(update, message.data(), message.size(), false, &error))
			die(error.message);
		message.clear();
	}
	if (!gpuvec_update_commit(update, &commit, &state, &error))
		die(error.message);
	gpuvec_merger_wake(&store);
	gpuvec_memory_prepare();
}

gpuvec_sets_reader
Mirror::open()
{
	gpuvec_sets_reader reader;
	gpuvec_sets_need need = {};

	gpuvec_sets_open(&store, &key, this, &need, 1, &reader);
	if (reader.view == nullptr)
		die("the mirror is gone");
	return reader;
}

gpuvec_mirror_info
Mirror::info()
{
	size_t		n;
	gpuvec_mirror_info *list = gpuvec_store_list(&store, &n);
	gpuvec_mirror_info first;

	if (n != 1)
		die("the mirror is gone");
	first = *list;
	free(list);
	return first;
}

/* Live rows divided by all rows of the mirror's segments */
static double
dead_share(Mirror &mirror)
{
	gpuvec_sets_reader reader = mirror.open();
	uint64_t	rows = 0;
	uint64_t	live = reader.view->nrows;

	for (uint32_t i = 0; i < reader.view->nentries; i++)
		rows += reader.view->entries[i].segment->nrows;
	gpuvec_sets_close(&reader);
	return rows > 0 ? 1 - (double) live / (double) rows : 0;
}

typedef std::vector<gpuvec_match> Matches;

/* The answer to one query */
static void
search(Mirror &mirror, const std::vector<uint16_t> &ids, uint32_t k, Matches &matches, Times &times)
{
	gpuvec_sets_reader reader = mirror.open();
	gpuvec_backend *backend = reader.device->backend;
	gpuvec_topk_query query = {};
	gpuvec_error error = {};
	double		start;
	double		cpu;

	matches.resize(std::min<uint64_t>(k, reader.view->nrows));
	query.ids = ids.data();
	query.len = (uint32_t) ids.size();
	query.k = k;
	query.matches = matches.data();
	start = now_ms();
	cpu = cpu_ms();
	if (!backend->topk(backend, reader.view, &SCORING, GPUVEC_METHOD_AUTO, &query, 1, &error))
		die(error.message);
	times.ms.push_back(now_ms() - start);
	times.cpu.push_back(cpu_ms() - cpu);
	gpuvec_sets_close(&reader);
	matches.resize(query.nmatches);
}

/* Search until told to stop */
static Times
search_on(Mirror &mirror, const std::vector<std::vector<uint16_t>> &queries, uint32_t k,
		  const std::atomic<bool> &stop)
{
	Times		times;
	Matches		matches;

	for (size_t i = 0; !stop; i++)
		search(mirror, queries[i % queries.size()], k, matches, times);
	return times;
}

/* What is sampled while pages are replaced */
struct Samples
{
	std::vector<double> segments;
	std::vector<double> dead;
	std::vector<double> bytes;
	std::vector<double> resident;
	Times		updates;
	double		cpu = 0;			/* processor time of the background, ms */
	uint64_t	rows = 0;			/* replaced */
	double		seconds = 0;
};

static void
sample(Mirror &mirror, double fresh, Samples &samples)
{
	gpuvec_mirror_info info = mirror.info();

	samples.segments.push_back(info.nsegments);
	samples.dead.push_back(dead_share(mirror));
	samples.bytes.push_back((double) (info.host_bytes + info.device_bytes) / fresh);
	samples.resident.push_back(resident());
}

/* Give the rows of random pages other documents; the pages, ascending */
static std::vector<uint32_t>
change(Table &table, gen::Stream &random, uint64_t most)
{
	std::vector<uint32_t> blocks(1 + random.below((uint32_t) most));

	for (uint32_t &block : blocks)
		block = random.below((uint32_t) table.pages());
	std::sort(blocks.begin(), blocks.end());
	blocks.erase(std::unique(blocks.begin(), blocks.end()), blocks.end());
	for (uint32_t block : blocks)
		for (uint64_t i = block * table.page_rows;
			 i < std::min<uint64_t>((block + 1) * table.page_rows, table.doc.size()); i++)
			table.doc[i] = random.below((uint32_t) table.doc.size());
	return blocks;
}

static Samples
churn(Mirror &mirror, Table &table, const Options &options, double fresh)
{
	Samples		samples;
	gen::Stream random(options.config.seed, 77, 0);
	double		cpu_before = all_cpu_ms() - cpu_ms();
	double		start = now_ms();
	double		next_sample = start;
	double		now;

	for (uint64_t n = 0; (now = now_ms()) < start + options.seconds * 1000; n++)
	{
		std::vector<uint32_t> blocks = change(table, random, options.most_pages);
		double		begin = now_ms();
		double		cpu = cpu_ms();

		mirror.update(table, &blocks);
		samples.updates.ms.push_back(now_ms() - begin);
		samples.updates.cpu.push_back(cpu_ms() - cpu);
		samples.rows += blocks.size() * table.page_rows;
		if (now >= next_sample)
		{
			sample(mirror, fresh, samples);
			next_sample += 50;
		}
		while (options.rate > 0 && now_ms() < start + (double) (n + 1) * 1000 / options.rate)
			usleep(200);
	}
	samples.seconds = (now - start) / 1000;
	samples.cpu = all_cpu_ms() - cpu_ms() - cpu_before;
	return samples;
}

static void
report_range(const char *name, const std::vector<double> &values, int decimals)
{
	std::string prefix = name;

	report((prefix + "_p50").c_str(), percentile(values, 0.5), decimals);
	report((prefix + "_p99").c_str(), percentile(values, 0.99), decimals);
	report((prefix + "_max").c_str(), percentile(values, 1), decimals);
}

/* The k best scores for a query, by a loop over all rows */
static std::vector<double>
best_scores(const Table &table, const std::vector<uint16_t> &query, uint32_t k)
{
	static uint8_t in_query[GPUVEC_MAX_IDS];
	std::vector<double> scores;

	for (uint16_t id : query)
		in_query[id] = 1;
	for (uint32_t doc : table.doc)
	{
		uint32_t	common = 0;

		for (uint64_t i = table.start[doc]; i < table.start[doc + 1]; i++)
			common += in_query[table.ids[i]];
		if (common > 0)
			scores.push_back(gpuvec_score_with(SCORING, {common, (uint32_t) query.size(),
											   (uint32_t) (table.start[doc + 1] - table.start[doc])}));
	}
	for (uint16_t id : query)
		in_query[id] = 0;
	std::sort(scores.begin(), scores.end(), std::greater<double>());
	scores.resize(std::min<size_t>(k, scores.size()));
	return scores;
}

/* Is the mirror a copy of the table? */
static bool
check(Mirror &mirror, const Table &table, const Options &options,
	  const std::vector<std::vector<uint16_t>> &queries)
{
	bool		good = mirror.info().nrows == table.doc.size();

	for (size_t i = 0; options.check && i < std::min<size_t>(20, queries.size()); i++)
	{
		std::vector<double> truth = best_scores(table, queries[i], options.k);
		Matches		matches;
		Times		times;

		search(mirror, queries[i], options.k, matches, times);
		good = good && matches.size() == truth.size();
		for (size_t j = 0; good && j < truth.size(); j++)
			good = matches[j].score == truth[j];
	}
	printf("answers\t%s\n", good ? "right" : "WRONG");
	return good;
}

static Table
make_table(const Options &options)
{
	gen::Config make = options.config;
	Table		table;
	uint64_t	n = make.n_docs;
	uint64_t	step = (uint64_t) (0.6180339887498949 * (double) n) | 1;

	make.threads = 0;
	gen::Generator(make).docs_csr(table.start, table.ids);
	table.page_rows = options.page_rows;
	table.doc.resize(n);
	while (std::gcd(step, n) != 1)
		step += 2;
	for (uint64_t i = 0; i < n; i++)
		table.doc[i] = (uint32_t) (i * step % n);
	return table;
}

static Options
parse_options(int argc, char **argv)
{
	Options		options;
	const char *value;

	options.config = gen::parse(argc, argv);
	if ((value = gen::opt(argc, argv, "--backend")) != nullptr)
		options.backend = value;
	if ((value = gen::opt(argc, argv, "--seconds")) != nullptr)
		options.seconds = atof(value);
	if ((value = gen::opt(argc, argv, "--rate")) != nullptr)
		options.rate = atof(value);
	if ((value = gen::opt(argc, argv, "--page-rows")) != nullptr)
		options.page_rows = strtoull(value, nullptr, 10);
	if ((value = gen::opt(argc, argv, "--most-pages")) != nullptr)
		options.most_pages = strtoull(value, nullptr, 10);
	if ((value = gen::opt(argc, argv, "--k")) != nullptr)
		options.k = (uint32_t) strtoul(value, nullptr, 10);
	options.check = std::any_of(argv + 1, argv + argc, [](const char *arg) { return !strcmp(arg, "--check"); });
	if (options.config.n_docs == 0 || options.config.n_queries == 0 || options.page_rows == 0 ||
		options.page_rows > 255 || options.most_pages == 0)
		die("there must be documents, queries and pages");
	return options;
}

/* The mirror before the churn: what it takes, and how fast it is searched */
static double
report_fresh(Mirror &mirror, const std::vector<std::vector<uint16_t>> &queries, const Options &options)
{
	gpuvec_mirror_info info = mirror.info();
	Times		times;
	double		fresh = (double) (info.host_bytes + info.device_bytes);
	Matches		matches;

	sleep(2);					/* lists are built in the background */
	for (const std::vector<uint16_t> &query : queries)
		search(mirror, query, options.k, matches, times);
	report("fresh_segments", info.nsegments, 0);
	report("fresh_bytes", fresh, 0);
	report("fresh_resident", resident(), 0);
	report_range("fresh_search_ms", times.ms, 3);
	report_range("fresh_search_cpu_ms", times.cpu, 3);
	return fresh;
}

int
main(int argc, char **argv)
{
	Options		options = parse_options(argc, argv);
	Table		table = make_table(options);
	std::vector<std::vector<uint16_t>> queries = gen::Generator(options.config).queries();
	std::atomic<bool> stop(false);
	Times		times;
	Samples		samples;
	double		fresh;
	bool		good;

	mallopt(M_MMAP_THRESHOLD, 4 * 1024 * 1024);		/* as the engine does */
	mallopt(M_TRIM_THRESHOLD, 8 * 1024 * 1024);
	mallopt(M_TOP_PAD, 1024 * 1024);
	mallopt(M_ARENA_MAX, 4);

	Mirror		mirror(options);

	report("before_resident", resident(), 0);
	mirror.update(table, nullptr);
	fresh = report_fresh(mirror, queries, options);

	std::thread	searcher([&] { times = search_on(mirror, queries, options.k, stop); });

	samples = churn(mirror, table, options, fresh);
	stop = true;
	searcher.join();
	report("updates_per_s", (double) samples.updates.ms.size() / samples.seconds, 1);
	report("rows_per_s", (double) samples.rows / samples.seconds, 0);
	report_range("update_ms", samples.updates.ms, 3);
	report_range("update_cpu_ms", samples.updates.cpu, 3);
	for (double ms : times.cpu)
		samples.cpu -= ms;
	report("background_cpu_us_per_row", samples.cpu * 1000 / (double) samples.rows, 2);
	report_range("segments", samples.segments, 0);
	report_range("dead_share", samples.dead, 3);
	report_range("bytes_of_fresh", samples.bytes, 3);
	report_range("resident", samples.resident, 0);
	report("searches_per_s", (double) times.ms.size() / samples.seconds, 1);
	report_range("search_ms", times.ms, 3);
	report_range("search_cpu_ms", times.cpu, 3);
	good = check(mirror, table, options, queries);
	sleep(1);
	samples = Samples();
	sample(mirror, fresh, samples);
	report("rest_segments", samples.segments[0], 0);
	report("rest_dead_share", samples.dead[0], 3);
	report("rest_bytes_of_fresh", samples.bytes[0], 3);
	report("rest_resident", samples.resident[0], 0);
	fflush(stdout);
	_exit(good ? 0 : 1);
}
