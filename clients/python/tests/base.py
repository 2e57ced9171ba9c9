"""What the tests share: modules that may be missing, a table, and plain Python's answers."""

from __future__ import annotations

import importlib.util
import os
import random
import unittest

from gpuvec import IdSet

TABLE = "gpuvec_client_docs"
SETUP = f"""
CREATE EXTENSION IF NOT EXISTS gpuvec;
DROP TABLE IF EXISTS {TABLE};
CREATE TABLE {TABLE} (id bigint PRIMARY KEY, tokens idset);
"""


def needs(*modules):
    """Skip a class where one of these modules is missing, or no server is named."""
    missing = [module for module in modules if importlib.util.find_spec(module) is None]
    if missing:
        return unittest.skip("these modules are missing: " + " ".join(missing))
    return unittest.skipUnless("PGHOST" in os.environ, "PGHOST names no server")


def some_sets(number, most_id=200, seed=1):
    """Make sets of at most 20 ids, the first one empty."""
    draw = random.Random(seed)
    return [IdSet()] + [
        IdSet(draw.randrange(most_id) for _ in range(draw.randint(1, 20)))
        for _ in range(number - 1)
    ]


def jaccard(one, other):
    """Return the similarity."""
    return len(one & other) / len(one | other) if one or other else 0


def best(sets, query, k, measure=jaccard):
    """Return (score, id) of the k best, as the search functions order them."""
    scores = [(measure(query, ids), number) for number, ids in enumerate(sets)]
    ranked = sorted((pair for pair in scores if pair[0] > 0), key=lambda pair: (-pair[0], pair[1]))
    return ranked[:k]
