/*-------------------------------------------------------------------------
 *
 * frames.c
 *	  Reading frames from connections, and writing them.
 *
 *-------------------------------------------------------------------------
 */
#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>

#include "engine/log.h"
#include "engine/serve/frames.h"
#include "engine/serve/seats.h"

/* Take bytes that have come early; returns how many */
static size_t
take_early(gpuvec_reader *reader, void *to, size_t size)
{
	size_t		n = size < reader->nearly ? size : reader->nearly;

	memcpy(to, reader->early + reader->next_early, n);
	reader->next_early += n;
	reader->nearly -= n;
	return n;
}

/* Receive bytes that come next, to early[] */
static ssize_t
receive_early(gpuvec_reader *reader)
{
	ssize_t		n = recv(reader->fd, reader->early, sizeof(reader->early), 0);

	reader->next_early = 0;
	reader->nearly = n > 0 ? (size_t) n : 0;
	return n;
}

bool
gpuvec_read_bytes(gpuvec_reader *reader, void *to, size_t size)
{
	char	   *p = to;

	for (;;)
	{
		bool		direct;
		size_t		taken = take_early(reader, p, size);
		ssize_t		n;

		p += taken;
		size -= taken;
		if (size == 0)
			return true;
		direct = size >= sizeof(reader->early);
		n = direct ? recv(reader->fd, p, size, 0) : receive_early(reader);
		if (n == 0 || (n < 0 && errno != EINTR))
			return false;
		if (direct && n > 0)
		{
			p += n;
			size -= (size_t) n;
		}
	}
}

bool
gpuvec_skip_bytes(gpuvec_reader *reader, size_t size)
{
	char		sink[4096];
	bool		ok = true;

	for (; ok && size > 0; size -= size < sizeof(sink) ? size : sizeof(sink))
		ok = gpuvec_read_bytes(reader, sink, size < sizeof(sink) ? size : sizeof(sink));
	return ok;
}

bool
gpuvec_can_read(gpuvec_reader *reader)
{
	char		c;

	return reader->nearly > 0 || recv(reader->fd, &c, 1, MSG_PEEK | MSG_DONTWAIT) >= 0 ||
		errno != EAGAIN;
}

/* Wait until the other end has read something; false if it takes too long */
static bool
wait_for_room(int fd)
{
	struct pollfd p = {.fd = fd, .events = POLLOUT};
	int			n;

	do
		n = poll(&p, 1, gpuvec_seat_patience());
	while (n < 0 && errno == EINTR);
	if (n == 0)
		gpuvec_log("LOG", "closing the connection of a session that does not read its answer");
	return n > 0;
}

/* Write all n pieces; modifies iov */
static bool
write_pieces(int fd, struct iovec *iov, int n)
{
	gpuvec_seat_answer();
	while (n > 0)
	{
		struct msghdr message = {.msg_iov = iov, .msg_iovlen = (size_t) n};
		ssize_t		sent = sendmsg(fd, &message, MSG_NOSIGNAL | MSG_DONTWAIT);

		if (sent < 0 && (errno == EAGAIN || errno == EWOULDBLOCK))
		{
			if (!wait_for_room(fd))
				return false;
			continue;
		}
		if (sent < 0 && errno != EINTR)
			return false;
		for (; n > 0 && sent >= (ssize_t) iov->iov_len; iov++, n--)
			sent -= (ssize_t) iov->iov_len;
		if (n > 0 && sent > 0)
		{
			iov->iov_base = (char *) iov->iov_base + sent;
			iov->iov_len -= (size_t) sent;
		}
	}
	return true;
}

bool
gpuvec_send_frame(int fd, uint64_t request, gpuvec_message type, const struct iovec *pieces, int n)
{
	gpuvec_frame frame = {.type = (uint16_t) type, .request = request};
	struct iovec iov[1 + GPUVEC_MOST_PIECES];
	uint64_t	length = 0;

	iov[0].iov_base = &frame;
	iov[0].iov_len = sizeof(frame);
	for (int i = 0; i < n; i++)
	{
		iov[i + 1] = pieces[i];
		length += pieces[i].iov_len;
	}
	if (length > GPUVEC_MAX_FRAME)
	{
		gpuvec_error error;

		gpuvec_fail(&error, GPUVEC_LIMIT_EXCEEDED, NULL, NULL,
					"the answer of the gpuvec engine is too large");
		return gpuvec_send_error(fd, request, &error, false);
	}
	frame.length = (uint32_t) length;
	return write_pieces(fd, iov, n + 1);
}

bool
gpuvec_send_struct(int fd, uint64_t request, gpuvec_message type, const void *data, size_t size)
{
	struct iovec piece = {(void *) data, size};

	return gpuvec_send_frame(fd, request, type, &piece, 1);
}

bool
gpuvec_send_error(int fd, uint64_t request, const gpuvec_error *error, bool retry)
{
	gpuvec_error_head head = {.retry = retry, .fallback = error->fallback && !retry};
	char		strings[sizeof(error->message) + sizeof(error->detail) + sizeof(error->hint)];
	struct iovec pieces[2] = {{&head, sizeof(head)}, {strings, 0}};
	size_t		n = 0;

	memcpy(head.sqlstate, error->sqlstate, sizeof(head.sqlstate));
	n += (size_t) snprintf(strings + n, sizeof(strings) - n, "%s", error->message) + 1;
	n += (size_t) snprintf(strings + n, sizeof(strings) - n, "%s", error->detail) + 1;
	n += (size_t) snprintf(strings + n, sizeof(strings) - n, "%s", error->hint) + 1;
	pieces[1].iov_len = n;
	return gpuvec_send_frame(fd, request, GPUVEC_MSG_ERROR, pieces, 2);
}
