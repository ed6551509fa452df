"""Standardise dense vectors: x -> (x - mean) / deviation, per column.

Weight sparse term counts by inverse document frequency, then unit length.

Whiten dense vectors: standardise, then PCA directions of unit variance, with shrinkage; or PCA alone. Or
precondition them: the same about 0 and with every direction, so that nothing is lost.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from learners.block import Block, DenseBlock, Float32s, SparseBlock
from learners.errors import BlockError, MapError
from learners.kernels.map_rows import project_dense, scale_sparse, standardise_dense
from learners.maps import base


@dataclass(frozen=True, slots=True, eq=False)
class StandardiseMap(base.ViewMap):
    """Columns of mean 0 and deviation 1 on the sample; a constant column is only centred.

    mean, scale: float32 [dim]; scale = 1 / deviation. Computed per entry in float64. A zero row stays zero:
    that view is missing. No options.
    """

    kind: ClassVar[str] = "standardise"
    by_column: ClassVar[bool] = True
    fitted: ClassVar[base.Shapes] = {"mean": ("dim_in",), "scale": ("dim_in",)}
    mean: Float32s
    scale: Float32s

    @classmethod
    def fit(cls, sample: Block, options: Mapping[str, Any]) -> Self:
        """Mean and deviation of the non-zero rows of the sample."""
        from sklearn.preprocessing import StandardScaler

        cls.chosen(options)
        scaler = StandardScaler().fit(base.require_sample(cls.kind, base.require_dense(cls.kind, sample)))
        return cls(scaler.mean_.astype(np.float32), (1 / scaler.scale_).astype(np.float32))

    def transform(self, block: Block) -> DenseBlock:
        """Standardised rows in new arrays."""
        rows = base.require_dense(self.kind, block, self.dim_in).values
        out = np.empty_like(rows)
        standardise_dense(rows, self.mean, self.scale, out)
        return DenseBlock(out)

    def linear(self) -> base.LinearRows | None:
        """The scales of the columns, about their means."""
        return base.LinearRows(self.scale.astype(np.float64), self.mean.astype(np.float64))


def _option_idf(kind: str, options: Mapping[str, Any], name: str) -> None:
    if options[name] not in ("smooth", "plain"):
        raise MapError(f'the option idf of the map {kind} must be "smooth" or "plain", not {options[name]!r}')


@dataclass(frozen=True, eq=False)
class TfidfMap(base.ViewMap):
    """x_j -> x_j idf_j / norm, n sample rows of which n_j hold term j.

    Options: idf, "smooth", idf_j = ln((1 + n) / (1 + n_j)) + 1, or "plain", as printed, idf_j = -ln(n_j / n)
    (Chechik, Sharma, Shalit, Bengio, JMLR 11 (2010), section 3), by which a term that every row holds counts
    for nothing, and one that no row holds, where that is infinite, as much as one that a single row holds.
    idf: float32 [dim].
    """

    kind: ClassVar[str] = "tfidf"
    by_column: ClassVar[bool] = True
    sparse: ClassVar[bool] = True
    takes: ClassVar[base.Options] = {"idf": base.Option("smooth", _option_idf)}
    fitted: ClassVar[base.Shapes] = {"idf": ("dim_in",)}
    idf: Float32s
    options: Mapping[str, Any]

    @classmethod
    def fit(cls, sample: Block, options: Mapping[str, Any]) -> Self:
        """Count the rows of the sample that hold each term."""
        from sklearn.feature_extraction.text import TfidfTransformer

        chosen = cls.chosen(options)
        rows = base.require_sparse(cls.kind, sample)
        if len(rows) == 0:
            raise MapError("the map tfidf needs at least one sample row")
        try:
            counts = rows.checked_csr().copy()
            counts.eliminate_zeros()  # a stored zero is no term that a row holds
        except BlockError as error:
            raise MapError(f"the sample of the map tfidf cannot be used: {error}") from error
        if not np.isfinite(counts.data).all():
            raise MapError("the sample of the map tfidf holds values that are not finite: drop those rows")
        if chosen["idf"] == "plain":
            held = np.maximum(np.bincount(counts.indices, minlength=rows.dim), 1)
            return cls(np.log(len(rows) / held).astype(np.float32), chosen)
        return cls(TfidfTransformer(norm=None).fit(counts).idf_.astype(np.float32), chosen)

    @classmethod
    def load(cls, spec: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]]) -> Self:
        """The map of its array. Older maps have no option."""
        return super().load({"options": {"idf": "smooth"}, **spec}, arrays)

    def transform(self, block: Block) -> SparseBlock:
        """Weighted unit rows in new arrays."""
        rows = base.require_sparse(self.kind, block, self.dim_in)
        indices = rows.indices[rows.entries]
        values = np.empty(len(indices), np.float32)
        scale_sparse(rows.kernel_rows(), self.idf, values)
        weighted = SparseBlock(rows.indptr - rows.indptr[0], indices, values, rows.dim)
        base.to_unit(weighted)
        return weighted

    def metric(self) -> base.ViewMetric | None:
        """1 / idf^2 for each term; None where a term counts for nothing."""
        if not self.idf.min(initial=np.inf) > 0:
            return None
        return base.ViewMetric(1 / np.square(self.idf, dtype=np.float64), "scaled")

    def linear(self) -> base.LinearRows | None:
        """idf of each term."""
        return base.LinearRows(self.idf.astype(np.float64), rows="scaled")

    def spec(self) -> dict[str, Any]:
        """The map's dimension; its option where it is not the usual one, as older maps have none."""
        spec = super().spec()
        return spec if self.options["idf"] == "plain" else {"dim_in": spec["dim_in"]}


COMPONENTS, EPSILON = 100, 0.3
"""More directions, the weak ones held down: against 60 with 1e-3, learning from clicks ended at .451 / .727
instead of .431 / .710 (mAP / P@10, photos), .351 / .626 instead of .332 / .592 (their shape alone) and
.691 / .956 instead of .636 / .945 (scikit-learn's digits). Full whitening lets noise weigh as much as signal.
"""

NULL_SHARE = 1e-6
"""Directions with less variance than this share of the largest are dropped: float32 input (eps 1.2e-7) has no
signal below, and division by their deviation would only amplify rounding."""

EXACT_DIM = 2048
"""Up to here the covariance is decomposed as a whole (about 4 s there); beyond that, where minutes are at
stake, the directions asked for are found by randomised SVD with a fixed seed."""


@dataclass(frozen=True, slots=True, eq=False)
class ProjectionMap(base.ViewMap):
    """x -> (x - mean) @ components, all sums in float64.

    mean: float32 [d]; components: float32 [d, k]. A zero row stays zero: that view is missing.
    """

    fitted: ClassVar[base.Shapes] = {"mean": ("dim_in",), "components": ("dim_in", "dim")}
    sizes = ("dim",)
    mean: Float32s
    components: Float32s
    options: Mapping[str, Any]

    @property
    def dim(self) -> int:
        """Dimension of the vectors it gives: directions kept."""
        return int(self.components.shape[1])

    def transform(self, block: Block) -> DenseBlock:
        """Projected rows in new arrays."""
        rows = base.require_dense(self.kind, block, self.dim_in).values
        return DenseBlock(_projected(rows, self.mean, self.components))

    def linear(self) -> base.LinearRows | None:
        """Its components, about the mean."""
        return base.LinearRows(self.components.astype(np.float64), self.mean.astype(np.float64))


@dataclass(frozen=True, slots=True, eq=False)
class WhitenMap(ProjectionMap):
    """Standardised columns, then principal directions of unit variance, with shrinkage.

    Options: components, at most so many directions, largest variance first (100); epsilon, shrinkage: a
    direction of variance v is divided by sqrt(v + epsilon * mean variance of those kept) (0.3). Fewer are
    kept where there are fewer: n sample rows of d columns vary in at most min(d, n - 1) directions.
    Standardisation and scaling are folded into the components.
    """

    kind: ClassVar[str] = "whiten"
    takes: ClassVar[base.Options] = {
        "components": base.Option(COMPONENTS, base.option_whole),
        "epsilon": base.Option(EPSILON, partial(base.option_number, positive=False)),
    }

    @classmethod
    def fit(cls, sample: Block, options: Mapping[str, Any]) -> Self:
        """Fit on the non-zero rows of the sample. Raises MapError when they do not vary."""
        from sklearn.decomposition import PCA
        from sklearn.preprocessing import StandardScaler

        chosen = cls.chosen(options)
        rows = base.require_sample(cls.kind, base.require_dense(cls.kind, sample))
        scaler = StandardScaler()
        standard = scaler.fit_transform(rows)
        _require_spread(cls.kind, standard)
        asked = min(chosen["components"], *standard.shape)
        pca = PCA(asked, svd_solver=_solver(standard.shape, asked), random_state=0).fit(standard)
        kept = pca.explained_variance_ > NULL_SHARE * pca.explained_variance_[0]
        variance = pca.explained_variance_[kept]
        shrunk = np.sqrt(variance + chosen["epsilon"] * variance.mean())
        components = (pca.components_[kept] / shrunk[:, None] / scaler.scale_).T
        return cls(scaler.mean_.astype(np.float32), np.ascontiguousarray(components, np.float32), chosen)


@dataclass(frozen=True, slots=True, eq=False)
class PcaMap(ProjectionMap):
    """Principal directions as they are, not whitened: what scikit-learn's PCA gives, and what the papers call
    PCA before unit length (Xia, Hoi, Jin, Zhao, TPAMI 36 (2014), section 5: 50 directions). Columns are not
    standardised: put `standardise` before it where they have units of their own.

    Options: components, at most so many directions, largest variance first (100); fewer are kept where there
    are fewer, as when whitening.
    """

    kind: ClassVar[str] = "pca"
    takes: ClassVar[base.Options] = {"components": base.Option(COMPONENTS, base.option_whole)}

    @classmethod
    def fit(cls, sample: Block, options: Mapping[str, Any]) -> Self:
        """Fit on the non-zero rows of the sample. Raises MapError when they do not vary."""
        from sklearn.decomposition import PCA

        chosen = cls.chosen(options)
        rows = base.require_sample(cls.kind, base.require_dense(cls.kind, sample))
        _require_spread(cls.kind, rows - rows[0])
        asked = min(chosen["components"], *rows.shape)
        pca = PCA(asked, svd_solver=_solver(rows.shape, asked), random_state=0).fit(rows)
        kept = pca.explained_variance_ > NULL_SHARE * pca.explained_variance_[0]
        components = np.ascontiguousarray(pca.components_[kept].T, np.float32)
        return cls(pca.mean_.astype(np.float32), components, chosen)


def _require_spread(kind: str, centred: NDArray[np.float64]) -> None:
    if not centred.any():
        raise MapError(
            f"the map {kind} needs sample rows that differ; all are alike: "
            "give it more objects, or use the map unit"
        )


TILE = 512
"""Columns of a wide projection that are read together: every row finds them in the processor's cache, where
the whole matrix would come from memory for each row. Twice as fast at 2,048 columns, no faster at 1,024."""
LEAST_TILED = 32
"""Fewer rows than this would not pay for the copy of a tile."""


def _projected(rows: Float32s, mean: Float32s, components: Float32s) -> Float32s:
    """(x - mean) components, float32 [n, k], the same bits for any number of rows and in any tiles."""
    width = components.shape[1]
    out = np.empty((len(rows), width), np.float32)
    if len(rows) < LEAST_TILED or width <= 2 * TILE:
        project_dense(rows, mean, components, out)
        return out
    for start in range(0, width, TILE):
        tile = np.ascontiguousarray(components[:, start : start + TILE])
        part = np.empty((len(rows), tile.shape[1]), np.float32)
        project_dense(rows, mean, tile, part)
        out[:, start : start + TILE] = part
    return out


def _solver(shape: tuple[int, ...], components: int) -> str:
    """How sklearn is to find the directions; the full decomposition where nearly all are asked for."""
    if shape[1] <= EXACT_DIM:
        return "covariance_eigh"
    return "randomized" if 2 * components < min(shape) else "full"


@dataclass(frozen=True, slots=True, eq=False)
class PreconditionMap(base.ViewMap):
    """x -> D^(-1/2) V^T x: whitening about 0 that keeps every direction, so that x is what it was: x = V
    D^(1/2) z. V: the mean direction of the sample, then the eigenvectors of its second moments in what is
    left, largest first; D = v + epsilon m, v the second moments along V, m the mean of those other than that
    of the mean direction. All sums in float64.

    A geometry for steps, not another similarity: a step in z is a step in x preconditioned by V D^-1 V^T, and
    the inner product of the given vectors is the metric D of z (`learners.maps.base`). About 0, since a
    shifted origin is another cosine; the mean direction by itself, since it tells objects apart least and may
    hold most (.6 to .94 of what histograms hold), and would drown the others; every direction, since a
    dropped one cannot be learned about; epsilon, since else noise weighs as much as signal.

    Options: epsilon, above 0 (1). components: float32 [d, d], V D^(-1/2). weights: D, float32 [d]. A zero
    row stays zero.
    """

    kind: ClassVar[str] = "precondition"
    takes: ClassVar[base.Options] = {"epsilon": base.Option(1.0, base.option_number)}
    """How much of the mean second moment every direction is given."""
    fitted: ClassVar[base.Shapes] = {"components": ("dim_in", "dim_in"), "weights": ("dim_in",)}
    components: Float32s
    weights: Float32s
    options: Mapping[str, Any]

    @classmethod
    def fit(cls, sample: Block, options: Mapping[str, Any]) -> Self:
        """Fit on the non-zero rows of the sample. Raises MapError without any."""
        chosen = cls.chosen(options)
        rows = base.require_sample(cls.kind, base.require_dense(cls.kind, sample))
        moments, vectors = _about_the_mean(rows)
        beside = max(float(np.mean(moments[1:] if len(moments) > 1 else moments)), NULL_SHARE * moments.max())
        weights = (moments + float(chosen["epsilon"]) * beside).astype(np.float32)
        if not (np.isfinite(weights).all() and weights.min() > 0):
            raise MapError("the map precondition needs vectors that float32 can square: bring them to scale")
        components = vectors / np.sqrt(weights.astype(np.float64))
        return cls(np.ascontiguousarray(components, np.float32), weights, chosen)

    def __post_init__(self) -> None:
        if self.weights.min() <= 0:
            raise MapError("array weights of the map precondition must be above 0")

    def transform(self, block: Block) -> DenseBlock:
        """Mapped rows in new arrays."""
        rows = base.require_dense(self.kind, block, self.dim_in).values
        return DenseBlock(_projected(rows, np.zeros(self.dim_in, np.float32), self.components))

    def metric(self) -> base.ViewMetric | None:
        """The diagonal metric D."""
        return base.ViewMetric(self.weights.astype(np.float64), "kept")

    def linear(self) -> base.LinearRows | None:
        """The matrix V D^(-1/2)."""
        return base.LinearRows(self.components.astype(np.float64))


def _about_the_mean(rows: NDArray[np.float64]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Second moments [d] along an orthonormal basis, and that, as columns [d, d]: the mean direction, then
    the principal ones of the rest."""
    from scipy.linalg import eigh

    second, mean = rows.T @ rows / len(rows), rows.mean(axis=0)
    # a reflection H that takes the first axis to the mean: its columns are the mean direction and a basis of
    # what is left
    normal = mean / (np.linalg.norm(mean) or 1.0)
    normal[0] += 1.0 if normal[0] >= 0 else -1.0
    turn = np.eye(len(mean)) - 2 * np.outer(normal, normal) / (normal @ normal)
    turned = turn @ second @ turn
    values, vectors = eigh(turned[1:, 1:]) if len(mean) > 1 else (np.zeros(0), np.zeros((0, 0)))
    basis = np.hstack([turn[:, :1], turn[:, 1:] @ vectors[:, ::-1]])
    return np.maximum(np.concatenate([turned[:1, 0], values[::-1]]), 0), basis
