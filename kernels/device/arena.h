/*-------------------------------------------------------------------------
 *
 * arena.h
 *	  Cutting one allocation into aligned arrays.
 *
 *-------------------------------------------------------------------------
 */
#ifndef GPUVEC_ARENA_H
#define GPUVEC_ARENA_H

#include <stddef.h>
#include <stdint.h>

namespace gpuvec
{

static inline uint64_t
divide_up(uint64_t a, uint64_t b)
{
	return (a + b - 1) / b;
}

/*
 * An allocation that is cut into arrays.  Without memory (base is NULL), it
 * only adds up how many bytes the arrays need.
 */
struct arena
{
	static constexpr size_t ALIGNMENT = 256;

	char *base;
	size_t used;

	/* Reserve bytes; returns their offset from the base */
	size_t
	reserve(size_t bytes)
	{
		size_t at = used;

		used += divide_up(bytes, ALIGNMENT) * ALIGNMENT;
		return at;
	}

	/* The next array, of n elements; NULL if there is no memory */
	template <typename T>
	T *
	take(uint64_t n)
	{
		size_t at = reserve(n * sizeof(T));

		return base ? reinterpret_cast<T *>(base + at) : NULL;
	}
};

} // namespace gpuvec

#endif /* GPUVEC_ARENA_H */
