/*-------------------------------------------------------------------------
 *
 * control_group_test.c
 *	  Test of the limits of control groups: folders like those of /proc and
 *	  /sys, of both versions, and what the engine takes for its cores then.
 *
 *-------------------------------------------------------------------------
 */
#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "engine/control_group.h"
#include "engine/thread_pool.h"
#include "unit_test.h"

static char root[] = "/tmp/gpuvec-control-group-XXXXXX";

/* Write a file below the root, and make its folders */
static void
put(const char *path, const char *text)
{
	char		name[512];
	FILE	   *file;

	snprintf(name, sizeof(name), "%s%s", root, path);
	for (char *slash = name + strlen(root) + 1; (slash = strchr(slash, '/')) != NULL; slash++)
	{
		*slash = '\0';
		(void) mkdir(name, 0700);
		*slash = '/';
	}
	file = fopen(name, "w");
	check(file != NULL && fputs(text, file) >= 0 && fclose(file) == 0, name);
}

/* Remove all that is below the root */
static void
clear(void)
{
	char		command[600];

	snprintf(command, sizeof(command), "rm -rf %s/*", root);
	check(system(command) == 0, "the folder is cleared");
}

/* gpuvec_cores() of a process of its own, which counts them once */
static int
count_cores(void)
{
	pid_t		child = fork();
	int			status = 0;

	if (child == 0)
		_exit(gpuvec_cores() > 200 ? 200 : gpuvec_cores());
	waitpid(child, &status, 0);
	return WEXITSTATUS(status);
}

/* Check the limits of the groups that the root describes now */
static void
check_limits(const char *what, double cores, size_t memory)
{
	int			free_cores;
	int			expected;

	gpuvec_control_group_root("/nonexistent");
	free_cores = count_cores();
	gpuvec_control_group_root(root);
	expected = ceil(cores) < free_cores ? (int) ceil(cores) : free_cores;
	check(gpuvec_control_group_cores() == cores, what);
	check(gpuvec_control_group_memory() == memory, what);
	check(count_cores() == expected, what);
	clear();
}

static void
test_unified(void)
{
	put("/proc/self/cgroup", "0::/a/b\n");
	check_limits("no files", HUGE_VAL, SIZE_MAX);

	put("/proc/self/cgroup", "0::/a/b\n");
	put("/sys/fs/cgroup/a/b/cpu.max", "max 100000\n");
	put("/sys/fs/cgroup/a/b/memory.max", "max\n");
	check_limits("no limit", HUGE_VAL, SIZE_MAX);

	put("/proc/self/cgroup", "0::/a/b\n");
	put("/sys/fs/cgroup/a/b/cpu.max", "50000 100000\n");
	put("/sys/fs/cgroup/a/b/memory.max", "1048576\n");
	check_limits("half a core", 0.5, 1048576);

	put("/proc/self/cgroup", "0::/a/b\n");
	put("/sys/fs/cgroup/a/b/cpu.max", "max 100000\n");
	put("/sys/fs/cgroup/a/cpu.max", "15000 10000\n");
	put("/sys/fs/cgroup/a/b/memory.max", "4096\n");
	put("/sys/fs/cgroup/a/memory.max", "2048\n");
	check_limits("the parent's limit", 1.5, 2048);

	/* in a container, the path is the host's, and the mount is the group */
	put("/proc/self/cgroup", "0::/host/path\n");
	put("/sys/fs/cgroup/cpu.max", "100000 100000\n");
	put("/sys/fs/cgroup/memory.max", "4096\n");
	check_limits("the mount is the group", 1, 4096);
}

/* Version 1; `mount` is the folder of the hierarchy with the controller cpu */
static void
test_separate(const char *mount)
{
	char		path[256];

	for (int depth = 0; depth < 3; depth++)
	{
		static const char *const groups[] = {"", "/a", "/a/b"};

		put("/proc/self/cgroup", "12:cpuset:/c\n7:memory:/a/b\n4:cpu,cpuacct:/a/b\n1:name=systemd:/x\n0::/\n");
		put("/sys/fs/cgroup/cpuset/c/cpu.cfs_quota_us", "1\n");
		snprintf(path, sizeof(path), "/sys/fs/cgroup/%s/a/b/cpu.cfs_quota_us", mount);
		put(path, "-1\n");
		snprintf(path, sizeof(path), "/sys/fs/cgroup/%s%s/cpu.cfs_quota_us", mount, groups[depth]);
		put(path, "50000\n");
		snprintf(path, sizeof(path), "/sys/fs/cgroup/%s%s/cpu.cfs_period_us", mount, groups[depth]);
		put(path, "100000\n");
		put("/sys/fs/cgroup/memory/a/b/memory.limit_in_bytes", "9223372036854771712\n");
		snprintf(path, sizeof(path), "/sys/fs/cgroup/memory%s/memory.limit_in_bytes", groups[depth]);
		put(path, "65536\n");
		check_limits(mount, 0.5, 65536);
	}
	put("/proc/self/cgroup", "4:cpu,cpuacct:/a\n");
	snprintf(path, sizeof(path), "/sys/fs/cgroup/%s/a/cpu.cfs_quota_us", mount);
	put(path, "-1\n");
	snprintf(path, sizeof(path), "/sys/fs/cgroup/%s/a/cpu.cfs_period_us", mount);
	put(path, "100000\n");
	check_limits("no quota", HUGE_VAL, SIZE_MAX);
}

int
main(void)
{
	check(mkdtemp(root) != NULL, "the folder is made");
	test_unified();
	test_separate("cpu");
	test_separate("cpu,cpuacct");
	rmdir(root);
	return report_checks();
}
