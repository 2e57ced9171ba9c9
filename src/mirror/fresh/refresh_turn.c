/*-------------------------------------------------------------------------
 *
 * refresh_turn.c
 *	  Whose turn it is to load or refresh a mirror: the lock, and waiting.
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
 *-------------------------------------------------------------------------
 */
#include "gpuvec.h"

#include <signal.h>
#include <time.h>

#include "common/hashfn.h"
#include "core/clock.h"
#include "link/engine_link.h"
#include "mirror/describe/refreshing.h"
#include "mirror/fresh/refresh_steps.h"
#include "miscadmin.h"
#include "storage/lock.h"
#include "storage/proc.h"

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
bool
RefreshSomebodyWaits(const MirrorRefresh *refresh)
{
	return RefreshingWanted() || LockHasWaiters(&refresh->tag, ExclusiveLock, false);
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
bool
RefreshNapBusy(MirrorRefresh *refresh, int attempt)
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

/* Begin to have patience for ms milliseconds; false: there is no timer */
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

void
RefreshUnlock(MirrorRefresh *refresh)
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
		RefreshUnlock(refresh);
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
		RefreshUnlock(refresh);
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
	RefreshingNotes notes;

	if (known != NULL && known->state == GPUVEC_READY &&
		RefreshingLook(&refresh->target->key, &notes) &&
		notes.state.state == GPUVEC_READY && notes.state.refresh > known->refresh)
		refresh->later = notes.state;
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
void
RefreshTakeTurn(MirrorRefresh *refresh)
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
