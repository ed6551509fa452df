"""Learners of kernels under the laws: one kernel, several, and several as explicit maps."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal

from learners.hedge import HedgeConfig
from learners.kernels.tiles import LANES
from learners.multikernel import KernelConfig, Omks, OmksConfig, ViewKernels, one_kernel
from learners.omks_maps import OmksMaps, OmksMapsConfig

from .oracle_combination import Combination, Given, Hedge, PassiveAggressive
from .oracle_kernels import cosine, intersection, linear, on_view, polynomial, rbf
from .oracle_oks import OksOracle
from .oracle_omks import Budget, MappedOasisOracle, OmksOracle
from .oracle_step import Kernel, Oracle
from .under_test import UnderTest


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


class WaitingMaps(OmksMaps):
    """With room for steps that wait in small blocks, too."""

    ROOM = 4


def _omks_maps(
    name: str, hedge: HedgeConfig, combination: Callable[[int], Combination], learner: Any = OmksMaps
) -> UnderTest:
    """Three views, each a block of its own."""

    def oracle(dim: int) -> Oracle:
        members = [
            MappedOasisOracle(lambda x, span=slice(start, stop): x[span], stop - start)
            for start, stop in _views(dim)
        ]
        return OmksOracle(members, combination(3), _views(dim), idle=False)

    def settings(dim: int) -> OmksMapsConfig:
        return OmksMapsConfig(tuple(stop - start for start, stop in _views(dim)), hedge=hedge)

    return UnderTest(name, learner, settings, oracle, least_dim=3)


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
    _omks_maps("maps-waiting", HedgeConfig("uniform"), lambda m: Given([1.0] * m), WaitingMaps),
)
