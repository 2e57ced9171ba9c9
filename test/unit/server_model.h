/*-------------------------------------------------------------------------
 *
 * server_model.h
 *	  What a mirror should hold, and what a search of it should give.
 *
 *-------------------------------------------------------------------------
 */
#ifndef SERVER_MODEL_H
#define SERVER_MODEL_H

#include "server_client.h"
#include "core/protocol_sets.h"

/* Transactions that insert rows have numbers up to this one */
#define MODEL_XIDS	1000

/* A request for a refresh with the LSNs of all pages, and its size */
#define REFRESH(of)		&(gpuvec_refresh) {.key = *(of),.lsns = 1}, sizeof(gpuvec_refresh)

typedef struct model_row
{
	uint16_t	line;
	uint32_t	len;
	uint16_t   *ids;
} model_row;

typedef struct model_page
{
	uint64_t	lsn;
	uint64_t	refresh;		/* number of the refresh that last sent it */
	uint64_t	newest;			/* transaction of its rows; 0: is not told */
	uint64_t	sent_newest;	/* the engine has this */
	bool		dirty;			/* changed since */
	bool		partial;		/* then, only in lines[] */
	uint32_t	nlines;
	uint16_t	lines[GPUVEC_MAX_LINE / 2]; /* even and ascending */
	uint32_t	nrows;
	model_row  *rows;
} model_page;

typedef struct model
{
	gpuvec_mirror_key key;
	uint32_t	nblocks;
	model_page *pages;
	uint64_t	position;		/* last one committed */
	uint64_t	refresh;		/* last number that the engine gave */
	uint64_t	feed;			/* last one committed, */
	uint64_t	applied;		/* and how much of it */
	uint32_t	nrefreshes;
} model;

/* How random sets look */
typedef struct shape
{
	uint32_t	rows_per_page;	/* at most */
	uint32_t	maxlen;
	uint32_t	vocabulary;		/* ids are below this, small ones are common */
} shape;

extern __thread uint64_t random_state;
extern uint64_t random_below(uint64_t n);

#include "test_match.h"

/*
 * If not 0, ids from this one on are sent to the engine as larger ones, in
 * the same order.  Models have the small ones.
 */
extern uint32_t wide_from;

/*
 * Append ids as they are sent.  Returns whether they are uint32_t, as they
 * are if one of them is large, and sometimes otherwise.
 */
extern uint32_t add_ids(buffer *b, const uint16_t *ids, uint32_t len);

/*
 * Filter columns of mirrors, which model_new makes.  The keys of a row follow
 * from its ids; a set without ids is null.
 */
extern uint32_t model_filters;

/* Append the filter keys of a row, if mirrors have filter columns */
extern void add_filter_keys(buffer *b, const uint16_t *ids, uint32_t len);

/*
 * Whether mirrors have values, which model_new makes.  Those of a row follow
 * from its ids; some rows have negative ones.
 */
extern bool model_values;

/* Append the values of a row, if mirrors have values; b has been padded */
extern void add_values(buffer *b, const uint16_t *ids, uint32_t len);

/* A random set; ids has room for len of them */
extern void random_ids(uint16_t *ids, uint32_t len, uint32_t vocabulary);

extern model model_new(uint32_t relation, uint32_t nblocks, const shape *s);
extern void model_free(model *m);
extern void model_rewrite_page(model *m, uint32_t block, const shape *s);
extern void model_change_page(model *m, uint32_t block, const shape *s);
extern void model_resize(model *m, uint32_t nblocks, const shape *s);
extern uint64_t model_nrows(const model *m);

/* Send pages: all, or those that are dirty */
extern bool model_send_pages(client *c, model *m, bool all);
extern bool model_send_range(client *c, model *m, bool all, uint32_t begin, uint32_t end);
extern bool model_commit(client *c, model *m);
extern bool model_load(client *c, model *m);
extern bool model_refresh(client *c, model *m);

/* A search as a request, and the answer compared with brute force */
typedef struct model_query
{
	uint16_t   *ids;
	gpuvec_query wire;
	gpuvec_condition conditions[2]; /* wire.nconditions of them */
	uint64_t	values[4 + MATCH_VALUES];
	test_match	match;			/* of a condition on sets; with ids as models
								 * have them */
	float	   *weights;		/* of its ids, by measures of sparse vectors;
								 * random_query() has them behind the ids;
								 * NULL: some */
} model_query;

extern model_query random_query(const shape *s);

/*
 * The weight of an id by a measure of sparse vectors, GPUVEC_WIRE_SPARSE and
 * behind
 */
extern float model_weight(gpuvec_measure measure, const model_query *q, uint32_t i);
extern void search_request(buffer *b, const gpuvec_mirror_key *key, uint64_t position,
						   gpuvec_measure measure, const model_query *queries, uint32_t n);
extern bool model_check(client *c, const model *m, gpuvec_measure measure,
						const model_query *queries, uint32_t n);

/*
 * The same of an engine that may lack memory: then it is no failed check that
 * the search is refused
 */
extern bool model_check_scarce(client *c, const model *m, gpuvec_measure measure,
							   const model_query *queries, uint32_t n);

/* qsort comparator of hits: by score, then by tid */
extern int	model_compare_hits(const void *a, const void *b);

/*
 * Rows of some pages that are counted, and all others, compared with brute
 * force; changes the query's flags
 */
extern bool model_check_count(client *c, const model *m, gpuvec_measure measure,
							  model_query *query);

/*
 * A request for such a count, of random pages and by random groups; sort the
 * groups of an answer
 */
extern void model_count_request(buffer *b, const model *m, gpuvec_measure measure,
								model_query *query);
extern void model_sort_groups(const gpuvec_grouping *grouping, void *groups, uint64_t bytes);

/*
 * Rows of some pages that pairs of 2 or 3 queries find, and all others,
 * compared with brute force; changes the queries
 */
extern bool model_check_overlaps(client *c, const model *m, model_query *queries, uint32_t n);

/* A random search, compared with brute force; sometimes counts as well */
extern bool model_check_random(client *c, const model *m, const shape *s);

#endif							/* SERVER_MODEL_H */
