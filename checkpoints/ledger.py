"""The ledger: one create-only numbered object per verdict, the only way back from judging to learning.

Old entries live on, thinned, in sealed snapshots: every entry up to a number, in one create-only file;
`checkpoints.retention` says what is kept and when. What the entries amount to is in `checkpoints.entries`.
"""

from __future__ import annotations

import threading
import time
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from checkpoints.entries import KINDS, LedgerEntry
from checkpoints.manifest import open_sealed, seal
from checkpoints.store import (
    LEDGER,
    BadKey,
    BlobStore,
    CheckpointError,
    Damaged,
    FutureFormat,
    KeyExists,
    KeyMissing,
    OnDamage,
    ledger_key,
    ledger_number,
    listed,
    numbered,
)

FORMAT = 1
"""Of sealed snapshots, and of the marks that write a lost entry off."""
REMEDY = "the one before it and the entries after that are read instead; restore it from a copy"
folded_number = numbered(r"ledger/folded-([0-9]{10})\.json")
"""Inverse of `folded_key`."""
lost_number = numbered(r"ledger/lost-([0-9]{10})\.json")
"""Inverse of `lost_key`."""


def folded_key(through: int) -> str:
    """Where the snapshot of all entries up to number `through` lives."""
    return f"{LEDGER}folded-{through:010d}.json"


def lost_key(n: int) -> str:
    """Where the mark lives that writes off what begins with entry `n`."""
    return f"{LEDGER}lost-{n:010d}.json"


def folded_bytes(through: int, entries: Iterable[dict[str, Any]]) -> bytes:
    """Sealed JSON of a snapshot."""
    return seal({"format": FORMAT, "through": through, "entries": list(entries)})


def read_folded(store: BlobStore, through: int) -> list[dict[str, Any]]:
    """The entries of the snapshot up to number `through`, ascending, each as JSON fields.

    Raises Damaged or FutureFormat; KeyMissing where there is none (now).
    """
    key = folded_key(through)
    with _remedied(REMEDY):
        _, at = open_sealed(store.get(key), key, (FORMAT,), "ledger snapshot format")
        if (stated := at.integer("through", low=1)) != through:
            raise Damaged("mismatch", key, f"says it is of the entries up to {stated}")
        entries = at.sequence("entries")
        at.nothing_left()
        if not all(isinstance(entry, dict) for entry in entries):
            raise Damaged("malformed", key, "holds what is no entry")
    return entries


@contextmanager
def _remedied(remedy: str) -> Iterator[None]:
    """What is damaged, or no plain file, is Damaged with this remedy."""
    try:
        yield
    except BadKey as error:
        raise Damaged("mismatch", error.place, error.problem, remedy) from error
    except FutureFormat:
        raise
    except Damaged as error:
        raise Damaged(error.kind, error.place, error.problem, remedy) from error


def lost_bytes(n: int, through: int, by: str, reason: str, at: str) -> bytes:
    """Sealed JSON of the mark that the entries `n` to `through` are written off."""
    return seal({"format": FORMAT, "n": n, "through": through, "by": by, "reason": reason, "at": at})


def written_off_through(store: BlobStore, n: int) -> int | None:
    """The last number of what the mark `n` writes off; None without one. A damaged mark is none."""
    key = lost_key(n)
    try:
        return open_sealed(store.get(key), key, (FORMAT,), "ledger mark")[1].integer("through", low=n)
    except (KeyMissing, BadKey, Damaged):
        return None


LOST = (
    "restore it from a copy, or write it off (`tripletd models write-off`); until then what it said does not "
    "count, and all other entries do"
)

FULL_LOOK_S = 10.0
"""Between two full looks of `poll`, which otherwise only asks whether there is a next entry."""
_TRIES = 8


@dataclass(frozen=True, slots=True)
class _Folded:
    """The snapshot that stands for all entries up to number `through`."""

    through: int = 0
    entries: tuple[LedgerEntry, ...] = ()


class Ledger:
    """Append and read verdicts in `store`; many processes may append at once, many threads use one object.

    What it has read it remembers, so that each entry is read once: the newest sealed snapshot and the entries
    after it, whose number is bounded as long as somebody folds (see `checkpoints.retention`).
    """

    def __init__(self, store: BlobStore) -> None:
        self._store = store
        self._lock = threading.RLock()
        self._folded = _Folded()
        self._known: dict[int, LedgerEntry] = {}
        self._all: list[LedgerEntry] = []
        self._last = 0
        self._checked_at: float | None = None
        self._reported: set[str] = set()
        self._spoilt: set[int] = set()
        self._written_off: dict[int, int] = {}

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
        number = self.last() + 1 if after is None else after + 1
        while True:
            wanted = LedgerEntry(**({"at": stamp} | entry), n=number)
            try:
                self._put(wanted)
            except KeyExists:
                if after is not None:
                    raise
                number = max(number, self.last()) + 1
            else:
                return wanted

    def entries(self, after: int = 0, report: OnDamage | None = None) -> list[LedgerEntry]:
        """Readable entries with `n > after`, ascending. Not to be altered.

        What is damaged, or missing before the last, is passed over as if it had never been said; `report` is
        called with each once in the life of this object. Raises Damaged only when nothing can be listed.
        """
        with self._lock:
            self._refresh(report, after)
            return self._after(after)

    def poll(self, after: int = 0, report: OnDamage | None = None) -> list[LedgerEntry]:
        """`entries`, at the price of one question while nothing is new: whether there is a next entry.

        The same list as before where nothing has changed. What that question cannot tell (an entry after a
        gap, a restored one) is found by a full look every FULL_LOOK_S.
        """
        with self._lock:
            due = self._checked_at is None or time.monotonic() - self._checked_at >= FULL_LOOK_S
            if due or self._has_next():
                self._refresh(report, after)
            return self._after(after)

    def last(self) -> int:
        """The highest number taken, by an entry that can be read or not; 0 without any."""
        numbers, folded, _ = self._listed()
        return max([*numbers, *folded, self._folded.through])

    def unreadable(self) -> list[int]:
        """Numbers of the entries that are damaged, or missing below the highest (the first of each gap),
        ascending: what they said is lost, and may have been anything. Those written off are not among them.
        """
        return [number for number, read in self._walked() if isinstance(read, Damaged)]

    def whole(self) -> list[LedgerEntry]:
        """Every entry, ascending. Raises Damaged when one cannot be read: what it protects is not known."""
        found = []
        for _, read in self._walked():
            if not isinstance(read, LedgerEntry):
                raise read
            found.append(read)
        return found

    def lost(self) -> dict[int, tuple[int, Damaged]]:
        """What `unreadable` names: first number -> the last one of the gap (itself where it is there and
        damaged), and why.
        """
        found: dict[int, tuple[int, Damaged]] = {}
        open_gap: int | None = None
        for number, read in self._walked():
            if open_gap is not None:
                found[open_gap] = number - 1, found[open_gap][1]
            open_gap = number if isinstance(read, Damaged) and read.kind == "missing" else None
            if isinstance(read, Damaged):
                found[number] = number, read
        return found

    def write_off(self, n: int, by: str, reason: str) -> int:
        """Count entry `n`, which cannot be read (and those of the gap that begins there), as ones that said
        nothing: for good, and by everybody. The last number that it is of.

        ValueError where no lost entry or gap begins; WriteFailed from the disk.
        """
        lost = self.lost()
        if n not in lost:
            raise ValueError(f"entry {n} of the ledger is not one that cannot be read")
        at = datetime.now(UTC).isoformat(timespec="milliseconds")
        with suppress(KeyExists):
            self._store.put_new(lost_key(n), [lost_bytes(n, lost[n][0], by, reason, at)])
        return lost[n][0]

    def complete(self) -> tuple[list[LedgerEntry], int, int]:
        """Entries up to the first that cannot be read; the number up to which that is everything that was
        ever said; and the number up to which a snapshot stands for it.
        """
        with self._lock:
            walked = list(self._walk())
            end = next((number - 1 for number, read in walked if isinstance(read, Damaged)), self._last)
            entries = [read for _, read in walked if isinstance(read, LedgerEntry) and read.n <= end]
            return entries, end, self._folded.through

    def _put(self, wanted: LedgerEntry) -> None:
        """Raises KeyExists also where the number belongs to the past.

        A writer that was suspended between choosing the number and writing may find it free again: others
        took it, and it was folded and deleted. A snapshot is there before the entries it stands for go, so a
        look after writing tells.
        """
        key = ledger_key(wanted.n)
        self._store.put_new(key, [wanted.to_json()])
        _, folded, _ = self._listed()
        if max(folded, default=0) < wanted.n:
            return
        with self._lock:
            self._refresh(None, 0)
            if wanted in self._folded.entries:
                return  # folded meanwhile, as it should be
        self._store.delete(key)
        raise KeyExists(key, "was taken and has been folded since")

    def _after(self, after: int) -> list[LedgerEntry]:
        if not after:
            return self._all
        return self._all[bisect_right(self._all, after, key=lambda entry: entry.n) :]

    def _has_next(self) -> bool:
        try:
            self._store.get(ledger_key(self._last + 1))
        except KeyMissing:
            return False
        except CheckpointError:
            pass
        return True

    def _refresh(self, report: OnDamage | None, after: int) -> None:
        """Bring what is remembered up to date, and tell of what cannot be read after `after`."""
        found = []
        for number, read in self._walk():
            if isinstance(read, LedgerEntry):
                found.append(read)
            elif number > after:
                self._tell(report, str(number), read)
        for through in sorted(self._spoilt):
            self._tell(report, f"folded {through}", self._why_spoilt(through))
        if found != self._all:
            self._all = found
        self._checked_at = time.monotonic()

    def _why_spoilt(self, through: int) -> CheckpointError:
        try:
            read_folded(self._store, through)
        except CheckpointError as error:
            return error
        return Damaged("unreadable", folded_key(through), "could not be read a moment ago")

    def _walked(self) -> list[tuple[int, LedgerEntry | Damaged]]:
        with self._lock:
            return list(self._walk())

    def _walk(self) -> Iterator[tuple[int, LedgerEntry | Damaged]]:
        """(number, entry or why it cannot be read), ascending."""
        numbers, written_off = self._take_stock()
        yield from ((entry.n, entry) for entry in self._folded.entries)
        wanted = self._folded.through + 1
        for number in numbers:
            if number > wanted:
                yield from ((first, _gap(first, last)) for first, last in _left(wanted, number, written_off))
            try:
                yield number, self._read(number)
            except Damaged as error:
                if not any(first <= number <= last for first, last in written_off):
                    yield number, error
            wanted = number + 1

    def _take_stock(self) -> tuple[list[int], list[tuple[int, int]]]:
        """Take up the newest snapshot; numbers of the entries after it, all read that are there, and what is
        written off, as (first, last).

        Entries vanish once two snapshots stand for them: a reader that misses one looks for these again.
        """
        for _ in range(_TRIES):
            listed, folded, lost = self._listed_again()
            self._take_up(folded)
            numbers = [n for n in listed if n > self._folded.through]
            if all(self._is_there(number) for number in numbers):
                break
        self._last = max([*numbers, self._folded.through])
        for n in lost:
            if n not in self._written_off and (through := written_off_through(self._store, n)) is not None:
                self._written_off[n] = through
        return numbers, sorted((n, self._written_off[n]) for n in lost if n in self._written_off)

    def _is_there(self, number: int) -> bool:
        """Whether the entry has not gone since it was listed; what is damaged is there."""
        try:
            self._read(number)
        except Damaged as error:
            return error.kind != "missing"
        return True

    def _take_up(self, folded: Sequence[int]) -> None:
        """Read the newest snapshot that can be read, unless one that is as new is remembered."""
        for through in sorted(folded, reverse=True):
            if through <= self._folded.through:
                break
            try:
                found = read_folded(self._store, through)
                entries = tuple(LedgerEntry.of_record(one, folded_key(through)) for one in found)
            except (KeyMissing, Damaged):
                self._spoilt.add(through)
                continue
            self._folded = _Folded(through, entries)
            self._known = {n: entry for n, entry in self._known.items() if n > through}
            break
        self._spoilt = {n for n in self._spoilt if n in folded and n > self._folded.through}

    def _tell(self, report: OnDamage | None, what: str, error: CheckpointError) -> None:
        if report is not None and what not in self._reported:
            self._reported.add(what)
            report(error)

    def _listed(self) -> tuple[list[int], list[int], list[int]]:
        """Numbers of entries, of snapshots, and of entries written off; each ascending."""
        keys = listed(self._store, LEDGER, ledger_key, _last_said, first=1)
        kinds = (ledger_number, folded_number, lost_number)
        entries, folded, lost = (sorted(n for n in map(of, keys) if n is not None) for of in kinds)
        return entries, folded, lost

    def _listed_again(self) -> tuple[list[int], list[int], list[int]]:
        """All entries. A listing during an append may show an entry and not the one before it."""
        numbers, folded, lost = self._listed()
        last, through = max(numbers, default=0), max([*folded, self._folded.through])
        if last - through > sum(n > through for n in numbers):
            again, folded, lost = self._listed()
            numbers = sorted({*numbers, *(n for n in again if n < last)})
        return numbers, folded, lost

    def _read(self, number: int) -> LedgerEntry:
        if number not in self._known:
            key = ledger_key(number)
            try:
                with _remedied(LOST):
                    entry = LedgerEntry.from_json(self._store.get(key), key)
                    if entry.n != number:
                        raise Damaged("mismatch", key, f"says it is entry {entry.n}")
            except KeyMissing:
                raise _gap(number, number) from None
            self._known[number] = entry
        return self._known[number]


def _last_said(key: str) -> int | None:
    entry = ledger_number(key)
    return folded_number(key) if entry is None else entry


def _left(first: int, end: int, written_off: Sequence[tuple[int, int]]) -> Iterator[tuple[int, int]]:
    """The runs (first, last) of the numbers from `first` to before `end` that nobody has written off."""
    for begin, last in written_off:
        if first <= last and begin < end:
            if first < begin:
                yield first, begin - 1
            first = last + 1
    if first < end:
        yield first, end - 1


def _gap(first: int, last: int) -> Damaged:
    problem = "is not there" if first == last else f"and all up to {ledger_key(last)} are not there"
    return Damaged("missing", ledger_key(first), f"{problem}, though later entries are", LOST)
