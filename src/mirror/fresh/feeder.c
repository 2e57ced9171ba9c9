/*-------------------------------------------------------------------------
 *
 * feeder.c
 *	  The background worker that applies rows of feeds to mirrors.
 *
 * Indexes hand over rows to feeds in shared memory (feed.c), and searches
 * need mirrors that have applied them.  A search can apply them itself, but
 * then it waits for the engine.  The feeder applies them before anybody
 * searches.  Nothing depends on it: it only makes searches find less to do.
 *
 * The feeder looks at all feeds every ROUND_MS, and sooner if many rows come.
 * It sends the waiting records of a feed to the engine when it pays: when
 * they concern DUE_LINES line pointers, or take DUE_BYTES, or when the oldest
 * has waited for DUE_MS.  So the tail of a quiet feed becomes empty.  When no
 * feed has got a record for QUIET_MS, and nothing is kept that is to be
 * applied, the feeder closes its connection and sleeps until a writer wakes
 * it (feeder_state.c).  It ends when no feed was
 * used for IDLE_MS.
 *
 * Where to begin is known by a hint: what the mirror has applied as far as
 * sessions know (FeedApplied).  The engine's answer corrects it.  If the
 * mirror lacks records before those sent, the feeder goes on from there.  If
 * there is no such mirror, or it has another feed, the feed is left alone for
 * a delay that grows.
 *
 * If the records are not all there any more, or not all are rows, the feed is
 * stuck: pages have to be read, and only sessions can do that.  So it is
 * while a session reads pages for another reason.  That may take a second, in
 * which more records come than the feed holds.  So the feeder goes on, from a
 * record that is there, and the engine keeps what the mirror cannot apply
 * (kept_rows.c).  It does so for KEEP_MS.  If nobody has read pages by then,
 * it leaves the feed alone until the hint shows that somebody has.  Then it
 * begins anew, unless the mirror has come to what was kept.
 *
 * If the engine refuses, the feed is left alone, too; if it does not answer,
 * all feeds are.  The feeder never ends for that, and logs an error only if
 * it is the first one since the engine last answered.  SIGTERM ends the
 * feeder at once, even while it waits for the engine, by the interrupt that
 * cancels queries.
 *
 * The feeder is not connected to a database, so it never blocks DROP
 * DATABASE, and opens no files.
 *
 *-------------------------------------------------------------------------
 */
#include "gpuvec.h"

#include <signal.h>

#include "access/xact.h"
#include "core/clock.h"
#include "link/engine_link.h"
#include "mirror/feed/feed.h"
#include "mirror/feed/feeder_state.h"
#include "mirror/fresh/feeder.h"
#include "mirror/fresh/refresh.h"
#include "pgstat.h"
#include "postmaster/bgworker.h"
#include "postmaster/interrupt.h"
#include "storage/ipc.h"
#include "storage/latch.h"
#include "utils/guc.h"

/* After a round in which rows were applied, the next one comes sooner */
#define ROUND_MS		10
#define BUSY_ROUND_MS	1

/* When the waiting records of a feed are applied */
#define DUE_LINES		128
#define DUE_BYTES		(64 * 1024)
#define DUE_MS			200

/*
 * Most bytes of records in one message, and most messages for a feed in a
 * round
 */
#define BATCH_BYTES		(256 * 1024)
#define ROUND_BATCHES	16

/* How long a stuck feed is followed, and how often if no record comes */
#define KEEP_MS			10000
#define KEEP_ROUND_MS	10

/* Sleep after so long without a record, and end after so long without use */
#define QUIET_MS		2000
#define IDLE_MS			300000

/* How long a sleep takes if nobody wakes the feeder */
#define SLEEP_MS		60000

/* Delays after a failure */
#define FIRST_DELAY_MS	100
#define LONGEST_DELAY_MS 5000

/* Delays that double until they are reset */
typedef struct Delay
{
	int			length;			/* in ms; 0: none stands */
	int64		until;
} Delay;

/* What the feeder knows of the feed in a slot.  Times are of clock_ms(). */
typedef struct Feed
{
	uint64		feed;			/* 0: the slot was free */
	uint64		number;			/* of the last record, at the last look */
	uint64		hint;			/* what the slot said of the mirror then */
	uint64		applied;		/* the same, corrected by the engine's answers */
	uint64		first;			/* a record that waits ... */
	int64		since;			/* ... since then; 0: none waits */
	bool		stuck;			/* a session has to read pages */
	int64		keep_until;		/* meanwhile records are sent until then ... */
	int64		kept_at;		/* ... as they were then, ... */
	uint64		kept;			/* ... and the engine keeps those up to this
								 * one; 0: none */
	uint64		reached;		/* what the mirror had applied, at the last
								 * answer */
	bool		catching_up;	/* it had come nearer by then */
	Delay		delay;			/* leave the feed alone */
} Feed;

typedef struct Feeder
{
	Feed		feeds[FEED_SLOTS];
	Feed	   *served;			/* the feed whose records are sent, or NULL */
	bool		busy;			/* rows were applied in this round */
	int64		last_record;	/* when a feed was last seen to have grown */
	Delay		delay;			/* do without the engine */
	bool		complained;		/* an error was logged since the engine last
								 * answered */
} Feeder;

static Feeder me;

/* A monotonic clock in ms */
static int64
clock_ms(void)
{
	return gpuvec_clock_us() / 1000;
}

/* Begin a delay that is twice as long as the last one */
static void
lengthen(Delay *delay)
{
	delay->length = delay->length == 0 ? FIRST_DELAY_MS : Min(2 * delay->length, LONGEST_DELAY_MS);
	delay->until = clock_ms() + delay->length;
}

static void
end_delay(Delay *delay)
{
	delay->length = 0;
}

/* Milliseconds that the delay still takes */
static long
delay_left(const Delay *delay)
{
	return delay->length == 0 ? 0 : (long) Max(delay->until - clock_ms(), 0);
}

/* The engine cannot be asked: do without it for a while */
static void
back_off(void)
{
	GpuvecLinkClose();
	lengthen(&me.delay);
	FeederNoteWorks(false);
}

/* The engine has answered */
static void
note_answer(void)
{
	if (me.delay.length != 0)
		FeederNoteWorks(true);
	end_delay(&me.delay);
	me.complained = false;
}

/* True if records wait that the feeder may apply, at once or after a delay */
static bool
has_work(const Feed *feed)
{
	return feed->number > feed->applied && !feed->stuck;
}

/* The feed is stuck from here on: records are to be kept for a while */
static void
note_stuck(Feed *feed)
{
	feed->stuck = true;
	feed->keep_until = clock_ms() + KEEP_MS;
	feed->kept = 0;
}

/* The mirror can do without records that are kept */
static void
end_keeping(Feed *feed)
{
	feed->keep_until = 0;
	feed->kept = 0;
	FeedNoteKept(feed->feed, 0, 0);
}

/* True if the records of a stuck feed are sent to be kept */
static bool
is_keeping(const Feed *feed)
{
	return feed->stuck && clock_ms() < feed->keep_until;
}

/* Note since when records of a feed wait */
static void
note_waiting(int slot, Feed *feed)
{
	if (feed->number <= feed->applied)
	{
		if (feed->since != 0)
			FeederNoteOldest(slot, feed->feed, 0);
		feed->since = 0;
	}
	else if (feed->since == 0 || feed->applied >= feed->first)
	{
		feed->first = feed->number;
		feed->since = clock_ms();
		FeederNoteOldest(slot, feed->feed, gpuvec_clock_us());
	}
}

/* True if a feed has grown since the last look */
static bool
has_grown(int slot)
{
	FeedSlotInfo info;

	FeedSlotRead(slot, &info);
	return info.feed != 0 &&
		(info.feed != me.feeds[slot].feed || info.number != me.feeds[slot].number);
}

/* Look at a slot.  False: it is free. */
static bool
look(int slot, FeedSlotInfo *info)
{
	Feed	   *feed = &me.feeds[slot];

	FeedSlotRead(slot, info);
	if (info->feed != feed->feed)
	{
		memset(feed, 0, sizeof(*feed));
		feed->feed = info->feed;
		feed->applied = info->applied;
		FeederNoteOldest(slot, 0, 0);
	}
	else if (info->applied != feed->hint)
	{
		/*
		 * A session has brought the mirror up to date.  But to what is kept
		 * the mirror comes by itself, and a gap in that would end it.
		 */
		feed->applied = info->applied;
		feed->stuck = feed->kept != 0 && is_keeping(feed);
		end_delay(&feed->delay);
	}
	feed->hint = info->applied;
	if (info->number != feed->number)
		me.last_record = clock_ms();
	feed->number = info->number;
	note_waiting(slot, feed);
	return feed->feed != 0;
}

/* True if it pays to apply the records */
static bool
is_due(const Feed *feed, const FeedRows *rows)
{
	return rows->nrows >= DUE_LINES || rows->bytes >= DUE_BYTES ||
		clock_ms() - feed->since >= DUE_MS;
}

/* Send records to the engine.  False: it does not answer, or refuses. */
static bool
send_rows(const gpuvec_mirror_key *key, const Feed *feed, const FeedRows *rows,
		  gpuvec_state *state)
{
	const char *reason;

	return GpuvecLinkOpen(false, &reason) == GPUVEC_LINK_READY &&
		MirrorSendRows(key, feed->feed, rows, feed->stuck, state);
}

/*
 * Take the engine's answer.  False: the feed has to be left alone for a
 * while.
 */
static bool
take_state(Feed *feed, const FeedRows *rows, const gpuvec_state *state)
{
	if (state->state != GPUVEC_READY || state->feed != feed->feed)
		return false;
	FeedNoteState(state);
	feed->applied = state->applied;
	/* if it is less than `from`, go on from there; else somebody was faster */
	return state->applied >= rows->to || state->applied < rows->from;
}

/*
 * Have the engine apply records.  False: the feed or the engine has to be
 * left alone for a while.
 */
static bool
apply_rows(const gpuvec_mirror_key *key, Feed *feed, const FeedRows *rows)
{
	gpuvec_state state;
	bool		answered;

	me.served = feed;
	answered = send_rows(key, feed, rows, &state);
	me.served = NULL;
	if (!answered && GpuvecLinkRefusal() == NULL)
	{
		back_off();
		return false;
	}
	note_answer();
	if (answered && state.state == GPUVEC_LOADING)
	{
		/* pages are being read */
		note_stuck(feed);
		feed->kept = rows->from;
	}
	else if (!answered || !take_state(feed, rows, &state))
	{
		lengthen(&feed->delay);
		return false;
	}
	end_delay(&feed->delay);
	me.busy = true;
	return !feed->stuck;
}

/*
 * Apply the next records of a feed, if that is due.  False: there is no more
 * to do in this round.
 */
static bool
apply_batch(const FeedSlotInfo *info, Feed *feed)
{
	FeedRows	rows;
	bool		more;

	if (!FeedCopyRows(feed->feed, feed->applied, feed->number, BATCH_BYTES, &rows))
	{
		note_stuck(feed);
		return false;
	}
	if (rows.to == rows.from)
		note_stuck(feed);
	more = !feed->stuck && is_due(feed, &rows) && apply_rows(&info->key, feed, &rows);
	pfree(rows.data);
	return more;
}

/*
 * Copy the next records of a stuck feed.  The first ones must be there until
 * they are copied, so it does not begin with the oldest.  False: try again in
 * the next round.
 */
static bool
copy_next(const Feed *feed, FeedRows *rows)
{
	uint64		since = FeedRowsSince(feed->feed);
	uint64		from = feed->kept;

	if (from < since)
		from = since + (Max(feed->number, since) - since) / 4;
	return FeedCopyRows(feed->feed, from, Max(feed->number, from), BATCH_BYTES, rows);
}

/*
 * The engine's answer to records that are to be kept.  If the mirror has come
 * to them, the feed goes on.  If it has another feed, keeping is of no use.
 */
static void
take_kept(Feed *feed, const FeedRows *rows, const gpuvec_state *state)
{
	bool		mine = state->state == GPUVEC_READY && state->feed == feed->feed;

	feed->kept = state->kept;
	feed->kept_at = clock_ms();
	feed->catching_up = mine && state->kept > 0 && state->applied != feed->reached;
	feed->reached = mine ? state->applied : 0;
	FeedNoteKept(feed->feed, state->kept_from, state->kept);
	if (mine)
		FeedNoteState(state);
	if (mine && state->applied >= rows->to)
	{
		feed->applied = feed->hint = state->applied;
		feed->stuck = false;
		end_keeping(feed);
	}
	else if (state->state == GPUVEC_READY && !mine)
		end_keeping(feed);
}

/*
 * Send the next records of a stuck feed, or none: of what is kept, the engine
 * applies a chunk each time, if it can
 */
static void
keep_batch(const FeedSlotInfo *info, Feed *feed)
{
	FeedRows	rows;
	gpuvec_state state;
	bool		answered;

	if (!copy_next(feed, &rows))
		return;
	if (!is_due(feed, &rows) && !feed->catching_up && clock_ms() - feed->kept_at < KEEP_ROUND_MS)
	{
		pfree(rows.data);
		return;
	}
	me.busy = true;
	me.served = feed;
	answered = send_rows(&info->key, feed, &rows, &state);
	me.served = NULL;
	if (answered)
		take_kept(feed, &rows, &state);
	else if (GpuvecLinkRefusal() != NULL)
		end_keeping(feed);
	if (answered || GpuvecLinkRefusal() != NULL)
		note_answer();
	else
		back_off();
	pfree(rows.data);
}

/* Look at the feed in a slot, and apply what is due */
static void
serve_slot(int slot)
{
	Feed	   *feed = &me.feeds[slot];
	FeedSlotInfo info;

	if (!look(slot, &info) || delay_left(&feed->delay) > 0)
		return;
	for (int i = 0; i < ROUND_BATCHES && has_work(feed); i++)
		if (!apply_batch(&info, feed))
			break;
	if (is_keeping(feed))
		keep_batch(&info, feed);
	else if (feed->kept != 0)
		end_keeping(feed);
	note_waiting(slot, feed);
}

/*
 * Serve all feeds.  A delay of the engine begins in the middle if it fails.
 */
static void
serve_slots(void)
{
	for (int slot = 0; slot < FeedSlotsTaken() && delay_left(&me.delay) == 0; slot++)
	{
		CHECK_FOR_INTERRUPTS();
		serve_slot(slot);
	}
}

/* True if the engine keeps records, which the feeder must have it apply */
static bool
keeps_any(void)
{
	for (int slot = 0; slot < FEED_SLOTS; slot++)
		if (me.feeds[slot].kept != 0 && is_keeping(&me.feeds[slot]))
			return true;
	return false;
}

/*
 * Milliseconds until the next round, if no writer comes.  *quiet: the feeder
 * may sleep until then.
 */
static long
next_round(bool *quiet)
{
	long		next = SLEEP_MS;

	*quiet = false;
	if (delay_left(&me.delay) > 0)
		return delay_left(&me.delay);
	if (clock_ms() - me.last_record < QUIET_MS || keeps_any())
		return me.busy ? BUSY_ROUND_MS : ROUND_MS;
	*quiet = true;
	for (int slot = 0; slot < FEED_SLOTS; slot++)
		if (has_work(&me.feeds[slot]))
			next = Min(next, Max(delay_left(&me.feeds[slot].delay), ROUND_MS));
	return next;
}

/* Wait for the latch */
static void
nap(long ms)
{
	int			events = WaitLatch(MyLatch, WL_LATCH_SET | WL_TIMEOUT | WL_EXIT_ON_PM_DEATH, ms,
								   GpuvecWaitEvent(GPUVEC_WAIT_FEEDER));

	if (events & WL_LATCH_SET)
		ResetLatch(MyLatch);
	CHECK_FOR_INTERRUPTS();
}

/* Sleep until a writer wakes us, unless one has just appended a record */
static void
sleep_quietly(long ms)
{
	bool		grown = false;

	GpuvecLinkClose();
	FeederNoteAsleep(true);
	for (int slot = 0; slot < FeedSlotsTaken() && !grown; slot++)
		grown = has_grown(slot);
	if (!grown)
		nap(ms);
	FeederNoteAsleep(false);
}

/* One round, and the wait for the next one */
static void
make_round(void)
{
	long		ms;
	bool		quiet;

	/* a statement of its own, as sessions judge the engine by statements */
	SetCurrentStatementStartTimestamp();
	me.busy = false;
	serve_slots();
	ms = next_round(&quiet);
	if (quiet)
		sleep_quietly(ms);
	else
		nap(ms);
}

/* Log an error, if it is the first one for some time, and back off */
static void
note_error(MemoryContext context)
{
	ErrorData  *error;

	MemoryContextSwitchTo(context);
	error = CopyErrorData();
	FlushErrorState();
	AbortOutOfAnyTransaction();
	MemoryContextSwitchTo(context);
	FeederNoteAsleep(false);
	back_off();
	if (me.served != NULL)
		lengthen(&me.served->delay);
	me.served = NULL;
	if (!ShutdownRequestPending && !me.complained)
	{
		me.complained = true;
		ereport(LOG,
				(errcode(error->sqlerrcode),
				 errmsg("gpuvec feeder could not apply rows: %s", error->message),
				 error->detail ? errdetail_internal("%s", error->detail) : 0));
	}
	FreeErrorData(error);
}

/* make_round(), which may fail */
static void
try_round(void)
{
	MemoryContext context = CurrentMemoryContext;

	PG_TRY();
	{
		make_round();
	}
	PG_CATCH();
	{
		note_error(context);
	}
	PG_END_TRY();
}

/* True if no feed was used for long */
static bool
is_idle(void)
{
	int64		now = gpuvec_clock_us();

	return clock_ms() - me.last_record > IDLE_MS &&
		now - FeederLastUse() > IDLE_MS * INT64CONST(1000);
}

/*
 * SIGTERM: end.  A wait for the engine ends by an error, as for a query that
 * is canceled.
 */
static void
request_end(SIGNAL_ARGS)
{
	int			save_errno = errno;

	ShutdownRequestPending = true;
	QueryCancelPending = true;
	InterruptPending = true;
	SetLatch(MyLatch);
	errno = save_errno;
}

/* Exit callback */
static void
feeder_exit(int code, Datum arg)
{
	FeederLeave(code != 0);
}

/* Main function of the background worker */
void
gpuvec_feeder_main(Datum arg)
{
	MemoryContext context;

	pqsignal(SIGTERM, request_end);
	pqsignal(SIGHUP, SignalHandlerForConfigReload);
	pqsignal(SIGINT, PG_SIG_IGN);
	pqsignal(SIGPIPE, PG_SIG_IGN);
	BackgroundWorkerUnblockSignals();
	BackgroundWorkerInitializeConnection(NULL, NULL, 0);
	pgstat_report_appname("gpuvec feeder");

	if (!FeederArrive())
		proc_exit(0);
	before_shmem_exit(feeder_exit, (Datum) 0);
	context = AllocSetContextCreate(TopMemoryContext, "gpuvec feeder", ALLOCSET_DEFAULT_SIZES);
	pgstat_report_activity(STATE_IDLE, NULL);
	me.last_record = clock_ms();

	while (!ShutdownRequestPending && !is_idle())
	{
		MemoryContextSwitchTo(context);
		MemoryContextReset(context);
		if (ConfigReloadPending)
		{
			ConfigReloadPending = false;
			ProcessConfigFile(PGC_SIGHUP);
		}
		try_round();
	}
	proc_exit(0);
}
