/*-------------------------------------------------------------------------
 *
 * frames.h
 *	  Reading frames from connections, and writing them.
 *
 *-------------------------------------------------------------------------
 */
#ifndef GPUVEC_FRAMES_H
#define GPUVEC_FRAMES_H

#include <sys/uio.h>

#include "core/protocol.h"
#include "engine/engine_error.h"

/*
 * Bytes that are read with those before, for the next read: a small request
 * takes one system call.  Larger ones are read to where they belong.
 */
#define GPUVEC_EARLY_BYTES	4096

/* Reads from a connection */
typedef struct gpuvec_reader
{
	int			fd;
	size_t		nearly;			/* bytes in early[] that are not read yet */
	size_t		next_early;		/* where they begin */
	char		early[GPUVEC_EARLY_BYTES];
} gpuvec_reader;

/* All of these functions return false if the connection is closed */

/* Read exactly size bytes; read and discard size bytes */
extern bool gpuvec_read_bytes(gpuvec_reader *reader, void *to, size_t size);
extern bool gpuvec_skip_bytes(gpuvec_reader *reader, size_t size);

/* True if bytes can be read without waiting, or the connection is closed */
extern bool gpuvec_can_read(gpuvec_reader *reader);

#define GPUVEC_MOST_PIECES	4

/*
 * Answer a request with up to GPUVEC_MOST_PIECES; with one struct; with an
 * error.
 * retry: the session should try again, perhaps with a new engine.
 */
extern bool gpuvec_send_frame(int fd, uint64_t request, gpuvec_message type,
							  const struct iovec *pieces, int n);
extern bool gpuvec_send_struct(int fd, uint64_t request, gpuvec_message type, const void *data,
							   size_t size);
extern bool gpuvec_send_error(int fd, uint64_t request, const gpuvec_error *error, bool retry);

#endif							/* GPUVEC_FRAMES_H */
