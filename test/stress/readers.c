/*
 * readers.c
 *	  Threads that ask questions all the time, on the primary or on the
 *	  standby.
 */
#include "stress.h"

#include <string.h>

/* Ask about the column that comes and goes (see maintain.c) */
static void
ask_about_column(struct worker *w)
{
	struct question q = function_question(w, &tables[between(w, 0, 1)], "x");

	w->tolerated = "42703";
	ask(w, &q);
	w->tolerated = NULL;
}

/* Ask one partition, which may be replaced before the statement begins */
static void
ask_a_partition(struct worker *w)
{
	struct table part = *parted_table();
	int			kind = between(w, 0, N_KINDS - 1);
	struct question q;

	part.name = say(w, "%s_%d", part.name, kind);
	part.partitioned = kind == 2;
	q = chance(w, 50) ? function_question(w, &part, "s") : table_question(w, &part);
	w->tolerated = "42P01";
	ask(w, &q);
	w->tolerated = NULL;
}

void
read_all_the_time(struct worker *w)
{
	while (!stopping)
	{
		struct question q;

		if ((w->conn == NULL || w->node != node_of(w->role) || chance(w, 2)) && !session_open(w))
			break;
		if (chance(w, 3))
			ask_about_column(w);
		else if (chance(w, 3))
			ask_a_partition(w);
		else
		{
			q = any_question(w);
			ask(w, &q);
		}
		abandon(w);
		forget(w);
	}
}
