"""What the demo found: version 0 against the best on queries never trained on; table, JSON and pictures."""

from __future__ import annotations

import io
import json
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
from PIL import Image, ImageDraw, ImageFont
from rich.console import Console
from rich.table import Table

from checkpoints import VersionStore
from daemon.config import Config
from daemon.demo.pack_files import Pack, load_thumbnails
from daemon.demo.run import MIN_DELTA, PATIENCE, DemoProgress
from daemon.look.charts import save_picture
from daemon.look.curves import LOSS, Curves
from daemon.look.overview import events_of
from daemon.validate.inputs import holdout_rule
from daemon.validate.scorer import MappedObjects, Scorer
from daemon.versions.restore import read_map, serving_form
from learners.measures import judge_by_labels

CELL = 88
GAP = 6
BLOCK_GAP = 26
MARGIN = 24
HEADER = 84
ROW_LABEL = 96
SAME_COLOUR = (34, 139, 84)
OTHER_COLOUR = (206, 66, 54)
INK = (32, 33, 36)
FAINT = (110, 113, 118)
PAPER = (255, 255, 255)


@dataclass(frozen=True)
class Neighbours:
    """One row of the sheet: a query and what each version finds; every object is (JPEG bytes, its class)."""

    label: str
    query: bytes
    before: Sequence[tuple[bytes, str]]
    after: Sequence[tuple[bytes, str]]


def draw_contact_sheet(rows: Sequence[Neighbours], title: str, after_name: str, path: Path) -> None:
    """Write the sheet as a PNG: query, `before` and `after` side by side, green where of the query's class.

    `title` is the first line; `after_name` heads the right block ("version 11"). Overwrites `path`.
    """
    shown = max(len(row.before) for row in rows)
    block = shown * (CELL + GAP) - GAP
    left = MARGIN + ROW_LABEL + CELL + BLOCK_GAP
    right = left + block + BLOCK_GAP
    width = right + block + MARGIN
    height = HEADER + len(rows) * (CELL + GAP) + MARGIN
    sheet = Image.new("RGB", (width, height), PAPER)
    draw, small = ImageDraw.Draw(sheet), ImageFont.load_default(15)
    draw.text((MARGIN, 14), title, INK, ImageFont.load_default(20))
    draw.text((MARGIN + ROW_LABEL, HEADER - 26), "query", FAINT, small)
    draw.text((left, HEADER - 26), f"your ranking: {_hits(rows, 'before')}", FAINT, small)
    draw.text((right, HEADER - 26), f"{after_name}: {_hits(rows, 'after')}", FAINT, small)
    for number, row in enumerate(rows):
        top = HEADER + number * (CELL + GAP)
        draw.text((MARGIN, top + CELL // 2 - 9), row.label, INK, small)
        sheet.paste(_thumbnail(row.query), (MARGIN + ROW_LABEL, top))
        for start, found in ((left, row.before), (right, row.after)):
            for place, (jpeg, label) in enumerate(found):
                corner = (start + place * (CELL + GAP), top)
                sheet.paste(_thumbnail(jpeg), corner)
                colour = SAME_COLOUR if label == row.label else OTHER_COLOUR
                box = (*corner, corner[0] + CELL - 1, corner[1] + CELL - 1)
                draw.rectangle(box, outline=colour, width=4)
    sheet.save(path, optimize=True)


def _hits(rows: Sequence[Neighbours], side: str) -> str:
    found = [label == row.label for row in rows for _, label in getattr(row, side)]
    return f"{sum(found)} of {len(found)} of the query's class"


def _thumbnail(jpeg: bytes) -> Image.Image:
    """The photo fitted into a CELL x CELL square on paper, its proportions kept."""
    photo = Image.open(io.BytesIO(jpeg), formats=["JPEG"]).convert("RGB")
    photo.thumbnail((CELL, CELL), Image.Resampling.LANCZOS)
    cell = Image.new("RGB", (CELL, CELL), (244, 244, 245))
    cell.paste(photo, ((CELL - photo.width) // 2, (CELL - photo.height) // 2))
    return cell


TOP = 10


@dataclass(frozen=True)
class Retrieval:
    """Means over queries, and over classes (macro), of average precision and precision at 10."""

    map: float
    p10: float
    macro_map: float
    macro_p10: float
    queries: int


ScoresOf = Callable[[npt.NDArray[np.int64]], npt.NDArray[np.float32]]
"""Scores of the objects in these catalog rows against all of it, int64 [n] -> float32 [n, objects]."""


def retrieval(
    scores_of: ScoresOf, labels: npt.NDArray[np.str_], query_rows: npt.NDArray[np.int64]
) -> Retrieval:
    """Judge a serving form: each query's candidates are the whole catalog without the query itself.

    A candidate of the query's class is relevant. Memory: 256 rows of scores at a time.
    """
    found = judge_by_labels(scores_of, labels, query_rows, k=TOP)
    return Retrieval(found.map, found.mean_precision, found.macro_map, found.macro_precision, len(query_rows))


def nearest(scores_of: ScoresOf, row: int, count: int) -> Sequence[int]:
    """Rows of the `count` best candidates for the object in `row`, itself left out; ties to lower rows."""
    scores = scores_of(np.array([row]))[0]
    scores[row] = -np.inf
    return [int(found) for found in np.argsort(-scores, kind="stable")[:count]]


FIGURES = "report.json"
TIME_LIMIT = "time limit"
ALL_LEARNED = "end of clicks"
CURVES_PICTURE = "learning_curve.png"
DRAWN = ("map_full", "p10_full", LOSS)
CONTACT_SHEET = "neighbours.png"
SHOWN = 7


@dataclass(frozen=True)
class Report:
    """Both versions' figures and how the run went; `seconds` since its processes were started."""

    before: Retrieval
    after: Retrieval
    events: int
    seconds: float
    versions: int
    best_version: int
    stopped_by: str

    def to_json(self) -> str:
        """One line of JSON."""
        sides = {"before": self.before, "after": self.after}
        names = ("map", "p10", "macro_map", "macro_p10")
        row = {f"{name}_{side}": getattr(found, name) for name in names for side, found in sides.items()}
        row |= {
            "queries": self.before.queries, "events": self.events, "seconds": self.seconds,
            "versions": self.versions, "best_version": self.best_version, "stopped_by": self.stopped_by,
        }  # fmt: skip
        return json.dumps({k: round(v, 4) if isinstance(v, float) else v for k, v in row.items()})

    def sentence(self) -> str:
        """What came of it, and why it ended, in words."""
        why = {
            TIME_LIMIT: "Learning had not stopped by itself when its time was over: this is what it has.",
            ALL_LEARNED: f"All clicks were learned before {PATIENCE:,} events had added less than "
            f"{MIN_DELTA:g} to the best mAP.",
        }.get(self.stopped_by, f"Learning stopped by itself: {self.stopped_by}.")
        before, after = (f"{10 * found.p10:.1f}" for found in (self.before, self.after))
        return (
            f"After {self.events:,} events in {self.seconds:.0f} s, {after} of the 10 nearest photos are of "
            f"the query's class; {before} were by your ranking. {why}"
        )


class Reporter:
    """Evaluates versions of one finished demo run on the holdout queries."""

    def __init__(self, config: Config, versions: VersionStore, pack: Pack) -> None:
        self._config, self._versions, self._pack = config, versions, pack
        self._scorers: dict[int, Scorer] = {}
        _, fitted = read_map(versions, 0)
        self._objects = MappedObjects(pack.catalog.space, pack.catalog, fitted)

    def report(self, look: DemoProgress, ended_by: str) -> Report:
        """Figures of version 0 and of the best; `ended_by`: why a run ended that did not stop itself."""
        best = 0 if look.curves.best is None else look.curves.best
        rows = self.holdout_rows()
        before, after = (retrieval(self._scores_of(number), self._pack.labels, rows) for number in (0, best))
        newest = self._versions.versions()[-1]
        events = events_of(self._versions.manifest(newest).counters)
        stopped_by = look.curves.stopped_by or ended_by
        return Report(before, after, events, look.seconds, newest + 1, best, stopped_by)

    def holdout_rows(self) -> npt.NDArray[np.int64]:
        """Catalog rows of the queries that `feed` kept from training; int64 [n]."""
        held = [*map(holdout_rule(self._config), self._pack.catalog.ids)]
        return np.flatnonzero(held).astype(np.int64)

    def write(self, curves: Curves, report: Report, folder: Path) -> list[Path]:
        """Write the figures, and draw learning curve and contact sheet, into `folder`; their paths."""
        figures, curve, sheet = folder / FIGURES, folder / CURVES_PICTURE, folder / CONTACT_SHEET
        figures.write_text(report.to_json() + "\n")
        if curves.drawn():
            save_picture(curves, curve, DRAWN)
        title = (
            "Nearest neighbours of photos never used as a query in training (the first of each class, by id)"
        )
        draw_contact_sheet(
            self._rows(report.best_version), title, f"version {report.best_version} (learned)", sheet
        )
        return [path for path in (figures, curve, sheet) if path.exists()]

    def _rows(self, best: int) -> list[Neighbours]:
        labels, thumbnails = self._pack.labels, load_thumbnails()
        before, after = self._scores_of(0), self._scores_of(best)
        seen: Counter[str] = Counter()
        rows = []
        for query in self.holdout_rows().tolist():
            label = str(labels[query])
            seen[label] += 1
            if seen[label] == 1:
                found = [
                    [(thumbnails[row], str(labels[row])) for row in nearest(scores_of, query, SHOWN)]
                    for scores_of in (before, after)
                ]
                rows.append(Neighbours(label, thumbnails[query], found[0], found[1]))
        return sorted(rows, key=lambda row: row.label)

    def _scores_of(self, number: int) -> ScoresOf:
        if number not in self._scorers:
            version = self._versions.load(number)
            form = serving_form(self._versions, version, self._config.serving)
            self._scorers[number] = Scorer(form, self._objects)
        return self._scorers[number].within_catalog


def print_report(report: Report, files: Sequence[Path], console: Console) -> None:
    """The closing table, what it says in words, and where everything is."""
    queries = report.before.queries
    console.print(f"\n{queries} photos that were never a query in training, against all others:\n")
    table = Table(box=None, pad_edge=False, padding=(0, 2))
    table.add_column("")
    for name in ("your ranking", f"version {report.best_version}", "change"):
        table.add_column(name, justify="right")
    for name, of in (
        ("mAP", "map"),
        ("P@10", "p10"),
        ("mAP, mean of classes", "macro_map"),
        ("P@10, mean of classes", "macro_p10"),
    ):
        old, new = getattr(report.before, of), getattr(report.after, of)
        change = f"x {new / old:.2f}" if "mAP" in name else f"{new - old:+.3f}"
        table.add_row(name, f"{old:.3f}", f"{new:.3f}", change)
    console.print(table)
    console.print(f"\n{report.sentence()}")
    console.print("\nFigures and pictures:", *map(str, files), sep="\n  ")
