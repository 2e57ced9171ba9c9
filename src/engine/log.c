/*-------------------------------------------------------------------------
 *
 * log.c
 *	  The engine's log.
 *
 *-------------------------------------------------------------------------
 */
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "engine/log.h"

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static unsigned dropped = 0;

void
gpuvec_log_init(void)
{
	int			flags = fcntl(STDERR_FILENO, F_GETFL);
	struct stat st;

	/*
	 * only for a pipe: terminals and files may be shared with other processes
	 */
	if (flags >= 0 && fstat(STDERR_FILENO, &st) == 0 && S_ISFIFO(st.st_mode))
		fcntl(STDERR_FILENO, F_SETFL, flags | O_NONBLOCK);
}

/*
 * Write one line.  To a pipe, a line of up to PIPE_BUF bytes is written whole
 * or not at all.
 */
static void
write_line(const char *line, size_t length)
{
	if (write(STDERR_FILENO, line, length) < 0 && errno != EINTR)
		dropped++;
}

void
gpuvec_log(const char *level, const char *format, ...)
{
	char		line[1024];
	int			n = snprintf(line, sizeof(line), "%s: ", level);
	va_list		args;

	va_start(args, format);
	vsnprintf(line + n, sizeof(line) - n - 1, format, args);
	va_end(args);
	for (char *p = line; *p; p++)
		if (*p == '\n')
			*p = ' ';
	strcat(line, "\n");

	pthread_mutex_lock(&mutex);
	if (dropped > 0)
	{
		char		note[80];
		int			length = snprintf(note, sizeof(note),
									  "WARNING: %u lines of the log were dropped\n", dropped);

		if (write(STDERR_FILENO, note, length) == length)
			dropped = 0;
	}
	write_line(line, strlen(line));
	pthread_mutex_unlock(&mutex);
}
