"""What is refused leaves no trace: no id is taken, nothing is drawn of it, and nobody looks at it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from daemon.look.position_bias import ListReader
from streams.event import EITHER, Draft, DraftModel, Impression, ObjectRef
from streams.feed.decide import Decider
from streams.feed.items import CLICK_NOT_SHOWN, LateClick, UnclickedList
from streams.feed.options import FeedSettings, ListProof
from streams.feed.triplets import SeenCandidates
from streams.limits import MAX_SHOWN
from streams.signed_lists import SignedList, sign_list
from tests.streams.feed.feed_builders import impression, placed

HALF = "desk lam\ud83d"
"""A text that JavaScript cut in the middle of a character."""
SECRET = b"0123456789abcdef0123456789abcdef"
DRAFT = Draft((DraftModel("stable", 3, 100),), (EITHER,) * 4, 1)
SIGNED = sign_list(
    SECRET, SignedList(1, DRAFT), ObjectRef(id="other"), [f"p{n}" for n in range(4)], eligible=4, nonce=b"abc"
)
"""Of another query."""


def decider(candidates: SeenCandidates | None = None, **more: Any) -> Decider:
    settings = FeedSettings(holdout_share=0.0, random_negatives=1, **more)
    return Decider(settings, SeenCandidates() if candidates is None else candidates)


def refused() -> dict[str, Impression]:
    good = impression("i")
    return {
        "query": replace(good, query=ObjectRef(id=HALF)),
        "object": replace(good, shown=(*good.shown, ObjectRef(id=HALF))),
        "id": replace(good, id=HALF),
        "source": replace(good, source=HALF),
        "key": replace(good, key=HALF),
        "long object": replace(good, shown=(*good.shown, ObjectRef(id="x" * 10_000))),
        "long query": replace(good, query=ObjectRef(id="é" * 300)),
        "empty": replace(good, query=ObjectRef(id="")),
        "many": impression("i", MAX_SHOWN + 1),
        "forged": replace(good, id=SIGNED),
    }


@pytest.mark.parametrize("why", list(refused()))
@pytest.mark.parametrize("clicked", [True, False])
def test_a_refused_list_leaves_no_trace(why: str, clicked: bool) -> None:
    bad, good = refused()[why], impression("i")
    candidates = SeenCandidates()
    one = decider(candidates, proof=ListProof(SECRET))
    if why == "forged":
        good = replace(good, id=SIGNED, query=ObjectRef(id="other"))
    if not clicked:
        bad = replace(bad, clicked=())
    item = (
        bad
        if clicked
        else UnclickedList(
            bad.id, bad.ts, str(bad.query.id), [str(ref.id) for ref in bad.shown], bad.source, bad.key
        )
    )
    decision = one.decide(item)
    assert decision.fate == "dropped"
    assert not decision.accepted
    late = one.decide(LateClick(bad, 0))
    if bad.clicked:
        assert (late.fate, late.reason) == ("ignored", CLICK_NOT_SHOWN)
    else:
        assert not late.accepted
    assert len(candidates) == 0, "nothing of it is drawn for others"
    assert one.decide(good).fate == "training"
    reader = ListReader(SECRET, 10)
    found = reader.read(placed([bad, impression("other")]), 3, ())
    assert (found.lists, reader.dropped.total()) == (1, 1)


def test_what_was_shown_is_looked_at_also_where_nothing_is_learned_from_it() -> None:
    one = decider()
    assert one.decide(UnclickedList("u", 1, "q", ["a"], None, None)).accepted
    assert one.decide(impression("i")).accepted
    assert not one.decide(impression("i")).accepted
