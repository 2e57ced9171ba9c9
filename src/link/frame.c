/*-------------------------------------------------------------------------
 *
 * frame.c
 *	  Reads frames of the protocol.
 *
 *-------------------------------------------------------------------------
 */
#include "gpuvec.h"

#include <sys/mman.h>

#include "link/connection.h"
#include "link/faults.h"
#include "utils/memutils.h"

/* Bytes of a huge page */
#define HUGE_PAGE				((uintptr_t) 2 * 1024 * 1024)

/*
 * Memory for a reply.  To get and clear much memory in small pages takes the
 * kernel longer than to copy the reply.  So the whole huge pages in this
 * memory are asked for, if the system has them.
 */
static char *
allocate_reply(Size size)
{
	char	   *memory = GPUVEC_ALLOCATING(MemoryContextAllocExtended(CurrentMemoryContext, size,
																	  MCXT_ALLOC_HUGE));
	uintptr_t	start = TYPEALIGN(HUGE_PAGE, (uintptr_t) memory);
	uintptr_t	end = TYPEALIGN_DOWN(HUGE_PAGE, (uintptr_t) memory + size);

	/* a failure does not matter: ordinary pages will do */
	if (end > start)
		(void) GPUVEC_CALL(madvise((void *) start, end - start, MADV_HUGEPAGE));
	return memory;
}

bool
FrameRead(GpuvecReply *reply, uint64 *request)
{
	gpuvec_frame frame;

	connection.waited = false;
	if (!LinkStreamRead(&frame, sizeof(frame)))
		return false;
	if (frame.length > GPUVEC_MAX_FRAME)
		ereport(ERROR,
				(errcode(ERRCODE_PROTOCOL_VIOLATION),
				 errmsg("invalid message from the gpuvec engine")));
	reply->type = frame.type;
	reply->length = frame.length;
	reply->data = allocate_reply((Size) frame.length + 1);
	reply->data[frame.length] = '\0';
	*request = frame.request;
	return LinkStreamRead(reply->data, frame.length);
}

void
FrameParseError(const GpuvecReply *reply, EngineError *error)
{
	const char *p = reply->data + sizeof(gpuvec_error_head);
	const char *end = reply->data + reply->length;

	if (reply->length < sizeof(gpuvec_error_head))
		ereport(ERROR,
				(errcode(ERRCODE_PROTOCOL_VIOLATION),
				 errmsg("invalid message from the gpuvec engine")));
	memcpy(&error->head, reply->data, sizeof(gpuvec_error_head));
	error->head.sqlstate[5] = '\0';
	error->message = p;
	p = Min(p + strlen(p) + 1, end);
	error->detail = p;
	p = Min(p + strlen(p) + 1, end);
	error->hint = p;
}

int
FrameErrorCode(const EngineError *error)
{
	const char *s = error->head.sqlstate;

	/* a SQLSTATE has five of these characters */
	if (strlen(s) != 5 || strspn(s, "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ") != 5)
		return ERRCODE_INTERNAL_ERROR;
	return MAKE_SQLSTATE(s[0], s[1], s[2], s[3], s[4]);
}

void
FrameRaiseError(const EngineError *error)
{
	ereport(ERROR,
			(errcode(FrameErrorCode(error)),
			 errmsg("%s", error->message),
			 error->detail[0] ? errdetail("%s", error->detail) : 0,
			 error->hint[0] ? errhint("%s", error->hint) : 0));
}
