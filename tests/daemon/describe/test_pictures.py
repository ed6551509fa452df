"""Files as pixels: upright, of bounded size, or refused with the reason."""

from __future__ import annotations

import io
import os
import resource
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from PIL.PngImagePlugin import PngImageFile

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


def test_postscript_is_given_to_no_program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = tmp_path / "gs"
    program.write_text(f"#!/bin/sh\ntouch {tmp_path}/started\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    script = b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 100 100\n%%EndComments\nshowpage\n"
    with pytest.raises(UnusableObject, match="no picture of the formats JPEG, PNG"):
        decoded(script)
    assert not (tmp_path / "started").exists()


@pytest.mark.parametrize("form", ["JPEG", "PNG", "WEBP", "GIF", "BMP", "TIFF", "JPEG2000", "PPM"])
def test_the_formats_that_are_decoded(form: str) -> None:
    assert decoded(encoded(picture(7), form)).shape == (80, 96, 3)


@pytest.mark.parametrize(
    ("mode", "form", "fits"),
    [("L", "PNG", 1e8), ("RGB", "PNG", 4e8 / 7), ("I;16", "PNG", 8e7), ("RGB", "JPEG2000", 4e8 / 19)],
)
def test_what_a_picture_takes_is_bounded_before_it_is_decoded(
    monkeypatch: pytest.MonkeyPatch, mode: str, form: str, fits: float
) -> None:
    body = io.BytesIO()
    Image.new(mode, (100, 80)).save(body, form)
    assert decoded(body.getvalue()).shape == (80, 100, 3)
    scale = 8_000 / fits  # a bound so much lower for a picture so much smaller
    monkeypatch.setattr(pictures, "MOST_DECODED", round(pictures.MOST_DECODED * scale * 1.01))
    monkeypatch.setattr(pictures, "MOST_PIXELS", round(pictures.MOST_PIXELS * scale * 1.01))
    assert decoded(body.getvalue()).shape == (80, 100, 3)
    monkeypatch.setattr(pictures, "MOST_DECODED", round(pictures.MOST_DECODED * 0.98))
    monkeypatch.setattr(pictures, "MOST_PIXELS", round(pictures.MOST_PIXELS * 0.98))
    with pytest.raises(UnusableObject, match="100 x 80 pixels"):
        decoded(body.getvalue())


@pytest.mark.parametrize("turned", [False, True])
def test_what_is_too_large_is_refused_before_it_is_decoded(
    monkeypatch: pytest.MonkeyPatch, turned: bool
) -> None:
    """The EXIF of a PNG may be behind its pixels, which looking for it decodes."""
    said = Image.Exif()
    if turned:
        said[0x0112] = 6
    body = io.BytesIO()
    Image.new("RGBA", (100, 80)).save(body, "PNG", exif=said)
    loaded = []
    monkeypatch.setattr(PngImageFile, "load", lambda opened: loaded.append(opened.size))
    monkeypatch.setattr(pictures, "MOST_DECODED", 100 * 80 * (8 if turned else 7) - 1)
    with pytest.raises(UnusableObject, match="100 x 80 pixels"):
        decoded(body.getvalue())
    assert loaded == []


def test_a_jpeg_in_several_scans_is_bounded_by_its_whole_size(monkeypatch: pytest.MonkeyPatch) -> None:
    large = np.zeros((3_000, 4_000, 3), np.uint8)
    monkeypatch.setattr(pictures, "MOST_DECODED", 30_000_000)
    assert decoded(encoded(large, "JPEG")).shape == (375, 500, 3)
    with pytest.raises(UnusableObject, match="several scans"):
        decoded(encoded(large, "JPEG", progressive=True))
    monkeypatch.setattr(pictures, "MOST_SCANS", 5)
    with pytest.raises(UnusableObject, match="more than 5 scans"):
        decoded(encoded(picture(9), "JPEG", progressive=True))


def test_decoding_takes_no_copies_of_a_large_picture() -> None:
    body = encoded(np.zeros((5_000, 5_000), np.uint8))
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    assert decoded(body).shape == (500, 500, 3)
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 140_000  # 25 MB, and 75 of colors


@pytest.mark.parametrize("mode", ["1", "L", "P", "RGB", "RGBA", "LA", "I;16", "CMYK"])
def test_bands_give_what_the_whole_gives(mode: str, monkeypatch: pytest.MonkeyPatch) -> None:
    drawn = Image.fromarray(picture(10, 96, 150)).convert("L" if mode == "I;16" else mode)
    body = io.BytesIO()
    (drawn.convert("I;16") if mode == "I;16" else drawn).save(body, "TIFF" if mode == "CMYK" else "PNG")
    by_bands = decoded(body.getvalue())
    monkeypatch.setattr(pictures, "_BAND_ROWS", 1_000)
    np.testing.assert_array_equal(by_bands, decoded(body.getvalue()))
