"""A memory of clicks: which objects were clicked for which queries, for logs in which queries come again.

It keeps the newest pairs of a query and a clicked object, each once. A pair that is there already is moved to
the newest, so that the several events of one click count once, and what is clicked again and again stays
while what was clicked once leaves: the oldest pair makes room. What was skipped, and the size of a weight
above 0, mean nothing. `learners.forms.click_memory` is what it scores by.

Objects are the same where their rows have the same bits, so what is kept is a function of the events alone,
however they are cut into batches.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from itertools import pairwise
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from learners.block import Float32s, Int64s, TripletBatch, dense_rows
from learners.errors import ConfigError, StateError, read_only, require_whole, saved, saved_count, to_write
from learners.faults import faults_of
from learners.merge import Arrays, State
from learners.outcome import DEGENERATE, PASSIVE, REJECTED, UPDATED, StepInfo

MOST_QUERIES = 1 << 20
ROWS = ("queries", "clicked")


@dataclass(frozen=True, slots=True)
class ClickMemoryConfig:
    """queries: how many pairs of a query and a clicked object are kept, 1 to `MOST_QUERIES`. Raises
    ConfigError."""

    queries: int = 4096

    def __post_init__(self) -> None:
        require_whole("queries", self.queries)
        if not 1 <= self.queries <= MOST_QUERIES:
            raise ConfigError(f"queries must be from 1 to {MOST_QUERIES}, not {self.queries}")


class ClickMemory:
    """The memory of `dim`-dimensional rows. Not safe for two threads at once.

    queries, clicked: float32 [config.queries, dim], a pair in each row. stamps: int64 [config.queries], the
    event that a pair came with last, counted from 1; 0 for an empty row. events: how many pairs came.
    """

    def __init__(self, dim: int, config: ClickMemoryConfig) -> None:
        kept = config.queries
        self.queries, self.clicked = np.zeros((kept, dim), np.float32), np.zeros((kept, dim), np.float32)
        self.stamps, self.events = np.zeros(kept, np.int64), 0
        self._places: dict[bytes, int] = {}  # of what is kept, by key

    @property
    def dim(self) -> int:
        """The number of columns of a row."""
        return self.queries.shape[1]

    def learn_many(self, batch: TripletBatch, weights: NDArray[Any]) -> StepInfo:
        """Remember the pairs of a batch in order; weights [n], of which 0 remembers nothing.

        `updated`: a new pair; `passive`: one that was known, or of weight 0; `degenerate`: a row of zeros.
        """
        info, scale = StepInfo.empty(len(batch)), np.asarray(weights, np.float64)
        info.reason[:] = faults_of(batch, scale)
        queries, clicked = dense_rows(batch.query), dense_rows(batch.clicked)
        info.outcome[~(queries.any(axis=1) & clicked.any(axis=1))] = DEGENERATE
        info.outcome[scale == 0] = PASSIVE
        info.outcome[info.reason != 0] = REJECTED
        rows = np.flatnonzero(info.outcome == UPDATED)
        bits = np.hstack([queries[rows], clicked[rows]]).view(np.int32)
        first = np.flatnonzero(np.append(True, (bits[1:] != bits[:-1]).any(axis=1))[: len(rows)])
        for start, stop in pairwise([*first.tolist(), len(rows)]):
            key, row = _key(queries[rows[start]], clicked[rows[start]]), rows[start]
            known = key in self._places
            place = self._places[key] if known else self._make_room()
            if not known:
                self._places[key] = place
                self.queries[place], self.clicked[place] = queries[row], clicked[row]
            self.stamps[place] = self.events + stop
            info.outcome[rows[start + (not known) : stop]] = PASSIVE
        self.events += len(rows)
        return info

    def _make_room(self) -> int:
        """The first empty row, else that of the oldest pair, which is forgotten."""
        place = int(self.stamps.argmin())
        if self.stamps[place]:
            self._places.pop(_key(self.queries[place], self.clicked[place]), None)
        return place

    def state(self) -> Arrays:
        """What the next step needs: read-only views."""
        arrays = {name: read_only(getattr(self, name)) for name in (*ROWS, "stamps")}
        return arrays | {"events": np.array(self.events, np.int64)}

    @classmethod
    def from_state(cls, arrays: State, config: ClickMemoryConfig, copy: bool = True) -> Self:
        """Go on from the arrays of `state`; copy=False takes them over. Raises StateError naming an array."""
        queries, clicked, stamps, events = checked_pairs(arrays)
        if len(stamps) != config.queries:
            raise StateError(f"array queries has {len(stamps)} rows: it must have {config.queries}")
        memory = cls.__new__(cls)
        memory.queries, memory.clicked = (
            to_write(queries, "queries", copy),
            to_write(clicked, "clicked", copy),
        )
        memory.stamps, memory.events, memory._places = to_write(stamps, "stamps", copy), events, {}
        for place in np.flatnonzero(memory.stamps).tolist():
            memory._places[_key(memory.queries[place], memory.clicked[place])] = place
        return memory


def checked_pairs(arrays: State) -> tuple[Float32s, Float32s, Int64s, int]:
    """Queries, clicked objects, stamps and events of a saved state. Raises StateError naming an array."""
    queries = saved(arrays, "queries", np.float32, (None, None))
    clicked = saved(arrays, "clicked", np.float32, queries.shape)
    stamps, events = saved(arrays, "stamps", np.int64, queries.shape[:1]), saved_count(arrays, "events")
    if stamps.min(initial=0) < 0 or stamps.max(initial=0) > events:
        raise StateError(f"array stamps holds events outside 0..{events}: it was altered")
    return queries, clicked, stamps, events


def _key(query: Float32s, clicked: Float32s) -> bytes:
    return blake2b(query.tobytes() + clicked.tobytes(), digest_size=16).digest()


def click_memory_bytes(dim: int, queries: int) -> int:
    """Memory of a full one: both rows, and what finds a pair."""
    return queries * (8 * dim + 200)


class ClickMerge:
    """How memories of one size are merged: the newest pairs of all stay, each once. As
    `learners.merge.StateMerge`."""

    def states(
        self, base: State, states: Sequence[State], updates: Sequence[int] = (), summed: bool = False
    ) -> Arrays:
        """What memories that began from `base` are together: its pairs, and behind them what each has had
        since, in turns by age, and of equal age in the order given. Where a single one has had any, it is
        that one, bit for bit."""
        moved = [one for one in states if int(one["events"]) > int(base["events"])] or [base]
        return _copied(moved[0]) if len(moved) == 1 else _united(base, [(one, base) for one in moved])

    def rebased(self, current: State, counted: State, merged: State) -> Arrays:
        """What a memory goes on with: the pairs of `merged`, and behind them those that `current` has had
        since `counted`."""
        if all(np.array_equal(counted[name], merged[name]) for name in counted):
            return _copied(current)
        return _united(merged, [(current, counted)])


def _united(base: State, news: Sequence[tuple[State, State]]) -> Arrays:
    """The pairs of `base`, and behind them those of each state that came after another one of it."""
    events = int(base["events"]) + sum(int(one["events"]) - int(since["events"]) for one, since in news)
    later = [
        (int(one["events"]) - int(one["stamps"][row]), at, row)
        for at, (one, since) in enumerate(news)
        for row in np.flatnonzero(one["stamps"] > int(since["events"])).tolist()
    ]
    newest = [(news[at][0], row, events - n) for n, (_, at, row) in enumerate(sorted(later))]
    newest += [(base, row, int(base["stamps"][row])) for row in np.argsort(-base["stamps"]).tolist()]
    pairs: dict[bytes, tuple[State, int, int]] = {}
    for state, row, stamp in newest:
        if stamp:
            pairs.setdefault(_key(state["queries"][row], state["clicked"][row]), (state, row, stamp))
    out = {name: np.zeros_like(base[name]) for name in (*ROWS, "stamps")}
    for place, (state, row, stamp) in enumerate(list(pairs.values())[: len(base["stamps"])]):
        out["queries"][place], out["clicked"][place] = state["queries"][row], state["clicked"][row]
        out["stamps"][place] = stamp
    return out | {"events": np.array(events, np.int64)}


def _copied(state: Mapping[str, NDArray[Any]]) -> Arrays:
    return {name: np.array(array) for name, array in state.items()}
