/*-------------------------------------------------------------------------
 *
 * foreign_way.c
 *	  Which way a search of foreign tables takes: connections of its own?
 *
 * postgres_fdw waits for each server several times, one server after the
 * other.  So where nothing of its transaction can be seen, searches use
 * connections of their own, which send everything at once.  That is so if the
 * search stands in the top-level statement of a session, and that statement
 * is all of the transaction (ForeignChooseWay()).  Then no earlier statement
 * has changed anything on a server or seen a snapshot of it, and no other part
 * of the statement reads foreign tables.
 *
 * Who may connect as whom is decided by the rules of postgres_fdw: options of
 * the server and of the user mapping, and a password for those who are not
 * superusers, unless password_required is off.  What is not known here, an
 * option of a later version, say, is left to postgres_fdw.
 *
 *-------------------------------------------------------------------------
 */
#include "gpuvec.h"

#include "access/xact.h"
#include "foreign/fdwapi.h"
#include "foreign/foreign.h"
#include "miscadmin.h"
#include "servers/foreign_connect.h"
#include "servers/foreign_params.h"
#include "storage/lmgr.h"
#include "tcop/pquery.h"

/* True if the statement of an executor names foreign tables */
static bool
reads_foreign_tables(const PlannedStmt *statement)
{
	ListCell   *cell;

	foreach(cell, statement->rtable)
	{
		const RangeTblEntry *entry = lfirst_node(RangeTblEntry, cell);

		if (entry->rtekind == RTE_RELATION && entry->relkind == RELKIND_FOREIGN_TABLE)
			return true;
	}
	return false;
}

/*
 * True if an executor runs the top-level statement of the session, and this
 * statement is the whole transaction.  Cursors, SQL's EXECUTE, and statements
 * of functions have portals with names, or executors that are not those of
 * the portal.  An earlier part of this statement that has changed anything
 * has used up a command.
 */
static bool
is_whole_transaction(const EState *estate)
{
	Portal		portal = ActivePortal;

	return portal != NULL && portal->name[0] == '\0' && list_length(portal->stmts) == 1 &&
		linitial_node(PlannedStmt, portal->stmts) == estate->es_plannedstmt &&
		!IsInTransactionBlock(true) && !IsInParallelMode() && !IsolationUsesXactSnapshot() &&
		GetCurrentCommandId(false) == FirstCommandId;
}

/*
 * The start of the last transaction in which a search has used a connection
 * of postgres_fdw: searches that follow shall see the same snapshot
 */
static TimestampTz others_used = 0;

void
ForeignNoteOthers(void)
{
	others_used = GetCurrentTransactionStartTimestamp();
}

static bool
others_were_used(void)
{
	return others_used == GetCurrentTransactionStartTimestamp();
}

/* Options of postgres_fdw that do not concern connections */
static const char *const other_options[] = {
	"use_remote_estimate", "fdw_startup_cost", "fdw_tuple_cost", "extensions", "updatable",
	"truncatable", "fetch_size", "batch_size", "async_capable", "parallel_commit",
	"parallel_abort", "keep_connections", "analyze_sampling", "password_required"
};

static bool
is_other_option(const char *name)
{
	for (int i = 0; i < lengthof(other_options); i++)
		if (strcmp(name, other_options[i]) == 0)
			return true;
	return false;
}

/* True if all options are known */
static bool
are_known(const LibpqOption *known, List *options)
{
	ListCell   *cell;

	foreach(cell, options)
	{
		const char *name = lfirst_node(DefElem, cell)->defname;

		if (!ForeignIsLibpqOption(known, name) && !is_other_option(name))
			return false;
	}
	return true;
}

/*
 * True if we can connect to the server of a table.  If a password is needed
 * and there is none, postgres_fdw says so, or knows another way.  Hosts that
 * are given up after a time are left to it as well, as libpq itself goes on
 * to the next one only in a function that waits.
 */
static bool
can_connect(const LibpqOption *known, const ForeignLeaf *leaf)
{
	const ForeignServer *server = GetForeignServer(leaf->server);
	const UserMapping *mapping = GetUserMapping(GetUserId(), leaf->server);
	const char *password = ForeignOption(mapping->options, "password");
	const char *host = ForeignOption(server->options, "host");
	const char *hostaddr = ForeignOption(server->options, "hostaddr");

	if (!are_known(known, server->options) || !are_known(known, mapping->options))
		return false;
	if (ForeignOption(server->options, "connect_timeout") != NULL &&
		((host && strchr(host, ',')) || (hostaddr && strchr(hostaddr, ','))))
		return false;
	return !ForeignNeedsPassword(mapping) || (password != NULL && password[0] != '\0');
}

/* True if we can connect to the servers of all these tables */
static bool
can_connect_all(const LibpqOption *known, const ForeignLeaf *leaves, int nleaves)
{
	for (int i = 0; i < nleaves; i++)
	{
		(void) ForeignMapping(&leaves[i]);	/* an error names the server */
		if (!can_connect(known, &leaves[i]))
			return false;
	}
	return true;
}

/*
 * Decide whether these foreign tables are searched over connections of our
 * own, for an executor; estate is NULL if it is not known.
 */
void
ForeignChooseWay(ForeignLeaf *leaves, int nleaves, EState *estate)
{
	LibpqOption *known;
	volatile bool own = false;

	if (!gpuvec_own_connections || nleaves == 0 || estate == NULL || !is_whole_transaction(estate) ||
		reads_foreign_tables(estate->es_plannedstmt) || others_were_used())
		return;
	/* an earlier part of the statement may have locked a table over there */
	for (int i = 0; i < nleaves; i++)
		if (CheckRelationLockedByMe(leaves[i].rel, RowShareLock, true))
			return;
	/* loads the library of postgres_fdw, if it is not loaded yet */
	(void) GetFdwRoutineForRelation(leaves[0].rel, false);
	if (ForeignLibpq() == NULL || (known = ForeignLibpq()->PQconndefaults()) == NULL)
		return;
	PG_TRY();
	{
		own = can_connect_all(known, leaves, nleaves);
	}
	PG_FINALLY();
	{
		ForeignLibpq()->PQconninfoFree(known);
	}
	PG_END_TRY();
	for (int i = 0; i < nleaves; i++)
		leaves[i].own = own;
	if (own)
		ForeignWatchStatement(estate);
}
