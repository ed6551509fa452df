"""Compiles every kernel before it is called: `python -P -m daemon.up.kernels`, for an image or a new machine.

Nobody has to. A role compiles what it calls and finds missing in the cache, and of several roles that miss
the same kernel one compiles it. Here two processes share all of them, one from each end.
"""

from __future__ import annotations

import importlib
import os
import sys
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

from daemon.exits import EX_OK, tell
from daemon.runtime.leaving import follow_lifeline
from daemon.up.role_process import RoleProcess

ROOT = Path(__file__).parents[2]
PACKAGES = ("learners.kernels", "streams.compiled")
PROGRAM = (sys.executable, "-P", "-m", "daemon.up.kernels")
BACKWARDS = "backwards"
LIMIT_SECONDS = 900.0


def modules() -> list[str]:
    """Every module of compiled code."""
    files = [
        (package, file) for package in PACKAGES for file in ROOT.joinpath(*package.split(".")).glob("*.py")
    ]
    return sorted(f"{package}.{file.stem}" for package, file in files if file.stem != "__init__")


def compile_all(say: Callable[[str], None]) -> None:
    """Compile everything that is missing; `say` is called with what is done, if anything is."""
    kernels, decoders = _imported()
    if not kernels.missing() and not decoders.missing():
        return
    began = time.monotonic()
    say("compiling all kernels for this machine, once: a minute or two")
    with Path(os.devnull).open("wb") as nowhere:
        other = RoleProcess("kernels", [BACKWARDS], False, log=nowhere, program=PROGRAM)
    kernels.load_all()
    decoders.load_all()
    other.finish(LIMIT_SECONDS)
    say(f"the kernels were compiled in {time.monotonic() - began:.0f} s")


def compile_backwards() -> None:
    """The work of the second process."""
    kernels, decoders = _imported()
    decoders.load_all(backwards=True)
    kernels.load_all(backwards=True)


def _imported() -> tuple[Any, Any]:
    for name in modules():
        importlib.import_module(name)
    kernels, decoders = (importlib.import_module(f"{package}.compile") for package in PACKAGES)
    return kernels, decoders


def main() -> int:
    """Compile all there is."""
    warnings.simplefilter("ignore")
    if BACKWARDS in sys.argv[1:]:
        follow_lifeline()
        compile_backwards()
    else:
        compile_all(lambda text: tell(f"{text}\n"))
    return EX_OK


if __name__ == "__main__":
    sys.exit(main())
