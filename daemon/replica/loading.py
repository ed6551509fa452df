"""Loading a version into buffers that are already there, refusing what must not be served."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from checkpoints.encoding import DTYPES, empty_aligned, fresh
from checkpoints.errors import CheckpointError, Damaged
from checkpoints.manifest import ArraySpec, Manifest
from daemon.config.model import ServingConfig
from daemon.exits import UserError
from daemon.replica.model import ModelSpace
from daemon.replica.refusals import Refused
from daemon.replica.settings import Shelf
from daemon.versions.algorithms import algorithm_of, learner_config_of, restored
from daemon.versions.contents import records_of
from daemon.versions.forms import CARRIED
from daemon.versions.restore import DERIVED, settings_digest
from learners.block import Float32s
from learners.errors import LearnerError
from learners.forms.carried import Tangent
from learners.forms.quadratic import ServedForm
from learners.forms.serving import ServingForm
from learners.protocol import Learner

Arrays = dict[str, NDArray[Any]]
CHECKED = 1 << 20


@dataclass(frozen=True, slots=True)
class Buffers:
    """Where a version is read to: the learner's arrays by name; a matrix [d, d] for its form, None where the
    settings give none of this dimension a matrix; another one to carry the form on, None where it is not.
    """

    state: Arrays
    matrix: Float32s | None = None
    P: Float32s | None = None

    @classmethod
    def of(cls, space: ModelSpace, serving: ServingConfig, carried: bool = False) -> Buffers:
        """Buffers for versions of this space, touched, so that their memory is there from now on."""
        kind = algorithm_of(space.algorithm, space.keys).forms
        full = kind.has_matrix(serving, space.dim)
        carried = full and carried and kind.follows == CARRIED
        matrix, P = (_matrix(space.dim) if wanted else None for wanted in (full, carried))
        return cls(state_room(space), matrix, P)

    @property
    def tangent(self) -> Tangent | None:
        """The place of a carried form's matrices."""
        return None if self.matrix is None or self.P is None else Tangent(self.matrix, self.P)


@dataclass(frozen=True, slots=True)
class State:
    """A verified version: its manifest, and the learner on its arrays, which lie in the buffers. remake: the
    same learner on other arrays.
    """

    manifest: Manifest
    learner: Learner
    remake: Callable[[Arrays], Learner]

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
    if manifest.learner.get("name") != space.algorithm:
        name = manifest.learner.get("name")
        raise Refused("other_shape", f"version {number}: learner {name}, not {space.algorithm}")
    for wanted in space.arrays:
        if wanted not in manifest.arrays:
            told = f"no array {wanted.name} of {wanted.dtype} {wanted.shape}"
            raise Refused("other_shape", f"version {number}: {told}")


def load_state(shelf: Shelf, number: int, buffers: Buffers) -> State:
    """Read version `number` into the buffers and verify every byte; nothing of its size is allocated.

    Raises Refused; the buffers then hold anything.
    """
    try:
        manifest = shelf.versions.manifest(number)
        check_manifest(manifest, shelf.space)
        shelf.versions.load(number, lambda spec: buffers.state.get(spec.name))
    except Damaged as error:
        raise Refused(error.kind, f"{error.place}: {error.problem}") from error
    except CheckpointError as error:
        raise Refused("unreadable", f"{error.place}: {error.problem}") from error
    for name, array in buffers.state.items():
        if array.dtype.kind == "f":
            check_finite(array, f"version {number}: {name}")
    try:
        columns, keys = shelf.space.columns, shelf.space.keys
        remake = partial(restored, learner_config_of(manifest), columns=columns, keys=keys)
        return State(manifest, remake(buffers.state), remake)
    except (LearnerError, KeyError, ValueError) as error:
        raise Refused("malformed", f"version {number}: {error}") from error


def load_form(shelf: Shelf, state: State, buffers: Buffers) -> ServedForm:
    """The serving form of a version that was loaded into `buffers`, its matrix in theirs.

    Nothing of the size of a matrix is allocated where the form is attached to the version, made with the same
    settings; else it is computed. Raises Refused; the second buffer then holds anything.
    """
    number, kind = state.manifest.number, algorithm_of(shelf.space.algorithm, shelf.space.keys).forms
    try:
        form = _kept_form(shelf, state, buffers) if kind.kept else None
        if form is None:
            form = kind.make(state.learner, number, shelf.serving)
    except (LearnerError, UserError, ValueError, np.linalg.LinAlgError) as error:
        raise Refused("form", f"version {number}: {error}") from error
    if not isinstance(form, ServingForm) or form.matrix is None or form.matrix is buffers.matrix:
        return form
    assert buffers.matrix is not None, "the settings that made the matrix made the buffer"
    np.copyto(buffers.matrix, form.matrix)
    check_finite(buffers.matrix, f"version {number}: its serving form")
    return replace(form, matrix=buffers.matrix)


def check_finite(array: NDArray[Any], what: str) -> None:
    """Raise Refused when the array holds a number that is not finite; without a mask of its size."""
    flat = array.reshape(-1)
    for start in range(0, flat.size, CHECKED):
        if not np.isfinite(flat[start : start + CHECKED]).all():
            raise Refused("not_finite", f"{what} has values that are not finite")


def _kept_form(shelf: Shelf, state: State, buffers: Buffers) -> ServedForm | None:
    """The form attached to the version; None without one made with these settings, and where it is damaged:
    the version itself is whole, and its form can be made anew.
    """
    versions, number = shelf.versions, state.manifest.number
    try:
        meta = versions.attached_meta(number, DERIVED)
        if meta is None or meta.get("settings_digest") != settings_digest(shelf.serving):
            return None
        found = versions.attached(number, DERIVED, lambda spec: _form_destination(spec, buffers))
        kind = algorithm_of(shelf.space.algorithm, shelf.space.keys).forms
        return None if found is None else kind.read(found[0], state.learner)
    except (CheckpointError, LearnerError, ValueError):
        return None


def _form_destination(spec: ArraySpec, buffers: Buffers) -> NDArray[Any]:
    if spec.name == "matrix" and buffers.matrix is not None:
        return buffers.matrix
    return fresh(spec)


def state_room(space: ModelSpace) -> Arrays:
    """Room for the learner's arrays, that is really there: zeros alone would be taken page by page while
    answering.
    """
    return {spec.name: _touched(spec.shape, np.dtype(DTYPES[spec.dtype])) for spec in space.arrays}


def _matrix(dim: int) -> Float32s:
    return _touched((dim, dim), np.dtype(np.float32))


def _touched(shape: tuple[int, ...], dtype: np.dtype[Any]) -> NDArray[Any]:
    array = empty_aligned(shape, dtype)
    array.fill(0)
    return array
