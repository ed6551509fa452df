"""Whether what is about to be started fits into the memory there is, and the error that names what would."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import structlog

from checkpoints.manifest import Manifest
from checkpoints.store import CheckpointError
from daemon.config import Config
from daemon.config.objects import is_object_address
from daemon.exits import EX_CONFIG, UserError
from daemon.memory.needs import PROGRAM, MemoryNeed, RoleName, need_of, needs_of_up, state_parts
from daemon.memory.remedies import alternatives
from daemon.memory.room import MemoryBound, memory_bounds
from daemon.text import size
from daemon.versions.algorithms import as_made, keys_of, learner_config_of
from daemon.versions.storage import open_store

log = structlog.get_logger("tripletd.memory")


def require_role(
    config: Config, role: RoleName, established: bool, processes: int = 1, *, items: int = 0
) -> None:
    """Raises UserError where this process, or so many of its kind that it is about to start, cannot be had;
    in the first the program itself is running already.

    established: there is a version, so somebody may rely on the role. Then it is refused only if it cannot
    even start, and what it will lack later is a warning. items: objects of its catalog.
    """
    needs, bounds = [need_of(config, role, items)] * processes, memory_bounds()
    found = refusal(needs, config, bounds, role, running=PROGRAM, items=items)
    if found is None:
        return
    at_once = [one.at_once for one in needs]
    if not established or refusal(at_once, config, bounds, role, running=PROGRAM, items=items) is not None:
        raise found
    log.warning("memory will not do", why=found.message, remedy=found.remedy)


def refusal_of_up(config: Config, serves: bool) -> UserError | None:
    """Why the roles that `up` starts cannot be had together. serves: whether serve is among them."""
    with suppress(UserError):
        config = as_made(config, newest_version(config))
    return refusal(needs_of_up(config, serves=serves), config, memory_bounds(), "up")


def newest_version(config: Config) -> Manifest | None:
    """The newest version of the checkpoint folder, by which it is learned on; None where none can be read."""
    path = config.checkpoints.path
    with suppress(CheckpointError, OSError):
        is_there = is_object_address(path) or Path(path).is_dir()
        return open_store(path).versions.newest_manifest() if is_there else None
    return None


def as_learned(config: Config, manifest: Manifest) -> Config:
    """The configuration with the learner that a version was learned by, whatever the file names now."""
    with suppress(KeyError, ValueError):
        return replace(config, learner=learner_config_of(manifest), keys=keys_of(manifest))
    return config


def refusal(
    needs: Sequence[MemoryNeed],
    config: Config,
    bounds: Sequence[MemoryBound],
    what: str,
    *,
    running: int = 0,
    items: int = 0,
) -> UserError | None:
    """Why processes with these needs cannot run beside each other, and what could; None where they can.

    bounds: the tightest first. what: is started, for people: a role, or `up`. running: bytes of the need that
    this process has already. items: objects of the catalog, which the needs count.
    """
    for bound in bounds:
        needed = _needed(needs, bound) - running
        if needed > bound.free:
            return UserError(
                f"{what}: {told(needs, config)}; {size(bound.free)} of memory are free of {size(bound.limit)}"
                f" ({bound.name})",
                _remedy(needs, config, bound, what, running, items),
                EX_CONFIG,
            )
    return None


def _remedy(  # noqa: PLR0917
    needs: Sequence[MemoryNeed], config: Config, bound: MemoryBound, what: str, running: int, items: int
) -> str:
    """The settings that would fit, as lines for the file; where none does, what else there is to do."""

    def need(changed: Config) -> int:
        if what == "up":
            serves = any(one.role == "serve" for one in needs)
            return _needed(needs_of_up(changed, items, serves=serves), bound) - running
        return _needed([need_of(changed, one.role, items) for one in needs], bound) - running

    found = alternatives(config, bound.free, need)
    if not found:
        return f"there is no learner for so little: give it more memory than {bound.name} has"
    return "set in the configuration\n" + "\nor\n".join(one.toml() for one in found)


def _needed(needs: Sequence[MemoryNeed], bound: MemoryBound) -> int:
    """Of what is shared all of them draw; of a process's own limit each has its own."""
    each = [one.nbytes for one in needs]
    return sum(each) if bound.shared else max(each)


def told(needs: Sequence[MemoryNeed], config: Config) -> str:
    """What is needed and for what: of one process its parts, of several each role's size and the learner's
    parts."""
    whole = sum(one.nbytes for one in needs)
    if len(needs) == 1:
        return f"{config.learner.algorithm} needs {size(whole)}: {needs[0]}"
    roles: dict[str, list[MemoryNeed]] = {}
    for one in needs:
        roles.setdefault(one.role, []).append(one)
    of_each = [
        f"{role} {size(each[0].nbytes)}" + (f" each of {len(each)}" if len(each) > 1 else "")
        for role, each in roles.items()
    ]
    state = ", ".join(str(part) for part in state_parts(config))
    return f"{config.learner.algorithm} ({state}) needs {size(whole)} together: {', '.join(of_each)}"
