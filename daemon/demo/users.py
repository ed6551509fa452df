"""Simulated users over real photos: a process that writes impressions as JSON lines, for `tripletd feed -`.

Each impression: a query photo drawn uniformly; a list of its 5 nearest photos (by the untrained similarity)
and 5 drawn uniformly, shuffled; clicks by a position-biased model. The photos and their classes are real, the
clicks are simulated.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import IO

import numpy as np
import numpy.typing as npt

from daemon.catalogs import as_blocks
from daemon.demo.pack_files import Pack, load_pack
from learners.block import DenseBlock
from learners.maps import SpaceMap, ViewConfig

SAME = 0.8
OTHER = 0.1

BoolArray = npt.NDArray[np.bool_]
IntArray = npt.NDArray[np.int64]
ClickModel = Callable[[BoolArray, np.random.Generator], tuple[int, ...]]


def position_biased(same: BoolArray, rng: np.random.Generator) -> tuple[int, ...]:
    """Clicked ranks, 0-based and ascending: rank r (from 1) is examined with probability 1/sqrt(r).

    `same[r]` says whether the object at rank r is of the query's class.
    """
    examine = 1.0 / np.sqrt(np.arange(1, len(same) + 1))
    clicked = rng.random(len(same)) < examine * np.where(same, SAME, OTHER)
    return tuple(np.flatnonzero(clicked).tolist())


def explored_list(
    nearest: Sequence[int] | IntArray, n_objects: int, query: int, n_uniform: int, rng: np.random.Generator
) -> IntArray:
    """The rows to show: `nearest` and `n_uniform` further objects drawn uniformly, shuffled together.

    Neither the query nor an object twice; `n_objects` is the size of the catalog.
    """
    taken = {query, *map(int, nearest)}
    if n_objects - len(taken) < n_uniform:
        what = f"{n_objects} objects are too few to draw {n_uniform} besides {len(taken)} taken ones"
        raise ValueError(what)
    drawn: list[int] = []
    while len(drawn) < n_uniform:
        row = int(rng.integers(n_objects))
        if row not in taken:
            taken.add(row)
            drawn.append(row)
    shown = np.concatenate([np.asarray(nearest, np.int64), np.asarray(drawn, np.int64)])
    rng.shuffle(shown)
    return shown


NEAREST = 5
UNIFORM = 5
FLUSH_SECONDS = 0.02
"""The shortest pause: a line for a line would cost a system call and a wake-up of the reader each."""


def nearest_rows(pack: Pack, count: int) -> npt.NDArray[np.int64]:
    """The `count` most similar photos of each photo by the mean cosine of their views; int64 [n, count]."""
    views = as_blocks(pack.catalog.views)
    plan = SpaceMap({name: ViewConfig("unit") for name in views})
    mapped = plan.fit(views).transform(views)
    assert isinstance(mapped, DenseBlock)
    similarity = mapped.values @ mapped.values.T
    np.fill_diagonal(similarity, -np.inf)
    best = np.argpartition(-similarity, count, axis=1)[:, :count]
    order = np.argsort(-np.take_along_axis(similarity, best, axis=1), axis=1)
    return np.take_along_axis(best, order, axis=1).astype(np.int64)


def impressions(pack: Pack, count: int, seed: int) -> Iterator[dict[str, object]]:
    """`count` impressions in the format that `tripletd feed` reads."""
    rng = np.random.default_rng(seed)
    nearest = nearest_rows(pack, NEAREST)
    ids, labels = pack.catalog.ids, pack.labels
    for number in range(count):
        query = int(rng.integers(len(ids)))
        shown = explored_list(nearest[query], len(ids), query, UNIFORM, rng)
        clicked = position_biased(labels[shown] == labels[query], rng)
        yield {
            "id": f"visit-{seed}-{number}",
            "ts": int(time.time() * 1000),
            "q": ids[query],
            "shown": [ids[row] for row in shown],
            "clicked": list(clicked),
            "src": "demo",
        }


def write_lines(lines: Iterable[dict[str, object]], rate: float, out: IO[str]) -> None:
    """One JSON line each to `out`, at most `rate` a second; late ones follow without a pause."""
    began = time.monotonic()
    for number, line in enumerate(lines):
        ahead = began + number / rate - time.monotonic()
        if ahead > 0:
            out.flush()
            time.sleep(max(ahead, FLUSH_SECONDS))
        out.write(json.dumps(line, separators=(",", ":")) + "\n")


def main() -> int:
    """Write impressions to stdout until `--count` or until nobody reads them any more."""
    parser = argparse.ArgumentParser(prog="python -m daemon.demo.users", description=__doc__)
    parser.add_argument("--count", type=int, default=1_000_000, help="how many impressions at the most")
    parser.add_argument("--rate", type=float, default=float("inf"), help="how many a second at the most")
    parser.add_argument("--seed", type=int, default=0, help="seed of queries, lists and clicks")
    options = parser.parse_args()
    try:
        write_lines(impressions(load_pack(), options.count, options.seed), options.rate, sys.stdout)
    except (BrokenPipeError, KeyboardInterrupt):
        # The reader has seen enough; pointing stdout elsewhere keeps the interpreter's last flush quiet.
        sys.stdout = None
    return 0


if __name__ == "__main__":
    sys.exit(main())
