/*-------------------------------------------------------------------------
 *
 * protocol_monitor.h
 *	  Messages of what views show: mirrors, the engine, its devices.
 *
 * core/protocol.h has the rules of all messages.
 *
 *-------------------------------------------------------------------------
 */
#ifndef GPUVEC_PROTOCOL_MONITOR_H
#define GPUVEC_PROTOCOL_MONITOR_H

#include <stdint.h>

#include "core/protocol_mirrors.h"

typedef struct gpuvec_mirror_info
{
	gpuvec_mirror_key key;
	uint32_t	state;			/* gpuvec_mirror_state */
	uint32_t	nsegments;
	uint32_t	pages_done;		/* while loading: heap pages received ... */
	uint32_t	pages_total;	/* ... of this many */
	uint64_t	nrows;
	uint64_t	nids;
	uint64_t	host_bytes;
	uint64_t	device_bytes;
	uint64_t	loads;
	uint64_t	refreshes;
	uint64_t	searches;		/* queries answered */
	uint64_t	checked;
	int64_t		last_use;		/* microseconds since the UNIX epoch */
	uint64_t	feed;
	uint64_t	applied;
	uint64_t	row_updates;	/* times that a feed's rows were applied ... */
	uint64_t	rows_applied;	/* ... and how many rows they brought */
	uint64_t	page_rows;		/* rows that refreshes brought, by pages */
} gpuvec_mirror_info;

typedef struct gpuvec_engine_info
{
	uint32_t	pid;
	uint32_t	connections;
	char		backend[16];
	char		device[128];	/* name of the GPU, or the instruction set */
	int32_t		capability;		/* compute capability * 10, 0 on the CPU */
	uint32_t	threads;
	uint64_t	memory_used;
	uint64_t	memory_budget;
	int64_t		started;		/* microseconds since the UNIX epoch */
	uint64_t	requests;		/* searches received */
	uint64_t	batches;		/* launches that served them */
	uint64_t	queries;		/* single queries in them */
	uint64_t	evictions;
} gpuvec_engine_info;

/* A device of the engine, or one that it was told to use and cannot */
typedef struct gpuvec_device_info
{
	int32_t		number;			/* gpuvec_place_info.device; -1: cannot be
								 * used */
	int32_t		gpu;			/* number of the GPU; -1: the CPU */
	char		backend[16];
	char		name[128];		/* of the GPU, or of the instruction set */
	char		last_error[256];	/* why it cannot be used, or empty */
	int32_t		capability;		/* compute capability * 10, 0 on the CPU */
	uint32_t	segments;
	uint64_t	rows;			/* of mirrors of sets */
	uint64_t	memory_total;	/* bytes, of the GPU or of the machine */
	uint64_t	memory_free;
	uint64_t	memory_used;	/* by mirrors */
	uint64_t	memory_budget;
	uint64_t	searches;		/* of batches of queries */
	uint64_t	queries;
	uint64_t	errors;			/* searches that failed */
	uint64_t	refused;		/* segments that it had no memory for */
	uint64_t	busy_us;		/* time of searches */
} gpuvec_device_info;

/* What a device holds of a mirror */
typedef struct gpuvec_place_info
{
	gpuvec_mirror_key key;
	int32_t		device;
	uint32_t	segments;
	uint64_t	rows;
	uint64_t	bytes;
} gpuvec_place_info;

#endif							/* GPUVEC_PROTOCOL_MONITOR_H */
