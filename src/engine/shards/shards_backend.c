/*-------------------------------------------------------------------------
 *
 * shards_backend.c
 *	  The backend of several devices: opening, and what concerns all of them.
 *
 *-------------------------------------------------------------------------
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/shards/shards.h"
#include "engine/shards/vectors/shard_vectors.h"

/*
 * A table has copies on all devices if one takes no more than this share of
 * the smallest budget.  On the CPU, where several devices are for tests,
 * tables are soon spread.
 */
#define COPY_SHARD			16
#define CPU_COPY_BYTES		((size_t) 64 * 1024)

/* Most threads that merge answers */
#define MERGE_THREADS		16

/*
 * How long threads that ask devices look for the next search before they
 * sleep, where there are cores enough: about what a session needs between two
 * single queries.  To wake them takes half of the time of such a query.
 */
#define SPIN_NS				200000

/* The first device, and how many there are; sums of memory and threads */
static void
shards_info(gpuvec_backend *backend, gpuvec_backend_info *info)
{
	shards_backend *shards = (shards_backend *) backend;
	gpuvec_backend *first = shards->children[0].backend;
	char		name[sizeof(info->device)];

	first->info(first, info);
	for (int i = 1; i < shards->n; i++)
	{
		gpuvec_backend *child = shards->children[i].backend;
		gpuvec_backend_info one;

		child->info(child, &one);
		info->threads += one.threads;
		/* what is on the CPU shares the machine's memory */
		if (!child->on_device)
			continue;
		info->memory_total += one.memory_total;
		info->memory_free += one.memory_free;
	}
	memcpy(name, info->device, sizeof(name));
	snprintf(info->device, sizeof(info->device), "%.100s and %d more", name, shards->n - 1);
}

static bool
shards_read_ids(gpuvec_backend *backend, const gpuvec_segment *segment, uint16_t *ids,
				gpuvec_error *error)
{
	gpuvec_backend *child = ((shards_backend *) backend)->children[segment->child].backend;

	return child->read_ids(child, segment, ids, error) || shards_failed(segment->child, error);
}

static bool
shards_read_values(gpuvec_backend *backend, const gpuvec_segment *segment, float *values,
				   gpuvec_error *error)
{
	gpuvec_backend *child = ((shards_backend *) backend)->children[segment->child].backend;

	return child->read_values(child, segment, values, error) ||
		shards_failed(segment->child, error);
}

static void
shards_release_segment(gpuvec_backend *backend, gpuvec_segment *segment)
{
	shards_backend *shards = (shards_backend *) backend;
	gpuvec_backend *child = shards->children[segment->child].backend;

	shards_free_copies(segment->copies);
	segment->copies = NULL;
	shards_take_away(shards, segment->child, segment);
	child->release_segment(child, segment);
}

static void
shards_finish_segment(gpuvec_backend *backend, gpuvec_segment *segment)
{
	gpuvec_backend *child = ((shards_backend *) backend)->children[segment->child].backend;

	if (child->finish_segment)
		child->finish_segment(child, segment);
}

static void
shards_trim(gpuvec_backend *backend)
{
	shards_backend *shards = (shards_backend *) backend;

	for (int i = 0; i < shards->n; i++)
	{
		gpuvec_backend *child = shards->children[i].backend;

		if (child->trim)
			child->trim(child);
	}
}

/* Free the vectors of all devices, but not those of each */
static void
close_vectors(shards_backend *shards)
{
	if (shards->owns_vectors)
		shards->base.vectors->close(shards->base.vectors);
}

/* Free the struct, its threads and its locks; the devices stay open */
static void
free_shards(shards_backend *shards)
{
	gpuvec_thread_pool_free(shards->pool);
	gpuvec_thread_pool_free(shards->merge_pool);
	gpuvec_thread_pool_free(shards->copy_pool);
	pthread_mutex_destroy(&shards->mutex);
	pthread_mutex_destroy(&shards->together);
	for (int i = 0; i < shards->n; i++)
		pthread_mutex_destroy(&shards->children[i].search);
	free(shards);
}

static void
shards_close(gpuvec_backend *backend)
{
	shards_backend *shards = (shards_backend *) backend;

	close_vectors(shards);
	for (int i = 0; i < shards->n; i++)
	{
		shards->children[i].backend->close(shards->children[i].backend);
		free(shards->children[i].matches);
	}
	free_shards(shards);
}

/* What all devices can do, the backend can */
static void
unite_abilities(shards_backend *shards)
{
	gpuvec_backend *base = &shards->base;
	gpuvec_backend *first = shards->children[0].backend;

	base->name = first->name;
	base->on_device = first->on_device;
	base->takes_unordered = base->takes_counts = base->takes_partitions = true;
	for (int i = 0; i < shards->n; i++)
	{
		const gpuvec_backend *child = shards->children[i].backend;

		base->takes_unordered &= child->takes_unordered;
		base->takes_counts &= child->takes_counts;
		base->takes_partitions &= child->takes_partitions;
	}

	/* the first device trains */
	base->trainer = first->trainer;
	base->finder = first->finder;
}

/* Vectors of embedding tables are on all devices, too, but for the host's */
static bool
unite_vectors(shards_backend *shards, bool with_host, gpuvec_error *error)
{
	int			n = shards->n - with_host;
	gpuvec_shard_policy policy = gpuvec_shard_defaults;
	gpuvec_vectors *vectors[GPUVEC_MAX_DEVICES];

	if (n == 1)
	{
		shards->base.vectors = shards->children[0].backend->vectors;
		return true;
	}
	for (int i = 0; i < n; i++)
		vectors[i] = shards->children[i].backend->vectors;
	policy.copy_bytes = shards->copy_bytes;
	shards->base.vectors = gpuvec_shard_vectors_new(vectors, (uint32_t) n, &policy, error);
	shards->owns_vectors = shards->base.vectors != NULL;
	return shards->owns_vectors;
}

/* The struct with its threads and locks; NULL: not enough of something */
static shards_backend *
new_shards(int n, gpuvec_error *error)
{
	shards_backend *shards = calloc(1, sizeof(*shards));
	int			cores = gpuvec_cores();

	if (shards == NULL)
	{
		gpuvec_fail_memory(error, sizeof(*shards));
		return NULL;
	}
	shards->n = n;
	pthread_mutex_init(&shards->mutex, NULL);
	pthread_mutex_init(&shards->together, NULL);
	for (int i = 0; i < n; i++)
		pthread_mutex_init(&shards->children[i].search, NULL);
	shards->pool = gpuvec_thread_pool_new(n);
	shards->copy_pool = gpuvec_thread_pool_new(n);
	shards->merge_pool = gpuvec_thread_pool_new(cores < MERGE_THREADS ? cores : MERGE_THREADS);
	if (shards->pool && shards->copy_pool && shards->merge_pool)
	{
		if (cores >= 2 * n)
			gpuvec_thread_pool_spin(shards->pool, SPIN_NS);
		return shards;
	}
	free_shards(shards);
	gpuvec_fail(error, GPUVEC_SYSTEM_ERROR, NULL, NULL,
				"could not start the threads of the gpuvec engine");
	return NULL;
}

/* The devices, and how large a table is that they have copies of */
static void
set_children(shards_backend *shards, gpuvec_backend *const *children, const size_t *budgets,
			 bool with_host)
{
	size_t		least = SIZE_MAX;

	for (int i = 0; i < shards->n; i++)
	{
		shards->children[i].backend = children[i];
		shards->children[i].budget = budgets[i] > 0 ? budgets[i] : 1;
	}
	shards->children[shards->n - 1].is_host = with_host;
	shards->ndevices = shards->n - with_host;
	for (int i = 0; i < shards->ndevices; i++)
		if (shards->children[i].budget < least)
			least = shards->children[i].budget;
	shards->copy_bytes = children[0]->on_device ? least / COPY_SHARD : CPU_COPY_BYTES;
}

static void
set_functions(shards_backend *shards)
{
	shards->base.info = shards_info;
	shards->base.adopt_segment = shards_adopt_segment;
	shards->base.adopt_livemaps = shards_adopt_livemaps;
	shards->base.adopt_view = shards_adopt_view;
	shards->base.release_segment = shards_release_segment;
	shards->base.release_livemap = shards_release_livemap;
	shards->base.release_view = shards_release_view;
	shards->base.read_ids = shards_read_ids;
	shards->base.read_values = shards_read_values;
	shards->base.finish_segment = shards_finish_segment;
	shards->base.trim = shards_trim;
	shards->base.topk = shards_topk;
	shards->base.overlaps = shards_overlaps;
	shards->base.close = shards_close;
	shards_replicas_init(shards);
	shards->base.copier = &gpuvec_shards_copier;
}

gpuvec_backend *
gpuvec_shards_open(gpuvec_backend *const *children, const size_t *budgets, int n,
				   bool with_host, gpuvec_error *error)
{
	shards_backend *shards = new_shards(n, error);

	if (shards == NULL)
		return NULL;
	set_children(shards, children, budgets, with_host);
	unite_abilities(shards);
	if (!unite_vectors(shards, with_host, error))
	{
		close_vectors(shards);
		free_shards(shards);
		return NULL;
	}
	set_functions(shards);
	return &shards->base;
}

shards_backend *
gpuvec_shards_of(gpuvec_backend *backend)
{
	return backend->topk == shards_topk ? (shards_backend *) backend : NULL;
}
