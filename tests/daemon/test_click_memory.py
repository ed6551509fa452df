"""A memory of clicks as an arm, from the log to what is served: where each query has clicks of its own, which
no matrix can say, it leads the race and orders lists.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from checkpoints.entries import aliases
from checkpoints.versions import VersionStore
from daemon.exits import UserError
from daemon.learn import start as learning
from daemon.learn.resume.origin import LearnOptions
from daemon.models.vectors import ExportSource
from daemon.serve.live import FreshnessWatcher, Live
from daemon.serve.query import Query, QueryError
from daemon.validate.role import ValidateOptions, run
from daemon.versions.algorithms import map_of
from daemon.versions.order import OrderChoice, answering, order_form
from learners.block import Block, DenseBlock
from learners.forms.click_memory import NEAREST, ClickMemoryForm
from learners.forms.quadratic import ServedForm
from streams.codec import encode_event, encode_impression
from streams.event import PAIR_ABOVE, PAIR_BELOW, Event, Impression
from streams.open import open_sink
from streams.source import OutRecord
from tests.daemon.validate.conftest import World
from tests.harness.waiting import until

LISTS, ASKED, TAKEN, HELD_OUT, SHOWN = 900, 40, 6, 3, 8
ARMS: list[dict[str, Any]] = [{"name": "all"}, {"name": "seen", "kind": "memory", "queries": 500}]


class Shop:
    """A log in which `ASKED` queries come again, each with `TAKEN` objects of its own that its users click,
    drawn by chance, or with those of its class; learned and judged to its end."""

    def __init__(
        self, folder: Path, arms: Sequence[dict[str, Any]] = ARMS, *, by_class: bool = False
    ) -> None:
        self.world, rng = World(folder), np.random.default_rng(3)
        self.taken = {n: rng.choice(len(self.world.ids), TAKEN, replace=False) for n in range(ASKED)}
        if by_class:
            labels = self.world.labels
            self.taken = {n: np.flatnonzero(labels == label) for n, label in enumerate(labels)}
        events: list[Event] = []
        lists: list[Impression] = []
        for number in range(LISTS):
            query = int(rng.integers(len(self.taken)))
            shown = np.r_[rng.choice(self.taken[query], 2), rng.choice(len(self.world.ids), SHOWN - 2)]
            shown = rng.permutation(np.unique(shown[shown != query]))
            clicked = np.flatnonzero(np.isin(shown, self.taken[query]))
            if not 0 < len(clicked) < len(shown):
                continue
            refs = tuple(self.world.ref(row) for row in shown)
            trained, ts = number % HELD_OUT != 0, 1000 * (number + 1)
            one = Impression(f"i{number}", ts, self.world.ref(query), refs, tuple(clicked.tolist()))
            lists.append(replace(one, trained=trained))
            for click in clicked if trained else ():
                for other in np.setdiff1d(np.arange(len(shown)), clicked):
                    pair = PAIR_ABOVE if other < click else PAIR_BELOW
                    ids = f"e{len(events)}", ts, one.query, refs[click], refs[other]
                    events.append(Event(*ids, pair=pair))
        self.world.send([encode_impression(one) for one in lists])
        with closing(open_sink(self.world.address)) as sink:
            sink.send([OutRecord(encode_event(one), partition=0) for one in events])
        self.config = self.world.config(
            checkpoints__every="0s",
            checkpoints__every_events=800,
            checkpoints__keep=1000,
            feed__holdout_share=1 / HELD_OUT,
            http__learn_port=0,
            learner__race__arms=arms,
            learner__C=1e-4,  # nothing to search by
            validate__judgments="",
            serve__aliases=["stable"],
        )
        assert learning.run(self.config, LearnOptions(exit_when_caught_up=True)) == 0
        assert run(self.config, ValidateOptions(exit_when_caught_up=True)) == 0
        self.entries = self.world.ledger.entries()
        self.best = aliases(self.entries).get("best", 0)

    @property
    def versions(self) -> VersionStore:
        return self.world.versions

    def form(self, choice: OrderChoice) -> tuple[ServedForm, Block]:
        """By which the best version orders, and all objects in its space."""
        version = self.versions.load(self.best)
        fitted = map_of(version)
        assert fitted.own is not None
        rows = fitted.transform({"x": DenseBlock(self.world.values)})
        return order_form(version, fitted.own, choice), rows


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory) -> Shop:
    return Shop(tmp_path_factory.mktemp("shop"))


def served(shop: Shop) -> Live:
    watcher = FreshnessWatcher(("stable",), lambda *told: None, 60.0)
    live = Live(shop.config, shop.versions, shop.world.ledger, watcher, lambda guarded: None)
    live.open_when_there()
    until(lambda: live.not_ready() is None and len(live.snapshot() or ()) == len(shop.world.ids))
    until(lambda: all(one.answers.order is not None for one in live.statuses()))
    return live


def test_it_leads_where_queries_come_again_and_no_matrix_says_what_is_clicked(shop: Shop) -> None:
    how = answering(shop.entries, shop.best)
    assert shop.best > 0
    assert how.order is not None
    assert (how.order.arm, how.reach) == ("seen", False)
    assert shop.versions.manifest(shop.best).learner["config"]["arms"] == [
        {"name": "all", "pairs": "all", "random": True, "C": 0.05, "geometry": "own"},
        {"name": "seen", "pairs": "all", "random": True, "kind": "memory", "queries": 500},
    ]
    last = [one for one in shop.entries if one.kind == "KEEP"][-1]
    assert last.measures["clicked_higher"] > 0.65


def test_serve_orders_lists_by_it(shop: Shop) -> None:
    """And leaves searches as they are: lists are drawn from the catalog, and say nothing of the first objects
    of the user's own ranking."""
    how = answering(shop.entries, shop.best)
    assert how.order is not None
    assert how.order.top == 1
    form, z = shop.form(how.order)
    assert isinstance(form, ClickMemoryForm)
    row, ids = 3, shop.world.ids
    scores = form.scores(z.slice(row, row + 1), z)[0]
    with closing(served(shop)) as live:
        list_of_all = [Query(id=one) for one in ids]
        given = live.scores("stable", Query(id=ids[row]), list_of_all)
        assert given.ordered_by == "order"
        np.testing.assert_allclose(given.results, scores, atol=1e-5)
        (found,) = live.search("stable", [Query(id=ids[row], k=5)], lambda: None).each
        assert found.ordered_by == "form"
        assert not isinstance(found.result, QueryError)
        units = shop.world.values / np.linalg.norm(shop.world.values, axis=1, keepdims=True)
        nearest = [at for at in np.argsort(-(units @ units[row]), kind="stable") if at != row]
        assert [hit.id for hit in found.result] == [ids[at] for at in nearest[:5]]


def test_what_it_says_of_a_query_is_what_its_nearest_took(shop: Shop) -> None:
    form, z = shop.form(OrderChoice("seen", 0.0, 5))
    counts = form.scores(z, z)
    units = shop.world.values / np.linalg.norm(shop.world.values, axis=1, keepdims=True)
    for row in range(ASKED):
        near = [
            at for at in np.argsort(-(units[:ASKED] @ units[row]))[:NEAREST] if units[at] @ units[row] > 0
        ]
        wanted = sum(np.isin(np.arange(len(z)), shop.taken[at]).astype(int) for at in near)
        assert (counts[row] <= wanted).all()
        assert counts[row].sum() > 0.9 * wanted.sum()  # some were never shown


def test_it_is_no_matrix_to_export(shop: Shop) -> None:
    with pytest.raises(UserError, match=r"by arm seen.*a memory of clicks: no matrix does") as refused:
        ExportSource.ordering(shop.versions, shop.best, answering(shop.entries, shop.best))
    assert "ask /v1/rerank" in refused.value.remedy
