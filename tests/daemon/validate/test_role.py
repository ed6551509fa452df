"""The role end to end, in process: a real store, the embedded log, a catalog."""

from __future__ import annotations

import numpy as np
import pytest

from checkpoints.entries import aliases
from daemon.exits import UserError
from daemon.validate.role import ValidateOptions, run

ONCE = ValidateOptions(exit_when_caught_up=True)
SOON = {"validate__judgments": "", "validate__patience_events": 1, "validate__min_versions": 1}


def told(world):
    return [(entry.kind, entry.version) for entry in world.ledger.entries()]


def test_the_newest_version_is_judged_against_version_0_and_promoted(world):
    world.feed(60)
    world.publish()
    world.learn(3000)
    world.publish(events=3000)
    world.learn(3000)
    world.publish(events=6000)
    assert run(world.config(), ONCE) == 0
    # Version 1 was passed over: the judge was free only when 2 was there.
    assert told(world) == [("KEEP", 0), ("PROMOTE", 0), ("KEEP", 2), ("PROMOTE", 2)]
    zero, keep = world.ledger.entries()[0].measures, world.ledger.entries()[2].measures
    assert aliases(world.ledger.entries()) == {"best": 2}
    assert keep["map_full"] > 1.2 * keep["version_0"]["map_full"]
    assert keep["decision"] == keep["map_full"]
    assert keep["version_0"]["map_full"] == zero["map_full"]
    assert keep["events"] == 6000
    assert keep["holdout_positions"] == {"0": 60}
    names = {"p10_full", "macro_map_full", "macro_p10_full", "map_shown", "map_clicks", "clicked_vs_random"}
    assert names | {"shown_order_map", "loss", "state_hash", "impressions"} <= set(keep)
    form, meta = world.versions.attached(2, "serving")
    assert form["matrix"].shape == (12, 12)
    assert meta["settings"]["psd"] == "auto"


def test_a_second_run_adds_nothing(world):
    world.feed(30)
    world.publish()
    run(world.config(), ONCE)
    before = world.ledger.entries()
    run(world.config(), ONCE)
    assert world.ledger.entries() == before


def test_without_judgments_clicks_decide_under_their_guards(world):
    world.feed(700)
    world.publish()
    world.learn(3000)
    world.publish()
    run(world.config(validate__judgments=""), ONCE)
    keep = [entry for entry in world.ledger.entries() if entry.kind == "KEEP"][-1].measures
    assert keep["decision_measure"] == "position_balanced"
    assert keep["decision"] == keep["position_balanced"]
    assert keep["version_0"]["decision"] == keep["version_0"]["position_balanced"]
    assert keep["order"] is None, "there are no arms"
    assert keep["evidence"]["reach"]
    assert keep["impressions"] >= 500
    assert keep["guarded"]
    assert keep["eligible"]
    assert "map_full" not in keep
    assert aliases(world.ledger.entries()) == {"best": 1}


def test_few_lists_leave_version_0_best_and_say_what_is_missing(world):
    """A version far better, asked for a proof that so few lists cannot give; each gets a little nearer."""
    world.publish()
    world.learn(3000)
    for events in (3_000, 6_000):
        world.feed(60)
        world.publish(events=events)
        run(world.config(**SOON, validate__alpha=1e-9), ONCE)
    assert [kind for kind, _ in told(world)] == ["KEEP", "PROMOTE", "KEEP", "KEEP"]  # no STOP either
    assert aliases(world.ledger.entries()) == {"best": 0}
    first, second = (entry.measures["evidence"] for entry in world.ledger.entries()[-2:])
    assert second["standing"]["lists"] > first["standing"]["lists"]
    assert 0 < second["lists_missing"] < first["lists_missing"]
    assert "Not known yet: about" in world.ledger.entries()[-1].reason


@pytest.mark.parametrize("catalog", [True, False])
def test_a_number_of_impressions_of_ones_own_is_obeyed(world, catalog):
    """Fewer lists than that are not judged; on more the evidence decides, however few they are."""
    known = {} if catalog else {"catalog_digest": None}
    world.feed(80, inline=not catalog)
    world.publish(**known)
    world.learn(3000)
    world.publish(**known)
    place = {} if catalog else {"catalog__path": ""}
    run(world.config(**SOON, **place, validate__min_impressions=90), ONCE)
    assert told(world) == []
    run(world.config(**SOON, **place, validate__min_impressions=60), ONCE)
    keep = [entry for entry in world.ledger.entries() if entry.kind == "KEEP"][-1]
    assert 60 <= keep.measures["impressions"] < 90
    assert keep.measures["evidence"]["found"] == "superior"
    assert aliases(world.ledger.entries()) == {"best": 1}


def test_without_a_catalog_only_the_shown_lists_are_judged(world):
    world.feed(700, inline=True)
    world.publish(catalog_digest=None)
    world.learn(3000)
    world.publish(catalog_digest=None)
    run(world.config(validate__judgments="", catalog__path=""), ONCE)
    keep = [entry for entry in world.ledger.entries() if entry.kind == "KEEP"][-1].measures
    assert "map_clicks" not in keep
    assert keep["decision_measure"] == "position_balanced"
    assert keep["clicked_vs_random"] > 0.5
    assert aliases(world.ledger.entries()) == {"best": 1}


def test_a_worse_version_is_never_best(world):
    world.feed(60)
    world.publish()
    world.publish(W=np.random.default_rng(1).standard_normal((12, 12)))
    run(world.config(), ONCE)
    assert aliases(world.ledger.entries()) == {"best": 0}


@pytest.mark.parametrize("kind", ["nan", "damaged", "shape"])
def test_a_version_that_cannot_be_ranked_is_refused_and_the_next_is_judged(world, kind):
    # A raw form has no norms to compute, so that nothing else notices the wrong shape before it is judged.
    config = world.config(serving__score="raw" if kind == "shape" else "normalised")
    world.feed(40)
    world.publish()
    W = np.full((12, 12), np.nan) if kind == "nan" else np.eye(11 if kind == "shape" else 12)
    world.publish(W=W)
    if kind == "damaged":
        state = next((world.path / "checkpoints").rglob("0000000001/state*"))
        data = bytearray(state.read_bytes())
        data[-5] ^= 1
        state.chmod(0o600)
        state.write_bytes(bytes(data))
    run(config, ONCE)
    refused = world.ledger.entries()[-1]
    assert (refused.kind, refused.version, refused.measures["refused"]) == ("KEEP", 1, True)
    assert refused.reason.startswith("refused: ")
    world.learn(3000)
    world.publish()
    run(config, ONCE)
    assert aliases(world.ledger.entries()) == {"best": 2}


def test_patience_stops_and_names_the_best(world):
    world.feed(60)
    world.publish()
    config = world.config(validate__patience_events=200, validate__min_versions=2)
    world.learn(3000)
    for events in (100, 200, 300):
        world.publish(events=events)
        run(config, ONCE)
    assert told(world)[-2:] == [("KEEP", 3), ("STOP", 1)]
    assert world.ledger.entries()[-1].reason == "no gain of .002 in 200 events and 2 judged versions"
    world.publish()
    run(config, ONCE)
    assert told(world)[-1] == ("STOP", 1)


def test_too_few_impressions_give_no_verdict(world):
    world.feed(3)
    world.publish()
    assert run(world.config(), ONCE) == 0
    assert told(world) == []
    assert (world.path / "checkpoints/in-hand/validate.note").exists()


def test_a_version_behind_the_training_topic_is_not_the_end(world, monkeypatch):
    from daemon.runtime.runtime import Signals
    from streams.open import open_sink
    from streams.source import OutRecord

    sink = open_sink(world.address)
    sink.send([OutRecord(b"one"), OutRecord(b"two")])
    sink.close()
    world.feed(20)
    world.publish()
    waits = []

    def wait(self, seconds):
        waits.append(seconds)
        if len(waits) == 3:
            world.publish(position=2)
        return False

    monkeypatch.setattr(Signals, "wait", wait)
    assert run(world.config(), ONCE) == 0
    assert [version for kind, version in told(world) if kind == "KEEP"] == [0, 1]
    assert len(waits) == 3


def test_other_catalog_is_refused_by_name(world):
    world.feed(20)
    world.publish(catalog_digest="0" * 64)
    with pytest.raises(UserError, match="catalog"):
        run(world.config(), ONCE)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"catalog__path": ""}, "needs a catalog"),
        ({"validate__judgments": "labels:/nowhere/labels.tsv"}, "check the path"),
    ],
)
def test_judgments_that_cannot_be_used_are_configuration_errors(world, settings, message):
    with pytest.raises(UserError, match=message) as error:
        run(world.config(**settings), ONCE)
    assert error.value.code == 78
