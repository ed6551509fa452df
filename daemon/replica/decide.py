"""What a replica decides, purely: which version an alias is to serve now, and what each segment of the step
log means.

A replica follows one writer: it joins at the cut of the version it has loaded, takes every segment that
hangs on the one before, compares itself with each new base at that base's cut, and is lost as soon as
something is missing or does not fit. Lost, it waits for a version to begin from. Writers are known by
their random tokens: segments of a learner of another checkpoint folder are passed by, whatever their
epochs and version numbers are.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias

from checkpoints.entries import BEST, LATEST, MOVES, STABLE, LedgerEntry, meaning
from streams.steps.segment import Base, Body, Break, ChainPosition, RankOneSteps, Segment, Taken, Triplets


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
        why = f"version {number} is older than {served.number}, and no verdict moved {name} back to it"
        return Keep(why, number, served.entry)
    nothing = f"{name} means no version that is there" if served is None else ""
    return Keep(why or nothing, entry=served.entry if served else 0)


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


CUTS_KEPT = 64
"""Cuts whose places are remembered: versions become durable within a few of them."""
WRITERS_KEPT = 64
"""Writers of the versions that were served, of whom others may take over."""


@dataclass(frozen=True, slots=True)
class Cut:
    """A place of the log where a version stands: the segment's place and chain value, the offset after it,
    and the version that its writer began from where it is the first of its epoch.

    digest: of the replica's own W there, None where the replica only passed by.
    """

    place: ChainPosition
    chain: bytes
    next_offset: int
    origin: Base | None = None
    digest: str | None = None


@dataclass(frozen=True, slots=True)
class Apply:
    """Take these steps. records: how many the replica has after them. whole: that state is one between two
    records, which may be shown. compares: at the end the line's `at_cut` is told the digest of W. again: the
    records from the first of these steps on that were in answers before, these or more.
    """

    steps: Taken
    records: int
    whole: bool
    compares: bool = False
    again: int = 0


@dataclass(frozen=True, slots=True)
class Relabel:
    """The version is what the replica had at `records`: it stands behind this one from now on."""

    number: int
    records: int


@dataclass(frozen=True, slots=True)
class Lost:
    """The log cannot be followed from here, for `reason`, a key of REASONS. reload: the version to load at
    once though it is not newer than the one served; None: wait for a newer one.
    """

    reason: str
    reload: int | None = None


REASONS = {
    "gap": "segments are missing",
    "chain": "a segment does not hang on the one before",
    "digest": "the replica's own state is not that of a version at its cut",
    "writer": "another writer continues from an earlier state",
    "break": "the learner left steps out",
    "steps": "steps do not fit the model",
    "log": "the step log was expired, cut or created again",
    "error": "following failed because of a bug; the log has details",
}

SegmentMeaning: TypeAlias = Apply | Relabel | Lost | None


class WriterLine:
    """Call `begin` for each loaded version, then `hear` with every segment in the order of the log.

    joined: segments are being taken. lost: only a version can help. Neither: the version's cut is looked for,
    and segments are passed by. records: the writer's that were taken. whole: what was taken ends between two
    records. compares: the replica's W is to be the writer's, to the bit; where others'
    steps are taken as well it never is, and nothing is compared.
    """

    relabels = True
    """Whether a newer version may be what the replica has already."""

    def __init__(self, compares: bool = True) -> None:
        self._compares = compares
        self.joined = self.lost = False
        self._version = self._base_records = self.records = self._shown = -1
        self.whole = True
        self._author = ""
        self._writers: deque[str] = deque(maxlen=WRITERS_KEPT)
        self._at = Cut(ChainPosition(-1, -1, -1, ""), b"", 0)
        self._cuts: OrderedDict[tuple[str, int], Cut] = OrderedDict()

    def begin(self, version: int, records: int, writer: str) -> int | None:
        """Stand at a loaded version: its number, its records, the token of the writer that wrote it.

        The offset to read on from where its cut was passed by already; None: look for it, by `hear`.
        """
        self._version, self._base_records, self.records, self._author = version, records, records, writer
        self.joined, self.lost, self.whole = False, False, True
        self._remember(writer)
        cuts = [cut for (_, at), cut in self._cuts.items() if at == records and self._begins_here(cut)]
        if not cuts:
            return None
        self._join(max(cuts, key=lambda cut: cut.place.epoch))
        return self._at.next_offset

    def hear(self, segment: Segment, next_offset: int) -> SegmentMeaning:
        """What the segment means; `next_offset` is the offset behind its last record."""
        cut = _cut(segment, next_offset)
        if cut is not None:
            self._note(cut[0], cut[1])
        if not self.joined:
            return self._look_for_the_cut(segment, cut)
        place, at = segment.place, self._at
        if place.writer != at.place.writer:
            return self._another_writer(segment, cut)
        if place.seq <= at.place.seq:
            return None  # it was sent twice
        if place.seq != at.place.seq + 1:
            return self.lose("gap")
        if segment.before != at.chain:
            return self.lose("chain")
        self._at = Cut(place, segment.after, next_offset)
        return self._next(segment.body)

    def at_cut(self, digest: str) -> None:
        """The replica's own W at the cut that it was just given to apply."""
        key = (self._at.place.writer, self.records)
        self._cuts[key] = replace(self._cuts[key], digest=digest)

    def mark_shown(self) -> None:
        """What was taken is in answers now: where the log is read again, or was written again by a writer
        that began from an earlier state, those records are no news.
        """
        self._shown = max(self._shown, self.records)

    def _look_for_the_cut(self, segment: Segment, cut: tuple[int, Cut] | None) -> SegmentMeaning:
        if self.lost:
            return None
        if cut is not None and cut[0] == self._base_records and self._begins_here(cut[1]):
            self._join(cut[1])
            return None
        body, place = segment.body, segment.place
        passed = isinstance(body, RankOneSteps | Triplets) and self._base_records <= body.first < body.last
        named = isinstance(body, Base) and body.number == self._version and place.seq > 0
        return self.lose("gap") if place.writer == self._author and (passed or named) else None

    def _another_writer(self, segment: Segment, cut: tuple[int, Cut] | None) -> SegmentMeaning:
        """A writer that has taken over says first which version it began from; all others are passed by:
        those that were succeeded, and those of another folder.
        """
        body = segment.body
        if cut is None or not isinstance(body, Base) or cut[1].origin is None:
            return None
        if segment.place.epoch <= self._at.place.epoch or body.writer not in self._writers:
            return None
        mine = self._cuts.get((self._at.place.writer, body.records))
        here = self.whole and self.records == body.records
        if here and body.number == self._version:
            self._join(cut[1])
            return None
        if here and mine is not None and (mine.digest == body.digest or not self._compares):
            self._join(cut[1])
            return self._relabel(body) if self._compares else None
        return self.lose("writer", body.number if body.number >= self._version else None)

    def _next(self, body: Body) -> SegmentMeaning:
        if isinstance(body, Break):
            return self.lose("break")
        if isinstance(body, Base):
            return self._compare(body)
        if body.first != self.records:
            return self.lose("gap")
        if body.last > body.first:
            self.whole = True
        elif len(body) or body.project:
            self.whole = False
        self.records = body.last
        if body.cut and not self._compares:
            self._join_successor()
        again = max(self._shown - body.first, 0)
        return Apply(body, body.last, self.whole, body.cut and self._compares, again)

    def _join_successor(self) -> None:
        """Where a later writer is known to have begun here, it is followed: what the one before wrote after
        this version was learned again."""
        at = self._at.place
        later = [
            cut
            for cut in self._cuts.values()
            if cut.origin is not None
            and (cut.origin.writer, cut.origin.records) == (at.writer, self.records)
            and cut.place.epoch > at.epoch
        ]
        if later:
            self._join(max(later, key=lambda cut: cut.place.epoch))

    def _compare(self, base: Base) -> SegmentMeaning:
        """Whether the replica, when it stood at this version's cut, was that version."""
        mine = self._cuts.get((self._at.place.writer, base.records))
        if mine is None:
            return None  # of before this replica joined
        if mine.chain != base.chain:
            return self.lose("chain", base.number)
        if base.number <= self._version or mine.digest is None or not self._compares:
            return None
        return self._relabel(base) if mine.digest == base.digest else self.lose("digest", base.number)

    def _relabel(self, base: Base) -> Relabel:
        self._version = base.number
        return Relabel(base.number, base.records)

    def _begins_here(self, cut: Cut) -> bool:
        """Whether the log continues after this cut from the loaded version, whose records it has."""
        if cut.origin is not None:
            return (cut.origin.number, cut.origin.writer) == (self._version, self._author)
        return cut.place.writer == self._author

    def _join(self, cut: Cut) -> None:
        self.joined, self._at = True, cut
        self._remember(cut.place.writer)

    def _remember(self, writer: str) -> None:
        if writer not in self._writers:
            self._writers.append(writer)

    def lose(self, reason: str, reload: int | None = None) -> Lost:
        """Left, as where the replica failed to apply the steps or the log could not be read further."""
        self.joined, self.lost = False, True
        return Lost(reason, reload)

    def _note(self, records: int, cut: Cut) -> None:
        known = self._cuts.get((cut.place.writer, records))
        if known is not None and (known.place, known.chain) == (cut.place, cut.chain):
            cut = replace(cut, digest=known.digest)  # it was sent twice
        self._cuts[cut.place.writer, records] = cut
        while len(self._cuts) > CUTS_KEPT:
            self._cuts.popitem(last=False)


def _cut(segment: Segment, next_offset: int) -> tuple[int, Cut] | None:
    """(records, cut) where a version stands at the end of this segment."""
    place, body = segment.place, segment.body
    if isinstance(body, Base) and place.seq == 0:
        return body.records, Cut(place, segment.after, next_offset, body)
    if isinstance(body, RankOneSteps | Triplets) and body.cut:
        return body.last, Cut(place, segment.after, next_offset)
    return None
