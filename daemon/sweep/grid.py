"""Which settings a sweep tries: values of configuration keys, their product, or a sample of it. Pure.

A grid is a mapping from a key to its values. Several grids are tried one after the other, such as one per
learner; a setting that is in two of them is tried once.
"""

from __future__ import annotations

import json
import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any, TypeAlias

from daemon.config.load import flatten, parse_setting
from daemon.exits import EX_USAGE, UserError
from daemon.toml_text import toml_table

MOST = 10_000
"""Settings of one sweep: more are a slip, such as a key too much; `--random` takes some of them."""

Grid: TypeAlias = Mapping[str, tuple[Any, ...]]

SWEPT = ("learner", "space", "feed", "caps", "serving")
"""Sections whose keys say how is learned and scored."""
SPLIT = {
    "feed.holdout_share",
    "feed.holdout_by",
    "feed.holdout_kinds",
    "feed.kind_share",
    "feed.seed",
    "feed.prequential",
}
"""Keys that say which lists are held out, which have to be the same for every setting."""
_OBJECTS = ("kind", "dim")
"""Keys of a view that say what its objects are."""


@dataclass(frozen=True, slots=True)
class Setting:
    """One point of a grid: its keys in the order of the grid, with their values."""

    values: tuple[tuple[str, Any], ...]

    @property
    def name(self) -> str:
        """As it is written on a command line, without `--set`."""
        return " ".join(f"{key}={text_of(value)}" for key, value in self.values) or "as configured"

    def overrides(self) -> dict[str, Any]:
        """As `load_config` takes them."""
        return dict(self.values)


def grid_of_options(options: Sequence[str]) -> dict[str, tuple[Any, ...]]:
    """The grid of `--set SECTION.KEY=VALUE,VALUE...`. A comma within quotes or brackets is part of a value;
    a key that is given twice has the values of both. Raises UserError."""
    grid: dict[str, tuple[Any, ...]] = {}
    for option in options:
        key, equals, text = option.partition("=")
        if not equals or not text.strip():
            remedy = "for example --set learner.C=0.01,0.1,1"
            raise UserError(f"--set {option}: not of the form section.key=value,value", remedy, EX_USAGE)
        name = key.strip()
        values = tuple(parse_setting(f"{name}={one}")[1] for one in split_values(text))
        grid[name] = grid.get(name, ()) + values
    return {name: _distinct(name, values) for name, values in grid.items()}


def grid_of_table(tree: Mapping[str, Any], place: str) -> dict[str, tuple[Any, ...]]:
    """The grid of a TOML table such as `[learner]` with `C = [0.01, 0.1]`: each key has a list of values, or
    one. place: where it stands, for messages. Raises UserError."""
    grid: dict[str, tuple[Any, ...]] = {}
    for path, value in flatten(tree):
        name = ".".join(path)
        values = tuple(value) if isinstance(value, list) else (value,)
        if not values:
            raise UserError(f"{place}: {name} has no values", "name some, or leave the key out", EX_USAGE)
        grid[name] = _distinct(name, values)
    return grid


def check_keys(grid: Grid) -> None:
    """Raise UserError for keys that no sweep can try, with what to do instead."""
    for name in grid:
        section, *rest = name.split(".")
        if section not in SWEPT:
            message = f"{name} cannot be swept: it changes nothing that is learned or scored"
            remedy = f"sweep keys of {', '.join(f'[{one}]' for one in SWEPT)}; give others in the file"
            raise UserError(message, remedy, EX_USAGE)
        if name in SPLIT or name.startswith("feed.follow."):
            message = f"{name} cannot be swept: every setting is judged on the same held-out lists"
            remedy = "give it in the file, or run one sweep for each value with --out folders of their own"
            raise UserError(message, remedy, EX_USAGE)
        if name == "space.id" or (section == "space" and rest and rest[-1] in _OBJECTS):
            message = f"{name} cannot be swept: it says what the objects are, not how they are learned"
            raise UserError(message, "sweep the keys of their map and learner", EX_USAGE)


def settings_of(grids: Sequence[Grid], count: int | None = None, seed: int = 0) -> list[Setting]:
    """Every setting of the grids, each once, the last key of a grid running fastest; or `count` of them drawn
    with a seed, in that order. Raises UserError for more than `MOST`."""
    sizes = [prod(len(values) for values in grid.values()) for grid in grids]
    total = sum(sizes)
    if count is None and total > MOST:
        raise UserError(
            f"the grid has {total:,} settings", f"take some of them with --random N, up to {MOST:,}", EX_USAGE
        )
    places: Sequence[int] = range(total)
    if count is not None and count < total:
        places = sorted(random.Random(seed).sample(places, count))  # noqa: S311  a sample, not a secret
    found: dict[str, Setting] = {}
    for place in places:
        setting = _at(grids, sizes, place)
        found.setdefault(json.dumps(sorted(setting.values, key=lambda one: one[0]), default=str), setting)
    return list(found.values())


def _at(grids: Sequence[Grid], sizes: Sequence[int], place: int) -> Setting:
    for grid, size in zip(grids, sizes, strict=True):
        if place >= size:
            place -= size
            continue
        values: list[tuple[str, Any]] = []
        for key, choices in reversed(list(grid.items())):
            place, at = divmod(place, len(choices))
            values.append((key, choices[at]))
        return Setting(tuple(reversed(values)))
    raise AssertionError("a place outside the grids")


def varied(settings: Sequence[Setting]) -> list[str]:
    """The keys that differ between settings, in the order of the grids; one that some lack differs."""
    keys = list(dict.fromkeys(key for one in settings for key, _ in one.values))
    return [key for key in keys if len({repr(one.overrides().get(key, ...)) for one in settings}) > 1]


def toml_of(setting: Setting) -> list[str]:
    """The lines of a tripletd.toml that make a setting, a table header before its keys."""
    tables: dict[str, dict[str, Any]] = {}
    for key, value in setting.values:
        table, _, name = key.rpartition(".")
        tables.setdefault(table, {})[name] = value
    return [line for table, keys in tables.items() for line in toml_table(table, keys)]


def split_values(text: str) -> Iterator[str]:
    """Values between commas; those within quotes or brackets are no separators, and quotes around a whole
    value are left out."""
    found, depth, quote = "", 0, ""
    for sign in text:
        if quote:
            quote = "" if sign == quote else quote
        elif sign in "\"'":
            quote = sign
        elif sign in "[{(":
            depth += 1
        elif sign in "]})":
            depth -= 1
        elif sign == "," and not depth:
            yield _bare(found)
            found = ""
            continue
        found += sign
    yield _bare(found)


def _bare(text: str) -> str:
    text = text.strip()
    is_quoted = len(text) > 1 and text[0] == text[-1] and text[0] in "\"'"
    return text[1:-1] if is_quoted else text


def _distinct(name: str, values: Sequence[Any]) -> tuple[Any, ...]:
    found: dict[str, Any] = {}
    for value in values:
        if repr(value) in found:
            raise UserError(f"{name} has the value {text_of(value)} twice", "name it once", EX_USAGE)
        found[repr(value)] = value
    return tuple(found.values())


def text_of(value: Any) -> str:
    """A value as it is written on a command line."""
    return value if isinstance(value, str) else json.dumps(value, default=str)
