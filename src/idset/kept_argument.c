/*-------------------------------------------------------------------------
 *
 * kept_argument.c
 *	  What a function makes of an argument, kept for the calls that follow.
 *
 * A query is the same for all rows, mostly.  But a parameter may change from
 * one call to the next (expressions of PL/pgSQL), so bytes are compared.
 *
 *-------------------------------------------------------------------------
 */
#include "gpuvec.h"

#include "idset/kept_argument.h"

/* Arguments of which something may be kept */
#define KEPT_ARGUMENTS	2

/* fn_extra is an array of these */
typedef struct KeptArgument
{
	MemoryContext context;		/* of what follows; reset for each new value */
	struct varlena *value;		/* NULL: nothing is kept */
	void	   *made;
} KeptArgument;

/* Keep a copy of a value, and what is made of it */
static void
keep(FunctionCallInfo fcinfo, KeptArgument *kept, struct varlena *value, KeptMaker make)
{
	MemoryContext old;

	if (kept->context == NULL)
		kept->context = AllocSetContextCreate(fcinfo->flinfo->fn_mcxt, "gpuvec argument",
											  ALLOCSET_SMALL_SIZES);
	kept->value = NULL;			/* in case of an error below */
	MemoryContextReset(kept->context);
	old = MemoryContextSwitchTo(kept->context);
	value = memcpy(palloc(VARSIZE(value)), value, VARSIZE(value));
	kept->made = make(fcinfo, value);
	kept->value = value;
	MemoryContextSwitchTo(old);
}

void *
kept_argument(FunctionCallInfo fcinfo, int argument, KeptMaker make)
{
	struct varlena *value = PG_DETOAST_DATUM(PG_GETARG_DATUM(argument));
	FmgrInfo   *flinfo = fcinfo->flinfo;
	KeptArgument *kept;

	Assert(argument < KEPT_ARGUMENTS);
	if (flinfo->fn_extra == NULL)
		flinfo->fn_extra = MemoryContextAllocZero(flinfo->fn_mcxt, KEPT_ARGUMENTS * sizeof(KeptArgument));
	kept = (KeptArgument *) flinfo->fn_extra + argument;
	if (kept->value == NULL || VARSIZE(kept->value) != VARSIZE(value) ||
		memcmp(kept->value, value, VARSIZE(value)) != 0)
		keep(fcinfo, kept, value, make);
	PG_FREE_IF_COPY(value, argument);
	return kept->made;
}
