"""Arms of the race: further learners on the events of a main learner, for the order of given lists.
`learners.arm_kinds` says which learners can be arms.

Each arm learns the events that are its: pairs whose skipped object stood above the click or on both sides of
it, with or without pairs that were drawn at random. No arm knows of another, and each takes its events in
order, so the bits do not depend on how events are cut into batches.

In the geometry `own` an arm learns from unit rows u = z sqrt(M) / ||z sqrt(M)||, where z is a mapped row and
M the metric of the user's own ranking: u^T u' is the user's own cosine, with which W = I begins.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, replace
from functools import partial
from typing import Any, Literal, Self, TypeAlias

import numpy as np
from numpy.typing import NDArray

from learners.arm_kinds import ARM_KINDS, FLAT, ArmKind
from learners.base import BaseLearner
from learners.block import DenseBlock, Float32s, TripletBatch
from learners.errors import ConfigError
from learners.faults import faults_of
from learners.kernels.map_rows import unit_scaled
from learners.merge import Arrays, State, shapes_of

UNKNOWN, ABOVE, BELOW, RANDOM = range(4)
"""Where the skipped object of an event stood, uint8: not said, above the click, below it, drawn at random."""
ONLY_ABOVE, ONLY_BOTH, ONLY_ARMS = 4, 8, 16
"""Bits beside these, of who alone learns an event: learners of pairs above the click, of pairs on both sides,
arms."""
Codes: TypeAlias = NDArray[np.uint8]
Rows: TypeAlias = NDArray[np.int64]
AT_ONCE, WORTH_THREADS = 512, 64
"""Events that an arm reads at once; how many are worth threads."""
PairRule: TypeAlias = Literal["above", "all"]


def takes(rule: PairRule, pairs: Codes, random: bool = True, *, arm: bool = False) -> NDArray[np.bool_]:
    """Bool [n]: which events a learner of this rule learns. `above`: all but those below the click. arm:
    whether it is one."""
    sides, left = pairs & np.uint8(3), np.uint8(ONLY_BOTH if rule == "above" else ONLY_ABOVE)
    taken = pairs & (left if arm else left | np.uint8(ONLY_ARMS)) == 0
    if rule == "above":
        taken &= sides != BELOW
    return np.asarray(taken if random else taken & (sides != RANDOM))


@dataclass(frozen=True, slots=True)
class ArmConfig:
    """name: of an arm, without a dot. pairs, random: the events it learns, see `takes`. geometry: of its
    rows, `own` or, as they are mapped, `space`. kind: of its learner, see `ARM_KINDS`. C, queries: of kinds
    that have them. settings: its other settings, by name; `of` has all of them there."""

    name: str
    pairs: PairRule = "all"
    random: bool = True
    C: float = 0.05
    geometry: Literal["own", "space"] = "own"
    kind: str = "oasis"
    queries: int = 4096
    settings: tuple[tuple[str, Any], ...] = ()

    @classmethod
    def of(cls, record: Mapping[str, Any]) -> Self:
        """An arm of what `record` holds. Raises ConfigError or TypeError."""
        arm = cls(**{**record, "settings": tuple(record.get("settings", {}).items())})
        made = arm.learner
        return replace(arm, settings=tuple((name, getattr(made, name)) for name in arm.of_kind.others))

    @property
    def record(self) -> dict[str, Any]:
        """As a manifest holds it: the settings of its kind, which is not said of OASIS."""
        own = {name: one for name, one in asdict(self).items() if name not in self.of_kind.foreign}
        own |= {"settings": dict(self.settings)} if "settings" in own else {}
        return {name: one for name, one in own.items() if (name, one) != ("kind", "oasis")}

    @property
    def of_kind(self) -> ArmKind:
        """What its learner brings. Raises ConfigError for no kind."""
        if self.kind not in ARM_KINDS:
            raise ConfigError(f"arms are of the kinds {', '.join(ARM_KINDS)}, not {self.kind!r}")
        return ARM_KINDS[self.kind]

    @property
    def learner(self) -> Any:
        """The settings of its learner. Raises ConfigError."""
        kind, more = self.of_kind, dict(self.settings)
        for name in sorted(set(more).difference(kind.others)):
            raise ConfigError(
                f"settings: arms of kind {self.kind} have {', '.join(kind.others) or 'none'}, no {name}"
            )
        return kind.config(**{name: getattr(self, name) for name in FLAT if name in kind.settings}, **more)


def own_rows(rows: DenseBlock, metric: Float32s) -> DenseBlock:
    """Mapped rows in the geometry of the user's own cosine, of unit length; metric: M, float32 [d]. Rows that
    are zero or malformed stay so."""
    values = np.empty_like(rows.values)
    unit_scaled(rows.values, np.sqrt(metric), values)
    return DenseBlock(values)


def arm_bytes(config: ArmConfig, dim: int) -> int:
    """Memory of one arm."""
    return config.of_kind.nbytes(config.learner, dim)


class Arms:
    """The arms of one main learner, of `dim` dimensions each; none where `configs` is empty.

    metric: of the user's own ranking, float32 [dim]. arrays: of `state`; an arm that has none there begins
    untrained, the others take them over (they must be writable). Raises ConfigError where an arm wants a
    metric and there is none, StateError for arrays that are no state. Not safe for two threads at once.
    """

    def __init__(
        self,
        dim: int,
        configs: Iterable[ArmConfig] = (),
        metric: Float32s | None = None,
        arrays: State | None = None,
    ) -> None:
        self.configs, self._dim, self._metric = tuple(configs), dim, metric
        own = [one.name for one in self.configs if one.geometry == "own"]
        if own and metric is None:
            raise ConfigError(f"arm {own[0]} has the geometry of your own ranking, which is not known here")
        states = by_arm(arrays or {})
        self._learners = [one.of_kind.made(dim, one.learner, states.get(one.name)) for one in self.configs]

    def changed(self, configs: Sequence[ArmConfig]) -> Self:
        """Other arms: those that are there already, with the same settings, are kept with what they have
        learned, the others begin untrained. Raises ConfigError as a new one does."""
        held = dict(zip(self.configs, self._learners, strict=True))
        arms = type(self)(self._dim, [one for one in configs if one not in held], self._metric)
        held |= dict(zip(arms.configs, arms._learners, strict=True))
        arms.configs = tuple(configs)
        arms._learners = [held[one] for one in arms.configs]
        return arms

    def learn(
        self,
        batch: TripletBatch,
        weights: NDArray[Any],
        pairs: Codes,
        *,
        rows: Rows | None = None,
        threads: int = 1,
        beside: Callable[[], object] | None = None,
    ) -> Codes:
        """Have each arm learn its events of `rows`, int64 in order, or of all. weights [n] scale C, pairs
        uint8 [n].

        Returns uint8 [n], the `Reason` for which an event was refused as malformed, as any learner would
        without an arm's geometry; 0 also where no arm learned it. beside: called at the same time; it and the
        arms, which share nothing that they change, are computed in so many threads, which have ended on
        return, and no bit depends on them. Raises what `beside` raises, and BlockError as `learn_many`.
        """
        rows = np.arange(len(batch)) if rows is None else rows
        reasons, tasks = np.zeros(len(batch), np.uint8), [] if beside is None else [beside]
        for config, learner in zip(self.configs, self._learners, strict=True):
            taken = rows[takes(config.pairs, pairs[rows], config.random, arm=True)]
            tasks.append(partial(self._learn_own, config, learner, taken, batch, weights, reasons))
        if threads == 1 or len(rows) < WORTH_THREADS or len(tasks) == 1:
            for task in tasks:
                task()
            return reasons
        with ThreadPoolExecutor(min(threads, len(tasks)), "arms") as pool:
            done = [pool.submit(task) for task in tasks]
        for one in done:
            one.result()
        return reasons

    def _learn_own(  # noqa: PLR0917
        self,
        config: ArmConfig,
        learner: Any,
        rows: Rows,
        batch: TripletBatch,
        weights: NDArray[Any],
        reasons: Codes,
    ) -> None:
        """Have an arm learn its rows, few at a time so that they stay in near caches. The reasons that it
        writes are those of all arms."""
        for start in range(0, len(rows), AT_ONCE):
            part = rows[start : start + AT_ONCE]
            first, end = int(part[0]), int(part[-1]) + 1
            seen = batch.slice(first, end) if end - first == len(part) else batch.take(part)
            scale = np.asarray(weights[part], np.float64)
            faults = faults_of(seen, scale)
            if faults.any():
                bad, sound = np.flatnonzero(faults), np.flatnonzero(faults == 0)
                reasons[part[bad]] = faults[bad]  # the same by every arm
                seen, scale = seen.take(sound), scale[sound]
            learner.learn_many(self._in_own(seen) if config.geometry == "own" else seen, scale)

    def _in_own(self, batch: TripletBatch) -> TripletBatch:
        assert self._metric is not None
        blocks = map(as_dense, (batch.query, batch.clicked, batch.skipped))
        return TripletBatch(*(own_rows(block, self._metric) for block in blocks))

    def state(self) -> Arrays:
        """What the next step needs: read-only views by `<arm>.<array>`."""
        return {
            f"{config.name}.{name}": array
            for config, learner in zip(self.configs, self._learners, strict=True)
            for name, array in learner.state().items()
        }

    def warm_up(self) -> None:
        """Load the kernels before the first event. Raises RuntimeError."""
        if self.configs:
            for learner in self._learners:
                if isinstance(learner, BaseLearner):
                    learner.warm_up(False)
            row = DenseBlock(np.eye(1, 2, dtype=np.float32))
            arms = Arms(2, [ArmConfig("warm")], np.ones(2, np.float32))
            arms.learn(TripletBatch(row, row, row), np.ones(1), np.zeros(1, np.uint8))


def as_dense(block: Any) -> DenseBlock:
    """The block itself. Raises ConfigError for sparse rows, which arms do not learn in another geometry."""
    if not isinstance(block, DenseBlock):
        raise ConfigError("arms in the geometry of your own ranking learn dense vectors alone")
    return block


def by_arm(arrays: State) -> dict[str, Arrays]:
    """The arrays of each arm, from those of `Arms.state`."""
    found: dict[str, Arrays] = {}
    for name, array in arrays.items():
        arm, _, own = name.partition(".")
        found.setdefault(arm, {})[own] = array
    return found


def merged_arms(
    configs: Iterable[ArmConfig], base: State, states: Sequence[State], summed: bool = False
) -> Arrays:
    """The arms of learners that began from those of `base`, together: the mean by the events that each arm
    accepted since, or their sum; of memories the newest pairs of all. configs: of the arms of `base`. An arm
    that a learner lacks, or has of another kind or size, brings nothing of it; one that `base` lacks is left
    out. Raises StateError as `StateMerge.states`."""
    firsts, each = by_arm(base), [by_arm(state) for state in states]
    merged: dict[str, Arrays] = {}
    for one in configs:
        if (first := firsts.get(one.name)) is None:
            continue
        those = [arms[one.name] for arms in each if _alike(first, arms.get(one.name))]
        before, *after = (int(arm[one.of_kind.counted].reshape(-1)[-1]) for arm in (first, *those))
        algebra = one.of_kind.algebra(one.learner)
        merged[one.name] = algebra.states(first, those, [max(0, n - before) for n in after], summed)
    return _named(merged)


def rebased_arms(configs: Iterable[ArmConfig], current: State, counted: State, merged: State) -> Arrays:
    """What the arms of a learner go on with, as `StateMerge.rebased`; an arm that is not in `merged`, of the
    same kind and size, goes on as it is. One that is not in `counted` began since: nothing of it is counted
    yet. configs: of those that are known; others go on as they are, too."""
    known, of_all, of = by_arm(counted), by_arm(merged), {one.name: one for one in configs}
    out: dict[str, Arrays] = {}
    for arm, now in by_arm(current).items():
        if arm not in of or not _alike(now, of_all.get(arm)):
            out[arm] = {name: np.array(array) for name, array in now.items()}
            continue
        kind, settings, before = of[arm].of_kind, of[arm].learner, known.get(arm)
        if before is None or not _alike(now, before):
            before = kind.made(kind.learner.from_state(now, settings).dim, settings).state()
        out[arm] = kind.algebra(settings).rebased(now, before, of_all[arm])
    return _named(out)


def _alike(arm: State, other: State | None) -> bool:
    """Whether both are of one kind and size."""
    return other is not None and shapes_of(arm) == shapes_of(other)


def _named(arms: Mapping[str, Mapping[str, NDArray[Any]]]) -> Arrays:
    return {f"{arm}.{name}": array for arm, state in arms.items() for name, array in state.items()}
