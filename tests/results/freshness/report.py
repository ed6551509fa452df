"""The cells as tables in Markdown: means over seeds, and the standard errors of differences that are paired
by seed."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import astuple
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from tests.results.freshness.cells import CLICKS, CLOSED, together_rows
from tests.results.freshness.corrections import LOOKED_AT, Effect
from tests.results.freshness.delays import DAY, DELAYS, HOUR, MINUTE, delayed, recovery
from tests.results.freshness.stream import AFTER, PER_MINUTE, Pace, StreamCell, own_answers, run
from tests.results.freshness.worlds import DRIFTS, Drift

Doubles = npt.NDArray[np.float64]
Corrected: TypeAlias = Sequence[tuple[str, int, int, Effect]]
"""(method, clicks, correction, what it did)"""
FRESH, *LATE = DELAYS
"""The shortest delay, and the others, by name."""
AP, P10, CLICKED, TOUCHED = range(4)
"""Columns of what was answered."""
RATES = (10, 100, 1_000)
"""Lists a minute."""


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> Iterator[str]:
    """Lines of a table."""
    yield f"| {' | '.join(head)} |"
    yield f"|{'---|' * len(head)}"
    for row in rows:
        yield f"| {' | '.join(row)} |"
    yield ""


def told(values: Sequence[float] | Doubles, digits: int, factor: float = 1.0, sign: bool = True) -> str:
    """A mean over seeds with its standard error; one seed has none."""
    each = np.asarray(values, np.float64) * factor
    mean = f"{each.mean():{'+' if sign else ''}.{digits}f}"
    if len(each) < 2:
        return mean
    return f"{mean} ± {each.std(ddof=1) / np.sqrt(len(each)):.{digits}f}"


def steadily(data: str, drift: Drift, seeds: int, closed: str | None = None) -> Mapping[str, Doubles]:
    """Delay -> what was answered on average over the day of the drift, float64 [seeds, 4]."""
    found: dict[str, list[Doubles]] = {}
    for seed in range(seeds):
        rows = np.array(run(StreamCell(data, drift, "steadily", seed, closed)))
        for name, delay in DELAYS.items():
            of = rows[rows[:, 1] == delay]
            if len(of):
                found.setdefault(name, []).append(of[:, 2:].mean(axis=0))
    return {name: np.array(each) for name, each in found.items()}


def curves(data: str, drift: Drift, pace: Pace, seeds: int, column: int) -> Doubles:
    """What models answer that were taken at `AFTER` a change at once, float64 [seeds, times]."""
    return np.array([
        [row[2 + column] for row in run(StreamCell(data, drift, pace, seed))] for seed in range(seeds)
    ])  # fmt: skip


def drift_table(data: str, seeds: int) -> Iterator[str]:
    """What a delay costs while a world drifts for a day."""
    rows = []
    for drift in DRIFTS:
        found = steadily(data, drift, seeds)
        fresh = found[FRESH]
        level = f"{fresh[:, CLICKED].mean():.3f}; {fresh[:, AP].mean():.3f} / {fresh[:, P10].mean():.3f}"
        rows.append([
            drift, level,
            *(told((found[one][:, CLICKED] / fresh[:, CLICKED] - 1), 2, 100) for one in LATE),
            told(found[LATE[-1]][:, AP] - fresh[:, AP], 4),
        ])  # fmt: skip
    head = ["what changes", f"with {FRESH}: clicks of a list; mAP / P@10"]
    yield from table([*head, *(f"{one}: clicks, %" for one in LATE), f"{LATE[-1]}: mAP"], rows)


def first_day(data: str, drift: Drift, pace: Pace, seeds: int) -> Mapping[str, Doubles]:
    """Delay -> clicks of a list on average over the day after a change at once, float64 [seeds]."""
    each = curves(data, drift, pace, seeds, CLICKED)
    return {
        name: np.array([delayed(AFTER, one, delay, DAY) for one in each]) for name, delay in DELAYS.items()
    }


def change_table(data: str, seeds: int) -> Iterator[str]:
    """How a change at once is learned."""
    rows = []
    for drift, pace in [("nothing", "from the start"), *((one, "at once") for one in DRIFTS[1:])]:
        column = AP if pace == "from the start" else TOUCHED
        each = curves(data, drift, pace, seeds, column)
        own = np.array([own_answers(StreamCell(data, drift, pace, seed)) for seed in range(seeds)])
        lists = lists_to_recover(each)
        clicks = first_day(data, drift, pace, seeds)
        rows.append([
            "the first clicks" if pace == "from the start" else f"{drift}, at once",
            f"{np.nanmean(own[:, column]):.3f}", f"{each[:, 0].mean():.3f}", f"{each[:, -3:].mean():.3f}",
            f"{lists:,.0f}",
            *(told(clicks[one] / clicks[FRESH] - 1, 2, 100) for one in LATE),
        ])  # fmt: skip
    head = ["what changes", "own ranking", "at first", "after a day", "lists to 90 %"]
    yield from table([*head, *(f"{one}: clicks of the first day, %" for one in LATE)], rows)


def lists_to_recover(each: Doubles) -> float:
    """From a change to 90 % of what a day teaches, the mean of the seeds where there is anything to learn."""
    found = [recovery(AFTER, one) for one in each]
    return float(np.mean([one / MINUTE * PER_MINUTE for one in found if one is not None]))


def recovery_table(lists: float) -> Iterator[str]:
    """From a change to 90 % of what is learned, where that takes so many lists, by rate and delay."""
    rows = [
        [f"{rate:,} lists a minute", *(span(lists / rate * MINUTE + delay) for delay in DELAYS.values())]
        for rate in RATES
    ]
    yield from table(["", *DELAYS], rows)


def span(seconds: float) -> str:
    """A time in words."""
    for unit, of in (("d", DAY), ("h", HOUR), ("min", MINUTE)):
        if seconds >= of:
            return f"{seconds / of:.1f} {unit}"
    return f"{seconds:.1f} s"


def closed_table(data: str, seeds: int) -> Iterator[str]:
    """What is answered where each delay makes its own lists."""
    rows = []
    open_loop = steadily(data, "all together", seeds)
    for name in CLOSED:
        own = steadily(data, "all together", seeds, name)[name]
        cells = [f"{own[:, column].mean():.3f}" for column in (CLICKED, AP, P10)]
        rows.append(
            [name, *cells, *(f"{open_loop[name][:, column].mean():.3f}" for column in (CLICKED, AP, P10))]
        )
    measures = ("clicks of a list", "mAP", "P@10")
    yield from table(
        ["delay", *(f"own lists: {one}" for one in measures), *(f"same lists: {one}" for one in measures)],
        rows,
    )


def obeyed(rows: Corrected) -> Mapping[str, Mapping[int, float]]:
    """Method -> clicks -> the share of corrections that is obeyed."""
    found: dict[str, dict[int, list[float]]] = {}
    for name, clicks, _, effect in rows:
        found.setdefault(name, {}).setdefault(clicks, []).append(effect.obeyed)
    return {name: {at: float(np.mean(one)) for at, one in each.items()} for name, each in found.items()}


def correction_table(rows: Corrected) -> Iterator[str]:
    """Corrections by themselves."""
    body = []
    for name, each in obeyed(rows).items():
        effects = [effect for one, clicks, _, effect in rows if one == name and clicks == LOOKED_AT[-1]]
        body.append([
            name, *(f"{100 * each[clicks]:.0f}" for clicks in LOOKED_AT),
            f"{1000 * np.mean([one.related_ap for one in effects]):+.1f}",
            f"{1000 * np.mean([one.others_ap for one in effects]):+.2f}",
        ])  # fmt: skip
    last = LOOKED_AT[-1]
    head = ["% obeyed after so many clicks", *(str(clicks) for clicks in LOOKED_AT)]
    yield from table(
        [*head, f"same intent, {last} clicks: mAP, thousandths", "other intents: mAP, thousandths"], body
    )


def obeyed_later(seeds: int) -> Mapping[str, tuple[float, float]]:
    """Method -> (the share of corrections that is obeyed at first, a day later), with the most clicks of
    each."""
    found: dict[str, list[tuple[float, float]]] = {}
    for seed in range(seeds):
        for name, effect, later in together_rows(CLICKS[-1], seed):
            found.setdefault(name, []).append((effect.obeyed, later))
    return {name: (float(each[:, 0].mean()), float(each[:, 1].mean())) for name, each in _arrays(found)}


def _arrays(found: Mapping[str, Sequence[tuple[float, ...]]]) -> Iterator[tuple[str, Doubles]]:
    return ((name, np.array(each)) for name, each in found.items())


def together_table(seeds: int) -> Iterator[str]:
    """Corrections of the same hours."""
    for clicks in CLICKS:
        found: dict[str, list[tuple[float, ...]]] = {}
        for seed in range(seeds):
            for name, effect, later in together_rows(clicks, seed):
                found.setdefault(name, []).append((*astuple(effect), later))
        body = []
        for name, each in _arrays(found):
            was, right, related, related_ap, others, others_ap, later = each.T
            body.append([
                name, f"{100 * was.mean():.0f} / {100 * later.mean():.0f}", f"{100 * right.mean():.0f}",
                told(related, 1, 100), told(related_ap, 4), told(others, 1, 100), told(others_ap, 4),
            ])  # fmt: skip
        head = ["% obeyed / a day later", "% right", "same intent: first right, %", "same intent: mAP"]
        yield from table(
            [
                f"{clicks} click{'s' * (clicks > 1)} each",
                *head,
                "other intents: first right, %",
                "other intents: mAP",
            ],
            body,
        )
