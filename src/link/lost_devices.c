/*-------------------------------------------------------------------------
 *
 * lost_devices.c
 *	  The devices that the engine does without, and when they are tried again.
 *
 * The supervisor knows these from the engine's log: see device_retry.c, which
 * tries them.
 *
 *-------------------------------------------------------------------------
 */
#include "gpuvec.h"

#include "core/clock.h"
#include "lib/stringinfo.h"
#include "link/lost_devices.h"

/* The longest time until a probe; the first is gpuvec_device_retry */
#define LONGEST_RETRY_MS	3600000

/* Most devices, as the engine has them */
#define MOST_DEVICES		64

typedef struct DeviceList
{
	int			n;
	int			numbers[MOST_DEVICES];
} DeviceList;

/* The next engine leaves these out; the running one cannot use these */
static DeviceList failed;
static DeviceList lost;

static int	retry_ms = 0;		/* until the next probe; 0: as the first one */
static int64 last_failure = 0;	/* all times are of gpuvec_clock_us() */
static int64 next_probe = 0;	/* 0: none is planned */

static void
add_device(DeviceList *list, int number)
{
	for (int i = 0; i < list->n; i++)
		if (list->numbers[i] == number)
			return;
	if (list->n < MOST_DEVICES)
		list->numbers[list->n++] = number;
}

static char *
list_devices(const DeviceList *list)
{
	StringInfoData text;

	if (list->n == 0)
		return NULL;
	initStringInfo(&text);
	for (int i = 0; i < list->n; i++)
		appendStringInfo(&text, i > 0 ? ",%d" : "%d", list->numbers[i]);
	return text.data;
}

/* Plan the next probe, later than the one before */
void
DevicesLater(void)
{
	int			delay = retry_ms > 0 ? retry_ms : gpuvec_device_retry;

	next_probe = gpuvec_clock_us() + delay * INT64CONST(1000);
	retry_ms = Min(delay, LONGEST_RETRY_MS / 2) * 2;
}

void
DeviceFailed(int number)
{
	int64		now = gpuvec_clock_us();

	if (now - last_failure >= LONGEST_RETRY_MS * INT64CONST(1000))
		retry_ms = 0;
	last_failure = now;
	add_device(&failed, number);
}

void
DeviceLost(int number)
{
	add_device(&lost, number);
	if (next_probe == 0)
		DevicesLater();
}

char *
DevicesWithout(void)
{
	return list_devices(&failed);
}

char *
DevicesLost(void)
{
	return list_devices(&lost);
}

void
DevicesStarting(void)
{
	lost.n = 0;
	next_probe = 0;
}

bool
DevicesDue(int64 now)
{
	return lost.n > 0 && next_probe != 0 && now >= next_probe;
}

void
DevicesTrying(void)
{
	next_probe = 0;
}

void
DevicesUsable(void)
{
	failed.n = 0;
}

void
DevicesClear(void)
{
	failed.n = lost.n = 0;
	retry_ms = 0;
	next_probe = 0;
}
