"""JSON lines -> objects, times and numbers, with an error that names the field.

Every parsing function raises BadItemError for a value that is not what it should be; none looks at
anything but its arguments. `read_json_lines` turns a bad line into `Dropped`.
"""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime
from typing import Any

import numpy as np

from streams.event import ObjectRef, SparseVector, Vector
from streams.feed import items as reasons
from streams.feed.inputs import Input, InputLine
from streams.feed.items import BadItemError, Dropped, Item, Placed
from streams.limits import MAX_INDEX
from streams.text_files import MAX_LINE_BYTES, TooManyValues, read_json


def json_map(line: bytes) -> dict[str, Any]:
    """One line as a JSON object."""
    try:
        value = read_json(line)
    except TooManyValues as error:
        raise BadItemError(reasons.TOO_LONG, str(error)) from None
    except UnicodeDecodeError as error:
        raise BadItemError(reasons.NOT_UTF8, f"byte {error.start} is not UTF-8") from None
    except json.JSONDecodeError as error:
        raise BadItemError(reasons.NOT_JSON, f"column {error.colno}: {error.msg}") from None
    except (RecursionError, ValueError) as error:
        raise BadItemError(reasons.NOT_JSON, str(error)) from None
    if not isinstance(value, dict):
        raise BadItemError(reasons.NOT_JSON, f"the line is a JSON {type(value).__name__}, not an object")
    return value


def unwrapped(line: Mapping[str, Any]) -> Mapping[str, Any]:
    """The document itself where an export wrote it as `_source`."""
    inner = line.get("_source")
    return inner if isinstance(inner, dict) else line


def check_fields(line: Mapping[str, Any], required: tuple[str, ...], known: frozenset[str]) -> None:
    """Refuse a missing required field and an unknown one (likely a misspelling of an optional one)."""
    for name in required:
        if name not in line:
            raise BadItemError(reasons.MISSING_FIELD, f"field {name!r} is missing")
    if not known.issuperset(line):
        unknown = next(name for name in line if name not in known)
        raise BadItemError(
            reasons.UNKNOWN_FIELD, f"field {unknown!r} is not one of {', '.join(sorted(known))}"
        )


def text(value: Any, field: str) -> str:
    """Read a non-empty string."""
    if not isinstance(value, str):
        raise BadItemError(reasons.WRONG_TYPE, f"{field} is {_kind(value)}, not a string")
    if not value:
        raise BadItemError(reasons.WRONG_TYPE, f"{field} is an empty string")
    return value


def timestamp(value: Any, field: str = "ts") -> int:
    """Milliseconds since 1970: an integer >= 0 as it is, or ISO 8601 text (without a zone: UTC)."""
    if isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 2**63:
        return value
    if isinstance(value, str):
        try:
            moment = datetime.fromisoformat(value)
        except ValueError:
            raise BadItemError(reasons.BAD_TIMESTAMP, f"{field} {value[:40]!r} is not ISO 8601") from None
        moment = moment if moment.tzinfo else moment.replace(tzinfo=UTC)
        milliseconds = round(moment.timestamp() * 1000)
        if milliseconds >= 0:
            return milliseconds
    raise BadItemError(reasons.BAD_TIMESTAMP, f"{field} is {_kind(value)} and no time since 1970")


def number(value: Any, field: str, reason: str, upto: float = math.inf) -> float:
    """A finite number in (0, upto]."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise BadItemError(reason, f"{field} is {_kind(value)}, not a number")
    if not 0 < value <= min(upto, sys.float_info.max):  # compares whole numbers no float can hold, too
        raise BadItemError(reason, f"{field} is {str(value)[:40]}, outside (0, {upto:g}]")
    return float(value)


def object_ref(value: Any, field: str) -> ObjectRef:
    """An object: a string id, or a map with `x` or `views`, perhaps an `id`, or an `id` alone."""
    if isinstance(value, str) and value:
        return ObjectRef(id=value)
    if not isinstance(value, dict):
        raise BadItemError(reasons.NOT_AN_OBJECT, f"{field} is {_kind(value)}")
    unknown = [name for name in value if name not in ("id", "x", "views")]
    if unknown:
        raise BadItemError(reasons.UNKNOWN_FIELD, f"{field} has the unknown field {unknown[0]!r}")
    name = text(value["id"], f"{field}.id") if value.get("id") is not None else None
    if "x" in value and "views" in value:
        raise BadItemError(reasons.NOT_AN_OBJECT, f"{field} has both 'x' and 'views'")
    if "x" in value:
        return ObjectRef(id=name, x=vector(value["x"], f"{field}.x"))
    if "views" in value:
        return ObjectRef(id=name, views=_views(value["views"], f"{field}.views"))
    if name is None:
        raise BadItemError(reasons.NOT_AN_OBJECT, f"{field} has neither 'id' nor 'x' nor 'views'")
    return ObjectRef(id=name)


def _views(value: Any, field: str) -> dict[str, Vector]:
    if not isinstance(value, dict) or not value:
        raise BadItemError(
            reasons.NOT_AN_OBJECT, f"{field} is {_kind(value)}, not a non-empty map of vectors"
        )
    return {name: vector(x, f"{field}.{name}") for name, x in value.items()}


def vector(value: Any, field: str) -> Vector:
    """A dense list of numbers, or {"indices": ascending integers, "values": numbers}; finite float32."""
    if isinstance(value, list):
        return _floats(value, field)
    if not isinstance(value, dict) or set(value) != {"indices", "values"}:
        raise BadItemError(reasons.BAD_VECTOR, f"{field} is {_kind(value)}")
    indices, values = value["indices"], value["values"]
    if not isinstance(indices, list) or not isinstance(values, list) or len(indices) != len(values):
        raise BadItemError(reasons.BAD_VECTOR, f"{field}: indices and values are not two lists of one length")
    previous = -1
    for at, index in enumerate(indices):
        if type(index) is not int or not previous < index <= MAX_INDEX:
            raise BadItemError(
                reasons.BAD_VECTOR, f"{field}.indices[{at}] is {index!r}: not strictly increasing"
            )
        previous = index
    return SparseVector(np.asarray(indices, dtype=np.int32), _floats(values, f"{field}.values"))


def _floats(values: list[Any], field: str) -> np.ndarray[Any, np.dtype[np.float32]]:
    for at, value in enumerate(values):
        if type(value) is not float and type(value) is not int:
            raise BadItemError(reasons.BAD_VECTOR, f"{field}[{at}] is {_kind(value)}, not a number")
    try:
        with np.errstate(over="ignore"):
            array = np.asarray(values, dtype=np.float32)
    except OverflowError:
        raise BadItemError(reasons.NOT_FINITE, f"{field} holds a number beyond float32") from None
    if not np.isfinite(array).all():
        at = int(np.flatnonzero(~np.isfinite(array))[0])
        raise BadItemError(reasons.NOT_FINITE, f"{field}[{at}] is {values[at]}, not finite in float32")
    return array


def _kind(value: Any) -> str:
    names = {dict: "a map", list: "a list", str: "a string", bool: "a boolean", type(None): "null"}
    return names.get(type(value), f"the number {value!r}" if isinstance(value, int | float) else "odd")


Parse = Callable[[dict[str, Any], InputLine], Item | None]


def read_json_lines(source: Input, parse: Parse) -> Iterator[Placed]:
    """What `parse` makes of each line, in order, without None; a bad line never stops the next one."""
    name = source.name
    for line in source.lines():
        place = f"{name}:{line.number}"
        if line.data is None:
            yield place, Dropped(reasons.TOO_LONG, f"the line is longer than {MAX_LINE_BYTES} bytes")
            continue
        try:
            item = parse(json_map(line.data), line)
        except BadItemError as bad:
            item = bad.dropped()
        if item is not None:
            yield place, item
