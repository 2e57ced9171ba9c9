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
 *-------------------------------------------------------------------------
 */
#include "idset/idset_condition.h"

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
