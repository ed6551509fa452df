"""How the decoder's functions are compiled, and the arrays that they read and fill.

One signature each, no interpreter lock, cached on disk. The cache lies in a folder named by a digest of
all that the machine code is made of, because numba itself looks only at the file of a function and would
keep using code whose helpers or constants have changed. numba writes to a temporary name and renames, so
that no process reads half a file; what fails to load is compiled in memory. A function is compiled, or
loaded, when it is first called, and of several processes that miss it in the cache one compiles it.

Nothing here computes a step: the results are bytes moved and compared, the same on every processor. A
process that needs a fixed processor level fixes it before numba is first imported.
"""

from __future__ import annotations

import fcntl
import hashlib
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from os import W_OK, access, environ
from pathlib import Path
from typing import Any, BinaryIO

from numba import config, njit, types
from numba.core.caching import NullCache
from numba.core.compiler_lock import global_compiler_lock

BYTES = types.Array(types.uint8, 1, "C", readonly=True)
LONGS = types.Array(types.int64, 1, "C", readonly=True)
SPANS = types.Array(types.int64, 4, "C", readonly=True)
"""What kernels read; a writable array is accepted too."""


def _cache_folder() -> str | None:
    """Where this version's machine code is kept: below NUMBA_CACHE_DIR, next to the sources, or in the user's
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
    """Digest of everything that machine code is made from: the sources in `folder`, and the format's limits
    next to it."""
    digest = hashlib.sha256()
    for source in [*sorted(folder.glob("*.py")), folder.parent / "limits.py"]:
        digest.update(hashlib.sha256(source.read_bytes()).digest())
    return digest.hexdigest()[:16]


CACHE_FOLDER = _cache_folder()
LOOK_EVERY_S, LOOKS = 0.05, 1200
"""How often, and how many times at most, a process looks whether another one has compiled a function."""


def _njit(*signature: Any, **options: Any) -> Callable[..., Callable[..., Any]]:
    """numba's njit without the interpreter lock and without reference counts: nothing compiled here makes or
    keeps an array, and counting took six times as long as reading."""
    return njit(*signature, nogil=True, _nrt=False, **options)  # type: ignore[no-any-return]


def kernel(signature: Any) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Load the decorated function's machine code for one numba signature from the cache when it is first
    called, else compile it."""

    def compiled(function: Callable[..., Any]) -> Callable[..., Any]:
        if config.DISABLE_JIT:
            return function
        with _cache_here():
            try:
                dispatcher = _njit(cache=CACHE_FOLDER is not None)(function)
            except RuntimeError:  # a function whose source numba cannot find has no place in a cache
                dispatcher = _njit()(function)
        return _at_first_call(dispatcher, signature)  # type: ignore[no-any-return]

    return compiled


@contextmanager
def _cache_here() -> Iterator[None]:
    before = config.CACHE_DIR
    config.CACHE_DIR = CACHE_FOLDER or before
    try:
        yield
    finally:
        config.CACHE_DIR = before


def _at_first_call(dispatcher: Any, signature: Any) -> Any:
    """A dispatcher that has its one signature compiled when numba first asks it for code: for a call from
    Python, or for one in a function that is being compiled."""
    template, name = dispatcher.get_call_template, dispatcher.py_func.__qualname__

    def load() -> None:
        with global_compiler_lock:
            if dispatcher.overloads:
                return  # another thread was first
            with _cache_here(), _alone(name):
                try:
                    dispatcher.compile(signature)
                except Exception:  # noqa: BLE001  a damaged cache; an error of the function itself is raised again
                    dispatcher._cache = NullCache()
                    dispatcher.compile(signature)
            dispatcher.disable_compile()

    def for_call(*args: Any, **kwargs: Any) -> Any:
        load()
        return dispatcher  # numba calls it again

    def for_function(*args: Any, **kwargs: Any) -> Any:
        load()
        return template(*args, **kwargs)

    dispatcher._compile_for_args, dispatcher.get_call_template = for_call, for_function
    _pending.append((name, load))
    return dispatcher


@contextmanager
def _alone(name: str) -> Iterator[None]:
    """Let one process at a time have a function compiled: the next one finds it in the cache. Nobody waits
    for long: the process that compiles may be frozen."""
    with ExitStack() as stack:
        if CACHE_FOLDER:
            with suppress(OSError):  # where files cannot be locked, each compiles for itself
                lock = stack.enter_context(Path(CACHE_FOLDER, f"{name}.lock").open("ab"))
                for _ in range(LOOKS):
                    if _is_locked(lock) or _is_cached(name):
                        break
                    time.sleep(LOOK_EVERY_S)
        yield


def _is_locked(file: BinaryIO) -> bool:
    """Whether the lock of a file is this process's now."""
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _is_cached(name: str) -> bool:
    files = () if CACHE_FOLDER is None else Path(CACHE_FOLDER).rglob("*.nbi")
    return any(f".{name}-" in file.name for file in files)


_pending: list[tuple[str, Callable[[], None]]] = []


def missing() -> list[str]:
    """The imported functions that are neither loaded nor in the cache."""
    return [name for name, _ in _pending if not _is_cached(name)]


def load_all(backwards: bool = False) -> None:
    """Have every imported function that nobody has called yet compiled, or loaded; backwards: in the other
    order, for one of two processes that share the work."""
    _pending.sort(key=lambda one: one[0], reverse=not backwards)
    while _pending:
        _pending.pop()[1]()


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
        types.uint8[::1],
        types.uint8[:, ::1],
    )
)
"""Per event: record int64, its place in the batch; ts int64; weight float32; hash uint64 of its id; rows
int32 [3]: per role the catalog's row or -1; spans int64 [3, views, 3]: per role and view where its indices
begin (or its dense values), where its values begin, and how many bytes each of them has; source uint64: hash
of its `src`, 0 without one; pair uint8: its `pair`, 0 without one; key uint8 [64]: its `key`, filled up with
zeros; no rows at all where keys are not wanted."""
