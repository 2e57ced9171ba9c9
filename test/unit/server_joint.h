/*-------------------------------------------------------------------------
 *
 * server_joint.h
 *	  Loads by several sessions.
 *
 *-------------------------------------------------------------------------
 */
#ifndef SERVER_JOINT_H
#define SERVER_JOINT_H

extern void test_joint(void);
extern void test_joint_order(void);
extern void test_joint_violations(void);
extern void test_joint_ends(void);
extern void test_oust(void);
extern void test_joint_budget(void);
extern void test_joint_concurrency(void);

#endif							/* SERVER_JOINT_H */
