"""The tables as a picture: a panel for each set and model of users, mAP above, P@10 below."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from tests.quality.bench.cells import NEWEST, OURS, YOURS
from tests.quality.bench.rivals import RIVALS
from tests.quality.bench.tables import Means

RED = "#c4314b"
COLOURS = dict(zip(RIVALS, ("#8c6bb1", "#41ab5d", "#d9a441", "#4292c6", "#969696"), strict=True))


def draw(panels: Mapping[str, Means], path: Path) -> None:
    """Write an SVG; overwrites `path`."""
    import matplotlib as mpl

    mpl.use("Agg")
    mpl.rcParams["svg.hashsalt"] = "quality"  # the same picture has the same bytes
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(2, len(panels), figsize=(3.6 * len(panels), 6.4), squeeze=False, sharex=True)
    for column, (title, rows) in enumerate(panels.items()):
        for line, measure in enumerate(("mAP", "P@10")):
            axis = axes[line][column]
            for name in (YOURS, *RIVALS, NEWEST, OURS):
                if name not in rows:
                    continue
                lists = sorted(rows[name])
                main = name in (YOURS, OURS)
                axis.plot(
                    lists, [rows[name][one][line] for one in lists], label=name,
                    color=COLOURS.get(name, "black" if name == YOURS else RED),
                    linestyle={YOURS: "--", NEWEST: ":"}.get(name, "-"),
                    linewidth=2.2 if main else 1.2,
                    marker="o" if name == OURS else None, markersize=4,
                )  # fmt: skip
            axis.set_xscale("log")
            axis.grid(alpha=0.25)
            axis.set_title(title if line == 0 else "", fontsize=10)
            axis.set_ylabel(measure if column == 0 else "")
            axis.set_xlabel("lists shown" if line else "")
    handles, labels = axes[0][0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="lower center", ncol=4, fontsize=8, frameon=False)
    figure.tight_layout(rect=(0, 0.07, 1, 1))
    figure.savefig(path, metadata={"Date": None})
    plt.close(figure)
