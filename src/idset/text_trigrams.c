/*-------------------------------------------------------------------------
 *
 * text_trigrams.c
 *	  The trigrams of a text, by the rules of pg_trgm.
 *
 * Each word is lowered, and gets two blanks before it and one behind it.  Its
 * trigrams are all three characters in succession.  So for texts a and b,
 * jaccard_similarity of their sets is pg_trgm's similarity(a, b).
 *
 * The id of a trigram:
 *
 * - of three bytes: these bytes as a number, the first one the highest.  It
 *	 is below 2^24.
 * - of four bytes (one character of two bytes, as letters with accents are in
 *	 UTF-8): likewise.  It is at least 2^24, for no byte is zero.
 * - of more bytes: their CRC-32C.  One that is below 2^24 has its bits
 *	 inverted, so that it is never that of a trigram of three bytes.
 *
 * So trigrams of up to four bytes never share an id with each other.
 * (pg_trgm keeps 24 bits of a CRC for all trigrams that are not of three
 * bytes, so it confuses more of them.)
 *
 *-------------------------------------------------------------------------
 */
#include "gpuvec.h"

#include "idset/made_set.h"
#include "idset/text_ids.h"
#include "port/pg_crc32c.h"

PG_FUNCTION_INFO_V1(idset_trigrams);

/* The first number that no three bytes have */
#define FIRST_LONG_ID	((uint32) 1 << 24)

/* The id of a trigram of n bytes */
static uint32
trigram_id(const char *trigram, int n)
{
	uint32		id = 0;
	pg_crc32c	crc;

	if (n <= sizeof(uint32))
	{
		for (int i = 0; i < n; i++)
			id = id << 8 | (unsigned char) trigram[i];
		return id;
	}
	INIT_CRC32C(crc);
	COMP_CRC32C(crc, trigram, n);
	FIN_CRC32C(crc);
	return crc < FIRST_LONG_ID ? ~crc : crc;
}

void
text_add_run_trigrams(TextIds *list, const char *run, const char *end)
{
	const char *first = run;
	const char *second = first < end ? first + text_char_bytes(first, end) : end;
	const char *third = second < end ? second + text_char_bytes(second, end) : end;

	for (uint64 i = 0; third < end; i++)
	{
		const char *next = third + text_char_bytes(third, end);

		GPUVEC_STEP(i);
		text_ids_add(list, trigram_id(first, (int) (next - first)));
		first = second;
		second = third;
		third = next;
	}
}

void
text_add_trigrams(TextIds *list, const text *document)
{
	TextReader	reader;
	StringInfoData word;

	text_reader_init(&reader, document);
	initStringInfo(&word);
	appendStringInfoString(&word, "  ");
	for (uint64 i = 0; text_next_word(&reader, &word); i++)
	{
		GPUVEC_STEP(i);
		appendStringInfoChar(&word, ' ');
		text_add_run_trigrams(list, word.data, word.data + word.len);
		word.len = 2;
	}
}

IdSet *
idset_make_of_trgm(struct varlena *value, Oid collation, bool lenient)
{
	TextIds		ids;

	text_ids_init(&ids);
	ids.lenient = lenient;
	text_add_trigrams(&ids, (const text *) value);
	return text_ids_finish(&ids);
}

/* idset_trigrams(text) */
Datum
idset_trigrams(PG_FUNCTION_ARGS)
{
	PG_RETURN_IDSET_P(idset_make_of_trgm(PG_GETARG_VARLENA_PP(0), PG_GET_COLLATION(), false));
}
