"""Cells of a column as texts, times, numbers or lists of them; a column is a pyarrow array, or a list of what
JSON held.

What is empty or null is None. A cell of JSON that is of another kind is a BadItemError in its place, for its
row alone; a column of another kind is a ValueError, for it is wrong in every row.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from streams.feed import items as reasons
from streams.feed.items import BadItemError
from streams.feed.mapping.mapping import UNITS
from streams.feed.parse import timestamp
from streams.tables import text_values
from streams.text_files import read_json

if TYPE_CHECKING:
    import pyarrow

Cells = Any
"""A pyarrow array, or a list of values that were JSON."""

DAY_MS = 86_400_000

YEAR_10000_MS = 253_402_300_800_000  # before which every date has four digits

_DIGITS = 30
"""Of a time that is written as a number: nanoseconds need 19."""


def values(array: pyarrow.Array[Any]) -> list[Any]:
    """The cells of a column; a BadItemError for each that is not UTF-8."""
    try:
        found: list[Any] = array.to_pylist()
        return found
    except UnicodeDecodeError:
        return [_guarded(_value, cell) for cell in array]


def _value(cell: pyarrow.Scalar[Any]) -> Any:
    try:
        return cell.as_py()
    except UnicodeDecodeError as error:
        raise BadItemError(reasons.NOT_UTF8, f"byte {error.start} is not UTF-8") from None


def texts(cells: Cells) -> list[Any]:
    """Texts; whole numbers are written as text."""
    if isinstance(cells, list):
        return [_guarded(_text, cell) for cell in cells]
    try:
        return [cell or None for cell in text_values(cells)]
    except UnicodeDecodeError:
        return [_guarded(_text, cell) for cell in values(cells)]


def times(cells: Cells, unit_ms: float) -> list[Any]:
    """Milliseconds since 1970: of timestamps, ISO 8601 text, or numbers of `unit_ms` milliseconds each."""
    if isinstance(cells, list):
        return [_guarded(lambda cell: _time(cell, unit_ms), cell) for cell in cells]
    import pyarrow
    from pyarrow import types

    kind = cells.type
    if types.is_timestamp(kind):
        cells, unit_ms = cells.cast(pyarrow.int64()), UNITS[kind.unit]
    elif types.is_date32(kind):
        cells, unit_ms = cells.cast(pyarrow.int32()).cast(pyarrow.int64()), DAY_MS
    elif types.is_date64(kind):
        cells, unit_ms = cells.cast(pyarrow.int64()), UNITS["ms"]
    elif types.is_decimal(kind):
        cells = cells.cast(pyarrow.float64())  # as an integer one beyond its range would be another time
    if types.is_integer(cells.type) and not cells.null_count:
        whole = cells.to_numpy(zero_copy_only=False)
        if len(whole) and whole.min() >= 0 and whole.max() < 2**63 / max(1, unit_ms):
            scaled = whole * round(unit_ms) if unit_ms >= 1 else whole // round(1 / unit_ms)
            found: list[Any] = scaled.tolist()
            return found
    texts_too = types.is_string(kind) or types.is_large_string(kind) or types.is_string_view(kind)
    if not texts_too and not any(
        fits(cells.type) for fits in (types.is_integer, types.is_floating, types.is_null)
    ):
        raise ValueError(f"is of type {kind}, which is no time")
    return [_guarded(lambda cell: _time(cell, unit_ms), cell) for cell in values(cells)]


def numbers(cells: Cells) -> list[Any]:
    """Numbers, also those that are written as text."""
    if not isinstance(cells, list):
        import pyarrow
        from pyarrow import types

        if types.is_nested(cells.type) or types.is_boolean(cells.type) or types.is_temporal(cells.type):
            raise ValueError(f"is of type {cells.type}, which is no number")
        try:
            found: list[Any] = cells.cast(pyarrow.float64()).to_pylist()
            if not any(one != one for one in found):  # noqa: PLR0124  not a number equals nothing
                return found
        except pyarrow.ArrowInvalid:
            pass
        cells = values(cells)
    return [_guarded(_number, cell) for cell in cells]


def conditions(cells: Cells) -> list[str | None]:
    """Cells as `where` compares them: numbers and truth values as text; an empty text is None."""
    if not isinstance(cells, list):
        import pyarrow
        from pyarrow import types

        if types.is_nested(cells.type):
            raise ValueError(f"is of type {cells.type}, which no value equals")
        cells = values(cells.cast(pyarrow.string()))
        return [None if isinstance(cell, BadItemError) else cell or None for cell in cells]
    return [_condition(cell) for cell in cells]


def _condition(cell: Any) -> str | None:
    if isinstance(cell, bool):
        return "true" if cell else "false"
    if isinstance(cell, float) and cell.is_integer():
        return str(int(cell))
    return str(cell) if isinstance(cell, str | int | float) and cell != "" else None


def lists(
    cells: Cells, separator: str | None, inner: Callable[[Cells], list[Any]], single: bool = False
) -> list[Any]:
    """Lists of what `inner` reads: of a list, of a JSON list written as text, or of text cut at the
    separator. single: anything else is a list of one."""
    if isinstance(cells, list):
        return [_list(cell, separator, inner, single) for cell in cells]
    from pyarrow import compute, types

    kind = cells.type
    if types.is_list(kind) or types.is_large_list(kind) or types.is_fixed_size_list(kind):
        flat = inner(cells.flatten())
        sizes = compute.fill_null(compute.list_value_length(cells), 0).to_numpy().tolist()
        made, at = [], 0
        for size in sizes:
            made.append(flat[at : at + size])
            at += size
        return made
    if types.is_dictionary(kind) or types.is_string(kind) or types.is_large_string(kind):
        return [_list(cell, separator, inner, single) for cell in values(cells)]
    if types.is_null(kind):
        return [[] for _ in range(len(cells))]
    if single:
        return [[] if cell is None else [cell] for cell in inner(cells)]
    raise ValueError(f"is of type {kind}, which is no list")


def _list(cell: Any, separator: str | None, inner: Callable[[Cells], list[Any]], single: bool) -> Any:
    if isinstance(cell, BadItemError):
        return cell
    if isinstance(cell, str):
        cell = cell.strip()
    if cell is None or cell == "":
        return []
    if isinstance(cell, str):
        if cell.startswith("["):
            try:
                cell = read_json(cell)
            except (ValueError, RecursionError):
                return BadItemError(reasons.NOT_JSON, f"{cell[:40]!r} begins like a JSON list and is none")
        elif separator is not None:
            cell = [one.strip() for one in cell.split(separator)]
        elif not single:
            return BadItemError(
                reasons.WRONG_TYPE, f"{cell[:40]!r} is text; say `separator`, or write a JSON list"
            )
    if not isinstance(cell, list) and not single:
        return BadItemError(reasons.WRONG_TYPE, f"{str(cell)[:40]} is no list")
    return inner(cell if isinstance(cell, list) else [cell])


def _guarded(convert: Callable[[Any], Any], cell: Any) -> Any:
    try:
        return cell if isinstance(cell, BadItemError) else convert(cell)
    except BadItemError as bad:
        return bad


def _text(cell: Any) -> str | None:
    if isinstance(cell, str):
        return cell or None
    if cell is None:
        return None
    if type(cell) is int:
        return str(cell)
    raise BadItemError(reasons.WRONG_TYPE, f"{str(cell)[:40]} is neither text nor a whole number")


def _time(cell: Any, unit_ms: float) -> int | None:
    if cell is None or cell == "":
        return None
    if isinstance(cell, str):
        text = cell.strip().removesuffix(" UTC")
        if not text.isdecimal() or len(text) > _DIGITS:
            return timestamp(text, "the time")
        cell = int(text)
    if isinstance(cell, bool) or not isinstance(cell, int | float) or not 0 <= cell < 2**63 / unit_ms:
        raise BadItemError(reasons.BAD_TIMESTAMP, f"the time {str(cell)[:40]} is no time since 1970")
    if unit_ms >= 1:
        return int(cell * unit_ms)
    return int(cell) // round(1 / unit_ms)


def _number(cell: Any) -> float | None:
    if cell is None or cell == "":
        return None
    if isinstance(cell, str | int | float) and not isinstance(cell, bool):
        try:
            number = float(cell)
        except (ValueError, OverflowError):
            number = np.nan
        if number == number:  # noqa: PLR0124  not a number equals nothing
            return number
    raise BadItemError(reasons.WRONG_TYPE, f"{str(cell)[:40]!r} is no number")


def first_filled(columns: Sequence[list[Any]], fits: Callable[[Any], bool]) -> list[Any]:
    """Row by row the first of several columns that holds something which fits; else the first that holds
    something."""
    if len(columns) == 1:
        return columns[0]
    found = []
    for row in zip(*columns, strict=True):
        filled = [cell for cell in row if cell is not None and cell != []]
        found.append(next(filter(fits, filled), filled[0] if filled else row[-1]))
    return found


def is_plausible(time: Any) -> bool:
    """Whether a cell is a time of the years 1970 to 9999, and no fault."""
    return isinstance(time, int) and time < YEAR_10000_MS
