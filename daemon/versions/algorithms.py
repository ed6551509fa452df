"""The learners a configuration can name, made afresh, or from a version's settings and arrays.

To add one: its pure learner in `learners`, its keys in `daemon.config.learners`, one line in `ALGORITHMS`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import fields
from typing import Any

import numpy.typing as npt

from checkpoints.manifest import Manifest
from daemon.config.keys import KeysConfig
from daemon.config.learners import LEARNERS, LearnerConfig
from daemon.versions.algorithm import NO_VIEWS, Algorithm, Columns
from daemon.versions.arrays import learner_specs, one_digest
from daemon.versions.blocks_form import BlocksForms
from daemon.versions.by_key import ONE_MODEL, by_key, compared
from daemon.versions.forms import HELD, VERSIONS, MadeAnew
from daemon.versions.kernel_settings import oks_settings, omks_settings
from daemon.versions.matrix_form import MatrixForms
from daemon.versions.supports_form import SupportsForms
from learners.averaged import Averaged
from learners.block import Block
from learners.dissim import Dissim, DissimConfig
from learners.lego import Lego, LegoConfig
from learners.maps import FittedSpaceMap
from learners.multikernel import Omks, OmksConfig, support_bytes
from learners.multikernel.form import form_bytes
from learners.oasis import Oasis, OasisConfig
from learners.omks_maps import OmksMaps, OmksMapsConfig
from learners.protocol import Learner
from learners.soml import DiagonalLearner, SomlDa, SomlDaConfig, SomlTg, SomlTgConfig
from learners.tether import TetherConfig, Tethered, untethered

ADDED_LATER: Mapping[str, Any] = {"dedupe_window": 0}
"""Settings that versions of 0.1 do not have, and what they mean for those. Going on with another value is no
refusal but a control entry."""
LEFT_OUT: Mapping[str, Any] = {"pull_every": 0, "decay": 0.0, "radius": 0.0}
"""Settings that older versions do not have either: they were learned with these."""


def same_names(settings: Callable[..., Any]) -> Callable[[Any, Columns], Any]:
    """Settings of a dataclass whose fields are keys of [learner]."""
    names = [field.name for field in fields(settings)]  # type: ignore[arg-type]
    return lambda keys, _columns: settings(**{name: getattr(keys, name) for name in names})


def _aggressiveness(keys: Any) -> float:
    """C, the upper bound of tau."""
    return float(keys.C)


def matrices(count: int) -> Callable[[Any, Columns, int], int]:
    """The bytes of so many float32 matrices [dim, dim]."""
    return lambda _keys, _columns, dim: 4 * count * dim * dim


def vectors(count: int) -> Callable[[Any, Columns, int], int]:
    """The bytes of so many 8-byte vectors [dim]."""
    return lambda _keys, _columns, dim: 8 * count * dim


def _pulled(
    own: Callable[[Any, Columns], Any], learner: type[Any]
) -> tuple[Callable[[Any, Columns], Any], Callable[[Any], type[Any]]]:
    """(settings, class) of a learner that can be pulled back towards its start, as `Algorithm` wants them."""

    def settings(keys: Any, columns: Columns) -> Any:
        inner = own(keys, columns)
        radius = getattr(keys, "radius", 0.0)
        return TetherConfig(inner, keys.pull_every, keys.decay, radius) if keys.pull_every else inner

    return settings, lambda settings: Tethered if isinstance(settings, TetherConfig) else learner


def _of_a_matrix(
    learner: type[Any],
    config: type[Any],
    full_step: Callable[[Any], float] | None = None,
    distance: bool = False,
) -> Algorithm:
    """A learner of one matrix W."""
    settings, made_by = _pulled(same_names(config), learner)
    return Algorithm(
        settings=settings,
        make=lambda settings, dim, _sample: made_by(settings)(dim, settings),
        restore=lambda arrays, settings: made_by(settings).from_state(arrays, settings, copy=False),
        forms=MatrixForms(distance=distance),
        state_bytes=matrices(1),
        followed=("W",),
        full_step=full_step,
    )


def _soml(learner: type[DiagonalLearner], config: type[Any], arrays: int) -> Algorithm:
    """SOML: a diagonal metric, served as the cosine plus what was learned."""
    settings, made_by = _pulled(same_names(config), learner)
    return Algorithm(
        settings=settings,
        make=lambda settings, dim, _sample: made_by(settings)(dim, settings),
        restore=lambda arrays, settings: made_by(settings).from_state(arrays, settings, copy=False),
        forms=MadeAnew(lambda made, serving: untethered(made).form(serving.score == "normalised")),
        state_bytes=vectors(arrays),
    )


def _omks_maps() -> Algorithm:
    """OMKS over maps: a matrix for each block of columns."""

    def own(keys: Any, columns: Columns) -> OmksMapsConfig:
        return OmksMapsConfig(tuple(len(block) for block in columns.values()), keys.C, keys.hedge())

    settings, made_by = _pulled(own, OmksMaps)
    return Algorithm(
        settings=settings,
        make=lambda settings, dim, _sample: made_by(settings)(dim, settings),
        restore=lambda arrays, settings: made_by(settings).from_state(arrays, settings, copy=False),
        forms=BlocksForms(),
        state_bytes=lambda _keys, columns, _dim: sum(4 * len(block) ** 2 for block in columns.values()),
        by_block=True,
        full_step=_aggressiveness,
    )


def _over_supports(settings: Callable[[Any, Columns], OmksConfig]) -> Algorithm:
    """OKS and OMKS over a support set."""
    return Algorithm(
        settings=settings,
        make=lambda settings, dim, sample: Omks(dim, settings, sample),
        restore=lambda arrays, settings: Omks.from_state(arrays, settings, copy=False),
        forms=SupportsForms(),
        state_bytes=lambda keys, columns, dim: support_bytes(dim, settings(keys, columns)),
        needs_sample=True,
        by_block=True,
        form_bytes=lambda keys, columns, dim, items: form_bytes(dim, settings(keys, columns), items),
        full_step=_aggressiveness,
    )


ALGORITHMS: Mapping[str, Algorithm] = {
    "oasis": _of_a_matrix(Oasis, OasisConfig, _aggressiveness),
    "oasis-averaged": Algorithm(
        settings=lambda keys, _columns: OasisConfig(keys.C, keys.symmetric),
        make=lambda settings, dim, _sample: Averaged(dim, settings),
        restore=lambda arrays, settings: Averaged.from_state(arrays, settings, copy=False),
        forms=MatrixForms(follows=HELD),
        state_bytes=matrices(2),
        full_step=_aggressiveness,
    ),
    "dissim-oasis": _of_a_matrix(Dissim, DissimConfig, _aggressiveness, distance=True),
    "lego": _of_a_matrix(Lego, LegoConfig, distance=True),
    "soml-tg": _soml(SomlTg, SomlTgConfig, 2),
    "soml-da": _soml(SomlDa, SomlDaConfig, 1),
    "omks-maps": _omks_maps(),
    "oks": _over_supports(oks_settings),
    "omks": _over_supports(omks_settings),
}


def learner_config_of(manifest: Manifest) -> LearnerConfig:
    """The learner's settings as a version recorded them. Raises KeyError or ValueError for what is no such
    record.
    """
    recorded = {**ADDED_LATER, **LEFT_OUT, **manifest.learner["config"]}
    keys = LEARNERS[manifest.learner["name"]]
    settings = {name: recorded[name] for name in keys.model_fields if name != "algorithm"}
    return keys(algorithm=manifest.learner["name"], **settings)


def algorithm_of(name: str, keys: KeysConfig = ONE_MODEL) -> Algorithm:
    """The algorithm of this name, with one model per key where `keys` has slots."""
    one = ALGORITHMS[name]
    return by_key(one, keys) if keys.slots else one


def by_steps(algorithm: str, keys: KeysConfig = ONE_MODEL) -> bool:
    """Whether its models can be followed step by step, not only from version to version."""
    return algorithm_of(algorithm, keys).forms.follows != VERSIONS


def state_digest(algorithm: str, names: Iterable[str], digest: Callable[[str], str]) -> str:
    """What two copies of a learner that took the same steps are compared by; names: of its arrays, of which
    `digest` gives each one's.
    """
    return one_digest({name: digest(name) for name in compared(ALGORITHMS[algorithm].followed, names)})


def digest_of(manifest: Manifest) -> str:
    """`state_digest` of a version."""
    digests = {spec.name: spec.digest for spec in learner_specs(manifest)}
    return state_digest(manifest.learner["name"], digests, digests.__getitem__)


def full_step(config: LearnerConfig) -> float | None:
    """The largest tau that an event of weight 1 can have, see `Algorithm`."""
    algorithm = ALGORITHMS[config.algorithm]
    return None if algorithm.full_step is None else algorithm.full_step(config)


def columns_of(fitted: FittedSpaceMap) -> Columns:
    """The columns of each view in what a map gives, or of each kernel of a view where it has several."""
    return fitted.blocks


def untrained(
    config: LearnerConfig,
    dim: int,
    columns: Columns = NO_VIEWS,
    sample: Block | None = None,
    keys: KeysConfig = ONE_MODEL,
) -> Learner:
    """The learner before any event. Raises ConfigError."""
    algorithm = algorithm_of(config.algorithm, keys)
    return algorithm.make(algorithm.settings(config, columns), dim, sample)


def restored(
    config: LearnerConfig,
    arrays: Mapping[str, npt.NDArray[Any]],
    columns: Columns = NO_VIEWS,
    keys: KeysConfig = ONE_MODEL,
) -> Learner:
    """The learner that goes on from a version's arrays, taking them over where it can. Raises StateError."""
    algorithm = algorithm_of(config.algorithm, keys)
    return algorithm.restore(arrays, algorithm.settings(config, columns))
