/*-------------------------------------------------------------------------
 *
 * server_client.c
 *	  Starts an engine and talks to it, for tests.
 *
 *-------------------------------------------------------------------------
 */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "server_client.h"

int			checks_passed = 0;
int			checks_failed = 0;
const char *engine_program;
char		scratch[64];

bool
check_at(bool ok, const char *what, const char *file, int line)
{
	if (ok)
		__atomic_add_fetch(&checks_passed, 1, __ATOMIC_RELAXED);
	else
	{
		__atomic_add_fetch(&checks_failed, 1, __ATOMIC_RELAXED);
		fprintf(stderr, "FAILED %s:%d: %s\n", file, line, what);
	}
	return ok;
}

double
seconds(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double) t.tv_sec + (double) t.tv_nsec / 1e9;
}

double
patience(void)
{
	const char *set = getenv("PG_TEST_TIMEOUT_DEFAULT");

	return set && atof(set) > 0 ? atof(set) : 180;
}

bool
several_devices(void)
{
	const char *parts = getenv("SERVER_TEST_PARTS");

	return parts && atoi(parts) > 1;
}

void
close_files_from(int first)
{
	long		end = sysconf(_SC_OPEN_MAX);

	for (int fd = first; fd < end; fd++)
		close(fd);
}

/*
 * The child: exec the engine with one standard descriptor and the liveness
 * socket
 */
static void
exec_engine(const char *fault, const char *const *arguments, const char *socket,
			int liveness_fd, int log_fd)
{
	const char *backend = getenv("SERVER_TEST_BACKEND");
	const char *partitions = getenv("SERVER_TEST_PARTS");
	const char *argv[40] = {engine_program, "--socket", socket, "--liveness-fd", "3", "--backend",
		backend ? backend : "cpu"};
	int			n = 7;

	for (; *arguments; arguments++)
		argv[n++] = *arguments;
	if (partitions)
	{
		argv[n++] = "--cpu-parts";
		argv[n++] = partitions;
	}
	if (fault)
		setenv("GPUVEC_ENGINE_FAULT", fault, 1);
	else
		unsetenv("GPUVEC_ENGINE_FAULT");
	/* allocated memory has other bytes than 0 */
	setenv("MALLOC_PERTURB_", "165", 1);
	/* copies, for dup2 to the same number would leave close-on-exec set */
	liveness_fd = fcntl(liveness_fd, F_DUPFD, 10);
	dup2(log_fd, 2);
	dup2(liveness_fd, 3);
	close_files_from(4);
	execv(engine_program, (char *const *) argv);
	_exit(127);
}

engine
engine_start(const char *fault, const char *const *arguments)
{
	static int	number = 0;
	engine		e;
	int			liveness[2];
	int			log[2];
	double		begin = seconds();

	snprintf(e.socket, sizeof(e.socket), "%s/%d", scratch,
			 __atomic_add_fetch(&number, 1, __ATOMIC_RELAXED));
	if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, liveness) < 0 || pipe2(log, O_CLOEXEC) < 0)
		exit(1);
	e.pid = fork();
	if (e.pid == 0)
		exec_engine(fault, arguments, e.socket, liveness[0], log[1]);
	close(liveness[0]);
	close(log[1]);
	e.liveness_fd = liveness[1];
	e.log_fd = log[0];
	fcntl(e.log_fd, F_SETFL, O_NONBLOCK);
	while (seconds() - begin < patience())
	{
		client		c;
		int			status;

		if (client_connect(&c, &e))
		{
			client_close(&c);
			return e;
		}
		if (waitpid(e.pid, &status, WNOHANG) == e.pid)
		{
			engine_relay_log(&e, true);
			break;
		}
		usleep(5000);
	}
	check(false, "the engine did not start");
	exit(1);
}

/* Read what the engine wrote to its log */
void
engine_relay_log(engine *e, bool print)
{
	char		text[4096];
	ssize_t		n;

	while ((n = read(e->log_fd, text, sizeof(text))) > 0)
		if (print || getenv("SERVER_TEST_VERBOSE"))
			fwrite(text, 1, (size_t) n, stderr);
}

int
engine_wait(engine *e, int patience_ms)
{
	int			status = -1;
	pid_t		pid = 0;

	for (int waited = 0; waited <= patience_ms && pid == 0; waited += 5)
	{
		pid = waitpid(e->pid, &status, WNOHANG);
		if (pid == 0)
			usleep(5000);
	}
	if (pid == 0)
	{
		kill(e->pid, SIGKILL);
		waitpid(e->pid, &status, 0);
		status = -1;
	}
	engine_relay_log(e, status != 0 && !(WIFSIGNALED(status)));
	close(e->liveness_fd);
	close(e->log_fd);
	return status;
}

void
engine_stop(engine *e)
{
	kill(e->pid, SIGTERM);
	check(engine_wait(e, 10000) == 0, "the engine exits with 0 on SIGTERM");
}

bool
engine_alive(const engine *e)
{
	siginfo_t	info = {0};

	return waitid(P_PID, (id_t) e->pid, &info, WEXITED | WNOHANG | WNOWAIT) == 0 && info.si_pid == 0;
}

void
buffer_add(buffer *b, const void *data, size_t size)
{
	if (b->length + size > b->capacity)
	{
		b->capacity = (b->length + size) * 2;
		b->data = realloc(b->data, b->capacity);
	}
	if (size > 0)
		memcpy(b->data + b->length, data, size);
	b->length += size;
}

bool
client_connect(client *c, const engine *e)
{
	struct sockaddr_un addr = {.sun_family = AF_UNIX};
	struct timeval limit = {.tv_sec = (time_t) patience()};

	memset(c, 0, sizeof(*c));
	strcpy(addr.sun_path, e->socket);
	c->fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	setsockopt(c->fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof(limit));
	if (connect(c->fd, (struct sockaddr *) &addr, sizeof(addr)) == 0)
		return true;
	close(c->fd);
	return false;
}

void
client_close(client *c)
{
	close(c->fd);
	free(c->data);
	c->data = NULL;
}

bool
client_send_raw(client *c, const void *data, size_t size)
{
	const char *p = data;

	while (size > 0)
	{
		ssize_t		n = send(c->fd, p, size, MSG_NOSIGNAL);

		if (n < 0)
			return false;
		p += n;
		size -= (size_t) n;
	}
	return true;
}

bool
client_send(client *c, gpuvec_message type, const void *data, size_t size)
{
	gpuvec_frame frame = {.length = (uint32_t) size,.type = (uint16_t) type,.request = ++c->request};

	return client_send_raw(c, &frame, sizeof(frame)) && client_send_raw(c, data, size);
}

bool
client_read(client *c)
{
	if (recv(c->fd, &c->frame, sizeof(c->frame), MSG_WAITALL) != sizeof(c->frame))
		return false;
	if (c->frame.length + (size_t) 1 > c->capacity)
	{
		c->capacity = (size_t) c->frame.length + 1;
		free(c->data);
		c->data = malloc(c->capacity);
	}
	c->data[c->frame.length] = '\0';
	return c->frame.length == 0 ||
		recv(c->fd, c->data, c->frame.length, MSG_WAITALL) == (ssize_t) c->frame.length;
}

bool
client_call(client *c, gpuvec_message type, const void *data, size_t size, gpuvec_message answer)
{
	(void) client_send(c, type, data, size);
	if (!client_read(c))
	{
		memset(&c->frame, 0, sizeof(c->frame));
		return false;
	}
	if (c->frame.type == GPUVEC_MSG_ERROR && answer != GPUVEC_MSG_ERROR && getenv("SERVER_TEST_VERBOSE"))
		fprintf(stderr, "error: %s (%s)\n", client_error_text(c, 0), client_error_text(c, 1));
	return c->frame.type == answer;
}

bool
client_hello(client *c, uint32_t version, uint8_t incarnation)
{
	gpuvec_hello hello = {.magic = GPUVEC_PROTOCOL_MAGIC,.version = version,.pid = (uint32_t) getpid()};

	hello.incarnation[15] = incarnation;
	return client_call(c, GPUVEC_MSG_HELLO, &hello, sizeof(hello), GPUVEC_MSG_WELCOME);
}

client
client_open(const engine *e)
{
	client		c;

	if (!check(client_connect(&c, e), "connect") ||
		!check(client_hello(&c, GPUVEC_PROTOCOL_VERSION, 0), "welcome"))
		exit(1);
	return c;
}

const char *
client_error_text(const client *c, int which)
{
	const char *p = c->data + sizeof(gpuvec_error_head);
	const char *end = c->data + c->frame.length;

	for (; which > 0 && p < end; which--)
		p += strlen(p) + 1;
	return p < end ? p : "";
}

bool
client_failed_with(const client *c, const char *sqlstate)
{
	bool		ok = c->frame.type == GPUVEC_MSG_ERROR &&
		c->frame.length > sizeof(gpuvec_error_head) && strcmp(c->data, sqlstate) == 0 &&
		client_error_text(c, 0)[0] != '\0';

	if (!ok && c->frame.type == GPUVEC_MSG_ERROR)
		fprintf(stderr, "error is %s: %s\n", c->data, client_error_text(c, 0));
	return ok;
}

bool
client_error_retry(const client *c)
{
	gpuvec_error_head head;

	memcpy(&head, c->data, sizeof(head));
	return head.retry != 0;
}

bool
client_error_fallback(const client *c)
{
	gpuvec_error_head head;

	memcpy(&head, c->data, sizeof(head));
	return head.fallback != 0;
}

gpuvec_state
client_state(const client *c)
{
	gpuvec_state state;

	memcpy(&state, c->data, sizeof(state));
	return state;
}

gpuvec_engine_info
client_engine_info(client *c)
{
	gpuvec_engine_info info;

	memset(&info, 0, sizeof(info));
	if (check(client_call(c, GPUVEC_MSG_ENGINE, NULL, 0, GPUVEC_MSG_ENGINE_INFO) &&
			  c->frame.length == sizeof(info), "ENGINE is answered"))
		memcpy(&info, c->data, sizeof(info));
	return info;
}

bool
client_mirror_info(client *c, const gpuvec_mirror_key *key, gpuvec_mirror_info *info)
{
	if (!check(client_call(c, GPUVEC_MSG_LIST, NULL, 0, GPUVEC_MSG_MIRRORS) &&
			   c->frame.length % sizeof(*info) == 0, "LIST is answered"))
		return false;
	for (size_t i = 0; i < c->frame.length / sizeof(*info); i++)
	{
		memcpy(info, c->data + i * sizeof(*info), sizeof(*info));
		if (memcmp(&info->key, key, sizeof(*key)) == 0)
			return true;
	}
	return false;
}
