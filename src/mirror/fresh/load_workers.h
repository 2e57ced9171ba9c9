/*-------------------------------------------------------------------------
 *
 * load_workers.h
 *	  Parallel workers that help to load mirrors.
 *
 *-------------------------------------------------------------------------
 */
#ifndef GPUVEC_LOAD_WORKERS_H
#define GPUVEC_LOAD_WORKERS_H

#include "postgres.h"

#include "access/parallel.h"
#include "mirror/describe/mirror.h"

/* True if workers may help to load a target for this snapshot */
extern bool LoadWorkersAllowed(const MirrorTarget *target, Snapshot snapshot);

/*
 * What a load by workers consists of.  prepare puts what the workers need
 * into shared memory; work is done while they work.
 */
typedef struct LoadJob
{
	const char *function;		/* where workers begin */
	int			nworkers;
	Size		bytes;			/* of the chunk of shared memory that prepare
								 * fills, and that workers find by
								 * LoadJobTask() */
	void		(*prepare) (void *task, void *arg);
	bool		(*work) (void *task, void *arg);
	bool		(*complete) (void *task);	/* after all workers have ended
											 * and work has returned true */
	void	   *arg;
	const char *what;			/* for the log */
} LoadJob;

/*
 * Do a job, with as many workers as are to be had, maybe none.  False if work
 * or complete returns false, or a worker failed.  The next loads are then
 * made without workers, until one was published.
 */
extern bool LoadWithWorkers(const LoadJob *job, Snapshot snapshot);

/* The task, in a worker */
extern void *LoadJobTask(shm_toc *toc);

/* A load was published: workers may be of use again */
extern void LoadForgetFailure(void);

#endif							/* GPUVEC_LOAD_WORKERS_H */
