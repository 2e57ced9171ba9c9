/*-------------------------------------------------------------------------
 *
 * known.c
 *	  What this session knows of mirrors, from the engine's answers.
 *
 * Each answer tells the state of its mirror.  The last state of each mirror
 * is remembered, for three uses:
 *
 *	 - A refresh number that is known before the visibility map is read proves
 *	   what the map says (visibility.c).  An older number proves less, but
 *	   nothing false.  Numbers of another engine prove nothing, so a number
 *	   counts for one connection.
 *	 - A search needs no WAL position beyond that of the mirror's last check,
 *	   if the WAL since then has no change of the relation (wal.c).
 *	 - A mirror that is known to be behind is refreshed before it is asked.
 *
 * What other sessions have learned is in shared memory (refreshing.c), and
 * used before the WAL is read.
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

/* Time one request in TIMED_EVERY: reading the clock may be slow */
#define TIMED_EVERY		8

/* A mirror, as the last answer described it */
typedef struct Known
{
	gpuvec_mirror_key key;
	uint64		generation;		/* of the connection; 0: state is not known */
	gpuvec_state state;
	XLogRecPtr	until;			/* no change in the WAL in (state.checked,
								 * until] */
	uint32		asked;			/* requests that could have been timed */
} Known;

/*
 * Slots by hash of the key.  A mirror is in one of KNOWN_PROBES slots, from
 * that of its hash on; if others have them all, it replaces the first.  There
 * are many slots, as a search may be of many partitions; with one for each
 * hash, two partitions that share it would never be known together.
 */
#define KNOWN_SLOTS		1024
#define KNOWN_PROBES	4

static Known known_mirrors[KNOWN_SLOTS];

/*
 * The i-th slot for a mirror.  A search of many partitions comes here several
 * times for each, so not the whole key is hashed.
 */
static Known *
probe(const gpuvec_mirror_key *key, int i)
{
	uint32		some = key->relation ^ key->index ^ (uint32) key->attnum << 20 ^
		(uint32) key->key_attnum << 26 ^ (uint32) key->meaning ^ (uint32) key->private_id;

	return &known_mirrors[(hash_bytes_uint32(some) + i) % KNOWN_SLOTS];
}

static bool
is_free(const Known *known)
{
	return known->key.relation == InvalidOid;
}

/* What is known of a mirror, or NULL.  No slot becomes free again. */
static Known *
known_mirror(const gpuvec_mirror_key *key)
{
	for (int i = 0; i < KNOWN_PROBES; i++)
	{
		Known	   *known = probe(key, i);

		if (is_free(known))
			return NULL;
		if (memcmp(&known->key, key, sizeof(*key)) == 0)
			return known;
	}
	return NULL;
}

/* Where a mirror of which nothing is known is remembered */
static Known *
new_slot(const gpuvec_mirror_key *key)
{
	for (int i = 0; i < KNOWN_PROBES; i++)
		if (is_free(probe(key, i)))
			return probe(key, i);
	return probe(key, 0);
}

void
MirrorRemember(const gpuvec_mirror_key *key, const gpuvec_state *state)
{
	Known	   *there = known_mirror(key);
	Known	   *known = there ? there : new_slot(key);
	bool		same = there && known->generation == GpuvecLinkGeneration();

	if (!there || known->state.checked > state->checked)
		known->until = 0;
	if (!same || known->state.refresh != state->refresh)
	{
		known->asked = same ? known->asked : 0;
		CostsNoteState(key, state);
		RefreshingNoteState(key, state);
	}
	FeedNoteState(state);
	known->key = *key;
	known->generation = GpuvecLinkGeneration();
	known->state = *state;
	known->until = Max(known->until, state->checked);
}

void
MirrorForget(const gpuvec_mirror_key *key)
{
	Known	   *known = known_mirror(key);

	if (known)
		known->generation = 0;
}

const gpuvec_state *
MirrorKnownState(const MirrorTarget *target)
{
	Known	   *known = known_mirror(&target->key);

	return known && known->generation == GpuvecLinkGeneration() ? &known->state : NULL;
}

uint64
MirrorKnownRefresh(const MirrorTarget *target)
{
	const gpuvec_state *state = MirrorKnownState(target);

	return state ? state->refresh : 0;
}

/*
 * Take over what other sessions have learned: a later state, and how far the
 * WAL has no change
 */
static void
learn(Known *known, const RefreshingNotes *notes)
{
	if (notes->state.state == GPUVEC_READY &&
		(known->generation != GpuvecLinkGeneration() ||
		 notes->state.refresh > known->state.refresh))
		MirrorRemember(&known->key, &notes->state);
	if (notes->from <= known->until)
		known->until = Max(known->until, notes->until);
}

/*
 * True if the relation may have changed between known->until, which is set
 * again, and this position.  Others have read the WAL, or we do.
 */
static bool
has_changed(const MirrorTarget *target, Known *known, XLogRecPtr position)
{
	RefreshingNotes notes;
	bool		changed;

	if (position > known->until && RefreshingLook(&target->key, &notes))
	{
		learn(known, &notes);
		if (position > known->until && notes.changed <= position &&
			notes.changed_from >= known->until)
			return true;
	}
	if (position <= known->until)
		return false;
	GPUVEC_INJECTION("known-before-wal");
	changed = WalChanges(MirrorSource(target), known->until, position, NULL) != WAL_UNCHANGED;
	RefreshingNoteWal(&target->key, changed ? known->until : known->state.checked, position, changed);
	if (!changed)
		known->until = position;
	return changed;
}

/*
 * Returns the current position; or the one that the mirror was checked to, if
 * the WAL since then has no change of the relation.
 */
XLogRecPtr
MirrorKnownPosition(MirrorTarget *target)
{
	Known	   *known = known_mirror(&target->key);
	XLogRecPtr	position = MirrorPosition();

	if (known == NULL || known->state.checked == 0 || has_changed(target, known, position))
		return position;
	return known->state.checked;
}

XLogRecPtr
MirrorKnownUntil(const MirrorTarget *target, XLogRecPtr checked)
{
	const Known *known = known_mirror(&target->key);

	return known != NULL && known->state.checked <= checked ? Max(known->until, checked) : checked;
}

/*
 * The first request of a session is not timed (nothing is known of the mirror
 * then): it is slow, like anything that a session does first.
 */
bool
MirrorKnownTimed(const MirrorTarget *target)
{
	Known	   *known = known_mirror(&target->key);

	return known != NULL && known->asked++ % TIMED_EVERY == 0;
}
