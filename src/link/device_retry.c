/*-------------------------------------------------------------------------
 *
 * device_retry.c
 *	  Devices that have failed: the engine does without them, and they are
 *	  tried again later.
 *
 * All of this runs in the supervisor.  An error of a GPU may spoil all that
 * the engine's process does with GPUs, so it ends.  Its log says which of
 * several devices has failed, and the next engine leaves that out.  An engine
 * also says which devices it could not use when it started.
 *
 * After a while the engine's program is run as a probe: a process of its own,
 * which does nothing but open these devices.  If one can be used, the engine
 * is started again, with all devices: tables are loaded again.  Otherwise, and
 * when the device soon fails once more, the next probe comes after twice the
 * time.
 *
 *-------------------------------------------------------------------------
 */
#include "gpuvec.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include "core/clock.h"
#include "lib/stringinfo.h"
#include "link/engine_process.h"
#include "link/faults.h"

/* The longest time until a probe; the first is gpuvec_device_retry */
#define LONGEST_RETRY_MS	3600000

/* How long a probe may take */
#define PROBE_MS			60000

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
static int64 next_probe = 0;
static pid_t probe = 0;			/* a running one, or 0 */
static int64 probe_began = 0;

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
static void
plan_probe(void)
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
		plan_probe();
}

char *
DevicesWithout(void)
{
	return list_devices(&failed);
}

void
DevicesStarting(void)
{
	lost.n = 0;
	next_probe = 0;
}

/* End a probe, which has no children */
static void
end_probe(void)
{
	int			status;

	if (probe == 0)
		return;
	kill(probe, SIGKILL);
	waitpid(probe, &status, 0);
	probe = 0;
}

void
DevicesForget(void)
{
	end_probe();
	failed.n = lost.n = 0;
	retry_ms = 0;
	next_probe = 0;
}

static void
start_probe(void)
{
	char	  **argv = EngineProbeArguments(list_devices(&lost));
	pid_t		parent = getpid();
	int			null = GPUVEC_CALL(open("/dev/null", O_RDWR | O_CLOEXEC));

	next_probe = 0;
	probe = null < 0 ? -1 : GPUVEC_CALL(fork());
	if (probe == 0)
		EngineExec(argv, null, null, parent);
	if (null >= 0)
		close(null);
	probe_began = gpuvec_clock_us();
	if (probe > 0)
		return;
	probe = 0;
	plan_probe();
}

/* A probe has ended: start the engine again if a device can be used */
static void
probe_ended(int status)
{
	char	   *devices = list_devices(&lost);

	probe = 0;
	if (!WIFEXITED(status) || WEXITSTATUS(status) != 0)
	{
		plan_probe();
		return;
	}
	ereport(LOG,
			(errmsg("restarting the gpuvec engine because a device can be used again"),
			 errdetail("Devices that could not be used: %s.", devices)));
	failed.n = 0;
	EngineRestart();
}

void
DevicesRetry(void)
{
	int64		now = gpuvec_clock_us();
	int			status;

	if (probe != 0)
	{
		if (waitpid(probe, &status, WNOHANG) == probe)
			probe_ended(status);
		else if (now - probe_began >= PROBE_MS * INT64CONST(1000))
		{
			/* a process that waits in the driver may not end: leave it */
			kill(probe, SIGKILL);
			probe = 0;
			plan_probe();
		}
	}
	else if (lost.n > 0 && next_probe != 0 && now >= next_probe && supervisor.ready)
		start_probe();
}
