/*-------------------------------------------------------------------------
 *
 * host_memory.c
 *	  Large pieces of memory.
 *
 * To get and clear fresh memory page by page takes the kernel longer than the
 * engine to fill it with rows.  So large pieces ask for huge pages, where the
 * system has them ("madvise" or "always" in transparent_hugepage/enabled).
 * Only whole huge pages within a piece are asked for, so none takes more than
 * its size.
 *
 * A refresh, for which a search waits, needs a piece of some 100 kB for the
 * new rows.  To get that page by page takes as long as to fill it.  So one is
 * kept ready, in memory already: as large as the last one that was wanted,
 * and a bit.
 *
 *-------------------------------------------------------------------------
 */
#include <pthread.h>
#include <stdlib.h>
#include <sys/mman.h>

#include "engine/host_memory.h"

/*
 * Pieces of these sizes are kept ready, and given for no less than half of
 * their size
 */
#define LEAST_READY		((size_t) 16 * 1024)
#define MOST_READY		((size_t) 1024 * 1024)

/* Bytes of a page, or fewer */
#define PAGE			4096

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;	/* guards all below */
static void *ready;				/* NULL: none */
static size_t ready_size;
static size_t wanted;			/* last time; 0: one that will do is ready */

void *
gpuvec_memory_new(size_t size)
{
	void	   *memory;

	if (size < GPUVEC_HUGE_PAGE)
		return malloc(size > 0 ? size : 1);
	if (posix_memalign(&memory, GPUVEC_HUGE_PAGE, size) != 0)
		return NULL;
	/* without huge pages ordinary ones do */
	(void) madvise(memory, size / GPUVEC_HUGE_PAGE * GPUVEC_HUGE_PAGE, MADV_HUGEPAGE);
	return memory;
}

void *
gpuvec_memory_soon(size_t size)
{
	void	   *memory = NULL;

	if (size < LEAST_READY || size > MOST_READY)
		return gpuvec_memory_new(size);
	pthread_mutex_lock(&mutex);
	if (ready && size <= ready_size && size >= ready_size / 2)
	{
		memory = ready;
		ready = NULL;
	}
	__atomic_store_n(&wanted, size, __ATOMIC_RELAXED);
	pthread_mutex_unlock(&mutex);
	return memory ? memory : gpuvec_memory_new(size);
}

/*
 * A piece of memory that has been touched everywhere; NULL if there is none
 */
static void *
touched(size_t size)
{
	volatile char *memory = gpuvec_memory_new(size);

	for (size_t at = 0; memory && at < size; at += PAGE)
		memory[at] = 0;
	return (void *) memory;
}

void
gpuvec_memory_prepare(void)
{
	void	   *old = NULL;
	size_t		size;

	if (__atomic_load_n(&wanted, __ATOMIC_RELAXED) == 0)
		return;
	pthread_mutex_lock(&mutex);
	size = wanted + wanted / 4;
	__atomic_store_n(&wanted, 0, __ATOMIC_RELAXED);
	if (ready == NULL || size > ready_size || size < ready_size / 2)
	{
		old = ready;
		ready = touched(size);
		ready_size = size;
	}
	pthread_mutex_unlock(&mutex);
	free(old);
}
