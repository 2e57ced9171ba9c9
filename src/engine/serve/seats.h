/*-------------------------------------------------------------------------
 *
 * seats.h
 *	  The sessions that the engine serves: who may come, who has to go, and
 *	  whether they get on.
 *
 *-------------------------------------------------------------------------
 */
#ifndef GPUVEC_SEATS_H
#define GPUVEC_SEATS_H

#include <stdbool.h>
#include <stdint.h>

/* What a session is doing */
typedef enum gpuvec_doing
{
	GPUVEC_IDLE,				/* nothing: its next request has not come */
	GPUVEC_TALKING,				/* the session may be what it waits for */
	GPUVEC_WORKING,
	GPUVEC_UNSEATED				/* its seat was given away */
} gpuvec_doing;

/* A session's right to its connection */
typedef struct gpuvec_seat
{
	int			fd;
	int			doing;			/* atomic: gpuvec_doing */
	bool		keeps;			/* atomic: it has something that would be lost */
	int64_t		since;			/* atomic: when it became idle, in ms */
	uint64_t	requests;		/* atomic: that it has made */
	struct gpuvec_seat *prev;	/* these are guarded by a mutex */
	struct gpuvec_seat *next;
} gpuvec_seat;

/*
 * Take a seat for this thread's session.  If there are `most` of them
 * already, the session that has been idle longest loses its own.  False: none
 * can go.
 */
extern bool gpuvec_seat_take(gpuvec_seat *seat, int fd, int most);
extern void gpuvec_seat_leave(gpuvec_seat *seat);

/* Close the connection that has been idle longest; false: none can go */
extern bool gpuvec_seat_give_away(void);

/* A request begins to come; false: the seat was given away before */
extern bool gpuvec_seat_talk(gpuvec_seat *seat);

/* It is there, and work begins */
extern void gpuvec_seat_work(gpuvec_seat *seat);

/* This thread begins to send an answer */
extern void gpuvec_seat_answer(void);

/*
 * Wait for the next request; `keeps`: this session has something that would
 * be lost
 */
extern void gpuvec_seat_idle(gpuvec_seat *seat, bool keeps);

/*
 * Is nobody at work, or does work get on?  To be asked about once a second,
 * by one thread.
 */
extern bool gpuvec_seats_get_on(void);

#endif							/* GPUVEC_SEATS_H */
