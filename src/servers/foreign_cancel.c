/*-------------------------------------------------------------------------
 *
 * foreign_cancel.c
 *	  Ask servers to cancel the statements that they work on.
 *
 * PQcancel() waits until the server has taken the request, and nothing ends
 * this wait: no signal, and no time limit.  A server that is stuck, or wants
 * to do harm, would hold the session for ever, after an error, a cancel, and
 * while it is terminated.  So a process of its own calls it for each server,
 * all at the same time, and an alarm ends this process.  Afterwards the
 * connection is closed in any case.
 *
 *-------------------------------------------------------------------------
 */
#include "gpuvec.h"

#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include "servers/foreign_connect.h"

/* Seconds that a server has to take a request */
#define CANCEL_SECONDS	5

/* True if a server works on a statement */
static bool
is_working(const ForeignConnection *connection)
{
	return connection->conn != NULL && !connection->connecting && connection->syncs > 0 &&
		ForeignLibpq()->PQstatus(connection->conn) == LIBPQ_CONNECTION_OK;
}

/*
 * What the new process does.  Signals that end it do so at once, for none of
 * the session's handlers may run here, and neither may what runs at its exit.
 */
static void
send_cancel(PGcancel *cancel)
{
	static const int ending[] = {SIGALRM, SIGINT, SIGTERM, SIGQUIT};
	sigset_t	set;
	char		error[256];

	sigemptyset(&set);
	for (int i = 0; i < lengthof(ending); i++)
	{
		signal(ending[i], SIG_DFL);
		sigaddset(&set, ending[i]);
	}
	alarm(CANCEL_SECONDS);
	sigprocmask(SIG_UNBLOCK, &set, NULL);
	_exit(ForeignLibpq()->PQcancel(cancel, error, sizeof(error)) ? 0 : 1);
}

/*
 * Begin to ask the server of a connection to cancel its statement, if there
 * is one.  ForeignCancelEnd() waits for that.
 */
void
ForeignCancelBegin(ForeignConnection *connection)
{
	PGcancel   *cancel = is_working(connection) ? ForeignLibpq()->PQgetCancel(connection->conn) : NULL;
	sigset_t	all;
	sigset_t	old;

	connection->canceling = 0;
	if (cancel == NULL)
		return;
	sigfillset(&all);
	sigprocmask(SIG_SETMASK, &all, &old);
	connection->canceling = fork();
	if (connection->canceling == 0)
		send_cancel(cancel);
	sigprocmask(SIG_SETMASK, &old, NULL);
	ForeignLibpq()->PQfreeCancel(cancel);
}

/* Wait for it, CANCEL_SECONDS at most from its beginning */
void
ForeignCancelEnd(ForeignConnection *connection)
{
	pid_t		pid = connection->canceling;
	int			status = 0;

	connection->canceling = 0;
	if (pid == 0)
		return;
	while (pid > 0 && waitpid(pid, &status, 0) < 0 && errno == EINTR)
		;
	if (pid < 0 || status != 0)
		ereport(WARNING,
				(errcode(ERRCODE_CONNECTION_FAILURE),
				 errmsg("could not send cancel request"),
				 pid > 0 && WIFSIGNALED(status) && WTERMSIG(status) == SIGALRM ?
				 errdetail("The server did not take it within %d seconds.", CANCEL_SECONDS) : 0));
}
