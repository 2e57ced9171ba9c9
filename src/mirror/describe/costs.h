/*-------------------------------------------------------------------------
 *
 * costs.h
 *	  What loads and searches tell the planner about mirrors.
 *
 *-------------------------------------------------------------------------
 */
#ifndef GPUVEC_COSTS_H
#define GPUVEC_COSTS_H

#include "postgres.h"

#include "core/protocol_mirrors.h"
#include "storage/block.h"

/*
 * Facts are of the file of a table, and the column or index that is mirrored
 */
typedef struct CostsKey
{
	Oid			database;
	Oid			relation;
	Oid			relfilenumber;	/* of the table */
	Oid			index;			/* the index whose rows are mirrored, or 0 */
	int32		attnum;			/* 0: an expression of the index */
	uint32		rooted;			/* 1: a rooted mirror (mirror.h) */
	int32		key_attnum;		/* key column of an embedding table, or 0 */
	uint32		storage;		/* gpuvec_storage of its vectors */
	uint32		nfilters;		/* number of filter columns */
} CostsKey;

/* The costs of a mirror */
typedef struct Costs
{
	uint64		rows;			/* of the mirror */
	uint64		ids;			/* of all these rows */
	BlockNumber nblocks;		/* of the table, when rows was noted */
	int			engine;			/* pid of the engine that has the mirror; 0:
								 * none */
	bool		gpu;			/* that engine uses a GPU */
	double		rank;			/* operator calls for ranking a row; 0: not
								 * measured */
	uint64		trips;			/* searches that were timed */
	uint64		waits;			/* searches that had to wait until the mirror
								 * was fresh ... */
	uint64		wait_us;		/* ... and how long all of them waited */
	int64		used;			/* when costs were last noted, of
								 * gpuvec_clock_us() */
	int64		refused_until;	/* a refusal stands until then, of the same
								 * clock; 0: there is none */
	int			refused_by;		/* pid of the engine that refused; 0: any
								 * engine */
	int			refusal;		/* SQLSTATE of the refusal */
} Costs;

typedef enum CostsKnown
{
	COSTS_KNOWN,
	COSTS_NONE,					/* nobody has used the mirror since the server
								 * started */
	COSTS_LOST					/* unknown: costs may have been given up */
} CostsKnown;

/* Operator calls that take as long as */
#define COSTS_TRIP_OPERATORS	10000.0 /* a round trip to the engine */
#define COSTS_RANK_OPERATORS	0.025	/* a row of COSTS_RANK_IDS ids */
#define COSTS_RANK_IDS			50.0
#define COSTS_WEIGH				100.0	/* what ranking a row by weights takes
										 * more, in rankings by a set */
#define COSTS_WEIGH_GPU			1.0 /* the same on a GPU: an estimate */

/* Operator calls per microsecond, on the machine of the measurements */
#define COSTS_OPERATORS_PER_US	100.0

/* Ask for the shared memory of costs */
extern void CostsInit(void);

/* After a mirror was loaded, refreshed, searched or dropped */
extern void CostsNoteState(const gpuvec_mirror_key *mirror, const gpuvec_state *state);
extern void CostsNoteTrip(const gpuvec_mirror_key *mirror, double trip_us, double engine_us);
extern void CostsNoteWait(const gpuvec_mirror_key *mirror, uint64 wait_us);
extern void CostsNoteDropped(Oid database, Oid relation, AttrNumber attnum);

/* Before an attempt to load or refresh a mirror, and after it failed */
extern void CostsNoteRefusal(const gpuvec_mirror_key *mirror, int sqlerrcode, bool any_engine,
							 int64 began);
extern void CostsForgetRefusal(const gpuvec_mirror_key *mirror);
extern bool CostsMayTry(const gpuvec_mirror_key *mirror, int64 *claim, int *sqlerrcode);

/* For the planner */
extern CostsKnown CostsRead(const CostsKey *key, Costs *costs);
extern double CostsTripOperators(void);
extern double CostsRankOperators(const Costs *costs);
extern double CostsWeighOperators(const Costs *costs);
extern bool CostsResident(const Costs *costs);
extern bool CostsRefused(const Costs *costs);

/* For the monitoring views.  CostsFind() is false if there are none. */
extern bool CostsFind(const gpuvec_mirror_key *mirror, Costs *costs);

/* Read slot n.  *used: the slot has costs.  False: there is no slot n. */
extern bool CostsSlotRead(int n, CostsKey *key, Costs *costs, bool *used);

#endif							/* GPUVEC_COSTS_H */
