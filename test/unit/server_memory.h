/*-------------------------------------------------------------------------
 *
 * server_memory.h
 *	  Requests for which the engine finds no memory.
 *
 *-------------------------------------------------------------------------
 */
#ifndef SERVER_MEMORY_H
#define SERVER_MEMORY_H

#include "server_client.h"

/* An engine whose allocations can be made to fail */
extern engine memory_engine(void);
extern void memory_engine_stop(engine *e);

/*
 * Make a request whose n-th allocation fails; returns whether it was answered
 */
typedef bool (*memory_request) (client *c, void *arg);

/*
 * Make each allocation of a request fail in turn.  Each time the answer is
 * right or says 53200, and a request on the same connection (on another one,
 * if it is `closed` by an error) is answered.
 */
extern void memory_try(const engine *e, client *c, const char *what, memory_request request,
					   memory_request again, void *arg, bool closes);

/*
 * Make a request many times, which changes nothing that lasts: the engine has
 * as many allocations in the end as before.  If it `fails`, the same while
 * each allocation of it fails.
 */
extern void memory_none_lost(client *c, const char *what, memory_request request, void *arg, bool fails);

extern void test_memory(void);
extern void test_request_budget(void);
extern void test_embed_memory(void);

#endif							/* SERVER_MEMORY_H */
