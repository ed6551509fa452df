"""The views that an object can be described by, and one photo described by some of them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from daemon.describe import blocks, points, whole
from daemon.describe.codebooks import Bag, Floats, nearest
from daemon.describe.pictures import Pixels, resized
from daemon.exits import EX_USAGE, UserError

TERMS = "terms"
TEXT = "text"


@dataclass(frozen=True, slots=True)
class RawView:
    """name: also in catalog and configuration. dim: how many numbers; 0 where the user chooses it. of: what
    its words are made of, "" where it has none."""

    name: str
    dim: int
    of: Literal["", "blocks", "sift", "surf", "text"] = ""

    @property
    def sparse(self) -> bool:
        """How its bags are stored: those of small codebooks as dense rows, as learners scale and whiten
        them."""
        return self.name in (TERMS, TEXT)


_WHOLE: Mapping[str, Callable[[Pixels], Floats]] = {
    one.__name__: one for one in (whole.colour81, whole.edges37, whole.gabor120, whole.lbp59, whole.gist512)
}
POINTS: Mapping[str, Callable[[Pixels], Floats]] = {"sift": points.sift, "surf": points.surf}
FIVE = {"shape": 324, "silhouette": 288, "colour": 144, "texture": 295, "gist": 192}
"""As `five.VIEWS`, which needs OpenCV to be imported."""

VIEWS: Mapping[str, RawView] = {
    view.name: view
    for view in (
        RawView(TERMS, 0, "blocks"),
        *(RawView(name, int("".join(c for c in name if c.isdigit()))) for name in _WHOLE),
        RawView("sift200", 200, "sift"),
        RawView("sift1000", 1000, "sift"),
        RawView("surf200", 200, "surf"),
        RawView("surf1000", 1000, "surf"),
        *(RawView(name, dim) for name, dim in FIVE.items()),
        RawView(TEXT, 0, "text"),
    )
}
NINE = tuple(name for name in VIEWS if name not in (TERMS, TEXT, *FIVE))
OF_PHOTOS = tuple(name for name in VIEWS if name != TEXT)
GROUPS: Mapping[str, Sequence[str]] = {"nine": NINE, "five": tuple(FIVE)}


def named_views(words: Iterable[str]) -> tuple[str, ...]:
    """Views by their names and those of groups, each once, in the order of `VIEWS`. Raises UserError."""
    wanted: set[str] = set()
    for word in words:
        found = GROUPS.get(word, (word,) if word in VIEWS else ())
        if not found:
            known = ", ".join([TERMS, TEXT, *GROUPS, *NINE, *FIVE])
            raise UserError(f"there is no view {word[:40]!r}", f"known are {known}", EX_USAGE)
        wanted.update(found)
    return tuple(name for name in VIEWS if name in wanted)


def codebook_sizes(names: Iterable[str], terms: int) -> dict[str, int]:
    """Words of each of these views that has a codebook."""
    return {name: VIEWS[name].dim or terms for name in names if VIEWS[name].of and name != TEXT}


def describe_picture(
    pixels: Pixels, names: Sequence[str], palette: Floats, codebooks: Mapping[str, Floats]
) -> dict[str, Floats | Bag]:
    """One picture by these views: float32 [dim], or the words that it holds, not weighed yet.

    codebooks: by the name of a view, float32 [words, d].
    """
    local: dict[str, Floats] = {}
    for kind in {VIEWS[name].of for name in names} - {""}:
        local[kind] = blocks.describe_blocks(pixels, palette) if kind == "blocks" else POINTS[kind](pixels)
    found: dict[str, Floats | Bag] = {}
    for name in names:
        if VIEWS[name].of:
            found[name] = Bag.of(nearest(local[VIEWS[name].of], codebooks[name]))
        elif name in _WHOLE:
            found[name] = _WHOLE[name](pixels)
    if any(name in FIVE for name in names):
        from daemon.describe import five

        square = resized(pixels, five.SIDE, five.SIDE)
        mask = five.foreground(square)
        found |= {name: five.VIEWS[name](square, mask) for name in names if name in FIVE}
    return {name: found[name] for name in names}
