/*-------------------------------------------------------------------------
 *
 * foreign_libpq.c
 *	  Look up the functions of libpq.
 *
 *-------------------------------------------------------------------------
 */
#include "gpuvec.h"

#include <dlfcn.h>

#include "servers/foreign_libpq.h"

/* A function, and where its address goes */
typedef struct LibpqSymbol
{
	const char *name;
	size_t		offset;
} LibpqSymbol;

#define SYMBOL(name) {#name, offsetof(Libpq, name)}

static const LibpqSymbol symbols[] = {
	SYMBOL(PQconnectStartParams), SYMBOL(PQconnectPoll), SYMBOL(PQfinish), SYMBOL(PQstatus),
	SYMBOL(PQsocket), SYMBOL(PQhost), SYMBOL(PQport), SYMBOL(PQerrorMessage),
	SYMBOL(PQconnectionUsedPassword),
	SYMBOL(PQconndefaults), SYMBOL(PQconninfoFree), SYMBOL(PQsetnonblocking), SYMBOL(PQflush),
	SYMBOL(PQconsumeInput), SYMBOL(PQisBusy), SYMBOL(PQsendQueryParams), SYMBOL(PQgetResult),
	SYMBOL(PQsetSingleRowMode), SYMBOL(PQenterPipelineMode), SYMBOL(PQpipelineSync),
	SYMBOL(PQresultStatus), SYMBOL(PQresultErrorField), SYMBOL(PQntuples), SYMBOL(PQnfields),
	SYMBOL(PQftype), SYMBOL(PQgetvalue), SYMBOL(PQgetlength), SYMBOL(PQgetisnull),
	SYMBOL(PQclear), SYMBOL(PQgetCancel), SYMBOL(PQcancel), SYMBOL(PQfreeCancel)
};

StaticAssertDecl(lengthof(symbols) * sizeof(void (*) (void)) == sizeof(Libpq),
				 "each function of libpq has a symbol");

/*
 * The libpq that postgres_fdw is linked with.  One before version 14 lacks
 * pipelines, and is not used.  A library that is not there yet may be later.
 */
const Libpq *
ForeignLibpq(void)
{
	static Libpq functions;
	static bool found = false;
	void	   *library;

	if (found)
		return &functions;
	library = dlopen("libpq.so.5", RTLD_NOW | RTLD_NOLOAD);
	if (library == NULL)
		return NULL;
	found = true;
	for (int i = 0; i < lengthof(symbols) && found; i++)
	{
		void	   *address = dlsym(library, symbols[i].name);

		memcpy((char *) &functions + symbols[i].offset, &address, sizeof(address));
		found = address != NULL;
	}
	if (!found)
		dlclose(library);
	return found ? &functions : NULL;
}
