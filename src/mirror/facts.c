/*-------------------------------------------------------------------------
 *
 * facts.c
 *	  What loads and searches leave of a mirror for the planner.
 *
 * The planner never asks the engine, so sessions leave what it wants to know
 * in a small table in shared memory: how many rows and ids a mirror has,
 * whether it is resident, and how long trips take.  All of it is for
 * estimates: nothing here has to be right, so nobody waits for it.  Sessions
 * write after a load or refresh, and after a search that found another state
 * of the mirror than their last one.  They time one search of a few
 * (known.c); so a search pays some 10 ns for all this.
 *
 * Times are kept as operator calls, like costs, at a fixed rate: that a
 * machine is slower than another one changes all costs, and the planner
 * compares them.  A search's time is taken apart: what the engine needed for
 * the rows (at most what the bounds allow) is that of ranking, all else is
 * the trip's.  Trips are the same for all mirrors, so all have one average:
 * otherwise, which of two indexes is taken could depend on when they were
 * last used.  Ranking differs from mirror to mirror, by the lengths of sets
 * and lists.  It is measured for mirrors of some thousand rows and more; that
 * of fewer takes no time that could be told from a trip's.  Only single
 * queries for few of the rows are timed, of a mirror that was fresh: not
 * those that load, or rank a whole batch, nor the first search of a session.
 *
 * Averages start with the constants that cost.c takes without facts, and a
 * measurement counts for an eighth, after it was brought within bounds: a
 * trip takes between a quarter of the constant and twice as much, ranking a
 * row between a 32nd (a GPU) and four times as much.  So one slow answer,
 * however slow, adds an eighth of the constant to a trip, and what is slow
 * for good is believed after some dozens of searches.  A trip's upper bound
 * is tight, for what makes trips slow is mostly a busy machine, where a scan
 * and a sort are slow, too.  Anything within the bounds leaves plans as they
 * have to be: a trip costs more than sorting 50 rows and less than sorting
 * 10,000.  Only where two plans take about as long can the choice between
 * them change.
 *
 * A mirror is resident if a session saw it in the engine that runs now.  That
 * the engine evicted it later, for want of memory, is seen by the next
 * search, which loads it again.
 *
 * If an engine has no room for a mirror, that is noted as well.  While it
 * stands, the planner knows that an index would scan and sort, and nobody
 * reads half of the table just to find out again.  It stands for ten seconds,
 * or longer if it took longer to find out, and no longer than that engine,
 * since another one may have other settings.  Then one search tries again,
 * and until it knows better it stands for the others.
 *
 * Slots are in groups by hash, which are looked through without locks.  If a
 * group has no free one, facts of mirrors that are not resident make room for
 * others, and those that nobody has noted for a minute, which is how those of
 * dropped tables go.  If there is no room, nothing is noted.  From then on
 * nobody claims that mirrors of this group without facts have never been
 * used.  All is lost in a restart, together with the engine.  While there is
 * no shared memory, which the first search makes, no mirror has been used,
 * and trips take what the constant says.
 *
 *-------------------------------------------------------------------------
 */
#include "gpuvec.h"

#include "access/xact.h"
#include "common/hashfn.h"
#include "link/engine_link.h"
#include "link/shared.h"
#include "mirror/facts.h"
#include "miscadmin.h"
#include "storage/spin.h"
#include "utils/timestamp.h"

/* Facts that were not noted for so long make room for others */
#define SLOT_IDLE_MS	60000

/*
 * A refusal stands for so long, or so many times as long as it took to find
 * out, up to a limit
 */
#define REFUSAL_MS		10000
#define REFUSAL_TIMES	5
#define REFUSAL_MOST_MS	300000

/* What a measurement counts for, and bounds, as multiples of the constants */
#define WEIGHT			0.125
#define TRIP_LEAST		0.25
#define TRIP_MOST		2.0
#define RANK_LEAST		(1.0 / 32)
#define RANK_MOST		4.0

/* Ranking fewer rows is not measured */
#define RANKED_ROWS		5000

/*
 * Mean numbers of ids between which ranking a row takes proportionally long
 */
#define IDS_LEAST		5.0
#define IDS_MOST		1000.0

#define FACTS_GROUPS	16
#define FACTS_PER_GROUP 8

typedef struct FactsSlot
{
	slock_t		mutex;			/* protects all below */
	FactsKey	key;			/* database 0: the slot is free */
	Facts		facts;
} FactsSlot;

/* Slots for the keys of one hash */
typedef struct FactsGroup
{
	slock_t		mutex;			/* protects taking slots */
	bool		overflown;		/* some facts have been given up */
	FactsSlot	slots[FACTS_PER_GROUP];
} FactsGroup;

typedef struct FactsTable
{
	slock_t		mutex;			/* protects trip */
	double		trip;			/* operators that take as long as a trip to
								 * the engine */
	FactsGroup	groups[FACTS_GROUPS];
} FactsTable;

static inline double
clamp(double value, double least, double most)
{
	return value < least ? least : value > most ? most : value;
}

/* Fill the table */
static void
init_facts(void *part)
{
	FactsTable *table = part;

	SpinLockInit(&table->mutex);
	table->trip = FACTS_TRIP_OPERATORS;
	for (int g = 0; g < FACTS_GROUPS; g++)
	{
		SpinLockInit(&table->groups[g].mutex);
		for (int i = 0; i < FACTS_PER_GROUP; i++)
			SpinLockInit(&table->groups[g].slots[i].mutex);
	}
}

static GpuvecSharedPart facts_part = {.size = sizeof(FactsTable), .init = init_facts};

void
FactsInit(void)
{
	GpuvecSharedAsk(&facts_part);
}

/* The table; NULL: there is no shared memory */
static FactsTable *
facts_table(void)
{
	return GpuvecSharedFind(GpuvecSharedState(), &facts_part);
}

/*
 * The key of a mirror; false: nobody plans with it, for only shared ones of
 * sets have costs
 */
static bool
facts_key(const gpuvec_mirror_key *mirror, FactsKey *key)
{
	memset(key, 0, sizeof(*key));
	key->database = mirror->database;
	key->relation = mirror->relation;
	key->relfilenumber = mirror->relfilenumber;
	key->index = mirror->index;
	key->attnum = mirror->attnum;
	key->rooted = mirror->rooted;
	key->key_attnum = mirror->key_attnum;
	key->storage = mirror->storage;
	return mirror->private_id == 0 && mirror->key_attnum == 0;
}

/*
 * The slots that facts of this key may be in; NULL: there is no shared memory
 */
static FactsGroup *
facts_group(const FactsKey *key)
{
	FactsTable *table = facts_table();

	if (table == NULL)
		return NULL;
	return &table->groups[hash_bytes((const unsigned char *) key, sizeof(*key)) % FACTS_GROUPS];
}

/*
 * Is the slot that of this key?  Without its lock the answer may be out of
 * date.
 */
static bool
slot_has(const FactsSlot *slot, const FactsKey *key)
{
	return memcmp(&slot->key, key, sizeof(*key)) == 0;
}

/* The slot of a key, locked, or NULL */
static FactsSlot *
lock_slot(FactsGroup *group, const FactsKey *key)
{
	for (int i = 0; group != NULL && i < FACTS_PER_GROUP; i++)
	{
		FactsSlot  *slot = &group->slots[i];

		if (!slot_has(slot, key))
			continue;
		SpinLockAcquire(&slot->mutex);
		if (slot_has(slot, key))
			return slot;
		SpinLockRelease(&slot->mutex);
	}
	return NULL;
}

/* Has the engine that runs now got the mirror? */
bool
FactsResident(const Facts *facts)
{
	GpuvecShared *state = GpuvecSharedState();

	/* a single word, which may be out of date like all else */
	return state != NULL && facts->engine != 0 && facts->engine == state->engine_pid;
}

/* May others have the slot of these facts? */
static bool
is_dispensable(const Facts *facts, TimestampTz now)
{
	return !FactsResident(facts) || now - facts->used > INT64CONST(1000) * SLOT_IDLE_MS;
}

/* The slot that new facts may take; the group is locked */
static FactsSlot *
choose_slot(FactsGroup *group, TimestampTz now)
{
	FactsSlot  *best = NULL;

	for (int i = 0; i < FACTS_PER_GROUP; i++)
	{
		FactsSlot  *slot = &group->slots[i];

		if (slot->key.database == InvalidOid)
			return slot;
		if (is_dispensable(&slot->facts, now) &&
			(best == NULL || slot->facts.used < best->facts.used))
			best = slot;
	}
	group->overflown = true;
	return best;
}

/* Take a slot for facts that have none, if there is one to be had */
static void
take_slot(FactsGroup *group, const FactsKey *key, TimestampTz now)
{
	FactsSlot  *slot;

	SpinLockAcquire(&group->mutex);
	slot = lock_slot(group, key);
	if (slot == NULL && (slot = choose_slot(group, now)) != NULL)
	{
		SpinLockAcquire(&slot->mutex);
		slot->key = *key;
		memset(&slot->facts, 0, sizeof(slot->facts));
		slot->facts.used = now;
	}
	if (slot != NULL)
		SpinLockRelease(&slot->mutex);
	SpinLockRelease(&group->mutex);
}

/*
 * Operator calls that ranking a row of so many ids takes, unless it was
 * measured
 */
static double
usual_rank(const Facts *facts)
{
	double		ids = facts->rows > 0 ? (double) facts->ids / facts->rows : FACTS_RANK_IDS;

	return FACTS_RANK_OPERATORS * clamp(ids, IDS_LEAST, IDS_MOST) / FACTS_RANK_IDS;
}

/* The same, or what was measured */
double
FactsRankOperators(const Facts *facts)
{
	double		usual = usual_rank(facts);

	return facts->rank == 0 ? usual : clamp(facts->rank, usual * RANK_LEAST, usual * RANK_MOST);
}

/*
 * The slot of a key, locked, which it takes if it has none; NULL: there is no
 * room, or no shared memory
 */
static FactsSlot *
make_slot(const FactsKey *key, TimestampTz now)
{
	FactsGroup *group = facts_group(key);
	FactsSlot  *slot;

	if (group == NULL)
		return NULL;
	slot = lock_slot(group, key);
	if (slot == NULL)
	{
		take_slot(group, key, now);
		slot = lock_slot(group, key);
	}
	return slot;
}

void
FactsNoteState(const gpuvec_mirror_key *mirror, const gpuvec_state *state)
{
	TimestampTz now = GetCurrentStatementStartTimestamp();
	int			engine = state->state == GPUVEC_READY ? (int) GpuvecLinkEngine()->pid : 0;
	bool		gpu = strcmp(GpuvecLinkEngine()->backend, "cpu") != 0;
	FactsSlot  *slot;
	FactsKey	key;

	if (!facts_key(mirror, &key) || (slot = make_slot(&key, now)) == NULL)
		return;
	slot->facts.rows = state->nrows;
	slot->facts.ids = state->nids;
	slot->facts.nblocks = state->nblocks;
	slot->facts.engine = engine;
	slot->facts.gpu = gpu;
	slot->facts.used = now;
	slot->facts.refused_until = 0;
	SpinLockRelease(&slot->mutex);
}

/*
 * Take the operators that ranking all rows took into the average; gives what
 * is left of them
 */
static double
average_rank(Facts *facts, double engine)
{
	double		usual = usual_rank(facts);
	double		before = FactsRankOperators(facts);
	double		rank;

	facts->trips++;
	if (facts->rows < RANKED_ROWS)
		return Max(engine - before * facts->rows, 0.0);
	rank = clamp(engine / facts->rows, usual * RANK_LEAST, usual * RANK_MOST);
	facts->rank = before + (rank - before) * WEIGHT;
	return Max(engine - rank * facts->rows, 0.0);
}

/* A search took so long, of which the engine needed so much */
void
FactsNoteTrip(const gpuvec_mirror_key *mirror, double trip_us, double engine_us)
{
	FactsTable *table = facts_table();
	double		trip = Max(trip_us - engine_us, 0.0) * FACTS_OPERATORS_PER_US;
	FactsSlot  *slot;
	FactsKey	key;

	if (!facts_key(mirror, &key) || (slot = lock_slot(facts_group(&key), &key)) == NULL)
		return;
	trip += average_rank(&slot->facts, engine_us * FACTS_OPERATORS_PER_US);
	slot->facts.used = GetCurrentStatementStartTimestamp();
	SpinLockRelease(&slot->mutex);
	trip = clamp(trip, FACTS_TRIP_OPERATORS * TRIP_LEAST, FACTS_TRIP_OPERATORS * TRIP_MOST);
	SpinLockAcquire(&table->mutex);
	table->trip += (trip - table->trip) * WEIGHT;
	SpinLockRelease(&table->mutex);
}

/* Operator calls that a trip takes */
double
FactsTripOperators(void)
{
	FactsTable *table = facts_table();
	double		trip;

	if (table == NULL)
		return FACTS_TRIP_OPERATORS;
	SpinLockAcquire(&table->mutex);
	trip = table->trip;
	SpinLockRelease(&table->mutex);
	return trip;
}

/*
 * Mirrors of a column (0: of all) of a relation of a database were dropped,
 * or all there are (database 0)
 */
void
FactsNoteDropped(Oid database, Oid relation, AttrNumber attnum)
{
	FactsTable *table = facts_table();

	for (int i = 0; table != NULL && i < FACTS_GROUPS * FACTS_PER_GROUP; i++)
	{
		FactsSlot  *slot = &table->groups[i / FACTS_PER_GROUP].slots[i % FACTS_PER_GROUP];

		SpinLockAcquire(&slot->mutex);
		if (database == 0 ||
			(slot->key.database == database && slot->key.relation == relation &&
			 (attnum == 0 || slot->key.attnum == attnum)))
		{
			slot->facts.engine = 0;
			slot->facts.refused_until = 0;
		}
		SpinLockRelease(&slot->mutex);
	}
}

/*
 * An engine has no room for a mirror, as it turned out after an attempt that
 * began then; or it is lost each time, which the next one may be as well.
 */
void
FactsNoteRefusal(const gpuvec_mirror_key *mirror, int sqlerrcode, bool any_engine,
				 TimestampTz began)
{
	TimestampTz now = GetCurrentTimestamp();
	int64		stands = clamp((now - began) * REFUSAL_TIMES, INT64CONST(1000) * REFUSAL_MS,
							   INT64CONST(1000) * REFUSAL_MOST_MS);
	int			engine = any_engine ? 0 : (int) GpuvecLinkEngine()->pid;
	FactsSlot  *slot;
	FactsKey	key;

	(void) facts_key(mirror, &key);
	if ((slot = make_slot(&key, now)) == NULL)
		return;
	slot->facts.refused_until = now + stands;
	slot->facts.refused_by = engine;
	slot->facts.refusal = sqlerrcode;
	slot->facts.used = now;
	SpinLockRelease(&slot->mutex);
}

/* There is room for it after all, or somebody wants to know that at once */
void
FactsForgetRefusal(const gpuvec_mirror_key *mirror)
{
	FactsSlot  *slot;
	FactsKey	key;

	(void) facts_key(mirror, &key);
	if ((slot = lock_slot(facts_group(&key), &key)) == NULL)
		return;
	slot->facts.refused_until = 0;
	SpinLockRelease(&slot->mutex);
}

/* Does a refusal stand with this engine? */
static bool
refusal_stands(const Facts *facts, int engine, TimestampTz now)
{
	return now < facts->refused_until && (facts->refused_by == 0 || facts->refused_by == engine);
}

/* Is the mirror one that the engine that runs now has no room for? */
bool
FactsRefused(const Facts *facts)
{
	return facts->refused_until != 0 &&
		refusal_stands(facts, GpuvecSharedState()->engine_pid, GetCurrentTimestamp());
}

/*
 * May this session try to load or refresh a mirror?  If there was a refusal,
 * which does not stand any more, *claim (0 before the first call) is how its
 * later calls are known.  If that was this engine's, the others are to leave
 * it to this session for now.
 */
bool
FactsMayTry(const gpuvec_mirror_key *mirror, TimestampTz *claim, int *sqlerrcode)
{
	TimestampTz now = GetCurrentTimestamp();
	int			engine = (int) GpuvecLinkEngine()->pid;
	bool		may = true;
	FactsSlot  *slot;
	Facts	   *facts;
	FactsKey	key;

	(void) facts_key(mirror, &key);
	if ((slot = lock_slot(facts_group(&key), &key)) == NULL)
		return true;
	facts = &slot->facts;
	if (facts->refused_until != 0 && facts->refused_until != *claim)
	{
		may = !refusal_stands(facts, engine, now);
		if (may && (facts->refused_by == 0 || facts->refused_by == engine))
			facts->refused_until = now + INT64CONST(1000) * REFUSAL_MS;
		if (may)
			*claim = facts->refused_until;
		*sqlerrcode = facts->refusal;
	}
	SpinLockRelease(&slot->mutex);
	return may;
}

FactsKnown
FactsRead(const FactsKey *key, Facts *facts)
{
	FactsGroup *group = facts_group(key);
	FactsSlot  *slot = lock_slot(group, key);

	/*
	 * without shared memory nobody has searched yet, unless it is we who
	 * cannot use it
	 */
	if (group == NULL)
		return GpuvecSharedTrouble() ? FACTS_LOST : FACTS_NONE;
	if (slot == NULL)
		return group->overflown ? FACTS_LOST : FACTS_NONE;
	*facts = slot->facts;
	SpinLockRelease(&slot->mutex);
	return FACTS_KNOWN;
}

bool
FactsSlotRead(int n, FactsKey *key, Facts *facts, bool *used)
{
	FactsTable *table = facts_table();
	FactsSlot  *slot;

	if (table == NULL || n >= FACTS_GROUPS * FACTS_PER_GROUP)
		return false;
	slot = &table->groups[n / FACTS_PER_GROUP].slots[n % FACTS_PER_GROUP];
	SpinLockAcquire(&slot->mutex);
	*key = slot->key;
	*facts = slot->facts;
	SpinLockRelease(&slot->mutex);
	/* of an embedding table there is only a refusal */
	*used = key->database != InvalidOid && key->key_attnum == 0;
	return true;
}
