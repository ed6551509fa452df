"""Where a value stands in a row, and fetching it: from columns of a table, or from rows that were JSON.

    query                       a column
    device.category             a field of a struct; of a column of JSON text, too
    items[0].item_id            of the first entry of a list
    items[].item_id             of every entry of a list: gives a list
    event_params[search_term]   the `value` of the entry of a list whose `key` is that; or the entry of a map
    anonymousId | anonymous_id  the first of several that holds something; of times, one that can be
    products[].position?        may be absent from a file

A struct of which one field is filled (`{"string_value": null, "int_value": 7}`) counts as that field.
Columns go through pyarrow as columns; only JSON inside of text is looked at row by row.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from streams.feed import items as reasons
from streams.feed.items import BadItemError
from streams.text_files import read_json

if TYPE_CHECKING:
    import pyarrow


@dataclass(frozen=True, slots=True)
class Step:
    """One step down: to a field, to the entry of a map by its key, to an entry of a list, or to each."""

    kind: Literal["field", "key", "index", "each"]
    name: str = ""
    at: int = 0

    def __str__(self) -> str:
        return {"field": f".{self.name}", "key": f"[{self.name}]", "index": f"[{self.at}]", "each": "[]"}[
            self.kind
        ]


Steps = tuple[Step, ...]

_TOKEN = re.compile(r"\s*(?:(?P<dot>\.)|\[(?P<inner>[^\[\]]*)\]|(?P<name>[^.\[\]|?]+))")


@dataclass(frozen=True, slots=True)
class ColumnPath:
    """A path as it was written, and its alternatives; `optional`: it may be absent from every file."""

    text: str
    alternatives: tuple[Steps, ...]
    optional: bool = False

    @property
    def is_list(self) -> bool:
        """Whether it gives a list by itself."""
        return any(step.kind == "each" for step in self.alternatives[0])


def parse_path(text: str) -> ColumnPath:
    """The path that a mapping names. Raises ValueError."""
    written = text.strip()
    optional = written.endswith("?")
    parsed = tuple(_steps(part, text) for part in written.removesuffix("?").split("|"))
    path = ColumnPath(text, parsed, optional)
    if len({any(step.kind == "each" for step in steps) for steps in parsed}) > 1:
        raise ValueError(f"{text!r} has an alternative that is a list and one that is not")
    return path


def _steps(text: str, whole: str) -> Steps:
    steps: list[Step] = []
    at, expected = 0, True
    stripped = text.rstrip()
    while at < len(stripped):
        found = _TOKEN.match(stripped, at)
        if found is None:
            raise ValueError(f"{whole!r} is no path at {stripped[at : at + 10]!r}")
        at = found.end()
        if found["dot"] is not None:
            if expected:
                raise ValueError(f"{whole!r} has a dot that no name comes before")
            expected = True
        elif found["name"] is not None:
            if not expected:
                raise ValueError(f"{whole!r} has a name that no dot comes before")
            steps.append(Step("field", found["name"].strip()))
            expected = False
        else:
            if expected:
                raise ValueError(f"{whole!r} has a bracket that no name comes before")
            inner = found["inner"].strip()
            if not inner:
                steps.append(Step("each"))
            else:
                steps.append(Step("index", at=int(inner)) if inner.isdecimal() else Step("key", inner))
    if expected:
        raise ValueError(f"{whole!r} ends where a name is missing")
    if sum(step.kind == "each" for step in steps) > 1:
        raise ValueError(f"{whole!r} has [] twice; a list of lists is no list of objects")
    return tuple(steps)


def value_at(value: Any, steps: Sequence[Step]) -> Any:
    """What stands there in a row that was JSON; None where nothing does. Text on the way is read as JSON.

    Raises BadItemError for a step that this kind of value does not have.
    """
    for number, step in enumerate(steps):
        if isinstance(value, str):
            value = _json(value, step)
        if value is None:
            return None
        if step.kind == "each":
            if not isinstance(value, list):
                raise _wrong(value, step)
            return [value_at(one, steps[number + 1 :]) for one in value]
        value = _down(value, step)
    if isinstance(value, dict):
        filled = [one for one in value.values() if one is not None]
        return filled[0] if len(filled) == 1 else (value if filled else None)
    return value


def _down(value: Any, step: Step) -> Any:
    if step.kind == "index" and isinstance(value, list):
        return value[step.at] if step.at < len(value) else None
    if step.kind == "key" and isinstance(value, list):
        named = (one for one in value if isinstance(one, dict) and one.get("key") == step.name)
        return next(named, {}).get("value")
    if step.kind in ("field", "key") and isinstance(value, dict):
        return value.get(step.name)
    raise _wrong(value, step)


def _json(text: str, step: Step) -> Any:
    if not text:
        return None
    try:
        return read_json(text)
    except (ValueError, RecursionError):
        raise BadItemError(
            reasons.NOT_JSON, f"{text[:40]!r} is no JSON, in which {step} is looked for"
        ) from None


def _wrong(value: Any, step: Step) -> BadItemError:
    kind = "a map" if isinstance(value, dict) else "a list" if isinstance(value, list) else f"{value!r:.40}"
    return BadItemError(reasons.WRONG_TYPE, f"{kind} has no {step}")


class NoSuchFieldError(Exception):
    """A column of a table that has not what a path names; the message says what it has."""


class RowByRow(Exception):
    """The way goes through text: pyarrow cannot go it."""


def column_at(array: pyarrow.Array[Any], steps: Sequence[Step]) -> pyarrow.Array[Any]:
    """What stands there, for every row of a column: an array as long, of lists below `[]`.

    Raises NoSuchFieldError; RowByRow where text has to be read as JSON.
    """
    import pyarrow
    from pyarrow import compute, types

    if types.is_dictionary(array.type):
        array = array.dictionary_decode()
    kind = array.type
    if not steps:
        return _filled_column(array) if types.is_struct(kind) else array
    step, rest = steps[0], steps[1:]
    if types.is_string(kind) or types.is_large_string(kind) or types.is_string_view(kind):
        raise RowByRow
    if types.is_null(kind):
        return pyarrow.nulls(len(array))
    if types.is_map(kind) and step.kind in ("field", "key"):
        return column_at(compute.map_lookup(array, step.name, "first"), rest)
    if types.is_struct(kind) and step.kind in ("field", "key"):
        if kind.get_field_index(step.name) < 0:
            known = ", ".join(field.name for field in kind)
            raise NoSuchFieldError(f"has no field {step.name!r}; it has {known}")
        return column_at(compute.struct_field(array, step.name), rest)
    return _in_list(array, step, rest)


def _in_list(array: pyarrow.Array[Any], step: Step, rest: Sequence[Step]) -> pyarrow.Array[Any]:
    import pyarrow
    from pyarrow import compute, types

    kind = array.type
    if not (types.is_list(kind) or types.is_large_list(kind) or types.is_fixed_size_list(kind)):
        raise NoSuchFieldError(f"is of type {kind}, which has no {step}")
    if step.kind == "field":
        raise NoSuchFieldError(f"is a list; write [0]{step} of its first entry, or []{step} of each")
    flat = array.flatten()
    sizes = compute.fill_null(compute.list_value_length(array), 0).to_numpy().astype(np.int64)
    ends = np.cumsum(sizes)
    if step.kind == "each":
        offsets = pyarrow.array(np.concatenate([[0], ends]).astype(np.int64))
        return pyarrow.LargeListArray.from_arrays(offsets, column_at(flat, rest))
    if step.kind == "index":
        chosen = np.where(sizes > step.at, ends - sizes + step.at, -1)
        return column_at(_taken(flat, chosen), rest)
    return column_at(_by_key(flat, np.repeat(np.arange(len(array)), sizes), len(array), step), rest)


def _by_key(
    entries: pyarrow.Array[Any], row_of: np.ndarray[Any, Any], rows: int, step: Step
) -> pyarrow.Array[Any]:
    """Of entries `{key, value}`, the value of the first of each row whose key is the step's name."""
    from pyarrow import compute, types

    if not types.is_struct(entries.type) or entries.type.get_field_index("key") < 0:
        raise NoSuchFieldError(f"is a list of {entries.type}, whose entries have no key for {step}")
    same = compute.equal(compute.struct_field(entries, "key"), step.name)
    at = np.flatnonzero(compute.fill_null(same, fill_value=False).to_numpy(zero_copy_only=False))
    chosen = np.full(rows, -1, dtype=np.int64)
    chosen[row_of[at][::-1]] = at[::-1]  # the first of a row is written last
    return _taken(compute.struct_field(entries, "value"), chosen)


def _taken(array: pyarrow.Array[Any], chosen: np.ndarray[Any, Any]) -> pyarrow.Array[Any]:
    import pyarrow

    return array.take(pyarrow.array(chosen, mask=chosen < 0))


def _filled_column(array: pyarrow.Array[Any]) -> pyarrow.Array[Any]:
    import pyarrow
    from pyarrow import compute, types

    fields = [compute.struct_field(array, field.name) for field in array.type]
    plain = [one.cast(pyarrow.string()) for one in fields if not types.is_nested(one.type)]
    return compute.coalesce(*plain) if plain else array
