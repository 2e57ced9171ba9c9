/*-------------------------------------------------------------------------
 *
 * server_partitions.h
 *	  Searches of several mirrors at once.
 *
 *-------------------------------------------------------------------------
 */
#ifndef SERVER_PARTITIONS_H
#define SERVER_PARTITIONS_H

#include "server_model.h"

/* Append a request for random queries in a mirror, which is named twice */
extern void random_partitions_request(buffer *b, const model *m, const shape *s);

extern void test_several_mirrors(void);
extern void test_compounds(void);
extern void test_compounds_wide(void);
extern void test_compounds_budget(void);
extern void test_compounds_concurrency(void);
extern void test_compounds_filters(void);
extern void test_compounds_values(void);

#endif							/* SERVER_PARTITIONS_H */
