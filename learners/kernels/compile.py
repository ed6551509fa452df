"""One way to compile a kernel: fixed signature, fixed CPU level, no GIL, strict floating point, cached on
disk.

Why this is safe and reproducible:
- One signature per kernel, so one machine code per kernel: a single event and a batch run the same
  instructions. Inputs are typed read-only, which accepts writable arrays too.
- No fast-math: NaN tests must hold, and sums keep their written order.
- numba's disk cache writes to a temporary name and renames, so concurrent processes never read half a file;
  two that race for one kernel write the same code, since signature and CPU level are all that could differ. A
  file torn by a power cut fails to load; then, and where no cache directory is writable, the kernel is
  compiled in memory. `warm_up` of a learner checks a known answer before the first event, so stale code
  cannot go unnoticed.
- A cached kernel is renewed when *its own* file changes; touch the kernels when a helper in another file
  changes.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

from . import cpu as _cpu  # noqa: F401

from numba import njit, types  # isort: skip  (after the CPU level is fixed)

FLOATS = types.Array(types.float32, 1, "C", readonly=True)
DOUBLES = types.Array(types.float64, 1, "C", readonly=True)
ROWS = types.Array(types.float32, 2, "C", readonly=True)
INDICES = types.Array(types.int32, 1, "C", readonly=True)
POINTERS = types.Array(types.int64, 1, "C", readonly=True)
CSR = types.Tuple((POINTERS, INDICES, FLOATS))
FLOATS_OUT = types.float32[::1]
DOUBLES_OUT = types.float64[::1]
ROWS_OUT = types.float32[:, ::1]
INDICES_OUT = types.int32[::1]
POINTERS_OUT = types.int64[::1]
STEPS_OUT = types.Tuple((types.uint8[::1], FLOATS_OUT, FLOATS_OUT, types.uint8[::1]))

Csr: TypeAlias = tuple[Any, Any, Any]
"""indptr int64 [n + 1], indices int32, values float32, as kernels take them."""

Steps: TypeAlias = tuple[Any, Any, Any, Any]
"""outcome uint8, loss float32, tau float32, reason uint8, each [n]: the arrays of a `StepInfo`,
overwritten."""


def kernel(signature: Any) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Compile the decorated function for one numba signature, at import: from the cache, else anew."""

    def compiled(function: Callable[..., Any]) -> Callable[..., Any]:
        try:
            return njit(signature, nogil=True, cache=True)(function)  # type: ignore[no-any-return]
        except Exception:  # noqa: BLE001  a damaged or absent cache; an error of the kernel is raised again here
            return njit(signature, nogil=True)(function)  # type: ignore[no-any-return]

    return compiled


def inlined(function: Callable[..., Any]) -> Callable[..., Any]:
    """Compile a helper as part of each kernel that calls it."""
    return njit(nogil=True)(function)  # type: ignore[no-any-return]
