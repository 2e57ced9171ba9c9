/*-------------------------------------------------------------------------
 *
 * text_ids.h
 *	  What the functions that make sets of text share: words, and a list of
 *	  ids.
 *
 *-------------------------------------------------------------------------
 */
#ifndef GPUVEC_TEXT_IDS_H
#define GPUVEC_TEXT_IDS_H

#include "gpuvec.h"

#include "common/hashfn.h"
#include "idset/id_sums.h"
#include "idset/idset.h"
#include "lib/stringinfo.h"
#include "utils/array.h"

/* Ids that become a set, in any order, with duplicates or not */
typedef struct TextIds
{
	uint32	   *ids;
	uint32		n;
	uint32		size;			/* ids that there is room for */
	IdSums	   *counts;			/* not NULL: how often each id was added is
								 * counted here, instead of all the above */
	bool		lenient;		/* too many ids are no error, but noted: */
	bool		too_many;
} TextIds;

/* An empty list, in the current memory context */
extern void text_ids_init(TextIds *list);

/* The same, to count */
extern void text_counts_init(TextIds *list);

/*
 * Add an id.  The list takes no more memory than some sets do, however many
 * ids are added.
 */
extern void text_ids_add(TextIds *list, uint32 id);

/*
 * The set of all ids; an error if it has too many, or NULL if the list is
 * lenient
 */
extern IdSet *text_ids_finish(TextIds *list);

/*
 * The id of a token: the low half of what hashtextextended(token, 0) returns
 * where the collation is deterministic
 */
static inline uint32
text_token_id(const char *token, int len)
{
	return hash_bytes((const unsigned char *) token, len);
}

/* A position in a text */
typedef struct TextReader
{
	const char *next;
	const char *end;			/* zeros follow */
} TextReader;

/* Begin to read the words of a text */
extern void text_reader_init(TextReader *reader, const text *document);

/* The next word, as it is written, which ends at reader->next; or NULL */
extern const char *text_find_word(TextReader *reader);

/* Append the next word, in lower case; false if there is none */
extern bool text_next_word(TextReader *reader, StringInfo out);

/* Characters in lower case, as words are lowered; palloc'd, ends with a NUL */
extern char *text_lower(const char *word, int len);

/* Bytes of the character at p, which must be before `end` */
extern int	text_char_bytes(const char *p, const char *end);

/*
 * Add the ids of an array's elements that are not null: hashes under the
 * collation, or with `bits` those that the elements of type int2 or int4 are
 */
extern void text_add_elements(TextIds *list, ArrayType *array, Oid collation, bool bits);

/* Add the ids of a text's lexemes, trigrams, shingles, n-grams */
extern void text_add_words(TextIds *list, Oid config, const text *document);
extern void text_add_trigrams(TextIds *list, const text *document);
extern void text_add_shingles(TextIds *list, const text *document, int n);
extern void text_add_ngrams(TextIds *list, const text *document, int n);

/* Add the trigrams of characters in succession, and no others */
extern void text_add_run_trigrams(TextIds *list, const char *run, const char *end);

/* Fail unless an array has at most one dimension, and no null elements */
extern void text_check_array(ArrayType *array, const char *what);

#endif							/* GPUVEC_TEXT_IDS_H */
