"""How the decoder's functions are compiled, and the arrays that they read and fill.

One signature each, no interpreter lock, cached on disk. The cache lies in a folder named by a digest of
all that the machine code is made of, because numba itself looks only at the file of a function and would
keep using code whose helpers or constants have changed. numba writes to a temporary name and renames, so
that no process reads half a file; what fails to load is compiled in memory.

Nothing here computes a step: the results are bytes moved and compared, the same on every processor. A
process that needs a fixed processor level fixes it before numba is first imported.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from os import W_OK, access, environ
from pathlib import Path
from typing import Any

from numba import config, njit, types  # isort: skip


BYTES = types.Array(types.uint8, 1, "C", readonly=True)
LONGS = types.Array(types.int64, 1, "C", readonly=True)
SPANS = types.Array(types.int64, 4, "C", readonly=True)
"""What kernels read; a writable array is accepted too."""


def _cache_folder() -> str | None:
    """Where this version's machine code is kept: below NUMBA_CACHE_DIR, beside the sources, or in the user's
    cache."""
    here = Path(__file__).parent
    user = environ.get("XDG_CACHE_HOME") or Path("~/.cache").expanduser()
    try:
        name = f"decoder-{sources_digest(here)}"
    except OSError:
        return None
    for base in filter(None, (config.CACHE_DIR, here / "__pycache__", Path(user, "tripletd"))):
        folder = Path(base, name)
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError:
            continue
        if access(folder, W_OK):
            return str(folder)
    return None


def sources_digest(folder: Path) -> str:
    """Of all that machine code is made of: the sources in `folder`, and the format's limits beside it."""
    digest = hashlib.sha256()
    for source in [*sorted(folder.glob("*.py")), folder.parent / "limits.py"]:
        digest.update(hashlib.sha256(source.read_bytes()).digest())
    return digest.hexdigest()[:16]


CACHE_FOLDER = _cache_folder()


def _njit(*signature: Any, **options: Any) -> Callable[..., Callable[..., Any]]:
    """numba's njit without the interpreter lock and without reference counts: nothing compiled here makes or
    keeps an array, and counting took six times as long as reading."""
    return njit(*signature, nogil=True, _nrt=False, **options)  # type: ignore[no-any-return]


def kernel(signature: Any) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Compile the decorated function for one numba signature, at import: from the cache, else anew."""

    def compiled(function: Callable[..., Any]) -> Callable[..., Any]:
        before = config.CACHE_DIR
        config.CACHE_DIR = CACHE_FOLDER or before
        try:
            return _njit(signature, cache=CACHE_FOLDER is not None)(function)
        except Exception:  # noqa: BLE001  a damaged cache; an error of the function itself is raised again here
            return _njit(signature)(function)
        finally:
            config.CACHE_DIR = before

    return compiled


def inlined(function: Callable[..., Any]) -> Callable[..., Any]:
    """Compile a helper into each function that calls it: passing its arrays took longer than its work."""
    return _njit(no_cpython_wrapper=True, no_cfunc_wrapper=True, forceinline=True)(function)


SPACE = types.Tuple((BYTES, BYTES, LONGS, LONGS, types.int64))
"""id uint8; names uint8: the views' names one after another; bounds int64 [views + 1]: where each begins;
sizes int64 [views]: bytes of a dense vector, 0 for a sparse view; unnamed: the view that `x` fills, or -1."""

TABLE = types.Tuple(
    (
        types.int64[::1],
        types.int64[::1],
        types.float32[::1],
        types.uint64[::1],
        types.int32[:, ::1],
        types.int64[:, :, :, ::1],
        types.uint64[::1],
        types.uint8[:, ::1],
    )
)
"""Per event: record int64, its place in the batch; ts int64; weight float32; hash uint64 of its id; rows
int32 [3]: per role the catalog's row or -1; spans int64 [3, views, 3]: per role and view where its indices
begin (or its dense values), where its values begin, and how many bytes each of them has; source uint64: hash
of its `src`, 0 without one; key uint8 [64]: its `key`, filled up with zeros; no rows at all where keys are
not wanted."""
