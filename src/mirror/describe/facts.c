/*-------------------------------------------------------------------------
 *
 * facts.c
 *	  What loads and searches tell the planner about mirrors.
 *
 * The planner never asks the engine.  So sessions leave what it needs in a
 * small table in shared memory: how many rows and ids a mirror has, whether
 * it is resident, and how long round trips take.  All of it is for estimates:
 * nothing here has to be exact, so nobody waits for it.  Sessions write after
 * a load or refresh, and after a search that found the mirror in another
 * state than their last search.  They time one search in TIMED_EVERY
 * (known.c).  A search pays about 10 ns for all this.
 *
 * Times are kept as operator calls, like costs, at a fixed rate.  A slower
 * machine changes all costs alike, and the planner only compares them.  A
 * search's time is split.  What the engine needed, within bounds, counts as
 * ranking the rows; the rest counts as the round trip.  Round trips are the
 * same for all mirrors, so all have one average.  Otherwise the choice
 * between two indexes could depend on when they were last used.  Ranking
 * depends on the lengths of sets and lists, so each mirror has its own
 * average.  It is measured for mirrors of at least RANKED_ROWS rows: ranking
 * fewer cannot be told from a round trip.  Timed are only single queries for
 * few rows, of a mirror that was fresh: no loads, no batches of queries, and
 * not the first search of a session.
 *
 * Averages begin with the constants that cost.c takes without facts.  A
 * measurement has the weight 1/8, and is clamped first: a round trip to
 * between 1/4 of the constant and twice the constant, ranking a row to
 * between 1/32 (a GPU) and four times.  So one slow answer, however slow,
 * adds at most 1/8 of the constant to a round trip.  What stays slow is
 * believed after some dozens of searches.  The upper bound of a round trip is
 * tight: round trips are mostly slow on a busy machine, where a scan and a
 * sort are slow, too.  Any value within the bounds leaves plans reasonable: a
 * round trip costs more than sorting 50 rows and less than sorting 10,000.
 * Only where two plans take about as long can the choice between them change.
 *
 * A mirror counts as resident if a session saw it in the engine that runs.
 * If the engine has evicted it since, for want of memory, the next search
 * notices, and loads it again.
 *
 * If an engine has no room for a mirror, that is noted as well: a refusal.
 * While it stands, the planner knows that an index scan would scan and sort,
 * and no session reads half of the table just to be refused again.  A refusal
 * stands for ten seconds, or longer if it took longer to find out.  It ends
 * with its engine, as the next engine may have other settings.  When it has
 * expired, one search tries again; until that search has a result, the
 * refusal stands for the others.  (If engines die of a mirror, the refusal
 * stands for any engine.)
 *
 * Searches that had to wait until a mirror was fresh are counted here as
 * well, for the view gpuvec_mirrors.  The planner does not use that.
 *
 * Slots are in groups by hash, which are searched without locks.  If a group
 * has no free slot, new facts replace those of a mirror that is not resident,
 * or those that were not noted for a minute, as happens to the facts of
 * dropped tables.  If there is no such slot, nothing is noted.  From then on,
 * mirrors of this group that have no facts do not count as never used.  A
 * restart loses all facts, together with the engine.  The first search makes
 * the shared memory.  Before that no mirror has been used, and a round trip
 * takes what the constant says.
 *
 *-------------------------------------------------------------------------
 */
#include "gpuvec.h"

#include "common/hashfn.h"
#include "core/clock.h"
#include "link/engine_link.h"
#include "link/shared.h"
#include "mirror/describe/facts.h"
#include "miscadmin.h"
#include "storage/spin.h"

/* Facts that were not noted for this long may be replaced */
#define SLOT_IDLE_MS	60000

/*
 * A refusal stands for REFUSAL_TIMES as long as it took to find out, but at
 * least REFUSAL_MS, and at most REFUSAL_MOST_MS
 */
#define REFUSAL_MS		10000
#define REFUSAL_TIMES	5
#define REFUSAL_MOST_MS	300000

/* Weight of a measurement, and its bounds as multiples of the constants */
#define WEIGHT			0.125
#define TRIP_LEAST		0.25
#define TRIP_MOST		2.0
#define RANK_LEAST		(1.0 / 32)
#define RANK_MOST		4.0

/* Ranking is measured only for mirrors of at least this many rows */
#define RANKED_ROWS		5000

/*
 * Between these mean numbers of ids, ranking a row takes time in proportion
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

/* Slots for the keys of one hash value */
typedef struct FactsGroup
{
	slock_t		mutex;			/* protects taking slots */
	bool		overflown;		/* facts may have been given up */
	FactsSlot	slots[FACTS_PER_GROUP];
} FactsGroup;

typedef struct FactsTable
{
	slock_t		mutex;			/* protects trip */
	double		trip;			/* operator calls that take as long as a round
								 * trip */
	FactsGroup	groups[FACTS_GROUPS];
} FactsTable;

static inline double
clamp(double value, double least, double most)
{
	return value < least ? least : value > most ? most : value;
}

/* Initialize the table */
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
 * Make the key of a mirror.  False: the planner does not use the mirror, as
 * only shared mirrors of sets have costs.
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
	key->nfilters = mirror->nfilters;
	return mirror->private_id == 0 && mirror->key_attnum == 0;
}

/*
 * The slots that may have facts of this key; NULL: there is no shared memory
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
 * True if the slot has this key.  Without the slot's lock the answer may be
 * out of date.
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

/* True if the engine that runs has the mirror */
bool
FactsResident(const Facts *facts)
{
	GpuvecShared *state = GpuvecSharedState();

	/* a single word, read without a lock: it may be out of date */
	return state != NULL && facts->engine != 0 && facts->engine == state->engine_pid;
}

/* True if new facts may replace these */
static bool
is_dispensable(const Facts *facts, int64 now)
{
	return !FactsResident(facts) || now - facts->used > INT64CONST(1000) * SLOT_IDLE_MS;
}

/* The slot that new facts may take, or NULL; the group is locked */
static FactsSlot *
choose_slot(FactsGroup *group, int64 now)
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

/* Take a slot for a key that has none, if one is available */
static void
take_slot(FactsGroup *group, const FactsKey *key, int64 now)
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
 * Operator calls that ranking a row takes, estimated from the mean number of
 * ids
 */
static double
usual_rank(const Facts *facts)
{
	double		ids = facts->rows > 0 ? (double) facts->ids / facts->rows : FACTS_RANK_IDS;

	return FACTS_RANK_OPERATORS * clamp(ids, IDS_LEAST, IDS_MOST) / FACTS_RANK_IDS;
}

/* Operator calls that ranking a row takes: measured, or else estimated */
double
FactsRankOperators(const Facts *facts)
{
	double		usual = usual_rank(facts);

	return facts->rank == 0 ? usual : clamp(facts->rank, usual * RANK_LEAST, usual * RANK_MOST);
}

/*
 * The slot of a key, locked; takes one if the key has none.  NULL: there is
 * no room, or no shared memory.
 */
static FactsSlot *
make_slot(const FactsKey *key, int64 now)
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
	int64		now = gpuvec_clock_us();
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
 * Take the operator calls that ranking all rows took into the average.
 * Returns the calls that do not count as ranking.
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

/* A search took trip_us, of which the engine needed engine_us */
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
	slot->facts.used = gpuvec_clock_us();
	SpinLockRelease(&slot->mutex);
	trip = clamp(trip, FACTS_TRIP_OPERATORS * TRIP_LEAST, FACTS_TRIP_OPERATORS * TRIP_MOST);
	SpinLockAcquire(&table->mutex);
	table->trip += (trip - table->trip) * WEIGHT;
	SpinLockRelease(&table->mutex);
}

/* A search had to wait until the mirror was fresh */
void
FactsNoteWait(const gpuvec_mirror_key *mirror, uint64 wait_us)
{
	FactsSlot  *slot;
	FactsKey	key;

	if (!facts_key(mirror, &key) || (slot = lock_slot(facts_group(&key), &key)) == NULL)
		return;
	slot->facts.waits++;
	slot->facts.wait_us += wait_us;
	SpinLockRelease(&slot->mutex);
}

/* Operator calls that take as long as a round trip, on average */
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
 * Mirrors were dropped: of a column (0: of all columns) of a relation, or all
 * mirrors (database 0)
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
 * An engine has no room for a mirror, as an attempt showed that began at
 * `began`.  Or (any_engine) engines die of the mirror, and the next one may
 * as well.
 */
void
FactsNoteRefusal(const gpuvec_mirror_key *mirror, int sqlerrcode, bool any_engine,
				 int64 began)
{
	int64		now = gpuvec_clock_us();
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

/* There is room for the mirror after all, or a user wants to try at once */
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

/* True if a refusal stands with this engine */
static bool
refusal_stands(const Facts *facts, int engine, int64 now)
{
	return now < facts->refused_until && (facts->refused_by == 0 || facts->refused_by == engine);
}

/* True if the engine that runs has refused the mirror */
bool
FactsRefused(const Facts *facts)
{
	return facts->refused_until != 0 &&
		refusal_stands(facts, GpuvecSharedState()->engine_pid, gpuvec_clock_us());
}

/*
 * True if this session may try to load or refresh a mirror.  When a refusal
 * has expired, *claim (0 before the first call) identifies the later calls of
 * this session.  If the refusal was by this engine, it stands for the other
 * sessions for another REFUSAL_MS, so that they leave the attempt to this
 * session.  *sqlerrcode: that of the refusal.
 */
bool
FactsMayTry(const gpuvec_mirror_key *mirror, int64 *claim, int *sqlerrcode)
{
	int64		now = gpuvec_clock_us();
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
	 * without shared memory no session has searched yet, unless only this
	 * process cannot use it
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
FactsFind(const gpuvec_mirror_key *mirror, Facts *facts)
{
	FactsKey	key;

	return facts_key(mirror, &key) && FactsRead(&key, facts) == FACTS_KNOWN;
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
	/* for an embedding table only refusals are kept */
	*used = key->database != InvalidOid && key->key_attnum == 0;
	return true;
}
