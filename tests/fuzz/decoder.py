"""`python -m tests.fuzz.decoder --seconds N --seed S`: look for an input that the two decoders disagree on.

Every input goes through the compiled functions as plain Python with each place checked, and, in batches,
through both decoders. What reaches lines of those functions in an order not seen before is kept and changed
further. An input that breaks something is printed, with the option that tries it alone: `--hex`.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from random import Random
from types import FrameType
from typing import Any

from tests.fuzz.cases import CASES, Case  # isort: skip
from tests.fuzz.checked import CheckedReading, load_plain  # isort: skip
from tests.fuzz.compare import assert_same  # isort: skip
from tests.fuzz.generate import mutated, record  # isort: skip

BATCH = 40
KEPT = 2_000


class Fuzzer:
    """Draws records, remembers those that reach something new, and counts."""

    def __init__(self, seed: int) -> None:
        self._rng = Random(seed)
        self._modules = load_plain()
        self._readings = [CheckedReading(case, self._modules) for case in CASES]
        self._corpus: list[list[bytes]] = [[] for _ in CASES]
        self._steps: set[Any] = set()
        self.counts: Counter[str] = Counter()

    def round(self) -> None:
        """One batch of one case: every record by itself, then all together in both decoders."""
        which = self._rng.randrange(len(CASES))
        case, values = CASES[which], [self._draw(which) for _ in range(BATCH)]
        for value in values:
            self._one(which, value)
        with told(case, values):
            decoded = assert_same(case, values)
        self.counts["records"] += len(values)
        self.counts["events"] += len(decoded)
        self.counts.update(f"poison {one.reason}" for one in decoded.poison)

    def _draw(self, which: int) -> bytes:
        corpus = self._corpus[which]
        if not corpus or self._rng.random() < 0.4:
            return record(self._rng, CASES[which].space)
        return mutated(self._rng.choice(corpus), self._rng, self._rng.choice(corpus))

    def _one(self, which: int, value: bytes) -> None:
        seen: set[Any] = set()
        with told(CASES[which], [value]), followed(seen):
            self._readings[which].check(value)
        if not seen <= self._steps:
            self._steps |= seen
            self._corpus[which].append(value)
            if len(self._corpus[which]) > KEPT:
                del self._corpus[which][self._rng.randrange(KEPT)]
        self.counts["ways seen"] = len(self._steps)


@contextmanager
def followed(seen: set[Any]) -> Iterator[None]:
    """Note every step from line to line of the functions in `streams/compiled`."""

    def enter(frame: FrameType, event: str, argument: Any) -> Callable[..., Any] | None:
        code = frame.f_code
        if "/compiled/" not in code.co_filename or code.co_name in ("find", "roles"):
            return None
        last = 0

        def step(frame: FrameType, event: str, argument: Any) -> Callable[..., Any]:
            nonlocal last
            seen.add((code, last, frame.f_lineno))
            last = frame.f_lineno
            return step

        return step

    before = sys.gettrace()
    sys.settrace(enter)
    try:
        yield
    finally:
        sys.settrace(before)


@contextmanager
def told(case: Case, values: list[bytes]) -> Iterator[None]:
    """Say which input it was when something breaks."""
    try:
        yield
    except BaseException:
        sys.stderr.write(f"case {case.name!r}, {len(values)} records:\n")
        sys.stderr.writelines(f"  --hex {value.hex()}\n" for value in values)
        raise


def main(arguments: list[str]) -> int:
    """Fuzz for a time, or try one record in every case."""
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz.decoder")
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--hex", help="one record, tried in every case")
    options = parser.parse_args(arguments)
    if options.hex is not None:
        modules = load_plain()
        for case in CASES:
            taken = CheckedReading(case, modules).check(bytes.fromhex(options.hex))
            decoded = assert_same(case, [bytes.fromhex(options.hex)])
            sys.stdout.write(f"{case.name}: taken {taken}, {[one.reason for one in decoded.poison]}\n")
        return 0
    fuzzer, end = Fuzzer(options.seed), time.monotonic() + options.seconds
    while time.monotonic() < end:
        fuzzer.round()
    sys.stdout.writelines(f"{count:>9,} {name}\n" for name, count in sorted(fuzzer.counts.items()))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
