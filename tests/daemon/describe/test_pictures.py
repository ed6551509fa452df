"""Files as pixels: upright, of bounded size, or refused with the reason."""

from __future__ import annotations

import io

import numpy as np
import pytest
from PIL import Image

pytest.importorskip("cv2")

from daemon.describe import pictures
from daemon.describe.pictures import UnusableObject, decoded
from tests.daemon.describe.drawn import encoded, picture


def test_a_picture_is_as_it_was_drawn() -> None:
    drawn = picture(1)
    np.testing.assert_array_equal(decoded(encoded(drawn)), drawn)


def test_a_photo_that_a_camera_turned_is_upright() -> None:
    drawn = picture(2)
    said = Image.Exif()
    said[0x0112] = 6  # to be turned by 90 degrees
    out = io.BytesIO()
    Image.fromarray(drawn).save(out, "PNG", exif=said)
    np.testing.assert_array_equal(decoded(out.getvalue()), np.rot90(drawn, -1))


def test_what_is_transparent_is_white() -> None:
    drawn = np.dstack([picture(3), np.zeros((80, 96), np.uint8)])
    assert (decoded(encoded(drawn)) == 255).all()


def test_brightness_of_sixteen_bits_is_kept() -> None:
    deep = (np.arange(80 * 96, dtype=np.uint16).reshape(80, 96) * 8) % 65_535
    found = decoded(encoded(deep))
    assert np.abs(found[:, :, 0].astype(int) - deep // 257).max() <= 1


@pytest.mark.parametrize(
    ("width", "height", "expected"),
    [(1000, 500, (250, 500)), (96, 80, (80, 96)), (20, 10, (64, 64)), (2000, 20, (64, 500))],
)
def test_sides_are_between_their_bounds(width: int, height: int, expected: tuple[int, int]) -> None:
    assert decoded(encoded(picture(4, width, height))).shape[:2] == expected


def test_a_file_that_is_cut_short_is_refused() -> None:
    whole = encoded(picture(5), "JPEG")
    with pytest.raises(UnusableObject, match="truncated"):
        decoded(whole[: len(whole) // 2])


@pytest.mark.parametrize("body", [b"", b"hello", b"\x89PNG\r\n\x1a\n" + b"x" * 50])
def test_what_is_no_picture_is_refused(body: bytes) -> None:
    with pytest.raises(UnusableObject):
        decoded(body)


def test_more_pixels_than_memory_is_kept_for_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pictures, "MOST_PIXELS", 5000)
    with pytest.raises(UnusableObject, match="96 x 80 pixels"):
        decoded(encoded(picture(6)))
