/*-------------------------------------------------------------------------
 *
 * cpu_solver.h
 *	  Iterations of a training on threads of the CPU.
 *
 *-------------------------------------------------------------------------
 */
#ifndef GPUVEC_CPU_SOLVER_H
#define GPUVEC_CPU_SOLVER_H

#include "engine/als/als_memory.h"
#include "engine/als_backend.h"
#include "engine/thread_pool.h"

/*
 * A solver that works on the problem's factors themselves, on the threads of
 * a pool.  NULL, with *error, if memory is lacking.
 */
extern gpuvec_als_solver *gpuvec_cpu_solver_new(gpuvec_als_memory *memory, gpuvec_thread_pool *pool,
												const gpuvec_als_problem *problem,
												gpuvec_error *error);

#endif							/* GPUVEC_CPU_SOLVER_H */
