/*-------------------------------------------------------------------------
 *
 * bench_embedding.cu
 *	  The kernels of embedding tables alone: are they right, and how fast are
 *	  they?
 *
 *		bench_embedding [--check N] [--small] [--no-time] [--sweep] [--only
 *		REGEX] [--rows N] [--batch N]
 *						[--peers FILE] [--unchained] [--unsettled] [--range N]
 *						[--threads N] [--vector N] [--slice N] [--bulk N]
 *
 * First --check random small cases, every element of every result compared
 * bit by bit with embedding_reference.h, and pairs of calls of which the
 * second needs what the first gives.  Then each cell of the benchmark: the
 * time of a launch in a CUDA graph of many, over which keys, results and
 * gradients change, so that no launch finds its data in the cache; and 64
 * bags, compared with the reference as well. Bags are settled (see
 * pooling_kernels.h), unless --unsettled.  --sweep tries ways to launch some
 * cells, --only leaves out cells whose name does not match; the options of
 * the second line from --unchained on, but --unsettled, change
 * pooling_policy.
 *
 * Bytes are those of the rows that are read and of the vectors that are
 * written.  Rows have values that the host can compute, so that the table
 * need not be copied.
 *
 *-------------------------------------------------------------------------
 */
#include <chrono>
#include <functional>
#include <map>
#include <regex>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string>
#include <unordered_map>

#include "kernels/embedding/pool.cuh"
#include "embedding_reference.h"
#include "kernels/embedding/embedding_policy.h"
#include "kernels/embedding/sort.h"
#include "kernels/embedding/products.h"

using namespace gpuvec;

#define CHECK(call) check_cuda(call, #call, __LINE__)

static struct pooling_policy policy;	/* how kernels are launched */
static int	failures = 0;	/* of so many checks: */
static int	checks = 0;
static bool case_failed;
static std::string only;		/* a regular expression of cells, or empty */

static void
check_cuda(cudaError_t error, const char *what, int line)
{
	if (error == cudaSuccess)
		return;
	fprintf(stderr, "line %d: %s: %s\n", line, what, cudaGetErrorString(error));
	exit(1);
}

static int
device_capability(void)
{
	cudaDeviceProp prop;
	int			device;

	CHECK(cudaGetDevice(&device));
	CHECK(cudaGetDeviceProperties(&prop, device));
	return prop.major * 10 + prop.minor;
}

/* How kernels are launched on this device */
static struct pooling_policy
usual_policy(void)
{
	static const int capability = device_capability();

	return embedding_policy_of(capability).pooling;
}

/* ---- other ways to launch kernels; 0: the standard one ---- */

static void
set_threads(struct pooling_policy &p, uint32_t threads)
{
	if (threads > 0)
		p.threads = p.gather_threads = threads;
}

static void
set_range(struct pooling_policy &p, uint32_t range)
{
	if (range > 0)
		p.least_range = p.most_range = std::min(range, 16u);
}

static void
set_vector_bytes(struct pooling_policy &p, uint32_t bytes)
{
	if (bytes > 0)
		p.least_vector_bytes = p.most_vector_bytes = bytes;
}

static void
set_slice(struct pooling_policy &p, uint32_t bytes, bool major)
{
	p.slice_major = major;
	if (bytes > 0)
	{
		p.slice_bytes = bytes;
		p.grad_slice_major = major;
	}
}

/* The copy engine copies rows, 1: always if it can, 2: never */
static void
set_bulk(struct pooling_policy &p, uint32_t bulk)
{
	if (bulk == 1)
	{
		p.bulk_min_row = 0;
		p.bulk_max_result = UINT64_MAX;
	}
	else if (bulk == 2)
		p.bulk_max_row = 0;
}

/* ---- numbers that host and device both know ---- */

static __host__ __device__ __forceinline__ uint64_t
mix(uint64_t z)
{
	z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9ull;
	z = (z ^ z >> 27) * 0x94D049BB133111EBull;
	return z ^ z >> 31;
}

/* A number in -1 .. 1 with all bits of its mantissa, of varied magnitude */
static __host__ __device__ __forceinline__ float
number(uint64_t seed, uint64_t i)
{
	uint64_t	h = mix(seed * 0x9E3779B97F4A7C15ull + i);
	float		mantissa = (float) ((int32_t) (h >> 40) - (1 << 23));

	return mantissa / (float) (1 << 23) / (float) (1 << (h & 7));
}

/* The same as a table has it */
static inline float
table_number(gpuvec_storage type, uint64_t seed, uint64_t i)
{
	float		x = number(seed, i);

	return type == GPUVEC_FLOAT16 ? __half2float(__float2half_rn(x)) : x;
}

struct fill_params
{
	void	   *data;
	uint64_t	n;
	uint64_t	seed;
	int			half;
};

static __global__ void
fill_kernel(const __grid_constant__ struct fill_params p)
{
	for (uint64_t i = (uint64_t) blockIdx.x * blockDim.x + threadIdx.x; i < p.n;
		 i += (uint64_t) gridDim.x * blockDim.x)
	{
		if (p.half)
			((__half *) p.data)[i] = __float2half_rn(number(p.seed, i));
		else
			((float *) p.data)[i] = number(p.seed, i);
	}
}

struct copy_params
{
	const float4 *from;
	float4	   *to;
	uint64_t	n;
};

static __global__ void
copy_kernel(const __grid_constant__ struct copy_params p)
{
	uint64_t	first = (uint64_t) blockIdx.x * blockDim.x * 4 + threadIdx.x;
	float4		part[4];

	for (int i = 0; i < 4; i++)
	{
		if (first + i * blockDim.x < p.n)
			part[i] = __ldcs(p.from + first + i * blockDim.x);
	}
	for (int i = 0; i < 4; i++)
	{
		if (first + i * blockDim.x < p.n)
			__stcs(p.to + first + i * blockDim.x, part[i]);
	}
}

struct read_params
{
	const char *table;
	const int32_t *keys;
	uint32_t   *out;
};

/*
 * Read rows of BYTES bytes and do nothing with them: what a GPU's memory
 * gives in that order. A warp has 32 lookups, of which up to eight loads are
 * in flight.
 */
template <int BYTES>
static __global__ void
read_kernel(const __grid_constant__ struct read_params p)
{
	constexpr int LANES = BYTES / 16;
	constexpr int ROWS = 32 / LANES;	/* that a load reads */
	constexpr int LOADS = LANES < 8 ? LANES : 8;
	uint64_t	warp = ((uint64_t) blockIdx.x * blockDim.x + threadIdx.x) / 32;
	uint32_t	lane = threadIdx.x % 32;
	uint32_t	key = (uint32_t) __ldcs(p.keys + warp * 32 + lane);
	uint32_t	sum = 0;

	for (int first = 0; first < 32; first += ROWS * LOADS)
	{
		uint4		part[LOADS];

#pragma unroll
		for (int i = 0; i < LOADS; i++)
		{
			uint32_t	row = __shfl_sync(FULL_WARP, key, first + i * ROWS + lane / LANES);

			part[i] = __ldg((const uint4 *) (p.table + (uint64_t) row * BYTES) + lane % LANES);
		}
#pragma unroll
		for (int i = 0; i < LOADS; i++)
			sum ^= part[i].x ^ part[i].y ^ part[i].z ^ part[i].w;
	}
	if (sum == 0x12345678)		/* hardly ever; or the loads would be left out */
		p.out[warp] = sum;
}

static void
fill(void *data, uint64_t n, uint64_t seed, bool half)
{
	struct fill_params params = {data, n, seed, half};

	CHECK(launch(fill_kernel, std::min<uint64_t>(divide_up(n, 256), 132 * 64), 256, 0, 0, params));
}

#define KEYS_PER_BAG	64

struct key_params
{
	int32_t    *keys;
	uint64_t	bags;
	uint64_t	rows;
	int			zipf;
};

/*
 * Keys of bags, distinct within a bag: uniform, or by a power law with
 * exponent 1.05 as cuEmbed's benchmark draws them, spread over the table.
 */
static __global__ void
key_kernel(const __grid_constant__ struct key_params p)
{
	uint64_t	bag = (uint64_t) blockIdx.x * blockDim.x + threadIdx.x;
	int32_t    *keys = p.keys + bag * KEYS_PER_BAG;
	uint64_t	state = mix(bag + 77);

	if (bag >= p.bags)
		return;
	for (int n = 0; n < KEYS_PER_BAG;)
	{
		uint64_t	key;
		bool		known = false;

		state += 0x9E3779B97F4A7C15ull;
		if (p.zipf)
		{
			double		u = (double) (mix(state) >> 11) / 9007199254740992.0;
			double		rank = pow(u * (pow((double) p.rows + 1.0, -0.05) - 1.0) + 1.0, -20.0);

			key = (uint64_t) rank - 1;
			key = (key < p.rows ? key : p.rows - 1) * 7368787 % p.rows;
		}
		else
			key = mix(state) % p.rows;
		for (int i = 0; i < n && p.rows > 4 * KEYS_PER_BAG; i++)
			known = known || keys[i] == (int32_t) key;
		if (!known)
			keys[n++] = (int32_t) key;
	}
}

/* ---- device memory of the random cases ---- */

template <typename X>
static X *
to_device(const std::vector<X> &v, size_t skip = 0)
{
	X		   *p;

	CHECK(cudaMalloc((void **) &p, (v.size() + skip + 1) * sizeof(X)));
	CHECK(cudaMemcpy(p + skip, v.data(), v.size() * sizeof(X), cudaMemcpyHostToDevice));
	return p + skip;
}

template <typename X>
static std::vector<X>
to_host(const X *p, size_t n)
{
	std::vector<X> v(n);

	CHECK(cudaMemcpy(v.data(), p, n * sizeof(X), cudaMemcpyDeviceToHost));
	return v;
}

static uint64_t rng_state = 1;

static uint64_t
rng(uint64_t n)
{
	rng_state += 0x9E3779B97F4A7C15ull;
	return mix(rng_state) % n;
}

template <typename X>
static X
pick(std::initializer_list<X> list)
{
	return list.begin()[rng(list.size())];
}

/* A random case, on the host */
struct test_case
{
	struct pooling_table table;
	struct pooling_bags bags;
	gpuvec_pool_mode mode;
	std::vector<float> values;	/* of the table, [rows][width] */
	std::vector<int64_t> keys;
	std::vector<int64_t> offsets;
	std::vector<float> weights;
	bool		odd_values;		/* NaN and infinity among them */
	std::string name;

	/* the lookups of a bag */
	std::vector<ref_lookup>
	bag(uint64_t b) const
	{
		std::vector<ref_lookup> result;

		for (int64_t i = offsets[b]; i < offsets[b + 1]; i++)
		{
			bool		missing = keys[i] < 0 || (uint64_t) keys[i] >= table.rows;

			result.push_back({missing ? NULL : values.data() + keys[i] * table.width,
							  weights.empty() ? 1.0f : weights[i]});
		}
		return result;
	}
};

static void
fail(const test_case &t, const char *format, ...)
{
	va_list		args;

	case_failed = true;
	if (failures >= 20)
		return;
	printf("FAIL %s: ", t.name.c_str());
	va_start(args, format);
	vprintf(format, args);
	va_end(args);
	printf("\n");
}

/* A value that is not like others, sometimes */
static float
odd(float x, bool odd_values)
{
	if (rng(20) != 0)
		return x;
	if (!odd_values)
		return rng(2) ? x : -0.0f;
	return pick({NAN, INFINITY, -INFINITY, 0.0f, -0.0f, 1e-40f, -1e-40f});
}

/* Make a case; the larger `number`, the larger it may be */
static void
make_case(test_case &t, int number_of_case, bool small)
{
	uint32_t	slice;
	uint64_t	most;
	bool		wide;

	rng_state = number_of_case;
	t.mode = pick({GPUVEC_POOL_SUM, GPUVEC_POOL_SUM, GPUVEC_POOL_MEAN, GPUVEC_POOL_CONCAT});
	wide = rng(20) == 0;
	t.table.width = wide ? pick({512u, 1000u, 1028u, 4096u}) :
		pick({1u, 2u, 3u, 4u, 5u, 7u, 8u, 12u, 16u, 20u, 31u, 32u, 33u, 36u, 40u, 64u, 66u, 100u, 128u,
			  129u, 192u, 256u, 260u});
	t.table.storage = pick({GPUVEC_FLOAT32, GPUVEC_FLOAT16});
	t.table.rows = pick({1, 2, 7, 100, 1000, 2500});
	t.table.stride = t.table.width + pick({0, 0, 0, 1, 3});
	if (rng(3) == 0)
		t.table.stride = (t.table.stride + 7) / 8 * 8;
	t.odd_values = rng(6) == 0;
	t.values.resize(t.table.rows * t.table.width);
	for (uint64_t i = 0; i < t.values.size(); i++)
	{
		float		x = odd(number(number_of_case, i), t.odd_values);

		t.values[i] = t.table.storage == GPUVEC_FLOAT16 ? __half2float(__float2half_rn(x)) : x;
	}

	/* bags */
	memset(&t.bags, 0, sizeof t.bags);
	t.bags.bags = pick({0, 1, 3, 31, 32, 33, 200, 1030});
	if (small || wide)
		t.bags.bags = std::min<uint64_t>(t.bags.bags, 40);
	t.bags.index_bits = pick({32u, 64u});
	t.bags.skip_missing = (uint32_t) rng(2);
	t.bags.settled = number_of_case % 2;
	t.offsets.assign(1, 0);
	if (rng(2))
	{
		t.bags.hotness = pick({0, 1, 1, 2, 3, 5, 7, 8, 9, 16, 31, 32, 33, 64, 70, 256, 257, 700});
		if (t.bags.bags > 100)
			t.bags.hotness = std::min<uint64_t>(t.bags.hotness, 70);
		for (uint64_t b = 0; b < t.bags.bags; b++)
			t.offsets.push_back(t.offsets.back() + t.bags.hotness);
		most = 0;
	}
	else
	{
		uint64_t	usual = pick({1, 3, 20, 90});
		uint64_t	longest = 0;
		bool		may_be_long = rng(2);

		for (uint64_t b = 0; b < t.bags.bags; b++)
		{
			uint64_t	n = rng(5) == 0 ? 0 : rng(2 * usual);

			if (may_be_long && rng(20) == 0)
				n = rng(3) == 0 ? pick({255, 256, 257, 512, 513}) : rng(rng(10) == 0 && !small && !wide ? 300000 : 3000);
			longest = std::max(longest, n);
			t.offsets.push_back(t.offsets.back() + n);
		}
		most = rng(3) == 0 ? 0 : longest;
	}
	t.bags.longest = most;
	t.bags.lookups = t.offsets.back();

	uint64_t	few = pick({(uint64_t) 1, (uint64_t) 10, t.table.rows, t.table.rows});
	bool		with_missing = rng(2);

	t.keys.resize(t.bags.lookups);
	for (auto &key : t.keys)
	{
		key = rng(std::min(few, t.table.rows));
		if (with_missing && rng(8) == 0)
			key = pick({(int64_t) -1, (int64_t) INT32_MIN, (int64_t) t.table.rows, (int64_t) INT32_MAX,
						t.bags.index_bits == 64 ? INT64_MIN : -1, t.bags.index_bits == 64 ? INT64_MAX : -1,
						t.bags.index_bits == 64 ? (int64_t) 1 << 32 : -1});
	}
	t.weights.clear();
	if (t.mode != GPUVEC_POOL_CONCAT && rng(2))
	{
		t.weights.resize(t.bags.lookups);
		for (auto &w : t.weights)
			w = rng(10) == 0 ? pick({0.0f, -1.0f, 1.0f}) : odd(number(99, rng(1 << 20)), t.odd_values);
	}

	/* how it is launched must not matter */
	policy = usual_policy();
	set_threads(policy, pick({0u, 32u, 64u, 256u}));
	set_range(policy, pick({0u, 1u, 2u, 5u, 16u}));
	set_vector_bytes(policy, pick({0u, 0u, 8u, 4u}));
	slice = pick({0u, 0u, 128u, 256u});
	set_slice(policy, slice, rng(2));
	set_bulk(policy, (uint32_t) rng(3));

	char		name[300];

	snprintf(name, sizeof name, "case %d: mode %d width %u stride %llu rows %llu %s, %llu bags %s%llu lookups %llu longest %llu%s%s, int%u, threads %u range %llu to %llu vector %u to %u slice %u",
			 number_of_case, t.mode, t.table.width, (unsigned long long) t.table.stride,
			 (unsigned long long) t.table.rows, t.table.storage == GPUVEC_FLOAT16 ? "fp16" : "fp32",
			 (unsigned long long) t.bags.bags, most || t.bags.hotness == 0 ? "ragged " : "of ",
			 (unsigned long long) t.bags.hotness, (unsigned long long) t.bags.lookups,
			 (unsigned long long) most, t.weights.empty() ? "" : " weighted", with_missing ? " missing" : "",
			 t.bags.index_bits, policy.threads, (unsigned long long) policy.least_range,
			 (unsigned long long) policy.most_range, policy.least_vector_bytes, policy.most_vector_bytes,
			 policy.slice_bytes);
	t.name = name;
}

/* Compare a vector with the reference */
static bool
compare_row(const test_case &t, const char *what, uint64_t row, const float *got, const std::vector<float> &expected)
{
	for (size_t c = 0; c < expected.size(); c++)
	{
		if (!ref_same(got[c], expected[c]))
		{
			fail(t, "%s, row %llu, column %zu: %.9g, not %.9g", what, (unsigned long long) row, c,
				 got[c], expected[c]);
			return false;
		}
	}
	return true;
}

/* Nothing but the columns of results may be written */
static const float untouched = -12344.0f;	/* a float16 as well */

/* The device's side of a case: pointers to free */
struct device_case
{
	std::vector<void *> pointers;

	template <typename X>
	X *
	keep(X *p, size_t skip = 0)
	{
		pointers.push_back((void *) (p - skip));
		return p;
	}

	~device_case()
	{
		for (void *p : pointers)
			CHECK(cudaFree(p));
	}
};

/* A workspace full of ones */
static void *
workspace(device_case &d, size_t bytes)
{
	char	   *p;

	CHECK(cudaMalloc((void **) &p, bytes + 1));
	CHECK(cudaMemset(p, 0xFF, bytes + 1));
	return d.keep(p);
}

/* The values of a device's array of float32 or float16 */
static std::vector<float>
to_floats(const void *p, size_t n, gpuvec_storage type)
{
	std::vector<float> v(n);

	if (type == GPUVEC_FLOAT32)
		return to_host((const float *) p, n);

	std::vector<__half> halves = to_host((const __half *) p, n);

	for (size_t i = 0; i < n; i++)
		v[i] = __half2float(halves[i]);
	return v;
}

/* Round to the type of the result */
static void
round_to(gpuvec_storage type, std::vector<float> &values)
{
	for (float &x : values)
		x = type == GPUVEC_FLOAT16 ? __half2float(__float2half_rn(x)) : x;
}

/* Forward: every element */
static void
check_forward(const test_case &t, device_case &d)
{
	uint64_t	out_rows = t.mode == GPUVEC_POOL_CONCAT ? t.bags.lookups : t.bags.bags;
	uint64_t	out_stride = t.table.width + pick({0, 0, 1, 4});
	size_t		skip = pick({0, 0, 1, 2});
	gpuvec_storage out_storage = rng(2) ? t.table.storage : GPUVEC_FLOAT32;
	void	   *out;
	size_t		bytes;
	void	   *work;

	if (out_storage == GPUVEC_FLOAT16)
		out = d.keep(to_device(std::vector<__half>(out_rows * out_stride, __float2half_rn(untouched)), skip), skip);
	else
		out = d.keep(to_device(std::vector<float>(out_rows * out_stride, untouched), skip), skip);
	CHECK(pooling_forward_workspace(&t.table, &t.bags, t.mode, &bytes));
	work = workspace(d, bytes);
	CHECK(pooling_forward(policy, &t.table, &t.bags, t.mode, out, out_storage, out_stride, work, bytes, 0));
	CHECK(cudaDeviceSynchronize());

	std::vector<float> got = to_floats(out, out_rows * out_stride, out_storage);

	for (uint64_t r = 0; r < out_rows; r++)
	{
		std::vector<float> expected(t.table.width, 0.0f);

		if (t.mode == GPUVEC_POOL_CONCAT)
		{
			if (t.keys[r] >= 0 && (uint64_t) t.keys[r] < t.table.rows)
				expected.assign(t.values.begin() + t.keys[r] * t.table.width,
								t.values.begin() + (t.keys[r] + 1) * t.table.width);
		}
		else
		{
			ref_sum		sum = ref_bag(t.bag(r), t.table.width, !t.weights.empty(), t.bags.skip_missing);

			if (t.mode == GPUVEC_POOL_MEAN)
				ref_divide(sum);
			expected = sum.value;
		}
		round_to(out_storage, expected);
		expected.resize(out_stride, untouched);
		if (!compare_row(t, out_storage == GPUVEC_FLOAT16 ? "forward to fp16" : "forward", r, got.data() + r * out_stride, expected))
			return;
	}
}

/* The gradient of the table: every element */
static void
check_grad(const test_case &t, device_case &d)
{
	uint64_t	samples = t.mode == GPUVEC_POOL_CONCAT ? t.bags.lookups : t.bags.bags;
	uint32_t	width = t.table.width;
	struct pooling_grad grad = {};
	std::vector<float> grad_values;
	std::map<int64_t, std::vector<ref_lookup>> rows;
	size_t		bytes;
	void	   *work;

	grad.rows = t.table.rows;
	grad.width = width;
	grad.full = (uint32_t) rng(2);
	grad.grad_stride = width + pick({0, 0, 1, 4});
	grad.out_stride = width + pick({0, 0, 1, 4});
	grad_values.resize(samples * grad.grad_stride);
	for (size_t i = 0; i < grad_values.size(); i++)
		grad_values[i] = odd(number(4711, i), t.odd_values);

	uint64_t	capacity = grad.full ? grad.rows : std::min(grad.rows, t.bags.lookups);
	float	   *out = d.keep(to_device(std::vector<float>(capacity * grad.out_stride, untouched)));

	grad.grad = d.keep(to_device(grad_values));
	grad.out = out;
	grad.out_rows = d.keep(to_device(std::vector<uint32_t>(capacity, 0xFFFFFFFF)));
	grad.out_count = d.keep(to_device(std::vector<uint32_t>(1, 0xFFFFFFFF)));
	CHECK(pooling_grad_workspace(&grad, &t.bags, t.mode, &bytes));
	work = workspace(d, bytes);
	CHECK(pooling_grad(policy, &grad, &t.bags, t.mode, work, bytes, 0));
	CHECK(cudaDeviceSynchronize());

	/* what each row should get */
	for (uint64_t b = 0; b < t.bags.bags; b++)
	{
		std::vector<ref_lookup> bag = t.bag(b);
		float		divisor = ref_grad_divisor(bag, t.bags.skip_missing);

		for (size_t j = 0; j < bag.size(); j++)
		{
			uint64_t	i = t.offsets[b] + j;
			uint64_t	sample = t.mode == GPUVEC_POOL_CONCAT ? i : b;
			float		coefficient = bag[j].weight;

			if (t.mode == GPUVEC_POOL_MEAN)
				coefficient = divisor == 0.0f ? 0.0f : coefficient / divisor;
			if (bag[j].row)
				rows[t.keys[i]].push_back({grad_values.data() + sample * grad.grad_stride, coefficient});
		}
	}

	uint32_t	count = to_host(grad.out_count, 1)[0];
	std::vector<uint32_t> got_rows = to_host(grad.out_rows, capacity);
	std::vector<float> got = to_host(out, capacity * grad.out_stride);
	bool		weighted = !t.weights.empty() || t.mode == GPUVEC_POOL_MEAN;
	uint64_t	n = 0;

	if (count != rows.size())
	{
		fail(t, "gradient of %u rows, not %zu", count, rows.size());
		return;
	}
	std::vector<bool> known(capacity, false);

	for (auto &entry : rows)
	{
		ref_sum		sum = ref_bag(entry.second, width, weighted, false);
		uint64_t	at = grad.full ? entry.first : n;

		if (got_rows[n] != entry.first)
		{
			fail(t, "gradient %llu is of row %u, not %lld", (unsigned long long) n, got_rows[n],
				 (long long) entry.first);
			return;
		}
		sum.value.resize(grad.out_stride, untouched);
		if (!compare_row(t, grad.full ? "full gradient" : "gradient", entry.first,
						 got.data() + at * grad.out_stride, sum.value))
			return;
		known[at] = true;
		n++;
	}
	for (uint64_t r = 0; r < capacity; r++)
	{
		if (!known[r] && !compare_row(t, "untouched gradient", r, got.data() + r * grad.out_stride,
									  std::vector<float>(grad.out_stride, untouched)))
			return;
	}
}

/*
 * A case of sorting: row numbers of all lengths, against the library's stable
 * sort
 */
static void
check_sort(int number_of_case)
{
	test_case	t;
	device_case d;
	struct pooling_sort sort = {};
	uint64_t	hotness;
	std::vector<int64_t> keys;
	std::vector<int64_t> offsets(1, 0);
	std::vector<uint32_t> order;
	int			result;
	size_t		bytes;

	rng_state = 1000000 + number_of_case;
	sort.rows = pick({1u, 2u, 200u, 255u, 256u, 257u, 65535u, 65536u, 10000000u, 16777215u, 16777216u,
					  4294967294u});
	sort.bags.index_bits = sort.rows > INT32_MAX ? 64 : pick({32u, 64u});
	sort.bags.lookups = pick({1u, 5u, 31u, 33u, 1000u, 8191u, 8192u, 8193u, 30000u, 70001u});
	hotness = pick({1, 1, 3, 64});
	keys.resize(sort.bags.lookups);
	uint64_t	few = rng(3) == 0 ? std::min<uint64_t>(3, sort.rows) : sort.rows;

	for (auto &key : keys)
	{
		key = rng(4) == 0 ? rng(few) / 1000 : rng(few);
		if (rng(50) == 0)
			key = pick({(int64_t) -1, (int64_t) INT32_MIN, sort.bags.index_bits == 64 ? INT64_MAX : -1});
	}
	sort.positions = rng(3) == 0;
	sort.bags.hotness = hotness;
	sort.bags.bags = divide_up(sort.bags.lookups, hotness);
	if (rng(2))
	{
		while (offsets.size() < sort.bags.bags)
			offsets.push_back(offsets.back() + rng(std::min<uint64_t>(2 * hotness, sort.bags.lookups - offsets.back() + 1)));
		offsets.push_back(sort.bags.lookups);
		sort.bags.offsets = d.keep(to_device(offsets));
	}
	if (sort.bags.index_bits == 64)
		sort.bags.indices = d.keep(to_device(keys));
	else
		sort.bags.indices = d.keep(to_device(std::vector<int32_t>(keys.begin(), keys.end())));
	for (int i = 0; i < 2; i++)
	{
		sort.keys[i] = d.keep(to_device(std::vector<uint32_t>(sort.bags.lookups)));
		sort.values[i] = d.keep(to_device(std::vector<uint32_t>(sort.bags.lookups)));
	}
	bytes = pooling_sort_workspace(sort.rows, (uint32_t) sort.bags.lookups);
	CHECK(pooling_sort(policy, &sort, workspace(d, bytes), 0));
	CHECK(cudaDeviceSynchronize());
	result = pooling_sort_result(sort.rows);

	std::vector<uint32_t> got_keys = to_host(sort.keys[result], sort.bags.lookups);
	std::vector<uint32_t> got_values = to_host(sort.values[result], sort.bags.lookups);
	auto		row = [&] (uint32_t i)
	{
		return keys[i] < 0 || keys[i] >= sort.rows ? sort.rows : (uint32_t) keys[i];
	};

	t.name = "sort " + std::to_string(number_of_case);
	for (uint32_t i = 0; i < sort.bags.lookups; i++)
		order.push_back(i);
	std::stable_sort(order.begin(), order.end(), [&] (uint32_t a, uint32_t b) { return row(a) < row(b); });
	for (uint32_t i = 0; i < sort.bags.lookups; i++)
	{
		uint32_t	value = order[i];

		if (!sort.positions)
			value = sort.bags.offsets ?
				(uint32_t) (std::upper_bound(offsets.begin(), offsets.end() - 1, (int64_t) value) - offsets.begin() - 1) :
				value / (uint32_t) hotness;
		if (got_keys[i] != row(order[i]) || got_values[i] != value)
		{
			fail(t, "%u lookups of %u rows: %u is (%u, %u), not (%u, %u)", sort.bags.lookups, sort.rows, i,
				 got_keys[i], got_values[i], row(order[i]), value);
			return;
		}
	}
}

/* Check a case */
static void
check_case(test_case &t)
{
	device_case d;
	size_t		skip;
	std::vector<float> floats(t.table.rows * t.table.stride, 3e30f);
	std::vector<__half> halves(t.table.storage == GPUVEC_FLOAT16 ? floats.size() : 0);

	for (uint64_t r = 0; r < t.table.rows; r++)
		for (uint32_t c = 0; c < t.table.width; c++)
			floats[r * t.table.stride + c] = t.values[r * t.table.width + c];
	for (size_t i = 0; i < halves.size(); i++)
		halves[i] = __float2half_rn(floats[i]);
	skip = pick({0, 0, 1, 2, 4});
	if (t.table.storage == GPUVEC_FLOAT16)
		t.table.data = d.keep(to_device(halves, skip), skip);
	else
		t.table.data = d.keep(to_device(floats, skip), skip);
	if (t.bags.index_bits == 64)
		t.bags.indices = d.keep(to_device(t.keys));
	else
		t.bags.indices = d.keep(to_device(std::vector<int32_t>(t.keys.begin(), t.keys.end())));
	if (t.bags.longest || t.bags.hotness == 0)
		t.bags.offsets = d.keep(to_device(t.offsets));
	if (!t.weights.empty())
		t.bags.weights = d.keep(to_device(t.weights));

	check_forward(t, d);
	check_grad(t, d);
}

/* A random case */
static void
check_random(int number_of_case, bool small)
{
	test_case	t;

	make_case(t, number_of_case, small);
	check_case(t);
	if (number_of_case % 3 == 0)
		check_sort(number_of_case);
}

/*
 * Check a mean with weights: the table's values, the bags' keys, weights and
 * offsets are there
 */
static void
check_mean(test_case &t, uint32_t width, const std::string &name)
{
	t.mode = GPUVEC_POOL_MEAN;
	t.table.width = width;
	t.table.storage = GPUVEC_FLOAT32;
	t.table.rows = t.values.size() / width;
	t.table.stride = width;
	t.bags.bags = t.offsets.size() - 1;
	t.bags.lookups = t.keys.size();
	t.bags.index_bits = 64;
	t.name = name + ", width " + std::to_string(width);
	policy = usual_policy();
	case_failed = false;
	check_case(t);
	checks++;
	failures += case_failed;
}

/*
 * Many lookups that are all alike: each rounding errs in the same direction
 */
static void
check_alike(uint64_t n)
{
	test_case	t = {};

	rng_state = n;
	t.values = {0.1f, 0.3f, -0.7f};
	t.keys.assign(n, 0);
	t.weights.assign(n, 0.1f);
	t.offsets = {0, (int64_t) n};
	check_mean(t, 3, "lookups that are alike");
}

/*
 * Means of bags whose weights nearly cancel: those of the first half are
 * positive, of the second negative, but for one in `rest`.  Rows have the
 * sign of their weight, so that only the divisor is small beside its parts.
 */
static void
check_canceling(uint32_t width, const std::vector<uint64_t> &lengths, uint64_t rest, bool skip_missing)
{
	const uint64_t rows = 100;
	test_case	t = {};

	rng_state = width;
	for (uint64_t i = 0; i < rows * width; i++)
		t.values.push_back((i / width % 2 ? -0.5f : 0.5f) * (2 + number(5, i)));
	t.offsets.assign(1, 0);
	for (uint64_t n : lengths)
	{
		for (uint64_t i = 0; i < n; i++)
		{
			bool		negative = i >= n / 2 && i % rest != 0;

			t.keys.push_back(rng(10) == 0 ? -1 : (int64_t) (2 * rng(rows / 2) + negative));
			t.weights.push_back((negative ? -0.5f : 0.5f) * (2 + number(6, rng(1 << 20))));
		}
		t.offsets.push_back((int64_t) t.keys.size());
	}
	t.bags.skip_missing = skip_missing;
	check_mean(t, width, "weights that nearly cancel");
}

/*
 * Two calls on a stream, without waiting in between: rows of the table are
 * gathered in another order, which is the table of the second call, whose
 * bags are therefore not settled.
 */
static void
check_chain(int hotness, bool small)
{
	const uint32_t width = 128;
	const uint64_t rows = small ? 512 : 65536;
	test_case	t = {};
	device_case d;
	std::vector<int32_t> first(rows);
	std::vector<int32_t> second(rows);
	struct pooling_bags bags = {};
	float	   *middle;
	float	   *out;

	t.name = "two calls, bags of " + std::to_string(hotness);
	rng_state = hotness;
	t.values.resize(rows * width);
	for (uint64_t i = 0; i < t.values.size(); i++)
		t.values[i] = number(5, i);
	for (uint64_t i = 0; i < rows; i++)
	{
		first[i] = (int32_t) rng(rows);
		second[i] = (int32_t) rng(rows);
	}
	t.table.data = d.keep(to_device(t.values));
	t.table.rows = rows;
	t.table.stride = width;
	t.table.width = width;
	t.table.storage = GPUVEC_FLOAT32;
	middle = d.keep(to_device(std::vector<float>(rows * width, untouched)));
	out = d.keep(to_device(std::vector<float>(rows * width, untouched)));
	bags.index_bits = 32;
	bags.indices = d.keep(to_device(first));
	bags.bags = rows;
	bags.hotness = 1;
	bags.lookups = rows;
	bags.settled = 1;

	struct pooling_table middle_table = t.table;
	struct pooling_bags middle_bags = bags;

	middle_table.data = middle;
	middle_bags.indices = d.keep(to_device(second));
	middle_bags.hotness = hotness;
	middle_bags.bags = rows / hotness;
	middle_bags.settled = 0;
	CHECK(cudaDeviceSynchronize());
	CHECK(pooling_forward(policy, &t.table, &bags, GPUVEC_POOL_SUM, middle, GPUVEC_FLOAT32, width, NULL, 0, 0));
	CHECK(pooling_forward(policy, &middle_table, &middle_bags, GPUVEC_POOL_SUM, out, GPUVEC_FLOAT32, width,
							 NULL, 0, 0));
	CHECK(cudaDeviceSynchronize());

	std::vector<float> got = to_host(out, rows * width);

	case_failed = false;
	for (uint64_t b = 0; b < middle_bags.bags && !case_failed; b++)
	{
		std::vector<ref_lookup> bag;

		for (int k = 0; k < hotness; k++)
			bag.push_back({t.values.data() + (uint64_t) first[second[b * hotness + k]] * width, 1.0f});
		compare_row(t, "second call", b, got.data() + b * width, ref_bag(bag, width, false, false).value);
	}
	checks++;
	failures += case_failed;
}

static void
check_all(int n, bool small)
{
	auto		begin = std::chrono::steady_clock::now();

	for (int i = 1; i <= n; i++)
	{
		case_failed = false;
		check_random(i, small);
		checks++;
		failures += case_failed;
	}
	policy = usual_policy();
	for (int hotness : {1, 4, 32})
		check_chain(hotness, small);
	check_alike(287268);
	for (int skip_missing : {0, 1})
	{
		check_canceling(5, {3, 287268, 0, 256}, 256, skip_missing);
		check_canceling(32, {100, 200, 256, 50, 33}, 32, skip_missing);
		check_canceling(128, {100, 600, 9000}, 64, skip_missing);
	}
	printf("%d random cases, %.1f s: %s\n", n,
		   std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count(),
		   failures ? "FAIL" : "ok");
	fflush(stdout);
}

#ifndef EMULATION
/* ---- the benchmark ---- */

/*
 * What cuEmbed reaches: by cell, useful GB/s, or milliseconds for gradients.
 * See the file, cuembed.csv.
 */
static std::map<std::string, double> peers;

static void
read_peers(const char *file)
{
	FILE	   *f = fopen(file, "r");
	char		line[200];
	char		name[100];
	double		value;

	if (f == NULL)
		fprintf(stderr, "could not open %s: results are not compared\n", file);
	while (f != NULL && fgets(line, sizeof line, f))
		if (line[0] != '#' && sscanf(line, "%99[^,],%lf", name, &value) == 2)
			peers[name] = value;
	if (f != NULL)
		fclose(f);
}

/* cuEmbed's number; 0: there is none */
static double
find_peer(const std::string &name)
{
	auto		found = peers.find(name);

	return found == peers.end() ? 0 : found->second;
}

/*
 * The bags of a cell: csr is fixed hotness by offsets, ragged is what it says
 */
enum cell_kind
{
	CELL_SUM, CELL_MEAN, CELL_CONCAT, CELL_CSR, CELL_RAGGED, CELL_WEIGHTED
};

static const char *const kind_names[] = {"sum", "mean", "concat", "csr", "ragged", "weighted"};

/* What all cells share */
struct bench
{
	uint64_t	rows;
	uint64_t	batch;
	void	   *table;
	float	   *out;
	size_t		out_bytes;
	float	   *weights;		/* for all keys */
	int32_t    *keys[2];		/* uniform, Zipf */
	std::vector<int32_t> host_keys[2];
	int64_t    *fixed_offsets[KEYS_PER_BAG + 1];
	int64_t    *ragged_offsets[KEYS_PER_BAG + 1];
	std::vector<int64_t> host_offsets[KEYS_PER_BAG + 1];
	uint64_t	ragged_longest[KEYS_PER_BAG + 1];
	char	   *work;
	size_t		work_bytes;
	double		copy_rate;
	bool		unsettled;		/* do not tell kernels that bags are settled */
};

static bench B;

/* Is this cell asked for? */
static bool
wanted(const std::string &name)
{
	return only.empty() || std::regex_search(name, std::regex(only));
}

/*
 * The time of one of many launches in a graph, in milliseconds.  launch(i)
 * queues the i-th.
 */
static double
time_launches(int n, const std::function<void(int, cudaStream_t)> &launch, int repeats = 4)
{
	cudaStream_t stream;
	cudaGraph_t graph;
	cudaGraphExec_t exec;
	cudaEvent_t start;
	cudaEvent_t stop;
	double		best = 1e30;

	CHECK(cudaStreamCreate(&stream));
	CHECK(cudaEventCreate(&start));
	CHECK(cudaEventCreate(&stop));
	launch(0, stream);			/* loads the kernels, which a capture should not do */
	CHECK(cudaStreamSynchronize(stream));
	CHECK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
	for (int i = 0; i < n; i++)
		launch(i, stream);
	CHECK(cudaStreamEndCapture(stream, &graph));
	CHECK(cudaGraphInstantiate(&exec, graph, 0));
	for (int i = 0; i < repeats; i++)
	{
		float		ms;

		CHECK(cudaEventRecord(start, stream));
		CHECK(cudaGraphLaunch(exec, stream));
		CHECK(cudaEventRecord(stop, stream));
		CHECK(cudaEventSynchronize(stop));
		CHECK(cudaEventElapsedTime(&ms, start, stop));
		if (i > 0)
			best = std::min(best, (double) ms / n);
	}
	CHECK(cudaGraphExecDestroy(exec));
	CHECK(cudaGraphDestroy(graph));
	CHECK(cudaEventDestroy(start));
	CHECK(cudaEventDestroy(stop));
	CHECK(cudaStreamDestroy(stream));
	return best;
}

/* Launches that move so many bytes each: how many take some milliseconds? */
static int
launch_count(double bytes)
{
	double		n = 8e-3 * 3e12 / bytes;

	return n < 3 ? 3 : n > 192 ? 192 : (int) n;
}

/* Offsets of bags of so many keys on average */
static void
make_offsets(int hotness)
{
	std::vector<int64_t> offsets(1, 0);

	for (uint64_t b = 0; b < B.batch; b++)
		offsets.push_back(offsets.back() + hotness);
	B.fixed_offsets[hotness] = to_device(offsets);

	/* lengths 0 .. 2 * hotness, as far as the keys last */
	offsets.assign(1, 0);
	rng_state = hotness;
	B.ragged_longest[hotness] = 0;
	for (uint64_t b = 0; b < B.batch; b++)
	{
		uint64_t	left = B.batch * hotness - offsets.back();
		uint64_t	n = std::min(rng(2 * hotness + 1), left);

		B.ragged_longest[hotness] = std::max(B.ragged_longest[hotness], n);
		offsets.push_back(offsets.back() + n);
	}
	B.ragged_offsets[hotness] = to_device(offsets);
	B.host_offsets[hotness] = offsets;
}

/* A cell of the benchmark of pooling */
struct cell
{
	gpuvec_storage type;
	gpuvec_storage out_storage;
	uint32_t	width;
	int			hotness;
	int			dist;
	enum cell_kind kind;
	struct pooling_table table;
	struct pooling_bags bags;
	gpuvec_pool_mode mode;
	uint64_t	out_rows;
	int			sets;			/* of keys */
	int			ring;			/* of results */

	std::string
	name() const
	{
		char		s[100];

		snprintf(s, sizeof s, "%s %s %u %d %s", dist ? "zipf" : "uniform",
				 type == GPUVEC_FLOAT32 ? "fp32" : out_storage == GPUVEC_FLOAT16 ? "fp16" : "fp16to32",
				 width, hotness, kind_names[kind]);
		return s;
	}

	double
	bytes() const
	{
		return (double) bags.lookups * width * (type == GPUVEC_FLOAT16 ? 2 : 4) +
			(double) out_rows * width * out_size();
	}

	/* bytes of an element of the result */
	int
	out_size() const
	{
		return out_storage == GPUVEC_FLOAT16 ? 2 : 4;
	}

	uint64_t
	first_key(int i) const
	{
		return (uint64_t) (i % sets) * B.batch * hotness;
	}

	void *
	result(int i) const
	{
		return (char *) B.out + (uint64_t) (i % ring) * out_rows * width * out_size();
	}

	void
	launch(int i, cudaStream_t stream) const
	{
		struct pooling_bags b = bags;

		b.indices = B.keys[dist] + first_key(i);
		if (b.weights)
			b.weights = B.weights + first_key(i);
		CHECK(pooling_forward(policy, &table, &b, mode, result(i), out_storage, width, B.work, B.work_bytes, stream));
	}
};

static cell
make_cell(gpuvec_storage type, gpuvec_storage out_storage, uint32_t width, int hotness, int dist,
		  enum cell_kind kind)
{
	cell		c = {};

	c.type = type;
	c.out_storage = out_storage;
	c.width = width;
	c.hotness = hotness;
	c.dist = dist;
	c.kind = kind;
	c.table.data = B.table;
	c.table.rows = B.rows;
	c.table.stride = width;
	c.table.width = width;
	c.table.storage = type;
	c.mode = kind == CELL_MEAN ? GPUVEC_POOL_MEAN : kind == CELL_CONCAT ? GPUVEC_POOL_CONCAT : GPUVEC_POOL_SUM;
	c.bags.index_bits = 32;
	c.bags.settled = !B.unsettled;
	c.bags.bags = B.batch;
	c.bags.hotness = hotness;
	c.bags.lookups = B.batch * hotness;
	if (kind == CELL_CSR)
	{
		c.bags.offsets = B.fixed_offsets[hotness];
		c.bags.longest = hotness;
	}
	if (kind == CELL_RAGGED)
	{
		c.bags.offsets = B.ragged_offsets[hotness];
		c.bags.longest = B.ragged_longest[hotness];
		c.bags.lookups = B.host_offsets[hotness].back();
	}
	if (kind == CELL_WEIGHTED)
		c.bags.weights = B.weights;
	c.out_rows = kind == CELL_CONCAT ? c.bags.lookups : B.batch;
	c.sets = KEYS_PER_BAG / hotness;
	c.ring = (int) std::min<uint64_t>(16, B.out_bytes / (c.out_rows * width * c.out_size()));
	if (c.ring < 1)
	{
		fprintf(stderr, "no room for the results of %s\n", c.name().c_str());
		exit(1);
	}
	return c;
}

/*
 * Compare 64 vectors of launch i with the reference.  Returns the largest
 * error
 */
static double
check_cell(const cell &c, int i, bool &same)
{
	double		worst = 0;
	std::vector<float> got(c.width);

	same = true;
	for (int s = 0; s < 64; s++)
	{
		uint64_t	r = s == 0 ? 0 : s == 1 ? c.out_rows - 1 : mix(s) % c.out_rows;
		uint64_t	begin = c.kind == CELL_CONCAT ? r :
			c.kind == CELL_RAGGED ? B.host_offsets[c.hotness][r] : r * c.hotness;
		uint64_t	end = c.kind == CELL_CONCAT ? r + 1 :
			c.kind == CELL_RAGGED ? B.host_offsets[c.hotness][r + 1] : begin + c.hotness;
		std::vector<std::vector<float>> rows;
		std::vector<ref_lookup> bag;

		for (uint64_t k = begin; k < end; k++)
		{
			uint64_t	key = B.host_keys[c.dist][c.first_key(i) + k];
			std::vector<float> row(c.width);

			for (uint32_t col = 0; col < c.width; col++)
				row[col] = table_number(c.type, 1, key * c.width + col);
			rows.push_back(row);
		}
		for (uint64_t k = begin; k < end; k++)
			bag.push_back({rows[k - begin].data(),
						   c.bags.weights ? number(2, c.first_key(i) + k) : 1.0f});

		ref_sum		sum = ref_bag(bag, c.width, c.bags.weights != NULL, false);

		if (c.mode == GPUVEC_POOL_MEAN)
			ref_divide(sum);
		got = to_floats((char *) c.result(i) + r * c.width * c.out_size(), c.width, c.out_storage);
		round_to(c.out_storage, sum.value);
		for (uint32_t col = 0; col < c.width; col++)
		{
			if (c.kind == CELL_CONCAT ? got[col] != bag[0].row[col] : !ref_same(got[col], sum.value[col]))
				same = false;
			if (sum.magnitude[col] > 0)
				worst = std::max(worst, fabs(got[col] - sum.exact[col]) / sum.magnitude[col]);
		}
	}
	checks++;
	if (!same)
		failures++;
	return worst;
}

/* Time a cell as it is; quickly, for a sweep */
static double
time_cell(const cell &c, int &last, bool quick)
{
	int			n = quick ? std::max(3, launch_count(c.bytes()) / 3) : launch_count(c.bytes());

	last = n - 1;
	return time_launches(n, [&] (int i, cudaStream_t stream) { c.launch(i, stream); }, quick ? 3 : 4);
}

/* A cell: time, rate, correctness */
static void
run_cell(const cell &c)
{
	int			last;
	bool		same;
	double		ms;
	double		rate;
	double		error;
	double		peer;

	if (!wanted(c.name()))
		return;
	ms = time_cell(c, last, false);
	rate = c.bytes() / ms / 1e6;
	error = check_cell(c, last, same);
	peer = find_peer(c.name());
	printf("%-32s %9.4f ms %7.0f GB/s %5.2f of copy  error %.1e %s", c.name().c_str(), ms, rate,
		   rate / B.copy_rate, error, same ? "ok" : "FAIL");
	if (peer > 0)
		printf("  %.2f x cuEmbed", rate / peer);
	printf("\n");
	fflush(stdout);
}

/* Try ways to launch a cell */
static void
sweep_cell(const cell &c)
{
	struct result
	{
		double		ms;
		uint32_t	threads;
		uint32_t	range;
		uint32_t	vector;
	};
	std::vector<result> results;
	int			last;
	double		standard;

	policy = usual_policy();
	standard = time_cell(c, last, true);
	for (uint32_t threads : {32, 64, 128, 256})
		for (uint32_t range : {1, 2, 4, 8, 16})
			for (uint32_t vector : {4, 8, 16})
			{
				bool		gathers = c.kind == CELL_CONCAT || (c.hotness == 1 && c.kind == CELL_SUM);

				if ((gathers && range > 1) || range * c.hotness > 64 ||
					(vector < 16 && c.kind != CELL_RAGGED))
					continue;
				policy = usual_policy();
				set_threads(policy, threads);
				set_range(policy, range);
				set_vector_bytes(policy, vector);
				results.push_back({time_cell(c, last, true), threads, range, vector});
			}
	policy = usual_policy();
	std::sort(results.begin(), results.end(), [] (const result &a, const result &b) { return a.ms < b.ms; });
	printf("%-32s default %.4f ms %.0f GB/s;", c.name().c_str(), standard, c.bytes() / standard / 1e6);
	for (size_t i = 0; i < results.size() && i < 5; i++)
		printf(" [t%u r%u v%u] %.0f", results[i].threads, results[i].range,
			   results[i].vector, c.bytes() / results[i].ms / 1e6);
	printf("\n");
	fflush(stdout);
}

/*
 * All cells of a type, a width, a hotness and a distribution; or ways to
 * launch some
 */
static void
run_cells(gpuvec_storage type, gpuvec_storage out_storage, uint32_t width, int hotness, int dist,
		  bool sweep)
{
	bool		key_cell = width == 128 || (width == 32 && hotness == 64);

	for (enum cell_kind kind : {CELL_SUM, CELL_MEAN, CELL_CONCAT, CELL_CSR, CELL_RAGGED})
	{
		cell		c = make_cell(type, out_storage, width, hotness, dist, kind);

		if (!sweep)
			run_cell(c);
		else if (key_cell && (kind == CELL_SUM || kind == CELL_RAGGED || (kind == CELL_CSR && hotness == 1)))
			sweep_cell(c);
	}
	if (!sweep && hotness == 64 && width == 128)
		run_cell(make_cell(type, out_storage, width, hotness, dist, CELL_WEIGHTED));
}

/* Gradients of the table */
static void
run_grad(uint32_t width, int hotness, int dist, gpuvec_pool_mode mode, bool weighted)
{
	const int	rings = 4;		/* of gradients of results */
	uint64_t	keys = B.batch * hotness;
	uint64_t	samples = mode == GPUVEC_POOL_CONCAT ? keys : B.batch;
	struct pooling_grad grad = {};
	struct pooling_bags bags = {};
	int			sets = KEYS_PER_BAG / hotness;
	float	   *samples_grad;
	uint32_t   *out_rows;
	size_t		bytes;
	double		ms[3];
	int			n = 8;
	double		moved;
	double		peer;
	static const char *const mode_names[] = {"sum", "mean", "concat"};
	char		name[100];

	snprintf(name, sizeof name, "gradient %s fp32 %u %d %s%s", dist ? "zipf" : "uniform", width, hotness,
			 mode_names[mode], weighted ? " weighted" : "");
	if (!wanted(name))
		return;
	peer = find_peer(name);
	CHECK(cudaMalloc((void **) &samples_grad, rings * samples * width * sizeof(float)));
	CHECK(cudaMalloc((void **) &out_rows, (keys + 1) * sizeof(uint32_t)));
	fill(samples_grad, rings * samples * width, 3, false);
	grad.rows = B.rows;
	grad.width = width;
	grad.grad_stride = width;
	grad.out = B.out;
	grad.out_stride = width;
	grad.out_rows = out_rows;
	grad.out_count = out_rows + keys;
	bags.index_bits = 32;
	bags.bags = B.batch;
	bags.hotness = hotness;
	bags.lookups = keys;
	bags.weights = weighted ? B.weights : NULL;

	CHECK(pooling_grad_workspace(&grad, &bags, mode, &bytes));
	if (bytes > B.work_bytes || keys * width * sizeof(float) > B.out_bytes)
	{
		fprintf(stderr, "no room for gradients: %zu\n", bytes);
		exit(1);
	}

	auto		launch = [&] (int i, cudaStream_t stream)
	{
		bags.indices = B.keys[dist] + (uint64_t) (i % sets) * keys;
		grad.grad = samples_grad + (uint64_t) (i % rings) * samples * width;
		CHECK(pooling_grad(policy, &grad, &bags, mode, B.work, B.work_bytes, stream));
	};

	for (uint32_t stages = 3; stages-- > 0;)
	{
		policy.grad_stages = 3 - stages;
		ms[policy.grad_stages % 3] = time_launches(n, launch);
	}
	launch(n - 1, 0);
	CHECK(cudaDeviceSynchronize());

	/* which rows there are, and all about some of them */
	const int32_t *host_keys = B.host_keys[dist].data() + (uint64_t) ((n - 1) % sets) * keys;
	const uint64_t first_sample = (uint64_t) ((n - 1) % rings) * samples;
	std::vector<uint32_t> counts(B.rows, 0);
	std::vector<uint32_t> expected_rows;
	uint32_t	hottest = 0;
	bool		same = true;
	double		worst = 0;

	for (uint64_t i = 0; i < keys; i++)
		counts[host_keys[i]]++;
	for (uint64_t r = 0; r < B.rows; r++)
	{
		if (counts[r] > 0)
			expected_rows.push_back((uint32_t) r);
		if (counts[r] > counts[hottest])
			hottest = (uint32_t) r;
	}
	if (to_host(grad.out_count, 1)[0] != expected_rows.size() ||
		to_host(out_rows, expected_rows.size()) != expected_rows)
		same = false;

	std::map<uint32_t, std::vector<uint64_t>> chosen;

	chosen[hottest];
	for (int i = 0; i < 63; i++)
		chosen[expected_rows[mix(i) % expected_rows.size()]];
	std::vector<bool> is_chosen(B.rows, false);

	for (auto &entry : chosen)
		is_chosen[entry.first] = true;
	for (uint64_t i = 0; i < keys; i++)
		if (is_chosen[host_keys[i]])
			chosen[host_keys[i]].push_back(i);
	for (auto &entry : chosen)
	{
		std::unordered_map<uint64_t, std::vector<float>> gradients;
		std::vector<ref_lookup> lookups;
		uint64_t	at = std::lower_bound(expected_rows.begin(), expected_rows.end(), entry.first) -
			expected_rows.begin();
		std::vector<float> got = to_host(B.out + at * width, width);

		for (uint64_t i : entry.second)
		{
			uint64_t	sample = mode == GPUVEC_POOL_CONCAT ? i : i / hotness;
			std::vector<float> &row = gradients[sample];
			float		coefficient = weighted ? number(2, i) : 1.0f;

			if (row.empty())
				for (uint32_t c = 0; c < width; c++)
					row.push_back(number(3, (first_sample + sample) * width + c));
			if (mode == GPUVEC_POOL_MEAN)
			{
				std::vector<ref_lookup> bag;

				for (int k = 0; k < hotness; k++)
					bag.push_back({row.data(), weighted ? number(2, sample * hotness + k) : 1.0f});
				coefficient /= ref_grad_divisor(bag, false);
			}
			lookups.push_back({row.data(), coefficient});
		}
		ref_sum		sum = ref_bag(lookups, width, weighted || mode == GPUVEC_POOL_MEAN, false);

		for (uint32_t c = 0; c < width; c++)
		{
			if (!ref_same(got[c], sum.value[c]))
				same = false;
			if (sum.magnitude[c] > 0)
				worst = std::max(worst, fabs(got[c] - sum.exact[c]) / sum.magnitude[c]);
		}
	}
	checks++;
	if (!same)
		failures++;

	moved = (double) keys * width * 4 + (double) expected_rows.size() * width * 4;
	printf("%s: %.4f ms (sorted after %.4f, pieces after %.4f), %zu rows, the hottest %u times, pooling %.0f GB/s, error %.1e %s",
		   name, ms[0], ms[1], ms[2], expected_rows.size(), counts[hottest], moved / (ms[0] - ms[2]) / 1e6, worst,
		   same ? "ok" : "FAIL");
	if (peer > 0)
		printf("  %.2f x as fast as cuEmbed", peer / ms[0]);
	printf("\n");
	fflush(stdout);
	CHECK(cudaFree(samples_grad));
	CHECK(cudaFree(out_rows));
}

/*
 * Gradients of the weights, as the CUDA backend computes them: the table is
 * filled already.  That all of them are right is tested by vectors_test;
 * here, some.
 */
static void
run_grad_weights(uint32_t width, int hotness, int dist, gpuvec_pool_mode mode)
{
	bool		mean = mode == GPUVEC_POOL_MEAN;
	cell		c = make_cell(GPUVEC_FLOAT32, GPUVEC_FLOAT32, width, hotness, dist,
							  mean ? CELL_MEAN : CELL_SUM);
	struct weight_params params = {};
	float	   *grad;
	double		ms;
	double		worst = 0;
	int			n = 8;

	if (!wanted("gradient of weights " + c.name()))
		return;
	CHECK(cudaMalloc((void **) &grad, B.batch * width * sizeof(float)));
	fill(grad, B.batch * width, 3, false);
	params.elements = (const char *) B.table;
	params.stride_bytes = width * sizeof(float);
	params.width = width;
	params.hotness = hotness;
	params.n = c.bags.lookups;
	params.gradient = grad;
	params.out = (float *) B.work;
	params.nbags = B.batch;
	if (mean)
	{
		/* those of the last launch, for which they have to be right */
		c.launch(n - 1, 0);
		params.means = (const float *) c.result(n - 1);
		params.bases = (double *) (B.work + c.bags.lookups * sizeof(float));
		params.divisors = to_device(std::vector<float>(B.batch, (float) hotness));
	}
	ms = time_launches(n, [&] (int i, cudaStream_t stream)
	{
		struct weight_params p = params;

		p.slots = (const uint32_t *) B.keys[dist] + c.first_key(i);
		CHECK(weights_launch(&p, GPUVEC_FLOAT32, stream));
	});

	for (int s = 0; s < 32; s++)
	{
		uint64_t	i = mix(s) % c.bags.lookups;
		uint64_t	bag = i / hotness;
		double		product = 0;	/* with the lookup's row */
		double		base = 0;		/* with the mean */
		double		magnitude = 0;

		for (int k = 0; k < hotness; k++)
		{
			uint64_t	key = B.host_keys[dist][c.first_key(n - 1) + bag * hotness + k];

			for (uint32_t col = 0; col < width; col++)
			{
				double		x = (double) number(1, key * width + col) * number(3, bag * width + col);

				base += x / hotness;
				product += bag * hotness + k == i ? x : 0;
				magnitude += fabs(x) / hotness;
			}
		}
		if (mean)
			product = (product - base) / hotness;
		worst = std::max(worst, fabs(to_host(params.out + i, 1)[0] - product) / magnitude);
	}
	checks++;
	if (!(worst < 1e-6))
		failures++;
	printf("gradient of weights %s fp32 %u %d %s: %.4f ms, %.0f GB/s of rows, error %.1e %s\n",
		   dist ? "zipf" : "uniform", width, hotness, mean ? "mean" : "sum", ms,
		   (double) c.bags.lookups * width * 4 / ms / 1e6, worst, worst < 1e-6 ? "ok" : "FAIL");
	fflush(stdout);
	CHECK(cudaFree(grad));
	CHECK(cudaFree((void *) params.divisors));
}

/*
 * How fast uniform keys' rows of BYTES bytes can be read, if nothing is done
 * with them
 */
template <int BYTES>
static void
time_reads(void)
{
	uint64_t	nkeys = B.batch * KEYS_PER_BAG / 256 * 256;
	double		ms = time_launches(4, [&] (int, cudaStream_t stream)
	{
		struct read_params params = {(const char *) B.table, B.keys[0], (uint32_t *) B.out};

		CHECK(launch(read_kernel<BYTES>, nkeys / 256, 256, 0, stream, params));
	});

	printf("reading alone, rows of %d bytes: %.0f GB/s\n", BYTES, (double) nkeys * BYTES / ms / 1e6);
}

/* Keys, weights, offsets, room */
static void
set_up(uint64_t rows, uint64_t batch)
{
	uint64_t	nkeys = batch * KEYS_PER_BAG;

	B.rows = rows;
	B.batch = batch;
	CHECK(cudaMalloc(&B.table, rows * 256 * sizeof(float)));
	B.out_bytes = nkeys * 256 * sizeof(float);
	CHECK(cudaMalloc((void **) &B.out, B.out_bytes));
	B.work_bytes = nkeys * 60 + nkeys / 128 * 1024 + ((size_t) 64 << 20);
	CHECK(cudaMalloc((void **) &B.work, B.work_bytes));
	CHECK(cudaMalloc((void **) &B.weights, nkeys * sizeof(float)));
	fill(B.weights, nkeys, 2, false);
	for (int dist = 0; dist < 2; dist++)
	{
		struct key_params params;

		CHECK(cudaMalloc((void **) &B.keys[dist], nkeys * sizeof(int32_t)));
		params = {B.keys[dist], batch, rows, dist};
		CHECK(launch(key_kernel, divide_up(batch, 64), 64, 0, 0, params));
		CHECK(cudaDeviceSynchronize());
		B.host_keys[dist] = to_host(B.keys[dist], nkeys);
	}
	for (int hotness : {1, 16, 64})
		make_offsets(hotness);

	size_t		half = B.out_bytes / 2;
	double		ms = time_launches(4, [&] (int, cudaStream_t stream)
	{
		struct copy_params params = {(const float4 *) ((char *) B.out + half), (float4 *) B.out, half / 16};

		CHECK(launch(copy_kernel, divide_up(params.n, 1024), 256, 0, stream, params));
	});

	B.copy_rate = 2.0 * half / ms / 1e6;
	printf("copy: %.0f GB/s read and written; %llu rows, %llu bags\n", B.copy_rate,
		   (unsigned long long) rows, (unsigned long long) batch);
	time_reads<64>();
	time_reads<128>();
	time_reads<256>();
	time_reads<512>();
	fflush(stdout);
}

static void
fill_table(gpuvec_storage type, uint32_t width)
{
	fill(B.table, B.rows * width, 1, type == GPUVEC_FLOAT16);
	CHECK(cudaDeviceSynchronize());
}
#endif

/* What the command line asks for */
struct options
{
	int			cases = 200;
	bool		times = true;
	bool		sweep = false;
	bool		unsettled = false;
	bool		small = false;
	const char *peers = "test/bench/cuembed.csv";
	struct pooling_policy policy = usual_policy();
	uint64_t	rows = 10000000;
	uint64_t	batch = 65536;
};

/* Take an option with a value; false: it is none */
static bool
take_value(struct options &o, const std::string &arg, const char *value)
{
	uint32_t	n = (uint32_t) strtoul(value, NULL, 10);

	if (arg == "--range")
		set_range(o.policy, n);
	else if (arg == "--threads")
		set_threads(o.policy, n);
	else if (arg == "--vector")
		set_vector_bytes(o.policy, n);
	else if (arg == "--bulk")
		set_bulk(o.policy, n);
	else if (arg == "--slice")
		set_slice(o.policy, n, true);
	else if (arg == "--only")
		only = value;
	else if (arg == "--peers")
		o.peers = value;
	else if (arg == "--check")
		o.cases = (int) n;
	else if (arg == "--rows")
		o.rows = strtoull(value, NULL, 10);
	else if (arg == "--batch")
		o.batch = strtoull(value, NULL, 10);
	else
		return false;
	return true;
}

/* Take an option without one */
static bool
take_flag(struct options &o, const std::string &arg)
{
	if (arg == "--no-time")
		o.times = false;
	else if (arg == "--sweep")
		o.sweep = true;
	else if (arg == "--small")
		o.small = true;
	else if (arg == "--unsettled")
		o.unsettled = true;
	else if (arg == "--unchained")
		o.policy.chained = false;
	else
		return false;
	return true;
}

#ifndef EMULATION
/* Gradients, or ways to launch them */
static void
run_gradients(const struct options &o)
{
	for (uint32_t threads : {64, 128})
		for (uint32_t slice : {512, 256})
		{
			if (!o.sweep && (threads > 64 || slice < 512))
				continue;
			if (o.sweep)
			{
				set_threads(policy, threads);
				set_slice(policy, slice, true);
			}
			for (int dist = 0; dist < 2; dist++)
			{
				if (o.sweep)
					printf("[t%u s%u] ", threads, slice);
				run_grad(128, 64, dist, GPUVEC_POOL_SUM, false);
			}
			policy = o.policy;
		}
	if (o.sweep)
		return;
	run_grad(128, 64, 0, GPUVEC_POOL_MEAN, true);
	run_grad(128, 64, 1, GPUVEC_POOL_MEAN, true);
	run_grad(128, 64, 0, GPUVEC_POOL_CONCAT, false);
	run_grad(128, 16, 0, GPUVEC_POOL_SUM, false);
	run_grad(32, 64, 1, GPUVEC_POOL_SUM, false);
	run_grad_weights(128, 64, 0, GPUVEC_POOL_SUM);
	run_grad_weights(128, 64, 1, GPUVEC_POOL_SUM);
	run_grad_weights(128, 64, 0, GPUVEC_POOL_MEAN);
}

/* All cells */
static void
run_benchmark(const struct options &o)
{
	policy = o.policy;
	B.unsettled = o.unsettled;
	read_peers(o.peers);
	set_up(o.rows, o.batch);
	for (gpuvec_storage storage : {GPUVEC_FLOAT32, GPUVEC_FLOAT16})
		for (uint32_t width : {32u, 64u, 128u, 256u})
		{
			fill_table(storage, width);
			for (int dist = 0; dist < 2; dist++)
				for (int hotness : {1, 16, 64})
				{
					run_cells(storage, storage, width, hotness, dist, o.sweep);
					if (storage == GPUVEC_FLOAT16)
						run_cells(storage, GPUVEC_FLOAT32, width, hotness, dist, o.sweep);
				}
			if (storage == GPUVEC_FLOAT32 && width == 128)
				run_gradients(o);
		}
}
#endif

int
main(int argc, char **argv)
{
	struct options o;
	auto		begin = std::chrono::steady_clock::now();

	for (int i = 1; i < argc; i++)
	{
		if (take_flag(o, argv[i]))
			continue;
		if (i + 1 < argc && take_value(o, argv[i], argv[i + 1]))
		{
			i++;
			continue;
		}
		fprintf(stderr, "usage: %s [--check N] [--small] [--no-time] [--sweep] [--only REGEX] [--rows N] [--batch N] [--peers FILE] [--unchained] [--unsettled] [--range N] [--threads N] [--vector N] [--slice N] [--bulk N]\n",
				argv[0]);
		return 2;
	}
	policy = usual_policy();
	check_all(o.cases, o.small);
#ifndef EMULATION
	if (o.times)
		run_benchmark(o);
#endif
	printf("%.1f s\n", std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count());
	printf("%d passed, %d failed\n", checks - failures, failures);
	return failures ? 1 : 0;
}
