"""Nystroem's map: a kernel seen from landmarks."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from learners.block import Block, DenseBlock, Float32s, SparseBlock
from learners.errors import MapError
from learners.kernels.landmark_rows import GAUSSIAN, INTERSECTION, landmarks_dense, landmarks_sparse
from learners.maps.base import (
    fitted_array,
    option_choice,
    option_number,
    option_whole,
    read_options,
    require_dense,
    require_sparse,
)
from learners.maps.distances import dense_rows, neighbour_distance, sample_rows
from learners.maps.roots import refuse_negative

DEFAULTS: Mapping[str, Any] = {
    "kernel": "gaussian",
    "laplacian": False,
    "landmarks": 1000,
    "components": 50,
    "sigma": 1.0,
    "bandwidth": 0.0,
    "seed": 0,
}

NULL_SHARE = 1e-7
"""Eigenvalues below this share of the largest are rounding, and would be divided by."""

MOST_ENTRIES = 1 << 28
"""Of all landmarks together, which are kept dense: 1 GiB."""


@dataclass(frozen=True, eq=False)
class NystroemMap:
    """x -> k(x, landmarks) projection (Williams and Seeger, NIPS 2000; Fowlkes, Belongie, Chung, Malik, PAMI
    26 (2004)).

    Options: kernel: "gaussian", exp(-||x - z||^2 / (2 (sigma bandwidth)^2)), or "intersection", sum_j
    min(x_j, z_j), for histograms. laplacian: False approximates the kernel by the dot product: U
    Lambda^(-1/2) of the landmarks' K = U Lambda U^T. True gives the eigenvectors of the normalised Laplacian
    I - D^(-1/2) K D^(-1/2) with the smallest eigenvalues, without the first, which tells only degrees: an
    eigenvector u of D^(-1/2) K D^(-1/2) with the value lambda continues to f(x) = sum_l k(x, l) u_l / (lambda
    sqrt(d(x) d(l))), d(x) = sum_l k(x, l), and is u at the landmarks (Gong and Lazebnik, CVPR 2011, section
    3.2.1). landmarks: at most so many rows of the sample (1,000). components: eigenvectors, fewer where there
    are fewer (50). sigma (1). bandwidth: 0 takes the mean distance of a landmark to its 50th neighbour. seed:
    draws the landmarks (0).
    landmarks: float32 [d, L]. projection: float32 [L, k]. Dense or sparse in, dense out. A zero row stays
    zero: that view is missing.
    """

    kind: ClassVar[str] = "nystroem"
    sparse: ClassVar[bool] = False
    landmarks: Float32s
    projection: Float32s
    reads_sparse: bool
    options: Mapping[str, Any]

    @property
    def dim_in(self) -> int:
        """Dimension of the vectors it reads."""
        return int(self.landmarks.shape[0])

    @property
    def dim(self) -> int:
        """Dimension of the vectors it gives: eigenvectors kept."""
        return int(self.projection.shape[1])

    @classmethod
    def fit(cls, sample: Block, options: Mapping[str, Any]) -> Self:
        """Draw landmarks and decompose their kernel. Raises MapError on an unfit sample."""
        chosen = _checked(read_options(cls.kind, options, DEFAULTS))
        if chosen["kernel"] == "intersection":
            refuse_negative(cls.kind, sample)
        if sample.dim * chosen["landmarks"] > MOST_ENTRIES:
            raise MapError(
                f"the map nystroem keeps landmarks dense, {chosen['landmarks']} of {sample.dim} dimensions "
                "are too many: give it fewer"
            )
        rows = sample_rows(cls.kind, sample, chosen["landmarks"], chosen["seed"])
        if chosen["kernel"] == "gaussian" and chosen["bandwidth"] == 0:
            chosen = {**chosen, "bandwidth": neighbour_distance(cls.kind, rows)}
        landmarks = np.ascontiguousarray(dense_rows(rows).T, np.float32)
        itself = np.eye(landmarks.shape[1], dtype=np.float32)
        plain = cls(landmarks, itself, False, {**chosen, "laplacian": False})
        K = plain.transform(DenseBlock(landmarks.T)).values.astype(np.float64)
        projection = (_laplacian if chosen["laplacian"] else _kernel)((K + K.T) / 2, chosen["components"])
        return cls(landmarks, projection, isinstance(sample, SparseBlock), chosen)

    @classmethod
    def load(cls, spec: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]]) -> Self:
        """The map of `spec` and its arrays."""
        count = int(spec["landmarks"])
        return cls(
            fitted_array(cls.kind, arrays, "landmarks", (int(spec["dim_in"]), count)),
            fitted_array(cls.kind, arrays, "projection", (count, int(spec["dim"]))),
            bool(spec["sparse"]),
            _checked(dict(spec["options"])),
        )

    def transform(self, block: Block) -> DenseBlock:
        """Mapped rows in new arrays. The exponential is the machine's: bits repeat on one machine."""
        gaussian, out = self.options["kernel"] == "gaussian", np.empty((len(block), self.dim), np.float32)
        width = self.options["sigma"] * self.options["bandwidth"]
        gamma = 1 / width**2 if gaussian else 0.0
        which = (GAUSSIAN if gaussian else INTERSECTION, gamma, self.options["laplacian"])
        if self.reads_sparse:
            rows = require_sparse(self.kind, block, self.dim_in).kernel_rows()
            landmarks_sparse(which, rows, self.landmarks, self._squares, self.projection, out)
        else:
            values = require_dense(self.kind, block, self.dim_in).values
            landmarks_dense(which, values, self.landmarks, self.projection, out)
        return DenseBlock(out)

    @cached_property
    def _squares(self) -> NDArray[np.float64]:
        return np.asarray(np.square(self.landmarks, dtype=np.float64).sum(axis=0))

    def arrays(self) -> dict[str, NDArray[Any]]:
        """Landmarks and projection."""
        return {"landmarks": self.landmarks, "projection": self.projection}

    def spec(self) -> dict[str, Any]:
        """Dimensions, kind of the rows it reads, and options with the bandwidth found."""
        sizes = {"dim_in": self.dim_in, "dim": self.dim, "landmarks": int(self.landmarks.shape[1])}
        return {**sizes, "sparse": self.reads_sparse, "options": dict(self.options)}


def _kernel(K: NDArray[np.float64], components: int) -> Float32s:
    """U Lambda^(-1/2) of the largest eigenvalues."""
    values, vectors = _largest(K, components)
    return np.ascontiguousarray(vectors / np.sqrt(values), np.float32)


def _laplacian(K: NDArray[np.float64], components: int) -> Float32s:
    """u_l / (lambda sqrt(d(l))) of the largest eigenvalues of D^(-1/2) K D^(-1/2) but the first."""
    roots = np.sqrt(K.sum(axis=1))
    values, vectors = _largest(K / np.outer(roots, roots), components + 1)
    if len(values) < 2:
        raise MapError("the map nystroem needs landmarks that differ: give it more objects, or a bandwidth")
    return np.ascontiguousarray(vectors[:, 1:] / values[1:] / roots[:, None], np.float32)


def _largest(K: NDArray[np.float64], count: int) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    values, vectors = np.linalg.eigh(K)
    kept = np.flatnonzero(values > NULL_SHARE * values[-1])[::-1][:count]
    return values[kept], vectors[:, kept]


def _checked(options: dict[str, Any]) -> dict[str, Any]:
    option_choice("nystroem", options, "kernel", ("gaussian", "intersection"))
    laplacian = options["laplacian"]
    if not isinstance(laplacian, bool):
        raise MapError(f"the option laplacian of nystroem must be true or false, not {laplacian!r}")
    for name in ("landmarks", "components"):
        option_whole("nystroem", options, name)
    option_whole("nystroem", options, "seed", least=0)
    option_number("nystroem", options, "sigma")
    option_number("nystroem", options, "bandwidth", positive=False)
    return options
