/*-------------------------------------------------------------------------
 *
 * devices.c
 *	  The devices that hold mirrors, and their memory budgets.
 *
 *-------------------------------------------------------------------------
 */
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "engine/log.h"
#include "engine/store/store.h"

#define MEGABYTE	((size_t) 1024 * 1024)

/*
 * Default budget: percent of the free device memory, or of the machine's
 * memory
 */
#define DEVICE_PERCENT	80
#define MACHINE_PERCENT	50

/* The number in a file, or SIZE_MAX if there is none ("max", or no file) */
static size_t
read_limit(const char *path)
{
	FILE	   *file = fopen(path, "r");
	unsigned long long value;
	size_t		limit = SIZE_MAX;

	if (file == NULL)
		return limit;
	if (fscanf(file, "%llu", &value) == 1)
		limit = (size_t) value;
	fclose(file);
	return limit;
}

/* The lowest memory limit of the control groups that this process is in */
static size_t
cgroup_limit(void)
{
	FILE	   *file = fopen("/proc/self/cgroup", "r");
	size_t		limit = SIZE_MAX;
	char		line[1024];

	if (file == NULL)
		return limit;
	while (fgets(line, sizeof(line), file))
	{
		char		path[1200];
		bool		unified = strncmp(line, "0::", 3) == 0;
		char	   *controllers = strchr(line, ':');
		char	   *group = controllers ? strchr(controllers + 1, ':') : NULL;
		size_t		found;

		/* the line is "number:controllers:path" */
		if (group == NULL)
			continue;
		*group++ = '\0';
		group[strcspn(group, "\n")] = '\0';
		if (*group != '/' || (!unified && strstr(controllers, "memory") == NULL))
			continue;
		/* look at the group and all of its ancestors */
		for (;;)
		{
			if (unified)
				snprintf(path, sizeof(path), "/sys/fs/cgroup%s/memory.max", group);
			else
				snprintf(path, sizeof(path), "/sys/fs/cgroup/memory%s/memory.limit_in_bytes", group);
			found = read_limit(path);
			if (found < limit)
				limit = found;
			if (*group == '\0')
				break;
			*strrchr(group, '/') = '\0';
		}
	}
	fclose(file);
	return limit;
}

/* The share of a machine's memory that may be used */
static size_t
machine_budget(size_t memory)
{
	size_t		limit = cgroup_limit();

	return (memory < limit ? memory : limit) / 100 * MACHINE_PERCENT;
}

/* The bytes of a device that mirrors may use */
static size_t
choose_budget(gpuvec_backend *backend, const gpuvec_engine_options *options)
{
	gpuvec_backend_info info;

	if (options->memory_mb > 0)
		return (size_t) options->memory_mb * MEGABYTE;
	backend->info(backend, &info);
	if (backend->on_device)
		return info.memory_free / 100 * DEVICE_PERCENT;
	return machine_budget(info.memory_total);
}

/* Add a device with an open backend */
static bool
add_device(gpuvec_store *store, gpuvec_backend *backend, const gpuvec_engine_options *options)
{
	gpuvec_device *device = &store->devices[store->ndevices];

	device->backend = backend;
	device->scheduler = gpuvec_scheduler_new(backend);
	device->budget = choose_budget(backend, options);
	if (device->scheduler == NULL)
		return false;
	store->ndevices++;
	return true;
}

/* Open all GPUs that the options name.  On failure, fills *error. */
static bool
open_devices(gpuvec_store *store, const gpuvec_engine_options *options, gpuvec_error *error)
{
	if (gpuvec_cuda_count(error) == 0)
		return false;
	for (int i = 0; i < options->ndevices; i++)
	{
		gpuvec_backend_options backend_options = {.device = options->devices[i]};
		gpuvec_backend *backend = gpuvec_cuda_open(&backend_options, error);

		if (backend == NULL)
			return false;
		if (!add_device(store, backend, options))
			return gpuvec_fail_memory(error, 0);
	}
	return true;
}

/* Close all devices, after one has failed to open */
static void
close_devices(gpuvec_store *store)
{
	while (store->ndevices > 0)
	{
		gpuvec_device *device = &store->devices[--store->ndevices];

		gpuvec_scheduler_free(device->scheduler);
		device->backend->close(device->backend);
	}
}

/* Open the CPU backend */
static bool
open_cpu(gpuvec_store *store, const gpuvec_engine_options *options, gpuvec_error *error)
{
	gpuvec_backend_options backend_options = {.threads = options->cpu_threads};
	gpuvec_backend *backend = gpuvec_cpu_open(&backend_options, error);

	if (backend == NULL)
		return false;
	return add_device(store, backend, options) || gpuvec_fail_memory(error, 0);
}

/* Log the devices and their budgets */
static void
log_ready(const gpuvec_store *store)
{
	for (int i = 0; i < store->ndevices; i++)
	{
		const gpuvec_device *device = &store->devices[i];
		gpuvec_backend_info info;

		device->backend->info(device->backend, &info);
		gpuvec_log("LOG", "ready: backend %s, %s, %d threads, memory budget %zu MB",
				   info.name, info.device, info.threads, device->budget / MEGABYTE);
	}
}

/* The mutex, and the condition that waits with a monotonic clock */
static void
init_waiting(gpuvec_store *store)
{
	pthread_condattr_t attr;

	pthread_mutex_init(&store->mutex, NULL);
	pthread_condattr_init(&attr);
	pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
	pthread_cond_init(&store->changed, &attr);
	pthread_condattr_destroy(&attr);
}

bool
gpuvec_store_open(gpuvec_store *store, const gpuvec_engine_options *options)
{
	gpuvec_error error = {0};
	bool		opened = false;

	memset(store, 0, sizeof(*store));
	init_waiting(store);
	pthread_cond_init(&store->committed, NULL);
	store->started = gpuvec_now();
	store->pool = gpuvec_thread_pool_new(options->cpu_threads);
	if (store->pool == NULL)
	{
		gpuvec_log("ERROR", "could not start threads");
		return false;
	}
	if (strcmp(options->backend, "cpu") != 0)
	{
		opened = open_devices(store, options, &error);
		if (!opened)
		{
			bool		forced = strcmp(options->backend, "cuda") == 0;

			close_devices(store);
			gpuvec_log(forced ? "ERROR" : "LOG", "no GPU can be used: %s%s%s", error.message,
					   error.detail[0] ? ": " : "", error.detail);
			if (forced)
				return false;
		}
	}
	if (!opened && !open_cpu(store, options, &error))
	{
		gpuvec_log("ERROR", "%s", error.message);
		return false;
	}
	store->work_budget = machine_budget((size_t) sysconf(_SC_PHYS_PAGES) *
										(size_t) sysconf(_SC_PAGESIZE));
	log_ready(store);
	return true;
}

gpuvec_device *
gpuvec_roomiest_device(gpuvec_store *store)
{
	gpuvec_device *best = &store->devices[0];

	for (int i = 1; i < store->ndevices; i++)
	{
		gpuvec_device *device = &store->devices[i];

		if ((int64_t) (device->budget - device->used) > (int64_t) (best->budget - best->used))
			best = device;
	}
	return best;
}
