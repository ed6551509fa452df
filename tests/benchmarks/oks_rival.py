"""The rival of the OMKS step: NumPy, with each distinct object kept once and everything else kept ready.

As a careful notebook would have it: objects per view as contiguous float32, their squared norms, one product
per view for the distances of all three objects of an event, kernel values of distinct objects alone, whole
rows of them taken for the triplets, and the large arrays not allocated anew.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float32]


class NumpyOmks:
    """Kernels of V views of equal width: RBF with sigma 1/2, 1, 2 and unsquared distance, 0.5 cos + 0.5.

    objects: float32 [n, V, d]; triplets: int [T, 3] of rows of it; tau: float32 [T, 4 V], kernels of a view
    side by side. The triplets stay as they are: what is measured is a step over a full support set, whose
    taus are written over the oldest.
    """

    def __init__(
        self, objects: Floats, triplets: NDArray[np.int64], tau: Floats, gamma: float, C: float
    ) -> None:
        count, views, _ = objects.shape
        self.triplets, self.tau, self.C, self.oldest = triplets, tau, C, 0
        self.by_view = np.ascontiguousarray(objects.transpose(1, 0, 2))
        self.squares = np.einsum("vnd,vnd->vn", self.by_view, self.by_view)
        self.rates = np.float32(1) / np.float32(gamma) / np.array([0.25, 1.0, 4.0], np.float32)
        self.standing = np.zeros(4 * views)
        self._distance = np.empty((views, count, 3), np.float32)
        self._values = np.empty((3, count, views, 4), np.float32)
        self._taken = np.empty((3, len(triplets), 4 * views), np.float32)

    def step(self, q: Floats, c: Floats, s: Floats) -> float:
        """One event of three objects [V, d]; the largest tau."""
        given = np.stack([q, c, s], axis=2)
        own = np.einsum("vdi,vdi->vi", given, given)
        values = self._kernels(self.by_view, self.squares, given, own, self._distance, self._values)
        own_values = self._kernels(
            np.ascontiguousarray(given.transpose(0, 2, 1)), own, given, own,
            np.empty((len(q), 3, 3), np.float32), np.empty((3, 3, len(q), 4), np.float32),
        ).reshape(3, 3, -1)  # fmt: skip
        of_query = values[0].reshape(values.shape[1], -1)
        of_items = (values[1] - values[2]).reshape(values.shape[1], -1)
        queries, clicked, skipped = self._taken
        np.take(of_query, self.triplets[:, 0], axis=0, out=queries, mode="clip")
        np.take(of_items, self.triplets[:, 1], axis=0, out=clicked, mode="clip")
        np.take(of_items, self.triplets[:, 2], axis=0, out=skipped, mode="clip")
        np.subtract(clicked, skipped, out=clicked)
        np.multiply(queries, self.tau, out=queries)
        margins = np.einsum("lk,lk->k", queries, clicked) + own_values[0, 1] - own_values[0, 2]
        norms = own_values[0, 0] * (own_values[1, 1] - 2 * own_values[1, 2] + own_values[2, 2])
        tau = np.minimum(self.C, np.maximum(0, 1 - margins) / norms)
        self.tau[self.oldest] = tau
        self.oldest = (self.oldest + 1) % len(self.tau)
        self.standing += np.log(0.99) * (margins <= 0)
        return float(tau.max())

    def _kernels(
        self, objects: Floats, squares: Floats, given: Floats, own: Floats, distance: Floats, out: Floats
    ) -> Floats:
        """Values [given, object, view, kernel]."""
        np.matmul(objects, given, out=distance)
        lengths = np.sqrt(squares[:, :, None] * own[:, None, :])
        out[..., 3] = (0.5 * distance / lengths + 0.5).transpose(2, 1, 0)
        distance *= -2
        distance += squares[:, :, None]
        distance += own[:, None, :]
        np.sqrt(np.maximum(distance, 0, out=distance), out=distance)
        for number, rate in enumerate(self.rates):
            out[..., number] = np.exp(distance * -rate).transpose(2, 1, 0)
        return out
