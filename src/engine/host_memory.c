/*-------------------------------------------------------------------------
 *
 * host_memory.c
 *	  Allocation of large pieces of host memory.
 *
 * Page faults on fresh memory, which the kernel clears page by page, cost
 * more time than filling the memory with rows.  So large pieces use huge
 * pages where the system has them ("madvise" or "always" in
 * transparent_hugepage/enabled).  Only whole huge pages inside a piece are
 * requested, so no piece takes more than its size.
 *
 * A refresh, for which a search waits, allocates about 100 kB for its new
 * rows.  Page faults take as long as filling that piece.  So one piece is
 * kept ready, with its pages already faulted in.  Its size is that of the
 * last request plus a quarter.
 *
 *-------------------------------------------------------------------------
 */
#include <pthread.h>
#include <stdlib.h>
#include <sys/mman.h>

#include "engine/host_memory.h"

/*
 * Sizes of pieces that are kept ready.  A ready piece is used only for
 * requests of at least half its size.
 */
#define LEAST_READY		((size_t) 16 * 1024)
#define MOST_READY		((size_t) 1024 * 1024)

/* Step when touching pages, in bytes; at most the size of a page */
#define PAGE			4096

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;	/* guards all below */
static void *ready;				/* NULL: none */
static size_t ready_size;
static size_t wanted;			/* size of the last request; 0 once prepared */

void *
gpuvec_memory_new(size_t size)
{
	void	   *memory;

	if (size < GPUVEC_HUGE_PAGE)
		return malloc(size > 0 ? size : 1);
	if (posix_memalign(&memory, GPUVEC_HUGE_PAGE, size) != 0)
		return NULL;
	/* if this fails, ordinary pages are used */
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

/* Allocate memory and fault in all of its pages.  NULL if out of memory. */
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
