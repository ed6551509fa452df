"""What a learner has written into its checkpoint folder."""

from __future__ import annotations

from pathlib import Path

from checkpoints import Ledger, VersionStore
from checkpoints.local import LocalStore
from checkpoints.manifest import Manifest


class Kept:
    """Versions and ledger below `folder`."""

    folder: Path

    @property
    def versions(self) -> VersionStore:
        return VersionStore(LocalStore(self.folder / "checkpoints"))

    @property
    def ledger(self) -> Ledger:
        return Ledger(LocalStore(self.folder / "checkpoints"))

    def newest(self) -> Manifest:
        return self.versions.manifest(self.versions.versions()[-1])
