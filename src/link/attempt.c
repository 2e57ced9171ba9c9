/*-------------------------------------------------------------------------
 *
 * attempt.c
 *	  Work that may fail for want of memory, without an end of the statement.
 *
 * No subtransaction is needed to undo the work: most of the server's functions
 * release their locks before they raise an error, and who calls one that does
 * not releases the lock.  But an error resets the counters of held-off
 * interrupts, so these are restored.
 *
 *-------------------------------------------------------------------------
 */
#include "gpuvec.h"

#include "link/attempt.h"
#include "miscadmin.h"
#include "utils/resowner.h"

/* Forget the current error, but for its message; a cancel is raised again */
static void
drop_error(char *message, Size size)
{
	ErrorData  *error;

	if (geterrcode() == ERRCODE_QUERY_CANCELED)
		PG_RE_THROW();
	error = CopyErrorData();
	FlushErrorState();
	if (message != NULL)
		strlcpy(message, error->message, size);
	FreeErrorData(error);
}

bool
GpuvecAttempt(void (*work) (void), char *message, Size size)
{
	MemoryContext context = CurrentMemoryContext;
	ResourceOwner owner = CurrentResourceOwner;
	uint32		held_off = InterruptHoldoffCount;
	uint32		cancel_held_off = QueryCancelHoldoffCount;
	volatile bool ok = true;

	CurrentResourceOwner = NULL;
	PG_TRY();
	{
		/* the context of the statement does not matter */
		error_context_stack = NULL;
		work();
	}
	PG_CATCH();
	{
		MemoryContextSwitchTo(context);
		CurrentResourceOwner = owner;
		InterruptHoldoffCount = held_off;
		QueryCancelHoldoffCount = cancel_held_off;
		drop_error(message, size);
		ok = false;
	}
	PG_END_TRY();
	CurrentResourceOwner = owner;
	return ok;
}
