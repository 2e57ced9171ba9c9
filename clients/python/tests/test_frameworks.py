"""SQLAlchemy and Django against a server."""

import os
import unittest

from gpuvec import IdSet
from tests.base import SETUP, TABLE, best, needs, some_sets

SETS = some_sets(300)
QUERY = {3, 17, 40, 90}
DISTANCES = {
    "braun_blanquet": 1 - 2 / 4,
    "jaccard": 1 - 2 / 5,
    "cosine": 1 - (4 / 12) ** 0.5,
    "intersection": -2,
    "hamming": 3,
}
ONE = {3, 17, 99}


@needs("sqlalchemy", "psycopg2")
class SqlalchemyTest(unittest.TestCase):
    """The type IDSET."""

    def setUp(self):
        """Make a table by the model, and fill it."""
        from sqlalchemy import BigInteger, Column, Index, MetaData, Table, create_engine

        from gpuvec.sqlalchemy import IDSET

        self.engine = create_engine("postgresql+psycopg2://")
        self.addCleanup(self.engine.dispose)
        self.docs = Table(
            TABLE, MetaData(), Column("id", BigInteger, primary_key=True), Column("tokens", IDSET)
        )
        Index(TABLE + "_tokens", self.docs.c.tokens, postgresql_using="gpuvec")
        with self.engine.begin() as conn:
            conn.exec_driver_sql(SETUP + f"DROP TABLE {TABLE}")
            self.docs.create(conn)
            rows = [{"id": number, "tokens": ids} for number, ids in enumerate(SETS)]
            conn.execute(self.docs.insert(), rows)

    def ids(self, statement):
        """Return the first column of what a statement returns."""
        with self.engine.connect() as conn:
            return [row[0] for row in conn.execute(statement)]

    def test_values(self):
        """Sets in and out, and the table's definition read back."""
        from sqlalchemy import MetaData, Table, select

        from gpuvec.sqlalchemy import IDSET

        self.assertEqual(self.ids(select(self.docs.c.tokens).order_by(self.docs.c.id)), SETS)
        found = Table(TABLE, MetaData(), autoload_with=self.engine)
        self.assertIsInstance(found.c.tokens.type, IDSET)

    def test_distances(self):
        """Each of the five distances."""
        from sqlalchemy import cast, select

        from gpuvec.sqlalchemy import IDSET

        one = cast(ONE, IDSET)
        columns = [
            one.braun_blanquet_distance(QUERY), one.jaccard_distance(QUERY),
            one.cosine_distance(QUERY), one.negative_intersection(QUERY),
            one.hamming_distance(QUERY),
        ]
        with self.engine.connect() as conn:
            row = conn.execute(select(*columns)).one()
        for found, expected in zip(row, DISTANCES.values()):
            self.assertAlmostEqual(found, expected, places=15)

    def test_order(self):
        """The nearest rows."""
        from sqlalchemy import select

        distance = self.docs.c.tokens.jaccard_distance(QUERY)
        found = self.ids(select(self.docs.c.id).order_by(distance, self.docs.c.id).limit(5))
        self.assertEqual(found, [number for _, number in best(SETS, IdSet(QUERY), 5)])

    def test_conditions(self):
        """The conditions, each against plain Python."""
        from sqlalchemy import select

        tokens = self.docs.c.tokens
        for condition, expected in (
            (tokens.overlaps(QUERY), lambda ids: ids & QUERY),
            (tokens.contains({3}), lambda ids: 3 in ids),
            (tokens.contained_by(range(100)), lambda ids: ids <= set(range(100))),
            (tokens.reaches(QUERY, 0.1, "jaccard"),
             lambda ids: len(ids & QUERY) / len(ids | QUERY) >= 0.1),
        ):
            found = self.ids(select(self.docs.c.id).where(condition).order_by(self.docs.c.id))
            self.assertEqual(found, [n for n, ids in enumerate(SETS) if expected(ids)])
            self.assertTrue(found)

    @needs("asyncpg")
    def test_asyncpg(self):
        """The same type with asyncpg."""
        import asyncio

        from sqlalchemy import select
        from sqlalchemy.ext.asyncio import create_async_engine

        async def nearest():
            engine = create_async_engine("postgresql+asyncpg://")
            async with engine.connect() as conn:
                distance = self.docs.c.tokens.jaccard_distance(QUERY)
                rows = await conn.execute(select(self.docs).order_by(distance, self.docs.c.id))
                row = rows.first()
            await engine.dispose()
            return tuple(row)

        number = best(SETS, IdSet(QUERY), 1)[0][1]
        self.assertEqual(asyncio.run(nearest()), (number, SETS[number]))


@needs("django", "psycopg2")
class DjangoTest(unittest.TestCase):
    """IdSetField."""

    @classmethod
    def setUpClass(cls):
        """Configure Django for the server, once, and make a model."""
        import django
        from django.conf import settings
        from django.db import connection, models

        from gpuvec.django import GpuvecIndex, IdSetField

        database = {
            "ENGINE": "django.db.backends.postgresql",
            "NAME": os.environ.get("PGDATABASE", "postgres"),
            "USER": os.environ.get("PGUSER", ""),
            "HOST": os.environ["PGHOST"],
        }
        settings.configure(DATABASES={"default": database}, INSTALLED_APPS=[],
                           DEFAULT_AUTO_FIELD="django.db.models.BigAutoField")
        django.setup()

        class Doc(models.Model):
            tokens = IdSetField(null=True)

            class Meta:
                app_label = "docs"
                db_table = TABLE
                indexes = (GpuvecIndex(fields=["tokens"], name="docs_tokens"),)

        cls.doc, cls.connection = Doc, connection

    def setUp(self):
        """Make the table by the model, and fill it."""
        with self.connection.cursor() as cur:
            cur.execute(SETUP + f"DROP TABLE {TABLE}")
        with self.connection.schema_editor() as editor:
            editor.create_model(self.doc)
        self.doc.objects.bulk_create(
            self.doc(id=number, tokens=ids) for number, ids in enumerate(SETS)
        )
        self.addCleanup(self.connection.close)

    def test_values(self):
        """Sets in and out, and the index."""
        found = self.doc.objects.order_by("id").values_list("tokens", flat=True)
        self.assertEqual(list(found), SETS)
        self.doc.objects.create(id=1000, tokens=None)
        self.assertIsNone(self.doc.objects.get(id=1000).tokens)
        with self.connection.cursor() as cur:
            cur.execute("SELECT amname FROM pg_class c JOIN pg_am a ON a.oid = c.relam"
                        " WHERE relname = 'docs_tokens'")
            self.assertEqual(cur.fetchone(), ("gpuvec",))

    def test_distances(self):
        """Each of the five distances."""
        from gpuvec import django as gpuvec_django

        classes = ("BraunBlanquetDistance", "JaccardDistance", "CosineDistance",
                   "NegativeIntersection", "HammingDistance")
        self.doc.objects.create(id=1000, tokens=ONE)
        for name, expected in zip(classes, DISTANCES.values()):
            distance = getattr(gpuvec_django, name)("tokens", QUERY)
            row = self.doc.objects.annotate(distance=distance).get(id=1000)
            self.assertAlmostEqual(row.distance, expected, places=15)

    def test_order(self):
        """The nearest rows."""
        from gpuvec.django import JaccardDistance

        rows = self.doc.objects.order_by(JaccardDistance("tokens", QUERY), "id")[:5]
        expected = [number for _, number in best(SETS, IdSet(QUERY), 5)]
        self.assertEqual([row.id for row in rows], expected)

    def test_conditions(self):
        """The conditions, each against plain Python."""
        from gpuvec.django import Reaches

        for rows, expected in (
            (self.doc.objects.filter(tokens__overlap=QUERY), lambda ids: ids & QUERY),
            (self.doc.objects.filter(tokens__contains={3}), lambda ids: 3 in ids),
            (self.doc.objects.filter(tokens__contained_by=range(100)),
             lambda ids: ids <= set(range(100))),
            (self.doc.objects.filter(Reaches("tokens", QUERY, 0.1, "jaccard")),
             lambda ids: len(ids & QUERY) / len(ids | QUERY) >= 0.1),
            (self.doc.objects.filter(tokens=SETS[7]), lambda ids: ids == SETS[7]),
        ):
            found = list(rows.order_by("id").values_list("id", flat=True))
            self.assertEqual(found, [n for n, ids in enumerate(SETS) if expected(ids)])
            self.assertTrue(found)

    def test_extension(self):
        """The operation of a migration creates the extension where it is missing."""
        from django.db.migrations.state import ProjectState

        from gpuvec.django import GpuvecExtension

        with self.connection.cursor() as cur:
            cur.execute("DROP EXTENSION gpuvec CASCADE")
        with self.connection.schema_editor() as editor:
            GpuvecExtension().database_forwards("docs", editor, ProjectState(), ProjectState())
        with self.connection.cursor() as cur:
            cur.execute("SELECT count(*) FROM pg_extension WHERE extname = 'gpuvec'")
            self.assertEqual(cur.fetchone(), (1,))


if __name__ == "__main__":
    unittest.main()
