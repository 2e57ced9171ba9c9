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
 * Otherwise the WAL between the two positions names the pages that were changed
 * (wal.c), or, if that is long or gone, the LSN of every page is compared (by
 * inequality: LSNs may step back, and a page may have none) with the one that was
 * remembered when the page was last read; and those pages are read again.
 *
 * A rooted mirror may have a feed instead (feed.c).
 *
 * The order of things is what makes this right:
 *
 *	 1. the snapshot exists;
 *	 2. the position P is read, and the WAL up to it;
 *	 3. the number of blocks is read, then pages and their LSNs, each under its
 *		share lock: a change that was under way holds the exclusive lock, so we
 *		wait for it;
 *	 4. the engine publishes all pages in one step, with checked = P.
 *
 * One session at a time loads or refreshes a mirror, under a heavyweight lock
 * (so the deadlock detector sees who waits for whom).  A session that had to
 * wait uses the other's work only if that was checked to at least its own
 * position, which it read after its snapshot.  The processes of a parallel query do
 * not wait for each other's locks: then the engine, too, lets only one at a time load or
 * refresh, and says so to the others, who try again.
 *
 *-------------------------------------------------------------------------
 */
#include "gpuvec.h"

#include "access/xact.h"
#include "access/xlog.h"
#include "common/hashfn.h"
#include "entries/entries.h"
#include "lib/stringinfo.h"
#include "link/engine_link.h"
#include "mirror/facts.h"
#include "mirror/feed.h"
#include "mirror/mirror.h"
#include "mirror/page_reader.h"
#include "mirror/wal.h"
#include "miscadmin.h"
#include "storage/bufmgr.h"
#include "storage/lock.h"
#include "storage/proc.h"
#include "utils/timestamp.h"

/* Pages are sent in frames of about this size */
#define FRAME_BYTES			(512 * 1024)

/*
 * A refresh of a few pages is sent in parts: the engine takes one while we read the next.
 * The first is small, so that it begins soon, the others are larger, up to about this.
 * With more pages it is worth asking first whether it will be made.
 */
#define FIRST_PART_BYTES	(8 * 1024)
#define PART_BYTES			(32 * 1024)
#define FEW_PAGES			128

/* The mirror of a refresh whose answer comes late */
static gpuvec_mirror_key late_key;

/* How often to try while others' unfinished work is in the way: 10 s */
#define BUSY_ATTEMPTS		500
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

/* Pages on their way to the engine */
typedef struct PageStream
{
	const gpuvec_refresh_part *part;	/* they are parts of this refresh; or NULL */
	int			much;			/* so many bytes are worth sending */
	StringInfoData out;			/* collected, to be sent */
} PageStream;

/* Begin to collect pages */
static void
begin_stream(PageStream *stream, const gpuvec_refresh_part *part)
{
	stream->part = part;
	stream->much = part ? FIRST_PART_BYTES : FRAME_BYTES;
	initStringInfo(&stream->out);
}

/* Send what has been collected, if it is much or `all` is asked for */
static bool
send_pages(PageStream *stream, bool all)
{
	StringInfo	out = &stream->out;
	GpuvecPiece pieces[2] = {{stream->part, sizeof(*stream->part)}, {out->data, out->len}};
	bool		ok = true;

	if (!all && out->len < stream->much)
		return true;
	if (stream->part)
	{
		ok = GpuvecLinkSend(GPUVEC_MSG_REFRESH_PAGES, pieces, 2);
		if (out->len > 0)
			stream->much = Min(stream->much * 2, PART_BYTES);
	}
	else if (out->len > 0)
		ok = GpuvecLinkSend(GPUVEC_MSG_PAGES, pieces + 1, 1);
	resetStringInfo(out);
	return ok;
}

/*
 * Publish what was sent: all changes up to the position, and all that were marked when
 * the need was known.
 */
static bool
commit_pages(XLogRecPtr position, const gpuvec_freshness *need, BlockNumber nblocks,
			 gpuvec_state *state)
{
	gpuvec_commit commit = {
		.position = position,.feed = need->feed,.applied = need->applied,.nblocks = nblocks
	};
	GpuvecPiece piece = {&commit, sizeof(commit)};
	GpuvecReply reply;

	if (!GpuvecLinkCall(GPUVEC_MSG_COMMIT, &piece, 1, GPUVEC_MSG_STATE,
						sizeof(*state), &reply))
		return false;
	memcpy(state, reply.data, sizeof(*state));
	pfree(reply.data);
	return true;
}

/*
 * The files that a mirror is made of: that of the table, and of the index
 * that it is of, or is rooted for.
 */
static void
mirror_files(const MirrorTarget *target, StringInfo files)
{
	Oid			tablespace;
	Oid			file;

	GpuvecAppendPath(files, target->key.tablespace, target->key.relfilenumber);
	if (target->key.rooted && MirrorIndexFile(target, &tablespace, &file))
		GpuvecAppendPath(files, tablespace, file);
}

/* Begin a load; state is LOADING if another session's load or refresh is unfinished */
static bool
begin_load(MirrorTarget *target, BlockNumber nblocks, gpuvec_state *state)
{
	gpuvec_load request;
	GpuvecPiece pieces[2] = {{&request, sizeof(request)}};
	GpuvecReply reply;
	StringInfoData files;
	bool		ok;

	initStringInfo(&files);
	if (target->mode == MIRROR_SHARED)
		mirror_files(target, &files);
	memset(&request, 0, sizeof(request));
	request.key = target->key;
	request.nblocks = nblocks;
	request.file_bytes = files.len;
	pieces[1] = (GpuvecPiece) {files.data, files.len};
	ok = GpuvecLinkCall(GPUVEC_MSG_LOAD_BEGIN, pieces, 2, GPUVEC_MSG_STATE,
						sizeof(*state), &reply);
	pfree(files.data);
	if (!ok)
		return false;
	memcpy(state, reply.data, sizeof(*state));
	pfree(reply.data);
	if (state->state != GPUVEC_LOADING)
		GpuvecLinkExpectMore();
	return true;
}

/*
 * Load the whole relation.  The caller holds the mirror's lock, or the mirror is
 * private.  If somebody else is loading it, state says so.
 */
static bool
load(MirrorTarget *target, Snapshot snapshot, const gpuvec_freshness *need,
	 gpuvec_state *state)
{
	XLogRecPtr	position = MirrorPosition();
	PageReader *reader;
	BlockNumber nblocks;
	PageStream	stream;
	bool		ok = true;

	GPUVEC_INJECTION("load-after-position");
	nblocks = RelationGetNumberOfBlocks(target->rel);
	if (!begin_load(target, nblocks, state))
		return false;
	if (state->state == GPUVEC_LOADING)
		return true;

	begin_stream(&stream, NULL);
	reader = PageReaderBegin(target, snapshot);
	for (BlockNumber block = 0; ok && block < nblocks; block++)
	{
		CHECK_FOR_INTERRUPTS();
		PageReaderRead(reader, block, &stream.out);
		ok = send_pages(&stream, false);
		if (block == 0)
			GPUVEC_INJECTION("load-after-first-page");
	}
	PageReaderEnd(reader);
	ok = ok && send_pages(&stream, true);
	if (ok)
		GPUVEC_INJECTION("load-before-commit");
	ok = ok && commit_pages(position, need, nblocks, state);
	pfree(stream.out.data);
	return ok;
}

/*
 * Begin a refresh: with the remembered LSNs of all pages, or without, of a mirror in
 * this state.  Sets state to what the mirror is; *begun: has it begun?  It has not if
 * another session's load or refresh is unfinished (then it is LOADING), or if the mirror
 * is gone or another one made it what it is.
 */
static bool
begin_refresh(MirrorTarget *target, bool lsns, gpuvec_state *state, GpuvecReply *reply,
			  bool *begun)
{
	gpuvec_refresh request = {.key = target->key,.lsns = lsns,.known = state->refresh};
	GpuvecPiece piece = {&request, sizeof(request)};

	if (!GpuvecLinkCall(GPUVEC_MSG_REFRESH_BEGIN, &piece, 1, GPUVEC_MSG_STATE,
						sizeof(*state), reply))
		return false;
	memcpy(state, reply->data, sizeof(*state));
	*begun = state->state == GPUVEC_READY && (lsns || state->refresh == request.known);
	if (*begun)
	{
		if (reply->length != sizeof(*state) + (lsns ? (Size) state->nblocks * sizeof(uint64) : 0))
			ereport(ERROR,
					(errcode(ERRCODE_PROTOCOL_VIOLATION),
					 errmsg("invalid message from the gpuvec engine")));
		GpuvecLinkExpectMore();
	}
	return true;
}

/* What has to be read again */
typedef struct Stale
{
	bool		listed;			/* these pages; else those with another LSN */
	ChangedPages	pages;
	const char *lsns;			/* uint64 for each page that the mirror knows */
	uint32		next;			/* of pages */
} Stale;

/*
 * The next page to look at, from `block` on, of those that the mirror knows (fewer than
 * nknown) and the new ones behind.
 */
static BlockNumber
next_block(Stale *stale, BlockNumber block, BlockNumber nknown)
{
	if (!stale->listed || block >= nknown)
		return block;
	while (stale->next < stale->pages.n && stale->pages.blocks[stale->next] < block)
		stale->next++;
	return stale->next < stale->pages.n ? Min(stale->pages.blocks[stale->next], nknown) : nknown;
}

/* Is a page that the mirror knows, and that next_block() gave, to be read again? */
static bool
is_stale(const Stale *stale, PageReader *reader, BlockNumber block)
{
	uint64		known;

	if (stale->listed)
		return true;
	memcpy(&known, stale->lsns + (Size) block * sizeof(uint64), sizeof(known));
	return PageReaderLSN(reader, block) != known;
}

/*
 * Read the pages that are stale or new, show each to what goes ahead of the refresh, if
 * anything does, and send them as they get many.  False: the connection was lost.
 */
static bool
read_stale(MirrorTarget *target, Snapshot snapshot, Stale *stale, BlockNumber nknown,
		   BlockNumber nblocks, PageStream *stream, const MirrorAlong *along)
{
	PageReader *reader = PageReaderBegin(target, snapshot);
	bool		ok = true;

	stale->next = 0;
	for (BlockNumber block = next_block(stale, 0, nknown); ok && block < nblocks;
		 block = next_block(stale, block + 1, nknown))
	{
		int			start;

		CHECK_FOR_INTERRUPTS();
		if (block < nknown && !is_stale(stale, reader, block))
			continue;
		ok = send_pages(stream, false);
		start = stream->out.len;
		PageReaderRead(reader, block, &stream->out);
		if (along != NULL && along->ahead)
			along->page(along->arg, stream->out.data + start);
	}
	PageReaderEnd(reader);
	return ok;
}

/* Are there at most FEW_PAGES to be read again, or new, behind the nknown that the mirror has? */
static bool
few_pages(const Stale *stale, BlockNumber nknown, BlockNumber nblocks)
{
	return stale->listed && stale->pages.n <= FEW_PAGES &&
		(nblocks <= nknown || nblocks - nknown <= FEW_PAGES);
}

/* Does somebody wait for the mirror's lock, which we hold? */
static bool
somebody_waits(const gpuvec_mirror_key *key)
{
	LOCKTAG		tag;

	mirror_lock_tag(key, &tag);
	return LockHasWaiters(&tag, ExclusiveLock, false);
}

/*
 * The answer to a refresh that came late.  If the engine let another session's come first, it
 * does not tell what the mirror is like.
 */
static void
take_late_state(const char *data)
{
	gpuvec_state state;

	memcpy(&state, data, sizeof(state));
	if (state.state == GPUVEC_READY)
		MirrorRemember(&late_key, &state);
	else
		MirrorForget(&late_key);
}

/*
 * Read the answer to what went ahead of a refresh.  That to the refresh comes later: nobody
 * here waits for it, unless others wait for the mirror's lock.
 */
static bool
finish_ahead(const gpuvec_mirror_key *key, uint64 number, MirrorAlong *along)
{
	if (!along->receive(along->arg, along->number))
		return false;
	late_key = *key;
	GpuvecLinkLeave(number, GPUVEC_MSG_STATE, sizeof(gpuvec_state), take_late_state);
	return !somebody_waits(key) || GpuvecLinkSettle();
}

/*
 * Send the end of a refresh, and what is to be sent along with it, and read its answer: what
 * the mirror is then.  Or, if something went ahead of it, the answer to that.
 */
static bool
send_refresh(const gpuvec_refresh_once *head, StringInfo pages, MirrorAlong *along,
			 gpuvec_state *state)
{
	GpuvecPiece pieces[2] = {{head, sizeof(*head)}, {pages->data, pages->len}};
	GpuvecReply reply;
	uint64		number = GpuvecLinkBegin(GPUVEC_MSG_REFRESH, pieces, 2);

	if (number == 0)
		return false;
	if (along != NULL && along->ahead)
		return finish_ahead(&head->key, number, along);
	if (along != NULL)
	{
		along->number = along->send(along->arg);
		if (along->number == 0)
			return false;
	}
	if (!GpuvecLinkAnswer(number, GPUVEC_MSG_STATE, sizeof(*state), &reply))
		return false;
	memcpy(state, reply.data, sizeof(*state));
	pfree(reply.data);
	return true;
}

/*
 * Begin a refresh whose pages will follow.  Either the request goes ahead, and the engine works
 * on it while we read; or a message without pages makes it wake meanwhile.  The former leaves
 * the refresh to be made when we are gone, so it is not for those who would be in the way of
 * others: the processes of a parallel query, who do not wait for the lock, and whoever has
 * somebody waiting for it already.
 */
static bool
begin_parts(MirrorTarget *target, BlockNumber nblocks, MirrorAlong *along, PageStream *stream)
{
	if (along == NULL || along->page == NULL || IsInParallelMode() || somebody_waits(&target->key))
		return send_pages(stream, true);
	stream->much = FRAME_BYTES;
	along->ahead = true;
	along->nblocks = nblocks;
	along->number = along->send(along->arg);
	return along->number != 0;
}

/*
 * Refresh, with the few pages that are listed or new, without asking first: of a mirror in
 * this state.  Sets state to what the mirror is then, unless a request went ahead of it, whose
 * answer has been read then.
 */
static bool
refresh_once(MirrorTarget *target, Snapshot snapshot, const gpuvec_freshness *need,
			 XLogRecPtr position, Stale *stale, BlockNumber nblocks, MirrorAlong *along,
			 gpuvec_state *state)
{
	gpuvec_refresh_part part = {.key = target->key,.known = state->refresh};
	gpuvec_refresh_once head = {.key = target->key,.known = state->refresh,
		.commit = {.position = position,.feed = need->feed,.applied = need->applied,.nblocks = nblocks}
	};
	PageStream	stream;
	bool		ok;

	begin_stream(&stream, &part);
	ok = begin_parts(target, nblocks, along, &stream) &&
		read_stale(target, snapshot, stale, state->nblocks, nblocks, &stream, along);
	if (ok)
	{
		GPUVEC_INJECTION("refresh-before-commit");
		ok = send_refresh(&head, &stream.out, along, state);
	}
	pfree(stream.out.data);
	if (stale->pages.blocks)
		pfree(stale->pages.blocks);
	return ok;
}

/*
 * Pages of the table whose rows the WAL between two positions has changed.
 * For an index that keeps its rows, those are the pages of each bucket that
 * it names.
 */
static WalResult
changed_pages(MirrorTarget *target, XLogRecPtr from, XLogRecPtr to, ChangedPages *pages)
{
	ChangedPages of_index = {0};
	WalResult	result;

	if (target->key.index == 0)
		return WalChanges(target->rel, from, to, pages);
	result = WalChanges(target->index, from, to, &of_index);
	SortChangedPages(&of_index);
	for (uint32 i = 0; result != WAL_UNKNOWN && i < of_index.n; i++)
	{
		uint32		bucket;

		if (!EntriesPageBucket(target->index, of_index.blocks[i], &bucket))
			continue;
		for (BlockNumber j = 0; j < ENTRY_BUCKET_BLOCKS; j++)
			NoteChangedPage(pages, bucket * ENTRY_BUCKET_BLOCKS + j);
	}
	if (of_index.blocks)
		pfree(of_index.blocks);
	SortChangedPages(pages);
	return result;
}

/*
 * Find out what has to be read again of a mirror in this state: by its feed, if that is
 * the one that counts, else by WAL.  Neither may know; then it is up to the LSNs.
 * Returns the position up to which that covers all changes, 0 with a feed.
 */
static XLogRecPtr
find_stale(MirrorTarget *target, const gpuvec_freshness *need, const gpuvec_state *state,
		   Stale *stale)
{
	XLogRecPtr	position;

	memset(stale, 0, sizeof(*stale));
	if (need->feed != 0 && need->feed == state->feed)
		stale->listed = FeedTake(state->applied, need, &stale->pages.blocks, &stale->pages.n);
	if (stale->listed)
	{
		SortChangedPages(&stale->pages);
		return 0;
	}
	memset(&stale->pages, 0, sizeof(stale->pages));
	position = MirrorPosition();
	GPUVEC_INJECTION("refresh-after-position");
	stale->listed = changed_pages(target, state->checked, position, &stale->pages) != WAL_UNKNOWN;
	return position;
}

/*
 * Read again what was changed since the mirror, which is in this state, was checked.
 * The caller holds the mirror's lock.  If the mirror is in another state meanwhile, that
 * is set instead.
 */
static bool
refresh(MirrorTarget *target, Snapshot snapshot, const gpuvec_freshness *need,
		MirrorAlong *along, gpuvec_state *state)
{
	Stale		stale;
	XLogRecPtr	position = find_stale(target, need, state, &stale);
	BlockNumber nblocks = RelationGetNumberOfBlocks(target->rel);
	GpuvecReply reply;
	PageStream	stream;
	bool		begun;
	bool		ok;

	if (few_pages(&stale, state->nblocks, nblocks))
		return refresh_once(target, snapshot, need, position, &stale, nblocks, along, state);
	if (!begin_refresh(target, !stale.listed, state, &reply, &begun))
		return false;
	if (!begun)
	{
		pfree(reply.data);
		return true;
	}
	stale.lsns = reply.data + sizeof(gpuvec_state);
	/* the mirror may have got pages that were not there when we asked before */
	nblocks = RelationGetNumberOfBlocks(target->rel);
	begin_stream(&stream, NULL);
	ok = read_stale(target, snapshot, &stale, state->nblocks, nblocks, &stream, NULL) &&
		send_pages(&stream, true);
	pfree(stream.out.data);
	pfree(reply.data);
	if (stale.pages.blocks)
		pfree(stale.pages.blocks);
	if (ok)
		GPUVEC_INJECTION("refresh-before-commit");
	return ok && commit_pages(position, need, nblocks, state);
}

/*
 * A session that was loading or refreshing may have gone without the engine's
 * knowing yet, or while the engine was publishing what it had sent: it holds
 * no lock any more, but its work is still there.  Wait for a moment, or as
 * long as it takes if it may be a process of the same parallel query.  False:
 * that was too long.
 */
static bool
busy_nap(const MirrorTarget *target, int attempt)
{
	if (attempt >= BUSY_ATTEMPTS && MyProc->lockGroupLeader == NULL)
	{
		MirrorRefuseBusy(target);
		return false;
	}
	(void) WaitLatch(MyLatch, WL_LATCH_SET | WL_TIMEOUT | WL_EXIT_ON_PM_DEATH,
					 BUSY_NAP_MS, PG_WAIT_EXTENSION);
	ResetLatch(MyLatch);
	CHECK_FOR_INTERRUPTS();
	return true;
}

/*
 * An attempt to load or refresh the mirror, which began then, has failed.  If
 * the engine refused it, and not what was sent along, nobody has to try again
 * soon.
 */
static void
note_failure(const MirrorTarget *target, TimestampTz began, const MirrorAlong *along)
{
	const GpuvecRefusal *refusal = GpuvecLinkRefusal();

	if (refusal != NULL && (along == NULL || refusal->request != along->number))
		MirrorNoteRefusal(target, began);
}

/* Load a private mirror */
bool
MirrorLoadPrivate(MirrorTarget *target, Snapshot snapshot, const gpuvec_freshness *need,
				  gpuvec_state *state)
{
	TimestampTz began = GetCurrentTimestamp();
	TimestampTz claim = 0;
	bool		ok;

	if (!MirrorMayTry(target, &claim))
		return false;
	ok = load(target, snapshot, need, state);
	if (!ok)
		note_failure(target, began, NULL);
	else if (claim != 0)
		FactsForgetRefusal(&target->key);
	return ok;
}

/* As MirrorEnsure(), by who holds the lock of the shared mirror */
static bool
ensure_locked(MirrorTarget *target, Snapshot snapshot, const gpuvec_freshness *need,
			  const gpuvec_state *known, MirrorAlong *along, TimestampTz *claim,
			  gpuvec_state *state)
{
	TimestampTz began = GetCurrentTimestamp();
	bool		ok = true;

	for (int attempt = 0;; attempt++)
	{
		if (attempt == 0 && known != NULL && known->state == GPUVEC_READY)
			*state = *known;
		else
			ok = MirrorState(&target->key, state);
		if (!ok || gpuvec_fresh(state, need) || !(ok = MirrorMayTry(target, claim)))
			return ok;
		if (state->state == GPUVEC_READY)
			ok = refresh(target, snapshot, need, along, state);
		else if (state->state == GPUVEC_ABSENT)
			ok = load(target, snapshot, need, state);
		if (!ok)
			note_failure(target, began, along);
		if (!ok || (along != NULL && along->number != 0))
			return ok;
		if (state->state == GPUVEC_LOADING && !busy_nap(target, attempt))
			return false;
		if (gpuvec_fresh(state, need))
			return true;
	}
}

/*
 * Make sure that the mirror is as fresh as `need`, which the caller asked for after its
 * snapshot.  `known`: what it was when the engine last told, or NULL; a refresh that is
 * made by it is not made if it is not that any more.  `along` may be NULL; if it was sent,
 * its answer, which is to be read next, tells whether the mirror is as fresh.
 */
bool
MirrorEnsure(MirrorTarget *target, Snapshot snapshot, const gpuvec_freshness *need,
			 const gpuvec_state *known, MirrorAlong *along, gpuvec_state *state)
{
	TimestampTz claim = 0;
	LOCKTAG		tag;
	bool		ok;

	/* nobody waits for what will be refused */
	if (!MirrorMayTry(target, &claim))
		return false;
	mirror_lock_tag(&target->key, &tag);
	if (LockAcquire(&tag, ExclusiveLock, false, true) == LOCKACQUIRE_NOT_AVAIL)
	{
		(void) LockAcquire(&tag, ExclusiveLock, false, false);
		known = NULL;			/* somebody has refreshed it */
	}
	ok = ensure_locked(target, snapshot, need, known, along, &claim, state);
	LockRelease(&tag, ExclusiveLock, false);
	if (ok && claim != 0 && (along == NULL || !along->ahead))
		FactsForgetRefusal(&target->key);
	return ok;
}
