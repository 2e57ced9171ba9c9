/*-------------------------------------------------------------------------
 *
 * server_als.h
 *	  Tests of trainings over the socket.
 *
 *-------------------------------------------------------------------------
 */
#ifndef SERVER_ALS_H
#define SERVER_ALS_H

extern void test_als(void);
extern void test_als_violations(void);
extern void test_als_hangup(void);
extern void test_als_fuzz(void);
extern void test_neighbors(void);
extern void test_neighbors_violations(void);
extern void test_als_budget(void);
extern void test_als_memory(void);

#endif							/* SERVER_ALS_H */
