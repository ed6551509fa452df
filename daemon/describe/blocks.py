"""Blocks of a picture at several scales, each as edges and colours (OASIS, JMLR 2010, section 3)."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from daemon.describe.codebooks import Floats, nearest
from daemon.describe.pictures import Pixels, gray, resized

BLOCK = 64
STRIDE = 32
FACTOR = 1.25
LEAST_BLOCKS = 10
"""A scale with fewer blocks ends the series."""
PALETTE = 20
LBP_BINS = 59
"""Uniform patterns of 8 neighbours, not rotated onto each other: 58, and one for all others."""


def scales(width: int, height: int) -> list[tuple[int, int]]:
    """(width, height) of the picture at scales 1, 1/1.25, 1/1.25^2, ... as long as `LEAST_BLOCKS` blocks fit.

    The first scale counts even where fewer fit, so that small pictures have some.
    """
    found: list[tuple[int, int]] = []
    while True:
        scale = FACTOR ** -len(found)
        size = round(width * scale), round(height * scale)
        across, down = (max(0, (length - BLOCK) // STRIDE + 1) for length in size)
        if found and across * down < LEAST_BLOCKS:
            return found
        found.append(size)


def describe_blocks(pixels: Pixels, palette: Floats) -> Floats:
    """Of each block its 59 shares of uniform patterns LBP(8, 2) and its 20 shares of colours, float32 [n,
    79].

    pixels: of at least 64 x 64. palette: float32 [20, 3], red, green and blue from 0 to 255. Blocks of 64 x
    64 pixels, 32 apart, by scales, rows and columns. What lies right or below of the last whole block counts
    for nothing.
    """
    height, width = pixels.shape[:2]
    found = []
    for size in scales(width, height):
        scaled = resized(pixels, *size)
        patterns = _histograms(uniform_patterns(gray(scaled), 2), LBP_BINS)
        colours = nearest(scaled.reshape(-1, 3), palette).reshape(scaled.shape[:2])
        found.append(np.concatenate([patterns, _histograms(colours, len(palette))], axis=1))
    return np.concatenate(found)


def uniform_patterns(brightness: Pixels, radius: int) -> npt.NDArray[np.int64]:
    """Of each pixel its uniform local binary pattern of 8 neighbours, 0 .. 58 (Ojala et al., PAMI 24,
    2002)."""
    from skimage.feature import local_binary_pattern

    return np.asarray(local_binary_pattern(brightness, 8, radius, method="nri_uniform"), np.int64)


def _histograms(labels: npt.NDArray[np.int64], bins: int) -> Floats:
    """Shares of each label in each block, float32 [blocks, bins].

    A block is four cells of 32 x 32 pixels, which are counted once and added up.
    """
    down, across = labels.shape[0] // STRIDE, labels.shape[1] // STRIDE
    inside = labels[: down * STRIDE, : across * STRIDE]
    cells = np.arange(down)[:, None] * across + np.arange(across)
    cell_of = np.repeat(np.repeat(cells, STRIDE, axis=0), STRIDE, axis=1)
    counted = np.bincount((cell_of * bins + inside).ravel(), minlength=down * across * bins)
    grid = counted.reshape(down, across, bins)
    blocks = grid[:-1, :-1] + grid[1:, :-1] + grid[:-1, 1:] + grid[1:, 1:]
    return np.asarray(blocks.reshape(-1, bins) / np.float32(BLOCK * BLOCK), np.float32)
