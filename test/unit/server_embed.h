/*-------------------------------------------------------------------------
 *
 * server_embed.h
 *	  Tests of embedding tables in the engine.
 *
 *-------------------------------------------------------------------------
 */
#ifndef SERVER_EMBED_H
#define SERVER_EMBED_H

#include "server_model.h"

extern void test_embed(void);
extern void test_embed_gram(void);
extern void test_embed_gram_charged(void);
extern void test_embed_room(void);
extern void test_embed_limit(void);
extern void test_embed_failed(void);
extern void test_embed_scarce(void);
extern void test_embed_concurrency(void);
extern void test_embed_violations(void);
extern void test_embed_verdicts(void);
extern void test_embed_near(void);
extern void test_embed_fuzz(void);

#endif							/* SERVER_EMBED_H */
