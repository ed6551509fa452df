"""Settings and oracles of OMKS that the tests share."""

from __future__ import annotations

from typing import Any

import numpy as np

from learners.hedge import HedgeConfig
from learners.multikernel import KernelConfig, Omks, OmksConfig, ViewKernels

from ..oracle_combination import Combination, Given, Hedge, PassiveAggressive
from ..oracle_kernels import centred, cosine, intersection, linear, on_columns, polynomial, rbf
from ..oracle_oks import OksOracle
from ..oracle_omks import OmksOracle
from ..oracle_step import Kernel

DIM = 12
EDGES = ((0, 5), (5, 9), (9, 12))
GAMMA = 1.3
ALL = (
    KernelConfig("rbf", sigma=0.5),
    KernelConfig("cosine"),
    KernelConfig("rbf", sigma=2.0),
    KernelConfig("rbf", sigma=1.4, centred=True),
    KernelConfig("rbf", sigma=1.0),
    KernelConfig("rbf", sigma=0.7),
    KernelConfig("cosine", centred=True),
    KernelConfig("linear"),
    KernelConfig("polynomial", scale=0.5, shift=1.5, degree=3),
    KernelConfig("intersection"),
)
"""Every kind, RBFs in an order in which none may be worked out before the one it is a power of:
that of 0.7 of the one that is centred."""


def config(rule: str = "share", kernels: tuple[KernelConfig, ...] = ALL, **more: Any) -> OmksConfig:
    """Three views with these kernels each."""
    hedge = HedgeConfig(rule, beta=0.9, share=0.01, discount=0.95)  # type: ignore[arg-type]
    views = tuple(ViewKernels(start, stop, kernels, GAMMA) for start, stop in EDGES)
    return OmksConfig(views, **{"triplets": 200, "objects": 600, "hedge": hedge, **more})


def learner(rule: str = "share", **more: Any) -> Omks:
    """A fresh one."""
    return Omks(DIM, config(rule, **more))


def kernel_of(kernel: KernelConfig, gamma: float = GAMMA) -> Kernel:
    """The same kernel in float64, as printed."""
    printed = {
        "rbf": rbf(gamma * kernel.sigma**2),
        "cosine": cosine,
        "linear": linear,
        "polynomial": polynomial(kernel.degree, kernel.scale, kernel.shift),
        "intersection": intersection,
    }
    unrelated = float(np.exp(-1 / kernel.sigma**2)) if kernel.kind == "rbf" else 0.5
    return centred(printed[kernel.kind], unrelated) if kernel.centred else printed[kernel.kind]


def oracle(settings: OmksConfig) -> OmksOracle:
    """The slow one for these settings, without a budget."""
    members = [
        (OksOracle(on_columns(kernel_of(kernel), view.start, view.stop), settings.C), (view.start, view.stop))
        for view in settings.views
        for kernel in view.kernels
    ]
    columns = [edge for _, edge in members]
    return OmksOracle([one for one, _ in members], combination(settings), columns)


def combination(settings: OmksConfig) -> Combination:
    """The oracle of the rule that weighs the kernels."""
    hedge, m = settings.hedge, settings.kernels
    rules: dict[str, Combination] = {
        "hedge": Hedge(m, hedge.beta),
        "share": Hedge(m, hedge.beta, share=hedge.share),
        "discount": Hedge(m, hedge.beta, memory=hedge.discount),
        "margins": PassiveAggressive(m, hedge.C),
        "uniform": Given([1.0] * m),
        "given": Given(hedge.weights or [1.0] * m),
    }
    return rules[hedge.rule]


def bits(one: Omks) -> list[bytes]:
    """The state, to the bit."""
    return [array.tobytes() for array in one.state().values()]
