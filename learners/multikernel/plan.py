"""How kernel values are worked out: which sums each view needs, and which RBF is a power of another."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray
from scipy.spatial.distance import pdist

from learners.block import Float32s
from learners.kernels.kernel_values import (
    COSINE,
    INTERSECTION,
    LEAST,
    LINEAR,
    MEAN,
    POLYNOMIAL,
    PRODUCTS,
    RBF,
    RBF_OF_OTHER,
    SQUARES,
    Plan,
)
from learners.multikernel.config import OmksConfig, ViewKernels

CODES = {
    "rbf": RBF,
    "cosine": COSINE,
    "linear": LINEAR,
    "polynomial": POLYNOMIAL,
    "intersection": INTERSECTION,
}
NEEDS = {RBF: SQUARES, COSINE: SQUARES, LINEAR: PRODUCTS, POLYNOMIAL: PRODUCTS, INTERSECTION: LEAST}

MOST_ROWS = 1_000
"""Of a sample whose pairwise distances are averaged: half a million pairs."""


def make_plan(config: OmksConfig, gamma: NDArray[np.float64]) -> Plan:
    """The plan of `learners.kernels.kernel_values` for these settings; gamma: float64 [views], > 0."""
    views: list[tuple[int, int, int]] = []
    kernels: list[tuple[int, int, int, int]] = []
    numbers, place = np.zeros((config.parts, 3), np.float32), 0
    for number, view in enumerate(config.views):
        codes = [CODES[kernel.kind] for kernel in view.kernels]
        views.append((view.start, view.stop, int(np.bitwise_or.reduce([NEEDS[code] for code in codes]))))
        for offset, kernel in enumerate(view.kernels):
            if kernel.kind == "rbf":
                numbers[place + offset, 0] = 1 / (gamma[number] * kernel.sigma**2)
            else:
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
    found = np.array([view.gamma for view in config.views], np.float64)
    for number, view in enumerate(config.views):
        if found[number] == 0 and sample is not None:
            part = sample[:, view.start : view.stop].astype(np.float64)
            part = part[np.isfinite(part).all(axis=1) & part.any(axis=1)]
            if len(part) > 1:
                chosen = np.linspace(0, len(part) - 1, min(len(part), MOST_ROWS)).astype(np.int64)
                found[number] = pdist(part[chosen]).mean()
    return np.where(found > 0, found, np.sqrt(2))
