/*-------------------------------------------------------------------------
 *
 * options.h
 *	  The engine's command line.
 *
 *-------------------------------------------------------------------------
 */
#ifndef GPUVEC_OPTIONS_H
#define GPUVEC_OPTIONS_H

#include <stdbool.h>
#include <stdint.h>

#define GPUVEC_MAX_DEVICES	64

typedef struct gpuvec_engine_options
{
	int			listen_fd;		/* -1: listen on `socket` */
	int			liveness_fd;	/* -1: none; the engine exits when the other
								 * end is closed */
	const char *socket;
	uint8_t		incarnation[16];
	char		backend[8];		/* auto, cuda, cpu */
	int			devices[GPUVEC_MAX_DEVICES];
	int			ndevices;
	bool		all_devices;	/* all GPUs; the list counts for nothing */
	int			without[GPUVEC_MAX_DEVICES];	/* devices that have failed */
	int			nwithout;
	bool		probe;			/* only find out whether one of these can be
								 * used again */
	int			cpu_parts;		/* devices that the CPU pretends to be */
	uint64_t	memory_mb;		/* per device; 0: choose from the memory there
								 * is */
	uint64_t	host_mb;		/* host memory for what devices have no room
								 * for; 0: none */
	int			cpu_threads;	/* 0: all cores */
	int			max_sessions;
} gpuvec_engine_options;

/*
 * Parse the command line.  Exits, with a message, if it is wrong, and after
 * --help and --version.
 */
extern void gpuvec_parse_options(gpuvec_engine_options *options, int argc, char **argv);

/* True if the device of this number has failed */
extern bool gpuvec_is_without(const gpuvec_engine_options *options, int number);

#endif							/* GPUVEC_OPTIONS_H */
