/*-------------------------------------------------------------------------
 *
 * failing_malloc.c
 *	  Lets one allocation of the engine fail, when a test asks for it, and
 *	  counts those that live.
 *
 * Linked into engines that are tested, in place of the allocations of their
 * own code (see --wrap of ld).  GPUVEC_FAILING_MALLOC names a file that holds
 * two numbers.  The test sets the first: it counts down with each allocation,
 * and the one that makes it 0 fails.  The second is the number of allocations
 * that were not freed.
 *
 *-------------------------------------------------------------------------
 */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

void	   *__real_malloc(size_t size);
void	   *__real_calloc(size_t n, size_t size);
void	   *__real_realloc(void *memory, size_t size);
int			__real_posix_memalign(void **memory, size_t alignment, size_t size);
void	   *__real_aligned_alloc(size_t alignment, size_t size);
void		__real_free(void *memory);

void	   *__wrap_malloc(size_t size);
void	   *__wrap_calloc(size_t n, size_t size);
void	   *__wrap_realloc(void *memory, size_t size);
int			__wrap_posix_memalign(void **memory, size_t alignment, size_t size);
void	   *__wrap_aligned_alloc(size_t alignment, size_t size);
void		__wrap_free(void *memory);

/* atomic; NULL: nothing ever fails, and nothing is counted */
static long *left = NULL;
static long *live = NULL;

__attribute__((constructor)) static void
map_number(void)
{
	const char *path = getenv("GPUVEC_FAILING_MALLOC");
	int			fd = path ? open(path, O_RDWR | O_CLOEXEC) : -1;
	void	   *memory;

	if (fd < 0)
		return;
	memory = mmap(NULL, 2 * sizeof(long), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	close(fd);
	if (memory == MAP_FAILED)
		return;
	left = memory;
	live = left + 1;
}

/* Is it this allocation's turn? */
static int
fails(void)
{
	return left && __atomic_load_n(left, __ATOMIC_RELAXED) > 0 &&
		__atomic_sub_fetch(left, 1, __ATOMIC_RELAXED) == 0;
}

/* Count what was allocated, unless that is NULL */
static void *
counted(void *memory)
{
	if (live && memory)
		__atomic_add_fetch(live, 1, __ATOMIC_RELAXED);
	return memory;
}

void *
__wrap_malloc(size_t size)
{
	return fails() ? NULL : counted(__real_malloc(size));
}

void *
__wrap_calloc(size_t n, size_t size)
{
	return fails() ? NULL : counted(__real_calloc(n, size));
}

void *
__wrap_realloc(void *memory, size_t size)
{
	if (fails())
		return NULL;
	return memory ? __real_realloc(memory, size) : counted(__real_malloc(size));
}

int
__wrap_posix_memalign(void **memory, size_t alignment, size_t size)
{
	int			error = fails() ? ENOMEM : __real_posix_memalign(memory, alignment, size);

	if (error == 0)
		(void) counted(*memory);
	return error;
}

void *
__wrap_aligned_alloc(size_t alignment, size_t size)
{
	return fails() ? NULL : counted(__real_aligned_alloc(alignment, size));
}

void
__wrap_free(void *memory)
{
	if (live && memory)
		__atomic_sub_fetch(live, 1, __ATOMIC_RELAXED);
	__real_free(memory);
}
