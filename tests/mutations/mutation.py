"""One mutation: a small change of product code, found by its text, and who must notice.

Files of the product are merged and renamed, so that a mutation names no file: it names a package, a text that
marks the place (a function's first line, say), and the first piece of code after it that is changed. White
space does not count. Where code was rewritten, the same change is stated again for the new form; whichever
form is found first is applied.
"""

from __future__ import annotations

import re
import shlex
from dataclasses import dataclass
from functools import cache
from pathlib import Path

REACH = 12_000
"""How many characters after the mark the changed code begins at most."""


@dataclass(frozen=True)
class Change:
    """After `mark` (anywhere when empty; then `old` must be there once), `old` becomes `new`."""

    mark: str
    old: str
    new: str


@dataclass(frozen=True)
class Mutation:
    """A change in one package, and the tests that must fail with it: pytest's words, paths below `tests`."""

    name: str
    package: str
    changes: tuple[Change, ...]
    tests: str
    compiled: tuple[
        str, ...
    ] = ()  # of a helper of many kernels: those that get the change, the others do not


def mutation(
    name: str,
    package: str,
    mark: str,
    old: str,
    new: str,
    tests: str,
    *restated: tuple[str, str, str],
    compiled: tuple[str, ...] = (),
) -> Mutation:
    """A mutation with the forms of its change."""
    changes = (Change(mark, old, new), *(Change(*one) for one in restated))
    return Mutation(name, package, changes, tests, compiled)


class NotFound(Exception):
    """The code of a mutation is nowhere, or in more than one place."""


@dataclass(frozen=True)
class Place:
    """Where a mutation applies: the file, what it holds, and what it holds when mutated."""

    path: Path
    before: str
    after: str


def find(one: Mutation, root: Path) -> Place:
    """Where it applies in the tree at `root`, whose files are read once. Raises NotFound."""
    files = _texts(root / one.package)
    why = []
    for change in one.changes:
        try:
            return _place(change, files)
        except NotFound as problem:
            why.append(str(problem))
    raise NotFound(f"{one.name}: {'; '.join(why)}")


@cache
def _texts(folder: Path) -> dict[Path, str]:
    return {path: path.read_text(encoding="utf-8") for path in sorted(folder.rglob("*.py"))}


def words(one: Mutation, root: Path) -> list[str]:
    """pytest's words for its tests, paths from `root` on; a file that has moved is looked for by its name.

    Raises NotFound for tests that are not there.
    """
    found: list[str] = []
    for word in shlex.split(one.tests):
        path, *rest = word.split("::")
        if path.endswith(".py"):
            path = f"tests/{path}"
            if not (root / path).exists():
                moved = sorted((root / "tests").rglob(Path(path).name))
                if len(moved) != 1:
                    raise NotFound(f"{one.name}: there are no tests {path}")
                path = str(moved[0].relative_to(root))
            word = "::".join([path, *rest])
        elif found[-1:] != ["-k"] and not word.startswith("-"):
            if not (root / "tests" / path).is_dir():
                raise NotFound(f"{one.name}: there are no tests tests/{path}")
            word = f"tests/{path}"
        found.append(word)
    return found


def _place(change: Change, files: dict[Path, str]) -> Place:
    old, wanted = _pattern(change.old), {*change.mark.split(), *change.old.split()}
    files = {path: text for path, text in files.items() if all(word in text for word in wanted)}
    if change.mark:
        marks = [
            (path, text, found)
            for path, text in files.items()
            for found in _pattern(change.mark).finditer(text)
        ]
        spans = [
            (path, text, old.search(text, mark.start(), mark.start() + REACH)) for path, text, mark in marks
        ]
        what = f"{change.mark!r}, then {change.old!r}"
    else:
        spans = [(path, text, found) for path, text in files.items() for found in old.finditer(text)]
        what = repr(change.old)
    places = {(path, found.span()): (text, found) for path, text, found in spans if found is not None}
    if len(places) != 1:
        raise NotFound(f"{what} is in {len(places)} places")
    (path, (start, end)), (text, _) = next(iter(places.items()))
    return Place(path, text, text[:start] + change.new + text[end:])


def _pattern(text: str) -> re.Pattern[str]:
    """The text, whatever white space stands between its words."""
    return re.compile(r"\s+".join(re.escape(word) for word in text.split()))
