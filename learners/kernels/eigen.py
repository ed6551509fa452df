"""Eigendecomposition with the interpreter free meanwhile.

scipy.linalg.eigh keeps the interpreter's lock while LAPACK works: 0.3 s at 2,000 dimensions and seconds at
4,096, in which no other thread of the process moves. numpy's lets go of it but computes float32 in float64,
at twice the time and memory. So the same LAPACK routine is called here, through the address that scipy
exports for compiled code.
"""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import LinAlgError, cython_lapack

_TEXT, _INT, _FLOATS = ctypes.c_char_p, ctypes.POINTER(ctypes.c_int), ctypes.c_void_p


def symmetric_eigen(matrix: NDArray[np.float32]) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """Eigenvalues ascending, float32 [d], and orthonormal eigenvectors as columns, float32 [d, d].

    matrix: float32 [d, d], C-contiguous, symmetric; overwritten, and the vectors' memory after. LAPACK's
    ssyevd (divide and conquer), as scipy.linalg.eigh(driver="evd") to the bit. Raises LinAlgError where it
    does not converge, ValueError for another layout and for numbers that are not finite.
    """
    dim = matrix.shape[0]
    if matrix.shape != (dim, dim) or matrix.dtype != np.float32 or not matrix.flags.c_contiguous:
        raise ValueError(f"expected a square C-contiguous float32 matrix, not {matrix.dtype} {matrix.shape}")
    if not np.isfinite(matrix).all():
        raise ValueError("the matrix holds numbers that are not finite")
    values = np.empty(dim, np.float32)
    work, integers = np.empty(1, np.float32), np.empty(1, np.int32)
    _call(matrix, values, work, integers, -1)
    # The size comes back as a float32, which rounds large ones down: LAPACK's own formula is the floor.
    work = np.empty(max(int(work[0]), 1 + 6 * dim + 2 * dim * dim), np.float32)
    integers = np.empty(max(int(integers[0]), 3 + 5 * dim), np.int32)
    _call(matrix, values, work, integers, len(work))
    return values, matrix.T


def _call(
    matrix: NDArray[Any], values: NDArray[Any], work: NDArray[Any], integers: NDArray[Any], size: int
) -> None:
    """One call of ssyevd; size -1 asks for the lengths of `work` and `integers`."""
    dim, info = ctypes.c_int(matrix.shape[0]), ctypes.c_int(0)
    lengths = ctypes.c_int(size), ctypes.c_int(-1 if size == -1 else len(integers))
    _ssyevd(
        b"V", b"L", dim, matrix.ctypes.data, dim, values.ctypes.data,
        work.ctypes.data, lengths[0], integers.ctypes.data, lengths[1], info,
    )  # fmt: skip
    if info.value != 0:
        raise LinAlgError(f"the eigendecomposition did not converge (ssyevd: {info.value})")


def _routine(name: str) -> Any:
    """The exported routine of that name, to be called without the interpreter's lock."""
    capsule = cython_lapack.__pyx_capi__[name]
    text = ctypes.pythonapi.PyCapsule_GetName
    text.restype, text.argtypes = ctypes.c_char_p, [ctypes.py_object]
    address = ctypes.pythonapi.PyCapsule_GetPointer
    address.restype, address.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]
    arguments = (_TEXT, _TEXT, _INT, _FLOATS, _INT, _FLOATS, _FLOATS, _INT, _FLOATS, _INT, _INT)
    return ctypes.CFUNCTYPE(None, *arguments)(address(capsule, text(capsule)))


_ssyevd = _routine("ssyevd")
