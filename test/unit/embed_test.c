/*-------------------------------------------------------------------------
 *
 * embed_test.c
 *	  Pooling and gradients: the order of sums, the same bits for every
 *	  instruction set; float16; the order of the nearest rows.
 *
 *-------------------------------------------------------------------------
 */
#include <float.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/embedding/pool_simd.h"
#include "unit_test.h"

/* Numbers whose sums round */
static float
random_float(void)
{
	return ((float) random_below(1 << 24) / (1 << 23) - 1) * (float) (1 << random_below(10));
}

/* Functions of each instruction set that this machine has */
typedef struct variant
{
	const char *name;
	gpuvec_pool_bag_function *pool_bag;
	gpuvec_sum_shares_function *sum_shares;
	gpuvec_near_scores_function *near_scores;
} variant;

static variant variants[3];
static int	nvariants;

static void
find_variants(void)
{
	variants[nvariants++] = (variant) {"portable", gpuvec_pool_bag_portable, gpuvec_sum_shares_portable, gpuvec_near_scores_portable};
	if (gpuvec_embedding_best_simd() >= GPUVEC_EMBEDDING_AVX2)
		variants[nvariants++] = (variant) {"AVX2", gpuvec_pool_bag_avx2, gpuvec_sum_shares_avx2, gpuvec_near_scores_avx2};
	if (gpuvec_embedding_best_simd() >= GPUVEC_EMBEDDING_AVX512)
		variants[nvariants++] = (variant) {"AVX-512", gpuvec_pool_bag_avx512, gpuvec_sum_shares_avx512, gpuvec_near_scores_avx512};
}

/*
 * The sum of one element of keys [first, end), by the words of pooling.h: a
 * piece from left to right, else by parts of `size`, each summed like this by
 * parts of size / 32
 */
static float
sum_of(const gpuvec_bag *bag, float *const *rows, uint32_t column, uint64_t first, uint64_t end,
	   uint64_t size, double *divisor)
{
	float		sum = 0;

	*divisor = 0;
	if (size < GPUVEC_PIECE)
	{
		for (uint64_t i = first; i < end; i++)
		{
			if (rows[i] == NULL && bag->missing == GPUVEC_MISSING_SKIP)
				continue;
			*divisor += bag->weights ? bag->weights[i] : 1;
			if (rows[i])
				sum = bag->weights ? fmaf(bag->weights[i], rows[i][column], sum) : sum + rows[i][column];
		}
		return sum;
	}
	for (uint64_t i = first; i < end; i += size)
	{
		double		part_divisor;
		float		part = sum_of(bag, rows, column, i, i + size < end ? i + size : end,
								  size / GPUVEC_FAN, &part_divisor);

		sum += part;
		*divisor += part_divisor;
	}
	return sum;
}

/* Pool a random bag in all ways */
static void
check_bag(uint64_t n, uint32_t width, gpuvec_storage storage)
{
	uint64_t	nrows = 1 + random_below(500);
	size_t		bytes = width * gpuvec_element_bytes(storage);
	char	   *table = malloc(nrows * bytes + 64);
	float	   *floats = malloc((nrows * width + 1) * sizeof(float));
	const void **vectors = malloc((n + 1) * sizeof(*vectors));
	float	  **rows = malloc((n + 1) * sizeof(*rows));
	float	   *weights = malloc((n + 1) * sizeof(float));
	float	   *scratch = malloc((width + 1) * GPUVEC_SCRATCH_VECTORS * sizeof(float));
	float	   *out = malloc((n + 1) * (width + 1) * sizeof(float));
	float	   *other = malloc((n + 1) * (width + 1) * sizeof(float));

	for (uint64_t i = 0; i < nrows * width; i++)
	{
		uint16_t	half = gpuvec_float_to_half(random_float());

		floats[i] = storage == GPUVEC_FLOAT16 ? gpuvec_half_to_float(half) : random_float();
		memcpy(table + i * gpuvec_element_bytes(storage),
			   storage == GPUVEC_FLOAT16 ? (void *) &half : (void *) &floats[i], gpuvec_element_bytes(storage));
	}
	for (uint64_t i = 0; i < n; i++)
	{
		uint64_t	row = random_below(nrows);
		bool		missing = random_below(10) == 0;

		vectors[i] = missing ? NULL : table + row * bytes;
		rows[i] = missing ? NULL : floats + row * width;
		weights[i] = random_float();
	}
	for (int way = 0; way < 8; way++)
	{
		gpuvec_bag	bag = {.vectors = vectors,.weights = way & 1 ? weights : NULL,.n = n,.width = width,
			.storage = storage,.mode = way & 2 ? GPUVEC_POOL_MEAN : GPUVEC_POOL_SUM,
		.missing = way & 4 ? GPUVEC_MISSING_SKIP : GPUVEC_MISSING_ZERO,.scratch = scratch};
		bool		same = true;

		for (uint32_t column = 0; column < width; column++)
		{
			double		divisor;
			float		sum = sum_of(&bag, rows, column, 0, n, n <= GPUVEC_PIECE ? 1 : GPUVEC_PIECE * GPUVEC_FAN * GPUVEC_FAN, &divisor);

			other[column] = bag.mode == GPUVEC_POOL_SUM ? sum : divisor == 0 ? 0 : sum / (float) divisor;
		}
		for (int v = 0; v < nvariants; v++)
		{
			check(variants[v].pool_bag(out, &bag) == width, "as many elements");
			same = same && memcmp(out, other, width * sizeof(float)) == 0;
		}
		check(same, "the sum of a bag");
		bag.mode = GPUVEC_POOL_CONCAT;
		for (int v = 0; v < nvariants; v++)
		{
			uint64_t	at = 0;

			same = true;
			(void) variants[v].pool_bag(out, &bag);
			for (uint64_t i = 0; i < n; i++)
			{
				if (rows[i] == NULL && bag.missing == GPUVEC_MISSING_SKIP)
					continue;
				for (uint32_t j = 0; j < width; j++, at++)
				{
					float		expected = rows[i] == NULL ? 0 : bag.weights ? fmaf(weights[i], rows[i][j], 0) : rows[i][j];

					same = same && memcmp(&out[at], &expected, sizeof(float)) == 0;
				}
			}
			check(same, "a concatenation");
		}
	}
	free(table);
	free(floats);
	free(vectors);
	free(rows);
	free(weights);
	free(scratch);
	free(out);
	free(other);
}

/* Sums of shares are those of a bag with the same rows and weights */
static void
check_shares(uint64_t n, uint32_t width)
{
	float	   *gradient = malloc(((n + 1) * width + 1) * sizeof(float));
	gpuvec_share *shares = malloc((n + 1) * sizeof(*shares));
	gpuvec_share *spare = malloc((n + 1) * sizeof(*shares));
	const void **vectors = malloc((n + 1) * sizeof(*vectors));
	float	   *weights = malloc((n + 1) * sizeof(float));
	float	   *scratch = malloc((width + 1) * GPUVEC_SCRATCH_VECTORS * sizeof(float));
	float	   *out = malloc((width + 1) * sizeof(float));
	float	   *expected = malloc((width + 1) * sizeof(float));
	gpuvec_share *sorted;
	bool		in_order = true;

	for (uint64_t i = 0; i < n * width; i++)
		gradient[i] = random_float();
	for (uint64_t i = 0; i < n; i++)
	{
		shares[i] = (gpuvec_share) {.key = 7,.row = random_below(n),.factor = random_float()};
		vectors[i] = gradient + shares[i].row * width;
		weights[i] = shares[i].factor;
	}
	for (int factors = 0; factors < 2; factors++)
	{
		gpuvec_upstream up = {.gradient = gradient,.width = width,.factors = factors};
		gpuvec_bag	bag = {.vectors = vectors,.weights = factors ? weights : NULL,.n = n,.width = width,.scratch = scratch};

		(void) gpuvec_pool_bag(expected, &bag);
		for (int v = 0; v < nvariants; v++)
		{
			variants[v].sum_shares(out, shares, n, &up, scratch);
			check(memcmp(out, expected, width * sizeof(float)) == 0, "a sum of shares");
		}
	}
	/* keys of all sorts, in order, each key's shares in theirs */
	for (uint64_t i = 0; i < n; i++)
	{
		shares[i].key = random_below(3) ? (int64_t) random_below(50) - 25 : (int64_t) (random_below(UINT64_MAX) ^ random_below(2) << 63);
		shares[i].row = i;
	}
	sorted = gpuvec_sort_shares(shares, spare, n);
	for (uint64_t i = 1; i < n; i++)
		in_order = in_order && (sorted[i - 1].key < sorted[i].key ||
								(sorted[i - 1].key == sorted[i].key && sorted[i - 1].row < sorted[i].row));
	check(in_order, "sorted shares");
	free(gradient);
	free(shares);
	free(spare);
	free(vectors);
	free(weights);
	free(scratch);
	free(out);
	free(expected);
}

/*
 * A bag of many keys, whose weights nearly cancel, and what float64 makes of
 * it
 */
typedef struct canceling
{
	gpuvec_bag	bag;
	float	   *table;			/* [nrows * width] */
	uint64_t	nrows;
	double		divisor;
	double	   *dots;			/* of each key: gradient . vector */
	double	   *dot_sizes;		/* the same of absolute values */
	float		gradient[4];
} canceling;

/*
 * Weights of even rows are positive, those of odd rows negative, and so are
 * their vectors: what is divided is exact to float32, only its divisor is
 * small beside the weights.
 */
static void
make_canceling(canceling *c, uint64_t n, gpuvec_missing missing)
{
	uint32_t	width = sizeof(c->gradient) / sizeof(c->gradient[0]);
	int64_t    *keys = malloc(n * sizeof(*keys));
	const void **vectors = malloc(n * sizeof(*vectors));
	float	   *weights = malloc(n * sizeof(float));

	c->nrows = 100;
	c->table = malloc(c->nrows * width * sizeof(float));
	c->dots = calloc(n, sizeof(double));
	c->dot_sizes = calloc(n, sizeof(double));
	c->divisor = 0;
	for (uint64_t i = 0; i < c->nrows * width; i++)
		c->table[i] = (i / width % 2 ? -1 : 1) * (0.5f + (float) random_below(1 << 23) / (1 << 23));
	for (uint32_t j = 0; j < width; j++)
		c->gradient[j] = random_float();
	for (uint64_t i = 0; i < n; i++)
	{
		uint64_t	row = 2 * random_below(c->nrows / 2) + (i / 3 % 512 == 0 ? 0 : i * 2 / n);

		keys[i] = (int64_t) row;
		vectors[i] = random_below(10) ? c->table + row * width : NULL;
		weights[i] = (row % 2 ? -1 : 1) * (0.5f + (float) random_below(1 << 23) / (1 << 23));
		if (vectors[i] != NULL || missing != GPUVEC_MISSING_SKIP)
			c->divisor += weights[i];
		for (uint32_t j = 0; vectors[i] != NULL && j < width; j++)
		{
			c->dots[i] += (double) c->gradient[j] * c->table[row * width + j];
			c->dot_sizes[i] += fabs((double) c->gradient[j] * c->table[row * width + j]);
		}
	}
	c->bag = (gpuvec_bag) {
		.keys = keys,.vectors = vectors,.weights = weights,.n = n,.width = width,
		.mode = GPUVEC_POOL_MEAN,.missing = missing,
		.scratch = malloc(width * GPUVEC_SCRATCH_VECTORS * sizeof(float))
	};
}

static void
drop_canceling(canceling *c)
{
	free((void *) c->bag.keys);
	free((void *) c->bag.vectors);
	free((void *) c->bag.weights);
	free(c->bag.scratch);
	free(c->table);
	free(c->dots);
	free(c->dot_sizes);
}

/* Its mean */
static void
check_canceling_mean(const canceling *c)
{
	const gpuvec_bag *bag = &c->bag;
	float		mean[4];

	for (int v = 0; v < nvariants; v++)
	{
		bool		near = true;

		(void) variants[v].pool_bag(mean, bag);
		for (uint32_t j = 0; j < bag->width; j++)
		{
			double		sum = 0;
			double		size = 0;

			for (uint64_t i = 0; i < bag->n; i++)
				if (bag->vectors[i] != NULL)
				{
					sum += (double) bag->weights[i] * ((const float *) bag->vectors[i])[j];
					size += fabs((double) bag->weights[i] * ((const float *) bag->vectors[i])[j]);
				}
			near = near && fabs(mean[j] - sum / c->divisor) <= 1e-6 * size / fabs(c->divisor);
		}
		check(near, "the mean of a bag whose weights nearly cancel");
	}
}

/* The gradients of its vectors */
static void
check_canceling_gradient(const canceling *c)
{
	const gpuvec_bag *bag = &c->bag;
	gpuvec_upstream up = {.gradient = c->gradient,.width = bag->width,.factors = true};
	gpuvec_share *scratch = malloc(bag->n * sizeof(*scratch));
	gpuvec_share *spare = malloc(bag->n * sizeof(*spare));
	double	   *sums = calloc(c->nrows, sizeof(double));
	uint64_t	row = 0;
	uint64_t	n = gpuvec_bag_shares(scratch, bag, &row);
	gpuvec_share *shares = gpuvec_sort_shares(scratch, spare, n);
	bool		near = true;
	uint64_t	nkeys = 0;
	float		out[4];

	/* of one row all weights have the same sign */
	for (uint64_t i = 0; i < bag->n; i++)
		if (bag->vectors[i] != NULL)
			sums[bag->keys[i]] += bag->weights[i];
	for (uint64_t i = 0; i < n; nkeys++)
	{
		uint64_t	first = i;

		while (i < n && shares[i].key == shares[first].key)
			i++;
		gpuvec_sum_shares(out, shares + first, i - first, &up, bag->scratch);
		for (uint32_t j = 0; j < bag->width; j++)
		{
			double		expected = sums[shares[first].key] / c->divisor * c->gradient[j];

			near = near && fabs(out[j] - expected) <= 1e-5 * fabs(expected);
		}
	}
	check(near && nkeys == c->nrows, "the gradients of a bag whose weights nearly cancel");
	free(scratch);
	free(spare);
	free(sums);
}

/* The gradients of its weights */
static void
check_canceling_weights(const canceling *c)
{
	const gpuvec_bag *bag = &c->bag;
	float	   *out = malloc(bag->n * sizeof(float));
	double		sum = 0;
	double		sum_size = 0;
	uint64_t	row = 0;
	bool		near = true;
	float		mean[4];

	for (uint64_t i = 0; i < bag->n; i++)
	{
		sum += bag->weights[i] * c->dots[i];
		sum_size += fabs(bag->weights[i] * c->dot_sizes[i]);
	}
	gpuvec_bag_weight_gradients(out, bag, c->gradient, mean, &row);
	for (uint64_t i = 0; i < bag->n; i++)
	{
		bool		counts = bag->vectors[i] != NULL || bag->missing != GPUVEC_MISSING_SKIP;
		double		expected = counts ? (c->dots[i] - sum / c->divisor) / c->divisor : 0;
		double		size = (c->dot_sizes[i] + sum_size / fabs(c->divisor)) / fabs(c->divisor);

		near = near && fabs(out[i] - expected) <= 1e-5 * size;
	}
	check(near, "the gradients of weights that nearly cancel");
	free(out);
}

/* Means of weights of both signs */
static void
check_canceling(uint64_t n)
{
	for (int skip = 0; skip < 2; skip++)
	{
		canceling	c;

		make_canceling(&c, n, skip ? GPUVEC_MISSING_SKIP : GPUVEC_MISSING_ZERO);
		check_canceling_mean(&c);
		check_canceling_gradient(&c);
		check_canceling_weights(&c);
		drop_canceling(&c);
	}
}

/* Divisors at the ends of float32 */
static void
check_divisors(void)
{
	static const struct
	{
		float		weights[3];
		float		divisor;
	}			cases[] = {
		{{16777216, 1, -16777216}, 1}, {{1, 0x1p-40f, -1}, 0x1p-40f}, {{1, -3, 2}, 0},
		{{FLT_MAX, FLT_MAX, -FLT_MAX}, FLT_MAX}, {{FLT_MAX, FLT_MAX, 1}, INFINITY},
		{{-FLT_MAX, -FLT_MAX, 1}, -INFINITY}, {{0x1p-149f, 0x1p-149f, -0x1p-149f}, 0x1p-149f},
		{{-0.0f, -0.0f, -0.0f}, 0}
	};

	for (size_t k = 0; k < sizeof(cases) / sizeof(cases[0]); k++)
	{
		float		element = 0x1p-100f;
		float		zero = 0;
		const void *vectors[3] = {&zero, &element, &zero};
		float		scratch[GPUVEC_SCRATCH_VECTORS];
		gpuvec_bag	bag = {.vectors = vectors,.weights = cases[k].weights,.n = 3,.width = 1,.mode = GPUVEC_POOL_MEAN,.scratch = scratch};
		float		product = cases[k].weights[1] * element;
		float		expected = cases[k].divisor == 0 ? 0 : product / cases[k].divisor;

		check(gpuvec_bag_divisor(&bag) == cases[k].divisor, "a divisor");
		for (int v = 0; v < nvariants; v++)
		{
			float		mean = NAN;

			(void) variants[v].pool_bag(&mean, &bag);
			check(mean == expected, "a mean");
		}
	}
}

/* float16 against the compiler's */
static void
check_halves(void)
{
	float	   *floats = malloc(65536 * sizeof(float));
	uint16_t   *halves = malloc(65536 * sizeof(uint16_t));
	bool		there = true;
	bool		back = true;
	bool		rounds = true;

	for (uint32_t i = 0; i < 65536; i++)
		halves[i] = (uint16_t) i;
	gpuvec_halves_to_floats(floats, halves, 65536);
	for (uint32_t i = 0; i < 65536; i++)
	{
		bool		nan = (i & 0x7C00) == 0x7C00 && (i & 0x3FF) != 0;
		double		value = ldexp((i & 0x3FF) + ((i & 0x7C00) ? 1024 : 0), ((i & 0x7C00) ? (int) (i >> 10 & 31) : 1) - 25);

		if (nan)
			there = there && isnan(floats[i]) && isnan(gpuvec_half_to_float((uint16_t) i));
		else if ((i & 0x7FFF) == 0x7C00)
			there = there && isinf(floats[i]) && !signbit(floats[i]) == !(i >> 15);
		else
			there = there && floats[i] == (i >> 15 ? -value : value) && !signbit(floats[i]) == !(i >> 15);
		back = back && (nan ? (gpuvec_float_to_half(floats[i]) & 0x7FFF) > 0x7C00 : gpuvec_float_to_half(floats[i]) == i);
		/*
		 * half way to the next one goes to the even one, a little more or
		 * less to the nearer
		 */
		if (!nan && (i & 0x7FFF) < 0x7BFF)
		{
			float		middle = (floats[i] + floats[i + 1]) / 2;

			rounds = rounds && gpuvec_float_to_half(middle) == (i & 1 ? i + 1 : i) &&
				gpuvec_float_to_half(nextafterf(middle, floats[i])) == i &&
				gpuvec_float_to_half(nextafterf(middle, floats[i + 1])) == i + 1;
		}
	}
	check(there, "float16 to float32");
	check(back, "and back");
	check(rounds, "rounding");
	check(gpuvec_float_to_half(65520) == 0x7C00 && gpuvec_float_to_half(65519.996f) == 0x7BFF, "the largest one");
	check(gpuvec_float_to_half(FLT_MAX) == 0x7C00 && gpuvec_float_to_half(-INFINITY) == 0xFC00, "infinity");
	free(floats);
	free(halves);
}

/*
 * Scores are the same for all instruction sets, and nearly those of plain
 * sums
 */
static void
check_scores(uint32_t width, gpuvec_storage storage)
{
	enum
	{
		N = 20
	};
	char	   *vectors = malloc(N * width * sizeof(float) + 64);
	float	   *floats = malloc((N * width + 1) * sizeof(float));
	float	   *query = malloc((width + 1) * sizeof(float));
	float	   *scratch = malloc((width + 1) * sizeof(float));
	double		scores[3][N];
	double		qq = 0;

	for (uint32_t i = 0; i < N * width; i++)
	{
		uint16_t	half = gpuvec_float_to_half(random_float());

		floats[i] = gpuvec_half_to_float(half);
		memcpy(vectors + i * gpuvec_element_bytes(storage),
			   storage == GPUVEC_FLOAT16 ? (void *) &half : (void *) &floats[i], gpuvec_element_bytes(storage));
	}
	for (uint32_t i = 0; i < width; i++)
	{
		query[i] = random_float();
		qq += (double) query[i] * query[i];
	}
	for (int metric = 0; metric < GPUVEC_N_METRICS; metric++)
	{
		for (int v = 0; v < nvariants; v++)
		{
			variants[v].near_scores(scores[v], (gpuvec_metric) metric, query, gpuvec_product(query, query, width), vectors,
									N, width, storage, scratch);
			check(memcmp(scores[v], scores[0], sizeof(scores[0])) == 0, "scores of every instruction set");
		}
		for (int i = 0; i < N; i++)
		{
			double		product = 0;
			double		vv = 0;
			double		distance = 0;
			double		expected;

			for (uint32_t j = 0; j < width; j++)
			{
				double		x = floats[i * width + j];

				product += query[j] * x;
				vv += x * x;
				distance += (query[j] - x) * (query[j] - x);
			}
			expected = metric == GPUVEC_METRIC_IP ? product : metric == GPUVEC_METRIC_L2 ? -sqrt(distance) :
				qq * vv == 0 ? 0 : product / sqrt(qq * vv);
			check(fabs(scores[0][i] - expected) <= 1e-9 * (1 + fabs(expected) + (metric == GPUVEC_METRIC_IP ? sqrt(qq * vv) : 0)), "a score");
		}
	}
	free(vectors);
	free(floats);
	free(query);
	free(scratch);
}

static int
compare_rows(const void *a, const void *b)
{
	return gpuvec_nearer(a, b) ? -1 : gpuvec_nearer(b, a);
}

/* The heap keeps the best rows, in order, ties included */
static void
check_heap(uint64_t n, uint64_t k)
{
	gpuvec_near *all = malloc((n + 1) * sizeof(*all));
	gpuvec_near_heap heap = {.rows = malloc((k + 1) * sizeof(*all)),.k = k};

	for (uint64_t i = 0; i < n; i++)
	{
		all[i] = (gpuvec_near) {.score = (double) random_below(20),.key = (int64_t) random_below(20),.tid = i};
		gpuvec_near_offer(&heap, &all[i]);
	}
	gpuvec_near_sort(&heap);
	qsort(all, n, sizeof(*all), compare_rows);
	check(heap.n == (n < k ? n : k) && memcmp(heap.rows, all, heap.n * sizeof(*all)) == 0, "the best rows");
	free(all);
	free(heap.rows);
}

int
main(void)
{
	static const uint64_t lengths[] = {0, 1, 2, 31, 255, 256, 257, 511, 512, 513, 8191, 8192, 8193, 8448, 16384, 20000};
	static const uint32_t widths[] = {1, 3, 4, 31, 33, 128};

	find_variants();
	for (size_t i = 0; i < sizeof(lengths) / sizeof(lengths[0]); i++)
		for (size_t j = 0; j < sizeof(widths) / sizeof(widths[0]); j++)
			if (lengths[i] * widths[j] < 1000000)
			{
				check_bag(lengths[i], widths[j], (gpuvec_storage) random_below(2));
				check_shares(lengths[i], widths[j]);
			}
	/* wide ones */
	for (int storage = 0; storage < 2; storage++)
	{
		check_bag(600, 1000, (gpuvec_storage) storage);
		check_bag(300, 4096, (gpuvec_storage) storage);
		check_scores(1000, (gpuvec_storage) storage);
		check_scores(4096, (gpuvec_storage) storage);
	}
	check_shares(600, 1000);
	check_shares(300, 4096);
	/* three levels */
	check_bag(262144 + 3000, 3, GPUVEC_FLOAT32);
	check_bag(600000, 2, GPUVEC_FLOAT16);
	check_shares(262144 + 300, 2);
	/* pieces and groups, complete or not */
	check_canceling(1024);
	check_canceling(20000);
	check_canceling(287268);
	check_divisors();
	for (uint32_t width = 1; width < 70; width++)
	{
		check_scores(width, GPUVEC_FLOAT32);
		check_scores(width, GPUVEC_FLOAT16);
	}
	check_halves();
	for (int i = 0; i < 200; i++)
		check_heap(random_below(300), 1 + random_below(100));
	printf("%d instruction sets\n", nvariants);
	return report_checks();
}
