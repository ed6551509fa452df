"""Records of a line that have expired: what is gone, and from where it can still be replayed."""

from __future__ import annotations

from contextlib import closing

import pytest

from daemon.exits import EX_DATAERR, UserError
from daemon.learn.replay.difference import check_kept
from daemon.learn.replay.replay import replay
from daemon.versions.storage import line
from streams.open import open_source
from tests.daemon.learn.conftest import Site, make_events


@pytest.fixture
def kept(site: Site) -> Site:
    """Three versions after version 0, of ten records each."""
    for seed in range(3):
        site.feed(make_events(10, seed))
        site.learn()
    return site


@pytest.mark.parametrize(("earliest", "place"), [(1, 1), (10, 1), (11, 2), (20, 2)])
def test_the_oldest_version_that_still_can_is_named_and_can(kept: Site, earliest: int, place: int) -> None:
    numbers = kept.versions.versions()
    bounds = {0: (earliest, 30)}
    with pytest.raises(UserError, match=rf"partition 0: offsets 0 up to {earliest}\n") as told:
        check_kept(line(kept.versions, 0, numbers[-1]), bounds, 0)
    assert told.value.code == EX_DATAERR
    assert told.value.remedy.endswith(f"--from {numbers[place]}")
    check_kept(line(kept.versions, numbers[place], numbers[-1]), bounds, numbers[place])
    with closing(open_source(kept.address)) as source:
        assert replay(kept.versions, source, None, numbers[place], numbers[-1]).equal


def test_where_none_can_that_is_told(kept: Site) -> None:
    links = line(kept.versions, 0, kept.newest().number)
    with pytest.raises(UserError, match="expired") as told:
        check_kept(links, {0: (21, 30)}, 0)
    assert "no version kept on this line" in told.value.remedy
    check_kept(links, {0: (0, 30)}, 0)
