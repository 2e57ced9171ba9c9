/*-------------------------------------------------------------------------
 *
 * settings.h
 *	  The extension's settings.
 *
 * They are declared here, not in the modules that read them: several modules
 * read most of them, and users look for one list.
 *
 *-------------------------------------------------------------------------
 */
#ifndef GPUVEC_SETTINGS_H
#define GPUVEC_SETTINGS_H

#include "postgres.h"

/* Values of gpuvec.engine */
typedef enum GpuvecEngineKind
{
	GPUVEC_ENGINE_AUTO,
	GPUVEC_ENGINE_CUDA,
	GPUVEC_ENGINE_CPU
} GpuvecEngineKind;

extern int	gpuvec_engine;		/* GpuvecEngineKind */
extern char *gpuvec_devices;
extern int	gpuvec_device_memory;	/* MB, 0 = choose */
extern int	gpuvec_host_memory; /* MB */
extern int	gpuvec_cpu_threads; /* 0 = all cores */
extern int	gpuvec_max_sessions;
extern char *gpuvec_engine_program; /* "" = bindir/gpuvec-engine */
extern bool gpuvec_verify;
extern int	gpuvec_method_choice;	/* gpuvec_method */
extern int	gpuvec_ahead_rows;
extern int	gpuvec_vector_storage;	/* gpuvec_storage */
extern bool gpuvec_autoprewarm;
extern int	gpuvec_join_rows;	/* most rows of a join whose searches are
								 * asked for together */
extern bool gpuvec_own_connections; /* of searches on other servers */
extern int	gpuvec_hedging_delay;	/* ms; 0: never */
extern int	gpuvec_ahead_rows;	/* most handed-over rows that a search ranks
								 * itself */

/* Called once, when the library is loaded */
extern void GpuvecDefineSettings(void);

#endif							/* GPUVEC_SETTINGS_H */
