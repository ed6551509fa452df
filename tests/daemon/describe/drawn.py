"""Pictures that are drawn, and files of them."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from PIL import Image

Pixels = npt.NDArray[np.uint8]


def picture(seed: int, width: int = 96, height: int = 80) -> Pixels:
    """Blots and stripes of a few colours, uint8 [height, width, 3]; each seed another one."""
    draw = np.random.default_rng(seed)
    coarse = draw.integers(0, 256, (6, 6, 3)).astype(np.uint8)
    blots = np.asarray(Image.fromarray(coarse).resize((width, height), Image.Resampling.NEAREST), np.int64)
    turn, step = draw.uniform(0, np.pi), draw.uniform(4, 16)
    rows, columns = np.mgrid[:height, :width]
    stripes = 40 * np.sin((columns * np.cos(turn) + rows * np.sin(turn)) * 2 * np.pi / step)
    return np.clip(blots + stripes[:, :, None], 0, 255).astype(np.uint8)


def encoded(pixels: npt.NDArray[Any], form: str = "PNG", **more: Any) -> bytes:
    """As a file."""
    out = io.BytesIO()
    Image.fromarray(pixels).save(out, form, **more)
    return out.getvalue()


def folder_of(folder: Path, count: int, width: int = 96, height: int = 80) -> Path:
    """A folder of so many, `p000.png` and on."""
    folder.mkdir(parents=True)
    for seed in range(count):
        (folder / f"p{seed:03d}.png").write_bytes(encoded(picture(seed, width, height)))
    return folder
