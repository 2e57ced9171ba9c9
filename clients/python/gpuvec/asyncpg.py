"""Adapters for asyncpg, bulk COPY and batch search."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from io import BytesIO
from typing import TYPE_CHECKING, Any

from . import operations, sql
from .idset import IdSet

if TYPE_CHECKING:
    from asyncpg import Connection


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


def _sendable(value: Any) -> Any:
    # asyncpg would take a set in an array for a further dimension
    return [ids.to_binary() for ids in value] if isinstance(value, list) else value


async def _answer(conn: Connection, request: operations.Request) -> Any:
    if isinstance(request, operations.Fetch):
        return await conn.fetchrow(request.statement, *map(_sendable, request.parameters))
    if isinstance(request, operations.CopyOut):
        data = BytesIO()
        await conn.copy_from_query(request.query, output=data, format="binary")
        return data.getvalue()
    schema, name = _schema_and_table(request.table)
    await conn.copy_to_table(
        name,
        schema_name=schema,
        columns=request.columns,
        source=_awaited(request.parts),
        format="binary",
    )
    return None


copy_sets = operations.bound_async(operations.copy_sets, _answer)
fetch_sets = operations.bound_async(operations.fetch_sets, _answer)
topk_batch = operations.bound_async(operations.topk_batch, _answer)
