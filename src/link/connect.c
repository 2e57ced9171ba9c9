/*-------------------------------------------------------------------------
 *
 * connect.c
 *	  Finds the engine and introduces this session to it.
 *
 * While no engine accepts connections, a new connection waits in the backlog
 * of the supervisor's socket.  The supervisor says in shared memory whether
 * waiting makes sense.
 *
 *-------------------------------------------------------------------------
 */
#include "gpuvec.h"

#include "access/xact.h"
#include "core/clock.h"
#include "link/connection.h"
#include "link/shared.h"
#include "link/supervisor.h"
#include "miscadmin.h"

/* Wait this long for a supervisor to open its socket */
#define SUPERVISOR_PATIENCE_MS	10000

/* What the supervisor says in shared memory */
typedef struct SupervisorState
{
	bool		running;
	bool		listening;		/* it has opened its socket */
	bool		without;		/* sessions must do without an engine:
								 * connection.why_not says why */
} SupervisorState;

static SupervisorState
supervisor_state(void)
{
	GpuvecShared *state = GpuvecSharedState();
	SupervisorState s;

	SpinLockAcquire(&state->mutex);
	s.running = state->supervisor_pid != 0;
	s.listening = state->listening;
	s.without = s.running && state->without;
	if (s.without)
		strlcpy(connection.why_not, state->last_error, sizeof(connection.why_not));
	SpinLockRelease(&state->mutex);
	return s;
}

/*
 * Get a connected socket; `start` also starts the supervisor if need be.
 * False: there is none, and *reason says why.
 */
static bool
reach_supervisor(bool start, const char **reason)
{
	int64		begin = gpuvec_clock_us();

	for (;;)
	{
		SupervisorState s = supervisor_state();

		*reason = connection.why_not;
		if (s.without)
			return false;
		if (!s.running)
		{
			if (!start)
			{
				*reason = "it is not running";
				return false;
			}
			if (!GpuvecStartSupervisor(reason))
				return false;
		}
		else if (s.listening)
		{
			LinkStreamStatus result = LinkStreamOpen();

			if (result != STREAM_NOBODY_LISTENS)
				return result == STREAM_CONNECTED;
		}
		if (gpuvec_clock_us() - begin >= SUPERVISOR_PATIENCE_MS * INT64CONST(1000))
		{
			*reason = "its supervisor did not start";
			return false;
		}
		LinkStreamSleep(5);
	}
}

/*
 * Send HELLO.  False: the connection was lost, and there is nothing to read.
 */
static bool
send_hello(void)
{
	struct
	{
		gpuvec_frame frame;
		gpuvec_hello hello;
	}			message;
	struct iovec piece = {&message, sizeof(message)};
	bool		spoke = false;

	memset(&message, 0, sizeof(message));
	message.frame.type = GPUVEC_MSG_HELLO;
	message.frame.length = sizeof(message.hello);
	message.hello.magic = GPUVEC_PROTOCOL_MAGIC;
	message.hello.version = GPUVEC_PROTOCOL_VERSION;
	memcpy(message.hello.incarnation, GpuvecSharedState()->incarnation, 16);
	message.hello.pid = MyProcPid;
	message.hello.database = MyDatabaseId;
	/* an engine that refuses us may answer before it reads HELLO */
	return LinkStreamWrite(&piece, 1, false, &spoke) || spoke;
}

/*
 * Send HELLO and read the answer.  False: the connection was lost, or the
 * engine refuses, for now or for good (*refused).
 */
static bool
shake_hands(EngineError *error, bool *refused)
{
	GpuvecReply reply;
	uint64		request;

	*refused = false;
	connection.in_request = true;
	if (!send_hello() || !FrameRead(&reply, &request))
		return false;
	if (reply.type == GPUVEC_MSG_WELCOME && reply.length == sizeof(gpuvec_welcome))
	{
		memcpy(&connection.engine, reply.data, sizeof(connection.engine));
		connection.engine.backend[sizeof(connection.engine.backend) - 1] = '\0';
		connection.in_request = false;
		return true;
	}
	if (reply.type != GPUVEC_MSG_ERROR)
		return false;
	FrameParseError(&reply, error);
	*refused = !error->head.retry;
	return false;
}

/*
 * True if this statement has given up the engine.  Then it does not try again
 * at once.
 */
static bool
has_given_up(void)
{
	bool		now = connection.given_up != 0 &&
		connection.given_up == GetCurrentStatementStartTimestamp();

	connection.given_up = 0;
	return now;
}

bool
ConnectPossible(bool start, const char **reason)
{
	if (start ? GpuvecSharedMake(reason) != NULL : GpuvecSharedState() != NULL)
		return true;
	if (!start)
		*reason = GpuvecSharedLastError() ? GpuvecSharedLastError() : "it is not running";
	return false;
}

bool
ConnectReach(bool start, const char **reason)
{
	*reason = connection.why_not;
	return !has_given_up() && reach_supervisor(start, reason);
}

bool
ConnectGreet(bool *refused)
{
	EngineError error;

	if (shake_hands(&error, refused))
		return true;
	if (*refused)
		strlcpy(connection.why_not, error.message, sizeof(connection.why_not));
	return false;
}
