/*-------------------------------------------------------------------------
 *
 * memory.c
 *	  Large pieces of memory.
 *
 * To get and clear fresh memory page by page takes the kernel longer than the
 * engine to fill it with rows.  So large pieces ask for huge pages, where the
 * system has them ("madvise" or "always" in transparent_hugepage/enabled).  Only
 * whole huge pages within a piece are asked for, so none takes more than its
 * size.
 *
 *-------------------------------------------------------------------------
 */
#include <stdlib.h>
#include <sys/mman.h>

#include "engine/memory.h"

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
