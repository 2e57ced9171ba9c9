"""The stream of a binary COPY of keys and sets, made and read by NumPy.

Every field of such a stream has a number of bytes that is even, so a row is made of 16-bit
words in network byte order, and whole parts of the stream are filled at once:

    fields, [4-byte length of the key, key,] 4-byte length of the set, 4-byte number, ids

An id has one word if no id of the part is above 65,535, else two, which a negated number says.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Any, Optional

import numpy as np
from numpy.typing import NDArray

from .csr import Csr, offsets_of
from .idset import MAX_NARROW_ID

HEADER = b"PGCOPY\n\xff\r\n\0" + struct.pack("!ii", 0, 0)
TRAILER = struct.pack("!h", -1)
ROWS = 65536

Keys = Optional[NDArray[Any]]


def _words(numbers: NDArray[Any], width: int) -> NDArray[np.uint16]:
    """Return the words of numbers of that many bytes, one row each."""
    column = np.ascontiguousarray(numbers, dtype=f">i{width}")
    return column.view(">u2").reshape(len(column), width // 2)


def _heads(part: Csr, keys: Keys, key_width: int, words_of_id: int) -> NDArray[np.uint16]:
    """Return what is before the ids, one row each."""
    rows = part.rows
    lengths = np.diff(part.indptr)
    columns = [np.full((rows, 1), 1 if keys is None else 2, ">u2")]
    if keys is not None:
        columns += [_words(np.full(rows, key_width), 4), _words(keys, key_width)]
    columns.append(_words(4 + 2 * words_of_id * lengths, 4))
    columns.append(_words(lengths if words_of_id == 1 else -lengths, 4))
    return np.concatenate(columns, axis=1)


def _rows(part: Csr, keys: Keys, key_width: int) -> bytes:
    """Return the stream of these rows."""
    narrow = not len(part.indices) or part.indices.max() <= MAX_NARROW_ID
    words_of_id = 1 if narrow else 2
    heads = _heads(part, keys, key_width, words_of_id)
    width = heads.shape[1]
    # where rows begin, and where the ids of a row do
    begins = width * np.arange(part.rows) + words_of_id * part.indptr[:-1]
    stream = np.empty(width * part.rows + words_of_id * len(part.indices), ">u2")
    is_id = np.ones(len(stream), bool)
    for word in range(width):
        stream[begins + word] = heads[:, word]
        is_id[begins + word] = False
    stream[is_id] = part.indices.astype(f">u{2 * words_of_id}").view(">u2")
    return stream.tobytes()


def stream(csr: Csr, keys: Any = None, key_width: int = 8) -> Iterator[bytes]:
    """Yield the stream of a COPY ... FROM STDIN (FORMAT BINARY) in parts.

    Rows are (key, set), or sets alone without keys.
    """
    keys = None if keys is None else np.asarray(keys)
    if keys is not None and (keys.ndim != 1 or len(keys) != csr.rows):
        raise ValueError("there must be one key for each set")
    if keys is not None and len(keys):
        limits = np.iinfo(f"i{key_width}")
        if keys.dtype.kind not in "iu" or keys.min() < limits.min or keys.max() > limits.max:
            raise ValueError(f"keys are whole numbers of {key_width} bytes")
    yield HEADER
    for begin in range(0, csr.rows, ROWS):
        end = min(begin + ROWS, csr.rows)
        yield _rows(csr.part(begin, end), None if keys is None else keys[begin:end], key_width)
    yield TRAILER


class StreamReader:
    """A readable file of the parts of a stream, for drivers that want one."""

    def __init__(self, parts: Iterator[bytes]) -> None:
        self._parts = parts
        self._rest = b""

    def read(self, size: int = -1) -> bytes:
        """Return at most that many bytes; none at the end."""
        if not self._rest:
            self._rest = next(self._parts, b"")
        size = len(self._rest) if size < 0 else size
        data, self._rest = self._rest[:size], self._rest[size:]
        return data


def _begin_of_rows(data: bytes) -> int:
    if not data.startswith(HEADER[:11]):
        raise ValueError("this is not the stream of a binary COPY")
    (extension,) = struct.unpack_from("!i", data, 15)
    return len(HEADER) + int(extension)


def read(data: bytes) -> tuple[NDArray[np.int64], Csr]:
    """Return keys and sets of a COPY (SELECT key::int8, set) TO STDOUT (FORMAT BINARY)."""
    head = struct.Struct("!hiqii")
    keys, arrays = [], []
    position = _begin_of_rows(data)
    while data[position : position + 2] != TRAILER:
        _, _, key, length, number = head.unpack_from(data, position)
        position += head.size
        keys.append(key)
        arrays.append(np.frombuffer(data, ">u2" if number >= 0 else ">u4", abs(number), position))
        position += length - 4
    lengths = np.fromiter((len(ids) for ids in arrays), np.int64, len(arrays))
    indices = np.concatenate(arrays).astype(np.uint32) if arrays else np.empty(0, np.uint32)
    return np.array(keys, np.int64), Csr(offsets_of(lengths), indices)
