/*-------------------------------------------------------------------------
 *
 * lost_devices.h
 *	  The devices that the engine does without, and their next try, for
 *	  src/link only.
 *
 *-------------------------------------------------------------------------
 */
#ifndef GPUVEC_LOST_DEVICES_H
#define GPUVEC_LOST_DEVICES_H

#include "postgres.h"

/* A device of the engine has failed, or could not be used when it started */
extern void DeviceFailed(int number);
extern void DeviceLost(int number);

/*
 * The devices that the engine is to be started without, and those that the
 * running one cannot use: a list, or NULL
 */
extern char *DevicesWithout(void);
extern char *DevicesLost(void);

/* An engine is about to start */
extern void DevicesStarting(void);

/*
 * For device_retry.c.  due: it is time to try the lost devices.  trying: that
 * has begun.  later: it was in vain, try them again.  usable: the next engine
 * is started with all devices.  clear: forget all that failed before.
 */
extern bool DevicesDue(int64 now);
extern void DevicesTrying(void);
extern void DevicesLater(void);
extern void DevicesUsable(void);
extern void DevicesClear(void);

#endif							/* GPUVEC_LOST_DEVICES_H */
