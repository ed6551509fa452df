"""The one table of the learners that a configuration can name: how each is made, restored, weighed in memory,
followed and served; and what a version's manifest records of its learner's settings.

To add one: its pure learner in `learners`, its keys in `daemon.config.learners`, one line in `ALGORITHMS`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, fields, replace
from functools import partial
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from checkpoints.manifest import Manifest
from checkpoints.versions import Version
from daemon.config.learners import (
    DEFAULT,
    LEARNERS,
    KeysConfig,
    LearnerConfig,
    OksKeys,
    OmksKeys,
    SupportKeys,
)
from daemon.config.schema import Config
from daemon.exits import EX_CONFIG, UserError
from daemon.versions.contents import learner_specs, map_arrays, one_digest
from daemon.versions.forms import (
    HELD,
    VERSIONS,
    BlocksForms,
    FormKind,
    KeyedForms,
    LowRankForms,
    MatrixForms,
    SupportsForms,
    TouchedForms,
    UnstoredForms,
)
from learners.averaged import Averaged
from learners.base import Learner
from learners.block import Block, Float32s
from learners.caps import CapsConfig
from learners.distance import Dissim, DissimConfig, Lego, LegoConfig
from learners.errors import ConfigError
from learners.hedge import HedgeConfig
from learners.keyed import CLOCK, KEY_ARRAYS, Keyed, KeyedConfig, repeated
from learners.lego_pairs import LegoPairs, LegoPairsConfig
from learners.loreta import Loreta, LoretaConfig
from learners.loreta_merge import OF_A_CORRECTION, correction_goes_on, corrections
from learners.maps import FittedSpaceMap
from learners.maps.base import OwnRanking, first_diagonal
from learners.merge import Arrays, MergeRule, State, StateMerge
from learners.merge_keys import KeyedMerge
from learners.merge_rules import (
    OF_A_DIAGONAL,
    OF_A_MATRIX,
    OF_A_SOFTMAX,
    OF_DUAL_AVERAGING,
    OF_TRUNCATED_GRADIENT,
    all_shrunk,
    all_shrunk_goes_on,
    averaged_goes_on,
    averaged_sums,
    last_violated,
    of_maps,
    settle,
    softmax_goes_on,
    softmax_memory,
    violated_goes_on,
)
from learners.merge_touched import TouchedMerge
from learners.multikernel import Omks, OmksConfig, ViewKernels, support_bytes
from learners.multikernel.form import form_bytes
from learners.multikernel.merge import merge_supports
from learners.oasis import Oasis, OasisConfig
from learners.oasis_diagonal import OasisDiagonal, OasisDiagonalConfig
from learners.oasis_softmax import OasisSoftmax, OasisSoftmaxConfig
from learners.oasis_sparse import OasisSparse, OasisSparseConfig, touched_bytes
from learners.omks_maps import OmksMaps, OmksMapsConfig
from learners.pending import PAIRS, TAU, pending_bytes
from learners.softmax import state_bytes
from learners.soml import DiagonalLearner, SomlDa, SomlDaConfig, SomlTg, SomlTgConfig
from learners.tether import TetherConfig, Tethered, untethered

Settled: TypeAlias = Callable[[State], Arrays]
Columns: TypeAlias = Mapping[str, range]
"""View, or kernel of a view, -> its columns in the mapped vectors, in their order."""
NO_VIEWS: Columns = {}


@dataclass(frozen=True, slots=True)
class Algorithm:
    """One learner as everything else knows it.

    settings: (keys of [learner], columns of the views, the diagonal of W_0 or None for that of I) -> the
    learner's own settings; raises ConfigError.
    make: (settings, dim, sample) -> the learner before any event. sample: mapped objects of the warm-up, of
    which it may learn scales and landmarks; None unless `needs_sample`.
    restore: (arrays, settings) -> a learner that continues from a version's arrays, taking them over where
    it can; raises StateError.
    forms: what versions are served as.
    state_bytes: (keys of [learner], columns of the views, dim) -> the memory that the learner takes; raises
    ConfigError.
    followed: the arrays by whose bytes a copy that took its steps is known to be equal, as far as a state has
    them; () for all.
    added_later: (settings, dim) -> the arrays that a state of an earlier release lacks, as they are before
    any event.
    by_block: it learns a similarity for each view or kernel of one, and wants each of unit length.
    form_bytes: (keys of [learner], columns of the views, dim, items) -> the memory of a form unless psd is
    off, with what it keeps of so many items; None for those that are matrices, or refer to the state alone.
    full_step: keys of [learner] -> the largest tau of an event of weight 1; None where an event's tau says
    less of what it did than its weight.
    merge: (what settles a state, settings) -> how states of several are merged; see `merge_of`.
    grows: arrays of the state that are as long as what was learned, see `BaseLearner.GROWS`.
    shared: arrays that no step changes and that models of all keys have one copy of: the first is the matrix
    that they begin from. shared_bytes: dim -> their memory, part of `state_bytes`.
    """

    settings: Callable[..., Any]
    make: Callable[[Any, int, Block | None], Learner]
    restore: Callable[[Mapping[str, npt.NDArray[Any]], Any], Learner]
    forms: FormKind
    state_bytes: Callable[[Any, Columns, int], int]
    followed: tuple[str, ...] = ()
    added_later: Callable[[Any, int], Mapping[str, npt.NDArray[Any]]] = lambda _settings, _dim: {}
    needs_sample: bool = False
    by_block: bool = False
    form_bytes: Callable[[Any, Columns, int, int], int] | None = None
    full_step: Callable[[Any], float] | None = None
    merge: Callable[[Settled, Any], Any] = lambda settled, _settings: StateMerge(settled, OF_A_MATRIX)
    grows: tuple[str, ...] = ()
    shared: tuple[str, ...] = ()
    shared_bytes: Callable[[int], int] = lambda _dim: 0

    @property
    def averages(self) -> bool:
        """Whether versions of several learners can be averaged: the state is one matrix W."""
        return self.followed == ONE_MATRIX

    @property
    def factors(self) -> bool:
        """Whether a version has a matrix W to be factored and exported."""
        return isinstance(self.forms, MatrixForms)


ONE_MATRIX = ("W", TAU, PAIRS)
"""What the state of a learner of one matrix holds besides counters."""
KEYS = "keys"
"""Their name among the learner's settings in a manifest, which has none where there is one model."""
SLOT_BYTES = 1024
"""What a slot takes besides its model's arrays: a line in the directory, and the objects of a learner."""
ONE_MODEL = KeysConfig.model_validate({})
"""One model for all events."""


def keys_in(settings: Mapping[str, Any]) -> KeysConfig:
    """The keys among the learner's settings of a manifest. ValueError for what is no record."""
    return KeysConfig.model_validate(settings.get(KEYS, {}))


def keys_of(manifest: Manifest) -> KeysConfig:
    """The [keys] of a version, as `keys_in`."""
    return keys_in(manifest.learner.get("config", {}))


def by_key(one: Algorithm, keys: KeysConfig) -> Algorithm:
    """The algorithm with a model for each of at most `keys.slots` keys; its settings raise ConfigError where
    models cannot be made one by one."""

    def settings(own: Any, columns: Columns, start: Float32s | None = None) -> KeyedConfig:
        if one.needs_sample:
            raise ConfigError(
                "[keys] needs an algorithm that begins without a sample of objects: set keys.slots to 0, or "
                "take another learner.algorithm"
            )
        if one.grows:
            raise ConfigError(
                f"[keys] needs models of one size, and those of {own.algorithm} are as large as what each "
                'touched: set keys.slots to 0, or take learner.algorithm = "loreta"'
            )
        if keys.start and not one.shared:
            raise ConfigError(
                f"keys.start is of algorithms whose models share a matrix, not of {own.algorithm}: take "
                f'learner.algorithm = "{those_that(lambda other: bool(other.shared))}", or leave it out'
            )
        inner = one.settings(own, columns, start)
        return KeyedConfig(
            lambda dim: one.make(inner, dim, None),
            lambda arrays: one.restore(arrays, inner),
            keys.slots,
            keys.when_full,
            keys.evict_after,
            one.shared,
        )

    return replace(
        one,
        settings=settings,
        make=lambda settings, dim, _sample: Keyed(dim, settings),
        restore=lambda arrays, settings: Keyed.from_state(arrays, settings, copy=False),
        forms=KeyedForms(one.forms, begins_learned=bool(keys.start)),
        added_later=lambda settings, dim: {
            name: repeated(array, keys.slots)
            for name, array in one.added_later(settings.make(dim).config, dim).items()
        },
        state_bytes=lambda own, columns, dim: (
            one.shared_bytes(dim)
            + keys.slots * (one.state_bytes(own, columns, dim) - one.shared_bytes(dim) + SLOT_BYTES)
        ),
    )


def compared(followed: tuple[str, ...], names: Iterable[str]) -> list[str]:
    """The arrays by which copies that took the same steps are compared: `followed` of one model or all of its
    arrays, and what tells whose models they are, but not how many events were refused since."""
    given = list(names)
    one = [name for name in followed or given if name in given and name not in KEY_ARRAYS]
    return [*one, *(name for name in given if name in KEY_ARRAYS and name != CLOCK)]


def omks_settings(keys: OmksKeys, columns: Mapping[str, range], _start: Float32s | None = None) -> OmksConfig:
    """Settings of OMKS. Raises ConfigError for a view that is not there, and for weights that do not fit."""
    return _settings(keys, columns, hedge=keys.hedge())


def oks_settings(keys: OksKeys, columns: Mapping[str, range], _start: Float32s | None = None) -> OmksConfig:
    """Settings of OKS on the mean of all kernels, or on the one there is. Raises ConfigError."""
    settings = _settings(keys, columns, hedge=HedgeConfig("uniform"))
    return replace(settings, mean=settings.parts > 1)


def joined(columns: Columns) -> Columns:
    """All views as one, which begins where the first does."""
    spans = list(columns.values())
    return {"joined": range(spans[0].start, spans[-1].stop)}


def unit_blocks(learner: LearnerConfig) -> bool:
    """Whether a learner wants each block of columns of unit length, and not the whole vector."""
    return ALGORITHMS[learner.algorithm].by_block and not getattr(learner, "joined", False)


def kernel_names(keys: LearnerConfig, columns: Mapping[str, range]) -> list[str]:
    """The kernels that a learner weighs, in its order, for people: "text rbf 0.5", or a block of columns; the
    one of OKS on several is their mean. Those of joined views are "joined rbf 0.5"."""
    if not isinstance(keys, SupportKeys):
        return list(columns)
    columns = joined(columns) if keys.joined else columns
    names = [
        f"{name} {'centred ' if one.centred else ''}{one.kind}"
        + (f" {one.sigma:g}" if one.kind == "rbf" else "")
        for name in columns
        for one in keys.kernels
        if not one.views or name in one.views
    ]
    return [f"mean of {len(names)}"] if isinstance(keys, OksKeys) and len(names) > 1 else names


def _settings(keys: SupportKeys, columns: Mapping[str, range], *, hedge: HedgeConfig) -> OmksConfig:
    named = {name for one in keys.kernels for name in one.views}
    for name in sorted(named - set(columns)):
        raise ConfigError(f"learner.kernels: there is no view {name!r}; there are {', '.join(columns)}")
    views = []
    for name, span in (joined(columns) if keys.joined else columns).items():
        kernels = tuple(one.kernel() for one in keys.kernels if not one.views or name in one.views)
        if kernels:
            views.append(ViewKernels(span.start, span.stop, kernels))
    return OmksConfig(tuple(views), keys.C, keys.triplets, keys.objects, keys.evict, hedge)


ADDED_LATER: Mapping[str, Any] = {"dedupe_window": 0}
"""Settings that versions of 0.1 do not have, and what they mean for those. Continuing with another value is
no refusal but a control entry."""
LEFT_OUT: Mapping[str, Any] = {
    "pull_every": 0,
    "decay": 0.0,
    "radius": 0.0,
    "start": "identity",
    "horizon": 0,
    "joined": False,
}
"""Settings that older versions do not have either: they were learned with these."""


def same_names(settings: Callable[..., Any]) -> Callable[..., Any]:
    """Settings of a dataclass whose fields are keys of [learner], except its `start`."""
    names = [field.name for field in fields(settings) if field.name != "start"]  # type: ignore[arg-type]
    return lambda keys, _columns, start=None: settings(
        **{name: getattr(keys, name) for name in names}, start=start
    )


def _aggressiveness(keys: Any) -> float:
    """C, the upper bound of tau."""
    return float(keys.C)


def matrices(count: int) -> Callable[[Any, Columns, int], int]:
    """The bytes of so many float32 matrices [dim, dim], and of steps that wait for one of them."""
    return lambda _keys, _columns, dim: 4 * count * dim * dim + pending_bytes(dim)


def vectors(count: int) -> Callable[[Any, Columns, int], int]:
    """The bytes of so many 8-byte vectors [dim]."""
    return lambda _keys, _columns, dim: 8 * count * dim


def _pulled(
    own: Callable[..., Any], learner: type[Any]
) -> tuple[Callable[..., Any], Callable[[Any], type[Any]]]:
    """(settings, class) of a learner that can be pulled back towards its start, as `Algorithm` wants them."""

    def settings(keys: Any, columns: Columns, start: Float32s | None = None) -> Any:
        inner = own(keys, columns, start)
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
        followed=ONE_MATRIX,
        added_later=lambda settings, dim: made_by(settings).added_later(settings, dim),
        full_step=full_step,
    )


def _diagonal(
    learner: type[DiagonalLearner[Any]],
    config: type[Any],
    arrays: int,
    full_step: Callable[[Any], float] | None = None,
    *,
    merge: Callable[[Settled, Any], StateMerge],
) -> Algorithm:
    """A diagonal metric of so many arrays: SOML, served as the cosine plus what was learned; OASIS's."""
    settings, made_by = _pulled(same_names(config), learner)
    return Algorithm(
        settings=settings,
        make=lambda settings, dim, _sample: made_by(settings)(dim, settings),
        restore=lambda arrays, settings: made_by(settings).from_state(arrays, settings, copy=False),
        forms=UnstoredForms(lambda made, serving: untethered(made).form(serving.score != "raw")),
        state_bytes=vectors(arrays),
        full_step=full_step,
        merge=merge,
    )


def _loreta() -> Algorithm:
    """A correction of low rank, of a matrix that models of all keys share."""

    def correction_bytes(keys: Any, _columns: Columns, dim: int) -> int:
        return 8 * dim * int(keys.rank) + 16 * int(keys.rank) ** 2

    return Algorithm(
        settings=same_names(LoretaConfig),
        make=lambda settings, dim, _sample: Loreta(dim, settings),
        restore=lambda arrays, settings: Loreta.from_state(arrays, settings, copy=False),
        forms=LowRankForms(),
        state_bytes=lambda keys, columns, dim: 4 * dim * dim + correction_bytes(keys, columns, dim),
        full_step=_aggressiveness,
        merge=lambda settled, settings: StateMerge(
            settled,
            OF_A_CORRECTION,
            partial(corrections, settings.rank),
            partial(correction_goes_on, settings.rank),
        ),
        shared=Loreta.SHARED,
        shared_bytes=lambda dim: 4 * dim * dim,
    )


def _omks_maps() -> Algorithm:
    """OMKS over maps: a matrix for each block of columns."""

    def own(keys: Any, columns: Columns, start: Float32s | None) -> OmksMapsConfig:
        return OmksMapsConfig(tuple(len(block) for block in columns.values()), keys.C, keys.hedge(), start)

    settings, made_by = _pulled(own, OmksMaps)
    return Algorithm(
        settings=settings,
        make=lambda settings, dim, _sample: made_by(settings)(dim, settings),
        restore=lambda arrays, settings: made_by(settings).from_state(arrays, settings, copy=False),
        forms=BlocksForms(),
        added_later=lambda settings, dim: made_by(settings).added_later(settings, dim),
        state_bytes=lambda _keys, columns, _dim: sum(
            4 * len(block) ** 2 + pending_bytes(len(block)) for block in columns.values()
        ),
        by_block=True,
        full_step=_aggressiveness,
        merge=lambda settled, settings: StateMerge(settled, of_maps(_inner(settings).hedge)),
    )


def _inner(settings: Any) -> Any:
    """The settings of the learner itself, whether it is pulled back or not."""
    return settings.learner if isinstance(settings, TetherConfig) else settings


def _over_supports(settings: Callable[..., OmksConfig]) -> Algorithm:
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
        merge=lambda _settled, settings: merge_supports(settings),
    )


ALGORITHMS: Mapping[str, Algorithm] = {
    "oasis": _of_a_matrix(Oasis, OasisConfig, _aggressiveness),
    "oasis-averaged": Algorithm(
        settings=lambda keys, _columns, start=None: OasisConfig(keys.C, keys.symmetric, start=start),
        make=lambda settings, dim, _sample: Averaged(dim, settings),
        restore=lambda arrays, settings: Averaged.from_state(arrays, settings, copy=False),
        forms=MatrixForms(follows=HELD),
        added_later=Averaged.added_later,
        state_bytes=matrices(2),
        full_step=_aggressiveness,
        merge=lambda settled, _settings: StateMerge(
            settled, OF_A_MATRIX | {"sums": MergeRule.OWN}, averaged_sums, averaged_goes_on
        ),
    ),
    "oasis-diagonal": _diagonal(
        OasisDiagonal,
        OasisDiagonalConfig,
        1,
        _aggressiveness,
        merge=lambda settled, _settings: StateMerge(settled, OF_A_DIAGONAL),
    ),
    "oasis-sparse": Algorithm(
        settings=same_names(OasisSparseConfig),
        make=lambda settings, dim, _sample: OasisSparse(dim, settings),
        restore=lambda arrays, settings: OasisSparse.from_state(arrays, settings, copy=False),
        forms=TouchedForms(),
        state_bytes=lambda keys, _columns, dim: touched_bytes(dim, keys.entries),
        form_bytes=lambda keys, _columns, dim, _items: touched_bytes(dim, keys.entries),  # the transpose
        followed=("dim", *OasisSparse.GROWS, "dropped"),
        grows=OasisSparse.GROWS,
        full_step=_aggressiveness,
        merge=lambda _settled, settings: TouchedMerge(settings),
    ),
    "dissim-oasis": _of_a_matrix(Dissim, DissimConfig, _aggressiveness, distance=True),
    "lego": _of_a_matrix(Lego, LegoConfig, distance=True),
    "lego-pairs": _of_a_matrix(LegoPairs, LegoPairsConfig, distance=True),
    "soml-tg": _diagonal(
        SomlTg,
        SomlTgConfig,
        2,
        merge=lambda settled, _settings: StateMerge(
            settled, OF_TRUNCATED_GRADIENT, all_shrunk, all_shrunk_goes_on
        ),
    ),
    "soml-da": _diagonal(
        SomlDa,
        SomlDaConfig,
        1,
        merge=lambda settled, _settings: StateMerge(
            settled, OF_DUAL_AVERAGING, last_violated, violated_goes_on
        ),
    ),
    "oasis-softmax": Algorithm(
        settings=same_names(OasisSoftmaxConfig),
        make=lambda settings, dim, _sample: OasisSoftmax(dim, settings),
        restore=lambda arrays, settings: OasisSoftmax.from_state(arrays, settings, copy=False),
        forms=MatrixForms(familiar=lambda made: made.oasis.W),
        state_bytes=lambda keys, columns, dim: (
            state_bytes(keys.memory, dim) + matrices(1)(keys, columns, dim)
        ),
        merge=lambda settled, _settings: StateMerge(
            settled, OF_A_MATRIX | OF_A_SOFTMAX, softmax_memory, softmax_goes_on
        ),
    ),
    "loreta": _loreta(),
    "omks-maps": _omks_maps(),
    "oks": _over_supports(oks_settings),
    "omks": _over_supports(omks_settings),
}


def merge_of(
    config: LearnerConfig,
    columns: Columns = NO_VIEWS,
    keys: KeysConfig = ONE_MODEL,
    *,
    own: OwnRanking | None = None,
) -> Any:
    """How states of learners that began alike are merged: `states` and `rebased`, as
    `learners.merge.StateMerge` has them; config, columns, own: as in `untrained`. Raises ConfigError."""
    algorithm = ALGORITHMS[config.algorithm]
    settings = algorithm.settings(config, columns, first_of(config, own))

    def settled(state: State) -> Arrays:
        learner = algorithm.restore({name: np.array(array) for name, array in state.items()}, settings)
        settle(learner)
        return learner.state()

    one = algorithm.merge(settled, settings)
    if not keys.slots:
        return one

    def untrained_model(state: State) -> Arrays:
        model = {
            name: array if name in algorithm.shared else array[0]
            for name, array in state.items()
            if name not in KEY_ARRAYS
        }
        any_one = algorithm.restore({name: np.array(array) for name, array in model.items()}, settings)
        return any_one.fresh().state()

    return KeyedMerge(one, untrained_model, keys.slots, algorithm.shared)


def those_that(can: Callable[[Algorithm], bool]) -> str:
    """The names of the learners that can do something, for people: "oasis, lego"."""
    return ", ".join(name for name, one in ALGORITHMS.items() if can(one))


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


def map_of(version: Version) -> FittedSpaceMap:
    """The map of a loaded version, on its arrays. Raises MapError for what is none."""
    return FittedSpaceMap.load(version.manifest.map.get("spec", {}), map_arrays(version.arrays))


def columns_of(fitted: FittedSpaceMap) -> Columns:
    """The columns of each view in what a map gives, or of each kernel of a view where it has several."""
    return fitted.blocks


def untrained(
    config: LearnerConfig,
    dim: int,
    columns: Columns = NO_VIEWS,
    sample: Block | None = None,
    keys: KeysConfig = ONE_MODEL,
    *,
    own: OwnRanking | None = None,
    shared: Float32s | None = None,
) -> Learner:
    """The learner before any event; own: the user's own ranking, from which it may begin; shared: the matrix
    W_0, float32 [dim, dim], that models of all keys begin from, in place of that. Raises ConfigError."""
    algorithm = algorithm_of(config.algorithm, keys)
    start = first_of(config, own) if shared is None else shared
    return algorithm.make(algorithm.settings(config, columns, start), dim, sample)


def restored(
    config: LearnerConfig,
    arrays: Mapping[str, npt.NDArray[Any]],
    columns: Columns = NO_VIEWS,
    keys: KeysConfig = ONE_MODEL,
    *,
    own: OwnRanking | None = None,
) -> Learner:
    """A learner continued from a version's arrays, taking them over where it can; own: as in `untrained`.
    Raises StateError."""
    algorithm = algorithm_of(config.algorithm, keys)
    return algorithm.restore(arrays, algorithm.settings(config, columns, first_of(config, own)))


def as_made(config: Config, newest: Manifest | None) -> Config:
    """The configuration with the learner that its folder was made with, where it names none: the default was
    oasis for every space before. newest: the newest version; None in a new folder. Raises UserError for keys
    that the folder's learner does not have.
    """
    by_default = config.origin_of("learner.algorithm") == "default"
    if newest is None or not by_default or newest.learner["name"] != DEFAULT:
        return config
    given = config.learner.model_dump(include=config.learner.model_fields_set - {"algorithm"})
    for name in sorted(set(given) - set(LEARNERS[DEFAULT].model_fields)):
        raise UserError(
            f"learner.{name}: the versions in {config.checkpoints.path} were learned by {DEFAULT}, which has "
            f"no {name}",
            f'remove it, or name learner.algorithm = "{config.learner.algorithm}" and another folder',
            EX_CONFIG,
        )
    return replace(config, learner=LEARNERS[DEFAULT].model_validate(given))


def first_of(config: LearnerConfig, own: OwnRanking | None) -> Float32s | None:
    """The diagonal of W_0 as a learner's settings have it, see `first_diagonal`."""
    return first_diagonal(own, getattr(config, "start", "identity"))


def added_later(manifest: Manifest, dim: int, columns: Columns = NO_VIEWS) -> Mapping[str, npt.NDArray[Any]]:
    """The arrays that states of this version's learner lack in earlier releases, as they are before any
    event; none where the version does not tell its settings."""
    try:
        algorithm = algorithm_of(manifest.learner["name"], keys_of(manifest))
        return algorithm.added_later(algorithm.settings(learner_config_of(manifest), columns), dim)
    except (KeyError, ValueError):
        return {}


CAPS = "caps"
"""Their key among the learner's settings in a manifest, which has none where there were no caps."""


def caps_in(settings: Mapping[str, Any]) -> CapsConfig:
    """The caps among the learner's settings of a manifest. TypeError or ConfigError for what is no record."""
    return CapsConfig(**settings.get(CAPS, {}))


def caps_of(manifest: Manifest) -> CapsConfig:
    """The caps of a version, as `caps_in`."""
    return caps_in(manifest.learner["config"])
