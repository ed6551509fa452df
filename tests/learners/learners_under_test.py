"""Every learner, in the settings that change how it learns: the laws run over each of these lines.

To add a learner: its oracle (`oracle_*.py`, worked on paper in `test_oracle_*.py`), and one line here for
each way it can be set.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from learners import Oasis, OasisConfig
from learners.averaged import Averaged
from learners.distance import Dissim, DissimConfig, Lego, LegoConfig
from learners.keyed import KeyedConfig
from learners.lego_pairs import LegoPairs, LegoPairsConfig
from learners.loreta import Loreta, LoretaConfig
from learners.oasis_diagonal import OasisDiagonal, OasisDiagonalConfig
from learners.oasis_softmax import OasisSoftmax, OasisSoftmaxConfig
from learners.oasis_sparse import OasisSparse, OasisSparseConfig
from learners.softmax import Softmax, SoftmaxConfig
from learners.soml import SomlDa, SomlDaConfig, SomlTg, SomlTgConfig
from learners.tether import TetherConfig, Tethered

from .by_query import KEYS, ByQuery, ByQueryOracle
from .kernels_under_test import OF_KERNELS, OVER_MAPS
from .oracle_averaged import AveragedOracle
from .oracle_lego import LegoOracle, LegoPairsOracle
from .oracle_loreta import LoretaOracle
from .oracle_oasis import DissimOracle, OasisDiagonalOracle, OasisOracle
from .oracle_oasis_softmax import OasisSoftmaxOracle
from .oracle_softmax import SoftmaxOracle
from .oracle_soml import SomlDaOracle, SomlTgOracle
from .oracle_tether import TetheredOracle
from .under_test import UnderTest


class WaitingOasis(Oasis):
    """With room for steps that wait at few dimensions, too."""

    ROOM = 4


class WaitingDissim(Dissim):
    """With room for steps that wait at few dimensions, too."""

    ROOM = 8


class WaitingAveraged(Averaged):
    """Of an OASIS with room for steps that wait."""

    _class = WaitingOasis


def _oasis(name: str, learner: Any = Oasis, **settings: Any) -> UnderTest:
    oracle = {**settings, "symmetric": settings.get("symmetric") == "online"}
    return UnderTest(
        name,
        learner,
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


def _softmax(name: str, *settings: Any) -> UnderTest:
    return UnderTest(
        name,
        Softmax,
        lambda dim: SoftmaxConfig(*settings),
        lambda dim: SoftmaxOracle(dim, *settings),
        full_step=None,
    )


def _oasis_softmax(name: str, C: float, *settings: Any) -> UnderTest:
    return UnderTest(
        name,
        OasisSoftmax,
        lambda dim: OasisSoftmaxConfig(C, *settings),
        lambda dim: OasisSoftmaxOracle(dim, C, *settings),
        full_step=None,
    )


def _loreta(name: str, rank: int, C: float = 0.1) -> UnderTest:
    return UnderTest(
        name,
        Loreta,
        lambda dim: LoretaConfig(C, rank, shared_matrix(dim)),
        lambda dim: LoretaOracle(dim, C, rank, shared_matrix(dim).astype(np.float64)),
        full_step=C,
    )


def shared_matrix(dim: int) -> NDArray[np.float32]:
    """A full matrix near the identity, as others may have learned it."""
    rng = np.random.default_rng(3)
    return (np.eye(dim) + rng.normal(0, 0.3 / np.sqrt(dim), (dim, dim))).astype(np.float32)


OF_LOW_RANK = (_loreta("loreta", 3), _loreta("loreta-rank-1", 1, 0.03), _loreta("loreta-room", 16))

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
    UnderTest("lego-pairs", LegoPairs, lambda dim: LegoPairsConfig(), LegoPairsOracle, full_step=None),
    UnderTest(
        "lego-pairs-firm",
        LegoPairs,
        lambda dim: LegoPairsConfig(0.3, 0.2, 1.5),
        lambda dim: LegoPairsOracle(dim, 0.3, 0.2, 1.5),
        full_step=None,
    ),
)

OF_WAITING_STEPS = (
    _oasis("oasis-waiting", WaitingOasis),
    _oasis("oasis-waiting-symmetric", WaitingOasis, symmetric="online"),
    _oasis("oasis-waiting-psd", WaitingOasis, psd_every=7),
    UnderTest(
        "oasis-waiting-averaged",
        WaitingAveraged,
        lambda dim: OasisConfig(),
        AveragedOracle,
        passive_counts=True,
    ),
    UnderTest("dissim-waiting", WaitingDissim, lambda dim: DissimConfig(), DissimOracle),
)

OF_TOUCHED = (
    UnderTest("oasis-sparse", OasisSparse, lambda dim: OasisSparseConfig(), OasisOracle),
    UnderTest(
        "oasis-sparse-firm",
        OasisSparse,
        lambda dim: OasisSparseConfig(C=1.0),
        lambda dim: OasisOracle(dim, 1.0),
        full_step=1.0,
    ),
)

OF_DIAGONALS = (
    _tg("soml-tg", 1.0, 1e-5),
    _tg("soml-tg-sparse", 0.3, 0.05),
    _da("soml-da", 1e-2, 1.0, 1e-6),
    _da("soml-da-sparse", 0.3, 1.0, 0.05),
    UnderTest("oasis-diagonal", OasisDiagonal, lambda dim: OasisDiagonalConfig(), OasisDiagonalOracle),
)

OF_PAIRS = (
    _softmax("softmax", 0.5, 0.03, 3, 6, 2, 10),
    _softmax("softmax-newest", 0.2, 0.03, 0, 4, 4, 8),
    _oasis_softmax("oasis-softmax", 0.1, 0.5, 0.03, 3, 6, 2, 10),
)

FREE = (
    *(*OF_MATRICES, *OF_TOUCHED, *OF_LOW_RANK, *OF_PAIRS, *OF_WAITING_STEPS),
    *(*OF_DIAGONALS, *OF_KERNELS, *OVER_MAPS),
)
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
            shared=one.learner.SHARED,
        )

    return replace(
        one,
        name=f"{one.name}-by-key",
        learner=ByQuery,
        settings=settings,
        oracle=lambda dim: ByQueryOracle(lambda: one.oracle(dim)),
    )


BY_KEY = tuple(
    _by_key(one) for one in FREE if one.name in ("oasis-psd", "oasis-waiting", "soml-tg", "loreta")
)

LEARNERS = (*FREE, *TETHERED, *BY_KEY)


def _with_inputs() -> Iterator[Any]:
    for one in LEARNERS:
        for kind in one.inputs:
            yield pytest.param(one, kind, id=f"{one}-{kind}")


WITH_FULL_STEP = pytest.mark.parametrize("subject", [one for one in LEARNERS if one.full_step], ids=str)
"""Each learner that states how long a step of an event of weight 1 can be."""

EVERY_INPUT = pytest.mark.parametrize(("subject", "kind"), list(_with_inputs()))
"""Each learner with each kind of rows it takes."""

IMPLEMENTATIONS = (
    "oasis",
    "oasis-psd",
    "oasis-waiting",
    "oasis-averaged",
    "dissim",
    "lego",
    "lego-pairs",
    "soml-tg",
    "soml-da",
    "oasis-diagonal",
    "oasis-sparse",
    "softmax",
    "oasis-softmax",
    "oks-rbf",
    "oks-oldest",
    "omks-share",
    "maps-share",
    "maps-waiting",
    "loreta",
    "oasis-tethered",
    "soml-tg-by-key",
    "loreta-by-key",
)
"""One setting for each code path by which rows, weights and saved arrays are read. What a guard that they
share refuses does not depend on C, on a kernel or on how kernels are weighed."""

EACH = [one for one in LEARNERS if one.name in IMPLEMENTATIONS]

EACH_IMPLEMENTATION = pytest.mark.parametrize("subject", EACH, ids=str)
"""Each implementation, in one setting."""

EACH_IMPLEMENTATION_INPUT = pytest.mark.parametrize(
    ("subject", "kind"), [param for param in _with_inputs() if param.values[0] in EACH]
)
"""Each implementation with each kind of rows it takes."""

EVERY_ARITHMETIC_INPUT = pytest.mark.parametrize(
    ("subject", "kind"),
    [param for param in _with_inputs() if param.values[0] in EACH or param.values[0] in OF_KERNELS],
)
"""Each implementation and each kernel, whose sums over few columns are code of their own."""
