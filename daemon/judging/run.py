"""`tripletd judge`: versions of a folder on the same held-out lists, by several processes; writes nothing.

`validate` judges each version on the window of its time, and decides. Here all are judged on one window, so
that their numbers are a learning curve, and any two can be compared list by list.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from checkpoints import VersionStore
from daemon.backfill.plan import begins
from daemon.backfill.run import BackfillJob, recipe_of
from daemon.backfill.sources import units_of
from daemon.catalogs import learner_catalog
from daemon.config.schema import Config
from daemon.exits import EX_CONFIG, EX_UNAVAILABLE, UserError
from daemon.judging.lists import encode_lists, lists_of_history, lists_of_topic
from daemon.judging.versions import JudgedVersion, JudgeTask, judge_version
from daemon.versions.restore import queries_of
from daemon.work_pool import Workers, done_by
from streams.errors import TopicMissing
from streams.event import Impression


@dataclass(frozen=True, slots=True)
class JudgedVersions:
    """What came of it: by number, and why some could not be judged. lists: how many they were judged on."""

    lists: int
    versions: Sequence[JudgedVersion]
    failed: dict[int, UserError]
    seconds: float


def judge_versions(
    config: Config,
    versions: VersionStore,
    numbers: Sequence[int],
    history: BackfillJob | None,
    *,
    workers: Workers,
    note: Callable[[str], None] = lambda _: None,
) -> JudgedVersions:
    """Judge versions by number on the lists that the holdout topic has now, or on those of a history. Raises
    UserError where there are too few, and with one model per key."""
    if config.keys.slots:
        message = "keys.slots: with one model per key every key is judged on its own lists"
        raise UserError(message, "run `tripletd validate`, which judges key by key", EX_CONFIG)
    lists = _lists(config, versions, history)
    least = config.validate.least_impressions
    if len(lists) < least:
        remedy = "feed more, or lower validate.min_impressions"
        raise UserError(f"{len(lists)} held-out lists, {least} are needed", remedy, EX_UNAVAILABLE)
    data, began = encode_lists(lists), time.monotonic()
    tasks = [JudgeTask(config, number, data) for number in numbers]
    found, failed = dict[int, JudgedVersion](), dict[int, UserError]()
    for task, outcome in done_by(workers, judge_version, tasks, note):
        if isinstance(outcome, UserError):
            failed[task.number] = outcome
        else:
            found[task.number] = outcome
    seconds = time.monotonic() - began
    return JudgedVersions(len(lists), [found[number] for number in sorted(found)], failed, seconds)


def _lists(config: Config, versions: VersionStore, history: BackfillJob | None) -> list[Impression]:
    catalog = learner_catalog(config, lambda _: None)
    if history is None:
        try:
            return lists_of_topic(config.stream.to_address(), config, catalog, queries_of(versions))
        except TopicMissing as error:
            raise UserError(
                str(error), "feed it, or name lists with --history SOURCE", EX_UNAVAILABLE
            ) from None
    progress = begins(recipe_of(config, history), units_of(history.sources, config.stream.reached), 0)
    return lists_of_history(config, catalog, progress)
