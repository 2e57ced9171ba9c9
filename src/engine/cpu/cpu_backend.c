/*-------------------------------------------------------------------------
 *
 * cpu_backend.c
 *	  The backend that searches on the CPU.
 *
 *-------------------------------------------------------------------------
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/sysinfo.h>

#include "engine/als/cpu_solver.h"
#include "engine/cpu/cpu_vectors.h"
#include "engine/cpu/lists_builder.h"
#include "engine/cpu/lists_search.h"
#include "engine/fault.h"
#include "engine/neighbors/product.h"

static const char *const simd_names[] = {"", "portable C", "AVX2", "AVX-512"};

/* The best instruction set of this machine, or a lesser one if asked for */
static cpu_simd
choose_simd(int asked)
{
	cpu_simd	best = SIMD_PORTABLE;

	if (gpuvec_processor_has("avx2"))
		best = SIMD_AVX2;
	if (gpuvec_processor_has("avx512f") && gpuvec_processor_has("avx512bw") &&
		gpuvec_processor_has("avx512vl"))
		best = SIMD_AVX512;
	return asked >= SIMD_PORTABLE && asked < (int) best ? (cpu_simd) asked : best;
}

static void
cpu_info(gpuvec_backend *backend, gpuvec_backend_info *info)
{
	cpu_backend *cpu = (cpu_backend *) backend;
	struct sysinfo machine;

	memset(info, 0, sizeof(*info));
	snprintf(info->name, sizeof(info->name), "cpu");
	snprintf(info->device, sizeof(info->device), "%s", simd_names[cpu->simd]);
	info->threads = gpuvec_thread_pool_threads(cpu->pool);
	if (sysinfo(&machine) == 0)
	{
		info->memory_total = (size_t) machine.totalram * machine.mem_unit;
		info->memory_free = (size_t) machine.freeram * machine.mem_unit;
	}
}

/*
 * Scans read the segment as it is; inverted lists are made in the background
 */
static bool
cpu_adopt_segment(gpuvec_backend *backend, gpuvec_segment *segment, gpuvec_error *error)
{
	cpu_backend *cpu = (cpu_backend *) backend;

	if (lists_budget(segment, &cpu->policy) > 0)
	{
		segment->device = lists_builder_add(cpu->builder, segment);
		if (segment->device == NULL)
			return gpuvec_fail_memory(error, sizeof(cpu_segment));
	}
	segment->backend = backend;
	return true;
}

/* Make the lists that the builder has not made yet */
static void
cpu_finish_segment(gpuvec_backend *backend, gpuvec_segment *segment)
{
	if (segment->device)
		lists_builder_require(((cpu_backend *) backend)->builder, segment->device);
}

static bool
cpu_adopt_livemaps(gpuvec_backend *backend, gpuvec_livemap *const *maps, uint32_t n,
				   gpuvec_error *error)
{
	(void) error;
	for (uint32_t i = 0; i < n; i++)
		maps[i]->backend = backend;
	return true;
}

static bool
cpu_adopt_view(gpuvec_backend *backend, gpuvec_view *view, gpuvec_error *error)
{
	(void) error;
	view->backend = backend;
	return true;
}

static void
cpu_release_segment(gpuvec_backend *backend, gpuvec_segment *segment)
{
	if (segment->device)
		lists_builder_remove(((cpu_backend *) backend)->builder, segment->device);
}

static void
cpu_release_livemap(gpuvec_backend *backend, gpuvec_livemap *map)
{
	(void) backend;
	(void) map;
}

static void
cpu_release_view(gpuvec_backend *backend, gpuvec_view *view)
{
	(void) backend;
	(void) view;
}

static bool
cpu_read_ids(gpuvec_backend *backend, const gpuvec_segment *segment, uint16_t *ids,
			 gpuvec_error *error)
{
	(void) backend;
	(void) error;
	memcpy(ids, segment->ids, segment->nchunks * GPUVEC_TILE_ROWS * GPUVEC_CHUNK_IDS *
		   sizeof(uint16_t));
	return true;
}

static bool
cpu_read_values(gpuvec_backend *backend, const gpuvec_segment *segment, float *values,
				gpuvec_error *error)
{
	(void) backend;
	(void) error;
	memcpy(values, segment->values, segment->nchunks * GPUVEC_TILE_ROWS * GPUVEC_CHUNK_IDS *
		   sizeof(float));
	return true;
}

static void
cpu_close(gpuvec_backend *backend)
{
	cpu_backend *cpu = (cpu_backend *) backend;

	lists_builder_free(cpu->builder);
	for (int i = 0; cpu->scratch && i < gpuvec_thread_pool_threads(cpu->pool); i++)
		lists_scratch_free(&cpu->scratch[i]);
	free(cpu->scratch);
	for (int i = 0; cpu->sparse && i < gpuvec_thread_pool_threads(cpu->pool); i++)
		free(cpu->sparse[i]);
	free(cpu->sparse);
	free(cpu->masks);
	gpuvec_thread_pool_free(cpu->pool);
	free(cpu);
}

static bool
start_backend(cpu_backend *cpu, int threads)
{
	cpu->pool = gpuvec_thread_pool_new(threads);
	if (cpu->pool == NULL)
		return false;
	threads = gpuvec_thread_pool_threads(cpu->pool);
	cpu->scratch = calloc((size_t) threads, sizeof(*cpu->scratch));
	cpu->sparse = calloc((size_t) threads, sizeof(*cpu->sparse));
	cpu->builder = lists_builder_new(threads, &cpu->policy);
	return cpu->scratch && cpu->sparse && cpu->builder;
}

gpuvec_backend *
gpuvec_cpu_open_with(const gpuvec_backend_options *options, const gpuvec_lists_policy *policy,
					 gpuvec_error *error)
{
	cpu_backend *cpu = calloc(1, sizeof(*cpu));

	if (cpu != NULL)
		cpu->policy = *policy;
	if (cpu == NULL || !start_backend(cpu, options->threads))
	{
		if (cpu)
			cpu_close(&cpu->base);
		gpuvec_fail(error, GPUVEC_SYSTEM_ERROR, NULL, NULL,
					"could not start the threads of the gpuvec engine");
		return NULL;
	}
	cpu->simd = choose_simd(options->simd);
	cpu->base.name = "cpu";
	cpu->base.vectors = &gpuvec_cpu_vectors;
	cpu->base.trainer = &gpuvec_cpu_trainer;
	cpu->base.finder = &gpuvec_cpu_finder;
	cpu->base.takes_unordered = true;
	cpu->base.takes_counts = true;
	cpu->base.takes_partitions = true;
	cpu->base.info = cpu_info;
	cpu->base.adopt_segment = cpu_adopt_segment;
	cpu->base.adopt_livemaps = cpu_adopt_livemaps;
	cpu->base.adopt_view = cpu_adopt_view;
	cpu->base.release_segment = cpu_release_segment;
	cpu->base.release_livemap = cpu_release_livemap;
	cpu->base.release_view = cpu_release_view;
	cpu->base.read_ids = cpu_read_ids;
	cpu->base.read_values = cpu_read_values;
	cpu->base.finish_segment = cpu_finish_segment;
	cpu->base.topk = cpu_topk;
	cpu->base.overlaps = cpu_overlaps;
	cpu->base.close = cpu_close;
	return &cpu->base;
}

gpuvec_backend *
gpuvec_cpu_open(const gpuvec_backend_options *options, gpuvec_error *error)
{
	gpuvec_lists_policy policy = gpuvec_lists_usual;
	long		rows;

	if (gpuvec_fault("lists", &rows))
	{
		policy.least_rows = (uint32_t) rows;
		policy.least_ids = 0;
	}
	return gpuvec_cpu_open_with(options, &policy, error);
}
