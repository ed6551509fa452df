"""Deleting old versions now, with the account of what goes, what stays and why."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from checkpoints import Ledger, VersionStore


@dataclass(frozen=True, slots=True)
class Collected:
    """What went, or would go (dry run): `gone` and `size` (bytes of it on disk); `kept`: version -> why."""

    gone: tuple[int, ...]
    size: int
    kept: Mapping[int, tuple[str, ...]]
    dry_run: bool


def gc(versions: VersionStore, ledger: Ledger, keep: int, *, dry_run: bool = False) -> Collected:
    """Delete the versions that no rule keeps.

    Kept: version 0, the newest `keep` (at least 2), the newest two that load (a learner resumes from them),
    what aliases point at, one step back included. Refused (UserError) while one ledger entry cannot be read:
    it may point at any version. A server or replica that has a deleted version loaded is not affected: it
    holds its own copy, and falls back to what its alias means when it starts again.
    """
    raise NotImplementedError
