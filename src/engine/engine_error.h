/*-------------------------------------------------------------------------
 *
 * engine_error.h
 *	  How the engine's functions report errors.
 *
 * A function that can fail takes a gpuvec_error.  On failure it fills it and
 * returns false or NULL.  The session raises the fields with ereport(ERROR).
 *
 *-------------------------------------------------------------------------
 */
#ifndef GPUVEC_ENGINE_ERROR_H
#define GPUVEC_ENGINE_ERROR_H

#include <stdbool.h>
#include <stddef.h>

typedef struct gpuvec_error
{
	char		sqlstate[6];
	bool		fatal;			/* the backend is unusable: the engine must
								 * exit */
	int			device;			/* if fatal: number + 1 of the one of several
								 * devices that failed; 0: not known */
	bool		fallback;		/* the session can answer without the engine */
	char		message[256];
	char		detail[256];
	char		hint[256];
} gpuvec_error;

#define GPUVEC_OUT_OF_MEMORY		"53200"
#define GPUVEC_NO_RESOURCES			"53000"
#define GPUVEC_PROTOCOL_VIOLATION	"08P01"
#define GPUVEC_OBJECT_IN_USE		"55006"
#define GPUVEC_TOO_MANY_SESSIONS	"53300"
#define GPUVEC_SYSTEM_ERROR			"58000"
#define GPUVEC_LIMIT_EXCEEDED		"54000"
#define GPUVEC_OUT_OF_RANGE			"22003"

#ifdef __cplusplus
extern "C"
{
#endif

/*
 * Fill *error and return false.  detail and hint may be NULL.  Sets
 * error->fallback for GPUVEC_OUT_OF_MEMORY and GPUVEC_LIMIT_EXCEEDED.
 */
extern bool gpuvec_fail(gpuvec_error *error, const char *sqlstate,
						const char *detail, const char *hint,
						const char *format, ...)
#ifdef __GNUC__
			__attribute__((format(printf, 5, 6)))
#endif
		   ;

extern bool gpuvec_fail_memory(gpuvec_error *error, size_t bytes);

/* True if memory was lacking, and the backend is usable */
extern bool gpuvec_lacks_memory(const gpuvec_error *error);

#ifdef __cplusplus
}
#endif

#endif							/* GPUVEC_ENGINE_ERROR_H */
