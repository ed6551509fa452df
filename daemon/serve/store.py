"""What HTTP says of the versions in the store, and what it may do with them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from typing import Any

from checkpoints import Ledger, VersionStore, aliases
from checkpoints.entries import BEST
from daemon.look.overview import VersionRow, read_all, version_rows
from daemon.models.actions import gc, move
from daemon.models.decide import Verb
from daemon.replica.view import ReplicaStatus
from daemon.versions.order import Answering
from daemon.versions.verdict import NOT_SHOWN, is_unproven


class StoreActions:
    """Says what is served and kept, moves aliases and deletes versions; each call writes at most one entry of
    the ledger. Values are plain data, those of `http.schemas`; UserError says what may not be done.

    statuses: how each alias stands. keep: how many versions `gc` keeps besides those that a rule keeps.
    """

    def __init__(
        self,
        versions: VersionStore,
        ledger: Ledger,
        keep: int,
        statuses: Callable[[], Sequence[ReplicaStatus]],
    ) -> None:
        self._versions, self._ledger, self._keep, self._statuses = versions, ledger, keep, statuses

    def overview(self) -> Mapping[str, Any]:
        """What each alias answers with, and the versions of the store: the values of `schemas.Versions`."""
        found = read_all(self._versions, self._ledger)
        rows = version_rows(found.manifests, found.entries, found.newest, found.damaged)
        return {
            "aliases": [alias_answers(one, aliases(found.entries).get(BEST)) for one in self._statuses()],
            "versions": [_kept(row) for row in rows],
        }

    def move(
        self, verb: Verb, alias: str, version: int | str | None, reason: str, dry_run: bool, *, by: str
    ) -> Mapping[str, Any]:
        """Point `alias` at `version` (rollback to None: the one before), or pin it (None: unpin).

        by: who asks, in the ledger's words.
        """
        verb = "unpin" if verb == "pin" and version is None else verb
        how = {"by": by, "reason": reason}
        moved = move(self._versions, self._ledger, verb, alias, version, **how, dry_run=dry_run)
        entry = None if moved.entry is None else moved.entry.n
        return {**asdict(moved), "entry": entry, "notes": list(moved.notes)}

    def gc(self, dry_run: bool) -> Mapping[str, Any]:
        """Delete the versions that no rule keeps."""
        found = gc(self._versions, self._ledger, self._keep, dry_run=dry_run)
        kept = {number: list(reasons) for number, reasons in found.kept.items()}
        return {"gone": list(found.gone), "size": found.size, "kept": kept, "dry_run": found.dry_run}


def alias_answers(one: ReplicaStatus, best: int | None) -> dict[str, Any]:
    """What one alias answers with: the values of `schemas.ServedAlias`. best: the best version, if any."""
    model = one.model
    unproven = model is not None and is_unproven(model.version, best, steps=model.behind > 0)
    return {
        "alias": one.alias,
        "version": None if model is None else str(model),
        "base": None if model is None else model.version,
        "line": None if model is None else model.line or None,
        "records": None if model is None else model.total,
        "watermark": None if model is None else model.watermark,
        "since": one.since,
        "note": NOT_SHOWN if unproven else answers_in_words(one.answers),
        "why": one.why_not_newer,
    }


def answers_in_words(answers: Answering) -> str:
    """How a version orders and searches; "" of one that does both by its serving form."""
    order = answers.order
    if order is None:
        return ""
    lists = f"orders given lists by {order.description}"
    if answers.reach:
        return f"searches by what was learned; {lists}"
    if order.top == 1:
        return f"{lists}; your own ranking searches, as it is: not shown to search better"
    return f"re-ranks your own top {order.top}: shown to order lists better; not shown to search better"


def _kept(row: VersionRow) -> dict[str, Any]:
    plain = asdict(row)
    return {"version": plain.pop("number"), **plain}
