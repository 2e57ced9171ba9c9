/*-------------------------------------------------------------------------
 *
 * complain.c
 *	  Errors about the vectors of a table.
 *
 *-------------------------------------------------------------------------
 */
#include "gpuvec.h"

#include "embedding/embedding_table.h"
#include "utils/lsyscache.h"

/* Raise a complaint of the engine or of collect.c */
void
EmbeddingComplain(EmbeddingTable *table, const gpuvec_embedding_answer *complaint)
{
	static const char *const kinds[GPUVEC_N_VECTOR_KINDS] = {
		"", "It has null elements.", "It has more than one dimension.", "It has too many elements.",
		"It is shorter than it says."
	};
	const char *name = get_rel_name(table->relid);

	switch ((gpuvec_embedding_status) complaint->status)
	{
		case GPUVEC_EMBEDDING_MISSING:
			ereport(ERROR,
					(errcode(ERRCODE_NO_DATA_FOUND),
					 errmsg("relation \"%s\" has no vector with key " INT64_FORMAT, name,
							complaint->key),
					 errhint("missing => 'zero' or 'skip' accepts keys without a vector.")));
			break;
		case GPUVEC_EMBEDDING_DUPLICATE:
			ereport(ERROR,
					(errcode(ERRCODE_CARDINALITY_VIOLATION),
					 errmsg("relation \"%s\" has several vectors with key " INT64_FORMAT, name,
							complaint->key),
					 errhint("A primary key or unique constraint keeps keys distinct.")));
			break;
		case GPUVEC_EMBEDDING_BAD:
			ereport(ERROR,
					(errcode(ERRCODE_DATA_EXCEPTION),
					 errmsg("the vector of relation \"%s\" with key " INT64_FORMAT " cannot be used",
							name, complaint->key),
					 errdetail("%s", kinds[complaint->kind < GPUVEC_N_VECTOR_KINDS ? complaint->kind : 0])));
			break;
		case GPUVEC_EMBEDDING_WIDTHS:
			ereport(ERROR,
					(errcode(ERRCODE_DATA_EXCEPTION),
					 errmsg("vectors of relation \"%s\" have different numbers of elements", name),
					 errdetail("The vector with key " INT64_FORMAT " has %u, that with key " INT64_FORMAT " has %u.",
							   complaint->other_key, complaint->other_width, complaint->key,
							   complaint->width)));
			break;
		case GPUVEC_EMBEDDING_LARGE:
			ereport(ERROR,
					(errcode(ERRCODE_PROGRAM_LIMIT_EXCEEDED),
					 errmsg("the vectors of one call would be too large"),
					 errhint("Ask for fewer keys at a time.")));
			break;
		default:
			elog(ERROR, "unexpected status %u from the gpuvec engine", complaint->status);
	}
	pg_unreachable();
}

/* Raise the error that the engine's result is wrong */
void
EmbeddingReportWrong(EmbeddingTable *table)
{
	ereport(ERROR,
			(errcode(ERRCODE_DATA_CORRUPTED),
			 errmsg("the gpuvec engine's vectors of relation \"%s\" are wrong",
					get_rel_name(table->relid)),
			 errhint("Please report this as a bug; gpuvec_evict discards the engine's copy.")));
}
