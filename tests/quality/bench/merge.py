"""What merging costs in quality: several learners whose versions are merged, against one that has it all.

`python -m tests.quality.bench.merge SET --shards 1 2 4 8 --periods 250 1000 5000 20000` prints a row for each:
mAP and P@10 of the merged version over those of one learner (`merged_map_vs_serial`), by labels, as served.
Lists of the owner's ranking, clicks by position, `EVENTS` triplets; a query belongs to one shard, by a hash.
Each learns `period` triplets of its own from what was merged last, then versions are merged: by updates, as
the product does, or the sum of all steps, as servers follow them until the next merged version.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence

import numpy as np

from learners.merge import Merge
from learners.merge_rules import OF_A_MATRIX
from streams.event import ObjectRef
from streams.partitions import partition_of, route_key
from tests.quality.bench.backoff import Giving, scores_of
from tests.quality.bench.backoff import Learned as Made
from tests.quality.bench.geometry import Space
from tests.quality.bench.loop import Learning, step
from tests.quality.bench.retrieval import judge
from tests.quality.bench.sets import SETS, Floats, Ints, RawSet, load
from tests.quality.bench.static import own_lists
from tests.quality.bench.users import Users, split

EVENTS = 120_000
FORM = Giving(1.5, 0.3)
JUDGED = 1_000
RULES = ("updates", "sum")


def triplets(data: RawSet, clicks: str, seed: int) -> tuple[Ints, np.ndarray]:
    """The first `EVENTS` triplets and which of their objects were drawn."""
    users = Users(data, clicks, seed, split(data, seed))
    rows, drawn, count = [], [], 0
    while count < EVENTS:
        part = users.look(own_lists(data.name), 8_192)
        rows.append(part.rows)
        drawn.append(part.drawn)
        count += part.rows.shape[1]
    return np.concatenate(rows, axis=1)[:, :EVENTS], np.concatenate(drawn)[:EVENTS]


def shard_of(data: RawSet, queries: Ints, shards: int) -> Ints:
    """The shard of each query, as the log routes it."""
    each = np.array([partition_of(route_key(ObjectRef(id=one)), shards) for one in data.ids])
    return each[queries]


def serial(space: Space, how: Learning, rows: Ints, C: np.ndarray) -> Floats:
    """W of one learner."""
    return step(space.first(how.start), space, rows, C)


def merged(
    space: Space, how: Learning, parts: Sequence[tuple[Ints, np.ndarray]], period: int, rule: str
) -> Floats:
    """W of several learners, merged after every `period` triplets of each. parts: of each, rows and C."""
    W, at = space.first(how.start), 0
    longest = max(rows.shape[1] for rows, _ in parts)
    while at < longest:
        states, counts = [], []
        for rows, C in parts:
            now = slice(at, at + period)
            if rows[:, now].shape[1]:
                states.append(step(W.copy(), space, rows[:, now], C[now]))
                counts.append(rows[:, now].shape[1])
        if rule == "sum":
            W = (W + sum((one.astype(np.float64) - W for one in states), np.zeros(W.shape))).astype(
                np.float32
            )
        else:
            of = [{"W": one, "events": np.array(n)} for one, n in zip(states, counts, strict=True)]
            W = Merge(dict, OF_A_MATRIX).states({"W": W, "events": np.array(0)}, of, counts)["W"]
        at += period
    return W


def rated(data: RawSet, made: Made, W: Floats, queries: Ints) -> np.ndarray:
    """[mAP, P@10] by labels, as served."""
    made.W = W
    return np.array(judge(scores_of(made.form(FORM), made.space.Z), data.labels, queries).pair)


def table(
    name: str, shards: Sequence[int], periods: Sequence[int], clicks: str = "position", seed: int = 0
) -> Iterator[tuple[int, int, str, np.ndarray, np.ndarray]]:
    """(shards, period, rule, [mAP, P@10] merged, the same of one learner)."""
    data = load(name)
    rows, drawn = triplets(data, clicks, seed)
    made = Made(data, split(data, seed), clicks, seed)
    made.asked = np.unique(rows[0])
    how = Learning("identity" if len(data.views) > 1 else "mean")
    C = how.bounds(drawn)
    judged = split(data, seed).judged
    queries = judged[:: max(1, len(judged) // JUDGED)]
    alone = rated(data, made, serial(made.space, how, rows, C), queries)
    for count in shards:
        whose = shard_of(data, rows[0], count)
        parts = [(rows[:, whose == k], C[whose == k]) for k in range(count)]
        for period in periods:
            for rule in RULES if count > 1 else RULES[:1]:
                W = merged(made.space, how, parts, period, rule)
                yield count, period, rule, rated(data, made, W, queries), alone


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser()
    parser.add_argument("set", choices=SETS)
    parser.add_argument("--shards", type=int, nargs="+", default=[2, 4, 8])
    parser.add_argument("--periods", type=int, nargs="+", default=[250, 1_000, 5_000, 20_000])
    parser.add_argument("--clicks", default="position")
    asked = parser.parse_args()
    print(
        "| shards | events of each between merges | by | mAP | P@10 | mAP, of one learner's | P@10, of that |"
    )
    print("|---|---|---|---|---|---|---|")
    for shards, period, rule, found, alone in table(asked.set, asked.shards, asked.periods, asked.clicks):
        share = found / alone
        cells = [shards, f"{period:,}", rule, *(f"{one:.3f}" for one in (*found, *share))]
        print(f"| {' | '.join(map(str, cells))} |", flush=True)


if __name__ == "__main__":
    main()
