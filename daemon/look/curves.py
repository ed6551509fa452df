"""Learning curves: every version's training loss and measures over its position, as one history.

The history is put together from manifests (also of pruned versions) and the ledger, never from what a process
remembers, so it is the same after a restart, a rollback or a replay.

A version's parent says what it continued from, so versions form a tree. The current line is the newest
version and all its ancestors. The others (versions after the point that a rollback or a branch went back to,
or that were abandoned because a newer one could not be read) form lines of their own, each from the version
where it left another line. Records learned again are drawn at the same positions, on the current line.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any

from checkpoints import Ledger, LedgerEntry, Manifest, VersionStore
from checkpoints.pruned import lines_of, newest_fold
from checkpoints.store import CheckpointError, Damaged
from daemon.look.overview import read_entries, summary
from daemon.versions.contents import APPLIED, LOSS_SUM, RECORDS, counted
from daemon.versions.reference import Reference, reference_of
from daemon.versions.verdict import NAMES, PlainAnswer, Stopped


@dataclass(frozen=True, slots=True)
class Branch:
    """Version numbers of one line, ascending; `left`: the version of another line it continued from."""

    left: int | None
    numbers: tuple[int, ...]


def lines(parents: Mapping[int, int | None]) -> list[Branch]:
    """The current line first, then those left behind, the newest of them first.

    `parents`: version -> the version it continued from, None for the first. A parent that is not among the
    versions (its manifest is lost) is taken for the newest known version before it.
    """
    known = sorted(parents)
    taken: set[int] = set()
    found = []
    for newest in reversed(known):
        if newest in taken:
            continue
        numbers: list[int] = []
        at: int | None = newest
        while at is not None and at not in taken:
            taken.add(at)
            numbers.append(at)
            at = _before(parents, known, at)
        found.append(Branch(at, tuple(reversed(numbers))))
    return found


def _before(parents: Mapping[int, int | None], known: list[int], number: int) -> int | None:
    parent = parents[number]
    if parent is None or (parent in parents and parent < number):
        return parent
    limit = min(parent, number - 1)
    return max((one for one in known if one <= limit), default=None)


@dataclass(frozen=True, slots=True)
class VersionPlace:
    """One version: what it continued from, how far it had come, and when.

    `records`: records passed since version 0, the position that every line shares; `events`: events stepped
    over, rejected ones left out; `loss_sum`: their hinge losses added up. `marks`: what else than learning
    the next records led here, in words ("continued from version 5", "gap"). `epoch`: of its writer, another
    after a restart.
    """

    number: int
    parent: int | None
    created: str
    epoch: int
    records: int
    events: int
    loss_sum: float
    marks: tuple[str, ...] = ()


def place_of(manifest: Manifest) -> VersionPlace:
    """The position of a version."""
    fields = ("number", "parent", "created", "epoch", "counters", "schedule")
    return _place({name: getattr(manifest, name) for name in fields})


def places_of_pruned(lines: Iterable[Mapping[str, Any]]) -> Iterator[VersionPlace]:
    """The same of the lines that pruning left; one that was damaged when it was pruned has no place."""
    for line in lines:
        with suppress(KeyError, TypeError, ValueError, AttributeError):
            yield _place(line)


def _place(manifest: Mapping[str, Any]) -> VersionPlace:
    parent, counters = manifest["parent"], manifest["counters"]
    return VersionPlace(
        number=int(manifest["number"]),
        parent=None if parent is None else int(parent),
        created=str(manifest["created"]),
        epoch=int(manifest["epoch"]),
        records=counted(counters, RECORDS),
        events=counted(counters, *APPLIED),
        loss_sum=float(counters.get(LOSS_SUM, 0.0)),
        marks=tuple(_mark(entry) for entry in manifest["schedule"] if isinstance(entry, Mapping)),
    )


def _mark(entry: Mapping[str, Any]) -> str:
    kind = str(entry.get("control"))
    return f"continued from version {entry.get('from_version')}" if kind == "branch" else kind


REFERENCE = "version_0"
TITLES = NAMES
"""Measures that have a curve, in order of weight; a ledger may hold more (they are in the CSV)."""
LOSS = "training_loss"
LOSS_TITLE = "training loss (mean hinge, before each step)"
LEAST_EVENTS = 500
"""Of a mean loss: single losses vary by about their mean, and 500 give it to within some 5 %."""
SHOWN_ORDER: Mapping[str, str | float] = {"map_shown": "shown_order_map", "position_balanced": 0.5}
"""What the order the user saw reaches by the same measure: another measure's name, or a constant."""


@dataclass(frozen=True, slots=True)
class Point:
    """One version.

    `records` passed since version 0 (None for a version that only the ledger still knows) and `events`
    learned. `loss`: mean hinge loss of its newest events, each taken before its step: those since its parent,
    or since an older version where these are fewer than `LEAST_EVENTS`; None without any. `measures` and
    version 0's on the same window in `reference`, both empty for a version that was not judged; `verdict`:
    what the newest judgment says.
    """

    version: int
    events: int
    records: int | None = None
    created: str = ""
    epoch: int = 0
    loss: float | None = None
    marks: tuple[str, ...] = ()
    measures: Mapping[str, float] = field(default_factory=dict)
    reference: Mapping[str, float] = field(default_factory=dict)
    verdict: str = ""

    @property
    def judged(self) -> bool:
        """Whether it has a measure that has a curve."""
        return any(kind in self.measures for kind in TITLES)

    def value(self, kind: str) -> float | None:
        """A measure, or the training loss as `LOSS`; None where there is none."""
        return self.loss if kind == LOSS else self.measures.get(kind)

    def shown_order(self, kind: str) -> float | None:
        """What the order the user saw reaches by `kind` on the same window."""
        known = SHOWN_ORDER.get(kind) if kind in self.measures else None
        return self.measures.get(known) if isinstance(known, str) else known


@dataclass(frozen=True, slots=True)
class CurveLine:
    """Versions that follow each other, by rising number; `left`: what it continued from on another line."""

    left: Point | None
    points: tuple[Point, ...]

    def series(self, kind: str) -> CurveSeries:
        """One measure (or `LOSS`) of the versions that have it, from where this line left another one."""
        drawn = self.points if self.left is None else (self.left, *self.points)
        known = [(point, value) for point in drawn if (value := point.value(kind)) is not None]
        return CurveSeries(
            [point.version for point, _ in known],
            [point.events for point, _ in known],
            [value for _, value in known],
            [None if kind == LOSS else point.reference.get(kind) for point, _ in known],
            [point.shown_order(kind) for point, _ in known],
        )


@dataclass(frozen=True, slots=True)
class CurveSeries:
    """Version, events learned, a measure; on the same window version 0's and the shown order's, or None."""

    versions: list[int]
    events: list[int]
    values: list[float]
    reference: list[float | None]
    shown_order: list[float | None]


@dataclass(frozen=True, slots=True)
class Curves:
    """The current line first, then those left behind; the best version, the STOP in force, and the newest
    answer to "is it better for my users?". reference: what version 0 is called; lost: why it is not the
    user's own ranking, a sentence, "" where it is.
    """

    lines: tuple[CurveLine, ...]
    best: int | None
    stopped_by: str | None
    verdict: PlainAnswer | None = None
    stop: Stopped | None = None
    reference: str = "version 0"
    lost: str = ""

    @property
    def current(self) -> CurveLine:
        """The line that is learned on; without any version an empty one."""
        return self.lines[0] if self.lines else CurveLine(None, ())

    @property
    def judged(self) -> list[Point]:
        """Judged versions of the current line."""
        return [point for point in self.current.points if point.judged]

    def kinds(self) -> list[str]:
        """Measures that have a title and at least one value, in the titles' order."""
        known = {kind for line in self.lines for point in line.points for kind in point.measures}
        return [kind for kind in TITLES if kind in known]

    def drawn(self) -> list[str]:
        """`kinds`, and the training loss where it is known."""
        known = any(point.loss is not None for line in self.lines for point in line.points)
        return [*self.kinds(), *([LOSS] if known else [])]

    def best_point(self) -> Point | None:
        """The best version, if it was judged."""
        points = (point for line in self.lines for point in line.points)
        return next((point for point in points if point.version == self.best and point.judged), None)


def curves_of(places: Iterable[VersionPlace], entries: Iterable[LedgerEntry]) -> Curves:
    """Put the history together; a version judged again has its newest judgment alone."""
    standing = {place.number: place for place in places}
    entries = list(entries)
    judgments = {entry.version: entry for entry in entries if entry.version is not None and _judges(entry)}
    parents = {number: place.parent for number, place in standing.items()}
    for number in judgments:  # known to the ledger alone: taken to follow what came before it
        parents.setdefault(number, number - 1 if number else None)
    points = {
        number: _point(number, standing.get(number), _loss(standing, number), judgments.get(number))
        for number in parents
    }
    found = tuple(
        CurveLine(
            None if one.left is None else points[one.left], tuple(points[number] for number in one.numbers)
        )
        for one in lines(parents)
    )
    stands = summary(entries)
    return Curves(found, stands.best, stands.stopped_by, stands.verdict, stands.stop)


def _judges(entry: LedgerEntry) -> bool:
    """A KEEP with measures; that of a version that was refused has none."""
    values = _numbers(entry.measures)
    return entry.kind == "KEEP" and "events" in values and any(kind in values for kind in TITLES)


def _point(
    number: int, place: VersionPlace | None, loss: float | None, judgment: LedgerEntry | None
) -> Point:
    measures: Mapping[str, Any] = {} if judgment is None else judgment.measures
    reference = measures.get(REFERENCE)
    own = _numbers(measures)
    stands: dict[str, Any] = {"events": int(own.get("events", 0))}
    if place is not None:
        names = ("events", "records", "created", "epoch", "marks")
        stands = {name: getattr(place, name) for name in names}
    return Point(
        version=number,
        loss=loss,
        measures=own,
        reference=_numbers(reference) if isinstance(reference, Mapping) else {},
        verdict="" if judgment is None else judgment.reason,
        **stands,
    )


def _loss(standing: Mapping[int, VersionPlace], number: int) -> float | None:
    """Mean loss of the events between a version and its parent, or an older ancestor where these are few: the
    last version before a stop may have a handful. None where the parent is lost or no events came."""
    place = standing.get(number)
    before = _parent(standing, place)
    if place is None or before is None or place.events <= before.events:
        return None
    while place.events - before.events < LEAST_EVENTS and (older := _parent(standing, before)) is not None:
        before = older
    return (place.loss_sum - before.loss_sum) / (place.events - before.events)


def _parent(standing: Mapping[int, VersionPlace], place: VersionPlace | None) -> VersionPlace | None:
    return None if place is None or place.parent is None else standing.get(place.parent)


def _numbers(measures: Mapping[str, Any]) -> dict[str, float]:
    return {
        name: float(value)
        for name, value in measures.items()
        if isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
    }


class CurveReader:
    """The history of one checkpoint folder. Not safe between threads.

    It holds some hundred bytes per version whose line is left, and reads the lines that pruning left only
    when a version is missing that it has not seen, or when they were thinned.
    """

    def __init__(self, versions: VersionStore, ledger: Ledger) -> None:
        self._versions, self._ledger = versions, ledger
        self._places: dict[int, VersionPlace] = {}
        self._unread: set[int] = set()
        self._newest: int | None = None
        self._fold = 0
        self._reference: Reference | None = None
        self.notes: list[str] = []

    def read(self) -> Curves:
        """The history as it is now; `notes`: what was passed over. Damaged when nothing can be listed."""
        entries, self.notes = read_entries(self._ledger)
        self._read_places()
        known, found = self._reference, curves_of(self._places.values(), entries)
        if known is None:
            return found
        return replace(found, reference=known.name, lost="" if known.own else known.description)

    def _read_places(self) -> None:
        listed = set(self._versions.versions())
        fold = newest_fold(self._versions.store)
        if fold != self._fold:
            self._places, self._unread, self._newest, self._fold = {}, set(), None, fold
        for number in sorted(listed - self._places.keys()):
            try:
                manifest = self._versions.manifest(number)
                self._places[number] = place_of(manifest)
                self._reference = reference_of(manifest.map)
            except CheckpointError as error:
                self._unread.add(number)
                self.notes.append(str(error))
        newest = max(listed, default=-1)
        between = () if self._newest is None else range(self._newest + 1, newest)
        missing = {*between, *self._unread} - listed - self._places.keys()
        if self._newest is None or missing - set(self._versions.listing.claims()):
            try:
                for place in places_of_pruned(lines_of(self._versions.store)):
                    self._places.setdefault(place.number, place)
            except Damaged as error:
                self.notes.append(str(error))
                return
        self._newest = max(-1 if self._newest is None else self._newest, newest)
        self._unread &= listed
