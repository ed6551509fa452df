"""Applying the learner's steps: from the step log to the idle buffer, then one flip for all that came."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from checkpoints.manifest import Manifest
from daemon.objects import as_block
from daemon.replica.buffer_writer import DoubleBufferWriter
from daemon.replica.decide import Apply, Lost, Relabel
from daemon.replica.steplog_reader import StepLogReader
from daemon.replica.view import ModelId
from daemon.versions.contents import records_of, watermark_of
from learners.block import Block, TripletBatch
from learners.errors import LearnerError
from learners.steps import StepBatch, TripletSteps
from learners.steps import Steps as LearnerSteps
from streams.steps.segment import Steps, Taken

OnFlip = Callable[[ModelId, str, NDArray[np.int64]], None]
"""Told of a flip: the model, what changed, and the event times that it newly holds."""

NO_TIMES: NDArray[np.int64] = np.zeros(0, np.int64)


@dataclass(slots=True)
class _Pending:
    """What the idle side took and readers have not seen. whole: it ends between records and may be shown."""

    times: list[NDArray[np.int64]]
    taken: bool = False
    whole: bool = True
    relabelled: bool = False


class StepApplier:
    """Keeps the served model up with the step log. Used by the one thread that owns the writer."""

    def __init__(
        self,
        writer: DoubleBufferWriter,
        listener: StepLogReader,
        on_flip: OnFlip,
        on_steps: Callable[[Block], None],
        line_of: Callable[[int, str], str] = lambda version, line: line,
    ) -> None:
        """line_of: (a version that the log names, the line so far) -> its line of history."""
        self._line, self._line_of = "", line_of
        self._writer, self.listener, self._on_flip, self._on_steps = writer, listener, on_flip, on_steps
        self._version = self._base_records = self._total = 0
        self._watermark: int | None = None
        self._held = self._held_ms = 0  # most records, newest event time of any state that was shown
        self._pending = _Pending([])

    @property
    def model(self) -> ModelId:
        """The state on the idle side once all is taken."""
        behind = self._total - self._base_records
        return ModelId(self._version, behind, self._watermark, self._total, self._line)

    def begin(self, manifest: Manifest) -> None:
        """Go on from a version that answers since just now."""
        self._version, self._total, self._line = manifest.number, records_of(manifest), manifest.line
        self._base_records, self._watermark = self._total, watermark_of(manifest)
        self._pending = _Pending([])
        self._hold()
        self.listener.begin(manifest)

    def turn(self, timeout_s: float, now: float) -> Lost | None:
        """Take what comes within `timeout_s` and show it by one flip. The writer must be settled.

        Lost when the log cannot be followed on from here: what was taken whole before is shown.
        """
        lost: Lost | None = None
        for meaning in self.listener.poll(timeout_s, now):
            if isinstance(meaning, Apply):
                lost = self._take(meaning.steps)
            elif isinstance(meaning, Relabel):
                self._version, self._base_records = meaning.number, meaning.records
                self._line = self._line_of(meaning.number, self._line)
                self._pending.relabelled = True
            elif isinstance(meaning, Lost):
                lost = meaning
            if lost is not None:
                break
        if lost is not None and not self._pending.whole:
            self._discard()
        self._show()
        return lost

    def abandon(self) -> Lost:
        """Something failed midway: nothing taken is shown, and the log is left until a version is loaded."""
        self._discard()
        return self.listener.line.lose("error")

    def _take(self, steps: Taken) -> Lost | None:
        try:
            batch, changes = learner_steps(steps), bool(len(steps)) or steps.project
            if changes:
                self._writer.take(batch)
        except (LearnerError, ValueError, np.linalg.LinAlgError):
            self._discard()
            return self.listener.line.lose("steps")
        self._on_steps(as_block(steps.query))
        pending = self._pending
        pending.taken = True
        pending.times.append(self._new_times(steps))
        if steps.last > steps.first:
            pending.whole = True
        elif changes:
            pending.whole = False
        self._total, self._watermark = steps.last, steps.watermark
        if steps.cut:
            self.listener.line.at_cut(self._writer.digest())
        return None

    def _show(self) -> None:
        pending = self._pending
        if not pending.whole:
            return
        self._pending = _Pending([])
        if pending.taken:
            self._writer.flip_steps(self.model)
            self._hold()
            self._on_flip(self.model, "steps", np.concatenate([NO_TIMES, *pending.times]))
        if pending.relabelled:
            self._writer.relabel(self.model)
            self._on_flip(self.model, "relabel", NO_TIMES)

    def _new_times(self, steps: Taken) -> NDArray[np.int64]:
        """Its event times but for those of events that were shown before: after a fall back the log is read
        again from a version on, and a learner that started over learns the same events again.
        """
        if steps.first >= self._held:
            return steps.timestamps
        return steps.timestamps[steps.timestamps > self._held_ms]

    def _hold(self) -> None:
        self._held = max(self._held, self._total)
        self._held_ms = max(self._held_ms, self._watermark or 0)

    def _discard(self) -> None:
        """What was taken last is part of a record, or does not fit: nobody sees it."""
        self._writer.spoil()
        self._pending = _Pending([])

    def close(self) -> None:
        """Let go of the log."""
        self.listener.close()


def learner_steps(body: Taken) -> LearnerSteps:
    """What a segment tells, as a learner takes it. Raises BlockError for rows that do not fit each other."""
    if isinstance(body, Steps):
        return StepBatch(body.tau, as_block(body.query), as_block(body.error), body.project)
    roles = (as_block(one) for one in (body.query, body.clicked, body.skipped))
    return TripletSteps(TripletBatch(*roles, keys=body.keys), body.weights, body.numbers)
