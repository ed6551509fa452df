"""Any map as a transformer of scikit-learn, for pipelines and searches over their settings."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array, issparse
from sklearn.base import BaseEstimator, ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.utils.validation import check_is_fitted, check_non_negative, validate_data

from learners.block import DenseBlock, as_block
from learners.errors import MapError
from learners.maps.base import ViewConfig, ViewMap
from learners.maps.space import KINDS, fit_map

DENSE_ONLY = ("standardise", "whiten", "pca", "precondition", "cosine", "pcalap", "rplap")
SPARSE_ONLY = ("tfidf", "by_count")


class MapTransformer(ClassNamePrefixFeaturesOutMixin, TransformerMixin, BaseEstimator):  # type: ignore[misc]
    """`kind` of `learners.KINDS` with the options of that map; None is the map's own default. An option that
    the map does not have is refused by `fit`.

    `fit` learns from rows, dense [n, d] or sparse where the map reads sparse rows, and keeps the frozen map
    in `map_`, whose spec and arrays are what a version holds. `transform` gives float32 [n, map_.dim], or a
    CSR array where the map gives sparse rows: the same bits for a row in every batch. Values that are not
    finite are refused with a ValueError. A zero row stays zero: it counts as missing.
    """

    def __init__(
        self,
        kind: str = "rff",
        *,
        kernel: str | None = None,
        components: int | None = None,
        directions: int | None = None,
        functions: int | None = None,
        landmarks: int | None = None,
        laplacian: bool | None = None,
        weighted: bool | None = None,
        levels: int | None = None,
        epsilon: float | None = None,
        sigma: float | None = None,
        bandwidth: float | None = None,
        idf: str | None = None,
        seed: int | None = None,
        maps: Sequence[ViewConfig] | None = None,
    ) -> None:
        self.kind = kind
        self.kernel = kernel
        self.components = components
        self.directions = directions
        self.functions = functions
        self.landmarks = landmarks
        self.laplacian = laplacian
        self.weighted = weighted
        self.levels = levels
        self.epsilon = epsilon
        self.sigma = sigma
        self.bandwidth = bandwidth
        self.idf = idf
        self.seed = seed
        self.maps = maps

    def fit(self, X: Any, y: Any = None) -> Self:
        """Fit the map on rows; y is ignored. Raises MapError, a ValueError, as the map does."""
        if self.kind not in KINDS:
            raise MapError(f"unknown kind of map {self.kind!r}; known: {', '.join(KINDS)}")
        rows = self._rows(X, reset=True)
        options = {name: value for name, value in self.get_params(deep=False).items() if value is not None}
        if self._positive_only:
            check_non_negative(rows, f"{type(self).__name__} of kind {self.kind}")
        try:
            self.map_: ViewMap = fit_map(ViewConfig(options.pop("kind"), options), as_block(rows))
        except MapError as error:
            raise MapError(f"{error} (n_samples = {rows.shape[0]})") from error
        return self

    def transform(self, X: Any) -> Any:
        """The mapped rows. Raises NotFittedError, and ValueError for rows that do not fit the map."""
        check_is_fitted(self)
        mapped = self.map_.transform(as_block(self._rows(X, reset=False)))
        if isinstance(mapped, DenseBlock):
            return mapped.values
        return csr_array((mapped.values, mapped.indices, mapped.indptr), shape=(len(mapped), mapped.dim))

    def _rows(self, X: Any, *, reset: bool) -> NDArray[np.float32] | csr_array:
        dense_only = self.kind in DENSE_ONLY
        rows = validate_data(
            self, X, reset=reset, accept_sparse=False if dense_only else "csr", dtype=np.float32
        )
        if self.kind in SPARSE_ONLY and not issparse(rows):
            return csr_array(rows)
        return rows

    @property
    def _positive_only(self) -> bool:
        if self.kind in {"nystroem", "addkpca"}:
            default = "intersection" if self.kind == "addkpca" else "gaussian"
            return (self.kernel or default) == "intersection"
        return self.kind in {"sqrt", "hike"}

    @property
    def _n_features_out(self) -> int:
        return self.map_.dim

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = self.kind not in DENSE_ONLY
        tags.input_tags.positive_only = self._positive_only
        tags.transformer_tags.preserves_dtype = ["float32"]
        return tags
