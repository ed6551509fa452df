"""What was asked for: which version, and whether it was done before.

A branch or a change of the log is made once: after a restart the same command line goes on with it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from checkpoints import Ledger, Manifest, VersionStore, resolve
from checkpoints.manifest import ScheduleEntry
from daemon.exits import EX_USAGE, UserError
from daemon.learn.starting.options import LearnOptions
from daemon.text import number_runs
from daemon.versions.lineage import ancestry


def named(options: LearnOptions, versions: VersionStore, ledger: Ledger) -> LearnOptions:
    """The options with the number of a version asked for by name. UserError (usage) for no such name."""
    if options.restart_name is None:
        return options
    kept = versions.versions()
    number = resolve(options.restart_name, kept, ledger.entries(report=lambda error: None))
    if number is None:
        raise no_such_version(options.restart_name, kept)
    return replace(options, restart_from=number)


def no_such_version(name: int | str, kept: Sequence[int]) -> UserError:
    """For a number that was never written, or only taken by a writer, or is pruned; or an unknown name."""
    known = number_runs(kept) or "none yet"
    return UserError(
        f"there is no version {name}", f"versions: {known}; see `tripletd models list`", EX_USAGE
    )


def settled(options: LearnOptions, newest: Manifest, versions: VersionStore) -> LearnOptions:
    """The options without what the newest version already descends from; unchanged with `--again`.

    A service is restarted with the arguments it was started with, and must keep what it has learned since.
    """
    asks = options.restart_from is not None or options.accept_log
    if not asks or options.again or not _made(options, newest, versions):
        return options
    return replace(
        options, restart_from=None, restart_name=None, accept_log=False, start="checkpoint", jump=False
    )


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
        name = (
            options.restart_name
        )  # means another version after a while; the branch is made once all the same
        same = entry.get("name") == name if name else entry.get("from_version") == options.restart_from
        return entry["control"] == "branch" and same
    return bool(entry["control"] == "log" and entry["to"] == stream)
