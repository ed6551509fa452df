"""The kernels by name, once for all: the learners over a support set, the maps and the configuration read
these lists. Light: imports nothing.

To add a kernel of two vectors: a name and an entry here, and its arithmetic in
`learners.kernels.kernel_values` (with a sum of its own, in `learners.kernels.tiles` too).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, TypeAlias

SQUARES, PRODUCTS, LEAST = 1, 2, 4
"""Which sum over the columns of a view a kernel is made of, as bits: of the squared differences, of the
products, of the lesser numbers."""

RBF, RBF_OF_OTHER, COSINE, LINEAR, POLYNOMIAL, INTERSECTION, MEAN = range(7)
"""As compiled code knows the kernels. RBF_OF_OTHER: an RBF of four times the rate of one already known, whose
fourth power it is. MEAN: that of all others."""


@dataclass(frozen=True, slots=True)
class KernelKind:
    """code: as compiled code knows it. needs: the sum it is made of. parameters: the fields of
    `KernelConfig` that it reads."""

    code: int
    needs: int
    parameters: tuple[str, ...] = ()


KernelName: TypeAlias = Literal["rbf", "cosine", "linear", "polynomial", "intersection"]

KERNELS: Mapping[KernelName, KernelKind] = {
    "rbf": KernelKind(RBF, SQUARES, ("sigma",)),
    "cosine": KernelKind(COSINE, SQUARES),
    "linear": KernelKind(LINEAR, PRODUCTS),
    "polynomial": KernelKind(POLYNOMIAL, PRODUCTS, ("scale", "shift", "degree")),
    "intersection": KernelKind(INTERSECTION, LEAST),
}
"""Kernels of two vectors, for OKS and OMKS over a support set."""

MapKernelName: TypeAlias = Literal["gaussian", "exponential", "intersection"]

MAP_KERNELS: Mapping[str, tuple[MapKernelName, ...]] = {
    "rff": ("gaussian", "exponential"),
    "nystroem": ("gaussian", "intersection"),
    "addkpca": ("intersection", "gaussian"),
}
"""The kernels that each of the maps can stand for which know several."""
