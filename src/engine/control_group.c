/*-------------------------------------------------------------------------
 *
 * control_group.c
 *	  The limits of the control groups that this process is in.
 *
 *-------------------------------------------------------------------------
 */
#include <math.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/control_group.h"

/* Room for the path of a group, and of a file */
#define MOST_GROUP		1024
#define MOST_PATH		2048

static const char *root = "";

void
gpuvec_control_group_root(const char *folder)
{
	root = folder ? folder : "";
}

/* Read the numbers in a file, at most n; returns how many there are */
static int
read_numbers(const char *folder, const char *name, double *numbers, int n)
{
	char		path[MOST_PATH + 64];
	char		line[128];
	char	   *at = line;
	FILE	   *file;
	int			found = 0;

	snprintf(path, sizeof(path), "%s/%s", folder, name);
	file = fopen(path, "r");
	if (file == NULL)
		return 0;
	if (fgets(line, sizeof(line), file) == NULL)
		line[0] = '\0';
	fclose(file);
	while (found < n)
	{
		char	   *end;

		/* "max", which is no limit, is no number */
		numbers[found] = strtod(at, &end);
		if (end == at)
			break;
		at = end;
		found++;
	}
	return found;
}

/* Both functions: the limit in a group's folder; HUGE_VAL if it has none */
static double
memory_limit(const char *folder, bool unified)
{
	double		bytes;

	return read_numbers(folder, unified ? "memory.max" : "memory.limit_in_bytes", &bytes, 1) == 1 ?
		bytes : HUGE_VAL;
}

static double
cpu_limit(const char *folder, bool unified)
{
	double		us[2];			/* in each period, and its length */
	bool		limited;

	if (unified)
		limited = read_numbers(folder, "cpu.max", us, 2) == 2;
	else
		limited = read_numbers(folder, "cpu.cfs_quota_us", us, 1) == 1 &&
			read_numbers(folder, "cpu.cfs_period_us", us + 1, 1) == 1;
	return limited && us[0] > 0 && us[1] > 0 ? us[0] / us[1] : HUGE_VAL;
}

/* True if a name is in a list with commas */
static bool
is_listed(const char *name, const char *list)
{
	size_t		len = strlen(name);

	for (;; list++)
	{
		size_t		next = strcspn(list, ",");

		if (next == len && strncmp(list, name, len) == 0)
			return true;
		list += next;
		if (*list == '\0')
			return false;
	}
}

/* A limit of groups, and the controller that has it in version 1 */
typedef struct group_limit
{
	const char *controller;
	double		(*read) (const char *folder, bool unified);
} group_limit;

/*
 * The lowest limit of a group, which is a path, and all of its ancestors.
 * `mount` is the folder of a hierarchy of version 1, "" that of version 2.
 */
static double
limit_of_group(const group_limit *limit, const char *mount, const char *path)
{
	char		group[MOST_GROUP];
	char		folder[MOST_PATH];
	double		least = HUGE_VAL;

	snprintf(group, sizeof(group), "%s", path);
	for (;;)
	{
		if (*mount != '\0')
			snprintf(folder, sizeof(folder), "%s/sys/fs/cgroup/%s%s", root, mount, group);
		else
			snprintf(folder, sizeof(folder), "%s/sys/fs/cgroup%s", root, group);
		least = fmin(least, limit->read(folder, *mount == '\0'));
		if (*group == '\0')
			return least;
		*strrchr(group, '/') = '\0';
	}
}

/* The lowest limit of all groups that this process is in */
static double
lowest_limit(const group_limit *limit)
{
	char		line[MOST_GROUP];
	char		path[MOST_PATH];
	double		least = HUGE_VAL;
	FILE	   *file;

	snprintf(path, sizeof(path), "%s/proc/self/cgroup", root);
	file = fopen(path, "r");
	if (file == NULL)
		return least;
	while (fgets(line, sizeof(line), file))
	{
		char	   *controllers = strchr(line, ':');
		char	   *group = controllers ? strchr(controllers + 1, ':') : NULL;

		/* "number:controllers:path"; that of version 2 has no controllers */
		if (group == NULL)
			continue;
		controllers++;
		*group++ = '\0';
		group[strcspn(group, "\n")] = '\0';
		if (*group != '/' || (*controllers != '\0' && !is_listed(limit->controller, controllers)))
			continue;
		least = fmin(least, limit_of_group(limit, controllers, group));
		/* a hierarchy of several controllers may be mounted as one of them */
		if (*controllers != '\0')
			least = fmin(least, limit_of_group(limit, limit->controller, group));
	}
	fclose(file);
	return least;
}

size_t
gpuvec_control_group_memory(void)
{
	static const group_limit memory = {"memory", memory_limit};
	double		bytes = lowest_limit(&memory);

	return bytes < (double) SIZE_MAX ? (size_t) bytes : SIZE_MAX;
}

double
gpuvec_control_group_cores(void)
{
	static const group_limit cpu = {"cpu", cpu_limit};

	return lowest_limit(&cpu);
}
