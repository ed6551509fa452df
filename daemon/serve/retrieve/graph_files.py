"""A graph as a folder of arrays: written beside, made durable, and renamed; read only where every byte is
right.

A folder holds codes.npy, bounds.npy, hashes.npy, links.npy and about.json, which is written last and holds a
digest of each of them and of itself. A folder without it is half written and is never read.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from learners.errors import BlockError
from learners.graph import Graph
from streams.durable import sync

FORMAT = 1
ABOUT = "about.json"
NAMES = ("codes", "bounds", "hashes", "links")
TYPES = {"codes": "int8", "bounds": "float64", "hashes": "uint64", "links": "int32"}
DONE, UNDER_WAY = "graph-", "building-"
PIECE = 4 << 20
"""Bytes that are digested at once."""


class DamagedGraph(Exception):
    """A folder that cannot be used; the message says why."""


def seal(folder: Path, target: Path, *, map_id: str, rest: Callable[[], None] = lambda: None) -> None:
    """Make a folder with all its arrays durable and give it its name. Raises OSError."""
    digests = {name: _digest(folder / f"{name}.npy", rest) for name in NAMES}
    about = {"format": FORMAT, "map": map_id, "digests": digests}
    for name in NAMES:
        sync(folder / f"{name}.npy")
    with (folder / ABOUT).open("w", encoding="utf-8") as file:
        json.dump({**about, "digest": _digest_of(about)}, file)
        file.flush()
        os.fsync(file.fileno())
    sync(folder)
    folder.rename(target)
    sync(target.parent)


def map_of(folder: Path) -> str:
    """The id of the map that the objects were mapped with. Raises DamagedGraph."""
    return str(_about(folder)["map"])


def load(folder: Path, rest: Callable[[], None] = lambda: None) -> Graph:
    """The graph, mapped from its files, after every byte was looked at. Raises DamagedGraph."""
    about = _about(folder)
    for name in NAMES:
        try:
            found = _digest(folder / f"{name}.npy", rest)
        except OSError as error:
            raise DamagedGraph(f"{name}.npy cannot be read: {error.strerror or error}") from error
        if found != about["digests"].get(name):
            raise DamagedGraph(f"{name}.npy is not what was written")
    try:
        arrays = {name: read_array(folder, name) for name in NAMES}
        return Graph.of(arrays["codes"], arrays["bounds"], arrays["links"], arrays["hashes"])
    except (OSError, ValueError, BlockError) as error:
        raise DamagedGraph(str(error)) from error


def read_array(folder: Path, name: str) -> NDArray[Any]:
    """One of its arrays, mapped. Raises OSError or ValueError."""
    mapped = np.load(
        folder / f"{name}.npy", mmap_mode="c", allow_pickle=False
    )  # numba is slow to take read-only ones
    if str(mapped.dtype) != TYPES[name]:
        raise ValueError(f"{name}.npy holds {mapped.dtype}")
    return np.asarray(mapped)


def graphs_in(root: Path) -> list[Path]:
    """Folders of finished graphs, the oldest first; none where there is no such place."""
    return sorted((one for one in _folders(root) if one.name.startswith(DONE)), key=lambda one: one.name)


def half_written(root: Path) -> list[Path]:
    """Folders of graphs that were being made; only who holds the lock may say that nobody makes them now."""
    return [one for one in _folders(root) if one.name.startswith(UNDER_WAY)]


def remove(folder: Path) -> None:
    """Remove a folder; who has mapped its files keeps them."""
    shutil.rmtree(folder, ignore_errors=True)


def _folders(root: Path) -> Iterator[Path]:
    try:
        yield from [one for one in root.iterdir() if one.is_dir()]
    except OSError:
        return


def _about(folder: Path) -> dict[str, Any]:
    try:
        about = json.loads((folder / ABOUT).read_text(encoding="utf-8"))
        digest = about.pop("digest")
        if digest == _digest_of(about) and about["format"] == FORMAT:
            return dict(about)
    except (OSError, ValueError, KeyError, AttributeError, TypeError) as error:
        raise DamagedGraph(f"{ABOUT} cannot be read: {error}") from error
    raise DamagedGraph(f"{ABOUT} is not what was written, or of another format")


def _digest_of(about: dict[str, Any]) -> str:
    return hashlib.blake2b(json.dumps(about, sort_keys=True).encode(), digest_size=16).hexdigest()


def _digest(path: Path, rest: Callable[[], None]) -> str:
    digest = hashlib.blake2b(digest_size=16)
    with path.open("rb") as file:
        while piece := file.read(PIECE):
            digest.update(piece)
            rest()
    return digest.hexdigest()
