"""Materials: people who say which of two materials looks more like a third.

Each vote is a list. The query is the reference, shown are the two others, clicked is the one that was
chosen. Votes of the minority are lists, too: the noise is that of people.

**Origin.** Lagunas, Malpica, Serrano, Garces, Gutierrez, Masia: A Similarity Measure for Material
Appearance, SIGGRAPH 2019, which is to be cited; the public repository
`mlagunas/material-appearance-similarity`.

**Licence.** GPL-2.0, that of the repository; the pictures are renderings of the MERL database, which asks
for academic use. Nothing of it is in this repository, nor may it be committed to it.

**What is learned and what judges:** the votes of the repository's own training part are learned, those of
its test part judge. They are other comparisons than those learned, though of the same 100 materials, and
not later ones: the files have no times.

**What is inferred.** The order of the votes, and which of two stood first, come from a generator with a
seed. The numbers of materials are those of the names of the pictures in order. People saw other shapes and
lights than this picture's.

Objects are four views of one picture of each material: colours, brightness, edges at three scales, and the
picture as 8 x 8 pixels; each less its mean and of unit length. There are no classes.
"""

from __future__ import annotations

import io
import json

import numpy as np
import numpy.typing as npt
from PIL import Image

from tests.quality.bench.sets import Floats, Ints, unit
from tests.quality.real.clones import GitClone
from tests.quality.real.lists import RealSet, clicked_lists

PICTURES, ANSWERS = "data/havran1_stpeters_256x256_LDR", "data/answers_processed_{}.json"
SIDE = 128
VIEWS = ("colour", "brightness", "edges", "thumbnail")

Doubles = npt.NDArray[np.float64]
Row = tuple[int, int, list[int], int]


def read(clone: GitClone) -> RealSet:
    """The set of a clone of the repository; needs pillow. Raises CloneLacks."""
    files = {name: data for name, data in clone.folder(PICTURES).items() if name.endswith(".png")}
    ids = [name.removesuffix(".png") for name in sorted(files)]
    described = zip(*(describe(files[f"{name}.png"]) for name in ids), strict=True)
    views = {name: centred(np.array(rows)) for name, rows in zip(VIEWS, described, strict=True)}
    rng = np.random.default_rng(0)
    learned, judged = (votes(clone.text(ANSWERS.format(part)), rng) for part in ("train", "test"))
    about = {"commit": clone.commit()}
    rows = timed([*learned, *judged])
    return RealSet("materials", ids, views, clicked_lists(rows), len(learned), np.zeros(0, np.int64), about)


def votes(text: str, rng: np.random.Generator) -> list[tuple[int, list[int], int]]:
    """Answers (reference, more, less) with the numbers of votes for either -> (query, shown, rank of the
    click) of each vote, in an order by chance."""
    answers = json.loads(text)
    table: Ints = np.array(answers["answers"], np.int64).reshape(-1, 3)
    counts: Ints = np.array(answers["agreement"], np.int64).reshape(-1, 2)
    every = np.concatenate([
        np.repeat(table, counts[:, 0], axis=0), np.repeat(table[:, [0, 2, 1]], counts[:, 1], axis=0)
    ])  # fmt: skip
    every = every[rng.permutation(len(every))]
    ranks = rng.integers(2, size=len(every)).tolist()
    return [
        (query, [other, chosen] if rank else [chosen, other], rank)
        for (query, chosen, other), rank in zip(every.tolist(), ranks, strict=True)
    ]


def timed(rows: list[tuple[int, list[int], int]]) -> list[Row]:
    """A second for each vote, from one in 2017 on."""
    return [(1_500_000_000_000 + 1000 * number, *row) for number, row in enumerate(rows)]


def centred(rows: Doubles) -> Floats:
    """Less their mean, of unit length."""
    return unit(rows - rows.mean(axis=0))


def describe(png: bytes) -> list[Doubles]:
    """The four views of a picture."""
    with Image.open(io.BytesIO(png)) as picture:
        rgb = np.asarray(picture.convert("RGB").resize((SIDE, SIDE)), np.float64) / 255
    light = rgb.mean(-1)
    red_green, yellow_blue = rgb[..., 0] - rgb[..., 1], (rgb[..., 0] + rgb[..., 1]) / 2 - rgb[..., 2]
    points = np.stack([light, red_green, yellow_blue], axis=-1).reshape(-1, 3)
    colour = np.histogramdd(points, bins=(4, 8, 8), range=((0, 1), (-0.6, 0.6), (-0.6, 0.6)))[0].ravel()
    brightness = np.histogram(light, bins=32, range=(0, 1))[0]
    edges = [_edges(light, scale) for scale in (1, 2, 4)]
    thumbnail = rgb.reshape(8, SIDE // 8, 8, SIDE // 8, 3).mean((1, 3)).ravel()
    return [np.sqrt(_shares(colour)), np.sqrt(_shares(brightness)), np.sqrt(np.concatenate(edges)), thumbnail]


def _edges(light: Doubles, scale: int) -> Doubles:
    small = light.reshape(SIDE // scale, scale, SIDE // scale, scale).mean((1, 3))
    strength = np.hypot(*np.gradient(small))
    return np.asarray(np.histogram(strength, bins=16, range=(0, 0.3))[0] / small.size)


def _shares(counts: npt.NDArray[np.generic]) -> Doubles:
    return np.asarray(counts / np.sum(counts), np.float64)
