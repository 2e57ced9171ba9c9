/*-------------------------------------------------------------------------
 *
 * control_group.h
 *	  The limits of the control groups that this process is in.
 *
 * In a container, the machine has more memory and cores than this process may
 * use.  A limit of a group holds for all groups in it, so the group and all of
 * its ancestors count.  Both versions of control groups are read; files that
 * cannot be read have no limit.
 *
 *-------------------------------------------------------------------------
 */
#ifndef GPUVEC_CONTROL_GROUP_H
#define GPUVEC_CONTROL_GROUP_H

#include <stddef.h>

/*
 * Read all from below this folder instead of "/"; NULL: from "/".  For tests.
 */
extern void gpuvec_control_group_root(const char *folder);

/* Bytes of memory that the groups may use; SIZE_MAX: no limit */
extern size_t gpuvec_control_group_memory(void);

/* Cores that the groups may keep busy all the time; HUGE_VAL: no limit */
extern double gpuvec_control_group_cores(void);

#endif							/* GPUVEC_CONTROL_GROUP_H */
