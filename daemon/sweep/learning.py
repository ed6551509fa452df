"""The settings of a group learn side by side in one worker: every block of lists is read and made triplets
once, and learned by all; then each is judged.

Each setting is a backfill of one learner into a folder of its own, so its version is, bit for bit, what
`tripletd feed` and `tripletd learn` make of the same lists. The group goes from version to version: whoever
is behind learns first, so that after a kill all are level again, and what was read for one is there for the
next. One learner is in memory at a time, and the blocks between two versions.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path

from checkpoints.manifest import Manifest
from daemon.backfill.blocks import BlockReader, RecordBlock
from daemon.backfill.plan import HistoryProgress, Unit, UnitPlace
from daemon.backfill.run import BackfillJob, BackfillReport, BackfillRun, begin_history, is_same, recipe_of
from daemon.backfill.shard import ShardJob, block_reader_of
from daemon.catalogs import FOLDER, learner_catalog
from daemon.config.objects import remember
from daemon.exits import UserError, as_user_error
from daemon.judging.versions import JudgeTask, judge_version
from daemon.sweep.results import SettingResult
from daemon.sweep.settings import Trial
from daemon.versions.contents import RECORDS, counted
from daemon.versions.storage import open_store
from daemon.work_pool import outcome


@dataclass(frozen=True, slots=True)
class GroupTask:
    """What a worker does. trials: of one reading, each learner once or in several forms; units: as the sweep
    began with; catalogs: folder of what was read of the objects, shared by all settings; lists: the
    held-out ones, encoded."""

    trials: Sequence[Trial]
    job: BackfillJob
    units: Sequence[Unit]
    catalogs: str
    lists: bytes


@dataclass(frozen=True, slots=True)
class LearnedSetting:
    """One learner of a sweep. learned: see `Trial`; version, hash: where it ended; records: that it was
    given; seconds: of this run; error: why it could not."""

    learned: str
    version: int = 0
    hash: str = ""
    records: int = 0
    seconds: float = 0.0
    error: UserError | None = None


class SharedBlocks:
    """The blocks of some units, each read once. Those of a place are kept until `forget`."""

    def __init__(self, open_reader: Callable[[UnitPlace], BlockReader]) -> None:
        self._open = open_reader
        self._reader: BlockReader | None = None
        self._known: dict[tuple[UnitPlace, int, int], tuple[RecordBlock, UnitPlace]] = {}
        self.read = 0
        """Blocks that were read, and not had already."""

    def opened(self, at: UnitPlace) -> SharedReader:
        """Reads from a place on."""
        return SharedReader(self, at)

    def block(self, at: UnitPlace, least: int, fed: int) -> tuple[RecordBlock, UnitPlace]:
        """The block at a place, and where the next one begins."""
        asked = at, least, fed
        if asked not in self._known:
            if self._reader is None or self._reader.at != at:
                self.close()
                self._reader = self._open(at)
            block = self._reader.next(least, fed)
            self.read += 1
            self._known[asked] = block, self._reader.at
        return self._known[asked]

    def forget(self) -> None:
        """Keep no block: all have learned them."""
        self._known.clear()

    def close(self) -> None:
        """Leave what is open."""
        if self._reader is not None:
            self._reader.close()
            self._reader = None


class SharedReader:
    """One learner's place among shared blocks."""

    def __init__(self, blocks: SharedBlocks, at: UnitPlace) -> None:
        self._blocks, self.at = blocks, at

    def next(self, least: int, fed: int) -> RecordBlock:
        """See `BlockReader.next`."""
        block, self.at = self._blocks.block(self.at, least, fed)
        return block

    def close(self) -> None:
        """The blocks stay for others."""


def do_group(task: GroupTask) -> list[tuple[str, SettingResult | UserError]]:
    """Learn and judge a group: by `scored`, what each setting came to, or why it could not. Raises the errors
    of what no setting is to blame for."""
    by_learner = {one.learned: one for one in learn_group(task)}
    pairs = ((trial, by_learner[trial.learned]) for trial in task.trials)
    return [(trial.scored, one.error or _judged(trial, one, task.lists)) for trial, one in pairs]


def _judged(trial: Trial, learned: LearnedSetting, lists: bytes) -> SettingResult | UserError:
    judged = outcome(judge_version, JudgeTask(trial.config, learned.version, lists))
    if isinstance(judged, UserError):
        return judged
    about = trial.scored, trial.setting.name, learned.version, learned.hash, trial.config.checkpoints.path
    return SettingResult(*about, learned.records, learned.seconds, judged.scores, judged.zero)


def learn_group(task: GroupTask) -> list[LearnedSetting]:
    """Learn what is left of a group's settings; those that cannot be learned come with their error."""
    runs = [_TrialRun(trial, task) for trial in {one.learned: one for one in task.trials}.values()]
    first = task.trials[0].config
    remember(first.checkpoints)
    recipe = recipe_of(first, task.job)
    catalog = learner_catalog(first, lambda _: None)
    blocks = SharedBlocks(block_reader_of(ShardJob(first, recipe, task.units), catalog))
    at: int | None = None
    try:
        while going := [one for one in runs if one.going]:
            behind = min(one.fed for one in going)
            if behind != at:
                blocks.forget()
                at = behind
            for one in going:
                if one.fed == behind:
                    one.learn_on(blocks)
    finally:
        blocks.close()
    return [one.found for one in runs]


class _TrialRun:
    """One setting on its way. fed: records in its newest version."""

    def __init__(self, trial: Trial, task: GroupTask) -> None:
        self._trial, self._task = trial, task
        self._seconds = 0.0
        self.found = LearnedSetting(trial.learned)
        self.fed, self.going = 0, True
        try:
            share_catalogs(Path(trial.config.checkpoints.path), Path(task.catalogs))
            self._look(open_store(trial.config.checkpoints.path).versions.newest_manifest())
        except Exception as error:  # noqa: BLE001  raised again, unless it is the user's to put right
            self._fail(error)

    def learn_on(self, blocks: SharedBlocks) -> None:
        """Up to the next version."""
        began = time.monotonic()
        try:
            with ExitStack() as stack:
                job, report, reads = self._task.job, BackfillReport(), blocks.opened
                begun = begin_history(stack, self._trial.config, job, self._task.units, report)
                run = BackfillRun(begun.config, job, report, begun.publisher, open_reader=reads, most=1)
                run(begun.progress, begun.origin)
                newest = begun.inputs.versions.newest_manifest()
            self._seconds += time.monotonic() - began
            self._look(newest)
        except Exception as error:  # noqa: BLE001  raised again, unless it is the user's to put right
            self._fail(error)

    def _look(self, newest: Manifest | None) -> None:
        if newest is None or (progress := HistoryProgress.in_version(newest)) is None:
            return
        self.fed = progress.fed
        recipe = recipe_of(self._trial.config, self._task.job)
        if progress.done and is_same(progress, recipe, self._task.units):
            self.going = False
            records = counted(newest.counters, RECORDS)
            self.found = LearnedSetting(
                self._trial.learned, newest.number, newest.state_hash, records, round(self._seconds, 3)
            )

    def _fail(self, error: Exception) -> None:
        """Leave this setting out, for what the user can put right; else raise."""
        readable = as_user_error(error)
        if readable is None:
            raise error
        self.going = False
        self.found = LearnedSetting(self._trial.learned, error=readable)


def share_catalogs(folder: Path, catalogs: Path) -> None:
    """Have a setting's folder use what was read of the objects for all."""
    folder.mkdir(parents=True, exist_ok=True)
    catalogs.mkdir(parents=True, exist_ok=True)
    with suppress(FileExistsError):
        (folder / FOLDER).symlink_to(catalogs.resolve(), target_is_directory=True)
