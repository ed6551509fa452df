"""Loading a version into buffers that are already there, refusing what must not be served."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from checkpoints.encoding import empty_aligned, fresh
from checkpoints.errors import CheckpointError, Damaged
from checkpoints.manifest import ArraySpec, Manifest
from checkpoints.versions import VersionStore
from daemon.config.model import ServingConfig
from daemon.exits import UserError
from daemon.replica.model import ModelSpace
from daemon.replica.refusals import Refused
from daemon.replica.settings import Shelf
from daemon.versions.arrays import MAP_PREFIX, WINDOW_PREFIX
from daemon.versions.counters import records_of
from daemon.versions.matrix_form import has_matrix, make_form
from daemon.versions.serving_form import DERIVED, settings_digest
from learners.block import Float32s
from learners.carried import Tangent
from learners.errors import LearnerError
from learners.serving import ServingForm

Arrays = dict[str, NDArray[Any]]
CHECKED_ROWS = 256


@dataclass(frozen=True, slots=True)
class Buffers:
    """Where a version is read to: W float32 [d, d]; a second matrix for its form, None where the settings
    give none of this dimension a matrix; a third one to carry the form on, None where it is not.
    """

    W: Float32s
    matrix: Float32s | None
    P: Float32s | None = None

    @classmethod
    def of(cls, dim: int, serving: ServingConfig, carried: bool = False) -> Buffers:
        """Buffers for versions of this dimension, touched, so that their memory is there from now on."""
        full = has_matrix(serving, dim)
        matrix, P = (_touched(dim) if wanted else None for wanted in (full, full and carried))
        return cls(_touched(dim), matrix, P)

    @property
    def tangent(self) -> Tangent | None:
        """The place of a carried form's matrices."""
        return None if self.matrix is None or self.P is None else Tangent(self.matrix, self.P)


@dataclass(frozen=True, slots=True)
class State:
    """A verified version: its manifest and the learner's arrays, W in its buffer."""

    manifest: Manifest
    arrays: Arrays

    @property
    def records(self) -> int:
        """Records applied since version 0."""
        return records_of(self.manifest)


def check_manifest(manifest: Manifest, space: ModelSpace) -> None:
    """Raise Refused for a version of another space, map or shape."""
    number = manifest.number
    if manifest.space != space.space:
        raise Refused("other_space", f"version {number}: space {manifest.space!r}, not {space.space!r}")
    if manifest.map.get("id") != space.map_id:
        raise Refused("other_map", f"version {number}: map {manifest.map.get('id')}, not {space.map_id}")
    wanted = ArraySpec("W", "F32", (space.dim, space.dim))
    if wanted not in manifest.arrays:
        raise Refused("other_shape", f"version {number}: no array W of float32 {wanted.shape}")


def load_state(shelf: Shelf, number: int, buffers: Buffers) -> State:
    """Read version `number` into `buffers.W` and verify every byte; nothing of its size is allocated.

    Raises Refused; the buffer then holds anything.
    """
    try:
        manifest = shelf.versions.manifest(number)
        check_manifest(manifest, shelf.space)
        arrays = shelf.versions.load(number, lambda spec: _destination(spec, buffers)).arrays
    except Damaged as error:
        raise Refused(error.kind, f"{error.place}: {error.problem}") from error
    except CheckpointError as error:
        raise Refused("unreadable", f"{error.place}: {error.problem}") from error
    check_finite(buffers.W, f"version {number}: W")
    return State(manifest, arrays)


def load_form(shelf: Shelf, number: int, buffers: Buffers) -> ServingForm:
    """The serving form of a version whose W is in `buffers`, its matrix in theirs.

    Nothing of the size of W is allocated where the form is attached to the version, made with the same
    settings; else it is computed. Raises Refused; the second buffer then holds anything.
    """
    try:
        kept = _kept_form(shelf.versions, number, shelf.serving, buffers)
        form = kept if kept is not None else make_form(buffers.W, number, shelf.serving)
    except (LearnerError, UserError, ValueError, np.linalg.LinAlgError) as error:
        raise Refused("form", f"version {number}: {error}") from error
    if form.matrix is None or form.matrix is buffers.matrix:
        return form
    assert buffers.matrix is not None, "the settings that made the matrix made the buffer"
    np.copyto(buffers.matrix, form.matrix)
    check_finite(buffers.matrix, f"version {number}: its serving form")
    return replace(form, matrix=buffers.matrix)


def check_finite(matrix: Float32s, what: str) -> None:
    """Raise Refused when the matrix holds a number that is not finite; without a mask of its size."""
    for row in range(0, len(matrix), CHECKED_ROWS):
        if not np.isfinite(matrix[row : row + CHECKED_ROWS]).all():
            raise Refused("not_finite", f"{what} has values that are not finite")


def _destination(spec: ArraySpec, buffers: Buffers) -> NDArray[Any] | None:
    """W into its buffer; the learner's small arrays anew; the map and the window are verified only."""
    if spec.name == "W":
        return buffers.W
    return None if spec.name.startswith((MAP_PREFIX, WINDOW_PREFIX)) else fresh(spec)


def _kept_form(
    versions: VersionStore, number: int, serving: ServingConfig, buffers: Buffers
) -> ServingForm | None:
    """The form attached to the version; None without one made with these settings, and where it is damaged:
    the version itself is whole, and its form can be made anew.
    """
    try:
        meta = versions.attached_meta(number, DERIVED)
        if meta is None or meta.get("settings_digest") != settings_digest(serving):
            return None
        found = versions.attached(number, DERIVED, lambda spec: _form_destination(spec, buffers))
        return None if found is None else ServingForm.from_arrays(found[0], buffers.W)
    except (CheckpointError, LearnerError, ValueError):
        return None


def _form_destination(spec: ArraySpec, buffers: Buffers) -> NDArray[Any]:
    if spec.name == "matrix" and buffers.matrix is not None:
        return buffers.matrix
    return fresh(spec)


def _touched(dim: int) -> Float32s:
    """A matrix whose memory is really there: zeros alone would be taken page by page while answering."""
    matrix = empty_aligned((dim, dim), np.dtype(np.float32))
    matrix.fill(0)
    return matrix
