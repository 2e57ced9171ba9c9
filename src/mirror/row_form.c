/*-------------------------------------------------------------------------
 *
 * row_form.c
 *	  What an index with an expression or a predicate makes of a row.
 *
 * The rows of such an index's mirror are those that satisfy the predicate, with the
 * value of the expression (or of the column).  Both are evaluated while a page is read,
 * by whoever searches; so, as when an index is built, the functions run with the rights
 * of the table's owner, restricted, and with settings that end with the reading.
 *
 * Out-of-line values of the columns are fetched beforehand, by the page reader's
 * own means: a row that is not needed any more may have lost them, and is left out.
 *
 *-------------------------------------------------------------------------
 */
#include "gpuvec.h"

#include "access/htup_details.h"
#include "access/sysattr.h"
#include "catalog/index.h"
#include "executor/executor.h"
#include "mirror/page_reader.h"
#include "nodes/execnodes.h"
#include "optimizer/optimizer.h"
#include "utils/guc.h"

struct RowForm
{
	IndexInfo  *info;
	EState	   *estate;
	ExprState  *predicate;
	TupleTableSlot *slot;
	bool	   *needed;			/* by column number - 1 */

	/* what is restored at the end */
	Oid			user;
	int			security;
	int			guc_level;
};

/* Which columns do expression and predicate need? */
static bool *
needed_columns(Relation rel, const IndexInfo *info)
{
	bool	   *needed = palloc0_array(bool, RelationGetNumberOfAttributes(rel));
	Bitmapset  *attnums = NULL;
	int			i = -1;

	pull_varattnos((Node *) info->ii_Expressions, 1, &attnums);
	pull_varattnos((Node *) info->ii_Predicate, 1, &attnums);
	while ((i = bms_next_member(attnums, i)) >= 0)
	{
		AttrNumber	attnum = i + FirstLowInvalidHeapAttributeNumber;

		for (int j = 0; j < RelationGetNumberOfAttributes(rel); j++)
			needed[j] |= attnum == j + 1 || attnum == InvalidAttrNumber;	/* 0: a whole row */
	}
	if (info->ii_IndexAttrNumbers[0] > 0)
		needed[info->ii_IndexAttrNumbers[0] - 1] = true;
	return needed;
}

RowForm *
RowFormBegin(Relation rel, Relation index)
{
	RowForm    *form = palloc0_object(RowForm);

	GetUserIdAndSecContext(&form->user, &form->security);
	SetUserIdAndSecContext(rel->rd_rel->relowner,
						   form->security | SECURITY_RESTRICTED_OPERATION);
	form->guc_level = NewGUCNestLevel();
	GpuvecRestrictSearchPath();
	form->info = BuildIndexInfo(index);
	form->estate = CreateExecutorState();
	form->predicate = ExecPrepareQual(form->info->ii_Predicate, form->estate);
	form->slot = MakeSingleTupleTableSlot(RelationGetDescr(rel), &TTSOpsVirtual);
	form->needed = needed_columns(rel, form->info);
	return form;
}

void
RowFormEnd(RowForm *form)
{
	ExecDropSingleTupleTableSlot(form->slot);
	FreeExecutorState(form->estate);
	AtEOXact_GUC(false, form->guc_level);
	SetUserIdAndSecContext(form->user, form->security);
	pfree(form->needed);
	pfree(form);
}

/* Put a tuple into the slot; false if it may be left out */
static bool
store_tuple(RowForm *form, PageReader *reader, HeapTuple tuple)
{
	TupleTableSlot *slot = form->slot;
	TupleDesc	desc = slot->tts_tupleDescriptor;

	ExecClearTuple(slot);
	heap_deform_tuple(tuple, desc, slot->tts_values, slot->tts_isnull);
	for (int i = 0; i < desc->natts; i++)
	{
		if (!form->needed[i] || slot->tts_isnull[i] || TupleDescAttr(desc, i)->attlen != -1 ||
			!VARATT_IS_EXTERNAL_ONDISK(DatumGetPointer(slot->tts_values[i])))
			continue;
		slot->tts_values[i] =
			PointerGetDatum(PageReaderPlain(reader,
											(struct varlena *) DatumGetPointer(slot->tts_values[i]),
											&tuple->t_self));
		if (DatumGetPointer(slot->tts_values[i]) == NULL)
			return false;
	}
	ExecStoreVirtualTuple(slot);
	slot->tts_tableOid = RelationGetRelid(reader->rel);
	slot->tts_tid = tuple->t_self;
	return true;
}

/*
 * The index's set of a row in a slot, or NULL; *member: does the row satisfy the
 * predicate?
 */
struct varlena *
RowFormSlotValue(RowForm *form, TupleTableSlot *slot, bool *member)
{
	ExprContext *context = GetPerTupleExprContext(form->estate);
	Datum		values[INDEX_MAX_KEYS];
	bool		isnull[INDEX_MAX_KEYS];

	ResetExprContext(context);
	context->ecxt_scantuple = slot;
	*member = ExecQual(form->predicate, context);
	if (!*member)
		return NULL;
	FormIndexDatum(form->info, slot, form->estate, values, isnull);
	return isnull[0] ? NULL : (struct varlena *) DatumGetPointer(values[0]);
}

/* The set of a tuple of the page that is being read; NULL if the index has none */
struct varlena *
RowFormValue(RowForm *form, PageReader *reader, HeapTuple tuple)
{
	struct varlena *value;
	bool		member;

	if (!store_tuple(form, reader, tuple))
		return NULL;
	value = RowFormSlotValue(form, form->slot, &member);
	return value ? PageReaderPlain(reader, value, &tuple->t_self) : NULL;
}
