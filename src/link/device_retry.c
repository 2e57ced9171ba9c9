/*-------------------------------------------------------------------------
 *
 * device_retry.c
 *	  Tries devices that have failed and that the engine does without
 *	  (lost_devices.c).
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
#include "link/device_retry.h"
#include "link/engine_process.h"
#include "link/faults.h"
#include "link/lost_devices.h"

/* How long a probe may take */
#define PROBE_MS			60000

static pid_t probe = 0;			/* a running one, or 0 */
static int64 probe_began = 0;	/* of gpuvec_clock_us() */

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
	DevicesClear();
}

static void
start_probe(void)
{
	char	  **argv = EngineProbeArguments(DevicesLost());
	pid_t		parent = getpid();
	int			null = GPUVEC_CALL(open("/dev/null", O_RDWR | O_CLOEXEC));

	DevicesTrying();
	probe = null < 0 ? -1 : GPUVEC_CALL(fork());
	if (probe == 0)
		EngineExec(argv, null, null, parent);
	if (null >= 0)
		close(null);
	probe_began = gpuvec_clock_us();
	if (probe > 0)
		return;
	probe = 0;
	DevicesLater();
}

/* A probe has ended: start the engine again if a device can be used */
static void
probe_ended(int status)
{
	char	   *devices = DevicesLost();

	probe = 0;
	if (!WIFEXITED(status) || WEXITSTATUS(status) != 0)
	{
		DevicesLater();
		return;
	}
	ereport(LOG,
			(errmsg("restarting the gpuvec engine because a device can be used again"),
			 errdetail("Devices that could not be used: %s.", devices)));
	DevicesUsable();
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
			DevicesLater();
		}
	}
	else if (DevicesDue(now) && supervisor.ready)
		start_probe();
}
