"""A loaded version's map, its learner, and the form in which it is judged and served.

What takes long to make is made once per version, off the learner, so that checkpoints stay small and the
learner's memory flat: it is stored as the derived file `serving` of its version, with the settings it was
made with, and read back later; for other settings it is made in memory.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, Protocol

import structlog
from numpy.typing import NDArray

from checkpoints.encoding import fresh
from checkpoints.manifest import Manifest
from checkpoints.store import CheckpointError, KeyExists
from checkpoints.versions import Version, VersionStore
from daemon.config.schema import ServingConfig
from daemon.versions.algorithms import algorithm_of, columns_of, keys_of, learner_config_of, map_of, restored
from daemon.versions.choice import (
    DERIVED,
    FormChoice,
    choice_at,
    described,
    digest_of,
    stands,
)
from daemon.versions.contents import MAP_PREFIX, learner_arrays
from daemon.versions.forms import FormKind, MatrixForms, as_scored
from learners.base import Learner
from learners.errors import StateError
from learners.forms.quadratic import ServedForm
from learners.forms.serving import ServingForm
from learners.maps import FittedSpaceMap
from learners.own import OwnRanking


def read_map(versions: VersionStore, number: int) -> tuple[Manifest, FittedSpaceMap]:
    """A version's manifest and map; of its other arrays nothing is kept. Raises Damaged, and MapError as
    `map_of`.
    """
    version = versions.load(number, lambda spec: fresh(spec) if spec.name.startswith(MAP_PREFIX) else None)
    return version.manifest, map_of(version)


log = structlog.get_logger("tripletd.serving_form")


class ChoosesForms(Protocol):
    """Who chooses the form of a version that has none yet."""

    def choose(
        self, number: int, now: FormChoice | None, learned: Callable[[float], ServingForm], own: OwnRanking
    ) -> FormChoice:
        """now: what was chosen last. learned: what was learned, at a power."""


def serving_form(
    versions: VersionStore,
    version: Version,
    config: ServingConfig,
    keep: bool = True,
    chooser: ChoosesForms | None = None,
) -> ServedForm:
    """The serving form of a loaded version: read when it was made with these settings, else made and, unless
    `keep` is false, kept where its learner's forms are. chooser: asked where forms are judged and none is
    kept; None: what was chosen last for an earlier version is taken.

    Raises StateError for arrays that are missing or not finite, UserError for settings its dimension does not
    allow. A form that cannot be read or written (damage, full disk) is made in memory and the trouble is
    logged.
    """
    manifest = version.manifest
    kind = algorithm_of(manifest.learner["name"], keys_of(manifest)).forms
    fitted = map_of(version)
    learner, own = learner_of(version, fitted), fitted.own
    number, scored, judged = manifest.number, as_scored(config, own), kind.is_judged(config, own)
    if not kind.kept or (number == 0 and own is not None):
        return kind.make(learner, number, config, own)
    choice = choice_at(versions, number) if judged else None
    try:
        kept = versions.attached(number, DERIVED)
    except CheckpointError as error:
        log.warning("serving form cannot be read; made anew", version=number, error=str(error))
        return kind.make(learner, number, config, own, choice)
    if kept is not None:
        arrays, meta = kept
        if stands(meta, scored, judged):
            return kind.read(arrays, learner, own)
    if judged and kept is None and chooser is not None and own is not None:
        choice = chooser.choose(number, choice, _learned(kind, learner, number, scored, own), own)
    form = kind.make(learner, number, config, own, choice)
    if kept is None and keep:
        told = described(scored, choice)
        made = {"settings_digest": digest_of(told), "made": kind.account(form)}
        _keep(versions, number, kind.arrays(form), told | made)
    return form


def _learned(
    kind: FormKind, learner: Learner, number: int, config: ServingConfig, own: OwnRanking
) -> Callable[[float], ServingForm]:
    assert isinstance(kind, MatrixForms), "no other forms are chosen"
    return partial(kind.learned, learner, number, config, own)


def learner_of(version: Version, fitted: FittedSpaceMap | None = None) -> Learner:
    """The learner of a loaded version, on its arrays; fitted: its map, where it was read already. Raises
    StateError for what is none."""
    try:
        config, keys = learner_config_of(version.manifest), keys_of(version.manifest)
    except (KeyError, ValueError) as error:
        raise StateError(f"the version's learner is not described: {error}") from error
    space = map_of(version) if fitted is None else fitted
    return restored(config, learner_arrays(version.arrays), columns_of(space), keys, own=space.own)


def _keep(versions: VersionStore, number: int, arrays: dict[str, NDArray[Any]], meta: dict[str, Any]) -> None:
    try:
        versions.attach(number, DERIVED, arrays, meta)
    except KeyExists:
        pass  # another validator made the same form of the same version
    except CheckpointError as error:
        log.warning("serving form not kept", version=number, error=str(error))
