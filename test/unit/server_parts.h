/*-------------------------------------------------------------------------
 *
 * server_parts.h
 *	  Searches of several mirrors at once.
 *
 *-------------------------------------------------------------------------
 */
#ifndef SERVER_PARTS_H
#define SERVER_PARTS_H

extern void test_several_mirrors(void);

#endif							/* SERVER_PARTS_H */
