"""Local descriptors at interest points, SIFT and SURF, of which bags of visual words are made (OMKS, TPAMI
2014, section 6.1).

The paper takes both at regions of a Hessian-Affine detector. Here SIFT is OpenCV's, at its own maxima of
differences of Gaussians. No library that is well kept has SURF: its detector, the determinant of the Hessian
by box filters, is scikit-image's, and its descriptor is computed below, upright (U-SURF).
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from daemon.describe.codebooks import Floats
from daemon.describe.pictures import Pixels, gray

MOST_POINTS = 500
"""Of a picture, the strongest."""
SIFT_DIM = 128
SURF_DIM = 64

_SIGMAS = (3.0, 4.3, 6.0, 8.6, 12.0)
"""Of the box filters, of 9 to 36 pixels: SURF's first filter is 9 wide at its scale 1.2, so scale = 0.4
sigma."""
_SCALE_OF_SIGMA = 0.4
_LEAST_DETERMINANT = 5e-4
"""Of brightness from 0 to 1, as box filters are scaled here; flat pictures have no points."""
_CELLS, _SAMPLES = 4, 5
"""SURF's window: 4 x 4 cells of 5 x 5 samples, a scale apart."""


def sift(pixels: Pixels) -> Floats:
    """SIFT descriptors (Lowe, IJCV 60, 2004) of up to `MOST_POINTS` points, float32 [n, 128]; n may be 0."""
    import cv2

    sift_of: Any = cv2  # whose types leave SIFT out
    _, found = sift_of.SIFT_create(nfeatures=MOST_POINTS).detectAndCompute(gray(pixels), None)
    if found is None:
        return np.zeros((0, SIFT_DIM), np.float32)
    return np.asarray(found[:MOST_POINTS], np.float32)


def surf(pixels: Pixels) -> Floats:
    """Upright SURF descriptors (Bay et al., CVIU 110, 2008) of up to `MOST_POINTS` points, float32 [n,
    64]."""
    brightness = gray(pixels).astype(np.float64) / 255.0
    return _surf_at(brightness, *hessian_points(brightness))


def hessian_points(
    brightness: npt.NDArray[np.float64],
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.float64]]:
    """Where the determinant of the Hessian is largest in place and scale: int64 [n, 2] rows and columns, the
    strongest first, and their scales, float64 [n]."""
    from skimage.feature import hessian_matrix_det, peak_local_max

    # Box filters that reach beyond the picture would take its border for an edge.
    size, reach = brightness.shape, round(2 * _SIGMAS[-1]) + 4
    padded = np.pad(brightness, reach, mode="edge")
    inside = slice(reach, reach + size[0]), slice(reach, reach + size[1])
    cube = np.stack([hessian_matrix_det(padded, sigma)[inside] for sigma in _SIGMAS])
    peaks = peak_local_max(
        cube, min_distance=2, threshold_abs=_LEAST_DETERMINANT, num_peaks=MOST_POINTS, exclude_border=False
    )
    return peaks[:, 1:].astype(np.int64), np.asarray(_SIGMAS)[peaks[:, 0]] * _SCALE_OF_SIGMA


def _surf_at(
    brightness: npt.NDArray[np.float64], places: npt.NDArray[np.int64], found_scales: npt.NDArray[np.float64]
) -> Floats:
    """Of each cell of the window the sums of dx, dy, |dx| and |dy|, weighed by a Gaussian of 3.3 scales
    around the point; unit length. dx, dy: responses of Haar wavelets 2 scales wide. Outside, the border goes
    on."""
    if not len(places):
        return np.zeros((0, SURF_DIM), np.float32)
    width = _CELLS * _SAMPLES
    steps = np.arange(width) - (width - 1) / 2
    reach = round(float(found_scales.max()) * (width / 2 + 2)) + 2
    padded = np.pad(brightness, reach, mode="edge")
    sums = np.pad(padded.cumsum(0).cumsum(1), ((1, 0), (1, 0)))
    scale = found_scales[:, None, None]
    rows = np.rint(places[:, 0, None, None] + steps[None, :, None] * scale).astype(np.int64) + reach
    columns = np.rint(places[:, 1, None, None] + steps[None, None, :] * scale).astype(np.int64) + reach
    half = np.maximum(1, np.rint(scale)).astype(np.int64)

    def box(top: npt.NDArray[np.int64], left: npt.NDArray[np.int64], down: int, across: int) -> Floats:
        """Sums over boxes of `down` x `across` halves, which begin here."""
        bottom, right = top + down * half, left + across * half
        total = sums[bottom, right] - sums[top, right] - sums[bottom, left] + sums[top, left]
        return np.asarray(total / half**2, np.float32)

    top, left = rows - half, columns - half
    dx = box(top, left + half, 2, 1) - box(top, left, 2, 1)
    dy = box(top + half, left, 1, 2) - box(top, left, 1, 2)
    weight = np.exp(-(steps[:, None] ** 2 + steps[None, :] ** 2) / (2 * 3.3**2)).astype(np.float32)
    dx, dy = dx * weight, dy * weight
    cells = (len(places), _CELLS, _SAMPLES, _CELLS, _SAMPLES)
    parts = [one.reshape(cells).sum(axis=(2, 4)) for one in (dx, dy, np.abs(dx), np.abs(dy))]
    vectors = np.stack(parts, axis=-1).reshape(len(places), SURF_DIM)
    lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
    return np.asarray(vectors / np.maximum(lengths, 1e-12), np.float32)
