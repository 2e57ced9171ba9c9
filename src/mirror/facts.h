/*-------------------------------------------------------------------------
 *
 * facts.h
 *	  What loads and searches leave of a mirror for the planner.
 *
 *-------------------------------------------------------------------------
 */
#ifndef GPUVEC_FACTS_H
#define GPUVEC_FACTS_H

#include "postgres.h"

#include "core/protocol.h"
#include "datatype/timestamp.h"
#include "storage/block.h"

/*
 * What facts are of: the file of a table, and the column or index that is
 * mirrored
 */
typedef struct FactsKey
{
	Oid			database;
	Oid			relation;
	Oid			relfilenumber;	/* of the table */
	Oid			index;			/* if the mirror is that of one index, or 0 */
	int32		attnum;			/* 0: an expression of the index */
	uint32		rooted;			/* 1: a mirror of an indexed column, or of an
								 * index */
	int32		key_attnum;		/* of an embedding table, or 0 ... */
	uint32		storage;		/* ... and how its vectors are stored */
} FactsKey;

/* The facts of a mirror */
typedef struct Facts
{
	uint64		rows;			/* of the mirror */
	uint64		ids;			/* of these rows */
	BlockNumber nblocks;		/* of the table then */
	int			engine;			/* process that has the mirror; 0: none */
	bool		gpu;			/* on a GPU? */
	double		rank;			/* operators that take as long as ranking a
								 * row; 0: not measured */
	uint64		trips;			/* that were timed */
	TimestampTz used;			/* when they were last noted */
	TimestampTz refused_until;	/* when to try again to make or keep it; 0:
								 * nothing is known */
	int			refused_by;		/* process of the engine that has no room for
								 * it; 0: of any */
	int			refusal;		/* SQLSTATE */
} Facts;

typedef enum FactsKnown
{
	FACTS_KNOWN,
	FACTS_NONE,					/* nobody has used the mirror since the server
								 * started */
	FACTS_LOST					/* perhaps somebody has */
} FactsKnown;

/* Operator calls that take as long as: */
#define FACTS_TRIP_OPERATORS	10000.0 /* a trip to the engine */
#define FACTS_RANK_OPERATORS	0.025	/* ranking a row of ... */
#define FACTS_RANK_IDS			50.0	/* ... that many ids */

/* How many of them take a microsecond, where these numbers were measured */
#define FACTS_OPERATORS_PER_US	100.0

/* Ask for the shared memory of facts */
extern void FactsInit(void);

/* For whoever has loaded, refreshed, searched or dropped a mirror */
extern void FactsNoteState(const gpuvec_mirror_key *mirror, const gpuvec_state *state);
extern void FactsNoteTrip(const gpuvec_mirror_key *mirror, double trip_us, double engine_us);
extern void FactsNoteDropped(Oid database, Oid relation, AttrNumber attnum);

/* For whoever is about to load or refresh one, or could not */
extern void FactsNoteRefusal(const gpuvec_mirror_key *mirror, int sqlerrcode, bool any_engine,
							 TimestampTz began);
extern void FactsForgetRefusal(const gpuvec_mirror_key *mirror);
extern bool FactsMayTry(const gpuvec_mirror_key *mirror, TimestampTz *claim, int *sqlerrcode);

/* For the planner */
extern FactsKnown FactsRead(const FactsKey *key, Facts *facts);
extern double FactsTripOperators(void);
extern double FactsRankOperators(const Facts *facts);
extern bool FactsResident(const Facts *facts);
extern bool FactsRefused(const Facts *facts);

/*
 * For the view: the facts of slot n, if it has any; false: there is no such
 * slot
 */
extern bool FactsSlotRead(int n, FactsKey *key, Facts *facts, bool *used);

#endif							/* GPUVEC_FACTS_H */
