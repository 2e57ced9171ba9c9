"""Adapters for psycopg 3, bulk COPY and batch search, for connections of both kinds."""

from __future__ import annotations

from collections.abc import Set
from typing import TYPE_CHECKING, Any, Union

from psycopg.adapt import Buffer, Dumper, Loader
from psycopg.pq import Format
from psycopg.types import TypeInfo

from . import sql
from .idset import IdSet

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray
    from psycopg import AsyncConnection, Connection

    from .csr import Csr
    from .matches import Matches

    AnyConnection = Union[Connection[Any], AsyncConnection[Any]]


class IdSetDumper(Dumper):
    """Sends sets as text."""

    def dump(self, obj: Set[int]) -> bytes:
        """Return the literal."""
        return IdSet(obj).to_text().encode()


class IdSetBinaryDumper(Dumper):
    """Sends sets in binary form."""

    format = Format.BINARY

    def dump(self, obj: Set[int]) -> bytes:
        """Return the binary form."""
        return IdSet(obj).to_binary()


class IdSetLoader(Loader):
    """Reads sets that come as text."""

    def load(self, data: Buffer) -> IdSet:
        """Make the set."""
        return IdSet.from_text(bytes(data).decode())


class IdSetBinaryLoader(Loader):
    """Reads sets that come in binary form."""

    format = Format.BINARY

    def load(self, data: Buffer) -> IdSet:
        """Make the set."""
        return IdSet.from_binary(data)


def _register(conn: AnyConnection, row: Any) -> None:
    oid, array_oid, _ = sql.found_type(row)
    TypeInfo("idset", oid, array_oid).register(conn)
    for cls in (IdSet, set, frozenset):
        # of two, psycopg prefers the one that was registered last
        for base in (IdSetDumper, IdSetBinaryDumper):
            conn.adapters.register_dumper(cls, type(base.__name__, (base,), {"oid": oid}))
    conn.adapters.register_loader(oid, IdSetLoader)
    conn.adapters.register_loader(oid, IdSetBinaryLoader)


def register(conn: Connection[Any]) -> None:
    """Adapt IdSet, set and frozenset for this connection, and have sets read as IdSet."""
    with conn.transaction():
        row = conn.execute(sql.TYPE).fetchone()
    _register(conn, row)


async def register_async(conn: AsyncConnection[Any]) -> None:
    """Do as register() does."""
    async with conn.transaction():
        row = await (await conn.execute(sql.TYPE)).fetchone()
    _register(conn, row)


def _key_parameters(table: sql.Name, key_column: str) -> tuple[str, tuple[str, str]]:
    return sql.placeholders(sql.KEY_WIDTH), (sql.identifier(table), key_column)


def copy_sets(
    conn: Connection[Any],
    table: sql.Name,
    column: str,
    sets: Any,
    *,
    key_column: str | None = None,
    keys: Any = None,
) -> int:
    """Append rows by binary COPY; return their number.

    Sets are a SciPy sparse matrix, a pair (indptr, indices) of arrays, or an iterable of sets.
    Without a key column, the table's defaults fill the other columns.
    """
    from .binary_copy import stream  # noqa: PLC0415
    from .csr import as_csr  # noqa: PLC0415

    csr, width = as_csr(sets), 8
    if key_column is not None:
        row = conn.execute(*_key_parameters(table, key_column)).fetchone()
        width = sql.found_key_width(row, table, key_column)
    with conn.cursor() as cur, cur.copy(sql.copy_from(table, column, key_column)) as copy:
        for part in stream(csr, keys if key_column is not None else None, width):
            copy.write(part)
    return csr.rows


async def copy_sets_async(
    conn: AsyncConnection[Any],
    table: sql.Name,
    column: str,
    sets: Any,
    *,
    key_column: str | None = None,
    keys: Any = None,
) -> int:
    """Do as copy_sets() does."""
    from .binary_copy import stream  # noqa: PLC0415
    from .csr import as_csr  # noqa: PLC0415

    csr, width = as_csr(sets), 8
    if key_column is not None:
        cursor = await conn.execute(*_key_parameters(table, key_column))
        width = sql.found_key_width(await cursor.fetchone(), table, key_column)
    statement = sql.copy_from(table, column, key_column)
    async with conn.cursor() as cur, cur.copy(statement) as copy:
        for part in stream(csr, keys if key_column is not None else None, width):
            await copy.write(part)
    return csr.rows


def fetch_sets(
    conn: Connection[Any], table: sql.Name, column: str, key_column: str
) -> tuple[NDArray[np.int64], Csr]:
    """Read all keys and sets by binary COPY; rows with a null key or set are left out."""
    from .binary_copy import read  # noqa: PLC0415

    with conn.cursor() as cur, cur.copy(sql.copy_to(table, column, key_column)) as copy:
        return read(b"".join(bytes(data) for data in copy))


def topk_batch(
    conn: Connection[Any],
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
    with conn.cursor(binary=True) as cur:
        cur.execute(statement, (column, queries_of(queries), k, measure, min_score))
        numbers, keys = cur.fetchone() or (b"", [])
    return of_row(numbers, keys)


async def topk_batch_async(
    conn: AsyncConnection[Any],
    table: sql.Name,
    column: str,
    queries: Any,
    k: int | None = 100,
    *,
    key_column: str = "id",
    measure: str = "braun_blanquet",
    min_score: float | None = None,
) -> Matches:
    """Do as topk_batch() does."""
    from .matches import of_row, queries_of  # noqa: PLC0415

    statement = sql.placeholders(sql.topk_batch(table, key_column))
    async with conn.cursor(binary=True) as cur:
        await cur.execute(statement, (column, queries_of(queries), k, measure, min_score))
        numbers, keys = await cur.fetchone() or (b"", [])
    return of_row(numbers, keys)
