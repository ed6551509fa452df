"""Which move a wish amounts to: decisions that no folder is needed for."""

from __future__ import annotations

import pytest

from checkpoints import LedgerEntry
from daemon.models.decide import MoveRefused, MoveRequest, StoreSnapshot, decide


def test_a_step_back_to_what_is_pruned_is_refused_by_name() -> None:
    entries = [LedgerEntry(n=n, kind="PROMOTE", alias="stable", version=n) for n in (1, 2)]
    assert decide(MoveRequest("rollback", "stable"), StoreSnapshot([0, 1, 2], entries, (), 2)).after == 1
    with pytest.raises(MoveRefused) as caught:
        decide(MoveRequest("rollback", "stable"), StoreSnapshot([0, 2], entries, (), 2))
    assert (caught.value.reason, caught.value.field) == ("no_such_version", "to")
