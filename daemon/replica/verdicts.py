"""The verdicts on single keys, as a replica's looks at the ledger bring them."""

from __future__ import annotations

from collections.abc import Sequence

from checkpoints.ledger import LedgerEntry
from daemon.versions.key_verdicts import KeyVerdicts


class SeenVerdicts:
    """Taken from the ledger at every look, folded anew only when it has grown. Any thread."""

    def __init__(self) -> None:
        self._seen: tuple[int, int] = (0, 0)
        self._now = KeyVerdicts()

    def take(self, entries: Sequence[LedgerEntry]) -> None:
        """The ledger as it stands, ascending."""
        seen = (len(entries), entries[-1].n if entries else 0)
        if seen != self._seen:
            self._now, self._seen = KeyVerdicts.of(entries), seen

    def now(self) -> KeyVerdicts:
        """Those in force."""
        return self._now
