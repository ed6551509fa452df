"""Where a run begins: branches, seeks and the start of an empty store."""

from __future__ import annotations

import pytest

from daemon.exits import EX_OK, EX_USAGE, UserError
from daemon.learn.replay.replay import replay
from daemon.learn.resume.origin import LearnOptions
from streams.open import open_source
from tests.daemon.learn.conftest import Site, make_events


def test_branches_and_seeks_are_recorded_and_replay(site: Site) -> None:
    site.feed(make_events(30))
    site.learn(checkpoints__every_events=10)
    versions = site.versions.versions()
    middle = next(n for n in versions if 0 < site.versions.manifest(n).counters.get("records", 0) < 30)
    options = LearnOptions(exit_when_caught_up=True, restart_from=middle, start='offset={"0": 5}', jump=True)
    assert site.learn(options) == EX_OK
    branch = site.newest()
    assert branch.parent == middle
    assert branch.schedule[0] == {"control": "branch", "from_version": middle, "start": options.start}
    assert branch.schedule[1]["control"] == "seek"
    assert branch.schedule[2] == (0, 5, 30)
    source = open_source(site.address)
    assert replay(site.versions, source, None, 0, branch.number).equal
    with pytest.raises(UserError, match="does not descend"):
        replay(site.versions, source, None, versions[-1], branch.number)
    source.close()


@pytest.mark.parametrize(
    ("start", "told"),
    [("earliest", "partition 0: repeat 10 records"), ("latest", "partition 0: skip 3 records")],
)
def test_another_start_than_the_versions_position_is_refused_unless_asked_for(
    site: Site, start: str, told: str
) -> None:
    site.feed(make_events(10))
    site.learn()
    site.feed(make_events(3, seed=1))
    before = site.versions.store.list()
    with pytest.raises(UserError, match=told) as refused:
        site.learn(LearnOptions(exit_when_caught_up=True, start=start))
    assert refused.value.code == EX_USAGE
    assert "--jump" in refused.value.remedy
    assert site.versions.store.list() == before
    assert site.learn(LearnOptions(exit_when_caught_up=True, start=start, jump=True)) == EX_OK
    assert site.newest().schedule[0]["control"] == "seek"


def test_a_start_that_is_the_versions_position_is_no_jump(site: Site) -> None:
    site.feed(make_events(10))
    site.learn()
    assert site.learn(LearnOptions(exit_when_caught_up=True, start="latest")) == EX_OK


def test_start_positions_of_an_empty_store(site: Site) -> None:
    site.feed(make_events(10))
    site.learn(LearnOptions(exit_when_caught_up=True, start='offset={"0": 6}'))
    assert site.newest().counters["records"] == 4
    with pytest.raises(UserError) as refused:
        site.learn(LearnOptions(start="yesterday"))
    assert refused.value.code == EX_USAGE
