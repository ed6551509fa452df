"""Recall of the store that people already have: what it finds beside what its own exact search finds.

Learned queries lie elsewhere than the vectors that its graph was built for, and more so with what is learned:
an approximate search then misses more, and nothing else would tell.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence

import structlog

from daemon.config.index import IndexConfig
from daemon.index import StoreError, VectorIndex
from daemon.index.protocol import AskedVector
from daemon.runtime.watchdog import BackgroundThread

TOP = 10
QUERIES = 20
"""Objects that ask for their neighbours; recall is then known to about .02."""
FIRST_S = 5.0
"""How soon after the start, and how often until there is something to ask with."""

log = structlog.get_logger("tripletd.index")

AskedSample = Callable[[int], Sequence[AskedVector] | None]
"""Gives so many learned queries, None while there is no model."""


def found_share(exact: Sequence[str], found: Sequence[str]) -> float:
    """Share of the first `TOP` of the exact search that the other one found; 1 of nothing. Pure."""
    wanted = set(exact[:TOP])
    return len(wanted & set(found)) / len(wanted) if wanted else 1.0


class StoreRecall(BackgroundThread):
    """Measures it now and then, one question after the other. measured: hears the mean. What the store is
    asked when it ends is not waited for."""

    name, end_s = "index-recall", 0.5

    def __init__(
        self, index: VectorIndex, config: IndexConfig, sample: AskedSample, measured: Callable[[float], None]
    ) -> None:
        super().__init__()
        self._index, self._config, self._sample, self._measured = index, config, sample, measured
        self._ending = threading.Event()

    def start(self) -> None:
        """Begin, unless it is switched off."""
        if self._config.recall_every is not None:
            super().start()

    def stop(self) -> None:
        """Ask nothing more."""
        self._ending.set()

    def measure(self) -> float | None:
        """The mean over the sample, told where it is low; None while there is nothing to ask with. Raises
        StoreError."""
        queries = self._sample(QUERIES)
        if not queries:
            return None
        reach = TOP if self._config.mode in ("own", "folded") else max(TOP, self._config.candidates)
        shares = []
        for query in queries:
            if self._ending.is_set():
                return None
            exact = [one.id for one in self._index.search(query, TOP, exact=True)]
            shares.append(found_share(exact, [one.id for one in self._index.search(query, reach)]))
        mean = sum(shares) / len(shares)
        self._measured(mean)
        if mean < self._config.recall:
            log.warning(
                f"the store finds {mean:.0%} of its own exact first {TOP} for learned queries; "
                "raise index.width or index.candidates, or build its index anew",
                index=self._index.name,
                recall=round(mean, 3),
                wanted=self._config.recall,
            )
        else:
            log.info("recall of the store was measured", index=self._index.name, recall=round(mean, 3))
        return mean

    def _run(self) -> None:
        every = self._config.recall_every
        assert every is not None
        rest_s = min(FIRST_S, every)
        while not self._ending.wait(rest_s):
            try:
                rest_s = min(FIRST_S, every) if self.measure() is None else every
            except StoreError as error:
                log.warning("recall of the store was not measured", index=self._index.name, why=error.message)
                rest_s = every
            except Exception:
                log.exception("recall of the store was not measured")
                rest_s = every
