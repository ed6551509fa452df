"""A mapping: what the columns of a click log mean. It is written as TOML; `FORMATS.md` has every key.

Four kinds of rows are known. `impressions`: a row is a shown list. `shown`: a row is one object of a shown
list. `events`: rows are impressions (or pieces of them), clicks, and others. `triplets`: a row is a query, a
clicked and a skipped object.
"""

from __future__ import annotations

import difflib
import re
import tomllib
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from streams.feed.items import FeedError
from streams.feed.mapping.paths import ColumnPath, parse_path
from streams.text_files import read_text

IMPRESSIONS, SHOWN, EVENTS, TRIPLETS = ROWS = ("impressions", "shown", "events", "triplets")
"""What a row can be."""

UNITS = {"s": 1_000, "ms": 1, "us": 0.001, "ns": 0.000_001}
"""Milliseconds of a unit of time, for times that are plain numbers."""

WINDOW = 50_000
"""Impressions that are under way at a time; of 20 objects each, some 200 MB."""

ANY, NONE = "*", ""
"""In `where`: any value; none, or an empty one."""

_RECIPES = Path(__file__).parent / "recipes"

_COMMON = frozenset({"rows", "time", "time_unit", "id", "query", "source", "key", "where"})

_KEYS = {
    IMPRESSIONS: _COMMON
    | {"shown", "clicked", "clicked_positions", "first_position", "propensity", "separator"},
    SHOWN: _COMMON | {"object", "position", "propensity", "click", "window"},
    EVENTS: _COMMON | {"impression", "click", "join", "within", "window", "separator"},
    TRIPLETS: _COMMON | {"clicked", "skipped", "weight", "propensity"},
}

_REQUIRED = {
    IMPRESSIONS: ("time", "query", "shown"),
    SHOWN: ("id", "time", "query", "object", "click"),
    EVENTS: ("time", "query", "impression", "click"),
    TRIPLETS: ("query", "clicked", "skipped"),
}


@dataclass(frozen=True, slots=True)
class Condition:
    """A column holds one of these texts; numbers and truth values are compared as text."""

    path: ColumnPath
    values: frozenset[str]


Where = tuple[Condition, ...]


@dataclass(frozen=True, slots=True)
class ShownRows:
    """Which rows tell what was shown, and how: `objects` in one row (a list), or `object` of a row each."""

    where: Where
    objects: ColumnPath | None = None
    object: ColumnPath | None = None
    position: ColumnPath | None = None
    propensity: ColumnPath | None = None


@dataclass(frozen=True, slots=True)
class ClickRows:
    """Which rows tell of a click, and of which object; no object: of the one that the row shows."""

    where: Where
    object: ColumnPath | None = None


@dataclass(frozen=True, slots=True)
class ClickLogMapping:
    """What `feed` needs to know of rows; paths that a kind of rows does not use are None or empty.

    `id`: one column is the id as it stands, several are hashed together; none: an id is made of all that the
    impression says. `join`: the columns that impressions and clicks have in common; empty: those of the id.
    """

    name: str
    rows: str
    time: ColumnPath | None
    unit_ms: float
    query: ColumnPath
    id: tuple[ColumnPath, ...] = ()
    source: ColumnPath | None = None
    key: ColumnPath | None = None
    where: Where = ()
    shown: tuple[ShownRows, ...] = ()
    click: ClickRows | None = None
    clicked: ColumnPath | None = None
    positions: ColumnPath | None = None
    first_position: int = 0
    separator: str | None = None
    join: tuple[ColumnPath, ...] = ()
    within_ms: int | None = None
    window: int = WINDOW
    skipped: ColumnPath | None = None
    weight: ColumnPath | None = None
    propensity: ColumnPath | None = None
    named: Mapping[str, ColumnPath] = field(default_factory=dict)
    """Every path by the key that names it."""


def recipes() -> tuple[str, ...]:
    """The names of the mappings that come along."""
    return tuple(sorted(path.stem for path in _RECIPES.glob("*.toml")))


def recipe_text(name: str) -> str:
    """A mapping that comes along, as TOML. Raises FeedError for a name there is none of."""
    if name not in recipes():
        near = difflib.get_close_matches(name, recipes(), 1)
        remedy = f"did you mean {near[0]}?" if near else f"use one of {', '.join(recipes())}"
        raise FeedError(f"there is no mapping called {name!r}", remedy)
    return (_RECIPES / f"{name}.toml").read_text(encoding="utf-8")


def load_mapping(given: str) -> ClickLogMapping:
    """The mapping of that name, or in the TOML file of that path. Raises FeedError."""
    if not given.endswith(".toml"):
        return read_mapping(recipe_text(given), given)
    try:
        text = read_text(Path(given))
    except (OSError, ValueError) as error:
        said = getattr(error, "strerror", None) or error
        raise FeedError(f"the mapping {given} cannot be read: {said}", "correct --mapping") from None
    return read_mapping(text, given)


def read_mapping(text: str, name: str) -> ClickLogMapping:
    """A mapping from its TOML; `name` is what errors call it. Raises FeedError."""
    try:
        table = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise FeedError(f"{name} is no TOML: {error}", "correct the file there") from None
    except (ValueError, RecursionError):
        raise FeedError(f"{name}: a number is too long, or it is nested too deeply", _REMEDY) from None
    try:
        return _mapping(table, name)
    except ValueError as error:
        raise FeedError(f"{name}: {error}", _REMEDY) from None


_REMEDY = "streams/feed/FORMATS.md has every key; --show-mapping ga4 prints an example"


def _mapping(table: dict[str, Any], name: str) -> ClickLogMapping:
    rows = table.get("rows")
    if rows not in ROWS:
        raise ValueError(f"rows is {rows!r}; say what a row is: {', '.join(ROWS)}")
    _check_keys(table, _KEYS[rows], f"of rows = {rows!r}")
    for key in _REQUIRED[rows]:
        if key not in table:
            raise ValueError(f"{key} is missing; rows = {rows!r} needs it")
    named: dict[str, ColumnPath] = {}
    get = _Getter(table, "", named)
    unit = table.get("time_unit", "ms")
    if unit not in UNITS:
        raise ValueError(f"time_unit is {unit!r}; use one of {', '.join(UNITS)}")
    row = ShownRows((), *(get.path(key) for key in ("shown", "object", "position", "propensity")))
    mapping = ClickLogMapping(
        name=name,
        rows=rows,
        time=get.path("time"),
        unit_ms=UNITS[unit],
        query=get.required("query"),
        id=get.several("id"),
        source=get.path("source"),
        key=get.path("key"),
        where=get.where(),
        shown=tuple(_shown(one, named) for one in _tables(table, "impression")) if rows == EVENTS else (row,),
        click=_click(table["click"], rows, named) if "click" in table else None,
        clicked=get.path("clicked"),
        positions=get.path("clicked_positions"),
        first_position=_whole(table, "first_position", 0, 0),
        separator=_text(table, "separator"),
        join=get.several("join"),
        within_ms=_duration(table["within"]) if "within" in table else None,
        window=_whole(table, "window", WINDOW, 1),
        skipped=get.path("skipped"),
        weight=get.path("weight"),
        propensity=get.path("propensity"),
        named=named,
    )
    _check_sense(mapping)
    return mapping


def _check_sense(mapping: ClickLogMapping) -> None:
    if mapping.rows == IMPRESSIONS and (mapping.clicked is None) == (mapping.positions is None):
        raise ValueError("name the clicks: either clicked (ids of objects) or clicked_positions")
    if mapping.rows == EVENTS and not mapping.join and not mapping.id:
        raise ValueError("join is missing: the columns that an impression and its clicks have in common")
    if mapping.join and mapping.join != mapping.id and mapping.within_ms is None:
        raise ValueError(
            'join needs within, such as within = "30m": how long after an impression its clicks may come'
        )
    listed = ("id", "time", "query", "object", "source", "key", "position", "join", "skipped", "weight")
    for key, path in mapping.named.items():
        if path.is_list and "where." in key:
            raise ValueError(f"{key} looks into a list; a row is chosen by one value, such as that at [0]")
        # the places of the objects of a list are a list, as the objects are
        places = key.startswith("impression") and key.endswith(".position")
        if path.is_list and key.rpartition(".")[2].partition("[")[0] in listed and not places:
            raise ValueError(f"{key} = {path.text!r} gives a list; name one entry, such as [0]")


def _shown(table: dict[str, Any], named: dict[str, ColumnPath]) -> ShownRows:
    _check_keys(table, {"where", "shown", "object", "position", "propensity"}, "of [impression]")
    name = "impression" if not any(key.startswith("impression.") for key in named) else "impression+"
    get = _Getter(table, f"{name}.", named)
    if ("shown" in table) == ("object" in table):
        raise ValueError("[impression] needs either shown (a list of ids) or object (one id of a row)")
    return ShownRows(get.where(), *(get.path(key) for key in ("shown", "object", "position", "propensity")))


def _click(table: Any, rows: str, named: dict[str, ColumnPath]) -> ClickRows:
    if not isinstance(table, dict):
        raise ValueError("click is a table; write [click]")
    _check_keys(table, {"where", "object"} if rows == EVENTS else {"where"}, "of [click]")
    get = _Getter(table, "click.", named)
    if not get.where():
        raise ValueError('[click] needs where, such as where.event = "click": which rows are clicks')
    return ClickRows(get.where(), get.required("object") if rows == EVENTS else None)


class _Getter:
    def __init__(self, table: Mapping[str, Any], prefix: str, named: dict[str, ColumnPath]) -> None:
        self._table, self._prefix, self._named = table, prefix, named

    def path(self, key: str) -> ColumnPath | None:
        return self._path(key, self._table[key]) if key in self._table else None

    def required(self, key: str) -> ColumnPath:
        if key not in self._table:
            raise ValueError(f"{self._prefix}{key} is missing")
        return self._path(key, self._table[key])

    def several(self, key: str) -> tuple[ColumnPath, ...]:
        value = self._table.get(key, [])
        if isinstance(value, str):
            return (self._path(key, value),)
        if not isinstance(value, list):
            raise ValueError(f"{self._prefix}{key} is {value!r}; name a column, or several in a list")
        return tuple(self._path(f"{key}[{at}]", one) for at, one in enumerate(value))

    def where(self) -> Where:
        return tuple(self._conditions(self._table.get("where", {})))

    def _conditions(self, given: Any) -> Iterator[Condition]:
        if not isinstance(given, dict):
            raise ValueError(f"{self._prefix}where is {given!r}; write where.column = value")
        for column, value in _flat(given):
            values = value if isinstance(value, list) else [value]
            if not values or not all(isinstance(one, str | int | float) for one in values):
                raise ValueError(f"{self._prefix}where.{column} is {value!r}; give a value, or several")
            texts = frozenset(text for one in values for text in _texts(one))
            yield Condition(self._path(f"where.{column}", column), texts)

    def _path(self, key: str, value: Any) -> ColumnPath:
        if not isinstance(value, str) or not value.strip():
            raise ValueError(f"{self._prefix}{key} is {value!r}; name a column")
        path = parse_path(value)
        self._named[self._prefix + key] = path
        return path


def _flat(table: dict[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """`where.a.b = 1` is TOML's way of writing the path `a.b`."""
    for name, value in table.items():
        if isinstance(value, dict):
            yield from _flat(value, f"{prefix}{name}.")
        else:
            yield prefix + name, value


def _texts(value: Any) -> tuple[str, ...]:
    if isinstance(value, bool):
        return ("true", "True", "TRUE") if value else ("false", "False", "FALSE")
    if isinstance(value, int | float) and float(value).is_integer():
        return (str(int(value)), str(float(value)))
    return (str(value),)


def _tables(table: Mapping[str, Any], key: str) -> list[dict[str, Any]]:
    value = table[key]
    found = value if isinstance(value, list) else [value]
    if not found or not all(isinstance(one, dict) for one in found):
        raise ValueError(f"{key} is a table; write [{key}], or [[{key}]] where several kinds of rows are one")
    return found


def _check_keys(table: Mapping[str, Any], known: Collection[str], where: str) -> None:
    for key in table:
        if key not in known:
            near = difflib.get_close_matches(key, known, 1)
            hint = f"did you mean {near[0]}?" if near else f"known are {', '.join(sorted(known))}"
            raise ValueError(f"{key} is no key {where}; {hint}")


def _whole(table: Mapping[str, Any], key: str, default: int, least: int) -> int:
    value = table.get(key, default)
    if type(value) is not int or value < least:
        raise ValueError(f"{key} is {value!r}; use a whole number from {least}")
    return value


def _text(table: Mapping[str, Any], key: str) -> str | None:
    value = table.get(key)
    if value is not None and (not isinstance(value, str) or not value):
        raise ValueError(f"{key} is {value!r}; use a text")
    return value


_DURATION = re.compile(r"(\d+) ?(s|m|h|d)")


def _duration(value: Any) -> int:
    found = _DURATION.fullmatch(value) if isinstance(value, str) else None
    if found is None:
        raise ValueError(f'within is {value!r}; write a time such as "90s", "30m", "2h" or "1d"')
    return int(found[1]) * {"s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}[found[2]]
