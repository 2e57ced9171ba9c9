/*-------------------------------------------------------------------------
 *
 * feed_queue.c
 *	  Rows that wait in this session to be handed over.
 *
 * Many sessions that append to one feed, row by row, wait for its lock most
 * of the time.  So the rows of a transaction wait here, and are appended
 * together.  How long may a row wait?
 *
 *	 - Rows are handed over before the commit, and before the transaction is
 *	   prepared.  No snapshot of another session sees them before that.
 *	 - They are handed over before this session reads the number of a feed
 *	   (FeedRead): its own searches see them.  And before it starts parallel
 *	   workers, which search for it and do not know the queue (entry_queue.c
 *	   has the hook).
 *	 - They are dropped when their transaction or subtransaction fails.
 *	   VACUUM may hand over their line pointers as gone from then on, and
 *	   another row may be handed over there.  A record that came behind it
 *	   would be taken for what is there.  Nobody sees the rows that are
 *	   dropped.
 *	 - A row that was inserted speculatively may be killed while its
 *	   transaction goes on, so it does not wait.  The caller sees to that
 *	   (handler.c).
 *
 * Until then the line pointer is the row's: a row whose inserting transaction
 * is in progress is neither pruned nor vacuumed.  So a record that is late
 * says what is there, as one that is not.  Whoever reads the page meanwhile
 * finds the same row.
 *
 * The rows of a queue are of one subtransaction, as the queue is handed over
 * when another one adds a row.  Subtransactions have growing numbers.  So if
 * one fails, the queues of this and greater numbers are those of its rows:
 * those that it has itself inserted, and those of its subtransactions that
 * have committed.
 *
 * A queue names its index by numbers, as the index may be gone, or have
 * another file, when the rows are handed over.  Then no slot is that of the
 * queue, or one that nobody reads any more; or the change is undone, and the
 * slot is right.
 *
 *-------------------------------------------------------------------------
 */
#include "gpuvec.h"

#include "access/xact.h"
#include "mirror/feed/feed.h"
#include "mirror/feed/feed_queue.h"
#include "mirror/feed/feed_ring.h"
#include "test_hooks.h"

/* Indexes whose rows may wait at a time */
#define QUEUES			4

typedef struct FeedQueue
{
	FeedIndex	index;
	SubTransactionId writer;	/* that all rows are of */
	FeedBatch	batch;			/* n = 0: the queue is free */
} FeedQueue;

static FeedQueue queues[QUEUES];
static int	last_taken = 0;		/* of queues[] */
static bool ending = false;		/* commit has begun: nothing waits any more */

/* Hand over the records of a queue */
static void
flush(FeedQueue *queue)
{
	if (queue->batch.n > 0)
		FeedAppend(&queue->index, &queue->batch);
	queue->batch.n = queue->batch.bytes = 0;
}

void
FeedQueueFlush(void)
{
	for (int i = 0; i < QUEUES; i++)
		flush(&queues[i]);
}

/* Drop records of this subtransaction and later ones */
static void
drop_from(SubTransactionId writer)
{
	for (int i = 0; i < QUEUES; i++)
		if (queues[i].writer >= writer)
			queues[i].batch.n = queues[i].batch.bytes = 0;
}

/* The transaction is about to end, or has ended */
static void
queue_xact_callback(XactEvent event, void *arg)
{
	if (event == XACT_EVENT_PRE_COMMIT || event == XACT_EVENT_PRE_PREPARE)
	{
		FeedQueueFlush();
		/* other extensions may still insert rows */
		ending = true;
	}
	else if (event == XACT_EVENT_COMMIT || event == XACT_EVENT_PREPARE ||
			 event == XACT_EVENT_ABORT)
	{
		drop_from(InvalidSubTransactionId);
		ending = false;
		/* others see the transaction, but do not hear of its changes yet */
		if (event == XACT_EVENT_COMMIT)
			GPUVEC_INJECTION("transaction-visible");
	}
}

/* A subtransaction fails: drop the records of its rows */
static void
queue_subxact_callback(SubXactEvent event, SubTransactionId subid, SubTransactionId parent,
					   void *arg)
{
	if (event == SUBXACT_EVENT_ABORT_SUB)
		drop_from(subid);
}

void
FeedQueueInit(void)
{
	RegisterXactCallback(queue_xact_callback, NULL);
	RegisterSubXactCallback(queue_subxact_callback, NULL);
}

/* The queue of an index: its own, or else another one, emptied */
static FeedQueue *
queue_of(Relation index)
{
	FeedIndex	key = FeedIndexOf(index);

	for (int i = 0; i < QUEUES; i++)
		if (queues[i].index.index == key.index && queues[i].index.relfilenumber == key.relfilenumber)
			return &queues[i];
	last_taken = (last_taken + 1) % QUEUES;
	flush(&queues[last_taken]);
	queues[last_taken].index = key;
	return &queues[last_taken];
}

void
FeedQueueAdd(Relation index, const gpuvec_feed_record *record, const void *values,
			 const void *filter_keys)
{
	FeedQueue  *queue = queue_of(index);
	SubTransactionId writer = GetCurrentSubTransactionId();

	if (queue->writer != writer)
		flush(queue);
	queue->writer = writer;
	if (!FeedBatchAddRow(&queue->batch, record, values, filter_keys))
	{
		flush(queue);
		(void) FeedBatchAddRow(&queue->batch, record, values, filter_keys);
	}
	if (ending)
		flush(queue);
}
