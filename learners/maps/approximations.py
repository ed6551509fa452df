"""Distances in a sample, from which the widths of kernels are taken.

Random Fourier features: kernels of a distance as dot products.

Nystroem's map: a kernel seen from landmarks.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from learners.block import Block, DenseBlock, Float32s, SparseBlock, as_block
from learners.errors import BlockError, MapError
from learners.kernels import map_rows
from learners.maps import base
from learners.maps.histograms import refuse_negative

MOST_ROWS = 2000
"""Of a sample whose distances are all computed: 32 MB of them."""

NEIGHBOUR = 50
"""The Gaussian's width is the mean distance to this neighbour (Gong and Lazebnik, CVPR 2011, section 4.1)."""


def sample_rows(kind: str, sample: Block, most: int, seed: int) -> Any:
    """At most so many non-zero rows of a sample, drawn by the seed and in their order: float64, a 2-d array
    or scipy CSR. Raises MapError when none are left or a value is not finite."""
    if isinstance(sample, DenseBlock):
        rows: Any = base.require_sample(kind, sample)
    else:
        try:
            rows = sample.checked_csr().astype(np.float64)
            rows.eliminate_zeros()
        except BlockError as error:
            raise MapError(f"the sample of the map {kind} cannot be used: {error}") from error
        rows = rows[np.diff(rows.indptr) > 0]
        if not rows.shape[0] or not np.isfinite(rows.data).all():
            raise MapError(f"the map {kind} needs sample rows that are not zero, all of finite numbers")
    if rows.shape[0] > most:
        rows = rows[np.sort(np.random.default_rng(seed).choice(rows.shape[0], most, replace=False))]
    return rows


def dense_rows(rows: Any) -> NDArray[np.float64]:
    """The rows as a 2-d array."""
    return np.asarray(rows.toarray() if sparse.issparse(rows) else rows, np.float64)


def neighbour_distance(kind: str, rows: Any) -> float:
    """The mean distance of a row to its 50th neighbour, or to the farthest where there are fewer. Raises
    MapError when all rows are alike."""
    distances = np.sort(_distances(rows), axis=1)
    return _positive(kind, distances[:, min(NEIGHBOUR, len(distances) - 1)].mean())


def pair_distance(kind: str, rows: Any) -> float:
    """The mean distance of two different rows. Raises MapError when all rows are alike."""
    distances = _distances(rows)
    return _positive(kind, distances.sum() / max(1, distances.size - len(distances)))


def _distances(rows: Any) -> NDArray[np.float64]:
    from sklearn.metrics.pairwise import euclidean_distances

    return np.asarray(euclidean_distances(rows), np.float64)


def _positive(kind: str, distance: float) -> float:
    if not distance > 0:
        raise MapError(f"the map {kind} needs sample rows that differ: give it more objects, or bandwidth")
    return float(distance)


@dataclass(frozen=True, slots=True, eq=False)
class RffMap(base.ViewMap):
    """x -> sqrt(2/D) cos(w_r^T x + b_r), b uniform in a turn (Rahimi and Recht, NIPS 2007; Gong and Lazebnik,
    CVPR 2011, section 3.2.2): the dot product approximates a kernel, its error falling as 1/sqrt(D).

    Options: kernel: "gaussian", exp(-gamma ||x - z||^2 / 2) with w ~ N(0, gamma I), gamma = 1 / (sigma
    bandwidth)^2; or "exponential", exp(-||x - z|| / s) of the distance itself, with Cauchy's frequencies
    w = N(0, I) / |N(0, 1)| / s, s = sigma^2 bandwidth (Xia, Hoi, Jin, Zhao, TPAMI 36 (2014), section 5).
    components: D (256). sigma (1). bandwidth: 0 takes it from the sample, the mean distance to the 50th
    neighbour for "gaussian", of two objects for "exponential". seed (0).
    frequencies: float32 [d, D], offsets: float32 [D], both in turns. Dense or sparse in, dense out. A zero
    row stays zero: that view is missing.
    """

    kind: ClassVar[str] = "rff"
    takes: ClassVar[base.Options] = {
        "kernel": base.kernel_option(kind),
        "components": base.Option(256, base.option_whole),
        "sigma": base.SIGMA,
        "bandwidth": base.BANDWIDTH,
        "seed": base.SEED,
    }
    fitted: ClassVar[base.Shapes] = {"frequencies": ("dim_in", "components"), "offsets": ("components",)}
    frequencies: Float32s
    offsets: Float32s
    reads_sparse: bool
    options: Mapping[str, Any]

    @property
    def dim(self) -> int:
        """Dimension of the vectors it gives: components."""
        return len(self.offsets)

    @classmethod
    def fit(cls, sample: Block, options: Mapping[str, Any]) -> Self:
        """Draw the frequencies. Raises MapError when the bandwidth is to come from a sample without any."""
        chosen = cls.chosen(options)
        sample = as_block(sample)
        if chosen["bandwidth"] == 0:
            rows = sample_rows(cls.kind, sample, MOST_ROWS, chosen["seed"])
            width = neighbour_distance if chosen["kernel"] == "gaussian" else pair_distance
            chosen = {**chosen, "bandwidth": width(cls.kind, rows)}
        draw = np.random.default_rng(chosen["seed"])
        shape = (sample.dim, chosen["components"])
        turns = draw.standard_normal(shape) / (2 * np.pi * chosen["bandwidth"])
        if chosen["kernel"] == "gaussian":
            turns /= chosen["sigma"]
        else:
            turns /= chosen["sigma"] ** 2 * np.abs(draw.standard_normal(shape[1]))
        offsets = draw.random(shape[1]).astype(np.float32)
        return cls(turns.astype(np.float32), offsets, isinstance(sample, SparseBlock), chosen)

    def transform(self, block: Block) -> DenseBlock:
        """Features in new arrays."""
        block = as_block(block)
        out = np.empty((len(block), self.dim), np.float32)
        if self.reads_sparse:
            rows = base.require_sparse(self.kind, block, self.dim_in).kernel_rows()
            map_rows.fourier_sparse(rows, self.frequencies, self.offsets, out)
        else:
            values = base.require_dense(self.kind, block, self.dim_in).values
            map_rows.fourier_dense(values, self.frequencies, self.offsets, out)
        return DenseBlock(out)


NULL_SHARE = 1e-7
"""Eigenvalues below this share of the largest are rounding, and would be divided by."""

MOST_ENTRIES = 1 << 28
"""Of all landmarks together, which are kept dense: 1 GiB."""


@dataclass(frozen=True, eq=False)
class NystroemMap(base.ViewMap):
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
    takes: ClassVar[base.Options] = {
        "kernel": base.kernel_option(kind),
        "laplacian": base.Option(False, base.option_flag),
        "landmarks": base.Option(1000, base.option_whole),
        "components": base.Option(50, base.option_whole),
        "sigma": base.SIGMA,
        "bandwidth": base.BANDWIDTH,
        "seed": base.SEED,
    }
    fitted: ClassVar[base.Shapes] = {"landmarks": ("dim_in", "landmarks"), "projection": ("landmarks", "dim")}
    sizes = ("dim", "landmarks")
    landmarks: Float32s
    projection: Float32s
    reads_sparse: bool
    options: Mapping[str, Any]

    @property
    def dim(self) -> int:
        """Dimension of the vectors it gives: eigenvectors kept."""
        return int(self.projection.shape[1])

    @classmethod
    def fit(cls, sample: Block, options: Mapping[str, Any]) -> Self:
        """Draw landmarks and decompose their kernel. Raises MapError on an unfit sample."""
        chosen = cls.chosen(options)
        sample = as_block(sample)
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

    def transform(self, block: Block) -> DenseBlock:
        """Mapped rows in new arrays. The exponential is the machine's: bits repeat on one machine."""
        block = as_block(block)
        gaussian, out = self.options["kernel"] == "gaussian", np.empty((len(block), self.dim), np.float32)
        width = self.options["sigma"] * self.options["bandwidth"]
        gamma = 1 / width**2 if gaussian else 0.0
        which = (map_rows.GAUSSIAN if gaussian else map_rows.INTERSECTION, gamma, self.options["laplacian"])
        if self.reads_sparse:
            rows = base.require_sparse(self.kind, block, self.dim_in).kernel_rows()
            map_rows.landmarks_sparse(which, rows, self.landmarks, self._squares, self.projection, out)
        else:
            values = base.require_dense(self.kind, block, self.dim_in).values
            map_rows.landmarks_dense(which, values, self.landmarks, self.projection, out)
        return DenseBlock(out)

    @cached_property
    def _squares(self) -> NDArray[np.float64]:
        return np.asarray(np.square(self.landmarks, dtype=np.float64).sum(axis=0))


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
