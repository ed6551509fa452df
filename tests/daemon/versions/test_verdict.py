"""From numbers to words: a table, and no "no difference" from too little evidence."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from daemon.versions.verdict import (
    ByClicks,
    JudgedGain,
    PlainAnswer,
    SourceShare,
    Stopped,
    by_clicks,
    by_judgments,
    by_keys,
)

FEW = ByClicks(0, 1, "not yet", lists=60, mean=0.01, error=0.02, margin=0.02)
FEW_QUERIES = "mAP 0.638 against 0.607 on 40 judged queries"
UNSURE = f"Not known yet: {FEW_QUERIES}; the difference lies between -0.029 and +0.091"
NUMBERS = "mAP 0.865 against 0.607 on 100 judged queries"


@pytest.mark.parametrize(
    ("seen", "sentence"),
    [
        (FEW, "Not known yet: 60 held-out lists are not enough to tell"),
        (replace(FEW, missing=140), "Not known yet: about 140 more held-out lists are needed"),
        (
            replace(FEW, trained=20, missing=140, higher=0.61),
            "Not known yet: about 140 more lists are needed. Clicked objects stand higher in 61 of 100 "
            "held-out lists",
        ),
        (
            replace(FEW, served=1, proven=1, promoted=True, higher=0.731),
            "Yes: better than your ranking. Clicked objects stand higher in 73 of 100 held-out lists",
        ),
        (replace(FEW, served=1, proven=1, promoted=True), "Yes: better than your ranking"),
        # a test that calls two rankings equivalent is not asked: its margin was wide while it had seen little
        (replace(FEW, found="equivalent"), "Not known yet: 60 held-out lists are not enough to tell"),
        (
            replace(FEW, found="equivalent", mean=0.001, error=0.005, higher=0.5),
            "No: no difference from your ranking in the shown lists. Clicked objects stand higher in 50 of "
            "100 held-out lists",
        ),
        (
            replace(FEW, found="inferior", higher=0.4),
            "No: users prefer your ranking. Clicked objects stand higher in 40 of 100 held-out lists",
        ),
        (
            replace(FEW, found="superior", guards=("users prefer the order of version 1",)),
            "No: users prefer the order of version 1",
        ),
        (
            replace(FEW, strongest=SourceShare(43, 100, 6)),
            "Not known yet: 60 held-out lists are not enough to tell; one source gave 43 % of the lists, of "
            "which 6 in 43 count",
        ),
        (
            replace(FEW, found="inferior", strongest=SourceShare(30, 100, 30)),
            "No: users prefer your ranking; one source gave 30 % of the lists",
        ),
        (
            replace(FEW, found="inferior", strongest=SourceShare(20, 100, 6)),
            "No: users prefer your ranking",
        ),
        (
            replace(FEW, found="inferior", strongest=SourceShare(100, 100, 100)),
            "No: users prefer your ranking",
        ),
        (
            replace(FEW, served=1, order="arm all with 3 of your own ranking", top=1_040, reach=False),
            "Yes: it orders the first 1,040 objects of your ranking better",
        ),
        (
            replace(FEW, served=1, order="arm all with 3 of your own ranking", top=1, reach=False),
            "Yes: it orders given lists better",
        ),
        (
            replace(FEW, served=1, proven=1, order="arm all with 3 of your own ranking", top=40),
            "Yes: better than your ranking",
        ),
        (replace(FEW, fell=3), "No: version 3 lost to your ranking, which is served again"),
        (
            replace(FEW, silent=1),
            "Not known yet: version 1 makes these lists itself, so that their order cannot say whether it is "
            "better: with own and latest in serve.aliases, ask some questions with interleave=own,latest",
        ),
    ],
)
def test_what_clicks_say(seen, sentence):
    assert by_clicks(seen).sentence == sentence
    assert by_clicks(seen).answer == sentence.partition(":")[0].lower()


@pytest.mark.parametrize(
    ("served", "gain", "sentence"),
    [
        (1, JudgedGain(0.865, 0.607, 0.01, 100), f"Yes: better than your ranking. {NUMBERS}"),
        # a gain that stood before, and +.031 that so few queries cannot tell from none
        (
            1,
            JudgedGain(0.638, 0.607, 0.02, 40),
            UNSURE,
        ),
        (
            0,
            JudgedGain(0.638, 0.607, 0.02, 40),
            UNSURE,
        ),
        (
            0,
            JudgedGain(0.607, 0.607, 0.0005, 900, least=0.002),
            "No: no difference from your ranking. mAP 0.607 against 0.607 on 900 judged queries",
        ),
        (
            2,
            JudgedGain(0.5, 0.607, 0.01, 100),
            "No: your ranking is better. mAP 0.500 against 0.607 on 100 judged queries; version 2 is served",
        ),
    ],
)
def test_what_judgments_say(served, gain, sentence):
    assert by_judgments(served, gain).sentence == sentence


def test_what_keys_say():
    assert by_keys(12, 40) == PlainAnswer("yes", "Yes: better than your ranking for 12 of 40 judged keys")
    assert by_keys(0, 40).answer == "not known yet"


@given(st.floats(-1, 1), st.floats(0, 1), st.integers(1, 10_000), st.sampled_from(["equivalent", "not yet"]))
def test_no_difference_is_said_only_where_an_interval_says_so(mean, error, lists, found):
    told = by_clicks(ByClicks(0, 1, found, mean=mean, error=error, margin=0.05, lists=lists))
    assert (told.answer == "no") == (abs(mean) + 3 * error <= 0.05)


@given(st.floats(0, 1), st.floats(0, 1), st.floats(0, 1), st.integers(0, 3))
def test_judgments_say_yes_or_no_only_of_what_an_interval_leaves_out(value, reference, error, served):
    told = by_judgments(served, JudgedGain(value, reference, error, 50, least=0.002))
    if told.answer == "yes":
        assert value - reference > 3 * error
    if told.answer == "no":
        assert reference - value > 3 * error or abs(value - reference) + 3 * error <= 0.002


def test_a_stop_says_why_and_what_it_waits_for():
    stop = Stopped(20_412, 8, 0.002, wait=20_000, end=66_000)
    assert stop.reason == "no gain of .002 in 20,412 events and 8 judged versions"
    assert replace(stop, gain=0.0).reason == "no gain in 20,412 events and 8 judged versions"
    assert Stopped.from_json(stop.to_json()) == stop
    assert (stop.came(66_653), stop.came(10)) == (653, 0)
    assert Stopped.from_json({"stopped": {"strange": 1}}) is Stopped.from_json({}) is None
