"""With the learner's configuration in place of the folder, `latest` is followed by the learner's steps."""

from __future__ import annotations

import threading
from pathlib import Path

import numpy as np
import pytest

from daemon.client import follow
from daemon.client.model import PreparedItems
from daemon.exits import EX_OK
from daemon.replica.loading import records_of
from daemon.replica.view import View
from daemon.versions.forms import make_form, power_of
from learners.block import against
from learners.forms.carried import CarriedForm
from learners.forms.quadratic import inverse_roots
from tests.daemon.learn.conftest import DIM, Site, make_events
from tests.harness.waiting import until

HOW = {"steps__every": "10ms"}


def shop(folder: Path) -> tuple[Site, Path]:
    """A learner that has learned a little, and its configuration file."""
    site = Site(folder, f"log:{folder}/clicks.log")
    site.feed(make_events(60))
    assert site.learn(**HOW) == EX_OK
    config = folder / "tripletd.toml"
    config.write_text(
        f'[stream]\naddress = "{site.settings["stream.address"]}"\n'
        f'[space.views.x]\ndim = {DIM}\nmap = "identity"\n'
        f'[checkpoints]\npath = "{folder}/checkpoints"\n'
    )
    return site, config


@pytest.mark.parametrize("alias", ["latest", "stable"])
def test_steps_bring_latest_where_the_learner_is(tmp_path: Path, alias: str) -> None:
    site, config = shop(tmp_path)
    x = np.random.default_rng(0).standard_normal((20, DIM)).astype(np.float32)
    with follow(config, alias) as model:
        items = model.items(x)
        site.feed(make_events(60, seed=1))
        assert site.learn(**HOW) == EX_OK
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


def test_an_answer_behind_its_form_can_be_recomputed_from_what_it_says(tmp_path: Path) -> None:
    site, config = shop(tmp_path)
    base = site.newest()
    x = np.random.default_rng(0).standard_normal((20, DIM)).astype(np.float32)
    with follow(config, "latest") as model:
        items, may_go_on = model.items(x), threading.Event()
        until(lambda: model.status().swaps.get("refine", 0) >= 1)
        prepare = items.ready

        def held(view: View, lasting: bool) -> PreparedItems:
            may_go_on.wait(60)
            return prepare(view, lasting)

        items.ready = held  # type: ignore[method-assign]  # so long the form at the base is carried on
        site.feed(make_events(60, seed=1))
        assert site.learn(**HOW) == EX_OK
        newest = site.newest()
        until(lambda: str(model.model) == str(newest.number))
        answer = model.similar(x[0], items)
        assert (answer.formed, answer.model.total) == (records_of(base), records_of(newest))
        W = {records_of(one): site.versions.load(one.number).arrays["W"] for one in (base, newest)}
        serving = site.config().serving
        at_form = make_form(W[answer.formed], base.number, serving)
        form = CarriedForm.of(at_form, W[answer.formed].copy(), power_of(serving))
        form.state_matrix[:] = W[answer.model.total]
        query, roots = items.mapped.take([0]), inverse_roots(at_form.self_scores(items.mapped))
        scores = against(form.fold(query), items.mapped)[0] * roots * inverse_roots(form.self_scores(query))
        np.testing.assert_allclose(answer.scores, np.sort(scores)[::-1][:10], rtol=1e-4)
        may_go_on.set()
        until(lambda: model.similar(x[0], items).formed == records_of(newest))
