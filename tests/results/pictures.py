"""The figures of the papers on our sets: docs/images/results.svg, and their numbers as tables."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from tests.results import curves
from tests.results.curves import (
    ALIKE,
    ALONE,
    BEST,
    COSINE,
    HEDGE,
    JOINED,
    ONCE,
    RAW,
    SCHEDULES,
    SERVED,
    SYMMETRY,
    TOGETHER,
)

PICTURE = Path(__file__).parents[2] / "docs" / "images" / "results.svg"
MOST_SEEDS = 3
RED, BLUE, GREEN, GOLD, VIOLET = "#c4314b", "#4292c6", "#41ab5d", "#d9a441", "#8c6bb1"
OF_SET = {"photos": RED, "sentences": BLUE, "tfidf": GREEN, "fashion": GOLD}
OF_ROW = {SERVED: RED, RAW: BLUE, COSINE: "black", JOINED: BLUE, HEDGE: RED, ALIKE: GOLD, BEST: GREEN}


def measure(seeds: int) -> None:
    """All studies that were not measured before, at most `MOST_SEEDS` seeds of each."""
    for seed in range(min(seeds, MOST_SEEDS)):
        for study, names in curves.SETS_OF.items():
            for name in names:
                curves.measure(study, name, seed)


def lines() -> Iterator[str]:
    """The picture and the tables, of what was measured."""
    found = {
        (study, name): _of_seeds(study, name) for study, names in curves.SETS_OF.items() for name in names
    }
    if not all(found.values()):
        return
    _draw(found)
    yield "![What the figures of the papers show, on our sets](images/results.svg)"
    yield ""
    counts = sorted({len(every) for every in found.values()})
    told = f"By `python -m tests.results --systems --sections pictures --seeds {counts[-1]} --write`"
    yield f"{told}; means of {' to '.join(map(str, counts))} seeds."
    yield ""
    yield from _steps(found)
    yield from _schedules(found)
    yield from _sizes(found)
    yield from _rankers(found)
    yield from _ratios(found)
    yield from _distractors(found)
    yield from _unseen(found)


Studies = Mapping[tuple[str, str], Sequence[Mapping[str, Any]]]


def _of_seeds(study: str, name: str) -> list[Mapping[str, Any]]:
    every = (curves.kept(study, name, seed) for seed in range(MOST_SEEDS))
    return [one for one in every if one is not None]


def _mean(found: Sequence[Mapping[str, Any]], key: str) -> list[float]:
    """Over seeds, as far as all of them go."""
    length = min(len(one[key]) for one in found)
    return [float(one) for one in np.mean([one[key][:length] for one in found], axis=0)]


def _told(values: Sequence[float]) -> str:
    return " | ".join(f"{one:.3f}" for one in values)


def _table(first: str, columns: Sequence[str], rows: Mapping[str, Sequence[float]]) -> Iterator[str]:
    yield f"| {first} | {' | '.join(columns)} |"
    yield "|---" * (1 + len(columns)) + "|"
    for name, values in rows.items():
        yield f"| {name} | {_told(values)} |"
    yield ""


def _steps(found: Studies) -> Iterator[str]:
    yield "**Over the number of triplets** (JMLR 11 (2010), figure 5): OASIS, mAP as learned (as served):"
    yield ""
    counts = found["steps", "photos"][0]["counts"]
    at = [counts.index(one) for one in (0, 1_000, 8_000, 32_000, 128_000, 256_000)]
    yield f"| triplets | {' | '.join(f'{counts[one]:,}' for one in at)} | stopped after |"
    yield "|---" * (2 + len(at)) + "|"
    for name in curves.SETS_OF["steps"]:
        every = found["steps", name]
        one, two = _mean(every, RAW), _mean(every, SERVED)
        cells = " | ".join(f"{one[place]:.3f} ({two[place]:.3f})" for place in at)
        stops = ", ".join(f"{each['stop']:,}" for each in every)
        yield f"| {name} | {cells} | {stops} |"
    yield ""


def _schedules(found: Studies) -> Iterator[str]:
    yield "**W made positive semi-definite** (JMLR 11 (2010), figure 9): mAP of q^T W p, by triplets:"
    yield ""
    for name in curves.SETS_OF["schedules"]:
        every = found["schedules", name]
        rows = {told: _mean(every, told) for told in ("never", ONCE, *list(SCHEDULES)[1:])}
        yield from _table(name, [f"{one:,}" for one in every[0]["counts"]], rows)


def _sizes(found: Studies) -> Iterator[str]:
    yield (
        "**Until validation stops, over the number of objects to learn from** (JMLR 11 (2010), figure 4): "
        "triplets, seconds, mAP:"
    )
    yield ""
    most = max((found["sizes", name][0]["objects"] for name in curves.SETS_OF["sizes"]), key=len)
    yield f"| objects | {' | '.join(f'{one:,}' for one in most[:-1])} | all |"
    yield "|---" * (1 + len(most)) + "|"
    for name in curves.SETS_OF["sizes"]:
        every = found["sizes", name]
        parts = zip(*(_mean(every, key) for key in ("triplets", "seconds", "map")), strict=True)
        cells = [f"{count:,.0f}, {seconds:.1f} s, {ap:.3f}" for count, seconds, ap in parts]
        cells = [*cells[:-1], *[""] * (len(most) - len(cells)), cells[-1]]
        yield f"| {name} | {' | '.join(cells)} |"
    yield ""


def _rankers(found: Studies) -> Iterator[str]:
    yield (
        "**Rankers that learn apart** (JMLR 11 (2010), figure 7), each from triplets of its own: mAP of "
        "q^T W p, and the symmetry of one of them, ||sym(W)||² / ||W||² (section 6.1):"
    )
    yield ""
    for name in curves.SETS_OF["rankers"]:
        every = found["rankers", name]
        rows = {told: _mean(every, told) for told in (ALONE, TOGETHER, SYMMETRY)}
        yield from _table(name, [f"{one:,}" for one in every[0]["counts"]], rows)


def _ratios(found: Studies) -> Iterator[str]:
    yield (
        "**Over the share of 3,120 triplets** (TPAMI 36 (2014), figure 3): photos, five descriptors of 50 "
        "directions, four kernels on each, C = 1 for kernels, .1 for OASIS, mAP:"
    )
    yield ""
    every = found["ratios", "photos"]
    rows = {row: _mean(every, row) for row in (JOINED, HEDGE, ALIKE, BEST)}
    yield from _table("triplets", [f"{one:,}" for one in every[0]["counts"]], rows)


def _distractors(found: Studies) -> Iterator[str]:
    yield (
        "**With distractors**: five classes of Fashion-MNIST are learned from 2,000 pictures and 60,000 "
        "triplets and asked for among 2,000 others; pictures of the other five, also mirrored and moved by a "
        "pixel, join the gallery; mAP:"
    )
    yield ""
    every = found["distractors", "fashion"]
    rows = {row: _mean(every, row) for row in (COSINE, RAW, SERVED)}
    yield from _table("distractors", [f"{one:,}" for one in every[0]["distractors"]], rows)


def _unseen(found: Studies) -> Iterator[str]:
    yield (
        "**Classes never seen in training** (JMLR 11 (2010), section 7): half of the classes is learned; mAP "
        "of queries of the other half, and in brackets of those learned, among all test objects:"
    )
    yield ""
    rows = list(found["unseen", "photos"][0])
    yield f"| set | {' | '.join(rows)} |"
    yield "|---" * (1 + len(rows)) + "|"
    for name in curves.SETS_OF["unseen"]:
        every = found["unseen", name]
        mean = {
            row: {kind: np.mean([one[row][kind] for one in every]) for kind in ("unseen", "seen")}
            for row in rows
        }
        cells = " | ".join(f"{one['unseen']:.3f} ({one['seen']:.3f})" for one in mean.values())
        yield f"| {name} | {cells} |"
    yield ""


def _draw(found: Studies) -> None:
    """Write the picture."""
    import matplotlib as mpl

    mpl.use("Agg")
    mpl.rcParams["svg.hashsalt"] = "results"  # the same picture has the same bytes
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(2, 3, figsize=(13, 7.6))
    over, schedule, size, ratio, far, never = axes.ravel()
    for name in curves.SETS_OF["steps"]:
        every = found["steps", name]
        counts = np.maximum(every[0]["counts"], 125)  # 0 has no place on the axis
        means = _mean(every, RAW)
        over.plot(counts, means, color=OF_SET[name], label=name, linewidth=1.8)
        over.plot(counts, _mean(every, SERVED), color=OF_SET[name], linestyle=":", linewidth=1.4)
        stop = every[0]["counts"].index(every[0]["stop"])
        over.plot(counts[stop], means[stop], "o", color=OF_SET[name], markersize=7)
    _title(
        over,
        "mAP over triplets",
        "triplets",
        "as learned (dots: as served);\n● where validation stops",
        (125, 1_000, 10_000, 100_000),
    )
    every = found["schedules", "photos"]
    styles = zip(("never", ONCE, *list(SCHEDULES)[1:]), ("black", RED, BLUE, GREEN, GOLD), strict=True)
    for told, colour in styles:
        schedule.plot(every[0]["counts"], _mean(every, told), color=colour, label=told, linewidth=1.8)
    _title(schedule, "W made PSD, photos", "triplets", "q^T W p", every[0]["counts"])
    for name in curves.SETS_OF["sizes"]:
        every = found["sizes", name]
        size.plot(
            _mean(every, "objects"),
            _mean(every, "seconds"),
            "o-",
            color=OF_SET[name],
            label=name,
            markersize=4,
        )
    _title(size, "Seconds until validation stops", "objects to learn from", "", (125, 250, 500, 1_000, 2_000))
    size.set_yscale("log")
    size.minorticks_off()
    every = found["ratios", "photos"]
    for row in (JOINED, HEDGE, ALIKE, BEST):
        ratio.plot(every[0]["counts"], _mean(every, row), "o-", color=OF_ROW[row], label=row, markersize=4)
    _title(ratio, "mAP over the share of triplets, photos", "triplets", "")
    every = found["distractors", "fashion"]
    for row in (COSINE, RAW, SERVED):
        far.plot(
            np.maximum(every[0]["distractors"], 100), _mean(every, row), "o-", color=OF_ROW[row], label=row,
            markersize=4,
        )  # fmt: skip
    _title(
        far,
        "mAP with distractors, Fashion-MNIST",
        "distractors (first: none)",
        "",
        (100, 1_000, 10_000, 100_000),
    )
    _bars(never, found)
    figure.tight_layout(h_pad=2.5, w_pad=2)
    PICTURE.parent.mkdir(exist_ok=True)
    figure.savefig(PICTURE, metadata={"Date": None})
    plt.close(figure)


def _bars(axis: Any, found: Studies) -> None:
    """Classes never seen: the lead over the cosine, of each set."""
    rows = [one for one in found["unseen", "photos"][0] if one != COSINE]
    colours = dict(zip(rows, (BLUE, VIOLET, RED, GREEN, "#969696"), strict=True))
    width = 0.8 / len(rows)
    for at, row in enumerate(rows):
        leads = []
        for name in curves.SETS_OF["unseen"]:
            every = found["unseen", name]
            leads.append(np.mean([one[row]["unseen"] - one[COSINE]["unseen"] for one in every]))
        places = np.arange(len(leads)) + (at - (len(rows) - 1) / 2) * width
        axis.bar(places, leads, width, color=colours[row], label=row)
    axis.axhline(0, color="black", linewidth=1)
    axis.margins(y=0.5)
    axis.set_xticks(range(len(curves.SETS_OF["unseen"])), curves.SETS_OF["unseen"])
    _title(axis, "Classes never learned: mAP minus cosine", "", "")


def _title(axis: Any, title: str, below: str, note: str, ticks: Sequence[float] = ()) -> None:
    """ticks: where a logarithmic axis has its numbers."""
    if ticks:
        axis.set_xscale("log")
        axis.set_xticks(ticks, [f"{one:,.0f}" for one in ticks])
        axis.minorticks_off()
    axis.set_title(title, fontsize=10.5)
    axis.set_xlabel(below)
    axis.grid(alpha=0.25)
    axis.legend(fontsize=8, frameon=False, title=note or None, title_fontsize=8)
