/*-------------------------------------------------------------------------
 *
 * row_value.c
 *	  What a column of sets or of vectors has in a row: ids, perhaps with
 *	  values.
 *
 *-------------------------------------------------------------------------
 */
#include "gpuvec.h"

#include "core/protocol_mirrors.h"
#include "idvec/idvec.h"
#include "mirror/describe/row_value.h"
#include "utils/lsyscache.h"

bool
RowTypeHasValues(Oid type)
{
	type = getBaseType(type);
	return OidIsValid(type) && idvec_is_type(type);
}

/* The row of a vector's payload, which need not be aligned */
static gpuvec_sparse
row_of_vector(const char *payload, Size bytes)
{
	uint32		head = 0;
	gpuvec_sparse row;
	Size		each;

	if (bytes >= sizeof(head))
		memcpy(&head, payload, sizeof(head));
	each = ((head & IDVEC_WIDE) != 0 ? sizeof(uint32) : sizeof(uint16)) +
		((head & IDVEC_SMALL) != 0 ? sizeof(uint8) : sizeof(float4));
	if (bytes != sizeof(head) + idvec_head_count(head) * each)
		ereport(ERROR,
				(errcode(ERRCODE_DATA_CORRUPTED),
				 errmsg("a value of type %s has %zu bytes, which is not the length of %u ids",
						"idvec", bytes, idvec_head_count(head))));
	row.ids.ids = row.values = payload + sizeof(head);
	row.ids.n = idvec_head_count(head);
	row.ids.wide = (head & IDVEC_WIDE) != 0;
	row.small = (head & IDVEC_SMALL) != 0;
	if (row.small)
		row.values = (const char *) row.ids.ids + gpuvec_id_span_bytes(row.ids);
	else
		row.ids.ids = (const char *) row.values + row.ids.n * sizeof(float4);
	return row;
}

gpuvec_sparse
RowOfPayload(bool values, const void *payload, Size bytes)
{
	gpuvec_sparse row = RowOfNull();

	if (values)
		return row_of_vector(payload, bytes);
	row.ids = idset_span_of_bytes(payload, bytes);
	return row;
}

gpuvec_sparse
RowOfDatum(bool values, Datum value)
{
	struct varlena *plain = PG_DETOAST_DATUM(value);

	return RowOfPayload(values, VARDATA(plain), VARSIZE(plain) - VARHDRSZ);
}

uint32
RowForm(bool values, const gpuvec_sparse *row)
{
	return (row->ids.wide ? GPUVEC_FORM_WIDE : 0) | (values ? GPUVEC_FORM_VALUES : 0);
}

void
RowWrite(char *to, uint32 form, const gpuvec_sparse *row)
{
	Size		bytes = gpuvec_id_span_bytes(row->ids);
	Size		padded = gpuvec_form_ids_bytes(form, row->ids.n);

	if (bytes > 0)
		memcpy(to, row->ids.ids, bytes);
	memset(to + bytes, 0, padded - bytes);
	if ((form & GPUVEC_FORM_VALUES) == 0 || row->ids.n == 0)
		return;
	if (!row->small)
		memcpy(to + padded, row->values, row->ids.n * sizeof(float4));
	for (uint32 i = 0; row->small && i < row->ids.n; i++)
	{
		float4		value = ((const uint8 *) row->values)[i];

		memcpy(to + padded + i * sizeof(value), &value, sizeof(value));
	}
}

gpuvec_sparse
RowOfMessage(uint32 form, const void *ids, uint32 n)
{
	gpuvec_sparse row = {{ids, n, (form & GPUVEC_FORM_WIDE) != 0}, NULL, false};

	if (form & GPUVEC_FORM_VALUES)
		row.values = (const char *) ids + gpuvec_form_ids_bytes(form, n);
	return row;
}
