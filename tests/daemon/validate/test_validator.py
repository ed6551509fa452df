"""Verdicts over time: reproducible, complete after a crash, STOP, drift and RESUME."""

from __future__ import annotations

import shutil

import numpy as np
import pytest

from checkpoints.entries import aliases
from daemon.config.learners import SomlTgKeys
from daemon.validate.decide import FULL_CATALOG
from daemon.validate.holdout import Holdout
from daemon.validate.ledger import fold
from daemon.validate.scorer import Scorer
from daemon.versions.restore import serving_form
from learners.soml import SomlTg, SomlTgConfig
from streams.open import open_sink, open_source
from streams.partitions import OpenTransactions
from streams.source import HeldBack
from tests.daemon.validate.conftest import DIM
from tests.daemon.validate.helpers import kinds, never, turn


def test_a_verdict_can_be_recomputed_from_version_hash_and_holdout_positions(world, start):
    world.feed(40)
    world.publish()
    world.learn(2000)
    world.publish()
    validator, inputs = start(validate__window=30)
    turn(validator)
    world.feed(13)
    assert turn(validator) == 1
    keep = next(e.measures for e in world.ledger.entries() if e.kind == "KEEP" and e.version == 1)
    world.feed(50)
    upto = {int(partition): offset for partition, offset in keep["holdout_positions"].items()}
    source, dead = open_source(world.address.holdout), open_sink(world.address.dead)
    holdout = Holdout(source, dead, space=world.space, catalog=world.catalog, size=30, upto=upto)
    while not holdout.caught_up():
        holdout.poll(0.0, never)
    version = world.versions.load(1)
    assert version.manifest.state_hash == keep["state_hash"]
    objects = inputs.candidates.objects
    judge = inputs.judge()
    scorer = Scorer(serving_form(world.versions, version, world.config().serving), objects)
    again = judge.look(scorer, judge.panel([held.impression for held in holdout.window])).measures
    assert again == {name: keep[name] for name in again}


def test_version_0_and_the_judged_queries_do_not_move_with_the_window(world, start):
    world.feed(10)
    world.publish()
    validator, _ = start()
    turn(validator)
    for _ in range(2):
        world.learn(500)
        world.publish()
        world.feed(30)
        turn(validator)
    keeps = [entry.measures for entry in world.ledger.entries() if entry.kind == "KEEP"]
    zeros = [keep["version_0"] for keep in keeps]
    assert len(keeps) == 3
    assert zeros[0]["map_full"] == zeros[1]["map_full"] == zeros[2]["map_full"]
    assert len({keep["queries_full"] for keep in keeps}) == 1
    assert zeros[0]["map_shown"] != zeros[1]["map_shown"] != zeros[2]["map_shown"]
    assert [keep["impressions"] for keep in keeps] == sorted({keep["impressions"] for keep in keeps})


def test_version_0_is_ranked_once(world, start):
    """A verdict pays for one version: version 0 is judged anew by a new window only, by labels never."""
    world.feed(40)
    world.publish()
    validator, inputs = start()
    turn(validator)
    zero, asked = inputs.candidates.open(0).scorer, []
    catalog = zero.catalog
    zero.catalog = lambda folded: asked.append(len(folded)) or catalog(folded)
    world.learn(500)
    world.publish()
    assert turn(validator) == 1
    assert asked == []
    world.feed(5)
    world.publish()
    assert turn(validator) == 2
    assert len(asked) == 1  # the clicks of the new window


def test_verdicts_lost_in_a_crash_are_written_at_the_next_start(world, start):
    world.feed(40)
    world.publish()
    validator, inputs = start()
    append = inputs.ledger.append

    def crash_at_promote(entry):
        if entry["kind"] == "PROMOTE":
            raise KeyboardInterrupt
        return append(entry)

    inputs.ledger.append = crash_at_promote
    with pytest.raises(KeyboardInterrupt):
        turn(validator)
    assert kinds(world) == [("KEEP", 0)]
    validator, _ = start()
    assert turn(validator) is None
    assert kinds(world) == [("KEEP", 0), ("PROMOTE", 0)]


def test_waiting_says_for_what(world, start):
    validator, _ = start()
    assert turn(validator) is None
    assert validator.waiting_for() == "no version yet"
    world.publish()
    world.feed(2)
    assert turn(validator) is None
    assert "of 5 holdout impressions" in validator.waiting_for()
    world.feed(10)
    assert turn(validator) == 0
    assert validator.waiting_for() is None


def test_a_window_without_a_judged_query_waits_for_one(world, start):
    (world.path / "labels.tsv").write_text("stranger\tx\nother\tx\n")
    world.publish()
    world.feed(20)
    validator, _ = start()
    assert turn(validator) is None
    assert "no holdout query has judgments" in validator.waiting_for()
    assert validator.unfinished() is None
    assert kinds(world) == []


def stop(world, start, **settings):
    """A world stopped by patience on version 1, and the validator that wrote it."""
    settings = {
        "validate__patience_events": 1,
        "validate__min_versions": 1,
        "validate__window": 400,
    } | settings
    validator, inputs = start(**settings)
    world.feed(350)
    world.publish()
    turn(validator)
    world.learn(3000)
    for events in (3_000, 6_000):
        world.publish(events=events)
        turn(validator)
    assert kinds(world)[-1] == ("STOP", 1)
    return validator, inputs


@pytest.mark.parametrize("kind", ["adwin", "page_hinkley"])
def test_flipped_clicks_after_a_stop_resume_learning(world, start, kind):
    validator, inputs = stop(world, start, validate__drift=kind)
    for _ in range(5):
        world.feed(60)
        turn(validator)
    assert kinds(world)[-1] == ("STOP", 1)
    turns = 0
    while kinds(world)[-1][0] == "STOP":
        world.feed(60, flipped=True)
        turn(validator)
        turns += 1
        assert turns < 12
    assert inputs.metrics.registry.get_sample_value("tripletd_drift_total") == 1
    resume = next(entry for entry in world.ledger.entries() if entry.kind == "RESUME")
    assert "holdout loss of version 1 rose" in resume.reason
    # Version 0 and the best are judged again on what users do now, and the count of patience starts anew.
    for _ in range(4):
        turn(validator)
    after = [(e.kind, e.version) for e in world.ledger.entries() if e.n > resume.n]
    assert [entry for entry in after if entry[0] == "KEEP"] == [("KEEP", 0), ("KEEP", 1), ("KEEP", 2)]
    history = fold(world.ledger.entries(), FULL_CATALOG)
    assert history.baseline == {0, 1}


def test_drift_since_the_stop_is_seen_after_a_restart(world, start):
    stop(world, start)
    world.feed(300, flipped=True)
    validator, _ = start(validate__patience_events=1, validate__min_versions=1, validate__window=400)
    turn(validator)
    assert ("RESUME", 1) in kinds(world)


def test_drift_off_never_resumes(world, start):
    validator, _ = stop(world, start, validate__drift="off")
    for _ in range(4):
        world.feed(100, flipped=True)
        turn(validator)
    assert kinds(world)[-1] == ("STOP", 1)


def test_metrics_show_newest_best_and_zero(world, start):
    world.feed(40)
    world.publish()
    world.learn(3000)
    world.publish()
    validator, inputs = start()
    while turn(validator) is not None:
        pass
    value = inputs.metrics.registry.get_sample_value
    keep = [entry for entry in world.ledger.entries() if entry.kind == "KEEP"][-1].measures
    assert value("tripletd_holdout_decision", {"which": "best"}) == keep["map_full"]
    assert value("tripletd_holdout_decision", {"which": "zero"}) == keep["version_0"]["map_full"]
    shown = {"kind": "map_shown", "which": "shown_order"}
    assert value("tripletd_holdout_map", shown) == keep["shown_order_map"]
    assert value("tripletd_judged_version", {"which": "best"}) == 1
    assert 0.5 < keep["symmetry_index"] < 1 == keep["version_0"]["symmetry_index"]
    assert value("tripletd_symmetry_index", {"which": "newest"}) == keep["symmetry_index"]
    assert value("tripletd_symmetry_index", {"which": "zero"}) == 1
    assert value("tripletd_sparsity", {"which": "newest"}) is None
    assert aliases(world.ledger.entries()) == {"best": 1}


def test_the_share_of_zeros_of_a_diagonal_metric_is_in_its_verdict_and_metric(world, start):
    config = SomlTgConfig(lam=0.03)
    world.learner = SomlTg(DIM, config)
    keys = SomlTgKeys(algorithm="soml-tg", lam=config.lam).model_dump(exclude={"algorithm"})
    soml = {"name": "soml-tg", "config": keys | {"dedupe_window": 0}, "config_digest": "d" * 64}
    world.feed(40)
    world.publish(learner=soml)
    world.learn(300)
    world.publish(learner=soml)
    validator, inputs = start(learner__algorithm="soml-tg", learner__lam=config.lam)
    while turn(validator) is not None:
        pass
    keep = [entry for entry in world.ledger.entries() if entry.kind == "KEEP"][-1].measures
    zeros = np.count_nonzero(np.abs(world.learner.weights()) <= 1e-10)
    assert 0 < zeros < DIM
    assert keep["sparsity"] == zeros / DIM
    assert keep["version_0"]["sparsity"] == 1
    value = inputs.metrics.registry.get_sample_value
    assert value("tripletd_sparsity", {"which": "newest"}) == keep["sparsity"]


def test_an_open_transaction_is_said_and_what_was_read_is_judged_all_the_same(world, start, monkeypatch):
    world.feed(40)
    world.publish()
    validator, inputs = start()
    turn(validator)
    assert validator.not_ready() is None
    held = OpenTransactions().next({0: HeldBack(40, 45)}, 0.0)
    monkeypatch.setattr(inputs.holdout, "transactions", held)
    why = validator.not_ready()
    assert why is not None
    assert "open at offset 40 of partition 0" in why
    (told,) = validator.held_back()
    assert "open at offset 40 of partition 0 of triplets.holdout, and 5 records wait" in told
    world.learn(500)
    world.publish()
    assert validator.judge_next() == 1


def test_a_lost_folder_is_said_with_its_remedy_until_something_newer_is_there(world, start):
    world.feed(40)
    world.publish()
    world.publish()
    validator, inputs = start()
    turn(validator)
    validator.look_at_folder()
    assert validator.not_ready() is None
    root = world.store.root
    root.rename(root.with_name("away"))
    look_again(validator)
    assert "the checkpoint folder is gone: mount it again" in validator.not_ready()
    assert validator.judge_next() is None
    assert not root.exists()
    root.with_name("away").rename(root)
    look_again(validator)
    assert validator.not_ready() is None
    for version in (root / "versions").iterdir():
        shutil.rmtree(version)
    look_again(validator)
    assert "was emptied, or an older copy was put in its place" in validator.not_ready()
    world.epoch = world.versions.claim(line="f" * 16)
    world.epoch.next_number = 2
    world.publish()
    look_again(validator)
    assert validator.not_ready() is None
    metrics = {
        sample.labels["how"]: sample.value
        for family in inputs.metrics.registry.collect()
        for sample in family.samples
        if sample.name == "tripletd_folder_losses_total"
    }
    assert metrics == {"gone": 1, "lacks": 1}


def look_again(validator):
    """Later than it looks by itself."""
    validator._folder_at = validator._folder._look_at = 0.0
    validator.look_at_folder()


def test_a_folder_that_goes_while_a_version_is_judged_ends_nothing(world, start, monkeypatch):
    world.feed(40)
    world.publish()
    validator, inputs = start()
    root, judging = world.store.root, inputs.candidates.open

    def opened(number, chooser=None):
        if root.exists():
            root.rename(root.with_name("away"))
        return judging(number)

    validator.read(0.0, never, lambda: None)
    judging(0)
    monkeypatch.setattr(inputs.candidates, "open", opened)
    assert validator.judge_next() is None
    assert not root.exists(), "nobody makes another one in its place"
    monkeypatch.undo()
    root.with_name("away").rename(root)
    assert validator.judge_next() == 0
