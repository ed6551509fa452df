"""The before/after picture: nearest neighbours of some queries under version 0 and under the best version."""

from __future__ import annotations

import io
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from PIL import Image, ImageDraw, ImageFont

CELL = 88
GAP = 6
BLOCK_GAP = 26
MARGIN = 24
HEADER = 84
ROW_LABEL = 96
SAME_COLOUR = (34, 139, 84)
OTHER_COLOUR = (206, 66, 54)
INK = (32, 33, 36)
FAINT = (110, 113, 118)
PAPER = (255, 255, 255)


@dataclass(frozen=True)
class Neighbours:
    """One row of the sheet: a query and what each version finds; every object is (JPEG bytes, its class)."""

    label: str
    query: bytes
    before: Sequence[tuple[bytes, str]]
    after: Sequence[tuple[bytes, str]]


def draw_contact_sheet(rows: Sequence[Neighbours], title: str, after_name: str, path: Path) -> None:
    """Write the sheet as a PNG: query, `before` and `after` side by side, green where of the query's class.

    `title` is the first line; `after_name` heads the right block ("version 11"). Overwrites `path`.
    """
    shown = max(len(row.before) for row in rows)
    block = shown * (CELL + GAP) - GAP
    left = MARGIN + ROW_LABEL + CELL + BLOCK_GAP
    right = left + block + BLOCK_GAP
    width = right + block + MARGIN
    height = HEADER + len(rows) * (CELL + GAP) + MARGIN
    sheet = Image.new("RGB", (width, height), PAPER)
    draw = ImageDraw.Draw(sheet)
    draw.text((MARGIN, 14), title, INK, _font(20))
    draw.text((MARGIN + ROW_LABEL, HEADER - 26), "query", FAINT, _font(15))
    draw.text((left, HEADER - 26), f"version 0 (cosine): {_hits(rows, 'before')}", FAINT, _font(15))
    draw.text((right, HEADER - 26), f"{after_name}: {_hits(rows, 'after')}", FAINT, _font(15))
    for number, row in enumerate(rows):
        top = HEADER + number * (CELL + GAP)
        draw.text((MARGIN, top + CELL // 2 - 9), row.label, INK, _font(15))
        sheet.paste(_thumbnail(row.query), (MARGIN + ROW_LABEL, top))
        for start, found in ((left, row.before), (right, row.after)):
            for place, (jpeg, label) in enumerate(found):
                corner = (start + place * (CELL + GAP), top)
                sheet.paste(_thumbnail(jpeg), corner)
                colour = SAME_COLOUR if label == row.label else OTHER_COLOUR
                box = (*corner, corner[0] + CELL - 1, corner[1] + CELL - 1)
                draw.rectangle(box, outline=colour, width=4)
    sheet.save(path, optimize=True)


def _hits(rows: Sequence[Neighbours], side: str) -> str:
    """How many of the shown neighbours are of the query's class, in words."""
    found = [label == row.label for row in rows for _, label in getattr(row, side)]
    return f"{sum(found)} of {len(found)} of the query's class"


def _thumbnail(jpeg: bytes) -> Image.Image:
    """The photo fitted into a CELL x CELL square on paper, its proportions kept."""
    photo = Image.open(io.BytesIO(jpeg)).convert("RGB")
    photo.thumbnail((CELL, CELL), Image.Resampling.LANCZOS)
    cell = Image.new("RGB", (CELL, CELL), (244, 244, 245))
    cell.paste(photo, ((CELL - photo.width) // 2, (CELL - photo.height) // 2))
    return cell


def _font(size: int) -> ImageFont.FreeTypeFont | ImageFont.ImageFont:
    return ImageFont.load_default(size)
