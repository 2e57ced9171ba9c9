/*-------------------------------------------------------------------------
 *
 * settings.c
 *	  Defines the extension's settings.
 *
 *-------------------------------------------------------------------------
 */
#include "gpuvec.h"

#include <limits.h>

#include "core/method.h"
#include "core/pooling.h"
#include "miscadmin.h"
#include "utils/guc.h"

int			gpuvec_engine = GPUVEC_ENGINE_AUTO;
char	   *gpuvec_devices = NULL;
int			gpuvec_device_memory = 0;
int			gpuvec_host_memory = 0;
int			gpuvec_cpu_threads = 0;
int			gpuvec_max_sessions = 1000;
char	   *gpuvec_engine_program = NULL;
bool		gpuvec_verify = false;
int			gpuvec_method_choice = GPUVEC_METHOD_AUTO;
int			gpuvec_vector_storage = GPUVEC_FLOAT32;
bool		gpuvec_autoprewarm = true;
int			gpuvec_ahead_rows = 1024;
int			gpuvec_join_rows = 256;
bool		gpuvec_own_connections = true;
int			gpuvec_hedging_delay = 0;

static const struct config_enum_entry engine_options[] = {
	{"auto", GPUVEC_ENGINE_AUTO, false},
	{"cuda", GPUVEC_ENGINE_CUDA, false},
	{"cpu", GPUVEC_ENGINE_CPU, false},
	{NULL, 0, false}
};

static const struct config_enum_entry method_options[] = {
	{"auto", GPUVEC_METHOD_AUTO, false},
	{"bitset", GPUVEC_METHOD_BITSET, false},
	{"inverted", GPUVEC_METHOD_INVERTED, false},
	{NULL, 0, false}
};

static const struct config_enum_entry storage_options[] = {
	{"float32", GPUVEC_FLOAT32, false},
	{"float16", GPUVEC_FLOAT16, false},
	{NULL, 0, false}
};

/*
 * GUC check hook: a comma-separated list of device numbers, "all", or an
 * empty string
 */
static bool
check_devices(char **newval, void **extra, GucSource source)
{
	bool		digit_needed = false;

	if (strcmp(*newval, "all") == 0)
		return true;
	for (const char *p = *newval; *p; p++)
	{
		if (*p >= '0' && *p <= '9')
			digit_needed = false;
		else if (*p == ',' && !digit_needed && p != *newval)
			digit_needed = true;
		else if (*p != ' ')
		{
			digit_needed = true;
			break;
		}
	}
	if (digit_needed)
		GUC_check_errdetail("Write \"all\", or device numbers separated by commas, as in \"0,1\".");
	return !digit_needed;
}

/* The settings that the supervisor passes to the engine */
static void
define_engine_settings(void)
{
	DefineCustomEnumVariable("gpuvec.engine",
							 "Selects what the engine runs on.",
							 "\"auto\" takes a GPU if there is one, and the CPU otherwise.",
							 &gpuvec_engine, GPUVEC_ENGINE_AUTO, engine_options,
							 PGC_SIGHUP, 0, NULL, NULL, NULL);

	DefineCustomStringVariable("gpuvec.devices",
							   "Numbers of the GPUs that the engine may use, separated by commas.",
							   "An empty string means the first GPU, \"all\" means all of them.",
							   &gpuvec_devices, "",
							   PGC_SIGHUP, 0, check_devices, NULL, NULL);

	DefineCustomIntVariable("gpuvec.device_memory",
							"Memory that mirrors may take on each device.",
							"0 means 80 % of the free memory of a GPU, or half of the machine's memory on the CPU.",
							&gpuvec_device_memory, 0, 0, INT_MAX / 2,
							PGC_SIGHUP, GUC_UNIT_MB, NULL, NULL, NULL);

	DefineCustomIntVariable("gpuvec.host_memory",
							"Memory of the host for sets that GPUs have no room for.",
							"The engine's threads search these, while the GPUs search theirs.  0 means none.",
							&gpuvec_host_memory, 0, 0, INT_MAX / 2,
							PGC_SIGHUP, GUC_UNIT_MB, NULL, NULL, NULL);

	DefineCustomIntVariable("gpuvec.cpu_threads",
							"Number of threads of the engine on the CPU.",
							"0 means one for each core.",
							&gpuvec_cpu_threads, 0, 0, 1024,
							PGC_SIGHUP, 0, NULL, NULL, NULL);

	DefineCustomIntVariable("gpuvec.max_sessions",
							"Number of sessions that may be connected to the engine.",
							NULL,
							&gpuvec_max_sessions, 1000, 1, 100000,
							PGC_SIGHUP, 0, NULL, NULL, NULL);

	DefineCustomStringVariable("gpuvec.engine_program",
							   "Path of the engine program.",
							   "An empty string means gpuvec-engine-cuda beside the postgres program, or gpuvec-engine.",
							   &gpuvec_engine_program, "",
							   PGC_SIGHUP, GUC_SUPERUSER_ONLY, NULL, NULL, NULL);
}

void
GpuvecDefineSettings(void)
{
	define_engine_settings();

	DefineCustomBoolVariable("gpuvec.verify",
							 "Recomputes each score from the table and fails on any difference.",
							 NULL,
							 &gpuvec_verify, false,
							 PGC_SUSET, 0, NULL, NULL, NULL);

	DefineCustomEnumVariable("gpuvec.method",
							 "Selects how searches count common ids.",
							 "\"auto\" chooses by cost; the results are the same.",
							 &gpuvec_method_choice, GPUVEC_METHOD_AUTO, method_options,
							 PGC_USERSET, 0, NULL, NULL, NULL);

	DefineCustomEnumVariable("gpuvec.vector_storage",
							 "Selects how the engine stores the vectors of embedding tables.",
							 "\"float16\" halves memory and rounds elements to 11 bits; vectors of type halfvec are always stored so.",
							 &gpuvec_vector_storage, GPUVEC_FLOAT32, storage_options,
							 PGC_USERSET, 0, NULL, NULL, NULL);

	DefineCustomIntVariable("gpuvec.ahead_rows",
							"Most rows handed over by an index that a search ranks itself.",
							"If more of them wait, the search waits until the engine has applied them.",
							&gpuvec_ahead_rows, 1024, 0, 4096,
							PGC_USERSET, 0, NULL, NULL, NULL);

	DefineCustomIntVariable("gpuvec.join_rows",
							"Most rows of a join whose searches are asked for together.",
							"1 asks for each when it is needed.",
							&gpuvec_join_rows, 256, 1, 1024,
							PGC_USERSET, 0, NULL, NULL, NULL);

	DefineCustomBoolVariable("gpuvec.own_connections",
							 "Lets searches of foreign tables use connections of their own.",
							 "They are used where a search is all of the transaction; otherwise, and if this is off, those of postgres_fdw.",
							 &gpuvec_own_connections, true,
							 PGC_USERSET, 0, NULL, NULL, NULL);

	DefineCustomIntVariable("gpuvec.hedging_delay",
							"Time after which a search of a foreign table asks a second host of a server that has returned no row.",
							"0 asks none. It needs connections of gpuvec's own, and a server with several hosts.",
							&gpuvec_hedging_delay, 0, 0, 3600000,
							PGC_USERSET, GUC_UNIT_MS, NULL, NULL, NULL);

	/*
	 * Only the server's start reads it.  A session may not define a
	 * PGC_POSTMASTER variable.
	 */
	DefineCustomBoolVariable("gpuvec.autoprewarm",
							 "Loads tables again after a restart.",
							 "It has no effect unless gpuvec is in shared_preload_libraries.",
							 &gpuvec_autoprewarm, true,
							 process_shared_preload_libraries_in_progress ? PGC_POSTMASTER : PGC_SIGHUP,
							 0, NULL, NULL, NULL);
}
