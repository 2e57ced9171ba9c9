/*-------------------------------------------------------------------------
 *
 * thread_pool.c
 *	  A pool of threads that work on the slices of one task.
 *
 * Threads take slices from an atomic counter.  The caller works too: a pool of
 * one thread starts no thread, and a task of one slice wakes none.  A worker
 * that wakes after all slices are taken does not join the run, and the caller
 * does not wait for it.
 *
 * `gate` says which run it is, whether workers may join it, and how many are
 * in it.  Workers join and leave by changing it, without the mutex, which is
 * only for those who sleep.  Whoever goes to sleep says so first, and looks
 * at the gate again; whoever changes the gate looks then whether somebody
 * sleeps.  These accesses have one order for all threads, so nobody is
 * forgotten.
 *
 *-------------------------------------------------------------------------
 */
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <math.h>
#include <stdbool.h>
#include <stdlib.h>

#include "core/clock.h"
#include "engine/control_group.h"
#include "engine/thread_pool.h"

/* Parts of the gate; the number of the run, from RUN_SHIFT on, wraps around */
#define GATE_INSIDE		UINT64_C(0x7FFFFFFF)	/* workers in the run */
#define GATE_CLOSED		UINT64_C(0x80000000)	/* nobody may join it */
#define RUN_SHIFT		32

struct gpuvec_thread_pool
{
	int			nthreads;
	uint64_t	spin_ns;		/* atomic */
	pthread_mutex_t caller;		/* guards the next two */
	uint64_t	last_ticket;	/* of callers, who take turns in their order */
	uint64_t	served;			/* tickets whose runs have ended */
	pthread_cond_t turn;		/* `served` has changed */
	pthread_mutex_t mutex;		/* held by who sleeps, and who wakes */
	pthread_cond_t start;
	pthread_cond_t done;
	uint64_t	gate;			/* atomic */
	int			sleepers;		/* atomic: workers that wait for `start` */
	bool		caller_sleeps;	/* atomic: the caller waits for `done` */
	bool		stop;			/* atomic */

	/* the run; set before the gate opens */
	gpuvec_slice slice;
	void	   *task;
	uint64_t	nslices;
	uint64_t	next;			/* atomic */

	pthread_t	threads[];		/* nthreads - 1 of them */
};

typedef struct worker_start
{
	gpuvec_thread_pool *pool;
	int			thread;
} worker_start;

static uint64_t progress = 0;	/* atomic */

void
gpuvec_progress_made(void)
{
	__atomic_add_fetch(&progress, 1, __ATOMIC_RELAXED);
}

uint64_t
gpuvec_progress(void)
{
	return __atomic_load_n(&progress, __ATOMIC_RELAXED);
}

/* Create a thread that takes no signals */
static bool
create_thread(pthread_t *thread, void *(*run) (void *arg), void *arg)
{
	sigset_t	all;
	sigset_t	old;
	int			rc;

	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &old);
	rc = pthread_create(thread, NULL, run, arg);
	pthread_sigmask(SIG_SETMASK, &old, NULL);
	return rc == 0;
}

bool
gpuvec_thread_start(void *(*run) (void *arg), void *arg)
{
	pthread_t	thread;

	return create_thread(&thread, run, arg) && pthread_detach(thread) == 0;
}

/* Cores that this process may run on, and may keep busy all the time */
static int
count_cores(void)
{
	cpu_set_t	set;
	double		busy = ceil(gpuvec_control_group_cores());
	int			cores = 1;

	if (sched_getaffinity(0, sizeof(set), &set) == 0 && CPU_COUNT(&set) > 0)
		cores = CPU_COUNT(&set);
	return busy < cores ? (int) busy : cores;
}

int
gpuvec_cores(void)
{
	static int	known = 0;		/* files have to be read, once is enough */
	int			cores = __atomic_load_n(&known, __ATOMIC_RELAXED);

	if (cores == 0)
	{
		cores = count_cores();
		__atomic_store_n(&known, cores, __ATOMIC_RELAXED);
	}
	return cores;
}

int
gpuvec_thread_pool_threads(const gpuvec_thread_pool *pool)
{
	return pool->nthreads;
}

/* Work on slices until all are taken */
static void
work(gpuvec_thread_pool *pool, int thread)
{
	for (;;)
	{
		uint64_t	slice = __atomic_fetch_add(&pool->next, 1, __ATOMIC_RELAXED);

		if (slice >= pool->nslices)
			break;
		pool->slice(pool->task, slice, thread);

		/*
		 * all threads work at the same task, so it is enough if one reports
		 */
		if (thread == 0)
			gpuvec_progress_made();
	}
}

static inline uint64_t
gate_of(gpuvec_thread_pool *pool)
{
	return __atomic_load_n(&pool->gate, __ATOMIC_SEQ_CST);
}

/* True if a run has begun since, or there will be none */
static bool
is_next(gpuvec_thread_pool *pool, uint64_t seen)
{
	return gate_of(pool) >> RUN_SHIFT != seen || __atomic_load_n(&pool->stop, __ATOMIC_SEQ_CST);
}

/* True if no worker is in the run any more, which is the present one */
static bool
is_empty(gpuvec_thread_pool *pool, uint64_t run)
{
	(void) run;
	return (gate_of(pool) & GATE_INSIDE) == 0;
}

/* Let the core's other thread work for a moment */
static inline void
relax(void)
{
#if defined(__x86_64__) || defined(__i386__)
	__builtin_ia32_pause();
#elif defined(__aarch64__)
	__asm__ volatile ("yield");
#endif
}

/* Look at the gate for a while; true once it is as wanted */
static bool
spin(gpuvec_thread_pool *pool, bool (*wanted) (gpuvec_thread_pool *, uint64_t), uint64_t run)
{
	uint64_t	ns = __atomic_load_n(&pool->spin_ns, __ATOMIC_RELAXED);
	uint64_t	end;

	if (wanted(pool, run))
		return true;
	if (ns == 0)
		return false;
	end = gpuvec_clock_ns() + ns;
	while (gpuvec_clock_ns() < end)
		for (int i = 0; i < 16; i++)
		{
			if (wanted(pool, run))
				return true;
			relax();
		}
	return false;
}

/* Wait for another run than this one, or the end */
static void
await_run(gpuvec_thread_pool *pool, uint64_t seen)
{
	if (spin(pool, is_next, seen))
		return;
	pthread_mutex_lock(&pool->mutex);
	__atomic_add_fetch(&pool->sleepers, 1, __ATOMIC_SEQ_CST);
	while (!is_next(pool, seen))
		pthread_cond_wait(&pool->start, &pool->mutex);
	__atomic_sub_fetch(&pool->sleepers, 1, __ATOMIC_SEQ_CST);
	pthread_mutex_unlock(&pool->mutex);
}

/* Join a run, unless it is over */
static bool
join(gpuvec_thread_pool *pool, uint64_t run)
{
	uint64_t	gate = gate_of(pool);

	while (gate >> RUN_SHIFT == run && !(gate & GATE_CLOSED))
		if (__atomic_compare_exchange_n(&pool->gate, &gate, gate + 1, true, __ATOMIC_SEQ_CST,
										__ATOMIC_SEQ_CST))
			return true;
	return false;
}

/* Leave the run; the last one wakes the caller */
static void
leave(gpuvec_thread_pool *pool)
{
	if ((__atomic_sub_fetch(&pool->gate, 1, __ATOMIC_SEQ_CST) & GATE_INSIDE) != 0 ||
		!__atomic_load_n(&pool->caller_sleeps, __ATOMIC_SEQ_CST))
		return;
	pthread_mutex_lock(&pool->mutex);
	pthread_cond_signal(&pool->done);
	pthread_mutex_unlock(&pool->mutex);
}

/* A worker thread: joins runs as they start */
static void *
worker(void *arg)
{
	worker_start *start = arg;
	gpuvec_thread_pool *pool = start->pool;
	int			thread = start->thread;
	uint64_t	seen = 0;

	free(start);
	for (;;)
	{
		await_run(pool, seen);
		if (__atomic_load_n(&pool->stop, __ATOMIC_SEQ_CST))
			return NULL;
		seen = gate_of(pool) >> RUN_SHIFT;
		if (!join(pool, seen))
			continue;
		work(pool, thread);
		leave(pool);
	}
}

/* Start one worker, with all signals blocked */
static bool
start_worker(gpuvec_thread_pool *pool, int thread)
{
	worker_start *start = malloc(sizeof(*start));

	if (start == NULL)
		return false;
	start->pool = pool;
	start->thread = thread;
	if (create_thread(&pool->threads[thread - 1], worker, start))
		return true;
	free(start);
	return false;
}

gpuvec_thread_pool *
gpuvec_thread_pool_new(int nthreads)
{
	gpuvec_thread_pool *pool;

	if (nthreads <= 0)
		nthreads = gpuvec_cores();
	pool = calloc(1, sizeof(*pool) + (size_t) nthreads * sizeof(pthread_t));
	if (pool == NULL)
		return NULL;
	pthread_mutex_init(&pool->caller, NULL);
	pthread_mutex_init(&pool->mutex, NULL);
	pthread_cond_init(&pool->turn, NULL);
	pthread_cond_init(&pool->start, NULL);
	pthread_cond_init(&pool->done, NULL);
	pool->gate = GATE_CLOSED;
	for (pool->nthreads = 1; pool->nthreads < nthreads; pool->nthreads++)
	{
		if (!start_worker(pool, pool->nthreads))
		{
			gpuvec_thread_pool_free(pool);
			return NULL;
		}
	}
	return pool;
}

void
gpuvec_thread_pool_free(gpuvec_thread_pool *pool)
{
	if (pool == NULL)
		return;
	pthread_mutex_lock(&pool->mutex);
	__atomic_store_n(&pool->stop, true, __ATOMIC_SEQ_CST);
	pthread_cond_broadcast(&pool->start);
	pthread_mutex_unlock(&pool->mutex);
	for (int i = 0; i < pool->nthreads - 1; i++)
		pthread_join(pool->threads[i], NULL);
	pthread_mutex_destroy(&pool->caller);
	pthread_mutex_destroy(&pool->mutex);
	pthread_cond_destroy(&pool->turn);
	pthread_cond_destroy(&pool->start);
	pthread_cond_destroy(&pool->done);
	free(pool);
}

void
gpuvec_thread_pool_spin(gpuvec_thread_pool *pool, uint64_t ns)
{
	__atomic_store_n(&pool->spin_ns, ns, __ATOMIC_RELAXED);
}

/* Wake as many workers as there are slices for */
static void
wake(gpuvec_thread_pool *pool, uint64_t nslices)
{
	uint64_t	sleepers = (uint64_t) __atomic_load_n(&pool->sleepers, __ATOMIC_SEQ_CST);

	if (sleepers == 0)
		return;
	pthread_mutex_lock(&pool->mutex);
	if (nslices >= sleepers)
		pthread_cond_broadcast(&pool->start);
	else
		for (uint64_t i = 0; i < nslices; i++)
			pthread_cond_signal(&pool->start);
	pthread_mutex_unlock(&pool->mutex);
}

/* Let nobody join the run any more, and wait for those in it */
static void
end_run(gpuvec_thread_pool *pool)
{
	__atomic_or_fetch(&pool->gate, GATE_CLOSED, __ATOMIC_SEQ_CST);
	if (spin(pool, is_empty, 0))
		return;
	pthread_mutex_lock(&pool->mutex);
	__atomic_store_n(&pool->caller_sleeps, true, __ATOMIC_SEQ_CST);
	while (!is_empty(pool, 0))
		pthread_cond_wait(&pool->done, &pool->mutex);
	__atomic_store_n(&pool->caller_sleeps, false, __ATOMIC_SEQ_CST);
	pthread_mutex_unlock(&pool->mutex);
}

/*
 * Wait for one's turn.  A mutex alone would go again and again to who has just
 * let go of it: a load with thousands of runs.
 */
static void
begin_turn(gpuvec_thread_pool *pool)
{
	uint64_t	ticket;

	pthread_mutex_lock(&pool->caller);
	ticket = pool->last_ticket++;
	while (pool->served != ticket)
		pthread_cond_wait(&pool->turn, &pool->caller);
	pthread_mutex_unlock(&pool->caller);
}

static void
end_turn(gpuvec_thread_pool *pool)
{
	pthread_mutex_lock(&pool->caller);
	pool->served++;
	pthread_cond_broadcast(&pool->turn);
	pthread_mutex_unlock(&pool->caller);
}

void
gpuvec_thread_pool_run(gpuvec_thread_pool *pool, gpuvec_slice slice, void *task, uint64_t nslices)
{
	bool		open = pool->nthreads > 1 && nslices > 1;

	begin_turn(pool);
	pool->slice = slice;
	pool->task = task;
	pool->nslices = nslices;
	pool->next = 0;
	if (open)
	{
		uint64_t	run = (gate_of(pool) >> RUN_SHIFT) + 1;

		__atomic_store_n(&pool->gate, run << RUN_SHIFT, __ATOMIC_SEQ_CST);
		wake(pool, nslices - 1);
	}
	work(pool, 0);
	if (open)
		end_run(pool);
	end_turn(pool);
}
