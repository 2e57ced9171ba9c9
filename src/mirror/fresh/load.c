/*-------------------------------------------------------------------------
 *
 * load.c
 *	  Loading a mirror: all pages of a relation.
 *
 * The order of steps makes it exact, as in a refresh (refresh.c):
 *
 *	 1. the snapshot is taken;
 *	 2. the WAL position P is read;
 *	 3. the number of blocks is read, then pages and their LSNs, each under
 *		the page's share lock: a change under way holds the exclusive lock, so
 *		we wait for it;
 *	 4. the engine publishes all pages in one step, with checked = P.
 *
 * The pages of a large table are read by several processes
 * (load_parallel.c), which begin after the blocks were counted.
 *
 *-------------------------------------------------------------------------
 */
#include "gpuvec.h"

#include "access/xlog.h"
#include "link/engine_link.h"
#include "mirror/describe/placement.h"
#include "mirror/describe/usage.h"
#include "mirror/fresh/load_parallel.h"
#include "mirror/fresh/load_workers.h"
#include "mirror/fresh/refresh.h"
#include "mirror/pages/page_stream.h"
#include "miscadmin.h"
#include "storage/bufmgr.h"

/*
 * What is reserved in the WAL counts, not what is written: a commit may
 * follow before the records are written.  On a standby, what was replayed
 * counts.  RecoveryInProgress() is called after the snapshot was taken.
 */
XLogRecPtr
MirrorPosition(void)
{
	return RecoveryInProgress() ? GetXLogReplayRecPtr(NULL) : GetXLogInsertRecPtr();
}

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

/*
 * Append the files that a mirror is made of: that of the table, and that of
 * the index that the mirror is of or is rooted for.
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

/*
 * Begin a load, which others may join if it has a number.  *state is LOADING
 * if another session's load or refresh is unfinished.
 */
static bool
begin_load(MirrorTarget *target, BlockNumber nblocks, uint64 number, gpuvec_state *state)
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
	request.number = number;
	request.file_bytes = files.len;
	request.placement = MirrorPlacement(target);
	pieces[1].data = files.data;
	pieces[1].size = files.len;
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
 * Choose the workers of a load, and its number, which is random; without
 * workers it is 0
 */
static int
choose_workers(const MirrorTarget *target, Snapshot snapshot, BlockNumber nblocks, uint64 *number)
{
	int			nworkers = LoadWorkers(target, snapshot, nblocks);

	*number = 0;
	if (nworkers > 0 && !pg_strong_random(number, sizeof(*number)))
		*number = 0;
	return *number != 0 ? nworkers : 0;
}

bool
MirrorLoad(MirrorTarget *target, Snapshot snapshot, const gpuvec_freshness *need,
		   gpuvec_state *state)
{
	XLogRecPtr	position = need->feed != 0 ? need->position : MirrorPosition();
	BlockNumber nblocks;
	uint64		number;
	int			nworkers;
	bool		ok;

	GPUVEC_INJECTION("load-after-position");
	nblocks = RelationGetNumberOfBlocks(target->rel);
	nworkers = choose_workers(target, snapshot, nblocks, &number);
	if (!begin_load(target, nblocks, number, state))
		return false;
	if (state->state == GPUVEC_LOADING)
		return true;

	ok = nworkers > 0 ? LoadParallel(target, snapshot, nblocks, number, nworkers) :
		LoadAlone(target, snapshot, nblocks);
	if (ok)
		GPUVEC_INJECTION("load-before-commit");
	ok = ok && PageStreamCommit(position, need, nblocks, state);
	if (ok)
		LoadForgetFailure();
	MirrorUsed.loads += ok;
	return ok;
}

void
MirrorDropPrivate(const MirrorTarget *target)
{
	gpuvec_drop drop;
	GpuvecPiece piece = {&drop, sizeof(drop)};
	GpuvecReply reply;

	memset(&drop, 0, sizeof(drop));
	drop.database = target->key.database;
	drop.relation = target->key.relation;
	drop.attnum = target->key.attnum;
	drop.private_id = target->key.private_id;
	if (GpuvecLinkCall(GPUVEC_MSG_DROP, &piece, 1, GPUVEC_MSG_COUNT, sizeof(uint64), &reply))
		pfree(reply.data);
}
