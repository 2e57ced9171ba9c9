/*-------------------------------------------------------------------------
 *
 * shards_place.c
 *	  Which device gets a segment.
 *
 * A segment goes to the device that would be least full with it, measured by
 * its budget.  The segments of a load come one after another and are about
 * equally large, so they are dealt out in turn, and all devices have about as
 * much to search.
 *
 * If a device refuses a segment for lack of memory, the next one gets it.
 *
 * The host's memory, where it is a device beside others, gets segments when
 * none of these has room.  Its threads search them while the devices search
 * theirs.  Segments that are merged later are placed anew, so they move to
 * the devices when there is room again.
 *
 *-------------------------------------------------------------------------
 */
#include "engine/fault.h"
#include "engine/shards/shards.h"

/*
 * What a segment weighs: about the bytes that it takes with its inverted
 * lists, from what never changes, so that its release takes away what its
 * adoption has added
 */
static uint64_t
weight(const gpuvec_segment *segment)
{
	uint64_t	values = segment->sums ?
		segment->nids * sizeof(float) + segment->nrows * sizeof(gpuvec_row_sums) : 0;

	return segment->nids * 5 + segment->ncold * 3 + values +
		segment->nrows * (UINT64_C(16) + segment->nfilters * sizeof(uint16_t));
}

/*
 * How full a device would be with `more` bytes more.  One that has no room
 * left for it comes after the host's memory.
 */
static double
fullness(const shards_backend *shards, const shards_child *child, uint64_t more)
{
	double		full = (double) (child->placed + more) / (double) child->budget;

	if (!shards->children[shards->n - 1].is_host)
		return full;
	if (full > 1)
		return full + 1;
	return child->is_host ? 1 + full : full;
}

/*
 * Choose the device that would be least full with a segment, among those that
 * were not tried, and count the segment.  Returns its number, or -1.
 */
static int
choose(shards_backend *shards, const gpuvec_segment *segment, const bool *tried)
{
	int			best = -1;
	double		least = 0;

	pthread_mutex_lock(&shards->mutex);
	for (int i = 0; i < shards->n; i++)
	{
		const shards_child *child = &shards->children[i];
		double		full = fullness(shards, child, weight(segment));

		if (!tried[i] && (best < 0 || full < least))
		{
			best = i;
			least = full;
		}
	}
	if (best >= 0)
		shards->children[best].placed += weight(segment);
	pthread_mutex_unlock(&shards->mutex);
	return best;
}

void
shards_take_away(shards_backend *shards, int child, const gpuvec_segment *segment)
{
	pthread_mutex_lock(&shards->mutex);
	shards->children[child].placed -= weight(segment);
	pthread_mutex_unlock(&shards->mutex);
}

/* True if a test wants this device to have no memory for segments */
static bool
is_full_in_test(int child)
{
	long		number = 0;

	return gpuvec_fault("part-full", &number) && number == child;
}

static bool
adopt_by(shards_child *child, int number, gpuvec_segment *segment, gpuvec_error *error)
{
	if (is_full_in_test(number))
		return gpuvec_fail_memory(error, segment->host_bytes);
	return child->backend->adopt_segment(child->backend, segment, error) ||
		shards_failed(number, error);
}

bool
shards_adopt_segment(gpuvec_backend *backend, gpuvec_segment *segment, gpuvec_error *error)
{
	shards_backend *shards = (shards_backend *) backend;
	bool		tried[GPUVEC_MAX_DEVICES] = {false};
	int			child;

	while ((child = choose(shards, segment, tried)) >= 0)
	{
		if (adopt_by(&shards->children[child], child, segment, error))
		{
			segment->backend = backend;
			segment->child = child;
			return true;
		}
		shards_take_away(shards, child, segment);
		__atomic_add_fetch(&shards->children[child].refused, 1, __ATOMIC_RELAXED);
		if (!gpuvec_lacks_memory(error))
			return false;
		tried[child] = true;
	}
	return false;
}

/* Count a copy of a segment on a device, if that has room for it */
static bool
count_copy(shards_backend *shards, int number, const gpuvec_segment *segment)
{
	shards_child *child = &shards->children[number];
	uint64_t	more = weight(segment);
	bool		fits;

	pthread_mutex_lock(&shards->mutex);
	fits = child->placed + more <= child->budget;
	if (fits)
		child->placed += more;
	pthread_mutex_unlock(&shards->mutex);
	return fits;
}

/* A device adopts the copy of a segment, if it has room to spare */
bool
shards_adopt_copy(shards_backend *shards, int child, gpuvec_segment *segment, gpuvec_error *error)
{
	if (!count_copy(shards, child, segment))
		return gpuvec_fail_memory(error, segment->host_bytes);
	if (!adopt_by(&shards->children[child], child, segment, error))
	{
		shards_take_away(shards, child, segment);
		return false;
	}
	segment->backend = &shards->base;
	segment->child = child;
	return true;
}
