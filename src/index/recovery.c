/*-------------------------------------------------------------------------
 *
 * recovery.c
 *	  Index scans with snapshots that were taken in recovery.
 *
 * A rooted mirror has one entry for a HOT chain, as if all its members had
 * the same set.  All members that a snapshot of the primary may see do have
 * it.  The primary keeps snapshots that are older than an index from using
 * it, and stops maintaining an index only when no scan uses it any more.  But
 * it knows nothing of the snapshots of its standbys.  These may be older than
 * an index that they use, or use an index that is not maintained any more.
 * So they may see a member whose set is not that of the last member.
 * Promotion does not change that for snapshots that exist already.
 *
 * With such a snapshot a scan uses the plain mirror of the column.  The
 * engine returns row versions in the order (score, tid), each with its own
 * set.  The session finds out which of them the snapshot sees, and gives
 * their roots to the executor.  From a root the executor finds the same
 * version, as a snapshot sees only one member of a chain.  What a snapshot
 * sees keeps its place and its root for as long as the snapshot lives.  So
 * batches follow each other as with a rooted mirror, even if the standby is
 * promoted between them.
 *
 * An index with an expression or a predicate has a mirror of its own, also in
 * recovery.
 *
 *-------------------------------------------------------------------------
 */
#include "gpuvec.h"

#include "access/relscan.h"
#include "index/index_am.h"
#include "mirror/describe/mirror.h"

/*
 * True if a scan has a snapshot that was taken in recovery, and no mirror of
 * its own index.  Then the target, which was described as for other scans,
 * becomes a plain mirror.
 */
bool
GpuvecInRecovery(IndexScanDesc scan, MirrorTarget *target)
{
	if (!scan->xs_snapshot->takenDuringRecovery || target->key.index != 0)
		return false;
	target->index = NULL;
	target->key.rooted = false;
	return true;
}
