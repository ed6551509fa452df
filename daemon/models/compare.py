"""Two versions loaded and compared; for the command and for the page."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from checkpoints import Damaged, Version, VersionStore
from daemon.catalogs import learner_catalog, map_catalog
from daemon.config.schema import Config, ServingConfig
from daemon.exits import EX_DATAERR, EX_USAGE, UserError
from daemon.models.decide import MoveRefused
from daemon.models.diff import (
    Diff,
    DirectionChange,
    FeatureChange,
    Queries,
    feature_names,
    moved_queries,
    nearest,
    sample,
)
from daemon.versions.algorithms import map_of
from daemon.versions.forms import KeyedForm
from daemon.versions.restore import read_map, serving_form
from learners.block import Block, Float32s
from learners.forms.quadratic import ServedForm, folds
from learners.forms.serving import learned_of
from learners.maps import FittedSpaceMap
from learners.pending import matrix_in
from learners.search import as_items
from learners.spectrum import FULL_UP_TO, change, spectrum


@dataclass(frozen=True, slots=True)
class MappedCatalog:
    """Ids in row order, and the objects in the learner's space by the map `map_id`."""

    ids: Sequence[str]
    mapped: Block
    map_id: str


def catalog_objects(config: Config, versions: VersionStore, number: int) -> MappedCatalog | None:
    """The objects of catalog.path by the map of version `number`; None where no catalog is configured.

    Raises CatalogError, and Damaged for a version that does not load.
    """
    if not config.catalog.path:
        return None
    _, fitted = read_map(versions, number)
    catalog = learner_catalog(config)
    assert catalog is not None
    return MappedCatalog(catalog.ids, map_catalog(catalog, fitted, keep=False), fitted.id)


@dataclass(frozen=True, slots=True)
class CompareOptions:
    """How much to tell. entries, directions, moved: longest lists; queries: size of the sample, 0 asks none;
    seed: of the sample. key: whose model is compared, where there is one per key.
    """

    entries: int = 20
    directions: int = 5
    queries: int = 200
    moved: int = 10
    seed: int = 0
    key: str | None = None


def compare(
    versions: VersionStore,
    pair: tuple[int, int],
    serving: ServingConfig,
    objects: MappedCatalog | None,
    asked: CompareOptions = CompareOptions(),
) -> Diff:
    """Load both versions of `pair`, (before, after), and compare them; nothing is written.

    Memory: both W, and one serving form after the other (1.4 GB at 10,000 dimensions). Time: seconds up to
    2,000 dimensions; at 10,000 about 20 s, and with queries a minute, most of it for serving forms that the
    validator has not kept. Raises UserError where one does not load, or where their spaces differ.
    """
    old, new = (load_version(versions, number) for number in pair)
    _same_space(old, new)
    making = [partial(_form, versions, version, serving, asked.key) for version in (old, new)]
    matrices = matrix_of(old.arrays, making[0], pair[0]), matrix_of(new.arrays, making[1], pair[1])
    skipped = what_is_compared(old.arrays, matrices)
    queries = None
    if asked.queries and objects is None:
        skipped.append("queries: no catalog is configured (catalog.path)")
    elif asked.queries and objects is not None:
        queries = _queries(versions, (old, new), serving, objects, asked)
    return diff_of(pair, matrices, map_of(old), asked=asked, queries=queries, skipped=skipped)


def diff_of(
    pair: tuple[int, int],
    matrices: Matrices,
    fitted: FittedSpaceMap,
    *,
    asked: CompareOptions,
    queries: Queries | None,
    skipped: Sequence[str] = (),
) -> Diff:
    """The same of two W that are at hand, float32 [d, d] and left as they are, and of queries already asked.

    fitted: the map of both. skipped: what else is left out, besides what the size of W leaves out.
    """
    old, new = matrices
    if old is None or new is None:
        return Diff(*pair, fitted.dim, None, None, (), (), (), queries, tuple(skipped))
    changed = change(old, new, asked.entries, asked.directions)
    spectra = spectrum(old), spectrum(new)
    left_out = list(skipped)
    if not spectra[0].full:
        left_out.append(
            f"number of negative eigenvalues and effective rank: they need all {spectra[0].dim} eigenvalues, "
            f"which are computed up to {FULL_UP_TO} dimensions; the ends are by Lanczos iteration"
        )
    name = feature_names(fitted)
    steps = tuple(FeatureChange(name(e.row), name(e.column), e.before, e.after) for e in changed.entries)
    turns = tuple(
        DirectionChange(one.value, tuple((name(at), weight) for at, weight in one.coordinates))
        for one in changed.directions
    )
    figures = *pair, spectra[0].dim, changed.relative, changed.symmetric
    return Diff(*figures, steps, turns, spectra, queries, tuple(left_out))


def _queries(
    versions: VersionStore,
    pair: tuple[Version, Version],
    serving: ServingConfig,
    objects: MappedCatalog,
    asked: CompareOptions,
) -> Queries:
    if objects.map_id != pair[0].manifest.map.get("id"):
        message = f"version {pair[0].manifest.number} is of another map than the catalog was mapped with"
        raise UserError(message, "compare versions of what is served now", EX_DATAERR)
    items, rows = as_items(objects.mapped), sample(len(objects.ids), asked.queries, asked.seed)
    before, after = (
        nearest(_form(versions, version, serving, asked.key), objects.mapped, items, rows) for version in pair
    )
    return moved_queries(objects.ids, rows, (before, after), asked.seed, asked.moved)


def _form(versions: VersionStore, version: Version, serving: ServingConfig, key: str | None) -> ServedForm:
    return form_of_key(serving_form(versions, version, serving, keep=False), version.manifest.number, key)


def form_of_key(form: ServedForm, number: int, key: str | None) -> ServedForm:
    """The form of a version, or of the key's model in it: of a key without one, that of version 0. Raises
    UserError for a key where there is one model, and for none where there are several.
    """
    if not isinstance(form, KeyedForm):
        if key is None:
            return form
        raise UserError(f"version {number} has one model for all", "leave --key out", EX_USAGE)
    if key is None:
        remedy = "name one with --key"
        raise UserError(f"version {number} has one model per key", remedy, EX_USAGE)
    model = form.model_of(key)
    return form.base if model is None else model.form()


def load_version(versions: VersionStore, number: int, name: str = "") -> Version:
    """A version, verified; name: the version's where it is not its number. MoveRefused: it does not load."""
    try:
        return versions.load(number)
    except Damaged as error:
        message = f"{name or f'version {number}'} does not load: {error.place}: {error.problem}"
        raise MoveRefused("damaged", "version", message, error.remedy, EX_DATAERR) from error


def _same_space(old: Version, new: Version) -> None:
    own, other = ((v.manifest.space, v.manifest.map.get("id")) for v in (old, new))
    if own != other:
        raise MoveRefused(
            "other_space",
            "version",
            f"versions {old.manifest.number} and {new.manifest.number} are of different spaces or maps: "
            "their coordinates mean different things",
            "compare versions of one space",
            EX_DATAERR,
        )


def matrix_of(
    arrays: Mapping[str, NDArray[Any]], form: Callable[[], ServedForm], number: int
) -> Float32s | None:
    """The W among a version's arrays; of a learner with another state the learned S of its form, float32
    [d, d], up to `FULL_UP_TO` dimensions, and None where its form does not fold. Raises UserError beyond.
    """
    if has_matrix(arrays):
        return matrix_in(arrays)
    made = learned_of(form())  # mixed with the own ranking it is no matrix
    if not folds(made):
        return None
    if made.dim > FULL_UP_TO:
        message = f"version {number} is of a learner without a matrix, in {made.dim:,} dimensions"
        remedy = f"up to {FULL_UP_TO:,} dimensions its served similarity is compared"
        raise UserError(message, remedy, EX_DATAERR)
    return made.fold(np.eye(made.dim, dtype=np.float32))


def has_matrix(arrays: Mapping[str, NDArray[Any]]) -> bool:
    """Whether arrays hold the matrix W it scores with; beside the factor of a softmax W is but a part."""
    W = arrays.get("W")
    return W is not None and W.ndim == 2 and "A" not in arrays


def what_is_compared(arrays: Mapping[str, NDArray[Any]], matrices: Matrices) -> list[str]:
    """Listed among what a comparison leaves out, for a learner without W."""
    if has_matrix(arrays):
        return []
    return [NO_MATRIX if matrices[0] is not None else NO_PRODUCT]


Matrices: TypeAlias = tuple[Float32s | None, Float32s | None]

NO_MATRIX = "W: this learner scores by no single one; what is compared is the similarity S that is served"
NO_PRODUCT = "W: this learner has none, and its similarity is no matrix; the queries tell what changed"
