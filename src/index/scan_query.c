/*-------------------------------------------------------------------------
 *
 * scan_query.c
 *	  The query of an ordered scan, out of its keys.
 *
 *-------------------------------------------------------------------------
 */
#include "gpuvec.h"

#include "access/relscan.h"
#include "index/knn_scan.h"

IdSet *
KnnReadKeys(IndexScanDesc scan, GpuvecConditions *conditions)
{
	GpuvecMakeConditions(scan, conditions);
	if (scan->numberOfOrderBys == 0 || conditions->nothing ||
		(scan->orderByData[0].sk_flags & SK_ISNULL))
		return NULL;
	return (IdSet *) PG_DETOAST_DATUM_COPY(scan->orderByData[0].sk_argument);
}

void
KnnMakeQuery(gpuvec_measure measure, const IdSet *query, const GpuvecConditions *conditions,
			 MirrorQuery *wire)
{
	wire->set = query;
	wire->len = idset_count(query);
	if (conditions->filter.n > 0)
	{
		wire->filter = &conditions->filter;
		wire->disjoint = !gpuvec_ranks_disjoint(measure);
	}
}
