"""A learner in a thread of the test's own process, on a disk that the test controls."""

from __future__ import annotations

import threading
from collections.abc import Callable

from checkpoints.local import Fs
from checkpoints.publisher import AsyncPublisher, Failed, Published
from daemon.config import load_config
from daemon.exits import as_user_error
from daemon.learn import start as role
from daemon.learn.resume.origin import LearnOptions
from daemon.runtime import runtime as outside
from daemon.runtime.runtime import Signals
from daemon.telemetry import LearnMetrics
from tests.harness.kill.learners import START_SECONDS
from tests.harness.kill.seams import Seams
from tests.harness.kill.site import Site

FAILURES = "tripletd_checkpoint_failures_total"


class Hosted:
    """`learn` in a thread, one at a time; a context manager that stops it. `results`: of each version.

    `each_version`: the loop waits for each version, so that none is passed over while one is being written.
    """

    def __init__(
        self,
        site: Site,
        fs: Fs,
        heard: Callable[[Published | Failed], None] = lambda _: None,
        *,
        until_caught_up: bool = True,
        each_version: bool = False,
    ) -> None:
        self._config = load_config(site.config)
        self._options = LearnOptions(exit_when_caught_up=until_caught_up)
        self._fs, self._heard, self._each_version = fs, heard, each_version
        self.signals, self.metrics = Signals(), LearnMetrics()
        self.results: list[Published | Failed] = []
        self.code: int | None = None
        self.error: Exception | None = None
        self._thread = threading.Thread(target=self._run, name="hosted learner")

    def __enter__(self) -> Hosted:
        seams = self._seams = Seams()
        if self._each_version:
            seams.write_each_version()
        seams.put_disk(self._fs)
        seams.wait_briefly()
        seams.put(outside, "Signals", lambda **_: self.signals)
        seams.put(role, "LearnMetrics", lambda: self.metrics)
        seams.put(AsyncPublisher, "result", self._noted(AsyncPublisher.result))
        self._thread.start()
        return self

    def __exit__(self, *exc: object) -> None:
        self.signals.request_stop()
        self._thread.join(START_SECONDS)
        self._seams.undo()
        assert not self._thread.is_alive(), "the hosted learner does not end"

    def join(self, seconds: float = START_SECONDS) -> int | None:
        """Its exit code; None when it ended with an error that a user reads (`error`). Raises any other."""
        self._thread.join(seconds)
        assert not self._thread.is_alive(), "the hosted learner does not end"
        if self.error is not None and as_user_error(self.error) is None:
            raise self.error
        return self.code

    @property
    def running(self) -> bool:
        return self._thread.is_alive()

    def metric(self, name: str) -> float:
        """The sum of a metric over its labels."""
        samples = (sample for family in self.metrics.registry.collect() for sample in family.samples)
        return sum(sample.value for sample in samples if sample.name == name)

    def events(self) -> int:
        """Steps taken so far."""
        return int(self.metric("tripletd_events_total"))

    def _noted(self, result: Callable[[AsyncPublisher], Published | Failed | None]):  # type: ignore[no-untyped-def]
        def noted(publisher: AsyncPublisher) -> Published | Failed | None:
            outcome = result(publisher)
            if outcome is not None:
                self.results.append(outcome)
                self._heard(outcome)
            return outcome

        return noted

    def _run(self) -> None:
        try:
            self.code = role.run(self._config, self._options)
        except Exception as error:
            self.error = error


def learn_all(site: Site, fs: Fs, heard: Callable[[Published | Failed], None] = lambda _: None) -> Hosted:
    """Learn everything there is on that disk, every version that is due; what came of it."""
    with Hosted(site, fs, heard, each_version=True) as learner:
        learner.join()
    return learner
