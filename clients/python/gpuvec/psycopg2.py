"""Adapters for psycopg2, bulk COPY and batch search."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

from psycopg2.extensions import (
    connection,
    new_array_type,
    new_type,
    register_adapter,
    register_type,
)

from . import sql
from .idset import IdSet

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from .csr import Csr
    from .matches import Matches

# the type's name in the database of each connection that was registered
_type_names: WeakKeyDictionary[Any, str] = WeakKeyDictionary()


class IdSetAdapter:
    """Writes a set into a statement."""

    def __init__(self, value: Any) -> None:
        self._value = IdSet(value)
        self._type = "idset"

    def prepare(self, conn: connection) -> None:
        """Look where the type is; psycopg2 calls this."""
        self._type = _type_names.get(conn, "idset")

    def getquoted(self) -> bytes:
        """Return the literal, with its type, for functions and arrays."""
        return f"'{self._value.to_text()}'::{self._type}".encode()


def _read(value: str | None, _cursor: Any) -> IdSet | None:
    return None if value is None else IdSet.from_text(value)


def register(conn: connection) -> None:
    """Have sets of this connection read as IdSet; adapt IdSet, set and frozenset for all."""
    with conn.cursor() as cur:
        cur.execute(sql.TYPE)
        oid, array_oid, schema = sql.found_type(cur.fetchone())
    _type_names[conn] = sql.identifier((schema, "idset"))
    one = new_type((oid,), "IDSET", _read)
    register_type(one, conn)
    register_type(new_array_type((array_oid,), "IDSETARRAY", one), conn)
    for cls in (IdSet, set, frozenset):
        register_adapter(cls, IdSetAdapter)


def copy_sets(
    conn: connection,
    table: sql.Name,
    column: str,
    sets: Any,
    *,
    key_column: str | None = None,
    keys: Any = None,
) -> int:
    """Append rows by binary COPY, as gpuvec.psycopg.copy_sets() does."""
    from .binary_copy import StreamReader, stream  # noqa: PLC0415
    from .csr import as_csr  # noqa: PLC0415

    csr, width = as_csr(sets), 8
    with conn.cursor() as cur:
        if key_column is not None:
            cur.execute(sql.placeholders(sql.KEY_WIDTH), (sql.identifier(table), key_column))
            width = sql.found_key_width(cur.fetchone(), table, key_column)
        parts = stream(csr, keys if key_column is not None else None, width)
        cur.copy_expert(sql.copy_from(table, column, key_column), StreamReader(parts))
    return csr.rows


def fetch_sets(
    conn: connection, table: sql.Name, column: str, key_column: str
) -> tuple[NDArray[np.int64], Csr]:
    """Read all keys and sets by binary COPY; rows with a null key or set are left out."""
    from io import BytesIO  # noqa: PLC0415

    from .binary_copy import read  # noqa: PLC0415

    data = BytesIO()
    with conn.cursor() as cur:
        cur.copy_expert(sql.copy_to(table, column, key_column), data)
    return read(data.getvalue())


def topk_batch(
    conn: connection,
    table: sql.Name,
    column: str,
    queries: Any,
    k: int | None = 100,
    *,
    key_column: str = "id",
    measure: str = "braun_blanquet",
    min_score: float | None = None,
) -> Matches:
    """Search for the k best of each query, as gpuvec_topk_batch_rows does; register() first."""
    from .matches import of_row, queries_of  # noqa: PLC0415

    statement = sql.placeholders(sql.topk_batch(table, key_column))
    with conn.cursor() as cur:
        cur.execute(statement, (column, queries_of(queries), k, measure, min_score))
        numbers, keys = cur.fetchone()
    return of_row(numbers, keys)
