"""Events at a steady rate, from a process of its own: `python -m tests.benchmarks.feeder ADDRESS ...`.

Each event is due at its time, whatever became of those before, and carries that time: a producer that is held
up sends late, and the delay counts. What was due when is written to a file, one float64 (Unix seconds) each.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from streams.codec import encode_event
from streams.event import Event, ObjectRef
from streams.open import open_sink
from streams.source import KafkaSettings, OutRecord, parse_address

EVERY_S = 0.01
"""Between two sends: what became due since the last one goes in one batch."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Send, then write when each event was due."""
    parser = argparse.ArgumentParser()
    parser.add_argument("address")
    parser.add_argument("--rate", type=float, required=True)
    parser.add_argument("--seconds", type=float, required=True)
    parser.add_argument("--items", type=int, required=True)
    parser.add_argument("--out", type=Path, required=True)
    given = parser.parse_args(arguments)
    address = parse_address(given.address)
    if address.scheme == "kafka":
        address = replace(address, kafka=KafkaSettings(client="confluent"))
    total = int(given.rate * given.seconds)
    draws = np.random.default_rng(5).integers(0, given.items, (total, 3))
    sink = open_sink(address)
    begin, sent = time.time() + 0.2, 0
    while sent < total:
        time.sleep(max(0.0, begin + sent / given.rate + EVERY_S - time.time()))
        due = min(total, int((time.time() - begin) * given.rate) + 1)
        sink.send([OutRecord(event(n, begin + n / given.rate, draws[n])) for n in range(sent, due)])
        sent = due
    sink.close()
    np.save(given.out, begin + np.arange(total) / given.rate)
    return 0


def event(number: int, at: float, drawn: np.ndarray) -> bytes:
    """Event `number`, produced at that time (Unix seconds), of three objects by their rows."""
    query, clicked, skipped = (ObjectRef(id=f"o{n}") for n in drawn)
    return encode_event(Event(f"e{number}", int(at * 1000), query, clicked, skipped))


if __name__ == "__main__":
    sys.exit(main())
