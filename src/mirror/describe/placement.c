/*-------------------------------------------------------------------------
 *
 * placement.c
 *	  The parameter of an index that says where its table's copy lies:
 *
 *		CREATE INDEX ... USING gpuvec (...) WITH (placement = replicate)
 *
 * A parameter is in the catalog.  So it survives restarts, standbys have it,
 * pg_dump writes it, and nobody but the owner of the index sets it.  It counts
 * once it is committed: what a session alone sees must not decide about a
 * mirror that others share.
 *
 *-------------------------------------------------------------------------
 */
#include "gpuvec.h"

#include "access/htup_details.h"
#include "access/reloptions.h"
#include "access/xact.h"
#include "catalog/pg_class.h"
#include "mirror/describe/placement.h"
#include "utils/syscache.h"

typedef struct IndexParameters
{
	int32		vl_len_;		/* varlena header (do not touch directly!) */
	int			placement;		/* a gpuvec_placement */
} IndexParameters;

static relopt_enum_elt_def placements[] =
{
	{
		"auto", GPUVEC_PLACE_AUTO
	},
	{
		"replicate", GPUVEC_PLACE_REPLICATE
	},
	{
		"spread", GPUVEC_PLACE_SPREAD
	},
	{
		NULL, 0
	}
};

bytea *
PlacementOptions(Datum options, bool validate)
{
	static relopt_kind kind = 0;
	static const relopt_parse_elt parameters[] = {
		{.optname = "placement", .opttype = RELOPT_TYPE_ENUM,
		.offset = offsetof(IndexParameters, placement)}
	};

	if (kind == 0)
	{
		relopt_kind made = add_reloption_kind();

		/* other sessions may search meanwhile */
		add_enum_reloption(made, "placement", "Copies of the rows on several devices",
						   placements, GPUVEC_PLACE_AUTO,
						   "Valid values are \"auto\", \"replicate\", and \"spread\".",
						   ShareUpdateExclusiveLock);
		kind = made;
	}
	return build_reloptions(options, validate, kind, sizeof(IndexParameters), parameters,
							lengthof(parameters));
}

/* The committed parameter of an index */
static gpuvec_placement
index_placement(Oid index)
{
	HeapTuple	tuple = SearchSysCache1(RELOID, ObjectIdGetDatum(index));
	gpuvec_placement placement = GPUVEC_PLACE_AUTO;
	Datum		options;
	bool		isnull;

	if (!HeapTupleIsValid(tuple))
		return placement;
	options = SysCacheGetAttr(RELOID, tuple, Anum_pg_class_reloptions, &isnull);
	if (!isnull && !TransactionIdIsCurrentTransactionId(HeapTupleHeaderGetXmin(tuple->t_data)))
	{
		IndexParameters *parameters = (IndexParameters *) PlacementOptions(options, false);

		placement = (gpuvec_placement) parameters->placement;
		pfree(parameters);
	}
	ReleaseSysCache(tuple);
	return placement;
}

gpuvec_placement
MirrorPlacement(const MirrorTarget *target)
{
	Oid			index = target->index ? RelationGetRelid(target->index) :
		MirrorServingIndex(target);

	return target->mode == MIRROR_SHARED && OidIsValid(index) ? index_placement(index) :
		GPUVEC_PLACE_AUTO;
}
