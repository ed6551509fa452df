"""Learners of similarity from triplets, as a plain numeric library.

Every learner, form, map, setting and search can be imported from here; each is loaded when it is first
asked for, so that `import learners` is quick. See docs/learners.md.
"""

from __future__ import annotations

import re
from importlib import import_module
from pkgutil import get_data
from typing import Any

_NAMES = (get_data(__name__, "__init__.pyi") or b"").decode()
_MODULES = {name: module for module, name in re.findall(r"^from (\S+) import (\w+)", _NAMES, re.MULTILINE)}
"""Where each public name is defined: said once, as type checkers read it."""

__all__ = sorted(_MODULES)  # noqa: PLE0605


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(_MODULES[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return [*globals(), *_MODULES]
