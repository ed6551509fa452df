"""Version 0's measures, which every version is compared with: computed once where they cannot change."""

from __future__ import annotations

from daemon.validate.judge import Judge, Measures
from daemon.validate.measures import Float
from daemon.validate.panel import Panel
from daemon.validate.scorer import Scorer
from daemon.validate.window import Window


class Yardstick:
    """One judge, the panel of the window it judges on, and version 0's measures there.

    The fixed judged queries are ranked once for version 0; its measures on a window are kept until the
    window moves.
    """

    def __init__(self, judge: Judge, zero: Scorer) -> None:
        self._judge = judge
        self._zero = zero
        self._fixed: Float | None = None
        self._seen: tuple[dict[int, int], int] | None = None
        self._panel: Panel | None = None
        self._measures: Measures | None = None

    def panel(self, window: Window) -> Panel:
        """The window prepared for judging."""
        # The length too: a rewound window stands at its old positions before it is read again.
        seen = (window.positions, len(window))
        if self._panel is None or seen != self._seen:
            self._seen, self._measures = seen, None
            self._panel = self._judge.panel([held.impression for held in window])
        return self._panel

    def measures(self, window: Window) -> Measures:
        """Version 0's measures on the window. Raises NotFinite."""
        panel = self.panel(window)
        if self._fixed is None:
            self._fixed = self._judge.fixed_table(self._zero)
        if self._measures is None:
            self._measures = self._judge.judge(self._zero, panel, self._fixed)
        return self._measures
