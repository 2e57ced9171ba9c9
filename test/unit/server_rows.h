/*-------------------------------------------------------------------------
 *
 * server_rows.h
 *	  Tests of rows that a feed hands over without their pages.
 *
 *-------------------------------------------------------------------------
 */
#ifndef SERVER_ROWS_H
#define SERVER_ROWS_H

extern void test_rows(void);
extern void test_rows_pages(void);
extern void test_rows_messages(void);
extern void test_rows_violations(void);
extern void test_rows_busy(void);
extern void test_rows_kept(void);
extern void test_rows_memory(void);
extern void test_rows_merges(void);
extern void test_rows_concurrency(void);
extern void test_rows_wide(void);
extern void test_rows_filters(void);
extern void test_rows_values(void);
extern void test_patience(void);

#endif							/* SERVER_ROWS_H */
