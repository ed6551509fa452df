"""What merging costs in quality: several learners whose versions are merged, against one that has it all.

`python -m tests.quality.bench.merge SET --learner oasis --shards 2 4 8 --periods 250 1000 5000 20000 0`
prints a row for each: mAP and P@10 of the merged version, and both over those of one learner
(`merged_map_vs_serial`), by labels, as served. Lists of the owner's ranking, clicks by position, `EVENTS`
triplets; a query belongs to one shard, by a hash. Each learns `period` triplets of its own from what was
merged last (0: all there are), then states are merged: as the sum of all steps, as their mean by updates, or
as the mean of all learners alike.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from daemon.config.learners import LEARNERS, LearnerConfig
from daemon.feeding import FALLS_FROM
from daemon.versions.algorithms import ALGORITHMS, columns_of, merge_of, restored, unit_blocks, untrained
from learners.base import Learner
from learners.block import Block, TripletBatch, as_block
from learners.forms.quadratic import FoldingForm
from learners.outcome import UPDATED
from streams.event import ObjectRef
from streams.partitions import partition_of, route_key
from tests.quality.bench.backoff import Giving, scores_of
from tests.quality.bench.backoff import Learned as Made
from tests.quality.bench.geometry import Space, mapped
from tests.quality.bench.loop import Learning
from tests.quality.bench.retrieval import judge
from tests.quality.bench.sets import SETS, Ints, RawSet, load
from tests.quality.bench.static import own_lists
from tests.quality.bench.users import CLICKS, Users, split

EVENTS = 120_000
FORM = Giving(1.5, 0.3)
"""What versions of a matrix are served as until clicks choose."""
JUDGED = 1_000
LISTS = 8_192
"""Looked at together."""
AT_ONCE = 1_000
"""Triplets whose vectors are copied together."""
RULES = ("sum", "updates", "equal")

State = dict[str, npt.NDArray[Any]]


def triplets(data: RawSet, clicks: str, seed: int, events: int) -> tuple[Ints, npt.NDArray[np.bool_]]:
    """The first triplets, and which of their skipped objects were drawn."""
    users = Users(data, clicks, seed, split(data, seed))
    rows, drawn, count = [], [], 0
    while count < events:
        part = users.look(own_lists(data.name), LISTS)
        rows.append(part.rows)
        drawn.append(part.drawn)
        count += part.rows.shape[1]
    return np.concatenate(rows, axis=1)[:, :events], np.concatenate(drawn)[:events]


def shards_of(data: RawSet, queries: Ints, shards: int) -> list[Ints]:
    """Which triplets each shard takes, in order, by their queries, as the log routes them."""
    each = np.array([partition_of(route_key(ObjectRef(id=one)), shards) for one in data.ids])
    return [np.flatnonzero(each[queries] == k) for k in range(shards)]


@dataclass(frozen=True, eq=False)
class World:
    """A learner with its default settings, the vectors it learns in, and triplets, int64 [3, n], with their
    weights."""

    data: RawSet
    config: LearnerConfig
    space: Space
    vectors: Block
    made: Made
    rows: Ints
    weights: npt.NDArray[np.float64]

    @classmethod
    def of(cls, name: str, algorithm: str, clicks: str, seed: int, events: int = EVENTS) -> World:
        """What clicks give on a set; drawn objects weigh what the product's defaults say."""
        data, config = load(name), LEARNERS[algorithm].model_validate({"algorithm": algorithm})
        rows, drawn = triplets(data, clicks, seed, events)
        falls = FALLS_FROM if algorithm == "oasis" and len(data.views) > 1 else 0
        weights = Learning(C=1.0, falls_from=falls).bounds(drawn)
        made = Made(data, split(data, seed), clicks, seed)
        made.asked = np.unique(rows[0])
        space = mapped(data, "precondition", by_block=unit_blocks(config))
        return cls(data, config, space, as_block(space.Z), made, rows, weights)

    @property
    def how(self) -> dict[str, Any]:
        """What makes a learner besides its settings."""
        fitted = self.space.fitted
        return {"columns": {} if fitted is None else columns_of(fitted), "own": self.space.own}

    def first(self) -> State:
        """The state before any event."""
        return dict(untrained(self.config, self.space.dim, **self.how).state())

    def restored(self, state: State) -> Learner:
        """A learner that goes on from a state, which stays as it is."""
        return restored(self.config, {name: np.array(one) for name, one in state.items()}, **self.how)

    def learned(self, state: State, chosen: Ints) -> tuple[State, int]:
        """The state after these triplets, and how many changed it."""
        learner, updates = self.restored(state), 0
        for start in range(0, len(chosen), AT_ONCE):
            part = chosen[start : start + AT_ONCE]
            batch = TripletBatch(*(self.vectors.take(one) for one in self.rows[:, part]))
            info = learner.learn_many(batch, self.weights[part])
            updates += int(np.count_nonzero(info.outcome == UPDATED))
        return dict(learner.state()), updates

    def merged(self, shards: int, period: int, rule: str) -> State:
        """The state of several learners that are merged after every `period` triplets of each."""
        parts = shards_of(self.data, self.rows[0], shards)
        longest, state = max(map(len, parts)), self.first()
        algebra = merge_of(self.config, **self.how)
        for at in range(0, longest, period or longest):
            now = [self.learned(state, part[at : at + (period or longest)]) for part in parts]
            counts = [1 if rule == "equal" else updates for _, updates in now]
            state = algebra.states(state, [one for one, _ in now], counts, rule == "sum")
        return state

    def form(self, state: State) -> FoldingForm:
        """What a version of the state is served as, as long as clicks did not choose another form."""
        learner: Any = self.restored(state)
        if ALGORITHMS[self.config.algorithm].factors:
            self.made.W = learner.W
            return self.made.form(FORM)
        form: FoldingForm = learner.form()
        return form

    def rated(self, state: State, queries: Ints) -> npt.NDArray[np.float64]:
        """[mAP, P@10] by labels, as served."""
        return np.array(judge(scores_of(self.form(state), self.space.Z), self.data.labels, queries).pair)


def table(
    world: World, shards: Sequence[int], periods: Sequence[int], rules: Sequence[str], seed: int = 0
) -> Iterator[tuple[int, int, str, npt.NDArray[np.float64], npt.NDArray[np.float64]]]:
    """(shards, period, rule, [mAP, P@10] merged, the same of one learner); periods that are longer than what
    the shards learn are left out."""
    judged = split(world.data, seed).judged
    queries = judged[:: max(1, len(judged) // JUDGED)]
    alone = world.rated(world.learned(world.first(), np.arange(world.rows.shape[1]))[0], queries)
    yield 1, 0, "", alone, alone
    for count in shards:
        for period in periods:
            if period < world.rows.shape[1] // count:
                for rule in rules:
                    yield count, period, rule, world.rated(world.merged(count, period, rule), queries), alone


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(prog="python -m tests.quality.bench.merge", description=__doc__)
    parser.add_argument("set", choices=SETS)
    learns = [name for name, one in ALGORITHMS.items() if not one.needs_sample]
    parser.add_argument("--learner", choices=learns, default="oasis")
    parser.add_argument("--shards", type=int, nargs="+", default=[2, 4, 8])
    parser.add_argument("--periods", type=int, nargs="+", default=[250, 1_000, 5_000, 20_000, 0])
    parser.add_argument("--rules", choices=RULES, nargs="+", default=RULES[:2])
    parser.add_argument("--clicks", choices=CLICKS, default="position")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--events", type=int, default=EVENTS)
    asked = parser.parse_args()
    world = World.of(asked.set, asked.learner, asked.clicks, asked.seed, asked.events)
    print("| shards | events of each between merges | merged by | mAP | P@10 | mAP, of one | P@10, of one |")
    print("|---|---|---|---|---|---|---|")
    for shards, period, rule, found, alone in table(
        world, asked.shards, asked.periods, asked.rules, asked.seed
    ):
        apart = f"{period:,}" if period else "all"
        cells = [
            shards,
            apart if shards > 1 else "",
            rule,
            *(f"{one:.3f}" for one in (*found, *found / alone)),
        ]
        print(f"| {' | '.join(map(str, cells))} |", flush=True)


if __name__ == "__main__":
    main()
