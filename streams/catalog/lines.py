"""Catalogs as JSON lines: `{"id": ..., "x": vector}` or `{"id": ..., "views": {name: vector}}`.

A vector is a list of numbers (dense) or `{"indices": [...], "values": [...]}` (sparse).
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from streams.catalog.snapshot import Catalog, CatalogError
from streams.event import (
    UNNAMED_VIEW,
    Column,
    DenseColumn,
    SpaceSpec,
    SparseColumn,
    SparseVector,
    Vector,
    ViewSpec,
)

FIELDS = ("id", "x", "views")

_Row = dict[str, Vector]


def load_lines(path: Path, space: SpaceSpec | None, default_space: str) -> Catalog:
    """Read a catalog of JSON lines (see `streams.catalog.load_catalog`)."""
    ids: list[str] = []
    rows: list[_Row] = []
    with path.open("rb") as file:
        for number, line in enumerate(file, 1):
            if not line.strip():
                continue
            try:
                fields = read_fields(line, FIELDS)
                row = read_features(fields)
                _check_like_first(row, rows)
            except ValueError as error:
                raise CatalogError(f"{path}, line {number}: {error}") from None
            ids.append(fields["id"])
            rows.append(row)
    if not rows:
        raise CatalogError(f"{path}: no objects; write one JSON object per line")
    if space is None:
        space = SpaceSpec(default_space, tuple(_spec(name, rows) for name in rows[0]))
    return Catalog(ids, {name: _column(name, rows, space) for name in rows[0]}, space)


def read_fields(line: bytes, known: Sequence[str]) -> dict[str, Any]:
    """The fields of a line about one object: `id`, a text that UTF-8 can write, and none that is not `known`.

    Raises ValueError saying what is wrong, and the remedy.
    """
    try:
        fields = json.loads(line)
    except (ValueError, RecursionError):
        raise ValueError("not JSON; write one object per line") from None
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


def _check_like_first(row: _Row, rows: list[_Row]) -> None:
    first = rows[0] if rows else row
    if set(row) != set(first):
        raise ValueError(f"has views {sorted(row)!a}, the first object {sorted(first)!a}")
    for name, vector in row.items():
        like = first[name]
        if isinstance(vector, SparseVector) != isinstance(like, SparseVector):
            raise ValueError(f"view {name[:40]!a} is dense in one object and sparse in another")
        if isinstance(vector, np.ndarray) and isinstance(like, np.ndarray) and len(vector) != len(like):
            raise ValueError(
                f"view {name[:40]!a} has {len(vector)} coordinates, the first object {len(like)}"
            )


def _spec(name: str, rows: list[_Row]) -> ViewSpec:
    first = rows[0][name]
    if not isinstance(first, SparseVector):
        return ViewSpec(name, "dense", len(first))
    largest = max((int(one.indices[-1]) for one in _sparse(name, rows) if len(one.indices)), default=0)
    return ViewSpec(name, "sparse", largest + 1)


def _column(name: str, rows: list[_Row], space: SpaceSpec) -> Column:
    if not isinstance(rows[0][name], SparseVector):
        return DenseColumn(np.stack([row[name] for row in rows]))  # type: ignore[misc]
    vectors = _sparse(name, rows)
    indptr = np.zeros(len(vectors) + 1, np.int64)
    np.cumsum([len(one.indices) for one in vectors], out=indptr[1:])
    dim = next((view.dim for view in space.views if view.name == name), 0)
    indices = np.concatenate([one.indices for one in vectors])
    return SparseColumn(indptr, indices, np.concatenate([one.values for one in vectors]), dim)


def _sparse(name: str, rows: list[_Row]) -> list[SparseVector]:
    return [vector for row in rows if isinstance(vector := row[name], SparseVector)]
