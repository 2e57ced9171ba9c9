/*-------------------------------------------------------------------------
 *
 * version.c
 *	  The library's version, and whether it is new enough for the SQL objects.
 *
 * The library is installed for all databases at once, the objects in each
 * database by a script.  Each script that creates or updates objects begins
 * with a call, so that with a library that is older the one line that is
 * wrong is said, not that some function is missing.  A library that is newer
 * than the objects serves them as before.
 *
 *-------------------------------------------------------------------------
 */
#include "gpuvec.h"

#include "fmgr.h"
#include "utils/builtins.h"

PG_FUNCTION_INFO_V1(gpuvec_library_version);

/* Compare two versions, numbers with points between them, as strcmp does */
static int
compare_versions(const char *a, const char *b)
{
	while (*a || *b)
	{
		char	   *end_a;
		char	   *end_b;
		long		x = strtol(a, &end_a, 10);
		long		y = strtol(b, &end_b, 10);

		if (x != y)
			return x < y ? -1 : 1;
		if (*end_a != '.' && *end_b != '.')
			return strcmp(end_a, end_b);
		a = end_a + (*end_a == '.');
		b = end_b + (*end_b == '.');
	}
	return 0;
}

/* The version; an error if it is lower than the argument, which may be null */
Datum
gpuvec_library_version(PG_FUNCTION_ARGS)
{
	if (!PG_ARGISNULL(0))
	{
		char	   *needed = text_to_cstring(PG_GETARG_TEXT_PP(0));

		if (compare_versions(GPUVEC_VERSION, needed) < 0)
			ereport(ERROR,
					(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
					 errmsg("the gpuvec library is version %s, older than version %s of the extension's objects",
							GPUVEC_VERSION, needed),
					 errhint("Install the library of that version, and restart the server if it preloads the library.")));
	}
	PG_RETURN_TEXT_P(cstring_to_text(GPUVEC_VERSION));
}
