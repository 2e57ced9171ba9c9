/*-------------------------------------------------------------------------
 *
 * engine_error.c
 *	  Filling a gpuvec_error.
 *
 *-------------------------------------------------------------------------
 */
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "engine/engine_error.h"

bool
gpuvec_fail(gpuvec_error *error, const char *sqlstate, const char *detail,
			const char *hint, const char *format, ...)
{
	va_list		args;

	memset(error, 0, sizeof(*error));
	snprintf(error->sqlstate, sizeof(error->sqlstate), "%s", sqlstate);
	error->fallback = strcmp(sqlstate, GPUVEC_OUT_OF_MEMORY) == 0 ||
		strcmp(sqlstate, GPUVEC_LIMIT_EXCEEDED) == 0;
	va_start(args, format);
	vsnprintf(error->message, sizeof(error->message), format, args);
	va_end(args);
	if (detail)
		snprintf(error->detail, sizeof(error->detail), "%s", detail);
	if (hint)
		snprintf(error->hint, sizeof(error->hint), "%s", hint);
	return false;
}

bool
gpuvec_fail_memory(gpuvec_error *error, size_t bytes)
{
	gpuvec_fail(error, GPUVEC_OUT_OF_MEMORY, NULL, NULL,
				"the gpuvec engine is out of memory");
	snprintf(error->detail, sizeof(error->detail),
			 "Failed on a request of %zu bytes.", bytes);
	return false;
}

bool
gpuvec_lacks_memory(const gpuvec_error *error)
{
	return !error->fatal && strcmp(error->sqlstate, GPUVEC_OUT_OF_MEMORY) == 0;
}
