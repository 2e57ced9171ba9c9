/*-------------------------------------------------------------------------
 *
 * test_match.h
 *	  Random conditions on sets (core/set_match.h), as trees: what a set
 *	  matches is found by walking the tree, with its ids as they are.
 *
 * It needs a random_below(), which tests have in different places.
 *
 *-------------------------------------------------------------------------
 */
#ifndef GPUVEC_TEST_MATCH_H
#define GPUVEC_TEST_MATCH_H

#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#include "core/set_match.h"

#define MATCH_NODES		48
#define MATCH_VALUES	(GPUVEC_MOST_MATCH_IDS + MATCH_NODES)

typedef struct match_node
{
	char		kind;			/* an operator, '.' for an id, '=' for no
								 * others */
	uint32_t	id;
	int			a;				/* operands */
	int			b;
} match_node;

typedef struct test_match
{
	uint32_t	nids;
	uint32_t	ids[GPUVEC_MOST_MATCH_IDS]; /* ascending, distinct */
	match_node	nodes[MATCH_NODES];
	int			n;
} test_match;

/* Add an id, unless it is there or there are too many */
static inline void
match_add_id(test_match *m, uint32_t id)
{
	uint32_t	at = 0;

	while (at < m->nids && m->ids[at] < id)
		at++;
	if (m->nids == GPUVEC_MOST_MATCH_IDS || (at < m->nids && m->ids[at] == id))
		return;
	memmove(m->ids + at + 1, m->ids + at, (m->nids - at) * sizeof(uint32_t));
	m->ids[at] = id;
	m->nids++;
}

/* Make a random tree of the ids, of so many levels at most; its root */
static inline int
match_make_tree(test_match *m, int levels)
{
	static const char kinds[] = "&&&|||!!.=";
	char		kind = kinds[random_below(sizeof(kinds) - 1)];
	int			at = m->n++;
	match_node *node = &m->nodes[at];

	if (kind == '=' && random_below(3) > 0)
		kind = '.';
	if (levels == 0 || m->n > MATCH_NODES / 2)
		kind = '.';
	if (kind == '.' && m->nids == 0)
		kind = '=';
	node->kind = kind;
	if (kind == '.')
		node->id = m->ids[random_below(m->nids)];
	if (kind == '&' || kind == '|' || kind == '!')
		node->a = match_make_tree(m, levels - 1);
	if (kind == '&' || kind == '|')
		node->b = match_make_tree(m, levels - 1);
	return at;
}

/* Write the steps of a node; returns their number */
static inline uint32_t
match_steps(const test_match *m, int at, uint64_t *steps)
{
	const match_node *node = &m->nodes[at];
	uint32_t	n = 0;

	if (node->kind == '&' || node->kind == '|' || node->kind == '!')
		n += match_steps(m, node->a, steps);
	if (node->kind == '&' || node->kind == '|')
		n += match_steps(m, node->b, steps + n);
	if (node->kind == '.')
		for (steps[n] = 0; m->ids[steps[n]] != node->id;)
			steps[n]++;
	else
		steps[n] = node->kind == '&' ? GPUVEC_SET_AND : node->kind == '|' ? GPUVEC_SET_OR :
			node->kind == '!' ? GPUVEC_SET_NOT : GPUVEC_SET_ONLY;
	return n + 1;
}

/* Write it as values of a condition; returns their number */
static inline uint32_t
match_values(const test_match *m, uint64_t *values)
{
	for (uint32_t i = 0; i < m->nids; i++)
		values[i] = m->ids[i];
	return m->nids + match_steps(m, 0, values + m->nids);
}

/* Does a set match? */
static inline bool
match_holds(const test_match *m, int at, const uint32_t *ids, uint32_t len)
{
	const match_node *node = &m->nodes[at];

	switch (node->kind)
	{
		case '&':
			return match_holds(m, node->a, ids, len) && match_holds(m, node->b, ids, len);
		case '|':
			return match_holds(m, node->a, ids, len) || match_holds(m, node->b, ids, len);
		case '!':
			return !match_holds(m, node->a, ids, len);
		case '.':
			for (uint32_t i = 0; i < len; i++)
				if (ids[i] == node->id)
					return true;
			return false;
		default:
			for (uint32_t i = 0; i < len; i++)
			{
				uint32_t	j = 0;

				while (j < m->nids && m->ids[j] != ids[i])
					j++;
				if (j == m->nids)
					return false;
			}
			return true;
	}
}

#endif							/* GPUVEC_TEST_MATCH_H */
