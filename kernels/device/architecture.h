/*-------------------------------------------------------------------------
 *
 * architecture.h
 *	  Which row of a table of tuning is that of a device.
 *
 * The numbers that decide how a GPU is used stand in tables, with a row for
 * each compute capability: search_tuning.cu and embedding_tuning.cu.  A row
 * whose numbers nobody has measured has those of capability 9.0, and says so.
 * Who measures gives the row numbers of its own, and names the figures.
 *
 * A device has the row of its capability, or else the last one of a lower
 * capability: 8.7 has that of 8.6, and what comes after 10.0 that of 10.0.
 *
 *-------------------------------------------------------------------------
 */
#ifndef GPUVEC_ARCHITECTURE_H
#define GPUVEC_ARCHITECTURE_H

#include <stddef.h>

namespace gpuvec
{

/*
 * The row of a device in a table whose rows have `capability`, compute
 * capability * 10, ascending
 */
template <typename Row, size_t N>
static inline const Row &
row_of_capability(const Row (&rows)[N], int capability)
{
	size_t row = 0;

	while (row + 1 < N && rows[row + 1].capability <= capability)
		row++;
	return rows[row];
}

} // namespace gpuvec

#endif /* GPUVEC_ARCHITECTURE_H */
