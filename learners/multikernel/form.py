"""The serving form of OKS and OMKS over a support set: symmetric, PSD, sharpened and normalised, per kernel.

What a kernel learned is a W in the space of its features phi: S(q, p) = phi(q)^T W phi(p), W = I + Phi M
Phi^T, with the n kept objects as columns of Phi and the taus in M. So it has the form of any learned matrix,
found from the Gram matrix of the objects: the eigenvectors u = Phi y of sym(W) whose eigenvalues lie farthest
from 1 are kept, all others count as 1. Then S(q, p) = f(1) k(q, p) + sum_i (f(lambda_i) - f(1)) u_i(q) u_i(p)
with u_i(x) = sum_o y_i(o) k(o, x) and f as in `learners.psd`: m (max(lambda, 0) / m)^power, m the largest.

A kernel whose values are all positive has a direction that every object shares. Triplets that tell what is
clicked from what is not fill it with one number per item, whatever the query, as clicks do with item norms:
on texts S had .163 / .361 (mAP / P@10), the untrained kernels .242 / .523. So the objects' mean direction is
taken out of such kernels: .292 / .580, sharpened and normalised .312 / .600. Kernels that are centred when
they learn have no such direction.

It does not fold: kernel values of every pair are needed, so it rescores a few items for each query and is no
search of its own.

OKS and OMKS over a support set served as they were learned: f(q, p) = sum_i theta_i S_i(q, p).

What one kernel learned are eigenvectors in the space of its features: the ends of the spectrum of
W - I = Phi M Phi^T, from the Gram matrix alone.

Phi's columns are n objects, K = Phi^T Phi, M symmetric. A vector Phi y has the length sqrt(y^T K y) and the
image Phi (M K y), so nothing is factorised and a singular K does no harm. Randomised block Krylov iteration
(Musco and Musco: Randomized block Krylov methods for stronger and faster approximate singular value
decomposition, NIPS 2015) with full reorthogonalisation in that metric, then Rayleigh and Ritz. Deterministic:
fixed start; run it with one BLAS thread.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Self, TypeAlias

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from learners.block import (
    Block,
    Float32s,
    Int32s,
    as_block,
    dense_rows,
    not_finite,
    row_blocks,
    without_sense,
)
from learners.errors import ConfigError, StateError, saved, saved_flag
from learners.forms.quadratic import Pieces, batches, inverse_roots, whole
from learners.forms.serving import DEFAULT_POWER
from learners.kernels import kernel_values
from learners.kernels.tiles import LANES
from learners.multikernel.config import KernelConfig, OmksConfig, ViewKernels, make_plan
from learners.multikernel.support import SupportSet, saved_array
from learners.psd import one_blas_thread

Doubles: TypeAlias = NDArray[np.float64]

SEED = 2015
BLOCKS = 4
"""Of the subspace, each as wide as the pairs that are asked for."""
SPARE = 8

DEPENDENT = 1e-9
"""A direction of less than this share of the longest squared length is no new one: kernel values are float32,
whose rounding is all that is left of it."""
LEAST = 1e-6
"""Eigenvalues below this share of the largest are 0."""


def kernel_ends(K: Doubles, M: sparse.csr_array, pairs: int) -> tuple[Float32s, Float32s]:
    """At most `pairs` eigenpairs of Phi M Phi^T, those farthest from 0: values float32 [r], by descending
    size; and y float32 [n, r] with eigenvectors Phi y of length 1.

    K: float64 [n, n]; M: float64. Pairs that stand apart are found to rounding; crowded ones as Ritz
    approximations. All there are where `pairs` reaches that.
    """
    n = len(K)
    width = min(n, pairs + SPARE)
    start = np.random.default_rng(SEED).standard_normal((n, width))
    basis, images = np.empty((n, 0)), np.empty((n, 0))
    block = M @ (K @ start)
    for _ in range(BLOCKS):
        block, image = _orthonormal(block, K, basis, images)
        if block.shape[1] == 0:
            break
        basis, images = np.hstack([basis, block]), np.hstack([images, image])
        block = M @ image
    small = images.T @ (M @ images)
    values, coordinates = np.linalg.eigh((small + small.T) / 2)
    found = np.argsort(-np.abs(values), kind="stable")[:pairs]
    found = found[np.abs(values[found]) > LEAST * np.abs(values).max(initial=0)]
    return values[found].astype(np.float32), np.asarray(basis @ coordinates[:, found], np.float32)


def _orthonormal(block: Doubles, K: Doubles, basis: Doubles, images: Doubles) -> tuple[Doubles, Doubles]:
    """(Y, K Y): what the block adds to the basis, orthonormal in the metric K; images: K basis.

    Twice, since rounding leaves a share of what the first pass takes away.
    """
    longest = float(np.einsum("nw,nw->w", block, K @ block).max(initial=0))
    for _ in range(2):
        block = block - basis @ (images.T @ block)
        image = K @ block
        gram = block.T @ image
        squares, axes = np.linalg.eigh((gram + gram.T) / 2)
        kept = squares > DEPENDENT * max(longest, 1e-300)
        turn = axes[:, kept] / np.sqrt(squares[kept])
        block, image, longest = block @ turn, image @ turn, 1.0
    return block, image


RANK = 64
"""Eigenvectors kept of each kernel."""


@dataclass(frozen=True, slots=True, eq=False)
class KernelPart:
    """eigenvalues: float32 [r], of the vectors u = Phi y. vectors: y, float32 [n, r]."""

    eigenvalues: Float32s
    vectors: Float32s


def learned_part(gram: Float32s, M: sparse.csr_array, rank: int, centred: bool) -> KernelPart:
    """The eigenvectors of I + Phi M Phi^T farthest from eigenvalue 1, `rank` of them; gram = Phi^T Phi.

    centred: the direction of the objects' mean is taken out: everything happens orthogonal to it, and one
    more vector has the eigenvalue 0.
    """
    K = gram.astype(np.float64)
    square = K.sum()
    with one_blas_thread():
        if not centred or square <= 0:
            values, vectors = kernel_ends(K, M, rank)
            return KernelPart(1 + values, vectors)
        mean = np.full(len(K), 1 / np.sqrt(square))
        along = mean @ K
        K -= np.outer(along, along)
        values, vectors = kernel_ends(K, M, rank)
        vectors -= np.outer(mean, along @ vectors).astype(np.float32)
        return KernelPart(
            np.append(1 + values, np.float32(0)), np.column_stack([vectors, mean.astype(np.float32)])
        )


def matrix_of(triplets: Int32s, tau: Float32s, n: int) -> sparse.csr_array:
    """sym(M), float64 [n, n]: M[q, c] += tau and M[q, s] -= tau of each triplet; triplets: objects [T, 3]."""
    query, clicked, skipped = triplets.T
    places = (np.concatenate([query, query]), np.concatenate([clicked, skipped]))
    half = np.concatenate([tau, -tau]).astype(np.float64) / 2
    whole = (np.concatenate([half, half]), (np.concatenate(places), np.concatenate(places[::-1])))
    return sparse.csr_array(sparse.coo_array(whole, shape=(n, n)))


def gram(objects: Float32s, view: ViewKernels, kernel: KernelConfig, gamma: float, several: bool) -> Float32s:
    """k of all pairs of objects, float32 [n, n]; 0 where one lacks the view and there are several."""
    own = np.ascontiguousarray(objects[:, view.start : view.stop])
    n, tiles = len(own), -(-len(own) // LANES)
    alone = ViewKernels(0, own.shape[1], (kernel,), gamma)
    plan = make_plan(OmksConfig((alone,)), np.array([gamma]))
    kept = (
        np.zeros((tiles, own.shape[1], LANES), np.float32),
        np.ones((tiles, 1, LANES), np.float32),
        np.zeros((tiles, 1), np.bool_),
    )
    kernel_values.fill_tiles(plan, own, kept)
    K = np.empty((n, n), np.float32)
    for part in row_blocks(n, tiles * LANES):
        values = np.empty((part.stop - part.start, 1, tiles * LANES), np.float32)
        kernel_values.object_values(plan, kept, own[part], values)
        K[part] = values[:, 0, :n]
    if several:
        lacking = ~own.any(axis=1)
        K[lacking], K[:, lacking] = 0, 0
    return K


MOST_OBJECTS = 8_192
"""Kept objects up to which a form is made: about a gigabyte for the Gram matrix there, of one kernel at a
time."""


@dataclass(frozen=True, slots=True, eq=False)
class SupportsForm:
    """sum_k of theta_k k_k(q, p) + sum_i values[k, i] u_ki(q) u_ki(p).

    config: of the learner. gamma: float64 [views]. objects: float32 [n, dim], those kept. theta: float32 [m],
    the weight of a kernel times its f(1). vectors: float32 [tiles, m, LANES, r], y of object o at
    [o // LANES, :, o % LANES]. values: float32 [m, r]; 0 where a kernel has fewer than r. normalised: whether
    `scores` divides by sqrt(S(q, q) S(p, p)); a query or item whose self score is 0 then scores 0.
    """

    config: OmksConfig
    gamma: NDArray[np.float64]
    objects: Float32s
    theta: Float32s
    vectors: Float32s
    values: Float32s
    normalised: bool
    plan: kernel_values.Plan
    kept: kernel_values.Kept

    @classmethod
    def from_support(  # noqa: PLR0917  (what a learner is made of)
        cls,
        support: SupportSet,
        config: OmksConfig,
        gamma: NDArray[np.float64],
        theta: NDArray[np.float64],
        normalised: bool = True,
        power: float = DEFAULT_POWER,
        rank: int = RANK,
    ) -> Self:
        """The form of what is kept, independent of it afterwards. power applies where `normalised`; rank:
        eigenvectors kept per kernel. Raises ConfigError above MOST_OBJECTS objects.

        n objects cost n^2 kernel values and 5 products of K with `rank` vectors for each kernel.
        """
        objects, triplets, tau = support.compact()
        if len(objects) > MOST_OBJECTS:
            raise ConfigError(
                f"a serving form is made of at most {MOST_OBJECTS} kept objects, not {len(objects)}: "
                'lower learner.objects, or set serving.psd to "off"'
            )
        m = config.kernels
        vectors, values = np.zeros((len(objects), m, rank + 1), np.float32), np.zeros((m, rank + 1))
        scales = np.ones(m)
        kernels = [(view, one, number) for number, view in enumerate(config.views) for one in view.kernels]
        groups = [kernels] if config.mean else [[one] for one in kernels]
        for k, group in enumerate(groups if len(objects) else ()):
            K = np.zeros((len(objects), len(objects)), np.float32)
            for view, one, number in group:
                K += gram(objects, view, one, float(gamma[number]), len(config.views) > 1)
            K /= len(group)
            centred = any(one.kind != "linear" and not one.centred for _, one, _ in group)
            part = learned_part(K, matrix_of(triplets, tau[:, k], len(objects)), rank, centred)
            scales[k], found = _sharpened(part, power if normalised else 1.0)
            values[k, : len(found)] = theta[k] * found
            vectors[:, k, : len(found)] = part.vectors
        return cls.of_arrays(
            config, gamma, objects, (theta * scales).astype(np.float32), vectors, values, normalised
        )

    @classmethod
    def of_arrays(  # noqa: PLR0917  (as they are stored)
        cls, config: OmksConfig, gamma: Any, objects: Any, theta: Any, vectors: Any, values: Any, norm: bool
    ) -> Self:
        """From arrays that fit; vectors: float32 [n, m, r]."""
        (n, dim), tiles, plan = objects.shape, -(-len(objects) // LANES), make_plan(config, gamma)
        kept = (
            np.zeros((tiles, dim, LANES), np.float32),
            np.ones((tiles, len(config.views), LANES), np.float32),
            np.zeros((tiles, len(config.views)), np.bool_),
        )
        kernel_values.fill_tiles(plan, objects, kept)
        padded = np.zeros((tiles * LANES, *vectors.shape[1:]), np.float32)
        padded[:n] = vectors
        by_tile = np.ascontiguousarray(padded.reshape(tiles, LANES, *vectors.shape[1:]).transpose(0, 2, 1, 3))
        return cls(config, gamma, objects, theta, by_tile, values.astype(np.float32), norm, plan, kept)

    @property
    def dim(self) -> int:
        """Dimension of the vectors."""
        return int(self.objects.shape[1])

    def scores(self, queries: Any, items: Any) -> Float32s:
        """Scores of all pairs, raw or normalised as the form says, float32 [queries, items].

        The bits of a score do not depend on what else is asked for with it. Raises BlockError on another
        dimension or an index out of range."""
        left, right = as_block(queries, self.dim, "queries"), as_block(items, self.dim, "items")
        return self.pair_scores(left, self.features(left), right, self.features(right))

    def pair_scores(self, queries: Block, asked: Float32s, items: Block, features: Float32s) -> Float32s:
        """`scores` of blocks whose `features` are known: a product of their F numbers for each pair."""
        left, right = dense_rows(queries), dense_rows(items)
        scores = np.empty((len(left), len(right)), np.float32)
        weighted = asked[:, :-1] * self.values.reshape(-1)
        kernel_values.score_features(self.plan, self.theta, left, right, weighted, features, scores)
        if self.normalised:
            scores *= asked[:, -1:]
            scores *= features[:, -1]
        return scores

    def self_scores(self, items: Any, pieces: Pieces = whole) -> Float32s:
        """S(p, p) for each item, clipped at 0, float32 [n]. `pieces` changes no bit."""
        block = as_block(items, self.dim, "items")
        products = np.zeros(len(block), np.float32)
        for batch in self._batches(len(block), pieces):
            rows = dense_rows(block.slice(batch.start, batch.stop))
            products[batch] = self._squares(rows, self._features(rows))
        products[not_finite(block)] = np.nan
        return products

    def features(self, items: Any) -> Float32s:
        """u_ki of each item and what `pair_scores` multiplies by for it (1 where not normalised), float32
        [n, F + 1], F = m r: all that `pair_scores` needs of the kept objects. NaN for an item with a value
        that is not finite, whose scores then are."""
        block, F = as_block(items, self.dim, "items"), self.values.size
        features = np.ones((len(block), F + 1), np.float32)
        for batch in self._batches(len(block), whole):
            rows = dense_rows(block.slice(batch.start, batch.stop))
            features[batch, :F] = self._features(rows)
            if self.normalised:
                features[batch, F] = inverse_roots(self._squares(rows, features[batch, :F]))
        features[not_finite(block)] = np.nan
        return features

    def _batches(self, rows: int, pieces: Pieces) -> Iterator[slice]:
        return batches(rows, self.vectors.size + LANES * self.values.size, pieces)

    def _features(self, rows: Float32s) -> Float32s:
        features = np.empty((len(rows), *self.values.shape), np.float32)
        kernel_values.object_features(self.plan, self.kept, self.vectors, rows, features)
        return features.reshape(len(rows), -1)

    def _squares(self, rows: Float32s, features: Float32s) -> Float32s:
        """S(p, p) of rows with these features, clipped at 0; summed in float64, row by row."""
        own = np.empty(len(rows))
        kernel_values.own_values(self.plan, self.theta, rows, own)
        own += (np.square(features, dtype=np.float64) * self.values.reshape(-1)).sum(axis=1)
        return np.maximum(own, 0).astype(np.float32)

    def arrays(self) -> dict[str, NDArray[Any]]:
        """What a checkpoint stores of it; `from_arrays` reads it back."""
        n, (m, rank) = len(self.objects), self.values.shape
        return {
            "gamma": self.gamma,
            "objects": self.objects,
            "theta": self.theta,
            "vectors": np.ascontiguousarray(self.vectors.transpose(0, 2, 1, 3).reshape(-1, m, rank)[:n]),
            "values": self.values,
            "normalised": np.array(self.normalised, np.uint8),
        }

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, NDArray[Any]], config: OmksConfig) -> Self:
        """The form of these arrays; config: of the learner it was made from. Raises StateError naming the
        array that is missing or does not fit."""
        objects, values = (_floats(arrays, name, (None, None)) for name in ("objects", "values"))
        (n, dim), (m, rank) = objects.shape, values.shape
        if m != config.kernels or max(view.stop for view in config.views) > dim:
            raise StateError(f"the form has {m} kernels of {dim} columns: these are of other settings")
        gamma = saved(arrays, "gamma", np.float64, (len(config.views),))
        theta, vectors = _floats(arrays, "theta", (m,)), _floats(arrays, "vectors", (n, m, rank))
        if not (gamma > 0).all():
            raise StateError("array gamma must be above 0")
        normalised = saved_flag(arrays, "normalised")
        return cls.of_arrays(config, gamma, objects, theta, vectors, values, normalised)


def form_bytes(dim: int, config: OmksConfig, items: int, rank: int = RANK) -> int:
    """Memory of a form of as many objects as may be kept, and of the `features` of so many items."""
    kept, features = -(-config.objects // LANES) * LANES, config.kernels * (rank + 1)
    return 4 * (kept * (2 * dim + features) + items * (features + 1))


def _floats(arrays: Mapping[str, NDArray[Any]], name: str, shape: tuple[int | None, ...]) -> Float32s:
    return np.ascontiguousarray(saved(arrays, name, np.float32, shape))


def _sharpened(part: KernelPart, power: float) -> tuple[float, NDArray[np.float64]]:
    """f(1), and f(lambda) - f(1) of each vector of the part, float64."""
    largest = max(1.0, float(part.eigenvalues.max(initial=1.0)))
    raised = largest * (np.maximum(part.eigenvalues.astype(np.float64), 0) / largest) ** power
    outside = largest * (1 / largest) ** power
    return outside, raised - outside


@dataclass(frozen=True, slots=True, eq=False)
class AsLearned:
    """f by the kernels of `config`; neither symmetric nor PSD.

    gamma: float64 [views]. theta: float32 [m], of sum 1. normalised: whether `scores` divides by
    sqrt(f(q, q) f(p, p)); a query or item whose self score is 0 then scores 0.
    """

    config: OmksConfig
    gamma: NDArray[np.float64]
    support: SupportSet
    theta: Float32s
    normalised: bool

    @property
    def dim(self) -> int:
        """Dimension of the vectors."""
        return int(self.support.rows.shape[1])

    def scores(self, queries: Any, items: Any) -> Float32s:
        """Scores of all pairs, raw or normalised as the form says, float32 [queries, items].

        The bits of a score do not depend on what else is asked for with it. Raises BlockError on another
        dimension or an index out of range."""
        left, right = as_block(queries, self.dim, "queries"), as_block(items, self.dim, "items")
        plan = make_plan(self.config, self.gamma)
        scores = self.support.scores(plan, self.theta, dense_rows(left), dense_rows(right))
        if self.normalised:
            scores *= inverse_roots(self.self_scores(left))[:, None]
            scores *= inverse_roots(self.self_scores(right))
        return without_sense(scores, left, right)

    def self_scores(self, items: Any, pieces: Pieces = whole) -> Float32s:
        """f(p, p) for each item, clipped at 0, float32 [n]. `pieces` changes no bit."""
        block, plan = as_block(items, self.dim, "items"), make_plan(self.config, self.gamma)
        products = np.zeros(len(block), np.float32)
        for batch in batches(len(block), self.support.tau.size, pieces):
            rows = dense_rows(block.slice(batch.start, batch.stop))
            products[batch] = [self.support.scores(plan, self.theta, row, row)[0, 0] for row in rows[:, None]]
        products[not_finite(block)] = np.nan
        return np.maximum(products, 0)

    def arrays(self) -> dict[str, NDArray[Any]]:
        """What a checkpoint stores of it; `from_arrays` reads it back."""
        kept: dict[str, NDArray[Any]] = {name: getattr(self.support, name) for name in SupportSet.names()}
        own: dict[str, NDArray[Any]] = {
            "gamma": self.gamma,
            "theta": self.theta,
            "normalised": np.array(self.normalised, np.uint8),
        }
        return {**kept, **own}

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, NDArray[Any]], config: OmksConfig) -> Self:
        """The form of these arrays; config: of the learner it was made from. Raises StateError naming the
        array that is missing or does not fit."""
        rows, normalised = (
            saved(arrays, "rows", np.float32, (None, None, None)),
            saved_flag(arrays, "normalised"),
        )
        gamma = saved_array(arrays, "gamma", np.empty(len(config.views)))
        if not (gamma > 0).all():
            raise StateError("array gamma must be above 0")
        support = SupportSet.read(arrays, rows.shape[1], config, make_plan(config, gamma), copy=True)
        theta = saved_array(arrays, "theta", np.empty(config.kernels, np.float32))
        return cls(config, gamma, support, theta, normalised)
