/*-------------------------------------------------------------------------
 *
 * shared.c
 *	  The shared memory of the extension.
 *
 * Nothing has to be preloaded, so memory may be lacking: an ordinary user can
 * fill the server's slack with advisory locks, for good, since the server's
 * own shared memory is never freed.  And the library may have been replaced
 * by another version while the server ran.  Neither may stop who changes a
 * table or vacuums it, so the memory has two parts:
 *
 * The head, 64 bytes in the slack, is made by whoever needs it first.  Its
 * name, size and layout are the same in all versions of the library.  It
 * tells where the rest is, if there is a rest yet, and of which version that
 * is.  The rest, GpuvecShared and what modules have asked for (shared.h), is
 * made by the first search: in dynamic shared memory, or, if gpuvec is
 * preloaded, with the server in its own memory.
 *
 * Marks (feed.c) are in the rest.  Who changes a table looks where to mark:
 *
 *	- The rest is there: it marks.
 *	- The head is there, the rest is not: nobody has taken a slot to be fed
 *	by,
 *	  so nothing has to be marked.  A slot that is taken later counts only for
 *	  pages that are read after that.  We have changed our page before we
 *	  looked, so whoever takes a slot after that, and then locks the page,
 *	  reads our row.  This needs no barrier but that lock.
 *	- The rest is there but cannot be attached, or is of another version: we
 *	  count the change in the head, as one that was not marked.  Nobody
 *	  believes a slot that was taken before the last one that was counted:
 *	  slots of other versions included, since all versions know the head.
 *	- The head can neither be found nor made: there was no rest when we
 *	looked,
 *	  which is the second case.  We remember nothing, and look again at the
 *	  next change: memory may be there by then.  That is slow, but there are
 *	  64
 *	  bytes in nearly every server, even one whose slack was filled on
 *	  purpose.
 *
 * Nothing here raises an error for want of memory.  Searches that find no
 * rest and cannot make it scan in their session, the planner knows no facts,
 * and views have no rows.
 *
 *-------------------------------------------------------------------------
 */
#include "gpuvec.h"

#include "link/shared.h"
#include "miscadmin.h"
#include "port/atomics.h"
#include "storage/dsm.h"
#include "storage/ipc.h"
#include "storage/lwlock.h"
#include "storage/shmem.h"
#include "utils/resowner.h"
#include "utils/timestamp.h"

/* After a failure to make or attach the rest, do not try again for so long */
#define PATIENCE_MS				1000

/* What the head is called, and how it begins, in all versions */
#define HEAD_NAME				"gpuvec head"
#define HEAD_MAGIC				0x47505653
#define REST_NAME				"gpuvec state"

/* Never to be changed: others know this part, too */
typedef struct SharedHead
{
	uint32		magic;
	uint32		version;		/* of the rest, ... */
	uint64		size;			/* ... and its bytes */
	pg_atomic_uint64 unmarked;	/* changes that could not be marked */
	GpuvecShared *resident;		/* the rest, in the server's own memory; or
								 * NULL */
	pg_atomic_uint32 segment;	/* or the dynamic shared memory that it is in;
								 * 0: none */
	uint32		reserved[7];
} SharedHead;

StaticAssertDecl(sizeof(SharedHead) == 64, "the head's layout must not change");

static SharedHead *head = NULL;
static GpuvecShared *shared = NULL;
static slist_head parts = SLIST_STATIC_INIT(parts);
static Size rest_size = MAXALIGN(sizeof(GpuvecShared)); /* with all parts */
static TimestampTz next_try = 0;	/* to make or attach the rest */
static char trouble[256];		/* why that could not be done */

static shmem_request_hook_type prev_shmem_request_hook = NULL;
static shmem_startup_hook_type prev_shmem_startup_hook = NULL;

/* What tests may break, in the session that sets gpuvec.shared_memory: */

/* The library's version of the rest */
static uint32
shared_version(void)
{
	return GPUVEC_SHARED_VERSION + (gpuvec_shared_memory_choice == GPUVEC_SHARED_MEMORY_OLD);
}

/*
 * Take all that is left of the server's own memory, down to the last cache
 * line
 */
static void
eat_shared_memory(void)
{
	while (gpuvec_shared_memory_choice == GPUVEC_SHARED_MEMORY_FULL && ShmemAllocNoError(1) != NULL)
		 /* more */ ;
}

/* Dynamic shared memory is not to be had */
static void
fail_to_attach(void)
{
	if (gpuvec_shared_memory_choice == GPUVEC_SHARED_MEMORY_UNATTACHED)
		ereport(ERROR,
				(errcode(ERRCODE_OUT_OF_MEMORY), errmsg("dynamic shared memory is not to be had")));
}

/* Take what the last error was, if it is one that may be dropped */
static void
drop_error(void)
{
	ErrorData  *error;

	if (geterrcode() == ERRCODE_QUERY_CANCELED)
		PG_RE_THROW();
	error = CopyErrorData();
	FlushErrorState();
	strlcpy(trouble, error->message, sizeof(trouble));
	FreeErrorData(error);
}

/*
 * Do some work that may fail for want of memory.  False: it has, and
 * `trouble` says why.  There is no subtransaction to undo it, and it needs
 * none: what the server's functions lock they unlock before they complain,
 * and what they attach is no statement's.  But an error lets go of held-off
 * interrupts.
 */
static bool
attempt(void (*work) (void))
{
	MemoryContext context = CurrentMemoryContext;
	ResourceOwner owner = CurrentResourceOwner;
	uint32		held_off = InterruptHoldoffCount;
	uint32		cancel_held_off = QueryCancelHoldoffCount;
	volatile bool ok = true;

	CurrentResourceOwner = NULL;
	PG_TRY();
	{
		/* what the statement was at does not matter */
		error_context_stack = NULL;
		work();
	}
	PG_CATCH();
	{
		MemoryContextSwitchTo(context);
		CurrentResourceOwner = owner;
		InterruptHoldoffCount = held_off;
		QueryCancelHoldoffCount = cancel_held_off;
		drop_error();
		ok = false;
	}
	PG_END_TRY();
	CurrentResourceOwner = owner;
	return ok;
}

/* Find or make the head */
static void
init_head(void)
{
	SharedHead *found_head;
	bool		found;

	found_head = ShmemInitStruct(HEAD_NAME, sizeof(SharedHead), &found);
	if (!found)
	{
		memset(found_head, 0, sizeof(SharedHead));
		found_head->magic = HEAD_MAGIC;
		found_head->version = shared_version();
		found_head->size = rest_size;
		pg_atomic_init_u64(&found_head->unmarked, 0);
		pg_atomic_init_u32(&found_head->segment, 0);
	}
	head = found_head;
}

/* The head, or NULL if it cannot be had */
static SharedHead *
get_head(void)
{
	if (head != NULL)
		return head;
	eat_shared_memory();
	LWLockAcquire(AddinShmemInitLock, LW_EXCLUSIVE);
	(void) attempt(init_head);
	LWLockRelease(AddinShmemInitLock);
	return head;
}

/* Is there a rest, of whatever version? */
static bool
has_rest(void)
{
	return head->resident != NULL || pg_atomic_read_u32(&head->segment) != 0;
}

/* Is the rest, if there is one, what this library takes it for? */
static bool
rest_is_ours(void)
{
	if (head->magic == HEAD_MAGIC && head->version == shared_version() &&
		head->size == rest_size)
		return true;
	snprintf(trouble, sizeof(trouble),
			 "the server's shared memory is that of another version of gpuvec; restart the server");
	return false;
}

void
GpuvecSharedAsk(GpuvecSharedPart *part)
{
	part->offset = rest_size;
	rest_size = add_size(rest_size, MAXALIGN(part->size));
	slist_push_head(&parts, &part->node);
}

void *
GpuvecSharedFind(GpuvecShared *state, const GpuvecSharedPart *part)
{
	return state == NULL ? NULL : (char *) state + part->offset;
}

/* Fill the rest */
static void
init_rest(GpuvecShared *state)
{
	slist_iter	iter;

	memset(state, 0, rest_size);
	SpinLockInit(&state->mutex);
	slist_foreach(iter, &parts)
	{
		GpuvecSharedPart *part = slist_container(GpuvecSharedPart, node, iter.cur);

		part->init(GpuvecSharedFind(state, part));
	}
	if (!pg_strong_random(state->incarnation, sizeof(state->incarnation)))
		ereport(ERROR,
				(errcode(ERRCODE_INTERNAL_ERROR),
				 errmsg("could not generate random values")));
}

/* Attach the rest, which is there */
static void
attach_rest(void)
{
	dsm_segment *segment;

	fail_to_attach();
	segment = dsm_attach(pg_atomic_read_u32(&head->segment));
	if (segment == NULL)
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("dynamic shared memory is gone")));
	dsm_pin_mapping(segment);
	shared = dsm_segment_address(segment);
}

/* Make the rest.  If another session is faster, ours goes again. */
static void
make_rest(void)
{
	dsm_segment *segment;
	uint32		none = 0;

	fail_to_attach();
	segment = dsm_create(rest_size, DSM_CREATE_NULL_IF_MAXSEGMENTS);
	if (segment == NULL)
		ereport(ERROR,
				(errcode(ERRCODE_INSUFFICIENT_RESOURCES),
				 errmsg("too many dynamic shared memory segments")));
	dsm_pin_mapping(segment);
	init_rest(dsm_segment_address(segment));
	dsm_pin_segment(segment);
	if (pg_atomic_compare_exchange_u32(&head->segment, &none, dsm_segment_handle(segment)))
	{
		shared = dsm_segment_address(segment);
		return;
	}
	dsm_unpin_segment(dsm_segment_handle(segment));
	dsm_detach(segment);
}

/* After an attempt to attach that failed half-way: leave nothing */
static void
forget_segment(void)
{
	dsm_segment *segment = dsm_find_mapping(pg_atomic_read_u32(&head->segment));

	if (segment != NULL)
		dsm_detach(segment);
}

/*
 * Attach the rest, if it is there, or make it if that is asked for.  False:
 * it could not be had, and `trouble` says why.
 */
static bool
get_rest(bool make)
{
	TimestampTz now;

	if (!rest_is_ours())
		return false;
	if (head->resident != NULL)
	{
		shared = head->resident;
		return true;
	}
	now = GetCurrentTimestamp();
	if (now < next_try)
		return false;
	if (make && pg_atomic_read_u32(&head->segment) == 0)
		(void) attempt(make_rest);
	if (shared == NULL && pg_atomic_read_u32(&head->segment) != 0 && !attempt(attach_rest))
		forget_segment();
	if (shared == NULL)
		next_try = TimestampTzPlusMilliseconds(now, PATIENCE_MS);
	return shared != NULL;
}

/* The shared state; NULL if there is none, or none that we can use */
GpuvecShared *
GpuvecSharedState(void)
{
	if (shared == NULL && get_head() != NULL && has_rest())
		(void) get_rest(false);
	return shared;
}

/* The same, made if need be.  NULL: *reason says why there is none. */
GpuvecShared *
GpuvecSharedMake(const char **reason)
{
	static char text[sizeof(trouble) + 40];

	if (shared == NULL && get_head() != NULL)
		(void) get_rest(true);
	if (shared != NULL)
		return shared;
	if (head != NULL && !rest_is_ours())
		*reason = trouble;
	else
	{
		snprintf(text, sizeof(text), "there is no shared memory for it (%s)", trouble);
		*reason = text;
	}
	return NULL;
}

/*
 * For whoever has changed a table: where to mark that.  NULL: nothing is to
 * be marked, or it was counted as not marked.
 */
GpuvecShared *
GpuvecSharedToMark(void)
{
	if (shared != NULL)
		return shared;
	if (get_head() == NULL || !has_rest())
		return NULL;
	if (!get_rest(false))
		(void) pg_atomic_fetch_add_u64(&head->unmarked, 1);
	return shared;
}

/* Changes that could not be marked; for whoever has the rest */
uint64
GpuvecSharedUnmarked(void)
{
	return pg_atomic_read_u64(&head->unmarked);
}

/*
 * Why the shared state, if there is any, cannot be used by this session; or
 * NULL
 */
const char *
GpuvecSharedTrouble(void)
{
	return GpuvecSharedState() == NULL && head != NULL && has_rest() ? trouble : NULL;
}

/* Ask for our shared memory when preloaded */
static void
request_shared_memory(void)
{
	if (prev_shmem_request_hook)
		prev_shmem_request_hook();
	RequestAddinShmemSpace(add_size(CACHELINEALIGN(sizeof(SharedHead)),
									CACHELINEALIGN(rest_size)));
}

/* Make the rest in the server's own memory */
static void
make_resident(void)
{
	bool		found;
	GpuvecShared *state = ShmemInitStruct(REST_NAME, rest_size, &found);

	if (!found)
		init_rest(state);
	head->resident = shared = state;
}

/*
 * The server starts, or starts over after a crash, with the library preloaded
 */
static void
start_shared_memory(void)
{
	if (prev_shmem_startup_hook)
		prev_shmem_startup_hook();
	head = NULL;
	shared = NULL;
	if (get_head() != NULL)
		(void) attempt(make_resident);
}

void
GpuvecSharedPreload(void)
{
	GpuvecHookShmemRequest(prev_shmem_request_hook, request_shared_memory);
	prev_shmem_startup_hook = shmem_startup_hook;
	shmem_startup_hook = start_shared_memory;
}
