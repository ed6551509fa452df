"""A branch or a change of the log is made once: after a restart the same command line goes on with it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from checkpoints import Manifest, VersionStore
from checkpoints.manifest import ScheduleEntry
from daemon.exits import UserError
from daemon.learn.starting.options import LearnOptions
from daemon.versions.lineage import ancestry


def settled(options: LearnOptions, newest: Manifest, versions: VersionStore) -> LearnOptions:
    """The options without what the newest version already descends from; unchanged with `--again`.

    A service is restarted with the arguments it was started with, and must keep what it has learned since.
    """
    asks = options.restart_from is not None or options.accept_log
    if not asks or options.again or not _made(options, newest, versions):
        return options
    return replace(options, restart_from=None, accept_log=False, start="checkpoint", jump=False)


def _made(options: LearnOptions, newest: Manifest, versions: VersionStore) -> bool:
    try:
        for link in ancestry(versions, newest.number):
            if any(_made_by(entry, options, newest.stream) for entry in link.schedule):
                return True
    except UserError:
        pass  # the line breaks off: nothing shows that it was made
    return False


def _made_by(entry: ScheduleEntry, options: LearnOptions, stream: dict[str, Any]) -> bool:
    if not isinstance(entry, dict) or entry.get("start") != options.start:
        return False
    if options.restart_from is not None:
        return bool(entry["control"] == "branch" and entry["from_version"] == options.restart_from)
    return bool(entry["control"] == "log" and entry["to"] == stream)
