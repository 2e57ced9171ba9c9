/*-------------------------------------------------------------------------
 *
 * recovery.c
 *	  Index scans with snapshots that were taken in recovery.
 *
 * A rooted mirror has one entry for a HOT chain, as if all its members had
 * the same set.  Those that a snapshot of the primary may see do: the primary
 * keeps snapshots that are older than an index from using it, and stops to
 * maintain one only when no scan uses it any more.  It knows nothing of the
 * snapshots of its standbys.  These may be older than an index that they use,
 * or use one that is not maintained any more, and see a member whose set is
 * not that of the last one.  Promotion does not change that for snapshots
 * that are there already.
 *
 * So with such a snapshot a scan uses the plain mirror of the column.  The
 * engine gives row versions in the order of (score, tid), each with its own
 * set; the session finds out which of them the snapshot sees, and gives their
 * roots to the executor.  From there it finds no other version, for a
 * snapshot sees one member of a chain.  What a snapshot sees keeps its place
 * and its root for as long as the snapshot lives, so batches follow each
 * other as with a rooted mirror, also when the standby is promoted between
 * them.
 *
 * An index with an expression or a predicate has a mirror of its own, also in
 * recovery.
 *
 *-------------------------------------------------------------------------
 */
#include "gpuvec.h"

#include "access/relscan.h"
#include "index/index_am.h"
#include "mirror/mirror.h"

/*
 * Does a scan have a snapshot that was taken in recovery?  Then make its
 * target, which is described as for other scans, a plain mirror.
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
