/*-------------------------------------------------------------------------
 *
 * text_ngrams.c
 *	  The n-grams of a text: runs of n characters.
 *
 * For texts that have no blanks between words, as Chinese, Japanese and Thai
 * ones: there a run of letters is a sentence, so shingles of words are whole
 * sentences.
 *
 * As for trigrams (text_trigrams.c), words are runs of letters and digits in
 * lower case, and an n-gram is within a word.  But no blanks are added, and a
 * word of fewer than n characters is an n-gram itself.  Ids are those of the
 * same strings as text (text_hash.c).
 *
 *-------------------------------------------------------------------------
 */
#include "gpuvec.h"

#include "idset/text_ids.h"

PG_FUNCTION_INFO_V1(idset_ngrams);

/*
 * The most characters of an n-gram.  Each character of a text is hashed n
 * times.
 */
#define MOST_CHARACTERS		256

/* The end of the n characters at p, or `end` if it comes before */
static const char *
skip_characters(const char *p, const char *end, int n)
{
	for (; n > 0 && p < end; n--)
		p += text_char_bytes(p, end);
	return p;
}

/* Add the n-grams of a word */
static void
add_word_ngrams(TextIds *ids, const char *word, const char *end, int n)
{
	const char *first = word;
	const char *last = skip_characters(word, end, n);

	text_ids_add(ids, text_token_id(first, (int) (last - first)));
	while (last < end)
	{
		GPUVEC_LOOK();
		first = skip_characters(first, end, 1);
		last = skip_characters(last, end, 1);
		text_ids_add(ids, text_token_id(first, (int) (last - first)));
	}
}

void
text_add_ngrams(TextIds *list, const text *document, int n)
{
	TextReader	reader;
	StringInfoData word;

	if (n < 1 || n > MOST_CHARACTERS)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("the number of characters of an n-gram must be from 1 to %d, not %d",
						MOST_CHARACTERS, n)));
	text_reader_init(&reader, document);
	initStringInfo(&word);
	while (text_next_word(&reader, &word))
	{
		add_word_ngrams(list, word.data, word.data + word.len, n);
		resetStringInfo(&word);
	}
}

/* idset_ngrams(text, n) */
Datum
idset_ngrams(PG_FUNCTION_ARGS)
{
	TextIds		ids;

	text_ids_init(&ids);
	text_add_ngrams(&ids, PG_GETARG_TEXT_PP(0), PG_GETARG_INT32(1));
	PG_RETURN_IDSET_P(text_ids_finish(&ids));
}
