"""Sets of ids of the PostgreSQL extension gpuvec.

``IdSet`` is the value; ``gpuvec.psycopg``, ``gpuvec.psycopg2`` and ``gpuvec.asyncpg`` adapt it
for a driver, copy many sets by binary COPY, and search for many queries at once;
``gpuvec.sqlalchemy`` and ``gpuvec.django`` have types and operators.
"""

from .idset import IdSet

__all__ = ["IdSet"]
__version__ = "0.2.0"
