"""Fed, learned and judged: lists that are learned from are bet on by the version before them, once."""

from __future__ import annotations

from pathlib import Path

import pytest

from daemon.cli import main
from daemon.exits import EX_OK
from streams.codec import decode_event, decode_impression
from streams.event import ONLY_ARMS
from tests.daemon.test_form_by_clicks import Judged, judged
from tests.daemon.test_unseen_kinds import values_of


@pytest.fixture
def place(tmp_path: Path) -> Judged:
    return Judged(tmp_path, "cosine")


def standing_of(place: Judged, number: int) -> dict[str, int]:
    entries = [one for one in place.ledger.entries() if one.kind == "KEEP" and one.version == number]
    found: dict[str, int] = entries[-1].measures["evidence"]["standing"]
    return found


def lists_of(place: Judged) -> list[bool]:
    """Of each list in the holdout topic, whether it is learned from."""
    return [decode_impression(value).trained for value in values_of(place, holdout=True)]


def test_what_comes_after_a_version_is_bet_on_by_it_and_then_learned(place: Judged) -> None:
    first = judged(place, 1)
    known = sum(lists_of(place))
    standing = standing_of(place, first)
    assert (standing["trained"], standing["bettor"]) == (0, [first, place.newest().watermark])
    second = judged(place, 2)
    fresh = sum(lists_of(place)) - known
    standing = standing_of(place, second)
    assert fresh > 100
    assert (standing["trained"], standing["bettor"]) == (fresh, [second, place.newest().watermark])
    assert main(["feed", str(place.folder / "clicks2.jsonl"), "--config", str(place.file)]) == EX_OK
    third = judged(place, 3)
    assert sum(lists_of(place)) > known + 2 * fresh, "they were not fed again"
    again = standing_of(place, third)["trained"] - standing["trained"]
    assert 0 < again == sum(lists_of(place)) - known - 2 * fresh


@pytest.mark.parametrize(
    ("old", "new"),
    [("[feed]\n", "[feed]\nprequential = false\n"), ("holdout_share = 0.5", "holdout_share = 0.0")],
)
def test_where_it_is_off_or_nothing_is_held_out_no_list_goes_along(place: Judged, old: str, new: str) -> None:
    place.file.write_text(place.file.read_text().replace(old, new))
    place.learn(50)
    assert not any(lists_of(place))
    assert values_of(place, holdout=False)


def test_what_is_held_out_arms_learn_but_for_a_tenth_where_there_are_arms(place: Judged) -> None:
    place.learn(50)
    lists = [decode_impression(value) for value in values_of(place, holdout=True)]
    for_arms = {one.id for one in lists if one.for_arms}
    events = [decode_event(value) for value in values_of(place, holdout=False)]
    alone = {event.impression for event in events if event.pair & ONLY_ARMS}
    assert 0 < len(for_arms) < sum(not one.trained for one in lists)
    assert alone == for_arms
    assert place.newest().counters["aside"] >= len(alone)


def test_without_arms_nobody_learns_what_is_held_out(place: Judged) -> None:
    place.file.write_text(place.file.read_text() + '[learner.race]\narms = "none"\n')
    place.learn(50)
    assert not any(decode_impression(value).for_arms for value in values_of(place, holdout=True))
    assert not any(decode_event(value).pair & ONLY_ARMS for value in values_of(place, holdout=False))
