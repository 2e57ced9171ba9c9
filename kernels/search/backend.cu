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

#include "kernels/search/group_kernels.h"
#include "kernels/search/search_backend.h"

namespace gpuvec
{

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

/* How a device is searched, by its architecture and memory */
static struct gpuvec_search_policy
policy_of(const struct search_tuning &tuning, const struct cuda_device &device, size_t workspace)
{
	struct gpuvec_search_policy policy = tuning.policy;

	policy.workspace = workspace ? workspace
								 : std::min(device.memory_total / tuning.workspace_fraction,
											tuning.most_workspace);
	policy.kept_bytes = policy.workspace / tuning.kept_fraction;
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
		   device.check(sparse_scan_prepare(shared_limit), "load the kernels", error) &&
		   device.check(sparse_batch_prepare(shared_limit), "load the kernels", error) &&
		   device.check(dense_prepare(shared_limit), "load the kernels", error) &&
		   device.check(lists_prepare(shared_limit), "load the kernels", error) &&
		   device.check(group_ids_prepare(shared_limit), "load the kernels", error) &&
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
	b->takes_counts = true;
	b->takes_partitions = true;
	b->info = info;
	b->adopt_segment = adopt_segment;
	b->adopt_livemaps = adopt_livemaps;
	b->adopt_view = adopt_view;
	b->release_segment = release_segment;
	b->release_livemap = release_livemap;
	b->release_view = release_view;
	b->read_ids = read_ids;
	b->read_values = read_values;
	b->trim = trim;
	b->topk = topk;
	b->overlaps = overlaps;
	b->close = close;
	if (!b->device.open(options->device, error) || !prepare(b, error))
	{
		close(b);
		return NULL;
	}
	b->tuning = &search_tuning_of(b->device.capability);
	b->policy = policy_of(*b->tuning, b->device, options->workspace);
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
