"""Statements that all drivers share; parameters are written $1, $2, ..."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, Union

# a name, or the names of a schema and of what is in it
Name = Union[str, Sequence[str]]

# where the type is, whatever the search_path says
TYPE = """
SELECT t.oid, t.typarray, n.nspname::text
FROM pg_catalog.pg_extension e
JOIN pg_catalog.pg_depend d ON d.refclassid = 'pg_catalog.pg_extension'::regclass
    AND d.refobjid = e.oid AND d.deptype = 'e'
JOIN pg_catalog.pg_type t ON d.classid = 'pg_catalog.pg_type'::regclass AND d.objid = t.oid
JOIN pg_catalog.pg_namespace n ON n.oid = t.typnamespace
WHERE e.extname = 'gpuvec' AND t.typname = 'idset'
"""

# how many bytes a key has
KEY_WIDTH = """
SELECT t.typlen::int
FROM pg_catalog.pg_attribute a JOIN pg_catalog.pg_type t ON t.oid = a.atttypid
WHERE a.attrelid = $1::text::regclass AND a.attname = $2 AND NOT a.attisdropped
    AND t.oid IN ('int2'::regtype, 'int4'::regtype, 'int8'::regtype)
"""


class NotInstalledError(RuntimeError):
    """The database does not have the extension."""

    def __init__(self) -> None:
        super().__init__("the extension gpuvec is not in this database: CREATE EXTENSION gpuvec")


def identifier(name: Name) -> str:
    """Quote a name; a sequence of names is joined by dots."""
    parts = [name] if isinstance(name, str) else name
    return ".".join('"' + part.replace('"', '""') + '"' for part in parts)


def placeholders(statement: str) -> str:
    """Write a statement as psycopg does, with %s; parameters must be in order.

    Quoted names stay as they are: they may have a $ and a number in them.
    """
    parts = re.split(r'("(?:[^"]|"")*")', statement.replace("%", "%%"))
    parts[::2] = [re.sub(r"\$[0-9]+", "%s", part) for part in parts[::2]]
    return "".join(parts)


def found_type(row: Any) -> tuple[int, int, str]:
    """Return what TYPE has found: oids of the type and of its array, and the schema."""
    if row is None:
        raise NotInstalledError
    return int(row[0]), int(row[1]), str(row[2])


def found_key_width(row: Any, table: Name, column: str) -> int:
    """Return what KEY_WIDTH has found."""
    if row is None:
        raise ValueError(
            f"column {column} of table {identifier(table)} is no smallint, integer or bigint"
        )
    return int(row[0])


def copy_from(table: Name, columns: Sequence[str]) -> str:
    """Return the COPY that fills these columns."""
    names = ", ".join(map(identifier, columns))
    return f"COPY {identifier(table)} ({names}) FROM STDIN (FORMAT BINARY)"


def copy_to(query: str) -> str:
    """Return the COPY that reads what a query finds."""
    return f"COPY ({query}) TO STDOUT (FORMAT BINARY)"


def keys_and_sets(table: Name, column: str, key_column: str) -> str:
    """Return the query of these columns, without null keys and sets."""
    key, ids = identifier(key_column), identifier(column)
    return (
        f"SELECT {key}::int8, {ids} FROM {identifier(table)} "
        f"WHERE {key} IS NOT NULL AND {ids} IS NOT NULL"
    )


def topk_batch(schema: str, table: Name, key_column: str) -> str:
    """Return the search of many queries: $1 column, $2 queries, $3 k, $4 measure, $5 least score.

    The schema is the extension's.  All matches come as one row: numbers as bytes, 20 for each
    match, and an array of keys.
    """
    search, sets = identifier((schema, "gpuvec_topk_batch_rows")), identifier((schema, "idset"))
    return f"""
SELECT coalesce(string_agg(int4send(t.query) || int4send(t.rank) || float8send(t.score)
                           || int4send(t.common), ''::bytea ORDER BY t.query, t.rank), ''::bytea),
       coalesce(array_agg((t.item).{identifier(key_column)} ORDER BY t.query, t.rank), '{{}}')
FROM {search}(NULL::{identifier(table)}, $1::text::name, $2::{sets}[], $3::int8, $4::text,
     $5::float8) t
"""
