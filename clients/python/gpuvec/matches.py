"""What a search of many queries has found, as arrays."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from .csr import Csr, as_csr
from .idset import IdSet

_RECORD = np.dtype([("query", ">i4"), ("rank", ">i4"), ("score", ">f8"), ("common", ">i4")])


class Matches(NamedTuple):
    """Matches by query, best first: arrays of the same length.

    ``query`` counts from 0, as arrays do, and ``rank`` from 1, as the SQL function does.
    """

    query: NDArray[np.int32]
    rank: NDArray[np.int32]
    key: NDArray[Any]
    score: NDArray[np.float64]
    common: NDArray[np.int32]

    def dense(self, queries: int, k: int) -> tuple[NDArray[Any], NDArray[np.float64]]:
        """Return keys and scores as arrays of shape (queries, k).

        Where a query has found fewer, keys are -1 (None, if they are no numbers), scores NaN.
        """
        numeric = self.key.dtype.kind in "iu" or not len(self.key)
        keys = np.full((queries, k), -1 if numeric else None, np.int64 if numeric else object)
        scores = np.full((queries, k), np.nan)
        keys[self.query, self.rank - 1] = self.key
        scores[self.query, self.rank - 1] = self.score
        return keys, scores


def of_row(numbers: bytes | memoryview, keys: list[Any]) -> Matches:
    """Make matches of the row that sql.topk_batch() returns."""
    records = np.frombuffer(numbers, _RECORD)
    array = np.asarray(keys)
    if array.dtype.kind not in "iu" or not len(array):
        array = np.array(keys, object if len(keys) else np.int64)
    return Matches(
        records["query"].astype(np.int32) - 1,
        records["rank"].astype(np.int32),
        array,
        records["score"].astype(np.float64),
        records["common"].astype(np.int32),
    )


def queries_of(queries: Any) -> list[IdSet]:
    """Return the sets of what as_csr() takes."""
    if isinstance(queries, Iterable) and not isinstance(queries, tuple) \
            and not hasattr(queries, "tocsr"):
        return [IdSet(query) for query in queries]
    csr: Csr = as_csr(queries)
    return list(csr.sets())
