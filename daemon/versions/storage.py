"""The configured checkpoint folder as a version store and a ledger, for commands that only read."""

from __future__ import annotations

from pathlib import Path

from checkpoints import Ledger, VersionStore
from checkpoints.local import LocalStore
from daemon.config import Config
from daemon.exits import EX_UNAVAILABLE, UserError


def open_for_reading(config: Config) -> tuple[VersionStore, Ledger]:
    """Store and ledger of [checkpoints]; UserError (69) when the folder is not there: reading makes none."""
    folder = Path(config.checkpoints.path)
    if not folder.is_dir():
        raise UserError(
            f"{folder}: no such folder, so there are no versions yet (checkpoints.path)",
            "start `tripletd learn`, or name the configuration it runs with: --config FILE",
            EX_UNAVAILABLE,
        )
    store = LocalStore(folder)
    return VersionStore(store), Ledger(store)
