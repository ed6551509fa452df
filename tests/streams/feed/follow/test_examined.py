"""The curve out of the newest lists that were closed: which count, and how many are kept."""

from __future__ import annotations

import numpy as np
import pytest

from streams.event import EITHER, Draft, DraftModel, Impression, ObjectRef
from streams.feed.follow import examined
from streams.feed.follow.examined import RecentExamination
from streams.feed.items import UnclickedList
from streams.signed_lists import SignedList, sign_list

SECRET = b"0123456789abcdef0123456789abcdef"
RANKS = 4


def closed(
    number: int, draw: np.random.Generator, name: str = "", steep: float = 1.0
) -> Impression | UnclickedList:
    """A list of a random order, of users who examine rank r with r ** -steep."""
    shown = [f"p{one}" for one in draw.permutation(8)[:RANKS]]
    clicked = np.flatnonzero(draw.random(RANKS) < 0.8 * np.arange(1, RANKS + 1) ** -steep)
    name = name or f"i{number}"
    if not len(clicked):
        return UnclickedList(name, 1000, "q", shown, "random", None)
    refs = tuple(ObjectRef(id=one) for one in shown)
    return Impression(name, 1000, ObjectRef(id="q"), refs, tuple(clicked.tolist()), source="random")


def test_the_newest_lists_are_looked_at_with_and_without_clicks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(examined, "LISTS", 3_000)
    draw, recent = np.random.default_rng(0), RecentExamination(shuffled=["random"])
    for number in range(5_000):
        recent.add(closed(number, draw, steep=0.0 if number < 2_000 else 1.0))
    assert recent.is_due
    found = recent.estimate()
    assert not recent.is_due
    assert (found.lists, found.method) == (3_000, "chance")
    assert 0.05 < found.without_click / found.lists < 0.3
    assert found.taken is not None
    assert found.taken.curve[:RANKS] == pytest.approx([1, 1 / 2, 1 / 3, 1 / 4], rel=0.2)


def test_chance_counts_where_an_id_proves_it_and_a_forged_one_does_not_count() -> None:
    draft = Draft((DraftModel("stable", 3, 100),), (EITHER,) * RANKS, 1)
    shown = [f"p{one}" for one in range(RANKS)]
    said = SignedList(1_700_000_000_000, draft)
    name = sign_list(SECRET, said, ObjectRef("q"), shown, eligible=4, nonce=b"abc")
    true = Impression(name, 1000, ObjectRef("q"), tuple(map(ObjectRef, shown)), (0,))
    forged = Impression(name, 1000, ObjectRef("other"), tuple(map(ObjectRef, shown)), (0,))
    for secret, lists, explored in ((SECRET, 1, 1), (b"", 2, 0)):
        recent = RecentExamination(secret)
        recent.add(true)
        recent.add(forged)
        found = recent.estimate()
        assert (found.lists, found.explored) == (lists, explored)
