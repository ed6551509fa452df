"""The maps of a new store."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from daemon.exits import UserError
from tests.daemon.learn.conftest import Site, make_events


def test_maps_are_fitted_on_the_first_objects_and_frozen(new_site: Callable[..., Site]) -> None:
    fitted = []
    for poll_records in (1, 500):
        site = new_site()
        site.feed(make_events(60))
        changes = {
            "space__views__x__map": "whiten",
            "space__views__x__components": 4,
            "space__warmup_objects": 30,
        }
        site.learn(**changes, stream__poll_records=poll_records)
        site.feed(make_events(60, seed=3))
        site.learn(**changes, stream__poll_records=poll_records)
        ids = {site.versions.manifest(n).map["id"] for n in site.versions.versions()}
        assert len(ids) == 1
        fitted.append((ids.pop(), site.newest().state_hash))
    assert fitted[0] == fitted[1]


def test_nothing_to_fit_the_maps_on_is_said(site: Site) -> None:
    site.feed([])
    with pytest.raises(UserError, match="no usable object"):
        site.learn(space__views__x__map="standardise")
    assert site.versions.versions() == []
