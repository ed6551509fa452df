"""Entries of the ledger, and what they amount to, as pure folds: names for versions, and the stop in force.

Names: `latest` is the newest version listed; `best` is the validator's; `stable` is what people promoted, and
until they do it is `best`, and without that version 0; `own` is version 0, the ranking that users had; any
other name is one that people pinned or promoted. A number written out is that version.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, fields
from typing import Any

from checkpoints.manifest import RecordFields, open_sealed, seal

FORMAT = 1
KINDS = ("KEEP", "PROMOTE", "ROLLBACK", "STOP", "RESUME")

LATEST = "latest"
BEST = "best"
STABLE = "stable"
OWN = "own"
FIRST = 0
"""The untrained version: what `stable` means while nothing was ever judged best."""
MOST_DIGITS = 64
"""Longest text that is read as a version's number: reading thousands of digits is an error of its own."""
MOVES = ("PROMOTE", "ROLLBACK")
STOP = "STOP"
RESUME = "RESUME"
PAUSE = "pause"
"""Key of the measures that makes a STOP the learner's own pause, and a RESUME the end of a pause only."""
ANCHOR = "anchor"
"""Key of a judgment's measures: the version that the next ones are compared with."""
PIN = "pin"
"""Key of the measures that makes a PROMOTE a pin: a name given to one version, which no promotion moves."""


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
        return seal({"format": FORMAT, **self.record()})

    def record(self) -> dict[str, Any]:
        """Its fields as JSON has them."""
        return {one.name: getattr(self, one.name) for one in fields(self)}

    @staticmethod
    def from_json(data: bytes, place: str) -> LedgerEntry:
        """Strict inverse of `to_json`; raises Damaged or FutureFormat naming `place`."""
        return LedgerEntry._read(open_sealed(data, place, (FORMAT,), "ledger format")[1])

    @staticmethod
    def of_record(record: dict[str, Any], place: str) -> LedgerEntry:
        """Strict inverse of `record`; raises Damaged naming `place`."""
        return LedgerEntry._read(RecordFields(record, place))

    @staticmethod
    def _read(at: RecordFields) -> LedgerEntry:
        entry = LedgerEntry(
            n=at.integer("n", low=1),
            kind=at.text("kind"),
            version=at.optional("version", at.integer),
            alias=at.optional("alias", at.text),
            by=at.text("by"),
            reason=at.text("reason"),
            measures=_with_shared_names(at.mapping("measures")),
            at=at.text("at"),
        )
        at.nothing_left()
        if entry.kind not in KINDS:
            at.refuse("kind", f"{entry.kind!r} is not one of {', '.join(KINDS)}")
        return entry


def _with_shared_names(value: Any) -> Any:
    """The same with one string for each name: entries are read one by one and say the same names."""
    if isinstance(value, dict):
        return {sys.intern(name): _with_shared_names(inner) for name, inner in value.items()}
    return value


@dataclass(frozen=True, slots=True)
class Meaning:
    """What a name means, and why.

    version: None when the name was never given, was taken away, or points at a version that is not there.
    entry: the move that decides it; None for `latest`, a number, and version 0 as the last fallback.
    through: the name that `entry` carries: `best` where `stable` was never promoted; else the name itself.
    said: number of the newest entry that has a part in it, 0 for none: `entry`, or the one that took the
    name's own target away. It grows with each move that was meant, also of one back to an older version.
    doubts: numbers of unreadable ledger entries that may have moved it since: what they said does not count,
    so the last readable intention stands, and where the name is shown it is marked as in doubt.
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
    """`aliases`, `stable` also where it means `best` or version 0, and `own`: what each name is answered
    with.
    """
    found = aliases(entries)
    return {STABLE: found.get(BEST, FIRST), OWN: FIRST, **found}


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
    if name == OWN and own is None:
        doubts = ()  # nobody is allowed to move it
    target = entry.version if entry is not None else None
    if target is None and name in (STABLE, OWN):  # a name `own` that people once gave stays theirs
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
    """Versions that retention keeps: what aliases point at, one step back for those that people move, and the
    one that the next is compared with.
    """
    written = list(entries)
    found = aliases(written)
    steps_back = (before(name, written) for name in moves(written) if name != BEST)
    compared = [(entry.n, entry.measures[ANCHOR]) for entry in written if ANCHOR in entry.measures]
    kept = (*steps_back, *(anchor for _, anchor in sorted(compared)[-1:]))
    return {*found.values(), *(number for number in kept if isinstance(number, int))}


def _move(stack: list[int | None], entry: LedgerEntry) -> None:
    back = entry.kind == "ROLLBACK" and entry.version is not None
    if back and entry.version in stack:
        while stack[-1] != entry.version:
            stack.pop()
    elif back:
        stack[-1:] = [entry.version]
    elif stack[-1:] != [entry.version]:
        stack.append(entry.version)


def is_pause(entry: LedgerEntry) -> bool:
    """Whether a STOP is the learner's own pause, or a RESUME lifts a pause only."""
    return PAUSE in entry.measures


def stop_in_force(entries: Iterable[LedgerEntry], before: LedgerEntry | None = None) -> LedgerEntry | None:
    """The STOP that no later RESUME has lifted; None when there is none. Pauses do not count.

    `before` is the one in force before `entries`, so that a reader of the ledger can fold what is new.
    """
    return _standing((entry for entry in entries if not is_pause(entry)), before)


def pause_in_force(entries: Iterable[LedgerEntry], before: LedgerEntry | None = None) -> LedgerEntry | None:
    """The learner's own pause that was not lifted since; `before` as in `stop_in_force`.

    Pauses and early stops are two latches: neither is lifted by what lifts the other.
    """
    return _standing((entry for entry in entries if is_pause(entry)), before)


def _standing(entries: Iterable[LedgerEntry], before: LedgerEntry | None) -> LedgerEntry | None:
    found = before
    for entry in sorted(entries, key=lambda e: e.n):
        if entry.kind in (STOP, RESUME):
            found = entry if entry.kind == STOP else None
    return found
