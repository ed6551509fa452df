"""What to choose where a learner does not fit: other settings, each with what it would need. Pure.

The nearest to what was asked for come first: the same learner with less of something that it can be given
less of, then learners whose state does not grow with the square of the dimensions. Each is tried on the
configuration as it stands, so nothing is offered that the views or [keys] refuse.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import chain, repeat
from typing import Any, TypeAlias

from daemon.config import Config
from daemon.config.learners import LEARNERS, LearnerConfig, LegoKeys, LegoPairsKeys, LoretaKeys, SupportKeys
from daemon.config.schema import SpaceConfig
from daemon.exits import UserError
from daemon.memory.needs import learner_bytes, mapped_dim
from daemon.text import size
from daemon.toml_text import toml_table
from learners.errors import LearnerError
from learners.psd import MAX_FULL_DIM

Settings: TypeAlias = Mapping[str, Mapping[str, Any]]
"""Table of the file -> key -> value."""
Need: TypeAlias = Callable[[Config], int]

COMPONENTS = (2048, 1024, 512, 256, 100)
"""Directions that a wide dense view is offered, the most that fit."""
RANKS = (64, 32, 16, 8, 4)
ENTRIES = (64_000_000, 16_000_000, 4_000_000, 1_000_000, 250_000)
MOST_OFFERED = 3
LEAST_DIM = 256
"""A sparse view is offered no fewer columns than this: terms would share them too often."""
WITHOUT_A_SQUARE = ("oasis-sparse", "loreta", "oasis-diagonal", "soml-tg")
"""Learners whose state, or what a key adds to it, does not grow with the square of the dimensions, by how
little of OASIS they give up. One that this release does not have is left out."""


@dataclass(frozen=True, slots=True)
class Alternative:
    """Settings that fit. what: they mean, in words. nbytes: what is needed then."""

    settings: Settings
    what: str
    nbytes: int

    def toml(self) -> str:
        """The lines for the file."""
        notes = chain([f"{self.what}: {size(self.nbytes)}"], repeat(""))
        return "\n".join(chain(*map(toml_table, self.settings, self.settings.values(), notes)))


def alternatives(config: Config, free: int, need: Need) -> list[Alternative]:
    """At most `MOST_OFFERED` settings with which `need` is at most `free` bytes, of different kinds."""
    found: list[Alternative] = []
    for candidates in (_smaller_state(config), _fewer_columns(config), _served_less(config)):
        found += _first_that_fits(config, candidates, free, need)
    for name in WITHOUT_A_SQUARE:
        if name in LEARNERS and name != config.learner.algorithm:
            found += _first_that_fits(config, _other_learner(config, name), free, need)
    return found[:MOST_OFFERED]


def _first_that_fits(
    config: Config, candidates: Iterator[tuple[Settings, str]], free: int, need: Need
) -> list[Alternative]:
    for settings, what in candidates:
        try:
            changed = with_settings(config, settings)
            learner_bytes(changed)
            needed = need(changed)
        except (LearnerError, UserError, ValueError):  # what it says does not go with the views or the keys
            continue
        bounded = isinstance(changed.learner, LoretaKeys | LegoKeys | LegoPairsKeys)
        if needed <= free and not (bounded and mapped_dim(changed) > MAX_FULL_DIM):
            return [Alternative(settings, what, needed)]
    return []


def with_settings(config: Config, settings: Settings) -> Config:
    """The configuration with these settings. Raises ValueError where it does not take them."""
    for table, keys in settings.items():
        section, *rest = table.split(".")
        if section == "learner" and "algorithm" in keys:
            section_type: Any = LEARNERS[keys["algorithm"]]
            kept = config.learner.model_dump(include=set(LearnerConfig.model_fields) - {"algorithm"})
            changed = section_type.model_validate({**kept, **keys})
        elif section == "space":
            tree = config.space.model_dump()
            tree["views"][rest[-1]] |= keys
            if "components" not in keys:  # a sparse view refuses it, and every dump has it
                for view in tree["views"].values():
                    if view["kind"] == "sparse":
                        view.pop("components", None)
            changed = SpaceConfig.model_validate(tree)
        else:
            own = getattr(config, section)
            changed = type(own).model_validate({**own.model_dump(), **keys})
        config = replace(config, **{section: changed})
    return config


def _smaller_state(config: Config) -> Iterator[tuple[Settings, str]]:
    learner = config.learner
    if config.keys.slots:
        if isinstance(learner, LoretaKeys):
            for rank in (one for one in RANKS if one < learner.rank):
                yield {"learner": {"algorithm": "loreta", "rank": rank}}, f"corrections of rank {rank}"
        elif mapped_dim(config) <= MAX_FULL_DIM:
            for rank in RANKS[2:]:
                what = f"one matrix for all keys and corrections of rank {rank}"
                yield {"learner": {"algorithm": "loreta", "rank": rank}}, what
        for part in (2, 4, 8, 16, 64):
            slots = config.keys.slots // part
            if slots:
                yield {"keys": {"slots": slots}}, f"models for {slots:,} keys"
    if entries := getattr(learner, "entries", 0):
        for most in (one for one in ENTRIES if one < entries):
            given = learner.model_dump(exclude_unset=True) | {"algorithm": learner.algorithm, "entries": most}
            yield {"learner": given}, f"at most {most:,} touched entries of W"
    if isinstance(learner, SupportKeys):
        for part in (2, 4, 8, 16, 64):
            objects, triplets = learner.objects // part, learner.triplets // part
            if objects and triplets:
                keys = {"objects": objects, "triplets": triplets}
                given = learner.model_dump(exclude_unset=True) | {"algorithm": learner.algorithm} | keys
                yield {"learner": given}, f"a support set of {objects:,} objects"


def _fewer_columns(config: Config) -> Iterator[tuple[Settings, str]]:
    """Fewer columns in the widest view: principal directions of a dense one, a smaller vocabulary or hashed
    ids of a sparse one."""
    name = max(config.space.views, key=lambda one: sum(config.space.views[one].widths()), default="")
    if not name:
        return
    view = config.space.views[name]
    table = f"space.views.{name}"
    if view.kind == "dense" and not view.kernels:
        for components in COMPONENTS:
            if components < sum(view.widths()):
                keys = {"map": "whiten", "components": components}
                yield {table: keys}, f"the {components:,} strongest directions of the view {name}"
    elif view.kind == "sparse":
        dim = 1 << (view.dim - 1).bit_length() - 1
        while dim >= LEAST_DIM:
            yield {table: {"dim": dim}}, f"vectors of the view {name} made with {dim:,} terms or hashes"
            dim //= 2


def _served_less(config: Config) -> Iterator[tuple[Settings, str]]:
    if len(config.serve.aliases) > 1:
        name = config.serve.aliases[0]
        yield {"serve": {"aliases": [name]}}, f'only "{name}" is served'


def _other_learner(config: Config, name: str) -> Iterator[tuple[Settings, str]]:
    if name == "loreta":
        if config.keys.slots:
            return  # has been offered by its rank
        for rank in RANKS[2:]:
            yield {"learner": {"algorithm": name, "rank": rank}}, f"a correction of rank {rank}"
        return
    for most in ENTRIES if "entries" in LEARNERS[name].model_fields else ():
        what = f"OASIS that keeps at most {most:,} touched entries of W"
        yield {"learner": {"algorithm": name, "entries": most}}, what
    if name in _MEANS:
        yield {"learner": {"algorithm": name}}, _MEANS[name]


_MEANS = {
    "oasis-diagonal": "a weight for each column instead of each pair",
    "soml-tg": "a sparse weight for each column",
}
