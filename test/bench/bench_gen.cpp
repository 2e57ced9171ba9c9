/*-------------------------------------------------------------------------
 *
 * bench_gen.cpp
 *	  Writes the benchmark's documents and queries for COPY, and checks what a
 *	  search returned.
 *
 *	bench_gen docs     ...	rows (id bigint, tokens idset), binary COPY format
 *	bench_gen queries  ...	the same, for the queries
 *	bench_gen literals ...	the queries as text, one "{...}" a line
 *	bench_gen checksum ...	reads "position <tab> score" lines, best first,
 *	query
 *							by query, and prints index_sum, score_sum,
 *							index_fnv
 *
 * Options are setgen.h's (--mode, --n-docs, --n-queries, --seed, --vocab,
 * --zipf, --threads), and
 *	--order position|random	  order of the rows of "docs"; the id is the
 *							  document's position either way
 *	--ids int4				  write integer arrays instead of idset
 *	--k K					  "checksum": results per query, default 100
 *
 * Rows are made by several threads in chunks, which one thread writes in
 * order.
 *
 *-------------------------------------------------------------------------
 */
#include <condition_variable>
#include <mutex>
#include <numeric>
#include <unistd.h>

#include "setgen.h"
#include "checksum.h"

/* Documents of one chunk, and how many chunks may wait to be written */
static const uint64_t CHUNK_DOCS = 8192;
static const uint64_t WINDOW = 64;

static const uint32_t INT4OID = 23;

typedef std::vector<uint8_t> Buffer;

static void
die(const char *message)
{
	fprintf(stderr, "bench_gen: %s\n", message);
	exit(2);
}

static void
write_all(const uint8_t *data, size_t size)
{
	while (size > 0)
	{
		ssize_t		n = write(STDOUT_FILENO, data, size);

		if (n < 0)
		{
			perror("bench_gen: could not write");
			exit(2);
		}
		data += n;
		size -= (size_t) n;
	}
}

/* Append a big-endian integer of the given number of bytes */
static void
put_int(Buffer &out, uint64_t value, int bytes)
{
	for (int shift = 8 * (bytes - 1); shift >= 0; shift -= 8)
		out.push_back((uint8_t) (value >> shift));
}

/*
 * Append a COPY field with an idset in its binary format: ids of 2 bytes, or
 * if one of them is larger, of 4 bytes and with their number negated
 */
template <class Id>
static void
put_idset(Buffer &out, const Id *ids, int n)
{
	bool		wide = n > 0 && ids[n - 1] > 65535;
	int			width = wide ? 4 : 2;

	put_int(out, 4 + width * (uint64_t) n, 4);
	put_int(out, (uint32_t) (wide ? -n : n), 4);
	for (int i = 0; i < n; i++)
		put_int(out, ids[i], width);
}

/* Append a COPY field with an int4[] in its binary format */
template <class Id>
static void
put_int4_array(Buffer &out, const Id *ids, int n)
{
	put_int(out, n == 0 ? 12 : 20 + 8 * (uint64_t) n, 4);
	put_int(out, n == 0 ? 0 : 1, 4);
	put_int(out, 0, 4);
	put_int(out, INT4OID, 4);
	if (n == 0)
		return;
	put_int(out, (uint64_t) n, 4);
	put_int(out, 1, 4);
	for (int i = 0; i < n; i++)
	{
		put_int(out, 4, 4);
		put_int(out, ids[i], 4);
	}
}

template <class Id>
static void
put_row(Buffer &out, uint64_t id, const Id *ids, int n, bool int4)
{
	put_int(out, 2, 2);
	put_int(out, 8, 4);
	put_int(out, id, 8);
	if (int4)
		put_int4_array(out, ids, n);
	else
		put_idset(out, ids, n);
}

static void
write_header(void)
{
	static const uint8_t header[19] = {'P', 'G', 'C', 'O', 'P', 'Y', '\n', 0xFF, '\r', '\n', 0};

	write_all(header, sizeof(header));
}

static void
write_trailer(void)
{
	static const uint8_t trailer[2] = {0xFF, 0xFF};

	write_all(trailer, sizeof(trailer));
}

/* A bijection of 0 .. n-1 that leaves no trace of the order by length */
struct Scramble
{
	uint64_t	n;
	uint64_t	step;

	explicit Scramble(uint64_t n) : n(n), step((uint64_t) (0.6180339887498949 * (double) n) | 1)
	{
		while (n > 0 && std::gcd(step, n) != 1)
			step += 2;
	}
	uint64_t
	operator()(uint64_t i) const
	{
		return (uint64_t) ((unsigned __int128) i * step % n);
	}
};

/*
 * Chunks on their way from the threads that make them to the one that writes
 */
struct Pipeline
{
	std::mutex	lock;
	std::condition_variable changed;
	uint64_t	next = 0;			/* chunk that no thread has taken yet */
	uint64_t	written = 0;		/* chunks written */
	Buffer		slots[WINDOW];
	bool		full[WINDOW] = {};
};

/* Make chunks until there are no more */
template <class Id>
static void
make_chunks(Pipeline &pipe, const gen::Generator &generator, bool random, bool int4)
{
	uint64_t	n_docs = generator.c.n_docs;
	Scramble	scramble(n_docs);
	typename gen::SetOf<Id>::type set;
	Id			ids[256];

	for (;;)
	{
		Buffer		out;
		uint64_t	chunk;

		{
			std::unique_lock<std::mutex> guard(pipe.lock);

			chunk = pipe.next++;
			if (chunk * CHUNK_DOCS >= n_docs)
				return;
			pipe.changed.wait(guard, [&] { return chunk < pipe.written + WINDOW; });
		}
		for (uint64_t i = chunk * CHUNK_DOCS; i < std::min(n_docs, (chunk + 1) * CHUNK_DOCS); i++)
		{
			uint64_t	position = random ? scramble(i) : i;

			put_row(out, position, ids, generator.doc(position, ids, set), int4);
		}
		std::lock_guard<std::mutex> guard(pipe.lock);

		pipe.slots[chunk % WINDOW].swap(out);
		pipe.full[chunk % WINDOW] = true;
		pipe.changed.notify_all();
	}
}

template <class Id>
static void
write_docs(const gen::Generator &generator, bool random, bool int4)
{
	uint64_t	n_chunks = (generator.c.n_docs + CHUNK_DOCS - 1) / CHUNK_DOCS;
	std::vector<std::thread> threads;
	Pipeline	pipe;

	for (int t = 0; t < gen::n_threads(generator.c.threads); t++)
		threads.emplace_back([&] { make_chunks<Id>(pipe, generator, random, int4); });
	write_header();
	for (uint64_t chunk = 0; chunk < n_chunks; chunk++)
	{
		Buffer		out;

		{
			std::unique_lock<std::mutex> guard(pipe.lock);

			pipe.changed.wait(guard, [&] { return pipe.full[chunk % WINDOW]; });
			out.swap(pipe.slots[chunk % WINDOW]);
			pipe.full[chunk % WINDOW] = false;
			pipe.written++;
			pipe.changed.notify_all();
		}
		write_all(out.data(), out.size());
	}
	write_trailer();
	for (std::thread &thread : threads)
		thread.join();
}

template <class Id>
static void
write_queries(const gen::Generator &generator, bool int4)
{
	std::vector<std::vector<Id>> queries = generator.queries<Id>();
	Buffer		out;

	write_header();
	for (size_t j = 0; j < queries.size(); j++)
		put_row(out, j, queries[j].data(), (int) queries[j].size(), int4);
	write_all(out.data(), out.size());
	write_trailer();
}

template <class Id>
static void
write_literals(const gen::Generator &generator)
{
	for (const std::vector<Id> &query : generator.queries<Id>())
	{
		for (size_t i = 0; i < query.size(); i++)
			printf("%c%u", i == 0 ? '{' : ',', query[i]);
		printf("%s}\n", query.empty() ? "{" : "");
	}
}

/* Exit status 1 if there is a reference and the input differs from it */
static int
check_results(const gen::Config &config, uint64_t k)
{
	const Reference *reference = find_reference(config, k);
	Checksum	sum;
	uint64_t	position;
	double		score;
	int			n;

	while ((n = scanf("%" SCNu64 " %lf", &position, &score)) == 2)
		sum.add(position, score);
	if (n != EOF)
		die("the input is not \"position score\" lines");
	printf("%" PRIu64 " %.9f %016" PRIx64 "\n", sum.index_sum, sum.score_sum, sum.index_fnv);
	return reference != nullptr && !matches_reference(sum, *reference);
}

/* Write what the first argument says; false: it says nothing known */
template <class Id>
static bool
write_data(const std::string &what, const gen::Config &config, bool random, bool int4)
{
	if (what == "docs")
		write_docs<Id>(gen::Generator(config), random, int4);
	else if (what == "queries")
		write_queries<Id>(gen::Generator(config), int4);
	else if (what == "literals")
		write_literals<Id>(gen::Generator(config));
	else
		return false;
	return true;
}

int
main(int argc, char **argv)
{
	gen::Config config = gen::parse(argc, argv);
	const char *order = gen::opt(argc, argv, "--order");
	const char *type = gen::opt(argc, argv, "--ids");
	const char *k = gen::opt(argc, argv, "--k");
	std::string what = argc > 1 ? argv[1] : "";
	bool		random = order && !strcmp(order, "random");
	bool		int4 = type && !strcmp(type, "int4");

	if (what == "checksum")
		return check_results(config, k ? strtoull(k, nullptr, 10) : 100);
	if (int4 && config.wide())
		die("ids of mode D are no int4");
	if (!(config.wide() ? write_data<uint32_t>(what, config, random, int4) :
		  write_data<uint16_t>(what, config, random, int4)))
		die("the first argument must be docs, queries, literals or checksum");
	return 0;
}
