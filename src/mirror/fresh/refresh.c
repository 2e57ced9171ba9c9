/*-------------------------------------------------------------------------
 *
 * refresh.c
 *	  Keeps a mirror fresh: reads the changed pages again.
 *
 * A mirror is fresh for a snapshot if it holds every change that the snapshot
 * can see.  Each heap change reserves its WAL record before its transaction
 * commits.  So the WAL insert position, read after the snapshot was taken, is
 * beyond every such record.  The engine remembers the position up to which a
 * mirror was checked.  If that is not behind ours, nothing has to be done.
 * Otherwise the changed pages (stale_pages.c) are read again.
 *
 * The order of steps makes it exact:
 *
 *	 1. the snapshot is taken; WAL may be read ahead;
 *	 2. the position P is read, then the last number of the mirror's feed,
 *		then the WAL up to P or beyond;
 *	 3. the number of blocks is read, then pages and their LSNs, each under
 *		the page's share lock: a change under way holds the exclusive lock, so
 *		we wait for it;
 *	 4. the engine publishes all pages in one step, with checked = P.
 *
 * The number comes behind P because of records that the mirror gets later,
 * without their pages.  A page may be newer than such a record: the record's
 * line pointer was gone and has another row since.  Then the record would
 * bring the older row back.  If the newer row is from before P, the record
 * was handed over before the number was read, and is not applied.  So all
 * changes up to P stay.  The engine keeps no feed if a refresh names none.
 *
 * Sessions that find the mirror behind at the same time need one refresh.  So
 * one of them makes it, and the others wait (refreshing.c).  One session at a
 * time loads or refreshes a mirror, under a heavyweight lock, so that the
 * deadlock detector sees who waits for whom: whoever has waited for long
 * without it waits for the lock.  A session that had to wait uses the other's
 * work only if the mirror was checked to at least its own position, which it
 * read after its snapshot was taken.  The processes of a parallel query do
 * not wait for each other's locks.  So the engine, too, lets only one session
 * at a time load or refresh a mirror.  It tells the others, and they try
 * again.
 *
 * Nobody waits for another session for ever.  The session that holds the lock
 * may make no step: it was stopped, reads from a disk that does not answer, or
 * waits for another lock.  It counts its steps in shared memory (the engine
 * would not do: it hears nothing of WAL and pages that need not be sent).  If
 * the count stays as it is for GPUVEC_LOAD_PATIENCE_MS, whatever is done to
 * the wall clock, one of those who wait overtakes it: the mirror gets the lock
 * of the next term, and the engine closes the connection by which the stopped
 * session has sent pages, if any.  So there is still one updater, and what was
 * sent before counts no more than if the session had ended.  When it goes on,
 * it finds its connection closed, and starts over.  If whoever has overtaken
 * makes no step either, those who have waited for both do without the mirror.
 *
 * Nor does a client stop others that does not read its socket: nothing is
 * sent to clients under the lock, and an error releases it (quiet.c).
 *
 * There is one refresh of a mirror at a time, also if several would read
 * different pages.  Two refreshes could not be published in any order: the
 * position of each says that the mirror has all changes up to it, so the
 * later one must have read the pages of the earlier one, too, or wait for it.
 *
 * WAL records tell more than which pages to read (wal_lines.c): which line
 * pointers of them, and often what these have.  What was said above of pages
 * holds for line pointers.  One that is read is read after the WAL up to P
 * was, and all that changes it later is beyond P.  The row of one that is not
 * read is that of the last record up to P.
 *
 * If an index has handed over all rows that the mirror lacks, they are sent
 * instead, and no page is read (feed.c).
 *
 * A search has a request for the engine while pages are read.  The request
 * may be sent ahead of the refresh, or together with its end.  So a refresh
 * of a few pages is driven in steps by its caller (conversation.c), who asks
 * for the pages one by one, and sends the request where it suits.  This file
 * knows only that a request may be under way.
 *
 *-------------------------------------------------------------------------
 */
#include "gpuvec.h"

#include <signal.h>
#include <time.h>

#include "access/xact.h"
#include "common/hashfn.h"
#include "core/clock.h"
#include "link/engine_link.h"
#include "link/quiet.h"
#include "mirror/describe/facts.h"
#include "mirror/describe/placement.h"
#include "mirror/describe/refreshing.h"
#include "mirror/feed/feed.h"
#include "mirror/fresh/known.h"
#include "mirror/fresh/refresh.h"
#include "mirror/fresh/stale_pages.h"
#include "mirror/pages/page_stream.h"
#include "miscadmin.h"
#include "storage/bufmgr.h"
#include "storage/condition_variable.h"
#include "storage/lock.h"
#include "storage/proc.h"

/* The mirror of the refresh whose answer was left (MirrorRefreshLeave()) */
static gpuvec_mirror_key late_key;

bool		MirrorGivesWay = false;

/* Attempts while other sessions' unfinished work is in the way, for 10 s */
#define BUSY_ATTEMPTS		500
#define BUSY_NAP_MS			20

/*
 * If it is not known whether the holder of the lock makes steps, we wait so
 * many times for it
 */
#define UNKNOWN_WAITS		10

/*
 * How much longer a wait may take whose timeout does not come, as the clock
 * was set back
 */
#define CLOCK_SLACK_MS		500

/* The wait for a lock has been cancelled by our own timer */
static volatile sig_atomic_t out_of_patience;

/*
 * How often to look whether the feeder's rows have been applied, and how long
 * to wait for those that it is about to send
 */
#define ROWS_NAP_MS			2
#define COMING_PATIENCE_MS	20

/*
 * Attempts with a list of pages.  Rows that keep coming may change the mirror
 * each time before the list is made.  LSNs can be compared whatever its state
 * is.
 */
#define LISTED_ATTEMPTS		10

struct MirrorRefresh
{
	MirrorTarget *target;
	Snapshot	snapshot;
	const gpuvec_freshness *need;
	gpuvec_freshness ours;		/* how fresh we make it: at least as `need` */
	const gpuvec_state *known;	/* the mirror's state at first, or NULL */
	gpuvec_state later;			/* what others have told since, or ABSENT */
	gpuvec_state state;			/* the mirror's state, as far as we know */

	/* what is done under the lock */
	bool		(*work) (MirrorRefresh *refresh, void *arg);
	void	   *arg;

	bool		covered;		/* another session's refresh is enough */
	bool		locked;
	LOCKTAG		tag;
	int64		began;			/* when the lock was taken */
	int64		claim;			/* of FactsMayTry(), or 0 */
	int			attempts;
	uint64		moves;			/* while another session's work is in the way */

	bool		failed;			/* the connection was lost, or the engine
								 * refused */
	bool		refused;		/* a step failed; a refusal may concern other
								 * sessions */
	bool		yields;			/* a request was sent ahead */
	bool		done;			/* the mirror is as fresh as needed */

	/* the refresh under way */
	XLogRecPtr	position;
	StalePages	stale;
	BlockNumber block;			/* next block to look at; Invalid: none is
								 * left */
	PageReader *reader;			/* NULL before the first page and after the
								 * last */
	PageStream	stream;
	gpuvec_refresh_part part;
	uint64		number;			/* of the request that publishes the pages */
};

/* The lock of a term for loading or refreshing a mirror */
static void
mirror_lock_tag(const gpuvec_mirror_key *key, uint32 term, LOCKTAG *tag)
{
	memset(tag, 0, sizeof(*tag));
	tag->locktag_field1 = key->database;
	tag->locktag_field2 = key->relation;
	tag->locktag_field3 = hash_combine(hash_bytes((const unsigned char *) key, sizeof(*key)), term);
	tag->locktag_field4 = (uint16) key->attnum;
	tag->locktag_type = LOCKTAG_USERLOCK;
	tag->locktag_lockmethodid = USER_LOCKMETHOD;
}

/* True if another session waits for the mirror's lock, or our refresh */
static bool
somebody_waits(const MirrorRefresh *refresh)
{
	return RefreshingWanted() || LockHasWaiters(&refresh->tag, ExclusiveLock, false);
}

/* Note that a step has failed; returns false */
static bool
fail(MirrorRefresh *refresh)
{
	refresh->failed = refresh->refused = true;
	return false;
}

/*
 * An attempt to load or refresh the mirror, which began at `began`, has
 * failed.  If the engine refused the attempt, and not the `request` that was
 * sent meanwhile (0: none), no session has to try again soon.
 */
static void
note_failure(const MirrorTarget *target, int64 began, uint64 request)
{
	const GpuvecRefusal *refusal = GpuvecLinkRefusal();

	if (refusal != NULL && (request == 0 || refusal->request != request))
		MirrorNoteRefusal(target, began);
}

void
MirrorNap(long ms, GpuvecWait wait)
{
	(void) WaitLatch(MyLatch, WL_LATCH_SET | WL_TIMEOUT | WL_EXIT_ON_PM_DEATH, ms,
					 GpuvecWaitEvent(wait));
	ResetLatch(MyLatch);
	CHECK_FOR_INTERRUPTS();
}

/*
 * Wait for a moment while another session's work is in the way, though the
 * session holds no lock any more.  It may have gone before the engine
 * noticed, or while the engine was publishing its pages.  Gives up after
 * BUSY_ATTEMPTS, unless the work is that of a process of the same parallel
 * query, and goes on.  False: gave up.
 */
static bool
busy_nap(MirrorRefresh *refresh, int attempt)
{
	uint64		before = refresh->moves;
	uint32		term;

	if (attempt % BUSY_ATTEMPTS == 0)
		(void) RefreshingTermNow(&refresh->target->key, &term, &refresh->moves);
	if (attempt > 0 && attempt % BUSY_ATTEMPTS == 0 &&
		(MyProc->lockGroupLeader == NULL || refresh->moves == before))
	{
		MirrorRefuseBusy(refresh->target);
		return false;
	}
	MirrorNap(BUSY_NAP_MS, GPUVEC_WAIT_REFRESH);
	return true;
}

/*
 * Our patience has ended: cancel the wait as a user would, who goes first
 */
static void
lose_patience(int signal)
{
	int			save_errno = errno;

	(void) signal;
	if (!QueryCancelPending)
		out_of_patience = QueryCancelPending = InterruptPending = true;
	SetLatch(MyLatch);
	errno = save_errno;
}

/* Begin to have patience for so many milliseconds; false: there is no timer */
static bool
begin_patience(timer_t *timer, int ms)
{
	struct sigevent event = {.sigev_notify = SIGEV_SIGNAL, .sigev_signo = SIGRTMIN};
	struct sigaction action = {.sa_handler = lose_patience, .sa_flags = SA_RESTART};
	struct itimerspec end = {.it_value = {ms / 1000, ms % 1000 * 1000000L}};

	out_of_patience = false;
	return sigaction(SIGRTMIN, &action, NULL) == 0 &&
		timer_create(CLOCK_MONOTONIC, &event, timer) == 0 &&
		timer_settime(*timer, 0, &end, NULL) == 0;
}

/* What has come too late to cancel anything cancels nothing else */
static void
end_patience(timer_t *timer, bool begun)
{
	if (begun)
		timer_delete(*timer);
	if (out_of_patience)
		QueryCancelPending = false;
}

/* Is the error that of a wait that took too long? */
static bool
is_late(bool ours)
{
	return geterrcode() == ERRCODE_LOCK_NOT_AVAILABLE ? ours :
		geterrcode() == ERRCODE_QUERY_CANCELED && out_of_patience;
}

/*
 * Wait for the mirror's lock for at most so many milliseconds, beside those
 * that we have waited before.  False: it was not to be had.
 *
 * The lock manager has a timeout of its own, that of lock_timeout.  If the
 * user's ends first, its error goes on.  Ours is dropped: the lock manager
 * has left the queue before it raises it.  That timeout is of the wall clock:
 * if this is set back meanwhile, it ends as much later.  So a timer of the
 * monotonic clock ends the wait then; nobody else uses its signal.
 */
static bool
lock_in_time(MirrorRefresh *refresh, int ms, int64 waited)
{
	MemoryContext context = CurrentMemoryContext;
	uint32		held_off = InterruptHoldoffCount;
	uint32		cancel_held_off = QueryCancelHoldoffCount;
	int			users = LockTimeout;
	volatile bool ok = true;
	volatile bool ours = users == 0 || users > waited + ms;
	timer_t		timer;
	volatile bool begun;

	LockTimeout = ours ? ms : (int) Max(users - waited, 1);
	begun = begin_patience(&timer, Min(ms, INT_MAX - CLOCK_SLACK_MS) + CLOCK_SLACK_MS);
	PG_TRY();
	{
		(void) LockAcquire(&refresh->tag, ExclusiveLock, false, false);
	}
	PG_CATCH();
	{
		LockTimeout = users;
		end_patience(&timer, begun);
		if (!is_late(ours))
			PG_RE_THROW();
		MemoryContextSwitchTo(context);
		InterruptHoldoffCount = held_off;
		QueryCancelHoldoffCount = cancel_held_off;
		FlushErrorState();
		ok = false;
	}
	PG_END_TRY();
	LockTimeout = users;
	if (ok)
		end_patience(&timer, begun);
	return ok;
}

static void
unlock(MirrorRefresh *refresh)
{
	if (refresh->locked)
		LockRelease(&refresh->tag, ExclusiveLock, false);
	refresh->locked = false;
}

/*
 * The holder of the mirror's lock makes no step, so this session takes its
 * place, unless another one is faster: the mirror gets another lock, and the
 * engine closes the connection by which the holder has sent pages.  If the
 * engine does not answer, the next step will show it.
 */
static void
overtake(MirrorRefresh *refresh, uint32 term)
{
	const gpuvec_mirror_key *key = &refresh->target->key;
	GpuvecPiece piece = {key, sizeof(*key)};
	GpuvecReply reply;

	if (!RefreshingOvertake(key, term))
		return;
	ereport(LOG,
			(errmsg("gpuvec takes over the load or refresh of relation \"%s\", which has made no step for %d ms",
					RelationGetRelationName(refresh->target->rel), gpuvec_load_patience)));
	if (GpuvecLinkCall(GPUVEC_MSG_OUST, &piece, 1, GPUVEC_MSG_COUNT, sizeof(uint64), &reply))
		pfree(reply.data);
}

/* Do without the mirror, as nobody loads or refreshes it */
static void
give_up(MirrorRefresh *refresh)
{
	refresh->failed = true;
	if (MirrorGivesWay)
		MirrorRefuseStalled(refresh->target);
	else
		MirrorRefuseBusy(refresh->target);
}

/*
 * Wait for the mirror's lock, which the holder of this term has.  False: gave
 * up.
 */
static bool
wait_for_lock(MirrorRefresh *refresh, uint32 term, uint64 moves)
{
	const gpuvec_mirror_key *key = &refresh->target->key;
	bool		overtaken = false;
	int64		waited = 0;

	for (int waits = 1;; waits++)
	{
		uint32		term_then = term;
		uint64		moves_then = moves;
		bool		known;

		mirror_lock_tag(key, term, &refresh->tag);
		refresh->locked = lock_in_time(refresh, gpuvec_load_patience, waited);
		waited += gpuvec_load_patience;
		known = RefreshingTermNow(key, &term, &moves);
		if (refresh->locked && term == term_then)
			return true;
		unlock(refresh);
		if (term == term_then && (known ? moves != moves_then : waits < UNKNOWN_WAITS))
			continue;
		if (overtaken || MirrorGivesWay || !known)
			return false;
		if (term == term_then)
			overtake(refresh, term);
		overtaken = true;
		(void) RefreshingTermNow(key, &term, &moves);
	}
}

/*
 * Take the mirror's lock, or give up.  *waited: another session may have
 * refreshed the mirror.
 */
static void
take_lock(MirrorRefresh *refresh, bool *waited)
{
	const gpuvec_mirror_key *key = &refresh->target->key;
	uint32		term;
	uint32		term_now;
	uint64		moves;

	(void) RefreshingTermNow(key, &term, &moves);
	mirror_lock_tag(key, term, &refresh->tag);
	refresh->locked = LockAcquire(&refresh->tag, ExclusiveLock, false, true) != LOCKACQUIRE_NOT_AVAIL;
	(void) RefreshingTermNow(key, &term_now, &moves);
	if (!refresh->locked || term_now != term)
	{
		unlock(refresh);
		*waited = true;
		if (!wait_for_lock(refresh, term_now, moves))
			give_up(refresh);
	}
	refresh->began = gpuvec_clock_us();
}

/*
 * After waiting for the lock: take over a later state than the caller's, if
 * another session has told one
 */
static void
look_again(MirrorRefresh *refresh)
{
	const gpuvec_state *known = refresh->known;
	RefreshingFacts facts;

	if (known != NULL && known->state == GPUVEC_READY &&
		RefreshingLook(&refresh->target->key, &facts) &&
		facts.state.state == GPUVEC_READY && facts.state.refresh > known->refresh)
		refresh->later = facts.state;
}

/*
 * We hold the lock, so the next refresh is ours.  If we have waited, what the
 * caller knows of the mirror is out of date.
 */
static void
take_lead(MirrorRefresh *refresh, bool waited)
{
	RefreshingLead(&refresh->target->key);
	if (refresh->later.state == GPUVEC_READY)
		refresh->known = &refresh->later;
	else if (waited)
		refresh->known = NULL;
}

/*
 * Wait until it is our turn to refresh the mirror, or another session's
 * refresh is enough
 */
static void
take_turn(MirrorRefresh *refresh)
{
	const gpuvec_freshness *need = refresh->need;
	bool		waited;

	if (RefreshingJoin(&refresh->target->key, need, refresh->known, &refresh->later,
					   &waited) != REFRESHING_COVERED)
	{
		bool		joined = waited;

		waited = false;
		take_lock(refresh, &waited);
		if (waited)
			look_again(refresh);
		waited |= joined;
	}
	refresh->covered = refresh->done = gpuvec_fresh(&refresh->later, need);
	if (!refresh->covered && !refresh->failed)
		take_lead(refresh, waited);
}

/* Called by GpuvecQuietly() */
static bool
work_quietly(void *arg)
{
	MirrorRefresh *refresh = arg;

	/* do not wait for others if the attempt will be refused */
	if (MirrorMayTry(refresh->target, &refresh->claim))
		take_turn(refresh);
	else
		refresh->failed = true;
	return refresh->work(refresh, refresh->arg);
}

/*
 * An error has cut off the work.  The lock and the engine must not have to
 * wait until its transaction is aborted: the client gets the error first.
 */
static void
release(void *arg)
{
	MirrorRefresh *refresh = arg;

	/* as an abort does before it releases locks */
	LWLockReleaseAll();
	ConditionVariableCancelSleep();
	LockErrorCleanup();
	GpuvecLinkAbandon();
	unlock(refresh);
	RefreshingGiveUp();
}

bool
MirrorRefreshDo(MirrorTarget *target, Snapshot snapshot, const gpuvec_freshness *need,
				const gpuvec_state *known, bool (*work) (MirrorRefresh *refresh, void *arg),
				void *arg)
{
	MirrorRefresh *refresh = palloc0(sizeof(MirrorRefresh));
	bool		ok;

	refresh->target = target;
	refresh->snapshot = snapshot;
	refresh->need = need;
	refresh->ours = *need;
	refresh->known = known;
	refresh->work = work;
	refresh->arg = arg;
	ok = GpuvecQuietly(work_quietly, release, refresh);
	pfree(refresh);
	return ok;
}

/* Free what the refresh of a few pages has allocated */
static void
drop_pages(MirrorRefresh *refresh)
{
	if (refresh->reader)
		PageReaderEnd(refresh->reader);
	refresh->reader = NULL;
	if (refresh->stream.out.data)
		pfree(refresh->stream.out.data);
	refresh->stream.out.data = NULL;
	StalePagesFree(&refresh->stale);
}

void
MirrorRefreshEnd(MirrorRefresh *refresh, uint64 request)
{
	const MirrorTarget *target = refresh->target;

	if (refresh->refused)
		note_failure(target, refresh->began, request);
	drop_pages(refresh);
	if (refresh->done)
	{
		RefreshingNoteState(&target->key, &refresh->state);
		FeedNoteState(&refresh->state);
	}
	unlock(refresh);
	RefreshingEnd();
	if (refresh->done && refresh->claim != 0)
		FactsForgetRefusal(&target->key);
}

/* Sends the pages that were read before, once they fill a frame */
const char *
MirrorRefreshPage(MirrorRefresh *refresh)
{
	StringInfo	out = &refresh->stream.out;
	const ChangedLine *lines;
	uint32		nlines;
	int			start;

	if (refresh->failed || refresh->block == InvalidBlockNumber)
		return NULL;
	if (refresh->reader == NULL)
	{
		/* a part without pages wakes the engine up */
		if (refresh->stream.part && !refresh->yields && !PageStreamSend(&refresh->stream, true))
		{
			(void) fail(refresh);
			return NULL;
		}
		refresh->reader = PageReaderBegin(refresh->target, refresh->snapshot);
	}
	refresh->block = StalePagesNext(&refresh->stale, refresh->reader, refresh->block);
	if (refresh->block == InvalidBlockNumber)
	{
		PageReaderEnd(refresh->reader);
		refresh->reader = NULL;
		return NULL;
	}
	if (!PageStreamSend(&refresh->stream, false))
	{
		(void) fail(refresh);
		return NULL;
	}
	start = out->len;
	if (StalePagesLines(&refresh->stale, refresh->block, &lines, &nlines))
		PageReaderReadLines(refresh->reader, refresh->block, &refresh->stale.lines, lines, nlines,
							out);
	else
		PageReaderRead(refresh->reader, refresh->block, out);
	refresh->block++;
	return out->data + start;
}

bool
MirrorRefreshPages(MirrorRefresh *refresh)
{
	while (MirrorRefreshPage(refresh) != NULL)
		 /* it is in the stream */ ;
	return !refresh->failed;
}

/*
 * True if a request may go ahead, so that the engine works on it while we
 * read.  The refresh is then published after the caller has left.  That must
 * not hold up others, so it is not for the processes of a parallel query,
 * which do not wait for the lock, nor for a session whose lock another one is
 * waiting for.
 */
bool
MirrorRefreshYields(MirrorRefresh *refresh)
{
	if (IsInParallelMode() || RefreshingCrowded() || somebody_waits(refresh))
		return false;
	PageStreamLarge(&refresh->stream);
	refresh->yields = true;
	return true;
}

bool
MirrorRefreshPublish(MirrorRefresh *refresh)
{
	const gpuvec_freshness *ours = &refresh->ours;
	gpuvec_refresh_once head = {.key = refresh->part.key, .known = refresh->part.known};
	StringInfo	out = &refresh->stream.out;
	GpuvecPiece pieces[2] = {{&head, sizeof(head)}, {out->data, out->len}};

	if (refresh->failed)
		return false;
	head.commit.position = refresh->position;
	head.commit.feed = ours->feed;
	head.commit.applied = ours->applied;
	head.commit.nblocks = refresh->stale.nblocks;
	GPUVEC_INJECTION("refresh-before-commit");
	refresh->number = GpuvecLinkBegin(GPUVEC_MSG_REFRESH, pieces, 2);
	return refresh->number != 0 || fail(refresh);
}

bool
MirrorRefreshAnswer(MirrorRefresh *refresh)
{
	GpuvecReply reply;

	if (!GpuvecLinkAnswer(refresh->number, GPUVEC_MSG_STATE, sizeof(gpuvec_state), &reply))
		return fail(refresh);
	memcpy(&refresh->state, reply.data, sizeof(gpuvec_state));
	pfree(reply.data);
	refresh->done = true;
	return true;
}

/*
 * Take the answer to a refresh that was left.  If the engine let another
 * session's refresh come first, the answer does not tell the mirror's state.
 */
static bool
take_late_state(char *data, uint32 length)
{
	gpuvec_state state;

	memcpy(&state, data, sizeof(state));
	if (state.state == GPUVEC_READY)
		MirrorRemember(&late_key, &state);
	else
		MirrorForget(&late_key);
	return false;
}

/* Leaves the answer for later, unless others wait for the mirror's lock */
bool
MirrorRefreshLeave(MirrorRefresh *refresh)
{
	late_key = refresh->target->key;
	GpuvecLinkLeave(refresh->number, GPUVEC_MSG_STATE, sizeof(gpuvec_state), take_late_state);
	return !somebody_waits(refresh) || GpuvecLinkSettle() || fail(refresh);
}

BlockNumber
MirrorRefreshBlocks(const MirrorRefresh *refresh)
{
	return refresh->stale.nblocks;
}

/*
 * Begin a refresh of a mirror that is in *state.  `lsns`: the answer has the
 * remembered LSNs of all pages.  Sets *state to the mirror's current state.
 * *begun is false if another session's load or refresh is unfinished (state
 * LOADING), if the mirror is gone, or, without `lsns`, if another refresh has
 * changed it.
 */
static bool
begin_refresh(MirrorTarget *target, bool lsns, gpuvec_state *state, GpuvecReply *reply,
			  bool *begun)
{
	gpuvec_refresh request = {
		.key = target->key, .lsns = lsns, .placement = MirrorPlacement(target),
		.known = state->refresh
	};
	GpuvecPiece piece = {&request, sizeof(request)};

	if (!GpuvecLinkCall(GPUVEC_MSG_REFRESH_BEGIN, &piece, 1, GPUVEC_MSG_STATE,
						sizeof(*state), reply))
		return false;
	memcpy(state, reply->data, sizeof(*state));
	*begun = state->state == GPUVEC_READY && (lsns || state->refresh == request.known);
	if (*begun)
	{
		if (reply->length != sizeof(*state) + (lsns ? (Size) state->nblocks * sizeof(uint64) : 0))
			ereport(ERROR,
					(errcode(ERRCODE_PROTOCOL_VIOLATION),
					 errmsg("invalid message from the gpuvec engine")));
		GpuvecLinkExpectMore();
	}
	return true;
}

/* Read many stale pages again, and publish them */
static bool
refresh_many(MirrorRefresh *refresh)
{
	MirrorTarget *target = refresh->target;
	StalePages *stale = &refresh->stale;
	GpuvecReply reply;
	bool		begun;
	bool		ok;

	if (!begin_refresh(target, !stale->listed, &refresh->state, &reply, &begun))
		return false;
	if (!begun)
	{
		pfree(reply.data);
		return true;
	}
	stale->lsns = reply.data + sizeof(gpuvec_state);
	stale->nknown = refresh->state.nblocks;
	/* count again: the mirror may know pages that came later */
	stale->nblocks = RelationGetNumberOfBlocks(target->rel);
	PageStreamBegin(&refresh->stream, NULL);
	ok = MirrorRefreshPages(refresh) && PageStreamSend(&refresh->stream, true);
	pfree(reply.data);
	if (ok)
		GPUVEC_INJECTION("refresh-before-commit");
	return ok && PageStreamCommit(refresh->position, &refresh->ours, stale->nblocks,
								  &refresh->state);
}

bool
MirrorSendRows(const gpuvec_mirror_key *key, uint64 feed, const FeedRows *rows,
			   bool keep, gpuvec_state *state)
{
	gpuvec_rows head = {
		.key = *key, .feed = feed, .from = rows->from, .to = rows->to, .keep = keep
	};
	GpuvecPiece pieces[2] = {{&head, sizeof(head)}, {rows->data, rows->bytes}};
	GpuvecReply reply;

	if (!GpuvecLinkCall(GPUVEC_MSG_ROWS, pieces, 2, GPUVEC_MSG_STATE, sizeof(*state), &reply))
		return false;
	memcpy(state, reply.data, sizeof(*state));
	pfree(reply.data);
	return true;
}

/*
 * True if what a feed has handed over makes the mirror as fresh as needed: it
 * is the caller's feed, and still that of the index
 */
static bool
feed_suffices(const MirrorRefresh *refresh)
{
	return refresh->need->feed != 0 && refresh->need->feed == refresh->ours.feed;
}

/*
 * Send the rows of the feed that the mirror lacks.  *sent is false if they
 * are not all at hand, or if the engine does not take them: pages have to be
 * read.
 */
static bool
refresh_rows(MirrorRefresh *refresh, bool *sent)
{
	const gpuvec_freshness *need = &refresh->ours;
	gpuvec_state *state = &refresh->state;
	FeedRows	rows;
	bool		ok;

	*sent = feed_suffices(refresh) && need->feed == state->feed &&
		state->applied < need->applied &&
		FeedCopyRows(need->feed, state->applied, need->applied, MaxAllocSize, &rows);
	if (!*sent)
		return true;
	ok = MirrorSendRows(&refresh->target->key, need->feed, &rows, false, state);
	*sent = state->state != GPUVEC_READY || state->feed != need->feed ||
		state->applied != rows.from;
	pfree(rows.data);
	return ok;
}

/* How long it pays to wait for the feeder's rows, before reading pages */
static int
patience_ms(FeedPace pace)
{
	switch (pace)
	{
		case FEED_COMING:
			return COMING_PATIENCE_MS;
		case FEED_CATCHING_UP:
			return FEED_KEPT_PATIENCE_MS;
		case FEED_STUCK:
			break;
	}
	return 0;
}

/*
 * Bring the mirror up to date by rows of its feed: send them, or wait for
 * those that the feeder has sent.  Pages that are read while rows are applied
 * only hold them up: they take longer, and those who wait for them find the
 * mirror behind again.  *done is false if pages have to be read.
 */
static bool
bring_rows(MirrorRefresh *refresh, bool *done)
{
	const gpuvec_freshness *need = refresh->need;
	gpuvec_state *state = &refresh->state;

	for (int ms = 0;; ms += ROWS_NAP_MS)
	{
		if (!refresh_rows(refresh, done))
			return false;
		if (*done || !feed_suffices(refresh) || need->feed != state->feed ||
			ms >= patience_ms(FeedComing(need->feed)))
			return true;
		/* what is known of the mirror may be out of date */
		if (ms > 0)
			MirrorNap(ROWS_NAP_MS, GPUVEC_WAIT_REFRESH);
		if (!MirrorState(&refresh->target->key, state))
			return false;
		FeedNoteState(state);
		*done = state->state != GPUVEC_READY || gpuvec_fresh(state, need);
		if (*done)
			return true;
	}
}

/*
 * Bring the mirror, which is READY, up to date: by rows of its feed, or by
 * the pages that were changed since it was checked.  If these are listed and
 * few, sets *few: the caller reads them.  Otherwise reads and publishes them.
 */
static bool
refresh_ready(MirrorRefresh *refresh, bool *few)
{
	MirrorTarget *target = refresh->target;
	StalePages *stale = &refresh->stale;
	bool		done;

	if (!bring_rows(refresh, &done))
		return false;
	if (done)
		return true;
	refresh->block = 0;
	refresh->position = StalePagesFind(target, feed_suffices(refresh) ? &refresh->ours : NULL,
									   &refresh->state, stale) ? refresh->ours.position : 0;
	if (refresh->attempts > LISTED_ATTEMPTS)
		stale->listed = false;
	stale->nblocks = RelationGetNumberOfBlocks(target->rel);
	stale->nknown = refresh->state.nblocks;
	*few = StalePagesFew(stale);
	if (!*few)
		return refresh_many(refresh);
	refresh->part.key = target->key;
	refresh->part.known = refresh->state.refresh;
	PageStreamBegin(&refresh->stream, &refresh->part);
	return true;
}

/* Find the mirror's state; at the first call it may be known */
static bool
find_state(MirrorRefresh *refresh)
{
	const gpuvec_state *known = refresh->known;

	refresh->known = NULL;
	if (known == NULL || known->state != GPUVEC_READY)
		return MirrorState(&refresh->target->key, &refresh->state);
	refresh->state = *known;
	return true;
}

/*
 * Read the position that the mirror will be checked to, and behind it the
 * number of its feed, whether or not we need that
 */
static void
read_positions(MirrorRefresh *refresh)
{
	gpuvec_freshness *ours = &refresh->ours;

	memset(ours, 0, sizeof(*ours));
	ours->position = MirrorPosition();
	GPUVEC_INJECTION("refresh-before-number");
	if (refresh->target->fed)
		FeedRead(refresh->target, ours);
}

/* Load or refresh once.  *few: the caller has to read and publish pages. */
static bool
attempt(MirrorRefresh *refresh, bool *few)
{
	gpuvec_state *state = &refresh->state;
	bool		ok = true;

	*few = false;
	drop_pages(refresh);
	if (state->state == GPUVEC_READY)
		StalePagesReadAhead(refresh->target, state, &refresh->stale);
	read_positions(refresh);
	RefreshingAnnounce(&refresh->ours);
	if (state->state == GPUVEC_READY)
		ok = refresh_ready(refresh, few);
	else if (state->state == GPUVEC_ABSENT)
		ok = MirrorLoad(refresh->target, refresh->snapshot, &refresh->ours, state);
	return ok || fail(refresh);
}

MirrorRefreshStep
MirrorRefreshNext(MirrorRefresh *refresh)
{
	gpuvec_state *state = &refresh->state;

	if (refresh->covered)
	{
		*state = refresh->later;
		return MIRROR_REFRESH_FRESH;
	}
	refresh->done = false;
	while (!refresh->failed)
	{
		bool		again = refresh->attempts++ > 0;
		bool		few;

		if (again && state->state == GPUVEC_LOADING &&
			!busy_nap(refresh, refresh->attempts - 2))
			break;
		/* an attempt may have made the mirror fresh enough */
		if (!(again && gpuvec_fresh(state, refresh->need)) && !find_state(refresh))
			break;
		refresh->done = gpuvec_fresh(state, refresh->need);
		if (refresh->done)
			return MIRROR_REFRESH_FRESH;
		if (!MirrorMayTry(refresh->target, &refresh->claim))
			break;
		if (attempt(refresh, &few) && few)
			return MIRROR_REFRESH_READ;
	}
	refresh->failed = true;
	return MIRROR_REFRESH_FAILED;
}

/* Load or refresh in all steps; `arg`: the state to set */
static bool
ensure(MirrorRefresh *refresh, void *arg)
{
	gpuvec_state *state = arg;
	MirrorRefreshStep step;

	while ((step = MirrorRefreshNext(refresh)) == MIRROR_REFRESH_READ)
		(void) (MirrorRefreshPages(refresh) && MirrorRefreshPublish(refresh) &&
				MirrorRefreshAnswer(refresh));
	*state = refresh->state;
	MirrorRefreshEnd(refresh, 0);
	return step == MIRROR_REFRESH_FRESH;
}

bool
MirrorEnsure(MirrorTarget *target, Snapshot snapshot, const gpuvec_freshness *need,
			 const gpuvec_state *known, gpuvec_state *state)
{
	return MirrorRefreshDo(target, snapshot, need, known, ensure, state);
}

bool
MirrorLoadPrivate(MirrorTarget *target, Snapshot snapshot, const gpuvec_freshness *need,
				  gpuvec_state *state)
{
	int64		began = gpuvec_clock_us();
	int64		claim = 0;
	bool		ok;

	if (!MirrorMayTry(target, &claim))
		return false;
	ok = MirrorLoad(target, snapshot, need, state);
	if (!ok)
		note_failure(target, began, 0);
	else if (claim != 0)
		FactsForgetRefusal(&target->key);
	return ok;
}
