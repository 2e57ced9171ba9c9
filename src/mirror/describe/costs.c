/*-------------------------------------------------------------------------
 *
 * costs.c
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
 * Averages begin with the constants that cost.c takes without costs.  A
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
 * has no free slot, new costs replace those of a mirror that is not resident,
 * or those that were not noted for a minute, as happens to the costs of
 * dropped tables.  If there is no such slot, nothing is noted.  From then on,
 * mirrors of this group that have no costs do not count as never used.  A
 * restart loses all costs, together with the engine.  The first search makes
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
#include "mirror/describe/costs.h"
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

#define COSTS_GROUPS	64
#define COSTS_PER_GROUP 8

typedef struct CostsSlot
{
	slock_t		mutex;			/* protects all below */
	CostsKey	key;			/* database 0: the slot is free */
	Costs		costs;
} CostsSlot;

/* Slots for the keys of one hash value */
typedef struct CostsGroup
{
	slock_t		mutex;			/* protects taking slots */
	bool		overflown;		/* costs may have been given up */
	CostsSlot	slots[COSTS_PER_GROUP];
} CostsGroup;

typedef struct CostsTable
{
	slock_t		mutex;			/* protects trip */
	double		trip;			/* operator calls that take as long as a round
								 * trip */
	CostsGroup	groups[COSTS_GROUPS];
} CostsTable;

static inline double
clamp(double value, double least, double most)
{
	return value < least ? least : value > most ? most : value;
}

/* Initialize the table */
static void
init_costs(void *area)
{
	CostsTable *table = area;

	SpinLockInit(&table->mutex);
	table->trip = COSTS_TRIP_OPERATORS;
	for (int g = 0; g < COSTS_GROUPS; g++)
	{
		SpinLockInit(&table->groups[g].mutex);
		for (int i = 0; i < COSTS_PER_GROUP; i++)
			SpinLockInit(&table->groups[g].slots[i].mutex);
	}
}

static GpuvecSharedArea costs_area = {.size = sizeof(CostsTable), .init = init_costs};

void
CostsInit(void)
{
	GpuvecSharedAsk(&costs_area);
}

/* The table; NULL: there is no shared memory */
static CostsTable *
costs_table(void)
{
	return GpuvecSharedFind(GpuvecSharedState(), &costs_area);
}

/*
 * Make the key of a mirror.  False: the planner does not use the mirror, as
 * only shared mirrors of sets have costs.
 */
static bool
costs_key(const gpuvec_mirror_key *mirror, CostsKey *key)
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
 * The slots that may have costs of this key; NULL: there is no shared memory
 */
static CostsGroup *
costs_group(const CostsKey *key)
{
	CostsTable *table = costs_table();

	if (table == NULL)
		return NULL;
	return &table->groups[hash_bytes((const unsigned char *) key, sizeof(*key)) % COSTS_GROUPS];
}

/*
 * True if the slot has this key.  Without the slot's lock the answer may be
 * out of date.
 */
static bool
slot_has(const CostsSlot *slot, const CostsKey *key)
{
	return memcmp(&slot->key, key, sizeof(*key)) == 0;
}

/* The slot of a key, locked, or NULL */
static CostsSlot *
lock_slot(CostsGroup *group, const CostsKey *key)
{
	for (int i = 0; group != NULL && i < COSTS_PER_GROUP; i++)
	{
		CostsSlot  *slot = &group->slots[i];

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
CostsResident(const Costs *costs)
{
	GpuvecShared *state = GpuvecSharedState();

	/* a single word, read without a lock: it may be out of date */
	return state != NULL && costs->engine != 0 && costs->engine == state->engine_pid;
}

/* True if new costs may replace these */
static bool
is_dispensable(const Costs *costs, int64 now)
{
	return !CostsResident(costs) || now - costs->used > INT64CONST(1000) * SLOT_IDLE_MS;
}

/* The slot that new costs may take, or NULL; the group is locked */
static CostsSlot *
choose_slot(CostsGroup *group, int64 now)
{
	CostsSlot  *best = NULL;

	for (int i = 0; i < COSTS_PER_GROUP; i++)
	{
		CostsSlot  *slot = &group->slots[i];

		if (slot->key.database == InvalidOid)
			return slot;
		if (is_dispensable(&slot->costs, now) &&
			(best == NULL || slot->costs.used < best->costs.used))
			best = slot;
	}
	group->overflown = true;
	return best;
}

/* Take a slot for a key that has none, if one is available */
static void
take_slot(CostsGroup *group, const CostsKey *key, int64 now)
{
	CostsSlot  *slot;

	SpinLockAcquire(&group->mutex);
	slot = lock_slot(group, key);
	if (slot == NULL && (slot = choose_slot(group, now)) != NULL)
	{
		SpinLockAcquire(&slot->mutex);
		slot->key = *key;
		memset(&slot->costs, 0, sizeof(slot->costs));
		slot->costs.used = now;
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
usual_rank(const Costs *costs)
{
	double		ids = costs->rows > 0 ? (double) costs->ids / costs->rows : COSTS_RANK_IDS;

	return COSTS_RANK_OPERATORS * clamp(ids, IDS_LEAST, IDS_MOST) / COSTS_RANK_IDS;
}

/* Operator calls that ranking a row takes: measured, or else estimated */
double
CostsRankOperators(const Costs *costs)
{
	double		usual = usual_rank(costs);

	return costs->rank == 0 ? usual : clamp(costs->rank, usual * RANK_LEAST, usual * RANK_MOST);
}

/*
 * Operator calls that ranking a row by weights takes more, for its ids are
 * read.  That is not measured: what is known of a mirror is one mean for all
 * its searches.
 */
double
CostsWeighOperators(const Costs *costs)
{
	return usual_rank(costs) * (costs->gpu ? COSTS_WEIGH_GPU : COSTS_WEIGH);
}

/*
 * The slot of a key, locked; takes one if the key has none.  NULL: there is
 * no room, or no shared memory.
 */
static CostsSlot *
make_slot(const CostsKey *key, int64 now)
{
	CostsGroup *group = costs_group(key);
	CostsSlot  *slot;

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
CostsNoteState(const gpuvec_mirror_key *mirror, const gpuvec_state *state)
{
	int64		now = gpuvec_clock_us();
	int			engine = state->state == GPUVEC_READY ? (int) GpuvecLinkEngine()->pid : 0;
	bool		gpu = strcmp(GpuvecLinkEngine()->backend, "cpu") != 0;
	CostsSlot  *slot;
	CostsKey	key;

	if (!costs_key(mirror, &key) || (slot = make_slot(&key, now)) == NULL)
		return;
	slot->costs.rows = state->nrows;
	slot->costs.ids = state->nids;
	slot->costs.nblocks = state->nblocks;
	slot->costs.engine = engine;
	slot->costs.gpu = gpu;
	slot->costs.used = now;
	slot->costs.refused_until = 0;
	SpinLockRelease(&slot->mutex);
}

/*
 * Take the operator calls that ranking all rows took into the average.
 * Returns the calls that do not count as ranking.
 */
static double
average_rank(Costs *costs, double engine)
{
	double		usual = usual_rank(costs);
	double		before = CostsRankOperators(costs);
	double		rank;

	costs->trips++;
	if (costs->rows < RANKED_ROWS)
		return Max(engine - before * costs->rows, 0.0);
	rank = clamp(engine / costs->rows, usual * RANK_LEAST, usual * RANK_MOST);
	costs->rank = before + (rank - before) * WEIGHT;
	return Max(engine - rank * costs->rows, 0.0);
}

/* A search took trip_us, of which the engine needed engine_us */
void
CostsNoteTrip(const gpuvec_mirror_key *mirror, double trip_us, double engine_us)
{
	CostsTable *table = costs_table();
	double		trip = Max(trip_us - engine_us, 0.0) * COSTS_OPERATORS_PER_US;
	CostsSlot  *slot;
	CostsKey	key;

	if (!costs_key(mirror, &key) || (slot = lock_slot(costs_group(&key), &key)) == NULL)
		return;
	trip += average_rank(&slot->costs, engine_us * COSTS_OPERATORS_PER_US);
	slot->costs.used = gpuvec_clock_us();
	SpinLockRelease(&slot->mutex);
	trip = clamp(trip, COSTS_TRIP_OPERATORS * TRIP_LEAST, COSTS_TRIP_OPERATORS * TRIP_MOST);
	SpinLockAcquire(&table->mutex);
	table->trip += (trip - table->trip) * WEIGHT;
	SpinLockRelease(&table->mutex);
}

/* A search had to wait until the mirror was fresh */
void
CostsNoteWait(const gpuvec_mirror_key *mirror, uint64 wait_us)
{
	CostsSlot  *slot;
	CostsKey	key;

	if (!costs_key(mirror, &key) || (slot = lock_slot(costs_group(&key), &key)) == NULL)
		return;
	slot->costs.waits++;
	slot->costs.wait_us += wait_us;
	SpinLockRelease(&slot->mutex);
}

/* Operator calls that take as long as a round trip, on average */
double
CostsTripOperators(void)
{
	CostsTable *table = costs_table();
	double		trip;

	if (table == NULL)
		return COSTS_TRIP_OPERATORS;
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
CostsNoteDropped(Oid database, Oid relation, AttrNumber attnum)
{
	CostsTable *table = costs_table();

	for (int i = 0; table != NULL && i < COSTS_GROUPS * COSTS_PER_GROUP; i++)
	{
		CostsSlot  *slot = &table->groups[i / COSTS_PER_GROUP].slots[i % COSTS_PER_GROUP];

		SpinLockAcquire(&slot->mutex);
		if (database == 0 ||
			(slot->key.database == database && slot->key.relation == relation &&
			 (attnum == 0 || slot->key.attnum == attnum)))
		{
			slot->costs.engine = 0;
			slot->costs.refused_until = 0;
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
CostsNoteRefusal(const gpuvec_mirror_key *mirror, int sqlerrcode, bool any_engine,
				 int64 began)
{
	int64		now = gpuvec_clock_us();
	int64		stands = clamp((now - began) * REFUSAL_TIMES, INT64CONST(1000) * REFUSAL_MS,
							   INT64CONST(1000) * REFUSAL_MOST_MS);
	int			engine = any_engine ? 0 : (int) GpuvecLinkEngine()->pid;
	CostsSlot  *slot;
	CostsKey	key;

	(void) costs_key(mirror, &key);
	if ((slot = make_slot(&key, now)) == NULL)
		return;
	slot->costs.refused_until = now + stands;
	slot->costs.refused_by = engine;
	slot->costs.refusal = sqlerrcode;
	slot->costs.used = now;
	SpinLockRelease(&slot->mutex);
}

/* There is room for the mirror after all, or a user wants to try at once */
void
CostsForgetRefusal(const gpuvec_mirror_key *mirror)
{
	CostsSlot  *slot;
	CostsKey	key;

	(void) costs_key(mirror, &key);
	if ((slot = lock_slot(costs_group(&key), &key)) == NULL)
		return;
	slot->costs.refused_until = 0;
	SpinLockRelease(&slot->mutex);
}

/* True if a refusal stands with this engine */
static bool
refusal_stands(const Costs *costs, int engine, int64 now)
{
	return now < costs->refused_until && (costs->refused_by == 0 || costs->refused_by == engine);
}

/* True if the engine that runs has refused the mirror */
bool
CostsRefused(const Costs *costs)
{
	return costs->refused_until != 0 &&
		refusal_stands(costs, GpuvecSharedState()->engine_pid, gpuvec_clock_us());
}

/*
 * True if this session may try to load or refresh a mirror.  When a refusal
 * has expired, *claim (0 before the first call) identifies the later calls of
 * this session.  If the refusal was by this engine, it stands for the other
 * sessions for another REFUSAL_MS, so that they leave the attempt to this
 * session.  *sqlerrcode: that of the refusal.
 */
bool
CostsMayTry(const gpuvec_mirror_key *mirror, int64 *claim, int *sqlerrcode)
{
	int64		now = gpuvec_clock_us();
	int			engine = (int) GpuvecLinkEngine()->pid;
	bool		may = true;
	CostsSlot  *slot;
	Costs	   *costs;
	CostsKey	key;

	(void) costs_key(mirror, &key);
	if ((slot = lock_slot(costs_group(&key), &key)) == NULL)
		return true;
	costs = &slot->costs;
	if (costs->refused_until != 0 && costs->refused_until != *claim)
	{
		may = !refusal_stands(costs, engine, now);
		if (may && (costs->refused_by == 0 || costs->refused_by == engine))
			costs->refused_until = now + INT64CONST(1000) * REFUSAL_MS;
		if (may)
			*claim = costs->refused_until;
		*sqlerrcode = costs->refusal;
	}
	SpinLockRelease(&slot->mutex);
	return may;
}

CostsKnown
CostsRead(const CostsKey *key, Costs *costs)
{
	CostsGroup *group = costs_group(key);
	CostsSlot  *slot = lock_slot(group, key);

	/*
	 * without shared memory no session has searched yet, unless only this
	 * process cannot use it
	 */
	if (group == NULL)
		return GpuvecSharedLastError() ? COSTS_LOST : COSTS_NONE;
	if (slot == NULL)
		return group->overflown ? COSTS_LOST : COSTS_NONE;
	*costs = slot->costs;
	SpinLockRelease(&slot->mutex);
	return COSTS_KNOWN;
}

bool
CostsFind(const gpuvec_mirror_key *mirror, Costs *costs)
{
	CostsKey	key;

	return costs_key(mirror, &key) && CostsRead(&key, costs) == COSTS_KNOWN;
}

bool
CostsSlotRead(int n, CostsKey *key, Costs *costs, bool *used)
{
	CostsTable *table = costs_table();
	CostsSlot  *slot;

	if (table == NULL || n >= COSTS_GROUPS * COSTS_PER_GROUP)
		return false;
	slot = &table->groups[n / COSTS_PER_GROUP].slots[n % COSTS_PER_GROUP];
	SpinLockAcquire(&slot->mutex);
	*key = slot->key;
	*costs = slot->costs;
	SpinLockRelease(&slot->mutex);
	/* for an embedding table only refusals are kept */
	*used = key->database != InvalidOid && key->key_attnum == 0;
	return true;
}
