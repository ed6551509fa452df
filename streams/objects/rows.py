"""Objects as a reader hands them over: batches of ids, vectors by view, and what people see of them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from streams.event import Column, DenseColumn, SpaceSpec, SparseColumn, ViewSpec, kind_of
from streams.items import Display, pack_display
from streams.limits import MAX_SHOWN_TEXT_BYTES
from streams.objects.columns import ObjectColumns
from streams.poison import Poison
from streams.text_files import read_json

BATCH_ROWS = 1024
"""Objects of a batch: of 1,536 coordinates each, 6 MB."""


Tell = Callable[[str], None]
"""Hears how far reading is."""


class CatalogError(Exception):
    """A catalog that cannot be used; the message names the file, the line or array, and the remedy."""


def unreadable(path: Path | str, error: OSError) -> CatalogError:
    """For a file that the system does not open."""
    return CatalogError(f"{path}: {error.strerror or error}; correct the path or its permissions")


class CatalogAway(CatalogError):
    """Where the objects live does not answer; asking again later may help."""


@dataclass(frozen=True, slots=True)
class ObjectRows:
    """n objects that follow each other in their source.

    views: by name, a column of n rows; the size of a sparse one counts for nothing here. shown: packed
    display data of each, b"" for none; None where the source has none at all. place: of row i, its place in
    the source, for messages.
    """

    ids: Sequence[str]
    views: dict[str, Column]
    shown: Sequence[bytes] | None
    place: Callable[[int], str]

    def __len__(self) -> int:
        return len(self.ids)


class ObjectReader(Protocol):
    """A source of objects that is open: its form is known, its objects are not read yet."""

    @property
    def space(self) -> SpaceSpec | None:
        """The space that the source itself states; None where it says nothing of one."""

    def rows(self) -> int | None:
        """How many objects there are; None where only reading them all would tell."""

    def batches(self) -> Iterator[ObjectRows]:
        """The objects in their order, few at a time. Raises CatalogError."""


class LivePlace(Protocol):
    """Where objects live that change while roles run: a table of a database, a topic. `str` names it for
    messages, `repr` says what it is wherever the server is that has it; neither holds a secret."""

    def opened(
        self, columns: ObjectColumns, space: SpaceSpec | None, folder: Path | None, tell: Tell
    ) -> AbstractContextManager[tuple[str, ObjectReader]]:
        """The objects as they stand at one moment: a text that names their state, and a reader of that very
        state, whatever is written meanwhile. The same text means the same objects.

        folder: for what has to wait on a disk, None for the system's. tell: hears how far reading is, where
        that is long before the first object. Raises CatalogError, CatalogAway, and errors of streams.
        """


class RowChecks:
    """What every source's objects are held against: ids, views of the first and of the space, numbers.

    With a space, sparse indices must lie within its views too.
    """

    def __init__(self, space: SpaceSpec | None) -> None:
        self._space = space
        self._wanted = {} if space is None else {view.name: view for view in space.views}
        self._first: dict[str, ViewSpec] = {}

    def check(self, rows: ObjectRows) -> None:
        """Raises CatalogError naming the place of the first object that cannot be used, and the remedy."""
        for row, object_id in enumerate(rows.ids):
            if not object_id:
                raise CatalogError(f"{rows.place(row)}: the id is empty; give every object one")
            try:
                object_id.encode()
            except UnicodeEncodeError:
                raise CatalogError(
                    f"{rows.place(row)}: the id holds half a character (a lone surrogate), which UTF-8 "
                    "cannot write"
                ) from None
        for name, column in rows.views.items():
            self._fits(name, column, rows.place)
            wrong = faulty_rows(column, self._wanted[name].dim if name in self._wanted else 2**31)
            if len(wrong):
                raise CatalogError(f"{rows.place(int(wrong[0][0]))}, view {name!r}: {wrong[0][1]}")

    def _fits(self, name: str, column: Column, place: Callable[[int], str]) -> None:
        kind, dim = kind_of(column), column.dim
        wanted = self._wanted.get(name)
        if self._space is not None and wanted is None:
            known = ", ".join(self._wanted)
            raise CatalogError(
                f"{place(0)}: there is a view {name!r}, the space has {known}; make them agree"
            )
        if wanted is None:
            wanted = self._first.setdefault(name, ViewSpec(name, kind, dim))
        of = "first object" if self._space is None else "space"
        if kind != wanted.kind or (kind == "dense" and dim != wanted.dim):
            raise CatalogError(
                f"{place(0)}: view {name!r} is {kind} with {dim} coordinates, "
                f"{wanted.kind} with {wanted.dim} in the {of}; make them agree"
            )


def faulty_rows(column: Column, dim: int) -> list[tuple[int, str]]:
    """The first row whose numbers cannot be used, with the reason and the remedy; empty where all can.

    dim: sparse indices lie below it.
    """
    if isinstance(column, DenseColumn):
        sound = np.isfinite(column.values).all(axis=1)
        return [] if sound.all() else [(int(np.argmin(sound)), _NOT_FINITE)]
    starts, indices = column.indptr, column.indices
    rising = np.ones(len(indices), np.bool_)
    rising[1:] = indices[1:] > indices[:-1]
    first = starts[:-1]
    rising[first[first < len(indices)]] = True  # a new row may start lower
    for bad, reason in (
        (~np.isfinite(column.values), _NOT_FINITE),
        ((indices < 0) | (indices >= dim), f"an index is not within 0..{dim - 1}; correct it"),
        (~rising, "indices are not strictly increasing; sort them"),
    ):
        if bad.any():
            return [(row_of_entry(starts, int(np.argmax(bad))), reason)]
    return []


_NOT_FINITE = "a number is not finite in float32; leave the object out, or correct it"


def row_of_entry(indptr: NDArray[np.int64], entry: int) -> int:
    """The row that an entry of a sparse column belongs to."""
    return int(np.searchsorted(indptr, entry, side="right")) - 1


def concatenated(pieces: Sequence[Column], dim: int) -> Column:
    """The rows of columns of one kind, one below the other; `dim` is the size of a sparse result."""
    first = pieces[0]
    if isinstance(first, DenseColumn):
        return DenseColumn(np.concatenate([one.values for one in pieces]))
    sparse = [one for one in pieces if isinstance(one, SparseColumn)]
    lengths = np.concatenate([np.diff(one.indptr) for one in sparse])
    indptr = np.zeros(len(lengths) + 1, np.int64)
    np.cumsum(lengths, out=indptr[1:])
    return SparseColumn(
        indptr, np.concatenate([p.indices for p in sparse]), np.concatenate([p.values for p in sparse]), dim
    )


def packed_display(display: Display) -> bytes:
    """Display data as kept with vectors; ValueError names the field that does not fit, and the remedy."""
    try:
        return pack_display(display)
    except Poison as error:
        raise ValueError(f"{error.detail}; shorten it, or leave it out") from None
    except UnicodeEncodeError:
        raise ValueError("a text holds half a character (a lone surrogate); leave it out") from None


def shown_of(texts: Mapping[str, str | None], tags: Sequence[Any]) -> bytes:
    """Packed display data of title, text and image, the former two cut to what may be shown, and of the cells
    of tags; ValueError as `packed_display`."""
    given = {name: cut(text) if name != "image" else text for name, text in texts.items() if text}
    found = tags_of(tags)
    return packed_display(Display(**given, tags=found)) if given or found else b""


def cut(text: str) -> str:
    """A text as long as may be shown."""
    encoded = text.encode(errors="replace")
    if len(encoded) <= MAX_SHOWN_TEXT_BYTES:
        return text
    return encoded[: MAX_SHOWN_TEXT_BYTES - 3].decode(errors="ignore") + "…"


def tags_of(cells: Sequence[Any]) -> tuple[str, ...]:
    """Tags from cells: texts and numbers are one tag each, lists several, nothing none; each tag once.

    A text that is a list in JSON is that list, as CSV has no other.
    """
    found, waiting = dict[str, None](), list(reversed(cells))
    while waiting:
        cell = waiting.pop()
        if isinstance(cell, str) and cell.startswith("[") and cell.endswith("]"):
            try:
                waiting.append(read_json(cell))
            except (ValueError, RecursionError):
                found[cell] = None
        elif isinstance(cell, list | tuple):
            waiting += reversed(cell)
        elif cell is not None and cell != "":
            found[str(cell)] = None
    return tuple(found)
