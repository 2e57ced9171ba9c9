/*-------------------------------------------------------------------------
 *
 * failing_malloc.c
 *	  Lets one allocation of the engine fail, when a test asks for it.
 *
 * Linked into engines that are tested, in place of the allocations of their
 * own code (see --wrap of ld).  GPUVEC_FAILING_MALLOC names a file that holds
 * a number, which the test sets: it counts down with each allocation, and the
 * one that makes it 0 fails.
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

void	   *__wrap_malloc(size_t size);
void	   *__wrap_calloc(size_t n, size_t size);
void	   *__wrap_realloc(void *memory, size_t size);
int			__wrap_posix_memalign(void **memory, size_t alignment, size_t size);

static long *left = NULL;		/* atomic; NULL: nothing ever fails */

__attribute__((constructor)) static void
map_number(void)
{
	const char *path = getenv("GPUVEC_FAILING_MALLOC");
	int			fd = path ? open(path, O_RDWR | O_CLOEXEC) : -1;
	void	   *memory;

	if (fd < 0)
		return;
	memory = mmap(NULL, sizeof(long), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	close(fd);
	if (memory != MAP_FAILED)
		left = memory;
}

/* Is it this allocation's turn? */
static int
fails(void)
{
	return left && __atomic_load_n(left, __ATOMIC_RELAXED) > 0 &&
		__atomic_sub_fetch(left, 1, __ATOMIC_RELAXED) == 0;
}

void *
__wrap_malloc(size_t size)
{
	return fails() ? NULL : __real_malloc(size);
}

void *
__wrap_calloc(size_t n, size_t size)
{
	return fails() ? NULL : __real_calloc(n, size);
}

void *
__wrap_realloc(void *memory, size_t size)
{
	return fails() ? NULL : __real_realloc(memory, size);
}

int
__wrap_posix_memalign(void **memory, size_t alignment, size_t size)
{
	return fails() ? ENOMEM : __real_posix_memalign(memory, alignment, size);
}
