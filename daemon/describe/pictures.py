"""An encoded picture as pixels, of bounded size whatever it was."""

from __future__ import annotations

import io
import warnings

import numpy as np
import numpy.typing as npt

Pixels = npt.NDArray[np.uint8]
"""uint8 [height, width, 3], red, green, blue."""

LONGEST = 500
"""Pixels of the longer side that are kept (OMKS, section 6.1: photos of 500 x 500 with their proportions)."""
SHORTEST = 64
"""Pixels of a side at least: one block of the visual terms."""
MOST_PIXELS = 100_000_000
"""Of what is decoded: 300 MB for a moment. A larger JPEG is decoded at a fraction of its size."""
MOST_BYTES = 256 << 20


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
            with Image.open(io.BytesIO(encoded)) as opened:
                opened.draft("RGB", (2 * longest, 2 * longest))
                if opened.width * opened.height > MOST_PIXELS:
                    size = f"{opened.width:,} x {opened.height:,} pixels"
                    raise UnusableObject(f"{size} are more than {MOST_PIXELS:,}")
                opened.load()
                upright = ImageOps.exif_transpose(opened)
                return _fitted(np.asarray(_opaque(upright), np.uint8), longest)
    except (UnusableObject, MemoryError):
        raise
    except UnidentifiedImageError:
        raise UnusableObject("no picture in a format that Pillow knows") from None
    except Exception as error:  # noqa: BLE001  decoders raise whatever their format's code ran into
        raise UnusableObject(str(error)[:200] or type(error).__name__) from None


def _opaque(picture: object) -> object:
    """In red, green and blue, over white."""
    from PIL import Image

    assert isinstance(picture, Image.Image)
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
    """Brought to the size that `decoded` promises."""
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
