"""Computing the form of a followed state again, off the path and within a share of a core."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import structlog

from daemon.replica.buffers import LeftRight, ModelBuffer, copied, trained_number
from daemon.replica.form_updates import FormUpdater
from daemon.replica.loading import Arrays
from daemon.replica.settings import FollowSettings, Hooks
from daemon.replica.view import CarryError, View
from daemon.runtime.watchdog import BackgroundThread, give_way
from learners.base import Learner
from learners.block import Block, Float32s
from learners.forms.carried import CarriedError, carried_error
from learners.forms.quadratic import ServedForm

SAMPLE_QUERIES = 32
SAMPLE_ITEMS = 500
NICE = 10
"""Of the working thread: it gives way to those that answer and that follow."""

log = structlog.get_logger("tripletd.replica")


@dataclass(frozen=True, slots=True)
class RefineResult:
    """What was computed: for which generation of the sides, and the records at which the form was made.

    form: None where only `prepared` is new: for items that came, and where forms are made with every step.
    error: None where there was nothing to measure on.
    """

    generation: int
    form: ServedForm | None
    formed: int
    prepared: Any
    error: CarryError | None


@dataclass(frozen=True, slots=True)
class FoldedSample:
    """Queries of the steps last taken, and as the carried form folded them at the copied state."""

    queries: Block
    folded: Float32s


class Refiner(BackgroundThread):
    """Takes a copy of the served state now and then, makes its form and what `prepare` makes of
    it, and measures what carrying the last form over had cost.

    `results` is called in this thread with each piece of work, to be handed to the writer. spare: the buffer
    of the copy, None where whole versions are served: then only `ask` makes it work, for `prepare` alone.
    """

    def __init__(
        self,
        alias: str,
        *,
        sides: LeftRight[ModelBuffer],
        spare: Arrays | None,
        hooks: Hooks,
        following: FollowSettings,
        results: Callable[[RefineResult], None],
    ) -> None:
        self.name = f"refine-{alias}"
        super().__init__()
        self._sides, self._spare, self._hooks = sides, spare, hooks
        self._every_s, self._share, self._results = following.refine_every_s, following.refine_share, results
        self._asked, self._stopping = threading.Event(), threading.Event()
        self._queries: Block | None = None
        self._copy: Learner | None = None
        self._gauge = CarryErrorMeter(hooks.sample)

    def on_steps(self, queries: Block) -> None:
        """Mapped queries of steps that were just taken: the newest are what the error is measured on."""
        if len(queries):
            self._queries = queries.slice(max(0, len(queries) - SAMPLE_QUERIES), len(queries))

    def ask(self) -> None:
        """Work now, or as soon as the share of a core allows."""
        self._asked.set()

    def stop(self) -> None:
        """End after the piece of work it is at."""
        self._stopping.set()
        self._asked.set()

    def _run(self) -> None:
        give_way(NICE)
        while not self._stopping.is_set():
            asked = self._asked.wait(self._every_s if self._spare is not None else None)
            self._asked.clear()
            if self._stopping.is_set():
                return
            began, spent = time.monotonic(), time.thread_time()
            try:
                work = self._work(asked)
                if work is not None:
                    self._results(work)
            except Exception:  # whatever it is, the last form still answers
                log.exception("the serving form could not be computed; the last one is updated further")
            spent = time.thread_time() - spent
            self._stopping.wait(rest(spent, time.monotonic() - began, self._share))

    def _work(self, asked: bool) -> RefineResult | None:
        with self._sides.read() as side:
            view, generation = side.view, side.generation
            if view is None:
                return None
            if not asked and (self._spare is None or view.model.total == view.formed):
                return None
            if self._spare is None:
                return RefineResult(generation, None, view.formed, self._hooks.prepare(view), None)
            assert side.learner is not None
            assert side.remake is not None
            self._copy = copied(side.learner, self._spare, side.remake, self._copy)
            carry = side.carry
            queries = self._queries
            sample = None if queries is None or view.rescored else FoldedSample(queries, view.fold(queries))
        return self._computed(view, generation, self._copy, carry, sample)

    def _computed(
        self, view: View, generation: int, learner: Learner, carry: FormUpdater, sample: FoldedSample | None
    ) -> RefineResult:
        began, model = time.thread_time(), view.model
        form = carry.exact(learner, trained_number(model))
        known = view.prepared if view.formed == model.total else None  # only the items have changed
        exact = View(model, view.map_id, form, model.total, known)
        found = self._gauge.measure(exact, generation, sample)
        prepared = self._hooks.prepare(exact)
        carried = carry.to_install(form, learner)
        error = None
        if found is not None:
            spent = time.thread_time() - began
            error = CarryError(found.fold, found.norms, found.overlap, abs(model.total - view.formed), spent)
        return RefineResult(generation, carried, model.total, prepared, error)


class CarryErrorMeter:
    """Measures the error of an updated form against the one computed exactly, on a fixed sample."""

    def __init__(self, sample: Callable[[int], Block | None] | None) -> None:
        self._sample = sample
        self._items: Block | None = None
        self._norms: Float32s | None = None
        self._generation = -1

    def measure(self, exact: View, generation: int, sample: FoldedSample | None) -> CarriedError | None:
        """The error, None where the norms at the last form are not known: the first time, after a load, and
        where the sampled items have changed. Remembers the norms of the new form.
        """
        items = None if self._sample is None else self._sample(SAMPLE_ITEMS)
        if items is None:
            items = self._items if self._items is not None or sample is None else sample.queries
        norms = self._norms if self._items is items and self._generation == generation else None
        self._items, self._generation = items, generation
        self._norms = None if items is None else exact.self_scores(items)
        if items is None or norms is None or sample is None:
            return None
        return carried_error(sample.folded, norms, exact.search, (sample.queries, items))


def rest(spent_s: float, elapsed_s: float, share: float) -> float:
    """Seconds to wait after work of so much processor time and length, to stay within a share of a core."""
    return max(0.0, spent_s / share - elapsed_s)
