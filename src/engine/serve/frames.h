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

/* All of these functions return false if the connection is closed */

/* Read exactly size bytes; read and discard size bytes */
extern bool gpuvec_read_bytes(int fd, void *to, size_t size);
extern bool gpuvec_skip_bytes(int fd, size_t size);

/*
 * Answer a request with up to 3 pieces; with one struct; with an error.
 * retry: the session should try again, perhaps with a new engine.
 */
extern bool gpuvec_send_frame(int fd, uint64_t request, gpuvec_message type,
							  const struct iovec *pieces, int n);
extern bool gpuvec_send_struct(int fd, uint64_t request, gpuvec_message type, const void *data,
							   size_t size);
extern bool gpuvec_send_error(int fd, uint64_t request, const gpuvec_error *error, bool retry);

#endif							/* GPUVEC_FRAMES_H */
