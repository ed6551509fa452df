"""With the learner's configuration in place of the folder, `latest` is followed by the learner's steps."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from daemon.client import follow
from daemon.exits import EX_OK
from daemon.versions.serving_form import make_form
from tests.daemon.learn.conftest import DIM, Site, make_events


def until(true: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 60
    while not true():
        assert time.monotonic() < deadline, "it does not come"
        time.sleep(0.05)


@pytest.mark.parametrize("alias", ["latest", "stable"])
def test_steps_bring_latest_where_the_learner_is(tmp_path: Path, alias: str) -> None:
    site = Site(tmp_path, f"log:{tmp_path}/clicks.log")
    how = {"steps__every": "10ms"}
    site.feed(make_events(60))
    assert site.learn(**how) == EX_OK
    config = tmp_path / "tripletd.toml"
    config.write_text(
        f'[stream]\naddress = "{site.settings["stream.address"]}"\n'
        f'[space.views.x]\ndim = {DIM}\nmap = "identity"\n'
        f'[checkpoints]\npath = "{tmp_path}/checkpoints"\n'
    )
    x = np.random.default_rng(0).standard_normal((20, DIM)).astype(np.float32)
    with follow(config, alias) as model:
        items = model.items(x)
        site.feed(make_events(60, seed=1))
        assert site.learn(**how) == EX_OK
        newest = site.newest()
        if alias == "stable":
            assert str(model.model) == "0"
            return
        until(lambda: str(model.model) == str(newest.number) and not model.status().why_not_newer)
        swaps = model.status().swaps
        assert (swaps["version"], swaps["relabel"] >= 1, swaps["steps"] >= 1) == (1, True, True)
        W = site.versions.load(newest.number).arrays["W"]
        expected = make_form(W, newest.number, site.config().serving).scores(items.mapped, items.mapped)
        until(lambda: bool(np.allclose(model.scores(x, items), expected, atol=1e-4)))  # once made anew
