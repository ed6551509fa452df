"""Settings of the caps.

What the newest events did to the learner, by the names they carry.

Learn a batch under caps: any learner that honours weights, whose step a weight bounds.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from learners import errors
from learners.base import Learner
from learners.block import TripletBatch
from learners.kernels.caps import KINDS, LET_IN, LIMIT, UNIT, count, plan, settle
from learners.outcome import UPDATED, StepInfo, joined

MAX_CAP = 1e9
"""Largest cap: sums of steps are counted in whole parts of a full step, which must not overflow."""


@dataclass(frozen=True, slots=True)
class CapsConfig:
    """How many full steps one name may take part in, within the newest `window` events that were let in.

    A full step is the largest one that an event of weight 1 can make (tau = C in OASIS). source, query, item:
    > 0, or 0 for no cap; an item is clicked or skipped. window: > 0 where any of them is.
    Raises ConfigError.
    """

    window: int = 0
    source: float = 0.0
    query: float = 0.0
    item: float = 0.0

    def __post_init__(self) -> None:
        for name in ("source", "query", "item"):
            cap = getattr(self, name)
            errors.require_number(name, cap)
            if not (math.isfinite(cap) and 0 <= cap <= MAX_CAP):
                raise errors.ConfigError(f"{name} must be 0 (no cap) or a number of full steps, not {cap}")
        errors.require_whole("window", self.window)
        if self.window < 0:
            raise errors.ConfigError(f"window must be a number of events, not {self.window}")
        if self.any and not self.window:
            raise errors.ConfigError("caps need a window of events above 0")

    @property
    def any(self) -> bool:
        """Whether there is a cap at all."""
        return self.source > 0 or self.query > 0 or self.item > 0


NAMES = KINDS
"""Names of an event, in this order: its source, its query, the clicked item, the skipped item."""
SOURCE, QUERY, ITEM = 1, 2, 3
"""Fates of events that were not let in: which of the caps was used up."""
REASONS: Mapping[int, str] = {SOURCE: "cap_source", QUERY: "cap_query", ITEM: "cap_item"}


class StepWindow:
    """How much each source, query and item moved the learner in the newest events, and which may still.

    An event is let in unless the steps of one of its names within the newest `config.window` events that were
    let in have reached the cap of that kind; the first such kind is its fate. It is learned with no more
    weight than the caps of its names leave. So the steps of a name in a window add up to its cap at most, and
    a refused event moves no window. What an event spends is its step in full steps, rounded up to 1 / UNIT.
    What is decided depends on the events in their order alone, not on where batches end.

    Names are 64-bit numbers; names of different kinds never meet. 40 bytes of state per event of the window,
    which `salt` does not change: it only hides from who chooses names where they lie in the table. Costs O(1)
    per event. Not safe for two threads at once.
    """

    def __init__(self, config: CapsConfig, salt: int = 0) -> None:
        """Begin with no event. Raises ConfigError as CapsConfig does."""
        self.config = config
        self._salt = np.uint64(salt)
        caps = (config.source, config.query, config.item, config.item)
        room = config.window if config.any else 0
        counted = sum(cap > 0 for cap in caps)
        slots = 1 << (2 * counted * room).bit_length()  # at most half full
        self._ring = np.zeros((room, NAMES), np.uint64)
        self._spent = np.zeros(room, np.int64)
        self._window = (
            self._ring,
            self._spent,
            np.zeros(slots, np.uint64),
            np.zeros((slots, 3), np.int64),
            np.array([np.ceil(cap * UNIT) if cap > 0 else -1 for cap in caps], np.int64),
        )
        self._admitted = 0

    def plan(
        self, names: NDArray[np.uint64], weights: NDArray[np.float64], start: int
    ) -> tuple[int, NDArray[np.uint8], NDArray[np.float64]]:
        """(stop, fates, limits): what becomes of the events start..stop-1, at least one.

        names: uint64 [n, 4], weights: float64 [n]. fates uint8 and limits float64 [stop - start]: 0 and the
        weight to learn with, or a key of REASONS and 0. `settle` those let in before planning again.
        """
        fates, limits = np.zeros(len(weights), np.uint8), np.zeros(len(weights))
        if not self.config.any:
            return len(weights), fates[start:], weights[start:]
        stop, self._admitted = plan(
            self._window, self._salt, self._admitted, names, weights, start, fates, limits
        )
        if stop == start:
            raise RuntimeError("what was let in before is not settled")
        return int(stop), fates[start:stop], limits[start:stop]

    def settle(self, steps: NDArray[np.float64]) -> None:
        """What the events let in by the last `plan` spent: float64, in full steps, 0 for no change."""
        if self.config.any:
            settle(self._window, self._salt, self._admitted - len(steps), steps)

    def arrays(self) -> dict[str, NDArray[Any]]:
        """What the window is restored from; empty without a cap. Views, which change with the next event.

        `names` uint64 [window, 4], `spent` int64 [window] in 1 / UNIT of a full step: of the events in the
        window, the k-th let in at k mod window. `admitted` int64 []: how many were ever let in.
        """
        if not self.config.any:
            return {}
        views = {"names": self._ring.view(), "spent": self._spent.view()}
        for view in views.values():
            view.flags.writeable = False
        return {**views, "admitted": np.array(self._admitted, np.int64)}

    @classmethod
    def from_arrays(cls, config: CapsConfig, arrays: Mapping[str, NDArray[Any]], salt: int = 0) -> Self:
        """A window that continues from `arrays`, copied. Raises StateError when they are not its own."""
        window = cls(config, salt)
        if not config.any:
            return window
        names, spent, admitted = _checked(window, arrays)
        window._ring[...] = names
        window._spent[...] = spent
        window._admitted = admitted
        count(window._window, window._salt, min(admitted, config.window))
        return window


def united_steps(
    config: CapsConfig,
    base: Mapping[str, NDArray[Any]],
    windows: Sequence[Mapping[str, NDArray[Any]]],
    news: Sequence[int],
) -> dict[str, NDArray[Any]]:
    """The arrays of one window of what several learners let in: the base's events, then the newest `news[k]`
    of each, in turns by age, the newest last.

    news: how many events each let in since what the base holds of it; windows need not have continued from
    the base, so their own counts do not tell. Where one forgot some of them, as many as it knows count.
    Raises StateError for what is no window of `config`.
    """
    whole = StepWindow(config)
    if not config.any:
        return {}
    first, room = _checked(whole, base), config.window
    newest, total = [], first[2]
    for window, fresh in zip(windows, news, strict=True):
        each = _checked(whole, window)
        total += min(fresh, each[2])
        newest.append(_rows(each, min(fresh, room)))
    rows = _rows(first, room)
    for age in range(max(map(len, newest), default=0), 0, -1):
        rows += [one[-age] for one in newest if len(one) >= age]
    names, spent = whole.arrays()["names"].copy(), whole.arrays()["spent"].copy()
    for back, (name, steps) in enumerate(reversed(rows[-room:]), start=1):
        names[(total - back) % room], spent[(total - back) % room] = name, steps
    return {"names": names, "spent": spent, "admitted": np.array(total, np.int64)}


def _rows(
    window: tuple[NDArray[np.uint64], NDArray[np.int64], int], count: int
) -> list[tuple[NDArray[np.uint64], np.int64]]:
    """The names and the step of the last `count` events of a window, as far as it holds them, in order."""
    names, spent, admitted = window
    return [(names[n % len(spent)], spent[n % len(spent)]) for n in range(max(0, admitted - count), admitted)]


def _checked(
    window: StepWindow, arrays: Mapping[str, NDArray[Any]]
) -> tuple[NDArray[np.uint64], NDArray[np.int64], int]:
    """(names, spent, admitted) of arrays with the shapes, types and ranges of this window."""
    own = {name: (array.dtype, array.shape) for name, array in window.arrays().items()}
    arrays = {name: errors.array_named(arrays, name) for name in arrays}
    if {name: (array.dtype, array.shape) for name, array in arrays.items()} != own:
        raise errors.StateError(
            f"a window of {window.config.window} steps is uint64 `names`, int64 `spent`, int64 `admitted`: "
            "it was altered, or written with another window"
        )
    spent, admitted = arrays["spent"], int(arrays["admitted"])
    if (
        not 0 <= admitted <= errors.MAX_COUNT
        or (spent < 0).any()
        or (spent > LIMIT * UNIT).any()
        or spent[admitted:].any()
    ):
        raise errors.StateError("a window of steps holds what no events leave: it was altered")
    return arrays["names"], spent, admitted


@dataclass(frozen=True, slots=True, eq=False)
class CappedInfo:
    """What became of a batch under caps.

    info: of the events that were let in, in order. rows: int64, which those are. weights: float64, what each
    was learned with. limited: how many of them with less than their own. fates: uint8 [n], 0 or a key of
    REASONS.
    """

    info: StepInfo
    rows: NDArray[np.int64]
    weights: NDArray[np.float64]
    limited: int
    fates: NDArray[np.uint8]


def learn_capped(
    learner: Learner,
    window: StepWindow,
    batch: TripletBatch,
    weights: NDArray[np.float64],
    names: NDArray[np.uint64],
    *,
    full_step: float | None,
) -> CappedInfo:
    """Apply a batch in order under the window's caps; the same bits however batches are cut.

    weights: float64 [n]. names: uint64 [n, 4], see NAMES. full_step: the largest tau of an event of weight
    1, so that tau / full_step is what it spends; None: an event that updates spends all its weight. What an
    event may still do is a bound of its weight, so no learner knows of caps. Raises BlockError for names of
    another shape.

    The learner is called for as many events at once as surely fit, that is with all that is held for those
    before them; near a cap that is down to one.
    """
    n = len(batch)
    if names.shape != (n, NAMES) or weights.shape != (n,):
        raise errors.BlockError(
            f"names have shape {names.shape}, weights {weights.shape}: give {NAMES} and 1 per event"
        )
    fates, limits = np.zeros(n, np.uint8), np.zeros(n)
    infos: list[StepInfo] = []
    start = 0
    while start < n:
        stop, fates[start:stop], limits[start:stop] = window.plan(names, weights, start)
        rows = start + np.flatnonzero(fates[start:stop] == LET_IN)
        if len(rows):
            whole = len(rows) == stop - start
            part = batch.slice(start, stop) if whole else batch.take(rows)
            info = learner.learn_many(part, limits[rows])
            window.settle(_spent(info, limits[rows], full_step))
            infos.append(info)
        start = stop
    rows = np.flatnonzero(fates == LET_IN)
    limited = int(np.count_nonzero(limits[rows] < weights[rows]))
    return CappedInfo(joined(infos), rows, limits[rows], limited, fates)


def _spent(info: StepInfo, limits: NDArray[np.float64], full_step: float | None) -> NDArray[np.float64]:
    """Float64 [n]: the step of each event in full steps, 0 where nothing changed."""
    steps = limits if full_step is None else info.tau.astype(np.float64) / full_step
    return np.where(info.outcome == UPDATED, steps, 0.0)
