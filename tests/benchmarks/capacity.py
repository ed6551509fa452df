"""What N shards and their merger do together, from measured service times.

`python -m tests.benchmarks.capacity` measures how fast a state is read, hashed and added by one core: what
the merger and every shard do with one. How fast a shard learns is taken from docs/measurements.md and
docs/shards.md. The rest is a pure simulation of turns: shards write a version each period, the merger takes
them one after another, every shard takes over what was merged. Nothing is shared but the merger: each shard
has a core, memory and disk of its own.

What learning uses is counted in units; prices are the reader's own:

    python -m tests.benchmarks.capacity --core-hour C --gb-month G --million-puts P
"""

from __future__ import annotations

import argparse
import hashlib
import statistics
import time
from dataclasses import dataclass

import numpy as np

from tests.benchmarks.harness import Figure

SHARDS = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1_000)
USED = (1, 2, 8, 32, 128)
PUTS_PER_VERSION = 3
"""Requests of a version in a bucket that are charged as writes: its state, its manifest, and one listing."""
KEPT = 20
"""Versions that a line keeps, as `checkpoints.keep` has it."""
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


@dataclass(frozen=True)
class Prices:
    """What the reader pays, in any currency; there are no prices here, since lists differ and change.

    core_hour: of one core; gb_month: of 10^9 bytes in the bucket; million_puts: of requests that are charged
    as writes.
    """

    core_hour: float
    gb_month: float
    million_puts: float


@dataclass(frozen=True)
class Use:
    """What learning uses. core_hours, puts: for a million events; gb: kept in the bucket all the time;
    events_per_month: learned in 30 days at this rate.
    """

    core_hours: float
    puts: float
    gb: float
    events_per_month: float

    def cost(self, prices: Prices) -> float:
        """Of a million events, at these prices."""
        kept = self.gb * prices.gb_month / (self.events_per_month / 1e6)
        return self.core_hours * prices.core_hour + self.puts / 1e6 * prices.million_puts + kept


def use(service: Service, shards: int, merge_every_s: float) -> Use:
    """Of learners that are busy for `BUSY` of the time, their merger, and their versions in a bucket: each
    learner and the merger write one each period."""
    out = simulate(service, shards, merge_every_s)
    rate = out.events_per_s * BUSY
    lines = shards + (shards > 1)
    core_hours = (shards + out.merger_busy) / rate * 1e6 / 3600
    puts = lines * PUTS_PER_VERSION / out.period_s / rate * 1e6
    return Use(core_hours, puts, lines * KEPT * service.state_bytes / 1e9, rate * 30 * 86_400)


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


MEASURED_TWO = 1.81
"""Two shards with 384 columns over one learner, merges every 2 s (docs/shards.md)."""


def figures() -> list[Figure]:
    """The simulation at the one point that was measured; the tables are printed by `main`."""
    speed = measured_bytes_per_s()
    two = simulated_two(speed)
    detail = {"gb_per_s": round(speed / 1e9, 2), "simulated": round(two, 3), "measured": MEASURED_TWO}
    return [Figure("simulated_two_shards", round(two / MEASURED_TWO, 3), "ratio", "measured", 5, detail)]


def simulated_two(bytes_per_s: float) -> float:
    """Two shards over one learner, 384 columns, merges every 2 s."""
    return simulate(Service(38_500, 4.0 * 384 * 384, bytes_per_s), 2, 2.0).events_per_s / 38_500


def main() -> None:
    """Print the tables of docs/capacity.md."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--every", type=float, default=10.0, help="shards.merge_every in seconds")
    options.add_argument("--core-hour", type=float, default=0.0, help="what an hour of a core costs")
    options.add_argument(
        "--gb-month", type=float, default=0.0, help="what 10^9 bytes in a bucket cost a month"
    )
    options.add_argument("--million-puts", type=float, default=0.0, help="what a million writes to it cost")
    options.add_argument(
        "--gb-per-s", type=float, help="of a state read, hashed and added; measured if left out"
    )
    given = options.parse_args()
    every, prices = given.every, Prices(given.core_hour, given.gb_month, given.million_puts)
    speed = 1e9 * given.gb_per_s if given.gb_per_s else measured_bytes_per_s()
    print(f"a state is read, hashed and added at {speed / 1e9:.2f} GB/s of one core\n")
    for name, rate, columns in (
        ("384 dense columns", 38_500, 384),
        ("10,000 sparse columns", 30_883, 10_000),
    ):
        service = Service(rate, 4.0 * columns * columns, speed)
        print(f"{name}: {rate:,} events/s a shard, a state {service.state_bytes / 1e6:,.1f} MB,")
        print("| shards | events/s | of N times one | period, s | merger busy |\n|---|---|---|---|---|")
        for shards in SHARDS:
            out = simulate(service, shards, every)
            figures = f"{out.events_per_s:,.0f} | {out.efficiency:.2f} | {out.period_s:.1f}"
            print(f"| {shards:,} | {figures} | {out.merger_busy:.2f} |")
        print("\n| shards | core hours | writes | GB kept | cost |\n|---|---|---|---|---|")
        for shards in USED:
            used = use(service, shards, every)
            cost = used.cost(prices)
            print(f"| {shards:,} | {used.core_hours:.4f} | {used.puts:,.1f} | {used.gb:,.2f} | {cost:.6f} |")
        print()
    two = simulated_two(speed)
    off = f"{two / MEASURED_TWO - 1:+.0%}"
    print(f"two shards over one, merges every 2 s: {two:.2f} simulated, {MEASURED_TWO} measured: {off}")


if __name__ == "__main__":
    main()
