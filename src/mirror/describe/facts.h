/*-------------------------------------------------------------------------
 *
 * facts.h
 *	  What loads and searches tell the planner about mirrors.
 *
 *-------------------------------------------------------------------------
 */
#ifndef GPUVEC_FACTS_H
#define GPUVEC_FACTS_H

#include "postgres.h"

#include "core/protocol_mirrors.h"
#include "storage/block.h"

/*
 * Facts are of the file of a table, and the column or index that is mirrored
 */
typedef struct FactsKey
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
} FactsKey;

/* The facts of a mirror */
typedef struct Facts
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
	int64		used;			/* when facts were last noted, of
								 * gpuvec_clock_us() */
	int64		refused_until;	/* a refusal stands until then, of the same
								 * clock; 0: there is none */
	int			refused_by;		/* pid of the engine that refused; 0: any
								 * engine */
	int			refusal;		/* SQLSTATE of the refusal */
} Facts;

typedef enum FactsKnown
{
	FACTS_KNOWN,
	FACTS_NONE,					/* nobody has used the mirror since the server
								 * started */
	FACTS_LOST					/* unknown: facts may have been given up */
} FactsKnown;

/* Operator calls that take as long as */
#define FACTS_TRIP_OPERATORS	10000.0 /* a round trip to the engine */
#define FACTS_RANK_OPERATORS	0.025	/* ranking a row of FACTS_RANK_IDS ids */
#define FACTS_RANK_IDS			50.0

/* Operator calls per microsecond, on the machine of the measurements */
#define FACTS_OPERATORS_PER_US	100.0

/* Ask for the shared memory of facts */
extern void FactsInit(void);

/* After a mirror was loaded, refreshed, searched or dropped */
extern void FactsNoteState(const gpuvec_mirror_key *mirror, const gpuvec_state *state);
extern void FactsNoteTrip(const gpuvec_mirror_key *mirror, double trip_us, double engine_us);
extern void FactsNoteWait(const gpuvec_mirror_key *mirror, uint64 wait_us);
extern void FactsNoteDropped(Oid database, Oid relation, AttrNumber attnum);

/* Before an attempt to load or refresh a mirror, and after it failed */
extern void FactsNoteRefusal(const gpuvec_mirror_key *mirror, int sqlerrcode, bool any_engine,
							 int64 began);
extern void FactsForgetRefusal(const gpuvec_mirror_key *mirror);
extern bool FactsMayTry(const gpuvec_mirror_key *mirror, int64 *claim, int *sqlerrcode);

/* For the planner */
extern FactsKnown FactsRead(const FactsKey *key, Facts *facts);
extern double FactsTripOperators(void);
extern double FactsRankOperators(const Facts *facts);
extern bool FactsResident(const Facts *facts);
extern bool FactsRefused(const Facts *facts);

/* For the monitoring views.  FactsFind() is false if there are no facts. */
extern bool FactsFind(const gpuvec_mirror_key *mirror, Facts *facts);

/* Read slot n.  *used: the slot has facts.  False: there is no slot n. */
extern bool FactsSlotRead(int n, FactsKey *key, Facts *facts, bool *used);

#endif							/* GPUVEC_FACTS_H */
