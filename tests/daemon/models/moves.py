"""`move` with each of its verbs, as tests say it."""

from __future__ import annotations

from typing import Any

from checkpoints import Ledger, VersionStore
from daemon.models.actions import AliasMove, move


def promote(
    versions: VersionStore, ledger: Ledger, version: int | str, alias: str = "stable", **how: Any
) -> AliasMove:
    return move(versions, ledger, "promote", alias, version, **how)


def rollback(
    versions: VersionStore,
    ledger: Ledger,
    alias: str = "stable",
    to: int | str | None = None,
    **how: Any,
) -> AliasMove:
    return move(versions, ledger, "rollback", alias, to, **how)


def pin(versions: VersionStore, ledger: Ledger, alias: str, version: int | str, **how: Any) -> AliasMove:
    return move(versions, ledger, "pin", alias, version, **how)


def unpin(versions: VersionStore, ledger: Ledger, alias: str, **how: Any) -> AliasMove:
    return move(versions, ledger, "unpin", alias, **how)
