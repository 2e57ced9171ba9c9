/*-------------------------------------------------------------------------
 *
 * faults.h
 *	  Fault injection: makes system calls and allocations of src/link fail.
 *
 * Every system call and every allocation of src/link goes through one of
 * these macros.  A test sets the number of the call that fails, counted from
 * the moment of setting it, and errno.
 *
 *-------------------------------------------------------------------------
 */
#ifndef GPUVEC_FAULTS_H
#define GPUVEC_FAULTS_H

#include "postgres.h"

#ifdef GPUVEC_TEST_HOOKS

/*
 * GpuvecDefineFaults() is called when the library is loaded.
 * GpuvecFaultsOfSupervisor() makes the supervisor use
 * gpuvec.supervisor_fail_at in place of gpuvec.fail_at.
 */
extern void GpuvecDefineFaults(void);
extern void GpuvecFaultsOfSupervisor(void);

/* True if this call must fail; sets errno */
extern bool GpuvecFails(void);
extern void GpuvecMayRaise(int sqlerrcode, const char *what);

#define GPUVEC_CALL(call)	(GpuvecFails() ? -1 : (call))
#define GPUVEC_RAISING(call) \
	(GpuvecMayRaise(ERRCODE_INSUFFICIENT_RESOURCES, #call), (call))
#define GPUVEC_ALLOCATING(call) \
	(GpuvecMayRaise(ERRCODE_OUT_OF_MEMORY, #call), (call))
#define GPUVEC_REFUSING(call) (!GpuvecFails() && (call))
#else
#define GpuvecDefineFaults() ((void) 0)
#define GpuvecFaultsOfSupervisor() ((void) 0)

/* the value of the call; -1 and errno on failure */
#define GPUVEC_CALL(call)	(call)
/* the call raises an error on failure */
#define GPUVEC_RAISING(call) (call)
/* the call raises an out-of-memory error on failure */
#define GPUVEC_ALLOCATING(call) (call)
/* the value of the call; false on failure */
#define GPUVEC_REFUSING(call) (call)
#endif

#endif							/* GPUVEC_FAULTS_H */
