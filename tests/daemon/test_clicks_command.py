"""`tripletd clicks bias` from the command line: the curve, what it was found from, and why there is none."""

from __future__ import annotations

import json
import tomllib
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from daemon.cli import main
from daemon.exits import EX_CANTCREAT, EX_CONFIG
from streams.event import EITHER, PAIR_BELOW, Draft, DraftModel, ObjectRef
from streams.signed_lists import SignedList, sign_list
from tests.daemon.test_feed_command import events_of

SECRET = "0123456789abcdef0123456789abcdef"
OBJECTS = [f"p{number}" for number in range(9)]
RANKS = 4


@pytest.fixture(autouse=True)
def no_width(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is printed into a pipe is as long as it is; processes that run tests side by side set a width."""
    monkeypatch.delenv("COLUMNS", raising=False)


def lists(count: int, how: str, seed: int = 0) -> list[dict[str, Any]]:
    """Lists of users who examine rank r with 1 / r: shuffled, always the same, or the same but for a random
    object in a random place, signed."""
    rng = np.random.default_rng(seed)
    found = []
    for number in range(count):
        order = rng.permutation(9)[:RANKS] if how == "shuffled" else np.arange(RANKS)
        slot, eligible = int(rng.integers(RANKS)), 9 - RANKS
        if how == "explored":
            order[slot] = RANKS + rng.integers(eligible)
        shown = [OBJECTS[at] for at in order]
        name = f"{how}-{seed}-{number}"
        if how == "explored":
            draft = Draft((DraftModel("stable", 3, 100),), (EITHER,) * RANKS, slot)
            said = SignedList(1_700_000_000_000, draft)
            nonce = number.to_bytes(3, "little")
            name = sign_list(SECRET.encode(), said, ObjectRef("q"), shown, eligible=eligible, nonce=nonce)
        clicked = np.flatnonzero(rng.random(RANKS) < 0.8 / np.arange(1, RANKS + 1)).tolist()
        line = {"id": name, "ts": 1_700_000_000_000, "q": "q", "shown": shown, "clicked": clicked, "src": how}
        found.append(line)
    return found


def written(path: Path, lines: list[dict[str, Any]]) -> str:
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return str(path)


def test_shuffled_lists_are_drawn(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    log = written(tmp_path / "a.jsonl", [*lists(2_000, "shuffled"), *lists(1_000, "same")])
    assert main(["clicks", "bias", log, "--shuffled", "shuffled"]) == 0
    said = capsys.readouterr().out
    assert "0 explored lists, 0 interleaved, 2,000 shuffled: 66.7% of the places" in said
    rows = [line.split() for line in said.splitlines() if line.strip()[:1].isdigit()]
    assert [row[:2] for row in rows] == [[str(rank), "3,000"] for rank in range(1, RANKS + 1)]
    assert [float(row[3]) for row in rows] == pytest.approx([1, 1 / 2, 1 / 3, 1 / 4], rel=0.15)
    assert rows[0][5] == "█" * 30
    assert 12 <= len(rows[1][5]) <= 18


def test_explored_lists_count_where_their_ids_prove_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    explored = lists(4_000, "explored")
    forged = {**explored[0], "q": "another", "clicked": [0]}
    log = written(tmp_path / "a.jsonl", [forged, *explored, explored[1]])
    words = ["clicks", "bias", log, "--json", "--ranks", "5"]
    monkeypatch.setenv("TRIPLETD_INTERLEAVING__KEY", SECRET)
    assert main(words) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["method"], found["lists"], found["explored"]) == ("chance", 4_000, 4_000)
    assert found["dropped"] == {"bad_signature": 1, "duplicate": 1}
    assert found["curve"][:RANKS] == pytest.approx([1, 1 / 2, 1 / 3, 1 / 4], rel=0.25)
    assert found["curve"][RANKS] is None
    assert found["shown"] == [4_000] * RANKS + [0]
    monkeypatch.delenv("TRIPLETD_INTERLEAVING__KEY")
    assert main(words) == 0
    unproved = json.loads(capsys.readouterr().out)
    assert (unproved["method"], unproved["explored"], unproved["unchecked"]) == ("moves", 0, 4_000)


def test_lists_that_never_vary_are_refused_with_the_remedy(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    log = written(tmp_path / "a.jsonl", lists(500, "same"))
    assert main(["clicks", "bias", log]) == 65
    said = capsys.readouterr()
    assert "0 of 4 pairs of query and object; they have 0.0% of the clicks" in said.out
    assert "no curve can be given; by chance: 0 clicks compare ranks with the first" in said.err
    assert "--shuffled" in said.err
    assert main(["clicks", "bias", log, "--json"]) == 65
    found = json.loads(capsys.readouterr().out)
    assert (found["method"], found["curve"]) == (None, None)
    assert found["refused"] in said.err


def test_the_curve_is_written_and_triplets_weigh_by_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    log = written(tmp_path / "a.jsonl", lists(4_000, "shuffled"))
    out = tmp_path / "bias.toml"
    words = ["clicks", "bias", log, "--shuffled", "shuffled", "--ranks", "6", "--out", str(out)]
    assert main(words) == 0
    found = tomllib.loads(out.read_text())
    assert (found["method"], found["lists"]) == ("chance", 4_000)
    assert found["examination"] == pytest.approx(
        [1, 1 / 2, 1 / 3, 1 / 4], rel=0.15
    )  # two ranks were not shown
    assert found["shown"] == [4_000] * RANKS
    assert main(words) == EX_CANTCREAT
    config = tmp_path / "tripletd.toml"
    config.write_text(
        f'[stream]\naddress = "log:{tmp_path}/clicks.log"\n[feed]\nposition_weights = "bias.toml"\n'
        "holdout_share = 0.0\nquery_cap = 0\nnegative_weight = 0.5\n"
    )
    assert main(["feed", log, "--config", str(config)]) == 0
    by_pair: dict[str, set[float]] = {}
    pairs, drawn = [], []
    for event in events_of(f"log:{tmp_path}/clicks.log"):
        clicked, skipped = event.id.split("/")[1:]
        by_pair.setdefault(f"{clicked}/{skipped[:1] if 'r' in skipped else skipped}", set()).add(event.weight)
        if event.pair != PAIR_BELOW:
            (drawn if "r" in skipped else pairs).append(event.weight)
    assert {len(weights) for weights in by_pair.values()} == {1}
    weight = {name: weights.pop() for name, weights in by_pair.items()}
    seen = found["examination"]
    assert weight["3/0"] / weight["1/0"] == pytest.approx(seen[1] / seen[3], rel=1e-3)
    assert weight["3/2"] / weight["3/0"] == pytest.approx(seen[2], rel=1e-3)
    assert weight["3/r"] / weight["0/r"] == pytest.approx(1 / seen[3], rel=1e-3)
    assert np.mean(pairs) == pytest.approx(1, abs=0.02)
    assert np.mean(drawn) == pytest.approx(0.5, abs=0.02)
    out.write_text("examination = [1.0]")
    capsys.readouterr()
    assert main(["feed", log, "--config", str(config)]) == EX_CONFIG
    assert "bias.toml: shown: expected a list of numbers" in capsys.readouterr().err
    out.unlink()
    assert main(["feed", log, "--config", str(config)]) == EX_CONFIG
    assert "--out FILE" in capsys.readouterr().err


def test_no_curve_is_written_where_none_can_be_given(tmp_path: Path) -> None:
    log, out = written(tmp_path / "a.jsonl", lists(500, "same")), tmp_path / "bias.toml"
    assert main(["clicks", "bias", log, "--out", str(out)]) == 65
    assert not out.exists()


def test_what_leaves_lists_without_a_click_out_is_told(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    clicked = [line for line in lists(2_000, "shuffled") if line["clicked"]]
    assert main(["clicks", "bias", written(tmp_path / "a.jsonl", clicked), "--shuffled", "shuffled"]) == 0
    assert "every list has a click" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('{"q": "a", "c": "b", "s": "c"}\n', "triplets do not tell places"),
        ('{"shown": ["a"], "clicked": []}\n', "no shown list was found: missing_id 1"),
        ("what is this\n", "--format"),
        (None, "does not exist"),
    ],
)
def test_what_is_wrong_is_said_with_its_remedy(
    tmp_path: Path, text: str | None, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "a.jsonl"
    if text is not None:
        path.write_text(text)
    assert main(["clicks", "bias", str(path)]) == 65
    assert said in capsys.readouterr().err
