"""One way to compile a kernel: fixed signature, fixed CPU level, no GIL, strict floating point, cached on
disk.

Why this is safe and reproducible:
- One signature per kernel, so one machine code per kernel: a single event and a batch run the same
  instructions. Inputs are typed read-only, which accepts writable arrays too.
- No fast-math: NaN tests must hold, and sums keep their written order.
- The disk cache lies in a folder named by a digest of all kernel sources: numba itself looks only at the file
  of a kernel, and would go on using code whose helpers have changed. numba writes to a temporary name and
  renames, so concurrent processes never read half a file, and two that race for one kernel write the same
  code. A file torn by a power cut fails to load; then, and where no cache folder is writable, the kernel is
  compiled in memory.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable
from typing import Any, TypeAlias

from learners.kernels import cpu as _cpu  # noqa: F401

from numba import config, njit, types  # isort: skip  (after the CPU level is fixed)

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


def _cache_folder() -> str | None:
    """Where this version's machine code is kept: below NUMBA_CACHE_DIR, beside the sources, or in the user's
    cache."""
    here = os.path.dirname(__file__)
    user = os.environ.get("XDG_CACHE_HOME") or os.path.join(os.path.expanduser("~"), ".cache")
    try:
        name = f"kernels-{_sources_digest(here)}"
    except OSError:
        return None
    bases = (config.CACHE_DIR, os.path.join(here, "__pycache__"), os.path.join(user, "tripletd"))
    for base in filter(None, bases):
        folder = os.path.join(base, name)
        try:
            os.makedirs(folder, exist_ok=True)
        except OSError:
            continue
        if os.access(folder, os.W_OK):
            return folder
    return None


def _sources_digest(folder: str) -> str:
    digest = hashlib.sha256()
    sources = [os.path.join(folder, name) for name in sorted(os.listdir(folder)) if name.endswith(".py")]
    for path in [*sources, os.path.join(folder, os.pardir, "outcome.py")]:
        with open(path, "rb") as source:
            digest.update(hashlib.sha256(source.read()).digest())
    return digest.hexdigest()[:16]


CACHE_FOLDER = _cache_folder()


def kernel(signature: Any) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Compile the decorated function for one numba signature, at import: from the cache, else anew."""

    def compiled(function: Callable[..., Any]) -> Callable[..., Any]:
        before = config.CACHE_DIR
        config.CACHE_DIR = CACHE_FOLDER or before
        try:
            return njit(signature, nogil=True, cache=CACHE_FOLDER is not None)(function)  # type: ignore[no-any-return]
        except Exception:  # noqa: BLE001  a damaged cache; an error of the kernel itself is raised again here
            return njit(signature, nogil=True)(function)  # type: ignore[no-any-return]
        finally:
            config.CACHE_DIR = before

    return compiled


def inlined(function: Callable[..., Any]) -> Callable[..., Any]:
    """Compile a helper as part of each kernel that calls it."""
    return njit(nogil=True)(function)  # type: ignore[no-any-return]
