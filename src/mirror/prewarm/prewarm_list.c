/*-------------------------------------------------------------------------
 *
 * prewarm_list.c
 *	  The file that says which mirrors are loaded again after a restart.
 *
 * The first line names the format.  Then there is a line for each mirror:
 * database, relation, number of the column, index, bytes, and for embedding
 * tables number of the key column and storage.  The file is replaced as a
 * whole: a crash leaves the old list or the new one.  The list is a hint:
 * faults in it are logged, and what could not be read is not loaded.
 *
 *-------------------------------------------------------------------------
 */
#include "gpuvec.h"

#include <inttypes.h>
#include <unistd.h>

#include "mirror/prewarm/prewarm_list.h"
#include "storage/fd.h"

#define PREWARM_HEADER	"gpuvec autoprewarm 1\n"

/* Parse a line.  False: it is not a valid one. */
static bool
parse_entry(const char *line, PrewarmEntry *entry)
{
	int			end = -1;
	int			more = -1;
	int			n;

	memset(entry, 0, sizeof(*entry));
	n = sscanf(line, "%" SCNu32 " %" SCNu32 " %" SCNd32 " %" SCNu32 " %" SCNu64 "%n",
			   &entry->database, &entry->relation, &entry->attnum, &entry->index, &entry->bytes,
			   &end);
	if (n != 5 || end < 0)
		return false;
	if (sscanf(line + end, " %" SCNd32 " %" SCNu32 "%n", &entry->key_attnum, &entry->storage,
			   &more) == 2 && more >= 0)
		end += more;
	return strcmp(line + end, "\n") == 0;
}

/* Read all lines behind the first one.  False: the file is damaged. */
static bool
read_entries(FILE *file, PrewarmList *list)
{
	char		line[128];
	int			capacity = 0;

	if (fgets(line, sizeof(line), file) == NULL || strcmp(line, PREWARM_HEADER) != 0)
		return false;
	while (fgets(line, sizeof(line), file) != NULL)
	{
		if (list->n == capacity)
		{
			capacity = Max(64, capacity * 2);
			list->entries = list->entries == NULL ? palloc_array(PrewarmEntry, capacity) :
				repalloc(list->entries, mul_size(sizeof(PrewarmEntry), capacity));
		}
		if (!parse_entry(line, &list->entries[list->n]))
			return false;
		list->n++;
	}
	return !ferror(file);
}

/*
 * Read the list; it is empty if there is no file.  False: not all of it could
 * be read, which was logged.
 */
bool
PrewarmReadList(PrewarmList *list)
{
	FILE	   *file = AllocateFile(PREWARM_FILE, "r");
	bool		ok;

	list->entries = NULL;
	list->n = 0;
	if (file == NULL)
	{
		if (errno == ENOENT)
			return true;
		ereport(LOG,
				(errcode_for_file_access(),
				 errmsg("could not open file \"%s\": %m", PREWARM_FILE)));
		return false;
	}
	ok = read_entries(file, list);
	if (!ok)
		ereport(LOG,
				(errcode(ERRCODE_DATA_CORRUPTED),
				 errmsg("file \"%s\" is damaged after %d entries", PREWARM_FILE, list->n)));
	FreeFile(file);
	return ok;
}

/* Write the list to an open file.  False, with errno, if that fails. */
static bool
write_entries(FILE *file, const PrewarmList *list)
{
	if (fputs(PREWARM_HEADER, file) < 0)
		return false;
	for (int i = 0; i < list->n; i++)
	{
		const PrewarmEntry *entry = &list->entries[i];

		if (fprintf(file, "%u %u %d %u " UINT64_FORMAT, entry->database, entry->relation,
					entry->attnum, entry->index, entry->bytes) < 0 ||
			(entry->key_attnum != 0 &&
			 fprintf(file, " %d %u", entry->key_attnum, entry->storage) < 0) ||
			fputc('\n', file) < 0)
			return false;
	}
	return fflush(file) == 0;
}

/* Replace the list.  False: that failed, which was logged. */
bool
PrewarmWriteList(const PrewarmList *list)
{
	FILE	   *file = AllocateFile(PREWARM_NEW_FILE, "w");
	bool		ok;

	if (file == NULL)
	{
		ereport(LOG,
				(errcode_for_file_access(),
				 errmsg("could not create file \"%s\": %m", PREWARM_NEW_FILE)));
		return false;
	}
	ok = write_entries(file, list);
	if (!ok)
		ereport(LOG,
				(errcode_for_file_access(),
				 errmsg("could not write file \"%s\": %m", PREWARM_NEW_FILE)));
	if (FreeFile(file) != 0 && ok)
	{
		ereport(LOG,
				(errcode_for_file_access(),
				 errmsg("could not close file \"%s\": %m", PREWARM_NEW_FILE)));
		ok = false;
	}
	if (!ok)
		unlink(PREWARM_NEW_FILE);
	return ok && durable_rename(PREWARM_NEW_FILE, PREWARM_FILE, LOG) == 0;
}
