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

#include "core/clock.h"
#include "engine/control_group.h"
#include "engine/fault.h"
#include "engine/log.h"
#include "engine/shards/shards.h"
#include "engine/store/store.h"

#define MEGABYTE	((size_t) 1024 * 1024)

/*
 * Default budget: percent of the free device memory, or of the machine's
 * memory
 */
#define DEVICE_PERCENT	80
#define MACHINE_PERCENT	50

/* The share of a machine's memory that may be used */
static size_t
machine_budget(size_t memory)
{
	size_t		limit = gpuvec_control_group_memory();

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

/* Devices that are open, to be made one device of the store */
typedef struct open_list
{
	int			n;
	bool		with_host;		/* the last one is the host's memory */
	gpuvec_backend *backends[GPUVEC_MAX_DEVICES];
	size_t		budgets[GPUVEC_MAX_DEVICES];
} open_list;

static void
close_list(open_list *list)
{
	while (list->n > 0)
	{
		gpuvec_backend *backend = list->backends[--list->n];

		backend->close(backend);
	}
}

/*
 * Make a device of the store: of one open backend, or of several as one.  On
 * failure, they are closed.
 */
static bool
add_device(gpuvec_store *store, open_list *list, gpuvec_error *error)
{
	gpuvec_device *device = &store->devices[store->ndevices];

	device->backend = list->backends[0];
	if (list->n > 1)
		device->backend = gpuvec_shards_open(list->backends, list->budgets, list->n,
											 list->with_host, error);
	if (device->backend == NULL)
	{
		close_list(list);
		return false;
	}
	device->scheduler = gpuvec_scheduler_new(device->backend);
	if (device->scheduler == NULL)
	{
		device->backend->close(device->backend);
		return gpuvec_fail_memory(error, 0);
	}
	for (int i = 0; i < list->n; i++)
		device->budget += list->budgets[i];
	device->copy_budget = device->budget - (list->with_host ? list->budgets[list->n - 1] : 0);
	store->ndevices++;
	return true;
}

/*
 * Add the host's memory to a list of devices, if the options say so.  On
 * failure, all are closed.
 */
static bool
add_host(gpuvec_store *store, open_list *list, const gpuvec_engine_options *options,
		 gpuvec_error *error)
{
	gpuvec_backend_options cpu = {.threads = options->cpu_threads};
	gpuvec_backend *backend;

	if (options->host_mb == 0 || list->n == GPUVEC_MAX_DEVICES)
		return true;
	backend = gpuvec_cpu_open(&cpu, error);
	if (backend == NULL)
	{
		close_list(list);
		return false;
	}
	store->gpus[list->n] = -1;
	list->backends[list->n] = backend;
	list->budgets[list->n++] = (size_t) options->host_mb * MEGABYTE;
	list->with_host = true;
	return true;
}

/* True if a test wants this device of a list to be out of order */
static bool
is_gone_in_test(int place)
{
	long		number = 0;

	return gpuvec_fault("part-gone", &number) && number == place;
}

/*
 * Note that a device cannot be used.  The supervisor, which hears of it, tries
 * it again (link/device_retry.c).
 */
static void
note_lost(gpuvec_store *store, int gpu, int number, const gpuvec_error *error)
{
	gpuvec_lost_device *lost = &store->lost[store->nlost++];

	lost->gpu = gpu;
	snprintf(lost->last_error, sizeof(lost->last_error), "%.120s%s%.120s", error->message,
			 error->detail[0] ? ": " : "", error->detail);
	gpuvec_log("WARNING", "a device cannot be used: %s", lost->last_error);
	gpuvec_log("LOG", "lost: device %d", number);
}

/* Refuse a device that has failed; returns true if it has not */
static bool
may_open(const gpuvec_engine_options *options, int number, gpuvec_error *error)
{
	if (!gpuvec_is_without(options, number))
		return true;
	return gpuvec_fail(error, GPUVEC_SYSTEM_ERROR, "It is tried again later.", NULL,
					   "device %d has failed", number);
}

/* Open a GPU; NULL if that fails */
static gpuvec_backend *
open_gpu(int number, gpuvec_error *error)
{
	gpuvec_backend_options options = {.device = number};

	return gpuvec_cuda_open(&options, error);
}

/* How often a GPU is in the list that the options have, which tests repeat */
static int
times_listed(const gpuvec_engine_options *options, int ndevices, int number)
{
	int			n = 0;

	for (int i = 0; i < ndevices; i++)
		n += options->all_devices ? i == number : options->devices[i] == number;
	return n;
}

/*
 * Open the GPUs that the options name.  Those that cannot be used are left
 * out; they are tried again when the engine starts again.  If none can,
 * *error tells why.
 */
static bool
open_devices(gpuvec_store *store, const gpuvec_engine_options *options, gpuvec_error *error)
{
	open_list	list = {0};
	int			count = gpuvec_cuda_count(error);
	int			n = options->all_devices ? count : options->ndevices;

	if (count == 0)
		return false;
	if (n > GPUVEC_MAX_DEVICES)
		n = GPUVEC_MAX_DEVICES;
	for (int i = 0; i < n; i++)
	{
		int			number = options->all_devices ? i : options->devices[i];
		gpuvec_backend *backend = may_open(options, number, error) ? open_gpu(number, error) : NULL;

		if (backend == NULL)
		{
			note_lost(store, number, number, error);
			continue;
		}
		store->gpus[list.n] = store->numbers[list.n] = number;
		list.backends[list.n] = backend;
		list.budgets[list.n++] = choose_budget(backend, options) /
			(size_t) times_listed(options, n, number);
	}
	return list.n > 0 && add_host(store, &list, options, error) &&
		add_device(store, &list, error);
}

/* Find out whether one of several devices of the CPU can be used, in tests */
static bool
may_open_shard(const gpuvec_engine_options *options, int place, gpuvec_error *error)
{
	if (!may_open(options, place, error))
		return false;
	return !is_gone_in_test(place) ||
		gpuvec_fail(error, GPUVEC_SYSTEM_ERROR, NULL, NULL, "device %d is gone", place);
}

bool
gpuvec_probe(const gpuvec_engine_options *options)
{
	bool		on_cpu = strcmp(options->backend, "cpu") == 0;

	for (int i = 0; i < options->nwithout; i++)
	{
		gpuvec_error error;
		gpuvec_backend *backend = on_cpu ? NULL : open_gpu(options->without[i], &error);

		if (backend)
			backend->close(backend);
		if (backend || (on_cpu && !is_gone_in_test(options->without[i])))
			return true;
	}
	return false;
}

/*
 * Open the CPU.  For tests it may be several devices, which share the threads
 * and the memory.
 */
static bool
open_cpu(gpuvec_store *store, const gpuvec_engine_options *options, gpuvec_error *error)
{
	open_list	list = {0};
	int			n = options->cpu_parts > 1 ? options->cpu_parts : 1;
	int			threads = options->cpu_threads > 0 ? options->cpu_threads : gpuvec_cores();
	size_t		budget;

	for (int i = 0; i < n; i++)
	{
		gpuvec_backend_options one = {.threads = threads > n ? threads / n : 1};

		if (n == 1)
			one.threads = options->cpu_threads;
		if (n > 1 && !may_open_shard(options, i, error))
		{
			note_lost(store, -1, i, error);
			continue;
		}
		store->gpus[list.n] = -1;
		store->numbers[list.n] = i;
		list.backends[list.n] = gpuvec_cpu_open(&one, error);
		if (list.backends[list.n] == NULL)
		{
			close_list(&list);
			return false;
		}
		list.n++;
	}
	if (list.n == 0)
		return false;
	budget = choose_budget(list.backends[0], options);
	for (int i = 0; i < list.n; i++)
		list.budgets[i] = budget / (size_t) list.n;
	list.budgets[0] += budget % (size_t) list.n;
	if (options->cpu_parts > 0 && !add_host(store, &list, options, error))
		return false;
	return add_device(store, &list, error);
}

/* Log the device and its budget */
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

void
gpuvec_waiting_init(pthread_mutex_t *mutex, pthread_cond_t *cond)
{
	pthread_condattr_t attr;

	pthread_mutex_init(mutex, NULL);
	pthread_condattr_init(&attr);
	pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
	pthread_cond_init(cond, &attr);
	pthread_condattr_destroy(&attr);
}

bool
gpuvec_store_open(gpuvec_store *store, const gpuvec_engine_options *options,
				  const gpuvec_mirror_kinds *kinds)
{
	gpuvec_error error = {0};
	bool		opened = false;

	memset(store, 0, sizeof(*store));
	store->kinds = *kinds;
	gpuvec_waiting_init(&store->mutex, &store->changed);
	pthread_cond_init(&store->committed, NULL);
	store->started = gpuvec_wall_clock_us();
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
