"""Many sets as one array of ids and one of offsets, as SciPy keeps sparse matrices."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from .idset import MAX_ID, MAX_IDS, IdSet


class Csr(NamedTuple):
    """Set i has the ids ``indices[indptr[i]:indptr[i + 1]]``, ascending and distinct."""

    indptr: NDArray[np.int64]
    indices: NDArray[np.uint32]

    @property
    def rows(self) -> int:
        """The number of sets."""
        return len(self.indptr) - 1

    def part(self, begin: int, end: int) -> Csr:
        """Return sets from begin to before end."""
        indptr = self.indptr[begin : end + 1]
        return Csr(indptr - indptr[0], self.indices[indptr[0] : indptr[-1]])

    def sets(self) -> Iterator[IdSet]:
        """Yield the sets, one by one."""
        for begin, end in zip(self.indptr[:-1], self.indptr[1:]):
            yield IdSet(self.indices[begin:end])


def offsets_of(lengths: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return where each of these begins, and where the last one ends."""
    offsets = np.zeros(len(lengths) + 1, np.int64)
    np.cumsum(lengths, out=offsets[1:])
    return offsets


def _of_sets(sets: Iterable[Any]) -> Csr:
    arrays = [IdSet(ids).to_numpy() for ids in sets]
    lengths = np.fromiter((len(ids) for ids in arrays), np.int64, len(arrays))
    indices = np.concatenate(arrays) if arrays else np.empty(0, np.uint32)
    return Csr(offsets_of(lengths), indices)


def _sorted(indptr: NDArray[np.int64], indices: NDArray[np.uint32]) -> Csr:
    """Sort each set, and drop what is in it twice."""
    row = np.repeat(np.arange(len(indptr) - 1), np.diff(indptr))
    pairs = np.unique(row * 2**32 + indices)
    lengths = np.bincount(pairs >> 32, minlength=len(indptr) - 1)
    return Csr(offsets_of(lengths), (pairs & MAX_ID).astype(np.uint32))


def _check_shape(indptr: NDArray[np.int64], indices: NDArray[Any]) -> None:
    if indices.size and indices.dtype.kind not in "iu":
        raise TypeError(f"ids are whole numbers, not {indices.dtype}")
    if indptr.ndim != 1 or indices.ndim != 1:
        raise ValueError("offsets and ids are arrays of one dimension")
    if not len(indptr) or indptr[0] != 0 or indptr[-1] != len(indices):
        raise ValueError("offsets begin with 0 and end with the number of ids")
    if (np.diff(indptr) < 0).any():
        raise ValueError("offsets do not descend")
    if indices.size and (indices.min() < 0 or indices.max() > MAX_ID):
        raise ValueError(f"an id is not in the range from 0 to {MAX_ID}")


def _of_arrays(offsets: Any, ids: Any) -> Csr:
    indptr = np.asarray(offsets, np.int64)
    given = np.asarray(ids)
    _check_shape(indptr, given)
    indices = given.astype(np.uint32, copy=False)
    # ascending within sets: a descent is only where a set begins
    descends = np.flatnonzero(indices[1:] <= indices[:-1]) + 1
    csr = Csr(indptr, indices)
    if not np.isin(descends, indptr).all():
        csr = _sorted(indptr, indices)
    if csr.rows and np.diff(csr.indptr).max() > MAX_IDS:
        raise ValueError(f"a set has more than {MAX_IDS} ids")
    return csr


def as_csr(sets: Any) -> Csr:
    """Make one of a SciPy sparse matrix, a pair (indptr, indices), or an iterable of sets.

    Of a matrix, the columns of a row's entries other than 0 are its set.
    """
    if isinstance(sets, Csr):
        # whoever made it may have put anything in
        return _of_arrays(*sets)
    if hasattr(sets, "tocsr"):
        matrix = sets.tocsr(copy=True)
        matrix.sum_duplicates()
        matrix.eliminate_zeros()
        return _of_arrays(matrix.indptr, matrix.indices)
    pair = 2
    if isinstance(sets, tuple) and len(sets) == pair and hasattr(sets[0], "dtype"):
        return _of_arrays(*sets)
    return _of_sets(sets)
