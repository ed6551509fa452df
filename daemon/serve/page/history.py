"""Curves and versions as the page draws them. Pure but for `read_history`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from checkpoints import Ledger, LedgerEntry, Manifest, VersionStore
from daemon.look.curve_reader import CurveReader
from daemon.look.curves import LOSS_TITLE, TITLES, Curves, Line, Point
from daemon.look.overview import VersionRow, version_rows
from daemon.look.readable import Readable, read_all

MOST_POINTS = 1500
"""Of one line of one measure; longer ones are thinned evenly, their last point kept."""
MOST_MOVES = 12
MOST_KEPT = 500
"""Versions offered to be compared, the newest ones."""
_DECISION = "decision"


@dataclass(frozen=True, slots=True)
class History:
    """Everything the store says: curves, kept versions, verdicts other than judgments (newest first)."""

    curves: Curves
    rows: Mapping[int, VersionRow]
    moves: Sequence[LedgerEntry]
    notes: Sequence[str]


class HistoryReader:
    """Reads the history of one store. Not safe between threads."""

    def __init__(self, versions: VersionStore, ledger: Ledger) -> None:
        self._versions = versions
        self._ledger = ledger
        self._curves = CurveReader(versions, ledger)
        self._manifests: dict[int, Manifest] = {}
        self._last: tuple[Readable, History] | None = None
        self._lost: list[str] = []

    def read(self) -> History:
        """As it is now; the very object of the last time where nothing has changed. Damaged when nothing can
        be listed.
        """
        found = read_all(self._versions, self._ledger, self._manifests)
        lost = [note for note in found.notes if note not in found.damaged.values()]  # each is told once
        self._lost += lost
        if self._last is None or lost or replace(found, notes=[]) != self._last[0]:
            rows = version_rows(found.manifests, found.entries, found.newest, found.damaged)
            moves = [entry for entry in found.entries if entry.kind != "KEEP"]
            newest_first = tuple(reversed(moves[-MOST_MOVES:]))
            by_number = {row.number: row for row in rows}
            notes = [*found.damaged.values(), *self._lost]
            history = History(self._curves.read(), by_number, newest_first, notes)
            self._last = replace(found, notes=[]), history
        return self._last[1]


def curves_data(curves: Curves) -> dict[str, Any]:
    """Every measure's lines, the current one first, and the training loss in the same form."""
    best = curves.best_point()
    return {
        "kinds": [
            {"name": kind, "title": TITLES.get(kind, LOSS_TITLE), "lines": _lines(curves.lines, kind)}
            for kind in curves.drawn()
        ],
        "best": None if best is None else {"version": best.version, "events": best.events},
        "stopped_by": curves.stopped_by,
        "judged": len(curves.judged),
    }


def versions_data(history: History, before: int | None, most: int) -> dict[str, Any]:
    """The newest `most` versions below `before`, newest first, pruned ones included, and of all others those
    that bear a name; and the newest moves.
    """
    points = {point.version: point for line in history.curves.lines for point in line.points}
    behind = {point.version for line in history.curves.lines[1:] for point in line.points}
    numbers = sorted({*points, *history.rows}, reverse=True)
    shown = [number for number in numbers if before is None or number < before]
    named = [n for n in shown[most:] if before is None and n in history.rows and history.rows[n].aliases]
    return {
        "versions": [
            _version(number, points.get(number), history.rows.get(number), number in behind)
            for number in [*shown[:most], *named]
        ],
        "more": max(len(shown) - most - len(named), 0),
        "count": len(numbers),
        "kept": [number for number in numbers if number in history.rows][:MOST_KEPT],
        "moves": [
            {"at": one.at, "kind": one.kind, "alias": one.alias, "version": one.version}
            | {"by": one.by, "reason": one.reason}
            for one in history.moves
        ],
        "notes": list(history.notes),
    }


def _lines(lines: Sequence[Line], kind: str) -> list[dict[str, Any]]:
    found = []
    for number, line in enumerate(lines):
        series = line.series(kind)
        step = -(-len(series.events) // MOST_POINTS) or 1
        kept = sorted({*range(0, len(series.events), step), *range(len(series.events))[-1:]})
        columns: dict[str, Sequence[float | None]] = {
            "events": series.events,
            "versions": series.versions,
            "values": series.values,
            "reference": series.reference,
            "shown_order": series.shown_order,
        }
        if kept:
            thinned = {name: [column[at] for at in kept] for name, column in columns.items()}
            found.append({"current": number == 0, **thinned})
    return found


def _version(number: int, point: Point | None, row: VersionRow | None, behind: bool) -> dict[str, Any]:
    measures = {} if point is None else point.measures
    reference = {} if point is None else point.reference
    return {
        "number": number,
        "created": row.created if row is not None else point.created if point is not None else "",
        "events": point.events if point is not None else row.events if row is not None else 0,
        "names": list(row.aliases) if row is not None else [],
        "kept": row is not None,
        "behind": behind,
        "size": row.size if row is not None else None,
        "decision": measures.get(_DECISION),
        "decision_of_zero": reference.get(_DECISION),
        "training_loss": None if point is None else point.loss,
        "verdict": "" if point is None else point.verdict,
        "marks": [] if point is None else list(point.marks),
        "damaged": row.damaged if row is not None else "",
    }
