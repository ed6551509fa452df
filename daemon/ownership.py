"""Are the four packages ours? Their names are common words, and python-daemon installs a `daemon` too."""

from __future__ import annotations

from collections.abc import Callable
from importlib.machinery import ModuleSpec
from importlib.util import find_spec
from pathlib import Path

import daemon
from daemon.exits import EX_SOFTWARE, UserError

PACKAGES = ("daemon", "streams", "learners", "checkpoints")


def foreign_packages(
    home: Path, find: Callable[[str], ModuleSpec | None] = find_spec
) -> list[tuple[str, str]]:
    """(package, where it would be imported from) for each package that does not lie in the folder `home`.

    `find` locates a package without importing it; by default the whole import system, editable installs
    included.
    """
    found = []
    for name in PACKAGES:
        spec = find(name)
        origin = spec.origin if spec is not None else None
        if origin is None or Path(origin).resolve().parent != home / name:
            found.append((name, origin or "nowhere"))
    return found


def check_ownership() -> None:
    """UserError when a package of another project stands where one of ours should."""
    home = Path(__file__).resolve().parent.parent
    if hasattr(daemon, "DaemonContext"):
        foreign = [("daemon", str(daemon.__file__))]
    else:
        foreign = foreign_packages(home)
    if foreign:
        places = "\n".join(
            f"package {name} is imported from {place}, not from {home}" for name, place in foreign
        )
        raise UserError(
            places,
            "another distribution installs the same name (python-daemon does): "
            "remove it, or give tripletd a virtual environment of its own",
            EX_SOFTWARE,
        )
