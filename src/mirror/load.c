/*-------------------------------------------------------------------------
 *
 * load.c
 *	  Loading a mirror and keeping it fresh.
 *
 * A mirror is fresh for a snapshot if it holds every change that the snapshot
 * can see.  Each heap change reserves its WAL record before its transaction
 * commits, so the WAL insert position, read after the snapshot was taken, is
 * beyond every such record.  The engine remembers the position up to which a
 * mirror was checked; if that is not behind ours, nothing has to be done.
 * Otherwise the LSN of every page is compared (by inequality: LSNs may step
 * back, and a page may have none) with the one that was remembered when the
 * page was last read, and pages that differ are read again.
 *
 * The order of things is what makes this right:
 *
 *	 1. the snapshot exists;
 *	 2. the position P is read;
 *	 3. the number of blocks is read, then pages and their LSNs, each under its
 *		share lock: a change that was under way holds the exclusive lock, so we
 *		wait for it;
 *	 4. the engine publishes all pages in one step, with checked = P.
 *
 * One session at a time loads or refreshes a mirror, under a heavyweight lock
 * (so the deadlock detector sees who waits for whom).  A session that had to
 * wait uses the other's work only if that was checked to at least its own
 * position, which it read after its snapshot.
 *
 *-------------------------------------------------------------------------
 */
#include "gpuvec.h"

#include "access/xlog.h"
#include "common/hashfn.h"
#include "lib/stringinfo.h"
#include "link/link.h"
#include "mirror/mirror.h"
#include "mirror/page_reader.h"
#include "miscadmin.h"
#include "storage/bufmgr.h"
#include "storage/lock.h"

/* Pages are sent in frames of about this size */
#define FRAME_BYTES			(512 * 1024)

/* How often to try when another session's unfinished work is in the way: a minute */
#define BUSY_ATTEMPTS		3000
#define BUSY_NAP_MS			20

/*
 * The position up to which changes may have been made: reserved, not written,
 * for a commit may follow before the records are written.  On a standby what
 * was replayed counts; recovery is asked about after the snapshot.
 */
XLogRecPtr
MirrorPosition(void)
{
	return RecoveryInProgress() ? GetXLogReplayRecPtr(NULL) : GetXLogInsertRecPtr();
}

/* Ask for the state of a mirror */
bool
MirrorState(const gpuvec_mirror_key *key, gpuvec_state *state)
{
	GpuvecPiece piece = {key, sizeof(*key)};
	GpuvecReply reply;

	if (!GpuvecLinkCall(GPUVEC_MSG_STAT, &piece, 1, GPUVEC_MSG_STATE,
						sizeof(*state), &reply))
		return false;
	memcpy(state, reply.data, sizeof(*state));
	pfree(reply.data);
	return true;
}

/* The lock of whoever loads or refreshes a mirror */
static void
mirror_lock_tag(const gpuvec_mirror_key *key, LOCKTAG *tag)
{
	memset(tag, 0, sizeof(*tag));
	tag->locktag_field1 = key->database;
	tag->locktag_field2 = key->relation;
	tag->locktag_field3 = hash_bytes((const unsigned char *) key, sizeof(*key));
	tag->locktag_field4 = (uint16) key->attnum;
	tag->locktag_type = LOCKTAG_USERLOCK;
	tag->locktag_lockmethodid = USER_LOCKMETHOD;
}

/* Send what has been collected, if it is much or `all` is asked for */
static bool
send_pages(StringInfo out, bool all)
{
	bool		ok = true;

	if (out->len > 0 && (all || out->len >= FRAME_BYTES))
	{
		ok = GpuvecLinkSend(GPUVEC_MSG_PAGES, out->data, out->len);
		resetStringInfo(out);
	}
	return ok;
}

/* Publish what was sent */
static bool
commit_pages(XLogRecPtr position, BlockNumber nblocks, gpuvec_state *state)
{
	gpuvec_commit commit = {.position = position, .nblocks = nblocks};
	GpuvecPiece piece = {&commit, sizeof(commit)};
	GpuvecReply reply;

	if (!GpuvecLinkCall(GPUVEC_MSG_COMMIT, &piece, 1, GPUVEC_MSG_STATE,
						sizeof(*state), &reply))
		return false;
	memcpy(state, reply.data, sizeof(*state));
	pfree(reply.data);
	return true;
}

/* Begin a load; `busy` if another session's load of this mirror is unfinished */
static bool
begin_load(MirrorTarget *target, BlockNumber nblocks)
{
	gpuvec_load load;
	GpuvecPiece piece = {&load, sizeof(load)};
	GpuvecReply reply;

	memset(&load, 0, sizeof(load));
	load.key = target->key;
	load.nblocks = nblocks;
	if (!GpuvecLinkCall(GPUVEC_MSG_LOAD_BEGIN, &piece, 1, GPUVEC_MSG_STATE,
						sizeof(gpuvec_state), &reply))
		return false;
	pfree(reply.data);
	GpuvecLinkExpectMore();
	return true;
}

/*
 * Load the whole relation.  The caller holds the mirror's lock, or the mirror is
 * private.
 */
bool
MirrorLoad(MirrorTarget *target, Snapshot snapshot, gpuvec_state *state)
{
	XLogRecPtr	position = MirrorPosition();
	PageReader *reader;
	BlockNumber nblocks;
	StringInfoData out;
	bool		ok = true;

	GPUVEC_INJECTION("load-after-position");
	nblocks = RelationGetNumberOfBlocks(target->rel);
	if (!begin_load(target, nblocks))
		return false;

	initStringInfo(&out);
	reader = PageReaderBegin(target, snapshot);
	for (BlockNumber block = 0; ok && block < nblocks; block++)
	{
		CHECK_FOR_INTERRUPTS();
		PageReaderRead(reader, block, &out);
		ok = send_pages(&out, false);
		if (block == 0)
			GPUVEC_INJECTION("load-after-first-page");
	}
	PageReaderEnd(reader);
	ok = ok && send_pages(&out, true);
	if (ok)
		GPUVEC_INJECTION("load-before-commit");
	ok = ok && commit_pages(position, nblocks, state);
	pfree(out.data);
	return ok;
}

/*
 * Begin a refresh: the state and the remembered LSNs of all pages.  LOADING if
 * another session's load or refresh is unfinished.
 */
static bool
begin_refresh(MirrorTarget *target, gpuvec_state *state, GpuvecReply *reply)
{
	GpuvecPiece piece = {&target->key, sizeof(target->key)};

	if (!GpuvecLinkCall(GPUVEC_MSG_REFRESH_BEGIN, &piece, 1, GPUVEC_MSG_STATE,
						sizeof(*state), reply))
		return false;
	memcpy(state, reply->data, sizeof(*state));
	if (state->state == GPUVEC_READY)
	{
		if (reply->length != sizeof(*state) + (Size) state->nblocks * sizeof(uint64))
			ereport(ERROR,
					(errcode(ERRCODE_PROTOCOL_VIOLATION),
					 errmsg("invalid message from the gpuvec engine")));
		GpuvecLinkExpectMore();
	}
	return true;
}

/*
 * Read the pages again whose LSN is not the remembered one.  The caller holds
 * the mirror's lock.  If the mirror is gone meanwhile, or busy, state says so.
 */
static bool
refresh(MirrorTarget *target, Snapshot snapshot, gpuvec_state *state)
{
	XLogRecPtr	position = MirrorPosition();
	PageReader *reader;
	BlockNumber nblocks;
	GpuvecReply reply;
	const char *lsns;
	StringInfoData out;
	bool		ok = true;

	GPUVEC_INJECTION("refresh-after-position");
	if (!begin_refresh(target, state, &reply))
		return false;
	if (state->state != GPUVEC_READY)
		return true;
	lsns = reply.data + sizeof(gpuvec_state);

	nblocks = RelationGetNumberOfBlocks(target->rel);
	initStringInfo(&out);
	reader = PageReaderBegin(target, snapshot);
	for (BlockNumber block = 0; ok && block < nblocks; block++)
	{
		CHECK_FOR_INTERRUPTS();
		if (block < state->nblocks)
		{
			uint64		known;

			memcpy(&known, lsns + (Size) block * sizeof(uint64), sizeof(known));
			if (PageReaderLSN(reader, block) == known)
				continue;
		}
		PageReaderRead(reader, block, &out);
		ok = send_pages(&out, false);
	}
	PageReaderEnd(reader);
	pfree(reply.data);
	ok = ok && send_pages(&out, true);
	if (ok)
		GPUVEC_INJECTION("refresh-before-commit");
	ok = ok && commit_pages(position, nblocks, state);
	pfree(out.data);
	return ok;
}

/*
 * A session that was loading or refreshing may have gone without the engine's
 * knowing yet, or while the engine was publishing what it had sent: it holds no
 * lock any more, but its work is still there.  Wait for a moment.
 */
static void
busy_nap(int attempt)
{
	if (attempt >= BUSY_ATTEMPTS)
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_IN_USE),
				 errmsg("the mirror is being loaded or refreshed by a session that does not finish")));
	(void) WaitLatch(MyLatch, WL_LATCH_SET | WL_TIMEOUT | WL_EXIT_ON_PM_DEATH,
					 BUSY_NAP_MS, PG_WAIT_EXTENSION);
	ResetLatch(MyLatch);
	CHECK_FOR_INTERRUPTS();
}

/*
 * Make sure that the mirror holds every change before `position`, which the
 * caller read after its snapshot.
 */
bool
MirrorEnsure(MirrorTarget *target, Snapshot snapshot, XLogRecPtr position,
			 gpuvec_state *state)
{
	LOCKTAG		tag;
	bool		ok;

	mirror_lock_tag(&target->key, &tag);
	(void) LockAcquire(&tag, ExclusiveLock, false, false);
	for (int attempt = 0;; attempt++)
	{
		ok = MirrorState(&target->key, state);
		if (!ok || (state->state == GPUVEC_READY && state->checked >= position))
			break;
		if (state->state == GPUVEC_READY)
			ok = refresh(target, snapshot, state);
		else if (state->state == GPUVEC_ABSENT)
			ok = MirrorLoad(target, snapshot, state);
		if (ok && state->state == GPUVEC_LOADING)
			busy_nap(attempt);
		if (!ok || (state->state == GPUVEC_READY && state->checked >= position))
			break;
	}
	LockRelease(&tag, ExclusiveLock, false);
	return ok;
}
