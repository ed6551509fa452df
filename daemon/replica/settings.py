"""Where versions and steps come from, how a replica follows them, and the hooks that others hang on it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from checkpoints.entries import LATEST, LedgerEntry
from checkpoints.ledger import Ledger
from checkpoints.store import CheckpointError, OnDamage
from checkpoints.versions import VersionStore
from daemon.config.schema import Config, ServingConfig
from daemon.replica.view import ModelId, ModelSpace, View
from daemon.versions.algorithms import algorithm_of, by_steps, columns_of
from daemon.versions.forms import FormChoice, FormKind
from daemon.versions.restore import choice_at, read_map
from learners.block import Block
from learners.errors import LearnerError
from learners.maps import FittedSpaceMap
from streams.open import open_source
from streams.source import Source


@dataclass(frozen=True, slots=True)
class VersionSource:
    """Where versions come from: the store, the verdicts, what must agree, and how the form is made."""

    versions: VersionStore
    ledger: Ledger
    space: ModelSpace
    serving: ServingConfig

    @property
    def forms(self) -> FormKind:
        """What versions are served as."""
        return algorithm_of(self.space.algorithm, self.space.keys).forms.served(self.serving)

    @property
    def is_judged(self) -> bool:
        """Whether each version has a form of its own."""
        return self.forms.is_judged(self.serving, self.space.own)

    def choice_at(self, number: int) -> FormChoice | None:
        """What was chosen for version `number` and what was learned behind it; None: it is as configured."""
        return choice_at(self.versions, number) if self.is_judged else None


@dataclass(frozen=True, slots=True)
class FollowSettings:
    """look_every_s: between two looks at versions and verdicts. refine_every_s: between two new forms of a
    followed state. refine_share: most of one core that making them may take. drain_s: how long a flip waits
    for readers of the old side before they are reported.
    """

    look_every_s: float = 0.25
    refine_every_s: float = 1.0
    refine_share: float = 0.25
    drain_s: float = 1.0


@dataclass(frozen=True, slots=True)
class Flip:
    """A model has become the one that answers.

    event_times: ms since the epoch of the events that it has and the model before it had not, as far as the
    step log carries them; empty for a swap of whole versions. result: "version", "steps", "relabel" or
    "refine". events: of a whole version, all that were learned up to it; else None.
    """

    alias: str
    model: ModelId
    result: str
    event_times: NDArray[np.int64]
    events: int | None = None


@dataclass(frozen=True, slots=True)
class Hooks:
    """What is done for a model off the path of readers, in the replica's own threads.

    prepare(view): what `view.prepared` will be (norms of all items), before the flip. warm(view): a dry
    search before the flip; `view.prepared` is there. flipped(flip): called after it; must be quick.
    sample(n): at most n mapped items on which the error of a form is measured, the same ones in every call
    as far as they are still there; None for none. on_ledger(entries): called with the ledger as read at each
    look; must be quick. A `view` is valid only during the call. An exception out of
    `prepare` or `warm` refuses the version.
    """

    prepare: Callable[[View], Any] = lambda view: None
    warm: Callable[[View], None] = lambda view: None
    flipped: Callable[[Flip], None] = lambda flip: None
    sample: Callable[[int], Block | None] | None = None
    on_ledger: Callable[[Sequence[LedgerEntry]], None] | None = None


OpenStepLog = Callable[[], Source]
"""Opens the topic of the step log. May raise StreamError: versions are then followed whole until it opens."""


def step_log_of(config: Config, alias: str) -> OpenStepLog | None:
    """The steps by which `alias` is followed, None where it is followed version by version: `latest` alone
    moves with every step, and only where `steps.enabled` says that they are published, of learners whose
    forms keep up with steps.
    """
    if alias != LATEST or not config.steps.enabled or not by_steps(config.learner.algorithm, config.keys):
        return None
    topic = config.stream.to_address().steps
    return lambda: open_source(topic)


def read_space(
    versions: VersionStore, report: OnDamage | None = None
) -> tuple[ModelSpace, FittedSpaceMap] | None:
    """Space and frozen map of the newest version that can be read, without its W; None without a version.

    All versions of a store share their map; a replica refuses those that do not. Versions that cannot be
    read go to `report`.
    """
    for number, _ in versions.listing.newest_first():
        try:
            manifest, fitted = read_map(versions, number)
        except (CheckpointError, LearnerError) as error:
            if report is not None and isinstance(error, CheckpointError):
                report(error)
        else:
            return ModelSpace.of(manifest, fitted.dim, columns_of(fitted), fitted.own), fitted
    return None
