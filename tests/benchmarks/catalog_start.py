"""How long a role takes from its start until it is ready, where its objects were read before.

200,000 objects of 384 float32 with the default map; the kernels are compiled, version 0 is written. What is
measured is the whole start of each role, one at a time: the interpreter and its imports, the objects, the map
of all of them, and for serve the forms. `objects_s` is the part of opening the objects alone, `first_read_s`
what reading them took the first time.
"""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
import time
from collections.abc import Callable

import numpy as np

from daemon.catalogs import learner_catalog
from daemon.config import load_config
from tests.benchmarks.harness import Figure
from tests.benchmarks.places import Place, environment

ITEMS, DIM, LISTS, REPEATS = 200_000, 384, 400, 3
ROLES = ("learn", "validate", "serve")


def figures() -> list[Figure]:
    """`catalog_start_seconds`: of the role that takes longest, the median of its starts."""
    place = Place.make("catalog", "dense", DIM, ITEMS)
    place.file.write_text(place.file.read_text().replace('map = "identity"\n', ""))
    config = load_config(place.file, environ={})
    first, again = _seconds(lambda: learner_catalog(config)), _seconds(lambda: learner_catalog(config))
    _feed(place)
    place.learn()
    starts = {role: [_start(place, role) for _ in range(REPEATS)] for role in ROLES}
    medians = {role: statistics.median(taken) for role, taken in starts.items()}
    detail = {f"{role}_s": round(taken, 2) for role, taken in medians.items()}
    detail |= {"first_read_s": round(first, 2), "objects_s": round(again, 3)}
    slowest = round(max(medians.values()), 2)
    return [Figure("catalog_start_seconds", slowest, "s", "5 s for every role", REPEATS, detail)]


def _feed(place: Place) -> None:
    """Clicks, as validate is ready once it holds enough lists out."""
    rng = np.random.default_rng(3)
    with (place.folder / "clicks.jsonl").open("w") as file:
        for number in range(LISTS):
            query, *shown = (f"o{one}" for one in rng.choice(ITEMS, 11, replace=False))
            row = {"id": str(number), "ts": number, "q": query, "shown": shown, "clicked": [number % 10]}
            file.write(json.dumps(row) + "\n")
    words = [sys.executable, "-P", "-m", "daemon", "feed", str(place.folder / "clicks.jsonl")]
    subprocess.run([*words, "--config", str(place.file)], env=environment(), check=True)


def _seconds(work: Callable[[], object]) -> float:
    began = time.perf_counter()
    work()
    return time.perf_counter() - began


def _start(place: Place, role: str) -> float:
    began = time.perf_counter()
    with place.running(role):
        return time.perf_counter() - began
