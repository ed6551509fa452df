"""Which version an alias is to serve now, decided purely from what is listed, said and served."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from checkpoints.aliases import BEST, LATEST, MOVES, STABLE, meaning
from checkpoints.ledger import LedgerEntry


@dataclass(frozen=True, slots=True)
class ServedVersion:
    """What answers: the version's number, and the number of the ledger entry that chose it (0 for none)."""

    number: int
    entry: int = 0


@dataclass(frozen=True, slots=True)
class Keep:
    """Nothing is loaded. why: why nothing newer is served, "" when there is nothing newer. older: a version
    that is refused because it is older. entry: the ledger entry behind what is served, 0 for none.
    """

    why: str = ""
    older: int | None = None
    entry: int = 0


@dataclass(frozen=True, slots=True)
class Load:
    """Load this version; `entry` as in `Served`."""

    number: int
    entry: int = 0


@dataclass(frozen=True, slots=True)
class StoreListing:
    """What one look found: versions listed, readable ledger entries, and what is barred for now with why."""

    versions: Sequence[int]
    entries: Sequence[LedgerEntry]
    barred: Mapping[int, str]


def choose(name: str, seen: StoreListing, served: ServedVersion | None, awaited: bool = False) -> Keep | Load:
    """Load the version that `name` means when it is newer than the one served, or was chosen by a later
    entry.

    What is barred is passed over: for `latest` the next older version is tried; another name keeps what it
    serves, and where it serves nothing yet, goes back through what it meant before. awaited: the step log is
    about to bring what is newer, so that no newer version is loaded.
    """
    why = ""
    for number, entry in _candidates(name, seen, served is None):
        if served is not None and number == served.number:
            return Keep(why, entry=max(entry, served.entry))
        if number in seen.barred:
            why = why or seen.barred[number]
            continue
        if served is None:
            return Load(number, entry)
        if number > served.number and awaited:
            return Keep(f"version {number} is awaited from the step log", entry=served.entry)
        if number > served.number or entry > served.entry:
            return Load(number, entry)
        if why:
            break
        told = f"version {number} is older than {served.number}, and no verdict moved {name} back to it"
        return Keep(told, number, served.entry)
    return Keep(why or _nothing(name, served), entry=served.entry if served else 0)


def _candidates(name: str, seen: StoreListing, nothing_served: bool) -> list[tuple[int, int]]:
    """Versions to serve under `name`, the wanted one first, each with the ledger entry that chose it."""
    if name == LATEST:
        return [(number, 0) for number in sorted(seen.versions, reverse=True)]
    now = meaning(name, seen.versions, seen.entries)
    found = [] if now.version is None else [(now.version, now.said)]
    if nothing_served:
        found += _earlier(name, seen)
    return list({number: (number, entry) for number, entry in reversed(found)}.values())[::-1]


def _earlier(name: str, seen: StoreListing) -> list[tuple[int, int]]:
    """What `name` meant before, newest first: better than nothing while what it means cannot be loaded.

    The entry is 0, so that the wanted version is loaded as soon as it can be, even when it is an older one.
    """
    names = (STABLE, BEST) if name == STABLE else (name,)
    moved = [e for e in seen.entries if e.kind in MOVES and e.alias in names]
    versions = [e.version for e in sorted(moved, key=lambda e: e.n, reverse=True)]
    return [(number, 0) for number in versions if number is not None and number in seen.versions]


def _nothing(name: str, served: ServedVersion | None) -> str:
    return f"{name} means no version that is there" if served is None else ""
