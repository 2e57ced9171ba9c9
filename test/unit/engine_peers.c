/*-------------------------------------------------------------------------
 *
 * engine_peers.c
 *	  Lets clients of an engine that is tested look like processes of another
 *	  user, or of another group.
 *
 * Linked into engines that are tested, in place of their own getsockopt (see
 * --wrap of ld).  GPUVEC_PEERS: "user" for a user that is not the engine's,
 * but whose group has the number of the engine's user; "group" for the
 * engine's user with a group of another number.
 *
 *-------------------------------------------------------------------------
 */
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

int			__real_getsockopt(int fd, int level, int option, void *value, socklen_t *size);
int			__wrap_getsockopt(int fd, int level, int option, void *value, socklen_t *size);

int
__wrap_getsockopt(int fd, int level, int option, void *value, socklen_t *size)
{
	int			result = __real_getsockopt(fd, level, option, value, size);
	const char *who = getenv("GPUVEC_PEERS");
	struct ucred *peer = value;

	if (result == 0 && level == SOL_SOCKET && option == SO_PEERCRED && who != NULL)
	{
		peer->uid = geteuid() + (strcmp(who, "user") == 0);
		peer->gid = geteuid() + (strcmp(who, "group") == 0);
	}
	return result;
}
