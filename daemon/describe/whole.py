"""Descriptors of a whole picture: the five global ones of OMKS (TPAMI 2014, section 6.1), which the paper
names with their dimensions. How each fills them is said here where the paper does not say it.
"""

from __future__ import annotations

from functools import cache

import numpy as np
import numpy.typing as npt

from daemon.describe.blocks import LBP_BINS, uniform_patterns
from daemon.describe.codebooks import Floats
from daemon.describe.pictures import Pixels, gray, resized

_SIDE = 128
"""Pixels of the square that filters see."""
_MARGIN = 32
"""By which it is mirrored on each side, so that filters meet no edge."""
_CANNY = (100, 200)
_DIRECTIONS = 36
_ORIENTATIONS = 8
_GABOR_FREQUENCIES = (0.35, 0.25, 0.177, 0.125, 0.088)  # cycles per pixel, half an octave apart
_GIST_FREQUENCIES = (0.25, 0.125, 0.0625, 0.03125)  # an octave apart
_GRID = 4


def colour81(pixels: Pixels) -> Floats:
    """Colour histogram and moments: 72 shares of hue, saturation and value (8 x 3 x 3), then of each of the
    three its mean, standard deviation and the cube root of its third central moment (Stricker and Orengo,
    1995).

    float32 [81], from 0 to 1 but for the last.
    """
    import cv2

    hsv = cv2.cvtColor(pixels, cv2.COLOR_RGB2HSV)
    counts = cv2.calcHist([hsv], [0, 1, 2], None, [8, 3, 3], [0, 180, 0, 256, 0, 256]).ravel()
    channels = hsv.reshape(-1, 3).T.astype(np.float32) / np.array([[180.0], [255.0], [255.0]], np.float32)
    return np.concatenate([counts / counts.sum(), _moments(channels).T.ravel()]).astype(np.float32)


def edges37(pixels: Pixels) -> Floats:
    """Edge direction histogram (Jain and Vailaya, 1996): of the pixels on edges of Canny's detector the
    shares of 36 directions of the gradient, 10 degrees each, then the share of pixels on no edge. float32
    [37]; sum 1."""
    import cv2

    brightness = gray(pixels)
    edge = cv2.Canny(brightness, *_CANNY) > 0
    dx = cv2.Sobel(brightness, cv2.CV_32F, 1, 0)[edge]
    dy = cv2.Sobel(brightness, cv2.CV_32F, 0, 1)[edge]
    turns = np.arctan2(dy, dx) / (2 * np.pi) % 1.0
    bins = np.minimum((turns * _DIRECTIONS).astype(np.int64), _DIRECTIONS - 1)
    counts = np.append(np.bincount(bins, minlength=_DIRECTIONS), edge.size - len(bins))
    return np.asarray(counts / edge.size, np.float32)


def lbp59(pixels: Pixels) -> Floats:
    """Shares of the uniform local binary patterns LBP(8, 1) in the picture. float32 [59]; sum 1."""
    counts = np.bincount(uniform_patterns(gray(pixels), 1).ravel(), minlength=LBP_BINS)
    return np.asarray(counts / counts.sum(), np.float32)


def gabor120(pixels: Pixels) -> Floats:
    """Gabor wavelets at 5 scales and 8 orientations: of the magnitudes of each the mean, standard deviation
    and the cube root of the third central moment. float32 [120]."""
    found = _magnitudes(_square(pixels), _GABOR_FREQUENCIES).reshape(-1, _SIDE * _SIDE)
    return _moments(found).astype(np.float32).ravel()


def gist512(pixels: Pixels) -> Floats:
    """GIST (Oliva and Torralba, IJCV 42, 2001): mean magnitudes of Gabor filters at 4 scales and 8
    orientations in the cells of a 4 x 4 grid, after local contrast is evened out. float32 [512]."""
    found = _magnitudes(_even_contrast(_square(pixels)), _GIST_FREQUENCIES)
    cell = _SIDE // _GRID
    cells = found.reshape(-1, _GRID, cell, _GRID, cell).mean(axis=(2, 4))
    return np.asarray(cells.ravel(), np.float32)


def _moments(rows: Floats) -> npt.NDArray[np.float64]:
    """Of each row its mean, standard deviation and cube root of the third central moment, [rows, 3]."""
    mean = rows.mean(axis=1, dtype=np.float64)
    away = rows - mean[:, None].astype(np.float32)
    square = away * away
    second, third = square.mean(axis=1, dtype=np.float64), (square * away).mean(axis=1, dtype=np.float64)
    return np.stack([mean, np.sqrt(second), np.cbrt(third)], axis=1)


def _square(pixels: Pixels) -> npt.NDArray[np.float64]:
    """Brightness from 0 to 1, squashed to a square, with its margin."""
    small = gray(resized(pixels, _SIDE, _SIDE)).astype(np.float64) / 255.0
    return np.pad(small, _MARGIN, mode="symmetric")


def _even_contrast(brightness: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """What is finer than a few cycles a picture, over its local deviation; GIST's prefilter."""
    import cv2

    def blurred(values: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
        smooth = cv2.GaussianBlur(values, (0, 0), 8.0, borderType=cv2.BORDER_REFLECT)
        return np.asarray(smooth, np.float64)

    fine = np.log1p(255.0 * brightness)
    fine = fine - blurred(fine)
    return fine / (0.2 + np.sqrt(blurred(fine**2)))


def _magnitudes(brightness: npt.NDArray[np.float64], frequencies: tuple[float, ...]) -> Floats:
    """Of each filter, by frequency and orientation, the magnitudes of its answers inside of the margin,
    float32 [filters, SIDE, SIDE]."""
    from scipy import fft

    spectrum = fft.fft2(brightness.astype(np.complex64))
    answers = np.abs(fft.ifft2(_bank(frequencies) * spectrum, axes=(1, 2)))
    return np.asarray(answers[:, _MARGIN:-_MARGIN, _MARGIN:-_MARGIN], np.float32)


@cache
def _bank(frequencies: tuple[float, ...]) -> npt.NDArray[np.complex64]:
    """Spectra of the Gabor filters, each without an answer to plain brightness."""
    from skimage.filters import gabor_kernel

    side = _SIDE + 2 * _MARGIN
    bank = np.empty((len(frequencies) * _ORIENTATIONS, side, side), np.complex64)
    for place in range(len(bank)):
        frequency, turn = frequencies[place // _ORIENTATIONS], place % _ORIENTATIONS
        kernel = gabor_kernel(frequency, theta=np.pi * turn / _ORIENTATIONS, bandwidth=1.0)
        bank[place] = _spectrum(kernel, side)
    return bank


def _spectrum(kernel: npt.NDArray[np.complex128], side: int) -> npt.NDArray[np.complex128]:
    cuts = [max(0, (length - side + 1) // 2) for length in kernel.shape]
    kept = kernel[cuts[0] : kernel.shape[0] - cuts[0], cuts[1] : kernel.shape[1] - cuts[1]]
    placed = np.zeros((side, side), np.complex128)
    placed[: kept.shape[0], : kept.shape[1]] = kept
    placed = np.roll(placed, (-(kept.shape[0] // 2), -(kept.shape[1] // 2)), axis=(0, 1))
    found = np.fft.fft2(placed)
    found[0, 0] = 0.0
    return found
