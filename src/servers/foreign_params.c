/*-------------------------------------------------------------------------
 *
 * foreign_params.c
 *	  With what to connect to a server: libpq's parameters.
 *
 * They come from the options of the server and of the user mapping, as for
 * postgres_fdw.  A second connection leaves out the host of the first one.
 *
 *-------------------------------------------------------------------------
 */
#include "gpuvec.h"

#include "commands/dbcommands.h"
#include "commands/defrem.h"
#include "core/clock.h"
#include "foreign/foreign.h"
#include "mb/pg_wchar.h"
#include "miscadmin.h"
#include "servers/foreign_connect.h"
#include "servers/foreign_params.h"
#include "utils/guc.h"

/* True for the options of libpq that postgres_fdw lets users set */
bool
ForeignIsLibpqOption(const LibpqOption *options, const char *name)
{
	if (strcmp(name, "fallback_application_name") == 0 || strcmp(name, "client_encoding") == 0)
		return false;
	for (; options->keyword; options++)
		if (strcmp(name, options->keyword) == 0)
			return strchr(options->dispchar, 'D') == NULL;
	return false;
}

bool
ForeignBoolOption(List *options, const char *name, bool otherwise)
{
	ListCell   *cell;

	foreach(cell, options)
	{
		DefElem    *option = lfirst_node(DefElem, cell);

		if (strcmp(option->defname, name) == 0)
			return defGetBoolean(option);
	}
	return otherwise;
}

/* True if a user has to be asked for a password by the server */
bool
ForeignNeedsPassword(const UserMapping *mapping)
{
	return !superuser_arg(mapping->userid) && ForeignBoolOption(mapping->options, "password_required", true);
}

/* Append what an escape in an application name stands for */
static void
append_escape(StringInfo name, char escape)
{
	switch (escape)
	{
		case 'a':
			appendStringInfoString(name, application_name ? application_name : "");
			break;
		case 'c':
			appendStringInfo(name, "%lx.%x", (long) MyStartTime, MyProcPid);
			break;
		case 'C':
			appendStringInfoString(name, cluster_name ? cluster_name : "");
			break;
		case 'd':
			appendStringInfoString(name, get_database_name(MyDatabaseId));
			break;
		case 'p':
			appendStringInfo(name, "%d", MyProcPid);
			break;
		case 'u':
			appendStringInfoString(name, GetUserNameFromId(GetSessionUserId(), false));
			break;
		case '%':
			appendStringInfoChar(name, '%');
			break;
	}
}

/* An application name without its escapes */
static char *
expand_name(const char *name)
{
	StringInfoData expanded;

	initStringInfo(&expanded);
	for (; *name != '\0'; name++)
	{
		if (*name != '%')
			appendStringInfoChar(&expanded, *name);
		else if (name[1] != '\0')
			append_escape(&expanded, *++name);
	}
	return expanded.data;
}

static void
add_option(ForeignParams *options, const char *keyword, const char *value)
{
	options->keywords[options->n] = keyword;
	options->values[options->n++] = value;
}

static void
add_options(ForeignParams *to, const LibpqOption *known, List *from)
{
	ListCell   *cell;

	foreach(cell, from)
	{
		DefElem    *option = lfirst_node(DefElem, cell);

		if (ForeignIsLibpqOption(known, option->defname))
			add_option(to, option->defname, defGetString(option));
	}
}

/*
 * The name that the server shows: that of the options, or better that of the
 * setting of postgres_fdw (PostgreSQL 15 and later), which may have escapes
 */
static void
add_name(ForeignParams *options)
{
	const char *name = GetConfigOption("postgres_fdw.application_name", true, false);

	add_option(options, "fallback_application_name", "gpuvec");
	if (name != NULL && name[0] != '\0')
		add_option(options, "application_name", name);
	for (int i = options->n - 1; i >= 0 && GPUVEC_NAMES_HAVE_ESCAPES; i--)
	{
		if (strcmp(options->keywords[i], "application_name") != 0 || options->values[i][0] == '\0')
			continue;
		options->values[i] = expand_name(options->values[i]);
		if (options->values[i][0] != '\0')
			break;
	}
}

/* All options of a connection; they live in the current memory context */
void
ForeignParamsMake(ForeignParams *options, const ForeignServer *server, const UserMapping *mapping)
{
	int			n = list_length(server->options) + list_length(mapping->options) + 4;
	LibpqOption *known = ForeignLibpq()->PQconndefaults();

	if (known == NULL)
		ereport(ERROR,
				(errcode(ERRCODE_OUT_OF_MEMORY),
				 errmsg("out of memory")));
	options->keywords = palloc0_array(const char *, n);
	options->values = palloc0_array(const char *, n);
	options->n = 0;
	PG_TRY();
	{
		add_options(options, known, server->options);
		add_options(options, known, mapping->options);
	}
	PG_FINALLY();
	{
		ForeignLibpq()->PQconninfoFree(known);
	}
	PG_END_TRY();
	add_name(options);
	add_option(options, "client_encoding", GetDatabaseEncodingName());
}

/* When to give up connecting; libpq obeys connect_timeout only if it waits */
int64
ForeignParamsDeadline(const ForeignParams *options)
{
	int			seconds = 0;

	for (int i = 0; i < options->n; i++)
		if (strcmp(options->keywords[i], "connect_timeout") == 0)
			seconds = atoi(options->values[i]);
	return seconds <= 0 ? 0 :
		gpuvec_clock_us() + Max(seconds, 2) * INT64CONST(1000000);
}

/* The value of an option, of which the last one counts; or NULL */
static const char **
find_option(const ForeignParams *options, const char *keyword)
{
	for (int i = options->n - 1; i >= 0; i--)
		if (strcmp(options->keywords[i], keyword) == 0)
			return &options->values[i];
	return NULL;
}

/* Element i of a list with commas; palloc'd */
static char *
list_element(const char *list, int i)
{
	while (i-- > 0)
		list = strchr(list, ',') + 1;
	return pnstrdup(list, strcspn(list, ","));
}

static int
list_elements(const char *list)
{
	int			n = 1;

	for (; *list != '\0'; list++)
		n += *list == ',';
	return n;
}

/* A list without element i, and those before it at its end */
static char *
leave_out(const char *list, int i)
{
	StringInfoData rest;
	int			n = list_elements(list);

	initStringInfo(&rest);
	for (int j = 1; j < n; j++)
		appendStringInfo(&rest, "%s%s", j > 1 ? "," : "", list_element(list, (i + j) % n));
	return rest.data;
}

/* True if an element of the list is empty: it stands for libpq's default */
static bool
has_empty(const char *list)
{
	for (int i = list_elements(list) - 1; i >= 0; i--)
		if (list_element(list, i)[0] == '\0')
			return true;
	return false;
}

/*
 * The element of these lists to which a connection goes; -1: none, or it is
 * not certain which
 */
static int
find_host(const ForeignConnection *connection, const char *names, const char *ports)
{
	int			found = -1;

	for (int i = list_elements(names) - 1; i >= 0; i--)
	{
		if (strcmp(list_element(names, i), ForeignLibpq()->PQhost(connection->conn)) != 0 ||
			(ports && strcmp(list_element(ports, i), ForeignLibpq()->PQport(connection->conn)) != 0))
			continue;
		if (found >= 0)
			return -1;
		found = i;
	}
	return found;
}

/*
 * Leave out the host to which another connection goes.  False: there is no
 * other one, or it is not certain which one that is.
 */
bool
ForeignParamsLeaveOut(ForeignParams *options, const ForeignConnection *other)
{
	const char **lists[] = {
		find_option(options, "host"), find_option(options, "hostaddr"), find_option(options, "port")
	};
	const char **names = lists[0] ? lists[0] : lists[1];
	int			n = names ? list_elements(*names) : 1;
	int			host;

	if (n == 1)
		return false;
	for (int i = 0; i < lengthof(lists); i++)
	{
		if (lists[i] && has_empty(*lists[i]))
			return false;
		if (lists[i] && list_elements(*lists[i]) != n)
			lists[i] = NULL;
	}
	host = find_host(other, *names, lists[2] ? *lists[2] : NULL);
	for (int i = 0; i < lengthof(lists) && host >= 0; i++)
		if (lists[i])
			*lists[i] = leave_out(*lists[i], host);
	return host >= 0;
}
