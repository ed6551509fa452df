"""OASIS in the regime of its paper: few objects, and many more triplets than it takes to learn from them.

JMLR 11 (2010), section 5.3.2: 10 classes, 40 objects of each to learn from and 25 to be judged by, C = .1,
and the mAP of q^T W p along the triplets (figure 5), with W made positive semi-definite now and then, once
after learning, or never (figure 9). Here 15 more of each class are to choose by; texts, which have fewer of a
class, have 20 classes of 30, 15 and 20. Every split draws the classes' objects and the triplets anew.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from tests.quality.bench.labels import triplets
from tests.quality.bench.sets import RawSet, load
from tests.results import curves
from tests.results.curves import ONCE, learned, oasis_of, of_test
from tests.results.data import Parts, Task
from tests.results.oks_pool import ObjectPool
from tests.results.systems import validate
from tests.results.systems_matrix import psd_after, raw

PICTURE = Path(__file__).parents[2] / "docs" / "images" / "regime.svg"
SETS = ("photos", "fashion", "sentences")
COUNTS = (4_000, 8_000, 16_000, 35_000, 64_000, 128_000, 250_000, 500_000, 1_000_000)
NEVER = "never"
SCHEDULES = {NEVER: 0, "every 1,000": 1_000, "every 5,000": 5_000}


def sizes_of(name: str) -> tuple[int, tuple[int, int, int]]:
    """Classes, and objects of each to learn from, to choose by and to be judged by."""
    return (20, (30, 15, 20)) if name == "sentences" else (10, (40, 15, 25))


def task_of(data: RawSet, seed: int, classes: int, each: tuple[int, int, int]) -> Task:
    """So many objects of a set, as a task whose parts they are."""
    pool = ObjectPool.drawn(data, seed, classes, each)
    views = {name: view.astype(np.float32) for name, view in pool.views.items()}
    task = Task(RawSet(data.name, views, pool.labels), seed, pool.test)
    task.parts = Parts(pool.train, pool.validation, pool.test)
    return task


def regime(name: str, seed: int, counts: Sequence[int] = COUNTS) -> curves.Found:
    """mAP on the test part along the triplets, for every schedule of projections, and where validation would
    have stopped the learner that is never projected."""
    task = task_of(load(name), seed, *sizes_of(name))
    drawn = triplets(task.data, task.parts.train, counts[-1], seed)
    found: curves.Found = {"counts": list(counts), ONCE: [], "validation": []}
    for told, every in SCHEDULES.items():
        learner = oasis_of(task.space, psd_every=every)
        found[told] = []
        for _ in learned(task, task.space, learner, counts, drawn):
            scores = raw(learner, task.space)[0]
            found[told].append(of_test(task, scores))
            if told == NEVER:
                found[ONCE].append(of_test(task, psd_after(learner, task.space)[0]))
                found["validation"].append(validate(task, scores))
    found["stop"] = counts[int(np.argmax(found["validation"]))]
    return found


ROWS = (NEVER, ONCE, *list(SCHEDULES)[1:])
COLOURS = dict(zip(ROWS, ("black", "#c4314b", "#4292c6", "#41ab5d"), strict=True))


def measure(seeds: int) -> None:
    """What is missing."""
    for seed in range(seeds):
        for name in SETS:
            curves.measure("regime", name, seed, regime)


def lines() -> Iterator[str]:
    """Tables, a sentence for each, and the picture, of the splits that were measured."""
    found = {name: every for name in SETS if (every := list(_kept(name)))}
    if not found:
        return
    _draw(found)
    yield "![OASIS in the regime of its paper: mAP along a million triplets](images/regime.svg)"
    yield ""
    most = max(len(every) for every in found.values())
    yield f"By `python -m tests.results --systems --sections regime --seeds {most} --write`; mAP of q^T W p."
    yield ""
    for name, every in found.items():
        counts = every[0]["counts"]
        classes, (train, _, test) = sizes_of(name)
        head = f"{name}, {classes} classes x {train} and {test}, {len(every)} splits"
        yield f"| {head} | {' | '.join(f'{one:,}' for one in counts)} |"
        yield "|---" * (1 + len(counts)) + "|"
        for row in ROWS:
            means = np.mean([one[row] for one in every], axis=0)
            yield f"| {row} | {' | '.join(_told(one, means.max()) for one in means)} |"
        yield ""
        yield from _said(every)
        yield ""


def _kept(name: str) -> Iterator[curves.Found]:
    for path in sorted(curves.FOLDER.glob(f"regime-{name}-*.json")):
        found = curves.kept("regime", name, int(path.stem.rpartition("-")[2]))
        if found is not None:
            yield found


def _told(value: float, highest: float) -> str:
    return f"**{value:.3f}**" if value == highest else f"{value:.3f}"


def _said(every: Sequence[curves.Found]) -> Iterator[str]:
    """What the rows say, split by split."""
    counts, never = every[0]["counts"], np.array([one[NEVER] for one in every])
    peaks = sorted(counts[at] for at in never.argmax(axis=1))
    fall = never.max(axis=1) - never[:, -1]
    spread = f" ± {fall.std(ddof=1):.3f}" if len(every) > 1 else ""
    stops = sorted(one["stop"] for one in every)
    yield (
        f"Never projected, the splits are highest after {_listed(peaks)} triplets and end {fall.mean():.3f}"
        f"{spread} below that; validation stops after {_listed(stops)}. At the end "
        f"projection once after is ahead of every 1,000 in {_ahead(every, ONCE, 'every 1,000')}, "
        f"every 1,000 ahead of never in {_ahead(every, 'every 1,000', NEVER)}."
    )


def _listed(counts: Sequence[int]) -> str:
    return ", ".join(f"{one:,}" for one in counts)


def _ahead(every: Sequence[curves.Found], one: str, other: str) -> str:
    """In how many splits a row ends above another."""
    leads = np.array([each[one][-1] - each[other][-1] for each in every])
    return f"{int((leads > 0).sum())} of {len(leads)} splits ({leads.mean():+.3f})"


def _draw(found: Mapping[str, Sequence[curves.Found]]) -> None:
    """Write the picture."""
    import matplotlib as mpl

    mpl.use("Agg")
    mpl.rcParams["svg.hashsalt"] = "results"  # the same picture has the same bytes
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(1, len(found), figsize=(4.4 * len(found), 3.8), squeeze=False)
    for axis, (name, every) in zip(axes[0].tolist(), found.items(), strict=True):
        _panel(axis, name, every)
    figure.tight_layout(w_pad=2)
    PICTURE.parent.mkdir(exist_ok=True)
    figure.savefig(PICTURE, metadata={"Date": None})
    plt.close(figure)


def _panel(axis: Any, name: str, every: Sequence[curves.Found]) -> None:
    counts = every[0]["counts"]
    for row in ROWS:
        axis.plot(counts, np.mean([one[row] for one in every], axis=0), color=COLOURS[row], label=row)
    axis.set_xscale("log")
    axis.set_xticks(ticks := (4_000, 35_000, 250_000, 1_000_000), [f"{one:,}" for one in ticks])
    axis.minorticks_off()
    axis.set_title(f"{name}, {len(every)} splits", fontsize=10.5)
    axis.set_xlabel("triplets")
    axis.grid(alpha=0.25)
    axis.legend(fontsize=8, frameon=False, title="W made PSD", title_fontsize=8)
