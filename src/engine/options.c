/*-------------------------------------------------------------------------
 *
 * options.c
 *	  The engine's command line.
 *
 *-------------------------------------------------------------------------
 */
#include <errno.h>
#include <getopt.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/log.h"
#include "engine/options.h"

#define EXIT_USAGE	2

static const struct option long_options[] = {
	{"listen-fd", required_argument, NULL, 'l'},
	{"liveness-fd", required_argument, NULL, 'v'},
	{"socket", required_argument, NULL, 's'},
	{"incarnation", required_argument, NULL, 'i'},
	{"backend", required_argument, NULL, 'b'},
	{"devices", required_argument, NULL, 'd'},
	{"without-devices", required_argument, NULL, 'w'},
	{"probe", no_argument, NULL, 'P'},
	{"device-memory", required_argument, NULL, 'm'},
	{"host-memory", required_argument, NULL, 'H'},
	{"cpu-threads", required_argument, NULL, 't'},
	{"cpu-parts", required_argument, NULL, 'p'},
	{"max-sessions", required_argument, NULL, 'n'},
	{"version", no_argument, NULL, 'V'},
	{"help", no_argument, NULL, 'h'},
	{NULL, 0, NULL, 0}
};

static const char help[] =
"gpuvec-engine keeps gpuvec's data resident and searches it.\n"
"The gpuvec extension starts it; it is seldom started by hand.\n"
"\n"
"  --socket=PATH         listen on a UNIX socket\n"
"  --listen-fd=N         listen on an open descriptor\n"
"  --liveness-fd=N       exit when the other end of this pipe is closed\n"
"  --incarnation=HEX     32 hexadecimal digits that sessions must present\n"
"  --backend=NAME        auto, cuda or cpu\n"
"  --devices=LIST        numbers of GPUs, as in 0,1, or all\n"
"  --without-devices=LIST  leave out these, as they have failed\n"
"  --probe               exit with 0 if one of these can be used, and 1 if not\n"
"  --device-memory=MB    memory for mirrors on each device, 0 to choose\n"
"  --host-memory=MB      memory of the host for what devices have no room for\n"
"  --cpu-threads=N       threads on the CPU, 0 for all cores\n"
"  --cpu-parts=N         devices that the CPU pretends to be, for tests\n"
"  --max-sessions=N      connections to accept\n";

static void
bad_option(const char *name, const char *value)
{
	gpuvec_log("ERROR", "invalid value \"%s\" for option --%s", value, name);
	exit(EXIT_USAGE);
}

/* Parse the number of an option.  Exits if it is not in [least, most]. */
static long
parse_number(const char *name, const char *value, long least, long most)
{
	char	   *end;
	long		number;

	errno = 0;
	number = strtol(value, &end, 10);
	if (end == value || *end != '\0' || errno != 0 || number < least || number > most)
		bad_option(name, value);
	return number;
}

static void
parse_incarnation(gpuvec_engine_options *options, const char *value)
{
	if (strlen(value) != 32 || strspn(value, "0123456789abcdef") != 32)
		bad_option("incarnation", value);
	for (int i = 0; i < 16; i++)
	{
		char		digits[3] = {value[2 * i], value[2 * i + 1], '\0'};

		options->incarnation[i] = (uint8_t) strtoul(digits, NULL, 16);
	}
}

/* Parse a list of numbers separated by commas; returns how many */
static int
parse_list(const char *name, const char *value, int *numbers)
{
	char	   *copy = strdup(value);
	char	   *rest = copy;
	char	   *item;
	int			n = 0;

	while (copy && (item = strsep(&rest, ",")) != NULL)
	{
		if (n == GPUVEC_MAX_DEVICES)
			bad_option(name, value);
		item += strspn(item, " ");
		item[strcspn(item, " ")] = '\0';
		numbers[n++] = (int) parse_number(name, item, 0, 1023);
	}
	free(copy);
	return n;
}

/* Parse a list of device numbers, or "all" */
static void
parse_devices(gpuvec_engine_options *options, const char *value)
{
	options->all_devices = strcmp(value, "all") == 0;
	options->ndevices = options->all_devices ? 0 : parse_list("devices", value, options->devices);
}

bool
gpuvec_is_without(const gpuvec_engine_options *options, int number)
{
	for (int i = 0; i < options->nwithout; i++)
		if (options->without[i] == number)
			return true;
	return false;
}

static void
parse_backend(gpuvec_engine_options *options, const char *value)
{
	if (strcmp(value, "auto") != 0 && strcmp(value, "cuda") != 0 && strcmp(value, "cpu") != 0)
		bad_option("backend", value);
	snprintf(options->backend, sizeof(options->backend), "%s", value);
}

void
gpuvec_parse_options(gpuvec_engine_options *options, int argc, char **argv)
{
	int			c;

	memset(options, 0, sizeof(*options));
	options->listen_fd = options->liveness_fd = -1;
	options->ndevices = 1;
	options->max_sessions = 1000;
	strcpy(options->backend, "auto");

	while ((c = getopt_long(argc, argv, "", long_options, NULL)) != -1)
	{
		switch (c)
		{
			case 'l':
				options->listen_fd = (int) parse_number("listen-fd", optarg, 0, INT_MAX);
				break;
			case 'v':
				options->liveness_fd = (int) parse_number("liveness-fd", optarg, 0, INT_MAX);
				break;
			case 's':
				options->socket = optarg;
				break;
			case 'i':
				parse_incarnation(options, optarg);
				break;
			case 'b':
				parse_backend(options, optarg);
				break;
			case 'd':
				parse_devices(options, optarg);
				break;
			case 'w':
				options->nwithout = parse_list("without-devices", optarg, options->without);
				break;
			case 'P':
				options->probe = true;
				break;
			case 'm':
				options->memory_mb = (uint64_t) parse_number("device-memory", optarg, 0, INT_MAX);
				break;
			case 'H':
				options->host_mb = (uint64_t) parse_number("host-memory", optarg, 0, INT_MAX);
				break;
			case 't':
				options->cpu_threads = (int) parse_number("cpu-threads", optarg, 0, 1024);
				break;
			case 'p':
				options->cpu_parts = (int) parse_number("cpu-parts", optarg, 0, GPUVEC_MAX_DEVICES);
				break;
			case 'n':
				options->max_sessions = (int) parse_number("max-sessions", optarg, 1, 1000000);
				break;
			case 'V':
				printf("gpuvec-engine %s\n", GPUVEC_VERSION);
				exit(0);
			case 'h':
				fputs(help, stdout);
				exit(0);
			default:
				exit(EXIT_USAGE);
		}
	}
	if (optind < argc)
		bad_option("help", argv[optind]);
	if (!options->probe && (options->listen_fd < 0) == (options->socket == NULL))
	{
		gpuvec_log("ERROR", "either --listen-fd or --socket is needed");
		exit(EXIT_USAGE);
	}
}
