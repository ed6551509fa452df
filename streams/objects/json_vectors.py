"""A line of JSON about one object: its fields, checked, and its vectors."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from streams import text_files
from streams.event import UNNAMED_VIEW, Column, DenseColumn, SparseColumn, SparseVector, Vector
from streams.text_files import TooManyValues

FIELDS = ("id", "x", "views")
"""What a line says of an object's features."""


def read_json(line: bytes) -> Any:
    """What a line says; ValueError with the remedy where it is no JSON."""
    try:
        return text_files.read_json(line)
    except TooManyValues:
        raise
    except (ValueError, RecursionError):
        raise ValueError("not JSON; write one object per line") from None


def read_fields(line: bytes, known: Sequence[str]) -> dict[str, Any]:
    """The fields of a line about one object, as of `check_fields`."""
    return check_fields(read_json(line), known)


def check_fields(fields: Any, known: Sequence[str]) -> dict[str, Any]:
    """The fields of one object: `id`, a text that UTF-8 can write, and none that is not `known`.

    Raises ValueError saying what is wrong, and the remedy.
    """
    if not isinstance(fields, dict) or not isinstance(fields.get("id"), str) or not fields["id"]:
        raise ValueError('needs an "id" that is a text; add it')
    if any("\ud800" <= character <= "\udfff" for character in fields["id"]):
        raise ValueError('"id" holds half a character (a lone surrogate), which UTF-8 cannot write')
    unknown = sorted(set(fields) - set(known))
    if unknown:
        raise ValueError(f"unknown key {unknown[0][:40]!a}; known are {', '.join(known)}")
    return fields


def read_features(fields: Mapping[str, Any]) -> dict[str, Vector]:
    """The vectors of an object by view, from its `x` or its `views`; ValueError naming what is wrong."""
    if ("x" in fields) == ("views" in fields):
        raise ValueError('needs exactly one of "x" and "views"')
    views = {UNNAMED_VIEW: fields["x"]} if "x" in fields else fields["views"]
    if not isinstance(views, dict) or not views:
        raise ValueError('"views" is not an object of at least one view')
    return {name: read_vector(name, raw) for name, raw in views.items()}


def read_vector(name: str, raw: Any) -> Vector:
    """The vector of view `name` as JSON gives it; raises ValueError naming the view and what is wrong."""
    if isinstance(raw, dict):
        if set(raw) != {"indices", "values"}:
            raise ValueError(f'view {name[:40]!a}: a sparse vector has "indices" and "values"')
        indices, values = _numbers(name, raw["indices"], np.int64), _numbers(name, raw["values"], np.float32)
        if len(indices) != len(values):
            raise ValueError(f"view {name[:40]!a}: {len(indices)} indices for {len(values)} values")
        if len(indices) and not (indices.min() >= 0 and indices.max() < 2**31):
            raise ValueError(f"view {name[:40]!a}: an index is negative or too large")
        if np.any(np.diff(indices) <= 0):
            raise ValueError(f"view {name[:40]!a}: indices are not strictly increasing; sort them")
        return SparseVector(indices.astype(np.int32), values)
    return _numbers(name, raw, np.float32)


def _numbers(name: str, raw: Any, kind: type[Any]) -> np.ndarray[Any, Any]:
    wanted = int if kind is np.int64 else (int, float)
    if not isinstance(raw, list) or any(isinstance(one, bool) or not isinstance(one, wanted) for one in raw):
        raise ValueError(f"view {name[:40]!a}: not a list of {'whole ' if wanted is int else ''}numbers")
    try:
        with np.errstate(over="ignore"):
            found = np.array(raw, kind)
    except OverflowError:
        raise ValueError(f"view {name[:40]!a}: a number is too large") from None
    if kind is np.float32 and not np.isfinite(found).all():
        raise ValueError(f"view {name[:40]!a}: a number is not finite in float32")
    return found


def column_of(found: Sequence[Vector]) -> Column:
    """Vectors of one kind, and of one size where they are dense, as a column; at least one."""
    dense = [one for one in found if isinstance(one, np.ndarray)]
    if dense:
        return DenseColumn(np.stack(dense))
    sparse = [one for one in found if isinstance(one, SparseVector)]
    indptr = np.zeros(len(sparse) + 1, np.int64)
    np.cumsum([len(one.indices) for one in sparse], out=indptr[1:])
    indices, values = [one.indices for one in sparse], [one.values for one in sparse]
    return SparseColumn(indptr, np.concatenate(indices), np.concatenate(values), 2**31 - 1)
