"""The learners a configuration can name, made afresh, or from a version's settings and arrays.

To add one: its pure learner in `learners`, its keys in `daemon.config.learners`, one line in `ALGORITHMS`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, fields
from typing import Any, TypeAlias

import numpy.typing as npt

from checkpoints.manifest import Manifest
from daemon.config.learners import LEARNERS, LearnerConfig
from daemon.versions.arrays import learner_specs, one_digest
from daemon.versions.blocks_form import BlocksForms
from daemon.versions.forms import VERSIONS, FormKind, MadeAnew
from daemon.versions.kernel_settings import omks_settings
from daemon.versions.matrix_form import MatrixForms
from daemon.versions.supports_form import SupportsForms
from learners.averaged import Averaged
from learners.block import Block
from learners.dissim import Dissim, DissimConfig
from learners.lego import Lego, LegoConfig
from learners.maps import FittedSpaceMap
from learners.multikernel import Omks
from learners.oasis import Oasis, OasisConfig
from learners.omks_maps import OmksMaps, OmksMapsConfig
from learners.protocol import Learner
from learners.soml import DiagonalLearner, SomlDa, SomlDaConfig, SomlTg, SomlTgConfig
from learners.tether import TetherConfig, Tethered

ADDED_LATER: Mapping[str, Any] = {"dedupe_window": 0}
"""Settings that versions of 0.1 do not have, and what they mean for those. Going on with another value is no
refusal but a control entry."""
LEFT_OUT: Mapping[str, Any] = {"pull_every": 0, "decay": 0.0, "radius": 0.0}
"""Settings that older versions do not have either: they were learned with these."""

Columns: TypeAlias = Mapping[str, range]
"""View, or kernel of a view, -> its columns in the mapped vectors, in their order."""
NO_VIEWS: Columns = {}


@dataclass(frozen=True, slots=True)
class Algorithm:
    """One learner as everything else knows it.

    settings: (keys of [learner], columns of the views) -> the learner's own settings; raises ConfigError.
    make: (settings, dim, sample) -> the learner before any event. sample: mapped objects of the warm-up, of
    which it may learn scales and landmarks; None unless `needs_sample`.
    restore: (arrays, settings) -> the learner that goes on from a version's arrays, taking them over where it
    can; raises StateError.
    forms: what versions are served as.
    followed: the arrays by whose bytes a copy that took its steps is known to be equal; () for all.
    by_block: it learns a similarity for each view or kernel of one, and wants each of unit length.
    full_step: keys of [learner] -> the largest tau of an event of weight 1; None where an event's tau says
    less of what it did than its weight.
    """

    settings: Callable[[Any, Columns], Any]
    make: Callable[[Any, int, Block | None], Learner]
    restore: Callable[[Mapping[str, npt.NDArray[Any]], Any], Learner]
    forms: FormKind
    followed: tuple[str, ...] = ()
    needs_sample: bool = False
    by_block: bool = False
    full_step: Callable[[Any], float] | None = None


def same_names(settings: Callable[..., Any]) -> Callable[[Any, Columns], Any]:
    """Settings of a dataclass whose fields are keys of [learner]."""
    names = [field.name for field in fields(settings)]  # type: ignore[arg-type]
    return lambda keys, _columns: settings(**{name: getattr(keys, name) for name in names})


def _aggressiveness(keys: Any) -> float:
    """C, the upper bound of tau."""
    return float(keys.C)


def _of_a_matrix(
    learner: type[Any], config: type[Any], full_step: Callable[[Any], float] | None = None
) -> Algorithm:
    """A learner of one matrix W, which can be pulled back towards its start."""
    own = same_names(config)

    def settings(keys: Any, columns: Columns) -> Any:
        inner = own(keys, columns)
        return TetherConfig(inner, keys.pull_every, keys.decay, keys.radius) if keys.pull_every else inner

    def made_by(settings: Any) -> Any:
        return Tethered if isinstance(settings, TetherConfig) else learner

    return Algorithm(
        settings=settings,
        make=lambda settings, dim, _sample: made_by(settings)(dim, settings),
        restore=lambda arrays, settings: made_by(settings).from_state(arrays, settings, copy=False),
        forms=MatrixForms(),
        followed=("W",),
        full_step=full_step,
    )


def _soml(learner: type[DiagonalLearner], config: type[Any]) -> Algorithm:
    """SOML: a diagonal metric, served as the cosine plus what was learned."""
    return Algorithm(
        settings=same_names(config),
        make=lambda settings, dim, _sample: learner(dim, settings),
        restore=lambda arrays, settings: learner.from_state(arrays, settings, copy=False),
        forms=MadeAnew(lambda made, serving: made.form(serving.score == "normalised")),
    )


ALGORITHMS: Mapping[str, Algorithm] = {
    "oasis": _of_a_matrix(Oasis, OasisConfig, _aggressiveness),
    "oasis-averaged": Algorithm(
        settings=lambda keys, _columns: OasisConfig(keys.C, keys.symmetric),
        make=lambda settings, dim, _sample: Averaged(dim, settings),
        restore=lambda arrays, settings: Averaged.from_state(arrays, settings, copy=False),
        forms=MatrixForms(follows=VERSIONS),
        full_step=_aggressiveness,
    ),
    "dissim-oasis": _of_a_matrix(Dissim, DissimConfig, _aggressiveness),
    "lego": _of_a_matrix(Lego, LegoConfig),
    "soml-tg": _soml(SomlTg, SomlTgConfig),
    "soml-da": _soml(SomlDa, SomlDaConfig),
    "omks-maps": Algorithm(
        settings=lambda keys, columns: OmksMapsConfig(
            tuple(len(block) for block in columns.values()), keys.C, keys.hedge()
        ),
        make=lambda settings, dim, _sample: OmksMaps(dim, settings),
        restore=lambda arrays, settings: OmksMaps.from_state(arrays, settings, copy=False),
        forms=BlocksForms(),
        by_block=True,
        full_step=_aggressiveness,
    ),
    "omks": Algorithm(
        settings=omks_settings,
        make=lambda settings, dim, sample: Omks(dim, settings, sample),
        restore=lambda arrays, settings: Omks.from_state(arrays, settings, copy=False),
        forms=SupportsForms(),
        needs_sample=True,
        by_block=True,
        full_step=_aggressiveness,
    ),
}


def learner_config_of(manifest: Manifest) -> LearnerConfig:
    """The learner's settings as a version recorded them. Raises KeyError or ValueError for what is no such
    record.
    """
    recorded = {**ADDED_LATER, **LEFT_OUT, **manifest.learner["config"]}
    keys = LEARNERS[manifest.learner["name"]]
    settings = {name: recorded[name] for name in keys.model_fields if name != "algorithm"}
    return keys(algorithm=manifest.learner["name"], **settings)


def by_steps(algorithm: str) -> bool:
    """Whether its models can be followed step by step, not only from version to version."""
    return ALGORITHMS[algorithm].forms.follows != VERSIONS


def state_digest(algorithm: str, names: Iterable[str], digest: Callable[[str], str]) -> str:
    """What two copies of a learner that took the same steps are compared by; names: of its arrays, of which
    `digest` gives each one's.
    """
    return one_digest({name: digest(name) for name in ALGORITHMS[algorithm].followed or names})


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
    config: LearnerConfig, dim: int, columns: Columns = NO_VIEWS, sample: Block | None = None
) -> Learner:
    """The learner before any event. Raises ConfigError."""
    algorithm = ALGORITHMS[config.algorithm]
    return algorithm.make(algorithm.settings(config, columns), dim, sample)


def restored(
    config: LearnerConfig, arrays: Mapping[str, npt.NDArray[Any]], columns: Columns = NO_VIEWS
) -> Learner:
    """The learner that goes on from a version's arrays, taking them over where it can. Raises StateError."""
    algorithm = ALGORITHMS[config.algorithm]
    return algorithm.restore(arrays, algorithm.settings(config, columns))
