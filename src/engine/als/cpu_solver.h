/*-------------------------------------------------------------------------
 *
 * cpu_solver.h
 *	  Iterations of a training on threads of the CPU.
 *
 *-------------------------------------------------------------------------
 */
#ifndef GPUVEC_CPU_SOLVER_H
#define GPUVEC_CPU_SOLVER_H

#include "engine/als_backend.h"

/*
 * Its solvers work on the problem's factors themselves, on the threads of the
 * problem's pool.  It has no state of its own.
 */
extern gpuvec_trainer gpuvec_cpu_trainer;

#endif							/* GPUVEC_CPU_SOLVER_H */
