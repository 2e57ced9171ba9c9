/*-------------------------------------------------------------------------
 *
 * seats.h
 *	  Seats: how many sessions the engine serves, which idle session makes
 *	  room for a new one, and whether running requests make progress.
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
	GPUVEC_IDLE,				/* waiting for its next request */
	GPUVEC_TALKING,				/* reading a request or sending an answer; may
								 * wait for the other end, so it does not
								 * count as stuck */
	GPUVEC_WORKING,
	GPUVEC_UNSEATED				/* its seat was given away; its connection is
								 * closed */
} gpuvec_doing;

/* A session's right to its connection */
typedef struct gpuvec_seat
{
	int			fd;
	int			doing;			/* atomic: gpuvec_doing */
	bool		keeps;			/* atomic: keeps its seat, even if idle, or
								 * does not read an answer: it has state that
								 * would be lost */
	int64_t		since;			/* atomic: when it became idle, in ms */
	uint64_t	requests;		/* atomic: number of requests */
	struct gpuvec_seat *prev;	/* guarded by the mutex of seats.c */
	struct gpuvec_seat *next;
} gpuvec_seat;

/*
 * Take a seat for this thread's session.  If `most` seats are taken, the
 * session that has been idle longest loses its seat.  False if none can lose
 * it.
 */
extern bool gpuvec_seat_take(gpuvec_seat *seat, int fd, int most);
extern void gpuvec_seat_leave(gpuvec_seat *seat);

/*
 * Close the connection that has been idle longest; false if none may be
 * closed
 */
extern bool gpuvec_seat_give_away(void);

/* A request begins to arrive; false if the seat was given away */
extern bool gpuvec_seat_talk(gpuvec_seat *seat);

/* The request has arrived, and work on it begins */
extern void gpuvec_seat_work(gpuvec_seat *seat);

/* This thread begins to send an answer */
extern void gpuvec_seat_answer(void);

/*
 * For how many milliseconds the other end of this thread's session may read
 * nothing of an answer; -1: forever
 */
extern int	gpuvec_seat_patience(void);

/*
 * The session waits for its next request.  keeps: it keeps its seat while
 * idle.
 */
extern void gpuvec_seat_idle(gpuvec_seat *seat, bool keeps);

/*
 * True if no session works, or if their work makes progress.  To be called
 * about once a second, by one thread.
 */
extern bool gpuvec_seats_get_on(void);

#endif							/* GPUVEC_SEATS_H */
