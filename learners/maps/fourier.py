"""Random Fourier features: kernels of a distance as dot products."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from learners.block import Block, DenseBlock, Float32s, SparseBlock
from learners.kernels.landmark_rows import fourier_dense, fourier_sparse
from learners.maps.base import (
    fitted_array,
    option_choice,
    option_number,
    option_whole,
    read_options,
    require_dense,
    require_sparse,
)
from learners.maps.distances import MOST_ROWS, neighbour_distance, pair_distance, sample_rows

DEFAULTS: Mapping[str, Any] = {
    "kernel": "gaussian",
    "components": 256,
    "sigma": 1.0,
    "bandwidth": 0.0,
    "seed": 0,
}


@dataclass(frozen=True, slots=True, eq=False)
class RffMap:
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
    sparse: ClassVar[bool] = False
    frequencies: Float32s
    offsets: Float32s
    reads_sparse: bool
    options: Mapping[str, Any]

    @property
    def dim_in(self) -> int:
        """Dimension of the vectors it reads."""
        return int(self.frequencies.shape[0])

    @property
    def dim(self) -> int:
        """Dimension of the vectors it gives: components."""
        return len(self.offsets)

    @classmethod
    def fit(cls, sample: Block, options: Mapping[str, Any]) -> Self:
        """Draw the frequencies. Raises MapError when the bandwidth is to come from a sample without any."""
        chosen = _checked(read_options(cls.kind, options, DEFAULTS))
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

    @classmethod
    def load(cls, spec: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]]) -> Self:
        """The map of `spec` and its arrays."""
        options = _checked(dict(spec["options"]))
        shape = (int(spec["dim_in"]), int(options["components"]))
        return cls(
            fitted_array(cls.kind, arrays, "frequencies", shape),
            fitted_array(cls.kind, arrays, "offsets", shape[1:]),
            bool(spec["sparse"]),
            options,
        )

    def transform(self, block: Block) -> DenseBlock:
        """Features in new arrays."""
        out = np.empty((len(block), self.dim), np.float32)
        if self.reads_sparse:
            rows = require_sparse(self.kind, block, self.dim_in).kernel_rows()
            fourier_sparse(rows, self.frequencies, self.offsets, out)
        else:
            values = require_dense(self.kind, block, self.dim_in).values
            fourier_dense(values, self.frequencies, self.offsets, out)
        return DenseBlock(out)

    def arrays(self) -> dict[str, NDArray[Any]]:
        """Frequencies and offsets."""
        return {"frequencies": self.frequencies, "offsets": self.offsets}

    def spec(self) -> dict[str, Any]:
        """Dimension, kind of the rows it reads, and options with the bandwidth found."""
        return {"dim_in": self.dim_in, "sparse": self.reads_sparse, "options": dict(self.options)}


def _checked(options: dict[str, Any]) -> dict[str, Any]:
    option_choice("rff", options, "kernel", ("gaussian", "exponential"))
    option_whole("rff", options, "components")
    option_whole("rff", options, "seed", least=0)
    option_number("rff", options, "sigma")
    option_number("rff", options, "bandwidth", positive=False)
    return options
