"""What N shards and their merger do together, from measured service times.

`python -m tests.benchmarks.capacity` measures how fast a state is read, hashed and added by one core: what
the merger and every shard do with one. How fast a shard learns is taken from docs/measurements.md and
docs/shards.md. The rest is a pure simulation of turns: shards write a version each period, the merger takes
them one after another, every shard takes over what was merged. Nothing is shared but the merger: each shard
has a core, memory and disk of its own.
"""

from __future__ import annotations

import argparse
import hashlib
import statistics
import time
from dataclasses import dataclass

import numpy as np

SHARDS = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1_000)
PRICE_PER_CORE_HOUR = 0.05
"""US dollars; the order of on-demand list prices of general-purpose cloud machines in 2025. An assumption."""
BUSY = 0.7
"""Share of a core that is planned with; the rest is for catching up."""


@dataclass(frozen=True)
class Service:
    """Service times. rate: events a second of a shard that does nothing else; state_bytes: of one version;
    bytes_per_s: how fast a state is read, hashed and added, by one core.
    """

    rate: float
    state_bytes: float
    bytes_per_s: float

    @property
    def state_s(self) -> float:
        """Seconds for one state."""
        return self.state_bytes / self.bytes_per_s


@dataclass(frozen=True)
class Outcome:
    """events_per_s: of all shards; period_s: between merged versions, as it comes to be; efficiency: over N
    times one learner; merger_busy: share of time.
    """

    events_per_s: float
    period_s: float
    efficiency: float
    merger_busy: float


def simulate(service: Service, shards: int, merge_every_s: float, turns: int = 50) -> Outcome:
    """`turns` merges of `shards` shards, in turn; with one shard there is no merge."""
    if shards == 1:
        return Outcome(service.rate, merge_every_s, 1.0, 0.0)
    now = idle = learned = 0.0
    for _ in range(turns):
        work = shards * service.state_s + service.state_s  # every shard's, and writing the sum
        period = max(merge_every_s, work)
        idle += period - work
        # A shard copies its own state for a version, and adds the merged one.
        learned += shards * service.rate * max(0.0, period - 2 * service.state_s)
        now += period
    alone = shards * service.rate * now
    return Outcome(learned / now, now / turns, learned / alone, 1 - idle / now)


def cost_per_million(events_per_s_of_a_core: float) -> float:
    """US dollars of processor for a million events learned."""
    return 1e6 / (events_per_s_of_a_core * BUSY) / 3600 * PRICE_PER_CORE_HOUR


def measured_bytes_per_s(size: int = 64 << 20, repeats: int = 5) -> float:
    """Bytes a second of reading, hashing and adding a state that is in memory; median."""
    state = np.ones(size // 4, dtype=np.float32)
    total = np.zeros_like(state)
    rates = []
    for _ in range(repeats):
        began = time.perf_counter()
        hashlib.sha256(state.data).digest()
        total += state
        rates.append(size / (time.perf_counter() - began))
    return statistics.median(rates)


def main() -> None:
    """Print the tables of docs/capacity.md."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--every", type=float, default=10.0, help="shards.merge_every in seconds")
    every = options.parse_args().every
    speed = measured_bytes_per_s()
    print(f"a state is read, hashed and added at {speed / 1e9:.2f} GB/s of one core\n")
    for name, rate, columns in (
        ("384 dense columns", 38_500, 384),
        ("10,000 sparse columns", 30_883, 10_000),
    ):
        service = Service(rate, 4.0 * columns * columns, speed)
        print(f"{name}: {rate:,} events/s a shard, a state {service.state_bytes / 1e6:,.1f} MB,")
        print(f"${cost_per_million(rate):.5f} of processor per million events")
        print("| shards | events/s | of N times one | period, s | merger busy |\n|---|---|---|---|---|")
        for shards in SHARDS:
            out = simulate(service, shards, every)
            figures = f"{out.events_per_s:,.0f} | {out.efficiency:.2f} | {out.period_s:.1f}"
            print(f"| {shards:,} | {figures} | {out.merger_busy:.2f} |")
        print()
    two = simulate(Service(38_500, 4.0 * 384 * 384, speed), 2, 2.0).events_per_s / 38_500
    print(f"two shards over one, merges every 2 s: {two:.2f} simulated, 1.85 measured: {two / 1.85 - 1:+.0%}")


if __name__ == "__main__":
    main()
