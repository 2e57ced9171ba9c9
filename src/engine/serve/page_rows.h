/*-------------------------------------------------------------------------
 *
 * page_rows.h
 *	  The rows of an answer by pages.
 *
 *-------------------------------------------------------------------------
 */
#ifndef GPUVEC_PAGE_ROWS_H
#define GPUVEC_PAGE_ROWS_H

#include <stdint.h>

/*
 * Write down n > 0 tids, in any order, as gpuvec_page_rows and their lines.
 * May change the order of tids[].  malloc'd, or NULL; sets *bytes.
 */
extern char *gpuvec_page_rows_new(uint64_t *tids, uint64_t n, uint64_t *bytes);

#endif							/* GPUVEC_PAGE_ROWS_H */
