/*-------------------------------------------------------------------------
 *
 * recovery.c
 *	  Index scans with snapshots that were taken in recovery.
 *
 * A rooted mirror has one entry for a HOT chain, as if all its members had the same set.
 * Of those that somebody may see, they do as long as there is an index: the primary
 * makes new indexes wait for older snapshots, or keeps these from using them, and
 * drops an index only when no scan uses it any more.  But it does not
 * know the snapshots of its standbys.  These may be older than an index that is used, or
 * use one that is not maintained any more, and see a member whose set is not that of the
 * last one.  Promotion does not change that for snapshots that are there already.
 *
 * So with such a snapshot a scan uses the plain mirror of the column.  The engine
 * gives row versions in the order of (score, tid), each with its own set; which of them the
 * snapshot sees is found out here, and their roots are what the executor is
 * given.  No other version is found from there, for a snapshot sees one member of a chain.
 * A row that it sees keeps its place, and its root stays the root, for as long as
 * the snapshot lives, so batches follow each other as they do with a rooted mirror, also
 * when the standby is promoted between them.
 *
 * An index with an expression or a predicate has a mirror of its own, also in recovery.
 *
 *-------------------------------------------------------------------------
 */
#include "gpuvec.h"

#include "access/relscan.h"
#include "index/index.h"
#include "mirror/mirror.h"

/*
 * Does a scan have a snapshot that was taken in recovery?  Then make its target, which is
 * described as for other scans, a plain mirror.
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
