/*-------------------------------------------------------------------------
 *
 * backend.cu
 *	  Opening a GPU for searches, and closing it.
 *
 *-------------------------------------------------------------------------
 */
#include <algorithm>
#include <new>
#include <stdio.h>
#include <string.h>

#include "kernels/search/search_backend.h"

namespace gpuvec
{

#define MOST_WORKSPACE ((size_t) 2 << 30)

/* Threads that decode large answers, including the searching thread */
#define DECODE_THREADS 4

static void
info(gpuvec_backend *backend, gpuvec_backend_info *info)
{
	struct search_backend *b = static_cast<struct search_backend *>(backend);
	gpuvec_error ignored;

	memset(info, 0, sizeof(*info));
	snprintf(info->name, sizeof(info->name), "%s", b->name);
	snprintf(info->device, sizeof(info->device), "%s", b->device.name);
	info->capability = b->device.capability;
	info->memory_total = b->device.memory_total;
	if (b->device.enter(&ignored))
		info->memory_free = b->device.free_memory();
}

static void
trim(gpuvec_backend *backend)
{
	static_cast<struct search_backend *>(backend)->device.trim();
}

/*
 * Free everything that opening and searching have allocated.  Segments and
 * views have been released before.
 */
static void
close(gpuvec_backend *backend)
{
	struct search_backend *b = static_cast<struct search_backend *>(backend);
	gpuvec_error ignored;

	if (b->vectors)
		b->vectors->close(b->vectors);
	if (b->trainer)
		b->trainer->close(b->trainer);
	if (b->finder)
		b->finder->close(b->finder);
	if (b->pool)
		gpuvec_thread_pool_free(b->pool);
	if (b->stream != NULL && b->device.enter(&ignored))
		cudaStreamSynchronize(b->stream.get());
	cudaGetLastError();
	delete b;
}

/* The policy by which a device is searched */
static struct gpuvec_search_policy
default_policy(const struct cuda_device &device, size_t workspace)
{
	struct gpuvec_search_policy policy = {};

	policy.workspace = workspace ? workspace : std::min(device.memory_total / 16, MOST_WORKSPACE);
	policy.chunk_queries = 32768;
	policy.candidates = 16384;
	policy.candidates_few = 262144;
	policy.candidates_per_k = 8;
	policy.retry_candidates = 262144;
	policy.retry_per_k = 8;
	policy.entry_bits = 32;
	policy.least_planes = 8;
	policy.growth = 8;
	policy.growth_few = 16;
	policy.first_rows = 4096;
	policy.first_per_k = 16;
	policy.item_tiles = 2048;
	policy.grab = 4;
	policy.list_rows = 16384;

	policy.list_parts[0] = 96; /* with more common ids, counting is no faster */
	policy.list_parts[1] = 88;
	policy.list_parts[2] = 80;
	policy.list_parts[3] = 64;
	policy.list_parts[4] = 48;
	policy.list_parts[5] = 32;
	policy.list_parts[6] = 16;
	policy.sample_tiled = 24;
	policy.sample_whole = 6;
	policy.sample_rows = 16;
	policy.near_part = 16;
	policy.near_queries = 48;
	policy.item_queries = 64;
	policy.whole_item_queries = 8;
	policy.direct_queries = 48;
	policy.lone_queries = LONE_QUERIES;
	policy.scan_above = 48;
	policy.scan_below = 400;
	policy.cold_slots = 1024;
	policy.cold_slots_most = 262144;
	policy.cold_spread = 3;
	policy.gather_rows = 32768;
	policy.kept_bytes = policy.workspace / 16;

	policy.dense_ids = 2048;
	policy.dense_rows = 4096;
	policy.dense_part = 256;
	policy.dense_first_rows = 8192;
	policy.dense_growth = 8;
	policy.dense_unit = 32;
	policy.dense_queries = 48;
	policy.dense_products = 6000;
	policy.dense_bytes = 4000;
	policy.scan_lookups = 1760;
	policy.decode_rows = 16384;
	policy.decode_queries = 32;
	return policy;
}

/* Create what all calls of topk share */
static bool
prepare(struct search_backend *b, gpuvec_error *error)
{
	static const char *const what = "prepare the GPU";
	struct cuda_device &device = b->device;
	size_t shared_limit = device.shared_limit;

	if (!create_stream(device, b->stream, error) || !create_event(device, b->finished, error) ||
		!allocate(device, b->stop, sizeof(uint32_t), b->stream.get(), "searches", error) ||
		!create_pinned(device, b->stop_value, sizeof(uint32_t), error))
		return false;
	*(uint32_t *) b->stop_value.get() = 1;
	return device.check(cudaMemsetAsync(b->stop.get(), 0, sizeof(uint32_t), b->stream.get()), what,
						error) &&
		   device.check(cudaStreamSynchronize(b->stream.get()), what, error) &&
		   device.check(scan_prepare(shared_limit), "load the kernels", error) &&
		   device.check(dense_prepare(shared_limit), "load the kernels", error) &&
		   device.check(lists_prepare(shared_limit), "load the kernels", error) &&
		   device.check(select_prepare(), "load the kernels", error);
}

struct search_backend *
search_open(const gpuvec_backend_options *options, gpuvec_error *error)
{
	struct search_backend *b = new (std::nothrow) search_backend();

	if (b == NULL)
	{
		gpuvec_fail_memory(error, sizeof(*b));
		return NULL;
	}
	b->name = "cuda";
	b->on_device = true;
	b->info = info;
	b->adopt_segment = adopt_segment;
	b->adopt_livemaps = adopt_livemaps;
	b->adopt_view = adopt_view;
	b->release_segment = release_segment;
	b->release_livemap = release_livemap;
	b->release_view = release_view;
	b->read_ids = read_ids;
	b->trim = trim;
	b->topk = topk;
	b->close = close;
	if (!b->device.open(options->device, error) || !prepare(b, error))
	{
		close(b);
		return NULL;
	}
	b->policy = default_policy(b->device, options->workspace);
	b->pool = gpuvec_thread_pool_new(std::min(gpuvec_cores(), DECODE_THREADS));
	return b;
}

} // namespace gpuvec

using namespace gpuvec;

struct gpuvec_search_policy
gpuvec_search_policy_get(gpuvec_backend *backend)
{
	return static_cast<struct search_backend *>(backend)->policy;
}

void
gpuvec_search_policy_set(gpuvec_backend *backend, const struct gpuvec_search_policy *policy)
{
	static_cast<struct search_backend *>(backend)->policy = *policy;
}

struct gpuvec_search_stats
gpuvec_search_last(gpuvec_backend *backend)
{
	return static_cast<struct search_backend *>(backend)->stats;
}
