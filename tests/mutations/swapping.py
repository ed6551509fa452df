"""A mutation without importing anything anew: the bodies of functions that are loaded already are replaced.

Only what runs when a function is called can be changed so. A difference in the body of a module or of a class
(a constant, a default, a decorator) needs a fresh import, and so does a compiled kernel.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator
from pathlib import Path
from types import CodeType, FunctionType

CO_OPTIMIZED = 1  # of a code object: a function, not the body of a module or class
COMPILED = ("kernels", "compiled")
"""Folders whose functions are machine code once they are imported."""


def changed_functions(
    path: Path, before: str, after: str, plain: bool = False
) -> dict[tuple[str, int], CodeType] | None:
    """(qualified name, first line before) -> the new code of each function that differs; None where
    something else differs too, and for machine code. plain: nothing is compiled."""
    compiled = path.parent.name in COMPILED or any(one in before for one in ("njit", "@kernel", "@inlined"))
    if compiled and not plain:
        return None
    found: dict[tuple[str, int], CodeType] = {}
    old, new = (compile(text, str(path), "exec") for text in (before, after))
    return found if _compare(old, new, found) else None


Functions = dict[tuple[str, str, int], list[FunctionType]]


def loaded_functions() -> Functions:
    """All functions there are, by file, qualified name and first line."""
    found: Functions = {}
    for one in gc.get_objects():
        if isinstance(one, FunctionType):
            code = one.__code__
            found.setdefault((code.co_filename, code.co_qualname, code.co_firstlineno), []).append(one)
    return found


def swap(path: Path, changed: dict[tuple[str, int], CodeType], functions: Functions) -> bool:
    """Give the loaded functions of a file their new code; whether every one was found and could take it."""
    for (name, line), code in changed.items():
        loaded = functions.get((str(path), name, line), ())
        if not loaded or any(len(one.__code__.co_freevars) != len(code.co_freevars) for one in loaded):
            return False
        for one in loaded:
            one.__code__ = code
    return True


def _compare(old: CodeType, new: CodeType, found: dict[tuple[str, int], CodeType]) -> bool:
    """Whether two bodies of a module or class differ in functions alone, which are put into `found`."""
    if len(old.co_consts) != len(new.co_consts) or (old.co_code, old.co_names) != (new.co_code, new.co_names):
        return False
    for mine, other in zip(old.co_consts, new.co_consts, strict=True):
        if not isinstance(mine, CodeType) or not isinstance(other, CodeType):
            if (type(mine), mine) != (type(other), other):
                return False
        elif mine.co_flags & CO_OPTIMIZED:
            if _shape(mine) != _shape(other):
                found[mine.co_qualname, mine.co_firstlineno] = other
        elif not _compare(mine, other, found):
            return False
    return True


def _shape(code: CodeType) -> tuple[object, ...]:
    """What a function does, without where its lines are."""
    return (code.co_code, code.co_names, code.co_varnames, code.co_freevars, tuple(_constants(code)))


def _constants(code: CodeType) -> Iterator[object]:
    for one in code.co_consts:
        yield _shape(one) if isinstance(one, CodeType) else (type(one), one)
