"""A learner that was succeeded."""

from __future__ import annotations

import pytest

from checkpoints import VersionStore
from checkpoints.local import LocalStore
from daemon.exits import EX_CANTCREAT, UserError
from daemon.learn.publishing import Fence
from tests.daemon.learn.conftest import Site, make_events


def test_who_was_succeeded_is_told_one_remedy(site: Site) -> None:
    site.feed(make_events(5))
    site.learn()
    versions = VersionStore(LocalStore(site.folder / "checkpoints"))
    fence = Fence(versions, versions.claim())
    fence.check()
    site.versions.claim()
    with pytest.raises(UserError, match="has taken this number") as told:
        fence.check()
    assert told.value.code == EX_CANTCREAT
    assert "let one learner write" not in told.value.message
    assert "one learner per checkpoint folder" in told.value.remedy
