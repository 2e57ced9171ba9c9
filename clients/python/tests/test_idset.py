"""The value and its two forms, without a server."""

import pickle
import struct
import unittest

from gpuvec import IdSet
from tests.base import needs


class IdSetTest(unittest.TestCase):
    """IdSet."""

    def test_is_a_set(self):
        """It behaves as a frozenset does."""
        ids = IdSet([17, 3, 17])
        self.assertEqual(list(ids), [3, 17])
        self.assertEqual(ids, {3, 17})
        self.assertEqual(hash(ids), hash(frozenset({3, 17})))
        self.assertEqual(ids & {17, 99}, IdSet([17]))
        self.assertLess(IdSet([3]), ids)
        self.assertIn(17, ids)
        self.assertNotIn(4, ids)
        self.assertNotIn("3", ids)
        self.assertNotEqual(ids, IdSet([3]))

    def test_text(self):
        """Text is read and written."""
        for ids in ([], [0], [3, 17, 2**32 - 1]):
            self.assertEqual(IdSet.from_text(IdSet(ids).to_text()), set(ids))
        self.assertEqual(IdSet([17, 3]).to_text(), "{3,17}")
        with self.assertRaises(ValueError):
            IdSet.from_text("3,17")

    def test_binary(self):
        """Ids of two bytes, of four, and none."""
        self.assertEqual(IdSet([17, 3]).to_binary(), struct.pack("!iHH", 2, 3, 17))
        self.assertEqual(IdSet([65536, 3]).to_binary(), struct.pack("!iII", -2, 3, 65536))
        self.assertEqual(IdSet().to_binary(), struct.pack("!i", 0))
        for ids in ([], [0, 65535], [0, 65536], [2**32 - 1]):
            self.assertEqual(IdSet.from_binary(IdSet(ids).to_binary()), set(ids))
        with self.assertRaises(ValueError):
            IdSet.from_binary(struct.pack("!iHH", 3, 3, 17))

    def test_refuses(self):
        """What is no id, or too many."""
        for wrong in ([-1], [2**32], range(65537)):
            with self.assertRaises(ValueError):
                IdSet(wrong)
        for wrong in ([1.5], ["3"], [None]):
            with self.assertRaises(TypeError):
                IdSet(wrong)

    def test_pickle(self):
        """It travels between processes."""
        self.assertEqual(pickle.loads(pickle.dumps(IdSet([3]))), {3})


@needs("numpy")
class NumpyTest(unittest.TestCase):
    """IdSet of arrays."""

    def test_arrays(self):
        """Arrays in and out, and what they may not have."""
        import numpy as np

        self.assertEqual(IdSet(np.array([17, 3, 17])), {3, 17})
        self.assertEqual(IdSet(np.array([], np.float64)), set())
        self.assertEqual(IdSet([3, 70000]).to_numpy().tolist(), [3, 70000])
        for wrong in ([-1], [2**32]):
            with self.assertRaises(ValueError):
                IdSet(np.array(wrong))
        with self.assertRaises(TypeError):
            IdSet(np.array([1.0]))


if __name__ == "__main__":
    unittest.main()
