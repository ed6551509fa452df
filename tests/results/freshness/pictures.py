"""The tables as a picture: what a delay costs, how a change is learned, and how many clicks a correction
needs."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from tests.quality.bench.pictures import RED
from tests.results.freshness.corrections import LOOKED_AT
from tests.results.freshness.delays import DELAYS, HOUR
from tests.results.freshness.report import CLICKED, FRESH, LATE, TOUCHED, curves, steadily
from tests.results.freshness.stream import AFTER
from tests.results.freshness.worlds import DRIFTS

BLUES = dict(zip(DELAYS, (RED, "#9ecae1", "#4292c6", "#08519c"), strict=True))
METHODS = ("#c4314b", "#e58a5c", "#41ab5d", "#9bcf8f", "#8c6bb1")
HOURS_SHOWN = 48.0
SHOWN = "new intents"
"""The change at once that is drawn."""


def draw(
    sets: Mapping[str, int],
    obeyed: Mapping[str, Mapping[int, float]],
    later: Mapping[str, tuple[float, float]],
    path: Path,
) -> None:
    """Write an SVG; overwrites `path`. sets: names, and of how many seeds. obeyed: method -> clicks -> share.
    later: method -> (share obeyed at first, a day later), where all corrections come within the same
    hours."""
    import matplotlib as mpl

    mpl.use("Agg")
    mpl.rcParams["svg.hashsalt"] = "freshness"  # the same picture has the same bytes
    import matplotlib.pyplot as plt

    count = len(sets)
    figure, axes = plt.subplots(
        2, count + 1, figsize=(4.1 * (count + 1), 6.8), squeeze=False, layout="constrained"
    )
    for column, (data, seeds) in enumerate(sets.items()):
        _costs(axes[0][column], data, seeds)
        _learned(axes[1][column], data, seeds)
    axes[0][0].set_ylabel(f"clicks lost, % (of {FRESH})")
    axes[1][0].set_ylabel(f"mAP of {SHOWN}")
    axes[0][0].legend(loc="upper left", fontsize=8, frameon=False, title="age of the model", title_fontsize=8)
    axes[1][0].legend(loc="lower right", fontsize=7.5, frameon=False)
    _corrections(axes[0][count], obeyed)
    _later(axes[1][count], later)
    figure.savefig(path, metadata={"Date": None})
    plt.close(figure)


def _costs(axis: Any, data: str, seeds: int) -> None:
    places, width = np.arange(len(DRIFTS)), 0.26
    for number, name in enumerate(LATE):
        means, errors = [], []
        for drift in DRIFTS:
            found = steadily(data, drift, seeds)
            lost = 100 * (1 - found[name][:, CLICKED] / found[FRESH][:, CLICKED])
            means.append(lost.mean())
            errors.append(lost.std(ddof=1) / np.sqrt(len(lost)) if len(lost) > 1 else 0.0)
        axis.bar(
            places + (number - 1) * width, means, width, yerr=errors, color=BLUES[name],
            error_kw={"linewidth": 0.9, "capsize": 2}, label=name,
        )  # fmt: skip
    axis.axhline(0, color="black", linewidth=0.8)
    axis.set_xticks(places, [one.replace(" ", "\n") for one in DRIFTS], fontsize=8)
    axis.grid(alpha=0.25, axis="y")
    axis.set_title(f"{data}: a world that drifts for a day", fontsize=10)


def _learned(axis: Any, data: str, seeds: int) -> None:
    mean = curves(data, SHOWN, "at once", seeds, TOUCHED).mean(axis=0)
    grid = np.linspace(-2 * HOUR, HOURS_SHOWN * HOUR, 500)
    for name, delay in DELAYS.items():
        axis.plot(
            grid / HOUR, np.interp(grid - delay, AFTER, mean), color=BLUES[name], label=name,
            linewidth=3 if name == FRESH else 1.4,
        )  # fmt: skip
    axis.axvline(0, color="black", linewidth=0.8, linestyle=":")
    axis.set_xticks(np.arange(0, HOURS_SHOWN + 1, 12))
    axis.set_xlabel("hours after they begin")
    axis.grid(alpha=0.25)
    axis.set_title(f"{data}: a third of the classes begins", fontsize=10)


def _corrections(axis: Any, obeyed: Mapping[str, Mapping[int, float]]) -> None:
    for (name, each), colour in zip(obeyed.items(), METHODS, strict=False):
        axis.plot(
            list(each), [100 * one for one in each.values()], label=name.replace(" of clicks", ""),
            color=colour, linewidth=1.8, marker="o", markersize=3.5,
        )  # fmt: skip
    axis.set_xscale("log")
    clicks = list(LOOKED_AT)
    axis.set_xticks(clicks, [str(one) for one in clicks])
    axis.minorticks_off()
    axis.set_ylim(-3, 103)
    axis.set_xlabel("clicks on the right object")
    axis.set_ylabel("% of wrong answers that obey")
    axis.grid(alpha=0.25)
    axis.set_title("sentences: corrections", fontsize=10)
    axis.legend(fontsize=8, frameon=False, loc=(0.02, 0.4))


def _later(axis: Any, later: Mapping[str, tuple[float, float]]) -> None:
    places = np.arange(len(later))[::-1]
    for number, (name, alpha) in enumerate((("at first", 1.0), ("a day later", 0.4))):
        values = [100 * one[number] for one in later.values()]
        axis.barh(places + 0.19 - 0.38 * number, values, 0.36, color=RED, alpha=alpha, label=name)
    axis.set_yticks(places, [one.replace(", ", ",\n") for one in later], fontsize=8)
    axis.set_xlim(0, 103)
    axis.grid(alpha=0.25, axis="x")
    axis.set_xlabel("% of corrections obeyed, ten clicks each")
    axis.set_title("sentences: all within the same hours", fontsize=10)
    axis.legend(fontsize=8, frameon=False, loc="lower right")
