"""Adapters for psycopg2, bulk COPY and batch search."""

from __future__ import annotations

from io import BytesIO
from typing import Any
from weakref import WeakKeyDictionary

from psycopg2.extensions import (
    connection,
    new_array_type,
    new_type,
    register_adapter,
    register_type,
)

from . import operations, sql
from .idset import IdSet

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


def _answer(conn: connection, request: operations.Request) -> Any:
    from .binary_copy import StreamReader  # noqa: PLC0415

    with conn.cursor() as cur:
        if isinstance(request, operations.Fetch):
            cur.execute(sql.placeholders(request.statement), request.parameters)
            return cur.fetchone()
        if isinstance(request, operations.CopyOut):
            data = BytesIO()
            cur.copy_expert(sql.copy_to(request.query), data)
            return data.getvalue()
        statement = sql.copy_from(request.table, request.columns)
        cur.copy_expert(statement, StreamReader(request.parts))
        return None


copy_sets = operations.bound(operations.copy_sets, _answer)
fetch_sets = operations.bound(operations.fetch_sets, _answer)
topk_batch = operations.bound(operations.topk_batch, _answer)
