"""Cells as tables in Markdown: means over seeds, and which differences from OASIS as served are sure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
from scipy import stats

from tests.results.cells import Row, seeds_of
from tests.results.systems import System
from tests.results.systems_matrix import SERVED

LEAST_PAIRS = 5
"""Seeds that a test needs here: with three, what the test estimates the variance from is two numbers."""
ALPHA = 0.05


@dataclass(frozen=True)
class Line:
    """A row over its seeds, in their order."""

    name: str
    system: System
    rows: Mapping[int, Row]

    def mean(self, of: str | int) -> float:
        """The mean of a field, or of the precision at a rank."""
        return float(np.mean(self.values(of)))

    def values(self, of: str | int) -> list[float]:
        """One per seed."""
        return [row.at(of) if isinstance(of, int) else getattr(row, of) for row in self.rows.values()]

    @property
    def deviation(self) -> float | None:
        """The standard deviation of mAP over seeds."""
        return float(np.std(self.values("map"), ddof=1)) if len(self.rows) > 1 else None


def lines_of(name: str, systems: Sequence[System], folder: Path | None = None) -> list[Line]:
    """The rows of a set that were measured, in the order of the systems."""
    out = []
    for system in systems:
        cells = dict(seeds_of(name, system, folder))
        for row in system.rows:
            found = {seed: cell.rows[row] for seed, cell in cells.items() if row in cell.rows}
            if found:
                out.append(Line(row, system, found))
    return out


def unfinished(name: str, systems: Sequence[System], folder: Path | None = None) -> Iterator[str]:
    """Systems that gave up on a set."""
    for system in systems:
        reasons = {cell.unfinished for _, cell in seeds_of(name, system, folder) if cell.unfinished}
        for reason in sorted(reasons):
            yield f"{', '.join(system.rows)}: {reason}."


def holm(ps: Sequence[float]) -> list[float]:
    """p-values corrected for their number, in their order (Holm, Scand. J. of Statistics 6, 1979)."""
    out, least = [0.0] * len(ps), 0.0
    for place, at in enumerate(sorted(range(len(ps)), key=lambda i: ps[i])):
        least = max(least, min(1.0, (len(ps) - place) * ps[at]))
        out[at] = least
    return out


def resampled_p(leads: npt.NDArray[np.float64], ratio: float) -> float:
    """Two-sided p-value of the corrected resampled t-test: t = mean / sqrt((1/n + ratio) s^2) with n - 1
    degrees of freedom (Nadeau, Bengio, Machine Learning 52, 2003, section 4).

    Splits of one set share objects, so that their leads vary together; the usual 1/n alone promises too much.
    ratio: objects that are judged over those that are learned from.
    """
    n, spread = len(leads), float(leads.std(ddof=1))
    if spread == 0:
        return float(leads.mean() == 0)
    return float(2 * stats.t.sf(abs(leads.mean()) / (spread * np.sqrt(1 / n + ratio)), n - 1))


def against(
    lines: Sequence[Line], ratio: float | None, reference: str = SERVED
) -> dict[str, tuple[float, float | None]]:
    """Row -> its mean lead in mAP over the reference on the seeds that both have, and its `resampled_p`,
    corrected by Holm over all rows of the set that have one; None below `LEAST_PAIRS` seeds, and where ratio
    is None: the same objects are judged whatever the seed, so that seeds say nothing of other objects."""
    base = next((line.rows for line in lines if line.name == reference), None)
    if base is None:
        return {}
    leads, tested = {}, {}
    for line in lines:
        both = [seed for seed in line.rows if seed in base]
        if line.name == reference or not both:
            continue
        ahead = np.array([line.rows[seed].map - base[seed].map for seed in both])
        leads[line.name] = float(ahead.mean())
        if ratio is not None and len(both) >= LEAST_PAIRS:
            tested[line.name] = resampled_p(ahead, ratio)
    corrected = dict(zip(tested, holm(list(tested.values())), strict=True))
    return {name: (lead, corrected.get(name)) for name, lead in leads.items()}


HEAD = (
    "row", "mAP", "macro mAP", "P@1", "P@10", "P@50", "mAP beside OASIS, served", "zeros", "triplets",
    "seconds", "chosen", "seeds",
)  # fmt: skip


def table(lines: Sequence[Line], ratio: float | None = None) -> Iterator[str]:
    """Lines of a table. ratio: as in `against`."""
    leads = against(lines, ratio)
    yield f"| {' | '.join(HEAD)} |"
    yield f"|{'---|' * len(HEAD)}"
    for line in lines:
        yield f"| {' | '.join(cells_of(line, leads.get(line.name)))} |"


def cells_of(line: Line, lead: tuple[float, float | None] | None) -> Iterator[str]:
    """The cells of a row."""
    yield line.name
    deviation = line.deviation
    yield f"{line.mean('map'):.3f}" + ("" if deviation is None else f" ± {deviation:.3f}")
    yield f"{line.mean('macro'):.3f}"
    for rank in (1, 10, 50):
        yield f"{line.mean(rank):.3f}"
    yield "" if lead is None else led(*lead)
    zeros = [row.zeros for row in line.rows.values()]
    yield "" if None in zeros else f"{100 * float(np.mean([one or 0.0 for one in zeros])):.1f} %"
    counts = [row.triplets for row in line.rows.values()]
    yield "" if None in counts else f"{round(float(np.mean([one or 0 for one in counts])), -2):,.0f}"
    yield seconds_told(line.mean("seconds"))
    chosen = Counter(row.chosen for row in line.rows.values()).most_common(1)[0]
    yield chosen[0] + (f" ({chosen[1]} of {len(line.rows)})" if 0 < chosen[1] < len(line.rows) else "")
    yield seeds_told(sorted(line.rows))


def led(lead: float, p: float | None) -> str:
    """A difference in words: bold where it is sure."""
    if p is None:
        return f"{lead:+.3f}"
    told = f"{lead:+.3f} (p {'< 0.001' if p < 0.001 else f'= {p:.3f}'})"
    return f"**{told}**" if p < ALPHA else told


def seconds_told(seconds: float) -> str:
    """With as many digits as mean something."""
    return "" if seconds == 0 else f"{seconds:.2f}" if seconds < 1 else f"{seconds:.1f}"


def seeds_told(seeds: Sequence[int]) -> str:
    """0-4, or 0, 2."""
    if len(seeds) > 1 and seeds[-1] - seeds[0] == len(seeds) - 1:
        return f"{seeds[0]}-{seeds[-1]}"
    return ", ".join(map(str, seeds))


BEGIN, END = "<!-- begin: {} -->", "<!-- end: {} -->"


def replaced(page: str, name: str, lines: Sequence[str]) -> str:
    """The page with these lines between the markers of that name. ValueError where it lacks them."""
    begin, end = BEGIN.format(name), END.format(name)
    if page.count(begin) != 1 or page.count(end) != 1 or page.index(begin) > page.index(end):
        raise ValueError(f"the page needs {begin} and, after it, {end}, once each")
    before, rest = page.split(begin)
    _, after = rest.split(end)
    return "\n".join([before + begin, "", *lines, "", end + after])
