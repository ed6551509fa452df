"""Administration over the version store and the ledger of one checkpoint folder."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from checkpoints import Ledger, VersionStore
from daemon.models.actions import Moved, pin, promote, rollback, unpin
from daemon.models.gc import gc

_BY = "http"


class StoreAdministration:
    """The port `Administration` by the same functions as the command line.

    Args:
        keep: newest versions that gc keeps, as `checkpoints.keep`.
    """

    def __init__(self, versions: VersionStore, ledger: Ledger, keep: int) -> None:
        self._versions, self._ledger, self._keep = versions, ledger, keep

    def promote(self, version: int | str, alias: str, reason: str, dry_run: bool) -> Mapping[str, Any]:
        """Point `alias` at `version`."""
        return _told(
            promote(self._versions, self._ledger, version, alias, by=_BY, reason=reason, dry_run=dry_run)
        )

    def rollback(self, to: int | str | None, alias: str, reason: str, dry_run: bool) -> Mapping[str, Any]:
        """Point `alias` back: to `to`, or to the version before."""
        return _told(
            rollback(self._versions, self._ledger, alias, to, by=_BY, reason=reason, dry_run=dry_run)
        )

    def pin(self, version: int | str | None, alias: str, reason: str, dry_run: bool) -> Mapping[str, Any]:
        """Name `version` so that it is kept and never moved; None takes the name away."""
        place = (self._versions, self._ledger, alias)
        if version is None:
            return _told(unpin(*place, by=_BY, reason=reason, dry_run=dry_run))
        return _told(pin(*place, version, by=_BY, reason=reason, dry_run=dry_run))

    def gc(self, dry_run: bool) -> Mapping[str, Any]:
        """Delete the versions that no rule keeps."""
        done = gc(self._versions, self._ledger, self._keep, dry_run=dry_run)
        kept = {version: list(why) for version, why in done.kept.items()}
        return {"gone": list(done.gone), "size": done.size, "kept": kept, "dry_run": done.dry_run}


def _told(moved: Moved) -> Mapping[str, Any]:
    return {
        "kind": moved.kind,
        "alias": moved.alias,
        "before": moved.before,
        "after": moved.after,
        "by": moved.by,
        "reason": moved.reason,
        "entry": None if moved.entry is None else moved.entry.n,
        "notes": list(moved.notes),
    }
