/*-------------------------------------------------------------------------
 *
 * log.h
 *	  The engine's log: lines on standard error, which the supervisor copies
 *	  to the server's log.
 *
 *-------------------------------------------------------------------------
 */
#ifndef GPUVEC_LOG_H
#define GPUVEC_LOG_H

/*
 * Write "LEVEL: message".  level is "DEBUG", "LOG", "WARNING" or "ERROR"; the
 * server's log has the first as DEBUG1.
 */
extern void gpuvec_log(const char *level, const char *format, ...)
			__attribute__((format(printf, 2, 3)));

/*
 * Make writes to a pipe nonblocking: if the pipe is full, lines are dropped
 */
extern void gpuvec_log_init(void);

#endif							/* GPUVEC_LOG_H */
