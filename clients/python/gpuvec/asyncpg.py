"""Adapters for asyncpg, bulk COPY and batch search."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from typing import TYPE_CHECKING, Any

from . import sql
from .idset import IdSet

if TYPE_CHECKING:
    import numpy as np
    from asyncpg import Connection
    from numpy.typing import NDArray

    from .csr import Csr
    from .matches import Matches


def _encode(value: Any) -> bytes:
    if isinstance(value, bytes):
        return value
    return (IdSet.from_text(value) if isinstance(value, str) else IdSet(value)).to_binary()


async def register(conn: Connection) -> None:
    """Adapt sets and lists of numbers for this connection, and have sets read as IdSet.

    For a pool: ``asyncpg.create_pool(..., init=gpuvec.asyncpg.register)``.  In arrays of sets,
    elements must be text or binary forms: ``[ids.to_text() for ids in sets]``.
    """
    _, _, schema = sql.found_type(await conn.fetchrow(sql.TYPE))
    await conn.set_type_codec(
        "idset", schema=schema, encoder=_encode, decoder=IdSet.from_binary, format="binary"
    )


async def _awaited(parts: Iterator[bytes]) -> AsyncIterator[bytes]:
    for part in parts:
        yield part


def _schema_and_table(table: sql.Name) -> tuple[str | None, str]:
    if isinstance(table, str):
        return None, table
    schema, name = table
    return schema, name


async def copy_sets(
    conn: Connection,
    table: sql.Name,
    column: str,
    sets: Any,
    *,
    key_column: str | None = None,
    keys: Any = None,
) -> int:
    """Append rows by binary COPY, as gpuvec.psycopg.copy_sets() does."""
    from .binary_copy import stream  # noqa: PLC0415
    from .csr import as_csr  # noqa: PLC0415

    csr, width, columns = as_csr(sets), 8, [column]
    if key_column is not None:
        row = await conn.fetchrow(sql.KEY_WIDTH, sql.identifier(table), key_column)
        width, columns = sql.found_key_width(row, table, key_column), [key_column, column]
    schema, name = _schema_and_table(table)
    await conn.copy_to_table(
        name,
        schema_name=schema,
        columns=columns,
        source=_awaited(stream(csr, keys if key_column is not None else None, width)),
        format="binary",
    )
    return csr.rows


async def fetch_sets(
    conn: Connection, table: sql.Name, column: str, key_column: str
) -> tuple[NDArray[np.int64], Csr]:
    """Read all keys and sets by binary COPY; rows with a null key or set are left out."""
    from io import BytesIO  # noqa: PLC0415

    from .binary_copy import read  # noqa: PLC0415

    data = BytesIO()
    query = sql.copy_to(table, column, key_column)
    query = query[query.index("(") + 1 : query.rindex(") TO STDOUT")]
    await conn.copy_from_query(query, output=data, format="binary")
    return read(data.getvalue())


async def topk_batch(
    conn: Connection,
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

    statement = sql.topk_batch(table, key_column)
    # asyncpg would take a set in an array for a further dimension
    sets = [query.to_binary() for query in queries_of(queries)]
    row = await conn.fetchrow(statement, column, sets, k, measure, min_score)
    return of_row(row[0], row[1])
