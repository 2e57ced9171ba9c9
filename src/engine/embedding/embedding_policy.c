/*-------------------------------------------------------------------------
 *
 * embedding_policy.c
 *	  Limits for work on embedding tables; see gpuvec_embedding_limits.
 *
 *-------------------------------------------------------------------------
 */
#include "engine/embedding/embedding_rows.h"

const gpuvec_embedding_limits gpuvec_embedding_policy = {
	.changed_keys = 16384,
	.device_keys = 8192,
	.part_entries = 65536,
	.device_rows = 4 * 1024 * 1024
};
