"""What a long history keeps, by age: everything of a day, one an hour of a month, one a day beyond. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any, TypeVar

from checkpoints.entries import ANCHOR, BEST, MOVES, STABLE, LedgerEntry, is_pause

T = TypeVar("T")
HOUR_S, DAY_S, MONTH_S = 3600.0, 86_400.0, 30 * 86_400.0
MOST_WHOLE = 10_000
"""Newest ones kept whole within the day: with more versions a day the older ones count as of yesterday."""
NEWEST = 1000
"""Newest judgments, and moves of a name, that stay whatever their age: where versions are rare nothing is
thinned, and patience (`validate.patience_events`) counts what it counted.
"""
NEWEST_TURNS = 64
"""Stops and resumptions that stay, and moves of `best`."""


def seconds(at: str) -> float | None:
    """A time in ISO 8601 as Unix seconds; None where it is none."""
    try:
        moment = datetime.fromisoformat(at)
    except ValueError:
        return None
    return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()


def by_age(ascending: Sequence[T], at: Callable[[T], float | None], now: float) -> list[T]:
    """What stays: the last one of each bucket of its age, and all whose time is not known.

    Buckets are hours and days of the calendar, so that thinning what is thin already changes nothing. now: a
    time; one that lies beyond the newest of them is cut back to it, so that no wrong clock ages them.
    """
    times = [at(one) for one in ascending]
    now = min([now, *([max(known)] if (known := [t for t in times if t is not None]) else [])])
    kept, taken, whole = [], set(), 0
    for one, moment in zip(reversed(ascending), reversed(times), strict=True):
        if moment is None:
            kept.append(one)
            continue
        age = now - moment
        if age < DAY_S and whole < MOST_WHOLE:
            whole += 1
            kept.append(one)
            continue
        bucket = ("hour", moment // HOUR_S) if age < MONTH_S else ("day", moment // DAY_S)
        if bucket not in taken:
            taken.add(bucket)
            kept.append(one)
    return kept[::-1]


def thinned(entries: Sequence[LedgerEntry], versions: Iterable[int], now: float) -> list[LedgerEntry]:
    """The entries of `entries` (ascending, from the first) that a ledger continues with; of verdicts on keys
    those that count for a version.

    They amount to the same as all of them: every name with the way it came, the stop and the pause in force,
    the best version with every judgment that led to it since the last RESUME, the verdict on every key for
    each of `versions` (those kept, so that they can be named). The rest is kept by age.
    now: Unix seconds, see `by_age`.
    """
    keep = {entry.n for entry in entries[-NEWEST:]}
    for group in _groups(entries).values():
        keep |= {entry.n for entry in by_age(group, lambda entry: seconds(entry.at), now)}
        keep |= {entry.n for entry in group[-NEWEST_TURNS:]}
    judged = [entry for entry in entries if entry.kind == "KEEP"]
    keep |= {entry.n for entry in judged[-NEWEST:]}
    keep |= _of_names(entries, now) | _of_stops(entries) | _of_best(entries)
    lines = _lines_of_keys(judged, set(versions))
    kept = [entry for entry in entries if entry.n in keep or entry.n in lines]
    return [_with_keys(one, lines.get(one.n, set())) if _names_keys(one) else one for one in kept]


KEYS, REFUSED = "keys", "refused"
"""Of a judgment's measures: key -> its verdict; that of a version which must never be best."""


def _groups(entries: Iterable[LedgerEntry]) -> dict[Any, list[LedgerEntry]]:
    """Judgments, moves of `best`, stops: thinned each by themselves. Other names are not thinned by age."""
    found: dict[Any, list[LedgerEntry]] = {}
    for entry in entries:
        if entry.kind not in MOVES or entry.alias in (BEST, None):
            kind = "turn" if entry.kind in ("STOP", "RESUME") else entry.kind
            found.setdefault((kind, is_pause(entry)), []).append(entry)
    return found


def _of_names(entries: Sequence[LedgerEntry], now: float) -> set[int]:
    """The newest moves of every name that people gave; `best` as it was when `stable` was first promoted."""
    moved: dict[str, list[LedgerEntry]] = {}
    best: LedgerEntry | None = None
    keep: set[int] = set()
    for entry in entries:
        if entry.kind in MOVES and entry.alias is not None:
            if entry.alias == STABLE and STABLE not in moved and best is not None:
                keep.add(best.n)
            moved.setdefault(entry.alias, []).append(entry)
            best = entry if entry.alias == BEST else best
    for alias, group in moved.items():
        last = seconds(group[-1].at)
        forgotten = group[-1].version is None and last is not None and now - last > MONTH_S
        if alias != BEST and not forgotten:
            keep |= {entry.n for entry in (group[0], *group[-NEWEST:])}
    keep |= {group[-1].n for alias, group in moved.items() if alias == BEST}
    return keep


def _of_stops(entries: Sequence[LedgerEntry]) -> set[int]:
    """The last turns of either latch, so that a lifted pause still tells where it was made."""
    turns = [entry for entry in entries if entry.kind in ("STOP", "RESUME")]
    pauses = [entry for entry in turns if is_pause(entry)]
    stops = [entry for entry in turns if not is_pause(entry)]
    resumed = [entry for entry in stops if entry.kind == "RESUME"]
    return {entry.n for entry in (*pauses[-4:], *stops[-4:], *resumed[-1:])}


def _of_best(entries: Sequence[LedgerEntry]) -> set[int]:
    """What the best version rests on: since the last RESUME every judgment of version 0, of what was best
    then, and of what has been best since; their refusals at any time; the move of `best` before that RESUME.

    A judgment that names what the next ones are compared with stands for those before it: of these, only that
    of the best version now.
    """
    resumed = max((e.n for e in entries if e.kind == "RESUME" and not is_pause(e)), default=0)
    best_moves = [e for e in entries if e.kind in MOVES and e.alias == BEST]
    before = [e for e in best_moves if e.n < resumed]
    since = [e for e in best_moves if e.n > resumed]
    deciding = {0, *(e.version for e in (*before[-1:], *since))}
    judged = [e for e in entries if e.kind == "KEEP" and e.version in deciding]
    alone = {e.version for e in judged if ANCHOR in e.measures} - {e.version for e in best_moves[-1:]} - {0}
    judged = [e for e in judged if e.version not in alone or REFUSED in e.measures]
    keep = {e.n for e in judged if e.n > resumed or REFUSED in e.measures}
    return keep | {e.n for e in (*before[-1:], *since) if e.version not in alone}


def _names_keys(entry: LedgerEntry) -> bool:
    return isinstance(entry.measures.get(KEYS), Mapping)


def _lines_of_keys(judged: Sequence[LedgerEntry], versions: set[int]) -> dict[int, set[str]]:
    """Entry -> the keys whose verdict, in force for one of `versions` or for a later one, it holds."""
    of_version = {one.version: one for one in judged if one.version is not None and _names_keys(one)}
    found: dict[int, set[str]] = {}
    if of_version:  # from the first judgment on, a key without a verdict is not answered by its model
        found[of_version[min(of_version)].n] = set()
    in_force: dict[str, list[LedgerEntry]] = {}
    asked = sorted(versions)
    at = 0
    for number in sorted(of_version):
        while at < len(asked) and asked[at] < number:
            _note(in_force, found)
            at += 1
        entry = of_version[number]
        for key in entry.measures[KEYS]:
            in_force[key] = [*in_force.get(key, [])[-1:], entry]
    _note(in_force, found)
    return found


def _note(in_force: Mapping[str, list[LedgerEntry]], found: dict[int, set[str]]) -> None:
    """Two of each key: the one before counts again when the version is judged once more, without it."""
    for key, entries in in_force.items():
        for entry in entries:
            found.setdefault(entry.n, set()).add(key)


def _with_keys(entry: LedgerEntry, keys: set[str]) -> LedgerEntry:
    """The entry with the lines of these keys alone: a later entry repeats what it says of other keys."""
    left = {key: line for key, line in entry.measures[KEYS].items() if key in keys}
    return replace(entry, measures={**entry.measures, KEYS: left})
