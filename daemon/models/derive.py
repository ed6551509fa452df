"""What is made from versions: the average of several, and the factor of a matrix for other programs.

Averaged rankers: one version of several learners that learned alike from different events. It is written to a
checkpoint folder of its own, as version 1 behind the version 0 that they share, so that no learner is
disturbed: judged, served, followed and compared as any other, and a learner may continue from it.

The factor: a version's W, made PSD once, after learning, is A^T A: `A x` embeds a mapped object x, and the
inner product of two embeddings is the learned similarity (Chechik et al., JMLR 11 (2010), section 6). For a
learned distance the squared Euclidean distance of two embeddings is it.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

from checkpoints import Manifest, Version, VersionStore
from daemon.exits import EX_CANTCREAT, EX_DATAERR, EX_USAGE, UserError
from daemon.models.compare import MappedCatalog, load_version
from daemon.versions.algorithms import ALGORITHMS, map_of, those_that
from daemon.versions.contents import (
    KNOWN,
    MAP_PREFIX,
    MAX_FUTURE,
    average_entry,
    learner_arrays,
    meta_like,
    watermark_of,
)
from daemon.versions.forms import MatrixForms
from daemon.versions.restore import choice_of, learner_of
from daemon.versions.shards import summed
from daemon.versions.storage import open_store
from learners import average_states
from learners.block import row_blocks, times
from learners.errors import LearnerError
from learners.psd import factor

FIRST = 0
"""The untrained version."""


@dataclass(frozen=True, slots=True)
class AverageSource:
    """A version to average. name: as the user named it."""

    versions: VersionStore
    number: int
    name: str


@dataclass(frozen=True, slots=True)
class AverageResult:
    """What was written: the number, in which folder, and the events of all sources together."""

    number: int
    folder: str
    events: int


def average(sources: Sequence[AverageSource], weights: Sequence[float], into: Path) -> AverageResult:
    """Write version 0 of the first source, and version 1: the weighted mean of all, to an empty folder.

    Version 1 has the first source's position in its stream, where a learner would continue; counters are
    added up, event ids and caps start empty. Memory: the W of every source and one more. Raises UserError for
    versions that do not load, whose learner, settings, space or map differ, or whose learner has more than a
    matrix; and where the folder holds anything.
    """
    loaded = [_load_source(one, one.number) for one in sources]
    for one, version in zip(sources[1:], loaded[1:], strict=True):
        _same(sources[0], loaded[0].manifest, one, version.manifest)
    first = _load_source(sources[0], FIRST)
    try:
        mean = average_states([learner_arrays(version.arrays) for version in loaded], weights)
    except LearnerError as error:
        raise UserError(
            f"these versions cannot be averaged: {error}",
            f"averaged are versions of {those_that(lambda one: one.averages)}, with weights >= 0, one "
            "of them above 0",
            EX_DATAERR,
        ) from error
    space = {name: one for name, one in loaded[0].arrays.items() if name.startswith(MAP_PREFIX)}
    return _write_average(first, {**space, **mean}, [version.manifest for version in loaded], weights, into)


def _write_average(
    first: Version,
    mean: Mapping[str, NDArray[Any]],
    manifests: Sequence[Manifest],
    weights: Sequence[float],
    into: Path,
) -> AverageResult:
    if into.exists() and (not into.is_dir() or any(into.iterdir())):
        raise UserError(f"{into} is there and not empty", "name a folder that is to be made", EX_CANTCREAT)
    versions = open_store(into).versions
    epoch = versions.claim()
    versions.publish(epoch, first.arrays, meta_like(first.manifest))
    fields = {
        "parent": FIRST,
        "schedule": (average_entry(manifests, weights),),
        "counters": summed([one.counters for one in manifests]),
        "watermark": max(filter(None, map(watermark_of, manifests)), default=None),
    }
    written = versions.publish(epoch, {**first.arrays, **mean}, meta_like(manifests[0], **fields))
    return AverageResult(written.number, str(into), int(mean["events"]))


def _of_w(manifest: Manifest) -> dict[str, Any]:
    """The settings that give the numbers their meaning: which times and which ids were taken are not."""
    settings = manifest.learner.get("config", {})
    return {name: value for name, value in settings.items() if name not in (MAX_FUTURE, KNOWN)}


def _load_source(source: AverageSource, number: int) -> Version:
    name = source.name if number == source.number else f"version {number}, which {source.name} began as,"
    return load_version(source.versions, number, name)


def _same(first: AverageSource, reference: Manifest, other: AverageSource, manifest: Manifest) -> None:
    pairs = (
        ("space", manifest.space, reference.space),
        ("map", manifest.map.get("id"), reference.map.get("id")),
        ("learner", manifest.learner.get("name"), reference.learner.get("name")),
        ("settings", _of_w(manifest), _of_w(reference)),
        ("catalog", manifest.catalog_digest, reference.catalog_digest),
    )
    for what, own, wanted in pairs:
        if own != wanted:
            raise UserError(
                f"{other.name} has another {what} than {first.name}: their numbers mean different things",
                "average versions of learners that began from one version 0, by copies of its folder, and "
                "read different events",
                EX_USAGE,
            )


FORMAT = "tripletd factor 1"
EMBED_FORMAT = "tripletd embedding 1"


@dataclass(frozen=True, slots=True)
class ExportDescription:
    """What an exported file is, as JSON in a file next to it with the ending `.json`: its format, and the
    version, state_hash, space, map and learner it was made from."""

    format: str
    version: int
    state_hash: str
    space: str
    map: str
    learner: str

    def write_beside(self, path: Path, **others: Any) -> None:
        """Write it for the file at `path`, with other values in place of its own, or behind. UserError."""
        text = json.dumps(asdict(self) | others, indent=1) + "\n"
        write_new(path.with_name(path.name + ".json"), lambda file: file.write(text.encode()))


def made_of(manifest: Manifest) -> dict[str, Any]:
    """What a description says of the version."""
    return {
        "version": manifest.number,
        "state_hash": manifest.state_hash,
        "space": manifest.space,
        "map": str(manifest.map.get("id")),
        "learner": str(manifest.learner.get("name")),
    }


@dataclass(frozen=True, slots=True)
class FactorDescription(ExportDescription):
    """Of the factor A of W, [rank, dim]. similarity: `inner_product` of two embeddings, or
    `squared_distance`, whose opposite it is. form: in which the version is served, where it was given one;
    A is of W alone.
    """

    similarity: str
    dim: int
    rank: int
    form: str


def export_factor(
    versions: VersionStore, number: int, path: Path
) -> tuple[FactorDescription, NDArray[np.float32]]:
    """Write A of a version to `path`, npy float32 [rank, dim] in C order, and its description next to it: its
    columns are in the order of the given vectors, also where W has them in another. What is returned is A in
    the order of W.

    Raises UserError for a version that does not load, a learner without a matrix, more dimensions than are
    decomposed whole, and a file that is there already.
    """
    version = load_version(versions, number)
    name = str(version.manifest.learner.get("name"))
    A = _factor(version, name)
    kind = ALGORITHMS[name].forms
    distance = isinstance(kind, MatrixForms) and kind.distance
    choice = choice_of(versions, number)
    description = FactorDescription(
        FORMAT,
        **made_of(version.manifest),
        similarity="squared_distance" if distance else "inner_product",
        dim=A.shape[1],
        rank=A.shape[0],
        form="" if choice is None else choice.told,
    )
    given = map_of(version).given_columns
    as_given = A
    if given is not None:
        as_given = np.empty_like(A)
        as_given[:, given] = A
    write_new(path, lambda file: np.save(file, as_given))
    description.write_beside(path)
    return description, A


def export_embedding(
    description: FactorDescription, A: NDArray[np.float32], objects: MappedCatalog | None, path: Path
) -> int:
    """Write A x of every object of the catalog to `path`, npy float32 [objects, rank], and next to it the
    description with the objects' ids in the order of the rows. Returns how many there are. Raises UserError.
    """
    if objects is None:
        raise UserError("there are no objects to embed", "set catalog.path, or leave --embed out", EX_USAGE)
    if objects.map_id != description.map:
        raise UserError("the catalog is mapped by another map", "export a version of this map", EX_DATAERR)
    across = np.ascontiguousarray(A.T)
    embedded = np.empty((len(objects.ids), description.rank), np.float32)
    for part in row_blocks(len(embedded), description.dim):
        embedded[part] = times(objects.mapped.slice(part.start, part.stop), across)
    write_new(path, lambda file: np.save(file, embedded))
    description.write_beside(path, format=EMBED_FORMAT, ids=list(objects.ids))
    return len(embedded)


def _factor(version: Version, name: str) -> NDArray[np.float32]:
    try:
        W = getattr(learner_of(version), "W", None)
        if W is None or W.ndim != 2:
            message = f"version {version.manifest.number} is of {name}, which has no matrix to factor"
            remedy = f"export versions of one of {those_that(lambda one: one.factors)}"
            raise UserError(message, remedy, EX_USAGE)
        return factor(W)
    except LearnerError as error:
        message = f"version {version.manifest.number} has no factor: {error}"
        remedy = "project fewer dimensions, or serve the version as it is"
        raise UserError(message, remedy, EX_DATAERR) from error


def write_new(path: Path, write: Callable[[IO[bytes]], object]) -> None:
    """Write a file that must not be there yet. Raises UserError."""
    try:
        with path.open("xb") as file:
            write(file)
    except FileExistsError as error:
        remedy = "name another file, or move it away"
        raise UserError(f"{path} is there already", remedy, EX_CANTCREAT) from error
    except OSError as error:
        what = f"{path} cannot be written: {error.strerror}"
        raise UserError(what, "look at the folder", EX_CANTCREAT) from error
