"""Sets as arrays, and the stream of a COPY, without a server."""

import unittest

from gpuvec import IdSet
from tests.base import needs, some_sets


@needs("numpy", "scipy")
class BulkTest(unittest.TestCase):
    """Csr and binary_copy."""

    def test_matrix(self):
        """The entries of a matrix that are not 0 are ids."""
        from scipy.sparse import csr_matrix

        from gpuvec.csr import as_csr

        matrix = csr_matrix(([1, 0, 2, 1, 1], ([0, 0, 1, 1, 1], [5, 6, 9, 2, 9])), shape=(3, 10))
        self.assertEqual(list(as_csr(matrix).sets()), [{5}, {2, 9}, set()])
        self.assertEqual(matrix.nnz, 4)

    def test_pair(self):
        """Arrays that are not in order, and repeat ids."""
        import numpy as np

        from gpuvec.csr import as_csr

        pair = (np.array([0, 3, 3, 5]), np.array([9, 2, 9, 1, 0]))
        self.assertEqual(list(as_csr(pair).sets()), [{2, 9}, set(), {0, 1}])

    def test_summed(self):
        """Entries of one place count together: their sum may be 0."""
        from scipy.sparse import csr_matrix

        from gpuvec.csr import as_csr

        matrix = csr_matrix(([1, -1, 1, 1], [5, 5, 7, 7], [0, 2, 4]), shape=(2, 10))
        self.assertEqual(list(as_csr(matrix).sets()), [set(), {7}])

    def test_given_csr(self):
        """What callers put into a Csr is checked as other arrays are."""
        import numpy as np

        from gpuvec.csr import Csr, as_csr

        csr = as_csr(Csr(np.array([0, 3]), np.array([9, 2, 9])))
        self.assertEqual(list(csr.sets()), [{2, 9}])
        for wrong in (-1, 2**32 + 5):
            with self.assertRaises(ValueError):
                as_csr(Csr(np.array([0, 1]), np.array([wrong])))

    def test_refuses(self):
        """Arrays that are no sets."""
        import numpy as np

        from gpuvec.csr import as_csr

        for indptr, indices in (
            ([0, 1], [-1]),
            ([0, 1], [2**32]),
            ([1, 1], [3]),
            ([0, 2], [3]),
            ([0, 2, 1, 3], [1, 2, 3]),
            ([0, 1, 2], [[1, 2], [3, 4]]),
        ):
            with self.assertRaises(ValueError):
                as_csr((np.array(indptr), np.array(indices)))
        with self.assertRaises(ValueError):
            as_csr((np.array([0, 65537]), np.arange(65537)))
        with self.assertRaises(TypeError):
            as_csr((np.array([0, 1]), np.array([1.5])))

    def test_stream(self):
        """What is written is read, with ids of two and of four bytes, in several parts."""
        import numpy as np

        from gpuvec import binary_copy
        from gpuvec.csr import as_csr

        rows, binary_copy.ROWS = binary_copy.ROWS, 7
        self.addCleanup(setattr, binary_copy, "ROWS", rows)
        for most_id in (200, 2**32):
            sets = some_sets(30, most_id)
            keys = np.arange(30) * 2**40
            data = b"".join(binary_copy.stream(as_csr(sets), keys))
            found, csr = binary_copy.read(data)
            self.assertEqual(found.tolist(), keys.tolist())
            self.assertEqual(list(csr.sets()), sets)

    def test_keys(self):
        """One key for each set, that fits."""
        import numpy as np

        from gpuvec.binary_copy import stream
        from gpuvec.csr import as_csr

        csr = as_csr([IdSet([1])])
        for keys, width in (([1, 2], 8), ([2**31], 4), ([-(2**15) - 1], 2)):
            with self.assertRaises(ValueError):
                list(stream(csr, np.array(keys), width))


if __name__ == "__main__":
    unittest.main()
