"""Queries of another embedding model without embedding the objects again: a version with a map for them.

The matrix is fitted on pairs (`learners.maps.queries`) and belongs to the version, which continues the newest
one: the same learner, positions and counters, one more array. It is judged, promoted, served and rolled back
as any, and a learner carries the map on while it learns from clicks on new queries.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from checkpoints import Version, VersionStore
from checkpoints.local import LocalStore
from daemon.catalogs import learner_catalog
from daemon.config import Config
from daemon.exits import EX_DATAERR, EX_TEMPFAIL, EX_USAGE, UserError
from daemon.versions.algorithms import map_of
from daemon.versions.contents import MAP_PREFIX, QUERIES, meta_like
from daemon.versions.storage import open_for_reading
from learners.block import Float32s
from learners.errors import MapError
from learners.maps import FittedSpaceMap, PairFit, QueryMap
from learners.maps.queries import FitMethod
from streams.event import DenseColumn
from streams.objects.arrow_vectors import RowError, vectors
from streams.tables import Table, TableError

NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")
PIECE = 10_000
"""Pairs that are read at once."""
COLUMNS = ("new", "old")
MOST_OBJECTS = 100_000
"""Among so many objects of the catalog, at equal distances, neighbours are looked for."""
QUERIES_ASKED = 1_000
NEAREST = 10
AT_ONCE = 100


@dataclass(frozen=True, slots=True)
class MigrationRequest:
    """pairs: a table with the columns `new` and `old`, or .npz with such arrays. name: what queries call
    their vectors. view: which they become; "" is the only one. least_recall: below it nothing is written."""

    pairs: Path
    name: str
    view: str = ""
    method: FitMethod = "auto"
    least_recall: float = 0.0


@dataclass(frozen=True, slots=True)
class MigrationResult:
    """version: which was written, None in a dry run; of: which it continues. way, pairs, left_out, cosine,
    explained: as in `learners.maps.queries.FittedPairs`. recall: of the left-out pairs, the share of the old
    vector's ten nearest objects that are among those of the mapped new one; objects: among how many.
    """

    version: int | None
    of: int
    name: str
    view: str
    dims: tuple[int, int]
    way: str
    pairs: int
    left_out: int
    cosine: float
    explained: float
    recall: float
    objects: int


def migrate(config: Config, asked: MigrationRequest, *, dry_run: bool = False) -> MigrationResult:
    """Fit the map and write the version that has it. Raises UserError: for pairs that cannot be used, a
    recall below the least, and while a learner on this host writes to the folder."""
    versions, _ = open_for_reading(config)
    with _alone(versions, dry_run):
        version = versions.newest_valid()
        if version is None:
            remedy = "start `tripletd learn` first: version 0 is enough"
            raise UserError("there is no version yet", remedy, EX_USAGE)
        fitted = map_of(version)
        view = _view_of(fitted, asked)
        fit = PairFit(unit=fitted.similarity in ("", "cosine"))
        try:
            for new, old in _pairs(asked.pairs):
                if old.ndim == 2 and old.shape[1] != (dim := fitted.views[view].dim_in):
                    raise MapError(f"the old vectors have {old.shape[1]} numbers, view {view} {dim}")
                fit.add(new, old)
            found = fit.fit(asked.method)
        except MapError as error:
            remedy = "give the same texts by both models, each a row: columns new and old"
            raise UserError(f"{asked.pairs}: {error}", remedy, EX_DATAERR) from error
        objects = _objects(config, view)
        among = found.wanted if objects is None else objects
        recall = recall_of(found.moved, found.wanted, among, fit.unit)
        of, dims = version.manifest.number, (len(found.matrix), found.matrix.shape[1])
        fitting = found.way, found.pairs, found.left_out, found.cosine, found.explained
        made = MigrationResult(None, of, asked.name, view, dims, *fitting, recall, len(among))
        if recall < asked.least_recall:
            raise UserError(
                f"of the ten nearest objects {recall:.3f} stay, less than {asked.least_recall:g}: nothing is "
                "written",
                "check that the pairs are of the same texts in the same order; else give more of them, "
                "embed the objects again, or lower --least-recall",
                EX_DATAERR,
            )
        if dry_run:
            return made
        return replace(made, version=_publish(versions, version, fitted, QueryMap(view, found.matrix), made))


def _publish(
    versions: VersionStore, version: Version, fitted: FittedSpaceMap, one: QueryMap, made: MigrationResult
) -> int:
    """Write the newest version once more, with the map; its number."""
    fields = {name: value for name, value in asdict(made).items() if name != "version"}
    wider = replace(fitted, queries={**fitted.queries, made.name: one})
    arrays = version.arrays | {MAP_PREFIX + name: array for name, array in wider.arrays().items()}
    meta = meta_like(
        version.manifest,
        parent=version.manifest.number,
        schedule=({"control": QUERIES, **fields, "dims": list(made.dims)},),
        map={"id": wider.id, "spec": wider.spec()},
    )
    return versions.publish(versions.claim(), arrays, meta).number


@contextmanager
def _alone(versions: VersionStore, dry_run: bool) -> Iterator[None]:
    """While nobody else on this host writes versions. Raises UserError."""
    if dry_run or not isinstance(versions.store, LocalStore):
        yield
        return
    lock = versions.store.writer_lock()
    if not lock.take():
        raise UserError(
            "a learner on this host writes to this checkpoint folder",
            "stop `tripletd learn` for as long as this takes; serve and validate may run. Start it again "
            "after it: it continues from the version written here",
            EX_TEMPFAIL,
        )
    try:
        yield
    finally:
        lock.release()


def _view_of(fitted: FittedSpaceMap, asked: MigrationRequest) -> str:
    """The view that is asked for. Raises UserError where it or the name is none."""
    known = ", ".join(fitted.views)
    if asked.name in fitted.views or not NAME.fullmatch(asked.name):
        remedy = f"use 1 to 64 letters, digits, - or _, and not the name of a view ({known})"
        raise UserError(f"{asked.name[:80]!r} cannot be the name of a model of queries", remedy, EX_USAGE)
    if not asked.view and len(fitted.views) > 1:
        raise UserError(f"the space has the views {known}", "say which with --view", EX_USAGE)
    view = asked.view or next(iter(fitted.views))
    if view not in fitted.views:
        raise UserError(f"the space has no view {view[:80]!r}", f"it has: {known}", EX_USAGE)
    return view


def _pairs(path: Path) -> Iterator[tuple[NDArray[Any], NDArray[Any]]]:
    """Pieces of (new, old), rows of both models. Raises MapError and UserError."""
    if path.suffix == ".npz":
        try:
            with np.load(path, allow_pickle=False) as file:
                new, old = (file[name] for name in COLUMNS)
        except (OSError, ValueError, KeyError) as error:
            remedy = "write it with numpy.savez(path, new=..., old=...)"
            raise UserError(f"{path} cannot be read: {error}", remedy, EX_DATAERR) from None
        if len(new) != len(old):
            raise MapError(f"{len(new):,} new vectors for {len(old):,} old ones")
        for start in range(0, len(new), PIECE):
            yield new[start : start + PIECE], old[start : start + PIECE]
        return
    try:
        for batch in Table(path).batches(list(COLUMNS), PIECE):
            pair = []
            for name in COLUMNS:
                try:
                    column = vectors(batch.columns[name], name)
                except RowError as error:
                    raise MapError(f"{batch.place(error.row)}, column {name}: {error}") from None
                except ValueError as error:
                    raise MapError(f"column {name}: {error}") from None
                if not isinstance(column, DenseColumn):
                    raise MapError(f"column {name} has sparse vectors, and only dense ones are mapped")
                pair.append(column.values)
            yield pair[0], pair[1]
    except TableError as error:
        raise UserError(error.message, error.remedy, EX_DATAERR) from error


def _objects(config: Config, view: str) -> Float32s | None:
    """Vectors of objects of the catalog, float32 [n, old]; None without a catalog."""
    catalog = learner_catalog(config)
    if catalog is None or not len(catalog):
        return None
    column = catalog.views[view]
    if not isinstance(column, DenseColumn):
        raise UserError(f"view {view} has sparse vectors", "only dense ones are mapped", EX_USAGE)
    rows = np.unique(np.linspace(0, len(catalog) - 1, min(len(catalog), MOST_OBJECTS)).astype(np.int64))
    return np.asarray(column.values[rows], np.float32)


def recall_of(moved: Float32s, wanted: Float32s, objects: Float32s, unit: bool) -> float:
    """Of at most `QUERIES_ASKED` queries the mean share of the ten nearest objects of `wanted` that are among
    those of `moved`; by the cosine, else by the inner product. An object with the very vector of the query is
    left out on both sides."""
    if unit:
        lengths = np.linalg.norm(objects, axis=1, keepdims=True)
        objects = np.asarray(objects / np.where(lengths == 0, 1, lengths), np.float32)
    count = min(len(moved), QUERIES_ASKED)
    kept = min(NEAREST, len(objects) - 1)
    shares = []
    for start in range(0, count, AT_ONCE):
        by_old, by_new = (one[start : min(start + AT_ONCE, count)] @ objects.T for one in (wanted, moved))
        for place, (row, other) in enumerate(zip(by_old, by_new, strict=True)):
            same = (objects == wanted[start + place]).all(axis=1)
            row[same] = other[same] = -np.inf
            near, found = (np.argpartition(-one, kept - 1)[:kept] for one in (row, other))
            shares.append(len({*near.tolist()} & {*found.tolist()}) / kept)
    return float(np.mean(shares))
