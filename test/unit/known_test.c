/*-------------------------------------------------------------------------
 *
 * known_test.c
 *	  What a session knows of mirrors (src/mirror/fresh/known.c), against a
 *	  list of all changes.
 *
 * Relations change at random positions of a WAL that is an array here.  Their
 * mirrors are refreshed, and loaded again from earlier positions; answers,
 * other sessions and the WAL tell the session of it, in random order.  More
 * mirrors share a hash than have slots, so they replace each other.  Whatever
 * the session concludes must be true: a position that it returns has no
 * change of the relation behind it.
 *
 * Usage: known_test [SEED]
 *
 *-------------------------------------------------------------------------
 */
#include "gpuvec.h"

#include "common/hashfn.h"
#include "link/engine_link.h"
#include "mirror/describe/costs.h"
#include "mirror/describe/refreshing.h"
#include "mirror/feed/feed.h"
#include "mirror/fresh/known.h"
#include "mirror/fresh/refresh.h"
#include "mirror/pages/wal.h"

/* the system's, not those of the server */
#undef printf
#undef fprintf
#include "unit_test.h"

#define ROUNDS			300
#define STEPS			600
#define SAME_HASH		6		/* mirrors with the same hash; 4 have slots */
#define MIRRORS			(SAME_HASH + 3)
#define TIMED_EVERY		8
/* Numbers of refreshes tell the connection that they are told by */
#define GENERATION		1000000

typedef struct Mirror
{
	MirrorTarget target;
	gpuvec_state engine;		/* as the engine has it */
	gpuvec_state told;			/* as it was last told; refresh 0: never */
	bool		changes[STEPS + 2]; /* by position */
} Mirror;

static Mirror mirrors[MIRRORS];
static XLogRecPtr now;
static uint64 generation;
static uint64 refreshes;
static bool wal_is_gone;		/* some of it */
static const Mirror *asked;		/* whose position is asked for */
static int	noted;				/* calls of RefreshingNoteState */

/* True if a mirror's relation has a change in (from, to] */
static bool
changes(const Mirror *mirror, XLogRecPtr from, XLogRecPtr to)
{
	for (XLogRecPtr at = from + 1; at <= to; at++)
		if (mirror->changes[at])
			return true;
	return false;
}

static Mirror *
mirror_of(const gpuvec_mirror_key *key)
{
	for (int i = 0; i < MIRRORS; i++)
		if (memcmp(&mirrors[i].target.key, key, sizeof(*key)) == 0)
			return &mirrors[i];
	abort();
}

/* True if a mirror has a slot of its own */
static bool
is_alone(const Mirror *mirror)
{
	return mirror - mirrors >= SAME_HASH;
}

/* ---- what known.c calls ---- */

uint32
hash_bytes_uint32(uint32 k)
{
	return k;
}

uint64
GpuvecLinkGeneration(void)
{
	return generation;
}

XLogRecPtr
MirrorPosition(void)
{
	return now;
}

Relation
MirrorSource(const MirrorTarget *target)
{
	return target->rel;
}

WalResult
WalChanges(Relation rel, XLogRecPtr from, XLogRecPtr to, ChangedLines *lines)
{
	check(from < to && to <= now, "there is WAL to read");
	check(rel == asked->target.rel, "of the mirror's relation");
	if (wal_is_gone && random_below(4) == 0)
		return WAL_UNKNOWN;
	return changes(asked, from, to) ? WAL_CHANGED : WAL_UNCHANGED;
}

void
RefreshingNoteWal(const gpuvec_mirror_key *key, XLogRecPtr from, XLogRecPtr to, bool changed)
{
	check(changed || !changes(mirror_of(key), from, to), "others are told the truth of the WAL");
}

void
RefreshingNoteState(const gpuvec_mirror_key *key, const gpuvec_state *state)
{
	noted++;
	check(state->refresh == mirror_of(key)->engine.refresh, "others are told the state");
}

/* Other sessions know some true things */
bool
RefreshingLook(const gpuvec_mirror_key *key, RefreshingNotes *notes)
{
	Mirror	   *mirror = mirror_of(key);

	memset(notes, 0, sizeof(*notes));
	if (random_below(2))
		return false;
	if (random_below(2))
		notes->state = mirror->engine;
	notes->from = notes->until = random_below(now + 1);
	while (notes->until < now && !mirror->changes[notes->until + 1] && random_below(20))
		notes->until++;
	notes->changed_from = random_below(now + 1);
	notes->changed = notes->changed_from + random_below(now - notes->changed_from + 1);
	if (!changes(mirror, notes->changed_from, notes->changed))
		notes->changed_from = notes->changed = 0;
	if (notes->state.state == GPUVEC_READY &&
		(mirror->told.refresh / GENERATION != generation ||
		 notes->state.refresh > mirror->told.refresh) && is_alone(mirror))
		mirror->told = notes->state;
	return true;
}

void
CostsNoteState(const gpuvec_mirror_key *mirror, const gpuvec_state *state)
{
}

void
FeedNoteState(const gpuvec_state *state)
{
}

/* ---- what happens ---- */

/* The engine has a mirror as of a position */
static void
refresh(Mirror *mirror, XLogRecPtr checked)
{
	mirror->engine.state = GPUVEC_READY;
	mirror->engine.checked = checked;
	mirror->engine.refresh = generation * GENERATION + ++refreshes;
}

/* Another engine, which has none of the mirrors as they were */
static void
restart(void)
{
	generation++;
	for (int i = 0; i < MIRRORS; i++)
		refresh(&mirrors[i], random_below(now) + 1);
}

/* The engine tells the session the state of a mirror */
static void
answer(Mirror *mirror)
{
	bool		news = mirror->told.refresh != mirror->engine.refresh;

	noted = 0;
	MirrorRemember(&mirror->target.key, &mirror->engine);
	if (is_alone(mirror))
	{
		check(noted == news, "others are told what is new, and nothing else");
		mirror->told = mirror->engine;
	}
}

static void
step(void)
{
	Mirror	   *mirror = &mirrors[random_below(MIRRORS)];

	switch (random_below(16))
	{
		case 0:
		case 1:
			now++;
			mirror->changes[now] = true;
			break;
		case 2:
		case 3:
			now++;
			break;
		case 4:
		case 5:
			refresh(mirror, now);
			break;
		case 6:
			/* a load that began long ago */
			refresh(mirror, random_below(now) + 1);
			break;
		case 7:
			if (random_below(8) == 0)
				restart();
			break;
		case 8:
			MirrorForget(&mirror->target.key);
			mirror->told.refresh = 0;
			break;
		default:
			answer(mirror);
	}
}

/* ---- what the session concludes ---- */

static void
check_position(Mirror *mirror)
{
	XLogRecPtr	position;
	XLogRecPtr	told;

	asked = mirror;
	position = MirrorKnownPosition(&mirror->target);
	check(position <= now && !changes(mirror, position, now), "the relation has no change behind the position");
	/* others may have told of a later refresh meanwhile */
	told = mirror->told.checked;
	if (is_alone(mirror) && !wal_is_gone)
		check(position == (told > 0 && !changes(mirror, told, now) ? told : now),
			  "the mirror suffices if nothing has changed");
}

static void
check_mirror(Mirror *mirror)
{
	const gpuvec_state *state;
	XLogRecPtr	from = random_below(now + 1);
	XLogRecPtr	until = MirrorKnownUntil(&mirror->target, from);

	check(until >= from && until <= now && !changes(mirror, from, until), "there is no change until then");
	check_position(mirror);
	state = MirrorKnownState(&mirror->target);
	check(state == NULL || state->refresh / GENERATION == generation, "the state is one of this engine");
	check(MirrorKnownRefresh(&mirror->target) == (state ? state->refresh : 0), "so is the number");
	if (is_alone(mirror))
		check((state != NULL) == (mirror->told.refresh / GENERATION == generation), "it is known if it was told");
	if (is_alone(mirror) && state != NULL)
		check(state->refresh == mirror->told.refresh && state->checked == mirror->told.checked, "it is the last one");
}

/* Requests are timed once the mirror is known, and then one of some */
static void
check_timed(Mirror *mirror)
{
	check(!MirrorKnownTimed(&mirror->target), "the first request is not timed");
	answer(mirror);
	for (int i = 0; i < 3 * TIMED_EVERY + 2; i++)
		check(MirrorKnownTimed(&mirror->target) == (i % TIMED_EVERY == 0), "one request of some is timed");
	restart();
	answer(mirror);
	check(MirrorKnownTimed(&mirror->target), "one of the next engine, too");
}

/* Mirrors that no other round has had */
static void
make_mirrors(uint32 round)
{
	for (uint32 i = 0; i < MIRRORS; i++)
	{
		Mirror	   *mirror = &mirrors[i];
		uint32		hash = i < SAME_HASH ? 100 : 100 * i;

		memset(mirror, 0, sizeof(*mirror));
		/* the hash is that of both */
		mirror->target.key.relation = (round * MIRRORS + i) * 1024 + 1024;
		mirror->target.key.index = mirror->target.key.relation ^ hash;
		mirror->target.rel = (Relation) mirror;
		refresh(mirror, 1);
	}
}

int
main(int argc, char **argv)
{
	random_state += argc > 1 ? strtoull(argv[1], NULL, 10) * UINT64_C(2654435769) : 0;
	for (uint32 round = 0; round < ROUNDS; round++)
	{
		now = 1;
		generation++;
		make_mirrors(round);
		if (round == 0)
			check_timed(&mirrors[MIRRORS - 1]);
		wal_is_gone = round % 2;
		for (int i = 0; i < STEPS; i++)
		{
			step();
			check_mirror(&mirrors[random_below(MIRRORS)]);
		}
	}
	return report_checks();
}
