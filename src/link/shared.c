/*-------------------------------------------------------------------------
 *
 * shared.c
 *	  The shared memory of the extension.
 *
 * gpuvec need not be preloaded, so shared memory may be lacking.  An ordinary
 * user can fill the server's spare shared memory with advisory locks, and the
 * server never frees it.  Also, another version of the library may have been
 * installed while the server ran.  Neither may stop a session that changes or
 * vacuums a table.  So the shared memory has two areas.
 *
 * The head is 64 bytes of the server's spare memory, made by the first
 * session that needs it.  Its name, size and layout are the same in all
 * versions of the library.  It tells where the rest is, if it exists, and
 * which version made it.
 *
 * The rest is GpuvecShared and the areas that modules have asked for
 * (shared.h).  The first search makes it, in dynamic shared memory.  If
 * gpuvec is preloaded, it is made at the server's start, in the server's own
 * memory.
 *
 * The rows that indexes hand over (feed.c) are in the rest.  A search takes a
 * slot there for an index.  Whoever inserts into the index hands the row over
 * in the slot, which is here called to mark the change.  A session that
 * changes a table looks where to mark the change:
 *
 *	- The rest exists: it marks the change.
 *	- The head exists, the rest does not: no slot has been taken, so there is
 *	  nothing to mark.  A slot that is taken later counts only for pages that
 *	  are read after that.  We changed our page before we looked here.  So
 *	  whoever takes a slot later, and then locks the page, reads our row.
 *	  This needs no barrier but that lock.
 *	- The rest exists but cannot be attached, or another version made it: we
 *	  count an unmarked change in the head.  Nobody trusts a slot that was
 *	  taken before the last unmarked change.  This holds for slots of other
 *	  versions, too, since all versions know the head.
 *	- The head can neither be found nor made: there was no rest when we
 *	  looked, so this is the second case.  Nothing is remembered, and we look
 *	  again at the next change, as there may be memory by then.  That is slow.
 *	  But nearly every server has 64 bytes left, even if somebody filled its
 *	  spare memory on purpose.
 *
 * Nothing here raises an error for want of memory.  Without the rest,
 * searches scan the table in their session, the planner knows no costs of
 * mirrors, and views have no rows.
 *
 *-------------------------------------------------------------------------
 */
#include "gpuvec.h"

#include "core/clock.h"
#include "link/attempt.h"
#include "link/shared.h"
#include "miscadmin.h"
#include "port/atomics.h"
#include "storage/dsm.h"
#include "storage/ipc.h"
#include "storage/lwlock.h"
#include "storage/shmem.h"
#include "utils/resowner.h"

/*
 * After a failure to make or attach the rest, do not try again for this long
 */
#define PATIENCE_MS				1000

/* Name and first bytes of the head, the same in all versions */
#define HEAD_NAME				"gpuvec head"
#define HEAD_MAGIC				0x47505653
#define REST_NAME				"gpuvec state"

/* Never change this layout: all versions of the library know it */
typedef struct SharedHead
{
	uint32		magic;
	uint32		version;		/* version of the rest ... */
	uint64		size;			/* ... and its size in bytes */
	pg_atomic_uint64 unmarked;	/* number of changes that could not be marked */
	GpuvecShared *resident;		/* the rest, if it is in the server's own
								 * memory */
	pg_atomic_uint32 segment;	/* handle of the rest, if it is in dynamic
								 * shared memory; or 0 */
	uint32		reserved[7];
} SharedHead;

StaticAssertDecl(sizeof(SharedHead) == 64, "the head's layout must not change");

static SharedHead *head = NULL;
static GpuvecShared *shared = NULL;
static slist_head areas = SLIST_STATIC_INIT(areas);
static Size rest_size = MAXALIGN(sizeof(GpuvecShared)); /* bytes of the rest,
														 * with all areas */
static int64 next_try = 0;		/* do not make or attach the rest before */
static char last_error[256];	/* why the rest is not made or attached */

static shmem_request_hook_type prev_shmem_request_hook = NULL;
static shmem_startup_hook_type prev_shmem_startup_hook = NULL;

/* The next three functions are for tests, which set gpuvec.shared_memory. */

/* The version of the rest that this library makes */
static uint32
shared_version(void)
{
	return GPUVEC_SHARED_VERSION + (gpuvec_shared_memory_choice == GPUVEC_SHARED_MEMORY_OLD);
}

/*
 * Allocate the rest of the server's own shared memory, to the last cache line
 */
static void
eat_shared_memory(void)
{
	while (gpuvec_shared_memory_choice == GPUVEC_SHARED_MEMORY_FULL && ShmemAllocNoError(1) != NULL)
		 /* more */ ;
}

/* Fail as if there were no dynamic shared memory */
static void
fail_to_attach(void)
{
	if (gpuvec_shared_memory_choice == GPUVEC_SHARED_MEMORY_UNATTACHED)
		ereport(ERROR,
				(errcode(ERRCODE_OUT_OF_MEMORY), errmsg("dynamic shared memory is not to be had")));
}

/* Call work(), which may fail; then `last_error` says why */
static bool
attempt(void (*work) (void))
{
	return GpuvecAttempt(work, last_error, sizeof(last_error));
}

/* Find or make the head; an error if there is no memory */
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

/*
 * Release the lock under which the head was looked for, after an error.  From
 * 19 on ShmemInitStruct() leaves a lock that has no name here to the end of
 * the transaction, while all others would wait for it.  Nobody asks for the
 * head with other locks than these.
 */
static void
release_after_error(uint32 held_off)
{
#if PG_VERSION_NUM >= 190000
	LWLockReleaseAll();
	InterruptHoldoffCount = held_off;
#else
	LWLockRelease(AddinShmemInitLock);
	Assert(InterruptHoldoffCount == held_off);
	(void) held_off;
#endif
}

/* The head, or NULL if it cannot be had */
static SharedHead *
get_head(void)
{
	uint32		held_off = InterruptHoldoffCount;

	if (head != NULL)
		return head;
	eat_shared_memory();
	LWLockAcquire(AddinShmemInitLock, LW_EXCLUSIVE);
	if (attempt(init_head))
		LWLockRelease(AddinShmemInitLock);
	else
		release_after_error(held_off);
	return head;
}

/* True if the rest exists, of any version */
static bool
has_rest(void)
{
	return head->resident != NULL || pg_atomic_read_u32(&head->segment) != 0;
}

/* True if the rest has this library's version and size */
static bool
rest_is_ours(void)
{
	if (head->magic == HEAD_MAGIC && head->version == shared_version() &&
		head->size == rest_size)
		return true;
	snprintf(last_error, sizeof(last_error),
			 "the server's shared memory is that of another version of gpuvec; restart the server");
	return false;
}

void
GpuvecSharedAsk(GpuvecSharedArea *area)
{
	area->offset = rest_size;
	rest_size = add_size(rest_size, MAXALIGN(area->size));
	slist_push_head(&areas, &area->node);
}

void *
GpuvecSharedFind(GpuvecShared *state, const GpuvecSharedArea *area)
{
	return state == NULL ? NULL : (char *) state + area->offset;
}

/*
 * Initialize the rest.  Most of it is not touched, so that it takes no memory
 * until it is used.  But it is not always new: the server may have reserved
 * dynamic shared memory (min_dynamic_shared_memory), which it does not zero.
 */
static void
init_rest(GpuvecShared *state)
{
	slist_iter	iter;

	memset(state, 0, sizeof(*state));
	SpinLockInit(&state->mutex);
	slist_foreach(iter, &areas)
	{
		GpuvecSharedArea *area = slist_container(GpuvecSharedArea, node, iter.cur);

		memset(GpuvecSharedFind(state, area), 0, area->size - area->rough);
		area->init(GpuvecSharedFind(state, area));
	}
	if (!pg_strong_random(state->incarnation, sizeof(state->incarnation)))
		ereport(ERROR,
				(errcode(ERRCODE_INTERNAL_ERROR),
				 errmsg("could not generate random values")));
}

/* Attach the rest, which exists */
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

/* Make the rest.  If another session was faster, ours is dropped. */
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

/* Undo a failed attempt to attach the rest */
static void
forget_segment(void)
{
	dsm_segment *segment = dsm_find_mapping(pg_atomic_read_u32(&head->segment));

	if (segment != NULL)
		dsm_detach(segment);
}

/*
 * Attach the rest; if it does not exist and `make`, make it.  False: there is
 * none, and `last_error` says why.
 */
static bool
get_rest(bool make)
{
	int64		now;

	if (!rest_is_ours())
		return false;
	if (head->resident != NULL)
	{
		shared = head->resident;
		return true;
	}
	now = gpuvec_clock_us();
	if (now < next_try)
		return false;
	if (make && pg_atomic_read_u32(&head->segment) == 0)
		(void) attempt(make_rest);
	if (shared == NULL && pg_atomic_read_u32(&head->segment) != 0 && !attempt(attach_rest))
		forget_segment();
	if (shared == NULL)
		next_try = now + PATIENCE_MS * INT64CONST(1000);
	return shared != NULL;
}

/* The shared state; NULL if it does not exist or cannot be used */
GpuvecShared *
GpuvecSharedState(void)
{
	if (shared == NULL && get_head() != NULL && has_rest())
		(void) get_rest(false);
	return shared;
}

/* The shared state, made if need be; NULL: *reason says why there is none */
GpuvecShared *
GpuvecSharedMake(const char **reason)
{
	static char text[sizeof(last_error) + 40];

	if (shared == NULL && get_head() != NULL)
		(void) get_rest(true);
	if (shared != NULL)
		return shared;
	if (head != NULL && !rest_is_ours())
		*reason = last_error;
	else
	{
		snprintf(text, sizeof(text), "there is no shared memory for it (%s)", last_error);
		*reason = text;
	}
	return NULL;
}

/*
 * Where to mark a change of a table.  NULL: nothing needs to be marked, or
 * the change was counted as unmarked.
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

/* Number of unmarked changes; the rest must be attached */
uint64
GpuvecSharedUnmarked(void)
{
	return pg_atomic_read_u64(&head->unmarked);
}

/*
 * Why this session cannot use the shared state; NULL: it can, or the state
 * does not exist
 */
const char *
GpuvecSharedLastError(void)
{
	return GpuvecSharedState() == NULL && head != NULL && has_rest() ? last_error : NULL;
}

/* shmem_request_hook: ask for the head and the rest */
static void
request_shared_memory(void)
{
	if (prev_shmem_request_hook)
		prev_shmem_request_hook();
	RequestAddinShmemSpace(add_size(CACHELINEALIGN(sizeof(SharedHead)),
									CACHELINEALIGN(rest_size)));
}

/* Make or find the rest in the server's own memory */
static void
make_resident(void)
{
	bool		found;
	GpuvecShared *state = ShmemInitStruct(REST_NAME, rest_size, &found);

	if (!found)
		init_rest(state);
	head->resident = shared = state;
}

/* shmem_startup_hook: the server starts, or restarts after a crash */
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
