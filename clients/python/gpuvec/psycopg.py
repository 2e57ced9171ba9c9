"""Adapters for psycopg 3, bulk COPY and batch search, for connections of both kinds."""

from __future__ import annotations

from collections.abc import Set
from typing import TYPE_CHECKING, Any, Union

from psycopg.adapt import Buffer, Dumper, Loader
from psycopg.pq import Format
from psycopg.types import TypeInfo

from . import operations, sql
from .idset import IdSet

if TYPE_CHECKING:
    from psycopg import AsyncConnection, Connection

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


def _answer(conn: Connection[Any], request: operations.Request) -> Any:
    with conn.cursor(binary=True) as cur:
        if isinstance(request, operations.Fetch):
            return cur.execute(sql.placeholders(request.statement), request.parameters).fetchone()
        if isinstance(request, operations.CopyOut):
            with cur.copy(sql.copy_to(request.query)) as copy:
                return b"".join(bytes(data) for data in copy)
        with cur.copy(sql.copy_from(request.table, request.columns)) as copy:
            for part in request.parts:
                copy.write(part)
        return None


async def _answer_async(conn: AsyncConnection[Any], request: operations.Request) -> Any:
    async with conn.cursor(binary=True) as cur:
        if isinstance(request, operations.Fetch):
            await cur.execute(sql.placeholders(request.statement), request.parameters)
            return await cur.fetchone()
        if isinstance(request, operations.CopyOut):
            async with cur.copy(sql.copy_to(request.query)) as copy:
                return b"".join([bytes(data) async for data in copy])
        async with cur.copy(sql.copy_from(request.table, request.columns)) as copy:
            for part in request.parts:
                await copy.write(part)
        return None


copy_sets = operations.bound(operations.copy_sets, _answer)
fetch_sets = operations.bound(operations.fetch_sets, _answer)
topk_batch = operations.bound(operations.topk_batch, _answer)
copy_sets_async = operations.bound_async(operations.copy_sets, _answer_async, "_async")
fetch_sets_async = operations.bound_async(operations.fetch_sets, _answer_async, "_async")
topk_batch_async = operations.bound_async(operations.topk_batch, _answer_async, "_async")
