"""The sets of real lists that there are: who reads them, where they are from, and how they are prepared."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from tests.quality.real import materials, wikispeedia
from tests.quality.real.clones import GitClone
from tests.quality.real.lists import FOLDER, RealSet


@dataclass(frozen=True)
class RealSource:
    """repository: what is to be cloned from GitHub. read: makes the set of a clone."""

    repository: str
    read: Callable[[GitClone], RealSet]


SOURCES: Mapping[str, RealSource] = {
    "wikispeedia": RealSource("angelpras/epfl_ADA_project", wikispeedia.read),
    "materials": RealSource("mlagunas/material-appearance-similarity", materials.read),
}
AS_ONE = {"materials-as-one-view": "materials"}
"""Sets that are others with all views joined into one: the same ranking of the owner, another learner."""


NAMES = (*SOURCES, *AS_ONE)


class NotPrepared(Exception):
    """A set is not there yet; its text says what to do."""


def prepare(name: str, clone: Path, folder: Path = FOLDER) -> RealSet:
    """Make a set of a clone and keep it in a folder. Raises CloneLacks."""
    data = SOURCES[name].read(GitClone(clone))
    data.save(folder / name)
    return data


def prepared(name: str, folder: Path = FOLDER) -> RealSet:
    """A set that was prepared before. Raises NotPrepared."""
    if name in AS_ONE:
        data = prepared(AS_ONE[name], folder)
        return replace(data, name=name, views={"x": data.joined()})
    try:
        return RealSet.load(folder / name)
    except FileNotFoundError:
        repository = SOURCES[name].repository
        raise NotPrepared(
            f"{name} is not prepared: clone {repository} from GitHub, then run "
            f"`python -m tests.quality.real prepare {name} CLONE`"
        ) from None
