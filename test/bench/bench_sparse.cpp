/*-------------------------------------------------------------------------
 *
 * bench_sparse.cpp
 *	  Writes sparse vectors and queries for COPY, and checks what a search
 *	  returned.
 *
 *	bench_sparse rows N					rows (id bigint, terms idvec), binary
 *	bench_sparse queries N ZQ			the same of queries
 *	bench_sparse checksum N QUERIES K ZQ	reads "row score" lines, best
 *										first, query by query, and prints
 *										index_sum, score_sum, index_fnv
 *
 * They are those of mode S of sparsegen.h with seed 12345, but each id is one
 * more there, for indexes of other types begin with 1.  The exit status of
 * "checksum" is 1 if there is a reference and the input differs from it.
 *
 *-------------------------------------------------------------------------
 */
#include "sparsegen.h"
#include "checksum.h"

typedef std::vector<uint8_t> Buffer;

static void
die(const char *message)
{
	fprintf(stderr, "bench_sparse: %s\n", message);
	exit(2);
}

/* Append a big-endian integer of the given number of bytes */
static void
put_int(Buffer &out, uint64_t value, int bytes)
{
	for (int shift = 8 * (bytes - 1); shift >= 0; shift -= 8)
		out.push_back((uint8_t) (value >> shift));
}

/* Append a row: two fields, an int8 and an idvec of two-byte ids and float4 */
static void
put_row(Buffer &out, uint64_t number, const sparsegen::Row &row)
{
	size_t		n = row.ids.size();

	put_int(out, 2, 2);
	put_int(out, 8, 4);
	put_int(out, number, 8);
	put_int(out, 5 + n * 6, 4);
	put_int(out, n, 4);
	put_int(out, 0, 1);
	for (uint32_t id : row.ids)
		put_int(out, id + 1, 2);
	for (float value : row.values)
	{
		uint32_t	bits;

		memcpy(&bits, &value, sizeof(bits));
		put_int(out, bits, 4);
	}
}

static void
write_out(Buffer &out)
{
	if (fwrite(out.data(), 1, out.size(), stdout) != out.size())
		die("could not write");
	out.clear();
}

/* Write n rows, or queries */
static void
write_rows(const sparsegen::Generator &generator, uint64_t n, bool queries)
{
	static const uint8_t header[19] = {'P', 'G', 'C', 'O', 'P', 'Y', '\n', 0xFF, '\r', '\n', 0};
	Buffer		out(header, header + sizeof(header));

	for (uint64_t i = 0; i < n; i++)
	{
		put_row(out, i, queries ? generator.query(i) : generator.row(i));
		if (out.size() > 1 << 20)
			write_out(out);
	}
	put_int(out, 0xFFFF, 2);
	write_out(out);
}

static int
check_results(uint64_t n_rows, uint64_t n_queries, uint64_t k, double zq)
{
	const SparseReference *reference;
	Checksum	sum;
	uint64_t	row;
	double		score;
	int			n;

	while ((n = scanf("%" SCNu64 " %lf", &row, &score)) == 2)
		sum.add(row, score);
	if (n != EOF)
		die("the input is not \"row score\" lines");
	printf("%" PRIu64 " %.9f %016" PRIx64 "\n", sum.index_sum, sum.score_sum, sum.index_fnv);
	reference = find_sparse_reference(n_rows, n_queries, k, zq);
	return reference != nullptr && !matches_reference(sum, *reference);
}

int
main(int argc, char **argv)
{
	std::string what = argc > 2 ? argv[1] : "";
	uint64_t	n = argc > 2 ? strtoull(argv[2], nullptr, 10) : 0;

	if (what == "rows")
		write_rows(sparsegen::Generator('S'), n, false);
	else if (what == "queries" && argc > 3)
		write_rows(sparsegen::Generator('S', 12345, atof(argv[3])), n, true);
	else if (what == "checksum" && argc > 5)
		return check_results(n, strtoull(argv[3], nullptr, 10), strtoull(argv[4], nullptr, 10), atof(argv[5]));
	else
		die("the arguments are rows N, queries N ZQ, or checksum N QUERIES K ZQ");
	return 0;
}
