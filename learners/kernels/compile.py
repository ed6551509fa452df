"""One way to compile a kernel: fixed signature, fixed CPU level, no GIL, strict floating point, cached on
disk.

Why this is safe and reproducible:
- One signature per kernel, so one machine code per kernel: a single event and a batch run the same
  instructions. Inputs are typed read-only, which accepts writable arrays too.
- No fast-math: NaN tests must hold, and sums keep their written order. `reassociated` helpers are the
  exception, and say so.
- The kernels have a compiler target of their own, at the level of `learners.kernels.cpu`. numba's settings
  and its target for the rest of the process stay as they are, whoever imports numba first.
- The disk cache lies in a folder named by a digest of all kernel sources: numba itself looks only at the file
  of a kernel, and would go on using code whose helpers have changed. numba writes to a temporary name and
  renames, so concurrent processes never read half a file. A file torn by a power cut fails to load; then, and
  where no cache folder is writable, the kernel is compiled in memory.
- A kernel is compiled, or loaded from the cache, when it is first called: a process needs few of them, and to
  compile all takes two minutes of processor time, to load all 0.6 s. Of several processes that miss the same
  kernel one compiles it and the others wait, a minute at most. Before the first one that is not in the cache,
  a `CompileNotice` says so.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import warnings
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from threading import Event
from typing import Any, BinaryIO, TypeAlias

from numba import config, njit, types
from numba.core.caching import NullCache
from numba.core.compiler_lock import global_compiler_lock
from numba.core.registry import cpu_target

from learners.errors import CompileNotice
from learners.kernels.cpu import CPU_FEATURES, CPU_NAME

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
LOOK_EVERY_S, LOOKS = 0.05, 1200
"""How often, and how many times at most, a process looks whether another one has compiled a kernel."""

_CONTEXTS = ("_toplevel_typing_context", "_toplevel_target_context")
"""What numba keeps, in its target for the processor, of all that was compiled for it; made when first asked
for."""
_of_kernels: dict[str, Any] = {}


@contextmanager
def _kernel_target() -> Iterator[None]:
    """numba compiles for the kernels' own target at their CPU level, and puts it into their cache."""
    kept: dict[str, Any] = cpu_target.__dict__
    with global_compiler_lock:
        settings = config.CPU_NAME, config.CPU_FEATURES, config.CACHE_DIR
        others = {name: kept.pop(name) for name in _CONTEXTS if name in kept}
        kept.update(_of_kernels)
        config.CPU_NAME, config.CPU_FEATURES = CPU_NAME, CPU_FEATURES
        config.CACHE_DIR = CACHE_FOLDER or config.CACHE_DIR
        try:
            yield
        finally:
            _of_kernels.update((name, kept.pop(name)) for name in _CONTEXTS if name in kept)
            kept.update(others)
            config.CPU_NAME, config.CPU_FEATURES, config.CACHE_DIR = settings


def _cached_names(folder: str | None) -> frozenset[str]:
    """What the kernels in a cache folder are called: `module.function-line`."""
    files = (name for _, _, names in os.walk(folder or "") for name in names if name.endswith(".nbi"))
    return frozenset(name.split(".py", 1)[0] for name in files)


_cached = _cached_names(CACHE_FOLDER)
_told = False


def _name_of(function: Callable[..., Any]) -> str:
    code = function.__code__
    return f"{function.__module__.rpartition('.')[2]}.{function.__qualname__}-{code.co_firstlineno}"


def _tell() -> None:
    """Say once that kernels are compiled."""
    global _told
    if _told:
        return
    _told = True
    kept = f"kept in {CACHE_FOLDER}" if CACHE_FOLDER else "in this process alone, for want of a cache folder"
    told = f"compiling kernels for this machine, once: up to a minute, {kept}"
    # Which line of a kernel's source it was tells nobody anything: shown is the library's name alone.
    warnings.warn_explicit(told, CompileNotice, "learners", 1)


def kernel(signature: Any) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Compile the decorated function for one numba signature, when it is first called."""

    def compiled(function: Callable[..., Any]) -> Callable[..., Any]:
        if config.DISABLE_JIT:
            return function
        with _kernel_target():
            try:
                dispatcher = njit(nogil=True, cache=CACHE_FOLDER is not None)(function)
            except RuntimeError:  # a function whose source numba cannot find has no place in a cache
                dispatcher = njit(nogil=True)(function)
        return _at_first_call(dispatcher, signature, _name_of(function))  # type: ignore[no-any-return]

    return compiled


def _at_first_call(dispatcher: Any, signature: Any, name: str) -> Any:
    """A dispatcher that has its one signature compiled, or loaded, when it is first asked for code.

    numba asks by these two methods: for a call from Python, and for one in a kernel that is being compiled.
    """
    template = dispatcher.get_call_template

    def load() -> None:
        with _kernel_target():
            if dispatcher.overloads:
                return  # another thread was first
            if name not in _cached and name not in _cached_names(CACHE_FOLDER):
                _tell()
            with _alone(name):
                try:
                    dispatcher.compile(signature)
                except Exception:  # noqa: BLE001  a damaged cache; an error of the kernel itself is raised again
                    dispatcher._cache = NullCache()
                    dispatcher.compile(signature)
            dispatcher.disable_compile()

    def for_call(*args: Any, **kwargs: Any) -> Any:
        load()
        return dispatcher  # numba calls it again, which now finds the code, or an argument that does not fit

    def for_kernel(*args: Any, **kwargs: Any) -> Any:
        load()
        return template(*args, **kwargs)

    dispatcher._compile_for_args, dispatcher.get_call_template = for_call, for_kernel
    _pending.append((name, load))
    return dispatcher


@contextmanager
def _alone(name: str) -> Iterator[None]:
    """Let one process at a time have a kernel compiled: the next one finds it in the cache. Kernels are taken
    in the order in which they call each other, so no two processes wait for one another. Nobody waits for
    long: the process that compiles may be frozen."""
    with ExitStack() as stack:
        if CACHE_FOLDER and name not in _cached:
            with suppress(OSError):  # where files cannot be locked, each compiles for itself
                lock = stack.enter_context(open(os.path.join(CACHE_FOLDER, f"{name}.lock"), "ab"))
                for _ in range(LOOKS):
                    if _is_locked(lock) or name in _cached_names(CACHE_FOLDER):
                        break
                    Event().wait(LOOK_EVERY_S)
        yield


def _is_locked(file: BinaryIO) -> bool:
    """Whether the lock of a file is this process's now."""
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


_pending: list[tuple[str, Callable[[], None]]] = []


def missing() -> list[str]:
    """The imported kernels that are neither loaded nor in the cache."""
    found = _cached_names(CACHE_FOLDER)
    return [name for name, _ in _pending if name not in found]


def load_all(backwards: bool = False) -> None:
    """Have every imported kernel that nobody has called yet compiled, or loaded: before a fork, and where the
    first call of each should cost no more than the others (about 15 ms each). backwards: in the other order,
    for one of two processes that share the work."""
    _pending.sort(key=lambda one: one[0], reverse=not backwards)
    while _pending:
        _pending.pop()[1]()


def inlined(function: Callable[..., Any]) -> Callable[..., Any]:
    """Compile a helper as part of each kernel that calls it."""
    with _kernel_target():
        return njit(nogil=True)(function)  # type: ignore[no-any-return]


def merged(function: Callable[..., Any]) -> Callable[..., Any]:
    """As `inlined`, for a helper in an inner loop that takes many arrays: to hand them on, number by number,
    takes longer than what it does with them. It has one caller, or is short."""
    with _kernel_target():
        return njit(nogil=True, forceinline=True)(function)  # type: ignore[no-any-return]


def reassociated(function: Callable[..., Any]) -> Callable[..., Any]:
    """As `inlined`, for a sum whose order the compiler may choose, once, for all events: so it can be
    vectorised. NaN and infinity still count."""
    with _kernel_target():
        return njit(nogil=True, fastmath={"reassoc", "contract", "nsz"})(function)  # type: ignore[no-any-return]
