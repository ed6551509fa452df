"""Visual terms: blocks as the paper has them, and words weighed by tf-idf."""

from __future__ import annotations

import numpy as np
import pytest

pytest.importorskip("cv2")
pytest.importorskip("skimage")

from skimage.feature import local_binary_pattern

from daemon.describe.blocks import LBP_BINS, describe_blocks, scales
from daemon.describe.codebooks import (
    Bag,
    TooFewVectors,
    fit_codebook,
    inverse_frequencies,
    nearest,
    weigh,
)
from daemon.describe.pictures import gray
from tests.daemon.describe.drawn import picture

PALETTE = np.random.default_rng(0).integers(0, 256, (20, 3)).astype(np.float32)


def test_scales_go_on_until_fewer_than_ten_blocks_fit() -> None:
    sizes = scales(320, 240)
    blocks = [((w - 64) // 32 + 1) * ((h - 64) // 32 + 1) for w, h in sizes]
    assert sizes[:2] == [(320, 240), (256, 192)]
    assert blocks == [54, 35, 15]
    w, h = (round(side / 1.25**3) for side in (320, 240))
    assert ((w - 64) // 32 + 1) * ((h - 64) // 32 + 1) < 10


def test_a_small_picture_has_the_blocks_of_its_own_scale() -> None:
    assert scales(64, 64) == [(64, 64)]
    assert describe_blocks(picture(0, 64, 64), PALETTE).shape == (1, LBP_BINS + len(PALETTE))


def test_a_block_is_the_shares_of_its_patterns_and_of_its_colours() -> None:
    """Block by block, pixel by pixel."""
    pixels = picture(1, 130, 101)
    patterns = local_binary_pattern(gray(pixels), 8, 2, method="nri_uniform").astype(int)
    found = describe_blocks(pixels, PALETTE)
    at = 0
    for top in range(0, 101 - 64 + 1, 32):
        for left in range(0, 130 - 64 + 1, 32):
            inside = slice(top, top + 64), slice(left, left + 64)
            expected = np.zeros(79)
            np.add.at(expected, patterns[inside].ravel(), 1 / 4096)
            away = ((pixels[inside].reshape(-1, 1, 3) - PALETTE[None].astype(float)) ** 2).sum(2)
            np.add.at(expected, 59 + away.argmin(1), 1 / 4096)
            np.testing.assert_allclose(found[at], expected, atol=1e-6)
            at += 1
    assert at == 6
    np.testing.assert_allclose(found.sum(axis=1), 2, rtol=1e-5)


def test_the_nearest_centre_is_the_nearest() -> None:
    draw = np.random.default_rng(1)
    vectors, centres = draw.normal(size=(5000, 7)), draw.normal(size=(30, 7)).astype(np.float32)
    away = ((vectors[:, None] - centres[None]) ** 2).sum(axis=2)
    np.testing.assert_array_equal(nearest(vectors, centres), away.argmin(axis=1))


@pytest.mark.parametrize("size", [3, 2500])
def test_a_codebook_finds_what_lies_together(size: int) -> None:
    """Both ways to begin: k-means++ of few centres, and drawn ones of many."""
    places = np.random.default_rng(2).permutation(size)[:, None] * np.array([[10.0, -10.0]])
    vectors = np.repeat(places, 4, axis=0) + np.tile([[0.1, 0], [-0.1, 0], [0, 0.1], [0, -0.1]], (size, 1))
    codebook = fit_codebook(vectors, size, seed=3)
    assert codebook.shape == (size, 2)
    np.testing.assert_array_equal(codebook, fit_codebook(vectors, size, seed=3))
    away = np.linalg.norm(vectors - codebook[nearest(vectors, codebook)], axis=1)
    if size == 3:
        assert away.max() < 0.2
    else:
        assert (
            away.mean() < 10
        )  # of places that are 14 apart: drawn ones leave some without a centre of their own


def test_fewer_vectors_than_centres_are_refused() -> None:
    with pytest.raises(TooFewVectors, match="2 different vectors for a codebook of 3"):
        fit_codebook(np.array([[0.0], [1.0], [1.0], [0.0]]), 3, seed=0)


def test_words_weigh_by_how_often_and_by_how_rarely() -> None:
    """p_i = f_i d_i / |f d|, d_i = -log(share of pictures with i)."""
    weights = inverse_frequencies(np.array([10, 5, 1, 0]), 10)
    np.testing.assert_allclose(weights, [0, np.log(2), np.log(10), np.log(10)], rtol=1e-6)
    found = weigh(Bag.of(np.array([0, 1, 1, 1, 2, 0])), weights)
    expected = np.array([3 * np.log(2), np.log(10)])
    np.testing.assert_array_equal(found.words, [1, 2])
    np.testing.assert_allclose(found.counts, expected / np.linalg.norm(expected), rtol=1e-6)


def test_words_that_all_have_leave_nothing() -> None:
    found = weigh(Bag.of(np.array([0, 0])), inverse_frequencies(np.array([4]), 4))
    assert len(found.words) == 0
