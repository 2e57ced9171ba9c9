/*-------------------------------------------------------------------------
 *
 * thread_pool.h
 *	  A pool of threads that work on the slices of one task.
 *
 *-------------------------------------------------------------------------
 */
#ifndef GPUVEC_THREAD_POOL_H
#define GPUVEC_THREAD_POOL_H

#include <stdbool.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C"
{
#endif

typedef struct gpuvec_thread_pool gpuvec_thread_pool;

/* Works on slice number `slice` of a task; `thread` is 0 .. nthreads - 1 */
typedef void (*gpuvec_slice) (void *task, uint64_t slice, int thread);

/*
 * Start a pool of nthreads threads, which include the caller of
 * gpuvec_thread_pool_run (0: one for each core that this process may use).
 * NULL if memory or threads are lacking.
 */
extern gpuvec_thread_pool *gpuvec_thread_pool_new(int nthreads);
extern void gpuvec_thread_pool_free(gpuvec_thread_pool *pool);
extern int	gpuvec_thread_pool_threads(const gpuvec_thread_pool *pool);

/*
 * Let workers, and a caller who waits for them, look for so many nanoseconds
 * whether there is something to do before they sleep; 0 at first.  To be woken
 * takes longer than short runs do.
 */
extern void gpuvec_thread_pool_spin(gpuvec_thread_pool *pool, uint64_t ns);

/*
 * Call slice(task, i, thread) for i = 0 .. nslices - 1, in any order, on all
 * threads; returns when all calls are done.  Concurrent callers take turns.
 */
extern void gpuvec_thread_pool_run(gpuvec_thread_pool *pool, gpuvec_slice slice, void *task,
								   uint64_t nslices);

/*
 * The engine's progress counter: gpuvec_progress_made increments it,
 * gpuvec_progress reads it.  Pools increment it while they run; other long
 * tasks must do so now and then.  If it stands still, work is stuck.
 */
extern void gpuvec_progress_made(void);
extern uint64_t gpuvec_progress(void);

/* Start a thread that takes no signals, and that nobody waits for */
extern bool gpuvec_thread_start(void *(*run) (void *arg), void *arg);

/*
 * Cores that this process may use: those it may run on, and no more than its
 * control groups let it keep busy, a part of a core as a whole one
 */
extern int	gpuvec_cores(void);

#ifdef __cplusplus
}
#endif

#endif							/* GPUVEC_THREAD_POOL_H */
