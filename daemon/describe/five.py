"""The five descriptors of the demo's photos: shape, silhouette, colour, texture and gist.

Every view takes one photo squashed to `SIDE` x `SIDE` pixels (uint8 RGB) and its `foreground`. Vectors are
raw (not standardised, not whitened): scaling belongs to the map that a learner fits and freezes. The bytes of
the demo's pack are made with these functions, and do not change.
"""

from __future__ import annotations

from collections.abc import Callable

import cv2
import numpy as np
from skimage.feature import hog

from daemon.describe.blocks import LBP_BINS, uniform_patterns
from daemon.describe.codebooks import Floats
from daemon.describe.pictures import Pixels, gray

SIDE = 128
_GABOR_WAVELENGTHS = (4.0, 8.0, 16.0)  # pixels at SIDE = 128: thread, fold, sleeve
_GABOR_ORIENTATIONS = 4


def foreground(image: Pixels) -> Floats:
    """Foreground mask in {0, 1}, float32 [SIDE, SIDE], by GrabCut from a border-is-background start.

    Rother, Kolmogorov and Blake, SIGGRAPH 2004. A mask that covers less than 3 % of the photo is a failed cut
    and is replaced by the central ellipse, where these photos hold their object.
    """
    mask = np.full((SIDE, SIDE), cv2.GC_PR_BGD, dtype=np.uint8)
    ellipse = np.zeros((SIDE, SIDE), dtype=np.uint8)
    cv2.ellipse(ellipse, (SIDE // 2, SIDE // 2), (SIDE * 2 // 5, SIDE * 2 // 5), 0, 0, 360, 1, -1)
    mask[ellipse == 1] = cv2.GC_PR_FGD
    edge = SIDE // 32
    mask[:edge], mask[-edge:], mask[:, :edge], mask[:, -edge:] = (cv2.GC_BGD,) * 4
    cv2.setRNGSeed(0)
    models = np.zeros((1, 65)), np.zeros((1, 65))
    cv2.grabCut(image, mask, None, models[0], models[1], 3, cv2.GC_INIT_WITH_MASK)
    cut = (mask == cv2.GC_FGD) | (mask == cv2.GC_PR_FGD)
    return np.asarray(cut if cut.mean() >= 0.03 else ellipse == 1, dtype=np.float32)


def shape(image: Pixels, mask: Floats) -> Floats:
    """Histogram of oriented gradients of the gray photo: 6 x 6 cells of 9 orientations, float32 [324]."""
    del mask
    small = cv2.resize(gray(image), (48, 48), interpolation=cv2.INTER_AREA)
    return _hog(small)


def silhouette(image: Pixels, mask: Floats) -> Floats:
    """The object's outline: 12 x 12 mask coverage and 4 x 4 cells of mask gradients, float32 [288]."""
    del image
    coverage = cv2.resize(mask, (12, 12), interpolation=cv2.INTER_AREA).ravel()
    outline = cv2.resize(cv2.GaussianBlur(mask, (5, 5), 0), (32, 32), interpolation=cv2.INTER_AREA)
    return np.concatenate([coverage, _hog((outline * 255).astype(np.uint8))]).astype(np.float32)


def colour(image: Pixels, mask: Floats) -> Floats:
    """Square-rooted HSV histograms (8 x 3 x 3 bins) of the object and of its surroundings, float32 [144]."""
    hsv = cv2.cvtColor(image, cv2.COLOR_RGB2HSV)
    bins = [8, 3, 3]
    limits = [0, 180, 0, 256, 0, 256]
    parts = []
    for region in (mask > 0.5, mask <= 0.5):
        counts = cv2.calcHist([hsv], [0, 1, 2], region.astype(np.uint8), bins, limits).ravel()
        parts.append(np.sqrt(counts / max(float(counts.sum()), 1.0)))
    return np.concatenate(parts).astype(np.float32)


def texture(image: Pixels, mask: Floats) -> Floats:
    """Uniform LBP histograms, (8, 1) on a 2 x 2 grid and (8, 2) on the object; square roots, float32 [295].

    Ojala, Pietikainen and Maenpaa, PAMI 24 (2002).
    """
    fine, coarse = (uniform_patterns(gray(image), radius) for radius in (1, 2))
    half = SIDE // 2
    corners = [(slice(y, y + half), slice(x, x + half)) for y in (0, half) for x in (0, half)]
    regions = [fine[corner].ravel() for corner in corners] + [coarse[mask > 0.5]]
    counts = [np.bincount(region, minlength=LBP_BINS) for region in regions]
    return np.concatenate([np.sqrt(c / max(int(c.sum()), 1)) for c in counts]).astype(np.float32)


def gist(image: Pixels, mask: Floats) -> Floats:
    """Mean Gabor energy per cell of a 4 x 4 grid, 3 wavelengths x 4 orientations, float32 [192].

    Oliva and Torralba, IJCV 42 (2001), without their prefilter.
    """
    del mask
    brightness = gray(image).astype(np.float32) / 255.0
    cells = []
    for wavelength in _GABOR_WAVELENGTHS:
        for step in range(_GABOR_ORIENTATIONS):
            theta = np.pi * step / _GABOR_ORIENTATIONS
            energy = np.zeros_like(brightness)
            for phase in (0.0, np.pi / 2):
                kernel = cv2.getGaborKernel((31, 31), wavelength * 0.5, theta, wavelength, 0.8, phase)
                energy += cv2.filter2D(brightness, cv2.CV_32F, kernel - kernel.mean()) ** 2
            cells.append(cv2.resize(np.sqrt(energy), (4, 4), interpolation=cv2.INTER_AREA).ravel())
    return np.concatenate(cells).astype(np.float32)


def _hog(brightness: Pixels) -> Floats:
    """One 9-orientation histogram per cell of 8 x 8 pixels, each block of one cell normalised on its own."""
    vector = hog(
        brightness,
        orientations=9,
        pixels_per_cell=(8, 8),
        cells_per_block=(2, 2),
        block_norm="L2-Hys",
        feature_vector=False,
    )
    rows, columns = vector.shape[:2]
    # A cell appears in up to four overlapping blocks; the mean of its appearances keeps their contrast
    # normalisation at a quarter of the size.
    total = np.zeros((rows + 1, columns + 1, 9))
    seen = np.zeros((rows + 1, columns + 1, 1))
    for dy in (0, 1):
        for dx in (0, 1):
            total[dy : dy + rows, dx : dx + columns] += vector[:, :, dy, dx]
            seen[dy : dy + rows, dx : dx + columns] += 1
    return np.asarray(total / seen, dtype=np.float32).ravel()


VIEWS: dict[str, Callable[[Pixels, Floats], Floats]] = {
    "shape": shape,
    "silhouette": silhouette,
    "colour": colour,
    "texture": texture,
    "gist": gist,
}
