/*-------------------------------------------------------------------------
 *
 * parts_backend.c
 *	  The backend of several devices: opening, and what concerns all of them.
 *
 *-------------------------------------------------------------------------
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/parts/parts.h"
#include "engine/parts/vectors/part_vectors.h"

/*
 * A table has copies on all devices if one takes no more than this part of the
 * smallest budget.  On the CPU, where several devices are for tests, tables
 * are soon spread.
 */
#define COPY_PART			16
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
parts_info(gpuvec_backend *backend, gpuvec_backend_info *info)
{
	parts_backend *parts = (parts_backend *) backend;
	gpuvec_backend *first = parts->children[0].backend;
	char		name[sizeof(info->device)];

	first->info(first, info);
	for (int i = 1; i < parts->n; i++)
	{
		gpuvec_backend *child = parts->children[i].backend;
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
	snprintf(info->device, sizeof(info->device), "%.100s and %d more", name, parts->n - 1);
}

static bool
parts_read_ids(gpuvec_backend *backend, const gpuvec_segment *segment, uint16_t *ids,
			   gpuvec_error *error)
{
	gpuvec_backend *child = ((parts_backend *) backend)->children[segment->child].backend;

	return child->read_ids(child, segment, ids, error) || parts_failed(segment->child, error);
}

static void
parts_finish_segment(gpuvec_backend *backend, gpuvec_segment *segment)
{
	gpuvec_backend *child = ((parts_backend *) backend)->children[segment->child].backend;

	if (child->finish_segment)
		child->finish_segment(child, segment);
}

static void
parts_trim(gpuvec_backend *backend)
{
	parts_backend *parts = (parts_backend *) backend;

	for (int i = 0; i < parts->n; i++)
	{
		gpuvec_backend *child = parts->children[i].backend;

		if (child->trim)
			child->trim(child);
	}
}

/* Free the vectors of all devices, but not those of each */
static void
close_vectors(parts_backend *parts)
{
	if (parts->owns_vectors)
		parts->base.vectors->close(parts->base.vectors);
}

/* Free the struct, its threads and its locks; the devices stay open */
static void
free_parts(parts_backend *parts)
{
	gpuvec_thread_pool_free(parts->pool);
	gpuvec_thread_pool_free(parts->merge_pool);
	gpuvec_thread_pool_free(parts->copy_pool);
	pthread_mutex_destroy(&parts->mutex);
	pthread_mutex_destroy(&parts->together);
	for (int i = 0; i < parts->n; i++)
		pthread_mutex_destroy(&parts->children[i].search);
	free(parts);
}

static void
parts_close(gpuvec_backend *backend)
{
	parts_backend *parts = (parts_backend *) backend;

	close_vectors(parts);
	for (int i = 0; i < parts->n; i++)
	{
		parts->children[i].backend->close(parts->children[i].backend);
		free(parts->children[i].matches);
	}
	free_parts(parts);
}

/* What all devices can do, the backend can */
static void
unite_abilities(parts_backend *parts)
{
	gpuvec_backend *base = &parts->base;
	gpuvec_backend *first = parts->children[0].backend;

	base->name = first->name;
	base->on_device = first->on_device;
	base->takes_unordered = base->takes_parts = true;
	for (int i = 0; i < parts->n; i++)
	{
		const gpuvec_backend *child = parts->children[i].backend;

		base->takes_unordered &= child->takes_unordered;
		base->takes_parts &= child->takes_parts;
	}

	/* the first device trains */
	base->trainer = first->trainer;
	base->finder = first->finder;
}

/* Vectors of embedding tables are on all devices, too, but for the host's */
static bool
unite_vectors(parts_backend *parts, bool with_host, gpuvec_error *error)
{
	int			n = parts->n - with_host;
	gpuvec_part_policy policy = gpuvec_part_defaults;
	gpuvec_vectors *vectors[GPUVEC_MAX_DEVICES];

	if (n == 1)
	{
		parts->base.vectors = parts->children[0].backend->vectors;
		return true;
	}
	for (int i = 0; i < n; i++)
		vectors[i] = parts->children[i].backend->vectors;
	policy.copy_bytes = parts->copy_bytes;
	parts->base.vectors = gpuvec_part_vectors_new(vectors, (uint32_t) n, &policy, error);
	parts->owns_vectors = parts->base.vectors != NULL;
	return parts->owns_vectors;
}

/* The struct with its threads and locks; NULL: not enough of something */
static parts_backend *
new_parts(int n, gpuvec_error *error)
{
	parts_backend *parts = calloc(1, sizeof(*parts));
	int			cores = gpuvec_cores();

	if (parts == NULL)
	{
		gpuvec_fail_memory(error, sizeof(*parts));
		return NULL;
	}
	parts->n = n;
	pthread_mutex_init(&parts->mutex, NULL);
	pthread_mutex_init(&parts->together, NULL);
	for (int i = 0; i < n; i++)
		pthread_mutex_init(&parts->children[i].search, NULL);
	parts->pool = gpuvec_thread_pool_new(n);
	parts->copy_pool = gpuvec_thread_pool_new(n);
	parts->merge_pool = gpuvec_thread_pool_new(cores < MERGE_THREADS ? cores : MERGE_THREADS);
	if (parts->pool && parts->copy_pool && parts->merge_pool)
	{
		if (cores >= 2 * n)
			gpuvec_thread_pool_spin(parts->pool, SPIN_NS);
		return parts;
	}
	free_parts(parts);
	gpuvec_fail(error, GPUVEC_SYSTEM_ERROR, NULL, NULL,
				"could not start the threads of the gpuvec engine");
	return NULL;
}

/* The devices, and how large a table is that they have copies of */
static void
set_children(parts_backend *parts, gpuvec_backend *const *children, const size_t *budgets,
			 bool with_host)
{
	size_t		least = SIZE_MAX;

	for (int i = 0; i < parts->n; i++)
	{
		parts->children[i].backend = children[i];
		parts->children[i].budget = budgets[i] > 0 ? budgets[i] : 1;
	}
	parts->children[parts->n - 1].is_host = with_host;
	parts->ndevices = parts->n - with_host;
	for (int i = 0; i < parts->ndevices; i++)
		if (parts->children[i].budget < least)
			least = parts->children[i].budget;
	parts->copy_bytes = children[0]->on_device ? least / COPY_PART : CPU_COPY_BYTES;
}

static void
set_functions(parts_backend *parts)
{
	parts->base.info = parts_info;
	parts->base.adopt_segment = parts_adopt_segment;
	parts->base.adopt_livemaps = parts_adopt_livemaps;
	parts->base.adopt_view = parts_adopt_view;
	parts->base.release_segment = parts_release_segment;
	parts->base.release_livemap = parts_release_livemap;
	parts->base.release_view = parts_release_view;
	parts->base.read_ids = parts_read_ids;
	parts->base.finish_segment = parts_finish_segment;
	parts->base.trim = parts_trim;
	parts->base.topk = parts_topk;
	parts->base.close = parts_close;
	parts_lanes_init(parts);
	parts->base.copier = &gpuvec_parts_copier;
}

gpuvec_backend *
gpuvec_parts_open(gpuvec_backend *const *children, const size_t *budgets, int n,
				  bool with_host, gpuvec_error *error)
{
	parts_backend *parts = new_parts(n, error);

	if (parts == NULL)
		return NULL;
	set_children(parts, children, budgets, with_host);
	unite_abilities(parts);
	if (!unite_vectors(parts, with_host, error))
	{
		close_vectors(parts);
		free_parts(parts);
		return NULL;
	}
	set_functions(parts);
	return &parts->base;
}

parts_backend *
gpuvec_parts_of(gpuvec_backend *backend)
{
	return backend->topk == parts_topk ? (parts_backend *) backend : NULL;
}
