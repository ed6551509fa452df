"""Everything that can be read of a checkpoint folder, and what cannot: one damaged file hides no other."""

from __future__ import annotations

from dataclasses import dataclass

from checkpoints import CheckpointError, Ledger, LedgerEntry, Manifest, VersionStore
from checkpoints.errors import Damaged


@dataclass(frozen=True, slots=True)
class Readable:
    """Manifests and ledger entries, ascending; `damaged`: version -> why its manifest cannot be read;
    `notes`: everything that was passed over, one line each.
    """

    manifests: list[Manifest]
    entries: list[LedgerEntry]
    damaged: dict[int, str]
    notes: list[str]

    @property
    def newest(self) -> int | None:
        """The newest version, readable or not; None without any."""
        return max([*self.damaged, *(one.number for one in self.manifests)], default=None)


def read_all(versions: VersionStore, ledger: Ledger, known: dict[int, Manifest] | None = None) -> Readable:
    """Read every manifest and entry. Raises Damaged only when nothing can be listed.

    known: manifests by number that are not read again, since they never change; brought up to date.
    """
    entries, notes = read_entries(ledger)
    known = {} if known is None else known
    damaged, candidates = {}, versions.listing.candidates()
    for gone in known.keys() - set(candidates):
        del known[gone]
    for number in candidates:
        if number in known:
            continue
        try:
            known[number] = versions.manifest(number)
        except Damaged as error:
            if number in versions.listing.candidates():  # else pruned meanwhile
                damaged[number] = str(error)
    manifests = [known[number] for number in candidates if number in known]
    kept = [one for one in manifests if one.kind == "version"]
    return Readable(kept, entries, damaged, [*damaged.values(), *notes])


def read_entries(ledger: Ledger) -> tuple[list[LedgerEntry], list[str]]:
    """The readable entries, and one line for each that is not."""
    notes: list[str] = []

    def passed_over(error: CheckpointError) -> None:
        notes.append(str(error))

    return ledger.entries(report=passed_over), notes
