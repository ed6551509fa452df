"""Embeddings that take one direction, or one column, at a time, as if the others were independent of it.

Laplacian eigenfunctions along principal or random directions (Fergus, Weiss, Torralba, NIPS 2009; Gong and
Lazebnik, CVPR 2011, section 3.2.1): functions that change little where a direction holds many objects.

Kernel PCA of each column (Perronnin, Sanchez, Liu, CVPR 2010): an additive kernel by its two largest
eigenvectors.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from learners.block import MAX_DIM, Block, DenseBlock, Float32s, SparseBlock, as_block
from learners.errors import MapError
from learners.kernels.separable import (
    GAUSSIAN,
    INTERSECTION,
    additive_dense,
    additive_sparse,
    interpolate_dense,
)
from learners.maps import base
from learners.maps.approximations import MOST_ENTRIES, NULL_SHARE, sample_rows
from learners.maps.histograms import refuse_negative

BINS = 50
"""Of the table of a function, and of the histogram of a direction."""

FLOOR = 0.01
"""What an empty bin counts as, of the share of a bin of the uniform density: an eigenvector of bins that hold
nothing is determined by nothing."""

WIDTH = 0.2
"""Of the Gaussian, as a share of the range of the widest direction: so the paper's 0.2 means the same
whatever the vectors' lengths."""

WIDTH_ROWS = 256
"""Objects from whose distances along a direction its width is estimated."""

NEAR, MOST, DEVIATIONS = 0.05, 0.95, 1.959963984540054
"""Data spectroscopy (Shi, Belkin, Yu, Annals of Statistics 37 (2009)): within the width times the root of the
95 % quantile of chi^2 (of one degree here) 95 % of objects have 5 % of the others."""

RESOLUTION = 1e-7
"""Of float32: numbers that differ by a smaller share are alike."""

LEAST_WIDTH = 1e-18
"""Of which float32 holds 1 / width^2."""

NULL_VARIANCE = 1e-6
"""Principal directions with less of the largest variance than this are dropped, as whitening drops them."""


@dataclass(frozen=True, slots=True, eq=False)
class EigenfunctionsMap(base.ViewMap):
    """Base of the maps of Laplacian eigenfunctions: x -> f_e(s_m) along each direction m, s = (x - mean)
    directions.

    Of bin centres b in each direction: K = exp(-(b_i - b_j)^2 / (2 width^2)), P the diagonal of the density,
    (D1 - P K P) f = lambda P D2 f, D1 and D2 the column sums of P K P and of P K. P D2 is D1, so these are
    the eigenvectors of the random walk on P K P, lambda in [0, 1]. The constant one is dropped, those with
    the smallest lambda are kept, of mean square 1 under P, and read off by linear interpolation.

    Options: directions (see the map). functions: of each direction (2). sigma (1) and bandwidth: the width is
    their product; 0 takes the bandwidth from the sample. weighted: each function over the root of its lambda,
    so that the smoothest weigh most, as a ridge with lambda in the place of I does it (section 4.1) (False).
    mean: float32 [d]. directions: float32 [d, m]. bins: float32 [m, 2], the first centre and the distance of
    two. functions: float32 [m e, 50]. Dense in, dense out. A zero row stays zero: that view is missing.
    """

    fitted: ClassVar[base.Shapes] = {
        "mean": ("dim_in",),
        "directions": ("dim_in", "directions"),
        "bins": ("directions", 2),
        "functions": ("directions*functions", BINS),
    }
    sizes = ("directions",)
    mean: Float32s
    directions: Float32s
    bins: Float32s
    functions: Float32s
    options: Mapping[str, Any]

    @property
    def dim(self) -> int:
        """Dimension of the vectors it gives: functions of all directions."""
        return len(self.functions)

    @classmethod
    def fit(cls, sample: Block, options: Mapping[str, Any]) -> Self:
        """Find the directions and decompose each. Raises MapError on rows that do not differ."""
        chosen = cls.chosen(options)
        rows = base.require_sample(cls.kind, base.require_dense(cls.kind, sample))
        if not np.ptp(rows, axis=0).any():
            raise MapError(
                f"the map {cls.kind} needs sample rows that differ: give it more objects, or use the map unit"
            )
        mean = rows.mean(axis=0).astype(np.float32)
        centred = rows - mean
        directions = cls._directions(centred, chosen).astype(np.float32)
        lines = centred @ directions
        low, high = lines.min(axis=0), lines.max(axis=0)
        widths = np.full(len(low), chosen["bandwidth"]) if chosen["bandwidth"] else cls._widths(lines)
        steps = (high - low) / BINS
        bins = np.stack([low + steps / 2, steps], axis=1).astype(np.float32)
        functions = [
            _eigenfunctions(BINS * width / (top - bottom), cls._density(line, bottom, top), chosen)
            for line, bottom, top, width in zip(lines.T, low, high, widths * chosen["sigma"], strict=True)
        ]
        return cls(mean, np.ascontiguousarray(directions), bins, np.concatenate(functions), chosen)

    @classmethod
    def _directions(cls, centred: NDArray[np.float64], options: Mapping[str, Any]) -> NDArray[np.float64]:
        raise NotImplementedError

    @classmethod
    def _widths(cls, lines: NDArray[np.float64]) -> NDArray[np.float64]:
        raise NotImplementedError

    @classmethod
    def _density(cls, line: NDArray[np.float64], low: float, high: float) -> NDArray[np.float64]:
        """Of each bin, float64 [50]; they sum to 1."""
        return np.full(BINS, 1 / BINS)

    def __post_init__(self) -> None:
        if not (self.bins[:, 1] > 0).all():
            raise MapError(f"array bins of the map {self.kind} must have distances above 0")

    def transform(self, block: Block) -> DenseBlock:
        """Functions in new arrays."""
        rows = base.require_dense(self.kind, block, self.dim_in).values
        out = np.empty((len(rows), self.dim), np.float32)
        interpolate_dense(rows, self.mean, self.directions, self.bins, self.functions, out)
        return DenseBlock(out)


def _option_functions(kind: str, options: Mapping[str, Any], name: str) -> None:
    if base.option_whole(kind, options, name) >= BINS:
        raise MapError(f"the option {name} of {kind} must be below {BINS}")


class PcaLapMap(EigenfunctionsMap):
    """`EigenfunctionsMap` along principal directions, at most `directions` (50) of largest variance, with the
    density of the sample in 50 bins. bandwidth: 0 is 0.2 of the range of the widest direction."""

    __slots__ = ()
    kind: ClassVar[str] = "pcalap"
    takes: ClassVar[base.Options] = {
        "directions": base.Option(50, base.option_whole),
        "functions": base.Option(2, _option_functions),
        "sigma": base.SIGMA,
        "bandwidth": base.BANDWIDTH,
        "weighted": base.Option(False, base.option_flag),
    }

    @classmethod
    def _directions(cls, centred: NDArray[np.float64], options: Mapping[str, Any]) -> NDArray[np.float64]:
        from sklearn.decomposition import PCA

        asked = min(options["directions"], *centred.shape)
        pca = PCA(asked, svd_solver="covariance_eigh").fit(centred)
        kept = pca.explained_variance_ > NULL_VARIANCE * pca.explained_variance_[0]
        return np.asarray(pca.components_[kept].T)

    @classmethod
    def _widths(cls, lines: NDArray[np.float64]) -> NDArray[np.float64]:
        return np.full(lines.shape[1], WIDTH * np.ptp(lines, axis=0).max())

    @classmethod
    def _density(cls, line: NDArray[np.float64], low: float, high: float) -> NDArray[np.float64]:
        shares = np.histogram(line, BINS, (low, high))[0] / len(line)
        floored = np.maximum(shares, FLOOR / BINS)
        return np.asarray(floored / floored.sum())


class RpLapMap(EigenfunctionsMap):
    """`EigenfunctionsMap` along `directions` (1,000) random directions, w ~ N(0, I) by `seed` (0), with the
    uniform density, whatever objects there are. bandwidth: 0 estimates the width of each direction by data
    spectroscopy."""

    __slots__ = ()
    kind: ClassVar[str] = "rplap"
    takes: ClassVar[base.Options] = {
        **PcaLapMap.takes,
        "directions": base.Option(1000, base.option_whole),
        "seed": base.SEED,
    }

    @classmethod
    def _directions(cls, centred: NDArray[np.float64], options: Mapping[str, Any]) -> NDArray[np.float64]:
        draw = np.random.default_rng(options["seed"])
        return draw.standard_normal((centred.shape[1], options["directions"]))

    @classmethod
    def _widths(cls, lines: NDArray[np.float64]) -> NDArray[np.float64]:
        return np.array([line_width(line) for line in lines.T])


def _eigenfunctions(
    width: float, density: NDArray[np.float64], options: Mapping[str, Any]
) -> NDArray[np.float32]:
    """The functions of one direction at its bins, float32 [e, 50]. width: in bins."""
    from scipy.linalg import eigh

    places = np.arange(BINS, dtype=np.float64)
    K = np.exp(-np.square((places[:, None] - places) / max(width, RESOLUTION)) / 2)
    PKP = density[:, None] * K * density
    D1, D2 = PKP.sum(axis=0), (density[:, None] * K).sum(axis=0)
    values, f = eigh(np.diag(D1) - PKP, np.diag(density * D2), subset_by_index=(1, options["functions"]))
    f = f / np.sqrt(density @ np.square(f))
    if options["weighted"]:
        f = f / np.sqrt(np.maximum(values, RESOLUTION))
    return np.ascontiguousarray(f.T, np.float32)


def line_width(line: NDArray[np.float64]) -> float:
    """The width of a Gaussian along a line of objects, float64 [n], by data spectroscopy; their deviation
    where most are alike, and 1 where all are."""
    some = line[np.unique(np.linspace(0, len(line) - 1, min(len(line), WIDTH_ROWS)).astype(np.int64))]
    near = np.quantile(np.abs(some[:, None] - some), NEAR, axis=1)
    width, deviation = float(np.quantile(near, MOST) / DEVIATIONS), float(line.std())
    least = max(RESOLUTION * float(np.abs(line).max(initial=0)), LEAST_WIDTH)
    return width if width > least else deviation if deviation > least else 1.0


@dataclass(frozen=True, slots=True, eq=False)
class AddKpcaMap(base.ViewMap):
    """x_j -> k(x_j, landmarks_j) U Lambda^(-1/2) of each column j, K_j = U Lambda U^T the kernel of its
    landmarks: the dot product approximates the additive kernel sum_j k(x_j, z_j) (Perronnin, Sanchez, Liu,
    CVPR 2010; Gong and Lazebnik, CVPR 2011, section 3.2.1).

    Options: kernel: "intersection", min(x, z), for histograms, or "gaussian", exp(-(x - z)^2 / (2 (sigma
    bandwidth)^2)), for any numbers. landmarks: at most so many values of a column in the sample, under
    intersection of those that are not 0 (128). functions: eigenvectors of each column with the largest
    eigenvalues (2); where there are fewer, the rest are 0. sigma (1). bandwidth: 0 estimates the width of
    each column by data spectroscopy. seed: draws the landmarks (0).
    landmarks: float32 [d, L], projection: float32 [d e, L], rates: float32 [d], 1 / width^2. Dense rows, or
    CSR under intersection, and gives what it reads. A zero row stays zero: that view is missing; under
    intersection a value below 0 makes its row NaN.
    """

    kind: ClassVar[str] = "addkpca"
    takes: ClassVar[base.Options] = {
        "kernel": base.kernel_option(kind),
        "landmarks": base.Option(128, base.option_whole),
        "functions": base.Option(2, base.option_whole),
        "sigma": base.SIGMA,
        "bandwidth": base.BANDWIDTH,
        "seed": base.SEED,
    }
    fitted: ClassVar[base.Shapes] = {
        "landmarks": ("dim_in", "landmarks"),
        "projection": ("dim_in*functions", "landmarks"),
        "rates": ("dim_in",),
    }
    landmarks: Float32s
    projection: Float32s
    rates: Float32s
    sparse: bool = field()
    options: Mapping[str, Any] = field()

    def __post_init__(self) -> None:
        _require_size(self.dim_in, self.options)

    @property
    def dim(self) -> int:
        """Dimension of the vectors it gives: functions of each column."""
        return len(self.projection)

    @classmethod
    def fit(cls, sample: Block, options: Mapping[str, Any]) -> Self:
        """Draw the landmarks of each column and decompose their kernels. Raises MapError on an unfit
        sample."""
        chosen = cls.chosen(options)
        sample = as_block(sample)
        _require_size(sample.dim, chosen)
        if chosen["kernel"] == "intersection":
            refuse_negative(cls.kind, sample)
        elif isinstance(sample, SparseBlock):
            raise MapError(
                "the map addkpca reads sparse vectors under the kernel intersection alone: use a map of "
                "sparse views, or that kernel"
            )
        rows = sample_rows(cls.kind, sample, max(1, len(sample)), chosen["seed"])
        columns = sparse.csc_array(rows) if sparse.issparse(rows) else rows
        draw = np.random.default_rng(chosen["seed"])
        landmarks = np.zeros((sample.dim, chosen["landmarks"]), np.float32)
        projection = np.zeros((sample.dim, chosen["functions"], chosen["landmarks"]), np.float32)
        rates = np.ones(sample.dim, np.float32)
        for column in range(sample.dim):
            values = _values(columns, column, chosen["kernel"] == "intersection")
            if chosen["kernel"] == "gaussian":
                width = chosen["sigma"] * (chosen["bandwidth"] or line_width(values))
                if not LEAST_WIDTH <= width <= 1 / LEAST_WIDTH:
                    raise MapError(
                        f"the width of the map addkpca, sigma times bandwidth, cannot be {width:g}"
                    )
                rates[column] = 1 / width**2
            if len(values) > chosen["landmarks"]:
                values = draw.choice(values, chosen["landmarks"], replace=False)
            landmarks[column, : len(values)] = values
            found = _column_kpca(
                landmarks[column, : len(values)].astype(np.float64), chosen, float(rates[column])
            )
            projection[column, : len(found), : len(values)] = found
        flat = projection.reshape(-1, chosen["landmarks"])
        return cls(landmarks, flat, rates, isinstance(sample, SparseBlock), chosen)

    def transform(self, block: Block) -> Block:
        """Mapped rows in new arrays. The Gaussian's exponential is the machine's: bits repeat on one
        machine."""
        block = as_block(block)
        if not self.sparse:
            rows = base.require_dense(self.kind, block, self.dim_in).values
            out = np.empty((len(rows), self.dim), np.float32)
            which = INTERSECTION if self.options["kernel"] == "intersection" else GAUSSIAN
            additive_dense(which, rows, self.rates, self.landmarks, self.projection, out)
            return DenseBlock(out)
        given = base.require_sparse(self.kind, block, self.dim_in)
        indptr = (given.indptr - given.indptr[0]) * self.options["functions"]
        indices, values = np.empty(indptr[-1], np.int32), np.empty(indptr[-1], np.float32)
        additive_sparse(given.kernel_rows(), self.rates, self.landmarks, self.projection, indices, values)
        return SparseBlock(indptr, indices, values, self.dim)


def _values(columns: Any, column: int, nonzero: bool) -> NDArray[np.float64]:
    """What a column of a sample holds, in the order of the rows; without zeros if so asked."""
    if sparse.issparse(columns):
        values = columns.data[columns.indptr[column] : columns.indptr[column + 1]]
    else:
        values = columns[:, column]
    return np.asarray(values[values != 0] if nonzero else values, np.float64)


def _column_kpca(values: NDArray[np.float64], options: Mapping[str, Any], rate: float) -> NDArray[np.float64]:
    """U Lambda^(-1/2) of the largest eigenvalues, transposed: float64 [at most e, L]."""
    if options["kernel"] == "intersection":
        K = np.minimum(values[:, None], values)
    else:
        K = np.exp(-0.5 * rate * np.square(values[:, None] - values))
    if not len(K):
        return K
    found, vectors = np.linalg.eigh(K)
    kept = np.flatnonzero(found > NULL_SHARE * found[-1])[::-1][: options["functions"]]
    return np.asarray((vectors[:, kept] / np.sqrt(found[kept])).T)


def _require_size(dim: int, options: Mapping[str, Any]) -> None:
    """Raises MapError for more columns than vectors can have, or more landmarks than memory should hold."""
    columns = dim * options["functions"]
    if columns > MAX_DIM or columns * options["landmarks"] > MOST_ENTRIES:
        raise MapError(
            f"the map addkpca keeps {options['landmarks']} landmarks of each column, {dim} columns are too "
            "many: give it fewer"
        )
