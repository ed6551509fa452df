"""A thousand swaps under load: what they cost those who ask, and whether any answer is wrong.

A server follows `stable` while promotions move it from version to version, five times a second. Windows
with swaps take turns with windows without, where as many promotions are written, of the version that is
served: both pay for the ledger, that this process writes and the server reads, and one for the swaps alone.
The load is the same in both and leaves at its times whatever happens. Every answer is computed again,
offline, for the version that it names.

`swap_failed_requests`, `swap_wrong_answers`: of all of them. `swap_p99_ratio`: p99 latency with swaps over
without, the median of the pairs of windows. `swap_rss_ratio`: the server's anonymous memory after all swaps
over that after the first window of them.
"""

from __future__ import annotations

import json
import re
import shutil
import statistics
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from itertools import cycle, repeat

import numpy as np
from numpy.typing import NDArray

from checkpoints import Ledger, VersionStore
from checkpoints.local import LocalStore
from daemon.config import load_config
from daemon.versions.restore import serving_form
from learners import DenseBlock
from streams.event import DenseColumn
from streams.open import ensure_topic, open_sink
from streams.source import OutRecord, parse_address
from tests.benchmarks.feeder import event
from tests.benchmarks.harness import Figure
from tests.benchmarks.load import Asked, Load, beside
from tests.benchmarks.places import Place, rss_anon

DIM, ITEMS, VERSIONS = 512, 5_000, 8
EVENTS_PER_VERSION = 2_000
PAIRS, MOST_PAIRS, SWAPS = 20, 60, 1_000
WINDOW_S, EVERY_S = 10.0, 0.2
"""A promotion every so often: 50 in a window, where the server keeps up."""
ASKED_RATE, QUESTIONS, K = 200.0, 100, 10
CLOSE = 2e-5
"""Largest difference of a score between two ways of summing float32 products."""
MORE = """
[checkpoints]
every = "1h"
keep = 100
[serve]
aliases = ["stable"]
look_every = "20ms"
"""


@dataclass(frozen=True)
class Window:
    """From when to when, Unix seconds, and whether versions were swapped in it."""

    begin: float
    end: float
    swapping: bool


def figures() -> list[Figure]:
    """The four figures of one run."""
    place = Place.make("swaps", "dense", DIM, ITEMS, more=MORE)
    try:
        learn_versions(place)
        store = LocalStore(place.folder / "checkpoints")
        versions, ledger = VersionStore(store), Ledger(store)
        numbers = [number for number in versions.versions() if number][:VERSIONS]
        drawn = np.random.default_rng(1).integers(0, ITEMS, QUESTIONS)
        exact = offline(place, versions, [0, *numbers], drawn)  # and keeps the forms, as a validator does
        bodies = [json.dumps({"id": f"o{n}", "k": K, "alias": "stable"}).encode() for n in drawn]
        with place.running("serve") as process:
            load = Load("127.0.0.1", place.ports["serve"], bodies, ASKED_RATE, 3600.0, connections=16)
            windows, memory, asked = swap(place, ledger, numbers, load, process.pid)
            swaps = swaps_of(place)
        wrong = count_wrong(asked, drawn, exact)
        return told(windows, memory, asked, wrong, swaps)
    finally:
        shutil.rmtree(place.folder, ignore_errors=True)


def learn_versions(place: Place) -> None:
    """Write `VERSIONS` versions that differ: the learner learns some events and ends, again and again."""
    address = parse_address(f"log:{place.folder / 'clicks.log'}")
    ensure_topic(address, 1)
    draws = np.random.default_rng(2).integers(0, ITEMS, (EVENTS_PER_VERSION * VERSIONS, 3))
    for start in range(0, len(draws), EVENTS_PER_VERSION):
        with closing(open_sink(address)) as sink:
            rows = range(start, start + EVENTS_PER_VERSION)
            sink.send([OutRecord(event(n, 1.7e9, draws[n])) for n in rows])
        place.learn()


def swap(
    place: Place, ledger: Ledger, numbers: Sequence[int], load: Load, pid: int
) -> tuple[list[Window], tuple[int, int], list[Asked]]:
    """The windows, the memory after the first and after the last of those with swaps, and every answer."""
    windows: list[Window] = []
    first = last = 0
    turn = cycle(numbers)
    with beside(load) as asking:
        time.sleep(WINDOW_S)  # everything is warm
        while len(windows) < 2 * PAIRS or swaps_of(place) < SWAPS:
            assert len(windows) < 2 * MOST_PAIRS, f"only {swaps_of(place)} swaps"
            windows.append(Window(*promote(ledger, turn), swapping=True))
            time.sleep(1.0)  # the last one is in
            last = rss_anon(pid)
            first = first or last
            served = int(str(ledger.entries()[-1].version))
            windows.append(Window(*promote(ledger, repeat(served)), swapping=False))
        asking.stop()
    return windows, (first, last), asking.asked


def promote(ledger: Ledger, numbers: Iterator[int]) -> tuple[float, float]:
    """Promotions of these versions, one each `EVERY_S`, for the length of a window: from when to when."""
    begin = time.time()
    while time.time() < begin + WINDOW_S:
        ledger.append({"kind": "PROMOTE", "version": next(numbers), "alias": "stable", "by": "bench"})
        time.sleep(EVERY_S)
    return begin, time.time()


def swaps_of(place: Place) -> int:
    """Versions swapped in since the server began."""
    (found,) = re.findall(
        r'tripletd_swaps_total\{alias="stable",result="version"\} (\S+)', place.page("serve")
    )
    return int(float(found))


def told(
    windows: Sequence[Window], memory: tuple[int, int], asked: Sequence[Asked], wrong: int, swaps: int
) -> list[Figure]:
    """The figures and what stands behind them."""
    tails = [_p99(asked, window) for window in windows]
    ratios = [with_swaps / without for with_swaps, without in zip(tails[::2], tails[1::2], strict=True)]
    failed = sum(one.status != 200 for one in asked)
    detail = {
        "swaps": float(swaps),
        "asked": float(len(asked)),
        "p99_ms_with_swaps_median": round(statistics.median(tails[::2]), 3),
        "p99_ms_without_median": round(statistics.median(tails[1::2]), 3),
        "ratio_min": round(min(ratios), 3),
        "ratio_max": round(max(ratios), 3),
        "rss_anon_mb": round(memory[1] / 1e6, 1),
    }
    shape = f"d = {DIM}, {ITEMS:,} objects, {ASKED_RATE:.0f} questions/s, {swaps:,} swaps"
    return [
        Figure("swap_failed_requests", failed, "requests", f"all asked; {shape}", 1, detail),
        Figure(
            "swap_wrong_answers", wrong, "answers", f"each computed again for its version; {shape}", 1, detail
        ),
        Figure(
            "swap_p99_ratio",
            round(statistics.median(ratios), 3),
            "ratio",
            f"p99 of the windows without swaps; {shape}",
            len(ratios),
            detail,
        ),
        Figure(
            "swap_rss_ratio",
            round(memory[1] / memory[0], 3),
            "ratio",
            f"anonymous memory after the first window of swaps; {shape}",
            1,
            detail,
        ),
    ]


def offline(
    place: Place, versions: VersionStore, numbers: Sequence[int], drawn: NDArray[np.int64]
) -> dict[int, NDArray[np.float32]]:
    """Per version, the scores of every drawn query with every object, itself left out (-inf)."""
    column = place.catalog().views["x"]
    assert isinstance(column, DenseColumn)
    config = load_config(place.file).serving
    found = {}
    for number in numbers:
        form = serving_form(versions, versions.load(number), config)
        scores = form.scores(DenseBlock(column.values[drawn]), DenseBlock(column.values))
        scores[np.arange(len(drawn)), drawn] = -np.inf
        found[number] = scores
    return found


def count_wrong(
    asked: Sequence[Asked], drawn: NDArray[np.int64], scores: dict[int, NDArray[np.float32]]
) -> int:
    """Answers that are not the top K of the version they name, or give another score."""
    wrong = 0
    for one in asked:
        if one.status == 200:
            answer = json.loads(one.answer)
            exact = scores[answer["base"]][one.question]
            wrong += answer["version"] != str(answer["base"]) or not _is_top(answer["results"], exact)
    return wrong


def _is_top(results: Sequence[dict[str, float | str]], exact: NDArray[np.float32]) -> bool:
    rows = [int(str(hit["id"])[1:]) for hit in results]
    given = np.array([float(hit["score"]) for hit in results])
    kth = np.partition(exact, -K)[-K]
    return bool(
        len(set(rows)) == K and np.all(np.abs(given - exact[rows]) <= CLOSE) and given.min() >= kth - CLOSE
    )


def _p99(asked: Sequence[Asked], window: Window) -> float:
    """Milliseconds, of what was due in the window."""
    return float(
        np.percentile([one.seconds * 1e3 for one in asked if window.begin <= one.due < window.end], 99)
    )


if __name__ == "__main__":
    for figure in figures():
        sys.stdout.write(f"{figure.name} {figure.value} {json.dumps(figure.detail)}\n")
