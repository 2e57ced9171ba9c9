/*-------------------------------------------------------------------------
 *
 * foreign_libpq.h
 *	  The functions of libpq that searches on other servers call.
 *
 * The library is not linked with libpq, and is built without its headers: a
 * server without postgres_fdw needs neither.  Whoever has a foreign table of
 * postgres_fdw has libpq in the session, because postgres_fdw is linked with
 * it.  So its functions are looked up there.  What is declared here has been
 * the same in all versions of libpq.so.5.
 *
 *-------------------------------------------------------------------------
 */
#ifndef GPUVEC_FOREIGN_LIBPQ_H
#define GPUVEC_FOREIGN_LIBPQ_H

#include "postgres.h"

typedef struct pg_conn PGconn;
typedef struct pg_result PGresult;
typedef struct pg_cancel PGcancel;

/* An option of connections, as PQconndefaults() lists them */
typedef struct LibpqOption
{
	char	   *keyword;
	char	   *envvar;
	char	   *compiled;
	char	   *val;
	char	   *label;
	char	   *dispchar;		/* contains D: for debugging */
	int			dispsize;
} LibpqOption;

/* Values of ConnStatusType, PostgresPollingStatusType and ExecStatusType */
enum
{
	LIBPQ_CONNECTION_OK = 0,
	LIBPQ_CONNECTION_BAD = 1
};

enum
{
	LIBPQ_POLLING_FAILED = 0,
	LIBPQ_POLLING_READING = 1,
	LIBPQ_POLLING_WRITING = 2,
	LIBPQ_POLLING_OK = 3
};

enum
{
	LIBPQ_COMMAND_OK = 1,
	LIBPQ_TUPLES_OK = 2,
	LIBPQ_SINGLE_TUPLE = 9,
	LIBPQ_PIPELINE_SYNC = 10,
	LIBPQ_PIPELINE_ABORTED = 11
};

typedef struct Libpq
{
	PGconn	   *(*PQconnectStartParams) (const char *const *keywords, const char *const *values, int expand_dbname);
	int			(*PQconnectPoll) (PGconn *conn);
	void		(*PQfinish) (PGconn *conn);
	int			(*PQstatus) (const PGconn *conn);
	int			(*PQsocket) (const PGconn *conn);
	char	   *(*PQhost) (const PGconn *conn);
	char	   *(*PQport) (const PGconn *conn);
	char	   *(*PQerrorMessage) (const PGconn *conn);
	int			(*PQconnectionUsedPassword) (const PGconn *conn);
	LibpqOption *(*PQconndefaults) (void);
	void		(*PQconninfoFree) (LibpqOption *options);
	int			(*PQsetnonblocking) (PGconn *conn, int arg);
	int			(*PQflush) (PGconn *conn);
	int			(*PQconsumeInput) (PGconn *conn);
	int			(*PQisBusy) (PGconn *conn);
	int			(*PQsendQueryParams) (PGconn *conn, const char *command, int n, const Oid *types, const char *const *values, const int *lengths, const int *formats, int result_format);
	PGresult   *(*PQgetResult) (PGconn *conn);
	int			(*PQsetSingleRowMode) (PGconn *conn);
	int			(*PQenterPipelineMode) (PGconn *conn);
	int			(*PQpipelineSync) (PGconn *conn);
	int			(*PQresultStatus) (const PGresult *result);
	char	   *(*PQresultErrorField) (const PGresult *result, int field);
	int			(*PQntuples) (const PGresult *result);
	int			(*PQnfields) (const PGresult *result);
	Oid			(*PQftype) (const PGresult *result, int column);
	char	   *(*PQgetvalue) (const PGresult *result, int row, int column);
	int			(*PQgetlength) (const PGresult *result, int row, int column);
	int			(*PQgetisnull) (const PGresult *result, int row, int column);
	void		(*PQclear) (PGresult *result);
	PGcancel   *(*PQgetCancel) (PGconn *conn);
	int			(*PQcancel) (PGcancel *cancel, char *error, int size);
	void		(*PQfreeCancel) (PGcancel *cancel);
} Libpq;

/* The functions, or NULL if they are not in this session */
extern const Libpq *ForeignLibpq(void);

#endif							/* GPUVEC_FOREIGN_LIBPQ_H */
