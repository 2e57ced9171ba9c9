/*-------------------------------------------------------------------------
 *
 * als_memory.c
 *	  Memory of a training, charged to the engine's budget.
 *
 * Each piece has a header in front of it that says what to free, and how many
 * bytes were charged.
 *
 *-------------------------------------------------------------------------
 */
#include <stdlib.h>

#include "engine/als/als_memory.h"
#include "engine/host_memory.h"

#define ALIGNMENT	64

typedef struct piece_header
{
	void	   *whole;			/* what was allocated */
	size_t		charged;
} piece_header;

void *
gpuvec_als_new(gpuvec_als_memory *memory, uint64_t n, size_t size, gpuvec_error *error)
{
	size_t		bytes;
	char	   *whole;
	piece_header *header;

	if (__builtin_mul_overflow(n, size, &bytes) ||
		__builtin_add_overflow(bytes, 2 * ALIGNMENT, &bytes))
	{
		gpuvec_fail_memory(error, SIZE_MAX);
		return NULL;
	}
	if (memory->store && !memory->reserve(memory->store, bytes, error))
		return NULL;
	whole = gpuvec_memory_new(bytes);
	if (whole == NULL)
	{
		if (memory->store)
			memory->unreserve(memory->store, bytes);
		gpuvec_fail_memory(error, bytes);
		return NULL;
	}
	header = (piece_header *) (((uintptr_t) whole + 2 * ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT) - 1;
	header->whole = whole;
	header->charged = bytes;
	return header + 1;
}

void
gpuvec_als_free(gpuvec_als_memory *memory, void *piece)
{
	piece_header header;

	if (piece == NULL)
		return;
	header = ((piece_header *) piece)[-1];
	free(header.whole);
	if (memory->store)
		memory->unreserve(memory->store, header.charged);
}
