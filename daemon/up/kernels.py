"""Compiles the kernels before anybody needs them: `python -P -m daemon.up.kernels`.

A role that finds a kernel missing in the cache compiles it for itself, so three that start together on a new
machine would compile the same code three times on the cores they share. `up`, `demo` and `make setup` have
two processes do it first: one goes through the modules from the front, one from the back, and each finds in
the cache what the other has done.

A note beside the cached code says that everything is there, so that a later start need not look. It is named
by the sources, Python and numba; whoever deletes the cache deletes the note. Where none can be written, or
compiling fails, the roles compile for themselves.
"""

from __future__ import annotations

import hashlib
import importlib
import os
import sys
import time
import warnings
from collections.abc import Callable
from contextlib import ExitStack, suppress
from importlib.metadata import version
from pathlib import Path

from daemon.exits import EX_OK, tell
from daemon.runtime.leaving import follow_lifeline
from daemon.up.role_process import RoleProcess

ROOT = Path(__file__).parents[2]
PACKAGES = ("learners.kernels", "streams.compiled")
LONGEST = "learners.kernels.omks_supports"
PROGRAM = (sys.executable, "-P", "-m", "daemon.up.kernels")
LOOK_SECONDS = 0.1
QUIET_SECONDS = 3.0
"""So long nothing is said: where all is in the cache but no note of it, it takes no longer."""
LIMIT_SECONDS = 900.0
END_SECONDS = 10.0


def sleep(seconds: float) -> bool:
    """Wait, with nobody who could ask for an end before."""
    time.sleep(seconds)
    return False


def compile_ahead(say: Callable[[str], None], wait: Callable[[float], bool] = sleep) -> None:
    """Compile every kernel that is not in the cache; at once where a note says that all are.

    Args:
        say: is told, where it takes more than a moment, what is done and at the end how long it took.
        wait: waits for so many seconds, and returns whether to leave before the end.
    """
    if noted():
        return
    began, said = time.monotonic(), False
    with ExitStack() as stack:
        nowhere = stack.enter_context(Path(os.devnull).open("wb"))
        compilers = [
            RoleProcess("kernels", [end], False, log=nowhere, program=PROGRAM) for end in ("front", "back")
        ]
        for one in compilers:
            stack.callback(_end, one)
        while any(one.poll() is None for one in compilers):
            spent = time.monotonic() - began
            if spent > QUIET_SECONDS and not said:
                say("compiling the kernels for this machine, once: a minute or two")
                said = True
            if wait(LOOK_SECONDS) or spent > LIMIT_SECONDS:
                return
    if said:
        say(f"the kernels were compiled in {time.monotonic() - began:.0f} s")


def modules() -> list[str]:
    """Every module of compiled code; that which takes longest is last, where one of two processes begins."""
    files = [(package, file) for package in PACKAGES for file in _sources(package)]
    found = [f"{package}.{file.stem}" for package, file in files if file.stem != "__init__"]
    return sorted(found, key=lambda name: (name == LONGEST, name))


def noted() -> bool:
    """Whether a note says that all of today's kernels are in the cache."""
    user = os.environ.get("XDG_CACHE_HOME") or Path("~/.cache").expanduser()
    places = (
        os.environ.get("NUMBA_CACHE_DIR"),
        ROOT / "learners" / "kernels" / "__pycache__",
        Path(user, "tripletd"),
    )
    name = note_name()
    return any(next(Path(place).glob(f"kernels-*/{name}"), None) is not None for place in places if place)


def note_name() -> str:
    """What the note is called: it changes with anything that makes numba compile again."""
    files = [file for package in PACKAGES for file in _sources(package)]
    told = [f"{file.name} {file.stat().st_size} {file.stat().st_mtime_ns}" for file in files]
    told += [sys.version, version("numba")]
    return f"complete-{hashlib.sha256(chr(10).join(told).encode()).hexdigest()[:16]}"


def _sources(package: str) -> list[Path]:
    return sorted(ROOT.joinpath(*package.split(".")).glob("*.py"))


def _end(compiler: RoleProcess) -> None:
    if compiler.poll() is None:
        compiler.terminate()
    compiler.finish(END_SECONDS)


def main() -> int:
    """Compile all there is; with `front` or `back` on the command line as one of two, from that end."""
    ends = {"front", "back"} & set(sys.argv[1:])
    if not ends:
        compile_ahead(lambda text: tell(f"{text}\n"))
        return EX_OK
    follow_lifeline()
    warnings.simplefilter("ignore")
    found = modules()
    for name in found if "front" in ends else reversed(found):
        importlib.import_module(name)
    folder = importlib.import_module("learners.kernels.compile").CACHE_FOLDER
    with suppress(OSError):  # the next start looks again
        if folder:
            Path(folder, note_name()).touch()
    return EX_OK


if __name__ == "__main__":
    sys.exit(main())
