"""A version's state, moved on by recorded schedule entries as the learner moved it, by the same code."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from checkpoints import Manifest, Version
from checkpoints.manifest import ScheduleEntry
from daemon.exits import EX_DATAERR, UserError
from daemon.learn.applying.apply import count, step
from daemon.learn.applying.assemble import Assembler
from daemon.learn.applying.controls import KINDS, Entry
from daemon.learn.applying.progress import Applied, Progress
from daemon.learn.applying.ready import Ready
from daemon.learn.applying.state import State
from daemon.learn.replaying.runs import Runs
from daemon.learn.writing.describe import decoder_of
from daemon.versions.algorithms import learner_config_of
from daemon.versions.average_entry import AVERAGE
from learners.outcome import StepInfo
from streams.catalog import Catalog
from streams.decode import BatchDecoder
from streams.poison import CORRUPT_BATCH, DeadLetter

Told = Callable[[int], None]


class OutOfLine(Exception):
    """A schedule that does not fit the positions it starts from, or the log; the message says how."""


class Rerun:
    """State and progress on the way from one version to a later one."""

    def __init__(self, start: Version, target: Manifest, catalog: Catalog | None, runs: Runs) -> None:
        self.state = State.of_version(start, learner_config_of(start.manifest))
        self.progress = Progress.of_version(start.manifest)
        self._assembler = Assembler(self.state.fitted, catalog)
        self._decoder: BatchDecoder = decoder_of(target, catalog)
        self._topic = target.stream["topic"]
        self._runs = runs

    def follow(self, entry: ScheduleEntry, told: Told) -> None:
        """Do what one schedule entry records; `told` hears of each batch's records.

        Raises OutOfLine, and UserError where the log cannot be read.
        """
        if isinstance(entry, dict):
            self._control(entry)
            return
        for ready in self.batches(*entry):
            self.progress.advance(step(self.state, ready, self._topic).applied)
            told(ready.records)
        partition, _, stop = entry
        if self.progress.next_offsets()[partition] != stop:
            raise OutOfLine(
                f"partition {partition} holds no record at offset {stop - 1:,}, which was learned"
            )
        self.progress.published(self.progress.snapshot())  # the schedule is known: it need not grow here

    def batches(self, partition: int, start: int, stop: int) -> Iterator[Ready]:
        """A run's records, decoded and assembled. Raises OutOfLine where it begins beside the position."""
        stands = self.progress.next_offsets().get(partition)
        if stands != start:
            raise OutOfLine(
                f"the run [{start:,}, {stop:,}) of partition {partition} begins elsewhere than at {stands}"
            )
        for batch in self._runs.read(partition, start, stop):
            decoded = self._decoder.decode(batch)
            yield Ready(batch, decoded, self._assembler.triplets(decoded), 0.0, 0.0)

    def pass_over(self, ready: Ready) -> None:
        """Move the position past a batch that was learned otherwise."""
        decoded = ready.decoded
        digest, none = decoded.last_digest.hex(), StepInfo.empty(0).loss
        self.progress.advance(
            Applied(decoded.partition, decoded.next_offset, digest, ready.records, {}, none)
        )

    def _control(self, entry: Entry) -> None:
        kind = entry["control"]
        if kind == AVERAGE:
            raise UserError(
                "an average stands in the schedule: no event of this log leads to it",
                "replay from the average on (--from), and what it was made of in the folders it came from",
                EX_DATAERR,
            )
        if kind not in KINDS:
            raise UserError(
                f"the schedule has a control entry {kind!r}, which this release does not know",
                "replay with the release that wrote it",
                EX_DATAERR,
            )
        if kind == "damaged":
            self.progress.advance(_unread(self._topic, entry))
        else:
            self.progress.control(entry)
            self.state.obey(entry)


def _unread(topic: str, entry: Entry) -> Applied:
    """What passing a damaged stretch did to the progress."""
    partition, stop = entry["partition"], entry["to"]
    letter = DeadLetter(topic, partition, stop - 1, CORRUPT_BATCH, "", None)
    none = StepInfo.empty(0)
    return Applied(partition, stop, None, 1, count(none, [letter], 0), none.loss, damaged=True)
