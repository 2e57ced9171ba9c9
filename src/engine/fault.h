/*-------------------------------------------------------------------------
 *
 * fault.h
 *	  Faults that tests inject into the engine.  Compiled into test builds
 *	  only.
 *
 * The environment variable GPUVEC_ENGINE_FAULT is "name", or "name:argument",
 * or several of these with commas between them.
 *
 *	 crash-at-start		exit at once
 *	 crash-on-search	SIGSEGV when a search arrives
 *	 crash-on-commit	SIGSEGV when a load, a refresh or rows of a feed are
 *						to be published
 *	 oom-on-commit		a load, a refresh or rows of a feed find no memory
 *						(with an argument N the last three happen the N-th
 *						time only)
 *	 slow-search:MS		a search takes MS milliseconds longer; it makes
 *						progress meanwhile
 *	 together:N			searches of sets are held until N of them wait, so
 *						that they run in batches; at most for a second
 *	 slow-batch:MS		a batch of searches waits for MS before it runs, so
 *						that others gather for the next
 *	 stuck-search:MS	a search never ends and makes no progress; the
 *						engine counts as stuck after MS
 *	 crash-on-training	SIGSEGV when an iteration of a training begins
 *	 slow-training:MS	an iteration takes MS milliseconds longer
 *	 slow-preparing:MS	preparing a training takes MS milliseconds longer
 *	 slow-begin:MS		it takes MS milliseconds from a refresh's claim to
 *						the state that it answers with
 *	 slow-commit:MS		publishing takes MS milliseconds longer
 *	 slow-rows:MS		applying rows of a feed takes MS milliseconds longer
 *	 refuse-rows		rows of a feed are not applied: pages have to be read
 *	 kept-bytes:N		so many bytes of rows are kept for later
 *	 patience:MS		a search that waits for its mirror does so up to MS
 *	 slow-merge:MS		a merge waits for MS before it publishes
 *	 slow-sort:MS		a merge of large segments waits for MS more
 *	 slow-publish:MS	a merge that has caught up waits for MS
 *	 compounds:N		after N searches with the same views, rows of parts
 *						are put into common segments, however few they are
 *	 slow-compound:MS	it takes MS milliseconds until these can be used
 *	 full-segment:N		a segment of N rows, a multiple of 32, is full
 *	 first-number:N		a load numbers ids from N on, if some are above 65,535
 *	 slow-after-refresh:MS	a session waits for MS after it has answered a
 *						REFRESH
 *	 lists:N			on the CPU, segments of N rows or more get inverted
 *						lists
 *	 embed-limit:N		an answer has room for N elements of vectors
 *	 device-keys:N		a device looks up the keys of requests that have N
 *						or more
 *	 most-undecided:N	a session is asked to decide about N rows or so at a
 *						time; for a Gram matrix about N at most
 *	 near-spare:N		a search for the nearest rows keeps at most N
 *						spare rows
 *	 near-asked:N		it asks about all rows at once if they are N at most
 *	 no-sweep			stale mirrors are not dropped
 *	 unread:MS			an answer of which nothing is read for MS is given up
 *	 least-idle:MS		a session that was idle for MS may lose its seat
 *	 no-threads			no thread can be started for a session
 *	 part-full:N		of several devices, the one of number N takes no
 *						segments
 *	 part-gone:N		that device cannot be used when the engine starts
 *	 part-lost:N		its searches fail, so that the engine ends
 *	 part-search:N		its searches find no memory; -1: those of no device do
 *	 slow-end:MS		an engine that ends by an error does so MS
 *						milliseconds after it has said so
 *	 another-query		answers to searches of sets by an odd number of
 *						queries say that there was one query more
 *	 no-greeting		sessions that connect get no answer
 *	 late-greeting:MS	they get it MS milliseconds later
 *	 protocol-version:N	the engine claims to speak protocol version N
 *
 *-------------------------------------------------------------------------
 */
#ifndef GPUVEC_FAULT_H
#define GPUVEC_FAULT_H

#include <stdbool.h>

#ifdef GPUVEC_TEST_HOOKS
extern bool gpuvec_fault(const char *name, long *argument);
#else
#define gpuvec_fault(name, argument) ((void) (argument), false)
#endif

extern bool gpuvec_fault_due(const char *name);
extern void gpuvec_fault_crash(const char *name);
extern void gpuvec_fault_sleep(const char *name, const int *canceled);
extern void gpuvec_fault_stick(const char *name);

#endif							/* GPUVEC_FAULT_H */
