"""Pieces of work: what a process does with some photos, and leaves in a file of its own.

A file appears as a whole or not at all, and what it holds depends on the photos and the settings alone:
whoever continues a run that was killed makes only the files that are missing.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from hashlib import sha256
from pathlib import Path
from typing import Any, Literal, TypeAlias

import numpy as np

from daemon.describe import blocks
from daemon.describe.codebooks import Bag, Floats
from daemon.describe.fit import DescriberFit
from daemon.describe.pictures import Pixels, UnreadablePicture, decoded
from daemon.describe.run_folder import write_file
from daemon.describe.sources import PhotoRef, read_photo
from daemon.describe.views import POINTS, VIEWS, describe_picture

Arrays: TypeAlias = dict[str, np.ndarray[Any, Any]]
Work = Literal["sample", "blocks", "describe"]


@dataclass(frozen=True, slots=True)
class PhotoChunk:
    """Some photos and what is to be done with them.

    work: sample takes pixels and local descriptors of each photo, by chance, for the first codebooks; blocks
    takes blocks for the visual terms'; describe makes all views. into: the file. fit: the file of what has
    been fitted so far. quota: most vectors of a kind that a photo gives to a sample.
    """

    work: Work
    photos: Sequence[PhotoRef]
    into: str
    fit: str
    quota: Mapping[str, int]


def do_chunk(chunk: PhotoChunk) -> int:
    """Do it and write the file; how many photos were refused."""
    refused: list[tuple[int, str]] = []
    each: list[dict[str, Any]] = []
    fit, work = _fit(chunk.fit), _WORK[chunk.work]
    for row, photo in enumerate(chunk.photos):
        try:
            each.append(work(decoded(read_photo(photo), fit.longest), photo, fit, chunk.quota))
        except UnreadablePicture as error:
            refused.append((row, str(error)))
    arrays = _joined(each) if each else {}
    if chunk.work == "describe":
        arrays["refused"] = np.frombuffer(json.dumps(refused).encode(), np.uint8)
    write_file(Path(chunk.into), lambda file: np.savez(file, allow_pickle=False, **arrays))
    return len(refused)


@lru_cache(maxsize=1)
def _fit(path: str) -> DescriberFit:
    return DescriberFit.load(Path(path))


def _sample(pixels: Pixels, photo: PhotoRef, fit: DescriberFit, quota: Mapping[str, int]) -> Arrays:
    """Pixels for the palette, and descriptors at points, as many as the quota has."""
    found: Arrays = {}
    chance = _chance(fit.seed, photo)
    for kind, most in quota.items():
        vectors = pixels.reshape(-1, 3) if kind == "pixels" else POINTS[kind](pixels)
        found[kind] = _some(vectors, most, chance)
    return found


def _sample_blocks(pixels: Pixels, photo: PhotoRef, fit: DescriberFit, quota: Mapping[str, int]) -> Arrays:
    found = blocks.describe_blocks(pixels, fit.palette)
    return {"blocks": _some(found, quota["blocks"], _chance(fit.seed, photo))}


def _describe(
    pixels: Pixels, photo: PhotoRef, fit: DescriberFit, quota: Mapping[str, int]
) -> dict[str, Floats | Bag]:
    names = [name for name in fit.views if name in VIEWS]
    return describe_picture(pixels, names, fit.palette, fit.codebooks)


_WORK: Mapping[Work, Callable[..., dict[str, Any]]] = {
    "sample": _sample,
    "blocks": _sample_blocks,
    "describe": _describe,
}


def _chance(seed: int, photo: PhotoRef) -> np.random.Generator:
    """By the photo's id alone, wherever it stands among others."""
    return np.random.default_rng([seed, int.from_bytes(sha256(photo.id.encode()).digest()[:8], "little")])


def _some(vectors: np.ndarray[Any, Any], most: int, chance: np.random.Generator) -> np.ndarray[Any, Any]:
    if len(vectors) <= most:
        return vectors
    return vectors[np.sort(chance.choice(len(vectors), most, replace=False))]


def _joined(each: Sequence[Mapping[str, Any]]) -> Arrays:
    """Rows below each other: vectors as [n, d], bags as NAME.indptr, NAME.words and NAME.counts."""
    arrays: Arrays = {}
    for name, first in each[0].items():
        column = [one[name] for one in each]
        if isinstance(first, Bag):
            lengths = [len(bag.words) for bag in column]
            arrays[f"{name}.indptr"] = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
            arrays[f"{name}.words"] = np.concatenate([bag.words for bag in column])
            arrays[f"{name}.counts"] = np.concatenate([bag.counts for bag in column])
        elif first.ndim == 1:
            arrays[name] = np.stack(column)
        else:
            arrays[name] = np.concatenate(column)
    return arrays
