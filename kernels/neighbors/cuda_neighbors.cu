/*-------------------------------------------------------------------------
 *
 * cuda_neighbors.cu
 *	  Finding the nearest items of items on a GPU: memory, and how columns are
 *	  cut into slices and ranges.
 *
 * A slice has as many columns as the shared memory of a block has sums, and
 * all slices are about equally long.  Its ranges have about equal work: column
 * c is in as many products as the item of c has itself.
 *
 * Items of a batch are started in the order of their work, the longest first,
 * so that none of the long ones is left when all others are done.
 *
 * A product has one allocation on the device, and a stream.
 *
 *-------------------------------------------------------------------------
 */
#include <algorithm>
#include <memory>
#include <new>
#include <string.h>

#include "kernels/device/arena.h"
#include "kernels/neighbors/cuda_neighbors.h"
#include "kernels/neighbors/product_kernels.h"

namespace gpuvec
{

static const char *const finding = "find neighbors on the GPU";

struct cuda_finder : gpuvec_finder
{
	struct cuda_device &device;
	struct neighbors_policy policy;

	cuda_finder(struct cuda_device &d, const struct neighbors_policy &p)
		: gpuvec_finder(), device(d), policy(p)
	{
	}
};

struct cuda_product : gpuvec_device_product
{
	struct cuda_device &device;
	unique_stream stream;
	unique_memory memory;
	product_params params = {};
	uint32_t columns = 0;               /* of the largest part */
	uint32_t batch = 0;                 /* most items of a batch */
	uint64_t split_numbers;             /* of the policy */
	std::unique_ptr<uint64_t[]> work;   /* [nitems + 1] */
	std::unique_ptr<uint32_t[]> order;  /* [batch] */
	std::unique_ptr<uint32_t[]> counts; /* [batch * slices] */

	explicit cuda_product(struct cuda_finder &f)
		: gpuvec_device_product(), device(f.device), split_numbers(f.policy.split_numbers)
	{
		finder = &f;
	}
};

/* ---- memory ---- */

/* In how many slices are columns searched? */
static uint32_t
count_slices(const struct cuda_finder &f, uint32_t nitems)
{
	uint32_t most = std::min(f.policy.most_columns, product_columns(f.device.shared_limit));

	return (uint32_t) divide_up(nitems, most);
}

/* Cut an allocation, or only add up how many bytes it takes */
static product_params
take_memory(struct arena &arena, const gpuvec_product_problem *p, uint32_t nslices, uint32_t batch)
{
	uint64_t n = p->user_starts[p->nusers];
	uint64_t nranges = (uint64_t) nslices * PRODUCT_WARPS;
	product_params params = {};

	params.matrix.weighting = p->weighting;
	params.matrix.k = p->k;
	params.matrix.nusers = p->nusers;
	params.matrix.nitems = p->nitems;
	params.nslices = nslices;
	params.matrix.user_starts = arena.take<uint64_t>((uint64_t) p->nusers + 1);
	params.matrix.columns = arena.take<uint32_t>(n);
	params.matrix.weights = arena.take<double>(n);
	params.matrix.item_starts = arena.take<uint64_t>((uint64_t) p->nitems + 1);
	params.matrix.item_users = arena.take<uint32_t>(n);
	params.matrix.item_weights = arena.take<double>(n);
	params.matrix.items = arena.take<uint32_t>(p->nitems);
	params.matrix.squares = arena.take<double>(p->nitems);
	params.bounds = arena.take<uint32_t>(nranges + 1);
	params.splits = arena.take<uint32_t>(p->nusers * (nranges + 1));
	params.order = arena.take<uint32_t>(batch);
	params.best = arena.take<gpuvec_scored_item>((uint64_t) batch * nslices * p->k);
	params.counts = arena.take<uint32_t>((uint64_t) batch * nslices);
	return params;
}

static size_t
finder_bytes(gpuvec_finder *finder, const gpuvec_product_problem *problem, uint32_t batch)
{
	struct cuda_finder &f = *static_cast<struct cuda_finder *>(finder);
	uint64_t nslices = count_slices(f, problem->nitems);
	uint64_t least = f.policy.least_products * nslices * problem->item_starts[problem->nitems];
	struct arena arena = {};

	/* each warp looks at all users, even if it has nothing to add */
	if (problem->work[problem->nitems] < least || batch * nslices > INT32_MAX)
		return SIZE_MAX;
	(void) take_memory(arena, problem, (uint32_t) nslices, batch);
	return arena.used;
}

/* ---- slices and ranges ---- */

/* Work of a column: products that are added to it */
static uint64_t
column_work(const gpuvec_product_problem *p, uint32_t column)
{
	return p->work[p->items[column] + 1] - p->work[p->items[column]];
}

/*
 * Cut the columns of a slice into ranges of equal work: bounds[0 ..
 * PRODUCT_WARPS - 1] are where they begin
 */
static void
cut_slice(const gpuvec_product_problem *p, uint32_t first, uint32_t end, uint32_t *bounds)
{
	uint64_t total = 0;
	uint64_t sum = 0;
	uint32_t column = first;

	for (uint32_t c = first; c < end; c++)
		total += column_work(p, c);
	for (uint32_t range = 0; range < PRODUCT_WARPS; range++)
	{
		while (column < end && sum < total / PRODUCT_WARPS * range)
			sum += column_work(p, column++);
		bounds[range] = column;
	}
}

/* The first columns of all ranges, and the number of columns */
static std::unique_ptr<uint32_t[]>
make_bounds(const gpuvec_product_problem *p, uint32_t nslices)
{
	std::unique_ptr<uint32_t[]> bounds(new (std::nothrow) uint32_t[nslices * PRODUCT_WARPS + 1]);

	if (bounds == NULL)
		return bounds;
	for (uint32_t slice = 0; slice < nslices; slice++)
	{
		uint32_t first = (uint32_t) ((uint64_t) p->nitems * slice / nslices);
		uint32_t end = (uint32_t) ((uint64_t) p->nitems * (slice + 1) / nslices);

		cut_slice(p, first, end, &bounds[slice * PRODUCT_WARPS]);
	}
	bounds[nslices * PRODUCT_WARPS] = p->nitems;
	return bounds;
}

/* Where ranges begin in a user's row */
static void
split_user(const gpuvec_product_problem *p, uint32_t user, const uint32_t *bounds, uint32_t nranges,
		   uint32_t *splits)
{
	const uint32_t *row = p->columns + p->user_starts[user];
	uint32_t n = (uint32_t) (p->user_starts[user + 1] - p->user_starts[user]);
	uint32_t at = 0;

	for (uint32_t range = 0; range <= nranges; range++)
	{
		while (at < n && row[at] < bounds[range])
			at++;
		splits[range] = at;
	}
}

/* ---- opening ---- */

/* Copy an array to the device, and wait for it */
template <typename T>
static bool
upload(struct cuda_product &product, const T *to, const T *from, uint64_t n, gpuvec_error *error)
{
	cudaStream_t stream = product.stream.get();

	return product.device.check(cudaMemcpyAsync(const_cast<T *>(to), from, n * sizeof(T),
												cudaMemcpyHostToDevice, stream),
								finding, error) &&
		   product.device.check(cudaStreamSynchronize(stream), finding, error);
}

static bool
upload_matrix(struct cuda_product &product, const gpuvec_product_problem *p, gpuvec_error *error)
{
	const gpuvec_product_problem &to = product.params.matrix;
	uint64_t n = p->user_starts[p->nusers];

	return upload(product, to.user_starts, p->user_starts, (uint64_t) p->nusers + 1, error) &&
		   upload(product, to.columns, p->columns, n, error) &&
		   upload(product, to.weights, p->weights, n, error) &&
		   upload(product, to.item_starts, p->item_starts, (uint64_t) p->nitems + 1, error) &&
		   upload(product, to.item_users, p->item_users, n, error) &&
		   upload(product, to.item_weights, p->item_weights, n, error) &&
		   upload(product, to.items, p->items, p->nitems, error) &&
		   upload(product, to.squares, p->squares, p->nitems, error);
}

/*
 * Copy where ranges begin in the rows of all users, some users at a time: the
 * memory that this takes is not charged
 */
static bool
upload_splits(struct cuda_product &product, const gpuvec_product_problem *p, const uint32_t *bounds,
			  gpuvec_error *error)
{
	uint32_t nranges = product.slices * PRODUCT_WARPS;
	uint64_t width = (uint64_t) nranges + 1;
	uint32_t most = (uint32_t) std::max(product.split_numbers / width, (uint64_t) 1);
	std::unique_ptr<uint32_t[]> splits(new (std::nothrow)
										   uint32_t[std::min(most, p->nusers) * width]);

	if (splits == NULL)
		return gpuvec_fail_memory(error, 0);
	for (uint64_t first = 0; first < p->nusers; first += most)
	{
		uint32_t n = (uint32_t) std::min((uint64_t) most, p->nusers - first);

		for (uint32_t i = 0; i < n; i++)
			split_user(p, (uint32_t) first + i, bounds, nranges, &splits[i * width]);
		if (!upload(product, product.params.splits + first * width, splits.get(), n * width, error))
			return false;
	}
	return true;
}

/* Copy what the kernel needs beside the matrix */
static bool
upload_ranges(struct cuda_product &product, const gpuvec_product_problem *p, gpuvec_error *error)
{
	std::unique_ptr<uint32_t[]> bounds = make_bounds(p, product.slices);

	if (bounds == NULL)
		return gpuvec_fail_memory(error, 0);
	for (uint32_t slice = 0; slice < product.slices; slice++)
		product.columns = std::max(product.columns, bounds[(slice + 1) * PRODUCT_WARPS] -
														bounds[slice * PRODUCT_WARPS]);
	return upload(product, product.params.bounds, bounds.get(),
				  (uint64_t) product.slices * PRODUCT_WARPS + 1, error) &&
		   upload_splits(product, p, bounds.get(), error);
}

/* Memory on host and device */
static bool
allocate_product(struct cuda_product &product, const gpuvec_product_problem *p, gpuvec_error *error)
{
	struct arena arena = {};

	product.work.reset(new (std::nothrow) uint64_t[(size_t) p->nitems + 1]);
	product.order.reset(new (std::nothrow) uint32_t[product.batch]);
	product.counts.reset(new (std::nothrow) uint32_t[(size_t) product.batch * product.slices]);
	if (product.work == NULL || product.order == NULL || product.counts == NULL)
		return gpuvec_fail_memory(error, 0);
	memcpy(product.work.get(), p->work, ((size_t) p->nitems + 1) * sizeof(uint64_t));
	(void) take_memory(arena, p, product.slices, product.batch);
	if (!allocate(product.device, product.memory, arena.used, product.stream.get(),
				  "neighbors of items", error))
		return false;
	arena.base = (char *) product.memory.get();
	arena.used = 0;
	product.params = take_memory(arena, p, product.slices, product.batch);
	return true;
}

static void
product_free(gpuvec_device_product *device_product)
{
	struct cuda_product *product = static_cast<struct cuda_product *>(device_product);
	struct cuda_device &device = product->device;

	free_and_wait(device, product->memory);
	delete product;
	device.trim();
}

/* Allocate and fill the memory of a product */
static bool
fill_product(struct cuda_product &product, const gpuvec_product_problem *problem,
			 gpuvec_error *error)
{
	return product.device.enter(error) &&
		   create_patient_stream(product.device, product.stream, error) &&
		   allocate_product(product, problem, error) && upload_matrix(product, problem, error) &&
		   upload_ranges(product, problem, error);
}

static gpuvec_device_product *
finder_open(gpuvec_finder *finder, const gpuvec_product_problem *problem, uint32_t batch,
			gpuvec_error *error)
{
	struct cuda_finder &f = *static_cast<struct cuda_finder *>(finder);
	struct cuda_product *product = new (std::nothrow) cuda_product(f);

	if (product == NULL)
	{
		gpuvec_fail_memory(error, sizeof(*product));
		return NULL;
	}
	product->slices = count_slices(f, problem->nitems);
	product->batch = batch;
	if (!fill_product(*product, problem, error))
	{
		product_free(product);
		return NULL;
	}
	return product;
}

/* ---- a batch ---- */

/* Set order[]: the items of a batch, those with most work first */
static void
order_batch(struct cuda_product &product, uint32_t first, uint32_t n)
{
	const uint64_t *work = product.work.get() + first;

	for (uint32_t i = 0; i < n; i++)
		product.order[i] = i;
	std::sort(product.order.get(), product.order.get() + n,
			  [work](uint32_t a, uint32_t b)
			  { return work[a + 1] - work[a] > work[b + 1] - work[b]; });
}

/* Put what the slices have found for each item next to each other */
static void
join_slices(const struct cuda_product &product, uint32_t n, gpuvec_scored_item *best,
			uint32_t *counts)
{
	uint64_t k = product.params.matrix.k;

	for (uint32_t i = 0; i < n; i++)
	{
		gpuvec_scored_item *row = best + (uint64_t) i * product.slices * k;

		counts[i] = 0;
		for (uint32_t slice = 0; slice < product.slices; slice++)
		{
			uint32_t found = product.counts[(size_t) i * product.slices + slice];

			memmove(row + counts[i], row + slice * k, found * sizeof(*row));
			counts[i] += found;
		}
	}
}

/* Queue a batch, and copy the answer */
static bool
run_batch(struct cuda_product &product, uint32_t first, uint32_t n, gpuvec_scored_item *best,
		  gpuvec_error *error)
{
	struct cuda_device &device = product.device;
	cudaStream_t stream = product.stream.get();
	uint64_t slots = (uint64_t) n * product.slices;

	product.params.first = first;
	return upload(product, product.params.order, product.order.get(), n, error) &&
		   device.check(product_find(product.params, n, product.columns, stream), finding, error) &&
		   device.check(cudaMemcpyAsync(product.counts.get(), product.params.counts,
										slots * sizeof(uint32_t), cudaMemcpyDeviceToHost, stream),
						finding, error) &&
		   device.check(cudaMemcpyAsync(best, product.params.best,
										slots * product.params.matrix.k * sizeof(*best),
										cudaMemcpyDeviceToHost, stream),
						finding, error) &&
		   device.check(cudaStreamSynchronize(stream), finding, error);
}

static bool
product_batch(gpuvec_device_product *device_product, uint32_t first, uint32_t n, const int *,
			  gpuvec_scored_item *best, uint32_t *counts, gpuvec_error *error)
{
	struct cuda_product &product = *static_cast<struct cuda_product *>(device_product);

	if (!product.device.enter(error))
		return false;
	order_batch(product, first, n);
	if (!run_batch(product, first, n, best, error))
		return false;
	join_slices(product, n, best, counts);
	return true;
}

static void
finder_close(gpuvec_finder *finder)
{
	delete static_cast<struct cuda_finder *>(finder);
}

gpuvec_finder *
neighbors_open(struct cuda_device &device, const struct neighbors_policy &policy,
			   gpuvec_error *error)
{
	struct cuda_finder *f = new (std::nothrow) cuda_finder(device, policy);

	if (f == NULL)
	{
		gpuvec_fail_memory(error, sizeof(*f));
		return NULL;
	}
	f->bytes = finder_bytes;
	f->open = finder_open;
	f->find = product_batch;
	f->free = product_free;
	f->close = finder_close;
	if (!device.check(product_prepare(device.shared_limit), "load the kernels", error))
	{
		delete f;
		return NULL;
	}
	return f;
}

} // namespace gpuvec
