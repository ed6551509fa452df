"""What a backfill reads, who reads what, and what its versions record of it. Pure.

W is a function of the units (what is read, in which order, by content), of how they are shared out, and of
the settings: that is what the control entry `backfill` in a version's schedule holds, with how far each shard
is. So a run that was killed goes on from its newest version to the same bits, and another run can check them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from checkpoints.manifest import Manifest
from daemon.exits import EX_DATAERR, UserError
from daemon.learn.state import BACKFILL

SAID = 3
"""Differences that a message names."""


@dataclass(frozen=True, slots=True)
class Unit:
    """What one shard reads from its beginning to its end: a file, the files of a folder together, or a
    stretch of a log.

    name: as it was given. paths: the files; none of a log. size: bytes, or records. digest: xxh3_128 (hex) of
    the content; of a log the id of its topic. partition, start, stop: of a log, offsets [start, stop).
    """

    name: str
    paths: tuple[str, ...]
    size: int
    digest: str
    partition: int = 0
    start: int = 0
    stop: int = 0

    @classmethod
    def read(cls, fields: Mapping[str, Any]) -> Unit:
        """Inverse of `asdict`."""
        return cls(**{**fields, "paths": tuple(fields["paths"])})


@dataclass(frozen=True, slots=True)
class UnitPlace:
    """How far a shard has come: `unit` of its units, `items` of that one (of a log: offsets passed)."""

    unit: int = 0
    items: int = 0


@dataclass(frozen=True, slots=True)
class Recipe:
    """What W depends on besides the units and the learner's own settings.

    shards: learners side by side. merge_events: events that each learns between two merges. version_events:
    events of all between two versions, where known ids and caps are united as well. merge_by: as
    `shards.merge_by`. feed: the settings of [feed] that triplets are made by, as JSON. format, mapping: as
    `tripletd feed`; mapping_digest: of the mapping's text. now_ms: the time of lists that carry none.
    """

    shards: int
    merge_events: int
    version_events: int
    merge_by: str
    feed: Mapping[str, Any]
    format: str | None
    mapping: str | None
    mapping_digest: str
    now_ms: int


@dataclass(frozen=True, slots=True)
class HistoryProgress:
    """What a version says of the backfill it belongs to. base: number of the version it began from. fed:
    records of all shards so far. at: where each shard is. done: whether all is learned."""

    recipe: Recipe
    units: tuple[Unit, ...]
    base: int
    fed: int
    at: tuple[UnitPlace, ...]
    done: bool = False

    def entry(self) -> dict[str, Any]:
        """As a schedule has it."""
        return {
            "control": BACKFILL,
            "recipe": asdict(self.recipe),
            "units": [asdict(one) | {"paths": list(one.paths)} for one in self.units],
            "base": self.base,
            "fed": self.fed,
            "at": [[place.unit, place.items] for place in self.at],
            "done": self.done,
        }

    @classmethod
    def in_version(cls, manifest: Manifest) -> HistoryProgress | None:
        """Of the backfill that a version was written by; None for others. Raises UserError for an entry that
        this release cannot read."""
        found = [one for one in manifest.schedule if isinstance(one, dict) and one["control"] == BACKFILL]
        if not found:
            return None
        entry = found[-1]
        try:
            return cls(
                Recipe(**entry["recipe"]),
                tuple(Unit.read(one) for one in entry["units"]),
                int(entry["base"]),
                int(entry["fed"]),
                tuple(UnitPlace(int(unit), int(items)) for unit, items in entry["at"]),
                bool(entry["done"]),
            )
        except (KeyError, TypeError, ValueError) as error:
            message = f"version {manifest.number} records a backfill that cannot be read: {error!r}"
            raise UserError(message, "use the release that wrote it", EX_DATAERR) from error


def shared_out(units: Sequence[Unit], shards: int) -> list[list[Unit]]:
    """The units of each shard, in the order given: each goes to the one that has least so far, the first one
    where several have."""
    shares: list[list[Unit]] = [[] for _ in range(shards)]
    sizes = [0] * shards
    for unit in units:
        shard = sizes.index(min(sizes))
        shares[shard].append(unit)
        sizes[shard] += max(1, unit.size)
    return shares


def begins(recipe: Recipe, units: Sequence[Unit], base: int) -> HistoryProgress:
    """Of a backfill that has read nothing yet."""
    return HistoryProgress(recipe, tuple(units), base, 0, (UnitPlace(),) * recipe.shards)


def goes_on(known: HistoryProgress, recipe: Recipe, units: Sequence[Unit]) -> HistoryProgress:
    """The progress to continue with `known`, for the same units and settings. Raises UserError naming what
    differs. The time of lists without one, and where a log ended, are those of the first run."""
    if found := differences(known.recipe, known.units, recipe, units):
        what, differ = found
        raise UserError(
            f"the newest version belongs to a backfill that is not finished, and {what} differ: "
            f"{some(differ)}",
            "give the same files and options to finish it, or name an empty folder with checkpoints.path",
            EX_DATAERR,
        )
    return known


def differences(
    known: Recipe, of: Sequence[Unit], recipe: Recipe, units: Sequence[Unit]
) -> tuple[str, list[str]] | None:
    """In what a recipe with its units differs from a known one of the units `of`: what it is about, and each
    difference; None where they are the same. The time of lists without one does not count."""
    if differ := changed(asdict(known), asdict(recipe) | {"now_ms": known.now_ms}):
        return "its settings", differ
    mine, theirs = [_known_by(one) for one in units], [_known_by(one) for one in of]
    if mine == theirs:
        return None
    gone = [f"{name} is not given or has changed" for name, *_ in theirs if (name, *_) not in mine]
    new = [f"{name} is new or has changed" for name, *_ in mine if (name, *_) not in theirs]
    return "what is read", gone + new or ["the order"]


def _known_by(unit: Unit) -> tuple[str, str, int, int]:
    """A stretch of a log is known by where it begins: a log grows."""
    size = unit.size if unit.paths else 0
    return unit.name, unit.digest, size, unit.start


def changed(known: Mapping[str, Any], now: Mapping[str, Any]) -> list[str]:
    """A line for each name whose value is another one now."""
    return [
        f"{name} is {now.get(name)!r}, was {known.get(name)!r}"
        for name in {**known, **now}
        if now.get(name) != known.get(name)
    ]


def some(differ: Sequence[str]) -> str:
    """The first of them in one line, and how many more there are."""
    return "; ".join([*differ[:SAID], *([f"{len(differ) - SAID} more"] if len(differ) > SAID else [])])
