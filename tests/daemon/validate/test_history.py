"""The fold of ledger entries into the history."""

from __future__ import annotations

import pytest
from structlog.testing import capture_logs

from checkpoints.entries import LedgerEntry
from daemon.validate.decide import (
    CLICKS,
    FULL_CATALOG,
    Incumbent,
    Judged,
    StopRule,
    best_version,
    outstanding,
    patience_of,
    stopped_by,
)
from daemon.validate.evidence import Standing
from daemon.validate.ledger import fold
from tests.daemon.validate.helpers import better_and_better, turn

MEASURES = {
    "map_full": 0.3,
    "p10_full": 0.5,
    "position_balanced": 0.6,
    "decision_measure": "map_full",
    "version_0": {"map_full": 0.2, "p10_full": 0.5, "position_balanced": 0.5},
}


def entries(*rows):
    return [LedgerEntry(n=n, **row) for n, row in enumerate(rows, 1)]


def keep(version, **changes):
    return {"kind": "KEEP", "version": version, "measures": MEASURES | changes}


def test_keep_refused_promote_and_stop():
    history = fold(
        entries(
            keep(1),
            {"kind": "KEEP", "version": 2, "measures": {"refused": True}},
            {"kind": "PROMOTE", "version": 1, "alias": "best"},
            {"kind": "PROMOTE", "version": 2, "alias": "stable"},
            {"kind": "STOP", "version": 1, "measures": {"holdout_positions": {"0": 7, "1": 9}}},
        ),
        FULL_CATALOG,
    )
    assert history.judged == (Judged(1, 0.3, 0.2, True),)
    assert history.refused == {2}
    assert history.promoted == 1
    assert history.stopped_at == {0: 7, 1: 9}


def test_resume_forgets_judgements_and_keeps_the_best_as_a_yardstick():
    history = fold(
        entries(
            keep(0),
            keep(4),
            {"kind": "PROMOTE", "version": 4, "alias": "best"},
            {"kind": "STOP", "version": 4},
            {"kind": "RESUME"},
        ),
        FULL_CATALOG,
    )
    assert history.judged == ()
    assert not history.stopped
    assert history.baseline == {0, 4}


def test_a_stop_by_hand_is_a_stop():
    history = fold(entries({"kind": "STOP", "by": "operator"}), FULL_CATALOG)
    assert history.stopped


def test_judgements_by_another_measure_do_not_count():
    assert fold(entries(keep(1)), CLICKS).judged == ()
    assert len(fold(entries(keep(1, decision_measure="position_balanced")), CLICKS).judged) == 1
    assert fold(entries(keep(1, map_full=None)), FULL_CATALOG).judged == ()


def against(best, version, value, at):
    return keep(
        version,
        map_full=value,
        best_before=best,
        best_decision=at,
        best_holds=True,
        min_delta=0.01,
    )


def test_what_an_earlier_release_decided_by_is_read_in_its_own_units():
    """Models of keys were best by order and by what is two clicks away, together: they stay best."""
    base = {"clicked_vs_random": 1.0, "position_balanced": 0.5, "balanced_hop": 0.9}
    common = {"decision_measure": "balanced_hop", "impressions": 900, "min_delta": 0.01, "best_holds": True}
    first = common | base | {"version_0": base, "balanced_hop": 0.95, "best_before": 0}
    second = first | {"balanced_hop": 0.97, "best_before": 1, "best_decision": 0.95}
    rows = [{"kind": "KEEP", "version": n, "measures": one} for n, one in ((1, first), (2, second))]
    judged = fold(entries(*rows), CLICKS).judged
    assert [(one.value, one.reference, one.beats) for one in judged] == [(0.95, 0.9, True), (0.97, 0.9, True)]
    assert judged[1].lead == pytest.approx(0.02)
    assert fold(entries(*rows), FULL_CATALOG).judged == ()
    without = {name: value for name, value in first.items() if name != "balanced_hop"}
    assert fold(entries({"kind": "KEEP", "version": 1, "measures": without}), CLICKS).judged == ()


def test_the_best_before_is_read_with_its_value_and_the_min_delta_of_that_day():
    history = fold(entries(keep(0), keep(1, best_before=0), against(1, 2, 0.5, 0.45)), FULL_CATALOG)
    assert [one.best for one in history.judged] == [None, None, Incumbent(1, 0.45, 0.01)]
    assert best_version(history.judged) == 2


def test_a_best_version_refused_later_gives_way_to_the_one_before():
    rows = [keep(0), keep(1), against(1, 2, 0.5, 0.45), {"kind": "PROMOTE", "version": 2, "alias": "best"}]
    rows += [against(2, 3, 0.4, 0.5), {"kind": "KEEP", "version": 2, "measures": {"refused": True}}]
    history = fold(entries(*rows), FULL_CATALOG)
    assert [one.version for one in history.judged] == [0, 1, 3]
    assert [(v.kind, v.version) for v in outstanding(history, StopRule(8, 3))] == [("PROMOTE", 1)]


def by_evidence(version, events, found, promoted=False, fell=False):
    says = {"found": found, "guards": [], "promoted": promoted, "fell": fell}
    return keep(version, events=events, evidence=says | {"standing": Standing().to_json()})


def test_after_a_fall_only_what_is_learned_then_counts_for_a_stop():
    rule = StopRule(events=20_000, min_versions=3)
    fallen = [keep(0), by_evidence(1, 10_000, "superior", promoted=True)]
    fallen += [{"kind": "PROMOTE", "version": 1, "alias": "best"}]
    fallen += [by_evidence(2, 200_000, "inferior", fell=True)]
    fallen += [{"kind": "ROLLBACK", "version": 0, "alias": "best", "by": "validate"}]
    soon = [by_evidence(3 + i, 200_100 + 100 * i, "equivalent") for i in range(3)]
    history = fold(entries(*fallen, *soon), FULL_CATALOG)
    assert (patience_of(history).counted, patience_of(history).idle) == (3, 300)
    assert stopped_by(history, rule) is None
    later = fold(entries(*fallen, *soon, by_evidence(9, 220_000, "inferior")), FULL_CATALOG)
    assert stopped_by(later, rule).events == 20_000


def test_a_damaged_verdict_is_one_warning_and_judging_goes_on(world, start):
    for _ in better_and_better(world, 2):
        turn(start()[0])
    damaged = sorted((world.path / "checkpoints" / "ledger").iterdir())[0]
    damaged.unlink()
    damaged.write_bytes(b"{}")
    validator, _ = start()
    world.publish()
    with capture_logs() as lines:
        # The verdict on version 0 was lost, so it is judged once more.
        assert [turn(validator) for _ in range(3)] == [0, world.versions.versions()[-1], None]
    assert [line["event"] for line in lines].count("verdict passed over") == 1
