/*-------------------------------------------------------------------------
 *
 * device_views.c
 *	  The functions behind the views gpuvec_devices and
 *	  gpuvec_mirror_devices: what the engine runs on, and what is where.
 *
 * Like the other views, they never start an engine.  They are empty if none
 * can be asked; gpuvec_engine then says why.
 *
 *-------------------------------------------------------------------------
 */
#include "gpuvec.h"

#include "fmgr.h"
#include "funcapi.h"
#include "core/protocol_monitor.h"
#include "monitor/views.h"
#include "search/set_function.h"
#include "utils/builtins.h"
#include "utils/tuplestore.h"

PG_FUNCTION_INFO_V1(gpuvec_stat_devices);
PG_FUNCTION_INFO_V1(gpuvec_stat_places);

/* A device that cannot be used only has the number of its GPU, and why */
static void
put_device(ReturnSetInfo *rsinfo, const gpuvec_device_info *info)
{
	Datum		values[17] = {0};
	bool		nulls[17] = {0};
	int			n = 0;

	values[n++] = Int32GetDatum(info->number);
	values[n++] = Int32GetDatum(info->gpu);
	values[n++] = CStringGetTextDatum(pnstrdup(info->backend, sizeof(info->backend)));
	values[n++] = CStringGetTextDatum(pnstrdup(info->name, sizeof(info->name)));
	values[n++] = CStringGetTextDatum(psprintf("%d.%d", info->capability / 10, info->capability % 10));
	values[n++] = Int64GetDatum((int64) info->memory_total);
	values[n++] = Int64GetDatum((int64) info->memory_free);
	values[n++] = Int64GetDatum((int64) info->memory_used);
	values[n++] = Int64GetDatum((int64) info->memory_budget);
	values[n++] = Int32GetDatum((int32) info->segments);
	values[n++] = Int64GetDatum((int64) info->rows);
	values[n++] = Int64GetDatum((int64) info->searches);
	values[n++] = Int64GetDatum((int64) info->queries);
	values[n++] = GpuvecIntervalOfUs((int64) info->busy_us);
	values[n++] = Int64GetDatum((int64) info->errors);
	values[n++] = Int64GetDatum((int64) info->refused);
	values[n++] = CStringGetTextDatum(pnstrdup(info->last_error, sizeof(info->last_error)));
	Assert(n == lengthof(values));
	if (info->number < 0)
		memset(nulls, true, sizeof(nulls) - 1);
	else
		nulls[n - 1] = true;
	nulls[1] = info->gpu < 0;
	nulls[4] |= info->capability == 0;
	tuplestore_putvalues(rsinfo->setResult, rsinfo->setDesc, values, nulls);
}

Datum
gpuvec_stat_devices(PG_FUNCTION_ARGS)
{
	GpuvecReply reply;
	const char *reason;

	GpuvecMaterializedSRF(fcinfo);
	if (!GpuvecAskEngine(GPUVEC_MSG_DEVICES, GPUVEC_MSG_DEVICES_INFO, &reply, &reason))
		return (Datum) 0;
	for (uint32 i = 0; i < reply.length / sizeof(gpuvec_device_info); i++)
	{
		gpuvec_device_info info;

		memcpy(&info, reply.data + i * sizeof(info), sizeof(info));
		put_device((ReturnSetInfo *) fcinfo->resultinfo, &info);
	}
	return (Datum) 0;
}

static void
put_place(ReturnSetInfo *rsinfo, const gpuvec_place_info *info)
{
	Datum		values[10] = {0};
	bool		nulls[10] = {0};
	int			n = GpuvecPutMirrorKey(&info->key, values, nulls);

	values[n++] = BoolGetDatum(info->key.private_id != 0);
	values[n++] = Int32GetDatum(info->device);
	values[n++] = Int32GetDatum((int32) info->segments);
	values[n++] = Int64GetDatum((int64) info->rows);
	values[n++] = Int64GetDatum((int64) info->bytes);
	Assert(n == lengthof(values));
	tuplestore_putvalues(rsinfo->setResult, rsinfo->setDesc, values, nulls);
}

Datum
gpuvec_stat_places(PG_FUNCTION_ARGS)
{
	GpuvecReply reply;
	const char *reason;

	GpuvecMaterializedSRF(fcinfo);
	if (!GpuvecAskEngine(GPUVEC_MSG_PLACES, GPUVEC_MSG_PLACES_INFO, &reply, &reason))
		return (Datum) 0;
	for (uint32 i = 0; i < reply.length / sizeof(gpuvec_place_info); i++)
	{
		gpuvec_place_info info;

		memcpy(&info, reply.data + i * sizeof(info), sizeof(info));
		if (GpuvecMaySeeMirror(info.key.database, info.key.relation))
			put_place((ReturnSetInfo *) fcinfo->resultinfo, &info);
	}
	return (Datum) 0;
}
