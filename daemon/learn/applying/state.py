"""The state: all that the next step depends on, and how it becomes a version's arrays and comes back."""

from __future__ import annotations

import secrets
from dataclasses import dataclass
from typing import Self

from checkpoints import Version
from daemon.config.learners import LearnerConfig
from daemon.learn.applying.controls import Entry, repeats
from daemon.versions.algorithms import columns_of, full_step, restored
from daemon.versions.arrays import Arrays, caps_arrays, learner_arrays, pack, window_arrays
from daemon.versions.by_key import keys_of
from daemon.versions.caps import caps_of
from daemon.versions.maps import map_of
from learners.caps import CapsConfig, StepWindow
from learners.maps import FittedSpaceMap
from learners.protocol import Learner
from streams.errors import StreamError
from streams.ids import IdWindow


@dataclass(slots=True)
class State:
    """The learner, the ids of the events it had, the frozen map in front of it, and what sources, queries and
    items did to it lately. full_step: see `learners.caps`."""

    learner: Learner
    window: IdWindow
    fitted: FittedSpaceMap
    caps: StepWindow
    full_step: float | None

    @classmethod
    def of_version(cls, version: Version, config: LearnerConfig) -> Self:
        """The state a version holds, its large arrays taken over. Raises StateError, MapError or StreamError.

        A version written before event ids were kept goes on with a window that knows none.
        """
        known = window_arrays(version.arrays)
        if version.manifest.learner["config"].get("dedupe_window") and not known:
            raise StreamError(
                f"version {version.manifest.number} lacks the window of event ids it was to keep"
            )
        fitted = map_of(version)
        return cls(
            restored(config, learner_arrays(version.arrays), columns_of(fitted), keys_of(version.manifest)),
            IdWindow.from_arrays(config.dedupe_window, known),
            fitted,
            StepWindow.from_arrays(caps_of(version.manifest), caps_arrays(version.arrays), _salt()),
            full_step(config),
        )

    @classmethod
    def first(cls, learner: Learner, fitted: FittedSpaceMap, config: LearnerConfig, caps: CapsConfig) -> Self:
        """The state before any event."""
        window = IdWindow(config.dedupe_window)
        return cls(learner, window, fitted, StepWindow(caps, _salt()), full_step(config))

    def obey(self, entry: Entry) -> None:
        """Do to the state what a control entry means for it; most mean nothing."""
        if entry["control"] == "dedupe":
            self.window = IdWindow(entry["window"])
        elif entry["control"] == "caps":
            self.caps = StepWindow(CapsConfig(**entry["caps"]), _salt())
        elif repeats(entry):
            self.window = IdWindow(self.window.capacity)
            self.caps = StepWindow(self.caps.config, _salt())

    def arrays(self) -> Arrays:
        """The arrays of a version, without copying: they change with the next step."""
        return pack(self.learner.state(), self.window.arrays(), self.fitted.arrays(), self.caps.arrays())


def _salt() -> int:
    """Where names lie in the table of the caps is not for those to know who choose them. No result depends on
    it."""
    return secrets.randbits(63)
