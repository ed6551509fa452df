"""The history as CSV: one row per version, also of versions that were not judged or are long pruned. Pure."""

from __future__ import annotations

import csv
import io

from daemon.look.curves import LOSS, REFERENCE, Curves, Point


def to_csv(curves: Curves) -> str:
    """One row per version: line, left, version, records, events, created, epoch, training_loss, measures.

    `line` 0 is the one that is learned on, `left` the version that a line left another one at; what version 0
    reaches on the same window is NAME.version_0. An empty field: not known, or not measured.
    """
    points = [point for line in curves.lines for point in line.points]
    names = sorted({name for point in points for name in point.measures} - {"events"})
    references = sorted({name for point in points for name in point.reference} - {"events"})
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    own = ["line", "left", "version", "records", "events", "created", "epoch", LOSS]
    writer.writerow([*own, *names, *(f"{name}.{REFERENCE}" for name in references)])
    for number, line in enumerate(curves.lines):
        for point in line.points:
            left = "" if line.left is None else line.left.version
            writer.writerow([number, left, *_row(point, names, references)])
    return out.getvalue()


def _row(point: Point, names: list[str], references: list[str]) -> list[object]:
    records = "" if point.records is None else point.records
    loss = "" if point.loss is None else point.loss
    return [
        *(point.version, records, point.events, point.created, point.epoch, loss),
        *(point.measures.get(name, "") for name in names),
        *(point.reference.get(name, "") for name in references),
    ]
