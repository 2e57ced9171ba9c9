/*-------------------------------------------------------------------------
 *
 * failing_malloc.c
 *	  Lets one allocation of the engine fail, when a test asks for it, and
 *	  finds memory that an engine has not freed.
 *
 * Linked into engines that are tested, in place of the allocations of their
 * own code (see --wrap of ld).  GPUVEC_FAILING_MALLOC names a file that holds
 * a number, which the test sets: it counts down with each allocation, and the
 * one that makes it 0 fails.
 *
 * An engine ends at once, with threads that still run.  So what it has lost
 * is looked for here, by the sanitizer that it is linked with, if any: what
 * no thread and no variable knows of any more.
 *
 *-------------------------------------------------------------------------
 */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

/* What an engine ends with that has lost memory */
#define EXIT_LEAKS		23

void	   *__real_malloc(size_t size);
void	   *__real_calloc(size_t n, size_t size);
void	   *__real_realloc(void *memory, size_t size);
int			__real_posix_memalign(void **memory, size_t alignment, size_t size);

void	   *__wrap_malloc(size_t size);
void	   *__wrap_calloc(size_t n, size_t size);
void	   *__wrap_realloc(void *memory, size_t size);
int			__wrap_posix_memalign(void **memory, size_t alignment, size_t size);

extern int	__lsan_do_recoverable_leak_check(void) __attribute__((weak));
void		__real__exit(int status) __attribute__((noreturn));
void		__wrap__exit(int status) __attribute__((noreturn));

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

void
__wrap__exit(int status)
{
	if (status == 0 && __lsan_do_recoverable_leak_check && __lsan_do_recoverable_leak_check() != 0)
		status = EXIT_LEAKS;
	__real__exit(status);
}
