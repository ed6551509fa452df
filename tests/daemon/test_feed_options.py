"""The options of `tripletd feed`, and what it says of a stream that is not there."""

from __future__ import annotations

from pathlib import Path

import pytest

from daemon import feeding
from daemon.cli import main
from daemon.config.load import load_config
from daemon.exits import EX_UNAVAILABLE, EX_USAGE
from streams.errors import TopicMissing
from streams.feed.options import FORMATS, PAIRS, RULES
from streams.source import Address


def test_the_choices_offered_are_those_there_are(capsys: pytest.CaptureFixture[str]) -> None:
    for option, known in (("--rule", RULES), ("--format", FORMATS), ("--pairs", PAIRS)):
        assert main(["feed", "clicks.jsonl", option, "bogus"]) == EX_USAGE
        assert f"use one of {', '.join(known)}" in capsys.readouterr().err


@pytest.mark.parametrize("lacking", ["clicks", "clicks.holdout"])
def test_the_command_that_makes_a_missing_topic_names_the_stream(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], lacking: str
) -> None:
    class Topic:
        partitions = 1

    def prepare(topic: Address, partitions: int, need: str) -> type[Topic]:
        if topic.topic == lacking:
            raise TopicMissing("gone")
        return Topic

    monkeypatch.setattr(feeding, "prepare_topic", prepare)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "clicks.jsonl").write_text('{"q": "a", "shown": ["b"], "clicked": [0]}\n')
    assert main(["feed", "clicks.jsonl", "--to", "kafka://host:9092/clicks"]) == EX_UNAVAILABLE
    told = capsys.readouterr().err
    assert f"kafka://host:9092/{lacking}: there is no such topic" in told
    assert "`tripletd topics create --to kafka://host:9092/clicks`" in told


IMAGES, TEXTS = "[space.views.image]\ndim = 64\n", "[space.views.text]\ndim = 64\n"


@pytest.mark.parametrize(
    ("text", "falls_from"),
    [
        (IMAGES + TEXTS, 1_500),
        (IMAGES, 0),
        (IMAGES + TEXTS + '[learner]\nalgorithm = "omks-maps"\n', 0),
        (IMAGES + TEXTS + "[feed]\nnegative_weight = 1.0\n", 0),
        (IMAGES + TEXTS + "[feed]\nnegative_falls_from = 0\n", 0),
        (IMAGES + TEXTS + "[keys]\nslots = 3\n", 0),
        (IMAGES + "[feed]\nnegative_falls_from = 7\n", 7),
    ],
)
def test_drawn_objects_weigh_less_and_less_where_oasis_learns_several_views(
    tmp_path: Path, text: str, falls_from: int
) -> None:
    (tmp_path / "tripletd.toml").write_text(text)
    assert feeding.negative_falls_from(load_config(tmp_path / "tripletd.toml")) == falls_from


@pytest.mark.parametrize(
    ("more", "rule"),
    [
        ({}, "all_skipped"),
        ({"keys.slots": 5}, "skip_above"),
        ({"space.views.x.kind": "sparse"}, "skip_above"),
        ({"space.views.x.dim": 1025}, "skip_above"),
        ({"learner.race.arms": "none"}, "skip_above"),
        ({"learner.race.arms": "none", "learner.pairs": "all"}, "all_skipped"),
        ({"learner.race.arms": [{"name": "one", "pairs": "above"}]}, "skip_above"),
        ({"learner.race.arms": [{"name": "one"}]}, "all_skipped"),
        ({"learner.race.arms": "none", "feed.rule": "all_skipped"}, "all_skipped"),
    ],
)
def test_pairs_below_the_click_are_made_by_default_where_somebody_learns_them(
    more: dict[str, object], rule: str
) -> None:
    view = {"space.views.x.kind": "dense", "space.views.x.dim": 8}
    assert feeding.rule_of(load_config(None, view | more, {})) == rule
    assert feeding.rule_of(load_config(None, {}, {})) == "all_skipped", "where no space is named"


@pytest.mark.parametrize(("key", "why"), [("", "key is empty"), ("k" * 65, "longer than 64 bytes")])
def test_a_key_that_no_event_can_carry_is_refused_before_anything_is_fed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], key: str, why: str
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "clicks.jsonl").write_text('{"q": "a", "shown": ["b"], "clicked": [0]}\n')
    assert main(["feed", "clicks.jsonl", "--key", key]) == EX_USAGE
    assert why in capsys.readouterr().err
    assert not (tmp_path / "clicks.log").exists()


@pytest.mark.parametrize(
    "words",
    [
        ["clicks.jsonl"],
        ["--to", "log:a.log"],
        ["--skip", "0"],
        ["--pairs", "items"],
        ["--theta", "0.5"],
        ["--triplets", "100000"],
        ["--ubi-query", "user_query"],
        ["--json"],
    ],
    ids=" ".join,
)
def test_nothing_but_the_configuration_goes_with_follow(
    words: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["feed", "--follow", *words]) == EX_USAGE
    assert "--follow takes what it does from the configuration alone" in capsys.readouterr().err
