"""Loading a version: read, verified and checked into buffers that are there already; and the versions that
were rejected, each counted and logged once, tried again after a while.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import numpy as np
import structlog
from numpy.typing import NDArray

from checkpoints.encoding import DTYPES, empty_aligned, fresh
from checkpoints.entries import LATEST, LedgerEntry
from checkpoints.manifest import ArraySpec, Manifest
from checkpoints.store import CheckpointError, Damaged
from checkpoints.versions import Version
from daemon.config.schema import ServingConfig
from daemon.exits import UserError
from daemon.replica.settings import VersionSource
from daemon.replica.view import BY_FORM, ModelSpace
from daemon.versions.algorithms import algorithm_of, learner_config_of, restored
from daemon.versions.contents import ARMS_PREFIX, MAP_PREFIX, map_arrays, records_of
from daemon.versions.forms import CARRIED, as_scored
from daemon.versions.order import Answering, answering, arm_settings, order_form
from daemon.versions.restore import DERIVED, stands
from learners.base import Learner
from learners.block import Float32s
from learners.errors import LearnerError
from learners.forms.carried import Tangent
from learners.forms.quadratic import ServedForm
from learners.forms.serving import ServingForm, learned_of, with_learned
from learners.maps.base import OwnRanking
from learners.maps.queries import ARRAY, QueryMaps, load_queries

FIRST_RETRY_S, LONGEST_RETRY_S = 5.0, 300.0
"""A file may be put back, a disk may recover: the wait doubles from the one to the other."""

REASONS: Mapping[str, str] = {
    "missing": "a file that its manifest names is not there",
    "truncated": "a file ends early",
    "altered": "a file's bytes do not match its hash",
    "malformed": "a file is not of its format",
    "mismatch": "its files contradict each other",
    "unreadable": "a file cannot be read",
    "future_format": "it was written by a newer release",
    "not_finite": "it holds numbers that are not finite",
    "other_shape": "its matrix has another shape than what is served",
    "other_map": "its objects are mapped by another map than what is served, which is that of the version "
    "that was newest when serving started; start it again for a newer one, or serve this one from a folder "
    "of its own",
    "other_space": "it was learned in another space than what is served",
    "older": "it is older than what is served, and no verdict moved the name back to it",
    "form": "its serving form cannot be made",
    "order": "what it orders lists by cannot be made",
    "prepare": "what is computed for a model before it answers failed",
    "warm": "its first search failed",
}


log = structlog.get_logger("tripletd.replica")


class VersionRejected(Exception):
    """A version is not served; `reason` is a key of REASONS, the message names place and problem."""

    def __init__(self, reason: str, detail: str) -> None:
        super().__init__(f"{detail} ({REASONS[reason]})")
        self.reason = reason


@dataclass(slots=True)
class _Case:
    """One refused version: why, and when it is tried again."""

    reason: str
    wait_s: float
    again_at: float


@dataclass(slots=True)
class RejectedVersions:
    """The versions refused under one alias. `now` is any clock in seconds that only goes forward."""

    alias: str
    counts: Counter[str] = field(default_factory=Counter)
    _cases: dict[int, _Case] = field(default_factory=dict)
    _logged: set[tuple[int, str]] = field(default_factory=set)

    def add(self, number: int, refused: VersionRejected, now: float) -> None:
        """Version `number` was refused now, and is barred for a while."""
        case = self._cases.setdefault(number, _Case("", FIRST_RETRY_S / 2, now))
        case.wait_s = min(2 * case.wait_s, LONGEST_RETRY_S)
        case.reason, case.again_at = str(refused), now + case.wait_s
        self._log_once(number, refused)

    def older(self, number: int, why: str) -> None:
        """Version `number` is not served because it is older; a verdict may move the name to it any time."""
        self._log_once(number, VersionRejected("older", why))

    def barred(self, now: float) -> dict[int, str]:
        """The versions not to be tried now, each with why."""
        return {number: case.reason for number, case in self._cases.items() if now < case.again_at}

    def keep(self, listed: set[int]) -> None:
        """Forget versions that are not there any more."""
        self._cases = {number: case for number, case in self._cases.items() if number in listed}
        self._logged = {refusal for refusal in self._logged if refusal[0] in listed}

    def _log_once(self, number: int, refused: VersionRejected) -> None:
        if (number, refused.reason) not in self._logged:
            self._logged.add((number, refused.reason))
            self.counts[refused.reason] += 1
            about = {"alias": self.alias, "version": number, "reason": refused.reason}
            log.error("a version is refused", **about, why=str(refused))


Arrays = dict[str, NDArray[Any]]
CHECKED = 1 << 20


@dataclass(frozen=True, slots=True)
class BufferArrays:
    """Where a version is read to: the learner's arrays by name, but for those that grow; a matrix [d, d] for
    its form, None where the settings give none of this dimension a matrix; another one to carry the form on,
    None where it is not.
    """

    state: Arrays
    matrix: Float32s | None = None
    P: Float32s | None = None

    @classmethod
    def of(cls, space: ModelSpace, serving: ServingConfig, carried: bool = False) -> BufferArrays:
        """Buffers for versions of this space, touched, so that their memory is there from now on."""
        kind = algorithm_of(space.algorithm, space.keys).forms.served(serving)
        full = kind.has_matrix(serving, space.dim)
        carried = full and carried and kind.follows == CARRIED
        shape = space.dim, space.dim
        matrix, P = (_touched(shape, np.dtype(np.float32)) if one else None for one in (full, carried))
        return cls(state_room(space), matrix, P)

    @property
    def tangent(self) -> Tangent | None:
        """The place of a carried form's matrices."""
        return None if self.matrix is None or self.P is None else Tangent(self.matrix, self.P)


@dataclass(frozen=True, slots=True)
class LoadedState:
    """A verified version: manifest, and learner on arrays in the buffers. remake: that learner on others.
    queries: what takes queries of other models to the space. answers, order: as in `View`."""

    manifest: Manifest
    learner: Learner
    remake: Callable[[Arrays], Learner]
    queries: QueryMaps = field(default_factory=dict)
    answers: Answering = BY_FORM
    order: ServedForm | None = None

    @property
    def records(self) -> int:
        """Records applied since version 0."""
        return records_of(self.manifest)


def check_manifest(manifest: Manifest, space: ModelSpace) -> None:
    """Raise VersionRejected for a version of another space, map or shape."""
    number = manifest.number
    for reason, what, own, served in (
        ("other_space", "space", repr(manifest.space), repr(space.space)),
        ("other_map", "map", manifest.map.get("id"), space.map_id),
        ("other_shape", "learner", manifest.learner.get("name"), space.algorithm),
    ):
        if own != served:
            raise VersionRejected(reason, f"version {number}: {what} {own}, not {served}")
    lacking, grows = lacked(manifest, space), space.grows
    alike = {(spec.name, spec.dtype, len(spec.shape)) for spec in manifest.arrays if spec.name in grows}
    for wanted in space.arrays:
        if (wanted.name, wanted.dtype, len(wanted.shape)) in alike:
            continue
        if wanted not in manifest.arrays and wanted.name not in lacking:
            missing = f"no array {wanted.name} of {wanted.dtype} {wanted.shape}"
            raise VersionRejected("other_shape", f"version {number}: {missing}")


def lacked(manifest: Manifest, space: ModelSpace) -> Arrays:
    """The arrays that a version of an earlier release lacks, as they were: all that came later, or none."""
    return {} if {*space.later} & {spec.name for spec in manifest.arrays} else {**space.later}


def load_state(
    source: VersionSource, number: int, buffers: BufferArrays, answers: Answering = BY_FORM
) -> LoadedState:
    """Read version `number` into the buffers and verify every byte; nothing of its size is allocated, but
    for arrays that grow, and the arm by which the version is to order lists.

    Raises VersionRejected; the buffers then hold anything.
    """
    try:
        manifest = source.versions.manifest(number)
        check_manifest(manifest, source.space)
        grows = source.space.grows
        version = source.versions.load(number, lambda spec: _destination(spec, buffers, grows, answers))
        for name, array in lacked(manifest, source.space).items():
            np.copyto(buffers.state[name], array)
    except Damaged as error:
        raise VersionRejected(error.kind, f"{error.place}: {error.problem}") from error
    except CheckpointError as error:
        raise VersionRejected("unreadable", f"{error.place}: {error.problem}") from error
    for name, array in buffers.state.items():
        if array.dtype.kind == "f":
            check_finite(array, f"version {number}: {name}")
    try:
        columns, keys = source.space.columns, source.space.keys
        own = source.space.own
        remake = partial(restored, learner_config_of(manifest), columns=columns, keys=keys, own=own)
        queries = load_queries(manifest.map.get("spec", {}).get("queries", ()), map_arrays(version.arrays))
        read = {name: version.arrays[name] for name in grows}  # a learner that grows takes over none
        learner = remake({**buffers.state, **read})
    except (LearnerError, KeyError, ValueError) as error:
        raise VersionRejected("malformed", f"version {number}: {error}") from error
    return LoadedState(manifest, learner, remake, queries, answers, _order_in(version, own, answers))


def answers_of(alias: str, entries: Iterable[LedgerEntry], number: int) -> Answering:
    """How version `number` answers under an alias. Who asks `latest` wants what was learned: it searches the
    catalog, whatever was shown of it. Pure."""
    found = answering(entries, number)
    return replace(found, reach=True) if alias == LATEST else found


def load_order(source: VersionSource, number: int, answers: Answering) -> ServedForm | None:
    """What version `number` orders given lists by, None where that is its form. Raises VersionRejected."""
    if answers.order is None:
        return None
    try:
        version = source.versions.load(number, lambda spec: fresh(spec) if _of_arm(spec, answers) else None)
    except CheckpointError as error:
        raise VersionRejected("unreadable", f"{error.place}: {error.problem}") from error
    return _order_in(version, source.space.own, answers)


def _order_in(version: Version, own: OwnRanking | None, answers: Answering) -> ServedForm | None:
    choice, manifest = answers.order, version.manifest
    if choice is None:
        return None
    if own is None or choice.arm not in arm_settings(manifest):
        if answers.reach:
            return None
        raise VersionRejected("order", f"version {manifest.number}: it has no arm {choice.arm}")
    try:
        return order_form(version, own, choice)  # the arrays of other arms were not read
    except (LearnerError, ValueError) as error:
        raise VersionRejected("order", f"version {manifest.number}: {error}") from error


def _of_arm(spec: ArraySpec, answers: Answering) -> bool:
    return answers.order is not None and spec.name.startswith(f"{ARMS_PREFIX}{answers.order.arm}.")


def _destination(
    spec: ArraySpec, buffers: BufferArrays, grows: tuple[str, ...], answers: Answering
) -> NDArray[Any] | None:
    """Where an array of a version is read to; None for what is not needed."""
    if spec.name.startswith(MAP_PREFIX + ARRAY) or spec.name in grows or _of_arm(spec, answers):
        return fresh(spec)
    return buffers.state.get(spec.name)


def load_form(source: VersionSource, state: LoadedState, buffers: BufferArrays) -> ServedForm:
    """The serving form of a version that was loaded into `buffers`, its matrix in theirs.

    Nothing of the size of a matrix is allocated where the form is attached to the version, made with the same
    settings; else it is computed. A version that does not reach is searched by the user's own ranking. Raises
    VersionRejected; the second buffer then holds anything.
    """
    number, kind = state.manifest.number, source.forms
    own = source.space.own
    if not state.answers.reach and own is not None:
        return own.form()
    try:
        form = _kept_form(source, state, buffers) if kind.kept and (number or own is None) else None
        if form is None:
            form = kind.make(state.learner, number, source.serving, own, source.choice_at(number))
    except (LearnerError, UserError, ValueError, np.linalg.LinAlgError) as error:
        raise VersionRejected("form", f"version {number}: {error}") from error
    learned = learned_of(form)
    if not isinstance(learned, ServingForm) or learned.matrix is None or learned.matrix is buffers.matrix:
        return form
    assert buffers.matrix is not None, "the settings that made the matrix made the buffer"
    np.copyto(buffers.matrix, learned.matrix)
    check_finite(buffers.matrix, f"version {number}: its serving form")
    return with_learned(form, replace(learned, matrix=buffers.matrix))


def check_finite(array: NDArray[Any], what: str) -> None:
    """Raise VersionRejected when the array holds a number that is not finite; without a mask of its size."""
    flat = array.reshape(-1)
    for start in range(0, flat.size, CHECKED):
        if not np.isfinite(flat[start : start + CHECKED]).all():
            raise VersionRejected("not_finite", f"{what} has values that are not finite")


def _kept_form(source: VersionSource, state: LoadedState, buffers: BufferArrays) -> ServedForm | None:
    """The form attached to the version; None without one made with these settings, and where it is damaged:
    the version itself is whole, and its form can be computed.
    """
    versions, number = source.versions, state.manifest.number
    try:
        meta = versions.attached_meta(number, DERIVED)
        settings = as_scored(source.serving, source.space.own)
        if meta is None or not stands(meta, settings, source.is_judged):
            return None
        found = versions.attached(number, DERIVED, lambda spec: _form_destination(spec, buffers))
        if found is None:
            return None
        form = source.forms.read(found[0], state.learner, source.space.own)
        learned = learned_of(form)
        if not isinstance(learned, ServingForm) or learned.matrix is None:
            return form
        # it knows again what its eigenvalues were raised to, so it is carried on
        power = meta.get("settings", {}).get("power") if learned.normalised else 1.0
        return with_learned(form, replace(learned, power=power))
    except (CheckpointError, LearnerError, ValueError):
        return None


def _form_destination(spec: ArraySpec, buffers: BufferArrays) -> NDArray[Any]:
    if spec.name == "matrix" and buffers.matrix is not None:
        return buffers.matrix
    return fresh(spec)


def state_room(space: ModelSpace) -> Arrays:
    """Room for the learner's arrays, really there: zeros alone would be taken page by page in use."""
    return {
        spec.name: _touched(spec.shape, np.dtype(DTYPES[spec.dtype]))
        for spec in space.arrays
        if spec.name not in space.grows
    }


def _touched(shape: tuple[int, ...], dtype: np.dtype[Any]) -> NDArray[Any]:
    array = empty_aligned(shape, dtype)
    array.fill(0)
    return array
