/*-------------------------------------------------------------------------
 *
 * foreign_options.c
 *	  Options and user mappings of foreign tables and their servers.
 *
 *-------------------------------------------------------------------------
 */
#include "gpuvec.h"

#include "commands/defrem.h"
#include "foreign/foreign.h"
#include "miscadmin.h"
#include "servers/foreign.h"

/* The value of an option, or NULL */
const char *
ForeignOption(List *options, const char *name)
{
	ListCell   *cell;

	foreach(cell, options)
	{
		DefElem    *option = lfirst_node(DefElem, cell);

		if (strcmp(option->defname, name) == 0)
			return defGetString(option);
	}
	return NULL;
}

/* Error context callback: which table, on which server */
static void
name_server(void *arg)
{
	const ForeignLeaf *leaf = arg;

	errcontext("search of foreign table \"%s\" on server \"%s\"",
			   RelationGetRelationName(leaf->rel), leaf->server_name);
}

/*
 * Name the server of a scan in errors, once, until error_context_stack is set
 * back to callback->previous
 */
void
ForeignEnter(ErrorContextCallback *callback, const ForeignLeaf *leaf)
{
	ErrorContextCallback *top = error_context_stack;

	callback->callback = name_server;
	callback->arg = (void *) leaf;
	callback->previous = top;
	if (top == NULL || top->callback != name_server || top->arg != (void *) leaf)
		error_context_stack = callback;
}

/*
 * The current user's mapping for the server of a leaf.  Without one, the error
 * names the server, as that of PostgreSQL 16 and earlier does not.
 */
Oid
ForeignMapping(const ForeignLeaf *leaf)
{
	ErrorContextCallback callback;
	Oid			mapping;

	ForeignEnter(&callback, leaf);
	mapping = GetUserMapping(GetUserId(), leaf->server)->umid;
	error_context_stack = callback.previous;
	return mapping;
}
