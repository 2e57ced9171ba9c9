/*-------------------------------------------------------------------------
 *
 * interactions_pairs.c
 *	  Makes each pair of a user and an item one entry.
 *
 * The weights of a pair that comes several times are added in float64,
 * ascending, so that the sum does not depend on the order in which they come.
 *
 * A pair whose weights add up to zero is left out like a weight of zero.  But
 * if alpha makes all pairs vanish, that is an error of a training.
 *
 *-------------------------------------------------------------------------
 */
#include <inttypes.h>
#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/als/interactions.h"
#include "engine/als/interactions_sort.h"

/* By items, then by weights */
static int
compare_entries(const void *a, const void *b)
{
	const gpuvec_als_entry *x = a;
	const gpuvec_als_entry *y = b;

	if (x->other != y->other)
		return x->other < y->other ? -1 : 1;
	return x->confidence < y->confidence ? -1 : x->confidence > y->confidence;
}

/* Sort entries, unless they come sorted, as they often do */
static void
sort_entries(gpuvec_als_entry *entries, uint64_t n)
{
	for (uint64_t i = 1; i < n; i++)
		if (compare_entries(&entries[i - 1], &entries[i]) > 0)
		{
			qsort(entries, n, sizeof(*entries), compare_entries);
			return;
		}
}

/* A pair whose confidence is too large */
typedef struct bad_pair
{
	uint32_t	user;			/* GPUVEC_NO_NUMBER: there is none */
	uint32_t	item;
	double		confidence;
} bad_pair;

typedef struct unite_task
{
	gpuvec_als_matrix *users;
	double		alpha;
	uint32_t   *kept;			/* entries that remain of each row */
	bool		vanished;		/* a confidence was too small for float32 */
	pthread_mutex_t mutex;
	bad_pair	bad;			/* the first one; guarded by the mutex */
} unite_task;

/* Keep the first pair that is bad, whoever finds it when */
static void
keep_bad(unite_task *task, uint32_t user, uint32_t item, double confidence)
{
	pthread_mutex_lock(&task->mutex);
	if (user < task->bad.user)
		task->bad = (bad_pair)
	{
		user, item, confidence
	};
	pthread_mutex_unlock(&task->mutex);
}

/*
 * Make each pair of a row one entry, at the row's beginning, and weights
 * confidences.  Pairs that add up to zero are left out.
 */
static void
unite_row(unite_task *task, uint32_t row)
{
	uint64_t	end = task->users->starts[row + 1];
	uint64_t	from = task->users->starts[row];
	gpuvec_als_entry *entries = task->users->entries;
	gpuvec_als_entry *to = entries + from;

	sort_entries(to, end - from);
	task->kept[row] = 0;
	while (from < end)
	{
		uint32_t	other = entries[from].other;
		double		sum = 0;

		while (from < end && entries[from].other == other)
			sum += entries[from++].confidence;
		sum *= task->alpha;
		if (!(fabs(sum) <= GPUVEC_ALS_MAX_CONFIDENCE))
		{
			keep_bad(task, row, other, sum);
			return;
		}
		to[task->kept[row]].other = other;
		to[task->kept[row]].confidence = (float) sum;
		if ((float) sum != 0)
			task->kept[row]++;
		else if (sum != 0)
			__atomic_store_n(&task->vanished, true, __ATOMIC_RELAXED);
	}
}

static void
unite_slice(void *arg, uint64_t slice, int thread)
{
	unite_task *task = arg;
	uint32_t	end = gpuvec_als_first_row(task->users, (slice + 1) * SLICE_ENTRIES);

	(void) thread;
	for (uint32_t row = gpuvec_als_first_row(task->users, slice * SLICE_ENTRIES); row < end; row++)
		unite_row(task, row);
}

/* Move the entries that remain together, and set starts accordingly */
static void
close_gaps(gpuvec_als_matrix *matrix, const uint32_t *kept)
{
	uint64_t	to = 0;

	for (uint32_t row = 0; row < matrix->nrows; row++)
	{
		uint64_t	from = matrix->starts[row];

		if (from != to)
			memmove(matrix->entries + to, matrix->entries + from, kept[row] * sizeof(*matrix->entries));
		matrix->starts[row] = to;
		to += kept[row];
	}
	matrix->starts[matrix->nrows] = to;
}

/* Report that the confidence of a pair is too large */
static bool
fail_confidence(const gpuvec_side_rows *rows, double alpha, const bad_pair *bad,
				gpuvec_error *error)
{
	gpuvec_fail(error, GPUVEC_OUT_OF_RANGE, NULL,
				alpha == 1 ? "Make weights smaller." : "Make weights or alpha smaller.",
				"weight of user %" PRId64 " and item %" PRId64 " is too large",
				rows[GPUVEC_ALS_USERS].keys[bad->user], rows[GPUVEC_ALS_ITEMS].keys[bad->item]);
	snprintf(error->detail, sizeof(error->detail),
			 "The sum of the pair's weights%s is %g; it must be between %g and %g.",
			 alpha == 1 ? "" : " times alpha", bad->confidence, -GPUVEC_ALS_MAX_CONFIDENCE, GPUVEC_ALS_MAX_CONFIDENCE);
	return false;
}

/* Report that no pair is left because confidences are too small */
static bool
fail_vanished(double alpha, gpuvec_error *error)
{
	gpuvec_fail(error, GPUVEC_OUT_OF_RANGE, NULL, "Make alpha or weights larger.",
				"weights are too small");
	snprintf(error->detail, sizeof(error->detail),
			 "All weights times alpha, which is %g, are too small for float4.", alpha);
	return false;
}

/*
 * Make each pair of the users' matrix one entry, and weights confidences.
 * kept[] has room for an element for each user.  may_vanish: it is no error
 * if all confidences are too small.
 */
bool
gpuvec_als_unite_pairs(gpuvec_side_rows *rows, const sorter_threads *threads, double alpha, bool may_vanish,
					   uint32_t *kept, gpuvec_error *error)
{
	gpuvec_als_matrix *users = &rows[GPUVEC_ALS_USERS].matrix;
	unite_task	task = {
		users, alpha, kept, false, PTHREAD_MUTEX_INITIALIZER, {GPUVEC_NO_NUMBER, 0, 0}
	};

	if (!gpuvec_als_run_slices(threads, unite_slice, &task, users->starts[users->nrows] / SLICE_ENTRIES + 1))
		return false;
	if (task.bad.user != GPUVEC_NO_NUMBER)
		return fail_confidence(rows, alpha, &task.bad, error);
	close_gaps(users, kept);
	if (task.vanished && users->starts[users->nrows] == 0 && !may_vanish)
		return fail_vanished(alpha, error);
	return true;
}
