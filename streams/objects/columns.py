"""Which columns of a source are what: the id, the vectors, what people see."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import TypeAlias

from streams.event import UNNAMED_VIEW, SpaceSpec


@dataclass(frozen=True, slots=True)
class SparsePair:
    """A sparse vector in two columns of lists: those of its indices, and of its values."""

    indices: str
    values: str


VectorColumns: TypeAlias = str | tuple[str, ...] | SparsePair
"""Where a vector is: one column, or a pattern with * for a column per coordinate; such columns; a pair."""


@dataclass(frozen=True, slots=True)
class ObjectColumns:
    """The names of the columns, "" and empty for those that nothing was said of.

    x: the vector, where the space has one view. views: vectors by view. A name is that of a column, of an
    array, or of a key in a line of JSON; `a.b` is key `b` inside of `a`.
    """

    id: str = ""
    x: VectorColumns = ""
    views: Mapping[str, VectorColumns] = field(default_factory=dict)
    title: str = ""
    text: str = ""
    image: str = ""
    tags: tuple[str, ...] = ()

    def __bool__(self) -> bool:
        return self != ObjectColumns()

    def vectors(self, space: SpaceSpec | None) -> dict[str, VectorColumns]:
        """By view, where its vectors are, as far as something was said; ValueError with the remedy."""
        if self.x and self.views:
            raise ValueError("catalog.columns gives both x and views; x is for the only view of a space")
        if self.x:
            return {single_view(space): self.x}
        return dict(self.views)


def single_view(space: SpaceSpec | None) -> str:
    """The name of the only view; ValueError where the space has several."""
    if space is None:
        return UNNAMED_VIEW
    if len(space.views) != 1:
        names = ", ".join(view.name for view in space.views)
        raise ValueError(
            f"the space has the views {names}: say of each where it is, catalog.columns.views.NAME"
        )
    return space.views[0].name


def matching(pattern: VectorColumns, known: Sequence[str]) -> VectorColumns:
    """A pattern with * as the columns it means, in their order; anything else as it is.

    Raises ValueError naming the columns there are, where none fits.
    """
    if not isinstance(pattern, str) or "*" not in pattern or pattern in known:
        return pattern
    found = tuple(name for name in known if fnmatchcase(name, pattern))
    if not found:
        raise ValueError(f"no column fits {pattern!r}; there are {listed(known)}")
    return found


def listed(names: Sequence[str]) -> str:
    """Names for a message: the first twenty."""
    return ", ".join(names[:20]) + (", ..." if len(names) > 20 else "")
