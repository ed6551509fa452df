"""A server that is asked twice as much as it can answer: what it answers, how late, and what it refuses.

100,000 objects of 384 numbers, exact search, k = 10, questions by id one by one. What it can do is measured
first: `BUSY` connections that ask one question after the other. Then questions leave at half and at twice
that rate, at their times whatever the server does, over more connections than it takes. The server is pinned
to core 0; whoever asks is not.

`surge_answered_vs_capacity`: answers a second at twice the rate, over what it can do, before and after. In
the detail: how late the answered ones were (from the time at which each was due), how quickly the others
were refused, and their share. `hung_up`: questions on a connection that had been idle and gave way to
another one, which clients ask again on a new one.

    python -m tests.benchmarks.surge [--objects 100000] [--set serve.queue=512]
"""

from __future__ import annotations

import argparse
import json
import shutil
import sys
from collections.abc import Sequence

import numpy as np

from streams.open import ensure_topic
from streams.source import parse_address
from tests.benchmarks.harness import Figure
from tests.benchmarks.load import NO_ANSWER, Asked, Load, beside
from tests.benchmarks.places import Place, pin
from tests.benchmarks.servers import closed_rate

DIM, ITEMS, K = 384, 100_000, 10
BUSY, CROWD = 64, 1_500
"""Connections that find out what it can do; and those of the surge, more than serve.queue and
serve.connections."""
ABLE_S, SECONDS = 6.0, 15.0
PATH, REFUSED = "/v1/similar", 503


def figures(objects: int = ITEMS, settings: Sequence[str] = ()) -> list[Figure]:
    """The one figure."""
    more = '[serve]\naliases = ["latest"]\nann = "off"\n'
    place = Place.make("surge", "dense", DIM, objects, more=more)
    ensure_topic(parse_address(f"log:{place.folder / 'clicks.log'}"), 1)
    options = [word for one in settings for word in ("--set", one)]
    bodies = [json.dumps({"id": f"o{number}", "k": K}).encode() for number in range(1_000)]
    try:
        place.learn()
        with place.running("serve", *options) as server:
            pin(server.pid, {0})
            port = place.ports["serve"]
            closed_rate(port, PATH, bodies[:BUSY], 1, 2.0)
            able = closed_rate(port, PATH, bodies[:BUSY], 1, ABLE_S)
            half = _asked(port, bodies, able / 2)
            surge = _asked(port, bodies, 2 * able)
            after = closed_rate(port, PATH, bodies[:BUSY], 1, ABLE_S)
    finally:
        shutil.rmtree(place.folder, ignore_errors=True)
    answered = sum(one.status == 200 for one in surge) / SECONDS
    refused = [one for one in surge if one.status == REFUSED]
    hung_up = [one for one in surge if one.status == NO_ANSWER and "closed before" in one.answer]
    others = len(surge) - len(refused) - len(hung_up) - sum(one.status == 200 for one in surge)
    detail = {
        "able_per_second": round(able, 1),
        "asked_per_second": round(2 * able, 1),
        "answered_per_second": round(answered, 1),
        "refused_share": round(len(refused) / len(surge), 3),
        "hung_up_share": round(len(hung_up) / len(surge), 3),
        "failed_otherwise": others,
        "able_after_per_second": round(after, 1),
        **_late("half", half, 200),
        **_late("surge", surge, 200),
        **_late("refused", surge, REFUSED),
    }
    against = f"what it can do: {BUSY} connections, one question after the other"
    ratio = 2 * answered / (able + after)
    return [Figure("surge_answered_vs_capacity", round(ratio, 3), "ratio", against, 1, detail)]


def _asked(port: int, bodies: Sequence[bytes], rate: float) -> list[Asked]:
    with beside(Load("127.0.0.1", port, bodies, rate, SECONDS, CROWD, PATH)) as load:
        pass
    return load.asked


def _late(name: str, asked: Sequence[Asked], status: int) -> dict[str, float]:
    """Percentiles of what was answered like this, in milliseconds since each was due."""
    took = [1e3 * one.seconds for one in asked if one.status == status]
    points = {"p50": 50, "p99": 99, "max": 100}
    return {
        f"{name}_{point}_ms": round(float(np.percentile(took, at)), 1) for point, at in points.items() if took
    }


def main() -> int:
    """Print the figure as JSON."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--objects", type=int, default=ITEMS)
    options.add_argument("--set", action="append", default=[], help="of the server, such as serve.queue=64")
    given = options.parse_args()
    for figure in figures(given.objects, given.set):
        sys.stdout.write(json.dumps({figure.name: figure.value, **figure.detail}, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
