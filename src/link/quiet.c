/*-------------------------------------------------------------------------
 *
 * quiet.c
 *	  Work during which nothing is sent to the client.
 *
 * A client that does not read its socket stops its session as soon as a
 * message does not fit the socket's buffer.  If the session then holds a lock
 * that others wait for, it stops them, too.  So nothing goes to the client
 * while such a lock is held: no message of ours, of PostgreSQL below us, of a
 * subtransaction, or of a parallel worker, which this process would pass on.
 * What is logged does not change.
 *
 * An error is sent to the client before its (sub)transaction is aborted, and
 * its locks are released.  So the lock is released here, then the error goes
 * on.  If the process is terminated, nothing can be released before that
 * message would be sent.  So the client gets none: it only sees the
 * connection end.
 *
 *-------------------------------------------------------------------------
 */
#include "gpuvec.h"

#include "link/quiet.h"
#include "tcop/dest.h"
#include "tcop/tcopprot.h"
#include "utils/resowner.h"

/* Raise the current error again, as one that may be sent to the client */
static void
raise_again(MemoryContext context)
{
	ErrorData  *error;

	MemoryContextSwitchTo(context);
	error = CopyErrorData();
	FlushErrorState();
	/* it was raised while there seemed to be no client */
	error->output_to_client = whereToSendOutput == DestRemote;
	ReThrowError(error);
}

bool
GpuvecQuietly(bool (*work) (void *arg), void (*release) (void *arg), void *arg)
{
	MemoryContext context = CurrentMemoryContext;
	ResourceOwner owner = CurrentResourceOwner;
	CommandDest dest = whereToSendOutput;
	volatile bool result = false;

	if (dest == DestRemote)
		whereToSendOutput = DestNone;
	PG_TRY();
	{
		result = work(arg);
	}
	PG_CATCH();
	{
		whereToSendOutput = dest;
		CurrentResourceOwner = owner;
		if (release != NULL)
			release(arg);
		raise_again(context);
	}
	PG_END_TRY();
	whereToSendOutput = dest;
	return result;
}
