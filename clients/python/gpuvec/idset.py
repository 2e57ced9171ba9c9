"""The value of an SQL ``idset``, and its text and binary forms."""

from __future__ import annotations

import struct
import sys
from array import array
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Set
from operator import index
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

MAX_ID = 2**32 - 1
MAX_NARROW_ID = 2**16 - 1
MAX_IDS = 2**16


def _checked(ids: array[int]) -> array[int]:
    if len(ids) > MAX_IDS:
        raise ValueError(f"a set has at most {MAX_IDS} ids, not {len(ids)}")
    return ids


def _of_iterable(ids: Iterable[Any]) -> array[int]:
    numbers = sorted({index(number) for number in ids})
    if numbers and (numbers[0] < 0 or numbers[-1] > MAX_ID):
        wrong = numbers[0] if numbers[0] < 0 else numbers[-1]
        raise ValueError(f"id {wrong} is not in the range from 0 to {MAX_ID}")
    return array("I", numbers)


def _of_numpy(ids: Any) -> array[int]:
    """Do what _of_iterable does, but for a NumPy array, without making an object of each id."""
    import numpy as np  # noqa: PLC0415

    if ids.size and ids.dtype.kind not in "iu":
        raise TypeError(f"ids are whole numbers, not {ids.dtype}")
    numbers = np.unique(ids)
    if numbers.size and (numbers[0] < 0 or numbers[-1] > MAX_ID):
        wrong = numbers[0] if numbers[0] < 0 else numbers[-1]
        raise ValueError(f"id {wrong} is not in the range from 0 to {MAX_ID}")
    return array("I", numbers.astype(np.uint32).tobytes())


def _network_order(ids: array[int]) -> bytes:
    if sys.byteorder == "little":
        ids = ids[:]
        ids.byteswap()
    return ids.tobytes()


class IdSet(Set[int]):
    """An immutable set of ids, kept ascending in four bytes each.

    It is made of whole numbers in any order (an iterable or a NumPy array), equals sets of
    the same numbers, and has the operators of ``frozenset``.
    """

    __slots__ = ("_ids",)
    _ids: array[int]

    def __init__(self, ids: Iterable[Any] = ()) -> None:
        if isinstance(ids, IdSet):
            self._ids = ids._ids
        elif hasattr(ids, "dtype"):
            self._ids = _checked(_of_numpy(ids))
        else:
            self._ids = _checked(_of_iterable(ids))

    @classmethod
    def _of_ascending(cls, ids: array[int]) -> IdSet:
        self = cls.__new__(cls)
        self._ids = ids
        return self

    @classmethod
    def from_text(cls, text: str) -> IdSet:
        """Make the set of what the server sends as text, ``{3,17}``."""
        if not (text.startswith("{") and text.endswith("}")):
            raise ValueError(f"this is not the text of an idset: {text[:40]!r}")
        numbers = text[1:-1]
        return cls(int(number) for number in numbers.split(",")) if numbers else cls()

    @classmethod
    def from_binary(cls, data: bytes | bytearray | memoryview) -> IdSet:
        """Make the set of the server's binary form."""
        (number,) = struct.unpack_from("!i", data)
        # four bytes for each id are announced by a negated number of them
        ids = array("H" if number >= 0 else "I", bytes(data[4:]))
        if len(ids) != abs(number):
            raise ValueError("an idset in binary form has another length than it says")
        if sys.byteorder == "little":
            ids.byteswap()
        return cls._of_ascending(array("I", ids) if number >= 0 else ids)

    def to_text(self) -> str:
        """Return the literal, ``{3,17}``."""
        return "{" + ",".join(map(str, self._ids)) + "}"

    def to_binary(self) -> bytes:
        """Return the binary form: a number, then two or four bytes for each id."""
        ids = self._ids
        if ids and ids[-1] > MAX_NARROW_ID:
            return struct.pack("!i", -len(ids)) + _network_order(ids)
        return struct.pack("!i", len(ids)) + _network_order(array("H", ids))

    def to_list(self) -> list[int]:
        """Return the ids, ascending."""
        return self._ids.tolist()

    def to_numpy(self) -> NDArray[np.uint32]:
        """Return the ids, ascending, as an array of its own."""
        import numpy as np  # noqa: PLC0415

        return np.array(self._ids, dtype=np.uint32)

    def __contains__(self, number: object) -> bool:
        if not isinstance(number, int):
            return False
        position = bisect_left(self._ids, number)
        return position < len(self._ids) and self._ids[position] == number

    def __iter__(self) -> Iterator[int]:
        return iter(self._ids)

    def __len__(self) -> int:
        return len(self._ids)

    def __eq__(self, other: object) -> bool:
        if isinstance(other, IdSet):
            return self._ids == other._ids
        return super().__eq__(other)

    def __hash__(self) -> int:
        return self._hash()

    def __repr__(self) -> str:
        return f"IdSet({self.to_list()})"

    def __reduce__(self) -> tuple[Any, ...]:
        return IdSet, (self.to_list(),)
