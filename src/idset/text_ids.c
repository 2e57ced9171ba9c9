/*-------------------------------------------------------------------------
 *
 * text_ids.c
 *	  Words of a text, and lists of ids.
 *
 * A word is a run of letters and digits, as pg_trgm has it: what a letter is,
 * and how it is lowered, says the character type of the database, and each
 * word is lowered by itself.  ASCII characters are the same everywhere but
 * for the letter I, so words without capitals need no locale.
 *
 * A full list of twice as many ids as a set may have becomes a set, and so
 * loses its duplicates, or fails.
 *
 *-------------------------------------------------------------------------
 */
#include "gpuvec.h"

#include <ctype.h>

#include "catalog/pg_collation.h"
#include "idset/text_ids.h"
#include "mb/pg_wchar.h"
#include "utils/formatting.h"

/*
 * The header of t_isalpha() includes headers of ICU, for a struct that is of
 * no use here.  They need not be there where PostgreSQL's own headers are.
 */
#undef USE_ICU
#include "tsearch/ts_locale.h"

/* Room in a new list, and the most that a list gets */
#define FIRST_IDS		64
#define MOST_IDS		(2 * GPUVEC_MAX_IDS)

/* Bytes that a server's function may read behind a character that is cut */
#define ZEROS			8

/* Bytes that are copied between looks */
#define COPY_BYTES		((Size) 1024 * 1024)

/* ---- ids ---- */

/* An empty list, in the current memory context */
void
text_ids_init(TextIds *list)
{
	list->n = 0;
	list->size = FIRST_IDS;
	list->ids = palloc_array(uint32, FIRST_IDS);
	list->counts = NULL;
	list->lenient = list->too_many = false;
}

/* The same, to count */
void
text_counts_init(TextIds *list)
{
	memset(list, 0, sizeof(*list));
	list->counts = id_sums_make(CurrentMemoryContext);
}

/*
 * Drop ids that are there twice.  If there are too many others: an error, or
 * all are dropped, if the list is lenient.
 */
static void
drop_doubles(TextIds *list)
{
	list->n = idset_sort_distinct(list->ids, list->n);
	if (list->n <= GPUVEC_MAX_IDS)
		return;
	if (!list->lenient)
		(void) idset_from_ids(list->ids, list->n);	/* the error */
	list->too_many = true;
	list->n = 0;
}

/* Make room in a full list */
static void
make_room(TextIds *list)
{
	CHECK_FOR_INTERRUPTS();
	if (list->size == MOST_IDS)
	{
		drop_doubles(list);
		return;
	}
	list->size *= 2;
	list->ids = repalloc(list->ids, list->size * sizeof(uint32));
}

/* Add an id */
void
text_ids_add(TextIds *list, uint32 id)
{
	if (list->counts != NULL)
	{
		id_sums_add(list->counts, id, 1);
		return;
	}
	if (list->n == list->size)
		make_room(list);
	list->ids[list->n++] = id;
}

IdSet *
text_ids_finish(TextIds *list)
{
	IdSet	   *set = NULL;

	if (list->lenient)
		drop_doubles(list);
	if (!list->too_many)
		set = idset_from_ids(list->ids, list->n);
	pfree(list->ids);
	return set;
}

/* Fail unless an array has at most one dimension, and no null elements */
void
text_check_array(ArrayType *array, const char *what)
{
	if (ARR_NDIM(array) > 1)
		ereport(ERROR,
				(errcode(ERRCODE_ARRAY_SUBSCRIPT_ERROR),
				 errmsg("cannot %s an array of %d dimensions", what, ARR_NDIM(array)),
				 errdetail("A set has one dimension.")));
	if (array_contains_nulls(array))
		ereport(ERROR,
				(errcode(ERRCODE_NULL_VALUE_NOT_ALLOWED),
				 errmsg("cannot %s an array with null elements", what),
				 errhint("Leave them out with array_remove(array, NULL).")));
}

/* ---- words ---- */

/* Begin to read the words of a text */
void
text_reader_init(TextReader *reader, const text *document)
{
	Size		len = VARSIZE_ANY_EXHDR(document);
	char	   *copy = palloc(len + ZEROS);

	for (Size at = 0; at < len; at += COPY_BYTES)
	{
		GPUVEC_LOOK();
		memcpy(copy + at, VARDATA_ANY(document) + at, Min(COPY_BYTES, len - at));
	}
	memset(copy + len, 0, ZEROS);
	reader->next = copy;
	reader->end = copy + len;
}

/* Bytes of the character at p, which must be before `end` */
int
text_char_bytes(const char *p, const char *end)
{
	int			bytes;

	if (!IS_HIGHBIT_SET(*p))
		return 1;
	bytes = pg_encoding_mblen(GetDatabaseEncoding(), p);
	return (int) Min(bytes, end - p);
}

/* True if the character at p is a letter or a digit */
static inline bool
is_word_char(const char *p)
{
	if (!IS_HIGHBIT_SET(*p))
		return isalnum((unsigned char) *p) != 0;
	return GpuvecIsWordChar(p);
}

char *
text_lower(const char *word, int len)
{
	return GpuvecLower(word, len);
}

/* Append a word in lower case.  `plain`: it is so already. */
static void
append_lower(StringInfo out, const char *word, int len, bool plain)
{
	char	   *lower;

	if (plain)
	{
		appendBinaryStringInfo(out, word, len);
		return;
	}
	lower = text_lower(word, len);
	appendStringInfoString(out, lower);
	pfree(lower);
}

/* The next word, or NULL; `plain`: it is in lower case */
static const char *
find_word(TextReader *reader, bool *plain)
{
	const char *p = reader->next;
	const char *word;

	*plain = true;
	for (uint64 i = 1; p < reader->end && !is_word_char(p); i++)
	{
		GPUVEC_STEP(i);
		p += text_char_bytes(p, reader->end);
	}
	word = p;
	for (uint64 i = 1; p < reader->end && is_word_char(p); i++)
	{
		GPUVEC_STEP(i);
		*plain = *plain && !IS_HIGHBIT_SET(*p) && !(*p >= 'A' && *p <= 'Z');
		p += text_char_bytes(p, reader->end);
	}
	reader->next = p;
	return p == word ? NULL : word;
}

const char *
text_find_word(TextReader *reader)
{
	bool		plain;

	return find_word(reader, &plain);
}

/* Append the next word, in lower case; false if there is none */
bool
text_next_word(TextReader *reader, StringInfo out)
{
	bool		plain;
	const char *word = find_word(reader, &plain);

	if (word == NULL)
		return false;
	append_lower(out, word, (int) (reader->next - word), plain);
	return true;
}
