"""The learners that can be arms of the race, in one table: whoever makes, keeps, merges or scores an arm goes
by it.

An arm learns dense triplets of one model, in order, from `learn_many(batch, weights)`; it has a `state`, from
which `from_state(arrays, settings, copy)` goes on; and it scores pairs of objects: by one matrix, q^T W p, or
as a memory of clicks does. To add one: its learner with its settings, and a line in `ARM_KINDS`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields
from typing import Any, TypeAlias

import numpy as np

from learners import merge_rules as rules
from learners.adapter import OF_AN_ADAPTER, AdapterConfig, SoftmaxAdapter, adapter_bytes
from learners.averaged import Averaged
from learners.base import MatrixLearner, saved_matrix
from learners.block import Float32s
from learners.click_memory import ClickMemory, ClickMemoryConfig, ClickMerge, click_memory_bytes
from learners.loreta import Loreta, LoretaConfig
from learners.merge import Arrays, State, StateMerge
from learners.oasis import OasisByQuery, OasisConfig
from learners.oasis_diagonal import OasisDiagonal, OasisDiagonalConfig
from learners.oasis_softmax import OasisSoftmax, OasisSoftmaxConfig
from learners.pending import matrix_in, pending_bytes
from learners.softmax import state_bytes
from learners.soml import SomlDa, SomlDaConfig, SomlTg, SomlTgConfig

Settled: TypeAlias = Callable[[State], Arrays]
AlgebraOf: TypeAlias = Callable[[Settled, Any], Any]
FLAT = ("C", "queries")
"""Settings of learners that an arm has among its own."""


def by_rules(*parts: Any) -> AlgebraOf:
    """Merging by the rules of the arrays, and what needs more than a rule, whatever the settings."""
    return lambda settled, _settings: StateMerge(settled, *parts)


@dataclass(frozen=True, slots=True)
class ArmKind:
    """A learner that can be an arm.

    learner: made of (dim, settings); with a `W`, or a diagonal `form`, it scores q^T W p. config: its
    settings; an arm may have any but `fixed`. nbytes: (settings, dim) -> the memory of its state. merge:
    (what settles a state, settings) -> the algebra of states, see `learners.merge`. counted: the array whose
    last number counts what states weigh by when they are merged.
    """

    learner: Any
    config: Any
    nbytes: Callable[[Any, int], int]
    merge: AlgebraOf
    counted: str = "events"
    fixed: tuple[str, ...] = ("start",)

    @property
    def settings(self) -> list[str]:
        """Names of what an arm may set."""
        return [one.name for one in fields(self.config) if one.name not in self.fixed]

    @property
    def others(self) -> list[str]:
        """Those that stand under `settings` of an arm."""
        return [name for name in self.settings if name not in FLAT]

    @property
    def is_matrix(self) -> bool:
        """Whether it scores q^T W p."""
        return self.learner is not ClickMemory

    @property
    def foreign(self) -> set[str]:
        """What an arm of this kind has not of the settings that arms have."""
        has = {"C": "C" in self.settings, "queries": not self.is_matrix, "geometry": self.is_matrix}
        return {name for name, there in (has | {"settings": bool(self.others)}).items() if not there}

    def made(self, dim: int, settings: Any, state: State | None = None) -> Any:
        """The learner untrained, or with a state that it takes over. Raises ConfigError and StateError."""
        return (
            self.learner(dim, settings) if state is None else self.learner.from_state(state, settings, False)
        )

    def matrix(self, state: State, settings: Any) -> Float32s:
        """W of a state, float32 [dim, dim], as a new array; of a diagonal what is served, since SOML begins
        with 0. Raises StateError."""
        if issubclass(self.learner, MatrixLearner):  # whose scores need nothing else of its state
            return matrix_in({**state, "W": saved_matrix(state)})
        learner = self.learner.from_state(state, settings)
        return learner.W if hasattr(learner, "W") else np.diag(learner.form(False).weights)

    def algebra(self, settings: Any) -> Any:
        """How states are merged, as `StateMerge`."""

        def settled(state: State) -> Arrays:
            learner = self.learner.from_state(state, settings)
            rules.settle(learner)
            return dict(learner.state())

        return self.merge(settled, settings)


def _matrices(count: int) -> Callable[[Any, int], int]:
    return lambda _settings, dim: 4 * count * dim * dim + pending_bytes(dim)


def _diagonal(count: int, learner: Any, config: Any, counted: str, *parts: Any) -> ArmKind:
    return ArmKind(learner, config, lambda _settings, dim: 8 * count * dim, by_rules(*parts), counted)


ARM_KINDS = {
    "oasis": ArmKind(
        OasisByQuery,
        OasisConfig,
        _matrices(1),
        by_rules(rules.OF_A_MATRIX),
        fixed=("start", "symmetric", "psd_every"),  # it is plain, so that steps of one query are added as one
    ),
    "oasis-averaged": ArmKind(
        Averaged,
        OasisConfig,
        _matrices(2),
        by_rules(rules.OF_AN_AVERAGE, rules.averaged_sums, rules.averaged_goes_on),
        fixed=("start", "psd_every"),
    ),
    "oasis-softmax": ArmKind(
        OasisSoftmax,
        OasisSoftmaxConfig,
        lambda settings, dim: state_bytes(settings.memory, dim) + _matrices(1)(settings, dim),
        by_rules(rules.OF_A_MATRIX | rules.OF_A_SOFTMAX, rules.softmax_memory, rules.softmax_goes_on),
    ),
    "oasis-diagonal": _diagonal(1, OasisDiagonal, OasisDiagonalConfig, "updates", rules.OF_A_DIAGONAL),
    "soml-tg": _diagonal(
        2,
        SomlTg,
        SomlTgConfig,
        "violations",
        rules.OF_TRUNCATED_GRADIENT,
        rules.all_shrunk,
        rules.all_shrunk_goes_on,
    ),
    "soml-da": _diagonal(
        1,
        SomlDa,
        SomlDaConfig,
        "rounds",
        rules.OF_DUAL_AVERAGING,
        rules.last_violated,
        rules.violated_goes_on,
    ),
    "loreta": ArmKind(
        Loreta,
        LoretaConfig,
        lambda settings, dim: 4 * dim * dim + 8 * dim * settings.rank + 16 * settings.rank**2,
        by_rules(rules.OF_A_CORRECTION, rules.corrections, rules.correction_goes_on),
        "counts",
    ),
    "adapter": ArmKind(
        SoftmaxAdapter,
        AdapterConfig,
        lambda settings, dim: adapter_bytes(settings.batch, dim),
        by_rules(OF_AN_ADAPTER),
    ),
    "memory": ArmKind(
        ClickMemory,
        ClickMemoryConfig,
        lambda settings, dim: click_memory_bytes(dim, settings.queries),
        lambda _settled, _settings: ClickMerge(),
    ),
}
"""By the name that `kind` of an arm has."""
