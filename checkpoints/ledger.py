"""The ledger: one create-only numbered object per verdict, the only way back from judging to learning."""

from __future__ import annotations

from collections.abc import Iterator
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
