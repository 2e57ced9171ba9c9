/*-------------------------------------------------------------------------
 *
 * als_job.c
 *	  A training in the engine, or a search for neighbors of items, as the
 *	  session sees it.
 *
 * The engine keeps the training for as long as the connection lasts.  Between
 * two requests the session may use the connection for searches: a view of
 * interactions or a trigger on a table of factors may call functions of the
 * extension.  Another training at the same time is an error.
 *
 * The answer to a chunk of the interactions is left unread while the session
 * reads more rows, and the engine gives it before it is done with the chunk.
 * An error comes with the answers to all later requests.
 *
 * If the connection is lost, so is the training, and the statement fails.
 *
 *-------------------------------------------------------------------------
 */
#include "gpuvec.h"

#include "link/engine_link.h"
#include "miscadmin.h"
#include "recommend/recommend.h"

/* Connections that the first request of a training is tried on */
#define BEGIN_ATTEMPTS		2

static AlsJob *current = NULL;

AlsJob *
AlsJobCurrent(void)
{
	return current;
}

/* The request could not be made: raise the engine's refusal, or the loss */
static void
fail(const AlsJob *job, uint64 number)
{
	const GpuvecRefusal *refusal = GpuvecLinkRefusal();

	if (refusal != NULL && (number == 0 || refusal->request == number))
		GpuvecLinkRaiseRefusal();
	if (job->neighbors)
		ereport(ERROR,
				(errcode(ERRCODE_SYSTEM_ERROR),
				 errmsg("lost the connection to the gpuvec engine while it looked for neighbors")));
	ereport(ERROR,
			(errcode(ERRCODE_SYSTEM_ERROR),
			 errmsg("lost the connection to the gpuvec engine during a training"),
			 errdetail("The tables of factors are as they were before.")));
}

/* Send a request; returns its number */
static uint64
begin_request(AlsJob *job, gpuvec_message type, const GpuvecPiece *pieces, int npieces)
{
	uint64		number = 0;

	if (GpuvecLinkGeneration() == job->generation)
		number = GpuvecLinkBegin(type, pieces, npieces);
	if (number == 0)
		fail(job, 0);
	return number;
}

/* Send a request and take the state that it is answered with */
static void
ask(AlsJob *job, gpuvec_message type, const GpuvecPiece *pieces, int npieces)
{
	uint64		number = begin_request(job, type, pieces, npieces);
	GpuvecReply reply;

	if (!GpuvecLinkAnswer(number, GPUVEC_MSG_ALS_STATE, sizeof(job->state), &reply))
		fail(job, number);
	memcpy(&job->state, reply.data, sizeof(job->state));
	pfree(reply.data);
}

/* Send the first request of a job; false if that found the connection lost */
static bool
ask_first(AlsJob *job, gpuvec_message type, const GpuvecPiece *piece)
{
	uint64		number = GpuvecLinkBegin(type, piece, 1);
	GpuvecReply reply;

	if (number == 0 || !GpuvecLinkAnswer(number, GPUVEC_MSG_ALS_STATE, sizeof(job->state), &reply))
	{
		if (GpuvecLinkRefusal() != NULL)
			fail(job, number);
		return false;
	}
	memcpy(&job->state, reply.data, sizeof(job->state));
	pfree(reply.data);
	return true;
}

/*
 * Connect, and send the first request of a job.  An engine may have closed the
 * connection, or be gone, since the last request.  Nothing is lost then, so
 * another connection is tried.
 */
static void
begin_job(AlsJob *job, gpuvec_message type, const void *begin, Size size)
{
	GpuvecPiece piece = {begin, size};
	static uint64 last_number = 0;

	if (current != NULL)
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_IN_USE),
				 errmsg("another training is under way in this session"),
				 errdetail("A view of interactions or a trigger on a table of factors must not train.")));
	job->number = ++last_number;
	job->sent = job->taken = 0;
	current = job;
	for (int attempt = 0; attempt < BEGIN_ATTEMPTS; attempt++)
	{
		const char *reason;

		if (GpuvecLinkOpen(true, &reason) != GPUVEC_LINK_READY)
			ereport(ERROR,
					(errcode(ERRCODE_SYSTEM_ERROR),
					 errmsg("the gpuvec engine is not available"),
					 errdetail("The engine cannot be used: %s.", reason)));
		job->generation = GpuvecLinkGeneration();
		if (ask_first(job, type, &piece))
			return;
	}
	fail(job, 0);
}

void
AlsJobBegin(AlsJob *job)
{
	begin_job(job, GPUVEC_MSG_ALS_BEGIN, &job->begin, sizeof(job->begin));
}

void
AlsJobBeginNeighbors(AlsJob *job, const gpuvec_neighbors_begin *begin)
{
	job->begin.alpha = 1;
	job->neighbors = true;
	begin_job(job, GPUVEC_MSG_NEIGHBORS_BEGIN, begin, sizeof(*begin));
}

/* GpuvecTakeAnswer: the engine has taken a part */
static bool
take_answer(char *data, uint32 length)
{
	if (current != NULL)
	{
		current->taken++;
		memcpy(&current->state, data, sizeof(current->state));
	}
	return false;
}

void
AlsJobAdd(AlsJob *job, uint64 n, const int64 *users, const int64 *items, const float *weights)
{
	gpuvec_als_chunk chunk = {.n = n};
	const char	padding[8] = {0};
	GpuvecPiece pieces[] = {
		{&chunk, sizeof(chunk)}, {users, n * sizeof(int64)}, {items, n * sizeof(int64)},
		{weights, n * sizeof(float)}, {padding, n % 2 * sizeof(float)}
	};
	uint64		number = begin_request(job, GPUVEC_MSG_ALS_ADD, pieces, lengthof(pieces));

	/* the answer to the chunk before has been read now */
	if (job->taken != job->sent)
	{
		GpuvecReply reply;

		/* and was an error, which comes once more */
		(void) GpuvecLinkAnswer(number, GPUVEC_MSG_ALS_STATE, sizeof(job->state), &reply);
		fail(job, number);
	}
	job->sent++;
	GpuvecLinkLeave(number, GPUVEC_MSG_ALS_STATE, sizeof(job->state), take_answer);
}

void
AlsJobPrepare(AlsJob *job)
{
	ask(job, GPUVEC_MSG_ALS_PREPARE, NULL, 0);
}

void
AlsJobSet(AlsJob *job, gpuvec_als_side side, uint64 n, const int64 *keys, const float *elements)
{
	gpuvec_als_chunk chunk = {.side = side, .n = n};
	uint64		count = n * job->begin.factors;
	const char	padding[8] = {0};
	GpuvecPiece pieces[] = {
		{&chunk, sizeof(chunk)}, {keys, n * sizeof(int64)}, {elements, count * sizeof(float)},
		{padding, count % 2 * sizeof(float)}
	};

	ask(job, GPUVEC_MSG_ALS_SET, pieces, lengthof(pieces));
}

void
AlsJobRun(AlsJob *job)
{
	ask(job, GPUVEC_MSG_ALS_RUN, NULL, 0);
}

/*
 * Keys and factors of n rows of a side, palloc'd in the current memory
 * context
 */
void
AlsJobGet(AlsJob *job, gpuvec_als_side side, uint32 first, uint32 n, const int64 **keys,
		  const float **elements)
{
	gpuvec_als_chunk chunk = {.side = side, .first = first, .n = n};
	GpuvecPiece piece = {&chunk, sizeof(chunk)};
	uint64		number = begin_request(job, GPUVEC_MSG_ALS_GET, &piece, 1);
	Size		size = n * (sizeof(int64) + job->begin.factors * sizeof(float));
	GpuvecReply reply;

	if (!GpuvecLinkAnswer(number, GPUVEC_MSG_ALS_FACTORS, size, &reply))
		fail(job, number);
	*keys = (const int64 *) reply.data;
	*elements = (const float *) (*keys + n);
}

/*
 * The neighbors of the next items, palloc'd in the current memory context;
 * returns their number
 */
uint64
AlsJobNeighbors(AlsJob *job, const gpuvec_neighbor **rows)
{
	uint64		number = begin_request(job, GPUVEC_MSG_NEIGHBORS, NULL, 0);
	GpuvecReply reply;

	if (!GpuvecLinkAnswer(number, GPUVEC_MSG_NEIGHBORS_FOUND, sizeof(job->state), &reply))
		fail(job, number);
	memcpy(&job->state, reply.data, sizeof(job->state));
	*rows = (const gpuvec_neighbor *) (reply.data + sizeof(job->state));
	return (reply.length - sizeof(job->state)) / sizeof(gpuvec_neighbor);
}

void
AlsJobEnd(AlsJob *job)
{
	ask(job, GPUVEC_MSG_ALS_END, NULL, 0);
	current = NULL;
}

/*
 * An error ends the training.  Closing the connection ends it in the engine,
 * and a request that it is busy with.
 */
void
AlsJobAbandon(const AlsJob *job)
{
	/* another training's failure to begin does not end this one */
	if (current != job)
		return;
	current = NULL;
	if (GpuvecLinkGeneration() == job->generation)
		GpuvecLinkClose();
}

void
AlsLogStep(instr_time *begun, const char *function, const char *what, uint64 rows)
{
	instr_time	now;
	instr_time	took;

	INSTR_TIME_SET_CURRENT(now);
	took = now;
	INSTR_TIME_SUBTRACT(took, *begun);
	ereport(DEBUG1,
			(errmsg_internal("%s: %s: " UINT64_FORMAT " rows, %.3f s", function, what, rows,
							 INSTR_TIME_GET_DOUBLE(took))));
	*begun = now;
}
