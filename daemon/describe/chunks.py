"""Pieces of work: what a process does with some objects, and leaves in a file of its own.

A file appears as a whole or not at all, and what it holds depends on the objects and the settings alone:
whoever continues a run that was killed makes only the files that are missing.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

import numpy as np

from daemon.describe import blocks, texts
from daemon.describe.codebooks import Bag, Floats, stacked
from daemon.describe.fit import DescriberFit
from daemon.describe.pictures import Pixels, UnusableObject, decoded
from daemon.describe.sources import RawObject, read_photo
from daemon.describe.views import OF_PHOTOS, POINTS, TEXT, describe_picture
from streams.durable import replacing

if TYPE_CHECKING:
    from daemon.serve.text_model import TextModel

Arrays: TypeAlias = dict[str, np.ndarray[Any, Any]]
Work = Literal["sample", "blocks", "words", "describe"]


@dataclass(frozen=True, slots=True)
class RawChunk:
    """Some objects and what is to be done with them.

    work: sample takes pixels and local descriptors of each photo, by chance, for the first codebooks; blocks
    takes blocks for the visual terms'; words counts those of texts; describe makes all views. into: the file.
    fit: the file of what has been fitted so far. quota: most vectors of a kind that a photo gives to a
    sample. model: folder of the text model, "" without one.
    """

    work: Work
    objects: Sequence[RawObject]
    into: str
    fit: str
    quota: Mapping[str, int]
    model: str = ""


def do_chunk(chunk: RawChunk) -> int:
    """Do it and write the file; how many objects were refused.

    In one thread: processes are as many as cores, and sums of several threads are not the same bits.
    """
    from threadpoolctl import threadpool_limits

    one_thread_for_opencv()
    with threadpool_limits(1):
        arrays, refused = _done(chunk)
    with replacing(Path(chunk.into)) as file:
        np.savez(file, allow_pickle=False, **arrays)
    return refused


def one_thread_for_opencv() -> None:
    """OpenCV, where it is installed, starts a thread per core unless told otherwise."""
    try:
        import cv2
    except ImportError:
        return
    cv2.setNumThreads(1)


def _done(chunk: RawChunk) -> tuple[Arrays, int]:
    fit = _fit(chunk.fit)
    if chunk.work == "words":
        counted = texts.holding(one.text for one in chunk.objects)
        words = sorted(counted)
        counts = np.array([counted[word] for word in words], np.int64)
        return {"words": np.frombuffer("\n".join(words).encode(), np.uint8), "counts": counts}, 0
    if chunk.work == "describe":
        arrays, refused = _described(chunk, fit)
        arrays["refused"] = np.frombuffer(json.dumps(refused).encode(), np.uint8)
        return arrays, len(refused)
    return _sampled(chunk, fit), 0


@lru_cache(maxsize=1)
def _fit(path: str) -> DescriberFit:
    return DescriberFit.load(Path(path))


@lru_cache(maxsize=1)
def _places(path: str) -> dict[str, int]:
    return {word: place for place, word in enumerate(_fit(path).words)}


@lru_cache(maxsize=1)
def _model(folder: str) -> TextModel:
    from daemon.serve.text_model import TextModel

    return TextModel.open(Path(folder), 1)


def _described(chunk: RawChunk, fit: DescriberFit) -> tuple[Arrays, list[tuple[int, str]]]:
    """All views of the objects that can be used; rows and reasons of the others."""
    refused: list[tuple[int, str]] = []
    each: list[dict[str, Any]] = []
    kept: list[str] = []
    photo_views = [name for name in fit.views if name in OF_PHOTOS]
    for row, one in enumerate(chunk.objects):
        try:
            found: dict[str, Floats | Bag] = {}
            if TEXT in fit.views and not one.text.strip():
                raise UnusableObject("it has no text")
            if photo_views:
                pixels = decoded(read_photo(one), fit.longest)
                found |= describe_picture(pixels, photo_views, fit.palette, fit.codebooks)
            if TEXT in fit.views and not fit.model:
                found[TEXT] = texts.bag_of(one.text, _places(chunk.fit))
            each.append(found)
            kept.append(one.text)
        except UnusableObject as error:
            refused.append((row, str(error)))
    arrays = _joined(each) if each else {}
    if kept and TEXT in fit.views and fit.model:
        arrays[TEXT] = _embedded(_model(chunk.model), kept)
    return arrays, refused


def _embedded(model: TextModel, given: Sequence[str]) -> Floats:
    tokens = model.tokens(given, "doc")
    found = np.empty((len(given), model.dim), np.float32)
    for rows in tokens.batches():
        found[rows] = model.embed(tokens, rows)
    return found


def _sampled(chunk: RawChunk, fit: DescriberFit) -> Arrays:
    each: list[dict[str, Any]] = []
    for one in chunk.objects:
        try:
            pixels = decoded(read_photo(one), fit.longest)
        except UnusableObject:
            continue  # told when all are described
        drawn = int.from_bytes(sha256(one.id.encode()).digest()[:8], "little")
        chance = np.random.default_rng([fit.seed, drawn])
        each.append({kind: _some(_of(kind, pixels, fit), most, chance) for kind, most in chunk.quota.items()})
    return _joined(each) if each else {}


def _of(kind: str, pixels: Pixels, fit: DescriberFit) -> np.ndarray[Any, Any]:
    if kind == "pixels":
        return pixels.reshape(-1, 3)
    if kind == "blocks":
        return blocks.describe_blocks(pixels, fit.palette)
    return POINTS[kind](pixels)


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
            indptr, words, counts = stacked(column)
            arrays |= {f"{name}.indptr": indptr, f"{name}.words": words, f"{name}.counts": counts}
        else:
            arrays[name] = np.stack(column) if first.ndim == 1 else np.concatenate(column)
    return arrays


def unpacked_counts(arrays: Mapping[str, np.ndarray[Any, Any]]) -> dict[str, int]:
    """What a piece of counting left."""
    words = arrays["words"].tobytes().decode().split("\n") if len(arrays["words"]) else []
    return dict(zip(words, arrays["counts"].tolist(), strict=True))
