/*-------------------------------------------------------------------------
 *
 * faults.h
 *	  Tests make system calls and allocations of the link fail, one after
 *	  another.
 *
 * Every system call and every allocation of src/link goes through one of
 * these macros.  A test says which one is to fail, counted from now on, and
 * how.
 *
 *-------------------------------------------------------------------------
 */
#ifndef GPUVEC_FAULTS_H
#define GPUVEC_FAULTS_H

#include "postgres.h"

#ifdef GPUVEC_TEST_HOOKS

/*
 * Define the settings, when the library is loaded; the supervisor's own count
 * replaces that of sessions in its process
 */
extern void GpuvecDefineFaults(void);
extern void GpuvecFaultsOfSupervisor(void);

/* Is it time to fail?  Sets errno. */
extern bool GpuvecFails(void);
extern void GpuvecFailOrGoOn(int sqlerrcode, const char *what);

#define GPUVEC_CALL(call)	(GpuvecFails() ? -1 : (call))
#define GPUVEC_RAISING(call) \
	(GpuvecFailOrGoOn(ERRCODE_INSUFFICIENT_RESOURCES, #call), (call))
#define GPUVEC_ALLOCATING(call) \
	(GpuvecFailOrGoOn(ERRCODE_OUT_OF_MEMORY, #call), (call))
#define GPUVEC_REFUSING(call) (!GpuvecFails() && (call))
#else
#define GpuvecDefineFaults() ((void) 0)
#define GpuvecFaultsOfSupervisor() ((void) 0)

/* -1, and errno, if it fails */
#define GPUVEC_CALL(call)	(call)
/* an error of PostgreSQL's if it fails */
#define GPUVEC_RAISING(call) (call)
/* the same, for want of memory */
#define GPUVEC_ALLOCATING(call) (call)
/* false if it fails */
#define GPUVEC_REFUSING(call) (call)
#endif

#endif							/* GPUVEC_FAULTS_H */
