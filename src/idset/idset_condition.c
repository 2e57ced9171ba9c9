/*-------------------------------------------------------------------------
 *
 * idset_condition.c
 *	  Other spellings of conditions that an index can search for.
 *
 * An index searches for tokens <<->> threshold.  Conditions that imply this
 * are written in other ways:
 *
 *		jaccard_similarity(tokens, q) >= 0.5, and other measures
 *		tokens <%> q < 0.5, and other distances
 *
 * There may be arithmetic around the score (idset_spelling.c).
 * src/index/comparisons.c finds them, and makes a condition with <<->>, from
 * what is here.  Its right side is a call of idset_reaching() or of
 * idset_within().  They make null of NaN, which no score reaches, where the
 * operator would raise an error.
 *
 * Why all rows are found.  The operator <<->> compares the score of the
 * measure's SQL function, to the bit, so f(tokens, q) >= c needs no more than
 * the same c.  (f > c and f = c imply f >= c.)  Counts are integers, and
 * their distances are negated scores.  The other distances are 1 - score, for
 * real numbers.  The float8 of a distance that is at most c is a real
 * distance of at most c + 2^-53, for it is rounded once and at most 1; so the
 * score is 1 - c - 2^-53 or more, and its float8, which is rounded twice at
 * most (cosine), 1 - c - 2^-51 or more.  SLACK is more than that, and less
 * than half of what different scores of sets differ by (2^-34, see
 * core/measure.h).  The executor checks the condition as it was written.
 *
 * Why no others are found.  The distances of Braun-Blanquet and Jaccard are
 * (n - i) / n, and the scores i / n, one division each, with n at most 2^17.
 * Two such fractions are at least 2^-34 apart.  So of all scores only one can
 * be within SLACK of 1 - c.  If its distance is at most c, it is the least
 * score; if not, the least score is above it.  A fraction this near to 1 - c
 * is a convergent of its continued fraction, as SLACK is less than 1 / (2 n^2)
 * (Hardy and Wright, An introduction to the theory of numbers, theorem 184).
 *
 *-------------------------------------------------------------------------
 */
#include "idset/idset_condition.h"

#include <math.h>

#include "access/htup_details.h"
#include "catalog/pg_proc.h"
#include "utils/builtins.h"
#include "utils/syscache.h"

/* More than rounding changes a score by; see above */
#define SLACK			1e-12

double
idset_score_within(bool negated, double distance)
{
	if (negated)
		return -distance;
	return 1.0 - distance - SLACK;
}

/* The greatest n: two sets of 2^16 ids */
#define MOST_IDS		131072.0

/*
 * Find the fraction of numbers of ids that is within SLACK of x, from 0 to 1
 * or a little outside; false if there is none
 */
static bool
find_fraction(double x, double *numerator, double *denominator)
{
	double		before[2] = {0, 1}; /* the convergent before, p / q, */
	double		last[2] = {1, 0};	/* ... and the last one */
	double		rest = x;

	for (;;)
	{
		double		whole = floor(rest);
		double		p = whole * last[0] + before[0];
		double		q = whole * last[1] + before[1];

		if (q > MOST_IDS)
			return false;
		if (fabs(x - p / q) <= SLACK)
		{
			*numerator = p;
			*denominator = q;
			return true;
		}
		if (rest == whole)
			return false;
		before[0] = last[0];
		before[1] = last[1];
		last[0] = p;
		last[1] = q;
		rest = 1 / (rest - whole);
	}
}

double
idset_least_score(gpuvec_measure measure, double distance)
{
	double		about = idset_score_within(idset_measures[measure].counts, distance);
	double		i;
	double		n;

	if (!idset_measures[measure].divided || !(fabs(distance) < 2) ||
		!find_fraction(1 - distance, &i, &n))
		return about;
	return (n - i) / n <= distance ? i / n : nextafter(i / n, INFINITY);
}

bool
idset_least_score_decides(gpuvec_measure measure)
{
	return idset_measures[measure].counts || idset_measures[measure].divided;
}

Oid
idset_own_function(Oid schema, const char *name, const Oid *types, int n, PGFunction function)
{
	Oid			found = GetSysCacheOid3(PROCNAMEARGSNSP, Anum_pg_proc_oid, CStringGetDatum(name),
										PointerGetDatum(buildoidvector(types, n)),
										ObjectIdGetDatum(schema));
	FmgrInfo	info;

	if (!OidIsValid(found))
		return InvalidOid;
	fmgr_info(found, &info);
	return info.fn_addr == function ? found : InvalidOid;
}
