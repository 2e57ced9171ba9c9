/*-------------------------------------------------------------------------
 *
 * device_retry.h
 *	  Trying devices that have failed, for src/link only.
 *
 *-------------------------------------------------------------------------
 */
#ifndef GPUVEC_DEVICE_RETRY_H
#define GPUVEC_DEVICE_RETRY_H

/* Look after probes, at each look */
extern void DevicesRetry(void);

/* Forget all that failed before */
extern void DevicesForget(void);

#endif							/* GPUVEC_DEVICE_RETRY_H */
