/*-------------------------------------------------------------------------
 *
 * text_hash.c
 *	  Sets of hashes: of an array's elements, a document's lexemes, its
 *	  shingles.
 *
 * An id is the low half of what the extended hash function of the type
 * returns with seed 0.  Those of lexemes and shingles are the ids of the same
 * strings as text, so idset_words(c, t) is
 * idset_hash(tsvector_to_array(to_tsvector(c, t))), and a set can be made of
 * known words without their document.
 *
 * Of n different values, n(n-1)/2^33 pairs are expected to share an id.
 *
 * A shingle is a run of n words (Broder, On the resemblance and containment
 * of documents, 1997): the similarity of the sets of shingles tells near
 * duplicates, as it depends on the order of words.
 *
 *-------------------------------------------------------------------------
 */
#include "gpuvec.h"

#include "access/tupmacs.h"
#include "catalog/pg_type.h"
#include "idset/text_ids.h"
#include "tsearch/ts_utils.h"
#include "utils/builtins.h"
#include "utils/typcache.h"

PG_FUNCTION_INFO_V1(idset_hash_array);
PG_FUNCTION_INFO_V1(idset_words);
PG_FUNCTION_INFO_V1(idset_shingles);

/* ---- arrays ---- */

/* The id of an element */
static inline uint32
element_id(TypeCacheEntry *type, Oid collation, bool bits, Datum element)
{
	if (bits && type->type_id == INT2OID)
		return (uint32) (int32) DatumGetInt16(element);
	if (bits && type->type_id == INT4OID)
		return (uint32) DatumGetInt32(element);
	return (uint32) DatumGetUInt64(FunctionCall2Coll(&type->hash_extended_proc_finfo, collation,
													 element, Int64GetDatum(0)));
}

void
text_add_elements(TextIds *list, ArrayType *array, Oid collation, bool bits)
{
	TypeCacheEntry *type = lookup_type_cache(ARR_ELEMTYPE(array), TYPECACHE_HASH_EXTENDED_PROC_FINFO);
	int			n = ArrayGetNItems(ARR_NDIM(array), ARR_DIMS(array));
	const uint8 *nonnull = (const uint8 *) ARR_NULLBITMAP(array);
	const char *at = ARR_DATA_PTR(array);

	if (!OidIsValid(type->hash_extended_proc_finfo.fn_oid))
		ereport(ERROR,
				(errcode(ERRCODE_UNDEFINED_FUNCTION),
				 errmsg("could not identify an extended hash function for type %s",
						format_type_be(type->type_id)),
				 errhint("Cast the array to text[], or to an array of another type that can be hashed.")));
	for (int i = 0; i < n; i++)
	{
		GPUVEC_STEP(i);
		if (nonnull != NULL && (nonnull[i / 8] >> i % 8 & 1) == 0)
			continue;
		text_ids_add(list, element_id(type, collation, bits,
									  fetch_att(at, type->typbyval, type->typlen)));
		at = att_addlength_pointer(at, type->typlen, at);
		at = (const char *) att_align_nominal(at, type->typalign);
	}
}

/* idset_hash(anyarray) */
Datum
idset_hash_array(PG_FUNCTION_ARGS)
{
	ArrayType  *array = PG_GETARG_ARRAYTYPE_P(0);
	TextIds		ids;

	text_check_array(array, "hash");
	text_ids_init(&ids);
	text_add_elements(&ids, array, PG_GET_COLLATION(), false);
	PG_RETURN_IDSET_P(text_ids_finish(&ids));
}

/* ---- lexemes ---- */

void
text_add_words(TextIds *list, Oid config, const text *document)
{
	ParsedText	parsed = {0};

	parsed.lenwords = 64;
	parsed.words = palloc_array(ParsedWord, parsed.lenwords);
	parsetext(config, &parsed, VARDATA_ANY(document), VARSIZE_ANY_EXHDR(document));
	for (int i = 0; i < parsed.curwords; i++)
	{
		GPUVEC_STEP(i);
		text_ids_add(list, text_token_id(parsed.words[i].word, parsed.words[i].len));
	}
}

/* idset_words(regconfig, text) */
Datum
idset_words(PG_FUNCTION_ARGS)
{
	TextIds		ids;

	text_ids_init(&ids);
	text_add_words(&ids, PG_GETARG_OID(0), PG_GETARG_TEXT_PP(1));
	PG_RETURN_IDSET_P(text_ids_finish(&ids));
}

/* ---- shingles ---- */

/*
 * Most words of a shingle.  Each word is in as many shingles, and hashed as
 * often.
 */
#define MOST_WORDS		100

/* The words of a document with a blank behind each, and where they begin */
typedef struct Words
{
	StringInfoData text;
	int		   *starts;			/* [n + 1]: also where the next one would */
	int			n;
	int			size;			/* starts that there is room for */
} Words;

/* Read all words of a document */
static void
read_words(Words *words, const text *document)
{
	TextReader	reader;

	text_reader_init(&reader, document);
	initStringInfo(&words->text);
	words->n = 0;
	words->size = 64;
	words->starts = palloc_array(int, words->size);
	words->starts[0] = 0;
	while (text_next_word(&reader, &words->text))
	{
		GPUVEC_STEP(words->n);
		appendStringInfoChar(&words->text, ' ');
		if (++words->n == words->size)
		{
			words->size *= 2;
			words->starts = repalloc_huge(words->starts, (Size) words->size * sizeof(int));
		}
		words->starts[words->n] = words->text.len;
	}
}

/* The id of the shingle of the words first ..  last - 1 */
static uint32
shingle_id(const Words *words, int first, int last)
{
	int			start = words->starts[first];

	/* without the blank behind the last word */
	return text_token_id(words->text.data + start, words->starts[last] - 1 - start);
}

void
text_add_shingles(TextIds *list, const text *document, int n)
{
	Words		words;

	if (n < 1 || n > MOST_WORDS)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("the number of words of a shingle must be between 1 and %d, not %d",
						MOST_WORDS, n),
				 errhint("Documents are mostly compared by shingles of 2 to 10 words.")));
	read_words(&words, document);
	if (words.n > 0 && words.n < n)
		text_ids_add(list, shingle_id(&words, 0, words.n));
	for (int i = 0; i <= words.n - n; i++)
	{
		GPUVEC_LOOK();
		text_ids_add(list, shingle_id(&words, i, i + n));
	}
}

/* idset_shingles(text, n) */
Datum
idset_shingles(PG_FUNCTION_ARGS)
{
	TextIds		ids;

	text_ids_init(&ids);
	text_add_shingles(&ids, PG_GETARG_TEXT_PP(0), PG_GETARG_INT32(1));
	PG_RETURN_IDSET_P(text_ids_finish(&ids));
}
