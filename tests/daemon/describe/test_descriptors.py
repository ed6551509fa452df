"""Descriptors of whole pictures and of points say what they should of pictures that are drawn for it."""

from __future__ import annotations

import numpy as np
import pytest

pytest.importorskip("cv2")
pytest.importorskip("skimage")

from daemon.describe import five, points, whole
from daemon.describe.pictures import Pixels, resized
from daemon.describe.views import FIVE, NINE, VIEWS
from tests.daemon.describe.drawn import picture

PLAIN = np.full((80, 96, 3), 128, np.uint8)


def grating(turn: float, period: float = 4.0) -> Pixels:
    """Stripes whose brightness rises and falls along a direction."""
    rows, columns = np.mgrid[:128, :128]
    wave = np.sin((columns * np.cos(turn) + rows * np.sin(turn)) * 2 * np.pi / period)
    return np.repeat((127 + 100 * wave)[:, :, None], 3, axis=2).astype(np.uint8)


@pytest.mark.parametrize("name", [name for name in NINE if not VIEWS[name].of])
def test_each_has_its_length_and_is_finite_also_of_a_plain_picture(name: str) -> None:
    for pixels in (picture(1), PLAIN, np.zeros((64, 64, 3), np.uint8)):
        found = getattr(whole, name)(pixels)
        assert found.shape == (VIEWS[name].dim,)
        assert found.dtype == np.float32
        assert np.isfinite(found).all()


def test_colours_are_counted_and_their_moments_told() -> None:
    found = whole.colour81(np.full((64, 64, 3), (255, 0, 0), np.uint8))
    assert found[8] == 1  # hue 0, the highest of three saturations and of three values
    assert found[:72].sum() == 1
    np.testing.assert_allclose(found[72:], [0, 1, 1, 0, 0, 0, 0, 0, 0], atol=1e-6)
    half = np.full((64, 64, 3), (0, 0, 0), np.uint8)
    half[:16] = 255
    mean, deviation, skew = whole.colour81(half)[[74, 77, 80]]
    np.testing.assert_allclose([mean, deviation], [0.25, np.sqrt(0.25 * 0.75)], rtol=1e-5)
    np.testing.assert_allclose(skew, np.cbrt(0.25 * 0.75**3 - 0.75 * 0.25**3), rtol=1e-5)


def test_edges_have_their_direction() -> None:
    upright = np.zeros((64, 64, 3), np.uint8)
    upright[:, 32:] = 255  # brighter to the right: 0 degrees
    found = whole.edges37(upright)
    assert found[0] == found[:36].sum() > 0
    assert found.sum() == pytest.approx(1)
    lying = np.zeros((64, 64, 3), np.uint8)
    lying[32:] = 255  # brighter downwards: 90 degrees
    found = whole.edges37(lying)
    assert found[9] == found[:36].sum() > 0
    assert whole.edges37(PLAIN)[36] == 1


@pytest.mark.parametrize(("describe", "filters"), [(whole.gabor120, 40), (whole.gist512, 32)])
@pytest.mark.parametrize("turn", [0, 2, 5])
def test_stripes_answer_the_filter_of_their_direction(describe: object, filters: int, turn: int) -> None:
    assert callable(describe)
    found = describe(grating(np.pi * turn / 8)).reshape(filters, -1)
    strength = found[:, 0] if filters == 40 else found.mean(axis=1)
    assert strength.argmax() % 8 == turn


def test_patterns_do_not_mind_the_light() -> None:
    """Of a picture without saturated pixels, brighter and with more contrast."""
    dim = (60 + picture(2) * 0.3).astype(np.uint8)
    np.testing.assert_array_equal(whole.lbp59(dim), whole.lbp59(dim + 40))


def test_points_are_where_something_is() -> None:
    pixels = np.full((128, 128, 3), 30, np.uint8)
    rows, columns = np.mgrid[:128, :128]
    pixels[(rows - 40) ** 2 + (columns - 90) ** 2 < 36] = 220
    places, found_scales = points.hessian_points(pixels[:, :, 0] / 255.0)
    assert np.abs(places[0] - (40, 90)).max() <= 2
    assert found_scales[0] > 1.2
    assert len(points.sift(pixels))


@pytest.mark.parametrize(("describe", "dim"), [(points.sift, 128), (points.surf, 64)])
def test_a_plain_picture_has_no_points(describe: object, dim: int) -> None:
    assert callable(describe)
    assert describe(PLAIN).shape == (0, dim)
    assert describe(picture(3))[:, 0].shape[0] > 5


def test_surf_describes_the_same_thing_elsewhere_and_in_other_light_alike() -> None:
    pixels = np.full((200, 200, 3), 100, np.uint8)
    thing = picture(4, 48, 48) // 3 + 60
    here, there = pixels.copy(), pixels.copy()
    here[40:88, 40:88] = thing
    there[100:148, 90:138] = thing
    one, moved = points.surf(here), points.surf(there)
    np.testing.assert_allclose(np.linalg.norm(one, axis=1), 1, rtol=1e-5)
    best = (one @ moved.T).max(axis=1)
    assert np.median(best) > 0.999
    brighter = points.surf((here * 1.3).astype(np.uint8))
    assert np.median((one @ brighter.T).max(axis=1)) > 0.98


def test_surf_sums_the_responses_of_each_cell() -> None:
    """Brightness that rises to the right alone: dx is the same everywhere, dy is none."""
    ramp = np.tile(np.linspace(0, 1, 200), (200, 1))
    (found,) = points._surf_at(ramp, np.array([[100, 100]]), np.array([2.0]))
    by_cell = found.reshape(4, 4, 4)
    assert (by_cell[:, :, 0] > 0).all()
    np.testing.assert_allclose(by_cell[:, :, 0], by_cell[:, :, 2], atol=1e-5)  # dx and |dx|
    np.testing.assert_allclose(by_cell[:, :, [1, 3]], 0, atol=1e-5)
    np.testing.assert_allclose(by_cell, by_cell[::-1, ::-1], atol=1e-5)


def test_the_five_have_the_lengths_that_the_table_of_views_says() -> None:
    square = resized(picture(5), five.SIDE, five.SIDE)
    mask = five.foreground(square)
    assert {name: len(view(square, mask)) for name, view in five.VIEWS.items()} == FIVE
