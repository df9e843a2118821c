"""Writes f4.npy, arrays.npz and compressed.npz, for the tests of NumPy's file formats. Needs NumPy: python3 numpy_files.py"""

import pathlib

import numpy as np

folder = pathlib.Path(__file__).parent
arrays = {
    "f4": np.arange(6, dtype=np.float32).reshape(2, 3) / 2,
    "fortran": np.asfortranarray(np.arange(6, dtype=np.float64).reshape(1, 2, 3)),
    "i8": np.array([-5, 7], dtype=np.int64),
    "scalar": np.array(9, dtype=np.int32),
    "b1": np.array([True, False]),
    "empty": np.zeros((0, 4), dtype=np.uint16),
}
np.save(folder / "f4.npy", arrays["f4"])
np.savez(folder / "arrays.npz", **arrays)
np.savez_compressed(folder / "compressed.npz", **arrays)
