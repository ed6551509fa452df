"""One model per key: each key is judged on its own lists, and the version by what it would answer."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from checkpoints.entries import aliases
from daemon.exits import UserError
from daemon.validate.decide import CLICKS
from daemon.validate.evaluator import NO_MODEL, weighted
from daemon.validate.judge import Judge
from daemon.validate.role import ValidateOptions, run
from daemon.validate.scorer import MappedObjects, Scorer
from daemon.versions.forms import make_form
from daemon.versions.key_verdicts import COSINE, LEARNED, verdicts_from_json
from daemon.versions.restore import learner_of
from learners.block import TripletBatch
from learners.keyed import Keyed, KeyedConfig
from learners.oasis import Oasis, OasisConfig
from streams.codec import encode_impression
from streams.open import open_source
from streams.poison import parse_dead_letter
from tests.daemon.oasis_versions import OASIS
from tests.daemon.validate.conftest import DIM, PER_CLASS

ONCE = ValidateOptions(exit_when_caught_up=True)
SLOTS = {"slots": 4, "when_full": "refuse", "evict_after": 100_000}
KEYED = {**OASIS, "config": {**OASIS["config"], "keys": SLOTS}}
SETTINGS = {"validate__judgments": "", "validate__min_impressions": 100, "keys__slots": 4}


def one(arrays):
    return Oasis.from_state(arrays, OasisConfig(C=0.1), copy=False)


@pytest.fixture
def tenants(world):
    """Version 0, and one where "anna" learned the classes and "bert" learned noise."""
    config = KeyedConfig(lambda dim: Oasis(dim, OasisConfig(C=0.1)), one, SLOTS["slots"])
    world.learner = Keyed(DIM, config)
    world.publish(learner=KEYED)
    rows = world.random.integers(0, len(world.ids), 3000)
    same = (world.labels[rows] * PER_CLASS) + world.random.integers(0, PER_CLASS, 3000)
    other = world.random.integers(0, len(world.ids), 3000)
    for key, clicked in (("anna", same), ("bert", np.roll(other, 1))):
        parts = (world.mapped.take(part) for part in (rows, clicked, other))
        world.learner.learn_many(TripletBatch(*parts, keys=np.full(3000, key.encode(), "S64")))
    world.publish(learner=KEYED, events=6000)
    return world


def lists(world, key, count):
    return [replace(world.impression(), key=key) for _ in range(count)]


def fed(world, **counts):
    made = {key: lists(world, key, count) for key, count in counts.items()}
    world.send([encode_impression(one) for key in made for one in made[key]])
    return made


def test_each_key_is_judged_on_its_own_lists_by_its_own_model(tenants):
    made = fed(tenants, anna=150, bert=120, cora=110, dora=99)
    assert run(tenants.config(**SETTINGS), ONCE) == 0
    keep = tenants.ledger.entries()[-2].measures
    verdicts = verdicts_from_json(keep)
    assert {key: (one.verdict, one.impressions) for key, one in verdicts.items()} == {
        "anna": (LEARNED, 150),
        "bert": (COSINE, 120),
        "cora": (COSINE, 110),
    }
    assert verdicts["cora"].why == NO_MODEL
    objects = MappedObjects(tenants.space, tenants.catalog, tenants.fitted)
    judge, learner = Judge(objects, None, 1000), learner_of(tenants.versions.load(1))
    decisions, zeros = {}, {}
    for key in ("anna", "bert"):
        panel, serving = judge.panel(made[key]), tenants.config().serving
        own = Scorer(make_form(learner.learner_of(key).W, 1, serving), objects)
        zero = Scorer(make_form(np.eye(DIM, dtype=np.float32), 0, serving), objects)
        decisions[key] = judge.look(own, panel).measures["position_balanced"]
        zeros[key] = judge.look(zero, panel).measures["position_balanced"]
        assert verdicts[key].decision == pytest.approx(decisions[key], abs=1e-6)
        assert verdicts[key].version_0 == pytest.approx(zeros[key], abs=1e-6)
    answered = [(decisions["anna"], 150), (zeros["bert"], 120), (verdicts["cora"].version_0, 110)]
    expected = np.average([value for value, _ in answered], weights=[count for _, count in answered])
    assert keep["decision"] == pytest.approx(expected, abs=1e-6)


def test_a_version_is_best_when_one_key_is_better_off(tenants):
    fed(tenants, anna=150, bert=120)
    run(tenants.config(**SETTINGS), ONCE)
    assert aliases(tenants.ledger.entries()) == {"best": 1}
    before = tenants.ledger.entries()
    run(tenants.config(**SETTINGS), ONCE)
    assert tenants.ledger.entries() == before


def test_where_no_key_gains_version_0_stays(tenants):
    fed(tenants, bert=150)
    run(tenants.config(**SETTINGS), ONCE)
    assert aliases(tenants.ledger.entries()) == {"best": 0}
    assert tenants.ledger.entries()[-1].reason.endswith("0 of 1 keys judged learned")


def test_keys_with_few_lists_are_waited_for(tenants):
    fed(tenants, anna=60, bert=60)
    assert run(tenants.config(**SETTINGS), ONCE) == 0
    assert tenants.ledger.entries() == []


def test_a_list_without_a_key_is_a_dead_letter(tenants):
    fed(tenants, anna=3)
    tenants.feed(2)
    run(tenants.config(**SETTINGS), ONCE)
    dead = open_source(tenants.address.dead)
    dead.assign({0: 0})
    batch = dead.poll(100, 0.0)
    letters = [parse_dead_letter(v, h) for v, h in zip(batch.values, batch.headers, strict=True)]
    assert [letter.reason for letter in letters] == ["key_missing", "key_missing"]


def test_judgments_are_no_judge_of_many_tastes(tenants):
    with pytest.raises(UserError, match="similar to everybody"):
        run(
            tenants.config(**{**SETTINGS, "validate__judgments": f"labels:{tenants.path / 'labels.tsv'}"}),
            ONCE,
        )


def test_fewer_lists_need_a_larger_gain():
    margins = [CLICKS.margin_on(count) for count in (100, 200, 500, 5000)]
    assert margins == pytest.approx([0.0669, 0.0398, 0.02, 0.02], abs=1e-4)


def test_the_whole_is_the_mean_by_lists_of_what_all_have():
    assert weighted([({"a": 1.0, "b": 5.0}, 10), ({"a": 0.5}, 30)]) == {"a": 0.625}
    assert weighted([]) == {}
