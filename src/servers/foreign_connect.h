/*-------------------------------------------------------------------------
 *
 * foreign_connect.h
 *	  Connections of our own to servers of postgres_fdw.
 *
 *-------------------------------------------------------------------------
 */
#ifndef GPUVEC_FOREIGN_CONNECT_H
#define GPUVEC_FOREIGN_CONNECT_H

#include "postgres.h"

#include "nodes/execnodes.h"
#include "servers/foreign.h"
#include "servers/foreign_libpq.h"
#include "utils/timestamp.h"

/* Whose connection it is */
typedef struct ForeignConnectionKey
{
	Oid			mapping;		/* the user mapping; may be that of PUBLIC */
	Oid			user;
	uint32		second;			/* 1: to a second host of the server */
} ForeignConnectionKey;

/* A connection, kept until the session ends or its options change */
typedef struct ForeignConnection
{
	ForeignConnectionKey key;	/* hash key */
	PGconn	   *conn;			/* NULL: none */
	bool		connecting;		/* call PQconnectPoll() */
	bool		used;			/* by this statement */
	bool		begun;			/* a transaction is open there */
	bool		reused;			/* made before this statement */
	bool		stale;			/* options have changed */
	bool		keep;			/* when the statement ends */
	bool		need_password;	/* it must have asked for one */
	int			syncs;			/* ends of statements to read */
	int64		deadline;		/* of connecting, of gpuvec_clock_us(); 0:
								 * none */
	PGresult   *result;			/* that is read just now */
	pid_t		canceling;		/* the process that asks to cancel; 0: none,
								 * -1: it cannot be had */
	uint32		server_hash;	/* names of the catalog's entries in messages
								 * of invalidation */
	uint32		mapping_hash;
} ForeignConnection;

/* foreign_way.c */
extern void ForeignNoteOthers(void);
extern void ForeignChooseWay(ForeignLeaf *leaves, int nleaves, EState *estate);

/* foreign_connect.c */
extern void ForeignWatchStatement(EState *estate);
extern ForeignConnection *ForeignConnect(const ForeignLeaf *leaf);
extern ForeignConnection *ForeignConnectSecond(const ForeignConnection *first, const ForeignLeaf *leaf);
extern void ForeignConnectSwap(ForeignConnection *first, ForeignConnection *second);
extern void ForeignConnectStart(ForeignConnection *connection, const ForeignLeaf *leaf);
extern void ForeignConnectCheck(const ForeignConnection *connection, const ForeignLeaf *leaf);
extern void ForeignConnectFailed(const ForeignConnection *connection, const ForeignLeaf *leaf,
								 const char *detail);
extern bool ForeignMakeRoom(void);
extern void ForeignDisconnect(ForeignConnection *connection);

/* foreign_cancel.c */
extern void ForeignCancelBegin(ForeignConnection *connection);
extern void ForeignCancelEnd(ForeignConnection *connection);

/* foreign_ask.c */
extern void ForeignAsk(const ForeignStatement *statements, int n,
					   void (*meanwhile) (void *arg), void *arg);

#endif							/* GPUVEC_FOREIGN_CONNECT_H */
