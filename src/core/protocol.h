/*-------------------------------------------------------------------------
 *
 * protocol.h
 *	  The protocol between sessions and the engine, over a UNIX socket.
 *
 * Both ends run on one machine, so numbers and structs travel as they lie in
 * memory.  Every struct below has explicit padding and a size that is a
 * multiple of 8.  A frame is a gpuvec_frame header followed by `length`
 * bytes.  The header, GPUVEC_MSG_HELLO and GPUVEC_MSG_ERROR never change
 * their layout, so ends of different versions can tell each other.
 *
 * The engine serves the requests of a connection one after another and sends
 * one reply to each, in order.  A session may send several requests before it
 * reads the replies.  GPUVEC_MSG_PAGES and GPUVEC_MSG_REFRESH_PAGES have no
 * reply.  If something is wrong with pages, the engine sends one
 * GPUVEC_MSG_ERROR: at the next COMMIT or REFRESH, or earlier.  The session
 * must then close the connection.
 *
 * Closing a connection cancels its requests, drops an unfinished load or
 * refresh, and drops the session's private mirrors.
 *
 * The engine may close a connection that has no request under way and no
 * unfinished load or refresh.  A request that was sent at that moment has not
 * begun; the session sends it again over another connection.
 *
 * What follows a frame's header is in a header of each service:
 * protocol_mirrors.h, protocol_sets.h, protocol_vectors.h, protocol_als.h and
 * protocol_monitor.h.
 *
 *-------------------------------------------------------------------------
 */
#ifndef GPUVEC_PROTOCOL_H
#define GPUVEC_PROTOCOL_H

#include <stdint.h>

#define GPUVEC_PROTOCOL_MAGIC	UINT32_C(0x47505643)	/* "GPVC" */
#define GPUVEC_PROTOCOL_VERSION 30

/* Largest length of a frame; senders split pages into much shorter frames */
#define GPUVEC_MAX_FRAME		(UINT32_C(1) << 30)

typedef enum gpuvec_message
{
	/* session -> engine */
	GPUVEC_MSG_HELLO = 1,		/* gpuvec_hello -> WELCOME */
	GPUVEC_MSG_STAT,			/* gpuvec_mirror_key -> STATE */
	GPUVEC_MSG_SEARCH,			/* gpuvec_search ... -> RESULT */
	GPUVEC_MSG_LOAD_BEGIN,		/* gpuvec_load -> STATE; LOADING: busy */
	GPUVEC_MSG_REFRESH_BEGIN,	/* gpuvec_refresh -> STATE + uint64 page LSNs,
								 * or LOADING: busy */
	GPUVEC_MSG_PAGES,			/* gpuvec_page ... (no reply) */
	GPUVEC_MSG_COMMIT,			/* gpuvec_commit -> STATE */
	GPUVEC_MSG_DROP,			/* gpuvec_drop -> COUNT */
	GPUVEC_MSG_LIST,			/* nothing -> MIRRORS */
	GPUVEC_MSG_ENGINE,			/* nothing -> ENGINE_INFO */
	GPUVEC_MSG_REFRESH,			/* gpuvec_refresh_once, gpuvec_page ... ->
								 * STATE */
	GPUVEC_MSG_EMBEDDING,		/* gpuvec_embedding_request ... ->
								 * EMBEDDING_ANSWER */
	GPUVEC_MSG_NEAREST,			/* gpuvec_nearest_head ... -> EMBEDDING_ANSWER */
	GPUVEC_MSG_GRAM,			/* gpuvec_gram_head ... -> EMBEDDING_ANSWER */
	GPUVEC_MSG_REFRESH_PAGES,	/* gpuvec_refresh_chunk, gpuvec_page ... (no
								 * reply) */
	GPUVEC_MSG_ROWS,			/* gpuvec_rows, gpuvec_feed_record ... ->
								 * STATE */
	GPUVEC_MSG_ALS_BEGIN,		/* gpuvec_als_begin -> ALS_STATE */
	GPUVEC_MSG_ALS_ADD,			/* gpuvec_als_chunk ... -> ALS_STATE */
	GPUVEC_MSG_ALS_PREPARE,		/* nothing -> ALS_STATE */
	GPUVEC_MSG_ALS_SET,			/* gpuvec_als_chunk ... -> ALS_STATE */
	GPUVEC_MSG_ALS_RUN,			/* nothing -> ALS_STATE */
	GPUVEC_MSG_ALS_GET,			/* gpuvec_als_chunk -> ALS_FACTORS */
	GPUVEC_MSG_ALS_END,			/* nothing -> ALS_STATE */
	GPUVEC_MSG_ALS_LIST,		/* nothing -> ALS_STATES */
	GPUVEC_MSG_NEIGHBORS_BEGIN, /* gpuvec_neighbors_begin -> ALS_STATE */
	GPUVEC_MSG_NEIGHBORS,		/* nothing -> NEIGHBORS_FOUND */
	GPUVEC_MSG_SEARCH_PARTITIONS,	/* gpuvec_search_partitions ... ->
									 * PARTITIONS_RESULT */
	GPUVEC_MSG_DEVICES,			/* nothing -> DEVICES_INFO */
	GPUVEC_MSG_PLACES,			/* nothing -> PLACES_INFO */
	GPUVEC_MSG_LOAD_JOIN,		/* gpuvec_load_join -> STATE; LOADING: PAGES
								 * may follow */
	GPUVEC_MSG_LOAD_LEAVE,		/* nothing -> COUNT of pages */
	GPUVEC_MSG_OUST,			/* gpuvec_mirror_key -> COUNT: connections
								 * that were closed, as their load or refresh
								 * of the mirror makes no step */

	/* engine -> session */
	GPUVEC_MSG_WELCOME = 64,	/* gpuvec_welcome */
	GPUVEC_MSG_ERROR,			/* gpuvec_error_head, then message, detail,
								 * hint */
	GPUVEC_MSG_STATE,			/* gpuvec_state [+ page LSNs] */
	GPUVEC_MSG_RESULT,			/* gpuvec_result ... */
	GPUVEC_MSG_COUNT,			/* uint64 */
	GPUVEC_MSG_MIRRORS,			/* gpuvec_mirror_info[] */
	GPUVEC_MSG_ENGINE_INFO,		/* gpuvec_engine_info */
	GPUVEC_MSG_EMBEDDING_ANSWER,	/* gpuvec_embedding_answer ... */
	GPUVEC_MSG_ALS_STATE,		/* gpuvec_als_state */
	GPUVEC_MSG_ALS_FACTORS,		/* int64_t keys[n], float elements[n *
								 * factors] */
	GPUVEC_MSG_ALS_STATES,		/* gpuvec_als_state[] */
	GPUVEC_MSG_NEIGHBORS_FOUND, /* gpuvec_als_state, gpuvec_neighbor[] */
	GPUVEC_MSG_PARTITIONS_RESULT,	/* gpuvec_result[], ... */
	GPUVEC_MSG_DEVICES_INFO,	/* gpuvec_device_info[] */
	GPUVEC_MSG_PLACES_INFO		/* gpuvec_place_info[] */
} gpuvec_message;

typedef struct gpuvec_frame
{
	uint32_t	length;			/* bytes that follow this header */
	uint16_t	type;			/* gpuvec_message */
	uint16_t	flags;			/* 0 */
	uint64_t	request;		/* chosen by the session, returned in the
								 * reply */
} gpuvec_frame;

/* The first frame of a connection */
typedef struct gpuvec_hello
{
	uint32_t	magic;
	uint32_t	version;
	uint8_t		incarnation[16];	/* of the server's shared memory */
	uint32_t	pid;
	uint32_t	database;
} gpuvec_hello;

typedef struct gpuvec_welcome
{
	uint32_t	version;
	uint32_t	pid;			/* of the engine */
	char		backend[16];	/* "cpu" or "cuda" */
	uint64_t	number;			/* random number of this process; 0: none */
} gpuvec_welcome;

/*
 * An error of the engine.  Followed by three NUL-terminated strings: message,
 * detail, hint; the last two may be empty.  The session raises it, unless
 * `fallback` is set.
 */
typedef struct gpuvec_error_head
{
	char		sqlstate[6];	/* five characters and a NUL */
	uint8_t		retry;			/* the engine is shutting down: reconnect */
	uint8_t		fallback;		/* the engine cannot serve this: scan without
								 * it */
} gpuvec_error_head;

#endif							/* GPUVEC_PROTOCOL_H */
