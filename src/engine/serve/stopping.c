/*-------------------------------------------------------------------------
 *
 * stopping.c
 *	  Whether the engine is about to exit.
 *
 *-------------------------------------------------------------------------
 */
#include "engine/serve/server.h"

static int	stopping = 0;		/* atomic */

bool
gpuvec_server_stopping(void)
{
	return __atomic_load_n(&stopping, __ATOMIC_RELAXED);
}

void
gpuvec_server_stop(void)
{
	__atomic_store_n(&stopping, 1, __ATOMIC_RELAXED);
}
