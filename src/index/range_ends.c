/*-------------------------------------------------------------------------
 *
 * range_ends.c
 *	  Divides the values of a column into ranges, of which the first ones are
 *	  wanted.
 *
 * A range ends where the statistics of the column say that it has about as
 * many rows as it should (thresholds.c), if rows that are sought are spread as
 * all others are.  Each next one should have RANGE_GROWTH times as many.
 *
 * If the statistics are wrong, or these rows are spread otherwise, a range has
 * none, or far too many.  Then the engine is asked how many there are, and
 * where the first and the last ones are.  What is between these is divided in
 * proportion, before any row is fetched.
 *
 * The engine may not be able to tell.  Then the next range after an empty one
 * has more values.  One with too many rows is divided in proportion, or into
 * halves while nothing was found at all.  The first range may have rows that
 * came after the statistics, which have later times: its end is extrapolated
 * by their number.
 *
 *-------------------------------------------------------------------------
 */
#include "gpuvec.h"

#include "index/range_ends.h"

#define RANGE_GROWTH	8

/* Behind this share of all values, the last range has the rest */
#define LAST_RANGE		0.5

/*
 * A range is divided that has MANY_TIMES the rows that it should, and
 * MANY_ROWS more.  After DIVIDE_TRIES parts that had too many or none, what is
 * left of it is taken.
 */
#define MANY_TIMES		8
#define MANY_ROWS		512
#define DIVIDE_TRIES	12

static int
compare(const RangeEnds *ends, Datum a, Datum b)
{
	return ApplySortComparator(a, false, b, false, ends->thresholds.order);
}

/* True if a range can end there: behind the one before */
static bool
is_behind(const RangeEnds *ends, Datum end)
{
	return !ends->has_last || compare(ends, end, ends->last) > 0;
}

/*
 * Let the share of the values in all ranges grow.  If those of newer rows,
 * whose share is a mere guess, had none, begin anew behind them.
 */
static void
grow(RangeEnds *ends)
{
	double		newer = ends->thresholds.newer - ends->begin;
	double		before = ends->share;

	ends->share *= RANGE_GROWTH;
	if (!ends->found && before < newer && ends->share >= newer)
		ends->share = newer + ends->first * (1 - ends->begin);
}

/* Find the end of the range by the statistics.  False: it has the rest. */
static bool
find_end(RangeEnds *ends)
{
	double		newer = Max(ends->thresholds.newer - ends->begin, 0);
	double		most = newer + LAST_RANGE * (1 - ends->begin - newer);
	bool		found;

	do
	{
		grow(ends);
		found = ends->share < most &&
			ThresholdsValue(&ends->thresholds, ends->begin + ends->share, &ends->end);
	} while (found && !is_behind(ends, ends->end));
	return found;
}

/*
 * Find the end of a part of the first range.  If it begins with the first
 * values of all, rows may be newer than the statistics.
 */
static bool
divide_first(RangeEnds *ends)
{
	double		part = ends->wanted / ends->many;

	if (ends->begin == 0 && ends->divided == 1)
		ThresholdsSetNewer(&ends->thresholds, 1 / (1 + part / ends->first));
	else
		ends->share *= part;
	return ThresholdsValue(&ends->thresholds, ends->begin + ends->share, &ends->end);
}

/*
 * Ask how many rows there are, and where, behind `last`.  False: that cannot
 * be told.
 */
static bool
survey(RangeEnds *ends)
{
	double		n;

	if (!ends->survey(ends->survey_arg, &n, &ends->many_first, &ends->many_end))
		return false;
	ends->surveyed = true;
	ends->aim = ends->wanted;
	ends->has_first = n > 0;
	ends->many_last = ends->rest;
	ends->many = n;
	return true;
}

/* Find the end of a part of the rows whose number is known */
static void
find_part(RangeEnds *ends)
{
	bool		found = false;

	if (ends->many > ends->most && ends->divided < DIVIDE_TRIES)
	{
		if (!ends->surveyed && !ends->has_last)
			found = divide_first(ends);
		else
		{
			double		aim = ends->surveyed ? ends->aim : ends->found ? ends->wanted : ends->many / 2;

			ends->end = ThresholdsBetween(&ends->thresholds,
										  ends->has_first ? ends->many_first : ends->last,
										  ends->many_end, Min(aim / ends->many, 0.5));
			found = true;
		}
		found = found && is_behind(ends, ends->end) && compare(ends, ends->end, ends->many_end) < 0;
		if (!found)
			ends->divided = DIVIDE_TRIES;
	}
	ends->has_first = false;
	if (found)
		return;
	ends->end = ends->many_end;
	ends->many = 0;
}

/* Choose the range behind `last` */
static void
choose(RangeEnds *ends)
{
	ends->most = (uint64) (MANY_TIMES * ends->wanted) + MANY_ROWS;
	if (ends->many > 0)
	{
		find_part(ends);
		ends->rest = false;
	}
	else
		ends->rest = ends->many_last || !find_end(ends);
	if (ends->divided >= DIVIDE_TRIES)
		ends->most = 0;
}

void
RangeEndsBegin(RangeEnds *ends, double begin)
{
	ends->has_last = ends->found = ends->surveyed = ends->has_first = ends->many_last = false;
	ends->divided = 0;
	ends->many = 0;
	ends->wanted = ends->aim = ends->rows;
	ends->begin = begin;
	ends->share = ends->first * (1 - begin) / RANGE_GROWTH;
	choose(ends);
}

void
RangeEndsNext(RangeEnds *ends, double n, bool returned)
{
	bool		some = returned || (ends->surveyed && n >= ends->aim / 2);

	ends->last = ends->end;
	ends->has_last = true;
	ends->found |= returned;
	/* if the snapshot sees none of so many rows, there may be more of these */
	if (some)
		ends->wanted *= RANGE_GROWTH;
	/* if there were fewer than should be, they are spread otherwise */
	ends->aim = some ? ends->wanted : ends->aim * RANGE_GROWTH;
	if (ends->many > 0)
	{
		/* a part that has none is a try, too */
		ends->divided += some ? 0 : 1;
		ends->many = Max(ends->many - n, 1);
	}
	else if (!returned && !ends->many_last)
	{
		ends->rest = true;
		(void) survey(ends);
	}
	choose(ends);
}

void
RangeEndsDivide(RangeEnds *ends, double n)
{
	const Thresholds *thresholds = &ends->thresholds;

	ends->divided++;
	ends->many = 0;
	if (survey(ends) && ends->many > ends->most)
	{
		choose(ends);
		return;
	}
	ends->surveyed = ends->has_first = ends->many_last = false;
	ends->many_end = ends->end;
	if (ends->rest && thresholds->n > 0)
		ends->many_end = thresholds->points[thresholds->n - 1].value;
	/* the rest, in which there is no end */
	if (ends->rest && (thresholds->n == 0 || !ends->has_last || !is_behind(ends, ends->many_end)))
	{
		ends->divided = DIVIDE_TRIES;
		ends->most = 0;
		return;
	}
	ends->many = n;
	choose(ends);
}
