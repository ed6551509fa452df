"""What the demo found: version 0 against the best on queries never trained on; table, JSON and pictures."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

import numpy as np
import numpy.typing as npt
from rich.console import Console
from rich.table import Table

from checkpoints import Manifest, VersionStore
from daemon.config import Config
from daemon.demo.contact_sheet import Neighbours, draw_contact_sheet
from daemon.demo.evaluate import Retrieval, nearest, retrieval
from daemon.demo.pack_files import Pack, load_thumbnails
from daemon.look.curve_picture import save_picture
from daemon.look.curves import Curves
from daemon.look.overview import events_of
from daemon.objects import map_catalog
from daemon.versions.restore import read_map, serving_form
from learners.block import Block
from learners.forms.quadratic import ServedForm
from streams.event import ObjectRef
from streams.partitions import is_holdout, route_key

CURVES_PICTURE = "learning_curve.png"
CONTACT_SHEET = "neighbours.png"
SHOWN = 7


@dataclass(frozen=True)
class Report:
    """Both versions' figures and how the run went."""

    before: Retrieval
    after: Retrieval
    events: int
    events_per_second: float
    versions: int
    best_version: int
    stopped_by: str

    def to_json(self) -> str:
        """One line of JSON."""
        row = {
            "map_before": self.before.map, "map_after": self.after.map,
            "p10_before": self.before.p10, "p10_after": self.after.p10,
            "macro_map_before": self.before.macro_map, "macro_map_after": self.after.macro_map,
            "macro_p10_before": self.before.macro_p10, "macro_p10_after": self.after.macro_p10,
            "queries": self.before.queries, "events": self.events,
            "events_per_second": round(self.events_per_second, 1), "versions": self.versions,
            "best_version": self.best_version, "stopped_by": self.stopped_by,
        }  # fmt: skip
        return json.dumps({k: round(v, 4) if isinstance(v, float) else v for k, v in row.items()})


class Reporter:
    """Evaluates versions of one finished demo run on the holdout queries."""

    def __init__(self, config: Config, versions: VersionStore, pack: Pack) -> None:
        self._config = config
        self._versions = versions
        self._pack = pack
        _, fitted = read_map(versions, 0)
        self._catalog: Block = map_catalog(pack.catalog, fitted)

    def report(self, curves: Curves) -> Report:
        """Figures of version 0 and of the best version, counts and rates of the run."""
        best = 0 if curves.best is None else curves.best
        rows = self.holdout_rows()
        before, after = (
            retrieval(self._form(number), self._catalog, self._pack.labels, rows) for number in (0, best)
        )
        numbers = self._versions.versions()
        first, last = (self._versions.manifest(number) for number in (numbers[0], numbers[-1]))
        events = events_of(last.counters)
        seconds = (_created(last) - _created(first)).total_seconds()
        return Report(
            before,
            after,
            events,
            events / max(seconds, 1e-9),
            numbers[-1] + 1,
            best,
            curves.stopped_by or "end of clicks",
        )

    def holdout_rows(self) -> npt.NDArray[np.int64]:
        """Catalog rows of the queries that `feed` kept from training; int64 [n]."""
        feed = self._config.feed
        held = [
            is_holdout(route_key(ObjectRef(id=object_id)), feed.holdout_share, feed.seed)
            for object_id in self._pack.catalog.ids
        ]
        return np.flatnonzero(held).astype(np.int64)

    def pictures(self, curves: Curves, report: Report, folder: Path) -> list[Path]:
        """Draw learning curve and contact sheet into `folder`; their paths."""
        curve, sheet = folder / CURVES_PICTURE, folder / CONTACT_SHEET
        save_picture(curves, curve)
        title = (
            "Nearest neighbours of photos never used as a query in training (the first of each class, by id)"
        )
        draw_contact_sheet(
            self._rows(report.best_version), title, f"version {report.best_version} (learned)", sheet
        )
        return [curve, sheet]

    def _rows(self, best: int) -> list[Neighbours]:
        labels, thumbnails = self._pack.labels, load_thumbnails()
        before, after = self._form(0), self._form(best)
        seen: Counter[str] = Counter()
        rows = []
        for query in self.holdout_rows().tolist():
            label = str(labels[query])
            seen[label] += 1
            if seen[label] == 1:
                found = [
                    [
                        (thumbnails[row], str(labels[row]))
                        for row in nearest(form, self._catalog, query, SHOWN)
                    ]
                    for form in (before, after)
                ]
                rows.append(Neighbours(label, thumbnails[query], found[0], found[1]))
        return sorted(rows, key=lambda row: row.label)

    def _form(self, number: int) -> ServedForm:
        return serving_form(self._versions, self._versions.load(number), self._config.serving)


def print_report(report: Report, pictures: list[Path], console: Console) -> None:
    """The closing table."""
    table = Table(
        title="Queries never trained on, judged by class over the whole catalog", title_justify="left"
    )
    table.add_column("")
    for name in ("version 0 (cosine)", f"version {report.best_version} (best)", "change"):
        table.add_column(name, justify="right")
    before, after = report.before, report.after
    rows: list[tuple[str, float, float]] = [
        ("mAP", before.map, after.map),
        ("P@10", before.p10, after.p10),
        ("mAP, mean of classes", before.macro_map, after.macro_map),
        ("P@10, mean of classes", before.macro_p10, after.macro_p10),
    ]
    for name, old, new in rows:
        change = f"x {new / old:.2f}" if "mAP" in name else f"{new - old:+.3f}"
        table.add_row(name, f"{old:.3f}", f"{new:.3f}", change)
    console.print(table)
    console.print(
        f"{report.events:,} events in {report.versions} versions, {report.events_per_second:,.0f} events/s "
        f"from users to W; stopped by {report.stopped_by}; {report.before.queries} queries judged."
    )
    for path in pictures:
        console.print(f"picture: {path}")


def _created(manifest: Manifest) -> datetime:
    return datetime.fromisoformat(manifest.created)
