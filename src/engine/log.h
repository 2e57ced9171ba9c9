/*-------------------------------------------------------------------------
 *
 * log.h
 *	  The engine's log: lines on standard error, which the supervisor relays.
 *
 *-------------------------------------------------------------------------
 */
#ifndef GPUVEC_LOG_H
#define GPUVEC_LOG_H

/* Write "LEVEL: message".  level is "LOG", "WARNING" or "ERROR". */
extern void gpuvec_log(const char *level, const char *format, ...)
			__attribute__((format(printf, 2, 3)));

/* Lines are dropped, not waited for, when nobody reads them */
extern void gpuvec_log_init(void);

#endif							/* GPUVEC_LOG_H */
