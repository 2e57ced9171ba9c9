"""psycopg, psycopg2 and asyncpg against a server."""

import asyncio
import contextlib
import unittest

from gpuvec import IdSet
from gpuvec.sql import NotInstalledError
from tests.base import SETUP, TABLE, best, needs, some_sets


def check_matches(test, sets, queries, matches):
    """Compare with plain Python."""
    for number, query in enumerate(queries):
        mine = matches.query == number
        expected = best(sets, query, 5)
        test.assertEqual(matches.key[mine].tolist(), [key for _, key in expected])
        test.assertEqual(matches.rank[mine].tolist(), list(range(1, len(expected) + 1)))
        for score, (wanted, _) in zip(matches.score[mine], expected):
            test.assertAlmostEqual(score, wanted, places=15)
        common = [len(sets[key] & query) for _, key in expected]
        test.assertEqual(matches.common[mine].tolist(), common)


def check_dense(test, matches, queries):
    """Compare with the same matches as two arrays, a row for each query."""
    keys, scores = matches.dense(queries, 5)
    test.assertEqual(keys.shape, (queries, 5))
    test.assertEqual((keys < 0).tolist(), (~(scores > 0)).tolist())
    test.assertEqual(int((keys != -1).sum()), len(matches.key))


@needs("psycopg", "numpy", "scipy")
class PsycopgTest(unittest.TestCase):
    """psycopg 3, blocking."""

    def setUp(self):
        """Connect, and make an empty table."""
        import psycopg

        import gpuvec.psycopg

        self.driver = gpuvec.psycopg
        self.conn = psycopg.connect(autocommit=True)
        self.addCleanup(self.conn.close)
        self.conn.execute(SETUP)
        self.driver.register(self.conn)

    def test_values(self):
        """Sets in and out, as text and in binary form."""
        for binary in (False, True):
            mark = "%b" if binary else "%t"
            for value in (IdSet([17, 3]), {3, 17}, frozenset(), IdSet([2**32 - 1])):
                cur = self.conn.cursor(binary=binary)
                found, is_set = cur.execute(
                    f"SELECT {mark}, pg_typeof({mark}) = 'idset'::regtype", (value, value)
                ).fetchone()
                self.assertEqual((type(found), found, is_set), (IdSet, value, True))

    def test_lists(self):
        """A list of numbers goes into a column; lists of sets and null in and out."""
        self.conn.execute(f"INSERT INTO {TABLE} VALUES (1, %s), (2, %s)", ([17, 3, 17], None))
        rows = self.conn.execute(f"SELECT tokens FROM {TABLE} ORDER BY id").fetchall()
        self.assertEqual(rows, [({3, 17},), (None,)])
        sets = [IdSet([3]), IdSet([70000])]
        self.assertEqual(self.conn.execute("SELECT %s", (sets,)).fetchone(), (sets,))

    def test_operators(self):
        """Operators find the type of a parameter; that with a percent sign has two."""
        row = self.conn.execute(
            "SELECT %s <-> %s, %s <%%> %s, %s @> %s", ({3, 17}, {3}, {3, 17}, {3}, {3, 17}, {3})
        ).fetchone()
        self.assertEqual(row, (0.5, 0.5, True))

    def test_copy(self):
        """COPY of a sparse matrix and of keys of four bytes, and back."""
        from scipy.sparse import random as random_matrix

        matrix = random_matrix(1000, 100000, 0.0005, "csr", random_state=1)
        self.conn.execute(f"ALTER TABLE {TABLE} ALTER id TYPE int")
        keys = list(range(-500, 500))
        number = self.driver.copy_sets(
            self.conn, TABLE, "tokens", matrix, key_column="id", keys=keys
        )
        self.assertEqual(number, 1000)
        found, csr = self.driver.fetch_sets(self.conn, ("public", TABLE), "tokens", "id")
        expected = dict(zip(keys, (IdSet(row.indices) for row in matrix)))
        self.assertEqual(len(found), 1000)
        self.assertEqual(dict(zip(found.tolist(), csr.sets())), expected)

    def test_copy_without_keys(self):
        """The table's defaults fill the other columns."""
        self.conn.execute(f"ALTER TABLE {TABLE} ALTER id ADD GENERATED ALWAYS AS IDENTITY")
        self.driver.copy_sets(self.conn, TABLE, "tokens", [{3}, {17}])
        rows = self.conn.execute(f"SELECT id, tokens FROM {TABLE} ORDER BY id").fetchall()
        self.assertEqual(rows, [(1, {3}), (2, {17})])

    def test_copy_refuses(self):
        """Keys of a column that has no numbers."""
        self.conn.execute(f"ALTER TABLE {TABLE} ALTER id TYPE text")
        with self.assertRaisesRegex(ValueError, "is no smallint, integer or bigint"):
            self.driver.copy_sets(self.conn, TABLE, "tokens", [{3}], key_column="id", keys=[1])

    def test_search(self):
        """Arrays of matches."""
        sets, queries = some_sets(300), some_sets(20, seed=2)
        self.driver.copy_sets(self.conn, TABLE, "tokens", sets, key_column="id", keys=range(300))
        matches = self.driver.topk_batch(self.conn, TABLE, "tokens", queries, 5, measure="jaccard")
        check_matches(self, sets, queries, matches)
        check_dense(self, matches, 20)

    def test_search_without_matches(self):
        """No rows are arrays without elements."""
        matches = self.driver.topk_batch(self.conn, TABLE, "tokens", [{3}], 5)
        self.assertEqual([len(column) for column in matches], [0] * 5)
        check_dense(self, matches, 1)

    def test_search_text_keys(self):
        """Keys need not be numbers."""
        self.conn.execute(f"ALTER TABLE {TABLE} ALTER id TYPE text")
        self.conn.execute(f"INSERT INTO {TABLE} VALUES ('a', %s), ('b', %s)", ({3}, {3, 4}))
        matches = self.driver.topk_batch(self.conn, TABLE, "tokens", [{3}], 5)
        self.assertEqual(matches.key.tolist(), ["a", "b"])
        self.assertEqual(matches.dense(1, 3)[0].tolist(), [["a", "b", None]])

    def test_schema(self):
        """The type is found in a schema that search_path does not name."""
        with contextlib.suppress(ZeroDivisionError), self.conn.transaction():
            self.conn.execute("CREATE SCHEMA apart; ALTER EXTENSION gpuvec SET SCHEMA apart")
            self.driver.register(self.conn)
            row = self.conn.execute("SELECT %s, %s", ({3}, [IdSet([4])])).fetchone()
            self.assertEqual(row, ({3}, [{4}]))
            self.conn.execute(f"INSERT INTO {TABLE} VALUES (7, %s)", ({3},))
            matches = self.driver.topk_batch(self.conn, TABLE, "tokens", [{3}, {4}], 5)
            self.assertEqual((matches.query.tolist(), matches.key.tolist()), ([0], [7]))
            raise ZeroDivisionError

    def test_without_extension(self):
        """Who forgot CREATE EXTENSION is told so."""
        with contextlib.suppress(ZeroDivisionError), self.conn.transaction():
            self.conn.execute("DROP EXTENSION gpuvec CASCADE")
            with self.assertRaisesRegex(NotInstalledError, "CREATE EXTENSION gpuvec"):
                self.driver.register(self.conn)
            raise ZeroDivisionError


@needs("psycopg", "numpy")
class PsycopgAsyncTest(unittest.TestCase):
    """psycopg 3 with asyncio."""

    def test_all(self):
        """Values, COPY and search."""
        asyncio.run(self.everything())

    async def everything(self):
        """Do what the blocking tests do, in short."""
        import psycopg

        import gpuvec.psycopg as driver

        async with await psycopg.AsyncConnection.connect(autocommit=True) as conn:
            await conn.execute(SETUP)
            await driver.register_async(conn)
            row = await (await conn.execute("SELECT %s", ({3, 17},))).fetchone()
            self.assertEqual(row, ({3, 17},))
            sets, queries = some_sets(300), some_sets(20, seed=2)
            await driver.copy_sets_async(
                conn, TABLE, "tokens", sets, key_column="id", keys=range(300)
            )
            keys, csr = await driver.fetch_sets_async(conn, TABLE, "tokens", "id")
            self.assertEqual(dict(zip(keys.tolist(), csr.sets())), dict(enumerate(sets)))
            matches = await driver.topk_batch_async(
                conn, TABLE, "tokens", queries, 5, measure="jaccard"
            )
            check_matches(self, sets, queries, matches)


@needs("psycopg2", "numpy", "scipy")
class Psycopg2Test(unittest.TestCase):
    """psycopg2."""

    def setUp(self):
        """Connect, and make an empty table."""
        import psycopg2

        import gpuvec.psycopg2

        self.driver = gpuvec.psycopg2
        self.conn = psycopg2.connect("")
        self.addCleanup(self.conn.close)
        self.cur = self.conn.cursor()
        self.cur.execute(SETUP)
        self.driver.register(self.conn)

    def one(self, statement, *parameters):
        """Return the only row."""
        self.cur.execute(statement, parameters)
        return self.cur.fetchone()

    def test_values(self):
        """Sets, lists of sets and null, in and out."""
        for value in (IdSet([17, 3]), {3, 17}, frozenset(), IdSet([2**32 - 1])):
            (found,) = self.one("SELECT %s", value)
            self.assertEqual((type(found), found), (IdSet, value))
        sets = [IdSet([3]), IdSet([70000])]
        self.assertEqual(self.one("SELECT %s, NULL::idset", sets), (sets, None))

    def test_lists(self):
        """A list of numbers goes into a column."""
        self.cur.execute(f"INSERT INTO {TABLE} VALUES (1, %s)", ([17, 3, 17],))
        self.assertEqual(self.one(f"SELECT tokens FROM {TABLE}"), ({3, 17},))

    def test_operators(self):
        """Operators."""
        row = self.one("SELECT %s <-> %s, %s <%%> %s", {3, 17}, {3}, {3, 17}, {3})
        self.assertEqual(row, (0.5, 0.5))

    def test_schema(self):
        """The type is found in a schema that search_path does not name."""
        self.cur.execute("CREATE SCHEMA apart; ALTER EXTENSION gpuvec SET SCHEMA apart")
        self.driver.register(self.conn)
        self.assertEqual(self.one("SELECT %s, %s", {3}, [IdSet([4])]), ({3}, [{4}]))
        self.cur.execute(f"INSERT INTO {TABLE} VALUES (7, %s)", ({3},))
        matches = self.driver.topk_batch(self.conn, TABLE, "tokens", [{3}, {4}], 5)
        self.assertEqual((matches.query.tolist(), matches.key.tolist()), ([0], [7]))

    def test_copy_and_search(self):
        """COPY, back, and arrays of matches."""
        sets, queries = some_sets(300), some_sets(20, seed=2)
        self.driver.copy_sets(self.conn, TABLE, "tokens", sets, key_column="id", keys=range(300))
        keys, csr = self.driver.fetch_sets(self.conn, TABLE, "tokens", "id")
        self.assertEqual(dict(zip(keys.tolist(), csr.sets())), dict(enumerate(sets)))
        matches = self.driver.topk_batch(self.conn, TABLE, "tokens", queries, 5, measure="jaccard")
        check_matches(self, sets, queries, matches)
        check_dense(self, matches, 20)

    def test_names(self):
        """Names that look like numbers of parameters, and have quotes and marks."""
        table, key = 'gpuvec "$2" %s', "$1 %"
        quoted, quoted_key = '"gpuvec ""$2"" %%s"', '"$1 %%"'
        self.cur.execute(f"CREATE TABLE {quoted} ({quoted_key} bigint, tokens idset)", ())
        self.driver.copy_sets(self.conn, table, "tokens", [{3}], key_column=key, keys=[7])
        matches = self.driver.topk_batch(self.conn, table, "tokens", [{3}], 5, key_column=key)
        self.assertEqual(matches.key.tolist(), [7])


@needs("asyncpg", "numpy", "scipy")
class AsyncpgTest(unittest.TestCase):
    """asyncpg."""

    def test_all(self):
        """Values, COPY and search."""
        asyncio.run(self.everything())

    async def everything(self):
        """Connect, and do all."""
        import asyncpg

        import gpuvec.asyncpg as driver

        conn = await asyncpg.connect()
        try:
            await conn.execute(SETUP)
            await driver.register(conn)
            await self.values(conn)
            await self.copy_and_search(conn, driver)
            await self.schema(conn, driver)
        finally:
            await conn.close()

    async def values(self, conn):
        """Send and fetch sets and lists of numbers."""
        for value in (IdSet([17, 3]), {3, 17}, [3, 17], "{3,17}"):
            row = await conn.fetchrow("SELECT $1::idset, $1::idset <%> '{3}'", value)
            self.assertEqual(tuple(row), ({3, 17}, 0.5))
        sets = [IdSet([3]), IdSet([70000])]
        for forms in ([one.to_text() for one in sets], [one.to_binary() for one in sets]):
            self.assertEqual(await conn.fetchval("SELECT $1::idset[]", forms), sets)
        self.assertIsNone(await conn.fetchval("SELECT $1::idset", None))

    async def schema(self, conn, driver):
        """Search with the extension in a schema that search_path does not name."""
        await conn.execute("CREATE SCHEMA apart; ALTER EXTENSION gpuvec SET SCHEMA apart")
        try:
            matches = await driver.topk_batch(conn, TABLE, "tokens", [{3}], 5)
            self.assertGreater(len(matches.key), 0)
        finally:
            await conn.execute("ALTER EXTENSION gpuvec SET SCHEMA public; DROP SCHEMA apart")

    async def copy_and_search(self, conn, driver):
        """COPY, back, and arrays of matches."""
        sets, queries = some_sets(300), some_sets(20, seed=2)
        await driver.copy_sets(
            conn, ("public", TABLE), "tokens", sets, key_column="id", keys=range(300)
        )
        keys, csr = await driver.fetch_sets(conn, TABLE, "tokens", "id")
        self.assertEqual(dict(zip(keys.tolist(), csr.sets())), dict(enumerate(sets)))
        matches = await driver.topk_batch(conn, TABLE, "tokens", queries, 5, measure="jaccard")
        check_matches(self, sets, queries, matches)
        check_dense(self, matches, 20)


class OperationsTest(unittest.TestCase):
    """What all drivers share, without a server."""

    def nothing(self, conn, request):
        """Answer a request."""

    def test_signature(self):
        """Functions of drivers are shown with the arguments of their operations."""
        import inspect

        from gpuvec import operations

        function = operations.bound(operations.fetch_sets, self.nothing)
        parameters = list(inspect.signature(function).parameters)
        self.assertEqual(parameters, ["conn", "table", "column", "key_column"])
        self.assertEqual(function.__name__, "fetch_sets")
        self.assertIn("binary COPY", function.__doc__)
        function = operations.bound_async(operations.topk_batch, self.nothing, "_async")
        self.assertTrue(inspect.iscoroutinefunction(function))
        self.assertEqual(function.__name__, "topk_batch_async")
        with self.assertRaises(TypeError):
            asyncio.run(function(None, "docs", "tokens", [], unknown=1))


if __name__ == "__main__":
    unittest.main()
