/*-------------------------------------------------------------------------
 *
 * refreshing.c
 *	  What sessions tell each other about the refreshes of a mirror.
 *
 * Beside writers, all sessions that search a mirror find it behind at about
 * the same time.  One refresh is enough for all of them.  So there is a small
 * table in shared memory, with an entry for each mirror that is searched.
 *
 * A session that is behind joins the others.  If no refresh is under way, it
 * leads the next one.  Otherwise it waits for the end.  A leader looks for
 * changes after it took the lead, so its refresh covers everybody who waited
 * by then.  Long WAL it reads first.  Then it announces which position it
 * will cover at least: so those who came meanwhile are covered, too.  Who
 * came too late waits on another condition variable.  At the
 * end of a refresh all that it covers are woken, and one of the others, who
 * leads the next refresh, which covers the rest.  (If the mirror is fresh
 * enough for that one, as the refresh went further than was announced, it
 * wakes the next.)  So nobody waits for more than two refreshes, unless one
 * fails.
 *
 * What an entry says is of two kinds:
 *
 *	- Hints: the mirror's state, who leads, and what a refresh will cover.
 *	  The engine checks with every request how fresh the mirror is, so a
 *	  wrong hint costs time, but not an answer.  But the number of a state
 *	  means more: a refresh is based on it, and the visibility map is compared
 *	  with it (visibility.c).  Numbers count for one engine.  Each engine has
 *	  a random number of its own, which the entry keeps, and a state counts
 *	  for sessions of this engine only.
 *	- A fact: the WAL between two positions has no change of the relation.
 *	  The engine cannot check this, so only what was read is told, and two
 *	  such ranges become one only if they overlap.  It does not depend on the
 *	  engine: the WAL stays what it is for as long as the shared memory lives.
 *
 * The leader also holds the mirror's heavyweight lock (refresh_turn.c).
 * Waiting here is not seen by the deadlock detector, and a leader may wait
 * for a lock that a waiting session's transaction holds.  So a wait is
 * bounded, by GPUVEC_REFRESH_PATIENCE_MS, and the session then waits for the
 * heavyweight lock.  Who gets that lock takes the lead from whoever has it.
 *
 * A leader that ends with an error, is canceled or terminated, gives up the
 * lead, and wakes all.  A woken session may be
 * canceled before it leads.  Then the others wait until their patience ends,
 * or another session comes.
 *
 * A session that is alone does not wait for its own refresh (conversation.c).
 * Beside others it does: only a refresh that was published is of use to them.
 *
 * An entry also counts the steps of those who load or refresh the mirror, and
 * has the number of the mirror's lock (refresh_turn.c).  If an entry is lost,
 * the first lock is the mirror's again, and two sessions may hold locks of
 * it.  Then one of them finds that the engine lets the other one go first.
 *
 * Entries are found by hash.  If there is no free entry for a mirror, it
 * takes that of another one that is not being refreshed, with nothing of what
 * was known of that: the WAL that does not change one relation may change
 * the other.  If all are in use, its sessions wait for the heavyweight lock
 * only.
 *
 *-------------------------------------------------------------------------
 */
#include "gpuvec.h"

#include "access/xact.h"
#include "common/hashfn.h"
#include "core/clock.h"
#include "link/engine_link.h"
#include "link/shared.h"
#include "link/wait_events.h"
#include "mirror/describe/refreshing.h"
#include "miscadmin.h"
#include "storage/condition_variable.h"
#include "storage/spin.h"

#define ENTRIES			64
#define PROBES			4

/* Most refreshes that a session waits for here */
#define MOST_WAITS		6

/* Others who asked for a refresh this long ago may soon do so again */
#define CROWDED_US		20000

/* A mirror that is searched */
typedef struct Entry
{
	slock_t		mutex;			/* protects all below but `ended` */
	gpuvec_mirror_key key;		/* database 0: the entry is free */
	uint64		engine;			/* that has told the state */
	RefreshingNotes notes;
	uint64		round;			/* number of the refresh that began last */
	uint64		leader;			/* number of the refresh under way; 0: none */
	gpuvec_freshness covers;	/* what it will cover, if announced */
	int			last_leader;	/* its process id, */
	int64		last_lead;		/* and when it took the lead */
	int64		crowded;		/* when a session last had to wait, or came
								 * soon after another one */

	uint32		term;			/* number of the mirror's lock */
	pg_atomic_uint64 moves;		/* steps of all loads and refreshes; not
								 * protected */

	/* by the parity of a refresh's number */
	bool		wanted[2];		/* others wait for its end */
	ConditionVariable ended[2];
} Entry;

typedef struct EntryTable
{
	Entry		entries[ENTRIES];
} EntryTable;

/* The refresh that this session leads */
static Entry *led = NULL;
static uint64 led_round;
static bool led_crowded;

/* Where steps of this process are counted, or NULL */
static Entry *moving = NULL;

/* Initialize the table */
static void
init_entries(void *area)
{
	EntryTable *table = area;

	for (int i = 0; i < ENTRIES; i++)
	{
		SpinLockInit(&table->entries[i].mutex);
		pg_atomic_init_u64(&table->entries[i].moves, 0);
		ConditionVariableInit(&table->entries[i].ended[0]);
		ConditionVariableInit(&table->entries[i].ended[1]);
	}
}

static GpuvecSharedArea entries_area = {.size = sizeof(EntryTable), .init = init_entries};

/* Wake all that wait for the entry */
static void
wake_all(Entry *entry)
{
	ConditionVariableBroadcast(&entry->ended[0]);
	ConditionVariableBroadcast(&entry->ended[1]);
}

/* Give up the lead, if this session has it */
static void
give_up(void)
{
	Entry	   *entry = led;

	moving = NULL;
	if (entry == NULL)
		return;
	led = NULL;
	SpinLockAcquire(&entry->mutex);
	if (entry->leader == led_round)
		entry->leader = 0;
	SpinLockRelease(&entry->mutex);
	wake_all(entry);
}

/*
 * The process ends.  (After an error the lead was given up before: see
 * refresh.c.)
 */
static void
refreshing_xact_callback(XactEvent event, void *arg)
{
	if (event == XACT_EVENT_ABORT || event == XACT_EVENT_PARALLEL_ABORT)
		give_up();
}

void
RefreshingInit(void)
{
	GpuvecSharedAsk(&entries_area);
	GpuvecLinkWaits = RefreshingMove;
	RegisterXactCallback(refreshing_xact_callback, NULL);
}

/* The i-th place where a mirror's entry may be */
static Entry *
probe(EntryTable *table, uint32 hash, int i)
{
	return &table->entries[(hash + i) % ENTRIES];
}

/*
 * Lock an entry if it is of this mirror.  Without its lock the key may be out
 * of date.
 */
static bool
lock_if(Entry *entry, const gpuvec_mirror_key *key)
{
	if (memcmp(&entry->key, key, sizeof(*key)) != 0)
		return false;
	SpinLockAcquire(&entry->mutex);
	if (memcmp(&entry->key, key, sizeof(*key)) == 0)
		return true;
	SpinLockRelease(&entry->mutex);
	return false;
}

/* Lock an entry, and make it that of a mirror, unless it is in use */
static bool
take_entry(Entry *entry, const gpuvec_mirror_key *key, bool replace)
{
	SpinLockAcquire(&entry->mutex);
	if (entry->leader == 0 && (replace || entry->key.database == InvalidOid))
	{
		entry->key = *key;
		entry->engine = 0;
		entry->term = 0;
		memset(&entry->notes, 0, sizeof(entry->notes));
		return true;
	}
	SpinLockRelease(&entry->mutex);
	return false;
}

/*
 * The entry of a mirror, locked, or NULL.  `make`: take one if there is none.
 * Two sessions may make two of them; the second one is not found then.
 */
static Entry *
lock_entry(const gpuvec_mirror_key *key, bool make)
{
	EntryTable *table = GpuvecSharedFind(GpuvecSharedState(), &entries_area);
	uint32		hash = hash_bytes((const unsigned char *) key, sizeof(*key));

	if (table == NULL)
		return NULL;
	for (int i = 0; i < PROBES; i++)
		if (lock_if(probe(table, hash, i), key))
			return probe(table, hash, i);
	for (int i = 0; make && i < PROBES * 2; i++)
		if (take_entry(probe(table, hash, i % PROBES), key, i >= PROBES))
			return probe(table, hash, i % PROBES);
	return NULL;
}

/* True if the entry's state is of the engine of this connection */
static bool
is_of_our_engine(const Entry *entry)
{
	return entry->engine != 0 && entry->engine == GpuvecLinkEngineNumber();
}

/* Copy the entry's notes, and unlock it */
static void
copy_notes(Entry *entry, RefreshingNotes *notes)
{
	bool		ours = is_of_our_engine(entry);

	*notes = entry->notes;
	SpinLockRelease(&entry->mutex);
	if (!ours)
		notes->state.state = GPUVEC_ABSENT;
}

bool
RefreshingLook(const gpuvec_mirror_key *key, RefreshingNotes *notes)
{
	Entry	   *entry = lock_entry(key, false);

	if (entry == NULL)
		return false;
	copy_notes(entry, notes);
	return true;
}

/*
 * True if a refresh is under way that will cover `need`.  A leader that has
 * announced nothing has yet to look for changes.
 */
static bool
will_cover(const Entry *entry, const gpuvec_freshness *need)
{
	const gpuvec_freshness *covers = &entry->covers;

	return entry->leader != 0 &&
		((covers->position == 0 && covers->feed == 0) || covers->position >= need->position ||
		 (need->feed != 0 && covers->feed == need->feed && covers->applied >= need->applied));
}

/* Take over a state, unless a later one is known; the entry is locked */
static void
set_state(Entry *entry, const gpuvec_state *state)
{
	uint64		engine = GpuvecLinkEngineNumber();

	if (engine == 0 || state->state != GPUVEC_READY ||
		(entry->engine == engine && entry->notes.state.refresh > state->refresh))
		return;
	entry->engine = engine;
	entry->notes.state = *state;
}

void
RefreshingNoteState(const gpuvec_mirror_key *key, const gpuvec_state *state)
{
	Entry	   *entry = key->private_id == 0 ? lock_entry(key, true) : NULL;

	if (entry == NULL)
		return;
	set_state(entry, state);
	SpinLockRelease(&entry->mutex);
}

/* Unite the range without changes with another one, or keep the later one */
static void
unite(RefreshingNotes *notes, XLogRecPtr from, XLogRecPtr until)
{
	if (from <= notes->until && notes->from <= until)
	{
		notes->from = Min(notes->from, from);
		notes->until = Max(notes->until, until);
	}
	else if (until > notes->until)
	{
		notes->from = from;
		notes->until = until;
	}
}

void
RefreshingNoteWal(const gpuvec_mirror_key *key, XLogRecPtr from, XLogRecPtr to, bool changed)
{
	Entry	   *entry = lock_entry(key, true);

	if (entry == NULL)
		return;
	if (changed)
	{
		entry->notes.changed_from = from;
		entry->notes.changed = to;
	}
	else
		unite(&entry->notes, from, to);
	SpinLockRelease(&entry->mutex);
}

/* Begin a refresh that this session leads; the entry is locked */
static void
lead(Entry *entry, int64 now)
{
	led = moving = entry;
	led_round = entry->leader = ++entry->round;
	led_crowded = now - entry->crowded < CROWDED_US;
	if (entry->last_leader != MyProcPid && now - entry->last_lead < CROWDED_US)
		entry->crowded = now;
	entry->last_leader = MyProcPid;
	entry->last_lead = now;
	memset(&entry->covers, 0, sizeof(entry->covers));
}

/*
 * What a session that joins the others knows, and finds.  Of the entry it
 * trusts a state only if that is later than `refresh`: its own, or if it
 * knows none, that of the entry when it came.  For it may come because the
 * engine said that the mirror is not as fresh as the entry says.
 */
typedef struct Joining
{
	const gpuvec_mirror_key *key;
	const gpuvec_freshness *need;
	bool		knows;			/* `refresh` is set */
	uint64		refresh;
	gpuvec_state *state;
} Joining;

/* Set joining->state; the entry is locked */
static void
find_state(Joining *joining, const Entry *entry)
{
	const gpuvec_state *state = &entry->notes.state;
	bool		ours = is_of_our_engine(entry);

	if (!joining->knows)
		joining->refresh = ours ? state->refresh : 0;
	joining->knows = true;
	if (ours && state->refresh > joining->refresh)
		*joining->state = *state;
}

/*
 * Look at the entry once.  Returns what to wait for; or NULL: *turn is
 * decided.
 */
static ConditionVariable *
decide(Joining *joining, RefreshingTurn *turn)
{
	int64		now = gpuvec_clock_us();
	Entry	   *entry = lock_entry(joining->key, true);
	ConditionVariable *ended = NULL;

	*turn = REFRESHING_NONE;
	if (entry == NULL)
		return NULL;
	find_state(joining, entry);
	if (gpuvec_fresh(joining->state, joining->need))
		*turn = REFRESHING_COVERED;
	else if (entry->leader == 0)
	{
		*turn = REFRESHING_LEAD;
		lead(entry, now);
	}
	else
	{
		int			which = (entry->leader + !will_cover(entry, joining->need)) % 2;

		entry->wanted[which] = true;
		entry->crowded = now;
		ended = &entry->ended[which];
	}
	SpinLockRelease(&entry->mutex);
	return ended;
}

/*
 * The first wait for a condition variable only makes sure that no wakeup is
 * missed, so we look at the entry again.
 */
RefreshingTurn
RefreshingJoin(const gpuvec_mirror_key *key, const gpuvec_freshness *need,
			   const gpuvec_state *known, gpuvec_state *state, bool *waited)
{
	Joining		joining = {.key = key, .need = need, .state = state};
	RefreshingTurn turn;
	ConditionVariable *ended;
	ConditionVariable *last = NULL;
	bool		late = false;

	give_up();
	state->state = GPUVEC_ABSENT;
	joining.knows = known != NULL && known->state == GPUVEC_READY;
	joining.refresh = joining.knows ? known->refresh : 0;
	*waited = false;
	for (int waits = 0; (ended = decide(&joining, &turn)) != NULL; waits++)
	{
		*waited = true;
		if (late || waits == MOST_WAITS)
			break;
		last = ended;
		late = ConditionVariableTimedSleep(ended, gpuvec_refresh_patience, GpuvecWaitEvent(GPUVEC_WAIT_REFRESH));
	}
	ConditionVariableCancelSleep();
	/* it may be only this session that was woken, so that it leads */
	if (last != NULL && turn != REFRESHING_LEAD)
		ConditionVariableSignal(last);
	return turn;
}

void
RefreshingLead(const gpuvec_mirror_key *key)
{
	int64		now = gpuvec_clock_us();
	Entry	   *entry = lock_entry(key, true);
	bool		leads;

	if (entry == NULL)
		return;
	leads = led == entry && entry->leader == led_round;
	if (!leads)
		lead(entry, now);
	SpinLockRelease(&entry->mutex);
	/* who waits for another refresh has to look again */
	if (!leads)
		wake_all(entry);
}

void
RefreshingAnnounce(const gpuvec_freshness *covers)
{
	if (led == NULL)
		return;
	SpinLockAcquire(&led->mutex);
	if (led->leader == led_round)
		led->covers = *covers;
	SpinLockRelease(&led->mutex);
}

/* Read without a lock: who asks too late has to wait a little longer */
bool
RefreshingWanted(void)
{
	return led != NULL && (led->wanted[0] || led->wanted[1]);
}

bool
RefreshingCrowded(void)
{
	return led != NULL && (led_crowded || RefreshingWanted());
}

void
RefreshingEnd(void)
{
	Entry	   *entry = led;
	uint32		which = led_round % 2;
	bool		leads;

	moving = NULL;
	if (entry == NULL)
		return;
	led = NULL;
	SpinLockAcquire(&entry->mutex);
	leads = entry->leader == led_round;
	if (leads)
	{
		entry->leader = 0;
		entry->wanted[which] = false;
	}
	SpinLockRelease(&entry->mutex);
	if (!leads)
		return;
	ConditionVariableBroadcast(&entry->ended[which]);
	/* this one leads the refresh that the others have to wait for */
	ConditionVariableSignal(&entry->ended[1 - which]);
}

void
RefreshingGiveUp(void)
{
	give_up();
}

void
RefreshingMove(void)
{
	if (moving != NULL)
		(void) pg_atomic_fetch_add_u64(&moving->moves, 1);
}

void
RefreshingHelp(const gpuvec_mirror_key *key)
{
	moving = lock_entry(key, false);
	if (moving != NULL)
		SpinLockRelease(&moving->mutex);
}

bool
RefreshingTermNow(const gpuvec_mirror_key *key, uint32 *term, uint64 *moves)
{
	Entry	   *entry = lock_entry(key, true);

	*term = 0;
	*moves = 0;
	if (entry == NULL)
		return false;
	*term = entry->term;
	*moves = pg_atomic_read_u64(&entry->moves);
	SpinLockRelease(&entry->mutex);
	return true;
}

bool
RefreshingOvertake(const gpuvec_mirror_key *key, uint32 term)
{
	Entry	   *entry = lock_entry(key, true);
	bool		ours;

	if (entry == NULL)
		return false;
	ours = entry->term == term;
	if (ours)
		entry->term++;
	SpinLockRelease(&entry->mutex);
	return ours;
}
