"""Measures of the versions others are compared with: computed once where they cannot change."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

from daemon.validate.judge import Judge, Measures
from daemon.validate.measures import Float
from daemon.validate.objects import MappedObjects
from daemon.validate.panel import Panel
from daemon.validate.shelf import Candidate
from daemon.validate.window import Window
from daemon.versions.key_verdicts import KeyVerdict
from streams.event import Impression

SYMMETRY = "symmetry_index"
"""The measure that needs no window: how symmetric a learner's W is by itself."""


class Measuring(Protocol):
    """What tells a version's measures on a window."""

    @property
    def objects(self) -> MappedObjects:
        """The objects that it judges by."""

    def measures(self, candidate: Candidate, window: Window) -> Measures:
        """The version's measures on the window. Raises NotFinite."""

    def verdicts(self, number: int) -> Mapping[str, KeyVerdict] | None:
        """On each key of a version that was measured; None where there is one model for all."""

    def losses(self, candidate: Candidate, impressions: Sequence[Impression]) -> Float:
        """Holdout loss of each impression, float64[n]. Raises NotFinite."""

    def keep(self, *numbers: int | None) -> None:
        """Forget every version but these."""


class Yardstick:
    """One judge, the panel of the window it judges on, and the measures there of the versions asked for.

    The fixed judged queries are ranked once per version; measures on a window are kept until the window
    moves. Memory per version kept: two float64 per fixed query.
    """

    def __init__(self, judge: Judge) -> None:
        self._judge = judge
        self._fixed: dict[int, Float] = {}
        self._seen: tuple[dict[int, int], int] | None = None
        self._panel: Panel | None = None
        self._measures: dict[int, Measures] = {}

    @property
    def objects(self) -> MappedObjects:
        """The objects that it judges by."""
        return self._judge.objects

    def verdicts(self, number: int) -> None:
        """None: there is one model for all."""

    def losses(self, candidate: Candidate, impressions: Sequence[Impression]) -> Float:
        """Holdout loss of each impression, float64[n]. Raises NotFinite."""
        return self._judge.losses(candidate.scorer, impressions)

    def measures(self, candidate: Candidate, window: Window) -> Measures:
        """The version's measures on the window. Raises NotFinite."""
        panel, number = self._panel_of(window), candidate.number
        if number not in self._fixed:
            self._fixed[number] = self._judge.fixed_table(candidate.scorer)
        if number not in self._measures:
            found = self._judge.judge(candidate.scorer, panel, self._fixed[number])
            if candidate.symmetry is not None:
                found[SYMMETRY] = candidate.symmetry
            self._measures[number] = found
        return self._measures[number]

    def keep(self, *numbers: int | None) -> None:
        """Forget every version but these."""
        self._fixed = {number: one for number, one in self._fixed.items() if number in numbers}
        self._measures = {number: one for number, one in self._measures.items() if number in numbers}

    def _panel_of(self, window: Window) -> Panel:
        # The length too: a rewound window stands at its old positions before it is read again.
        seen = (window.positions, len(window))
        if self._panel is None or seen != self._seen:
            self._seen, self._measures = seen, {}
            self._panel = self._judge.panel([held.impression for held in window])
        return self._panel
