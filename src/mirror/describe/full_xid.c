/*-------------------------------------------------------------------------
 *
 * full_xid.c
 *	  Numbers of transactions with their epochs.
 *
 * The engine may keep them for longer than 32 bits can tell them apart.
 *
 *-------------------------------------------------------------------------
 */
#include "gpuvec.h"

#include "access/transam.h"
#include "mirror/describe/mirror.h"
#include "utils/snapshot.h"

/*
 * The number of a transaction with its epoch, for one that is not in the
 * future.  Of those that are no normal transactions: 0, 1 and 2.
 */
uint64
MirrorFullXid(TransactionId xid)
{
	FullTransactionId next;
	uint32		epoch;

	if (!TransactionIdIsNormal(xid))
		return xid;
	next = ReadNextFullTransactionId();
	epoch = EpochFromFullTransactionId(next);
	if (xid > XidFromFullTransactionId(next))
		epoch--;
	return U64FromFullTransactionId(FullTransactionIdFromEpochAndXid(epoch, xid));
}

/*
 * The snapshot's xmin: all transactions that precede it have ended for it.  0
 * if it is another kind of snapshot.
 */
uint64
MirrorSnapshotXmin(Snapshot snapshot)
{
	return snapshot->snapshot_type == SNAPSHOT_MVCC ? MirrorFullXid(snapshot->xmin) : 0;
}
