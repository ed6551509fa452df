"""The ledger: one create-only numbered object per verdict, the only way back from judging to learning.

What its entries amount to are pure folds over them: names for versions, and the stop in force.

Names: `latest` is the newest version listed; `best` is the validator's; `stable` is what people promoted, and
until they do it is `best`, and without that version 0; any other name is one that people pinned or promoted.
A number written out is that version.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from checkpoints.manifest import RecordFields, seal, unseal
from checkpoints.store import (
    LEDGER,
    BadKey,
    BlobStore,
    Damaged,
    FutureFormat,
    KeyExists,
    KeyMissing,
    Report,
    ledger_key,
    ledger_number,
)

FORMAT = 1
KINDS = ("KEEP", "PROMOTE", "ROLLBACK", "STOP", "RESUME")
LOST = "restore it from a copy; until then what it said does not count, and all other entries do"


@dataclass(frozen=True, kw_only=True)
class LedgerEntry:
    """One verdict. `n` orders entries (from 1); PROMOTE and ROLLBACK move `alias` to `version`."""

    n: int
    kind: str
    version: int | None = None
    alias: str | None = None
    by: str = ""
    reason: str = ""
    measures: dict[str, Any] = field(default_factory=dict)
    at: str = ""

    def to_json(self) -> bytes:
        """Sealed JSON. ValueError for values that JSON cannot carry."""
        return seal(
            {
                "format": FORMAT,
                "n": self.n,
                "kind": self.kind,
                "version": self.version,
                "alias": self.alias,
                "by": self.by,
                "reason": self.reason,
                "measures": self.measures,
                "at": self.at,
            }
        )

    @staticmethod
    def from_json(data: bytes, place: str) -> LedgerEntry:
        """Strict inverse of `to_json`; raises Damaged or FutureFormat naming `place`."""
        record = unseal(data, place)
        if record.get("format") != FORMAT or isinstance(record.get("format"), bool):
            raise FutureFormat(place, record.get("format"), f"ledger format {FORMAT}")
        at = RecordFields(record, place)
        at.integer("format")
        entry = LedgerEntry(
            n=at.integer("n", low=1),
            kind=at.text("kind"),
            version=at.optional("version", at.integer),
            alias=at.optional("alias", at.text),
            by=at.text("by"),
            reason=at.text("reason"),
            measures=at.mapping("measures"),
            at=at.text("at"),
        )
        at.nothing_left()
        if entry.kind not in KINDS:
            raise Damaged("malformed", place, f"field kind: {entry.kind!r} is not one of {', '.join(KINDS)}")
        return entry


class Ledger:
    """Append and read verdicts in `store`; many processes may append at once."""

    def __init__(self, store: BlobStore) -> None:
        self._store = store
        self._known: dict[int, LedgerEntry] = {}
        self._told: set[int] = set()

    def append(self, entry: dict[str, Any], after: int | None = None) -> LedgerEntry:
        """Write `entry` {kind, version?, alias?, by?, reason?, measures?} under the next free number.

        Durable when it returns; the loser of a race takes the next number, or, where `after` is given, writes
        nothing: the entry then comes right after number `after` (0: as the first) or KeyExists is raised, for
        decisions that hold only as long as nobody has said anything else. ValueError for an unknown kind or
        field; WriteFailed from the disk.
        """
        if entry.get("kind") not in KINDS:
            raise ValueError(f"ledger kind {entry.get('kind')!r} is not one of {', '.join(KINDS)}")
        unknown = set(entry) - {"kind", "version", "alias", "by", "reason", "measures", "at"}
        if unknown:
            raise ValueError(f"unknown ledger fields: {', '.join(sorted(unknown))}")
        stamp = datetime.now(UTC).isoformat(timespec="milliseconds")
        number = max(self._numbers(), default=0) + 1 if after is None else after + 1
        while True:
            wanted = LedgerEntry(**({"at": stamp} | entry), n=number)
            try:
                self._store.put_new(ledger_key(number), [wanted.to_json()])
            except KeyExists:
                if after is not None:
                    raise
                number += 1
            else:
                return wanted

    def entries(self, after: int = 0, report: Report | None = None) -> list[LedgerEntry]:
        """Readable entries with `n > after`, ascending.

        What is damaged, or missing before the last, is passed over as if it had never been said; `report` is
        told of each once in the life of this object. Raises Damaged only when nothing can be listed.
        """
        found = []
        for number, read in self._walk(after):
            if isinstance(read, LedgerEntry):
                found.append(read)
            else:
                self._tell(report, number, read)
        return found

    def last(self) -> int:
        """The highest number taken, by an entry that can be read or not; 0 without any."""
        return max(self._numbers(), default=0)

    def unreadable(self) -> list[int]:
        """Numbers of the entries that are damaged, or missing below the highest (the first of each gap),
        ascending: what they said is lost, and may have been anything.
        """
        return [number for number, read in self._walk(0) if isinstance(read, Damaged)]

    def whole(self) -> list[LedgerEntry]:
        """Every entry, ascending. Raises Damaged when one cannot be read: what it protects is not known."""
        found = []
        for _, read in self._walk(0):
            if not isinstance(read, LedgerEntry):
                raise read
            found.append(read)
        return found

    def _walk(self, after: int) -> Iterator[tuple[int, LedgerEntry | Damaged]]:
        """(number, entry or why it cannot be read) from the one after `after` on."""
        wanted = after + 1
        for number in self._numbers_again():
            if number < wanted:
                continue
            if number > wanted:
                yield wanted, _gap(wanted, number - 1)
            try:
                yield number, self._read(number)
            except Damaged as error:
                yield number, error
            wanted = number + 1

    def _tell(self, report: Report | None, number: int, error: Damaged) -> None:
        if report is not None and number not in self._told:
            self._told.add(number)
            report(error)

    def _numbers(self) -> list[int]:
        return sorted(n for n in map(ledger_number, self._store.list(LEDGER)) if n is not None)

    def _numbers_again(self) -> list[int]:
        """The numbers there are. A listing beside an append may show an entry and not the one before."""
        numbers = self._numbers()
        last = max(numbers, default=0)
        if len(numbers) < last:
            numbers = sorted({*numbers, *(n for n in self._numbers() if n < last)})
        return numbers

    def _read(self, number: int) -> LedgerEntry:
        if number not in self._known:
            key = ledger_key(number)
            try:
                entry = LedgerEntry.from_json(self._store.get(key), key)
            except KeyMissing:
                raise _gap(number, number) from None
            except BadKey as error:
                raise Damaged("mismatch", error.place, error.problem, LOST) from error
            except FutureFormat:
                raise
            except Damaged as error:
                raise Damaged(error.kind, error.place, error.problem, LOST) from error
            if entry.n != number:
                raise Damaged("mismatch", key, f"says it is entry {entry.n}", LOST)
            self._known[number] = entry
        return self._known[number]


def _gap(first: int, last: int) -> Damaged:
    problem = "is not there" if first == last else f"and all up to {ledger_key(last)} are not there"
    return Damaged("missing", ledger_key(first), f"{problem}, though later entries are", LOST)


LATEST = "latest"
BEST = "best"
STABLE = "stable"
FIRST = 0
"""The untrained version: what `stable` means while nothing was ever judged best."""
MOST_DIGITS = 64
"""Longest text that is read as a version's number: reading thousands of digits is an error of its own."""
MOVES = ("PROMOTE", "ROLLBACK")
STOP = "STOP"
RESUME = "RESUME"
PAUSE = "pause"
"""Key of the measures that makes a STOP the learner's own pause, and a RESUME the end of a pause only."""
PIN = "pin"
"""Key of the measures that makes a PROMOTE a pin: a name given to one version, which no promotion moves."""


@dataclass(frozen=True, slots=True)
class Meaning:
    """What a name means, and why.

    version: None when the name was never given, was taken away, or points at a version that is not there.
    entry: the move that decides it; None for `latest`, a number, and version 0 as the last fallback.
    through: the name that `entry` carries: `best` where `stable` was never promoted; else the name itself.
    said: number of the newest entry that has a part in it, 0 for none: `entry`, or the one that took the
    name's own target away. It grows with each move that was meant, also of one back to an older version.
    doubts: numbers of unreadable ledger entries that may have moved it since: what they said does not count,
    so the last readable intention stands, and whoever shows the name says that it is in doubt.
    """

    name: str
    version: int | None
    entry: LedgerEntry | None = None
    through: str = ""
    said: int = 0
    doubts: tuple[int, ...] = ()


def aliases(entries: Iterable[LedgerEntry]) -> dict[str, int]:
    """Every alias with the version it points at: the last PROMOTE or ROLLBACK that carries it.

    An entry whose version is None takes the alias away.
    """
    return {name: move.version for name, move in moves(entries).items() if move.version is not None}


def names(entries: Iterable[LedgerEntry]) -> dict[str, int]:
    """`aliases`, and `stable` also where it means `best` or version 0: what each name is answered with."""
    found = aliases(entries)
    return {STABLE: found.get(BEST, FIRST), **found}


def moves(entries: Iterable[LedgerEntry]) -> dict[str, LedgerEntry]:
    """The last move (PROMOTE or ROLLBACK) of every name that ever was moved, also of those taken away."""
    found: dict[str, LedgerEntry] = {}
    for entry in sorted(entries, key=lambda e: e.n):
        if entry.kind in MOVES and entry.alias is not None:
            found[entry.alias] = entry
    return found


def resolve(name: str, versions: Sequence[int], entries: Iterable[LedgerEntry]) -> int | None:
    """The version that `name` means now, see `meaning`; None when it means none of `versions`."""
    return meaning(name, versions, entries).version


def meaning(
    name: str, versions: Sequence[int], entries: Iterable[LedgerEntry], unreadable: Iterable[int] = ()
) -> Meaning:
    """What `name` means among `versions` (ascending or not) by these ledger entries.

    A target that is not in `versions` is never replaced by another one: the version is None, and who serves
    keeps what it has. Falling back is for a `stable` that no readable entry has promoted, or one taken away.
    unreadable: numbers of entries that are damaged or missing, see `Ledger.unreadable`.
    """
    if name == LATEST:
        return Meaning(name, max(versions, default=None), through=name)
    if name.isdecimal():
        number = int(name) if len(name) <= MOST_DIGITS else None
        return Meaning(name, number if number in versions else None, through=name)
    moved, through = moves(entries), name
    entry = moved.get(name)
    if name == STABLE and (entry is None or entry.version is None):
        entry, through = moved.get(BEST), BEST
    own = moved.get(name)
    said = max((move.n for move in (own, entry) if move is not None), default=0)
    doubts = tuple(sorted(n for n in unreadable if own is None or n > own.n))
    target = entry.version if entry is not None else None
    if target is None and name == STABLE:
        target, entry, through = FIRST, None, name
    return Meaning(name, target if target in versions else None, entry, through, said, doubts)


def before(name: str, entries: Iterable[LedgerEntry]) -> int | None:
    """The version that `name` pointed at before the one it points at now: where a rollback goes.

    A promotion puts its version on top of a stack, a rollback takes off what is above its version, so that
    two rollbacks in a row go back by two; a name taken away goes back to what it pointed at. Below the
    first promotion of `stable` lies what it meant then: the best version of that time, or version 0. None
    when there is nothing to go back to.
    """
    written = sorted(entries, key=lambda e: e.n)
    stack: list[int | None] = []
    for place, entry in enumerate(written):
        if entry.kind not in MOVES or entry.alias != name:
            continue
        if not stack and name == STABLE:
            stack.append(aliases(written[:place]).get(BEST, FIRST))
        _move(stack, entry)
    return next((version for version in reversed(stack[:-1]) if version is not None), None)


def protected(entries: Iterable[LedgerEntry]) -> set[int]:
    """Versions that retention keeps: what aliases point at, and one step back for those that people move."""
    written = list(entries)
    found = aliases(written)
    steps_back = (before(name, written) for name in moves(written) if name != BEST)
    return {*found.values(), *(number for number in steps_back if number is not None)}


def _move(stack: list[int | None], entry: LedgerEntry) -> None:
    back = entry.kind == "ROLLBACK" and entry.version is not None
    if back and entry.version in stack:
        while stack[-1] != entry.version:
            stack.pop()
    elif back:
        stack[-1:] = [entry.version]
    elif stack[-1:] != [entry.version]:
        stack.append(entry.version)


def stop_in_force(entries: Iterable[LedgerEntry], before: LedgerEntry | None = None) -> LedgerEntry | None:
    """The STOP that no later RESUME has lifted; None when there is none. Pauses do not count.

    `before` is the one in force before `entries`, so that a reader of the ledger can fold what is new.
    """
    return _standing((entry for entry in entries if PAUSE not in entry.measures), before)


def pause_in_force(entries: Iterable[LedgerEntry], before: LedgerEntry | None = None) -> LedgerEntry | None:
    """The learner's own pause that was not lifted since; `before` as in `stop_in_force`.

    Pauses and early stops are two latches: neither is lifted by what lifts the other.
    """
    return _standing((entry for entry in entries if PAUSE in entry.measures), before)


def _standing(entries: Iterable[LedgerEntry], before: LedgerEntry | None) -> LedgerEntry | None:
    found = before
    for entry in sorted(entries, key=lambda e: e.n):
        if entry.kind in (STOP, RESUME):
            found = entry if entry.kind == STOP else None
    return found
