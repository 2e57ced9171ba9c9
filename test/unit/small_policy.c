/*-------------------------------------------------------------------------
 *
 * small_policy.c
 *	  In place of embedding_policy.c, for tests: small tables go every way.
 *
 *-------------------------------------------------------------------------
 */
#include "engine/embedding/embedding_rows.h"

const gpuvec_embedding_limits gpuvec_embedding_policy = {
	.changed_keys = 100,
	.device_keys = 3,
	.part_entries = 500,
	.device_rows = 300
};
