"""The counters of a version that others than the learner read, by name."""

from __future__ import annotations

from collections.abc import Mapping

from checkpoints.manifest import Manifest

RECORDS = "records"
"""Records passed since version 0, poison included: the position that the step log and every curve share."""
LOSS_SUM = "loss_sum"
"""Hinge losses of the applied events, added up."""
APPLIED = ("updated", "passive", "degenerate")
"""Outcomes of the events that the step could take."""
REJECTED = "rejected"
"""Events that the step refused: a dead letter each, as those counted by POISON."""
POISON = "poison"
"""Records that could not be decoded."""
DUPLICATE = "duplicate"
"""Events that were known already and changed nothing."""

CAPPED = "capped"
"""Events that a cap refused: a dead letter each."""
EVICTED = "evicted"
"""Keys whose model was given up for another key's."""
LIMITED = "limited"
"""Events that caps let in with less than their weight."""


def counted(counters: Mapping[str, int | float], *names: str) -> int:
    """The sum of these counters; one that is not there counts 0."""
    return int(sum(counters.get(name, 0) for name in names))


def records_of(manifest: Manifest) -> int:
    """Records passed up to a version."""
    return counted(manifest.counters, RECORDS)
