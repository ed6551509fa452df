"""The one table of the learners that a configuration can name: how each is made, restored, weighed in memory,
followed and served; and what a version's manifest records of its learner's settings.

To add one: its pure learner in `learners`, its keys in `daemon.config.learners`, one line in `ALGORITHMS`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, TypeAlias, cast

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
from daemon.versions.contents import (
    PAIRS,
    arms_arrays,
    learner_arrays,
    learner_specs,
    map_arrays,
    one_digest,
    with_arms,
)
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
from learners.arm_kinds import ARM_KINDS, Settled
from learners.arms import ArmConfig, merged_arms, rebased_arms
from learners.base import Learner
from learners.block import Block, Float32s
from learners.caps import CapsConfig
from learners.distance import Dissim, DissimConfig, Lego, LegoConfig
from learners.errors import ConfigError
from learners.hedge import HedgeConfig
from learners.keyed import CLOCK, KEY_ARRAYS, Keyed, KeyedConfig
from learners.lego_pairs import LegoPairs, LegoPairsConfig
from learners.loreta import Loreta
from learners.maps import FittedSpaceMap
from learners.maps.base import OwnRanking, first_diagonal
from learners.merge import Arrays, State, StateMerge
from learners.merge_keys import KeyedMerge
from learners.merge_rules import OF_A_MATRIX, of_maps, settle
from learners.merge_touched import TouchedMerge
from learners.multikernel import Omks, OmksConfig, ViewKernels, support_bytes
from learners.multikernel.form import form_bytes
from learners.multikernel.merge import merge_supports
from learners.oasis import Oasis, OasisConfig
from learners.oasis_sparse import OasisSparse, OasisSparseConfig, touched_bytes
from learners.omks_maps import OmksMaps, OmksMapsConfig
from learners.pending import PAIRS as PENDING_PAIRS
from learners.pending import TAU, pending_bytes
from learners.tether import TetherConfig, Tethered, untethered

Columns: TypeAlias = Mapping[str, range]
"""View, or kernel of a view, -> its columns in the mapped vectors, in their order."""
NO_VIEWS: Columns = {}


@dataclass(frozen=True, slots=True)
class Algorithm:
    """One learner as everything else knows it.

    settings: (keys of [learner], columns of the views, the diagonal of W_0 or None for that of I) -> the
    learner's own settings; raises ConfigError.
    learner: its class, made of (dim, settings), and of a sample where `needs_sample`. Where settings are a
    `TetherConfig`, `Tethered` takes its place.
    forms: what versions are served as.
    state_bytes: (keys of [learner], columns of the views, dim) -> the memory that the learner takes; raises
    ConfigError.
    followed: the arrays by whose bytes a copy that took its steps is known to be equal, as far as a state has
    them; () for all.
    by_block: it learns a similarity for each view or kernel of one, and wants each of unit length.
    form_bytes: (keys of [learner], columns of the views, dim, items) -> the memory of a form unless psd is
    off, with what it keeps of so many items; None for those that are matrices, or refer to the state alone.
    up_to_C: whether C is the largest tau of an event of weight 1; else its tau says less of what it did than
    its weight.
    merge: (what settles a state, settings) -> how states of several are merged; see `merge_of`.
    grows: arrays of the state that are as long as what was learned, see `BaseLearner.GROWS`.
    shared: arrays that no step changes and that models of all keys have one copy of: the first is the matrix
    that they begin from. shared_bytes: dim -> their memory, part of `state_bytes`.
    """

    settings: Callable[..., Any]
    learner: type[Any]
    forms: FormKind
    state_bytes: Callable[[Any, Columns, int], int]
    followed: tuple[str, ...] = ()
    needs_sample: bool = False
    by_block: bool = False
    form_bytes: Callable[[Any, Columns, int, int], int] | None = None
    up_to_C: bool = False
    merge: Callable[[Settled, Any], Any] = lambda settled, _settings: StateMerge(settled, OF_A_MATRIX)
    grows: tuple[str, ...] = ()
    shared: tuple[str, ...] = ()
    shared_bytes: Callable[[int], int] = lambda _dim: 0

    def made_by(self, settings: Any) -> type[Any]:
        """The class of the learner with these settings."""
        return Tethered if isinstance(settings, TetherConfig) else self.learner

    def make(self, settings: Any, dim: int, sample: Block | None) -> Learner:
        """The learner before any event. sample: mapped objects of the warm-up, of which it may learn scales
        and landmarks; None unless `needs_sample`."""
        learner: Learner = self.made_by(settings)(dim, settings, *([sample] if self.needs_sample else []))
        return learner

    def restore(self, arrays: State, settings: Any) -> Learner:
        """A learner that continues from a version's arrays, taking them over where it can. Raises
        StateError."""
        learner: Learner = self.made_by(settings).from_state(arrays, settings, copy=False)
        return learner

    @property
    def averages(self) -> bool:
        """Whether versions of several learners can be averaged: the state is one matrix W."""
        return self.followed == ONE_MATRIX

    @property
    def factors(self) -> bool:
        """Whether a version has a matrix W to be factored and exported."""
        return isinstance(self.forms, MatrixForms)


ONE_MATRIX = ("W", TAU, PENDING_PAIRS)
"""What the state of a learner of one matrix holds besides counters."""
KEYS = "keys"
"""Their name among the learner's settings in a manifest, which has none where there is one model."""
SLOT_BYTES = 1024
"""What a slot takes besides its model's arrays: a line in the directory, and the objects of a learner."""
ONE_MODEL = KeysConfig.model_validate({})
"""One model for all events."""


def keys_of(manifest: Manifest) -> KeysConfig:
    """The [keys] of a version. ValueError for what is no record."""
    return KeysConfig.model_validate(manifest.learner.get("config", {}).get(KEYS, {}))


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
        learner=Keyed,
        forms=KeyedForms(one.forms, begins_learned=bool(keys.start)),
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


ADDED_LATER: Mapping[str, Any] = {"dedupe_window": 0, PAIRS: "all"}
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


def same_names(settings: Callable[..., Any], only: Sequence[str] = ()) -> Callable[..., Any]:
    """Settings of a dataclass whose fields are keys of [learner], or `only` these, except its `start`."""
    names = only or [field.name for field in fields(settings) if field.name != "start"]  # type: ignore[arg-type]
    return lambda keys, _columns, start=None: settings(
        **{name: getattr(keys, name) for name in names}, start=start
    )


def matrices(count: int) -> Callable[[Any, Columns, int], int]:
    """The bytes of so many float32 matrices [dim, dim], and of steps that wait for one of them."""
    return lambda _keys, _columns, dim: 4 * count * dim * dim + pending_bytes(dim)


def pulled(own: Callable[..., Any]) -> Callable[..., Any]:
    """Settings of a learner that can be pulled back towards its start."""

    def settings(keys: Any, columns: Columns, start: Float32s | None = None) -> Any:
        inner = own(keys, columns, start)
        radius = getattr(keys, "radius", 0.0)
        return TetherConfig(inner, keys.pull_every, keys.decay, radius) if keys.pull_every else inner

    return settings


def omks_maps_settings(keys: Any, columns: Columns, start: Float32s | None = None) -> OmksMapsConfig:
    """Settings of OMKS over maps: a matrix for each block of columns."""
    return OmksMapsConfig(tuple(len(block) for block in columns.values()), keys.C, keys.hedge(), start)


def _as_arm(
    name: str, forms: FormKind, settings: Callable[..., Any] = lambda own: own, **others: Any
) -> Algorithm:
    """A learner that can be an arm of the race, too: what it is made, weighed and merged by is the same."""
    kind = ARM_KINDS[name]
    return Algorithm(
        settings(same_names(kind.config, kind.settings)),
        kind.learner,
        forms,
        lambda keys, _columns, dim: kind.nbytes(keys, dim),
        merge=kind.merge,
        **others,
    )


def _of_a_matrix(learner: type[Any], config: type[Any], **others: Any) -> Algorithm:
    forms = MatrixForms(distance=learner.DISTANCE)
    return Algorithm(pulled(same_names(config)), learner, forms, matrices(1), followed=ONE_MATRIX, **others)


def _diagonal(name: str, **others: Any) -> Algorithm:
    """A diagonal metric: SOML, served as the cosine plus what was learned; OASIS's."""
    forms = UnstoredForms(lambda made, serving: untethered(made).form(serving.score != "raw"))
    return _as_arm(name, forms, pulled, **others)


def _over_supports(settings: Callable[..., OmksConfig]) -> Algorithm:
    return Algorithm(
        settings,
        Omks,
        SupportsForms(),
        lambda keys, columns, dim: support_bytes(dim, settings(keys, columns)),
        needs_sample=True,
        by_block=True,
        form_bytes=lambda keys, columns, dim, items: form_bytes(dim, settings(keys, columns), items),
        up_to_C=True,
        merge=lambda _settled, settings: merge_supports(settings),
    )


ALGORITHMS: Mapping[str, Algorithm] = {
    "oasis": _of_a_matrix(Oasis, OasisConfig, up_to_C=True),
    "oasis-averaged": _as_arm("oasis-averaged", MatrixForms(follows=HELD), up_to_C=True),
    "oasis-diagonal": _diagonal("oasis-diagonal", up_to_C=True),
    "oasis-sparse": Algorithm(
        same_names(OasisSparseConfig),
        OasisSparse,
        TouchedForms(),
        lambda keys, _columns, dim: touched_bytes(dim, keys.entries),
        form_bytes=lambda keys, _columns, dim, _items: touched_bytes(dim, keys.entries),  # the transpose
        followed=("dim", *OasisSparse.GROWS, "dropped"),
        grows=OasisSparse.GROWS,
        up_to_C=True,
        merge=lambda _settled, settings: TouchedMerge(settings),
    ),
    "dissim-oasis": _of_a_matrix(Dissim, DissimConfig, up_to_C=True),
    "lego": _of_a_matrix(Lego, LegoConfig),
    "lego-pairs": _of_a_matrix(LegoPairs, LegoPairsConfig),
    "soml-tg": _diagonal("soml-tg"),
    "soml-da": _diagonal("soml-da"),
    "oasis-softmax": _as_arm("oasis-softmax", MatrixForms(familiar=lambda made: made.oasis.W)),
    "loreta": _as_arm(
        "loreta", LowRankForms(), up_to_C=True, shared=Loreta.SHARED, shared_bytes=lambda dim: 4 * dim * dim
    ),
    "omks-maps": Algorithm(
        pulled(omks_maps_settings),
        OmksMaps,
        BlocksForms(),
        lambda _keys, columns, _dim: sum(
            4 * len(block) ** 2 + pending_bytes(len(block)) for block in columns.values()
        ),
        by_block=True,
        up_to_C=True,
        merge=lambda settled, settings: StateMerge(
            settled, of_maps(getattr(settings, "learner", settings).hedge)
        ),
    ),
    "oks": _over_supports(oks_settings),
    "omks": _over_supports(omks_settings),
}


@dataclass(frozen=True, slots=True)
class LearnedMerge:
    """How what learners and the arms beside them have learned is merged, as `learned_arrays` has it. learner:
    the algebra of the learner alone, as `learners.merge.StateMerge`. arms: those of who goes on, or that
    others began from."""

    learner: Any
    arms: Sequence[ArmConfig] = ()

    def states(
        self, base: State, states: Sequence[State], updates: Sequence[int], summed: bool = False
    ) -> Arrays:
        """As `StateMerge.states`."""
        own = self.learner.states(learner_arrays(base), [*map(learner_arrays, states)], updates, summed)
        return with_arms(own, merged_arms(self.arms, arms_arrays(base), [*map(arms_arrays, states)], summed))

    def rebased(self, *states: State) -> Arrays:
        """As `StateMerge.rebased`: current, counted, merged."""
        own = self.learner.rebased(*map(learner_arrays, states))
        return with_arms(own, rebased_arms(self.arms, *map(arms_arrays, states)))


def merge_of(
    config: LearnerConfig,
    columns: Columns = NO_VIEWS,
    keys: KeysConfig = ONE_MODEL,
    *,
    own: OwnRanking | None = None,
    arms: Sequence[ArmConfig] = (),
) -> LearnedMerge:
    """How states of learners that began alike are merged; config, columns, own: as in `untrained`. arms: as
    in `LearnedMerge`. Raises ConfigError."""
    algorithm = ALGORITHMS[config.algorithm]
    settings = algorithm.settings(config, columns, first_of(config, own))

    def settled(state: State) -> Arrays:
        learner = algorithm.restore({name: np.array(array) for name, array in state.items()}, settings)
        settle(learner)
        return learner.state()

    one = algorithm.merge(settled, settings)
    if not keys.slots:
        return LearnedMerge(one, arms)

    def untrained_model(state: State) -> Arrays:
        model = {
            name: array if name in algorithm.shared else array[0]
            for name, array in state.items()
            if name not in KEY_ARRAYS
        }
        any_one = algorithm.restore({name: np.array(array) for name, array in model.items()}, settings)
        return any_one.fresh().state()

    return LearnedMerge(KeyedMerge(one, untrained_model, keys.slots, algorithm.shared))


def those_that(can: Callable[[Algorithm], bool]) -> str:
    """The names of the learners that can do something, for people: "oasis, lego"."""
    return ", ".join(name for name, one in ALGORITHMS.items() if can(one))


def learner_config_of(manifest: Manifest) -> LearnerConfig:
    """The learner's settings as a version recorded them. Raises KeyError or ValueError for what is no such
    record.
    """
    recorded = {**ADDED_LATER, **LEFT_OUT, **manifest.learner["config"]}
    keys = LEARNERS[manifest.learner["name"]]
    settings = {name: recorded[name] for name in keys.model_fields if name not in {"algorithm", "race"}}
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
    return float(cast(Any, config).C) if ALGORITHMS[config.algorithm].up_to_C else None


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
    arrays: State,
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
        settings = algorithm.settings(learner_config_of(manifest), columns)
        later: Arrays = algorithm.made_by(settings).added_later(settings, dim)
        return later
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
