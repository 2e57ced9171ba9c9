/*-------------------------------------------------------------------------
 *
 * idvec_text.c
 *	  Sparse vectors of texts: how often each lexeme, trigram, shingle or
 *	  n-gram is there.
 *
 * The ids are those of the sets of the same text (src/idset/text_*.c).
 * Shingles and n-grams that are longer than the text count once.
 *
 *-------------------------------------------------------------------------
 */
#include "gpuvec.h"

#include "idset/text_ids.h"
#include "idvec/idvec.h"

PG_FUNCTION_INFO_V1(idvec_words);
PG_FUNCTION_INFO_V1(idvec_trigrams);
PG_FUNCTION_INFO_V1(idvec_shingles);
PG_FUNCTION_INFO_V1(idvec_ngrams);

/* idvec_words(regconfig, text) */
Datum
idvec_words(PG_FUNCTION_ARGS)
{
	TextIds		ids;

	text_counts_init(&ids);
	text_add_words(&ids, PG_GETARG_OID(0), PG_GETARG_TEXT_PP(1));
	PG_RETURN_IDVEC_P(idvec_from_sums(ids.counts));
}

/* idvec_trigrams(text) */
Datum
idvec_trigrams(PG_FUNCTION_ARGS)
{
	TextIds		ids;

	text_counts_init(&ids);
	text_add_trigrams(&ids, PG_GETARG_TEXT_PP(0));
	PG_RETURN_IDVEC_P(idvec_from_sums(ids.counts));
}

/* idvec_shingles(text, n) */
Datum
idvec_shingles(PG_FUNCTION_ARGS)
{
	TextIds		ids;

	text_counts_init(&ids);
	text_add_shingles(&ids, PG_GETARG_TEXT_PP(0), PG_GETARG_INT32(1));
	PG_RETURN_IDVEC_P(idvec_from_sums(ids.counts));
}

/* idvec_ngrams(text, n) */
Datum
idvec_ngrams(PG_FUNCTION_ARGS)
{
	TextIds		ids;

	text_counts_init(&ids);
	text_add_ngrams(&ids, PG_GETARG_TEXT_PP(0), PG_GETARG_INT32(1));
	PG_RETURN_IDVEC_P(idvec_from_sums(ids.counts));
}
