"""Models by key that begin from what one learner learned for all: where it is from is recorded, and kept."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from daemon.exits import EX_OK, UserError
from daemon.versions.restore import learner_of
from learners.errors import ConfigError
from learners.keyed import Keyed
from learners.loreta import Loreta
from learners.oasis import Oasis
from tests.daemon.learn.conftest import Site
from tests.daemon.learn.test_keys import clicks, drawn, equal_by_replay, keyed

KEYS = {"keys__slots": 4, "learner__algorithm": "loreta", "learner__rank": 3}


@pytest.fixture
def shared(new_site: Callable[..., Site]) -> Site:
    """A folder that one learner learned in, without keys."""
    site = new_site()
    site.feed(clicks([None] * 30, seed=1))
    assert site.learn() == EX_OK
    return site


def test_all_keys_begin_from_the_named_version(shared: Site, new_site: Callable[..., Site]) -> None:
    begun = learner_of(shared.versions.load(shared.newest().number))
    assert isinstance(begun, Oasis)
    site = new_site()
    start = f"{shared.config().checkpoints.path}:{shared.newest().number}"
    settings = {**KEYS, "keys__start": start}
    site.feed(clicks(drawn(40, "abcd")))
    assert site.learn(**settings) == EX_OK
    first = learner_of(site.versions.load(0))
    assert isinstance(first, Keyed)
    assert isinstance(first.untrained, Loreta)
    np.testing.assert_array_equal(first.untrained.start, begun.W)
    assert site.versions.manifest(0).map["id"] == shared.newest().map["id"]
    (entry,) = site.versions.manifest(0).schedule
    assert isinstance(entry, dict)
    assert entry["of"]["state_hash"] == shared.newest().state_hash
    learned = keyed(site)
    for key in "abcd":
        model = learned.learner_of(key)
        assert isinstance(model, Loreta)
        assert 1 <= model.rank <= 3
        np.testing.assert_array_equal(model.start, begun.W)
    assert equal_by_replay(site)
    site.feed(clicks(drawn(20, "abcd"), seed=2))
    assert site.learn(**settings) == EX_OK
    assert equal_by_replay(site)


def test_a_start_that_cannot_be_is_refused(shared: Site, new_site: Callable[..., Site]) -> None:
    site, number = new_site(), shared.newest().number
    site.feed(clicks(drawn(5, "ab")))
    with pytest.raises(UserError, match="names no version of a folder"):
        site.learn(**KEYS, keys__start="best")
    with pytest.raises(UserError, match="another space"):
        site.learn(**KEYS, keys__start=f"{shared.config().checkpoints.path}:{number}", space__id="other")
    with pytest.raises(ConfigError, match="models share a matrix"):
        site.learn(
            keys__slots=4,
            learner__algorithm="oasis",
            keys__start=f"{shared.config().checkpoints.path}:{number}",
        )
    assert site.learn(**KEYS) == EX_OK
    other = new_site()
    other.feed(clicks(drawn(5, "ab")))
    with pytest.raises(UserError, match="with keys"):
        other.learn(**KEYS, keys__start=f"{site.config().checkpoints.path}:0")
