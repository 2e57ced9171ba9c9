/*-------------------------------------------------------------------------
 *
 * pool_test.c
 *	  Test of the pools of threads: each slice is done once, by one thread at
 *	  a time, before the run returns.
 *
 *-------------------------------------------------------------------------
 */
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "engine/thread_pool.h"
#include "unit_test.h"

#define MOST_SLICES		64

typedef struct test_run
{
	uint64_t	nslices;
	int			done[MOST_SLICES];
	int			inside[MOST_SLICES];	/* by thread */
	bool		ended;
	bool		wrong;
} test_run;

static void
do_slice(void *task, uint64_t slice, int thread)
{
	test_run   *run = task;

	if (run->ended || slice >= run->nslices ||
		__atomic_add_fetch(&run->inside[thread], 1, __ATOMIC_SEQ_CST) != 1)
		run->wrong = true;
	__atomic_add_fetch(&run->done[slice], 1, __ATOMIC_SEQ_CST);
	/* some slices take longer, so that others have to wait */
	if (slice % 16 == 7)
		usleep(50);
	__atomic_sub_fetch(&run->inside[thread], 1, __ATOMIC_SEQ_CST);
}

/* Run slices; true if each was done once, and none afterwards */
static bool
run_right(gpuvec_thread_pool *pool, uint64_t nslices)
{
	test_run	run = {.nslices = nslices};

	gpuvec_thread_pool_run(pool, do_slice, &run, nslices);
	run.ended = true;
	for (uint64_t i = 0; i < nslices; i++)
		if (run.done[i] != 1)
			return false;
	return !run.wrong;
}

typedef struct test_caller
{
	gpuvec_thread_pool *pool;
	unsigned	seed;
	bool		ok;
} test_caller;

/* Many runs, now and then with a pause in which workers go to sleep */
static void *
call_often(void *arg)
{
	test_caller *caller = arg;

	caller->ok = true;
	for (int i = 0; i < 3000; i++)
	{
		caller->ok &= run_right(caller->pool, (uint64_t) rand_r(&caller->seed) % MOST_SLICES);
		if (i % 100 == 0)
			usleep((unsigned) rand_r(&caller->seed) % 400);
	}
	return NULL;
}

/* Several callers take turns with one pool */
static void
test_callers(int nthreads, uint64_t spin_ns)
{
	gpuvec_thread_pool *pool = gpuvec_thread_pool_new(nthreads);
	test_caller callers[3];
	pthread_t	threads[3];

	check(pool != NULL && gpuvec_thread_pool_threads(pool) == nthreads, "a pool");
	gpuvec_thread_pool_spin(pool, spin_ns);
	for (unsigned i = 0; i < 3; i++)
	{
		callers[i] = (test_caller) {.pool = pool, .seed = i + 1};
		check(pthread_create(&threads[i], NULL, call_often, &callers[i]) == 0, "a caller");
	}
	for (int i = 0; i < 3; i++)
	{
		pthread_join(threads[i], NULL);
		check(callers[i].ok, "each part of a run is done once");
	}
	gpuvec_thread_pool_free(pool);
}

/* A pool that is freed while its workers look for work, or sleep */
static void
test_free(uint64_t spin_ns)
{
	for (int i = 0; i < 50; i++)
	{
		gpuvec_thread_pool *pool = gpuvec_thread_pool_new(3);

		gpuvec_thread_pool_spin(pool, spin_ns);
		if (i % 3 > 0)
			check(run_right(pool, (uint64_t) i % 5), "a run");
		if (i % 2 > 0)
			usleep(200);
		gpuvec_thread_pool_free(pool);
	}
	gpuvec_thread_pool_free(NULL);
}

int
main(void)
{
	for (uint64_t spin_ns = 0; spin_ns <= 100000; spin_ns += 50000)
	{
		test_callers(1, spin_ns);
		test_callers(2, spin_ns);
		test_callers(5, spin_ns);
		test_free(spin_ns);
	}
	return report_checks();
}
