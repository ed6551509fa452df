"""An encoded picture as pixels, of bounded size whatever it was."""

from __future__ import annotations

import io
import warnings
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

if TYPE_CHECKING:
    from PIL.Image import Image
    from PIL.ImageFile import ImageFile

Pixels = npt.NDArray[np.uint8]
"""uint8 [height, width, 3], red, green, blue."""

LONGEST = 500
"""Pixels of the longer side that are kept (OMKS, section 6.1: photos of 500 x 500 with their proportions)."""
SHORTEST = 64
"""Pixels of a side at least: one block of the visual terms."""
MOST_DECODED = 400_000_000
"""Bytes that a picture takes while it is decoded: of each pixel those of its mode, what the format's library
needs besides, and three of the result. So 57 million pixels of a PNG in colors, 100 million of a gray one."""
MOST_PIXELS = 100_000_000
"""However little memory each takes: to inflate and convert them takes a second or two."""
MOST_BYTES = 256 << 20
MOST_SCANS = 100
"""Of a JPEG: each goes over all of the picture. Encoders make ten or so."""

FORMATS = ("JPEG", "PNG", "WEBP", "GIF", "BMP", "TIFF", "JPEG2000", "PPM")
"""What is decoded: Pillow knows more, and hands PostScript to a program of the system."""

_NATIVE = {"1": 1, "L": 1, "P": 1, "I;16": 2, "I;16L": 2, "I;16B": 2, "I;16N": 2}
"""Bytes of a pixel by its mode; of others four."""
_OF_CODEC = {"WEBP": 12, "JPEG2000": 12}
"""Bytes of a pixel that libraries need besides: three canvases; a whole number for each color."""
_BAND_ROWS = 64
_ORIENTATION = 0x0112
"""The field of EXIF that says how the camera was held; to turn a picture takes a copy."""


class UnusableObject(Exception):
    """An object without a picture or text that can be used; the message says why."""


def decoded(encoded: bytes, longest: int = LONGEST) -> Pixels:
    """The picture upright, its longer side brought to at most `longest` pixels, its sides to at least
    `SHORTEST`.

    Proportions are kept but for a shorter side that would come below `SHORTEST`, which is then that long.
    Transparency is white; of an animation the first frame counts. Raises UnusableObject.
    """
    from PIL import Image, ImageOps, UnidentifiedImageError

    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of sizes, which are looked at below, and of odd metadata
            with Image.open(io.BytesIO(encoded), formats=FORMATS) as opened:
                _check_scans(opened, encoded)
                opened.draft("RGB", (2 * longest, 2 * longest))
                _check_size(opened)
                opened.load()
                ImageOps.exif_transpose(opened, in_place=True)
                return _fitted(_opaque(opened), longest)
    except (UnusableObject, MemoryError):
        raise
    except UnidentifiedImageError:
        raise UnusableObject(f"no picture of the formats {', '.join(FORMATS)}") from None
    except Exception as error:  # noqa: BLE001  decoders raise whatever their format's code ran into
        raise UnusableObject(str(error)[:200] or type(error).__name__) from None


def _check_size(opened: ImageFile) -> None:
    """Raise UnusableObject where decoding or turning it would take too much, before either is done."""
    pixels, native = opened.width * opened.height, _NATIVE.get(opened.mode, 4)
    for copies in (1, 2):  # to be turned it needs the second, and a PNG is decoded to find out whether it is
        needed = pixels * (copies * native + _OF_CODEC.get(opened.format or "", 0) + 3)
        if pixels > MOST_PIXELS or needed > MOST_DECODED:
            size = f"{opened.width:,} x {opened.height:,} pixels of {opened.format} ({opened.mode})"
            bounds = f"{MOST_DECODED:,} bytes or are more than {MOST_PIXELS:,}"
            raise UnusableObject(f"{size} take more than {bounds}")
        if opened.getexif().get(_ORIENTATION, 1) == 1:
            return


def _check_scans(opened: ImageFile, encoded: bytes) -> None:
    """The same for a JPEG in several scans: all its coefficients are kept, two bytes each, at full size."""
    if opened.format not in ("JPEG", "MPO"):
        return
    layers = getattr(opened, "layers", 3)
    if "progression" not in opened.info and _colors_of_first_scan(encoded) == layers:
        return
    if encoded.count(b"\xff\xda") > MOST_SCANS:
        raise UnusableObject(f"its JPEG has more than {MOST_SCANS} scans")
    if 2 * layers * opened.width * opened.height > MOST_DECODED:
        size = f"{opened.width:,} x {opened.height:,} pixels in several scans"
        raise UnusableObject(f"{size} take more than {MOST_DECODED:,} bytes")


def _colors_of_first_scan(encoded: bytes) -> int:
    """How many colors the first scan of a JPEG holds; 0 where it has none."""
    at = 2
    while encoded[at : at + 1] == b"\xff":
        if encoded[at + 1 : at + 2] == b"\xda":
            return encoded[at + 4] if len(encoded) > at + 4 else 0
        at += 2 + int.from_bytes(encoded[at + 2 : at + 4])
    return 0


def _opaque(picture: Image) -> Pixels:
    """In red, green and blue, over white; a band at a time, since each step takes a copy."""
    pixels = np.empty((picture.height, picture.width, 3), np.uint8)
    for top in range(0, picture.height, _BAND_ROWS):
        bottom = min(top + _BAND_ROWS, picture.height)
        band = picture.crop((0, top, picture.width, bottom))
        band.info = picture.info
        pixels[top:bottom] = np.asarray(_opaque_band(band), np.uint8)
    return pixels


def _opaque_band(picture: Image) -> Image:
    from PIL import Image

    if picture.mode.startswith("I;16") or picture.mode in ("I", "F"):
        values = np.asarray(picture, np.float64)
        if picture.mode != "F":
            values /= 257  # of 16 bits
        return Image.fromarray(np.clip(values, 0, 255).astype(np.uint8)).convert("RGB")
    if picture.mode in ("RGBA", "LA", "PA", "RGBa", "La") or "transparency" in picture.info:
        shown = picture.convert("RGBA")
        white = Image.new("RGBA", shown.size, (255, 255, 255, 255))
        return Image.alpha_composite(white, shown).convert("RGB")
    return picture.convert("RGB")


def _fitted(pixels: Pixels, longest: int) -> Pixels:
    height, width = pixels.shape[:2]
    scale = min(1.0, longest / max(height, width))
    return resized(pixels, max(SHORTEST, round(width * scale)), max(SHORTEST, round(height * scale)))


def resized(pixels: Pixels, width: int, height: int) -> Pixels:
    """The picture at another size; the mean over areas where it shrinks."""
    import cv2

    if pixels.shape[:2] == (height, width):
        return np.ascontiguousarray(pixels)
    shrinks = width <= pixels.shape[1] and height <= pixels.shape[0]
    how = cv2.INTER_AREA if shrinks else cv2.INTER_LINEAR
    return np.asarray(cv2.resize(pixels, (width, height), interpolation=how), np.uint8)


def gray(pixels: Pixels) -> Pixels:
    """Its brightness, uint8 [height, width]."""
    import cv2

    return np.asarray(cv2.cvtColor(pixels, cv2.COLOR_RGB2GRAY), np.uint8)
