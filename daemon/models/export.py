"""The factor of a learned matrix as files for other programs.

A version's W, made PSD once, after learning, is A^T A: `A x` embeds a mapped object x, and the inner product
of two embeddings is the learned similarity (Chechik et al., JMLR 11 (2010), section 6). For a learned
distance the squared Euclidean distance of two embeddings is it.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

from checkpoints import Damaged, Version, VersionStore
from daemon.exits import EX_CANTCREAT, EX_DATAERR, EX_USAGE, UserError
from daemon.models.objects import Objects
from daemon.versions.algorithms import ALGORITHMS
from daemon.versions.matrix_form import MatrixForms
from daemon.versions.serving_form import learner_of
from learners.block import row_blocks, times
from learners.errors import LearnerError
from learners.psd import factor

FORMAT = "tripletd factor 1"
EMBED_FORMAT = "tripletd embedding 1"


@dataclass(frozen=True, slots=True)
class Described:
    """What lies beside an exported array, as JSON with the ending `.json`.

    rank, dim: A is [rank, dim]. similarity: `inner_product` of two embeddings, or `squared_distance`, whose
    opposite it is. version, state_hash, space, map, learner: what it was made of.
    """

    format: str
    version: int
    state_hash: str
    space: str
    map: str
    learner: str
    similarity: str
    dim: int
    rank: int


def export_factor(versions: VersionStore, number: int, path: Path) -> tuple[Described, NDArray[np.float32]]:
    """Write A of a version to `path`, npy float32 [rank, dim] in C order, and its description beside it.

    Raises UserError for a version that does not load, a learner without a matrix, more dimensions than are
    decomposed whole, and a file that is there already.
    """
    version = _load(versions, number)
    name = str(version.manifest.learner.get("name"))
    A = _factor(version, name)
    kind = ALGORITHMS[name].forms
    distance = isinstance(kind, MatrixForms) and kind.distance
    told = Described(
        FORMAT,
        number,
        version.manifest.state_hash,
        version.manifest.space,
        str(version.manifest.map.get("id")),
        name,
        "squared_distance" if distance else "inner_product",
        A.shape[1],
        A.shape[0],
    )
    _write_new(path, lambda file: np.save(file, A))
    _write_new(path.with_name(path.name + ".json"), lambda file: file.write(_json(asdict(told))))
    return told, A


def export_embedding(told: Described, A: NDArray[np.float32], objects: Objects | None, path: Path) -> int:
    """Write A x of every object of the catalog to `path`, npy float32 [objects, rank], and beside it the
    description with the objects' ids in the order of the rows; how many there are. Raises UserError.
    """
    if objects is None:
        raise UserError("there are no objects to embed", "set catalog.path, or leave --embed out", EX_USAGE)
    if objects.map_id != told.map:
        raise UserError("the catalog is mapped by another map", "export a version of this map", EX_DATAERR)
    across = np.ascontiguousarray(A.T)
    embedded = np.empty((len(objects.ids), told.rank), np.float32)
    for part in row_blocks(len(embedded), told.dim):
        embedded[part] = times(objects.mapped.slice(part.start, part.stop), across)
    beside = asdict(told) | {"format": EMBED_FORMAT, "ids": list(objects.ids)}
    _write_new(path, lambda file: np.save(file, embedded))
    _write_new(path.with_name(path.name + ".json"), lambda file: file.write(_json(beside)))
    return len(embedded)


def _factor(version: Version, name: str) -> NDArray[np.float32]:
    try:
        W = getattr(learner_of(version), "W", None)
        if W is None or W.ndim != 2:
            raise UserError(
                f"version {version.manifest.number} is of {name}, which has no matrix to factor",
                "export versions of oasis, oasis-averaged, dissim-oasis or lego",
                EX_USAGE,
            )
        return factor(W)
    except LearnerError as error:
        told = f"version {version.manifest.number} has no factor: {error}"
        raise UserError(
            told, "project fewer dimensions, or serve the version as it is", EX_DATAERR
        ) from error


def _load(versions: VersionStore, number: int) -> Version:
    try:
        return versions.load(number)
    except Damaged as error:
        told = f"version {number} does not load: {error.place}: {error.problem}"
        raise UserError(told, error.remedy, EX_DATAERR) from error


def _json(values: dict[str, Any]) -> bytes:
    return (json.dumps(values, indent=1) + "\n").encode()


def _write_new(path: Path, write: Callable[[IO[bytes]], object]) -> None:
    """Write a file that must not be there yet. Raises UserError."""
    try:
        with path.open("xb") as file:
            write(file)
    except FileExistsError as error:
        raise UserError(
            f"{path} is there already", "name another file, or move it away", EX_CANTCREAT
        ) from error
    except OSError as error:
        raise UserError(
            f"{path} cannot be written: {error.strerror}", "look at the folder", EX_CANTCREAT
        ) from error
