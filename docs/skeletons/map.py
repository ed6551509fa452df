"""A map to copy: x -> tanh(x / width), dense; the width is the mean size of a number in the sample.

A map is fitted once and frozen. It keeps a zero row zero (that view is missing), gives a row the same bits
in every batch, and passes NaN on. To offer it in a configuration: a name in `KINDS`
(learners/maps/space.py) and its keys in daemon/config.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from learners import Block, DenseBlock
from learners.maps.base import fitted_array, option_number, read_options, require_dense, require_sample


@dataclass(frozen=True, slots=True, eq=False)
class TanhMap:
    """x -> tanh(x / (scale width)). Options: scale, > 0 (1). width: float32 [1]. Dense in, dense out."""

    kind: ClassVar[str] = "tanh"
    sparse: ClassVar[bool] = False
    dim_in: int
    scale: float
    width: NDArray[np.float32]

    @property
    def dim(self) -> int:
        """Dimension of the vectors it gives."""
        return self.dim_in

    @classmethod
    def fit(cls, sample: Block, options: Mapping[str, Any]) -> Self:
        """Measure the sample. Raises MapError on an unknown option or an unfit sample."""
        scale = option_number(cls.kind, read_options(cls.kind, options, {"scale": 1.0}), "scale")
        rows = require_sample(cls.kind, require_dense(cls.kind, sample))
        return cls(sample.dim, scale, np.array([np.abs(rows).mean()], np.float32))

    @classmethod
    def load(cls, spec: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]]) -> Self:
        """The map of `spec` and `arrays`. Raises MapError."""
        return cls(int(spec["dim_in"]), float(spec["scale"]), fitted_array(cls.kind, arrays, "width", (1,)))

    def transform(self, block: Block) -> DenseBlock:
        """Mapped rows in new arrays. Raises MapError on other rows than it was fitted on."""
        values = require_dense(self.kind, block, self.dim_in).values
        return DenseBlock(np.tanh(values / (np.float32(self.scale) * self.width)))

    def arrays(self) -> dict[str, NDArray[Any]]:
        """What was fitted."""
        return {"width": self.width}

    def spec(self) -> dict[str, Any]:
        """What `load` needs besides the arrays."""
        return {"dim_in": self.dim_in, "scale": self.scale}
