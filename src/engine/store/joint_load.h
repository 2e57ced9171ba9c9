/*-------------------------------------------------------------------------
 *
 * joint_load.h
 *	  Loads by several sessions, for the files of the store.
 *
 *-------------------------------------------------------------------------
 */
#ifndef GPUVEC_JOINT_LOAD_H
#define GPUVEC_JOINT_LOAD_H

#include "engine/store/mirror_kind.h"

/* Let others join a load that has begun */
extern bool gpuvec_joint_open(gpuvec_update *update, uint64_t number, gpuvec_error *error);

/*
 * Let nobody join any more, and drop all slices.  Whoever still sends one is
 * told so.  Does nothing if nobody could join.
 */
extern void gpuvec_joint_close(gpuvec_update *update);

/*
 * Make an update the slice of a load.  It gets no mirror if there is no such
 * load.  The caller holds the store's mutex.
 */
extern void gpuvec_joint_find(gpuvec_update *slice, const gpuvec_load_join *join,
							  const void *session);

/*
 * hang_up(session) for those that send slices of the load of this mirror, if
 * others may join it; returns their number.  The caller holds the store's
 * mutex.
 */
extern uint64_t gpuvec_joint_hang_up(const gpuvec_mirror *mirror,
									 void (*hang_up) (const void *session));

/* End and free a slice that was not handed over */
extern void gpuvec_joint_lose(gpuvec_update *slice);

/* Charge what this session, and all others, have sent */
extern bool gpuvec_joint_charge(gpuvec_update *update, gpuvec_error *error);

/*
 * Add all slices to a load that others may join, before it is committed: pages
 * of [0, nblocks), each of which was sent once.  False if a slice has failed.
 * Then charge what the load has: it is one of a single session.
 */
extern bool gpuvec_joint_gather(gpuvec_update *update, uint32_t nblocks, gpuvec_error *error);

#endif							/* GPUVEC_JOINT_LOAD_H */
