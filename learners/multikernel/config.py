"""Settings of OKS and OMKS: which kernels on which columns, how much is kept, how kernels are weighed.

How kernel values are worked out: which sums each view needs, and which RBF is a power of another.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from learners.block import Float32s
from learners.errors import ConfigError, require_number, require_positive, require_whole
from learners.hedge import HedgeConfig, first_standing
from learners.kernels.kernel_values import Plan
from learners.kernels.kinds import COSINE, KERNELS, MEAN, RBF, RBF_OF_OTHER, KernelName

MAX_DEGREE = 16

CENTRED = ("rbf", "cosine")
"""Kinds that can be centred: k(x, x) = 1, and what unrelated objects have is known."""

WIDEST_CENTRED = 10.0
"""Above it, 1 - exp(-1 / sigma^2) is below 0.01, and rounding above 1e-5 of what is left."""


@dataclass(frozen=True, slots=True)
class KernelConfig:
    """One kernel of two views x and y.

    kind: "rbf", exp(-||x - y|| / (gamma sigma^2)), the distance itself and not its square; "cosine",
    0.5 cos(x, y) + 0.5; "linear", x^T y; "polynomial", (scale x^T y + shift)^degree; "intersection",
    sum_j min(x_j, y_j). sigma: > 0. scale: > 0; shift: >= 0; degree: 1..16.

    centred: of "rbf" and "cosine", whose values are all positive: (k - unrelated) / (1 - unrelated), which is
    1 for equal objects and about 0 for objects at the mean distance. A kernel of positive values has a
    direction that all objects share, and steps fill it, so that it says of an object how often it was
    clicked, whatever was asked. An "rbf" so wide that nearly all of it is shared has no digits left: sigma is
    at most 10 then. Raises ConfigError.
    """

    kind: KernelName = "rbf"
    sigma: float = 1.0
    scale: float = 1.0
    shift: float = 1.0
    degree: int = 2
    centred: bool = False

    def __post_init__(self) -> None:
        if self.kind not in KERNELS:
            raise ConfigError(f"kind of a kernel must be one of {', '.join(KERNELS)}, not {self.kind!r}")
        require_whole("degree of a kernel", self.degree)
        require_number("shift of a kernel", self.shift)
        for name in ("sigma", "scale"):
            value = getattr(self, name)
            require_number(f"{name} of a kernel", value)
            if not 1e-3 <= value <= 1e3:
                raise ConfigError(f"{name} of a kernel must lie in 0.001..1000, not {value}")
        if not 0 <= self.shift <= 1e3:
            raise ConfigError(f"shift of a kernel must lie in 0..1000, not {self.shift}")
        if not 1 <= self.degree <= MAX_DEGREE:
            raise ConfigError(f"degree of a kernel must lie in 1..{MAX_DEGREE}, not {self.degree}")
        if self.centred and self.kind not in CENTRED:
            raise ConfigError(f"only {' and '.join(CENTRED)} kernels can be centred, not {self.kind!r}")
        if self.centred and self.kind == "rbf" and self.sigma > WIDEST_CENTRED:
            raise ConfigError(
                f"sigma of a centred kernel must be at most {WIDEST_CENTRED}, not {self.sigma}: "
                "to a wider one all objects are nearly alike"
            )

    @property
    def unrelated(self) -> float:
        """What it is before centring for objects that have nothing in common: exp(-1 / sigma^2) for those at
        the mean distance, 0.5 for those at right angles."""
        return math.exp(-1 / self.sigma**2) if self.kind == "rbf" else 0.5


PRINTED = (*(KernelConfig("rbf", sigma=sigma) for sigma in (0.5, 1.0, 2.0)), KernelConfig("cosine"))
"""The four kernels that the paper builds on each kind of feature (section 6.3)."""


@dataclass(frozen=True, slots=True)
class ViewKernels:
    """Kernels on the columns start..stop-1 of a mapped vector.

    gamma: the mean pairwise distance of this view, which scales its RBF kernels; 0 lets the learner take it
    from the sample it is made with. Raises ConfigError.
    """

    start: int
    stop: int
    kernels: tuple[KernelConfig, ...] = PRINTED
    gamma: float = 0.0

    def __post_init__(self) -> None:
        require_whole("the start of a view", self.start)
        require_whole("the stop of a view", self.stop)
        require_number("gamma", self.gamma)
        if not 0 <= self.start < self.stop:
            raise ConfigError(f"a view must span columns start < stop, not {self.start}..{self.stop}")
        if not self.kernels:
            raise ConfigError(
                f"the view of columns {self.start}..{self.stop} has no kernel: give at least one"
            )
        if not (math.isfinite(self.gamma) and self.gamma >= 0):
            raise ConfigError(f"gamma must be a finite number, or 0 for the sample's, not {self.gamma}")


@dataclass(frozen=True, slots=True)
class OmksConfig:
    """Settings of OMKS; with one kernel it is OKS.

    views: each with its kernels; the m kernels count in this order. mean: all of them are one kernel, their
    mean (OKS-Avg), and m = 1; a view that one of two objects lacks adds 0 to it. C: aggressiveness of each
    kernel's step, > 0. triplets: how many are kept. objects: how many distinct objects, rounded up to whole
    tiles. evict: which triplet goes where there is no room: "oldest", which joined or was last taken again
    the longest ago, or "smallest", whose taus add up to the least. hedge: how the kernels are weighed. Raises
    ConfigError.
    """

    views: tuple[ViewKernels, ...]
    C: float = 0.1
    triplets: int = 5_000
    objects: int = 5_000
    evict: Literal["oldest", "smallest"] = "oldest"
    hedge: HedgeConfig = field(default_factory=HedgeConfig)
    mean: bool = False

    def __post_init__(self) -> None:
        if not self.views:
            raise ConfigError("views must name at least one range of columns")
        require_positive("C", self.C)
        require_whole("triplets", self.triplets)
        require_whole("objects", self.objects)
        if not 1 <= self.triplets <= 10_000_000:
            raise ConfigError(f"triplets must lie in 1..10000000, not {self.triplets}")
        if not 3 <= self.objects <= 30_000_000:
            raise ConfigError(f"objects must lie in 3..30000000, not {self.objects}")
        if self.evict not in ("oldest", "smallest"):
            raise ConfigError(f'evict must be "oldest" or "smallest", not {self.evict!r}')
        first_standing(self.hedge, self.kernels)

    @property
    def kernels(self) -> int:
        """How many kernels learn, m."""
        return 1 if self.mean else self.parts

    @property
    def parts(self) -> int:
        """How many kernels are worked out."""
        return sum(len(view.kernels) for view in self.views)


def one_kernel(dim: int, kernel: KernelConfig, gamma: float = 0, **settings: Any) -> OmksConfig:
    """Settings of OKS: one kernel on the whole vector; `settings` are others of `OmksConfig`."""
    return OmksConfig((ViewKernels(0, dim, (kernel,), gamma),), hedge=HedgeConfig("uniform"), **settings)


MOST_ROWS = 1_000
"""Of a sample whose pairwise distances are averaged: half a million pairs."""


def make_plan(config: OmksConfig, gamma: NDArray[np.float64]) -> Plan:
    """The plan of `learners.kernels.kernel_values` for these settings; gamma: float64 [views], > 0."""
    views: list[tuple[int, int, int]] = []
    kernels: list[tuple[int, int, int, int]] = []
    numbers, place = np.zeros((config.parts, 3), np.float32), 0
    for number, view in enumerate(config.views):
        kinds = [KERNELS[kernel.kind] for kernel in view.kernels]
        codes = [kind.code for kind in kinds]
        views.append((view.start, view.stop, int(np.bitwise_or.reduce([kind.needs for kind in kinds]))))
        for offset, kernel in enumerate(view.kernels):
            if kernel.kind in CENTRED:
                numbers[place + offset, 1] = 1 / (1 - kernel.unrelated) if kernel.centred else 0
            if kernel.kind == "rbf":
                numbers[place + offset, 0] = 1 / (gamma[number] * kernel.sigma**2)
            elif kernel.kind != "cosine":
                numbers[place + offset] = kernel.scale, kernel.shift, kernel.degree
        kernels.extend((place + own, number, code, place + other) for own, code, other in _order(view, codes))
        place += len(codes)
    table = np.array(kernels, np.int64)
    distant = np.isin(table[:, 2], (RBF, RBF_OF_OTHER, COSINE))
    view_of = table[np.argsort(table[:, 0]), 1].copy()
    last = np.array([[0, 0, MEAN, place]] if config.mean else [], np.int64).reshape(-1, 4)
    return np.array(views, np.int64), (table[distant], table[~distant], last), numbers, view_of


def _order(view: ViewKernels, codes: list[int]) -> Iterator[tuple[int, int, int]]:
    """(kernel, kind, other) of one view: wide RBFs first, so that one of half the sigma is their fourth
    power: exp(-4 u) = (exp(-u))^4."""
    widths = {i: view.kernels[i].sigma for i, code in enumerate(codes) if code == RBF}
    for i in sorted(widths, key=lambda i: -widths[i]):
        wider = [j for j, sigma in widths.items() if sigma == 2 * widths[i]]
        yield (i, RBF_OF_OTHER, wider[0]) if wider else (i, RBF, i)
    yield from ((i, code, i) for i, code in enumerate(codes) if code != RBF)


def mean_distances(config: OmksConfig, sample: Float32s | None) -> NDArray[np.float64]:
    """gamma of each view, float64 [views]: as set, or the mean distance of two objects of the sample that
    have the view, or sqrt(2), that of unrelated unit vectors, where it tells none.

    All pairs of at most MOST_ROWS rows at equal distances count: neighbours alone are often alike, in a
    catalog by classes as well as where a click names its query and its object.
    """
    from scipy.spatial.distance import pdist  # 0.15 s that most processes never need

    found = np.array([view.gamma for view in config.views], np.float64)
    for number, view in enumerate(config.views):
        if found[number] == 0 and sample is not None:
            part = sample[:, view.start : view.stop].astype(np.float64)
            part = part[np.isfinite(part).all(axis=1) & part.any(axis=1)]
            if len(part) > 1:
                chosen = np.linspace(0, len(part) - 1, min(len(part), MOST_ROWS)).astype(np.int64)
                found[number] = pdist(part[chosen]).mean()
    return np.where(found > 0, found, np.sqrt(2))
