/*-------------------------------------------------------------------------
 *
 * trgm_query.c
 *	  The sets by which an index of texts' trigrams is searched.
 *
 * Equal texts have the same trigrams.  A text that matches a pattern of LIKE
 * or ILIKE has those that are found in the pattern here.
 *
 * A pattern is literal parts with wildcards between them.  A text that matches
 * it has each part somewhere.  What stands before a part is not known, unless
 * it begins the pattern; nor what stands behind it, unless it ends there.
 *
 * A word of a part that does not reach to an unknown side is a word of the
 * text, and all of its trigrams are the text's.  Of one that does, the text
 * has a longer word.  That is lowered as a whole, and how a character is
 * lowered may depend on others: a capital sigma is lowered differently at the
 * end of a word, and so are letters before a combining accent in some
 * languages.  So of such a word only those trigrams count whose characters
 * are lowered in one way wherever they stand: ASCII but I, and characters that
 * are not changed, without combining accents.  J may get a dot, in Lithuanian,
 * if another combining character follows, so no trigram has both.
 *
 * This is so where LIKE compares bytes: under deterministic collations.
 *
 * ILIKE lowers text and pattern as wholes, under its collation.  So only ASCII
 * counts, without I, and everything else is a wildcard.  All capitals that are
 * lowered to such a letter are in ASCII, too, but for two: a dotted I is
 * lowered to i, and a Kelvin sign to k.  So i and k count only if words are
 * lowered like this.  And only the database's own collation will do, as words
 * are lowered by it.
 *
 *-------------------------------------------------------------------------
 */
#include "gpuvec.h"

#include "catalog/pg_collation.h"
#include "idset/made_set.h"
#include "idset/text_ids.h"
#include "index/index_am.h"
#include "mb/pg_wchar.h"
#include "utils/builtins.h"
#include "utils/lsyscache.h"

/* First bytes in UTF-8 of U+0300 to U+037F, which has the combining accents */
#define ACCENTS_FIRST	0xcc
#define ACCENTS_LAST	0xcd

/*
 * Append a character in lower case, if it is lowered alike wherever it stands.
 * False: it is not.
 */
static bool
append_lowered_alone(StringInfo out, const char *c, int len)
{
	unsigned char first = (unsigned char) *c;
	char	   *lower;
	bool		same;

	if (!IS_HIGHBIT_SET(first))
	{
		if (first != 'I')
			appendStringInfoChar(out, (char) pg_ascii_tolower(first));
		return first != 'I';
	}
	if (GetDatabaseEncoding() == PG_UTF8 && first >= ACCENTS_FIRST && first <= ACCENTS_LAST)
		return false;
	lower = text_lower(c, len);
	same = strlen(lower) == (size_t) len && memcmp(lower, c, len) == 0;
	pfree(lower);
	if (same)
		appendBinaryStringInfo(out, c, len);
	return same;
}

/* Add the trigrams of a run of characters, and begin another one */
static void
end_run(TextIds *ids, StringInfo run)
{
	text_add_run_trigrams(ids, run->data, run->data + run->len);
	resetStringInfo(run);
}

/* Add the trigrams of a part of a word, which may begin it, or end it */
static void
add_partial_word(TextIds *ids, const char *word, const char *end, bool begins, bool ends)
{
	StringInfoData run;

	initStringInfo(&run);
	if (begins)
		appendStringInfoString(&run, "  ");
	for (uint64 i = 0; word < end; i++)
	{
		int			len = text_char_bytes(word, end);

		GPUVEC_STEP(i);
		if (!append_lowered_alone(&run, word, len))
			end_run(ids, &run);
		else if (ends && word + len == end)
			appendStringInfoChar(&run, ' ');
		/* Lithuanian has a dot between J and some letters that combine */
		else if (*word == 'J' && word + len < end && IS_HIGHBIT_SET(word[len]))
			end_run(ids, &run);
		word += len;
	}
	end_run(ids, &run);
	pfree(run.data);
}

/* Add the trigrams of a word of all texts that match */
static void
add_whole_word(TextIds *ids, const char *word, int len)
{
	text	   *document = cstring_to_text_with_len(word, len);

	text_add_trigrams(ids, document);
	pfree(document);
}

/*
 * Add the trigrams of the words of a part, and empty it.  Does it begin the
 * text, and does it end it?
 */
static void
end_part(TextIds *ids, StringInfo part, bool at_begin, bool at_end)
{
	text	   *literal = cstring_to_text_with_len(part->data, part->len);
	TextReader	reader;
	const char *begin;
	const char *word;

	text_reader_init(&reader, literal);
	begin = reader.next;
	while ((word = text_find_word(&reader)) != NULL)
	{
		bool		begins = word > begin || at_begin;
		bool		ends = reader.next < reader.end || at_end;

		if (begins && ends)
			add_whole_word(ids, word, (int) (reader.next - word));
		else
			add_partial_word(ids, word, reader.next, begins, ends);
	}
	resetStringInfo(part);
	pfree(literal);
}

/* Which characters of a pattern of ILIKE count */
typedef struct AnyCase
{
	bool		i;				/* the letter i does */
	bool		k;
} AnyCase;

/* Find out how words are lowered */
static void
init_any_case(AnyCase *any_case)
{
	bool		utf8 = GetDatabaseEncoding() == PG_UTF8;

	any_case->i = utf8 && *text_lower("\xc4\xb0", 2) == 'i';
	any_case->k = utf8 && *text_lower("\xe2\x84\xaa", 3) == 'k';
}

/* True if a character of a pattern of ILIKE counts */
static bool
counts_in_any_case(const AnyCase *any_case, char c)
{
	switch (c)
	{
		case 'I':
			return false;
		case 'i':
			return any_case->i;
		case 'K':
		case 'k':
			return any_case->k;
		default:
			return !IS_HIGHBIT_SET(c);
	}
}

/*
 * Add the trigrams that each text has which matches a pattern, of LIKE if
 * any_case is NULL
 */
static void
add_pattern_trigrams(TextIds *ids, const text *pattern, const AnyCase *any_case)
{
	const char *p = VARDATA_ANY(pattern);
	const char *end = p + VARSIZE_ANY_EXHDR(pattern);
	bool		at_begin = true;
	StringInfoData part;

	initStringInfo(&part);
	for (uint64 i = 0; p < end; i++)
	{
		bool		wildcard = *p == '%' || *p == '_';
		int			len;

		GPUVEC_STEP(i);
		if (*p == '\\' && p + 1 < end)
			p++;
		len = text_char_bytes(p, end);
		if (wildcard || (any_case != NULL && !counts_in_any_case(any_case, *p)))
		{
			end_part(ids, &part, at_begin, false);
			at_begin = false;
		}
		else
			appendBinaryStringInfo(&part, p, len);
		p += len;
	}
	end_part(ids, &part, at_begin, true);
	pfree(part.data);
}

/*
 * gpuvec_trgm_query(internal, int2, oid): the trigrams that a text must have
 * for an operator to be true (ENTRY_QUERY_PROC)
 */
PG_FUNCTION_INFO_V1(gpuvec_trgm_query);
Datum
gpuvec_trgm_query(PG_FUNCTION_ARGS)
{
	struct varlena *value = PG_GETARG_VARLENA_P(0);
	StrategyNumber strategy = (StrategyNumber) PG_GETARG_INT16(1);
	bool		pattern = strategy == GPUVEC_LIKE || strategy == GPUVEC_ILIKE;
	AnyCase		any_case;
	TextIds		ids;
	IdSet	   *set;

	/* other texts may be equal, or match */
	if ((strategy == GPUVEC_ILIKE && PG_GET_COLLATION() != DEFAULT_COLLATION_OID) ||
		((pattern || strategy == GPUVEC_EQUALS) && !get_collation_isdeterministic(PG_GET_COLLATION())))
		PG_RETURN_POINTER(NULL);
	if (!pattern)
		PG_RETURN_POINTER(idset_make_of_trgm(value, PG_GET_COLLATION(), true));
	text_ids_init(&ids);
	ids.lenient = true;
	if (strategy == GPUVEC_ILIKE)
		init_any_case(&any_case);
	add_pattern_trigrams(&ids, (const text *) value, strategy == GPUVEC_ILIKE ? &any_case : NULL);
	set = text_ids_finish(&ids);
	PG_RETURN_POINTER(set == NULL || idset_count(set) == 0 ? NULL : set);
}
