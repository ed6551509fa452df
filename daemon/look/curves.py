"""Learning curves out of the ledger: every judged version's measures over the events it has learned. Pure."""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from checkpoints import LedgerEntry
from daemon.look.overview import summary

REFERENCE = "version_0"
TITLES = {
    "map_full": "mAP, whole catalog, by judgments",
    "p10_full": "P@10, whole catalog, by judgments",
    "balanced_hop": "decision by clicks: position-balanced + half two-click AUC",
    "position_balanced": "better than the shown order (0.5 = the same)",
    "hop_auc": "two clicks away, never shown (AUC)",
    "map_shown": "mAP inside the shown lists",
    "clicked_vs_random": "clicked above random objects (AUC)",
    "map_clicks": "mAP, whole catalog, by clicks",
    "macro_map_full": "mAP, whole catalog, mean of classes",
}
"""Measures that have a curve, in order of weight; a ledger may hold more (they are in the CSV)."""


@dataclass(frozen=True, slots=True)
class Point:
    """One judged version: its measures and those of version 0 on the same window."""

    version: int
    events: int
    measures: Mapping[str, float]
    reference: Mapping[str, float]


@dataclass(frozen=True, slots=True)
class Curves:
    """Points by rising events, the best version and the STOP in force."""

    points: tuple[Point, ...]
    best: int | None
    stopped_by: str | None

    def kinds(self) -> list[str]:
        """Measures that have a title and at least one value, in the titles' order."""
        return [kind for kind in TITLES if any(kind in point.measures for point in self.points)]

    def series(self, kind: str) -> tuple[list[int], list[float], list[float | None]]:
        """Events, values, version 0's value (None where it was not measured) of one measure."""
        points = [point for point in self.points if kind in point.measures]
        return (
            [point.events for point in points],
            [point.measures[kind] for point in points],
            [point.reference.get(kind) for point in points],
        )

    def best_point(self) -> Point | None:
        """The newest judgment of the best version."""
        return next((point for point in reversed(self.points) if point.version == self.best), None)


def curves_of(entries: Iterable[LedgerEntry]) -> Curves:
    """Read the judged versions; a version judged again replaces its earlier judgment."""
    entries = list(entries)
    points: dict[int, Point] = {}
    for entry in entries:
        if entry.kind != "KEEP":
            continue
        values = _numbers(entry.measures)
        events = entry.measures.get("events")
        if (
            entry.version is not None
            and isinstance(events, int | float)
            and any(kind in values for kind in TITLES)
        ):
            reference = entry.measures.get(REFERENCE)
            known = _numbers(reference) if isinstance(reference, Mapping) else {}
            points[entry.version] = Point(entry.version, int(events), values, known)
    ordered = sorted(points.values(), key=lambda point: (point.events, point.version))
    stands = summary(entries)
    return Curves(tuple(ordered), stands.best, stands.stopped_by)


def to_csv(curves: Curves) -> str:
    """version, events and every measure; version 0's on the same window as NAME.version_0."""
    names = sorted({name for point in curves.points for name in point.measures} - {"events"})
    references = sorted({name for point in curves.points for name in point.reference} - {"events"})
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(["version", "events", *names, *(f"{name}.{REFERENCE}" for name in references)])
    for point in curves.points:
        own = [point.measures.get(name, "") for name in names]
        base = [point.reference.get(name, "") for name in references]
        writer.writerow([point.version, point.events, *own, *base])
    return out.getvalue()


def _numbers(measures: Mapping[str, Any]) -> dict[str, float]:
    return {
        name: float(value)
        for name, value in measures.items()
        if isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
    }
