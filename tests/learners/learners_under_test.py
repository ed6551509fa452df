"""Every learner, in the settings that change how it learns: the laws run over each of these lines.

To add a learner: its oracle (`oracle_*.py`, worked on paper in `test_oracle_*.py`), and one line here for
each way it can be set.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
import pytest
from numpy.typing import NDArray

from learners import Learner, Oasis, OasisConfig
from learners.averaged import Averaged
from learners.dissim import Dissim, DissimConfig
from learners.hedge import HedgeConfig
from learners.kernels.tiles import LANES
from learners.keyed import CLOCK, KeyedConfig
from learners.lego import Lego, LegoConfig
from learners.multikernel import KernelConfig, Omks, OmksConfig, ViewKernels, one_kernel
from learners.omks_maps import OmksMaps, OmksMapsConfig
from learners.soml import SomlDa, SomlDaConfig, SomlTg, SomlTgConfig
from learners.tether import TetherConfig, Tethered

from .by_query import KEYS, ByQuery, ByQueryOracle
from .oracle_averaged import AveragedOracle
from .oracle_combination import Combination, Given, Hedge, PassiveAggressive
from .oracle_kernels import cosine, intersection, linear, on_view, polynomial, rbf
from .oracle_lego import LegoOracle
from .oracle_oasis import DissimOracle, OasisOracle
from .oracle_oks import OksOracle
from .oracle_omks import Budget, MappedOasisOracle, OmksOracle
from .oracle_soml import SomlDaOracle, SomlTgOracle
from .oracle_step import Kernel, Oracle
from .oracle_tether import TetheredOracle

DIM = 12


@dataclass(frozen=True)
class UnderTest:
    """A learner by its class and settings, and the oracle that says what it must compute.

    learner: made by (dim, settings), and gone on with by `from_state(arrays, settings)`. settings, oracle:
    for a dimension. inputs: kinds of rows it takes. least_dim: of its vectors, where it cuts them into views.
    passive_counts: an event that moves nothing still counts in what is scored with. full_step: the largest
    tau of an event of weight 1; None where none is stated.
    """

    name: str
    learner: Any
    settings: Callable[[int], Any]
    oracle: Callable[[int], Oracle]
    inputs: tuple[str, ...] = ("dense", "sparse")
    least_dim: int = 1
    passive_counts: bool = False
    full_step: float | None = 0.1

    def make(self, dim: int = DIM) -> Learner:
        """Before any event."""
        made: Learner = self.learner(dim, self.settings(dim))
        return made

    def restored(self, arrays: Mapping[str, NDArray[Any]], dim: int = DIM, copy: bool = True) -> Learner:
        """Going on from saved arrays."""
        made: Learner = self.learner.from_state(arrays, self.settings(dim), copy=copy)
        return made

    def __str__(self) -> str:
        return self.name


def _oasis(name: str, **settings: Any) -> UnderTest:
    oracle = {**settings, "symmetric": settings.get("symmetric") == "online"}
    return UnderTest(
        name,
        Oasis,
        lambda dim: OasisConfig(**settings),
        lambda dim: OasisOracle(dim, **oracle),
        full_step=settings.get("C", 0.1),
    )


def _tethered(free: UnderTest, radius: float = 0.0) -> UnderTest:
    """The same pulled back every 7 events, by decay and by a ball, which steps of C leave."""
    how = (7, 0.2, radius)
    return UnderTest(
        f"{free.name}-tethered",
        Tethered,
        lambda dim: TetherConfig(free.settings(dim), *how),
        lambda dim: TetheredOracle(free.oracle(dim), *how),
        least_dim=free.least_dim,
        passive_counts=True,
        full_step=free.full_step,
    )


def _tg(name: str, eta: float, lam: float) -> UnderTest:
    return UnderTest(
        name,
        SomlTg,
        lambda dim: SomlTgConfig(eta, lam),
        lambda dim: SomlTgOracle(dim, eta, lam),
        full_step=None,
    )


def _da(name: str, gamma: float, rho: float, lam: float) -> UnderTest:
    return UnderTest(
        name,
        SomlDa,
        lambda dim: SomlDaConfig(gamma, rho, lam),
        lambda dim: SomlDaOracle(dim, gamma, rho, lam),
        full_step=None,
    )


def _oks(name: str, kernel: KernelConfig, same: Kernel, C: float = 0.1) -> UnderTest:
    return UnderTest(
        name,
        Omks,
        lambda dim: one_kernel(dim, kernel, 1.0, C=C, triplets=64, objects=192),
        lambda dim: OksOracle(same, C),
        full_step=C,
    )


def _kept(name: str, rule: Literal["oldest", "smallest"]) -> UnderTest:
    """OKS over a support set of 7 triplets of 32 objects: on a stream of others some go with each step."""

    def settings(dim: int) -> OmksConfig:
        kernel = KernelConfig("rbf")
        return one_kernel(dim, kernel, 1.0, C=1.0, triplets=7, objects=LANES, evict=rule)

    def oracle(dim: int) -> Oracle:
        return OmksOracle([OksOracle(rbf(1.0), 1.0)], Given([1.0]), budget=Budget(7, LANES, rule))

    return UnderTest(name, Omks, settings, oracle, full_step=1.0)


def _views(dim: int) -> list[tuple[int, int]]:
    """Three views of a vector."""
    third = dim // 3
    return [(0, dim - 2 * third), (dim - 2 * third, dim - third), (dim - third, dim)]


def _omks(
    name: str,
    hedge: HedgeConfig,
    combination: Callable[[int], Combination],
    other: KernelConfig,
    same: Kernel,
) -> UnderTest:
    """Three views, an RBF and another kernel on each."""

    def oracle(dim: int) -> Oracle:
        spans = [view for view in _views(dim) for _ in range(2)]
        kernels = [rbf(1.0), same] * 3
        members = [OksOracle(on_view(k, *span)) for k, span in zip(kernels, spans, strict=True)]
        return OmksOracle(members, combination(6), spans, idle=False)

    def settings(dim: int) -> OmksConfig:
        both = (KernelConfig("rbf"), other)
        views = tuple(ViewKernels(start, stop, both, gamma=1.0) for start, stop in _views(dim))
        return OmksConfig(views, triplets=64, objects=192, hedge=hedge)

    return UnderTest(name, Omks, settings, oracle, least_dim=3)


def _omks_maps(name: str, hedge: HedgeConfig, combination: Callable[[int], Combination]) -> UnderTest:
    """Three views, each a block of its own."""

    def oracle(dim: int) -> Oracle:
        members = [
            MappedOasisOracle(lambda x, span=slice(start, stop): x[span], stop - start)
            for start, stop in _views(dim)
        ]
        return OmksOracle(members, combination(3), _views(dim), idle=False)

    def settings(dim: int) -> OmksMapsConfig:
        return OmksMapsConfig(tuple(stop - start for start, stop in _views(dim)), hedge=hedge)

    return UnderTest(name, OmksMaps, settings, oracle, least_dim=3)


def _oks_avg(name: str) -> UnderTest:
    """OKS on the mean of an RBF and the linear kernel of three views."""

    def oracle(dim: int) -> Oracle:
        parts = [on_view(kernel, *span) for span in _views(dim) for kernel in (rbf(1.0), linear)]
        return OksOracle(lambda x, y: sum(part(x, y) for part in parts) / len(parts))

    def settings(dim: int) -> OmksConfig:
        both = (KernelConfig("rbf"), KernelConfig("linear"))
        views = tuple(ViewKernels(start, stop, both, gamma=1.0) for start, stop in _views(dim))
        return OmksConfig(views, triplets=64, objects=192, hedge=HedgeConfig("uniform"), mean=True)

    return UnderTest(name, Omks, settings, oracle, least_dim=3)


OF_MATRICES = (
    _oasis("oasis"),
    _oasis("oasis-small-C", C=0.01),
    _oasis("oasis-symmetric", symmetric="online"),
    _oasis("oasis-psd", psd_every=7),
    _oasis("oasis-symmetric-psd", symmetric="online", psd_every=7),
    UnderTest("oasis-averaged", Averaged, lambda dim: OasisConfig(), AveragedOracle, passive_counts=True),
    UnderTest("dissim", Dissim, lambda dim: DissimConfig(), DissimOracle),
    UnderTest(
        "dissim-psd", Dissim, lambda dim: DissimConfig(psd_every=7), lambda dim: DissimOracle(dim, 0.1, 7)
    ),
    UnderTest("lego", Lego, lambda dim: LegoConfig(), LegoOracle, full_step=None),
    UnderTest(
        "lego-firm",
        Lego,
        lambda dim: LegoConfig(eta=1.0),
        lambda dim: LegoOracle(dim, 1.0),
        full_step=None,
    ),
)

OF_DIAGONALS = (
    _tg("soml-tg", 1.0, 1e-5),
    _tg("soml-tg-sparse", 0.3, 0.05),
    _da("soml-da", 1e-2, 1.0, 1e-6),
    _da("soml-da-sparse", 0.3, 1.0, 0.05),
)

COSINE, LINEAR = (KernelConfig("cosine"), cosine), (KernelConfig("linear"), linear)

OF_KERNELS = (
    _oks("oks-linear", KernelConfig("linear"), linear),
    _oks("oks-rbf", KernelConfig("rbf", sigma=0.5), rbf(0.25), C=1.0),
    _oks("oks-cosine", KernelConfig("cosine"), cosine, C=1.0),
    _oks("oks-polynomial", KernelConfig("polynomial", scale=0.5, shift=1, degree=2), polynomial(2, 0.5, 1.0)),
    _oks("oks-intersection", KernelConfig("intersection"), intersection),
    _kept("oks-oldest", "oldest"),
    _kept("oks-smallest", "smallest"),
    _oks_avg("oks-mean"),
    _omks("omks-hedge", HedgeConfig("hedge", beta=0.8), lambda m: Hedge(m, 0.8), *COSINE),
    _omks("omks-share", HedgeConfig("share", beta=0.8, share=0.05), lambda m: Hedge(m, 0.8, 0.05), *COSINE),
    _omks("omks-uniform", HedgeConfig("uniform"), lambda m: Given([1.0] * m), *LINEAR),
    _omks("omks-margins", HedgeConfig("margins", C=0.2), lambda m: PassiveAggressive(m, 0.2), *LINEAR),
)

OVER_MAPS = (
    _omks_maps("maps-hedge", HedgeConfig("hedge", beta=0.8), lambda m: Hedge(m, 0.8)),
    _omks_maps("maps-share", HedgeConfig("share", beta=0.8, share=0.05), lambda m: Hedge(m, 0.8, 0.05)),
    _omks_maps(
        "maps-discount",
        HedgeConfig("discount", beta=0.8, discount=0.9),
        lambda m: Hedge(m, 0.8, memory=0.9),
    ),
    _omks_maps("maps-given", HedgeConfig("given", weights=(1.0, 2.0, 3.0)), lambda m: Given([1, 2, 3])),
    _omks_maps("maps-margins", HedgeConfig("margins", C=0.2), lambda m: PassiveAggressive(m, 0.2)),
)

FREE = (*OF_MATRICES, *OF_DIAGONALS, *OF_KERNELS, *OVER_MAPS)
PULLED_WITHIN_A_BALL = ("oasis", "dissim", "lego-firm", "maps-share")

TETHERED = (
    *(_tethered(one, radius=0.1) for one in FREE if one.name in PULLED_WITHIN_A_BALL),
    *(_tethered(one) for one in OF_DIAGONALS),
)


def _by_key(one: UnderTest) -> UnderTest:
    """A model of the learner for each of three keys."""

    def settings(dim: int) -> KeyedConfig:
        own = one.settings(dim)
        return KeyedConfig(
            lambda dim: one.learner(dim, own),
            lambda arrays: one.learner.from_state(arrays, own, copy=False),
            slots=len(KEYS),
        )

    return replace(
        one,
        name=f"{one.name}-by-key",
        learner=ByQuery,
        settings=settings,
        oracle=lambda dim: ByQueryOracle(lambda: one.oracle(dim)),
    )


BY_KEY = tuple(_by_key(one) for one in FREE if one.name in ("oasis-psd", "soml-tg"))

LEARNERS = (*FREE, *TETHERED, *BY_KEY)

EVERY = pytest.mark.parametrize("subject", LEARNERS, ids=str)
"""Each learner."""


def decided(oracle: Oracle, events: int) -> int:
    """How many of the events learned came before one in which rounding alone decides who was right."""
    tied = oracle.tied if isinstance(oracle, OmksOracle | TetheredOracle) else []
    return tied.index(True) if True in tied else events


def _with_inputs() -> Iterator[Any]:
    for one in LEARNERS:
        for kind in one.inputs:
            yield pytest.param(one, kind, id=f"{one}-{kind}")


WITH_FULL_STEP = pytest.mark.parametrize("subject", [one for one in LEARNERS if one.full_step], ids=str)
"""Each learner that states how long a step of an event of weight 1 can be."""

EVERY_INPUT = pytest.mark.parametrize(("subject", "kind"), list(_with_inputs()))
"""Each learner with each kind of rows it takes."""


def bits(learner: Learner) -> dict[str, bytes]:
    """The state, to the bit."""
    return {name: np.ascontiguousarray(array).tobytes() for name, array in learner.state().items()}


def saved(learner: Learner) -> dict[str, NDArray[Any]]:
    """The state, copied."""
    return {name: array.copy() for name, array in learner.state().items()}


def without_counters(state: dict[str, bytes]) -> dict[str, bytes]:
    """A state without `events` and the clock of keys, which count what came, also where nothing was learned
    from it."""
    return {name: array for name, array in state.items() if name not in ("events", CLOCK)}
