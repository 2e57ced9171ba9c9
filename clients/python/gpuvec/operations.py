"""Bulk COPY and batch search, written once for all drivers.

An operation is a generator: it yields what a connection is to do, and goes on with the answer.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Generator, Iterator
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar, Union

from . import sql

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Coroutine

    import numpy as np
    from numpy.typing import NDArray
    from typing_extensions import Concatenate, ParamSpec

    from .csr import Csr
    from .matches import Matches

    P = ParamSpec("P")

C = TypeVar("C")
T = TypeVar("T")


class Fetch(NamedTuple):
    """Execute a statement with parameters $1, $2, ...; the answer is its first row, or None."""

    statement: str
    parameters: tuple[Any, ...] = ()


class CopyIn(NamedTuple):
    """Append rows, whose binary form comes in parts."""

    table: sql.Name
    columns: list[str]
    parts: Iterator[bytes]


class CopyOut(NamedTuple):
    """The answer is the binary form of a query's rows."""

    query: str


Request = Union[Fetch, CopyIn, CopyOut]
Operation = Generator[Request, Any, T]


def copy_sets(
    table: sql.Name,
    column: str,
    sets: Any,
    *,
    key_column: str | None = None,
    keys: Any = None,
) -> Operation[int]:
    """Append rows by binary COPY; return their number.

    Sets are a SciPy sparse matrix, a pair (indptr, indices) of arrays, or an iterable of sets.
    Without a key column, the table's defaults fill the other columns.
    """
    from .binary_copy import stream  # noqa: PLC0415
    from .csr import as_csr  # noqa: PLC0415

    csr = as_csr(sets)
    if key_column is None:
        yield CopyIn(table, [column], stream(csr, None, 8))
        return csr.rows
    row = yield Fetch(sql.KEY_WIDTH, (sql.identifier(table), key_column))
    width = sql.found_key_width(row, table, key_column)
    yield CopyIn(table, [key_column, column], stream(csr, keys, width))
    return csr.rows


def fetch_sets(
    table: sql.Name, column: str, key_column: str
) -> Operation[tuple[NDArray[np.int64], Csr]]:
    """Read all keys and sets by binary COPY; rows with a null key or set are left out."""
    from .binary_copy import read  # noqa: PLC0415

    data = yield CopyOut(sql.keys_and_sets(table, column, key_column))
    return read(data)


def topk_batch(
    table: sql.Name,
    column: str,
    queries: Any,
    k: int | None = 100,
    *,
    key_column: str = "id",
    measure: str = "braun_blanquet",
    min_score: float | None = None,
) -> Operation[Matches]:
    """Search for the k best of each query, as gpuvec_topk_batch_rows does; register() first."""
    from .matches import of_row, queries_of  # noqa: PLC0415

    sets = queries_of(queries)
    _, _, schema = sql.found_type((yield Fetch(sql.TYPE)))
    statement = sql.topk_batch(schema, table, key_column)
    numbers, keys = yield Fetch(statement, (column, sets, k, measure, min_score))
    return of_row(numbers, keys)


def _describe(function: Any, operation: Any, name: str) -> Any:
    signature = inspect.signature(operation)
    conn = inspect.Parameter("conn", inspect.Parameter.POSITIONAL_ONLY)
    result = re.sub(r"^Operation\[(.*)\]$", r"\1", str(signature.return_annotation))
    function.__signature__ = signature.replace(
        parameters=[conn, *signature.parameters.values()], return_annotation=result
    )
    function.__name__ = function.__qualname__ = name
    function.__doc__ = operation.__doc__
    return function


def bound(
    operation: Callable[P, Operation[T]], answer: Callable[[C, Request], Any]
) -> Callable[Concatenate[C, P], T]:
    """Make a function of a connection, which answers, and the operation's arguments."""

    def function(conn: C, /, *args: P.args, **kwargs: P.kwargs) -> T:
        steps, reply = operation(*args, **kwargs), None
        while True:
            try:
                request = steps.send(reply)
            except StopIteration as end:
                return end.value  # type: ignore[no-any-return]
            reply = answer(conn, request)

    return _describe(function, operation, operation.__name__)  # type: ignore[no-any-return]


def bound_async(
    operation: Callable[P, Operation[T]],
    answer: Callable[[C, Request], Awaitable[Any]],
    suffix: str = "",
) -> Callable[Concatenate[C, P], Coroutine[Any, Any, T]]:
    """Do as bound() does, with a connection that is awaited."""

    async def function(conn: C, /, *args: P.args, **kwargs: P.kwargs) -> T:
        steps, reply = operation(*args, **kwargs), None
        while True:
            try:
                request = steps.send(reply)
            except StopIteration as end:
                return end.value  # type: ignore[no-any-return]
            reply = await answer(conn, request)

    name = operation.__name__ + suffix
    return _describe(function, operation, name)  # type: ignore[no-any-return]
